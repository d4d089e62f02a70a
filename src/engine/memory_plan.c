/* memory_plan.c - what an engine needs, from the plan alone, and how a budget is shared out (architecture
 * section 8).
 *
 * Every part is fixed when the engine opens, so that memory in use never exceeds the budget (invariant 5). */
#include <limits.h>
#include <sched.h>
#include <unistd.h>

#include "engine/forecast_steps.h"

enum {
    WORKER_BYTES = 7 << 20,     /* scratch that a thread keeps: tables and rows of images, a cache of pieces of text */
    PARSED_TIMES = 3,           /* a record: its bytes, and the tree of its texts */
    RENDERED_TIMES = 4,         /* its text: rendered */
    BPE_TIMES = 44,             /* and bytes a byte of it for what has no blanks at all (bpe.c) */
    TEXT_TIMES = RENDERED_TIMES + BPE_TIMES,
    MARKED_TIMES = 3,           /* what limits.text_bytes limits may be longer before it is looked at (encode.c) */
    MEDIUM_RECORD_BYTES = 8,    /* a medium has a mark, an address and their signs in its record */
    KEPT_ROWS = 1 << 16,        /* a run of so many is gone through once, and the result is kept in a file; shorter ones take no time */
    PREFETCH_AUTO = 4,
    TICKETS_AUTO_BYTES = 256 << 20,
    ADDRESS_BYTES = 512,        /* of a path */
    POOL_ROUNDING_BYTES = 1024, /* pieces of a pool are multiples of 16 */
    LEAST_REQUESTS = 16,        /* remote ones under way, of a loop */
    LEFT_FOR_REQUESTS = 4,      /* beside these they take at most such a part of what is left */
};

/* --- forecast --- */

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
    forecast->finder_bytes = STK_FINDER_BYTES + WORKER_BYTES + forecast->maker_bytes;
}

static uint32_t most_rows(const stk_run *run, uint32_t world, uint64_t first_step, uint64_t end_step)
{
    uint32_t most = 0;
    const stk_rules *const rules = run->rules;
    for (uint32_t i = 0; i < rules->batch_count && rules->batch[i].first_step < end_step; i++) {
        if (i + 1 < rules->batch_count && rules->batch[i + 1].first_step <= first_step) continue;
        const uint32_t rows = stk_plan_micro_rows(run->plan, rules->batch[i].first_step, world);
        if (rows > most) most = rows;
    }
    return most;
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

static stk_status forecast_limits(stk_forecast *forecast, const stk_run *run, uint32_t rows, stk_error *err)
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

static uint32_t workers_auto(void)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? (uint32_t)CPU_COUNT(&set) : 1;
}

stk_status stk_forecast_make(stk_forecast *forecast, const stk_run *run, stk_engine_ranks ranks,
                             uint64_t first_step, uint64_t end_step, stk_watch *watch, stk_error *err)
{
    *forecast = (stk_forecast){0};
    if (run->stream) return forecast_limits(forecast, run, most_rows(run, ranks.world, first_step, end_step), err);
    if (first_step > 0 || end_step < stk_plan_step_count(run->plan))
        return stk_forecast_steps(forecast, run, ranks, first_step, end_step, workers_auto(), watch, err);
    char file[PATH_MAX];
    snprintf(file, sizeof file, "%s.stoker-memory-%.8s-%u", run->stem, run->fingerprint.whole, ranks.world);
    const bool kept = stk_plan_row_count(run->plan) >= KEPT_ROWS;
    return stk_forecast_run(forecast, run, ranks.world, kept ? file : NULL, workers_auto(), watch, err);
}

/* --- the budget --- */

static bool read_number(const char *path, size_t *value)
{
    FILE *const file = fopen(path, "re");
    if (!file) return false;
    unsigned long long number = 0;
    const bool read = fscanf(file, "%llu", &number) == 1; /* "max" is no number */
    fclose(file);
    if (read) *value = (size_t)number;
    return read;
}

