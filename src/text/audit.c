/* audit.c - a look through the data of a sample, beside its rendering: the template decides what is written,
 * this only says what there is to know about it.
 *
 * Control tokens are those of the render's set (special, or written by the template, and not allowed by the
 * rules). Only samples in which rendering met one are searched for who typed which. */
#include "text/audit.h"

enum { LAST_TOKEN_BIT = 63 };

typedef struct token_search {
    const stk_tokenizer *tokenizer;
    const stk_control_set *control;
    uint64_t found; /* as stk_text_facts.typed_tokens */
} token_search;

static uint64_t bit_of(const stk_tokenizer *tokenizer, stk_str token)
{
    size_t at = 0;
    while (at < LAST_TOKEN_BIT && at < stk_tokenizer_added_count(tokenizer) &&
           !stk_str_equal(stk_tokenizer_added(tokenizer, at)->text, token))
        at++;
    return (uint64_t)1 << (at < LAST_TOKEN_BIT ? at : LAST_TOKEN_BIT);
}

static void search_text(token_search *s, stk_str text)
{
    for (size_t i = 0; i < text.size_bytes;) {
        const stk_control_token *const token =
            stk_control_find(s->control, (stk_str){text.data + i, text.size_bytes - i});
        if (token) s->found |= bit_of(s->tokenizer, token->text);
        i += token ? token->text.size_bytes : 1;
    }
}

/* The strings of a JSON value; its keys are not data (section 4.5).  As deep as limits.json_depth let it be.
 */
static void search_json(token_search *s, const json_t *value)
{
    if (json_is_string(value)) search_text(s, (stk_str){json_string_value(value), json_string_length(value)});
    for (size_t i = 0; i < json_array_size(value); i++) search_json(s, json_array_get(value, i));
    json_t *const object = (json_t *)(uintptr_t)value; /* the iteration does not change it */
    for (void *at = json_object_iter(object); at; at = json_object_iter_next(object, at))
        search_json(s, json_object_iter_value(at));
}

static void search_turn(token_search *s, const stk_turn *turn)
{
    for (size_t i = 0; i < turn->part_count; i++)
        if (turn->part[i].kind == STK_PART_TEXT) search_text(s, turn->part[i].text);
    for (size_t i = 0; i < turn->call_count; i++) {
        search_text(s, turn->call[i].name);
        search_json(s, turn->call[i].arguments);
    }
    if (turn->reasoning.data) search_text(s, turn->reasoning);
}

static void add_found(stk_tokens *tokens, token_search *s, stk_role role)
{
    static const uint32_t note[] = {[STK_ROLE_SYSTEM] = STK_NOTE_CONTROL_TOKEN_SYSTEM,
                                    [STK_ROLE_USER] = STK_NOTE_CONTROL_TOKEN,
                                    [STK_ROLE_ASSISTANT] = STK_NOTE_CONTROL_TOKEN_ANSWER,
                                    [STK_ROLE_TOOL] = STK_NOTE_CONTROL_TOKEN_TOOL};
    if (s->found) tokens->notes |= note[role];
    tokens->typed_tokens |= s->found;
    s->found = 0;
}

static void find_control_tokens(stk_tokens *tokens, const stk_tokenizer *tokenizer, const stk_render *render,
                                const stk_sample *sample)
{
    token_search s = {.tokenizer = tokenizer, .control = render->control};
    search_json(&s, sample->tools);
    add_found(tokens, &s, STK_ROLE_SYSTEM);
    for (size_t i = 0; i < stk_render_turn_count(render, sample); i++) {
        const stk_turn *const turn = stk_render_turn(render, sample, i);
        search_turn(&s, turn);
        add_found(tokens, &s, turn->role);
    }
}

static bool starts(stk_str text, stk_str word)
{
    return text.size_bytes >= word.size_bytes && memcmp(text.data, word.data, word.size_bytes) == 0;
}

/* Literal words that other code takes for more than words.  *in_thought: an opening tag stands before, in
 * this turn. */
static uint32_t find_words(stk_str text, stk_role role, bool *in_thought)
{
    uint32_t notes = 0;
    for (size_t at = 0; at < text.size_bytes; at++) {
        const char *const next = memchr(text.data + at, '<', text.size_bytes - at);
        if (!next) break;
        at = (size_t)(next - text.data);
        const stk_str rest = {next, text.size_bytes - at};
        if (starts(rest, STK_LITERAL("<|endoftext|>"))) notes |= STK_NOTE_END_OF_TEXT;
        if (starts(rest, STK_LITERAL("<|placeholder|>"))) notes |= STK_NOTE_PLACEHOLDER;
        if (starts(rest, STK_LITERAL("<think>"))) *in_thought = true;
        if (role == STK_ROLE_ASSISTANT && !*in_thought && starts(rest, STK_LITERAL("</think>")))
            notes |= STK_NOTE_THINK_CLOSED;
    }
    return notes;
}

void stk_text_audit(stk_tokens *tokens, const stk_tokenizer *tokenizer, const stk_render *render,
                    const stk_sample *sample)
{
    static const uint32_t typed = STK_NOTE_CONTROL_TOKEN | STK_NOTE_CONTROL_TOKEN_ANSWER;
    tokens->notes |= render->notes & ~typed;
    if (render->notes & typed) find_control_tokens(tokens, tokenizer, render, sample);
    for (size_t i = 0; i < stk_render_turn_count(render, sample); i++) {
        const stk_turn *const turn = stk_render_turn(render, sample, i);
        bool in_thought = false;
        for (size_t k = 0; k < turn->part_count; k++)
            if (turn->part[k].kind == STK_PART_TEXT)
                tokens->notes |= find_words(turn->part[k].text, turn->role, &in_thought);
        if (turn->reasoning.data) tokens->notes |= find_words(turn->reasoning, turn->role, &in_thought);
    }
}
