/* test_eval.c - training and evaluation by one engine: neither sees the other, and both fit into one budget. */
#include <pthread.h>
#include <sys/stat.h>
#include <time.h>

#include "base/memory.h"
#include "same_state.h"
#include "tiny_set.h"

enum { VAL_RECORDS = 17, PASSES = 3 };

static char folder[300], calm_folder[300];
static stk_options options;              /* of folder, with eval */
static tiny_run train_of[4], eval_of[4]; /* by world: each split alone, of calm_folder */

static void write_val(const char *in, const char *name)
{
    static char text[VAL_RECORDS * 400];
    size_t size = 0;
    for (int i = 0; i < VAL_RECORDS; i++) size += tiny_record(text + size, VAL_RECORDS - 1 - i);
    proof_file(in, name, text);
}

static void open_set(const char *name, const char *more)
{
    char text[300];
    snprintf(folder, sizeof folder, "%s/%s", test_folder(), name);
    CHECK(mkdir(folder, 0755) == 0);
    snprintf(text, sizeof text, "%seval: {data: [{name: val, path: val.jsonl}], batch: 6, micro_batch: 2, max_pixels: 32768}\n", more);
    tiny_set(folder, text);
    write_val(folder, "val.jsonl");
    stk_options_deinit(&options);
    proof_options(&options, folder);
}

/* Each split, by an engine of its own. */
static void read_alone(tiny_run *train, tiny_run *eval, uint32_t world)
{
    stk_options alone = options, split;
    stk_error err;
    alone.eval = NULL;
    tiny_run_from(train, &alone, world, NULL);
    proof_options(&split, folder);
    CHECK_OK(stk_options_split(&split, "eval", &err), err);
    tiny_run_from(eval, &split, world, NULL);
    stk_options_deinit(&split);
    CHECK_INT(train->status, STK_END);
    CHECK_INT(eval->status, STK_END);
}

static void set_options(int64_t workers)
{
    options.workers = options.eval->workers = workers;
}

static void setup(void)
{
    if (!calm_folder[0]) {
        open_set("eval", "");
        memcpy(calm_folder, folder, sizeof folder);
        for (uint32_t world = 1; world <= 3; world += 2) read_alone(&train_of[world], &eval_of[world], world);
    }
    memcpy(folder, calm_folder, sizeof folder);
    stk_options_deinit(&options);
    proof_options(&options, folder);
}

static stk_engine *open_engine(uint32_t world)
{
    stk_engine *engine = NULL;
    stk_error err;
    CHECK_OK(stk_engine_open(&engine, &options, (stk_engine_ranks){0, world, world, NULL}, NULL, NULL, &err), err);
    return engine;
}

static stk_batch *next(stk_reader *reader)
{
    stk_batch *batch = NULL;
    stk_error err = {0};
    const stk_status status = stk_reader_next(reader, &batch, STK_FOREVER, &err);
    CHECK_MSG(status == STK_OK, "status %d: %s", (int)status, err.message);
    return batch;
}

static void expect(stk_batch *batch, const tiny_run *calm, size_t at, const char *what)
{
    uint8_t digest[16];
    stk_state state;
    CHECK(at < calm->count);
    stk_batch_digest(batch, digest);
    stk_batch_state(batch, &state);
    CHECK_MSG(memcmp(digest, calm->digest[at], 16) == 0, "%s: micro-batch %zu differs", what, at);
    CHECK(same_state(&state, &calm->state[at]));
}

/* The next one, which must be number `at` of a run, and go. */
static void take(stk_reader *reader, const tiny_run *calm, size_t at, const char *what)
{
    stk_batch *batch = next(reader);
    expect(batch, calm, at, what);
    stk_batch_release(&batch);
}

static void rewind_all(stk_engine *engine, uint32_t world)
{
    stk_error err;
    for (uint32_t rank = 0; rank < world; rank++) CHECK_OK(stk_reader_rewind(stk_engine_eval_reader(engine, rank), &err), err);
}

