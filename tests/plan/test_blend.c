/* test_blend.c - draws are shared out evenly, by rates, and found without those before them. */
#include "test.h"

#include "base/permutation.h"
#include "plan/blend.h"

static stk_blend *blend_of(const uint64_t *rate, uint32_t count)
{
    stk_error err;
    stk_blend *blend;
    CHECK_OK(stk_blend_create(&blend, rate, count, &err), err);
    return blend;
}

/* The numbers of each set's draws are 0, 1, 2, ... in the order of the draws, and agree with the counts. */
static void each_set_counts_its_own_draws(void)
{
    for (uint32_t sets = 1; sets <= 9; sets++) {
        uint64_t rate[9], seen[9] = {0}, count[9];
        for (uint32_t i = 0; i < sets; i++) rate[i] = 1 + stk_mix64(sets * 100 + i) % 1000;
        stk_blend *const blend = blend_of(rate, sets);
        for (uint64_t t = 0; t < 5000; t++) {
            const stk_draw d = stk_blend_at(blend, t);
            CHECK(d.set_index < sets);
            CHECK_INT(d.number, seen[d.set_index]++);
            if (t % 97) continue;
            stk_blend_count(blend, t + 1, count);
            CHECK(memcmp(count, seen, sets * sizeof *count) == 0);
        }
        stk_blend_destroy(blend);
    }
}

/* Invariant 3: after as many draws as the rates sum up to, each set has had exactly its rate. */
static void a_period_gives_each_set_its_rate(void)
{
    for (uint64_t round = 0; round < 300; round++) {
        const uint32_t sets = 1 + (uint32_t)(stk_mix64(round) % 12);
        uint64_t rate[12], count[12], sum = 0;
        for (uint32_t i = 0; i < sets; i++) sum += rate[i] = 1 + stk_mix64(round * 64 + i) % 100000;
        stk_blend *const blend = blend_of(rate, sets);
        for (uint64_t period = 1; period <= 3; period++) {
            stk_blend_count(blend, period * sum, count);
            for (uint32_t i = 0; i < sets; i++) CHECK_INT(count[i], period * rate[i]);
        }
        stk_blend_destroy(blend);
    }
}

enum { SETS_MAX = 40 };

/* How far a window of so many draws is from its share, at most, in thousandths of a sample. */
static uint64_t largest_distance(const uint64_t *rate, uint32_t sets, uint64_t window, uint64_t windows)
{
    stk_blend *const blend = blend_of(rate, sets);
    uint64_t sum = 0, largest = 0, before[SETS_MAX], after[SETS_MAX];
    for (uint32_t i = 0; i < sets; i++) sum += rate[i];
    for (uint64_t t = 0; t < windows; t++) {
        stk_blend_count(blend, t, before);
        stk_blend_count(blend, t + window, after);
        for (uint32_t i = 0; i < sets; i++) {
            const int64_t off = (int64_t)((after[i] - before[i]) * sum) - (int64_t)(window * rate[i]);
            const uint64_t distance = (uint64_t)(off < 0 ? -off : off) * 1000 / sum;
            if (distance > largest) largest = distance;
        }
    }
    stk_blend_destroy(blend);
    return largest;
}

/* Rates of one round: alike, of few digits, or over up to eight decades. */
static void make_rates(uint64_t round, uint32_t sets, uint64_t *rate)
{
    for (uint32_t i = 0; i < sets; i++) {
        const uint64_t random = stk_mix64(round * SETS_MAX + i);
        static const uint64_t below[4] = {10000, 10, 3, 100000000};
        const uint64_t decade = round % 4 == 3 ? (uint64_t)1 << (random >> 32) % 27 : 1;
        rate[i] = 1 + random % below[round % 4] / decade;
    }
}

