/* index_build.h - building one part of one manifest: chunks over threads into the journal, the journal into a sidecar. */
#ifndef STK_MANIFEST_INDEX_BUILD_H
#define STK_MANIFEST_INDEX_BUILD_H

#include "manifest/index_chunk.h"

typedef struct stk_build {
    const stk_index_spec *spec;
    stk_index_part part;
    const char *sidecar;             /* path */
    stk_journal *journal;            /* locked */
    stk_index_key key;
    stk_index_stamp stamp;
    bool decode;
    stk_str manifest;                /* mapped */
    const char *manifest_path;
    const stk_index_view *media_part; /* text part: of the same manifest */
    stk_index_work *work;
} stk_build;

/* What is done already is not done again.  *durable: what is in the journal is worth keeping after a failure. */
stk_status stk_build_part(const stk_build *build, bool *durable, stk_error *err) STK_MUST_USE;

/* Say where things stand; STK_ERR_INTERRUPTED when the caller wants to stop. */
stk_status stk_build_report(const stk_index_spec *spec, const char *phase, uint64_t done, uint64_t total, stk_error *err);

#endif
