/* test_rules.c - options as the modules take them: absolute paths, what is inherited, what is refused. */
#include "test.h"

#include <limits.h>
#include <stdbool.h>
#include <sys/stat.h>

#include "engine/run_rules.h"

static void make_folder(const char *name)
{
    char path[400];
    snprintf(path, sizeof path, "%s/%s", test_folder(), name);
    CHECK(mkdir(path, 0755) == 0 || access(path, F_OK) == 0);
}

/* The configuration test_folder()/conf/run.yaml, with manifests in conf/ and in conf/more/. */
static stk_options read_config(const char *text)
{
    stk_error err;
    char path[400];
    make_folder("conf");
    make_folder("conf/more");
    make_folder("conf/empty");
    test_write("conf/a.jsonl", "{}\n");
    test_write("conf/b.jsonl", "{}\n");
    test_write("conf/more/c.jsonl", "{}\n");
    test_write("conf/run.yaml", text);
    snprintf(path, sizeof path, "%s/conf/run.yaml", test_folder());
    stk_options options = STK_OPTIONS_INIT;
    CHECK_OK(stk_options_read(&options, path, &err), err);
    return options;
}

static void expect_path(const char *actual, const char *below)
{
    char folder[PATH_MAX], expected[2 * PATH_MAX];
    CHECK(realpath(test_folder(), folder) != NULL);
    snprintf(expected, sizeof expected, "%s/%s", folder, below);
    CHECK_STR(actual, expected);
}

static void expect_refused(const char *text, const char *words)
{
    stk_error err;
    stk_rules *rules = NULL;
    stk_options options = read_config(text);
    CHECK_MSG(stk_rules_make(&rules, &options, NULL, &err) < 0, "%s", text);
    CHECK(rules == NULL);
    CHECK_HAS(err.message, words);
    CHECK(err.stage == STK_STAGE_OPTIONS || err.stage == STK_STAGE_MANIFEST);
    stk_options_deinit(&options);
}

static void paths_start_from_the_configuration(void)
{
    stk_error err;
    stk_rules *rules;
    stk_options o = read_config(
        "model: some/model/\nbatch: 4\nindex_dir: ../index\ndead_letter: /var/dead.jsonl\nallow: [x, /y]\n"
        "data:\n- {path: a.jsonl, media_root: pics}\n- {name: m, path: more/*.jsonl}\n");
    CHECK_OK(stk_rules_make(&rules, &o, NULL, &err), err);
    stk_options_deinit(&o); /* the rules keep what they need */
    expect_path(rules->model_folder, "conf/some/model");
    expect_path(rules->index_dir, "conf/../index");
    CHECK_STR(rules->dead_letter, "/var/dead.jsonl");
    CHECK_INT(rules->set_count, 2);
    CHECK_STR(rules->set[0].name, "a");
    expect_path(rules->set[0].files.path[0], "conf/a.jsonl");
    expect_path(rules->set[0].record.media_root.data, "conf/pics");
    expect_path(rules->set[1].files.path[0], "conf/more/c.jsonl");
    expect_path(rules->set[1].record.media_root.data, "conf/more");
    CHECK_INT(rules->set[0].place_count, 4);
    expect_path(rules->set[0].place[1].data, "conf");
    expect_path(rules->set[0].place[2].data, "conf/x");
    CHECK_STR(rules->set[0].place[3].data, "/y");
    stk_rules_destroy(rules);
}

