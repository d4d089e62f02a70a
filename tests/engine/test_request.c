/* test_request.c - an engine on request makes the run's micro-batches whatever is asked for, and they survive a journey. */
#include <pthread.h>

#include <stoker/parcel.h>

#include "same_state.h"
#include "tiny_set.h"

enum { WORLD = 3 };

static char folder[300];
static stk_options options;
static tiny_run calm; /* by micro-batch of a rank, then by rank */
static stk_place place[TINY_MICROS_MAX];

static void set(const char *name, const char *value)
{
    stk_error err;
    CHECK_OK(stk_options_set(&options, name, value, &err), err);
}

static stk_engine *open_engine(void)
{
    stk_engine *engine = NULL;
    stk_error err;
    CHECK_OK(stk_engine_open_on_request(&engine, &options, WORLD, NULL, &err), err);
    CHECK(stk_engine_reader(engine, 0) == NULL);
    return engine;
}

static void setup(void)
{
    if (!folder[0]) tiny_folder(folder, "request");
    stk_options_deinit(&options);
    proof_options(&options, folder);
    set("micro_batch", "1");
    if (calm.count) return;
    tiny_run_from(&calm, &options, WORLD, NULL);
    CHECK_INT(calm.status, STK_END);
    stk_engine *engine = open_engine();
    stk_blob label;
    stk_opener *opener;
    stk_error err;
    CHECK_OK(stk_parcel_label(&label, engine, &err), err);
    CHECK_OK(stk_opener_create(&opener, label.data, label.size_bytes, NULL, 0, &err), err);
    stk_run_counts counts;
    stk_opener_counts(opener, &counts);
    CHECK_INT(counts.world, WORLD);
    CHECK_INT(counts.micro_count * WORLD, calm.count);
    for (size_t i = 0; i < calm.count; i++) {
        place[i].rank = (uint32_t)(i % WORLD);
        stk_opener_place(opener, i / WORLD, &place[i].step, &place[i].micro);
    }
    stk_opener_release(&opener);
    stk_blob_free(&label);
    stk_engine_close(&engine);
}

static void expect_made(stk_engine *engine, size_t at)
{
    stk_batch *batch = NULL;
    stk_error err;
    uint8_t digest[16];
    stk_state state;
    CHECK_OK(stk_engine_make(engine, &place[at], &batch, STK_FOREVER, &err), err);
    stk_batch_digest(batch, digest);
    stk_batch_state(batch, &state);
    CHECK_MSG(memcmp(digest, calm.digest[at], 16) == 0, "micro-batch %zu differs", at);
    CHECK(same_state(&state, &calm.state[at]));
    stk_batch_release(&batch);
}

static void any_order_gives_the_same_batches(void)
{
    setup();
    stk_engine *engine = open_engine();
    for (size_t i = 0; i < calm.count; i++) expect_made(engine, (i * 31 + 7) % calm.count); /* 31: coprime to the count */
    for (size_t i = calm.count; i-- > 0;) expect_made(engine, i);
    stk_metrics metrics;
    stk_engine_metrics(engine, &metrics);
    CHECK(metrics.micro_batches > calm.count && metrics.micro_batches <= 2 * calm.count); /* what was given out lately may still be there */
    stk_engine_close(&engine);
}

/* Who asks a bit later gets what the others got, as long as nobody needs its place. */
static void what_was_made_lately_is_not_made_again(void)
{
    setup();
    set("prefetch", "3");
    stk_engine *engine = open_engine();
    stk_metrics metrics;
    for (size_t i = 0; i < calm.count; i++) {
        expect_made(engine, i);
        if (i >= 3) expect_made(engine, i - 3);
    }
    stk_engine_metrics(engine, &metrics);
    CHECK_INT(metrics.micro_batches, calm.count);
    CHECK(metrics.peak_bytes <= metrics.budget_bytes);
    stk_engine_close(&engine);
}

