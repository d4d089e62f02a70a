/* store_answer.c - the events of the transport: bytes to their place, and what each end means (s3.md, section 5).
 *
 * Three callbacks come from inside the transport and may only note things and stop a rival attempt; everything else waits for the
 * end of the exchange, which is the fourth.  A piece has its bytes from one attempt only: the first whose head is good. */
#include "source/store_core.h"

#include <errno.h>
#include <strings.h>
#include <time.h>

#include "schema/place.h"

enum { COST_THROTTLE = 5, COST_TRANSIENT = 10, RESTARTS = 3, REDIRECTS = 5, MOVES = 3, ETAGLESS = 3 };
enum { DENIALS = 2, MOST_DENIALS = 4, ABSENCES = 3 }; /* answers that a verdict takes: a 403 by its code, at most; a 404 without one */
enum { WEB_LOOKS = 3 }; /* before an address of plain HTTP is given up */

/* --- the head --- */

static bool same_etag(const char *a, const char *b)
{
    return strcmp(a, b) == 0;
}

/* What range of the object the body is.  A 200 that names a range is that range: some stores answer so. */
static bool body_range(const stk_answer *a, uint64_t *first, uint64_t *end, uint64_t *total)
{
    if (a->malformed) return false;
    if (a->has_range) {
        *first = a->first;
        *end = a->last + 1;
        *total = a->total_bytes;
        return a->first <= a->last && (!a->has_length || a->length_bytes == *end - *first);
    }
    *first = 0;
    *end = *total = a->has_length ? a->length_bytes : STK_UNKNOWN_BYTES;
    return a->status != 206;
}

/* The first good head of a job tells the object's size, so that the wanted range has an end. */
static stk_stop learn_size(stk_job *job, uint64_t end, uint64_t total)
{
    stk_request *const r = job->request;
    if (total != STK_UNKNOWN_BYTES && job->total != STK_UNKNOWN_BYTES && total != job->total) return STK_STOP_RESTART;
    if (job->total != STK_UNKNOWN_BYTES) return STK_STOP_NONE;
    if (total == STK_UNKNOWN_BYTES && job->parted && end != STK_UNKNOWN_BYTES) { /* "bytes 0-99/ *": no telling where parts end */
        job->undivided = true;
        return STK_STOP_RESTART;
    }
    job->total = total;
    uint64_t wanted_end = r->size_bytes > UINT64_MAX - r->offset ? STK_UNKNOWN_BYTES : r->offset + r->size_bytes;
    if (total != STK_UNKNOWN_BYTES && total < wanted_end) wanted_end = total;
    if (total == STK_UNKNOWN_BYTES && end < wanted_end) wanted_end = end;
    if (wanted_end < r->offset) wanted_end = r->offset;
    job->end = wanted_end;
    return wanted_end != STK_UNKNOWN_BYTES && wanted_end - r->offset > r->capacity_bytes ? STK_STOP_LIMIT : STK_STOP_NONE;
}

/* Every store gives ETags: what comes without one is a proxy's page, a portal's, as long as this one is not known to give none. */
static bool lacks_etag(stk_job *job)
{
    stk_peer *const peer = job->peer;
    if (job->etag[0]) return true;
    if (job->url.kind != STK_URL_S3 || peer->no_etags) return false;
    peer->no_etags = !peer->gives_etags && job->etagless++ >= ETAGLESS;
    return !peer->no_etags;
}

static stk_stop learn_etag(stk_job *job, const stk_answer *a)
{
    if (!a->etag[0]) return lacks_etag(job) ? STK_STOP_CONTENT : STK_STOP_NONE;
    job->peer->gives_etags = true;
    job->peer->no_etags = false;
    if (job->etag[0] && !same_etag(job->etag, a->etag))
        return job->request->etag.size_bytes ? STK_STOP_CHANGED : STK_STOP_RESTART;
    if (!job->etag[0]) memcpy(job->etag, a->etag, sizeof job->etag);
    memcpy(job->etag_is, a->etag, sizeof job->etag_is);
    return STK_STOP_NONE;
}

static void stop_rivals(stk_loop *l, stk_attempt *attempt)
{
    stk_piece *const p = attempt->piece;
    if (attempt->is_hedge) l->metrics.hedges_won++;
    for (int i = 0; i < STK_ATTEMPTS; i++)
        if (p->attempt[i] && p->attempt[i] != attempt) stk_attempt_close(l, p->attempt[i]);
}

