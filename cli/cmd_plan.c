/* cmd_plan.c - `stoker plan`: what a run will hold, step by step if wanted, before it starts. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "command.h"

static double part(uint64_t some, uint64_t all)
{
    return all ? (double)some / (double)all : 0;
}

static json_t *count(uint64_t value)
{
    return json_integer((json_int_t)value);
}

/* --- the steps as a table --- */

typedef struct table {
    FILE *to; /* NULL: none is wanted */
    bool json;
    bool begun;
    uint32_t world;
    const char *path; /* NULL: stdout */
} table;

static const char *const count_columns[] = {"step", "epoch", "epoch_row", "rows", "filler_rows", "samples", "tokens", "visual_tokens",
                                            "supervised_tokens", "images"};
static const char *const share_columns[] = {"fill", "imbalance", "imbalance_vision", "imbalance_unbalanced",
                                            "imbalance_vision_unbalanced"};
enum { COUNTS = sizeof count_columns / sizeof *count_columns, SHARES = sizeof share_columns / sizeof *share_columns };

/* Most over mean; nothing where there is no work. */
static void put_share(const table *t, uint64_t most, uint64_t sum, double factor)
{
    if (sum) fprintf(t->to, "%.6f", (double)most * factor / (double)sum);
    else if (t->json) fputs("null", t->to);
}

static void put_head(const table *t)
{
    const char *const quote = t->json ? "\"" : "";
    if (t->json) fputs("{\n \"columns\": [", t->to);
    for (int i = 0; i < COUNTS + SHARES; i++)
        fprintf(t->to, "%s%s%s%s", i ? "," : "", quote, i < COUNTS ? count_columns[i] : share_columns[i - COUNTS], quote);
    fputs(t->json ? "],\n \"steps_table\": [" : "\n", t->to);
}

/* A table begins with its first step: of a plan that is refused there is none. */
static bool put_row(table *t, const stk_plan_step *s)
{
    if (!t->to) return true;
    const uint64_t counts[COUNTS] = {s->step, s->epoch, s->epoch_row, s->rows, s->filler_rows, s->samples, s->tokens,
                                     s->visual_tokens, s->supervised_tokens, s->images};
    const struct {
        uint64_t most, sum;
        double factor;
    } shares[SHARES] = {{s->tokens, s->room_tokens, 1},
                        {s->costs.most_all, s->costs.sum_all, t->world},
                        {s->costs.most_vision, s->costs.sum_vision, t->world},
                        {s->unbalanced.most_all, s->unbalanced.sum_all, t->world},
                        {s->unbalanced.most_vision, s->unbalanced.sum_vision, t->world}};
    if (!t->begun) put_head(t);
    if (t->json) fputs(t->begun ? ",\n  [" : "\n  [", t->to);
    t->begun = true;
    for (int i = 0; i < COUNTS; i++) fprintf(t->to, "%s%" PRIu64, i ? "," : "", counts[i]);
    for (int i = 0; i < SHARES; i++) {
        fputc(',', t->to);
        put_share(t, shares[i].most, shares[i].sum, shares[i].factor);
    }
    fputs(t->json ? "]" : "\n", t->to);
    return !ferror(t->to);
}

/* Where the steps go while they are counted. */
typedef struct outputs {
    table table, picture;
} outputs;

static bool put_step(void *context, const stk_plan_step *s)
{
    outputs *const o = context;
    return put_row(&o->table, s) && put_row(&o->picture, s) && !interrupted();
}

static int open_table(table *t, const invocation *in)
{
    const char *const csv = flag_of(in, "csv");
    t->json = !csv && flag_of(in, "steps-table");
    if (!csv && !t->json) return EXIT_DONE;
    t->to = stdout;
    if (csv && strcmp(csv, "-") != 0) {
        t->to = fopen(csv, "w");
        if (!t->to) {
            fprintf(stderr, "stoker: %s: ", csv);
            perror("cannot write it");
            return EXIT_FAILED;
        }
        t->path = csv;
    }
    return EXIT_DONE;
}

