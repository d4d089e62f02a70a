/* memory_plan.c - what an engine needs, from the plan alone, and how a budget is shared out (architecture
 * section 8).
 *
 * Every part is fixed when the engine opens, so that memory in use never exceeds the budget (invariant 5). */
#include <limits.h>
#include <sched.h>
#include <unistd.h>

#include "engine/forecast.h"
#include "engine/forecast_steps.h"

enum {
    KEPT_ROWS = 1 << 16,        /* a run of so many is gone through once, and the result is kept in a file; shorter ones take no time */
    PREFETCH_AUTO = 4,
    TICKETS_AUTO_BYTES = 256 << 20,
    LEAST_REQUESTS = 16,        /* remote ones under way, of a loop */
    LEFT_FOR_REQUESTS = 4,      /* beside these they take at most such a part of what is left */
};

/* --- forecast --- */

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

static uint32_t workers_auto(void)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? (uint32_t)CPU_COUNT(&set) : 1;
}

stk_status stk_forecast_make(stk_forecast *forecast, const stk_run *run, stk_engine_ranks ranks,
                             uint64_t first_step, uint64_t end_step, stk_watch *watch, stk_error *err)
{
    *forecast = (stk_forecast){0};
    if (run->stream) return stk_forecast_limits(forecast, run, most_rows(run, ranks.world, first_step, end_step), err);
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
    const size_t counted[][2] = {{m->workers, STK_WORKER_BYTES + f->maker_bytes},
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
