/* tiff.c - TIFF pictures: the first one of a file, as Pillow has it (spec-qwen3vl.md sections 1.1 and 1.2).
 *
 * What is stored uncompressed is taken from the file as it lies; of all else libtiff decodes one strip, or
 * one row of tiles, at a time.  The library never sees the file's directory: it is given a small one with the
 * tags that its codecs need, of a picture that is one strip or tile, so that nothing else in a file can make
 * it allocate or read anything.
 *
 *     0            16                    size, rounded up
 *     [ our head ][ the file's own bytes ][ our directory ]     what libtiff reads, always a BigTIFF
 *
 * Errors come back with their handle, none is printed.  Pillow turns a TIFF upright while it loads it, so its
 * orientation is applied under every rule (stk_media_orientation). */
#include "image/tiff_rows.h"

#include <stdarg.h>
#include <tiffio.h>

enum {
    OUR_HEAD_BYTES = 16,
    OUR_TAGS = 24,
    ENTRY_BYTES = 20,
    OUR_DIRECTORY_BYTES = 8 + OUR_TAGS * ENTRY_BYTES + 8,
    ZSTD_WINDOW_BYTES = 8 * 1024 * 1024, /* what tiff_head.c charges, and what level 19 needs */
    YCBCR_BYTES = sizeof(TIFFYCbCrToRGB) + sizeof(long) + 4 * 256 + 5 * 256 * sizeof(int32_t),
};

/* The file that libtiff reads. */
typedef struct virtual_file {
    stk_bytes bytes;
    uint8_t head[OUR_HEAD_BYTES], directory[OUR_DIRECTORY_BYTES];
    size_t tag_count;
    uint64_t directory_at, size_bytes, at;
} virtual_file;

typedef struct tiff_codec {
    stk_codec codec; /* first: the two are one */
    stk_tiff_head head;
    stk_tiff_converter converter;
    stk_bytes bytes;
    uint8_t *band;
    uint32_t next_row;
    uint8_t *store;  /* planes x store_rows rows; NULL: rows are taken from the file */
    uint8_t *unit;   /* one decoded tile or block of chroma; NULL: pieces are decoded into the store */
    uint8_t *packed; /* compressed bytes to turn around; NULL: they are taken from the file */
    uint32_t store_rows;
    TIFF *lib;
    virtual_file file;
    char message[128];
    bool fax_ended;
    uint64_t ycbcr[YCBCR_BYTES / 8 + 1];
} tiff_codec;

size_t stk_tiff_state_bytes(void)
{
    return sizeof(tiff_codec);
}

/* --- failures --- */

static stk_status no_memory(stk_reason *reason, const tiff_codec *c, stk_error *err)
{
    *reason = STK_REASON_NONE;
    const stk_status status = stk_fail(err, STK_ERR_NOMEM, "no memory to decode a TIFF of %ux%u pixels",
                                       c->head.width_px, c->head.height_px);
    stk_error_stage(err, STK_STAGE_DECODE);
    return status;
}

static stk_status truncated(stk_reason *reason, stk_error *err)
{
    return stk_image_broken(
        reason, err, "truncated TIFF: the file ends before its last row; fetch it again or leave it out");
}

static stk_status broken(stk_reason *reason, stk_error *err, const char *what)
{
    return stk_image_broken(reason, err, "broken TIFF (%s): fetch it again or leave it out", what);
}

/* What libtiff said; its own limit is no lack of memory. */
static stk_status report(const tiff_codec *c, stk_reason *reason, stk_error *err)
{
    const bool limit = strstr(c->message, "limit") != NULL;
    if (!limit && (strstr(c->message, "emory") || strstr(c->message, "No space")))
        return no_memory(reason, c, err);
    return broken(reason, err, c->message[0] ? c->message : "its pixels cannot be decoded");
}

static int on_error(TIFF *lib, void *user, const char *module, const char *format, va_list args)
{
    tiff_codec *const c = user;
    (void)lib;
    (void)module;
    vsnprintf(c->message, sizeof c->message, format, args);
    for (char *at = c->message; *at; at++) {
        if ((unsigned char)*at < ' ') *at = ' ';
    }
    return 1;
}

/* Of all warnings only those about a fax that ends early count: a row without a pixel, or no row.  The
 * library's answer does not tell. */
