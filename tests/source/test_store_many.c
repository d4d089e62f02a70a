/* test_store_many.c - many requests at once: order of nothing, bytes of all, hedges, cancel, close, and a loop that rests. */
#include "store_fetcher.h"

/* --- many at once --- */

enum { MANY = 300 };

/* room_bytes: 0: as large as each object, as for one that the index knows. */
static void fetch_many_into(fetcher *f, int count, uint64_t most_bytes, size_t room_bytes)
{
    stk_request **const all = calloc((size_t)count, sizeof *all);
    for (int i = 0; i < count; i++) {
        char address[64];
        const uint64_t size = ((uint64_t)i * 7919u) % most_bytes;
        snprintf(address, sizeof address, "s3://bucket/%llu-%d", (unsigned long long)size, i);
        all[i] = make(address, 0, UINT64_MAX, room_bytes ? room_bytes : (size_t)size);
        all[i]->priority = (uint64_t)i;
        stk_store_submit(f->store, all[i]);
    }
    for (int i = 0; i < count; i++) {
        stk_request *const r = reap(f);
        CHECK_MSG(r->status == STK_OK, "%s: %s", r->error.file, r->error.message);
        CHECK(r->owner == NULL);
        r->owner = r; /* each comes back once */
        check_bytes(r);
    }
    for (int i = 0; i < count; i++) unmake(all[i]);
    free(all);
}

static void fetch_many(fetcher *f, int count, uint64_t most_bytes)
{
    fetch_many_into(f, count, most_bytes, 0);
}

static bool after_a_moment(exchange *x)
{
    server_wait(x, 5);
    return server_object(x);
}

static void many_objects_come_at_once(void)
{
    quick.start = quick.limit = 64;
    for (int loops = 1; loops <= 3; loops += 2) {
        server *const s = server_start(after_a_moment, NULL);
        fetcher f;
        open_fetcher(&f, s, (stk_source_config){.io_threads = loops});
        fetch_many(&f, MANY, 200000);
        const stk_source_metrics m = metrics_of(&f);
        CHECK_INT(m.whole.count, MANY);
        CHECK(m.requests >= MANY);
        CHECK_INT(m.in_flight, 0);
        close_fetcher(&f);
        const server_seen seen = server_stop(s);
        CHECK(seen.most_in_flight > 16 && seen.most_in_flight <= 70 * loops);
        CHECK(seen.connections <= 72 * loops); /* they were used again */
    }
    make_quick();
}

/* One in five requests goes wrong in some way; the bytes are the same. */
static bool troubled(exchange *x)
{
    switch (x->request % 35) {
    case 0: return server_error(x, 500, "InternalError");
    case 5: return server_error(x, 503, "SlowDown");
    case 10: return server_reset(x);
    case 15: shutdown(x->fd, SHUT_RDWR); return false; /* it said keep-alive */
    case 20: return server_status(x, 429, "", "");
    case 25: server_say(x, "garbage\r\n\r\n"); return false;
    case 30: {
        object_range r;
        if (!server_range(x, &r)) return server_object(x);
        server_head(x, &r, "");
        server_bytes(x, r.first, r.first + (r.end - r.first) / 2);
        return server_reset(x);
    }
    default: return server_object(x);
    }
}

static void trouble_does_not_change_a_byte(void)
{
    server *const s = server_start(troubled, NULL);
    fetcher f;
    quick.start = 64;
    open_fetcher(&f, s, (stk_source_config){0});
    fetch_many(&f, MANY, 600000);
    const stk_source_metrics m = metrics_of(&f);
    CHECK(m.retries[STK_RETRY_SERVER] && m.retries[STK_RETRY_THROTTLE] && m.retries[STK_RETRY_BROKEN]);
    CHECK(m.concurrency < 64);
    close_fetcher(&f);
    server_stop(s);
    make_quick();
}

static bool never(exchange *x)
{
    server_wait(x, 60000);
    return false;
}

