/* slot.c - the layout of a slot, and the writers of its integer fields. */
#include "batch/slot.h"

#include "base/memory.h"
#include "batch/positions.h"

enum { NO_LABEL = -100, PADDED_POSITION = 1 };

size_t stk_form_patch_bytes(const stk_batch_form *form)
{
    const size_t plane = (size_t)3 * form->model->patch_px * form->model->patch_px;
    if (form->pixels == STK_PIXELS_UINT8) return plane;
    return plane * form->model->temporal * (form->pixels == STK_PIXELS_FLOAT32 ? 4 : 2);
}

/* --- layout --- */

static bool is_flat(const stk_batch_form *form)
{
    return form->layout == STK_LAYOUT_FLAT;
}

/* Samples are told apart by cu_seqlens, not by rows and a mask. */
static bool is_segmented(const stk_batch_form *form)
{
    return form->layout != STK_LAYOUT_PADDED;
}

/* Planes of position_ids: 0 stands for the plain two-dimensional form. */
static int position_planes(const stk_batch_form *form)
{
    if (form->positions == STK_POSITIONS_PLAIN) return 0;
    if (form->positions == STK_POSITIONS_MROPE) return 3;
    if (form->targets == STK_TARGETS_SHIFTED) return is_segmented(form) ? 3 : 0;
    return is_segmented(form) ? 4 : 3;
}

static void add(stk_slot_layout *layout, stk_field_id id, stk_dtype dtype, int ndim, int64_t a, int64_t b, int64_t c)
{
    stk_slot_field *const field = &layout->field[id];
    *field = (stk_slot_field){.present = true, .dtype = dtype, .ndim = ndim, .shape = {a, b, c}};
}

/* Where the tokens behind a sample end that belong to nothing: at the next of its row, or at the row's end. */
static uint32_t room_end(const stk_recipe *recipe, const stk_batch_form *form, uint32_t sample_index)
{
    const stk_recipe_sample *const sample = &recipe->sample[sample_index];
    const bool last = sample_index + 1 == recipe->sample_count || (!is_flat(form) && sample[1].row != sample->row);
    return last ? recipe->row_tokens : sample[1].first_token;
}

/* A sample's place with the padding up to the multiple of its segment; what is left of the row is a segment of its own. */
static uint32_t segment_end(const stk_recipe *recipe, const stk_batch_form *form, uint32_t sample_index)
{
    const stk_recipe_sample *const sample = &recipe->sample[sample_index];
    const uint64_t end = sample->first_token + (uint64_t)sample->token_count, multiple = recipe->segment_multiple,
                   padded = (end + multiple - 1) / multiple * multiple;
    const uint32_t room = room_end(recipe, form, sample_index);
    return padded < room ? (uint32_t)padded : room;
}

/* Segments of cu_seqlens: each sample, and the padding at the tail of each row. */
static uint32_t segment_count(const stk_recipe *recipe, const stk_batch_form *form)
{
    uint32_t count = recipe->sample_count;
    for (uint32_t i = 0; i < recipe->sample_count; i++)
        count += segment_end(recipe, form, i) < room_end(recipe, form, i);
    return count;
}

