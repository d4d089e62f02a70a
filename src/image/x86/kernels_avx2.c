/* kernels_avx2.c - the inner loops for CPUs with AVX2.
 *
 * Sums stay exact in 32 bits: pmaddwd adds two products of a byte and a 16-bit weight, and packing saturates
 * as the clamp of the plain version does. */
#include "image/kernels.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define AVX2 __attribute__((target("avx2")))

/* --- split --- */

/* From 48 bytes of pixels the 16 of channel ch: each third of the pixels gives some of them. */
AVX2 static __m128i pick(__m128i a, __m128i b, __m128i c, const int8_t mask[3][16])
{
    return _mm_or_si128(_mm_shuffle_epi8(a, _mm_loadu_si128((const __m128i *)mask[0])),
                        _mm_or_si128(_mm_shuffle_epi8(b, _mm_loadu_si128((const __m128i *)mask[1])),
                                     _mm_shuffle_epi8(c, _mm_loadu_si128((const __m128i *)mask[2]))));
}

AVX2 static void split_avx2(uint8_t *r, uint8_t *g, uint8_t *b, const uint8_t *rgb, size_t count)
{
    enum { N = -1 };
    static const int8_t mask[3][3][16] = {
        {{0, 3, 6, 9, 12, 15, N, N, N, N, N, N, N, N, N, N},
         {N, N, N, N, N, N, 2, 5, 8, 11, 14, N, N, N, N, N},
         {N, N, N, N, N, N, N, N, N, N, N, 1, 4, 7, 10, 13}},
        {{1, 4, 7, 10, 13, N, N, N, N, N, N, N, N, N, N, N},
         {N, N, N, N, N, 0, 3, 6, 9, 12, 15, N, N, N, N, N},
         {N, N, N, N, N, N, N, N, N, N, N, 2, 5, 8, 11, 14}},
        {{2, 5, 8, 11, 14, N, N, N, N, N, N, N, N, N, N, N},
         {N, N, N, N, N, 1, 4, 7, 10, 13, N, N, N, N, N, N},
         {N, N, N, N, N, N, N, N, N, N, 0, 3, 6, 9, 12, 15}},
    };
    size_t i = 0;
    for (; i + 16 <= count; i += 16) {
        const __m128i x = _mm_loadu_si128((const __m128i *)(rgb + 3 * i));
        const __m128i y = _mm_loadu_si128((const __m128i *)(rgb + 3 * i + 16));
        const __m128i z = _mm_loadu_si128((const __m128i *)(rgb + 3 * i + 32));
        _mm_storeu_si128((__m128i *)(r + i), pick(x, y, z, mask[0]));
        _mm_storeu_si128((__m128i *)(g + i), pick(x, y, z, mask[1]));
        _mm_storeu_si128((__m128i *)(b + i), pick(x, y, z, mask[2]));
    }
    for (; i < count; i++) {
        r[i] = rgb[3 * i];
        g[i] = rgb[3 * i + 1];
        b[i] = rgb[3 * i + 2];
    }
}

/* --- along --- */

/* Each of these comes in two: `fine` is a constant where it is called, so that the compiler makes one of 16-bit
 * weights and one of 32-bit weights in two parts, whose sums are joined at the end. */
#define TWICE static inline __attribute__((always_inline, target("avx2")))

TWICE __m256i join(__m256i sum, __m256i low, bool fine)
{
    return fine ? _mm256_add_epi32(_mm256_slli_epi32(sum, STK_AXIS_LOW_BITS), low) : sum;
}

AVX2 static int32_t sum_of_lanes(__m256i sum)
{
    __m128i s = _mm_add_epi32(_mm256_castsi256_si128(sum), _mm256_extracti128_si256(sum, 1));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4e));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0xb1));
    return _mm_cvtsi128_si32(s);
}

/* Many taps a target: 16 at a time, then their sum. */
TWICE void along_wide(uint8_t *const *dst, const uint8_t *const *src, uint32_t plane_count,
                      const stk_axis *axis, bool fine)
{
    const int32_t half = 1 << (axis->precision - 1);
    for (uint32_t i = 0; i < axis->target_px; i++) {
        const size_t at = (size_t)i * axis->tap_count;
        for (uint32_t p = 0; p < plane_count; p++) {
            const uint8_t *const source = src[p] + axis->first[i];
            __m256i sum = _mm256_setzero_si256(), low = sum;
            for (uint32_t j = 0; j < axis->count[i]; j += 16) { /* weights behind count are zero */
                const __m256i bytes = _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)(source + j)));
                const int16_t *const weight = axis->weight + at + j;
                sum = _mm256_add_epi32(sum,
                                       _mm256_madd_epi16(bytes, _mm256_loadu_si256((const __m256i *)weight)));
                if (!fine) continue;
                const int16_t *const w = axis->low + at + j;
                low = _mm256_add_epi32(low, _mm256_madd_epi16(bytes, _mm256_loadu_si256((const __m256i *)w)));
            }
            dst[p][i] = stk_clamp_u8((sum_of_lanes(join(sum, low, fine)) + half) >> axis->precision);
        }
    }
}

