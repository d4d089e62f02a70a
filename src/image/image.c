/* image.c - rows of a codec to lines of the target, band by band, into the patches or into plain RGB.
 *
 *     stored row -> planes -> [along] -> ring of rows -> [across] -> line \
 *                                                                          > band of P lines -> patches
 *     stored row -> planes -> ring of rows -> [across] -> [along] -> line /     (across first)
 *
 * "along" is along a stored row and "across" goes from row to row.  PyTorch resizes the upright picture's width
 * first, Pillow sometimes its height; when the picture lies on its side, its width is across, and its lines are
 * columns of the target.  A pass whose size does not change falls away.  Mirrored axes only change weights and
 * the order of lines.  Nothing holds the picture.
 *
 * Not here: how rows are decoded (jpeg.c, png.c, ...), the weights (axis.c), the inner loops (kernels.c).
 */
#include "image/image.h"

#include <math.h>

#include "base/clock.h"
#include "base/fault.h"
#include "image/codec.h"
#include "image/kernels.h"

enum {
    AXIS_SLOTS = 8,
    AXIS_KEPT_BYTES = 256 * 1024, /* a larger table goes when its picture is done */
    BLOCK_KEPT_BYTES = 2 * 1024 * 1024,
    MAX_PATCH_PX = 64,
};
_Static_assert(AXIS_SLOTS *AXIS_KEPT_BYTES + BLOCK_KEPT_BYTES <= STK_IMAGE_SCRATCH_KEPT_BYTES,
               "what a scratch keeps");

struct stk_image_spec {
    stk_limits limits;
    stk_profile profile;
    bool fine; /* the resize is Pillow's */
    uint32_t merge;
    stk_patch_rule rule;
    stk_image_kernels kernels;
};

typedef struct axis_slot {
    stk_axis axis; /* source_px 0: empty */
    void *memory;
    size_t capacity_bytes;
    uint64_t used_at; /* of the scratch's clock of pictures */
} axis_slot;

struct stk_image_scratch {
    axis_slot slot[AXIS_SLOTS];
    uint64_t now;
    uint8_t *block; /* rows, ring and band of one picture */
    size_t block_bytes;
    void *codec_state;
};

/* --- spec --- */

static bool is_usable(double mean, double deviation)
{
    const float d = (float)deviation * 255.0f;
    return isfinite(mean) && isfinite(deviation) && isfinite(d) && d != 0.0f;
}

stk_status stk_image_spec_create(stk_image_spec **out, const stk_model *model, stk_profile profile,
                                 stk_pixel_form form, const stk_limits *limits, stk_cpu_level level,
                                 stk_error *err)
{
    *out = NULL;
    if (model->patch_px < 1 || model->patch_px > MAX_PATCH_PX || model->merge < 1 || model->merge > 16 ||
        model->temporal < 1 || model->temporal > 16) {
        return stk_fail(err, STK_ERR_MODEL,
                        "patches of %u pixels, merged by %u, %u frames deep, are not supported: check "
                        "preprocessor_config.json",
                        model->patch_px, model->merge, model->temporal);
    }
    for (int ch = 0; ch < 3; ch++) {
        if (is_usable(model->image_mean[ch], model->image_std[ch])) continue;
        return stk_fail(err, STK_ERR_MODEL,
                        "image_mean %g and image_std %g cannot be used: check preprocessor_config.json",
                        model->image_mean[ch], model->image_std[ch]);
    }
    stk_image_spec *const spec = stk_alloc(STK_TAG_IMAGE, sizeof *spec);
    if (!spec) return stk_fail(err, STK_ERR_NOMEM, "no memory for the tables of an image");
    spec->limits = *limits;
    spec->profile = profile;
    spec->fine = profile != STK_PROFILE_HF;
    spec->merge = model->merge;
    spec->rule.form = form;
    spec->rule.side_px = model->patch_px;
    spec->rule.temporal = model->temporal;
    const bool scales_first = spec->fine && profile != STK_PROFILE_QWEN_VL_UTILS;
    stk_patch_rule_init(&spec->rule, model->image_mean, model->image_std, scales_first);
    stk_image_kernels_init(&spec->kernels, &spec->rule, spec->fine, level);
    *out = spec;
    return STK_OK;
}

