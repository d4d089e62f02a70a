/* slot.h - the memory of one micro-batch: which fields it has, where they lie, and how they are filled.
 *
 * The layout follows from the recipe alone, so a slot has exactly its planned size before anything is decoded.  Each
 * byte has one writer: stk_slot_prepare writes what belongs to no sample (padding, filler, offsets, grids),
 * stk_slot_place what belongs to one sample; patches are written by the image module through stk_slot_patches.
 * Different samples of a slot may be placed from different threads.
 *
 * Fields, dtypes and shapes: docs/fields.md.  Values: spec-qwen3vl.md sections 1.7, 5, 6. */
#ifndef STK_BATCH_SLOT_H
#define STK_BATCH_SLOT_H

#include "batch/field.h"
#include "schema/recipe.h"
#include "schema/tokens.h"

/* What the batches of a run look like; const. */
typedef struct stk_batch_form {
    stk_layout layout;
    stk_targets targets;
    stk_positions positions;
    stk_pixel_form pixels;
    const stk_model *model;
} stk_batch_form;

typedef struct stk_slot_field {
    bool present;
    stk_dtype dtype;
    int ndim;
    int64_t shape[STK_MAX_DIMS];
    size_t at_bytes; /* in the slot, a multiple of STK_ALIGN_BYTES */
    size_t size_bytes;
} stk_slot_field;

typedef struct stk_slot_layout {
    stk_slot_field field[STK_FIELD_COUNT];
    size_t size_bytes; /* of the slot, a multiple of STK_ALIGN_BYTES, STK_PAD_BYTES at its end included */
} stk_slot_layout;

/* Bytes of one patch in the form. */
size_t stk_form_patch_bytes(const stk_batch_form *form);

/* Failure: STK_ERR_BUDGET when the size overflows. */
stk_status stk_slot_layout_init(stk_slot_layout *layout, const stk_recipe *recipe, const stk_batch_form *form,
                                stk_error *err) STK_MUST_USE;

/* Write all that belongs to no sample.  slot: layout->size_bytes, 64-byte aligned, need not be zeroed. */
void stk_slot_prepare(uint8_t *slot, const stk_slot_layout *layout, const stk_recipe *recipe, const stk_batch_form *form);

/* Write ids, labels, types and positions of one sample that is not filler.
 * Failure: STK_ERR_INDEX when the tokens are not what the recipe planned (the data changed under the index). */
stk_status stk_slot_place(uint8_t *slot, const stk_slot_layout *layout, const stk_recipe *recipe,
                          const stk_batch_form *form, uint32_t sample_index, const stk_tokens *tokens,
                          stk_error *err) STK_MUST_USE;

/* Where the patches of a medium of the recipe go.  Those of a filler image are whoever prepares the slot's to write. */
void *stk_slot_patches(uint8_t *slot, const stk_slot_layout *layout, const stk_recipe *recipe, uint32_t media_at);

/* Take away the labels of a placed sample (mask it): architecture section 7. */
void stk_slot_mask(uint8_t *slot, const stk_slot_layout *layout, const stk_recipe *recipe, const stk_batch_form *form,
                   uint32_t sample_index);

#endif
