/* test_source.c - what a path or a data: URI of a stranger may be, order, cancel, faults that come and go. */
#include "test.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>

#include "base/fault.h"
#include "source/net_metrics.h"
#include "source/source.h"

static uint8_t room[4096 + STK_PAD_BYTES];

static stk_source *open_source(int threads)
{
    stk_error err;
    stk_source *source;
    CHECK_OK(stk_source_open(&source, &(stk_source_config){.file_threads = threads}, &err), err);
    return source;
}

static stk_request request_of(const char *address)
{
    return (stk_request){.address = stk_str_of(address), .size_bytes = UINT64_MAX, .buffer = room, .capacity_bytes = 4096};
}

/* One request, submitted and taken back. */
static stk_request fetch(stk_request request)
{
    stk_source *source = open_source(1);
    stk_source_submit(source, &request);
    CHECK(stk_source_reap(source, 20 * STK_S) == &request);
    CHECK(stk_source_reap(source, 0) == NULL);
    stk_source_close(&source);
    CHECK(source == NULL);
    return request;
}

static const char *file_with(const char *name, const char *text)
{
    static char path[4][600];
    static int turn;
    char *const p = path[turn++ % 4];
    snprintf(p, sizeof path[0], "%s/%s", test_folder(), name);
    FILE *const file = fopen(p, "wb");
    CHECK(file && fputs(text, file) >= 0 && fclose(file) == 0);
    return p;
}

static void a_file_comes_whole_or_in_part(void)
{
    const char *const path = file_with("digits", "0123456789");
    stk_request r = fetch(request_of(path));
    CHECK_INT(r.status, STK_OK);
    CHECK_INT(r.got_bytes, 10);
    CHECK_INT(r.total_bytes, 10);
    CHECK(r.mtime_ns > 0);
    CHECK(memcmp(room, "0123456789", 10) == 0);

    r = request_of(path);
    r.offset = 3;
    r.size_bytes = 4;
    r = fetch(r);
    CHECK_INT(r.got_bytes, 4);
    CHECK_INT(r.total_bytes, 10);
    CHECK(memcmp(room, "3456", 4) == 0);

    r = request_of(path);
    r.offset = 8;
    r.size_bytes = 100;
    CHECK_INT(fetch(r).got_bytes, 2);
    r.offset = 80;
    CHECK_INT(fetch(r).got_bytes, 0);

    /* Only a look: no byte is read, all is told. */
    r = request_of(path);
    r.size_bytes = 0;
    r.capacity_bytes = 0;
    r = fetch(r);
    CHECK_INT(r.status, STK_OK);
    CHECK_INT(r.total_bytes, 10);
}

static void a_file_of_no_bytes_is_no_failure(void)
{
    const stk_request r = fetch(request_of(file_with("empty", "")));
    CHECK_INT(r.status, STK_OK);
    CHECK_INT(r.total_bytes, 0);
}

static void what_does_not_fit_is_told_with_its_size(void)
{
    stk_request r = request_of(file_with("digits", "0123456789"));
    r.capacity_bytes = 9;
    r = fetch(r);
    CHECK_INT(r.status, STK_ERR_MEDIA_LIMIT);
    CHECK_INT(r.total_bytes, 10);
    CHECK_HAS(r.error.message, "10 bytes");
}

static void what_is_no_file_is_refused_without_waiting(void)
{
    char path[600];
    stk_request r = fetch(request_of("/no/such/file.jpg"));
    CHECK_INT(r.status, STK_ERR_MEDIA_MISSING);
    CHECK_STR(r.error.file, "/no/such/file.jpg");
    CHECK_INT(r.error.stage, STK_STAGE_FETCH);

    snprintf(path, sizeof path, "%s/pipe", test_folder());
    CHECK(mkfifo(path, 0600) == 0);
    CHECK_INT(fetch(request_of(path)).status, STK_ERR_MEDIA);
    CHECK_INT(fetch(request_of(test_folder())).status, STK_ERR_MEDIA);
    CHECK_INT(fetch(request_of("/dev/zero")).status, STK_ERR_MEDIA);
    CHECK_INT(fetch(request_of(file_with("digits", "0")) /* a file used as a folder */).status, STK_OK);
    snprintf(path, sizeof path, "%s/digits/x.jpg", test_folder());
    CHECK_INT(fetch(request_of(path)).status, STK_ERR_MEDIA_MISSING);

    r = request_of("a");
    r.address = (stk_str){"/dev/null\0x", 11};
    CHECK_INT(fetch(r).status, STK_ERR_MEDIA_MISSING);
    r.address = (stk_str){"", 0};
    CHECK_INT(fetch(r).status, STK_ERR_MEDIA_MISSING);
    char *const long_path = malloc(9000);
    memset(long_path, 'a', 9000);
    r.address = (stk_str){long_path, 9000};
    r = fetch(r);
    CHECK_INT(r.status, STK_ERR_MEDIA_MISSING);
    CHECK_INT(strlen(r.error.file), 255);
    free(long_path);
}

