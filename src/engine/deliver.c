/* deliver.c - what a reader gets, in plan order: batches, errors, dead letters, the error budget; and the
 * counters. */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <unistd.h>

#include "base/thread.h"
#include "engine/engine_core.h"
#include "engine/stall.h"
#include "engine/store_figures.h"

enum { MASKED_FLOOR = 10, UNUSABLE_FLOOR = 10 }; /* so that one bad sample of a small set stops nothing */

/* --- dead letters: one JSON object a line, one write a line --- */

stk_status stk_dead_letter_open(int *fd, const char *path, stk_error *err)
{
    *fd = -1;
    if (!path) return STK_OK;
    *fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (*fd >= 0) return STK_OK;
    const stk_status status = stk_fail_errno(err, "cannot open the dead-letter file for writing");
    stk_error_file(err, path, 0);
    return status;
}

/* Text of any bytes: what is not UTF-8 (a path, a message cut in the middle of a character) becomes '?'. */
static json_t *letter_text(const char *text)
{
    json_t *const whole = json_string(text);
    if (whole) return whole;
    char ascii[512];
    size_t at = 0;
    for (; text[at] && at + 1 < sizeof ascii; at++) ascii[at] = (uint8_t)text[at] < 0x80 ? text[at] : '?';
    ascii[at] = 0;
    return json_string(ascii);
}

/* The manifest file that a sample's record stands in. */
static const char *file_of(const stk_lane *lane, const stk_recipe_sample *sample)
{
    const stk_set_facts *const facts = &lane->run->set[sample->set_index].facts;
    return facts->file[facts->record[sample->record_index].file_index];
}

static void write_dead_letter(const stk_lane *lane, const stk_batch *batch, uint32_t at)
{
    const stk_batch_note *const note = &batch->note[at];
    const stk_recipe_sample *const sample = &batch->recipe.sample[at];
    const stk_run_set *const set = &lane->run->set[sample->set_index];
    const char *const file = file_of(lane, sample);
    json_t *const letter =
        json_pack("{s:o, s:o, s:o, s:I, s:I, s:s, s:s, s:o}", "id", letter_text(note->id), "set",
                  letter_text(set->name), "file", letter_text(file), "line", (json_int_t)note->line, "step",
                  (json_int_t)batch->recipe.step, "stage", stk_stage_name(note->stage), "reason",
                  note->reason, "message", letter_text(note->message));
    char *const text = letter ? json_dumps(letter, JSON_COMPACT | JSON_ENSURE_ASCII) : NULL;
    json_decref(letter);
    if (!text) return;
    const size_t length = strlen(text);
    text[length] = '\n'; /* in place of the NUL: the line goes out in one write */
    /* A full disk must not stop a training run: the sample is also named by the batch and the counters. */
    if (write(lane->dead_letter_fd, text, length + 1) < 0) errno = 0;
    free(text);
}

/* An error names the sample that it is about, and where its record stands. */
static void name_sample(const stk_lane *lane, const stk_batch *batch, uint32_t at, stk_error *err)
{
    const stk_batch_note *const note = &batch->note[at];
    const stk_recipe_sample *const sample = &batch->recipe.sample[at];
    stk_error_sample(err, note->id);
    stk_error_file(err, file_of(lane, sample), note->line);
    stk_error_stage(err, note->stage);
}

static bool has_masked(const stk_batch *batch)
{
    for (uint32_t i = 0; i < batch->recipe.sample_count; i++)
        if (batch->note[i].masked) return true;
    return false;
}

/* --- counting --- */

