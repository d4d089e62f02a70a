/* lazy_facts.h - the facts of a few records, found when they are drawn: what `index: stream` has instead of an index.
 *
 *     draws of a micro-batch ─► finders, in parallel: read, parse, encode, headers of media ─► facts, in the order of the draws
 *
 * Nothing is kept from one call to the next but counters, so facts are the same whenever they are asked for, and by however many threads.
 * Not here: what facts come to under the run's rules (schema/derive.h), and the recipe (plan/planner.h). */
#ifndef STK_ENGINE_LAZY_FACTS_H
#define STK_ENGINE_LAZY_FACTS_H

#include "engine/run.h"
#include "engine/survey.h"

typedef struct stk_lazy_facts stk_lazy_facts;

/* What a finder holds for headers, of so many objects at once; whole ones are read one at a time, by the caller. */
enum { STK_FINDER_BYTES = 7 << 19, STK_FINDER_REQUESTS = STK_SURVEY_LAZY_REQUESTS, STK_FINDERS_MOST = 4 };

/* What a draw takes of a pool, from its number to its place in a recipe; its media have a stk_media_facts each. */
enum { STK_LAZY_ROW_BYTES = 640 };

/* finders: threads that find, the caller of stk_lazy_facts_find among them; 1: it alone.  run outlives it. */
stk_status stk_lazy_facts_create(stk_lazy_facts **out, const stk_run *run, uint32_t finders, stk_error *err) STK_MUST_USE;
void stk_lazy_facts_destroy(stk_lazy_facts *lazy); /* NULL is fine; no call is under way */

/* From any thread: a call that is under way ends soon, with STK_ERR_INTERRUPTED, and so does every later one. */
void stk_lazy_facts_stop(stk_lazy_facts *lazy); /* NULL is fine */

/* Who a draw is, and why its record cannot be used. */
typedef struct stk_lazy_words {
    char id[96], message[256];
} stk_lazy_words;

/* Record i of *facts is that of draw i, with its media; words[i] goes with it.  All is taken from pool.  What a record or a medium lacks
 * goes into its facts; the media of a record are together limited as one (limits.media_bytes).
 *
 * Failure: what no fact can be had for (a fault of the system that stayed, a manifest that has become shorter), of the first draw that it
 * happened to, with sample, file and line.  One caller at a time. */
stk_status stk_lazy_facts_find(stk_lazy_facts *lazy, const stk_plan_draw *draw, uint32_t count, stk_pool *pool,
                               stk_set_facts *facts, const stk_lazy_words **words, stk_error *err) STK_MUST_USE;

/* Records and headers that were read so far.  Any thread. */
void stk_lazy_facts_counts(const stk_lazy_facts *lazy, uint64_t *records, uint64_t *headers);

#endif
