/* test_image_gif_bmp.c - every kind of GIF and BMP against Pillow (tools/make-gif-bmp-goldens), and hostile
 * ones. */
#include "image_test.h"

#include "base/fault.h"

#include <xxhash.h>

static image_test t;
static uint8_t *file_bytes; /* of the picture that a test looks at */

static void setup(void)
{
    image_test_close(&t);
    image_test_open(&t, 16, STK_PIXELS_UINT8, stk_cpu_detect());
}

static void take_golden(const char *name)
{
    char path[700];
    snprintf(path, sizeof path, "%s/image/golden-gif-bmp/%s", test_source_folder(), name);
    free(file_bytes);
    file_bytes = image_test_read(path, &t.bytes);
}

static FILE *open_list(const char *name)
{
    char path[700];
    snprintf(path, sizeof path, "%s/image/golden-gif-bmp/%s", test_source_folder(), name);
    FILE *const file = fopen(path, "r");
    CHECK_MSG(file != NULL, "%s", path);
    return file;
}

/* The picture in its own size, into *rgb, which the caller frees; NULL after failure. */
static stk_status make_rgb(stk_alpha_rule alpha, uint8_t **rgb)
{
    *rgb = NULL;
    memset(&t.err, 0, sizeof t.err);
    stk_status status = stk_image_probe(&t.info, &t.reason, t.bytes, t.bytes.size_bytes, &t.limits, &t.err);
    if (status != STK_OK) return status;
    const uint32_t width_px = t.info.width_px, height_px = t.info.height_px;
    *rgb = malloc((size_t)width_px * height_px * 3);
    CHECK(*rgb != NULL);
    memset(*rgb, 0xa5, (size_t)width_px * height_px * 3);
    status = stk_image_rgb(*rgb, t.spec, t.scratch, t.bytes, &t.info, t.info.orientation, alpha, width_px,
                           height_px, &t.reason, &t.err);
    if (status == STK_OK) return status;
    free(*rgb);
    *rgb = NULL;
    return status;
}

static uint64_t digest(stk_alpha_rule alpha)
{
    uint8_t *rgb;
    CHECK_OK(make_rgb(alpha, &rgb), t.err);
    const uint64_t hash = XXH3_64bits(rgb, (size_t)t.info.width_px * t.info.height_px * 3);
    free(rgb);
    return hash;
}

static uint64_t digest_of(const char *name, stk_alpha_rule alpha)
{
    take_golden(name);
    return digest(alpha);
}

typedef struct golden {
    char name[128], flags[8];
    unsigned width_px, height_px;
    unsigned long long hash[3]; /* by stk_alpha_rule */
} golden;

static bool next_golden(FILE *file, golden *g)
{
    return fscanf(file, "%127s %u %u %7s %llx %llx %llx", g->name, &g->width_px, &g->height_px, g->flags,
                  &g->hash[0], &g->hash[1], &g->hash[2]) == 7;
}

/* B30, B44, and all else that the files' names say. */
static void every_kind_equals_pillow_under_each_rule_of_alpha(void)
{
    setup();
    golden g;
    size_t gifs = 0, bmps = 0;
    FILE *const file = open_list("goldens.txt");
    while (next_golden(file, &g)) {
        take_golden(g.name);
        for (int alpha = STK_ALPHA_DROP; alpha <= STK_ALPHA_WHITE; alpha++) {
            const uint64_t hash = digest((stk_alpha_rule)alpha);
            CHECK_MSG(t.info.width_px == g.width_px && t.info.height_px == g.height_px, "%s: %ux%u", g.name,
                      t.info.width_px, t.info.height_px);
            CHECK_MSG(hash == g.hash[alpha], "%s under rule %d", g.name, alpha);
        }
        const uint32_t flags = (strchr(g.flags, 'a') ? STK_MEDIA_HAS_ALPHA : 0u) |
                               (strchr(g.flags, 'm') ? STK_MEDIA_ANIMATED : 0u);
        CHECK_MSG((t.info.flags & ~(uint32_t)STK_MEDIA_WHOLE) == flags, "%s: flags %u", g.name, t.info.flags);
        CHECK_INT(t.info.orientation, 1);
        /* B33: the bytes tell the format. */
        const bool is_gif = strncmp(g.name, "gif", 3) == 0;
        CHECK_INT(t.info.format, is_gif ? STK_FORMAT_GIF : STK_FORMAT_BMP);
        *(is_gif ? &gifs : &bmps) += 1;
    }
    fclose(file);
    CHECK_MSG(gifs > 60 && bmps > 70, "%zu GIFs and %zu BMPs", gifs, bmps);
}

