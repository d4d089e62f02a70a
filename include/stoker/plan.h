/* plan.h - what comes when, computed before anything is made (docs/plan.md).
 *
 *     stk_plan_open ─► stk_plan_sum          counts of the whole run, and each step in turn
 *                  └─► stk_plan_load_step    the samples of one step, and where each goes
 *
 * All numbers follow from the facts of the index; no medium is opened. */
#ifndef STOKER_PLAN_H
#define STOKER_PLAN_H

#include <stoker/index.h>
#include <stoker/state.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct stk_plan_view stk_plan_view;

/* Open the index of the options (building it where it may) and plan a run on `world` ranks.  progress, of the index, may be NULL.
 * Options are copied.  Failure: *out is NULL. */
STK_API STK_MUST_USE stk_status stk_plan_open(stk_plan_view **out, const stk_options *options, uint32_t world,
                                              const stk_index_progress *progress, stk_error *err);
/* Free, and set the pointer to NULL.  NULL inside is fine. */
STK_API void stk_plan_close(stk_plan_view **view);

/* What an open plan knows without going through its steps. */
typedef struct stk_plan_info {
    uint64_t steps, rows;    /* of the run; rows without filler */
    uint64_t epoch_rows;     /* rows of the first epoch */
    double epoch_steps;      /* steps that the first epoch takes; not whole where an epoch ends inside a step */
    uint64_t not_selected;   /* usable records that `where` and `first` leave out */
    uint32_t world;
    size_t set_count;
    bool packed;             /* layout: packed */
    bool only_rows;          /* index: stream: of the sums, only steps, rows and not_selected are known; a step cannot be loaded */
    stk_fingerprint fingerprint;
} stk_plan_info;

STK_API void stk_plan_info_get(const stk_plan_view *view, stk_plan_info *info);

/* Work by the cost model (docs/plan.md), of the ranks of one step: of the one with the most, and of all. */
typedef struct stk_plan_costs {
    uint64_t most_all, sum_all;       /* text and vision */
    uint64_t most_vision, sum_vision; /* the vision tower alone */
} stk_plan_costs;

/* One step over all ranks.  Sums leave filler out. */
typedef struct stk_plan_step {
    uint64_t step, epoch, epoch_row; /* the position of its first row */
    uint64_t rows, filler_rows;
    uint64_t samples, tokens, visual_tokens, supervised_tokens, images;
    uint64_t room_tokens;            /* of its rows, padding included: tokens / room_tokens is how full they are */
    uint64_t media_bytes, record_bytes; /* that making it reads */
    uint64_t largest_micro_bytes;    /* of the arena */
    stk_plan_costs costs;            /* as the rows are dealt to ranks */
    stk_plan_costs unbalanced;       /* as they would be dealt without balance: in their order, to the ranks in turn */
} stk_plan_step;

/* Listens to a sum: both calls come from the thread that called; returning false stops it (STK_ERR_INTERRUPTED). */
typedef struct stk_plan_listener {
    bool (*step)(void *context, const stk_plan_step *step);             /* every step, in order; NULL: none is wanted */
    bool (*report)(void *context, uint64_t steps_done, uint64_t steps); /* some times a second; NULL: nobody asks */
    void *context;
} stk_plan_listener;

typedef struct stk_plan_range {
    uint64_t least, median, most;
} stk_plan_range;

/* Most over mean of the ranks' work.  Of several steps: the sum over the steps of what the rank with the most has to do, over the
 * mean.  1: all have the same; 0: there is no such work. */
typedef struct stk_plan_imbalance {
    double all, vision;
} stk_plan_imbalance;

/* Exact counts of a run. */
typedef struct stk_plan_counts {
    uint64_t steps, epoch_rows, samples, tokens, visual_tokens, supervised_tokens, images, filler_rows;
    uint64_t largest_micro_bytes; /* of the arena */
    char fingerprint[33];
    uint64_t not_selected; /* usable records that `where` and `first` leave out, of one epoch */
    uint64_t rows;         /* without filler */
    double epoch_steps;
    uint64_t room_tokens, media_bytes, record_bytes; /* as of a step */
    stk_plan_range step_supervised_tokens;
    stk_plan_imbalance balanced, unbalanced;              /* of the run */
    stk_plan_imbalance worst_balanced, worst_unbalanced;  /* of the step where it is greatest */
    double least_cost, most_cost; /* of a step, a row of it, over the mean of all rows: how even the steps are */
} stk_plan_counts;

/* The numbers that reports give by their names, behind steps and ranks: X(member). */
#define STK_PLAN_COUNT_MAP(X)                                                                             \
    X(rows) X(epoch_rows) X(samples) X(tokens) X(visual_tokens) X(supervised_tokens) X(images)            \
    X(filler_rows) X(room_tokens) X(media_bytes) X(record_bytes) X(largest_micro_bytes) X(not_selected)

/* Go through all steps, on the threads of the option workers, and sum up.  Takes 8 bytes a step of memory, and some of each thread, whatever the
 * length of the run.  listener may be NULL.  Afterwards the counts of the data sets are known. */
STK_API STK_MUST_USE stk_status stk_plan_sum(stk_plan_view *view, const stk_plan_listener *listener, stk_plan_counts *counts, stk_error *err);

/* One data set. */
typedef struct stk_plan_set_counts {
    char name[64];
    uint64_t records;          /* that take part; this and all below: 0 before stk_plan_sum */
    uint64_t overlong_records; /* left out because they are too long (`where` and `first` have let them pass) */
    uint64_t shrunk_records;   /* of those that take part: their images were made smaller to fit (overlong: shrink) */
    uint64_t samples, tokens, visual_tokens, supervised_tokens, images; /* of the run */
} stk_plan_set_counts;

/* at < set_count. */
STK_API void stk_plan_set_counts_at(const stk_plan_view *view, size_t at, stk_plan_set_counts *counts);

/* One sample of a step, or filler, and where it goes. */
typedef struct stk_plan_sample {
    char set[64];         /* "" for filler */
    uint64_t record;      /* in its data set, from 0 */
    uint64_t line;        /* of the manifest, from 1 */
    uint32_t rank, micro; /* that get it */
    uint32_t row, offset; /* of the micro-batch; first token in that row */
    uint32_t step_row;    /* which row of the step its row is, over all ranks; UINT32_MAX: filler */
    uint32_t tokens, visual_tokens, supervised_tokens, images;
    bool filler;
} stk_plan_sample;

/* Load the samples of a step < steps: by rank, micro-batch, row and offset.  *sums (may be NULL) are those of the step.  One thread at a
 * time per view, as of all calls that take one that is not const. */
STK_API STK_MUST_USE stk_status stk_plan_load_step(stk_plan_view *view, uint64_t step, stk_plan_step *sums, stk_error *err);
/* Of the step that was loaded last, without failure; 0 before. */
STK_API size_t stk_plan_sample_count(const stk_plan_view *view);
/* at < count. */
STK_API void stk_plan_sample_at(const stk_plan_view *view, size_t at, stk_plan_sample *sample);
/* The id of such a sample, as batches and errors name it ("docs/33471"; "" for filler): reads its record. */
STK_API STK_MUST_USE stk_status stk_plan_sample_id(stk_plan_view *view, size_t at, char id[96], stk_error *err);

/* Open, sum up, close. */
STK_API STK_MUST_USE stk_status stk_plan_count(stk_plan_counts *counts, const stk_options *options, uint32_t world,
                                               stk_error *err);

#ifdef __cplusplus
}
#endif
#endif
