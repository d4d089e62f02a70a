/* test_options.c - configurations: what is taken, and what is refused with which words, at which line. */
#include "test.h"

#include <locale.h>
#include <stdbool.h>

#include <stoker/options.h>

static const char *write_config(const char *text, size_t size)
{
    static char path[400];
    snprintf(path, sizeof path, "%s/run.yaml", test_folder());
    FILE *const file = fopen(path, "wb");
    CHECK(file && fwrite(text, 1, size, file) == size && fclose(file) == 0);
    return path;
}

static stk_options read_config(const char *text)
{
    stk_error err;
    stk_options options = STK_OPTIONS_INIT;
    CHECK_OK(stk_options_read(&options, write_config(text, strlen(text)), &err), err);
    return options;
}

/* Refused, in these words, at this line of the file (0: none); nothing is left to free. */
static void expect_refused(const char *text, uint64_t line, const char *words)
{
    stk_error err;
    stk_options options = STK_OPTIONS_INIT;
    const stk_status status = stk_options_read(&options, write_config(text, strlen(text)), &err);
    CHECK_MSG(status == STK_ERR_OPTION, "status %d for:\n%s", status, text);
    CHECK_HAS(err.message, words);
    CHECK_MSG(err.line == line, "line %llu, not %llu: %s for:\n%s", (unsigned long long)err.line,
              (unsigned long long)line, err.message, text);
    CHECK_HAS(err.file, "run.yaml");
    CHECK_INT(err.stage, STK_STAGE_OPTIONS);
    CHECK(options.data == NULL && options.model == NULL && options.size_bytes == sizeof options);
}

static void expect_set_refused(stk_options *options, const char *name, const char *value, const char *words)
{
    stk_error err;
    CHECK_MSG(stk_options_set(options, name, value, &err) == STK_ERR_OPTION, "%s=%s", name, value);
    CHECK_HAS(err.message, words);
}

static void set(stk_options *options, const char *name, const char *value)
{
    stk_error err;
    CHECK_OK(stk_options_set(options, name, value, &err), err);
}

static const char small[] = "model: m\ndata:\n  - path: a.jsonl\nbatch: 4\n";

static void defaults_are_those_of_the_table(void)
{
    stk_options o = read_config(small);
    CHECK_STR(o.layout, "padded");
    CHECK_STR(o.set.labels, "answers");
    CHECK_STR(o.set.control_tokens, "plain");
    CHECK_STR(o.set.alpha, "auto");
    CHECK(o.shuffle);
    CHECK_INT(o.epochs, 1);
    CHECK_INT(o.steps, 0);
    CHECK_INT(o.micro_batch, 0);
    CHECK_INT(o.keep, 2);
    CHECK_INT(o.timeout_s, 300);
    CHECK_INT(o.memory_bytes, 0);
    CHECK_INT(o.workers, 0);
    CHECK(o.errors_unusable == 0.01 && o.errors_masked == 0.001);
    CHECK_INT(o.limits.media_pixels, 178956970);
    CHECK_INT(o.limits.media_bytes, 256 << 20);
    CHECK_INT(o.limits.json_depth, 64);
    CHECK(o.set.chat_template.name == NULL && !o.set.chat_template.declared);
    stk_error err;
    CHECK_OK(stk_options_check(&o, &err), err);
    stk_options_deinit(&o);
}

static void every_default_of_the_table_can_be_set_as_it_is_shown(void)
{
    size_t count;
    const stk_option *const table = stk_option_table(&count);
    stk_options o = read_config(small);
    CHECK(count > 40);
    for (size_t i = 0; i < count; i++) {
        CHECK_MSG(table[i].help[0] != 0, "%s", table[i].name);
        if (!table[i].default_text[0]) continue;
        char name[100];
        const bool in_set = strncmp(table[i].name, "data[].", 7) == 0;
        snprintf(name, sizeof name, "%s%s", in_set ? "data.a." : "", table[i].name + (in_set ? 7 : 0));
        set(&o, name, table[i].default_text);
    }
    stk_options_deinit(&o);
}

static void every_choice_of_the_table_can_be_set(void)
{
    size_t count;
    const stk_option *const table = stk_option_table(&count);
    stk_options o = read_config(small);
    for (size_t i = 0; i < count; i++) {
        char choices[200], *rest = choices;
        strcpy(choices, table[i].choices);
        for (char *choice; *rest && (choice = strsep(&rest, "|")) != NULL;) {
            while (*choice == ' ') choice++;
            choice[strcspn(choice, " ")] = 0;
            char name[100];
            const bool in_set = strncmp(table[i].name, "data[].", 7) == 0;
            snprintf(name, sizeof name, "%s%s", in_set ? "data.a." : "", table[i].name + (in_set ? 7 : 0));
            set(&o, name, choice);
            if (table[i].per_set) {
                snprintf(name, sizeof name, "data.a.%s", table[i].name);
                set(&o, name, choice);
            }
            if (!rest) break;
        }
    }
    stk_options_deinit(&o);
}

