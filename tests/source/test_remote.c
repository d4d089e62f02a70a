/* test_remote.c - remote addresses through the source: tars, cancel, close. */
#include <stdatomic.h>

#include "store_server.h"

#include "source/source.h"

static char endpoint[64];
static server *store;
static uint8_t room[400000 + STK_PAD_BYTES];

static stk_source *open_source(server_script *script)
{
    stk_error err;
    stk_source *source;
    store = server_start(script, NULL);
    snprintf(endpoint, sizeof endpoint, "http://127.0.0.1:%d", store->port);
    const stk_source_config config = {.file_threads = 2, .endpoint = endpoint, .anonymous = true, .tar_lists = test_folder()};
    CHECK_OK(stk_source_open(&source, &config, &err), err);
    return source;
}

/* Closes both; how many requests the server saw. */
static int close_source(stk_source **source)
{
    stk_source_close(source);
    return server_stop(store).requests;
}

static stk_request request_of(const char *address)
{
    return (stk_request){.address = stk_str_of(address), .size_bytes = UINT64_MAX, .buffer = room, .capacity_bytes = 400000};
}

static stk_request fetch(stk_source *source, stk_request request)
{
    stk_source_submit(source, &request);
    CHECK(stk_source_reap(source, STK_FOREVER) == &request);
    return request;
}

static void check_bytes(const stk_request *r, const char *path, uint64_t first, size_t size)
{
    CHECK_MSG(r->status == STK_OK, "%d %s", r->status, r->error.message);
    CHECK_INT(r->got_bytes, size);
    for (size_t i = 0; i < size; i++) CHECK(room[i] == object_byte(object_seed(path), first + i));
}

static void local_and_remote_share_a_queue(void)
{
    char path[400];
    stk_source *source = open_source(server_object);
    snprintf(path, sizeof path, "%s/local", test_folder());
    FILE *const file = fopen(path, "wb");
    CHECK(file && fputs("local", file) >= 0 && fclose(file) == 0);
    stk_request r = fetch(source, request_of("s3://bucket/5000-a"));
    check_bytes(&r, "/bucket/5000-a", 0, 5000);
    r = fetch(source, request_of(path));
    CHECK_INT(r.got_bytes, 5);
    r = fetch(source, request_of("s3://bucket"));
    CHECK_INT(r.status, STK_ERR_MEDIA_MISSING);
    CHECK_STR(r.error.file, "s3://bucket");
    stk_source_metrics m;
    stk_source_get_metrics(source, &m);
    CHECK_INT(m.requests, 1);
    CHECK_INT(close_source(&source), 1);
}

static void a_part_of_a_remote_tar_is_a_range_of_it(void)
{
    stk_source *source = open_source(server_object);
    stk_request r = fetch(source, request_of("tar:512+1000::s3://bucket/50000-tar"));
    check_bytes(&r, "/bucket/50000-tar", 512, 1000);
    CHECK_INT(r.total_bytes, 1000);
    r = fetch(source, request_of("tar:49900+1000::s3://bucket/50000-tar"));
    CHECK_INT(r.status, STK_ERR_MEDIA);
    CHECK_INT(close_source(&source), 2);
}

static bool page_first(exchange *x)
{
    return x->request ? server_object(x) : server_status(x, 200, "Content-Type: text/html\r\n", "<html>maintenance</html>");
}

/* Under an ETag the cache keeps what the store gave under it, not what a proxy said in between. */
static void the_page_of_a_proxy_is_no_object_and_is_not_kept(void)
{
    static char etag[32], cache[400];
    snprintf(etag, sizeof etag, "\"e%u\"", object_seed("/bucket/5000-a"));
    snprintf(cache, sizeof cache, "%s/cache", test_folder());
    store = server_start(page_first, NULL);
    snprintf(endpoint, sizeof endpoint, "http://127.0.0.1:%d", store->port);
    const stk_source_config config = {.file_threads = 1, .endpoint = endpoint, .anonymous = true, .cache_path = cache, .cache_bytes = 1 << 20};
    for (int run = 0; run < 2; run++) {
        stk_error err;
        stk_source *source;
        CHECK_OK(stk_source_open(&source, &config, &err), err);
        stk_request r = request_of("s3://bucket/5000-a");
        r.etag = stk_str_of(etag);
        r.cache_value = 1;
        r = fetch(source, r);
        check_bytes(&r, "/bucket/5000-a", 0, 5000);
        stk_source_metrics m;
        stk_source_get_metrics(source, &m);
        CHECK_INT(m.cache_hits, run);
        CHECK_INT(m.retries[STK_RETRY_CONTENT], run ? 0 : 1);
        stk_source_close(&source);
    }
    CHECK_INT(server_stop(store).requests, 2);
}

static bool never(exchange *x)
{
    server_wait(x, 60000);
    return false;
}

