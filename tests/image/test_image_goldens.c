/* test_image_goldens.c - every kind of picture against the reference software (tools/make-image-goldens). */
#include "image_test.h"

#include <png.h>
#include <xxhash.h>
#include <zlib.h>

#include "image/orientation.h"

static FILE *open_golden(const char *name)
{
    char path[600];
    snprintf(path, sizeof path, "%s/image/golden/%s", test_source_folder(), name);
    FILE *const file = fopen(path, "r");
    CHECK_MSG(file != NULL, "%s", path);
    return file;
}

typedef struct golden {
    char name[128];
    unsigned long long min_px, max_px;
    unsigned patch_px, orientation, width_px, height_px;
    unsigned long long hash[3]; /* by stk_pixel_form */
} golden;

static bool next_golden(FILE *file, golden *g)
{
    return fscanf(file, "%127s %llu %llu %u %u %u %u %llx %llx %llx", g->name, &g->min_px, &g->max_px,
                  &g->patch_px, &g->orientation, &g->width_px, &g->height_px, &g->hash[0], &g->hash[1],
                  &g->hash[2]) == 10;
}

static void check_goldens(stk_cpu_level level)
{
    image_test t[2][3];
    golden g;
    size_t count = 0;
    for (int p = 0; p < 2; p++) {
        for (int form = 0; form < 3; form++)
            image_test_open(&t[p][form], p ? 14 : 16, (stk_pixel_form)form, level);
    }
    FILE *const file = open_golden("goldens.txt");
    for (; next_golden(file, &g); count++) {
        char path[900];
        snprintf(path, sizeof path, "%s/image/golden/%s", test_source_folder(), g.name);
        for (int form = 0; form < 3; form++) {
            image_test *const one = &t[g.patch_px == 14][form];
            uint8_t *const bytes = image_test_read(path, &one->bytes);
            const stk_status status = image_test_make(one, g.min_px, g.max_px);
            CHECK_MSG(status == STK_OK, "%s: %s", g.name, one->err.message);
            CHECK_MSG(one->info.orientation == g.orientation, "%s: %u", g.name, one->info.orientation);
            CHECK_MSG(one->width_px == g.width_px && one->height_px == g.height_px, "%s: %ux%u", g.name,
                      one->width_px, one->height_px);
            CHECK_MSG(XXH3_64bits(one->patches, one->patches_bytes) == g.hash[form], "%s in form %d", g.name,
                      form);
            free(bytes);
        }
    }
    fclose(file);
    CHECK_MSG(count > 130, "%zu goldens", count);
    for (int p = 0; p < 2; p++) {
        for (int form = 0; form < 3; form++) image_test_close(&t[p][form]);
    }
}

static void every_kind_of_picture_equals_the_reference(void)
{
    check_goldens(stk_cpu_detect());
}

static void plain_c_equals_the_reference(void)
{
    check_goldens(STK_CPU_NONE);
}

/* What an index does: more and more of a file until the header is whole.  Each answer is AGAIN or the final
 * one. */
static void a_header_in_pieces_says_the_same(void)
{
    const stk_limits limits = STK_LIMITS_DEFAULT;
    golden g;
    FILE *const file = open_golden("goldens.txt");
    while (next_golden(file, &g)) {
        char path[900];
        stk_bytes all;
        stk_image_info whole, part;
        stk_reason reason;
        stk_error err;
        snprintf(path, sizeof path, "%s/image/golden/%s", test_source_folder(), g.name);
        uint8_t *const bytes = image_test_read(path, &all);
        CHECK_OK(stk_image_probe(&whole, &reason, all, all.size_bytes, &limits, &err), err);
        bool known = false;
        for (size_t size = 0; size < all.size_bytes; size += 1 + size / 16) {
            uint8_t *const copy = malloc(size ? size : 1); /* ends where it ends, for the sanitizer */
            memcpy(copy, bytes, size);
            const stk_status status =
                stk_image_probe(&part, &reason, (stk_bytes){copy, size}, all.size_bytes, &limits, &err);
            CHECK_MSG(status >= 0, "%s of %zu bytes: %s", g.name, size, err.message);
            CHECK_MSG(status == STK_OK || !known, "%s of %zu bytes was known with fewer", g.name, size);
            if (status == STK_OK) {
                CHECK_MSG(part.width_px == whole.width_px && part.height_px == whole.height_px &&
                              part.orientation == whole.orientation && part.flags == whole.flags &&
                              part.format == whole.format && part.whole == whole.whole &&
                              part.codec_bytes == whole.codec_bytes,
                          "%s of %zu bytes", g.name, size);
                known = true;
            }
            free(copy);
        }
        free(bytes);
    }
    fclose(file);
}

