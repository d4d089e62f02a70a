/* jpeg.c - JPEG headers, and rows from libjpeg-turbo with its defaults, which are Pillow's
 * (spec-qwen3vl.md 1.1).
 *
 * The library reports errors by a long jump: every function here that calls it sets the target anew, and owns
 * nothing that a jump could lose.  Bytes come from memory; when they end the library is told to wait (as
 * Pillow's reader does) and the picture counts as truncated, unless its last row was complete.  A
 * decompressor is made for each picture: kept ones would lend the tables of one file to a next one that lacks
 * its own. */
#include <setjmp.h>
#include <stdio.h>

#include <jpeglib.h>

#include <jerror.h>

#include "image/codec.h"

typedef struct jpeg_codec {
    stk_codec codec; /* first: the two are one */
    struct jpeg_decompress_struct lib;
    struct jpeg_error_mgr errors;
    struct jpeg_source_mgr source;
    struct jpeg_progress_mgr progress;
    jmp_buf on_error;
    char message[JMSG_LENGTH_MAX];
    uint8_t *band;
    size_t stride_bytes;
    uint32_t scan_limit;
    bool inverted_cmyk, over_scans;
} jpeg_codec;

size_t stk_jpeg_state_bytes(void)
{
    return sizeof(jpeg_codec);
}

/* --- the library's call-backs --- */

static jpeg_codec *owner(j_common_ptr lib)
{
    return lib->client_data;
}

static void on_error_exit(j_common_ptr lib)
{
    jpeg_codec *const c = owner(lib);
    lib->err->format_message(lib, c->message);
    longjmp(c->on_error, 1);
}

static void on_message(j_common_ptr lib)
{
    (void)lib; /* the library must not print */
}

/* Warnings are what Pillow lets pass; only the counter is kept, as libjpeg's own does. */
static void on_emit(j_common_ptr lib, int level)
{
    if (level < 0) lib->err->num_warnings++;
}

static void on_source(j_decompress_ptr lib)
{
    (void)lib;
}

/* FALSE: no bytes now.  The library returns "suspended". */
static boolean on_fill(j_decompress_ptr lib)
{
    (void)lib;
    return FALSE;
}

static void on_skip(j_decompress_ptr lib, long count)
{
    if (count <= 0) return;
    const size_t skipped =
        (size_t)count < lib->src->bytes_in_buffer ? (size_t)count : lib->src->bytes_in_buffer;
    lib->src->next_input_byte += skipped;
    lib->src->bytes_in_buffer -= skipped;
}

/* Called while a picture of several scans is read whole: thousands of scans over one picture are an attack.
 */
static void on_progress(j_common_ptr lib)
{
    jpeg_codec *const c = owner(lib);
    if ((uint32_t)((j_decompress_ptr)lib)->input_scan_number <= c->scan_limit) return;
    c->over_scans = true;
    longjmp(c->on_error, 1);
}

/* --- rows --- */

static stk_status report(const jpeg_codec *c, stk_reason *reason, stk_error *err)
{
    if (c->over_scans) {
        *reason = STK_REASON_MEDIA_LIMIT;
        const stk_status status = stk_fail(
            err, STK_ERR_MEDIA_LIMIT,
            "the JPEG has more than %u scans: raise limits.jpeg_scans or leave it out", c->scan_limit);
        stk_error_stage(err, STK_STAGE_DECODE);
        return status;
    }
    switch (c->errors.msg_code) {
    case JERR_OUT_OF_MEMORY: {
        const stk_status status = stk_fail(err, STK_ERR_NOMEM, "no memory to decode a JPEG of %ux%u pixels",
                                           c->lib.image_width, c->lib.image_height);
        *reason = STK_REASON_NONE;
        stk_error_stage(err, STK_STAGE_DECODE);
        return status;
    }
    case JERR_SOF_UNSUPPORTED:
    case JERR_BAD_PRECISION:
    case JERR_CONVERSION_NOTIMPL:
    case JERR_NOT_COMPILED:
    case JERR_ARITH_NOTIMPL:
        return stk_image_unsupported(reason, err, "a kind of JPEG that is not supported (%s): convert it",
                                     c->message);
    default:
        return stk_image_broken(reason, err, "broken JPEG (%s): fetch it again or leave it out", c->message);
    }
}

