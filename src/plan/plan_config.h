/* plan_config.h - what a plan is made from: the sets, and how their records become rows, steps and micro-batches. */
#ifndef STK_PLAN_PLAN_CONFIG_H
#define STK_PLAN_PLAN_CONFIG_H

#include "base/memory.h"
#include "base/watch.h"
#include "plan/where.h"
#include "schema/derive.h"

typedef struct stk_plan_set {
    const char *name;
    stk_set_facts facts; /* mapped, outlives the plan */
    stk_pixel_rules pixels;
    bool overlong_is_error; /* overlong: error */
    const stk_where *where; /* which usable records take part; NULL: all.  Outlives the plan */
    uint64_t first;         /* and at most so many of them, in the order of the set; 0: all */
    double weight;          /* share of the draws, of the sum of all sets' weights; 0: none given */
    uint32_t epochs_milli;  /* passes over the set in an epoch, in thousandths; 1000 with weights */
} stk_plan_set;

/* From a step on, so many rows a step. */
typedef struct stk_batch_piece {
    uint64_t first_step, batch; /* batch > 0 */
} stk_batch_piece;

typedef struct stk_plan_config {
    const stk_plan_set *set; /* set_count, outlive the plan */
    uint32_t set_count;
    const stk_model *model;  /* outlives the plan */
    const stk_batch_piece *batch; /* batch_count > 0, by rising first_step, the first 0; outlive the plan */
    uint32_t batch_count;
    uint64_t micro_batch;    /* rows per micro-batch; 0: all of a rank's */
    uint64_t steps;          /* 0: as many as epochs gives */
    uint64_t epochs;         /* > 0 */
    bool shuffle, weights_of_tokens;
    uint64_t seed;
    stk_layout layout;
    uint32_t max_tokens;     /* of a sample, > 0 */
    uint32_t pad_to;         /* padded: length of each row; 0: the longest row */
    uint32_t pad_multiple;   /* > 0 */
    uint32_t row_tokens, segment_multiple; /* packed: length of a row, and what a sample's place is a multiple of; > 0 */
    uint32_t window;         /* draws of a window, > 0 */
    bool uneven_is_error;    /* uneven: error */
    stk_balance balance;
    bool aligned;            /* modality: aligned */
    bool filler_image;       /* a micro-batch without media gets one of no loss */
    bool stream;             /* index: stream: sets have records and no facts; recipes are made from draws (planner.h) */
    uint32_t threads;        /* for tables, > 0 */
    const char *table_file;  /* packed: the tables' cache; NULL: none.  Outlives create */
    uint8_t table_key[16];   /* what the tables follow from */
    stk_watch *watch;        /* asked while the plan is made; NULL: none.  Outlives create */
} stk_plan_config;

/* Whether a micro-batch may get a filler image, and what that takes of a row. */
enum { STK_FILLER_IMAGE_TOKENS = 3 }; /* vision start, one pad, vision end */
static inline bool stk_plan_may_fill_image(const stk_plan_config *config)
{
    return config->filler_image || config->aligned;
}

#endif