void stk_image_spec_destroy(stk_image_spec *spec)
{
    stk_free(spec);
}

void stk_image_values(const stk_image_spec *spec, float value[3][256])
{
    memcpy(value, spec->rule.f32, sizeof spec->rule.f32);
}

size_t stk_image_patch_bytes(const stk_image_spec *spec)
{
    const size_t values = (size_t)3 * spec->rule.side_px * spec->rule.side_px;
    switch (spec->rule.form) {
    case STK_PIXELS_FLOAT32: return values * spec->rule.temporal * sizeof(float);
    case STK_PIXELS_BFLOAT16: return values * spec->rule.temporal * sizeof(uint16_t);
    case STK_PIXELS_UINT8: break;
    }
    return values;
}

/* --- scratch --- */

static const struct {
    stk_codec_open_fn *open;
    size_t (*state_bytes)(void);
} codecs[] = {
    [STK_FORMAT_JPEG] = {stk_jpeg_open, stk_jpeg_state_bytes},
    [STK_FORMAT_PNG] = {stk_png_open, stk_png_state_bytes},
    [STK_FORMAT_WEBP] = {stk_webp_open, stk_webp_state_bytes},
    [STK_FORMAT_GIF] = {stk_gif_open, stk_gif_state_bytes},
    [STK_FORMAT_BMP] = {stk_bmp_open, stk_bmp_state_bytes},
    [STK_FORMAT_TIFF] = {stk_tiff_open, stk_tiff_state_bytes},
};
static const size_t codec_count = sizeof codecs / sizeof *codecs;

static size_t codec_state_bytes(void)
{
    size_t largest = 0;
    for (size_t i = STK_FORMAT_UNKNOWN + 1; i < codec_count; i++) {
        const size_t bytes = codecs[i].state_bytes();
        if (bytes > largest) largest = bytes;
    }
    return largest;
}

stk_status stk_image_scratch_create(stk_image_scratch **out, const stk_image_spec *spec, stk_error *err)
{
    *out = NULL;
    (void)spec;
    stk_image_scratch *const s = stk_alloc(STK_TAG_IMAGE, sizeof *s);
    if (!s) return stk_fail(err, STK_ERR_NOMEM, "no memory for a worker's image scratch");
    s->codec_state = stk_alloc(STK_TAG_IMAGE, codec_state_bytes());
    if (!s->codec_state) {
        stk_free(s);
        return stk_fail(err, STK_ERR_NOMEM, "no memory for a worker's image scratch");
    }
    *out = s;
    return STK_OK;
}

void stk_image_scratch_destroy(stk_image_scratch *scratch)
{
    if (!scratch) return;
    for (int i = 0; i < AXIS_SLOTS; i++) stk_free(scratch->slot[i].memory);
    stk_free(scratch->block);
    stk_free(scratch->codec_state);
    stk_free(scratch);
}

static void drop_slot(axis_slot *slot)
{
    stk_free(slot->memory);
    *slot = (axis_slot){0};
}

