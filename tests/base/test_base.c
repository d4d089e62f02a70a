/* test_base.c - errors, pools, buffers, permutations, saves. */
#include "test.h"

#include "base/file.h"
#include "base/memory.h"
#include "base/permutation.h"

static void an_error_keeps_the_end_of_a_long_path(void)
{
    stk_error err;
    char path[600];
    memset(path, 'a', sizeof path);
    strcpy(path + 590, "/end.json");
    CHECK_INT(stk_fail_at(&err, STK_ERR_RECORD, path, 7, "bad %d", 3), STK_ERR_RECORD);
    CHECK_STR(err.message, "bad 3");
    CHECK_INT(strlen(err.file), 255);
    CHECK_HAS(err.file, "/end.json");
    CHECK_INT(err.line, 7);
}

static void control_characters_do_not_reach_the_terminal(void)
{
    stk_error err;
    (void)stk_fail(&err, STK_ERR_RECORD, "key \"%s\"", "a\x1b[31m\nb");
    for (const char *c = err.message; *c; c++) CHECK((unsigned char)*c >= 0x20);
}

static void a_permutation_visits_everything_once(void)
{
    for (uint64_t count = 1; count < 700; count = count * 3 / 2 + 1) {
        unsigned char seen[1024] = {0};
        stk_permutation p;
        stk_permutation_init(&p, count, 1, 2, count);
        for (uint64_t i = 0; i < count; i++) {
            const uint64_t at = stk_permutation_at(&p, i);
            CHECK(at < count);
            CHECK(!seen[at]);
            seen[at] = 1;
        }
    }
}

/* The order is part of plan_version: a change here breaks every saved state. */
static void a_permutation_never_changes_between_releases(void)
{
    stk_permutation p;
    stk_permutation_init(&p, 10, 1, 0, 0);
    char order[64] = "";
    for (uint64_t i = 0; i < 10; i++) sprintf(order + strlen(order), "%d", (int)stk_permutation_at(&p, i));
    CHECK_STR(order, "6491720583");
}

static void a_pool_in_steady_state_allocates_nothing(void)
{
    stk_pool pool;
    stk_pool_init(&pool, STK_TAG_TEXT);
    uint64_t after_first = 0;
    for (int round = 0; round < 5; round++) {
        for (int i = 0; i < 1000; i++) {
            char *const piece = stk_pool_take(&pool, (size_t)(1 + i * 7 % 300));
            CHECK(piece && piece[0] == 0);
            memset(piece, 1, (size_t)(1 + i * 7 % 300));
        }
        stk_pool_reset(&pool);
        if (round == 0) after_first = stk_alloc_count();
    }
    CHECK_INT(stk_alloc_count(), after_first);
    stk_pool_deinit(&pool);
    CHECK_INT(stk_alloc_bytes(STK_TAG_TEXT), 0);
}

static void a_buffer_stops_at_its_maximum(void)
{
    stk_error err;
    stk_buffer buffer;
    stk_buffer_init(&buffer, STK_TAG_TEXT, 1000);
    for (int i = 0; i < 10; i++) CHECK_OK(stk_buffer_append(&buffer, "0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789", 100, &err), err);
    CHECK_INT(stk_buffer_append(&buffer, "x", 1, &err), STK_ERR_NOMEM);
    CHECK_INT(buffer.size_bytes, 1000);
    stk_buffer_deinit(&buffer);
}

static void a_save_leaves_the_old_file_or_the_new_one(void)
{
    stk_error err;
    char path[400];
    snprintf(path, sizeof path, "%s/state", test_folder());
    CHECK_OK(stk_file_save(path, "one", 3, &err), err);
    stk_save save;
    CHECK_OK(stk_save_open(&save, path, &err), err);
    CHECK_OK(stk_save_write(&save, "two", 3, &err), err);
    stk_save_abandon(&save);
    char *data;
    size_t size;
    CHECK_OK(stk_file_read(&data, &size, path, 100, STK_TAG_OPTIONS, &err), err);
    CHECK_STR(data, "one");
    stk_free(data);
    CHECK_INT(stk_file_read(&data, &size, path, 2, STK_TAG_OPTIONS, &err), STK_ERR_MEDIA_LIMIT);
    snprintf(path, sizeof path, "%s/no/such/folder", test_folder());
    CHECK_INT(stk_file_save(path, "one", 3, &err), STK_ERR_SYSTEM);
    CHECK_HAS(err.file, "/no/such/folder");
    CHECK_INT(stk_file_read(&data, &size, test_folder(), 100, STK_TAG_OPTIONS, &err), STK_ERR_SYSTEM);
}

int main(int argc, char **argv)
{
    TEST_MAIN(argc, argv, TEST(an_error_keeps_the_end_of_a_long_path), TEST(control_characters_do_not_reach_the_terminal),
              TEST(a_permutation_visits_everything_once), TEST(a_permutation_never_changes_between_releases),
              TEST(a_pool_in_steady_state_allocates_nothing), TEST(a_buffer_stops_at_its_maximum),
              TEST(a_save_leaves_the_old_file_or_the_new_one));
}
