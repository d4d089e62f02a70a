/* net_metrics.c - histograms of times, their classes a quarter of an octave wide. */
#include <math.h>

#include "source/net_metrics.h"

enum { CLASSES_PER_OCTAVE = 4 };
static const double first_ns = 125000.0; /* upper bound of class 0 */

static unsigned class_of(stk_ns time_ns)
{
    if (time_ns < (stk_ns)first_ns) return 0;
    const double k = floor(log2((double)time_ns / first_ns) * CLASSES_PER_OCTAVE) + 1.0;
    return k >= STK_TIME_CLASSES ? STK_TIME_CLASSES - 1 : (unsigned)k;
}

void stk_time_add(stk_time_histogram *histogram, stk_ns time_ns)
{
    if (time_ns < 0) time_ns = 0;
    histogram->count++;
    histogram->sum_ns += (uint64_t)time_ns;
    histogram->in_class[class_of(time_ns)]++;
}

void stk_time_merge(stk_time_histogram *into, const stk_time_histogram *from)
{
    into->count += from->count;
    into->sum_ns += from->sum_ns;
    for (int k = 0; k < STK_TIME_CLASSES; k++) into->in_class[k] += from->in_class[k];
}

stk_ns stk_time_quantile(const stk_time_histogram *histogram, double share)
{
    if (histogram->count == 0) return 0;
    uint64_t below = 0;
    const double wanted = share * (double)histogram->count;
    int k = 0;
    for (; k < STK_TIME_CLASSES - 1; k++) {
        below += histogram->in_class[k];
        if ((double)below >= wanted) break;
    }
    return (stk_ns)(first_ns * exp2((double)k / CLASSES_PER_OCTAVE));
}
