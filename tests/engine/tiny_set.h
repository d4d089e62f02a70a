/* tiny_set.h - a small data set that the engine's tests make for themselves, and runs over it.
 *
 * 26 records in one data set: one image, two images, several turns, text only; seven pictures that many
 * records name and three ("rare") that one record names each, so that a test can spoil one without touching
 * the others. */
#ifndef STK_TINY_SET_H
#define STK_TINY_SET_H

#include "proof/proof_set.h"

enum { TINY_RECORDS = 26, TINY_IMAGES = 7, TINY_RARE = 3, TINY_BATCH = 4, TINY_MICROS_MAX = 512 };

/* Two epochs of 26 rows in steps of 4: the seventh step has rows of both. */
#define TINY_OPTIONS                                                                                         \
    "batch: 4\nepochs: 2\nseed: 3\nmax_pixels: 16384\nmin_pixels: 4096\nmemory: 192MiB\nworkers: "           \
    "2\ntimeout: 60\n"

static inline void tiny_image_path(char path[600], const char *folder, int image)
{
    snprintf(path, 600, image < TINY_IMAGES ? "%s/img-%d.jpg" : "%s/rare-%d.jpg", folder,
             image < TINY_IMAGES ? image : image - TINY_IMAGES);
}

static inline size_t tiny_record(char *at, int i)
{
    const int image = i % TINY_IMAGES;
    if (i < TINY_RARE)
        return (size_t)sprintf(
            at,
            "{\"id\": \"rare-%d\", \"image\": \"rare-%d.jpg\", \"conversations\": [{\"from\": \"human\", "
            "\"value\": "
            "\"<image>What is rare picture %d?\"}, {\"from\": \"gpt\", \"value\": \"A rare one.\"}]}\n",
            i, i, i);
    if (i % 4 == 3)
        return (size_t)sprintf(at,
                               "{\"id\": %d, \"conversations\": [{\"from\": \"human\", \"value\": \"What is "
                               "%d plus one?\"}, {\"from\": "
                               "\"gpt\", \"value\": \"It is %d.\"}, {\"from\": \"human\", \"value\": "
                               "\"Sure?\"}, {\"from\": \"gpt\", "
                               "\"value\": \"Quite.\"}]}\n",
                               i, i, i + 1);
    if (i % 5 == 0)
        return (size_t)sprintf(at,
                               "{\"id\": %d, \"image\": [\"img-%d.jpg\", \"img-%d.jpg\"], \"conversations\": "
                               "[{\"from\": \"human\", "
                               "\"value\": \"<image> or <image>, which is larger?\"}, {\"from\": \"gpt\", "
                               "\"value\": \"Number %d.\"}]}\n",
                               i, image, (image + 1) % TINY_IMAGES, i);
    return (size_t)sprintf(
        at,
        "{\"id\": %d, \"image\": \"img-%d.jpg\", \"conversations\": [{\"from\": \"human\", \"value\": "
        "\"<image>What is picture %d?\"}, {\"from\": \"gpt\", \"value\": \"It is picture %d.\"}]}\n",
        i, image, i, i);
}

/* Write the set to FOLDER; `more` is added to the configuration. */
static inline void tiny_set(const char *folder, const char *more)
{
    static char manifest[TINY_RECORDS * 400];
    char path[600], options[1024];
    size_t size = 0;
    for (int i = 0; i < TINY_RECORDS; i++) size += tiny_record(manifest + size, i);
    proof_file(folder, "set.jsonl", manifest);
    for (int i = 0; i < TINY_IMAGES + TINY_RARE; i++) {
        tiny_image_path(path, folder, i);
        proof_jpeg(path, 90 + 37 * i, 200 - 11 * i, (unsigned)i);
    }
    snprintf(options, sizeof options, "%s%s", TINY_OPTIONS, more);
    proof_config(folder, options);
}

/* A new folder NAME with the set in it, below this test's temporary folder. */
static inline const char *tiny_folder(char path[300], const char *name)
{
    char command[700];
    snprintf(path, 300, "%s/%s", test_folder(), name);
    snprintf(command, sizeof command, "mkdir '%s'", path);
    CHECK(system(command) == 0);
    tiny_set(path, "");
    return path;
}

/* What a run gave: of each micro-batch in the order step, micro, rank. */
typedef struct tiny_run {
    size_t count;
    stk_status status; /* STK_END, or how it failed */
    stk_error err;
    uint8_t digest[TINY_MICROS_MAX][16];
    stk_state state[TINY_MICROS_MAX];
    stk_metrics metrics;
} tiny_run;

/* Read from an open engine to the end, all ranks in turn. */
static inline void tiny_read(tiny_run *run, stk_engine *engine, uint32_t world)
{
    run->count = 0;
    do {
        stk_batch *batch = NULL;
        run->status = stk_reader_next(stk_engine_reader(engine, (uint32_t)(run->count % world)), &batch,
                                      STK_FOREVER, &run->err);
        if (run->status != STK_OK) {
            CHECK(batch == NULL);
            break;
        }
        CHECK(run->count < TINY_MICROS_MAX);
        stk_batch_digest(batch, run->digest[run->count]);
        stk_batch_state(batch, &run->state[run->count]);
        run->count++;
        stk_batch_release(&batch);
    } while (true);
    stk_engine_metrics(engine, &run->metrics);
}

/* A whole run, or what is left of it behind a state. */
static inline void tiny_run_from(tiny_run *run, const stk_options *options, uint32_t world,
                                 const stk_state *state)
{
    stk_engine *engine = NULL;
    memset(run, 0, sizeof *run);
    CHECK_OK(stk_engine_open(&engine, options, (stk_engine_ranks){0, world, world, NULL}, state, NULL, &run->err),
             run->err);
    tiny_read(run, engine, world);
    stk_engine_close(&engine);
    CHECK(engine == NULL);
}

/* The same micro-batches as calm from `from` on, and the same end. */
static inline void tiny_expect(const tiny_run *run, const tiny_run *calm, size_t from, const char *what)
{
    CHECK_MSG(run->status == calm->status, "%s: status %d: %s", what, (int)run->status, run->err.message);
    CHECK_MSG(run->count == calm->count - from, "%s: %zu micro-batches, not %zu", what, run->count,
              calm->count - from);
    for (size_t i = 0; i < run->count; i++)
        CHECK_MSG(memcmp(run->digest[i], calm->digest[from + i], 16) == 0, "%s: micro-batch %zu differs",
                  what, from + i);
}

#endif