static void a_file_that_may_not_be_read_is_a_fault_of_the_system(void)
{
    if (geteuid() == 0) return; /* root may read everything */
    const char *const path = file_with("secret", "x");
    CHECK(chmod(path, 0) == 0);
    const stk_request r = fetch(request_of(path));
    CHECK_INT(r.status, STK_ERR_SYSTEM);
    CHECK_INT(r.error.code, EACCES);
    CHECK_HAS(r.error.message, "readable");
}

static void a_link_does_not_lead_out_of_the_allowed_folders(void)
{
    char inside[400], outside[400], path[600], target[600];
    snprintf(inside, sizeof inside, "%s/inside", test_folder());
    snprintf(outside, sizeof outside, "%s/inside-not", test_folder()); /* the same beginning, another folder */
    CHECK(mkdir(inside, 0700) == 0 && mkdir(outside, 0700) == 0);
    (void)file_with("inside/a.txt", "a");
    (void)file_with("inside-not/b.txt", "b");
    snprintf(target, sizeof target, "%s/b.txt", outside);
    snprintf(path, sizeof path, "%s/link.txt", inside);
    CHECK(symlink(target, path) == 0);

    stk_error err;
    stk_places *places;
    const stk_str folders[] = {stk_str_of(inside), stk_str_of(outside)};
    CHECK_OK(stk_places_create(&places, folders, 1, &err), err);
    stk_request r = request_of(path);
    r.places = places;
    r = fetch(r);
    CHECK_INT(r.status, STK_ERR_MEDIA_DENIED);
    CHECK_HAS(r.error.message, "allow: [\"");
    CHECK_HAS(r.error.message, "inside-not\"]");
    char good[600];
    snprintf(good, sizeof good, "%s/a.txt", inside);
    r.address = stk_str_of(good);
    CHECK_INT(fetch(r).status, STK_OK);
    stk_places_destroy(places);

    /* Allowed, it may; and a root that is itself a link is its target. */
    snprintf(target, sizeof target, "%s/root-link", test_folder());
    CHECK(symlink(inside, target) == 0);
    const stk_str linked[] = {stk_str_of(target), stk_str_of(outside)};
    CHECK_OK(stk_places_create(&places, linked, 2, &err), err);
    r.places = places;
    CHECK_INT(fetch(r).status, STK_OK);
    r.address = stk_str_of(path);
    CHECK_INT(fetch(r).status, STK_OK);
    stk_places_destroy(places);
}

static void expect_uri(const char *uri, const char *bytes)
{
    const stk_request r = fetch(request_of(uri));
    CHECK_MSG(r.status == (bytes ? STK_OK : STK_ERR_MEDIA), "%s: %d", uri, r.status);
    if (!bytes) return;
    CHECK_INT(r.got_bytes, strlen(bytes));
    CHECK_INT(r.total_bytes, strlen(bytes));
    CHECK(memcmp(room, bytes, strlen(bytes)) == 0);
}

