/* state.h - where a run stands: a short text that resumes it exactly (docs/checkpoint-format.md). */
#ifndef STOKER_STATE_H
#define STOKER_STATE_H

#include <stoker/status.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { STK_STATE_TEXT_MAX = 16 * 1024, STK_PLAN_VERSION = 1 };

/* A plain value. */
typedef struct stk_state {
    char fingerprint[33];  /* hex of XXH3-128 */
    uint32_t plan_version;
    uint64_t epoch, rows;  /* rows of the epoch consumed, whole steps */
    uint64_t step;         /* the next step */
    uint32_t micro;        /* micro-batches of that step consumed; 0 at the end of a step */
    uint32_t world;        /* of the run, when micro > 0; else 0 */
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
