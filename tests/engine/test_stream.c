/* test_stream.c - index: stream: the samples of a full index in the same rows, found when they are drawn (invariants 1, 2, 5, 8). */
#include <dirent.h>
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "image/image.h"
#include "manifest/index.h"
#include "manifest/split.h"
#include "schema/derive.h"
#include "tiny_set.h"

enum { ROWS = TINY_RECORDS, EPOCHS = 2, ROWS_MOST = 16, STEPS_MOST = 60 };

/* Beside them, 192 MiB are enough for the largest that they allow. */
static const char *const small_limits[][2] = {{"max_tokens", "400"}, {"limits.media_bytes", "2MiB"}, {"limits.media_pixels", "300000"}, {"keep", "1"}};

static char folder[300];
static stk_options options;

static void set(const char *name, const char *value)
{
    stk_error err;
    CHECK_OK(stk_options_set(&options, name, value, &err), err);
}

static void read_options(void)
{
    stk_options_deinit(&options);
    proof_options(&options, folder);
    for (size_t i = 0; i < sizeof small_limits / sizeof *small_limits; i++) set(small_limits[i][0], small_limits[i][1]);
    set("index", "stream");
}

static void setup(const char *name)
{
    tiny_folder(folder, name);
    read_options();
}

static int files_with(const char *part)
{
    int count = 0;
    DIR *const dir = opendir(folder);
    CHECK(dir != NULL);
    for (const struct dirent *entry; (entry = readdir(dir));) count += strstr(entry->d_name, part) != NULL;
    closedir(dir);
    return count;
}

/* The manifest again, with `bad` in place of the records whose numbers are in `at`. */
static void write_manifest(const int *at, const char *const *bad, int count)
{
    static char text[TINY_RECORDS * 4000];
    size_t size = 0;
    for (int i = 0; i < TINY_RECORDS; i++) {
        int k = 0;
        while (k < count && at[k] != i) k++;
        if (k < count) size += (size_t)sprintf(text + size, "%s\n", bad[k]);
        else size += tiny_record(text + size, i);
    }
    proof_file(folder, "set.jsonl", text);
}

/* --- the same rows --- */

static void compare_with_full(const char *layout, int64_t micro_batch, uint32_t world)
{
    static tiny_run full, stream;
    set("layout", layout);
    options.micro_batch = micro_batch;
    set("index", "auto");
    set("balance", "none");
    tiny_run_from(&full, &options, world, NULL);
    set("index", "stream");
    set("balance", "auto");
    tiny_run_from(&stream, &options, world, NULL);
    CHECK_INT(full.status, STK_END);
    tiny_expect(&stream, &full, 0, layout);
    CHECK_INT(stream.metrics.samples, EPOCHS * ROWS);
    CHECK_INT(stream.metrics.masked, 0);
    CHECK(memcmp(&stream.state[0].fingerprint, &full.state[0].fingerprint, sizeof(stk_fingerprint)) != 0);
}

static void the_samples_and_rows_are_those_of_a_full_index(void)
{
    setup("same");
    const char *const layouts[] = {"padded", "flat"};
    for (int l = 0; l < 2; l++)
        for (uint32_t world = 1; world <= 3; world++)
            for (int64_t micro = 0; micro <= 2; micro++) {
                if (micro && world == 3 && micro > 1) continue;
                compare_with_full(layouts[l], micro, world);
            }
    set("shuffle", "false");
    compare_with_full("padded", 0, 1);
    set("data.set.first", "11");
    static tiny_run run;
    tiny_run_from(&run, &options, 1, NULL);
    CHECK_INT(run.metrics.samples, EPOCHS * 11);
}

static void a_filler_image_goes_to_micro_batches_without_media(void)
{
    setup("filler-image");
    set("filler_image", "true");
    compare_with_full("padded", 1, 1);
    compare_with_full("flat", 1, 2);
}

static void overlong_samples_shrink_as_with_a_full_index(void)
{
    setup("shrink");
    set("max_tokens", "70");
    set("overlong", "shrink");
    compare_with_full("padded", 2, 1);
}