static int on_warning(TIFF *lib, void *user, const char *module, const char *format, va_list args)
{
    tiff_codec *const c = user;
    char text[sizeof c->message];
    (void)lib;
    (void)module;
    vsnprintf(text, sizeof text, format, args);
    if (strstr(text, "Premature EOF") || (strstr(text, "Premature EOL") && strstr(text, "(got 0,")))
        c->fax_ended = true;
    return 1;
}

/* --- the file that libtiff reads --- */

static void put(const stk_tiff_head *h, uint8_t *at, uint64_t number, size_t size_bytes)
{
    for (size_t i = 0; i < size_bytes; i++)
        at[h->big_endian ? size_bytes - 1 - i : i] = (uint8_t)(number >> (8 * i));
}

static void put_entry(tiff_codec *c, uint32_t tag, uint32_t type, uint64_t count, uint64_t value,
                      size_t value_bytes)
{
    virtual_file *const f = &c->file;
    uint8_t *const at = f->directory + 8 + f->tag_count++ * ENTRY_BYTES;
    put(&c->head, at, tag, 2);
    put(&c->head, at + 2, type, 2);
    put(&c->head, at + 4, count, 8);
    put(&c->head, at + 12, value, value_bytes);
}

static void put_short(tiff_codec *c, uint32_t tag, uint64_t value)
{
    put_entry(c, tag, TIFF_SHORT, 1, value & 0xffff, 2);
}

static void put_long(tiff_codec *c, uint32_t tag, uint64_t value)
{
    put_entry(c, tag, TIFF_LONG, 1, value & 0xffffffff, 4);
}

/* An option of a codec, when the file has it. */
static void copy_option(tiff_codec *c, uint32_t tag, stk_tiff_tag from)
{
    uint64_t value;
    if (stk_tiff_value(&c->head, c->bytes, from, 0, &value)) put_long(c, tag, value);
}

/* Values that stay where the file has them; those of a few bytes stand in its directory. */
static void refer(tiff_codec *c, uint32_t tag, uint32_t type, stk_tiff_tag from)
{
    const stk_tiff_entry *const e = &c->head.entry[from];
    if (e->type != type || e->at + e->size_bytes > c->bytes.size_bytes) return;
    if (e->size_bytes > 8) {
        put_entry(c, tag, type, e->count, e->at, 8);
    } else {
        put_entry(c, tag, type, e->count, 0, 8);
        memcpy(c->file.directory + 8 + (c->file.tag_count - 1) * ENTRY_BYTES + 12, c->bytes.data + e->at,
               e->size_bytes);
    }
}

/* Where a piece of a plane lies; false: the directory does not say. */
static bool find_piece(const tiff_codec *c, uint64_t index, uint64_t *at, uint64_t *size_bytes)
{
    const stk_tiff_head *const h = &c->head;
    const bool tiles = h->tiled && h->entry[STK_TIFF_TAG_TILE_OFFSETS].type;
    const stk_tiff_tag sizes = h->tiled && h->entry[STK_TIFF_TAG_TILE_BYTES].type ? STK_TIFF_TAG_TILE_BYTES
                                                                                  : STK_TIFF_TAG_STRIP_BYTES;
    if (!stk_tiff_value(h, c->bytes, tiles ? STK_TIFF_TAG_TILE_OFFSETS : STK_TIFF_TAG_STRIP_OFFSETS, index,
                        at))
        return false;
    if (stk_tiff_value(h, c->bytes, sizes, index, size_bytes) && *size_bytes > 0) return true;
    /* The only piece goes on to the end, as libtiff guesses. */
    *size_bytes = *at < c->bytes.size_bytes ? c->bytes.size_bytes - *at : 0;
    return !h->apart && (uint64_t)h->pieces_across * h->pieces_down == 1;
}