/* Counts a record that was drawn and cannot be used (index: stream); STK_ERR_SPENT when a data set has too many of them. */
static stk_status count_unusable(stk_lane *lane, const stk_batch *batch, uint32_t at, stk_error *err)
{
    const stk_batch_note *const note = &batch->note[at];
    const uint32_t set_index = batch->recipe.sample[at].set_index;
    stk_set_count *const set = &lane->set_count[set_index];
    lane->metrics.masked++;
    lane->metrics.masked_by_reason[note->reason_number]++;
    set->drawn++;
    if (note->reason_number == STK_REASON_OVERLONG) return STK_OK;
    set->unusable++;
    if (set->unusable <= UNUSABLE_FLOOR || (double)set->unusable <= lane->errors_unusable * (double)set->drawn) return STK_OK;
    const stk_status status =
        stk_fail(err, STK_ERR_SPENT, "%llu of %llu records of %s that were drawn are unusable, over errors.unusable: %g; the last one: %s (%s)",
                 (unsigned long long)set->unusable, (unsigned long long)set->drawn, lane->run->set[set_index].name,
                 lane->errors_unusable, note->reason, note->message);
    name_sample(lane, batch, at, err);
    return status;
}

/* Counts a batch; STK_ERR_SPENT when a data set has lost too many samples.  Every pass has the whole error budget: a fault that
 * is found again in each is still one. */
static stk_status count(stk_lane *lane, const stk_batch *batch, uint64_t pass, stk_error *err)
{
    stk_metrics *const m = &lane->metrics;
    stk_status status = STK_OK;
    if (lane->counted_pass != pass) memset(lane->set_count, 0, lane->run->set_count * sizeof *lane->set_count);
    lane->counted_pass = pass;
    m->micro_batches++;
    m->images += batch->recipe.media_count;
    for (uint32_t i = 0; i < batch->recipe.sample_count; i++) {
        const stk_recipe_sample *const sample = &batch->recipe.sample[i];
        const stk_batch_note *const note = &batch->note[i];
        stk_set_count *const set = &lane->set_count[sample->set_index];
        if (sample->filler) {
            m->filler++;
            if (note->masked && count_unusable(lane, batch, i, err) < 0) status = STK_ERR_SPENT;
            continue;
        }
        set->drawn++;
        m->samples++;
        m->tokens += sample->token_count;
        set->delivered++;
        if (!note->masked) {
            m->supervised_tokens += sample->supervised_count;
            continue;
        }
        set->masked++;
        m->masked++;
        m->masked_by_reason[note->reason_number]++;
        if (set->masked <= MASKED_FLOOR ||
            (double)set->masked <= lane->errors_masked * (double)set->delivered)
            continue;
        status = stk_fail(
            err, STK_ERR_SPENT,
            "%llu of %llu samples of %s were masked, over errors.masked: %g; the last one: %s (%s)",
            (unsigned long long)set->masked, (unsigned long long)set->delivered,
            lane->run->set[sample->set_index].name, lane->errors_masked, note->reason, note->message);
        name_sample(lane, batch, i, err);
    }
    return status;
}

/* The state after a micro-batch: whole rows at the end of a step, else where inside it. */
static void state_after(const stk_lane *lane, uint64_t step, uint32_t micro, stk_state *state)
{
    const stk_plan *const plan = lane->run->plan;
    const uint32_t world = lane->engine->ranks.world;
    const bool ends_step = micro + 1 == stk_plan_micro_count(plan, step, world);
    *state = lane->base;
    state->step = step + ends_step;
    state->micro = ends_step ? 0 : micro + 1;
    state->world = ends_step ? 0 : world;
    state->micro_rows = ends_step ? 0 : stk_plan_micro_rows(plan, step, world);
    stk_plan_position(plan, state->step, &state->epoch, &state->rows);
}

/* --- next --- */

static void fail_lane(stk_lane *lane, stk_status status, const stk_error *error)
{
    lane->failed = status;
    lane->failure = *error;
    stk_engine_tell_readers(lane->engine->home);
}

/* What was masked in a settled micro-batch.  The lock is not held meanwhile; the micro-batch stays where it is. */
static void write_dead_letters(stk_lane *lane, const stk_batch *batch)
{
    stk_engine_home *const home = lane->engine->home;
    if (lane->dead_letter_fd < 0 || !has_masked(batch)) return;
    lane->settling = true;
    pthread_mutex_unlock(&home->lock);
    for (uint32_t i = 0; i < batch->recipe.sample_count; i++)
        if (batch->note[i].masked) write_dead_letter(lane, batch, i);
    pthread_mutex_lock(&home->lock);
    lane->settling = false;
    stk_engine_tell_readers(home);
}

