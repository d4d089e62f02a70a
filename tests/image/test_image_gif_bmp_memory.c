/* test_image_gif_bmp_memory.c - what a GIF or BMP takes stays within what is charged for it, and the kinds
 * whose rows come in order never become a whole picture.
 *
 * malloc and its kin are interposed. */
#include "image_test.h"
#include "malloc_count.h"

static void put16(uint8_t *at, size_t value)
{
    at[0] = (uint8_t)value;
    at[1] = (uint8_t)(value >> 8);
}

static uint8_t *begin_bmp(uint8_t *out, size_t width_px, size_t height_px, int bits, int compression)
{
    memcpy(out, "BM", 2);
    out[14] = 40;
    put16(out + 18, width_px);
    put16(out + 22, height_px);
    out[26] = 1;
    out[28] = (uint8_t)bits;
    out[30] = (uint8_t)compression;
    const size_t colors = bits == 8 ? 256 : 0;
    for (size_t i = 0; i < colors * 4; i++) out[54 + i] = (uint8_t)(i * 7);
    put16(out + 10, 54 + colors * 4);
    return out + 54 + colors * 4;
}

static uint8_t *make_bmp(size_t width_px, size_t height_px, int bits, int compression, size_t *size)
{
    const size_t row_bytes = (width_px * (size_t)bits / 8 + 3) & ~(size_t)3;
    uint8_t *const out = calloc(1, 2048 + height_px * (row_bytes + 64));
    uint8_t *at = begin_bmp(out, width_px, height_px, bits, compression);
    for (size_t y = 0; y < height_px; y++) {
        if (!compression) {
            for (size_t i = 0; i < row_bytes; i++) at[i] = (uint8_t)(i * y / 7);
            at += row_bytes;
            continue;
        }
        for (size_t left = width_px; left;) {
            const size_t run = left < 255 ? left : 255;
            *at++ = (uint8_t)run;
            *at++ = (uint8_t)(y + left);
            left -= run;
        }
        at += 2;
    }
    *size = (size_t)(at - out);
    return out;
}

/* Codes of nine bits, with a clear code before they would grow. */
static uint8_t *make_gif(size_t width_px, size_t height_px, bool interlaced, size_t *size)
{
    const size_t px = width_px * height_px;
    uint8_t *const out = calloc(1, 4096 + px * 5 / 4);
    uint8_t *at = out, piece[255];
    memcpy(at, "GIF89a", 6);
    put16(at + 6, width_px);
    put16(at + 8, height_px);
    at[10] = 0x87;
    for (size_t i = 0; i < 768; i++) at[13 + i] = (uint8_t)(i * 5);
    at += 13 + 768;
    *at = ',';
    put16(at + 5, width_px);
    put16(at + 7, height_px);
    at[9] = interlaced ? 0x40 : 0;
    at[10] = 8;
    at += 11;
    uint32_t bits = 0, bit_count = 0;
    size_t filled = 0;
    for (size_t i = 0, codes = 0; i < px; codes++) {
        bits |= (codes % 200 ? (uint32_t)(i++ * 3 / 2 & 255) : 256u) << bit_count;
        for (bit_count += 9; bit_count >= 8 || (i == px && bit_count);
             bit_count -= bit_count < 8 ? bit_count : 8) {
            piece[filled++] = (uint8_t)bits;
            bits >>= 8;
            if (filled < sizeof piece && i < px) continue;
            *at++ = (uint8_t)filled;
            memcpy(at, piece, filled);
            at += filled;
            filled = 0;
        }
    }
    *++at = ';';
    *size = (size_t)(at + 1 - out);
    return out;
}

/* With a fresh scratch: the peak above what was there before, against the charge.  Frees data; returns the
 * peak. */
static size_t check_charge(const char *what, uint8_t *data, size_t size, bool whole)
{
    image_test t;
    image_test_open(&t, 16, STK_PIXELS_UINT8, stk_cpu_detect());
    t.bytes = (stk_bytes){data, size};
    CHECK_OK(image_test_make(&t, 784, 65536), t.err); /* and the patches are there */
    CHECK_MSG(t.info.whole == whole, "%s", what);
    stk_image_scratch_destroy(t.scratch);
    CHECK_OK(stk_image_scratch_create(&t.scratch, t.spec, &t.err), t.err);
    const size_t charged = stk_image_work_bytes(&t.info, t.width_px, t.height_px), before = live_bytes;
    stk_image_info facts = t.info;
    facts.codec_bytes = 0;
    const size_t by_facts = stk_image_work_bytes(&facts, t.width_px, t.height_px);
    size_t used = 0;
    for (int round = 0; round < 2; round++) {
        peak_bytes = live_bytes;
        CHECK_OK(stk_image_patches(t.patches, t.spec, t.scratch, t.bytes, &t.info, 1, STK_ALPHA_DROP,
                                   t.width_px, t.height_px, NULL, &t.reason, &t.err),
                 t.err);
        used = peak_bytes - before;
        CHECK_MSG(used <= charged, "%s uses %zu bytes, charged %zu", what, used, charged);
        CHECK_MSG(used <= by_facts, "%s uses %zu bytes, charged %zu by its facts", what, used, by_facts);
        CHECK_MSG(live_bytes - before <= STK_IMAGE_SCRATCH_KEPT_BYTES, "%s keeps %zu bytes", what,
                  live_bytes - before);
    }
    image_test_close(&t);
    free(data);
    return used;
}

static void none_takes_more_than_it_is_charged(void)
{
    enum { WIDTH_PX = 2100, HEIGHT_PX = 1500, PX = WIDTH_PX * HEIGHT_PX };
    size_t size;
    uint8_t *data = make_bmp(WIDTH_PX, HEIGHT_PX, 24, 0, &size);
    CHECK(check_charge("BMP", data, size, false) < PX / 4);
    data = make_bmp(WIDTH_PX, HEIGHT_PX, 8, 0, &size);
    CHECK(check_charge("BMP with a palette", data, size, false) < PX / 4);
    data = make_bmp(WIDTH_PX, HEIGHT_PX, 8, 1, &size);
    CHECK(check_charge("BMP of runs", data, size, true) >= PX);
    data = make_gif(WIDTH_PX, HEIGHT_PX, false, &size);
    CHECK(check_charge("GIF", data, size, false) < PX / 4);
    data = make_gif(WIDTH_PX, HEIGHT_PX, true, &size);
    CHECK(check_charge("interlaced GIF", data, size, true) >= PX);
}

/* Invariant 10, for the kinds whose rows come in order. */
static void steady_state_allocates_nothing_of_ours(void)
{
    size_t size[2];
    uint8_t *const data[2] = {make_bmp(300, 200, 24, 0, &size[0]), make_gif(200, 300, false, &size[1])};
    image_test t;
    image_test_open(&t, 16, STK_PIXELS_UINT8, stk_cpu_detect());
    uint64_t warm = 0;
    for (int round = 0; round < 20; round++) {
        if (round == 4) warm = stk_alloc_count();
        t.bytes = (stk_bytes){data[round % 2], size[round % 2]};
        CHECK_OK(image_test_make(&t, 65536, 16777216), t.err);
    }
    CHECK_INT(stk_alloc_count(), warm);
    image_test_close(&t);
    for (int i = 0; i < 2; i++) free(data[i]);
}

int main(int argc, char **argv)
{
    TEST_MAIN(argc, argv, TEST(none_takes_more_than_it_is_charged),
              TEST(steady_state_allocates_nothing_of_ours));
}
