/* planner.h - the random-access plan: recipe(step, rank, world, micro), a pure function of facts (architecture 1).
 *
 *     draws (order.h) ─► windows, packed each by itself (window.h) ─► rows of the run ─► steps ─► dealt to ranks (balance.h)
 *
 * Rows are numbered over the run: those of epoch 0, then of epoch 1, ...; step s is `batch` rows of them, whatever the ranks.  In the
 * packed layout the rows of an epoch are known from a table of its windows (table.h); in the others a row is a draw.  What is
 * missing in a step is filler.
 *
 * Const and thread-safe after create; what a caller needs to make recipes is in its own scratch. */
#ifndef STK_PLAN_PLANNER_H
#define STK_PLAN_PLANNER_H

#include "plan/plan_config.h"
#include "schema/recipe.h"

typedef struct stk_plan stk_plan;

/* Tokens that a sample may have: max_tokens, and what a row has room for beside a filler image. */
uint32_t stk_plan_sample_tokens(const stk_plan_config *config);

/* Finds what takes part, and how many rows each epoch has.
 *
 * Failure: STK_ERR_INTERRUPTED (the watch's owner stopped it), STK_ERR_OPTION (no usable record; a combination that cannot be), with overlong_is_error STK_ERR_RECORD naming the
 * first over-long record's file and line, of those that where and first let pass. */
stk_status stk_plan_create(stk_plan **out, const stk_plan_config *config, stk_error *err) STK_MUST_USE;
void stk_plan_destroy(stk_plan *plan); /* NULL is fine */

/* Steps of the run; rows of the run, and of one epoch, that are not filler. */
uint64_t stk_plan_step_count(const stk_plan *plan);
uint64_t stk_plan_row_count(const stk_plan *plan);
uint64_t stk_plan_epoch_rows(const stk_plan *plan, uint64_t epoch);
/* Usable records that where and first leave out. */
uint64_t stk_plan_not_selected(const stk_plan *plan);

/* Rows that a step has over all ranks, filler left out of the last one's. */
uint64_t stk_plan_step_rows(const stk_plan *plan, uint64_t step);
/* Rows of one rank in a step, filler included; rows of a micro-batch (the last of a step may have fewer), and micro-batches of a rank. */
uint32_t stk_plan_rank_rows(const stk_plan *plan, uint64_t step, uint32_t world);
uint32_t stk_plan_micro_rows(const stk_plan *plan, uint64_t step, uint32_t world);
uint32_t stk_plan_micro_count(const stk_plan *plan, uint64_t step, uint32_t world);
/* Tokens of a row (flat: of the one joined row) at most, with so many rows in a micro-batch and each sample as long as it may be. */
uint64_t stk_plan_row_tokens_most(const stk_plan *plan, uint32_t rows);
/* Micro-batches of a rank before a step; step <= step_count.  And the step and micro of the at-th. */
uint64_t stk_plan_micros_before(const stk_plan *plan, uint64_t step, uint32_t world);
void stk_plan_micro_at(const stk_plan *plan, uint64_t at, uint32_t world, uint64_t *step, uint32_t *micro);
/* uneven: error refuses whatever needs filler: a world that does not divide a batch, a last step that is not full. */
stk_status stk_plan_check_world(const stk_plan *plan, uint32_t world, stk_error *err) STK_MUST_USE;

/* One caller's own: the window, the step and the dealing that it had last.  Kept, it makes recipes in rising order cheap; nothing that is in
 * it changes a recipe. */
typedef struct stk_plan_scratch stk_plan_scratch;
stk_status stk_plan_scratch_create(stk_plan_scratch **out, const stk_plan *plan, stk_error *err) STK_MUST_USE;
void stk_plan_scratch_destroy(stk_plan_scratch *scratch); /* NULL is fine */
/* Windows that it has computed: what a resume costs (invariant 11). */
uint64_t stk_plan_scratch_windows(const stk_plan_scratch *scratch);

/* Fill *recipe; its arrays are taken from pool.  step < step_count, rank < world, micro < micro_count; else
 * STK_ERR_USAGE. */
stk_status stk_plan_recipe(const stk_plan *plan, stk_plan_scratch *scratch, uint64_t step, uint32_t rank, uint32_t world,
                           uint32_t micro, stk_pool *pool, stk_recipe *recipe, stk_error *err) STK_MUST_USE;

/* With config.stream a row of a step is known by number alone, and its sample's facts are found when it is drawn:
 *
 *     stk_plan_draws ─► (the caller finds the facts of each) ─► stk_plan_recipe_of
 *
 * stk_plan_recipe and stk_plan_step_costs are then refused with STK_ERR_USAGE. */
typedef struct stk_plan_draw {
    uint32_t set_index;
    uint32_t step_row;     /* of the step */
    uint64_t record_index; /* in its data set */
} stk_plan_draw;

/* The draws of a micro-batch, a row each, in row order; *draw is taken from pool.  Rows behind them are filler.  Failure as
 * stk_plan_recipe. */
stk_status stk_plan_draws(const stk_plan *plan, stk_plan_scratch *scratch, uint64_t step, uint32_t rank, uint32_t world,
                          uint32_t micro, stk_pool *pool, stk_plan_draw **draw, uint32_t *count, stk_error *err) STK_MUST_USE;

/* The recipe of a micro-batch from its draws.  facts: record i is that of draw i; media indices of the recipe are of these facts.
 * A draw that cannot be used becomes a filler row in its place, which keeps set and record; reason[i] says why (STK_REASON_NONE: it
 * can).  step_loss_tokens is 0: not known.  Failure: STK_ERR_RECORD for an over-long one with overlong: error. */
stk_status stk_plan_recipe_of(const stk_plan *plan, uint64_t step, uint32_t rank, uint32_t world, uint32_t micro,
                              const stk_plan_draw *draw, uint32_t count, const stk_set_facts *facts, stk_pool *pool,
                              stk_recipe *recipe, stk_reason *reason, stk_error *err) STK_MUST_USE;

/* What ranks have to do in a step, by the cost model: of the rank with the most, and in all.  balanced false: as dealt without balance. */
typedef struct stk_step_costs {
    uint64_t most_all, sum_all;       /* text and vision */
    uint64_t most_vision, sum_vision;
} stk_step_costs;
stk_status stk_plan_step_costs(const stk_plan *plan, stk_plan_scratch *scratch, uint64_t step, uint32_t world, bool balanced,
                               stk_step_costs *costs, stk_error *err) STK_MUST_USE;

/* Position of a step: epoch and rows of it consumed before the step.  step <= step_count. */
void stk_plan_position(const stk_plan *plan, uint64_t step, uint64_t *epoch, uint64_t *rows);
/* The step at a position; STK_ERR_STATE when no step starts there. */
stk_status stk_plan_step_at(const stk_plan *plan, uint64_t epoch, uint64_t rows, uint64_t *step,
                            stk_error *err) STK_MUST_USE;
/* The first step that starts there or behind, any position allowed: step_count behind the run's end. */
uint64_t stk_plan_step_from(const stk_plan *plan, uint64_t epoch, uint64_t rows);

#endif
