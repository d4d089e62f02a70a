/* test_image_memory.c - what decoding and resizing allocates, libraries included, stays within what is
 * charged for it.
 *
 * malloc and its kin are interposed. */
#include <malloc.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "image_test.h"
#include "malloc_count.h"

#include <jpeglib.h>
#include <png.h>
#include <webp/encode.h>

/* --- pictures --- */

static void fill_row(uint8_t *row, size_t width_px, size_t y, size_t channels)
{
    for (size_t x = 0; x < width_px; x++) {
        for (size_t ch = 0; ch < channels; ch++)
            row[x * channels + ch] = (uint8_t)(x * (ch + 1) / 3 + y + (x * y / 64 % 32));
    }
}

typedef struct jpeg_kind {
    int components, h, v; /* sampling of the first component */
    bool progressive;
} jpeg_kind;

static uint8_t *make_jpeg(size_t width_px, size_t height_px, jpeg_kind kind, size_t *size)
{
    struct jpeg_compress_struct c;
    struct jpeg_error_mgr errors;
    unsigned char *out = NULL;
    unsigned long out_size = 0;
    c.err = jpeg_std_error(&errors);
    jpeg_create_compress(&c);
    jpeg_mem_dest(&c, &out, &out_size);
    c.image_width = (JDIMENSION)width_px;
    c.image_height = (JDIMENSION)height_px;
    c.input_components = kind.components;
    c.in_color_space = kind.components == 1 ? JCS_GRAYSCALE : kind.components == 3 ? JCS_RGB : JCS_CMYK;
    jpeg_set_defaults(&c);
    jpeg_set_quality(&c, 80, TRUE);
    c.comp_info[0].h_samp_factor = kind.h;
    c.comp_info[0].v_samp_factor = kind.v;
    if (kind.progressive) jpeg_simple_progression(&c);
    jpeg_start_compress(&c, TRUE);
    uint8_t *row = malloc(width_px * (size_t)kind.components);
    for (size_t y = 0; y < height_px; y++) {
        fill_row(row, width_px, y, (size_t)kind.components);
        jpeg_write_scanlines(&c, &row, 1);
    }
    jpeg_finish_compress(&c);
    jpeg_destroy_compress(&c);
    free(row);
    *size = out_size;
    return out;
}

static void write_bytes(png_structp png, png_bytep data, size_t size)
{
    CHECK_OK(stk_buffer_append(png_get_io_ptr(png), data, size, NULL), (stk_error){0});
}

static uint8_t *make_png(size_t width_px, size_t height_px, int color, int depth, bool interlaced,
                         size_t *size)
{
    stk_buffer out;
    stk_buffer_init(&out, STK_TAG_BATCH, (size_t)256 << 20);
    png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, NULL, NULL, NULL);
    png_infop info = png_create_info_struct(png);
    png_set_write_fn(png, &out, write_bytes, NULL);
    png_set_IHDR(png, info, (png_uint_32)width_px, (png_uint_32)height_px, depth, color,
                 interlaced ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT,
                 PNG_FILTER_TYPE_DEFAULT);
    png_set_compression_level(png, 1);
    png_write_info(png, info);
    const int passes = png_set_interlace_handling(png);
    const size_t channels = color == PNG_COLOR_TYPE_RGBA ? 4 : color == PNG_COLOR_TYPE_RGB ? 3 : 1;
    uint8_t *const row = malloc(width_px * channels * (size_t)depth / 8 + 8);
    for (int pass = 0; pass < passes; pass++) {
        for (size_t y = 0; y < height_px; y++) {
            fill_row(row, width_px * (size_t)depth / 8, y, channels);
            png_write_row(png, row);
        }
    }
    png_write_end(png, NULL);
    png_destroy_write_struct(&png, &info);
    free(row);
    uint8_t *const data = malloc(out.size_bytes);
    memcpy(data, out.data, out.size_bytes);
    *size = out.size_bytes;
    stk_buffer_deinit(&out);
    return data;
}

static uint8_t *make_webp(size_t width_px, size_t height_px, bool lossless, bool alpha, size_t *size)
{
    const size_t channels = alpha ? 4 : 3;
    uint8_t *const pixels = malloc(width_px * height_px * channels);
    uint8_t *out = NULL, *copy;
    for (size_t y = 0; y < height_px; y++) fill_row(pixels + y * width_px * channels, width_px, y, channels);
    const int w = (int)width_px, h = (int)height_px, stride = (int)(width_px * channels);
    if (lossless)
        *size = alpha ? WebPEncodeLosslessRGBA(pixels, w, h, stride, &out)
                      : WebPEncodeLosslessRGB(pixels, w, h, stride, &out);
    else
        *size = alpha ? WebPEncodeRGBA(pixels, w, h, stride, 75, &out)
                      : WebPEncodeRGB(pixels, w, h, stride, 75, &out);
    CHECK(*size > 0);
    copy = malloc(*size);
    memcpy(copy, out, *size);
    WebPFree(out);
    free(pixels);
    return copy;
}

