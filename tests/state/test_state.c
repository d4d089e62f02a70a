/* test_state.c - a state survives as text, and nothing but such a text is taken for one
 * (docs/checkpoint-format.md). */
#include "test.h"

#include <inttypes.h>
#include <stdbool.h>
#include <sys/stat.h>

#include <stoker/state.h>
#include <xxhash.h>

static stk_state example(void)
{
    stk_state state = {.plan_version = STK_PLAN_VERSION, .epoch = 3, .rows = 4667136, .step = 18231};
    strcpy(state.fingerprint.whole, "5e0f7c1991c4d0aa77ab03f25e0f7c19");
    for (int i = 0; i < STK_FINGERPRINT_PARTS; i++) sprintf(state.fingerprint.part[i], "%016x", 0xabc0 + i);
    for (int i = 0; i < STK_STREAM_OPTIONS; i++) sprintf(state.fingerprint.value[i], i % 3 ? "%d, of %s" : "-", i, "some kind");
    return state;
}

static const char *text_of(const stk_state *state)
{
    static char text[STK_STATE_TEXT_MAX];
    stk_error err;
    CHECK_OK(stk_state_write(state, text, sizeof text, &err), err);
    return text;
}

static void expect_same(const stk_state *a, const stk_state *b)
{
    CHECK_STR(a->fingerprint.whole, b->fingerprint.whole);
    for (int i = 0; i < STK_FINGERPRINT_PARTS; i++) CHECK_STR(a->fingerprint.part[i], b->fingerprint.part[i]);
    CHECK_INT(a->plan_version, b->plan_version);
    CHECK_INT(a->epoch, b->epoch);
    CHECK_INT(a->rows, b->rows);
    CHECK_INT(a->step, b->step);
    CHECK_INT(a->micro, b->micro);
    CHECK_INT(a->world, b->world);
    CHECK_INT(a->micro_rows, b->micro_rows);
    for (int i = 0; i < STK_STREAM_OPTIONS; i++) {
        CHECK_STR(a->fingerprint.value[i], b->fingerprint.value[i]);
        CHECK_INT(a->changed[i], b->changed[i]);
    }
}

/* Replace `from` by `to` in the example's text and give it the checksum that fits, or keep the old one. */
static const char *edited(const char *from, const char *to, bool fit)
{
    static char text[STK_STATE_TEXT_MAX];
    stk_state state = example();
    state.micro = 2;
    state.world = 8;
    state.micro_rows = 4;
    state.changed[STK_STREAM_BATCH] = state.changed[STK_STREAM_SEED] = true;
    const char *const whole = text_of(&state), *const at = strstr(whole, from);
    CHECK_MSG(at != NULL, "%s", from);
    snprintf(text, sizeof text, "%.*s%s%s", (int)(at - whole), whole, to, at + strlen(from));
    char *const checksum = strstr(text, "checksum ");
    if (fit && checksum)
        sprintf(checksum, "checksum %016" PRIx64 "\n",
                (uint64_t)XXH3_64bits(text, (size_t)(checksum - text)));
    return text;
}

static void expect_refused(const char *text, size_t size, const char *words)
{
    stk_error err;
    stk_state state = example();
    CHECK_INT(stk_state_parse(&state, text, size, &err), STK_ERR_STATE);
    CHECK_HAS(err.message, words);
    CHECK_INT(err.stage, STK_STAGE_STATE);
    CHECK_MSG(state.step == 0 && state.fingerprint.whole[0] == 0, "a refused state leaves nothing behind");
}

static void a_state_comes_back_as_it_was(void)
{
    stk_error err;
    stk_state states[3] = {example(), example(), example()}, back;
    states[1].micro = 3;
    states[1].world = 6;
    states[1].micro_rows = 2;
    states[2].epoch = states[2].rows = states[2].step = INT64_MAX;
    states[2].changed[0] = states[2].changed[STK_STREAM_SEED] = states[2].changed[STK_STREAM_OPTIONS - 1] = true;
    memset(states[2].fingerprint.value[4], '~', STK_STREAM_VALUE_BYTES - 1);
    for (int i = 0; i < 3; i++) {
        const char *const text = text_of(&states[i]);
        CHECK_OK(stk_state_parse(&back, text, strlen(text), &err), err);
        expect_same(&back, &states[i]);
    }
}

