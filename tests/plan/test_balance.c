/* test_balance.c - rows to ranks: all of them once, as even as they can be, beside brute force. */
#include "test.h"

#include "base/permutation.h"
#include "plan/balance.h"
#include "plan/planner.h"
#include "plan_lengths.h"

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
        const uint64_t cost = row[at].model + row[at].vision;
        if (rows[r] == room) continue;
        rows[r]++;
        load[r] += cost;
        if (load[r] < best) best = least_most(row, count, world, room, at + 1, load, rows, best);
        load[r] -= cost;
        rows[r]--;
        if (rows[r] == 0) break; /* the other empty ranks are like this one */
    }
    return best;
}

/* How far above the best the busiest rank is, in thousandths: at most, and in the mean. */
static void compare_with_the_best(stk_balance balance, uint64_t spread, bool even_rows, uint64_t *most, uint64_t *mean)
{
    enum { ROUNDS = 300 };
    uint64_t sum = 0;
    *most = 0;
    for (int round = 0; round < ROUNDS; round++) {
        stk_row_cost row[9];
        stk_deal_place place[9];
        const uint32_t world = 2 + (uint32_t)random_below(2), rank_rows = 2 + (uint32_t)random_below(2),
                       count = world * rank_rows - (even_rows ? 0 : (uint32_t)random_below(2));
        const stk_deal_rules rules = {.balance = balance, .world = world, .rank_rows = rank_rows, .micro_rows = rank_rows};
        for (uint32_t i = 0; i < count; i++) {
            const bool media = balance == STK_BALANCE_BOTH && random_below(2);
            row[i] = (stk_row_cost){1000 + random_below(spread), media ? random_below(500) : 0, media};
        }
        const loads l = deal(&rules, row, count, place);
        uint64_t load[3] = {0};
        uint32_t rows[3] = {0};
        const uint64_t best = least_most(row, count, world, rank_rows, 0, load, rows, UINT64_MAX), above = (l.most_all - best) * 1000 / best;
        CHECK(l.most_all >= best);
        sum += above;
        if (above > *most) *most = above;
    }
    *mean = sum / ROUNDS;
    fprintf(stderr, "above the best: %llu/1000 at most, %llu/1000 in the mean\n", (unsigned long long)*most, (unsigned long long)*mean);
}

static void small_cases_are_near_the_best(void)
{
    uint64_t most, mean;
    compare_with_the_best(STK_BALANCE_MODEL, 1000, true, &most, &mean);
    CHECK(most <= 40 && mean <= 5);
    compare_with_the_best(STK_BALANCE_MODEL, 20000, false, &most, &mean);
    CHECK(most <= 100 && mean <= 10);
    compare_with_the_best(STK_BALANCE_BOTH, 1000, true, &most, &mean);
    CHECK(most <= 200 && mean <= 20); /* two aims: the vision tower is evened out too, and few rows leave little choice */
}

/* One row that outweighs thousands of ranks: numbers stay in their range. */
static void one_huge_row_among_thousands_of_ranks(void)
{
    enum { RANKS = 4096 };
    static stk_row_cost row[RANKS];
    static stk_deal_place place[RANKS];
    for (uint32_t i = 0; i < RANKS; i++) row[i] = (stk_row_cost){.model = 1};
    row[77] = (stk_row_cost){(uint64_t)1 << 48, (uint64_t)1 << 48, true};
    const stk_deal_rules rules = {.balance = STK_BALANCE_BOTH, .world = RANKS, .rank_rows = 1, .micro_rows = 1};
    const loads l = deal(&rules, row, RANKS, place);
    CHECK_INT(l.most_vision, (uint64_t)1 << 48);
}

/* --- packed rows of mixed chats (tools/make-plan-lengths); 8 ranks of 4 rows --- */

enum { WORLD = 8, ROWS = 32, EPOCHS = 4 };

/* The costs of Qwen3-VL-8B, as src/engine/model_folder.c finds them. */
static const stk_model usual_model = {.patch_px = 16, .merge = 2, .temporal = 2, .min_px = 1024, .max_px = 1 << 24, .max_tokens = 262144,
                                      .costs = {.text_square = 327, .text_linear = 1 << 24, .vision_square = 138, .vision_linear = 911275}};

static stk_plan *plan_of_chats(stk_balance balance, stk_layout layout)
{
    static stk_record_facts record[PLAN_LENGTHS];
    static stk_text_facts text[PLAN_LENGTHS];
    static stk_media_facts media[PLAN_LENGTHS * PLAN_PICTURES_MOST];
    static const char *const files[] = {"chats.jsonl"};
    static stk_plan_set set;
    static const stk_batch_piece batch = {0, ROWS};
    uint64_t media_count = 0;
    for (uint32_t r = 0; r < PLAN_LENGTHS; r++) {
        const uint32_t pictures = plan_length[r].picture_count;
        record[r] = (stk_record_facts){.line = r + 1, .first_media = media_count, .media_count = pictures};
        text[r] = (stk_text_facts){.token_count = plan_length[r].text + pictures, .supervised_count = 1};
        for (uint32_t k = 0; k < pictures; k++)
            media[media_count++] = (stk_media_facts){.width_px = 32u * plan_length[r].picture[k][0], .height_px = 32u * plan_length[r].picture[k][1]};
    }
    set = (stk_plan_set){.name = "chats", .facts = {.record = record, .text = text, .media = media, .record_count = PLAN_LENGTHS, .media_count = media_count,
                                                    .file = files, .file_count = 1},
                         .pixels = {.min_px = 1024, .max_px = 1 << 24}, .epochs_milli = 1000};
    const stk_plan_config config = {.set = &set, .set_count = 1, .model = &usual_model, .batch = &batch, .batch_count = 1, .epochs = EPOCHS,
                                    .shuffle = true, .seed = 1, .layout = layout, .max_tokens = 16384, .pad_multiple = 1, .row_tokens = 16384,
                                    .segment_multiple = 1, .window = 4096, .balance = balance, .threads = 2};
    stk_error err;
    stk_plan *plan;
    CHECK_OK(stk_plan_create(&plan, &config, &err), err);
    return plan;
}

