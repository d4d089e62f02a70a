/* store_figures.c - counters of a source to the public metrics: differences, and percentiles of times. */
#include "engine/store_figures.h"

_Static_assert((int)STK_RETRY_COUNT <= (int)STK_STORE_RETRY_REASONS, "metrics have room for all");

const char *stk_retry_name(unsigned reason)
{
    static const char *const names[] = {
#define STK_RETRY_NAME(name, text) [name] = text,
        STK_RETRY_MAP(STK_RETRY_NAME)
#undef STK_RETRY_NAME
    };
    return reason < sizeof names / sizeof *names ? names[reason] : "";
}

static stk_latency latency_between(const stk_time_histogram *before, const stk_time_histogram *now)
{
    stk_time_histogram h = {.count = now->count - before->count, .sum_ns = now->sum_ns - before->sum_ns};
    for (int i = 0; i < STK_TIME_CLASSES; i++) h.in_class[i] = now->in_class[i] - before->in_class[i];
    if (!h.count) return (stk_latency){0};
    return (stk_latency){.count = h.count, .mean_ns = (stk_ns)(h.sum_ns / h.count), .p50_ns = stk_time_quantile(&h, 0.5),
                         .p90_ns = stk_time_quantile(&h, 0.9), .p99_ns = stk_time_quantile(&h, 0.99),
                         .p999_ns = stk_time_quantile(&h, 0.999)};
}

void stk_store_figures_between(stk_store_metrics *out, const stk_source_metrics *before, const stk_source_metrics *now)
{
    *out = (stk_store_metrics){.requests = now->requests - before->requests,
                               .bytes = now->bytes - before->bytes,
                               .connections = now->connections - before->connections,
                               .in_flight = now->in_flight,
                               .concurrency = now->concurrency,
                               .hedges_sent = now->hedges_sent - before->hedges_sent,
                               .hedges_won = now->hedges_won - before->hedges_won,
                               .credential_refreshes = now->credential_refreshes - before->credential_refreshes,
                               .cache_hits = now->cache_hits - before->cache_hits,
                               .cache_misses = now->cache_misses - before->cache_misses,
                               .cache_hit_bytes = now->cache_hit_bytes - before->cache_hit_bytes,
                               .cache_stored = now->cache_stored - before->cache_stored,
                               .cache_refused = now->cache_refused - before->cache_refused,
                               .cache_evicted = now->cache_evicted - before->cache_evicted,
                               .cache_broken = now->cache_broken - before->cache_broken,
                               .cache_used_bytes = now->cache_used_bytes,
                               .first_byte = latency_between(&before->first_byte, &now->first_byte),
                               .whole = latency_between(&before->whole, &now->whole)};
    for (int i = 0; i < STK_RETRY_COUNT; i++) {
        out->retries_by_reason[i] = now->retries[i] - before->retries[i];
        out->retries += out->retries_by_reason[i];
    }
    memcpy(out->cache_words, now->cache_words, sizeof out->cache_words);
    out->throttles = out->retries_by_reason[STK_RETRY_THROTTLE];
}
