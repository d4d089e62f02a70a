/* png.c - PNG chunks, and rows from libpng, converted as Pillow converts them (spec-qwen3vl.md sections 1.1
 * and 1.2).
 *
 * The library gets a file of our own making: one header, a palette, and the pixel chunks as they stand, which must follow
 * each other.  So no other chunk can refuse a picture or take memory, whether optional or critical, and what stands twice or
 * is missing has the meaning that Pillow gives it; a wrong check sum counts in IHDR and PLTE only.  The library reports errors by a long jump: every function here that calls it
 * sets the target anew.  An interlaced picture is read whole, into memory of its own. */
#include <setjmp.h>

#include <png.h>
#include <zlib.h>

#include "image/codec.h"

enum { TEXT_MAX_BYTES = 1 << 20 }; /* Pillow refuses a file with a longer one */
enum { COLOR_GREY = 0, COLOR_RGB = 2, COLOR_PALETTE = 3, COLOR_GREY_ALPHA = 4, COLOR_RGB_ALPHA = 6 };

typedef struct png_codec {
    stk_codec codec; /* first: the two are one */
    png_structp lib;
    png_infop info;
    stk_bytes bytes;
    uint8_t head[8 + 25 + 12 + 768]; /* what the library reads first: signature, IHDR, PLTE */
    size_t head_at, head_bytes;
    size_t at, chunk_at; /* in the file: of the next byte, of the next chunk's head */
    jmp_buf on_error;
    char message[128];
    uint8_t *band, *whole; /* whole: all rows of an interlaced picture, else NULL */
    size_t stride_bytes;
    uint32_t next_row, rows_unpacked;
    int color_type, bit_depth;
    bool no_memory, truncated, bad_sum;
    bool blended, keyed;  /* an alpha channel, or one transparent colour, goes on white */
    uint8_t key[3];       /* of a grey picture only the first */
    uint8_t palette[256][3];
} png_codec;

size_t stk_png_state_bytes(void)
{
    return sizeof(png_codec);
}

/* --- chunks --- */

typedef struct chunk {
    const uint8_t *type, *data;
    size_t size_bytes;
} chunk;

static bool is_type(const chunk *k, const char *type)
{
    return memcmp(k->type, type, 4) == 0;
}

static bool sum_is_right(const chunk *k)
{
    return crc32(crc32(0, k->type, 4), k->data, (uInt)k->size_bytes) == stk_be32(k->data + k->size_bytes);
}

/* --- the library's call-backs --- */

static void on_error(png_structp lib, png_const_charp message)
{
    png_codec *const c = png_get_error_ptr(lib);
    snprintf(c->message, sizeof c->message, "%s", message);
    if (strstr(message, "emory")) c->no_memory = true;
    longjmp(c->on_error, 1);
}

/* Only one warning matters: wrong pixels that the format itself detects. */
static void on_warning(png_structp lib, png_const_charp message)
{
    png_codec *const c = png_get_error_ptr(lib);
    if (strstr(message, "incorrect data check")) c->bad_sum = true;
}

/* The head of a chunk that the file does not hold whole states what is there: so the library unpacks all of
 * it before it finds the end.  A file that is cut behind its last row has all its pixels.  What follows the pixel chunks is the
 * end for us. */
static void open_chunk(png_codec *c, uint8_t *head)
{
    static const uint8_t end[8] = {0, 0, 0, 0, 'I', 'E', 'N', 'D'};
    if (memcmp(head + 4, "IDAT", 4) != 0) memcpy(head, end, sizeof end);
    const size_t stated = stk_be32(head), left = c->bytes.size_bytes - c->at - 8;
    if (stated > left) {
        for (int i = 0; i < 4; i++) head[i] = (uint8_t)(left >> (24 - 8 * i));
    }
    c->chunk_at = c->at + 8 + (stated < left ? stated : left) + 4;
}