static void exif_blocks_are_read_as_pillow_reads_them(void)
{
    FILE *const file = open_golden("orientations.txt");
    char hex[8192];
    unsigned expected;
    size_t count = 0;
    for (; fscanf(file, "%8191s %u", hex, &expected) == 2; count++) {
        uint8_t block[4096];
        size_t size = 0;
        for (const char *at = hex; at[0] != '-' && at[0] && at[1]; at += 2) {
            unsigned byte;
            CHECK(sscanf(at, "%2x", &byte) == 1);
            block[size++] = (uint8_t)byte;
        }
        for (size_t cut = 0; cut <= 10; cut += 5) { /* in one piece, and in two */
            uint8_t *const copy = malloc(size + 1);
            memcpy(copy, block, size);
            const size_t first = cut < size ? cut : 0;
            const stk_orientation_sources sources = {
                .exif = {.piece = {{copy, first}, {copy + first, size - first}}, .piece_count = 2}};
            bool broken;
            const unsigned found = stk_orientation_find(&sources, &broken);
            /* What Pillow refuses says nothing here. */
            CHECK_MSG(found == (expected ? expected : 1), "%s gives %u, not %u", hex, found, expected);
            free(copy);
        }
    }
    fclose(file);
    CHECK_MSG(count > 100, "%zu blocks", count);
}

/* --- the generator of the specification's vectors, as a PNG --- */

static void fill_noise(uint8_t *rgb, size_t size)
{
    uint32_t s = 1;
    for (size_t i = 0; i < size; i++) {
        s = 1664525u * s + 1013904223u;
        rgb[i] = (uint8_t)(s >> 24);
    }
}

static uint8_t *noise_png(uint32_t width_px, uint32_t height_px, stk_bytes *bytes, uLong *crc)
{
    const size_t size = (size_t)width_px * height_px * 3;
    uint8_t *const rgb = malloc(size);
    fill_noise(rgb, size);
    if (crc) *crc = crc32(0, rgb, (uInt)size);
    png_image image = {
        .version = PNG_IMAGE_VERSION, .width = width_px, .height = height_px, .format = PNG_FORMAT_RGB};
    png_alloc_size_t png_bytes = size * 2 + 4096;
    uint8_t *const out = malloc(png_bytes);
    CHECK(png_image_write_to_memory(&image, out, &png_bytes, 0, rgb, 0, NULL));
    free(rgb);
    *bytes = (stk_bytes){out, png_bytes};
    return out;
}

/* spec-qwen3vl.md section 1.7. */
static void the_vectors_of_the_specification(void)
{
    static const struct {
        uint32_t height_px, width_px, target_height_px, target_width_px;
        uLong source, bytes, values;
    } vector[] = {
        {37, 53, 32, 64, 0x0ea2188d, 0x96ade093, 0x2a8a7cf2},
        {100, 40, 96, 32, 0x75afe7d6, 0x61919946, 0xbc5bae45},
        {64, 200, 64, 192, 0x575e6847, 0x60058985, 0xf3da4dab},
    };
    image_test t;
    image_test_open(&t, 16, STK_PIXELS_FLOAT32, stk_cpu_detect());
    for (size_t i = 0; i < sizeof vector / sizeof *vector; i++) {
        uLong source;
        uint8_t *const png = noise_png(vector[i].width_px, vector[i].height_px, &t.bytes, &source);
        CHECK_INT(source, vector[i].source);
        CHECK_OK(image_test_make(&t, 0, 1u << 24), t.err);
        CHECK_INT(t.width_px, vector[i].target_width_px);
        CHECK_INT(t.height_px, vector[i].target_height_px);
        CHECK_INT(crc32(0, t.patches, (uInt)t.patches_bytes), vector[i].values);

        const size_t size = (size_t)t.width_px * t.height_px * 3;
        uint8_t *const rgb = malloc(size);
        CHECK_OK(stk_image_rgb(rgb, t.spec, t.scratch, t.bytes, &t.info, 1, STK_ALPHA_DROP, t.width_px, t.height_px,
                               &t.reason, &t.err),
                 t.err);
        CHECK_INT(crc32(0, rgb, (uInt)size), vector[i].bytes);
        free(rgb);
        free(png);
    }
    image_test_close(&t);
}

