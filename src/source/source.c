/* source.c - requests by priority, a pool of threads that read, a queue of what has finished.
 *
 * Remote requests go to the loops of the store (store.c), which is opened by the first of them, and come back here.  With a
 * cache, and of a file in a remote tar, a thread looks first: for the object in the cache, for the file's place in the tar;
 * and what came is kept by a thread before it is handed back.
 *
 *     submit ─► waiting ─► a thread: is it kept? ─► finished
 *                                       \ no ─► store ─► waiting ─► a thread: keep it ─► finished
 *
 * Waiting requests form one doubly linked list by priority.  They come nearly in plan order, so a new one finds its
 * place from the back in a step or two, and cancel takes one out in O(1); nothing is allocated.
 *
 * Not here: how bytes are read (local.c, data_uri.c). */
#include "source/source.h"

#include <errno.h>

#include "base/thread.h"
#include "source/backend.h"
#include "source/kept.h"
#include "source/store.h"
#include "source/tar_member.h"
#include "source/twins.h"
#include "source/url.h"

enum { STATE_NEW, STATE_WAITING, STATE_READING, STATE_REMOTE, STATE_FOLLOWING, STATE_FINISHED };
enum { STEP_READ, STEP_KEEP }; /* of a thread; of a request that the store has, what comes afterwards */

/* A thread's outcome: the store goes on. */
#define TO_STORE STK_END

/* Pauses between tries, 0.7 s in all: longer than a busy moment, short enough that a dead disk is told soon. */
static const stk_ns pause_ns[] = {5 * STK_MS, 25 * STK_MS, 120 * STK_MS, 550 * STK_MS};
enum { PAUSES = sizeof pause_ns / sizeof *pause_ns };

struct stk_source {
    pthread_mutex_t lock; /* guards all below, and next, previous, state of the requests under way */
    pthread_cond_t work, finish, pause;
    stk_request *first, *last;                   /* waiting: smallest priority first */
    stk_request *first_finished, *last_finished; /* in the order in which they finished */
    stk_twins twins;                             /* of those with the store */
    bool stop;
    void (*notify)(void *context);
    void *notify_context;
    int thread_count;
    pthread_t *thread;
    stk_request **reading; /* what each thread works on; NULL: nothing */

    stk_cache *cache;         /* NULL: none */
    stk_tar_memory *tars;
    stk_source_config config; /* strings are copies */
    char *strings[6];
    pthread_mutex_t store_lock; /* guards the next two: the opening of the store */
    bool store_closed;
    stk_store *store;           /* NULL: no remote request yet */
};

/* --- the lists; the lock is held --- */

static void insert_waiting(stk_source *s, stk_request *r)
{
    stk_request *before = s->last; /* the one that r stands behind */
    while (before && before->priority > r->priority) before = before->previous;
    r->previous = before;
    r->next = before ? before->next : s->first;
    *(r->next ? &r->next->previous : &s->last) = r;
    *(before ? &before->next : &s->first) = r;
    r->state = STATE_WAITING;
}

static void remove_waiting(stk_source *s, stk_request *r)
{
    *(r->previous ? &r->previous->next : &s->first) = r->next;
    *(r->next ? &r->next->previous : &s->last) = r->previous;
    r->next = r->previous = NULL;
}

static void append_finished(stk_source *s, stk_request *r, stk_status status)
{
    if (r->asked.address.data) {
        status = stk_tar_member_end(r, status);
        if (status < 0) stk_error_stage(&r->error, STK_STAGE_FETCH);
    }
    r->status = status;
    r->state = STATE_FINISHED;
    r->next = NULL;
    *(s->last_finished ? &s->last_finished->next : &s->first_finished) = r;
    s->last_finished = r;
    pthread_cond_signal(&s->finish);
}

/* --- remote requests --- */

static void submit_remote(stk_source *s, stk_request *r);

/* What followed a request that is over gets what it got; where that was called back, each asks for itself, and what is returned is to be
 * submitted.  The lock is held. */