static void a_data_set_has_its_own_and_inherited_options(void)
{
    stk_options o = read_config("model: m\nbatch: 4\nlabels: last\nallow_control_tokens: [a, b]\ndata:\n"
                                "  - {name: docs, path: [x/one.jsonl, two.jsonl], labels: finetune, "
                                "min_pixels: 1024, allow_control_tokens: []}\n"
                                "  - path: y/chat.vqa.jsonl\n    columns: {messages: dialog, images: pics}\n "
                                "   roles:\n      bot: assistant\n"
                                "    system: \"Be kind: always.\"\n");
    CHECK_INT(o.data_count, 2);
    CHECK_STR(o.data[0].name, "docs");
    CHECK_INT(o.data[0].path.count, 2);
    CHECK_STR(o.data[0].path.item[1], "two.jsonl");
    CHECK_STR(o.data[0].set.labels, "finetune");
    CHECK_INT(o.data[0].set.min_pixels, 1024);
    CHECK(o.data[0].set.allow_control_tokens.item != NULL && o.data[0].set.allow_control_tokens.count == 0);
    CHECK_STR(o.data[1].name, "chat.vqa");
    CHECK(o.data[1].set.labels == NULL && o.data[1].set.allow_control_tokens.item == NULL);
    CHECK_STR(o.data[1].columns.key[1], "images");
    CHECK_STR(o.data[1].columns.value[1], "pics");
    CHECK_STR(o.data[1].roles.value[0], "assistant");
    CHECK_STR(o.data[1].system, "Be kind: always.");
    CHECK_STR(o.set.labels, "last");
    stk_options_deinit(&o);
}

/* A set is called after its first entry: packed, a folder, or a prefix. */
static void names_by_default(void)
{
    const char *const pairs[][2] = {{"y/chat.vqa.jsonl.gz", "chat.vqa"}, {"docs.json.zst", "docs"},  {"a/chat.v2/", "chat.v2"},
                                    {"a/chat", "chat"},                  {"set/train-", "train"},    {"part_*.jsonl", "part_*"}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        char text[200];
        snprintf(text, sizeof text, "model: m\nbatch: 4\ndata: [{path: \"%s\"}]\n", pairs[i][0]);
        stk_options o = read_config(text);
        CHECK_STR(o.data[0].name, pairs[i][1]);
        stk_options_deinit(&o);
    }
}

static void a_turn_format_is_read(void)
{
    stk_options o =
        read_config("model: m\nbatch: 4\ndata: [{path: a.jsonl}]\ntemplate:\n"
                    "  system:    {before: \"<s>\\n\", after: \"</s>\\n\"}\n  user: {before: u, after: v}\n"
                    "  assistant: {before: \"<a>\\n\", after: \"</a>\\n\", train: [text]}\n"
                    "  image: \"<img>\"\n  default_system: null\n");
    const stk_template_options *const t = &o.set.chat_template;
    CHECK(t->declared && t->name == NULL);
    CHECK_STR(t->system.before, "<s>\n");
    CHECK_STR(t->assistant.after, "</a>\n");
    CHECK(t->assistant.train_text && !t->assistant.train_after);
    CHECK(t->tool.before == NULL && t->default_system == NULL);
    CHECK_STR(t->image, "<img>");
    set(&o, "template", "qwen3-vl");
    CHECK_STR(o.set.chat_template.name, "qwen3-vl");
    CHECK(!o.set.chat_template.declared);
    stk_options_deinit(&o);

    o = read_config("model: m\nbatch: 4\ndata: [{path: a.jsonl}]\ntemplate:\n"
                    "  assistant: {train: [text, \"</a>\\n\"], before: \"<a>\\n\", after: \"</a>\\n\"}\n");
    CHECK(o.set.chat_template.assistant.train_text && o.set.chat_template.assistant.train_after);
    stk_options_deinit(&o);
}