/* The table of an axis, from the cache or made anew in the place of the one that was not used for longest. */
static const stk_axis *find_axis(stk_image_scratch *s, uint32_t source_px, uint32_t target_px, bool mirrored,
                                 bool fine)
{
    axis_slot *oldest = &s->slot[0];
    for (int i = 0; i < AXIS_SLOTS; i++) {
        axis_slot *const slot = &s->slot[i];
        if (slot->axis.source_px == source_px && slot->axis.target_px == target_px &&
            slot->axis.mirrored == mirrored && slot->axis.fine == fine) {
            slot->used_at = s->now;
            return &slot->axis;
        }
        if (slot->used_at < oldest->used_at) oldest = slot;
    }
    const size_t bytes = stk_axis_bytes(source_px, target_px, fine);
    if (oldest->capacity_bytes < bytes) {
        drop_slot(oldest);
        oldest->memory = stk_alloc(STK_TAG_IMAGE, bytes);
        if (!oldest->memory) return NULL;
        oldest->capacity_bytes = bytes;
    } else {
        memset(oldest->memory, 0, bytes);
    }
    oldest->used_at = s->now;
    stk_axis_init(&oldest->axis, oldest->memory, source_px, target_px, mirrored, fine);
    return &oldest->axis;
}

static void shrink(stk_image_scratch *s)
{
    for (int i = 0; i < AXIS_SLOTS; i++) {
        if (s->slot[i].capacity_bytes > AXIS_KEPT_BYTES) drop_slot(&s->slot[i]);
    }
    if (s->block_bytes > BLOCK_KEPT_BYTES) {
        stk_free(s->block);
        s->block = NULL;
        s->block_bytes = 0;
    }
}

/* --- one picture --- */

typedef struct job {
    const stk_image_spec *spec;
    stk_codec *codec;
    uint32_t plane_count;           /* 1 or 3 */
    bool on_side;                   /* lines are columns of the target */
    bool across_first;              /* so the ring holds rows as stored */
    bool turns_along, turns_across; /* against the stored order */
    uint32_t length_px, line_count; /* of the target, as the lines run */
    const stk_axis *along, *across; /* NULL: the size stays */

    uint8_t *codec_band;
    uint8_t *row;            /* planes of one stored row */
    uint8_t *ring;           /* ring_rows x planes */
    uint8_t *band;           /* planes x P lines */
    uint8_t *tile;           /* three squares of P, for bands of columns */
    const uint8_t **tap_row; /* ring_rows pointers: the rows that a line is made of */
    size_t row_stride, ring_stride, line_stride;
    uint32_t ring_rows, band_lines;

    uint32_t rows_in, lines_out;
    uint8_t *patches, *rgb; /* one of them */
} job;

/* Sizes and layout of a picture's work, from its header. */
typedef struct layout {
    size_t codec_band, row_stride, ring_stride, line_stride, total_bytes;
    uint32_t ring_rows;
} layout;

static size_t padded(uint32_t length_px)
{
    return stk_round_up(length_px, STK_ALIGN_BYTES) + STK_PAD_BYTES;
}

static bool add_product(size_t *sum, size_t a, size_t b)
{
    size_t product;
    return !stk_mul_overflows(&product, a, b) &&
           !stk_add_overflows(sum, *sum, stk_round_up(product, STK_ALIGN_BYTES));
}

static bool plan_layout(layout *l, uint32_t width_px, uint32_t length_px, uint32_t window,
                        bool across_first, uint32_t band_lines)
{
    *l = (layout){.codec_band = stk_codec_band_bytes(width_px),
                  .row_stride = padded(width_px),
                  .line_stride = padded(length_px)};
    l->ring_stride = across_first ? l->row_stride : l->line_stride;
    l->ring_rows = window;
    return add_product(&l->total_bytes, l->codec_band, 1) && add_product(&l->total_bytes, l->row_stride, 3) &&
           add_product(&l->total_bytes, l->ring_stride, (size_t)3 * window) &&
           add_product(&l->total_bytes, l->line_stride, (size_t)3 * band_lines) &&
           add_product(&l->total_bytes, (size_t)3 * MAX_PATCH_PX * MAX_PATCH_PX, 1) &&
           add_product(&l->total_bytes, sizeof(uint8_t *), window);
}

static void orient(job *j, uint8_t orientation)
{
    j->on_side = stk_orientation_swaps(orientation);
    j->turns_along = orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
    j->turns_across = orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
}

