/* test_image_tiff.c - TIFFs of every kind against Pillow (tools/make-tiff-goldens), and files that lie. */
#include "image_test.h"

#include "base/fault.h"

#include <xxhash.h>

static image_test t;

static void setup(void)
{
    image_test_close(&t);
    image_test_open(&t, 16, STK_PIXELS_UINT8, stk_cpu_detect());
}

static uint8_t *read_golden(const char *name, stk_bytes *bytes)
{
    char path[900];
    snprintf(path, sizeof path, "%s/image/golden-tiff/%s", test_source_folder(), name);
    return image_test_read(path, bytes);
}

static FILE *open_list(const char *name)
{
    char path[900];
    snprintf(path, sizeof path, "%s/image/golden-tiff/%s", test_source_folder(), name);
    FILE *const file = fopen(path, "r");
    CHECK_MSG(file != NULL, "%s", path);
    return file;
}

typedef struct golden {
    char name[128], flags[8];
    unsigned orientation, width_px, height_px;
    unsigned long long hash[3]; /* by stk_alpha_rule */
} golden;

static bool next_golden(FILE *file, golden *g)
{
    return fscanf(file, "%127s %u %7s %u %u %llx %llx %llx", g->name, &g->orientation, g->flags, &g->width_px,
                  &g->height_px, &g->hash[0], &g->hash[1], &g->hash[2]) == 8;
}

/* Probe t.bytes and decode them in their own upright size.  Free *rgb with free. */
static stk_status decode(stk_alpha_rule alpha, uint8_t **rgb)
{
    *rgb = NULL;
    memset(&t.err, 0, sizeof t.err);
    STK_TRY(stk_image_probe(&t.info, &t.reason, t.bytes, t.bytes.size_bytes, &t.limits, &t.err));
    const bool swaps = stk_orientation_swaps(t.info.orientation);
    t.width_px = swaps ? t.info.height_px : t.info.width_px;
    t.height_px = swaps ? t.info.width_px : t.info.height_px;
    *rgb = malloc((size_t)t.width_px * t.height_px * 3);
    return stk_image_rgb(*rgb, t.spec, t.scratch, t.bytes, &t.info, t.info.orientation, alpha, t.width_px,
                         t.height_px, &t.reason, &t.err);
}

static void every_kind_equals_pillow(void)
{
    setup();
    golden g;
    size_t count = 0;
    FILE *const file = open_list("goldens.txt");
    for (; next_golden(file, &g); count++) {
        uint8_t *const bytes = read_golden(g.name, &t.bytes);
        for (int alpha = STK_ALPHA_DROP; alpha <= STK_ALPHA_WHITE; alpha++) {
            uint8_t *rgb;
            const stk_status status = decode((stk_alpha_rule)alpha, &rgb);
            CHECK_MSG(status == STK_OK, "%s: %s", g.name, t.err.message);
            CHECK_MSG(t.info.orientation == g.orientation, "%s: %u", g.name, t.info.orientation);
            CHECK_MSG(t.width_px == g.width_px && t.height_px == g.height_px, "%s: %ux%u", g.name, t.width_px,
                      t.height_px);
            CHECK_MSG(XXH3_64bits(rgb, (size_t)t.width_px * t.height_px * 3) == g.hash[alpha],
                      "%s under alpha rule %d", g.name, alpha);
            free(rgb);
        }
        const uint32_t flags = (strchr(g.flags, 'a') ? STK_MEDIA_HAS_ALPHA : 0) |
                               (strchr(g.flags, 'g') ? STK_MEDIA_GREY16 : 0) |
                               (strchr(g.flags, 'm') ? STK_MEDIA_ANIMATED : 0) |
                               (strstr(g.name, "cmyk") ? STK_MEDIA_CMYK : 0);
        CHECK_MSG((t.info.flags & ~(uint32_t)STK_MEDIA_WHOLE) == flags, "%s: flags %u, not %u", g.name,
                  t.info.flags, flags);
        free(bytes);
    }
    fclose(file);
    CHECK_MSG(count > 130, "%zu goldens", count);
}

