/* test_image_faults.c - bytes that are no picture, half a picture, too large a picture or an odd one. */
#include "image_test.h"

#include "base/fault.h"

#include <malloc.h>

#include <zlib.h>

static image_test t;

static void setup(void)
{
    image_test_close(&t);
    image_test_open(&t, 16, STK_PIXELS_UINT8, stk_cpu_detect());
}

/* A golden's bytes in memory that a test may change; freed by the next one. */
static uint8_t *golden_bytes;
static size_t golden_size;

static uint8_t *take_golden(const char *name)
{
    char path[600];
    snprintf(path, sizeof path, "%s/image/golden/%s", test_source_folder(), name);
    free(golden_bytes);
    golden_bytes = image_test_read(path, &t.bytes);
    golden_size = t.bytes.size_bytes;
    return golden_bytes;
}

static void give(const void *data, size_t size)
{
    t.bytes = (stk_bytes){data, size};
}

static void expect(stk_status status, stk_reason reason, const char *words)
{
    memset(&t.err, 0, sizeof t.err);
    const stk_status found = image_test_make(&t, 784, 50176);
    CHECK_MSG(found == status, "%s: status %d, not %d: %s", words, (int)found, (int)status, t.err.message);
    CHECK_MSG(t.reason == reason, "%s: reason %s", words, stk_reason_text(t.reason));
    if (status < 0) CHECK_HAS(t.err.message, words);
}

static void what_is_no_picture_is_shown(void)
{
    setup();
    static const char html[] = "<!DOCTYPE html>\n<html><body>404</body></html>";
    static const char xml[] = "<?xml version=\"1.0\"?><Error><Code>AccessDenied</Code></Error>";
    give(html, sizeof html - 1);
    expect(STK_ERR_MEDIA, STK_REASON_NOT_IMAGE, "<!DOCTYPE html>\\x0a");
    give(xml, sizeof xml - 1);
    expect(STK_ERR_MEDIA, STK_REASON_NOT_IMAGE, "<?xml version=\\x22");
    give("\xff", 1);
    expect(STK_ERR_MEDIA, STK_REASON_NOT_IMAGE, "\\xff");
    give("BMW was here, and more", 22);
    expect(STK_ERR_MEDIA, STK_REASON_NOT_IMAGE, "BMW");
    give("", 0);
    expect(STK_ERR_MEDIA, STK_REASON_EMPTY, "empty");
}

static void known_formats_that_are_not_read_are_named(void)
{
    setup();
    static const struct {
        const char *bytes, *name;
    } file[] = {
        {"MM\0\x2b\0\x08\0\0........", "big-endian BigTIFF"},
        {"\0\0\0\x1c"
         "ftypavif........",
         "AVIF"},
        {"\0\0\0\x1c"
         "ftypheic........",
         "HEIC"},
        {"\xff\x0a..................", "JPEG XL"},
    };
    for (size_t i = 0; i < sizeof file / sizeof *file; i++) {
        give(file[i].bytes, 20);
        expect(STK_ERR_MEDIA_UNSUPPORTED, STK_REASON_UNSUPPORTED, file[i].name);
    }
}

/* No half picture trains in silence. */
static void a_cut_file_is_truncated(void)
{
    setup();
    static const char *const name[] = {
        "jpeg-420.jpg",    "jpeg-progressive.jpg", "jpeg-grey.jpg",          "jpeg-restart.jpg",
        "jpeg-cmyk.jpg",   "png-2-8.png",          "png-2-8-interlaced.png", "png-3-4.png",
        "webp-lossy.webp", "webp-lossless.webp",   "webp-alpha.webp",        "webp-animated.webp"};
    for (size_t i = 0; i < sizeof name / sizeof *name; i++) {
        take_golden(name[i]);
        const size_t whole = golden_size;
        for (size_t size = 20; size + 57 <= whole; size += 1 + whole / 50) {
            give(golden_bytes, size);
            expect(STK_ERR_MEDIA, STK_REASON_BROKEN, "");
            CHECK(t.err.message[0]);
        }
        give(golden_bytes, whole - 57);
        expect(STK_ERR_MEDIA, STK_REASON_BROKEN, "runcated");
        give(golden_bytes, whole); /* the scratch is as good as new */
        expect(STK_OK, STK_REASON_NONE, name[i]);
    }
    take_golden("jpeg-420.jpg"); /* the end marker alone: as Pillow */
    give(golden_bytes, golden_size - 2);
    expect(STK_ERR_MEDIA, STK_REASON_BROKEN, "truncated JPEG");
}