/* A whole evaluation: all ranks in turn. */
static void evaluate(stk_engine *engine, uint32_t world)
{
    stk_error err;
    rewind_all(engine, world);
    for (size_t i = 0; i < eval_of[world].count; i++)
        take(stk_engine_eval_reader(engine, (uint32_t)(i % world)), &eval_of[world], i, "eval");
    for (uint32_t rank = 0; rank < world; rank++) {
        stk_batch *batch = NULL;
        CHECK_INT(stk_reader_next(stk_engine_eval_reader(engine, rank), &batch, STK_FOREVER, &err), STK_END);
        CHECK(batch == NULL);
    }
}

static void expect_within_budget(const stk_engine *engine)
{
    stk_metrics m;
    stk_engine_metrics(engine, &m);
    CHECK_MSG(m.peak_bytes <= m.budget_bytes, "%llu of %llu bytes held", (unsigned long long)m.peak_bytes,
              (unsigned long long)m.budget_bytes);
}

/* Train to the end, with an evaluation after every so many micro-batches. */
static void train_with_evaluations(stk_engine *engine, uint32_t world, size_t every)
{
    stk_error err;
    const tiny_run *const calm = &train_of[world];
    for (size_t i = 0; i < calm->count; i++) {
        take(stk_engine_reader(engine, (uint32_t)(i % world)), calm, i, "train");
        if ((i + 1) % every == 0) evaluate(engine, world);
    }
    stk_batch *batch = NULL;
    CHECK_INT(stk_reader_next(stk_engine_reader(engine, 0), &batch, STK_FOREVER, &err), STK_END);
    expect_within_budget(engine);
}

static void evaluations_in_between_change_nothing(void)
{
    setup();
    static const int64_t workers[] = {1, 2, 8, -1};
    for (size_t w = 0; w < 4; w++)
        for (uint32_t world = 1; world <= 3; world += 2) {
            set_options(workers[w]);
            stk_engine *engine = open_engine(world);
            train_with_evaluations(engine, world, w % 2 ? 3 : 5);
            stk_engine_close(&engine);
        }
}

/* Invariant 5: one budget for both, and never a deadlock. */
static void the_smallest_budget_serves_both(void)
{
    setup();
    static const int64_t workers[] = {1, 8, -1};
    for (size_t w = 0; w < 3; w++) {
        set_options(workers[w]);
        stk_engine *engine = NULL;
        stk_error err;
        options.memory_bytes = 1 << 20;
        const stk_engine_ranks one = {0, 1, 1, NULL};
        CHECK_INT(stk_engine_open(&engine, &options, one, NULL, NULL, &err), STK_ERR_BUDGET);
        CHECK(engine == NULL);
        CHECK_HAS(err.message, "of eval");
        const char *at = strstr(err.message, ": raise memory");
        CHECK(at != NULL);
        while (at[-1] >= '0' && at[-1] <= '9') at--;
        options.memory_bytes = atoll(at) - 1;
        CHECK_INT(stk_engine_open(&engine, &options, one, NULL, NULL, &err), STK_ERR_BUDGET);
        options.memory_bytes++;
        engine = open_engine(1);
        train_with_evaluations(engine, 1, 4);
        stk_engine_close(&engine);
    }
}

static void pause_ms(long ms)
{
    nanosleep(&(struct timespec){.tv_nsec = ms * 1000000}, NULL);
}

/* An evaluation costs nothing before it begins and leaves nothing behind; training is ready meanwhile. */
static void eval_is_made_when_it_is_asked_for(void)
{
    setup();
    options.prefetch = 2;
    stk_engine *engine = open_engine(1);
    stk_metrics m;
    for (int round = 0; round < 2; round++) {
        do {
            pause_ms(1);
            stk_engine_metrics(engine, &m);
        } while (m.ready < 2);
        pause_ms(20);
        stk_engine_eval_metrics(engine, &m);
        CHECK_INT(m.ready, 0);
        CHECK_INT(m.micro_batches, round * eval_of[1].count);
        CHECK_INT(m.media_opened, round * eval_of[1].metrics.media_opened);
        CHECK_INT(m.samples, round * eval_of[1].metrics.samples);
        CHECK_INT(m.tokens, round * eval_of[1].metrics.tokens);
        CHECK(round == 0 || m.decode.count == eval_of[1].metrics.decode.count);
        if (round == 0) evaluate(engine, 1);
    }
    rewind_all(engine, 1);
    stk_engine_metrics(engine, &m);
    CHECK_INT(m.micro_batches, 0);
    stk_engine_close(&engine);
}