/* Half a table is none. */
static int close_table(table *t, int status)
{
    if (!t->path) return status;
    struct stat info;
    const bool regular = fstat(fileno(t->to), &info) == 0 && S_ISREG(info.st_mode);
    const bool lost = ferror(t->to) != 0;
    if (fclose(t->to) || lost) {
        fprintf(stderr, "stoker: %s: ", t->path);
        perror("cannot write it");
        if (status == EXIT_DONE) status = EXIT_FAILED;
    }
    if (status != EXIT_DONE && regular) unlink(t->path);
    return status;
}

/* --- the run --- */

static bool report_sum(void *context, uint64_t done, uint64_t steps)
{
    (void)context;
    live_line("plan: step %" PRIu64 " of %" PRIu64, done, steps);
    return !interrupted();
}

static void print_imbalance(const char *name, double balanced, double unbalanced, double worst, double worst_unbalanced)
{
    if (balanced == 0) return;
    printf("  %-16s %12.3f   without balance %.3f; in the worst step %.3f, without %.3f\n", name, balanced, unbalanced, worst,
           worst_unbalanced);
}

static void print_sets(const stk_plan_view *view, size_t set_count)
{
    printf("data sets\n");
    for (size_t i = 0; i < set_count; i++) {
        stk_plan_set_counts s;
        stk_plan_set_counts_at(view, i, &s);
        printf("  %-16s %12" PRIu64 "   samples: %.2f passes over %" PRIu64 " records; %" PRIu64 " tokens (%" PRIu64
               " supervised), %" PRIu64 " images\n",
               s.name, s.samples, part(s.samples, s.records), s.records, s.tokens, s.supervised_tokens, s.images);
        if (s.overlong_records) printf("                                 %" PRIu64 " records are too long, and left out\n", s.overlong_records);
        if (s.shrunk_records) printf("                                 %" PRIu64 " records were too long: their images are made smaller\n", s.shrunk_records);
    }
}

static void print_counts(const stk_plan_view *view, const stk_plan_counts *c)
{
    stk_plan_info info;
    stk_plan_info_get(view, &info);
    printf("steps              %12" PRIu64 "   %.6g an epoch, of %" PRIu64 " rows\n", c->steps, c->epoch_steps, c->epoch_rows);
    printf("rows               %12" PRIu64 "   and %" PRIu64 " filler rows\n", c->rows, c->filler_rows);
    if (c->not_selected)
        printf("left out           %12" PRIu64 "   usable records, by `where` and `first`\n", c->not_selected);
    if (info.only_rows) {
        printf("index: stream      tokens, images and costs are found when samples are drawn\nfingerprint        %s\n", c->fingerprint);
        return;
    }
    printf("samples            %12" PRIu64 "   %" PRIu64 " images\n", c->samples, c->images);
    printf("tokens             %12" PRIu64 "   visual %" PRIu64 ", supervised %" PRIu64 "\n", c->tokens, c->visual_tokens,
           c->supervised_tokens);
    printf("supervised a step  %12" PRIu64 "   median; least %" PRIu64 ", most %" PRIu64 "\n", c->step_supervised_tokens.median,
           c->step_supervised_tokens.least, c->step_supervised_tokens.most);
    if (info.packed) printf("fill               %12.2f %% of %" PRIu64 " tokens of room\n", 100 * part(c->tokens, c->room_tokens), c->room_tokens);
    else printf("padding            %12.2f %% of %" PRIu64 " tokens of room\n", 100 * part(c->room_tokens - c->tokens, c->room_tokens), c->room_tokens);
    if (info.world > 1) {
        printf("imbalance                         most over mean of %u ranks\n", info.world);
        print_imbalance("all work", c->balanced.all, c->unbalanced.all, c->worst_balanced.all, c->worst_unbalanced.all);
        print_imbalance("vision tower", c->balanced.vision, c->unbalanced.vision, c->worst_balanced.vision, c->worst_unbalanced.vision);
    }
    printf("cost of steps      %12.3f   to %.3f, a row, where the mean is 1\n", c->least_cost, c->most_cost);
    printf("to fetch           %12.1f   MB of media, %.1f MB of records\n", (double)c->media_bytes / 1e6, (double)c->record_bytes / 1e6);
    printf("largest micro-batch %11.1f   MiB\n", (double)c->largest_micro_bytes / (1 << 20));
    print_sets(view, info.set_count);
    printf("fingerprint        %s\n", c->fingerprint);
}

