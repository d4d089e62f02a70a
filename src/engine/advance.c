/* advance.c - the pieces of work: what moves micro-batches through a lane's window.  The picture stands in engine_core.h.
 *
 * Each is entered and left with the lock held, does its work without it, and says whether there was any. */
#include "base/clock.h"
#include "engine/engine_core.h"
#include "engine/stall.h"

/* --- places --- */

static stk_work **cell(const stk_lane *lane, uint64_t sequence)
{
    return &lane->window[sequence % lane->window_count];
}

static bool is_made(const stk_work *work)
{
    return work->prepared && work->units_left == 0;
}

stk_work *stk_lane_made(const stk_lane *lane, uint64_t sequence)
{
    if (sequence < lane->head || sequence >= lane->taken) return NULL;
    stk_work *const work = *cell(lane, sequence);
    return work && is_made(work) ? work : NULL;
}

/* What a sequence number stands for, with readers. */
static stk_place find_place(const stk_lane *lane, uint64_t sequence)
{
    const stk_engine_ranks *const ranks = &lane->engine->ranks;
    const uint64_t at = sequence % lane->pass_count;
    stk_place place = {.rank = stk_engine_rank(ranks, (uint32_t)(at % ranks->rank_count))};
    stk_plan_micro_at(lane->run->plan, at / ranks->rank_count + lane->first_number, ranks->world, &place.step, &place.micro);
    return place;
}

/* Whether its reader has rewound past it. */
static bool is_behind(const stk_lane *lane, uint64_t sequence)
{
    return lane->reader[sequence % lane->engine->ranks.rank_count].next_sequence > sequence;
}

/* The same, or its wish was let go. */
static bool is_passed(const stk_lane *lane, const stk_work *work)
{
    return work->wish ? work->wish->dropped : is_behind(lane, work->sequence);
}

/* Whether it may have a slot: on request, only what somebody waits for. */
static bool is_awaited(const stk_work *work)
{
    return !work->wish || work->wish->asker || work->wish->dropped;
}

void stk_engine_note_memory(stk_engine *engine)
{
    engine->held_bytes = engine->memory.scratch + engine->memory.store + engine->work_held;
    for (uint32_t i = 0; i < engine->lane_count; i++) {
        const stk_lane *const lane = &engine->lane[i];
        engine->held_bytes += lane->slots_held * lane->memory->slot_each + lane->tickets.held_bytes + lane->ahead.held_bytes;
    }
    if (engine->held_bytes > engine->peak_bytes) engine->peak_bytes = engine->held_bytes;
}

/* --- out of the window --- */

static void advance_head(stk_lane *lane)
{
    while (lane->head < lane->taken && !*cell(lane, lane->head)) lane->head++;
    if (lane->ticketed < lane->head) lane->ticketed = lane->head;
    if (lane->slotted < lane->head) lane->slotted = lane->head;
    if (lane->settled < lane->head) lane->settled = lane->head;
}

void stk_lane_take_out(stk_lane *lane, stk_work *work)
{
    if (!work->wish || work->wish->entered) {
        *cell(lane, work->sequence) = NULL;
        advance_head(lane);
    }
    if (work->wish) *work->wish = (stk_wish){0};
    work->wish = NULL;
}

void stk_lane_discard(stk_lane *lane, stk_work *work)
{
    stk_lane_take_out(lane, work);
    if (work->slot >= 0) {
        stk_arena_give_back(lane->engine->home->arena, work->slot);
        lane->slots_held--;
    }
    work->next = lane->home->free_work;
    lane->home->free_work = work;
    stk_engine_tell_readers(lane->engine->home); /* what stood behind it may be accounted for now */
}

static void end_unit(stk_unit *unit)
{
    if (unit->ticket) stk_tickets_give_back(unit->tickets, unit->ticket);
    unit->ticket = NULL;
    unit->state = STK_UNIT_MADE;
    unit->work->units_left--;
}

/* Of a micro-batch that is passed nothing more is begun; when nobody is at it any more, it goes. */
static void drop_passed(stk_lane *lane, stk_work *work)
{
    if (!is_passed(lane, work)) return;
    for (uint32_t i = 0; i < work->unit_count; i++) {
        stk_unit *const unit = &work->unit[i];
        if (unit->state == STK_UNIT_READY) work->units_ready--;
        if (unit->state == STK_UNIT_TAKEN || unit->state == STK_UNIT_READY) end_unit(unit);
    }
    work->units_ticketed = work->unit_count;
    const bool preparing = work->placed && !work->prepared;
    if (work->units_left || preparing) return;
    stk_lane_discard(lane, work);
}

