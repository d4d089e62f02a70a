/* test_pack.c - best-fit decreasing against a plain version of itself, first-fit, and the best there is. */
#include "test.h"

#include "base/permutation.h"
#include "plan/pack.h"
#include "plan_lengths.h"

static uint64_t state = 1;

static uint32_t random_below(uint32_t bound)
{
    return (uint32_t)(stk_mix64(state++) % bound);
}

static stk_packer *packer_of(uint32_t samples, uint32_t row_tokens)
{
    stk_error err;
    stk_packer *packer;
    CHECK_OK(stk_packer_create(&packer, samples, row_tokens, &err), err);
    return packer;
}

/* No row is over-full, and every row has a sample. */
static void check_rows(const uint32_t *length, const uint32_t *row, uint32_t count, uint32_t rows, uint32_t row_tokens)
{
    uint32_t *const used = calloc(rows + 1, sizeof *used);
    for (uint32_t i = 0; i < count; i++) {
        CHECK(row[i] < rows);
        used[row[i]] += length[i];
    }
    for (uint32_t r = 0; r < rows; r++) CHECK(used[r] > 0 && used[r] <= row_tokens);
    free(used);
}

/* The definition: longest first, each into the row with the least room that it fits, the oldest of those. */
static uint32_t plain(const uint32_t *length, uint32_t count, uint32_t row_tokens, uint32_t *row)
{
    uint32_t rows = 0, *const used = calloc(count + 1, sizeof *used), *const since = calloc(count + 1, sizeof *since);
    bool *const done = calloc(count + 1, 1);
    for (uint32_t k = 0; k < count; k++) {
        uint32_t i = count;
        for (uint32_t j = 0; j < count; j++)
            if (!done[j] && (i == count || length[j] > length[i])) i = j;
        done[i] = true;
        uint32_t best = rows;
        for (uint32_t r = 0; r < rows; r++) {
            if (used[r] + length[i] > row_tokens) continue;
            if (best == rows || used[r] > used[best] || (used[r] == used[best] && since[r] < since[best])) best = r;
        }
        if (best == rows) rows++;
        row[i] = best;
        used[best] += length[i];
        since[best] = k; /* it has had so much since then */
    }
    free(used);
    free(since);
    free(done);
    return rows;
}

static uint32_t first_fit(const uint32_t *length, uint32_t count, uint32_t row_tokens)
{
    uint32_t rows = 0, *const used = calloc(count + 1, sizeof *used);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t r = 0;
        while (used[r] + length[i] > row_tokens) r++;
        used[r] += length[i];
        if (r == rows) rows++;
    }
    free(used);
    return rows;
}

static void rows_are_those_of_the_definition(void)
{
    for (int round = 0; round < 400; round++) {
        uint32_t length[200], row[200], expected[200];
        const uint32_t row_tokens = 1 + random_below(round % 2 ? 50 : 5000), count = 1 + random_below(200);
        for (uint32_t i = 0; i < count; i++) length[i] = 1 + random_below(1 + random_below(row_tokens));
        stk_packer *const packer = packer_of(200, row_tokens);
        const uint32_t rows = stk_pack(packer, length, count, row);
        CHECK_INT(rows, plain(length, count, row_tokens, expected));
        CHECK(memcmp(row, expected, count * sizeof *row) == 0);
        check_rows(length, row, count, rows, row_tokens);
        CHECK(memcmp(row, expected, count * sizeof *row) == 0);
        CHECK_INT(stk_pack(packer, length, count, row), rows); /* again with what is left in its scratch */
        CHECK(memcmp(row, expected, count * sizeof *row) == 0);
        stk_packer_destroy(packer);
    }
}

/* The fewest rows there are, by trying all ways of up to nine samples. */
static uint32_t fewest(const uint32_t *length, uint32_t count, uint32_t row_tokens, uint32_t at, uint32_t *used, uint32_t rows, uint32_t best)
{
    if (rows >= best) return best;
    if (at == count) return rows;
    for (uint32_t r = 0; r <= rows && r < best; r++) {
        if (used[r] + length[at] > row_tokens) continue;
        used[r] += length[at];
        best = fewest(length, count, row_tokens, at + 1, used, r == rows ? rows + 1 : rows, best);
        used[r] -= length[at];
    }
    return best;
}

