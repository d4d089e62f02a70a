/* test_forecast.c - what a run's memory is sized by: the largest of all its micro-batches, by any number of threads, with the file and
 * without. */
#include "tiny_set.h"

#include "engine/forecast.h"
#include "engine/forecast_steps.h"

#include <glob.h>
#include <xxhash.h>

static stk_run *run;
static char file[400];

static void setup(const char *name, int64_t epochs, int64_t micro_batch)
{
    char path[300];
    stk_options options;
    stk_error err;
    stk_run_release(run);
    tiny_folder(path, name);
    proof_options(&options, path);
    options.epochs = epochs;
    options.micro_batch = micro_batch;
    CHECK_OK(stk_run_open(&run, &options, NULL, &err), err);
    stk_options_deinit(&options);
    snprintf(file, sizeof file, "%s/forecast", path);
}

static bool same(const stk_forecast *a, const stk_forecast *b)
{
    return a->slot_bytes == b->slot_bytes && a->object_bytes == b->object_bytes && a->ticket_bytes == b->ticket_bytes &&
           a->work_bytes == b->work_bytes && a->record_bytes == b->record_bytes && a->maker_bytes == b->maker_bytes && a->row_count == b->row_count;
}

/* One recipe after the other. */
static stk_forecast plain(stk_engine_ranks ranks)
{
    stk_forecast forecast = {0};
    stk_error err;
    stk_plan_scratch *scratch;
    stk_pool pool;
    stk_pool_init(&pool, STK_TAG_PLAN);
    CHECK_OK(stk_plan_scratch_create(&scratch, run->plan, &err), err);
    for (uint32_t rank = ranks.first_rank; rank < ranks.first_rank + ranks.rank_count; rank++)
        for (uint64_t step = 0; step < stk_plan_step_count(run->plan); step++)
            for (uint32_t micro = 0; micro < stk_plan_micro_count(run->plan, step, ranks.world); micro++) {
                stk_recipe recipe;
                stk_slot_layout layout;
                stk_pool_reset(&pool);
                CHECK_OK(stk_plan_recipe(run->plan, scratch, step, rank, ranks.world, micro, &pool, &recipe, &err), err);
                CHECK_OK(stk_slot_layout_init(&layout, &recipe, &run->form, &err), err);
                stk_forecast_add(&forecast, run, &recipe, NULL, &layout);
            }
    stk_plan_scratch_destroy(scratch);
    stk_pool_deinit(&pool);
    CHECK(forecast.slot_bytes > 0 && forecast.object_bytes > 0 && forecast.ticket_bytes > 0 && forecast.work_bytes > 0 && forecast.row_count > 0);
    return forecast;
}

static void threads_find_the_same_largest(void)
{
    setup("threads", 2500, 1); /* long enough for several claims */
    const stk_engine_ranks cases[] = {{0, 1, 1, NULL}, {0, 3, 3, NULL}, {2, 1, 3, NULL}, {1, 2, 4, NULL}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const stk_forecast expected = plain(cases[i]);
        for (uint32_t threads = 1; threads <= 100; threads = threads * 3 + 1) {
            stk_forecast forecast;
            stk_error err;
            CHECK_OK(stk_forecast_steps(&forecast, run, cases[i], 0, stk_plan_step_count(run->plan), threads, NULL, &err), err);
            CHECK(same(&forecast, &expected));
        }
    }
    stk_forecast forecast;
    stk_error err;
    CHECK_INT(stk_forecast_steps(&forecast, run, cases[0], stk_plan_step_count(run->plan), stk_plan_step_count(run->plan) + 3, 4, NULL, &err), STK_ERR_USAGE);
    CHECK_HAS(err.message, "no micro-batch");
}

static size_t read_text(char text[4096])
{
    FILE *const f = fopen(file, "rb");
    CHECK_MSG(f != NULL, "%s", file);
    const size_t size = fread(text, 1, 4095, f);
    text[size] = 0;
    fclose(f);
    CHECK(size > 100);
    return size;
}

static void write_text(const char *text, size_t size)
{
    FILE *const f = fopen(file, "wb");
    CHECK(f != NULL);
    CHECK_INT(fwrite(text, 1, size, f), size);
    CHECK(fclose(f) == 0);
}

static stk_forecast forecast_of(uint32_t world)
{
    stk_forecast forecast;
    stk_error err;
    CHECK_OK(stk_forecast_run(&forecast, run, world, file, 2, NULL, &err), err);
    return forecast;
}

static bool had_enough(void *context, const char *of, const char *phase, uint64_t done, uint64_t total)
{
    (void)context;
    CHECK_STR(of, "plan");
    CHECK_STR(phase, "memory");
    CHECK(done < total);
    return false;
}