static void on_read(png_structp lib, png_bytep out, size_t count)
{
    png_codec *const c = png_get_io_ptr(lib);
    if (count <= c->head_bytes - c->head_at) {
        memcpy(out, c->head + c->head_at, count);
        c->head_at += count;
        return;
    }
    if (count > c->bytes.size_bytes - c->at || c->head_at < c->head_bytes) {
        c->truncated = true;
        png_error(lib, "the file ends");
    }
    memcpy(out, c->bytes.data + c->at, count);
    if (c->at == c->chunk_at && count == 8) open_chunk(c, out);
    c->at += count;
}

/* Nothing to convert; but once the last row has come by, what the library still wants to read does not
 * matter. */
static void on_row(png_structp lib, png_row_infop row, png_bytep data)
{
    (void)row;
    (void)data;
    ((png_codec *)png_get_user_transform_ptr(lib))->rows_unpacked++;
}

/* --- rows --- */

static stk_status report(const png_codec *c, stk_reason *reason, stk_error *err)
{
    if (c->truncated) {
        return stk_image_broken(
            reason, err, "truncated PNG: the file ends before its last row; fetch it again or leave it out");
    }
    if (c->no_memory) {
        *reason = STK_REASON_NONE;
        const stk_status status = stk_fail(err, STK_ERR_NOMEM, "no memory to decode a PNG of %ux%u pixels",
                                           c->codec.width_px, c->codec.height_px);
        stk_error_stage(err, STK_STAGE_DECODE);
        return status;
    }
    return stk_image_broken(reason, err, "broken PNG (%s): fetch it again or leave it out", c->message);
}

/* Colour and alpha to colour on white, in place. */
static void blend(uint8_t *row, size_t width_px, size_t channels)
{
    for (size_t x = 0; x < width_px; x++) {
        const uint8_t alpha = row[x * (channels + 1) + channels];
        for (size_t ch = 0; ch < channels; ch++)
            row[x * channels + ch] = stk_on_white(row[x * (channels + 1) + ch], alpha);
    }
}

/* Pixels of one colour become white. */
static void whiten(const png_codec *c, uint8_t *row, size_t width_px)
{
    const size_t channels = c->codec.channels;
    for (size_t x = 0; x < width_px; x++)
        if (memcmp(row + x * channels, c->key, channels) == 0) memset(row + x * channels, 255, channels);
}

/* From the library's bytes to one or three bytes a pixel, in place. */
static void convert(const png_codec *c, uint8_t *row)
{
    const size_t width_px = c->codec.width_px;
    if (c->blended) blend(row, width_px, c->codec.channels);
    if (c->color_type == COLOR_GREY && c->bit_depth == 16) {
        /* As Pillow: values over 255 saturate, so that a usual 16-bit picture becomes almost white. */
        for (size_t x = 0; x < width_px; x++) row[x] = row[2 * x] ? 255 : row[2 * x + 1];
    } else if (c->color_type == COLOR_PALETTE) {
        for (size_t x = width_px; x-- > 0;) { /* from the end: the row grows */
            const uint8_t *const rgb = c->palette[row[x]];
            row[3 * x + 2] = rgb[2];
            row[3 * x + 1] = rgb[1];
            row[3 * x] = rgb[0];
        }
    }
    if (c->keyed) whiten(c, row, width_px);
}

static stk_status read_rows(png_codec *c, uint8_t *first, uint32_t count, stk_reason *reason, stk_error *err)
{
    if (setjmp(c->on_error)) {
        /* An error behind the last row (its data are complete, the file's end is not) changes no pixel. */
        return c->rows_unpacked == c->codec.height_px ? STK_OK : report(c, reason, err);
    }
    for (uint32_t i = 0; i < count; i++) png_read_row(c->lib, first + i * c->stride_bytes, NULL);
    return STK_OK;
}

