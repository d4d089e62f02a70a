/* text_probe.c - for tests only: conversations as JSON lines in, ids and labels as JSON lines out.
 *
 *     text_probe MODEL_FOLDER [TEMPLATE_NAME] < cases.jsonl
 *
 * Python tests compare what it prints with the reference software. */
#include <stdio.h>

#include "chat_case.h"
#include "schema/facts.h"

static json_t *int_list(const int32_t *value, uint32_t count)
{
    json_t *const list = json_array();
    for (uint32_t i = 0; i < count; i++) json_array_append_new(list, json_integer(value[i]));
    return list;
}

static json_t *result_of(const stk_tokens *tokens)
{
    json_t *const out = json_object();
    json_t *const trained = json_array(), *const media_at = json_array();
    for (uint32_t i = 0; i < tokens->count; i++)
        json_array_append_new(trained, json_integer(tokens->trained[i]));
    for (uint32_t i = 0; i < tokens->media_count; i++)
        json_array_append_new(media_at, json_integer(tokens->media_at[i]));
    json_object_set_new(out, "rendered", json_stringn(tokens->rendered.data, tokens->rendered.size_bytes));
    json_object_set_new(out, "ids", int_list(tokens->id, tokens->count));
    json_object_set_new(out, "trained", trained);
    json_object_set_new(out, "media_at", media_at);
    json_object_set_new(out, "notes", json_integer(tokens->notes));
    return out;
}

static json_t *run_case(const json_t *from, const stk_tokenizer *tokenizer, const stk_template *chat_template,
                        stk_text_scratch *scratch)
{
    chat_case c = {0};
    stk_error err;
    stk_reason reason = STK_REASON_NONE;
    stk_tokens tokens;
    json_t *out;
    if (!chat_case_make(&c, from))
        out = json_pack("{s:s}", "error", "not a case");
    else if (stk_text_encode(&tokens, tokenizer, chat_template, &c.rules, &c.sample, scratch, &reason, &err) <
             0)
        out = json_pack("{s:i, s:i, s:s}", "status", (int)err.status, "reason", (int)reason, "error",
                        err.message);
    else
        out = result_of(&tokens);
    chat_case_end(&c);
    return out;
}

static int run_lines(const stk_tokenizer *tokenizer, const stk_template *chat_template,
                     stk_text_scratch *scratch)
{
    char *line = NULL;
    size_t capacity = 0;
    ssize_t length;
    while ((length = getline(&line, &capacity, stdin)) > 0) {
        json_error_t why;
        json_t *const from = json_loadb(line, (size_t)length, JSON_ALLOW_NUL, &why);
        if (!from) {
            fprintf(stderr, "text_probe: %s\n", why.text);
            free(line);
            return 1;
        }
        json_t *const out = run_case(from, tokenizer, chat_template, scratch);
        json_dumpf(out, stdout, JSON_COMPACT);
        putchar('\n');
        json_decref(out);
        json_decref(from);
    }
    free(line);
    return 0;
}

int main(int argc, char **argv)
{
    stk_error err;
    stk_tokenizer *tokenizer = NULL;
    stk_template *chat_template = NULL;
    stk_text_scratch *scratch = NULL;
    const stk_limits limits = STK_LIMITS_DEFAULT;
    int status = 2;
    if (argc < 2 || argc > 3) {
        fprintf(stderr, "usage: text_probe MODEL_FOLDER [TEMPLATE_NAME] < cases.jsonl\n");
        return 2;
    }
    if (stk_tokenizer_open(&tokenizer, argv[1], &err) < 0 ||
        (argc > 2 ? stk_template_named(&chat_template, stk_str_of(argv[2]), &err)
                  : stk_template_open(&chat_template, argv[1], &err)) < 0 ||
        stk_text_scratch_create(&scratch, &limits, &err) < 0)
        stk_error_print(stderr, &err);
    else
        status = run_lines(tokenizer, chat_template, scratch);
    stk_text_scratch_destroy(scratch);
    stk_template_close(&chat_template);
    stk_tokenizer_close(&tokenizer);
    return status;
}
