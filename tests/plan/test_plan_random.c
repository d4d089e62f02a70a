/* test_plan_random.c - thousands of random plans: what holds of every one of them. */
#include "made_case.h"

#include <pthread.h>

#include "plan/window.h"

static made_case c; /* the case at hand */

/* What a run over one number of ranks came to. */
typedef struct seen {
    uint64_t *row;         /* digest of what is in each row of the run */
    uint64_t *loss;        /* of each row */
    uint64_t rows, steps;
    stk_plan_scratch *scratch;
    stk_pool pool;
} seen;

static seen seen_of(const stk_plan *plan)
{
    stk_error err;
    seen s = {.rows = stk_plan_row_count(plan), .steps = stk_plan_step_count(plan)};
    s.row = calloc(s.rows + 1, sizeof *s.row);
    s.loss = calloc(s.rows + 1, sizeof *s.loss);
    CHECK(s.row && s.loss);
    CHECK_OK(stk_plan_scratch_create(&s.scratch, plan, &err), err);
    stk_pool_init(&s.pool, STK_TAG_PLAN);
    return s;
}

static void seen_free(seen *s)
{
    free(s->row);
    free(s->loss);
    stk_plan_scratch_destroy(s->scratch);
    stk_pool_deinit(&s->pool);
}

/* How often each record was drawn in an epoch. */
typedef uint32_t draws[MADE_SETS][MADE_RECORDS];

/* --- one recipe --- */

/* A sample is what its facts say. */
static void check_sample(const stk_recipe *r, const stk_recipe_sample *s, uint64_t *first_patch)
{
    CHECK(s->set_index < c.config.set_count && s->record_index < c.set[s->set_index].facts.record_count);
    CHECK(c.takes_part[s->set_index][s->record_index]);
    const stk_record_size *const size = &c.size[s->set_index][s->record_index];
    const stk_record_facts *const record = &c.record[s->set_index][s->record_index];
    CHECK_INT(s->token_count, size->token_count);
    CHECK_INT(s->supervised_count, size->supervised_count);
    CHECK_INT(s->media_count, record->media_count);
    const stk_pixel_rules pixels = stk_pixels_limited(&c.set[s->set_index].pixels, size->max_px);
    uint64_t visual = 0;
    for (uint32_t m = 0; m < s->media_count; m++) {
        const stk_recipe_media *const media = &r->media[s->first_media + m];
        stk_grid grid;
        CHECK_INT(media->media_index, record->first_media + m);
        CHECK_INT(stk_media_grid(&grid, &c.media[s->set_index][media->media_index], &made_model, &pixels), STK_REASON_NONE);
        CHECK(memcmp(&grid, &media->grid, sizeof grid) == 0);
        CHECK(media->width_px == grid.w * 16 && media->height_px == grid.h * 16);
        CHECK_INT(media->first_patch, *first_patch);
        *first_patch += stk_grid_patches(grid);
        visual += stk_grid_tokens(grid, 2);
    }
    CHECK_INT(visual, size->visual_tokens);
}

/* A filler has one token and no more; or it is the image that stands for a micro-batch without any. */
static void check_filler(const stk_recipe *r, const stk_recipe_sample *s, uint64_t *first_patch)
{
    CHECK(s->supervised_count == 0 && s->media_count <= 1);
    CHECK_INT(s->token_count, s->media_count ? 3 : 1);
    if (!s->media_count) return;
    const stk_recipe_media *const media = &r->media[s->first_media];
    CHECK(media->media_index == STK_FILLER_MEDIA && media->first_patch == *first_patch);
    CHECK_INT(stk_grid_tokens(media->grid, 2), 1);
    *first_patch += stk_grid_patches(media->grid);
}

