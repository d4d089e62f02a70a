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

/* Objects that a worker of a run with index: stream asks for at once. */
enum { STK_SURVEY_LAZY_REQUESTS = 96 };

/* The table for a data set of a prepared run; context is the caller's and outlives the survey. */
stk_survey stk_survey_of(stk_survey_context *context);

/* Whether media of a set, of any set, may be objects. */
bool stk_survey_is_remote(const stk_run_set *set);
bool stk_run_is_remote(const stk_run *run);

/* What tells one state of a medium from another, for the quarantine: a file's time, of an object a hash of its ETag. */
uint64_t stk_survey_version(const stk_media_facts *facts, stk_str etag);

/* For lazy facts.  A worker goes on with another data set of its run. */
void stk_survey_point(void *worker, uint32_t set_index);
/* A worker that defers reads no medium whole, which may take as much memory as the largest: it sets `deferred` instead.  When
 * it begins to defer, the memory of what it read whole goes. */
void stk_survey_defer(void *worker, bool defers);

#endif