static void unknown_keys_name_the_nearest_known_one(void)
{
    expect_refused("model: m\nbtach: 4\n", 2, "did you mean batch?");
    expect_refused("model: m\n\n\nlimits:\n  json_dept: 4\n", 5, "did you mean json_depth?");
    expect_refused("errors: {maskd: 0.1}\n", 1, "did you mean masked?");
    expect_refused("data:\n- path: a\n  label: last\n", 3, "did you mean labels?");
    expect_refused("data:\n- path: a\n  media-root: /x\n", 3, "did you mean media_root?");
    expect_refused("completely_else: 1\n", 1, "stoker options");
    expect_refused("template: {user: {befor: x}}\n", 1, "befor");
    expect_refused("template: {usr: {before: x}}\n", 1, "usr");
    expect_refused("data[].path: x\n", 1, "unknown");
    expect_refused("limits.json_depth: 4\n", 1, "unknown");
    expect_refused("<<: {batch: 4}\n", 1, "unknown");
    expect_refused("data:\n- path: a\n  batch: 4\n", 3, "whole run");
}

static void what_a_later_release_brings_is_named_as_such(void)
{
    expect_refused("video_text: x", 1, "not in this release");
}

static void stores_have_options(void)
{
    stk_error err;
    stk_options o = STK_OPTIONS_INIT;
    CHECK_OK(stk_options_defaults(&o, &err), err);
    CHECK(o.hedge && !o.anonymous && !o.endpoint && o.io_threads == 1);
    CHECK_STR(o.requester_pays, "false");
    CHECK_OK(stk_options_set(&o, "requester_pays", "requester", &err), err);
    CHECK_OK(stk_options_set(&o, "cache", "{path: /nvme/x, bytes: 2GiB}", &err), err);
    CHECK_OK(stk_options_set(&o, "cache.bytes", "3GiB", &err), err);
    CHECK_OK(stk_options_set(&o, "prices", "{request: 0.0004, transfer: 0.02}", &err), err);
    CHECK_STR(o.cache_path, "/nvme/x");
    CHECK_INT(o.cache_bytes, 3LL << 30);
    CHECK(o.price_request > 0.00039 && o.price_request < 0.00041);
    CHECK_INT(stk_options_set(&o, "prices", "{requests: 1}", &err), STK_ERR_OPTION);
    CHECK_HAS(err.message, "did you mean request");
    CHECK_INT(stk_options_set(&o, "addressing", "host", &err), STK_ERR_OPTION);
    CHECK_INT(stk_options_set(&o, "io_threads", "0", &err), STK_ERR_OPTION);

    CHECK_OK(stk_options_set(&o, "model", "m", &err), err);
    CHECK_OK(stk_options_set(&o, "batch", "1", &err), err);
    CHECK_OK(stk_options_set(&o, "data", "[{path: a.jsonl}]", &err), err);
    CHECK_OK(stk_options_check(&o, &err), err);
    CHECK_OK(stk_options_set(&o, "endpoint", "store:9000", &err), err);
    CHECK_INT(stk_options_check(&o, &err), STK_ERR_OPTION);
    CHECK_HAS(err.message, "https://");
    CHECK_OK(stk_options_set(&o, "endpoint", "http://me:secret@store", &err), err);
    CHECK_INT(stk_options_check(&o, &err), STK_ERR_OPTION);
    CHECK(!strstr(err.message, "secret"));
    CHECK_OK(stk_options_set(&o, "endpoint", "http://store:9000", &err), err);
    CHECK_OK(stk_options_set(&o, "cache.bytes", "0", &err), err);
    CHECK_INT(stk_options_check(&o, &err), STK_ERR_OPTION);
    CHECK_HAS(err.message, "go together");
    stk_options_deinit(&o);
}

/* The same keys over those of the run; the order of the files and one epoch, unless they say otherwise. */
static void evaluation_has_options_of_its_own(void)
{
    static const char text[] = "model: m\ndata: [{path: a, weight: 2}]\nbatch: 8\nepochs: 3\nsteps: 5\nlabels: last\nmax_tokens: 100\n"
                               "eval: {data: [{path: b}], batch: 4, limits: {json_depth: 9}}\n";
    stk_options o = read_config(text);
    stk_error err;
    CHECK(o.eval != NULL);
    CHECK(o.batch == 8 && o.epochs == 3 && o.shuffle && o.limits.json_depth == 64);
    CHECK_INT(stk_options_split(&o, "test", &err), STK_ERR_OPTION);
    CHECK_OK(stk_options_split(&o, "train", &err), err);
    CHECK_INT(o.batch, 8);
    CHECK_OK(stk_options_set(&o, "eval.seed", "7", &err), err);
    CHECK_OK(stk_options_set(&o, "eval.data.b.labels", "answers", &err), err);
    CHECK_INT(stk_options_set(&o, "eval.batches", "7", &err), STK_ERR_OPTION);
    CHECK(o.seed == 0 && o.eval->seed == 7);
    CHECK_OK(stk_options_split(&o, "eval", &err), err);
    CHECK_STR(o.data[0].set.labels, "answers");
    CHECK(o.batch == 4 && o.epochs == 1 && o.steps == 0 && !o.shuffle && o.limits.json_depth == 9);
    CHECK(o.data_count == 1 && o.data[0].weight == 0 && o.max_tokens == 100 && o.eval == NULL && o.file != NULL);
    CHECK_STR(o.set.labels, "last");
    CHECK_STR(o.data[0].name, "b");
    CHECK_INT(stk_options_split(&o, "eval", &err), STK_ERR_OPTION);
    CHECK_HAS(err.message, "no `eval`");
    CHECK_INT(stk_options_set(&o, "eval.seed", "7", &err), STK_ERR_OPTION);
    CHECK_HAS(err.message, "no `eval`");
    stk_options_deinit(&o);
    expect_refused("data: [{path: a}]\neval: {batch: 4}\n", 2, "data is not set");
    expect_refused("data: [{path: a}]\neval: {data: [{path: b}], eval: {}}\n", 2, "no split of its own");
    expect_refused("data: [{path: a}]\neval: {data: [{path: b}], batches: 4}\n", 2, "did you mean batch");
    expect_refused("eval: 4\n", 1, "keys and values");
}