static void their_patches_equal_the_processors(void)
{
    setup();
    char name[128];
    unsigned long long min_px, max_px, hash;
    unsigned patch_px, width_px, height_px;
    size_t count = 0;
    FILE *const file = open_list("patches.txt");
    for (; fscanf(file, "%127s %llu %llu %u %u %u %llx", name, &min_px, &max_px, &patch_px, &width_px,
                  &height_px, &hash) == 7;
         count++) {
        take_golden(name);
        CHECK_INT(patch_px, t.model.patch_px);
        CHECK_OK(image_test_make(&t, min_px, max_px), t.err);
        CHECK_MSG(t.width_px == width_px && t.height_px == height_px, "%s: %ux%u", name, t.width_px,
                  t.height_px);
        CHECK_MSG(XXH3_64bits(t.patches, t.patches_bytes) == hash, "%s", name);
    }
    fclose(file);
    CHECK_MSG(count >= 7, "%zu pictures", count);
}

static void what_pillow_refuses_is_refused_with_a_reason(void)
{
    setup();
    char name[128];
    size_t count = 0;
    FILE *const file = open_list("refused.txt");
    for (; fscanf(file, "%127s", name) == 1; count++) {
        uint8_t *rgb;
        take_golden(name);
        CHECK_MSG(make_rgb(STK_ALPHA_DROP, &rgb) < 0, "%s is read", name);
        CHECK_MSG(t.reason == STK_REASON_BROKEN || t.reason == STK_REASON_UNSUPPORTED, "%s: %s", name,
                  stk_reason_text(t.reason));
        CHECK_HAS(t.err.message, strncmp(name, "gif", 3) == 0 ? "GIF" : "BMP");
        CHECK_MSG(t.err.stage == STK_STAGE_DECODE, "%s", name);
    }
    fclose(file);
    CHECK_MSG(count > 30, "%zu pictures", count);
}

static void the_words_say_what_is_wrong(void)
{
    setup();
    static const struct {
        const char *name, *words;
        stk_reason reason;
    } file[] = {
        {"gif-cut.gif", "truncated GIF", STK_REASON_BROKEN},
        {"gif-fewer-pixels.gif", "truncated GIF", STK_REASON_BROKEN},
        {"gif-head-only.gif", "truncated GIF", STK_REASON_BROKEN},
        {"gif-wrong-code.gif", "wrong code", STK_REASON_BROKEN},
        {"gif-no-frame.gif", "no frame", STK_REASON_BROKEN},
        {"gif-flat-frame.gif", "40x0", STK_REASON_BROKEN},
        {"bmp-cut.bmp", "truncated BMP", STK_REASON_BROKEN},
        {"bmp-cut-head.bmp", "truncated BMP", STK_REASON_BROKEN},
        {"bmp-rle8-early-end.bmp", "truncated BMP", STK_REASON_BROKEN},
        {"bmp-no-width.bmp", "0x26", STK_REASON_BROKEN},
        {"bmp-2.bmp", "2 bits", STK_REASON_UNSUPPORTED},
        {"bmp-png.bmp", "compression 5", STK_REASON_UNSUPPORTED},
        {"bmp-head-16.bmp", "16 bytes", STK_REASON_UNSUPPORTED},
        {"bmp-16-444.bmp", "masks f00, f0, f", STK_REASON_UNSUPPORTED},
        {"bmp-8-300-colours.bmp", "300 colours", STK_REASON_UNSUPPORTED},
        {"bmp-rle8-24.bmp", "run-length", STK_REASON_UNSUPPORTED},
    };
    for (size_t i = 0; i < sizeof file / sizeof *file; i++) {
        uint8_t *rgb;
        take_golden(file[i].name);
        CHECK_INT(make_rgb(STK_ALPHA_DROP, &rgb),
                  file[i].reason == STK_REASON_BROKEN ? STK_ERR_MEDIA : STK_ERR_MEDIA_UNSUPPORTED);
        CHECK_INT(t.reason, file[i].reason);
        CHECK_HAS(t.err.message, file[i].words);
    }
}

