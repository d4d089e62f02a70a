/* tiff_head.c - the first directory of a TIFF, read as Pillow reads it, and which combinations are pictures
 * (spec-qwen3vl.md section 1.2).
 *
 * No library: a walk over the entries that works on the first part of a file.  Pillow's rules of damaged
 * directories are kept: the first of two equal tags counts, unknown types are passed over, values that
 * together are larger than the file are skipped, and a value behind the end ends the directory.  Where that
 * would turn a cut file into another picture, the file is refused. */
#include "image/tiff_head.h"

enum {
    PHOTO_WHITE_IS_0 = 0,
    PHOTO_BLACK_IS_0 = 1,
    PHOTO_RGB = 2,
    PHOTO_PALETTE = 3,
    PHOTO_CMYK = 5,
    PHOTO_YCBCR = 6,
    MAX_SAMPLES = 6,
    MAX_TILE_PX = 1 << 16,
    ABSENT = 0,
    MEANINGLESS = 255, /* orientations */
};

static stk_status truncated(stk_reason *reason, stk_error *err)
{
    return stk_image_broken(
        reason, err, "truncated TIFF: the file ends inside its header; fetch it again or leave it out");
}

static stk_status cut(stk_bytes bytes, uint64_t total_bytes, stk_reason *reason, stk_error *err)
{
    return bytes.size_bytes < total_bytes ? STK_AGAIN : truncated(reason, err);
}

static stk_status broken(stk_reason *reason, stk_error *err, const char *what)
{
    return stk_image_broken(reason, err, "broken TIFF (%s): fetch it again or leave it out", what);
}

/* --- numbers and entries --- */

static uint64_t number(const stk_tiff_head *h, const uint8_t *p, size_t size_bytes)
{
    uint64_t n = 0;
    for (size_t i = 0; i < size_bytes; i++) n = n << 8 | p[h->big_endian ? i : size_bytes - 1 - i];
    return n;
}

/* Bytes of one value of a type; 0: a type that Pillow passes over. */
static size_t type_bytes(uint32_t type)
{
    static const uint8_t bytes[] = {0, 1, 1, 2, 4, 8, 1, 1, 2, 4, 8, 4, 8, 4, 0, 0, 8};
    return type < sizeof bytes ? bytes[type] : 0;
}

bool stk_tiff_value(const stk_tiff_head *head, stk_bytes bytes, stk_tiff_tag tag, uint64_t index,
                    uint64_t *value)
{
    enum { SHORT = 3, LONG = 4, SIGNED_BYTE = 6, SIGNED_SHORT = 8, SIGNED_LONG = 9, IFD = 13, LONG8 = 16 };
    const stk_tiff_entry *const e = &head->entry[tag];
    const uint32_t t = e->type;
    const bool is_signed = t == SIGNED_BYTE || t == SIGNED_SHORT || t == SIGNED_LONG;
    if (!is_signed && t != SHORT && t != LONG && t != IFD && t != LONG8) return false;
    const size_t each = type_bytes(t);
    if (index >= e->count || e->at + (index + 1) * each > bytes.size_bytes) return false;
    *value = number(head, bytes.data + e->at + index * each, each);
    return !is_signed || *value >> (8 * each - 1) == 0;
}

static const uint16_t tag_numbers[STK_TIFF_TAGS] = {
#define TAG_NUMBER(name, number) number,
    STK_TIFF_TAG_MAP(TAG_NUMBER)
#undef TAG_NUMBER
};

static stk_tiff_entry *find_entry(stk_tiff_head *h, uint32_t tag)
{
    for (size_t i = 0; i < STK_TIFF_TAGS; i++) {
        if (tag_numbers[i] == tag) return &h->entry[i];
    }
    return NULL;
}

typedef enum step { STEP_NEXT, STEP_END, STEP_CUT } step;

/* One entry of the directory: kept or passed over; the end of what Pillow reads; one that a picture needs and
 * that is not all there. */