/* As if it stood in the file: evaluation takes it over, but for what is its own, in whatever order they come. */
static void what_is_set_is_for_evaluation_too_but_for_what_that_states(void)
{
    stk_options o = read_config("model: m\ndata: [{path: a}]\nbatch: 8\n"
                                "eval: {data: [{path: b}], seed: 5, limits: {json_depth: 9}}\n");
    set(&o, "eval.keep", "3");
    static const char *const pairs[][2] = {{"batch", "[[0, 4], [10, 6]]"}, {"max_pixels", "65536"}, {"template", "qwen3-vl"},
                                           {"endpoint", "http://store:9000"}, {"limits", "{json_depth: 7, text_bytes: 1MiB}"},
                                           {"limits.jpeg_scans", "3"}, {"seed", "6"}, {"keep", "4"}, {"max_tokens", "100"},
                                           {"epochs", "3"}, {"steps", "9"}, {"shuffle", "true"}, {"data", "[{path: c}]"}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) set(&o, pairs[i][0], pairs[i][1]);
    set(&o, "eval.max_tokens", "50");
    set(&o, "max_tokens", "60");
    const stk_options *const e = o.eval;
    CHECK(o.batch_schedule.count == 2 && e->batch == 4 && e->batch_schedule.count == 2);
    CHECK(o.set.max_pixels == 65536 && e->set.max_pixels == 65536);
    CHECK_STR(e->set.chat_template.name, "qwen3-vl");
    CHECK_STR(e->endpoint, "http://store:9000");
    CHECK(o.limits.json_depth == 7 && e->limits.json_depth == 9 && e->limits.text_bytes == 1 << 20 && e->limits.jpeg_scans == 3);
    CHECK(o.seed == 6 && e->seed == 5 && o.keep == 4 && e->keep == 3 && o.max_tokens == 60 && e->max_tokens == 50);
    CHECK(o.epochs == 3 && o.steps == 9 && e->epochs == 1 && e->steps == 0 && !e->shuffle);
    CHECK_STR(e->data[0].path.item[0], "b");
    stk_error err;
    CHECK_OK(stk_options_split(&o, "eval", &err), err);
    set(&o, "seed", "7"); /* a run of its own now */
    CHECK_INT(o.seed, 7);
    stk_options_deinit(&o);
}

static void a_batch_may_follow_a_schedule(void)
{
    stk_options o = read_config("model: m\ndata: [{path: a}]\nbatch: [[0, 64], [1000, 128], [2000, 32]]\n");
    CHECK_INT(o.batch, 64);
    CHECK_INT(o.batch_schedule.count, 3);
    CHECK(o.batch_schedule.step[2] == 2000 && o.batch_schedule.rows[2] == 32);
    set(&o, "batch", "8");
    CHECK_INT(o.batch, 8);
    CHECK_INT(o.batch_schedule.count, 0);
    set(&o, "batch", "[[0, 4]]");
    CHECK_INT(o.batch, 4);
    stk_options_deinit(&o);
    expect_refused("batch: [[1, 64]]\n", 1, "start at 0 and rise");
    expect_refused("batch: [[0, 64], [0, 128]]\n", 1, "start at 0 and rise");
    expect_refused("batch: [[0, 64, 1]]\n", 1, "[step, rows]");
    expect_refused("batch: [[0, 0]]\n", 1, "out of range");
    expect_refused("batch: [[-1, 4]]\n", 1, "[step, rows]");
    expect_refused("batch: []\n", 1, "a schedule");
    expect_refused("batch: {0: 4}\n", 1, "a schedule");
}