static void several_manifests_are_one_set(void)
{
    setup("several");
    static char text[TINY_RECORDS * 400];
    size_t size = 0;
    for (int i = 0; i < 9; i++) size += tiny_record(text + size, i);
    proof_file(folder, "set.jsonl", text);
    text[0] = '[';
    size = 1;
    for (int i = 9; i < TINY_RECORDS; i++) {
        size += tiny_record(text + size, i);
        text[size - 1] = i + 1 < TINY_RECORDS ? ',' : ']';
    }
    text[size] = 0;
    proof_file(folder, "set-2.json", text);
    set("data.set.path", "[set.jsonl, set-2.json]");
    compare_with_full("padded", 0, 1);
}

/* --- records that cannot be used --- */

static const int bad_at[] = {4, 9, 13, 17, 20, 24};
static const char *const bad[] = {
    "{\"id\": 4, broken",
    "{\"id\": 9, \"image\": \"nowhere.jpg\", \"conversations\": [{\"from\": \"human\", \"value\": \"<image>?\"}, {\"from\": \"gpt\", \"value\": \"!\"}]}",
    "{\"id\": \"thirteen\", \"conversations\": [{\"from\": \"human\", \"value\": \"<image>?\"}, {\"from\": \"gpt\", \"value\": \"!\"}]}",
    NULL, /* over-long */
    "{\"id\": 20, \"image\": [\"img-1.jpg\", \"set.jsonl\"], \"conversations\": [{\"from\": \"human\", \"value\": \"<image><image>?\"}, {\"from\": \"gpt\", \"value\": \"!\"}]}",
    "[1, 2]",
};
static const char *const bad_reason[] = {"not valid JSON", "media missing", "tags and media do not match", "longer than max_tokens", "not an image", "not a known form of record"};
enum { BAD = sizeof bad_at / sizeof *bad_at };

static void write_bad(void)
{
    static char long_record[3000];
    const char *records[BAD];
    size_t size = (size_t)sprintf(long_record, "{\"id\": 17, \"conversations\": [{\"from\": \"human\", \"value\": \"");
    for (int i = 0; i < 500; i++) size += (size_t)sprintf(long_record + size, "w%d ", i % 10);
    sprintf(long_record + size, "\"}, {\"from\": \"gpt\", \"value\": \"!\"}]}");
    for (int i = 0; i < BAD; i++) records[i] = bad[i] ? bad[i] : long_record;
    write_manifest(bad_at, records, BAD);
}

static int bad_number(uint64_t record)
{
    for (int i = 0; i < BAD; i++)
        if ((uint64_t)bad_at[i] == record) return i;
    return -1;
}

/* Every row has the record that the full set's row has; those of no use are filler there, and say why. */
static void unusable_records_become_filler_rows_in_their_place(void)
{
    setup("calm");
    stk_loader *calm_loader = NULL, *loader = NULL;
    stk_error err;
    CHECK_OK(stk_loader_open(&calm_loader, &options, 0, 1, &err), err);
    setup("unusable");
    write_bad();
    CHECK_OK(stk_loader_open(&loader, &options, 0, 1, &err), err);
    stk_batch *calm = NULL, *batch = NULL;
    int seen[BAD] = {0};
    while (stk_loader_next(calm_loader, &calm, STK_FOREVER, &err) == STK_OK) {
        CHECK_OK(stk_loader_next(loader, &batch, STK_FOREVER, &err), err);
        CHECK_INT(stk_batch_sample_count(batch), TINY_BATCH);
        for (size_t i = 0; i < TINY_BATCH; i++) {
            stk_batch_sample now, then;
            stk_batch_sample_at(batch, i, &now);
            stk_batch_sample_at(calm, i, &then);
            CHECK(now.row == then.row && now.step_row == then.step_row && now.record == then.record && now.line == then.line);
            CHECK_STR(now.set, "set");
            const int k = bad_number(now.record);
            CHECK_INT(now.filler, k >= 0);
            CHECK_INT(now.masked, k >= 0);
            if (k < 0) {
                CHECK_STR(now.id, then.id);
                continue;
            }
            seen[k]++;
            CHECK_STR(now.reason, bad_reason[k]);
            CHECK_INT(now.tokens, 1);
            CHECK(now.id[0] && (k != 2 || strcmp(now.id, "set/thirteen") == 0));
        }
        stk_batch_info info;
        stk_batch_info_get(batch, &info);
        CHECK_INT(info.step_loss_tokens, 0);
        stk_batch_release(&calm);
        stk_batch_release(&batch);
    }
    CHECK_INT(stk_loader_next(loader, &batch, STK_FOREVER, &err), STK_END);
    for (int i = 0; i < BAD; i++) CHECK_INT(seen[i], EPOCHS);
    stk_metrics metrics;
    stk_loader_metrics(loader, &metrics);
    CHECK_INT(metrics.masked, EPOCHS * BAD);
    CHECK_INT(metrics.filler, EPOCHS * BAD);
    CHECK_INT(metrics.samples, EPOCHS * (ROWS - BAD));
    CHECK_INT(metrics.records_read, EPOCHS * ROWS);
    stk_loader_close(&loader);
    stk_loader_close(&calm_loader);
}