/* Samples stand one behind the other, none over another or over the end of its row. */
static void check_places(const stk_recipe *r)
{
    const bool flat = c.config.layout == STK_LAYOUT_FLAT;
    const uint32_t multiple = c.config.layout == STK_LAYOUT_PACKED ? c.config.segment_multiple : 1;
    uint64_t end = 0, longest = 0;
    CHECK_INT(r->segment_multiple, multiple);
    for (uint32_t i = 0; i < r->sample_count; i++) {
        const stk_recipe_sample *const s = &r->sample[i];
        CHECK(s->row < r->row_count && s->token_count > 0);
        if (i == 0) CHECK_INT(s->row, 0);
        else CHECK(s->row == r->sample[i - 1].row || s->row == r->sample[i - 1].row + 1);
        if (i > 0 && !flat && s->row != r->sample[i - 1].row) end = 0;
        CHECK_INT(s->first_token % multiple, 0);
        CHECK(s->first_token >= end && s->first_token - end < multiple);
        end = (uint64_t)s->first_token + s->token_count;
        CHECK(end <= r->row_tokens);
        if (end > longest) longest = end;
    }
    CHECK_INT(r->sample[r->sample_count - 1].row, r->row_count - 1); /* no row is empty */
    if (c.config.layout == STK_LAYOUT_PACKED) CHECK_INT(r->row_tokens, c.config.row_tokens);
    else if (c.config.pad_to) CHECK_INT(r->row_tokens, c.config.pad_to);
    else CHECK(r->row_tokens % c.config.pad_multiple == 0 && r->row_tokens - longest < c.config.pad_multiple);
}

/* Check a recipe by itself, and note its rows.  Returns how many images are the data's. */
static uint32_t check_recipe(const stk_recipe *r, seen *s, uint64_t first_row, draws *drawn)
{
    uint64_t tokens = 0, loss = 0, first_patch = 0;
    uint32_t media = 0, images = 0;
    check_places(r);
    for (uint32_t i = 0; i < r->sample_count; i++) {
        const stk_recipe_sample *const sample = &r->sample[i];
        CHECK_INT(sample->first_media, media);
        media += sample->media_count;
        tokens += sample->token_count;
        loss += sample->supervised_count;
        if (sample->filler) {
            check_filler(r, sample, &first_patch);
            continue;
        }
        check_sample(r, sample, &first_patch);
        images += sample->media_count;
        const uint32_t step_row = r->step_row[sample->row];
        CHECK(step_row != UINT32_MAX);
        uint64_t *const row = &s->row[first_row + step_row];
        *row = made_fold(made_fold(*row, sample->set_index), made_fold(sample->first_token * (c.config.layout != STK_LAYOUT_FLAT), sample->record_index));
        s->loss[first_row + step_row] += sample->supervised_count;
        if (drawn) (*drawn)[sample->set_index][sample->record_index]++;
    }
    CHECK_INT(r->media_count, media);
    CHECK_INT(r->patch_count, first_patch);
    CHECK_INT(r->token_count, tokens);
    CHECK_INT(r->loss_tokens, loss);
    return images;
}

/* --- one step --- */

static uint32_t filler_images(const stk_recipe *r)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < r->sample_count; i++) count += r->sample[i].filler && r->sample[i].media_count;
    return count;
}

/* Invariants 2 and 3 of one step: its rows are dealt out once, filler only where there is no row, all ranks have as much to do. */
static void check_step(const stk_plan *plan, seen *s, uint64_t step, uint64_t first_row, uint32_t world, draws *drawn)
{
    const uint64_t rows = stk_plan_step_rows(plan, step);
    const uint32_t micros = stk_plan_micro_count(plan, step, world), micro_rows = stk_plan_micro_rows(plan, step, world);
    CHECK_INT(micros, (stk_plan_rank_rows(plan, step, world) + micro_rows - 1) / micro_rows);
    uint64_t planned = 0, loss = 0, filler = 0;
    uint8_t dealt[64] = {0};
    for (uint32_t micro = 0; micro < micros; micro++) {
        uint32_t with_images = 0, with_filler_image = 0, without = 0;
        for (uint32_t rank = 0; rank < world; rank++) {
            stk_error err;
            stk_recipe r;
            stk_pool_reset(&s->pool);
            CHECK_OK(stk_plan_recipe(plan, s->scratch, step, rank, world, micro, &s->pool, &r, &err), err);
            CHECK(r.step == step && r.rank == rank && r.world == world && r.micro == micro && r.micro_count == micros);
            CHECK_INT(r.row_count, micro_rows);
            const bool images = check_recipe(&r, s, first_row, drawn) > 0;
            const uint32_t fillers = filler_images(&r);
            CHECK(fillers <= 1 && !(images && fillers));
            with_images += images;
            with_filler_image += fillers;
            without += !images && !fillers;
            for (uint32_t i = 0; i < r.row_count; i++) {
                if (r.step_row[i] == UINT32_MAX) {
                    filler++;
                    continue;
                }
                CHECK(r.step_row[i] < rows && rows <= sizeof dealt);
                CHECK_INT(dealt[r.step_row[i]]++, 0);
                if (i > 0) CHECK(r.step_row[i - 1] < r.step_row[i]);
            }
            if (micro || rank) CHECK_INT(planned, r.step_loss_tokens);
            planned = r.step_loss_tokens;
            loss += r.loss_tokens;
        }
        /* A filler image stands where it was asked for, or where other ranks have images in this column; else nowhere. */
        if (c.config.filler_image || (c.config.aligned && with_images)) CHECK_INT(without, 0);
        else CHECK_INT(with_filler_image, 0);
    }
    for (uint64_t i = 0; i < rows; i++) CHECK_INT(dealt[i], 1);
    CHECK_INT(rows + filler, (uint64_t)world * micros * micro_rows);
    CHECK_INT(planned, loss);
}