/* Frame 0 on the full canvas: colour 1 is transparent, and stands around the frame. */
static void b30_an_animation_is_its_first_frame_on_its_canvas(void)
{
    setup();
    uint8_t *rgb, *white;
    take_golden("gif-b30.gif");
    CHECK_OK(make_rgb(STK_ALPHA_DROP, &rgb), t.err);
    CHECK_OK(make_rgb(STK_ALPHA_WHITE, &white), t.err);
    CHECK_INT(t.info.width_px, 10);
    CHECK_INT(t.info.height_px, 10);
    CHECK_INT(t.info.flags, STK_MEDIA_ANIMATED | STK_MEDIA_HAS_ALPHA);
    const uint8_t *const entry = file_bytes + 13 + 3;
    for (int y = 0; y < 10; y++) {
        for (int x = 0; x < 10; x++) {
            const size_t at = (size_t)(y * 10 + x) * 3;
            const bool is_entry = memcmp(rgb + at, entry, 3) == 0,
                       inside = x >= 3 && x < 7 && y >= 3 && y < 7;
            CHECK_MSG(is_entry || inside, "%d, %d", x, y);
            CHECK(memcmp(white + at, is_entry ? (const uint8_t *)"\xff\xff\xff" : rgb + at, 3) == 0);
        }
    }
    free(rgb);
    free(white);
}

static void b44_kinds_of_bmp(void)
{
    setup();
    const uint64_t plain = digest_of("bmp-24.bmp", STK_ALPHA_DROP);
    /* An alpha that no mask speaks of is opaque, also where all is whitened. */
    CHECK(digest_of("bmp-32-zero-alpha.bmp", STK_ALPHA_DROP) == plain);
    CHECK(digest_of("bmp-32-zero-alpha.bmp", STK_ALPHA_WHITE) == plain);
    CHECK_INT(t.info.flags, 0);
    /* One that a mask speaks of counts. */
    CHECK(digest_of("bmp-32-bgra-zero.bmp", STK_ALPHA_DROP) == plain);
    uint8_t *rgb;
    CHECK_OK(make_rgb(STK_ALPHA_WHITE_RGBA, &rgb), t.err);
    CHECK_INT(t.info.flags, STK_MEDIA_HAS_ALPHA);
    for (size_t i = 0; i < (size_t)t.info.width_px * t.info.height_px * 3; i++) CHECK_INT(rgb[i], 255);
    free(rgb);
    /* Rows the right way up. */
    CHECK(digest_of("bmp-24-top-down.bmp", STK_ALPHA_DROP) == plain);
    CHECK(digest_of("bmp-1.bmp", STK_ALPHA_DROP) != plain);
    CHECK(digest_of("bmp-8-top-down.bmp", STK_ALPHA_DROP) == digest_of("bmp-8.bmp", STK_ALPHA_DROP));
    CHECK(digest_of("bmp-rle8-top-down.bmp", STK_ALPHA_DROP) == digest_of("bmp-rle8-0.bmp", STK_ALPHA_DROP));
    /* Runs and values give the same picture, of colours and of greys. */
    CHECK(digest_of("bmp-rle8-1.bmp", STK_ALPHA_DROP) == digest_of("bmp-rle8-0.bmp", STK_ALPHA_DROP));
    CHECK(digest_of("bmp-rle8-grey-1.bmp", STK_ALPHA_DROP) ==
          digest_of("bmp-rle8-grey-0.bmp", STK_ALPHA_DROP));
    CHECK(digest_of("bmp-rle4-1.bmp", STK_ALPHA_DROP) == digest_of("bmp-4.bmp", STK_ALPHA_DROP));
}

/* What an index does: more and more of a file until the header is whole.  Each answer is AGAIN or the final
 * one, which says animated or not. */
