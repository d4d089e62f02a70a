/* test_image_kernels.c - weights against the specification's vectors, and each faster kernel against plain C.
 */
#include "image_test.h"

#include "image/kernels.h"

static uint32_t random_state = 1;

static uint32_t random_below(uint32_t bound)
{
    random_state = random_state * 1664525u + 1013904223u;
    return (uint32_t)((uint64_t)(random_state >> 8) * bound >> 24);
}

/* Mostly the ends of the range, where sums clamp. */
static void fill(uint8_t *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++)
        bytes[i] = (uint8_t)(random_below(3) ? random_below(2) * 255 : random_below(256));
}

static void *make_axis(stk_axis *axis, uint32_t source_px, uint32_t target_px, bool mirrored, bool fine)
{
    void *const memory = stk_alloc(STK_TAG_IMAGE, stk_axis_bytes(source_px, target_px, fine));
    CHECK(memory != NULL);
    stk_axis_init(axis, memory, source_px, target_px, mirrored, fine);
    return memory;
}

/* spec-qwen3vl.md section 2.2; zeros at the ends are left out here. */
static void weights_are_those_of_the_specification(void)
{
    static const struct {
        uint32_t source_px, target_px, precision, i, first, count;
        int16_t weight[8];
    } vector[] = {
        {5, 3, 15, 0, 0, 4, {19157, 14620, 0, -1008}},
        {5, 3, 15, 1, 0, 5, {-1219, 8078, 19051, 8078, -1219}},
        {5, 3, 15, 2, 1, 4, {-1008, 0, 14620, 19157}},
        {3, 5, 14, 0, 0, 2, {17621, -1237}},
        {3, 5, 14, 1, 0, 3, {10637, 6480, -734}},
        {3, 5, 14, 2, 1, 1, {16384}},
        {3, 5, 14, 3, 0, 3, {-734, 6480, 10637}},
        {8, 4, 16, 0, 0, 5, {30437, 30437, 7952, -2468, -823}},
        {8, 4, 16, 1, 0, 7, {-2277, 7338, 28087, 28087, 7338, -2277, -759}},
        {8, 4, 16, 2, 1, 7, {-759, -2277, 7338, 28087, 28087, 7338, -2277}},
        {8, 4, 16, 3, 3, 5, {-823, -2468, 7952, 30437, 30437}},
        {4, 8, 14, 0, 0, 2, {17830, -1446}},
        {4, 8, 14, 4, 0, 4, {-384, 3712, 14208, -1152}},
        {4, 8, 14, 7, 2, 2, {-1446, 17830}},
    };
    for (size_t v = 0; v < sizeof vector / sizeof *vector; v++) {
        stk_axis axis;
        void *const memory = make_axis(&axis, vector[v].source_px, vector[v].target_px, false, false);
        CHECK_INT(axis.precision, vector[v].precision);
        CHECK_INT(axis.first[vector[v].i], vector[v].first);
        CHECK_INT(axis.count[vector[v].i], vector[v].count);
        for (uint32_t j = 0; j < vector[v].count; j++) {
            CHECK_INT(axis.weight[vector[v].i * axis.tap_count + j], vector[v].weight[j]);
        }
        stk_free(memory);
    }
}

/* Section 2.4: Pillow's, in 22 bits. */
static void fine_weights_are_those_of_the_specification(void)
{
    static const struct {
        uint32_t source_px, target_px, i, count;
        int32_t weight[8];
    } vector[] = {
        {5, 3, 0, 4, {2452055, 1871305, 0, -129056}},
        {5, 3, 1, 5, {-156067, 1033945, 2438549, 1033945, -156067}},
        {3, 5, 0, 2, {4510855, -316551}},
        {3, 5, 1, 3, {2723168, 1658941, -187805}},
        {3, 5, 2, 1, {4194304}},
        {8, 4, 0, 5, {1947982, 1947982, 508932, -157945, -52648}},
        {8, 4, 1, 7, {-145748, 469632, 1797559, 1797559, 469632, -145748, -48583}},
    };
    for (size_t v = 0; v < sizeof vector / sizeof *vector; v++) {
        stk_axis axis;
        void *const memory = make_axis(&axis, vector[v].source_px, vector[v].target_px, false, true);
        CHECK_INT(axis.precision, 22);
        CHECK_INT(axis.count[vector[v].i], vector[v].count);
        for (uint32_t j = 0; j < vector[v].count; j++) {
            const size_t at = vector[v].i * axis.tap_count + j;
            CHECK_INT(axis.weight[at] * (1 << STK_AXIS_LOW_BITS) + axis.low[at], vector[v].weight[j]);
        }
        stk_free(memory);
    }
}

