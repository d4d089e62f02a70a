/* loader.h - an engine that makes micro-batches ahead, and the readers that take them.
 *
 * An engine serves a set of readers (one a rank here) over one byte budget and one arena.  A loader is an engine with
 * one reader. */
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
} stk_engine_ranks;

/* Open an engine: builds or opens the index, checks the error budget, reads the checkpoint folder, plans, reserves
 * memory.  Making starts at once, step 0 first.
 *
 * state      where to go on; NULL: the beginning.  A state of another fingerprint is STK_ERR_STATE.
 * progress   of the index, may be NULL.
 * Failure: *out is NULL; nothing is left behind.  Options are copied. */
STK_API STK_MUST_USE stk_status stk_engine_open(stk_engine **out, const stk_options *options, stk_engine_ranks ranks,
                                                const stk_state *state, const stk_index_progress *progress,
                                                stk_error *err);

/* Lend the reader of a rank of this engine; it dies with the engine.  NULL for a rank that it does not serve. */
STK_API stk_reader *stk_engine_reader(stk_engine *engine, uint32_t rank);

/* Wait up to timeout_ns (STK_FOREVER: without limit) for this reader's next micro-batch, in plan order.
 *
 * STK_OK     *out is a batch that the caller owns; give it back with stk_batch_release().
 * STK_AGAIN  none was ready in time; *out is NULL; call again.
 * STK_END    the plan is exhausted; every later call says so too.
 * < 0        *out is NULL; err (may be NULL) names sample, file, line and stage; later calls say the same.
 *
 * One thread at a time per reader; several readers may be read from several threads. */
STK_API STK_MUST_USE stk_status stk_reader_next(stk_reader *reader, stk_batch **out, stk_ns timeout_ns, stk_error *err);

/* The state after the last micro-batch which the reader has delivered. */
STK_API void stk_reader_state(const stk_reader *reader, stk_state *state);

/* What the engine has done and holds.  Any thread. */
STK_API void stk_engine_metrics(const stk_engine *engine, stk_metrics *metrics);

/* Number of steps of the run, and of micro-batches of one rank in it. */
STK_API uint64_t stk_engine_step_count(const stk_engine *engine);
STK_API uint64_t stk_engine_micro_count(const stk_engine *engine);
/* Micro-batches of one rank before a step <= steps: where the batch follows a schedule, steps have more and fewer. */
STK_API uint64_t stk_engine_micros_before(const stk_engine *engine, uint64_t step);

/* Stop, join all threads, free; delivered batches live on.  Sets the pointer to NULL. */
STK_API void stk_engine_close(stk_engine **engine);

/* --- the loader: an engine for one rank --- */

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
 * thread, closes.  The batch is the caller's. */
STK_API STK_MUST_USE stk_status stk_replay(stk_batch **out, const stk_options *options, uint64_t step, uint32_t rank,
                                           uint32_t world, uint32_t micro, stk_error *err);

#ifdef __cplusplus
}
#endif
#endif
