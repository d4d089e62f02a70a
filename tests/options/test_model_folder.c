/* test_model_folder.c - the checkpoint's numbers: those of the published families, and hostile ones refused
 * by file and key. */
#include "test.h"

#include <stdbool.h>
#include <sys/stat.h>

#include "engine/model_folder.h"

static stk_tokenizer *tokenizer;

static const char config3[] = "{\"model_type\": \"qwen3_vl\", \"vision_config\": {\"patch_size\": 16}}";
static const char pixels3[] =
    "{\"size\": {\"shortest_edge\": 65536, \"longest_edge\": 16777216}, \"patch_size\": 16, "
    "\"temporal_patch_size\": 2, "
    "\"merge_size\": 2, \"image_mean\": [0.5, 0.5, 0.5], \"image_std\": [0.5, 0.5, 0.5]}";
static const char words3[] = "{\"model_max_length\": 262144}";

/* Another word in one of the three files. */
static stk_status read_with(stk_model *model, const char *file, const char *from, const char *to,
                            stk_error *err)
{
    const struct {
        const char *name, *text;
    } files[] = {
        {"config.json", config3}, {"preprocessor_config.json", pixels3}, {"tokenizer_config.json", words3}};
    for (int i = 0; i < 3; i++) {
        char text[1000];
        const char *const at = file && strcmp(file, files[i].name) == 0 ? strstr(files[i].text, from) : NULL;
        CHECK(!file || strcmp(file, files[i].name) != 0 || at);
        if (at)
            snprintf(text, sizeof text, "%.*s%s%s", (int)(at - files[i].text), files[i].text, to,
                     at + strlen(from));
        test_write(files[i].name, at ? text : files[i].text);
    }
    return stk_model_read(model, test_folder(), tokenizer, err);
}

static void expect_refused(const char *file, const char *from, const char *to, const char *words)
{
    stk_error err;
    stk_model model;
    CHECK_MSG(read_with(&model, file, from, to, &err) == STK_ERR_MODEL, "%s: %s", from, to);
    CHECK_HAS(err.file, file);
    CHECK_HAS(err.message, words);
    CHECK_INT(err.stage, STK_STAGE_MODEL);
}

static void the_families_numbers_are_read(void)
{
    stk_error err;
    stk_model m;
    CHECK_OK(read_with(&m, NULL, "", "", &err), err);
    CHECK_STR(m.model_type, "qwen3_vl");
    CHECK_INT(m.patch_px, 16);
    CHECK_INT(m.merge, 2);
    CHECK_INT(m.temporal, 2);
    CHECK_INT(m.min_px, 65536);
    CHECK_INT(m.max_px, 16777216);
    CHECK_INT(m.max_tokens, 262144);
    CHECK(m.mrope_per_frame && m.image_mean[0] == 0.5 && m.image_std[2] == 0.5);
    CHECK(m.ids.image_pad > 0 && m.ids.end_of_text > 0);

    test_write("config.json",
               "{\"model_type\": \"qwen2_5_vl\", \"vision_config\": {\"tokens_per_second\": 2}}");
    test_write(
        "preprocessor_config.json",
        "{\"min_pixels\": 3136, \"max_pixels\": 12845056, \"patch_size\": 14, \"temporal_patch_size\": 2, "
        "\"merge_size\": 2, \"image_mean\": [0.48145466, 0.4578275, 0.40821073], "
        "\"image_std\": [0.26862954, 0.26130258, 0.27577711]}");
    CHECK_OK(stk_model_read(&m, test_folder(), tokenizer, &err), err);
    CHECK_INT(m.patch_px, 14);
    CHECK_INT(m.min_px, 3136);
    CHECK_INT(m.max_px, 12845056);
    CHECK(!m.mrope_per_frame && m.tokens_per_second == 2 && m.image_mean[1] == 0.4578275);
}

static void no_limit_of_tokens_is_a_large_one(void)
{
    stk_error err;
    stk_model m;
    CHECK_OK(read_with(&m, "tokenizer_config.json", "262144", "1000000000000000019884624838656", &err), err);
    CHECK(m.max_tokens >= 1 << 30);
    CHECK_OK(read_with(&m, "tokenizer_config.json", "262144", "1e30", &err), err);
    CHECK(m.max_tokens >= 1 << 30);
}

