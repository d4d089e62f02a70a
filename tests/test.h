/* test.h - the whole test framework: checks with messages, a temporary folder, skips with a reason.
 *
 *     int main(int argc, char **argv) { TEST_MAIN(argc, argv, first_test, second_test); }
 *
 * A failed check ends the test program with status 1 and names file, line and expression.  A skip ends it with 77,
 * or fails when STK_REQUIRE=all. */
#ifndef STK_TEST_H
#define STK_TEST_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <stoker/status.h>

static const char *test_name = "";

#define CHECK(condition) CHECK_MSG(condition, "%s", "")
#define CHECK_MSG(condition, ...)                                                                          \
    do {                                                                                                   \
        if (!(condition)) {                                                                                \
            fprintf(stderr, "%s:%d: %s: check failed: %s ", __FILE__, __LINE__, test_name, #condition);    \
            fprintf(stderr, __VA_ARGS__);                                                                  \
            fputc('\n', stderr);                                                                           \
            exit(1);                                                                                       \
        }                                                                                                  \
    } while (0)
#define CHECK_INT(actual, expected)                                                                        \
    do {                                                                                                   \
        const long long a_ = (long long)(actual), e_ = (long long)(expected);                              \
        CHECK_MSG(a_ == e_, "%s is %lld, not %lld", #actual, a_, e_);                                      \
    } while (0)
#define CHECK_STR(actual, expected)                                                                        \
    do {                                                                                                   \
        const char *const a_ = (actual), *const e_ = (expected);                                           \
        CHECK_MSG(strcmp(a_, e_) == 0, "%s is \"%s\", not \"%s\"", #actual, a_, e_);                       \
    } while (0)
/* The text holds the words: for messages, whose exact wording is free. */
#define CHECK_HAS(text, words)                                                                             \
    do {                                                                                                   \
        const char *const t_ = (text), *const w_ = (words);                                                \
        CHECK_MSG(strstr(t_, w_) != NULL, "\"%s\" does not say \"%s\"", t_, w_);                           \
    } while (0)
/* A call of ours that must succeed; err is a stk_error in scope that the call fills. */
#define CHECK_OK(call, err)                                                                                \
    do {                                                                                                   \
        const int s_ = (int)(call);                                                                        \
        CHECK_MSG(s_ >= 0, "status %d: %s %s:%llu %s", s_, (err).message, (err).file,                      \
                  (unsigned long long)(err).line, (err).sample);                                           \
    } while (0)

static inline void test_skip(const char *reason)
{
    const char *const require = getenv("STK_REQUIRE");
    const int fail = require && strcmp(require, "all") == 0;
    fprintf(stderr, "%s: %s: %s\n", test_name, fail ? "FAIL, a skip is a failure here" : "skipped", reason);
    exit(fail ? 1 : 77);
}

/* A temporary folder of this process, removed at exit. */
static char test_folder_path[256];
static inline void test_folder_remove(void)
{
    char command[300];
    snprintf(command, sizeof command, "rm -rf '%s'", test_folder_path);
    if (system(command)) fprintf(stderr, "could not remove %s\n", test_folder_path);
}
static inline const char *test_folder(void)
{
    if (!test_folder_path[0]) {
        const char *const base = getenv("TMPDIR");
        snprintf(test_folder_path, sizeof test_folder_path, "%s/stoker-test-XXXXXX", base ? base : "/tmp");
        if (!mkdtemp(test_folder_path)) exit(1);
        atexit(test_folder_remove);
    }
    return test_folder_path;
}

/* Write a file of that folder.  Its path, until the next call. */
static inline const char *test_write(const char *name, const char *text)
{
    static char path[600];
    snprintf(path, sizeof path, "%s/%s", test_folder(), name);
    FILE *const file = fopen(path, "wb");
    CHECK(file && fputs(text, file) >= 0 && fclose(file) == 0);
    return path;
}

/* The folder tests/ of the source tree: meson sets it. */
static inline const char *test_source_folder(void)
{
    const char *const folder = getenv("STK_TEST_SOURCE");
    return folder ? folder : "tests";
}

typedef struct test_entry {
    const char *name;
    void (*run)(void);
} test_entry;

static inline int test_run(const test_entry *entry, size_t count, int argc, char **argv)
{
    size_t passed = 0;
    for (size_t i = 0; i < count; i++) {
        if (argc > 1 && !strstr(entry[i].name, argv[1])) continue;
        test_name = entry[i].name;
        entry[i].run();
        passed++;
    }
    printf("%zu passed, 0 failed\n", passed);
    return 0;
}

#define TEST(function) {#function, function}
#define TEST_MAIN(argc, argv, ...)                                                                         \
    const test_entry entries_[] = {__VA_ARGS__};                                                           \
    return test_run(entries_, sizeof entries_ / sizeof *entries_, argc, argv)

#endif
