/* store_jobs.c - a request at work: its job, the pieces that it is asked for in, and where each of them waits.
 *
 *     READY, by priority ─launch─► FLYING ─► whole, dropped
 *        ^      ^                    │
 *        │      └──── ask again ─────┤
 *     RESTING, by time ◄── retry ────┘
 *
 * Flying pieces lie in the heap too, by the first of their deadlines. */
#include <stdarg.h>

#include "schema/place.h"
#include "source/store_core.h"

/* --- the heap of pieces by due time --- */

static void heap_put(stk_loop *l, stk_piece *piece, int at)
{
    l->heap[at] = piece;
    piece->heap_at = at;
}

static void heap_up(stk_loop *l, stk_piece *piece, int at)
{
    for (; at > 0 && l->heap[(at - 1) / 2]->due > piece->due; at = (at - 1) / 2) heap_put(l, l->heap[(at - 1) / 2], at);
    heap_put(l, piece, at);
}

static void heap_down(stk_loop *l, stk_piece *piece, int at)
{
    for (;;) {
        int child = 2 * at + 1;
        if (child >= l->heap_count) break;
        if (child + 1 < l->heap_count && l->heap[child + 1]->due < l->heap[child]->due) child++;
        if (l->heap[child]->due >= piece->due) break;
        heap_put(l, l->heap[child], at);
        at = child;
    }
    heap_put(l, piece, at);
}

static void heap_remove(stk_loop *l, stk_piece *piece)
{
    const int at = piece->heap_at;
    if (at < 0) return;
    piece->heap_at = -1;
    stk_piece *const last = l->heap[--l->heap_count];
    if (last == piece) return;
    if (at > 0 && l->heap[(at - 1) / 2]->due > last->due) heap_up(l, last, at);
    else heap_down(l, last, at);
}

void stk_piece_due(stk_loop *l, stk_piece *piece, stk_ns due)
{
    heap_remove(l, piece);
    piece->due = due;
    heap_up(l, piece, l->heap_count++);
}

/* --- pieces --- */

static void leave_ready(stk_loop *l, stk_piece *p)
{
    *(p->previous ? &p->previous->next : &l->ready_first) = p->next;
    *(p->next ? &p->next->previous : &l->ready_last) = p->previous;
}

void stk_piece_ready(stk_loop *l, stk_piece *p)
{
    heap_remove(l, p);
    p->state = STK_PIECE_READY;
    stk_piece *before = l->ready_last;
    while (before && before->job->request->priority > p->job->request->priority) before = before->previous;
    p->previous = before;
    p->next = before ? before->next : l->ready_first;
    *(p->next ? &p->next->previous : &l->ready_last) = p;
    *(before ? &before->next : &l->ready_first) = p;
}

void stk_piece_start(stk_loop *l, stk_piece *p)
{
    leave_ready(l, p);
    p->state = STK_PIECE_FLYING;
}

void stk_piece_rest(stk_loop *l, stk_piece *p, stk_ns due)
{
    p->state = STK_PIECE_RESTING;
    stk_piece_due(l, p, due);
}

void stk_attempt_close(stk_loop *l, stk_attempt *attempt)
{
    stk_piece *const p = attempt->piece;
    if (attempt->exchange) l->metrics.connections += stk_http_stop(l->http, attempt->exchange);
    for (int i = 0; i < STK_ATTEMPTS; i++)
        if (p->attempt[i] == attempt) p->attempt[i] = NULL;
    p->job->peer->in_flight--;
    l->in_flight--;
    attempt->next = l->free_attempts;
    l->free_attempts = attempt;
}

static void open_piece(stk_job *job, stk_piece *p, uint64_t first, uint64_t end)
{
    *p = (stk_piece){.job = job, .first = first, .end = end, .heap_at = -1, .after = job->pieces};
    if (job->pieces) job->pieces->before = p;
    job->pieces = p;
}

void stk_piece_drop(stk_loop *l, stk_piece *p)
{
    stk_job *const job = p->job;
    for (int i = 0; i < STK_ATTEMPTS; i++)
        if (p->attempt[i]) stk_attempt_close(l, p->attempt[i]);
    if (p->state == STK_PIECE_READY) leave_ready(l, p);
    heap_remove(l, p);
    *(p->before ? &p->before->after : &job->pieces) = p->after;
    if (p->after) p->after->before = p->before;
    if (p == &job->own) return;
    p->next = l->free_pieces;
    l->free_pieces = p;
}

static stk_piece *take_piece(stk_loop *l)
{
    stk_piece *p = l->free_pieces;
    if (p) l->free_pieces = p->next;
    else if (l->piece_count < l->patience.limit && (p = stk_alloc(STK_TAG_SOURCE, sizeof *p))) l->piece_count++;
    return p;
}

void stk_job_next_part(stk_loop *l, stk_job *job)
{
    if (!job->parted || job->end == STK_UNKNOWN_BYTES || job->next_first >= job->end) return;
    for (const stk_piece *p = job->pieces; p; p = p->after)
        if (p->state == STK_PIECE_READY) return; /* one waits: the next follows it */
    bool own_is_free = true;
    for (const stk_piece *p = job->pieces; p; p = p->after) own_is_free &= p != &job->own;
    stk_piece *const p = own_is_free ? &job->own : take_piece(l);
    if (!p) return; /* when one of this job has ended */
    const uint64_t first = job->next_first;
    job->next_first = job->end - first > STK_PART_BYTES ? first + STK_PART_BYTES : job->end;
    open_piece(job, p, first, job->next_first);
    stk_piece_ready(l, p);
}

/* --- jobs --- */

