/* axis.h - the weights that take one axis of a picture from its source size to its target size.
 *
 * Antialiased bicubic for uint8, in integers, as PyTorch or as Pillow has it (spec-qwen3vl.md sections 2.2 and
 * 2.4), which differ in the precision of the weights only: 16 bits, with as many behind the point as fit, or 22 bits
 * behind the point.  Target i is
 *
 *     clamp((2^(precision-1) + sum over j < count[i] of source[first[i] + j] * weight[i][j]) >> precision, 0,
 * 255)
 *
 * A mirrored axis runs against the stored order: targets keep their upright numbers, sources their stored
 * ones, so that first falls as i rises.  The weights are those of the upright axis turned round, which is not
 * the same in the last bit as weighing the turned axis. */
#ifndef STK_IMAGE_AXIS_H
#define STK_IMAGE_AXIS_H

#include "base/memory.h"

enum {
    STK_AXIS_GROUP = 8,     /* targets that the vector kernels make at once */
    STK_AXIS_LOW_BITS = 11, /* so that both parts of a 32-bit weight are 16-bit factors, and sums of products fit 32 bits */
};

typedef struct stk_axis {
    uint32_t source_px, target_px;
    bool mirrored;
    bool fine;              /* Pillow's: a weight is weight << STK_AXIS_LOW_BITS plus low, in 32 bits */
    bool wide;          /* four neighbouring targets reach too far apart for the tables of groups below */
    uint32_t precision; /* 1..22 */
    uint32_t tap_count; /* weights of a target in the table; a multiple of 4, of 16 when wide */
    uint32_t window;    /* source rows that must be held at once, when rows come in order */
    uint32_t *first, *count; /* target_px each */
    int16_t *weight;         /* target_px rows of tap_count, zero behind count */
    int16_t *low;            /* likewise, 0..2^STK_AXIS_LOW_BITS - 1; NULL unless fine */

    /* For groups of 8 targets, unless wide: each half of 4 loads 16 source bytes from base + 4 * chunk, picks
     * bytes by two masks (taps 0 and 1, taps 2 and 3 of the chunk), and multiplies by group_weight. */
    uint32_t *base;        /* 2 a group */
    uint8_t *mask;         /* 2 x 32 bytes a group */
    int16_t *group_weight; /* tap_count / 4 chunks of 2 x 16 a group */
    int16_t *group_low;    /* likewise, of low */
} stk_axis;

/* Bytes that a table takes at most. */
size_t stk_axis_bytes(uint32_t source_px, uint32_t target_px, bool fine);

/* Make the table in memory of stk_axis_bytes(), 64-byte aligned and zeroed.  Sizes are at least 1 and differ.
 */
void stk_axis_init(stk_axis *axis, void *memory, uint32_t source_px, uint32_t target_px, bool mirrored,
                   bool fine);

#endif