static stk_status png_read(stk_codec *codec, stk_codec_rows *rows, stk_reason *reason, stk_error *err)
{
    png_codec *const c = (png_codec *)codec;
    const uint32_t left = codec->height_px - c->next_row,
                   count = left < STK_CODEC_ROWS ? left : STK_CODEC_ROWS;
    uint8_t *const first = c->whole ? c->whole + c->next_row * c->stride_bytes : c->band;
    if (!c->whole) STK_TRY(read_rows(c, first, count, reason, err));
    for (uint32_t i = 0; i < count; i++) convert(c, first + i * c->stride_bytes);
    c->next_row += count;
    *rows = (stk_codec_rows){first, c->stride_bytes, count};
    return STK_OK;
}

static stk_status png_finish(stk_codec *codec, stk_reason *reason, stk_error *err)
{
    if (!((png_codec *)codec)->bad_sum) return STK_OK;
    return stk_image_broken(reason, err,
                            "broken PNG (a wrong check sum of its pixels): fetch it again or leave it out");
}

static void png_close(stk_codec *codec)
{
    png_codec *const c = (png_codec *)codec;
    png_destroy_read_struct(&c->lib, &c->info, NULL);
    stk_free(c->whole);
    c->whole = NULL;
    codec->ops = NULL;
}

static void set_conversions(png_codec *c)
{
    png_set_packing(c->lib); /* palette indices of less than 8 bits: one a byte */
    if (c->color_type == COLOR_GREY && c->bit_depth < 8) png_set_expand_gray_1_2_4_to_8(c->lib);
    if (c->bit_depth == 16 && c->color_type != COLOR_GREY) png_set_strip_16(c->lib);
    if ((c->color_type & PNG_COLOR_MASK_ALPHA) && !c->blended) png_set_strip_alpha(c->lib);
    png_set_read_user_transform_fn(c->lib, on_row);
    png_set_user_transform_info(c->lib, c, 0, 0);
}

/* The last good chunk of a type before the pixels; data NULL: none.  *idat_at: where these begin. */
static chunk find_chunk(stk_bytes bytes, const char *type, size_t *idat_at)
{
    chunk found = {0};
    size_t at = 8;
    for (; bytes.size_bytes - at >= 12;) {
        const chunk k = {bytes.data + at + 4, bytes.data + at + 8, stk_be32(bytes.data + at)};
        if (is_type(&k, "IDAT") || k.size_bytes > bytes.size_bytes - at - 12) break;
        if (is_type(&k, type) && sum_is_right(&k)) found = k;
        at += k.size_bytes + 12;
    }
    if (idat_at) *idat_at = at;
    return found;
}

/* What goes on white, and how: as Pillow's convert("RGBA") sees it.  A colour key is compared by its low bytes with the
 * pixels of 8 bits that Pillow has made, so that the key of a grey picture of 2 or 4 bits hardly ever fits. */
static void set_alpha(png_codec *c, stk_alpha_rule alpha)
{
    if (c->color_type & PNG_COLOR_MASK_ALPHA) {
        const bool is_rgba = c->color_type == COLOR_RGB_ALPHA || c->bit_depth == 16; /* Pillow's mode */
        c->blended = alpha == STK_ALPHA_WHITE || (alpha == STK_ALPHA_WHITE_RGBA && is_rgba);
        return;
    }
    const chunk k = alpha == STK_ALPHA_WHITE ? find_chunk(c->bytes, "tRNS", NULL) : (chunk){0};
    if (!k.data) return;
    if (c->color_type == COLOR_PALETTE) {
        for (size_t i = 0; i < k.size_bytes && i < 256; i++)
            for (int ch = 0; ch < 3; ch++) c->palette[i][ch] = stk_on_white(c->palette[i][ch], k.data[i]);
        return;
    }
    c->keyed = k.size_bytes >= 2 * (size_t)c->codec.channels;
    for (uint32_t ch = 0; c->keyed && ch < c->codec.channels; ch++) c->key[ch] = k.data[2 * ch + 1];
    if (c->keyed && c->bit_depth == 1) c->key[0] = k.data[0] | k.data[1] ? 255 : 0;
}

