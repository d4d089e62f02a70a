/* test_masked.c - faults of bytes found while running: masked in place, written down, counted, and stopped
 * when too many (architecture section 7). */
#include <sys/stat.h>

#include "tiny_set.h"

enum { LETTERS_MAX = 64 * 1024 };

static char folder[300], letters_path[400], letters[LETTERS_MAX];
static stk_options options;
static tiny_run calm;

/* A set whose index was built while all was well. */
static void setup(const char *name)
{
    tiny_folder(folder, name);
    snprintf(letters_path, sizeof letters_path, "%s/dead-letter.jsonl", folder);
    stk_options_deinit(&options);
    proof_options(&options, folder);
    tiny_run_from(&calm, &options, 1, NULL);
    stk_error err;
    CHECK_OK(stk_options_set(&options, "dead_letter", letters_path, &err), err);
}

static size_t read_letters(void)
{
    FILE *const file = fopen(letters_path, "rb");
    CHECK(file != NULL);
    const size_t size = fread(letters, 1, sizeof letters - 1, file);
    letters[size] = 0;
    fclose(file);
    CHECK(unlink(letters_path) == 0);
    size_t lines = 0;
    for (size_t i = 0; i < size; i++) lines += letters[i] == '\n';
    return lines;
}

/* Spoil rare picture `at`: gone, shorter, another header of the same length, broken inside at the same
 * length. */
static void spoil(int at, const char *how)
{
    char path[600];
    struct stat info;
    tiny_image_path(path, folder, TINY_IMAGES + at);
    CHECK(stat(path, &info) == 0);
    if (strcmp(how, "gone") == 0) {
        CHECK(unlink(path) == 0);
    } else if (strcmp(how, "short") == 0) {
        CHECK(truncate(path, info.st_size / 2) == 0);
    } else {
        FILE *const file = fopen(path, "r+b");
        CHECK(file != NULL);
        for (long i = 0; i < (long)info.st_size; i++)
            CHECK(fputc("not an image at all"[i % 19], file) != EOF);
        fclose(file);
    }
}

/* Compare a micro-batch with the calm one: all equal but the labels and pixels of masked samples.  The number
 * masked. */
static size_t compare_batches(const stk_batch *batch, const stk_batch *calm_batch)
{
    size_t masked = 0;
    CHECK_INT(stk_batch_field_count(batch), stk_batch_field_count(calm_batch));
    for (size_t f = 0; f < stk_batch_field_count(batch); f++) {
        const stk_view now = stk_batch_field_at(batch, f), then = stk_batch_field_at(calm_batch, f);
        CHECK_STR(now.name, then.name);
        CHECK(now.ndim == then.ndim && memcmp(now.shape, then.shape, sizeof now.shape) == 0);
        if (strcmp(now.name, "labels") != 0 && strcmp(now.name, "pixel_bytes") != 0)
            CHECK_MSG(memcmp(now.data, then.data, now.size_bytes) == 0, "%s differs", now.name);
    }
    const stk_view labels = stk_batch_field(batch, "labels"),
                   calm_labels = stk_batch_field(calm_batch, "labels");
    const stk_view grids = stk_batch_field(batch, "image_grid_thw"),
                   offsets = stk_batch_field(batch, "image_offsets");
    const stk_view pixels = stk_batch_field(batch, "pixel_bytes"),
                   calm_pixels = stk_batch_field(calm_batch, "pixel_bytes");
    uint64_t loss_tokens = 0, patch = 0;
    for (size_t i = 0; i < stk_batch_sample_count(batch); i++) {
        stk_batch_sample sample;
        stk_batch_sample_at(batch, i, &sample);
        const int64_t *const row = (const int64_t *)labels.data + (int64_t)i * labels.shape[1];
        const int64_t *const calm_row = (const int64_t *)calm_labels.data + (int64_t)i * labels.shape[1];
        for (int64_t t = 0; t < labels.shape[1]; t++) {
            CHECK_INT(row[t], sample.masked ? -100 : calm_row[t]);
            loss_tokens += row[t] != -100;
        }
        const int32_t *const at = offsets.data;
        for (int32_t k = at[i]; k < at[i + 1]; k++) {
            const int64_t *const grid = (const int64_t *)grids.data + 3 * k;
            const size_t bytes = (size_t)(grid[0] * grid[1] * grid[2] * pixels.shape[1]),
                         from = patch * (size_t)pixels.shape[1];
            const uint8_t *const now = (const uint8_t *)pixels.data + from, *const then =
                                                                                (const uint8_t *)
                                                                                    calm_pixels.data +
                                                                                from;
            for (size_t b = 0; b < bytes; b++) CHECK_INT(now[b], sample.masked ? 128 : then[b]);
            patch += (uint64_t)(grid[0] * grid[1] * grid[2]);
        }
        masked += sample.masked;
        CHECK_MSG(sample.masked == (sample.reason[0] != 0), "%s", sample.reason);
        if (sample.masked) CHECK_HAS(sample.id, "set/rare-");
    }
    stk_batch_info info, calm_info;
    stk_batch_info_get(batch, &info);
    stk_batch_info_get(calm_batch, &calm_info);
    CHECK_INT(info.loss_tokens, loss_tokens);
    CHECK_INT(info.step_loss_tokens,
              calm_info.step_loss_tokens); /* planned: equal on all ranks, whatever is masked */
    CHECK(calm_info.loss_tokens == info.loss_tokens || masked);
    return masked;
}

