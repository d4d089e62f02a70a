/* bench_store.c - objects from a store, by Stoker's source and by a plain libcurl loop: rate, CPU time,
 * memory, waits.
 *
 *     bench_store plain URL COUNT IN_FLIGHT           the loop that a C program would have: one thread,
 * epoll, keep-alive, no signing, no retries; headers as long as a signed request's bench_store source URL
 * COUNT IN_FLIGHT [hedge]  s3:// through the source, signed by the keys of the environment bench_store steps
 * URL COUNT IN_FLIGHT [hedge]   the same, taken in order by steps of 64 as a training would, which rests
 * STEP_MS between them: how long it waits
 *
 * URL is the store's, as http://127.0.0.1:9000; keys are b/img/00000.jpg and so on, OBJECTS of them.  Twice
 * over (steps: once), and the last pass is told: connections are open by then.  One line of JSON.  CPU time
 * and memory are the whole process's. */
#include <curl/curl.h>
#include <math.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/resource.h>

#include "base/clock.h"
#include "source/source.h"

enum { OBJECTS = 2000, OBJECT_BYTES = 110000, ROOM_BYTES = 1 << 20, STEP = 64, STEP_MS = 40, EVENTS = 256 };

typedef struct fetch {
    stk_request request;
    CURL *easy;
    uint8_t *bytes;
    size_t got_bytes;
    bool back;
    char address[128];
} fetch;

typedef struct result {
    double wall_s, cpu_s, bytes;
    long failed;
} result;

static int in_flight;
static long count;
static const char *url;
static fetch *fetches;
static double *waits; /* of each step, in seconds */

static void fail(const char *what)
{
    fprintf(stderr, "bench_store: %s\n", what);
    exit(1);
}

static double seconds(void)
{
    return (double)stk_now() * 1e-9;
}

static double cpu_seconds(void)
{
    struct rusage r;
    getrusage(RUSAGE_SELF, &r);
    return (double)(r.ru_utime.tv_sec + r.ru_stime.tv_sec) +
           (double)(r.ru_utime.tv_usec + r.ru_stime.tv_usec) * 1e-6;
}

/* --- the plain loop --- */

static CURLM *multi;
static int poller;
static stk_ns timer = -1; /* of libcurl, one shot: one that stays set would make the loop spin */

static size_t take_body(char *data, size_t each, size_t size, void *context)
{
    fetch *const f = context;
    if (f->got_bytes + size > ROOM_BYTES) return 0;
    memcpy(f->bytes + f->got_bytes, data, size);
    f->got_bytes += size;
    return size;
}

static int watch(CURL *easy, curl_socket_t fd, int what, void *context, void *known)
{
    struct epoll_event event = {.events = (what & CURL_POLL_IN ? EPOLLIN : 0u) |
                                          (what & CURL_POLL_OUT ? EPOLLOUT : 0u),
                                .data.fd = fd};
    if (what == CURL_POLL_REMOVE)
        epoll_ctl(poller, EPOLL_CTL_DEL, fd, NULL);
    else
        epoll_ctl(poller, known ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, fd, &event);
    if (!known && what != CURL_POLL_REMOVE) curl_multi_assign(multi, fd, &poller);
    return 0;
}

static int set_timer(CURLM *m, long ms, void *context)
{
    timer = ms < 0 ? -1 : stk_now() + ms * STK_MS;
    return 0;
}

static void plain_start(fetch *f, long number)
{
    snprintf(f->address, sizeof f->address, "%s/b/img/%05ld.jpg", url, number % OBJECTS);
    curl_easy_setopt(f->easy, CURLOPT_URL, f->address);
    f->got_bytes = 0;
    curl_multi_add_handle(multi, f->easy);
}

