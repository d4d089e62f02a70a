/* test_lifecycle.c - invariants 4, 6, 7, 10: what is held, for how long, and how it ends. */
#include <pthread.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#include "base/memory.h"
#include "tiny_set.h"

static char folder[300];
static stk_options options;
static tiny_run calm;

static void setup(void)
{
    if (!folder[0]) tiny_folder(folder, "lifecycle");
    stk_options_deinit(&options);
    proof_options(&options, folder);
    if (!calm.count) tiny_run_from(&calm, &options, 1, NULL);
}

static stk_loader *open_loader(void)
{
    stk_loader *loader = NULL;
    stk_error err;
    CHECK_OK(stk_loader_open(&loader, &options, 0, 1, &err), err);
    return loader;
}

static stk_batch *next(stk_loader *loader)
{
    stk_batch *batch = NULL;
    stk_error err = {0};
    const stk_status status = stk_loader_next(loader, &batch, STK_FOREVER, &err);
    CHECK_MSG(status == STK_OK, "status %d: %s", (int)status, err.message);
    CHECK(batch != NULL);
    return batch;
}

static void expect_digest(const stk_batch *batch, size_t at)
{
    uint8_t digest[16];
    stk_batch_digest(batch, digest);
    CHECK_MSG(memcmp(digest, calm.digest[at], 16) == 0, "micro-batch %zu", at);
}

static void pause_ms(long ms)
{
    nanosleep(&(struct timespec){.tv_nsec = ms * 1000000}, NULL);
}

/* Until the engine has nothing left to do; false after very long. */
static void wait_until_idle(const stk_loader *loader, stk_metrics *metrics)
{
    stk_metrics before;
    stk_loader_metrics(loader, &before);
    for (int calm_rounds = 0, rounds = 0; calm_rounds < 20; rounds++) {
        pause_ms(10);
        stk_loader_metrics(loader, metrics);
        calm_rounds = memcmp(&before.fetch, &metrics->fetch, sizeof before.fetch) ||
                              before.held_bytes != metrics->held_bytes || before.ready != metrics->ready
                          ? 0
                          : calm_rounds + 1;
        before = *metrics;
        CHECK(rounds < 6000);
    }
}

/* A trainer that sleeps: fetches stop, memory stays flat. */
static void a_sleeping_trainer_stops_the_fetches(void)
{
    setup();
    options.epochs = 40;
    options.prefetch = 3;
    options.keep = 1;
    options.fetch_ahead_bytes = 1;
    options.workers = 4;
    stk_loader *loader = open_loader();
    stk_metrics metrics, later;
    stk_batch *batch = next(loader);
    wait_until_idle(loader, &metrics);
    CHECK_INT(metrics.ready, 3);
    /* One micro-batch delivered, three ready, and the compressed bytes of one sample ahead of them. */
    const uint64_t opened = metrics.media_opened;
    CHECK_MSG(opened <= 4 * 2 * TINY_BATCH + 4, "%llu files opened", (unsigned long long)opened);
    CHECK(metrics.held_bytes <= metrics.budget_bytes);
    pause_ms(200);
    stk_loader_metrics(loader, &later);
    CHECK_INT(later.media_opened, opened);
    CHECK_INT(later.fetch.bytes, metrics.fetch.bytes);
    CHECK_INT(later.held_bytes, metrics.held_bytes);
    /* It goes on when the trainer does. */
    stk_batch_release(&batch);
    batch = next(loader);
    wait_until_idle(loader, &later);
    CHECK_INT(later.ready, 3);
    CHECK(later.media_opened > opened || later.text.count > metrics.text.count);
    stk_batch_release(&batch);
    stk_loader_close(&loader);
}

/* Fetching runs ahead of ready micro-batches as far as fetch_ahead allows. */
static void fetches_run_ahead_of_ready_batches(void)
{
    setup();
    options.epochs = 40;
    options.prefetch = options.keep = 1;
    uint64_t opened[2];
    for (int i = 0; i < 2; i++) {
        options.fetch_ahead_bytes = i ? 16 << 20 : 1;
        stk_loader *loader = open_loader();
        stk_metrics metrics;
        stk_batch *batch = next(loader);
        wait_until_idle(loader, &metrics);
        CHECK_INT(metrics.ready, 1);
        opened[i] = metrics.media_opened;
        stk_batch_release(&batch);
        stk_loader_close(&loader);
    }
    CHECK_MSG(opened[1] > opened[0], "%llu and %llu files opened", (unsigned long long)opened[0],
              (unsigned long long)opened[1]);
}

