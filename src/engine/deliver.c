/* deliver.c - what a reader gets, in plan order: batches, errors, dead letters, the error budget; and the
 * counters. */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <unistd.h>

#include "base/clock.h"
#include "engine/engine_core.h"
#include "engine/stall.h"

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

static void write_dead_letter(const stk_engine *engine, const stk_batch *batch, uint32_t at)
{
    const stk_batch_note *const note = &batch->note[at];
    const stk_recipe_sample *const sample = &batch->recipe.sample[at];
    const stk_run_set *const set = &engine->run->set[sample->set_index];
    const char *const file = set->facts.file[set->facts.record[sample->record_index].file_index];
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
    if (write(engine->dead_letter_fd, text, length + 1) < 0) errno = 0;
    free(text);
}

static bool has_masked(const stk_batch *batch)
{
    for (uint32_t i = 0; i < batch->recipe.sample_count; i++)
        if (batch->note[i].masked) return true;
    return false;
}

/* --- counting --- */

/* Counts a record that was drawn and cannot be used (index: stream); STK_ERR_SPENT when a data set has too many of them. */
static stk_status count_unusable(stk_engine *engine, const stk_batch *batch, uint32_t at, stk_error *err)
{
    const stk_batch_note *const note = &batch->note[at];
    const uint32_t set_index = batch->recipe.sample[at].set_index;
    stk_set_count *const set = &engine->set_count[set_index];
    engine->metrics.masked++;
    engine->metrics.masked_by_reason[note->reason_number]++;
    set->drawn++;
    if (note->reason_number == STK_REASON_OVERLONG) return STK_OK;
    set->unusable++;
    if (set->unusable <= UNUSABLE_FLOOR || (double)set->unusable <= engine->errors_unusable * (double)set->drawn) return STK_OK;
    const stk_status status =
        stk_fail(err, STK_ERR_SPENT, "%llu of %llu records of %s that were drawn are unusable, over errors.unusable: %g; the last one: %s (%s)",
                 (unsigned long long)set->unusable, (unsigned long long)set->drawn, engine->run->set[set_index].name,
                 engine->errors_unusable, note->reason, note->message);
    stk_error_sample(err, note->id);
    return status;
}

/* Counts a batch; STK_ERR_SPENT when a data set has lost too many samples. */
static stk_status count(stk_engine *engine, const stk_batch *batch, stk_error *err)
{
    stk_metrics *const m = &engine->metrics;
    stk_status status = STK_OK;
    m->micro_batches++;
    m->images += batch->recipe.media_count;
    for (uint32_t i = 0; i < batch->recipe.sample_count; i++) {
        const stk_recipe_sample *const sample = &batch->recipe.sample[i];
        const stk_batch_note *const note = &batch->note[i];
        stk_set_count *const set = &engine->set_count[sample->set_index];
        if (sample->filler) {
            m->filler++;
            if (note->masked && count_unusable(engine, batch, i, err) < 0) status = STK_ERR_SPENT;
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
            (double)set->masked <= engine->errors_masked * (double)set->delivered)
            continue;
        status = stk_fail(
            err, STK_ERR_SPENT,
            "%llu of %llu samples of %s were masked, over errors.masked: %g; the last one: %s (%s)",
            (unsigned long long)set->masked, (unsigned long long)set->delivered,
            engine->run->set[sample->set_index].name, engine->errors_masked, note->reason, note->message);
        stk_error_sample(err, note->id);
    }
    return status;
}

/* The state after a micro-batch: whole rows at the end of a step, else where inside it. */
static void state_after(const stk_engine *engine, uint64_t step, uint32_t micro, stk_state *state)
{
    const stk_plan *const plan = engine->run->plan;
    const bool ends_step = micro + 1 == stk_plan_micro_count(plan, step, engine->ranks.world);
    *state = engine->base;
    state->step = step + ends_step;
    state->micro = ends_step ? 0 : micro + 1;
    state->world = ends_step ? 0 : engine->ranks.world;
    state->micro_rows = ends_step ? 0 : stk_plan_micro_rows(plan, step, engine->ranks.world);
    stk_plan_position(plan, state->step, &state->epoch, &state->rows);
}

/* --- next --- */

static stk_work *made_work(const stk_engine *engine, uint64_t sequence)
{
    if (sequence < engine->head || sequence >= engine->taken) return NULL;
    stk_work *const work = engine->window[sequence % engine->window_count];
    return work && work->prepared && work->units_left == 0 ? work : NULL;
}