/* Which pass of an upright picture comes first depends on Pillow's release (spec-qwen3vl.md section 2.4).  It
 * matters where both sides change, because what lies between the passes is rounded. */
static bool height_is_first(stk_profile profile, uint32_t width_px, uint32_t height_px, uint32_t target_width_px,
                            uint32_t target_height_px)
{
    const int64_t w = width_px, h = height_px, shrinks_by = h - target_height_px;
    switch (profile) {
    case STK_PROFILE_HF:
    case STK_PROFILE_PIL_11: return false;
    case STK_PROFILE_PIL_12: return h > 100 * w && shrinks_by > 0;
    case STK_PROFILE_PIL_13:
    case STK_PROFILE_QWEN_VL_UTILS: return shrinks_by > 0 && 2 * (w - target_width_px) < shrinks_by;
    }
    return false;
}

static stk_status no_memory(stk_reason *reason, size_t bytes, stk_error *err)
{
    *reason = STK_REASON_NONE;
    const stk_status status =
        stk_fail(err, STK_ERR_NOMEM, "no memory for %zu bytes to resize an image", bytes);
    stk_error_stage(err, STK_STAGE_TRANSFORM);
    return status;
}

/* Find the weights and lay out the block: everything that a picture needs beside its codec. */
static stk_status prepare(job *j, stk_image_scratch *s, const stk_image_info *info, uint32_t target_width_px,
                          uint32_t target_height_px, stk_reason *reason, stk_error *err)
{
    j->length_px = j->on_side ? target_height_px : target_width_px;
    j->line_count = j->on_side ? target_width_px : target_height_px;
    j->band_lines = j->spec->rule.side_px;
    j->across_first = height_is_first(j->spec->profile, j->on_side ? info->height_px : info->width_px,
                                      j->on_side ? info->width_px : info->height_px, target_width_px,
                                      target_height_px) != j->on_side;
    s->now++;
    if (j->length_px != info->width_px) {
        j->along = find_axis(s, info->width_px, j->length_px, j->turns_along, j->spec->fine);
        if (!j->along) return no_memory(reason, stk_axis_bytes(info->width_px, j->length_px, j->spec->fine), err);
    }
    if (j->line_count != info->height_px) {
        j->across = find_axis(s, info->height_px, j->line_count, j->turns_across, j->spec->fine);
        if (!j->across) return no_memory(reason, stk_axis_bytes(info->height_px, j->line_count, j->spec->fine), err);
    }
    layout l;
    const bool fits = plan_layout(&l, info->width_px, j->length_px, j->across ? j->across->window : 0,
                                  j->across_first, j->band_lines);
    if (!fits) return no_memory(reason, SIZE_MAX, err);
    if (s->block_bytes < l.total_bytes) {
        stk_free(s->block);
        s->block = stk_alloc(STK_TAG_IMAGE, l.total_bytes);
        s->block_bytes = s->block ? l.total_bytes : 0;
        if (!s->block) return no_memory(reason, l.total_bytes, err);
    }
    j->row_stride = l.row_stride;
    j->ring_stride = l.ring_stride;
    j->line_stride = l.line_stride;
    j->ring_rows = l.ring_rows;
    j->codec_band = s->block;
    j->row = j->codec_band + stk_round_up(l.codec_band, STK_ALIGN_BYTES);
    j->ring = j->row + 3 * l.row_stride;
    j->band = j->ring + 3 * l.ring_stride * l.ring_rows;
    j->tile = j->band + 3 * l.line_stride * j->band_lines;
    j->tap_row = (const uint8_t **)(void *)(j->tile + 3 * MAX_PATCH_PX * MAX_PATCH_PX);
    return STK_OK;
}

/* The planes of a line in the band, and of a row in the ring. */
static void line_planes(const job *j, uint8_t **plane, uint32_t line)
{
    for (uint32_t p = 0; p < j->plane_count; p++)
        plane[p] = j->band + (p * j->band_lines + line % j->band_lines) * j->line_stride;
}

