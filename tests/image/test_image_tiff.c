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
                               (strchr(g.flags, 'm') ? STK_MEDIA_ANIMATED : 0);
        CHECK_MSG((t.info.flags & ~(uint32_t)STK_MEDIA_WHOLE) == flags, "%s: flags %u, not %u", g.name,
                  t.info.flags, flags);
        free(bytes);
    }
    fclose(file);
    CHECK_MSG(count > 130, "%zu goldens", count);
}

int main(int argc, char **argv)
{
    TEST_MAIN(argc, argv, TEST(every_kind_equals_pillow));
}
