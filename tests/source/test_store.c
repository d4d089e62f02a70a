/* test_store.c - the client of stores against a server that misbehaves by script: each fault, and what comes of it. */
#include "store_fetcher.h"

#include <errno.h>

#include "base/clock.h"

/* One request through a server of its own. */
static stk_source_metrics figures;
static int requests_seen;

static stk_request *fetch_with(server_script *script, stk_source_config config, stk_request *r)
{
    server *const s = server_start(script, NULL);
    fetcher f;
    open_fetcher(&f, s, config);
    stk_store_submit(f.store, r);
    CHECK(reap(&f) == r);
    figures = metrics_of(&f);
    close_fetcher(&f);
    requests_seen = server_stop(s).requests;
    if (r->status < 0) {
        CHECK_INT(r->error.status, r->status);
        CHECK_INT(r->error.stage, STK_STAGE_FETCH);
        CHECK(r->error.message[0] && r->error.file[0]);
    }
    return r;
}

static stk_request *fetch(server_script *script, const char *address, size_t capacity)
{
    return fetch_with(script, (stk_source_config){0}, make(address, 0, UINT64_MAX, capacity));
}

static void expect(server_script *script, const char *address, size_t capacity, stk_status status, const char *words)
{
    stk_request *const r = fetch(script, address, capacity);
    CHECK_MSG(r->status == status, "%s: %d %s", address, r->status, r->error.message);
    if (words) CHECK_HAS(r->error.message, words);
    unmake(r);
}

static void expect_object(server_script *script, const char *address)
{
    const uint64_t size = object_size(address);
    stk_request *const r = fetch(script, address, (size_t)size);
    CHECK_MSG(r->status == STK_OK, "%s: %s", address, r->error.message);
    CHECK_INT(r->got_bytes, size);
    check_bytes(r);
    unmake(r);
}

/* --- whole, part, look --- */

static void objects_come_whole_and_in_part(void)
{
    expect_object(server_object, "s3://bucket/110000-a");
    CHECK_INT(requests_seen, 1);
    CHECK_INT(figures.requests, 1);
    CHECK_INT(figures.bytes, 110000);
    CHECK_INT(figures.connections, 1);
    CHECK_INT(figures.first_byte.count, 1);
    CHECK_INT(figures.whole.count, 1);
    expect_object(server_object, "s3://bucket/1-a");
    expect_object(server_object, "s3://bucket/0-empty");

    stk_request *r = fetch_with(server_object, (stk_source_config){0}, make("s3://bucket/5000-a", 100, 50, 50));
    CHECK_INT(r->got_bytes, 50);
    CHECK(strncmp(r->etag_is, "\"e", 2) == 0);
    check_bytes(r);
    unmake(r);
    r = fetch_with(server_object, (stk_source_config){0}, make("s3://bucket/5000-a", 4990, 500, 500));
    CHECK_INT(r->got_bytes, 10);
    check_bytes(r);
    unmake(r);
    r = fetch_with(server_object, (stk_source_config){0}, make("s3://bucket/5000-a", 4000, UINT64_MAX, 1000));
    CHECK_INT(r->got_bytes, 1000);
    check_bytes(r);
    unmake(r);
    r = fetch_with(server_object, (stk_source_config){0}, make("s3://bucket/5000-a", 9000, 10, 10));
    CHECK_INT(r->status, STK_OK);
    CHECK_INT(r->got_bytes, 0);
    CHECK_INT(r->total_bytes, 5000);
    unmake(r);
    r = fetch_with(server_object, (stk_source_config){0}, make("s3://bucket/5000-a", 0, 0, 0));
    CHECK_INT(r->status, STK_OK);
    CHECK_INT(r->got_bytes, 0);
    CHECK_INT(r->total_bytes, 5000);
    CHECK(r->etag_is[0]);
    unmake(r);
}

static void what_does_not_fit_is_told_with_its_size(void)
{
    stk_request *const r = fetch(server_object, "s3://bucket/5000-a", 4999);
    CHECK_INT(r->status, STK_ERR_MEDIA_LIMIT);
    CHECK_INT(r->total_bytes, 5000);
    CHECK_HAS(r->error.message, "5000 bytes");
    unmake(r);
}

static bool count_parts(exchange *x)
{
    const char *const range = server_header(x, "Range");
    CHECK(range); /* never the whole at once */
    if (x->nth > 0) CHECK(server_header(x, "If-Match")); /* all parts of one object */
    return server_object(x);
}

static void large_objects_come_in_parts(void)
{
    expect_object(count_parts, "s3://bucket/20000000-large");
    CHECK_INT(requests_seen, 3);
    stk_request *const r = fetch_with(count_parts, (stk_source_config){0}, make("s3://bucket/50000000-large", 3, 40000000, 40000000));
    CHECK_INT(r->got_bytes, 40000000);
    check_bytes(r);
    unmake(r);
    CHECK_INT(requests_seen, 5); /* at multiples of 8 MiB */
    /* Room for much, and little there: one request. */
    stk_request *const small = fetch(server_object, "s3://bucket/1000-small", 40000000);
    CHECK_INT(small->got_bytes, 1000);
    CHECK_INT(requests_seen, 1);
    unmake(small);
    stk_request *const empty = fetch(server_object, "s3://bucket/0-empty", 40000000);
    CHECK_INT(empty->status, STK_OK);
    CHECK_INT(empty->got_bytes, 0);
    unmake(empty);
}

static bool without_ranges(exchange *x)
{
    const object_range r = {0, object_size(x->path), object_size(x->path), false};
    return server_head(x, &r, "") && server_bytes(x, r.first, r.end);
}

static bool range_as_200(exchange *x)
{
    object_range r;
    CHECK(server_range(x, &r));
    return server_say(x, "HTTP/1.1 200 OK\r\nETag: \"x\"\r\nContent-Length: %llu\r\nContent-Range: bytes %llu-%llu/%llu\r\n\r\n",
                      (unsigned long long)(r.end - r.first), (unsigned long long)r.first, (unsigned long long)(r.end - 1),
                      (unsigned long long)r.total) &&
           server_bytes(x, r.first, r.end);
}

