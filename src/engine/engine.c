/* engine.c - opening, the pieces of work, the threads, closing.  The picture stands in engine_core.h. */
#include "engine/engine_core.h"

#include <errno.h>
#include <signal.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fault.h"
#include "engine/fingerprint.h"
#include "engine/stall.h"

enum { IO_THREADS = 4 };

/* --- order --- */

void stk_engine_place(const stk_engine *engine, uint64_t sequence, uint64_t *step, uint32_t *rank,
                      uint32_t *micro)
{
    *rank = engine->ranks.first_rank + (uint32_t)(sequence % engine->ranks.rank_count);
    stk_plan_micro_at(engine->run->plan, sequence / engine->ranks.rank_count + engine->first_number, engine->ranks.world, step,
                      micro);
}

static stk_work **cell(stk_engine *engine, uint64_t sequence)
{
    return &engine->window[sequence % engine->window_count];
}

static bool is_made(const stk_work *work)
{
    return work->prepared && work->units_left == 0;
}

void stk_engine_note_memory(stk_engine *engine)
{
    engine->metrics.held_bytes = engine->memory.scratch + engine->slots_held * engine->memory.slot_each +
                                 engine->tickets.held_bytes + engine->work_held;
    if (engine->metrics.held_bytes > engine->metrics.peak_bytes)
        engine->metrics.peak_bytes = engine->metrics.held_bytes;
}

/* --- pieces of work: each is entered and left with the lock held, and does its work without it --- */

static bool reap(stk_engine *engine)
{
    if (!engine->source_moved) return false;
    engine->source_moved = false;
    pthread_mutex_unlock(&engine->home->lock);
    stk_request *finished = NULL, *r;
    while ((r = stk_source_reap(engine->source, 0))) {
        r->next = finished;
        finished = r;
    }
    pthread_mutex_lock(&engine->home->lock);
    for (; finished; finished = r) {
        r = finished->next;
        stk_unit *const unit = finished->owner;
        engine->metrics.fetch.count++;
        engine->metrics.fetch.bytes += finished->got_bytes;
        engine->metrics.fetch.busy_ns += finished->busy_ns;
        engine->metrics.media_opened++;
        if (--unit->requests_left) continue;
        unit->state = STK_UNIT_READY;
        unit->work->units_ready++;
    }
    return true;
}

/* The pixels of a filler image: grey, as those of a masked one. */
static void fill_images(const stk_engine *engine, stk_batch *batch)
{
    for (uint32_t k = 0; k < batch->recipe.media_count; k++)
        if (batch->recipe.media[k].media_index == STK_FILLER_MEDIA)
            stk_image_grey(stk_slot_patches(batch->slot, &batch->layout, &batch->recipe, k), engine->run->image,
                           stk_grid_patches(batch->recipe.media[k].grid));
}

/* Give the oldest micro-batch without one its slot, and write what belongs to no sample. */
static bool prepare(stk_engine *engine)
{
    if (engine->slotted == engine->taken) return false;
    stk_work *const work = *cell(engine, engine->slotted);
    if (work->status < 0) { /* take failed: there is nothing to write */
        work->prepared = true;
        engine->slotted++;
        pthread_cond_broadcast(&engine->home->ready);
        return true;
    }
    const int32_t slot = stk_arena_take(engine->home->arena);
    if (slot < 0) return false;
    engine->slotted++;
    engine->slots_held++;
    work->slot = slot;
    work->batch.slot = stk_arena_slot(engine->home->arena, slot);
    stk_engine_note_memory(engine);
    pthread_mutex_unlock(&engine->home->lock);
    stk_slot_prepare(work->batch.slot, &work->batch.layout, &work->batch.recipe, &engine->run->form);
    fill_images(engine, &work->batch);
    pthread_mutex_lock(&engine->home->lock);
    work->prepared = true;
    if (is_made(work)) pthread_cond_broadcast(&engine->home->ready);
    return true;
}

/* Step 0 is made before anything is prefetched: the trainer waits for it. */
static bool may_take(stk_engine *engine)
{
    if (engine->taking || engine->failed < 0 || engine->taken == engine->sequence_end ||
        !engine->home->free_work)
        return false;
    if (engine->inline_workers && engine->taken > engine->wanted) return false; /* nothing runs ahead */
    if (engine->taken - engine->head >= engine->window_count) return false;
    const uint32_t micros = stk_plan_micro_count(engine->run->plan, engine->first_step, engine->ranks.world);
    const uint64_t first_step_end = (uint64_t)(micros - engine->first_micro) * engine->ranks.rank_count;
    if (engine->taken < first_step_end) return true;
    for (uint64_t s = engine->head; s < first_step_end; s++) {
        const stk_work *const work = *cell(engine, s);
        if (work && !is_made(work)) return false;
    }
    return true;
}

