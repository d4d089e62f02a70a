/* pixel_values.c - what a trainer needs to make the reference's pixel_values of pixel_bytes, by options alone.
 *
 * The values are those which the kernels write under `pixels: float32`. */
#include <stoker/loader.h>
#include <string.h>

#include "engine/model_folder.h"
#include "engine/run_rules.h"
#include "image/image.h"

static stk_status read_values(stk_pixel_values *values, const stk_rules *rules, stk_error *err)
{
    stk_model model;
    stk_image_spec *spec;
    STK_TRY(stk_model_read_images(&model, rules->model_folder, err));
    STK_TRY(stk_image_spec_create(&spec, &model, rules->profile, STK_PIXELS_FLOAT32, &rules->limits, STK_CPU_NONE, err));
    values->temporal = model.temporal;
    stk_image_values(spec, values->value);
    stk_image_spec_destroy(spec);
    return STK_OK;
}

stk_status stk_pixel_values_read(stk_pixel_values *values, const stk_options *options, stk_error *err)
{
    memset(values, 0, sizeof *values);
    stk_rules *rules;
    STK_TRY(stk_rules_make_model(&rules, options, err));
    const stk_status status = read_values(values, rules, err);
    stk_rules_destroy(rules);
    return status;
}
