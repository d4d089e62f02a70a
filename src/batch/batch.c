/* batch.c - reading a delivered batch: fields, samples, counts, references. */
#include "batch/batch_object.h"

/* --- fields --- */

static stk_view view_of(const stk_batch *batch, stk_field_id id)
{
    const stk_slot_field *const field = &batch->layout.field[id];
    stk_view view = {0};
    if (!field->present) return view;
    view.name = stk_field_name(id);
    view.data = batch->slot + field->at_bytes;
    view.dtype = field->dtype;
    view.ndim = field->ndim;
    memcpy(view.shape, field->shape, sizeof view.shape);
    view.size_bytes = field->size_bytes;
    return view;
}

size_t stk_batch_field_count(const stk_batch *batch)
{
    size_t count = 0;
    for (int id = 0; id < STK_FIELD_COUNT; id++) count += batch->layout.field[id].present;
    return count;
}

stk_view stk_batch_field_at(const stk_batch *batch, size_t at)
{
    for (int id = 0; id < STK_FIELD_COUNT; id++)
        if (batch->layout.field[id].present && at-- == 0) return view_of(batch, (stk_field_id)id);
    return (stk_view){0};
}

stk_view stk_batch_field(const stk_batch *batch, const char *name)
{
    for (int id = 0; id < STK_FIELD_COUNT; id++)
        if (strcmp(stk_field_name((stk_field_id)id), name) == 0) return view_of(batch, (stk_field_id)id);
    return (stk_view){0};
}

/* --- samples and counts --- */

size_t stk_batch_sample_count(const stk_batch *batch)
{
    return batch->recipe.sample_count;
}

static uint32_t visual_tokens(const stk_batch *batch, const stk_recipe_sample *sample)
{
    uint64_t count = 0;
    for (uint32_t k = 0; k < sample->media_count; k++)
        count += stk_grid_tokens(batch->recipe.media[sample->first_media + k].grid, batch->home->form->model->merge);
    return (uint32_t)count;
}

void stk_batch_sample_at(const stk_batch *batch, size_t at, stk_batch_sample *sample)
{
    const stk_recipe_sample *const planned = &batch->recipe.sample[at];
    const stk_batch_note *const note = &batch->note[at];
    *sample = (stk_batch_sample){.row = planned->row,
                                 .offset = planned->first_token,
                                 .tokens = planned->token_count,
                                 .step_row = batch->recipe.step_row[planned->row],
                                 .filler = planned->filler};
    if (planned->filler && !note->masked) return; /* else a record that cannot be used (index: stream) */
    snprintf(sample->id, sizeof sample->id, "%s", note->id);
    snprintf(sample->set, sizeof sample->set, "%s", batch->home->set_name[planned->set_index]);
    snprintf(sample->reason, sizeof sample->reason, "%s", note->reason);
    sample->record = planned->record_index;
    sample->line = note->line;
    sample->visual_tokens = visual_tokens(batch, planned);
    sample->masked = note->masked;
}

void stk_batch_info_get(const stk_batch *batch, stk_batch_info *info)
{
    const stk_recipe *const recipe = &batch->recipe;
    *info = (stk_batch_info){.step = recipe->step,
                             .rank = recipe->rank,
                             .world = recipe->world,
                             .micro = recipe->micro,
                             .micro_count = recipe->micro_count,
                             .epoch = recipe->epoch,
                             .step_loss_tokens = recipe->step_loss_tokens,
                             .rows = recipe->row_count};
    snprintf(info->model_type, sizeof info->model_type, "%s", batch->home->form->model->model_type);
    for (uint32_t i = 0; i < recipe->sample_count; i++) {
        const stk_recipe_sample *const sample = &recipe->sample[i];
        if (sample->filler) continue;
        info->tokens += sample->token_count;
        info->visual_tokens += visual_tokens(batch, sample);
        info->images += sample->media_count;
        if (!batch->note[i].masked) info->loss_tokens += sample->supervised_count;
    }
}

void stk_batch_state(const stk_batch *batch, stk_state *state)
{
    *state = batch->after;
}

/* --- references --- */

void stk_batch_retain(stk_batch *batch)
{
    atomic_fetch_add_explicit(&batch->references, 1, memory_order_relaxed);
}

void stk_batch_release(stk_batch **batch)
{
    stk_batch *const b = *batch;
    *batch = NULL;
    if (!b) return;
    /* Release, so that all reads of the slot are over before it is taken back; acquire, to see those of others. */
    if (atomic_fetch_sub_explicit(&b->references, 1, memory_order_acq_rel) == 1) b->home->take_back(b->home, b);
}