/* Invariant 6. */
static void a_batch_outlives_its_loader(void)
{
    setup();
    stk_loader *loader = open_loader();
    stk_batch *first = next(loader), *second = next(loader);
    stk_batch_retain(second);
    stk_batch *shared = second;
    stk_loader_close(&loader);
    CHECK(loader == NULL);
    expect_digest(second, 1);
    stk_batch_release(&second);
    stk_batch_sample sample;
    stk_batch_sample_at(shared, 0, &sample);
    CHECK_HAS(sample.id, "set/");
    expect_digest(first, 0);
    stk_batch_release(&first);
    CHECK(first == NULL);
    expect_digest(shared, 1);
    stk_batch_release(&shared);
    stk_batch_release(&shared); /* NULL is fine */
    stk_loader_close(&loader);
}

static void a_reader_that_keeps_too_much_gets_an_error(void)
{
    setup();
    static const int64_t keeps[] = {1, 3};
    for (size_t k = 0; k < 2; k++) {
        options.keep = keeps[k];
        options.prefetch = 1;
        stk_loader *loader = open_loader();
        stk_batch *held[8] = {0};
        size_t count = 0;
        stk_error err;
        /* While it holds `keep` it may ask for one more. */
        for (; count <= (size_t)keeps[k]; count++) held[count] = next(loader);
        stk_batch *batch = NULL;
        CHECK_INT(stk_loader_next(loader, &batch, STK_FOREVER, &err), STK_ERR_KEEP);
        CHECK(batch == NULL);
        CHECK_HAS(err.message, "raise keep");
        stk_batch_release(&held[0]);
        batch = next(loader);
        expect_digest(batch, count);
        stk_batch_release(&batch);
        /* Any of them may be kept for ever, not only the newest. */
        while (++count < calm.count) {
            batch = next(loader);
            expect_digest(batch, count);
            stk_batch_release(&batch);
        }
        for (size_t i = 1; i < 8; i++) stk_batch_release(&held[i]);
        stk_loader_close(&loader);
    }
}

static void close_at_any_time(void)
{
    setup();
    for (int k = 0; k < 40; k++) {
        options.workers = k % 5 == 4 ? -1 : 1 + k % 8;
        options.keep = 1 + k % 3;
        stk_loader *loader = open_loader();
        stk_batch *kept = NULL;
        for (int i = 0; i < k % 14; i++) {
            if (i == 13) break;
            stk_batch_release(&kept);
            kept = next(loader);
            if (i + 1 < k % 14 && i % 2) pause_ms(k % 3);
        }
        if (k % 7 == 0) pause_ms(k % 11);
        stk_loader_close(&loader);
        if (kept) expect_digest(kept, (size_t)(k % 14) - 1);
        stk_batch_release(&kept);
    }
}

static void a_forked_child_is_told_so(void)
{
    setup();
    stk_loader *loader = open_loader();
    stk_batch *batch = next(loader);
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        stk_error err;
        stk_batch *none = NULL;
        stk_metrics metrics;
        const stk_status status = stk_loader_next(loader, &none, STK_FOREVER, &err);
        stk_loader_metrics(loader, &metrics);
        stk_batch_release(&batch);
        stk_loader_close(&loader);
        _exit(status == STK_ERR_FORKED && !none && strstr(err.message, "fork") ? 0 : 1);
    }
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK_INT(status, 0);
    expect_digest(batch, 0);
    stk_batch_release(&batch);
    batch = next(loader);
    expect_digest(batch, 1);
    stk_batch_release(&batch);
    stk_loader_close(&loader);
}

/* Invariant 10.  Three sizes of pictures: their resize tables stay in each worker's cache. */
static void nothing_is_allocated_per_batch(void)
{
    char few[300], path[600];
    snprintf(few, sizeof few, "%s/few", test_folder());
    CHECK(mkdir(few, 0755) == 0);
    proof_manifest(few, 20, 3);
    for (int i = 0; i < 3; i++) {
        tiny_image_path(path, few, i);
        proof_jpeg(path, 160 + 40 * i, 150, (unsigned)i);
    }
    proof_config(few, TINY_OPTIONS);
    stk_options_deinit(&options);
    proof_options(&options, few);
    options.epochs = 30;
    static const int64_t workers[] = {-1, 1, 2};
    for (size_t w = 0; w < 3; w++) {
        options.workers = workers[w];
        stk_loader *loader = open_loader();
        const uint64_t count = stk_loader_count(loader);
        uint64_t after_warming = 0;
        for (uint64_t i = 0; i < count; i++) {
            stk_batch *batch = next(loader);
            stk_batch_release(&batch);
            /* Every worker has had every kind of sample. */
            if (i == 2 * count / 3) after_warming = stk_alloc_count();
        }
        CHECK_INT(stk_alloc_count() - after_warming, 0);
        stk_loader_close(&loader);
    }
}

/* After all is closed nothing is left. */
static void nothing_is_left_behind(void)
{
    setup();
    size_t before[STK_TAG_COUNT];
    for (int tag = 0; tag < STK_TAG_COUNT; tag++) before[tag] = stk_alloc_bytes((stk_tag)tag);
    stk_loader *loader = open_loader();
    stk_batch *batch = next(loader);
    stk_loader_close(&loader);
    stk_batch_release(&batch);
    for (int tag = 0; tag < STK_TAG_COUNT; tag++) CHECK_INT(stk_alloc_bytes((stk_tag)tag), before[tag]);
}

