/* test_image_tiff_memory.c - what decoding a TIFF allocates, libraries included, stays within what is charged
 * for it; hostile headers are charged or refused.
 *
 * malloc and its kin are interposed. */
#include "image_test.h"
#include "malloc_count.h"

#include <jpeglib.h>
#include <sys/mman.h>
#include <tiffio.h>
#include <unistd.h>

typedef struct kind {
    uint16_t compression, photometric, bits, samples, planar;
    uint32_t tile_px, strip_rows; /* tile_px 0: strips */
} kind;

/* A TIFF that libtiff writes; it wants a file.  Free with free. */
static uint8_t *make_tiff(uint32_t width_px, uint32_t height_px, kind k, size_t *size)
{
    const int fd = memfd_create("tiff", 0);
    TIFF *const lib = TIFFFdOpen(fd, "tiff", "w");
    CHECK(fd >= 0 && lib);
    TIFFSetField(lib, TIFFTAG_IMAGEWIDTH, width_px);
    TIFFSetField(lib, TIFFTAG_IMAGELENGTH, height_px);
    TIFFSetField(lib, TIFFTAG_COMPRESSION, k.compression);
    TIFFSetField(lib, TIFFTAG_PHOTOMETRIC, k.photometric);
    TIFFSetField(lib, TIFFTAG_BITSPERSAMPLE, k.bits);
    TIFFSetField(lib, TIFFTAG_SAMPLESPERPIXEL, k.samples);
    TIFFSetField(lib, TIFFTAG_PLANARCONFIG, k.planar);
    if (k.tile_px) {
        TIFFSetField(lib, TIFFTAG_TILEWIDTH, k.tile_px);
        TIFFSetField(lib, TIFFTAG_TILELENGTH, k.tile_px);
    } else {
        TIFFSetField(lib, TIFFTAG_ROWSPERSTRIP, k.strip_rows);
    }
    if (k.photometric == PHOTOMETRIC_YCBCR && k.compression == COMPRESSION_JPEG)
        TIFFSetField(lib, TIFFTAG_JPEGCOLORMODE, JPEGCOLORMODE_RGB);
    else if (k.photometric == PHOTOMETRIC_YCBCR)
        TIFFSetField(lib, TIFFTAG_YCBCRSUBSAMPLING, 1, 1);
    const tmsize_t piece_bytes = k.tile_px ? TIFFTileSize(lib) : TIFFStripSize(lib);
    uint8_t *const piece = malloc((size_t)piece_bytes);
    for (tmsize_t i = 0; i < piece_bytes; i++) piece[i] = (uint8_t)(i / 3 + i * i / 257 % 31);
    const uint32_t count = k.tile_px ? TIFFNumberOfTiles(lib) : TIFFNumberOfStrips(lib);
    for (uint32_t i = 0; i < count; i++)
        CHECK((k.tile_px ? TIFFWriteEncodedTile(lib, i, piece, piece_bytes)
                         : TIFFWriteEncodedStrip(lib, i, piece, piece_bytes)) >= 0);
    free(piece);
    TIFFFlush(lib);
    *size = (size_t)lseek(fd, 0, SEEK_END);
    uint8_t *const data = malloc(*size);
    CHECK(pread(fd, data, *size, 0) == (ssize_t)*size);
    TIFFClose(lib);
    return data;
}

/* One picture with a fresh scratch: the peak above what was there before, against the charge.  Returns that
 * peak. */