static void a_200_to_a_range_is_what_it_says(void)
{
    /* The whole object, though a range was asked for: its range is taken out of it. */
    stk_request *r = fetch_with(without_ranges, (stk_source_config){0}, make("s3://bucket/50000-a", 20000, 1000, 1000));
    CHECK_INT(r->got_bytes, 1000);
    check_bytes(r);
    unmake(r);
    expect_object(without_ranges, "s3://bucket/20000000-large");
    CHECK_INT(requests_seen, 1);
    /* A range with the status of a whole: never taken for the whole. */
    r = fetch_with(range_as_200, (stk_source_config){0}, make("s3://bucket/50000-a", 20000, 1000, 1000));
    CHECK_INT(r->got_bytes, 1000);
    check_bytes(r);
    unmake(r);
    expect_object(range_as_200, "s3://bucket/20000000-large");
    CHECK_INT(requests_seen, 3);
}

/* --- faults that come and go: once, then well --- */

static bool fault_500(exchange *x) { return x->nth ? server_object(x) : server_error(x, 500, "InternalError"); }
static bool fault_503(exchange *x) { return x->nth ? server_object(x) : server_error(x, 503, "SlowDown"); }
static bool fault_429(exchange *x) { return x->nth ? server_object(x) : server_status(x, 429, "Retry-After: 0\r\n", ""); }
static bool fault_400(exchange *x) { return x->nth ? server_object(x) : server_error(x, 400, "RequestTimeout"); }
static bool fault_reset(exchange *x) { return x->nth ? server_object(x) : server_reset(x); }
static bool fault_closed(exchange *x) { return x->nth ? server_object(x) : false; }
static bool fault_garbage(exchange *x) { return x->nth ? server_object(x) : (server_say(x, "\x01\x02 what\r\n\r\n"), false); }

static bool fault_page(exchange *x) { return x->nth ? server_object(x) : server_status(x, 200, "Content-Type: text/html\r\n", "<html>maintenance</html>"); }

static bool fault_ingress(exchange *x) { return x->nth ? server_object(x) : server_status(x, 404, "Content-Type: text/plain\r\n", "404 page not found\n"); }
static bool fault_forbidding_page(exchange *x) { return x->nth ? server_object(x) : server_status(x, 403, "Content-Type: text/html\r\n", "<html>no</html>"); }
static bool fault_denied(exchange *x) { return x->nth ? server_object(x) : server_error(x, 403, "AccessDenied"); }

static bool fault_half_body(exchange *x)
{
    object_range r;
    if (x->nth > 1) return server_object(x);
    CHECK(server_range(x, &r));
    server_head(x, &r, "");
    server_bytes(x, r.first, r.first + (r.end - r.first) / 2);
    return x->nth == 0 ? server_reset(x) : false;
}

static bool fault_short_range(exchange *x)
{
    object_range r;
    if (x->nth) return server_object(x);
    CHECK(server_range(x, &r));
    r.end = r.first + (r.end - r.first) / 2;
    return server_head(x, &r, "") && server_bytes(x, r.first, r.end);
}

static bool fault_other_range(exchange *x)
{
    object_range r;
    if (x->nth || !server_header(x, "Range")) return server_object(x);
    CHECK(server_range(x, &r));
    r.first++;
    r.end++;
    return server_head(x, &r, "") && server_bytes(x, r.first, r.end);
}

static bool fault_lengths(exchange *x)
{
    if (x->nth) return server_object(x);
    return server_say(x, "HTTP/1.1 206 OK\r\nContent-Range: bytes 0-99/50000\r\nContent-Length: 100\r\nContent-Range: bytes 0-98/50000\r\n\r\n") &&
           server_bytes(x, 0, 100);
}

static bool fault_length_text(exchange *x)
{
    return x->nth ? server_object(x) : (server_say(x, "HTTP/1.1 200 OK\r\nContent-Range: apples\r\nContent-Length: 5\r\n\r\nhello"), false);
}

static bool fault_long_head(exchange *x)
{
    if (x->nth) return server_object(x);
    server_say(x, "HTTP/1.1 200 OK\r\n");
    for (int i = 0; i < 3000; i++)
        if (!server_say(x, "x-filler-%d: %060d\r\n", i, i)) return false;
    return false;
}

static bool fault_status_line(exchange *x)
{
    return x->nth ? server_object(x) : (server_say(x, "HTTP/1.1 \r\nContent-Length: 2\r\n\r\nno"), false);
}

static void what_comes_and_goes_is_tried_again(void)
{
    static const struct { server_script *script; stk_retry reason; } faults[] = {
        {fault_500, STK_RETRY_SERVER},       {fault_503, STK_RETRY_THROTTLE},  {fault_429, STK_RETRY_THROTTLE},
        {fault_400, STK_RETRY_SERVER},       {fault_reset, STK_RETRY_BROKEN},  {fault_closed, STK_RETRY_BROKEN},
        {fault_garbage, STK_RETRY_BROKEN},   {fault_half_body, STK_RETRY_BROKEN},
        {fault_ingress, STK_RETRY_SERVER},   {fault_forbidding_page, STK_RETRY_SERVER}, {fault_denied, STK_RETRY_CREDENTIALS},
        {fault_page, STK_RETRY_CONTENT},     {fault_lengths, STK_RETRY_CONTENT},
        {fault_length_text, STK_RETRY_CONTENT},
        {fault_long_head, STK_RETRY_BROKEN}, {fault_status_line, STK_RETRY_COUNT}};
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        expect_object(faults[i].script, "s3://bucket/50000-a");
        CHECK_MSG(requests_seen >= 2, "fault %zu", i);
        if (faults[i].reason < STK_RETRY_COUNT) CHECK_MSG(figures.retries[faults[i].reason] >= 1, "fault %zu", i);
    }
    expect_object(fault_half_body, "s3://bucket/20000000-large");
    static server_script *const ranges[] = {fault_short_range, fault_other_range};
    for (size_t i = 0; i < 2; i++) {
        stk_request *const r = fetch_with(ranges[i], (stk_source_config){0}, make("s3://bucket/50000-a", 100, 2000, 2000));
        CHECK_INT(r->got_bytes, 2000);
        check_bytes(r);
        unmake(r);
    }
}

