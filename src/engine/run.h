/* run.h - everything of a run that is const once it is open: the checkpoint, the data sets and their facts, the plan.
 *
 * The engine, a replay, the counts of a plan and `stoker show` all stand on it.  Shared by reference: delivered batches
 * keep it alive (invariant 6). */
#ifndef STK_ENGINE_RUN_H
#define STK_ENGINE_RUN_H

#include <stoker/index.h>

#include "batch/batch_object.h"
#include "engine/quarantine.h"
#include "engine/run_rules.h"
#include "image/image.h"
#include "manifest/index.h"
#include "plan/planner.h"
#include "source/places.h"

typedef struct stk_run_set {
    const char *name;
    const stk_set_rules *rules;
    stk_template *chat_template;
    stk_pixel_rules pixels;       /* with the checkpoint's limits filled in */
    stk_places *places;           /* where its media may lie */
    stk_set_index *index;         /* behind the facts; NULL before stk_run_open_index */
    stk_set_facts facts;
    uint8_t cache_value;          /* of its objects in the cache, by how often a record is drawn; set with the plan */
    int *fd;                      /* of each manifest file, for reading records */
} stk_run_set;

typedef struct stk_run {
    stk_rules *rules;
    uint32_t set_count;
    stk_run_set *set;
    const char **set_name;   /* for batches */
    stk_plan_set *plan_set;
    stk_model model;
    stk_tokenizer *tokenizer;
    stk_batch_form form;
    stk_image_spec *image;
    stk_quarantine *quarantine;
    char *stem;              /* path that the files of the run begin with, beside the index of the first manifest */
    stk_plan *plan;          /* NULL before stk_run_plan */
    stk_fingerprint fingerprint;
    uint32_t max_tokens;     /* of a sample */
    bool stream;             /* index: stream: facts have records only */
    stk_limits text_limits;  /* the rules' limits; with stream, text_bytes is no more than max_tokens tokens can have */
    bool recheck_media;      /* set before stk_run_open_index: look again at media that could not be used */
    bool ignore_excluded;    /* likewise: open as if no list left records out */
    atomic_uint references;
} stk_run;

/* Open all but facts and plan: the rules, the checkpoint, templates, kernels.  *out is the caller's, who releases it.  progress, which may
 * be NULL, is asked by whoever waits for a store, until the run is open or released. */
stk_status stk_run_prepare(stk_run **out, const stk_options *options, const stk_index_progress *progress, stk_error *err) STK_MUST_USE;

/* Open the index of one data set, as options say.  work may be NULL. */
stk_status stk_run_open_index(stk_run *run, const stk_options *options, uint32_t set_index, const stk_index_progress *progress,
                              stk_index_work *work, stk_error *err) STK_MUST_USE;

/* Threads that options allow: workers, or one a CPU. */
int stk_run_thread_count(const stk_options *options);

/* What is planned when an index is open goes on as its progress says; progress may be NULL. */
void stk_run_watch(stk_watch *watch, const stk_index_progress *progress);

/* Prepare, open all indexes, refuse data sets with too many unusable records, plan.  progress may be NULL. */
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
