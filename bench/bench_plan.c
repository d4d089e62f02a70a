/* bench_plan.c - how the plan scales:  bench_plan FOLDER RECORDS [RECORDS ...]   (`ninja bench/bench_plan`; 10 million records take 1.4 GB in FOLDER)
 *
 * Facts of so many records are written to FOLDER as an index holds them, mapped, and planned: packed, shuffled, two data sets by weight, 4,096
 * rows a step over 512 ranks.  Each figure is wall time / CPU time of this process; `anon` is memory that is not the mapped facts.  The files are removed
 * again. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "base/permutation.h"
#include "plan/planner.h"

enum { SETS = 2, BATCH = 4096, WORLD = 512, STEPS = 20, RANKS = 8 };

static const stk_model model = {.patch_px = 16, .merge = 2, .temporal = 2, .min_px = 65536, .max_px = 1 << 24, .max_tokens = 262144,
                                .costs = {.text_square = 327, .text_linear = 1 << 24, .vision_square = 138, .vision_linear = 911275}};

static const char *folder;

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

/* --- facts --- */

static FILE *create(char path[600], const char *name, uint32_t set)
{
    snprintf(path, 600, "%s/bench-plan-%u.%s", folder, set, name);
    FILE *const file = fopen(path, "wb");
    if (!file) fail(path);
    return file;
}

/* Map a file, and let go of its name. */
static const void *map(FILE *file, const char *path, size_t size)
{
    if (fflush(file) || ftruncate(fileno(file), (off_t)(size ? size : 1))) fail(path);
    fclose(file);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) fail(path);
    const void *const data = mmap(NULL, size ? size : 1, PROT_READ, MAP_SHARED, fd, 0);
    if (data == MAP_FAILED) fail(path);
    close(fd);
    unlink(path);
    return data;
}

static void write_item(FILE *file, const void *item, size_t size)
{
    if (fwrite(item, size, 1, file) != 1) fail("write");
}

/* A third text only, the others of one picture to four. */
static stk_set_facts make_facts(uint32_t set, uint64_t records)
{
    static const char *const names[] = {"bench.jsonl"};
    char record_path[600], text_path[600], media_path[600];
    FILE *const record_file = create(record_path, "record", set), *const text_file = create(text_path, "text", set),
               *const media_file = create(media_path, "media", set);
    uint64_t media_count = 0;
    for (uint64_t r = 0; r < records; r++) {
        const uint64_t x = stk_mix64(r * SETS + set);
        const uint32_t images = x % 3 == 0 ? 0 : x % 5 < 2 ? 2 + (uint32_t)(x >> 8 & 3) : 1;
        const uint32_t tokens = 30 + (uint32_t)((x >> 16 & 2047) * (x >> 27 & 2047) >> 11) + images;
        const stk_record_facts record = {.offset = r * 700, .size_bytes = 700, .line = r + 1, .first_media = media_count, .media_count = images};
        const stk_text_facts text = {.token_count = tokens, .supervised_count = tokens / 3 + 1, .reason = x % 1000 == 7 ? STK_REASON_UNTRAINED : 0};
        write_item(record_file, &record, sizeof record);
        write_item(text_file, &text, sizeof text);
        for (uint32_t i = 0; i < images; i++, media_count++) {
            const uint64_t y = stk_mix64(x + i);
            const stk_media_facts media = {.width_px = 400 + (uint32_t)(y & 2047), .height_px = 400 + (uint32_t)(y >> 11 & 2047), .size_bytes = 90000,
                                           .mtime_ns = 1, .orientation = 1};
            write_item(media_file, &media, sizeof media);
        }
    }
    return (stk_set_facts){.record = map(record_file, record_path, records * sizeof(stk_record_facts)),
                           .text = map(text_file, text_path, records * sizeof(stk_text_facts)),
                           .media = map(media_file, media_path, media_count * sizeof(stk_media_facts)),
                           .record_count = records, .media_count = media_count, .file = names, .file_count = 1};
}

static void drop_facts(const stk_set_facts *facts)
{
    munmap((void *)(uintptr_t)facts->record, facts->record_count * sizeof(stk_record_facts));
    munmap((void *)(uintptr_t)facts->text, facts->record_count * sizeof(stk_text_facts));
    munmap((void *)(uintptr_t)facts->media, facts->media_count ? facts->media_count * sizeof(stk_media_facts) : 1);
}

/* --- measuring --- */

typedef struct clocks {
    double wall, cpu;
} clocks;

