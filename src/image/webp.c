/* webp.c - WebP headers, and the first frame on its canvas from libwebp (spec-qwen3vl.md section 1.1).
 *
 * The library decodes whole pictures, in memory of its own.  Alpha is dropped or blended on white; what the first
 * frame of an animation does not cover is transparent black, as Pillow leaves it. */
#include <webp/decode.h>
#include <webp/demux.h>

#include "image/codec.h"

enum { VP8X_ANIMATED = 0x02, VP8X_XMP = 0x04, VP8X_EXIF = 0x08, VP8X_ALPHA = 0x10 };

typedef struct webp_codec {
    stk_codec codec; /* first: the two are one */
    WebPDecBuffer output;
    uint8_t *canvas; /* of an animation, else NULL: then output holds the rows */
    const uint8_t *rows;
    size_t stride_bytes;
    uint32_t next_row;
    bool blended;       /* rows have four bytes a pixel, and go on white */
    uint8_t *band;
} webp_codec;

size_t stk_webp_state_bytes(void)
{
    return sizeof(webp_codec);
}

static void blend(uint8_t *rgb, const uint8_t *rgba, size_t width_px)
{
    for (size_t x = 0; x < width_px; x++)
        for (size_t ch = 0; ch < 3; ch++) rgb[3 * x + ch] = stk_on_white(rgba[4 * x + ch], rgba[4 * x + 3]);
}

static stk_status webp_read(stk_codec *codec, stk_codec_rows *rows, stk_reason *reason, stk_error *err)
{
    webp_codec *const c = (webp_codec *)codec;
    (void)reason;
    (void)err;
    const uint32_t left = codec->height_px - c->next_row,
                   count = left < STK_CODEC_ROWS ? left : STK_CODEC_ROWS;
    *rows = (stk_codec_rows){c->rows + c->next_row * c->stride_bytes, c->stride_bytes, count};
    if (c->blended) {
        const size_t band_stride = (size_t)codec->width_px * 3 + STK_PAD_BYTES;
        for (uint32_t i = 0; i < count; i++)
            blend(c->band + i * band_stride, rows->data + i * c->stride_bytes, codec->width_px);
        *rows = (stk_codec_rows){c->band, band_stride, count};
    }
    c->next_row += count;
    return STK_OK;
}

static stk_status webp_finish(stk_codec *codec, stk_reason *reason, stk_error *err)
{
    (void)codec;
    (void)reason;
    (void)err;
    return STK_OK;
}

static void webp_close(stk_codec *codec)
{
    webp_codec *const c = (webp_codec *)codec;
    WebPFreeDecBuffer(&c->output);
    stk_free(c->canvas);
    c->canvas = NULL;
    codec->ops = NULL;
}

static stk_status report(VP8StatusCode code, stk_reason *reason, stk_error *err)
{
    if (code == VP8_STATUS_OUT_OF_MEMORY) {
        *reason = STK_REASON_NONE;
        const stk_status status = stk_fail(err, STK_ERR_NOMEM, "no memory to decode a WebP");
        stk_error_stage(err, STK_STAGE_DECODE);
        return status;
    }
    if (code == VP8_STATUS_NOT_ENOUGH_DATA) {
        return stk_image_broken(
            reason, err, "truncated WebP: the file ends before its last row; fetch it again or leave it out");
    }
    return stk_image_broken(reason, err, "broken WebP (status %d): fetch it again or leave it out",
                            (int)code);
}

/* Decode one frame into the canvas, or into memory of the library when the frame is the picture. */
static stk_status decode_frame(webp_codec *c, const WebPIterator *frame, stk_reason *reason, stk_error *err)
{
    WebPDecoderConfig config;
    if (!WebPInitDecoderConfig(&config)) return report(VP8_STATUS_INVALID_PARAM, reason, err);
    const size_t channels = c->blended ? 4 : 3;
    config.output.colorspace = c->blended ? MODE_RGBA : MODE_RGB;
    const uint32_t width_px = c->codec.width_px, height_px = c->codec.height_px;
    const bool covers = frame->x_offset == 0 && frame->y_offset == 0 && (uint32_t)frame->width == width_px &&
                        (uint32_t)frame->height == height_px;
    if (!covers) {
        if (frame->x_offset < 0 || frame->y_offset < 0 ||
            (uint64_t)frame->x_offset + (uint64_t)frame->width > width_px ||
            (uint64_t)frame->y_offset + (uint64_t)frame->height > height_px) {
            return report(VP8_STATUS_BITSTREAM_ERROR, reason, err);
        }
        c->stride_bytes = (size_t)width_px * channels + STK_PAD_BYTES;
        c->canvas = stk_alloc_array(STK_TAG_IMAGE, height_px, c->stride_bytes);
        if (!c->canvas) return report(VP8_STATUS_OUT_OF_MEMORY, reason, err);
        const size_t at = (size_t)frame->y_offset * c->stride_bytes + (size_t)frame->x_offset * channels;
        config.output.is_external_memory = 1;
        config.output.u.RGBA.rgba = c->canvas + at;
        config.output.u.RGBA.stride = (int)c->stride_bytes;
        config.output.u.RGBA.size = (size_t)height_px * c->stride_bytes - at;
    }
    const VP8StatusCode code = WebPDecode(frame->fragment.bytes, frame->fragment.size, &config);
    c->output = config.output;
    if (code != VP8_STATUS_OK) return report(code, reason, err);
    if (covers) {
        c->rows = config.output.u.RGBA.rgba;
        c->stride_bytes = (size_t)config.output.u.RGBA.stride;
    } else {
        c->rows = c->canvas;
    }
    return STK_OK;
}