static void a_header_in_pieces_says_the_same(void)
{
    setup();
    golden g;
    FILE *const file = open_list("goldens.txt");
    while (next_golden(file, &g)) {
        stk_image_info whole, part;
        bool known = false;
        take_golden(g.name);
        const size_t total = t.bytes.size_bytes;
        CHECK_OK(stk_image_probe(&whole, &t.reason, t.bytes, total, &t.limits, &t.err), t.err);
        for (size_t size = 0; size < total; size += 1 + size / 32) {
            uint8_t *const copy = malloc(size ? size : 1); /* ends where it ends, for the sanitizer */
            memcpy(copy, file_bytes, size);
            const stk_status status =
                stk_image_probe(&part, &t.reason, (stk_bytes){copy, size}, total, &t.limits, &t.err);
            CHECK_MSG(status >= 0, "%s of %zu bytes: %s", g.name, size, t.err.message);
            CHECK_MSG(status == STK_OK || !known, "%s of %zu bytes was known with fewer", g.name, size);
            free(copy);
            if (status != STK_OK) continue;
            known = true;
            CHECK_MSG(part.width_px == whole.width_px && part.height_px == whole.height_px &&
                          part.flags == whole.flags && part.format == whole.format &&
                          part.whole == whole.whole && part.codec_bytes == whole.codec_bytes,
                      "%s of %zu bytes", g.name, size);
        }
    }
    fclose(file);
}

/* No half picture trains in silence: each beginning of a file is refused in words, or is the whole picture.
 */
static void a_file_cut_at_any_byte_is_refused_or_whole(void)
{
    setup();
    static const char *const name[] = {"gif-b30.gif",
                                       "gif-interlaced-9.gif",
                                       "gif-part-transparent.gif",
                                       "gif-256.gif",
                                       "gif-empty-extension.gif",
                                       "bmp-24-width-3.bmp",
                                       "bmp-1-core.bmp",
                                       "bmp-4.bmp",
                                       "bmp-8-no-offset.bmp",
                                       "bmp-16-565-40.bmp",
                                       "bmp-32-bgra.bmp",
                                       "bmp-rle8-1.bmp",
                                       "bmp-rle8-delta.bmp",
                                       "bmp-rle4-1.bmp"};
    for (size_t i = 0; i < sizeof name / sizeof *name; i++) {
        const uint64_t hash = digest_of(name[i], STK_ALPHA_DROP);
        const stk_bytes whole = t.bytes;
        size_t first_whole = whole.size_bytes;
        for (size_t size = whole.size_bytes; size-- > 0;) {
            uint8_t *const copy = malloc(size ? size : 1), *rgb;
            memcpy(copy, whole.data, size);
            t.bytes = (stk_bytes){copy, size};
            const stk_status status = make_rgb(STK_ALPHA_DROP, &rgb);
            if (status == STK_OK) {
                CHECK_MSG(size == first_whole - 1, "%s of %zu bytes is read, longer ones are not", name[i],
                          size);
                CHECK_MSG(XXH3_64bits(rgb, (size_t)t.info.width_px * t.info.height_px * 3) == hash,
                          "%s of %zu bytes", name[i], size);
                first_whole = size;
            } else {
                CHECK_MSG(status < 0 && t.reason != STK_REASON_NONE && t.err.message[0], "%s of %zu bytes",
                          name[i], size);
            }
            free(rgb);
            free(copy);
        }
        CHECK_MSG(first_whole > whole.size_bytes / 3, "%s is read from %zu bytes", name[i], first_whole);
    }
}

static void put16(uint8_t *at, uint32_t value)
{
    at[0] = (uint8_t)value;
    at[1] = (uint8_t)(value >> 8);
}

static void put32(uint8_t *at, uint32_t value)
{
    put16(at, value);
    put16(at + 2, value >> 16);
}

static void expect_limit(const char *words)
{
    uint8_t *rgb;
    const uint64_t before = stk_alloc_count();
    CHECK_INT(make_rgb(STK_ALPHA_DROP, &rgb), STK_ERR_MEDIA_LIMIT);
    CHECK_INT(t.reason, STK_REASON_MEDIA_LIMIT);
    CHECK_HAS(t.err.message, words);
    CHECK_INT(stk_alloc_count(), before);
}

static void sizes_over_the_limit_are_refused_from_the_header(void)
{
    setup();
    take_golden("gif-16.gif");
    put16(file_bytes + 6, 65535);
    put16(file_bytes + 8, 65535);
    expect_limit("65535x65535");
    take_golden("gif-16.gif"); /* by its frame's place alone */
    const size_t frame_at = 13 + 16 * 3;
    CHECK_INT(file_bytes[frame_at], ',');
    put16(file_bytes + frame_at + 1, 65535);
    put16(file_bytes + frame_at + 3, 65535);
    expect_limit("65575x65568");

    take_golden("bmp-24.bmp");
    put32(file_bytes + 18, 0xfffffff0u); /* a width below 0 is a large one */
    expect_limit("4294967280x17");
    take_golden("bmp-24.bmp");
    put32(file_bytes + 22, 0x80000000u); /* a height is negative only when it is near 0 */
    expect_limit("21x2147483648");
    take_golden("bmp-rle8-0.bmp");
    put32(file_bytes + 18, 65536);
    put32(file_bytes + 22, 65536);
    expect_limit("65536x65536");
}

