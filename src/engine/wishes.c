/* wishes.c - an engine on request: micro-batches enter the window in the order in which they are asked for.
 *
 *     expect ──► wish ──► taken, fetched ─────────┐
 *     make ────► wish with its askers ──► taken ──┴──► window ──► slot, made ──► all its askers, a reference each
 *
 * What is only expected never stands in the way of what is asked for, and is never given up for that: it is taken and fetched as far as a
 * share of the micro-batches and a ring of tickets of its own go, outside the window, and waits unfetched for more.  It goes, if it
 * is in the way of what else is expected, when its rank has asked for a later one, or expects an earlier one: it reads elsewhere.
 *
 * What is asked for takes slots and tickets in the order of the window, so that its oldest always goes on.  One that its askers gave up keeps
 * its place there, until another lacks something.
 *
 * Whoever finds that a micro-batch is made gives it to all who asked for it.  It keeps its slot until another needs that, so that who asks
 * for it again, or a bit later than others of the same rank, gets it as it is. */
#include <errno.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/thread.h"
#include "engine/engine_core.h"

static bool same_place(const stk_place *a, const stk_place *b)
{
    return a->step == b->step && a->rank == b->rank && a->micro == b->micro;
}

static bool is_earlier(const stk_place *a, const stk_place *b)
{
    return a->step < b->step || (a->step == b->step && a->micro < b->micro);
}

/* The wish for a place; NULL: there is none. */
static stk_wish *find_wish(const stk_lane *lane, const stk_place *place)
{
    for (uint32_t i = 0; i < lane->wish_count; i++) {
        stk_wish *const wish = &lane->wish[i];
        if (wish->number && !wish->dropped && same_place(&wish->place, place)) return wish;
    }
    return NULL;
}

/* What is asked for takes the cell of the last that is expected, where it is not taken yet.  NULL: there is no room. */
static stk_wish *add_wish(stk_lane *lane, const stk_place *place, bool asked)
{
    stk_wish *at = NULL;
    for (uint32_t i = 0; i < lane->wish_count && (!at || at->number); i++) {
        stk_wish *const wish = &lane->wish[i];
        if (!wish->number || (asked && !wish->asker && !wish->taken && (!at || wish->number > at->number))) at = wish;
    }
    if (at) *at = (stk_wish){.place = *place, .number = ++lane->wished};
    return at;
}

/* A rank has asked for a micro-batch, or expects one: what of it is expected before that, or behind it, will hardly be asked for soon. */
static void note_stale(stk_lane *lane, const stk_place *place, bool asked)
{
    for (uint32_t i = 0; i < lane->wish_count; i++) {
        stk_wish *const wish = &lane->wish[i];
        if (!wish->number || wish->asker || wish->entered || wish->place.rank != place->rank) continue;
        if (!(asked ? is_earlier(&wish->place, place) : is_earlier(place, &wish->place))) continue;
        if (wish->taken) wish->stale = true;
        else *wish = (stk_wish){0};
    }
}

/* What was given out lately; NULL: it has gone. */
static stk_batch *find_recent(const stk_lane *lane, const stk_place *place)
{
    for (uint32_t i = 0; i < lane->recent_count; i++) {
        stk_batch *const batch = &lane->recent[i]->batch;
        if (same_place(&(stk_place){batch->recipe.step, batch->recipe.rank, batch->recipe.micro}, place)) return batch;
    }
    return NULL;
}

static bool is_place(const stk_engine *engine, const stk_place *place)
{
    const stk_plan *const plan = engine->lane[STK_LANE_TRAIN].run->plan;
    return place->step < stk_plan_step_count(plan) && place->rank < engine->ranks.world &&
           place->micro < stk_plan_micro_count(plan, place->step, engine->ranks.world);
}

/* --- askers --- */

static void add_asker(stk_lane *lane, stk_wish *wish, stk_asker *asker)
{
    if (!wish->asker && !wish->entered) wish->number = ++lane->wished;
    wish->stale = false;
    asker->next = wish->asker;
    wish->asker = asker;
    pthread_cond_broadcast(&lane->engine->home->changed);
}

/* The last one's wish may give way to others. */
static void remove_asker(stk_lane *lane, stk_wish *wish, const stk_asker *asker)
{
    stk_asker **at = &wish->asker;
    while (*at != asker) at = &(*at)->next;
    *at = asker->next;
    pthread_cond_broadcast(&lane->engine->home->changed);
    pthread_cond_broadcast(&lane->engine->home->ready);
}