static stk_status open_demuxer(webp_codec *c, WebPDemuxer *demuxer, const stk_image_info *info,
                               stk_reason *reason, stk_error *err)
{
    WebPIterator frame;
    c->codec.width_px = WebPDemuxGetI(demuxer, WEBP_FF_CANVAS_WIDTH);
    c->codec.height_px = WebPDemuxGetI(demuxer, WEBP_FF_CANVAS_HEIGHT);
    c->codec.channels = 3;
    STK_TRY(stk_image_check_same(info, c->codec.width_px, c->codec.height_px, reason, err));
    if (!WebPDemuxGetFrame(demuxer, 1, &frame)) return report(VP8_STATUS_BITSTREAM_ERROR, reason, err);
    const stk_status status = decode_frame(c, &frame, reason, err);
    WebPDemuxReleaseIterator(&frame);
    return status;
}

stk_status stk_webp_open(stk_codec **out, void *state, uint8_t *band, stk_bytes bytes,
                         const stk_image_info *info, stk_alpha_rule alpha, const stk_limits *limits,
                         stk_reason *reason, stk_error *err)
{
    static const stk_codec_ops ops = {webp_read, webp_finish, webp_close};
    webp_codec *const c = state;
    (void)limits;
    *out = NULL;
    memset(c, 0, sizeof *c);
    c->codec.ops = &ops;
    c->band = band;
    c->blended = alpha != STK_ALPHA_DROP && (info->flags & STK_MEDIA_HAS_ALPHA);

    WebPDemuxState parsed = WEBP_DEMUX_PARSE_ERROR;
    WebPDemuxer *const demuxer = WebPDemuxPartial(&(WebPData){bytes.data, bytes.size_bytes}, &parsed);
    stk_status status;
    if (!demuxer || parsed != WEBP_DEMUX_DONE) {
        status = report(demuxer && parsed != WEBP_DEMUX_PARSE_ERROR ? VP8_STATUS_NOT_ENOUGH_DATA
                                                                    : VP8_STATUS_BITSTREAM_ERROR,
                        reason, err);
    } else {
        status = open_demuxer(c, demuxer, info, reason, err);
    }
    WebPDemuxDelete(demuxer);
    if (status < 0) {
        webp_close(&c->codec);
        return status;
    }
    *out = &c->codec;
    return STK_OK;
}

/* --- the header --- */

/* The picture in three bytes a pixel, four with alpha; lossless pictures and alpha planes are decoded in four bytes a pixel
 * beside it; a canvas comes on top of an animation's frame. */
static void set_codec_bytes(stk_image_info *info, bool four_bytes)
{
    const uint64_t px = (uint64_t)info->width_px * info->height_px;
    info->codec_bytes = 1024 * 1024 + (uint64_t)info->width_px * 128 +
                        (uint64_t)info->height_px * STK_PAD_BYTES +
                        px * ((info->flags & STK_MEDIA_HAS_ALPHA ? 4u : 3u) + (four_bytes ? 6u : 0u) +
                              (info->flags & STK_MEDIA_ANIMATED ? 4u : 0u));
}

static stk_status cut(stk_bytes bytes, uint64_t total_bytes, stk_reason *reason, stk_error *err)
{
    if (bytes.size_bytes < total_bytes) return STK_AGAIN;
    return stk_image_broken(
        reason, err, "truncated WebP: the file ends inside its header; fetch it again or leave it out");
}

