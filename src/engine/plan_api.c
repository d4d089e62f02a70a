/* plan_api.c - the exact counts of a run, from recipes alone: nothing is made. */
#include <stoker/plan.h>

#include "engine/run.h"

static void add_recipe(stk_plan_counts *counts, const stk_run *run, const stk_recipe *recipe)
{
    counts->images += recipe->media_count;
    for (uint32_t i = 0; i < recipe->sample_count; i++) {
        const stk_recipe_sample *const sample = &recipe->sample[i];
        if (sample->filler) {
            counts->filler_rows++;
            continue;
        }
        counts->samples++;
        counts->tokens += sample->token_count;
        counts->supervised_tokens += sample->supervised_count;
        for (uint32_t k = 0; k < sample->media_count; k++)
            counts->visual_tokens +=
                stk_grid_tokens(recipe->media[sample->first_media + k].grid, run->model.merge);
    }
}

static stk_status count_step(stk_plan_counts *counts, const stk_run *run, uint64_t step, uint32_t world,
                             stk_plan_scratch *scratch, stk_pool *pool, stk_error *err)
{
    const uint32_t micros = stk_plan_micro_count(run->plan, step, world);
    for (uint32_t rank = 0; rank < world; rank++)
        for (uint32_t micro = 0; micro < micros; micro++) {
            stk_recipe recipe;
            stk_slot_layout layout;
            stk_pool_reset(pool);
            STK_TRY(stk_plan_recipe(run->plan, scratch, step, rank, world, micro, pool, &recipe, err));
            STK_TRY(stk_slot_layout_init(&layout, &recipe, &run->form, err));
            add_recipe(counts, run, &recipe);
            if (layout.size_bytes > counts->largest_micro_bytes)
                counts->largest_micro_bytes = layout.size_bytes;
        }
    return STK_OK;
}

stk_status stk_plan_count(stk_plan_counts *counts, const stk_options *options, uint32_t world, stk_error *err)
{
    *counts = (stk_plan_counts){0};
    stk_run *run;
    STK_TRY(stk_run_open(&run, options, NULL, err));
    stk_status status = stk_plan_check_world(run->plan, world, err);
    if (status == STK_OK) {
        counts->steps = stk_plan_step_count(run->plan);
        counts->epoch_rows = stk_plan_epoch_rows(run->plan, 0);
        counts->not_selected = stk_plan_not_selected(run->plan);
        memcpy(counts->fingerprint, run->fingerprint.whole, sizeof counts->fingerprint);
    }
    stk_pool pool;
    stk_pool_init(&pool, STK_TAG_PLAN);
    stk_plan_scratch *scratch = NULL;
    if (status == STK_OK) status = stk_plan_scratch_create(&scratch, run->plan, err);
    for (uint64_t step = 0; status == STK_OK && step < counts->steps; step++)
        status = count_step(counts, run, step, world, scratch, &pool, err);
    stk_plan_scratch_destroy(scratch);
    stk_pool_deinit(&pool);
    stk_run_release(run);
    if (status < 0) *counts = (stk_plan_counts){0};
    return status;
}