static void ring_planes(const job *j, uint8_t **plane, uint32_t row)
{
    for (uint32_t p = 0; p < j->plane_count; p++)
        plane[p] = j->ring + (p * j->ring_rows + row % j->ring_rows) * j->ring_stride;
}

/* --- bands to their final place --- */

static uint8_t *patch_at(const job *j, uint32_t patch_x, uint32_t patch_y)
{
    const uint32_t m = j->spec->merge;
    const uint32_t width = (j->on_side ? j->line_count : j->length_px) / j->spec->rule.side_px;
    const size_t block = (size_t)(patch_y / m) * (width / m) + patch_x / m;
    return j->patches + (block * m * m + patch_y % m * m + patch_x % m) * stk_image_patch_bytes(j->spec);
}

static void band_to_patches(const job *j, uint32_t band)
{
    const uint32_t side = j->spec->rule.side_px;
    const stk_image_kernels *const k = &j->spec->kernels;
    uint8_t *first[3], *tile[3];
    line_planes(j, first, 0);
    for (uint32_t p = 0; p < 3; p++) tile[p] = j->tile + (p < j->plane_count ? p : 0) * side * side;

    for (uint32_t i = 0; i < j->length_px / side; i++) {
        const uint8_t *source[3];
        for (uint32_t p = 0; p < 3; p++) source[p] = first[p < j->plane_count ? p : 0] + i * side;
        if (!j->on_side) {
            k->patch(patch_at(j, i, band), source, j->line_stride, &j->spec->rule);
            continue;
        }
        for (uint32_t p = 0; p < j->plane_count; p++) k->turn(tile[p], side, source[p], j->line_stride, side);
        k->patch(patch_at(j, band, i), (const uint8_t *const *)tile, side, &j->spec->rule);
    }
}

static void band_to_rgb(const job *j, uint32_t band)
{
    const uint32_t first_line = band * j->band_lines;
    const size_t width = j->on_side ? j->line_count : j->length_px;
    for (uint32_t line = first_line; line < j->line_count && line < first_line + j->band_lines; line++) {
        uint8_t *plane[3];
        line_planes(j, plane, line);
        for (uint32_t i = 0; i < j->length_px; i++) {
            const size_t at = j->on_side ? i * width + line : line * width + i;
            for (uint32_t p = 0; p < 3; p++) j->rgb[3 * at + p] = plane[p < j->plane_count ? p : 0][i];
        }
    }
}

/* Lines come from one end to the other, so a band is complete with the last of its lines on that way. */
static void line_done(job *j, uint32_t line)
{
    j->lines_out++;
    const bool last = j->turns_across
                          ? line % j->band_lines == 0
                          : line % j->band_lines == j->band_lines - 1 || line == j->line_count - 1;
    if (!last) return;
    if (j->patches)
        band_to_patches(j, line / j->band_lines);
    else
        band_to_rgb(j, line / j->band_lines);
}

/* --- rows to lines --- */

static void unpack(const job *j, uint8_t *const *plane, const uint8_t *row)
{
    if (j->plane_count == 3)
        j->spec->kernels.split(plane[0], plane[1], plane[2], row, j->codec->width_px);
    else
        memcpy(plane[0], row, j->codec->width_px);
}

static bool works_along(const job *j)
{
    return j->along || j->turns_along;
}

static void go_along(const job *j, uint8_t *const *dst, uint8_t *const *src)
{
    if (j->along) {
        j->spec->kernels.along(dst, (const uint8_t *const *)src, j->plane_count, j->along);
        return;
    }
    for (uint32_t p = 0; p < j->plane_count; p++) {
        for (uint32_t x = 0; x < j->length_px; x++) dst[p][x] = src[p][j->length_px - 1 - x];
    }
}

