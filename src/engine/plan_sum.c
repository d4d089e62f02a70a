/* plan_sum.c - going through the steps of a run, in parallel, and summing them up.
 *
 * Steps are taken in blocks; in a block the caller's thread and its helpers each claim a few neighbouring steps at a time, so that a
 * window is computed once or twice and not once a step.  Sums are integers and made in step order or of all, so nothing depends on who
 * claimed what.
 *
 * Not here: one step (plan_walk.c). */
#include <stdatomic.h>
#include <stdlib.h>

#include "base/thread.h"
#include "engine/plan_view.h"

enum {
    CLAIM_ROWS = 8192, /* about so many rows a claim: some tens of milliseconds, and two windows of the default */
    CLAIM_STEPS_MAX = 64,
    BLOCK_CLAIMS = 64,
    THREADS_MAX = 64,
    REPORT_EVERY_NS = 200 * (int)STK_MS,
    RECORDS_A_REPORT = 1 << 20,
};

/* --- steps by threads --- */

typedef struct block {
    const stk_plan_view *view;
    const stk_plan_listener *listener;
    uint64_t first, count; /* steps */
    uint64_t claim_steps, run_steps;
    stk_plan_step *step;   /* count of them */
    stk_ns reported_ns;
    atomic_uint_fast64_t next;
    atomic_bool stop;
    pthread_mutex_t lock; /* guards status, error, failed_step */
    stk_status status;
    stk_error error;
    uint64_t failed_step;
} block;

/* Keep the failure of the lowest step: all before it have been claimed already, and are gone through to their end. */
static void fail_block(block *b, uint64_t step, stk_status status, const stk_error *error)
{
    pthread_mutex_lock(&b->lock);
    if (b->status == STK_OK || step < b->failed_step) {
        b->status = status;
        b->error = *error;
        b->failed_step = step;
    }
    pthread_mutex_unlock(&b->lock);
    atomic_store(&b->stop, true);
}

static bool claim(block *b, stk_plan_walker *walker)
{
    if (atomic_load(&b->stop)) return false;
    const uint64_t begin = atomic_fetch_add(&b->next, b->claim_steps);
    const uint64_t end = begin + b->claim_steps < b->count ? begin + b->claim_steps : b->count;
    for (uint64_t i = begin; i < end; i++) {
        stk_error error;
        const stk_status status = stk_plan_walk_step(b->view->run, walker, b->first + i, b->view->world, NULL, &b->step[i], &error);
        if (status == STK_OK) continue;
        fail_block(b, b->first + i, status, &error);
        return false;
    }
    return begin < b->count;
}

typedef struct helper {
    block *block;
    stk_plan_walker *walker;
} helper;

static void *help(void *context)
{
    const helper *const h = context;
    pthread_setname_np(pthread_self(), "stk-plan");
    while (claim(h->block, h->walker)) {}
    return NULL;
}

/* Some times a second; false: the listener has had enough. */
static bool report(block *b, uint64_t steps_done)
{
    const stk_plan_listener *const l = b->listener;
    const stk_ns now = stk_now();
    if (!l || !l->report || now - b->reported_ns < REPORT_EVERY_NS) return true;
    b->reported_ns = now;
    if (l->report(l->context, steps_done, b->run_steps)) return true;
    atomic_store(&b->stop, true);
    return false;
}

static uint32_t start_helpers(block *b, stk_plan_walker *walkers, pthread_t *thread, helper *helpers)
{
    uint32_t count = 0;
    /* Fewer threads than asked for go through the same steps. */
    while (count + 1 < b->view->threads && (count + 1) * b->claim_steps < b->count && walkers[count + 1].scratch) {
        helpers[count] = (helper){b, &walkers[count + 1]};
        if (stk_thread_start(&thread[count], help, &helpers[count])) break;
        count++;
    }
    return count;
}

static stk_status walk_block(block *b, stk_plan_walker *walkers, stk_error *err)
{
    pthread_t thread[THREADS_MAX];
    helper helpers[THREADS_MAX];
    atomic_store(&b->next, 0);
    const uint32_t started = start_helpers(b, walkers, thread, helpers);
    bool wanted = true;
    while (wanted && claim(b, &walkers[0])) wanted = report(b, b->first + atomic_load(&b->next));
    for (uint32_t i = 0; i < started; i++) pthread_join(thread[i], NULL);
    if (b->status < 0 && err) *err = b->error;
    if (b->status < 0) return b->status;
    for (uint64_t i = 0; wanted && b->listener && b->listener->step && i < b->count; i++)
        wanted = b->listener->step(b->listener->context, &b->step[i]);
    return wanted ? STK_OK : stk_fail(err, STK_ERR_INTERRUPTED, "stopped while the plan was summed up");
}

/* --- sums over the run --- */

typedef struct work {
    stk_u128 most_all, sum_all, most_vision, sum_vision;
} work;