static step read_entry(stk_tiff_head *h, stk_bytes bytes, uint64_t at, uint64_t total_bytes,
                       uint64_t *values_bytes, uint8_t seen[8192])
{
    const size_t word = h->big_tiff ? 8 : 4;
    const uint8_t *const p = bytes.data + at;
    const uint32_t tag = (uint32_t)number(h, p, 2), type = (uint32_t)number(h, p + 2, 2);
    const size_t each = type_bytes(type);
    if (seen[tag / 8] >> tag % 8 & 1 || each == 0) return STEP_NEXT;
    stk_tiff_entry e = {.type = type, .count = number(h, p + 4, word), .at = at + 4 + word};
    e.size_bytes = e.count > UINT64_MAX / 2 / each ? UINT64_MAX / 2 : e.count * each;
    if (e.size_bytes > word) {
        e.at = number(h, p + 4 + word, word);
        if (e.at >> 63) return STEP_NEXT;
        *values_bytes =
            e.size_bytes > UINT64_MAX / 2 - *values_bytes ? UINT64_MAX / 2 : *values_bytes + e.size_bytes;
        if (*values_bytes > total_bytes) return STEP_NEXT;
        if (e.at > total_bytes || e.size_bytes > total_bytes - e.at)
            return find_entry(h, tag) ? STEP_CUT : STEP_END;
    }
    if (e.size_bytes == 0) return STEP_NEXT;
    seen[tag / 8] = (uint8_t)(seen[tag / 8] | 1u << tag % 8);
    stk_tiff_entry *const kept = find_entry(h, tag);
    if (kept) *kept = e;
    return STEP_NEXT;
}

static stk_status walk_directory(stk_tiff_head *h, stk_bytes bytes, uint64_t total_bytes, stk_reason *reason,
                                 stk_error *err)
{
    uint8_t seen[8192] = {0};
    const size_t count_bytes = h->big_tiff ? 8 : 2, entry_bytes = h->big_tiff ? 20 : 12,
                 next_bytes = h->big_tiff ? 8 : 4;
    uint64_t at = h->directory_at, values_bytes = 0;
    if (at > total_bytes || total_bytes - at < count_bytes)
        return broken(reason, err, "no directory where its header says");
    if (at + count_bytes > bytes.size_bytes) return cut(bytes, total_bytes, reason, err);
    const uint64_t count = number(h, bytes.data + at, count_bytes);
    at += count_bytes;
    for (uint64_t i = 0; i < count; i++, at += entry_bytes) {
        /* Pillow goes on with what it has, and takes the samples for others. */
        if (total_bytes - at < entry_bytes || at + entry_bytes > bytes.size_bytes)
            return cut(bytes, total_bytes, reason, err);
        const step next = read_entry(h, bytes, at, total_bytes, &values_bytes, seen);
        if (next == STEP_END) return STK_OK;
        if (next == STEP_CUT) return truncated(reason, err);
    }
    if (total_bytes - at < next_bytes) return STK_OK; /* some writers leave it out */
    if (at + next_bytes > bytes.size_bytes) return cut(bytes, total_bytes, reason, err);
    const uint64_t next = number(h, bytes.data + at, next_bytes);
    h->more_pictures = next != 0 && next != h->directory_at;
    return STK_OK;
}

/* The heads that Pillow takes, two of them wrong; BigTIFF from its highest byte on is none of them. */
static stk_status read_magic(stk_tiff_head *h, stk_bytes bytes, uint64_t total_bytes, stk_reason *reason,
                             stk_error *err)
{
    if (bytes.size_bytes < 16) return cut(bytes, total_bytes, reason, err); /* and no picture is as short */
    const uint8_t *const d = bytes.data;
    h->big_endian = d[0] == 'M';
    h->big_tiff = d[2] == 0x2b;
    h->odd_magic = h->big_endian ? d[2] != 0 : d[3] != 0;
    h->directory_at = h->big_tiff ? number(h, d + 8, 8) : number(h, d + 4, 4);
    if (h->directory_at == 0 || h->directory_at >> 63)
        return broken(reason, err, "no directory where its header says");
    return STK_OK;
}

/* --- which combinations are pictures --- */

/* What the tags say, as Pillow groups it. */
typedef struct key {
    uint64_t photometric, format, fill_order, samples, extra_count, planar;
    uint64_t bits[MAX_SAMPLES], extra[MAX_SAMPLES];
    uint64_t bits_count;
} key;

enum { II = 1, MM = 2, ANY = II | MM, NO_EXTRA = -1, COREL = 999 };