stk_status stk_lane_account(stk_lane *lane, const stk_work *work, stk_error *err)
{
    const stk_status status = count(lane, &work->batch, work->sequence / lane->pass_count, err);
    write_dead_letters(lane, &work->batch);
    return status;
}

/* Account for micro-batches in plan order, as far as `through` and as they are made, whoever their readers
 * are: so what is counted, written and refused does not depend on which reader asks first.  With the lock
 * held. */
static void settle(stk_lane *lane, uint64_t through)
{
    while (lane->settled <= through && lane->settled < lane->taken && !lane->settling && lane->failed == STK_OK) {
        if (!lane->window[lane->settled % lane->window_count]) { /* rewound past */
            lane->settled++;
            continue;
        }
        stk_work *const work = stk_lane_made(lane, lane->settled);
        if (!work) return;
        if (work->status < 0) {
            fail_lane(lane, work->status, &work->error);
            return;
        }
        stk_error error;
        const stk_status status = stk_lane_account(lane, work, &error);
        if (status < 0)
            fail_lane(lane, status, &error);
        else
            lane->settled++;
    }
}

stk_batch *stk_lane_give_out(stk_lane *lane, stk_work *work, unsigned references)
{
    stk_engine *const engine = lane->engine;
    stk_batch *const batch = &work->batch;
    state_after(lane, batch->recipe.step, batch->recipe.micro, &batch->after);
    stk_lane_take_out(lane, work);
    if (lane->metrics.first_batch_ns == 0) lane->metrics.first_batch_ns = stk_now() - engine->opened_ns;
    atomic_store(&batch->references, references);
    atomic_fetch_add(&engine->home->references, 1);
    return batch;
}

/* Give a reader its micro-batch, which is settled.  With the lock held. */
static void deliver(stk_reader *reader, stk_work *work, stk_batch **out)
{
    stk_lane *const lane = reader->lane;
    stk_engine *const engine = lane->engine;
    *out = stk_lane_give_out(lane, work, 1);
    reader->state = (*out)->after;
    reader->next_sequence += engine->ranks.rank_count;
    reader->held++;
    reader->waited_ns = 0;
    lane->asked = ++engine->asks;
    pthread_cond_broadcast(&engine->home->changed);
}

/* The first reader that is behind, while there is no memory for what this one waits for; NULL: none.  With the lock held. */
static const stk_reader *find_behind(const stk_reader *reader)
{
    const stk_lane *const lane = reader->lane;
    const uint32_t rank_count = lane->engine->ranks.rank_count;
    if (reader->next_sequence < lane->slotted) return NULL;
    for (uint32_t i = 0; i < rank_count; i++)
        if (lane->reader[i].next_sequence + rank_count <= reader->next_sequence) return &lane->reader[i];
    return NULL;
}

const stk_reader *stk_reader_behind(const stk_reader *reader)
{
    stk_engine_home *const home = reader->lane->engine->home;
    pthread_mutex_lock(&home->lock);
    const stk_reader *const behind = find_behind(reader);
    pthread_mutex_unlock(&home->lock);
    return behind;
}

/* What a reader waits for, in words: for the error after `timeout`. */
static stk_status fail_waiting(const stk_reader *reader, stk_ns waited_ns, stk_error *err)
{
    const stk_lane *const lane = reader->lane;
    const stk_reader *const behind = find_behind(reader);
    const double seconds = (double)waited_ns / (double)STK_S;
    if (behind)
        return stk_fail(err, STK_ERR_TIMEOUT, "rank %u waited %.0f s for memory that is kept for rank %u, which is %llu micro-batches behind: read all ranks, or raise prefetch",
                        reader->rank, seconds, behind->rank,
                        (unsigned long long)((reader->next_sequence - behind->next_sequence) / lane->engine->ranks.rank_count));
    if (lane->tickets.count)
        return stk_fail(err, STK_ERR_TIMEOUT,
                        "no batch in %.0f s: waiting for the bytes of media (%zu in flight): look at the "
                        "disk, or raise timeout",
                        seconds, (size_t)lane->tickets.count);
    return stk_fail(err, STK_ERR_TIMEOUT,
                    "no batch in %.0f s: the workers did not finish one: raise workers or timeout", seconds);
}

