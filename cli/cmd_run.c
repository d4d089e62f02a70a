/* cmd_run.c - `stoker run`: batches to a simulated trainer, and what the trainer waited for.
 *
 * One engine serves all ranks; each rank is a thread that asks, "trains" (sleeps), and gives back. */
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <xxhash.h>

#include "command.h"

static stk_ns now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (stk_ns)t.tv_sec * STK_S + t.tv_nsec;
}

static double seconds(stk_ns time)
{
    return (double)time / (double)STK_S;
}

typedef struct trainer {
    pthread_t thread;
    bool started;
    struct run *run;
    stk_reader *reader, *eval_reader;
    uint32_t rank;
    stk_ns train_ns, wait_ns, first_wait_ns, ended_ns;
    stk_ns eval_ns, eval_wait_ns;
    uint64_t batch_bytes; /* of all fields of what was delivered */
    bool evaluated;
    stk_state state;   /* after the last micro-batch */
    stk_status status; /* the last outcome of next */
    stk_error error;
} trainer;

/* Evaluations between the steps. */
typedef struct evaluations {
    uint64_t every;        /* steps; 0: none */
    uint64_t micro_count;  /* of a rank in one */
    uint8_t (*digest)[16]; /* of the first one's, by micro-batch of a rank, then rank */
    atomic_uint_fast64_t done;      /* micro-batches of all ranks and evaluations */
    atomic_uint_fast64_t different; /* of them: not as in the first one */
} evaluations;

typedef struct run {
    stk_engine *engine;
    stk_reader *reader; /* of rank 0: for what is the same on all */
    trainer *trainer;
    evaluations eval;
    uint32_t ranks;
    uint64_t first, end;  /* micro-batches of one rank: those before a resume, and where this call ends */
    uint64_t first_step, step_count; /* where this call begins; steps of the whole run */
    stk_ns step_ns, opened_cpu_ns;
    int64_t workers;           /* the option */
    uint8_t (*digest)[16];     /* by micro-batch of a rank, from the first, then rank */
    atomic_uint_fast64_t done; /* micro-batches of all ranks */
    atomic_uint ended;         /* ranks whose thread is over */
    atomic_bool stop;
} run;

/* Processor time of the process, all threads. */
static stk_ns cpu_now(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return ((stk_ns)u.ru_utime.tv_sec + u.ru_stime.tv_sec) * STK_S + ((stk_ns)u.ru_utime.tv_usec + u.ru_stime.tv_usec) * (STK_MS / 1000);
}

static void sleep_for(stk_ns time)
{
    nanosleep(&(struct timespec){.tv_sec = (time_t)(time / STK_S), .tv_nsec = (long)(time % STK_S)}, NULL);
}

/* In pieces, so that an interrupt need not wait for a long step. */
static void simulate_step(run *r, stk_ns time)
{
    const stk_ns end = now() + time;
    for (stk_ns left = time; left > 0 && !atomic_load(&r->stop); left = end - now())
        sleep_for(left < 50 * STK_MS ? left : 50 * STK_MS);
}

static uint64_t bytes_of(const stk_batch *batch)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < stk_batch_field_count(batch); i++) {
        const stk_view v = stk_batch_field_at(batch, i);
        uint64_t bytes = stk_dtype_bytes(v.dtype);
        for (int d = 0; d < v.ndim; d++) bytes *= (uint64_t)v.shape[d];
        sum += bytes;
    }
    return sum;
}

/* One micro-batch: its digest, "training", its state.  True: an evaluation comes behind it. */
static bool use_batch(trainer *t, stk_batch *batch)
{
    run *const r = t->run;
    stk_batch_info info;
    stk_batch_info_get(batch, &info);
    const uint64_t number = stk_reader_micros_before(r->reader, info.step) + info.micro;
    stk_batch_digest(batch, r->digest[(number - r->first) * r->ranks + t->rank]);
    stk_batch_state(batch, &t->state);
    t->batch_bytes += bytes_of(batch);
    const stk_ns given = now();
    simulate_step(r, r->step_ns / (stk_ns)info.micro_count);
    t->train_ns += now() - given;
    return r->eval.every && info.micro + 1 == info.micro_count && (info.step + 1) % r->eval.every == 0;
}

