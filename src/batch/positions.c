/* positions.c - M-RoPE positions of one sample. */
#include "batch/positions.h"

int64_t stk_positions_write(int64_t *planes, uint64_t plane_stride, uint32_t token_count, const stk_position_block *block,
                            uint32_t block_count, uint32_t merge)
{
    int64_t *const t = planes, *const h = planes + plane_stride, *const w = planes + 2 * plane_stride;
    int64_t next = 0;
    uint32_t at = 0;
    for (uint32_t b = 0; b <= block_count; b++) {
        const uint32_t text_end = b < block_count ? block[b].at : token_count;
        for (; at < text_end; at++) t[at] = h[at] = w[at] = next++;
        if (b == block_count) break;
        const stk_grid grid = block[b].grid;
        const uint32_t rows = grid.h / merge, columns = grid.w / merge;
        for (uint32_t frame = 0; frame < grid.t; frame++)
            for (uint32_t y = 0; y < rows; y++)
                for (uint32_t x = 0; x < columns; x++, at++) {
                    t[at] = next + frame * block[b].t_step;
                    h[at] = next + y;
                    w[at] = next + x;
                }
        const int64_t frames_end = ((int64_t)grid.t - 1) * block[b].t_step + 1;
        int64_t longest = rows > columns ? rows : columns;
        if (frames_end > longest) longest = frames_end;
        next += longest;
    }
    return next;
}
