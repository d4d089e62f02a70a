/* order.h - which records take part, and which of them each draw of the run is.
 *
 * A draw is one sample.  Sets are blended by their rates (blend.h); inside a set the k-th draw of the run is
 * place k % n of pass k / n, and each pass is a keyed permutation of the set's n records (its order in the
 * files without shuffle).  Without shuffle, weights and fractions of epochs the sets follow each other, as
 * their files stand.  An epoch is a stretch of draws: all records once, each set as often as its `epochs`
 * says, or as many draws as there are records, shared out by weight.
 *
 * Const after create; any thread. */
#ifndef STK_PLAN_ORDER_H
#define STK_PLAN_ORDER_H

#include "base/permutation.h"
#include "plan/plan_config.h"

typedef struct stk_order stk_order;

/* Find what takes part, in parallel over `threads`, and the rates.  Failure as stk_plan_create. */
stk_status stk_order_create(stk_order **out, const stk_plan_config *config, stk_error *err) STK_MUST_USE;
void stk_order_destroy(stk_order *order); /* NULL is fine */

/* Records of a set that take part; usable ones that where and first leave out, of all sets. */
uint64_t stk_order_set_records(const stk_order *order, uint32_t set_index);
uint64_t stk_order_not_selected(const stk_order *order);

/* The first draw of an epoch; that of the next is its end.  Below 2^62 for epochs that a run may have. */
uint64_t stk_order_epoch_begin(const stk_order *order, uint64_t epoch);
/* The epoch that a draw lies in. */
uint64_t stk_order_epoch_of(const stk_order *order, uint64_t draw);

/* One caller's memory of the permutations that it used last: one a set. */
typedef struct stk_order_cache {
    uint64_t pass; /* of the set; UINT64_MAX: none yet */
    stk_permutation permutation;
} stk_order_cache;

/* The record of a draw.  cache: set_count of them, pass UINT64_MAX at first. */
void stk_order_at(const stk_order *order, stk_order_cache *cache, uint64_t draw, uint32_t *set_index,
                  uint64_t *record_index);

#endif
