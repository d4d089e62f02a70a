/* usable.h - which records of a data set take part, and the k-th of them in O(log n) without a list.
 *
 * A bitmap with a running count a block: 10 million records take 1.4 MB. */
#ifndef STK_PLAN_USABLE_H
#define STK_PLAN_USABLE_H

#include "base/memory.h"

typedef struct stk_usable {
    uint64_t *word;         /* bit r: record r is usable */
    uint64_t *count_before; /* usable records before each block */
    uint64_t record_count, usable_count, block_count;
} stk_usable;

/* An empty set of record_count records.  deinit frees. */
stk_status stk_usable_init(stk_usable *usable, uint64_t record_count, stk_error *err) STK_MUST_USE;
void stk_usable_add(stk_usable *usable, uint64_t record_index); /* before count; records of one word by one thread */
void stk_usable_count(stk_usable *usable);                      /* after the last add */
void stk_usable_cut(stk_usable *usable, uint64_t most);         /* after count: keep the first `most` only */
static inline bool stk_usable_has(const stk_usable *usable, uint64_t record_index)
{
    return usable->word[record_index / 64] >> record_index % 64 & 1;
}
/* The k-th usable record, from 0; k < usable_count. */
uint64_t stk_usable_select(const stk_usable *usable, uint64_t k);
void stk_usable_deinit(stk_usable *usable);

#endif
