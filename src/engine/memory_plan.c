/* memory_plan.c - what an engine needs, from the plan alone, and how a budget is shared out (architecture
 * section 8).
 *
 * Every part is fixed when the engine opens, so that memory in use never exceeds the budget (invariant 5). */
#include <sched.h>
#include <unistd.h>

#include "engine/engine_core.h"

enum {
    WORKER_BYTES = 7 << 20,     /* scratch that a thread keeps: tables and rows of images, a cache of pieces of text */
    PARSED_TIMES = 3,           /* a record: its bytes, and the tree of its texts */
    TEXT_TIMES = 48,            /* its text: rendered, and 44 bytes a byte for what has no blanks at all (bpe.c) */
    PREFETCH_AUTO = 4,
    TICKETS_AUTO_BYTES = 256 << 20,
    ADDRESS_BYTES = 512,        /* of a path */
    POOL_ROUNDING_BYTES = 1024, /* pieces of a pool are multiples of 16 */
};

/* --- forecast --- */

static void add_micro(stk_forecast *forecast, const stk_run *run, const stk_recipe *recipe,
                      const stk_slot_layout *layout)
{
    size_t object_bytes =
        recipe->sample_count * (sizeof(stk_unit) + sizeof(stk_batch_note) + sizeof(stk_recipe_sample)) +
        recipe->row_count * sizeof *recipe->step_row +
        recipe->media_count * (sizeof(stk_request) + sizeof(stk_recipe_media) + ADDRESS_BYTES) +
        POOL_ROUNDING_BYTES;
    for (uint32_t i = 0; i < recipe->sample_count; i++) {
        const stk_recipe_sample *const sample = &recipe->sample[i];
        if (sample->filler) continue;
        size_t ticket_bytes, work_bytes;
        stk_sample_needs(run, recipe, sample, &ticket_bytes, &work_bytes);
        const size_t record_bytes = run->set[sample->set_index].facts.record[sample->record_index].size_bytes;
        size_t inline_bytes = 0; /* of media that stand in the record as data: URIs */
        if (ticket_bytes > forecast->ticket_bytes) forecast->ticket_bytes = ticket_bytes;
        if (work_bytes > forecast->work_bytes) forecast->work_bytes = work_bytes;
        for (uint32_t k = 0; k < sample->media_count; k++) {
            const uint64_t at = recipe->media[sample->first_media + k].media_index;
            const stk_media_facts *const facts = &run->set[sample->set_index].facts.media[at];
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
    if (object_bytes > forecast->object_bytes) forecast->object_bytes = object_bytes;
    if (layout->size_bytes > forecast->slot_bytes) forecast->slot_bytes = layout->size_bytes;
    if (recipe->row_count > forecast->row_count) forecast->row_count = recipe->row_count;
}

stk_status stk_forecast_make(stk_forecast *forecast, const stk_run *run, stk_engine_ranks ranks,
                             uint64_t first_step, uint64_t end_step, stk_error *err)
{
    *forecast = (stk_forecast){0};
    stk_pool pool;
    stk_pool_init(&pool, STK_TAG_PLAN);
    stk_plan_scratch *scratch;
    stk_status status = stk_plan_scratch_create(&scratch, run->plan, err);
    for (uint64_t step = first_step; status == STK_OK && step < end_step; step++)
        for (uint32_t rank = ranks.first_rank; status == STK_OK && rank < ranks.first_rank + ranks.rank_count;
             rank++)
            for (uint32_t micro = 0; status == STK_OK && micro < stk_plan_micro_count(run->plan, step, ranks.world); micro++) {
                stk_recipe recipe;
                stk_slot_layout layout;
                stk_pool_reset(&pool);
                status = stk_plan_recipe(run->plan, scratch, step, rank, ranks.world, micro, &pool, &recipe, err);
                if (status == STK_OK) status = stk_slot_layout_init(&layout, &recipe, &run->form, err);
                if (status == STK_OK) add_micro(forecast, run, &recipe, &layout);
            }
    stk_plan_scratch_destroy(scratch);
    stk_pool_deinit(&pool);
    return status;
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

static uint32_t workers_auto(void)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? (uint32_t)CPU_COUNT(&set) : 1;
}

/* All but what may grow with the budget: slots for what is kept and `prefetch`, and one sample in work. */
static bool count_needs(stk_memory_plan *m, const stk_forecast *f, uint32_t readers, uint64_t keep,
                        uint64_t prefetch, size_t *sum)
{
    const uint64_t slots = readers * (keep + prefetch);
    if (slots > UINT32_MAX / 4) return false;
    m->slot_count = (uint32_t)slots;
    /* Fetches run ahead of slots. */
    m->window_count = 2 * m->slot_count + 2 * readers;
    m->ticket_count = m->window_count * f->row_count;
    size_t objects;
    if (stk_mul_overflows(&m->slots, m->slot_each, m->slot_count)) return false;
    if (stk_mul_overflows(&objects, f->object_bytes, m->window_count + m->slot_count)) return false;
    m->scratch = (size_t)m->workers * (WORKER_BYTES + f->maker_bytes) + objects;
    *sum = m->slots;
    return !stk_add_overflows(sum, *sum, m->scratch) && !stk_add_overflows(sum, *sum, f->work_bytes) &&
           !stk_add_overflows(sum, *sum, f->ticket_bytes);
}

stk_status stk_memory_plan_make(stk_memory_plan *m, const stk_forecast *f, const stk_options *options,
                                stk_engine_ranks ranks, stk_error *err)
{
    *m = (stk_memory_plan){0};
    const bool inline_workers = options->workers < 0, workers_free = options->workers == 0;
    const uint32_t readers = ranks.rank_count;
    m->workers = inline_workers ? readers : workers_free ? workers_auto() : (uint32_t)options->workers;
    m->budget = options->memory_bytes ? (size_t)options->memory_bytes : budget_auto();
    m->slot_each = stk_round_up(f->slot_bytes, (size_t)sysconf(_SC_PAGESIZE));
    m->object_each = f->object_bytes;
    m->largest_work = f->work_bytes;
    m->largest_record = f->record_bytes;

    const uint64_t keep = (uint64_t)options->keep;
    const bool prefetch_free = !options->prefetch || inline_workers;
    uint64_t prefetch = prefetch_free ? 1 : (uint64_t)options->prefetch;
    size_t sum;
    bool countable = count_needs(m, f, readers, keep, prefetch, &sum);
    /* What nobody set gives way: threads. */
    while (countable && sum > m->budget && workers_free && m->workers > 1) {
        m->workers--;
        countable = count_needs(m, f, readers, keep, prefetch, &sum);
    }
    if (!countable)
        return stk_fail(err, STK_ERR_BUDGET,
                        "a micro-batch is too large to address: lower batch, keep or prefetch");
    if (sum > m->budget)
        return stk_fail(err, STK_ERR_BUDGET,
                        "memory: %zu bytes are too few: (keep %llu + prefetch %llu) x %u ranks x %zu of the "
                        "largest micro-batch + scratch %zu + "
                        "largest sample %zu = %zu: raise memory, or lower micro_batch, keep or prefetch",
                        m->budget, (unsigned long long)keep, (unsigned long long)prefetch, readers,
                        m->slot_each, m->scratch, f->work_bytes + f->ticket_bytes, sum);
    /* More ready micro-batches where nobody said how many, as far as half of what is left goes. */
    for (; prefetch_free && !inline_workers && prefetch < PREFETCH_AUTO; prefetch++) {
        stk_memory_plan more = *m;
        size_t more_sum;
        if (!count_needs(&more, f, readers, keep, prefetch + 1, &more_sum) ||
            more_sum > sum + (m->budget - sum) / 2)
            break;
        *m = more;
        sum = more_sum;
    }
    size_t left = m->budget - sum, more_work;
    /* The largest sample on each thread, and room for the oldest beside them. */
    if (stk_mul_overflows(&more_work, f->work_bytes, m->workers) || more_work > left / 2)
        more_work = left / 2;
    m->work = f->work_bytes + more_work;
    left -= more_work;
    const size_t wanted =
        options->fetch_ahead_bytes ? (size_t)options->fetch_ahead_bytes : TICKETS_AUTO_BYTES;
    m->tickets = f->ticket_bytes;
    if (wanted > m->tickets) m->tickets += wanted - m->tickets < left ? wanted - m->tickets : left;
    return STK_OK;
}
