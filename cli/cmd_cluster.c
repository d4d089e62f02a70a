/* cmd_cluster.c - `stoker cluster plan`: the cores and the network that a number of ranks needs, from what a sample was measured to cost, and
 * where its batches are best made.
 *
 * Not here: the arithmetic (cluster_need.c), the measuring (cmd_run.c). */
#include <inttypes.h>
#include <string.h>

#include "cluster_need.h"
#include "command.h"

enum { RANKS_MAX = 1 << 20, MEASURED_STEPS = 16, NODE_RANKS = 8, SPARE_PERCENT = 25 };

static const char *const stages[] = {"fetch", "decode", "transform", "text", "place"};
enum { STAGES = sizeof stages / sizeof *stages };

/* A sample's costs and where they are from. */
typedef struct costs {
    cluster_sample sample;
    double stage_s[STAGES]; /* busy, of one sample */
    double media;           /* of one sample */
    double samples, step_samples; /* that were measured; of a step, over all ranks */
} costs;

typedef struct plan {
    costs costs;
    cluster_ask ask;
    cluster_answer answer;
    bool knows_node; /* cores and card were given */
    const char *recommended; /* local, spread, neither; NULL: what nodes have was not said */
} plan;

/* --- what a sample costs --- */

/* A number of the report by its path, as "stages.decode.busy_s".  False after the message. */
static bool read_number(const json_t *report, const char *from, const char *path, double *value)
{
    const json_t *at = report;
    char key[64];
    for (const char *part = path; at && *part;) {
        const size_t length = strcspn(part, ".");
        snprintf(key, sizeof key, "%.*s", (int)length, part);
        at = json_object_get(at, key);
        part += length + (part[length] == '.');
    }
    if (!json_is_number(at) || json_number_value(at) < 0) {
        fprintf(stderr, "stoker cluster: %s has no number `%s`: take a report of `stoker run CONFIG --json` of this release\n", from, path);
        return false;
    }
    *value = json_number_value(at);
    return true;
}

/* False after the message. */
static bool read_costs(const json_t *report, const char *from, double ranks_missing, costs *out)
{
    double steps, images;
    if (!read_number(report, from, "samples", &out->samples) || !read_number(report, from, "steps", &steps) ||
        !read_number(report, from, "images", &images) || !read_number(report, from, "cpu_s", &out->sample.cpu_s) ||
        !read_number(report, from, "batch_bytes", &out->sample.batch_bytes) ||
        !read_number(report, from, "stages.fetch.bytes", &out->sample.compressed_bytes))
        return false;
    for (int i = 0; i < STAGES; i++) {
        char path[64];
        snprintf(path, sizeof path, "stages.%s.busy_s", stages[i]);
        if (!read_number(report, from, path, &out->stage_s[i])) return false;
        if (out->samples > 0) out->stage_s[i] /= out->samples;
    }
    if (out->samples < 1 || steps < 1) {
        fprintf(stderr, "stoker cluster: %s delivered no samples: measure with more steps\n", from);
        return false;
    }
    out->step_samples = out->samples / steps * ranks_missing;
    out->media = images / out->samples;
    out->sample.cpu_s /= out->samples;
    out->sample.batch_bytes /= out->samples;
    out->sample.compressed_bytes /= out->samples;
    return true;
}

static int find_costs(const invocation *in, uint32_t ranks, costs *out)
{
    const char *const path = flag_of(in, "report");
    if (path && in->argument_count) return usage_error(in->command, "CONFIG or --report, not both: a report is of its own configuration");
    if (!path && !in->argument_count)
        return usage_error(in->command, "CONFIG is missing, to measure here; or --report FILE, of `stoker run CONFIG --json`");
    json_t *report = NULL;
    int64_t steps;
    if (!number_of(in, "measure-steps", 1, INT32_MAX, MEASURED_STEPS, &steps)) return EXIT_USAGE;
    if (path) {
        json_error_t fault;
        report = json_load_file(path, 0, &fault);
        if (!report) {
            fprintf(stderr, "stoker cluster: --report %s: %s (line %d)\n", path, fault.text, fault.line);
            return EXIT_USAGE;
        }
    } else {
        const int status = measure_run(&in->options, ranks, (uint64_t)steps, &report);
        if (status != EXIT_DONE) return status;
    }
    const bool read = read_costs(report, path ? path : "the measured run", path ? 1 : ranks, out);
    json_decref(report);
    return read ? EXIT_DONE : EXIT_USAGE;
}

/* --- the answer --- */


static void print_load(const char *name, const cluster_load *load, const cluster_room *room, bool known)
{
    printf("  %-16s %8.2f", name, load->cores);
    if (known) printf(" of %6.1f", room->cores);
    printf(" cores   in %8.3f, out %8.3f", load->in_gbit, load->out_gbit);
    if (known) printf(" of %6.2f", room->gbit);
    printf(" Gbit/s\n");
}