static void add_fields(stk_slot_layout *layout, const stk_recipe *recipe, const stk_batch_form *form)
{
    const bool hf = form->targets == STK_TARGETS_HF;
    const int64_t rows = is_flat(form) ? 1 : recipe->row_count, tokens = recipe->row_tokens;
    const int planes = position_planes(form);
    add(layout, STK_FIELD_INPUT_IDS, STK_INT64, 2, rows, tokens, 0);
    add(layout, STK_FIELD_LABELS, STK_INT64, 2, rows, tokens, 0);
    if (hf) add(layout, STK_FIELD_MM_TOKEN_TYPE_IDS, STK_INT64, 2, rows, tokens, 0);
    else add(layout, STK_FIELD_LOSS_MASK, STK_FLOAT32, 2, rows, tokens, 0);
    if (planes) add(layout, STK_FIELD_POSITION_IDS, STK_INT64, 3, planes, rows, tokens);
    else add(layout, STK_FIELD_POSITION_IDS, STK_INT64, 2, rows, tokens, 0);
    if (is_segmented(form)) {
        const int64_t bounds = (int64_t)segment_count(recipe, form) + 1;
        add(layout, STK_FIELD_CU_SEQLENS, STK_INT32, 1, bounds, 0, 0);
        if (recipe->segment_multiple > 1) add(layout, STK_FIELD_CU_SEQLENS_PADDED, STK_INT32, 1, bounds, 0, 0);
        add(layout, STK_FIELD_MAX_SEQLEN, STK_INT32, 0, 0, 0, 0);
    } else {
        add(layout, STK_FIELD_ATTENTION_MASK, STK_INT64, 2, rows, tokens, 0);
    }
    add(layout, STK_FIELD_IMAGE_OFFSETS, STK_INT32, 1, (int64_t)recipe->row_count + 1, 0, 0);
    if (recipe->media_count == 0) return;
    add(layout, STK_FIELD_IMAGE_GRID_THW, STK_INT64, 2, recipe->media_count, 3, 0);
    const stk_dtype dtype = form->pixels == STK_PIXELS_UINT8     ? STK_UINT8
                            : form->pixels == STK_PIXELS_FLOAT32 ? STK_FLOAT32
                                                                 : STK_BFLOAT16;
    const stk_field_id pixels = dtype == STK_UINT8 ? STK_FIELD_PIXEL_BYTES : STK_FIELD_PIXEL_VALUES;
    add(layout, pixels, dtype, 2, (int64_t)recipe->patch_count, (int64_t)(stk_form_patch_bytes(form) / stk_dtype_bytes(dtype)),
        0);
}

stk_status stk_slot_layout_init(stk_slot_layout *layout, const stk_recipe *recipe, const stk_batch_form *form,
                                stk_error *err)
{
    *layout = (stk_slot_layout){0};
    add_fields(layout, recipe, form);
    size_t at_bytes = 0;
    for (int id = 0; id < STK_FIELD_COUNT; id++) {
        stk_slot_field *const field = &layout->field[id];
        if (!field->present) continue;
        field->at_bytes = at_bytes;
        field->size_bytes = stk_dtype_bytes(field->dtype);
        bool overflows = false;
        for (int d = 0; d < field->ndim; d++)
            overflows |= stk_mul_overflows(&field->size_bytes, field->size_bytes, (size_t)field->shape[d]);
        overflows |= stk_add_overflows(&at_bytes, at_bytes, field->size_bytes) || at_bytes > SIZE_MAX / 2;
        if (overflows) return stk_fail(err, STK_ERR_BUDGET, "a micro-batch is too large to address: lower batch");
        at_bytes = stk_round_up(at_bytes, STK_ALIGN_BYTES);
    }
    layout->size_bytes = at_bytes + STK_PAD_BYTES;
    return STK_OK;
}

/* --- writers --- */

static int64_t *ints(uint8_t *slot, const stk_slot_layout *layout, stk_field_id id)
{
    return layout->field[id].present ? (int64_t *)(slot + layout->field[id].at_bytes) : NULL;
}

static float *loss_mask_of(uint8_t *slot, const stk_slot_layout *layout)
{
    const stk_slot_field *const field = &layout->field[STK_FIELD_LOSS_MASK];
    return field->present ? (float *)(slot + field->at_bytes) : NULL;
}

/* Index of a sample's first token in the fields of shape [rows, row_tokens]. */
static size_t first_token(const stk_recipe *recipe, const stk_batch_form *form, const stk_recipe_sample *sample)
{
    return is_flat(form) ? sample->first_token : (size_t)sample->row * recipe->row_tokens + sample->first_token;
}

static size_t plane_tokens(const stk_recipe *recipe, const stk_batch_form *form)
{
    return (is_flat(form) ? (size_t)1 : recipe->row_count) * recipe->row_tokens;
}

static void fill(int64_t *to, int64_t value, size_t count)
{
    for (size_t i = 0; to && i < count; i++) to[i] = value;
}

