/* test_store_merge.c - files of a tar that come by one range: when, with which bytes, and that nothing else depends on it. */
#include "store_fetcher.h"

#define TAR "s3://bucket/8000000-tar"

enum { FILES = 40 };

static server *store;
static fetcher f;
static stk_request *first, *file[FILES];
static int ranges; /* requests for the tar with a range over more than one file's bytes */
static uint64_t longest;
static bool released;

/* The first request of all holds up the window of one, until the test has submitted the rest. */
static bool hold(exchange *x)
{
    pthread_mutex_lock(&x->server->lock);
    while (!released && !x->server->stop) pthread_cond_wait(&x->server->change, &x->server->lock);
    pthread_mutex_unlock(&x->server->lock);
    return server_object(x);
}

static void note_range(exchange *x, const object_range *r)
{
    pthread_mutex_lock(&x->server->lock);
    if (r->end - r->first > longest) longest = r->end - r->first;
    if (r->end - r->first > 10000) ranges++;
    pthread_mutex_unlock(&x->server->lock);
}

static bool is_merged(const object_range *r)
{
    return r->end - r->first > 10000;
}

static bool calm(exchange *x)
{
    object_range r;
    if (x->request == 0) return hold(x);
    CHECK(server_range(x, &r));
    note_range(x, &r);
    return server_object(x);
}

static void begin_with(server_script *script, int places)
{
    quick.start = quick.limit = places;
    ranges = 0;
    longest = 0;
    released = false;
    store = server_start(script, NULL);
    open_fetcher(&f, store, (stk_source_config){0});
    first = make("s3://bucket/10-first", 0, UINT64_MAX, 10);
    stk_store_submit(f.store, first);
    server_wait_requests(store, 1);
    memset(file, 0, sizeof file);
}

static void begin(server_script *script)
{
    begin_with(script, 1);
}

/* As source.c asks for a file of a tar. */
static stk_request *ask(int i, const char *tar, uint64_t offset, uint64_t size, const char *etag)
{
    stk_request *const r = file[i] = make(tar, offset, size, (size_t)size);
    r->asked.address = stk_str_of("tar://x");
    r->etag = stk_str_of(etag);
    r->priority = (uint64_t)i + 1;
    stk_store_submit(f.store, r);
    return r;
}

static void release(void)
{
    pthread_mutex_lock(&store->lock);
    released = true;
    pthread_cond_broadcast(&store->change);
    pthread_mutex_unlock(&store->lock);
}

/* All are back; how many requests the server saw beside the first. */
static int finish(void)
{
    int count = 1;
    release();
    for (int i = 0; i < FILES; i++) count += file[i] != NULL;
    for (; count; count--) reap(&f)->owner = &f;
    close_fetcher(&f);
    const int seen = server_stop(store).requests - 1;
    check_bytes(first);
    unmake(first);
    for (int i = 0; i < FILES; i++) {
        if (!file[i]) continue;
        CHECK(file[i]->owner == &f);
        if (file[i]->status == STK_OK) {
            CHECK_INT(file[i]->got_bytes, file[i]->size_bytes);
            CHECK(strncmp(file[i]->etag_is, "\"e", 2) == 0);
            check_bytes(file[i]);
        } else {
            CHECK_INT(file[i]->error.status, file[i]->status);
            CHECK_INT(file[i]->error.stage, STK_STAGE_FETCH);
        }
        unmake(file[i]);
    }
    CHECK_INT(stk_alloc_bytes(STK_TAG_SOURCE), 0);
    make_quick();
    return seen;
}

/* Files of 5,000 bytes with a header of 512 before each, in an order that is not that of the tar. */
static void ask_for_files(const char *tar, const char *etag)
{
    for (int i = 0; i < FILES; i++) ask(i, tar, 512 + (uint64_t)(i * 7 % FILES) * 6144, 5000, etag);
}

/* --- when --- */

static void neighbours_come_by_one_range(void)
{
    begin(calm);
    ask_for_files(TAR, "");
    CHECK_INT(finish(), 1);
    CHECK_INT(longest, (FILES - 1) * 6144 + 5000);
}

static void what_lies_apart_or_differs_comes_alone(void)
{
    begin(calm);
    ask(0, TAR, 1000, 5000, "");
    ask(1, TAR, 6000 + 16384, 5000, "");     /* just near enough */
    ask(2, TAR, 27385 + 16384, 5000, "");    /* a byte too far */
    ask(3, "s3://bucket/8000000-tbr", 6000, 5000, "");
    char etag[32];
    snprintf(etag, sizeof etag, "\"e%u\"", object_seed("/bucket/8000000-tar"));
    ask(4, TAR, 6000, 5000, etag);           /* of this state, and no other */
    stk_request *const plain = file[5] = make(TAR, 6000, 5000, 5000); /* no file of a tar */
    plain->priority = 9;
    stk_store_submit(f.store, plain);
    CHECK_INT(finish(), 5);
    CHECK_INT(ranges, 1);
    CHECK_INT(longest, 5000 + 16384 + 5000);
}

