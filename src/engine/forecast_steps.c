/* forecast_steps.c - steps claimed by threads a few at a time, the largest of each number kept; the file they are kept in. */
#include "engine/forecast_steps.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <xxhash.h>

#include "base/file.h"
#include "base/parallel.h"
#include "engine/forecast.h"

enum {
    CLAIM_ROWS = 8192, /* about so many rows a claim: two windows of the default, of which one is computed twice */
    FILE_BYTES_MAX = 4096,
};

/* Numbers of a forecast that come from recipes, as the file names them. */
#define NUMBER_MAP(X) X(slot_bytes) X(object_bytes) X(ticket_bytes) X(fetch_bytes) X(work_bytes) X(record_bytes) X(maker_bytes) X(row_count) X(media_count)

/* --- steps --- */

typedef struct walk {
    const stk_run *run;
    stk_engine_ranks ranks;
    uint64_t end_step, claim_steps;
    stk_watch *watch;
    atomic_uint_fast64_t next;
    pthread_mutex_t lock; /* guards the rest */
    stk_forecast largest;
    stk_status status;
    uint64_t failed_step;
    stk_error error;
} walk;

static void keep_largest(stk_forecast *to, const stk_forecast *from)
{
#define KEEP(name) if (from->name > to->name) to->name = from->name;
    NUMBER_MAP(KEEP)
#undef KEEP
}

/* All steps before a failed one have been claimed already, and are gone through to their end: the lowest failure is the first. */
static void fail_walk(walk *w, uint64_t step, stk_status status, const stk_error *error)
{
    pthread_mutex_lock(&w->lock);
    if (w->status == STK_OK || step < w->failed_step) {
        w->status = status;
        w->failed_step = step;
        w->error = *error;
    }
    pthread_mutex_unlock(&w->lock);
    atomic_store(&w->next, w->end_step);
}

static stk_status add_step(stk_forecast *forecast, const walk *w, uint64_t step, stk_plan_scratch *scratch, stk_pool *pool, stk_error *err)
{
    const stk_plan *const plan = w->run->plan;
    const uint32_t micros = stk_plan_micro_count(plan, step, w->ranks.world);
    for (uint32_t i = 0; i < w->ranks.rank_count; i++)
        for (uint32_t micro = 0; micro < micros; micro++) {
            stk_recipe recipe;
            stk_slot_layout layout;
            stk_pool_reset(pool);
            STK_TRY(stk_plan_recipe(plan, scratch, step, stk_engine_rank(&w->ranks, i), w->ranks.world, micro, pool, &recipe, err));
            STK_TRY(stk_slot_layout_init(&layout, &recipe, &w->run->form, err));
            stk_forecast_add(forecast, w->run, &recipe, NULL, &layout);
        }
    return STK_OK;
}

static void walk_steps(void *context)
{
    walk *const w = context;
    stk_plan_scratch *scratch;
    stk_forecast largest = {0};
    stk_error error;
    stk_pool pool;
    stk_pool_init(&pool, STK_TAG_PLAN);
    uint64_t step = 0;
    stk_status status = stk_plan_scratch_create(&scratch, w->run->plan, &error);
    for (uint64_t first; status == STK_OK && (first = atomic_fetch_add(&w->next, w->claim_steps)) < w->end_step;) {
        for (step = first; status == STK_OK && step < first + w->claim_steps && step < w->end_step; step++)
            status = add_step(&largest, w, step, scratch, &pool, &error);
        if (!stk_watch_goes_on(w->watch, "plan", "memory", first, w->end_step)) break;
    }
    if (status < 0) fail_walk(w, step, status, &error);
    stk_plan_scratch_destroy(scratch);
    stk_pool_deinit(&pool);
    pthread_mutex_lock(&w->lock);
    keep_largest(&w->largest, &largest);
    pthread_mutex_unlock(&w->lock);
}

stk_status stk_forecast_steps(stk_forecast *forecast, const stk_run *run, stk_engine_ranks ranks, uint64_t first_step, uint64_t end_step,
                              uint32_t threads, stk_watch *watch, stk_error *err)
{
    *forecast = (stk_forecast){0};
    walk w = {.run = run, .ranks = ranks, .end_step = end_step, .next = first_step, .watch = watch};
    uint64_t most = 1;
    for (uint32_t i = 0; i < run->rules->batch_count; i++)
        if (run->rules->batch[i].batch > most) most = run->rules->batch[i].batch;
    w.claim_steps = most < CLAIM_ROWS ? CLAIM_ROWS / most : 1;
    const uint64_t claims = (end_step - first_step) / w.claim_steps + 1;
    pthread_mutex_init(&w.lock, NULL);
    stk_parallel(threads < claims ? threads : (uint32_t)claims, walk_steps, &w);
    pthread_mutex_destroy(&w.lock);
    STK_TRY(stk_watch_status(watch, err));
    if (w.status < 0) {
        if (err) *err = w.error;
        return w.status;
    }
    *forecast = w.largest;
    return STK_OK;
}

