/* bmp.c - BMP pictures: the kinds that Pillow reads, and the values that it reads from them
 * (spec-qwen3vl.md sections 1.1 and 1.2).
 *
 * Own code: rows lie in the file as they are, from the bottom or from the top, so only the indices of a
 * run-length coded picture are held.  Where Pillow differs from the format's description it is followed: a
 * palette of greys makes the stored values the greys, whatever the depth says; the fourth byte of a plain
 * 32-bit pixel is nothing; runs that end before the last row make the file unusable. */
#include "image/codec.h"

enum { FILE_HEAD_BYTES = 14, RAW = 0, RLE8 = 1, RLE4 = 2, BITFIELDS = 3 };

/* How a row is stored. */
typedef enum bmp_form {
    BMP_BITS, /* black and white */
    BMP_GREY, /* one byte a pixel */
    BMP_INDEX1,
    BMP_INDEX4,
    BMP_INDEX8,
    BMP_555, /* 16 bits a pixel */
    BMP_565,
    BMP_BYTES, /* three or four bytes a pixel, in any order */
} bmp_form;

/* Everything about a picture, from its header and its palette. */
typedef struct bmp_plan {
    uint32_t width_px, height_px, bits, compression;
    bool top_down, has_alpha;
    bmp_form form;
    uint8_t at[4]; /* of R, G, B and alpha in a pixel of BMP_BYTES */
    uint64_t colors, colors_at;
    uint32_t color_bytes; /* of one palette entry */
    uint32_t color_count; /* that the file holds */
    uint64_t pixels_at, stride_bytes, row_bytes;
} bmp_plan;

static stk_status cut(stk_bytes bytes, uint64_t total_bytes, stk_reason *reason, stk_error *err)
{
    if (bytes.size_bytes < total_bytes) return STK_AGAIN;
    return stk_image_broken(reason, err,
                            "truncated BMP: the file ends inside its header; fetch it again or leave it out");
}

static stk_status cut_pixels(stk_reason *reason, stk_error *err)
{
    return stk_image_broken(
        reason, err, "truncated BMP: the file ends before its last row; fetch it again or leave it out");
}

static bool is_run_length(const bmp_plan *p)
{
    return p->compression == RLE8 || p->compression == RLE4;
}

/* --- the header --- */

/* Which byte is which colour: the masks that Pillow knows, by depth; all others it refuses. */
static stk_status read_masks(bmp_plan *p, const uint32_t mask[4], stk_reason *reason, stk_error *err)
{
    enum { NONE = 255 };
    static const struct {
        uint32_t bits, mask[4];
        bmp_form form;
        uint8_t at[4];
    } known[] = {
        {32, {0xff0000, 0xff00, 0xff, 0}, BMP_BYTES, {2, 1, 0, NONE}},
        {32, {0xff000000, 0xff0000, 0xff00, 0}, BMP_BYTES, {3, 2, 1, NONE}},
        {32, {0xff000000, 0xff00, 0xff, 0}, BMP_BYTES, {3, 1, 0, NONE}},
        {32, {0xff000000, 0xff0000, 0xff00, 0xff}, BMP_BYTES, {3, 2, 1, 0}},
        {32, {0xff, 0xff00, 0xff0000, 0xff000000}, BMP_BYTES, {0, 1, 2, 3}},
        {32, {0xff0000, 0xff00, 0xff, 0xff000000}, BMP_BYTES, {2, 1, 0, 3}},
        {32, {0xff000000, 0xff00, 0xff, 0xff0000}, BMP_BYTES, {3, 1, 0, 2}},
        {32, {0, 0, 0, 0}, BMP_BYTES, {2, 1, 0, 3}},
        {24, {0xff0000, 0xff00, 0xff, 0}, BMP_BYTES, {2, 1, 0, NONE}},
        {16, {0xf800, 0x7e0, 0x1f, 0}, BMP_565, {0}},
        {16, {0x7c00, 0x3e0, 0x1f, 0}, BMP_555, {0}},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        const size_t masks = p->bits == 32 ? 4 : 3; /* below 32 bits alpha says nothing */
        if (known[i].bits != p->bits || memcmp(known[i].mask, mask, masks * sizeof *mask) != 0) continue;
        p->form = known[i].form;
        memcpy(p->at, known[i].at, sizeof p->at);
        p->has_alpha = p->form == BMP_BYTES && p->at[3] != NONE;
        return STK_OK;
    }
    return stk_image_unsupported(
        reason, err, "BMP with %u bits and masks %x, %x, %x, %x is not supported: convert it to PNG", p->bits,
        mask[0], mask[1], mask[2], mask[3]);
}