static void outputs_are_those_of_the_specification(void)
{
    static const uint8_t source[8] = {0, 255, 10, 200, 90, 30, 250, 5};
    static const struct {
        uint32_t source_px, target_px;
        uint8_t expected[8];
    } vector[] = {
        {5, 3, {108, 115, 134}},
        {3, 5, {0, 100, 255, 107, 0}},
        {8, 4, {111, 125, 98, 116}},
        {4, 8, {0, 54, 215, 219, 52, 35, 159, 217}},
    };
    const stk_patch_rule rule = {.form = STK_PIXELS_UINT8, .side_px = 16, .temporal = 2};
    stk_image_kernels k;
    stk_image_kernels_init(&k, &rule, false, STK_CPU_NONE);
    for (size_t v = 0; v < sizeof vector / sizeof *vector; v++) {
        stk_axis axis;
        void *const memory = make_axis(&axis, vector[v].source_px, vector[v].target_px, false, false);
        uint8_t row[128] = {0}, out[128];
        memcpy(row, source, vector[v].source_px);
        uint8_t *const dst[1] = {out};
        const uint8_t *const src[1] = {row};
        k.along(dst, src, 1, &axis);
        CHECK(memcmp(out, vector[v].expected, vector[v].target_px) == 0);
        stk_free(memory);
    }
}

/* A mirrored axis on a turned row gives what the axis gives on the row. */
static void a_mirrored_axis_turns_the_row(void)
{
    const stk_patch_rule rule = {.form = STK_PIXELS_UINT8, .side_px = 16, .temporal = 2};
    stk_image_kernels k;
    stk_image_kernels_init(&k, &rule, false, STK_CPU_NONE);
    for (int round = 0; round < 60; round++) {
        const uint32_t n = 1 + random_below(400), d = 1 + random_below(400);
        stk_axis axis, mirrored;
        void *const a = make_axis(&axis, n, d, false, round % 2), *const b = make_axis(&mirrored, n, d, true, round % 2);
        uint8_t row[512], turned[512], out[512], other[512];
        fill(row, n);
        for (uint32_t i = 0; i < n; i++) turned[i] = row[n - 1 - i];
        uint8_t *const dst[1] = {out}, *const dst_other[1] = {other};
        const uint8_t *const src[1] = {row}, *const src_turned[1] = {turned};
        k.along(dst, src, 1, &axis);
        k.along(dst_other, src_turned, 1, &mirrored);
        CHECK_MSG(memcmp(out, other, d) == 0, "%u to %u", n, d);
        stk_free(a);
        stk_free(b);
    }
}

/* Rows are taken in order: each line's rows are in the window when its last one has come. */
static void the_window_holds_what_a_line_needs(void)
{
    for (int round = 0; round < 200; round++) {
        const uint32_t n = 1 + random_below(3000), d = 1 + random_below(1 + random_below(3000));
        stk_axis axis;
        const bool mirrored = round % 2;
        void *const memory = make_axis(&axis, n, d, mirrored, round % 3 == 0);
        uint32_t rows = 0;
        for (uint32_t i = 0; i < d; i++) {
            const uint32_t line = mirrored ? d - 1 - i : i, end = axis.first[line] + axis.count[line];
            CHECK(end <= n && axis.count[line] >= 1);
            if (end > rows) rows = end;
            CHECK_MSG(rows - axis.first[line] <= axis.window, "%u to %u", n, d);
        }
        /* The bound that work is charged with, before the axis is made. */
        CHECK_MSG(axis.window <= 4 * (n > d ? (n + d - 1) / d : 1) + 4, "%u to %u: %u", n, d, axis.window);
        stk_free(memory);
    }
}

enum { PLANES = 3, ROW_BYTES = 4096 + 2 * STK_PAD_BYTES };
static uint8_t in[40][ROW_BYTES], out_c[PLANES][ROW_BYTES], out_fast[PLANES][ROW_BYTES];

static void compare_along(const stk_image_kernels *c, const stk_image_kernels *fast, uint32_t n, uint32_t d,
                          bool mirrored, bool fine)
{
    stk_axis axis;
    void *const memory = make_axis(&axis, n, d, mirrored, fine);
    const uint8_t *const src[PLANES] = {in[0], in[1], in[2]};
    uint8_t *const dst_c[PLANES] = {out_c[0], out_c[1], out_c[2]}, *const dst_fast[PLANES] = {
                                                                       out_fast[0], out_fast[1], out_fast[2]};
    for (size_t i = 0; i < PLANES; i++) fill(in[i], sizeof in[i]);
    c->along(dst_c, src, PLANES, &axis);
    fast->along(dst_fast, src, PLANES, &axis);
    for (size_t p = 0; p < PLANES; p++)
        CHECK_MSG(memcmp(out_c[p], out_fast[p], d) == 0, "%u to %u%s%s", n, d, mirrored ? " mirrored" : "",
                  fine ? " fine" : "");

    if (axis.count[0] <= 40) {
        const uint8_t *rows[40];
        for (size_t i = 0; i < 40; i++) {
            rows[i] = in[i];
            fill(in[i], 300);
        }
        const uint32_t line = random_below(d), length = 1 + random_below(260);
        if (axis.count[line] <= 40) {
            c->across(out_c[0], rows, &axis, line, length);
            fast->across(out_fast[0], rows, &axis, line, length);
            CHECK_MSG(memcmp(out_c[0], out_fast[0], length) == 0, "across %u to %u, line %u", n, d, line);
        }
    }
    stk_free(memory);
}