/* Layouts, and facts that are found on the way. */
static void every_kind_of_run_is_made_on_request(void)
{
    static const char *const kinds[][2] = {{"layout", "flat"}, {"layout", "packed"}, {"index", "stream"}};
    static tiny_run before;
    setup();
    before = calm;
    for (size_t k = 0; k < 3; k++) {
        setup();
        set(kinds[k][0], kinds[k][1]);
        set("micro_batch", "all");
        if (k == 1) set("row_tokens", "512");
        if (k == 2) set("max_tokens", "512");
        if (k == 2) set("memory", "1GiB"), set("limits.media_bytes", "1MiB"), set("limits.media_pixels", "1000000");
        tiny_run_from(&calm, &options, WORLD, NULL);
        stk_engine *engine = open_engine();
        for (size_t i = calm.count; i-- > 0;) {
            stk_batch *batch = NULL;
            stk_error err;
            uint8_t digest[16];
            CHECK_OK(stk_engine_make(engine, &(stk_place){i / WORLD, (uint32_t)(i % WORLD), 0}, &batch, STK_FOREVER, &err), err);
            stk_batch_digest(batch, digest);
            CHECK_MSG(memcmp(digest, calm.digest[i], 16) == 0, "%s %s: micro-batch %zu differs", kinds[k][0], kinds[k][1], i);
            stk_batch_release(&batch);
        }
        stk_engine_close(&engine);
    }
    calm = before;
}

typedef struct caller {
    stk_engine *engine;
    size_t from, by;
} caller;

static void *ask(void *context)
{
    const caller *const c = context;
    for (size_t i = c->from; i < calm.count; i += c->by) expect_made(c->engine, i);
    return NULL;
}

/* With the smallest window: as many callers as it has places and more, all of them asking for the same, and what is expected in their way. */
static void many_threads_ask_at_once(void)
{
    setup();
    set("prefetch", "1");
    static const size_t steps[][2] = {{1, 0}, {8, 1}}; /* all ask for all; each for its own */
    for (size_t k = 0; k < 2; k++) {
        stk_engine *engine = open_engine();
        pthread_t thread[8];
        caller callers[8];
        for (size_t i = 0; i < 8; i++) {
            callers[i] = (caller){engine, steps[k][1] * i, steps[k][0]};
            CHECK(pthread_create(&thread[i], NULL, ask, &callers[i]) == 0);
        }
        for (size_t i = 0; i < calm.count; i++) stk_engine_expect(engine, &place[calm.count - 1 - i], 1);
        for (size_t i = 0; i < 8; i++) CHECK(pthread_join(thread[i], NULL) == 0);
        stk_metrics metrics;
        stk_engine_metrics(engine, &metrics);
        CHECK_MSG(metrics.micro_batches >= calm.count && metrics.micro_batches <= (k ? 1 : 8) * calm.count, "%llu made",
                  (unsigned long long)metrics.micro_batches);
        CHECK(metrics.peak_bytes <= metrics.budget_bytes);
        stk_engine_close(&engine);
    }
}

/* Two that ask for the same at the same time get the same: here while its only slots are held by others, so that it cannot be made before. */
static void what_is_asked_for_twice_is_made_once(void)
{
    setup();
    set("prefetch", "1");
    set("keep", "1");
    stk_engine *engine = open_engine();
    stk_batch *held[2] = {NULL}, *batch = NULL;
    stk_error err;
    for (size_t i = 0; i < 2; i++) CHECK_OK(stk_engine_make(engine, &place[i], &held[i], STK_FOREVER, &err), err);
    CHECK_INT(stk_engine_make(engine, &place[5], &batch, STK_MS, &err), STK_AGAIN);
    CHECK(batch == NULL);
    pthread_t thread[2];
    caller callers[2] = {{engine, 5, calm.count}, {engine, 5, calm.count}};
    for (size_t i = 0; i < 2; i++) CHECK(pthread_create(&thread[i], NULL, ask, &callers[i]) == 0);
    nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL); /* that both wait is likely, and all that is checked holds without */
    for (size_t i = 0; i < 2; i++) stk_batch_release(&held[i]);
    for (size_t i = 0; i < 2; i++) CHECK(pthread_join(thread[i], NULL) == 0);
    stk_metrics metrics;
    stk_engine_metrics(engine, &metrics);
    CHECK(metrics.micro_batches == 3 || metrics.micro_batches == 4);
    stk_engine_close(&engine);
}

/* What is expected is fetched and not made; what is asked for beside it is not in its way. */
static void what_is_expected_is_fetched(void)
{
    setup();
    set("prefetch", "2");
    stk_engine *engine = open_engine();
    stk_metrics metrics;
    size_t with_media = 0;
    for (size_t i = 0; i < 4; i++) stk_engine_expect(engine, &place[i], 1);
    for (int i = 0; i < 1000 && with_media == 0; i++) {
        stk_engine_metrics(engine, &metrics);
        with_media = metrics.fetch.count;
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    }
    CHECK_MSG(with_media > 0, "nothing was fetched%s", "");
    CHECK_INT(metrics.decode.count, 0);
    CHECK_INT(metrics.ready, 0);
    for (size_t i = calm.count; i-- > 0;) expect_made(engine, i);
    stk_engine_metrics(engine, &metrics);
    CHECK_INT(metrics.micro_batches, calm.count);
    stk_engine_close(&engine);
}

