/* planner.c - rows, steps and positions: where in the run a thing is.  What is in a step: steps.c. */
#include "plan/planner_core.h"

/* --- create --- */

/* A longer sample does not fit its row: it is over-long. */
uint32_t stk_plan_sample_tokens(const stk_plan_config *c)
{
    uint32_t row = c->layout == STK_LAYOUT_PACKED ? c->row_tokens : c->layout == STK_LAYOUT_PADDED && c->pad_to ? c->pad_to : UINT32_MAX;
    if (row != UINT32_MAX && stk_plan_may_fill_image(c)) {
        const uint32_t multiple = c->layout == STK_LAYOUT_PACKED ? c->segment_multiple : 1;
        const uint32_t reserve = (STK_FILLER_IMAGE_TOKENS + multiple - 1) / multiple * multiple;
        row = row > reserve ? row - reserve : 0;
    }
    return c->max_tokens < row ? c->max_tokens : row;
}

static stk_status check_packed(const stk_plan_config *c, stk_error *err)
{
    if (c->row_tokens % c->segment_multiple)
        return stk_fail(err, STK_ERR_OPTION, "row_tokens: %u is no multiple of segment_multiple: %u", c->row_tokens,
                        c->segment_multiple);
    if (c->row_tokens % c->pad_multiple)
        return stk_fail(err, STK_ERR_OPTION, "row_tokens: %u is no multiple of pad_multiple: %u", c->row_tokens, c->pad_multiple);
    return STK_OK;
}

/* What sizes are needed for, and what they are not. */
static stk_status check_stream(const stk_plan_config *c, stk_error *err)
{
    const char *what = NULL;
    for (uint32_t i = 0; i < c->set_count; i++)
        if (c->set[i].where) what = "`where`";
    if (c->layout == STK_LAYOUT_PACKED) what = "layout: packed";
    if (c->balance != STK_BALANCE_NONE) what = "balance other than none";
    if (c->aligned) what = "modality: aligned";
    if (c->weights_of_tokens) what = "weights: tokens";
    if (!what) return STK_OK;
    return stk_fail(err, STK_ERR_OPTION, "%s needs the facts of all records before the run, and index: stream has none: take it out, or set index: auto",
                    what);
}

static stk_status check_config(const stk_plan_config *c, stk_error *err)
{
    if (c->stream) STK_TRY(check_stream(c, err));
    if (c->pad_to && c->layout != STK_LAYOUT_PADDED)
        return stk_fail(err, STK_ERR_OPTION, "pad_to goes with layout: padded; rows of packed have row_tokens, of flat pad_multiple");
    if (c->pad_to % c->pad_multiple)
        return stk_fail(err, STK_ERR_OPTION, "pad_to: %u is no multiple of pad_multiple: %u", c->pad_to, c->pad_multiple);
    if (c->layout == STK_LAYOUT_PACKED) STK_TRY(check_packed(c, err));
    for (uint32_t i = 0; i < c->batch_count; i++)
        if (c->micro_batch > c->batch[i].batch)
            return stk_fail(err, STK_ERR_OPTION, "micro_batch: %llu is more than batch: %llu",
                            (unsigned long long)c->micro_batch, (unsigned long long)c->batch[i].batch);
    return STK_OK;
}

/* Rows before a step by the schedule, whether the run goes that far or not; false: beyond 2^62. */
static bool rows_before_step(const stk_plan_config *c, uint64_t step, uint64_t *rows)
{
    stk_u128 sum = 0;
    for (uint32_t i = 0; i < c->batch_count && c->batch[i].first_step < step; i++) {
        const uint64_t end = i + 1 < c->batch_count && c->batch[i + 1].first_step < step ? c->batch[i + 1].first_step : step;
        sum += (stk_u128)(end - c->batch[i].first_step) * c->batch[i].batch;
    }
    *rows = (uint64_t)sum;
    return sum < (stk_u128)1 << 62;
}

