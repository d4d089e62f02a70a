/* cmd_diff.c - `stoker diff`: where two dumps, states or plans first differ, in words.
 *
 * What the two are is seen from them: a folder of micro-batches is a dump, a text that begins with "stoker-state" a state, all else a
 * configuration, whose plan is meant.  Not here: two states and what plans share with them (diff_state.c), dumps (diff_dump.c). */
#include "diff.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static int fails_with(const stk_error *err)
{
    (void)fail_with(err);
    return DIFF_FAILED;
}

/* --- states --- */

static int diff_state_files(const char *a, const char *b)
{
    stk_state state[2];
    stk_error err;
    if (stk_state_load(&state[0], a, &err) < 0 || stk_state_load(&state[1], b, &err) < 0) return fails_with(&err);
    const int status = diff_states(&state[0], &state[1], "");
    if (status == DIFF_EQUAL) printf("equal: both go on at step %" PRIu64 "\n", state[0].step);
    return status;
}

/* --- plans --- */

typedef struct placed {
    stk_plan_sample sample;
    size_t at; /* in the step of its plan */
} placed;

/* One of the two plans, and its samples of one step, by row of the step. */
typedef struct side {
    stk_options options;
    stk_plan_view *view;
    stk_plan_info info;
    placed *placed;
    size_t count, capacity;
} side;

static int by_step_row(const void *a, const void *b)
{
    const placed *const x = a, *const y = b;
    if (x->sample.step_row != y->sample.step_row) return x->sample.step_row < y->sample.step_row ? -1 : 1;
    return x->at < y->at ? -1 : x->at > y->at;
}

static int load_step(side *s, uint64_t step)
{
    stk_error err;
    if (stk_plan_load_step(s->view, step, NULL, &err) < 0) return fails_with(&err);
    s->count = stk_plan_sample_count(s->view);
    if (s->count > s->capacity) {
        free(s->placed);
        s->capacity = 2 * s->count;
        s->placed = malloc(s->capacity * sizeof *s->placed);
        if (!s->placed) return diff_fails("a step", "out of memory");
    }
    for (size_t i = 0; i < s->count; i++) {
        stk_plan_sample_at(s->view, i, &s->placed[i].sample);
        s->placed[i].at = i;
    }
    qsort(s->placed, s->count, sizeof *s->placed, by_step_row);
    return DIFF_EQUAL;
}

static void name_of(const side *s, size_t i, char name[100])
{
    stk_error err;
    const stk_plan_sample *const sample = &s->placed[i].sample;
    if (sample->filler) snprintf(name, 100, "filler");
    else if (stk_plan_sample_id(s->view, s->placed[i].at, name, &err) < 0)
        snprintf(name, 100, "%.60s#%" PRIu64, sample->set, sample->line); /* its file is gone or has changed */
}

static bool same_sample(const stk_plan_sample *a, const stk_plan_sample *b)
{
    return a->filler == b->filler && a->record == b->record && a->step_row == b->step_row && strcmp(a->set, b->set) == 0;
}

/* Different sizes of one sample: other images, another template. */
static int diff_sizes(const char *where, const stk_plan_sample *a, const stk_plan_sample *b)
{
    int differences = diff_numbers(where, "tokens", a->tokens, b->tokens);
    if (!differences) differences = diff_numbers(where, "visual_tokens", a->visual_tokens, b->visual_tokens);
    if (!differences) differences = diff_numbers(where, "supervised_tokens", a->supervised_tokens, b->supervised_tokens);
    return differences;
}

static int diff_places(const char *where, const stk_plan_sample *a, const stk_plan_sample *b)
{
    int differences = diff_numbers(where, "rank", a->rank, b->rank);
    if (!differences) differences = diff_numbers(where, "micro", a->micro, b->micro);
    if (!differences) differences = diff_numbers(where, "row of the micro-batch", a->row, b->row);
    if (!differences) differences = diff_numbers(where, "offset", a->offset, b->offset);
    return differences;
}

