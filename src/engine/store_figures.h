/* store_figures.h - what a source counts of stores, as the metrics show it. */
#ifndef STK_ENGINE_STORE_FIGURES_H
#define STK_ENGINE_STORE_FIGURES_H

#include <stoker/metrics.h>

#include "source/source.h"

/* What came between two looks; before zeroed: all.  in_flight and concurrency are those of now; no price. */
void stk_store_figures_between(stk_store_metrics *out, const stk_source_metrics *before, const stk_source_metrics *now);

#endif
