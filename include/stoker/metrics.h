/* metrics.h - counters of an engine (docs/metrics.md). */
#ifndef STOKER_METRICS_H
#define STOKER_METRICS_H

#include <stoker/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct stk_stage_metrics {
    uint64_t count;  /* pieces of work */
    stk_ns busy_ns;  /* summed over threads */
    uint64_t bytes;  /* fetch: read; decode: compressed; transform, place: written; text: rendered */
} stk_stage_metrics;

/* Times of requests; percentiles are upper bounds of classes that grow by a fifth. */
typedef struct stk_latency {
    uint64_t count;
    stk_ns mean_ns, p50_ns, p90_ns, p99_ns, p999_ns;
} stk_latency;

enum { STK_STORE_RETRY_REASONS = 16 };

/* Of object stores, by the whole engine. */
typedef struct stk_store_metrics {
    uint64_t requests;     /* sent, retries and hedges included */
    uint64_t bytes;        /* of bodies that came */
    uint64_t connections;  /* opened */
    uint64_t in_flight, concurrency; /* requests now; how many may be */
    uint64_t retries, throttles;     /* throttles: of the retries, after the store said slow down */
    uint64_t retries_by_reason[STK_STORE_RETRY_REASONS]; /* index: stk_retry_name */
    uint64_t hedges_sent, hedges_won;
    uint64_t credential_refreshes;
    uint64_t cache_hits, cache_misses, cache_hit_bytes;
    uint64_t cache_stored, cache_refused; /* objects kept, and not kept for want of room */
    uint64_t cache_evicted, cache_broken; /* that gave way to others; found damaged, and fetched again */
    uint64_t cache_used_bytes;            /* now, by all who share it */
    char cache_words[256];                /* why nothing is kept; "": all is well */
    stk_latency first_byte, whole;   /* of requests that succeeded */
    double price, price_per_million_samples; /* estimates by `prices`; 0: none given, or nothing delivered */
} stk_store_metrics;

/* The numbers of them that reports give by their names, in their order: X(member). */
#define STK_STORE_COUNT_MAP(X)                                                                             \
    X(requests) X(bytes) X(connections) X(concurrency) X(retries) X(throttles) X(hedges_sent)              \
    X(hedges_won) X(credential_refreshes) X(cache_hits) X(cache_misses) X(cache_hit_bytes)                 \
    X(cache_stored) X(cache_refused) X(cache_evicted) X(cache_broken) X(cache_used_bytes)

typedef struct stk_metrics {
    stk_stage_metrics fetch, decode, transform, text, place;
    uint64_t micro_batches, samples, filler, tokens, supervised_tokens, images; /* delivered */
    stk_ns wait_ns;         /* in next, all readers */
    stk_ns first_batch_ns;  /* open until the first delivery; 0: none yet */
    uint64_t budget_bytes, held_bytes, peak_bytes;
    uint64_t budget_waits;  /* times that work waited for memory */
    uint64_t arena_bytes;
    uint64_t ready;         /* micro-batches that are ready now */
    uint64_t masked;
    uint64_t masked_by_reason[64]; /* index: the reason's number (stk_reason_name) */
    uint64_t media_opened;  /* files read for batches */
    uint64_t records_read, headers_read; /* index: stream: records, and headers of media, that were read for their facts */
    stk_store_metrics store;
} stk_metrics;

/* The words for a reason's number, as the index and the dead-letter file use them; never NULL. */
STK_API const char *stk_reason_name(unsigned reason);

/* The word for a reason of retries: "connect", "throttle", ...; "" behind the last. */
STK_API const char *stk_retry_name(unsigned reason);

/* The release ("0.1.0"), the level of the kernels that run here ("avx2"), and the versions of the libraries that decode
 * ("libjpeg-turbo ..."): constant strings. */
STK_API const char *stk_version(void);
STK_API const char *stk_cpu(void);
STK_API const char *stk_libraries(void);

#ifdef __cplusplus
}
#endif
#endif