/* --- what is fetched --- */

static uint64_t fetched(const stk_engine *engine)
{
    stk_metrics metrics;
    stk_engine_metrics(engine, &metrics);
    CHECK(metrics.peak_bytes <= metrics.budget_bytes);
    return metrics.fetch.count;
}

/* Its media are being fetched, and have come in the end. */
static void expect_fetched(const stk_engine *engine, uint64_t count)
{
    for (int i = 0; i < 2000 && fetched(engine) < count; i++) nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    CHECK_INT(fetched(engine), count);
}

/* As stoker.ray has a rank read: with each micro-batch it tells which come after the next ones. */
static void read_next(stk_engine *engine, size_t at)
{
    for (size_t i = at + 2 * WORLD; i <= at + 3 * WORLD && i < calm.count; i += WORLD) stk_engine_expect(engine, &place[i], 1);
    expect_made(engine, at);
}

static void *read_rank(void *context)
{
    const caller *const c = context;
    for (size_t i = c->from; i < calm.count; i += c->by) read_next(c->engine, i);
    return NULL;
}

static void many_ranks_have_nothing_fetched_twice(void)
{
    for (size_t k = 0; k < 6; k++) {
        setup();
        set("prefetch", k % 2 ? "4" : "1");
        set("keep", "1");
        if (k / 2 == 1) set("fetch_ahead", "1"); /* room for the largest sample alone */
        if (k / 2 == 2) set("fetch_ahead", "64KiB");
        /* In turn. */
        stk_engine *engine = open_engine();
        for (size_t i = 0; i < calm.count; i++) read_next(engine, i / WORLD * WORLD + (i + i / WORLD) % WORLD);
        CHECK_INT(fetched(engine), calm.metrics.fetch.count);
        stk_engine_close(&engine);
        /* Each as fast as it can. */
        engine = open_engine();
        pthread_t thread[WORLD];
        caller callers[WORLD];
        for (size_t i = 0; i < WORLD; i++) {
            callers[i] = (caller){engine, i, WORLD};
            CHECK(pthread_create(&thread[i], NULL, read_rank, &callers[i]) == 0);
        }
        for (size_t i = 0; i < WORLD; i++) CHECK(pthread_join(thread[i], NULL) == 0);
        CHECK_INT(fetched(engine), calm.metrics.fetch.count);
        stk_engine_close(&engine);
        /* All of it expected at once. */
        engine = open_engine();
        stk_engine_expect(engine, place, calm.count);
        for (size_t i = 0; i < calm.count; i++) expect_made(engine, i);
        CHECK_INT(fetched(engine), calm.metrics.fetch.count);
        stk_engine_close(&engine);
    }
}

/* Where a rank reads elsewhere, later or earlier, what was expected of it is in nobody's way. */
static void what_a_rank_left_behind_gives_way(void)
{
    setup();
    set("prefetch", "1");
    set("keep", "1");
    size_t media[TINY_MICROS_MAX], with_media[16], count = 0; /* of rank 0 */
    stk_engine *engine = open_engine();
    for (size_t i = 0; i < calm.count; i++) {
        const uint64_t before = fetched(engine);
        expect_made(engine, i);
        media[i] = (size_t)(fetched(engine) - before);
        if (i % WORLD == 0 && media[i] && count < 16) with_media[count++] = i;
    }
    stk_engine_close(&engine);
    CHECK(count >= 10);
    engine = open_engine(); /* three micro-batches may be expected */
    uint64_t sum = 0;
    for (size_t i = 0; i < 3; i++) {
        stk_engine_expect(engine, &place[with_media[i]], 1);
        expect_fetched(engine, sum += media[with_media[i]]);
    }
    stk_engine_expect(engine, &place[with_media[6]], 1); /* waits */
    expect_made(engine, with_media[5]);
    expect_fetched(engine, sum += media[with_media[5]] + media[with_media[6]]);
    for (size_t i = 8; i < 10; i++) {
        stk_engine_expect(engine, &place[with_media[i]], 1);
        expect_fetched(engine, sum += media[with_media[i]]);
    }
    stk_engine_expect(engine, &place[with_media[0]], 1); /* in the place of the three later ones */
    expect_fetched(engine, sum += media[with_media[0]]);
    const size_t again[] = {0, 6, 8, 9};
    for (size_t i = 0; i < 4; i++) expect_made(engine, with_media[again[i]]);
    CHECK_INT(fetched(engine), sum + media[with_media[6]] + media[with_media[8]] + media[with_media[9]]);
    stk_engine_close(&engine);
}

