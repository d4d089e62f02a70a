/* order.c - selection, rates, draws. */
#include "plan/order.h"

#include <math.h>
#include <stdatomic.h>

#include "base/parallel.h"
#include "plan/blend.h"
#include "plan/usable.h"

enum { STREAM_SET = 16 }; /* of the seed: the set's number is added */

struct stk_order {
    const stk_plan_config *config; /* the plan's, which owns this */
    stk_usable *usable;            /* one a data set */
    uint64_t *rows_before;         /* records of the sets before each that take part, set_count + 1 */
    uint64_t not_selected, overlong;
    bool in_file_order;   /* one set after the other */
    stk_blend *blend;     /* NULL when in_file_order */
    uint64_t epoch_parts; /* draws of an epoch, in parts of part_count */
    uint64_t part_count;
};

/* --- what takes part --- */

enum { CHUNK = 1 << 16 }; /* records, a multiple of a word's */

/* A walk over a set's records by several threads, a chunk at a time; what it gathers does not depend on who
 * takes which. */
typedef struct scan {
    const stk_plan_config *config;
    const stk_plan_set *set;
    stk_usable *usable;
    void (*visit)(struct scan *scan, uint64_t first, uint64_t end);
    atomic_uint_fast64_t next;         /* chunk */
    atomic_uint_fast64_t usable_count; /* whether where lets them pass or not */
    atomic_uint_fast64_t overlong;     /* left out for their length */
    atomic_uint_fast64_t refused;      /* the first over-long one that is an error; UINT64_MAX: none */
    atomic_uint_fast64_t tokens;
} scan;

static void scan_chunks(void *context)
{
    scan *const s = context;
    const uint64_t count = s->set->facts.record_count;
    for (uint64_t first; (first = CHUNK * atomic_fetch_add(&s->next, 1)) < count;) {
        s->visit(s, first, first + CHUNK < count ? first + CHUNK : count);
        if (!stk_watch_goes_on(s->config->watch, s->set->name, "plan", first, count)) return;
    }
}

static stk_status run_scan(scan *s, stk_error *err)
{
    const uint64_t chunks = s->set->facts.record_count / CHUNK + 1;
    stk_parallel(s->config->threads < chunks ? s->config->threads : (uint32_t)chunks, scan_chunks, s);
    return stk_watch_status(s->config->watch, err);
}

static stk_record_size size_of(const scan *s, uint64_t record_index)
{
    stk_record_size size;
    stk_record_derive(&size, &s->set->facts, record_index, s->config->model, &s->set->pixels,
                      s->config->max_tokens);
    return size;
}

/* Without facts (index: stream) every record takes part that no list leaves out. */
static void find_records(scan *s, uint64_t first, uint64_t end)
{
    uint64_t count = 0;
    for (uint64_t r = first; r < end; r++) {
        if (s->set->facts.record[r].reason != STK_REASON_NONE) continue;
        stk_usable_add(s->usable, r);
        count++;
    }
    atomic_fetch_add(&s->usable_count, count);
}

static void find_usable(scan *s, uint64_t first, uint64_t end)
{
    uint64_t count = 0, overlong = 0, refused = UINT64_MAX;
    stk_selection selection = {.where = s->set->where};
    for (uint64_t r = first; r < end; r++) {
        const stk_record_size size = size_of(s, r);
        const bool is_refused = size.reason == STK_REASON_OVERLONG && s->set->overlong_is_error;
        overlong += size.reason == STK_REASON_OVERLONG;
        if (size.reason != STK_REASON_NONE && !is_refused) continue;
        count += !is_refused;
        if (!stk_selection_takes(&selection, &s->set->facts, r, &size, &s->set->pixels)) continue;
        stk_usable_add(s->usable, r);
        if (is_refused && refused == UINT64_MAX) refused = r;
    }
    atomic_fetch_add(&s->usable_count, count);
    atomic_fetch_add(&s->overlong, overlong);
    uint64_t lowest = atomic_load(&s->refused);
    while (refused < lowest && !atomic_compare_exchange_weak(&s->refused, &lowest, refused)) {
    }
}

static void sum_tokens(scan *s, uint64_t first, uint64_t end)
{
    uint64_t tokens = 0;
    for (uint64_t r = first; r < end; r++)
        if (stk_usable_has(s->usable, r)) tokens += size_of(s, r).token_count;
    atomic_fetch_add(&s->tokens, tokens);
}

