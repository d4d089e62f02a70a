/* bench_kernels.c - the image module for compare_images.py, which calls it in its own process through ctypes.
 *
 * One thread, one image a call; the output goes round a ring of memory that was touched before, as batches do. */
#include <setjmp.h>
#include <stdio.h> /* before jpeglib.h, which needs it */

#include <jpeglib.h>

#include "image/image.h"

STK_API int bench_open(const char *pixels, char *message, size_t capacity);
STK_API long bench_patches(const uint8_t *data, size_t size, uint64_t min_px, uint64_t max_px, char *message, size_t capacity);
STK_API const uint8_t *bench_last(size_t *size);
STK_API long bench_bare_decode(const uint8_t *data, size_t size);

enum { RING_BYTES = 512 << 20, IMAGE_BYTES_MAX = 256 << 20 };

static const stk_model model = {.patch_px = 16, .merge = 2, .temporal = 2, .image_mean = {0.5, 0.5, 0.5}, .image_std = {0.5, 0.5, 0.5}};
static stk_limits limits;
static stk_image_spec *spec;
static stk_image_scratch *scratch;
static uint8_t *ring, *decoded;
static size_t ring_at, last_bytes;

int bench_open(const char *pixels, char *message, size_t capacity)
{
    stk_error err = {0};
    limits = STK_LIMITS_DEFAULT;
    const stk_pixel_form form = strcmp(pixels, "float32") == 0 ? STK_PIXELS_FLOAT32 : STK_PIXELS_UINT8;
    stk_image_scratch_destroy(scratch);
    stk_image_spec_destroy(spec);
    stk_status status = stk_image_spec_create(&spec, &model, STK_PROFILE_HF, form, &limits, stk_cpu_detect(), &err);
    if (status == STK_OK) status = stk_image_scratch_create(&scratch, spec, &err);
    if (!ring) ring = stk_alloc(STK_TAG_ARENA, RING_BYTES);
    if (!decoded) decoded = stk_alloc(STK_TAG_ARENA, IMAGE_BYTES_MAX);
    snprintf(message, capacity, "%s", err.message);
    return status;
}

/* Bytes written, or a negative status. */
long bench_patches(const uint8_t *data, size_t size, uint64_t min_px, uint64_t max_px, char *message, size_t capacity)
{
    stk_error err = {0};
    stk_image_info info;
    stk_reason reason;
    uint32_t width_px, height_px;
    const stk_bytes bytes = {data, size};
    stk_status status = stk_image_probe(&info, &reason, bytes, size, &limits, &err);
    const bool swaps = status == STK_OK && stk_orientation_swaps(info.orientation);
    if (status == STK_OK)
        status = stk_image_target(&width_px, &height_px, &reason, swaps ? info.height_px : info.width_px,
                                  swaps ? info.width_px : info.height_px, stk_model_factor(&model), min_px, max_px, STK_PROFILE_HF, &err);
    if (status == STK_OK) {
        last_bytes = (size_t)(width_px / model.patch_px) * (height_px / model.patch_px) * stk_image_patch_bytes(spec);
        if (ring_at + last_bytes > RING_BYTES) ring_at = 0;
        status = stk_image_patches(ring + ring_at, spec, scratch, bytes, &info, info.orientation, STK_ALPHA_DROP, width_px, height_px, NULL,
                                   &reason, &err);
    }
    snprintf(message, capacity, "%s", err.message);
    if (status < 0) return status;
    ring_at = stk_round_up(ring_at + last_bytes, STK_ALIGN_BYTES);
    return (long)last_bytes;
}

/* What the last bench_patches wrote. */
const uint8_t *bench_last(size_t *size)
{
    *size = last_bytes;
    return ring + ring_at - stk_round_up(last_bytes, STK_ALIGN_BYTES);
}

static jmp_buf failed;
static void give_up(j_common_ptr c)
{
    (void)c;
    longjmp(failed, 1);
}

/* The limit that we are compared with: libjpeg-turbo to RGB with its defaults, into warm memory.  Bytes, or -1. */
long bench_bare_decode(const uint8_t *data, size_t size)
{
    struct jpeg_decompress_struct c;
    struct jpeg_error_mgr error;
    c.err = jpeg_std_error(&error);
    error.error_exit = give_up;
    jpeg_create_decompress(&c);
    if (setjmp(failed)) {
        jpeg_destroy_decompress(&c);
        return -1;
    }
    jpeg_mem_src(&c, data, size);
    jpeg_read_header(&c, TRUE);
    c.out_color_space = JCS_RGB;
    jpeg_start_decompress(&c);
    const size_t row_bytes = (size_t)c.output_width * 3;
    while (c.output_scanline < c.output_height) {
        JSAMPROW rows[8];
        for (int i = 0; i < 8; i++) rows[i] = decoded + (size_t)(c.output_scanline + (JDIMENSION)i) * row_bytes;
        jpeg_read_scanlines(&c, rows, 8);
    }
    const long bytes = (long)(row_bytes * c.output_height);
    jpeg_finish_decompress(&c);
    jpeg_destroy_decompress(&c);
    return bytes;
}
