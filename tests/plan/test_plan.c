/* test_plan.c - the plan as a pure function: every sample once, equal shares, random access. */
#include "test.h"

#include "base/permutation.h"
#include "plan/planner.h"
#include "plan/usable.h"

static const stk_model model = {.patch_px = 16, .merge = 2, .temporal = 2, .min_px = 65536, .max_px = 16777216,
                                .max_tokens = 262144};

/* A data set in memory: record r has r % 3 images; every eighth record is unusable. */
typedef struct made_set {
    stk_record_facts record[600];
    stk_text_facts text[600];
    stk_media_facts media[1200];
    uint64_t usable;
} made_set;

static const char *const manifest_names[] = {"made.jsonl"};

static stk_plan_set make_set(made_set *made, uint64_t record_count, const char *name)
{
    memset(made, 0, sizeof *made);
    uint64_t media_count = 0;
    for (uint64_t r = 0; r < record_count; r++) {
        const uint32_t images = (uint32_t)(r % 3);
        made->record[r] = (stk_record_facts){.line = r + 1, .first_media = media_count, .media_count = images,
                                             .reason = r % 8 == 7 ? STK_REASON_TAGS : STK_REASON_NONE};
        made->text[r] = (stk_text_facts){.token_count = (uint32_t)(20 + r % 50 + images), .supervised_count = (uint32_t)(5 + r % 7)};
        for (uint32_t i = 0; i < images; i++)
            made->media[media_count++] = (stk_media_facts){.width_px = (uint32_t)(100 + 37 * r % 400),
                                                           .height_px = (uint32_t)(90 + 53 * r % 300),
                                                           .orientation = (uint8_t)(1 + r % 8)};
        made->usable += r % 8 != 7;
    }
    return (stk_plan_set){.name = name,
                          .facts = {.record = made->record, .text = made->text, .media = made->media,
                                    .record_count = record_count, .media_count = media_count, .file = manifest_names,
                                    .file_count = 1},
                          .pixels = {.min_px = 65536, .max_px = 16777216},
                          .epochs_milli = 1000};
}

static stk_batch_piece batch_of_8 = {0, 8};

static stk_plan_config config_of(const stk_plan_set *set, uint32_t set_count)
{
    batch_of_8.batch = 8;
    return (stk_plan_config){.set = set, .set_count = set_count, .model = &model, .batch = &batch_of_8, .batch_count = 1,
                             .epochs = 1, .shuffle = true, .seed = 1, .layout = STK_LAYOUT_PADDED, .max_tokens = 262144,
                             .pad_multiple = 1, .row_tokens = 4096, .segment_multiple = 1, .window = 64, .threads = 2};
}

static stk_plan *plan_of(const stk_plan_config *config)
{
    stk_error err;
    stk_plan *plan;
    CHECK_OK(stk_plan_create(&plan, config, &err), err);
    return plan;
}

/* The scratch of the plan that was asked last. */
static const stk_plan *asked;
static stk_plan_scratch *scratch;

static stk_status recipe_of(const stk_plan *plan, uint64_t step, uint32_t rank, uint32_t world, uint32_t micro,
                            stk_pool *pool, stk_recipe *recipe, stk_error *err)
{
    if (asked != plan) {
        stk_plan_scratch_destroy(scratch);
        CHECK_OK(stk_plan_scratch_create(&scratch, plan, err), *err);
        asked = plan;
    }
    return stk_plan_recipe(plan, scratch, step, rank, world, micro, pool, recipe, err);
}

static void close_plan(stk_plan *plan)
{
    if (asked == plan) {
        stk_plan_scratch_destroy(scratch);
        scratch = NULL;
        asked = NULL;
    }
    stk_plan_destroy(plan);
}