static void every_thousand_draws_hold_each_set_its_share(void)
{
    uint64_t worst[SETS_MAX + 1] = {0}, worst_of_all = 0;
    for (uint64_t round = 0; round < 400; round++) {
        uint64_t rate[SETS_MAX];
        const uint32_t sets = 2 + (uint32_t)(stk_mix64(round) % (round % 2 ? 8 : SETS_MAX - 1));
        make_rates(round / 2, sets, rate);
        const uint64_t distance = largest_distance(rate, sets, 1000, 1000);
        if (distance > worst[sets]) worst[sets] = distance;
        if (distance > worst_of_all) worst_of_all = distance;
    }
    fprintf(stderr, "two sets %llu/1000, three %llu/1000, up to %d %llu/1000\n", (unsigned long long)worst[2],
            (unsigned long long)worst[3], SETS_MAX, (unsigned long long)worst_of_all);
    CHECK(worst[2] < 1000);
    CHECK(worst[3] < 2000);
    CHECK(worst_of_all < 2500);
    /* Weights of few digits, as people write them. */
    static const uint64_t usual[][3] = {{3, 2, 1}, {5, 3, 2}, {70, 20, 10}, {1, 1, 1},
                                        {6, 3, 1}, {333, 333, 334}, {2, 1, 1}};
    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++) {
        const uint64_t distance = largest_distance(usual[i], 3, 1000, 3000);
        CHECK_MSG(distance <= 1000, "weights %zu: %llu/1000", i, (unsigned long long)distance);
    }
}

/* No set clumps: what holds of 1,000 draws holds of few. */
static void short_stretches_hold_each_set_its_share(void)
{
    for (uint64_t round = 0; round < 200; round++) {
        uint64_t rate[SETS_MAX];
        const uint32_t sets = 2 + (uint32_t)(stk_mix64(round) % (SETS_MAX - 1));
        make_rates(round, sets, rate);
        const uint64_t distance = largest_distance(rate, sets, 2 + round, 500);
        CHECK_MSG(distance < (sets == 2 ? 1000 : 2500), "round %llu: %llu/1000", (unsigned long long)round,
                  (unsigned long long)distance);
    }
}

/* At any draw, far out too. */
static void a_count_never_leaves_its_line(void)
{
    for (uint64_t round = 0; round < 2000; round++) {
        uint64_t rate[SETS_MAX], count[SETS_MAX], sum = 0, counted = 0;
        const uint32_t sets = 1 + (uint32_t)(stk_mix64(round) % SETS_MAX);
        make_rates(round, sets, rate);
        for (uint32_t i = 0; i < sets; i++) sum += rate[i];
        const uint64_t t = stk_mix64(round + 5000) >> (2 + round % 50);
        stk_blend *const blend = blend_of(rate, sets);
        stk_blend_count(blend, t, count);
        stk_blend_destroy(blend);
        for (uint32_t i = 0; i < sets; i++) {
            const stk_u128 is = (stk_u128)count[i] * sum, line = (stk_u128)t * rate[i];
            CHECK((is > line ? is - line : line - is) < (stk_u128)sum * 3 / 2);
            counted += count[i];
        }
        CHECK_INT(counted, t);
    }
}

static void a_draw_far_out_is_as_near(void)
{
    static const uint64_t rate[3] = {1u << 30, 3, (uint64_t)1 << 40};
    stk_blend *const blend = blend_of(rate, 3);
    uint64_t before[3], after[3];
    for (uint64_t round = 0; round < 1000; round++) {
        const uint64_t t = stk_mix64(round) >> 2;
        const stk_draw d = stk_blend_at(blend, t);
        stk_blend_count(blend, t, before);
        stk_blend_count(blend, t + 1, after);
        for (uint32_t i = 0; i < 3; i++) CHECK_INT(after[i] - before[i], i == d.set_index);
        CHECK_INT(d.number, before[d.set_index]);
    }
    stk_blend_destroy(blend);
}

int main(int argc, char **argv)
{
    TEST_MAIN(argc, argv, TEST(each_set_counts_its_own_draws), TEST(a_period_gives_each_set_its_rate),
              TEST(every_thousand_draws_hold_each_set_its_share), TEST(short_stretches_hold_each_set_its_share),
              TEST(a_count_never_leaves_its_line), TEST(a_draw_far_out_is_as_near));
}