/* Asks for places here and there, gives some up, and expects others. */
static void *ask_about(void *context)
{
    const caller *const c = context;
    for (size_t n = 0; n < calm.count; n++) {
        const size_t at = (n * c->by + c->from) % calm.count;
        stk_batch *batch = NULL;
        stk_error err;
        stk_engine_expect(c->engine, &place[(at * 7 + n) % calm.count], 1);
        const stk_status status = stk_engine_make(c->engine, &place[(at + 1) % calm.count], &batch, (stk_ns)(n % 3) * STK_MS / 2, &err);
        CHECK(status == STK_OK || status == STK_AGAIN);
        stk_batch_release(&batch);
        expect_made(c->engine, at);
    }
    return NULL;
}

/* With the smallest window, and in turn (k) with the fewest bytes ahead. */
static stk_engine *open_smallest(size_t k)
{
    setup();
    set("prefetch", "1");
    set("keep", "1");
    if (k) set("fetch_ahead", "1");
    return open_engine();
}

static void a_crowd_that_changes_its_mind_is_served(void)
{
    static const size_t by[] = {1, 5, 11, 17, 23, 29, 31, 37};
    for (size_t k = 0; k < 2; k++) {
        stk_engine *engine = open_smallest(k);
        pthread_t thread[8];
        caller callers[8];
        for (size_t i = 0; i < 8; i++) {
            callers[i] = (caller){engine, i * 3, by[i]};
            CHECK(pthread_create(&thread[i], NULL, ask_about, &callers[i]) == 0);
        }
        for (size_t i = 0; i < 8; i++) CHECK(pthread_join(thread[i], NULL) == 0);
        CHECK(fetched(engine) > 0);
        stk_engine_close(&engine);
    }
}

/* With every slot held, more is asked for and given up than there is room for. */
static void what_was_given_up_stands_in_nobodys_way(void)
{
    for (size_t k = 0; k < 2; k++) {
        stk_engine *engine = open_smallest(k);
        stk_batch *held[2] = {NULL}, *batch = NULL;
        stk_error err;
        for (size_t i = 0; i < 2; i++) CHECK_OK(stk_engine_make(engine, &place[i], &held[i], STK_FOREVER, &err), err);
        for (size_t i = 2; i < calm.count; i++) CHECK_INT(stk_engine_make(engine, &place[i], &batch, STK_MS, &err), STK_AGAIN);
        for (size_t i = 0; i < 2; i++) stk_batch_release(&held[i]);
        for (size_t i = calm.count; i-- > 0;) expect_made(engine, i);
        CHECK(fetched(engine) >= calm.metrics.fetch.count);
        stk_engine_close(&engine);
    }
}

static void what_is_no_place_is_refused(void)
{
    setup();
    stk_engine *engine = open_engine(), *readers = NULL;
    stk_batch *batch = NULL;
    stk_error err;
    const stk_place wrong[] = {{place[calm.count - 1].step + 1, 0, 0}, {0, WORLD, 0}, {0, 0, 77}};
    for (size_t i = 0; i < 3; i++) {
        CHECK_INT(stk_engine_make(engine, &wrong[i], &batch, STK_FOREVER, &err), STK_ERR_USAGE);
        CHECK(batch == NULL);
        stk_engine_expect(engine, &wrong[i], 1);
    }
    expect_made(engine, 3);
    stk_engine_close(&engine);
    CHECK_OK(stk_engine_open(&readers, &options, (stk_engine_ranks){.rank_count = 1, .world = WORLD}, NULL, NULL, &err), err);
    CHECK_INT(stk_engine_make(readers, &place[0], &batch, STK_FOREVER, &err), STK_ERR_USAGE);
    stk_engine_close(&readers);
}

static void close_comes_through_with_batches_out_and_wishes_open(void)
{
    setup();
    stk_engine *engine = open_engine();
    stk_batch *batch = NULL;
    stk_error err;
    uint8_t digest[16];
    CHECK_OK(stk_engine_make(engine, &place[2], &batch, STK_FOREVER, &err), err);
    for (size_t i = 0; i < calm.count; i++) stk_engine_expect(engine, &place[i], 1);
    stk_engine_close(&engine);
    stk_batch_digest(batch, digest);
    CHECK(memcmp(digest, calm.digest[2], 16) == 0);
    stk_batch_release(&batch);
}