/* The fields of a header of head_bytes, which are all there. */
static void read_fields(bmp_plan *p, const uint8_t *head, uint32_t head_bytes)
{
    if (head_bytes == 12) {
        p->width_px = stk_le16(head + 4);
        p->height_px = stk_le16(head + 6);
        p->bits = stk_le16(head + 10);
        p->color_bytes = 3;
    } else {
        p->top_down = head[11] == 0xff;
        p->width_px = stk_le32(head + 4);
        p->height_px = p->top_down ? 0u - stk_le32(head + 8) : stk_le32(head + 8);
        p->bits = stk_le16(head + 14);
        p->compression = stk_le32(head + 16);
        p->colors = stk_le32(head + 32);
        p->color_bytes = 4;
    }
    if (p->colors == 0 && p->bits <= 8) p->colors = 1u << p->bits;
}

static stk_status check_fields(const bmp_plan *p, stk_reason *reason, stk_error *err)
{
    if (!p->width_px || !p->height_px) {
        return stk_image_broken(reason, err, "broken BMP (it states %ux%u pixels): leave it out", p->width_px,
                                p->height_px);
    }
    const bool known =
        p->bits == 1 || p->bits == 4 || p->bits == 8 || p->bits == 16 || p->bits == 24 || p->bits == 32;
    if (!known || p->compression > BITFIELDS) {
        return stk_image_unsupported(
            reason, err, "BMP with %u bits and compression %u is not supported: convert it to PNG", p->bits,
            p->compression);
    }
    if (p->bits <= 8 && p->colors > 65536) {
        return stk_image_unsupported(reason, err, "BMP with %llu colours is not supported: convert it to PNG",
                                     (unsigned long long)p->colors);
    }
    return STK_OK;
}

/* Sizes, depth, masks; where the palette and the pixels begin.  STK_AGAIN as in a probe. */
static stk_status read_head(bmp_plan *p, stk_bytes bytes, uint64_t total_bytes, stk_reason *reason,
                            stk_error *err)
{
    *p = (bmp_plan){.at = {2, 1, 0}};
    if (bytes.size_bytes < FILE_HEAD_BYTES + 4) return cut(bytes, total_bytes, reason, err);
    const uint8_t *const head = bytes.data + FILE_HEAD_BYTES;
    const uint32_t head_bytes = stk_le32(head);
    if (head_bytes != 12 && head_bytes != 40 && head_bytes != 52 && head_bytes != 56 && head_bytes != 64 &&
        head_bytes != 108 && head_bytes != 124) {
        return stk_image_unsupported(
            reason, err, "BMP with a header of %u bytes is not supported: convert it to PNG", head_bytes);
    }
    p->colors_at = FILE_HEAD_BYTES + head_bytes;
    if (bytes.size_bytes < p->colors_at) return cut(bytes, total_bytes, reason, err);
    read_fields(p, head, head_bytes);
    const bool masks_behind = p->compression == BITFIELDS && head_bytes == 40;
    if (masks_behind) p->colors_at += 12;
    if (bytes.size_bytes < p->colors_at) return cut(bytes, total_bytes, reason, err);
    STK_TRY(check_fields(p, reason, err));

    p->form = p->bits == 16 ? BMP_555 : BMP_BYTES;
    if (p->compression == BITFIELDS) {
        uint32_t mask[4] = {0};
        for (size_t i = 0; i < (head_bytes >= 56 ? 4 : 3); i++) mask[i] = stk_le32(head + 40 + 4 * i);
        STK_TRY(read_masks(p, mask, reason, err));
    }
    p->pixels_at = stk_le32(bytes.data + 10);
    if (p->pixels_at == FILE_HEAD_BYTES + head_bytes && p->bits <= 8)
        p->pixels_at += p->colors * p->color_bytes; /* written by those who forgot the palette */
    return STK_OK;
}

