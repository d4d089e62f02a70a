/* image_fault.c - the faults that codecs and the probe find in a picture, as reasons and in words. */
#include <stdarg.h>

#include "image/codec.h"

static stk_status fault(stk_status status, stk_reason why, stk_reason *reason, stk_error *err,
                        const char *format, va_list args)
{
    char text[200];
    vsnprintf(text, sizeof text, format, args);
    *reason = why;
    const stk_status result = stk_fail(err, status, "%s", text);
    stk_error_stage(err, STK_STAGE_DECODE);
    return result;
}

stk_status stk_image_broken(stk_reason *reason, stk_error *err, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const stk_status status = fault(STK_ERR_MEDIA, STK_REASON_BROKEN, reason, err, format, args);
    va_end(args);
    return status;
}

stk_status stk_image_unsupported(stk_reason *reason, stk_error *err, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const stk_status status =
        fault(STK_ERR_MEDIA_UNSUPPORTED, STK_REASON_UNSUPPORTED, reason, err, format, args);
    va_end(args);
    return status;
}

stk_status stk_image_check_px(uint32_t width_px, uint32_t height_px, const stk_limits *limits,
                              stk_reason *reason, stk_error *err)
{
    if ((uint64_t)width_px * height_px <= limits->media_px) return STK_OK;
    *reason = STK_REASON_MEDIA_LIMIT;
    const stk_status status = stk_fail(
        err, STK_ERR_MEDIA_LIMIT,
        "the image has %ux%u pixels, more than the limit of %llu: raise limits.media_pixels or leave it out",
        width_px, height_px, (unsigned long long)limits->media_px);
    stk_error_stage(err, STK_STAGE_DECODE);
    return status;
}

stk_status stk_image_check_same(const stk_image_info *info, uint32_t width_px, uint32_t height_px,
                                stk_reason *reason, stk_error *err)
{
    if (info->width_px == width_px && info->height_px == height_px) return STK_OK;
    *reason = STK_REASON_CHANGED;
    const stk_status status = stk_fail(
        err, STK_ERR_MEDIA, "the image has %ux%u pixels, not %ux%u as before: it changed; index again",
        width_px, height_px, info->width_px, info->height_px);
    stk_error_stage(err, STK_STAGE_DECODE);
    return status;
}
