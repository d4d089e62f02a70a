/* derive.c - target sizes and usability from facts. */
#include "schema/derive.h"

#include <math.h>
#include <string.h>

enum { MAX_RATIO = 200, MAX_SIDE_PX = 1 << 20 };

/* Not more than a side may be, so that sums of hostile numbers stay small. */
static bool to_side(uint32_t *out, double value)
{
    if (!(value >= 1 && value <= MAX_SIDE_PX)) return false;
    *out = (uint32_t)value;
    return true;
}

stk_reason stk_target_size(uint32_t *target_width_px, uint32_t *target_height_px, uint32_t width_px, uint32_t height_px,
                           uint32_t factor, uint64_t min_px, uint64_t max_px, stk_profile profile)
{
    *target_width_px = *target_height_px = 0;
    if (width_px == 0 || height_px == 0) return STK_REASON_BROKEN;
    const double f = factor, h0 = height_px, w0 = width_px;
    /* As the reference divides: a ratio of exactly 200 passes. */
    if (fmax(h0, w0) / fmin(h0, w0) > MAX_RATIO) return STK_REASON_RATIO;

    /* rint in the default rounding mode is Python's round: half to even.  The order of the divisions matters. */
    double h = rint(h0 / f) * f, w = rint(w0 / f) * f;
    const bool utils = profile == STK_PROFILE_QWEN_VL_UTILS;
    const double least = utils ? 0 : f; /* of a shrunk side */
    if (utils) {
        h = fmax(f, h);
        w = fmax(f, w);
    }
    if (h * w > (double)max_px) {
        const double beta = sqrt((h0 * w0) / (double)max_px);
        h = fmax(least, floor((h0 / beta) / f) * f);
        w = fmax(least, floor((w0 / beta) / f) * f);
        if (h == 0 || w == 0) return STK_REASON_NO_SIZE;
    } else if (h * w < (double)min_px) {
        const double beta = sqrt((double)min_px / (h0 * w0));
        h = ceil((h0 * beta) / f) * f;
        w = ceil((w0 * beta) / f) * f;
    }
    return to_side(target_width_px, w) && to_side(target_height_px, h) ? STK_REASON_NONE : STK_REASON_MEDIA_LIMIT;
}

uint8_t stk_media_orientation(const stk_media_facts *media, const stk_pixel_rules *pixels)
{
    /* Pillow turns a TIFF while it loads it: no caller of it can leave that out. */
    const bool ignored = pixels->ignore_orientation && media->format != STK_FORMAT_TIFF;
    return ignored || media->orientation < 1 || media->orientation > 8 ? 1 : media->orientation;
}

stk_reason stk_media_grid(stk_grid *grid, const stk_media_facts *media, const stk_model *model,
                          const stk_pixel_rules *pixels)
{
    *grid = (stk_grid){0};
    if (media->reason != STK_REASON_NONE) return (stk_reason)media->reason;
    const bool swaps = stk_media_orientation(media, pixels) >= 5;
    uint32_t width_px, height_px;
    const stk_reason reason =
        stk_target_size(&width_px, &height_px, swaps ? media->height_px : media->width_px,
                        swaps ? media->width_px : media->height_px, stk_model_factor(model), pixels->min_px, pixels->max_px, pixels->profile);
    if (reason == STK_REASON_NONE) *grid = (stk_grid){1, height_px / model->patch_px, width_px / model->patch_px};
    return reason;
}

enum { SQUARES_BITS = 62 };

static void add_image(stk_record_size *size, stk_grid grid, uint32_t merge)
{
    const uint64_t patches = stk_grid_patches(grid), most = (uint64_t)1 << SQUARES_BITS;
    const stk_u128 squares = (stk_u128)patches * patches + size->patch_squares;
    size->visual_tokens += stk_grid_tokens(grid, merge);
    size->patch_count += patches;
    size->patch_squares = squares < most ? (uint64_t)squares : most;
}

