/* parcel.h - batches that travel to another process or machine, whoever carries them (docs/ray.md).
 *
 * What travels is words about a batch, some hundred bytes a sample, and its memory, as it lies; and once a run its label, which tells what
 * words and memory mean.  Both ends are of one release, and of one byte order. */
#ifndef STOKER_PARCEL_H
#define STOKER_PARCEL_H

#include <stoker/loader.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Bytes that the caller owns. */
typedef struct stk_blob {
    void *data;
    size_t size_bytes;
} stk_blob;

/* Free what it has; an empty one is fine. */
STK_API void stk_blob_free(stk_blob *blob);

/* --- the end that packs --- */

/* The label of an engine on request. */
STK_API STK_MUST_USE stk_status stk_parcel_label(stk_blob *label, const stk_engine *engine, stk_error *err);
/* Words about a batch. */
STK_API STK_MUST_USE stk_status stk_parcel_words(stk_blob *words, const stk_batch *batch, stk_error *err);
/* Its memory with all fields, lent by the batch: a part of it goes by stk_parcel_part. */
STK_API const void *stk_parcel_memory(const stk_batch *batch, size_t *size_bytes);
/* The size of some fields alone, each where a multiple of 64 begins; and a copy of them.  to: so many bytes, or NULL: only the size.
 * Failure: STK_ERR_USAGE, a name that no field has. */
STK_API STK_MUST_USE stk_status stk_parcel_part(const stk_batch *batch, const char *const *fields, uint32_t field_count, void *to,
                                                size_t *size_bytes, stk_error *err);

/* --- the end that opens --- */

typedef struct stk_opener stk_opener;

/* fields: what the memory of its parcels has; NULL: all.  Everything is copied. */
STK_API STK_MUST_USE stk_status stk_opener_create(stk_opener **out, const void *label, size_t label_bytes, const char *const *fields,
                                                  uint32_t field_count, stk_error *err);
/* Lives on until its last batch is released.  Sets the pointer to NULL; NULL inside is fine. */
STK_API void stk_opener_release(stk_opener **opener);

typedef struct stk_run_counts {
    uint32_t world;
    uint64_t step_count, micro_count; /* of the run; micro-batches of one rank */
    uint64_t batch_bytes;             /* of the largest micro-batch */
    stk_ns timeout_ns;                /* the options */
    uint32_t keep;
} stk_run_counts;
STK_API void stk_opener_counts(const stk_opener *opener, stk_run_counts *counts);
/* Step and micro of a rank's micro-batch by its number in the run, which is below micro_count. */
STK_API void stk_opener_place(const stk_opener *opener, uint64_t number, uint64_t *step, uint32_t *micro);

/* Batches that it has opened and that are not released.  Any thread. */
STK_API uint32_t stk_opener_out(const stk_opener *opener);

/* Make a batch of words and memory.  The memory is lent until over(context) is called: at the batch's last release, by any thread; or
 * at once, where it does not begin at a multiple of 64, and is copied.  base: of stk_engine_place; what the states of batches have.
 * Failure: over is not called.  STK_ERR_STATE: the words are of a run with another fingerprint than base. */
STK_API STK_MUST_USE stk_status stk_opener_open(stk_opener *opener, const stk_state *base, const void *words, size_t words_bytes,
                                                const void *memory, size_t memory_bytes, void (*over)(void *context), void *context,
                                                stk_batch **out, stk_error *err);

#ifdef __cplusplus
}
#endif
#endif