static bool no_etags(exchange *x)
{
    char body[128] = "";
    memset(body, 'x', (size_t)object_size(x->path));
    return server_status(x, 200, "", body);
}

/* Asked some times, since a proxy's page has none either; then it is known, and the next object comes at once. */
static void a_store_that_gives_no_etags_is_believed_in_the_end(void)
{
    server *const s = server_start(no_etags, NULL);
    fetcher f;
    open_fetcher(&f, s, (stk_source_config){0});
    for (int i = 0; i < 2; i++) {
        stk_request *const r = make("s3://bucket/100-a", 0, UINT64_MAX, 100);
        stk_store_submit(f.store, r);
        CHECK(reap(&f) == r);
        CHECK_MSG(r->status == STK_OK && r->got_bytes == 100 && !r->etag_is[0], "%s", r->error.message);
        unmake(r);
    }
    stk_request *const known = make("s3://bucket/100-a", 0, UINT64_MAX, 100);
    known->etag = stk_str_of("\"e1\"");
    stk_store_submit(f.store, known);
    CHECK(reap(&f) == known);
    CHECK_INT(known->status, STK_ERR_NETWORK);
    CHECK(!known->changed);
    CHECK_HAS(known->error.message, "no ETag");
    close_fetcher(&f);
    CHECK_INT(server_stop(s).requests, 4 + 1 + 10);
    unmake(known);
}

static bool resumes(exchange *x)
{
    object_range r;
    if (x->nth) {
        CHECK_HAS(server_header(x, "Range"), "bytes=4");
        CHECK(server_header(x, "If-Match"));
        return server_object(x);
    }
    CHECK(server_range(x, &r));
    server_head(x, &r, "");
    server_bytes(x, 0, 400 << 10);
    shutdown(x->fd, SHUT_WR); /* what was sent arrives */
    return false;
}

static void a_broken_body_goes_on_where_it_broke(void)
{
    expect_object(resumes, "s3://bucket/1000000-a");
    CHECK_INT(requests_seen, 2);
    CHECK_INT(figures.bytes, 1000000);
}

static bool always_500(exchange *x) { return server_error(x, 500, "InternalError"); }
static bool always_reset(exchange *x) { return server_reset(x); }
static bool always_503(exchange *x) { return server_error(x, 503, "SlowDown"); }

/* Of an object no more than its first six tenths. */
static bool always_cut(exchange *x)
{
    object_range r;
    CHECK(server_range(x, &r));
    server_head(x, &r, "");
    if (r.first < r.total * 6 / 10) server_bytes(x, r.first, r.total * 6 / 10);
    shutdown(x->fd, SHUT_WR); /* what was sent arrives */
    return false;
}

static stk_ns asked_at[2];
static bool says_when(exchange *x)
{
    if (x->nth < 2) asked_at[x->nth] = stk_now();
    return x->nth ? server_object(x) : server_status(x, 503, "Retry-After: 1\r\n", "");
}

static void who_says_when_is_not_asked_before(void)
{
    expect_object(says_when, "s3://bucket/5000-a");
    CHECK_INT(figures.retries[STK_RETRY_THROTTLE], 1);
    CHECK(asked_at[1] - asked_at[0] >= STK_S);
}

static void patience_ends_with_the_loader(void)
{
    expect(always_500, "s3://bucket/100-a", 100, STK_ERR_NETWORK, "after 10 tries");
    CHECK_INT(requests_seen, 10);
    CHECK_INT(figures.retries[STK_RETRY_SERVER], 10);
    expect(always_reset, "s3://bucket/100-a", 100, STK_ERR_NETWORK, "bucket");
    expect(always_503, "s3://bucket/100-a", 100, STK_ERR_NETWORK, "SlowDown");
    CHECK_INT(figures.retries[STK_RETRY_THROTTLE], 10);
    CHECK(figures.concurrency < 256); /* halved */
    /* Field report E07: neither what is fetched anew each time nor what goes on where it broke ends before its end. */
    expect(always_cut, "s3://bucket/50000-a", 50000, STK_ERR_NETWORK, "after 10 tries");
    expect(always_cut, "s3://bucket/1000000-a", 1000000, STK_ERR_NETWORK, "after 10 tries");
    CHECK_INT(figures.whole.count, 0);
}

/* --- slow ones --- */

static bool silent_once(exchange *x)
{
    if (x->nth) return server_object(x);
    server_wait(x, 20000);
    return false;
}

static bool stalls_once(exchange *x)
{
    object_range r;
    if (x->nth) return server_object(x);
    CHECK(server_range(x, &r));
    server_head(x, &r, "");
    server_bytes(x, 0, 1000);
    server_wait(x, 20000);
    return false;
}

static bool drips_once(exchange *x)
{
    object_range r;
    if (x->nth) return server_object(x);
    CHECK(server_range(x, &r));
    server_head(x, &r, "");
    for (uint64_t i = 0; i < r.end; i++) {
        if (!server_bytes(x, i, i + 1)) return false;
        server_wait(x, 10);
    }
    return true;
}

/* Field report E03: nothing after the request, nothing after the first bytes, a byte now and then. */
static void silence_is_not_waited_for(void)
{
    static const struct { server_script *script; stk_ns *limit; } slow[] = {
        {silent_once, &quick.first_byte_ns}, {stalls_once, &quick.stall_ns}, {drips_once, &quick.whole_ns}};
    for (size_t i = 0; i < sizeof slow / sizeof *slow; i++) {
        *slow[i].limit = 2 * STK_S; /* of the good answer, too */
        expect_object(slow[i].script, "s3://bucket/50000-a");
        CHECK_INT(figures.retries[STK_RETRY_SLOW], 1);
        CHECK_INT(figures.connections, 2); /* the slow one is not asked again */
        make_quick();
    }
}

