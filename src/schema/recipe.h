/* recipe.h - a micro-batch before it is made: which samples, and where each of their parts goes.
 *
 * The plan writes it from facts alone; afterwards it is read-only. */
#ifndef STK_SCHEMA_RECIPE_H
#define STK_SCHEMA_RECIPE_H

#include <stdbool.h>

#include "schema/model.h"
#include "schema/rules.h"

#define STK_FILLER_MEDIA UINT64_MAX

/* One image of a micro-batch. */
typedef struct stk_recipe_media {
    uint64_t media_index;   /* in the media facts of its data set; STK_FILLER_MEDIA: of a filler */
    uint32_t width_px, height_px; /* after orientation and smart resize: grid times patch */
    stk_grid grid;
    uint64_t first_patch;   /* of the micro-batch's patches */
} stk_recipe_media;

/* One sample of a micro-batch, or filler. */
typedef struct stk_recipe_sample {
    bool filler;            /* one end-of-text token, no label; with a medium instead: an image of one visual token between its marks */
    uint32_t set_index;     /* of the run's data sets; also of a filler that stands for a record which cannot be used */
    uint64_t record_index;  /* in its data set, from 0 */
    uint32_t row;           /* of the micro-batch, < row_count */
    uint32_t first_token;   /* offset in that row */
    uint32_t token_count;   /* > 0, visual tokens included */
    uint32_t supervised_count;
    uint32_t first_media, media_count; /* of the recipe's media */
} stk_recipe_sample;

typedef struct stk_recipe {
    uint64_t step;
    uint32_t rank, world, micro, micro_count; /* micro < micro_count of this step */
    uint64_t epoch, rows_before; /* of the step's first row: position in the epoch, in rows of the whole batch */
    uint32_t row_count;     /* rows of this micro-batch */
    uint32_t row_tokens;    /* padded, packed: length of each row; flat: length of the one joined row */
    uint32_t segment_multiple; /* packed: samples start at multiples of it; else 1 */
    const uint32_t *step_row;  /* row_count: which row of the step each is; UINT32_MAX: filler */
    uint64_t token_count;   /* without padding, filler included */
    uint64_t patch_count;
    uint64_t loss_tokens;   /* planned supervised tokens of this micro-batch */
    uint64_t step_loss_tokens; /* planned, of the whole step over all ranks; 0: not known (index: stream) */
    stk_recipe_sample *sample; /* in row order, then by first_token */
    uint32_t sample_count;
    stk_recipe_media *media; /* in the order of the samples */
    uint32_t media_count;
} stk_recipe;

#endif