/* Pillow's table (TiffImagePlugin.OPEN_INFO).  extra: the first extra sample; those behind it are 0. */
static const struct {
    uint8_t photometric, format, bits, samples;
    int16_t extra;
    uint8_t orders;
    bool may_be_reversed;
    uint8_t form, alpha;
} known[] = {
    {0, 1, 1, 1, NO_EXTRA, ANY, true, STK_TIFF_GREY, STK_TIFF_OPAQUE},
    {0, 1, 2, 1, NO_EXTRA, ANY, true, STK_TIFF_GREY, STK_TIFF_OPAQUE},
    {0, 1, 4, 1, NO_EXTRA, ANY, true, STK_TIFF_GREY, STK_TIFF_OPAQUE},
    {0, 1, 8, 1, NO_EXTRA, ANY, true, STK_TIFF_GREY, STK_TIFF_OPAQUE},
    {0, 1, 16, 1, NO_EXTRA, II, false, STK_TIFF_GREY16, STK_TIFF_OPAQUE},
    {0, 3, 32, 1, NO_EXTRA, ANY, false, STK_TIFF_FLOAT, STK_TIFF_OPAQUE},
    {1, 1, 1, 1, NO_EXTRA, ANY, true, STK_TIFF_GREY, STK_TIFF_OPAQUE},
    {1, 1, 2, 1, NO_EXTRA, ANY, true, STK_TIFF_GREY, STK_TIFF_OPAQUE},
    {1, 1, 4, 1, NO_EXTRA, ANY, true, STK_TIFF_GREY, STK_TIFF_OPAQUE},
    {1, 1, 8, 1, NO_EXTRA, ANY, true, STK_TIFF_GREY, STK_TIFF_OPAQUE},
    {1, 2, 8, 1, NO_EXTRA, ANY, false, STK_TIFF_GREY, STK_TIFF_OPAQUE},
    {1, 1, 8, 2, 0, ANY, false, STK_TIFF_GREY, STK_TIFF_OPAQUE},
    {1, 1, 8, 2, 2, ANY, false, STK_TIFF_GREY, STK_TIFF_ALPHA},
    {1, 1, 12, 1, NO_EXTRA, II, false, STK_TIFF_GREY12, STK_TIFF_OPAQUE},
    {1, 1, 16, 1, NO_EXTRA, II, true, STK_TIFF_GREY16, STK_TIFF_OPAQUE},
    {1, 1, 16, 1, NO_EXTRA, MM, false, STK_TIFF_GREY16, STK_TIFF_OPAQUE},
    {1, 2, 16, 1, NO_EXTRA, ANY, false, STK_TIFF_SIGNED16, STK_TIFF_OPAQUE},
    {1, 1, 32, 1, NO_EXTRA, II, false, STK_TIFF_SIGNED32, STK_TIFF_OPAQUE},
    {1, 2, 32, 1, NO_EXTRA, ANY, false, STK_TIFF_SIGNED32, STK_TIFF_OPAQUE},
    {1, 3, 32, 1, NO_EXTRA, ANY, false, STK_TIFF_FLOAT, STK_TIFF_OPAQUE},
    {2, 1, 8, 3, NO_EXTRA, ANY, true, STK_TIFF_RGB, STK_TIFF_OPAQUE},
    {2, 1, 8, 4, NO_EXTRA, ANY, false, STK_TIFF_RGB, STK_TIFF_ALPHA},
    {2, 1, 8, 4, 0, ANY, false, STK_TIFF_RGB, STK_TIFF_OPAQUE},
    {2, 1, 8, 5, 0, ANY, false, STK_TIFF_RGB, STK_TIFF_OPAQUE},
    {2, 1, 8, 6, 0, ANY, false, STK_TIFF_RGB, STK_TIFF_OPAQUE},
    {2, 1, 8, 4, 1, ANY, false, STK_TIFF_RGB, STK_TIFF_PREMULTIPLIED},
    {2, 1, 8, 5, 1, ANY, false, STK_TIFF_RGB, STK_TIFF_PREMULTIPLIED},
    {2, 1, 8, 6, 1, ANY, false, STK_TIFF_RGB, STK_TIFF_PREMULTIPLIED},
    {2, 1, 8, 4, 2, ANY, false, STK_TIFF_RGB, STK_TIFF_ALPHA},
    {2, 1, 8, 5, 2, ANY, false, STK_TIFF_RGB, STK_TIFF_ALPHA},
    {2, 1, 8, 6, 2, ANY, false, STK_TIFF_RGB, STK_TIFF_ALPHA},
    {2, 1, 8, 4, COREL, ANY, false, STK_TIFF_RGB, STK_TIFF_ALPHA},
    {2, 1, 16, 3, NO_EXTRA, ANY, false, STK_TIFF_RGB, STK_TIFF_OPAQUE},
    {2, 1, 16, 4, NO_EXTRA, ANY, false, STK_TIFF_RGB, STK_TIFF_ALPHA},
    {2, 1, 16, 4, 0, ANY, false, STK_TIFF_RGB, STK_TIFF_OPAQUE},
    {2, 1, 16, 4, 1, ANY, false, STK_TIFF_RGB, STK_TIFF_PREMULTIPLIED},
    {2, 1, 16, 4, 2, ANY, false, STK_TIFF_RGB, STK_TIFF_ALPHA},
    {3, 1, 1, 1, NO_EXTRA, ANY, true, STK_TIFF_PALETTE, STK_TIFF_OPAQUE},
    {3, 1, 2, 1, NO_EXTRA, ANY, true, STK_TIFF_PALETTE, STK_TIFF_OPAQUE},
    {3, 1, 4, 1, NO_EXTRA, ANY, true, STK_TIFF_PALETTE, STK_TIFF_OPAQUE},
    {3, 1, 8, 1, NO_EXTRA, ANY, true, STK_TIFF_PALETTE, STK_TIFF_OPAQUE},
    {3, 1, 8, 2, 0, ANY, false, STK_TIFF_PALETTE, STK_TIFF_OPAQUE},
    {3, 1, 8, 2, 2, ANY, false, STK_TIFF_PALETTE, STK_TIFF_ALPHA},
    {5, 1, 8, 4, NO_EXTRA, ANY, false, STK_TIFF_CMYK, STK_TIFF_OPAQUE},
    {5, 1, 8, 5, 0, ANY, false, STK_TIFF_CMYK, STK_TIFF_OPAQUE},
    {5, 1, 8, 6, 0, ANY, false, STK_TIFF_CMYK, STK_TIFF_OPAQUE},
    {5, 1, 16, 4, NO_EXTRA, ANY, false, STK_TIFF_CMYK, STK_TIFF_OPAQUE},
    {6, 1, 8, 1, NO_EXTRA, ANY, false, STK_TIFF_GREY, STK_TIFF_OPAQUE},
    {6, 1, 8, 3, NO_EXTRA, ANY, false, STK_TIFF_YCBCR, STK_TIFF_OPAQUE},
};