/* --- one run --- */

/* Invariant 3: what an epoch has drawn, and all epochs so far. */
static void check_epoch(uint64_t epoch, draws *of_epoch, draws *of_run)
{
    double rates = 0, epoch_draws = 0;
    bool once = true;
    for (uint32_t s = 0; s < c.config.set_count; s++) {
        rates += c.set[s].weight;
        epoch_draws += (double)c.part_count[s] * c.set[s].epochs_milli / 1000;
        once = once && c.set[s].weight == 0 && c.set[s].epochs_milli == 1000;
    }
    for (uint32_t s = 0; s < c.config.set_count; s++) {
        uint64_t sum = 0, most = 0, least = UINT64_MAX;
        for (uint64_t r = 0; r < c.set[s].facts.record_count; r++) {
            const uint32_t count = (*of_run)[s][r] += (*of_epoch)[s][r];
            if (once) CHECK_INT((*of_epoch)[s][r], c.takes_part[s][r]);
            if (!c.takes_part[s][r]) continue;
            sum += count;
            if (count > most) most = count;
            if (count < least) least = count;
        }
        CHECK(most - least <= 1); /* none twice before all were once */
        if (c.config.weights_of_tokens) continue; /* shares of tokens: weights_by_tokens_share_out_tokens */
        const double share = (double)(epoch + 1) * (rates > 0 ? epoch_draws * c.set[s].weight / rates : (double)c.part_count[s] * c.set[s].epochs_milli / 1000);
        CHECK_MSG((double)sum - share < 2 && share - (double)sum < 2, "case %llu: set %u, epoch %llu: %llu draws, not %.2f",
                  (unsigned long long)c.number, s, (unsigned long long)epoch, (unsigned long long)sum, share);
    }
    memset(of_epoch, 0, sizeof *of_epoch);
}

/* The rows of the run over one number of ranks. */
static seen walk(const stk_plan *plan, uint32_t world, bool counts)
{
    static draws of_epoch, of_run;
    memset(of_epoch, 0, sizeof of_epoch);
    memset(of_run, 0, sizeof of_run);
    seen s = seen_of(plan);
    uint64_t first_row = 0, epoch = 0, epoch_end = stk_plan_epoch_rows(plan, 0);
    for (uint64_t step = 0; step < s.steps; step++) {
        const uint64_t rows = stk_plan_step_rows(plan, step);
        CHECK(rows > 0);
        /* Draws are summed up by epoch where steps do not cross it: a batch of one. */
        check_step(plan, &s, step, first_row, world, counts ? &of_epoch : NULL);
        first_row += rows;
        while (counts && first_row == epoch_end) {
            check_epoch(epoch++, &of_epoch, &of_run);
            if (first_row == s.rows) break;
            epoch_end += stk_plan_epoch_rows(plan, epoch);
        }
    }
    CHECK_INT(first_row, s.rows);
    return s;
}

/* Positions name their steps, and schedules their micro-batches, there and back (invariant 8). */
static void check_positions(const stk_plan *plan, uint32_t world)
{
    stk_error err;
    uint64_t row = 0, micros = 0;
    const uint64_t steps = stk_plan_step_count(plan);
    for (uint64_t step = 0; step <= steps; step++) {
        uint64_t epoch, rows, back, before = 0;
        stk_plan_position(plan, step, &epoch, &rows);
        CHECK_OK(stk_plan_step_at(plan, epoch, rows, &back, &err), err);
        CHECK_INT(back, step);
        for (uint64_t e = 0; e < epoch; e++) before += stk_plan_epoch_rows(plan, e);
        CHECK_INT(before + rows, row);
        CHECK_INT(stk_plan_micros_before(plan, step, world), micros);
        if (step == steps) break;
        CHECK(rows < stk_plan_epoch_rows(plan, epoch));
        const uint32_t count = stk_plan_micro_count(plan, step, world);
        for (uint32_t i = 0; i < count; i++, micros++) {
            uint64_t at;
            uint32_t micro;
            stk_plan_micro_at(plan, micros, world, &at, &micro);
            CHECK(at == step && micro == i);
        }
        /* In the middle of a step no step starts. */
        if (stk_plan_step_rows(plan, step) > 1 && rows + 1 < stk_plan_epoch_rows(plan, epoch)) {
            CHECK_INT(stk_plan_step_at(plan, epoch, rows + 1, &back, &err), STK_ERR_STATE);
        }
        row += stk_plan_step_rows(plan, step);
    }
    CHECK_INT(row, stk_plan_row_count(plan));
}