/* Evaluations that end early, as trainers do that look at a few batches only. */
static void an_abandoned_evaluation_begins_anew(void)
{
    setup();
    static const int64_t workers[] = {1, 4, -1};
    for (size_t w = 0; w < 3; w++)
        for (uint32_t world = 1; world <= 3; world += 2) {
            set_options(workers[w]);
            stk_engine *engine = open_engine(world);
            const tiny_run *const calm = &eval_of[world];
            size_t trained = 0;
            for (size_t k = 0; k <= calm->count; k++) {
                /* Rank by rank, as far as k micro-batches of all go. */
                rewind_all(engine, world);
                for (size_t i = 0; i < k; i++) take(stk_engine_eval_reader(engine, (uint32_t)(i % world)), calm, i, "eval");
                if (k % 2) pause_ms(1);
                for (size_t i = 0; i < world && trained < train_of[world].count; i++, trained++)
                    take(stk_engine_reader(engine, (uint32_t)(trained % world)), &train_of[world], trained, "train");
            }
            evaluate(engine, world);
            expect_within_budget(engine);
            stk_engine_close(&engine);
        }
}

/* One rank goes on to the next pass while another is still in the middle of its own. */
static void ranks_rewind_each_for_itself(void)
{
    setup();
    stk_engine *engine = open_engine(3);
    const tiny_run *const calm = &eval_of[3];
    stk_reader *const first = stk_engine_eval_reader(engine, 0);
    stk_error err;
    for (size_t i = 0; i < 3; i++) take(stk_engine_eval_reader(engine, (uint32_t)i), calm, i, "eval");
    CHECK_OK(stk_reader_rewind(first, &err), err);
    for (size_t i = 3; i < calm->count; i++)
        if (i % 3) take(stk_engine_eval_reader(engine, (uint32_t)(i % 3)), calm, i, "eval");
    for (uint32_t rank = 1; rank < 3; rank++) CHECK_OK(stk_reader_rewind(stk_engine_eval_reader(engine, rank), &err), err);
    for (size_t i = 0; i < calm->count; i++) take(stk_engine_eval_reader(engine, (uint32_t)(i % 3)), calm, i, "eval");
    /* From the beginning too: how far each has read does not matter. */
    for (int k = 0; k < 3; k++) rewind_all(engine, 3);
    evaluate(engine, 3);
    stk_engine_close(&engine);
}

/* --- at the same time --- */

typedef struct reading {
    stk_reader *reader;
    const tiny_run *calm;
    int passes;
} reading;

static void *read_passes(void *context)
{
    const reading *const r = context;
    stk_error err;
    for (int pass = 0; pass < r->passes; pass++) {
        CHECK_OK(stk_reader_rewind(r->reader, &err), err);
        for (size_t i = 0; i < r->calm->count; i++) take(r->reader, r->calm, i, "thread");
    }
    return NULL;
}

static void trainer_and_evaluator_at_the_same_time(void)
{
    setup();
    static const int64_t workers[] = {1, 2, 8, -1};
    for (size_t w = 0; w < 4; w++) {
        set_options(workers[w]);
        stk_engine *engine = open_engine(1);
        reading r[2] = {{stk_engine_reader(engine, 0), &train_of[1], PASSES}, {stk_engine_eval_reader(engine, 0), &eval_of[1], PASSES}};
        pthread_t thread[2];
        for (int i = 0; i < 2; i++) CHECK(pthread_create(&thread[i], NULL, read_passes, &r[i]) == 0);
        for (int i = 0; i < 2; i++) CHECK(pthread_join(thread[i], NULL) == 0);
        expect_within_budget(engine);
        stk_engine_close(&engine);
    }
}