/* --- proofs --- */

/* One picture with a fresh scratch: the peak above what was there before, against the charge.  Returns that
 * peak. */
static size_t check_charge(const char *what, uint8_t *data, size_t size, uint64_t max_px, uint8_t orientation)
{
    image_test t;
    image_test_open(&t, 16, STK_PIXELS_UINT8, stk_cpu_detect());
    t.bytes = (stk_bytes){data, size};
    CHECK_OK(stk_image_probe(&t.info, &t.reason, t.bytes, size, &t.limits, &t.err), t.err);
    t.info.orientation = orientation;
    const bool swaps = stk_orientation_swaps(orientation);
    CHECK_OK(stk_image_target(&t.width_px, &t.height_px, &t.reason,
                              swaps ? t.info.height_px : t.info.width_px,
                              swaps ? t.info.width_px : t.info.height_px, 32, 784, max_px, STK_PROFILE_HF, &t.err),
             t.err);
    t.patches = stk_alloc(STK_TAG_BATCH, (size_t)t.width_px * t.height_px * 3);
    CHECK(t.patches != NULL);
    const size_t charged = stk_image_work_bytes(&t.info, t.width_px, t.height_px), before = live_bytes;
    const stk_image_info facts = {.format = t.info.format,
                                  .width_px = t.info.width_px,
                                  .height_px = t.info.height_px,
                                  .orientation = orientation,
                                  .whole = t.info.whole};
    const size_t by_facts = stk_image_work_bytes(&facts, t.width_px, t.height_px);
    const stk_image_info stated = {
        .width_px = t.info.width_px, .height_px = t.info.height_px, .orientation = orientation};
    CHECK(stk_image_work_bytes(&stated, t.width_px, t.height_px) >= by_facts);
    for (int round = 0; round < 3; round++) {
        peak_bytes = live_bytes;
        CHECK_OK(stk_image_patches(t.patches, t.spec, t.scratch, t.bytes, &t.info, orientation, STK_ALPHA_DROP, t.width_px,
                                   t.height_px, NULL, &t.reason, &t.err),
                 t.err);
        const size_t used = peak_bytes - before;
        CHECK_MSG(used <= charged, "%s uses %zu bytes, charged %zu", what, used, charged);
        CHECK_MSG(used <= by_facts, "%s uses %zu bytes, charged %zu by its facts", what, used, by_facts);
        CHECK_MSG(live_bytes - before <= STK_IMAGE_SCRATCH_KEPT_BYTES, "%s keeps %zu bytes", what,
                  live_bytes - before);
    }
    const size_t used = peak_bytes - before;
    image_test_close(&t);
    free(data);
    return used;
}

static void no_picture_takes_more_than_it_is_charged(void)
{
    static const jpeg_kind kinds[] = {{1, 1, 1, false}, {3, 1, 1, false}, {3, 2, 1, false}, {3, 2, 2, false},
                                      {3, 1, 2, false}, {3, 4, 1, false}, {3, 4, 2, false}, {4, 1, 1, false},
                                      {4, 2, 2, false}, {1, 1, 1, true},  {3, 1, 1, true},  {3, 2, 2, true},
                                      {3, 4, 2, true},  {4, 2, 2, true}};
    size_t size;
    char what[80];
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        for (int shape = 0; shape < 3; shape++) {
            static const size_t side[3][2] = {{33, 2000}, {3001, 41}, {1100, 900}};
            const jpeg_kind k = kinds[i];
            snprintf(what, sizeof what, "JPEG %d %dx%d%s %zux%zu", k.components, k.h, k.v,
                     k.progressive ? " progressive" : "", side[shape][0], side[shape][1]);
            uint8_t *const data = make_jpeg(side[shape][0], side[shape][1], k, &size);
            (void)check_charge(what, data, size, 262144, (uint8_t)(1 + i % 8));
        }
    }
    for (int i = 0; i < 8; i++) {
        static const int color[4] = {PNG_COLOR_TYPE_RGB, PNG_COLOR_TYPE_RGBA, PNG_COLOR_TYPE_GRAY,
                                     PNG_COLOR_TYPE_RGBA};
        static const int depth[4] = {8, 16, 16, 8};
        snprintf(what, sizeof what, "PNG %d %d%s", color[i % 4], depth[i % 4], i >= 4 ? " interlaced" : "");
        uint8_t *const data = make_png(1200, 700, color[i % 4], depth[i % 4], i >= 4, &size);
        (void)check_charge(what, data, size, 65536, (uint8_t)(1 + i));
    }
    for (int i = 0; i < 4; i++) {
        snprintf(what, sizeof what, "WebP%s%s", i & 1 ? " lossless" : "", i & 2 ? " alpha" : "");
        uint8_t *const data = make_webp(900, 700, i & 1, i & 2, &size);
        const size_t used = check_charge(what, data, size, 65536, (uint8_t)(3 + i));
        CHECK_MSG(used > 900 * 700 * 3, "%s: the library's memory is not counted", what);
    }
}