/* The largest row of a step, in both costs: no dealing can be below it. */
static stk_step_costs largest_row(const stk_plan *plan, stk_plan_scratch *scratch, uint64_t step)
{
    stk_error err;
    stk_step_costs costs;
    CHECK_OK(stk_plan_step_costs(plan, scratch, step, ROWS, false, &costs, &err), err);
    return costs;
}

/* Means over all full steps of max / mean, with balance and without. */
typedef struct evenness {
    double all, vision, plain_all, plain_vision;
} evenness;

static evenness measure(const stk_plan *plan)
{
    stk_error err;
    stk_plan_scratch *scratch;
    evenness sum = {0};
    CHECK_OK(stk_plan_scratch_create(&scratch, plan, &err), err);
    const uint64_t steps = stk_plan_step_count(plan) - 1; /* the last has filler */
    CHECK(steps > 100);
    for (uint64_t step = 0; step < steps; step++) {
        stk_step_costs even, plain;
        const stk_step_costs row = largest_row(plan, scratch, step);
        CHECK_OK(stk_plan_step_costs(plan, scratch, step, WORLD, true, &even, &err), err);
        CHECK_OK(stk_plan_step_costs(plan, scratch, step, WORLD, false, &plain, &err), err);
        CHECK(even.sum_all == plain.sum_all && even.sum_vision == plain.sum_vision);
        CHECK(even.most_all <= plain.most_all);
        sum.all += (double)even.most_all * WORLD / (double)even.sum_all / (double)steps;
        sum.vision += (double)even.most_vision * WORLD / (double)even.sum_vision / (double)steps;
        sum.plain_all += (double)plain.most_all * WORLD / (double)plain.sum_all / (double)steps;
        sum.plain_vision += (double)plain.most_vision * WORLD / (double)plain.sum_vision / (double)steps;
        /* Never worse than 1.05 x the mean, or the largest row. */
        const double bound = 1.05 * (double)even.sum_all / WORLD;
        CHECK_MSG((double)even.most_all <= bound || even.most_all <= row.most_all, "step %llu: %.3f", (unsigned long long)step, (double)even.most_all * 1.05 / bound);
    }
    stk_plan_scratch_destroy(scratch);
    fprintf(stderr, "max / mean over %llu steps: all %.3f (plain %.3f), vision %.3f (plain %.3f)\n", (unsigned long long)steps, sum.all, sum.plain_all,
            sum.vision, sum.plain_vision);
    return sum;
}

static void packed_chats_are_even(void)
{
    stk_plan *const plan = plan_of_chats(STK_BALANCE_BOTH, STK_LAYOUT_PACKED);
    const evenness e = measure(plan);
    CHECK(e.all <= 1.02 && e.vision <= 1.06);
    CHECK(e.plain_all > 1.08 && e.plain_vision > 1.25); /* else there was nothing to do */
    stk_plan_destroy(plan);
}

/* Rows of a window are made longest first, and put into a random order: each quarter of an epoch's first window has its share of those that hold
 * a long sample. */
static void long_samples_do_not_cluster(void)
{
    enum { LONG = 6000, QUARTERS = 4 };
    stk_plan *const plan = plan_of_chats(STK_BALANCE_NONE, STK_LAYOUT_PACKED);
    stk_error err;
    stk_plan_scratch *scratch;
    stk_pool pool;
    stk_pool_init(&pool, STK_TAG_PLAN);
    CHECK_OK(stk_plan_scratch_create(&scratch, plan, &err), err);
    const uint64_t steps = stk_plan_epoch_rows(plan, 0) / 2 / ROWS; /* 8,192 samples are two windows */
    uint64_t with[QUARTERS] = {0}, all = 0;
    for (uint64_t step = 0; step < steps; step++) {
        stk_recipe recipe;
        uint32_t longest[ROWS] = {0};
        stk_pool_reset(&pool);
        CHECK_OK(stk_plan_recipe(plan, scratch, step, 0, 1, 0, &pool, &recipe, &err), err);
        for (uint32_t i = 0; i < recipe.sample_count; i++) {
            const stk_recipe_sample *const s = &recipe.sample[i];
            if (s->token_count > longest[s->row]) longest[s->row] = s->token_count;
        }
        for (uint32_t r = 0; r < ROWS; r++) {
            with[step * QUARTERS / steps] += longest[r] >= LONG;
            all += longest[r] >= LONG;
        }
    }
    CHECK_MSG(all > 60, "%llu rows with a long sample", (unsigned long long)all);
    for (int q = 0; q < QUARTERS; q++) CHECK_MSG(with[q] * 100 > 12 * all && with[q] * 100 < 40 * all, "quarter %d has %llu of %llu", q, (unsigned long long)with[q], (unsigned long long)all);
    stk_plan_scratch_destroy(scratch);
    stk_pool_deinit(&pool);
    stk_plan_destroy(plan);
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
    TEST_MAIN(argc, argv, TEST(every_row_has_one_place), TEST(without_balance_rows_go_round), TEST(small_cases_are_near_the_best), TEST(one_huge_row_among_thousands_of_ranks),
              TEST(packed_chats_are_even), TEST(long_samples_do_not_cluster), TEST(aligned_columns_have_media_on_all_ranks_or_on_none));
}