/* --- faults of the object --- */

static bool no_key(exchange *x) { return server_error(x, 404, "NoSuchKey"); }
static bool no_bucket(exchange *x) { return server_error(x, 404, "NoSuchBucket"); }
static bool wrong_signature(exchange *x) { return server_error(x, 403, "SignatureDoesNotMatch"); }
static bool wrong_key(exchange *x) { return server_error(x, 403, "InvalidAccessKeyId"); }
static bool all_denied(exchange *x) { return server_error(x, 403, "AccessDenied"); }
static bool archived(exchange *x) { return server_error(x, 403, "InvalidObjectState"); }
static bool teapot(exchange *x) { return server_error(x, 418, "Teapot"); }

static void each_fault_of_the_object_has_its_status(void)
{
    expect(no_key, "s3://bucket/100-a", 100, STK_ERR_MEDIA_MISSING, "no such key");
    CHECK_INT(requests_seen, 1);
    expect(no_bucket, "s3://bucket/100-a", 100, STK_ERR_NETWORK, "no bucket bucket");
    expect(wrong_signature, "s3://bucket/100-a", 100, STK_ERR_NETWORK, "SignatureDoesNotMatch");
    CHECK_INT(requests_seen, 1);
    expect(wrong_key, "s3://bucket/100-a", 100, STK_ERR_NETWORK, "InvalidAccessKeyId");
    expect(all_denied, "s3://bucket/100-a", 100, STK_ERR_NETWORK, "may not be read");
    expect(archived, "s3://bucket/100-a", 100, STK_ERR_SYSTEM, "archive");
    expect(teapot, "s3://bucket/100-a", 100, STK_ERR_NETWORK, "418");
    expect(server_object, "s3://bucket/", 100, STK_ERR_MEDIA_MISSING, "no key");
    expect(server_object, "s3:///x", 100, STK_ERR_MEDIA_MISSING, "bucket");
}

/* What stores say, at full length; a tab, a bell and U+009B (a terminal's escape in one character) in it. */
#define SIGNATURE "The request signature we calculated does not match the signature you provided. Check your key and signing method."
#define DENIED                                                                                                                     \
    "User: arn:aws:sts::123456789012:assumed-role/Trainer/i-0123456789abcdef is not authorized to perform: s3:GetObject on resource: " \
    "\"arn:aws:s3:::bucket/train.jsonl\" because no identity-based policy allows the s3:GetObject action"
static bool says(exchange *x, int status, const char *code, const char *message)
{
    char body[2048];
    snprintf(body, sizeof body, "<?xml version=\"1.0\"?><Error><Code>%s</Code><Message>%s</Message><StringToSign>AWS4 hush</StringToSign></Error>", code,
             message);
    return server_status(x, status, "", body);
}
static bool says_signature(exchange *x) { return says(x, 403, "SignatureDoesNotMatch", SIGNATURE); }
static bool says_denied(exchange *x) { return says(x, 403, "AccessDenied", DENIED); }
static bool says_controls(exchange *x) { return says(x, 400, "Odd", "one\ntwo\tthree &#x9b;2Jfour\xc3\xbc"); }
static bool says_umlauts(exchange *x)
{
    char many[601] = "";
    for (int i = 0; i < 300; i++) memcpy(many + 2 * i, "\xc3\xbc", 2);
    return says(x, 400, "Odd", many);
}

static void the_words_of_a_store_are_told_as_far_as_there_is_room(void)
{
    expect(says_signature, "s3://bucket/100-a", 100, STK_ERR_NETWORK, "403 SignatureDoesNotMatch: The request signature we calculated does not match the signature "
                                                                   "you provided. Check your key and signing method; look at the access key");
    expect(says_denied, "s3://bucket/100-a", 100, STK_ERR_NETWORK, "bucket bucket may not be read: 403 AccessDenied: User: arn:aws:sts::123456789012:assumed-role/"
                                                                "Trainer/i-0123456789abcdef is not authorized to perform: s3:GetObject on resource: \"arn:aws:s3");
    expect(says_controls, "s3://bucket/100-a", 100, STK_ERR_NETWORK, "400 Odd: one two three   2Jfour\xc3\xbc; look at the address");
    stk_request *const r = fetch_with(says_umlauts, (stk_source_config){0}, make("s3://bucket/100-a", 0, UINT64_MAX, 100));
    const size_t length = strlen(r->error.message);
    CHECK(length > 200 && memcmp(r->error.message + length - 2, "\xc3\xbc", 2) == 0); /* no half of one */
    unmake(r);
}

/* HEAD has no body: the reason is asked for by GET. */
static void a_look_finds_the_reason(void)
{
    static const struct { server_script *script; stk_status status; } looks[] = {
        {no_key, STK_ERR_MEDIA_MISSING}, {no_bucket, STK_ERR_NETWORK}, {wrong_signature, STK_ERR_NETWORK}, {archived, STK_ERR_SYSTEM}};
    for (size_t i = 0; i < sizeof looks / sizeof *looks; i++) {
        stk_request *const r = fetch_with(looks[i].script, (stk_source_config){0}, make("s3://bucket/100-a", 0, 0, 0));
        CHECK_MSG(r->status == looks[i].status, "look %zu: %d %s", i, r->status, r->error.message);
        CHECK_INT(requests_seen, 2);
        unmake(r);
    }
}

/* Of the objects "...-denied", "...-absent" by their names; "-moment" says that it is over after one answer. */
static bool refuses_some(exchange *x)
{
    if (strstr(x->path, "moment") && x->nth) return server_object(x);
    if (strstr(x->path, "denied")) return server_error(x, 403, "AccessDenied");
    if (strstr(x->path, "absent")) return server_status(x, 404, "", "404 page not found\n");
    return server_object(x);
}

static stk_request *fetch_from(fetcher *f, const char *address)
{
    stk_request *const r = make(address, 0, UINT64_MAX, 100);
    stk_store_submit(f->store, r);
    CHECK(reap(f) == r);
    return r;
}