/* --- the palette --- */

/* Is each entry the grey of its number, 0 and 255 where there are two? */
static bool is_grey(const bmp_plan *p, const uint8_t *palette, uint64_t size_bytes)
{
    for (uint64_t i = 0; i < p->colors; i++) {
        const uint8_t *const entry = palette + i * p->color_bytes,
                             grey = (uint8_t)(p->colors == 2 ? 255 * i : i);
        if (i * p->color_bytes + 3 > size_bytes) return false;
        if (entry[0] != grey || entry[1] != grey || entry[2] != grey) return false;
    }
    return true;
}

/* What the stored values of a picture of at most 8 bits mean. */
static stk_status read_palette(bmp_plan *p, stk_bytes bytes, uint64_t total_bytes, stk_reason *reason,
                               stk_error *err)
{
    uint64_t size_bytes = p->colors * p->color_bytes;
    if (size_bytes > total_bytes - p->colors_at) size_bytes = total_bytes - p->colors_at;
    if (size_bytes > bytes.size_bytes - p->colors_at) return STK_AGAIN;
    if (is_grey(p, bytes.data + p->colors_at, size_bytes)) {
        p->form = p->colors <= 2 ? BMP_BITS : BMP_GREY;
    } else {
        p->form = p->bits == 1 ? BMP_INDEX1 : p->bits == 4 ? BMP_INDEX4 : BMP_INDEX8;
        if (size_bytes / p->color_bytes > 256) {
            return stk_image_unsupported(reason, err,
                                         "BMP with %llu colours is not supported: convert it to PNG",
                                         (unsigned long long)(size_bytes / p->color_bytes));
        }
        p->color_count = (uint32_t)(size_bytes / p->color_bytes);
    }
    if (p->pixels_at == 0) p->pixels_at = p->colors_at + size_bytes;
    return STK_OK;
}

/* --- the whole plan --- */

static uint64_t row_bytes(const bmp_plan *p)
{
    const uint64_t width_px = p->width_px;
    switch (p->form) {
    case BMP_BITS:
    case BMP_INDEX1: return (width_px + 7) / 8;
    case BMP_INDEX4: return (width_px + 1) / 2;
    case BMP_GREY:
    case BMP_INDEX8: break;
    case BMP_555:
    case BMP_565: return width_px * 2;
    case BMP_BYTES: return width_px * (p->bits / 8);
    }
    return width_px;
}

/* Do all rows lie inside the file? */
static stk_status check_rows(const bmp_plan *p, uint64_t total_bytes, stk_reason *reason, stk_error *err)
{
    if (is_run_length(p)) {
        if (p->bits <= 8) return STK_OK;
        return stk_image_unsupported(
            reason, err, "a run-length coded BMP with %u bits is not supported: convert it to PNG", p->bits);
    }
    if (p->row_bytes > p->stride_bytes) {
        return stk_image_unsupported(reason, err,
                                     "BMP with %u bits and %llu greys is not supported: convert it to PNG",
                                     p->bits, (unsigned long long)p->colors);
    }
    uint64_t last_at, end;
    if (__builtin_mul_overflow(p->stride_bytes, (uint64_t)p->height_px - 1, &last_at) ||
        __builtin_add_overflow(last_at, p->pixels_at + p->row_bytes, &end) || end > total_bytes)
        return cut_pixels(reason, err);
    return STK_OK;
}

