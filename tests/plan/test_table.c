/* test_table.c - the file of the plan's table: whatever it holds, the rows are the same; it saves time and nothing else. */
#include "made_case.h"

#include <sys/stat.h>
#include <xxhash.h>

static made_case c;
static char path[400];

enum { HEAD_BYTES = 40, SUM_BYTES = 16, FILE_MOST = 1 << 16 }; /* magic, key, number of epochs; the checksum */

/* A packed plan of several windows and epochs. */
static void setup(void)
{
    for (uint64_t number = 300000;; number++) {
        made_case_init(&c, number);
        c.config.layout = STK_LAYOUT_PACKED;
        c.config.pad_to = 0;
        c.config.window = 16;
        c.config.steps = 0;
        c.config.epochs = 3;
        memset(c.takes_part, 0, sizeof c.takes_part);
        memset(c.part_count, 0, sizeof c.part_count);
        made_expect(&c);
        if (made_case_has_all(&c) && c.config.set_count > 1 && c.part_count[0] > 60 && c.part_count[1] > 30) break;
    }
    memset(c.config.table_key, 7, sizeof c.config.table_key);
    snprintf(path, sizeof path, "%s/table", test_folder());
    (void)unlink(path);
    c.config.table_file = path;
}

/* A digest of all recipes of a plan. */
static stk_status digest_of(uint64_t *digest, stk_error *err)
{
    stk_plan *plan;
    stk_plan_scratch *scratch;
    stk_pool pool;
    stk_status status = STK_OK;
    *digest = 0;
    CHECK_OK(stk_plan_create(&plan, &c.config, err), *err);
    CHECK_OK(stk_plan_scratch_create(&scratch, plan, err), *err);
    stk_pool_init(&pool, STK_TAG_PLAN);
    for (uint64_t step = 0; status == STK_OK && step < stk_plan_step_count(plan); step++)
        for (uint32_t micro = 0; status == STK_OK && micro < stk_plan_micro_count(plan, step, 1); micro++) {
            stk_recipe r;
            stk_pool_reset(&pool);
            status = stk_plan_recipe(plan, scratch, step, 0, 1, micro, &pool, &r, err);
            if (status == STK_OK) *digest = made_fold(*digest, made_recipe_digest(&r));
        }
    stk_pool_deinit(&pool);
    stk_plan_scratch_destroy(scratch);
    stk_plan_destroy(plan);
    return status;
}

static uint64_t digest_fine(void)
{
    stk_error err;
    uint64_t digest;
    CHECK_OK(digest_of(&digest, &err), err);
    return digest;
}

static uint64_t digest_without_file(void)
{
    c.config.table_file = NULL;
    const uint64_t digest = digest_fine();
    c.config.table_file = path;
    return digest;
}

static size_t read_table(uint8_t bytes[FILE_MOST])
{
    FILE *const file = fopen(path, "rb");
    CHECK_MSG(file != NULL, "%s", path);
    const size_t size = fread(bytes, 1, FILE_MOST, file);
    fclose(file);
    CHECK(size > HEAD_BYTES + SUM_BYTES && size < FILE_MOST);
    return size;
}

static void write_table(const uint8_t *bytes, size_t size)
{
    FILE *const file = fopen(path, "wb");
    CHECK(file != NULL);
    CHECK_INT(fwrite(bytes, 1, size, file), size);
    CHECK(fclose(file) == 0);
}

/* Make the checksum fit what stands before it. */
static void sign(uint8_t *bytes, size_t size)
{
    XXH128_canonical_t sum;
    XXH128_canonicalFromHash(&sum, XXH3_128bits(bytes, size - SUM_BYTES));
    memcpy(bytes + size - SUM_BYTES, &sum, SUM_BYTES);
}

static void expect_table(const uint8_t *bytes, size_t size)
{
    static uint8_t now[FILE_MOST];
    CHECK_INT(read_table(now), size);
    CHECK(memcmp(now, bytes, size) == 0);
}

static void a_table_is_written_and_read_back(void)
{
    setup();
    static uint8_t first[FILE_MOST];
    struct stat before, after;
    const uint64_t expected = digest_without_file();
    CHECK(access(path, F_OK) != 0);
    CHECK(digest_fine() == expected);
    const size_t size = read_table(first);
    CHECK(stat(path, &before) == 0);
    CHECK(digest_fine() == expected);
    expect_table(first, size);
    CHECK(stat(path, &after) == 0);
    CHECK_INT(after.st_ino, before.st_ino); /* not written again */
}

/* Invariant 1: what was damaged is computed anew, and the file is whole again. */
static void a_damaged_table_is_computed_anew(void)
{
    setup();
    static uint8_t good[FILE_MOST], bad[FILE_MOST];
    const uint64_t expected = digest_fine();
    const size_t size = read_table(good);
    for (size_t at = 0; at < size; at += at < HEAD_BYTES + 16 || at + 20 > size ? 1 : 13) {
        memcpy(bad, good, size);
        bad[at] ^= (uint8_t)(1 << at % 8);
        write_table(bad, size);
        CHECK(digest_fine() == expected);
        expect_table(good, size);
    }
    for (size_t left = 0; left < size; left += left < HEAD_BYTES + 40 ? 1 : 17) {
        write_table(good, left);
        CHECK(digest_fine() == expected);
        expect_table(good, size);
    }
    /* Cut where an epoch ends, with a checksum that fits. */
    for (size_t left = HEAD_BYTES + SUM_BYTES; left < size; left += 4) {
        memcpy(bad, good, left);
        sign(bad, left);
        write_table(bad, left);
        CHECK(digest_fine() == expected);
        expect_table(good, size);
    }
}

