/* blend.h - which data set each draw of a run comes from, and the how-manieth of it the draw is.
 *
 * Each set has a rate; draws are shared out by a tree of two-way splits, each the most even sequence that there is
 * (Bresenham's line): after t draws a side has had rint(t * its share).  After as many draws as the rates sum up to, each
 * set has had exactly its rate.  Any draw is found without those before it, in as many steps as nodes lie above its set,
 * few for a set that is drawn often.  Integers only, so that no compiler changes a draw.
 *
 * How even it is, for any stretch of draws: of two sets, each has its share within one sample. Below the
 * root a side is off by less than one sample and its share of what the node above is off by. The tree
 * halves the sets by their rates, from the largest on, so a side of several sets has at most two thirds of
 * its node: it is off by less than three samples, and a set by less than four, however many there are. Of
 * 1,000 draws of mixes at random the most was 2.4, of mixes that were bred for it 2.75.
 *
 * Two-way splits cannot bring every set within one. Of three, let two share a node, b to c with b + c = 1,
 * that has n draws in one window and n + 1 in another. For both to have two counts only, n * b and
 * (n + 1) * b would have to lie between two neighbouring whole numbers, and so would n * c and (n + 1) * c;
 * these add up to n and n + 1, so that each would be a whole number itself.
 */
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
