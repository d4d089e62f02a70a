/* image_tool.c - the image module on a list of files, for scripts that compare it with other software.
 *
 *     image_tool rgb LIST [LEVEL PROFILE ALPHA] each line "FILE WIDTH HEIGHT ORIENTATION": plain RGB to stdout
 *     image_tool patches LIST FORM P MIN MAX   each line "FILE": "FILE WIDTH HEIGHT ORIENTATION" and XXH3-64
 * in hex
 *
 * LEVEL is none or best; PROFILE and ALPHA are numbers of stk_profile and stk_alpha_rule; FORM is uint8, float32 or bfloat16; P is 16 (mean and deviation 0.5) or 14 (CLIP's).
 */
#include "image_test.h"

#include <xxhash.h>

static stk_cpu_level level_of(const char *name)
{
    return name && strcmp(name, "none") == 0 ? STK_CPU_NONE : stk_cpu_detect();
}

static int run_rgb(FILE *list, stk_cpu_level level, stk_profile profile, stk_alpha_rule alpha)
{
    char path[1024];
    unsigned width_px, height_px, orientation;
    image_test t;
    image_test_open_as(&t, profile, 16, STK_PIXELS_UINT8, level);
    while (fscanf(list, "%1023s %u %u %u", path, &width_px, &height_px, &orientation) == 4) {
        uint8_t *const bytes = image_test_read(path, &t.bytes);
        stk_image_info info;
        CHECK_OK(stk_image_probe(&info, &t.reason, t.bytes, t.bytes.size_bytes, &t.limits, &t.err), t.err);
        uint8_t *const rgb = malloc((size_t)width_px * height_px * 3);
        CHECK_OK(stk_image_rgb(rgb, t.spec, t.scratch, t.bytes, &info, (uint8_t)orientation, alpha, width_px,
                               height_px, &t.reason, &t.err),
                 t.err);
        fwrite(rgb, 3, (size_t)width_px * height_px, stdout);
        free(rgb);
        free(bytes);
    }
    image_test_close(&t);
    return 0;
}

static int run_patches(FILE *list, stk_pixel_form form, uint32_t patch_px, uint64_t min_px, uint64_t max_px)
{
    char path[1024];
    image_test t;
    image_test_open(&t, patch_px, form, stk_cpu_detect());
    while (fscanf(list, "%1023s", path) == 1) {
        uint8_t *const bytes = image_test_read(path, &t.bytes);
        const stk_status status = image_test_make(&t, min_px, max_px);
        if (status < 0) {
            printf("%s error %d %s\n", path, (int)status, t.err.message);
        } else {
            printf("%s %u %u %u %016llx\n", path, t.width_px, t.height_px, t.info.orientation,
                   (unsigned long long)XXH3_64bits(t.patches, t.patches_bytes));
        }
        free(bytes);
    }
    image_test_close(&t);
    return 0;
}

int main(int argc, char **argv)
{
    FILE *const list = argc > 2 ? fopen(argv[2], "r") : NULL;
    if (list && strcmp(argv[1], "rgb") == 0) 
        return run_rgb(list, level_of(argc > 3 ? argv[3] : NULL), (stk_profile)(argc > 4 ? atoi(argv[4]) : 0),
                       (stk_alpha_rule)(argc > 5 ? atoi(argv[5]) : 0));
    if (list && strcmp(argv[1], "patches") == 0 && argc > 6) {
        const stk_pixel_form form = argv[3][0] == 'u'   ? STK_PIXELS_UINT8
                                    : argv[3][0] == 'f' ? STK_PIXELS_FLOAT32
                                                        : STK_PIXELS_BFLOAT16;
        return run_patches(list, form, (uint32_t)atoi(argv[4]), strtoull(argv[5], NULL, 10),
                           strtoull(argv[6], NULL, 10));
    }
    fprintf(stderr, "usage: see the head of image_tool.c\n");
    return 2;
}
