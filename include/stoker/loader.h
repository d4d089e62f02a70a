/* loader.h - an engine that makes micro-batches ahead, and the readers that take them.
 *
 * An engine serves a set of readers over one byte budget and one arena: one a rank, and where the configuration has `eval`
 * one more a rank for that split.  A loader is an engine with one reader. */
#ifndef STOKER_LOADER_H
#define STOKER_LOADER_H

#include <stoker/batch.h>
#include <stoker/index.h>
#include <stoker/metrics.h>
#include <stoker/options.h>
#include <stoker/state.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct stk_engine stk_engine;
typedef struct stk_reader stk_reader;
typedef struct stk_loader stk_loader;

/* Which part of the run an engine serves. */
typedef struct stk_engine_ranks {
    uint32_t first_rank, rank_count, world; /* first_rank + rank_count <= world */
    const uint32_t *rank; /* rank_count of them, rising, in place of first_rank and those behind it; NULL: these.  Copied */
} stk_engine_ranks;

/* Open an engine: builds or opens the index, checks the error budget, reads the checkpoint folder, plans, reserves
 * memory.  Making starts at once, step 0 first.  Of the split `eval` all is opened too and its part of the memory
 * reserved; its micro-batches are made from when they are first asked for, and then before those of training.
 *
 * options    of the run; `memory`, `workers` and those of stores are these also for `eval`, all else is each split's own.
 * state      where training goes on; NULL: the beginning.  A state of another fingerprint is STK_ERR_STATE.
 * progress   of the index, may be NULL.
 * Failure: *out is NULL; nothing is left behind.  Options are copied. */
STK_API STK_MUST_USE stk_status stk_engine_open(stk_engine **out, const stk_options *options, stk_engine_ranks ranks,
                                                const stk_state *state, const stk_index_progress *progress,
                                                stk_error *err);

/* Lend the reader of a rank of this engine; it dies with the engine.  NULL for a rank that it does not serve. */
STK_API stk_reader *stk_engine_reader(stk_engine *engine, uint32_t rank);

/* The same for the split `eval`; NULL also where options have none (stk_options_split makes them a run of their own). */
STK_API stk_reader *stk_engine_eval_reader(stk_engine *engine, uint32_t rank);

/* Wait up to timeout_ns (STK_FOREVER: without limit) for this reader's next micro-batch, in plan order.
 *
 * STK_OK     *out is a batch that the caller owns; give it back with stk_batch_release().
 * STK_AGAIN  none was ready in time; *out is NULL; call again.
 * STK_END    the plan is exhausted; every later call says so too, until the reader is rewound.
 * < 0        *out is NULL; err (may be NULL) names sample, file, line and stage; later calls say the same.
 *
 * One thread at a time per reader; several readers may be read from several threads. */
STK_API STK_MUST_USE stk_status stk_reader_next(stk_reader *reader, stk_batch **out, stk_ns timeout_ns, stk_error *err);

/* Go back to where the engine began this split, from the end or from anywhere: each evaluation is a pass of its own, with
 * the same batches and the whole error budget again.  What was made ahead for this reader and not delivered goes; batches
 * that it has delivered stay.  Ranks share a window: pass n of one goes with pass n of the others, so all of them are rewound
 * equally often, each by whoever reads it.  A reader that has failed says so again. */
STK_API STK_MUST_USE stk_status stk_reader_rewind(stk_reader *reader, stk_error *err);

/* The state after the last micro-batch which the reader has delivered: that of its split. */
STK_API void stk_reader_state(const stk_reader *reader, stk_state *state);

/* Number of steps of the reader's split, and of micro-batches of one rank in it. */
STK_API uint64_t stk_reader_step_count(const stk_reader *reader);
STK_API uint64_t stk_reader_micro_count(const stk_reader *reader);
/* Micro-batches of one rank before a step <= steps: where the batch follows a schedule, steps have more and fewer. */
STK_API uint64_t stk_reader_micros_before(const stk_reader *reader, uint64_t step);

/* What the engine has done and holds: budget, held and peak are of all, the rest is that of training.  Any thread. */
STK_API void stk_engine_metrics(const stk_engine *engine, stk_metrics *metrics);
/* The same of `eval`, summed over its passes; zeros where there is none. */
STK_API void stk_engine_eval_metrics(const stk_engine *engine, stk_metrics *metrics);

