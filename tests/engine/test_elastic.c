/* test_elastic.c - invariants 2, 8 and 11: a run that stops after any step goes on, on any number of ranks, with the rows that the
 * uninterrupted run has; blending, packing and balance on.
 *
 * What is compared are step digests: the digests of a step's rows in the order of the step's rows, over all ranks. */
#include "same_state.h"
#include "proof/proof_set.h"

enum { STEPS = 40, ROWS_MOST = 16, IMAGES = 6, WORLDS = 6, MICROS = 3 };

static const uint32_t worlds[WORLDS] = {1, 2, 3, 4, 6, 8};
static const int64_t micro_batches[MICROS] = {1, 2, 0}; /* 0: all */

static char folder[300];
static stk_options options;

/* --- the data: three sets, of which a run takes five, three and two parts --- */

static const char words[] = "north south river stone cloud seven paper light under table green house early sound water eight ";

static void write_set(const char *name, int records, int images_most)
{
    char *const text = malloc((size_t)records * 1200), *at = text;
    CHECK(text != NULL);
    char file[40];
    for (int i = 0; i < records; i++) {
        const int images = images_most ? 1 + i % images_most : 0, length = (i * 37 + images * 11) % 90;
        at += sprintf(at, "{\"id\": %d, \"image\": [", i);
        for (int k = 0; k < images; k++) at += sprintf(at, "%s\"img-%d.jpg\"", k ? ", " : "", (i + k) % IMAGES);
        at += sprintf(at, "], \"conversations\": [{\"from\": \"human\", \"value\": \"");
        for (int k = 0; k < images; k++) at += sprintf(at, "<image>");
        at += sprintf(at, "What of %d?\"}, {\"from\": \"gpt\", \"value\": \"It is %.*s and %d.\"}]}\n", i, length, words + i % 7, i);
    }
    snprintf(file, sizeof file, "%s.jsonl", name);
    proof_file(folder, file, text);
    free(text);
}

static void write_data(void)
{
    char path[600], command[400];
    snprintf(folder, sizeof folder, "%s/elastic", test_folder());
    snprintf(command, sizeof command, "mkdir '%s'", folder);
    CHECK(system(command) == 0);
    write_set("talk", 50, 0);
    write_set("one", 37, 1);
    write_set("many", 23, 3);
    for (int i = 0; i < IMAGES; i++) {
        snprintf(path, sizeof path, "%s/img-%d.jpg", folder, i);
        proof_jpeg(path, 40 + 19 * i, 120 - 13 * i, (unsigned)i);
    }
}

/* A configuration over the three sets.  An epoch has 110 draws: windows of 64 and of 46. */
static void configure(const char *more)
{
    char text[4096], path[400];
    if (!folder[0]) write_data();
    snprintf(text, sizeof text,
             "model: %s/../examples/sample/model\n"
             "template:\n"
             "  system: {before: \"<|im_start|>system\\n\", after: \"<|im_end|>\\n\"}\n"
             "  user: {before: \"<|im_start|>user\\n\", after: \"<|im_end|>\\n\"}\n"
             "  assistant: {before: \"<|im_start|>assistant\\n\", after: \"<|im_end|>\\n\", train: [text, \"<|im_end|>\\n\"]}\n"
             "  image: \"<|vision_start|><|image_pad|><|vision_end|>\"\n"
             "data:\n"
             "  - {name: talk, path: talk.jsonl, weight: 5}\n"
             "  - {name: one, path: one.jsonl, weight: 3}\n"
             "  - {name: many, path: many.jsonl, weight: 2}\n"
             "steps: %d\nseed: 11\nmax_pixels: 9216\nmin_pixels: 1024\nwindow: 64\nmemory: 192MiB\ntimeout: 60\n%s",
             test_source_folder(), STEPS, more);
    proof_file(folder, "run.yaml", text);
    snprintf(path, sizeof path, "%s/run.yaml", folder);
    stk_options_deinit(&options);
    options = (stk_options)STK_OPTIONS_INIT;
    stk_error err;
    CHECK_OK(stk_options_read(&options, path, &err), err);
}

/* --- runs --- */

typedef struct step_rows {
    uint32_t count;
    uint8_t digest[ROWS_MOST][16];
    uint64_t loss_tokens, planned_loss_tokens;
    stk_state state; /* after it */
} step_rows;

typedef struct run {
    step_rows step[STEPS];
} run;