static void what_one_object_is_refused_while_others_are_read_is_of_the_object(void)
{
    static const struct { const char *address; stk_status status; int code; } objects[] = {
        {"s3://bucket/100-denied", STK_ERR_SYSTEM, EACCES}, {"s3://bucket/100-absent", STK_ERR_MEDIA_MISSING, 404},
        {"s3://bucket/100-denied-moment", STK_OK, 0},       {"s3://bucket/100-absent-moment", STK_OK, 0}};
    server *const s = server_start(refuses_some, NULL);
    fetcher f;
    open_fetcher(&f, s, (stk_source_config){0});
    unmake(fetch_from(&f, "s3://bucket/100-a"));
    for (size_t i = 0; i < sizeof objects / sizeof *objects; i++) {
        stk_request *const r = fetch_from(&f, objects[i].address);
        CHECK_MSG(r->status == objects[i].status, "%s: %d %s", objects[i].address, r->status, r->error.message);
        if (r->status < 0) CHECK_INT(r->error.code, objects[i].code);
        else check_bytes(r);
        unmake(r);
    }
    close_fetcher(&f);
    server_stop(s);
}

/* As where a single picture is made again: whoever opened the source has read the manifest. */
static void what_the_caller_has_read_is_a_witness(void)
{
    const stk_str manifest[] = {stk_str_of("s3://other/1-m"), stk_str_of("s3://bucket/100-manifest")};
    server *const s = server_start(refuses_some, NULL);
    fetcher f;
    open_fetcher(&f, s, (stk_source_config){.read = manifest, .read_count = 2});
    stk_request *const r = fetch_from(&f, "s3://bucket/100-denied");
    CHECK_INT(r->error.code, EACCES);
    unmake(r);
    close_fetcher(&f);
    CHECK_INT(server_stop(s).requests, 3); /* it, the witness, it */
}

enum { CALM = 20, REFUSED = 6 };
static bool denies_all_at_last(exchange *x) { return x->request < CALM ? server_object(x) : server_error(x, 403, "AccessDenied"); }
static bool loses_all_at_last(exchange *x) { return x->request < CALM ? server_object(x) : server_status(x, 404, "", "404 page not found\n"); }

static void a_store_that_refuses_all_at_last_masks_nothing(void)
{
    static server_script *const scripts[] = {denies_all_at_last, loses_all_at_last};
    const stk_str manifest = stk_str_of("s3://bucket/100-manifest");
    for (int i = 0; i < 2; i++) {
        server *const s = server_start(scripts[i], NULL);
        fetcher f;
        int good = 0;
        open_fetcher(&f, s, (stk_source_config){.read = &manifest, .read_count = 1});
        for (int k = 0; k < CALM + REFUSED; k++) {
            char address[64];
            snprintf(address, sizeof address, "s3://bucket/100-%d", k);
            stk_store_submit(f.store, make(address, 0, UINT64_MAX, 100));
        }
        for (int k = 0; k < CALM + REFUSED; k++) {
            stk_request *const r = reap(&f);
            CHECK_MSG(r->status == STK_OK || r->status == STK_ERR_NETWORK, "%d %s", r->status, r->error.message);
            good += r->status == STK_OK;
            if (r->status < 0) CHECK_HAS(r->error.message, i ? "look at the endpoint" : "may not be read");
            unmake(r);
        }
        CHECK_INT(good, CALM);
        close_fetcher(&f);
        server_stop(s);
    }
}

static bool ignores_conditions(exchange *x)
{
    object_range r;
    CHECK(server_range(x, &r));
    return server_head(x, &r, "") && server_bytes(x, r.first, r.end);
}

static void another_object_than_the_index_knew_is_a_fault_of_its_own(void)
{
    static server_script *const scripts[] = {server_object, ignores_conditions};
    for (size_t i = 0; i < 2; i++) {
        stk_request *const r = make("s3://bucket/100-a", 0, UINT64_MAX, 100);
        r->etag = stk_str_of("\"other\"");
        fetch_with(scripts[i], (stk_source_config){0}, r);
        CHECK_INT(r->status, STK_ERR_MEDIA);
        CHECK(r->changed);
        CHECK_HAS(r->error.message, "changed");
        CHECK_INT(requests_seen, 2);
        unmake(r);
    }
}

static bool fault_other_state(exchange *x)
{
    return x->nth ? server_object(x) : server_status(x, 200, "ETag: \"page\"\r\n", "<html>maintenance</html>");
}
static bool fault_412(exchange *x) { return x->nth ? server_object(x) : server_error(x, 412, "PreconditionFailed"); }

static void one_answer_alone_makes_no_object_changed(void)
{
    static server_script *const scripts[] = {fault_other_state, fault_412};
    char etag[32];
    snprintf(etag, sizeof etag, "\"e%u\"", object_seed("/bucket/100-a"));
    for (size_t i = 0; i < 2; i++) {
        stk_request *const r = make("s3://bucket/100-a", 0, UINT64_MAX, 100);
        r->etag = stk_str_of(etag);
        fetch_with(scripts[i], (stk_source_config){0}, r);
        check_bytes(r);
        CHECK(!r->changed);
        unmake(r);
    }
}

/* It is another object from the second request on. */
static bool changes(exchange *x)
{
    object_range r;
    CHECK(server_range(x, &r));
    char etag[32];
    snprintf(etag, sizeof etag, "\"v%d\"", x->request > 0);
    const char *const match = server_header(x, "If-Match");
    if (match && strncmp(match, etag, strlen(etag)) != 0) return server_error(x, 412, "PreconditionFailed");
    server_say(x, "HTTP/1.1 206 OK\r\nETag: %s\r\nContent-Length: %llu\r\nContent-Range: bytes %llu-%llu/%llu\r\n\r\n", etag,
               (unsigned long long)(r.end - r.first), (unsigned long long)r.first, (unsigned long long)(r.end - 1), (unsigned long long)r.total);
    return server_bytes(x, r.first, r.end);
}

static void an_object_that_changes_while_it_is_read_is_read_again(void)
{
    expect_object(changes, "s3://bucket/40000000-a");
    CHECK(figures.retries[STK_RETRY_CONTENT] >= 1);
}