static bool take(stk_engine *engine, stk_worker *worker)
{
    if (!may_take(engine)) return false;
    engine->taking = true;
    stk_work *const work = engine->home->free_work;
    engine->home->free_work = work->next;
    work->sequence = engine->taken;
    pthread_mutex_unlock(&engine->home->lock);
    stk_stall("take");
    uint64_t step;
    uint32_t rank, micro;
    stk_engine_place(engine, work->sequence, &step, &rank, &micro);
    const stk_status status = stk_work_take(work, engine->run, engine->scratch, engine->lazy, &worker->maker, step, rank,
                                            engine->ranks.world, micro, &work->error);
    pthread_mutex_lock(&engine->home->lock);
    if (status < 0) {
        work->status = status;
        work->unit_count = work->units_left = 0;
    }
    *cell(engine, engine->taken++) = work;
    engine->taking = false;
    return true;
}

/* Grant the next unit in order its ticket, and start its fetches. */
static bool start_fetch(stk_engine *engine)
{
    while (engine->ticketed < engine->taken) {
        stk_work *const work = *cell(engine, engine->ticketed);
        if (!work || work->units_ticketed == work->unit_count) {
            engine->ticketed++;
            continue;
        }
        stk_unit *const unit = &work->unit[work->units_ticketed];
        if (unit->request_count == 0) {
            work->units_ticketed++;
            unit->state = STK_UNIT_READY;
            work->units_ready++;
            return true;
        }
        if (engine->inline_workers && engine->tickets.count) return false; /* one by one */
        uint8_t *const ticket = stk_tickets_take(&engine->tickets, unit->ticket_bytes);
        if (!ticket) {
            engine->metrics.budget_waits += !unit->waited;
            unit->waited = true;
            return false;
        }
        work->units_ticketed++;
        unit->state = STK_UNIT_FETCHING;
        unit->waited = false;
        stk_unit_set_ticket(unit, ticket);
        stk_engine_note_memory(engine);
        /* After the last submit the unit belongs to whoever makes it. */
        stk_request *const request = unit->request;
        const uint32_t request_count = unit->request_count;
        pthread_mutex_unlock(&engine->home->lock);
        stk_stall("fetch");
        for (uint32_t k = 0; k < request_count; k++) stk_source_submit(engine->source, &request[k]);
        pthread_mutex_lock(&engine->home->lock);
        return true;
    }
    return false;
}

/* The oldest unit whose bytes are there, if its working memory is granted.  The oldest of all may use what is
 * left; every other leaves room for the largest, so that the oldest never waits for more than what runs now.
 */
static stk_unit *claim(stk_engine *engine)
{
    bool is_oldest = true;
    for (uint64_t s = engine->head; s < engine->slotted; s++) {
        stk_work *const work = *cell(engine, s);
        if (!work || work->units_left == 0) continue;
        if (!work->prepared || work->units_ready == 0) {
            is_oldest = false;
            continue;
        }
        for (uint32_t i = 0; i < work->unit_count; i++) {
            stk_unit *const unit = &work->unit[i];
            if (unit->state == STK_UNIT_MADE) continue;
            if (unit->state == STK_UNIT_READY) {
                const size_t room = engine->memory.work - engine->work_held;
                const size_t need = unit->work_bytes + (is_oldest ? 0 : engine->memory.largest_work);
                if (unit->work_bytes == 0 || need <= room) return unit;
                engine->metrics.budget_waits += !unit->waited;
                unit->waited = true;
                return NULL;
            }
            is_oldest = false;
        }
    }
    return NULL;
}