/* A whole evaluation of a rank, in the middle of training.  False: it is over, or has failed (status). */
static bool evaluate(trainer *t)
{
    evaluations *const e = &t->run->eval;
    const stk_ns began = now();
    t->status = stk_reader_rewind(t->eval_reader, &t->error);
    while (t->status >= 0 && !atomic_load(&t->run->stop)) {
        stk_batch *batch;
        const stk_ns asked = now();
        t->status = stk_reader_next(t->eval_reader, &batch, 50 * STK_MS, &t->error);
        t->eval_wait_ns += now() - asked;
        if (t->status == STK_END) break;
        if (t->status != STK_OK) continue;
        stk_batch_info info;
        uint8_t digest[16];
        stk_batch_info_get(batch, &info);
        stk_batch_digest(batch, digest);
        stk_batch_release(&batch);
        const uint64_t number = stk_reader_micros_before(t->eval_reader, info.step) + info.micro;
        uint8_t *const first = e->digest[number * t->run->ranks + t->rank];
        if (!t->evaluated) memcpy(first, digest, 16);
        else if (memcmp(first, digest, 16) != 0) atomic_fetch_add(&e->different, 1);
        atomic_fetch_add(&e->done, 1);
    }
    t->evaluated = true;
    t->eval_ns += now() - began;
    return t->status == STK_END;
}

static void *train(void *context)
{
    trainer *const t = context;
    run *const r = t->run;
    uint64_t used = r->first;
    while (used < r->end && !atomic_load(&r->stop)) {
        stk_batch *batch;
        const stk_ns asked = now();
        t->status = stk_reader_next(t->reader, &batch, 50 * STK_MS, &t->error);
        t->wait_ns += now() - asked;
        if (used == r->first) t->first_wait_ns = t->wait_ns;
        if (t->status == STK_AGAIN) continue;
        if (t->status != STK_OK) break;
        const bool evaluates = use_batch(t, batch);
        stk_batch_release(&batch);
        used++;
        atomic_fetch_add(&r->done, 1);
        if (evaluates && !evaluate(t)) break;
    }
    /* A failed rank ends the others too. */
    if (t->status < 0) atomic_store(&r->stop, true);
    t->ended_ns = now();
    atomic_fetch_add(&r->ended, 1);
    return NULL;
}

/* The step that a number of micro-batches of a rank ends in, or has come to. */
static uint64_t step_of(const run *r, uint64_t micros)
{
    uint64_t low = r->first_step, high = r->step_count + 1;
    while (high - low > 1) {
        const uint64_t middle = low + (high - low) / 2;
        if (stk_reader_micros_before(r->reader, middle) <= micros) low = middle;
        else high = middle;
    }
    return low;
}

static void show_progress(const run *r, stk_ns started)
{
    stk_metrics m;
    stk_engine_metrics(r->engine, &m);
    const double elapsed = seconds(now() - started) + 1e-9;
    live_line("step %" PRIu64 " of %" PRIu64 "  %.1f samples/s  waited %.0f %%  ready %" PRIu64
              "  memory %.0f of %.0f MiB  masked %" PRIu64,
              step_of(r, atomic_load(&r->done) / r->ranks + r->first), step_of(r, r->end),
              (double)m.samples / elapsed, 100 * seconds(m.wait_ns) / elapsed / r->ranks, m.ready,
              (double)m.held_bytes / (1 << 20), (double)m.budget_bytes / (1 << 20), m.masked);
}