static size_t read_text(char *text, size_t capacity, const char *path)
{
    FILE *const file = fopen(path, "rb");
    CHECK(file != NULL);
    const size_t size = fread(text, 1, capacity - 1, file);
    text[size] = 0;
    fclose(file);
    CHECK(unlink(path) == 0);
    return size;
}

static void nothing_depends_on_workers(void)
{
    setup("workers");
    write_bad();
    static tiny_run first, run;
    static char letters[32 * 1024], first_letters[32 * 1024];
    char path[400];
    snprintf(path, sizeof path, "%s/dead-letter.jsonl", folder);
    set("dead_letter", path);
    options.micro_batch = 3;
    for (int w = 0; w < 3; w++) {
        options.workers = w == 0 ? -1 : w == 1 ? 1 : 4;
        tiny_run_from(&run, &options, 2, NULL);
        if (w == 0) first = run;
        tiny_expect(&run, &first, 0, "workers");
        CHECK_INT(run.status, STK_END);
        read_text(letters, sizeof letters, path);
        if (w == 0) strcpy(first_letters, letters);
        CHECK_STR(letters, first_letters);
    }
    size_t lines = 0;
    for (const char *c = letters; *c; c++) lines += *c == '\n';
    CHECK_INT(lines, EPOCHS * BAD);
    CHECK_HAS(letters, "\"reason\":\"media missing\"");
    CHECK_HAS(letters, "nowhere.jpg");
    CHECK_HAS(letters, "\"id\":\"set/thirteen\"");
    CHECK_HAS(letters, "\"stage\":\"index\"");
}

static void too_many_unusable_records_stop_the_run(void)
{
    setup("spent");
    char path[600];
    for (int i = 0; i < TINY_IMAGES; i++) {
        tiny_image_path(path, folder, i);
        CHECK(unlink(path) == 0);
    }
    static tiny_run first, run;
    options.workers = -1;
    tiny_run_from(&first, &options, 1, NULL);
    CHECK_INT(first.status, STK_ERR_SPENT);
    CHECK_HAS(first.err.message, "of set that were drawn are unusable, over errors.unusable");
    CHECK(first.count > 2 && first.count < 9);
    for (int workers = 1; workers <= 4; workers += 3) {
        options.workers = workers;
        tiny_run_from(&run, &options, 1, NULL);
        tiny_expect(&run, &first, 0, "spent");
        CHECK_STR(run.err.message, first.err.message);
    }
    options.errors_unusable = 1;
    tiny_run_from(&run, &options, 1, NULL);
    CHECK_INT(run.status, STK_END);
    CHECK(run.metrics.masked > 20 && run.metrics.masked == run.metrics.masked_by_reason[20]);
}

static void overlong_error_stops_at_its_place(void)
{
    setup("overlong");
    write_bad();
    set("overlong", "error");
    static tiny_run run;
    tiny_run_from(&run, &options, 1, NULL);
    CHECK_INT(run.status, STK_ERR_RECORD);
    CHECK_HAS(run.err.message, "max_tokens");
    CHECK_HAS(run.err.file, "set.jsonl");
    CHECK_INT(run.err.line, 18);
}