/* The format is read by later releases: a change here needs a new number in its first line. */
static void the_text_of_a_state_never_changes(void)
{
    stk_state state = example();
    strcpy(state.fingerprint.value[STK_STREAM_MODEL], "#0123456789abcdef");
    state.changed[STK_STREAM_SEED] = true;
    const char *const text = text_of(&state), *at = text;
    const char *const head = "stoker-state 2\n"
                             "fingerprint 5e0f7c1991c4d0aa77ab03f25e0f7c19\n"
                             "model 000000000000abc0\n"
                             "data 000000000000abc1\n"
                             "text 000000000000abc2\n"
                             "pixels 000000000000abc3\n"
                             "plan 000000000000abc4\n"
                             "plan_version 3\n"
                             "option model #0123456789abcdef\n"
                             "option data 1, of some kind\n"
                             "option index 2, of some kind\n"
                             "option format -\n";
    CHECK_MSG(strncmp(text, head, strlen(head)) == 0, "%s", text);
    static const char *const names =
        "model data index format columns roles limits template system labels control_tokens allow_control_tokens tag_space profile orientation "
        "alpha min_pixels max_pixels batch steps epochs shuffle seed layout max_tokens pad_to pad_multiple row_tokens segment_multiple window "
        "balance modality filler_image uneven overlong where first weight weights data.epochs ";
    const char *name = names;
    for (int i = 0; i < STK_STREAM_OPTIONS; i++) {
        const size_t length = strcspn(name, " ");
        CHECK_INT(strlen(stk_stream_option_name((stk_stream_option)i)), length);
        CHECK_MSG(strncmp(stk_stream_option_name((stk_stream_option)i), name, length) == 0, "option %d", i);
        at = strstr(at, "\noption ");
        CHECK_MSG(at && strncmp(at + 8, name, length) == 0 && at[8 + length] == ' ', "option %d", i);
        at++;
        name += length + 1;
    }
    CHECK_STR(name, "");
    CHECK(stk_stream_option_name(STK_STREAM_OPTIONS) == NULL);
    at = strchr(at, '\n');
    CHECK_STR(at, "\nchanged seed\n"
                  "epoch 3\n"
                  "rows 4667136\n"
                  "step 18231\n"
                  "checksum f7e2c74200bde6a5\n");
}

static void every_changed_byte_is_noticed(void)
{
    stk_error err;
    char text[STK_STATE_TEXT_MAX];
    const stk_state state = example();
    strcpy(text, text_of(&state));
    const size_t size = strlen(text);
    for (size_t i = 0; i < size; i++) {
        for (int bit = 0; bit < 8; bit++) {
            stk_state back;
            text[i] = (char)(text[i] ^ (1 << bit));
            CHECK_MSG(stk_state_parse(&back, text, size, &err) == STK_ERR_STATE, "byte %zu, bit %d", i, bit);
            text[i] = (char)(text[i] ^ (1 << bit));
        }
    }
}

static void every_cut_state_is_refused(void)
{
    const stk_state state = example();
    const char *const text = text_of(&state);
    for (size_t size = 0; size < strlen(text); size++) expect_refused(text, size, "");
}

static void a_step_alone_is_three_lines(void)
{
    stk_state state, back;
    stk_error err;
    stk_state_at_step(&state, 18231);
    char text[STK_STATE_TEXT_MAX];
    strcpy(text, text_of(&state));
    CHECK_MSG(strncmp(text, "stoker-state 2\nstep 18231\nchecksum ", 35) == 0 && strlen(text) == 35 + 16 + 1, "%s", text);
    CHECK_OK(stk_state_parse(&back, text, strlen(text), &err), err);
    CHECK(back.step == 18231 && back.micro == 0 && back.fingerprint.whole[0] == 0);
    for (size_t size = 0; size < strlen(text); size++) expect_refused(text, size, "");
    text[20] = '2';
    expect_refused(text, strlen(text), "checksum");
}

