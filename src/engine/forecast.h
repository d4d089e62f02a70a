/* forecast.h - what one micro-batch needs of the memory.
 *
 * Not here: all steps of a run (forecast_steps.h). */
#ifndef STK_ENGINE_FORECAST_H
#define STK_ENGINE_FORECAST_H

#include "engine/engine_core.h"

enum { STK_WORKER_BYTES = 7 << 20 }; /* scratch that a thread keeps: tables and rows of images, a cache of pieces of text */

/* What one recipe needs, into the largest so far.  media: what its media indices are of; NULL: those of the data sets. */
void stk_forecast_add(stk_forecast *forecast, const stk_run *run, const stk_recipe *recipe, const stk_media_facts *media,
                      const stk_slot_layout *layout);

/* With index: stream: of a micro-batch of so many rows the most that the options' limits and the sizes of the records allow. */
stk_status stk_forecast_limits(stk_forecast *forecast, const stk_run *run, uint32_t rows, stk_error *err) STK_MUST_USE;

#endif
