/* test_store_memory.c - what requests in flight take of memory: no more than stk_source_bytes says of them.
 *
 * Every allocation of the process is counted, those of libcurl too; so the server is a process of its own. */
#include <sys/wait.h>

#include "malloc_count.h"
#include "store_fetcher.h"

static bool after_a_moment(exchange *x)
{
    server_wait(x, 20);
    return server_object(x);
}

/* A server in a child, and the pipe that ends it and brings what it has seen. */
typedef struct apart {
    pid_t child;
    int port, to, from;
} apart;

static apart start_apart(void)
{
    int to[2], from[2];
    CHECK(pipe(to) == 0 && pipe(from) == 0);
    apart a = {.child = fork(), .to = to[1], .from = from[0]};
    CHECK(a.child >= 0);
    if (a.child == 0) {
        char end;
        close(to[1]);
        server *const s = server_start(after_a_moment, NULL);
        CHECK(write(from[1], &s->port, sizeof s->port) == sizeof s->port);
        CHECK(read(to[0], &end, 1) >= 0);
        const server_seen seen = server_stop(s);
        CHECK(write(from[1], &seen, sizeof seen) == sizeof seen);
        _exit(0);
    }
    close(to[0]);
    close(from[1]);
    CHECK(read(a.from, &a.port, sizeof a.port) == sizeof a.port);
    return a;
}

static server_seen end_apart(apart *a)
{
    server_seen seen;
    int status;
    close(a->to);
    CHECK(read(a->from, &seen, sizeof seen) == sizeof seen);
    close(a->from);
    CHECK(waitpid(a->child, &status, 0) == a->child && status == 0);
    return seen;
}

enum { OBJECTS_MOST = 820, OBJECT_BYTES = 100000 };

/* The heap's growth while some objects come for each that may be under way. */
static size_t fetch_all(int port, int requests, int loops)
{
    static stk_request *all[OBJECTS_MOST];
    const int count = 20 + 4 * (requests > loops ? requests : loops);
    for (int i = 0; i < count; i++) {
        char address[64];
        snprintf(address, sizeof address, "s3://bucket/%d-%d", OBJECT_BYTES, i);
        all[i] = make(address, 0, UINT64_MAX, OBJECT_BYTES);
        all[i]->priority = (uint64_t)i;
    }
    const size_t before = atomic_load(&live_bytes);
    atomic_store(&peak_bytes, before);
    fetcher f;
    const server s = {.port = port};
    open_fetcher(&f, &s, (stk_source_config){.io_threads = loops, .requests = requests});
    for (int i = 0; i < count; i++) stk_store_submit(f.store, all[i]);
    for (int i = 0; i < count; i++) {
        stk_request *const r = reap(&f);
        CHECK_MSG(r->status == STK_OK, "%s: %s", r->error.file, r->error.message);
    }
    close_fetcher(&f);
    const size_t grown = atomic_load(&peak_bytes) - before;
    for (int i = 0; i < count; i++) unmake(all[i]);
    return grown;
}

static void requests_in_flight_are_as_many_and_as_large_as_was_said(void)
{
    static const int cases[][2] = {{1, 1}, {16, 1}, {200, 1}, {60, 3}, {2, 4}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const int requests = cases[i][0], loops = cases[i][1];
        apart a = start_apart();
        const size_t grown = fetch_all(a.port, requests, loops), said = stk_source_bytes(requests, loops);
        const server_seen seen = end_apart(&a);
        const int most = requests > loops ? requests : loops;
        CHECK_MSG(seen.most_in_flight <= most, "%d in flight, and %d are allowed", seen.most_in_flight, most);
        CHECK_MSG(seen.most_in_flight > most / 2, "%d in flight of %d", seen.most_in_flight, most);
        CHECK_MSG(grown <= said, "%d requests of %d loops took %zu bytes, and %zu were said", requests, loops, grown, said);
    }
}

int main(int argc, char **argv)
{
    make_quick();
    TEST_MAIN(argc, argv, TEST(requests_in_flight_are_as_many_and_as_large_as_was_said));
}
