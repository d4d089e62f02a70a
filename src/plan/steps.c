/* steps.c - the rows of one step, their dealing to ranks and micro-batches, and recipes. */
#include "plan/balance.h"
#include "plan/cost.h"
#include "plan/planner_core.h"

struct stk_plan_scratch {
    stk_window window;
    stk_dealer *dealer;

    uint64_t step; /* whose rows are here; UINT64_MAX: none */
    uint32_t row_count;
    uint32_t *row_start; /* row_count + 1 */
    stk_row_cost *cost;  /* row_count */
    stk_deal_place *place;
    uint32_t *dealt;     /* rows by rank, micro and number */
    uint32_t row_capacity;
    stk_window_sample *sample;
    uint32_t sample_count, sample_capacity;
    uint64_t loss_tokens;

    uint32_t world;       /* whose dealing is here; 0: none */
    stk_balance balance;
    uint32_t *bin_start;  /* world x micros + 1: of dealt */
    size_t bin_capacity;
};

stk_status stk_plan_scratch_create(stk_plan_scratch **out, const stk_plan *plan, stk_error *err)
{
    *out = NULL;
    stk_plan_scratch *const s = stk_alloc(STK_TAG_PLAN, sizeof *s);
    if (!s) return stk_fail(err, STK_ERR_NOMEM, "out of memory: the plan of a step");
    s->step = UINT64_MAX;
    stk_status status = stk_window_init(&s->window, &plan->config, err);
    if (status == STK_OK) status = stk_dealer_create(&s->dealer, err);
    if (status < 0) {
        stk_plan_scratch_destroy(s);
        return status;
    }
    *out = s;
    return STK_OK;
}

void stk_plan_scratch_destroy(stk_plan_scratch *scratch)
{
    if (!scratch) return;
    stk_window_deinit(&scratch->window);
    stk_dealer_destroy(scratch->dealer);
    stk_free(scratch->row_start);
    stk_free(scratch->cost);
    stk_free(scratch->place);
    stk_free(scratch->dealt);
    stk_free(scratch->sample);
    stk_free(scratch->bin_start);
    stk_free(scratch);
}

uint64_t stk_plan_scratch_windows(const stk_plan_scratch *scratch)
{
    return scratch->window.loads;
}

/* --- the rows of a step --- */

static stk_status no_memory(stk_error *err)
{
    return stk_fail(err, STK_ERR_NOMEM, "out of memory: the plan of a step");
}

static stk_status make_room_for_rows(stk_plan_scratch *s, uint32_t rows, stk_error *err)
{
    if (rows <= s->row_capacity) return STK_OK;
    stk_free(s->row_start);
    stk_free(s->cost);
    stk_free(s->place);
    stk_free(s->dealt);
    s->row_start = stk_alloc_array(STK_TAG_PLAN, rows + (size_t)1, sizeof *s->row_start);
    s->cost = stk_alloc_array(STK_TAG_PLAN, rows, sizeof *s->cost);
    s->place = stk_alloc_array(STK_TAG_PLAN, rows, sizeof *s->place);
    s->dealt = stk_alloc_array(STK_TAG_PLAN, rows, sizeof *s->dealt);
    s->row_capacity = s->row_start && s->cost && s->place && s->dealt ? rows : 0;
    return s->row_capacity ? STK_OK : no_memory(err);
}

static stk_status make_room_for_samples(stk_plan_scratch *s, uint32_t more, stk_error *err)
{
    const uint64_t wanted = (uint64_t)s->sample_count + more;
    if (wanted <= s->sample_capacity) return STK_OK;
    if (wanted > UINT32_MAX / 2) return stk_fail(err, STK_ERR_OPTION, "a step of over 2^31 samples: lower batch");
    const uint32_t capacity = (uint32_t)(wanted + wanted / 2);
    stk_window_sample *const moved = stk_alloc_array(STK_TAG_PLAN, capacity, sizeof *moved);
    if (!moved) return no_memory(err);
    if (s->sample_count) memcpy(moved, s->sample, s->sample_count * sizeof *moved);
    stk_free(s->sample);
    s->sample = moved;
    s->sample_capacity = capacity;
    return STK_OK;
}