/* What is in the way, and what would move it. */
static void print_lack(const cluster_way *way)
{
    static const char *const words[] = {
        [CLUSTER_FITS] = "",
        [CLUSTER_CORES] = "has not the cores",
        [CLUSTER_CARD_IN] = "has not the card for what comes in",
        [CLUSTER_CARD_OUT] = "has not the card for what goes out",
    };
    if (way->lack == CLUSTER_FITS) printf("  it fits\n");
    else printf("  a %s %s\n", way->lack_of_feeder ? "feeder" : "node that trains", words[way->lack]);
}

static void print_recommended(const plan *p)
{
    if (!p->recommended) {
        printf("recommended: nothing, as long as --cores-per-node and --gbit-per-node are not given\n");
        return;
    }
    printf("recommended: %s\n", p->recommended);
    if (strcmp(p->recommended, "local") == 0)
        printf("  every node makes the batches of its own ranks, and none crosses a card (placement: local)\n");
    else if (strcmp(p->recommended, "spread") == 0)
        printf("  the nodes that train and %" PRIu32 " node%s without GPUs share the work evenly (placement: spread)\n", p->answer.spread.feeders,
               p->answer.spread.feeders == 1 ? "" : "s");
    else
        printf("  fewer bytes a sample (pixels: uint8, a lower max_pixels), more cores for data, faster cards, or fewer ranks a node\n");
}

static void print_plan(const plan *p)
{
    const cluster_ask *const a = &p->ask;
    const cluster_answer *const r = &p->answer;
    printf("%" PRIu32 " rank%s on %" PRIu32 " node%s, %.1f samples/s\n", a->ranks, a->ranks == 1 ? "" : "s", r->nodes, r->nodes == 1 ? "" : "s",
           a->samples_per_s);
    printf("a sample, over %.0f: %.3f ms of a core, %.1f KB compressed, %.1f KB in a batch\n  busy", p->costs.samples, a->sample.cpu_s * 1e3,
           a->sample.compressed_bytes / 1e3, a->sample.batch_bytes / 1e3);
    for (int i = 0; i < STAGES; i++) printf("%s %s %.3f", i ? "," : "", stages[i], p->costs.stage_s[i] * 1e3);
    printf(" ms\nneeded in all: %.2f cores, %.3f Gbit/s from the store, %.1f media a second\n", r->all.cores, r->all.in_gbit,
           a->samples_per_s * p->costs.media);
    printf("local\n");
    print_load("a node", &r->local.node, &a->node, p->knows_node);
    if (p->knows_node) print_lack(&r->local);
    printf("spread, %" PRIu32 " feeder%s\n", r->spread.feeders, r->spread.feeders == 1 ? "" : "s");
    print_load("a node", &r->spread.node, &a->node, p->knows_node);
    if (r->spread.feeders) print_load("a feeder", &r->spread.feeder, &a->feeder, p->knows_node);
    if (p->knows_node) print_lack(&r->spread);
    print_recommended(p);
}

static json_t *load_json(const cluster_load *load)
{
    return json_pack("{s:f, s:f, s:f}", "cores", load->cores, "in_gbit", load->in_gbit, "out_gbit", load->out_gbit);
}

static json_t *way_json(const cluster_way *way, bool knows_node)
{
    static const char *const names[] = {[CLUSTER_CORES] = "cores", [CLUSTER_CARD_IN] = "card_in", [CLUSTER_CARD_OUT] = "card_out"};
    json_t *const o = json_pack("{s:I, s:o, s:o}", "feeders", (json_int_t)way->feeders, "node", load_json(&way->node), "feeder",
                                way->feeders ? load_json(&way->feeder) : json_null());
    json_object_set_new(o, "fits", knows_node ? json_boolean(way->lack == CLUSTER_FITS) : json_null());
    json_object_set_new(o, "lacks", knows_node && way->lack != CLUSTER_FITS ? json_string(names[way->lack]) : json_null());
    json_object_set_new(o, "lacks_at", knows_node && way->lack != CLUSTER_FITS ? json_string(way->lack_of_feeder ? "feeder" : "node") : json_null());
    return o;
}

static json_t *plan_json(const plan *p)
{
    const cluster_ask *const a = &p->ask;
    const cluster_answer *const r = &p->answer;
    json_t *const busy = json_object();
    for (int i = 0; i < STAGES; i++) json_object_set_new(busy, stages[i], json_real(p->costs.stage_s[i] * 1e3));
    return json_pack("{s:i, s:I, s:I, s:f, s:{s:f, s:f, s:f, s:f, s:f, s:o}, s:{s:f, s:f, s:f}, s:o, s:o, s:o}", "schema", 1, "ranks", (json_int_t)a->ranks,
                     "nodes", (json_int_t)r->nodes, "samples_per_s", a->samples_per_s, "sample", "measured", p->costs.samples, "cpu_ms",
                     a->sample.cpu_s * 1e3, "compressed_bytes", a->sample.compressed_bytes, "batch_bytes", a->sample.batch_bytes, "media",
                     p->costs.media, "busy_ms", busy, "all", "cores", r->all.cores, "store_gbit", r->all.in_gbit, "media_per_s",
                     a->samples_per_s * p->costs.media, "local", way_json(&r->local, p->knows_node), "spread", way_json(&r->spread, p->knows_node),
                     "recommended", p->recommended ? json_string(p->recommended) : json_null());
}

