/* loader.c - an engine with one reader, so without `eval` beside it. */
#include <stoker/loader.h>

#include "base/memory.h"

struct stk_loader {
    stk_engine *engine;
    stk_reader *reader;
};

stk_status stk_loader_open_at(stk_loader **out, const stk_options *options, uint32_t rank, uint32_t world,
                              const stk_state *state, stk_error *err)
{
    *out = NULL;
    stk_loader *const loader = stk_alloc(STK_TAG_ENGINE, sizeof *loader);
    if (!loader) return stk_fail(err, STK_ERR_NOMEM, "out of memory: a loader");
    const stk_engine_ranks ranks = {.first_rank = rank, .rank_count = 1, .world = world};
    stk_options alone = *options;
    alone.eval = NULL;
    const stk_status status = stk_engine_open(&loader->engine, &alone, ranks, state, NULL, err);
    if (status < 0) {
        stk_free(loader);
        return status;
    }
    loader->reader = stk_engine_reader(loader->engine, rank);
    *out = loader;
    return STK_OK;
}

stk_status stk_loader_open(stk_loader **out, const stk_options *options, uint32_t rank, uint32_t world,
                           stk_error *err)
{
    return stk_loader_open_at(out, options, rank, world, NULL, err);
}

stk_status stk_loader_next(stk_loader *loader, stk_batch **out, stk_ns timeout_ns, stk_error *err)
{
    return stk_reader_next(loader->reader, out, timeout_ns, err);
}

void stk_loader_state(const stk_loader *loader, stk_state *state)
{
    stk_reader_state(loader->reader, state);
}

void stk_loader_metrics(const stk_loader *loader, stk_metrics *metrics)
{
    stk_engine_metrics(loader->engine, metrics);
}

uint64_t stk_loader_count(const stk_loader *loader)
{
    return stk_reader_micro_count(loader->reader);
}

void stk_loader_close(stk_loader **loader)
{
    if (!*loader) return;
    stk_engine_close(&(*loader)->engine);
    stk_free(*loader);
    *loader = NULL;
}
