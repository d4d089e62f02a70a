/* test_resume.c - invariants 8 and 11: a state goes on at the very next micro-batch; the end of a step on any
 * ranks. */
#include "same_state.h"
#include "tiny_set.h"

static char folder[300];
static stk_options options;

static void setup(void)
{
    if (!folder[0]) tiny_folder(folder, "resume");
    stk_options_deinit(&options);
    proof_options(&options, folder);
}

/* Through the text, as a checkpoint keeps it. */
static stk_state saved(const stk_state *state)
{
    static char text[STK_STATE_TEXT_MAX];
    stk_state loaded;
    stk_error err;
    CHECK_OK(stk_state_write(state, text, sizeof text, &err), err);
    CHECK_OK(stk_state_parse(&loaded, text, strlen(text), &err), err);
    return loaded;
}

/* The run crosses from epoch 0 to 1 in the middle of its seventh step. */
static void resume_after_every_micro_batch(void)
{
    setup();
    static tiny_run calm, rest;
    options.micro_batch = 2;
    tiny_run_from(&calm, &options, 1, NULL);
    CHECK_INT(calm.count, 26);
    CHECK_INT(calm.state[11].epoch, 0);
    CHECK_INT(calm.state[13].epoch, 1);
    CHECK_INT(calm.state[13].rows, 2);
    for (size_t k = 0; k < calm.count; k++) {
        const stk_state state = saved(&calm.state[k]);
        CHECK_INT(state.micro, (k + 1) % 2);
        options.workers = k % 9 == 0 ? -1 : (int64_t)(k % 9);
        tiny_run_from(&rest, &options, 1, &state);
        tiny_expect(&rest, &calm, k + 1, "resumed");
        for (size_t i = 0; i < rest.count; i++)
            CHECK(same_state(&rest.state[i], &calm.state[k + 1 + i]));
    }
}

static void every_reader_starts_at_the_state(void)
{
    setup();
    static tiny_run calm, rest;
    options.micro_batch = 1;
    tiny_run_from(&calm, &options, 2, NULL);
    for (size_t k = 1; k < calm.count; k += 2) { /* after both ranks had the same micro-batch */
        CHECK(same_state(&calm.state[k - 1], &calm.state[k]));
        tiny_run_from(&rest, &options, 2, &calm.state[k]);
        tiny_expect(&rest, &calm, k + 1, "two ranks");
    }
}

/* A trainer whose checkpoint counts steps: the same batches and states as with the state itself. */
static void a_step_alone_says_where_to_go_on(void)
{
    setup();
    static tiny_run calm, rest;
    options.micro_batch = 2;
    tiny_run_from(&calm, &options, 1, NULL);
    for (size_t step = 0; step <= 13; step += 4) {
        stk_state state;
        stk_state_at_step(&state, step);
        state = saved(&state);
        tiny_run_from(&rest, &options, 1, &state);
        tiny_expect(&rest, &calm, 2 * step, "at a step");
        for (size_t i = 0; i < rest.count; i++) CHECK(same_state(&rest.state[i], &calm.state[2 * step + i]));
    }
    stk_state behind;
    stk_state_at_step(&behind, 14);
    stk_loader *loader = NULL;
    stk_error err;
    CHECK_INT(stk_loader_open_at(&loader, &options, 0, 1, &behind, &err), STK_ERR_STATE);
    CHECK_HAS(err.message, "13 steps");
}

static void a_state_says_where_a_reader_stands(void)
{
    setup();
    static tiny_run calm;
    tiny_run_from(&calm, &options, 1, NULL);
    stk_loader *loader = NULL;
    stk_error err;
    stk_state state;
    CHECK_OK(stk_loader_open_at(&loader, &options, 0, 1, &calm.state[4], &err), err);
    CHECK_INT(stk_loader_count(loader), 13);
    stk_loader_state(loader, &state);
    CHECK(same_state(&state, &calm.state[4]));
    stk_batch *batch = NULL;
    CHECK_OK(stk_loader_next(loader, &batch, STK_FOREVER, &err), err);
    stk_batch_release(&batch);
    stk_loader_state(loader, &state);
    CHECK(same_state(&state, &calm.state[5]));
    stk_loader_close(&loader);
}

/* Elastic: the same rows in the same steps on another number of ranks. */
static void the_end_of_a_step_goes_on_with_other_ranks(void)
{
    setup();
    static tiny_run one, two, rest;
    tiny_run_from(&one, &options, 1, NULL);
    tiny_run_from(&two, &options, 2, NULL);
    for (size_t step = 0; step < one.count; step += 3) {
        tiny_run_from(&rest, &options, 2, &one.state[step]);
        tiny_expect(&rest, &two, 2 * (step + 1), "from one rank to two");
        tiny_run_from(&rest, &options, 1, &two.state[2 * step + 1]);
        tiny_expect(&rest, &one, step + 1, "from two ranks to one");
    }
}

static void refuse(const stk_state *state, uint32_t world, const char *words)
{
    stk_engine *engine = NULL;
    stk_error err;
    CHECK_INT(stk_engine_open(&engine, &options, (stk_engine_ranks){0, world, world, NULL}, state, NULL, &err),
              STK_ERR_STATE);
    CHECK(engine == NULL);
    CHECK_HAS(err.message, words);
}

static void a_state_of_another_stream_is_refused(void)
{
    setup();
    static tiny_run calm;
    options.micro_batch = 2;
    tiny_run_from(&calm, &options, 1, NULL);
    refuse(&calm.state[0], 2, "inside a step");
    /* Micro-batch 1 of rows 2 and 3 is not micro-batch 1 of row 1. */
    options.micro_batch = 1;
    refuse(&calm.state[0], 1, "micro_batch");
    options.micro_batch = 2;
    stk_state state = calm.state[1];
    state.rows = 3;
    refuse(&state, 1, "no step starts at row 3");
    state = calm.state[1];
    state.step = 7;
    refuse(&state, 1, "step 7");
    state = calm.state[1];
    state.plan_version++;
    refuse(&state, 1, "plan_version");
    options.seed = 4;
    refuse(&calm.state[1], 1, "seed");
    /* What does not change the stream does not matter. */
    options.seed = 3;
    options.micro_batch = 0;
    options.workers = 5;
    options.keep = 3;
    stk_engine *engine = NULL;
    stk_error err;
    CHECK_OK(stk_engine_open(&engine, &options, (stk_engine_ranks){0, 1, 1, NULL}, &calm.state[1], NULL, &err),
             err);
    stk_engine_close(&engine);
}

int main(int argc, char **argv)
{
    TEST_MAIN(argc, argv, TEST(resume_after_every_micro_batch), TEST(every_reader_starts_at_the_state),
              TEST(a_step_alone_says_where_to_go_on), TEST(a_state_says_where_a_reader_stands),
              TEST(the_end_of_a_step_goes_on_with_other_ranks),
              TEST(a_state_of_another_stream_is_refused));
}
