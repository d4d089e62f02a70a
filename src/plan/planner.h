/* planner.h - the random-access plan: recipe(step, rank, world, micro), a pure function of facts (architecture 1).
 *
 * Order: epoch e is a keyed permutation of all usable records of all data sets, less those that `where` and `first` leave out
 * (or file order without shuffle).  The
 * rows of the run are the epochs one after the other; step s is rows s*batch .. of them, whatever the ranks.  Row i of a
 * step goes to rank i % world, so that filler spreads evenly; what is missing is filler.
 *
 * Thread-safe after create. */
#ifndef STK_PLAN_PLANNER_H
#define STK_PLAN_PLANNER_H

#include "base/memory.h"
#include "plan/where.h"
#include "schema/derive.h"
#include "schema/recipe.h"

typedef struct stk_plan_set {
    const char *name;
    stk_set_facts facts; /* mapped, outlives the plan */
    stk_pixel_rules pixels;
    bool overlong_is_error; /* overlong: error */
    const stk_where *where; /* which usable records take part; NULL: all.  Outlives the plan */
    uint64_t first;         /* and at most so many of them, in the order of the set; 0: all */
} stk_plan_set;

typedef struct stk_plan_config {
    const stk_plan_set *set; /* set_count, outlive the plan */
    uint32_t set_count;
    const stk_model *model;  /* outlives the plan */
    uint64_t batch;          /* rows per step, > 0 */
    uint64_t micro_batch;    /* rows per micro-batch; 0: all of a rank's */
    uint64_t steps;          /* 0: as many as epochs gives */
    uint64_t epochs;         /* > 0 */
    bool shuffle;
    uint64_t seed;
    stk_layout layout;
    uint32_t max_tokens;     /* of a sample; 0: the model's */
    uint32_t pad_to;         /* padded: length of each row; 0: the longest row */
    uint32_t pad_multiple;   /* > 0 */
    bool uneven_is_error;    /* uneven: error */
} stk_plan_config;

typedef struct stk_plan stk_plan;

/* Counts the usable records.  Failure: STK_ERR_OPTION (no usable record; a combination that cannot be), with
 * overlong_is_error STK_ERR_RECORD naming the first over-long record's file and line, of those that where and first let
 * pass. */
stk_status stk_plan_create(stk_plan **out, const stk_plan_config *config, stk_error *err) STK_MUST_USE;
void stk_plan_destroy(stk_plan *plan);

uint64_t stk_plan_step_count(const stk_plan *plan);
/* Usable records that take part: the rows of an epoch. */
uint64_t stk_plan_epoch_rows(const stk_plan *plan);
/* Usable records that where and first leave out. */
uint64_t stk_plan_not_selected(const stk_plan *plan);
/* Rows of one rank in each step, filler included. */
uint32_t stk_plan_rank_rows(const stk_plan *plan, uint32_t world);
/* Rows of a micro-batch (the last one of a step may have fewer), and micro-batches of one rank in each step. */
uint32_t stk_plan_micro_rows(const stk_plan *plan, uint32_t world);
uint32_t stk_plan_micro_count(const stk_plan *plan, uint32_t world);
/* uneven: error refuses whatever needs filler: a world that does not divide the batch, a last step that is not full. */
stk_status stk_plan_check_world(const stk_plan *plan, uint32_t world, stk_error *err) STK_MUST_USE;

/* Fill *recipe; its arrays are taken from pool.  step < step_count, rank < world, micro < micro_count; else
 * STK_ERR_USAGE. */
stk_status stk_plan_recipe(const stk_plan *plan, uint64_t step, uint32_t rank, uint32_t world, uint32_t micro,
                           stk_pool *pool, stk_recipe *recipe, stk_error *err) STK_MUST_USE;

/* Position of a step: epoch and rows of it consumed before the step.  step <= step_count. */
void stk_plan_position(const stk_plan *plan, uint64_t step, uint64_t *epoch, uint64_t *rows);
/* The step at a position; STK_ERR_STATE when no step starts there. */
stk_status stk_plan_step_at(const stk_plan *plan, uint64_t epoch, uint64_t rows, uint64_t *step,
                            stk_error *err) STK_MUST_USE;

#endif
