/* planner.c - order, rank split and recipes, from facts alone. */
#include "plan/planner.h"

#include "base/permutation.h"
#include "plan/usable.h"

enum { STREAM_ORDER = 0 }; /* which use of the seed */

struct stk_plan {
    stk_plan_config config;
    uint32_t max_tokens;
    stk_usable *usable;    /* one a data set */
    uint64_t *rows_before; /* records of the sets before each that take part, set_count + 1 */
    uint64_t epoch_rows, total_rows, step_count, not_selected;
};

/* --- create --- */

static stk_status find_usable(stk_plan *plan, uint32_t set_index, stk_error *err)
{
    const stk_plan_set *const set = &plan->config.set[set_index];
    stk_usable *const usable = &plan->usable[set_index];
    stk_selection selection = {.where = set->where, .first = set->first};
    STK_TRY(stk_usable_init(usable, set->facts.record_count, err));
    for (uint64_t r = 0; r < set->facts.record_count; r++) {
        stk_record_size size;
        stk_record_derive(&size, &set->facts, r, plan->config.model, &set->pixels, plan->max_tokens);
        const bool refused = size.reason == STK_REASON_OVERLONG && set->overlong_is_error;
        if (size.reason != STK_REASON_NONE && !refused) continue;
        if (!stk_selection_takes(&selection, &set->facts, r, &size, &set->pixels)) {
            plan->not_selected += !refused;
        } else if (!refused) {
            stk_usable_add(usable, r);
        } else {
            const stk_record_facts *const record = &set->facts.record[r];
            return stk_fail_at(err, STK_ERR_RECORD, set->facts.file[record->file_index], record->line,
                               "the sample has %u tokens, over the limit of %u: raise max_tokens, lower max_pixels, or "
                               "set overlong: drop",
                               size.token_count, plan->max_tokens);
        }
    }
    stk_usable_count(usable);
    plan->rows_before[set_index + 1] = plan->rows_before[set_index] + usable->usable_count;
    return STK_OK;
}

static stk_status check_config(stk_plan *plan, stk_error *err)
{
    const stk_plan_config *const c = &plan->config;
    plan->max_tokens = c->max_tokens ? c->max_tokens : c->model->max_tokens;
    if (c->pad_to) {
        if (c->layout != STK_LAYOUT_PADDED)
            return stk_fail(err, STK_ERR_OPTION, "pad_to goes with layout: padded; with flat use pad_multiple");
        if (c->pad_to % c->pad_multiple)
            return stk_fail(err, STK_ERR_OPTION, "pad_to: %u is no multiple of pad_multiple: %u", c->pad_to,
                            c->pad_multiple);
        /* A longer sample does not fit its row: it is over-long. */
        if (c->pad_to < plan->max_tokens) plan->max_tokens = c->pad_to;
    }
    if (c->micro_batch > c->batch)
        return stk_fail(err, STK_ERR_OPTION, "micro_batch: %llu is more than batch: %llu",
                        (unsigned long long)c->micro_batch, (unsigned long long)c->batch);
    return STK_OK;
}

static stk_status count_steps(stk_plan *plan, stk_error *err)
{
    const stk_plan_config *const c = &plan->config;
    plan->epoch_rows = plan->rows_before[c->set_count];
    if (plan->epoch_rows == 0 && plan->not_selected)
        return stk_fail(err, STK_ERR_OPTION, "where leaves none of %llu usable records: widen it",
                        (unsigned long long)plan->not_selected);
    if (plan->epoch_rows == 0)
        return stk_fail(err, STK_ERR_OPTION, "no data set has a usable record: run `stoker index` to see why");
    size_t rows;
    const bool overflows = c->steps ? stk_mul_overflows(&rows, c->steps, c->batch)
                                    : stk_mul_overflows(&rows, plan->epoch_rows, c->epochs);
    if (overflows || rows > INT64_MAX)
        return stk_fail(err, STK_ERR_OPTION, "the run is too long: lower %s", c->steps ? "steps" : "epochs");
    plan->total_rows = rows;
    plan->step_count = rows / c->batch + (rows % c->batch != 0);
    return STK_OK;
}

stk_status stk_plan_create(stk_plan **out, const stk_plan_config *config, stk_error *err)
{
    *out = NULL;
    stk_plan *const plan = stk_alloc(STK_TAG_PLAN, sizeof *plan);
    if (!plan) return stk_fail(err, STK_ERR_NOMEM, "out of memory: the plan");
    plan->config = *config;
    plan->usable = stk_alloc_array(STK_TAG_PLAN, config->set_count, sizeof *plan->usable);
    plan->rows_before = stk_alloc_array(STK_TAG_PLAN, config->set_count + (size_t)1, sizeof *plan->rows_before);
    stk_status status = STK_OK;
    if (!plan->usable || !plan->rows_before) status = stk_fail(err, STK_ERR_NOMEM, "out of memory: the plan");
    if (status == STK_OK) status = check_config(plan, err);
    for (uint32_t i = 0; status == STK_OK && i < config->set_count; i++) status = find_usable(plan, i, err);
    if (status == STK_OK) status = count_steps(plan, err);
    if (status < 0) {
        stk_error_stage(err, STK_STAGE_PLAN);
        stk_plan_destroy(plan);
        return status;
    }
    *out = plan;
    return STK_OK;
}