static uint8_t *put_chunk(uint8_t *at, const char *type, const uint8_t *data, size_t size_bytes)
{
    const uint8_t size[4] = {(uint8_t)(size_bytes >> 24), (uint8_t)(size_bytes >> 16), (uint8_t)(size_bytes >> 8), (uint8_t)size_bytes};
    memcpy(at, size, 4);
    memcpy(at + 4, type, 4);
    memcpy(at + 8, data, size_bytes);
    const uLong sum = crc32(0, at + 4, (uInt)size_bytes + 4);
    for (int i = 0; i < 4; i++) at[8 + size_bytes + (size_t)i] = (uint8_t)(sum >> (24 - 8 * i));
    return at + size_bytes + 12;
}

/* The head that the library gets: the last header before the pixels, its method of compression as there is only one, and for
 * indexed pictures a palette of all entries, which the conversion does not use.  False: no header. */
static bool write_head(png_codec *c)
{
    static const uint8_t signature[8] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'}, entries[768];
    const chunk header = find_chunk(c->bytes, "IHDR", &c->at);
    uint8_t ihdr[13], *at = c->head;
    if (!header.data || header.size_bytes < sizeof ihdr) return false;
    memcpy(ihdr, header.data, sizeof ihdr);
    ihdr[10] = 0;
    memcpy(at, signature, sizeof signature);
    at = put_chunk(at + sizeof signature, "IHDR", ihdr, sizeof ihdr);
    const uint32_t depth = ihdr[8];
    if (ihdr[9] == COLOR_PALETTE) at = put_chunk(at, "PLTE", entries, depth < 8 ? (size_t)3 << depth : sizeof entries);
    c->head_bytes = (size_t)(at - c->head);
    c->chunk_at = c->at;
    return true;
}

/* Entries that the file does not give are black, as Pillow has them. */
static void read_palette(png_codec *c)
{
    const chunk k = c->color_type == COLOR_PALETTE ? find_chunk(c->bytes, "PLTE", NULL) : (chunk){0};
    const size_t size_bytes = k.size_bytes / 3 * 3;
    memcpy(c->palette, k.data ? k.data : (const uint8_t *)c->palette, size_bytes < sizeof c->palette ? size_bytes : sizeof c->palette);
}

static stk_status open_lib(png_codec *c, stk_alpha_rule alpha, stk_reason *reason, stk_error *err)
{
    if (setjmp(c->on_error)) return report(c, reason, err);
    c->lib = png_create_read_struct(PNG_LIBPNG_VER_STRING, c, on_error, on_warning);
    if (c->lib) c->info = png_create_info_struct(c->lib);
    if (!c->info) {
        c->no_memory = true;
        return report(c, reason, err);
    }
    png_set_read_fn(c->lib, c, on_read);
    png_set_user_limits(c->lib, 0x7fffffff, 0x7fffffff); /* ours stands in the limits */
    png_set_option(c->lib, PNG_MAXIMUM_INFLATE_WINDOW, PNG_OPTION_ON);
    png_read_info(c->lib, c->info);
    png_set_crc_action(c->lib, PNG_CRC_QUIET_USE, PNG_CRC_QUIET_USE); /* from here on there is only IDAT */

    c->color_type = png_get_color_type(c->lib, c->info);
    c->bit_depth = png_get_bit_depth(c->lib, c->info);
    c->codec.width_px = png_get_image_width(c->lib, c->info);
    c->codec.height_px = png_get_image_height(c->lib, c->info);
    c->codec.channels = c->color_type == COLOR_GREY || c->color_type == COLOR_GREY_ALPHA ? 1 : 3;
    read_palette(c);
    set_alpha(c, alpha);
    set_conversions(c);
    (void)png_set_interlace_handling(c->lib);
    png_read_update_info(c->lib, c->info);
    return STK_OK;
}

/* All passes over all rows. */
static stk_status read_whole(png_codec *c, stk_reason *reason, stk_error *err)
{
    size_t size_bytes;
    c->whole = stk_mul_overflows(&size_bytes, c->stride_bytes, c->codec.height_px)
                   ? NULL
                   : stk_alloc(STK_TAG_IMAGE, size_bytes);
    if (!c->whole) {
        c->no_memory = true;
        return report(c, reason, err);
    }
    if (setjmp(c->on_error)) return report(c, reason, err);
    for (int pass = 0; pass < 7; pass++) {
        for (uint32_t y = 0; y < c->codec.height_px; y++)
            png_read_row(c->lib, c->whole + y * c->stride_bytes, NULL);
    }
    return STK_OK;
}

