/* test_text_goldens.c - the conversations of golden/records.jsonl, against what the reference software made
 * of them.
 *
 * tools/make-text-goldens writes the goldens and says what their fields are. */
#include "../test.h"

#include <xxhash.h>

#include "chat_case.h"
#include "schema/facts.h"

static stk_error err;
static stk_tokenizer *tokenizer;
static stk_text_scratch *scratch;

/* All lines of a golden file as a JSON array. */
static json_t *read_lines(const char *name)
{
    char path[600];
    snprintf(path, sizeof path, "%s/text/golden/%s", test_source_folder(), name);
    FILE *const file = fopen(path, "r");
    CHECK_MSG(file, "%s", path);
    json_t *const lines = json_array();
    char *line = NULL;
    size_t capacity = 0;
    for (ssize_t length; (length = getline(&line, &capacity, file)) > 0;) {
        json_t *const value = json_loadb(line, (size_t)length, JSON_ALLOW_NUL, NULL);
        CHECK_MSG(value, "%s: %.80s", path, line);
        json_array_append_new(lines, value);
    }
    free(line);
    fclose(file);
    return lines;
}

static const char *text_of(const json_t *line, const char *key)
{
    return json_string_value(json_object_get(line, key));
}

static bool is_in_ranges(const json_t *ranges, uint32_t index)
{
    for (size_t i = 0; i < json_array_size(ranges); i++) {
        const json_t *const range = json_array_get(ranges, i);
        if (index >= json_integer_value(json_array_get(range, 0)) &&
            index < json_integer_value(json_array_get(range, 1)))
            return true;
    }
    return false;
}

static void expect_line(const json_t *line, const char *what, const stk_tokens *tokens)
{
    const json_t *const ids = json_object_get(line, "ids"), *const media_at =
                                                                json_object_get(line, "media_at");
    const stk_str rendered = chat_text(json_object_get(line, "rendered"));
    CHECK_MSG(stk_str_equal(tokens->rendered, rendered), "%s: rendered\n%.*s\nnot\n%.*s", what,
              (int)tokens->rendered.size_bytes, tokens->rendered.data, (int)rendered.size_bytes,
              rendered.data);
    CHECK_MSG(tokens->count == json_array_size(ids), "%s: %u tokens, not %zu", what, tokens->count,
              json_array_size(ids));
    for (uint32_t i = 0; i < tokens->count; i++) {
        CHECK_MSG(tokens->id[i] == json_integer_value(json_array_get(ids, i)), "%s: id %u is %d", what, i,
                  tokens->id[i]);
        CHECK_MSG(tokens->trained[i] == is_in_ranges(json_object_get(line, "trained"), i),
                  "%s: label of token %u", what, i);
    }
    CHECK_MSG(tokens->media_count == json_array_size(media_at), "%s: %u media", what, tokens->media_count);
    for (uint32_t i = 0; i < tokens->media_count; i++)
        CHECK_MSG(tokens->media_at[i] == json_integer_value(json_array_get(media_at, i)), "%s: medium %u",
                  what, i);
}

/* XXH3-64 over the ids as text and the flags, as the golden has it. */
static void expect_digest(const char *digest, const char *what, const stk_tokens *tokens)
{
    char *const text = malloc((size_t)tokens->count * 13 + 2);
    size_t length = 0;
    CHECK(text);
    for (uint32_t i = 0; i < tokens->count; i++)
        length += (size_t)sprintf(text + length, i ? " %d" : "%d", tokens->id[i]);
    text[length++] = '\n';
    for (uint32_t i = 0; i < tokens->count; i++) text[length++] = tokens->trained[i] ? '1' : '0';
    char got[20];
    snprintf(got, sizeof got, "%016llx", (unsigned long long)XXH3_64bits(text, length));
    CHECK_MSG(strcmp(got, digest) == 0, "%s: another digest; rendered\n%.*s", what,
              (int)tokens->rendered.size_bytes, tokens->rendered.data);
    free(text);
}

