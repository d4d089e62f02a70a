/* source.h - bytes at an address, asynchronously: submit, completion by queue, cancel.
 *
 * Local files and data: URIs are the first backends; S3 and HTTP come behind the same calls.  The index uses it
 * too.  A request is the caller's memory from submit until it comes back from stk_source_reap; nothing is allocated
 * per request. */
#ifndef STK_SOURCE_SOURCE_H
#define STK_SOURCE_SOURCE_H

#include "base/memory.h"
#include "schema/facts.h"

typedef struct stk_source stk_source;

typedef struct stk_request {
    /* The caller sets these before submit. */
    stk_str address;        /* absolute path or data: URI; the caller's until reaped */
    uint64_t offset;        /* of the first byte wanted */
    uint64_t size_bytes;    /* wanted; UINT64_MAX: to the end */
    uint64_t priority;      /* smaller is earlier: plan order */
    uint8_t *buffer;        /* room for capacity_bytes + STK_PAD_BYTES */
    size_t capacity_bytes;
    void *owner;            /* for the caller alone */

    /* The source sets these before it comes back. */
    stk_status status;      /* STK_OK, STK_ERR_MEDIA_MISSING, _LIMIT (did not fit), STK_ERR_SYSTEM, _INTERRUPTED */
    size_t got_bytes;
    uint64_t total_bytes;   /* of the whole object */
    uint64_t mtime_ns;
    stk_error error;
    struct stk_request *next; /* the source's own */
} stk_request;

/* threads: of file input, own to this source (a slow disk does not starve workers). */
stk_status stk_source_open(stk_source **out, int threads, stk_error *err) STK_MUST_USE;
void stk_source_close(stk_source **source); /* cancels what is under way, waits for it */

void stk_source_submit(stk_source *source, stk_request *request);

/* Take back one finished request; NULL when none came within timeout_ns. */
stk_request *stk_source_reap(stk_source *source, stk_ns timeout_ns);

/* Called, when set, by a thread of the source after a request has finished, holding no lock: to wake who reaps. */
void stk_source_on_finish(stk_source *source, void (*notify)(void *context), void *context);

/* Ask for a request to end soon; it still comes back by reap (STK_ERR_INTERRUPTED, or whatever it had become). */
void stk_source_cancel(stk_source *source, stk_request *request);

#endif
