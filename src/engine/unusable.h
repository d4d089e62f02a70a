/* unusable.h - when so much of a data set is unusable that it is the wrong data, or in the wrong place. */
#ifndef STK_ENGINE_UNUSABLE_H
#define STK_ENGINE_UNUSABLE_H

#include "engine/run.h"

/* STK_ERR_SPENT when more than share of the records of a set are unusable, and more than 10 or all: err says
 * in one sentence how many, what most of them lack, what to look at, and names the first.  Over-long records
 * do not count (they have an option of their own), nor do those that a list leaves out. */
stk_status stk_unusable_check(const stk_run *run, const stk_run_set *set, double share,
                              stk_error *err) STK_MUST_USE;

#endif
