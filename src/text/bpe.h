/* bpe.h - byte pair encoding: the merges of a vocabulary, applied to one piece.
 *
 * Again and again the adjacent pair of the lowest rank is merged, the leftmost first of equal ones, until no pair has a
 * merge (spec-qwen3vl.md section 4.3, step 5). */
#ifndef STK_TEXT_BPE_H
#define STK_TEXT_BPE_H

#include "base/memory.h"

typedef struct stk_bpe {
    int32_t byte_id[256];   /* of the single bytes */
    uint32_t *byte_rank;    /* of the pair of bytes a, b: [a << 8 | b], UINT32_MAX: no merge */
    struct stk_merge *slot; /* hash table of pairs, of slot_mask + 1 slots, at most half full */
    uint32_t slot_mask;
    int32_t *merged;        /* by rank: the id that the pair becomes */
    uint32_t merge_count;
} stk_bpe;

/* Room for merge_count merges; byte_id is the caller's to fill, before the first merge is added. */
stk_status stk_bpe_init(stk_bpe *bpe, uint32_t merge_count, stk_error *err) STK_MUST_USE;
void stk_bpe_deinit(stk_bpe *bpe);

/* The pair left, right has this rank < merge_count and becomes merged.  False: the pair has a rank already. */
bool stk_bpe_add(stk_bpe *bpe, uint32_t rank, int32_t left, int32_t right, int32_t merged) STK_MUST_USE;
/* When all are added. */
void stk_bpe_finish(stk_bpe *bpe);

/* Memory of one thread for long pieces. */
typedef struct stk_bpe_scratch {
    stk_buffer symbols, heap;
} stk_bpe_scratch;

void stk_bpe_scratch_init(stk_bpe_scratch *scratch, size_t max_piece_bytes);
void stk_bpe_scratch_deinit(stk_bpe_scratch *scratch);

enum { STK_BPE_SHORT_BYTES = 64 };

/* The ids of a piece of 1 to STK_BPE_SHORT_BYTES bytes; gives their number. */
uint32_t stk_bpe_short(int32_t ids[STK_BPE_SHORT_BYTES], const stk_bpe *bpe, const uint8_t *piece, size_t size_bytes);

/* The ids of a piece of any length, in time n log n and without recursion.  *ids lives in scratch. */
stk_status stk_bpe_long(const int32_t **ids, uint32_t *count, const stk_bpe *bpe, const uint8_t *piece,
                        size_t size_bytes, stk_bpe_scratch *scratch, stk_error *err) STK_MUST_USE;

#endif
