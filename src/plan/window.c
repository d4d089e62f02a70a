/* window.c - draws to samples, samples to rows, rows into their order. */
#include "plan/window.h"

enum { STREAM_ROWS = 1 }; /* of the seed */

/* What samples may fill of a row. */
static uint32_t pack_tokens(const stk_plan_config *c)
{
    const uint32_t reserve = (STK_FILLER_IMAGE_TOKENS + c->segment_multiple - 1) / c->segment_multiple * c->segment_multiple;
    return stk_plan_may_fill_image(c) ? c->row_tokens - reserve : c->row_tokens;
}

stk_status stk_window_init(stk_window *window, const stk_plan_config *config, stk_error *err)
{
    *window = (stk_window){.epoch = UINT64_MAX, .config = config};
    const size_t most = config->window;
    window->sample = stk_alloc_array(STK_TAG_PLAN, most, sizeof *window->sample);
    window->drawn = stk_alloc_array(STK_TAG_PLAN, most, sizeof *window->drawn);
    window->row_start = stk_alloc_array(STK_TAG_PLAN, most + 1, sizeof *window->row_start);
    window->length = stk_alloc_array(STK_TAG_PLAN, most, sizeof *window->length);
    window->row = stk_alloc_array(STK_TAG_PLAN, most, sizeof *window->row);
    window->at = stk_alloc_array(STK_TAG_PLAN, most, sizeof *window->at);
    window->cache = stk_alloc_array(STK_TAG_PLAN, config->set_count, sizeof *window->cache);
    stk_status status = STK_OK;
    if (!window->sample || !window->drawn || !window->row_start || !window->length || !window->row || !window->at ||
        !window->cache)
        status = stk_fail(err, STK_ERR_NOMEM, "out of memory: a window of %zu samples", most);
    if (status == STK_OK && config->layout == STK_LAYOUT_PACKED)
        status = stk_packer_create(&window->packer, config->window, pack_tokens(config), err);
    if (status < 0) stk_window_deinit(window);
    else
        for (uint32_t i = 0; i < config->set_count; i++) window->cache[i].pass = UINT64_MAX;
    return status;
}

void stk_window_deinit(stk_window *window)
{
    stk_free(window->sample);
    stk_free(window->drawn);
    stk_free(window->row_start);
    stk_free(window->length);
    stk_free(window->row);
    stk_free(window->at);
    stk_free(window->cache);
    stk_packer_destroy(window->packer);
    *window = (stk_window){0};
}

uint64_t stk_window_count(const stk_plan_config *config, const stk_order *order, uint64_t epoch)
{
    const uint64_t draws = stk_order_epoch_begin(order, epoch + 1) - stk_order_epoch_begin(order, epoch);
    return (draws + config->window - 1) / config->window;
}

/* Facts of a window's records lie far apart: they are asked for a few draws before they are needed, record and text first, then the media
 * that the record names. */
enum { RECORD_AHEAD = 24, MEDIA_AHEAD = 12 };

static void find(stk_window *w, const stk_order *order, uint64_t first, uint32_t i)
{
    stk_window_sample *const s = &w->drawn[i];
    stk_order_at(order, w->cache, first + i, &s->set_index, &s->record_index);
    const stk_set_facts *const facts = &w->config->set[s->set_index].facts;
    __builtin_prefetch(&facts->record[s->record_index]);
    __builtin_prefetch(&facts->text[s->record_index]);
}

static void find_media(const stk_window *w, uint32_t i)
{
    const stk_set_facts *const facts = &w->config->set[w->drawn[i].set_index].facts;
    const stk_record_facts *const record = &facts->record[w->drawn[i].record_index];
    if (record->media_count) __builtin_prefetch(&facts->media[record->first_media]);
}

static void derive(const stk_window *w, stk_window_sample *s)
{
    const stk_plan_config *const c = w->config;
    const stk_plan_set *const set = &c->set[s->set_index];
    stk_record_size size;
    stk_record_derive(&size, &set->facts, s->record_index, c->model, &set->pixels, c->max_tokens);
    s->token_count = size.token_count;
    s->supervised_count = size.supervised_count;
    s->visual_tokens = size.visual_tokens;
    s->patch_count = size.patch_count;
    s->patch_squares = size.patch_squares;
    s->max_px = size.max_px;
    s->media_count = set->facts.record[s->record_index].media_count;
}

static void draw(stk_window *w, const stk_order *order, uint64_t first, uint32_t count)
{
    for (uint32_t i = 0; i < count + RECORD_AHEAD; i++) {
        if (i < count) find(w, order, first, i);
        const uint32_t behind = RECORD_AHEAD - MEDIA_AHEAD;
        if (i >= behind && i - behind < count) find_media(w, i - behind);
        if (i >= RECORD_AHEAD) derive(w, &w->drawn[i - RECORD_AHEAD]);
    }
}

/* The place of each row among the window's rows, into w->at. */
static void order_rows(stk_window *w)
{
    const stk_plan_config *const c = w->config;
    if (c->shuffle) {
        stk_permutation p;
        stk_permutation_init(&p, w->row_count, stk_mix64(c->seed ^ w->number), STREAM_ROWS, w->epoch);
        for (uint32_t row = 0; row < w->row_count; row++) w->at[row] = (uint32_t)stk_permutation_at(&p, row);
        return;
    }
    for (uint32_t row = 0; row < w->row_count; row++) w->at[row] = UINT32_MAX;
    uint32_t next = 0;
    for (uint32_t i = 0; i < w->sample_count; i++)
        if (w->at[w->row[i]] == UINT32_MAX) w->at[w->row[i]] = next++;
}

static void pack(stk_window *w)
{
    const uint32_t multiple = w->config->segment_multiple;
    for (uint32_t i = 0; i < w->sample_count; i++)
        w->length[i] = (uint32_t)(((uint64_t)w->drawn[i].token_count + multiple - 1) / multiple * multiple);
    w->row_count = stk_pack(w->packer, w->length, w->sample_count, w->row);
    order_rows(w);
    /* A counting sort: by row, then by draw. */
    memset(w->row_start, 0, (w->row_count + (size_t)1) * sizeof *w->row_start);
    for (uint32_t i = 0; i < w->sample_count; i++) w->row_start[w->at[w->row[i]] + 1]++;
    for (uint32_t row = 0; row < w->row_count; row++) w->row_start[row + 1] += w->row_start[row];
    uint32_t *const next = w->length; /* no longer needed */
    memcpy(next, w->row_start, w->row_count * sizeof *next);
    for (uint32_t i = 0; i < w->sample_count; i++) w->sample[next[w->at[w->row[i]]]++] = w->drawn[i];
}

void stk_window_load(stk_window *window, const stk_order *order, uint64_t epoch, uint64_t number)
{
    stk_window *const w = window;
    if (w->epoch == epoch && w->number == number) return;
    const uint64_t begin = stk_order_epoch_begin(order, epoch), end = stk_order_epoch_begin(order, epoch + 1),
                   first = begin + number * w->config->window, left = end - first;
    w->epoch = epoch;
    w->number = number;
    w->sample_count = (uint32_t)(left < w->config->window ? left : w->config->window);
    w->loads++;
    draw(w, order, first, w->sample_count);
    if (w->packer) {
        pack(w);
        return;
    }
    w->row_count = w->sample_count;
    memcpy(w->sample, w->drawn, w->sample_count * sizeof *w->sample);
    for (uint32_t i = 0; i <= w->row_count; i++) w->row_start[i] = i;
}