static void a_set_inherits_what_it_does_not_say(void)
{
    stk_error err;
    stk_rules *rules;
    stk_options o = read_config(
        "model: m\nbatch: 4\nlabels: last\ntag_space: strip\nmin_pixels: 1000\norientation: ignore\n"
        "allow_control_tokens: [\"<x>\"]\ntemplate: qwen3-vl\n"
        "data:\n- {path: a.jsonl}\n"
        "- {path: b.jsonl, labels: answers, tag_space: keep, min_pixels: 2000, orientation: apply, overlong: "
        "error,\n"
        "   control_tokens: reference, allow_control_tokens: [], system: S, format: openai,\n"
        "   roles: {bot: assistant}, columns: {messages: dialog, id: key},\n"
        "   template: {user: {before: u}, assistant: {before: a, after: b}, image: i}}\n");
    CHECK_OK(stk_rules_make(&rules, &o, NULL, &err), err);
    const stk_set_rules *const a = &rules->set[0], *const b = &rules->set[1];
    CHECK_INT(a->text.labels, STK_LABELS_LAST);
    CHECK_INT(b->text.labels, STK_LABELS_ANSWERS);
    CHECK_INT(a->text.control_tokens, STK_CONTROL_PLAIN);
    CHECK_INT(b->text.control_tokens, STK_CONTROL_REFERENCE);
    CHECK_INT(a->text.allow_control_tokens.count, 1);
    CHECK(stk_str_is(a->text.allow_control_tokens.item[0], "<x>"));
    CHECK_INT(b->text.allow_control_tokens.count, 0);
    CHECK(a->text.system.data == NULL && stk_str_is(b->text.system, "S"));
    CHECK_INT(a->record.tag_space, STK_TAG_SPACE_STRIP);
    CHECK_INT(b->record.tag_space, STK_TAG_SPACE_KEEP);
    CHECK_INT(a->record.dialect, STK_DIALECT_DETECT);
    CHECK_INT(b->record.dialect, STK_DIALECT_OPENAI);
    CHECK(stk_str_is(b->record.messages_column, "dialog") && stk_str_is(b->record.id_column, "key") &&
          a->record.id_column.data == NULL);
    CHECK_INT(b->record.role_count, 1);
    CHECK_INT(b->record.role[0].role, STK_ROLE_ASSISTANT);
    CHECK_INT(a->pixels.min_px, 1000);
    CHECK_INT(b->pixels.min_px, 2000);
    CHECK_INT(a->pixels.max_px, 0);
    CHECK(a->pixels.ignore_orientation && !b->pixels.ignore_orientation);
    CHECK(!a->overlong_is_error && b->overlong_is_error);
    CHECK(b->turn_format.user.given && !b->turn_format.tool.given && stk_str_is(b->turn_format.image, "i"));
    CHECK(b->turn_format.assistant.trains_text && b->turn_format.assistant.trains_after);
    CHECK_INT(rules->limits.json_depth, 64);
    CHECK_INT(rules->limits.media_px, 178956970);
    stk_rules_destroy(rules);
    stk_options_deinit(&o);
}

/* spec-qwen3vl.md section 0.1: "auto" is what the profile's reference does; what a set says wins. */
static void a_profile_decides_what_is_not_said(void)
{
    static const struct {
        const char *profile;
        stk_profile is;
        bool ignores;
        stk_alpha_rule alpha;
    } profiles[] = {
        {"hf", STK_PROFILE_HF, false, STK_ALPHA_DROP},         {"pil-11", STK_PROFILE_PIL_11, false, STK_ALPHA_DROP},
        {"pil-12", STK_PROFILE_PIL_12, false, STK_ALPHA_DROP}, {"pil-13", STK_PROFILE_PIL_13, false, STK_ALPHA_DROP},
        {"pil", STK_PROFILE_PIL_13, false, STK_ALPHA_DROP},
        {"qwen-vl-utils", STK_PROFILE_QWEN_VL_UTILS, true, STK_ALPHA_WHITE_RGBA},
    };
    for (size_t i = 0; i < sizeof profiles / sizeof *profiles; i++) {
        char text[400];
        snprintf(text, sizeof text,
                 "model: m\nbatch: 4\nprofile: %s\ndata:\n- {path: a.jsonl}\n"
                 "- {path: b.jsonl, orientation: apply, alpha: white}\n",
                 profiles[i].profile);
        stk_error err;
        stk_rules *rules;
        stk_options o = read_config(text);
        CHECK_OK(stk_rules_make(&rules, &o, NULL, &err), err);
        CHECK_INT(rules->profile, profiles[i].is);
        CHECK_INT(rules->set[0].pixels.profile, profiles[i].is);
        CHECK_INT(rules->set[0].pixels.ignore_orientation, profiles[i].ignores);
        CHECK_INT(rules->set[0].pixels.alpha, profiles[i].alpha);
        CHECK(!rules->set[1].pixels.ignore_orientation);
        CHECK_INT(rules->set[1].pixels.alpha, STK_ALPHA_WHITE);
        stk_rules_destroy(rules);
        stk_options_deinit(&o);
    }
}

static void what_cannot_be_resolved_is_refused(void)
{
    expect_refused("model: m\ndata: [{path: a.jsonl}]\n", "batch is not set");
    expect_refused("model: m\nbatch: 4\ndata: [{path: none.jsonl}]\n", "");
    expect_refused("model: m\nbatch: 4\ndata: [{path: \"none*.jsonl\"}]\n", "");
    expect_refused("model: m\nbatch: 4\ndata: [{path: empty}]\n", "no manifest in this folder");
    expect_refused("model: m\nbatch: 4\ndata: [{path: \"gs://bucket/a.jsonl\"}]\n", "files, s3:// objects or https:// URLs");
    expect_refused("model: m\nbatch: 4\nindex_dir: \"s3:///x\"\ndata: [{path: a.jsonl}]\n", "neither a folder nor");
    expect_refused("model: m\nbatch: 4\ndata: [{path: [a.jsonl, more/c.jsonl]}]\n", "media_root");
    expect_refused("model: m\nbatch: 4\ndata: [{path: a.jsonl, columns: {picture: x}}]\n", "picture");
    expect_refused("model: m\nbatch: 4\ndata: [{path: a.jsonl, roles: {x: boss}}]\n", "boss");
    expect_refused("model: m\nbatch: 4\nallow: [\"gs://bucket/\"]\ndata: [{path: a.jsonl}]\n", "neither a folder nor");
    expect_refused("model: m\nbatch: 4\nallow: [\"s3://\"]\ndata: [{path: a.jsonl}]\n", "names no bucket");
    expect_refused("model: m\nbatch: 4\nallow: [\"https://h.example/dir\"]\ndata: [{path: a.jsonl}]\n", "write that");
    expect_refused("model: m\nbatch: 4\nallow: [\"https://me:pw@h.example\"]\ndata: [{path: a.jsonl}]\n", "names no bucket or host");
    expect_refused("model: m\nbatch: 4\ndata: [{path: a.jsonl, media_root: \"https://h/\"}]\n", "neither a folder nor");
}