static stk_stop accept_object(stk_loop *l, stk_attempt *attempt)
{
    stk_piece *const p = attempt->piece;
    stk_job *const job = p->job;
    const stk_answer *const a = &attempt->answer;
    uint64_t first, end, total;
    if (!body_range(a, &first, &end, &total)) return STK_STOP_CONTENT;
    const uint64_t at = p->first + p->got_bytes;
    if (job->kind == STK_JOB_GET && first > at) return STK_STOP_CONTENT;
    if (job->carrier && (!a->has_range || first != at || end != p->end || total == STK_UNKNOWN_BYTES)) return STK_STOP_CONTENT;
    stk_stop stop = learn_etag(job, a);
    if (stop == STK_STOP_NONE) stop = learn_size(job, end, total);
    if (stop != STK_STOP_NONE) return stop;
    if (job->parted && !a->has_range && p == &job->own && p->end == job->next_first) /* no ranges here: take it all */
        p->end = job->next_first = job->end;
    if (p->end > job->end) p->end = job->end;
    attempt->skip_bytes = job->kind == STK_JOB_GET ? at - first : 0;
    stk_job_next_part(l, job);
    return STK_STOP_NONE;
}

static bool accept_head(stk_loop *l, stk_attempt *attempt)
{
    stk_piece *const p = attempt->piece;
    if (p->job->kind == STK_JOB_GET || p->job->kind == STK_JOB_LOOK) {
        attempt->stop = accept_object(l, attempt);
        if (attempt->stop != STK_STOP_NONE) return false;
    }
    attempt->accepted = true;
    const stk_ns late = attempt->first_byte - attempt->started;
    if (p->job->kind == STK_JOB_GET) stk_lateness_add(&l->lateness[attempt->size_class], late, &l->patience);
    stk_time_add(&l->metrics.first_byte, late);
    stk_pace_good(&l->pace, late, l->in_flight + 1 >= stk_pace_window(&l->pace));
    stop_rivals(l, attempt);
    return true;
}

static bool on_head(void *user, stk_str line)
{
    stk_attempt *const attempt = user;
    stk_loop *const l = ((stk_attempt *)user)->piece->job->loop;
    if (!attempt->first_byte) {
        attempt->first_byte = attempt->last_byte = stk_now();
        stk_piece_watch(l, attempt->piece); /* silence counts from here */
    }
    if (line.size_bytes) {
        stk_answer_line(&attempt->answer, line);
        return true;
    }
    const stk_answer *const a = &attempt->answer;
    if (a->status / 100 == 1 || attempt->asks_region || attempt->asks_witness) return true; /* another head follows; any answer will do */
    return (a->status != 200 && a->status != 206) || accept_head(l, attempt);
}

/* --- the body --- */

static bool keep_error(stk_attempt *attempt, stk_bytes bytes)
{
    const size_t room = sizeof attempt->room - attempt->room_bytes;
    const size_t kept = bytes.size_bytes < room ? bytes.size_bytes : room;
    memcpy(attempt->room + attempt->room_bytes, bytes.data, kept);
    attempt->room_bytes += kept;
    if (attempt->body_bytes <= STK_ERROR_BODY_BYTES) return true;
    attempt->stop = STK_STOP_LONG;
    return false;
}

static bool on_body(void *user, stk_bytes bytes)
{
    stk_attempt *const attempt = user;
    stk_piece *const p = attempt->piece;
    stk_job *const job = p->job;
    stk_request *const r = job->request;
    attempt->last_byte = stk_now();
    attempt->body_bytes += bytes.size_bytes;
    job->loop->metrics.bytes += bytes.size_bytes;
    if (!attempt->accepted) return keep_error(attempt, bytes);
    if (job->kind == STK_JOB_PUT) return true;
    if (job->kind == STK_JOB_LOOK) {
        attempt->stop = STK_STOP_ENOUGH;
        return false;
    }
    const size_t skipped = attempt->skip_bytes < bytes.size_bytes ? (size_t)attempt->skip_bytes : bytes.size_bytes;
    attempt->skip_bytes -= skipped;
    bytes = (stk_bytes){bytes.data + skipped, bytes.size_bytes - skipped};
    const uint64_t at = p->first - r->offset + p->got_bytes; /* in the buffer */
    const uint64_t room = p->end != STK_UNKNOWN_BYTES ? p->end - p->first - p->got_bytes : r->capacity_bytes - at;
    const size_t size = bytes.size_bytes < room ? bytes.size_bytes : (size_t)room;
    if (job->carrier) stk_carrier_put(job->carrier, r->offset + at, (stk_bytes){bytes.data, size});
    else if (size) memcpy(r->buffer + at, bytes.data, size);
    p->got_bytes += size;
    if (size == bytes.size_bytes) return true;
    attempt->stop = p->end != STK_UNKNOWN_BYTES ? STK_STOP_ENOUGH : STK_STOP_LIMIT;
    return false;
}

