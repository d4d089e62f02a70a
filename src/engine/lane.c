/* lane.c - opening and closing a lane: its run, where it begins, its window and its readers. */
#include <unistd.h>

#include "engine/engine_core.h"
#include "engine/fingerprint.h"

enum { WISHES_A_CELL = 4 }; /* of the window: what is asked for waits in order behind a full one, and what is expected for its share */

/* --- where it begins --- */

/* What all states of this run record: the changes before, and those that are accepted now. */
static void note_changes(const stk_lane *lane, const stk_state *state, stk_state *noted)
{
    if (stk_state_is_step(state)) return; /* it knows of none */
    char words[160];
    for (int i = 0; i < STK_STREAM_OPTIONS; i++)
        noted->changed[i] = state->changed[i] ||
                                stk_fingerprint_difference(&state->fingerprint, &lane->run->fingerprint, (stk_stream_option)i, words);
}

/* Where a state stands in this run: step and micro-batch of it.  *changed: under options that differ, which it allows. */
static stk_status look_for_step(const stk_lane *lane, const stk_state *state, uint64_t *step, uint32_t *micro, bool *changed, stk_error *err)
{
    const stk_plan *const plan = lane->run->plan;
    const uint32_t world = lane->engine->ranks.world;
    *micro = 0;
    *changed = false;
    if (stk_state_is_step(state)) {
        *step = state->step;
        if (*step <= stk_plan_step_count(plan)) return STK_OK;
        return stk_fail(err, STK_ERR_STATE, "step %llu is behind the end: the run has %llu steps", (unsigned long long)*step,
                        (unsigned long long)stk_plan_step_count(plan));
    }
    if (state->plan_version != STK_PLAN_VERSION)
        return stk_fail(err, STK_ERR_STATE,
                        "the state has plan_version %u, and this release plans by version %u",
                        state->plan_version, STK_PLAN_VERSION);
    STK_TRY(stk_fingerprint_check(state, &lane->run->fingerprint, changed, err));
    /* A step that was begun is cut otherwise now: it is made anew. */
    if (*changed) {
        *step = stk_plan_step_from(plan, state->epoch, state->rows);
        return STK_OK;
    }
    if (state->micro && state->world != world)
        return stk_fail(err, STK_ERR_STATE,
                        "the state was taken inside a step on %u ranks and cannot go on with %u: use one of "
                        "the end of a step",
                        state->world, world);
    STK_TRY(stk_plan_step_at(plan, state->epoch, state->rows, step, err));
    if (*step != state->step)
        return stk_fail(err, STK_ERR_STATE, "the state names step %llu, and its position is step %llu",
                        (unsigned long long)state->step, (unsigned long long)*step);
    if (state->micro == 0) return STK_OK;
    const uint32_t micro_rows = stk_plan_micro_rows(plan, state->step, world);
    if (state->micro_rows != micro_rows)
        return stk_fail(err, STK_ERR_STATE,
                        "the state was taken inside a step with %u rows in a micro-batch and cannot go on "
                        "with %u: set micro_batch as it "
                        "was, or use one of the end of a step",
                        state->micro_rows, micro_rows);
    const uint32_t micros = stk_plan_micro_count(plan, state->step, world);
    if (state->step == stk_plan_step_count(plan) || state->micro >= micros)
        return stk_fail(err, STK_ERR_STATE, "the state names micro-batch %u, and a step has %u", state->micro, micros);
    *micro = state->micro;
    return STK_OK;
}

static stk_status find_step(const stk_lane *lane, const stk_state *state, uint64_t *step, uint32_t *micro, bool *changed, stk_error *err)
{
    const stk_status status = look_for_step(lane, state, step, micro, changed, err);
    if (status < 0) stk_error_stage(err, STK_STAGE_STATE);
    return status;
}