static void a_table_of_another_plan_is_replaced(void)
{
    setup();
    static uint8_t good[FILE_MOST], other[FILE_MOST];
    const uint64_t expected = digest_fine();
    const size_t size = read_table(good);
    c.config.table_key[5]++;
    c.config.seed++;
    const uint64_t differs = digest_fine();
    CHECK(!c.config.shuffle || differs != expected);
    CHECK(memcmp(other, good, read_table(other)) != 0);
    c.config.table_key[5]--;
    c.config.seed--;
    CHECK(digest_fine() == expected);
    expect_table(good, size);
}

/* A table may hold more epochs than a run needs, and grows where it holds fewer. */
static void tables_of_more_and_of_fewer_epochs_serve(void)
{
    setup();
    static uint8_t five[FILE_MOST];
    uint64_t expected[6], rows[6];
    for (uint64_t epochs = 1; epochs <= 5; epochs++) {
        c.config.epochs = epochs;
        expected[epochs] = digest_without_file();
        CHECK(digest_fine() == expected[epochs]); /* on the file of one epoch fewer */
    }
    const size_t size = read_table(five);
    for (uint64_t epochs = 5; epochs > 0; epochs--) {
        c.config.epochs = epochs;
        CHECK(digest_fine() == expected[epochs]);
        stk_error err;
        stk_plan *plan;
        CHECK_OK(stk_plan_create(&plan, &c.config, &err), err);
        rows[epochs] = stk_plan_row_count(plan);
        uint64_t epoch, in_epoch, step;
        stk_plan_position(plan, stk_plan_step_count(plan), &epoch, &in_epoch);
        CHECK(epoch == epochs && in_epoch == 0);
        CHECK_OK(stk_plan_step_at(plan, epoch, in_epoch, &step, &err), err);
        CHECK_INT(step, stk_plan_step_count(plan));
        stk_plan_destroy(plan);
        expect_table(five, size); /* not shortened */
    }
    /* By steps: as many epochs as their rows take. */
    const stk_batch_piece single = {0, 1};
    c.config.batch = &single;
    c.config.batch_count = 1;
    c.config.micro_batch = 0;
    for (uint64_t epochs = 1; epochs <= 4; epochs++)
        for (uint64_t more = 0; more < 2; more++) {
            c.config.steps = rows[epochs] + more;
            const uint64_t of_steps = digest_without_file();
            CHECK(digest_fine() == of_steps);
            (void)unlink(path);
            CHECK(digest_fine() == of_steps);
        }
}

/* A table whose checksum fits and whose numbers are wrong: implausible ones are computed anew, others end in an error, never in other
 * rows. */
static void a_table_that_lies_is_found_out(void)
{
    setup();
    static uint8_t good[FILE_MOST], bad[FILE_MOST];
    const uint64_t expected = digest_fine();
    const size_t size = read_table(good);
    const uint32_t lies[] = {0, 1, 2, 5, 16, 17, 1000000, UINT32_MAX};
    uint64_t recomputed = 0, refused = 0;
    for (size_t at = HEAD_BYTES + 8; at < HEAD_BYTES + 8 + 5 * 4; at += 4)
        for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
            stk_error err;
            uint64_t digest;
            if (memcmp(good + at, &lies[i], 4) == 0) continue;
            memcpy(bad, good, size);
            memcpy(bad + at, &lies[i], 4);
            sign(bad, size);
            write_table(bad, size);
            const stk_status status = digest_of(&digest, &err);
            if (lies[i] == 0 || lies[i] > c.config.window) {
                CHECK(status == STK_OK && digest == expected);
                expect_table(good, size);
                recomputed++;
            } else {
                CHECK_INT(status, STK_ERR_INDEX);
                CHECK_HAS(err.message, "remove the .stoker-plan file");
                refused++;
            }
        }
    CHECK(recomputed > 0 && refused > 0);
}

static void a_folder_that_takes_no_file_costs_nothing_but_time(void)
{
    setup();
    const uint64_t expected = digest_without_file();
    snprintf(path, sizeof path, "%s/nowhere/table", test_folder());
    CHECK(digest_fine() == expected);
    CHECK(access(path, F_OK) != 0);
    snprintf(path, sizeof path, "/proc/stoker-table"); /* not even root */
    CHECK(digest_fine() == expected);
    snprintf(path, sizeof path, "%s", test_folder()); /* a folder */
    CHECK(digest_fine() == expected);
    struct stat status;
    CHECK(stat(path, &status) == 0 && S_ISDIR(status.st_mode));
}

static void threads_count_the_same(void)
{
    setup();
    static uint8_t one[FILE_MOST];
    c.config.threads = 1;
    const uint64_t expected = digest_fine();
    const size_t size = read_table(one);
    for (uint32_t threads = 2; threads <= 200; threads = threads * 3 + 1) {
        (void)unlink(path);
        c.config.threads = threads;
        CHECK(digest_fine() == expected);
        expect_table(one, size);
    }
}

int main(int argc, char **argv)
{
    TEST_MAIN(argc, argv, TEST(a_table_is_written_and_read_back), TEST(a_damaged_table_is_computed_anew),
              TEST(a_table_of_another_plan_is_replaced), TEST(tables_of_more_and_of_fewer_epochs_serve), TEST(a_table_that_lies_is_found_out),
              TEST(a_folder_that_takes_no_file_costs_nothing_but_time), TEST(threads_count_the_same));
}
