/* fingerprint.h - what the stream follows from, as digests: content and options, never paths, times, ranks or
 * memory. */
#ifndef STK_ENGINE_FINGERPRINT_H
#define STK_ENGINE_FINGERPRINT_H

#include "engine/run.h"

/* Of an open run.  options: of which the effective values of the plan are taken. */
stk_status stk_fingerprint_make(stk_fingerprint *fingerprint, const stk_run *run, const stk_options *options,
                                stk_error *err) STK_MUST_USE;

/* STK_ERR_STATE naming the parts that differ, and the options that they follow from. */
stk_status stk_fingerprint_check(const stk_fingerprint *saved, const stk_fingerprint *now,
                                 stk_error *err) STK_MUST_USE;

#endif