static stk_request *end_followers(stk_source *s, stk_request *leader)
{
    stk_request *again = NULL;
    for (stk_request *r = stk_twins_part(&s->twins, leader), *next; r; r = next) {
        next = r->next;
        if (leader->status != STK_ERR_INTERRUPTED) {
            stk_twins_copy(r, leader);
            append_finished(s, r, r->status);
        } else {
            r->next = again;
            again = r;
        }
    }
    return again;
}

/* From a loop: they are whole, or have failed. */
static void remote_finished(void *context, stk_request *chain)
{
    stk_source *const s = context;
    pthread_mutex_lock(&s->lock);
    while (chain) {
        stk_request *const r = chain;
        chain = r->next;
        stk_request *again = end_followers(s, r);
        while (again) {
            stk_request *const each = again;
            again = each->next;
            pthread_mutex_unlock(&s->lock);
            submit_remote(s, each);
            pthread_mutex_lock(&s->lock);
        }
        if (r->status == STK_OK && r->step == STEP_KEEP) {
            insert_waiting(s, r);
            pthread_cond_signal(&s->work);
        } else {
            append_finished(s, r, r->status);
        }
    }
    void (*const notify)(void *) = s->notify;
    void *const notify_context = s->notify_context;
    pthread_mutex_unlock(&s->lock);
    if (notify) notify(notify_context);
}

/* NULL: err says why. */
static stk_store *open_store(stk_source *s, stk_error *err)
{
    pthread_mutex_lock(&s->store_lock);
    stk_status status = STK_OK;
    if (s->store_closed) status = stk_fail(err, STK_ERR_INTERRUPTED, "closed");
    else if (!s->store) status = stk_store_open(&s->store, &s->config, &stk_patience_default, remote_finished, s, err);
    stk_store *const store = status == STK_OK ? s->store : NULL;
    pthread_mutex_unlock(&s->store_lock);
    return store;
}

static void submit_remote(stk_source *s, stk_request *r)
{
    stk_store *const store = open_store(s, &r->error);
    if (!store) {
        stk_error_stage(&r->error, STK_STAGE_FETCH);
        r->status = r->error.status;
        r->next = NULL;
        remote_finished(s, r);
        return;
    }
    pthread_mutex_lock(&s->lock);
    const bool follows = !s->config.apart && stk_twins_follow(&s->twins, r);
    r->state = follows ? STATE_FOLLOWING : STATE_REMOTE;
    pthread_mutex_unlock(&s->lock);
    if (!follows) stk_store_submit(store, r);
}

static void cancel_remote(stk_source *s)
{
    pthread_mutex_lock(&s->store_lock);
    stk_store *const store = s->store;
    pthread_mutex_unlock(&s->store_lock);
    if (store) stk_store_cancel(store);
}

/* For a thread that may wait. */
static stk_status read_remote(stk_source *s, stk_request *r)
{
    stk_store *const store = open_store(s, &r->error);
    return store ? stk_store_read(store, r) : r->error.status;
}

/* --- the threads --- */

static struct timespec deadline_in(stk_ns wait_ns)
{
    const stk_ns now = stk_now();
    const stk_ns at = wait_ns > INT64_MAX - now ? INT64_MAX : now + wait_ns;
    return stk_timespec(at);
}

/* Part of a tar, for a thread. */
static stk_status read_part(void *source, stk_request *r)
{
    return stk_url_is_remote(r->address) ? read_remote(source, r) : stk_local_read(r);
}

static bool is_kept(const stk_source *s, const stk_request *r)
{
    return s->cache && r->cache_value && r->etag.size_bytes && r->size_bytes;
}

/* Where the request's address leads: *endpoint is NULL for a URL.  False: that is not known, and the store will say why. */
static bool find_endpoint(stk_source *s, const stk_request *r, const stk_endpoint **endpoint)
{
    stk_error unused = {0};
    *endpoint = NULL;
    if (r->address.data[0] != 's' && r->address.data[0] != 'S') return true;
    stk_store *const store = open_store(s, &unused);
    *endpoint = store ? stk_store_endpoint(store, &unused) : NULL;
    return *endpoint != NULL;
}