stk_status stk_png_open(stk_codec **out, void *state, uint8_t *band, stk_bytes bytes,
                        const stk_image_info *info, stk_alpha_rule alpha, const stk_limits *limits,
                        stk_reason *reason, stk_error *err)
{
    static const stk_codec_ops ops = {png_read, png_finish, png_close};
    png_codec *const c = state;
    *out = NULL;
    memset(c, 0, sizeof *c);
    c->band = band;
    c->bytes = bytes;
    c->codec.ops = &ops;
    (void)limits;

    stk_status status = write_head(c) ? open_lib(c, alpha, reason, err)
                                      : stk_image_broken(reason, err, "broken PNG (no valid IHDR chunk): fetch it again or leave it out");
    if (status == STK_OK)
        status = stk_image_check_same(info, c->codec.width_px, c->codec.height_px, reason, err);
    if (status == STK_OK) {
        /* The library's rows of 16-bit grey take two bytes a pixel, those with alpha a byte more than ours. */
        const bool wide = c->blended || (c->color_type == COLOR_GREY && c->bit_depth == 16);
        c->stride_bytes = (size_t)c->codec.width_px * (c->codec.channels + wide) + STK_PAD_BYTES;
        if (png_get_interlace_type(c->lib, c->info) != PNG_INTERLACE_NONE)
            status = read_whole(c, reason, err);
    }
    if (status < 0) {
        png_close(&c->codec);
        return status;
    }
    *out = &c->codec;
    return STK_OK;
}

/* --- the header --- */

/* The state of a walk over all chunks: which text counts depends on where it stands. */
typedef struct walk {
    stk_header *header;
    bool data_seen, control_seen; /* an IDAT, a first fcTL before it */
    uint32_t frame_count;         /* of acTL */
    bool no_memory;
} walk;

static stk_status read_ihdr(stk_image_info *info, const chunk *k, stk_reason *reason, stk_error *err)
{
    static const uint8_t depths[7] = {31, 0, 24, 15,
                                      24, 0, 24}; /* by colour type: a bit for each allowed depth */
    if (k->size_bytes < 13 || !sum_is_right(k)) {
        return stk_image_broken(reason, err,
                                "broken PNG (no valid IHDR chunk): fetch it again or leave it out");
    }
    info->flags = 0;
    const uint8_t depth = k->data[8], color = k->data[9];
    info->width_px = stk_be32(k->data);
    info->height_px = stk_be32(k->data + 4);
    if (info->width_px == 0 || info->height_px == 0 || info->width_px > 0x7fffffff ||
        info->height_px > 0x7fffffff) {
        return stk_image_broken(reason, err, "broken PNG (it states %ux%u pixels): leave it out",
                                info->width_px, info->height_px);
    }
    const bool power = depth && depth <= 16 && (depth & (depth - 1)) == 0;
    if (!power || color > 6 || !(depths[color] & depth) || k->data[11] || k->data[12] > 1) {
        return stk_image_broken(reason, err,
                                "broken PNG (colour type %u with %u bits, interlace %u): leave it out", color,
                                depth, k->data[12]);
    }
    info->whole = k->data[12] == 1;
    if (color & 4) info->flags |= STK_MEDIA_HAS_ALPHA;
    if (color == COLOR_GREY && depth == 16) info->flags |= STK_MEDIA_GREY16;

    /* Two rows as stored, one converted, zlib's window; an interlaced picture whole, in three or four bytes
     * a pixel. */
    static const uint8_t channels[7] = {1, 0, 3, 1, 2, 0, 4};
    info->codec_bytes = 256 * 1024 + (uint64_t)info->width_px * channels[color] * (depth == 16 ? 2 : 1) * 4;
    if (info->whole)
        info->codec_bytes += ((uint64_t)info->width_px * (color & 4 ? 4 : 3) + 2 * STK_PAD_BYTES) * info->height_px;
    return STK_OK;
}