static void sizes_over_the_limit_are_refused_from_the_header(void)
{
    setup();
    uint8_t png[1024] = "\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR";
    for (int at = 16; at <= 20; at += 4) memcpy(png + at, "\0\x0c\x03\xca", 4); /* 787402 */
    memcpy(png + 24, "\x08\x02\0\0\0", 5);
    const uLong sum = crc32(0, png + 12, 17);
    for (int i = 0; i < 4; i++) png[29 + i] = (uint8_t)(sum >> (24 - 8 * i));
    const uint64_t before = stk_alloc_count();
    give(png, sizeof png);
    expect(STK_ERR_MEDIA_LIMIT, STK_REASON_MEDIA_LIMIT, "787402x787402");
    CHECK_HAS(t.err.message, "178956970");
    CHECK_INT(stk_alloc_count(), before);

    uint8_t *const jpeg = take_golden("jpeg-420.jpg");
    for (size_t at = 2; at + 9 < golden_size; at++) {
        if (jpeg[at] == 0xff && jpeg[at + 1] == 0xc0) {
            memcpy(jpeg + at + 5, "\xff\xdc\xff\xdc", 4); /* 65500x65500 */
            break;
        }
    }
    expect(STK_ERR_MEDIA_LIMIT, STK_REASON_MEDIA_LIMIT, "65500x65500");

    take_golden("webp-lossy.webp");
    t.limits.media_px = 6299; /* it has 90x70 */
    expect(STK_ERR_MEDIA_LIMIT, STK_REASON_MEDIA_LIMIT, "90x70");
    t.limits.media_px = 6300;
    expect(STK_OK, STK_REASON_NONE, "at the limit");
    t.limits.media_bytes = golden_size - 1;
    expect(STK_ERR_MEDIA_LIMIT, STK_REASON_MEDIA_LIMIT, "limits.media_bytes");
}

static void scans_of_a_jpeg_are_counted(void)
{
    setup();
    t.limits.jpeg_scans = 3;
    stk_image_spec_destroy(t.spec);
    CHECK_OK(stk_image_spec_create(&t.spec, &t.model, STK_PROFILE_HF, STK_PIXELS_UINT8, &t.limits, stk_cpu_detect(), &t.err),
             t.err);
    take_golden("jpeg-progressive.jpg");
    expect(STK_ERR_MEDIA_LIMIT, STK_REASON_MEDIA_LIMIT, "more than 3 scans");
    take_golden("jpeg-420.jpg");
    expect(STK_OK, STK_REASON_NONE, "one scan");
}

static uint8_t *frame_header(uint8_t *jpeg)
{
    for (size_t at = 2; at + 9 < golden_size; at++) {
        if (jpeg[at] == 0xff && jpeg[at + 1] == 0xc0) return jpeg + at;
    }
    return NULL;
}

static void rare_processes_are_unsupported(void)
{
    setup();
    for (uint8_t process = 3; process < 16; process++) {
        if (process == 4 || process == 8 || process == 9 || process == 10 || process == 12) continue;
        frame_header(take_golden("jpeg-420.jpg"))[1] = (uint8_t)(0xc0 + process);
        expect(STK_ERR_MEDIA_UNSUPPORTED, STK_REASON_UNSUPPORTED, process == 3 ? "lossless" : "SOF");
    }
    frame_header(take_golden("jpeg-420.jpg"))[4] = 12;
    expect(STK_ERR_MEDIA_UNSUPPORTED, STK_REASON_UNSUPPORTED, "12 bits");
    frame_header(take_golden("jpeg-420.jpg"))[9] = 2;
    expect(STK_ERR_MEDIA_UNSUPPORTED, STK_REASON_UNSUPPORTED, "2 components");
    memset(frame_header(take_golden("jpeg-420.jpg")) + 5, 0, 2);
    expect(STK_ERR_MEDIA, STK_REASON_BROKEN, "x0 pixels");
    frame_header(take_golden("jpeg-420.jpg"))[11] = 0x52;
    expect(STK_ERR_MEDIA, STK_REASON_BROKEN, "sampling");
}