/* Where the run starts: the beginning, or after a state. */
static stk_status find_start(stk_lane *lane, const stk_state *state, stk_error *err)
{
    bool changed;
    if (!state) return STK_OK;
    STK_TRY(find_step(lane, state, &lane->first_step, &lane->first_micro, &changed, err));
    note_changes(lane, state, &lane->base);
    return STK_OK;
}

/* Before a micro-batch of a step. */
static stk_state state_before(const stk_lane *lane, uint64_t step, uint32_t micro)
{
    const stk_plan *const plan = lane->run->plan;
    const uint32_t world = lane->engine->ranks.world;
    stk_state state = lane->base;
    state.step = step;
    stk_plan_position(plan, step, &state.epoch, &state.rows);
    state.micro = micro;
    state.world = micro ? world : 0;
    state.micro_rows = micro ? stk_plan_micro_rows(plan, step, world) : 0;
    return state;
}

stk_status stk_lane_place(const stk_lane *lane, const stk_state *state, uint64_t *number, stk_state *here, stk_error *err)
{
    uint64_t step = 0;
    uint32_t micro = 0;
    bool changed;
    if (state) STK_TRY(find_step(lane, state, &step, &micro, &changed, err));
    *number = stk_plan_micros_before(lane->run->plan, step, lane->engine->ranks.world) + micro;
    *here = state_before(lane, step, micro);
    return STK_OK;
}

stk_status stk_engine_place(const stk_engine *engine, const stk_state *state, uint64_t *number, stk_state *here, stk_error *err)
{
    const stk_lane *const lane = &engine->lane[STK_LANE_TRAIN];
    STK_TRY(stk_lane_place(lane, state, number, here, err));
    if (state) note_changes(lane, state, here);
    return STK_OK;
}

static stk_status find_one(stk_lane *lane, const stk_span *part, stk_forecast *forecast, stk_error *err)
{
    const stk_plan *const plan = lane->run->plan;
    const stk_engine_ranks *const ranks = &lane->engine->ranks;
    const uint64_t step_count = stk_plan_step_count(plan);
    const uint32_t micros = part->step < step_count ? stk_plan_micro_count(plan, part->step, ranks->world) : 0;
    if (part->micro >= micros)
        return stk_fail(err, STK_ERR_USAGE,
                        "no micro-batch %u of step %llu: the run has %llu steps, that one has %u micro-batches a rank",
                        part->micro, (unsigned long long)part->step, (unsigned long long)step_count, micros);
    lane->first_step = part->step;
    lane->first_micro = part->micro;
    lane->first_number = stk_plan_micros_before(plan, part->step, ranks->world) + part->micro;
    lane->pass_count = 1;
    if (lane->run->stream)
        return stk_forecast_drawn(forecast, lane->run, part->step, stk_engine_rank(ranks, 0), ranks->world, part->micro, err);
    return stk_forecast_make(forecast, lane->run, *ranks, part->step, part->step + 1, NULL, err);
}

static stk_status find_span(stk_lane *lane, const stk_span *part, stk_forecast *forecast, stk_watch *watch, stk_error *err)
{
    const stk_plan *const plan = lane->run->plan;
    const stk_engine_ranks *const ranks = &lane->engine->ranks;
    lane->base = (stk_state){.fingerprint = lane->run->fingerprint, .plan_version = STK_PLAN_VERSION};
    if (part->one) return find_one(lane, part, forecast, err);
    STK_TRY(find_start(lane, part->state, err));
    const uint64_t step_count = stk_plan_step_count(plan);
    size_t micros;
    lane->first_number = stk_plan_micros_before(plan, lane->first_step, ranks->world) + lane->first_micro;
    if (stk_mul_overflows(&micros, stk_plan_micros_before(plan, step_count, ranks->world) - lane->first_number, ranks->rank_count))
        return stk_fail(err, STK_ERR_OPTION, "the run is too long: lower steps or epochs");
    lane->pass_count = part->on_request ? UINT64_MAX : micros;
    return stk_forecast_make(forecast, lane->run, *ranks, 0, step_count, watch, err);
}

