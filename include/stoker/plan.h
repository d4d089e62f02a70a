/* plan.h - what comes when, computed before anything is made. */
#ifndef STOKER_PLAN_H
#define STOKER_PLAN_H

#include <stoker/index.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Exact counts of a run. */
typedef struct stk_plan_counts {
    uint64_t steps, epoch_rows, samples, tokens, visual_tokens, supervised_tokens, images, filler_rows;
    uint64_t largest_micro_bytes; /* of the arena */
    char fingerprint[33];
    uint64_t not_selected; /* usable records that `where` and `first` leave out, of one epoch */
} stk_plan_counts;

/* Open the index of the options (building it where it may) and count.  world: ranks of the run. */
STK_API STK_MUST_USE stk_status stk_plan_count(stk_plan_counts *counts, const stk_options *options, uint32_t world,
                                               stk_error *err);

#ifdef __cplusplus
}
#endif
#endif
