/* pack.h - the samples of one window to rows of a fixed length: best-fit decreasing.
 *
 * A pure function of the lengths in their order; a sample is never split.  Longest first, equal lengths in their order; each goes
 * into the row that it fills best, among equals into the oldest; else a new row is opened. */
#ifndef STK_PLAN_PACK_H
#define STK_PLAN_PACK_H

#include "base/memory.h"

/* Scratch of one caller, kept from window to window. */
typedef struct stk_packer stk_packer;

/* For windows of at most sample_max samples and rows of row_tokens. */
stk_status stk_packer_create(stk_packer **out, uint32_t sample_max, uint32_t row_tokens, stk_error *err) STK_MUST_USE;
void stk_packer_destroy(stk_packer *packer); /* NULL is fine */

/* row[i] becomes the row of sample i, in the order in which rows were opened; returns how many there are.
 * length: count numbers, 1 .. row_tokens. */
uint32_t stk_pack(stk_packer *packer, const uint32_t *length, uint32_t count, uint32_t *row);

#endif
