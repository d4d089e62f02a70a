/* home.c - where micro-batches come home to: their memory, which outlives the engine until the last of them is back. */
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/thread.h"
#include "engine/engine_core.h"

void stk_engine_tell_readers(stk_engine_home *home)
{
    pthread_cond_broadcast(&home->ready);
    if (home->ready_fd >= 0) (void)eventfd_write(home->ready_fd, 1);
}

/* --- coming home --- */

void stk_engine_home_release(stk_engine_home *home)
{
    if (atomic_fetch_sub(&home->references, 1) != 1) return;
    for (uint32_t k = 0; k < home->lane_count; k++) {
        stk_lane_home *const lane = &home->lane[k];
        for (uint32_t i = 0; lane->work && i < lane->work_count; i++) stk_pool_deinit(&lane->work[i].pool);
        stk_free(lane->work);
        stk_run_release(lane->run);
    }
    stk_arena_destroy(home->arena);
    pthread_cond_destroy(&home->changed);
    pthread_cond_destroy(&home->ready);
    pthread_mutex_destroy(&home->lock);
    stk_free(home);
}

/* With the lock held. */
static void come_home(stk_lane_home *lane_home, stk_work *work)
{
    stk_engine_home *const home = lane_home->engine_home;
    stk_arena_give_back(home->arena, work->slot);
    work->next = lane_home->free_work;
    lane_home->free_work = work;
    if (!home->engine) return;
    stk_lane *const lane = &home->engine->lane[lane_home->number];
    lane->slots_held--;
    if (lane->reader) lane->reader[work->sequence % home->engine->ranks.rank_count].held--;
    pthread_cond_signal(&home->changed);
    if (home->engine->inline_workers) stk_engine_tell_readers(home);
}

/* The last release of a batch, from any thread, also when the engine is gone. */
static void take_back(stk_batch_home *batch_home, stk_batch *batch)
{
    stk_lane_home *const lane_home = (stk_lane_home *)batch_home;
    stk_engine_home *const home = lane_home->engine_home;
    stk_work *const work = (stk_work *)batch;
    if (home->pid != getpid()) return; /* a copy in a forked child: the memory is the parent's */
    pthread_mutex_lock(&home->lock);
    come_home(lane_home, work);
    pthread_mutex_unlock(&home->lock);
    stk_engine_home_release(home);
}

bool stk_lane_forget(stk_lane *lane)
{
    if (lane->recent_count == 0) return false;
    stk_work *const work = lane->recent[0];
    memmove(lane->recent, lane->recent + 1, --lane->recent_count * sizeof(stk_work *));
    if (atomic_fetch_sub(&work->batch.references, 1) != 1) return true;
    come_home(lane->home, work);
    stk_engine_home_release(lane->home->engine_home); /* which the engine holds too */
    return true;
}

/* --- opening --- */

/* The micro-batches of a lane: in the window, and out with readers. */
static stk_status fill_lane_home(stk_lane_home *home, const stk_lane_memory *memory, stk_error *err)
{
    home->work_count = memory->window_count + memory->slot_count;
    home->work = stk_alloc_array(STK_TAG_ENGINE, home->work_count, sizeof *home->work);
    if (!home->work) return stk_fail(err, STK_ERR_NOMEM, "out of memory: an engine");
    for (uint32_t i = 0; i < home->work_count; i++) {
        stk_work *const work = &home->work[i];
        work->batch.home = &home->home;
        work->lane = home->number;
        stk_pool_init(&work->pool, STK_TAG_ENGINE);
        work->next = home->free_work;
        home->free_work = work;
    }
    /* As much as the largest takes, now: nothing is allocated per batch (invariant 10). */
    for (uint32_t i = 0; i < home->work_count; i++) {
        if (!stk_pool_take(&home->work[i].pool, memory->object_each))
            return stk_fail(err, STK_ERR_NOMEM, "out of memory: %u micro-batches", home->work_count);
        stk_pool_reset(&home->work[i].pool);
    }
    return STK_OK;
}

static stk_status fill_home(stk_engine_home *home, const stk_engine *engine, stk_error *err)
{
    stk_arena_kind kind[STK_LANES];
    for (uint32_t k = 0; k < engine->lane_count; k++) {
        const stk_lane_memory *const memory = &engine->memory.lane[k];
        stk_lane_home *const lane = &home->lane[k];
        stk_run *const run = engine->lane[k].run;
        lane->home = (stk_batch_home){.take_back = take_back, .form = &run->form, .set_name = run->set_name};
        lane->engine_home = home;
        lane->number = k;
        lane->run = run;
        stk_run_retain(run);
        home->lane_count++;
        kind[k] = (stk_arena_kind){memory->slot_each, memory->slot_count};
        STK_TRY(fill_lane_home(lane, memory, err));
    }
    return stk_arena_create(&home->arena, kind, engine->lane_count, err);
}

stk_status stk_engine_home_create(stk_engine_home **out, stk_engine *engine, stk_error *err)
{
    *out = NULL;
    stk_engine_home *const home = stk_alloc(STK_TAG_ENGINE, sizeof *home);
    if (!home) return stk_fail(err, STK_ERR_NOMEM, "out of memory: an engine");
    home->pid = getpid();
    home->ready_fd = -1;
    atomic_store(&home->references, 1);
    pthread_mutex_init(&home->lock, NULL);
    stk_condition_init(&home->changed);
    stk_condition_init(&home->ready);
    const stk_status status = fill_home(home, engine, err);
    if (status < 0) {
        stk_engine_home_release(home);
        return status;
    }
    home->engine = engine;
    *out = home;
    return STK_OK;
}
