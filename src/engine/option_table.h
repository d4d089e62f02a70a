/* option_table.h - the option table with what the reader needs beside the public columns. */
#ifndef STK_ENGINE_OPTION_TABLE_H
#define STK_ENGINE_OPTION_TABLE_H

#include <stoker/options.h>

#include "base/error.h"

typedef enum stk_option_kind {
    STK_KIND_INT,      /* int64_t; "auto" and "all" are 0 where the default says so */
    STK_KIND_SIZE,     /* int64_t bytes: 64MB, 8GiB */
    STK_KIND_SECONDS,  /* int64_t seconds: 300, "300 s" */
    STK_KIND_WORKERS,  /* int64_t: a number, auto (0), inline (-1) */
    STK_KIND_BOOL,     /* bool */
    STK_KIND_STRING,   /* char * */
    STK_KIND_CHOICE,   /* char *, one of the choices */
    STK_KIND_LIST,     /* stk_string_list: one or several */
    STK_KIND_MAP,      /* stk_string_map */
    STK_KIND_SHARE,    /* double, 0..1 */
    STK_KIND_DECIMAL,  /* double, of up to six decimals; 0: none given */
    STK_KIND_SCHEDULE, /* int64_t, and stk_options.batch_schedule: a number, or a list of [step, number] */
    STK_KIND_TEMPLATE, /* stk_template_options */
    STK_KIND_GROUP,    /* only a heading: data */
} stk_option_kind;

typedef struct stk_option_row {
    stk_option shown;
    stk_option_kind kind;
    size_t at_bytes;     /* of the value in stk_options; of a data[] option in stk_data_options */
    size_t set_at_bytes; /* of a per-set option in stk_set_options */
} stk_option_row;

const stk_option_row *stk_option_rows(size_t *count);

/* What stk_options_check asks of the options of object stores, for who needs no others. */
stk_status stk_options_check_store(const stk_options *options, stk_error *err) STK_MUST_USE;

/* The row of a name, "data[].x" for those of a data set; NULL: none. */
const stk_option_row *stk_option_find(const char *name);

/* Whether a choice has this value. */
bool stk_option_allows(const stk_option *option, const char *value);

/* Fail with "unknown key" and the nearest known one of this prefix ("", "data[].", "limits."), or the release
 * note. */
stk_status stk_option_unknown(const char *prefix, const char *name, stk_error *err);

#endif