static stk_status find_set(stk_order *order, uint32_t set_index, stk_error *err)
{
    const stk_plan_config *const c = order->config;
    const stk_plan_set *const set = &c->set[set_index];
    stk_usable *const usable = &order->usable[set_index];
    STK_TRY(stk_usable_init(usable, set->facts.record_count, err));
    scan s = {.config = c,
              .set = set,
              .usable = usable,
              .visit = c->stream ? find_records : find_usable,
              .refused = UINT64_MAX};
    STK_TRY(run_scan(&s, err));
    stk_usable_count(usable);
    if (set->first) stk_usable_cut(usable, set->first);
    const uint64_t refused = atomic_load(&s.refused);
    if (refused != UINT64_MAX && stk_usable_has(usable, refused)) {
        const stk_record_facts *const record = &set->facts.record[refused];
        return stk_fail_at(
            err, STK_ERR_RECORD, set->facts.file[record->file_index], record->line,
            "the sample has %u tokens, over the limit of %u: raise max_tokens (packed: row_tokens), "
            "lower max_pixels, or set overlong: drop or shrink",
            size_of(&s, refused).token_count, c->max_tokens);
    }
    order->overlong += atomic_load(&s.overlong);
    order->not_selected += atomic_load(&s.usable_count) - usable->usable_count;
    order->rows_before[set_index + 1] = order->rows_before[set_index] + usable->usable_count;
    return STK_OK;
}

uint64_t stk_order_set_records(const stk_order *order, uint32_t set_index)
{
    return order->rows_before[set_index + 1] - order->rows_before[set_index];
}

uint64_t stk_order_not_selected(const stk_order *order)
{
    return order->not_selected;
}

static stk_status check_sets(const stk_order *order, stk_error *err)
{
    const stk_plan_config *const c = order->config;
    const uint64_t all = order->rows_before[c->set_count];
    if (all == 0 && order->not_selected)
        return stk_fail(err, STK_ERR_OPTION, "where leaves none of %llu usable records: widen it",
                        (unsigned long long)order->not_selected);
    if (all == 0 && order->overlong)
        return stk_fail(err, STK_ERR_OPTION,
                        "no data set has a usable record, and %llu are over the limit of %u tokens: raise max_tokens (packed: row_tokens), "
                        "lower max_pixels, or set overlong: shrink",
                        (unsigned long long)order->overlong, c->max_tokens);
    if (all == 0)
        return stk_fail(err, STK_ERR_OPTION,
                        "no data set has a usable record: run `stoker index` to see why");
    for (uint32_t i = 0; i < c->set_count; i++)
        if (stk_order_set_records(order, i) == 0)
            return stk_fail(err, STK_ERR_OPTION,
                            "%s: no usable record takes part: look at its where and at `stoker index`, or "
                            "take the set out",
                            c->set[i].name);
    return STK_OK;
}

/* --- rates --- */

/* Mean tokens of a set's records, for weights by tokens; a sum over all that take part. */
static stk_status find_mean_tokens(double *mean, const stk_order *order, uint32_t set_index, stk_error *err)
{
    scan s = {.config = order->config,
              .set = &order->config->set[set_index],
              .usable = &order->usable[set_index],
              .visit = sum_tokens};
    STK_TRY(run_scan(&s, err));
    *mean = (double)atomic_load(&s.tokens) / (double)stk_order_set_records(order, set_index);
    return STK_OK;
}

/* Weights as whole numbers: in millionths, so that 0.7 and 0.3 are 7 to 3; of tokens, as shares of 2^40. */
static stk_status weigh(const stk_order *order, uint64_t *rate, stk_error *err)
{
    const stk_plan_config *const c = order->config;
    double largest = 0, *const weight = stk_alloc_array(STK_TAG_PLAN, c->set_count, sizeof *weight);
    if (!weight) return stk_fail(err, STK_ERR_NOMEM, "out of memory: a blend");
    stk_status status = STK_OK;
    for (uint32_t i = 0; status == STK_OK && i < c->set_count; i++) {
        double mean = 1;
        if (c->weights_of_tokens) status = find_mean_tokens(&mean, order, i, err);
        weight[i] = c->set[i].weight / mean;
        if (weight[i] > largest) largest = weight[i];
    }
    const double unit = c->weights_of_tokens ? 0x1p40 / largest : 1e6;
    bool in_range = true;
    for (uint32_t i = 0; i < c->set_count; i++) {
        const double scaled = rint(weight[i] * unit);
        in_range = in_range && scaled >= 1 && scaled <= 0x1p50;
        rate[i] = in_range ? (uint64_t)scaled : 0;
    }
    stk_free(weight);
    if (status < 0) return status;
    return in_range
               ? STK_OK
               : stk_fail(err, STK_ERR_OPTION, "weights must lie within a factor of 10^9, from 0.000001 on");
}

