/* test_dialects.c - records of every dialect, from their bytes to a batch's ids and labels, against the reference.
 *
 * tools/make-dialect-goldens writes golden.jsonl and says what its fields are. */
#include "test.h"

#include <jansson.h>

#include "base/memory.h"
#include "batch/slot.h"
#include "manifest/record.h"
#include "text/text.h"

enum { MEDIA_MAX = 16, END_OF_TEXT = 7 };

static const stk_model model = {.patch_px = 16, .merge = 2, .temporal = 2, .ids = {.end_of_text = END_OF_TEXT}};
static stk_limits limits;
static const stk_text_rules text_rules = {.labels = STK_LABELS_ANSWERS, .control_tokens = STK_CONTROL_PLAIN};
static stk_tokenizer *tokenizer;
static stk_template *chat_template;
static stk_text_scratch *scratch;
static stk_error err;

/* A recipe of one sample with the given images. */
typedef struct one_sample {
    stk_recipe_media media[MEDIA_MAX];
    stk_recipe_sample sample;
    stk_recipe recipe;
} one_sample;

static int64_t int_at(const json_t *list, size_t at)
{
    return json_integer_value(json_array_get(list, at));
}

static stk_str text_of(const json_t *object, const char *key)
{
    const json_t *const value = json_object_get(object, key);
    return (stk_str){json_string_value(value), json_string_length(value)};
}

static bool is_in(const json_t *ranges, int64_t at)
{
    for (size_t i = 0; i < json_array_size(ranges); i++) {
        const json_t *const range = json_array_get(ranges, i);
        if (at >= int_at(range, 0) && at < int_at(range, 1)) return true;
    }
    return false;
}

static void make_recipe(one_sample *one, const json_t *line, const stk_tokens *tokens)
{
    const json_t *const grids = json_object_get(line, "grids");
    const uint32_t media_count = (uint32_t)json_array_size(grids);
    const uint32_t token_count = (uint32_t)json_array_size(json_object_get(line, "input_ids"));
    CHECK(media_count <= MEDIA_MAX);
    *one = (one_sample){.sample = {.token_count = token_count, .supervised_count = tokens->supervised_count, .media_count = media_count}};
    one->recipe = (stk_recipe){.row_count = 1, .sample_count = 1, .media_count = media_count, .token_count = token_count,
                               .row_tokens = token_count, .sample = &one->sample, .media = one->media};
    for (size_t k = 0; k < media_count; k++) {
        const json_t *const grid = json_array_get(grids, k);
        one->media[k] = (stk_recipe_media){.grid = {(uint32_t)int_at(grid, 0), (uint32_t)int_at(grid, 1), (uint32_t)int_at(grid, 2)},
                                           .first_patch = one->recipe.patch_count};
        one->recipe.patch_count += stk_grid_patches(one->media[k].grid);
    }
}

static void expect_batch(const json_t *line, const char *what, const stk_tokens *tokens)
{
    const stk_batch_form form = {.layout = STK_LAYOUT_PADDED, .targets = STK_TARGETS_HF, .pixels = STK_PIXELS_UINT8, .model = &model};
    const json_t *const ids = json_object_get(line, "input_ids"), *const labels_at = json_object_get(line, "labels_at");
    one_sample one;
    stk_slot_layout layout;
    make_recipe(&one, line, tokens);
    CHECK_MSG(tokens->media_count == one.recipe.media_count, "%s: %u images", what, tokens->media_count);
    CHECK_OK(stk_slot_layout_init(&layout, &one.recipe, &form, &err), err);
    uint8_t *const slot = stk_alloc(STK_TAG_BATCH, layout.size_bytes);
    CHECK(slot);
    stk_slot_prepare(slot, &layout, &one.recipe, &form);
    CHECK_MSG(stk_slot_place(slot, &layout, &one.recipe, &form, 0, tokens, &err) == STK_OK, "%s: %s; rendered\n%.*s", what,
              err.message, STK_STR_ARGS(tokens->rendered));
    const int64_t *const got = (const int64_t *)(const void *)(slot + layout.field[STK_FIELD_INPUT_IDS].at_bytes);
    const int64_t *const labels = (const int64_t *)(const void *)(slot + layout.field[STK_FIELD_LABELS].at_bytes);
    for (uint32_t i = 0; i < one.sample.token_count; i++) {
        const int64_t id = int_at(ids, i);
        CHECK_MSG(got[i] == id, "%s: id %u is %d; rendered\n%.*s", what, i, (int)got[i], STK_STR_ARGS(tokens->rendered));
        CHECK_MSG(labels[i] == (is_in(labels_at, i) ? id : -100), "%s: label %u; rendered\n%.*s", what, i, STK_STR_ARGS(tokens->rendered));
    }
    stk_free(slot);
}

