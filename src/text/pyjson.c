/* pyjson.c - JSON as Python writes it.
 *
 * Separators ", " and ": ", keys in the order of the record, escapes only where JSON demands them, floats as
 * repr(). Not here: which strings are data (the sink knows). */
#include "text/pyjson.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static stk_status append(const stk_pyjson_sink *sink, const char *text, size_t size_bytes)
{
    return sink->append(sink->context, (stk_str){text, size_bytes});
}

/* The two-letter escape of a character, 0 if it has none. */
static char short_escape(unsigned char c)
{
    switch (c) {
    case '"': return '"';
    case '\\': return '\\';
    case '\n': return 'n';
    case '\r': return 'r';
    case '\t': return 't';
    case '\f': return 'f';
    case '\b': return 'b';
    default: return 0;
    }
}

static stk_status write_string(const stk_pyjson_sink *sink, stk_str text)
{
    STK_TRY(append(sink, "\"", 1));
    size_t done = 0;
    for (size_t i = 0; i < text.size_bytes; i++) {
        const unsigned char c = (unsigned char)text.data[i];
        if (c >= 0x20 && c != '"' && c != '\\') continue;
        if (i > done) STK_TRY(append(sink, text.data + done, i - done));
        done = i + 1;
        char escape[8];
        const char letter = short_escape(c);
        const int length = letter ? snprintf(escape, sizeof escape, "\\%c", letter)
                                  : snprintf(escape, sizeof escape, "\\u%04x", c);
        STK_TRY(append(sink, escape, (size_t)length));
    }
    if (text.size_bytes > done) STK_TRY(append(sink, text.data + done, text.size_bytes - done));
    return append(sink, "\"", 1);
}

/* Add one to a number of count digits; false if it carries out of the first. */
static bool next_up(char *digit, int count)
{
    for (int i = count; i-- > 0;) {
        if (digit[i] != '9') {
            digit[i]++;
            return true;
        }
        digit[i] = '0';
    }
    return false;
}

/* The fewest digits that read back as value (> 0): d.ddd times ten to the exponent.  Returns their number.
 *
 * The nearest number of so many digits is nearly always the one.  Just above a power of two the spacing below
 * is half of that above, so there the next one up may read back where the nearest does not (2^-44).  Only
 * digits are read and written, because the decimal point belongs to the process's locale. */
static int shortest_digits(char digit[24], int *exponent, double value)
{
    for (int count = 1;; count++) {
        char text[40];
        snprintf(text, sizeof text, "%.*e", count - 1, value);
        int have = 0;
        const char *c = text;
        for (; *c != 'e'; c++)
            if (*c >= '0' && *c <= '9') digit[have++] = *c;
        *exponent = atoi(c + 1);
        if (count == 17) return count;
        for (int up = 0; up < 2; up++) {
            snprintf(text, sizeof text, "%.*se%d", count, digit, *exponent - (count - 1));
            if (strtod(text, NULL) == value) return count;
            if (!next_up(digit, count)) break;
        }
    }
}

size_t stk_pyjson_float(char out[STK_PYJSON_FLOAT_BYTES], double value)
{
    size_t at = 0;
    if (signbit(value)) out[at++] = '-';
    value = fabs(value);
    if (value == 0) return at + (size_t)snprintf(out + at, STK_PYJSON_FLOAT_BYTES - at, "0.0");

    char digit[24];
    int exponent, count = shortest_digits(digit, &exponent, value);
    while (count > 1 && digit[count - 1] == '0') count--;

    if (exponent < -4 || exponent >= 16) {
        out[at++] = digit[0];
        if (count > 1) out[at++] = '.';
        for (int i = 1; i < count; i++) out[at++] = digit[i];
        return at + (size_t)snprintf(out + at, STK_PYJSON_FLOAT_BYTES - at, "e%c%02d",
                                     exponent < 0 ? '-' : '+', exponent < 0 ? -exponent : exponent);
    }
    if (exponent < 0) {
        out[at++] = '0';
        out[at++] = '.';
        for (int i = -1; i > exponent; i--) out[at++] = '0';
        for (int i = 0; i < count; i++) out[at++] = digit[i];
        return at;
    }
    for (int i = 0; i <= exponent || i < count || i == exponent + 1; i++) {
        if (i == exponent + 1) out[at++] = '.';
        out[at++] = i < count ? digit[i] : '0';
    }
    return at;
}

static stk_status write_value(const stk_pyjson_sink *sink, const json_t *value, int depth);

static stk_status write_object(const stk_pyjson_sink *sink, const json_t *object, int depth)
{
    STK_TRY(append(sink, "{", 1));
    json_t *const walked = (json_t *)(uintptr_t)object; /* the iteration does not change it */
    for (void *i = json_object_iter(walked); i; i = json_object_iter_next(walked, i)) {
        if (i != json_object_iter(walked)) STK_TRY(append(sink, ", ", 2));
        STK_TRY(write_string(sink, stk_str_of(json_object_iter_key(i))));
        STK_TRY(append(sink, ": ", 2));
        STK_TRY(write_value(sink, json_object_iter_value(i), depth));
    }
    return append(sink, "}", 1);
}

static stk_status write_array(const stk_pyjson_sink *sink, const json_t *array, int depth)
{
    STK_TRY(append(sink, "[", 1));
    for (size_t i = 0; i < json_array_size(array); i++) {
        if (i) STK_TRY(append(sink, ", ", 2));
        STK_TRY(write_value(sink, json_array_get(array, i), depth));
    }
    return append(sink, "]", 1);
}

static stk_status write_value(const stk_pyjson_sink *sink, const json_t *value, int depth)
{
    if (depth > STK_PYJSON_DEPTH)
        return stk_fail(sink->err, STK_ERR_RECORD, "tools or arguments are nested more than %d deep",
                        STK_PYJSON_DEPTH);
    char number[STK_PYJSON_FLOAT_BYTES];
    switch (json_typeof(value)) {
    case JSON_OBJECT: return write_object(sink, value, depth + 1);
    case JSON_ARRAY: return write_array(sink, value, depth + 1);
    case JSON_STRING: {
        stk_str text = {json_string_value(value), json_string_length(value)};
        if (sink->value) STK_TRY(sink->value(sink->context, &text, text));
        return write_string(sink, text);
    }
    case JSON_INTEGER:
        return append(
            sink, number,
            (size_t)snprintf(number, sizeof number, "%" JSON_INTEGER_FORMAT, json_integer_value(value)));
    case JSON_REAL: return append(sink, number, stk_pyjson_float(number, json_real_value(value)));
    case JSON_TRUE: return append(sink, "true", 4);
    case JSON_FALSE: return append(sink, "false", 5);
    case JSON_NULL: return append(sink, "null", 4);
    }
    return STK_OK;
}

stk_status stk_pyjson_write(const stk_pyjson_sink *sink, const json_t *value)
{
    return write_value(sink, value, 0);
}
