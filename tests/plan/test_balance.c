/* test_balance.c - rows to ranks: all of them once, as even as they can be, beside brute force. */
#include "test.h"

#include "base/permutation.h"
#include "plan/balance.h"

static uint64_t state = 1;

static uint64_t random_below(uint64_t bound)
{
    return stk_mix64(state++) % bound;
}

typedef struct loads {
    uint64_t most_all, most_vision, sum_all, sum_vision;
} loads;

/* Every row has a place within its bounds; the load of the ranks. */
static loads check(const stk_deal_rules *rules, const stk_row_cost *row, uint32_t count, const stk_deal_place *place)
{
    const uint32_t micros = (rules->rank_rows + rules->micro_rows - 1) / rules->micro_rows;
    uint64_t *const all = calloc(rules->world, sizeof *all), *const vision = calloc(rules->world, sizeof *vision);
    uint32_t *const rows = calloc((size_t)rules->world * micros, sizeof *rows);
    loads l = {0};
    for (uint32_t i = 0; i < count; i++) {
        CHECK(place[i].rank < rules->world && place[i].micro < micros);
        CHECK(++rows[place[i].rank * micros + place[i].micro] <= rules->micro_rows);
        all[place[i].rank] += row[i].model + row[i].vision;
        vision[place[i].rank] += row[i].vision;
    }
    for (uint32_t r = 0; r < rules->world; r++) {
        uint32_t of_rank = 0;
        for (uint32_t m = 0; m < micros; m++) of_rank += rows[r * micros + m];
        CHECK(of_rank <= rules->rank_rows);
        if (all[r] > l.most_all) l.most_all = all[r];
        if (vision[r] > l.most_vision) l.most_vision = vision[r];
        l.sum_all += all[r];
        l.sum_vision += vision[r];
    }
    free(all);
    free(vision);
    free(rows);
    return l;
}

static loads deal(const stk_deal_rules *rules, const stk_row_cost *row, uint32_t count, stk_deal_place *place)
{
    stk_error err;
    stk_dealer *dealer;
    CHECK_OK(stk_dealer_create(&dealer, &err), err);
    CHECK_OK(stk_deal(dealer, rules, row, count, place, &err), err);
    stk_deal_place *const again = calloc(count + 1, sizeof *again);
    CHECK_OK(stk_deal(dealer, rules, row, count, again, &err), err);
    CHECK(memcmp(place, again, count * sizeof *place) == 0);
    free(again);
    stk_dealer_destroy(dealer);
    return check(rules, row, count, place);
}

static void every_row_has_one_place(void)
{
    for (int round = 0; round < 2000; round++) {
        stk_row_cost row[64];
        stk_deal_place place[64];
        const uint32_t world = 1 + (uint32_t)random_below(9), count = (uint32_t)random_below(65);
        stk_deal_rules rules = {.balance = (stk_balance)random_below(3), .aligned = random_below(2), .world = world,
                                .rank_rows = (count + world - 1) / world + (uint32_t)random_below(2)};
        if (rules.rank_rows == 0) rules.rank_rows = 1;
        rules.micro_rows = 1 + (uint32_t)random_below(rules.rank_rows);
        for (uint32_t i = 0; i < count; i++) {
            const bool media = random_below(2);
            row[i] = (stk_row_cost){1 + random_below((uint64_t)1 << random_below(45)), media ? random_below((uint64_t)1 << random_below(45)) : 0, media};
        }
        (void)deal(&rules, row, count, place);
    }
}

static void without_balance_rows_go_round(void)
{
    stk_row_cost row[20] = {{0}};
    stk_deal_place place[20];
    const stk_deal_rules rules = {.balance = STK_BALANCE_NONE, .world = 3, .rank_rows = 7, .micro_rows = 2};
    (void)deal(&rules, row, 20, place);
    for (uint32_t i = 0; i < 20; i++) CHECK(place[i].rank == i % 3 && place[i].micro == i / 3 / 2);
}

/* The least that the busiest rank can have, by trying all ways. */
static uint64_t least_most(const stk_row_cost *row, uint32_t count, uint32_t world, uint32_t room, uint32_t at, uint64_t *load, uint32_t *rows, uint64_t best)
{
    if (at == count) {
        uint64_t most = 0;
        for (uint32_t r = 0; r < world; r++) most = load[r] > most ? load[r] : most;
        return most < best ? most : best;
    }
    for (uint32_t r = 0; r < world; r++) {
        if (rows[r] == room) continue;
        rows[r]++;
        load[r] += row[at].model;
        if (load[r] < best) best = least_most(row, count, world, room, at + 1, load, rows, best);
        load[r] -= row[at].model;
        rows[r]--;
    }
    return best;
}