/* Steps that it takes for so many rows. */
static uint64_t steps_for(const stk_plan_config *c, uint64_t rows)
{
    uint64_t step = 0;
    for (uint32_t i = 0; i < c->batch_count; i++) {
        const uint64_t batch = c->batch[i].batch;
        const bool last = i + 1 == c->batch_count;
        const uint64_t steps = last ? UINT64_MAX : c->batch[i + 1].first_step - c->batch[i].first_step;
        const uint64_t wanted = rows / batch + (rows % batch != 0);
        if (last || wanted <= steps) return step + wanted;
        step += steps;
        rows -= steps * batch;
    }
    return step;
}

/* How long the run is: rows, and with them steps. */
static stk_status measure(stk_plan *plan, stk_error *err)
{
    const stk_plan_config *const c = &plan->config;
    uint64_t wanted = 0;
    if (c->steps && !rows_before_step(c, c->steps, &wanted)) return stk_fail(err, STK_ERR_OPTION, "the run is too long: lower steps");
    if ((stk_u128)c->epochs * stk_order_epoch_begin(plan->order, 1) >= (stk_u128)1 << 62)
        return stk_fail(err, STK_ERR_OPTION, "the run is too long: lower epochs");
    if (c->layout == STK_LAYOUT_PACKED) {
        STK_TRY(stk_table_create(&plan->table, c, plan->order, c->epochs, wanted, c->table_file, c->table_key, err));
        plan->row_count = wanted ? wanted : stk_table_rows_before(plan->table, c->epochs);
    } else {
        plan->row_count = wanted ? wanted : stk_order_epoch_begin(plan->order, c->epochs);
    }
    plan->step_count = c->steps ? c->steps : steps_for(c, plan->row_count);
    return STK_OK;
}

stk_status stk_plan_create(stk_plan **out, const stk_plan_config *config, stk_error *err)
{
    *out = NULL;
    stk_plan *const plan = stk_alloc(STK_TAG_PLAN, sizeof *plan);
    if (!plan) return stk_fail(err, STK_ERR_NOMEM, "out of memory: the plan");
    plan->config = *config;
    plan->config.max_tokens = stk_plan_sample_tokens(config);
    stk_status status = check_config(&plan->config, err);
    if (status == STK_OK) status = stk_order_create(&plan->order, &plan->config, err);
    if (status == STK_OK) status = measure(plan, err);
    if (status < 0) {
        stk_error_stage(err, STK_STAGE_PLAN);
        stk_plan_destroy(plan);
        return status;
    }
    plan->config.watch = NULL;
    *out = plan;
    return STK_OK;
}

void stk_plan_destroy(stk_plan *plan)
{
    if (!plan) return;
    stk_table_destroy(plan->table);
    stk_order_destroy(plan->order);
    stk_free(plan);
}

/* --- counts --- */

uint64_t stk_plan_step_count(const stk_plan *plan)
{
    return plan->step_count;
}

uint64_t stk_plan_row_count(const stk_plan *plan)
{
    return plan->row_count;
}

uint64_t stk_plan_not_selected(const stk_plan *plan)
{
    return stk_order_not_selected(plan->order);
}

uint64_t stk_plan_epoch_rows(const stk_plan *plan, uint64_t epoch)
{
    if (plan->table) return stk_table_rows_before(plan->table, epoch + 1) - stk_table_rows_before(plan->table, epoch);
    return stk_order_epoch_begin(plan->order, epoch + 1) - stk_order_epoch_begin(plan->order, epoch);
}

/* The piece of the schedule that a step lies in. */
static uint32_t piece_of(const stk_plan_config *c, uint64_t step)
{
    uint32_t low = 0, high = c->batch_count;
    while (high - low > 1) {
        const uint32_t middle = low + (high - low) / 2;
        if (c->batch[middle].first_step <= step) low = middle;
        else high = middle;
    }
    return low;
}

