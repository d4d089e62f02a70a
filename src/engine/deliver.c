/* deliver.c - what a reader gets, in plan order: batches, errors, dead letters, the error budget; and the counters. */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <unistd.h>

#include "base/clock.h"
#include "engine/engine_core.h"
#include "engine/stall.h"

enum { MASKED_FLOOR = 10 }; /* so that one bad sample of a small set stops nothing */

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

static void write_dead_letters(const stk_engine *engine, const stk_batch *batch)
{
    if (engine->dead_letter_fd < 0) return;
    for (uint32_t i = 0; i < batch->recipe.sample_count; i++) {
        const stk_batch_note *const note = &batch->note[i];
        if (!note->masked) continue;
        const stk_recipe_sample *const sample = &batch->recipe.sample[i];
        const stk_set_facts *const facts = &engine->run->set[sample->set_index].facts;
        json_t *const letter =
            json_pack("{s:s, s:s, s:s, s:I, s:I, s:s, s:s, s:s}", "id", note->id, "set", engine->run->set[sample->set_index].name,
                      "file", facts->file[facts->record[sample->record_index].file_index], "line", (json_int_t)note->line, "step",
                      (json_int_t)batch->recipe.step, "stage", stk_stage_name(note->stage), "reason", note->reason, "message",
                      note->message);
        char *const text = letter ? json_dumps(letter, JSON_COMPACT | JSON_ENSURE_ASCII) : NULL;
        json_decref(letter);
        if (!text) continue;
        const size_t length = strlen(text);
        text[length] = '\n'; /* in place of the NUL: the line goes out in one write */
        /* A full disk must not stop a training run: the sample is also named by the batch and the counters. */
        if (write(engine->dead_letter_fd, text, length + 1) < 0) errno = 0;
        free(text);
    }
}

/* --- counting --- */

/* Counts a batch; STK_ERR_SPENT when a data set has lost too many samples. */
static stk_status count(stk_engine *engine, const stk_batch *batch, stk_error *err)
{
    stk_metrics *const m = &engine->metrics;
    stk_status status = STK_OK;
    m->micro_batches++;
    m->images += batch->recipe.media_count;
    for (uint32_t i = 0; i < batch->recipe.sample_count; i++) {
        const stk_recipe_sample *const sample = &batch->recipe.sample[i];
        if (sample->filler) {
            m->filler++;
            continue;
        }
        const stk_batch_note *const note = &batch->note[i];
        stk_set_count *const set = &engine->set_count[sample->set_index];
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
        if (set->masked <= MASKED_FLOOR || (double)set->masked <= engine->errors_masked * (double)set->delivered) continue;
        status = stk_fail(err, STK_ERR_SPENT, "%llu of %llu samples of %s were masked, over errors.masked: %g; the last one: %s (%s)",
                          (unsigned long long)set->masked, (unsigned long long)set->delivered, engine->run->set[sample->set_index].name,
                          engine->errors_masked, note->reason, note->message);
        stk_error_sample(err, note->id);
    }
    return status;
}

/* The state after a micro-batch: whole rows at the end of a step, else where inside it. */
static void state_after(const stk_engine *engine, uint64_t step, uint32_t micro, stk_state *state)
{
    const bool ends_step = micro + 1 == engine->micro_count;
    memcpy(state->fingerprint, engine->run->fingerprint, sizeof state->fingerprint);
    state->plan_version = STK_PLAN_VERSION;
    state->step = step + ends_step;
    state->micro = ends_step ? 0 : micro + 1;
    state->world = ends_step ? 0 : engine->ranks.world;
    stk_plan_position(engine->run->plan, state->step, &state->epoch, &state->rows);
}

/* --- next --- */

/* Take a made micro-batch out of the window; with the lock held. */
static stk_status take_out(stk_engine *engine, stk_reader *reader, stk_work *work, stk_batch **out)
{
    stk_engine_home *const home = engine->home;
    if (work->status < 0) { /* it stays where it is: the reader never comes past it */
        reader->failed = work->status;
        reader->error = work->error;
        return work->status;
    }
    stk_batch *const batch = &work->batch;
    const stk_status status = count(engine, batch, &reader->error);
    if (status < 0) {
        reader->failed = status;
        return status;
    }
    uint64_t step;
    uint32_t rank, micro;
    stk_engine_place(engine, work->sequence, &step, &rank, &micro);
    state_after(engine, step, micro, &batch->after);
    reader->state = batch->after;
    reader->next_sequence += engine->ranks.rank_count;
    reader->held++;
    engine->window[work->sequence % engine->window_count] = NULL;
    while (engine->head < engine->taken && !engine->window[engine->head % engine->window_count]) engine->head++;
    if (engine->metrics.first_batch_ns == 0) engine->metrics.first_batch_ns = stk_now() - engine->opened_ns;
    atomic_store(&batch->references, 1);
    atomic_fetch_add(&home->references, 1);
    *out = batch;
    pthread_cond_broadcast(&home->changed);
    return STK_OK;
}

static stk_work *made_work(const stk_engine *engine, const stk_reader *reader)
{
    if (reader->next_sequence < engine->head || reader->next_sequence >= engine->taken) return NULL;
    stk_work *const work = engine->window[reader->next_sequence % engine->window_count];
    return work && work->prepared && work->units_left == 0 ? work : NULL;
}

