/* codec.h - one way to read rows from a picture of any format, and to read its header.
 *
 * A codec hands over stored rows from top to bottom: one byte a pixel when the picture is grey (channels ==
 * 1), else R, G, B.  What a row needs to become that (palette, CMYK, 16 bit, dropped alpha) is done inside,
 * as Pillow's convert("RGB") does it (spec-qwen3vl.md section 1.2). */
#ifndef STK_IMAGE_CODEC_H
#define STK_IMAGE_CODEC_H

#include "image/image.h"
#include "image/orientation.h"

enum { STK_CODEC_ROWS = 16 }; /* rows at most that one call hands over */

typedef struct stk_codec stk_codec;

/* Rows that a codec lends until its next call. */
typedef struct stk_codec_rows {
    const uint8_t *data;
    size_t stride_bytes;
    uint32_t count; /* 1..STK_CODEC_ROWS */
} stk_codec_rows;

typedef struct stk_codec_ops {
    /* The next rows.  Only called while rows are left. */
    stk_status (*read)(stk_codec *codec, stk_codec_rows *rows, stk_reason *reason, stk_error *err);
    /* After the last row: does the file end as the reference wants it to? */
    stk_status (*finish)(stk_codec *codec, stk_reason *reason, stk_error *err);
    void (*close)(stk_codec *codec);
} stk_codec_ops;

/* The codec's part that all have; each file puts its own behind it. */
struct stk_codec {
    const stk_codec_ops *ops; /* NULL: not open */
    uint32_t width_px, height_px;
    uint32_t channels; /* 1 or 3 */
};

/* A codec's state lives in the scratch, which gives it band_bytes for its rows (stk_codec_band_bytes).  bytes
 * stay valid and unchanged until close; info is what a probe of them said; alpha is what becomes of
 * transparency.  After failure nothing is open. */
typedef stk_status stk_codec_open_fn(stk_codec **out, void *state, uint8_t *band, stk_bytes bytes,
                                     const stk_image_info *info, stk_alpha_rule alpha,
                                     const stk_limits *limits, stk_reason *reason,
                                     stk_error *err) STK_MUST_USE;
stk_codec_open_fn stk_jpeg_open, stk_png_open, stk_webp_open, stk_gif_open, stk_bmp_open, stk_tiff_open;

size_t stk_jpeg_state_bytes(void);
size_t stk_png_state_bytes(void);
size_t stk_webp_state_bytes(void);
size_t stk_gif_state_bytes(void);
size_t stk_bmp_state_bytes(void);
size_t stk_tiff_state_bytes(void);

/* v under alpha a on opaque white, as Pillow rounds it (spec-qwen3vl.md section 1.2). */
static inline uint8_t stk_on_white(uint8_t v, uint8_t a)
{
    const uint32_t x = 255u * (255u - a) + (uint32_t)v * a + 128;
    return (uint8_t)(((x >> 8) + x) >> 8);
}

/* STK_CODEC_ROWS rows as wide as any codec wants them (CMYK and 16-bit grey are converted in place). */
static inline size_t stk_codec_band_bytes(uint32_t width_px)
{
    return ((size_t)width_px * 4 + STK_PAD_BYTES) * STK_CODEC_ROWS;
}

/* What a library may take when only facts are known (stk_image_work_bytes): this much, for each pixel of both
 * sides, and for each pixel of the picture when the library holds it whole. */
enum {
    STK_CODEC_BASE_BYTES = 2 * 1024 * 1024,
    STK_CODEC_TIFF_BASE_BYTES = 16 * 1024 * 1024, /* of a TIFF that is not read in small pieces */
    STK_CODEC_SIDE_BYTES = 1024,
    STK_CODEC_WHOLE_BYTES = 12,
};

/* What a header walk found.  STK_AGAIN as in stk_image_probe. */
typedef struct stk_header {
    stk_image_info info;
    stk_orientation_sources orientation;
    stk_buffer profile, xmp; /* inflated texts of a PNG, which orientation may point into */
} stk_header;

typedef stk_status stk_probe_fn(stk_header *header, stk_reason *reason, stk_bytes bytes, uint64_t total_bytes,
                                const stk_limits *limits, stk_error *err) STK_MUST_USE;
stk_probe_fn stk_jpeg_probe, stk_png_probe, stk_webp_probe, stk_gif_probe, stk_bmp_probe, stk_tiff_probe;

/* width x height against the limit: STK_ERR_MEDIA_LIMIT with both in the message. */
stk_status stk_image_check_px(uint32_t width_px, uint32_t height_px, const stk_limits *limits,
                              stk_reason *reason, stk_error *err) STK_MUST_USE;

/* The size that a codec found against the one that the work was planned with: STK_REASON_CHANGED. */
stk_status stk_image_check_same(const stk_image_info *info, uint32_t width_px, uint32_t height_px,
                                stk_reason *reason, stk_error *err) STK_MUST_USE;

/* One fault of the bytes: fills reason and err. */
stk_status stk_image_broken(stk_reason *reason, stk_error *err, const char *format, ...) STK_PRINTF(3, 4);
stk_status stk_image_unsupported(stk_reason *reason, stk_error *err, const char *format, ...)
    STK_PRINTF(3, 4);

/* Numbers of headers. */
static inline uint32_t stk_be16(const uint8_t *p)
{
    return (uint32_t)(p[0] << 8 | p[1]);
}
static inline uint32_t stk_be32(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}
static inline uint32_t stk_le16(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8;
}
static inline uint32_t stk_le24(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16;
}
static inline uint32_t stk_le32(const uint8_t *p)
{
    return stk_le24(p) | (uint32_t)p[3] << 24;
}

#endif
