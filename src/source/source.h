/* source.h - bytes at an address, asynchronously: submit, completion by queue, cancel.
 *
 * Local files, data: URIs, and remote objects (s3://, http://, https://) behind the same calls.  The index uses it too.
 * A request is the caller's memory from submit until it comes back from stk_source_reap; nothing is allocated per
 * request.
 *
 *     submit ─► waiting, by priority ─► a thread reads ─► finished ─► reap
 *                        \________ cancel ________/
 *
 * What comes and goes (EIO, ESTALE, EMFILE, ...) is tried again a few times, with pauses; see local.c. */
#ifndef STK_SOURCE_SOURCE_H
#define STK_SOURCE_SOURCE_H

#include "base/memory.h"
#include "schema/facts.h"
#include "source/places.h"
#include "source/url.h"

typedef struct stk_source stk_source;

enum { STK_ETAG_BYTES = 72 }; /* of an ETag with its quotes and a NUL; a longer one counts as unknown */

typedef struct stk_request {
    /* The caller sets these before submit; all else is zero. */
    stk_str address;        /* absolute path, data: URI, s3://bucket/key (the key's bytes as they are, never percent-
                             * encoded) or http(s):// URL as written, or a file in a tar of one of these but data: (tar_member.h);
                             * the caller's until reaped */
    stk_str etag;           /* remote: of the object that is meant, with its quotes; empty: any */
    const stk_places *places; /* where it must lie, links and redirects followed; the caller's until reaped; NULL: anywhere */
    uint64_t offset;        /* of the first byte wanted */
    uint64_t size_bytes;    /* wanted; 0: only look; UINT64_MAX: to the end */
    uint64_t priority;      /* smaller is earlier: plan order; equal ones in the order of submit */
    uint8_t cache_value;    /* remote, with an etag: keep it in the cache, from 1 (first to give way) to 8; 0: do not */
    uint8_t *buffer;        /* room for capacity_bytes + STK_PAD_BYTES */
    size_t capacity_bytes;
    void *owner;            /* for the caller alone */

    /* The source sets these before it comes back. */
    stk_status status;      /* STK_OK; STK_ERR_MEDIA_MISSING, _LIMIT (did not fit: total_bytes says how large), _DENIED,
                             * _UNSUPPORTED, STK_ERR_MEDIA (no regular file, a broken data: URI, another object than etag
                             * names: changed), STK_ERR_SYSTEM (code: errno; EACCES means that this one may not be read),
                             * STK_ERR_NETWORK (retries are over, credentials, no such bucket: of the store, never of this
                             * object), STK_ERR_INTERRUPTED (cancelled) */
    size_t got_bytes;       /* less than wanted only at the end of the object */
    uint64_t total_bytes;   /* of the whole object */
    uint64_t mtime_ns;      /* of a file; 0: unknown */
    char etag_is[STK_ETAG_BYTES]; /* remote: of the object that came; "": unknown */
    bool changed;           /* the object is not the one that etag names */
    stk_ns busy_ns;         /* spent on it by a thread of the source */
    stk_error error;        /* file holds the address where it is a path or remote, without the query of a URL */

    /* The source's own. */
    struct stk_request *next, *previous;
    void *work;
    struct stk_request *leader, *followers; /* twins.h */
    int state, cancelled, step;
    bool alone; /* no range of others with it */
    struct stk_asked { /* of a file in a tar, while the tar is asked for its bytes: what the caller had set */
        stk_str address; /* data NULL: it is not such a request */
        uint64_t offset, size_bytes;
        uint64_t member_offset, member_bytes, stamp;
    } asked;
} stk_request;

/* Remote requests that a loop has under way at most. */
enum { STK_LOOP_REQUESTS = 1024 };

/* Plain values; the strings are the caller's until open returns.  All zero is what a run without a store needs. */
typedef struct stk_source_config {
    int file_threads;         /* of file input, own to this source (a slow disk does not starve workers), at least 1 */
    int io_threads;           /* loops of network input, at least 1; none runs before the first remote request */
    int requests;             /* remote ones under way at once, of all loops together, at least one each; 0: STK_LOOP_REQUESTS each */
    const char *endpoint;     /* of s3://, as http://127.0.0.1:9000; NULL: the environment, the profile, Amazon */
    const char *region, *profile_name; /* NULL: the environment and the shared files */
    const char *ca;           /* a PEM file of certificates to trust; NULL: the system's */
    stk_addressing addressing;
    bool requester_pays;      /* say that the owner of the credentials pays */
    bool hedge;               /* ask a second time for what is late */
    bool anonymous;           /* do not sign */
    bool apart;               /* requests for the same bytes at the same time are asked for each: for who measures a store */
    const char *cache_path;   /* NULL: no cache */
    uint64_t cache_bytes;
    const char *tar_lists;    /* folder for the lists of files of tars; NULL: beside each tar */
    bool (*stopped)(void *context); /* asked some times a second by whoever waits in a call: true ends it; NULL: never */
    void *stopped_context;
    const stk_places *endpoints; /* hosts that may have private addresses; the caller's until close; NULL: none */
    const stk_str *read;         /* read_count objects that the caller has read, s3:// addresses: when one of their buckets refuses
                                  * another, they are asked for, to tell whether it refuses all; the caller's until close */
    size_t read_count;
} stk_source_config;

