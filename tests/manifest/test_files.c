/* Which files a `path` names. */
#include "test.h"

#include <fcntl.h>
#include <sys/stat.h>

#include "manifest/files.h"

static void touch(const char *name)
{
    char path[400];
    snprintf(path, sizeof path, "%s/%s", test_folder(), name);
    const int fd = open(path, O_WRONLY | O_CREAT, 0600);
    CHECK(fd >= 0);
    close(fd);
}

static void make_folder(const char *name)
{
    char path[400];
    snprintf(path, sizeof path, "%s/%s", test_folder(), name);
    CHECK(mkdir(path, 0700) == 0);
}

static void expect(const char *const *entries, size_t count, const char *folder, const char *joined)
{
    stk_file_list files;
    stk_error err;
    char all[4000] = "";
    CHECK_OK(stk_manifest_files(&files, entries, count, folder, &err), err);
    for (size_t i = 0; i < files.count; i++) {
        CHECK(strncmp(files.path[i], folder, strlen(folder)) == 0);
        strcat(all, files.path[i] + strlen(folder));
    }
    CHECK_STR(all, joined);
    stk_manifest_files_free(&files);
}

static void refuse(const char *const *entries, size_t count, const char *folder, const char *words)
{
    stk_file_list files;
    stk_error err;
    CHECK_INT(stk_manifest_files(&files, entries, count, folder, &err), STK_ERR_MANIFEST);
    CHECK_HAS(err.message, words);
    CHECK_INT(files.count, 0);
    CHECK(!files.path);
}

#define LIST(...)                                                                                            \
    (const char *const[]){__VA_ARGS__}, sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *)

static void files_lists_and_globs(void)
{
    const char *const folder = test_folder();
    touch("b.jsonl");
    touch("a.jsonl");
    touch("B.jsonl");
    touch("c.json");
    touch("odd[1].jsonl");
    make_folder("d.jsonl");
    make_folder("[x]*");
    touch("[x]*/1.jsonl");
    expect(LIST("c.json"), folder, "/c.json");
    /* Entries as given; a glob by bytes, its folders left out. */
    expect(LIST("c.json", "?.jsonl"), folder, "/c.json/B.jsonl/a.jsonl/b.jsonl");
    expect(LIST("[ab].jsonl"), folder, "/a.jsonl/b.jsonl");
    /* A name that exists is no pattern, nor is the folder that entries start from. */
    expect(LIST("odd[1].jsonl"), folder, "/odd[1].jsonl");
    char inner[400];
    snprintf(inner, sizeof inner, "%s/[x]*", folder);
    expect(LIST("*.jsonl"), inner, "/1.jsonl");

    refuse(LIST("none.jsonl"), folder, "does not exist");
    refuse(LIST("none*.jsonl"), folder, "no file matches none*.jsonl");
    refuse(LIST("d.jsonl"), folder, "a folder: give a file or a glob");
    refuse(LIST("d.*"), folder, "no file matches");
    refuse(LIST("a.jsonl", "[ab].jsonl"), folder, "twice");
    refuse(LIST("s3://bucket/a.jsonl"), folder, "only files are supported yet");
    refuse(LIST(""), folder, "empty path");
    refuse(LIST("a.jsonl/b"), folder, "does not exist");
    refuse(NULL, 0, folder, "without a `path`");
    char fifo[400];
    snprintf(fifo, sizeof fifo, "%s/pipe", folder);
    CHECK(mkfifo(fifo, 0600) == 0);
    refuse(LIST("pipe"), folder, "not a regular file");
}

int main(int argc, char **argv)
{
    TEST_MAIN(argc, argv, TEST(files_lists_and_globs));
}
