/* gif.c - GIF headers, and the first frame on its canvas, as Pillow has it (spec-qwen3vl.md sections 1.1 and
 * 1.2).
 *
 * Own code from the first byte to the last: what Pillow accepts of damaged files, and which pixels it makes
 * of them, follows from how it reads blocks and codes, and no library reads them alike.  What the first frame
 * does not cover has the transparent index, or index 0 when there is none; the background index says nothing.
 * A frame that reaches over its canvas makes the canvas larger.  A palette of which each entry is its own
 * number counts as none, so a frame's own one does not replace the file's; without any the picture is grey.
 *
 * Rows are decoded as they are asked for.  The rows of an interlaced frame come in another order, so its
 * indices are held whole. */
#include "image/codec.h"

enum {
    SCREEN_BYTES = 13,
    MAX_CODES = 4096,       /* of the table of strings */
    MAX_CODE_BITS = 12,     /* that the table lets codes grow to */
    READ_BYTES = 64 * 1024, /* what Pillow reads at once, which an early end code makes visible */
};

/* --- the blocks in front of the pixels --- */

typedef struct cursor {
    stk_bytes bytes;
    size_t at;
    bool cut; /* something reached over the end of the bytes */
} cursor;

/* The next count bytes, or NULL; after that nothing is left. */
static const uint8_t *take(cursor *c, size_t count)
{
    if (count > c->bytes.size_bytes - c->at) {
        c->at = c->bytes.size_bytes;
        c->cut = true;
        return NULL;
    }
    c->at += count;
    return c->bytes.data + c->at - count;
}

/* The next piece of a block; false: its end, or the bytes'. */
static bool take_piece(cursor *c, stk_bytes *piece)
{
    *piece = (stk_bytes){0};
    const uint8_t *const size = take(c, 1);
    if (!size || *size == 0) return false;
    piece->data = take(c, *size);
    piece->size_bytes = piece->data ? *size : 0;
    return piece->data != NULL;
}

static void skip_pieces(cursor *c)
{
    stk_bytes piece;
    while (take_piece(c, &piece)) continue;
}

typedef struct gif_header {
    uint32_t width_px, height_px; /* of the canvas */
    uint32_t left_px, top_px, frame_width_px, frame_height_px;
    const uint8_t *palette; /* NULL: grey */
    uint32_t color_count;
    int transparent; /* index, -1: none */
    bool interlaced;
    uint8_t literal_bits;
    size_t pixels_at;
} gif_header;

/* An extension, behind its introducer; false: one that Pillow cannot read. */
static bool read_extension(cursor *c, int *transparent, bool first_frame)
{
    enum { CONTROL = 249, COMMENT = 254, APPLICATION = 255 };
    const uint8_t *const label = take(c, 1);
    stk_bytes piece;
    if (!label) return true;
    const bool any = take_piece(c, &piece);
    if (*label == CONTROL && any) {
        if (piece.size_bytes < 3 || ((piece.data[0] & 1) && piece.size_bytes < 4)) return false;
        if (piece.data[0] & 1) *transparent = piece.data[3];
    } else if (*label == COMMENT && !any) {
        return true;
    } else if (*label == APPLICATION && first_frame && piece.size_bytes >= 11 &&
               memcmp(piece.data, "NETSCAPE2.0", 11) == 0) {
        (void)take_piece(c,
                         &piece); /* may be the end: what follows is then taken for pieces, as Pillow does */
    }
    skip_pieces(c);
    return true;
}

/* To behind the separator of the next frame; false: there is none, *readable says whether for a fault. */
static bool find_frame(cursor *c, int *transparent, bool first_frame, bool *readable)
{
    *transparent = -1;
    *readable = true;
    for (const uint8_t *mark; (mark = take(c, 1)) && *mark != ';';) {
        if (*mark == ',') return true;
        if (*mark == '!') *readable = read_extension(c, transparent, first_frame);
        if (!*readable) return false;
        /* Rubbish between the blocks is passed over. */
    }
    return false;
}