static void compare_patches(const stk_image_kernels *c, const stk_image_kernels *fast,
                            const stk_patch_rule *rule)
{
    enum { MOST_BYTES = 3 * 2 * 16 * 16 * 4 };
    uint8_t *const a = stk_alloc(STK_TAG_IMAGE, MOST_BYTES), *const b = stk_alloc(STK_TAG_IMAGE, MOST_BYTES);
    CHECK(a && b);
    /* All values of a byte in each channel. */
    for (size_t p = 0; p < PLANES; p++) {
        for (size_t i = 0; i < ROW_BYTES; i++) in[p][i] = (uint8_t)(i * (p + 1) + i / 256);
    }
    const uint8_t *const plane[PLANES] = {in[0], in[1], in[2]};
    for (size_t stride = 16; stride < 200; stride += 61) {
        c->patch(a, plane, stride, rule);
        fast->patch(b, plane, stride, rule);
        CHECK(memcmp(a, b, MOST_BYTES) == 0);
    }
    stk_free(a);
    stk_free(b);
}

static void compare_level(stk_cpu_level level, bool fine)
{
    for (int form = 0; form < 3; form++) {
        for (uint32_t side = 14; side <= 16; side += 2) {
            const stk_model model = image_test_model(side);
            stk_patch_rule rule = {.form = (stk_pixel_form)form, .side_px = side, .temporal = 2};
            stk_image_kernels c, fast;
            stk_patch_rule_init(&rule, model.image_mean, model.image_std, fine);
            stk_image_kernels_init(&c, &rule, fine, STK_CPU_NONE);
            stk_image_kernels_init(&fast, &rule, fine, level);
            compare_patches(&c, &fast, &rule);
            if (form || side == 14) continue;

            for (int round = 0; round < 400; round++) {
                const uint32_t n = 1 + random_below(1 + random_below(4000)),
                               d = 1 + random_below(1 + random_below(4000));
                compare_along(&c, &fast, n, d, round % 2, fine);
            }
            for (size_t count = 0; count < 200; count++) {
                fill(in[0], 3 * count);
                c.split(out_c[0], out_c[1], out_c[2], in[0], count);
                fast.split(out_fast[0], out_fast[1], out_fast[2], in[0], count);
                for (size_t p = 0; p < PLANES; p++) CHECK(memcmp(out_c[p], out_fast[p], count) == 0);
            }
            fill(in[0], ROW_BYTES);
            for (uint32_t square = 1; square <= 16; square++) {
                c.turn(out_c[0], square, in[0], 70, square);
                fast.turn(out_fast[0], square, in[0], 70, square);
                CHECK(memcmp(out_c[0], out_fast[0], (size_t)square * square) == 0);
            }
        }
    }
}

static void every_level_equals_plain_c(void)
{
    const stk_cpu_level most = stk_cpu_detect();
    if (most == STK_CPU_NONE) {
        const char *const lowered = getenv("STK_CPU");
        if (lowered && strcmp(lowered, "none") == 0)
            return; /* asked for: plain C is all that this run may use */
        test_skip("this CPU has no AVX2");
    }
    for (int level = STK_CPU_AVX2; level <= (int)most; level++) {
        compare_level((stk_cpu_level)level, false);
        compare_level((stk_cpu_level)level, true);
    }
}

/* All 256 values of the reference's table (section 1.5), and the constants of CLIP. */
static void normalisation_is_the_references(void)
{
    static const struct {
        int x;
        uint32_t bits;
    } half[] = {{0, 0xbf800000}, {1, 0xbf7dfdfe}, {127, 0xbb808081}, {128, 0x3b808081}, {255, 0x3f800000}};
    static const uint32_t mean[3] = {0x42f58ab9, 0x42e97df6, 0x42d02ffe},
                          deviation[3] = {0x42890046, 0x428543ab, 0x428ca575};
    stk_patch_rule rule = {.side_px = 16, .temporal = 2};
    stk_model model = image_test_model(16);
    stk_patch_rule_init(&rule, model.image_mean, model.image_std, false);
    for (size_t i = 0; i < sizeof half / sizeof *half; i++) {
        uint32_t bits;
        memcpy(&bits, &rule.f32[1][half[i].x], 4);
        CHECK_INT(bits, half[i].bits);
    }
    model = image_test_model(14);
    stk_patch_rule_init(&rule, model.image_mean, model.image_std, false);
    CHECK(memcmp(rule.mean, mean, sizeof mean) == 0);
    CHECK(memcmp(rule.deviation, deviation, sizeof deviation) == 0);
}

int main(int argc, char **argv)
{
    TEST_MAIN(argc, argv, TEST(weights_are_those_of_the_specification),
              TEST(fine_weights_are_those_of_the_specification), TEST(outputs_are_those_of_the_specification), TEST(a_mirrored_axis_turns_the_row),
              TEST(the_window_holds_what_a_line_needs), TEST(every_level_equals_plain_c),
              TEST(normalisation_is_the_references));
}