/* What a reader waits for, in words: for the error after `timeout`. */
static stk_status fail_waiting(const stk_engine *engine, const stk_reader *reader, stk_ns waited_ns, stk_error *err)
{
    const double seconds = (double)waited_ns / (double)STK_S;
    for (uint32_t i = 0; i < engine->ranks.rank_count; i++) {
        const stk_reader *const other = &engine->reader[i];
        if (other == reader || other->next_sequence >= reader->next_sequence) continue;
        return stk_fail(err, STK_ERR_TIMEOUT,
                        "rank %u waited %.0f s for memory that batches of rank %u hold, which is %llu micro-batches behind: read all "
                        "ranks, or raise prefetch",
                        reader->rank, seconds, other->rank,
                        (unsigned long long)((reader->next_sequence - other->next_sequence) / engine->ranks.rank_count));
    }
    if (engine->tickets.count)
        return stk_fail(err, STK_ERR_TIMEOUT, "no batch in %.0f s: waiting for the bytes of media (%zu in flight): look at the disk, or raise timeout",
                        seconds, (size_t)engine->tickets.count);
    return stk_fail(err, STK_ERR_TIMEOUT, "no batch in %.0f s: the workers did not finish one: raise workers or timeout", seconds);
}

static struct timespec monotonic(stk_ns at)
{
    return (struct timespec){.tv_sec = (time_t)(at / STK_S), .tv_nsec = (long)(at % STK_S)};
}

/* With the lock held: until a micro-batch of the reader is made (returned), or the deadline (NULL). */
static stk_work *wait_for_work(stk_engine *engine, stk_reader *reader, stk_ns deadline)
{
    for (;;) {
        stk_work *const work = made_work(engine, reader);
        if (work || engine->stop) return work;
        if (engine->inline_workers && stk_engine_advance(engine, &engine->worker[reader->rank - engine->ranks.first_rank])) continue;
        const struct timespec until = monotonic(deadline);
        if (pthread_cond_timedwait(&engine->home->ready, &engine->home->lock, &until) == ETIMEDOUT) return made_work(engine, reader);
    }
}

stk_status stk_reader_next(stk_reader *reader, stk_batch **out, stk_ns timeout_ns, stk_error *err)
{
    stk_engine *const engine = reader->engine;
    *out = NULL;
    if (engine->pid != getpid())
        return stk_fail(err, STK_ERR_FORKED, "the loader was opened by process %d: open one after the fork", (int)engine->pid);
    if (reader->failed < 0) {
        if (err) *err = reader->error;
        return reader->failed;
    }
    if (reader->next_sequence >= engine->sequence_end) return STK_END;

    stk_stall("deliver");
    const stk_ns start = stk_now();
    const stk_ns patience = timeout_ns < engine->timeout_ns - reader->waited_ns ? timeout_ns : engine->timeout_ns - reader->waited_ns;
    stk_status status;
    pthread_mutex_lock(&engine->home->lock);
    if (reader->held > engine->keep) {
        status = stk_fail(err, STK_ERR_KEEP, "rank %u holds %u batches and said that it keeps %u: release some, or raise keep",
                          reader->rank, reader->held, engine->keep);
        pthread_mutex_unlock(&engine->home->lock);
        return status;
    }
    stk_work *const work = wait_for_work(engine, reader, start + patience);
    const stk_ns waited = stk_now() - start;
    engine->metrics.wait_ns += waited;
    reader->waited_ns += waited;
    if (work) {
        reader->waited_ns = 0;
        status = take_out(engine, reader, work, out);
    } else if (reader->waited_ns >= engine->timeout_ns) {
        status = reader->failed = fail_waiting(engine, reader, reader->waited_ns, &reader->error);
    } else {
        status = STK_AGAIN;
    }
    pthread_mutex_unlock(&engine->home->lock);
    if (status < 0 && err) *err = reader->error;
    if (*out) write_dead_letters(engine, *out);
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
    pthread_mutex_lock(&engine->home->lock);
    *metrics = engine->metrics;
    for (uint32_t i = 0; i < engine->memory.workers; i++) {
        add_stage(&metrics->decode, &engine->worker[i].decode);
        add_stage(&metrics->transform, &engine->worker[i].transform);
        add_stage(&metrics->text, &engine->worker[i].text);
        add_stage(&metrics->place, &engine->worker[i].place);
    }
    for (uint64_t s = engine->head; s < engine->taken; s++) {
        const stk_work *const work = engine->window[s % engine->window_count];
        metrics->ready += work && work->prepared && work->units_left == 0;
    }
    pthread_mutex_unlock(&engine->home->lock);
}

uint64_t stk_engine_step_count(const stk_engine *engine)
{
    return stk_plan_step_count(engine->run->plan);
}

uint64_t stk_engine_micro_count(const stk_engine *engine)
{
    return stk_plan_step_count(engine->run->plan) * engine->micro_count;
}

const char *stk_reason_name(unsigned reason)
{
    return stk_reason_text((stk_reason)reason);
}