/* Allow what the reader asks for to be taken: its pass, or when inline what it waits for alone.  With the lock held. */
static void ask(const stk_reader *reader)
{
    stk_lane *const lane = reader->lane;
    stk_engine *const engine = lane->engine;
    const uint64_t end = engine->inline_workers ? reader->next_sequence + 1 : reader->pass_end;
    if (lane->waiting == 0) lane->asked = ++engine->asks;
    if (end <= lane->wanted_end) return;
    lane->wanted_end = end;
    /* The first micro-batch of an evaluation is as urgent as the one that the trainer takes next. */
    if (lane->number == STK_LANE_EVAL)
        lane->priority = engine->lane[STK_LANE_TRAIN].head - (reader->pass_end - lane->pass_count);
    pthread_cond_broadcast(&engine->home->changed);
}

/* The worker that is a reader's own, when inline. */
static stk_worker *worker_of(const stk_reader *reader)
{
    const stk_lane *const lane = reader->lane;
    return &lane->engine->worker[lane->number * lane->engine->ranks.rank_count + (uint32_t)(reader - lane->reader)];
}

/* Until the reader's next micro-batch may be taken out (true), or all has failed, or the deadline has come.
 * With the lock held. */
static bool wait_for_work(stk_reader *reader, stk_ns deadline)
{
    stk_lane *const lane = reader->lane;
    stk_engine *const engine = lane->engine;
    const struct timespec until = stk_timespec(deadline);
    for (bool in_time = true;;) {
        settle(lane, reader->next_sequence);
        if (reader->next_sequence < lane->settled) return true;
        if (lane->failed < 0 || engine->stop || !in_time) return false;
        if (engine->inline_workers && stk_engine_advance(engine, worker_of(reader))) continue;
        in_time = pthread_cond_timedwait(&engine->home->ready, &engine->home->lock, &until) != ETIMEDOUT;
    }
}

/* Count the wait, and say how it ended.  With the lock held. */
static stk_status end_wait(stk_reader *reader, bool there, stk_ns waited_ns, stk_batch **out)
{
    stk_lane *const lane = reader->lane;
    lane->metrics.wait_ns += waited_ns;
    reader->waited_ns += waited_ns;
    if (there) {
        deliver(reader, stk_lane_made(lane, reader->next_sequence), out);
        return STK_OK;
    }
    if (lane->failed < 0) {
        reader->error = lane->failure;
        return reader->failed = lane->failed;
    }
    if (reader->waited_ns < lane->timeout_ns) return STK_AGAIN;
    reader->failed = fail_waiting(reader, reader->waited_ns, &reader->error);
    stk_error_stage(&reader->error, STK_STAGE_DELIVER);
    return reader->failed;
}

/* What a call says before anything else, when a reader is of another process or has failed. */
static stk_status check_reader(const stk_reader *reader, stk_error *err)
{
    const stk_engine *const engine = reader->lane->engine;
    if (engine->pid != getpid())
        return stk_fail(err, STK_ERR_FORKED, "the loader was opened by process %d: open one after the fork",
                        (int)engine->pid);
    if (reader->failed < 0 && err) *err = reader->error;
    return reader->failed;
}