/* --- resume --- */

static void a_run_resumes_after_every_micro_batch(void)
{
    setup("resume");
    write_bad();
    static tiny_run calm, rest;
    options.micro_batch = 2;
    tiny_run_from(&calm, &options, 1, NULL);
    CHECK_INT(calm.count, 26);
    for (size_t k = 0; k < calm.count; k++) {
        options.workers = k % 5 == 0 ? -1 : (int64_t)(k % 5);
        tiny_run_from(&rest, &options, 1, &calm.state[k]);
        tiny_expect(&rest, &calm, k + 1, "resumed");
    }
}

typedef struct rows_of_run {
    uint64_t steps;
    uint8_t digest[STEPS_MOST][ROWS_MOST][16];
    stk_state state[STEPS_MOST];
} rows_of_run;

static void read_rows(rows_of_run *rows, uint32_t world, const stk_state *state)
{
    stk_engine *engine = NULL;
    stk_error err;
    memset(rows->digest, 0, sizeof rows->digest);
    CHECK_OK(stk_engine_open(&engine, &options, (stk_engine_ranks){0, world, world, NULL}, state, NULL, &err), err);
    rows->steps = stk_reader_step_count(stk_engine_reader(engine, 0));
    for (uint32_t rank = 0;; rank = (rank + 1) % world) {
        stk_batch *batch = NULL;
        const stk_status status = stk_reader_next(stk_engine_reader(engine, rank), &batch, STK_FOREVER, &err);
        if (status == STK_END) break;
        CHECK_OK(status, err);
        stk_batch_info info;
        stk_batch_info_get(batch, &info);
        uint8_t digest[ROWS_MOST][16];
        size_t count = ROWS_MOST, next = 0;
        CHECK_OK(stk_batch_row_digests(batch, digest, &count, &err), err);
        for (size_t i = 0; i < stk_batch_sample_count(batch); i++) {
            stk_batch_sample s;
            stk_batch_sample_at(batch, i, &s);
            if (s.filler) continue;
            CHECK(info.step < STEPS_MOST && s.step_row < ROWS_MOST && next < count);
            memcpy(rows->digest[info.step][s.step_row], digest[next++], 16);
        }
        CHECK_INT(next, count);
        stk_batch_state(batch, &rows->state[info.step]);
        stk_batch_release(&batch);
    }
    stk_engine_close(&engine);
}

/* Elastic: after any step on any number of ranks, the rows that the uninterrupted run has. */
static void a_run_goes_on_with_any_number_of_ranks(void)
{
    setup("elastic");
    write_bad();
    set("layout", "flat");
    const uint32_t worlds[] = {1, 2, 3, 4, 6, 8};
    static rows_of_run calm, from, rest;
    for (int batch = 8; batch <= 12; batch += 4) {
        options.batch = batch;
        options.micro_batch = 0;
        read_rows(&calm, 1, NULL);
        CHECK_INT(calm.steps, (EPOCHS * ROWS + batch - 1) / batch);
        for (int n = 0; n < 6; n++) {
            options.micro_batch = n % 3;
            if (options.micro_batch > (batch + (int)worlds[n] - 1) / (int)worlds[n]) options.micro_batch = 0;
            read_rows(&from, worlds[n], NULL);
            CHECK(memcmp(from.digest, calm.digest, sizeof calm.digest) == 0);
            for (uint64_t step = 0; step + 1 < calm.steps; step++) {
                const uint32_t to = worlds[(n + step) % 6];
                read_rows(&rest, to, &from.state[step]);
                for (uint64_t s = step + 1; s < calm.steps; s++)
                    CHECK_MSG(memcmp(rest.digest[s], calm.digest[s], sizeof calm.digest[s]) == 0, "%u to %u ranks after step %d: step %d",
                              worlds[n], to, (int)step, (int)s);
            }
        }
    }
}