static void on_sent(void *user)
{
    ((stk_attempt *)user)->last_byte = stk_now();
}

/* --- trying again --- */

void stk_piece_retry(stk_loop *l, stk_piece *p, stk_retry kind, int64_t retry_after_s, const char *words)
{
    stk_job *const job = p->job;
    const stk_ns now = stk_now();
    l->metrics.retries[kind]++;
    p->failures++;
    if (p->failures >= l->patience.attempts || now - job->started > l->patience.retries_ns || (job->carrier && kind != STK_RETRY_THROTTLE)) {
        char host[128];
        (void)stk_url_show(host, sizeof host, stk_str_of(job->peer->name));
        (void)stk_job_fail(l, job, STK_ERR_NETWORK, 0, "%.100s; given up after %d tries in %.1f s: look at %s%.80s and at the network to it",
                           words, p->failures, (double)(now - job->started) / (double)STK_S,
                           job->url.kind == STK_URL_S3 ? "bucket " : "", host);
        return;
    }
    /* To go on in the middle, the rest must be of the same object. */
    if (p->got_bytes < STK_RESUME_BYTES || !job->etag[0]) p->got_bytes = 0;
    p->hedges = 0;
    p->fresh = kind != STK_RETRY_THROTTLE && kind != STK_RETRY_CREDENTIALS;
    const bool throttle = kind == STK_RETRY_THROTTLE;
    stk_ns pause = stk_pause(&l->patience, throttle ? p->failures : p->failures - 1, &l->random);
    const stk_ns poor = stk_tokens_take(&job->peer->tokens, throttle ? COST_THROTTLE : COST_TRANSIENT, now);
    if (pause < poor) pause = poor;
    if (retry_after_s > 0 && pause < retry_after_s * STK_S) pause = (retry_after_s < 60 ? retry_after_s : 60) * STK_S + pause / 8;
    stk_piece_rest(l, p, now + pause);
}

/* At once, when the cause is known and mended: this costs no try. */
static void ask_again(stk_loop *l, stk_piece *p, stk_retry kind)
{
    l->metrics.retries[kind]++;
    p->hedges = 0;
    stk_piece_ready(l, p);
}

static void restart(stk_loop *l, stk_job *job, const char *words)
{
    l->metrics.retries[STK_RETRY_CONTENT]++;
    if (++job->restarts > RESTARTS || job->carrier)
        (void)stk_job_fail(l, job, STK_ERR_NETWORK, 0, "%s, %d times", words, job->restarts);
    else
        stk_job_restart(l, job, stk_pause(&l->patience, job->restarts, &l->random));
}

static void changed(stk_loop *l, stk_job *job)
{
    if (job->request->etag.size_bytes == 0) {
        restart(l, job, "the object changes while it is read");
        return;
    }
    if (!job->carrier && !job->looks_changed) { /* or a page with an ETag of its own: asked once more, on a new connection */
        job->looks_changed = true;
        l->metrics.retries[STK_RETRY_CONTENT]++;
        stk_job_restart(l, job, stk_pause(&l->patience, 1, &l->random));
        return;
    }
    job->request->changed = true;
    (void)stk_job_fail(l, job, STK_ERR_MEDIA, 0, "the object has changed since it was indexed: index again, or put the old one back");
}

/* --- good ends --- */

static bool reads_object(const stk_job *job)
{
    return job->url.kind == STK_URL_S3 && (job->kind == STK_JOB_GET || job->kind == STK_JOB_LOOK);
}

static void succeed(stk_loop *l, stk_job *job)
{
    stk_request *const r = job->request;
    stk_time_add(&l->metrics.whole, stk_now() - job->started);
    if (reads_object(job)) {
        job->peer->read_at = job->started; /* no later than it was asked */
        if (job->url.key.size_bytes < sizeof job->peer->witness) {
            memcpy(job->peer->witness, job->url.key.data, job->url.key.size_bytes);
            job->peer->witness[job->url.key.size_bytes] = 0;
        }
    }
    stk_tokens_give(&job->peer->tokens, job->own.failures ? 1 + COST_TRANSIENT : 1);
    if (r->total_bytes == 0) r->total_bytes = r->offset + r->got_bytes; /* where the store does not say more */
    stk_job_finish(l, job, STK_OK);
}