static void describe_piece(tiff_codec *c)
{
    const stk_tiff_head *const h = &c->head;
    const bool ycbcr = h->photometric == PHOTOMETRIC_YCBCR;
    const uint32_t samples = h->apart ? 1 : h->samples;
    uint64_t at = 0, size_bytes = 0, format;
    (void)find_piece(c, 0, &at, &size_bytes);
    put_long(c, TIFFTAG_IMAGEWIDTH, h->piece_width_px);
    put_long(c, TIFFTAG_IMAGELENGTH, h->piece_height_px);
    put_short(c, TIFFTAG_BITSPERSAMPLE, h->bits);
    put_short(c, TIFFTAG_COMPRESSION, h->compression);
    put_short(c, TIFFTAG_PHOTOMETRIC,
              ycbcr                      ? PHOTOMETRIC_YCBCR
              : samples <= 2             ? PHOTOMETRIC_MINISBLACK
              : h->form == STK_TIFF_CMYK ? PHOTOMETRIC_SEPARATED
                                         : PHOTOMETRIC_RGB);
    put_short(c, TIFFTAG_FILLORDER, h->reversed ? FILLORDER_LSB2MSB : FILLORDER_MSB2LSB);
    put_entry(c, TIFFTAG_STRIPOFFSETS, TIFF_LONG8, 1, at, 8);
    put_short(c, TIFFTAG_SAMPLESPERPIXEL, samples);
    put_long(c, TIFFTAG_ROWSPERSTRIP, h->piece_height_px);
    put_entry(c, TIFFTAG_STRIPBYTECOUNTS, TIFF_LONG8, 1, size_bytes, 8);
    put_short(c, TIFFTAG_PLANARCONFIG, PLANARCONFIG_CONTIG);
    if (h->compression == STK_TIFF_CCITT_G3) copy_option(c, TIFFTAG_GROUP3OPTIONS, STK_TIFF_TAG_T4_OPTIONS);
    if (h->compression == STK_TIFF_CCITT_G4) copy_option(c, TIFFTAG_GROUP4OPTIONS, STK_TIFF_TAG_T6_OPTIONS);
    copy_option(c, TIFFTAG_PREDICTOR, STK_TIFF_TAG_PREDICTOR);
    if (stk_tiff_value(h, c->bytes, STK_TIFF_TAG_SAMPLE_FORMAT, 0, &format))
        put_short(c, TIFFTAG_SAMPLEFORMAT, format);
    refer(c, TIFFTAG_JPEGTABLES, TIFF_UNDEFINED, STK_TIFF_TAG_JPEG_TABLES);
    if (!ycbcr) return;
    refer(c, TIFFTAG_YCBCRCOEFFICIENTS, TIFF_RATIONAL, STK_TIFF_TAG_YCBCR_WEIGHTS);
    refer(c, TIFFTAG_YCBCRSUBSAMPLING, TIFF_SHORT, STK_TIFF_TAG_YCBCR_SUBSAMPLING);
    refer(c, TIFFTAG_REFERENCEBLACKWHITE, TIFF_RATIONAL, STK_TIFF_TAG_BLACK_WHITE);
}

static void describe_file(tiff_codec *c)
{
    virtual_file *const f = &c->file;
    f->bytes = c->bytes;
    f->directory_at = stk_round_up(c->bytes.size_bytes + OUR_HEAD_BYTES, 16);
    memcpy(f->head, c->head.big_endian ? "MM" : "II", 2);
    put(&c->head, f->head + 2, 43, 2);
    put(&c->head, f->head + 4, 8, 2);
    put(&c->head, f->head + 8, f->directory_at, 8);
    describe_piece(c);
    put(&c->head, f->directory, f->tag_count, 8);
    f->size_bytes = f->directory_at + 8 + f->tag_count * ENTRY_BYTES + 8;
}

/* Byte number at of the virtual file, and how many follow in the same place. */
static const uint8_t *place_of(const virtual_file *f, uint64_t at, uint64_t *left)
{
    static const uint8_t gap[2 * OUR_HEAD_BYTES];
    if (at < OUR_HEAD_BYTES) {
        *left = OUR_HEAD_BYTES - at;
        return f->head + at;
    }
    if (at < f->bytes.size_bytes) {
        *left = f->bytes.size_bytes - at;
        return f->bytes.data + at;
    }
    if (at < f->directory_at) {
        *left = f->directory_at - at;
        return gap;
    }
    *left = f->size_bytes - at;
    return f->directory + (at - f->directory_at);
}

static tmsize_t on_read(thandle_t handle, void *out, tmsize_t size)
{
    virtual_file *const f = handle;
    tmsize_t done = 0;
    while (done < size && f->at < f->size_bytes) {
        uint64_t left;
        const uint8_t *const from = place_of(f, f->at, &left);
        if (left > (uint64_t)(size - done)) left = (uint64_t)(size - done);
        memcpy((uint8_t *)out + done, from, (size_t)left);
        f->at += left;
        done += (tmsize_t)left;
    }
    return done;
}

