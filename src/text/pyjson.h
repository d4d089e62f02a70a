/* pyjson.h - JSON as Python writes it: json.dumps(value, ensure_ascii=False), byte for byte.
 *
 * Tools and arguments reach the model in this form (spec-qwen3vl.md section 4.1). */
#ifndef STK_TEXT_PYJSON_H
#define STK_TEXT_PYJSON_H

#include <jansson.h>

#include "base/memory.h"

/* Where the bytes go. */
typedef struct stk_pyjson_sink {
    stk_status (*append)(void *context, stk_str text);
    /* *out is what to write for a string value of the data (keys are written as they are); valid until the
     * next call. NULL: as it is. */
    stk_status (*value)(void *context, stk_str *out, stk_str text);
    void *context;
    stk_error *err;
} stk_pyjson_sink;

/* A failure of the sink is passed on; a value nested more than STK_PYJSON_DEPTH deep is STK_ERR_RECORD. */
enum { STK_PYJSON_DEPTH = 1000 };
stk_status stk_pyjson_write(const stk_pyjson_sink *sink, const json_t *value) STK_MUST_USE;

enum { STK_PYJSON_FLOAT_BYTES = 32 };
/* repr() of a finite double.  Returns its length. */
size_t stk_pyjson_float(char out[STK_PYJSON_FLOAT_BYTES], double value);

#endif