static void a_state_of_a_full_index_is_refused(void)
{
    setup("states");
    static tiny_run run;
    tiny_run_from(&run, &options, 1, NULL);
    set("index", "auto");
    set("balance", "none");
    stk_engine *engine = NULL;
    stk_error err;
    CHECK_INT(stk_engine_open(&engine, &options, (stk_engine_ranks){0, 1, 1, NULL}, &run.state[2], NULL, &err), STK_ERR_STATE);
}

/* --- what is read --- */

static void the_first_batch_reads_its_own_records_alone(void)
{
    setup("first");
    options.workers = -1;
    stk_loader *loader = NULL;
    stk_batch *batch = NULL;
    stk_error err;
    stk_metrics metrics;
    CHECK_OK(stk_loader_open(&loader, &options, 0, 1, &err), err);
    stk_loader_metrics(loader, &metrics);
    CHECK_INT(metrics.records_read, 0);
    CHECK_OK(stk_loader_next(loader, &batch, STK_FOREVER, &err), err);
    stk_batch_info info;
    stk_batch_info_get(batch, &info);
    stk_loader_metrics(loader, &metrics);
    CHECK_INT(metrics.records_read, TINY_BATCH);
    CHECK_INT(metrics.headers_read, info.images);
    CHECK(info.images > 0);
    stk_batch_release(&batch);
    stk_loader_close(&loader);
    CHECK_INT(files_with(".stoker-lines-"), 1);
    CHECK_INT(files_with(".stoker-media-") + files_with(".stoker-text-") + files_with(".part"), 0);
}

static void stated_sizes_need_no_header(void)
{
    setup("stated");
    proof_file(folder, "set.jsonl", "{\"id\": 1, \"image\": [{\"path\": \"img-0.jpg\", \"width\": 90, \"height\": 200}], \"conversations\": [{\"from\": "
               "\"human\", \"value\": \"<image>?\"}, {\"from\": \"gpt\", \"value\": \"!\"}]}\n");
    static tiny_run run;
    tiny_run_from(&run, &options, 1, NULL);
    CHECK_INT(run.metrics.samples, EPOCHS);
    CHECK_INT(run.metrics.masked, 0);
    CHECK_INT(run.metrics.records_read, EPOCHS);
    CHECK_INT(run.metrics.headers_read, 0);
}

static uint64_t lines_found(uint64_t *records)
{
    stk_index_report *report = NULL;
    stk_error err;
    CHECK_OK(stk_index_build(&report, &options, NULL, &err), err);
    CHECK_INT(stk_index_report_count(report), 1);
    const stk_index_summary *const s = stk_index_report_at(report, 0);
    CHECK(s->only_lines && s->records_parsed == 0 && s->media_headers_read == 0 && s->texts_encoded == 0);
    const uint64_t found = s->lines_found;
    *records = s->records;
    stk_index_report_destroy(report);
    return found;
}

static void lines_are_scanned_once_and_again_when_the_manifest_changed(void)
{
    setup("lines");
    uint64_t records;
    CHECK_INT(lines_found(&records), ROWS);
    CHECK_INT(lines_found(&records), 0);
    CHECK_INT(records, ROWS);
    char path[400];
    snprintf(path, sizeof path, "%s/set.jsonl", folder);
    FILE *const file = fopen(path, "ab");
    CHECK(file != NULL && fputs("\n{\"id\": \"more\"}\n", file) >= 0 && fclose(file) == 0);
    CHECK_INT(lines_found(&records), ROWS + 1);
    CHECK_INT(records, ROWS + 1);
    set("limits.record_bytes", "1MiB"); /* no rule is part of lines */
    CHECK_INT(lines_found(&records), 0);
    CHECK_INT(files_with(".stoker-lines-"), 1);
}