/* The ranks, as threads, until all are over or somebody interrupts. */
static int train_all(run *r)
{
    const stk_ns started = now();
    uint32_t count = 0;
    for (; count < r->ranks; count++) {
        trainer *const t = &r->trainer[count];
        t->run = r;
        t->rank = count;
        t->reader = stk_engine_reader(r->engine, count);
        t->eval_reader = stk_engine_eval_reader(r->engine, count);
        stk_reader_state(t->reader, &t->state);
        if (pthread_create(&t->thread, NULL, train, t)) break;
        t->started = true;
    }
    if (count < r->ranks) atomic_store(&r->stop, true);
    for (unsigned tick = 1; atomic_load(&r->ended) < count; tick++) {
        sleep_for(5 * STK_MS);
        if (interrupted()) atomic_store(&r->stop, true);
        if (tick % 40 == 0) show_progress(r, started);
    }
    for (uint32_t i = 0; i < count; i++) pthread_join(r->trainer[i].thread, NULL);
    live_line_end();
    if (count < r->ranks) {
        fprintf(stderr, "stoker run: cannot start a thread for rank %u\n", count);
        return EXIT_FAILED;
    }
    for (uint32_t i = 0; i < r->ranks; i++)
        if (r->trainer[i].status < 0) return fail_with(&r->trainer[i].error);
    return atomic_load(&r->stop) ? EXIT_INTERRUPTED : EXIT_DONE;
}

/* --- the result --- */

typedef struct result {
    stk_metrics metrics, eval;
    uint64_t evaluations; /* whole ones */
    bool eval_differs;    /* from one to the next */
    stk_ns eval_ns, eval_wait_ns;            /* means over the ranks */
    stk_ns wall_ns;                          /* from open to the end */
    stk_ns train_ns, wait_ns, first_wait_ns; /* means over the ranks, so that they add up to the wall clock */
    stk_ns all_train_ns;                     /* summed over the ranks, as the stages are over threads */
    stk_ns cpu_ns;                           /* processor time, after everything was opened */
    uint64_t steps, batch_bytes;
    size_t rss_peak_bytes;
    uint32_t ranks;
    uint32_t workers; /* that could run at once */
    bool is_inline;
    char digest[33]; /* "" unless the run came to its end */
    char eval_digest[33];
    char state[STK_STATE_TEXT_MAX];
} result;

static stk_ns prepare_ns(const stk_metrics *m)
{
    return m->fetch.busy_ns + m->decode.busy_ns + m->transform.busy_ns + m->text.busy_ns + m->place.busy_ns;
}

static double share(stk_ns part, stk_ns rest)
{
    return part + rest > 0 ? (double)part / (double)(part + rest) : 0;
}

static double ms(stk_ns ns)
{
    return (double)ns / STK_MS;
}

static json_t *latency_json(const stk_latency *l)
{
    return json_pack("{s:I, s:f, s:f, s:f, s:f, s:f}", "count", (json_int_t)l->count, "mean_ms", ms(l->mean_ns), "p50_ms", ms(l->p50_ns),
                     "p90_ms", ms(l->p90_ns), "p99_ms", ms(l->p99_ns), "p999_ms", ms(l->p999_ns));
}

/* Those counts that are not 0, by the names of their places. */
static json_t *by_reason(const uint64_t *counts, unsigned length, const char *(*name)(unsigned))
{
    json_t *const all = json_object();
    for (unsigned i = 0; i < length; i++)
        if (counts[i]) json_object_set_new(all, name(i), json_integer((json_int_t)counts[i]));
    return all;
}

static json_t *store_json(const stk_store_metrics *s)
{
    json_t *const root = json_object();
#define PUT(member) json_object_set_new(root, #member, json_integer((json_int_t)s->member));
    STK_STORE_COUNT_MAP(PUT)
#undef PUT
    json_object_set_new(root, "cache_warning", s->cache_words[0] ? json_string(s->cache_words) : json_null());
    json_object_set_new(root, "retries_by_reason", by_reason(s->retries_by_reason, STK_STORE_RETRY_REASONS, stk_retry_name));
    json_object_set_new(root, "first_byte", latency_json(&s->first_byte));
    json_object_set_new(root, "whole", latency_json(&s->whole));
    json_object_set_new(root, "price", json_real(s->price));
    json_object_set_new(root, "price_per_million_samples", json_real(s->price_per_million_samples));
    return root;
}

static void add_stage(json_t *stages, const char *name, const stk_stage_metrics *s)
{
    json_object_set_new(stages, name,
                        json_pack("{s:I, s:f, s:I}", "count", (json_int_t)s->count, "busy_s",
                                  seconds(s->busy_ns), "bytes", (json_int_t)s->bytes));
}