static uint32_t color_count(const stk_tiff_head *h)
{
    return h->form == STK_TIFF_CMYK ? 4 : h->form == STK_TIFF_RGB || h->form == STK_TIFF_YCBCR ? 3 : 1;
}

static bool extras_are(const key *k, int16_t first, uint32_t samples, uint32_t colors)
{
    if (first == NO_EXTRA) return k->extra_count == 0;
    if (k->extra_count != samples - colors || k->extra[0] != (uint64_t)first) return false;
    for (uint64_t i = 1; i < k->extra_count; i++) {
        if (k->extra[i] != 0) return false;
    }
    return true;
}

static bool find_kind(stk_tiff_head *h, const key *k)
{
    for (uint64_t i = 1; i < k->samples; i++) {
        if (k->bits[i] != k->bits[0]) return false;
    }
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (known[i].photometric != k->photometric || known[i].format != k->format ||
            known[i].bits != k->bits[0] || known[i].samples != k->samples)
            continue;
        if (!(known[i].orders & (h->big_endian ? MM : II))) continue;
        if (k->fill_order != 1 && !(k->fill_order == 2 && known[i].may_be_reversed)) continue;
        h->form = (stk_tiff_form)known[i].form;
        h->alpha = (stk_tiff_alpha)known[i].alpha;
        if (!extras_are(k, known[i].extra, known[i].samples, color_count(h))) continue;
        h->bits = known[i].bits;
        h->samples = known[i].samples;
        return true;
    }
    return false;
}

/* Rows as they lie in the file.  Pillow takes the letters of its mode's name for the planes, which is right
 * for plain 8-bit colours only; what it would read wrong is refused. */
