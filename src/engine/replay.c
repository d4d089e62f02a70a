/* replay.c - one micro-batch, anywhere, without a run: the same code as in a run, on the calling thread. */
#include "engine/engine_core.h"

static const stk_ns LOOK_NS = 100 * STK_MS; /* how soon it notices that it should stop */

/* In pieces, so that whoever waits for a store may be interrupted. */
static stk_status take(stk_batch **out, stk_engine *engine, uint32_t rank, const stk_index_progress *progress, stk_error *err)
{
    const stk_run *const run = engine->lane[STK_LANE_TRAIN].run;
    stk_reader *const reader = stk_engine_reader(engine, rank);
    stk_watch watch;
    stk_run_watch(&watch, progress);
    stk_remote_watch(run->rules->remote, progress); /* with index: stream facts are asked for in between */
    stk_status status;
    do status = stk_reader_next(reader, out, LOOK_NS, err);
    while (status == STK_AGAIN && stk_watch_goes_on(&watch, run->set[0].name, "fetching", 0, 1));
    return status == STK_AGAIN ? stk_fail(err, STK_ERR_INTERRUPTED, "stopped while media were waited for") : status;
}

stk_status stk_replay(stk_batch **out, const stk_options *options, uint64_t step, uint32_t rank,
                      uint32_t world, uint32_t micro, const stk_index_progress *progress, stk_error *err)
{
    *out = NULL;
    /* What a run does beside making batches is none of a replay's: whatever is masked is shown, and nothing
     * is written. */
    stk_options alone = *options;
    alone.workers = -1;
    alone.dead_letter = NULL;
    alone.errors_masked = 1;
    alone.memory_bytes = 0;
    alone.keep = alone.prefetch = 1;
    stk_engine *engine = NULL;
    STK_TRY(stk_engine_open_one(&engine, &alone, step, rank, world, micro, progress, err));
    const stk_status status = take(out, engine, rank, progress, err);
    stk_engine_close(&engine);
    return status;
}