/* Copies of manifests, and of an index on a store, go into one folder of the user. */
static void manifests_and_indexes_may_lie_on_stores(void)
{
    stk_error err;
    stk_rules *rules;
    char cache[400], wanted[500];
    snprintf(cache, sizeof cache, "%s/cache", test_folder());
    CHECK(setenv("XDG_CACHE_HOME", cache, 1) == 0);
    stk_options o = read_config("model: m\nbatch: 4\ndata:\n- {path: \"s3://bucket/set/a.jsonl\"}\n");
    CHECK_OK(stk_rules_make(&rules, &o, NULL, &err), err);
    CHECK_STR(rules->set[0].files.path[0], "s3://bucket/set/a.jsonl");
    CHECK_STR(rules->set[0].record.media_root.data, "s3://bucket/set");
    CHECK(!rules->index_dir && !rules->index_store.pull);
    snprintf(wanted, sizeof wanted, "%s/stoker", cache);
    CHECK_STR(rules->copies, wanted);
    CHECK(access(wanted, W_OK) == 0);
    stk_rules_destroy(rules);
    CHECK_OK(stk_options_set(&o, "index_dir", "s3://bucket/index//", &err), err);
    CHECK_OK(stk_rules_make(&rules, &o, NULL, &err), err);
    CHECK_STR(rules->remote_files.index_address, "s3://bucket/index");
    snprintf(wanted, sizeof wanted, "%s/stoker/index-", cache);
    CHECK(strncmp(rules->index_dir, wanted, strlen(wanted)) == 0 && rules->index_store.pull);
    stk_rules_destroy(rules);
    stk_options_deinit(&o);
}

static void allow_takes_folders_buckets_and_hosts(void)
{
    stk_error err;
    stk_rules *rules;
    stk_options o = read_config(
        "model: m\nbatch: 4\nendpoint: http://10.0.0.7:9000/\n"
        "allow: [pics.d, \"s3://bucket\", \"http://10.1.1.1:80\", cdn.example]\n"
        "data:\n- {path: a.jsonl, media_root: \"s3://bucket/set/\"}\n");
    CHECK_OK(stk_rules_make(&rules, &o, NULL, &err), err);
    stk_options_deinit(&o);
    const stk_set_rules *const set = &rules->set[0];
    CHECK_STR(set->record.media_root.data, "s3://bucket/set/");
    expect_path(set->place[1].data, "conf");
    CHECK_STR(set->place[3].data, "s3://bucket");
    CHECK_STR(set->place[4].data, "http://10.1.1.1:80");
    CHECK_STR(set->place[5].data, "https://cdn.example");
    CHECK_STR(rules->store.endpoint, "http://10.0.0.7:9000/");
    CHECK(rules->store.hedge && rules->store.io_threads == 1 && !rules->store.requester_pays);
    static const char *const held[] = {"http://10.0.0.7:9000/bucket/key", "http://10.1.1.1/x", "https://CDN.example:443/x"};
    static const char *const not_held[] = {"https://10.0.0.7:9000/", "http://10.1.1.1:8080/x", "http://cdn.example/",
                                           "https://cdn.example.evil/", "https://cdn.example@evil/", "s3://bucket/x"};
    for (size_t i = 0; i < 3; i++) CHECK_MSG(stk_places_hold_address(rules->endpoints, stk_str_of(held[i])), "%s", held[i]);
    for (size_t i = 0; i < 6; i++)
        CHECK_MSG(!stk_places_hold_address(rules->endpoints, stk_str_of(not_held[i])), "%s", not_held[i]);
    stk_rules_destroy(rules);
}

int main(int argc, char **argv)
{
    TEST_MAIN(argc, argv, TEST(paths_start_from_the_configuration), TEST(a_set_inherits_what_it_does_not_say), TEST(a_profile_decides_what_is_not_said),
              TEST(what_cannot_be_resolved_is_refused), TEST(allow_takes_folders_buckets_and_hosts), TEST(manifests_and_indexes_may_lie_on_stores));
}