/* A case without a record for every set, or without a whole sample in an epoch, is refused, and no other. */
static stk_plan *plan_of_case(uint64_t number)
{
    stk_error err;
    stk_plan *plan;
    made_case_init(&c, number);
    uint64_t parts = 0;
    bool weighted = false;
    for (uint32_t s = 0; s < c.config.set_count; s++) {
        parts += c.part_count[s] * c.set[s].epochs_milli;
        weighted |= c.set[s].weight > 0;
    }
    const stk_status status = stk_plan_create(&plan, &c.config, &err);
    if (made_case_has_all(&c) && (weighted || parts >= 1000)) {
        CHECK_MSG(status == STK_OK, "case %llu: %s", (unsigned long long)number, err.message);
        return plan;
    }
    CHECK_INT(status, STK_ERR_OPTION);
    CHECK(plan == NULL && err.message[0]);
    return NULL;
}

enum { CASES = 3000 };

static void random_plans_keep_their_promises(void)
{
    uint64_t planned = 0, rows = 0;
    for (uint64_t number = 0; number < CASES; number++) {
        stk_plan *plan = plan_of_case(number);
        if (!plan) continue;
        const uint32_t world = 1 + (uint32_t)made_below(&c, 9), other = 1 + (uint32_t)made_below(&c, 9);
        check_positions(plan, world);
        seen one = walk(plan, world, false);
        stk_plan_destroy(plan);

        /* Invariant 2: another number of ranks, other micro-batches: the same rows, and the same sums. */
        uint64_t least = UINT64_MAX;
        for (uint32_t i = 0; i < c.config.batch_count; i++)
            if (c.batch[i].batch < least) least = c.batch[i].batch;
        c.config.micro_batch = made_below(&c, least + 1);
        c.config.balance = (stk_balance)made_below(&c, 3);
        stk_error err;
        CHECK_OK(stk_plan_create(&plan, &c.config, &err), err);
        seen two = walk(plan, other, false);
        CHECK(two.rows == one.rows && two.steps == one.steps);
        CHECK_MSG(memcmp(two.row, one.row, one.rows * sizeof *one.row) == 0, "case %llu", (unsigned long long)number);
        CHECK(memcmp(two.loss, one.loss, one.rows * sizeof *one.loss) == 0);
        stk_plan_destroy(plan);

        /* Steps of one row: the same rows again, and what each epoch has drawn. */
        const stk_batch_piece single = {0, 1};
        c.config.batch = &single;
        c.config.batch_count = 1;
        c.config.micro_batch = 0;
        if (c.config.steps) c.config.steps = one.rows;
        CHECK_OK(stk_plan_create(&plan, &c.config, &err), err);
        seen each = walk(plan, 1, true);
        CHECK_INT(each.rows, one.rows);
        CHECK(memcmp(each.row, one.row, one.rows * sizeof *one.row) == 0);
        stk_plan_destroy(plan);
        planned++;
        rows += one.rows;
        seen_free(&one);
        seen_free(&two);
        seen_free(&each);
    }
    fprintf(stderr, "%llu plans of %llu rows\n", (unsigned long long)planned, (unsigned long long)rows);
    CHECK(planned > CASES / 2);
}

