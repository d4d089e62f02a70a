/* store.h - remote requests, from submit to finish: what source.c hands on; internal to source/.
 *
 *     submit ─► inbox ─► waiting, by priority ─► job: 1 piece, or parts of 8 MiB ─► exchanges ─► finished
 *                                                     ^    \___ retry after a pause ___/  \_ a hedge beside the first
 *                                                     the window of the loop (pace.h)
 *
 * Each loop has a thread, a transport and a signer of its own, and shares nothing with the others but the credentials. */
#ifndef STK_SOURCE_STORE_H
#define STK_SOURCE_STORE_H

#include "source/pace.h"

typedef struct stk_store stk_store;

/* finished: a chain of requests, linked by next, that are whole or failed; called by a loop, holding no lock.  what
 * config points to is the caller's until close. */
stk_status stk_store_open(stk_store **out, const stk_source_config *config, const stk_patience *patience,
                          void (*finished)(void *context, stk_request *chain), void *context, stk_error *err) STK_MUST_USE;

/* Ends what is under way at once, and all that comes later: those who wait in a call get STK_ERR_INTERRUPTED, and no request is
 * handed to finished any more. */
void stk_store_stop(stk_store *store);
void stk_store_close(stk_store **store); /* after all calls have returned */

void stk_store_submit(stk_store *store, stk_request *request); /* any thread; never waits */

/* Requests whose cancelled is set end soon.  Any thread. */
void stk_store_cancel(stk_store *store);

/* One request, waited for.  Its cancelled counts, with stk_store_cancel. */
stk_status stk_store_read(stk_store *store, stk_request *request);

/* Where s3:// addresses lead.  NULL: err says why that is not known. */
const stk_endpoint *stk_store_endpoint(stk_store *store, stk_error *err);

/* As stk_source_list and _put (source.h). */
stk_status stk_store_list(stk_store *store, stk_str address, bool (*found)(void *context, const stk_source_entry *entry),
                          void *context, stk_error *err) STK_MUST_USE;
stk_status stk_store_put(stk_store *store, stk_str address, stk_bytes bytes, stk_error *err) STK_MUST_USE;

void stk_store_get_metrics(stk_store *store, stk_source_metrics *out);

/* Turns of all loops: for a test that they do not spin. */
uint64_t stk_store_turns(stk_store *store);

#endif
