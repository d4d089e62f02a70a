/* made_case.h - random plans over data sets in memory, and what should become of every record, worked out in another way.
 *
 * A case follows from its number alone, so that a failure names it. */
#ifndef STK_MADE_CASE_H
#define STK_MADE_CASE_H

#include "test.h"

#include "base/permutation.h"
#include "plan/planner.h"

enum { MADE_SETS = 4, MADE_RECORDS = 120, MADE_MEDIA = 3 };

static const stk_model made_model = {.patch_px = 16, .merge = 2, .temporal = 2, .min_px = 65536, .max_px = 16777216, .max_tokens = 262144,
                                     .costs = {.text_square = 680, .text_linear = 1 << 24, .vision_square = 1200, .vision_linear = 1 << 22}};

typedef struct made_case {
    uint64_t number, state;
    stk_record_facts record[MADE_SETS][MADE_RECORDS];
    stk_text_facts text[MADE_SETS][MADE_RECORDS];
    stk_media_facts media[MADE_SETS][MADE_RECORDS * MADE_MEDIA];
    stk_where where[MADE_SETS];
    int where_rule[MADE_SETS];
    stk_plan_set set[MADE_SETS];
    stk_batch_piece batch[3];
    stk_plan_config config;

    stk_record_size size[MADE_SETS][MADE_RECORDS]; /* as derived under the case's limits */
    bool takes_part[MADE_SETS][MADE_RECORDS];
    uint64_t part_count[MADE_SETS];
} made_case;

static inline uint64_t made_below(made_case *c, uint64_t bound)
{
    return stk_mix64(c->number * 0x10001 + stk_mix64(c->state++)) % bound;
}

/* --- where, and what it should mean --- */

static const char *const made_where_text[] = {NULL, "images > 0", "tokens < 300 or images == 0", "not (supervised >= 8) and line != 3"};

static inline bool made_where_holds(int rule, const made_case *c, uint32_t set, uint64_t r)
{
    const uint32_t images = c->record[set][r].media_count;
    switch (rule) {
    case 1: return images > 0;
    case 2: return c->size[set][r].token_count < 300 || images == 0;
    case 3: return c->text[set][r].supervised_count < 8 && c->record[set][r].line != 3;
    default: return true;
    }
}

/* --- making --- */

static inline void made_set_fill(made_case *c, uint32_t s, uint64_t records)
{
    static const char *const names[MADE_SETS] = {"one", "two", "three", "four"};
    static const char *const files[] = {"made.jsonl"};
    uint64_t media_count = 0;
    const uint64_t text_most = 1 + made_below(c, 400);
    for (uint64_t r = 0; r < records; r++) {
        const uint32_t images = made_below(c, 3) ? (uint32_t)made_below(c, MADE_MEDIA + 1) : 0;
        c->record[s][r] = (stk_record_facts){.line = r + 1, .first_media = media_count, .media_count = images,
                                             .reason = made_below(c, 9) ? STK_REASON_NONE : STK_REASON_TAGS};
        c->text[s][r] = (stk_text_facts){.token_count = (uint32_t)(2 + made_below(c, text_most)) + images,
                                         .supervised_count = (uint32_t)(1 + made_below(c, 16)),
                                         .reason = made_below(c, 17) ? STK_REASON_NONE : STK_REASON_TEMPLATE};
        for (uint32_t i = 0; i < images; i++)
            c->media[s][media_count++] = (stk_media_facts){.width_px = (uint32_t)(40 + made_below(c, 700)),
                                                           .height_px = (uint32_t)(40 + made_below(c, 500)),
                                                           .orientation = (uint8_t)(1 + made_below(c, 8)),
                                                           .reason = made_below(c, 60) ? STK_REASON_NONE : STK_REASON_BROKEN};
    }
    c->where_rule[s] = made_below(c, 2) ? 0 : (int)made_below(c, 4);
    if (made_where_text[c->where_rule[s]]) {
        stk_error err;
        CHECK_OK(stk_where_parse(&c->where[s], made_where_text[c->where_rule[s]], &err), err);
    }
    c->set[s] = (stk_plan_set){.name = names[s],
                               .facts = {.record = c->record[s], .text = c->text[s], .media = c->media[s], .record_count = records,
                                         .media_count = media_count, .file = files, .file_count = 1},
                               .pixels = {.min_px = 4096, .max_px = made_below(c, 2) ? 1 << 20 : 40000,
                                          .shrinks_overlong = made_below(c, 3) == 0},
                               .where = made_where_text[c->where_rule[s]] ? &c->where[s] : NULL,
                               .first = made_below(c, 4) ? 0 : 1 + made_below(c, records + 10),
                               .epochs_milli = 1000};
}

static inline void made_rates(made_case *c)
{
    const uint64_t kind = made_below(c, 4);
    for (uint32_t s = 0; s < c->config.set_count; s++) {
        if (kind == 0) c->set[s].weight = (double)(1 + made_below(c, 1000)) / 100;
        if (kind == 1) c->set[s].epochs_milli = (uint32_t)(1 + made_below(c, 3000));
        if (kind == 2 && made_below(c, 2)) c->set[s].epochs_milli = (uint32_t)(500 * (1 + made_below(c, 5)));
    }
    c->config.weights_of_tokens = kind == 0 && made_below(c, 2);
}

