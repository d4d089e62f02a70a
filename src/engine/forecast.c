/* forecast.c - what one micro-batch needs: a planned one, one that is drawn (index: stream), and the largest that the options allow. */
#include "engine/forecast.h"

enum {
    PARSED_TIMES = 3,           /* a record: its bytes, and the tree of its texts */
    RENDERED_TIMES = 4,         /* its text: rendered */
    BPE_TIMES = 44,             /* and bytes a byte of it for what has no blanks at all (bpe.c) */
    TEXT_TIMES = RENDERED_TIMES + BPE_TIMES,
    MARKED_TIMES = 3,           /* what limits.text_bytes limits may be longer before it is looked at (encode.c) */
    MEDIUM_RECORD_BYTES = 8,    /* a medium has a mark, an address and their signs in its record */
    ADDRESS_BYTES = 512,        /* of a path */
    POOL_ROUNDING_BYTES = 1024, /* pieces of a pool are multiples of 16 */
};

void stk_forecast_add(stk_forecast *forecast, const stk_run *run, const stk_recipe *recipe, const stk_media_facts *media,
                      const stk_slot_layout *layout)
{
    size_t object_bytes =
        recipe->sample_count * (sizeof(stk_unit) + sizeof(stk_batch_note) + sizeof(stk_recipe_sample)) +
        recipe->row_count * sizeof *recipe->step_row +
        recipe->media_count * (sizeof(stk_request) + sizeof(stk_recipe_media) + ADDRESS_BYTES) +
        POOL_ROUNDING_BYTES;
    size_t fetch_bytes = 0;
    for (uint32_t i = 0; i < recipe->sample_count; i++) {
        const stk_recipe_sample *const sample = &recipe->sample[i];
        if (sample->filler) continue;
        size_t ticket_bytes, work_bytes;
        const stk_media_facts *const of = media ? media : run->set[sample->set_index].facts.media;
        stk_sample_needs(of, recipe, sample, &ticket_bytes, &work_bytes);
        const size_t record_bytes = run->set[sample->set_index].facts.record[sample->record_index].size_bytes;
        size_t inline_bytes = 0; /* of media that stand in the record as data: URIs */
        fetch_bytes += ticket_bytes;
        if (ticket_bytes > forecast->ticket_bytes) forecast->ticket_bytes = ticket_bytes;
        if (work_bytes > forecast->work_bytes) forecast->work_bytes = work_bytes;
        for (uint32_t k = 0; k < sample->media_count; k++) {
            const uint64_t at = recipe->media[sample->first_media + k].media_index;
            const stk_media_facts *const facts = &of[at];
            /* A data: URI is its own address: base64 of the bytes. */
            if (facts->mtime_ns == 0) {
                object_bytes += facts->size_bytes + facts->size_bytes / 2;
                inline_bytes += facts->size_bytes / 3 * 4;
            }
        }
        const size_t text_bytes = record_bytes > inline_bytes ? record_bytes - inline_bytes : 0;
        const size_t maker_bytes = PARSED_TIMES * record_bytes + TEXT_TIMES * text_bytes;
        if (record_bytes > forecast->record_bytes) forecast->record_bytes = record_bytes;
        if (maker_bytes > forecast->maker_bytes) forecast->maker_bytes = maker_bytes;
    }
    if (fetch_bytes > forecast->fetch_bytes) forecast->fetch_bytes = fetch_bytes;
    if (object_bytes > forecast->object_bytes) forecast->object_bytes = object_bytes;
    if (layout->size_bytes > forecast->slot_bytes) forecast->slot_bytes = layout->size_bytes;
    if (recipe->row_count > forecast->row_count) forecast->row_count = recipe->row_count;
    if (recipe->media_count > forecast->media_count) forecast->media_count = recipe->media_count;
}

/* --- with index: stream --- */

/* What finding facts takes, whatever is found. */
static void add_finders(stk_forecast *forecast, const stk_run *run)
{
    size_t record_bytes = 0;
    for (uint32_t i = 0; i < run->set_count; i++)
        for (uint64_t r = 0; r < run->set[i].facts.record_count; r++) {
            const size_t size_bytes = run->set[i].facts.record[r].size_bytes;
            if (size_bytes > record_bytes && size_bytes <= run->rules->limits.record_bytes) record_bytes = size_bytes;
        }
    const size_t text_bytes = run->text_limits.text_bytes, marked_bytes = MARKED_TIMES * text_bytes;
    forecast->record_bytes = record_bytes;
    forecast->maker_bytes = PARSED_TIMES * record_bytes + RENDERED_TIMES * (record_bytes < marked_bytes ? record_bytes : marked_bytes) +
                            BPE_TIMES * (record_bytes < text_bytes ? record_bytes : text_bytes);
    forecast->finder_bytes = STK_FINDER_BYTES + STK_WORKER_BYTES + forecast->maker_bytes;
}