/* A loop that served libcurl's one-shot timer again and again would turn by the ten thousand. */
static void waiting_does_not_spin(void)
{
    server *const s = server_start(never, NULL);
    fetcher f;
    open_fetcher(&f, s, (stk_source_config){0});
    stk_request *all[64];
    for (int i = 0; i < 64; i++) {
        char address[64];
        snprintf(address, sizeof address, "s3://bucket%d/100-%d", i, i); /* each meets its bucket */
        stk_store_submit(f.store, all[i] = make(address, 0, UINT64_MAX, 100));
    }
    server_wait_requests(s, 64);
    usleep(300000);
    const uint64_t before = stk_store_turns(f.store);
    usleep(500000);
    CHECK(stk_store_turns(f.store) - before < 200);
    close_fetcher(&f); /* with 64 in flight: it does not wait for them */
    server_stop(s);
    for (int i = 0; i < 64; i++) unmake(all[i]);
    make_quick();
}

/* It says keep-alive, and closes: the next request finds a dead connection. */
static bool half_closes(exchange *x)
{
    (void)server_object(x);
    return false;
}

static void a_connection_that_died_is_no_fault(void)
{
    server *const s = server_start(half_closes, NULL);
    fetcher f;
    quick.start = 2;
    open_fetcher(&f, s, (stk_source_config){0});
    fetch_many(&f, 60, 5000);
    CHECK_INT(metrics_of(&f).whole.count, 60);
    close_fetcher(&f);
    server_stop(s);
    make_quick();
}

/* A connection at rest stays with epoll, which tells of its end without end. */
static void a_connection_that_is_closed_at_rest_does_not_spin(void)
{
    server *const s = server_start(half_closes, NULL);
    fetcher f;
    open_fetcher(&f, s, (stk_source_config){0});
    fetch_many(&f, 8, 5000);
    usleep(100000);
    const uint64_t before = stk_store_turns(f.store);
    usleep(300000);
    CHECK(stk_store_turns(f.store) - before < 50);
    fetch_many(&f, 8, 5000);
    close_fetcher(&f);
    server_stop(s);
}

/* --- order --- */

static char order[256];
static int gate[2]; /* a pipe: the first request waits for a byte of it */
static bool note_order(exchange *x)
{
    char byte;
    if (strstr(x->path, "first")) CHECK(read(gate[0], &byte, 1) == 1);
    const size_t at = strlen(order);
    snprintf(order + at, sizeof order - at, "%s ", strchr(x->path, '-') + 1);
    return server_object(x);
}

static void smaller_priorities_are_asked_first(void)
{
    static const unsigned priority[] = {5, 1, 4, 3, 9, 0, 7, 2};
    enum { COUNT = sizeof priority / sizeof *priority };
    stk_request *all[COUNT];
    server *const s = server_start(note_order, NULL);
    fetcher f;
    quick.start = quick.limit = 1;
    CHECK(pipe(gate) == 0);
    open_fetcher(&f, s, (stk_source_config){0});
    for (int i = 0; i < COUNT; i++) {
        char address[64];
        snprintf(address, sizeof address, "s3://bucket/10-%u", priority[i]);
        all[i] = make(address, 0, UINT64_MAX, 10);
        all[i]->priority = priority[i];
    }
    stk_request *const first = make("s3://bucket/10-first", 0, UINT64_MAX, 10);
    stk_store_submit(f.store, first);
    server_wait_requests(s, 1);
    for (int i = 0; i < COUNT; i++) stk_store_submit(f.store, all[i]);
    CHECK(write(gate[1], "", 1) == 1);
    for (int i = 0; i <= COUNT; i++) CHECK_INT(reap(&f)->status, STK_OK);
    close_fetcher(&f);
    server_stop(s);
    close(gate[0]);
    close(gate[1]);
    CHECK_STR(order, "first 0 1 2 3 4 5 7 9 ");
    for (int i = 0; i < COUNT; i++) unmake(all[i]);
    unmake(first);
    make_quick();
}

/* --- hedges --- */

static bool late_now_and_then(exchange *x)
{
    if (x->request > 250 && x->request % 50 == 0 && x->nth == 0) server_wait(x, 10000);
    return server_object(x);
}

/* What a store says that fetches many objects, with hedges; room_bytes as of fetch_many_into. */
static stk_source_metrics fetch_with_hedges(server_script *script, size_t room_bytes)
{
    quick.start = 16;
    server *const s = server_start(script, NULL);
    fetcher f;
    open_fetcher(&f, s, (stk_source_config){.hedge = true});
    fetch_many_into(&f, 700, 2000, room_bytes);
    const stk_source_metrics m = metrics_of(&f);
    close_fetcher(&f);
    server_stop(s);
    make_quick();
    return m;
}