static json_t *result_json(const result *r)
{
    const stk_metrics *const m = &r->metrics;
    json_t *const stages = json_object();
    add_stage(stages, "fetch", &m->fetch);
    add_stage(stages, "decode", &m->decode);
    add_stage(stages, "transform", &m->transform);
    add_stage(stages, "text", &m->text);
    add_stage(stages, "place", &m->place);
    json_t *const root = json_pack(
        "{s:i, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "schema", 1, "ranks", (json_int_t)r->ranks, "steps", (json_int_t)r->steps, "samples",
        (json_int_t)m->samples, "filler", (json_int_t)m->filler, "tokens", (json_int_t)m->tokens,
        "supervised_tokens", (json_int_t)m->supervised_tokens, "images", (json_int_t)m->images, "batch_bytes", (json_int_t)r->batch_bytes);
    const struct {
        const char *name;
        double value;
    } numbers[] = {{"wall_s", seconds(r->wall_ns)},
                   {"cpu_s", seconds(r->cpu_ns)},
                   {"train_s", seconds(r->train_ns)},
                   {"wait_s", seconds(r->wait_ns)},
                   {"latency_factor", share(r->wait_ns, r->train_ns)},
                   {"serial_latency_factor", share(prepare_ns(m), r->all_train_ns)},
                   {"busy_share", share(r->train_ns, r->wait_ns)},
                   {"first_batch_s", seconds(m->first_batch_ns)},
                   {"samples_per_s", r->wall_ns ? (double)m->samples / seconds(r->wall_ns) : 0}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        json_object_set_new(root, numbers[i].name, json_real(numbers[i].value));
    json_object_set_new(root, "stages", stages);
    json_object_set_new(root, "memory",
                        json_pack("{s:I, s:I, s:I, s:I}", "budget_bytes", (json_int_t)m->budget_bytes,
                                  "peak_bytes", (json_int_t)m->peak_bytes, "rss_peak_bytes",
                                  (json_int_t)r->rss_peak_bytes, "waits", (json_int_t)m->budget_waits));
    json_object_set_new(root, "failures",
                        json_pack("{s:I, s:o}", "masked", (json_int_t)m->masked, "by_reason",
                                  by_reason(m->masked_by_reason, sizeof m->masked_by_reason / sizeof *m->masked_by_reason, stk_reason_name)));
    json_object_set_new(root, "facts_read", json_pack("{s:I, s:I}", "records", (json_int_t)m->records_read, "headers", (json_int_t)m->headers_read));
    if (r->evaluations)
        json_object_set_new(root, "eval",
                            json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:b, s:o}", "evaluations", (json_int_t)r->evaluations,
                                      "samples", (json_int_t)r->eval.samples, "tokens", (json_int_t)r->eval.tokens, "supervised_tokens",
                                      (json_int_t)r->eval.supervised_tokens, "images", (json_int_t)r->eval.images, "masked",
                                      (json_int_t)r->eval.masked, "wall_s", seconds(r->eval_ns), "wait_s", seconds(r->eval_wait_ns),
                                      "same", !r->eval_differs, "digest", r->eval_digest[0] ? json_string(r->eval_digest) : json_null()));
    json_object_set_new(root, "store", store_json(&m->store));
    json_object_set_new(root, "digest", r->digest[0] ? json_string(r->digest) : json_null());
    json_object_set_new(root, "state", json_string(r->state));
    return root;
}