/* Line number `line` from the ring, into planes. */
static void go_across(const job *j, uint8_t *const *dst, uint32_t line)
{
    const stk_axis *const a = j->across;
    const uint32_t first = a->first[line], count = a->count[line];
    const size_t length = j->across_first ? j->codec->width_px : j->length_px;
    for (uint32_t p = 0; p < j->plane_count; p++) {
        for (uint32_t t = 0; t < count; t++)
            j->tap_row[t] = j->ring + (p * j->ring_rows + (first + t) % j->ring_rows) * j->ring_stride;
        j->spec->kernels.across(dst[p], j->tap_row, a, line, length);
    }
}

static uint32_t line_at(const job *j, uint32_t order)
{
    return j->turns_across ? j->line_count - 1 - order : order;
}

/* All lines that the rows up to now complete. */
static void emit_lines(job *j)
{
    uint8_t *row[3], *line[3];
    for (uint32_t p = 0; p < 3; p++) row[p] = j->row + p * j->row_stride;
    while (j->lines_out < j->line_count) {
        const uint32_t at = line_at(j, j->lines_out);
        if (j->across->first[at] + j->across->count[at] > j->rows_in) return;
        line_planes(j, line, at);
        if (j->across_first && works_along(j)) {
            go_across(j, row, at);
            go_along(j, line, row);
        } else {
            go_across(j, line, at);
        }
        line_done(j, at);
    }
}

static void feed(job *j, const uint8_t *stored)
{
    uint8_t *row[3], *to[3];
    for (uint32_t p = 0; p < 3; p++) row[p] = j->row + p * j->row_stride;
    if (j->across)
        ring_planes(j, to, j->rows_in);
    else
        line_planes(j, to, line_at(j, j->rows_in));

    if (works_along(j) && !(j->across && j->across_first)) {
        unpack(j, row, stored);
        go_along(j, to, row);
    } else {
        unpack(j, to, stored);
    }
    j->rows_in++;
    if (j->across)
        emit_lines(j);
    else
        line_done(j, line_at(j, j->rows_in - 1));
}

static stk_status pump(job *j, stk_image_times *times, stk_reason *reason, stk_error *err)
{
    stk_ns then = stk_now();
    stk_status status = STK_OK;
    while (status == STK_OK && j->rows_in < j->codec->height_px) {
        stk_codec_rows rows;
        status = j->codec->ops->read(j->codec, &rows, reason, err);
        const stk_ns decoded = stk_now();
        for (uint32_t i = 0; status == STK_OK && i < rows.count; i++)
            feed(j, rows.data + i * rows.stride_bytes);
        const stk_ns fed = stk_now();
        times->decode_ns += decoded - then;
        times->transform_ns += fed - decoded;
        then = fed;
    }
    if (status == STK_OK) status = j->codec->ops->finish(j->codec, reason, err);
    times->decode_ns += stk_now() - then;
    return status;
}

static stk_status open_codec(job *j, stk_image_scratch *s, stk_bytes bytes, const stk_image_info *info,
                             stk_alpha_rule alpha, stk_reason *reason, stk_error *err)
{
    const stk_limits *const limits = &j->spec->limits;
    if (info->format > STK_FORMAT_UNKNOWN && (size_t)info->format < codec_count)
        return codecs[info->format].open(&j->codec, s->codec_state, j->codec_band, bytes, info, alpha, limits,
                                         reason, err);
    return stk_image_unsupported(reason, err, "a picture of unknown format: probe it first");
}