/* Four taps of eight targets: two pairs of each. */
TWICE __m256i weigh_chunk(__m256i sum, __m256i pair01, __m256i pair23, const int16_t *weight)
{
    const __m256i w01 = _mm256_load_si256((const __m256i *)weight);
    const __m256i w23 = _mm256_load_si256((const __m256i *)(weight + 16));
    sum = _mm256_add_epi32(sum, _mm256_madd_epi16(pair01, w01));
    return _mm256_add_epi32(sum, _mm256_madd_epi16(pair23, w23));
}

TWICE void along(uint8_t *const *dst, const uint8_t *const *src, uint32_t plane_count, const stk_axis *axis,
                 bool fine)
{
    if (axis->wide) {
        along_wide(dst, src, plane_count, axis, fine);
        return;
    }
    const uint32_t chunks = axis->tap_count / 4;
    const __m256i half = _mm256_set1_epi32(1 << (axis->precision - 1));
    const __m128i precision = _mm_cvtsi32_si128((int)axis->precision);
    for (uint32_t i = 0, group = 0; i < axis->target_px; i += STK_AXIS_GROUP, group++) {
        const __m256i mask01 = _mm256_load_si256((const __m256i *)(axis->mask + 64 * (size_t)group));
        const __m256i mask23 = _mm256_load_si256((const __m256i *)(axis->mask + 64 * (size_t)group + 32));
        const size_t left = axis->base[2 * group], right = axis->base[2 * group + 1];
        const size_t at = (size_t)group * chunks * 32;
        for (uint32_t p = 0; p < plane_count; p++) {
            __m256i sum = fine ? _mm256_setzero_si256() : half, low = half;
            for (uint32_t c = 0; c < chunks; c++) {
                const __m128i a = _mm_loadu_si128((const __m128i *)(src[p] + left + 4 * c));
                const __m128i b = _mm_loadu_si128((const __m128i *)(src[p] + right + 4 * c));
                const __m256i bytes = _mm256_inserti128_si256(_mm256_castsi128_si256(a), b, 1);
                const __m256i pair01 = _mm256_shuffle_epi8(bytes, mask01),
                              pair23 = _mm256_shuffle_epi8(bytes, mask23);
                sum = weigh_chunk(sum, pair01, pair23, axis->group_weight + at + 32 * c);
                if (fine) low = weigh_chunk(low, pair01, pair23, axis->group_low + at + 32 * c);
            }
            sum = _mm256_sra_epi32(join(sum, low, fine), precision);
            const __m128i words =
                _mm_packs_epi32(_mm256_castsi256_si128(sum), _mm256_extracti128_si256(sum, 1));
            _mm_storel_epi64((__m128i *)(dst[p] + i), _mm_packus_epi16(words, words));
        }
    }
}

AVX2 static void along_avx2(uint8_t *const *dst, const uint8_t *const *src, uint32_t plane_count,
                            const stk_axis *axis)
{
    along(dst, src, plane_count, axis, false);
}

AVX2 static void along_fine_avx2(uint8_t *const *dst, const uint8_t *const *src, uint32_t plane_count,
                                 const stk_axis *axis)
{
    along(dst, src, plane_count, axis, true);
}

/* --- across --- */

/* The weights of taps j and j + 1 as the factors of one pmaddwd; behind the last tap stands zero. */
TWICE __m256i pair_of(const int16_t *weight, bool pair)
{
    return _mm256_set1_epi32((int)((uint16_t)weight[0] | (pair ? (uint32_t)(uint16_t)weight[1] << 16 : 0)));
}

/* 32 targets: two rows are interleaved to pairs of 16-bit numbers, which one pmaddwd weighs and adds. */
TWICE __m256i across_32(const uint8_t *const *row, const stk_axis *axis, uint32_t target, __m128i precision,
                        __m256i half, size_t x, bool fine)
{
    const __m256i zero = _mm256_setzero_si256();
    const uint32_t tap_count = axis->count[target];
    const size_t at = (size_t)target * axis->tap_count;
    __m256i sum[4], low[4] = {half, half, half, half};
    for (int i = 0; i < 4; i++) sum[i] = fine ? zero : half;
    for (uint32_t j = 0; j < tap_count; j += 2) {
        const bool pair = j + 1 < tap_count;
        const __m256i a = _mm256_loadu_si256((const __m256i *)(row[j] + x));
        const __m256i b = pair ? _mm256_loadu_si256((const __m256i *)(row[j + 1] + x)) : zero;
        const __m256i left = _mm256_unpacklo_epi8(a, b), right = _mm256_unpackhi_epi8(a, b);
        const __m256i words[4] = {_mm256_unpacklo_epi8(left, zero), _mm256_unpackhi_epi8(left, zero),
                                  _mm256_unpacklo_epi8(right, zero), _mm256_unpackhi_epi8(right, zero)};
        const __m256i w = pair_of(axis->weight + at + j, pair);
        for (int i = 0; i < 4; i++) sum[i] = _mm256_add_epi32(sum[i], _mm256_madd_epi16(words[i], w));
        if (!fine) continue;
        const __m256i v = pair_of(axis->low + at + j, pair);
        for (int i = 0; i < 4; i++) low[i] = _mm256_add_epi32(low[i], _mm256_madd_epi16(words[i], v));
    }
    for (int i = 0; i < 4; i++) sum[i] = _mm256_sra_epi32(join(sum[i], low[i], fine), precision);
    /* Packing undoes the order of unpacking. */
    return _mm256_packus_epi16(_mm256_packs_epi32(sum[0], sum[1]), _mm256_packs_epi32(sum[2], sum[3]));
}