/* What so many remote requests under way take, at most, beside the callers' buffers: connections, receive buffers, TLS, what is
 * known of hosts; and what the loops have in any case. */
size_t stk_source_bytes(int requests, int io_threads);

stk_status stk_source_open(stk_source **out, const stk_source_config *config, stk_error *err) STK_MUST_USE;

/* Cancels what is under way, waits for it, drops what was not reaped (its memory is its owner's again). */
void stk_source_close(stk_source **source);

/* Any thread.  Never waits for input. */
void stk_source_submit(stk_source *source, stk_request *request);

/* Take back one finished request; NULL when none came within timeout_ns (0: look only).  Any thread. */
stk_request *stk_source_reap(stk_source *source, stk_ns timeout_ns);

/* Called, when set, by a thread of the source after a request has finished, holding no lock: to wake who reaps.  Set it
 * before the first submit. */
void stk_source_on_finish(stk_source *source, void (*notify)(void *context), void *context);

/* Ask for a request to end soon; it still comes back by reap (STK_ERR_INTERRUPTED, or whatever it had become).
 * The request must not have been reaped yet. */
void stk_source_cancel(stk_source *source, stk_request *request);

/* --- calls that wait; not for the data path.  Any thread. --- */

typedef struct stk_source_entry {
    stk_str key;         /* its bytes as they are */
    stk_str etag;        /* with its quotes */
    uint64_t size_bytes;
} stk_source_entry;

/* All objects of s3://bucket/prefix, in the store's order (by bytes of the key).  found: called for each, with values that
 * live until it returns; false stops (STK_ERR_INTERRUPTED).  Failure: STK_ERR_NETWORK, also of a bucket that is not there or may not be
 * listed. */
stk_status stk_source_list(stk_source *source, stk_str address, bool (*found)(void *context, const stk_source_entry *entry),
                           void *context, stk_error *err) STK_MUST_USE;

/* What one request may store. */
#define STK_PUT_BYTES_MAX ((uint64_t)5 << 30)

/* Store bytes (at most STK_PUT_BYTES_MAX, else STK_ERR_OPTION and nothing is asked) as s3://bucket/key, in one piece: readers see
 * the old object or this one. */
stk_status stk_source_put(stk_source *source, stk_str address, stk_bytes bytes, stk_error *err) STK_MUST_USE;

/* --- figures --- */

/* Times by class: class k holds those below 2^(k/4) * 125 us that no earlier one holds; the last, all longer ones. */
enum { STK_TIME_CLASSES = 80 };
typedef struct stk_time_histogram {
    uint64_t count, sum_ns;
    uint64_t in_class[STK_TIME_CLASSES];
} stk_time_histogram;

/* The time below which that share (0 to 1) of a histogram lies: its class's upper bound; 0 when it is empty. */
stk_ns stk_time_quantile(const stk_time_histogram *histogram, double share);

#define STK_RETRY_MAP(X)                                                                                                  \
    X(STK_RETRY_CONNECT, "connect")      /* no connection, no such name */                                                \
    X(STK_RETRY_BROKEN, "broken")        /* reset, closed or garbage before the body was whole */                         \
    X(STK_RETRY_SLOW, "slow")            /* no first byte, no further byte, or not whole in time */                       \
    X(STK_RETRY_SERVER, "server")        /* 500, 502, 504 and the like */                                                 \
    X(STK_RETRY_THROTTLE, "throttle")    /* 503, 429: slow down */                                                        \
    X(STK_RETRY_CONTENT, "content")      /* another range, another length, another checksum */                            \
    X(STK_RETRY_CREDENTIALS, "credentials")                                                                               \
    X(STK_RETRY_CLOCK, "clock")                                                                                           \
    X(STK_RETRY_REGION, "region")

typedef enum stk_retry {
#define STK_RETRY_ENUM(name, text) name,
    STK_RETRY_MAP(STK_RETRY_ENUM)
#undef STK_RETRY_ENUM
    STK_RETRY_COUNT
} stk_retry;

typedef struct stk_source_metrics {
    uint64_t requests, list_requests, put_requests; /* sent to stores, retries and hedges included */
    uint64_t bytes;                                 /* of bodies that came */
    uint64_t connections;                           /* opened */
    uint64_t in_flight, concurrency;                /* now; how many may be */
    uint64_t retries[STK_RETRY_COUNT];
    uint64_t hedges_sent, hedges_won;
    uint64_t credential_refreshes;
    uint64_t cache_hits, cache_misses, cache_hit_bytes;
    uint64_t cache_stored, cache_refused, cache_evicted, cache_broken; /* kept; no room; gave way; found damaged */
    uint64_t cache_used_bytes;                      /* by all processes */
    char cache_words[256];                          /* why nothing is kept; "": all is well */
    stk_time_histogram first_byte, whole;           /* of GETs that succeeded */
} stk_source_metrics;

void stk_source_get_metrics(stk_source *source, stk_source_metrics *out);

#endif
