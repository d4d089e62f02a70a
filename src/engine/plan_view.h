/* plan_view.h - an open plan between its files.  Only for plan_api.c, plan_sum.c and plan_walk.c. */
#ifndef STK_ENGINE_PLAN_VIEW_H
#define STK_ENGINE_PLAN_VIEW_H

#include <stoker/plan.h>

#include "engine/run.h"

/* One thread's own: what it needs to go through steps, and its sums. */
typedef struct stk_plan_walker {
    stk_plan_scratch *scratch;
    stk_pool pool;
    stk_plan_set_counts *set; /* sums of the samples that it has seen, of each data set */
} stk_plan_walker;

/* deinit of all zero is fine. */
stk_status stk_plan_walker_init(stk_plan_walker *walker, const stk_run *run, stk_error *err) STK_MUST_USE;
void stk_plan_walker_deinit(stk_plan_walker *walker);

/* Looks at each recipe of a step: by rank, then micro-batch. */
typedef struct stk_plan_visitor {
    stk_status (*recipe)(void *context, const stk_recipe *recipe, stk_error *err);
    void *context;
} stk_plan_visitor;

/* Sum up one step.  visitor may be NULL.  Any thread, with a walker of its own. */
stk_status stk_plan_walk_step(const stk_run *run, stk_plan_walker *walker, uint64_t step, uint32_t world,
                              const stk_plan_visitor *visitor, stk_plan_step *sums, stk_error *err) STK_MUST_USE;

/* A sample of the loaded step. */
typedef struct stk_plan_placed {
    stk_recipe_sample sample;
    uint32_t rank, micro, step_row;
    uint32_t visual_tokens;
} stk_plan_placed;

struct stk_plan_view {
    stk_run *run;
    uint32_t world, threads;
    stk_plan_set_counts *set; /* of the run */
    stk_plan_walker walker;
    stk_plan_placed *placed;  /* of the loaded step */
    size_t placed_count, placed_capacity;
    stk_sample sample;        /* for ids */
    stk_buffer record;
};

#endif
