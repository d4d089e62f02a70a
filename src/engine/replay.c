/* replay.c - one micro-batch, anywhere, without a run: the same code as in a run, on the calling thread. */
#include "engine/engine_core.h"

stk_status stk_replay(stk_batch **out, const stk_options *options, uint64_t step, uint32_t rank,
                      uint32_t world, uint32_t micro, stk_error *err)
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
    STK_TRY(stk_engine_open_one(&engine, &alone, step, rank, world, micro, err));
    const stk_status status = stk_reader_next(stk_engine_reader(engine, rank), out, STK_FOREVER, err);
    stk_engine_close(&engine);
    return status;
}
