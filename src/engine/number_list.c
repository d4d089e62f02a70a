/* number_list.c - "0-3,8" to numbers and back. */
#include "engine/number_list.h"

#include <stdlib.h>

enum { NUMBERS_MAX = 1 << 16 }; /* with those that stand there twice */

/* A decimal number below limit. */
static bool take_number(stk_str *rest, uint32_t limit, uint32_t *number)
{
    uint64_t value = 0;
    size_t digits = 0;
    while (digits < rest->size_bytes && rest->data[digits] >= '0' && rest->data[digits] <= '9' && value < limit)
        value = 10 * value + (uint64_t)(rest->data[digits++] - '0');
    *rest = (stk_str){rest->data + digits, rest->size_bytes - digits};
    *number = (uint32_t)value;
    return digits > 0 && value < limit;
}

static bool take_char(stk_str *rest, char wanted)
{
    if (!rest->size_bytes || rest->data[0] != wanted) return false;
    *rest = (stk_str){rest->data + 1, rest->size_bytes - 1};
    return true;
}

/* The numbers of a text, into an array with room for NUMBERS_MAX; 0: it is no list. */
static uint32_t read_all(uint32_t *number, stk_str rest, uint32_t limit)
{
    uint32_t count = 0;
    do {
        uint32_t first, last;
        if (!take_number(&rest, limit, &first)) return 0;
        last = first;
        if (take_char(&rest, '-') && !take_number(&rest, limit, &last)) return 0;
        if (first > last || last - first >= NUMBERS_MAX - count) return 0;
        while (first <= last) number[count++] = first++;
    } while (take_char(&rest, ','));
    return rest.size_bytes ? 0 : count;
}

stk_status stk_numbers_read(uint32_t **out, uint32_t *count, stk_str text, uint32_t limit, const char *what, stk_error *err)
{
    *out = stk_alloc_array(STK_TAG_OPTIONS, NUMBERS_MAX, sizeof **out);
    if (!*out) return stk_fail(err, STK_ERR_NOMEM, "out of memory: %s", what);
    *count = stk_numbers_sort(*out, read_all(*out, text, limit));
    if (*count) return STK_OK;
    stk_free(*out);
    *out = NULL;
    return stk_fail(err, STK_ERR_OPTION, "%s: \"%.*s\" is no list of numbers below %u, such as 0-3,8", what,
                    (int)(text.size_bytes < 60 ? text.size_bytes : 60), text.data, limit);
}

stk_status stk_numbers_write(stk_buffer *text, const uint32_t *number, uint32_t count, stk_error *err)
{
    for (uint32_t i = 0, last; i < count; i = last + 1) {
        last = i;
        while (last + 1 < count && number[last + 1] == number[last] + 1) last++;
        STK_TRY(stk_buffer_printf(text, err, "%s%u", i ? "," : "", number[i]));
        if (last > i) STK_TRY(stk_buffer_printf(text, err, "-%u", number[last]));
    }
    return STK_OK;
}

static int compare(const void *a, const void *b)
{
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

uint32_t stk_numbers_sort(uint32_t *number, uint32_t count)
{
    uint32_t left = 0;
    if (count) qsort(number, count, sizeof *number, compare);
    for (uint32_t i = 0; i < count; i++)
        if (!left || number[i] != number[left - 1]) number[left++] = number[i];
    return left;
}