/* Three bytes for each of 2..256 colours; *palette stays what it was where each is its own number. */
static bool take_palette(cursor *c, uint8_t flags, const uint8_t **palette, uint32_t *color_count)
{
    const uint32_t count = 2u << (flags & 7);
    const uint8_t *const entry = take(c, (size_t)count * 3);
    if (!entry) return false;
    for (uint32_t i = 0; i < count * 3; i++) {
        if (entry[i] == i / 3) continue;
        *palette = entry;
        *color_count = count;
        return true;
    }
    return true;
}

static stk_status no_frame(stk_reason *reason, stk_error *err)
{
    return stk_image_broken(reason, err, "broken GIF (no frame in it): fetch it again or leave it out");
}

static stk_status read_frame_head(gif_header *h, cursor *c, stk_reason *reason, stk_error *err)
{
    const uint8_t *const d = take(c, 9);
    if (!d) return STK_OK;
    h->left_px = stk_le16(d);
    h->top_px = stk_le16(d + 2);
    h->frame_width_px = stk_le16(d + 4);
    h->frame_height_px = stk_le16(d + 6);
    h->interlaced = d[8] & 0x40;
    if (!h->frame_width_px || !h->frame_height_px) {
        return stk_image_broken(reason, err, "broken GIF (a first frame of %ux%u pixels): leave it out",
                                h->frame_width_px, h->frame_height_px);
    }
    const uint32_t right_px = h->left_px + h->frame_width_px, bottom_px = h->top_px + h->frame_height_px;
    if (right_px > h->width_px) h->width_px = right_px;
    if (bottom_px > h->height_px) h->height_px = bottom_px;
    if ((d[8] & 0x80) && !take_palette(c, d[8], &h->palette, &h->color_count)) return STK_OK;
    const uint8_t *const bits = take(c, 1);
    if (!bits) return STK_OK;
    if (*bits > MAX_CODE_BITS)
        return stk_image_broken(reason, err, "broken GIF (codes of %u bits): leave it out", *bits);
    h->literal_bits = *bits;
    h->pixels_at = c->at;
    return STK_OK;
}

/* Everything up to the first frame's codes.  c->cut: the bytes end before. */
static stk_status read_header(gif_header *h, cursor *c, stk_reason *reason, stk_error *err)
{
    bool readable;
    *h = (gif_header){.transparent = -1};
    const uint8_t *const screen = take(c, SCREEN_BYTES);
    if (!screen) return STK_OK;
    h->width_px = stk_le16(screen + 6);
    h->height_px = stk_le16(screen + 8);
    if ((screen[10] & 0x80) && !take_palette(c, screen[10], &h->palette, &h->color_count)) return STK_OK;
    if (find_frame(c, &h->transparent, true, &readable)) return read_frame_head(h, c, reason, err);
    return c->cut ? STK_OK : no_frame(reason, err);
}

/* --- codes to indices --- */

/* A code is a literal, the clear code, the end code, or a string: what an earlier code stood for and one more
 * literal.  A string is unpacked from its end into `waiting`. */
typedef struct unpacker {
    stk_bytes bytes;
    size_t at, first_at;  /* of the next byte, of the codes' first */
    size_t reads;         /* that Pillow needed for what was unpacked up to now */
    uint32_t piece_bytes; /* left of the piece */
    uint32_t bits, bit_count;
    uint32_t clear, next, code_bits;
    uint32_t last_code;
    uint8_t literal_bits, last_literal;
    bool after_clear;    /* the next code must be a literal */
    uint32_t waiting_at; /* waiting[waiting_at ..] comes before the next code */
    uint8_t waiting[MAX_CODES];
    uint8_t literal[MAX_CODES]; /* a string's last */
    uint16_t link[MAX_CODES];   /* the code of what stands before it */
} unpacker;

typedef enum unpacked { UNPACKED, UNPACKED_CUT, UNPACKED_BROKEN } unpacked;

static void clear_table(unpacker *u)
{
    u->next = u->clear + 2;
    u->code_bits = u->literal_bits + 1u;
    u->waiting_at = MAX_CODES;
    u->after_clear = true;
}

