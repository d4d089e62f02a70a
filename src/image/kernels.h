/* kernels.h - the inner loops: a plain C version of each, and faster ones that equal it bit for bit (style.md
 * 10).
 *
 * All work on planes of bytes.  Rows may be read and written up to STK_PAD_BYTES past their end. */
#ifndef STK_IMAGE_KERNELS_H
#define STK_IMAGE_KERNELS_H

#include "base/cpu.h"
#include "image/axis.h"
#include "schema/rules.h"

/* r[i], g[i], b[i] = rgb[3 i], rgb[3 i + 1], rgb[3 i + 2] for i < count. */
typedef void stk_split_fn(uint8_t *r, uint8_t *g, uint8_t *b, const uint8_t *rgb, size_t count);

/* Resize one row of planes along its length: dst[p] gets axis->target_px bytes from the axis->source_px of
 * src[p]. */
typedef void stk_along_fn(uint8_t *const *dst, const uint8_t *const *src, uint32_t plane_count,
                          const stk_axis *axis);

/* Resize across rows: dst[x] for x < length from the axis->count[target] rows of that target (section 2.2, step 9). */
typedef void stk_across_fn(uint8_t *dst, const uint8_t *const *row, const stk_axis *axis, uint32_t target,
                           size_t length);

/* How the bytes of a patch become its final form: value = (byte - mean) / deviation, all in float32
 * (section 1.5). */
typedef struct stk_patch_rule {
    stk_pixel_form form;
    uint32_t side_px, temporal;  /* P and Tp */
    bool by_table;               /* the table is not that quotient: Pillow's processor scales first (section 1.6) */
    float mean[3], deviation[3]; /* of bytes: 255 times the checkpoint's */
    float f32[3][256];           /* the final value of each byte */
    uint16_t bf16[3][256];       /* rounded to nearest even */
} stk_patch_rule;

/* Write one patch: from P rows of P bytes in each of three planes (which may be one and the same). */
typedef void stk_patch_fn(void *patch, const uint8_t *const *plane, size_t stride_bytes,
                          const stk_patch_rule *rule);

/* dst[y * dst_stride + x] = src[x * src_stride + y] for a square of side bytes. */
typedef void stk_turn_fn(uint8_t *dst, size_t dst_stride, const uint8_t *src, size_t src_stride,
                         uint32_t side);

typedef struct stk_image_kernels {
    stk_split_fn *split;
    stk_along_fn *along;
    stk_across_fn *across;
    stk_patch_fn *patch;
    stk_turn_fn *turn;
} stk_image_kernels;

/* The fastest of a level for this form and patch size.  fine: for axes that are. */
void stk_image_kernels_init(stk_image_kernels *k, const stk_patch_rule *rule, bool fine, stk_cpu_level level);

/* kernels_avx2.c: replaces what it has.  Only with a CPU of that level. */
void stk_image_kernels_init_avx2(stk_image_kernels *k, const stk_patch_rule *rule, bool fine);

/* Fill mean, deviation and the tables; what else stands in the rule is given. */
void stk_patch_rule_init(stk_patch_rule *rule, const double mean[3], const double deviation[3], bool by_table);

static inline uint8_t stk_clamp_u8(int32_t value)
{
    return value < 0 ? 0 : value > 255 ? 255 : (uint8_t)value;
}

#endif
