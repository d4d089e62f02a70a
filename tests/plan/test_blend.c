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

/* How far a window of 1,000 draws is from its share, at most, in thousandths of a sample. */
static uint64_t largest_distance(const uint64_t *rate, uint32_t sets, uint64_t draws)
{
    stk_blend *const blend = blend_of(rate, sets);
    uint64_t sum = 0, largest = 0, before[9], after[9];
    for (uint32_t i = 0; i < sets; i++) sum += rate[i];
    for (uint64_t t = 0; t < draws; t++) {
        stk_blend_count(blend, t, before);
        stk_blend_count(blend, t + 1000, after);
        for (uint32_t i = 0; i < sets; i++) {
            const int64_t off = (int64_t)((after[i] - before[i]) * sum) - (int64_t)(1000 * rate[i]);
            const uint64_t distance = (uint64_t)(off < 0 ? -off : off) * 1000 / sum;
            if (distance > largest) largest = distance;
        }
    }
    stk_blend_destroy(blend);
    return largest;
}

static void every_thousand_draws_hold_each_set_its_share(void)
{
    uint64_t worst_of_two = 0, worst = 0;
    for (uint64_t round = 0; round < 200; round++) {
        uint64_t rate[9];
        const uint32_t sets = 2 + (uint32_t)(round % 8);
        for (uint32_t i = 0; i < sets; i++) rate[i] = 1 + stk_mix64(round * 16 + i) % 10000;
        const uint64_t distance = largest_distance(rate, sets, 3000);
        if (distance > worst) worst = distance;
        if (sets == 2 && distance > worst_of_two) worst_of_two = distance;
    }
    fprintf(stderr, "two sets %llu/1000, up to nine %llu/1000\n", (unsigned long long)worst_of_two, (unsigned long long)worst);
    CHECK(worst_of_two < 1000);
    CHECK(worst < 3000); /* no sequence holds all sets within one; Tijdeman's comes to 1.6 */
    /* Weights of few digits, as people write them. */
    static const uint64_t usual[][3] = {{3, 2, 1}, {5, 3, 2}, {70, 20, 10}, {1, 1, 1}, {6, 3, 1}, {333, 333, 334}, {2, 1, 1}};
    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++) {
        const uint64_t distance = largest_distance(usual[i], 3, 3000);
        CHECK_MSG(distance <= 1000, "weights %zu: %llu/1000", i, (unsigned long long)distance);
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
              TEST(every_thousand_draws_hold_each_set_its_share), TEST(a_draw_far_out_is_as_near));
}