uint64_t stk_plan_batch(const stk_plan *plan, uint64_t step)
{
    return plan->config.batch[piece_of(&plan->config, step)].batch;
}

uint64_t stk_plan_first_row(const stk_plan *plan, uint64_t step)
{
    uint64_t rows;
    (void)rows_before_step(&plan->config, step, &rows);
    return rows < plan->row_count ? rows : plan->row_count;
}

uint64_t stk_plan_step_rows(const stk_plan *plan, uint64_t step)
{
    return stk_plan_first_row(plan, step + 1) - stk_plan_first_row(plan, step);
}

uint32_t stk_plan_rank_rows(const stk_plan *plan, uint64_t step, uint32_t world)
{
    return (uint32_t)((stk_plan_batch(plan, step) + world - 1) / world);
}

static uint32_t micro_rows_of(const stk_plan_config *c, uint64_t batch, uint32_t world)
{
    const uint32_t rank_rows = (uint32_t)((batch + world - 1) / world);
    return c->micro_batch == 0 || c->micro_batch > rank_rows ? rank_rows : (uint32_t)c->micro_batch;
}

static uint32_t micros_of(const stk_plan_config *c, uint64_t batch, uint32_t world)
{
    const uint32_t rows = micro_rows_of(c, batch, world);
    return ((uint32_t)((batch + world - 1) / world) + rows - 1) / rows;
}

uint32_t stk_plan_micro_rows(const stk_plan *plan, uint64_t step, uint32_t world)
{
    return micro_rows_of(&plan->config, stk_plan_batch(plan, step), world);
}

uint32_t stk_plan_micro_count(const stk_plan *plan, uint64_t step, uint32_t world)
{
    return micros_of(&plan->config, stk_plan_batch(plan, step), world);
}

uint64_t stk_plan_row_tokens_most(const stk_plan *plan, uint32_t rows)
{
    const stk_plan_config *const c = &plan->config;
    if (c->layout == STK_LAYOUT_PACKED) return c->row_tokens;
    if (c->pad_to) return c->pad_to;
    const uint64_t samples = (uint64_t)c->max_tokens * (c->layout == STK_LAYOUT_FLAT ? rows : 1);
    const uint64_t tokens = samples + (stk_plan_may_fill_image(c) ? STK_FILLER_IMAGE_TOKENS : 0);
    return (tokens + c->pad_multiple - 1) / c->pad_multiple * c->pad_multiple;
}

uint64_t stk_plan_micros_before(const stk_plan *plan, uint64_t step, uint32_t world)
{
    const stk_plan_config *const c = &plan->config;
    uint64_t sum = 0;
    for (uint32_t i = 0; i < c->batch_count && c->batch[i].first_step < step; i++) {
        const uint64_t end = i + 1 < c->batch_count && c->batch[i + 1].first_step < step ? c->batch[i + 1].first_step : step;
        sum += (end - c->batch[i].first_step) * micros_of(c, c->batch[i].batch, world);
    }
    return sum;
}

void stk_plan_micro_at(const stk_plan *plan, uint64_t at, uint32_t world, uint64_t *step, uint32_t *micro)
{
    const stk_plan_config *const c = &plan->config;
    for (uint32_t i = 0;; i++) {
        const uint32_t micros = micros_of(c, c->batch[i].batch, world);
        const bool last = i + 1 == c->batch_count;
        const uint64_t here = last ? UINT64_MAX : (c->batch[i + 1].first_step - c->batch[i].first_step) * micros;
        if (at < here) {
            *step = c->batch[i].first_step + at / micros;
            *micro = (uint32_t)(at % micros);
            return;
        }
        at -= here;
    }
}

