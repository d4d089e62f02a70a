/* tiff_rows.c - samples of a TIFF to grey or RGB, as Pillow's unpackers and convert("RGB") make them
 * (spec-qwen3vl.md section 1.2). */
#include "image/tiff_rows.h"

/* A row of samples under way. */
typedef struct row {
    const stk_tiff_converter *c;
    const uint8_t *const *plane;
    uint8_t *out;
    size_t width_px;
} row;

uint32_t stk_tiff_channels(const stk_tiff_head *head)
{
    switch (head->form) {
    case STK_TIFF_PALETTE:
    case STK_TIFF_RGB:
    case STK_TIFF_CMYK:
    case STK_TIFF_YCBCR: return 3;
    default: return 1;
    }
}

/* Sample number s of pixel x, of 8 or 16 bits: the byte that counts. */
static uint8_t high_byte(const row *r, size_t x, uint32_t s)
{
    const stk_tiff_head *const h = r->c->head;
    const size_t at = h->apart ? x : x * h->samples + s;
    const uint8_t *const plane = r->plane[h->apart ? s : 0];
    return h->bits == 8 ? plane[at] : plane[2 * at + (r->c->low_first ? 1 : 0)];
}

/* Sample number x of 1, 2, 4 or 8 bits, the first in the highest ones. */
static uint32_t small_sample(const row *r, size_t x)
{
    const uint32_t bits = r->c->head->bits;
    const size_t at = x * bits;
    return r->plane[0][at / 8] >> (8 - bits - at % 8) & ((1u << bits) - 1);
}

static uint32_t wide_sample(const row *r, size_t x, size_t size_bytes)
{
    const uint8_t *const p = r->plane[0] + x * size_bytes;
    uint32_t n = 0;
    for (size_t i = 0; i < size_bytes; i++) n = n << 8 | p[r->c->low_first ? size_bytes - 1 - i : i];
    return n;
}

static uint8_t saturated(int32_t value)
{
    return (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value);
}

static uint8_t on_white(const row *r, uint8_t value, uint8_t alpha)
{
    return r->c->on_white ? stk_on_white(value, alpha) : value;
}

/* --- one channel --- */

static void grey(const row *r)
{
    const stk_tiff_head *const h = r->c->head;
    const uint32_t invert = h->inverted ? 255 : 0;
    if (h->bits < 8) {
        const uint32_t scale = 255 / ((1u << h->bits) - 1);
        for (size_t x = 0; x < r->width_px; x++) r->out[x] = (uint8_t)(small_sample(r, x) * scale ^ invert);
    } else if (h->alpha == STK_TIFF_ALPHA) {
        for (size_t x = 0; x < r->width_px; x++)
            r->out[x] = on_white(r, r->plane[0][2 * x], r->plane[0][2 * x + 1]);
    } else {
        for (size_t x = 0; x < r->width_px; x++) r->out[x] = (uint8_t)(high_byte(r, x, 0) ^ invert);
    }
}

static void grey12(const row *r)
{
    for (size_t x = 0; x < r->width_px; x++) {
        const uint8_t *const p = r->plane[0] + x / 2 * 3;
        r->out[x] = saturated(x % 2 ? (p[1] & 15) << 8 | p[2] : p[0] << 4 | p[1] >> 4);
    }
}

static void grey_wide(const row *r)
{
    const stk_tiff_form form = r->c->head->form;
    for (size_t x = 0; x < r->width_px; x++) {
        const uint32_t n = wide_sample(r, x, form == STK_TIFF_SIGNED32 ? 4 : 2);
        r->out[x] = saturated(form == STK_TIFF_SIGNED16 ? (int16_t)n : (int32_t)n);
    }
}

/* Towards zero; what is no number is 0. */
static void grey_float(const row *r)
{
    for (size_t x = 0; x < r->width_px; x++) {
        const uint32_t bits = wide_sample(r, x, 4);
        float f;
        memcpy(&f, &bits, sizeof f);
        r->out[x] = (uint8_t)(f >= 255.0f ? 255 : f > 0.0f ? (int)f : 0);
    }
}

