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
    CHECK_OK(stk_manifest_files(&files, entries, count, folder, NULL, &err), err);
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
    CHECK_INT(stk_manifest_files(&files, entries, count, folder, NULL, &err), STK_ERR_MANIFEST);
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
    refuse(LIST("d.jsonl"), folder, "no manifest in this folder");
    refuse(LIST("d.*"), folder, "no file matches");
    refuse(LIST("a.jsonl", "[ab].jsonl"), folder, "twice");
    refuse(LIST("s3://bucket/a.jsonl"), folder, "files, s3:// objects or https:// URLs");
    refuse(LIST(""), folder, "empty path");
    refuse(LIST("a.jsonl/b"), folder, "does not exist");
    refuse(NULL, 0, folder, "without a `path`");
    char fifo[400];
    snprintf(fifo, sizeof fifo, "%s/pipe", folder);
    CHECK(mkfifo(fifo, 0600) == 0);
    refuse(LIST("pipe"), folder, "not a regular file");
}

/* A folder is gone through as a store's prefix would be: in depth, by the ending of names, sorted by bytes. */
static void folders(void)
{
    const char *const folder = test_folder();
    make_folder("set");
    make_folder("set/sub");
    make_folder("set/.hidden");
    make_folder("set/none");
    const char *const taken[] = {"set/2.jsonl", "set/10.json", "set/a.jsonl.gz", "set/b.json.zst", "set/c.ndjson",
                                 "set/sub/d.jsonl.zst", "set/sub.jsonl"};
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++) touch(taken[i]);
    const char *const left[] = {"set/readme.md", "set/.jsonl", "set/.x.jsonl", "set/.hidden/x.jsonl", "set/x.gz", "set/json",
                                "set/2.jsonl.stoker-media-0a0b0c0d", "set/2.jsonl.stoker-media-0a0b0c0d.part",
                                "set/a.jsonl.gz.stoker-unpacked-0123", "set/a.jsonl.bak"};
    for (size_t i = 0; i < sizeof left / sizeof *left; i++) touch(left[i]);
    const char *const all = "/set/10.json/set/2.jsonl/set/a.jsonl.gz/set/b.json.zst/set/c.ndjson/set/sub.jsonl/set/sub/d.jsonl.zst";
    expect(LIST("set"), folder, all);
    refuse(LIST("set/none"), folder, "no manifest in this folder");
    refuse(LIST("set", "set/2.jsonl"), folder, "twice");

    stk_file_list files;
    stk_error err;
    CHECK_OK(stk_manifest_files(&files, LIST("set/"), folder, NULL, &err), err);
    CHECK_INT(files.count, 7);
    CHECK(strstr(files.path[0], "set/10.json") && !strstr(files.path[0], "//"));
    stk_manifest_files_free(&files);
}

/* A link that leads back is refused, not followed for ever. */
static void folders_in_a_circle(void)
{
    make_folder("loop");
    touch("loop/a.jsonl");
    char link[400];
    snprintf(link, sizeof link, "%s/loop/again", test_folder());
    CHECK(symlink(".", link) == 0);
    refuse(LIST("loop"), test_folder(), "deep");
}

/* Who packed a manifest and kept it did not mean it twice. */
static void a_manifest_beside_its_packed_self(void)
{
    make_folder("twins");
    touch("twins/a.jsonl");
    touch("twins/a.jsonl-more.jsonl"); /* sorts between them */
    touch("twins/a.jsonl.zst");
    refuse(LIST("twins"), test_folder(), "beside it with .zst");
    expect(LIST("twins/a.jsonl", "twins/a.jsonl.zst"), test_folder(), "/twins/a.jsonl/twins/a.jsonl.zst");
    make_folder("packed");
    touch("packed/a.jsonl.gz");
    touch("packed/a.jsonl.zst");
    refuse(LIST("packed"), test_folder(), "beside it with .zst");
}

static void prefixes(void)
{
    const char *const folder = test_folder();
    make_folder("shards");
    make_folder("shards/train-more");
    touch("shards/train-2.jsonl");
    touch("shards/train-1.jsonl.gz");
    touch("shards/train-1.txt");
    touch("shards/train-more/3.jsonl");
    touch("shards/train-more/.4.jsonl");
    touch("shards/val.jsonl");
    expect(LIST("shards/train-"), folder, "/shards/train-1.jsonl.gz/shards/train-2.jsonl/shards/train-more/3.jsonl");
    expect(LIST("shards/v"), folder, "/shards/val.jsonl");
    refuse(LIST("shards/test-"), folder, "does not exist");
    refuse(LIST("nowhere/train-"), folder, "does not exist");
    /* A misspelt file is no prefix of another one. */
    refuse(LIST("shards/val.json"), folder, "does not exist");
}

/* --- stores --- */

static const char *const keys[] = {"a.jsonl", "set/.hidden/x.jsonl", "set/a b+%.jsonl", "set/deep/c.json", "set/notes.txt", "set/plain",
                                   "set/train-1.jsonl", "set/train-2.jsonl.gz", "set/train-x/t.jsonl", "settle.jsonl", "twin/a.jsonl",
                                   "twin/a.jsonl.gz"};