/* The tables of one file never serve another. */
static void a_jpeg_without_tables_does_not_borrow(void)
{
    setup();
    take_golden("jpeg-420.jpg");
    expect(STK_OK, STK_REASON_NONE, "");
    uint8_t *const jpeg = take_golden("jpeg-420.jpg");
    for (size_t at = 2; at + 4 < golden_size && jpeg[at + 1] != 0xda;
         at += 2 + (size_t)(jpeg[at + 2] << 8 | jpeg[at + 3])) {
        if (jpeg[at + 1] == 0xdb) jpeg[at + 1] = 0xfe; /* quantisation becomes a comment */
    }
    expect(STK_ERR_MEDIA, STK_REASON_BROKEN, "uantization");
}

/* 1000 pictures with a damaged entropy segment, each in another place: nothing stays behind. */
static void damage_leaves_no_memory_behind(void)
{
    setup();
    static const char *const name[] = {"jpeg-420.jpg", "jpeg-cmyk.jpg",          "jpeg-progressive.jpg",
                                       "png-6-8.png",  "png-2-8-interlaced.png", "webp-alpha.webp"};
    size_t warm = 0, ours = 0;
    uint32_t state = 1;
    for (int round = 0; round < 1000; round++) {
        uint8_t *const bytes = take_golden(name[round % 6]);
        for (int i = 0; i < 3; i++) {
            state = state * 1664525u + 1013904223u;
            bytes[golden_size / 2 + (state >> 8) % (golden_size / 2)] ^= (uint8_t)(1 + (state & 0x7f));
        }
        (void)image_test_make(&t, 784, 50176); /* an error, or a picture with a scar */
        if (round == 199) {
            warm = mallinfo2().uordblks;
            ours = stk_alloc_bytes(STK_TAG_IMAGE);
        }
    }
    take_golden(name[199 % 6]); /* the same file as then: its own bytes are part of the sum */
    CHECK_INT(stk_alloc_bytes(STK_TAG_IMAGE), ours);
    CHECK_MSG(mallinfo2().uordblks <= warm + 64 * 1024, "%zu bytes, %zu when warm", mallinfo2().uordblks,
              warm);
}

/* --- PNG chunks --- */

static uint8_t built[8 << 20];
static size_t built_size;

static void add_chunk(const char *type, const void *data, size_t size, bool good_sum)
{
    uint8_t *const at = built + built_size;
    CHECK(built_size + size + 12 <= sizeof built);
    for (int i = 0; i < 4; i++) at[i] = (uint8_t)(size >> (24 - 8 * i));
    memcpy(at + 4, type, 4);
    if (size) memcpy(at + 8, data, size);
    const uLong sum = crc32(0, at + 4, (uInt)size + 4) ^ (good_sum ? 0 : 1);
    for (int i = 0; i < 4; i++) at[8 + size + (size_t)i] = (uint8_t)(sum >> (24 - 8 * i));
    built_size += size + 12;
}

/* A 40x40 picture of palette indices with one more chunk before and one behind its pixels. */
static void build_png(const char *type, const void *data, size_t size, bool good_sum, bool good_palette)
{
    static uint8_t rows[40][41];
    uint8_t packed[4096];
    uLongf packed_size = sizeof packed;
    for (size_t y = 0; y < 40; y++) {
        for (size_t x = 0; x < 40; x++) rows[y][x + 1] = (uint8_t)((x ^ y) & 1);
    }
    CHECK(compress(packed, &packed_size, &rows[0][0], sizeof rows) == Z_OK);
    memcpy(built, "\x89PNG\r\n\x1a\n", 8);
    built_size = 8;
    add_chunk("IHDR", "\0\0\0\x28\0\0\0\x28\x08\x03\0\0\0", 13, true);
    add_chunk(type, data, size, good_sum);
    add_chunk("PLTE", "\x10\x20\x30\x40\x50\x60", 6, good_palette);
    add_chunk("IDAT", packed, packed_size, false);
    add_chunk(type, data, size, good_sum);
    add_chunk("IEND", NULL, 0, true);
    give(built, built_size);
}