/* Bring the window of a row of the run into scratch; *at becomes the row's place in it. */
static stk_status load_row(const stk_plan *plan, stk_plan_scratch *s, uint64_t row, uint32_t *at, stk_error *err)
{
    uint64_t epoch, rows, before, number, expected = 0;
    stk_plan_locate(plan, row, &epoch, &rows);
    if (plan->table) {
        number = stk_table_window(plan->table, epoch, rows, &before, &expected);
    } else {
        number = rows / plan->config.window;
        before = number * plan->config.window;
    }
    stk_window_load(&s->window, plan->order, epoch, number);
    *at = (uint32_t)(rows - before);
    if (!plan->table || s->window.row_count == expected) return STK_OK;
    return stk_fail(err, STK_ERR_INDEX, "the plan's table says %llu rows of window %llu in epoch %llu, which has %u: remove the .stoker-plan file beside the index",
                    (unsigned long long)expected, (unsigned long long)number, (unsigned long long)epoch, s->window.row_count);
}

static stk_status load_step(const stk_plan *plan, stk_plan_scratch *s, uint64_t step, stk_error *err)
{
    if (plan->config.stream)
        return stk_fail(err, STK_ERR_USAGE, "with index: stream the sizes of a step are known only when it is made: set index: auto");
    if (s->step == step) return STK_OK;
    s->step = UINT64_MAX;
    s->world = 0;
    s->sample_count = 0;
    s->loss_tokens = 0;
    const uint64_t first = stk_plan_first_row(plan, step), end = stk_plan_first_row(plan, step + 1);
    s->row_count = (uint32_t)(end - first);
    STK_TRY(make_room_for_rows(s, s->row_count, err));
    s->row_start[0] = 0;
    for (uint64_t row = first; row < end;) {
        const stk_window *const w = &s->window;
        uint32_t at;
        STK_TRY(load_row(plan, s, row, &at, err));
        for (uint32_t r = at; r < w->row_count && row < end; r++, row++) {
            const uint32_t count = w->row_start[r + 1] - w->row_start[r], i = (uint32_t)(row - first);
            const stk_window_sample *const from = &w->sample[w->row_start[r]];
            STK_TRY(make_room_for_samples(s, count, err));
            memcpy(&s->sample[s->sample_count], from, count * sizeof *from);
            s->sample_count += count;
            s->row_start[i + 1] = s->sample_count;
            s->cost[i] = stk_row_cost_of(&plan->config, from, count);
            for (uint32_t k = 0; k < count; k++) s->loss_tokens += from[k].supervised_count;
        }
    }
    s->step = step;
    return STK_OK;
}

/* --- dealing --- */

static stk_status deal(const stk_plan *plan, stk_plan_scratch *s, uint32_t world, stk_balance balance, stk_error *err)
{
    if (s->world == world && s->balance == balance) return STK_OK;
    s->world = 0;
    const uint32_t micros = stk_plan_micro_count(plan, s->step, world);
    const stk_deal_rules rules = {.balance = balance, .aligned = plan->config.aligned, .world = world,
                                  .rank_rows = stk_plan_rank_rows(plan, s->step, world),
                                  .micro_rows = stk_plan_micro_rows(plan, s->step, world)};
    STK_TRY(stk_deal(s->dealer, &rules, s->cost, s->row_count, s->place, err));
    size_t bins;
    if (stk_mul_overflows(&bins, world, micros)) return no_memory(err);
    if (bins > s->bin_capacity) {
        stk_free(s->bin_start);
        s->bin_start = stk_alloc_array(STK_TAG_PLAN, bins + 1, sizeof *s->bin_start);
        s->bin_capacity = s->bin_start ? bins : 0;
        if (!s->bin_start) return no_memory(err);
    }
    /* A counting sort: by bin, then by row. */
    memset(s->bin_start, 0, (bins + 1) * sizeof *s->bin_start);
    for (uint32_t i = 0; i < s->row_count; i++) s->bin_start[(size_t)s->place[i].rank * micros + s->place[i].micro]++;
    uint32_t sum = 0;
    for (size_t b = 0; b <= bins; b++) {
        const uint32_t count = s->bin_start[b];
        s->bin_start[b] = sum;
        sum += count;
    }
    for (uint32_t i = 0; i < s->row_count; i++) {
        const size_t b = (size_t)s->place[i].rank * micros + s->place[i].micro;
        s->dealt[s->bin_start[b]++] = i;
    }
    for (size_t b = bins; b > 0; b--) s->bin_start[b] = s->bin_start[b - 1];
    s->bin_start[0] = 0;
    s->world = world;
    s->balance = balance;
    return STK_OK;
}

