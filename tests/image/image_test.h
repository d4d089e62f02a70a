/* image_test.h - what the tests of the image module share: one picture through all of it. */
#ifndef STK_IMAGE_TEST_H
#define STK_IMAGE_TEST_H

#include "test.h"

#include "image/image.h"
#include "schema/derive.h"

typedef struct image_test {
    stk_image_spec *spec;
    stk_image_scratch *scratch;
    stk_limits limits;
    stk_model model;
    stk_profile profile;
    stk_alpha_rule alpha; /* of image_test_make; may be set between pictures, */
    bool ignore_orientation; /* this too */
    stk_bytes bytes;
    stk_image_info info;
    uint32_t width_px, height_px; /* of the target */
    void *patches;
    size_t patches_bytes, capacity_bytes;
    stk_reason reason;
    stk_error err;
} image_test;

/* Patches of 14 go with CLIP's numbers, all others with 0.5. */
static inline stk_model image_test_model(uint32_t patch_px)
{
    stk_model model = {.patch_px = patch_px,
                       .merge = 2,
                       .temporal = 2,
                       .image_mean = {0.5, 0.5, 0.5},
                       .image_std = {0.5, 0.5, 0.5}};
    if (patch_px != 14) return model;
    const double mean[3] = {0.48145466, 0.4578275, 0.40821073},
                 deviation[3] = {0.26862954, 0.26130258, 0.27577711};
    memcpy(model.image_mean, mean, sizeof mean);
    memcpy(model.image_std, deviation, sizeof deviation);
    return model;
}

static inline void image_test_open_as(image_test *t, stk_profile profile, uint32_t patch_px, stk_pixel_form form,
                                      stk_cpu_level level)
{
    memset(t, 0, sizeof *t);
    t->profile = profile;
    t->limits = STK_LIMITS_DEFAULT;
    t->model = image_test_model(patch_px);
    CHECK_OK(stk_image_spec_create(&t->spec, &t->model, profile, form, &t->limits, level, &t->err), t->err);
    CHECK_OK(stk_image_scratch_create(&t->scratch, t->spec, &t->err), t->err);
}

static inline void image_test_open(image_test *t, uint32_t patch_px, stk_pixel_form form, stk_cpu_level level)
{
    image_test_open_as(t, STK_PROFILE_HF, patch_px, form, level);
}

static inline void image_test_close(image_test *t)
{
    stk_image_scratch_destroy(t->scratch);
    stk_image_spec_destroy(t->spec);
    stk_free(t->patches);
}

/* A whole file in memory that ends where the file ends, so that the address sanitizer sees what reads behind
 * it. Free with free. */
static inline uint8_t *image_test_read(const char *path, stk_bytes *bytes)
{
    FILE *const file = fopen(path, "rb");
    CHECK_MSG(file != NULL, "%s", path);
    fseek(file, 0, SEEK_END);
    const size_t size_bytes = (size_t)ftell(file);
    rewind(file);
    uint8_t *const data = malloc(size_bytes ? size_bytes : 1);
    CHECK(fread(data, 1, size_bytes, file) == size_bytes);
    fclose(file);
    *bytes = (stk_bytes){data, size_bytes};
    return data;
}

/* Probe t->bytes and make the patches; the outcome of the first call that fails. */
static inline stk_status image_test_make(image_test *t, uint64_t min_px, uint64_t max_px)
{
    const uint32_t factor = t->model.patch_px * t->model.merge;
    stk_status status =
        stk_image_probe(&t->info, &t->reason, t->bytes, t->bytes.size_bytes, &t->limits, &t->err);
    if (status != STK_OK) return status;
    const stk_media_facts facts = {.format = (uint8_t)t->info.format, .orientation = t->info.orientation};
    const stk_pixel_rules rules = {.ignore_orientation = t->ignore_orientation};
    t->info.orientation = stk_media_orientation(&facts, &rules);
    const bool swaps = stk_orientation_swaps(t->info.orientation);
    status = stk_image_target(&t->width_px, &t->height_px, &t->reason,
                              swaps ? t->info.height_px : t->info.width_px,
                              swaps ? t->info.width_px : t->info.height_px, factor, min_px, max_px, t->profile, &t->err);
    if (status != STK_OK) return status;
    const uint32_t side = t->model.patch_px;
    t->patches_bytes = (size_t)(t->width_px / side) * (t->height_px / side) * stk_image_patch_bytes(t->spec);
    if (t->capacity_bytes < t->patches_bytes) {
        stk_free(t->patches);
        t->patches = stk_alloc(STK_TAG_BATCH, t->patches_bytes);
        CHECK(t->patches != NULL);
        t->capacity_bytes = t->patches_bytes;
    }
    memset(t->patches, 0xa5, t->patches_bytes);
    return stk_image_patches(t->patches, t->spec, t->scratch, t->bytes, &t->info, t->info.orientation, t->alpha,
                             t->width_px, t->height_px, NULL, &t->reason, &t->err);
}

#endif
