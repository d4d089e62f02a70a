/* digest.c - the digests of interface.md: of a micro-batch over its fields, of a row over its samples.
 *
 * A field: name, NUL, dtype name, NUL, the number of dimensions and the dimensions as little-endian int64, then the
 * bytes in C order.  XXH3-128 in canonical form. */
#define XXH_INLINE_ALL /* for a streaming state on the stack */
#include <xxhash.h>

#include <endian.h>

#include "batch/batch_object.h"

static void add_header(XXH3_state_t *state, const char *name, stk_dtype dtype, int ndim, const int64_t *shape)
{
    XXH3_128bits_update(state, name, strlen(name) + 1);
    XXH3_128bits_update(state, stk_dtype_name(dtype), strlen(stk_dtype_name(dtype)) + 1);
    const uint64_t dimensions = htole64((uint64_t)ndim);
    XXH3_128bits_update(state, &dimensions, sizeof dimensions);
    for (int d = 0; d < ndim; d++) {
        const uint64_t side = htole64((uint64_t)shape[d]);
        XXH3_128bits_update(state, &side, sizeof side);
    }
}

static void finish(XXH3_state_t *state, uint8_t digest[16])
{
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(state));
    memcpy(digest, canonical.digest, 16);
}

void stk_batch_digest(const stk_batch *batch, uint8_t digest[16])
{
    XXH3_state_t state;
    XXH3_128bits_reset(&state);
    for (int id = 0; id < STK_FIELD_COUNT; id++) {
        const stk_slot_field *const field = &batch->layout.field[id];
        if (!field->present) continue;
        add_header(&state, stk_field_name((stk_field_id)id), field->dtype, field->ndim, field->shape);
        XXH3_128bits_update(&state, batch->slot + field->at_bytes, field->size_bytes);
    }
    finish(&state, digest);
}

/* --- rows --- */

static const int64_t *ints_of(const stk_batch *batch, stk_field_id id)
{
    return (const int64_t *)(batch->slot + batch->layout.field[id].at_bytes);
}

/* The labels as hf: shifted ones are moved back; nothing predicts a sample's first token. */
static void add_labels(XXH3_state_t *state, const int64_t *labels, int64_t count, bool shifted)
{
    add_header(state, "labels", STK_INT64, 1, &count);
    const int64_t none = -100;
    if (shifted) {
        XXH3_128bits_update(state, &none, sizeof none);
        XXH3_128bits_update(state, labels, (size_t)(count - 1) * sizeof *labels);
    } else {
        XXH3_128bits_update(state, labels, (size_t)count * sizeof *labels);
    }
}

/* The three planes of M-RoPE, whichever form holds them. */
static void add_positions(XXH3_state_t *state, const stk_batch *batch, const stk_recipe_sample *sample, size_t at)
{
    const stk_slot_field *const field = &batch->layout.field[STK_FIELD_POSITION_IDS];
    const int64_t shape[2] = {3, sample->token_count};
    add_header(state, "position_ids", STK_INT64, 2, shape);
    const size_t plane = field->ndim == 3 ? (size_t)(field->shape[1] * field->shape[2]) : 0;
    const int64_t *const first = ints_of(batch, STK_FIELD_POSITION_IDS) + at + (field->shape[0] == 4 ? plane : 0);
    for (size_t p = 0; p < 3; p++)
        XXH3_128bits_update(state, first + p * plane, sample->token_count * sizeof *first);
}

static void add_sample(XXH3_state_t *state, const stk_batch *batch, const stk_recipe_sample *sample)
{
    const stk_recipe *const recipe = &batch->recipe;
    const bool flat = batch->home->form->layout == STK_LAYOUT_FLAT;
    const size_t at = (flat ? 0 : (size_t)sample->row * recipe->row_tokens) + sample->first_token;
    const int64_t count = sample->token_count;

    add_header(state, "input_ids", STK_INT64, 1, &count);
    XXH3_128bits_update(state, ints_of(batch, STK_FIELD_INPUT_IDS) + at, (size_t)count * sizeof(int64_t));
    add_labels(state, ints_of(batch, STK_FIELD_LABELS) + at, count, batch->home->form->targets == STK_TARGETS_SHIFTED);
    add_positions(state, batch, sample, at);
    if (sample->media_count == 0) return;

    const int64_t grid_shape[2] = {sample->media_count, 3};
    add_header(state, "image_grid_thw", STK_INT64, 2, grid_shape);
    XXH3_128bits_update(state, ints_of(batch, STK_FIELD_IMAGE_GRID_THW) + 3 * (size_t)sample->first_media,
                        3 * sizeof(int64_t) * sample->media_count);
    const stk_slot_field *const pixels = &batch->layout.field[STK_FIELD_PIXEL_BYTES];
    const stk_recipe_media *const first = &recipe->media[sample->first_media], *const last = first + sample->media_count - 1;
    const uint64_t patches = last->first_patch + stk_grid_patches(last->grid) - first->first_patch;
    const int64_t pixel_shape[2] = {(int64_t)patches, pixels->shape[1]};
    add_header(state, "pixel_bytes", STK_UINT8, 2, pixel_shape);
    XXH3_128bits_update(state, batch->slot + pixels->at_bytes + first->first_patch * (size_t)pixels->shape[1],
                        patches * (size_t)pixels->shape[1]);
}

stk_status stk_batch_row_digests(const stk_batch *batch, uint8_t (*digest)[16], size_t *count, stk_error *err)
{
    const size_t room = *count;
    *count = 0;
    if (batch->home->form->pixels != STK_PIXELS_UINT8)
        return stk_fail(err, STK_ERR_USAGE, "row digests are over pixel_bytes: use pixels: uint8");
    if (batch->layout.field[STK_FIELD_POSITION_IDS].ndim != 3)
        return stk_fail(err, STK_ERR_USAGE,
                        "row digests are over M-RoPE positions: use positions: auto with targets: hf or layout: flat or packed, or positions: mrope");
    const stk_recipe *const recipe = &batch->recipe;
    for (uint32_t i = 0; i < recipe->sample_count;) {
        const uint32_t row = recipe->sample[i].row;
        XXH3_state_t state;
        XXH3_128bits_reset(&state);
        bool filler = true;
        for (; i < recipe->sample_count && recipe->sample[i].row == row; i++) {
            if (recipe->sample[i].filler) continue;
            filler = false;
            add_sample(&state, batch, &recipe->sample[i]);
        }
        if (filler) continue;
        if (*count == room) return stk_fail(err, STK_ERR_USAGE, "more than %zu rows: give more room", room);
        finish(&state, digest[(*count)++]);
    }
    return STK_OK;
}