static int lists;

static stk_status list_keys(void *context, const char *address, bool (*found)(void *to, stk_str key), void *to, stk_error *err)
{
    (void)context;
    lists++;
    if (strncmp(address, "s3://bucket/", 12) != 0) return stk_fail(err, STK_ERR_NETWORK, "no such bucket");
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (strncmp(keys[i], address + 12, strlen(address + 12)) == 0 && !found(to, stk_str_of(keys[i]))) break;
    return STK_OK;
}

static void entries_on_a_store(void)
{
    static const stk_manifest_store store = {.list = list_keys};
    static const struct {
        const char *entry, *files; /* behind s3://bucket/, each with a blank; or words of a refusal */
    } known[] = {
        {"s3://bucket/set/any thing.jsonl", "set/any thing.jsonl "}, /* as it is: no list */
        {"s3://bucket/set/", "set/a b+%.jsonl set/deep/c.json set/train-1.jsonl set/train-2.jsonl.gz set/train-x/t.jsonl "},
        {"s3://bucket/set", "set/a b+%.jsonl set/deep/c.json set/train-1.jsonl set/train-2.jsonl.gz set/train-x/t.jsonl "},
        {"s3://bucket/set/train-", "set/train-1.jsonl set/train-2.jsonl.gz set/train-x/t.jsonl "},
        {"s3://bucket/set/train-*", "set/train-1.jsonl set/train-2.jsonl.gz "},
        {"s3://bucket/set/train-[13].jsonl", "set/train-1.jsonl "},
        {"s3://bucket/set/plain", "set/plain "}, /* a name without an ending that is there */
        {"s3://bucket/sett", "settle.jsonl "},
        {"s3://bucket/set/*/t.jsonl", "!last part only"},
        {"s3://bucket/none/", "!no manifest starts so"},
        {"s3://bucket/none*", "!no manifest starts so"},
        {"s3://bucket/twin/", "!lies beside it"},
        {"s3://bucket", "!BUCKET/KEY"},
        {"https://", "!no manifest"},
        {"https://host/", "!write https://HOST/PATH"},
        {"https://name:secret@host/a.jsonl", "!write https://HOST/PATH"},
        {"s3://other/set/", "!no such bucket"},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        stk_file_list files;
        stk_error err;
        char all[1000] = "";
        lists = 0;
        const stk_status status = stk_manifest_files(&files, &known[i].entry, 1, "/", &store, &err);
        if (known[i].files[0] == '!') {
            CHECK_MSG(status < 0, "%s", known[i].entry);
            CHECK_HAS(err.message, known[i].files + 1);
            CHECK(!files.path);
            continue;
        }
        CHECK_OK(status, err);
        for (size_t f = 0; f < files.count; f++) {
            CHECK(strncmp(files.path[f], "s3://bucket/", 12) == 0);
            strcat(strcat(all, files.path[f] + 12), " ");
        }
        CHECK_STR(all, known[i].files);
        CHECK_INT(lists, i ? 1 : 0);
        stk_manifest_files_free(&files);
    }
}

static stk_status keep_url(void *context, stk_str shown, const char *url, stk_error *err)
{
    snprintf(context, 200, "%.*s is %s", (int)shown.size_bytes, shown.data, url);
    return STK_OK;
}

static void a_url_is_taken_as_it_is_and_its_query_hidden(void)
{
    char kept[200] = "";
    const stk_manifest_store store = {.context = kept, .list = list_keys, .hide = keep_url};
    const char *const entries[] = {"https://host/a/b*.jsonl", "http://host/c.jsonl.gz?Signature=x?y"};
    stk_file_list files;
    stk_error err;
    CHECK_OK(stk_manifest_files(&files, entries, 2, "/", &store, &err), err);
    CHECK_INT(files.count, 2);
    CHECK_STR(files.path[0], "https://host/a/b*.jsonl");
    CHECK_STR(files.path[1], "http://host/c.jsonl.gz");
    CHECK_STR(kept, "http://host/c.jsonl.gz is http://host/c.jsonl.gz?Signature=x?y");
    stk_manifest_files_free(&files);
}

static void stems(void)
{
    const char *const pairs[][2] = {{"a/b.c/train.jsonl.gz", "train"}, {"train.json.zst", "train"}, {"x.v1.ndjson", "x.v1"},
                                    {"notes.txt", "notes"}, {"plain", "plain"}, {".jsonl", ".jsonl"}, {"a.gz", "a"},
                                    {"22.0/1.1.jsonl", "1.1"}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        const stk_str stem = stk_manifest_stem(pairs[i][0]);
        CHECK_MSG(stk_str_is(stem, pairs[i][1]), "%s gives %.*s", pairs[i][0], STK_STR_ARGS(stem));
    }
}

int main(int argc, char **argv)
{
    TEST_MAIN(argc, argv, TEST(files_lists_and_globs), TEST(folders), TEST(folders_in_a_circle),
              TEST(a_manifest_beside_its_packed_self), TEST(prefixes), TEST(entries_on_a_store), TEST(a_url_is_taken_as_it_is_and_its_query_hidden), TEST(stems));
}