stk_status stk_plan_step_costs(const stk_plan *plan, stk_plan_scratch *scratch, uint64_t step, uint32_t world, bool balanced,
                               stk_step_costs *costs, stk_error *err)
{
    stk_plan_scratch *const s = scratch;
    *costs = (stk_step_costs){0};
    if (world == 0 || step >= plan->step_count)
        return stk_fail(err, STK_ERR_USAGE, "no step %llu on %u ranks", (unsigned long long)step, world);
    STK_TRY(load_step(plan, s, step, err));
    STK_TRY(deal(plan, s, world, balanced ? plan->config.balance : STK_BALANCE_NONE, err));
    const uint32_t micros = stk_plan_micro_count(plan, step, world);
    for (uint32_t rank = 0; rank < world; rank++) {
        uint64_t all = 0, vision = 0;
        for (uint32_t i = s->bin_start[(size_t)rank * micros]; i < s->bin_start[((size_t)rank + 1) * micros]; i++) {
            const stk_row_cost *const cost = &s->cost[s->dealt[i]];
            all += cost->model + cost->vision;
            vision += cost->vision;
        }
        if (all > costs->most_all) costs->most_all = all;
        if (vision > costs->most_vision) costs->most_vision = vision;
        costs->sum_all += all;
        costs->sum_vision += vision;
    }
    return STK_OK;
}

/* --- recipes --- */

/* What a micro-batch is made of before its places are known. */
typedef struct micro_rows {
    const uint32_t *row; /* of the step, row_count of them */
    uint32_t row_count;  /* the rest is filler */
    bool filler_image;
} micro_rows;

static bool has_media(const stk_plan_scratch *s, size_t bin)
{
    for (uint32_t i = s->bin_start[bin]; i < s->bin_start[bin + 1]; i++)
        if (s->cost[s->dealt[i]].has_media) return true;
    return false;
}

/* Without media of its own a micro-batch gets an image on request, or when another rank's of the same number has some. */
static bool wants_image(const stk_plan *plan, const stk_plan_scratch *s, uint32_t rank, uint32_t micro, uint32_t micros)
{
    if (has_media(s, (size_t)rank * micros + micro)) return false;
    if (plan->config.filler_image) return true;
    for (uint32_t other = 0; plan->config.aligned && other < s->world; other++)
        if (has_media(s, (size_t)other * micros + micro)) return true;
    return false;
}

static void copy_sample(stk_recipe_sample *to, const stk_window_sample *from, uint32_t row)
{
    *to = (stk_recipe_sample){.set_index = from->set_index, .record_index = from->record_index, .row = row,
                              .token_count = from->token_count, .supervised_count = from->supervised_count,
                              .media_count = from->media_count};
}

/* Samples of the rows, in order; behind them fillers, a row each. */
static stk_status fill_samples(const stk_plan_scratch *s, const micro_rows *rows, stk_pool *pool, stk_recipe *recipe,
                               stk_error *err)
{
    uint32_t count = recipe->row_count - rows->row_count + rows->filler_image;
    for (uint32_t i = 0; i < rows->row_count; i++) count += s->row_start[rows->row[i] + 1] - s->row_start[rows->row[i]];
    uint32_t *const step_row = stk_pool_take(pool, recipe->row_count * sizeof *step_row);
    recipe->sample = stk_pool_take(pool, count * sizeof *recipe->sample);
    if (!recipe->sample || !step_row) return stk_fail(err, STK_ERR_NOMEM, "out of memory: a recipe");
    for (uint32_t i = 0; i < recipe->row_count; i++) {
        step_row[i] = UINT32_MAX;
        if (i >= rows->row_count) {
            recipe->sample[recipe->sample_count++] = (stk_recipe_sample){.filler = true, .row = i, .token_count = 1};
            continue;
        }
        const uint32_t row = step_row[i] = rows->row[i];
        for (uint32_t k = s->row_start[row]; k < s->row_start[row + 1]; k++)
            copy_sample(&recipe->sample[recipe->sample_count++], &s->sample[k], i);
    }
    recipe->step_row = step_row;
    return STK_OK;
}

static uint64_t placed(uint64_t tokens, uint32_t multiple)
{
    return (tokens + multiple - 1) / multiple * multiple;
}