static stk_status look_in_cache(stk_source *s, stk_request *r)
{
    const stk_endpoint *endpoint;
    if (!is_kept(s, r) || !find_endpoint(s, r, &endpoint)) return TO_STORE;
    const stk_status status = stk_kept_read(s->cache, endpoint, r);
    if (status != STK_AGAIN) return status;
    r->step = STEP_KEEP;
    return TO_STORE;
}

static void keep(stk_source *s, const stk_request *r)
{
    const stk_endpoint *endpoint;
    if (find_endpoint(s, r, &endpoint)) stk_kept_write(s->cache, endpoint, r);
}

static stk_status read_once(stk_source *s, stk_request *r)
{
    const stk_str a = r->address;
    if (a.size_bytes >= 5 && memcmp(a.data, "data:", 5) == 0) return stk_data_uri_read(r);
    if (stk_address_is_tar(a)) {
        const stk_tar_access access = {.read = read_part, .context = s, .memory = s->tars, .lists = s->config.tar_lists};
        const stk_status status = stk_tar_member_begin(r, &access);
        if (status != STK_OK) return status;
    }
    if (stk_url_is_remote(r->address)) return look_in_cache(s, r);
    const stk_status status = stk_local_read(r);
    return r->asked.address.data ? stk_tar_member_end(r, status) : status;
}

/* False when the request was cancelled or the source closes. */
static bool rest(stk_source *s, stk_request *r, stk_ns wait_ns)
{
    const struct timespec until = deadline_in(wait_ns);
    pthread_mutex_lock(&s->lock);
    int timed_out = 0;
    while (!timed_out && !s->stop && !stk_request_cancelled(r)) timed_out = pthread_cond_timedwait(&s->pause, &s->lock, &until);
    const bool goes_on = !s->stop && !stk_request_cancelled(r);
    pthread_mutex_unlock(&s->lock);
    return goes_on;
}

static stk_status read_with_patience(stk_source *s, stk_request *r)
{
    for (size_t tries = 0;; tries++) {
        if (stk_request_cancelled(r)) return stk_fail(&r->error, STK_ERR_INTERRUPTED, "cancelled");
        r->got_bytes = 0;
        const stk_status status = read_once(s, r);
        if (status == STK_OK) r->error.status = STK_OK; /* an earlier try may have left words */
        if (status != STK_AGAIN) return status;
        if (tries == PAUSES) return STK_ERR_SYSTEM; /* the error says which */
        if (!rest(s, r, pause_ns[tries])) return stk_fail(&r->error, STK_ERR_INTERRUPTED, "cancelled");
    }
}

typedef struct thread_start {
    stk_source *source;
    int at;
} thread_start;