/* The rows of a batch to the step's. */
static void add_rows(step_rows *rows, const stk_batch *batch)
{
    uint8_t digest[ROWS_MOST][16];
    size_t count = ROWS_MOST, next = 0;
    uint32_t last = UINT32_MAX;
    stk_error err;
    stk_batch_info info;
    CHECK_OK(stk_batch_row_digests(batch, digest, &count, &err), err);
    for (size_t i = 0; i < stk_batch_sample_count(batch); i++) {
        stk_batch_sample sample;
        stk_batch_sample_at(batch, i, &sample);
        CHECK(!sample.masked);
        if (sample.filler || sample.step_row == last) continue;
        last = sample.step_row;
        CHECK(last < ROWS_MOST && next < count);
        memcpy(rows->digest[last], digest[next++], 16);
        rows->count++;
    }
    CHECK_INT(next, count);
    stk_batch_info_get(batch, &info);
    rows->loss_tokens += info.loss_tokens;
    CHECK(rows->planned_loss_tokens == 0 || rows->planned_loss_tokens == info.step_loss_tokens);
    rows->planned_loss_tokens = info.step_loss_tokens;
    stk_batch_state(batch, &rows->state);
}

static stk_engine *engine_at(uint32_t world, const stk_state *state)
{
    stk_engine *engine;
    stk_error err;
    CHECK_OK(stk_engine_open(&engine, &options, (stk_engine_ranks){0, world, world, NULL}, state, NULL, &err), err);
    return engine;
}

/* Read steps [first, end) over all ranks, in turn. */
static void read_steps(stk_engine *engine, uint32_t world, uint64_t first, uint64_t end, run *out)
{
    for (uint64_t step = first; step < end; step++) {
        uint32_t micros = 1;
        step_rows *const rows = &out->step[step];
        memset(rows, 0, sizeof *rows);
        for (uint32_t micro = 0; micro < micros; micro++)
            for (uint32_t rank = 0; rank < world; rank++) {
                stk_batch *batch;
                stk_batch_info info;
                stk_error err;
                CHECK_OK(stk_reader_next(stk_engine_reader(engine, rank), &batch, STK_FOREVER, &err), err);
                CHECK(batch != NULL);
                stk_batch_info_get(batch, &info);
                CHECK(info.step == step && info.rank == rank && info.micro == micro);
                micros = info.micro_count;
                add_rows(rows, batch);
                stk_batch_release(&batch);
            }
    }
}

static void expect_steps(const run *got, const run *expected, uint64_t first, uint64_t end, const char *what)
{
    for (uint64_t step = first; step < end; step++) {
        const step_rows *const a = &got->step[step], *const b = &expected->step[step];
        CHECK_MSG(a->count == b->count && memcmp(a->digest, b->digest, sizeof a->digest) == 0, "%s: step %llu differs", what, (unsigned long long)step);
        CHECK_INT(a->loss_tokens, b->loss_tokens);
        CHECK_INT(a->planned_loss_tokens, a->loss_tokens);
        CHECK_MSG(same_state(&a->state, &b->state), "%s: the state after step %llu differs", what, (unsigned long long)step);
    }
}

static void expect_end(stk_engine *engine)
{
    stk_batch *batch;
    stk_error err;
    CHECK_INT(stk_reader_next(stk_engine_reader(engine, 0), &batch, STK_FOREVER, &err), STK_END);
}

/* How a run makes its batches: changes nothing of them. */
static void vary(uint64_t n)
{
    static const int64_t workers[] = {2, -1, 1, 3, 5};
    options.workers = workers[n % 5];
    options.prefetch = (int64_t)(n % 4);
    options.keep = 1 + (int64_t)(n % 2);
}

static run one, whole[WORLDS], rest;

/* Uninterrupted: on every number of ranks the same rows in the same steps. */
static void run_uninterrupted(uint64_t n)
{
    for (int w = 0; w < WORLDS; w++) {
        vary(n + (uint64_t)w);
        stk_engine *engine = engine_at(worlds[w], NULL);
        read_steps(engine, worlds[w], 0, STEPS, &whole[w]);
        expect_end(engine);
        stk_engine_close(&engine);
        if (w) expect_steps(&whole[w], &whole[0], 0, STEPS, "another number of ranks");
    }
}

/* Stop on one number of ranks, go on with another; every pair, and every step is a stop of some pair. */
static void resume_all_pairs(uint64_t n, uint64_t every)
{
    char what[100];
    for (int from = 0; from < WORLDS; from++)
        for (int to = 0; to < WORLDS; to++, n++) {
            if (n % every) continue;
            const uint64_t stop = 1 + n * 7 % (STEPS - 1), end = stop % 4 ? (stop + 9 < STEPS ? stop + 9 : STEPS) : STEPS;
            const stk_state state = whole[from].step[stop - 1].state;
            vary(n);
            snprintf(what, sizeof what, "%u ranks, then %u, micro_batch %lld, stopped after step %llu", worlds[from], worlds[to],
                     (long long)options.micro_batch, (unsigned long long)stop);
            stk_engine *engine = engine_at(worlds[to], &state);
            read_steps(engine, worlds[to], stop, end, &rest);
            expect_steps(&rest, &whole[0], stop, end, what);
            if (end == STEPS) expect_end(engine);
            stk_engine_close(&engine);
        }
}

