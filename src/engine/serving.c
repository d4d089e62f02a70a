/* serving.c - seats and what they get.  The engine, from its configuration on, stands in serving_open.c, which calls this. */
#include "engine/serving_core.h"

#include "base/clock.h"

static uint64_t earlier(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* --- seats --- */

stk_status stk_serving_sit(stk_serving *s, const stk_wire_hello *hello, pid_t pid, stk_seat **out, stk_error *err)
{
    *out = NULL;
    uint32_t at = 0;
    while (at < s->ranks.rank_count && s->ranks.rank[at] != hello->rank) at++;
    if (at == s->ranks.rank_count)
        return stk_fail(err, STK_ERR_USAGE, "rank %u is not among those of this machine: %.60s", hello->rank, stk_serving_node_ranks(s).data);
    if (hello->eval && !s->options.eval) return stk_fail(err, STK_ERR_OPTION, "the configuration has no `eval`: add it, with its data");
    stk_serving_rank *const rank = &s->rank[hello->eval ? STK_LANE_EVAL : STK_LANE_TRAIN][at];
    stk_seat *seat = NULL;
    for (uint32_t i = 0; !seat && i < s->readers; i++)
        if (rank->seat[i].stage == STK_SEAT_UNTAKEN || rank->seat[i].stage == STK_SEAT_LEFT) seat = &rank->seat[i];
    if (!seat)
        return stk_fail(err, STK_ERR_USAGE, "rank %u has %u readers already (process %d): close one, or raise `readers`", hello->rank, s->readers,
                        (int)rank->seat[0].pid);
    seat->pid = pid;
    seat->resumed = hello->resumed;
    seat->asked_ns = 0;
    stk_seat_move(seat, &hello->place);
    *out = seat;
    return STK_OK;
}

void stk_seat_move(stk_seat *seat, const stk_wire_place *place)
{
    seat->want = *place;
    seat->stage = STK_SEAT_COMING;
}

/* The earliest place that a seat of the rank stands at; left ones keep nothing. */
static uint64_t lowest(const stk_serving_rank *rank)
{
    uint64_t low = UINT64_MAX;
    for (uint32_t i = 0; i < rank->serving->readers; i++)
        if (rank->seat[i].stage != STK_SEAT_LEFT && rank->seat[i].stage != STK_SEAT_REFUSED) low = earlier(low, rank->seat[i].at);
    return low;
}

/* What all have passed goes. */
static void let_go(stk_serving_rank *rank)
{
    const uint64_t low = lowest(rank);
    uint32_t passed = 0;
    while (passed < rank->there && rank->next - rank->there + passed < low) stk_batch_release(&rank->batch[passed++]);
    rank->there -= passed;
    if (passed) memmove(rank->batch, rank->batch + passed, rank->there * sizeof *rank->batch);
}

void stk_serving_let_go_all(stk_serving_rank *rank)
{
    for (uint32_t i = 0; i < rank->there; i++) stk_batch_release(&rank->batch[i]);
    rank->there = 0;
}

void stk_seat_leave(stk_seat *seat)
{
    const stk_lane *const lane = seat->rank->reader ? seat->rank->reader->lane : NULL;
    const uint64_t count = lane ? lane->pass_count / lane->engine->ranks.rank_count : 0;
    /* A pass that was begun is not gone on with by the next. */
    if (seat->stage == STK_SEAT_PLACED) seat->next_pass = seat->pass + (seat->at != seat->end - count || count == 0);
    seat->stage = STK_SEAT_LEFT;
    seat->pid = 0;
    if (seat->rank->asking) stk_reader_unask(seat->rank->reader);
    seat->rank->asking = false;
    let_go(seat->rank);
}

/* Where a coming seat stands, in an open engine.  STK_AGAIN: that is gone, or was never there. */
stk_status stk_seat_find(stk_seat *seat, stk_error *err)
{
    stk_serving_rank *const rank = seat->rank;
    const stk_lane *const lane = rank->reader->lane;
    const uint64_t count = lane->pass_count / lane->engine->ranks.rank_count;
    const bool eval = lane->number == STK_LANE_EVAL;
    const uint64_t base = eval ? rank->serving->base_pass : 0;
    uint64_t number;
    stk_state here;
    STK_TRY(stk_lane_place(lane, seat->want.has_state ? &seat->want.state : NULL, &number, &here, err));
    uint64_t pass = eval ? seat->want.pass : 0;
    if (eval && seat->want.fresh) pass = seat->next_pass > base ? seat->next_pass : base;
    if (pass < base || number < lane->first_number) return STK_AGAIN;
    const uint64_t begins = (pass - base) * count, at = begins + (number - lane->first_number);
    if (at + rank->there < rank->next) return STK_AGAIN;
    seat->at = at;
    seat->end = begins + count;
    seat->pass = pass;
    seat->state = here;
    return STK_OK;
}

/* --- what comes next --- */

/* Whom a rank waits for: that of its seats which is furthest behind, or has not come yet.  NULL: nobody, but for `but`. */
static const stk_seat *slow_one(const stk_serving_rank *rank, const stk_seat *but)
{
    const stk_seat *slowest = NULL;
    for (uint32_t i = 0; i < rank->serving->readers; i++) {
        const stk_seat *const other = &rank->seat[i];
        if (other == but || other->stage == STK_SEAT_LEFT || other->stage == STK_SEAT_REFUSED) continue;
        if (!slowest || other->at < slowest->at) slowest = other;
    }
    return slowest;
}

static void slow_words(const stk_seat *seat, char words[200])
{
    const stk_seat *const slow = slow_one(seat->rank, seat);
    const uint32_t number = seat->rank->reader->rank;
    if (!slow)
        snprintf(words, 200, "for batches of rank %u that were given out and not released", number);
    else if (slow->stage == STK_SEAT_UNTAKEN)
        snprintf(words, 200, "for a reader of rank %u that has not come yet, of %u", number, seat->rank->serving->readers);
    else if (slow->at < seat->at)
        snprintf(words, 200, "for the reader of rank %u in process %d, which is %llu micro-batches behind", number, (int)slow->pid,
                 (unsigned long long)(seat->at - slow->at));
    else
        snprintf(words, 200, "for the reader of rank %u in process %d to release what it holds", number, (int)slow->pid);
}

/* The readers of the rank hold all that may be held: for a time. */
static stk_status wait_for_others(const stk_seat *seat, stk_error *err)
{
    char words[200];
    const stk_lane *const lane = seat->rank->reader->lane;
    if (stk_now() - seat->asked_ns < lane->timeout_ns) return STK_AGAIN;
    slow_words(seat, words);
    return stk_fail(err, STK_ERR_TIMEOUT, "rank %u waited %lld s %s: read all readers, or raise keep (%u)", seat->rank->reader->rank,
                    (long long)(lane->timeout_ns / STK_S), words, lane->keep);
}

/* The time is up.  Where a rank is behind, the engine knows which, and this who reads it. */
static stk_status name_behind(const stk_seat *seat, stk_error *err)
{
    const stk_serving_rank *const mine = seat->rank;
    const stk_lane *const lane = mine->reader->lane;
    const stk_reader *const reader = stk_reader_behind(mine->reader);
    if (!reader) return STK_ERR_TIMEOUT;
    const stk_serving_rank *const behind = &mine->serving->rank[lane->number][reader - lane->reader];
    const stk_seat *const slow = slow_one(behind, NULL);
    const long long seconds = (long long)(lane->timeout_ns / STK_S);
    if (!slow || !slow->pid)
        return stk_fail(err, STK_ERR_TIMEOUT, "rank %u waited %lld s for memory that is kept for rank %u, which no process reads: start one, or leave that rank out of node_ranks",
                        mine->reader->rank, seconds, reader->rank);
    return stk_fail(err, STK_ERR_TIMEOUT, "rank %u waited %lld s for memory that is kept for rank %u, which is %llu micro-batches behind, in process %d: read all ranks, or raise prefetch",
                    mine->reader->rank, seconds, reader->rank, (unsigned long long)(mine->next - behind->next), (int)slow->pid);
}

/* Take micro-batches out of the engine until that of the seat is there. */
static stk_status fetch(stk_seat *seat, stk_error *err)
{
    stk_serving_rank *const rank = seat->rank;
    while (rank->next <= seat->at) {
        const uint64_t low = lowest(rank);
        if (rank->next < low) rank->next = low; /* asked for, what lies before it is gone */
        const stk_ns now = stk_now();
        stk_batch *batch;
        const stk_status status = stk_reader_poll(rank->reader, rank->next, &batch, rank->asking ? now - rank->polled_ns : 0, err);
        rank->asking = status == STK_AGAIN;
        rank->polled_ns = now;
        rank->kept = status == STK_ERR_KEEP;
        if (rank->kept) return wait_for_others(seat, err);
        if (status == STK_ERR_TIMEOUT) return name_behind(seat, err);
        if (status != STK_OK) return status;
        rank->next++;
        rank->batch[rank->there++] = batch;
    }
    return STK_OK;
}

stk_status stk_seat_next(stk_seat *seat, stk_batch **out, stk_error *err)
{
    stk_serving_rank *const rank = seat->rank;
    *out = NULL;
    if (seat->stage != STK_SEAT_PLACED) return STK_AGAIN;
    if (seat->at >= seat->end) return STK_END;
    if (!seat->asked_ns) seat->asked_ns = stk_now();
    const stk_status status = fetch(seat, err);
    if (status != STK_AGAIN) seat->asked_ns = 0;
    if (status == STK_ERR_TIMEOUT) stk_error_stage(err, STK_STAGE_DELIVER);
    rank->serving->spoiled |= status < 0;
    if (status != STK_OK) return status;
    stk_batch *const batch = rank->batch[seat->at - (rank->next - rank->there)];
    stk_batch_retain(batch);
    seat->at++;
    seat->state = batch->after;
    let_go(rank);
    *out = batch;
    return STK_OK;
}

static void opening_words(stk_serving *s, char words[200])
{
    pthread_mutex_lock(&s->lock);
    memcpy(words, s->words, sizeof s->words);
    pthread_mutex_unlock(&s->lock);
}

void stk_seat_words(const stk_seat *seat, char words[200])
{
    stk_serving *const s = seat->rank->serving;
    if (seat->stage == STK_SEAT_COMING) opening_words(s, words);
    else if (seat->stage == STK_SEAT_PLACED && seat->rank->kept) slow_words(seat, words);
    else snprintf(words, 200, "for a batch to be made");
}

/* --- what is told --- */

void stk_seat_welcome(const stk_seat *seat, stk_wire_welcome *welcome)
{
    const stk_lane *const lane = seat->rank->reader->lane;
    const stk_run *const run = lane->run;
    *welcome = (stk_wire_welcome){.pass = seat->pass, .micro_count = stk_reader_micro_count(seat->rank->reader),
                                  .step_count = stk_reader_step_count(seat->rank->reader), .state = seat->state, .form = run->form, .model = run->model, .set_count = run->set_count, .set_name = run->set_name};
}

void stk_seat_metrics(const stk_seat *seat, stk_metrics *metrics)
{
    const stk_serving *const s = seat->rank->serving;
    *metrics = (stk_metrics){0};
    if (!s->engine) return;
    if (seat->rank->reader->lane->number == STK_LANE_EVAL) stk_engine_eval_metrics(s->engine, metrics);
    else stk_engine_metrics(s->engine, metrics);
}

uint64_t stk_serving_generation(const stk_serving *serving)
{
    return serving->generation;
}

const stk_arena *stk_serving_arena(const stk_serving *serving)
{
    return serving->engine->home->arena;
}