void stk_plan_destroy(stk_plan *plan)
{
    if (!plan) return;
    for (uint32_t i = 0; plan->usable && i < plan->config.set_count; i++) stk_usable_deinit(&plan->usable[i]);
    stk_free(plan->usable);
    stk_free(plan->rows_before);
    stk_free(plan);
}

/* --- counts and positions --- */

uint64_t stk_plan_step_count(const stk_plan *plan)
{
    return plan->step_count;
}

uint64_t stk_plan_epoch_rows(const stk_plan *plan)
{
    return plan->epoch_rows;
}

uint64_t stk_plan_not_selected(const stk_plan *plan)
{
    return plan->not_selected;
}

uint32_t stk_plan_rank_rows(const stk_plan *plan, uint32_t world)
{
    return (uint32_t)((plan->config.batch + world - 1) / world);
}

uint32_t stk_plan_micro_rows(const stk_plan *plan, uint32_t world)
{
    const uint32_t rank_rows = stk_plan_rank_rows(plan, world);
    const uint64_t rows = plan->config.micro_batch;
    return rows == 0 || rows > rank_rows ? rank_rows : (uint32_t)rows;
}

uint32_t stk_plan_micro_count(const stk_plan *plan, uint32_t world)
{
    const uint32_t rows = stk_plan_micro_rows(plan, world);
    return (stk_plan_rank_rows(plan, world) + rows - 1) / rows;
}

stk_status stk_plan_check_world(const stk_plan *plan, uint32_t world, stk_error *err)
{
    if (world == 0) return stk_fail(err, STK_ERR_USAGE, "a run has at least one rank");
    if (plan->config.uneven_is_error && plan->config.batch % world)
        return stk_fail(err, STK_ERR_OPTION,
                        "batch: %llu rows cannot be shared evenly by %u ranks: choose a multiple, or uneven: filler",
                        (unsigned long long)plan->config.batch, world);
    if (plan->config.uneven_is_error && plan->total_rows % plan->config.batch)
        return stk_fail(err, STK_ERR_OPTION,
                        "%llu rows do not fill the last step of batch: %llu: set steps, of which %llu are full, lower "
                        "batch, or uneven: filler",
                        (unsigned long long)plan->total_rows, (unsigned long long)plan->config.batch,
                        (unsigned long long)(plan->total_rows / plan->config.batch));
    return STK_OK;
}

void stk_plan_position(const stk_plan *plan, uint64_t step, uint64_t *epoch, uint64_t *rows)
{
    const uint64_t row = step >= plan->step_count ? plan->total_rows : step * plan->config.batch;
    *epoch = row / plan->epoch_rows;
    *rows = row % plan->epoch_rows;
}

stk_status stk_plan_step_at(const stk_plan *plan, uint64_t epoch, uint64_t rows, uint64_t *step, stk_error *err)
{
    size_t row;
    if (rows >= plan->epoch_rows || stk_mul_overflows(&row, epoch, plan->epoch_rows) ||
        stk_add_overflows(&row, row, rows) || row > plan->total_rows ||
        (row % plan->config.batch && row != plan->total_rows))
        return stk_fail(err, STK_ERR_STATE, "no step starts at row %llu of epoch %llu", (unsigned long long)rows,
                        (unsigned long long)epoch);
    *step = row == plan->total_rows ? plan->step_count : row / plan->config.batch;
    return STK_OK;
}

/* --- recipes --- */

/* Which record a row of the run is. */
typedef struct place {
    uint32_t set_index;
    uint64_t record_index;
} place;

/* The permutation of the epoch which a row lies in; most steps need one, kept by the caller from row to row. */
typedef struct order {
    uint64_t epoch; /* UINT64_MAX: none yet */
    stk_permutation permutation;
} order;

static place place_of_row(const stk_plan *plan, uint64_t row, order *o)
{
    const uint64_t epoch = row / plan->epoch_rows;
    uint64_t position = row % plan->epoch_rows;
    if (plan->config.shuffle) {
        if (o->epoch != epoch) {
            stk_permutation_init(&o->permutation, plan->epoch_rows, plan->config.seed, STREAM_ORDER, epoch);
            o->epoch = epoch;
        }
        position = stk_permutation_at(&o->permutation, position);
    }
    uint32_t set_index = 0;
    while (position >= plan->rows_before[set_index + 1]) set_index++;
    return (place){set_index, stk_usable_select(&plan->usable[set_index], position - plan->rows_before[set_index])};
}

/* Planned supervised tokens of all rows of a step: the loss scale, equal on all ranks. */
static uint64_t step_loss_tokens(const stk_plan *plan, uint64_t first_row, order *o)
{
    uint64_t sum = 0;
    for (uint64_t i = 0; i < plan->config.batch && first_row + i < plan->total_rows; i++) {
        const place p = place_of_row(plan, first_row + i, o);
        sum += plan->config.set[p.set_index].facts.text[p.record_index].supervised_count;
    }
    return sum;
}