/* --- several readers --- */

typedef struct reader_thread {
    stk_engine *engine;
    uint32_t rank;
    size_t count;
    uint8_t digest[64][16];
    stk_status status;
    stk_error err;
} reader_thread;

static void *read_all(void *context)
{
    reader_thread *const t = context;
    stk_batch *batch = NULL;
    while ((t->status = stk_reader_next(stk_engine_reader(t->engine, t->rank), &batch, STK_FOREVER,
                                        &t->err)) == STK_OK) {
        stk_batch_digest(batch, t->digest[t->count++]);
        stk_batch_release(&batch);
    }
    return NULL;
}

static void readers_in_threads_of_their_own(void)
{
    setup();
    static tiny_run turns;
    static reader_thread threads[3];
    tiny_run_from(&turns, &options, 3, NULL);
    static const int64_t workers[] = {2, -1};
    for (size_t w = 0; w < 2; w++) {
        options.workers = workers[w];
        stk_engine *engine = NULL;
        stk_error err;
        pthread_t thread[3];
        CHECK_OK(stk_engine_open(&engine, &options, (stk_engine_ranks){0, 3, 3, NULL}, NULL, NULL, &err), err);
        for (uint32_t r = 0; r < 3; r++) {
            threads[r] = (reader_thread){.engine = engine, .rank = r};
            CHECK(pthread_create(&thread[r], NULL, read_all, &threads[r]) == 0);
        }
        for (uint32_t r = 0; r < 3; r++) {
            CHECK(pthread_join(thread[r], NULL) == 0);
            CHECK_MSG(threads[r].status == STK_END, "rank %u: %s", r, threads[r].err.message);
            CHECK_INT(threads[r].count, turns.count / 3);
            for (size_t i = 0; i < threads[r].count; i++)
                CHECK(memcmp(threads[r].digest[i], turns.digest[3 * i + r], 16) == 0);
        }
        stk_engine_close(&engine);
    }
}

/* A reader that nobody reads cannot stop the others without a word. */
static void who_waits_for_a_slow_reader_is_told_its_name(void)
{
    setup();
    options.epochs = 4;
    options.prefetch = 1;
    options.timeout_s = 3;
    stk_engine *engine = NULL;
    stk_error err;
    stk_batch *batch = NULL;
    CHECK_OK(stk_engine_open(&engine, &options, (stk_engine_ranks){0, 2, 2, NULL}, NULL, NULL, &err), err);
    stk_status status;
    size_t count = 0;
    while ((status = stk_reader_next(stk_engine_reader(engine, 1), &batch, STK_FOREVER, &err)) == STK_OK) {
        stk_batch_release(&batch);
        count++;
    }
    CHECK_INT(status, STK_ERR_TIMEOUT);
    CHECK_HAS(err.message, "rank 0");
    CHECK(count > 0);
    /* The slow one finds its own where it left it. */
    for (size_t i = 0; i < count; i++) {
        CHECK_OK(stk_reader_next(stk_engine_reader(engine, 0), &batch, STK_FOREVER, &err), err);
        CHECK(batch != NULL);
        stk_batch_release(&batch);
    }
    stk_engine_close(&engine);
}

static void a_short_timeout_says_come_again(void)
{
    setup();
    options.workers = 1;
    stk_loader *loader = open_loader();
    size_t count = 0;
    stk_batch *batch = NULL;
    stk_error err;
    for (;;) {
        const stk_status status = stk_loader_next(loader, &batch, 0, &err);
        if (status == STK_END) break;
        if (status == STK_AGAIN) {
            CHECK(batch == NULL);
            pause_ms(1);
            continue;
        }
        CHECK_OK(status, err);
        expect_digest(batch, count++);
        stk_batch_release(&batch);
    }
    CHECK_INT(count, calm.count);
    CHECK_INT(stk_loader_next(loader, &batch, 0, &err), STK_END);
    stk_loader_close(&loader);
}

int main(int argc, char **argv)
{
    TEST_MAIN(argc, argv, TEST(a_sleeping_trainer_stops_the_fetches),
              TEST(fetches_run_ahead_of_ready_batches), TEST(a_batch_outlives_its_loader),
              TEST(a_reader_that_keeps_too_much_gets_an_error), TEST(close_at_any_time),
              TEST(a_forked_child_is_told_so), TEST(nothing_is_allocated_per_batch),
              TEST(nothing_is_left_behind), TEST(readers_in_threads_of_their_own),
              TEST(who_waits_for_a_slow_reader_is_told_its_name), TEST(a_short_timeout_says_come_again));
}