/* --- three --- */

static void palette(const row *r)
{
    const stk_tiff_head *const h = r->c->head;
    for (size_t x = 0; x < r->width_px; x++) {
        const uint8_t *const rgb = r->c->palette[h->bits < 8 ? small_sample(r, x) : high_byte(r, x, 0)];
        const uint8_t alpha = h->alpha == STK_TIFF_ALPHA ? high_byte(r, x, 1) : 255;
        for (size_t ch = 0; ch < 3; ch++) r->out[3 * x + ch] = on_white(r, rgb[ch], alpha);
    }
}

static void rgb(const row *r)
{
    const stk_tiff_head *const h = r->c->head;
    if (h->bits == 8 && h->samples == 3 && !h->apart) {
        memcpy(r->out, r->plane[0], 3 * r->width_px);
        return;
    }
    for (size_t x = 0; x < r->width_px; x++) {
        for (uint32_t ch = 0; ch < 3; ch++) r->out[3 * x + ch] = high_byte(r, x, ch);
    }
}

static void rgb_alpha(const row *r)
{
    const bool premultiplied = r->c->head->alpha == STK_TIFF_PREMULTIPLIED;
    for (size_t x = 0; x < r->width_px; x++) {
        const uint8_t alpha = high_byte(r, x, 3);
        for (uint32_t ch = 0; ch < 3; ch++) {
            int32_t value = high_byte(r, x, ch);
            if (premultiplied) value = alpha ? saturated(value * 255 / alpha) : 0;
            r->out[3 * x + ch] = on_white(r, (uint8_t)value, alpha);
        }
    }
}

static void cmyk(const row *r)
{
    for (size_t x = 0; x < r->width_px; x++) {
        const int32_t light = 255 - high_byte(r, x, 3);
        for (uint32_t ch = 0; ch < 3; ch++) {
            const int32_t product = high_byte(r, x, ch) * light + 128;
            r->out[3 * x + ch] = saturated(light - (((product >> 8) + product) >> 8));
        }
    }
}

/* Pillow's tables hold this, cut towards zero: factor * 64 * (chroma - 128) + 1/2. */
static int32_t chroma_part(int32_t factor_100000, uint8_t chroma)
{
    return (factor_100000 * 64 * (chroma - 128) + 50000) / 100000;
}

static void ycbcr(const row *r)
{
    for (size_t x = 0; x < r->width_px; x++) {
        const uint8_t *const p = r->plane[0] + 3 * x;
        uint8_t *const out = r->out + 3 * x;
        out[0] = saturated(p[0] + (chroma_part(140200, p[2]) >> 6));
        out[1] = saturated(p[0] + ((chroma_part(-34414, p[1]) + chroma_part(-71414, p[2])) >> 6));
        out[2] = saturated(p[0] + (chroma_part(177200, p[1]) >> 6));
    }
}

void stk_tiff_convert(const stk_tiff_converter *converter, uint8_t *out, const uint8_t *const plane[4])
{
    const stk_tiff_head *const h = converter->head;
    const row r = {.c = converter, .plane = plane, .out = out, .width_px = h->width_px};
    switch (h->form) {
    case STK_TIFF_GREY: grey(&r); break;
    case STK_TIFF_GREY12: grey12(&r); break;
    case STK_TIFF_GREY16:
    case STK_TIFF_SIGNED16:
    case STK_TIFF_SIGNED32: grey_wide(&r); break;
    case STK_TIFF_FLOAT: grey_float(&r); break;
    case STK_TIFF_PALETTE: palette(&r); break;
    case STK_TIFF_RGB: (h->alpha == STK_TIFF_OPAQUE ? rgb : rgb_alpha)(&r); break;
    case STK_TIFF_CMYK: cmyk(&r); break;
    case STK_TIFF_YCBCR: ycbcr(&r); break;
    }
}