static void expect_record(const json_t *line, const char *what, const stk_record_rules *rules, stk_str record)
{
    stk_sample sample;
    stk_reason reason;
    stk_tokens tokens;
    stk_sample_init(&sample);
    CHECK_MSG(stk_record_parse(&sample, rules, record, &reason, &err) == STK_OK, "%s: %s", what, err.message);
    const json_t *const media = json_object_get(line, "media");
    CHECK_MSG(sample.media_count == json_array_size(media), "%s: %zu images", what, sample.media_count);
    for (size_t i = 0; i < sample.media_count; i++)
        CHECK_MSG(stk_str_is(sample.media[i].address, json_string_value(json_array_get(media, i))), "%s: image %zu is %.*s", what, i,
                  STK_STR_ARGS(sample.media[i].address));
    CHECK_MSG(stk_text_encode(&tokens, tokenizer, chat_template, &text_rules, &sample, scratch, &reason, &err) == STK_OK, "%s: %s", what,
              err.message);
    expect_batch(line, what, &tokens);
    stk_sample_deinit(&sample);
}

static stk_dialect dialect_named(const char *name)
{
    static const char *const names[] = {"", "llava", "openai", "ms-swift", "sharegpt"};
    for (int i = 1; i < 5; i++)
        if (strcmp(name, names[i]) == 0) return (stk_dialect)i;
    CHECK_MSG(false, "no dialect %s", name);
    return STK_DIALECT_DETECT;
}

/* The record as the format that it is in; and undeclared, unless only ms-swift reads it. */
static void run_record(const json_t *line, const json_t *item, size_t *detected)
{
    const char *const format = json_string_value(json_object_get(item, "format"));
    const json_t *const columns = json_object_get(item, "columns");
    char what[200];
    snprintf(what, sizeof what, "%s as %s", json_string_value(json_object_get(line, "name")), format);
    stk_record_rules rules = {.dialect = dialect_named(format), .media_root = {"/m", 2}, .limits = &limits,
                              .messages_column = text_of(columns, "messages"), .images_column = text_of(columns, "images"),
                              .system_column = text_of(columns, "system"), .tools_column = text_of(columns, "tools")};
    char *const record = json_dumps(json_object_get(item, "record"), JSON_COMPACT);
    CHECK(record);
    expect_record(line, what, &rules, stk_str_of(record));
    if (rules.dialect != STK_DIALECT_MS_SWIFT) {
        rules.dialect = STK_DIALECT_DETECT;
        strcat(what, ", detected");
        expect_record(line, what, &rules, stk_str_of(record));
        ++*detected;
    }
    free(record);
}

static void open_model(void)
{
    char folder[600];
    limits = STK_LIMITS_DEFAULT;
    snprintf(folder, sizeof folder, "%s/../examples/sample/model", test_source_folder());
    CHECK_OK(stk_tokenizer_open(&tokenizer, folder, &err), err);
    CHECK_OK(stk_template_named(&chat_template, stk_str_of("qwen3-vl"), &err), err);
    CHECK_OK(stk_text_scratch_create(&scratch, &limits, &err), err);
}

static void close_model(void)
{
    stk_text_scratch_destroy(scratch);
    stk_template_close(&chat_template);
    stk_tokenizer_close(&tokenizer);
}

static void every_dialect_as_the_reference(void)
{
    char path[600], *text = NULL;
    snprintf(path, sizeof path, "%s/dialects/golden.jsonl", test_source_folder());
    FILE *const file = fopen(path, "r");
    CHECK_MSG(file, "%s", path);
    open_model();
    size_t capacity = 0, compared = 0, detected = 0;
    for (ssize_t length; (length = getline(&text, &capacity, file)) > 0;) {
        json_t *const line = json_loadb(text, (size_t)length, JSON_ALLOW_NUL, NULL);
        CHECK_MSG(line, "%.80s", text);
        const json_t *const records = json_object_get(line, "records");
        for (size_t i = 0; i < json_array_size(records); i++, compared++) run_record(line, json_array_get(records, i), &detected);
        json_decref(line);
    }
    CHECK_MSG(compared >= 600 && detected >= 400, "only %zu records, %zu of them undeclared", compared, detected);
    close_model();
    free(text);
    fclose(file);
}

int main(int argc, char **argv)
{
    TEST_MAIN(argc, argv, TEST(every_dialect_as_the_reference));
}