/* Stop, join all threads, free; delivered batches live on.  Sets the pointer to NULL. */
STK_API void stk_engine_close(stk_engine **engine);

/* --- on request: an engine without readers, for ranks on other machines (docs/ray.md) --- */

/* Which micro-batch. */
typedef struct stk_place {
    uint64_t step;
    uint32_t rank, micro;
} stk_place;

/* Open an engine that makes what it is asked for, of any rank, in any order, and nothing before.  `keep` + `prefetch` are the micro-batches
 * that may be in memory at once, those that are out among them; `workers: inline` is one worker.  A split is a run of its own
 * (stk_options_split).  Each micro-batch that is made, and each masked sample, is counted by the engine that makes it. */
STK_API STK_MUST_USE stk_status stk_engine_open_on_request(stk_engine **out, const stk_options *options, uint32_t world,
                                                           const stk_index_progress *progress, stk_error *err);

/* Make a micro-batch, and wait for it up to timeout_ns.  Several threads may ask at once, for the same one too: it is made once, and each
 * gets a reference.
 *
 * STK_OK     *out is a batch that the caller owns.
 * STK_AGAIN  it was not made in time; *out is NULL; ask again.
 * < 0        *out is NULL; STK_ERR_USAGE: the run has no such place.  A failure is of this micro-batch: others are made all the same. */
STK_API STK_MUST_USE stk_status stk_engine_make(stk_engine *engine, const stk_place *place, stk_batch **out, stk_ns timeout_ns, stk_error *err);

/* Say what will be asked for: its media are fetched as far as half of fetch_ahead goes, and nothing is made.  Returns at once.  What there is no
 * room for waits, unfetched; what is too much even for that, and what is no place of the run, is forgotten. */
STK_API void stk_engine_expect(stk_engine *engine, const stk_place *place, size_t count);

/* Which micro-batch of a rank comes behind a state (NULL: the first), counted over the run, and the state in this run's terms.  Failure:
 * as opening there. */
STK_API STK_MUST_USE stk_status stk_engine_place(const stk_engine *engine, const stk_state *state, uint64_t *number, stk_state *here,
                                                 stk_error *err);

/* --- the loader: an engine for one rank, of one split --- */

STK_API STK_MUST_USE stk_status stk_loader_open(stk_loader **out, const stk_options *options, uint32_t rank,
                                                uint32_t world, stk_error *err);
/* As stk_loader_open, going on at a state. */
STK_API STK_MUST_USE stk_status stk_loader_open_at(stk_loader **out, const stk_options *options, uint32_t rank,
                                                   uint32_t world, const stk_state *state, stk_error *err);
/* As stk_reader_next. */
STK_API STK_MUST_USE stk_status stk_loader_next(stk_loader *loader, stk_batch **out, stk_ns timeout_ns,
                                                stk_error *err);
STK_API void stk_loader_state(const stk_loader *loader, stk_state *state);
STK_API void stk_loader_metrics(const stk_loader *loader, stk_metrics *metrics);
/* Exact number of micro-batches of the whole run. */
STK_API uint64_t stk_loader_count(const stk_loader *loader);
STK_API void stk_loader_close(stk_loader **loader);

/* Make one micro-batch, anywhere, without a run: `stoker replay`.  Opens what it needs, makes it on the calling
 * thread, closes.  The batch is the caller's.  progress may be NULL; it is asked some times a second whether to go on, also
 * while media are waited for (STK_ERR_INTERRUPTED). */
STK_API STK_MUST_USE stk_status stk_replay(stk_batch **out, const stk_options *options, uint64_t step, uint32_t rank,
                                           uint32_t world, uint32_t micro, const stk_index_progress *progress, stk_error *err);

/* What makes pixel_values of pixel_bytes, for whoever trains: column ((c * temporal + t) * P + y) * P + x of a patch is
 * value[c][byte], the byte being that of column (c * P + y) * P + x, in float32; of videos the columns are the same. */
typedef struct stk_pixel_values {
    uint32_t temporal;    /* how often a picture's only frame stands there */
    float value[3][256];  /* of a byte, by channel: the checkpoint's mean and deviation, as the profile has them */
} stk_pixel_values;

/* Read preprocessor_config.json of the options' model; nothing else is opened. */
STK_API STK_MUST_USE stk_status stk_pixel_values_read(stk_pixel_values *values, const stk_options *options, stk_error *err);

#ifdef __cplusplus
}
#endif
#endif