/* Put the filler image behind the samples of the row that has the fewest tokens; in a flat batch behind all. */
static void add_filler_image(stk_recipe *recipe, stk_layout layout)
{
    uint32_t row = recipe->row_count - 1;
    uint64_t least = UINT64_MAX;
    for (uint32_t i = 0; layout != STK_LAYOUT_FLAT && i < recipe->sample_count;) {
        uint64_t tokens = 0;
        const uint32_t of = recipe->sample[i].row;
        for (; i < recipe->sample_count && recipe->sample[i].row == of; i++)
            tokens += placed(recipe->sample[i].token_count, recipe->segment_multiple);
        if (tokens < least) {
            least = tokens;
            row = of;
        }
    }
    uint32_t at = recipe->sample_count++;
    for (; at > 0 && recipe->sample[at - 1].row > row; at--) recipe->sample[at] = recipe->sample[at - 1];
    recipe->sample[at] = (stk_recipe_sample){.filler = true, .row = row, .token_count = STK_FILLER_IMAGE_TOKENS, .media_count = 1};
}

/* Offsets and lengths of rows, by the layout. */
static stk_status lay_out(const stk_plan_config *c, stk_recipe *recipe, stk_error *err)
{
    const bool flat = c->layout == STK_LAYOUT_FLAT;
    uint64_t longest = 0, at = 0;
    for (uint32_t i = 0; i < recipe->sample_count; i++) {
        stk_recipe_sample *const sample = &recipe->sample[i];
        if (!flat && (i == 0 || sample->row != recipe->sample[i - 1].row)) at = 0;
        sample->first_token = (uint32_t)at;
        at = placed(at + sample->token_count, recipe->segment_multiple);
        recipe->token_count += sample->token_count;
        recipe->loss_tokens += sample->supervised_count;
        const uint64_t end = sample->first_token + (uint64_t)sample->token_count;
        if (end > longest) longest = end;
        if (recipe->token_count > INT32_MAX || longest > INT32_MAX)
            return stk_fail(err, STK_ERR_OPTION, "a micro-batch of over 2^31 tokens: lower batch or micro_batch");
    }
    const uint64_t length = c->layout == STK_LAYOUT_PACKED ? c->row_tokens : c->pad_to ? c->pad_to : placed(longest, c->pad_multiple);
    if (length * (flat ? 1 : recipe->row_count) > INT32_MAX)
        return stk_fail(err, STK_ERR_OPTION, "a micro-batch of over 2^31 tokens: lower batch or micro_batch");
    recipe->row_tokens = (uint32_t)length;
    return STK_OK;
}

static void add_filler_media(stk_recipe *recipe, const stk_model *model)
{
    stk_recipe_media *const media = &recipe->media[recipe->media_count++];
    *media = (stk_recipe_media){.media_index = STK_FILLER_MEDIA, .width_px = stk_model_factor(model),
                                .height_px = stk_model_factor(model), .grid = {1, model->merge, model->merge},
                                .first_patch = recipe->patch_count};
    recipe->patch_count += stk_grid_patches(media->grid);
}

/* Room for the media of all samples. */
static stk_status take_media(stk_recipe *recipe, stk_pool *pool, stk_error *err)
{
    uint64_t media_count = 0;
    for (uint32_t i = 0; i < recipe->sample_count; i++) media_count += recipe->sample[i].media_count;
    if (media_count > INT32_MAX) return stk_fail(err, STK_ERR_MEDIA_LIMIT, "a micro-batch of too many images");
    recipe->media = stk_pool_take(pool, media_count * sizeof *recipe->media);
    return recipe->media ? STK_OK : stk_fail(err, STK_ERR_NOMEM, "out of memory: a recipe");
}

static stk_status fill_media(const stk_plan_config *c, const stk_plan_scratch *s, const micro_rows *rows, stk_recipe *recipe,
                             stk_pool *pool, stk_error *err)
{
    STK_TRY(take_media(recipe, pool, err));
    uint32_t row = 0, k = 0; /* where the sample stands among those of the step */
    for (uint32_t i = 0; i < recipe->sample_count; i++) {
        stk_recipe_sample *const sample = &recipe->sample[i];
        sample->first_media = recipe->media_count;
        if (sample->filler) {
            if (sample->media_count) add_filler_media(recipe, c->model);
            continue;
        }
        if (i == 0 || row != sample->row) k = s->row_start[rows->row[sample->row]];
        row = sample->row;
        const stk_plan_set *const set = &c->set[sample->set_index];
        const stk_pixel_rules pixels = stk_pixels_limited(&set->pixels, s->sample[k++].max_px);
        const uint64_t first = set->facts.record[sample->record_index].first_media;
        for (uint32_t m = 0; m < sample->media_count; m++)
            stk_recipe_add_media(recipe, &set->facts, first + m, c->model, &pixels);
    }
    return STK_OK;
}