static size_t check_charge(const char *what, const uint8_t *data, size_t size, uint64_t max_px)
{
    image_test t;
    image_test_open(&t, 16, STK_PIXELS_UINT8, stk_cpu_detect());
    t.bytes = (stk_bytes){data, size};
    CHECK_OK(stk_image_probe(&t.info, &t.reason, t.bytes, size, &t.limits, &t.err), t.err);
    CHECK_OK(stk_image_target(&t.width_px, &t.height_px, &t.reason, t.info.width_px, t.info.height_px, 32,
                              784, max_px, STK_PROFILE_HF, &t.err),
             t.err);
    t.patches = stk_alloc(STK_TAG_BATCH, (size_t)t.width_px * t.height_px * 3);
    CHECK(t.patches != NULL);
    const size_t charged = stk_image_work_bytes(&t.info, t.width_px, t.height_px), before = live_bytes;
    const stk_image_info facts = {.format = t.info.format,
                                  .width_px = t.info.width_px,
                                  .height_px = t.info.height_px,
                                  .orientation = 1,
                                  .whole = t.info.whole};
    const size_t by_facts = stk_image_work_bytes(&facts, t.width_px, t.height_px);
    const stk_image_info stated = {
        .width_px = t.info.width_px, .height_px = t.info.height_px, .orientation = 1};
    CHECK_MSG(charged <= by_facts, "%s: charged %zu, %zu by its facts", what, charged, by_facts);
    CHECK(stk_image_work_bytes(&stated, t.width_px, t.height_px) >= by_facts);
    for (int round = 0; round < 2; round++) {
        peak_bytes = live_bytes;
        CHECK_MSG(stk_image_patches(t.patches, t.spec, t.scratch, t.bytes, &t.info, 1, STK_ALPHA_DROP,
                                    t.width_px, t.height_px, NULL, &t.reason, &t.err) == STK_OK,
                  "%s: %s", what, t.err.message);
        const size_t used = peak_bytes - before;
        CHECK_MSG(used <= charged, "%s uses %zu bytes, charged %zu", what, used, charged);
        CHECK_MSG(live_bytes - before <= STK_IMAGE_SCRATCH_KEPT_BYTES, "%s keeps %zu bytes", what,
                  live_bytes - before);
    }
    const size_t used = peak_bytes - before;
    image_test_close(&t);
    return used;
}

static void no_picture_takes_more_than_it_is_charged(void)
{
    static const kind kinds[] = {
        {COMPRESSION_NONE, PHOTOMETRIC_RGB, 8, 3, 1, 0, 50},
        {COMPRESSION_NONE, PHOTOMETRIC_RGB, 16, 3, 1, 128, 0},
        {COMPRESSION_LZW, PHOTOMETRIC_RGB, 8, 3, 1, 0, 20},
        {COMPRESSION_LZW, PHOTOMETRIC_RGB, 16, 4, 1, 0, 4000},
        {COMPRESSION_ADOBE_DEFLATE, PHOTOMETRIC_RGB, 8, 3, 1, 256, 0},
        {COMPRESSION_ADOBE_DEFLATE, PHOTOMETRIC_RGB, 8, 3, 2, 0, 4000},
        {COMPRESSION_ADOBE_DEFLATE, PHOTOMETRIC_RGB, 16, 4, 2, 512, 0},
        {COMPRESSION_ADOBE_DEFLATE, PHOTOMETRIC_YCBCR, 8, 3, 1, 0, 4000},
        {COMPRESSION_ADOBE_DEFLATE, PHOTOMETRIC_MINISBLACK, 16, 1, 1, 0, 64},
        {COMPRESSION_PACKBITS, PHOTOMETRIC_SEPARATED, 8, 4, 1, 0, 4000},
        {COMPRESSION_CCITTFAX4, PHOTOMETRIC_MINISWHITE, 1, 1, 1, 0, 4000},
        {COMPRESSION_CCITTFAX3, PHOTOMETRIC_MINISWHITE, 1, 1, 1, 0, 64},
        {COMPRESSION_JPEG, PHOTOMETRIC_YCBCR, 8, 3, 1, 0, 4000},
        {COMPRESSION_JPEG, PHOTOMETRIC_YCBCR, 8, 3, 1, 256, 0},
        {COMPRESSION_JPEG, PHOTOMETRIC_SEPARATED, 8, 4, 1, 0, 4000},
        {COMPRESSION_JPEG, PHOTOMETRIC_RGB, 8, 3, 1, 0, 16},
        {COMPRESSION_ZSTD, PHOTOMETRIC_RGB, 8, 3, 1, 0, 64},
    };
    static const uint32_t side[4][2] = {{33, 2000}, {3001, 41}, {1100, 900}, {40, 40}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        for (int shape = 0; shape < 4; shape++) {
            char what[120];
            size_t size;
            kind k = kinds[i];
            if (k.strip_rows > side[shape][1]) k.strip_rows = side[shape][1];
            snprintf(what, sizeof what, "TIFF %zu (compression %u) of %ux%u", i, k.compression,
                     side[shape][0], side[shape][1]);
            uint8_t *const data = make_tiff(side[shape][0], side[shape][1], k, &size);
            const size_t used = check_charge(what, data, size, 65536);
            if (shape == 2 && k.strip_rows == 900 && k.bits == 8) /* libtiff's memory and ours are counted */
                CHECK_MSG(used > 1100 * 900, "%s uses %zu bytes", what, used);
            free(data);
        }
    }
}

