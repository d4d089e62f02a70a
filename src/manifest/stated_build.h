/* stated_build.h - from the lines of a facts file to the sidecar that stated.h is looked up in. */
#ifndef STK_MANIFEST_STATED_BUILD_H
#define STK_MANIFEST_STATED_BUILD_H

#include "manifest/index_build.h"
#include "manifest/record.h"

/* Read one line; sample is scratch (stk_sample_init), rules are those of the records.
 *
 * STK_OK           *size is the medium's.
 * STK_AGAIN        no record of the set can use the medium: it lies outside media_root and allow, or where nothing is read from.
 * STK_ERR_RECORD   the line is not as it should be; err says how.   STK_ERR_NOMEM. */
stk_status stk_stated_read(stk_stated_size *size, stk_sample *sample, const stk_record_rules *rules, stk_str line,
                           stk_error *err) STK_MUST_USE;

/* Read the facts file build->manifest, over threads, and write the sidecar.  STK_ERR_MANIFEST naming file and line: a line that is
 * not as it should be, or one that contradicts an earlier one; the first there is, whatever the threads.  STK_ERR_INTERRUPTED,
 * STK_ERR_SYSTEM, STK_ERR_NOMEM. */
stk_status stk_stated_build(const stk_build *build, stk_error *err) STK_MUST_USE;

#endif
