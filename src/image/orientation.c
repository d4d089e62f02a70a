/* orientation.c - EXIF, hex profiles and XMP, read as Pillow reads them.
 *
 * Where Pillow refuses a file because its EXIF is broken, the block counts as absent here: the pixels are
 * fine. */
#include "image/orientation.h"

enum { TAG_ORIENTATION = 274, ABSENT = 0, OTHER = 255 };

/* --- EXIF: a TIFF file in a block --- */

/* The joined pieces, from skip_bytes on. */
typedef struct tiff {
    const stk_exif *exif;
    uint64_t skip_bytes, size_bytes; /* of what is left */
    bool big_endian, big_tiff;
} tiff;

static bool read_bytes(const tiff *t, uint64_t at, uint8_t *out, size_t count)
{
    if (at > t->size_bytes || count > t->size_bytes - at) return false;
    at += t->skip_bytes;
    size_t piece = 0;
    for (size_t i = 0; i < count; i++, at++) {
        while (at >= t->exif->piece[piece].size_bytes) at -= t->exif->piece[piece++].size_bytes;
        out[i] = t->exif->piece[piece].data[at];
    }
    return true;
}

static bool read_number(const tiff *t, uint64_t at, size_t count, uint64_t *out)
{
    uint8_t b[8];
    if (!read_bytes(t, at, b, count)) return false;
    *out = 0;
    for (size_t i = 0; i < count; i++) *out = *out << 8 | b[t->big_endian ? i : count - 1 - i];
    return true;
}

static bool starts_with(const tiff *t, const char *magic, size_t count)
{
    uint8_t b[8];
    return read_bytes(t, 0, b, count) && memcmp(b, magic, count) == 0;
}

static void skip(tiff *t, size_t count)
{
    t->skip_bytes += count;
    t->size_bytes -= count;
}

/* The six heads that Pillow takes, two of them wrong, and what follows from each. */
static bool read_head(tiff *t)
{
    static const struct {
        char magic[4];
        bool big_endian, big_tiff;
    } head[] = {
        {{'M', 'M', 0, 0x2a}, true, false},
        {{'I', 'I', 0x2a, 0}, false, false},
        {{'M', 'M', 0x2a, 0}, true, false},
        /* Pillow decides on BigTIFF by the third byte, which is 0 in this head. */
        {{'I', 'I', 0, 0x2a}, false, false},
        {{'M', 'M', 0, 0x2b}, true, false},
        {{'I', 'I', 0x2b, 0}, false, true},
    };
    for (size_t i = 0; i < sizeof head / sizeof *head; i++) {
        if (!starts_with(t, head[i].magic, 4)) continue;
        t->big_endian = head[i].big_endian;
        t->big_tiff = head[i].big_tiff;
        return true;
    }
    return false;
}

/* Bytes of one value of a TIFF type; 0: a type that Pillow leaves out. */
static size_t type_bytes(uint64_t type)
{
    static const uint8_t bytes[] = {0, 1, 1, 2, 4, 8, 1, 1, 2, 4, 8, 4, 8, 4, 0, 0, 8};
    return type < sizeof bytes ? bytes[type] : 0;
}

static uint8_t from_number(double value)
{
    for (uint8_t o = 1; o <= 8; o++) {
        if (value == o) return o;
    }
    return OTHER;
}

/* The first value of the tag at data_at, as the number that Pillow compares: text and bytes are none. */
static uint8_t read_value(const tiff *t, uint64_t type, uint64_t data_at)
{
    uint64_t a = 0, b = 0;
    switch (type) {
    case 3:
    case 8: return read_number(t, data_at, 2, &a) ? from_number((double)a) : OTHER;
    case 4:
    case 9:
    case 13: return read_number(t, data_at, 4, &a) ? from_number((double)a) : OTHER;
    case 6: return read_number(t, data_at, 1, &a) ? from_number((double)a) : OTHER;
    case 16: return read_number(t, data_at, 8, &a) ? from_number((double)a) : OTHER;
    case 5:
    case 10:
        if (!read_number(t, data_at, 4, &a) || !read_number(t, data_at + 4, 4, &b)) return OTHER;
        if (type == 10) return b ? from_number((double)(int32_t)a / (double)(int32_t)b) : OTHER;
        return b ? from_number((double)a / (double)b) : OTHER;
    case 11: {
        float f;
        if (!read_number(t, data_at, 4, &a)) return OTHER;
        const uint32_t bits = (uint32_t)a;
        memcpy(&f, &bits, 4);
        return from_number((double)f);
    }
    case 12: {
        double d;
        if (!read_number(t, data_at, 8, &a)) return OTHER;
        memcpy(&d, &a, 8);
        return from_number(d);
    }
    default: return OTHER;
    }
}