/* --- region, clock, checksums --- */

static bool elsewhere(exchange *x)
{
    if (x->request == 0) {
        CHECK_INT(strcmp(x->method, "GET"), 0);
        return server_status(x, 301, "x-amz-bucket-region: eu-central-1\r\n", "<Error><Code>PermanentRedirect</Code></Error>");
    }
    return server_object(x);
}

static bool elsewhere_by_body(exchange *x)
{
    return x->request ? server_object(x)
                      : server_status(x, 400, "", "<Error><Code>AuthorizationHeaderMalformed</Code><Region>eu-west-1</Region></Error>");
}

static bool elsewhere_by_head(exchange *x)
{
    if (x->request == 0) return server_status(x, 301, "", "");
    if (x->request > 1) return server_object(x);
    CHECK_STR(x->method, "HEAD");
    CHECK(strcmp(x->path, "/bucket") == 0 || strcmp(x->path, "/bucket/") == 0);
    return server_status(x, 301, "x-amz-bucket-region: eu-west-2\r\n", "");
}

static bool elsewhere_for_ever(exchange *x)
{
    return server_status(x, 301, x->request % 2 ? "x-amz-bucket-region: eu-west-1\r\n" : "x-amz-bucket-region: eu-west-2\r\n", "");
}

static void the_region_of_a_bucket_is_found(void)
{
    expect_object(elsewhere, "s3://bucket/100-a");
    CHECK_INT(requests_seen, 2);
    CHECK_INT(figures.retries[STK_RETRY_REGION], 1);
    expect_object(elsewhere_by_body, "s3://bucket/100-a");
    expect_object(elsewhere_by_head, "s3://bucket/100-a");
    CHECK_INT(requests_seen, 3);
    expect(elsewhere_for_ever, "s3://bucket/100-a", 100, STK_ERR_NETWORK, "region");
}

static bool skewed(exchange *x)
{
    return x->request ? server_object(x)
                      : server_status(x, 403, "Date: Mon, 30 Nov 2026 11:33:17 GMT\r\n", "<Error><Code>RequestTimeTooSkewed</Code></Error>");
}

static bool always_skewed(exchange *x)
{
    return server_status(x, 403, "Date: Mon, 30 Nov 2026 11:33:17 GMT\r\n", "<Error><Code>RequestTimeTooSkewed</Code></Error>");
}

static void a_clock_that_is_off_is_corrected_once(void)
{
    expect_object(skewed, "s3://bucket/100-a");
    CHECK_INT(figures.retries[STK_RETRY_CLOCK], 1);
    expect(always_skewed, "s3://bucket/100-a", 100, STK_ERR_NETWORK, "clock");
    CHECK_INT(requests_seen, 2);
}

static bool refuses_checksums(exchange *x)
{
    if (server_header(x, "x-amz-checksum-mode")) return server_error(x, 501, "NotImplemented");
    return server_object(x);
}

/* "hello": CRC-32C 9a71bb4c, CRC-64/NVME below, SHA-256 2cf24dba... */
static const char *checksum_line;
static bool says_checksum(exchange *x)
{
    char head[256];
    snprintf(head, sizeof head, "ETag: \"h\"\r\n%s\r\n", checksum_line);
    return server_status(x, 200, head, x->nth == 0 ? "hellO" : "hello");
}

static void checksums_are_compared_where_there_are_any(void)
{
    expect_object(refuses_checksums, "s3://bucket/100-a");
    CHECK_INT(requests_seen, 2);
    static const char *const lines[] = {"x-amz-checksum-crc32c: mnG7TA==", "x-amz-checksum-crc32: NhCmhg==",
                                        "x-amz-checksum-sha256: LPJNul+wow4m6DsqxbninhsWHlwfp0JecwQzYpOLmCQ=",
                                        "x-amz-checksum-sha1: qvTGHdzF6KLavt4PO0gs2a6pQ00="};
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        checksum_line = lines[i];
        stk_request *const r = fetch(says_checksum, "s3://bucket/5-a", 5);
        CHECK_MSG(r->status == STK_OK && memcmp(r->buffer, "hello", 5) == 0, "%s: %s", lines[i], r->error.message);
        CHECK_INT(requests_seen, 2);
        CHECK_INT(figures.retries[STK_RETRY_CONTENT], 1);
        unmake(r);
    }
    checksum_line = "x-amz-checksum-crc32c: mnG7TA==-2"; /* of parts: says nothing of the bytes */
    stk_request *const r = fetch(says_checksum, "s3://bucket/5-a", 5);
    CHECK(r->status == STK_OK && memcmp(r->buffer, "hellO", 5) == 0);
    unmake(r);
}

/* --- plain HTTP --- */

static char base[64];

static stk_request *get(server_script *script, const char *path, const char *allowed)
{
    server *const s = server_start(script, NULL);
    fetcher f;
    char address[512], place[64];
    stk_places *places = NULL;
    stk_error err;
    snprintf(base, sizeof base, "http://127.0.0.1:%d", s->port);
    snprintf(address, sizeof address, "%s%s", base, path);
    if (allowed) {
        snprintf(place, sizeof place, "%s", strcmp(allowed, "it") == 0 ? base : allowed);
        const stk_str text = stk_str_of(place);
        CHECK_OK(stk_places_create(&places, &text, 1, &err), err);
    }
    open_fetcher(&f, s, (stk_source_config){0});
    stk_request *const r = make(address, 0, UINT64_MAX, 1000);
    r->places = places;
    stk_store_submit(f.store, r);
    CHECK(reap(&f) == r);
    figures = metrics_of(&f);
    close_fetcher(&f);
    requests_seen = server_stop(s).requests;
    stk_places_destroy(places);
    return r;
}