static stk_status read_plan(bmp_plan *p, stk_bytes bytes, uint64_t total_bytes, const stk_limits *limits,
                            stk_reason *reason, stk_error *err)
{
    stk_status status = read_head(p, bytes, total_bytes, reason, err);
    if (status != STK_OK) return status;
    STK_TRY(stk_image_check_px(p->width_px, p->height_px, limits, reason, err));
    if (p->bits <= 8) {
        status = read_palette(p, bytes, total_bytes, reason, err);
        if (status != STK_OK) return status;
    } else if (p->pixels_at == 0) {
        p->pixels_at = p->colors_at;
    }
    p->stride_bytes = (((uint64_t)p->width_px * p->bits + 31) >> 3) & ~(uint64_t)3;
    p->row_bytes = row_bytes(p);
    return check_rows(p, total_bytes, reason, err);
}

stk_status stk_bmp_probe(stk_header *header, stk_reason *reason, stk_bytes bytes, uint64_t total_bytes,
                         const stk_limits *limits, stk_error *err)
{
    stk_image_info *const info = &header->info;
    bmp_plan p;
    const stk_status status = read_plan(&p, bytes, total_bytes, limits, reason, err);
    if (status != STK_OK) return status;
    info->width_px = p.width_px;
    info->height_px = p.height_px;
    info->whole = is_run_length(&p);
    info->codec_bytes = 64 * 1024;
    if (info->whole) info->codec_bytes += (uint64_t)p.width_px * p.height_px;
    if (p.has_alpha) info->flags |= STK_MEDIA_HAS_ALPHA;
    return STK_OK;
}

/* --- rows --- */

typedef struct bmp_codec {
    stk_codec codec; /* first: the two are one */
    bmp_plan plan;
    stk_bytes bytes;
    uint8_t *band, *whole; /* whole: all indices of a run-length coded picture, else NULL */
    size_t stride_bytes;   /* of the band */
    uint32_t next_row;
    bool on_white;
    uint8_t color[256][3];
} bmp_codec;

size_t stk_bmp_state_bytes(void)
{
    return sizeof(bmp_codec);
}

static void unpack_16(uint8_t *row, const uint8_t *stored, size_t width_px, bool six_green)
{
    const uint32_t green_max = six_green ? 63 : 31, red_shift = six_green ? 11 : 10;
    for (size_t x = 0; x < width_px; x++) {
        const uint32_t v = stk_le16(stored + 2 * x);
        row[3 * x] = (uint8_t)((v >> red_shift & 31) * 255 / 31);
        row[3 * x + 1] = (uint8_t)((v >> 5 & green_max) * 255 / green_max);
        row[3 * x + 2] = (uint8_t)((v & 31) * 255 / 31);
    }
}

static void unpack_bytes(const bmp_codec *c, uint8_t *row, const uint8_t *stored)
{
    const size_t width_px = c->codec.width_px, step = c->plan.bits / 8;
    const uint8_t r = c->plan.at[0], g = c->plan.at[1], b = c->plan.at[2], a = c->plan.at[3];
    for (size_t x = 0; x < width_px; x++, row += 3, stored += step) {
        row[0] = stored[r];
        row[1] = stored[g];
        row[2] = stored[b];
        if (!c->on_white) continue;
        for (size_t ch = 0; ch < 3; ch++) row[ch] = stk_on_white(row[ch], stored[a]);
    }
}

/* Whatever is not 0 is white: a run may have any value. */
static void unpack_bits(const bmp_codec *c, uint8_t *row, const uint8_t *stored)
{
    for (size_t x = 0; x < c->codec.width_px; x++) {
        const int value = c->whole ? stored[x] : stored[x >> 3] & (0x80 >> (x & 7));
        row[x] = value ? 255 : 0;
    }
}

/* Stored values of 1, 4 or 8 bits through the palette. */
static void unpack_indices(const bmp_codec *c, uint8_t *row, const uint8_t *stored)
{
    const size_t width_px = c->codec.width_px;
    const uint32_t bits = c->whole ? 8 : c->plan.bits, mask = (1u << bits) - 1;
    for (size_t x = 0; x < width_px; x++) {
        const size_t at = x * bits;
        const uint32_t shift = 8 - bits - (uint32_t)(at & 7);
        memcpy(row + 3 * x, c->color[stored[at >> 3] >> shift & mask], 3);
    }
}