TWICE void across(uint8_t *dst, const uint8_t *const *row, const stk_axis *axis, uint32_t target,
                  size_t length, bool fine)
{
    const __m256i half = _mm256_set1_epi32(1 << (axis->precision - 1));
    const __m128i shift = _mm_cvtsi32_si128((int)axis->precision);
    for (size_t x = 0; x < length; x += 32) { /* rows are padded: the last block may reach past the end */
        _mm256_storeu_si256((__m256i *)(dst + x), across_32(row, axis, target, shift, half, x, fine));
    }
}

AVX2 static void across_avx2(uint8_t *dst, const uint8_t *const *row, const stk_axis *axis, uint32_t target,
                             size_t length)
{
    across(dst, row, axis, target, length, false);
}

AVX2 static void across_fine_avx2(uint8_t *dst, const uint8_t *const *row, const stk_axis *axis,
                                  uint32_t target, size_t length)
{
    across(dst, row, axis, target, length, true);
}

/* --- patches of 16 x 16 --- */

/* Batches are written once and read by another process or device: whole lines past the cache. */
AVX2 static void patch_u8_16(void *patch, const uint8_t *const *plane, size_t stride_bytes,
                             const stk_patch_rule *rule)
{
    __m128i *out = patch;
    (void)rule;
    for (uint32_t ch = 0; ch < 3; ch++) {
        for (uint32_t y = 0; y < 16; y++) {
            _mm_stream_si128(out++, _mm_loadu_si128((const __m128i *)(plane[ch] + y * stride_bytes)));
        }
    }
}

/* One true subtraction and one true division, as the reference does, where the table holds the same: faster than
 * looking it up. */
AVX2 static __m256 normalise(const uint8_t *bytes, const stk_patch_rule *rule, uint32_t ch)
{
    const __m256i wide = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)bytes));
    if (rule->by_table) return _mm256_i32gather_ps(rule->f32[ch], wide, 4);
    return _mm256_div_ps(_mm256_sub_ps(_mm256_cvtepi32_ps(wide), _mm256_set1_ps(rule->mean[ch])),
                         _mm256_set1_ps(rule->deviation[ch]));
}

AVX2 static void patch_f32_16(void *patch, const uint8_t *const *plane, size_t stride_bytes,
                              const stk_patch_rule *rule)
{
    float *out = patch;
    for (uint32_t ch = 0; ch < 3; ch++) {
        for (uint32_t y = 0; y < 16; y++, out += 16) {
            const __m256 a = normalise(plane[ch] + y * stride_bytes, rule, ch);
            const __m256 b = normalise(plane[ch] + y * stride_bytes + 8, rule, ch);
            for (uint32_t t = 0; t < rule->temporal; t++) {
                _mm256_stream_ps(out + 256 * t, a);
                _mm256_stream_ps(out + 256 * t + 8, b);
            }
        }
        out += 256 * (rule->temporal - 1);
    }
}

/* The high 16 bits of each, rounded to nearest even; no NaN comes from bytes. */
AVX2 static __m256i round_bf16(__m256 value)
{
    const __m256i bits = _mm256_castps_si256(value);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    return _mm256_srli_epi32(_mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd), 16);
}

AVX2 static void patch_bf16_16(void *patch, const uint8_t *const *plane, size_t stride_bytes,
                               const stk_patch_rule *rule)
{
    uint16_t *out = patch;
    for (uint32_t ch = 0; ch < 3; ch++) {
        for (uint32_t y = 0; y < 16; y++, out += 16) {
            const __m256i a = round_bf16(normalise(plane[ch] + y * stride_bytes, rule, ch));
            const __m256i b = round_bf16(normalise(plane[ch] + y * stride_bytes + 8, rule, ch));
            const __m256i row = _mm256_permute4x64_epi64(_mm256_packus_epi32(a, b), 0xd8);
            for (uint32_t t = 0; t < rule->temporal; t++)
                _mm256_stream_si256((__m256i *)(out + 256 * t), row);
        }
        out += 256 * (rule->temporal - 1);
    }
}

void stk_image_kernels_init_avx2(stk_image_kernels *k, const stk_patch_rule *rule, bool fine)
{
    k->split = split_avx2;
    k->along = fine ? along_fine_avx2 : along_avx2;
    k->across = fine ? across_fine_avx2 : across_avx2;
    if (rule->side_px != 16) return;
    k->patch = rule->form == STK_PIXELS_UINT8     ? patch_u8_16
               : rule->form == STK_PIXELS_FLOAT32 ? patch_f32_16
                                                  : patch_bf16_16;
}
#endif
