/* state.h - where a run stands: a short text that resumes it exactly (docs/checkpoint-format.md). */
#ifndef STOKER_STATE_H
#define STOKER_STATE_H

#include <stoker/status.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { STK_STATE_TEXT_MAX = 16 * 1024, STK_PLAN_VERSION = 2 };

/* What the stream follows from, in parts, so that a refusal can say which of them differs. */
#define STK_FINGERPRINT_PART_MAP(X)                                                                        \
    X(STK_PART_MODEL, "model", "the files of the checkpoint folder")                                       \
    X(STK_PART_DATA, "data", "the manifests or their media, format, columns, roles, or limits")            \
    X(STK_PART_WORDS, "text", "template, system, labels, control_tokens, allow_control_tokens, tag_space") \
    X(STK_PART_PIXELS, "pixels", "profile, orientation, min_pixels or max_pixels")                         \
    X(STK_PART_PLAN, "plan", "batch, steps, epochs, shuffle, seed, weight, where, first, layout, max_tokens, pad_to, row_tokens, window, balance, modality, overlong, uneven or the like")

typedef enum stk_fingerprint_part {
#define STK_FINGERPRINT_PART_ENUM(name, key, options) name,
    STK_FINGERPRINT_PART_MAP(STK_FINGERPRINT_PART_ENUM)
#undef STK_FINGERPRINT_PART_ENUM
    STK_FINGERPRINT_PARTS
} stk_fingerprint_part;

typedef struct stk_fingerprint {
    char whole[33];                       /* hex of XXH3-128 over the parts */
    char part[STK_FINGERPRINT_PARTS][17]; /* hex of XXH3-64 */
} stk_fingerprint;

/* A plain value. */
typedef struct stk_state {
    stk_fingerprint fingerprint;
    uint32_t plan_version;
    uint64_t epoch, rows;  /* rows of the epoch consumed, whole steps */
    uint64_t step;         /* the next step */
    uint32_t micro;        /* micro-batches of that step consumed; 0 at the end of a step */
    uint32_t world;        /* of the run, when micro > 0; else 0 */
    uint32_t micro_rows;   /* rows of a micro-batch, when micro > 0; else 0 */
} stk_state;

/* Text of a state, NUL-terminated. */
STK_API STK_MUST_USE stk_status stk_state_write(const stk_state *state, char *text, size_t capacity, stk_error *err);
/* Parse; refuses an unknown key, version or checksum with STK_ERR_STATE. */
STK_API STK_MUST_USE stk_status stk_state_parse(stk_state *state, const char *text, size_t size_bytes, stk_error *err);
/* The same with a file, saved atomically. */
STK_API STK_MUST_USE stk_status stk_state_save(const stk_state *state, const char *path, stk_error *err);
STK_API STK_MUST_USE stk_status stk_state_load(stk_state *state, const char *path, stk_error *err);

#ifdef __cplusplus
}
#endif
#endif
