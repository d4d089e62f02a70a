/* options_text.h - all options as one text, in YAML, that gives the same options again: what a process hands to another. */
#ifndef STK_ENGINE_OPTIONS_TEXT_H
#define STK_ENGINE_OPTIONS_TEXT_H

#include <sched.h>
#include <stoker/options.h>

#include "base/memory.h"

/* Append one option a line, in the order of the table.  Not `file`, which relative paths start from, and
 * `run`, by which those who compare have met. */
stk_status stk_options_write(const stk_options *options, stk_buffer *text, stk_error *err) STK_MUST_USE;

/* The absolute path of the file that the options were read from; without one, a name in the working folder, which relative paths then
 * start from. */
stk_status stk_options_place(const stk_options *options, char *path, size_t capacity, stk_error *err) STK_MUST_USE;

/* Where two such texts first differ: both lines, cut to what the arrays hold ("" behind the end).  False: they are the same. */
bool stk_options_text_difference(stk_str a, stk_str b, char line_of_a[96], char line_of_b[96]);

/* The CPUs of the option `cpus`: 8-15,20.  STK_ERR_OPTION for what is no such list. */
stk_status stk_cpus_parse(const char *text, cpu_set_t *set, stk_error *err) STK_MUST_USE;

#endif
