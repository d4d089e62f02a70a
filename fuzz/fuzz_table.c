/* fuzz_table.c - hostile files of the plan's table, and hostile lengths for the packer.
 *
 * First byte odd: lengths; rows are never over-full, none is empty.  Even: a table file as it stands, and once more with the head and
 * the checksum that fit; the rows of the plan are those without a file, or the plan says that the file is wrong. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <xxhash.h>

#include "base/permutation.h"
#include "plan/pack.h"
#include "plan/planner.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition)
{
    if (!condition) abort();
}

/* --- packing --- */

enum { SAMPLES = 512 };

static void try_lengths(const uint8_t *data, size_t size)
{
    if (size < 3) return;
    const uint32_t row_tokens = 1 + (data[0] | (uint32_t)(data[1] & 63) << 8);
    uint32_t length[SAMPLES], row[SAMPLES], count = 0;
    for (size_t i = 2; i + 1 < size && count < SAMPLES; i += 2) length[count++] = 1 + (data[i] | (uint32_t)data[i + 1] << 8) % row_tokens;
    stk_packer *packer;
    require(stk_packer_create(&packer, SAMPLES, row_tokens, NULL) == STK_OK);
    const uint32_t rows = stk_pack(packer, length, count, row);
    uint32_t used[SAMPLES] = {0};
    require(rows <= count);
    for (uint32_t i = 0; i < count; i++) {
        require(row[i] < rows);
        used[row[i]] += length[i];
        require(used[row[i]] <= row_tokens);
    }
    for (uint32_t r = 0; r < rows; r++) require(used[r] > 0);
    /* Two rows that are both at most half full would have been one. */
    uint32_t half = 0;
    for (uint32_t r = 0; r < rows; r++) half += used[r] <= row_tokens / 2;
    require(half <= 1);
    stk_packer_destroy(packer);
}

/* --- the table --- */

enum { RECORDS = 60, HEAD = 32, SUM = 16, FILE_MOST = 4096 };

static const stk_model model = {.patch_px = 16, .merge = 2, .temporal = 2, .min_px = 65536, .max_px = 1 << 20, .max_tokens = 1024};

/* The rows of a small plan, as a number; 0: it was refused. */
static uint64_t rows_with(const char *file)
{
    static stk_record_facts record[RECORDS];
    static stk_text_facts text[RECORDS];
    static const char *const files[] = {"made.jsonl"};
    for (uint32_t r = 0; r < RECORDS; r++) {
        record[r] = (stk_record_facts){.line = r + 1};
        text[r] = (stk_text_facts){.token_count = 5 + (uint32_t)(stk_mix64(r) % 90), .supervised_count = 1};
    }
    const stk_plan_set set = {.name = "made", .facts = {.record = record, .text = text, .record_count = RECORDS, .file = files, .file_count = 1},
                              .pixels = {.min_px = 65536, .max_px = 1 << 20}, .epochs_milli = 1000};
    const stk_batch_piece batch = {0, 3};
    const stk_plan_config config = {.set = &set, .set_count = 1, .model = &model, .batch = &batch, .batch_count = 1, .epochs = 2, .shuffle = true,
                                    .seed = 1, .layout = STK_LAYOUT_PACKED, .max_tokens = 1024, .pad_multiple = 1, .row_tokens = 256,
                                    .segment_multiple = 1, .window = 16, .threads = 1, .table_file = file};
    stk_plan *plan;
    stk_plan_scratch *scratch;
    stk_error err;
    require(stk_plan_create(&plan, &config, &err) == STK_OK);
    require(stk_plan_scratch_create(&scratch, plan, &err) == STK_OK);
    stk_pool pool;
    stk_pool_init(&pool, STK_TAG_PLAN);
    uint64_t sum = 1;
    for (uint64_t step = 0; sum && step < stk_plan_step_count(plan); step++) {
        stk_recipe r;
        stk_pool_reset(&pool);
        const stk_status status = stk_plan_recipe(plan, scratch, step, 0, 1, 0, &pool, &r, &err);
        require(status == STK_OK || (status == STK_ERR_INDEX && err.message[0]));
        if (status < 0) sum = 0;
        for (uint32_t i = 0; sum && i < r.sample_count; i++)
            sum = stk_mix64(sum * 31 + r.sample[i].record_index * 8 + r.sample[i].row) | 1;
    }
    stk_pool_deinit(&pool);
    stk_plan_scratch_destroy(scratch);
    stk_plan_destroy(plan);
    return sum;
}

/* Through a file that has no folder: what the plan would save there fails, which it must bear. */
static void try_file(const uint8_t *bytes, size_t size)
{
    static uint64_t expected;
    if (!expected) expected = rows_with(NULL);
    const int fd = memfd_create("table", 0);
    require(fd >= 0 && write(fd, bytes, size) == (ssize_t)size);
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    const uint64_t rows = rows_with(path);
    require(rows == expected || rows == 0);
    close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0 || size > FILE_MOST) return 0;
    if (data[0] & 1) {
        try_lengths(data + 1, size - 1);
        return 0;
    }
    try_file(data + 1, size - 1);
    uint8_t file[HEAD + FILE_MOST + SUM] = "stoker-table 1\n"; /* and a key of zeros */
    XXH128_canonical_t sum;
    memcpy(file + HEAD, data + 1, size - 1);
    XXH128_canonicalFromHash(&sum, XXH3_128bits(file, HEAD + size - 1));
    memcpy(file + HEAD + size - 1, &sum, SUM);
    try_file(file, HEAD + size - 1 + SUM);
    return 0;
}
