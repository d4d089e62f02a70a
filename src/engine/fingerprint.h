/* fingerprint.h - what the stream follows from: content and options as they take effect, never paths, times, ranks or
 * memory. */
#ifndef STK_ENGINE_FINGERPRINT_H
#define STK_ENGINE_FINGERPRINT_H

#include "engine/run.h"

/* Of an open run.  options: of which the effective values of the plan are taken. */
stk_status stk_fingerprint_make(stk_fingerprint *fingerprint, const stk_run *run, const stk_options *options,
                                stk_error *err) STK_MUST_USE;

/* Whether a run may go on at a state.  *changed: some options differ, and the state allows all of them to.
 * STK_ERR_STATE naming the options that differ and are not allowed to. */
stk_status stk_fingerprint_check(const stk_state *state, const stk_fingerprint *now, bool *changed, stk_error *err) STK_MUST_USE;

#endif