static tmsize_t on_write(thandle_t handle, void *data, tmsize_t size)
{
    (void)handle;
    (void)data;
    (void)size;
    return 0;
}

static toff_t on_seek(thandle_t handle, toff_t at, int whence)
{
    virtual_file *const f = handle;
    f->at = whence == SEEK_SET ? at : whence == SEEK_CUR ? f->at + at : f->size_bytes + at;
    return f->at;
}

static int on_close(thandle_t handle)
{
    (void)handle;
    return 0;
}

static toff_t on_size(thandle_t handle)
{
    return ((const virtual_file *)handle)->size_bytes;
}

/* --- pieces through libtiff --- */

/* The window that a frame asks for is all that bounds what the library takes for it. */
static bool zstd_window_fits(const uint8_t *data, uint64_t size_bytes)
{
    static const uint8_t magic[4] = {0x28, 0xb5, 0x2f, 0xfd};
    if (size_bytes < 6 || memcmp(data, magic, 4) != 0) return false;
    const uint8_t descriptor = data[4];
    if (!(descriptor & 0x20)) {
        const uint64_t unit = (uint64_t)1 << (10 + (data[5] >> 3));
        return unit + unit / 8 * (data[5] & 7) <= ZSTD_WINDOW_BYTES;
    }
    static const uint8_t id_bytes[4] = {0, 1, 2, 4}, content_bytes[4] = {1, 2, 4, 8};
    const size_t at = 5u + id_bytes[descriptor & 3], count = content_bytes[descriptor >> 6];
    if (at + count > size_bytes) return false;
    uint64_t content = 0;
    for (size_t i = count; i-- > 0;) content = content << 8 | data[at + i];
    return content <= ZSTD_WINDOW_BYTES;
}

static bool is_fax(uint32_t compression)
{
    return compression == STK_TIFF_CCITT_RLE || compression == STK_TIFF_CCITT_G3 ||
           compression == STK_TIFF_CCITT_G4 || compression == STK_TIFF_CCITT_RLE_WORDS;
}

static stk_status run_codec(tiff_codec *c, uint8_t *data, uint64_t size_bytes, uint8_t *out,
                            uint64_t out_bytes, stk_reason *reason, stk_error *err)
{
    c->message[0] = 0;
    if (TIFFReadFromUserBuffer(c->lib, 0, data, (tmsize_t)size_bytes, out, (tmsize_t)out_bytes))
        return STK_OK;
    return report(c, reason, err);
}

static bool is_filled(const uint8_t *data, size_t size_bytes, uint8_t with)
{
    for (size_t i = 0; i < size_bytes; i++) {
        if (data[i] != with) return false;
    }
    return true;
}

/* An early end of the data leaves the last row as it was: a pattern.  Where that is what the row shows,
 * another pattern tells. */
static stk_status run_fax(tiff_codec *c, uint8_t *data, uint64_t size_bytes, uint8_t *out, uint64_t out_bytes,
                          stk_reason *reason, stk_error *err)
{
    static const uint8_t pattern[2] = {0xa5, 0x5a};
    const size_t row_bytes = (size_t)(c->head.piece_width_px + 7) / 8;
    uint8_t *const last = out + out_bytes - row_bytes;
    bool untouched = true;
    c->fax_ended = false;
    for (int i = 0; i < 2 && untouched; i++) {
        memset(last, pattern[i], row_bytes);
        STK_TRY(run_codec(c, data, size_bytes, out, out_bytes, reason, err));
        untouched = is_filled(last, row_bytes, pattern[i]);
    }
    return untouched || c->fax_ended ? truncated(reason, err) : STK_OK;
}

/* Decode one piece into out_bytes. */
static stk_status decode_piece(tiff_codec *c, uint64_t index, uint8_t *out, uint64_t out_bytes,
                               stk_reason *reason, stk_error *err)
{
    uint64_t at, size_bytes;
    if (!find_piece(c, index, &at, &size_bytes))
        return broken(reason, err, "its directory has no place for some of its pixels");
    if (at > c->bytes.size_bytes || size_bytes > c->bytes.size_bytes - at) return truncated(reason, err);
    uint8_t *data = (uint8_t *)(uintptr_t)(c->bytes.data + at); /* the library only reads it */
    if (c->head.compression == STK_TIFF_ZSTD && !zstd_window_fits(data, size_bytes))
        return broken(reason, err, "a Zstandard frame without a window of at most 8 MiB");
    if (c->packed) { /* which it would turn around in place */
        const uint64_t room = 2 * c->head.piece_bytes + 4096;
        if (size_bytes > room) size_bytes = room;
        memcpy(c->packed, data, (size_t)size_bytes);
        data = c->packed;
    }
    if (is_fax(c->head.compression)) return run_fax(c, data, size_bytes, out, out_bytes, reason, err);
    return run_codec(c, data, size_bytes, out, out_bytes, reason, err);
}