/* Inflate as far as it goes; false: too long or broken, or no memory, which the walk then says. */
static bool inflate_text(walk *w, stk_buffer *out, const uint8_t *data, size_t size_bytes)
{
    z_stream z = {.next_in = (Bytef *)(uintptr_t)data, .avail_in = (uInt)size_bytes};
    stk_buffer_clear(out);
    int status = inflateInit(&z);
    w->no_memory = w->no_memory || status == Z_MEM_ERROR;
    if (status != Z_OK) return false;
    bool fits = true;
    while (status == Z_OK && fits && !w->no_memory) {
        uint8_t piece[4096];
        z.next_out = piece;
        z.avail_out = sizeof piece;
        status = inflate(&z, Z_SYNC_FLUSH);
        const size_t made = sizeof piece - z.avail_out;
        fits = made <= out->max_bytes - out->size_bytes;
        if (fits && stk_buffer_append(out, piece, made, NULL) < 0) w->no_memory = true;
    }
    inflateEnd(&z);
    return fits && !w->no_memory && (status == Z_STREAM_END || status == Z_BUF_ERROR);
}

static bool key_is(const chunk *k, const char *key)
{
    const size_t size_bytes = strlen(key) + 1; /* with its NUL */
    return k->size_bytes >= size_bytes && memcmp(k->data, key, size_bytes) == 0;
}

/* The text behind the key of a tEXt, zTXt or iTXt chunk, inflated into buffer when it must be.  What is
 * broken leaves *text alone, or empty when the buffer was lost. */
static void read_text(walk *w, stk_bytes *text, stk_buffer *buffer, const chunk *k, size_t key_bytes)
{
    const uint8_t *at = k->data + key_bytes, *const end = k->data + k->size_bytes;
    bool deflated = is_type(k, "zTXt");
    if (is_type(k, "iTXt")) {
        if (end - at < 2 || (at[0] && at[1])) return;
        deflated = at[0] != 0;
        at += 2;
        for (int i = 0; i < 2; i++) { /* language, translated key */
            const uint8_t *const nul = memchr(at, 0, (size_t)(end - at));
            if (!nul) return;
            at = nul + 1;
        }
    } else if (deflated) {
        if (at == end || *at++) return; /* the method: only 0 is known */
    }
    if (!deflated) {
        *text = (stk_bytes){at, (size_t)(end - at)};
        return;
    }
    *text = (stk_bytes){0};
    if (inflate_text(w, buffer, at, (size_t)(end - at)))
        *text = (stk_bytes){buffer->data, buffer->size_bytes};
    else
        w->header->info.flags |= STK_MEDIA_PARTS_SKIPPED;
}

/* Later chunks of a name replace earlier ones, before and behind the pixel data, as in Pillow. */
static void read_optional(walk *w, const chunk *k)
{
    static const char profile[] = "Raw profile type exif", xmp[] = "XML:com.adobe.xmp";
    stk_orientation_sources *const sources = &w->header->orientation;
    if (is_type(k, "eXIf")) {
        sources->exif = (stk_exif){.piece = {{k->data, k->size_bytes}}, .piece_count = 1};
    } else if (is_type(k, "tRNS")) {
        w->header->info.flags |= STK_MEDIA_HAS_ALPHA;
    } else if (is_type(k, "acTL") && k->size_bytes >= 8) {
        w->frame_count = stk_be32(k->data);
    } else if (is_type(k, "fcTL") && !w->data_seen) {
        w->control_seen = true;
    } else if (is_type(k, "tEXt") || is_type(k, "zTXt") || is_type(k, "iTXt")) {
        if (k->size_bytes > TEXT_MAX_BYTES) w->header->info.flags |= STK_MEDIA_PARTS_SKIPPED;
        if (is_type(k, "tEXt") && key_is(k, "exif")) {
            sources->exif = (stk_exif){.piece = {{k->data + 5, k->size_bytes - 5}}, .piece_count = 1};
        } else if (key_is(k, profile)) {
            read_text(w, &sources->profile, &w->header->profile, k, sizeof profile);
        } else if (key_is(k, xmp)) {
            read_text(w, &sources->xmp, &w->header->xmp, k, sizeof xmp);
        }
    }
}

