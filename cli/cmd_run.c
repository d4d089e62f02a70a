/* cmd_run.c - `stoker run`: batches to a simulated trainer, and what the trainer waited for.
 *
 * One engine serves all ranks; each rank is a thread that asks, "trains" (sleeps), and gives back. */
#include <inttypes.h>
#include <pthread.h>
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
    stk_reader *reader;
    uint32_t rank;
    stk_ns train_ns, wait_ns;
    stk_state state;
    stk_status status;
    stk_error error;
} trainer;

typedef struct run {
    stk_engine *engine;
    trainer *trainer;
    uint32_t ranks;
    uint64_t micro_total, first; /* of one rank: in all, and those before a resume */
    stk_ns step_ns;
    uint8_t (*digest)[16];  /* by micro-batch of a rank, then rank */
    atomic_uint_fast64_t done; /* micro-batches of all ranks */
    atomic_bool stop;
} run;

static void sleep_for(stk_ns time)
{
    nanosleep(&(struct timespec){.tv_sec = (time_t)(time / STK_S), .tv_nsec = (long)(time % STK_S)}, NULL);
}

/* Where a micro-batch stands among those of its rank. */
static uint64_t place_of(const stk_batch_info *info)
{
    return info->step * info->micro_count + info->micro;
}

static void *train(void *context)
{
    trainer *const t = context;
    run *const r = t->run;
    while (!atomic_load(&r->stop)) {
        stk_batch *batch;
        const stk_ns asked = now();
        t->status = stk_reader_next(t->reader, &batch, 50 * STK_MS, &t->error);
        t->wait_ns += now() - asked;
        if (t->status == STK_AGAIN) continue;
        if (t->status != STK_OK) break;
        stk_batch_info info;
        stk_batch_info_get(batch, &info);
        stk_batch_digest(batch, r->digest[(place_of(&info) - r->first) * r->ranks + t->rank]);
        stk_batch_state(batch, &t->state);
        const stk_ns given = now();
        if (r->step_ns) sleep_for(r->step_ns / info.micro_count);
        t->train_ns += now() - given;
        stk_batch_release(&batch);
        atomic_fetch_add(&r->done, 1);
    }
    return NULL;
}

/* The ranks, as threads, until all are over or somebody interrupts. */
static int train_all(run *r)
{
    for (uint32_t i = 0; i < r->ranks; i++) {
        trainer *const t = &r->trainer[i];
        *t = (trainer){.run = r, .rank = i, .reader = stk_engine_reader(r->engine, i)};
        stk_reader_state(t->reader, &t->state);
        if (pthread_create(&t->thread, NULL, train, t)) {
            fprintf(stderr, "stoker run: cannot start a thread for rank %u\n", i);
            atomic_store(&r->stop, true);
            break;
        }
        t->started = true;
    }
    const uint64_t total = (r->micro_total - r->first) * r->ranks;
    const stk_ns start = now();
    for (bool alive = true; alive;) {
        sleep_for(20 * STK_MS);
        alive = atomic_load(&r->done) < total && !atomic_load(&r->stop);
        for (uint32_t i = 0; i < r->ranks; i++) alive &= r->trainer[i].status >= STK_OK && r->trainer[i].status != STK_END;
        if (interrupted()) atomic_store(&r->stop, true);
        const uint64_t done = atomic_load(&r->done);
        live_line("%" PRIu64 " of %" PRIu64 " micro-batches, %.1f a second", done, total, (double)done / (seconds(now() - start) + 1e-9));
    }
    /* A failed rank ends the others too. */
    for (uint32_t i = 0; i < r->ranks; i++)
        if (r->trainer[i].status < 0) atomic_store(&r->stop, true);
    for (uint32_t i = 0; i < r->ranks; i++)
        if (r->trainer[i].started) pthread_join(r->trainer[i].thread, NULL);
    live_line_end();
    return atomic_load(&r->stop) ? EXIT_INTERRUPTED : EXIT_DONE;
}

/* --- the result --- */