/* Select agrees with a plain walk over the bits. */
static void the_kth_usable_record_is_found_without_a_list(void)
{
    for (uint64_t count = 0; count < 3000; count = count * 2 + 1) {
        stk_error err;
        stk_usable usable;
        CHECK_OK(stk_usable_init(&usable, count, &err), err);
        for (uint64_t r = 0; r < count; r++)
            if (stk_mix64(r) % 3 == 0) stk_usable_add(&usable, r);
        stk_usable_count(&usable);
        uint64_t k = 0;
        for (uint64_t r = 0; r < count; r++)
            if (stk_mix64(r) % 3 == 0) CHECK_INT(stk_usable_select(&usable, k++), r);
        CHECK_INT(usable.usable_count, k);
        const uint64_t kept = k / 3;
        stk_usable_cut(&usable, kept);
        CHECK_INT(usable.usable_count, kept);
        for (uint64_t r = 0, left = kept; r < count; r++) {
            const bool has = stk_mix64(r) % 3 == 0 && left > 0;
            left -= has;
            CHECK_INT(stk_usable_has(&usable, r), has);
        }
        stk_usable_deinit(&usable);
    }
}

/* What takes part does not depend on how many threads look: sets of several chunks of theirs, with where, first and what is refused. */
static void threads_find_the_same_records(void)
{
    enum { MANY = 200000 };
    stk_record_facts *const record = calloc(MANY, sizeof *record);
    stk_text_facts *const text = calloc(MANY, sizeof *text);
    for (uint64_t r = 0; r < MANY; r++) {
        record[r] = (stk_record_facts){.line = r + 1, .reason = stk_mix64(r) % 7 == 0 ? STK_REASON_TAGS : STK_REASON_NONE};
        text[r] = (stk_text_facts){.token_count = (uint32_t)(10 + stk_mix64(r + 1) % 90), .supervised_count = 1};
    }
    stk_where where;
    stk_error err;
    CHECK_OK(stk_where_parse(&where, "tokens >= 30", &err), err);
    stk_plan_set set = {.name = "many", .facts = {.record = record, .text = text, .record_count = MANY, .file = manifest_names, .file_count = 1},
                        .pixels = {.min_px = 65536, .max_px = 16777216}, .where = &where, .epochs_milli = 1000, .weight = 1};
    uint64_t usable = 0, selected = 0, last = 0;
    for (uint64_t r = 0; r < MANY; r++) {
        usable += record[r].reason == STK_REASON_NONE;
        selected += record[r].reason == STK_REASON_NONE && text[r].token_count >= 30;
        if (selected <= 100000) last = r;
    }
    for (uint32_t threads = 1; threads <= 100; threads = threads * 3 + 1)
        for (int kind = 0; kind < 3; kind++) {
            set.first = kind == 0 ? 0 : 100000;
            stk_plan_config config = config_of(&set, 1);
            config.threads = threads;
            config.weights_of_tokens = kind == 2;
            config.shuffle = false;
            stk_plan *plan = plan_of(&config);
            const uint64_t expected = set.first ? set.first : selected;
            CHECK_INT(stk_plan_epoch_rows(plan, 0), expected);
            CHECK_INT(stk_plan_not_selected(plan), usable - expected);
            if (set.first) {
                stk_pool pool;
                stk_recipe recipe;
                stk_pool_init(&pool, STK_TAG_PLAN);
                CHECK_OK(recipe_of(plan, expected / 8 - 1, 0, 1, 0, &pool, &recipe, &err), err);
                CHECK(recipe.sample[7].record_index <= last && recipe.sample[0].record_index + 200 > last);
                stk_pool_deinit(&pool);
            }
            close_plan(plan);
        }
    /* The first that is refused is named, and only when `first` reaches it. */
    set.overlong_is_error = true;
    text[150000] = (stk_text_facts){.token_count = 300, .supervised_count = 1};
    text[190000] = text[150000];
    record[150000].reason = record[190000].reason = STK_REASON_NONE;
    for (uint32_t threads = 1; threads <= 100; threads = threads * 3 + 1) {
        stk_plan_config config = config_of(&set, 1);
        stk_plan *plan;
        config.threads = threads;
        config.max_tokens = 200;
        set.first = 0;
        CHECK_INT(stk_plan_create(&plan, &config, &err), STK_ERR_RECORD);
        CHECK_INT(err.line, 150001);
        set.first = 50000;
        CHECK_OK(stk_plan_create(&plan, &config, &err), err);
        stk_plan_destroy(plan);
    }
    free(record);
    free(text);
}

