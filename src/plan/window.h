/* window.h - the draws of one window, and the rows that they become: computed anew whenever they are needed, from facts alone.
 *
 * Packed: best-fit decreasing (pack.h) over the window's samples, and then the rows in the order of a keyed permutation, so that
 * long samples do not cluster (without shuffle: by their first draw).  Else each draw is a row. */
#ifndef STK_PLAN_WINDOW_H
#define STK_PLAN_WINDOW_H

#include "plan/order.h"
#include "plan/pack.h"

/* A sample of a window, with what its facts come to under the run's rules. */
typedef struct stk_window_sample {
    uint64_t record_index;
    uint64_t visual_tokens, patch_count;
    uint64_t patch_squares;    /* sum of p * p over its images of p patches */
    uint64_t max_px;           /* of its images: below the set's where overlong: shrink made it fit */
    uint32_t set_index;
    uint32_t token_count, supervised_count, media_count;
} stk_window_sample;

typedef struct stk_window {
    uint64_t epoch, number;     /* which it is; epoch UINT64_MAX: none yet */
    stk_window_sample *sample;  /* in row order, in a row by draw */
    uint32_t *row_start;        /* row_count + 1: the first sample of each row */
    uint32_t sample_count, row_count;

    /* Scratch of loading. */
    const stk_plan_config *config;
    stk_window_sample *drawn;   /* by draw */
    uint32_t *length, *row, *at;
    stk_packer *packer;         /* packed only */
    stk_order_cache *cache;
    uint64_t loads;
} stk_window;

stk_status stk_window_init(stk_window *window, const stk_plan_config *config, stk_error *err) STK_MUST_USE;
void stk_window_deinit(stk_window *window); /* all zero is fine */

/* Windows of an epoch. */
uint64_t stk_window_count(const stk_plan_config *config, const stk_order *order, uint64_t epoch);

/* Compute a window; nothing is done when it is there already.  number < stk_window_count. */
void stk_window_load(stk_window *window, const stk_order *order, uint64_t epoch, uint64_t number);

#endif
