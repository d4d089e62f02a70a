/* test_views.c - what stands on the same plan and the same making as a run: counts, one sample, media inside
 * records. */
#include <stoker/sample.h>

#include "tiny_set.h"

static char folder[300];
static stk_options options;

static void setup(void)
{
    if (!folder[0]) tiny_folder(folder, "views");
    stk_options_deinit(&options);
    proof_options(&options, folder);
}

static void the_counts_of_a_plan_are_those_of_its_run(void)
{
    setup();
    static tiny_run run;
    options.micro_batch = 1;
    for (uint32_t world = 1; world <= 3; world++) {
        stk_plan_counts counts;
        stk_error err;
        CHECK_OK(stk_plan_count(&counts, &options, world, &err), err);
        tiny_run_from(&run, &options, world, NULL);
        CHECK_INT(counts.steps, 13);
        CHECK_INT(counts.epoch_rows, TINY_RECORDS);
        CHECK_INT(counts.samples, run.metrics.samples);
        CHECK_INT(counts.tokens, run.metrics.tokens);
        CHECK_INT(counts.supervised_tokens, run.metrics.supervised_tokens);
        CHECK_INT(counts.images, run.metrics.images);
        CHECK_INT(counts.filler_rows, run.metrics.filler);
        CHECK_INT(counts.filler_rows, world == 3 ? 13 * 2 : 0);
        CHECK(counts.largest_micro_bytes > 0 && counts.largest_micro_bytes <= run.metrics.arena_bytes);
        CHECK_STR(counts.fingerprint, run.state[0].fingerprint.whole);
    }
}

/* A patch row of pixel_bytes: 3 planes of P x P; pixel (x, y) of an image is in patch (grid order of spec
 * section 1.7). */
static uint8_t pixel_of(const stk_view *pixels, size_t first_patch, const int64_t grid[3], int64_t side,
                        int64_t y, int64_t x, int c)
{
    const int64_t merge = 2, h = y / side, w = x / side;
    const int64_t block = (h / merge) * (grid[2] / merge) + w / merge,
                  inside = (h % merge) * merge + w % merge;
    const size_t patch = first_patch + (size_t)(block * merge * merge + inside);
    return ((const uint8_t *)pixels->data)[patch * (size_t)pixels->shape[1] +
                                           (size_t)(c * side * side + (y % side) * side + x % side)];
}

static void compare_image(const stk_sample_image *image, const stk_view *pixels, size_t first_patch)
{
    CHECK_MSG(image->rgb != NULL, "%s", image->fault);
    const int64_t side = image->width_px / image->grid[2];
    CHECK_INT(pixels->shape[1], 3 * side * side);
    for (int64_t y = 0; y < image->height_px; y++)
        for (int64_t x = 0; x < image->width_px; x++)
            for (int c = 0; c < 3; c++)
                CHECK_INT(image->rgb[(y * image->width_px + x) * 3 + c],
                          pixel_of(pixels, first_patch, image->grid, side, y, x, c));
}