static size_t deflate_text(uint8_t *out, size_t capacity, const char *key, uint8_t byte, size_t count)
{
    const size_t head = strlen(key) + 2;
    uint8_t *const plain = malloc(count);
    memset(plain, byte, count);
    memcpy(out, key, head - 2);
    out[head - 2] = out[head - 1] = 0;
    uLongf size = capacity - head;
    CHECK(compress(out + head, &size, plain, count) == Z_OK);
    free(plain);
    return head + size;
}

/* What is wrong with an optional chunk changes no pixel and takes no memory. */
static void optional_chunks_cannot_refuse_a_picture(void)
{
    setup();
    static uint8_t big[3 << 20];
    uint8_t packed[8192];
    build_png("teSt", "", 0, true, true);
    expect(STK_OK, STK_REASON_NONE, "");
    uint8_t *const plain = malloc(t.patches_bytes);
    memcpy(plain, t.patches, t.patches_bytes);

    const size_t bomb = deflate_text(packed, sizeof packed, "Raw profile type exif", 'a', 4u << 20);
    const struct {
        const char *type;
        const void *data;
        size_t size;
        bool good_sum;
    } chunk[] = {
        {"tEXt", "Comment\0hello", 13, false},
        {"tEXt", big, sizeof big, true},
        {"zTXt", packed, bomb, true},
        {"zTXt", "Raw profile type exif\0\0rubbish", 30, true},
        {"zTXt", "Raw profile type exif\0\1rubbish", 30, true},
        {"zTXt", "Raw profile type exif\0", 22, true},
        {"tEXt", "Raw profile type exif\0\nexif\n 4\nzz", 34, true},
        {"iTXt", "XML:com.adobe.xmp\0\1\0\0\0rubbish", 29, true},
        {"iTXt", "XML:com.adobe.xmp\0\0", 19, true},
        {"iCCP", packed, bomb, true},
        {"iCCP", "x", 1, true},
        {"gAMA", "\0", 1, true},
        {"cHRM", "", 0, true},
        {"tRNS", big, 300, true},
        {"pHYs", "abc", 3, false},
        {"sPLT", big, 5, true},
        {"eXIf", "II*\0", 4, true},
        {"acTL", "\0\0\0\2", 4, true},
        {"fcTL", "abc", 3, true},
        {"hIST", "abc", 3, true},
    };
    for (size_t i = 0; i < sizeof chunk / sizeof *chunk; i++) {
        build_png(chunk[i].type, chunk[i].data, chunk[i].size, chunk[i].good_sum, true);
        expect(STK_OK, STK_REASON_NONE, chunk[i].type);
        CHECK_INT(t.info.orientation, 1);
        CHECK_MSG(memcmp(plain, t.patches, t.patches_bytes) == 0, "%s %zu", chunk[i].type, i);
    }
    free(plain);
}

static void critical_chunks_must_be_right(void)
{
    setup();
    build_png("teSt", "", 0, true, false);
    expect(STK_ERR_MEDIA, STK_REASON_BROKEN, "palette");
    build_png("teSt", "", 0, true, true);
    built[29] ^= 1; /* the sum of IHDR */
    expect(STK_ERR_MEDIA, STK_REASON_BROKEN, "IHDR");
    build_png("teSt", "", 0, true, true);
    built[24] = 3; /* bits a sample */
    expect(STK_ERR_MEDIA, STK_REASON_BROKEN, "IHDR");
    memcpy(built, "\x89PNG\r\n\x1a\n", 8);
    built_size = 8;
    add_chunk("IHDR", "\0\0\0\x28\0\0\0\x28\x05\x03\0\0\0", 13, true);
    give(built, built_size);
    expect(STK_ERR_MEDIA, STK_REASON_BROKEN, "5 bits");
    built_size = 8;
    add_chunk("IHDR", "\0\0\0\x28\0\0\0\x28\x08\x03\0\0\0", 13, true);
    add_chunk("IEND", "", 0, true);
    give(built, built_size);
    expect(STK_ERR_MEDIA, STK_REASON_BROKEN, "no pixels");

    build_png("teSt", "", 0, true, true);
    uint8_t *const end =
        built + built_size - 12 - 12 - 4; /* IEND, teSt, the sum of IDAT: before it zlib's own */
    end[-1] ^= 1;
    expect(STK_ERR_MEDIA, STK_REASON_BROKEN, "check");
}