static void unpacker_init(unpacker *u, stk_bytes bytes, const gif_header *h)
{
    u->bytes = bytes;
    u->at = u->first_at = h->pixels_at;
    u->reads = 1;
    u->piece_bytes = u->bits = u->bit_count = 0;
    u->literal_bits = h->literal_bits;
    u->clear = 1u << h->literal_bits;
    clear_table(u);
}

/* Into the next piece, which must be there whole. */
static bool next_piece(unpacker *u)
{
    if (u->at >= u->bytes.size_bytes) return false;
    const uint32_t size = u->bytes.data[u->at];
    if (u->bytes.size_bytes - u->at - 1 < size) return false;
    const size_t reads = (u->at + 1 + size - u->first_at + READ_BYTES - 1) / READ_BYTES;
    if (reads > u->reads) u->reads = reads;
    u->at++;
    u->piece_bytes = size;
    return true;
}

static bool next_code(unpacker *u, uint32_t *code)
{
    while (u->bit_count < u->code_bits) {
        if (u->piece_bytes == 0) {
            if (!next_piece(u)) return false;
            continue;
        }
        u->bits |= (uint32_t)u->bytes.data[u->at++] << u->bit_count;
        u->bit_count += 8;
        u->piece_bytes--;
    }
    *code = u->bits & ((1u << u->code_bits) - 1);
    u->bits >>= u->code_bits;
    u->bit_count -= u->code_bits;
    return true;
}

/* Behind an end code that comes too early Pillow reads on as if it were not there, provided that the file has
 * more than it had read. */
static bool pass_end(unpacker *u)
{
    if (u->reads * READ_BYTES >= u->bytes.size_bytes - u->first_at) return false;
    u->reads++;
    return true;
}

static void add_string(unpacker *u, uint32_t code)
{
    if (u->next < MAX_CODES) {
        u->literal[u->next] = u->last_literal;
        u->link[u->next] = (uint16_t)u->last_code;
        if (u->next == (1u << u->code_bits) - 1 && u->code_bits < MAX_CODE_BITS) u->code_bits++;
        u->next++;
    }
    u->last_code = code;
}

/* A string: all but its first literal to waiting, that one to last_literal. */
static unpacked unpack_string(unpacker *u, uint32_t code)
{
    uint32_t c = code;
    if (c > u->next) return UNPACKED_BROKEN;
    if (c == u->next) { /* the string that this very code completes */
        u->waiting[--u->waiting_at] = u->last_literal;
        c = u->last_code;
    }
    for (; c >= u->clear; c = u->link[c]) {
        if (u->waiting_at == 0 || c >= MAX_CODES) return UNPACKED_BROKEN;
        u->waiting[--u->waiting_at] = u->literal[c];
    }
    u->last_literal = (uint8_t)c;
    add_string(u, code);
    return UNPACKED;
}

/* The next code that stands for indices: its first becomes last_literal, the others wait. */
static unpacked unpack_code(unpacker *u)
{
    for (uint32_t code; next_code(u, &code);) {
        if (code == u->clear) {
            clear_table(u);
        } else if (code == u->clear + 1) {
            if (!pass_end(u)) return UNPACKED_CUT;
        } else if (u->after_clear) {
            if (code > u->clear) return UNPACKED_BROKEN;
            u->last_code = code;
            u->last_literal = (uint8_t)code;
            u->after_clear = false;
            return UNPACKED;
        } else {
            return unpack_string(u, code);
        }
    }
    return UNPACKED_CUT;
}

static unpacked unpack(unpacker *u, uint8_t *out, size_t count)
{
    for (uint8_t *const end = out + count; out < end;) {
        if (u->waiting_at == MAX_CODES) {
            const unpacked result = unpack_code(u);
            if (result != UNPACKED) return result;
            *out++ = u->last_literal;
            continue;
        }
        const size_t waiting = MAX_CODES - u->waiting_at, room = (size_t)(end - out),
                     piece = waiting < room ? waiting : room;
        memcpy(out, u->waiting + u->waiting_at, piece);
        u->waiting_at += (uint32_t)piece;
        out += piece;
    }
    return UNPACKED;
}

/* --- rows --- */