static void fail_engine(stk_engine *engine, stk_status status, const stk_error *error)
{
    engine->failed = status;
    engine->failure = *error;
    pthread_cond_broadcast(&engine->home->ready);
}

/* Account for micro-batches in plan order, as far as `through` and as they are made, whoever their readers
 * are: so what is counted, written and refused does not depend on which reader asks first.  With the lock
 * held. */
static void settle(stk_engine *engine, uint64_t through)
{
    while (engine->settled <= through && !engine->settling && engine->failed == STK_OK) {
        stk_work *const work = made_work(engine, engine->settled);
        if (!work) return;
        if (work->status < 0) {
            fail_engine(engine, work->status, &work->error);
            return;
        }
        stk_error error;
        const stk_status status = count(engine, &work->batch, &error);
        if (engine->dead_letter_fd >= 0 && has_masked(&work->batch)) {
            engine->settling = true;
            pthread_mutex_unlock(&engine->home->lock);
            for (uint32_t i = 0; i < work->batch.recipe.sample_count; i++)
                if (work->batch.note[i].masked) write_dead_letter(engine, &work->batch, i);
            pthread_mutex_lock(&engine->home->lock);
            engine->settling = false;
            pthread_cond_broadcast(&engine->home->ready);
        }
        if (status < 0)
            fail_engine(engine, status, &error);
        else
            engine->settled++;
    }
}

/* Take a settled micro-batch out of the window.  With the lock held. */
static void take_out(stk_engine *engine, stk_reader *reader, stk_work *work, stk_batch **out)
{
    stk_engine_home *const home = engine->home;
    stk_batch *const batch = &work->batch;
    state_after(engine, batch->recipe.step, batch->recipe.micro, &batch->after);
    reader->state = batch->after;
    reader->next_sequence += engine->ranks.rank_count;
    reader->held++;
    reader->waited_ns = 0;
    engine->window[work->sequence % engine->window_count] = NULL;
    while (engine->head < engine->taken && !engine->window[engine->head % engine->window_count])
        engine->head++;
    if (engine->metrics.first_batch_ns == 0) engine->metrics.first_batch_ns = stk_now() - engine->opened_ns;
    atomic_store(&batch->references, 1);
    atomic_fetch_add(&home->references, 1);
    *out = batch;
    pthread_cond_broadcast(&home->changed);
}

/* What a reader waits for, in words: for the error after `timeout`. */
static stk_status fail_waiting(const stk_engine *engine, const stk_reader *reader, stk_ns waited_ns,
                               stk_error *err)
{
    const double seconds = (double)waited_ns / (double)STK_S;
    for (uint32_t i = 0; i < engine->ranks.rank_count; i++) {
        const stk_reader *const other = &engine->reader[i];
        if (other == reader || other->next_sequence >= reader->next_sequence) continue;
        return stk_fail(
            err, STK_ERR_TIMEOUT,
            "rank %u waited %.0f s for memory that batches of rank %u hold, which is %llu micro-batches "
            "behind: read all "
            "ranks, or raise prefetch",
            reader->rank, seconds, other->rank,
            (unsigned long long)((reader->next_sequence - other->next_sequence) / engine->ranks.rank_count));
    }
    if (engine->tickets.count)
        return stk_fail(err, STK_ERR_TIMEOUT,
                        "no batch in %.0f s: waiting for the bytes of media (%zu in flight): look at the "
                        "disk, or raise timeout",
                        seconds, (size_t)engine->tickets.count);
    return stk_fail(err, STK_ERR_TIMEOUT,
                    "no batch in %.0f s: the workers did not finish one: raise workers or timeout", seconds);
}

static struct timespec monotonic(stk_ns at)
{
    return (struct timespec){.tv_sec = (time_t)(at / STK_S), .tv_nsec = (long)(at % STK_S)};
}

/* Until the reader's next micro-batch may be taken out (true), or all has failed, or the deadline has come.
 * With the lock held. */
static bool wait_for_work(stk_engine *engine, stk_reader *reader, stk_ns deadline)
{
    const struct timespec until = monotonic(deadline);
    if (engine->inline_workers && reader->next_sequence > engine->wanted)
        engine->wanted = reader->next_sequence;
    for (bool in_time = true;;) {
        settle(engine, reader->next_sequence);
        if (reader->next_sequence < engine->settled) return true;
        if (engine->failed < 0 || engine->stop || !in_time) return false;
        if (engine->inline_workers &&
            stk_engine_advance(engine, &engine->worker[reader->rank - engine->ranks.first_rank]))
            continue;
        in_time = pthread_cond_timedwait(&engine->home->ready, &engine->home->lock, &until) != ETIMEDOUT;
    }
}