static const char *recommend(const cluster_answer *answer)
{
    if (answer->local.lack == CLUSTER_FITS) return "local";
    return answer->spread.lack == CLUSTER_FITS ? "spread" : "neither";
}

/* What nodes have, less what is to be left free. */
static bool read_rooms(const invocation *in, plan *p)
{
    cluster_room *const node = &p->ask.node, *const feeder = &p->ask.feeder;
    double spare;
    if (!decimal_of(in, "cores-per-node", 0.1, 1e6, 0, &node->cores) || !decimal_of(in, "gbit-per-node", 0.001, 1e6, 0, &node->gbit) ||
        !decimal_of(in, "cores-per-feeder", 0.1, 1e6, node->cores, &feeder->cores) ||
        !decimal_of(in, "gbit-per-feeder", 0.001, 1e6, node->gbit, &feeder->gbit) || !decimal_of(in, "spare", 0, 90, SPARE_PERCENT, &spare))
        return false;
    p->knows_node = node->cores > 0 && node->gbit > 0;
    if (!p->knows_node && (node->cores > 0 || node->gbit > 0 || feeder->cores > 0 || feeder->gbit > 0)) {
        usage_error(in->command, "--cores-per-node and --gbit-per-node go together: a recommendation needs both");
        return false;
    }
    const double use = 1 - spare / 100;
    *node = (cluster_room){node->cores * use, node->gbit * use};
    *feeder = (cluster_room){feeder->cores * use, feeder->gbit * use};
    return true;
}

static int run_cluster(const invocation *in)
{
    plan p = {0};
    int64_t ranks, node_ranks;
    double step_ms, samples;
    if (!flag_of(in, "ranks")) return usage_error(in->command, "--ranks is missing: how many ranks train");
    if (!flag_of(in, "step-ms")) return usage_error(in->command, "--step-ms is missing: what a step of the trainer takes");
    if (!number_of(in, "ranks", 1, RANKS_MAX, 1, &ranks) || !number_of(in, "ranks-per-node", 1, RANKS_MAX, NODE_RANKS, &node_ranks) ||
        !decimal_of(in, "step-ms", 0.001, 3.6e6, 0, &step_ms) || !decimal_of(in, "samples", 1, 1e9, 0, &samples) || !read_rooms(in, &p))
        return EXIT_USAGE;
    const int status = find_costs(in, (uint32_t)ranks, &p.costs);
    if (status != EXIT_DONE) return status;
    p.ask.sample = p.costs.sample;
    p.ask.samples_per_s = (samples > 0 ? samples : p.costs.step_samples) * 1e3 / step_ms;
    p.ask.ranks = (uint32_t)ranks;
    p.ask.ranks_per_node = (uint32_t)node_ranks;
    cluster_need(&p.ask, &p.answer);
    if (p.knows_node) p.recommended = recommend(&p.answer);
    if (flag_of(in, "json")) return print_json(plan_json(&p));
    print_plan(&p);
    return EXIT_DONE;
}

static const flag cluster_flags[] = {
    {"ranks", "N", "data-parallel ranks that train"},
    {"step-ms", "T", "what a step of the trainer takes, in milliseconds"},
    {"samples", "N", "samples of a step, over all ranks; default: those of the measured steps"},
    {"report", "FILE", "what a sample costs, from `stoker run CONFIG --json`; without it some steps of CONFIG are made here"},
    {"measure-steps", "N", "how many steps of rank 0 (16)"},
    {"ranks-per-node", "N", "ranks that share a node (8)"},
    {"cores-per-node", "N", "cores of a node that the trainer leaves to data"},
    {"gbit-per-node", "G", "Gbit/s of a node's card, each way, that are left to data"},
    {"cores-per-feeder", "N", "cores of a node without ranks; default: as --cores-per-node"},
    {"gbit-per-feeder", "G", "Gbit/s of its card; default: as --gbit-per-node"},
    {"spare", "PERCENT", "how much of cores and cards stays free, for bursts (25)"},
    {"json", NULL, "print one JSON document"},
    {0}};

const command cluster_command = {.name = "cluster",
                                 .word = "plan",
                                 .arguments = "plan [CONFIG]",
                                 .most = 1,
                                 .reads_config = true,
                                 .flags = cluster_flags,
                                 .run = run_cluster,
                                 .summary = "say which cores and network a number of ranks needs, and where batches are best made",
                                 .text = "local: every node makes the batches of its own ranks.  spread: all nodes, and some without GPUs, make an\n"
                                         "even share of all, which crosses the cards (docs/tuning.md)."};
