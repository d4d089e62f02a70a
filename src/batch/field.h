/* field.h - the fields that a batch may have.
 *
 * Not here: which of them it has, and where they lie (slot.h). */
#ifndef STK_BATCH_FIELD_H
#define STK_BATCH_FIELD_H

#include <stoker/batch.h>

#include "base/error.h"

/* In the order of their names: digests and listings go through them as they stand. */
typedef enum stk_field_id {
    STK_FIELD_ATTENTION_MASK,
    STK_FIELD_CU_SEQLENS,
    STK_FIELD_CU_SEQLENS_PADDED,
    STK_FIELD_IMAGE_GRID_THW,
    STK_FIELD_IMAGE_OFFSETS,
    STK_FIELD_INPUT_IDS,
    STK_FIELD_LABELS,
    STK_FIELD_LOSS_MASK,
    STK_FIELD_MAX_SEQLEN,
    STK_FIELD_MM_TOKEN_TYPE_IDS,
    STK_FIELD_PIXEL_BYTES,
    STK_FIELD_PIXEL_VALUES,
    STK_FIELD_POSITION_IDS,
    STK_FIELD_COUNT
} stk_field_id;

const char *stk_field_name(stk_field_id id);
/* Which fields a caller names (names NULL: all).  Failure: STK_ERR_USAGE. */
stk_status stk_fields_find(bool wanted[STK_FIELD_COUNT], const char *const *names, uint32_t count, stk_error *err) STK_MUST_USE;

#endif