/* Invariant 3: in one epoch every usable sample is planned exactly once, over any number of ranks and micro-batches;
 * no rank gets fewer rows than another, and what fills up is filler. */
static void every_usable_sample_is_planned_once_per_epoch(void)
{
    static made_set one, two;
    const stk_plan_set set[2] = {make_set(&one, 101, "one"), make_set(&two, 57, "two")};
    for (uint32_t world = 1; world <= 9; world++)
        for (uint64_t micro_batch = 0; micro_batch <= 3; micro_batch++)
            for (uint64_t epochs = 1; epochs <= 3; epochs++) {
                stk_plan_config config = config_of(set, 2);
                config.micro_batch = micro_batch;
                config.epochs = epochs;
                stk_plan *const plan = plan_of(&config);
                uint32_t seen[2][101] = {{0}};
                stk_pool pool;
                stk_pool_init(&pool, STK_TAG_PLAN);
                uint64_t rows = 0;
                for (uint64_t step = 0; step < stk_plan_step_count(plan); step++)
                    for (uint32_t rank = 0; rank < world; rank++) {
                        uint64_t rank_rows = 0;
                        for (uint32_t micro = 0; micro < stk_plan_micro_count(plan, step, world); micro++) {
                            stk_error err;
                            stk_recipe recipe;
                            stk_pool_reset(&pool);
                            CHECK_OK(recipe_of(plan, step, rank, world, micro, &pool, &recipe, &err), err);
                            rank_rows += recipe.row_count;
                            for (uint32_t i = 0; i < recipe.sample_count; i++) {
                                if (recipe.sample[i].filler) continue;
                                seen[recipe.sample[i].set_index][recipe.sample[i].record_index]++;
                                rows++;
                            }
                        }
                        CHECK(rank_rows >= stk_plan_rank_rows(plan, step, world));
                    }
                CHECK_INT(rows, epochs * (one.usable + two.usable));
                for (uint64_t r = 0; r < 101; r++) CHECK_INT(seen[0][r], r % 8 == 7 ? 0 : epochs);
                for (uint64_t r = 0; r < 57; r++) CHECK_INT(seen[1][r], r % 8 == 7 ? 0 : epochs);
                stk_pool_deinit(&pool);
                close_plan(plan);
            }
}

/* The set of (set, record) of a step, as an order-free sum, and its planned loss tokens. */
static uint64_t step_signature(const stk_plan *plan, uint64_t step, uint32_t world, uint64_t *loss_tokens)
{
    uint64_t sum = 0, planned = 0;
    *loss_tokens = 0;
    stk_pool pool;
    stk_pool_init(&pool, STK_TAG_PLAN);
    for (uint32_t rank = 0; rank < world; rank++)
        for (uint32_t micro = 0; micro < stk_plan_micro_count(plan, step, world); micro++) {
            stk_error err;
            stk_recipe recipe;
            CHECK_OK(recipe_of(plan, step, rank, world, micro, &pool, &recipe, &err), err);
            for (uint32_t i = 0; i < recipe.sample_count; i++)
                if (!recipe.sample[i].filler)
                    sum += stk_mix64(recipe.sample[i].record_index * 2 + recipe.sample[i].set_index);
            *loss_tokens += recipe.loss_tokens;
            planned = recipe.step_loss_tokens;
        }
    CHECK_INT(planned, *loss_tokens);
    stk_pool_deinit(&pool);
    return sum;
}