/* Several pieces, cut inside records, line ends and blank lines: the facts that one scan from the start gives. */
static void pieces_give_what_one_scan_gives(void)
{
    setup("pieces");
    char path[400];
    snprintf(path, sizeof path, "%s/large.jsonl", folder);
    FILE *const file = fopen(path, "wb");
    CHECK(file != NULL && fputs("\xEF\xBB\xBF", file) >= 0);
    static char filling[100000];
    memset(filling, 'x', sizeof filling - 1);
    uint32_t random = 1;
    for (int i = 0; i < 700; i++) {
        random = random * 1664525u + 1013904223u;
        if (random % 5 == 0) fputs(random % 2 ? "\n" : "  \r\n", file);
        fprintf(file, "%s{\"id\": %d, \"x\": \"%.*s\"}%s", i % 7 ? "" : " ", i, (int)(random >> 8) % 99999, filling, i == 699 ? "" : i % 3 ? "\n" : "\r\n");
    }
    CHECK(fclose(file) == 0);
    stk_map map;
    stk_error err;
    CHECK_OK(stk_map_open(&map, path, &err), err);
    CHECK_MSG(map.size_bytes > 3 * (8u << 20), "%zu bytes are not several pieces", map.size_bytes);
    for (int threads = 0; threads <= 3; threads += 3) {
        char command[500];
        snprintf(command, sizeof command, "rm -f '%s'/*.stoker-lines-*", folder);
        CHECK(system(command) == 0);
        static const stk_limits limits = {.record_bytes = 1 << 20, .json_depth = 64, .media_per_record = 8, .text_bytes = 1 << 20,
                                          .media_bytes = 1 << 20, .media_px = 1 << 20, .jpeg_scans = 10};
        const stk_record_rules rules = {.limits = &limits};
        const char *const files[] = {path};
        const stk_survey survey = {0};
        const stk_index_spec spec = {.name = "large", .file = files, .file_count = 1, .record_rules = &rules, .survey = &survey,
                                     .mode = STK_INDEX_STREAM, .threads = threads};
        stk_set_index *index = NULL;
        stk_index_work work = {0};
        CHECK_OK(stk_set_index_open(&index, &spec, &work, &err), err);
        CHECK_INT(work.lines_found, 700);
        const stk_set_facts *const facts = stk_set_index_facts(index);
        stk_split split;
        stk_record_at at;
        uint64_t r = 0;
        CHECK_OK(stk_split_open(&split, map.data, map.size_bytes, &err), err);
        for (; stk_split_next(&split, &at, &err) == STK_OK; r++) {
            CHECK(r < facts->record_count);
            CHECK_INT(facts->record[r].offset, at.offset);
            CHECK_INT(facts->record[r].line, at.line);
            CHECK_INT(facts->record[r].size_bytes, at.text.size_bytes);
        }
        CHECK_INT(r, facts->record_count);
        CHECK_INT(stk_set_index_blank_lines(index), split.at.blank_lines);
        CHECK(split.at.blank_lines > 50);
        stk_set_index_close(&index);
    }
    stk_map_close(&map);
}

static void a_broken_array_is_refused_with_its_line(void)
{
    setup("array");
    proof_file(folder, "set.jsonl", "[{\"id\": 1},\n{\"id\": 2}\n{\"id\": 3}]\n");
    stk_loader *loader = NULL;
    stk_error err;
    CHECK_INT(stk_loader_open(&loader, &options, 0, 1, &err), STK_ERR_MANIFEST);
    CHECK_INT(err.line, 3);
    CHECK_HAS(err.file, "set.jsonl");
    CHECK_INT(files_with(".stoker-lines-"), 0);
}

/* --- what goes with it --- */

static void refuse(const char *name, const char *value, const char *words)
{
    stk_loader *loader = NULL;
    stk_error err;
    read_options();
    set(name, value);
    CHECK_MSG(stk_loader_open(&loader, &options, 0, 1, &err) == STK_ERR_OPTION, "%s: %s", name, err.message);
    CHECK_HAS(err.message, words);
    CHECK_HAS(err.message, "index: auto");
}

static void what_needs_sizes_before_the_run_is_refused(void)
{
    setup("refused");
    refuse("layout", "packed", "layout: packed");
    refuse("balance", "model", "balance other than none");
    refuse("balance", "model+vision", "balance other than none");
    refuse("modality", "aligned", "modality: aligned");
    refuse("data.set.where", "images > 0", "`where`");
    refuse("weights", "tokens", "weights: tokens");
    read_options();
    stk_error err;
    CHECK_INT(stk_index_exclude(&options, NULL, 0, true, NULL, &err), STK_ERR_OPTION);
}