/* Blocks of luma with the chroma that they share, to RGB rows of the store. */
static void unpack_blocks(tiff_codec *c, uint8_t *first_row, uint32_t left_px, uint32_t rows)
{
    const stk_tiff_head *const h = &c->head;
    const uint32_t across = (h->piece_width_px + h->across_h - 1) / h->across_h;
    const uint32_t chroma_at = h->across_h * h->across_v;
    const uint32_t columns =
        h->width_px - left_px < h->piece_width_px ? h->width_px - left_px : h->piece_width_px;
    TIFFYCbCrToRGB *const tables = (TIFFYCbCrToRGB *)(void *)c->ycbcr;
    for (uint32_t y = 0; y < rows; y++) {
        uint8_t *out = first_row + y * h->row_bytes + (size_t)left_px * 3;
        for (uint32_t x = 0; x < columns; x++, out += 3) {
            const uint8_t *const block =
                c->unit + ((size_t)(y / h->across_v) * across + x / h->across_h) * (chroma_at + 2);
            uint32_t rgb[3];
            TIFFYCbCrtoRGB(tables, block[y % h->across_v * h->across_h + x % h->across_h], block[chroma_at],
                           block[chroma_at + 1], &rgb[0], &rgb[1], &rgb[2]);
            for (int ch = 0; ch < 3; ch++) out[ch] = (uint8_t)rgb[ch];
        }
    }
}

static void copy_tile(const tiff_codec *c, uint8_t *first_row, uint32_t left_px, uint32_t rows)
{
    const stk_tiff_head *const h = &c->head;
    const size_t tile_row = (size_t)(h->piece_bytes / h->piece_height_px),
                 at = (size_t)left_px / h->piece_width_px * tile_row, left = (size_t)h->row_bytes - at,
                 count = tile_row < left ? tile_row : left;
    for (uint32_t y = 0; y < rows; y++)
        memcpy(first_row + y * h->row_bytes + at, c->unit + y * tile_row, count);
}

/* Bytes of a piece that holds rows of the picture.  libtiff's interface for whole pictures counts those of a
 * strip by rows of pixels, so that of blocks which do not divide evenly the last ones stay 0. */
static uint64_t decoded_bytes(const stk_tiff_head *h, uint32_t rows)
{
    if (h->tiled) return h->piece_bytes;
    if (!h->subsampled) return h->row_bytes * rows;
    const uint64_t block_rows = (h->piece_height_px + h->across_v - 1) / h->across_v,
                   used = (rows + h->across_v - 1) / h->across_v;
    return used * h->across_v * (h->piece_bytes / block_rows / h->across_v);
}

/* The strip, or the row of tiles, that begins with row first, into the store. */
static stk_status decode_pieces(tiff_codec *c, uint32_t first, stk_reason *reason, stk_error *err)
{
    const stk_tiff_head *const h = &c->head;
    const uint32_t left = h->height_px - first, rows = left < h->piece_height_px ? left : h->piece_height_px;
    const uint64_t pieces = (uint64_t)h->pieces_across * h->pieces_down;
    const uint64_t down = first / h->piece_height_px, bytes = decoded_bytes(h, rows);
    for (uint32_t p = 0; p < h->planes; p++) {
        uint8_t *const plane = c->store + p * c->store_rows * h->row_bytes;
        for (uint32_t i = 0; i < h->pieces_across; i++) {
            const uint64_t index = p * pieces + down * h->pieces_across + i;
            uint8_t *const out = c->unit ? c->unit : plane;
            memset(out, 0,
                   (size_t)(c->unit ? h->piece_bytes : bytes)); /* a JPEG may be smaller than its piece */
            STK_TRY(decode_piece(c, index, out, bytes, reason, err));
            if (h->subsampled)
                unpack_blocks(c, plane, i * h->piece_width_px, rows);
            else if (c->unit)
                copy_tile(c, plane, i * h->piece_width_px, rows);
        }
    }
    return STK_OK;
}