static json_t *share_json(double value)
{
    return value == 0 ? json_null() : json_real(value);
}

static json_t *imbalance_json(double balanced, double unbalanced, double worst, double worst_unbalanced)
{
    return json_pack("{s:o, s:o, s:o, s:o}", "balanced", share_json(balanced), "unbalanced", share_json(unbalanced), "worst_balanced",
                     share_json(worst), "worst_unbalanced", share_json(worst_unbalanced));
}

static json_t *sets_json(const stk_plan_view *view, size_t set_count)
{
    json_t *const sets = json_array();
    for (size_t i = 0; i < set_count; i++) {
        stk_plan_set_counts s;
        stk_plan_set_counts_at(view, i, &s);
        json_array_append_new(sets, json_pack("{s:s, s:o, s:o, s:f, s:o, s:o, s:o, s:o, s:o, s:o}", "name", s.name, "records",
                                              count(s.records), "samples", count(s.samples), "passes", part(s.samples, s.records),
                                              "tokens", count(s.tokens), "visual_tokens", count(s.visual_tokens), "supervised_tokens",
                                              count(s.supervised_tokens), "images", count(s.images), "overlong_records",
                                              count(s.overlong_records), "shrunk_records", count(s.shrunk_records)));
    }
    return sets;
}

static json_t *counts_json(const stk_plan_view *view, const stk_plan_counts *c)
{
    stk_plan_info info;
    stk_plan_info_get(view, &info);
    json_t *const root = json_pack("{s:i}", "schema", 1);
    json_object_set_new(root, "steps", count(c->steps));
    json_object_set_new(root, "ranks", count(info.world));
#define PUT(member) json_object_set_new(root, #member, count(c->member));
    STK_PLAN_COUNT_MAP(PUT)
#undef PUT
    json_object_set_new(root, "epoch_steps", json_real(c->epoch_steps));
    json_object_set_new(root, "fill", json_real(part(c->tokens, c->room_tokens)));
    json_object_set_new(root, "step_supervised_tokens",
                        json_pack("{s:o, s:o, s:o}", "least", count(c->step_supervised_tokens.least), "median",
                                  count(c->step_supervised_tokens.median), "most", count(c->step_supervised_tokens.most)));
    json_object_set_new(root, "imbalance",
                        json_pack("{s:o, s:o}", "all",
                                  imbalance_json(c->balanced.all, c->unbalanced.all, c->worst_balanced.all, c->worst_unbalanced.all),
                                  "vision",
                                  imbalance_json(c->balanced.vision, c->unbalanced.vision, c->worst_balanced.vision,
                                                 c->worst_unbalanced.vision)));
    json_object_set_new(root, "row_cost", json_pack("{s:f, s:f}", "least", c->least_cost, "most", c->most_cost));
    json_object_set_new(root, "sets", sets_json(view, info.set_count));
    json_object_set_new(root, "fingerprint", json_string(c->fingerprint));
    json_object_set_new(root, "only_rows", json_boolean(info.only_rows));
    return root;
}

/* The document goes on behind the table: all but its opening brace. */
static int print_rest(json_t *root)
{
    char *const text = root ? json_dumps(root, JSON_INDENT(1) | JSON_REAL_PRECISION(9)) : NULL;
    json_decref(root);
    if (!text) {
        fprintf(stderr, "stoker: cannot write the JSON document\n");
        return EXIT_FAILED;
    }
    printf("\n ],%s\n", text + 1);
    free(text);
    return EXIT_DONE;
}

