/* forecast_steps.h - the largest micro-batch and sample over the steps of a run: by threads, and kept in a file. */
#ifndef STK_ENGINE_FORECAST_STEPS_H
#define STK_ENGINE_FORECAST_STEPS_H

#include "engine/engine_core.h"

/* Over steps first_step .. end_step - 1 of some ranks, from recipes alone.  watch may be NULL.  Failure: STK_ERR_INTERRUPTED, or that of the
 * lowest step. */
stk_status stk_forecast_steps(stk_forecast *forecast, const stk_run *run, stk_engine_ranks ranks, uint64_t first_step, uint64_t end_step,
                              uint32_t threads, stk_watch *watch, stk_error *err) STK_MUST_USE;

/* Over the whole run and all its ranks, so that every rank of it needs the same: read from a file where a start has gone through the steps
 * before, else worked out and saved there.  file NULL: neither.  A file that is lost, damaged, of another run, or cannot be written costs
 * time and nothing else: it is keyed by the fingerprint and by what else micro-batches and their memory follow from. */
stk_status stk_forecast_run(stk_forecast *forecast, const stk_run *run, uint32_t world, const char *file, uint32_t threads,
                            stk_watch *watch, stk_error *err) STK_MUST_USE;

#endif