static void a_strange_line_is_refused_and_named(void)
{
    const struct {
        const char *from, *to, *words;
    } cases[] = {
        {"stoker-state 2", "stoker-state 3", "format 3"},
        {"stoker-state 2", "stoker-state 1", "format 1"},
        {"stoker-state 2", "another-file 2", "stoker-state is expected"},
        {"option data 1, of some kind\n", "", "option data is expected"},
        {"option data 1, of some kind\n", "option data 1\noption data 1\n", "option index is expected"},
        {"option data 1, of some kind", "option data ", "option data"},
        {"option data 1, of some kind", "option data \x01", "no printable text"},
        {"option data 1, of some kind", "option data \xc3\xa9", "no printable text"},
        {"option data 1, of some kind", "option data 012345678901234567890123456789012345678901234567", "cannot be"},
        {"option weights ", "option weight 3\noption weights ", "option weights is expected"},
        {"changed batch\n", "changed batch\nchanged batch\n", "epoch is expected"},
        {"changed batch\nchanged seed\n", "changed seed\nchanged batch\n", "epoch is expected"},
        {"changed batch\n", "changed nothing\n", "changed nothing"},
        {"epoch 3\n", "epoch 3\nqueue 7\n", "queue 7"},
        {"epoch 3\n", "", "epoch is expected"},
        {"epoch 3\nrows 4667136\n", "rows 4667136\nepoch 3\n", "epoch is expected"},
        {"epoch 3\n", "epoch 3\nepoch 3\n", "rows is expected"},
        {"rows 4667136", "rows -1", "rows"},
        {"rows 4667136", "rows 04667136", "rows"},
        {"rows 4667136", "rows 4667136.0", "rows"},
        {"rows 4667136", "rows 18446744073709551616", "rows"},
        {"rows 4667136", "rows ", "rows"},
        {"micro 2", "micro 4294967296", "micro"},
        {"micro 2", "micro 0", "above 0"},
        {"world 8\nmicro_rows 4\n", "world 8\n", "micro_rows is expected"},
        {"micro_rows 4", "micro_rows 0", "above 0"},
        {"micro 2", "micro 1\r", "micro"},
        {"5e0f7c19\nmodel", "5E0F7C19\nmodel", "32 hex digits"},
        {"checksum ", "x\n", ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *const text = edited(cases[i].from, cases[i].to, true);
        expect_refused(text, strlen(text), cases[i].words);
    }
    const char *const changed = edited("step 18231", "step 18232", false);
    expect_refused(changed, strlen(changed), "checksum");
}

static void what_follows_the_checksum_is_refused(void)
{
    char text[STK_STATE_TEXT_MAX];
    const stk_state state = example();
    strcpy(text, text_of(&state));
    strcat(text, "\n");
    expect_refused(text, strlen(text), "follows");
}

static void a_state_needs_room(void)
{
    stk_error err;
    char text[STK_STATE_TEXT_MAX];
    const stk_state state = example();
    const size_t size = strlen(text_of(&state));
    for (size_t room = 1; room <= size; room += 7)
        CHECK_INT(stk_state_write(&state, text, room, &err), STK_ERR_USAGE);
    CHECK_OK(stk_state_write(&state, text, size + 1, &err), err);
}

static void a_saved_state_loads(void)
{
    stk_error err;
    char path[400];
    snprintf(path, sizeof path, "%s/run.state", test_folder());
    stk_state state = example(), back;
    for (int i = 0; i < 2; i++) { /* the second save replaces the first */
        state.step++;
        CHECK_OK(stk_state_save(&state, path, &err), err);
        CHECK_OK(stk_state_load(&back, path, &err), err);
        expect_same(&back, &state);
    }
}

static void a_state_that_cannot_be_read_is_named(void)
{
    stk_error err;
    char path[400];
    stk_state state;
    snprintf(path, sizeof path, "%s/none.state", test_folder());
    CHECK_INT(stk_state_load(&state, path, &err), STK_ERR_SYSTEM);
    CHECK_HAS(err.file, "none.state");

    snprintf(path, sizeof path, "%s/broken.state", test_folder());
    FILE *const file = fopen(path, "wb");
    CHECK(file && fputs("stoker-state 2\nfinger", file) >= 0 && fclose(file) == 0);
    CHECK_INT(stk_state_load(&state, path, &err), STK_ERR_STATE);
    CHECK_HAS(err.file, "broken.state");

    CHECK_INT(stk_state_load(&state, test_folder(), &err), STK_ERR_SYSTEM);
}

static void a_failed_save_leaves_nothing(void)
{
    stk_error err;
    char path[400];
    snprintf(path, sizeof path, "%s/no/such/folder/run.state", test_folder());
    const stk_state state = example();
    CHECK_INT(stk_state_save(&state, path, &err), STK_ERR_SYSTEM);
    CHECK_HAS(err.file, "run.state");
    struct stat info;
    CHECK(stat(path, &info) != 0);
}

/* --- changes --- */

static void changes_are_allowed_by_name(void)
{
    stk_error err;
    stk_state state = example();
    CHECK_OK(stk_state_allow_changes(&state, "seed,data.epochs", &err), err);
    CHECK_OK(stk_state_allow_changes(&state, "batch", &err), err);
    for (int i = 0; i < STK_STREAM_OPTIONS; i++)
        CHECK_INT(state.allowed[i], i == STK_STREAM_SEED || i == STK_STREAM_SET_EPOCHS || i == STK_STREAM_BATCH);
    stk_state before;
    memcpy(&before, &state, sizeof before); /* with its padding */
    static const char *const wrong[] = {"", "model,", ",model", "model,sed", "model seed", "workers", "memory", "changed"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        CHECK_INT(stk_state_allow_changes(&state, wrong[i], &err), STK_ERR_OPTION);
        CHECK_HAS(err.message, "cannot be allowed");
        CHECK(memcmp(&before, &state, sizeof state) == 0);
    }
    CHECK_HAS(err.message, "\"changed\"");
    CHECK_MSG(strstr(text_of(&state), "allowed") == NULL, "what is allowed once is no part of a state");
}

static void a_difference_is_said_in_words(void)
{
    const stk_state was = example();
    stk_state is = was;
    char words[160];
    for (int i = 0; i < STK_STREAM_OPTIONS; i++)
        CHECK(!stk_fingerprint_difference(&was.fingerprint, &is.fingerprint, (stk_stream_option)i, words));
    strcpy(is.fingerprint.value[STK_STREAM_SEED], "7");
    CHECK(stk_fingerprint_difference(&was.fingerprint, &is.fingerprint, STK_STREAM_SEED, words));
    CHECK_HAS(words, "seed was 22, of some kind and is 7");
    strcpy(is.fingerprint.value[STK_STREAM_SYSTEM], "#0123456789abcdef");
    CHECK(stk_fingerprint_difference(&was.fingerprint, &is.fingerprint, STK_STREAM_SYSTEM, words));
    CHECK_STR(words, "system has changed");
    strcpy(is.fingerprint.value[STK_STREAM_DATA], "#0123456789abcdef");
    CHECK(stk_fingerprint_difference(&was.fingerprint, &is.fingerprint, STK_STREAM_DATA, words));
    CHECK_HAS(words, "manifests");
}

int main(int argc, char **argv)
{
    TEST_MAIN(argc, argv, TEST(a_state_comes_back_as_it_was), TEST(the_text_of_a_state_never_changes),
              TEST(every_changed_byte_is_noticed), TEST(every_cut_state_is_refused), TEST(a_step_alone_is_three_lines),
              TEST(a_strange_line_is_refused_and_named), TEST(what_follows_the_checksum_is_refused),
              TEST(a_state_needs_room), TEST(a_saved_state_loads), TEST(a_state_that_cannot_be_read_is_named),
              TEST(a_failed_save_leaves_nothing), TEST(changes_are_allowed_by_name),
              TEST(a_difference_is_said_in_words));
}