/* The first row of a step whose samples, their sizes or their places differ. */
static int diff_step(side sides[2], uint64_t step)
{
    for (size_t i = 0; i < sides[0].count || i < sides[1].count; i++) {
        const stk_plan_sample *const a = i < sides[0].count ? &sides[0].placed[i].sample : NULL,
                              *const b = i < sides[1].count ? &sides[1].placed[i].sample : NULL;
        const uint32_t row = !b || (a && a->step_row < b->step_row) ? a->step_row : b->step_row;
        char name[2][100] = {"nothing", "nothing"}, place[60], where[200];
        snprintf(place, sizeof place, "step %" PRIu64 ", row %u", step, row);
        if (row == UINT32_MAX) snprintf(place, sizeof place, "step %" PRIu64 ", filler", step);
        if (a && b && same_sample(a, b)) {
            if (memcmp(a, b, sizeof *a) == 0) continue;
            name_of(&sides[0], i, name[0]);
            snprintf(where, sizeof where, "%s, sample %.95s: ", place, name[0]);
            if (diff_sizes(where, a, b) || diff_places(where, a, b)) return DIFF_DIFFERENT;
            continue;
        }
        if (a) name_of(&sides[0], i, name[0]);
        if (b) name_of(&sides[1], i, name[1]);
        printf("%s: %s in A and %s in B", place, name[0], name[1]);
        if (a && b && a->step_row != b->step_row && !a->filler && !b->filler)
            printf(", which stands in row %u", row == a->step_row ? b->step_row : a->step_row);
        putchar('\n');
        return DIFF_DIFFERENT;
    }
    return DIFF_EQUAL;
}

static int diff_steps(side sides[2])
{
    const uint64_t a = sides[0].info.steps, b = sides[1].info.steps, shared = a < b ? a : b;
    for (uint64_t step = 0; step < shared; step++) {
        for (int k = 0; k < 2; k++)
            if (load_step(&sides[k], step) != DIFF_EQUAL) return DIFF_FAILED;
        if (interrupted()) return DIFF_FAILED;
        if (diff_step(sides, step) != DIFF_EQUAL) return DIFF_DIFFERENT;
        if (step % 64 == 0) live_line("diff: step %" PRIu64 " of %" PRIu64, step, shared);
    }
    live_line_end();
    printf("the first %" PRIu64 " steps hold the same samples in the same places\n", shared);
    return diff_numbers("", "the number of steps", a, b) ? DIFF_DIFFERENT : DIFF_EQUAL;
}

/* own: the flag that sets options of this side alone. */
static int open_side(side *s, const invocation *in, const char *path, const char *own, uint32_t ranks)
{
    stk_error err;
    const stk_index_progress progress = index_progress();
    const char *const split = flag_of(in, "split");
    s->options = (stk_options)STK_OPTIONS_INIT;
    if (stk_options_read(&s->options, path, &err) < 0 || (split && stk_options_split(&s->options, split, &err) < 0)) return fails_with(&err);
    if (apply_sets(in, "set", &s->options) != EXIT_DONE || apply_sets(in, own, &s->options) != EXIT_DONE) return DIFF_FAILED;
    if (stk_plan_open(&s->view, &s->options, ranks, &progress, &err) < 0) return fails_with(&err);
    stk_plan_info_get(s->view, &s->info);
    return DIFF_EQUAL;
}

static int diff_plans(const invocation *in, uint32_t ranks)
{
    side sides[2] = {{.view = NULL}, {.view = NULL}};
    int status = open_side(&sides[0], in, in->argument[0], "set-a", ranks);
    if (status == DIFF_EQUAL) status = open_side(&sides[1], in, in->argument[1], "set-b", ranks);
    live_line_end();
    if (status == DIFF_EQUAL) {
        const int differences = diff_fingerprints(&sides[0].info.fingerprint, &sides[1].info.fingerprint, "");
        /* With one fingerprint the rows of all steps are the same; micro_batch alone may cut them otherwise. */
        const bool cut = sides[0].options.micro_batch != sides[1].options.micro_batch;
        if (differences || cut) status = diff_steps(sides);
        else printf("equal: %" PRIu64 " steps, fingerprint %s\n", sides[0].info.steps, sides[0].info.fingerprint.whole);
        if (differences && status == DIFF_EQUAL) status = DIFF_DIFFERENT;
    }
    for (int k = 0; k < 2; k++) {
        stk_plan_close(&sides[k].view);
        stk_options_deinit(&sides[k].options);
        free(sides[k].placed);
    }
    return status;
}