typedef struct result {
    stk_metrics metrics;
    stk_ns wall_ns, train_ns, wait_ns; /* train and wait: summed over ranks */
    uint64_t steps;
    size_t rss_peak_bytes;
    char digest[33];
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

static void add_stage(json_t *stages, const char *name, const stk_stage_metrics *s)
{
    json_object_set_new(stages, name, json_pack("{s:I, s:f, s:I}", "count", (json_int_t)s->count, "busy_s", seconds(s->busy_ns), "bytes",
                                                (json_int_t)s->bytes));
}

static json_t *result_json(const result *r)
{
    const stk_metrics *const m = &r->metrics;
    json_t *const stages = json_object(), *const reasons = json_object();
    add_stage(stages, "fetch", &m->fetch);
    add_stage(stages, "decode", &m->decode);
    add_stage(stages, "transform", &m->transform);
    add_stage(stages, "text", &m->text);
    add_stage(stages, "place", &m->place);
    for (unsigned i = 0; i < 64; i++)
        if (m->masked_by_reason[i]) json_object_set_new(reasons, stk_reason_name(i), json_integer((json_int_t)m->masked_by_reason[i]));
    json_t *const root = json_pack("{s:i, s:I, s:I, s:I, s:I, s:I, s:I}", "schema", 1, "steps", (json_int_t)r->steps, "samples",
                                   (json_int_t)m->samples, "filler", (json_int_t)m->filler, "tokens", (json_int_t)m->tokens,
                                   "supervised_tokens", (json_int_t)m->supervised_tokens, "images", (json_int_t)m->images);
    const struct { const char *name; double value; } numbers[] = {
        {"wall_s", seconds(r->wall_ns)}, {"train_s", seconds(r->train_ns)}, {"wait_s", seconds(r->wait_ns)},
        {"latency_factor", share(r->wait_ns, r->train_ns)}, {"serial_latency_factor", share(prepare_ns(m), r->train_ns)},
        {"busy_share", share(r->train_ns, r->wait_ns)}, {"first_batch_s", seconds(m->first_batch_ns)},
        {"samples_per_s", r->wall_ns ? (double)m->samples / seconds(r->wall_ns) : 0}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) json_object_set_new(root, numbers[i].name, json_real(numbers[i].value));
    json_object_set_new(root, "stages", stages);
    json_object_set_new(root, "memory", json_pack("{s:I, s:I, s:I, s:I}", "budget_bytes", (json_int_t)m->budget_bytes, "peak_bytes",
                                                  (json_int_t)m->peak_bytes, "rss_peak_bytes", (json_int_t)r->rss_peak_bytes, "waits",
                                                  (json_int_t)m->budget_waits));
    json_object_set_new(root, "failures", json_pack("{s:I, s:o}", "masked", (json_int_t)m->masked, "by_reason", reasons));
    json_object_set_new(root, "digest", json_string(r->digest));
    json_object_set_new(root, "state", json_string(r->state));
    return root;
}

/* What the trainer waited for, and what would change it. */
static void print_verdict(const result *r)
{
    const stk_metrics *const m = &r->metrics;
    const stk_ns after_first = r->wait_ns - m->first_batch_ns;
    if (r->train_ns == 0) {
        printf("verdict: no training was simulated (--step-ms): these are the figures of a trainer that takes no time\n");
    } else if (share(r->wait_ns, r->train_ns) < 0.02) {
        printf("verdict: the trainer waited for nothing\n");
    } else if (after_first < r->wait_ns / 4) {
        printf("verdict: the trainer waited for the first batch only: longer runs will not feel it\n");
    } else if (m->budget_waits > m->samples / 4) {
        printf("verdict: the trainer waited for memory: raise memory\n");
    } else if (m->fetch.busy_ns > prepare_ns(m) / 2) {
        printf("verdict: the trainer waited for bytes: the disk is the limit\n");
    } else {
        const bool decode = m->decode.busy_ns + m->transform.busy_ns > m->text.busy_ns + m->place.busy_ns;
        printf("verdict: the trainer waited for the CPU, most of it %s: more cores, or workers, would help\n",
               decode ? "decoding and resizing images" : "making text into tokens");
    }
}

static void print_stage(const char *name, const stk_stage_metrics *s)
{
    printf("  %-10s %10" PRIu64 " x  %9.3f s  %10.1f MB\n", name, s->count, seconds(s->busy_ns), (double)s->bytes / 1e6);
}

static void print_result(const result *r, uint32_t ranks)
{
    const stk_metrics *const m = &r->metrics;
    printf("%" PRIu64 " steps on %u rank%s, %" PRIu64 " samples, %" PRIu64 " images, %" PRIu64 " tokens (%" PRIu64 " supervised)\n", r->steps,
           ranks, ranks == 1 ? "" : "s", m->samples, m->images, m->tokens, m->supervised_tokens);
    printf("wall %.3f s, %.1f samples/s, first batch after %.3f s\n", seconds(r->wall_ns),
           r->wall_ns ? (double)m->samples / seconds(r->wall_ns) : 0, seconds(m->first_batch_ns));
    printf("trainer: %.3f s at work, %.3f s waiting: latency factor %.3f (one by one it would be %.3f), busy %.1f %%\n",
           seconds(r->train_ns), seconds(r->wait_ns), share(r->wait_ns, r->train_ns), share(prepare_ns(m), r->train_ns),
           share(r->train_ns, r->wait_ns) * 100);
    printf("stages, summed over threads\n");
    print_stage("fetch", &m->fetch);
    print_stage("decode", &m->decode);
    print_stage("transform", &m->transform);
    print_stage("text", &m->text);
    print_stage("place", &m->place);
    printf("memory: peak %.1f of %.1f MiB, %" PRIu64 " waits for it; process %.1f MiB\n", (double)m->peak_bytes / (1 << 20),
           (double)m->budget_bytes / (1 << 20), m->budget_waits, (double)r->rss_peak_bytes / (1 << 20));
    printf("failures: %" PRIu64 " samples masked\n", m->masked);
    for (unsigned i = 0; i < 64; i++)
        if (m->masked_by_reason[i]) printf("  %8" PRIu64 "  %s\n", m->masked_by_reason[i], stk_reason_name(i));
    print_verdict(r);
    printf("digest %s\n", r->digest);
}

static int finish(const invocation *in, run *r, result *out, stk_ns started)
{
    stk_error err;
    out->wall_ns = now() - started;
    stk_engine_metrics(r->engine, &out->metrics);
    const stk_state *least = &r->trainer[0].state;
    for (uint32_t i = 0; i < r->ranks; i++) {
        const stk_state *const s = &r->trainer[i].state;
        out->train_ns += r->trainer[i].train_ns;
        out->wait_ns += r->trainer[i].wait_ns;
        if (s->step < least->step || (s->step == least->step && s->micro < least->micro)) least = s;
    }
    const uint64_t micros = r->micro_total / (stk_engine_step_count(r->engine) ? stk_engine_step_count(r->engine) : 1);
    out->steps = (atomic_load(&r->done) / r->ranks + micros - 1) / micros;
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    out->rss_peak_bytes = (size_t)usage.ru_maxrss * 1024;
    if (stk_state_write(least, out->state, sizeof out->state, &err) < 0) return fail_with(&err);
    const char *const path = flag_of(in, "state");
    if (path && stk_state_save(least, path, &err) < 0) return fail_with(&err);
    return EXIT_DONE;
}

static void digest_all(const run *r, char text[33])
{
    const XXH128_hash_t hash = XXH3_128bits(r->digest, (size_t)(r->micro_total - r->first) * r->ranks * 16);
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, hash);
    hex_text(canonical.digest, text);
}