static void piece_is_whole(stk_loop *l, stk_piece *p, const stk_answer *a)
{
    stk_job *const job = p->job;
    stk_request *const r = job->request;
    if (job->kind == STK_JOB_GET && a->status == 200 && !a->has_range && p->first == 0 && p->got_bytes == job->total &&
        !stk_checksum_holds(a->checksum, a->checksum_text, (stk_bytes){r->buffer, p->got_bytes})) {
        restart(l, job, "the bytes of the object do not have its checksum");
        return;
    }
    if (job->kind == STK_JOB_LOOK && job->total == STK_UNKNOWN_BYTES && !job->by_get) { /* HEAD did not say how large it is */
        job->by_get = true;
        stk_piece_ready(l, p);
        return;
    }
    const uint64_t got = p->got_bytes;
    stk_piece_drop(l, p);
    stk_job_next_part(l, job);
    if (job->pieces) return;
    r->got_bytes = job->kind != STK_JOB_GET && job->kind != STK_JOB_LIST ? 0
                   : job->end != STK_UNKNOWN_BYTES                       ? (size_t)(job->end - r->offset)
                                                                         : (size_t)got;
    succeed(l, job);
}

static void past_end(stk_loop *l, stk_piece *p, const stk_answer *a)
{
    stk_job *const job = p->job;
    if (job->carrier || p != &job->own || p->first != job->request->offset || p->got_bytes || job->end != STK_UNKNOWN_BYTES) {
        restart(l, job, "the object becomes shorter while it is read");
        return;
    }
    if (a->has_range && a->total_bytes != STK_UNKNOWN_BYTES) job->total = a->total_bytes;
    if (job->total == STK_UNKNOWN_BYTES) job->total = job->request->offset;
    memcpy(job->etag_is, a->etag, sizeof job->etag_is);
    job->request->got_bytes = 0;
    succeed(l, job);
}

/* --- bad ends --- */

/* How much of a text to show: size_bytes at most, and no part of a character. */
static int whole_characters(const char *text, size_t size_bytes)
{
    const size_t length = strlen(text);
    if (length <= size_bytes) return (int)length;
    while (size_bytes && ((uint8_t)text[size_bytes] & 0xc0) == 0x80) size_bytes--;
    return (int)size_bytes;
}

/* The store's own words behind ours.  They come first where an error has no room for the advice too: they are the more certain. */
static void refused(stk_loop *l, stk_job *job, const stk_answer *a, const char *ours, const char *advice)
{
    const size_t room = sizeof job->request->error.message - 1, before = strlen(ours) + strlen(a->code) + sizeof ": 403 : ";
    const size_t after = strlen(advice) + sizeof "; ", said = strlen(a->message);
    const bool both = before + said + after <= room;
    size_t shown = before + said <= room ? said : before < room ? room - before : 0;
    while (both && shown && a->message[shown - 1] == '.') shown--; /* of a sentence that goes on */
    (void)stk_job_fail(l, job, STK_ERR_NETWORK, a->status, "%s: %d%s%s%s%.*s%s%s", ours, a->status, a->code[0] ? " " : "", a->code, said ? ": " : "",
                       whole_characters(a->message, shown), a->message, both ? "; " : "", both ? advice : "");
}

/* One refusal may be of a moment, of a gateway that starts, of a right that is being changed: it is of this object when the object is
 * refused, then another of the bucket is read, and then the object is refused again; so often at least. */
static bool is_of_the_object(stk_job *job, int least)
{
    const stk_ns before = job->refused_at;
    job->refused_at = stk_now();
    return ++job->refusals >= least && job->peer->read_at > before;
}

/* What came of another object, which could be read before. */
static void witnessed(stk_loop *l, stk_piece *p, const stk_attempt *attempt)
{
    const stk_answer *const a = &attempt->answer;
    stk_peer *const peer = p->job->peer;
    const bool good = a->status == 200 && !a->malformed && (a->etag[0] || peer->no_etags);
    if (good) peer->read_at = attempt->started;
    if (good || (a->status / 100 == 4 && a->status != 408 && a->status != 429)) { /* the object once more, which decides */
        p->asks_witness = false;
        stk_piece_ready(l, p);
    } else {
        stk_piece_retry(l, p, STK_RETRY_SERVER, a->retry_after_s, "the store gives no other object of the bucket either");
    }
}