/* `stoker show` shows what the model gets. */
static void a_sample_is_shown_as_it_stands_in_its_batch(void)
{
    setup();
    stk_error err;
    stk_batch *batch = NULL;
    CHECK_OK(stk_replay(&batch, &options, 2, 0, 1, 0, NULL, &err), err);
    const stk_view ids = stk_batch_field(batch, "input_ids"), labels = stk_batch_field(batch, "labels");
    const stk_view types = stk_batch_field(batch, "mm_token_type_ids"),
                   positions = stk_batch_field(batch, "position_ids");
    const stk_view pixels = stk_batch_field(batch, "pixel_bytes");
    const int64_t length = ids.shape[1], plane = ids.shape[0] * length;
    size_t patch = 0, images = 0;
    for (size_t i = 0; i < stk_batch_sample_count(batch); i++) {
        stk_batch_sample sample;
        stk_sample_view *view = NULL;
        stk_sample_info info;
        stk_batch_sample_at(batch, i, &sample);
        CHECK_OK(stk_sample_open(&view, &options, sample.id, NULL, &err), err);
        stk_sample_info_get(view, &info);
        CHECK_STR(info.id, sample.id);
        CHECK_INT(info.line, sample.line);
        CHECK_INT(info.token_count, sample.tokens);
        const size_t at = i * (size_t)length, bytes = info.token_count * sizeof(int64_t);
        CHECK(memcmp(info.input_ids, (const int64_t *)ids.data + at, bytes) == 0);
        CHECK(memcmp(info.labels, (const int64_t *)labels.data + at, bytes) == 0);
        CHECK(memcmp(info.mm_token_type_ids, (const int64_t *)types.data + at, bytes) == 0);
        for (int p = 0; p < 3; p++)
            CHECK(memcmp(info.position_ids + (size_t)p * info.token_count,
                         (const int64_t *)positions.data + p * plane + (int64_t)at, bytes) == 0);
        for (size_t k = 0; k < info.image_count; k++) {
            stk_sample_image image;
            stk_sample_image_at(view, k, &image);
            compare_image(&image, &pixels, patch);
            patch += (size_t)(image.grid[1] * image.grid[2]);
            images++;
        }
        stk_sample_close(&view);
        CHECK(view == NULL);
    }
    CHECK(images > 0);
    CHECK_INT(patch, pixels.shape[0]);
    stk_batch_release(&batch);
}

static void a_sample_that_is_not_there_is_named(void)
{
    setup();
    stk_sample_view *view = NULL;
    stk_error err;
    CHECK(stk_sample_open(&view, &options, "set/999", NULL, &err) < 0);
    CHECK(view == NULL);
    CHECK_HAS(err.message, "set/999");
    CHECK(stk_sample_open(&view, &options, "other/1", NULL, &err) < 0);
    CHECK_HAS(err.message, "other/1");
    CHECK_OK(stk_sample_open(&view, &options, "set#4", NULL, &err), err);
    stk_sample_info info;
    stk_sample_info_get(view, &info);
    CHECK_STR(info.id, "set/3");
    stk_sample_close(&view);
}

/* The same conversation as other software takes it: a text where it is one, parts where there are media. */
static void a_sample_has_its_messages(void)
{
    setup();
    stk_sample_view *view = NULL;
    stk_sample_info info;
    stk_error err;
    CHECK_OK(stk_sample_open(&view, &options, "set#4", NULL, &err), err);
    stk_sample_info_get(view, &info);
    CHECK_STR(info.messages, "{\"messages\":[{\"role\":\"user\",\"content\":\"What is 3 plus one?\"},{\"role\":\"assistant\",\"content\":\"It is 4.\"},"
                             "{\"role\":\"user\",\"content\":\"Sure?\"},{\"role\":\"assistant\",\"content\":\"Quite.\"}]}");
    CHECK(info.record_bytes > 0 && info.record[0] == '{');
    stk_sample_close(&view);
    CHECK_OK(stk_sample_open(&view, &options, "set#1", NULL, &err), err);
    stk_sample_info_get(view, &info);
    CHECK(info.image_count > 0);
    CHECK_HAS(info.messages, "\"content\":[{\"type\":\"image\",\"image\":\"/");
    stk_sample_close(&view);
}

/* --- media in records --- */

static size_t write_base64(char *to, const uint8_t *from, size_t size)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    char *at = to;
    for (size_t i = 0; i < size; i += 3) {
        const uint32_t b = (uint32_t)from[i] << 16 | (i + 1 < size ? (uint32_t)from[i + 1] << 8 : 0) |
                           (i + 2 < size ? from[i + 2] : 0u);
        *at++ = digits[b >> 18];
        *at++ = digits[b >> 12 & 63];
        *at++ = i + 1 < size ? digits[b >> 6 & 63] : '=';
        *at++ = i + 2 < size ? digits[b & 63] : '=';
    }
    *at = 0;
    return (size_t)(at - to);
}

