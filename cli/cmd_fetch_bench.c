/* cmd_fetch_bench.c - `stoker fetch-bench`: what an object store gives from here, and with how many requests. */
#include <inttypes.h>
#include <stoker/fetch_bench.h>
#include <string.h>

#include "command.h"

static double ms(stk_ns ns)
{
    return (double)ns / STK_MS;
}

static void print_head(void)
{
    printf("%9s %10s %9s   %8s %8s   %8s %8s %8s   %9s %7s\n", "in flight", "objects/s", "MB/s", "first", "p99", "whole", "p99",
           "p99.9", "CPU", "retries");
    printf("%9s %10s %9s   %8s %8s   %8s %8s %8s   %9s %7s\n", "", "", "", "ms", "ms", "ms", "ms", "ms", "us/object", "");
}

static void print_level(const stk_fetch_level *f)
{
    printf("%9u %10.0f %9.1f   %8.1f %8.1f   %8.1f %8.1f %8.1f   %9.0f %7" PRIu64 "\n", f->in_flight, f->objects_per_s, f->bytes_per_s / 1e6,
           ms(f->first_byte.p50_ns), ms(f->first_byte.p99_ns), ms(f->whole.p50_ns), ms(f->whole.p99_ns), ms(f->whole.p999_ns),
           f->cpu_ns_per_object / 1000, f->retries);
    fflush(stdout);
}

typedef struct table {
    bool wanted, begun;
} table;

static bool report(void *context, const stk_fetch_level *level, bool done)
{
    table *const t = context;
    if (done) {
        live_line_end();
        if (t->wanted && !t->begun) print_head();
        t->begun = true;
        if (t->wanted) print_level(level);
    } else {
        live_line("%u in flight: %.0f objects/s, %.1f MB/s", level->in_flight, level->objects_per_s, level->bytes_per_s / 1e6);
    }
    return !interrupted();
}

static json_t *latency_json(const stk_latency *l)
{
    return json_pack("{s:f, s:f, s:f, s:f, s:f}", "mean_ms", ms(l->mean_ns), "p50_ms", ms(l->p50_ns), "p90_ms", ms(l->p90_ns), "p99_ms",
                     ms(l->p99_ns), "p999_ms", ms(l->p999_ns));
}

static json_t *level_json(const stk_fetch_level *f)
{
    return json_pack("{s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:f, s:o, s:o, s:I, s:I, s:I, s:I}", "in_flight", (json_int_t)f->in_flight,
                     "objects", (json_int_t)f->objects, "bytes", (json_int_t)f->bytes, "failed", (json_int_t)f->failed, "wall_s",
                     (double)f->wall_ns / STK_S, "objects_per_s", f->objects_per_s, "bytes_per_s", f->bytes_per_s, "cpu_us_per_object",
                     f->cpu_ns_per_object / 1000, "first_byte", latency_json(&f->first_byte), "whole", latency_json(&f->whole), "requests",
                     (json_int_t)f->requests, "retries", (json_int_t)f->retries, "throttles", (json_int_t)f->throttles, "connections",
                     (json_int_t)f->connections);
}

static json_t *bench_json(const stk_fetch_bench *b)
{
    json_t *const levels = json_array();
    for (uint32_t i = 0; i < b->level_count; i++) json_array_append_new(levels, level_json(&b->level[i]));
    return json_pack("{s:i, s:I, s:I, s:I, s:I, s:o}", "schema", 1, "objects", (json_int_t)b->objects, "object_bytes",
                     (json_int_t)b->object_bytes, "piece_bytes", (json_int_t)b->piece_bytes, "best_in_flight",
                     (json_int_t)(b->level_count ? b->level[b->best].in_flight : 0), "levels", levels);
}

static void print_verdict(const stk_fetch_bench *b)
{
    const stk_fetch_level *const best = &b->level[b->best];
    uint64_t failed = 0, throttles = 0;
    for (uint32_t i = 0; i < b->level_count; i++) {
        failed += b->level[i].failed;
        throttles += b->level[i].throttles;
    }
    printf("%" PRIu64 " objects", b->objects);
    if (b->object_bytes) printf(" of %.1f KB on average", (double)b->object_bytes / (double)b->objects / 1e3);
    printf("; best: %u in flight, %.0f objects/s, %.1f MB/s\n", best->in_flight, best->objects_per_s, best->bytes_per_s / 1e6);
    if (best->objects) {
        const double bytes = (double)best->bytes / (double)best->objects * best->in_flight;
        printf("a run needs fetch_ahead: %.0fMB for as many\n", bytes / 1e6 < 1 ? 1 : bytes / 1e6);
    }
    if (throttles) printf("the store asked %" PRIu64 " times to slow down: more prefixes, or fewer and larger objects\n", throttles);
    if (failed) printf("%" PRIu64 " objects failed, the first with: %s\n", failed, b->failure);
}

static int run_fetch_bench(const invocation *in)
{
    int64_t most, seconds;
    stk_error err;
    stk_fetch_bench bench;
    table t = {.wanted = !flag_of(in, "json")};
    if (!number_of(in, "most", 1, 4096, 1024, &most) || !number_of(in, "seconds", 1, 600, 3, &seconds)) return EXIT_USAGE;
    const bool addresses = in->argument_count && strstr(in->argument[0], "://");
    if (!addresses && in->argument_count > 1)
        return usage_error(in->command, "a configuration stands alone: %s", in->argument[1]);
    const stk_fetch_progress progress = {report, &t};
    const stk_status status = stk_fetch_bench_run(&bench, &in->options, in->argument, addresses ? (size_t)in->argument_count : 0,
                                                  (uint32_t)most, seconds * STK_S, &progress, &err);
    live_line_end();
    if (status < 0) return fail_with(&err);
    if (!t.wanted) return print_json(bench_json(&bench));
    print_verdict(&bench);
    return EXIT_DONE;
}

static const flag fetch_bench_flags[] = {{"json", NULL, "print one JSON document"},
                                         {"most", "N", "requests under way at most (1024)"},
                                         {"seconds", "N", "of each measurement (3)"},
                                         {0}};

const command fetch_bench_command = {
    .name = "fetch-bench",
    .arguments = "ADDRESS...|CONFIG",
    .least = 1,
    .most = ARGUMENTS_MAX,
    .reads_config = true,
    .takes_addresses = true,
    .flags = fetch_bench_flags,
    .run = run_fetch_bench,
    .summary = "measure what an object store gives from here, and with how many requests under way",
    .text = "Fetches the objects under s3:// prefixes, https:// objects, or the media that the manifests of a "
            "configuration\n"
            "name, with 8, 16, 32, ... requests under way, until more give no more.  Of an object over 8 MiB it "
            "fetches the\n"
            "first 8 MiB.  Nothing is kept."};
