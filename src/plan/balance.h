/* balance.h - the rows of one step to ranks and micro-batches, so that all ranks have the same to do.
 *
 * A pure function of the rows' costs in their order, the number of ranks and of micro-batches: integers, ties by the lower number.
 * Longest first, then exchanges of two rows while they help (style.md 16: no lock, no clock, no float). */
#ifndef STK_PLAN_BALANCE_H
#define STK_PLAN_BALANCE_H

#include "base/memory.h"
#include "schema/rules.h"

/* What a row costs, in units of the cost model (cost.h). */
typedef struct stk_row_cost {
    uint64_t model, vision;
    bool has_media;
} stk_row_cost;

typedef struct stk_deal_rules {
    stk_balance balance;
    bool aligned;          /* modality: aligned */
    uint32_t world;        /* ranks, > 0 */
    uint32_t rank_rows;    /* of each rank; rank_rows x world >= rows */
    uint32_t micro_rows;   /* of each micro-batch of a rank, but that its last may have fewer */
} stk_deal_rules;

/* Where a row goes. */
typedef struct stk_deal_place {
    uint32_t rank, micro;
} stk_deal_place;

/* Scratch of one caller, kept from step to step; grows to the largest. */
typedef struct stk_dealer stk_dealer;
stk_status stk_dealer_create(stk_dealer **out, stk_error *err) STK_MUST_USE;
void stk_dealer_destroy(stk_dealer *dealer); /* NULL is fine */

/* place[i] for each of row_count rows.  balance none: row i goes to rank i % world, in its order.  With aligned, the micro-batches of
 * one number have media on all ranks or on none, as far as there are rows with media enough: fewer of them than ranks go to micro-batch
 * 0, one a rank. */
stk_status stk_deal(stk_dealer *dealer, const stk_deal_rules *rules, const stk_row_cost *row, uint32_t row_count,
                    stk_deal_place *place, stk_error *err) STK_MUST_USE;

#endif