static inline void made_batch(made_case *c)
{
    uint64_t step = 0;
    c->config.batch = c->batch;
    c->config.batch_count = 1 + (uint32_t)(made_below(c, 2) * made_below(c, 3));
    uint64_t least = UINT64_MAX;
    for (uint32_t i = 0; i < c->config.batch_count; i++) {
        c->batch[i] = (stk_batch_piece){step, 1 + made_below(c, 24)};
        step += 1 + made_below(c, 9);
        if (c->batch[i].batch < least) least = c->batch[i].batch;
    }
    c->config.micro_batch = made_below(c, 3) ? made_below(c, least + 1) : 0;
}

/* What takes part: usable, as `where` says, and the first so many of those. */
static inline void made_expect(made_case *c)
{
    const uint32_t most = stk_plan_sample_tokens(&c->config);
    for (uint32_t s = 0; s < c->config.set_count; s++) {
        const stk_plan_set *const set = &c->set[s];
        for (uint64_t r = 0; r < set->facts.record_count; r++) {
            stk_record_derive(&c->size[s][r], &set->facts, r, &made_model, &set->pixels, most);
            if (c->size[s][r].reason != STK_REASON_NONE || !made_where_holds(c->where_rule[s], c, s, r)) continue;
            if (set->first && c->part_count[s] == set->first) continue;
            c->takes_part[s][r] = true;
            c->part_count[s]++;
        }
    }
}

/* The case of a number; the same every time. */
static inline void made_case_init(made_case *c, uint64_t number)
{
    memset(c, 0, sizeof *c);
    c->number = number;
    c->config = (stk_plan_config){.set = c->set, .set_count = 1 + (uint32_t)made_below(c, MADE_SETS), .model = &made_model, .epochs = 1 + made_below(c, 3),
                                  .shuffle = made_below(c, 4) > 0, .seed = made_below(c, 1000), .layout = (stk_layout)made_below(c, 3),
                                  .max_tokens = made_below(c, 4) ? 262144 : 200 + (uint32_t)made_below(c, 600),
                                  .pad_multiple = 1u << made_below(c, 5), .segment_multiple = 1u << made_below(c, 4),
                                  .window = 1 + (uint32_t)made_below(c, 90), .balance = (stk_balance)made_below(c, 3),
                                  .aligned = made_below(c, 4) == 0, .filler_image = made_below(c, 4) == 0,
                                  .threads = 1 + (uint32_t)made_below(c, 3)};
    /* A multiple of both multiples. */
    c->config.row_tokens = 16 * (20 + (uint32_t)made_below(c, 150));
    if (c->config.layout == STK_LAYOUT_PADDED && made_below(c, 3) == 0) c->config.pad_to = c->config.row_tokens;
    if (made_below(c, 4) == 0) c->config.steps = 1 + made_below(c, 30);
    for (uint32_t s = 0; s < c->config.set_count; s++) made_set_fill(c, s, 1 + made_below(c, MADE_RECORDS));
    made_rates(c);
    made_batch(c);
    made_expect(c);
}

/* Whether every set has a record that takes part: what a plan needs. */
static inline bool made_case_has_all(const made_case *c)
{
    for (uint32_t s = 0; s < c->config.set_count; s++)
        if (c->part_count[s] == 0) return false;
    return true;
}

/* --- recipes as numbers --- */

static inline uint64_t made_fold(uint64_t sum, uint64_t value)
{
    return stk_mix64(sum * 31 + value);
}

/* A digest over everything that a recipe says. */
static inline uint64_t made_recipe_digest(const stk_recipe *r)
{
    uint64_t sum = made_fold(r->step, r->rank);
    const uint64_t head[] = {r->world, r->micro, r->micro_count, r->epoch, r->rows_before, r->row_count, r->row_tokens, r->segment_multiple,
                             r->token_count, r->patch_count, r->loss_tokens, r->step_loss_tokens, r->sample_count, r->media_count};
    for (size_t i = 0; i < sizeof head / sizeof *head; i++) sum = made_fold(sum, head[i]);
    for (uint32_t i = 0; i < r->row_count; i++) sum = made_fold(sum, r->step_row[i]);
    for (uint32_t i = 0; i < r->sample_count; i++) {
        const stk_recipe_sample *const s = &r->sample[i];
        const uint64_t values[] = {s->filler, s->set_index, s->record_index, s->row, s->first_token, s->token_count, s->supervised_count,
                                   s->first_media, s->media_count};
        for (size_t k = 0; k < sizeof values / sizeof *values; k++) sum = made_fold(sum, values[k]);
    }
    for (uint32_t i = 0; i < r->media_count; i++) {
        const stk_recipe_media *const m = &r->media[i];
        const uint64_t values[] = {m->media_index, m->width_px, m->height_px, m->grid.t, m->grid.h, m->grid.w, m->first_patch};
        for (size_t k = 0; k < sizeof values / sizeof *values; k++) sum = made_fold(sum, values[k]);
    }
    return sum;
}

#endif
