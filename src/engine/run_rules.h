/* run_rules.h - options to rules: checked, resolved, with absolute paths, as the modules take them.
 *
 * Relative paths start from the folder of the configuration file, or from the working folder when there is none. */
#ifndef STK_ENGINE_RUN_RULES_H
#define STK_ENGINE_RUN_RULES_H

#include <stoker/options.h>

#include "engine/remote_files.h"
#include "manifest/files.h"
#include "manifest/record.h"
#include "plan/planner.h"
#include "plan/where.h"
#include "schema/rules.h"
#include "source/source.h"
#include "text/text.h"

typedef struct stk_set_rules {
    const char *name;
    stk_file_list files;       /* of its manifests, absolute */
    const char *facts_file;    /* absolute, or s3://; NULL: none */
    stk_record_rules record;   /* stated: once the index is open */
    stk_text_rules text;
    stk_pixel_rules pixels;    /* limits of 0: the checkpoint's */
    bool overlong_is_error;
    double weight;             /* 0: none given */
    uint32_t epochs_milli;     /* passes in an epoch, in thousandths */
    const stk_where *where;    /* NULL: every record */
    uint64_t first;            /* records at most; 0: all */
    const stk_template_options *chat_template; /* the set's, or the run's; nothing given: the checkpoint's.  Of the options */
    stk_turn_format turn_format;               /* of a declared one */
    const stk_str *place;      /* where media may lie: media_root, the manifest's own, allow */
    size_t place_count;
} stk_set_rules;

typedef struct stk_rules {
    const char *model_folder;  /* absolute */
    const char *index_dir;     /* absolute; NULL: beside the manifests.  Of one on a store, the folder of copies of it */
    const char *copies;        /* folder of what comes from stores; NULL: nothing does */
    const char *dead_letter;   /* absolute; NULL: none */
    stk_limits limits;
    stk_layout layout;
    stk_targets targets;
    stk_positions positions;
    stk_pixel_form pixels;
    stk_profile profile;
    stk_batch_piece *batch;    /* the schedule, batch_count > 0 */
    uint32_t batch_count;
    stk_balance balance;
    bool stream;               /* index: stream */
    stk_source_config store;   /* all but file_threads: how whoever opens a source finds and asks object stores */
    stk_places *endpoints;     /* of store */
    stk_str *read;             /* of each bucket with manifests, one of them */
    size_t read_count;
    double price_request, price_transfer; /* of 1,000 requests, of 10^9 bytes; 0: none given */
    stk_remote *remote;        /* a source for what is not batches */
    stk_remote_files remote_files;
    stk_manifest_store manifest_store; /* over remote_files, as is index_store */
    stk_index_store index_store;
    stk_set_rules *set;
    uint32_t set_count;
    stk_pool pool;             /* owns all strings */
} stk_rules;

/* Checks the options (stk_options_check) and resolves them; where that waits for a store, progress (may be NULL) is asked whether to
 * go on, as by all of the remote's calls until stk_remote_watch.  Of options only chat_template is still pointed to: it is for
 * whoever opens templates, while options live.  Failure: *out is NULL. */
stk_status stk_rules_make(stk_rules **out, const stk_options *options, const stk_index_progress *progress, stk_error *err) STK_MUST_USE;

/* Only what stores need (store, endpoints, prices): options need name neither a model nor data. */
stk_status stk_rules_make_store(stk_rules **out, const stk_options *options, stk_error *err) STK_MUST_USE;

/* Only model_folder and profile: no file is looked at. */
stk_status stk_rules_make_model(stk_rules **out, const stk_options *options, stk_error *err) STK_MUST_USE;
void stk_rules_destroy(stk_rules *rules);

#endif