static void plain_open(void)
{
    static const char *const line[] = {
        "x-amz-content-sha256: e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        "x-amz-date: 20261130T000000Z",
        "Authorization: AWS4-HMAC-SHA256 "
        "Credential=AKIATESTKEY000000001/20261130/us-east-1/s3/aws4_request,SignedHeaders=host;"
        "x-amz-content-sha256;x-amz-date,Signature="
        "0000000000000000000000000000000000000000000000000000000000000000"};
    struct curl_slist *headers = NULL;
    for (size_t i = 0; i < sizeof line / sizeof *line; i++) headers = curl_slist_append(headers, line[i]);
    curl_global_init(CURL_GLOBAL_ALL);
    multi = curl_multi_init();
    poller = epoll_create1(EPOLL_CLOEXEC);
    curl_multi_setopt(multi, CURLMOPT_SOCKETFUNCTION, watch);
    curl_multi_setopt(multi, CURLMOPT_TIMERFUNCTION, set_timer);
    curl_multi_setopt(multi, CURLMOPT_MAXCONNECTS, (long)in_flight);
    curl_multi_setopt(multi, CURLMOPT_PIPELINING, (long)CURLPIPE_NOTHING);
    for (int i = 0; i < in_flight; i++) {
        CURL *const easy = fetches[i].easy = curl_easy_init();
        curl_easy_setopt(easy, CURLOPT_HTTPHEADER, headers);
        curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, take_body);
        curl_easy_setopt(easy, CURLOPT_WRITEDATA, &fetches[i]);
        curl_easy_setopt(easy, CURLOPT_PRIVATE, &fetches[i]);
        curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
        curl_easy_setopt(easy, CURLOPT_BUFFERSIZE, 65536L);
        curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
        if (getenv("CA")) curl_easy_setopt(easy, CURLOPT_CAINFO, getenv("CA"));
    }
}

static void plain_turn(void)
{
    struct epoll_event event[EVENTS];
    int running;
    const stk_ns left = timer < 0 ? STK_S : timer - stk_now();
    const int n = epoll_wait(poller, event, EVENTS, left <= 0 ? 0 : (int)(left / STK_MS) + 1);
    if (timer >= 0 && stk_now() >= timer) {
        timer = -1;
        curl_multi_socket_action(multi, CURL_SOCKET_TIMEOUT, 0, &running);
    }
    for (int i = 0; i < n; i++)
        curl_multi_socket_action(multi, event[i].data.fd,
                                 (event[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR) ? CURL_CSELECT_IN : 0) |
                                     (event[i].events & EPOLLOUT ? CURL_CSELECT_OUT : 0),
                                 &running);
}

static void plain_pass(result *r)
{
    long issued = 0, done = 0;
    for (; issued < count && issued < in_flight; issued++) plain_start(&fetches[issued], issued);
    while (done < count) {
        plain_turn();
        int left;
        for (CURLMsg *m; (m = curl_multi_info_read(multi, &left));) {
            fetch *f;
            long status;
            CURL *const easy = m->easy_handle;
            const bool fine = m->data.result == CURLE_OK;
            curl_easy_getinfo(easy, CURLINFO_PRIVATE, (char **)&f);
            curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &status);
            curl_multi_remove_handle(multi, easy);
            r->failed += !fine || status != 200;
            r->bytes += (double)f->got_bytes;
            done++;
            if (issued < count) plain_start(f, issued++);
        }
    }
}

/* --- the source --- */

static stk_source *source;

static void source_open(bool hedge)
{
    stk_error err;
    const stk_source_config config = {.file_threads = 1,
                                      .io_threads = 1,
                                      .endpoint = url,
                                      .region = "us-east-1",
                                      .hedge = hedge,
                                      .ca = getenv("CA")};
    if (stk_source_open(&source, &config, &err) < 0) fail(err.message);
}

static void source_start(fetch *f, long number)
{
    snprintf(f->address, sizeof f->address, "s3://b/img/%05ld.jpg", number % OBJECTS);
    f->back = false;
    f->request = (stk_request){.address = stk_str_of(f->address),
                               .size_bytes = OBJECT_BYTES, /* as an index knows it */
                               .priority = (uint64_t)number,
                               .buffer = f->bytes,
                               .capacity_bytes = ROOM_BYTES,
                               .owner = f};
    stk_source_submit(source, &f->request);
}

static fetch *source_reap(result *r)
{
    stk_request *const back = stk_source_reap(source, 120 * STK_S);
    if (!back) fail("nothing came for two minutes");
    if (back->status != STK_OK && !r->failed++) fprintf(stderr, "bench_store: %s\n", back->error.message);
    r->bytes += (double)back->got_bytes;
    fetch *const f = back->owner;
    f->back = true;
    return f;
}

static void source_pass(result *r)
{
    long issued = 0, done = 0;
    for (; issued < count && issued < in_flight; issued++) source_start(&fetches[issued], issued);
    for (; done < count; done++) {
        fetch *const f = source_reap(r);
        if (issued < count) source_start(f, issued++);
    }
}

/* In order, by steps: object k is fetches[k % in_flight], asked for when the one before it there was taken.
 */