/* --- the command --- */

typedef enum kind { KIND_NONE, KIND_DUMP, KIND_STATE, KIND_PLAN } kind;

static kind kind_of(const char *path, struct stat *info)
{
    if (stat(path, info)) return diff_fails(path, strerror(errno)), KIND_NONE;
    if (S_ISDIR(info->st_mode)) {
        if (is_micro_batch(path) || is_dump(path)) return KIND_DUMP;
        return diff_fails(path, "no micro-batches lie in this folder, as `stoker replay --dump` writes them"), KIND_NONE;
    }
    char head[12] = "";
    FILE *const file = fopen(path, "rb");
    if (!file) return diff_fails(path, strerror(errno)), KIND_NONE;
    const bool state = fread(head, 1, sizeof head, file) == sizeof head && memcmp(head, "stoker-state", sizeof head) == 0;
    fclose(file);
    return state ? KIND_STATE : KIND_PLAN;
}

static int run_diff(const invocation *in)
{
    static const char *const names[] = {"", "a dump", "a state", "a configuration"};
    const char *const a = in->argument[0], *const b = in->argument[1];
    int64_t ranks;
    struct stat info;
    if (!number_of(in, "ranks", 1, 1 << 20, 1, &ranks)) return EXIT_USAGE;
    const kind of_a = kind_of(a, &info), of_b = of_a ? kind_of(b, &info) : KIND_NONE;
    if (!of_a || !of_b) return EXIT_USAGE;
    const bool of_plans = flag_of(in, "ranks") || flag_of(in, "set") || flag_of(in, "set-a") || flag_of(in, "set-b") || flag_of(in, "split");
    if (of_a != of_b) return usage_error(in->command, "A is %s, and B is %s: two of a kind can be compared", names[of_a], names[of_b]);
    if (of_a != KIND_PLAN && of_plans) return usage_error(in->command, "flags are of plans, and A is %s", names[of_a]);
    if (of_a == KIND_DUMP && is_micro_batch(a) != is_micro_batch(b))
        return usage_error(in->command, "one is a micro-batch, and the other a folder of them");
    const int status = of_a == KIND_DUMP ? diff_dumps(a, b) : of_a == KIND_STATE ? diff_state_files(a, b) : diff_plans(in, (uint32_t)ranks);
    live_line_end();
    if (interrupted()) return EXIT_INTERRUPTED;
    return status == DIFF_EQUAL ? EXIT_DONE : status == DIFF_DIFFERENT ? EXIT_FAILED : EXIT_USAGE;
}

static const flag diff_flags[] = {{"ranks", "N", "plans: data-parallel ranks that the rows are dealt to; default 1"},
                                  {"set", "KEY=VALUE", "plans: any option of both, over what the configurations say"},
                                  {"set-a", "KEY=VALUE", "plans: of A alone"},
                                  {"set-b", "KEY=VALUE", "plans: of B alone; A and B may be one file: --set-b seed=2"},
                                  {"split", "NAME", "plans: train, or eval"},
                                  {0}};

const command diff_command = {.name = "diff",
                              .arguments = "A B",
                              .least = 2,
                              .most = 2,
                              .flags = diff_flags,
                              .run = run_diff,
                              .summary = "say where two dumps, states or plans first differ",
                              .text = "A and B are two folders that `stoker replay --dump` wrote (of one micro-batch, or of many), two saved states, "
                                      "or two\n"
                                      "configurations, whose plans are compared.  Exit status: 0 they are equal, 1 they differ, 2 they cannot be "
                                      "compared."};
