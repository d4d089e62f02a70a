/* plan_api.c - a plan as people look at it: opened from options, its steps listed sample by sample.
 *
 * Not here: the sums over a run (plan_sum.c). */
#include "engine/plan_view.h"

enum { THREADS_MAX = 64 };

/* --- open and close --- */

static stk_status open_view(stk_plan_view *view, const stk_options *options, const stk_index_progress *progress, stk_error *err)
{
    STK_TRY(stk_run_open(&view->run, options, progress, err));
    stk_remote_watch(view->run->rules->remote, NULL); /* progress is for those who open */
    STK_TRY(stk_plan_check_world(view->run->plan, view->world, err));
    const int threads = options->workers < 0 ? 1 : stk_run_thread_count(options);
    view->threads = threads < THREADS_MAX ? (uint32_t)threads : THREADS_MAX;
    view->set = stk_alloc_array(STK_TAG_PLAN, view->run->set_count, sizeof *view->set);
    if (!view->set) return stk_fail(err, STK_ERR_NOMEM, "out of memory: the counts of data sets");
    for (uint32_t i = 0; i < view->run->set_count; i++)
        snprintf(view->set[i].name, sizeof view->set[i].name, "%s", view->run->set[i].name);
    stk_buffer_init(&view->record, STK_TAG_PLAN, view->run->rules->limits.record_bytes + STK_PAD_BYTES);
    return stk_plan_walker_init(&view->walker, view->run, err);
}

stk_status stk_plan_open(stk_plan_view **out, const stk_options *options, uint32_t world, const stk_index_progress *progress,
                         stk_error *err)
{
    *out = NULL;
    stk_plan_view *view = stk_alloc(STK_TAG_PLAN, sizeof *view);
    if (!view) return stk_fail(err, STK_ERR_NOMEM, "out of memory: a plan");
    view->world = world;
    stk_sample_init(&view->sample);
    const stk_status status = open_view(view, options, progress, err);
    if (status < 0) stk_plan_close(&view);
    *out = view;
    return status;
}

void stk_plan_close(stk_plan_view **view)
{
    stk_plan_view *const v = *view;
    *view = NULL;
    if (!v) return;
    stk_plan_walker_deinit(&v->walker);
    stk_sample_deinit(&v->sample);
    stk_buffer_deinit(&v->record);
    stk_free(v->placed);
    stk_free(v->set);
    stk_run_release(v->run);
    stk_free(v);
}

/* --- what is known at once --- */

/* Steps that rows take from the start of the run by the schedule; the last of them in part. */
static double steps_of(const stk_rules *rules, uint64_t rows)
{
    double left = (double)rows, steps = 0;
    for (uint32_t i = 0; i < rules->batch_count; i++) {
        const double batch = (double)rules->batch[i].batch;
        const bool last = i + 1 == rules->batch_count;
        const double here = last ? left / batch : (double)(rules->batch[i + 1].first_step - rules->batch[i].first_step);
        if (last || here * batch >= left) return steps + left / batch;
        steps += here;
        left -= here * batch;
    }
    return steps;
}

void stk_plan_info_get(const stk_plan_view *view, stk_plan_info *info)
{
    const stk_run *const run = view->run;
    *info = (stk_plan_info){.steps = stk_plan_step_count(run->plan), .rows = stk_plan_row_count(run->plan),
                            .epoch_rows = stk_plan_epoch_rows(run->plan, 0), .not_selected = stk_plan_not_selected(run->plan),
                            .world = view->world, .set_count = run->set_count, .packed = run->form.layout == STK_LAYOUT_PACKED, .only_rows = run->stream,
                            .fingerprint = run->fingerprint};
    info->epoch_steps = steps_of(run->rules, info->epoch_rows);
}

void stk_plan_set_counts_at(const stk_plan_view *view, size_t at, stk_plan_set_counts *counts)
{
    *counts = view->set[at];
}

/* --- the samples of a step --- */

static stk_status make_room(stk_plan_view *view, size_t more, stk_error *err)
{
    const size_t wanted = view->placed_count + more;
    if (wanted <= view->placed_capacity) return STK_OK;
    const size_t capacity = wanted + wanted / 2;
    stk_plan_placed *const moved = stk_alloc_array(STK_TAG_PLAN, capacity, sizeof *moved);
    if (!moved) return stk_fail(err, STK_ERR_NOMEM, "out of memory: the samples of a step");
    if (view->placed_count) memcpy(moved, view->placed, view->placed_count * sizeof *moved);
    stk_free(view->placed);
    view->placed = moved;
    view->placed_capacity = capacity;
    return STK_OK;
}