static stk_status fill_media(const stk_plan *plan, stk_recipe *recipe, const place *places, stk_pool *pool,
                             stk_error *err)
{
    uint64_t media_count = 0;
    for (uint32_t i = 0; i < recipe->sample_count; i++) media_count += recipe->sample[i].media_count;
    if (media_count > UINT32_MAX) return stk_fail(err, STK_ERR_MEDIA_LIMIT, "a micro-batch of too many images");
    recipe->media = stk_pool_take(pool, media_count * sizeof *recipe->media);
    if (!recipe->media) return stk_fail(err, STK_ERR_NOMEM, "out of memory: a recipe");
    for (uint32_t i = 0; i < recipe->sample_count; i++) {
        stk_recipe_sample *const sample = &recipe->sample[i];
        sample->first_media = recipe->media_count;
        if (sample->media_count == 0) continue;
        const stk_plan_set *const set = &plan->config.set[places[i].set_index];
        const uint64_t first = set->facts.record[sample->record_index].first_media;
        for (uint32_t k = 0; k < sample->media_count; k++)
            stk_recipe_add_media(recipe, &set->facts, first + k, plan->config.model, &set->pixels);
    }
    return STK_OK;
}

static void fill_sample(const stk_plan *plan, stk_recipe_sample *sample, place p)
{
    const stk_plan_set *const set = &plan->config.set[p.set_index];
    stk_record_size size;
    stk_record_derive(&size, &set->facts, p.record_index, plan->config.model, &set->pixels, plan->max_tokens);
    sample->set_index = p.set_index;
    sample->record_index = p.record_index;
    sample->token_count = size.token_count;
    sample->supervised_count = size.supervised_count;
    sample->media_count = set->facts.record[p.record_index].media_count;
}

/* Offsets and lengths of rows, by the layout. */
static stk_status lay_out(const stk_plan *plan, stk_recipe *recipe, stk_error *err)
{
    uint64_t longest = 0, joined = 0;
    for (uint32_t i = 0; i < recipe->sample_count; i++) {
        stk_recipe_sample *const sample = &recipe->sample[i];
        if (plan->config.layout == STK_LAYOUT_FLAT) sample->first_token = (uint32_t)joined;
        joined += sample->token_count;
        if (sample->token_count > longest) longest = sample->token_count;
        if (joined > INT32_MAX) return stk_fail(err, STK_ERR_OPTION, "a micro-batch of over 2^31 tokens: lower batch");
        recipe->loss_tokens += sample->supervised_count;
    }
    recipe->token_count = joined;
    const uint64_t length = plan->config.layout == STK_LAYOUT_FLAT ? joined : longest;
    const uint64_t multiple = plan->config.pad_multiple;
    recipe->row_tokens = (uint32_t)(plan->config.pad_to ? plan->config.pad_to : (length + multiple - 1) / multiple * multiple);
    return STK_OK;
}

stk_status stk_plan_recipe(const stk_plan *plan, uint64_t step, uint32_t rank, uint32_t world, uint32_t micro,
                           stk_pool *pool, stk_recipe *recipe, stk_error *err)
{
    *recipe = (stk_recipe){.step = step, .rank = rank, .world = world, .micro = micro};
    if (world == 0 || rank >= world || step >= plan->step_count || micro >= stk_plan_micro_count(plan, world))
        return stk_fail(err, STK_ERR_USAGE, "no micro-batch (step %llu, rank %u of %u, micro %u): the run has %llu steps",
                        (unsigned long long)step, rank, world, micro, (unsigned long long)plan->step_count);
    const uint32_t rows = stk_plan_micro_rows(plan, world);
    const uint64_t first_row = step * plan->config.batch;
    recipe->micro_count = stk_plan_micro_count(plan, world);
    recipe->row_count = recipe->sample_count = rows;
    stk_plan_position(plan, step, &recipe->epoch, &recipe->rows_before);
    recipe->sample = stk_pool_take(pool, rows * sizeof *recipe->sample);
    place *const places = stk_pool_take(pool, rows * sizeof *places);
    if (!recipe->sample || !places) return stk_fail(err, STK_ERR_NOMEM, "out of memory: a recipe");

    order o = {.epoch = UINT64_MAX};
    for (uint32_t i = 0; i < rows; i++) {
        const uint64_t at = ((uint64_t)micro * rows + i) * world + rank; /* in the step */
        stk_recipe_sample *const sample = &recipe->sample[i];
        sample->row = i;
        if (at < plan->config.batch && first_row + at < plan->total_rows) {
            places[i] = place_of_row(plan, first_row + at, &o);
            fill_sample(plan, sample, places[i]);
        } else {
            sample->filler = true;
            sample->token_count = 1;
        }
    }
    recipe->step_loss_tokens = step_loss_tokens(plan, first_row, &o);
    STK_TRY(fill_media(plan, recipe, places, pool, err));
    return lay_out(plan, recipe, err);
}
