/* model.h - the checkpoint's numbers, read from its own files when a run opens; const afterwards. */
#ifndef STK_SCHEMA_MODEL_H
#define STK_SCHEMA_MODEL_H

#include <stdbool.h>
#include <stdint.h>

/* The ids of the tokens that Stoker itself writes or looks for. */
typedef struct stk_special_ids {
    int32_t end_of_text; /* "<|endoftext|>": padding and filler */
    int32_t turn_start;  /* "<|im_start|>" */
    int32_t turn_end;    /* "<|im_end|>" */
    int32_t image_pad, video_pad, vision_start, vision_end;
    int32_t newline;     /* the id of "\n" alone */
} stk_special_ids;

/* Work of a forward pass in units of its own: of a sample of l tokens text_square l^2 + text_linear l, of an image of p patches
 * vision_square p^2 + vision_linear p.  From the sizes of config.json; where they are not there, of a usual model. */
typedef struct stk_model_costs {
    uint64_t text_square, text_linear, vision_square, vision_linear;
} stk_model_costs;

typedef struct stk_model {
    char model_type[64];             /* config.json: "qwen3_vl", ... */
    uint32_t patch_px;               /* P: 14 or 16 */
    uint32_t merge;                  /* m: 2 */
    uint32_t temporal;               /* Tp: 2 */
    double image_mean[3], image_std[3];
    uint64_t min_px, max_px;         /* the checkpoint's limits (preprocessor_config.json) */
    uint32_t max_tokens;             /* tokenizer_config.json: model_max_length */
    bool mrope_per_frame;            /* videos count positions per frame (Qwen3-VL, Qwen3.5), not per clip (section 6.2) */
    double tokens_per_second;        /* Qwen2.5-VL's time axis; 0 where unused */
    stk_special_ids ids;             /* from tokenizer.json */
    stk_model_costs costs;           /* decide what is dealt together, so part of the fingerprint */
} stk_model;

/* The side that image sizes are multiples of: f = P * m. */
static inline uint32_t stk_model_factor(const stk_model *model)
{
    return model->patch_px * model->merge;
}

/* A grid of patches: what the vision tower sees of one medium. */
typedef struct stk_grid {
    uint32_t t, h, w; /* in patches; h and w are multiples of merge */
} stk_grid;

static inline uint64_t stk_grid_patches(stk_grid grid)
{
    return (uint64_t)grid.t * grid.h * grid.w;
}

static inline uint64_t stk_grid_tokens(stk_grid grid, uint32_t merge)
{
    return stk_grid_patches(grid) / ((uint64_t)merge * merge);
}

#endif