static void steps_pass(result *r)
{
    long issued = 0;
    for (; issued < count && issued < in_flight; issued++) source_start(&fetches[issued], issued);
    for (long taken = 0; taken + STEP <= count; taken += STEP) {
        const double begin = seconds();
        for (long k = taken; k < taken + STEP; k++)
            while (!fetches[k % in_flight].back) source_reap(r);
        waits[taken / STEP] = seconds() - begin;
        for (long k = taken; k < taken + STEP; k++)
            if (issued < count) source_start(&fetches[k % in_flight], issued++);
        const double rest = begin + waits[taken / STEP] + STEP_MS * 1e-3 - seconds();
        if (rest > 0) nanosleep(&(struct timespec){0, (long)(rest * 1e9)}, NULL);
    }
    for (long k = count - count % STEP; k < count; k++)
        while (!fetches[k % in_flight].back) source_reap(r);
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Without the first tenth, in which connections open and the source learns what is late. */
static void print_waits(void)
{
    const size_t skipped = (size_t)(count / STEP / 10), steps = (size_t)(count / STEP) - skipped;
    double *const wait = waits + skipped, sum = 0;
    for (size_t i = 0; i < steps; i++) sum += wait[i];
    qsort(wait, steps, sizeof *wait, by_size);
    printf(", \"steps\": %zu, \"waited_s\": %.4f, \"wait_p50_ms\": %.3f, \"wait_p99_ms\": %.3f, "
           "\"wait_p999_ms\": %.3f, \"wait_most_ms\": %.3f",
           steps, sum, wait[steps / 2] * 1e3, wait[steps * 99 / 100] * 1e3, wait[steps * 999 / 1000] * 1e3,
           wait[steps - 1] * 1e3);
}

static void print_source(void)
{
    stk_source_metrics m;
    stk_source_get_metrics(source, &m);
    uint64_t retries = 0;
    for (int i = 0; i < STK_RETRY_COUNT; i++) retries += m.retries[i];
    printf(", \"requests\": %llu, \"connections\": %llu, \"retries\": %llu, \"hedges\": %llu, "
           "\"hedges_won\": %llu, \"first_byte_p50_ms\": %.2f, "
           "\"first_byte_p99_ms\": %.2f",
           (unsigned long long)m.requests, (unsigned long long)m.connections, (unsigned long long)retries,
           (unsigned long long)m.hedges_sent, (unsigned long long)m.hedges_won,
           (double)stk_time_quantile(&m.first_byte, 0.5) * 1e-6,
           (double)stk_time_quantile(&m.first_byte, 0.99) * 1e-6);
}

int main(int argc, char **argv)
{
    if (argc < 5) fail("see the head of bench_store.c");
    const char *const mode = argv[1];
    const bool plain = strcmp(mode, "plain") == 0, steps = strcmp(mode, "steps") == 0;
    url = argv[2], count = atol(argv[3]), in_flight = atoi(argv[4]);
    if (count < 1 || in_flight < STEP) fail("too few");
    fetches = calloc((size_t)in_flight, sizeof *fetches);
    waits = calloc((size_t)(count / STEP + 1), sizeof *waits);
    for (int i = 0; i < in_flight; i++) fetches[i].bytes = malloc(ROOM_BYTES + STK_PAD_BYTES);
    if (plain)
        plain_open();
    else
        source_open(argc > 5 && strcmp(argv[5], "hedge") == 0);

    result r = {0};
    for (int pass = 0; pass < (steps ? 1 : 2); pass++) {
        r = (result){.wall_s = seconds(), .cpu_s = cpu_seconds()};
        if (plain)
            plain_pass(&r);
        else if (steps)
            steps_pass(&r);
        else
            source_pass(&r);
        r.wall_s = seconds() - r.wall_s, r.cpu_s = cpu_seconds() - r.cpu_s;
    }
    struct rusage use;
    getrusage(RUSAGE_SELF, &use);
    printf("{\"wall_s\": %.4f, \"cpu_s\": %.4f, \"bytes\": %.0f, \"count\": %ld, \"failed\": %ld, "
           "\"peak_mb\": %.1f",
           r.wall_s, r.cpu_s, r.bytes, count, r.failed, (double)use.ru_maxrss / 1024);
    if (steps) print_waits();
    if (!plain) print_source();
    puts("}");
    stk_source_close(&source);
    return 0;
}