/* A quarter of what the control group, or else the machine, allows. */
static size_t budget_auto(void)
{
    size_t bytes = (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE), limit;
    if (read_number("/sys/fs/cgroup/memory.max", &limit) && limit < bytes) bytes = limit;
    if (read_number("/sys/fs/cgroup/memory/memory.limit_in_bytes", &limit) && limit < bytes) bytes = limit;
    return bytes / 4;
}

/* A lane: slots for what is kept and `prefetch`, and what grows with them; into what must be there, and what of it is scratch. */
static bool count_lane(stk_memory_plan *m, uint32_t number, const stk_lane_needs *needs, uint32_t readers, size_t *sum)
{
    stk_lane_memory *const l = &m->lane[number];
    const stk_forecast *const f = &needs->forecast;
    const uint64_t slots = readers * ((uint64_t)needs->options->keep + l->prefetch);
    if (slots > UINT32_MAX / 4) return false;
    l->slot_count = (uint32_t)slots;
    /* Fetches run ahead of slots. */
    l->window_count = 2 * l->slot_count + 2 * readers;
    l->ticket_count = l->window_count * f->row_count;
    const uint32_t most = !f->finder_bytes ? 0 : needs->options->workers < 0 ? 1 : STK_FINDERS_MOST;
    l->finders = m->workers < most ? m->workers : most;
    const size_t counted[][2] = {{m->workers, WORKER_BYTES + f->maker_bytes},
                                 {l->window_count + l->slot_count, f->object_bytes},
                                 {l->finders, f->finder_bytes},
                                 {1, f->whole_bytes}};
    for (size_t i = 0; i < sizeof counted / sizeof *counted; i++) {
        size_t bytes;
        if (stk_mul_overflows(&bytes, counted[i][0], counted[i][1]) || stk_add_overflows(&m->scratch, m->scratch, bytes)) return false;
    }
    return !stk_mul_overflows(&l->slots, l->slot_each, l->slot_count) && !stk_add_overflows(sum, *sum, l->slots) &&
           !stk_add_overflows(sum, *sum, f->ticket_bytes);
}

/* All but what may grow with the budget: what each lane needs, and one sample in work. */
static bool count_needs(stk_memory_plan *m, const stk_lane_needs *needs, uint32_t lane_count, uint32_t readers, size_t *sum)
{
    m->scratch = 0;
    *sum = m->largest_work;
    for (uint32_t i = 0; i < lane_count; i++)
        if (!count_lane(m, i, &needs[i], readers, sum)) return false;
    return !stk_add_overflows(sum, *sum, m->store) && !stk_add_overflows(sum, *sum, m->scratch);
}

/* --- requests under way --- */

static int loops_of(const stk_lane_needs *needs)
{
    return needs->options->io_threads < 1 ? 1 : (int)needs->options->io_threads;
}

/* The fewest that a run with objects goes on with. */
static void count_requests(stk_memory_plan *m, const stk_lane_needs *needs, uint32_t lane_count)
{
    const int loops = loops_of(needs);
    for (uint32_t i = 0; i < lane_count; i++) {
        if (!needs[i].remote) continue;
        if (!m->requests) m->store += stk_source_bytes(m->requests = LEAST_REQUESTS * loops, loops);
        if (needs[i].forecast.finder_bytes)
            m->store += stk_source_bytes(m->lane[i].finder_requests = LEAST_REQUESTS * loops_of(&needs[i]), loops_of(&needs[i]));
    }
}

/* As many as `wanted`, or as `part` of the memory goes; what they take then. */
static size_t grow_requests(int *requests, uint64_t wanted, int loops, size_t part)
{
    const size_t before = stk_source_bytes(*requests, loops);
    const size_t each = stk_source_bytes(*requests + loops, loops) - before; /* one more of each loop */
    while ((uint64_t)*requests < wanted && *requests + loops <= STK_LOOP_REQUESTS * loops && each <= part) {
        *requests += loops;
        part -= each;
    }
    return stk_source_bytes(*requests, loops) - before;
}