typedef struct gif_codec {
    stk_codec codec; /* first: the two are one */
    gif_header header;
    unpacker unpacker;
    uint8_t *band, *whole; /* whole: all indices of an interlaced frame, else NULL */
    size_t stride_bytes;
    uint32_t next_row;
    uint8_t outside; /* index where the frame is not */
    uint8_t color[256][3];
} gif_codec;

size_t stk_gif_state_bytes(void)
{
    return sizeof(gif_codec);
}

static stk_status report(unpacked result, stk_reason *reason, stk_error *err)
{
    if (result == UNPACKED) return STK_OK;
    if (result == UNPACKED_BROKEN)
        return stk_image_broken(reason, err, "broken GIF (a wrong code): fetch it again or leave it out");
    return stk_image_broken(
        reason, err,
        "truncated GIF: the first frame ends before its last row; fetch it again or leave it out");
}

/* From indices to grey or R, G, B, in place. */
static void convert(const gif_codec *c, uint8_t *row)
{
    const size_t width_px = c->codec.width_px;
    if (c->codec.channels == 1) {
        for (size_t x = 0; x < width_px; x++) row[x] = c->color[row[x]][0];
        return;
    }
    for (size_t x = width_px; x-- > 0;) { /* from the end: the row grows */
        const uint8_t *const rgb = c->color[row[x]];
        row[3 * x + 2] = rgb[2];
        row[3 * x + 1] = rgb[1];
        row[3 * x] = rgb[0];
    }
}

static stk_status make_row(gif_codec *c, uint8_t *row, uint32_t y, stk_reason *reason, stk_error *err)
{
    const gif_header *const h = &c->header;
    if (y < h->top_px || y - h->top_px >= h->frame_height_px) {
        memset(row, c->outside, h->width_px);
    } else {
        uint8_t *const first = row + h->left_px, *const behind = first + h->frame_width_px;
        memset(row, c->outside, h->left_px);
        if (c->whole)
            memcpy(first, c->whole + (size_t)(y - h->top_px) * h->frame_width_px, h->frame_width_px);
        else
            STK_TRY(report(unpack(&c->unpacker, first, h->frame_width_px), reason, err));
        memset(behind, c->outside, h->width_px - h->left_px - h->frame_width_px);
    }
    convert(c, row);
    return STK_OK;
}

static stk_status gif_read(stk_codec *codec, stk_codec_rows *rows, stk_reason *reason, stk_error *err)
{
    gif_codec *const c = (gif_codec *)codec;
    const uint32_t left = codec->height_px - c->next_row,
                   count = left < STK_CODEC_ROWS ? left : STK_CODEC_ROWS;
    for (uint32_t i = 0; i < count; i++)
        STK_TRY(make_row(c, c->band + i * c->stride_bytes, c->next_row++, reason, err));
    *rows = (stk_codec_rows){c->band, c->stride_bytes, count};
    return STK_OK;
}

/* What stands behind the last pixel changes none. */
static stk_status gif_finish(stk_codec *codec, stk_reason *reason, stk_error *err)
{
    (void)codec;
    (void)reason;
    (void)err;
    return STK_OK;
}

static void gif_close(stk_codec *codec)
{
    gif_codec *const c = (gif_codec *)codec;
    stk_free(c->whole);
    c->whole = NULL;
    codec->ops = NULL;
}

/* Every eighth row from 0, every eighth from 4, every fourth from 2, every second from 1. */
static stk_status read_whole(gif_codec *c, stk_reason *reason, stk_error *err)
{
    static const uint8_t first[4] = {0, 4, 2, 1}, step[4] = {8, 8, 4, 2};
    const uint32_t width_px = c->header.frame_width_px, height_px = c->header.frame_height_px;
    c->whole = stk_alloc_array(STK_TAG_IMAGE, height_px, width_px);
    if (!c->whole) {
        *reason = STK_REASON_NONE;
        const stk_status status =
            stk_fail(err, STK_ERR_NOMEM, "no memory to decode a GIF of %ux%u pixels", width_px, height_px);
        stk_error_stage(err, STK_STAGE_DECODE);
        return status;
    }
    for (int pass = 0; pass < 4; pass++) {
        for (uint32_t y = first[pass]; y < height_px; y += step[pass])
            STK_TRY(report(unpack(&c->unpacker, c->whole + (size_t)y * width_px, width_px), reason, err));
    }
    return STK_OK;
}

