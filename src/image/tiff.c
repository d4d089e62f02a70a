/* tiff.c - TIFF pictures: named, and refused. */
#include "image/codec.h"

size_t stk_tiff_state_bytes(void)
{
    return sizeof(stk_codec);
}

stk_status stk_tiff_probe(stk_header *header, stk_reason *reason, stk_bytes bytes, uint64_t total_bytes,
                         const stk_limits *limits, stk_error *err)
{
    return stk_image_unsupported(reason, err, "TIFF is not supported: convert it to PNG, JPEG or WebP");
}

stk_status stk_tiff_open(stk_codec **out, void *state, uint8_t *band, stk_bytes bytes, const stk_image_info *info,
                        stk_alpha_rule alpha, const stk_limits *limits, stk_reason *reason, stk_error *err)
{
    *out = NULL;
    return stk_image_unsupported(reason, err, "TIFF is not supported: convert it to PNG, JPEG or WebP");
}