static bool hops(exchange *x)
{
    if (strncmp(x->path, "/a/start", 8) == 0) return server_status(x, 302, "Location: next?token=1\r\n", "");
    if (strncmp(x->path, "/a/next?token=1", 15) == 0) return server_status(x, 307, "Location: /b/1000-x\r\n", "");
    if (strncmp(x->path, "/loop", 5) == 0) return server_status(x, 301, "Location: /loop\r\n", "");
    if (strncmp(x->path, "/out", 4) == 0) return server_status(x, 301, "Location: http://192.0.2.1/x\r\n", "");
    if (strncmp(x->path, "/file", 5) == 0) return server_status(x, 301, "Location: file:///etc/passwd\r\n", "");
    if (strncmp(x->path, "/gone", 5) == 0) return server_status(x, 404, "", "");
    if (strncmp(x->path, "/secret", 7) == 0) return server_status(x, 403, "", "");
    if (strncmp(x->path, "/teapot", 7) == 0) return server_status(x, 418, "", "");
    if (strncmp(x->path, "/nothing", 8) == 0) return server_say(x, "HTTP/1.1 204 None\r\n\r\n");
    if (strncmp(x->path, "/nowhere", 8) == 0) return server_status(x, 302, "", "");
    return server_object(x);
}

static void plain_http_follows_redirects_as_far_as_it_may(void)
{
    stk_request *r = get(hops, "/1000-x", "it");
    CHECK_MSG(r->status == STK_OK, "%s", r->error.message);
    CHECK_INT(r->got_bytes, 1000);
    unmake(r);
    r = get(hops, "/a/start", "it");
    CHECK_MSG(r->status == STK_OK, "%s", r->error.message);
    CHECK_INT(r->got_bytes, 1000);
    CHECK_INT(requests_seen, 3);
    unmake(r);
    static const struct { const char *path, *allowed; stk_status status; const char *words; } refused[] = {
        {"/loop", "it", STK_ERR_MEDIA_MISSING, "more than 5"},
        {"/out", "it", STK_ERR_MEDIA_DENIED, "add allow: [\"http://192.0.2.1\"]"},
        {"/file", "it", STK_ERR_MEDIA_MISSING, "no http or https address"},
        {"/gone", "it", STK_ERR_MEDIA_MISSING, "404"},
        {"/secret", "it", STK_ERR_SYSTEM, "403"},
        {"/teapot", "it", STK_ERR_SYSTEM, "418"}, /* of this address alone: others of the host may be fine */
        {"/nothing", "it", STK_ERR_MEDIA_MISSING, "204"},
        {"/nowhere", "it", STK_ERR_MEDIA_MISSING, "302"},
        {"/1000-x", "http://example.com", STK_ERR_MEDIA_DENIED, "outside"},
        {"/1000-x", NULL, STK_ERR_MEDIA_DENIED, "private"},
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        r = get(hops, refused[i].path, refused[i].allowed);
        CHECK_MSG(r->status == refused[i].status, "%s: %d %s", refused[i].path, r->status, r->error.message);
        if (refused[i].words) CHECK_HAS(r->error.message, refused[i].words);
        unmake(r);
    }
}

/* The number in the path is the answer to the first look. */
static bool answers_once(exchange *x)
{
    const int status = atoi(x->path + 1);
    if (x->nth) return server_object(x);
    return status == 204 ? server_say(x, "HTTP/1.1 204 None\r\n\r\n") : server_status(x, status, "Content-Type: text/html\r\n", "<html>not now</html>");
}

static void an_address_of_plain_http_is_looked_at_again(void)
{
    static const int statuses[] = {202, 204, 302, 401, 403, 404, 407, 410, 418, 421, 425, 429, 451, 500};
    for (size_t i = 0; i < sizeof statuses / sizeof *statuses; i++) {
        char path[64];
        snprintf(path, sizeof path, "/%d/1000-x", statuses[i]);
        stk_request *const r = get(answers_once, path, "it");
        CHECK_MSG(r->status == STK_OK && r->got_bytes == 1000, "%s: %d %s", path, r->status, r->error.message);
        CHECK_INT(requests_seen, 2);
        unmake(r);
    }
    stk_request *const gone = get(hops, "/gone", "it");
    CHECK_INT(requests_seen, 3);
    unmake(gone);
}

static bool quotes(exchange *x)
{
    char words[300];
    snprintf(words, sizeof words, "what is %.200s?", x->path);
    return says(x, 400, "Odd", words);
}

static void no_query_is_told(void)
{
    stk_request *const asked = get(quotes, "/x?X-Amz-Signature=secret", "it");
    CHECK_INT(asked->status, STK_ERR_SYSTEM);
    CHECK_INT(asked->error.code, EACCES);
    CHECK(!strstr(asked->error.message, "secret") && !strstr(asked->error.file, "secret"));
    CHECK_HAS(asked->error.message, "the server answers 400: this address may not be read; a presigned URL may have expired");
    unmake(asked);
    stk_request *const r = get(hops, "/gone?X-Amz-Signature=secret", "it");
    CHECK_INT(r->status, STK_ERR_MEDIA_MISSING);
    CHECK(!strstr(r->error.message, "secret") && !strstr(r->error.file, "secret"));
    CHECK_HAS(r->error.file, "/gone");
    unmake(r);
}

static void a_name_that_does_not_resolve_is_tried_again(void)
{
    server *const s = server_start(server_object, NULL);
    fetcher f;
    quick.attempts = 2;
    open_fetcher(&f, s, (stk_source_config){0});
    stk_request *const r = make("http://no-such-host.invalid/x", 0, UINT64_MAX, 100);
    stk_store_submit(f.store, r);
    CHECK(reap(&f) == r);
    CHECK_INT(r->status, STK_ERR_NETWORK);
    CHECK_HAS(r->error.message, "host: no-such-host.invalid");
    close_fetcher(&f);
    server_stop(s);
    unmake(r);
    make_quick();
}

/* --- lists and puts --- */