static void make_row(const bmp_codec *c, uint8_t *row, uint32_t y)
{
    const bmp_plan *const p = &c->plan;
    const size_t at = p->top_down ? y : p->height_px - 1 - y; /* in the order of the file */
    const uint8_t *const stored =
        c->whole ? c->whole + at * p->width_px : c->bytes.data + p->pixels_at + at * p->stride_bytes;
    switch (p->form) {
    case BMP_BITS: unpack_bits(c, row, stored); break;
    case BMP_GREY: memcpy(row, stored, p->width_px); break;
    case BMP_INDEX1:
    case BMP_INDEX4:
    case BMP_INDEX8: unpack_indices(c, row, stored); break;
    case BMP_555: unpack_16(row, stored, p->width_px, false); break;
    case BMP_565: unpack_16(row, stored, p->width_px, true); break;
    case BMP_BYTES: unpack_bytes(c, row, stored); break;
    }
}

static stk_status bmp_read(stk_codec *codec, stk_codec_rows *rows, stk_reason *reason, stk_error *err)
{
    bmp_codec *const c = (bmp_codec *)codec;
    (void)reason;
    (void)err;
    const uint32_t left = codec->height_px - c->next_row,
                   count = left < STK_CODEC_ROWS ? left : STK_CODEC_ROWS;
    for (uint32_t i = 0; i < count; i++) make_row(c, c->band + i * c->stride_bytes, c->next_row++);
    *rows = (stk_codec_rows){c->band, c->stride_bytes, count};
    return STK_OK;
}

static stk_status bmp_finish(stk_codec *codec, stk_reason *reason, stk_error *err)
{
    (void)codec;
    (void)reason;
    (void)err;
    return STK_OK;
}

static void bmp_close(stk_codec *codec)
{
    bmp_codec *const c = (bmp_codec *)codec;
    stk_free(c->whole);
    c->whole = NULL;
    codec->ops = NULL;
}

/* --- runs --- */

/* Indices are added one behind the other; what was skipped has index 0.  x_px counts the pixels of runs since
 * the last end of a line, and more than a line when none comes: only a run of one value looks at it. */
typedef struct run_reader {
    stk_bytes bytes;
    size_t at; /* of the next byte of the file */
    uint8_t *out;
    size_t count, room; /* indices up to now, and at most */
    uint64_t x_px;
    uint32_t width_px;
    bool four_bits;
} run_reader;

static bool take_two(run_reader *r, const uint8_t **two)
{
    if (r->at >= r->bytes.size_bytes || r->bytes.size_bytes - r->at < 2) return false;
    *two = r->bytes.data + r->at;
    r->at += 2;
    return true;
}

/* Indices that were skipped; memory is zeroed. */
static void skip(run_reader *r, uint64_t count)
{
    r->count = count < r->room - r->count ? r->count + (size_t)count : r->room;
}

/* One value, or two by turns, as often as they fit into the line. */
static void add_run(run_reader *r, uint32_t count, uint8_t value)
{
    if (r->x_px + count > r->width_px) count = r->x_px < r->width_px ? r->width_px - (uint32_t)r->x_px : 0;
    for (uint32_t i = 0; i < count && r->count < r->room; i++) {
        r->out[r->count++] = !r->four_bits ? value : i & 1 ? value & 15 : value >> 4;
    }
    r->x_px += count;
}

/* count values as they are; false: the file ends, or the picture is full. */
static bool add_values(run_reader *r, uint32_t count)
{
    const uint32_t stated = count;
    if (count > r->room - r->count) count = (uint32_t)(r->room - r->count);
    const size_t size_bytes = r->four_bits ? (count + 1) / 2 : count;
    if (r->at > r->bytes.size_bytes || r->bytes.size_bytes - r->at < size_bytes) return false;
    for (uint32_t i = 0; i < count; i++) {
        const uint8_t *const from = r->bytes.data + r->at;
        r->out[r->count++] = !r->four_bits ? from[i] : i & 1 ? from[i / 2] & 15 : from[i / 2] >> 4;
    }
    r->at += size_bytes;
    r->at += r->at & 1; /* to an even place in the file */
    r->x_px += stated;
    return true;
}