/* As Python's base64.decodebytes, which the reference uses (spec-qwen3vl.md section 1.1). */
static void a_data_uri_is_decoded_as_leniently_as_the_reference_does(void)
{
    expect_uri("data:image/png;base64,aGVsbG8=", "hello");
    expect_uri("data:image/png;base64,aGV\r\nsb G8=", "hello");
    expect_uri("data:image/png;base64,aG*Vs\xc3\xa9" "bG8=", "hello");
    expect_uri("data:image/png;base64,aGVsbG8=,second", "hello");
    expect_uri("data:image/png;base64,aGVsbG8=AAAA", "hello");
    expect_uri("data:image/png;base64,aGVsbA==", "hell");
    expect_uri("data:image/png;base64,aGVsbA=x=", "hell\x0c");
    expect_uri("data:image/png;base64,=aGVs", "hel");
    expect_uri("data:image/png;base64,aGVsbA=", NULL);
    expect_uri("data:image/png;base64,aGVsbG8", NULL);
    expect_uri("data:image/png;base64,a", NULL);
    expect_uri("data:image/png;base64,", "");
    expect_uri("data:image/png", NULL);
    expect_uri("data:;base64,aGVsbG8=", NULL);

    stk_request r = request_of("data:image/png;base64,aGVsbG8=");
    r.offset = 1;
    r.size_bytes = 3;
    r = fetch(r);
    CHECK_INT(r.got_bytes, 3);
    CHECK_INT(r.total_bytes, 5);
    CHECK(memcmp(room, "ell", 3) == 0);
    r = request_of("data:image/png;base64,aGVsbG8=");
    r.capacity_bytes = 4;
    CHECK_INT(fetch(r).status, STK_ERR_MEDIA_LIMIT);
}

/* --- order, cancel --- */

typedef struct gate {
    pthread_mutex_t lock;
    pthread_cond_t change;
    bool shut;
    int finished;
} gate;

/* The only thread of the source waits here after its first request, so that the others queue up. */
static void wait_at_gate(void *context)
{
    gate *const g = context;
    pthread_mutex_lock(&g->lock);
    g->finished++;
    pthread_cond_broadcast(&g->change);
    while (g->shut) pthread_cond_wait(&g->change, &g->lock);
    pthread_mutex_unlock(&g->lock);
}

static void requests_come_in_plan_order_and_can_be_cancelled(void)
{
    enum { COUNT = 9 };
    gate g = {.lock = PTHREAD_MUTEX_INITIALIZER, .change = PTHREAD_COND_INITIALIZER, .shut = true};
    stk_request r[COUNT + 1];
    const char *const path = file_with("digits", "0123456789");
    stk_source *source = open_source(1);
    stk_source_on_finish(source, wait_at_gate, &g);
    r[COUNT] = request_of(path);
    stk_source_submit(source, &r[COUNT]);
    pthread_mutex_lock(&g.lock);
    while (g.finished == 0) pthread_cond_wait(&g.change, &g.lock);
    pthread_mutex_unlock(&g.lock);
    CHECK(stk_source_reap(source, STK_FOREVER) == &r[COUNT]);

    static const unsigned priority[COUNT] = {5, 1, 4, 4, 9, 0, 7, 2, 2};
    for (int i = 0; i < COUNT; i++) {
        r[i] = request_of(path);
        r[i].priority = priority[i];
        stk_source_submit(source, &r[i]);
    }
    CHECK(stk_source_reap(source, 10 * STK_MS) == NULL);
    pthread_mutex_lock(&g.lock);
    g.shut = false;
    pthread_mutex_unlock(&g.lock);
    /* Cancelled while it waits: it comes back at once, and calls the notice. */
    stk_source_cancel(source, &r[6]);
    CHECK(stk_source_reap(source, STK_FOREVER) == &r[6]);
    CHECK_INT(r[6].status, STK_ERR_INTERRUPTED);
    pthread_mutex_lock(&g.lock); /* its notice has opened the gate: others may have followed */
    CHECK(g.finished >= 2);
    pthread_mutex_unlock(&g.lock);
    pthread_cond_broadcast(&g.change);

    static const int order[] = {5, 1, 7, 8, 2, 3, 0, 4};
    for (size_t i = 0; i < sizeof order / sizeof *order; i++) {
        CHECK_MSG(stk_source_reap(source, 20 * STK_S) == &r[order[i]], "place %zu", i);
        CHECK_INT(r[order[i]].status, STK_OK);
    }
    CHECK(stk_source_reap(source, 0) == NULL);
    stk_source_close(&source);
}

static void close_drops_what_waits(void)
{
    stk_request r[64];
    static uint8_t rooms[64][16 + STK_PAD_BYTES];
    const char *const path = file_with("digits", "0123456789");
    stk_source *source = open_source(3);
    for (int i = 0; i < 64; i++) {
        r[i] = request_of(path);
        r[i].buffer = rooms[i];
        r[i].capacity_bytes = 16;
        r[i].priority = (uint64_t)i;
        stk_source_submit(source, &r[i]);
    }
    stk_source_close(&source);
    CHECK_INT(stk_alloc_bytes(STK_TAG_SOURCE), 0);
}