static uint64_t end_of(uint64_t offset, uint64_t size_bytes)
{
    return size_bytes > UINT64_MAX - offset ? STK_UNKNOWN_BYTES : offset + size_bytes;
}

static void begin(stk_job *job)
{
    const stk_request *const r = job->request;
    job->total = job->end = STK_UNKNOWN_BYTES;
    job->etag[0] = job->etag_is[0] = 0;
    if (r->etag.size_bytes && r->etag.size_bytes < sizeof job->etag) {
        memcpy(job->etag, r->etag.data, r->etag.size_bytes);
        job->etag[r->etag.size_bytes] = 0;
    }
    const uint64_t most = r->size_bytes < r->capacity_bytes ? r->size_bytes : r->capacity_bytes;
    uint64_t end = job->kind == STK_JOB_GET ? end_of(r->offset, r->size_bytes) : STK_UNKNOWN_BYTES;
    job->parted = job->kind == STK_JOB_GET && !job->undivided && most >= STK_PARTED_BYTES && r->offset < UINT64_MAX - 2 * STK_PARTED_BYTES;
    if (job->parted) end = job->next_first = (r->offset / STK_PART_BYTES + 1) * STK_PART_BYTES;
    open_piece(job, &job->own, r->offset, end);
}

void stk_job_restart(stk_loop *l, stk_job *job, stk_ns pause_ns)
{
    const int failures = job->own.failures;
    while (job->pieces) stk_piece_drop(l, job->pieces);
    begin(job);
    job->own.failures = failures;
    job->own.fresh = true;
    stk_piece_rest(l, &job->own, stk_now() + pause_ns);
}

static stk_job *take_job(stk_loop *l)
{
    stk_job *job = l->free_jobs;
    if (job) l->free_jobs = job->next;
    else if (l->job_count < l->patience.limit && (job = stk_alloc(STK_TAG_SOURCE, sizeof *job))) l->job_count++;
    return job;
}

void stk_job_finish(stk_loop *l, stk_job *job, stk_status status)
{
    stk_request *const r = job->request;
    while (job->pieces) stk_piece_drop(l, job->pieces);
    if (job->peer) stk_peers_give_back(l->peers, job->peer);
    stk_free(job->location);
    *(job->previous ? &job->previous->next : &l->jobs) = job->next;
    if (job->next) job->next->previous = job->previous;
    r->status = status;
    r->busy_ns = stk_now() - job->started;
    if (job->total != STK_UNKNOWN_BYTES) r->total_bytes = job->total;
    memcpy(r->etag_is, job->etag_is, sizeof r->etag_is);
    job->next = l->free_jobs;
    l->free_jobs = job;
    if (job->carrier) stk_carrier_end(l, job->carrier);
    else stk_request_end(l, r);
}

stk_status stk_job_fail(stk_loop *l, stk_job *job, stk_status status, int code, const char *format, ...)
{
    char words[256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(words, sizeof words, format, arguments);
    va_end(arguments);
    stk_request *const r = job->request;
    (void)stk_fail(&r->error, status, "%s", words);
    r->error.code = code;
    r->got_bytes = 0;
    stk_job_finish(l, job, status);
    return status;
}

/* "bucket", or "https://host:port". */
static stk_str peer_name(char *out, size_t capacity, const stk_url *url)
{
    if (url->kind == STK_URL_S3) return url->bucket;
    const int length = snprintf(out, capacity, "%s://%.*s:%u", url->kind == STK_URL_HTTPS ? "https" : "http",
                                (int)url->host.size_bytes, url->host.data, url->port);
    return (stk_str){out, length > 0 ? (size_t)length : 0};
}

stk_status stk_job_aim(stk_loop *l, stk_job *job, stk_str address)
{
    char name[STK_PEER_NAME_BYTES];
    stk_error err;
    stk_request *const r = job->request;
    if (stk_url_parse(&job->url, address, &err) < 0)
        return stk_job_fail(l, job, STK_ERR_MEDIA_MISSING, 0, "no address of a remote object: %s", err.message);
    if (r->places && !stk_places_hold_address(r->places, address)) {
        const stk_str place = stk_place_of(address);
        return stk_job_fail(l, job, STK_ERR_MEDIA_DENIED, 0, "%soutside the allowed places: add allow: [\"%.*s\"]",
                            job->redirects ? "redirected to a place " : "", STK_STR_ARGS(place));
    }
    if (job->kind == STK_JOB_GET && job->url.kind == STK_URL_S3 && job->url.key.size_bytes == 0)
        return stk_job_fail(l, job, STK_ERR_MEDIA_MISSING, 0, "a bucket, and no key in it");
    stk_peer *const peer = stk_peers_take(l->peers, peer_name(name, sizeof name, &job->url));
    if (!peer) return stk_job_fail(l, job, STK_ERR_MEDIA_MISSING, 0, "the name of the host is too long");
    if (job->peer) stk_peers_give_back(l->peers, job->peer);
    job->peer = peer;
    return STK_OK;
}

bool stk_job_open(stk_loop *l, stk_request *r)
{
    stk_job *const job = take_job(l);
    if (!job) return false;
    stk_carrier *const carrier = stk_carrier_open(l, r);
    if (carrier) r = &carrier->request;
    else stk_waiting_leave(l, r);
    const stk_call *const call = r->work;
    *job = (stk_job){.loop = l, .request = r, .carrier = carrier, .kind = call ? call->kind : r->size_bytes == 0 ? STK_JOB_LOOK : STK_JOB_GET,
                     .started = stk_now(), .next = l->jobs};
    if (l->jobs) l->jobs->previous = job;
    l->jobs = job;
    if (stk_job_aim(l, job, r->address) < 0) return true;
    begin(job);
    stk_piece_ready(l, &job->own);
    return true;
}