/* Padding from token `at` for `count` tokens; next: the position after the sample before it. */
static void write_padding(uint8_t *slot, const stk_slot_layout *layout, const stk_recipe *recipe,
                          const stk_batch_form *form, size_t at, size_t count, int64_t next)
{
    if (count == 0) return;
    const bool hf = form->targets == STK_TARGETS_HF;
    int64_t *const attention = ints(slot, layout, STK_FIELD_ATTENTION_MASK);
    int64_t *const types = ints(slot, layout, STK_FIELD_MM_TOKEN_TYPE_IDS);
    float *const loss_mask = loss_mask_of(slot, layout);
    fill(ints(slot, layout, STK_FIELD_INPUT_IDS) + at, hf ? form->model->ids.end_of_text : 0, count);
    fill(ints(slot, layout, STK_FIELD_LABELS) + at, NO_LABEL, count);
    if (attention) fill(attention + at, 0, count);
    if (types) fill(types + at, 0, count);
    if (loss_mask) memset(loss_mask + at, 0, count * sizeof *loss_mask);

    const int planes = position_planes(form);
    for (int plane = 0; plane < (planes ? planes : 1); plane++) {
        int64_t *const positions =
            ints(slot, layout, STK_FIELD_POSITION_IDS) + (size_t)plane * plane_tokens(recipe, form) + at;
        for (size_t i = 0; i < count; i++) positions[i] = hf ? PADDED_POSITION : next + (int64_t)i;
    }
}

/* Text positions of a sample in the planes that a form has, but for the three of M-RoPE. */
static int64_t *mrope_planes(uint8_t *slot, const stk_slot_layout *layout, const stk_recipe *recipe,
                             const stk_batch_form *form, size_t at, uint32_t token_count)
{
    int64_t *positions = ints(slot, layout, STK_FIELD_POSITION_IDS) + at;
    const int planes = position_planes(form);
    if (planes == 3) return positions;
    for (uint32_t i = 0; i < token_count; i++) positions[i] = i;
    return planes == 4 ? positions + plane_tokens(recipe, form) : NULL;
}

/* One end-of-text token; or an image of one visual token between its marks, as the model has to see every image. */
static void write_filler(uint8_t *slot, const stk_slot_layout *layout, const stk_recipe *recipe,
                         const stk_batch_form *form, const stk_recipe_sample *sample, size_t at)
{
    const stk_special_ids *const special = &form->model->ids;
    const uint32_t count = sample->token_count;
    int64_t *const ids = ints(slot, layout, STK_FIELD_INPUT_IDS) + at;
    write_padding(slot, layout, recipe, form, at, count, 0);
    ids[0] = special->end_of_text;
    if (layout->field[STK_FIELD_ATTENTION_MASK].present) fill(ints(slot, layout, STK_FIELD_ATTENTION_MASK) + at, 1, count);
    stk_position_block block = {.at = 1, .t_step = 1};
    if (sample->media_count) {
        block.grid = recipe->media[sample->first_media].grid;
        ids[0] = special->vision_start;
        ids[1] = special->image_pad;
        ids[2] = special->vision_end;
        if (layout->field[STK_FIELD_MM_TOKEN_TYPE_IDS].present) ints(slot, layout, STK_FIELD_MM_TOKEN_TYPE_IDS)[at + 1] = 1;
    }
    int64_t *const planes = mrope_planes(slot, layout, recipe, form, at, count);
    if (planes)
        (void)stk_positions_write(planes, plane_tokens(recipe, form), count, &block, sample->media_count, form->model->merge);
}

/* The position at which padding goes on behind a sample ("counting on"): plain where positions are plain. */
static int64_t position_after(const stk_recipe *recipe, const stk_batch_form *form, const stk_recipe_sample *sample)
{
    if (position_planes(form) == 0) return sample->token_count;
    int64_t next = sample->token_count;
    for (uint32_t k = 0; k < sample->media_count; k++) {
        const stk_grid grid = recipe->media[sample->first_media + k].grid;
        const uint32_t rows = grid.h / form->model->merge, columns = grid.w / form->model->merge;
        next -= (int64_t)stk_grid_tokens(grid, form->model->merge) - (rows > columns ? rows : columns);
    }
    return next;
}

