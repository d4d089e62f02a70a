/* usable.c - a bitmap with rank counts. */
#include "plan/usable.h"

enum { BLOCK_WORDS = 8 }; /* one cache line */

stk_status stk_usable_init(stk_usable *usable, uint64_t record_count, stk_error *err)
{
    *usable = (stk_usable){.record_count = record_count};
    usable->block_count = record_count / (64 * BLOCK_WORDS) + 1;
    usable->word = stk_alloc_array(STK_TAG_PLAN, usable->block_count, BLOCK_WORDS * sizeof *usable->word);
    usable->count_before = stk_alloc_array(STK_TAG_PLAN, usable->block_count, sizeof *usable->count_before);
    if (usable->word && usable->count_before) return STK_OK;
    stk_usable_deinit(usable);
    return stk_fail(err, STK_ERR_NOMEM, "out of memory: the plan of %llu records", (unsigned long long)record_count);
}

void stk_usable_add(stk_usable *usable, uint64_t record_index)
{
    usable->word[record_index / 64] |= (uint64_t)1 << record_index % 64;
}

void stk_usable_count(stk_usable *usable)
{
    usable->usable_count = 0;
    for (uint64_t block = 0; block < usable->block_count; block++) {
        usable->count_before[block] = usable->usable_count;
        for (int i = 0; i < BLOCK_WORDS; i++)
            usable->usable_count += (uint64_t)__builtin_popcountll(usable->word[block * BLOCK_WORDS + (uint64_t)i]);
    }
}

void stk_usable_cut(stk_usable *usable, uint64_t most)
{
    if (usable->usable_count <= most) return;
    const uint64_t first = stk_usable_select(usable, most), words = usable->block_count * BLOCK_WORDS;
    usable->word[first / 64] &= ((uint64_t)1 << first % 64) - 1;
    for (uint64_t at = first / 64 + 1; at < words; at++) usable->word[at] = 0;
    stk_usable_count(usable);
}

uint64_t stk_usable_select(const stk_usable *usable, uint64_t k)
{
    /* The last block that starts at or before k. */
    uint64_t low = 0, high = usable->block_count;
    while (high - low > 1) {
        const uint64_t middle = low + (high - low) / 2;
        if (usable->count_before[middle] <= k) low = middle;
        else high = middle;
    }
    k -= usable->count_before[low];
    uint64_t at = low * BLOCK_WORDS;
    for (;; at++) {
        const uint64_t ones = (uint64_t)__builtin_popcountll(usable->word[at]);
        if (k < ones) break;
        k -= ones;
    }
    uint64_t word = usable->word[at];
    while (k--) word &= word - 1;
    return at * 64 + (uint64_t)__builtin_ctzll(word);
}

void stk_usable_deinit(stk_usable *usable)
{
    stk_free(usable->word);
    stk_free(usable->count_before);
    *usable = (stk_usable){0};
}