static bool make(stk_engine *engine, stk_worker *worker)
{
    stk_unit *const unit = claim(engine);
    if (!unit) return false;
    stk_work *const work = unit->work;
    unit->state = STK_UNIT_MAKING;
    work->units_ready--;
    engine->work_held += unit->work_bytes;
    stk_engine_note_memory(engine);
    pthread_mutex_unlock(&engine->home->lock);
    stk_stall("make");
    stk_error error = {0};
    const stk_status status = stk_unit_make(unit, engine->run, &worker->maker, &error);
    pthread_mutex_lock(&engine->home->lock);
    engine->work_held -= unit->work_bytes;
    if (unit->ticket) stk_tickets_give_back(&engine->tickets, unit->ticket);
    worker->decode = worker->maker.decode;
    worker->transform = worker->maker.transform;
    worker->text = worker->maker.text_stage;
    worker->place = worker->maker.place;
    unit->state = STK_UNIT_MADE;
    /* Errors surface in plan order, whichever unit failed first. */
    const uint32_t at = (uint32_t)(unit - work->unit);
    if (status < 0 && (work->status == STK_OK || at < work->failed_unit)) {
        work->status = status;
        work->failed_unit = at;
        work->error = error;
    }
    work->units_left--;
    if (is_made(work)) pthread_cond_broadcast(&engine->home->ready);
    return true;
}

bool stk_engine_advance(stk_engine *engine, stk_worker *worker)
{
    const bool did = reap(engine) || prepare(engine) || take(engine, worker) || start_fetch(engine) ||
                     make(engine, worker);
    if (did) pthread_cond_signal(&engine->home->changed);
    return did;
}

/* --- threads --- */

static void *run_worker(void *context)
{
    stk_worker *const worker = context;
    stk_engine *const engine = worker->engine;
    pthread_setname_np(pthread_self(), "stk-worker");
    pthread_mutex_lock(&engine->home->lock);
    while (!engine->stop)
        if (!stk_engine_advance(engine, worker))
            pthread_cond_wait(&engine->home->changed, &engine->home->lock);
    pthread_mutex_unlock(&engine->home->lock);
    return NULL;
}

static void source_finished(void *context)
{
    stk_engine *const engine = context;
    pthread_mutex_lock(&engine->home->lock);
    engine->source_moved = true;
    pthread_cond_signal(&engine->home->changed);
    if (engine->inline_workers) pthread_cond_broadcast(&engine->home->ready);
    pthread_mutex_unlock(&engine->home->lock);
}

static stk_status start_workers(stk_engine *engine, stk_error *err)
{
    engine->worker = stk_alloc_array(STK_TAG_ENGINE, engine->memory.workers, sizeof *engine->worker);
    if (!engine->worker)
        return stk_fail(err, STK_ERR_NOMEM, "out of memory: %u workers", engine->memory.workers);
    for (uint32_t i = 0; i < engine->memory.workers; i++) {
        engine->worker[i].engine = engine;
        STK_TRY(stk_maker_init(&engine->worker[i].maker, engine->run, engine->memory.largest_record, err));
    }
    /* Signals belong to the program's own threads. */
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int code = 0;
    for (uint32_t i = 0; code == 0 && i < engine->memory.workers && !engine->inline_workers; i++) {
        code = stk_fault(STK_FAULT_THREAD_CREATE)
                   ? EAGAIN
                   : pthread_create(&engine->worker[i].thread, NULL, run_worker, &engine->worker[i]);
        engine->worker[i].started = code == 0;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (code == 0) return STK_OK;
    errno = code;
    return stk_fail_errno(err, "cannot start a worker thread");
}

/* --- open --- */

static void home_release(stk_engine_home *home)
{
    if (atomic_fetch_sub(&home->references, 1) != 1) return;
    for (uint32_t i = 0; home->work && i < home->work_count; i++) stk_pool_deinit(&home->work[i].pool);
    stk_free(home->work);
    stk_arena_destroy(home->arena);
    stk_run_release(home->run);
    pthread_cond_destroy(&home->changed);
    pthread_cond_destroy(&home->ready);
    pthread_mutex_destroy(&home->lock);
    stk_free(home);
}

/* The last release of a batch, from any thread, also when the engine is gone. */
static void take_back(stk_batch_home *batch_home, stk_batch *batch)
{
    stk_engine_home *const home = (stk_engine_home *)batch_home;
    stk_work *const work = (stk_work *)batch;
    if (home->pid != getpid()) return; /* a copy in a forked child: the memory is the parent's */
    pthread_mutex_lock(&home->lock);
    stk_arena_give_back(home->arena, work->slot);
    work->next = home->free_work;
    home->free_work = work;
    if (home->engine) {
        home->engine->slots_held--;
        home->engine->reader[batch->recipe.rank - home->engine->ranks.first_rank].held--;
        pthread_cond_signal(&home->changed);
        if (home->engine->inline_workers) pthread_cond_broadcast(&home->ready);
    }
    pthread_mutex_unlock(&home->lock);
    home_release(home);
}

static stk_status home_create(stk_engine_home **out, stk_run *run, const stk_memory_plan *memory,
                              stk_error *err)
{
    *out = NULL;
    stk_engine_home *const home = stk_alloc(STK_TAG_ENGINE, sizeof *home);
    if (!home) return stk_fail(err, STK_ERR_NOMEM, "out of memory: an engine");
    home->home = (stk_batch_home){.take_back = take_back, .form = &run->form, .set_name = run->set_name};
    home->pid = getpid();
    home->run = run;
    stk_run_retain(run);
    atomic_store(&home->references, 1);
    pthread_mutex_init(&home->lock, NULL);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&home->changed, &monotonic);
    pthread_cond_init(&home->ready, &monotonic);
    pthread_condattr_destroy(&monotonic);

    /* In the window, and out with readers. */
    home->work_count = memory->window_count + memory->slot_count;
    home->work = stk_alloc_array(STK_TAG_ENGINE, home->work_count, sizeof *home->work);
    stk_status status = home->work
                            ? stk_arena_create(&home->arena, memory->slot_each, memory->slot_count, err)
                            : stk_fail(err, STK_ERR_NOMEM, "out of memory: an engine");
    if (status < 0) {
        home_release(home);
        return status;
    }
    for (uint32_t i = 0; i < home->work_count; i++) {
        stk_work *const work = &home->work[i];
        work->batch.home = &home->home;
        stk_pool_init(&work->pool, STK_TAG_ENGINE);
        work->next = home->free_work;
        home->free_work = work;
    }
    /* As much as the largest takes, now: nothing is allocated per batch (invariant 10). */
    for (uint32_t i = 0; i < home->work_count; i++) {
        if (!stk_pool_take(&home->work[i].pool, memory->object_each)) {
            status = stk_fail(err, STK_ERR_NOMEM, "out of memory: %u micro-batches", home->work_count);
            home_release(home);
            return status;
        }
        stk_pool_reset(&home->work[i].pool);
    }
    *out = home;
    return STK_OK;
}