/* Invariant 2: the rows of a step do not depend on the number of ranks, nor on micro_batch. */
static void a_step_does_not_depend_on_ranks_or_micro_batch(void)
{
    static made_set one;
    const stk_plan_set set = make_set(&one, 211, "one");
    stk_plan_config config = config_of(&set, 1);
    stk_plan *const whole = plan_of(&config);
    for (uint64_t micro_batch = 0; micro_batch <= 8; micro_batch++) {
        config.micro_batch = micro_batch;
        stk_plan *const plan = plan_of(&config);
        for (uint64_t step = 0; step < stk_plan_step_count(plan); step++)
            for (uint32_t world = 1; world <= 11; world += 3) {
                uint64_t loss, other_loss;
                CHECK_INT(step_signature(plan, step, world, &loss), step_signature(whole, step, 1, &other_loss));
                CHECK_INT(loss, other_loss);
            }
        close_plan(plan);
    }
    close_plan(whole);
}

static void without_shuffle_the_order_is_the_files(void)
{
    static made_set one;
    const stk_plan_set set = make_set(&one, 40, "one");
    stk_plan_config config = config_of(&set, 1);
    config.shuffle = false;
    stk_plan *const plan = plan_of(&config);
    stk_pool pool;
    stk_pool_init(&pool, STK_TAG_PLAN);
    uint64_t expected = 0;
    for (uint64_t step = 0; step < stk_plan_step_count(plan); step++) {
        stk_error err;
        stk_recipe recipe;
        CHECK_OK(recipe_of(plan, step, 0, 1, 0, &pool, &recipe, &err), err);
        for (uint32_t i = 0; i < recipe.sample_count && !recipe.sample[i].filler; i++) {
            while (expected % 8 == 7) expected++;
            CHECK_INT(recipe.sample[i].record_index, expected++);
        }
    }
    stk_pool_deinit(&pool);
    close_plan(plan);
}

/* Epochs differ in order; the same seed gives the same order, another seed another. */
static void shuffles_differ_by_seed_and_epoch(void)
{
    static made_set one;
    const stk_plan_set set = make_set(&one, 200, "one");
    stk_plan_config config = config_of(&set, 1);
    config.epochs = 2;
    batch_of_8.batch = one.usable;
    stk_plan *const plan = plan_of(&config), *const again = plan_of(&config);
    config.seed = 2;
    stk_plan *const other = plan_of(&config);
    const stk_plan *const plans[3] = {plan, again, other};
    uint64_t order[3][2][200];
    stk_pool pool;
    stk_pool_init(&pool, STK_TAG_PLAN);
    for (int p = 0; p < 3; p++)
        for (uint64_t step = 0; step < 2; step++) {
            stk_error err;
            stk_recipe recipe;
            CHECK_OK(recipe_of(plans[p], step, 0, 1, 0, &pool, &recipe, &err), err);
            for (uint32_t i = 0; i < recipe.sample_count; i++) order[p][step][i] = recipe.sample[i].record_index;
        }
    const size_t size = one.usable * sizeof(uint64_t);
    CHECK(memcmp(order[0][0], order[1][0], size) == 0);
    CHECK(memcmp(order[0][0], order[0][1], size) != 0);
    CHECK(memcmp(order[0][0], order[2][0], size) != 0);
    stk_pool_deinit(&pool);
    close_plan(plan);
    close_plan(again);
    close_plan(other);
}

/* Positions and steps are inverse (what invariant 8 stands on). */
static void a_position_names_its_step(void)
{
    static made_set one;
    const stk_plan_set set = make_set(&one, 100, "one");
    stk_plan_config config = config_of(&set, 1);
    config.epochs = 5;
    batch_of_8.batch = 12;
    stk_plan *const plan = plan_of(&config);
    stk_error err;
    for (uint64_t step = 0; step <= stk_plan_step_count(plan); step++) {
        uint64_t epoch, rows, back;
        stk_plan_position(plan, step, &epoch, &rows);
        CHECK_OK(stk_plan_step_at(plan, epoch, rows, &back, &err), err);
        CHECK_INT(back, step);
    }
    uint64_t step;
    CHECK_INT(stk_plan_step_at(plan, 0, 5, &step, &err), STK_ERR_STATE);
    CHECK_INT(stk_plan_step_at(plan, 99, 0, &step, &err), STK_ERR_STATE);
    CHECK_INT(stk_plan_step_at(plan, UINT64_MAX, 0, &step, &err), STK_ERR_STATE);
    close_plan(plan);
}