/* Indices that the palette does not have are black, as Pillow has them. */
static void set_colors(gif_codec *c, stk_alpha_rule alpha)
{
    const gif_header *const h = &c->header;
    c->codec.channels = h->palette ? 3 : 1;
    for (uint32_t i = 0; i < 256; i++) {
        for (uint32_t ch = 0; ch < 3; ch++)
            c->color[i][ch] = !h->palette ? (uint8_t)i : i < h->color_count ? h->palette[3 * i + ch] : 0;
    }
    c->outside = h->transparent < 0 ? 0 : (uint8_t)h->transparent;
    /* No first frame is of mode RGBA: the narrower rule finds nothing to blend. */
    if (alpha == STK_ALPHA_WHITE && h->transparent >= 0) memset(c->color[h->transparent], 255, 3);
}

static stk_status open_frame(gif_codec *c, stk_bytes bytes, const stk_image_info *info, stk_reason *reason,
                             stk_error *err)
{
    cursor at = {.bytes = bytes};
    STK_TRY(read_header(&c->header, &at, reason, err));
    if (at.cut) return report(UNPACKED_CUT, reason, err);
    STK_TRY(stk_image_check_same(info, c->header.width_px, c->header.height_px, reason, err));
    c->codec.width_px = c->header.width_px;
    c->codec.height_px = c->header.height_px;
    c->stride_bytes = (size_t)c->codec.width_px * 3 + STK_PAD_BYTES;
    unpacker_init(&c->unpacker, bytes, &c->header);
    return c->header.interlaced ? read_whole(c, reason, err) : STK_OK;
}

stk_status stk_gif_open(stk_codec **out, void *state, uint8_t *band, stk_bytes bytes,
                        const stk_image_info *info, stk_alpha_rule alpha, const stk_limits *limits,
                        stk_reason *reason, stk_error *err)
{
    static const stk_codec_ops ops = {gif_read, gif_finish, gif_close};
    gif_codec *const c = state;
    (void)limits;
    *out = NULL;
    c->codec.ops = &ops;
    c->band = band;
    c->whole = NULL;
    c->next_row = 0;
    const stk_status status = open_frame(c, bytes, info, reason, err);
    if (status < 0) {
        gif_close(&c->codec);
        return status;
    }
    set_colors(c, alpha);
    *out = &c->codec;
    return STK_OK;
}

/* --- the header --- */

static stk_status cut(stk_bytes bytes, uint64_t total_bytes, stk_reason *reason, stk_error *err)
{
    if (bytes.size_bytes < total_bytes) return STK_AGAIN;
    return stk_image_broken(
        reason, err, "truncated GIF: the file ends before its first frame; fetch it again or leave it out");
}

/* Animated is known only behind the first frame. */
stk_status stk_gif_probe(stk_header *header, stk_reason *reason, stk_bytes bytes, uint64_t total_bytes,
                         const stk_limits *limits, stk_error *err)
{
    stk_image_info *const info = &header->info;
    gif_header h;
    cursor c = {.bytes = bytes};
    STK_TRY(read_header(&h, &c, reason, err));
    if (c.cut) return cut(bytes, total_bytes, reason, err);
    STK_TRY(stk_image_check_px(h.width_px, h.height_px, limits, reason, err));
    info->width_px = h.width_px;
    info->height_px = h.height_px;
    info->whole = h.interlaced;
    info->codec_bytes = 64 * 1024;
    if (h.interlaced) info->codec_bytes += (uint64_t)h.frame_width_px * h.frame_height_px;
    if (h.transparent >= 0) info->flags |= STK_MEDIA_HAS_ALPHA;

    int transparent;
    bool readable;
    skip_pieces(&c);
    const bool second = find_frame(&c, &transparent, false, &readable);
    if (c.cut && bytes.size_bytes < total_bytes) return STK_AGAIN;
    if (second) info->flags |= STK_MEDIA_ANIMATED;
    return STK_OK;
}