/* What all states of this run record: the changes before, and those that are accepted now. */
static void note_changes(stk_engine *engine, const stk_state *state)
{
    char words[160];
    for (int i = 0; i < STK_STREAM_OPTIONS; i++)
        engine->base.changed[i] = state->changed[i] ||
                                  stk_fingerprint_difference(&state->fingerprint, &engine->run->fingerprint, (stk_stream_option)i, words);
}

/* Where the run starts: the beginning, or after a state. */
static stk_status find_start(stk_engine *engine, const stk_state *state, stk_error *err)
{
    if (!state) return STK_OK;
    if (state->plan_version != STK_PLAN_VERSION)
        return stk_fail(err, STK_ERR_STATE,
                        "the state has plan_version %u, and this release plans by version %u",
                        state->plan_version, STK_PLAN_VERSION);
    bool changed;
    STK_TRY(stk_fingerprint_check(state, &engine->run->fingerprint, &changed, err));
    note_changes(engine, state);
    /* A step that was begun is cut otherwise now: it is made anew. */
    if (changed) {
        engine->first_step = stk_plan_step_from(engine->run->plan, state->epoch, state->rows);
        return STK_OK;
    }
    if (state->micro && state->world != engine->ranks.world)
        return stk_fail(err, STK_ERR_STATE,
                        "the state was taken inside a step on %u ranks and cannot go on with %u: use one of "
                        "the end of a step",
                        state->world, engine->ranks.world);
    STK_TRY(stk_plan_step_at(engine->run->plan, state->epoch, state->rows, &engine->first_step, err));
    if (engine->first_step != state->step)
        return stk_fail(err, STK_ERR_STATE, "the state names step %llu, and its position is step %llu",
                        (unsigned long long)state->step, (unsigned long long)engine->first_step);
    if (state->micro == 0) return STK_OK;
    const uint32_t world = engine->ranks.world;
    const uint32_t micro_rows = stk_plan_micro_rows(engine->run->plan, state->step, world);
    if (state->micro_rows != micro_rows)
        return stk_fail(err, STK_ERR_STATE,
                        "the state was taken inside a step with %u rows in a micro-batch and cannot go on "
                        "with %u: set micro_batch as it "
                        "was, or use one of the end of a step",
                        state->micro_rows, micro_rows);
    const uint32_t micros = stk_plan_micro_count(engine->run->plan, state->step, world);
    if (state->step == stk_plan_step_count(engine->run->plan) || state->micro >= micros)
        return stk_fail(err, STK_ERR_STATE, "the state names micro-batch %u, and a step has %u", state->micro, micros);
    engine->first_micro = state->micro;
    return STK_OK;
}

