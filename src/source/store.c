/* store.c - loops: what comes in, what may start, what is due, what goes out.
 *
 * A loop's turn: take the inbox, start what the window lets start (smallest priority first, pieces before new requests), wait
 * for the network or the next due time, look at what is due, hand out what is finished.  Each step is constant time or a heap's
 * logarithm; only cancel and close look at all.
 *
 * Not here: jobs and their pieces (store_jobs.c), one range for several requests (store_merge.c), the queues of requests
 * (store_queue.c), deadlines (store_due.c), what is sent (store_ask.c), who signs it (store_provider.c), what an answer means
 * (store_answer.c), the blocking calls (store_call.c). */
#include "source/store_core.h"

#include <errno.h>
#include <sys/resource.h>

#include "base/thread.h"

/* Measured (tests/source/test_store_memory.c), with room.  A request took 84 KB, of which 64 KiB are libcurl's receive buffer, and
 * 183 KB with TLS; a loop 0.2 MB, and 1.2 MB with the system's certificates. */
enum { REQUEST_BYTES = 224 << 10, LOOP_BYTES = 2 << 20 };

/* --- what may start --- */

/* Give the first waiting request a job.  False: there is none to give. */
static bool open_first(stk_loop *l)
{
    stk_request *const r = l->waiting_first;
    if (stk_job_open(l, r)) return true;
    if (l->jobs) return false; /* when one has ended */
    stk_waiting_leave(l, r);
    r->status = stk_fail(&r->error, STK_ERR_NOMEM, "out of memory: a request");
    stk_request_end(l, r);
    return true;
}

/* The first few answers of a bucket tell its region, whether it may be read, and resolve its name: not 256 at once. */
static bool may_start(const stk_loop *l, const stk_piece *p)
{
    const stk_job *const job = p->job;
    if (job->url.kind != STK_URL_S3) return true;
    return !l->awaits_credentials && (job->peer->met || job->peer->in_flight < STK_UNMET);
}

static void admit(stk_loop *l)
{
    while (l->in_flight < stk_pace_window(&l->pace)) {
        stk_piece *const p = l->ready_first;
        if (l->waiting_first && (!p || l->waiting_first->priority < p->job->request->priority)) {
            if (open_first(l)) continue;
        }
        if (!p || !may_start(l, p)) return;
        stk_piece_start(l, p);
        const stk_status status = stk_piece_launch(l, p, false);
        if (status == STK_AGAIN) {
            stk_piece_ready(l, p);
            return;
        }
        if (status == STK_OK) stk_job_next_part(l, p->job);
    }
}

/* --- what is due --- */

static bool may_hedge(const stk_loop *l, stk_ns now)
{
    return l->metrics.hedges_sent * 20 < l->metrics.requests && l->in_flight < l->patience.limit && stk_pace_is_calm(&l->pace, now);
}

static void look_at_flying(stk_loop *l, stk_piece *p, stk_ns now)
{
    const stk_ns hedge = stk_piece_hedge_time(l, p);
    if (hedge && hedge <= now) {
        p->hedges++;
        if (may_hedge(l, now)) {
            const stk_status status = stk_piece_launch(l, p, true);
            if (status < 0) return;
        }
    }
    bool late = false;
    for (int i = 0; i < STK_ATTEMPTS; i++) {
        if (!p->attempt[i] || stk_attempt_deadline(l, p->attempt[i]) > now) continue;
        stk_attempt_close(l, p->attempt[i]);
        late = true;
    }
    if (late && !stk_piece_is_asked(p)) {
        stk_piece_retry(l, p, STK_RETRY_SLOW, -1, "the store was silent for too long");
        return;
    }
    stk_piece_watch(l, p);
}

static void look_at_due(stk_loop *l)
{
    const stk_ns now = stk_now();
    while (l->heap_count && l->heap[0]->due <= now) {
        stk_piece *const p = l->heap[0];
        if (p->state == STK_PIECE_RESTING) stk_piece_ready(l, p);
        else look_at_flying(l, p, now);
    }
}

/* --- the thread --- */

/* Jobs first: those that a merged range carried wait again. */
static void end_cancelled(stk_loop *l)
{
    for (stk_job *job = l->jobs, *next; job; job = next) {
        next = job->next;
        if (job->carrier ? stk_carrier_cancelled(job->carrier) : stk_request_cancelled(job->request))
            (void)stk_job_fail(l, job, STK_ERR_INTERRUPTED, 0, "cancelled");
    }
    for (stk_request *r = l->waiting_first, *next; r; r = next) {
        next = r->next;
        if (!stk_request_cancelled(r)) continue;
        stk_waiting_leave(l, r);
        r->status = stk_fail(&r->error, STK_ERR_INTERRUPTED, "cancelled");
        stk_request_end(l, r);
    }
}