static int stream(const invocation *in, run *r)
{
    result *const out = calloc(1, sizeof *out);
    r->trainer = calloc(r->ranks, sizeof *r->trainer);
    r->digest = calloc((size_t)(r->micro_total - r->first) * r->ranks + 1, 16);
    if (!out || !r->trainer || !r->digest) {
        fprintf(stderr, "stoker run: out of memory\n");
        free(out);
        return EXIT_FAILED;
    }
    const stk_ns started = now();
    int status = train_all(r);
    const int finished = finish(in, r, out, started);
    for (uint32_t i = 0; i < r->ranks; i++)
        if (r->trainer[i].status < 0) status = fail_with(&r->trainer[i].error);
    if (status == EXIT_DONE) {
        digest_all(r, out->digest);
        status = finished;
        if (status == EXIT_DONE && flag_of(in, "json")) status = print_json(result_json(out));
        else if (status == EXIT_DONE && flag_of(in, "digest")) printf("%s\n", out->digest);
        else if (status == EXIT_DONE) print_result(out, r->ranks);
    } else if (status == EXIT_INTERRUPTED) {
        fprintf(stderr, "stoker run: interrupted after %" PRIu64 " micro-batches\n", atomic_load(&r->done));
    }
    free(out);
    return status;
}

static int run_run(const invocation *in)
{
    run r = {.ranks = 1};
    int64_t ranks, step_ms;
    stk_error err;
    if (!number_of(in, "ranks", 1, 4096, 1, &ranks) || !number_of(in, "step-ms", 0, 3600000, 0, &step_ms)) return EXIT_USAGE;
    stk_options options = in->options;
    if (flag_of(in, "serial")) { /* the baseline that people start from */
        options.workers = -1;
        options.prefetch = 1;
    }
    stk_state state;
    const char *const resume = flag_of(in, "resume");
    if (resume && stk_state_load(&state, resume, &err) < 0) return fail_with(&err);
    r.ranks = (uint32_t)ranks;
    r.step_ns = step_ms * STK_MS;
    const stk_index_progress progress = index_progress();
    const stk_engine_ranks all = {.first_rank = 0, .rank_count = r.ranks, .world = r.ranks};
    if (stk_engine_open(&r.engine, &options, all, resume ? &state : NULL, &progress, &err) < 0) return fail_with(&err);
    live_line_end();
    r.micro_total = stk_engine_micro_count(r.engine);
    if (resume && stk_engine_step_count(r.engine))
        r.first = state.step * (r.micro_total / stk_engine_step_count(r.engine)) + state.micro;
    const int status = stream(in, &r);
    stk_engine_close(&r.engine);
    free(r.digest);
    free(r.trainer);
    return status;
}

static const flag run_flags[] = {
    {"ranks", "N", "data-parallel ranks, served by one engine"},
    {"step-ms", "T", "what a step of the simulated trainer takes, in milliseconds"},
    {"serial", NULL, "everything one by one inside next: the baseline"},
    {"digest", NULL, "print only the digest of all micro-batches"},
    {"json", NULL, "print one JSON document"},
    {"state", "FILE", "save the state at the end, also of an interrupted run"},
    {"resume", "FILE", "go on from a saved state"},
    {0}};

const command run_command = {.name = "run", .arguments = "CONFIG", .least = 1, .most = 1, .reads_config = true, .flags = run_flags, .run = run_run,
                             .summary = "stream batches to a simulated trainer, and measure what it waits for",
                             .text = "The latency factor is wait / (wait + train), the first batch included; beside it stands what it would be if\n"
                                     "the same stages ran one by one.  --steps ends the run early."};