static stk_status run(job *j, stk_image_scratch *s, stk_bytes bytes, const stk_image_info *info,
                      uint8_t orientation, stk_alpha_rule alpha, uint32_t target_width_px, uint32_t target_height_px,
                      stk_image_times *times, stk_reason *reason, stk_error *err)
{
    *reason = STK_REASON_NONE;
    if (!target_width_px || !target_height_px || !info->width_px || !info->height_px || orientation < 1 ||
        orientation > 8) {
        return stk_fail(err, STK_ERR_USAGE,
                        "an image of %ux%u pixels cannot become %ux%u with orientation %u", info->width_px,
                        info->height_px, target_width_px, target_height_px, orientation);
    }
    stk_image_times unused = {0};
    if (!times) times = &unused;
    if (stk_fault_at(STK_FAULT_DECODE_CRASH, info->width_px)) __builtin_trap(); /* as a fault in a library would */
    orient(j, orientation);
    const stk_ns start = stk_now();
    stk_status status = prepare(j, s, info, target_width_px, target_height_px, reason, err);
    const stk_ns prepared = stk_now();
    times->transform_ns += prepared - start;
    if (status == STK_OK) {
        status = open_codec(j, s, bytes, info, alpha, reason, err);
        times->decode_ns += stk_now() - prepared;
    }
    if (status == STK_OK) {
        j->plane_count = j->codec->channels;
        status = pump(j, times, reason, err);
        j->codec->ops->close(j->codec);
    }
    shrink(s);
    return status;
}

stk_status stk_image_patches(void *patches, const stk_image_spec *spec, stk_image_scratch *scratch,
                             stk_bytes bytes, const stk_image_info *info, uint8_t orientation, stk_alpha_rule alpha,
                             uint32_t target_width_px, uint32_t target_height_px, stk_image_times *times,
                             stk_reason *reason, stk_error *err)
{
    const uint32_t factor = spec->rule.side_px * spec->merge;
    if (target_width_px % factor || target_height_px % factor) {
        *reason = STK_REASON_NONE;
        return stk_fail(err, STK_ERR_USAGE, "a target of %ux%u pixels is no multiple of %u", target_width_px,
                        target_height_px, factor);
    }
    job j = {.spec = spec, .patches = patches};
    const stk_status status =
        run(&j, scratch, bytes, info, orientation, alpha, target_width_px, target_height_px, times, reason, err);
    /* Stores past the cache are seen by others only behind a fence. */
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    return status;
}

stk_status stk_image_rgb(uint8_t *rgb, const stk_image_spec *spec, stk_image_scratch *scratch,
                         stk_bytes bytes, const stk_image_info *info, uint8_t orientation, stk_alpha_rule alpha,
                         uint32_t target_width_px, uint32_t target_height_px, stk_reason *reason,
                         stk_error *err)
{
    job j = {.spec = spec, .rgb = rgb};
    return run(&j, scratch, bytes, info, orientation, alpha, target_width_px, target_height_px, NULL, reason, err);
}