static void absent(stk_loop *l, stk_piece *p, const stk_answer *a)
{
    stk_job *const job = p->job;
    if (reads_object(job) && !job->carrier) {
        if (is_of_the_object(job, ABSENCES)) {
            (void)stk_job_fail(l, job, STK_ERR_MEDIA_MISSING, a->status, "404 for this object, and others of the bucket are there");
            return;
        }
        p->asks_witness = job->refusals + 1 >= ABSENCES && stk_job_witness(l, job).size_bytes > 0;
    }
    stk_piece_retry(l, p, STK_RETRY_SERVER, a->retry_after_s, "the answer is 404 without the error code of a store, as of a proxy: look at the endpoint");
}

/* Of plain HTTP nobody else can be asked: what refuses an address may be over after a pause, on a new connection. */
static bool looks_again(stk_loop *l, stk_piece *p)
{
    stk_job *const job = p->job;
    if (job->url.kind == STK_URL_S3 || ++job->refusals >= WEB_LOOKS || job->carrier) return false;
    l->metrics.retries[STK_RETRY_SERVER]++;
    p->fresh = true;
    stk_piece_rest(l, p, stk_now() + stk_pause(&l->patience, job->refusals + 1, &l->random));
    return true;
}

static void denied(stk_loop *l, stk_piece *p, const stk_answer *a)
{
    static const char *const done[] = {[STK_JOB_GET] = "read", [STK_JOB_LOOK] = "read", [STK_JOB_LIST] = "listed", [STK_JOB_PUT] = "written"},
                      *const right[] = {[STK_JOB_GET] = "GetObject", [STK_JOB_LOOK] = "GetObject", [STK_JOB_LIST] = "ListBucket",
                                        [STK_JOB_PUT] = "PutObject"};
    stk_job *const job = p->job;
    if (looks_again(l, p)) return;
    if (job->url.kind != STK_URL_S3) { /* what else it says may quote the query, and that is a secret */
        (void)stk_job_fail(l, job, STK_ERR_SYSTEM, EACCES, "the server answers %d: this address may not be read%s", a->status,
                           job->url.query.size_bytes ? "; a presigned URL may have expired" : "");
        return;
    }
    if (reads_object(job) && !job->carrier) {
        if (is_of_the_object(job, DENIALS)) {
            (void)stk_job_fail(l, job, STK_ERR_SYSTEM, EACCES,
                               "the store says 403 for this object, and others of the bucket may be read: give the right to it (stores say 403 "
                               "also for a missing key, to callers that may not list)");
            return;
        }
        if (job->refusals < MOST_DENIALS) {
            l->metrics.retries[STK_RETRY_CREDENTIALS]++;
            p->asks_witness = stk_job_witness(l, job).size_bytes > 0;
            p->fresh = true;
            stk_piece_rest(l, p, stk_now() + stk_pause(&l->patience, job->refusals, &l->random));
            return;
        }
    }
    char ours[128], advice[128];
    snprintf(ours, sizeof ours, "bucket %.80s may not be %s", job->peer->name, done[job->kind]);
    snprintf(advice, sizeof advice, "give these credentials s3:%s on it, or set others", right[job->kind]);
    refused(l, job, a, ours, l->store->config.anonymous ? "it is not public: take anonymous out, and set credentials" : advice);
}

static void elsewhere(stk_loop *l, stk_piece *p, const stk_answer *a)
{
    stk_job *const job = p->job;
    stk_peer *const peer = job->peer;
    const bool asked = job->asks_region;
    job->asks_region = false;
    if (++job->moves > MOVES + (asked ? 1 : 0)) {
        (void)stk_job_fail(l, job, STK_ERR_NETWORK, a->status, "bucket %.80s is said to lie in another region, and in no certain one: set region",
                           peer->name);
    } else if (a->region[0] && stk_region_is_valid(stk_str_of(a->region)) && strcmp(a->region, peer->region) != 0) {
        memcpy(peer->region, a->region, sizeof peer->region);
        ask_again(l, p, STK_RETRY_REGION);
    } else if (!a->region[0] && !asked) {
        job->asks_region = true; /* a HEAD of the bucket says where it lies */
        ask_again(l, p, STK_RETRY_REGION);
    } else {
        stk_piece_retry(l, p, STK_RETRY_REGION, -1, "the store redirects to another region without end");
    }
}