void stk_lane_drop_passed(stk_lane *lane, const stk_reader *reader)
{
    const uint32_t ranks = lane->engine->ranks.rank_count, at = (uint32_t)(reader - lane->reader);
    for (uint64_t s = lane->head; s < lane->taken; s++) {
        stk_work *const work = *cell(lane, s);
        if (work && s % ranks == at) drop_passed(lane, work);
    }
}

/* On request: let go of what nobody waits for: in the window, of what was given up; outside, of what is stale.  Whether there was any. */
static bool drop_unwanted(stk_lane *lane, bool entered)
{
    bool any = false;
    for (uint32_t i = 0; i < lane->wish_count; i++) {
        stk_wish *const wish = &lane->wish[i];
        if (!wish->work || wish->entered != entered || wish->asker || wish->dropped || wish->ending || !(entered || wish->stale)) continue;
        wish->dropped = any = true;
        drop_passed(lane, wish->work);
    }
    return any;
}

/* --- fetches --- */

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
        stk_lane *const lane = &engine->lane[unit->work->lane];
        lane->metrics.fetch.count++;
        lane->metrics.fetch.bytes += finished->got_bytes;
        lane->metrics.fetch.busy_ns += finished->busy_ns;
        lane->metrics.media_opened++;
        if (--unit->requests_left) continue;
        unit->state = STK_UNIT_READY;
        unit->work->units_ready++;
        drop_passed(lane, unit->work);
    }
    return true;
}

/* The first whose units do not all have tickets: in the window, then of what is only expected. */
static stk_work *find_unticketed(stk_lane *lane)
{
    for (; lane->ticketed < lane->taken; lane->ticketed++) {
        stk_work *const work = *cell(lane, lane->ticketed);
        if (work && work->units_ticketed < work->unit_count) return work;
    }
    const stk_wish *first = NULL;
    for (uint32_t i = 0; i < lane->wish_count; i++) {
        const stk_wish *const wish = &lane->wish[i];
        if (!wish->work || wish->work->units_ticketed == wish->work->unit_count) continue;
        if (!first || wish->number < first->number) first = wish;
    }
    return first ? first->work : NULL;
}

/* What is only expected has a ring of its own, so that it never stands before what is asked for; that may use what is free of both. */
static uint8_t *take_ticket(stk_lane *lane, stk_unit *unit)
{
    const stk_wish *const wish = unit->work->wish;
    uint8_t *ticket = NULL;
    if (!wish || wish->entered) ticket = stk_tickets_take(unit->tickets = &lane->tickets, unit->ticket_bytes);
    if (!ticket && wish) ticket = stk_tickets_take(unit->tickets = &lane->ahead, unit->ticket_bytes);
    return ticket;
}

/* Where there is no ticket for a unit: whether room was made, among what was given up for what somebody waits for. */
static bool make_ticket_room(stk_lane *lane, const stk_unit *unit)
{
    if (!unit->work->wish || !unit->work->wish->entered) return drop_unwanted(lane, false);
    bool awaited = false;
    for (uint64_t s = lane->ticketed; !awaited && s < lane->taken; s++) awaited = *cell(lane, s) && (*cell(lane, s))->wish->asker;
    return awaited && drop_unwanted(lane, true);
}

