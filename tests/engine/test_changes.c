/* test_changes.c - a run goes on with other options only when that is allowed by name, and then its states say so. */
#include "tiny_set.h"

static char folder[300];
static tiny_run calm, other; /* the run that states are taken from; a whole run of the changed options */
static stk_options options;

static void set(const char *name, const char *value)
{
    stk_error err;
    CHECK_OK(stk_options_set(&options, name, value, &err), err);
}

static void setup(void)
{
    if (!folder[0]) tiny_folder(folder, "changes");
    stk_options_deinit(&options);
    proof_options(&options, folder);
    if (!calm.count) tiny_run_from(&calm, &options, 1, NULL);
}

/* The state after step k - 1 of the calm run, as it comes back from its text. */
static stk_state state_at(size_t k)
{
    stk_error err;
    stk_state state;
    char text[STK_STATE_TEXT_MAX];
    CHECK_OK(stk_state_write(&calm.state[k - 1], text, sizeof text, &err), err);
    CHECK_OK(stk_state_parse(&state, text, strlen(text), &err), err);
    CHECK_INT(state.step, k);
    return state;
}

static void expect_refused(const stk_state *state, const char *words)
{
    stk_engine *engine = NULL;
    stk_error err;
    CHECK_INT(stk_engine_open(&engine, &options, (stk_engine_ranks){0, 1, 1, NULL}, state, NULL, &err), STK_ERR_STATE);
    CHECK(engine == NULL);
    CHECK_HAS(err.message, words);
}

static void allow(stk_state *state, const char *names)
{
    stk_error err;
    CHECK_OK(stk_state_allow_changes(state, names, &err), err);
}

/* The whole run under the changed options, and what a state goes on with under them: the same from step `first` on. */
static void expect_from(const stk_state *state, size_t first, const char *what)
{
    static tiny_run rest;
    tiny_run_from(&other, &options, 1, NULL);
    tiny_run_from(&rest, &options, 1, state);
    tiny_expect(&rest, &other, first, what);
}

static void a_change_is_refused_with_its_name_and_values(void)
{
    setup();
    set("seed", "5");
    stk_state state = state_at(3);
    expect_refused(&state, "seed was 3 and is 5");
    expect_refused(&state, "--allow-change seed");
    set("batch", "2");
    expect_refused(&state, "batch was 4 and is 2, seed was 3 and is 5");
    allow(&state, "batch");
    expect_refused(&state, "stream: seed was 3 and is 5");
    set("max_pixels", "8192");
    set("labels", "last");
    stk_state none = state_at(3);
    expect_refused(&none, "labels was answers and is last, max_pixels was 16384 and is 8192, and 2 more");
    expect_refused(&none, "--allow-change labels,max_pixels,batch,seed");
}

/* Names are left out whole, and the sentence stays within its room. */
static void of_many_changes_some_are_named(void)
{
    static const char *const changed[][2] = {{"seed", "5"}, {"batch", "2"}, {"max_pixels", "8192"}, {"min_pixels", "2048"}, {"labels", "last"},
                                             {"allow_control_tokens", "[<|im_end|>]"}, {"pad_multiple", "8"}, {"balance", "none"},
                                             {"modality", "aligned"}, {"filler_image", "true"}, {"overlong", "shrink"}, {"uneven", "error"},
                                             {"tag_space", "strip"}, {"orientation", "ignore"}, {"control_tokens", "sanitize"}};
    setup();
    const stk_state state = state_at(3);
    bool dots = false;
    for (size_t i = 0; i < sizeof changed / sizeof *changed; i++) {
        set(changed[i][0], changed[i][1]);
        stk_engine *engine = NULL;
        stk_error err;
        CHECK_INT(stk_engine_open(&engine, &options, (stk_engine_ranks){0, 1, 1, NULL}, &state, NULL, &err), STK_ERR_STATE);
        const char *const names = strstr(err.message, "--allow-change ");
        CHECK(names && strlen(err.message) < sizeof err.message);
        char list[200];
        snprintf(list, sizeof list, "%s", names + strlen("--allow-change "));
        size_t count = 0;
        for (char *rest = NULL, *name = strtok_r(list, ",", &rest); name; name = strtok_r(NULL, ",", &rest), count++) {
            stk_state one = state;
            CHECK_MSG(!dots, "nothing follows the dots");
            if (strcmp(name, "...") == 0) dots = true;
            else CHECK_OK(stk_state_allow_changes(&one, name, &err), err);
        }
        CHECK(dots ? count >= 2 && count <= i + 1 : count == i + 1);
        if (i + 1 < sizeof changed / sizeof *changed) dots = false;
    }
    CHECK_MSG(dots, "so many do not fit");
}

