/* store_ask.c - one piece as a question: where it is asked, what is signed, which range. */
#include "source/store_core.h"

#include <time.h>

enum { MOST_LINES = 24 };

typedef struct question {
    stk_loop *loop;
    stk_piece *piece;
    stk_attempt *attempt;
    stk_http_ask ask;
    const char *line[MOST_LINES];
    stk_signed signed_lines;
    char range[64], if_match[STK_ETAG_BYTES + 16];
} question;

static void add_line(question *q, const char *line)
{
    q->line[q->ask.header_count++] = line;
}

/* The range that is still missing; "" when that is the whole object. */
static void write_range(question *q)
{
    const stk_piece *const p = q->piece;
    const stk_job *const job = p->job;
    const uint64_t first = p->first + p->got_bytes;
    if (job->kind == STK_JOB_LOOK && job->by_get) {
        snprintf(q->range, sizeof q->range, "Range: bytes=0-0");
    } else if (job->kind == STK_JOB_GET && p->end != STK_UNKNOWN_BYTES) {
        snprintf(q->range, sizeof q->range, "Range: bytes=%llu-%llu", (unsigned long long)first, (unsigned long long)(p->end - 1));
    } else if (job->kind == STK_JOB_GET && first > 0) {
        snprintf(q->range, sizeof q->range, "Range: bytes=%llu-", (unsigned long long)first);
    }
    if (p->first == 0 && p->got_bytes == 0 && p->end == job->end && p->end == job->total) q->range[0] = 0; /* asked again, whole */
}

/* What is not signed, because proxies may change it. */
static void add_conditions(question *q)
{
    const stk_job *const job = q->piece->job;
    if (q->attempt->asks_region || q->attempt->asks_witness) return;
    if (q->range[0]) add_line(q, q->range);
    /* A weak ETag never matches (RFC 9110); what came is compared all the same. */
    if (job->etag[0] && strncmp(job->etag, "W/", 2) != 0) {
        snprintf(q->if_match, sizeof q->if_match, "If-Match: %s", job->etag);
        add_line(q, q->if_match);
    }
    if (job->kind == STK_JOB_PUT) add_line(q, "Expect:"); /* do not wait for 100 Continue */
}

static stk_status sign(question *q, const stk_endpoint *endpoint, const stk_credentials *credentials, const stk_wire *wire,
                       stk_error *err)
{
    static const char *const method[] = {[STK_HTTP_GET] = "GET", [STK_HTTP_HEAD] = "HEAD", [STK_HTTP_PUT] = "PUT"};
    const stk_job *const job = q->piece->job;
    stk_header header[2];
    size_t count = 0;
    /* A range has no checksum of its own. */
    q->attempt->asks_checksums = job->kind == STK_JOB_GET && !q->range[0] && !job->peer->no_checksums && !q->attempt->asks_region &&
                                 !q->attempt->asks_witness;
    if (q->attempt->asks_checksums) header[count++] = (stk_header){"x-amz-checksum-mode", stk_str_of("ENABLED")};
    if (q->loop->store->config.requester_pays) header[count++] = (stk_header){"x-amz-request-payer", stk_str_of("requester")};
    const stk_sign_request request = {
        .method = method[q->ask.method], .host = wire->host, .path = wire->path, .query = wire->query, .region = endpoint->region,
        .service = "s3", .credentials = credentials, .header = header, .header_count = count,
        .payload_sha256 = job->kind == STK_JOB_PUT && !q->attempt->asks_region ? ((const stk_call *)job->request->work)->sha256 : NULL,
        .unix_seconds = (int64_t)time(NULL) + job->peer->clock_offset_s};
    STK_TRY(stk_sign(q->loop->signer, &q->signed_lines, q->loop->headers, sizeof q->loop->headers, &request, err));
    for (size_t i = 0; i < q->signed_lines.count; i++) add_line(q, q->signed_lines.line[i]);
    return STK_OK;
}

static bool is_other(stk_str key, const stk_job *job)
{
    return key.size_bytes && !stk_str_equal(key, job->url.key);
}

stk_str stk_job_witness(const stk_loop *l, const stk_job *job)
{
    const stk_source_config *const config = &l->store->config;
    const stk_str last = stk_str_of(job->peer->witness);
    if (is_other(last, job)) return last;
    for (size_t i = 0; i < config->read_count; i++) {
        stk_url url;
        stk_error unused;
        if (stk_url_parse(&url, config->read[i], &unused) == STK_OK && url.kind == STK_URL_S3 && stk_str_equal(url.bucket, job->url.bucket) &&
            is_other(url.key, job))
            return url.key;
    }
    return (stk_str){"", 0};
}