/* A recipe of rows that are all as long as they may be, and all of images. */
static stk_status largest_recipe(stk_recipe *recipe, const stk_run *run, uint32_t rows, uint64_t media_each, stk_pool *pool,
                                 stk_error *err)
{
    const uint64_t tokens = stk_plan_row_tokens_most(run->plan, rows), area = (uint64_t)run->model.merge * run->model.merge;
    const bool flat = run->form.layout == STK_LAYOUT_FLAT;
    const uint64_t media = rows * media_each + 1; /* one more: a filler image */
    *recipe = (stk_recipe){.row_count = rows, .segment_multiple = 1, .row_tokens = (uint32_t)tokens, .sample_count = rows + 1,
                           .media_count = media < INT32_MAX ? (uint32_t)media : INT32_MAX,
                           .patch_count = ((uint64_t)rows * run->max_tokens + 1) * area};
    if (tokens * (flat ? 1 : rows) > INT32_MAX)
        return stk_fail(err, STK_ERR_BUDGET, "a micro-batch of %u rows of up to %u tokens may have over 2^31 of them: lower max_tokens or "
                        "micro_batch", rows, run->max_tokens);
    recipe->sample = stk_pool_take(pool, recipe->sample_count * sizeof *recipe->sample);
    if (!recipe->sample) return stk_fail(err, STK_ERR_NOMEM, "out of memory: a forecast");
    for (uint32_t i = 0; i <= rows; i++)
        recipe->sample[i] = (stk_recipe_sample){.row = i < rows ? i : rows - 1, .token_count = i < rows ? run->max_tokens : 1,
                                                .first_token = flat ? i * run->max_tokens : 0};
    return STK_OK;
}

stk_status stk_forecast_limits(stk_forecast *forecast, const stk_run *run, uint32_t rows, stk_error *err)
{
    const stk_limits *const limits = &run->rules->limits;
    add_finders(forecast, run);
    /* A medium has a token at least. */
    uint64_t media = limits->media_per_record;
    if (media > run->max_tokens) media = run->max_tokens;
    if (media > forecast->record_bytes / MEDIUM_RECORD_BYTES) media = forecast->record_bytes / MEDIUM_RECORD_BYTES;
    forecast->by_limits = true;
    forecast->whole_bytes = limits->media_bytes + STK_PAD_BYTES;
    forecast->row_count = rows;
    forecast->media_count = rows * media < UINT32_MAX ? (uint32_t)(rows * media) : UINT32_MAX;
    forecast->ticket_bytes = stk_ticket_bytes_most(limits->media_bytes, media);
    if (stk_mul_overflows(&forecast->fetch_bytes, forecast->ticket_bytes, rows)) forecast->fetch_bytes = SIZE_MAX;
    const uint32_t factor = stk_model_factor(&run->model);
    uint64_t target_px = 0; /* of an image: by its own limit, and by that of its sample */
    for (uint32_t i = 0; i < run->set_count; i++)
        if (run->set[i].pixels.max_px > target_px) target_px = run->set[i].pixels.max_px;
    const uint64_t by_tokens = (uint64_t)run->max_tokens * factor * factor;
    forecast->work_bytes = stk_image_work_most(limits->media_px, factor, target_px < by_tokens ? target_px : by_tokens);
    forecast->object_bytes =
        (rows + (size_t)1) * (sizeof(stk_unit) + sizeof(stk_batch_note) + sizeof(stk_recipe_sample) + sizeof(uint32_t) +
                              STK_LAZY_ROW_BYTES + forecast->record_bytes) +
        (rows * media + 1) * (sizeof(stk_request) + sizeof(stk_recipe_media) + sizeof(stk_media_facts) + STK_MEDIA_ETAG_BYTES + ADDRESS_BYTES) +
        POOL_ROUNDING_BYTES;
    stk_pool pool;
    stk_pool_init(&pool, STK_TAG_PLAN);
    stk_recipe recipe;
    stk_slot_layout layout;
    stk_status status = largest_recipe(&recipe, run, rows, media, &pool, err);
    if (status == STK_OK) status = stk_slot_layout_init(&layout, &recipe, &run->form, err);
    stk_pool_deinit(&pool);
    if (status == STK_OK) forecast->slot_bytes = layout.size_bytes + STK_ALIGN_BYTES; /* the segment of a flat batch's padding */
    return status;
}

stk_status stk_forecast_drawn(stk_forecast *forecast, const stk_run *run, uint64_t step, uint32_t rank, uint32_t world,
                              uint32_t micro, stk_error *err)
{
    *forecast = (stk_forecast){0};
    stk_pool pool;
    stk_pool_init(&pool, STK_TAG_PLAN);
    stk_plan_scratch *scratch = NULL;
    stk_lazy_facts *lazy = NULL;
    stk_plan_draw *draw;
    stk_set_facts facts;
    stk_recipe recipe;
    stk_slot_layout layout;
    const stk_lazy_words *words;
    uint32_t count;
    stk_status status = stk_plan_scratch_create(&scratch, run->plan, err);
    if (status == STK_OK) status = stk_lazy_facts_create(&lazy, run, 1, err);
    if (status == STK_OK) status = stk_plan_draws(run->plan, scratch, step, rank, world, micro, &pool, &draw, &count, err);
    if (status == STK_OK) status = stk_lazy_facts_find(lazy, draw, count, &pool, &facts, &words, err);
    stk_reason *const reason = status == STK_OK ? stk_pool_take(&pool, count * sizeof *reason) : NULL;
    if (status == STK_OK && !reason) status = stk_fail(err, STK_ERR_NOMEM, "out of memory: a forecast");
    if (status == STK_OK)
        status = stk_plan_recipe_of(run->plan, step, rank, world, micro, draw, count, &facts, &pool, &recipe, reason, err);
    if (status == STK_OK) status = stk_slot_layout_init(&layout, &recipe, &run->form, err);
    if (status == STK_OK) {
        stk_forecast_add(forecast, run, &recipe, facts.media, &layout);
        add_finders(forecast, run);
        forecast->object_bytes += count * (size_t)STK_LAZY_ROW_BYTES + facts.media_count * (sizeof(stk_media_facts) + STK_MEDIA_ETAG_BYTES);
    }
    stk_lazy_facts_destroy(lazy);
    stk_plan_scratch_destroy(scratch);
    stk_pool_deinit(&pool);
    return status;
}
