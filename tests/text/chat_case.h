/* chat_case.h - for tests only: a conversation in plain JSON as a stk_sample, and rules by their names.
 *
 * The record is in the form of OpenAI's messages: role, content (a text, or parts of type text, image,
 * video), tool_calls, reasoning_content, train; beside them tools.  The manifest's own parser is not used, so
 * that a test of the text depends on nothing but the text. */
#ifndef STK_TEST_CHAT_CASE_H
#define STK_TEST_CHAT_CASE_H

#include <jansson.h>

#include "schema/rules.h"
#include "schema/sample.h"
#include "text/text.h"

typedef struct chat_case {
    stk_sample sample;
    stk_text_rules rules;
    stk_str allowed[16];
} chat_case;

static inline stk_str chat_text(const json_t *value)
{
    return json_is_string(value) ? (stk_str){json_string_value(value), json_string_length(value)}
                                 : (stk_str){NULL, 0};
}

static inline bool chat_role(stk_role *role, const char *name)
{
    static const char *const names[] = {"system", "user", "assistant", "tool"};
    for (int i = 0; name && i < 4; i++)
        if (strcmp(name, names[i]) == 0) return *role = (stk_role)i, true;
    return false;
}

/* Append one part; media go to the sample's list. */
static inline bool chat_part(stk_sample *sample, stk_turn *turn, const json_t *part)
{
    stk_turn_part *const list = (stk_turn_part *)(uintptr_t)turn->part;
    const char *const type = json_is_string(part) ? "text" : json_string_value(json_object_get(part, "type"));
    const stk_str text = chat_text(json_is_string(part) ? part : json_object_get(part, "text"));
    if (!type) return false;
    if (strcmp(type, "text") == 0) {
        if (text.size_bytes) list[turn->part_count++] = (stk_turn_part){.kind = STK_PART_TEXT, .text = text};
        return true;
    }
    stk_media_ref *const media = (stk_media_ref *)(uintptr_t)sample->media;
    media[sample->media_count].kind = strcmp(type, "video") == 0 ? STK_MEDIA_VIDEO : STK_MEDIA_IMAGE;
    list[turn->part_count++] =
        (stk_turn_part){.kind = STK_PART_MEDIA, .media_index = (uint32_t)sample->media_count++};
    return true;
}

static inline bool chat_calls(stk_pool *pool, stk_turn *turn, const json_t *calls)
{
    stk_tool_call *const list = stk_pool_take(pool, (json_array_size(calls) + 1) * sizeof *list);
    if (!list) return false;
    for (size_t i = 0; i < json_array_size(calls); i++) {
        const json_t *call = json_array_get(calls, i);
        if (json_object_get(call, "function")) call = json_object_get(call, "function");
        list[i] =
            (stk_tool_call){chat_text(json_object_get(call, "name")), json_object_get(call, "arguments")};
        if (!list[i].name.data || !list[i].arguments) return false;
    }
    turn->call = list;
    turn->call_count = json_array_size(calls);
    return true;
}

static inline bool chat_turn(stk_sample *sample, stk_turn *turn, const json_t *message)
{
    if (!chat_role(&turn->role, json_string_value(json_object_get(message, "role")))) return false;
    const json_t *const content = json_object_get(message, "content");
    turn->part = stk_pool_take(&sample->pool, (json_array_size(content) + 1) * sizeof *turn->part);
    if (!turn->part) return false;
    if (json_is_string(content) && !chat_part(sample, turn, content)) return false;
    for (size_t i = 0; i < json_array_size(content); i++)
        if (!chat_part(sample, turn, json_array_get(content, i))) return false;
    turn->reasoning = chat_text(json_object_get(message, "reasoning_content"));
    const json_t *const train = json_object_get(message, "train");
    turn->train = json_is_true(train)    ? STK_TRAIN_YES
                  : json_is_false(train) ? STK_TRAIN_NO
                                         : STK_TRAIN_BY_RULE;
    return chat_calls(&sample->pool, turn, json_object_get(message, "tool_calls"));
}

/* The sample of a record; it borrows the record. */
static inline bool chat_sample(stk_sample *sample, const json_t *record)
{
    enum { MEDIA = 64 };
    *sample = (stk_sample){0};
    stk_pool_init(&sample->pool, STK_TAG_MANIFEST);
    const json_t *const messages = json_object_get(record, "messages");
    stk_turn *const turns = stk_pool_take(&sample->pool, (json_array_size(messages) + 1) * sizeof *turns);
    sample->media = stk_pool_take(&sample->pool, MEDIA * sizeof *sample->media);
    if (!turns || !sample->media) return false;
    for (size_t i = 0; i < json_array_size(messages); i++)
        if (!chat_turn(sample, &turns[i], json_array_get(messages, i))) return false;
    sample->turn = turns;
    sample->turn_count = json_array_size(messages);
    sample->tools = json_object_get(record, "tools");
    return true;
}

/* labels, control_tokens, allow_control_tokens, system of a case. */
static inline void chat_rules(chat_case *c, const json_t *from)
{
    const char *const labels = json_string_value(json_object_get(from, "labels"));
    const char *const control = json_string_value(json_object_get(from, "control_tokens"));
    const json_t *const allow = json_object_get(from, "allow_control_tokens");
    c->rules = (stk_text_rules){.labels = STK_LABELS_ANSWERS, .control_tokens = STK_CONTROL_PLAIN};
    if (labels && strcmp(labels, "last") == 0) c->rules.labels = STK_LABELS_LAST;
    if (labels && strcmp(labels, "finetune") == 0) c->rules.labels = STK_LABELS_FINETUNE;
    if (control && strcmp(control, "sanitize") == 0) c->rules.control_tokens = STK_CONTROL_SANITIZE;
    if (control && strcmp(control, "reference") == 0) c->rules.control_tokens = STK_CONTROL_REFERENCE;
    for (size_t i = 0; i < json_array_size(allow) && i < 16; i++)
        c->allowed[i] = chat_text(json_array_get(allow, i));
    c->rules.allow_control_tokens = (stk_str_list){c->allowed, json_array_size(allow)};
    c->rules.system = chat_text(json_object_get(from, "system"));
}

static inline bool chat_case_make(chat_case *c, const json_t *from)
{
    chat_rules(c, from);
    return chat_sample(&c->sample, json_object_get(from, "record"));
}

static inline void chat_case_end(chat_case *c)
{
    stk_pool_deinit(&c->sample.pool);
}

#endif