/* STK_AGAIN: credentials are on their way. */
static stk_status ask_store(question *q, stk_error *err)
{
    stk_loop *const l = q->loop;
    const stk_job *const job = q->piece->job;
    stk_provider *const provider = stk_store_provider(l->store, err);
    if (!provider) return err->status;
    const stk_credentials *credentials;
    const stk_status found = stk_provider_get(provider, &credentials, err);
    if (found != STK_OK) return found;
    q->attempt->generation = credentials->generation;

    stk_endpoint endpoint = *stk_provider_endpoint(provider);
    stk_wire wire;
    const stk_str none = {"", 0}, query = job->kind == STK_JOB_LIST ? ((const stk_call *)job->request->work)->query : none;
    const bool whole_bucket = q->attempt->asks_region || job->kind == STK_JOB_LIST;
    const stk_str key = whole_bucket ? none : q->attempt->asks_witness ? stk_job_witness(l, job) : job->url.key;
    stk_status status = STK_OK;
    if (job->peer->region[0]) status = stk_endpoint_set_region(&endpoint, stk_str_of(job->peer->region), err);
    if (status == STK_OK)
        status = stk_endpoint_wire(&wire, l->url, sizeof l->url, &endpoint, job->url.bucket, key,
                                   q->attempt->asks_region ? none : query, err);
    if (status == STK_OK) status = sign(q, &endpoint, credentials, &wire, err);
    stk_credentials_release(credentials);
    if (status < 0) return status;
    q->ask.url = wire.url;
    q->ask.may_be_private = true; /* what the configuration names, or Amazon, which networks may reach by a private address */
    q->ask.ca = stk_provider_ca(provider);
    return STK_OK;
}

static stk_status ask_web(question *q, stk_error *err)
{
    stk_loop *const l = q->loop;
    const stk_job *const job = q->piece->job;
    const stk_str address = job->location ? stk_str_of(job->location) : job->request->address;
    stk_wire wire;
    STK_TRY(stk_url_wire(&wire, l->url, sizeof l->url, &job->url, err));
    q->ask.url = wire.url;
    q->ask.ca = l->store->config.ca;
    const stk_places *const named[] = {l->store->config.endpoints, job->request->places};
    for (int i = 0; i < 2; i++) q->ask.may_be_private |= named[i] && stk_places_hold_address(named[i], address);
    return STK_OK;
}

static stk_attempt *take_attempt(stk_loop *l)
{
    stk_attempt *attempt = l->free_attempts;
    if (attempt) l->free_attempts = attempt->next;
    else attempt = stk_alloc(STK_TAG_SOURCE, sizeof *attempt);
    return attempt;
}

static void begin_attempt(stk_attempt *attempt, stk_piece *piece, bool hedge)
{
    attempt->piece = piece;
    attempt->exchange = NULL;
    attempt->started = stk_now();
    attempt->size_class = stk_size_class(stk_piece_wanted_bytes(piece));
    attempt->first_byte = attempt->last_byte = 0;
    attempt->generation = attempt->skip_bytes = attempt->body_bytes = 0;
    attempt->is_hedge = hedge;
    attempt->asks_region = piece->job->asks_region;
    attempt->asks_witness = piece->asks_witness;
    attempt->asks_checksums = attempt->accepted = false;
    attempt->stop = STK_STOP_NONE;
    attempt->room_bytes = 0;
    stk_answer_begin(&attempt->answer);
}

static stk_http_method method_of(const stk_piece *piece)
{
    const stk_job *const job = piece->job;
    if (job->asks_region || piece->asks_witness) return STK_HTTP_HEAD;
    return job->kind == STK_JOB_PUT ? STK_HTTP_PUT : job->kind == STK_JOB_LOOK && !job->by_get ? STK_HTTP_HEAD : STK_HTTP_GET;
}

stk_status stk_piece_launch(stk_loop *l, stk_piece *piece, bool hedge)
{
    stk_job *const job = piece->job;
    stk_error err = {.message = "out of memory: a request"};
    question q = {.loop = l, .piece = piece, .attempt = take_attempt(l)};
    if (!q.attempt) return l->in_flight ? STK_AGAIN : stk_job_fail(l, job, STK_ERR_NOMEM, 0, "%s", err.message);
    begin_attempt(q.attempt, piece, hedge);
    q.ask = (stk_http_ask){.method = method_of(piece), .header = q.line, .fresh = piece->fresh || hedge, .user = q.attempt};
    q.attempt->is_head = q.ask.method == STK_HTTP_HEAD;
    if (q.ask.method == STK_HTTP_PUT) q.ask.upload = ((const stk_call *)job->request->work)->upload;
    if (!q.attempt->asks_region && !q.attempt->asks_witness) write_range(&q);
    stk_status status = job->url.kind == STK_URL_S3 ? ask_store(&q, &err) : ask_web(&q, &err);
    if (status == STK_OK) {
        add_conditions(&q);
        q.attempt->exchange = stk_http_start(l->http, &q.ask);
        if (!q.attempt->exchange) status = l->in_flight ? STK_AGAIN : STK_ERR_NOMEM;
    } else if (status == STK_AGAIN) {
        l->awaits_credentials = true;
    }
    if (status != STK_OK) {
        q.attempt->next = l->free_attempts;
        l->free_attempts = q.attempt;
        if (status == STK_AGAIN || hedge) return STK_AGAIN; /* without a second attempt the first goes on */
        return stk_job_fail(l, job, job->url.kind == STK_URL_S3 && status != STK_ERR_NOMEM ? STK_ERR_NETWORK : status,
                            job->refused_status, "%s",
                            err.message);
    }
    int place = 0;
    while (piece->attempt[place]) place++;
    piece->attempt[place] = q.attempt;
    l->in_flight++;
    job->peer->in_flight++;
    l->metrics.requests++;
    if (job->kind == STK_JOB_LIST) l->metrics.list_requests++;
    if (job->kind == STK_JOB_PUT) l->metrics.put_requests++;
    if (hedge) l->metrics.hedges_sent++;
    stk_piece_watch(l, piece);
    return STK_OK;
}