/* What an index does: more and more of a file until the header is whole. */
static void a_header_in_pieces_says_the_same(void)
{
    setup();
    golden g;
    FILE *const file = open_list("goldens.txt");
    while (next_golden(file, &g)) {
        stk_bytes all;
        stk_image_info whole, part;
        uint8_t *const bytes = read_golden(g.name, &all);
        CHECK_OK(stk_image_probe(&whole, &t.reason, all, all.size_bytes, &t.limits, &t.err), t.err);
        bool known = false;
        for (size_t size = 0; size < all.size_bytes; size += 1 + size / 24) {
            uint8_t *const copy = malloc(size ? size : 1); /* ends where it ends, for the sanitizer */
            memcpy(copy, bytes, size);
            const stk_status status =
                stk_image_probe(&part, &t.reason, (stk_bytes){copy, size}, all.size_bytes, &t.limits, &t.err);
            CHECK_MSG(status >= 0, "%s of %zu bytes: %s", g.name, size, t.err.message);
            CHECK_MSG(status == STK_OK || !known, "%s of %zu bytes was known with fewer", g.name, size);
            known = status == STK_OK;
            if (known)
                CHECK_MSG(part.width_px == whole.width_px && part.height_px == whole.height_px &&
                              part.orientation == whole.orientation && part.flags == whole.flags &&
                              part.format == whole.format && part.whole == whole.whole &&
                              part.codec_bytes == whole.codec_bytes,
                          "%s of %zu bytes", g.name, size);
            free(copy);
        }
        free(bytes);
    }
    fclose(file);
}

static void what_is_not_read_is_named(void)
{
    setup();
    FILE *const file = open_list("refused.txt");
    char name[128], too[4], words[128];
    size_t count = 0;
    for (; fscanf(file, "%127s %3s %127[^\n]", name, too, words) == 3; count++) {
        uint8_t *rgb, *const bytes = read_golden(name, &t.bytes);
        const stk_status status = decode(STK_ALPHA_DROP, &rgb);
        CHECK_MSG(status == STK_ERR_MEDIA || status == STK_ERR_MEDIA_UNSUPPORTED, "%s: status %d", name,
                  (int)status);
        CHECK_HAS(t.err.message, words);
        CHECK_MSG(t.reason == (status == STK_ERR_MEDIA ? STK_REASON_BROKEN : STK_REASON_UNSUPPORTED), "%s",
                  name);
        free(rgb);
        free(bytes);
    }
    fclose(file);
    CHECK_MSG(count > 15, "%zu files", count);
}

/* No half picture trains in silence, and the scratch is as good as new behind each. */
static void a_cut_file_is_truncated(void)
{
    setup();
    golden g;
    FILE *const file = open_list("goldens.txt");
    while (next_golden(file, &g)) {
        stk_bytes all;
        uint8_t *rgb, *const bytes = read_golden(g.name, &all);
        for (size_t size = 0; size < all.size_bytes; size += 64) {
            uint8_t *const copy = malloc(size ? size : 1);
            memcpy(copy, bytes, size);
            t.bytes = (stk_bytes){copy, size};
            const stk_status status = decode(STK_ALPHA_DROP, &rgb);
            /* A palette, a description or another page may be all that is missing. */
            if (status == STK_OK)
                CHECK_MSG(XXH3_64bits(rgb, (size_t)t.width_px * t.height_px * 3) == g.hash[0],
                          "%s of %zu bytes", g.name, size);
            else
                CHECK_MSG((t.reason == STK_REASON_BROKEN || t.reason == STK_REASON_EMPTY ||
                           t.reason == STK_REASON_NOT_IMAGE) &&
                              t.err.message[0],
                          "%s of %zu bytes: %s", g.name, size, t.err.message);
            free(rgb);
            free(copy);
        }
        t.bytes = all;
        CHECK_OK(decode(STK_ALPHA_DROP, &rgb), t.err);
        free(rgb);
        free(bytes);
    }
    fclose(file);
}

/* --- small files by hand --- */

typedef struct tag {
    uint16_t number, type;
    uint32_t count, value;
} tag;