/* The same section, Pillow's columns; of the first picture releases up to 12.3.0 resize the width first. */
static void the_vectors_of_the_pillow_profiles(void)
{
    static const struct {
        stk_profile profile;
        uint32_t height_px, width_px;
        uLong values;
    } vector[] = {
        {STK_PROFILE_QWEN_VL_UTILS, 37, 53, 0x9e2aed1b}, {STK_PROFILE_QWEN_VL_UTILS, 100, 40, 0x25e44954},
        {STK_PROFILE_QWEN_VL_UTILS, 64, 200, 0x48df86e8}, {STK_PROFILE_PIL_13, 37, 53, 0xeb6104ce},
        {STK_PROFILE_PIL_13, 100, 40, 0x98ca82b1}, {STK_PROFILE_PIL_13, 64, 200, 0x97f4225e},
        {STK_PROFILE_PIL_12, 100, 40, 0x98ca82b1}, {STK_PROFILE_PIL_11, 64, 200, 0x97f4225e},
    };
    static const struct {
        stk_profile profile;
        uLong bytes;
    } first[] = {{STK_PROFILE_PIL_11, 0x94816b77}, {STK_PROFILE_PIL_12, 0x94816b77}, {STK_PROFILE_PIL_13, 0x02f2f152}};
    image_test t;
    for (size_t i = 0; i < sizeof vector / sizeof *vector; i++) {
        image_test_open_as(&t, vector[i].profile, 16, STK_PIXELS_FLOAT32, stk_cpu_detect());
        uint8_t *const png = noise_png(vector[i].width_px, vector[i].height_px, &t.bytes, NULL);
        CHECK_OK(image_test_make(&t, 0, 1u << 24), t.err);
        CHECK_INT(crc32(0, t.patches, (uInt)t.patches_bytes), vector[i].values);
        free(png);
        image_test_close(&t);
    }
    for (size_t i = 0; i < sizeof first / sizeof *first; i++) {
        uint8_t rgb[32 * 64 * 3];
        image_test_open_as(&t, first[i].profile, 16, STK_PIXELS_UINT8, stk_cpu_detect());
        uint8_t *const png = noise_png(53, 37, &t.bytes, NULL);
        CHECK_OK(stk_image_probe(&t.info, &t.reason, t.bytes, t.bytes.size_bytes, &t.limits, &t.err), t.err);
        CHECK_OK(stk_image_rgb(rgb, t.spec, t.scratch, t.bytes, &t.info, 1, STK_ALPHA_DROP, 64, 32, &t.reason, &t.err),
                 t.err);
        CHECK_INT(crc32(0, rgb, sizeof rgb), first[i].bytes);
        free(png);
        image_test_close(&t);
    }
}

static void noise_of_any_size_becomes_what_torch_makes_of_it(void)
{
    image_test t;
    image_test_open(&t, 16, STK_PIXELS_UINT8, stk_cpu_detect());
    FILE *const file = open_golden("resize.txt");
    unsigned w, h, tw, th;
    unsigned long long expected;
    size_t count = 0;
    for (; fscanf(file, "%u %u %u %u %llx", &w, &h, &tw, &th, &expected) == 5; count++) {
        uint8_t *const png = noise_png(w, h, &t.bytes, NULL), *const rgb = malloc((size_t)tw * th * 3);
        CHECK_OK(stk_image_probe(&t.info, &t.reason, t.bytes, t.bytes.size_bytes, &t.limits, &t.err), t.err);
        CHECK_OK(stk_image_rgb(rgb, t.spec, t.scratch, t.bytes, &t.info, 1, STK_ALPHA_DROP, tw, th, &t.reason, &t.err),
                 t.err);
        CHECK_MSG(XXH3_64bits(rgb, (size_t)tw * th * 3) == expected, "%ux%u to %ux%u", w, h, tw, th);
        free(rgb);
        free(png);
    }
    fclose(file);
    CHECK_MSG(count > 50, "%zu sizes", count);
    image_test_close(&t);
}

/* Index flags, and the pictures that a library holds whole. */
static void headers_say_what_the_index_counts(void)
{
    static const struct {
        const char *name;
        uint32_t flags;
        bool whole;
    } expected[] = {
        {"jpeg-420.jpg", 0, false},
        {"jpeg-progressive.jpg", 0, true},
        {"png-0-16.png", STK_MEDIA_GREY16, false},
        {"png-4-8.png", STK_MEDIA_HAS_ALPHA, false},
        {"png-6-8-interlaced.png", STK_MEDIA_HAS_ALPHA, true},
        {"png-trns-rgb.png", STK_MEDIA_HAS_ALPHA, false},
        {"png-animated.png", STK_MEDIA_ANIMATED, false},
        {"webp-lossy.webp", 0, true},
        {"webp-alpha.webp", STK_MEDIA_HAS_ALPHA, true},
        {"webp-animated-part.webp", STK_MEDIA_HAS_ALPHA | STK_MEDIA_ANIMATED, true},
    };
    const stk_limits limits = STK_LIMITS_DEFAULT;
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        char path[900];
        stk_bytes bytes;
        stk_image_info info;
        stk_reason reason;
        stk_error err;
        snprintf(path, sizeof path, "%s/image/golden/%s", test_source_folder(), expected[i].name);
        uint8_t *const data = image_test_read(path, &bytes);
        CHECK_OK(stk_image_probe(&info, &reason, bytes, bytes.size_bytes, &limits, &err), err);
        const uint32_t flags = expected[i].flags | (expected[i].whole ? STK_MEDIA_WHOLE : 0);
        CHECK_MSG(info.flags == flags && info.whole == expected[i].whole, "%s: flags %u", expected[i].name,
                  info.flags);
        free(data);
    }
}

int main(int argc, char **argv)
{
    TEST_MAIN(argc, argv, TEST(every_kind_of_picture_equals_the_reference),
              TEST(plain_c_equals_the_reference), TEST(a_header_in_pieces_says_the_same),
              TEST(exif_blocks_are_read_as_pillow_reads_them), TEST(the_vectors_of_the_specification), TEST(the_vectors_of_the_pillow_profiles),
              TEST(noise_of_any_size_becomes_what_torch_makes_of_it),
              TEST(headers_say_what_the_index_counts));
}