typedef struct sums {
    stk_plan_counts *counts;
    uint64_t *supervised; /* of each step, so far: steps_seen */
    uint64_t steps_seen;
    work balanced, unbalanced;
    uint64_t least_cost, most_cost; /* of a row, the mean of its step */
} sums;

static double ratio(stk_u128 most, stk_u128 sum, uint32_t world)
{
    return sum ? (double)most * world / (double)sum : 0;
}

static void add_costs(work *w, stk_plan_imbalance *worst, const stk_plan_costs *costs, uint32_t world)
{
    const double all = ratio(costs->most_all, costs->sum_all, world), vision = ratio(costs->most_vision, costs->sum_vision, world);
    w->most_all += costs->most_all;
    w->sum_all += costs->sum_all;
    w->most_vision += costs->most_vision;
    w->sum_vision += costs->sum_vision;
    if (all > worst->all) worst->all = all;
    if (vision > worst->vision) worst->vision = vision;
}

static void add_step(sums *s, const stk_plan_step *step, uint32_t world)
{
    stk_plan_counts *const c = s->counts;
    c->samples += step->samples;
    c->tokens += step->tokens;
    c->visual_tokens += step->visual_tokens;
    c->supervised_tokens += step->supervised_tokens;
    c->images += step->images;
    c->filler_rows += step->filler_rows;
    c->room_tokens += step->room_tokens;
    c->media_bytes += step->media_bytes;
    c->record_bytes += step->record_bytes;
    if (step->largest_micro_bytes > c->largest_micro_bytes) c->largest_micro_bytes = step->largest_micro_bytes;
    add_costs(&s->balanced, &c->worst_balanced, &step->costs, world);
    add_costs(&s->unbalanced, &c->worst_unbalanced, &step->unbalanced, world);
    const uint64_t cost = step->rows ? step->costs.sum_all / step->rows : 0;
    if (cost > s->most_cost) s->most_cost = cost;
    if (cost < s->least_cost || s->steps_seen == 0) s->least_cost = cost;
    s->supervised[s->steps_seen++] = step->supervised_tokens;
}

