/* engine.c - opening, the threads, closing.  The picture stands in engine_core.h. */
#include "engine/engine_core.h"

#include <errno.h>
#include <unistd.h>

#include "base/thread.h"
#include "engine/survey.h"

enum { IO_THREADS = 4 };

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
    if (engine->inline_workers) stk_engine_tell_readers(engine->home);
    pthread_mutex_unlock(&engine->home->lock);
}

static stk_status open_makers(stk_engine *engine, stk_error *err)
{
    engine->worker = stk_alloc_array(STK_TAG_ENGINE, engine->memory.workers, sizeof *engine->worker);
    if (!engine->worker)
        return stk_fail(err, STK_ERR_NOMEM, "out of memory: %u workers", engine->memory.workers);
    for (uint32_t i = 0; i < engine->memory.workers; i++) {
        stk_worker *const worker = &engine->worker[i];
        worker->engine = engine;
        for (uint32_t k = 0; k < engine->lane_count; k++)
            STK_TRY(stk_maker_init(&worker->maker[k], engine->lane[k].run, engine->memory.lane[k].largest_record, err));
    }
    return STK_OK;
}

static stk_status start_workers(stk_engine *engine, stk_error *err)
{
    STK_TRY(open_makers(engine, err));
    int code = 0;
    for (uint32_t i = 0; code == 0 && i < engine->memory.workers && !engine->inline_workers; i++) {
        code = stk_thread_start(&engine->worker[i].thread, run_worker, &engine->worker[i]);
        engine->worker[i].started = code == 0;
    }
    if (code == 0) return STK_OK;
    errno = code;
    return stk_fail_errno(err, "cannot start a worker thread");
}

/* --- open --- */

static bool same_text(const char *a, const char *b)
{
    return a == b || (a && b && strcmp(a, b) == 0);
}

/* All splits are read through one source.  What their records may name is each split's own. */
static stk_status check_stores(const stk_source_config *a, const stk_source_config *b, stk_error *err)
{
    const char *const differs = !same_text(a->endpoint, b->endpoint)           ? "endpoint"
                                : !same_text(a->region, b->region)             ? "region"
                                : !same_text(a->profile_name, b->profile_name) ? "profile_name"
                                : !same_text(a->ca, b->ca)                     ? "ca"
                                : a->addressing != b->addressing               ? "addressing"
                                : a->requester_pays != b->requester_pays       ? "requester_pays"
                                : a->anonymous != b->anonymous                 ? "anonymous"
                                                                               : NULL;
    if (!differs) return STK_OK;
    return stk_fail(err, STK_ERR_OPTION,
                    "eval: %s is not that of the run, and one engine asks one store: set it for both, or evaluate by a run of its own "
                    "(split eval)", differs);
}

/* The run of each split, then the memory for all of them. */
static stk_status open_lanes(stk_engine *engine, const stk_options *options, const stk_span *part,
                             const stk_index_progress *progress, stk_error *err)
{
    const stk_span whole = {0};
    stk_lane_needs needs[STK_LANES] = {{.options = options}, {.options = part->one ? NULL : options->eval}};
    for (uint32_t k = 0; k < STK_LANES && needs[k].options; k++) {
        stk_lane *const lane = &engine->lane[k];
        engine->lane_count++;
        lane->engine = engine;
        lane->number = k;
        lane->memory = &engine->memory.lane[k];
        STK_TRY(stk_lane_open_run(lane, needs[k].options, k == STK_LANE_TRAIN ? part : &whole, progress, &needs[k].forecast, err));
        needs[k].remote = stk_run_is_remote(lane->run);
        needs[k].on_request = engine->on_request;
        if (k != STK_LANE_TRAIN) STK_TRY(check_stores(&engine->lane[STK_LANE_TRAIN].run->rules->store, &lane->run->rules->store, err));
    }
    STK_TRY(stk_memory_plan_make(&engine->memory, needs, engine->lane_count, engine->ranks, err));
    for (uint32_t k = 0; k < engine->lane_count; k++) STK_TRY(stk_lane_open(&engine->lane[k], err));
    /* Training is made from now on, an evaluation when it is first asked for. */
    if (!engine->inline_workers && !engine->on_request) engine->lane[STK_LANE_TRAIN].wanted_end = engine->lane[STK_LANE_TRAIN].pass_count;
    return STK_OK;
}

static stk_status open_parts(stk_engine *engine, const stk_options *options, const stk_span *part,
                             const stk_index_progress *progress, stk_error *err)
{
    STK_TRY(open_lanes(engine, options, part, progress, err));
    STK_TRY(stk_engine_home_create(&engine->home, engine, err));
    for (uint32_t k = 0; k < engine->lane_count; k++) engine->lane[k].home = &engine->home->lane[k];
    /* Of the first split, as memory and workers are. */
    stk_source_config config = engine->lane[STK_LANE_TRAIN].run->rules->store;
    config.file_threads = IO_THREADS;
    config.requests = engine->memory.requests;
    config.read = engine->lane[STK_LANE_TRAIN].run->rules->read;
    config.read_count = engine->lane[STK_LANE_TRAIN].run->rules->read_count;
    STK_TRY(stk_source_open(&engine->source, &config, err));
    stk_source_on_finish(engine->source, source_finished, engine);
    return start_workers(engine, err);
}

