/* proof_set.h - data sets that a proof makes for itself: JPEGs of a given size, and a configuration over them. */
#ifndef STK_PROOF_SET_H
#define STK_PROOF_SET_H

#include "test.h"

#include <jpeglib.h>
#include <stoker/stoker.h>

/* A 4:2:0 baseline JPEG of smooth noise. */
static inline void proof_jpeg(const char *path, int width, int height, unsigned seed)
{
    FILE *const file = fopen(path, "wb");
    CHECK(file != NULL);
    struct jpeg_compress_struct c;
    struct jpeg_error_mgr error;
    c.err = jpeg_std_error(&error);
    jpeg_create_compress(&c);
    jpeg_stdio_dest(&c, file);
    c.image_width = (JDIMENSION)width;
    c.image_height = (JDIMENSION)height;
    c.input_components = 3;
    c.in_color_space = JCS_RGB;
    jpeg_set_defaults(&c);
    jpeg_set_quality(&c, 80, TRUE);
    jpeg_start_compress(&c, TRUE);
    unsigned char *const row = malloc((size_t)width * 3);
    JSAMPROW rows[1] = {row};
    for (int y = 0; y < height; y++) {
        for (int x = 0; x < width * 3; x++)
            row[x] = (unsigned char)(128 + (x / 3 * 5 + y * 3 + (int)seed * 17) % 97 - 48 + (x / 37 + y / 29 + (int)seed) % 5 * 9);
        jpeg_write_scanlines(&c, rows, 1);
    }
    free(row);
    jpeg_finish_compress(&c);
    jpeg_destroy_compress(&c);
    fclose(file);
}

/* Write text to FOLDER/NAME. */
static inline void proof_file(const char *folder, const char *name, const char *text)
{
    char path[600];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *const file = fopen(path, "wb");
    CHECK(file != NULL);
    CHECK(fputs(text, file) >= 0);
    CHECK(fclose(file) == 0);
}

/* FOLDER/run.yaml: the sample checkpoint, a declared turn format, FOLDER/set.jsonl, and what `more` adds. */
static inline void proof_config(const char *folder, const char *more)
{
    char text[4096];
    snprintf(text, sizeof text,
             "model: %s/../examples/sample/model\n"
             "template:\n"
             "  system: {before: \"<|im_start|>system\\n\", after: \"<|im_end|>\\n\"}\n"
             "  user: {before: \"<|im_start|>user\\n\", after: \"<|im_end|>\\n\"}\n"
             "  assistant: {before: \"<|im_start|>assistant\\n\", after: \"<|im_end|>\\n\", train: [text, \"<|im_end|>\\n\"]}\n"
             "  image: \"<|vision_start|><|image_pad|><|vision_end|>\"\n"
             "data:\n  - {name: set, path: set.jsonl}\n%s",
             test_source_folder(), more);
    proof_file(folder, "run.yaml", text);
}

/* Records of one image each, img-K.jpg for K = i % images, and every fourth record text only. */
static inline void proof_manifest(const char *folder, int records, int images)
{
    char *const text = malloc((size_t)records * 300 + 1);
    char *at = text;
    for (int i = 0; i < records; i++) {
        if (images && (images >= records || i % 4 != 3))
            at += sprintf(at, "{\"id\": %d, \"image\": \"img-%d.jpg\", \"conversations\": [{\"from\": \"human\", \"value\": "
                              "\"<image>What is picture %d?\"}, {\"from\": \"gpt\", \"value\": \"It is picture %d.\"}]}\n",
                          i, i % images, i, i);
        else
            at += sprintf(at, "{\"id\": %d, \"conversations\": [{\"from\": \"human\", \"value\": \"What is %d plus one?\"}, "
                              "{\"from\": \"gpt\", \"value\": \"It is %d.\"}]}\n",
                          i, i, i + 1);
    }
    proof_file(folder, "set.jsonl", text);
    free(text);
}

static inline void proof_options(stk_options *options, const char *folder)
{
    stk_error err;
    char path[600];
    snprintf(path, sizeof path, "%s/run.yaml", folder);
    *options = (stk_options)STK_OPTIONS_INIT;
    CHECK_OK(stk_options_read(options, path, &err), err);
}

/* Run to the end and fold the digests of all micro-batches into *digest.  The number of micro-batches, or a status. */
static inline long proof_run(const stk_options *options, uint8_t digest[16], stk_metrics *metrics, stk_error *err)
{
    stk_loader *loader = NULL;
    memset(digest, 0, 16);
    stk_status status = stk_loader_open(&loader, options, 0, 1, err);
    if (status < 0) {
        CHECK(loader == NULL);
        return status;
    }
    long count = 0;
    stk_batch *batch = NULL;
    while ((status = stk_loader_next(loader, &batch, STK_FOREVER, err)) == STK_OK) {
        uint8_t one[16];
        stk_batch_digest(batch, one);
        for (int i = 0; i < 16; i++) digest[i] = (uint8_t)(digest[i] * 31 + one[i]);
        stk_batch_release(&batch);
        count++;
    }
    CHECK(batch == NULL);
    if (metrics) stk_loader_metrics(loader, metrics);
    stk_loader_close(&loader);
    CHECK(loader == NULL);
    return status == STK_END ? count : status;
}

#endif