/* Which micro-batch it is, and how many rows it has. */
static stk_status begin_recipe(const stk_plan *plan, uint64_t step, uint32_t rank, uint32_t world, uint32_t micro,
                               stk_recipe *recipe, stk_error *err)
{
    *recipe = (stk_recipe){.step = step, .rank = rank, .world = world, .micro = micro};
    if (world == 0 || rank >= world || step >= plan->step_count || micro >= stk_plan_micro_count(plan, step, world))
        return stk_fail(err, STK_ERR_USAGE, "no micro-batch (step %llu, rank %u of %u, micro %u): the run has %llu steps",
                        (unsigned long long)step, rank, world, micro, (unsigned long long)plan->step_count);
    recipe->micro_count = stk_plan_micro_count(plan, step, world);
    recipe->row_count = stk_plan_micro_rows(plan, step, world);
    recipe->segment_multiple = plan->config.layout == STK_LAYOUT_PACKED ? plan->config.segment_multiple : 1;
    stk_plan_position(plan, step, &recipe->epoch, &recipe->rows_before);
    return STK_OK;
}

stk_status stk_plan_recipe(const stk_plan *plan, stk_plan_scratch *scratch, uint64_t step, uint32_t rank, uint32_t world,
                           uint32_t micro, stk_pool *pool, stk_recipe *recipe, stk_error *err)
{
    stk_plan_scratch *const s = scratch;
    const stk_plan_config *const c = &plan->config;
    STK_TRY(begin_recipe(plan, step, rank, world, micro, recipe, err));
    STK_TRY(load_step(plan, s, step, err));
    STK_TRY(deal(plan, s, world, c->balance, err));
    recipe->step_loss_tokens = s->loss_tokens;

    const size_t bin = (size_t)rank * recipe->micro_count + micro;
    const micro_rows rows = {.row = s->dealt + s->bin_start[bin], .row_count = s->bin_start[bin + 1] - s->bin_start[bin],
                             .filler_image = wants_image(plan, s, rank, micro, recipe->micro_count)};
    STK_TRY(fill_samples(s, &rows, pool, recipe, err));
    if (rows.filler_image) add_filler_image(recipe, c->layout);
    STK_TRY(lay_out(c, recipe, err));
    return fill_media(c, s, &rows, recipe, pool, err);
}

/* --- without facts: draws first --- */

stk_status stk_plan_draws(const stk_plan *plan, stk_plan_scratch *scratch, uint64_t step, uint32_t rank, uint32_t world,
                          uint32_t micro, stk_pool *pool, stk_plan_draw **draw, uint32_t *count, stk_error *err)
{
    stk_recipe which;
    *count = 0;
    STK_TRY(begin_recipe(plan, step, rank, world, micro, &which, err));
    *draw = stk_pool_take(pool, which.row_count * sizeof **draw);
    if (!*draw) return stk_fail(err, STK_ERR_NOMEM, "out of memory: a recipe");
    /* As without balance: row i goes to rank i % world, and there to its micro-batches in order. */
    const uint64_t first = stk_plan_first_row(plan, step), rows = stk_plan_step_rows(plan, step);
    const uint64_t begin = (uint64_t)micro * which.row_count, rank_rows = stk_plan_rank_rows(plan, step, world);
    const uint64_t end = begin + which.row_count < rank_rows ? begin + which.row_count : rank_rows;
    for (uint64_t i = begin * world + rank; i < rows && i < end * world; i += world) {
        stk_plan_draw *const d = &(*draw)[(*count)++];
        d->step_row = (uint32_t)i;
        stk_order_at(plan->order, scratch->window.cache, first + i, &d->set_index, &d->record_index);
    }
    return STK_OK;
}

