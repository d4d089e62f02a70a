/* bpe.c - merging: by repeated search in a short piece, with a heap in a long one. */
#include "text/bpe.h"

#define NO_RANK UINT32_MAX
#define NOWHERE UINT32_MAX

struct stk_merge {
    int32_t left, right;
    uint32_t rank; /* NO_RANK: an empty slot */
};

/* --- the table --- */

static inline uint32_t slot_of(const stk_bpe *bpe, int32_t left, int32_t right)
{
    uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    key *= 0x9E3779B97F4A7C15u;
    key ^= key >> 32;
    key *= 0xD6E8FEB86659FD93u;
    return (uint32_t)(key >> 32) & bpe->slot_mask;
}

static inline uint32_t rank_of(const stk_bpe *bpe, int32_t left, int32_t right)
{
    for (uint32_t i = slot_of(bpe, left, right);; i = (i + 1) & bpe->slot_mask) {
        const struct stk_merge *const merge = &bpe->slot[i];
        if (merge->left == left && merge->right == right) return merge->rank;
        if (merge->rank == NO_RANK) return NO_RANK;
    }
}

stk_status stk_bpe_init(stk_bpe *bpe, uint32_t merge_count, stk_error *err)
{
    bpe->merge_count = merge_count;
    uint32_t slots = 16;
    while (slots < UINT32_C(1) << 31 && slots / 2 < merge_count) slots *= 2;
    bpe->slot_mask = slots - 1;
    bpe->slot = stk_alloc_array(STK_TAG_MODEL, slots, sizeof *bpe->slot);
    bpe->merged = stk_alloc_array(STK_TAG_MODEL, merge_count ? merge_count : 1, sizeof *bpe->merged);
    bpe->byte_rank = stk_alloc_array(STK_TAG_MODEL, 256 * 256, sizeof *bpe->byte_rank);
    if (!bpe->slot || !bpe->merged || !bpe->byte_rank || slots / 2 < merge_count) {
        stk_bpe_deinit(bpe);
        return stk_fail(err, STK_ERR_NOMEM, "out of memory: %u merges of the tokenizer", merge_count);
    }
    for (uint32_t i = 0; i < slots; i++) bpe->slot[i] = (struct stk_merge){-1, -1, NO_RANK};
    return STK_OK;
}

void stk_bpe_deinit(stk_bpe *bpe)
{
    stk_free(bpe->slot);
    stk_free(bpe->merged);
    stk_free(bpe->byte_rank);
    bpe->slot = NULL;
    bpe->merged = NULL;
    bpe->byte_rank = NULL;
}

bool stk_bpe_add(stk_bpe *bpe, uint32_t rank, int32_t left, int32_t right, int32_t merged)
{
    uint32_t i = slot_of(bpe, left, right);
    for (; bpe->slot[i].rank != NO_RANK; i = (i + 1) & bpe->slot_mask)
        if (bpe->slot[i].left == left && bpe->slot[i].right == right) return false;
    bpe->slot[i] = (struct stk_merge){left, right, rank};
    bpe->merged[rank] = merged;
    return true;
}

void stk_bpe_finish(stk_bpe *bpe)
{
    for (uint32_t pair = 0; pair < 256 * 256; pair++)
        bpe->byte_rank[pair] = rank_of(bpe, bpe->byte_id[pair >> 8], bpe->byte_id[pair & 255]);
}

/* --- a short piece --- */

uint32_t stk_bpe_short(int32_t ids[STK_BPE_SHORT_BYTES], const stk_bpe *bpe, const uint8_t *piece, size_t size_bytes)
{
    uint32_t rank[STK_BPE_SHORT_BYTES]; /* of the pair that begins here */
    uint32_t count = (uint32_t)size_bytes;
    for (uint32_t i = 0; i < count; i++) ids[i] = bpe->byte_id[piece[i]];
    for (uint32_t i = 0; i + 1 < count; i++) rank[i] = bpe->byte_rank[piece[i] << 8 | piece[i + 1]];

    while (count > 1) {
        uint32_t best = 0;
        for (uint32_t i = 1; i + 1 < count; i++)
            if (rank[i] < rank[best]) best = i;
        if (rank[best] == NO_RANK) break;
        ids[best] = bpe->merged[rank[best]];
        count--;
        memmove(ids + best + 1, ids + best + 2, (count - best - 1) * sizeof *ids);
        memmove(rank + best, rank + best + 1, (count - best - 1) * sizeof *rank);
        if (best > 0) rank[best - 1] = rank_of(bpe, ids[best - 1], ids[best]);
        if (best + 1 < count) rank[best] = rank_of(bpe, ids[best], ids[best + 1]);
    }
    return count;
}

/* --- a long piece --- */