/* A baseline JPEG of 16 MP never becomes a whole picture: neither in ours nor in the library's memory,
 * upright or on its side, and also in an address space that has no room for one. */
static void a_big_picture_passes_through_little_memory(void)
{
    enum { WIDTH_PX = 4900, HEIGHT_PX = 3300, WHOLE_BYTES = WIDTH_PX * HEIGHT_PX * 3 };
    size_t size;
    uint8_t *const data = make_jpeg(WIDTH_PX, HEIGHT_PX, (jpeg_kind){3, 2, 2, false}, &size);
    image_test t;
    image_test_open(&t, 16, STK_PIXELS_UINT8, stk_cpu_detect());
    t.bytes = (stk_bytes){data, size};
    CHECK_OK(stk_image_probe(&t.info, &t.reason, t.bytes, size, &t.limits, &t.err), t.err);
    CHECK_OK(stk_image_target(&t.width_px, &t.height_px, &t.reason, t.info.width_px, t.info.height_px, 32,
                              784, 524288, STK_PROFILE_HF, &t.err),
             t.err);
    t.patches = stk_alloc(STK_TAG_BATCH, (size_t)t.width_px * t.height_px * 3);
    const size_t before = live_bytes;
    for (uint8_t orientation = 1; orientation <= 6; orientation = (uint8_t)(orientation + 5)) {
        const bool swaps = stk_orientation_swaps(orientation);
        t.info.orientation = orientation;
        const uint32_t w = swaps ? t.height_px : t.width_px, h = swaps ? t.width_px : t.height_px;
        CHECK(stk_image_work_bytes(&t.info, w, h) < WHOLE_BYTES / 8);
        peak_bytes = live_bytes;
        CHECK_OK(stk_image_patches(t.patches, t.spec, t.scratch, t.bytes, &t.info, orientation, STK_ALPHA_DROP, w, h, NULL,
                                   &t.reason, &t.err),
                 t.err);
        CHECK_MSG(peak_bytes - before < WHOLE_BYTES / 8, "%zu bytes", peak_bytes - before);
    }

    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) { /* because the limit stays with the process */
        unsigned long pages = 0;
        FILE *const statm = fopen("/proc/self/statm", "r");
        CHECK(statm && fscanf(statm, "%lu", &pages) == 1);
        fclose(statm);
        const rlim_t limit = (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE) + WHOLE_BYTES / 4;
        CHECK(setrlimit(RLIMIT_AS, &(struct rlimit){limit, limit}) == 0);
        image_test fresh;
        image_test_open(&fresh, 16, STK_PIXELS_UINT8, stk_cpu_detect());
        const stk_status status = stk_image_patches(t.patches, fresh.spec, fresh.scratch, t.bytes, &t.info, 1, STK_ALPHA_DROP,
                                                    t.width_px, t.height_px, NULL, &fresh.reason, &fresh.err);
        _exit(status == STK_OK ? 0 : 1);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    image_test_close(&t);
    free(data);
}

/* Pictures of other sizes, forth and back: our own allocations end when the tables and rows are there. */
static void steady_state_allocates_nothing_of_ours(void)
{
    size_t size[3];
    uint8_t *data[3] = {make_jpeg(500, 375, (jpeg_kind){3, 2, 2, false}, &size[0]),
                        make_jpeg(640, 427, (jpeg_kind){3, 2, 2, false}, &size[1]),
                        make_png(300, 410, PNG_COLOR_TYPE_RGB, 8, false, &size[2])};
    image_test t;
    image_test_open(&t, 16, STK_PIXELS_UINT8, stk_cpu_detect());
    uint64_t warm = 0;
    for (int round = 0; round < 9; round++) {
        if (round == 3) warm = stk_alloc_count();
        t.bytes = (stk_bytes){data[round % 3], size[round % 3]};
        CHECK_OK(image_test_make(&t, 65536, 16777216), t.err);
    }
    CHECK_INT(stk_alloc_count(), warm);
    image_test_close(&t);
    for (int i = 0; i < 3; i++) free(data[i]);
}

int main(int argc, char **argv)
{
    TEST_MAIN(argc, argv, TEST(no_picture_takes_more_than_it_is_charged),
              TEST(a_big_picture_passes_through_little_memory), TEST(steady_state_allocates_nothing_of_ours));
}