static void a_broken_exif_block_does_not_refuse_a_jpeg(void)
{
    setup();
    uint8_t *const jpeg = take_golden("exif-6.jpg");
    for (size_t at = 0; at + 40 < golden_size; at++) {
        if (memcmp(jpeg + at, "Exif\0\0II", 8)) continue;
        jpeg[at + 6] = 'X';
        break;
    }
    expect(STK_OK, STK_REASON_NONE, "");
    CHECK_INT(t.info.orientation, 1);
}

/* --- calls --- */

static void a_picture_that_is_another_one_now_is_reported(void)
{
    setup();
    static const char *const name[] = {"jpeg-420.jpg", "png-2-8.png", "webp-lossy.webp"};
    for (size_t i = 0; i < 3; i++) {
        take_golden(name[i]);
        expect(STK_OK, STK_REASON_NONE, name[i]);
        t.info.height_px++;
        const stk_status status = stk_image_patches(t.patches, t.spec, t.scratch, t.bytes, &t.info, 1, STK_ALPHA_DROP,
                                                    t.width_px, t.height_px, NULL, &t.reason, &t.err);
        CHECK_INT(status, STK_ERR_MEDIA);
        CHECK_INT(t.reason, STK_REASON_CHANGED);
    }
}

static void wrong_calls_are_refused(void)
{
    setup();
    take_golden("jpeg-420.jpg");
    expect(STK_OK, STK_REASON_NONE, "");
    CHECK_INT(
        stk_image_patches(t.patches, t.spec, t.scratch, t.bytes, &t.info, 1, STK_ALPHA_DROP, 48, 32, NULL, &t.reason, &t.err),
        STK_ERR_USAGE);
    CHECK_INT(
        stk_image_patches(t.patches, t.spec, t.scratch, t.bytes, &t.info, 9, STK_ALPHA_DROP, 64, 32, NULL, &t.reason, &t.err),
        STK_ERR_USAGE);
    CHECK_INT(
        stk_image_patches(t.patches, t.spec, t.scratch, t.bytes, &t.info, 1, STK_ALPHA_DROP, 0, 32, NULL, &t.reason, &t.err),
        STK_ERR_USAGE);

    stk_image_spec *spec;
    stk_model model = image_test_model(16);
    model.image_std[1] = 0;
    CHECK_INT(stk_image_spec_create(&spec, &model, STK_PROFILE_HF, STK_PIXELS_UINT8, &t.limits, STK_CPU_NONE, &t.err),
              STK_ERR_MODEL);
    CHECK(spec == NULL);
    model = image_test_model(0);
    CHECK_INT(stk_image_spec_create(&spec, &model, STK_PROFILE_HF, STK_PIXELS_UINT8, &t.limits, STK_CPU_NONE, &t.err),
              STK_ERR_MODEL);
    uint32_t w, h;
    CHECK_INT(stk_image_target(&w, &h, &t.reason, 1, 201, 32, 65536, 16777216, STK_PROFILE_HF, &t.err), STK_ERR_MEDIA);
    CHECK_INT(t.reason, STK_REASON_RATIO);
    stk_image_spec_destroy(NULL);
    stk_image_scratch_destroy(NULL);
}

/* A masked image: byte 128 in each form. */
static void grey_patches_hold_128(void)
{
    static const struct {
        stk_pixel_form form;
        uint32_t bits, bytes;
    } expected[] = {
        {STK_PIXELS_UINT8, 128, 1}, {STK_PIXELS_FLOAT32, 0x3b808081, 4}, {STK_PIXELS_BFLOAT16, 0x3b81, 2}};
    for (size_t i = 0; i < 3; i++) {
        image_test g;
        image_test_open(&g, 16, expected[i].form, stk_cpu_detect());
        const size_t size = 3 * stk_image_patch_bytes(g.spec);
        uint8_t *const patches = stk_alloc(STK_TAG_BATCH, size);
        CHECK(patches != NULL);
        stk_image_grey(patches, g.spec, 3);
        for (size_t at = 0; at < size; at += expected[i].bytes)
            CHECK(memcmp(patches + at, &expected[i].bits, expected[i].bytes) == 0);
        stk_free(patches);
        image_test_close(&g);
    }
}

