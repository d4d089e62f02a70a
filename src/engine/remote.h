/* remote.h - a run's own source for what is not its batches: manifests and indexes on stores, headers for the index.
 *
 * It is opened when it is first needed, and shared: each thread submits requests of its group and waits for these alone,
 * so that the threads of an index have one set of connections and one set of credentials.
 *
 *     submit(group, request) ... ─► source ─► finished ─► next(group), in any order
 *
 * Not here: what is asked, and what an answer means (survey.c, remote_files.c). */
#ifndef STK_ENGINE_REMOTE_H
#define STK_ENGINE_REMOTE_H

#include <pthread.h>

#include <stoker/index.h>

#include "base/watch.h"
#include "source/source.h"

typedef struct stk_remote stk_remote;

/* A request with what the remote needs beside it. */
typedef struct stk_remote_request {
    stk_request request; /* first */
    struct stk_remote_group *group;
    struct stk_remote_request *next, *previous; /* of the group */
} stk_remote_request;

/* Requests that one thread has under way. */
typedef struct stk_remote_group {
    pthread_cond_t came;
    stk_request *finished;     /* a list; guarded by the remote */
    stk_remote_request *first; /* those that were not taken; the thread's own, as is all below */
    bool cancelled;
} stk_remote_group;

/* config outlives it. */
stk_status stk_remote_create(stk_remote **out, const stk_source_config *config, stk_error *err) STK_MUST_USE;
void stk_remote_destroy(stk_remote *remote); /* NULL is fine; nothing is under way */

/* Close the source until it is needed again: connections and threads go.  Nothing is under way. */
void stk_remote_rest(stk_remote *remote);

/* As rest, and no more than so many requests under way from then on; 0: as many as its loops take. */
void stk_remote_limit(stk_remote *remote, int requests);

/* The source, for calls that wait (stk_source_list, _put).  The remote's. */
stk_status stk_remote_source(stk_remote *remote, stk_source **source, stk_error *err) STK_MUST_USE;

void stk_remote_group_init(stk_remote_group *group);
void stk_remote_group_deinit(stk_remote_group *group);
stk_status stk_remote_submit(stk_remote *remote, stk_remote_group *group, stk_remote_request *request,
                             stk_error *err) STK_MUST_USE;

/* The next of the group that has come back; NULL: none within timeout_ns, or none is under way (group->first is NULL). */
stk_request *stk_remote_next(stk_remote *remote, stk_remote_group *group, stk_ns timeout_ns);

/* From now on, whoever waits on this thread asks `progress` some times a second whether to go on; where it says no, that is as
 * stk_remote_stop.  NULL: nobody is asked. */
void stk_remote_watch(stk_remote *remote, const stk_index_progress *progress);

/* From any thread: what is under way comes back soon, and what is submitted later too, as interrupted. */
void stk_remote_stop(stk_remote *remote);

#endif
