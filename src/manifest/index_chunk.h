/* index_chunk.h - the facts of one chunk of records: what a thread of a build does.
 *
 * Stateless but for the worker's scratch, so a chunk has the same facts whoever makes it, and when. */
#ifndef STK_MANIFEST_INDEX_CHUNK_H
#define STK_MANIFEST_INDEX_CHUNK_H

#include <stdatomic.h>

#include "manifest/index.h"
#include "manifest/index_journal.h"
#include "manifest/split.h"

/* Facts of media that were read a moment ago, by address: one picture often serves several records. */
typedef struct stk_media_cache stk_media_cache;
stk_media_cache *stk_media_cache_create(void) STK_MUST_USE; /* NULL: no memory */
void stk_media_cache_destroy(stk_media_cache *cache);

/* What all chunks of a build share. */
typedef struct stk_chunk_shared {
    const stk_index_spec *spec;
    stk_index_part part;
    bool decode;                    /* each medium, once */
    const uint8_t *manifest;        /* mapped */
    const stk_record_facts *record; /* text part: the records of the media part */
    stk_media_cache *cache;         /* media part */
    atomic_uint_fast64_t records_parsed, media_headers_read, texts_encoded;
    atomic_bool stop;
} stk_chunk_shared;

typedef struct stk_chunk_task {
    uint64_t chunk;
    uint32_t count;                        /* of records, <= STK_CHUNK_RECORDS */
    stk_record_at at[STK_CHUNK_RECORDS];   /* media part */
    stk_buffer payload;                    /* the result: stk_chunk_counts and what follows them */
} stk_chunk_task;

typedef struct stk_chunk_worker stk_chunk_worker;
stk_status stk_chunk_worker_create(stk_chunk_worker **out, stk_chunk_shared *shared, stk_error *err) STK_MUST_USE;
void stk_chunk_worker_destroy(stk_chunk_worker *worker);

/* Fill task->payload.  STK_ERR_INTERRUPTED when shared->stop was set. */
stk_status stk_chunk_make(stk_chunk_worker *worker, stk_chunk_task *task, stk_error *err) STK_MUST_USE;

/* What media facts keep of an address. */
uint64_t stk_index_address_hash(stk_str address);

/* Put "image 2: PATH: what is wrong" into a note. */
void stk_index_note_medium(stk_index_note *note, const stk_survey_media *medium, size_t number);

#endif