stk_status stk_plan_check_world(const stk_plan *plan, uint32_t world, stk_error *err)
{
    const stk_plan_config *const c = &plan->config;
    if (world == 0) return stk_fail(err, STK_ERR_USAGE, "a run has at least one rank");
    for (uint32_t i = 0; i < c->batch_count; i++)
        if (c->uneven_is_error && c->batch[i].batch % world)
            return stk_fail(err, STK_ERR_OPTION,
                            "batch: %llu rows cannot be shared evenly by %u ranks: choose a multiple, or uneven: filler",
                            (unsigned long long)c->batch[i].batch, world);
    const uint64_t last = plan->step_count - 1;
    if (c->uneven_is_error && stk_plan_step_rows(plan, last) < stk_plan_batch(plan, last))
        return stk_fail(err, STK_ERR_OPTION,
                        "%llu rows do not fill the last step of batch: %llu: set steps, of which %llu are full, lower "
                        "batch, or uneven: filler",
                        (unsigned long long)plan->row_count, (unsigned long long)stk_plan_batch(plan, last),
                        (unsigned long long)last);
    return STK_OK;
}

/* --- positions --- */

void stk_plan_locate(const stk_plan *plan, uint64_t row, uint64_t *epoch, uint64_t *rows)
{
    if (!plan->table) {
        *epoch = stk_order_epoch_of(plan->order, row);
        *rows = row - stk_order_epoch_begin(plan->order, *epoch);
        return;
    }
    uint64_t low = 0, high = stk_table_epochs(plan->table) + 1;
    while (high - low > 1) {
        const uint64_t middle = low + (high - low) / 2;
        if (stk_table_rows_before(plan->table, middle) <= row) low = middle;
        else high = middle;
    }
    *epoch = low;
    *rows = row - stk_table_rows_before(plan->table, low);
}

void stk_plan_position(const stk_plan *plan, uint64_t step, uint64_t *epoch, uint64_t *rows)
{
    stk_plan_locate(plan, stk_plan_first_row(plan, step), epoch, rows);
}

/* The row of the run at a position; false: there is none. */
static bool row_at(const stk_plan *plan, uint64_t epoch, uint64_t rows, uint64_t *row)
{
    if (plan->table) {
        const uint64_t epochs = stk_table_epochs(plan->table);
        if (epoch > epochs || rows > plan->row_count) return false;
        if (epoch < epochs && rows >= stk_plan_epoch_rows(plan, epoch)) return false;
        *row = stk_table_rows_before(plan->table, epoch) + rows;
    } else {
        if (epoch > stk_order_epoch_of(plan->order, plan->row_count) || rows >= stk_plan_epoch_rows(plan, epoch)) return false;
        *row = stk_order_epoch_begin(plan->order, epoch) + rows;
    }
    return *row <= plan->row_count;
}

stk_status stk_plan_step_at(const stk_plan *plan, uint64_t epoch, uint64_t rows, uint64_t *step, stk_error *err)
{
    uint64_t row;
    if (row_at(plan, epoch, rows, &row)) {
        *step = row == plan->row_count ? plan->step_count : steps_for(&plan->config, row);
        if (stk_plan_first_row(plan, *step) == row) return STK_OK;
    }
    return stk_fail(err, STK_ERR_STATE, "no step starts at row %llu of epoch %llu", (unsigned long long)rows,
                    (unsigned long long)epoch);
}

uint64_t stk_plan_step_from(const stk_plan *plan, uint64_t epoch, uint64_t rows)
{
    const uint64_t epochs = plan->table ? stk_table_epochs(plan->table) : stk_order_epoch_of(plan->order, plan->row_count - 1) + 1;
    if (epoch >= epochs) return plan->step_count;
    const uint64_t begin = plan->table ? stk_table_rows_before(plan->table, epoch) : stk_order_epoch_begin(plan->order, epoch);
    const uint64_t of_epoch = stk_plan_epoch_rows(plan, epoch), row = begin + (rows < of_epoch ? rows : of_epoch);
    if (row >= plan->row_count) return plan->step_count;
    return steps_for(&plan->config, row);
}
