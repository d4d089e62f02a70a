/* blend.h - which data set each draw of a run comes from, and the how-manieth of it the draw is.
 *
 * Each set has a rate; draws are shared out by a tree of two-way splits, each the most even sequence that there is
 * (Bresenham's line): after t draws a side has had rint(t * its share).  So any stretch of draws holds of two sets their share
 * within one sample, and so it does of more sets with rates of few digits; others are within three (tests/plan/test_blend.c).  Any draw is
 * found in O(log sets) without a table: a pure function.
 * Integers only, so that no compiler changes a draw. */
#ifndef STK_PLAN_BLEND_H
#define STK_PLAN_BLEND_H

#include "base/memory.h"

typedef struct stk_blend stk_blend;

typedef struct stk_draw {
    uint32_t set_index;
    uint64_t number; /* of the set's draws, from 0 over the whole run */
} stk_draw;

/* rate: set_count numbers, each > 0, their sum below 2^62. */
stk_status stk_blend_create(stk_blend **out, const uint64_t *rate, uint32_t set_count, stk_error *err) STK_MUST_USE;
void stk_blend_destroy(stk_blend *blend); /* NULL is fine */

/* The draw at t < 2^62. */
stk_draw stk_blend_at(const stk_blend *blend, uint64_t t);

/* Draws of each set among the first t: count[set_count]. */
void stk_blend_count(const stk_blend *blend, uint64_t t, uint64_t *count);

#endif