/* What has no effect is no change. */
static void options_without_effect_may_differ(void)
{
    setup();
    set("row_tokens", "777");
    set("window", "5");
    set("workers", "1");
    stk_state state = state_at(3);
    expect_from(&state, 3, "row_tokens of another layout");
    set("shuffle", "false");
    expect_refused(&state, "shuffle was true and is false, seed was 3 and is -");
}

static void an_allowed_change_goes_on_at_the_same_row(void)
{
    static const struct {
        const char *name, *value;
    } cases[] = {{"seed", "5"}, {"max_pixels", "8192"}, {"labels", "last"}, {"epochs", "5"}, {"uneven", "error"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        setup();
        set(cases[i].name, cases[i].value);
        stk_state state = state_at(3);
        allow(&state, cases[i].name);
        expect_from(&state, 3, cases[i].name);
        for (size_t k = 0; k < other.count; k++)
            CHECK_MSG(!other.state[k].changed[STK_STREAM_SEED], "a run that was not resumed has no changes");
    }
}

/* Rows decide, not steps. */
static void a_change_of_batch_goes_on_at_the_next_step_that_begins(void)
{
    setup();
    set("batch", "8");
    stk_state state = state_at(2);
    allow(&state, "batch");
    expect_from(&state, 1, "8 rows are one step of 8");
    state = state_at(3);
    allow(&state, "batch");
    expect_from(&state, 2, "12 rows lie in the second step of 8: the third is next");
    set("batch", "3");
    state = state_at(2);
    allow(&state, "batch");
    expect_from(&state, 3, "8 rows lie in the third step of 3");
    state = state_at(8); /* 32 rows: 6 of the second epoch, which begins behind 26 */
    allow(&state, "batch");
    expect_from(&state, 11, "32 rows lie in the eleventh step of 3");
}

static void a_change_of_layout_goes_on_in_rows_of_the_new_one(void)
{
    setup();
    set("layout", "packed");
    set("row_tokens", "192");
    set("batch", "1");
    set("epochs", "3");
    tiny_run_from(&other, &options, 1, NULL);
    uint64_t epoch_steps = 0;
    while (other.state[epoch_steps].epoch == 0) epoch_steps++;
    epoch_steps++;
    stk_state state = state_at(1); /* row 4 */
    allow(&state, "layout,row_tokens,segment_multiple,window,batch,epochs");
    expect_from(&state, 4, "packed rows are rows");
    state = state_at(6); /* row 24, and the packed epoch has fewer */
    CHECK(epoch_steps < 24 && state.rows == 24);
    allow(&state, "layout,row_tokens,segment_multiple,window,batch,epochs");
    expect_from(&state, epoch_steps, "an epoch that has become shorter is over");
}

static void a_shorter_run_is_over(void)
{
    setup();
    set("epochs", "1");
    stk_state state = state_at(9);
    allow(&state, "epochs");
    static tiny_run rest;
    tiny_run_from(&rest, &options, 1, &state);
    CHECK_INT(rest.count, 0);
    CHECK_INT(rest.status, STK_END);
}

/* A step that was begun is cut otherwise: it is made anew. */
static void a_state_inside_a_step_begins_that_step_again(void)
{
    setup();
    static tiny_run inside;
    set("micro_batch", "1");
    tiny_run_from(&inside, &options, 1, NULL);
    stk_state state = inside.state[13]; /* of step 3, two of four */
    CHECK(state.step == 3 && state.micro == 2);
    set("seed", "5");
    allow(&state, "seed");
    expect_from(&state, 12, "step 3 anew");
    set("seed", "3");
    expect_from(&state, 14, "without a change it goes on where it stood, though one were allowed");
}

static void changes_are_recorded_for_good(void)
{
    setup();
    static tiny_run rest;
    set("seed", "5");
    stk_state state = state_at(3);
    allow(&state, "seed,batch");
    tiny_run_from(&rest, &options, 1, &state);
    for (size_t k = 0; k < rest.count; k++)
        for (int i = 0; i < STK_STREAM_OPTIONS; i++) CHECK_INT(rest.state[k].changed[i], i == STK_STREAM_SEED);
    CHECK(strcmp(rest.state[0].fingerprint.whole, calm.state[0].fingerprint.whole) != 0);

    /* The next resume needs no leave for it, and another change is added. */
    state = rest.state[1];
    CHECK(!state.allowed[STK_STREAM_SEED]);
    tiny_run_from(&rest, &options, 1, &state);
    CHECK(rest.count > 0 && rest.state[0].changed[STK_STREAM_SEED]);
    set("labels", "last");
    state = rest.state[0];
    expect_refused(&state, "labels was answers and is last");
    allow(&state, "labels");
    tiny_run_from(&rest, &options, 1, &state);
    CHECK(rest.state[0].changed[STK_STREAM_SEED] && rest.state[0].changed[STK_STREAM_LABELS] && !rest.state[0].changed[STK_STREAM_BATCH]);

    /* A reader has it before its first batch. */
    stk_loader *loader = NULL;
    stk_error err;
    stk_state before;
    state = rest.state[0];
    CHECK_OK(stk_loader_open_at(&loader, &options, 0, 1, &state, &err), err);
    stk_loader_state(loader, &before);
    CHECK(before.changed[STK_STREAM_SEED] && before.changed[STK_STREAM_LABELS]);
    CHECK_INT(before.step, state.step);
    stk_loader_close(&loader);
}

/* Values of data sets that differ stand behind each other. */
static void options_of_data_sets_are_told_together(void)
{
    setup();
    set("data.set.first", "20");
    stk_state state = state_at(3);
    expect_refused(&state, "first was all and is 20");
    set("data.set.system", "\"You are kind.\"");
    expect_refused(&state, "system has changed, first was all and is 20");
    char path[600], command[2000];
    snprintf(path, sizeof path, "%s/two.yaml", folder);
    snprintf(command, sizeof command, "sed 's/^  - .*/  - {name: a, path: set.jsonl, weight: 0.25}\\n  - {name: b, path: set.jsonl, weight: 2, first: 9}/' "
                                      "'%s/run.yaml' > '%s'", folder, path);
    CHECK(system(command) == 0);
    stk_error err;
    stk_options_deinit(&options);
    CHECK_OK(stk_options_read(&options, path, &err), err);
    static tiny_run two;
    set("steps", "3");
    tiny_run_from(&two, &options, 1, NULL);
    const stk_fingerprint *const f = &two.state[0].fingerprint;
    CHECK_STR(f->value[STK_STREAM_WEIGHT], "0.25, 2");
    CHECK_STR(f->value[STK_STREAM_FIRST], "all, 9");
    CHECK_STR(f->value[STK_STREAM_WEIGHTS], "samples");
    CHECK_STR(f->value[STK_STREAM_STEPS], "3");
    CHECK_STR(f->value[STK_STREAM_EPOCHS], "-");
}

static void data_that_was_added_is_named(void)
{
    setup();
    char path[300];
    tiny_folder(path, "grown");
    stk_options_deinit(&options);
    proof_options(&options, path);
    static tiny_run whole;
    tiny_run_from(&whole, &options, 1, NULL);
    stk_state state = whole.state[2];
    char command[700];
    snprintf(command, sizeof command, "tail -n 1 '%s/set.jsonl' | sed 's/25/99/g' >> '%s/set.jsonl'", path, path);
    CHECK(system(command) == 0);
    expect_refused(&state, "data (the manifests or their media) has changed");
    expect_refused(&state, "--allow-change data");
    allow(&state, "data");
    static tiny_run rest;
    tiny_run_from(&rest, &options, 1, &state);
    CHECK_INT(rest.state[0].rows, 16);
    CHECK(rest.state[0].changed[STK_STREAM_DATA]);
}

int main(int argc, char **argv)
{
    TEST_MAIN(argc, argv, TEST(a_change_is_refused_with_its_name_and_values), TEST(of_many_changes_some_are_named), TEST(options_without_effect_may_differ),
              TEST(an_allowed_change_goes_on_at_the_same_row), TEST(a_change_of_batch_goes_on_at_the_next_step_that_begins),
              TEST(a_change_of_layout_goes_on_in_rows_of_the_new_one), TEST(a_shorter_run_is_over),
              TEST(a_state_inside_a_step_begins_that_step_again), TEST(changes_are_recorded_for_good),
              TEST(options_of_data_sets_are_told_together), TEST(data_that_was_added_is_named));
}
