/* kernels.c - the inner loops in plain C: the reference for all others. */
#include "image/kernels.h"

static void split_c(uint8_t *r, uint8_t *g, uint8_t *b, const uint8_t *rgb, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        r[i] = rgb[3 * i];
        g[i] = rgb[3 * i + 1];
        b[i] = rgb[3 * i + 2];
    }
}

static int32_t weight_at(const stk_axis *axis, size_t at)
{
    return axis->fine ? axis->weight[at] * (1 << STK_AXIS_LOW_BITS) + axis->low[at] : axis->weight[at];
}

static void along_c(uint8_t *const *dst, const uint8_t *const *src, uint32_t plane_count,
                    const stk_axis *axis)
{
    const int32_t half = 1 << (axis->precision - 1);
    for (uint32_t i = 0; i < axis->target_px; i++) {
        const size_t at = (size_t)i * axis->tap_count;
        for (uint32_t p = 0; p < plane_count; p++) {
            const uint8_t *const source = src[p] + axis->first[i];
            int32_t sum = half;
            for (uint32_t j = 0; j < axis->count[i]; j++) sum += source[j] * weight_at(axis, at + j);
            dst[p][i] = stk_clamp_u8(sum >> axis->precision);
        }
    }
}

static void across_c(uint8_t *dst, const uint8_t *const *row, const stk_axis *axis, uint32_t target,
                     size_t length)
{
    const int32_t half = 1 << (axis->precision - 1);
    const size_t at = (size_t)target * axis->tap_count;
    for (size_t x = 0; x < length; x++) {
        int32_t sum = half;
        for (uint32_t j = 0; j < axis->count[target]; j++) sum += row[j][x] * weight_at(axis, at + j);
        dst[x] = stk_clamp_u8(sum >> axis->precision);
    }
}

static void patch_u8_c(void *patch, const uint8_t *const *plane, size_t stride_bytes,
                       const stk_patch_rule *rule)
{
    uint8_t *out = patch;
    for (uint32_t ch = 0; ch < 3; ch++) {
        for (uint32_t y = 0; y < rule->side_px; y++, out += rule->side_px) {
            memcpy(out, plane[ch] + y * stride_bytes, rule->side_px);
        }
    }
}

static void patch_f32_c(void *patch, const uint8_t *const *plane, size_t stride_bytes,
                        const stk_patch_rule *rule)
{
    float *out = patch;
    for (uint32_t ch = 0; ch < 3; ch++) {
        for (uint32_t t = 0; t < rule->temporal; t++) {
            for (uint32_t y = 0; y < rule->side_px; y++) {
                const uint8_t *const row = plane[ch] + y * stride_bytes;
                for (uint32_t x = 0; x < rule->side_px; x++) *out++ = rule->f32[ch][row[x]];
            }
        }
    }
}

static void patch_bf16_c(void *patch, const uint8_t *const *plane, size_t stride_bytes,
                         const stk_patch_rule *rule)
{
    uint16_t *out = patch;
    for (uint32_t ch = 0; ch < 3; ch++) {
        for (uint32_t t = 0; t < rule->temporal; t++) {
            for (uint32_t y = 0; y < rule->side_px; y++) {
                const uint8_t *const row = plane[ch] + y * stride_bytes;
                for (uint32_t x = 0; x < rule->side_px; x++) *out++ = rule->bf16[ch][row[x]];
            }
        }
    }
}

static void turn_c(uint8_t *dst, size_t dst_stride, const uint8_t *src, size_t src_stride, uint32_t side)
{
    for (uint32_t y = 0; y < side; y++) {
        for (uint32_t x = 0; x < side; x++) dst[y * dst_stride + x] = src[x * src_stride + y];
    }
}

static uint16_t to_bf16(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

void stk_patch_rule_init(stk_patch_rule *rule, const double mean[3], const double deviation[3], bool by_table)
{
    static const double rescale = 0.00392156862745098; /* of preprocessor_config.json; 1 / 255 */
    rule->by_table = by_table;
    for (int ch = 0; ch < 3; ch++) {
        rule->mean[ch] = (float)mean[ch] * 255.0f;
        rule->deviation[ch] = (float)deviation[ch] * 255.0f;
        for (int x = 0; x < 256; x++) {
            rule->f32[ch][x] = by_table ? ((float)((double)x * rescale) - (float)mean[ch]) / (float)deviation[ch]
                                        : ((float)x - rule->mean[ch]) / rule->deviation[ch];
            rule->bf16[ch][x] = to_bf16(rule->f32[ch][x]);
        }
    }
}

void stk_image_kernels_init(stk_image_kernels *k, const stk_patch_rule *rule, bool fine, stk_cpu_level level)
{
    *k = (stk_image_kernels){.split = split_c, .along = along_c, .across = across_c, .turn = turn_c};
    k->patch = rule->form == STK_PIXELS_UINT8     ? patch_u8_c
               : rule->form == STK_PIXELS_FLOAT32 ? patch_f32_c
                                                  : patch_bf16_c;
#if defined(__x86_64__)
    if (level >= STK_CPU_AVX2) stk_image_kernels_init_avx2(k, rule, fine);
#else
    (void)fine;
    (void)level;
#endif
}