/* How many requests what a lane may fetch ahead can be: objects of twice the average are not rare. */
static uint64_t requests_of(const stk_lane_memory *l, const stk_lane_needs *needs)
{
    const stk_forecast *const f = &needs->forecast;
    const uint64_t window = (uint64_t)l->window_count * f->media_count;
    const double ahead = needs->options->fetch_ahead_bytes ? (double)needs->options->fetch_ahead_bytes : TICKETS_AUTO_BYTES;
    const double fitting = f->fetch_bytes ? 2 * ahead * f->media_count / (double)f->fetch_bytes : 0;
    return fitting < (double)window ? (uint64_t)fitting : window;
}

static stk_status fail_budget(const stk_memory_plan *m, const stk_lane_needs *needs, uint32_t lane_count, uint32_t readers, size_t sum,
                              stk_error *err)
{
    const stk_lane_memory *const l = m->lane;
    size_t sample = m->largest_work, slots = 0;
    bool by_limits = false;
    char store[64] = "";
    if (m->store) snprintf(store, sizeof store, " + requests to stores %zu", m->store);
    for (uint32_t i = 0; i < lane_count; i++) {
        sample += needs[i].forecast.ticket_bytes;
        slots += l[i].slots;
        by_limits = by_limits || needs[i].forecast.by_limits;
    }
    if (by_limits)
        return stk_fail(err, STK_ERR_BUDGET,
                        "memory: %zu is too little for index: stream, which reserves for the largest allowed: slots %zu + scratch %zu%s + "
                        "sample %zu = %zu: lower max_tokens, limits.media_pixels, limits.media_bytes or micro_batch",
                        m->budget, slots, m->scratch, store, sample, sum);
    if (lane_count > 1)
        return stk_fail(err, STK_ERR_BUDGET,
                        "memory: %zu bytes are too few: slots of training %u x %zu + of eval %u x %zu + scratch %zu%s + largest samples %zu "
                        "= %zu: raise memory, or lower micro_batch, keep or prefetch",
                        m->budget, l[0].slot_count, l[0].slot_each, l[1].slot_count, l[1].slot_each, m->scratch, store, sample,
                        sum);
    return stk_fail(err, STK_ERR_BUDGET,
                    "memory: %zu bytes are too few: (keep %llu + prefetch %llu) x %u ranks x %zu of the largest micro-batch + scratch %zu%s + "
                    "largest sample %zu = %zu: raise memory, or lower micro_batch, keep or prefetch",
                    m->budget, (unsigned long long)needs->options->keep, (unsigned long long)l->prefetch, readers, l->slot_each,
                    m->scratch, store, sample, sum);
}

/* More ready micro-batches of a lane where nobody said how many, as far as half of what is left goes. */
static void grow_prefetch(stk_memory_plan *m, uint32_t number, const stk_lane_needs *needs, uint32_t lane_count, uint32_t readers, size_t *sum)
{
    const uint64_t most = needs[number].on_request && m->workers > PREFETCH_AUTO ? m->workers : PREFETCH_AUTO;
    while (m->lane[number].prefetch < most) {
        stk_memory_plan more = *m;
        size_t more_sum;
        more.lane[number].prefetch++;
        if (!count_needs(&more, needs, lane_count, readers, &more_sum) || more_sum > *sum + (m->budget - *sum) / 2) return;
        *m = more;
        *sum = more_sum;
    }
}

/* More requests, the data path's first, out of `part` of the memory; what they take. */
static size_t share_requests(stk_memory_plan *m, const stk_lane_needs *needs, uint32_t lane_count, size_t part)
{
    if (!m->requests) return 0;
    uint64_t wanted = 0;
    for (uint32_t i = 0; i < lane_count; i++)
        if (needs[i].remote) wanted += requests_of(&m->lane[i], &needs[i]);
    size_t more = grow_requests(&m->requests, wanted, loops_of(needs), part);
    for (uint32_t i = 0; i < lane_count; i++) {
        if (!m->lane[i].finder_requests) continue;
        more += grow_requests(&m->lane[i].finder_requests, (uint64_t)m->lane[i].finders * STK_FINDER_REQUESTS, loops_of(&needs[i]), part - more);
    }
    m->store += more;
    return more;
}