/* Grant the next unit in order its ticket, and start its fetches. */
static bool start_fetch(stk_lane *lane)
{
    stk_engine *const engine = lane->engine;
    stk_work *const work = find_unticketed(lane);
    if (!work) return false;
    stk_unit *const unit = &work->unit[work->units_ticketed];
    if (unit->request_count == 0) {
        work->units_ticketed++;
        unit->state = STK_UNIT_READY;
        work->units_ready++;
        return true;
    }
    if (engine->inline_workers && lane->tickets.count) return false; /* one by one */
    uint8_t *const ticket = take_ticket(lane, unit);
    if (!ticket) {
        lane->metrics.budget_waits += !unit->waited;
        unit->waited = true;
        return make_ticket_room(lane, unit);
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

/* --- slots --- */

/* The pixels of a filler image: grey, as those of a masked one. */
static void fill_images(const stk_run *run, stk_batch *batch)
{
    for (uint32_t k = 0; k < batch->recipe.media_count; k++)
        if (batch->recipe.media[k].media_index == STK_FILLER_MEDIA)
            stk_image_grey(stk_slot_patches(batch->slot, &batch->layout, &batch->recipe, k), run->image,
                           stk_grid_patches(batch->recipe.media[k].grid));
}

/* The oldest without a slot that may have one. */
static stk_work *find_unplaced(stk_lane *lane)
{
    while (lane->slotted < lane->taken && (!*cell(lane, lane->slotted) || (*cell(lane, lane->slotted))->placed)) lane->slotted++;
    for (uint64_t s = lane->slotted; s < lane->taken; s++) {
        stk_work *const work = *cell(lane, s);
        if (work && !work->placed && is_awaited(work)) return work;
    }
    return NULL;
}

/* Give the oldest micro-batch without one its slot, and write what belongs to no sample. */
static bool prepare(stk_lane *lane)
{
    stk_engine_home *const home = lane->engine->home;
    stk_work *const work = find_unplaced(lane);
    if (!work) return false;
    /* Where take failed there is nothing to write, and for what is passed nobody reads it. */
    if (work->status < 0 || is_passed(lane, work)) {
        work->placed = work->prepared = true;
        drop_passed(lane, work);
        stk_engine_tell_readers(home);
        return true;
    }
    const int32_t slot = stk_arena_take(home->arena, lane->number);
    if (slot < 0) return lane->wish && (stk_lane_forget(lane) || drop_unwanted(lane, true));
    lane->slots_held++;
    work->placed = true;
    work->slot = slot;
    work->batch.slot = stk_arena_slot(home->arena, slot);
    stk_engine_note_memory(lane->engine);
    pthread_mutex_unlock(&home->lock);
    stk_slot_prepare(work->batch.slot, &work->batch.layout, &work->batch.recipe, &lane->run->form);
    fill_images(lane->run, &work->batch);
    pthread_mutex_lock(&home->lock);
    work->prepared = true;
    if (is_made(work)) stk_engine_tell_readers(home);
    drop_passed(lane, work);
    return true;
}

/* --- take --- */

/* What a reader has rewound past before it was taken is left out. */
static void skip_passed(stk_lane *lane)
{
    while (lane->taken < lane->wanted_end && lane->taken - lane->head < lane->window_count && is_behind(lane, lane->taken)) {
        lane->taken++;
        advance_head(lane);
    }
}

/* The first step of a pass is made before anything is prefetched: the trainer waits for it. */
static bool may_take(stk_lane *lane)
{
    skip_passed(lane);
    if (lane->taken >= lane->wanted_end || lane->taken - lane->head >= lane->window_count) return false;
    const stk_engine_ranks *const ranks = &lane->engine->ranks;
    const uint32_t micros = stk_plan_micro_count(lane->run->plan, lane->first_step, ranks->world);
    const uint64_t first_step_end =
        lane->taken - lane->taken % lane->pass_count + (uint64_t)(micros - lane->first_micro) * ranks->rank_count;
    if (lane->taken < first_step_end) return true;
    for (uint64_t s = lane->head; s < first_step_end; s++) {
        const stk_work *const work = *cell(lane, s);
        if (work && !is_made(work)) return false;
    }
    return true;
}

/* On request: what is taken enters the window once somebody waits for it, the first that was asked for. */
static bool enter(stk_lane *lane)
{
    stk_wish *first = NULL;
    if (lane->taken - lane->head >= lane->window_count) return false;
    for (uint32_t i = 0; i < lane->wish_count; i++) {
        stk_wish *const wish = &lane->wish[i];
        if (wish->work && wish->asker && !wish->entered && (!first || wish->number < first->number)) first = wish;
    }
    if (!first) return false;
    first->entered = true;
    first->work->sequence = lane->taken;
    *cell(lane, lane->taken++) = first->work;
    return true;
}

/* On request: what to take next: what is asked for, else what is expected, of which half a window may stand outside it.  NULL: nothing, and
 * whether room was made. */
static stk_wish *next_wish(stk_lane *lane, bool *made_room)
{
    stk_wish *asked = NULL, *expected = NULL;
    uint32_t outside = 0;
    for (uint32_t i = 0; i < lane->wish_count; i++) {
        stk_wish *const wish = &lane->wish[i];
        stk_wish **const first = wish->asker ? &asked : &expected;
        outside += wish->taken && !wish->entered;
        if (wish->number && !wish->taken && (!*first || wish->number < (*first)->number)) *first = wish;
    }
    const bool free_work = lane->home->free_work;
    if (asked && free_work && lane->taken - lane->head < lane->window_count) return asked;
    if (asked && (*made_room = drop_unwanted(lane, true))) return NULL;
    if (!expected || !free_work) return NULL;
    if (outside < lane->window_count / 2) return expected;
    *made_room = drop_unwanted(lane, false);
    return NULL;
}

static bool take(stk_lane *lane, stk_worker *worker)
{
    bool did = lane->wish && enter(lane);
    if (did || lane->taking || lane->failed < 0) return did;
    stk_wish *const wish = lane->wish ? next_wish(lane, &did) : NULL;
    if (lane->wish ? !wish : !lane->home->free_work || !may_take(lane)) return did;
    pthread_mutex_t *const lock = &lane->engine->home->lock;
    lane->taking = true;
    stk_work *const work = lane->home->free_work;
    lane->home->free_work = work->next;
    work->sequence = lane->taken;
    work->priority = lane->priority + lane->taken;
    if (wish) {
        wish->taken = true;
        work->wish = wish;
        /* What is only expected comes later than what is asked for by then, but in its turn should it be asked for. */
        work->priority = wish->number + (wish->asker ? 0 : lane->wish_count);
    }
    const stk_place place = wish ? wish->place : find_place(lane, work->sequence);
    pthread_mutex_unlock(lock);
    stk_stall("take");
    const stk_status status = stk_work_take(work, lane->run, lane->scratch, lane->lazy, &worker->maker[lane->number], place.step, place.rank,
                                            lane->engine->ranks.world, place.micro, &work->error);
    pthread_mutex_lock(lock);
    if (status < 0) {
        work->status = status;
        work->unit_count = work->units_left = 0;
    }
    lane->taking = false;
    if (wish) {
        wish->work = work;
        (void)enter(lane);
    } else {
        *cell(lane, lane->taken++) = work;
        drop_passed(lane, work);
    }
    return true;
}

/* --- make --- */

/* The oldest unit whose bytes are there, if its working memory is granted.  The oldest of a lane may use what is left; every
 * other leaves room for the largest, so that the oldest never waits for more than what runs now. */
static stk_unit *claim(stk_lane *lane)
{
    stk_engine *const engine = lane->engine;
    bool is_oldest = true;
    lane->starved = false;
    for (uint64_t s = lane->head; s < lane->taken; s++) {
        stk_work *const work = *cell(lane, s);
        if (!work || work->units_left == 0 || !is_awaited(work)) continue;
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
                lane->metrics.budget_waits += !unit->waited;
                unit->waited = true;
                lane->starved = is_oldest;
                return NULL;
            }
            is_oldest = false;
        }
    }
    return NULL;
}