static void put(uint8_t **at, uint32_t tag, uint32_t type, uint32_t count, uint32_t value)
{
    const uint16_t head[2] = {(uint16_t)tag, (uint16_t)type};
    const uint32_t tail[2] = {count, value};
    memcpy(*at, head, 4);
    memcpy(*at + 4, tail, 8);
    *at += 12;
}

/* A progressive JPEG as the only strip: the library holds its coefficients. */
static void coefficients_of_a_progressive_jpeg_are_charged(void)
{
    enum { WIDTH_PX = 1000, HEIGHT_PX = 800, HEAD_BYTES = 256 };
    struct jpeg_compress_struct c;
    struct jpeg_error_mgr errors;
    unsigned char *jpeg = NULL;
    unsigned long jpeg_size = 0;
    c.err = jpeg_std_error(&errors);
    jpeg_create_compress(&c);
    jpeg_mem_dest(&c, &jpeg, &jpeg_size);
    c.image_width = WIDTH_PX;
    c.image_height = HEIGHT_PX;
    c.input_components = 3;
    c.in_color_space = JCS_RGB;
    jpeg_set_defaults(&c);
    jpeg_simple_progression(&c);
    jpeg_start_compress(&c, TRUE);
    static uint8_t row[WIDTH_PX * 3];
    for (size_t y = 0; y < HEIGHT_PX; y++) {
        for (size_t x = 0; x < sizeof row; x++) row[x] = (uint8_t)(x / 5 + y * x / 97);
        JSAMPROW rows = row;
        jpeg_write_scanlines(&c, &rows, 1);
    }
    jpeg_finish_compress(&c);
    jpeg_destroy_compress(&c);

    uint8_t *const data = calloc(1, HEAD_BYTES + jpeg_size), *at = data + 10;
    memcpy(data, "II\x2a\0\x08\0\0\0\x0a\0", 10);
    put(&at, TIFFTAG_IMAGEWIDTH, TIFF_LONG, 1, WIDTH_PX);
    put(&at, TIFFTAG_IMAGELENGTH, TIFF_LONG, 1, HEIGHT_PX);
    put(&at, TIFFTAG_BITSPERSAMPLE, TIFF_SHORT, 1, 8);
    put(&at, TIFFTAG_COMPRESSION, TIFF_SHORT, 1, COMPRESSION_JPEG);
    put(&at, TIFFTAG_PHOTOMETRIC, TIFF_SHORT, 1, PHOTOMETRIC_YCBCR);
    put(&at, TIFFTAG_STRIPOFFSETS, TIFF_LONG, 1, HEAD_BYTES);
    put(&at, TIFFTAG_SAMPLESPERPIXEL, TIFF_SHORT, 1, 3);
    put(&at, TIFFTAG_ROWSPERSTRIP, TIFF_LONG, 1, HEIGHT_PX);
    put(&at, TIFFTAG_STRIPBYTECOUNTS, TIFF_LONG, 1, (uint32_t)jpeg_size);
    put(&at, TIFFTAG_YCBCRSUBSAMPLING, TIFF_SHORT, 2, 2 | 2 << 16);
    memcpy(data + HEAD_BYTES, jpeg, jpeg_size);
    const size_t used = check_charge("a progressive JPEG", data, HEAD_BYTES + jpeg_size, 65536);
    CHECK_MSG(used > WIDTH_PX * HEIGHT_PX * 6, "%zu bytes: the coefficients are not counted", used);
    free(data);
    free(jpeg);
}

