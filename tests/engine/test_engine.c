/* test_engine.c - invariants 1, 2, 3, 5: one stream, whatever the threads, the budget, the delays and the
 * ranks. */
#include "same_state.h"
#include "tiny_set.h"

static char folder[300];
static stk_options options;
static tiny_run calm; /* one worker, one rank */

enum { LEAST_BYTES = 1 << 20 }; /* below any floor: the floor is asked for with it */

static void set(const char *name, const char *value)
{
    stk_error err;
    CHECK_OK(stk_options_set(&options, name, value, &err), err);
}

static void setup(void)
{
    if (!folder[0]) tiny_folder(folder, "engine");
    stk_options_deinit(&options);
    proof_options(&options, folder);
    if (calm.count) return;
    set("workers", "1");
    tiny_run_from(&calm, &options, 1, NULL);
    CHECK_INT(calm.status, STK_END);
    CHECK_INT(calm.count, 13);
    CHECK_INT(calm.metrics.samples, 2 * TINY_RECORDS);
    set("workers", "2");
}

static void one_digest_for_every_number_of_workers(void)
{
    setup();
    static const char *const counts[] = {"2", "8", "inline"};
    static tiny_run run;
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        set("workers", counts[i]);
        tiny_run_from(&run, &options, 1, NULL);
        tiny_expect(&run, &calm, 0, counts[i]);
        CHECK_INT(run.metrics.tokens, calm.metrics.tokens);
        CHECK_INT(run.metrics.media_opened, calm.metrics.media_opened);
    }
}

/* The floor that the refusal names, in bytes: "... = FLOOR: raise memory". */
static long long floor_bytes(const char *message)
{
    const char *at = strstr(message, ": raise memory");
    CHECK_MSG(at != NULL, "\"%s\" names no floor", message);
    while (at[-1] >= '0' && at[-1] <= '9') at--;
    return atoll(at);
}

/* Invariant 5, and never a deadlock. */
static void the_smallest_budget_gives_the_same_stream(void)
{
    setup();
    static const char *const workers[] = {"1", "8", "inline"};
    static tiny_run run;
    for (size_t i = 0; i < sizeof workers / sizeof *workers; i++) {
        set("workers", workers[i]);
        options.memory_bytes = LEAST_BYTES;
        stk_engine *engine = NULL;
        stk_error err;
        CHECK_INT(stk_engine_open(&engine, &options, (stk_engine_ranks){0, 1, 1, NULL}, NULL, NULL, &err),
                  STK_ERR_BUDGET);
        CHECK(engine == NULL);
        CHECK_HAS(err.message, "(keep 2 + prefetch 1) x 1 ranks");
        options.memory_bytes = floor_bytes(err.message);
        options.memory_bytes--;
        CHECK_INT(stk_engine_open(&engine, &options, (stk_engine_ranks){0, 1, 1, NULL}, NULL, NULL, &err),
                  STK_ERR_BUDGET);
        options.memory_bytes++;
        tiny_run_from(&run, &options, 1, NULL);
        tiny_expect(&run, &calm, 0, workers[i]);
        CHECK_INT(run.metrics.budget_bytes, options.memory_bytes);
        CHECK_MSG(run.metrics.peak_bytes <= run.metrics.budget_bytes, "%llu of %llu bytes held",
                  (unsigned long long)run.metrics.peak_bytes, (unsigned long long)run.metrics.budget_bytes);
        if (options.workers == 8) CHECK_MSG(run.metrics.budget_waits > 0, "nothing waited for memory%s", "");
    }
}

/* What nobody set gives way before a budget is refused. */
static void automatic_threads_give_way_to_the_budget(void)
{
    setup();
    static tiny_run run;
    set("workers", "1");
    options.memory_bytes = LEAST_BYTES;
    stk_engine *engine = NULL;
    stk_error err;
    CHECK_INT(stk_engine_open(&engine, &options, (stk_engine_ranks){0, 1, 1, NULL}, NULL, NULL, &err),
              STK_ERR_BUDGET);
    options.memory_bytes = floor_bytes(err.message);
    set("workers", "auto");
    tiny_run_from(&run, &options, 1, NULL);
    tiny_expect(&run, &calm, 0, "auto");
}