/* ABSENT, 1..8, or OTHER for a tag that is there and means nothing. */
static uint8_t exif_orientation(const stk_exif *exif, bool *broken)
{
    tiff t = {.exif = exif};
    for (size_t i = 0; i < exif->piece_count; i++) t.size_bytes += exif->piece[i].size_bytes;
    /* Some writers put the marker's name twice. */
    for (int i = 0; i < 2 && starts_with(&t, "Exif\0\0", 6); i++) {
        *broken = *broken || i > 0;
        skip(&t, 6);
    }
    const bool doubled = *broken;
    *broken = true; /* until the end of the directory is reached, or the tag */
    if (t.size_bytes < 8 || !read_head(&t)) return ABSENT;

    uint64_t at, count, limit_bytes = t.size_bytes, total_bytes = 0;
    /* A block's head of 8 bytes is all that Pillow reads before the directory, so a BigTIFF offset is never
     * whole. */
    if (t.big_tiff || !read_number(&t, 4, 4, &at) || !read_number(&t, at, 2, &count)) return ABSENT;
    at += 2;
    for (uint64_t i = 0; i < count; i++, at += 12) {
        uint64_t tag, type, values, data_at = at + 8;
        if (!read_number(&t, at, 2, &tag) || !read_number(&t, at + 2, 2, &type) ||
            !read_number(&t, at + 4, 4, &values)) {
            return ABSENT;
        }
        if (!read_number(&t, at + 8, 4, &data_at)) return ABSENT;
        const uint64_t size_bytes = values * type_bytes(type);
        if (size_bytes > 4) {
            total_bytes += size_bytes;
            if (total_bytes > limit_bytes)
                continue; /* as Pillow: the tag is skipped, its size stays counted */
            /* A value behind the end ends the directory: what came before it counts. */
            if (data_at > t.size_bytes || size_bytes > t.size_bytes - data_at) return ABSENT;
        } else {
            data_at = at + 8;
        }
        if (tag == TAG_ORIENTATION && size_bytes > 0) {
            *broken = doubled;
            return read_value(&t, type, data_at);
        }
    }
    *broken = doubled;
    return ABSENT;
}

/* --- PNG text "Raw profile type exif": the block in hex behind three lines --- */

static int hex_digit(uint8_t c)
{
    if (c >= '0' && c <= '9') return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool is_space(uint8_t c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* Enough for a directory of thousands of entries; the orientation stands in the first one. */
enum { PROFILE_MAX_BYTES = 64 * 1024 };

static uint8_t profile_orientation(stk_bytes text, bool *broken)
{
    *broken = true;
    size_t at = 0;
    for (int line = 0; line < 3; line++) {
        const uint8_t *const end =
            at < text.size_bytes ? memchr(text.data + at, '\n', text.size_bytes - at) : NULL;
        if (!end) return ABSENT;
        at = (size_t)(end - text.data) + 1;
    }
    uint8_t block[PROFILE_MAX_BYTES];
    size_t size_bytes = 0;
    while (at < text.size_bytes && size_bytes < sizeof block) {
        if (is_space(text.data[at])) {
            at++;
            continue;
        }
        const int high = hex_digit(text.data[at++]);
        while (at < text.size_bytes && text.data[at] == '\n')
            at++; /* lines are joined, so a pair may straddle two */
        const int low = at < text.size_bytes ? hex_digit(text.data[at++]) : -1;
        if (high < 0 || low < 0) return ABSENT;
        block[size_bytes++] = (uint8_t)(high << 4 | low);
    }
    const stk_exif exif = {.piece = {{block, size_bytes}}, .piece_count = 1};
    *broken = false;
    return exif_orientation(&exif, broken);
}

/* --- XMP --- */

/* The first of  tiff:Orientation="N  and  tiff:Orientation>N,  by bytes: XMP that is not UTF-8 does not
 * matter. */
static uint8_t xmp_orientation(stk_bytes xmp)
{
    static const char name[] = "tiff:Orientation";
    enum { NAME_BYTES = sizeof name - 1 };
    const uint8_t *at = xmp.data, *const end = xmp.data + xmp.size_bytes;
    while ((at = memmem(at, (size_t)(end - at), name, NAME_BYTES))) {
        at += NAME_BYTES;
        const uint8_t *digit = NULL;
        if (end - at >= 2 && *at == '>')
            digit = at + 1;
        else if (end - at >= 3 && at[0] == '=' && at[1] == '"')
            digit = at + 2;
        if (digit && *digit >= '0' && *digit <= '9') return from_number(*digit - '0');
    }
    return ABSENT;
}

uint8_t stk_orientation_find(const stk_orientation_sources *sources, bool *broken)
{
    *broken = false;
    uint8_t found = sources->stated;
    if (found == ABSENT && sources->exif.piece_count)
        found = exif_orientation(&sources->exif, broken);
    else if (found == ABSENT && sources->profile.data)
        found = profile_orientation(sources->profile, broken);
    if (found == ABSENT && sources->xmp.data) found = xmp_orientation(sources->xmp);
    return found >= 1 && found <= 8 ? found : 1;
}
