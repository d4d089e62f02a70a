/* bytes.h - borrowed bytes and text: a pointer, a length, no owner. */
#ifndef STK_BASE_BYTES_H
#define STK_BASE_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef struct stk_bytes {
    const uint8_t *data;
    size_t size_bytes;
} stk_bytes;

/* UTF-8 text, not terminated; may hold NUL. */
typedef struct stk_str {
    const char *data;
    size_t size_bytes;
} stk_str;

/* For printf("%.*s"). */
#define STK_STR_ARGS(s) (int)((s).size_bytes > 200 ? 200 : (s).size_bytes), (s).data

static inline stk_str stk_str_of(const char *text)
{
    return (stk_str){text, strlen(text)};
}

static inline bool stk_str_equal(stk_str a, stk_str b)
{
    return a.size_bytes == b.size_bytes && (a.size_bytes == 0 || memcmp(a.data, b.data, a.size_bytes) == 0);
}

static inline bool stk_str_is(stk_str a, const char *text)
{
    return stk_str_equal(a, stk_str_of(text));
}

/* For products of two 64-bit numbers. */
__extension__ typedef unsigned __int128 stk_u128;

#endif
