/* findings.h - what is worth knowing of a data set beside its counts, in words that fit the options of the
 * run. */
#ifndef STK_ENGINE_FINDINGS_H
#define STK_ENGINE_FINDINGS_H

#include "engine/run.h"

/* Fill the findings and tokens of a summary, which is otherwise zero.  Records that a list leaves out do not
 * count. */
stk_status stk_findings_make(stk_index_summary *summary, const stk_run *run, const stk_run_set *set,
                             stk_error *err) STK_MUST_USE;

#endif