static bool is_in_world(const stk_engine_ranks *r)
{
    if (r->rank_count == 0 || r->rank_count > r->world) return false;
    if (!r->rank) return r->first_rank <= r->world - r->rank_count;
    for (uint32_t i = 0; i < r->rank_count; i++)
        if (r->rank[i] >= r->world || (i && r->rank[i] <= r->rank[i - 1])) return false;
    return true;
}

static stk_status copy_ranks(stk_engine *engine, const stk_engine_ranks *ranks, stk_error *err)
{
    engine->ranks = *ranks;
    if (!ranks->rank) return STK_OK;
    engine->ranks.rank = engine->rank_list = stk_alloc_array(STK_TAG_ENGINE, ranks->rank_count, sizeof *engine->rank_list);
    if (!engine->rank_list) return stk_fail(err, STK_ERR_NOMEM, "out of memory: a list of ranks");
    memcpy(engine->rank_list, ranks->rank, ranks->rank_count * sizeof *engine->rank_list);
    return STK_OK;
}

static stk_status open_span(stk_engine **out, const stk_options *options, stk_engine_ranks ranks,
                            const stk_span *part, const stk_index_progress *progress, stk_error *err)
{
    *out = NULL;
    if (!is_in_world(&ranks))
        return stk_fail(err, STK_ERR_USAGE, "%u ranks from rank %u on are not in a world of %u",
                        ranks.rank_count, ranks.rank ? ranks.rank[0] : ranks.first_rank, ranks.world);
    stk_engine *engine = stk_alloc(STK_TAG_ENGINE, sizeof *engine);
    if (!engine) return stk_fail(err, STK_ERR_NOMEM, "out of memory: an engine");
    engine->inline_workers = options->workers < 0;
    engine->on_request = part->on_request;
    engine->pid = getpid();
    engine->opened_ns = stk_now();
    stk_status status = copy_ranks(engine, &ranks, err);
    if (status == STK_OK) status = open_parts(engine, options, part, progress, err);
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
    return open_span(out, options, ranks, &(stk_span){.state = state}, progress, err);
}

stk_status stk_engine_open_on_request(stk_engine **out, const stk_options *options, uint32_t world, const stk_index_progress *progress,
                                      stk_error *err)
{
    stk_options alone = *options;
    alone.eval = NULL;
    if (alone.workers < 0) alone.workers = 1;
    const stk_engine_ranks ranks = {.rank_count = 1, .world = world};
    return open_span(out, &alone, ranks, &(stk_span){.on_request = true}, progress, err);
}

stk_status stk_engine_open_one(stk_engine **out, const stk_options *options, uint64_t step, uint32_t rank,
                               uint32_t world, uint32_t micro, const stk_index_progress *progress, stk_error *err)
{
    const stk_engine_ranks ranks = {.first_rank = rank, .rank_count = 1, .world = world};
    return open_span(out, options, ranks, &(stk_span){.one = true, .step = step, .micro = micro}, progress, err);
}

/* --- close --- */

/* Micro-batches that nobody got go back; those with readers stay theirs. */
static void leave_home(stk_engine *engine)
{
    stk_engine_home *const home = engine->home;
    pthread_mutex_lock(&home->lock);
    for (uint32_t k = 0; k < engine->lane_count; k++)
        while (stk_lane_forget(&engine->lane[k])) continue;
    home->engine = NULL;
    for (uint32_t k = 0; k < engine->lane_count; k++) {
        const stk_lane *const lane = &engine->lane[k];
        for (uint64_t s = lane->head; s < lane->taken; s++) {
            stk_work *const work = lane->window[s % lane->window_count];
            if (work && work->slot >= 0) stk_arena_give_back(home->arena, work->slot);
        }
    }
    pthread_mutex_unlock(&home->lock);
    stk_engine_home_release(home);
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
        stk_engine_tell_readers(engine->home);
        pthread_mutex_unlock(&engine->home->lock);
    }
    for (uint32_t k = 0; k < engine->lane_count; k++) stk_lazy_facts_stop(engine->lane[k].lazy);
    for (uint32_t i = 0; engine->worker && i < engine->memory.workers; i++)
        if (engine->worker[i].started) pthread_join(engine->worker[i].thread, NULL);
    stk_source_close(&engine->source);
    for (uint32_t i = 0; engine->worker && i < engine->memory.workers; i++)
        for (uint32_t k = 0; k < engine->lane_count; k++) stk_maker_deinit(&engine->worker[i].maker[k]);
    if (engine->home) leave_home(engine);
    for (uint32_t k = 0; k < engine->lane_count; k++) stk_lane_close(&engine->lane[k]);
    stk_free(engine->worker);
    stk_free(engine->rank_list);
    stk_free(engine);
}