/* The first row of an epoch so far out that its number does not fit is no row of the run, though its low bits may be one. */
static void a_position_beyond_the_longest_run_is_none(void)
{
    static made_set one;
    const stk_plan_set set = make_set(&one, 100, "one");
    stk_plan_config config = config_of(&set, 1);
    batch_of_8.batch = 12;
    config.steps = (uint64_t)1 << 58;
    stk_plan *const plan = plan_of(&config);
    const uint64_t of_epoch = stk_plan_epoch_rows(plan, 0), epoch = UINT64_MAX / of_epoch + 1;
    CHECK(epoch < stk_plan_row_count(plan));
    stk_error err;
    uint64_t step;
    for (uint64_t rows = 0; rows < of_epoch; rows++) CHECK_INT(stk_plan_step_at(plan, epoch, rows, &step, &err), STK_ERR_STATE);
    close_plan(plan);
}

static void a_padded_row_has_the_length_asked_for(void)
{
    static made_set one;
    const stk_plan_set set = make_set(&one, 100, "one");
    stk_plan_config config = config_of(&set, 1);
    config.pad_multiple = 128;
    stk_plan *plan = plan_of(&config);
    stk_pool pool;
    stk_pool_init(&pool, STK_TAG_PLAN);
    stk_error err;
    stk_recipe recipe;
    CHECK_OK(recipe_of(plan, 0, 0, 1, 0, &pool, &recipe, &err), err);
    CHECK_INT(recipe.row_tokens % 128, 0);
    close_plan(plan);

    config.pad_to = 256; /* the samples of two large images no longer fit: left out, not cut */
    plan = plan_of(&config);
    CHECK(stk_plan_epoch_rows(plan, 0) < one.usable);
    for (uint64_t step = 0; step < stk_plan_step_count(plan); step++) {
        CHECK_OK(recipe_of(plan, step, 0, 1, 0, &pool, &recipe, &err), err);
        CHECK_INT(recipe.row_tokens, 256);
        for (uint32_t i = 0; i < recipe.sample_count; i++) CHECK(recipe.sample[i].token_count <= 256);
    }
    close_plan(plan);
    stk_pool_deinit(&pool);
}

static void what_cannot_be_planned_is_refused(void)
{
    static made_set one;
    stk_plan_set set = make_set(&one, 100, "one");
    stk_error err;
    stk_plan *plan;
    stk_plan_config config = config_of(&set, 1);
    config.max_tokens = 10;
    CHECK_INT(stk_plan_create(&plan, &config, &err), STK_ERR_OPTION);
    CHECK_HAS(err.message, "no data set has a usable record, and");
    CHECK_HAS(err.message, "over the limit of 10 tokens: raise max_tokens");
    CHECK(plan == NULL);

    config.max_tokens = 60;
    set.overlong_is_error = true;
    CHECK_INT(stk_plan_create(&plan, &config, &err), STK_ERR_RECORD);
    CHECK_HAS(err.message, "max_tokens");
    CHECK_STR(err.file, "made.jsonl");
    CHECK(err.line > 0);
    set.overlong_is_error = false;

    config = config_of(&set, 1);
    config.micro_batch = 9;
    CHECK_INT(stk_plan_create(&plan, &config, &err), STK_ERR_OPTION);
    config = config_of(&set, 1);
    config.epochs = UINT64_MAX / 2;
    CHECK_INT(stk_plan_create(&plan, &config, &err), STK_ERR_OPTION);
    config = config_of(&set, 1);
    config.layout = STK_LAYOUT_FLAT;
    config.pad_to = 64;
    CHECK_INT(stk_plan_create(&plan, &config, &err), STK_ERR_OPTION);

    config = config_of(&set, 1);
    config.uneven_is_error = true;
    batch_of_8.batch = 12;
    plan = plan_of(&config);
    CHECK(stk_plan_epoch_rows(plan, 0) % 12);
    CHECK_INT(stk_plan_check_world(plan, 4, &err), STK_ERR_OPTION);
    CHECK_HAS(err.message, "last step");
    close_plan(plan);
    config.steps = 5;
    plan = plan_of(&config);
    CHECK_OK(stk_plan_check_world(plan, 4, &err), err);
    CHECK_INT(stk_plan_check_world(plan, 5, &err), STK_ERR_OPTION);
    stk_pool pool;
    stk_pool_init(&pool, STK_TAG_PLAN);
    stk_recipe recipe;
    CHECK_INT(recipe_of(plan, stk_plan_step_count(plan), 0, 1, 0, &pool, &recipe, &err), STK_ERR_USAGE);
    CHECK_INT(recipe_of(plan, 0, 1, 1, 0, &pool, &recipe, &err), STK_ERR_USAGE);
    stk_pool_deinit(&pool);
    close_plan(plan);
}