/* Invariants 6 and 7. */
static void close_in_the_middle_of_an_evaluation(void)
{
    setup();
    size_t before[STK_TAG_COUNT];
    for (int tag = 0; tag < STK_TAG_COUNT; tag++) before[tag] = stk_alloc_bytes((stk_tag)tag);
    for (int k = 0; k < 20; k++) {
        set_options(k % 5 == 4 ? -1 : 1 + k % 8);
        stk_engine *engine = open_engine(1);
        stk_batch *train = next(stk_engine_reader(engine, 0)), *eval = NULL;
        for (int i = 0; i < k % 6; i++) {
            stk_batch_release(&eval);
            eval = next(stk_engine_eval_reader(engine, 0));
        }
        if (k % 3 == 0) rewind_all(engine, 1);
        if (k % 4 == 0) pause_ms(k % 7);
        stk_engine_close(&engine);
        expect(train, &train_of[1], 0, "train");
        if (eval) expect(eval, &eval_of[1], (size_t)(k % 6) - 1, "eval");
        stk_batch_release(&eval);
        stk_batch_release(&train);
    }
    for (int tag = 0; tag < STK_TAG_COUNT; tag++) CHECK_INT(stk_alloc_bytes((stk_tag)tag), before[tag]);
}

/* Invariant 10: a pass over eval allocates as little as training does, which is over here but for its batches. */
static void nothing_is_allocated_per_evaluation(void)
{
    setup();
    static const int64_t workers[] = {-1, 1};
    for (size_t w = 0; w < 2; w++) {
        set_options(workers[w]);
        options.steps = 1;
        stk_engine *engine = open_engine(1);
        stk_batch *batch = next(stk_engine_reader(engine, 0));
        stk_batch_release(&batch);
        uint64_t warm = 0;
        for (int pass = 0; pass < 6; pass++) {
            if (pass == 3) warm = stk_alloc_count();
            evaluate(engine, 1);
        }
        CHECK_INT(stk_alloc_count() - warm, 0);
        stk_engine_close(&engine);
    }
}

/* --- states, keep, faults --- */

static void states_are_those_of_the_split(void)
{
    setup();
    stk_engine *engine = open_engine(1);
    stk_reader *const eval = stk_engine_eval_reader(engine, 0);
    stk_state begin, state, train;
    stk_options split;
    stk_error err;
    stk_reader_state(eval, &begin);
    stk_reader_state(stk_engine_reader(engine, 0), &train);
    CHECK(strcmp(begin.fingerprint.whole, train.fingerprint.whole) != 0);
    for (size_t i = 0; i < 4; i++) take(eval, &eval_of[1], i, "eval");
    stk_reader_state(eval, &state);
    CHECK(same_state(&state, &eval_of[1].state[3]));
    CHECK_OK(stk_reader_rewind(eval, &err), err);
    stk_reader_state(eval, &state);
    CHECK(same_state(&state, &begin));
    CHECK_INT(stk_reader_micro_count(eval), eval_of[1].count);
    CHECK_INT(stk_reader_step_count(eval), (VAL_RECORDS + 5) / 6);
    CHECK_INT(stk_reader_micros_before(eval, 1), 3);
    CHECK_INT(stk_reader_micro_count(stk_engine_reader(engine, 0)), train_of[1].count);
    stk_engine_close(&engine);
    CHECK_INT(stk_engine_open(&engine, &options, (stk_engine_ranks){0, 1, 1, NULL}, &eval_of[1].state[3], NULL, &err), STK_ERR_STATE);
    /* Alone it goes on there; and is rewound to there, being where that engine began. */
    proof_options(&split, folder);
    CHECK_OK(stk_options_split(&split, "eval", &err), err);
    CHECK_OK(stk_engine_open(&engine, &split, (stk_engine_ranks){0, 1, 1, NULL}, &eval_of[1].state[3], NULL, &err), err);
    CHECK(stk_engine_eval_reader(engine, 0) == NULL);
    for (int pass = 0; pass < 2; pass++) {
        CHECK_OK(stk_reader_rewind(stk_engine_reader(engine, 0), &err), err);
        for (size_t i = 4; i < eval_of[1].count; i++) take(stk_engine_reader(engine, 0), &eval_of[1], i, "resumed");
    }
    stk_engine_close(&engine);
    stk_options_deinit(&split);
}