/* Where a state stands is the micro-batch behind it, on any engine. */
static void a_state_names_the_next_micro_batch(void)
{
    setup();
    stk_engine *engine = open_engine();
    stk_state here;
    uint64_t number;
    stk_error err;
    CHECK_OK(stk_engine_place(engine, NULL, &number, &here, &err), err);
    CHECK_INT(number, 0);
    for (size_t i = 0; i < calm.count; i++) {
        CHECK_OK(stk_engine_place(engine, &calm.state[i], &number, &here, &err), err);
        CHECK_INT(number, i / WORLD + 1);
        CHECK(same_state(&here, &calm.state[i]));
    }
    stk_state other = calm.state[0];
    other.fingerprint.whole[0] ^= 1;
    CHECK_INT(stk_engine_place(engine, &other, &number, &here, &err), STK_ERR_STATE);
    stk_engine_close(&engine);
}

/* --- parcels --- */

static int over_count;

static void over(void *context)
{
    CHECK(context == folder);
    over_count++;
}

/* Pack it, put the memory where it was not, open it. */
static void travel(stk_opener *opener, const stk_batch *batch, const stk_state *base, const char *const *fields, uint32_t field_count, size_t shift,
                   stk_batch **out, uint8_t **memory)
{
    stk_blob words;
    stk_error err;
    size_t size;
    CHECK_OK(stk_parcel_words(&words, batch, &err), err);
    const void *const whole = stk_parcel_memory(batch, &size);
    if (fields) CHECK_OK(stk_parcel_part(batch, fields, field_count, NULL, &size, &err), err);
    *memory = aligned_alloc(64, (size + shift + 127) / 64 * 64);
    CHECK(*memory != NULL);
    if (fields) CHECK_OK(stk_parcel_part(batch, fields, field_count, *memory + shift, &size, &err), err);
    else memcpy(*memory + shift, whole, size);
    CHECK(stk_opener_open(opener, base, words.data, words.size_bytes, *memory + shift, size - 1, over, folder, out, &err) < 0 && *out == NULL);
    CHECK(stk_opener_open(opener, base, words.data, words.size_bytes - 1, *memory + shift, size, over, folder, out, &err) < 0);
    stk_state other = *base;
    other.fingerprint.whole[31] ^= 1;
    CHECK_INT(stk_opener_open(opener, &other, words.data, words.size_bytes, *memory + shift, size, over, folder, out, &err), STK_ERR_STATE);
    CHECK(stk_opener_open(opener, base, words.data, 20, *memory + shift, size, over, folder, out, &err) < 0);
    CHECK_OK(stk_opener_open(opener, base, words.data, words.size_bytes, *memory + shift, size, over, folder, out, &err), err);
    stk_blob_free(&words);
}

static void check_samples(const stk_batch *a, const stk_batch *b)
{
    CHECK_INT(stk_batch_sample_count(a), stk_batch_sample_count(b));
    for (size_t i = 0; i < stk_batch_sample_count(a); i++) {
        stk_batch_sample x, y;
        stk_batch_sample_at(a, i, &x);
        stk_batch_sample_at(b, i, &y);
        CHECK_STR(x.id, y.id);
        CHECK_STR(x.set, y.set);
        CHECK(x.line == y.line && x.row == y.row && x.tokens == y.tokens && x.visual_tokens == y.visual_tokens && x.step_row == y.step_row);
    }
}