#ifdef STK_FAULTS
static void random_delays_change_nothing(void)
{
    setup();
    static tiny_run run;
    CHECK(setenv("STK_STALL", "take,fetch,make,deliver", 1) == 0);
    for (int i = 1; i <= 8; i *= 2) {
        options.workers = i;
        tiny_run_from(&run, &options, 1, NULL);
        tiny_expect(&run, &calm, 0, "stalls");
    }
    CHECK(unsetenv("STK_STALL") == 0);
}
#define TEST_DELAYS TEST(random_delays_change_nothing),
#else
#define TEST_DELAYS /* in builds with -Dfaults=true */
#endif

/* --- ranks and micro-batches --- */

enum { STEPS = 13 };

/* Digests of the rows of each step by their place in it; {0} for what is filler. */
typedef struct step_rows {
    uint8_t row[STEPS][TINY_BATCH][16];
    uint64_t loss_tokens[STEPS];
    size_t real;
} step_rows;

static void add_rows(step_rows *rows, const stk_batch *batch)
{
    stk_batch_info info;
    stk_error err;
    uint8_t digest[TINY_BATCH][16];
    size_t count = TINY_BATCH, at = 0;
    stk_batch_info_get(batch, &info);
    CHECK(info.step < STEPS);
    CHECK_OK(stk_batch_row_digests(batch, digest, &count, &err), err);
    const size_t in_batch = stk_batch_sample_count(batch);
    for (size_t i = 0; i < in_batch; i++) {
        stk_batch_sample sample;
        stk_batch_sample_at(batch, i, &sample);
        if (sample.filler) continue;
        CHECK(sample.step_row < TINY_BATCH && at < count);
        memcpy(rows->row[info.step][sample.step_row], digest[at++], 16);
        rows->real++;
    }
    CHECK_INT(at, count);
    /* Equal on all ranks and in all micro-batches of a step. */
    CHECK(rows->loss_tokens[info.step] == 0 || rows->loss_tokens[info.step] == info.step_loss_tokens);
    rows->loss_tokens[info.step] = info.step_loss_tokens;
}

static void read_rows(step_rows *rows, uint32_t world)
{
    stk_engine *engine = NULL;
    stk_error err;
    memset(rows, 0, sizeof *rows);
    CHECK_OK(stk_engine_open(&engine, &options, (stk_engine_ranks){0, world, world, NULL}, NULL, NULL, &err), err);
    const uint64_t micros = stk_reader_micro_count(stk_engine_reader(engine, 0));
    for (uint64_t m = 0; m < micros; m++)
        for (uint32_t rank = 0; rank < world; rank++) {
            stk_batch *batch = NULL;
            CHECK_OK(stk_reader_next(stk_engine_reader(engine, rank), &batch, STK_FOREVER, &err), err);
            CHECK(batch != NULL);
            add_rows(rows, batch);
            stk_batch_release(&batch);
        }
    for (uint32_t rank = 0; rank < world; rank++) {
        stk_batch *batch = NULL;
        CHECK_INT(stk_reader_next(stk_engine_reader(engine, rank), &batch, STK_FOREVER, &err), STK_END);
    }
    stk_engine_close(&engine);
}

/* Invariants 2 and 3. */
static void rows_of_a_step_do_not_depend_on_ranks_or_micro_batches(void)
{
    setup();
    static step_rows one, other;
    read_rows(&one, 1);
    CHECK_INT(one.real, 2 * TINY_RECORDS);
    static const char *const micro_batches[] = {"all", "1", "2"};
    for (uint32_t world = 1; world <= 4; world++)
        for (size_t i = 0; i < 3; i++) {
            set("micro_batch", micro_batches[i]);
            read_rows(&other, world);
            CHECK_MSG(memcmp(&one, &other, sizeof one) == 0, "%u ranks, micro_batch %s", world,
                      micro_batches[i]);
        }
}

