/* probe.c - what kind of picture the first bytes are, and what its header says.
 *
 * The format follows from the bytes alone, never from a name.  Each format's own walk stands in its codec's
 * file; the words on faults that they share in image_fault.c. */
#include "image/codec.h"
#include "schema/derive.h"

/* Enough to tell every format apart, and to show of what is none; and Pillow's bound on an inflated text. */
enum { MAGIC_BYTES = 16, TEXT_MAX_BYTES = 1 << 20 };

static bool begins(stk_bytes bytes, size_t at, const char *magic, size_t magic_bytes)
{
    return bytes.size_bytes >= at + magic_bytes && memcmp(bytes.data + at, magic, magic_bytes) == 0;
}

/* The header of a bitmap begins with its size, which two letters of a text do not lead to.  The file's size and
 * the reserved field in between say nothing: Pillow looks at neither. */
static bool is_bmp(stk_bytes bytes)
{
    if (!begins(bytes, 0, "BM", 2) || bytes.size_bytes < MAGIC_BYTES) return false;
    const uint32_t head_bytes = stk_le16(bytes.data + 14);
    return head_bytes >= 12 && head_bytes <= 124;
}

/* The heads that Pillow takes: BigTIFF in one order of bytes, and two that are wrong. */
static bool is_tiff(stk_bytes bytes)
{
    static const char head[5][5] = {"II\x2a\0", "MM\0\x2a", "II\x2b\0", "MM\x2a\0", "II\0\x2a"};
    for (size_t i = 0; i < sizeof head / sizeof *head; i++) {
        if (begins(bytes, 0, head[i], 4)) return true;
    }
    return false;
}

/* The name of a kind of picture that is known and not read; NULL: none. */
static const char *foreign_format(stk_bytes bytes)
{
    static const struct {
        const char *name, *magic;
        size_t at, magic_bytes;
    } format[] = {
        {"big-endian BigTIFF", "MM\0\x2b", 0, 4},
        {"AVIF", "ftypavif", 4, 8},    {"AVIF", "ftypavis", 4, 8},
        {"HEIC", "ftypheic", 4, 8},    {"HEIC", "ftypheix", 4, 8},
        {"HEIF", "ftypmif1", 4, 8},    {"JPEG 2000", "\0\0\0\x0cjP  ", 0, 8},
        {"JPEG XL", "\xff\x0a", 0, 2}, {"JPEG XL", "\0\0\0\x0cJXL ", 0, 8},
    };
    for (size_t i = 0; i < sizeof format / sizeof *format; i++) {
        if (begins(bytes, format[i].at, format[i].magic, format[i].magic_bytes)) return format[i].name;
    }
    return NULL;
}

static stk_status not_an_image(stk_reason *reason, stk_bytes bytes, stk_error *err)
{
    char shown[MAGIC_BYTES * 4 + 1];
    char *out = shown;
    for (size_t i = 0; i < bytes.size_bytes && i < MAGIC_BYTES; i++) {
        const uint8_t b = bytes.data[i];
        const bool plain = b >= 0x20 && b < 0x7f && b != '"' && b != '\\';
        out += sprintf(out, plain ? "%c" : "\\x%02x", b);
    }
    *out = 0;
    *reason = STK_REASON_NOT_IMAGE;
    const stk_status status =
        stk_fail(err, STK_ERR_MEDIA,
                 "not an image: it begins with \"%s\"; check how the file was made or downloaded", shown);
    stk_error_stage(err, STK_STAGE_DECODE);
    return status;
}

static stk_media_format format_of(stk_bytes bytes)
{
    if (begins(bytes, 0, "\xff\xd8\xff", 3)) return STK_FORMAT_JPEG;
    if (begins(bytes, 0, "\x89PNG\r\n\x1a\n", 8)) return STK_FORMAT_PNG;
    if (begins(bytes, 0, "RIFF", 4) && begins(bytes, 8, "WEBPVP8", 7)) return STK_FORMAT_WEBP;
    if (begins(bytes, 0, "GIF87a", 6) || begins(bytes, 0, "GIF89a", 6)) return STK_FORMAT_GIF;
    if (is_tiff(bytes)) return STK_FORMAT_TIFF;
    return is_bmp(bytes) ? STK_FORMAT_BMP : STK_FORMAT_UNKNOWN;
}