static void a_small_budget_is_refused_with_what_to_lower(void)
{
    setup("budget");
    set("limits.media_pixels", "100000000");
    stk_loader *loader = NULL;
    stk_error err;
    CHECK_INT(stk_loader_open(&loader, &options, 0, 1, &err), STK_ERR_BUDGET);
    CHECK_HAS(err.message, "lower max_tokens, limits.media_pixels, limits.media_bytes or micro_batch");
    /* The record's media together are limited, since a ticket has room for so much. */
    read_options();
    char path[600];
    struct stat a, b;
    tiny_image_path(path, folder, 5);
    CHECK(stat(path, &a) == 0);
    tiny_image_path(path, folder, 6);
    CHECK(stat(path, &b) == 0);
    options.limits.media_bytes = a.st_size + b.st_size - 1;
    static tiny_run run;
    tiny_run_from(&run, &options, 1, NULL);
    CHECK_INT(run.status, STK_END);
    CHECK_INT(run.metrics.masked, EPOCHS); /* record 5 has both */
    CHECK_INT(run.metrics.masked_by_reason[25], EPOCHS);
}

/* Invariant 5: nothing decoded takes more than what is reserved for anything. */
static void no_image_needs_more_than_is_reserved(void)
{
    uint64_t random = 7, most_taken = 0;
    const uint64_t media_px = 4000000, target_px = 1000000;
    const size_t most = stk_image_work_most(media_px, 32, target_px);
    for (int i = 0; i < 200000; i++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        const double ratio = exp2(((double)(random >> 40) / (double)(1 << 24) - 0.5) * 2 * log2(200));
        const double area = (double)media_px * (i % 3 ? 1 : (double)(random >> 20 & 0xffff) / 65536 + 1e-5);
        const double height = sqrt(area / ratio), width = area / height;
        if (height < 1 || width < 1) continue;
        stk_image_info info = {.format = i % 2 ? STK_FORMAT_UNKNOWN : STK_FORMAT_TIFF, .width_px = (uint32_t)width, .height_px = (uint32_t)height,
                               .orientation = (uint8_t)(1 + random % 8), .whole = true};
        const bool turned = stk_orientation_swaps(info.orientation);
        const uint32_t w = turned ? info.height_px : info.width_px, h = turned ? info.width_px : info.height_px;
        uint32_t tw, th;
        if (stk_target_size(&tw, &th, w, h, 32, random % 4 ? 1024 : target_px, random % 5 ? target_px : 2048, STK_PROFILE_HF) != STK_REASON_NONE)
            continue;
        if ((uint64_t)tw * th > target_px) continue; /* its sample is over-long */
        const size_t bytes = stk_image_work_bytes(&info, tw, th);
        if (bytes > most_taken) most_taken = bytes;
        CHECK_MSG(bytes <= most, "%u x %u to %u x %u takes %zu, over %zu", w, h, tw, th, bytes, most);
    }
    CHECK_MSG(most < 3 * most_taken, "%zu are reserved, and no image takes more than %zu", most, (size_t)most_taken);
}

static void a_replay_makes_the_same_batch(void)
{
    setup("replay");
    write_bad();
    static tiny_run run;
    options.micro_batch = 2;
    tiny_run_from(&run, &options, 1, NULL);
    for (uint64_t step = 0; step < 13; step += 3)
        for (uint32_t micro = 0; micro < 2; micro++) {
            stk_batch *batch = NULL;
            stk_error err;
            uint8_t digest[16];
            CHECK_OK(stk_replay(&batch, &options, step, 0, 1, micro, NULL, &err), err);
            stk_batch_digest(batch, digest);
            CHECK(memcmp(digest, run.digest[step * 2 + micro], 16) == 0);
            stk_batch_release(&batch);
        }
}