static void files_that_overlap_or_are_the_same_are_served_all(void)
{
    begin(calm);
    ask(0, TAR, 5000, 5000, "");
    ask(1, TAR, 5000, 5000, "");
    ask(2, TAR, 2000, 9000, "");
    ask(3, TAR, 6000, 10, "");
    ask(4, TAR, 1000, 5000, "");
    CHECK_INT(finish(), 1);
    CHECK_INT(longest, 10000);
}

static void a_range_has_a_bound(void)
{
    begin(calm);
    for (int i = 0; i < 8; i++) ask(i, TAR, (uint64_t)i * 1000000, 1000000, "");
    CHECK_INT(finish(), 2);
    CHECK_INT(longest, 4000000);
}

static void while_there_are_places_each_comes_alone(void)
{
    begin_with(calm, 2 * FILES);
    release();
    CHECK(reap(&f) == first); /* the bucket is known: now all may start at once */
    stk_store_submit(f.store, first);
    ask_for_files(TAR, "");
    CHECK_INT(finish(), FILES + 1);
    CHECK_INT(ranges, 0);
}

/* --- what goes wrong with the range is nobody's fault --- */

static bool once_or_alone(exchange *x, object_range *r)
{
    if (x->request == 0) return false;
    CHECK(server_range(x, r));
    note_range(x, r);
    return is_merged(r);
}

static bool merged_is_short(exchange *x)
{
    object_range r;
    if (!once_or_alone(x, &r)) return x->request ? server_object(x) : hold(x);
    r.end -= 6000;
    return server_head(x, &r, "") && server_bytes(x, r.first, r.end);
}

static bool merged_breaks_off(exchange *x)
{
    object_range r;
    if (!once_or_alone(x, &r)) return x->request ? server_object(x) : hold(x);
    server_head(x, &r, "");
    server_bytes(x, r.first, r.end - 20000);
    return server_reset(x);
}

static bool merged_is_the_whole(exchange *x)
{
    object_range r;
    if (!once_or_alone(x, &r)) return x->request ? server_object(x) : hold(x);
    r = (object_range){0, r.total, r.total, false};
    return server_head(x, &r, "") && server_bytes(x, r.first, r.end);
}

static bool merged_is_refused(exchange *x)
{
    object_range r;
    if (!once_or_alone(x, &r)) return x->request ? server_object(x) : hold(x);
    return server_error(x, 416, "InvalidRange");
}

static bool merged_fails(exchange *x)
{
    object_range r;
    if (!once_or_alone(x, &r)) return x->request ? server_object(x) : hold(x);
    return server_error(x, 500, "InternalError");
}

static bool merged_is_a_secret(exchange *x)
{
    object_range r;
    if (!once_or_alone(x, &r)) return x->request ? server_object(x) : hold(x);
    return server_error(x, 403, "AccessDenied");
}

static bool merged_says_no_total(exchange *x)
{
    object_range r;
    if (!once_or_alone(x, &r)) return x->request ? server_object(x) : hold(x);
    return server_say(x, "HTTP/1.1 206 Part\r\nETag: \"x\"\r\nContent-Length: %llu\r\nContent-Range: bytes %llu-%llu/*\r\n\r\n",
                      (unsigned long long)(r.end - r.first), (unsigned long long)r.first, (unsigned long long)(r.end - 1)) &&
           server_bytes(x, r.first, r.end);
}

static void a_range_that_fails_leaves_each_file_to_itself(void)
{
    server_script *const scripts[] = {merged_is_short, merged_breaks_off, merged_is_the_whole, merged_is_refused, merged_fails,
                                      merged_is_a_secret, merged_says_no_total};
    for (size_t i = 0; i < sizeof scripts / sizeof *scripts; i++) {
        begin(scripts[i]);
        ask_for_files(TAR, "");
        CHECK_INT(finish(), FILES + 1);
        CHECK_INT(ranges, 1);
    }
}

static bool slow_down_twice(exchange *x)
{
    if (x->request == 0) return hold(x);
    return x->request > 2 ? server_object(x) : server_error(x, 503, "SlowDown");
}