/* A thread of the source waits for the store, and the loop for the server: neither holds up a cancel or the end. */
static void nothing_that_waits_holds_up_cancel_or_close(void)
{
    static const char *const addresses[] = {"s3://bucket/100-a", "tar:0+10::s3://bucket/100-b"};
    for (int i = 0; i < 2; i++) {
        stk_request r = request_of(addresses[i]);
        stk_source *source = open_source(never);
        stk_source_submit(source, &r);
        server_wait_requests(store, 1);
        CHECK(stk_source_reap(source, 0) == NULL);
        stk_source_cancel(source, &r);
        CHECK(stk_source_reap(source, STK_FOREVER) == &r);
        CHECK_INT(r.status, STK_ERR_INTERRUPTED);
        stk_source_submit(source, &r);
        server_wait_requests(store, 2);
        CHECK_INT(close_source(&source), 2);
        CHECK_INT(stk_alloc_bytes(STK_TAG_SOURCE), 0);
    }
}

static atomic_bool open_gate;

/* Held until the test lets it go, or the other side has gone. */
static bool behind_a_gate(exchange *x)
{
    struct pollfd p = {.fd = x->fd, .events = POLLRDHUP};
    while (!atomic_load(&open_gate) && poll(&p, 1, 5) == 0) continue;
    return server_object(x);
}

static stk_request *reap_any(stk_source *source)
{
    stk_request *const r = stk_source_reap(source, STK_FOREVER);
    CHECK(r);
    return r;
}

static void what_is_under_way_is_not_asked_for_again(void)
{
    enum { MANY = 5, SIZE = 3000 };
    static uint8_t rooms[MANY][SIZE + STK_PAD_BYTES];
    stk_request r[MANY];
    atomic_store(&open_gate, false);
    stk_source *source = open_source(behind_a_gate);
    for (int i = 0; i < MANY; i++) {
        r[i] = request_of(i == 3 ? "s3://bucket/3000-b" : "s3://bucket/3000-a");
        r[i].buffer = rooms[i];
        r[i].capacity_bytes = SIZE;
        if (i == 4) r[i].offset = 1000; /* other bytes */
        stk_source_submit(source, &r[i]);
    }
    server_wait_requests(store, 3);
    stk_source_cancel(source, &r[2]); /* who follows leaves at once */
    CHECK(reap_any(source) == &r[2] && r[2].status == STK_ERR_INTERRUPTED);
    atomic_store(&open_gate, true);
    for (int i = 0; i < MANY - 1; i++) {
        stk_request *const came = reap_any(source);
        memcpy(room, came->buffer, came->got_bytes);
        check_bytes(came, came == &r[3] ? "/bucket/3000-b" : "/bucket/3000-a", came->offset, SIZE - came->offset);
        CHECK_INT(came->total_bytes, SIZE);
        CHECK(came->etag_is[0]);
    }
    CHECK_INT(close_source(&source), 3);
}

static void a_request_called_back_leaves_its_followers_to_themselves(void)
{
    stk_request r[2] = {request_of("s3://bucket/3000-a"), request_of("s3://bucket/3000-a")};
    atomic_store(&open_gate, false);
    stk_source *source = open_source(behind_a_gate);
    stk_source_submit(source, &r[0]);
    server_wait_requests(store, 1);
    stk_source_submit(source, &r[1]);
    stk_source_cancel(source, &r[0]);
    CHECK(reap_any(source) == &r[0] && r[0].status == STK_ERR_INTERRUPTED);
    atomic_store(&open_gate, true);
    CHECK(reap_any(source) == &r[1]);
    check_bytes(&r[1], "/bucket/3000-a", 0, 3000);
    CHECK_INT(close_source(&source), 2);
}

static void a_configuration_that_cannot_be_used_is_told(void)
{
    stk_error err;
    stk_source *source;
    CHECK_OK(stk_source_open(&source, &(stk_source_config){.endpoint = "ftp://x", .anonymous = true}, &err), err);
    stk_request r = fetch(source, request_of("s3://bucket/x"));
    CHECK_INT(r.status, STK_ERR_NETWORK);
    CHECK_HAS(r.error.message, "http");
    CHECK(stk_source_put(source, stk_str_of("s3://bucket/x"), (stk_bytes){0}, &err) < 0);
    stk_source_close(&source);
}

int main(int argc, char **argv)
{
    setenv("no_proxy", "*", 1);
    setenv("AWS_CONFIG_FILE", "/nonexistent", 1);
    setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent", 1);
    TEST_MAIN(argc, argv, TEST(local_and_remote_share_a_queue), TEST(a_part_of_a_remote_tar_is_a_range_of_it),
              TEST(the_page_of_a_proxy_is_no_object_and_is_not_kept), TEST(nothing_that_waits_holds_up_cancel_or_close),
              TEST(what_is_under_way_is_not_asked_for_again), TEST(a_request_called_back_leaves_its_followers_to_themselves),
              TEST(a_configuration_that_cannot_be_used_is_told));
}