/* Lengths of the segments summed up: as they are, and with the padding of each to its multiple. */
static void write_bounds(uint8_t *slot, const stk_slot_layout *layout, const stk_recipe *recipe, const stk_batch_form *form)
{
    int32_t *const bounds = (int32_t *)(slot + layout->field[STK_FIELD_CU_SEQLENS].at_bytes);
    int32_t *const padded = layout->field[STK_FIELD_CU_SEQLENS_PADDED].present
                                ? (int32_t *)(slot + layout->field[STK_FIELD_CU_SEQLENS_PADDED].at_bytes)
                                : NULL;
    int32_t longest = 0, sum = 0, padded_sum = 0;
    uint32_t at = 0;
    bounds[0] = 0;
    if (padded) padded[0] = 0;
    for (uint32_t i = 0; i < recipe->sample_count; i++) {
        const stk_recipe_sample *const sample = &recipe->sample[i];
        const uint32_t end = segment_end(recipe, form, i), room = room_end(recipe, form, i);
        const int32_t lengths[2][2] = {{(int32_t)sample->token_count, (int32_t)(end - sample->first_token)},
                                       {(int32_t)(room - end), (int32_t)(room - end)}};
        for (int k = 0; k < (end < room ? 2 : 1); k++) {
            bounds[++at] = sum += lengths[k][0];
            padded_sum += lengths[k][1];
            if (padded) padded[at] = padded_sum;
            if (lengths[k][1] > longest) longest = lengths[k][1];
        }
    }
    memcpy(slot + layout->field[STK_FIELD_MAX_SEQLEN].at_bytes, &longest, sizeof longest);
}

static void write_tables(uint8_t *slot, const stk_slot_layout *layout, const stk_recipe *recipe, const stk_batch_form *form)
{
    int32_t *const offsets = (int32_t *)(slot + layout->field[STK_FIELD_IMAGE_OFFSETS].at_bytes);
    memset(offsets, 0, layout->field[STK_FIELD_IMAGE_OFFSETS].size_bytes);
    for (uint32_t i = 0; i < recipe->sample_count; i++)
        offsets[recipe->sample[i].row + 1] += (int32_t)recipe->sample[i].media_count;
    for (uint32_t row = 0; row < recipe->row_count; row++) offsets[row + 1] += offsets[row];

    int64_t *const grids = ints(slot, layout, STK_FIELD_IMAGE_GRID_THW);
    for (uint32_t k = 0; grids && k < recipe->media_count; k++) {
        grids[3 * k] = recipe->media[k].grid.t;
        grids[3 * k + 1] = recipe->media[k].grid.h;
        grids[3 * k + 2] = recipe->media[k].grid.w;
    }
    if (is_segmented(form)) write_bounds(slot, layout, recipe, form);
}

void stk_slot_prepare(uint8_t *slot, const stk_slot_layout *layout, const stk_recipe *recipe, const stk_batch_form *form)
{
    write_tables(slot, layout, recipe, form);
    for (uint32_t i = 0; i < recipe->sample_count; i++) {
        const stk_recipe_sample *const sample = &recipe->sample[i];
        const size_t at = first_token(recipe, form, sample);
        if (sample->filler) write_filler(slot, layout, recipe, form, sample, at);
        const uint32_t end = sample->first_token + sample->token_count;
        write_padding(slot, layout, recipe, form, at + sample->token_count, room_end(recipe, form, i) - end,
                      position_after(recipe, form, sample));
    }
}

/* Where the recipe's grids stand in the sample's expanded tokens.  False: the tokens are not those of the recipe. */
static bool check_tokens(const stk_recipe *recipe, const stk_recipe_sample *sample, const stk_tokens *tokens,
                         const stk_batch_form *form)
{
    if (tokens->media_count != sample->media_count) return false;
    uint64_t count = tokens->count;
    for (uint32_t k = 0; k < sample->media_count; k++)
        count += stk_grid_tokens(recipe->media[sample->first_media + k].grid, form->model->merge) - 1;
    return count == sample->token_count && tokens->supervised_count == sample->supervised_count;
}

/* Ids, types and hf labels of one sample, pads repeated by their grids. */
static void expand(int64_t *ids, int64_t *labels, int64_t *types, const stk_recipe *recipe,
                   const stk_recipe_sample *sample, const stk_tokens *tokens, const stk_batch_form *form)
{
    uint32_t to = 0, medium = 0;
    for (uint32_t from = 0; from < tokens->count; from++) {
        const bool is_pad = medium < tokens->media_count && tokens->media_at[medium] == from;
        const uint64_t repeat =
            is_pad ? stk_grid_tokens(recipe->media[sample->first_media + medium].grid, form->model->merge) : 1;
        for (uint64_t r = 0; r < repeat; r++, to++) {
            ids[to] = tokens->id[from];
            labels[to] = tokens->trained[from] ? tokens->id[from] : NO_LABEL;
            if (types) types[to] = is_pad;
        }
        medium += is_pad;
    }
}