/* False: the loop is to end. */
static bool take_inbox(stk_loop *l)
{
    pthread_mutex_lock(&l->lock);
    stk_request *chain = l->inbox_first;
    l->inbox_first = l->inbox_last = NULL;
    bool cancels = l->cancels;
    const bool stop = l->stop;
    l->cancels = false;
    if (l->credentials_changed) l->awaits_credentials = l->credentials_changed = false;
    pthread_mutex_unlock(&l->lock);
    while (chain) {
        stk_request *const r = chain;
        chain = r->next;
        stk_waiting_enter(l, r);
        cancels |= stk_request_cancelled(r); /* before it came here */
    }
    if (cancels) end_cancelled(l);
    return !stop;
}

static void publish(stk_loop *l)
{
    l->metrics.in_flight = (uint64_t)l->in_flight;
    l->metrics.concurrency = (uint64_t)stk_pace_window(&l->pace);
    pthread_mutex_lock(&l->lock);
    l->published = l->metrics;
    pthread_mutex_unlock(&l->lock);
}

static void deliver(stk_loop *l)
{
    if (!l->finished_first) return;
    publish(l); /* before: who gets its request finds it counted */
    stk_request *chain = l->finished_first, *plain = NULL, **end = &plain;
    l->finished_first = l->finished_last = NULL;
    while (chain) {
        stk_request *const r = chain;
        chain = r->next;
        r->next = NULL;
        if (r->work) {
            stk_call_finish(r);
        } else {
            *end = r;
            end = &r->next;
        }
    }
    if (plain && !l->closing) l->store->finished(l->store->context, plain);
}

/* Nothing comes in any more; who waits in a call is told. */
static void end_all(stk_loop *l)
{
    l->closing = true;
    (void)take_inbox(l);
    while (l->jobs) (void)stk_job_fail(l, l->jobs, STK_ERR_INTERRUPTED, 0, "closed");
    while (l->waiting_first) {
        stk_request *const r = l->waiting_first;
        stk_waiting_leave(l, r);
        r->status = stk_fail(&r->error, STK_ERR_INTERRUPTED, "closed");
        stk_request_end(l, r);
    }
    deliver(l);
}

static void *run_loop(void *context)
{
    stk_loop *const l = context;
    pthread_setname_np(pthread_self(), "stk-net");
    while (take_inbox(l)) {
        admit(l);
        deliver(l); /* what could not even start */
        stk_http_turn(l->http, l->heap_count ? l->heap[0]->due : STK_FOREVER);
        look_at_due(l);
        deliver(l);
    }
    end_all(l);
    return NULL;
}

/* --- life --- */

/* The share of a loop in all requests that may be under way. */
static int share_of(int requests, int loops)
{
    const int share = requests / loops;
    return share < 1 ? 1 : share;
}

size_t stk_source_bytes(int requests, int io_threads)
{
    const int loops = io_threads < 1 ? 1 : io_threads;
    return (size_t)loops * (LOOP_BYTES + (size_t)share_of(requests, loops) * REQUEST_BYTES);
}

/* Connections are open files, and there must be some left for everybody else. */
static int most_connections(const stk_store *s, int limit)
{
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) || files.rlim_cur == RLIM_INFINITY) return limit;
    const uint64_t share = files.rlim_cur / 2 / (uint64_t)s->loop_count;
    return share < 8 ? 8 : share < (uint64_t)limit ? (int)share : limit;
}

static stk_status open_loop(stk_loop *l, stk_store *s, const stk_patience *patience, stk_error *err)
{
    l->store = s;
    pthread_mutex_init(&l->lock, NULL);
    l->patience = *patience;
    l->patience.limit = most_connections(s, patience->limit);
    const int share = share_of(s->config.requests, s->loop_count);
    if (s->config.requests && share < l->patience.limit) l->patience.limit = share;
    stk_pace_init(&l->pace, &l->patience);
    l->random = (uint64_t)stk_now() ^ (uint64_t)(uintptr_t)l;
    l->heap = stk_alloc_array(STK_TAG_SOURCE, 2 * (size_t)l->patience.limit, sizeof(stk_piece *));
    if (!l->heap) return stk_fail(err, STK_ERR_NOMEM, "out of memory: a loop of network input");
    STK_TRY(stk_peers_create(&l->peers, l->patience.limit, err));
    STK_TRY(stk_signer_create(&l->signer, err));
    const stk_http_config config = {.limit = l->patience.limit, .idle_s = s->config.endpoint ? 30 : 4, .events = stk_store_events};
    STK_TRY(stk_http_open(&l->http, &config, err));
    const int code = stk_thread_start(&l->thread, run_loop, l);
    if (code) {
        errno = code;
        return stk_fail_errno(err, "cannot start a thread for network input");
    }
    l->has_thread = true;
    return STK_OK;
}

static void stop_loop(stk_loop *l)
{
    if (!l->has_thread) return;
    pthread_mutex_lock(&l->lock);
    l->stop = true;
    pthread_mutex_unlock(&l->lock);
    stk_http_wake(l->http);
    pthread_join(l->thread, NULL);
    l->has_thread = false;
}