void stk_image_grey(void *patches, const stk_image_spec *spec, uint64_t patch_count)
{
    uint8_t grey[MAX_PATCH_PX * MAX_PATCH_PX];
    memset(grey, 128, sizeof grey);
    const uint8_t *const plane[3] = {grey, grey, grey};
    const size_t patch_bytes = stk_image_patch_bytes(spec);
    for (uint64_t i = 0; i < patch_count; i++) {
        spec->kernels.patch((uint8_t *)patches + i * patch_bytes, plane, spec->rule.side_px, &spec->rule);
    }
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

/* --- memory --- */

/* What a library takes when only facts are known: the worst of its format. */
static uint64_t codec_bytes(const stk_image_info *info)
{
    if (info->codec_bytes) return info->codec_bytes;
    const uint64_t px = (uint64_t)info->width_px * info->height_px;
    const uint64_t sides = (uint64_t)info->width_px + info->height_px;
    uint64_t base = STK_CODEC_BASE_BYTES, each = 0; /* bytes a pixel */
    switch (info->format) {
    case STK_FORMAT_UNKNOWN:
        base = STK_CODEC_TIFF_BASE_BYTES;
        each = STK_CODEC_WHOLE_BYTES;
        break;
    case STK_FORMAT_TIFF:
        if (info->whole) base = STK_CODEC_TIFF_BASE_BYTES;
        each = info->whole ? STK_CODEC_WHOLE_BYTES : 0;
        break;
    case STK_FORMAT_WEBP: each = STK_CODEC_WHOLE_BYTES; break;
    case STK_FORMAT_GIF:
    case STK_FORMAT_BMP: each = info->whole ? 1 : 0; break;
    case STK_FORMAT_PNG: each = info->whole ? 4 : 0; break;
    case STK_FORMAT_JPEG: each = info->whole ? 8 : 0; break;
    }
    return base + sides * STK_CODEC_SIDE_BYTES + px * each;
}

static size_t resize_bytes(const stk_image_info *info, uint32_t length_px, uint32_t line_count)
{
    const uint32_t down = info->height_px > line_count ? (info->height_px + line_count - 1) / line_count : 1;
    layout l;
    const bool across_first = info->width_px > length_px; /* whichever ring is larger */
    if (!plan_layout(&l, info->width_px, length_px, 4 * down + 4, across_first, MAX_PATCH_PX)) return SIZE_MAX / 4;
    return l.total_bytes + stk_axis_bytes(info->width_px, length_px, true) +
           stk_axis_bytes(info->height_px, line_count, true);
}

size_t stk_image_work_most(uint64_t media_px, uint32_t factor, uint64_t target_px)
{
    enum {
        MOST_RATIO = 200,
        TARGET_RATIO = 4 * MOST_RATIO, /* rounding to the factor makes a short side at most half as long, a long one half as long again */
        MOST_SIDE_PX = 1 << 24,
        SOURCE_TAPS_BYTES = 64 /* of a table, per pixel that it is made from */
    };
    const uint64_t source_px = (uint64_t)sqrt((double)media_px * MOST_RATIO) + 1,
                   long_px = (uint64_t)sqrt((double)target_px * TARGET_RATIO) + factor;
    uint64_t side_px = source_px > long_px ? source_px : long_px;
    if (side_px > MOST_SIDE_PX) side_px = MOST_SIDE_PX;
    /* The ring has four rows for each row that a target's is made from, and four more; with the sides' product given they are the most where
     * the target is as low as it can be. */
    const uint64_t ring = 3 * (4 * (media_px / factor + side_px) + 4 * side_px) + 8 * (4 * source_px + 8);
    layout l;
    if (!plan_layout(&l, (uint32_t)side_px, (uint32_t)side_px, 8, true, MAX_PATCH_PX)) return SIZE_MAX / 4;
    const uint64_t tables = 2 * (stk_axis_bytes((uint32_t)side_px, (uint32_t)side_px, true) + SOURCE_TAPS_BYTES * side_px);
    const uint64_t codec = STK_CODEC_TIFF_BASE_BYTES + 2 * source_px * STK_CODEC_SIDE_BYTES + media_px * STK_CODEC_WHOLE_BYTES;
    return (size_t)(l.total_bytes + ring + tables + codec);
}

size_t stk_image_work_bytes(const stk_image_info *info, uint32_t target_width_px, uint32_t target_height_px)
{
    if (!target_width_px || !target_height_px || !info->width_px || !info->height_px) return 0;
    /* An orientation may be applied or ignored: a side twice as long as the other tells which of them the target is of. */
    const bool wide = info->width_px / 2 >= info->height_px, high = info->height_px / 2 >= info->width_px;
    const bool target_wide = target_width_px > target_height_px, target_high = target_height_px > target_width_px;
    const bool is_swapped = stk_orientation_swaps(info->orientation) && ((wide && target_high) || (high && target_wide));
    const bool may_be_swapped = stk_orientation_swaps(info->orientation) && !(wide && target_wide) && !(high && target_high);
    const size_t ours = is_swapped ? 0 : resize_bytes(info, target_width_px, target_height_px);
    const size_t on_side = may_be_swapped ? resize_bytes(info, target_height_px, target_width_px) : 0;
    return (on_side > ours ? on_side : ours) + (size_t)codec_bytes(info);
}
