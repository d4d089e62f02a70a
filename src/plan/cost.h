/* cost.h - what a row costs to train on: floating point operations of the model's two parts, from the checkpoint's sizes.
 *
 * Only their proportions matter: they decide which rows are dealt together (balance.h).  Integers. */
#ifndef STK_PLAN_COST_H
#define STK_PLAN_COST_H

#include "schema/model.h"
#include "plan/window.h"
#include "plan/balance.h"

/* Of samples [0, count), which form a row: text a * l^2 + b * l over the samples, vision c * p^2 + d * p over the images. */
stk_row_cost stk_row_cost_of(const stk_plan_config *config, const stk_window_sample *sample, uint32_t count);

#endif