/* EXIF and XMP stand behind the pixels: walk the chunks for those that the header promises. */
static stk_status find_metadata(stk_header *header, uint8_t flags, stk_bytes bytes, uint64_t total_bytes,
                                stk_reason *reason, stk_error *err)
{
    const uint64_t stated = (uint64_t)stk_le32(bytes.data + 4) + 8,
                   end = stated < total_bytes ? stated : total_bytes;
    bool exif = (flags & VP8X_EXIF) != 0, xmp = (flags & VP8X_XMP) != 0;
    uint64_t at = 30;
    while ((exif || xmp) && end >= 8 && at <= end - 8) {
        if (at + 8 > bytes.size_bytes) return cut(bytes, total_bytes, reason, err);
        const uint8_t *const k = bytes.data + at;
        const uint64_t size_bytes = stk_le32(k + 4);
        const bool is_exif = memcmp(k, "EXIF", 4) == 0, is_xmp = memcmp(k, "XMP ", 4) == 0;
        if (size_bytes > end - at - 8) break; /* cut: decoding tells */
        if ((is_exif && exif) || (is_xmp && xmp)) {
            if (at + 8 + size_bytes > bytes.size_bytes) return cut(bytes, total_bytes, reason, err);
            const stk_bytes block = {k + 8, (size_t)size_bytes};
            if (is_exif)
                header->orientation.exif = (stk_exif){.piece = {block}, .piece_count = 1};
            else
                header->orientation.xmp = block;
            *(is_exif ? &exif : &xmp) = false; /* the first of each counts */
        }
        at += 8 + size_bytes + (size_bytes & 1);
    }
    return STK_OK;
}

/* A lossless picture says itself that it has alpha, whatever the extended header promises: libwebp goes by it. */
static stk_status find_alpha(stk_image_info *info, stk_bytes bytes, uint64_t total_bytes)
{
    uint64_t at = 30;
    while (at + 13 <= total_bytes) {
        if (at + 13 > bytes.size_bytes) return STK_AGAIN;
        const uint8_t *const k = bytes.data + at;
        if (memcmp(k, "VP8 ", 4) == 0) return STK_OK;
        if (memcmp(k, "VP8L", 4) == 0) {
            if (k[8] == 0x2f && stk_le32(k + 9) >> 28 & 1) info->flags |= STK_MEDIA_HAS_ALPHA;
            return STK_OK;
        }
        const uint64_t size_bytes = stk_le32(k + 4);
        at += 8 + size_bytes + (size_bytes & 1);
    }
    return STK_OK;
}

stk_status stk_webp_probe(stk_header *header, stk_reason *reason, stk_bytes bytes, uint64_t total_bytes,
                          const stk_limits *limits, stk_error *err)
{
    (void)limits;
    enum { HEADER_BYTES = 30 };
    stk_image_info *const info = &header->info;
    if (bytes.size_bytes < HEADER_BYTES) return cut(bytes, total_bytes, reason, err);
    const uint8_t *const d = bytes.data;
    info->whole = true;
    if (memcmp(d + 12, "VP8X", 4) == 0) {
        const uint8_t flags = d[20];
        info->width_px = stk_le24(d + 24) + 1;
        info->height_px = stk_le24(d + 27) + 1;
        if (flags & VP8X_ALPHA) info->flags |= STK_MEDIA_HAS_ALPHA;
        if (flags & VP8X_ANIMATED) info->flags |= STK_MEDIA_ANIMATED;
        if (!(flags & (VP8X_ALPHA | VP8X_ANIMATED))) {
            const stk_status status = find_alpha(info, bytes, total_bytes);
            if (status != STK_OK) return status;
        }
        set_codec_bytes(info, true);
        return find_metadata(header, flags, bytes, total_bytes, reason, err);
    }
    if (memcmp(d + 12, "VP8L", 4) == 0 && d[20] == 0x2f) {
        const uint32_t bits = stk_le32(d + 21);
        info->width_px = (bits & 0x3fff) + 1;
        info->height_px = (bits >> 14 & 0x3fff) + 1;
        if (bits >> 28 & 1) info->flags |= STK_MEDIA_HAS_ALPHA;
        set_codec_bytes(info, true);
        return STK_OK;
    }
    if (memcmp(d + 12, "VP8 ", 4) == 0 && d[23] == 0x9d && d[24] == 0x01 && d[25] == 0x2a) {
        info->width_px = stk_le24(d + 26) & 0x3fff;
        info->height_px = (uint32_t)(d[28] | d[29] << 8) & 0x3fff;
        set_codec_bytes(info, false);
        if (info->width_px && info->height_px) return STK_OK;
    }
    return stk_image_broken(reason, err,
                            "broken WebP (no picture in its first chunk): fetch it again or leave it out");
}
