/* field.c - the names of fields, and the names and sizes of what stands in them. */
#include "batch/field.h"

#include <string.h>

const char *stk_dtype_name(stk_dtype dtype)
{
    static const char *const names[] = {"uint8", "int32", "int64", "float32", "bfloat16"};
    return names[dtype];
}

size_t stk_dtype_bytes(stk_dtype dtype)
{
    static const size_t sizes[] = {1, 4, 8, 4, 2};
    return sizes[dtype];
}

static const char *const field_names[STK_FIELD_COUNT] = {
    [STK_FIELD_ATTENTION_MASK] = "attention_mask", [STK_FIELD_CU_SEQLENS] = "cu_seqlens",
    [STK_FIELD_CU_SEQLENS_PADDED] = "cu_seqlens_padded",
    [STK_FIELD_IMAGE_GRID_THW] = "image_grid_thw", [STK_FIELD_IMAGE_OFFSETS] = "image_offsets",
    [STK_FIELD_INPUT_IDS] = "input_ids",           [STK_FIELD_LABELS] = "labels",
    [STK_FIELD_LOSS_MASK] = "loss_mask",           [STK_FIELD_MAX_SEQLEN] = "max_seqlen",
    [STK_FIELD_MM_TOKEN_TYPE_IDS] = "mm_token_type_ids", [STK_FIELD_PIXEL_BYTES] = "pixel_bytes",
    [STK_FIELD_PIXEL_VALUES] = "pixel_values",     [STK_FIELD_POSITION_IDS] = "position_ids",
};

const char *stk_field_name(stk_field_id id)
{
    return field_names[id];
}

stk_status stk_fields_find(bool wanted[STK_FIELD_COUNT], const char *const *names, uint32_t count, stk_error *err)
{
    for (int id = 0; id < STK_FIELD_COUNT; id++) wanted[id] = names == NULL;
    for (uint32_t i = 0; names && i < count; i++) {
        int id = 0;
        while (id < STK_FIELD_COUNT && strcmp(stk_field_name((stk_field_id)id), names[i]) != 0) id++;
        if (id == STK_FIELD_COUNT) return stk_fail(err, STK_ERR_USAGE, "\"%.60s\" is no field of a batch: docs/fields.md lists them", names[i]);
        wanted[id] = true;
    }
    return STK_OK;
}