static void a_masked_sample_keeps_its_place(void)
{
    setup("masked");
    /* The same set, unspoiled: its digests must not be mixed up with those of the spoilt one. */
    char calm_folder[300];
    stk_options calm_options;
    tiny_folder(calm_folder, "unspoilt");
    proof_options(&calm_options, calm_folder);
    spoil(0, "gone");
    spoil(1, "short");
    spoil(2, "noise");

    stk_loader *loader = NULL, *calm_loader = NULL;
    stk_error err;
    stk_status status;
    CHECK_OK(stk_loader_open(&loader, &options, 0, 1, &err), err);
    CHECK_OK(stk_loader_open(&calm_loader, &calm_options, 0, 1, &err), err);
    stk_batch *batch = NULL, *calm_batch = NULL;
    size_t masked = 0;
    while ((status = stk_loader_next(loader, &batch, STK_FOREVER, &err)) == STK_OK) {
        CHECK_OK(stk_loader_next(calm_loader, &calm_batch, STK_FOREVER, &err), err);
        masked += compare_batches(batch, calm_batch);
        stk_batch_release(&batch);
        stk_batch_release(&calm_batch);
    }
    CHECK_INT(status, STK_END);
    CHECK_INT(masked, 2 * TINY_RARE);
    stk_metrics metrics;
    stk_loader_metrics(loader, &metrics);
    CHECK_INT(metrics.masked, 2 * TINY_RARE);
    uint64_t by_reason = 0;
    for (unsigned i = 0; i < 64; i++) by_reason += metrics.masked_by_reason[i];
    CHECK_INT(by_reason, 2 * TINY_RARE);
    stk_loader_close(&loader);
    stk_loader_close(&calm_loader);
    stk_options_deinit(&calm_options);

    CHECK_INT(read_letters(), 2 * TINY_RARE);
    CHECK_HAS(letters, "\"id\":\"set/rare-0\"");
    CHECK_HAS(letters, "\"set\":\"set\"");
    CHECK_HAS(letters, "/set.jsonl\",\"line\":1,");
    CHECK_HAS(letters, "\"reason\":\"media missing\"");
    CHECK_HAS(letters, "\"stage\":\"fetch\"");
    CHECK_HAS(letters, "\"reason\":\"media changed since indexing\"");
    CHECK_HAS(letters, "\"reason\":\"not an image\"");
}

/* Batches and dead letters alike, whatever the threads; each resumed half writes its own. */
static void masking_does_not_depend_on_threads(void)
{
    setup("threads");
    for (int i = 0; i < TINY_RARE; i++) spoil(i, i == 1 ? "short" : "gone");
    static tiny_run first, run;
    static char first_letters[LETTERS_MAX];
    options.workers = -1;
    tiny_run_from(&first, &options, 1, NULL);
    CHECK_INT(read_letters(), 2 * TINY_RARE);
    strcpy(first_letters, letters);
    size_t differ = 0;
    for (size_t i = 0; i < first.count; i++) differ += memcmp(first.digest[i], calm.digest[i], 16) != 0;
    CHECK_MSG(differ > 0 && differ <= 2 * TINY_RARE, "%zu micro-batches differ", differ);
    for (int workers = 1; workers <= 8; workers *= 2) {
        options.workers = workers;
        tiny_run_from(&run, &options, 1, NULL);
        tiny_expect(&run, &first, 0, "masked");
        read_letters();
        CHECK_STR(letters, first_letters);
    }
    tiny_run_from(&run, &options, 1, &first.state[5]);
    tiny_expect(&run, &first, 6, "masked, resumed");
    read_letters();
    CHECK_HAS(first_letters, letters);
}

/* In plan order, whichever reader asks first. */
static void dead_letters_of_two_readers_stand_in_plan_order(void)
{
    setup("order");
    for (int i = 0; i < TINY_RARE; i++) spoil(i, "gone");
    static char first_letters[LETTERS_MAX];
    options.prefetch = 4;
    for (uint32_t first = 0; first < 2; first++) {
        stk_engine *engine = NULL;
        stk_error err;
        CHECK_OK(stk_engine_open(&engine, &options, (stk_engine_ranks){0, 2, 2, NULL}, NULL, NULL, &err), err);
        for (int turn = 0; turn < 13; turn++)
            for (uint32_t i = 0; i < 2; i++) {
                stk_batch *batch = NULL;
                CHECK_OK(stk_reader_next(stk_engine_reader(engine, i ^ first), &batch, STK_FOREVER, &err),
                         err);
                stk_batch_release(&batch);
            }
        stk_engine_close(&engine);
        CHECK_INT(read_letters(), 2 * TINY_RARE);
        if (first == 0)
            strcpy(first_letters, letters);
        else
            CHECK_STR(letters, first_letters);
    }
}