/* --- open and close --- */

stk_status stk_lane_open_run(stk_lane *lane, const stk_options *options, const stk_span *part, const stk_index_progress *progress,
                             stk_forecast *forecast, stk_error *err)
{
    lane->dead_letter_fd = -1;
    lane->keep = (uint32_t)options->keep;
    lane->timeout_ns = options->timeout_s * STK_S;
    lane->errors_masked = options->errors_masked;
    lane->errors_unusable = part->one ? 1 : options->errors_unusable;
    STK_TRY(stk_run_open(&lane->run, options, progress, err));
    STK_TRY(stk_plan_check_world(lane->run->plan, lane->engine->ranks.world, err));
    stk_watch watch;
    stk_run_watch(&watch, progress);
    const stk_status status = find_span(lane, part, forecast, &watch, err);
    stk_remote_watch(lane->run->rules->remote, NULL); /* progress is for those who open */
    return status;
}

static void open_readers(stk_lane *lane)
{
    for (uint32_t i = 0; i < lane->engine->ranks.rank_count; i++)
        lane->reader[i] = (stk_reader){.lane = lane, .rank = stk_engine_rank(&lane->engine->ranks, i), .next_sequence = i,
                                       .pass_end = lane->pass_count, .state = lane->start};
}

stk_status stk_lane_open(stk_lane *lane, stk_error *err)
{
    const stk_lane_memory *const memory = lane->memory;
    lane->metrics.arena_bytes = memory->slots;
    lane->window_count = memory->window_count;
    lane->window = stk_alloc_array(STK_TAG_ENGINE, lane->window_count, sizeof *lane->window);
    if (lane->engine->on_request) {
        lane->wish_count = WISHES_A_CELL * lane->window_count;
        lane->wish = stk_alloc_array(STK_TAG_ENGINE, lane->wish_count, sizeof *lane->wish);
        lane->recent = stk_alloc_array(STK_TAG_ENGINE, memory->slot_count, sizeof *lane->recent);
    } else lane->reader = stk_alloc_array(STK_TAG_ENGINE, lane->engine->ranks.rank_count, sizeof *lane->reader);
    lane->set_count = stk_alloc_array(STK_TAG_ENGINE, lane->run->set_count, sizeof *lane->set_count);
    if (!lane->window || !(lane->reader || (lane->wish && lane->recent)) || !lane->set_count) return stk_fail(err, STK_ERR_NOMEM, "out of memory: an engine");
    lane->start = state_before(lane, lane->first_step, lane->first_micro);
    if (lane->reader) open_readers(lane);
    STK_TRY(stk_dead_letter_open(&lane->dead_letter_fd, lane->run->rules->dead_letter, err));
    STK_TRY(stk_tickets_init(&lane->tickets, memory->tickets - memory->ahead, memory->ticket_count, err));
    if (lane->wish) STK_TRY(stk_tickets_init(&lane->ahead, memory->ahead, memory->ticket_count, err));
    STK_TRY(stk_plan_scratch_create(&lane->scratch, lane->run->plan, err));
    if (!lane->run->stream) return STK_OK;
    stk_remote_limit(lane->run->rules->remote, memory->finder_requests);
    return stk_lazy_facts_create(&lane->lazy, lane->run, memory->finders, err);
}

void stk_lane_close(stk_lane *lane)
{
    stk_lazy_facts_destroy(lane->lazy);
    stk_plan_scratch_destroy(lane->scratch);
    stk_tickets_deinit(&lane->tickets);
    stk_tickets_deinit(&lane->ahead);
    if (lane->dead_letter_fd >= 0) close(lane->dead_letter_fd);
    stk_free(lane->window);
    stk_free(lane->reader);
    stk_free(lane->wish);
    stk_free(lane->recent);
    stk_free(lane->set_count);
    stk_run_release(lane->run);
}
