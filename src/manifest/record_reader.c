/* record_reader.c - failures, memory and JSON for the files that read a record. */
#include "manifest/record_reader.h"

#include <stdarg.h>

#include "manifest/json_check.h"

stk_status stk_record_reader_fail(stk_record_reader *reader, stk_reason reason, const char *format, ...)
{
    *reader->reason = reason;
    char text[sizeof((stk_error *)0)->message];
    int used = 0;
    if (reader->turn_number) used = snprintf(text, sizeof text, "turn %zu: ", reader->turn_number);
    va_list arguments;
    va_start(arguments, format);
    const int wanted = vsnprintf(text + used, sizeof text - (size_t)used, format, arguments);
    va_end(arguments);
    const bool is_cut = wanted < 0 || (size_t)(used + wanted) >= sizeof text;
    stk_str shown = stk_str_of(text);
    /* The cut may have gone through a character. */
    if (is_cut && shown.size_bytes) shown = stk_utf8_cut(shown, shown.size_bytes - 1);
    return stk_fail(reader->err, STK_ERR_RECORD, "%.*s", (int)shown.size_bytes, shown.data);
}

stk_status stk_record_reader_nomem(stk_record_reader *reader)
{
    return stk_fail(reader->err, STK_ERR_NOMEM, "out of memory for a record");
}

void *stk_record_reader_take(stk_record_reader *reader, size_t size_bytes)
{
    return stk_pool_take(&reader->sample->pool, size_bytes);
}

void *stk_record_reader_grow(stk_record_reader *reader, void **items, size_t count, size_t *capacity, size_t each_bytes)
{
    if (count == *capacity) {
        const size_t new_capacity = count ? count * 2 : 4;
        void *const moved = stk_record_reader_take(reader, new_capacity * each_bytes);
        if (!moved) return NULL;
        if (count) memcpy(moved, *items, count * each_bytes);
        *items = moved;
        *capacity = new_capacity;
    }
    return (char *)*items + count * each_bytes;
}

json_t *stk_json_get(const json_t *object, const char *key)
{
    json_t *const value = json_object_get(object, key);
    return json_is_null(value) ? NULL : value;
}

stk_str stk_json_text(const json_t *string)
{
    return (stk_str){json_string_value(string), json_string_length(string)};
}

static stk_reason reason_of(const json_error_t *json)
{
    switch (json_error_code(json)) {
    case json_error_duplicate_key: return STK_REASON_DUPLICATE_KEY;
    case json_error_stack_overflow: return STK_REASON_RECORD_LIMIT;
    case json_error_invalid_utf8: return STK_REASON_UTF8;
    default: return STK_REASON_JSON;
    }
}

stk_status stk_record_reader_json(stk_record_reader *reader, json_t **out, stk_str text, const char *what)
{
    *out = NULL;
    uint64_t lone_surrogates;
    STK_TRY(stk_json_check(text, reader->rules->limits->json_depth, &lone_surrogates, reader->reason,
                           reader->err));
    if (lone_surrogates) {
        char *const copy = stk_record_reader_take(reader, text.size_bytes);
        if (!copy) return stk_record_reader_nomem(reader);
        memcpy(copy, text.data, text.size_bytes);
        stk_json_mend(copy, text.size_bytes);
        text.data = copy;
        reader->sample->notes |= STK_NOTE_LONE_SURROGATE;
    }
    json_error_t json;
    json_t *const parsed = json_loadb(text.data, text.size_bytes, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &json);
    if (parsed) return stk_record_reader_own(reader, out, parsed);
    if (json_error_code(&json) == json_error_out_of_memory) return stk_record_reader_nomem(reader);
    const bool too_large = json_error_code(&json) == json_error_numeric_overflow;
    return stk_record_reader_fail(reader, reason_of(&json), "byte %d of the %s: %.*s%s", json.position, what,
                                  STK_STR_ARGS(stk_utf8_cut(stk_str_of(json.text), 130)),
                                  too_large ? ": write the number as a text" : "");
}

stk_status stk_record_reader_own(stk_record_reader *reader, json_t **out, json_t *made)
{
    stk_sample *const sample = reader->sample;
    if (!sample->root) sample->root = json_array();
    *out = made;
    if (made && json_array_append_new(sample->root, made) == 0) return STK_OK;
    *out = NULL;
    return stk_record_reader_nomem(reader);
}