/* Everything up to the end of the bitmap, of the picture or of the file. */
static void read_runs(run_reader *r)
{
    enum { END_OF_LINE = 0, END_OF_BITMAP = 1, DELTA = 2 };
    const uint8_t *two;
    while (r->count < r->room && take_two(r, &two)) {
        const uint8_t count = two[0], value = two[1];
        if (count) {
            add_run(r, count, value);
        } else if (value == END_OF_LINE) {
            const size_t x_px = r->count % r->width_px;
            if (x_px) skip(r, r->width_px - x_px);
            r->x_px = 0;
        } else if (value == END_OF_BITMAP) {
            return;
        } else if (value == DELTA) {
            if (!take_two(r, &two)) return;
            skip(r, two[0] + (uint64_t)two[1] * r->width_px);
            r->x_px = r->count % r->width_px;
        } else if (!add_values(r, value)) {
            return;
        }
    }
}

static stk_status read_whole(bmp_codec *c, stk_reason *reason, stk_error *err)
{
    const bmp_plan *const p = &c->plan;
    c->whole = stk_alloc_array(STK_TAG_IMAGE, p->height_px, p->width_px);
    if (!c->whole) {
        *reason = STK_REASON_NONE;
        const stk_status status = stk_fail(err, STK_ERR_NOMEM, "no memory to decode a BMP of %ux%u pixels",
                                           p->width_px, p->height_px);
        stk_error_stage(err, STK_STAGE_DECODE);
        return status;
    }
    if (p->pixels_at > c->bytes.size_bytes) return cut_pixels(reason, err);
    run_reader r = {.bytes = c->bytes,
                    .at = (size_t)p->pixels_at,
                    .out = c->whole,
                    .room = (size_t)p->width_px * p->height_px,
                    .width_px = p->width_px,
                    .four_bits = p->compression == RLE4};
    read_runs(&r);
    return r.count == r.room ? STK_OK : cut_pixels(reason, err);
}

/* Entries that the file does not give are black, as Pillow has them. */
static void copy_palette(bmp_codec *c)
{
    const bmp_plan *const p = &c->plan;
    memset(c->color, 0, sizeof c->color);
    for (uint32_t i = 0; i < p->color_count; i++) {
        const uint8_t *const bgr = c->bytes.data + p->colors_at + (size_t)i * p->color_bytes;
        for (uint32_t ch = 0; ch < 3; ch++) c->color[i][ch] = bgr[2 - ch];
    }
}

static stk_status open_rows(bmp_codec *c, const stk_image_info *info, stk_alpha_rule alpha,
                            const stk_limits *limits, stk_reason *reason, stk_error *err)
{
    bmp_plan *const p = &c->plan;
    STK_TRY(read_plan(p, c->bytes, c->bytes.size_bytes, limits, reason, err));
    STK_TRY(stk_image_check_same(info, p->width_px, p->height_px, reason, err));
    c->codec.width_px = p->width_px;
    c->codec.height_px = p->height_px;
    c->codec.channels = p->form == BMP_BITS || p->form == BMP_GREY ? 1 : 3;
    c->stride_bytes = (size_t)p->width_px * 3 + STK_PAD_BYTES;
    c->on_white = alpha != STK_ALPHA_DROP && p->has_alpha;
    copy_palette(c);
    return is_run_length(p) ? read_whole(c, reason, err) : STK_OK;
}

stk_status stk_bmp_open(stk_codec **out, void *state, uint8_t *band, stk_bytes bytes,
                        const stk_image_info *info, stk_alpha_rule alpha, const stk_limits *limits,
                        stk_reason *reason, stk_error *err)
{
    static const stk_codec_ops ops = {bmp_read, bmp_finish, bmp_close};
    bmp_codec *const c = state;
    *out = NULL;
    memset(c, 0, sizeof *c);
    c->codec.ops = &ops;
    c->bytes = bytes;
    c->band = band;
    const stk_status status = open_rows(c, info, alpha, limits, reason, err);
    if (status < 0) {
        bmp_close(&c->codec);
        return status;
    }
    *out = &c->codec;
    return STK_OK;
}