/* A set of records with one picture each, given as JSON values of `image`. */
static void one_picture_set(char path[300], const char *name, const char *const *image, int count)
{
    static char manifest[1 << 20];
    char command[700], file[600];
    snprintf(path, 300, "%s/%s", test_folder(), name);
    snprintf(command, sizeof command, "mkdir -p '%s'", path);
    CHECK(system(command) == 0);
    snprintf(file, sizeof file, "%s/img.jpg", path);
    proof_jpeg(file, 180, 150, 5);
    char *at = manifest;
    for (int i = 0; i < count; i++)
        at += sprintf(at,
                      "{\"id\": %d, \"image\": %s, \"conversations\": [{\"from\": \"human\", \"value\": "
                      "\"<image>What is this?\"}, "
                      "{\"from\": \"gpt\", \"value\": \"A picture.\"}]}\n",
                      i, image[i]);
    proof_file(path, "set.jsonl", manifest);
    proof_config(path, TINY_OPTIONS "shuffle: false\n");
}

static void a_picture_may_stand_in_its_record(void)
{
    static char uri[1 << 18];
    static uint8_t bytes[1 << 16];
    char path[300], file[600];
    const char *images[] = {"\"img.jpg\"", uri, "\"img.jpg\"", uri};
    one_picture_set(path, "uri", images, 1); /* to make the picture */
    snprintf(file, sizeof file, "%s/img.jpg", path);
    FILE *const f = fopen(file, "rb");
    CHECK(f != NULL);
    const size_t size = fread(bytes, 1, sizeof bytes, f);
    fclose(f);
    char *at = uri + sprintf(uri, "\"data:image/jpeg;base64,");
    at += write_base64(at, bytes, size);
    strcpy(at, "\"");
    one_picture_set(path, "uri", images, 4);
    stk_options_deinit(&options);
    proof_options(&options, path);
    stk_error err;
    stk_batch *batch = NULL;
    CHECK_OK(stk_replay(&batch, &options, 0, 0, 1, 0, NULL, &err), err);
    const stk_view pixels = stk_batch_field(batch, "pixel_bytes");
    const size_t each = pixels.size_bytes / 4;
    for (size_t i = 1; i < 4; i++)
        CHECK(memcmp(pixels.data, (const uint8_t *)pixels.data + i * each, each) == 0);
    for (size_t i = 0; i < 4; i++) {
        stk_batch_sample sample;
        stk_batch_sample_at(batch, i, &sample);
        CHECK_MSG(!sample.masked, "%s", sample.reason);
    }
    stk_batch_release(&batch);
}

/* A stated size saves reading the header; one that is wrong is found when the picture is. */
static void a_stated_size_is_held_against_the_picture(void)
{
    char path[300];
    const char *images[] = {"\"img.jpg\"", "{\"path\": \"img.jpg\", \"width\": 180, \"height\": 150}",
                            "{\"path\": \"img.jpg\", \"width\": 180, \"height\": 140}"};
    one_picture_set(path, "stated", images, 3);
    stk_options_deinit(&options);
    proof_options(&options, path);
    stk_error err;
    stk_batch *batch = NULL;
    CHECK_OK(stk_replay(&batch, &options, 0, 0, 1, 0, NULL, &err), err);
    const stk_view pixels = stk_batch_field(batch, "pixel_bytes");
    const stk_view grids = stk_batch_field(batch, "image_grid_thw");
    const int64_t *const grid = grids.data;
    const size_t each = (size_t)(grid[0] * grid[1] * grid[2] * pixels.shape[1]);
    CHECK(memcmp(grid, grid + 3, 3 * sizeof *grid) == 0);
    CHECK(memcmp(pixels.data, (const uint8_t *)pixels.data + each, each) == 0);
    for (size_t i = 0; i < 3; i++) {
        stk_batch_sample sample;
        stk_batch_sample_at(batch, i, &sample);
        CHECK_INT(sample.masked, i == 2);
    }
    stk_batch_release(&batch);
}

int main(int argc, char **argv)
{
    TEST_MAIN(argc, argv, TEST(the_counts_of_a_plan_are_those_of_its_run),
              TEST(a_sample_is_shown_as_it_stands_in_its_batch), TEST(a_sample_that_is_not_there_is_named), TEST(a_sample_has_its_messages),
              TEST(a_picture_may_stand_in_its_record), TEST(a_stated_size_is_held_against_the_picture));
}