/* Weights by tokens: over an epoch each set gives its share of the tokens, as far as whole samples and a mean allow. */
static void weights_by_tokens_share_out_tokens(void)
{
    for (uint64_t number = 0, done = 0; done < 30; number++) {
        made_case_init(&c, 100000 + number);
        if (!made_case_has_all(&c) || c.config.set_count < 2) continue;
        done++;
        const stk_batch_piece single = {0, 1};
        double weights = 0, tokens[MADE_SETS] = {0}, all = 0;
        uint64_t most = 1;
        for (uint32_t s = 0; s < c.config.set_count; s++) {
            c.set[s].epochs_milli = 1000;
            weights += c.set[s].weight = (double)(1 + made_below(&c, 4));
            if (c.part_count[s] > most) most = c.part_count[s];
        }
        c.config.weights_of_tokens = true;
        c.config.layout = STK_LAYOUT_PADDED;
        c.config.pad_to = 0;
        c.config.batch = &single;
        c.config.batch_count = 1;
        c.config.micro_batch = 0;
        c.config.steps = 20000; /* many passes of every set */
        made_case *const same = &c;
        memset(same->takes_part, 0, sizeof same->takes_part);
        memset(same->part_count, 0, sizeof same->part_count);
        made_expect(same);
        stk_error err;
        stk_plan *plan;
        CHECK_OK(stk_plan_create(&plan, &c.config, &err), err);
        seen s = seen_of(plan);
        for (uint64_t step = 0; step < s.steps; step++) {
            stk_recipe r;
            stk_pool_reset(&s.pool);
            CHECK_OK(stk_plan_recipe(plan, s.scratch, step, 0, 1, 0, &s.pool, &r, &err), err);
            tokens[r.sample[0].set_index] += r.sample[0].token_count;
            all += r.sample[0].token_count;
        }
        for (uint32_t i = 0; i < c.config.set_count; i++) {
            const double off = tokens[i] / all - c.set[i].weight / weights;
            CHECK_MSG(off < 0.02 && off > -0.02, "case %llu: set %u is %.4f off", (unsigned long long)c.number, i, off);
        }
        seen_free(&s);
        stk_plan_destroy(plan);
    }
}

/* --- resume --- */

/* The windows of a plan, loaded one by one: how many rows the run has before each. */
static uint64_t *windows_of(const stk_plan *plan, uint64_t *count)
{
    stk_error err;
    stk_order *order;
    stk_window w;
    stk_plan_config config = c.config;
    config.max_tokens = stk_plan_sample_tokens(&config);
    CHECK_OK(stk_order_create(&order, &config, &err), err);
    CHECK_OK(stk_window_init(&w, &config, &err), err);
    uint64_t *const before = calloc(stk_plan_row_count(plan) + 2, sizeof *before);
    *count = 0;
    for (uint64_t epoch = 0; before[*count] < stk_plan_row_count(plan); epoch++)
        for (uint64_t i = 0; i < stk_window_count(&config, order, epoch) && before[*count] < stk_plan_row_count(plan); i++) {
            stk_window_load(&w, order, epoch, i);
            before[*count + 1] = before[*count] + w.row_count;
            ++*count;
        }
    stk_window_deinit(&w);
    stk_order_destroy(order);
    return before;
}

static uint64_t windows_between(const uint64_t *before, uint64_t count, uint64_t first, uint64_t end)
{
    uint64_t touched = 0;
    for (uint64_t i = 0; i < count; i++) touched += before[i] < end && before[i + 1] > first;
    return touched;
}

/* Invariant 11: the first recipe after a resume computes the windows that its step lies in, and no other; a run in order computes
 * each of them once. */
static void a_resume_computes_only_the_windows_of_its_step(void)
{
    uint64_t resumes = 0;
    for (uint64_t number = 0; number < 600; number++) {
        stk_plan *const plan = plan_of_case(number);
        if (!plan) continue;
        uint64_t count, row = 0, *const before = windows_of(plan, &count);
        seen whole = seen_of(plan);
        for (uint64_t step = 0; step < whole.steps; step++) {
            stk_error err;
            stk_recipe r;
            const uint64_t end = row + stk_plan_step_rows(plan, step), spans = windows_between(before, count, row, end);
            CHECK_OK(stk_plan_recipe(plan, whole.scratch, step, 0, 2, 0, &whole.pool, &r, &err), err);
            if (step % 7 == number % 7) {
                stk_plan_scratch *fresh;
                CHECK_OK(stk_plan_scratch_create(&fresh, plan, &err), err);
                CHECK_OK(stk_plan_recipe(plan, fresh, step, 0, 2, 0, &whole.pool, &r, &err), err);
                CHECK_INT(stk_plan_scratch_windows(fresh), spans);
                /* The rest of the step needs nothing more. */
                CHECK_OK(stk_plan_recipe(plan, fresh, step, 1, 2, 0, &whole.pool, &r, &err), err);
                CHECK_INT(stk_plan_scratch_windows(fresh), spans);
                stk_plan_scratch_destroy(fresh);
                resumes++;
            }
            stk_pool_reset(&whole.pool);
            row = end;
        }
        CHECK_INT(stk_plan_scratch_windows(whole.scratch), windows_between(before, count, 0, row));
        seen_free(&whole);
        free(before);
        stk_plan_destroy(plan);
    }
    CHECK(resumes > 500);
}

