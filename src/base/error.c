/* error.c - errors as plain values: filled in where a fault is detected, printed by whoever owns a stream. */
#include "base/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <string.h>

const char *stk_status_text(stk_status status)
{
    switch (status) {
#define STATUS_CASE(name, number, text)                                                                    \
    case name: return text;
        STK_STATUS_MAP(STATUS_CASE)
#undef STATUS_CASE
    }
    return "unknown status";
}

const char *stk_stage_name(stk_stage stage)
{
    static const char *const names[] = {
#define STAGE_NAME(name, text) text,
        STK_STAGE_MAP(STAGE_NAME)
#undef STAGE_NAME
    };
    return (unsigned)stage < STK_STAGE_COUNT ? names[stage] : "unknown";
}

/* The end of a path says more than its start: cut at the front. */
static void copy_tail(char *to, size_t capacity, const char *from)
{
    const size_t length = strlen(from);
    if (length < capacity) {
        memcpy(to, from, length + 1);
        return;
    }
    memcpy(to, "...", 3);
    memcpy(to + 3, from + length - (capacity - 4), capacity - 3);
}

void stk_blank_controls(char *text)
{
    for (unsigned char *c = (unsigned char *)text; *c; c++) {
        const bool of_utf8 = c[0] == 0xc2 && c[1] >= 0x80 && c[1] < 0xa0;
        if (*c < 0x20 || *c == 0x7f || of_utf8) *c = ' ';
        if (of_utf8) *++c = ' ';
    }
}

static void fill(stk_error *err, stk_status status, const char *format, va_list arguments) STK_PRINTF(3, 0);
static void fill(stk_error *err, stk_status status, const char *format, va_list arguments)
{
    memset(err, 0, sizeof *err);
    err->status = status;
    vsnprintf(err->message, sizeof err->message, format, arguments);
    stk_blank_controls(err->message);
}

stk_status stk_fail(stk_error *err, stk_status status, const char *format, ...)
{
    if (!err) return status;
    va_list arguments;
    va_start(arguments, format);
    fill(err, status, format, arguments);
    va_end(arguments);
    return status;
}

stk_status stk_fail_errno(stk_error *err, const char *format, ...)
{
    const int code = errno;
    if (err) {
        va_list arguments;
        va_start(arguments, format);
        fill(err, STK_ERR_SYSTEM, format, arguments);
        va_end(arguments);
        err->code = code;
        const size_t used = strlen(err->message);
        char reason[128];
        /* The GNU form returns the text, which need not lie in the buffer. */
        snprintf(err->message + used, sizeof err->message - used, ": %s", strerror_r(code, reason, sizeof reason));
    }
    errno = code;
    return STK_ERR_SYSTEM;
}

stk_status stk_fail_at(stk_error *err, stk_status status, const char *file, uint64_t line, const char *format, ...)
{
    if (!err) return status;
    va_list arguments;
    va_start(arguments, format);
    fill(err, status, format, arguments);
    va_end(arguments);
    stk_error_file(err, file, line);
    return status;
}

void stk_error_stage(stk_error *err, stk_stage stage)
{
    if (err && err->stage == STK_STAGE_NONE) err->stage = stage;
}

void stk_error_sample(stk_error *err, const char *sample)
{
    if (!err || err->sample[0]) return;
    copy_tail(err->sample, sizeof err->sample, sample);
    stk_blank_controls(err->sample);
}

void stk_error_file(stk_error *err, const char *file, uint64_t line)
{
    if (!err || err->file[0]) return;
    copy_tail(err->file, sizeof err->file, file);
    stk_blank_controls(err->file);
    err->line = line;
}

void stk_error_print(FILE *stream, const stk_error *err)
{
    fputs("stoker: ", stream);
    if (err->file[0] && err->line) fprintf(stream, "%s:%llu: ", err->file, (unsigned long long)err->line);
    else if (err->file[0]) fprintf(stream, "%s: ", err->file);
    if (err->sample[0]) fprintf(stream, "sample %s: ", err->sample);
    fprintf(stream, "%s\n", err->message[0] ? err->message : stk_status_text(err->status));
}
