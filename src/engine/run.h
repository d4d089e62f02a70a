/* run.h - everything of a run that is const once it is open: the checkpoint, the data sets and their facts, the plan.
 *
 * The engine, a replay, the counts of a plan and `stoker show` all stand on it.  Shared by reference: delivered batches
 * keep it alive (invariant 6). */
#ifndef STK_ENGINE_RUN_H
#define STK_ENGINE_RUN_H

#include <stoker/index.h>

#include "batch/batch_object.h"
#include "image/image.h"
#include "manifest/record.h"
#include "plan/planner.h"
#include "source/places.h"
#include "text/text.h"

typedef struct stk_run_set {
    const char *name;
    stk_record_rules record;
    stk_text_rules text;
    stk_template *chat_template;
    stk_pixel_rules pixels;
    stk_places *places;           /* where its media may lie */
    struct stk_set_index *index;  /* behind the facts */
    stk_set_facts facts;
    int *fd;                      /* of each manifest file, for reading records */
} stk_run_set;

typedef struct stk_run {
    uint32_t set_count;
    stk_run_set *set;
    const char **set_name;   /* for batches */
    stk_plan_set *plan_set;
    stk_model model;
    stk_tokenizer *tokenizer;
    stk_limits limits;
    stk_batch_form form;
    stk_image_spec *image;
    stk_plan *plan;          /* NULL when opened without one */
    stk_fingerprint fingerprint;
    atomic_uint references;
    struct stk_resolved *resolved; /* the options, resolved: owns the strings of the rules */
} stk_run;

/* Open the checkpoint and the index of all data sets (building it as `index` says), check the share of unusable
 * records, and plan.  progress may be NULL. */
stk_status stk_run_open(stk_run **out, const stk_options *options, const stk_index_progress *progress,
                        stk_error *err) STK_MUST_USE;
void stk_run_retain(stk_run *run);
void stk_run_release(stk_run *run); /* NULL is fine */

/* The id of a record, as batches and errors name it; own: its own id, data NULL when it has none. */
void stk_run_sample_id(const stk_run *run, uint32_t set_index, uint64_t record_index, stk_str own, char id[96]);

/* Read the bytes of a record into buffer (cleared first).  STK_ERR_INDEX when the manifest has become shorter. */
stk_status stk_run_read_record(const stk_run *run, uint32_t set_index, uint64_t record_index, stk_buffer *buffer,
                               stk_error *err) STK_MUST_USE;

#endif