/* picture: takes a table too; NULL: none is drawn. */
static int sum_up(const invocation *in, stk_plan_view *view, uint32_t world, FILE *picture)
{
    stk_error err;
    stk_plan_counts counts;
    outputs o = {.table = {.world = world}, .picture = {.world = world, .to = picture}};
    table *const t = &o.table;
    int status = open_table(t, in);
    if (status != EXIT_DONE) return status;
    const stk_plan_listener listener = {.step = t->to || picture ? put_step : NULL, .report = report_sum, .context = &o};
    const stk_status summed = stk_plan_sum(view, &listener, &counts, &err);
    live_line_end();
    /* A reader that has gone (`| head`), a full disk: main and close_table say so. */
    if (summed < 0) status = summed == STK_ERR_INTERRUPTED && !interrupted() ? EXIT_FAILED : fail_with(&err);
    status = close_table(t, status);
    if (status != EXIT_DONE || t->to == stdout) {
        if (status == EXIT_DONE && t->json) return print_rest(counts_json(view, &counts));
        return status;
    }
    if (flag_of(in, "json")) return print_json(counts_json(view, &counts));
    print_counts(view, &counts);
    return EXIT_DONE;
}

/* --- one step --- */

static void print_sample(const stk_plan_sample *s, const char *id)
{
    printf("%5u %5u %5u ", s->rank, s->micro, s->row);
    if (s->filler) printf("%8s ", "-");
    else printf("%8u ", s->step_row);
    printf("%8u %8u %8u %8u %6u  %s\n", s->offset, s->tokens, s->visual_tokens, s->supervised_tokens, s->images,
           s->filler ? "(filler)" : id);
}

static json_t *sample_json(const stk_plan_sample *s, const char *id)
{
    json_t *const root = json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "rank", count(s->rank), "micro", count(s->micro), "row",
                                   count(s->row), "offset", count(s->offset), "tokens", count(s->tokens), "visual_tokens",
                                   count(s->visual_tokens), "supervised_tokens", count(s->supervised_tokens), "images", count(s->images));
    json_object_set_new(root, "step_row", s->filler ? json_null() : count(s->step_row));
    json_object_set_new(root, "filler", json_boolean(s->filler));
    if (s->filler) return root;
    json_object_set_new(root, "id", json_string(id));
    json_object_set_new(root, "set", json_string(s->set));
    json_object_set_new(root, "record", count(s->record));
    json_object_set_new(root, "line", count(s->line));
    return root;
}

static json_t *step_json(const stk_plan_step *s, json_t *samples)
{
    json_t *const root = json_pack("{s:i}", "schema", 1);
    const struct {
        const char *name;
        uint64_t value;
    } counts[] = {{"step", s->step}, {"epoch", s->epoch}, {"epoch_row", s->epoch_row}, {"rows", s->rows}, {"filler_rows", s->filler_rows},
                  {"tokens", s->tokens}, {"visual_tokens", s->visual_tokens}, {"supervised_tokens", s->supervised_tokens},
                  {"images", s->images}, {"room_tokens", s->room_tokens}};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) json_object_set_new(root, counts[i].name, count(counts[i].value));
    json_object_set_new(root, "samples", samples);
    return root;
}

static int list_step(const invocation *in, stk_plan_view *view, uint64_t step)
{
    stk_error err;
    stk_plan_step sums;
    if (stk_plan_load_step(view, step, &sums, &err) < 0) return fail_with(&err);
    json_t *const samples = flag_of(in, "json") ? json_array() : NULL;
    if (!samples)
        printf("step %" PRIu64 ": from row %" PRIu64 " of epoch %" PRIu64 ", %" PRIu64 " rows, %" PRIu64 " samples, %" PRIu64
               " tokens (%" PRIu64 " visual, %" PRIu64 " supervised), %" PRIu64 " images, %.2f %% full\n"
               " rank micro   row step row   offset   tokens   visual  trained images  sample\n",
               sums.step, sums.epoch_row, sums.epoch, sums.rows, sums.samples, sums.tokens, sums.visual_tokens, sums.supervised_tokens,
               sums.images, 100 * part(sums.tokens, sums.room_tokens));
    int status = EXIT_DONE;
    for (size_t i = 0; status == EXIT_DONE && i < stk_plan_sample_count(view); i++) {
        stk_plan_sample s;
        char id[96];
        stk_plan_sample_at(view, i, &s);
        if (interrupted()) status = EXIT_INTERRUPTED;
        else if (stk_plan_sample_id(view, i, id, &err) < 0) status = fail_with(&err);
        else if (samples) json_array_append_new(samples, sample_json(&s, id));
        else print_sample(&s, id);
    }
    if (samples && status == EXIT_DONE) return print_json(step_json(&sums, samples));
    json_decref(samples);
    return status;
}