static void weights_and_epochs_are_numbers_above_zero(void)
{
    stk_options o = read_config("model: m\nbatch: 4\ndata:\n- {path: a, weight: 0.25}\n- {path: b, epochs: 1.5}\n");
    CHECK(o.data[0].weight == 0.25 && o.data[0].epochs == 0 && o.data[1].weight == 0 && o.data[1].epochs == 1.5);
    stk_options_deinit(&o);
    static const char *const wrong[] = {"0", "-1", "0.0", "x", "1e3", "0.0000001", "[1]", "2000000"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char text[100];
        snprintf(text, sizeof text, "data:\n- {path: a, weight: %s}\n", wrong[i]);
        expect_refused(text, 2, "not a number above 0");
        snprintf(text, sizeof text, "data:\n- {path: a, epochs: %s}\n", wrong[i]);
        expect_refused(text, 2, "not a number above 0");
    }
}

static void what_is_no_value_is_refused(void)
{
    expect_refused("batch: four\n", 1, "whole number");
    expect_refused("batch: 4.5\n", 1, "whole number");
    expect_refused("batch: 0x10\n", 1, "whole number");
    expect_refused("batch: 4 4\n", 1, "whole number");
    expect_refused("batch:\n", 1, "whole number");
    expect_refused("batch: 0\n", 1, "out of range");
    expect_refused("batch: -4\n", 1, "out of range");
    expect_refused("row_tokens: 1073741824\n", 1, "out of range: 1 to 4194304"); /* a packer of that many lists would take gigabytes */
    expect_refused("batch: 9223372036854775808\n", 1, "whole number");
    expect_refused("batch: 99999999999999999999999999999\n", 1, "whole number");
    expect_refused("batch: \"4\\0\"\n", 1, "whole number");
    expect_refused("seed: -1\n", 1, "out of range");
    expect_refused("max_tokens: many\n", 1, "or auto");
    expect_refused("workers: some\n", 1, "auto or inline");
    expect_refused("shuffle: maybe\n", 1, "true or false");
    expect_refused("shuffle: [true]\n", 1, "true or false");
    expect_refused("layout: square\n", 1, "padded | flat");
    expect_refused("layout: [padded]\n", 1, "padded | flat");
    expect_refused("layout: \"padded | flat\"\n", 1, "padded | flat");
    expect_refused("layout:\n", 1, "padded | flat");
    expect_refused("memory: 8GBs\n", 1, "a size");
    expect_refused("memory: 1e9\n", 1, "a size");
    expect_refused("memory: inf\n", 1, "a size");
    expect_refused("memory: 0x1000000\n", 1, "a size");
    expect_refused("memory: -8GiB\n", 1, "a size");
    expect_refused("memory: 9999999999TiB\n", 1, "a size");
    expect_refused("memory: 12 bytes\n", 1, "a size");
    expect_refused("memory: 4KiB\n", 1, "out of range");
    expect_refused("timeout: soon\n", 1, "a time");
    expect_refused("timeout: 300 ms\n", 1, "a time");
    expect_refused("timeout: 0\n", 1, "out of range");
    expect_refused("errors: {masked: 2}\n", 1, "share");
    expect_refused("errors: {masked: -0.1}\n", 1, "share");
    expect_refused("errors: {masked: nan}\n", 1, "share");
    expect_refused("errors: {masked: 0x1}\n", 1, "share");
    expect_refused("errors: {masked: 1%}\n", 1, "share");
    expect_refused("errors: 0.1\n", 1, "keys and values");
    expect_refused("model: [a]\n", 1, "one text");
    expect_refused("model: \"a\\0b\"\n", 1, "NUL");
    expect_refused("allow: {a: b}\n", 1, "list");
    expect_refused("allow: [[a]]\n", 1, "one text");
    expect_refused("allow: [~]\n", 1, "empty");
    expect_refused("data: {path: a}\n", 1, "a list of data sets");
    expect_refused("data: [a.jsonl]\n", 1, "keys and values");
    expect_refused("data: [{path: a, columns: [x]}]\n", 1, "keys and values");
    expect_refused("data: [{path: a, columns: {x: [y]}}]\n", 1, "one text");
    expect_refused("template: [a]\n", 1, "keys and values");
    expect_refused("template: {assistant: {after: x, train: [y]}}\n", 1, "train");
    expect_refused("template: {user: {train: [text]}}\n", 1, "not train");
}