static void what_is_late_is_asked_a_second_time(void)
{
    const stk_source_metrics m = fetch_with_hedges(late_now_and_then, 0);
    CHECK(m.hedges_won >= 1);
    CHECK(m.hedges_sent >= m.hedges_won);
    CHECK(m.hedges_sent * 20 <= m.requests + 20);
}

static bool late_twice_now_and_then(exchange *x)
{
    const int number = atoi(strrchr(x->path, '-') + 1);
    if (number > 400 && number % 50 == 0 && x->nth < 2) server_wait(x, 10000);
    return server_object(x);
}

static void a_late_hedge_is_hedged(void)
{
    const stk_source_metrics m = fetch_with_hedges(late_twice_now_and_then, 0);
    CHECK(m.hedges_won >= 1);
    CHECK(m.hedges_sent > m.hedges_won);
    CHECK(m.hedges_sent * 20 <= m.requests + 20);
}

/* Late is what objects of the like take, also where only their room is known. */
static void what_is_late_and_of_unknown_size_is_asked_a_second_time(void)
{
    CHECK(fetch_with_hedges(late_now_and_then, 1 << 20).hedges_won >= 1);
}

/* --- cancel, close --- */

static void every_request_comes_back_once_whatever_is_cancelled(void)
{
    server *const s = server_start(troubled, NULL);
    fetcher f;
    quick.start = 32;
    open_fetcher(&f, s, (stk_source_config){0});
    stk_request *all[MANY];
    for (int i = 0; i < MANY; i++) {
        char address[64];
        snprintf(address, sizeof address, "s3://bucket/%d-%d", i * 3000, i);
        all[i] = make(address, 0, UINT64_MAX, (size_t)i * 3000);
        all[i]->priority = (uint64_t)(MANY - i);
        stk_store_submit(f.store, all[i]);
        if (i % 3 == 0) {
            __atomic_store_n(&all[i / 2]->cancelled, 1, __ATOMIC_RELAXED);
            stk_store_cancel(f.store);
        }
    }
    int whole = 0, cancelled = 0;
    for (int i = 0; i < MANY; i++) {
        stk_request *const r = reap(&f);
        CHECK(r->owner == NULL);
        r->owner = r;
        if (r->status == STK_OK) {
            check_bytes(r);
            whole++;
        } else {
            CHECK_INT(r->status, STK_ERR_INTERRUPTED);
            cancelled++;
        }
    }
    CHECK(whole >= MANY / 2 && whole + cancelled == MANY);
    close_fetcher(&f);
    server_stop(s);
    for (int i = 0; i < MANY; i++) unmake(all[i]);
    make_quick();
}

static void close_does_not_wait_and_leaves_nothing(void)
{
    server *const s = server_start(never, NULL);
    fetcher f;
    open_fetcher(&f, s, (stk_source_config){0});
    stk_request *all[200];
    for (int i = 0; i < 200; i++) {
        char address[64];
        snprintf(address, sizeof address, "s3://bucket%d/100-%d", i, i);
        stk_store_submit(f.store, all[i] = make(address, 0, UINT64_MAX, 100));
    }
    server_wait_requests(s, 150);
    close_fetcher(&f);
    CHECK_INT(stk_alloc_bytes(STK_TAG_SOURCE), 0);
    server_stop(s);
    for (int i = 0; i < 200; i++) unmake(all[i]);
}

int main(int argc, char **argv)
{
    make_quick();
    setenv("no_proxy", "*", 1);
    TEST_MAIN(argc, argv, TEST(many_objects_come_at_once), TEST(trouble_does_not_change_a_byte), TEST(waiting_does_not_spin),
              TEST(a_connection_that_is_closed_at_rest_does_not_spin),
              TEST(a_connection_that_died_is_no_fault), TEST(smaller_priorities_are_asked_first),
              TEST(what_is_late_is_asked_a_second_time),
              TEST(a_late_hedge_is_hedged),
              TEST(what_is_late_and_of_unknown_size_is_asked_a_second_time), TEST(every_request_comes_back_once_whatever_is_cancelled),
              TEST(close_does_not_wait_and_leaves_nothing));
}