static void a_parcel_holds_the_batch(void)
{
    setup();
    static const char *const some[] = {"labels", "image_grid_thw", "input_ids"};
    stk_engine *engine = open_engine();
    stk_blob label;
    stk_opener *opener[2];
    stk_error err;
    stk_state base, state;
    uint64_t number;
    CHECK_OK(stk_engine_place(engine, NULL, &number, &base, &err), err);
    CHECK_OK(stk_parcel_label(&label, engine, &err), err);
    for (size_t cut = 0; cut < label.size_bytes; cut += 7)
        CHECK(stk_opener_create(&opener[0], label.data, cut, NULL, 0, &err) < 0 && opener[0] == NULL);
    CHECK_INT(stk_opener_create(&opener[0], label.data, label.size_bytes, (const char *const[]){"label"}, 1, &err), STK_ERR_USAGE);
    CHECK_OK(stk_opener_create(&opener[0], label.data, label.size_bytes, NULL, 0, &err), err);
    CHECK_OK(stk_opener_create(&opener[1], label.data, label.size_bytes, some, 3, &err), err);
    stk_blob_free(&label);
    for (size_t i = 0; i < calm.count; i++) {
        stk_batch *batch = NULL, *opened = NULL;
        uint8_t digest[16], *memory;
        CHECK_OK(stk_engine_make(engine, &place[i], &batch, STK_FOREVER, &err), err);
        /* Where it lies straight it is lent until the last release, else copied at once. */
        for (size_t shift = 0; shift <= 8; shift += 8) {
            over_count = 0;
            travel(opener[0], batch, &base, NULL, 0, shift, &opened, &memory);
            CHECK_INT(over_count, shift != 0);
            if (shift) memset(memory, 77, 64);
            stk_batch_digest(opened, digest);
            stk_batch_state(opened, &state);
            CHECK(memcmp(digest, calm.digest[i], 16) == 0 && same_state(&state, &calm.state[i]));
            check_samples(opened, batch);
            CHECK_INT(stk_opener_out(opener[0]), 1);
            stk_batch_release(&opened);
            CHECK_INT(over_count, 1);
            CHECK_INT(stk_opener_out(opener[0]), 0);
            free(memory);
        }
        travel(opener[1], batch, &base, some, 3, 0, &opened, &memory);
        const size_t there = stk_batch_field(batch, some[1]).name ? 3 : 2;
        CHECK_INT(stk_batch_field_count(opened), there);
        for (size_t k = 0; k < 3; k++) {
            const stk_view a = stk_batch_field(batch, some[k]), b = stk_batch_field(opened, some[k]);
            CHECK(a.size_bytes == b.size_bytes && (!a.name || memcmp(a.data, b.data, a.size_bytes) == 0));
            CHECK((uintptr_t)b.data % 64 == 0);
        }
        stk_batch_release(&opened);
        free(memory);
        stk_batch_release(&batch);
    }
    stk_engine_close(&engine);
    for (size_t i = 0; i < 2; i++) stk_opener_release(&opener[i]);
}

/* Where the batch follows a schedule, steps have more and fewer micro-batches. */
static void places_follow_the_schedule(void)
{
    setup();
    set("batch", "[[0, 3], [2, 6], [5, 9]]");
    stk_engine *engine = open_engine(), *readers = NULL;
    stk_blob label;
    stk_opener *opener;
    stk_error err;
    CHECK_OK(stk_parcel_label(&label, engine, &err), err);
    CHECK_OK(stk_opener_create(&opener, label.data, label.size_bytes, NULL, 0, &err), err);
    CHECK_OK(stk_engine_open(&readers, &options, (stk_engine_ranks){.rank_count = 1, .world = WORLD}, NULL, NULL, &err), err);
    stk_reader *const reader = stk_engine_reader(readers, 0);
    stk_run_counts counts;
    stk_opener_counts(opener, &counts);
    CHECK_INT(counts.micro_count, stk_reader_micro_count(reader));
    CHECK_INT(counts.step_count, stk_reader_step_count(reader));
    for (uint64_t n = 0; n < counts.micro_count; n++) {
        uint64_t step;
        uint32_t micro;
        stk_opener_place(opener, n, &step, &micro);
        CHECK_INT(stk_reader_micros_before(reader, step) + micro, n);
        CHECK(n < stk_reader_micros_before(reader, step + 1));
    }
    stk_blob_free(&label);
    stk_opener_release(&opener);
    stk_engine_close(&readers);
    stk_engine_close(&engine);
}

int main(int argc, char **argv)
{
    TEST_MAIN(argc, argv, TEST(any_order_gives_the_same_batches),
              TEST(what_was_made_lately_is_not_made_again),
              TEST(every_kind_of_run_is_made_on_request),
              TEST(many_threads_ask_at_once),
              TEST(what_is_asked_for_twice_is_made_once),
              TEST(what_is_expected_is_fetched),
              TEST(many_ranks_have_nothing_fetched_twice),
              TEST(what_a_rank_left_behind_gives_way),
              TEST(what_was_given_up_stands_in_nobodys_way),
              TEST(a_crowd_that_changes_its_mind_is_served),
              TEST(what_is_no_place_is_refused),
              TEST(close_comes_through_with_batches_out_and_wishes_open),
              TEST(a_state_names_the_next_micro_batch),
              TEST(a_parcel_holds_the_batch),
              TEST(places_follow_the_schedule));
}