/* An owner who has had enough when asked for the `left`-th time; asked at every piece, however soon it comes. */
typedef struct owner {
    stk_watch watch;
    int left, asked;
    bool packing;
} owner;

static bool ask_owner(void *context, const char *of, const char *phase, uint64_t done, uint64_t total)
{
    owner *const o = context;
    CHECK(of[0] && done < total);
    o->watch.reported_ns = 0;
    o->packing = strcmp(phase, "packing") == 0;
    o->asked++;
    return --o->left > 0;
}

/* Stopped at any piece, nothing is made, and it is said; an owner who waits gets the plan of one who does not ask. */
static void a_plan_in_the_making_can_be_stopped(void)
{
    static made_set one, two;
    const stk_plan_set sets[] = {make_set(&one, 500, "one"), make_set(&two, 300, "two")};
    stk_plan_config config = config_of(sets, 2);
    config.layout = STK_LAYOUT_PACKED;
    config.epochs = 3;
    stk_plan *const undisturbed = plan_of(&config);
    for (config.threads = 1; config.threads <= 3; config.threads++) {
        stk_status status = STK_ERR_INTERRUPTED;
        bool while_packing = false;
        int left = 0;
        while (status != STK_OK) {
            owner o = {.left = ++left};
            stk_watch_init(&o.watch, ask_owner, &o);
            o.watch.reported_ns = 0;
            config.watch = &o.watch;
            stk_plan *plan;
            stk_error err;
            status = stk_plan_create(&plan, &config, &err);
            if (status == STK_OK) CHECK(o.asked < left);
            else CHECK_INT(o.asked, left);
            CHECK((plan == NULL) == (status != STK_OK));
            if (plan) CHECK_INT(stk_plan_row_count(plan), stk_plan_row_count(undisturbed));
            stk_plan_destroy(plan);
            if (status == STK_OK) break;
            CHECK_INT(status, STK_ERR_INTERRUPTED);
            while_packing = while_packing || o.packing;
        }
        CHECK(left > 2);
        if (config.threads == 1) CHECK(while_packing); /* helpers may leave none of it to the owner's thread */
    }
    stk_plan_destroy(undisturbed);
}

