/* positions.h - M-RoPE positions (spec-qwen3vl.md section 6.1). */
#ifndef STK_BATCH_POSITIONS_H
#define STK_BATCH_POSITIONS_H

#include "schema/model.h"

/* One medium in a sample's tokens. */
typedef struct stk_position_block {
    uint32_t at; /* its first pad token in the sample */
    stk_grid grid;
    int64_t t_step; /* positions from one frame to the next: 1, or Qwen2.5-VL's time scale */
} stk_position_block;

/* Write the three planes (t, h, w) of one sample of token_count tokens: planes[k * plane_stride + i].  Blocks rise and do
 * not overlap; a block takes grid tokens.  Where the model counts videos per frame, each frame is a block of its own
 * (t = 1), with its own text between.  Returns the position after the last token.
 */
int64_t stk_positions_write(int64_t *planes, uint64_t plane_stride, uint32_t token_count, const stk_position_block *block,
                            uint32_t block_count, uint32_t merge);

#endif