/* Count the wait, and say how it ended.  With the lock held. */
static stk_status end_wait(stk_engine *engine, stk_reader *reader, bool there, stk_ns waited_ns,
                           stk_batch **out)
{
    engine->metrics.wait_ns += waited_ns;
    reader->waited_ns += waited_ns;
    if (there) {
        take_out(engine, reader, made_work(engine, reader->next_sequence), out);
        return STK_OK;
    }
    if (engine->failed < 0) {
        reader->error = engine->failure;
        return reader->failed = engine->failed;
    }
    if (reader->waited_ns < engine->timeout_ns) return STK_AGAIN;
    return reader->failed = fail_waiting(engine, reader, reader->waited_ns, &reader->error);
}

stk_status stk_reader_next(stk_reader *reader, stk_batch **out, stk_ns timeout_ns, stk_error *err)
{
    stk_engine *const engine = reader->engine;
    *out = NULL;
    if (engine->pid != getpid())
        return stk_fail(err, STK_ERR_FORKED, "the loader was opened by process %d: open one after the fork",
                        (int)engine->pid);
    if (reader->failed < 0) {
        if (err) *err = reader->error;
        return reader->failed;
    }
    if (reader->next_sequence >= engine->sequence_end) return STK_END;

    stk_stall("deliver");
    const stk_ns start = stk_now(), left_ns = engine->timeout_ns - reader->waited_ns;
    pthread_mutex_lock(&engine->home->lock);
    const uint32_t held = reader->held;
    stk_status status = STK_ERR_KEEP;
    if (held <= engine->keep) {
        const bool there =
            wait_for_work(engine, reader, start + (timeout_ns < left_ns ? timeout_ns : left_ns));
        status = end_wait(engine, reader, there, stk_now() - start, out);
    }
    pthread_mutex_unlock(&engine->home->lock);
    if (status == STK_ERR_KEEP)
        return stk_fail(err, status, "rank %u holds %u batches, and keep is %u: release some, or raise keep",
                        reader->rank, held, engine->keep);
    if (status < 0 && err) *err = reader->error;
    return status;
}

stk_reader *stk_engine_reader(stk_engine *engine, uint32_t rank)
{
    const uint32_t at = rank - engine->ranks.first_rank;
    return rank >= engine->ranks.first_rank && at < engine->ranks.rank_count ? &engine->reader[at] : NULL;
}

void stk_reader_state(const stk_reader *reader, stk_state *state)
{
    *state = reader->state;
}

/* --- metrics --- */

static void add_stage(stk_stage_metrics *sum, const stk_stage_metrics *one)
{
    sum->count += one->count;
    sum->busy_ns += one->busy_ns;
    sum->bytes += one->bytes;
}

void stk_engine_metrics(const stk_engine *engine, stk_metrics *metrics)
{
    *metrics = (stk_metrics){0};
    if (engine->pid != getpid()) return; /* its lock may have been held when the process was forked */
    pthread_mutex_lock(&engine->home->lock);
    *metrics = engine->metrics;
    for (uint32_t i = 0; i < engine->memory.workers; i++) {
        add_stage(&metrics->decode, &engine->worker[i].decode);
        add_stage(&metrics->transform, &engine->worker[i].transform);
        add_stage(&metrics->text, &engine->worker[i].text);
        add_stage(&metrics->place, &engine->worker[i].place);
    }
    if (engine->lazy) stk_lazy_facts_counts(engine->lazy, &metrics->records_read, &metrics->headers_read);
    for (uint64_t s = engine->head; s < engine->taken; s++) {
        metrics->ready += made_work(engine, s) != NULL;
    }
    pthread_mutex_unlock(&engine->home->lock);
}

uint64_t stk_engine_step_count(const stk_engine *engine)
{
    return stk_plan_step_count(engine->run->plan);
}

uint64_t stk_engine_micros_before(const stk_engine *engine, uint64_t step)
{
    return stk_plan_micros_before(engine->run->plan, step, engine->ranks.world);
}

uint64_t stk_engine_micro_count(const stk_engine *engine)
{
    return stk_plan_micros_before(engine->run->plan, stk_plan_step_count(engine->run->plan), engine->ranks.world);
}

const char *stk_reason_name(unsigned reason)
{
    return stk_reason_text((stk_reason)reason);
}