static void clock_is_off(stk_loop *l, stk_piece *p, const stk_answer *a)
{
    stk_job *const job = p->job;
    const int64_t ours = (int64_t)time(NULL);
    if (job->clocks++ == 0 && a->date_s) {
        job->peer->clock_offset_s = a->date_s - ours;
        ask_again(l, p, STK_RETRY_CLOCK);
        return;
    }
    (void)stk_job_fail(l, job, STK_ERR_NETWORK, a->status,
                       "the store finds the time of a request too far off: its clock says %lld s, this machine's %lld s; set the clock",
                       (long long)a->date_s, (long long)ours);
}

static void expired(stk_loop *l, stk_piece *p, uint64_t generation, const stk_answer *a)
{
    stk_job *const job = p->job;
    stk_error err;
    stk_provider *const provider = stk_store_provider(l->store, &err);
    if (!provider || generation == 0 || (job->refused_generation && generation > job->refused_generation)) {
        (void)stk_job_fail(l, job, STK_ERR_NETWORK, a->status,
                           "the store refuses the credentials as expired (%s), new ones too: look at where they come from", a->code);
        return;
    }
    job->refused_generation = generation;
    job->refused_status = a->status;
    stk_provider_refresh(provider, generation);
    ask_again(l, p, STK_RETRY_CREDENTIALS);
}

static bool names_scheme(const char *location)
{
    const size_t length = strcspn(location, ":/?#");
    return length && location[length] == ':';
}

/* Location in full: with a scheme, with a host, with a path, or relative to the folder of the URL.  false: none of http(s). */
static bool resolve(char *out, size_t capacity, const stk_url *base, const char *location)
{
    int length;
    const char *const scheme = base->kind == STK_URL_HTTPS ? "https" : "http";
    if (strncasecmp(location, "http://", 7) == 0 || strncasecmp(location, "https://", 8) == 0) {
        length = snprintf(out, capacity, "%s", location);
    } else if (names_scheme(location)) {
        return false;
    } else if (strncmp(location, "//", 2) == 0) {
        length = snprintf(out, capacity, "%s:%s", scheme, location);
    } else {
        const char *const slash = location[0] == '/' || !base->path.size_bytes
                                      ? NULL
                                      : (const char *)memrchr(base->path.data, '/', base->path.size_bytes);
        const size_t folder = slash ? (size_t)(slash - base->path.data) + 1 : 0;
        length = snprintf(out, capacity, "%s://%s%.*s%s:%u%.*s%s%s", scheme, base->is_ipv6 ? "[" : "", (int)base->host.size_bytes,
                          base->host.data, base->is_ipv6 ? "]" : "", base->port, (int)folder, folder ? base->path.data : "",
                          folder || location[0] == '/' ? "" : "/", location);
    }
    return length > 0 && (size_t)length < capacity && !strchr(out, ' ');
}

static void redirected(stk_loop *l, stk_piece *p, const stk_answer *a)
{
    stk_job *const job = p->job;
    char target[4096];
    if (job->redirects++ >= REDIRECTS) {
        (void)stk_job_fail(l, job, STK_ERR_MEDIA_MISSING, a->status, "redirected more than %d times", REDIRECTS);
        return;
    }
    if (!resolve(target, sizeof target, &job->url, a->location)) {
        (void)stk_job_fail(l, job, STK_ERR_MEDIA_MISSING, a->status, "redirected to what is no http or https address");
        return;
    }
    if (job->url.kind == STK_URL_HTTPS && strncasecmp(target, "https:", 6) != 0) {
        (void)stk_job_fail(l, job, STK_ERR_MEDIA_DENIED, a->status, "redirected from https to http, which is not followed");
        return;
    }
    char *const kept = stk_strdup(STK_TAG_SOURCE, target);
    if (!kept) {
        (void)stk_job_fail(l, job, STK_ERR_NOMEM, 0, "out of memory: a redirect");
        return;
    }
    stk_free(job->location);
    job->location = kept;
    if (stk_job_aim(l, job, stk_str_of(kept)) == STK_OK) stk_piece_ready(l, p);
}

static void bare(stk_loop *l, stk_piece *p, bool is_head, const stk_answer *a)
{
    if (is_head && !p->job->by_get) {
        p->job->by_get = true; /* HEAD has no body that could say why */
        stk_piece_ready(l, p);
    } else {
        stk_piece_retry(l, p, STK_RETRY_SERVER, -1, a->status == 403 ? "the answer is 403 without the error code of a store, as of a proxy: look at the endpoint"
                                                                     : "the store answers 400 and does not say why");
    }
}