static stk_status keep_samples(void *context, const stk_recipe *recipe, stk_error *err)
{
    stk_plan_view *const view = context;
    STK_TRY(make_room(view, recipe->sample_count, err));
    for (uint32_t i = 0; i < recipe->sample_count; i++) {
        const stk_recipe_sample *const sample = &recipe->sample[i];
        stk_plan_placed *const placed = &view->placed[view->placed_count++];
        *placed = (stk_plan_placed){.sample = *sample, .rank = recipe->rank, .micro = recipe->micro,
                                    .step_row = sample->filler ? UINT32_MAX : recipe->step_row[sample->row]};
        for (uint32_t k = 0; k < sample->media_count; k++)
            placed->visual_tokens += (uint32_t)stk_grid_tokens(recipe->media[sample->first_media + k].grid, view->run->model.merge);
    }
    return STK_OK;
}

stk_status stk_plan_load_step(stk_plan_view *view, uint64_t step, stk_plan_step *sums, stk_error *err)
{
    stk_plan_step unwanted;
    const stk_plan_visitor visitor = {.recipe = keep_samples, .context = view};
    const uint64_t steps = stk_plan_step_count(view->run->plan);
    view->placed_count = 0;
    if (step >= steps)
        return stk_fail(err, STK_ERR_USAGE, "there is no step %llu: the run has %llu steps, from 0", (unsigned long long)step,
                        (unsigned long long)steps);
    const stk_status status = stk_plan_walk_step(view->run, &view->walker, step, view->world, &visitor, sums ? sums : &unwanted, err);
    if (status < 0) {
        view->placed_count = 0;
        stk_error_stage(err, STK_STAGE_PLAN);
    }
    return status;
}

size_t stk_plan_sample_count(const stk_plan_view *view)
{
    return view->placed_count;
}

void stk_plan_sample_at(const stk_plan_view *view, size_t at, stk_plan_sample *sample)
{
    const stk_plan_placed *const placed = &view->placed[at];
    const stk_recipe_sample *const s = &placed->sample;
    *sample = (stk_plan_sample){.rank = placed->rank, .micro = placed->micro, .row = s->row, .offset = s->first_token,
                                .step_row = placed->step_row, .tokens = s->token_count, .visual_tokens = placed->visual_tokens,
                                .supervised_tokens = s->supervised_count, .images = s->media_count, .filler = s->filler};
    if (s->filler) return;
    const stk_run_set *const set = &view->run->set[s->set_index];
    snprintf(sample->set, sizeof sample->set, "%s", set->name);
    sample->record = s->record_index;
    sample->line = set->facts.record[s->record_index].line;
}

stk_status stk_plan_sample_id(stk_plan_view *view, size_t at, char id[96], stk_error *err)
{
    const stk_recipe_sample *const s = &view->placed[at].sample;
    id[0] = 0;
    if (s->filler) return STK_OK;
    const stk_run_set *const set = &view->run->set[s->set_index];
    const stk_record_facts *const facts = &set->facts.record[s->record_index];
    if (!facts->id_hash) {
        stk_run_sample_id(view->run, s->set_index, s->record_index, (stk_str){0}, id);
        return STK_OK;
    }
    stk_reason reason;
    stk_status status = stk_run_read_record(view->run, s->set_index, s->record_index, &view->record, err);
    if (status == STK_OK) {
        const stk_str record = {(const char *)view->record.data, view->record.size_bytes};
        status = stk_record_parse(&view->sample, &set->rules->record, record, &reason, err);
        /* It was usable when it was indexed. */
        if (status == STK_ERR_RECORD)
            status = stk_fail(err, STK_ERR_INDEX, "the record is no longer the one that was indexed: run `stoker index`");
    }
    if (status == STK_OK) stk_run_sample_id(view->run, s->set_index, s->record_index, view->sample.id, id);
    if (status < 0) {
        stk_error_file(err, set->facts.file[facts->file_index], facts->line);
        stk_error_stage(err, STK_STAGE_PLAN);
    }
    return status;
}