#define PACKED "layout: packed\nrow_tokens: 224\nbalance: model+vision\n"

static void elastic(const char *more, uint64_t every)
{
    for (int m = 0; m < MICROS; m++) {
        configure(more);
        options.micro_batch = micro_batches[m];
        run_uninterrupted((uint64_t)m * 3);
        if (m == 0) one = whole[0];
        expect_steps(&whole[0], &one, 0, STEPS, "another micro_batch");
        resume_all_pairs((uint64_t)m * 36, every);
    }
    /* The run is worth comparing: its steps differ, and it goes through windows and epochs. */
    CHECK(one.step[STEPS - 1].state.epoch >= 2);
    for (int step = 1; step < STEPS; step++) CHECK(memcmp(one.step[step].digest, one.step[step - 1].digest, 16) != 0);
}

static void packed_steps_of_8_go_on_with_any_ranks(void)
{
    elastic(PACKED "batch: 8\n", 1);
}

static void packed_steps_of_12_go_on_with_any_ranks(void)
{
    elastic(PACKED "batch: 12\n", 1);
}

static void flat_steps_go_on_with_any_ranks(void)
{
    elastic("layout: flat\nbalance: model\nbatch: 12\n", 5);
}

static void padded_steps_go_on_with_any_ranks(void)
{
    elastic("layout: padded\nbalance: model+vision\nbatch: 8\n", 5);
}

/* With a batch that grows, and images that stand in where a rank has none. */
static void schedules_and_filler_images_go_on_with_any_ranks(void)
{
    elastic(PACKED "batch: [[0, 8], [7, 12], [21, 5], [30, 16]]\nmodality: aligned\nsegment_multiple: 8\n", 5);
    elastic(PACKED "batch: 8\nfiller_image: true\n", 7);
}

/* Invariant 8: inside a step too, on the same ranks, at every micro-batch; what was made ahead is made again, not lost. */
static void a_run_goes_on_in_the_middle_of_a_step(void)
{
    enum { WORLD = 3, MOST = STEPS * 4 * WORLD };
    static uint8_t digest[MOST][16];
    static stk_state after[MOST];
    configure(PACKED "batch: 12\n");
    options.micro_batch = 1; /* four a rank */
    vary(0);
    stk_error err;
    stk_batch *batch;
    stk_engine *engine = engine_at(WORLD, NULL);
    for (uint32_t i = 0; i < MOST; i++) {
        CHECK_OK(stk_reader_next(stk_engine_reader(engine, i % WORLD), &batch, STK_FOREVER, &err), err);
        stk_batch_digest(batch, digest[i]);
        stk_batch_state(batch, &after[i]);
        stk_batch_release(&batch);
    }
    expect_end(engine);
    stk_engine_close(&engine);
    for (uint32_t stop = WORLD; stop < MOST; stop += WORLD * 5) {
        vary(stop);
        /* A run that is stopped while it makes ahead: its reader's state is that of the last batch. */
        if (stop > 4 * WORLD) {
            engine = engine_at(WORLD, &after[stop - 4 * WORLD - 1]);
            for (uint32_t i = stop - 4 * WORLD; i < stop; i++) {
                CHECK_OK(stk_reader_next(stk_engine_reader(engine, i % WORLD), &batch, STK_FOREVER, &err), err);
                stk_batch_release(&batch);
            }
            stk_state state;
            stk_reader_state(stk_engine_reader(engine, WORLD - 1), &state);
            CHECK(same_state(&state, &after[stop - 1]));
            stk_engine_close(&engine);
        }
        engine = engine_at(WORLD, &after[stop - 1]);
        const uint32_t end = stop + 8 * WORLD < MOST ? stop + 8 * WORLD : MOST;
        for (uint32_t i = stop; i < end; i++) {
            uint8_t again[16];
            CHECK_OK(stk_reader_next(stk_engine_reader(engine, i % WORLD), &batch, STK_FOREVER, &err), err);
            stk_batch_digest(batch, again);
            CHECK_MSG(memcmp(again, digest[i], 16) == 0, "stopped after %u micro-batches: the %u-th differs", stop, i);
            stk_batch_release(&batch);
        }
        stk_engine_close(&engine);
    }
}

int main(int argc, char **argv)
{
    TEST_MAIN(argc, argv, TEST(packed_steps_of_8_go_on_with_any_ranks), TEST(packed_steps_of_12_go_on_with_any_ranks),
              TEST(flat_steps_go_on_with_any_ranks), TEST(padded_steps_go_on_with_any_ranks),
              TEST(schedules_and_filler_images_go_on_with_any_ranks), TEST(a_run_goes_on_in_the_middle_of_a_step));
}