/* Batches that the trainer keeps are no hindrance to an evaluation, nor the other way round. */
static void each_split_keeps_its_own(void)
{
    setup();
    options.keep = 2;
    options.eval->keep = 1;
    stk_engine *engine = open_engine(1);
    stk_reader *const train = stk_engine_reader(engine, 0), *const eval = stk_engine_eval_reader(engine, 0);
    stk_batch *kept[3], *shown[2], *none = NULL;
    stk_error err;
    for (size_t i = 0; i < 3; i++) kept[i] = next(train);
    for (size_t i = 0; i < 2; i++) shown[i] = next(eval);
    CHECK_INT(stk_reader_next(eval, &none, STK_FOREVER, &err), STK_ERR_KEEP);
    CHECK_INT(stk_reader_next(train, &none, STK_FOREVER, &err), STK_ERR_KEEP);
    stk_batch_release(&shown[0]);
    /* Also over the beginning of the next one. */
    CHECK_OK(stk_reader_rewind(eval, &err), err);
    for (size_t i = 0; i < eval_of[1].count; i++) take(eval, &eval_of[1], i, "eval");
    expect(shown[1], &eval_of[1], 1, "kept");
    stk_batch_release(&shown[1]);
    for (size_t i = 0; i < 3; i++) {
        expect(kept[i], &train_of[1], i, "kept");
        stk_batch_release(&kept[i]);
    }
    take(train, &train_of[1], 3, "train");
    stk_engine_close(&engine);
}

/* A picture that is gone is masked in each evaluation, and is one fault of the budget in each. */
static void every_evaluation_has_the_whole_error_budget(void)
{
    char path[600];
    open_set("faults", "errors: {masked: 0}\n");
    static tiny_run train, eval;
    read_alone(&train, &eval, 1);
    tiny_image_path(path, folder, TINY_IMAGES);
    CHECK(unlink(path) == 0); /* rare-0: in both splits, which look at their own */
    snprintf(path, sizeof path, "%s/letters.jsonl", folder);
    stk_error err;
    CHECK_OK(stk_options_set(options.eval, "dead_letter", path, &err), err);
    enum { MANY = 14 };
    stk_engine *engine = open_engine(1);
    for (int pass = 0; pass < MANY; pass++) {
        rewind_all(engine, 1);
        for (size_t i = 0; i < eval.count; i++) {
            stk_batch *batch = next(stk_engine_eval_reader(engine, 0));
            stk_batch_release(&batch);
        }
    }
    stk_metrics m;
    stk_engine_eval_metrics(engine, &m);
    CHECK_INT(m.masked, MANY);
    stk_engine_metrics(engine, &m);
    CHECK_INT(m.masked, 0);
    stk_engine_close(&engine);
    FILE *const file = fopen(path, "rb");
    CHECK(file != NULL);
    char line[1000];
    int lines = 0;
    for (; fgets(line, sizeof line, file); lines++) CHECK_HAS(line, "\"val/rare-0\"");
    fclose(file);
    CHECK_INT(lines, MANY);
}