/* --- faults --- */

static void what_comes_and_goes_is_tried_again(void)
{
#ifdef STK_FAULTS
    const char *const path = file_with("digits", "0123456789");
    static const stk_fault_id ids[] = {STK_FAULT_FILE_OPEN, STK_FAULT_FILE_READ};
    for (int i = 0; i < 2; i++) {
        stk_fault_set(ids[i], 1, false);
        stk_request r = fetch(request_of(path));
        CHECK_INT(r.status, STK_OK);
        CHECK_INT(r.got_bytes, 10);
        CHECK_INT(stk_fault_seen(ids[i]), 2);
        stk_fault_set(ids[i], 1, true);
        r = fetch(request_of(path));
        CHECK_INT(r.status, STK_ERR_SYSTEM);
        CHECK_STR(r.error.file, path);
        CHECK_INT(stk_fault_seen(ids[i]), 5);

        /* Closing does not wait for the pauses to end; cancel neither. */
        r = request_of(path);
        stk_source *source = open_source(1);
        stk_source_submit(source, &r);
        while (stk_fault_seen(ids[i]) < 9) usleep(1000);
        stk_source_cancel(source, &r);
        CHECK(stk_source_reap(source, 20 * STK_S) == &r);
        CHECK(r.status == STK_ERR_INTERRUPTED || r.status == STK_ERR_SYSTEM);
        stk_source_close(&source);
        stk_fault_set(ids[i], 0, false);
    }
    stk_fault_set(STK_FAULT_FILE_READ_SHORT, 1, true);
    CHECK_INT(fetch(request_of(path)).got_bytes, 10);
    stk_fault_set(STK_FAULT_FILE_READ_SHORT, 0, false);

    stk_error err;
    for (unsigned long nth = 1; nth <= 3; nth++) {
        stk_source *source;
        stk_fault_set(STK_FAULT_THREAD_CREATE, nth, false);
        CHECK_INT(stk_source_open(&source, &(stk_source_config){.file_threads = 3}, &err), STK_ERR_SYSTEM);
        CHECK(source == NULL);
        stk_fault_set(STK_FAULT_THREAD_CREATE, 0, false);
    }
#else
    fprintf(stderr, "%s: needs -Dfaults=true\n", test_name);
#endif
}

/* --- figures --- */

static void a_quantile_of_times_is_the_bound_of_its_class(void)
{
    stk_time_histogram times = {0};
    CHECK_INT(stk_time_quantile(&times, 0.5), 0);
    for (int i = 0; i < 97; i++) stk_time_add(&times, 30 * STK_MS);
    for (int i = 0; i < 3; i++) stk_time_add(&times, 2 * STK_S);
    CHECK_INT(times.count, 100);
    CHECK_INT(times.sum_ns, 97 * 30 * STK_MS + 6 * STK_S);
    static const struct { double share; stk_ns exact_ns; } expected[] = {
        {0.01, 30 * STK_MS}, {0.97, 30 * STK_MS}, {0.98, 2 * STK_S}, {1.0, 2 * STK_S}};
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        const stk_ns bound_ns = stk_time_quantile(&times, expected[i].share);
        CHECK(bound_ns >= expected[i].exact_ns && bound_ns <= expected[i].exact_ns * 12 / 10);
    }
    stk_time_add(&times, 0);
    stk_time_add(&times, STK_FOREVER);
    CHECK_INT(times.in_class[0], 1);
    CHECK_INT(times.in_class[STK_TIME_CLASSES - 1], 1);
}

int main(int argc, char **argv)
{
    TEST_MAIN(argc, argv, TEST(a_file_comes_whole_or_in_part), TEST(a_file_of_no_bytes_is_no_failure),
              TEST(what_does_not_fit_is_told_with_its_size), TEST(what_is_no_file_is_refused_without_waiting),
              TEST(a_file_that_may_not_be_read_is_a_fault_of_the_system),
              TEST(a_link_does_not_lead_out_of_the_allowed_folders),
              TEST(a_data_uri_is_decoded_as_leniently_as_the_reference_does),
              TEST(requests_come_in_plan_order_and_can_be_cancelled), TEST(close_drops_what_waits),
              TEST(what_comes_and_goes_is_tried_again), TEST(a_quantile_of_times_is_the_bound_of_its_class));
}
