/* fuzz_where.c - hostile expressions: what is refused has a column, and what is taken means the same to a second reader that
 * walks the text itself.
 *
 * An input is a byte that sets the values, and the text. */
#include <stdlib.h>

#include "plan/where.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition)
{
    if (!condition) abort();
}

/* --- the second reader: of texts that were taken, so it checks nothing --- */

typedef struct reader {
    const char *at;
    const uint64_t *values;
} reader;

static void skip_blanks(reader *r)
{
    while (*r->at && strchr(" \t\r\n", *r->at)) r->at++;
}

static bool take(reader *r, const char *word)
{
    skip_blanks(r);
    const size_t length = strlen(word);
    if (strncmp(r->at, word, length) != 0) return false;
    const char last = word[length - 1], next = r->at[length];
    const bool is_word = last == '_' || (last >= 'a' && last <= 'z');
    if (is_word && (next == '_' || (next >= 'a' && next <= 'z') || (next >= 'A' && next <= 'Z') || (next >= '0' && next <= '9')))
        return false;
    r->at += length;
    return true;
}

static uint64_t value(reader *r)
{
    static const char *const names[] = {
#define TEXT(name, text) text,
        STK_WHERE_NAME_MAP(TEXT)
#undef TEXT
    };
    for (int i = 0; i < STK_WHERE_NUMBER; i++)
        if (take(r, names[i])) return r->values[i];
    char *end;
    const uint64_t number = strtoull(r->at, &end, 10);
    r->at = end;
    return number;
}

static bool any(reader *r);

static bool one(reader *r)
{
    if (take(r, "not")) return !one(r);
    if (take(r, "(")) {
        const bool inner = any(r);
        require(take(r, ")"));
        return inner;
    }
    const uint64_t left = value(r);
    /* The longer signs first. */
    if (take(r, "<=")) return left <= value(r);
    if (take(r, ">=")) return left >= value(r);
    if (take(r, "==")) return left == value(r);
    if (take(r, "!=")) return left != value(r);
    if (take(r, "<")) return left < value(r);
    require(take(r, ">"));
    return left > value(r);
}

static bool all(reader *r)
{
    bool result = one(r);
    while (take(r, "and")) result &= one(r);
    return result;
}

static bool any(reader *r)
{
    bool result = all(r);
    while (take(r, "or")) result |= all(r);
    return result;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0 || size > 8192) return 0;
    char *const text = malloc(size);
    require(text != NULL);
    memcpy(text, data + 1, size - 1);
    text[size - 1] = 0;
    uint64_t values[STK_WHERE_NUMBER];
    for (int i = 0; i < STK_WHERE_NUMBER; i++) values[i] = (uint64_t)(data[0] >> i % 8 & 3) * (data[0] & 16 ? 1000 : 1);

    static stk_where where;
    stk_error err;
    if (stk_where_parse(&where, text, &err) == STK_OK) {
        require(where.count > 0 && where.count <= STK_WHERE_OPS);
        reader r = {text, values};
        require(any(&r) == stk_where_holds(&where, values));
        skip_blanks(&r);
        require(*r.at == 0);
    } else {
        require(err.status == STK_ERR_OPTION && err.message[0]);
    }
    free(text);
    return 0;
}