static void the_error_budget_stops_the_run(void)
{
    setup("budget");
    char path[600];
    for (int i = 0; i < TINY_IMAGES; i++) {
        tiny_image_path(path, folder, i);
        CHECK(unlink(path) == 0);
    }
    static tiny_run first, run;
    options.workers = -1;
    tiny_run_from(&first, &options, 1, NULL);
    CHECK_INT(first.status, STK_ERR_SPENT);
    CHECK_HAS(first.err.message, "of set were masked, over errors.masked");
    CHECK_HAS(first.err.sample, "set/");
    CHECK(first.count > 0 && first.count < calm.count);
    /* The floor of 10, and all of the micro-batch that went over it. */
    const size_t lines = read_letters();
    CHECK_MSG(lines > 10 && lines <= 10 + TINY_BATCH, "%zu dead letters", lines);
    for (int workers = 1; workers <= 4; workers++) {
        options.workers = workers;
        tiny_run_from(&run, &options, 1, NULL);
        tiny_expect(&run, &first, 0, "spent");
        CHECK_STR(run.err.message, first.err.message);
        CHECK_INT(read_letters(), lines);
    }
    options.errors_masked = 1;
    tiny_run_from(&run, &options, 1, NULL);
    CHECK_INT(run.status, STK_END);
    CHECK_INT(run.count, calm.count);
}

/* A failure stops every reader at the same place in plan order. */
static void all_readers_stop_at_the_failure(void)
{
    setup("all-stop");
    char path[600];
    for (int i = 0; i < TINY_IMAGES; i++) {
        tiny_image_path(path, folder, i);
        CHECK(unlink(path) == 0);
    }
    static tiny_run run;
    tiny_run_from(&run, &options, 2, NULL);
    CHECK_INT(run.status, STK_ERR_SPENT);
    stk_engine *engine = NULL;
    stk_error err, again;
    CHECK_OK(stk_engine_open(&engine, &options, (stk_engine_ranks){0, 2, 2, NULL}, NULL, NULL, &err), err);
    for (size_t i = 0;; i++) {
        stk_batch *batch = NULL;
        stk_reader *const reader = stk_engine_reader(engine, 1 - (uint32_t)(i % 2));
        const stk_status status = stk_reader_next(reader, &batch, STK_FOREVER, &err);
        if (status == STK_OK) {
            stk_batch_release(&batch);
            continue;
        }
        CHECK_INT(status, STK_ERR_SPENT);
        CHECK_INT(stk_reader_next(reader, &batch, STK_FOREVER, &again), STK_ERR_SPENT);
        CHECK_STR(again.message, err.message);
        CHECK_STR(again.message, run.err.message);
        /* The other one has at most one micro-batch before that place. */
        stk_reader *const other = stk_engine_reader(engine, (uint32_t)(i % 2));
        stk_status last = stk_reader_next(other, &batch, STK_FOREVER, &again);
        stk_batch_release(&batch);
        if (last == STK_OK) last = stk_reader_next(other, &batch, STK_FOREVER, &again);
        CHECK_INT(last, STK_ERR_SPENT);
        break;
    }
    stk_engine_close(&engine);
}

/* Data that changes under an open index is an error at its place in order, not a guess. */
static void a_manifest_that_changes_fails_at_its_place(void)
{
    setup("changed");
    options.workers = -1;
    stk_loader *loader = NULL;
    stk_error err;
    stk_batch *batch = NULL;
    uint8_t digest[16];
    CHECK_OK(stk_loader_open(&loader, &options, 0, 1, &err), err);
    CHECK_OK(stk_loader_next(loader, &batch, STK_FOREVER, &err), err);
    stk_batch_digest(batch, digest);
    CHECK(memcmp(digest, calm.digest[0], 16) == 0);
    stk_batch_release(&batch);
    char path[600];
    snprintf(path, sizeof path, "%s/set.jsonl", folder);
    struct stat info;
    CHECK(stat(path, &info) == 0);
    FILE *const file = fopen(path, "r+b");
    CHECK(file != NULL);
    for (long i = 0; i < (long)info.st_size; i++) CHECK(fputc('x', file) != EOF);
    fclose(file);
    CHECK_INT(stk_loader_next(loader, &batch, STK_FOREVER, &err), STK_ERR_INDEX);
    CHECK(batch == NULL);
    CHECK_HAS(err.file, "set.jsonl");
    CHECK(err.line > 0);
    CHECK_HAS(err.message, "stoker index");
    CHECK_INT(stk_loader_next(loader, &batch, STK_FOREVER, &err), STK_ERR_INDEX);
    stk_loader_close(&loader);
}

int main(int argc, char **argv)
{
    TEST_MAIN(argc, argv, TEST(a_masked_sample_keeps_its_place), TEST(masking_does_not_depend_on_threads),
              TEST(dead_letters_of_two_readers_stand_in_plan_order), TEST(the_error_budget_stops_the_run),
              TEST(all_readers_stop_at_the_failure), TEST(a_manifest_that_changes_fails_at_its_place));
}