static bool lists(exchange *x)
{
    if (strcmp(x->method, "PUT") == 0) {
        if (x->nth == 0) return server_error(x, 500, "InternalError");
        CHECK_INT(x->body_bytes, 300000);
        for (size_t i = 0; i < x->body_bytes; i++) CHECK((uint8_t)x->body[i] == (uint8_t)(i * 7));
        return server_status(x, 200, "ETag: \"new\"\r\n", "");
    }
    if (strstr(x->path, "continuation-token=two%2B"))
        return server_status(x, 200, "", "<ListBucketResult><IsTruncated>false</IsTruncated><EncodingType>url</EncodingType>"
                                         "<Contents><Key>a%2Bb+c</Key><Size>7</Size><ETag>&quot;x&quot;</ETag></Contents></ListBucketResult>");
    CHECK(strstr(x->path, "prefix=a%20b%2F") && strstr(x->path, "list-type=2"));
    return server_status(x, 200, "", "<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>two+</NextContinuationToken>"
                                     "<Contents><Key>plain+key</Key><Size>5</Size></Contents></ListBucketResult>");
}

static char listed[256];
static bool note_entry(void *context, const stk_source_entry *e)
{
    const size_t at = strlen(listed);
    snprintf(listed + at, sizeof listed - at, "%.*s %llu %.*s;", (int)e->key.size_bytes, e->key.data, (unsigned long long)e->size_bytes,
             (int)e->etag.size_bytes, e->etag.data);
    return context == NULL;
}

static void lists_have_all_pages_and_puts_are_tried_again(void)
{
    server *const s = server_start(lists, NULL);
    fetcher f;
    stk_error err = {0};
    open_fetcher(&f, s, (stk_source_config){0});
    CHECK_OK(stk_store_list(f.store, stk_str_of("s3://bucket/a b/"), note_entry, NULL, &err), err);
    CHECK_STR(listed, "plain+key 5 ;a+b c 7 \"x\";");
    listed[0] = 0;
    CHECK_INT(stk_store_list(f.store, stk_str_of("s3://bucket/a b/"), note_entry, listed, &err), STK_ERR_INTERRUPTED);
    CHECK_STR(listed, "plain+key 5 ;");

    uint8_t *const bytes = malloc(300000);
    for (size_t i = 0; i < 300000; i++) bytes[i] = (uint8_t)(i * 7);
    CHECK_OK(stk_store_put(f.store, stk_str_of("s3://bucket/new"), (stk_bytes){bytes, 300000}, &err), err);
    free(bytes);
    CHECK_INT(stk_store_put(f.store, stk_str_of("s3://bucket"), (stk_bytes){0}, &err), STK_ERR_OPTION);
    CHECK_INT(stk_store_list(f.store, stk_str_of("http://host/"), note_entry, NULL, &err), STK_ERR_OPTION);
    const stk_source_metrics m = metrics_of(&f);
    CHECK_INT(m.list_requests, 3);
    CHECK_INT(m.put_requests, 2);
    close_fetcher(&f);
    server_stop(s);
}

static bool is_no_store(exchange *x) { return server_status(x, 404, "Content-Type: text/html\r\n", "<html>not here</html>"); }

static void who_is_no_store_has_no_list(void)
{
    server *const s = server_start(is_no_store, NULL);
    fetcher f;
    stk_error err = {0};
    open_fetcher(&f, s, (stk_source_config){0});
    CHECK_INT(stk_store_list(f.store, stk_str_of("s3://bucket/a"), note_entry, NULL, &err), STK_ERR_NETWORK);
    CHECK_HAS(err.message, "404 without the error code of a store, as of a proxy: look at the endpoint");
    CHECK_INT(stk_store_put(f.store, stk_str_of("s3://bucket/a"), (stk_bytes){(const uint8_t *)"x", 1}, &err), STK_ERR_NETWORK);
    close_fetcher(&f);
    server_stop(s);
}

/* Refused by its size alone: not a byte of it is there to be looked at. */
static void what_one_request_cannot_store_is_refused(void)
{
    server *const s = server_start(lists, NULL);
    fetcher f;
    stk_error err = {0};
    open_fetcher(&f, s, (stk_source_config){0});
    CHECK_INT(stk_store_put(f.store, stk_str_of("s3://bucket/new"), (stk_bytes){NULL, STK_PUT_BYTES_MAX + 1}, &err), STK_ERR_OPTION);
    CHECK_HAS(err.message, "5368709121 bytes");
    CHECK_HAS(err.message, "5 GiB");
    close_fetcher(&f);
    CHECK_INT(server_stop(s).requests, 0);
}

int main(int argc, char **argv)
{
    make_quick();
    setenv("no_proxy", "*", 1);
    TEST_MAIN(argc, argv, TEST(objects_come_whole_and_in_part), TEST(what_does_not_fit_is_told_with_its_size),
              TEST(large_objects_come_in_parts), TEST(a_200_to_a_range_is_what_it_says), TEST(what_comes_and_goes_is_tried_again),
              TEST(a_store_that_gives_no_etags_is_believed_in_the_end),
              TEST(a_broken_body_goes_on_where_it_broke), TEST(who_says_when_is_not_asked_before), TEST(patience_ends_with_the_loader), TEST(silence_is_not_waited_for),
              TEST(each_fault_of_the_object_has_its_status), TEST(the_words_of_a_store_are_told_as_far_as_there_is_room),
              TEST(a_look_finds_the_reason),
              TEST(what_one_object_is_refused_while_others_are_read_is_of_the_object), TEST(what_the_caller_has_read_is_a_witness),
              TEST(a_store_that_refuses_all_at_last_masks_nothing),
              TEST(another_object_than_the_index_knew_is_a_fault_of_its_own), TEST(one_answer_alone_makes_no_object_changed),
              TEST(an_object_that_changes_while_it_is_read_is_read_again), TEST(the_region_of_a_bucket_is_found),
              TEST(a_clock_that_is_off_is_corrected_once), TEST(checksums_are_compared_where_there_are_any),
              TEST(plain_http_follows_redirects_as_far_as_it_may), TEST(an_address_of_plain_http_is_looked_at_again), TEST(no_query_is_told),
              TEST(a_name_that_does_not_resolve_is_tried_again), TEST(lists_have_all_pages_and_puts_are_tried_again), TEST(who_is_no_store_has_no_list),
              TEST(what_one_request_cannot_store_is_refused));
}