/* The size rule: cells of spec-qwen3vl.md section 1.3. */
static void target_sizes_are_those_of_the_reference(void)
{
    static const struct { uint32_t h, w, factor; uint64_t low, high; uint32_t to_h, to_w; } cells[] = {
        {1365, 2048, 32, 65536, 16777216, 1376, 2048}, {16, 16, 32, 65536, 16777216, 256, 256},
        {80, 80, 32, 65536, 16777216, 256, 256},       {15, 3000, 32, 65536, 16777216, 32, 3648},
        {1, 200, 32, 65536, 16777216, 32, 3648},       {100, 20000, 32, 65536, 16777216, 96, 20000},
        {1365, 2048, 32, 784, 50176, 160, 256},        {100, 20000, 32, 784, 50176, 32, 3136},
        {1365, 2048, 32, 12544, 451584, 544, 800},     {15, 3000, 32, 12544, 451584, 32, 1600},
        {1365, 2048, 28, 3136, 1003520, 812, 1204},    {1000, 1000, 28, 3136, 1003520, 980, 980},
        {100, 20000, 28, 3136, 1003520, 56, 14140},
    };
    uint32_t w, h;
    for (size_t i = 0; i < sizeof cells / sizeof *cells; i++) {
        CHECK_INT(stk_target_size(&w, &h, cells[i].w, cells[i].h, cells[i].factor, cells[i].low, cells[i].high, STK_PROFILE_HF), STK_REASON_NONE);
        CHECK_INT(h, cells[i].to_h);
        CHECK_INT(w, cells[i].to_w);
    }
    CHECK_INT(stk_target_size(&w, &h, 201, 1, 32, 65536, 16777216, STK_PROFILE_HF), STK_REASON_RATIO);
    CHECK_INT(stk_target_size(&w, &h, 0, 1, 32, 65536, 16777216, STK_PROFILE_HF), STK_REASON_BROKEN);
    CHECK_INT(stk_target_size(&w, &h, UINT32_MAX, UINT32_MAX, 32, 65536, UINT64_MAX, STK_PROFILE_HF), STK_REASON_MEDIA_LIMIT);
}

/* The same section, the variant of qwen_vl_utils: values of its smart_resize (0.0.14). */
static void target_sizes_of_qwen_vl_utils_are_its_own(void)
{
    static const struct { uint32_t h, w, factor; uint64_t low, high; uint32_t to_h, to_w; } cells[] = {
        {16, 16, 32, 65536, 16777216, 256, 256}, {15, 3000, 32, 65536, 16777216, 32, 3008},
        {1, 200, 32, 65536, 16777216, 32, 3648}, {48, 48, 32, 784, 50176, 64, 64},
        {80, 80, 32, 4096, 16777216, 64, 64},    {16, 16, 32, 4096, 16777216, 64, 64},
        {1365, 2048, 32, 784, 50176, 160, 256},  {10, 1990, 28, 3136, 1003520, 28, 1988},
        {1, 200, 28, 3136, 12845056, 28, 196},
    };
    uint32_t w, h;
    for (size_t i = 0; i < sizeof cells / sizeof *cells; i++) {
        CHECK_INT(stk_target_size(&w, &h, cells[i].w, cells[i].h, cells[i].factor, cells[i].low, cells[i].high,
                                  STK_PROFILE_QWEN_VL_UTILS), STK_REASON_NONE);
        CHECK_INT(h, cells[i].to_h);
        CHECK_INT(w, cells[i].to_w);
    }
    CHECK_INT(stk_target_size(&w, &h, 20000, 100, 32, 784, 50176, STK_PROFILE_QWEN_VL_UTILS), STK_REASON_NO_SIZE);
    CHECK_INT(stk_target_size(&w, &h, 3900, 20, 32, 784, 50176, STK_PROFILE_QWEN_VL_UTILS), STK_REASON_NO_SIZE);
}

int main(int argc, char **argv)
{
    TEST_MAIN(argc, argv, TEST(the_kth_usable_record_is_found_without_a_list), TEST(threads_find_the_same_records),
              TEST(every_usable_sample_is_planned_once_per_epoch), TEST(a_step_does_not_depend_on_ranks_or_micro_batch),
              TEST(without_shuffle_the_order_is_the_files), TEST(shuffles_differ_by_seed_and_epoch),
              TEST(a_position_names_its_step), TEST(a_position_beyond_the_longest_run_is_none), TEST(a_padded_row_has_the_length_asked_for),
              TEST(what_cannot_be_planned_is_refused), TEST(a_plan_in_the_making_can_be_stopped), TEST(target_sizes_are_those_of_the_reference),
              TEST(target_sizes_of_qwen_vl_utils_are_its_own));
}
