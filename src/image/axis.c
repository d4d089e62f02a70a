/* axis.c - resize weights in double arithmetic, operation by operation as PyTorch and Pillow do it.
 *
 * The association of each expression is part of the result: compile without contraction. */
#include "image/axis.h"

#include <math.h>

enum { MAX_PRECISION = 22, FINE_PRECISION = 22, MAX_SHIFT = 12 }; /* 16 bytes hold a shift and the 4 taps of a chunk */

/* The support of the filter, and the number of weights that a target may have. */
static double support_of(double scale)
{
    return scale >= 1.0 ? 2.0 * scale : 2.0;
}

static uint32_t capacity_of(uint32_t source_px, uint32_t target_px)
{
    return 2 * (uint32_t)ceil(support_of((double)source_px / target_px)) + 1;
}

static double cubic(double x)
{
    static const double a = -0.5;
    x = fabs(x);
    if (x < 1.0) return ((a + 2.0) * x - (a + 3.0)) * x * x + 1;
    if (x < 2.0) return ((a * x - 5.0 * a) * x + 8.0 * a) * x - 4.0 * a;
    return 0.0;
}

typedef struct span {
    uint32_t first, count;
} span;

/* The sources of target i, and their normalised weights. */
static span weigh(double *weight, uint32_t source_px, uint32_t target_px, uint32_t i)
{
    const double scale = (double)source_px / target_px, support = support_of(scale);
    const double inverse = scale >= 1.0 ? 1.0 / scale : 1.0, centre = scale * (i + 0.5);
    const uint32_t capacity = capacity_of(source_px, target_px);
    int64_t first = (int64_t)(centre - support + 0.5), end = (int64_t)(centre + support + 0.5);
    if (first < 0) first = 0;
    if (end > source_px) end = source_px;
    int64_t count = end - first;
    if (count < 0) count = 0;
    if (count > capacity) count = capacity;

    double sum = 0.0;
    for (int64_t j = 0; j < count; j++) {
        weight[j] = cubic(((double)(j + first) - centre + 0.5) * inverse);
        sum += weight[j];
    }
    for (int64_t j = 0; j < count && sum != 0.0; j++) weight[j] /= sum;
    return (span){(uint32_t)first, (uint32_t)count};
}

static int32_t to_integer(double weight, uint32_t precision)
{
    const double scaled = weight * (double)(1u << precision);
    return weight < 0 ? (int32_t)(scaled - 0.5) : (int32_t)(scaled + 0.5);
}

static uint32_t precision_of(double largest)
{
    uint32_t precision = 0;
    while (precision < MAX_PRECISION && (int64_t)(0.5 + largest * (double)(1u << (precision + 1))) < 32768)
        precision++;
    return precision;
}

static uint32_t taps_of(const stk_axis *axis, uint32_t largest_count)
{
    const uint32_t to = axis->wide ? 16 : 4;
    return (largest_count + to - 1) / to * to;
}

static uint32_t group_count(uint32_t target_px)
{
    return (target_px + STK_AXIS_GROUP - 1) / STK_AXIS_GROUP;
}

/* A row of weights is at most this long, however it is padded. */
static size_t row_capacity(uint32_t source_px, uint32_t target_px)
{
    return stk_round_up(capacity_of(source_px, target_px), 16);
}

size_t stk_axis_bytes(uint32_t source_px, uint32_t target_px, bool fine)
{
    const size_t groups = group_count(target_px), rows = groups * STK_AXIS_GROUP,
                 taps = row_capacity(source_px, target_px), tables = fine ? 4 : 2;
    return rows * (2 * sizeof(uint32_t) + tables * taps * sizeof(int16_t)) +
           groups * (2 * sizeof(uint32_t) + 64) + taps * sizeof(double) + 10 * STK_ALIGN_BYTES;
}

static void *take(uint8_t **memory, size_t size_bytes)
{
    void *const piece = *memory;
    *memory += stk_round_up(size_bytes, STK_ALIGN_BYTES);
    return piece;
}

/* Integer weights of all targets, without the zeros at both ends, which are many and cost rows of the window.
 */
static void fill_weights(stk_axis *axis, double *raw, size_t stride)
{
    for (uint32_t i = 0; i < axis->target_px; i++) {
        const span s = weigh(raw, axis->source_px, axis->target_px, i);
        uint32_t begin = 0, end = s.count;
        while (end > 1 && to_integer(raw[end - 1], axis->precision) == 0) end--;
        while (begin + 1 < end && to_integer(raw[begin], axis->precision) == 0) begin++;
        axis->first[i] = s.first + begin;
        axis->count[i] = end - begin;
        if (axis->mirrored) axis->first[i] = axis->source_px - axis->first[i] - axis->count[i];
        for (uint32_t j = begin; j < end; j++) {
            const int32_t weight = to_integer(raw[j], axis->precision);
            const size_t at = i * stride + (axis->mirrored ? end - 1 - j : j - begin);
            axis->weight[at] = (int16_t)(axis->fine ? weight >> STK_AXIS_LOW_BITS : weight);
            if (axis->fine) axis->low[at] = (int16_t)(weight & ((1 << STK_AXIS_LOW_BITS) - 1));
        }
    }
}