static void open_readers(stk_engine *engine)
{
    for (uint32_t i = 0; i < engine->ranks.rank_count; i++) {
        stk_reader *const reader = &engine->reader[i];
        reader->engine = engine;
        reader->rank = engine->ranks.first_rank + i;
        reader->next_sequence = i;
        stk_state *const state = &reader->state;
        *state = engine->base;
        state->step = engine->first_step;
        stk_plan_position(engine->run->plan, state->step, &state->epoch, &state->rows);
        state->micro = engine->first_micro;
        state->world = engine->first_micro ? engine->ranks.world : 0;
        state->micro_rows =
            engine->first_micro ? stk_plan_micro_rows(engine->run->plan, state->step, engine->ranks.world) : 0;
    }
}

/* Which micro-batches an engine serves. */
typedef struct span {
    const stk_state *state; /* from there to the end; NULL: all */
    bool one;               /* only this one */
    uint64_t step;
    uint32_t micro;
} span;

static stk_status find_span(stk_engine *engine, const span *part, stk_forecast *forecast, stk_error *err)
{
    const stk_plan *const plan = engine->run->plan;
    const uint64_t step_count = stk_plan_step_count(plan);
    engine->base = (stk_state){.fingerprint = engine->run->fingerprint, .plan_version = STK_PLAN_VERSION};
    if (part->one) {
        const uint32_t micros = part->step < step_count ? stk_plan_micro_count(plan, part->step, engine->ranks.world) : 0;
        if (part->micro >= micros)
            return stk_fail(
                err, STK_ERR_USAGE,
                "no micro-batch %u of step %llu: the run has %llu steps, that one has %u micro-batches a rank",
                part->micro, (unsigned long long)part->step, (unsigned long long)step_count, micros);
        engine->first_step = part->step;
        engine->first_micro = part->micro;
        engine->first_number = stk_plan_micros_before(plan, part->step, engine->ranks.world) + part->micro;
        engine->sequence_end = 1;
        if (engine->run->stream)
            return stk_forecast_drawn(forecast, engine->run, part->step, engine->ranks.first_rank, engine->ranks.world, part->micro, err);
        return stk_forecast_make(forecast, engine->run, engine->ranks, part->step, part->step + 1, err);
    }
    STK_TRY(find_start(engine, part->state, err));
    size_t micros;
    engine->first_number = stk_plan_micros_before(plan, engine->first_step, engine->ranks.world) + engine->first_micro;
    if (stk_mul_overflows(&micros, stk_plan_micros_before(plan, step_count, engine->ranks.world) - engine->first_number,
                          engine->ranks.rank_count))
        return stk_fail(err, STK_ERR_OPTION, "the run is too long: lower steps or epochs");
    engine->sequence_end = micros;
    return stk_forecast_make(forecast, engine->run, engine->ranks, 0, step_count, err);
}

static stk_status open_parts(stk_engine *engine, const stk_options *options, const span *part, stk_error *err)
{
    stk_forecast forecast;
    STK_TRY(find_span(engine, part, &forecast, err));
    STK_TRY(stk_memory_plan_make(&engine->memory, &forecast, options, engine->ranks, err));
    engine->metrics.budget_bytes = engine->memory.budget;
    engine->metrics.arena_bytes = engine->memory.slots;
    engine->window_count = engine->memory.window_count;
    engine->window = stk_alloc_array(STK_TAG_ENGINE, engine->window_count, sizeof *engine->window);
    engine->reader = stk_alloc_array(STK_TAG_ENGINE, engine->ranks.rank_count, sizeof *engine->reader);
    engine->set_count = stk_alloc_array(STK_TAG_ENGINE, engine->run->set_count, sizeof *engine->set_count);
    if (!engine->window || !engine->reader || !engine->set_count)
        return stk_fail(err, STK_ERR_NOMEM, "out of memory: an engine");
    open_readers(engine);
    STK_TRY(stk_dead_letter_open(&engine->dead_letter_fd, engine->run->rules->dead_letter, err));
    STK_TRY(stk_tickets_init(&engine->tickets, engine->memory.tickets, engine->memory.ticket_count, err));
    STK_TRY(home_create(&engine->home, engine->run, &engine->memory, err));
    engine->home->engine = engine;
    stk_source_config config = engine->run->rules->store;
    config.file_threads = IO_THREADS;
    STK_TRY(stk_source_open(&engine->source, &config, err));
    stk_source_on_finish(engine->source, source_finished, engine);
    STK_TRY(stk_plan_scratch_create(&engine->scratch, engine->run->plan, err));
    if (engine->run->stream) STK_TRY(stk_lazy_facts_create(&engine->lazy, engine->run, engine->memory.finders, err));
    return start_workers(engine, err);
}