/* What the images of a record come to under a limit of pixels. */
static stk_reason derive_images(stk_record_size *size, const stk_set_facts *facts, const stk_record_facts *record,
                                const stk_model *model, const stk_pixel_rules *pixels)
{
    size->visual_tokens = size->patch_count = size->patch_squares = 0;
    size->max_px = pixels->max_px;
    for (uint32_t i = 0; i < record->media_count; i++) {
        stk_grid grid;
        const stk_reason reason = stk_media_grid(&grid, &facts->media[record->first_media + i], model, pixels);
        if (reason != STK_REASON_NONE) return reason;
        add_image(size, grid, model->merge);
    }
    return STK_REASON_NONE;
}

stk_pixel_rules stk_pixels_limited(const stk_pixel_rules *pixels, uint64_t max_px)
{
    stk_pixel_rules own = *pixels;
    own.max_px = max_px;
    if (own.min_px > max_px) own.min_px = max_px;
    return own;
}

/* Lower the images' limit until the record fits into `room` visual tokens. */
static void shrink(stk_record_size *size, const stk_set_facts *facts, const stk_record_facts *record, const stk_model *model,
                   const stk_pixel_rules *pixels, uint64_t room)
{
    const uint64_t factor = stk_model_factor(model), least = factor * factor;
    stk_record_size tried = {0};
    for (uint64_t limit = pixels->max_px - pixels->max_px / 16; limit >= least; limit -= (limit + 15) / 16) {
        const stk_pixel_rules own = stk_pixels_limited(pixels, limit);
        if (derive_images(&tried, facts, record, model, &own) != STK_REASON_NONE) return;
        if (tried.visual_tokens > room) continue;
        *size = tried;
        return;
    }
}

void stk_record_derive(stk_record_size *size, const stk_set_facts *facts, uint64_t record_index, const stk_model *model,
                       const stk_pixel_rules *pixels, uint32_t max_tokens)
{
    const stk_record_facts *const record = &facts->record[record_index];
    const stk_text_facts *const text = &facts->text[record_index];
    memset(size, 0, sizeof *size);
    size->reason = (stk_reason)(record->reason ? record->reason : text->reason);
    if (size->reason != STK_REASON_NONE) return;

    size->reason = derive_images(size, facts, record, model, pixels);
    if (size->reason != STK_REASON_NONE) {
        *size = (stk_record_size){.reason = size->reason};
        return;
    }
    /* Each medium is one pad in the text facts.  Sums stay far below 2^64: a side is at most 2^20 pixels. */
    const uint64_t words = (uint64_t)text->token_count - record->media_count;
    if (text->token_count < record->media_count || text->supervised_count == 0) {
        *size = (stk_record_size){.reason = STK_REASON_UNTRAINED};
        return;
    }
    if (words + size->visual_tokens > max_tokens && pixels->shrinks_overlong && words < max_tokens && record->media_count)
        shrink(size, facts, record, model, pixels, max_tokens - words);
    const uint64_t token_count = words + size->visual_tokens;
    if (token_count > max_tokens) size->reason = STK_REASON_OVERLONG;
    if (token_count > UINT32_MAX) {
        *size = (stk_record_size){.reason = STK_REASON_OVERLONG};
        return;
    }
    size->token_count = (uint32_t)token_count;
    size->supervised_count = text->supervised_count;
}

void stk_recipe_add_media(stk_recipe *recipe, const stk_set_facts *facts, uint64_t media_index, const stk_model *model,
                          const stk_pixel_rules *pixels)
{
    stk_recipe_media *const media = &recipe->media[recipe->media_count++];
    media->media_index = media_index;
    (void)stk_media_grid(&media->grid, &facts->media[media_index], model, pixels); /* usable, so there is one */
    media->width_px = media->grid.w * model->patch_px;
    media->height_px = media->grid.h * model->patch_px;
    media->first_patch = recipe->patch_count;
    recipe->patch_count += stk_grid_patches(media->grid);
}