static stk_status probe(stk_header *header, stk_reason *reason, stk_bytes bytes, uint64_t total_bytes,
                        const stk_limits *limits, stk_error *err)
{
    header->info.format = format_of(bytes);
    static stk_probe_fn *const probes[] = {
        [STK_FORMAT_JPEG] = stk_jpeg_probe, [STK_FORMAT_PNG] = stk_png_probe, [STK_FORMAT_WEBP] = stk_webp_probe,
        [STK_FORMAT_GIF] = stk_gif_probe,   [STK_FORMAT_BMP] = stk_bmp_probe, [STK_FORMAT_TIFF] = stk_tiff_probe,
    };
    if (header->info.format != STK_FORMAT_UNKNOWN)
        return probes[header->info.format](header, reason, bytes, total_bytes, limits, err);
    const char *const foreign = foreign_format(bytes);
    if (foreign)
        return stk_image_unsupported(reason, err, "%s is not supported: convert it to PNG, JPEG or WebP",
                                     foreign);
    return not_an_image(reason, bytes, err);
}

stk_status stk_image_probe(stk_image_info *info, stk_reason *reason, stk_bytes bytes, uint64_t total_bytes,
                           const stk_limits *limits, stk_error *err)
{
    *info = (stk_image_info){0};
    *reason = STK_REASON_NONE;
    if (total_bytes < bytes.size_bytes) total_bytes = bytes.size_bytes;
    if (total_bytes == 0) {
        *reason = STK_REASON_EMPTY;
        const stk_status status =
            stk_fail(err, STK_ERR_MEDIA, "the file is empty: fetch it again or leave it out");
        stk_error_stage(err, STK_STAGE_DECODE);
        return status;
    }
    if (total_bytes > limits->media_bytes) {
        *reason = STK_REASON_MEDIA_LIMIT;
        const stk_status status = stk_fail(
            err, STK_ERR_MEDIA_LIMIT,
            "the image has %llu bytes, more than the limit of %llu: raise limits.media_bytes or leave it out",
            (unsigned long long)total_bytes, (unsigned long long)limits->media_bytes);
        stk_error_stage(err, STK_STAGE_DECODE);
        return status;
    }
    if (bytes.size_bytes < MAGIC_BYTES && bytes.size_bytes < total_bytes) return STK_AGAIN;

    stk_header header = {.info.orientation = 1};
    stk_buffer_init(&header.profile, STK_TAG_IMAGE, TEXT_MAX_BYTES);
    stk_buffer_init(&header.xmp, STK_TAG_IMAGE, TEXT_MAX_BYTES);
    stk_status status = probe(&header, reason, bytes, total_bytes, limits, err);
    if (status == STK_OK) {
        status = stk_image_check_px(header.info.width_px, header.info.height_px, limits, reason, err);
    }
    if (status == STK_OK) {
        bool broken;
        header.info.orientation = stk_orientation_find(&header.orientation, &broken);
        if (broken) header.info.flags |= STK_MEDIA_PARTS_SKIPPED;
        if (header.info.whole) header.info.flags |= STK_MEDIA_WHOLE;
        *info = header.info;
    }
    stk_buffer_deinit(&header.profile);
    stk_buffer_deinit(&header.xmp);
    return status;
}

stk_status stk_image_target(uint32_t *target_width_px, uint32_t *target_height_px, stk_reason *reason,
                            uint32_t width_px, uint32_t height_px, uint32_t factor, uint64_t min_px,
                            uint64_t max_px, stk_profile profile, stk_error *err)
{
    stk_status status = STK_OK;
    *reason = stk_target_size(target_width_px, target_height_px, width_px, height_px, factor, min_px, max_px, profile);
    if (*reason == STK_REASON_RATIO) {
        status =
            stk_fail(err, STK_ERR_MEDIA, "the image has %ux%u pixels, a side ratio above 200: leave it out",
                     width_px, height_px);
    } else if (*reason != STK_REASON_NONE) {
        status =
            stk_fail(err, *reason == STK_REASON_MEDIA_LIMIT ? STK_ERR_MEDIA_LIMIT : STK_ERR_MEDIA,
                     "an image of %ux%u pixels has no target size between %llu and %llu pixels: leave it out",
                     width_px, height_px, (unsigned long long)min_px, (unsigned long long)max_px);
    }
    if (status < 0) stk_error_stage(err, STK_STAGE_TRANSFORM);
    return status;
}