static bool make(stk_lane *lane, stk_worker *worker)
{
    stk_unit *const unit = claim(lane);
    if (!unit) return false;
    stk_engine *const engine = lane->engine;
    stk_work *const work = unit->work;
    stk_maker *const maker = &worker->maker[lane->number];
    unit->state = STK_UNIT_MAKING;
    work->units_ready--;
    engine->work_held += unit->work_bytes;
    stk_engine_note_memory(engine);
    pthread_mutex_unlock(&engine->home->lock);
    stk_stall("make");
    stk_error error = {0};
    const stk_status status = stk_unit_make(unit, lane->run, maker, &error);
    pthread_mutex_lock(&engine->home->lock);
    engine->work_held -= unit->work_bytes;
    worker->done[lane->number].decode = maker->decode;
    worker->done[lane->number].transform = maker->transform;
    worker->done[lane->number].text = maker->text_stage;
    worker->done[lane->number].place = maker->place;
    /* Errors surface in plan order, whichever unit failed first. */
    const uint32_t at = (uint32_t)(unit - work->unit);
    if (status < 0 && (work->status == STK_OK || at < work->failed_unit)) {
        work->status = status;
        work->failed_unit = at;
        work->error = error;
    }
    end_unit(unit);
    if (is_made(work)) stk_engine_tell_readers(engine->home);
    drop_passed(lane, work);
    return true;
}

/* --- whichever can be done --- */

/* The lane whose readers wait, for longest if several do; where none waits, training. */
static uint32_t first_lane(const stk_engine *engine)
{
    if (engine->lane_count == 1) return STK_LANE_TRAIN;
    const stk_lane *const train = &engine->lane[STK_LANE_TRAIN], *const eval = &engine->lane[STK_LANE_EVAL];
    return eval->waiting && (!train->waiting || eval->asked < train->asked) ? STK_LANE_EVAL : STK_LANE_TRAIN;
}

/* Nothing passes an oldest unit that waits for memory: else it might wait for ever. */
bool stk_engine_advance(stk_engine *engine, stk_worker *worker)
{
    bool did = reap(engine);
    const uint32_t first = first_lane(engine);
    for (uint32_t i = 0; !did && i < engine->lane_count; i++) {
        stk_lane *const lane = &engine->lane[(first + i) % engine->lane_count];
        did = prepare(lane) || take(lane, worker) || start_fetch(lane) || make(lane, worker);
        if (lane->starved) break;
    }
    if (did) pthread_cond_signal(&engine->home->changed);
    return did;
}