/* Give what is made to all who asked for it, or their error.  With the lock held, which is away in between. */
static void give(stk_lane *lane, stk_wish *wish, stk_work *work)
{
    stk_error error = work->error;
    stk_status status = work->status;
    wish->ending = true;
    if (status == STK_OK) status = stk_lane_account(lane, work, &error);
    unsigned count = 0;
    stk_asker *const first = wish->asker;
    for (const stk_asker *a = first; a; a = a->next) count++;
    stk_batch *const batch = status == STK_OK && count ? stk_lane_give_out(lane, work, count + 1) : NULL;
    if (batch) lane->recent[lane->recent_count++] = work; /* it has a slot, so there is a place */
    else stk_lane_discard(lane, work);
    for (stk_asker *a = first, *next; a; a = next) {
        next = a->next;
        a->status = status;
        a->batch = batch;
        a->error = error;
        a->done = true;
    }
    pthread_cond_broadcast(&lane->engine->home->changed);
    stk_engine_tell_readers(lane->engine->home);
}

/* Until the asker has its answer (true), or the deadline has come.  With the lock held. */
static bool wait_for_answer(stk_lane *lane, stk_wish *wish, stk_asker *asker, stk_ns deadline)
{
    stk_engine *const engine = lane->engine;
    const struct timespec until = stk_timespec(deadline);
    for (bool in_time = true; !asker->done;) {
        stk_work *const work = wish->entered && !wish->ending ? stk_lane_made(lane, wish->work->sequence) : NULL;
        if (work) {
            give(lane, wish, work);
            continue;
        }
        if (engine->stop || !in_time) {
            remove_asker(lane, wish, asker);
            return false;
        }
        in_time = pthread_cond_timedwait(&engine->home->ready, &engine->home->lock, &until) != ETIMEDOUT;
    }
    return true;
}

/* The wish for a place, which is made where there is none; NULL: there was no room for it in time.  With the lock held. */
static stk_wish *have_wish(stk_lane *lane, const stk_place *place, stk_ns deadline)
{
    stk_engine *const engine = lane->engine;
    const struct timespec until = stk_timespec(deadline);
    for (bool in_time = true;;) {
        stk_wish *wish = find_wish(lane, place);
        if (!wish) wish = add_wish(lane, place, true);
        if (wish || engine->stop || !in_time) return wish;
        in_time = pthread_cond_timedwait(&engine->home->ready, &engine->home->lock, &until) != ETIMEDOUT;
    }
}

/* --- calls --- */

static stk_status check(const stk_engine *engine, stk_error *err)
{
    if (engine->pid != getpid())
        return stk_fail(err, STK_ERR_FORKED, "the engine was opened by process %d: open one after the fork", (int)engine->pid);
    if (!engine->on_request) return stk_fail(err, STK_ERR_USAGE, "this engine has readers: read those");
    return STK_OK;
}

stk_status stk_engine_make(stk_engine *engine, const stk_place *place, stk_batch **out, stk_ns timeout_ns, stk_error *err)
{
    *out = NULL;
    STK_TRY(check(engine, err));
    stk_lane *const lane = &engine->lane[STK_LANE_TRAIN];
    if (!is_place(engine, place))
        return stk_fail(err, STK_ERR_USAGE, "the run has no micro-batch %u of rank %u in step %llu", place->micro, place->rank,
                        (unsigned long long)place->step);
    const stk_ns now = stk_now(), deadline = timeout_ns > STK_FOREVER - now ? STK_FOREVER : now + timeout_ns;
    stk_asker asker = {.status = STK_AGAIN};
    pthread_mutex_lock(&engine->home->lock);
    note_stale(lane, place, true);
    *out = find_recent(lane, place);
    stk_wish *const wish = *out ? NULL : have_wish(lane, place, deadline);
    if (*out) {
        stk_batch_retain(*out);
        asker.status = STK_OK;
    } else if (wish) {
        add_asker(lane, wish, &asker);
        if (wait_for_answer(lane, wish, &asker, deadline)) *out = asker.batch;
    }
    pthread_mutex_unlock(&engine->home->lock);
    if (asker.status < 0 && err) *err = asker.error;
    return asker.status;
}

void stk_engine_expect(stk_engine *engine, const stk_place *place, size_t count)
{
    if (check(engine, NULL) < 0) return;
    stk_lane *const lane = &engine->lane[STK_LANE_TRAIN];
    pthread_mutex_lock(&engine->home->lock);
    for (size_t i = 0; i < count; i++) {
        if (!is_place(engine, &place[i]) || find_recent(lane, &place[i])) continue;
        stk_wish *const wish = find_wish(lane, &place[i]);
        if (wish) wish->stale = false;
        else if (add_wish(lane, &place[i], false)) note_stale(lane, &place[i], false);
    }
    pthread_cond_broadcast(&engine->home->changed);
    pthread_mutex_unlock(&engine->home->lock);
}