/* --- pieces as they lie in the file --- */

/* The bytes of a row in one piece of a plane; NULL: not all of them are in the file. */
static const uint8_t *find_stored(const tiff_codec *c, uint32_t y, uint32_t plane, uint32_t column,
                                  uint64_t need_bytes)
{
    const stk_tiff_head *const h = &c->head;
    const stk_tiff_tag tag = h->tiled ? STK_TIFF_TAG_TILE_OFFSETS : STK_TIFF_TAG_STRIP_OFFSETS;
    const uint64_t pieces = (uint64_t)h->pieces_across * h->pieces_down;
    uint64_t index = plane * pieces + (uint64_t)(y / h->piece_height_px) * h->pieces_across + column, at;
    if (pieces == 1 && !h->apart) index = h->entry[tag].count - 1; /* as Pillow: the last of several */
    if (!stk_tiff_value(h, c->bytes, tag, index, &at) || at > c->bytes.size_bytes) return NULL;
    const uint64_t left = c->bytes.size_bytes - at,
                   before = h->piece_bytes / h->piece_height_px * (y % h->piece_height_px);
    if (before > left || need_bytes > left - before) return NULL;
    return c->bytes.data + at + before;
}

/* Each plane and piece has one place; Pillow lays others over those, or leaves them black. */
static bool has_all_places(const tiff_codec *c)
{
    const stk_tiff_head *const h = &c->head;
    const stk_tiff_entry *const e =
        &h->entry[h->tiled ? STK_TIFF_TAG_TILE_OFFSETS : STK_TIFF_TAG_STRIP_OFFSETS];
    const uint64_t pieces = (uint64_t)h->pieces_across * h->pieces_down;
    return e->type && (e->count == pieces * h->planes || (pieces == 1 && !h->apart));
}

static void reverse_bits(uint8_t *data, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        uint32_t b = data[i];
        b = (b & 0xf0) >> 4 | (b & 0x0f) << 4;
        b = (b & 0xcc) >> 2 | (b & 0x33) << 2;
        data[i] = (uint8_t)((b & 0xaa) >> 1 | (b & 0x55) << 1);
    }
}

/* Row y of a plane: where it lies, or put together in the store. */
static const uint8_t *stored_row(tiff_codec *c, uint32_t y, uint32_t plane)
{
    const stk_tiff_head *const h = &c->head;
    if (!c->store) return find_stored(c, y, plane, 0, h->row_bytes);
    uint8_t *const out = c->store + plane * h->row_bytes;
    const uint64_t piece_row = h->piece_bytes / h->piece_height_px;
    for (uint32_t i = 0; i < h->pieces_across; i++) {
        const uint64_t at = i * piece_row, left = h->row_bytes - at,
                       count = left < piece_row ? left : piece_row;
        const uint8_t *const from = find_stored(c, y, plane, i, count);
        if (!from) return NULL;
        memcpy(out + at, from, (size_t)count);
    }
    if (h->reversed) reverse_bits(out, h->row_bytes);
    return out;
}

/* --- the codec --- */

static stk_status tiff_read(stk_codec *codec, stk_codec_rows *rows, stk_reason *reason, stk_error *err)
{
    tiff_codec *const c = (tiff_codec *)codec;
    const stk_tiff_head *const h = &c->head;
    const uint32_t in_piece = c->next_row % h->piece_height_px;
    uint32_t count = h->piece_height_px - in_piece;
    if (count > h->height_px - c->next_row) count = h->height_px - c->next_row;
    if (count > STK_CODEC_ROWS) count = STK_CODEC_ROWS;
    if (c->lib && in_piece == 0) STK_TRY(decode_pieces(c, c->next_row, reason, err));
    *rows = (stk_codec_rows){c->band, (size_t)h->width_px * codec->channels + STK_PAD_BYTES, count};
    for (uint32_t i = 0; i < count; i++, c->next_row++) {
        const uint8_t *plane[4] = {NULL};
        for (uint32_t p = 0; p < h->planes; p++) {
            plane[p] = c->lib ? c->store + ((size_t)p * c->store_rows + in_piece + i) * h->row_bytes
                              : stored_row(c, c->next_row, p);
            if (!plane[p]) return truncated(reason, err);
        }
        stk_tiff_convert(&c->converter, c->band + i * rows->stride_bytes, plane);
    }
    return STK_OK;
}