static bool is_animated(const walk *w)
{
    return w->frame_count > 0 && w->frame_count <= 0x80000000u &&
           w->frame_count + (w->control_seen ? 0u : 1u) > 1;
}

static bool is_name(const uint8_t *type)
{
    for (int i = 0; i < 4; i++) {
        const uint8_t c = type[i] | 0x20;
        if (!(c >= 'a' && c <= 'z')) return false;
    }
    return true;
}

static stk_status cut(stk_bytes bytes, uint64_t total_bytes, stk_reason *reason, stk_error *err)
{
    if (bytes.size_bytes < total_bytes) return STK_AGAIN;
    return stk_image_broken(reason, err,
                            "truncated PNG: the file ends before its pixels; fetch it again or leave it out");
}

/* Every chunk up to the end: orientation may stand behind the pixels. */
stk_status stk_png_probe(stk_header *header, stk_reason *reason, stk_bytes bytes, uint64_t total_bytes,
                         const stk_limits *limits, stk_error *err)
{
    walk w = {.header = header};
    for (size_t at = 8;;) {
        if (bytes.size_bytes - at < 8) {
            if (bytes.size_bytes == total_bytes && w.data_seen)
                break; /* pixels without an end: decoding tells */
            return cut(bytes, total_bytes, reason, err);
        }
        chunk k = {.type = bytes.data + at + 4,
                   .data = bytes.data + at + 8,
                   .size_bytes = stk_be32(bytes.data + at)};
        const bool data = is_type(&k, "IDAT");
        if (!is_name(k.type) || k.size_bytes > 0x7fffffff) {
            if (w.data_seen) break;
            return stk_image_broken(
                reason, err, "broken PNG (rubbish instead of a chunk): fetch it again or leave it out");
        }
        if (is_type(&k, "IEND") || (w.data_seen && is_type(&k, "fcTL") && is_animated(&w))) break;
        if (data && header->info.width_px == 0)
            return stk_image_broken(reason, err, "broken PNG (no valid IHDR chunk): fetch it again or leave it out");
        if (data) w.data_seen = true;
        if (bytes.size_bytes - at - 8 < k.size_bytes + 4) {
            if (bytes.size_bytes == total_bytes && w.data_seen) break;
            return cut(bytes, total_bytes, reason, err);
        }
        if (is_type(&k, "IHDR") && !w.data_seen) { /* the last one counts, as in Pillow */
            STK_TRY(read_ihdr(&header->info, &k, reason, err));
            STK_TRY(stk_image_check_px(header->info.width_px, header->info.height_px, limits, reason, err));
        } else if (is_type(&k, "PLTE") && !w.data_seen && (!sum_is_right(&k) || k.size_bytes > 768)) {
            return stk_image_broken(reason, err, "broken PNG (a palette %s): fetch it again or leave it out",
                                    k.size_bytes > 768 ? "of over 256 colours" : "with a wrong check sum");
        } else if ((k.type[0] & 0x20) && !w.data_seen && !sum_is_right(&k)) {
            header->info.flags |= STK_MEDIA_PARTS_SKIPPED;
        } else if (k.type[0] & 0x20) {
            read_optional(&w, &k);
            if (w.no_memory) return stk_fail(err, STK_ERR_NOMEM, "no memory for a text of a PNG");
        }
        at += k.size_bytes + 12;
    }
    if (!w.data_seen)
        return stk_image_broken(reason, err, "broken PNG (no pixels): fetch it again or leave it out");
    if (is_animated(&w)) header->info.flags |= STK_MEDIA_ANIMATED;
    return STK_OK;
}
