/* error.h - filling in a stk_error, and passing it on.
 *
 * Who detects a fault fills the error; callers forward it with STK_TRY, and may add what only they know
 * (the sample, the file) with the stk_error_* calls below, which leave what is set already. */
#ifndef STK_BASE_ERROR_H
#define STK_BASE_ERROR_H

#include <stoker/status.h>

#define STK_TRY(call)                                                                                      \
    do {                                                                                                   \
        const stk_status try_ = (call);                                                                    \
        if (try_ < 0) return try_;                                                                         \
    } while (0)

/* Fill err (may be NULL) from status and a printf text, all else cleared; returns status. */
stk_status stk_fail(stk_error *err, stk_status status, const char *format, ...) STK_PRINTF(3, 4);

/* As stk_fail with STK_ERR_SYSTEM, code errno, and the text of errno after the given words. */
stk_status stk_fail_errno(stk_error *err, const char *format, ...) STK_PRINTF(2, 3);

/* As stk_fail, naming a file and a line of it (0: none). */
stk_status stk_fail_at(stk_error *err, stk_status status, const char *file, uint64_t line, const char *format, ...)
    STK_PRINTF(5, 6);

/* Add where it happened, unless the error says so already.  err may be NULL. */
void stk_error_stage(stk_error *err, stk_stage stage);
void stk_error_sample(stk_error *err, const char *sample);
void stk_error_file(stk_error *err, const char *file, uint64_t line);

/* Text of strangers on its way to a terminal or a log: each control character becomes a blank, those of UTF-8 (U+0080 to U+009F) too.
 * The calls above do so. */
void stk_blank_controls(char *text);

#endif
