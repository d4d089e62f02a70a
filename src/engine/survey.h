/* survey.h - how the index looks at media and texts: through source, image and text (architecture section 5).
 *
 * Not here: when something is looked at (manifest/index.h). */
#ifndef STK_ENGINE_SURVEY_H
#define STK_ENGINE_SURVEY_H

#include "engine/run.h"
#include "manifest/index.h"

typedef struct stk_survey_context {
    const stk_run *run;
    uint32_t set_index;
} stk_survey_context;

/* The table for a data set of a prepared run; context is the caller's and outlives the survey. */
stk_survey stk_survey_of(stk_survey_context *context);

#endif