/* Invariant 10: scratch grows until each thread has met the largest; nothing is allocated per batch. */
static void nothing_is_allocated_per_batch(void)
{
    setup("steady");
    write_bad();
    options.epochs = 30;
    options.errors_unusable = 1;
    options.workers = 2;
    stk_loader *loader = NULL;
    stk_batch *batch = NULL;
    stk_error err;
    uint64_t allocations = 0, batches = 0;
    CHECK_OK(stk_loader_open(&loader, &options, 0, 1, &err), err);
    for (int i = 0; stk_loader_next(loader, &batch, STK_FOREVER, &err) == STK_OK; i++) {
        if (i == 26) allocations = stk_alloc_count();
        batches += i > 26;
        stk_batch_release(&batch);
    }
    CHECK(allocations > 0);
    const uint64_t more = stk_alloc_count() - allocations;
    CHECK_MSG(batches > 150 && more < batches / 3, "%d allocations in %d batches", (int)more, (int)batches);
    stk_loader_close(&loader);
}

static void an_engine_closes_while_facts_are_found(void)
{
    setup("close");
    for (int i = 0; i < 20; i++) {
        stk_engine *engine = NULL;
        stk_error err;
        options.workers = 1 + i % 4;
        options.prefetch = 4;
        CHECK_OK(stk_engine_open(&engine, &options, (stk_engine_ranks){0, 1, 1, NULL}, NULL, NULL, &err), err);
        stk_batch *batch = NULL;
        if (i % 2) CHECK_OK(stk_reader_next(stk_engine_reader(engine, 0), &batch, STK_FOREVER, &err), err);
        stk_engine_close(&engine);
        stk_batch_release(&batch);
    }
}

static void a_sample_is_shown_and_a_plan_counts_rows(void)
{
    setup("show");
    write_bad();
    stk_sample_view *view = NULL;
    stk_error err;
    stk_sample_info info;
    CHECK_OK(stk_sample_open(&view, &options, "set/5", NULL, &err), err);
    stk_sample_info_get(view, &info);
    CHECK_INT(info.line, 6);
    CHECK_INT(info.image_count, 2);
    stk_sample_close(&view);
    CHECK_OK(stk_sample_open(&view, &options, "set#6", NULL, &err), err);
    stk_sample_close(&view);
    CHECK_INT(stk_sample_open(&view, &options, "set/9", NULL, &err), STK_ERR_RECORD);
    CHECK_HAS(err.message, "nowhere.jpg");
    CHECK_INT(stk_sample_open(&view, &options, "set/none", NULL, &err), STK_ERR_USAGE);
    stk_plan_counts counts;
    CHECK_OK(stk_plan_count(&counts, &options, 1, &err), err);
    CHECK_INT(counts.steps, EPOCHS * ROWS / TINY_BATCH);
    CHECK_INT(counts.rows, EPOCHS * ROWS);
    CHECK_INT(counts.tokens, 0);
}

int main(int argc, char **argv)
{
    TEST_MAIN(argc, argv, TEST(the_samples_and_rows_are_those_of_a_full_index), TEST(a_filler_image_goes_to_micro_batches_without_media),
              TEST(overlong_samples_shrink_as_with_a_full_index), TEST(several_manifests_are_one_set),
              TEST(unusable_records_become_filler_rows_in_their_place), TEST(nothing_depends_on_workers),
              TEST(too_many_unusable_records_stop_the_run), TEST(overlong_error_stops_at_its_place),
              TEST(a_run_resumes_after_every_micro_batch), TEST(a_run_goes_on_with_any_number_of_ranks),
              TEST(a_state_of_a_full_index_is_refused), TEST(the_first_batch_reads_its_own_records_alone), TEST(stated_sizes_need_no_header),
              TEST(lines_are_scanned_once_and_again_when_the_manifest_changed), TEST(pieces_give_what_one_scan_gives),
              TEST(a_broken_array_is_refused_with_its_line), TEST(what_needs_sizes_before_the_run_is_refused),
              TEST(a_small_budget_is_refused_with_what_to_lower), TEST(no_image_needs_more_than_is_reserved), TEST(a_replay_makes_the_same_batch),
              TEST(nothing_is_allocated_per_batch), TEST(an_engine_closes_while_facts_are_found), TEST(a_sample_is_shown_and_a_plan_counts_rows));
}