static stk_status truncated(stk_reason *reason, stk_error *err)
{
    return stk_image_broken(
        reason, err, "truncated JPEG: the file ends before its last row; fetch it again or leave it out");
}

/* Pillow's conversion of what the library calls CMYK, which Adobe stores inverted: K' is the stored K. */
static void cmyk_to_rgb(uint8_t *row, uint32_t width_px)
{
    for (uint32_t x = 0; x < width_px; x++) {
        const int k = row[4 * (size_t)x + 3];
        for (int ch = 0; ch < 3; ch++) {
            const int product = (255 - row[4 * (size_t)x + (size_t)ch]) * k + 128;
            const int value = k - (((product >> 8) + product) >> 8);
            row[3 * (size_t)x + (size_t)ch] = (uint8_t)(value < 0 ? 0 : value);
        }
    }
}

static stk_status jpeg_read(stk_codec *codec, stk_codec_rows *rows, stk_reason *reason, stk_error *err)
{
    jpeg_codec *const c = (jpeg_codec *)codec;
    JSAMPROW row[STK_CODEC_ROWS];
    for (size_t i = 0; i < STK_CODEC_ROWS; i++) row[i] = c->band + i * c->stride_bytes;
    *rows = (stk_codec_rows){c->band, c->stride_bytes, 0};

    if (setjmp(c->on_error)) return report(c, reason, err);
    const uint32_t first = c->lib.output_scanline;
    const uint32_t left = c->lib.output_height - first, want = left < STK_CODEC_ROWS ? left : STK_CODEC_ROWS;
    while (c->lib.output_scanline - first < want) {
        const uint32_t have = c->lib.output_scanline - first;
        if (jpeg_read_scanlines(&c->lib, row + have, want - have) == 0) return truncated(reason, err);
    }
    rows->count = want;
    if (c->inverted_cmyk) {
        for (uint32_t i = 0; i < want; i++) cmyk_to_rgb(row[i], codec->width_px);
    }
    return STK_OK;
}

/* Markers behind the last row may be broken enough for an error; that the end marker is missing does not
 * matter here. */
static stk_status jpeg_finish(stk_codec *codec, stk_reason *reason, stk_error *err)
{
    jpeg_codec *const c = (jpeg_codec *)codec;
    if (setjmp(c->on_error)) return report(c, reason, err);
    (void)jpeg_finish_decompress(&c->lib);
    return STK_OK;
}

static void jpeg_close(stk_codec *codec)
{
    jpeg_destroy_decompress(&((jpeg_codec *)codec)->lib);
    codec->ops = NULL;
}

static stk_status open_lib(jpeg_codec *c, stk_bytes bytes, const stk_image_info *info, stk_reason *reason,
                           stk_error *err)
{
    struct jpeg_decompress_struct *const lib = &c->lib;
    if (setjmp(c->on_error)) return report(c, reason, err);
    jpeg_create_decompress(lib);
    lib->src = &c->source;
    lib->progress = &c->progress;
    c->source.next_input_byte = bytes.data;
    c->source.bytes_in_buffer = bytes.size_bytes;

    if (jpeg_read_header(lib, TRUE) != JPEG_HEADER_OK) return truncated(reason, err);
    STK_TRY(stk_image_check_same(info, lib->image_width, lib->image_height, reason, err));
    if (lib->num_components != 1 && lib->num_components != 3 && lib->num_components != 4) {
        return stk_image_unsupported(reason, err, "a JPEG of %d components is not supported: convert it",
                                     lib->num_components);
    }
    lib->out_color_space = lib->num_components == 1   ? JCS_GRAYSCALE
                           : lib->num_components == 3 ? JCS_RGB
                                                      : JCS_CMYK;
    c->inverted_cmyk = lib->num_components == 4;
    if (!jpeg_start_decompress(lib)) return truncated(reason, err);
    return STK_OK;
}