static void sizes_times_and_shares_are_read_exactly(void)
{
    static const struct {
        const char *text;
        int64_t bytes;
    } sizes[] = {{"1048576", 1 << 20},   {"8GiB", (int64_t)8 << 30}, {"8 GiB", (int64_t)8 << 30},
                 {"64MB", 64000000},     {"2MiB", 2 << 20},          {"1.5GiB", 1610612736},
                 {"1048577 B", 1048577}, {"4TB", 4000000000000},     {"9007199254740993", 9007199254740993}};
    stk_options o = read_config(small);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        set(&o, "memory", sizes[i].text);
        CHECK_INT(o.memory_bytes, sizes[i].bytes);
    }
    set(&o, "memory", "auto");
    CHECK_INT(o.memory_bytes, 0);
    set(&o, "timeout", "5 min");
    CHECK_INT(o.timeout_s, 300);
    set(&o, "timeout", "2h");
    CHECK_INT(o.timeout_s, 7200);
    set(&o, "errors.masked", "0.015");
    CHECK(o.errors_masked == 0.015);
    set(&o, "errors.masked", "1");
    CHECK(o.errors_masked == 1.0);
    set(&o, "workers", "inline");
    CHECK_INT(o.workers, -1);
    set(&o, "workers", "8");
    CHECK_INT(o.workers, 8);
    set(&o, "seed", "9223372036854775807");
    CHECK_INT(o.seed, INT64_MAX);
    expect_set_refused(&o, "memory", "9007199254740993.5", "a size");
    expect_set_refused(&o, "memory", "1048576.5", "a size");
    CHECK_INT(o.memory_bytes, 0);
    stk_options_deinit(&o);
}

/* Python programs set the locale of their user. */
static void numbers_do_not_depend_on_the_locale(void)
{
    static const char *const locales[] = {"de_DE.UTF-8", "fr_FR.UTF-8", "de_DE", "fr_FR"};
    size_t i = 0;
    while (i < 4 && !setlocale(LC_ALL, locales[i])) i++;
    if (i == 4)
        return; /* the reader uses no call that looks at the locale; where one is installed, this shows it */
    stk_options o = read_config("errors: {masked: 0.25}\nmemory: 1.5GiB\n");
    CHECK(o.errors_masked == 0.25);
    CHECK_INT(o.memory_bytes, 1610612736);
    stk_options_deinit(&o);
    setlocale(LC_ALL, "C");
}

static void twice_and_aliases_are_refused(void)
{
    expect_refused("batch: 4\nmodel: m\nbatch: 8\n", 3, "twice");
    expect_refused("limits: {json_depth: 4, json_depth: 5}\n", 1, "twice");
    expect_refused("data:\n- path: a\n  path: b\n", 3, "twice");
    expect_refused("data:\n- path: a\n  columns: {a: b, a: c}\n", 3, "twice");
    expect_refused("a: &x [1]\nallow: *x\n", 1, "aliases");
    expect_refused("allow: [&x a, *x]\n", 1, "aliases");
    expect_refused("allow: *x\n", 1, "YAML");
    expect_refused("data:\n- path: *.jsonl\n", 2, "quotes");
    expect_refused("batch: 4\n---\nbatch: 8\n", 3, "second document");
    expect_refused("? [a]\n: b\n", 1, "a key is a text");
    expect_refused("- a\n", 1, "keys and values");
    expect_refused("", 0, "empty");
    expect_refused("# nothing\n", 0, "empty");
    expect_refused("a: [1\n", 2, "not valid YAML");
    expect_refused("\tbatch: 4\n", 1, "not valid YAML");
    expect_refused("model: \"\xff\xfe\"\n", 1, "not valid YAML");
}

/* A billion laughs, and depth. */
static void hostile_files_cost_little(void)
{
    char laughs[2000] = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n";
    for (int i = 1; i < 9; i++)
        sprintf(laughs + strlen(laughs), "a%d: &a%d [*a%d, *a%d, *a%d, *a%d, *a%d, *a%d, *a%d, *a%d, *a%d]\n",
                i, i, i - 1, i - 1, i - 1, i - 1, i - 1, i - 1, i - 1, i - 1, i - 1);
    stk_error err;
    stk_options options = STK_OPTIONS_INIT;
    CHECK_INT(stk_options_read(&options, write_config(laughs, strlen(laughs)), &err), STK_ERR_OPTION);
    CHECK_HAS(err.message, "aliases");

    enum { DEPTH = 100000 };
    char *const deep = malloc(DEPTH + 20);
    strcpy(deep, "allow: ");
    memset(deep + 7, '[', DEPTH);
    CHECK_INT(stk_options_read(&options, write_config(deep, DEPTH + 7), &err), STK_ERR_OPTION);
    memset(deep, ' ', DEPTH);
    for (int i = 0; i < DEPTH; i += 2) memcpy(deep + i, "- ", 2);
    CHECK_INT(stk_options_read(&options, write_config(deep, DEPTH), &err), STK_ERR_OPTION);
    free(deep);

    char *const many = malloc(200000);
    size_t at = (size_t)sprintf(many, "data: [{path: a, roles: {");
    for (int i = 0; i < 5000; i++) at += (size_t)sprintf(many + at, "r%d: user, ", i);
    at += (size_t)sprintf(many + at, "}}]\n");
    CHECK_INT(stk_options_read(&options, write_config(many, at), &err), STK_ERR_OPTION);
    CHECK_HAS(err.message, "more than");
    free(many);
}