static void free_loop(stk_loop *l)
{
    if (!l->store) return; /* was not opened */
    stk_http_close(&l->http);
    for (stk_job *job; (job = l->free_jobs);) {
        l->free_jobs = job->next;
        stk_free(job);
    }
    for (stk_piece *p; (p = l->free_pieces);) {
        l->free_pieces = p->next;
        stk_free(p);
    }
    for (stk_attempt *attempt; (attempt = l->free_attempts);) {
        l->free_attempts = attempt->next;
        stk_free(attempt);
    }
    for (stk_carrier *c; (c = l->free_carriers);) {
        l->free_carriers = c->next;
        stk_free(c);
    }
    stk_signer_destroy(l->signer);
    stk_peers_destroy(l->peers);
    stk_free(l->heap);
    pthread_mutex_destroy(&l->lock);
}

stk_status stk_store_open(stk_store **out, const stk_source_config *config, const stk_patience *patience,
                          void (*finished)(void *context, stk_request *chain), void *context, stk_error *err)
{
    *out = NULL;
    stk_store *s = stk_alloc(STK_TAG_SOURCE, sizeof *s);
    if (!s) return stk_fail(err, STK_ERR_NOMEM, "out of memory: a source");
    s->config = *config;
    s->finished = finished;
    s->context = context;
    pthread_mutex_init(&s->lock, NULL);
    s->loop_count = config->io_threads < 1 ? 1 : config->io_threads;
    stk_status status = STK_OK;
    s->loop = stk_alloc_array(STK_TAG_SOURCE, (size_t)s->loop_count, sizeof *s->loop);
    if (!s->loop) status = stk_fail(err, STK_ERR_NOMEM, "out of memory: loops of network input");
    for (int i = 0; status == STK_OK && i < s->loop_count; i++) status = open_loop(&s->loop[i], s, patience, err);
    if (status < 0) {
        stk_store_close(&s);
        return status;
    }
    *out = s;
    return STK_OK;
}

void stk_store_stop(stk_store *s)
{
    for (int i = 0; s->loop && i < s->loop_count; i++) stop_loop(&s->loop[i]);
}

void stk_store_close(stk_store **store)
{
    stk_store *const s = *store;
    *store = NULL;
    if (!s) return;
    stk_store_stop(s);
    stk_provider_close(&s->provider); /* between: the loops ask it, and it wakes them */
    for (int i = 0; s->loop && i < s->loop_count; i++) free_loop(&s->loop[i]);
    stk_free(s->loop);
    pthread_mutex_destroy(&s->lock);
    stk_free(s);
}

/* --- calls --- */

void stk_store_submit(stk_store *s, stk_request *r)
{
    const unsigned turn = __atomic_fetch_add(&s->next_loop, 1, __ATOMIC_RELAXED);
    stk_loop *const l = &s->loop[turn % (unsigned)s->loop_count];
    r->next = NULL;
    r->alone = false;
    pthread_mutex_lock(&l->lock);
    const bool was_empty = !l->inbox_first, stopped = l->stop;
    if (!stopped) {
        *(l->inbox_last ? &l->inbox_last->next : &l->inbox_first) = r;
        l->inbox_last = r;
    }
    pthread_mutex_unlock(&l->lock);
    if (stopped) {
        r->status = stk_fail(&r->error, STK_ERR_INTERRUPTED, "closed");
        if (r->work) stk_call_finish(r);
        return;
    }
    if (was_empty) stk_http_wake(l->http);
}

void stk_store_cancel(stk_store *s)
{
    for (int i = 0; i < s->loop_count; i++) {
        stk_loop *const l = &s->loop[i];
        pthread_mutex_lock(&l->lock);
        l->cancels = true;
        pthread_mutex_unlock(&l->lock);
        stk_http_wake(l->http);
    }
}

static void add(stk_source_metrics *to, const stk_source_metrics *from)
{
    to->requests += from->requests;
    to->list_requests += from->list_requests;
    to->put_requests += from->put_requests;
    to->bytes += from->bytes;
    to->connections += from->connections;
    to->in_flight += from->in_flight;
    to->concurrency += from->concurrency;
    to->hedges_sent += from->hedges_sent;
    to->hedges_won += from->hedges_won;
    for (int i = 0; i < STK_RETRY_COUNT; i++) to->retries[i] += from->retries[i];
    stk_time_merge(&to->first_byte, &from->first_byte);
    stk_time_merge(&to->whole, &from->whole);
}

void stk_store_get_metrics(stk_store *s, stk_source_metrics *out)
{
    *out = (stk_source_metrics){0};
    for (int i = 0; i < s->loop_count; i++) {
        stk_loop *const l = &s->loop[i];
        pthread_mutex_lock(&l->lock);
        add(out, &l->published);
        pthread_mutex_unlock(&l->lock);
    }
    pthread_mutex_lock(&s->lock);
    if (s->provider) out->credential_refreshes = stk_provider_refresh_count(s->provider);
    pthread_mutex_unlock(&s->lock);
}

uint64_t stk_store_turns(stk_store *s)
{
    uint64_t turns = 0;
    for (int i = 0; i < s->loop_count; i++) turns += stk_http_turns(s->loop[i].http);
    return turns;
}