/* What is left beside `sum` goes to samples in work, to requests, and then to fetches. */
static void share_rest(stk_memory_plan *m, const stk_lane_needs *needs, uint32_t lane_count, size_t sum)
{
    size_t left = m->budget - sum, more_work;
    /* The largest sample on each thread, and room for the oldest beside them. */
    if (stk_mul_overflows(&more_work, m->largest_work, m->workers) || more_work > left / 2) more_work = left / 2;
    m->work = m->largest_work + more_work;
    left -= more_work;
    left -= share_requests(m, needs, lane_count, left / LEFT_FOR_REQUESTS);
    for (uint32_t i = 0; i < lane_count; i++) {
        const stk_forecast *const f = &needs[i].forecast;
        const uint64_t option = (uint64_t)needs[i].options->fetch_ahead_bytes;
        size_t wanted = option ? (size_t)option : TICKETS_AUTO_BYTES, held;
        /* No more than a full window holds, and what a ring leaves free where it wraps: it walks through all that it has. */
        if (!stk_mul_overflows(&held, f->fetch_bytes, m->lane[i].window_count) && !stk_add_overflows(&held, held, f->ticket_bytes) &&
            wanted > held)
            wanted = held;
        size_t more = wanted > f->ticket_bytes ? wanted - f->ticket_bytes : 0;
        if (more > left) more = left;
        m->lane[i].tickets = f->ticket_bytes + more;
        /* The largest sample fits beside what is only expected: so what is asked for goes on, whatever that holds. */
        const size_t half = m->lane[i].tickets / 2;
        m->lane[i].ahead = !needs[i].on_request ? 0 : half < more ? half : more;
        left -= more;
    }
}

stk_status stk_memory_plan_make(stk_memory_plan *m, const stk_lane_needs *needs, uint32_t lane_count, stk_engine_ranks ranks, stk_error *err)
{
    const stk_options *const options = needs->options;
    const bool inline_workers = options->workers < 0, workers_free = options->workers == 0;
    const uint32_t readers = ranks.rank_count;
    const size_t page_bytes = (size_t)sysconf(_SC_PAGESIZE);
    *m = (stk_memory_plan){.budget = options->memory_bytes ? (size_t)options->memory_bytes : budget_auto(),
                           .workers = inline_workers ? readers * lane_count : workers_free ? workers_auto() : (uint32_t)options->workers};
    bool prefetch_free[STK_LANES];
    for (uint32_t i = 0; i < lane_count; i++) {
        const stk_forecast *const f = &needs[i].forecast;
        prefetch_free[i] = !needs[i].options->prefetch || inline_workers;
        m->lane[i] = (stk_lane_memory){.slot_each = stk_round_up(f->slot_bytes, page_bytes), .object_each = f->object_bytes,
                                       .largest_record = f->record_bytes,
                                       .prefetch = prefetch_free[i] ? 1 : (uint64_t)needs[i].options->prefetch};
        if (f->work_bytes > m->largest_work) m->largest_work = f->work_bytes;
    }
    count_requests(m, needs, lane_count);
    size_t sum;
    bool countable = count_needs(m, needs, lane_count, readers, &sum);
    /* What nobody set gives way: threads. */
    while (countable && sum > m->budget && workers_free && m->workers > 1) {
        m->workers--;
        countable = count_needs(m, needs, lane_count, readers, &sum);
    }
    if (!countable)
        return stk_fail(err, STK_ERR_BUDGET,
                        "a micro-batch is too large to address: lower batch, keep or prefetch");
    if (sum > m->budget) return fail_budget(m, needs, lane_count, readers, sum, err);
    for (uint32_t i = 0; i < lane_count && !inline_workers; i++)
        if (prefetch_free[i]) grow_prefetch(m, i, needs, lane_count, readers, &sum);
    share_rest(m, needs, lane_count, sum);
    return STK_OK;
}