static void a_file_that_cannot_be_read_is_named(void)
{
    stk_error err;
    stk_options options = STK_OPTIONS_INIT;
    CHECK_INT(stk_options_read(&options, "no/such/file.yaml", &err), STK_ERR_SYSTEM);
    CHECK_HAS(err.file, "file.yaml");
    CHECK_INT(err.stage, STK_STAGE_OPTIONS);
    CHECK_INT(stk_options_read(&options, test_folder(), &err), STK_ERR_SYSTEM);
}

static void one_option_is_set_by_name(void)
{
    stk_options o = read_config("model: m\nbatch: 4\ndata: [{name: docs, path: a}, {name: a.b, path: b}]\n");
    set(&o, "batch", "16");
    CHECK_INT(o.batch, 16);
    set(&o, "limits.json_depth", "7");
    CHECK_INT(o.limits.json_depth, 7);
    set(&o, "data.docs.labels", "last");
    CHECK_STR(o.data[0].set.labels, "last");
    set(&o, "data.a.b.labels", "finetune");
    CHECK_STR(o.data[1].set.labels, "finetune");
    set(&o, "data.1.labels", "answers");
    CHECK_STR(o.data[1].set.labels, "answers");
    set(&o, "data.docs.path", "*.jsonl");
    CHECK_STR(o.data[0].path.item[0], "*.jsonl");
    set(&o, "data.docs.path", "[x.jsonl, 'y z.jsonl']");
    CHECK_STR(o.data[0].path.item[1], "y z.jsonl");
    set(&o, "data.docs.system", "Be kind: it's {free} #1");
    CHECK_STR(o.data[0].system, "Be kind: it's {free} #1");
    set(&o, "data.docs.system", "\"two\\nlines\"");
    CHECK_STR(o.data[0].system, "two\nlines");
    set(&o, "data.docs.system", "null");
    CHECK(o.data[0].system == NULL);
    set(&o, "data.docs.columns", "{messages: dialog}");
    CHECK_STR(o.data[0].columns.value[0], "dialog");
    set(&o, "model", "some: where");
    CHECK_STR(o.model, "some: where");
    expect_set_refused(&o, "btach", "4", "did you mean batch?");
    expect_set_refused(&o, "batch", "", "whole number");
    expect_set_refused(&o, "batch", "4\n---\n5", "second document");
    expect_set_refused(&o, "data.none.labels", "last", "no data set");
    expect_set_refused(&o, "data.docs.batch", "4", "whole run");
    expect_set_refused(&o, "data.docs", "4", "data.SET.OPTION");
    expect_set_refused(&o, "data[].labels", "last", "unknown");
    expect_set_refused(&o, "limits.none", "4", "unknown");
    CHECK_INT(o.batch, 16);
    CHECK_STR(o.model, "some: where");
    stk_options_deinit(&o);
}

static void expect_check(const char *text, const char *words)
{
    stk_error err;
    stk_options o = read_config(text);
    CHECK_MSG(stk_options_check(&o, &err) == STK_ERR_OPTION, "%s", text);
    CHECK_HAS(err.message, words);
    CHECK_HAS(err.file, "run.yaml");
    stk_options_deinit(&o);
}

static void what_does_not_go_together_is_refused(void)
{
    expect_check("batch: 4\ndata: [{path: a}]\n", "model is not set");
    expect_check("batch: 4\nmodel: m\n", "data is not set");
    expect_check("batch: 4\nmodel: m\ndata: []\n", "data is not set");
    expect_check("model: m\ndata: [{path: a}]\n", "batch is not set");
    expect_check("model: m\nbatch: 4\ndata: [{name: x}]\n", "has no path");
    expect_check("model: m\nbatch: 4\ndata: [{path: x/a.jsonl}, {path: y/a.jsonl}]\n", "two data sets");
    expect_check("model: m\nbatch: 4\ndata: [{path: a, name: x/y}]\n", "its name");
    expect_check("model: m\nbatch: 4\ndata: [{path: a, name: ..}]\n", "its name");
    expect_check("model: m\nbatch: 4\ndata: [{path: a, name: \"x\\ny\"}]\n", "its name");
    expect_check("model: m\nbatch: 4\nmicro_batch: 5\ndata: [{path: a}]\n", "micro_batch");
    expect_check("model: m\nbatch: 4\nlayout: flat\npad_to: 64\ndata: [{path: a}]\n", "pad_to");
    expect_check("model: m\nbatch: 4\npad_multiple: 8\npad_to: 63\ndata: [{path: a}]\n", "no multiple");
    expect_check("model: m\nbatch: 4\nmin_pixels: 64\ndata: [{path: a, max_pixels: 32}]\n",
                 "above max_pixels");
}