/* --- the file --- */

/* What the numbers follow from: the stream, how steps are cut, the form of the fields, and how large our own objects are. */
static void find_key(char key[33], const stk_run *run, uint32_t world)
{
    XXH3_state_t *const state = XXH3_createState();
    const uint64_t numbers[] = {world, run->form.layout, run->form.targets, run->form.positions, run->form.pixels, sizeof(stk_unit),
                                sizeof(stk_batch_note), sizeof(stk_recipe_sample), sizeof(stk_request), sizeof(stk_recipe_media)};
    key[0] = 0;
    if (!state) return;
    XXH3_128bits_reset(state);
    XXH3_128bits_update(state, STK_VERSION, sizeof STK_VERSION);
    XXH3_128bits_update(state, run->fingerprint.whole, sizeof run->fingerprint.whole);
    XXH3_128bits_update(state, numbers, sizeof numbers);
    for (uint32_t i = 0; i < run->rules->batch_count; i++) {
        const uint64_t rows = stk_plan_micro_rows(run->plan, run->rules->batch[i].first_step, world);
        XXH3_128bits_update(state, &rows, sizeof rows);
    }
    const XXH128_hash_t digest = XXH3_128bits_digest(state);
    snprintf(key, 33, "%016" PRIx64 "%016" PRIx64, (uint64_t)digest.high64, (uint64_t)digest.low64);
    XXH3_freeState(state);
}

static size_t write_text(char text[FILE_BYTES_MAX], const stk_forecast *forecast, const char *key)
{
    int size = snprintf(text, FILE_BYTES_MAX, "stoker-forecast 1\nkey %s\n", key);
#define LINE(name) size += snprintf(text + size, (size_t)(FILE_BYTES_MAX - size), #name " %" PRIu64 "\n", (uint64_t)forecast->name);
    NUMBER_MAP(LINE)
#undef LINE
    const uint64_t sum = XXH3_64bits(text, (size_t)size);
    size += snprintf(text + size, (size_t)(FILE_BYTES_MAX - size), "checksum %016" PRIx64 "\n", sum);
    return (size_t)size;
}

/* The number of a line, and the text behind it; NULL: it is no such line. */
static const char *read_line(const char *at, const char *name, uint64_t *number)
{
    const size_t length = strlen(name);
    if (strncmp(at, name, length) != 0 || at[length] != ' ') return NULL;
    at += length + 1;
    *number = 0;
    for (; *at >= '0' && *at <= '9'; at++)
        if (__builtin_mul_overflow(*number, (uint64_t)10, number) || __builtin_add_overflow(*number, (uint64_t)(*at - '0'), number)) return NULL;
    return *at == '\n' ? at + 1 : NULL;
}

/* A file is good when its numbers, written again under this key, are the file. */
static bool read_file(stk_forecast *forecast, const char *path, const char *key)
{
    char again[FILE_BYTES_MAX], *text;
    size_t size;
    stk_forecast read = {0};
    if (stk_file_read(&text, &size, path, FILE_BYTES_MAX, STK_TAG_ENGINE, NULL) < 0) return false;
    const char *at = strstr(text, "slot_bytes ");
    uint64_t number;
#define READ(name)                                                                                                               \
    if (at && (at = read_line(at, #name, &number))) {                                                                            \
        read.name = (__typeof__(read.name))number;                                                                               \
    }
    NUMBER_MAP(READ)
#undef READ
    const bool good = at && write_text(again, &read, key) == size && memcmp(again, text, size) == 0;
    stk_free(text);
    if (good) *forecast = read;
    return good;
}

stk_status stk_forecast_run(stk_forecast *forecast, const stk_run *run, uint32_t world, const char *file, uint32_t threads, stk_watch *watch, stk_error *err)
{
    char key[33] = "", text[FILE_BYTES_MAX];
    if (file) find_key(key, run, world);
    if (key[0] && read_file(forecast, file, key)) return STK_OK;
    STK_TRY(stk_forecast_steps(forecast, run, (stk_engine_ranks){.rank_count = world, .world = world}, 0, stk_plan_step_count(run->plan), threads, watch, err));
    /* One that cannot be saved costs time, not a run. */
    if (key[0]) (void)!stk_file_save(file, text, write_text(text, forecast, key), NULL);
    return STK_OK;
}