stk_status stk_jpeg_open(stk_codec **out, void *state, uint8_t *band, stk_bytes bytes,
                         const stk_image_info *info, stk_alpha_rule alpha, const stk_limits *limits,
                         stk_reason *reason, stk_error *err)
{
    static const stk_codec_ops ops = {jpeg_read, jpeg_finish, jpeg_close};
    jpeg_codec *const c = state;
    *out = NULL;
    memset(c, 0, sizeof *c);
    c->band = band;
    c->scan_limit = limits->jpeg_scans;
    c->lib.err = jpeg_std_error(&c->errors);
    c->lib.client_data = c;
    c->errors.error_exit = on_error_exit;
    c->errors.output_message = on_message;
    c->errors.emit_message = on_emit;
    c->source.init_source = on_source;
    c->source.fill_input_buffer = on_fill;
    c->source.skip_input_data = on_skip;
    c->source.resync_to_restart = jpeg_resync_to_restart;
    c->source.term_source = on_source;
    c->progress.progress_monitor = on_progress;

    const stk_status status = open_lib(c, bytes, info, reason, err);
    if (status < 0) {
        jpeg_destroy_decompress(&c->lib);
        return status;
    }
    c->codec =
        (stk_codec){&ops, c->lib.output_width, c->lib.output_height, c->lib.num_components == 1 ? 1 : 3};
    c->stride_bytes = (size_t)c->lib.output_width * (size_t)c->lib.output_components + STK_PAD_BYTES;
    *out = &c->codec;
    return STK_OK;
}

/* --- the header --- */

/* What a frame and its first scan say about the library's memory. */
typedef struct frame {
    uint32_t width_px, height_px, components, h[4], v[4], h_max, v_max;
    bool seen, progressive;
} frame;

static uint64_t round_up(uint64_t value, uint64_t to)
{
    return (value + to - 1) / to * to;
}

/* Rows for up-sampling and conversion; in a picture of several scans also 16 bits for each coefficient of
 * all. */
static uint64_t library_bytes(const frame *f, bool whole)
{
    const uint64_t width = round_up(f->width_px, 8 * f->h_max), height = round_up(f->height_px, 8 * f->v_max);
    uint64_t sum = 512 * 1024 + width * f->components * 96;
    if (!whole) return sum;
    for (uint32_t i = 0; i < f->components; i++) {
        const uint64_t across = width * f->h[i] / f->h_max, down = height * f->v[i] / f->v_max;
        sum += across * down * 2 + down * 16;
    }
    return sum;
}

static stk_status read_frame(frame *f, uint8_t marker, const uint8_t *data, size_t size_bytes,
                             stk_reason *reason, stk_error *err)
{
    if (size_bytes < 6)
        return stk_image_broken(reason, err, "broken JPEG (a frame header of %zu bytes): leave it out",
                                size_bytes);
    *f = (frame){.seen = true, .progressive = marker == 0xc2 || marker == 0xca};
    if (data[0] != 8) {
        return stk_image_unsupported(reason, err,
                                     "a JPEG of %u bits a sample is not supported: convert it to 8", data[0]);
    }
    if (marker != 0xc0 && marker != 0xc1 && marker != 0xc2 && marker != 0xc9 && marker != 0xca) {
        return stk_image_unsupported(reason, err,
                                     "a %s JPEG (process SOF%u) is not supported: convert it to baseline",
                                     marker == 0xc3 ? "lossless" : "rare kind of", marker & 15u);
    }
    f->height_px = stk_be16(data + 1);
    f->width_px = stk_be16(data + 3);
    f->components = data[5];
    if (f->components != 1 && f->components != 3 && f->components != 4) {
        return stk_image_unsupported(reason, err, "a JPEG of %u components is not supported: convert it",
                                     f->components);
    }
    if (f->width_px == 0 || f->height_px == 0) {
        return stk_image_broken(reason, err, "broken JPEG (it states %ux%u pixels): leave it out",
                                f->width_px, f->height_px);
    }
    if (size_bytes < 6 + 3 * (size_t)f->components)
        return stk_image_broken(reason, err, "broken JPEG (a frame header that is cut): leave it out");
    for (uint32_t i = 0; i < f->components; i++) {
        const uint32_t factors = data[7 + 3 * i];
        f->h[i] = factors >> 4;
        f->v[i] = factors & 15;
        if (f->h[i] < 1 || f->h[i] > 4 || f->v[i] < 1 || f->v[i] > 4) {
            return stk_image_broken(reason, err, "broken JPEG (sampling factors %ux%u): leave it out",
                                    f->h[i], f->v[i]);
        }
        if (f->h[i] > f->h_max) f->h_max = f->h[i];
        if (f->v[i] > f->v_max) f->v_max = f->v[i];
    }
    return STK_OK;
}