stk_status stk_reader_next(stk_reader *reader, stk_batch **out, stk_ns timeout_ns, stk_error *err)
{
    stk_lane *const lane = reader->lane;
    stk_engine_home *const home = lane->engine->home;
    *out = NULL;
    STK_TRY(check_reader(reader, err));
    if (reader->next_sequence >= reader->pass_end) return STK_END;

    stk_stall("deliver");
    const stk_ns start = stk_now(), left_ns = lane->timeout_ns - reader->waited_ns;
    pthread_mutex_lock(&home->lock);
    const uint32_t held = reader->held;
    stk_status status = STK_ERR_KEEP;
    if (held <= lane->keep) {
        ask(reader);
        lane->waiting++;
        const bool there = wait_for_work(reader, start + (timeout_ns < left_ns ? timeout_ns : left_ns));
        lane->waiting--;
        status = end_wait(reader, there, stk_now() - start, out);
    }
    pthread_mutex_unlock(&home->lock);
    if (status == STK_ERR_KEEP) {
        (void)stk_fail(err, status, "rank %u holds %u batches, and keep is %u: release some, or raise keep", reader->rank, held, lane->keep);
        stk_error_stage(err, STK_STAGE_DELIVER);
    } else if (status < 0 && err) {
        *err = reader->error;
    }
    return status;
}

/* Go forward to a micro-batch of this rank; what lies between is as if rewound past.  With the lock held. */
static void go_to(stk_reader *reader, uint64_t index)
{
    stk_lane *const lane = reader->lane;
    const uint64_t ranks = lane->engine->ranks.rank_count, begins = index * ranks;
    while (lane->settling) pthread_cond_wait(&lane->engine->home->ready, &lane->engine->home->lock);
    reader->next_sequence = begins + (uint64_t)(reader - lane->reader);
    reader->pass_end = begins - begins % lane->pass_count + lane->pass_count;
    reader->waited_ns = 0;
    stk_lane_drop_passed(lane, reader);
    pthread_cond_broadcast(&lane->engine->home->changed);
}

static void unask(stk_reader *reader)
{
    reader->lane->waiting -= reader->polled;
    reader->polled = false;
}

stk_status stk_reader_poll(stk_reader *reader, uint64_t index, stk_batch **out, stk_ns waited_ns, stk_error *err)
{
    stk_lane *const lane = reader->lane;
    stk_engine_home *const home = lane->engine->home;
    *out = NULL;
    STK_TRY(check_reader(reader, err));
    const uint64_t sequence = index * lane->engine->ranks.rank_count + (uint64_t)(reader - lane->reader);
    if (sequence < reader->next_sequence) return stk_fail(err, STK_ERR_USAGE, "rank %u asks for a micro-batch that has gone", reader->rank);
    pthread_mutex_lock(&home->lock);
    if (sequence != reader->next_sequence || sequence >= reader->pass_end) go_to(reader, index);
    stk_status status = STK_ERR_KEEP;
    if (reader->held <= lane->keep) {
        ask(reader);
        lane->waiting += !reader->polled;
        reader->polled = true;
        status = end_wait(reader, wait_for_work(reader, 0), waited_ns, out);
    }
    if (status != STK_AGAIN) unask(reader);
    pthread_mutex_unlock(&home->lock);
    if (status == STK_ERR_KEEP) return stk_fail(err, status, "the readers of rank %u hold more than keep, %u", reader->rank, lane->keep);
    if (status < 0 && err) *err = reader->error;
    return status;
}

void stk_reader_unask(stk_reader *reader)
{
    stk_engine_home *const home = reader->lane->engine->home;
    pthread_mutex_lock(&home->lock);
    unask(reader);
    pthread_mutex_unlock(&home->lock);
}

stk_status stk_reader_rewind(stk_reader *reader, stk_error *err)
{
    stk_lane *const lane = reader->lane;
    stk_engine_home *const home = lane->engine->home;
    STK_TRY(check_reader(reader, err));
    pthread_mutex_lock(&home->lock);
    /* Another reader's thread may be reading what is about to go. */
    while (lane->settling) pthread_cond_wait(&home->ready, &home->lock);
    reader->next_sequence = reader->pass_end + (uint64_t)(reader - lane->reader);
    reader->pass_end += lane->pass_count;
    reader->state = lane->start;
    reader->waited_ns = 0;
    stk_lane_drop_passed(lane, reader);
    pthread_cond_broadcast(&home->changed);
    pthread_mutex_unlock(&home->lock);
    return STK_OK;
}

