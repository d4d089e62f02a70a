/* image.h - from the bytes of a still image to the patches of its place in a batch.
 *
 * A codec hands over rows as they are decoded, the resize consumes them as they come, and each finished row
 * of the target goes straight to its patches.  There is no whole-image buffer of ours (spec-qwen3vl.md
 * section 1). */
#ifndef STK_IMAGE_IMAGE_H
#define STK_IMAGE_IMAGE_H

#include "base/cpu.h"
#include "base/memory.h"
#include "schema/facts.h"
#include "schema/model.h"
#include "schema/rules.h"

/* What the header says. */
typedef struct stk_image_info {
    stk_media_format format;
    uint32_t width_px, height_px; /* as stored */
    uint8_t orientation;          /* 1..8; 1 where the file says nothing or nonsense */
    uint32_t flags;               /* STK_MEDIA_HAS_ALPHA, _GREY16, _ANIMATED, _WHOLE, _CMYK */
    bool whole; /* the library decodes it into a whole picture first (progressive, interlaced, ...) */
    uint64_t codec_bytes; /* an upper bound of what the library allocates; 0 (made from facts): not known */
} stk_image_info;

/* Read the header of bytes, which may be only the first part of a file of total_bytes.
 * STK_OK     *info is filled.
 * STK_AGAIN  the header goes on behind what was given: call again with more (never when all bytes are there).
 * < 0        STK_ERR_MEDIA (broken, truncated, not an image), _LIMIT, _UNSUPPORTED; *reason says which. */
stk_status stk_image_probe(stk_image_info *info, stk_reason *reason, stk_bytes bytes, uint64_t total_bytes,
                           const stk_limits *limits, stk_error *err) STK_MUST_USE;

/* The size rule ("smart resize", spec section 1.3): from the upright size to the target's.  Failure:
 * STK_ERR_MEDIA with *reason STK_REASON_RATIO, or a target of over limits. */
stk_status stk_image_target(uint32_t *target_width_px, uint32_t *target_height_px, stk_reason *reason,
                            uint32_t width_px, uint32_t height_px, uint32_t factor, uint64_t min_px,
                            uint64_t max_px, stk_profile profile, stk_error *err) STK_MUST_USE;

/* The upright size of a stored size under an orientation: 5..8 swap the sides. */
static inline bool stk_orientation_swaps(uint8_t orientation)
{
    return orientation >= 5;
}

/* Everything that is the same for all images of a run: kernels, the tables of normalisation.  Const after
 * create. */
typedef struct stk_image_spec stk_image_spec;

/* profile: whose resize and normalisation (spec section 0.1).  form: what the patches hold.  level: which
 * kernels (cpu.h). */
stk_status stk_image_spec_create(stk_image_spec **out, const stk_model *model, stk_profile profile,
                                 stk_pixel_form form, const stk_limits *limits, stk_cpu_level level,
                                 stk_error *err) STK_MUST_USE;
void stk_image_spec_destroy(stk_image_spec *spec);

/* The final value of each byte of a channel, in float32 (spec sections 1.5 and 1.6). */
void stk_image_values(const stk_image_spec *spec, float value[3][256]);

/* Bytes of one patch: uint8 3*P*P, float32 3*Tp*P*P*4, bfloat16 3*Tp*P*P*2. */
size_t stk_image_patch_bytes(const stk_image_spec *spec);

/* A worker's own: codec handles, row rings, weight tables.  One thread at a time; kept from image to image,
 * when it holds not more than STK_IMAGE_SCRATCH_KEPT_BYTES. */
enum { STK_IMAGE_SCRATCH_KEPT_BYTES = 4 * 1024 * 1024 + 64 * 1024 };
typedef struct stk_image_scratch stk_image_scratch;
stk_status stk_image_scratch_create(stk_image_scratch **out, const stk_image_spec *spec,
                                    stk_error *err) STK_MUST_USE;
void stk_image_scratch_destroy(stk_image_scratch *scratch);

/* An upper bound, from the header alone, of what decoding and resizing this image allocates beside its bytes
 * and its patches, in our scratch and inside the libraries: charged to the budget before the work starts.
 * info may be made from facts (format, size, orientation, whole; codec_bytes 0): then it is the worst of the
 * format, and of all formats when that is not known either (a size that the record stated). */
size_t stk_image_work_bytes(const stk_image_info *info, uint32_t target_width_px, uint32_t target_height_px);

/* And of any image that the size rule takes (sides of a ratio of at most 200), of at most media_px pixels, whose target has at most target_px
 * pixels and sides that are multiples of factor: what must be charged when nothing else is known. */
size_t stk_image_work_most(uint64_t media_px, uint32_t factor, uint64_t target_px);

/* Where the time of stk_image_patches went, and what it moved; added to, never reset. */
typedef struct stk_image_times {
    stk_ns decode_ns, transform_ns;
} stk_image_times;

/* Decode, orient, resize to the target and write the patches (grid order of spec section 1.7).
 *
 * patches    room for (target_height/P) * (target_width/P) patches, 64-byte aligned; each byte is written
 * once. orientation 1..8: what to apply (1 when the rules say to ignore it). bytes      readable up to
 * STK_PAD_BYTES past their end. times      may be NULL. Failure: STK_ERR_MEDIA and kin, *reason says which;
 * the patches are then undefined (mask them with stk_image_grey). */
stk_status stk_image_patches(void *patches, const stk_image_spec *spec, stk_image_scratch *scratch,
                             stk_bytes bytes, const stk_image_info *info, uint8_t orientation, stk_alpha_rule alpha,
                             uint32_t target_width_px, uint32_t target_height_px, stk_image_times *times,
                             stk_reason *reason, stk_error *err) STK_MUST_USE;

/* Decode, orient and resize to plain RGB rows (target_height * target_width * 3 bytes), as the model sees it:
 * for `stoker show` and the index's verify. */
stk_status stk_image_rgb(uint8_t *rgb, const stk_image_spec *spec, stk_image_scratch *scratch,
                         stk_bytes bytes, const stk_image_info *info, uint8_t orientation, stk_alpha_rule alpha,
                         uint32_t target_width_px, uint32_t target_height_px, stk_reason *reason,
                         stk_error *err) STK_MUST_USE;

/* The patches of a masked image: byte 128 in the form of the spec. */
void stk_image_grey(void *patches, const stk_image_spec *spec, uint64_t patch_count);

#endif
