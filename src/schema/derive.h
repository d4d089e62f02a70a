/* derive.h - what follows from facts once pixel limits are known: target sizes, visual tokens, usability.
 *
 * Grids and costs are derived when a run opens and never stored, so that another pixel limit reads no header again
 * (architecture section 2). */
#ifndef STK_SCHEMA_DERIVE_H
#define STK_SCHEMA_DERIVE_H

#include "base/error.h"
#include "schema/facts.h"
#include "schema/model.h"
#include "schema/recipe.h"
#include "schema/rules.h"

/* The size rule ("smart resize", spec-qwen3vl.md section 1.3): from an upright size to the target's.  factor > 0,
 * min_px <= max_px.  qwen_vl_utils clamps small sides to the factor before it looks at the limits, and does not when it
 * shrinks.  Returns STK_REASON_NONE, STK_REASON_RATIO (a side over 200 times the other), STK_REASON_NO_SIZE (a side of 0,
 * in the variant of qwen_vl_utils), or STK_REASON_MEDIA_LIMIT (a target beyond 2^20 pixels a side). */
stk_reason stk_target_size(uint32_t *target_width_px, uint32_t *target_height_px, uint32_t width_px, uint32_t height_px,
                           uint32_t factor, uint64_t min_px, uint64_t max_px, stk_profile profile);

/* The orientation that will be applied, 1..8.  That of a TIFF always is (spec-qwen3vl.md section 1.1: as Pillow loads it). */
uint8_t stk_media_orientation(const stk_media_facts *media, const stk_pixel_rules *pixels);

/* The grid of an image under pixel rules; its reason when it has none. */
stk_reason stk_media_grid(stk_grid *grid, const stk_media_facts *media, const stk_model *model,
                          const stk_pixel_rules *pixels);

typedef struct stk_record_size {
    stk_reason reason;        /* STK_REASON_NONE: usable */
    uint32_t token_count;     /* visual tokens included */
    uint32_t supervised_count;
    uint64_t visual_tokens;
    uint64_t patch_count;
    uint64_t patch_squares;   /* sum of p * p over the images of p patches each; cut at 2^62 */
    uint64_t max_px;          /* limit of its images: the rules', or lower where overlong: shrink made it fit */
} stk_record_size;

/* Usability and size of a record.  With another reason than NONE or OVERLONG the sizes are 0.  max_tokens > 0.
 *
 * With shrinks_overlong, the limit of pixels of a sample that is too long is lowered by a sixteenth at a time (rounded down, min_px with it),
 * until it fits or an image would have no more than one visual token, when it stays over-long. */
void stk_record_derive(stk_record_size *size, const stk_set_facts *facts, uint64_t record_index, const stk_model *model,
                       const stk_pixel_rules *pixels, uint32_t max_tokens);

/* The rules with a lower limit of pixels: what shrinking leaves of them. */
stk_pixel_rules stk_pixels_limited(const stk_pixel_rules *pixels, uint64_t max_px);

/* Append a usable image of a data set to a recipe's media, which have room; its patches stand behind those before it. */
void stk_recipe_add_media(stk_recipe *recipe, const stk_set_facts *facts, uint64_t media_index, const stk_model *model,
                          const stk_pixel_rules *pixels);

#endif