/* --- the command --- */

static int check_flags(const invocation *in)
{
    const char *const csv = flag_of(in, "csv");
    const bool json = flag_of(in, "json") != NULL, steps = flag_of(in, "steps-table") != NULL;
    if (steps && !json) return usage_error(in->command, "--steps-table goes with --json; --csv writes a table of its own");
    if (csv && steps) return usage_error(in->command, "--csv and --steps-table are two forms of one table: choose one");
    if (csv && json && strcmp(csv, "-") == 0) return usage_error(in->command, "--csv - and --json cannot share the output: name a file");
    if (flag_of(in, "plot") && flag_of(in, "step")) return usage_error(in->command, "--plot draws all steps: leave --step out");
    if (flag_of(in, "plot") && strcmp(in->options.index, "stream") == 0)
        return usage_error(in->command, "--plot draws what follows from an index, and with index: stream there is none");
    if ((csv || steps) && flag_of(in, "step")) return usage_error(in->command, "--step lists one step, without a table of all");
    return EXIT_DONE;
}

static int open_and_count(const invocation *in, uint32_t ranks, int64_t step, FILE *picture)
{
    stk_error err;
    stk_plan_view *view;
    const stk_index_progress progress = index_progress();
    const stk_status opened = stk_plan_open(&view, &in->options, ranks, &progress, &err);
    live_line_end();
    if (opened < 0) return fail_with(&err);
    const int status = step < 0 ? sum_up(in, view, ranks, picture) : list_step(in, view, (uint64_t)step);
    stk_plan_close(&view);
    return status;
}

static int run_plan(const invocation *in)
{
    int64_t ranks, step;
    if (!number_of(in, "ranks", 1, 1 << 20, 1, &ranks) || !number_of(in, "step", 0, INT64_MAX, -1, &step)) return EXIT_USAGE;
    int status = check_flags(in);
    plotter drawing = {0};
    const char *const picture = flag_of(in, "plot");
    if (status == EXIT_DONE && picture) status = plot_start(&drawing, in->command, picture);
    if (status == EXIT_DONE) status = open_and_count(in, (uint32_t)ranks, step, drawing.to);
    return plot_finish(&drawing, status);
}

static const flag plan_flags[] = {{"ranks", "N", "data-parallel ranks; default 1"},
                                  {"step", "S", "list the samples of one step, from 0, and where each goes"},
                                  {"csv", "FILE", "write a table of all steps; -: to the output, and nothing else"},
                                  {"plot", "FILE", "draw fill, imbalance and supervised tokens of all steps, *.png or *.svg; takes Python with matplotlib"},
                                  {"json", NULL, "print one JSON document"},
                                  {"steps-table", NULL, "with --json: the table of all steps in it, as `columns` and `steps_table`"},
                                  {0}};

const command plan_command = {.name = "plan",
                              .arguments = "CONFIG",
                              .least = 1,
                              .most = 1,
                              .reads_config = true,
                              .flags = plan_flags,
                              .run = run_plan,
                              .summary = "count steps, samples and tokens of a run before it starts",
                              .text = "All numbers are exact and follow from the index: nothing is fetched.  Imbalance is the work of the "
                                      "rank with the most\n"
                                      "over the mean of all ranks, by the cost model of the checkpoint (docs/plan.md)."};