static int by_value(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static void close_sums(sums *s, uint32_t world)
{
    stk_plan_counts *const c = s->counts;
    c->balanced = (stk_plan_imbalance){ratio(s->balanced.most_all, s->balanced.sum_all, world),
                                       ratio(s->balanced.most_vision, s->balanced.sum_vision, world)};
    c->unbalanced = (stk_plan_imbalance){ratio(s->unbalanced.most_all, s->unbalanced.sum_all, world),
                                         ratio(s->unbalanced.most_vision, s->unbalanced.sum_vision, world)};
    if (s->balanced.sum_all) {
        const double mean = (double)s->balanced.sum_all / (double)c->rows;
        c->least_cost = (double)s->least_cost / mean;
        c->most_cost = (double)s->most_cost / mean;
    }
    if (!s->steps_seen) return;
    qsort(s->supervised, s->steps_seen, sizeof *s->supervised, by_value);
    c->step_supervised_tokens = (stk_plan_range){.least = s->supervised[0], .median = s->supervised[(s->steps_seen - 1) / 2],
                                                 .most = s->supervised[s->steps_seen - 1]};
}

/* --- data sets --- */

/* What takes part, and what is too long, as the order of the plan takes it. */
static stk_status count_records(block *b, stk_plan_set_counts *set, uint32_t set_index, stk_error *err)
{
    const stk_run *const run = b->view->run;
    const stk_plan_set *const of = &run->plan_set[set_index];
    stk_selection selection = {.where = of->where, .first = of->first};
    const stk_selection any = {.where = of->where};
    for (uint64_t r = 0; r < of->facts.record_count; r++) {
        stk_record_size size;
        stk_record_derive(&size, &of->facts, r, &run->model, &of->pixels, run->max_tokens);
        if (r % RECORDS_A_REPORT == RECORDS_A_REPORT - 1 && !report(b, 0))
            return stk_fail(err, STK_ERR_INTERRUPTED, "stopped while the plan was summed up");
        if (of->first && selection.taken == of->first) break;
        if (size.reason == STK_REASON_OVERLONG) {
            stk_selection passes = any; /* it is no part of `first` */
            set->overlong_records += stk_selection_takes(&passes, &of->facts, r, &size, &of->pixels);
        } else if (size.reason == STK_REASON_NONE && stk_selection_takes(&selection, &of->facts, r, &size, &of->pixels)) {
            set->records++;
            set->shrunk_records += size.max_px < of->pixels.max_px;
        }
    }
    return STK_OK;
}

static void add_walker(const stk_plan_view *view, const stk_plan_walker *walker)
{
    for (uint32_t i = 0; walker->set && i < view->run->set_count; i++) {
        view->set[i].samples += walker->set[i].samples;
        view->set[i].tokens += walker->set[i].tokens;
        view->set[i].visual_tokens += walker->set[i].visual_tokens;
        view->set[i].supervised_tokens += walker->set[i].supervised_tokens;
        view->set[i].images += walker->set[i].images;
    }
}

static void clear_sets(const stk_plan_view *view)
{
    for (uint32_t i = 0; i < view->run->set_count; i++) {
        stk_plan_set_counts *const set = &view->set[i];
        set->records = set->overlong_records = set->shrunk_records = 0;
        set->samples = set->tokens = set->visual_tokens = set->supervised_tokens = set->images = 0;
    }
}

/* --- the sum --- */

/* Rows of the largest step decide how many steps a thread takes at a time. */
static uint64_t claim_steps_of(const stk_run *run)
{
    uint64_t most = 1;
    for (uint32_t i = 0; i < run->rules->batch_count; i++)
        if (run->rules->batch[i].batch > most) most = run->rules->batch[i].batch;
    const uint64_t steps = CLAIM_ROWS / most;
    return steps < 1 ? 1 : steps > CLAIM_STEPS_MAX ? CLAIM_STEPS_MAX : steps;
}

static stk_status walk(block *b, sums *s, stk_plan_walker *walkers, stk_error *err)
{
    const stk_plan_view *const view = b->view;
    const uint64_t block_steps = b->claim_steps * BLOCK_CLAIMS;
    for (uint32_t i = 0; i < view->run->set_count; i++) STK_TRY(count_records(b, &view->set[i], i, err));
    for (b->first = 0; b->first < b->run_steps; b->first += b->count) {
        b->count = b->run_steps - b->first < block_steps ? b->run_steps - b->first : block_steps;
        STK_TRY(walk_block(b, walkers, err));
        for (uint64_t i = 0; i < b->count; i++) add_step(s, &b->step[i], view->world);
    }
    close_sums(s, view->world);
    return STK_OK;
}

static void known_before(stk_plan_counts *counts, const stk_plan_view *view)
{
    stk_plan_info info;
    stk_plan_info_get(view, &info);
    *counts = (stk_plan_counts){.steps = info.steps, .rows = info.rows, .epoch_rows = info.epoch_rows,
                                .epoch_steps = info.epoch_steps, .not_selected = info.not_selected};
    memcpy(counts->fingerprint, info.fingerprint.whole, sizeof counts->fingerprint);
}

stk_status stk_plan_sum(stk_plan_view *view, const stk_plan_listener *listener, stk_plan_counts *counts, stk_error *err)
{
    known_before(counts, view);
    clear_sets(view);
    /* The rest is found when samples are drawn. */
    if (view->run->stream && listener && listener->step)
        return stk_fail(err, STK_ERR_USAGE, "with index: stream the sizes of a step are known only when it is made: set index: auto");
    if (view->run->stream) return STK_OK;
    block b = {.view = view, .listener = listener, .claim_steps = claim_steps_of(view->run), .run_steps = counts->steps,
               .reported_ns = stk_now()};
    sums s = {.counts = counts};
    stk_plan_walker *const walkers = stk_alloc_array(STK_TAG_PLAN, view->threads, sizeof *walkers);
    s.supervised = stk_alloc_array(STK_TAG_PLAN, counts->steps, sizeof *s.supervised);
    b.step = stk_alloc_array(STK_TAG_PLAN, b.claim_steps * BLOCK_CLAIMS, sizeof *b.step);
    stk_status status = walkers && s.supervised && b.step
        ? STK_OK : stk_fail(err, STK_ERR_NOMEM, "out of memory: the sums of %llu steps: lower steps or epochs", (unsigned long long)counts->steps);
    for (uint32_t i = 0; status == STK_OK && i < view->threads; i++) {
        if (i && i * b.claim_steps >= counts->steps) break; /* nothing left for it to do */
        status = stk_plan_walker_init(&walkers[i], view->run, err);
    }
    pthread_mutex_init(&b.lock, NULL);
    if (status == STK_OK) status = walk(&b, &s, walkers, err);
    for (uint32_t i = 0; walkers && i < view->threads; i++) {
        if (status == STK_OK) add_walker(view, &walkers[i]);
        stk_plan_walker_deinit(&walkers[i]);
    }
    pthread_mutex_destroy(&b.lock);
    stk_free(walkers);
    stk_free(s.supervised);
    stk_free(b.step);
    if (status < 0) {
        stk_error_stage(err, STK_STAGE_PLAN);
        clear_sets(view);
        *counts = (stk_plan_counts){0};
    }
    return status;
}

/* --- all at once --- */

stk_status stk_plan_count(stk_plan_counts *counts, const stk_options *options, uint32_t world, stk_error *err)
{
    *counts = (stk_plan_counts){0};
    stk_plan_view *view;
    STK_TRY(stk_plan_open(&view, options, world, NULL, err));
    const stk_status status = stk_plan_sum(view, NULL, counts, err);
    stk_plan_close(&view);
    return status;
}