static void ranks_that_do_not_follow_each_other_are_served_by_one_engine(void)
{
    setup();
    static tiny_run all;
    tiny_run_from(&all, &options, 5, NULL);
    stk_engine *engine = NULL;
    stk_error err;
    uint32_t wrong[][2] = {{4, 1}, {1, 1}, {1, 5}}, ranks[] = {1, 4};
    for (int i = 0; i < 3; i++)
        CHECK_INT(stk_engine_open(&engine, &options, (stk_engine_ranks){0, 2, 5, wrong[i]}, NULL, NULL, &err), STK_ERR_USAGE);
    CHECK_OK(stk_engine_open(&engine, &options, (stk_engine_ranks){0, 2, 5, ranks}, NULL, NULL, &err), err);
    ranks[0] = ranks[1] = 77; /* it has its own */
    CHECK(!stk_engine_reader(engine, 0) && !stk_engine_reader(engine, 2) && !stk_engine_reader(engine, 77));
    for (size_t i = 0; i < all.count; i++) {
        if (i % 5 != 1 && i % 5 != 4) continue;
        stk_batch *batch = NULL;
        uint8_t digest[16];
        CHECK_OK(stk_reader_next(stk_engine_reader(engine, (uint32_t)(i % 5)), &batch, STK_FOREVER, &err), err);
        stk_batch_digest(batch, digest);
        CHECK(memcmp(digest, all.digest[i], 16) == 0);
        stk_batch_release(&batch);
    }
    stk_engine_close(&engine);
}

/* One engine for some of the ranks gives those what an engine for all gives them. */
static void engines_share_a_run_without_a_word(void)
{
    setup();
    static tiny_run all, part;
    tiny_run_from(&all, &options, 3, NULL);
    for (uint32_t first = 0; first < 3; first++) {
        stk_engine *engine = NULL;
        CHECK_OK(stk_engine_open(&engine, &options, (stk_engine_ranks){first, 1, 3, NULL}, NULL, NULL, &part.err),
                 part.err);
        CHECK(stk_engine_reader(engine, (first + 1) % 3) == NULL);
        for (size_t i = first; i < all.count; i += 3) {
            stk_batch *batch = NULL;
            uint8_t digest[16];
            CHECK_OK(stk_reader_next(stk_engine_reader(engine, first), &batch, STK_FOREVER, &part.err),
                     part.err);
            stk_batch_digest(batch, digest);
            CHECK(memcmp(digest, all.digest[i], 16) == 0);
            stk_batch_release(&batch);
        }
        stk_engine_close(&engine);
    }
}

/* `stoker replay`: any micro-batch, anywhere. */
static void a_replay_is_the_batch_of_the_run(void)
{
    setup();
    static tiny_run run;
    set("micro_batch", "1");
    tiny_run_from(&run, &options, 2, NULL);
    for (size_t i = 0; i < run.count; i += 3) {
        stk_batch *batch = NULL;
        uint8_t digest[16];
        stk_state after;
        CHECK_OK(stk_replay(&batch, &options, i / 4, i % 2, 2, i / 2 % 2, NULL, &run.err), run.err);
        stk_batch_digest(batch, digest);
        stk_batch_state(batch, &after);
        CHECK_MSG(memcmp(digest, run.digest[i], 16) == 0, "micro-batch %zu", i);
        CHECK(same_state(&after, &run.state[i]));
        stk_batch_release(&batch);
    }
    stk_batch *batch = NULL;
    CHECK_INT(stk_replay(&batch, &options, 13, 0, 2, 0, NULL, &run.err), STK_ERR_USAGE);
    CHECK(batch == NULL);
    CHECK_INT(stk_replay(&batch, &options, 0, 2, 2, 0, NULL, &run.err), STK_ERR_USAGE);
}

int main(int argc, char **argv)
{
    TEST_MAIN(argc, argv, TEST(one_digest_for_every_number_of_workers),
              TEST(the_smallest_budget_gives_the_same_stream), TEST(automatic_threads_give_way_to_the_budget),
              TEST_DELAYS TEST(rows_of_a_step_do_not_depend_on_ranks_or_micro_batches),
              TEST(ranks_that_do_not_follow_each_other_are_served_by_one_engine),
              TEST(engines_share_a_run_without_a_word), TEST(a_replay_is_the_batch_of_the_run));
}
