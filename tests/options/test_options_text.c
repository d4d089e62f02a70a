/* test_options_text.c - options that are written give the same options when they are read. */
#include "test.h"

#include "engine/number_list.h"
#include "engine/options_text.h"

static const char full[] =
    "model: \"/models/a \\\"b\\\"\"\n"
    "batch: [[0, 4], [100, 8]]\n"
    "micro_batch: 2\n"
    "seed: 7\n"
    "workers: inline\n"
    "memory: 3GiB\n"
    "timeout: 5 min\n"
    "errors: {masked: 0.000125, unusable: 0.25}\n"
    "limits: {jpeg_scans: 7, text_bytes: 1MiB}\n"
    "cache: {path: /cache, bytes: 5GB}\n"
    "prices: {request: 0.0004}\n"
    "dead_letter: letters.jsonl\n"
    "allow: [\"s3://bucket\", /elsewhere]\n"
    "run: job-17\n"
    "engine: inprocess\n"
    "nice: 3\n"
    "cpus: 2-5,9\n"
    "template:\n"
    "  system: {before: \"<s>\\n\", after: \"\\x01\\x7f[[{\\u0085\"}\n"
    "  user: {before: u}\n"
    "  assistant: {before: a, after: z, train: [text]}\n"
    "  image: \"<i>\"\n"
    "data:\n"
    "  - {path: [a.jsonl, \"b*.jsonl\"], weight: 1.5, columns: {id: key, messages: m}, labels: last, max_pixels: 50000}\n"
    "  - {name: zwei, path: c.jsonl, weight: 2.25, template: qwen3-vl, where: \"images > 0\", allow_control_tokens: [x]}\n";

static stk_options read_text(const char *text)
{
    stk_options options = STK_OPTIONS_INIT;
    stk_error err;
    CHECK_OK(stk_options_read_text(&options, text, strlen(text), "/folder/run.yaml", &err), err);
    return options;
}

static char *write_text(const stk_options *options)
{
    stk_error err;
    stk_buffer text;
    stk_buffer_init(&text, STK_TAG_OPTIONS, 1 << 20);
    CHECK_OK(stk_options_write(options, &text, &err), err);
    CHECK_OK(stk_buffer_append(&text, "", 1, &err), err);
    return (char *)text.data;
}

static void expect_same_again(const char *config)
{
    stk_options options = read_text(config);
    char *const once = write_text(&options);
    stk_options again = read_text(once);
    char *const twice = write_text(&again), line[96], other[96];
    CHECK_MSG(!stk_options_text_difference(stk_str_of(once), stk_str_of(twice), line, other), "%s | %s", line, other);
    stk_options_deinit(&options);
    stk_options_deinit(&again);
    stk_free(once);
    stk_free(twice);
}

static void written_options_are_read_as_they_were(void)
{
    expect_same_again(full);
    expect_same_again("seed: 1\n");
    char eval[sizeof full + 200];
    snprintf(eval, sizeof eval, "%seval:\n  batch: 3\n  dead_letter: null\n  allow: []\n  data:\n    - {path: e.jsonl}\n", full);
    expect_same_again(eval);

    stk_options options = read_text(eval);
    char *const text = write_text(&options);
    stk_options again = read_text(text);
    CHECK_STR(again.model, "/models/a \"b\"");
    CHECK_INT(again.batch_schedule.count, 2);
    CHECK_INT(again.batch_schedule.rows[1], 8);
    CHECK_INT(again.workers, -1);
    CHECK_INT(again.memory_bytes, (int64_t)3 << 30);
    CHECK(again.errors_masked == 0.000125 && again.price_request == 0.0004);
    CHECK_STR(again.set.chat_template.system.after, "\x01\x7f[[{\xc2\x85");
    CHECK(again.set.chat_template.assistant.train_text && !again.set.chat_template.assistant.train_after);
    CHECK_STR(again.data[1].set.chat_template.name, "qwen3-vl");
    CHECK_STR(again.data[0].name, "a");
    CHECK_STR(again.data[0].columns.value[0], "key");
    CHECK(again.data[1].weight == 2.25);
    CHECK_STR(again.cpus, "2-5,9");
    CHECK(again.eval && again.eval->dead_letter == NULL && again.eval->allow.count == 0 && again.eval->batch == 3);
    CHECK(again.eval->batch_schedule.count == 0 && !again.eval->shuffle);
    stk_options_deinit(&options);
    stk_options_deinit(&again);
    stk_free(text);
}

static void the_first_difference_is_named_by_its_line(void)
{
    stk_options options = read_text(full), other = read_text(full);
    other.seed = 8;
    char *const a = write_text(&options), *const b = write_text(&other), line_of_a[96], line_of_b[96];
    CHECK(stk_options_text_difference(stk_str_of(a), stk_str_of(b), line_of_a, line_of_b));
    CHECK_STR(line_of_a, "seed: 7");
    CHECK_STR(line_of_b, "seed: 8");
    CHECK(!stk_options_text_difference(stk_str_of(a), stk_str_of(a), line_of_a, line_of_b));
    stk_options_deinit(&options);
    stk_options_deinit(&other);
    stk_free(a);
    stk_free(b);
}

static void lists_of_cpus_are_ranges_and_numbers(void)
{
    cpu_set_t set;
    stk_error err;
    CHECK_OK(stk_cpus_parse("2-4,9", &set, &err), err);
    CHECK_INT(CPU_COUNT(&set), 4);
    CHECK(CPU_ISSET(3, &set) && CPU_ISSET(9, &set) && !CPU_ISSET(5, &set));
    static const char *const bad[] = {"", "x", "4-2", "1,", "1-", "-1", "1 2", "99999", "0x1"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        CHECK_MSG(stk_cpus_parse(bad[i], &set, &err) == STK_ERR_OPTION, "\"%s\" is taken", bad[i]);
        CHECK_HAS(err.message, "cpus");
    }
}

static void lists_of_numbers_are_written_as_they_are_read(void)
{
    static const char *const texts[][2] = {{"0", "0"}, {"3,1,2", "1-3"}, {"8,0-3,2", "0-3,8"}, {"0,2,4,5", "0,2,4-5"}, {"0-65535", "0-65535"}};
    stk_error err;
    uint32_t *number, count;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        stk_buffer again;
        stk_buffer_init(&again, STK_TAG_ENGINE, 1000);
        CHECK_OK(stk_numbers_read(&number, &count, stk_str_of(texts[i][0]), 65536, "list", &err), err);
        CHECK_OK(stk_numbers_write(&again, number, count, &err), err);
        CHECK_STR((const char *)again.data, texts[i][1]);
        stk_buffer_deinit(&again);
        stk_free(number);
    }
    CHECK_INT(stk_numbers_read(&number, &count, stk_str_of("0-4294967295"), UINT32_MAX, "list", &err), STK_ERR_OPTION);
    CHECK_INT(stk_numbers_read(&number, &count, stk_str_of("0-3,8"), 8, "list", &err), STK_ERR_OPTION);
    CHECK_STR(err.message, "list: \"0-3,8\" is no list of numbers below 8, such as 0-3,8");
    CHECK(number == NULL);
}

int main(int argc, char **argv)
{
    TEST_MAIN(argc, argv, TEST(written_options_are_read_as_they_were), TEST(the_first_difference_is_named_by_its_line),
              TEST(lists_of_cpus_are_ranges_and_numbers), TEST(lists_of_numbers_are_written_as_they_are_read));
}
