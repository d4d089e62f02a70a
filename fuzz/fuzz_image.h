/* fuzz_image.h - one picture through probe and decode, small targets: what fuzz_jpeg, fuzz_png and fuzz_webp
 * share. */
#ifndef STK_FUZZ_IMAGE_H
#define STK_FUZZ_IMAGE_H

#include <stdint.h>
#include <stdlib.h>

#include "image/image.h"

/* A million pixels: enough for every branch, small enough for speed. */
static const stk_limits fuzz_limits = {.media_bytes = 1 << 20, .media_px = 1 << 20, .jpeg_scans = 20};

static inline int fuzz_image(const uint8_t *data, size_t size, stk_media_format format)
{
    static const stk_model model = {.patch_px = 16,
                                    .merge = 2,
                                    .temporal = 2,
                                    .image_mean = {0.5, 0.5, 0.5},
                                    .image_std = {0.5, 0.5, 0.5}};
    static stk_image_spec *spec;
    static stk_image_scratch *scratch;
    static uint8_t *patches;
    enum {
        MAX_PX = 64 * 64,
        PATCHES_BYTES = 400 * 32 * 32 * 3
    }; /* a ratio of 200, each side clamped to 32 */
    stk_error err;
    if (!spec) {
        if (stk_image_spec_create(&spec, &model, STK_PROFILE_HF, STK_PIXELS_UINT8, &fuzz_limits, stk_cpu_detect(), &err) < 0)
            abort();
        if (stk_image_scratch_create(&scratch, spec, &err) < 0) abort();
        patches = stk_alloc(STK_TAG_BATCH, PATCHES_BYTES);
        if (!patches) abort();
    }
    const stk_bytes bytes = {data, size};
    stk_image_info part, info;
    stk_reason reason;
    /* A prefix may know less, never something else. */
    const stk_status early =
        stk_image_probe(&part, &reason, (stk_bytes){data, size / 2}, size, &fuzz_limits, &err);
    if (stk_image_probe(&info, &reason, bytes, size, &fuzz_limits, &err) != STK_OK) return 0;
    if (early < 0) abort();
    if (early == STK_OK && (part.width_px != info.width_px || part.height_px != info.height_px ||
                            part.orientation != info.orientation))
        abort();
    if (info.orientation < 1 || info.orientation > 8 || info.format != format) return 0;

    uint32_t width_px, height_px;
    const int swaps = stk_orientation_swaps(info.orientation);
    if (stk_image_target(&width_px, &height_px, &reason, swaps ? info.height_px : info.width_px,
                         swaps ? info.width_px : info.height_px, stk_model_factor(&model), 0, MAX_PX,
                         STK_PROFILE_HF, &err) < 0)
        return 0;
    if ((size_t)width_px * height_px * 3 > PATCHES_BYTES) abort();
    if (stk_image_patches(patches, spec, scratch, bytes, &info, info.orientation, STK_ALPHA_DROP, width_px, height_px, NULL,
                          &reason, &err) < 0 &&
        !err.message[0])
        abort();
    return 0;
}

#endif
