/* index_ids.h - which ids a data set has seen: a set of 64-bit hashes of known maximal size. */
#ifndef STK_MANIFEST_INDEX_IDS_H
#define STK_MANIFEST_INDEX_IDS_H

#include "base/memory.h"

typedef struct stk_id_set {
    uint64_t *slot; /* open addressing; 0 is free */
    uint64_t mask;
} stk_id_set;

static inline stk_status stk_id_set_init(stk_id_set *set, uint64_t id_count, stk_error *err)
{
    uint64_t size = 64;
    while (size / 2 < id_count) size *= 2;
    *set = (stk_id_set){stk_alloc_array(STK_TAG_INDEX, size, sizeof(uint64_t)), size - 1};
    return set->slot ? STK_OK
                     : stk_fail(err, STK_ERR_NOMEM, "out of memory: the ids of %llu records", (unsigned long long)id_count);
}

/* True if it was there already.  id_hash is not 0. */
static inline bool stk_id_set_add(stk_id_set *set, uint64_t id_hash)
{
    uint64_t at = id_hash & set->mask;
    for (; set->slot[at]; at = (at + 1) & set->mask)
        if (set->slot[at] == id_hash) return true;
    set->slot[at] = id_hash;
    return false;
}

static inline void stk_id_set_deinit(stk_id_set *set)
{
    stk_free(set->slot);
    *set = (stk_id_set){0};
}

#endif
