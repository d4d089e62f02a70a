/* fetch_bench.h - what an object store gives from here: objects and bytes a second, and latency, at rising concurrency. */
#ifndef STOKER_FETCH_BENCH_H
#define STOKER_FETCH_BENCH_H

#include <stoker/metrics.h>
#include <stoker/options.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { STK_FETCH_LEVELS = 16 };

/* What one concurrency gave. */
typedef struct stk_fetch_level {
    uint32_t in_flight;         /* requests kept under way */
    uint64_t objects, bytes;    /* that came */
    uint64_t failed;            /* objects that did not; they count in no figure */
    stk_ns wall_ns;
    double objects_per_s, bytes_per_s;
    double cpu_ns_per_object;   /* of the whole process */
    stk_latency first_byte, whole;
    uint64_t requests, retries, throttles, connections; /* the last: opened */
} stk_fetch_level;

typedef struct stk_fetch_bench {
    uint64_t objects, object_bytes;       /* that were taken from the list or the manifests; 0 bytes: not known before */
    uint64_t piece_bytes;                 /* of a larger object only so much is asked for */
    uint32_t level_count, best;           /* best: the least that gives within 5 % of the most objects a second */
    stk_fetch_level level[STK_FETCH_LEVELS];
    char failure[256];                    /* words of the first object that failed; "": none */
} stk_fetch_bench;

/* Called after each level, and about five times a second with what the one under way has so far (done false).  False stops:
 * STK_ERR_INTERRUPTED. */
typedef struct stk_fetch_progress {
    bool (*report)(void *context, const stk_fetch_level *level, bool done);
    void *context;
} stk_fetch_progress;

/* Fetch objects with 8, 16, 32, ... up to `most` (at most 4096) requests under way, each for level_ns, until more gives no
 * more.  address: s3:// objects or prefixes, which are listed, and http(s):// objects; count 0: the media of the manifests
 * that options name.  Nothing is kept: no cache, no index but of lines.
 *
 * Failure: STK_ERR_OPTION, STK_ERR_MANIFEST, STK_ERR_NETWORK, STK_ERR_MEDIA_MISSING (there is no object), ... */
STK_API STK_MUST_USE stk_status stk_fetch_bench_run(stk_fetch_bench *bench, const stk_options *options, const char *const *address,
                                                    size_t count, uint32_t most, stk_ns level_ns,
                                                    const stk_fetch_progress *progress, stk_error *err);

#ifdef __cplusplus
}
#endif
#endif