static stk_status tiff_finish(stk_codec *codec, stk_reason *reason, stk_error *err)
{
    (void)codec;
    (void)reason;
    (void)err;
    return STK_OK;
}

static void tiff_close(stk_codec *codec)
{
    tiff_codec *const c = (tiff_codec *)codec;
    if (c->lib) TIFFClose(c->lib);
    c->lib = NULL;
    stk_free(c->store);
    stk_free(c->unit);
    stk_free(c->packed);
    c->store = c->unit = c->packed = NULL;
    codec->ops = NULL;
}

static stk_status read_palette(tiff_codec *c, stk_reason *reason, stk_error *err)
{
    const stk_tiff_entry *const e = &c->head.entry[STK_TIFF_TAG_COLORS];
    const uint64_t colors = e->type ? e->count / 3 : 0;
    if (colors == 0 || colors > 256) return broken(reason, err, "a palette of no usable size");
    for (uint64_t i = 0; i < colors; i++) {
        for (uint64_t ch = 0; ch < 3; ch++) {
            uint64_t value;
            if (!stk_tiff_value(&c->head, c->bytes, STK_TIFF_TAG_COLORS, ch * colors + i, &value))
                return broken(reason, err, "a palette that cannot be read");
            c->converter.palette[i][ch] = (uint8_t)(value / 256);
        }
    }
    return STK_OK;
}

static stk_status allocate(tiff_codec *c, stk_reason *reason, stk_error *err)
{
    const stk_tiff_head *const h = &c->head;
    const bool stored = stk_tiff_is_stored(h);
    if (stored && !h->tiled && !h->reversed) return STK_OK;
    c->store_rows = stored ? 1 : h->piece_height_px < h->height_px ? h->piece_height_px : h->height_px;
    c->store = stk_alloc_array(STK_TAG_IMAGE, (size_t)c->store_rows * h->planes, (size_t)h->row_bytes);
    if (!c->store) return no_memory(reason, c, err);
    if (stored) return STK_OK;
    if (h->tiled || h->subsampled) {
        c->unit = stk_alloc(STK_TAG_IMAGE, (size_t)h->piece_bytes);
        if (!c->unit) return no_memory(reason, c, err);
    }
    if (h->reversed && h->compression != STK_TIFF_JPEG &&
        !is_fax(h->compression)) { /* these turn themselves */
        c->packed = stk_alloc(STK_TAG_IMAGE, (size_t)(2 * h->piece_bytes + 4096));
        if (!c->packed) return no_memory(reason, c, err);
    }
    return STK_OK;
}

static bool is_in_range(float reference)
{
    return reference > -2147483519.0f && reference < 2147483647.0f;
}

/* As libtiff's own interface for whole pictures does it. */
static stk_status prepare_ycbcr(tiff_codec *c, stk_reason *reason, stk_error *err)
{
    float *weights = NULL, *black_white = NULL;
    if (!TIFFGetFieldDefaulted(c->lib, TIFFTAG_YCBCRCOEFFICIENTS, &weights) ||
        !TIFFGetFieldDefaulted(c->lib, TIFFTAG_REFERENCEBLACKWHITE, &black_white))
        return report(c, reason, err);
    bool usable = weights[0] == weights[0] && weights[1] == weights[1] && weights[1] != 0.0f &&
                  weights[2] == weights[2];
    for (int i = 0; i < 6; i++) usable = usable && is_in_range(black_white[i]);
    if (!usable) return broken(reason, err, "no usable weights of its colours");
    (void)TIFFYCbCrToRGBInit((TIFFYCbCrToRGB *)(void *)c->ycbcr, weights, black_white);
    return STK_OK;
}

static stk_status open_lib(tiff_codec *c, stk_reason *reason, stk_error *err)
{
    TIFFOpenOptions *const options = TIFFOpenOptionsAlloc();
    if (!options) return no_memory(reason, c, err);
    TIFFOpenOptionsSetMaxSingleMemAlloc(options, (tmsize_t)stk_tiff_codec_bytes(&c->head));
    TIFFOpenOptionsSetErrorHandlerExtR(options, on_error, c);
    TIFFOpenOptionsSetWarningHandlerExtR(options, on_warning, c);
    describe_file(c);
    c->lib = TIFFClientOpenExt("TIFF", "rm", &c->file, on_read, on_write, on_seek, on_close, on_size, NULL,
                               NULL, options);
    TIFFOpenOptionsFree(options);
    if (!c->lib) return report(c, reason, err);
    if (c->head.photometric != PHOTOMETRIC_YCBCR) return STK_OK;
    if (c->head.subsampled) return prepare_ycbcr(c, reason, err);
    TIFFSetField(c->lib, TIFFTAG_JPEGCOLORMODE, JPEGCOLORMODE_RGB);
    return STK_OK;
}

