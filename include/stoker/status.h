/* status.h - how calls end: one list of outcomes, and what an error says.
 *
 * Every function that can fail returns a stk_status: 0 is fine, a positive value another normal outcome,
 * a negative one a failure.  Details of a failure go into the caller's stk_error, which may be NULL.  The
 * library keeps no error of its own, never prints, never exits. */
#ifndef STOKER_STATUS_H
#define STOKER_STATUS_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define STK_API __attribute__((visibility("default")))
#define STK_MUST_USE __attribute__((warn_unused_result))
#define STK_PRINTF(format_at, first_at) __attribute__((format(printf, format_at, first_at)))
#else
#define STK_API
#define STK_MUST_USE
#define STK_PRINTF(format_at, first_at)
#endif

/* name, number, text.  Numbers have gaps by group and never change. */
#define STK_STATUS_MAP(X)                                                                                  \
    X(STK_OK, 0, "fine")                                                                                   \
    X(STK_AGAIN, 1, "nothing was ready in the time given")                                                 \
    X(STK_END, 2, "the plan is exhausted")                                                                 \
    X(STK_ERR_NOMEM, -1, "out of memory")                                                                  \
    X(STK_ERR_SYSTEM, -2, "a call of the operating system failed")                                         \
    X(STK_ERR_FORKED, -3, "the loader belongs to the parent process")                                      \
    X(STK_ERR_INTERRUPTED, -4, "the caller asked to stop")                                                 \
    X(STK_ERR_USAGE, -5, "the call was made with arguments that it cannot take")                           \
    X(STK_ERR_TIMEOUT, -6, "what was waited for did not come in time")                                     \
    X(STK_ERR_OPTION, -20, "an option is unknown or out of range")                                         \
    X(STK_ERR_MODEL, -21, "the checkpoint folder cannot be used")                                          \
    X(STK_ERR_STATE, -22, "the state cannot be loaded")                                                    \
    X(STK_ERR_BUDGET, -23, "the memory budget is too small")                                               \
    X(STK_ERR_INDEX, -24, "the index cannot be used")                                                      \
    X(STK_ERR_KEEP, -25, "the reader holds more batches than it said it would keep")                       \
    X(STK_ERR_MANIFEST, -30, "the manifest cannot be read")                                                \
    X(STK_ERR_RECORD, -31, "a record of the manifest cannot be used")                                      \
    X(STK_ERR_MEDIA, -40, "the bytes are not what the manifest promises")                                  \
    X(STK_ERR_MEDIA_MISSING, -41, "the media does not exist")                                              \
    X(STK_ERR_MEDIA_LIMIT, -42, "the media exceeds a limit")                                               \
    X(STK_ERR_MEDIA_UNSUPPORTED, -43, "the kind of media is not supported")                                \
    X(STK_ERR_MEDIA_DENIED, -44, "the media lies outside the allowed places")                              \
    X(STK_ERR_SPENT, -50, "the error budget of a data set is spent")                                       \
    X(STK_ERR_NETWORK, -60, "the store did not answer as it should")

typedef enum stk_status {
#define STK_STATUS_ENUM(name, number, text) name = number,
    STK_STATUS_MAP(STK_STATUS_ENUM)
#undef STK_STATUS_ENUM
} stk_status;

/* Where in the way of the data something happened. */
#define STK_STAGE_MAP(X)                                                                                   \
    X(STK_STAGE_NONE, "none")                                                                              \
    X(STK_STAGE_OPTIONS, "options")                                                                        \
    X(STK_STAGE_MODEL, "model")                                                                            \
    X(STK_STAGE_MANIFEST, "manifest")                                                                      \
    X(STK_STAGE_INDEX, "index")                                                                            \
    X(STK_STAGE_PLAN, "plan")                                                                              \
    X(STK_STAGE_FETCH, "fetch")                                                                            \
    X(STK_STAGE_DECODE, "decode")                                                                          \
    X(STK_STAGE_TRANSFORM, "transform")                                                                    \
    X(STK_STAGE_TEXT, "text")                                                                              \
    X(STK_STAGE_PLACE, "place")                                                                            \
    X(STK_STAGE_DELIVER, "deliver")                                                                        \
    X(STK_STAGE_STATE, "state")

typedef enum stk_stage {
#define STK_STAGE_ENUM(name, text) name,
    STK_STAGE_MAP(STK_STAGE_ENUM)
#undef STK_STAGE_ENUM
    STK_STAGE_COUNT
} stk_stage;

/* One failure in words.  A plain value of fixed size: "out of memory" needs no memory. */
typedef struct stk_error {
    stk_status status;
    stk_stage stage;
    int code;          /* errno or HTTP status, 0 if neither */
    uint64_t line;     /* in file, from 1; 0 when no line is meant */
    char sample[96];   /* "chatvqa/33471"; empty when no sample is meant */
    char file[256];    /* manifest, media or configuration; cut at the front when too long */
    char message[256]; /* one sentence and what to do, no newline */
} stk_error;

/* A span of time or a point of the monotonic clock, in nanoseconds. */
typedef int64_t stk_ns;
#define STK_MS ((stk_ns)1000000)
#define STK_S ((stk_ns)1000000000)
#define STK_FOREVER ((stk_ns)INT64_MAX)

/* The text of a status: a constant string, never NULL. */
STK_API const char *stk_status_text(stk_status status);

/* The name of a stage ("decode"): a constant string, never NULL. */
STK_API const char *stk_stage_name(stk_stage stage);

/* Write err as one line to stream: "stoker: FILE:LINE: sample ID: MESSAGE".  Parts that are not set are left out. */
STK_API void stk_error_print(FILE *stream, const stk_error *err);

#ifdef __cplusplus
}
#endif
#endif
