/* net_metrics.h - filling the histograms of times of source.h; internal to source/.  No locks: one thread each. */
#ifndef STK_SOURCE_NET_METRICS_H
#define STK_SOURCE_NET_METRICS_H

#include "source/source.h"

void stk_time_add(stk_time_histogram *histogram, stk_ns time_ns);
void stk_time_merge(stk_time_histogram *into, const stk_time_histogram *from);

#endif