/* With no limit at all, products of outside numbers do not wrap. */
static void without_a_limit_the_file_still_is_too_short(void)
{
    setup();
    uint8_t *rgb;
    t.limits.media_px = UINT64_MAX;
    stk_image_info info;
    take_golden("bmp-32.bmp");
    put32(file_bytes + 18, 0xffffffffu);
    put32(file_bytes + 22, 0xfeffffffu);
    CHECK_INT(stk_image_probe(&info, &t.reason, t.bytes, t.bytes.size_bytes, &t.limits, &t.err),
              STK_ERR_MEDIA);
    CHECK_HAS(t.err.message, "truncated BMP");
    put32(file_bytes + 18, 1);
    put32(file_bytes + 22, 1);
    put32(file_bytes + 10, 0xffffffffu); /* where the pixels are */
    CHECK_INT(make_rgb(STK_ALPHA_DROP, &rgb), STK_ERR_MEDIA);
    CHECK_HAS(t.err.message, "truncated BMP");
}

static void another_picture_than_was_planned_is_named_changed(void)
{
    setup();
    static const char *const name[] = {"gif-16.gif", "bmp-24.bmp"};
    for (size_t i = 0; i < sizeof name / sizeof *name; i++) {
        uint8_t rgb[64 * 64 * 3];
        take_golden(name[i]);
        CHECK_OK(stk_image_probe(&t.info, &t.reason, t.bytes, t.bytes.size_bytes, &t.limits, &t.err), t.err);
        t.info.width_px++;
        CHECK_INT(stk_image_rgb(rgb, t.spec, t.scratch, t.bytes, &t.info, 1, STK_ALPHA_DROP, 64, 64,
                                &t.reason, &t.err),
                  STK_ERR_MEDIA);
        CHECK_INT(t.reason, STK_REASON_CHANGED);
    }
}

/* The kinds that are held whole take memory of their own: without it they fail, and the next picture is fine.
 */
static void every_allocation_may_fail(void)
{
#ifdef STK_FAULTS
    static const char *const name[] = {"gif-interlaced-33.gif", "bmp-rle8-0.bmp"};
    for (size_t i = 0; i < sizeof name / sizeof *name; i++) {
        setup();
        const uint64_t hash = digest_of(name[i], STK_ALPHA_DROP);
        unsigned long nth = 1;
        for (;; nth++) {
            uint8_t *rgb = NULL;
            stk_image_scratch_destroy(t.scratch);
            stk_fault_set(STK_FAULT_ALLOC, nth, false);
            stk_status status = stk_image_scratch_create(&t.scratch, t.spec, &t.err);
            if (status == STK_OK) status = make_rgb(STK_ALPHA_DROP, &rgb);
            stk_fault_set(STK_FAULT_ALLOC, 0, false);
            free(rgb);
            if (status == STK_OK) break;
            CHECK_MSG(status == STK_ERR_NOMEM, "%s, allocation %lu: %s", name[i], nth, t.err.message);
            CHECK_INT(t.reason, STK_REASON_NONE);
        }
        CHECK_MSG(nth > 4, "%s: %lu allocations", name[i],
                  nth); /* scratch, its state, the block, the picture */
        CHECK(digest(STK_ALPHA_DROP) == hash);
    }
#endif
}

int main(int argc, char **argv)
{
    TEST_MAIN(argc, argv, TEST(every_kind_equals_pillow_under_each_rule_of_alpha),
              TEST(their_patches_equal_the_processors), TEST(what_pillow_refuses_is_refused_with_a_reason),
              TEST(the_words_say_what_is_wrong), TEST(b30_an_animation_is_its_first_frame_on_its_canvas),
              TEST(b44_kinds_of_bmp), TEST(a_header_in_pieces_says_the_same),
              TEST(a_file_cut_at_any_byte_is_refused_or_whole),
              TEST(sizes_over_the_limit_are_refused_from_the_header),
              TEST(without_a_limit_the_file_still_is_too_short),
              TEST(another_picture_than_was_planned_is_named_changed), TEST(every_allocation_may_fail));
}
