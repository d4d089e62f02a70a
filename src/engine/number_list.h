/* number_list.h - lists of small numbers as people write them, "0-3,8": CPUs, ranks of a machine. */
#ifndef STK_ENGINE_NUMBER_LIST_H
#define STK_ENGINE_NUMBER_LIST_H

#include "base/memory.h"

/* The numbers of a text, rising, each once; *out is the caller's, to be freed by stk_free.  STK_ERR_OPTION, with `what` in front of the
 * words, for what is no list of numbers below limit. */
stk_status stk_numbers_read(uint32_t **out, uint32_t *count, stk_str text, uint32_t limit, const char *what, stk_error *err) STK_MUST_USE;

/* Append the text of rising ones. */
stk_status stk_numbers_write(stk_buffer *text, const uint32_t *number, uint32_t count, stk_error *err) STK_MUST_USE;

/* Make them rise, each once; how many are left. */
uint32_t stk_numbers_sort(uint32_t *number, uint32_t count);

#endif