/* --- readers and their splits --- */

static stk_reader *find_reader(stk_engine *engine, uint32_t lane, uint32_t rank)
{
    uint32_t at = 0;
    while (at < engine->ranks.rank_count && stk_engine_rank(&engine->ranks, at) != rank) at++;
    const bool served = lane < engine->lane_count && at < engine->ranks.rank_count && engine->lane[lane].reader;
    return served ? &engine->lane[lane].reader[at] : NULL;
}

stk_reader *stk_engine_reader(stk_engine *engine, uint32_t rank)
{
    return find_reader(engine, STK_LANE_TRAIN, rank);
}

stk_reader *stk_engine_eval_reader(stk_engine *engine, uint32_t rank)
{
    return find_reader(engine, STK_LANE_EVAL, rank);
}

void stk_reader_state(const stk_reader *reader, stk_state *state)
{
    *state = reader->state;
}

uint64_t stk_reader_step_count(const stk_reader *reader)
{
    return stk_plan_step_count(reader->lane->run->plan);
}

uint64_t stk_reader_micros_before(const stk_reader *reader, uint64_t step)
{
    return stk_plan_micros_before(reader->lane->run->plan, step, reader->lane->engine->ranks.world);
}

uint64_t stk_reader_micro_count(const stk_reader *reader)
{
    return stk_reader_micros_before(reader, stk_reader_step_count(reader));
}

/* --- metrics --- */

static void add_stage(stk_stage_metrics *sum, const stk_stage_metrics *one)
{
    sum->count += one->count;
    sum->busy_ns += one->busy_ns;
    sum->bytes += one->bytes;
}

static void store_metrics(const stk_engine *engine, const stk_lane *lane, stk_metrics *metrics)
{
    static const stk_source_metrics none;
    const stk_rules *const rules = lane->run->rules;
    stk_source_metrics now;
    stk_store_metrics *const m = &metrics->store;
    stk_source_get_metrics(engine->source, &now);
    stk_store_figures_between(m, &none, &now);
    m->price = (double)m->requests / 1e3 * rules->price_request + (double)m->bytes / 1e9 * rules->price_transfer;
    if (metrics->samples) m->price_per_million_samples = m->price / (double)metrics->samples * 1e6;
}

static void lane_metrics(const stk_engine *engine, uint32_t number, stk_metrics *metrics)
{
    *metrics = (stk_metrics){0};
    if (engine->pid != getpid()) return; /* its lock may have been held when the process was forked */
    if (number >= engine->lane_count) return;
    const stk_lane *const lane = &engine->lane[number];
    pthread_mutex_lock(&engine->home->lock);
    *metrics = lane->metrics;
    metrics->budget_bytes = engine->memory.budget;
    metrics->held_bytes = engine->held_bytes;
    metrics->peak_bytes = engine->peak_bytes;
    for (uint32_t i = 0; i < engine->memory.workers; i++) {
        const stk_worker *const worker = &engine->worker[i];
        add_stage(&metrics->decode, &worker->done[number].decode);
        add_stage(&metrics->transform, &worker->done[number].transform);
        add_stage(&metrics->text, &worker->done[number].text);
        add_stage(&metrics->place, &worker->done[number].place);
    }
    if (lane->lazy) stk_lazy_facts_counts(lane->lazy, &metrics->records_read, &metrics->headers_read);
    for (uint64_t s = lane->head; s < lane->taken; s++) metrics->ready += stk_lane_made(lane, s) != NULL;
    pthread_mutex_unlock(&engine->home->lock);
    store_metrics(engine, lane, metrics);
}

void stk_engine_metrics(const stk_engine *engine, stk_metrics *metrics)
{
    lane_metrics(engine, STK_LANE_TRAIN, metrics);
}

void stk_engine_eval_metrics(const stk_engine *engine, stk_metrics *metrics)
{
    lane_metrics(engine, STK_LANE_EVAL, metrics);
}

const char *stk_reason_name(unsigned reason)
{
    return stk_reason_text((stk_reason)reason);
}