static double seconds(clockid_t id)
{
    struct timespec t;
    clock_gettime(id, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static clocks now(void)
{
    return (clocks){seconds(CLOCK_MONOTONIC), seconds(CLOCK_PROCESS_CPUTIME_ID)};
}

static clocks since(clocks begin)
{
    const clocks end = now();
    return (clocks){end.wall - begin.wall, end.cpu - begin.cpu};
}

/* A field of /proc/self/smaps_rollup, in MB. */
static double memory(const char *field)
{
    char line[200];
    double kib = 0;
    FILE *const file = fopen("/proc/self/smaps_rollup", "r");
    if (!file) return 0;
    while (fgets(line, sizeof line, file))
        if (strncmp(line, field, strlen(field)) == 0) kib = strtod(line + strlen(field) + 1, NULL);
    fclose(file);
    return kib * 1024 / 1e6;
}

static void check(stk_status status, const stk_error *err)
{
    if (status == STK_OK) return;
    fprintf(stderr, "bench_plan: %s\n", err->message);
    exit(1);
}

static void first_recipe(const stk_plan *plan, stk_pool *pool, uint64_t step)
{
    stk_error err;
    stk_recipe recipe;
    stk_plan_scratch *scratch;
    check(stk_plan_scratch_create(&scratch, plan, &err), &err);
    check(stk_plan_recipe(plan, scratch, step, 0, WORLD, 0, pool, &recipe, &err), &err);
    stk_plan_scratch_destroy(scratch);
}

/* CPU seconds of the rows, the dealing and the recipes of a node's ranks, for a step. */
static double step_cpu(const stk_plan *plan, stk_pool *pool)
{
    stk_error err;
    stk_plan_scratch *scratch;
    check(stk_plan_scratch_create(&scratch, plan, &err), &err);
    const uint64_t steps = stk_plan_step_count(plan), count = steps < STEPS ? steps : STEPS;
    const clocks begin = now();
    for (uint64_t step = 0; step < count; step++)
        for (uint32_t rank = 0; rank < RANKS; rank++) {
            stk_recipe recipe;
            stk_pool_reset(pool);
            check(stk_plan_recipe(plan, scratch, step, rank, WORLD, 0, pool, &recipe, &err), &err);
        }
    const double cpu = since(begin).cpu;
    stk_plan_scratch_destroy(scratch);
    return cpu / (double)count;
}

static void measure(uint64_t records)
{
    static const stk_batch_piece batch = {0, BATCH};
    stk_plan_set set[SETS] = {{.name = "a", .weight = 7}, {.name = "b", .weight = 3}};
    for (uint32_t i = 0; i < SETS; i++) {
        set[i].facts = make_facts(i, i ? records - records / 2 : records / 2);
        set[i].pixels = (stk_pixel_rules){.min_px = 65536, .max_px = 1 << 21};
        set[i].epochs_milli = 1000;
    }
    char table[600];
    snprintf(table, sizeof table, "%s/bench-plan.table", folder);
    unlink(table);
    const stk_plan_config config = {.set = set, .set_count = SETS, .model = &model, .batch = &batch, .batch_count = 1, .epochs = 1, .shuffle = true, .seed = 1,
                                    .layout = STK_LAYOUT_PACKED, .max_tokens = 16384, .pad_multiple = 1, .row_tokens = 16384, .segment_multiple = 1,
                                    .window = 4096, .balance = STK_BALANCE_BOTH, .threads = (uint32_t)sysconf(_SC_NPROCESSORS_ONLN), .table_file = table};
    stk_error err;
    stk_plan *plan;
    stk_pool pool;
    stk_pool_init(&pool, STK_TAG_PLAN);

    clocks begin = now();
    check(stk_plan_create(&plan, &config, &err), &err);
    const clocks without = since(begin);
    const uint64_t rows = stk_plan_row_count(plan);
    stk_plan_destroy(plan);

    const double anonymous = memory("Anonymous:");
    begin = now();
    check(stk_plan_create(&plan, &config, &err), &err);
    const clocks with = since(begin);
    begin = now();
    first_recipe(plan, &pool, stk_plan_step_count(plan) / 2);
    const clocks first = since(begin);
    const double grown = memory("Anonymous:") - anonymous, step = step_cpu(plan, &pool);
    stk_plan_destroy(plan);
    stk_pool_deinit(&pool);
    printf("| %llu | %llu | %.3f / %.3f | %.3f / %.3f | %.3f / %.3f | %.1f | %.1f | %.1f |\n", (unsigned long long)records, (unsigned long long)rows,
           without.wall, without.cpu, with.wall, with.cpu, first.wall, first.cpu, step * 1e3, grown, memory("Anonymous:"));
    fflush(stdout);
    unlink(table);
    for (uint32_t i = 0; i < SETS; i++) drop_facts(&set[i].facts);
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        fprintf(stderr, "usage: bench_plan FOLDER RECORDS [RECORDS ...]\n");
        return 2;
    }
    folder = argv[1];
    printf("| records | rows | plan without a table, s | with it, s | first recipe, s | a step, CPU ms | anon of plan, MB | of process, MB |\n|--:|--:|--:|--:|--:|--:|--:|--:|\n");
    for (int i = 2; i < argc; i++) measure(strtoull(argv[i], NULL, 10));
    return 0;
}
