/* stated.c - the lookup. */
#include "manifest/stated.h"

#include <xxhash.h>

int stk_stated_compare(const stk_stated_size *a, const stk_stated_size *b)
{
    if (a->high != b->high) return a->high < b->high ? -1 : 1;
    return a->low == b->low ? 0 : a->low < b->low ? -1 : 1;
}

bool stk_stated_find(const stk_stated_sizes *sizes, stk_str address, uint32_t *width_px, uint32_t *height_px)
{
    const XXH128_hash_t hash = XXH3_128bits(address.data, address.size_bytes);
    const stk_stated_size wanted = {.high = hash.high64, .low = hash.low64};
    uint64_t begin = 0, end = sizes->count;
    while (begin < end) {
        const uint64_t middle = begin + (end - begin) / 2;
        const int order = stk_stated_compare(&sizes->size[middle], &wanted);
        if (order == 0) {
            *width_px = sizes->size[middle].width_px;
            *height_px = sizes->size[middle].height_px;
            return true;
        }
        if (order < 0) begin = middle + 1;
        else end = middle;
    }
    return false;
}