/* What the trainer waited for, and what would change it. */
static const char *verdict_of(const result *r)
{
    const stk_metrics *const m = &r->metrics;
    const stk_ns later_wait = r->wait_ns - r->first_wait_ns;
    const stk_ns image = m->decode.busy_ns + m->transform.busy_ns, text = m->text.busy_ns + m->place.busy_ns;
    /* Of what the workers could give while the trainer was served. */
    const double cpu_share = (double)(image + text) / ((double)(r->wait_ns + r->train_ns) * r->workers + 1);
    if (share(r->wait_ns, r->train_ns) < 0.02) return "the trainer waited for nothing";
    if (r->is_inline)
        return "all was done one by one inside next (workers: inline): with workers it overlaps";
    if (later_wait < r->wait_ns / 4)
        return "the trainer waited for the first batch and for nothing else: in a longer run this does not "
               "count";
    if (r->train_ns < r->wait_ns / 1000 && cpu_share > 0.5)
        return "no training was simulated (--step-ms), so this is all that the CPU gives: more cores, or "
               "workers, give more";
    if (cpu_share > 0.5)
        return image > text ? "the trainer waited for the CPU, for images most of all: more cores or "
                              "workers, or a lower max_pixels"
                            : "the trainer waited for the CPU, for text most of all: more cores or workers";
    if (m->store.requests && cpu_share < 0.3)
        return "the trainer waited for the store: `stoker fetch-bench` says what it gives; more fetch_ahead or prefetch, or a cache (docs/s3.md)";
    if (m->fetch.busy_ns > image + text)
        return "the trainer waited for bytes: a faster disk, or more fetch_ahead";
    if (m->budget_waits > m->micro_batches)
        return "the trainer waited while work waited for memory: raise memory";
    if (r->train_ns < r->wait_ns / 1000)
        return "no training was simulated (--step-ms): a trainer that takes no time is never kept busy";
    return "the trainer waited although neither CPU nor disk was at its end: more workers, or more prefetch";
}

static void print_stage(const char *name, const stk_stage_metrics *s)
{
    printf("  %-10s %10" PRIu64 " x  %9.3f s  %10.1f MB\n", name, s->count, seconds(s->busy_ns),
           (double)s->bytes / 1e6);
}

static void print_store(const stk_store_metrics *s)
{
    if (!s->requests && !s->cache_hits) return;
    printf("store: %" PRIu64 " requests, %.1f MB, first byte %.1f ms (p99 %.1f), whole %.1f ms (p99 %.1f, p99.9 %.1f), %" PRIu64 " connections\n",
           s->requests, (double)s->bytes / 1e6, ms(s->first_byte.p50_ns), ms(s->first_byte.p99_ns), ms(s->whole.p50_ns), ms(s->whole.p99_ns),
           ms(s->whole.p999_ns), s->connections);
    if (s->retries) {
        printf("  %" PRIu64 " retries:", s->retries);
        for (unsigned i = 0; i < STK_STORE_RETRY_REASONS; i++)
            if (s->retries_by_reason[i]) printf(" %s %" PRIu64, stk_retry_name(i), s->retries_by_reason[i]);
        printf("\n");
    }
    if (s->hedges_sent) printf("  hedges: %" PRIu64 " sent, %" PRIu64 " won\n", s->hedges_sent, s->hedges_won);
    if (s->cache_hits || s->cache_misses)
        printf("  cache: %" PRIu64 " of %" PRIu64 " from it, %.1f MB\n", s->cache_hits, s->cache_hits + s->cache_misses,
               (double)s->cache_hit_bytes / 1e6);
    if (s->cache_broken) printf("  cache: %" PRIu64 " damaged on the disk, and fetched again\n", s->cache_broken);
    if (s->cache_words[0]) printf("  warning: %s\n", s->cache_words);
    if (s->price > 0) printf("  price: %.4f so far, %.2f for a million samples\n", s->price, s->price_per_million_samples);
}