/* Strips, and tiles as they lie in the file, never become a whole picture. */
static void a_big_picture_passes_through_little_memory(void)
{
    enum { WIDTH_PX = 3000, HEIGHT_PX = 2500, WHOLE_BYTES = WIDTH_PX * HEIGHT_PX * 3 };
    static const kind kinds[] = {{COMPRESSION_NONE, PHOTOMETRIC_RGB, 8, 3, 1, 0, HEIGHT_PX},
                                 {COMPRESSION_NONE, PHOTOMETRIC_RGB, 8, 3, 1, 512, 0},
                                 {COMPRESSION_LZW, PHOTOMETRIC_RGB, 8, 3, 1, 0, 16},
                                 {COMPRESSION_JPEG, PHOTOMETRIC_YCBCR, 8, 3, 1, 128, 0}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        size_t size;
        uint8_t *const data = make_tiff(WIDTH_PX, HEIGHT_PX, kinds[i], &size);
        const size_t used = check_charge("a big picture", data, size, 65536);
        CHECK_MSG(used < WHOLE_BYTES / 8, "kind %zu uses %zu bytes", i, used);
        free(data);
    }
}

/* What libtiff would read of a file's own directory never reaches it: tags that all name the same megabytes,
 * strips without end, offsets to everywhere. */
static void hostile_tags_take_no_memory(void)
{
    enum { TAGS = 2000, BLOB_BYTES = 4 << 20, DATA_AT = 10 + (TAGS + 8) * 12 + 4, SIDE_PX = 64 };
    const size_t size = DATA_AT + BLOB_BYTES;
    uint8_t *const data = calloc(1, size), *at = data + 10;
    memcpy(data, "II\x2a\0\x08\0\0\0", 8);
    data[8] = (TAGS + 8) & 255;
    data[9] = (TAGS + 8) >> 8;
    put(&at, TIFFTAG_IMAGEWIDTH, TIFF_LONG, 1, SIDE_PX);
    put(&at, TIFFTAG_IMAGELENGTH, TIFF_LONG, 1, SIDE_PX);
    put(&at, TIFFTAG_BITSPERSAMPLE, TIFF_SHORT, 1, 8);
    put(&at, TIFFTAG_COMPRESSION, TIFF_SHORT, 1, COMPRESSION_PACKBITS);
    put(&at, TIFFTAG_PHOTOMETRIC, TIFF_SHORT, 1, PHOTOMETRIC_MINISBLACK);
    put(&at, TIFFTAG_STRIPOFFSETS, TIFF_LONG, 1, DATA_AT);
    put(&at, TIFFTAG_STRIPBYTECOUNTS, TIFF_LONG, 1, BLOB_BYTES);
    put(&at, TIFFTAG_ROWSPERSTRIP, TIFF_LONG, 1, 0xffffffff);
    for (uint32_t i = 0; i < TAGS; i++) put(&at, 40000 + i, TIFF_BYTE, BLOB_BYTES / 2, DATA_AT);
    const size_t used = check_charge("hostile tags", data, size, 65536);
    CHECK_MSG(used < BLOB_BYTES / 2, "%zu bytes", used);
    free(data);
}

int main(int argc, char **argv)
{
    TEST_MAIN(argc, argv, TEST(no_picture_takes_more_than_it_is_charged),
              TEST(coefficients_of_a_progressive_jpeg_are_charged),
              TEST(a_big_picture_passes_through_little_memory), TEST(hostile_tags_take_no_memory));
}
