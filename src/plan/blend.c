/* blend.c - a tree over the sets, from the largest rate to the smallest; each inner node splits its draws between two
 * sides whose rates are as near to each other as that order allows. */
#include "plan/blend.h"

#include <stdlib.h>

/* The parts that the tree's leaves are, by falling rate.  Its inner nodes are kept beside them, each before those below it
 * and the left side before the right one: below node n, which covers parts [first, end), the left side's node
 * is n + 1 and the right side's n + middle - first. */
typedef struct part {
    uint64_t rate_before; /* sum of the rates of the parts before it */
    uint32_t set_index;
    uint32_t middle; /* of the inner node of this number: the first part of its right side */
} part;

struct stk_blend {
    uint32_t set_count;
    part part[]; /* set_count, and one that holds the sum of all rates */
};

static uint64_t rate_of(const stk_blend *blend, uint32_t first, uint32_t end)
{
    return blend->part[end].rate_before - blend->part[first].rate_before;
}

/* Where the parts [first, end), two or more, are halved best. */
static uint32_t middle_of(const stk_blend *blend, uint32_t first, uint32_t end)
{
    const uint64_t both = rate_of(blend, first, end);
    uint32_t middle = first + 1;
    while (2 * rate_of(blend, first, middle) < both) middle++; /* stops at the last part: none is smaller */
    if (middle == first + 1) return middle;
    return middle - (rate_of(blend, first, middle) + rate_of(blend, first, middle - 1) > both);
}

static void build(stk_blend *blend, uint32_t node, uint32_t first, uint32_t end)
{
    while (end - first > 1) {
        const uint32_t middle = blend->part[node].middle = middle_of(blend, first, end);
        build(blend, node + 1, first, middle);
        node += middle - first;
        first = middle;
    }
}

/* While parts are sorted, rate_before holds a part's own rate. */
static int by_falling_rate(const void *a, const void *b)
{
    const part *const x = a, *const y = b;
    if (x->rate_before != y->rate_before) return x->rate_before < y->rate_before ? 1 : -1;
    return x->set_index < y->set_index ? -1 : 1;
}

stk_status stk_blend_create(stk_blend **out, const uint64_t *rate, uint32_t set_count, stk_error *err)
{
    *out = NULL;
    stk_blend *const blend =
        stk_alloc(STK_TAG_PLAN, sizeof *blend + (set_count + (size_t)1) * sizeof *blend->part);
    if (!blend) return stk_fail(err, STK_ERR_NOMEM, "out of memory: a blend of %u data sets", set_count);
    blend->set_count = set_count;
    for (uint32_t i = 0; i < set_count; i++) blend->part[i] = (part){.rate_before = rate[i], .set_index = i};
    qsort(blend->part, set_count, sizeof *blend->part, by_falling_rate);
    uint64_t before = 0;
    for (uint32_t i = 0; i <= set_count; i++) {
        blend->part[i].rate_before = before;
        if (i < set_count) before += rate[blend->part[i].set_index];
    }
    build(blend, 0, 0, set_count);
    *out = blend;
    return STK_OK;
}

void stk_blend_destroy(stk_blend *blend)
{
    stk_free(blend);
}

/* Of a node's first t draws, how many go left: rint(t * left / both), halves upwards. */
static uint64_t left_of(uint64_t t, uint64_t left, uint64_t both)
{
    return (uint64_t)(((stk_u128)t * left * 2 + both) / ((stk_u128)both * 2));
}

stk_draw stk_blend_at(const stk_blend *blend, uint64_t t)
{
    uint32_t node = 0, first = 0, end = blend->set_count;
    while (end - first > 1) {
        const uint32_t middle = blend->part[node].middle;
        const uint64_t left = rate_of(blend, first, middle), both = rate_of(blend, first, end);
        const uint64_t before = left_of(t, left, both);
        if (left_of(t + 1, left, both) > before) {
            node++;
            end = middle;
            t = before;
        } else {
            node += middle - first;
            first = middle;
            t -= before;
        }
    }
    return (stk_draw){blend->part[first].set_index, t};
}

static void count_in(const stk_blend *blend, uint32_t node, uint32_t first, uint32_t end, uint64_t t,
                     uint64_t *count)
{
    while (end - first > 1) {
        const uint32_t middle = blend->part[node].middle;
        const uint64_t left = left_of(t, rate_of(blend, first, middle), rate_of(blend, first, end));
        count_in(blend, node + 1, first, middle, left, count);
        node += middle - first;
        first = middle;
        t -= left;
    }
    count[blend->part[first].set_index] = t;
}

void stk_blend_count(const stk_blend *blend, uint64_t t, uint64_t *count)
{
    count_in(blend, 0, 0, blend->set_count, t, count);
}