static void print_result(const result *r)
{
    const stk_metrics *const m = &r->metrics;
    printf("%" PRIu64 " steps on %u rank%s, %" PRIu64 " samples, %" PRIu64 " images, %" PRIu64
           " tokens (%" PRIu64 " supervised)\n",
           r->steps, r->ranks, r->ranks == 1 ? "" : "s", m->samples, m->images, m->tokens, m->supervised_tokens);
    printf("wall %.3f s, %.1f samples/s, first batch after %.3f s\n", seconds(r->wall_ns),
           r->wall_ns ? (double)m->samples / seconds(r->wall_ns) : 0, seconds(m->first_batch_ns));
    printf("trainer: %.3f s at work, %.3f s waiting: latency factor %.3f (one by one it would be %.3f), busy "
           "%.1f %%\n",
           seconds(r->train_ns), seconds(r->wait_ns), share(r->wait_ns, r->train_ns),
           share(prepare_ns(m), r->all_train_ns), share(r->train_ns, r->wait_ns) * 100);
    printf("stages, summed over threads\n");
    print_stage("fetch", &m->fetch);
    print_stage("decode", &m->decode);
    print_stage("transform", &m->transform);
    print_stage("text", &m->text);
    print_stage("place", &m->place);
    printf("memory: peak %.1f of %.1f MiB, %" PRIu64 " waits for it; process %.1f MiB\n",
           (double)m->peak_bytes / (1 << 20), (double)m->budget_bytes / (1 << 20), m->budget_waits,
           (double)r->rss_peak_bytes / (1 << 20));
    print_store(&m->store);
    printf("failures: %" PRIu64 " samples masked\n", m->masked);
    for (unsigned i = 0; i < 64; i++)
        if (m->masked_by_reason[i])
            printf("  %8" PRIu64 "  %s\n", m->masked_by_reason[i], stk_reason_name(i));
    if (r->evaluations)
        printf("%" PRIu64 " evaluations%s: %" PRIu64 " samples, %.3f s, %.3f s of it waiting; digest %s\n", r->evaluations,
               r->eval_differs ? " that differ" : "", r->eval.samples, seconds(r->eval_ns), seconds(r->eval_wait_ns), r->eval_digest);
    printf("verdict: %s\n", verdict_of(r));
    if (r->digest[0]) printf("digest %s\n", r->digest);
}

/* Over the digests of micro-batches begin .. end - 1 of each rank, by step, rank and micro (docs/determinism.md).  A resumed run may
 * begin inside a step: what lies before is not part of it. */
static void digest_all(const stk_reader *reader, uint8_t (*digest)[16], uint32_t ranks, uint64_t first_step, uint64_t first,
                       uint64_t end, char text[33])
{
    XXH3_state_t *const state = XXH3_createState();
    if (!state) return;
    XXH3_128bits_reset(state);
    uint64_t begin = first;
    for (uint64_t s = first_step; begin < end; s++) {
        const uint64_t step_end = stk_reader_micros_before(reader, s + 1);
        for (uint32_t k = 0; k < ranks; k++)
            for (uint64_t m = begin; m < step_end; m++) XXH3_128bits_update(state, digest[(m - first) * ranks + k], 16);
        begin = step_end;
    }
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(state));
    XXH3_freeState(state);
    hex_text(canonical.digest, text);
}

/* The state that no rank is behind of: what some have done beyond it is done again. */
static const stk_state *least_state(const run *r)
{
    const stk_state *least = &r->trainer[0].state;
    for (uint32_t i = 1; i < r->ranks; i++) {
        const stk_state *const s = &r->trainer[i].state;
        if (s->step < least->step || (s->step == least->step && s->micro < least->micro)) least = s;
    }
    return least;
}

static void sum_up(result *out, const run *r, stk_ns opened)
{
    struct rusage usage;
    cpu_set_t set;
    stk_ns ended = opened;
    stk_engine_metrics(r->engine, &out->metrics);
    for (uint32_t i = 0; i < r->ranks; i++) {
        const trainer *const t = &r->trainer[i];
        out->all_train_ns += t->train_ns;
        out->wait_ns += t->wait_ns;
        out->first_wait_ns += t->first_wait_ns;
        out->eval_ns += t->eval_ns / r->ranks;
        out->eval_wait_ns += t->eval_wait_ns / r->ranks;
        out->batch_bytes += t->batch_bytes;
        if (t->ended_ns > ended) ended = t->ended_ns;
    }
    out->train_ns = out->all_train_ns / r->ranks;
    out->wait_ns /= r->ranks;
    out->first_wait_ns /= r->ranks;
    out->wall_ns = ended - opened;
    out->cpu_ns = cpu_now() - r->opened_cpu_ns;
    out->ranks = r->ranks;
    stk_engine_eval_metrics(r->engine, &out->eval);
    if (r->eval.micro_count) out->evaluations = atomic_load(&r->eval.done) / r->ranks / r->eval.micro_count;
    out->eval_differs = atomic_load(&r->eval.different) > 0;
    const uint64_t done = atomic_load(&r->done) / r->ranks + r->first;
    out->steps = step_of(r, done) - r->first_step;
    getrusage(RUSAGE_SELF, &usage);
    out->rss_peak_bytes = (size_t)usage.ru_maxrss * 1024;
    out->workers = sched_getaffinity(0, sizeof set, &set) == 0 ? (uint32_t)CPU_COUNT(&set) : 1;
    if (r->workers > 0 && r->workers < out->workers) out->workers = (uint32_t)r->workers;
    out->is_inline = r->workers < 0;
}