static stk_status open_span(stk_engine **out, const stk_options *options, stk_engine_ranks ranks,
                            const span *part, const stk_index_progress *progress, stk_error *err)
{
    *out = NULL;
    if (ranks.world == 0 || ranks.rank_count == 0 || ranks.first_rank >= ranks.world ||
        ranks.rank_count > ranks.world - ranks.first_rank)
        return stk_fail(err, STK_ERR_USAGE, "%u ranks from rank %u on are not in a world of %u",
                        ranks.rank_count, ranks.first_rank, ranks.world);
    stk_engine *engine = stk_alloc(STK_TAG_ENGINE, sizeof *engine);
    if (!engine) return stk_fail(err, STK_ERR_NOMEM, "out of memory: an engine");
    engine->ranks = ranks;
    engine->keep = (uint32_t)options->keep;
    engine->timeout_ns = options->timeout_s * STK_S;
    engine->inline_workers = options->workers < 0;
    engine->errors_masked = options->errors_masked;
    engine->errors_unusable = part->one ? 1 : options->errors_unusable;
    engine->pid = getpid();
    engine->opened_ns = stk_now();
    engine->dead_letter_fd = -1;
    stk_status status = stk_run_open(&engine->run, options, progress, err);
    if (status == STK_OK) status = stk_plan_check_world(engine->run->plan, ranks.world, err);
    if (status == STK_OK) status = open_parts(engine, options, part, err);
    if (status < 0) {
        stk_engine_close(&engine);
        return status;
    }
    *out = engine;
    return STK_OK;
}

stk_status stk_engine_open(stk_engine **out, const stk_options *options, stk_engine_ranks ranks,
                           const stk_state *state, const stk_index_progress *progress, stk_error *err)
{
    return open_span(out, options, ranks, &(span){.state = state}, progress, err);
}

stk_status stk_engine_open_one(stk_engine **out, const stk_options *options, uint64_t step, uint32_t rank,
                               uint32_t world, uint32_t micro, stk_error *err)
{
    const stk_engine_ranks ranks = {.first_rank = rank, .rank_count = 1, .world = world};
    return open_span(out, options, ranks, &(span){.one = true, .step = step, .micro = micro}, NULL, err);
}

/* --- close --- */

/* Micro-batches that nobody got go back; those with readers stay theirs. */
static void leave_home(stk_engine *engine)
{
    stk_engine_home *const home = engine->home;
    pthread_mutex_lock(&home->lock);
    home->engine = NULL;
    for (uint64_t s = engine->head; s < engine->taken; s++) {
        stk_work *const work = *cell(engine, s);
        if (work && work->slot >= 0) stk_arena_give_back(home->arena, work->slot);
    }
    pthread_mutex_unlock(&home->lock);
    home_release(home);
}

void stk_engine_close(stk_engine **out)
{
    stk_engine *const engine = *out;
    *out = NULL;
    if (!engine) return;
    if (engine->pid != getpid()) return; /* threads, locks and memory are the parent's */
    if (engine->home) {
        pthread_mutex_lock(&engine->home->lock);
        engine->stop = true;
        pthread_cond_broadcast(&engine->home->changed);
        pthread_cond_broadcast(&engine->home->ready);
        pthread_mutex_unlock(&engine->home->lock);
    }
    stk_lazy_facts_stop(engine->lazy);
    for (uint32_t i = 0; engine->worker && i < engine->memory.workers; i++)
        if (engine->worker[i].started) pthread_join(engine->worker[i].thread, NULL);
    stk_source_close(&engine->source);
    stk_lazy_facts_destroy(engine->lazy);
    stk_plan_scratch_destroy(engine->scratch);
    for (uint32_t i = 0; engine->worker && i < engine->memory.workers; i++)
        stk_maker_deinit(&engine->worker[i].maker);
    if (engine->home) leave_home(engine);
    stk_tickets_deinit(&engine->tickets);
    if (engine->dead_letter_fd >= 0) close(engine->dead_letter_fd);
    stk_free(engine->worker);
    stk_free(engine->window);
    stk_free(engine->reader);
    stk_free(engine->set_count);
    stk_run_release(engine->run);
    stk_free(engine);
}