static stk_status find_rates(stk_order *order, stk_error *err)
{
    const stk_plan_config *const c = order->config;
    uint32_t weighted = 0, fractions = 0;
    for (uint32_t i = 0; i < c->set_count; i++) {
        weighted += c->set[i].weight > 0;
        fractions += c->set[i].epochs_milli != 1000;
    }
    if (weighted && weighted < c->set_count)
        return stk_fail(err, STK_ERR_OPTION,
                        "some data sets have a weight and some have none: give one to all, or to none");
    if (weighted && fractions)
        return stk_fail(err, STK_ERR_OPTION,
                        "weight and epochs of data sets do not go together: use one of them");
    const uint64_t all = order->rows_before[c->set_count];
    order->part_count = weighted ? 1 : 1000;
    stk_u128 parts = weighted ? all : 0;
    for (uint32_t i = 0; !weighted && i < c->set_count; i++)
        parts += (stk_u128)stk_order_set_records(order, i) * c->set[i].epochs_milli;
    if (parts >= (stk_u128)1 << 62) return stk_fail(err, STK_ERR_OPTION, "an epoch is too long: lower the epochs of the data sets");
    order->epoch_parts = (uint64_t)parts;
    if (order->epoch_parts < order->part_count)
        return stk_fail(err, STK_ERR_OPTION,
                        "an epoch has no whole sample: raise the epochs of the data sets");
    order->in_file_order = !c->shuffle && !weighted && !fractions;
    if (order->in_file_order) return STK_OK;
    uint64_t *const rate = stk_alloc_array(STK_TAG_PLAN, c->set_count, sizeof *rate);
    if (!rate) return stk_fail(err, STK_ERR_NOMEM, "out of memory: a blend");
    stk_status status = STK_OK;
    if (weighted) status = weigh(order, rate, err);
    for (uint32_t i = 0; !weighted && i < c->set_count; i++)
        rate[i] = stk_order_set_records(order, i) * c->set[i].epochs_milli;
    if (status == STK_OK) status = stk_blend_create(&order->blend, rate, c->set_count, err);
    stk_free(rate);
    return status;
}

stk_status stk_order_create(stk_order **out, const stk_plan_config *config, stk_error *err)
{
    *out = NULL;
    stk_order *const order = stk_alloc(STK_TAG_PLAN, sizeof *order);
    if (!order) return stk_fail(err, STK_ERR_NOMEM, "out of memory: the plan");
    order->config = config;
    order->usable = stk_alloc_array(STK_TAG_PLAN, config->set_count, sizeof *order->usable);
    order->rows_before =
        stk_alloc_array(STK_TAG_PLAN, config->set_count + (size_t)1, sizeof *order->rows_before);
    stk_status status = order->usable && order->rows_before
                            ? STK_OK
                            : stk_fail(err, STK_ERR_NOMEM, "out of memory: the plan");
    for (uint32_t i = 0; status == STK_OK && i < config->set_count; i++) status = find_set(order, i, err);
    if (status == STK_OK) status = check_sets(order, err);
    if (status == STK_OK) status = find_rates(order, err);
    if (status < 0) {
        stk_order_destroy(order);
        return status;
    }
    *out = order;
    return STK_OK;
}

void stk_order_destroy(stk_order *order)
{
    if (!order) return;
    for (uint32_t i = 0; order->usable && i < order->config->set_count; i++)
        stk_usable_deinit(&order->usable[i]);
    stk_free(order->usable);
    stk_free(order->rows_before);
    stk_blend_destroy(order->blend);
    stk_free(order);
}

/* --- draws --- */

uint64_t stk_order_epoch_begin(const stk_order *order, uint64_t epoch)
{
    return (uint64_t)((stk_u128)epoch * order->epoch_parts / order->part_count);
}

uint64_t stk_order_epoch_of(const stk_order *order, uint64_t draw)
{
    /* The last epoch that begins at or before the draw. */
    return (uint64_t)((((stk_u128)draw + 1) * order->part_count - 1) / order->epoch_parts);
}

void stk_order_at(const stk_order *order, stk_order_cache *cache, uint64_t draw, uint32_t *set_index,
                  uint64_t *record_index)
{
    const stk_plan_config *const c = order->config;
    stk_draw d;
    if (order->in_file_order) {
        const uint64_t position = draw % order->rows_before[c->set_count];
        d.set_index = 0;
        while (position >= order->rows_before[d.set_index + 1]) d.set_index++;
        d.number = position - order->rows_before[d.set_index];
    } else {
        d = stk_blend_at(order->blend, draw);
    }
    const uint64_t count = stk_order_set_records(order, d.set_index), pass = d.number / count;
    uint64_t place = d.number % count;
    if (c->shuffle) {
        stk_order_cache *const own = &cache[d.set_index];
        if (own->pass != pass) {
            stk_permutation_init(&own->permutation, count, c->seed, STREAM_SET + d.set_index, pass);
            own->pass = pass;
        }
        place = stk_permutation_at(&own->permutation, place);
    }
    *set_index = d.set_index;
    *record_index = stk_usable_select(&order->usable[d.set_index], place);
}