static void a_store_that_says_slow_down_is_asked_once_more_not_forty_times(void)
{
    begin(slow_down_twice);
    ask_for_files(TAR, "");
    CHECK_INT(finish(), 3);
}

static void a_changed_tar_is_each_file_s_own_fault(void)
{
    begin(calm);
    ask_for_files(TAR, "\"another\"");
    release();
    for (int i = 0; i < FILES + 1; i++) reap(&f)->owner = &f;
    for (int i = 0; i < FILES; i++) {
        CHECK_INT(file[i]->status, STK_ERR_MEDIA);
        CHECK(file[i]->changed);
        CHECK_HAS(file[i]->error.message, "changed since");
        unmake(file[i]);
    }
    unmake(first);
    close_fetcher(&f);
    CHECK_INT(server_stop(store).requests, 1 + 1 + 2 * FILES); /* each looks again */
    make_quick();
}

static void past_the_end_is_the_fault_of_who_asks_for_it(void)
{
    begin(calm);
    ask(0, TAR, 7990000, 5000, "");
    ask(1, TAR, 7996000, 5000, ""); /* a thousand bytes too many */
    release();
    for (int i = 0; i < 3; i++) reap(&f);
    check_bytes(file[0]);
    check_bytes(file[1]);
    CHECK_INT(file[0]->got_bytes, 5000);
    CHECK_INT(file[1]->got_bytes, 4000);
    for (int i = 0; i < 2; i++) unmake(file[i]);
    unmake(first);
    close_fetcher(&f);
    CHECK_INT(server_stop(store).requests, 1 + 1 + 2);
    make_quick();
}

/* --- cancel and close --- */

static bool merged_waits(exchange *x)
{
    object_range r;
    if (!once_or_alone(x, &r)) return x->request ? server_object(x) : hold(x);
    server_head(x, &r, "");
    server_bytes(x, r.first, r.end - 20000);
    server_wait(x, 60000);
    return false;
}

static void one_that_is_cancelled_takes_no_other_with_it(void)
{
    begin(merged_waits);
    ask_for_files(TAR, "");
    release();
    server_wait_requests(store, 2);
    __atomic_store_n(&file[3]->cancelled, 1, __ATOMIC_RELAXED);
    stk_store_cancel(f.store);
    CHECK_INT(finish(), 1 + FILES - 1);
}

static void close_ends_a_range_on_its_way(void)
{
    begin(merged_waits);
    ask_for_files(TAR, "");
    release();
    server_wait_requests(store, 2);
    CHECK(reap(&f) == first);
    close_fetcher(&f);
    server_stop(store);
    unmake(first);
    for (int i = 0; i < FILES; i++) unmake(file[i]);
    CHECK_INT(stk_alloc_bytes(STK_TAG_SOURCE), 0);
    make_quick();
}

/* --- in trouble, the bytes are the same --- */

static bool troubled(exchange *x)
{
    object_range r;
    if (x->request == 0) return hold(x);
    CHECK(server_range(x, &r));
    switch (x->request % 7) {
    case 1: return server_error(x, 503, "SlowDown");
    case 3: return server_reset(x);
    case 5:
        server_head(x, &r, "");
        server_bytes(x, r.first, r.first + (r.end - r.first) / 2);
        return server_reset(x);
    default: return server_object(x);
    }
}

static void trouble_does_not_change_a_byte(void)
{
    for (unsigned round = 0; round < 8; round++) {
        begin(troubled);
        unsigned random = round;
        for (int i = 0; i < FILES; i++) {
            random = random * 1664525u + 1013904223u;
            ask(i, (random & 256) ? TAR : "s3://bucket/8000000-tbr", (random >> 10) % 400000, 1 + random % 9000, "");
        }
        finish();
    }
}

int main(int argc, char **argv)
{
    setenv("no_proxy", "*", 1);
    setenv("AWS_CONFIG_FILE", "/nonexistent", 1);
    setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent", 1);
    make_quick();
    TEST_MAIN(argc, argv, TEST(neighbours_come_by_one_range), TEST(what_lies_apart_or_differs_comes_alone),
              TEST(files_that_overlap_or_are_the_same_are_served_all), TEST(a_range_has_a_bound), TEST(while_there_are_places_each_comes_alone),
              TEST(a_range_that_fails_leaves_each_file_to_itself),
              TEST(a_store_that_says_slow_down_is_asked_once_more_not_forty_times), TEST(a_changed_tar_is_each_file_s_own_fault),
              TEST(past_the_end_is_the_fault_of_who_asks_for_it), TEST(one_that_is_cancelled_takes_no_other_with_it),
              TEST(close_ends_a_range_on_its_way), TEST(trouble_does_not_change_a_byte));
}