static void judge(stk_loop *l, stk_piece *p, const stk_attempt *attempt)
{
    stk_job *const job = p->job;
    const stk_answer *const a = &attempt->answer;
    const bool store = job->url.kind == STK_URL_S3;
    char words[128];
    snprintf(words, sizeof words, "the %s answers %d %s", store ? "store" : "server", a->status, a->code);
    if (attempt->is_head && a->status == 404 && store && !job->by_get) { /* the key, or the bucket? */
        bare(l, p, true, a);
        return;
    }
    switch (stk_answer_verdict(a, store, attempt->asks_checksums)) {
    case STK_VERDICT_GOOD: /* its head was not accepted */
    case STK_VERDICT_TRANSIENT: stk_piece_retry(l, p, STK_RETRY_SERVER, a->retry_after_s, words); break;
    case STK_VERDICT_THROTTLE:
        stk_pace_throttled(&l->pace, attempt->started, stk_now());
        stk_piece_retry(l, p, STK_RETRY_THROTTLE, a->retry_after_s, words);
        break;
    case STK_VERDICT_MISSING:
        if (looks_again(l, p)) break;
        if (job->kind == STK_JOB_LIST || job->kind == STK_JOB_PUT) { /* which name no key that could be missing */
            refused(l, job, a, "there is no such bucket at this store", "look at the address, endpoint and region");
            break;
        }
        (void)stk_job_fail(l, job, STK_ERR_MEDIA_MISSING, a->status, "%s", store ? "no such key in the bucket" : words);
        break;
    case STK_VERDICT_UNSAID: absent(l, p, a); break;
    case STK_VERDICT_NO_BUCKET:
        (void)stk_job_fail(l, job, STK_ERR_NETWORK, a->status, "there is no bucket %.120s at this store: look at the address, endpoint and region",
                           job->peer->name);
        break;
    case STK_VERDICT_DENIED: denied(l, p, a); break;
    case STK_VERDICT_ARCHIVED:
        (void)stk_job_fail(l, job, STK_ERR_SYSTEM, EACCES, "the object lies in an archive: restore it first");
        break;
    case STK_VERDICT_CHANGED: changed(l, job); break;
    case STK_VERDICT_PAST_END: past_end(l, p, a); break;
    case STK_VERDICT_CLOCK: clock_is_off(l, p, a); break;
    case STK_VERDICT_EXPIRED: expired(l, p, attempt->generation, a); break;
    case STK_VERDICT_CREDENTIALS:
        refused(l, job, a, "the store refuses the credentials", "look at the access key, its secret, its session token and the region");
        break;
    case STK_VERDICT_REGION: elsewhere(l, p, a); break;
    case STK_VERDICT_REDIRECT: redirected(l, p, a); break;
    case STK_VERDICT_NO_CHECKSUMS:
        job->peer->no_checksums = true;
        stk_piece_ready(l, p);
        break;
    case STK_VERDICT_BARE: bare(l, p, attempt->is_head, a); break;
    case STK_VERDICT_FATAL:
        refused(l, job, a, "the store answers", "look at the address and the endpoint");
        break;
    }
}

static void stopped(stk_loop *l, stk_piece *p, const stk_attempt *attempt)
{
    stk_job *const job = p->job;
    stk_request *const r = job->request;
    switch (attempt->stop) {
    case STK_STOP_ENOUGH: piece_is_whole(l, p, &attempt->answer); break;
    case STK_STOP_CHANGED: case STK_STOP_RESTART: changed(l, job); break;
    case STK_STOP_LIMIT:
        if (job->total == STK_UNKNOWN_BYTES) job->total = r->offset + r->capacity_bytes + 1; /* at least */
        (void)stk_job_fail(l, job, STK_ERR_MEDIA_LIMIT, 0, "an object of %llu bytes, and there is room for %zu",
                           (unsigned long long)job->total, r->capacity_bytes);
        break;
    case STK_STOP_LONG: judge(l, p, attempt); break;
    case STK_STOP_CONTENT: case STK_STOP_NONE:
        stk_piece_retry(l, p, STK_RETRY_CONTENT, -1, "the answer is not what was asked for: another range, or no ETag");
        break;
    }
}

