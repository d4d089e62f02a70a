/* plan_walk.c - going through one step of a run, and summing it up.
 *
 * Not here: what a step holds (plan/steps.c); all steps (plan_sum.c). */
#include "engine/plan_view.h"

stk_status stk_plan_walker_init(stk_plan_walker *walker, const stk_run *run, stk_error *err)
{
    *walker = (stk_plan_walker){0};
    stk_pool_init(&walker->pool, STK_TAG_PLAN);
    walker->set = stk_alloc_array(STK_TAG_PLAN, run->set_count, sizeof *walker->set);
    if (!walker->set) return stk_fail(err, STK_ERR_NOMEM, "out of memory: the counts of data sets");
    const stk_status status = stk_plan_scratch_create(&walker->scratch, run->plan, err);
    if (status < 0) stk_plan_walker_deinit(walker);
    return status;
}

void stk_plan_walker_deinit(stk_plan_walker *walker)
{
    stk_plan_scratch_destroy(walker->scratch);
    stk_pool_deinit(&walker->pool);
    stk_free(walker->set);
    *walker = (stk_plan_walker){0};
}

/* What making a sample reads.  A medium without a time stands in its record (a data: URI). */
static void add_bytes(stk_plan_step *sums, const stk_set_facts *facts, const stk_recipe *recipe, const stk_recipe_sample *sample)
{
    sums->record_bytes += facts->record[sample->record_index].size_bytes;
    for (uint32_t k = 0; k < sample->media_count; k++) {
        const stk_media_facts *const media = &facts->media[recipe->media[sample->first_media + k].media_index];
        if (media->mtime_ns) sums->media_bytes += media->size_bytes;
    }
}

static uint64_t visual_tokens_of(const stk_run *run, const stk_recipe *recipe, const stk_recipe_sample *sample)
{
    uint64_t tokens = 0;
    for (uint32_t k = 0; k < sample->media_count; k++)
        tokens += stk_grid_tokens(recipe->media[sample->first_media + k].grid, run->model.merge);
    return tokens;
}

static void add_recipe(stk_plan_step *sums, const stk_run *run, stk_plan_walker *walker, const stk_recipe *recipe)
{
    uint32_t filler_rows = 0;
    uint64_t filler_tokens = 0;
    for (uint32_t i = 0; i < recipe->row_count; i++) filler_rows += recipe->step_row[i] == UINT32_MAX;
    for (uint32_t i = 0; i < recipe->sample_count; i++) {
        const stk_recipe_sample *const sample = &recipe->sample[i];
        if (sample->filler) {
            filler_tokens += sample->token_count;
            continue;
        }
        const uint64_t visual_tokens = visual_tokens_of(run, recipe, sample);
        stk_plan_set_counts *const set = &walker->set[sample->set_index];
        set->samples++;
        set->tokens += sample->token_count;
        set->visual_tokens += visual_tokens;
        set->supervised_tokens += sample->supervised_count;
        set->images += sample->media_count;
        sums->samples++;
        sums->tokens += sample->token_count;
        sums->visual_tokens += visual_tokens;
        sums->supervised_tokens += sample->supervised_count;
        sums->images += sample->media_count;
        add_bytes(sums, &run->set[sample->set_index].facts, recipe, sample);
    }
    sums->filler_rows += filler_rows;
    /* Rows of filler are counted as such and not as padding. */
    if (run->form.layout == STK_LAYOUT_FLAT) sums->room_tokens += recipe->row_tokens - filler_tokens;
    else sums->room_tokens += (uint64_t)(recipe->row_count - filler_rows) * recipe->row_tokens;
}

static stk_status weigh(const stk_run *run, stk_plan_walker *walker, uint64_t step, uint32_t world, bool balanced,
                        stk_plan_costs *costs, stk_error *err)
{
    stk_step_costs of_step;
    STK_TRY(stk_plan_step_costs(run->plan, walker->scratch, step, world, balanced, &of_step, err));
    *costs = (stk_plan_costs){.most_all = of_step.most_all, .sum_all = of_step.sum_all, .most_vision = of_step.most_vision,
                              .sum_vision = of_step.sum_vision};
    return STK_OK;
}

stk_status stk_plan_walk_step(const stk_run *run, stk_plan_walker *walker, uint64_t step, uint32_t world,
                              const stk_plan_visitor *visitor, stk_plan_step *sums, stk_error *err)
{
    *sums = (stk_plan_step){.step = step};
    STK_TRY(weigh(run, walker, step, world, true, &sums->costs, err));
    const uint32_t micros = stk_plan_micro_count(run->plan, step, world);
    sums->rows = stk_plan_step_rows(run->plan, step);
    stk_plan_position(run->plan, step, &sums->epoch, &sums->epoch_row);
    for (uint32_t rank = 0; rank < world; rank++)
        for (uint32_t micro = 0; micro < micros; micro++) {
            stk_recipe recipe;
            stk_slot_layout layout;
            stk_pool_reset(&walker->pool);
            STK_TRY(stk_plan_recipe(run->plan, walker->scratch, step, rank, world, micro, &walker->pool, &recipe, err));
            STK_TRY(stk_slot_layout_init(&layout, &recipe, &run->form, err));
            if (layout.size_bytes > sums->largest_micro_bytes) sums->largest_micro_bytes = layout.size_bytes;
            add_recipe(sums, run, walker, &recipe);
            if (visitor) STK_TRY(visitor->recipe(visitor->context, &recipe, err));
        }
    return weigh(run, walker, step, world, false, &sums->unbalanced, err);
}