/* Print and save; the state also of a run that was interrupted or failed. */
static int report(const invocation *in, const run *r, result *out, int status)
{
    stk_error err;
    const stk_state *const state = least_state(r);
    const char *const path = flag_of(in, "state");
    if (stk_state_write(state, out->state, sizeof out->state, &err) < 0) return fail_with(&err);
    if (path && stk_state_save(state, path, &err) < 0) return fail_with(&err);
    if (status == EXIT_DONE) digest_all(r->reader, r->digest, r->ranks, r->first_step, r->first, r->end, out->digest);
    if (status == EXIT_DONE && out->evaluations)
        digest_all(stk_engine_eval_reader(r->engine, 0), r->eval.digest, r->ranks, 0, 0, r->eval.micro_count, out->eval_digest);
    int printed = EXIT_DONE;
    if (flag_of(in, "json"))
        printed = print_json(result_json(out));
    else if (flag_of(in, "digest") && status == EXIT_DONE)
        printf("%s\n", out->digest);
    else
        print_result(out);
    if (status == EXIT_INTERRUPTED)
        fprintf(stderr, "stoker run: interrupted after %" PRIu64 " steps%s%s\n", out->steps,
                path ? "; go on with --resume " : "", path ? path : "");
    return status == EXIT_DONE ? printed : status;
}

/* Everything but the report.  To be freed; NULL: no memory for it, after the message. */
static result *stream(run *r, stk_ns opened, int *status)
{
    result *const out = calloc(1, sizeof *out);
    r->trainer = calloc(r->ranks, sizeof *r->trainer);
    r->digest = calloc((size_t)((r->end - r->first) * r->ranks + 1), 16);
    r->eval.digest = calloc((size_t)(r->eval.micro_count * r->ranks + 1), 16);
    if (!out || !r->trainer || !r->digest || !r->eval.digest) {
        fprintf(stderr, "stoker run: out of memory\n");
        free(out);
        *status = EXIT_FAILED;
        return NULL;
    }
    *status = train_all(r);
    sum_up(out, r, opened);
    return out;
}

/* Where it begins (behind an allowed change that need not be where the state was taken), and where this call ends. */
static void set_ends(run *r, uint64_t steps, stk_state *begin)
{
    stk_reader_state(r->reader, begin);
    r->step_count = stk_reader_step_count(r->reader);
    r->first_step = begin->step;
    r->first = stk_reader_micros_before(r->reader, begin->step) + begin->micro;
    const bool ends = steps < r->step_count - begin->step;
    r->end = stk_reader_micros_before(r->reader, ends ? begin->step + steps : r->step_count);
    if (r->end < r->first) r->end = r->first; /* no step more, and the state stands inside one */
}

static int open_run(run *r, const stk_options *options, stk_engine_ranks ranks, const stk_state *state)
{
    stk_error err;
    const stk_index_progress progress = index_progress();
    if (stk_engine_open(&r->engine, options, ranks, state, &progress, &err) < 0) return fail_with(&err);
    live_line_end();
    r->reader = stk_engine_reader(r->engine, 0);
    r->opened_cpu_ns = cpu_now();
    return EXIT_DONE;
}

static void close_run(run *r)
{
    stk_engine_close(&r->engine);
    free(r->eval.digest);
    free(r->digest);
    free(r->trainer);
}