static void a_forecast_can_be_stopped(void)
{
    setup("stopped", 2500, 1);
    stk_watch watch;
    stk_watch_init(&watch, had_enough, NULL);
    watch.reported_ns = 0; /* due at once */
    stk_forecast forecast;
    stk_error err;
    CHECK_INT(stk_forecast_run(&forecast, run, 1, file, 1, &watch, &err), STK_ERR_INTERRUPTED);
    CHECK_HAS(err.message, "stopped");
    CHECK_MSG(access(file, F_OK) != 0, "what was not finished is not kept");
}

/* Numbers that are read back are those of the file, which a mark in it shows. */
static void a_forecast_is_kept_and_read_back(void)
{
    setup("kept", 2, 0);
    char good[4096], marked[4096];
    const stk_forecast expected = plain((stk_engine_ranks){0, 2, 2, NULL}), first = forecast_of(2);
    CHECK(same(&first, &expected));
    const size_t size = read_text(good);
    const stk_forecast again = forecast_of(2);
    CHECK(same(&again, &expected));

    memcpy(marked, good, size + 1);
    char *const digit = strstr(marked, "work_bytes ") + 11, *const sum = strstr(marked, "checksum ");
    *digit = *digit == '9' ? '8' : '9';
    write_text(marked, size); /* the checksum no longer fits: worked out anew, and the file is whole again */
    const stk_forecast anew = forecast_of(2);
    CHECK(same(&anew, &expected));
    char now[4096];
    CHECK(read_text(now) == size && memcmp(now, good, size) == 0);
    sprintf(sum, "checksum %016llx\n", (unsigned long long)XXH3_64bits(marked, (size_t)(sum - marked)));
    write_text(marked, size);
    const stk_forecast of_file = forecast_of(2);
    CHECK(of_file.work_bytes != expected.work_bytes && of_file.slot_bytes == expected.slot_bytes);
}

static void what_is_no_such_file_is_worked_out_anew(void)
{
    setup("damaged", 2, 0);
    char good[4096], bad[4096], now[4096];
    const stk_forecast expected = forecast_of(2);
    const size_t size = read_text(good);
    for (size_t at = 0; at < size; at++) {
        memcpy(bad, good, size);
        bad[at] ^= (char)(1 << at % 7);
        write_text(bad, size);
        const stk_forecast forecast = forecast_of(2);
        CHECK_MSG(same(&forecast, &expected), "byte %zu", at);
        CHECK(read_text(now) == size && memcmp(now, good, size) == 0);
    }
    for (size_t left = 0; left < size; left++) {
        write_text(good, left);
        const stk_forecast forecast = forecast_of(2);
        CHECK_MSG(same(&forecast, &expected), "%zu bytes", left);
    }
    /* Another number of ranks, and a place that takes no file. */
    const stk_forecast three = forecast_of(3), plain_three = plain((stk_engine_ranks){0, 3, 3, NULL});
    CHECK(same(&three, &plain_three));
    snprintf(file, sizeof file, "%s/nowhere/forecast", test_folder());
    const stk_forecast nowhere = forecast_of(2);
    CHECK(same(&nowhere, &expected));
    stk_run_release(run);
    run = NULL;
}

/* A long run leaves one file, whatever rank asks first, and every rank is sized the same by it; a short run leaves none. */
static void a_long_run_keeps_its_forecast(void)
{
    char path[300], pattern[400];
    stk_options options;
    stk_error err;
    glob_t found;
    tiny_folder(path, "long");
    proof_options(&options, path);
    snprintf(pattern, sizeof pattern, "%s/set.jsonl.stoker-memory-*-3", path);
    size_t arena_bytes[3];
    for (int64_t epochs = 2; epochs <= 2600; epochs += 2598) {
        options.epochs = epochs;
        for (uint32_t rank = 0; rank < 3; rank++) {
            stk_metrics metrics;
            stk_engine *engine;
            CHECK_OK(stk_engine_open(&engine, &options, (stk_engine_ranks){rank, 1, 3, NULL}, NULL, NULL, &err), err);
            stk_engine_metrics(engine, &metrics);
            arena_bytes[rank] = metrics.arena_bytes;
            stk_engine_close(&engine);
        }
        CHECK(arena_bytes[0] == arena_bytes[1] && arena_bytes[1] == arena_bytes[2]);
        CHECK_INT(glob(pattern, 0, NULL, &found), epochs > 2 ? 0 : GLOB_NOMATCH);
        if (epochs > 2) CHECK_INT(found.gl_pathc, 1);
        globfree(&found);
    }
    stk_options_deinit(&options);
}

int main(int argc, char **argv)
{
    TEST_MAIN(argc, argv, TEST(threads_find_the_same_largest), TEST(a_forecast_can_be_stopped), TEST(a_forecast_is_kept_and_read_back),
              TEST(what_is_no_such_file_is_worked_out_anew), TEST(a_long_run_keeps_its_forecast));
}
