/* source.h - bytes at an address, asynchronously: submit, completion by queue, cancel.
 *
 * Local files and data: URIs are the first backends; S3 and HTTP come behind the same calls.  The index uses it
 * too.  A request is the caller's memory from submit until it comes back from stk_source_reap; nothing is allocated
 * per request.
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

typedef struct stk_source stk_source;

typedef struct stk_request {
    /* The caller sets these before submit; all else is zero. */
    stk_str address;        /* absolute path or data: URI; the caller's until reaped */
    const stk_places *places; /* where a file must lie, links followed; the caller's until reaped; NULL: anywhere */
    uint64_t offset;        /* of the first byte wanted */
    uint64_t size_bytes;    /* wanted; 0: only look; UINT64_MAX: to the end */
    uint64_t priority;      /* smaller is earlier: plan order; equal ones in the order of submit */
    uint8_t *buffer;        /* room for capacity_bytes + STK_PAD_BYTES */
    size_t capacity_bytes;
    void *owner;            /* for the caller alone */

    /* The source sets these before it comes back. */
    stk_status status;      /* STK_OK; STK_ERR_MEDIA_MISSING, _LIMIT (did not fit: total_bytes says how large), _DENIED,
                             * _UNSUPPORTED, STK_ERR_MEDIA (no regular file, a broken data: URI), STK_ERR_SYSTEM (code:
                             * errno; EACCES means that the file may not be read), STK_ERR_INTERRUPTED (cancelled) */
    size_t got_bytes;       /* less than wanted only at the end of the object */
    uint64_t total_bytes;   /* of the whole object */
    uint64_t mtime_ns;      /* of a file; 0: unknown */
    stk_ns busy_ns;         /* spent on it by a thread of the source */
    stk_error error;        /* file holds the address where it is a path */

    /* The source's own. */
    struct stk_request *next, *previous;
    int state, cancelled;
} stk_request;

/* threads: of file input, own to this source (a slow disk does not starve workers), at least 1. */
stk_status stk_source_open(stk_source **out, int threads, stk_error *err) STK_MUST_USE;

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

#endif