/* A little-endian file of one directory at byte 8, padded to size. */
static void make_file(uint8_t *out, size_t size, const tag *tags, size_t count)
{
    memset(out, 0, size);
    memcpy(out, "II\x2a\0\x08\0\0", 8);
    out[8] = (uint8_t)count;
    for (size_t i = 0; i < count; i++) {
        uint8_t *const at = out + 10 + 12 * i;
        memcpy(at, &tags[i].number, 2);
        memcpy(at + 2, &tags[i].type, 2);
        memcpy(at + 4, &tags[i].count, 4);
        memcpy(at + 8, &tags[i].value, 4);
    }
    t.bytes = (stk_bytes){out, size};
}

enum { SHORT = 3, LONG = 4, FILE_BYTES = 1024 };

static void expect(stk_status status, const char *words)
{
    uint8_t *rgb;
    const stk_status found = decode(STK_ALPHA_DROP, &rgb);
    CHECK_MSG(found == status, "%s: status %d, not %d: %s", words, (int)found, (int)status, t.err.message);
    CHECK_HAS(t.err.message, words);
    free(rgb);
}

static void sizes_and_counts_that_lie_are_refused(void)
{
    setup();
    uint8_t file[FILE_BYTES];
    tag grey[] = {{256, LONG, 1, 20},  {257, LONG, 1, 20}, {258, SHORT, 1, 8},  {262, SHORT, 1, 1},
                  {273, LONG, 1, 300}, {278, LONG, 1, 20}, {279, LONG, 1, 400}, {259, SHORT, 1, 1}};
    const size_t count = sizeof grey / sizeof *grey;
    uint8_t *rgb;
    make_file(file, FILE_BYTES, grey, count);
    CHECK_OK(decode(STK_ALPHA_DROP, &rgb), t.err);
    free(rgb);

    const uint64_t before = stk_alloc_count();
    grey[0].value = grey[1].value = 0x7fffffff;
    make_file(file, FILE_BYTES, grey, count);
    expect(STK_ERR_MEDIA_LIMIT, "2147483647x2147483647");
    grey[0].value = 0x80000000u;
    make_file(file, FILE_BYTES, grey, count);
    expect(STK_ERR_MEDIA, "no usable size");
    grey[0].value = grey[1].value = 20;
    grey[5].value = 0;
    make_file(file, FILE_BYTES, grey, count);
    expect(STK_ERR_MEDIA, "strips of no rows");
    CHECK_INT(stk_alloc_count(), before);

    grey[5].value = 1; /* 20 strips with one place */
    make_file(file, FILE_BYTES, grey, count);
    expect(STK_ERR_MEDIA, "where all of its pixels");
    grey[5].value = 20;
    grey[4].value = 1000; /* too near to the end */
    make_file(file, FILE_BYTES, grey, count);
    expect(STK_ERR_MEDIA, "truncated TIFF");
    grey[4].value = 0xfffffff0u;
    make_file(file, FILE_BYTES, grey, count);
    expect(STK_ERR_MEDIA, "truncated TIFF");
    grey[4] =
        (tag){273, LONG, 0xffffffffu, 300}; /* more values than the file has bytes: as if it were not there */
    make_file(file, FILE_BYTES, grey, count);
    expect(STK_ERR_MEDIA, "neither strips nor tiles");
    grey[4] = (tag){273, LONG, 1, 300};
    grey[7].value = 5;
    grey[6].value = 0xffffffffu; /* bytes of a strip */
    make_file(file, FILE_BYTES, grey, count);
    expect(STK_ERR_MEDIA, "truncated TIFF");
    grey[6].value = 400; /* zeros are no LZW */
    make_file(file, FILE_BYTES, grey, count);
    expect(STK_ERR_MEDIA, "broken TIFF (");
}