/* Never worse than max(1.05 x mean, the largest row), where there are rows enough to even out; near the best on small cases. */
static void small_cases_are_near_the_best(void)
{
    uint64_t worst = 0;
    for (int round = 0; round < 300; round++) {
        stk_row_cost row[9];
        stk_deal_place place[9];
        const uint32_t world = 2 + (uint32_t)random_below(2), count = world * (2 + (uint32_t)random_below(2));
        const stk_deal_rules rules = {.balance = STK_BALANCE_MODEL, .world = world, .rank_rows = count / world, .micro_rows = count / world};
        for (uint32_t i = 0; i < count; i++) row[i] = (stk_row_cost){.model = 1000 + random_below(1000)};
        const loads l = deal(&rules, row, count, place);
        uint64_t load[3] = {0};
        uint32_t rows[3] = {0};
        const uint64_t best = least_most(row, count, world, count / world, 0, load, rows, UINT64_MAX);
        const uint64_t above = (l.most_all - best) * 10000 / best;
        if (above > worst) worst = above;
    }
    CHECK_MSG(worst <= 400, "%llu / 10000 above the best", (unsigned long long)worst);
}

/* Packed rows of mixed chats: text, an image, several; 8 ranks of 4 rows. */
static void packed_rows_are_even(void)
{
    enum { ROWS = 32, STEPS = 200, WORLD = 8 };
    double all = 0, vision = 0, plain_all = 0, plain_vision = 0;
    for (int step = 0; step < STEPS; step++) {
        stk_row_cost row[ROWS];
        stk_deal_place place[ROWS];
        for (uint32_t i = 0; i < ROWS; i++) {
            uint64_t model = 0, pictures = 0, left = 16384;
            while (left > 200) {
                const uint64_t kind = random_below(10), text = 60 + random_below(1 + random_below(3000));
                const uint64_t tokens = kind < 4 ? 0 : (kind < 8 ? 1 : 2 + random_below(4)) * (250 + random_below(2200));
                const uint64_t length = text + tokens < left ? text + tokens : left, seen = tokens < length ? tokens : length;
                model += 16000 * length + length * length / 3;
                pictures += 4 * seen * 3000 + 16 * seen * seen / 10;
                left -= length;
            }
            row[i] = (stk_row_cost){model, pictures, pictures > 0};
        }
        stk_deal_rules rules = {.balance = STK_BALANCE_BOTH, .world = WORLD, .rank_rows = 4, .micro_rows = 1};
        const loads l = deal(&rules, row, ROWS, place);
        all += (double)l.most_all * WORLD / (double)l.sum_all / STEPS;
        vision += (double)l.most_vision * WORLD / (double)l.sum_vision / STEPS;
        rules.balance = STK_BALANCE_NONE;
        const loads none = deal(&rules, row, ROWS, place);
        plain_all += (double)none.most_all * WORLD / (double)none.sum_all / STEPS;
        plain_vision += (double)none.most_vision * WORLD / (double)none.sum_vision / STEPS;
    }
    fprintf(stderr, "max/mean: all %.3f (plain %.3f), vision %.3f (plain %.3f)\n", all, plain_all, vision, plain_vision);
    CHECK(all <= 1.02 && vision <= 1.06 && plain_all > 1.05 && plain_vision > 1.15);
}

/* modality: aligned: micro-batches of one number have media on all ranks or on none. */
static void aligned_columns_have_media_on_all_ranks_or_on_none(void)
{
    for (int round = 0; round < 500; round++) {
        stk_row_cost row[48];
        stk_deal_place place[48];
        const uint32_t world = 1 + (uint32_t)random_below(6), rank_rows = 1 + (uint32_t)random_below(8), count = world * rank_rows;
        const stk_deal_rules rules = {.balance = STK_BALANCE_BOTH, .aligned = true, .world = world, .rank_rows = rank_rows,
                                      .micro_rows = 1 + (uint32_t)random_below(rank_rows)};
        uint32_t media = 0;
        for (uint32_t i = 0; i < count; i++) {
            row[i] = (stk_row_cost){100 + random_below(100), 0, random_below(3) > 0};
            if (row[i].has_media) row[i].vision = 1 + random_below(1000);
            media += row[i].has_media;
        }
        (void)deal(&rules, row, count, place);
        const uint32_t micros = (rank_rows + rules.micro_rows - 1) / rules.micro_rows;
        uint32_t ranks_with[8] = {0};
        for (uint32_t m = 0; m < micros; m++)
            for (uint32_t r = 0; r < world; r++) {
                bool has = false;
                for (uint32_t i = 0; i < count; i++) has |= place[i].rank == r && place[i].micro == m && row[i].has_media;
                ranks_with[m] += has;
            }
        /* At most one column is mixed: that of the rows which the ranks do not divide. */
        uint32_t mixed = 0;
        for (uint32_t m = 0; m < micros; m++) mixed += ranks_with[m] > 0 && ranks_with[m] < world;
        CHECK(mixed <= 1);
        if (media % world == 0) CHECK_INT(mixed, 0);
    }
}

int main(int argc, char **argv)
{
    TEST_MAIN(argc, argv, TEST(every_row_has_one_place), TEST(without_balance_rows_go_round), TEST(small_cases_are_near_the_best),
              TEST(packed_rows_are_even), TEST(aligned_columns_have_media_on_all_ranks_or_on_none));
}