/* Too many of them stop the evaluation, for good, and not the training. */
static void a_failed_evaluation_leaves_training_alone(void)
{
    char path[600];
    open_set("spent", "errors: {masked: 0}\n");
    write_val(folder, "val.jsonl");
    CHECK(mkdir(strcat(strcpy(path, folder), "/val"), 0755) == 0);
    char command[1400];
    snprintf(command, sizeof command, "cp '%s'/*.jpg '%s'/val.jsonl '%s'", folder, folder, path);
    CHECK(system(command) == 0);
    stk_error err;
    CHECK_OK(stk_options_set(options.eval, "data.val.path", "val/val.jsonl", &err), err);
    static tiny_run train;
    stk_options alone = options;
    alone.eval = NULL;
    tiny_run_from(&train, &alone, 1, NULL);
    stk_engine *engine = open_engine(1);
    take(stk_engine_reader(engine, 0), &train, 0, "train");
    snprintf(command, sizeof command, "rm '%s'/*.jpg", path);
    CHECK(system(command) == 0);
    stk_reader *const eval = stk_engine_eval_reader(engine, 0);
    stk_batch *batch = NULL;
    stk_status status;
    while ((status = stk_reader_next(eval, &batch, STK_FOREVER, &err)) == STK_OK) stk_batch_release(&batch);
    CHECK_INT(status, STK_ERR_SPENT);
    CHECK_HAS(err.message, "of val were masked");
    CHECK_INT(stk_reader_rewind(eval, &err), STK_ERR_SPENT);
    for (size_t i = 1; i < train.count; i++) take(stk_engine_reader(engine, 0), &train, i, "train");
    stk_engine_close(&engine);
}

/* --- index: stream --- */

static void splits_without_an_index(void)
{
    open_set("stream", "index: stream\nmax_tokens: 2048\nlimits: {media_bytes: 200000, media_pixels: 250000, record_bytes: 20000}\n");
    options.memory_bytes = options.eval->memory_bytes = 1 << 30;
    read_alone(&train_of[1], &eval_of[1], 1);
    static const int64_t workers[] = {2, -1};
    for (size_t w = 0; w < 2; w++) {
        set_options(workers[w]);
        stk_engine *engine = open_engine(1);
        train_with_evaluations(engine, 1, 5);
        stk_engine_close(&engine);
    }
    calm_folder[0] = 0; /* train_of and eval_of are those of this set now */
}

/* What serves one rank of one split has no eval beside it. */
static void a_loader_and_a_replay_are_of_one_split(void)
{
    setup();
    static tiny_run train;
    stk_options alone = options;
    stk_loader *loader = NULL;
    stk_batch *batch = NULL;
    stk_metrics m;
    stk_error err;
    alone.eval = NULL;
    tiny_run_from(&train, &alone, 1, NULL);
    CHECK_OK(stk_loader_open(&loader, &options, 0, 1, &err), err);
    CHECK_OK(stk_loader_next(loader, &batch, STK_FOREVER, &err), err);
    expect(batch, &train, 0, "loader");
    stk_batch_release(&batch);
    stk_loader_metrics(loader, &m);
    CHECK_INT(m.arena_bytes, train.metrics.arena_bytes);
    stk_loader_close(&loader);
    CHECK_OK(stk_replay(&batch, &options, 1, 0, 1, 0, NULL, &err), err);
    expect(batch, &train, 1, "replay");
    stk_batch_release(&batch);
}

int main(int argc, char **argv)
{
    TEST_MAIN(argc, argv, TEST(evaluations_in_between_change_nothing), TEST(the_smallest_budget_serves_both),
              TEST(eval_is_made_when_it_is_asked_for), TEST(an_abandoned_evaluation_begins_anew), TEST(ranks_rewind_each_for_itself),
              TEST(trainer_and_evaluator_at_the_same_time), TEST(close_in_the_middle_of_an_evaluation),
              TEST(nothing_is_allocated_per_evaluation), TEST(states_are_those_of_the_split), TEST(each_split_keeps_its_own),
              TEST(every_evaluation_has_the_whole_error_budget), TEST(a_failed_evaluation_leaves_training_alone),
              TEST(a_loader_and_a_replay_are_of_one_split), TEST(splits_without_an_index));
}