static bool stored_is_read_right(const stk_tiff_head *h, const key *k)
{
    if (h->form == STK_TIFF_PALETTE && h->reversed && h->bits < 8) return false;
    if (!h->apart) return true;
    if (h->inverted || h->reversed || k->extra_count > 1) return false;
    const bool missing_extra = h->form == STK_TIFF_RGB && h->samples == 4 && k->extra_count == 0;
    switch (h->form) {
    case STK_TIFF_GREY: return h->samples == 1 && (h->bits == 8 || h->bits == 1);
    case STK_TIFF_PALETTE: return h->samples == 1 && h->bits == 8;
    case STK_TIFF_RGB:
        return h->bits == 8 && h->alpha != STK_TIFF_PREMULTIPLIED && !(missing_extra && h->tiled);
    case STK_TIFF_CMYK: return h->bits == 8;
    default: return false;
    }
}

/* Rows from libtiff, which gives samples in the machine's order of bytes. */
static bool compressed_is_read_right(stk_tiff_head *h, const key *k)
{
    switch (h->compression) {
    case STK_TIFF_CCITT_RLE:
    case STK_TIFF_CCITT_G3:
    case STK_TIFF_CCITT_G4:
    case STK_TIFF_LZW:
    case STK_TIFF_JPEG:
    case STK_TIFF_DEFLATE:
    case STK_TIFF_CCITT_RLE_WORDS:
    case STK_TIFF_PACKBITS:
    case STK_TIFF_THUNDER:
    case STK_TIFF_OLD_DEFLATE:
    case STK_TIFF_ZSTD: break;
    default: return false;
    }
    if (h->odd_magic) return false;
    /* Pillow swaps these a second time. */
    if (h->big_endian &&
        (h->form == STK_TIFF_SIGNED16 || h->form == STK_TIFF_SIGNED32 || h->form == STK_TIFF_FLOAT))
        return false;
    if (k->photometric == PHOTO_YCBCR) {
        if (h->apart || h->samples != 3) return false;
        h->form = STK_TIFF_RGB;
        h->subsampled = h->compression != STK_TIFF_JPEG;
    }
    if (!h->apart) return true;
    if (h->samples == 2) return false; /* grey and alpha: Pillow loses the alpha */
    if (h->form == STK_TIFF_RGB && h->samples >= 4 && k->extra_count == 0)
        h->alpha =
            STK_TIFF_PREMULTIPLIED; /* libtiff adds an unspecified sample, which Pillow takes for that */
    return true;
}

static stk_status unsupported(const stk_tiff_head *h, const key *k, stk_reason *reason, stk_error *err)
{
    char extra[40] = "none";
    if (k->extra_count)
        snprintf(extra, sizeof extra, "%llu of kind %llu", (unsigned long long)k->extra_count,
                 (unsigned long long)k->extra[0]);
    return stk_image_unsupported(reason, err,
                                 "TIFF with photometric %llu, samples %llu x %llu bits, format %llu, extra "
                                 "%s, planar %llu, fill order "
                                 "%llu, compression %u, %s is not supported: convert it to PNG",
                                 (unsigned long long)k->photometric, (unsigned long long)k->samples,
                                 (unsigned long long)k->bits[0], (unsigned long long)k->format, extra,
                                 (unsigned long long)k->planar, (unsigned long long)k->fill_order,
                                 h->compression, h->big_endian ? "MM" : "II");
}

/* --- tags to values --- */

/* The first value of a tag, or what it is without; false: a tag without a usable number. */
static bool first_value(const stk_tiff_head *h, stk_bytes bytes, stk_tiff_tag tag, uint64_t otherwise,
                        uint64_t *value)
{
    *value = otherwise;
    return h->entry[tag].type == 0 || stk_tiff_value(h, bytes, tag, 0, value);
}

/* All values of a tag, of which the first MAX_SAMPLES are kept. */
static bool all_values(const stk_tiff_head *h, stk_bytes bytes, stk_tiff_tag tag, uint64_t value[MAX_SAMPLES],
                       uint64_t *count)
{
    *count = h->entry[tag].type ? h->entry[tag].count : 0;
    for (uint64_t i = 0; i < *count && i < MAX_SAMPLES; i++) {
        if (!stk_tiff_value(h, bytes, tag, i, &value[i])) return false;
    }
    return true;
}