static void measure(stk_axis *axis)
{
    uint32_t end = 0, largest = 1;
    axis->window = 1;
    for (uint32_t i = 0; i < axis->target_px; i++) {
        /* In the order in which stored rows complete the targets. */
        const uint32_t t = axis->mirrored ? axis->target_px - 1 - i : i;
        if (axis->first[t] + axis->count[t] > end) end = axis->first[t] + axis->count[t];
        if (end - axis->first[t] > axis->window) axis->window = end - axis->first[t];
        if (axis->count[t] > largest) largest = axis->count[t];
    }
    axis->wide = false;
    for (uint32_t i = 0; i < axis->target_px; i += 4) {
        uint32_t low = UINT32_MAX, high = 0;
        for (uint32_t k = i; k < i + 4 && k < axis->target_px; k++) {
            if (axis->first[k] < low) low = axis->first[k];
            if (axis->first[k] > high) high = axis->first[k];
        }
        if (high - low > MAX_SHIFT) axis->wide = true;
    }
    axis->tap_count = taps_of(axis, largest);
}

/* Where target i of a group finds tap t of a chunk, and what it is multiplied by. */
static void fill_groups(stk_axis *axis)
{
    const uint32_t chunks = axis->tap_count / 4;
    for (uint32_t i = 0; i < group_count(axis->target_px) * STK_AXIS_GROUP; i++) {
        const uint32_t group = i / STK_AXIS_GROUP, lane = i % STK_AXIS_GROUP, half = lane / 4,
                       at = half * 16 + lane % 4 * 4;
        uint32_t *const base = &axis->base[2 * group + half];
        if (i >= axis->target_px) continue; /* behind the end: weights of zero */
        if (lane % 4 == 0) {
            *base = axis->first[i];
            for (uint32_t k = i; k < i + 4 && k < axis->target_px; k++) {
                if (axis->first[k] < *base) *base = axis->first[k];
            }
        }
        for (uint32_t tap = 0; tap < 4; tap++) {
            uint8_t *const mask = axis->mask + 64 * (size_t)group + 32 * (tap / 2) + at + 2 * (tap % 2);
            mask[0] = (uint8_t)(axis->first[i] - *base + tap);
            mask[1] = 0x80; /* the high byte of a 16-bit number is zero */
            for (uint32_t chunk = 0; chunk < chunks; chunk++) {
                const size_t to = ((size_t)group * chunks + chunk) * 32 + 16 * (tap / 2) + at / 2 + tap % 2,
                             from = (size_t)i * axis->tap_count + 4 * chunk + tap;
                axis->group_weight[to] = axis->weight[from];
                if (axis->fine) axis->group_low[to] = axis->low[from];
            }
        }
    }
}

/* Rows of the least length that all fit, so that the table stays in the cache. */
static void tighten(const stk_axis *axis, int16_t *table, size_t stride)
{
    for (uint32_t i = 1; i < axis->target_px; i++)
        memmove(table + (size_t)i * axis->tap_count, table + i * stride, axis->tap_count * sizeof *table);
}

void stk_axis_init(stk_axis *axis, void *memory, uint32_t source_px, uint32_t target_px, bool mirrored, bool fine)
{
    uint8_t *at = memory;
    const size_t stride = row_capacity(source_px, target_px);
    const size_t groups = group_count(target_px), rows = groups * STK_AXIS_GROUP;
    *axis = (stk_axis){.source_px = source_px, .target_px = target_px, .mirrored = mirrored, .fine = fine};
    axis->first = take(&at, rows * sizeof(uint32_t));
    axis->count = take(&at, rows * sizeof(uint32_t));
    axis->weight = take(&at, rows * stride * sizeof(int16_t));
    axis->base = take(&at, groups * 2 * sizeof(uint32_t));
    axis->mask = take(&at, groups * 64);
    axis->group_weight = take(&at, rows * stride * sizeof(int16_t));
    if (fine) {
        axis->low = take(&at, rows * stride * sizeof(int16_t));
        axis->group_low = take(&at, rows * stride * sizeof(int16_t));
    }
    double *const raw = take(&at, stride * sizeof(double));

    double largest = 0.0;
    for (uint32_t i = 0; i < target_px; i++) {
        const span s = weigh(raw, source_px, target_px, i);
        for (uint32_t j = 0; j < s.count; j++) largest = raw[j] > largest ? raw[j] : largest;
    }
    axis->precision = fine ? FINE_PRECISION : precision_of(largest);
    fill_weights(axis, raw, stride);
    measure(axis);
    tighten(axis, axis->weight, stride);
    if (fine) tighten(axis, axis->low, stride);
    if (!axis->wide) fill_groups(axis);
}