/* --- threads --- */

enum { THREADS = 8 };

typedef struct asking {
    const stk_plan *plan;
    const uint64_t *expected; /* by step, rank and micro */
    uint32_t world, micros_most;
    uint64_t seed, asked;
    pthread_t thread;
} asking;

static void *ask_at_random(void *context)
{
    asking *const a = context;
    stk_error err;
    stk_plan_scratch *scratch;
    stk_pool pool;
    stk_pool_init(&pool, STK_TAG_PLAN);
    CHECK_OK(stk_plan_scratch_create(&scratch, a->plan, &err), err);
    for (uint64_t i = 0; i < 60; i++) {
        const uint64_t step = stk_mix64(a->seed + i) % stk_plan_step_count(a->plan);
        const uint32_t rank = (uint32_t)(stk_mix64(a->seed ^ i << 20) % a->world);
        const uint32_t micro = (uint32_t)(stk_mix64(a->seed ^ i << 40) % stk_plan_micro_count(a->plan, step, a->world));
        stk_recipe r;
        stk_pool_reset(&pool);
        CHECK_OK(stk_plan_recipe(a->plan, scratch, step, rank, a->world, micro, &pool, &r, &err), err);
        CHECK(made_recipe_digest(&r) == a->expected[(step * a->world + rank) * a->micros_most + micro]);
        /* Another world in between changes nothing. */
        if (i % 5 == 0) {
            stk_step_costs costs;
            CHECK_OK(stk_plan_step_costs(a->plan, scratch, step, 1 + a->world, i % 2, &costs, &err), err);
        }
        a->asked++;
    }
    stk_plan_scratch_destroy(scratch);
    stk_pool_deinit(&pool);
    return NULL;
}

/* Recipes asked for in any order, from eight threads at once, are those asked for in order. */
static void recipes_do_not_depend_on_order_or_thread(void)
{
    for (uint64_t number = 0, done = 0; done < 40; number++) {
        stk_plan *const plan = plan_of_case(200000 + number);
        if (!plan) continue;
        done++;
        asking ask[THREADS];
        const uint32_t world = 1 + (uint32_t)made_below(&c, 5);
        uint32_t most = 1;
        seen s = seen_of(plan);
        for (uint64_t step = 0; step < s.steps; step++)
            if (stk_plan_micro_count(plan, step, world) > most) most = stk_plan_micro_count(plan, step, world);
        uint64_t *const expected = calloc(s.steps * world * most, sizeof *expected);
        for (uint64_t step = 0; step < s.steps; step++)
            for (uint32_t rank = 0; rank < world; rank++)
                for (uint32_t micro = 0; micro < stk_plan_micro_count(plan, step, world); micro++) {
                    stk_error err;
                    stk_recipe r;
                    stk_pool_reset(&s.pool);
                    CHECK_OK(stk_plan_recipe(plan, s.scratch, step, rank, world, micro, &s.pool, &r, &err), err);
                    expected[(step * world + rank) * most + micro] = made_recipe_digest(&r);
                }
        for (int i = 0; i < THREADS; i++) {
            ask[i] = (asking){.plan = plan, .expected = expected, .world = world, .micros_most = most, .seed = number * 64 + (uint64_t)i};
            CHECK(pthread_create(&ask[i].thread, NULL, ask_at_random, &ask[i]) == 0);
        }
        for (int i = 0; i < THREADS; i++) {
            CHECK(pthread_join(ask[i].thread, NULL) == 0);
            CHECK_INT(ask[i].asked, 60);
        }
        free(expected);
        seen_free(&s);
        stk_plan_destroy(plan);
    }
}

int main(int argc, char **argv)
{
    TEST_MAIN(argc, argv, TEST(random_plans_keep_their_promises), TEST(weights_by_tokens_share_out_tokens),
              TEST(a_resume_computes_only_the_windows_of_its_step), TEST(recipes_do_not_depend_on_order_or_thread));
}