/* Are the values there that a probe looks at? */
static bool values_are_here(const stk_tiff_head *h, stk_bytes bytes)
{
    for (size_t i = 0; i < STK_TIFF_TAGS; i++) {
        const stk_tiff_entry *const e = &h->entry[i];
        const bool looked_at = i != STK_TIFF_TAG_STRIP_OFFSETS && i != STK_TIFF_TAG_STRIP_BYTES &&
                               i != STK_TIFF_TAG_TILE_OFFSETS && i != STK_TIFF_TAG_TILE_BYTES &&
                               i != STK_TIFF_TAG_COLORS && i != STK_TIFF_TAG_JPEG_TABLES &&
                               i != STK_TIFF_TAG_XMP;
        const uint64_t need = e->size_bytes < MAX_SAMPLES * 8 ? e->size_bytes : MAX_SAMPLES * 8;
        if (e->type && looked_at && e->at + need > bytes.size_bytes) return false;
    }
    return true;
}

/* One sample format for all, or none that is known. */
static bool read_format(const stk_tiff_head *h, stk_bytes bytes, uint64_t *format)
{
    uint64_t value[MAX_SAMPLES] = {1}, count;
    if (!all_values(h, bytes, STK_TIFF_TAG_SAMPLE_FORMAT, value, &count) || count > MAX_SAMPLES) return false;
    *format = value[0];
    for (uint64_t i = 1; i < count; i++) {
        if (value[i] != value[0]) *format = 0;
    }
    return true;
}

/* Bits and extra samples, with Pillow's repairs: too many counts of bits are cut, one stands for all, and
 * unspecified samples in planes of their own are nothing. */
static bool read_samples(stk_tiff_head *h, stk_bytes bytes, key *k)
{
    if (!all_values(h, bytes, STK_TIFF_TAG_BITS, k->bits, &k->bits_count) ||
        !all_values(h, bytes, STK_TIFF_TAG_EXTRA_SAMPLES, k->extra, &k->extra_count) ||
        !first_value(h, bytes, STK_TIFF_TAG_SAMPLES, 1, &k->samples) || k->extra_count >= MAX_SAMPLES ||
        k->bits_count > MAX_SAMPLES)
        return false;
    if (k->bits_count == 0) k->bits[k->bits_count++] = 1;
    uint64_t largest = 0;
    for (uint64_t i = 0; i < k->extra_count; i++) largest = k->extra[i] > largest ? k->extra[i] : largest;
    if (k->planar == 2 && k->extra_count && largest == 0) {
        if (k->samples <= k->extra_count) return false;
        k->bits_count = k->bits_count > k->extra_count ? k->bits_count - k->extra_count : 0;
        k->samples -= k->extra_count;
        k->extra_count = 0;
    }
    if (k->samples < 1 || k->samples > MAX_SAMPLES) return false;
    if (k->samples < k->bits_count) k->bits_count = k->samples;
    if (k->bits_count == 1) {
        while (k->bits_count < k->samples) k->bits[k->bits_count++] = k->bits[0];
    }
    return k->bits_count == k->samples;
}

/* The size of the picture and of its pieces. */
static stk_status read_sizes(stk_tiff_head *h, stk_bytes bytes, const stk_limits *limits, stk_reason *reason,
                             stk_error *err)
{
    uint64_t width, height, rows, tile_width = 0;
    if (!stk_tiff_value(h, bytes, STK_TIFF_TAG_WIDTH, 0, &width) ||
        !stk_tiff_value(h, bytes, STK_TIFF_TAG_HEIGHT, 0, &height) || width == 0 || height == 0 ||
        width > INT32_MAX || height > INT32_MAX)
        return broken(reason, err, "no usable size");
    h->width_px = (uint32_t)width;
    h->height_px = (uint32_t)height;
    STK_TRY(stk_image_check_px(h->width_px, h->height_px, limits, reason, err));
    if (width * height >> 40) return broken(reason, err, "no usable size");

    if (!h->tiled) {
        if (!first_value(h, bytes, STK_TIFF_TAG_STRIP_ROWS, height, &rows) || rows == 0)
            return broken(reason, err, "strips of no rows");
        h->piece_width_px = h->width_px;
        h->piece_height_px = rows < height ? (uint32_t)rows : h->height_px;
    } else {
        if (!stk_tiff_value(h, bytes, STK_TIFF_TAG_TILE_WIDTH, 0, &tile_width) ||
            !stk_tiff_value(h, bytes, STK_TIFF_TAG_TILE_HEIGHT, 0, &rows) || tile_width == 0 || rows == 0)
            return broken(reason, err, "neither strips nor tiles");
        if (tile_width > MAX_TILE_PX || rows > MAX_TILE_PX)
            return stk_image_unsupported(
                reason, err, "TIFF with tiles of %llux%llu pixels is not supported: convert it to PNG",
                (unsigned long long)tile_width, (unsigned long long)rows);
        h->piece_width_px = (uint32_t)tile_width;
        h->piece_height_px = (uint32_t)rows;
    }
    h->pieces_across = (uint32_t)((width + h->piece_width_px - 1) / h->piece_width_px);
    h->pieces_down = (uint32_t)((height + h->piece_height_px - 1) / h->piece_height_px);
    return STK_OK;
}