int measure_run(const stk_options *options, uint32_t world, uint64_t steps, json_t **report)
{
    const stk_ns opened = now();
    stk_options training = *options;
    training.eval = NULL; /* options has it still */
    run r = {.ranks = 1, .workers = options->workers};
    const stk_engine_ranks first = {.first_rank = 0, .rank_count = 1, .world = world};
    int status = open_run(&r, &training, first, NULL);
    if (status != EXIT_DONE) return status;
    stk_state begin;
    set_ends(&r, steps, &begin);
    result *const out = stream(&r, opened, &status);
    if (status == EXIT_DONE) *report = result_json(out);
    free(out);
    close_run(&r);
    return status;
}

static int run_run(const invocation *in)
{
    run r = {.ranks = 1};
    int64_t ranks, step_ms, steps, eval_every;
    stk_error err;
    if (!number_of(in, "ranks", 1, 4096, 1, &ranks) || !number_of(in, "step-ms", 0, 3600000, 0, &step_ms) ||
        !number_of(in, "steps", 0, INT64_MAX, INT64_MAX, &steps) || !number_of(in, "eval-every", 1, INT64_MAX, 0, &eval_every))
        return EXIT_USAGE;
    stk_options options = in->options;
    if (flag_of(in, "serial")) { /* the baseline that people start from */
        options.workers = -1;
        options.prefetch = 1;
    }
    if (eval_every && !options.eval) return usage_error(in->command, "--eval-every needs `eval` in the configuration");
    if (!eval_every) options.eval = NULL; /* in->options has it still */
    stk_state state;
    const char *const resume = flag_of(in, "resume");
    const char *const allowed = flag_of(in, "allow-change");
    if (allowed && !resume) return usage_error(in->command, "--allow-change goes with --resume");
    if (resume && stk_state_load(&state, resume, &err) < 0) return fail_with(&err);
    if (allowed && stk_state_allow_changes(&state, allowed, &err) < 0) return fail_with(&err);
    r.ranks = (uint32_t)ranks;
    r.step_ns = step_ms * STK_MS;
    r.workers = options.workers;
    const stk_ns opened = now();
    const stk_engine_ranks all = {.first_rank = 0, .rank_count = r.ranks, .world = r.ranks};
    int status = open_run(&r, &options, all, resume ? &state : NULL);
    if (status != EXIT_DONE) return status;
    r.eval.every = (uint64_t)eval_every;
    if (eval_every) r.eval.micro_count = stk_reader_micro_count(stk_engine_eval_reader(r.engine, 0));
    set_ends(&r, (uint64_t)steps, &state);
    if (allowed)
        fprintf(stderr, "stoker run: going on at step %" PRIu64 ", row %" PRIu64 " of epoch %" PRIu64 "\n", state.step, state.rows,
                state.epoch);
    result *const out = stream(&r, opened, &status);
    if (out) status = report(in, &r, out, status);
    free(out);
    close_run(&r);
    return status;
}

static const flag run_flags[] = {
    {"steps", "N", "end this call after N steps (0: open everything, check the state); the stream stays the same (--set steps=N sets the option)"},
    {"ranks", "N", "data-parallel ranks, served by one engine"},
    {"step-ms", "T", "what a step of the simulated trainer takes, in milliseconds"},
    {"serial", NULL, "everything one by one inside next: the baseline"},
    {"eval-every", "N", "evaluate after every N steps: all of `eval`, by the same engine within the same memory"},
    {"digest", NULL, "print only the digest of all micro-batches (--json: as its `digest`)"},
    {"json", NULL, "print one JSON document"},
    {"state", "FILE", "save the state at the end, also of a run that was interrupted or failed"},
    {"resume", "FILE", "go on from a saved state"},
    {"allow-change", "NAME,...", "with --resume: let these options differ from those of the state; its states record it"},
    {0}};

const command run_command = {.name = "run",
                             .arguments = "CONFIG",
                             .least = 1,
                             .most = 1,
                             .reads_config = true,
                             .flags = run_flags,
                             .run = run_run,
                             .summary =
                                 "stream batches to a simulated trainer, and measure what it waits for",
                             .text = "The latency factor is wait / (wait + train), the first batch included; "
                                     "beside it stands what it would be if\n"
                                     "the same stages ran one by one.  Interrupted, it stops within a "
                                     "second, reports what was done, and saves the state."};