/* Near the fewest rows there are, on all small cases that come up: within the bound of best-fit decreasing, and nearly always at the best. */
static void small_cases_are_near_the_best(void)
{
    enum { ROUNDS = 600 };
    int at_best = 0, above_first_fit = 0;
    for (int round = 0; round < ROUNDS; round++) {
        uint32_t length[9], row[9], used[10] = {0};
        const uint32_t count = 1 + random_below(9);
        for (uint32_t i = 0; i < count; i++) length[i] = 1 + random_below(100);
        stk_packer *const packer = packer_of(9, 100);
        const uint32_t rows = stk_pack(packer, length, count, row), best = fewest(length, count, 100, 0, used, 0, count + 1);
        CHECK_MSG(rows >= best && rows * 9 <= best * 11 + 6, "%u rows, and %u would do", rows, best);
        at_best += rows == best;
        above_first_fit += rows > first_fit(length, count, 100);
        stk_packer_destroy(packer);
    }
    CHECK(at_best >= ROUNDS * 99 / 100);
    CHECK_INT(above_first_fit, 0);
}

/* What no rule that looks at lengths alone escapes: {3, 2, 2} twice fills two rows of 7 as they come, and longest first takes three.  Windows
 * of thousands have no such luck. */
static void longest_first_is_not_always_best(void)
{
    static const uint32_t length[6] = {3, 2, 2, 3, 2, 2};
    uint32_t row[6];
    stk_packer *const packer = packer_of(6, 7);
    CHECK_INT(stk_pack(packer, length, 6, row), 3);
    CHECK_INT(first_fit(length, 6, 7), 2);
    stk_packer_destroy(packer);
}

static void windows_are_never_worse_than_first_fit(void)
{
    for (int round = 0; round < 60; round++) {
        static uint32_t length[4096], row[4096];
        const uint32_t count = 1u << (4 + round % 9), spread = 1 + random_below(16384);
        for (uint32_t i = 0; i < count; i++) length[i] = 1 + random_below(1 + random_below(spread));
        stk_packer *const packer = packer_of(4096, 16384);
        const uint32_t rows = stk_pack(packer, length, count, row);
        CHECK(rows <= first_fit(length, count, 16384));
        check_rows(length, row, count, rows, 16384);
        stk_packer_destroy(packer);
    }
}

/* Mixed chats (tools/make-plan-lengths) in windows of 4,096, whose mean sample is about a seventh of a row of `row_tokens`. */
static void windows_of_mixed_chats_are_full(void)
{
    static uint32_t length[PLAN_LENGTHS], row[PLAN_LENGTHS];
    enum { ROW_TOKENS = 12288, WINDOW = 4096 };
    uint32_t count = 0;
    uint64_t tokens = 0, room = 0;
    for (uint32_t r = 0; r < PLAN_LENGTHS; r++) {
        uint32_t all = plan_length[r].text;
        for (uint32_t k = 0; k < plan_length[r].picture_count; k++) all += (uint32_t)plan_length[r].picture[k][0] * plan_length[r].picture[k][1];
        if (all > ROW_TOKENS) continue; /* overlong: drop */
        length[count++] = all;
        tokens += all;
    }
    const uint64_t mean = tokens / count;
    CHECK_MSG(mean * 6 < ROW_TOKENS && mean * 8 > ROW_TOKENS, "%llu tokens in the mean", (unsigned long long)mean);
    stk_packer *const packer = packer_of(WINDOW, ROW_TOKENS);
    for (uint32_t first = 0; first < count; first += WINDOW) {
        const uint32_t of = count - first < WINDOW ? count - first : WINDOW, rows = stk_pack(packer, length + first, of, row);
        check_rows(length + first, row, of, rows, ROW_TOKENS);
        CHECK(rows <= first_fit(length + first, of, ROW_TOKENS));
        room += (uint64_t)rows * ROW_TOKENS;
    }
    stk_packer_destroy(packer);
    fprintf(stderr, "%.4f full\n", (double)tokens / (double)room);
    CHECK(tokens * 1000 >= room * 995);
}

int main(int argc, char **argv)
{
    TEST_MAIN(argc, argv, TEST(rows_are_those_of_the_definition), TEST(small_cases_are_near_the_best), TEST(longest_first_is_not_always_best),
              TEST(windows_are_never_worse_than_first_fit), TEST(windows_of_mixed_chats_are_full));
}
