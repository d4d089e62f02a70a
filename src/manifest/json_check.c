/* json_check.c - UTF-8, depth and escapes in one pass.
 *
 * The JSON library's own depth limit is a constant, it refuses a record with half a surrogate pair as a
 * whole, and its word for a NUL byte or a byte-order mark does not help anybody: so these are looked at
 * before it. */
#include "manifest/json_check.h"

#include <ctype.h>

size_t stk_utf8_size(const uint8_t *text, size_t size_bytes)
{
    if (size_bytes == 0) return 0;
    const uint8_t first = text[0];
    if (first < 0x80) return 1;
    const size_t size = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
    if (first < 0xC2 || first > 0xF4 || size > size_bytes) return 0;
    /* The second byte excludes overlong forms, surrogates, and what lies beyond U+10FFFF. */
    const uint8_t low = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
    const uint8_t high = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
    if (text[1] < low || text[1] > high) return 0;
    for (size_t i = 2; i < size; i++)
        if ((text[i] & 0xC0) != 0x80) return 0;
    return size;
}

stk_str stk_utf8_cut(stk_str text, size_t max_bytes)
{
    if (text.size_bytes <= max_bytes) return text;
    while (max_bytes && ((uint8_t)text.data[max_bytes] & 0xC0) == 0x80) max_bytes--;
    return (stk_str){text.data, max_bytes};
}

/* The unit of "\uXXXX" at text; -1 if there is none. */
static int32_t unit_at(const char *text, size_t size_bytes)
{
    if (size_bytes < 6 || text[0] != '\\' || text[1] != 'u') return -1;
    int32_t unit = 0;
    for (size_t i = 2; i < 6; i++) {
        const unsigned char c = (unsigned char)text[i];
        if (!isxdigit(c)) return -1;
        unit = unit * 16 + (isdigit(c) ? c - '0' : tolower(c) - 'a' + 10);
    }
    return unit;
}

/* Bytes of the escape at text, which starts with a backslash; *lone: it is half a surrogate pair. */
static size_t escape_size(const char *text, size_t size_bytes, bool *lone)
{
    *lone = false;
    const int32_t unit = unit_at(text, size_bytes);
    if (unit < 0) return size_bytes < 2 ? 1 : 2;
    if (unit < 0xD800 || unit > 0xDFFF) return 6;
    const int32_t next = unit < 0xDC00 ? unit_at(text + 6, size_bytes - 6) : -1;
    *lone = !(next >= 0xDC00 && next <= 0xDFFF);
    return *lone ? 6 : 12;
}

void stk_json_mend(char *text, size_t size_bytes)
{
    for (size_t i = 0; i < size_bytes;) {
        const char *const found = memchr(text + i, '\\', size_bytes - i);
        if (!found) return;
        i = (size_t)(found - text);
        bool lone;
        const size_t size = escape_size(text + i, size_bytes - i, &lone);
        if (lone) memcpy(text + i + 2, "fffd", 4);
        i += size;
    }
}

static stk_status fail(stk_reason *reason, stk_reason why, stk_error *err, size_t at, const char *what)
{
    *reason = why;
    return stk_fail(err, STK_ERR_RECORD, "byte %zu of the record: %s", at, what);
}

stk_status stk_json_check(stk_str text, uint32_t max_depth, uint64_t *lone_surrogates, stk_reason *reason,
                          stk_error *err)
{
    *lone_surrogates = 0;
    const uint8_t *const bytes = (const uint8_t *)text.data;
    const size_t size_bytes = text.size_bytes;
    if (size_bytes >= 3 && memcmp(bytes, "\xEF\xBB\xBF", 3) == 0)
        return fail(reason, STK_REASON_JSON, err, 0,
                    "a byte-order mark inside the file (files joined?): take it out");

    uint64_t depth = 0;
    bool in_string = false;
    for (size_t i = 0; i < size_bytes;) {
        const uint8_t byte = bytes[i];
        size_t size = 1;
        if (byte >= 0x80) {
            size = stk_utf8_size(bytes + i, size_bytes - i);
            if (!size) return fail(reason, STK_REASON_UTF8, err, i, "not valid UTF-8");
        } else if (byte == '\\') {
            bool lone;
            size = escape_size(text.data + i, size_bytes - i, &lone);
            *lone_surrogates += lone;
            /* Only an ASCII character is swallowed with its backslash: others are still to be checked. */
            if (size == 2 && (bytes[i + 1] >= 0x80 || bytes[i + 1] == 0)) size = 1;
        } else if (byte == '"') {
            in_string = !in_string;
        } else if (byte == 0) {
            return fail(reason, STK_REASON_JSON, err, i, "a NUL byte (a hole in the file, or UTF-16?)");
        } else if (!in_string && (byte == '{' || byte == '[')) {
            if (++depth > max_depth)
                return fail(reason, STK_REASON_RECORD_LIMIT, err, i, "nested deeper than limits.json_depth");
        } else if (!in_string && (byte == '}' || byte == ']') && depth) {
            depth--;
        }
        i += size;
    }
    return STK_OK;
}