/* Everything between the state's memory and the first row. */
static stk_status prepare(tiff_codec *c, const stk_image_info *info, stk_alpha_rule alpha,
                          const stk_limits *limits, stk_reason *reason, stk_error *err)
{
    stk_tiff_head *const h = &c->head;
    STK_TRY(stk_tiff_head_read(h, c->bytes, c->bytes.size_bytes, limits, reason, err));
    STK_TRY(stk_image_check_same(info, h->width_px, h->height_px, reason, err));
    const bool stored = stk_tiff_is_stored(h);
    c->codec.width_px = h->width_px;
    c->codec.height_px = h->height_px;
    c->codec.channels = stk_tiff_channels(h);
    c->converter.head = h;
    c->converter.low_first = stored ? !h->big_endian : __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__;
    c->converter.on_white =
        alpha == STK_ALPHA_WHITE || (alpha == STK_ALPHA_WHITE_RGBA && h->form == STK_TIFF_RGB);
    if (h->form == STK_TIFF_PALETTE) STK_TRY(read_palette(c, reason, err));
    if (stored && !has_all_places(c))
        return broken(reason, err, "its directory does not say where all of its pixels are");
    STK_TRY(allocate(c, reason, err));
    return stored ? STK_OK : open_lib(c, reason, err);
}

stk_status stk_tiff_open(stk_codec **out, void *state, uint8_t *band, stk_bytes bytes,
                         const stk_image_info *info, stk_alpha_rule alpha, const stk_limits *limits,
                         stk_reason *reason, stk_error *err)
{
    static const stk_codec_ops ops = {tiff_read, tiff_finish, tiff_close};
    tiff_codec *const c = state;
    *out = NULL;
    memset(c, 0, sizeof *c);
    c->codec.ops = &ops;
    c->bytes = bytes;
    c->band = band;
    const stk_status status = prepare(c, info, alpha, limits, reason, err);
    if (status < 0) {
        tiff_close(&c->codec);
        return status;
    }
    *out = &c->codec;
    return STK_OK;
}

/* --- the header --- */

/* The block that an orientation may be in when no tag says it. */
static bool find_xmp(stk_header *header, const stk_tiff_head *h, stk_bytes bytes)
{
    const stk_tiff_entry *const e = &h->entry[STK_TIFF_TAG_XMP];
    if (h->orientation != 0 || (e->type != TIFF_BYTE && e->type != TIFF_UNDEFINED)) return true;
    if (e->at + e->size_bytes > bytes.size_bytes) return false;
    header->orientation.xmp = (stk_bytes){bytes.data + e->at, (size_t)e->size_bytes};
    return true;
}

stk_status stk_tiff_probe(stk_header *header, stk_reason *reason, stk_bytes bytes, uint64_t total_bytes,
                          const stk_limits *limits, stk_error *err)
{
    stk_tiff_head h;
    stk_image_info *const info = &header->info;
    const stk_status status = stk_tiff_head_read(&h, bytes, total_bytes, limits, reason, err);
    if (status != STK_OK) return status;
    if (!find_xmp(header, &h, bytes)) return STK_AGAIN;
    info->width_px = h.width_px;
    info->height_px = h.height_px;
    header->orientation.stated = h.orientation;
    if (h.alpha != STK_TIFF_OPAQUE) info->flags |= STK_MEDIA_HAS_ALPHA;
    if (h.form == STK_TIFF_GREY12 || h.form == STK_TIFF_GREY16 || h.form == STK_TIFF_SIGNED16)
        info->flags |= STK_MEDIA_GREY16;
    if (h.more_pictures) info->flags |= STK_MEDIA_ANIMATED;
    if (h.form == STK_TIFF_CMYK) info->flags |= STK_MEDIA_CMYK;
    info->codec_bytes = stk_tiff_codec_bytes(&h);
    info->whole = stk_tiff_is_whole(&h);
    return STK_OK;
}