static void shift_labels(int64_t *labels, float *loss_mask, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        labels[i] = i + 1 < count ? labels[i + 1] : NO_LABEL;
        loss_mask[i] = labels[i] != NO_LABEL;
    }
}

/* The text between media and the media themselves, a block at a time, so that no list of blocks is needed. */
static void write_mrope(int64_t *planes, const stk_recipe *recipe, const stk_recipe_sample *sample,
                        const stk_tokens *tokens, const stk_batch_form *form, size_t stride)
{
    int64_t base = 0;
    uint32_t at = 0, grown = 0; /* grown: tokens that pads became beyond one */
    for (uint32_t k = 0; k <= sample->media_count; k++) {
        stk_position_block block = {.t_step = 1};
        uint32_t end = sample->token_count;
        if (k < sample->media_count) {
            block.grid = recipe->media[sample->first_media + k].grid;
            block.at = tokens->media_at[k] + grown - at;
            const uint32_t pads = (uint32_t)stk_grid_tokens(block.grid, form->model->merge);
            end = at + block.at + pads;
            grown += pads - 1;
        }
        const int64_t next = stk_positions_write(planes + at, stride, end - at, &block, k < sample->media_count,
                                                 form->model->merge);
        for (int plane = 0; base && plane < 3; plane++)
            for (uint32_t i = at; i < end; i++) planes[(size_t)plane * stride + i] += base;
        base += next;
        at = end;
    }
}

stk_status stk_slot_place(uint8_t *slot, const stk_slot_layout *layout, const stk_recipe *recipe,
                          const stk_batch_form *form, uint32_t sample_index, const stk_tokens *tokens, stk_error *err)
{
    const stk_recipe_sample *const sample = &recipe->sample[sample_index];
    if (!check_tokens(recipe, sample, tokens, form))
        return stk_fail(err, STK_ERR_INDEX,
                        "the record gives %u tokens and %u media, and the index planned something else: the data changed "
                        "since it was indexed",
                        tokens->count, tokens->media_count);
    const size_t at = first_token(recipe, form, sample);
    int64_t *const types = ints(slot, layout, STK_FIELD_MM_TOKEN_TYPE_IDS);
    int64_t *const labels = ints(slot, layout, STK_FIELD_LABELS) + at;
    expand(ints(slot, layout, STK_FIELD_INPUT_IDS) + at, labels, types ? types + at : NULL, recipe, sample, tokens, form);
    if (form->targets == STK_TARGETS_SHIFTED)
        shift_labels(labels, loss_mask_of(slot, layout) + at, sample->token_count);
    int64_t *const attention = ints(slot, layout, STK_FIELD_ATTENTION_MASK);
    if (attention) fill(attention + at, 1, sample->token_count);
    int64_t *const planes = mrope_planes(slot, layout, recipe, form, at, sample->token_count);
    if (planes) write_mrope(planes, recipe, sample, tokens, form, plane_tokens(recipe, form));
    return STK_OK;
}

void *stk_slot_patches(uint8_t *slot, const stk_slot_layout *layout, const stk_recipe *recipe, uint32_t media_at)
{
    const stk_field_id id = layout->field[STK_FIELD_PIXEL_BYTES].present ? STK_FIELD_PIXEL_BYTES : STK_FIELD_PIXEL_VALUES;
    const stk_slot_field *const field = &layout->field[id];
    const size_t patch_bytes = field->size_bytes / (size_t)field->shape[0];
    return slot + field->at_bytes + recipe->media[media_at].first_patch * patch_bytes;
}

void stk_slot_mask(uint8_t *slot, const stk_slot_layout *layout, const stk_recipe *recipe, const stk_batch_form *form,
                   uint32_t sample_index)
{
    const stk_recipe_sample *const sample = &recipe->sample[sample_index];
    const size_t at = first_token(recipe, form, sample);
    float *const loss_mask = loss_mask_of(slot, layout);
    fill(ints(slot, layout, STK_FIELD_LABELS) + at, NO_LABEL, sample->token_count);
    if (loss_mask) memset(loss_mask + at, 0, sample->token_count * sizeof *loss_mask);
}