static uint64_t samples_bytes(const stk_tiff_head *h, uint64_t pixels)
{
    return (pixels * (h->apart ? 1 : h->samples) * h->bits + 7) / 8;
}

/* Blocks of pixels that share a chroma, as libtiff converts them. */
static bool read_subsampling(stk_tiff_head *h, stk_bytes bytes)
{
    uint64_t across = 2, down = 2;
    if (h->entry[STK_TIFF_TAG_YCBCR_SUBSAMPLING].type &&
        (!stk_tiff_value(h, bytes, STK_TIFF_TAG_YCBCR_SUBSAMPLING, 0, &across) ||
         !stk_tiff_value(h, bytes, STK_TIFF_TAG_YCBCR_SUBSAMPLING, 1, &down)))
        return false;
    const uint64_t both = across * 16 + down;
    if (across > 4 || down > 4) return false;
    h->across_h = (uint32_t)across;
    h->across_v = (uint32_t)down;
    return both == 0x44 || both == 0x42 || both == 0x41 || both == 0x22 || both == 0x21 || both == 0x12 ||
           both == 0x11;
}

static void count_bytes(stk_tiff_head *h)
{
    h->row_bytes = h->subsampled ? (uint64_t)h->width_px * 3 : samples_bytes(h, h->width_px);
    if (h->subsampled) {
        const uint64_t across = (h->piece_width_px + h->across_h - 1) / h->across_h,
                       down = (h->piece_height_px + h->across_v - 1) / h->across_v;
        h->piece_bytes = across * down * (h->across_h * h->across_v + 2);
    } else {
        h->piece_bytes = samples_bytes(h, h->piece_width_px) * h->piece_height_px;
    }
}

static void read_orientation(stk_tiff_head *h, stk_bytes bytes)
{
    uint64_t value;
    h->orientation = ABSENT;
    if (h->entry[STK_TIFF_TAG_ORIENTATION].type == 0) return;
    const bool meant =
        stk_tiff_value(h, bytes, STK_TIFF_TAG_ORIENTATION, 0, &value) && value >= 1 && value <= 8;
    h->orientation = meant ? (uint8_t)value : MEANINGLESS;
}

static stk_status read_kind(stk_tiff_head *h, stk_bytes bytes, stk_reason *reason, stk_error *err)
{
    key k = {0};
    uint64_t compression;
    if (!first_value(h, bytes, STK_TIFF_TAG_COMPRESSION, STK_TIFF_NONE, &compression) ||
        !first_value(h, bytes, STK_TIFF_TAG_PLANAR, 1, &k.planar) ||
        !first_value(h, bytes, STK_TIFF_TAG_PHOTOMETRIC, PHOTO_WHITE_IS_0, &k.photometric) ||
        !first_value(h, bytes, STK_TIFF_TAG_FILL_ORDER, 1, &k.fill_order) ||
        !read_format(h, bytes, &k.format) || !read_samples(h, bytes, &k) || compression > UINT32_MAX)
        return broken(reason, err, "samples that its tags do not describe");
    h->compression = (uint32_t)compression;
    h->photometric = k.photometric > UINT32_MAX ? UINT32_MAX : (uint32_t)k.photometric;
    h->apart = k.planar == 2;
    h->reversed = k.fill_order == 2;
    if (h->entry[STK_TIFF_TAG_MEDIA_PHOTO].type || !find_kind(h, &k)) return unsupported(h, &k, reason, err);
    h->inverted = h->form == STK_TIFF_GREY && k.photometric == PHOTO_WHITE_IS_0;
    h->tiled = h->compression == STK_TIFF_NONE ? h->entry[STK_TIFF_TAG_STRIP_OFFSETS].type == 0
                                               : h->entry[STK_TIFF_TAG_TILE_WIDTH].type != 0;
    const bool right =
        h->compression == STK_TIFF_NONE ? stored_is_read_right(h, &k) : compressed_is_read_right(h, &k);
    if (!right || (h->subsampled && !read_subsampling(h, bytes))) return unsupported(h, &k, reason, err);
    h->planes = !h->apart ? 1 : h->alpha != STK_TIFF_OPAQUE ? 4 : color_count(h);
    return STK_OK;
}