static void failed(stk_loop *l, stk_piece *p, stk_http_outcome outcome, const char *words)
{
    stk_job *const job = p->job;
    const stk_str place = stk_place_of(job->location ? stk_str_of(job->location) : job->request->address);
    switch (outcome) {
    case STK_HTTP_NO_NAME: case STK_HTTP_NO_CONNECTION: stk_piece_retry(l, p, STK_RETRY_CONNECT, -1, words); break;
    case STK_HTTP_PRIVATE: /* or the names are a portal's for a moment */
        if (looks_again(l, p)) break;
        (void)stk_job_fail(l, job, STK_ERR_MEDIA_DENIED, 0, "the host has a private address: add allow: [\"%.*s\"] if that is meant",
                           place.size_bytes > 120 ? 120 : (int)place.size_bytes, place.data);
        break;
    case STK_HTTP_UNTRUSTED:
        (void)stk_job_fail(l, job, STK_ERR_NETWORK, 0, "the certificate of the store is not trusted (%s): set ca to the file of its authority", words);
        break;
    case STK_HTTP_PLAIN:
        (void)stk_job_fail(l, job, STK_ERR_NETWORK, 0, "the server speaks no TLS there: write http:// in place of https://, or the port of its TLS");
        break;
    case STK_HTTP_IMPOSSIBLE: (void)stk_job_fail(l, job, STK_ERR_MEDIA_MISSING, 0, "an address that cannot be asked: %s", words); break;
    case STK_HTTP_NO_MEMORY: (void)stk_job_fail(l, job, STK_ERR_NOMEM, 0, "out of memory: a request"); break;
    default: stk_piece_retry(l, p, STK_RETRY_BROKEN, -1, words); break;
    }
}

/* --- the end --- */

static bool is_terminal(const stk_attempt *attempt, stk_http_outcome outcome)
{
    if (outcome == STK_HTTP_STOPPED) return attempt->stop != STK_STOP_CONTENT && attempt->stop != STK_STOP_LONG;
    if (outcome != STK_HTTP_WHOLE) return outcome == STK_HTTP_PRIVATE || outcome == STK_HTTP_UNTRUSTED || outcome == STK_HTTP_PLAIN;
    const int status = attempt->answer.status;
    return attempt->accepted || (status >= 300 && status < 500 && status != 408 && status != 429);
}

static void on_end(void *user, stk_http_outcome outcome, const char *words, bool new_connection)
{
    stk_attempt *const attempt = user;
    stk_piece *const p = attempt->piece;
    stk_job *const job = p->job;
    stk_loop *const l = job->loop;
    attempt->exchange = NULL;
    l->metrics.connections += new_connection;
    job->peer->met = true;
    if (outcome == STK_HTTP_WHOLE && !attempt->accepted) stk_answer_body(&attempt->answer, (stk_bytes){attempt->room, attempt->room_bytes});
    const bool asked_region = attempt->asks_region, asked_witness = attempt->asks_witness;
    stk_attempt_close(l, attempt); /* its memory stays as it is until another takes it, which nothing below does before reading it */
    if (stk_piece_is_asked(p) && !is_terminal(attempt, outcome)) { /* a rival is still under way */
        if (outcome == STK_HTTP_WHOLE && (attempt->answer.status == 503 || attempt->answer.status == 429))
            stk_pace_throttled(&l->pace, attempt->started, stk_now());
        stk_piece_watch(l, p);
        return;
    }
    for (int i = 0; i < STK_ATTEMPTS; i++)
        if (p->attempt[i]) stk_attempt_close(l, p->attempt[i]);
    if (asked_region && outcome == STK_HTTP_WHOLE) {
        elsewhere(l, p, &attempt->answer);
    } else if (asked_witness && outcome == STK_HTTP_WHOLE) {
        witnessed(l, p, attempt);
    } else if (outcome == STK_HTTP_STOPPED) {
        stopped(l, p, attempt);
    } else if (outcome == STK_HTTP_WHOLE && !attempt->accepted) {
        judge(l, p, attempt);
    } else if (attempt->accepted && job->kind == STK_JOB_GET && p->end != STK_UNKNOWN_BYTES) {
        if (p->first + p->got_bytes == p->end) piece_is_whole(l, p, &attempt->answer);
        else stk_piece_retry(l, p, STK_RETRY_BROKEN, -1, outcome == STK_HTTP_WHOLE ? "the body is shorter than the answer says" : words);
    } else if (outcome == STK_HTTP_WHOLE) {
        piece_is_whole(l, p, &attempt->answer);
    } else {
        failed(l, p, outcome, words);
    }
}

const stk_http_events stk_store_events = {.head = on_head, .body = on_body, .sent = on_sent, .end = on_end};
