/* planner_core.h - the plan between its files.  Only for src/plan/. */
#ifndef STK_PLAN_PLANNER_CORE_H
#define STK_PLAN_PLANNER_CORE_H

#include "plan/planner.h"
#include "plan/table.h"

struct stk_plan {
    stk_plan_config config;
    stk_order *order;
    stk_table *table; /* packed; else NULL: a row is a draw */
    uint64_t row_count, step_count;
};

/* Rows of a step by the schedule, and the first row of it; step <= step_count. */
uint64_t stk_plan_batch(const stk_plan *plan, uint64_t step);
uint64_t stk_plan_first_row(const stk_plan *plan, uint64_t step);

/* The epoch of a row of the run, and the rows of it before; row <= row_count. */
void stk_plan_locate(const stk_plan *plan, uint64_t row, uint64_t *epoch, uint64_t *rows);

#endif