/* Each allocation of ours fails in turn: out of memory is said, nothing is lost, and the next picture is
 * fine. */
static void every_allocation_may_fail(void)
{
#ifdef STK_FAULTS
    static const char *const name[] = {"exif-shrink-5.jpg", "png-2-8-interlaced.png",
                                       "png-orient-profile-z.png", "png-orient-xmp-z.png",
                                       "webp-animated-part.webp"};
    for (size_t i = 0; i < sizeof name / sizeof *name; i++) {
        setup();
        take_golden(name[i]);
        expect(STK_OK, STK_REASON_NONE, name[i]); /* the patches have their memory */
        uint8_t *const right = malloc(t.patches_bytes);
        memcpy(right, t.patches, t.patches_bytes);
        unsigned long nth = 1;
        for (;; nth++) {
            stk_image_scratch_destroy(t.scratch);
            stk_fault_set(STK_FAULT_ALLOC, nth, false);
            stk_status status = stk_image_scratch_create(&t.scratch, t.spec, &t.err);
            if (status == STK_OK) status = image_test_make(&t, 784, i == 0 ? 12544 : 50176);
            stk_fault_set(STK_FAULT_ALLOC, 0, false);
            if (status == STK_OK) break;
            CHECK_MSG(status == STK_ERR_NOMEM, "%s, allocation %lu: %s", name[i], nth, t.err.message);
            CHECK_INT(t.reason, STK_REASON_NONE);
        }
        CHECK_MSG(nth > 2, "%s: %lu allocations", name[i], nth);
        expect(STK_OK, STK_REASON_NONE, name[i]);
        CHECK(memcmp(right, t.patches, t.patches_bytes) == 0);
        free(right);
    }
    stk_image_spec *spec;
    stk_fault_set(STK_FAULT_ALLOC, 1, false);
    CHECK_INT(stk_image_spec_create(&spec, &t.model, STK_PROFILE_HF, STK_PIXELS_UINT8, &t.limits, STK_CPU_NONE, &t.err),
              STK_ERR_NOMEM);
    stk_fault_set(STK_FAULT_ALLOC, 0, false);
    CHECK(spec == NULL);
#endif
}

static void times_are_added_to(void)
{
    setup();
    take_golden("size-shrink-9x.jpg");
    expect(STK_OK, STK_REASON_NONE, "");
    stk_image_times times = {.decode_ns = STK_S, .transform_ns = 2 * STK_S};
    CHECK_OK(stk_image_patches(t.patches, t.spec, t.scratch, t.bytes, &t.info, 1, STK_ALPHA_DROP, t.width_px, t.height_px,
                               &times, &t.reason, &t.err),
             t.err);
    CHECK(times.decode_ns > STK_S && times.transform_ns > 2 * STK_S);
}

int main(int argc, char **argv)
{
    image_test_open(&t, 16, STK_PIXELS_UINT8, stk_cpu_detect());
    const test_entry entries[] = {
        TEST(what_is_no_picture_is_shown),
        TEST(known_formats_that_are_not_read_are_named),
        TEST(a_cut_file_is_truncated),
        TEST(sizes_over_the_limit_are_refused_from_the_header),
        TEST(scans_of_a_jpeg_are_counted),
        TEST(rare_processes_are_unsupported),
        TEST(a_jpeg_without_tables_does_not_borrow),
        TEST(damage_leaves_no_memory_behind),
        TEST(optional_chunks_cannot_refuse_a_picture),
        TEST(critical_chunks_must_be_right),
        TEST(a_broken_exif_block_does_not_refuse_a_jpeg),
        TEST(a_picture_that_is_another_one_now_is_reported),
        TEST(wrong_calls_are_refused),
        TEST(grey_patches_hold_128),
        TEST(every_allocation_may_fail),
        TEST(times_are_added_to),
    };
    const int status = test_run(entries, sizeof entries / sizeof *entries, argc, argv);
    image_test_close(&t);
    free(golden_bytes);
    return status;
}