/* What each draw comes to. */
static stk_status size_draws(const stk_plan_config *c, const stk_plan_draw *draw, uint32_t count, const stk_set_facts *facts,
                             stk_record_size *size, stk_reason *reason, stk_error *err)
{
    for (uint32_t i = 0; i < count; i++) {
        const stk_plan_set *const set = &c->set[draw[i].set_index];
        stk_record_derive(&size[i], facts, i, c->model, &set->pixels, c->max_tokens);
        reason[i] = size[i].reason;
        if (reason[i] != STK_REASON_OVERLONG || !set->overlong_is_error) continue;
        const stk_record_facts *const record = &set->facts.record[draw[i].record_index];
        return stk_fail_at(err, STK_ERR_RECORD, set->facts.file[record->file_index], record->line,
                           "the sample has %u tokens, over the limit of %u: raise max_tokens, lower max_pixels, or set overlong: drop or "
                           "shrink",
                           size[i].token_count, c->max_tokens);
    }
    return STK_OK;
}

static stk_status fill_draws(const stk_plan_draw *draw, uint32_t count, const stk_set_facts *facts, const stk_record_size *size,
                             stk_pool *pool, stk_recipe *recipe, stk_error *err)
{
    uint32_t *const step_row = stk_pool_take(pool, recipe->row_count * sizeof *step_row);
    recipe->sample = stk_pool_take(pool, (recipe->row_count + (size_t)1) * sizeof *recipe->sample); /* one more: a filler image */
    if (!recipe->sample || !step_row) return stk_fail(err, STK_ERR_NOMEM, "out of memory: a recipe");
    for (uint32_t i = 0; i < recipe->row_count; i++) {
        stk_recipe_sample *const sample = &recipe->sample[recipe->sample_count++];
        *sample = (stk_recipe_sample){.filler = true, .row = i, .token_count = 1};
        step_row[i] = i < count ? draw[i].step_row : UINT32_MAX;
        if (i >= count) continue;
        sample->set_index = draw[i].set_index;
        sample->record_index = draw[i].record_index;
        if (size[i].reason != STK_REASON_NONE) continue;
        sample->filler = false;
        sample->token_count = size[i].token_count;
        sample->supervised_count = size[i].supervised_count;
        sample->media_count = facts->record[i].media_count;
    }
    recipe->step_row = step_row;
    return STK_OK;
}

/* A row is a draw here: a sample's row is the number of its draw. */
static stk_status fill_draw_media(const stk_plan_config *c, const stk_plan_draw *draw, const stk_set_facts *facts,
                                  const stk_record_size *size, stk_pool *pool, stk_recipe *recipe, stk_error *err)
{
    STK_TRY(take_media(recipe, pool, err));
    for (uint32_t i = 0; i < recipe->sample_count; i++) {
        stk_recipe_sample *const sample = &recipe->sample[i];
        sample->first_media = recipe->media_count;
        if (sample->filler) {
            if (sample->media_count) add_filler_media(recipe, c->model);
            continue;
        }
        const stk_pixel_rules pixels = stk_pixels_limited(&c->set[draw[sample->row].set_index].pixels, size[sample->row].max_px);
        for (uint32_t m = 0; m < sample->media_count; m++)
            stk_recipe_add_media(recipe, facts, facts->record[sample->row].first_media + m, c->model, &pixels);
    }
    return STK_OK;
}

stk_status stk_plan_recipe_of(const stk_plan *plan, uint64_t step, uint32_t rank, uint32_t world, uint32_t micro,
                              const stk_plan_draw *draw, uint32_t count, const stk_set_facts *facts, stk_pool *pool,
                              stk_recipe *recipe, stk_reason *reason, stk_error *err)
{
    const stk_plan_config *const c = &plan->config;
    STK_TRY(begin_recipe(plan, step, rank, world, micro, recipe, err));
    stk_record_size *const size = stk_pool_take(pool, count * sizeof *size);
    if (!size) return stk_fail(err, STK_ERR_NOMEM, "out of memory: a recipe");
    STK_TRY(size_draws(c, draw, count, facts, size, reason, err));
    STK_TRY(fill_draws(draw, count, facts, size, pool, recipe, err));
    uint64_t images = 0;
    for (uint32_t i = 0; i < recipe->sample_count; i++) images += recipe->sample[i].media_count;
    if (c->filler_image && images == 0) add_filler_image(recipe, c->layout);
    STK_TRY(lay_out(c, recipe, err));
    return fill_draw_media(c, draw, facts, size, pool, recipe, err);
}