static void *run_thread(void *context)
{
    stk_source *const s = ((thread_start *)context)->source;
    const int at = ((thread_start *)context)->at;
    stk_free(context);
    pthread_setname_np(pthread_self(), "stk-io");

    pthread_mutex_lock(&s->lock);
    while (!s->stop) {
        stk_request *const r = s->first;
        if (!r) {
            pthread_cond_wait(&s->work, &s->lock);
            continue;
        }
        remove_waiting(s, r);
        r->state = STATE_READING;
        s->reading[at] = r;
        pthread_mutex_unlock(&s->lock);
        const stk_ns start = stk_now();
        stk_status status = STK_OK;
        if (r->step == STEP_KEEP) keep(s, r);
        else status = read_with_patience(s, r);
        r->busy_ns += stk_now() - start;
        if (status < 0) stk_error_stage(&r->error, STK_STAGE_FETCH);
        pthread_mutex_lock(&s->lock);
        s->reading[at] = NULL;
        if (status == TO_STORE) {
            pthread_mutex_unlock(&s->lock);
            submit_remote(s, r);
            pthread_mutex_lock(&s->lock);
            continue;
        }
        append_finished(s, r, status);
        void (*const notify)(void *) = s->notify;
        void *const notify_context = s->notify_context;
        pthread_mutex_unlock(&s->lock);
        if (notify) notify(notify_context);
        pthread_mutex_lock(&s->lock);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

/* --- life --- */

static stk_status start_thread(stk_source *s, stk_error *err)
{
    thread_start *const start = stk_alloc(STK_TAG_SOURCE, sizeof *start);
    if (!start) return stk_fail(err, STK_ERR_NOMEM, "out of memory: a source");
    *start = (thread_start){s, s->thread_count};
    const int code = stk_thread_start(&s->thread[s->thread_count], run_thread, start);
    if (code) {
        stk_free(start);
        errno = code;
        return stk_fail_errno(err, "cannot start a thread for file input");
    }
    s->thread_count++;
    return STK_OK;
}

/* What a later first remote request needs. */
static bool keep_config(stk_source *s, const stk_source_config *config)
{
    s->config = *config;
    const char **const text[] = {&s->config.endpoint, &s->config.region, &s->config.profile_name, &s->config.ca,
                                 &s->config.cache_path, &s->config.tar_lists};
    for (size_t i = 0; i < sizeof text / sizeof *text; i++) {
        if (!*text[i]) continue;
        s->strings[i] = stk_strdup(STK_TAG_SOURCE, *text[i]);
        *text[i] = s->strings[i];
        if (!s->strings[i]) return false;
    }
    return true;
}

stk_status stk_source_open(stk_source **out, const stk_source_config *config, stk_error *err)
{
    *out = NULL;
    const int threads = config->file_threads < 1 ? 1 : config->file_threads;
    stk_source *s = stk_alloc(STK_TAG_SOURCE, sizeof *s);
    if (!s) return stk_fail(err, STK_ERR_NOMEM, "out of memory: a source");
    pthread_mutex_init(&s->lock, NULL);
    pthread_mutex_init(&s->store_lock, NULL);
    stk_condition_init(&s->work);
    stk_condition_init(&s->finish);
    stk_condition_init(&s->pause);
    s->thread = stk_alloc_array(STK_TAG_SOURCE, (size_t)threads, sizeof *s->thread);
    s->reading = stk_alloc_array(STK_TAG_SOURCE, (size_t)threads, sizeof *s->reading);
    stk_status status = STK_OK;
    s->tars = stk_tar_memory_create();
    if (!s->thread || !s->reading || !s->tars || !keep_config(s, config)) status = stk_fail(err, STK_ERR_NOMEM, "out of memory: a source of %d threads", threads);
    if (status == STK_OK && config->cache_path) status = stk_cache_open(&s->cache, config->cache_path, config->cache_bytes, err);
    while (status == STK_OK && s->thread_count < threads) status = start_thread(s, err);
    if (status < 0) {
        stk_source_close(&s);
        return status;
    }
    *out = s;
    return STK_OK;
}

void stk_source_close(stk_source **source)
{
    stk_source *const s = *source;
    if (!s) return;
    pthread_mutex_lock(&s->lock);
    s->stop = true;
    for (int i = 0; i < s->thread_count; i++)
        if (s->reading[i]) __atomic_store_n(&s->reading[i]->cancelled, 1, __ATOMIC_RELAXED);
    pthread_cond_broadcast(&s->work);
    pthread_cond_broadcast(&s->pause);
    pthread_mutex_unlock(&s->lock);
    pthread_mutex_lock(&s->store_lock);
    s->store_closed = true;
    if (s->store) stk_store_stop(s->store); /* a thread may wait for it */
    pthread_mutex_unlock(&s->store_lock);
    for (int i = 0; i < s->thread_count; i++) pthread_join(s->thread[i], NULL);
    stk_store_close(&s->store);
    stk_cache_close(&s->cache);
    stk_tar_memory_destroy(s->tars);
    pthread_cond_destroy(&s->work);
    pthread_cond_destroy(&s->finish);
    pthread_cond_destroy(&s->pause);
    pthread_mutex_destroy(&s->lock);
    pthread_mutex_destroy(&s->store_lock);
    for (size_t i = 0; i < sizeof s->strings / sizeof *s->strings; i++) stk_free(s->strings[i]);
    stk_free(s->thread);
    stk_free(s->reading);
    stk_free(s);
    *source = NULL; /* not before its threads are gone: what they notify may look here */
}

/* --- calls --- */

void stk_source_submit(stk_source *s, stk_request *r)
{
    r->status = STK_OK;
    r->got_bytes = 0;
    r->total_bytes = r->mtime_ns = 0;
    r->etag_is[0] = 0;
    r->changed = false;
    r->error.status = STK_OK;
    __atomic_store_n(&r->cancelled, 0, __ATOMIC_RELAXED);
    r->work = NULL;
    r->step = STEP_READ;
    r->busy_ns = 0;
    r->asked.address.data = NULL;
    r->leader = r->followers = NULL;
    if (stk_url_is_remote(r->address) && !is_kept(s, r)) {
        submit_remote(s, r);
        return;
    }
    pthread_mutex_lock(&s->lock);
    insert_waiting(s, r);
    pthread_cond_signal(&s->work);
    pthread_mutex_unlock(&s->lock);
}

stk_request *stk_source_reap(stk_source *s, stk_ns timeout_ns)
{
    const struct timespec until = deadline_in(timeout_ns > 0 ? timeout_ns : 0);
    pthread_mutex_lock(&s->lock);
    int timed_out = timeout_ns <= 0;
    while (!s->first_finished && !timed_out) timed_out = pthread_cond_timedwait(&s->finish, &s->lock, &until);
    stk_request *const r = s->first_finished;
    if (r) {
        s->first_finished = r->next;
        if (!r->next) s->last_finished = NULL;
        r->next = NULL;
        r->state = STATE_NEW;
    }
    pthread_mutex_unlock(&s->lock);
    return r;
}

void stk_source_on_finish(stk_source *s, void (*notify)(void *context), void *context)
{
    pthread_mutex_lock(&s->lock);
    s->notify = notify;
    s->notify_context = context;
    pthread_mutex_unlock(&s->lock);
}

void stk_source_cancel(stk_source *s, stk_request *r)
{
    void (*notify)(void *) = NULL;
    void *notify_context = NULL;
    pthread_mutex_lock(&s->lock);
    __atomic_store_n(&r->cancelled, 1, __ATOMIC_RELAXED);
    const bool remote = r->state == STATE_REMOTE || r->state == STATE_READING;
    if (r->state == STATE_WAITING || r->state == STATE_FOLLOWING) {
        if (r->state == STATE_WAITING) remove_waiting(s, r);
        else stk_twins_leave(r);
        (void)stk_fail(&r->error, STK_ERR_INTERRUPTED, "cancelled");
        stk_error_stage(&r->error, STK_STAGE_FETCH);
        append_finished(s, r, STK_ERR_INTERRUPTED);
        notify = s->notify;
        notify_context = s->notify_context;
    } else if (r->state == STATE_READING) {
        pthread_cond_broadcast(&s->pause);
    }
    pthread_mutex_unlock(&s->lock);
    if (remote) cancel_remote(s);
    if (notify) notify(notify_context);
}

stk_status stk_source_list(stk_source *s, stk_str address, bool (*found)(void *context, const stk_source_entry *entry),
                           void *context, stk_error *err)
{
    stk_error why = {0};
    stk_store *const store = open_store(s, &why);
    if (store) return stk_store_list(store, address, found, context, err);
    if (err) *err = why;
    return why.status;
}

stk_status stk_source_put(stk_source *s, stk_str address, stk_bytes bytes, stk_error *err)
{
    stk_error why = {0};
    stk_store *const store = open_store(s, &why);
    if (store) return stk_store_put(store, address, bytes, err);
    if (err) *err = why;
    return why.status;
}

void stk_source_get_metrics(stk_source *s, stk_source_metrics *out)
{
    *out = (stk_source_metrics){0};
    pthread_mutex_lock(&s->store_lock);
    stk_store *const store = s->store;
    pthread_mutex_unlock(&s->store_lock);
    if (store) stk_store_get_metrics(store, out);
    if (!s->cache) return;
    stk_cache_metrics cache;
    stk_cache_get_metrics(s->cache, &cache);
    out->cache_hits = cache.hits;
    out->cache_misses = cache.misses;
    out->cache_hit_bytes = cache.hit_bytes;
    out->cache_stored = cache.stored;
    out->cache_refused = cache.refused;
    out->cache_evicted = cache.evicted;
    out->cache_broken = cache.broken;
    out->cache_used_bytes = cache.used_bytes;
    memcpy(out->cache_words, cache.words, sizeof out->cache_words);
}
