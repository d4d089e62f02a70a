/* remote.c - one source for many threads: what comes back is handed to the group that it belongs to. */
#include "engine/remote.h"

#include "base/thread.h"

enum { FILE_THREADS = 4 };
static const stk_ns LOOK_NS = 100 * STK_MS; /* how soon a thread that waits notices that it should stop */

struct stk_remote {
    const stk_source_config *config;
    int requests; /* 0: no limit of its own */
    stk_watch watch;
    pthread_mutex_t lock; /* guards source, and what groups have finished */
    stk_source *source;   /* NULL: at rest */
};

static bool is_stopped(const stk_remote *remote)
{
    return atomic_load(&remote->watch.stopped);
}

stk_status stk_remote_create(stk_remote **out, const stk_source_config *config, stk_error *err)
{
    *out = stk_alloc(STK_TAG_ENGINE, sizeof **out);
    if (!*out) return stk_fail(err, STK_ERR_NOMEM, "out of memory: a source");
    (*out)->config = config;
    pthread_mutex_init(&(*out)->lock, NULL);
    return STK_OK;
}

void stk_remote_rest(stk_remote *remote)
{
    /* A thread of it may still look whether more has come: the pointer stays until it has ended. */
    stk_source *closing = remote->source;
    stk_source_close(&closing);
    remote->source = NULL;
}

void stk_remote_limit(stk_remote *remote, int requests)
{
    stk_remote_rest(remote);
    remote->requests = requests;
}

void stk_remote_destroy(stk_remote *remote)
{
    if (!remote) return;
    stk_remote_rest(remote);
    pthread_mutex_destroy(&remote->lock);
    stk_free(remote);
}

void stk_remote_stop(stk_remote *remote)
{
    atomic_store(&remote->watch.stopped, true);
}

void stk_remote_watch(stk_remote *remote, const stk_index_progress *progress)
{
    const bool stopped = is_stopped(remote);
    stk_watch_init(&remote->watch, progress ? progress->report : NULL, progress ? progress->context : NULL);
    if (stopped) stk_remote_stop(remote);
}

/* For whoever waits. */
static bool should_stop(void *context)
{
    stk_remote *const remote = context;
    return is_stopped(remote) || !stk_watch_goes_on(&remote->watch, "store", "waiting", 0, 1);
}

/* A thread of the source: hand out all that has come back. */
static void hand_out(void *context)
{
    stk_remote *const remote = context;
    for (stk_request *r; (r = stk_source_reap(remote->source, 0));) {
        stk_remote_group *const group = ((stk_remote_request *)r)->group;
        pthread_mutex_lock(&remote->lock);
        r->next = group->finished;
        group->finished = r;
        pthread_cond_signal(&group->came);
        pthread_mutex_unlock(&remote->lock);
    }
}

stk_status stk_remote_source(stk_remote *remote, stk_source **source, stk_error *err)
{
    stk_status status = STK_OK;
    pthread_mutex_lock(&remote->lock);
    if (!remote->source) {
        stk_source_config config = *remote->config;
        config.file_threads = FILE_THREADS;
        config.requests = remote->requests;
        config.stopped = should_stop;
        config.stopped_context = remote;
        config.cache_path = NULL; /* what is read once is not worth keeping */
        status = stk_source_open(&remote->source, &config, err);
        if (status == STK_OK) stk_source_on_finish(remote->source, hand_out, remote);
    }
    *source = remote->source;
    pthread_mutex_unlock(&remote->lock);
    return status;
}

/* --- groups --- */

void stk_remote_group_init(stk_remote_group *group)
{
    *group = (stk_remote_group){0};
    stk_condition_init(&group->came);
}

void stk_remote_group_deinit(stk_remote_group *group)
{
    pthread_cond_destroy(&group->came);
}

stk_status stk_remote_submit(stk_remote *remote, stk_remote_group *group, stk_remote_request *r, stk_error *err)
{
    stk_source *source;
    if (is_stopped(remote)) return stk_fail(err, STK_ERR_INTERRUPTED, "stopped");
    STK_TRY(stk_remote_source(remote, &source, err));
    r->group = group;
    r->previous = NULL;
    r->next = group->first;
    if (r->next) r->next->previous = r;
    group->first = r;
    stk_source_submit(source, &r->request);
    return STK_OK;
}

static void leave_group(stk_remote_group *group, stk_remote_request *r)
{
    if (r->previous) r->previous->next = r->next;
    else group->first = r->next;
    if (r->next) r->next->previous = r->previous;
}

/* One that has finished, waiting for it until `at`. */
static stk_request *take(stk_remote *remote, stk_remote_group *group, stk_ns at)
{
    const struct timespec until = stk_timespec(at);
    pthread_mutex_lock(&remote->lock);
    int timed_out = 0;
    while (!group->finished && !timed_out) timed_out = pthread_cond_timedwait(&group->came, &remote->lock, &until);
    stk_request *const r = group->finished;
    if (r) group->finished = r->next;
    pthread_mutex_unlock(&remote->lock);
    return r;
}

stk_request *stk_remote_next(stk_remote *remote, stk_remote_group *group, stk_ns timeout_ns)
{
    stk_ns now = stk_now();
    const stk_ns end = timeout_ns > INT64_MAX - now ? INT64_MAX : now + timeout_ns;
    while (group->first) {
        stk_request *const r = take(remote, group, end - now < LOOK_NS ? end : now + LOOK_NS);
        if (r) {
            leave_group(group, (stk_remote_request *)r);
            return r;
        }
        if (!group->cancelled && should_stop(remote)) {
            group->cancelled = true;
            for (stk_remote_request *each = group->first; each; each = each->next)
                stk_source_cancel(remote->source, &each->request);
        }
        now = stk_now();
        if (now >= end) break;
    }
    return NULL;
}