/* EXIF segments count as one block; of several XMP packets the last. */
static void read_app1(stk_orientation_sources *sources, const uint8_t *data, size_t size_bytes)
{
    static const char xmp[] = "http://ns.adobe.com/xap/1.0/"; /* with its NUL */
    if (size_bytes >= 6 && memcmp(data, "Exif\0\0", 6) == 0) {
        stk_exif *const exif = &sources->exif;
        const size_t skip = exif->piece_count ? 6 : 0;
        if (exif->piece_count < STK_EXIF_PIECES)
            exif->piece[exif->piece_count++] = (stk_bytes){data + skip, size_bytes - skip};
    } else if (size_bytes >= sizeof xmp && memcmp(data, xmp, sizeof xmp) == 0) {
        sources->xmp = (stk_bytes){data + sizeof xmp, size_bytes - sizeof xmp};
    }
}

static bool has_segment(uint8_t marker)
{
    return marker >= 0xc0 && marker != 0xc8 && !(marker >= 0xd0 && marker <= 0xd9) &&
           !(marker >= 0xf0 && marker <= 0xfd);
}

static stk_status cut(stk_bytes bytes, uint64_t total_bytes, stk_reason *reason, stk_error *err)
{
    if (bytes.size_bytes < total_bytes) return STK_AGAIN;
    return stk_image_broken(
        reason, err, "truncated JPEG: the file ends inside its header; fetch it again or leave it out");
}

static stk_status fill_info(stk_image_info *info, const frame *f, uint32_t scan_components,
                            stk_reason *reason, stk_error *err)
{
    if (!f->seen) return stk_image_broken(reason, err, "broken JPEG (a scan without a frame): leave it out");
    info->width_px = f->width_px;
    info->height_px = f->height_px;
    info->whole = f->progressive || scan_components < f->components;
    info->codec_bytes = library_bytes(f, info->whole);
    if (f->components == 4) info->flags |= STK_MEDIA_CMYK;
    return STK_OK;
}

/* Markers up to the first scan, as Pillow walks them: rubbish between segments is passed over. */
stk_status stk_jpeg_probe(stk_header *header, stk_reason *reason, stk_bytes bytes, uint64_t total_bytes,
                          const stk_limits *limits, stk_error *err)
{
    (void)limits;
    frame f = {0};
    size_t at = 2;
    for (;;) {
        while (at < bytes.size_bytes && bytes.data[at] != 0xff) at++;
        while (at < bytes.size_bytes && bytes.data[at] == 0xff) at++;
        if (at >= bytes.size_bytes) return cut(bytes, total_bytes, reason, err);
        const uint8_t marker = bytes.data[at++];
        if (!has_segment(marker)) continue;
        if (bytes.size_bytes - at < 2) return cut(bytes, total_bytes, reason, err);
        const size_t length = stk_be16(bytes.data + at), size_bytes = length < 2 ? 0 : length - 2;
        at += 2;
        if (bytes.size_bytes - at < size_bytes) return cut(bytes, total_bytes, reason, err);
        const uint8_t *const data = bytes.data + at;
        at += size_bytes;
        if (marker == 0xda) return fill_info(&header->info, &f, size_bytes ? data[0] : 0, reason, err);
        if (marker == 0xe1) read_app1(&header->orientation, data, size_bytes);
        if (marker >= 0xc0 && marker <= 0xcf && marker != 0xc4 && marker != 0xcc) {
            STK_TRY(read_frame(&f, marker, data, size_bytes, reason, err));
        }
    }
}