/* A symbol of a list through the piece; one that was merged into the symbol before it has rank NO_RANK. */
typedef struct symbol {
    int32_t id;
    uint32_t before, after; /* NOWHERE at the ends */
    uint32_t rank;          /* of the pair with the next */
} symbol;

/* Candidates as rank << 32 | place: the smallest is the next to merge.  One whose symbol has another rank by now is
 * stale and is dropped when it comes up. */
typedef struct heap {
    uint64_t *item;
    size_t count;
} heap;

static void sift_down(heap *h, size_t at)
{
    const uint64_t moved = h->item[at];
    for (size_t child; (child = 2 * at + 1) < h->count; at = child) {
        if (child + 1 < h->count && h->item[child + 1] < h->item[child]) child++;
        if (h->item[child] >= moved) break;
        h->item[at] = h->item[child];
    }
    h->item[at] = moved;
}

static void push(heap *h, uint32_t rank, uint32_t place)
{
    const uint64_t added = (uint64_t)rank << 32 | place;
    size_t at = h->count++;
    for (; at > 0 && h->item[(at - 1) / 2] > added; at = (at - 1) / 2) h->item[at] = h->item[(at - 1) / 2];
    h->item[at] = added;
}

static uint64_t pop(heap *h)
{
    const uint64_t top = h->item[0];
    h->item[0] = h->item[--h->count];
    if (h->count) sift_down(h, 0);
    return top;
}

void stk_bpe_scratch_init(stk_bpe_scratch *scratch, size_t max_piece_bytes)
{
    stk_buffer_init(&scratch->symbols, STK_TAG_TEXT, max_piece_bytes * sizeof(symbol));
    /* Each merge takes one candidate and adds two at most. */
    stk_buffer_init(&scratch->heap, STK_TAG_TEXT, max_piece_bytes * 2 * sizeof(uint64_t));
}

void stk_bpe_scratch_deinit(stk_bpe_scratch *scratch)
{
    stk_buffer_deinit(&scratch->symbols);
    stk_buffer_deinit(&scratch->heap);
}

static void start_list(symbol *list, heap *h, const stk_bpe *bpe, const uint8_t *piece, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        const bool last = i + 1 == count;
        list[i] = (symbol){
            .id = bpe->byte_id[piece[i]],
            .before = i ? i - 1 : NOWHERE,
            .after = last ? NOWHERE : i + 1,
            .rank = last ? NO_RANK : bpe->byte_rank[piece[i] << 8 | piece[i + 1]],
        };
        if (list[i].rank != NO_RANK) h->item[h->count++] = (uint64_t)list[i].rank << 32 | i;
    }
    for (size_t i = h->count / 2; i-- > 0;) sift_down(h, i);
}

/* The symbol at a place, or its neighbour, is another now: find the pair's rank anew. */
static void update_pair(symbol *list, heap *h, const stk_bpe *bpe, uint32_t place)
{
    symbol *const s = &list[place];
    s->rank = s->after == NOWHERE ? NO_RANK : rank_of(bpe, s->id, list[s->after].id);
    if (s->rank != NO_RANK) push(h, s->rank, place);
}

static void merge_all(symbol *list, heap *h, const stk_bpe *bpe)
{
    while (h->count) {
        const uint64_t top = pop(h);
        symbol *const s = &list[(uint32_t)top];
        if (s->rank != top >> 32) continue;
        symbol *const gone = &list[s->after];
        s->id = bpe->merged[s->rank];
        s->after = gone->after;
        gone->rank = NO_RANK;
        if (s->after != NOWHERE) list[s->after].before = (uint32_t)top;
        if (s->before != NOWHERE) update_pair(list, h, bpe, s->before);
        update_pair(list, h, bpe, (uint32_t)top);
    }
}

stk_status stk_bpe_long(const int32_t **ids, uint32_t *count, const stk_bpe *bpe, const uint8_t *piece,
                        size_t size_bytes, stk_bpe_scratch *scratch, stk_error *err)
{
    if (size_bytes >= NOWHERE) return stk_fail(err, STK_ERR_NOMEM, "a piece of %zu bytes is too long", size_bytes);
    STK_TRY(stk_buffer_reserve(&scratch->symbols, size_bytes * sizeof(symbol), err));
    STK_TRY(stk_buffer_reserve(&scratch->heap, size_bytes * 2 * sizeof(uint64_t), err));
    symbol *const list = (symbol *)(void *)scratch->symbols.data;
    heap h = {.item = (uint64_t *)(void *)scratch->heap.data};
    start_list(list, &h, bpe, piece, (uint32_t)size_bytes);
    merge_all(list, &h, bpe);
    /* The heap is done with: its memory takes the ids. */
    int32_t *const out = (int32_t *)(void *)scratch->heap.data;
    uint32_t found = 0;
    for (uint32_t i = 0; i != NOWHERE; i = list[i].after) out[found++] = list[i].id;
    *ids = out;
    *count = found;
    return STK_OK;
}
