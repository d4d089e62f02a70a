/* batch.h - one micro-batch: named fields in shared memory, and what belongs to them.
 *
 * A batch is immutable, and stays valid until its last release, from any thread, also after its loader is closed
 * (invariant 6).  Fields, dtypes and shapes are those of docs/fields.md. */
#ifndef STOKER_BATCH_H
#define STOKER_BATCH_H

#include <stdbool.h>
#include <stoker/state.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct stk_batch stk_batch;

typedef enum stk_dtype { STK_UINT8, STK_INT32, STK_INT64, STK_FLOAT32, STK_BFLOAT16 } stk_dtype;

/* "uint8", "int32", "int64", "float32", "bfloat16". */
STK_API const char *stk_dtype_name(stk_dtype dtype);
STK_API size_t stk_dtype_bytes(stk_dtype dtype);

enum { STK_MAX_DIMS = 4 };

/* A field: C-contiguous, 64-byte aligned, read-only, lent by the batch. */
typedef struct stk_view {
    const char *name; /* NULL: the batch has no such field */
    const void *data;
    stk_dtype dtype;
    int ndim;
    int64_t shape[STK_MAX_DIMS];
    size_t size_bytes;
} stk_view;

STK_API size_t stk_batch_field_count(const stk_batch *batch);
/* Fields in the order of their names; at < count. */
STK_API stk_view stk_batch_field_at(const stk_batch *batch, size_t at);
STK_API stk_view stk_batch_field(const stk_batch *batch, const char *name);

/* Where one sample of the batch came from and where it is. */
typedef struct stk_batch_sample {
    char id[96];         /* "docs/33471", "docs#118"; "" for filler */
    char set[64];
    uint64_t record;     /* in its data set, from 0 */
    uint64_t line;       /* of the manifest, from 1 */
    uint32_t row, offset; /* of the batch; first token in that row */
    uint32_t tokens, visual_tokens;
    bool filler, masked; /* both: a record that was drawn and cannot be used (index: stream); the id and what follows are its own */
    char reason[64];     /* of a masked one */
    uint32_t step_row;   /* which row of the step its row is, over all ranks; UINT32_MAX: filler */
} stk_batch_sample;

STK_API size_t stk_batch_sample_count(const stk_batch *batch);
/* Fill *sample; at < count. */
STK_API void stk_batch_sample_at(const stk_batch *batch, size_t at, stk_batch_sample *sample);

typedef struct stk_batch_info {
    uint64_t step;
    uint32_t rank, world, micro, micro_count;
    uint64_t epoch;
    uint64_t tokens;           /* without padding, filler left out */
    uint64_t visual_tokens;
    uint64_t loss_tokens;      /* of this micro-batch, masked samples left out */
    uint64_t step_loss_tokens; /* planned, of the whole step: equal on all ranks, whatever is masked; 0: not known (index: stream) */
    uint64_t images;
    uint32_t rows;             /* filler included */
    char model_type[64];       /* of the checkpoint (config.json): "qwen3_vl" */
} stk_batch_info;

STK_API void stk_batch_info_get(const stk_batch *batch, stk_batch_info *info);

/* The state after this micro-batch. */
STK_API void stk_batch_state(const stk_batch *batch, stk_state *state);

/* Share the batch: each retain wants a release of its own.  Any thread. */
STK_API void stk_batch_retain(stk_batch *batch);
/* Give it back and set the caller's pointer to NULL.  NULL inside is fine.  Any thread. */
STK_API void stk_batch_release(stk_batch **batch);

/* XXH3-128 in canonical (big-endian) form over the fields in the order of their names (docs/determinism.md). */
STK_API void stk_batch_digest(const stk_batch *batch, uint8_t digest[16]);
/* The digests of the rows of this micro-batch, filler rows left out, in row order: independent of ranks, padding and
 * the form of pixels (pixels other than uint8: STK_ERR_USAGE).  *count in: room; out: rows that are not filler. */
STK_API STK_MUST_USE stk_status stk_batch_row_digests(const stk_batch *batch, uint8_t (*digest)[16], size_t *count,
                                                      stk_error *err);

/* Write DIR/step-SSSSSSSS.rank-RRR.micro-MMM/ with one .npy file a field and batch.json.  Nothing half-written is left
 * behind on failure. */
STK_API STK_MUST_USE stk_status stk_batch_dump(const stk_batch *batch, const char *folder, stk_error *err);

#ifdef __cplusplus
}
#endif
#endif