static void run_line(const json_t *line, const json_t *record, const stk_template *chat_template)
{
    char what[200];
    char *const rules = json_dumps(json_object_get(line, "rules"), JSON_COMPACT);
    snprintf(what, sizeof what, "%s %s %s", text_of(line, "name"), text_of(line, "template"), rules);
    free(rules);
    chat_case c = {0};
    chat_rules(&c, json_object_get(line, "rules"));
    CHECK_MSG(chat_sample(&c.sample, record), "%s", what);
    stk_tokens tokens;
    stk_reason reason;
    const stk_status status =
        stk_text_encode(&tokens, tokenizer, chat_template, &c.rules, &c.sample, scratch, &reason, &err);
    const json_t *const refused = json_object_get(line, "reason");
    if (refused) {
        CHECK_MSG(status == STK_ERR_RECORD, "%s: status %d, but the reference refuses it", what, status);
        CHECK_MSG(reason == json_integer_value(refused), "%s: reason %d: %s", what, reason, err.message);
    } else {
        CHECK_MSG(status == STK_OK, "%s: status %d: %s", what, status, err.message);
        if (text_of(line, "digest"))
            expect_digest(text_of(line, "digest"), what, &tokens);
        else
            expect_line(line, what, &tokens);
    }
    chat_case_end(&c);
}

static void open_sample_model(void)
{
    char folder[600];
    const stk_limits limits = STK_LIMITS_DEFAULT;
    snprintf(folder, sizeof folder, "%s/../examples/sample/model", test_source_folder());
    CHECK_OK(stk_tokenizer_open(&tokenizer, folder, &err), err);
    CHECK_OK(stk_text_scratch_create(&scratch, &limits, &err), err);
}

/* The lines of a golden file, all of which are of the templates given. */
static void run_file(const char *file, const char *const *names, size_t name_count, size_t min_lines)
{
    json_t *const lines = read_lines(file), *const records = read_lines("records.jsonl");
    json_t *const by_name = json_object();
    for (size_t i = 0; i < json_array_size(records); i++) {
        const json_t *const record = json_array_get(records, i);
        json_object_set(by_name, text_of(record, "name"), json_object_get(record, "record"));
    }
    size_t count = 0;
    for (size_t t = 0; t < name_count; t++) {
        stk_template *chat_template;
        CHECK_OK(stk_template_named(&chat_template, stk_str_of(names[t]), &err), err);
        for (size_t i = 0; i < json_array_size(lines); i++) {
            const json_t *const line = json_array_get(lines, i);
            if (strcmp(text_of(line, "template"), names[t]) != 0) continue;
            run_line(line, json_object_get(by_name, text_of(line, "name")), chat_template);
            count++;
        }
        stk_template_close(&chat_template);
        CHECK(chat_template == NULL);
    }
    CHECK_MSG(count == json_array_size(lines) && count > min_lines, "%s: %zu lines of %zu", file, count,
              json_array_size(lines));
    json_decref(by_name);
    json_decref(lines);
    json_decref(records);
}

/* Rendered text, ids, labels and places of media are the reference's, for every published template. */
static void conversations_as_the_reference(void)
{
    static const char *const packaged[] = {"qwen3-vl", "qwen2.5-vl",       "qwen3.5",         "qwen3.6",
                                           "qwen3.8",  "qwen3.5-training", "qwen3.6-training"};
    static const char *const thinking[] = {"qwen3-vl-thinking"};
    open_sample_model();
    run_file("chat.jsonl", packaged, sizeof packaged / sizeof *packaged, 1400);
    run_file("thinking.jsonl", thinking, 1, 250);
    stk_text_scratch_destroy(scratch);
    stk_tokenizer_close(&tokenizer);
}

int main(int argc, char **argv)
{
    TEST_MAIN(argc, argv, TEST(conversations_as_the_reference));
}