static void hostile_numbers_are_refused(void)
{
    static const char pixels[] = "preprocessor_config.json";
    expect_refused(pixels, "\"patch_size\": 16", "\"patch_size\": 0", "patch_size");
    expect_refused(pixels, "\"patch_size\": 16", "\"patch_size\": -16", "patch_size");
    expect_refused(pixels, "\"patch_size\": 16", "\"patch_size\": 16.5", "patch_size");
    expect_refused(pixels, "\"patch_size\": 16", "\"patch_size\": \"16\"", "patch_size");
    expect_refused(pixels, "\"patch_size\": 16", "\"patch_size\": 4294967312", "patch_size");
    expect_refused(pixels, "\"patch_size\": 16", "\"patch_size\": 1e300", "patch_size");
    expect_refused(pixels, "\"patch_size\": 16", "\"patch\": 16", "patch_size");
    expect_refused(pixels, "\"merge_size\": 2", "\"merge_size\": 1000", "merge_size");
    expect_refused(pixels, "\"temporal_patch_size\": 2", "\"temporal_patch_size\": null",
                   "temporal_patch_size");
    expect_refused(pixels, "65536", "0", "shortest_edge");
    expect_refused(pixels, "65536", "33554432", "lower limit");
    expect_refused(pixels, "\"longest_edge\"", "\"other_edge\"", "size");
    expect_refused(pixels, "{\"shortest_edge\": 65536, \"longest_edge\": 16777216}", "[65536, 16777216]",
                   "size");
    expect_refused(pixels, "\"image_mean\": [0.5, 0.5, 0.5]", "\"image_mean\": [0.5, 0.5]", "image_mean");
    expect_refused(pixels, "\"image_mean\": [0.5, 0.5, 0.5]", "\"image_mean\": [0.5, 0.5, 7]", "image_mean");
    expect_refused(pixels, "\"image_std\": [0.5, 0.5, 0.5]", "\"image_std\": [0.5, 0, 0.5]", "image_std");
    expect_refused(pixels, "\"image_std\": [0.5, 0.5, 0.5]", "\"image_std\": 0.5", "image_std");
    expect_refused(pixels, "{\"size\"", "{\"do_resize\": false, \"size\"", "do_resize");
    expect_refused(pixels, "{\"size\"", "[\"size\"", "JSON");
    expect_refused("tokenizer_config.json", "262144", "0", "model_max_length");
    expect_refused("tokenizer_config.json", "262144", "\"long\"", "model_max_length");
    expect_refused("config.json", "qwen3_vl", "llava", "model_type");
    expect_refused("config.json", "\"qwen3_vl\"", "7", "model_type");
    expect_refused("config.json", "{\"model_type\": \"qwen3_vl\", \"vision_config\": {\"patch_size\": 16}}",
                   "[]", "object");
}

static void numbers_that_disagree_are_refused(void)
{
    expect_refused("config.json", "\"patch_size\": 16", "\"patch_size\": 14", "patch_size");
}

static void a_missing_file_is_named(void)
{
    stk_error err;
    stk_model m;
    char path[400];
    CHECK_OK(read_with(&m, NULL, "", "", &err), err);
    snprintf(path, sizeof path, "%s/preprocessor_config.json", test_folder());
    CHECK(remove(path) == 0);
    CHECK_INT(stk_model_read(&m, test_folder(), tokenizer, &err), STK_ERR_MODEL);
    CHECK_HAS(err.file, "preprocessor_config.json");
    CHECK(mkdir(path, 0755) == 0);
    CHECK_INT(stk_model_read(&m, test_folder(), tokenizer, &err), STK_ERR_MODEL);
    CHECK(rmdir(path) == 0);
    CHECK_INT(stk_model_read(&m, "/no/such/folder", tokenizer, &err), STK_ERR_MODEL);
}

int main(int argc, char **argv)
{
    stk_error err;
    char folder[600];
    snprintf(folder, sizeof folder, "%s/../examples/sample/model", test_source_folder());
    CHECK_OK(stk_tokenizer_open(&tokenizer, folder, &err), err);
    const test_entry entries[] = {TEST(the_families_numbers_are_read),
                                  TEST(no_limit_of_tokens_is_a_large_one), TEST(hostile_numbers_are_refused),
                                  TEST(numbers_that_disagree_are_refused), TEST(a_missing_file_is_named)};
    const int status = test_run(entries, sizeof entries / sizeof *entries, argc, argv);
    stk_tokenizer_close(&tokenizer);
    return status;
}