/* Rows that are put together beside the library's own memory; the most that a picture of its size may take
 * follows from what stk_image_work_bytes charges when only facts are known. */
uint64_t stk_tiff_codec_bytes(const stk_tiff_head *h)
{
    enum { LIBRARY_BYTES = 512 * 1024, WINDOW_BYTES = 9 * 1024 * 1024 };
    const uint64_t width = h->piece_width_px, height = h->piece_height_px;
    uint64_t rows = h->piece_height_px < h->height_px ? h->piece_height_px : h->height_px;
    if (stk_tiff_is_stored(h)) rows = STK_CODEC_ROWS;
    uint64_t bytes = 4096 + (h->row_bytes * rows + STK_PAD_BYTES) * h->planes;
    if (stk_tiff_is_stored(h)) return bytes;
    bytes += LIBRARY_BYTES + width * 128;
    if (h->tiled || h->subsampled) bytes += h->piece_bytes + STK_PAD_BYTES;
    if (h->reversed) bytes += 2 * h->piece_bytes + 4096;
    if (h->compression == STK_TIFF_JPEG) /* coefficients of several scans */
        bytes += 2 * (width + 64) * (height + 64) * (h->apart ? 1 : h->samples) + width * 512;
    if (h->compression == STK_TIFF_ZSTD) bytes += WINDOW_BYTES;
    return bytes;
}

static uint64_t sides_bytes(const stk_tiff_head *h)
{
    return ((uint64_t)h->width_px + h->height_px) * STK_CODEC_SIDE_BYTES;
}

bool stk_tiff_is_whole(const stk_tiff_head *head)
{
    return stk_tiff_codec_bytes(head) > STK_CODEC_BASE_BYTES + sides_bytes(head);
}

/* Tiles far larger than their picture take memory that the facts do not tell of. */
static stk_status check_tiles(const stk_tiff_head *h, stk_reason *reason, stk_error *err)
{
    const uint64_t most = STK_CODEC_TIFF_BASE_BYTES + sides_bytes(h) +
                          (uint64_t)h->width_px * h->height_px * STK_CODEC_WHOLE_BYTES;
    const uint64_t bits = (uint64_t)h->piece_width_px * (h->apart ? 1 : h->samples) * h->bits;
    if ((!h->tiled || bits % 8 == 0) && stk_tiff_codec_bytes(h) <= most) return STK_OK;
    return stk_image_unsupported(
        reason, err,
        "TIFF of %ux%u pixels with pieces of %ux%u pixels of %u bits is not supported: convert it to PNG",
        h->width_px, h->height_px, h->piece_width_px, h->piece_height_px, h->bits);
}

stk_status stk_tiff_head_read(stk_tiff_head *head, stk_bytes bytes, uint64_t total_bytes,
                              const stk_limits *limits, stk_reason *reason, stk_error *err)
{
    *head = (stk_tiff_head){0};
    stk_status status = read_magic(head, bytes, total_bytes, reason, err);
    if (status != STK_OK) return status;
    status = walk_directory(head, bytes, total_bytes, reason, err);
    if (status != STK_OK) return status;
    if (!values_are_here(head, bytes)) return cut(bytes, total_bytes, reason, err);
    STK_TRY(read_kind(head, bytes, reason, err));
    STK_TRY(read_sizes(head, bytes, limits, reason, err));
    count_bytes(head);
    read_orientation(head, bytes);
    return check_tiles(head, reason, err);
}
