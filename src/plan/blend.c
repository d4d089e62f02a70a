/* blend.c - a balanced tree over the sets, in their order; each inner node splits its draws between two halves. */
#include "plan/blend.h"

struct stk_blend {
    uint32_t set_count;
    uint64_t rate_before[]; /* sums of the rates of the sets before each: set_count + 1 */
};

stk_status stk_blend_create(stk_blend **out, const uint64_t *rate, uint32_t set_count, stk_error *err)
{
    *out = NULL;
    stk_blend *const blend =
        stk_alloc(STK_TAG_PLAN, sizeof *blend + (set_count + (size_t)1) * sizeof *blend->rate_before);
    if (!blend) return stk_fail(err, STK_ERR_NOMEM, "out of memory: a blend of %u data sets", set_count);
    blend->set_count = set_count;
    for (uint32_t i = 0; i < set_count; i++) blend->rate_before[i + 1] = blend->rate_before[i] + rate[i];
    *out = blend;
    return STK_OK;
}

void stk_blend_destroy(stk_blend *blend)
{
    stk_free(blend);
}

/* A node covers sets [first, end); its left half ends before the middle. */
static uint64_t rate_of(const stk_blend *blend, uint32_t first, uint32_t end)
{
    return blend->rate_before[end] - blend->rate_before[first];
}

/* Of a node's first t draws, how many go left: rint(t * left / both), halves upwards. */
static uint64_t left_of(uint64_t t, uint64_t left, uint64_t both)
{
    return (uint64_t)(((stk_u128)t * left * 2 + both) / ((stk_u128)both * 2));
}

stk_draw stk_blend_at(const stk_blend *blend, uint64_t t)
{
    uint32_t first = 0, end = blend->set_count;
    while (end - first > 1) {
        const uint32_t middle = first + (end - first) / 2;
        const uint64_t left = rate_of(blend, first, middle), both = rate_of(blend, first, end);
        const uint64_t before = left_of(t, left, both);
        if (left_of(t + 1, left, both) > before) {
            end = middle;
            t = before;
        } else {
            first = middle;
            t -= before;
        }
    }
    return (stk_draw){first, t};
}

static void count_in(const stk_blend *blend, uint32_t first, uint32_t end, uint64_t t, uint64_t *count)
{
    if (end - first == 1) {
        count[first] = t;
        return;
    }
    const uint32_t middle = first + (end - first) / 2;
    const uint64_t left = left_of(t, rate_of(blend, first, middle), rate_of(blend, first, end));
    count_in(blend, first, middle, left, count);
    count_in(blend, middle, end, t - left, count);
}

void stk_blend_count(const stk_blend *blend, uint64_t t, uint64_t *count)
{
    count_in(blend, 0, blend->set_count, t, count);
}