static void directories_that_lead_nowhere_are_refused(void)
{
    setup();
    uint8_t file[FILE_BYTES];
    const tag none = {65000, SHORT, 1, 0};
    make_file(file, FILE_BYTES, &none, 1);
    expect(STK_ERR_MEDIA, "no usable size");
    memcpy(file + 4, "\0\0\0\0", 4);
    expect(STK_ERR_MEDIA, "no directory");
    memcpy(file + 4, "\xff\xff\xff\xff", 4);
    expect(STK_ERR_MEDIA, "no directory");
    memcpy(file + 4, "\xff\x03\0\0", 4); /* its count would be half behind the end */
    expect(STK_ERR_MEDIA, "no directory");
    memcpy(file + 4, "\0\0\0\0", 4);
    file[4] = 4; /* the directory is the head itself: 4 entries of rubbish */
    expect(STK_ERR_MEDIA, "no usable size");
    memset(file + 8, 0xff, FILE_BYTES - 8); /* 65535 entries, which the file has not */
    file[4] = 8;
    expect(STK_ERR_MEDIA, "truncated TIFF");
    memcpy(file, "II\x2b\0\x08\0\0\0\x10\0\0\0\0\0\0\0", 16);
    expect(STK_ERR_MEDIA, "truncated TIFF");
    memset(file + 8, 0xff, 8);
    expect(STK_ERR_MEDIA, "no directory");
}

/* A directory may be its own next one, at its place and as a value: nothing is followed. */
static void a_directory_that_names_itself_is_read_once(void)
{
    setup();
    uint8_t file[FILE_BYTES];
    const tag tags[] = {{256, LONG, 1, 10},  {257, LONG, 1, 10}, {258, SHORT, 1, 8}, {262, SHORT, 1, 1},
                        {273, LONG, 1, 300}, {330, LONG, 1, 8},  {34665, LONG, 1, 8}};
    enum { COUNT = sizeof tags / sizeof *tags, NEXT_AT = 10 + 12 * COUNT };
    make_file(file, FILE_BYTES, tags, COUNT);
    file[NEXT_AT] = 8;
    uint8_t *rgb;
    CHECK_OK(decode(STK_ALPHA_DROP, &rgb), t.err);
    CHECK_INT(t.info.flags, 0);
    free(rgb);
    file[NEXT_AT] = 100; /* another one, whatever stands there */
    CHECK_OK(decode(STK_ALPHA_DROP, &rgb), t.err);
    CHECK_INT(t.info.flags, STK_MEDIA_ANIMATED);
    free(rgb);
}

/* Each allocation of ours fails in turn: out of memory is said, and the next picture is fine. */
static void every_allocation_may_fail(void)
{
#ifdef STK_FAULTS
    static const char *const name[] = {"rgb-tiles.tif", "rgb-planes-tiles-lzw.tif",
                                       "palette4-reversed-lzw.tif", "ycbcr-22-deflate.tif", "jpeg.tif"};
    for (size_t i = 0; i < sizeof name / sizeof *name; i++) {
        setup();
        uint8_t *rgb, *const bytes = read_golden(name[i], &t.bytes);
        unsigned long nth = 1;
        for (;; nth++) {
            stk_image_scratch_destroy(t.scratch);
            CHECK_OK(stk_image_scratch_create(&t.scratch, t.spec, &t.err), t.err);
            stk_fault_set(STK_FAULT_ALLOC, nth, false);
            const stk_status status = decode(STK_ALPHA_DROP, &rgb);
            stk_fault_set(STK_FAULT_ALLOC, 0, false);
            free(rgb);
            if (status == STK_OK) break;
            CHECK_MSG(status == STK_ERR_NOMEM, "%s, allocation %lu: %s", name[i], nth, t.err.message);
            CHECK_INT(t.reason, STK_REASON_NONE);
        }
        CHECK_MSG(nth > 2, "%s: %lu allocations", name[i], nth);
        free(bytes);
    }
#endif
}

int main(int argc, char **argv)
{
    TEST_MAIN(argc, argv, TEST(every_kind_equals_pillow), TEST(a_header_in_pieces_says_the_same),
              TEST(what_is_not_read_is_named), TEST(a_cut_file_is_truncated),
              TEST(sizes_and_counts_that_lie_are_refused), TEST(directories_that_lead_nowhere_are_refused),
              TEST(a_directory_that_names_itself_is_read_once), TEST(every_allocation_may_fail));
}
