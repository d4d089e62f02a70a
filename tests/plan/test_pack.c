/* test_pack.c - best-fit decreasing against a plain version of itself, first-fit, and the best there is. */
#include "test.h"

#include "base/permutation.h"
#include "plan/pack.h"

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

static void never_worse_than_first_fit_and_near_the_best(void)
{
    for (int round = 0; round < 300; round++) {
        uint32_t length[9], row[9], used[10] = {0};
        const uint32_t count = 1 + random_below(9);
        for (uint32_t i = 0; i < count; i++) length[i] = 1 + random_below(100);
        stk_packer *const packer = packer_of(9, 100);
        const uint32_t rows = stk_pack(packer, length, count, row), best = fewest(length, count, 100, 0, used, 0, count + 1);
        CHECK(rows <= first_fit(length, count, 100) || rows * 9 <= best * 11 + 6);
        CHECK_MSG(rows * 9 <= best * 11 + 6, "%u rows, and %u would do", rows, best); /* the bound of best-fit decreasing */
        stk_packer_destroy(packer);
    }
    for (int round = 0; round < 30; round++) {
        static uint32_t length[4096], row[4096];
        for (uint32_t i = 0; i < 4096; i++) length[i] = 1 + random_below(1 + random_below(16384));
        stk_packer *const packer = packer_of(4096, 16384);
        const uint32_t rows = stk_pack(packer, length, 4096, row);
        CHECK(rows <= first_fit(length, 4096, 16384));
        check_rows(length, row, 4096, rows, 16384);
        stk_packer_destroy(packer);
    }
}

/* Windows of 4,096 samples whose mean is a seventh of the row. */
static void windows_of_usual_lengths_are_full(void)
{
    uint64_t tokens = 0, room = 0;
    for (int round = 0; round < 20; round++) {
        static uint32_t length[4096], row[4096];
        for (uint32_t i = 0; i < 4096; i++) {
            const uint32_t spread = 1 + random_below(4);
            length[i] = 1 + random_below(2340 * spread / 2) + random_below(2340);
        }
        stk_packer *const packer = packer_of(4096, 16384);
        const uint32_t rows = stk_pack(packer, length, 4096, row);
        for (uint32_t i = 0; i < 4096; i++) tokens += length[i];
        room += (uint64_t)rows * 16384;
        stk_packer_destroy(packer);
    }
    CHECK_MSG(tokens * 1000 >= room * 995, "%.4f full", (double)tokens / (double)room);
}

int main(int argc, char **argv)
{
    TEST_MAIN(argc, argv, TEST(rows_are_those_of_the_definition), TEST(never_worse_than_first_fit_and_near_the_best),
              TEST(windows_of_usual_lengths_are_full));
}