/* A program may fill the struct itself: nothing in it is trusted. */
static void values_set_by_hand_are_checked(void)
{
    stk_error err;
    stk_options o = STK_OPTIONS_INIT;
    stk_string_list path = {.item = (char *[]){(char *)"a.jsonl"}, .count = 1};
    stk_data_options data = {.name = (char *)"a", .path = path};
    o.model = (char *)"m";
    o.batch = 4;
    o.data = &data;
    o.data_count = 1;
    CHECK_INT(stk_options_check(&o, &err), STK_ERR_OPTION);
    CHECK_HAS(err.message, "stk_options_defaults");

    stk_options d = STK_OPTIONS_INIT;
    CHECK_OK(stk_options_defaults(&d, &err), err);
    stk_options good = d;
    good.model = (char *)"m";
    good.batch = 4;
    good.data = &data;
    good.data_count = 1;
    CHECK_OK(stk_options_check(&good, &err), err);

    stk_options bad = good;
    bad.layout = (char *)"round";
    CHECK_INT(stk_options_check(&bad, &err), STK_ERR_OPTION);
    bad = good;
    bad.epochs = 0;
    CHECK_INT(stk_options_check(&bad, &err), STK_ERR_OPTION);
    bad = good;
    bad.keep = -3;
    CHECK_INT(stk_options_check(&bad, &err), STK_ERR_OPTION);
    bad = good;
    bad.workers = -2;
    CHECK_INT(stk_options_check(&bad, &err), STK_ERR_OPTION);
    bad = good;
    bad.errors_masked = -1;
    CHECK_INT(stk_options_check(&bad, &err), STK_ERR_OPTION);
    bad = good;
    bad.limits.json_depth = 0;
    CHECK_INT(stk_options_check(&bad, &err), STK_ERR_OPTION);
    bad = good;
    bad.pad_multiple = 0;
    CHECK_INT(stk_options_check(&bad, &err), STK_ERR_OPTION);
    bad = good;
    bad.size_bytes = 8;
    CHECK_INT(stk_options_check(&bad, &err), STK_ERR_USAGE);
    data.set.labels = (char *)"all of it";
    CHECK_INT(stk_options_check(&good, &err), STK_ERR_OPTION);
    data.set.labels = NULL;
    data.name = NULL;
    CHECK_INT(stk_options_check(&good, &err), STK_ERR_OPTION);
    stk_options_deinit(&d);
}

static void the_examples_are_read(void)
{
    static const char *const names[] = {"stoker.yaml", "faulty.yaml"};
    for (size_t i = 0; i < 2; i++) {
        stk_error err;
        char path[600];
        snprintf(path, sizeof path, "%s/../examples/sample/%s", test_source_folder(), names[i]);
        stk_options o = STK_OPTIONS_INIT;
        CHECK_OK(stk_options_read(&o, path, &err), err);
        CHECK_OK(stk_options_check(&o, &err), err);
        CHECK(o.set.chat_template.declared);
        stk_options_deinit(&o);
    }
}

int main(int argc, char **argv)
{
    TEST_MAIN(argc, argv, TEST(defaults_are_those_of_the_table),
              TEST(every_default_of_the_table_can_be_set_as_it_is_shown),
              TEST(every_choice_of_the_table_can_be_set), TEST(a_data_set_has_its_own_and_inherited_options), TEST(names_by_default),
              TEST(a_turn_format_is_read), TEST(unknown_keys_name_the_nearest_known_one),
              TEST(what_a_later_release_brings_is_named_as_such), TEST(stores_have_options), TEST(evaluation_has_options_of_its_own),
              TEST(what_is_set_is_for_evaluation_too_but_for_what_that_states), TEST(a_batch_may_follow_a_schedule), TEST(weights_and_epochs_are_numbers_above_zero), TEST(what_is_no_value_is_refused),
              TEST(sizes_times_and_shares_are_read_exactly), TEST(numbers_do_not_depend_on_the_locale),
              TEST(twice_and_aliases_are_refused), TEST(hostile_files_cost_little),
              TEST(a_file_that_cannot_be_read_is_named), TEST(one_option_is_set_by_name),
              TEST(what_does_not_go_together_is_refused), TEST(values_set_by_hand_are_checked),
              TEST(the_examples_are_read));
}
