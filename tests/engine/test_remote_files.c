/* test_remote_files.c - the files of an index on a store, where a run of the command line cannot go: too large to be put. */
#include <fcntl.h>

#include "engine/remote_files.h"
#include "test.h"

/* A file with a hole of 5 GiB; nobody listens at the endpoint, and nobody is asked. */
static void an_index_that_one_request_cannot_store_is_refused_in_words(void)
{
    const stk_source_config config = {.file_threads = 1, .endpoint = "http://127.0.0.1:9", .anonymous = true};
    const char *const path = test_write("train.jsonl.stoker-media", "");
    stk_error err;
    stk_remote_files files = {.index_address = "s3://bucket/index"};
    CHECK(truncate(path, (off_t)STK_PUT_BYTES_MAX + 1) == 0);
    CHECK_OK(stk_remote_create(&files.remote, &config, &err), err);
    const stk_index_store store = stk_remote_index_store(&files, test_folder());
    CHECK_INT(store.push(store.context, path, &err), STK_ERR_INDEX);
    CHECK_HAS(err.message, "5368709121 bytes");
    CHECK_HAS(err.message, "5 GiB");
    CHECK_HAS(err.message, "split the manifest, or set index_dir to a folder");
    CHECK_STR(err.file, "s3://bucket/index/train.jsonl.stoker-media");
    stk_source *source;
    stk_source_metrics m;
    CHECK_OK(stk_remote_source(files.remote, &source, &err), err);
    stk_source_get_metrics(source, &m);
    CHECK_INT(m.requests, 0);
    stk_remote_destroy(files.remote);
}

/* What cannot be looked at is not gone: an object of no bytes would say so to all machines. */
static void only_a_file_that_is_gone_is_put_as_gone(void)
{
    const stk_source_config config = {.file_threads = 1, .endpoint = "http://127.0.0.1:9", .anonymous = true};
    char path[4096];
    stk_error err;
    stk_remote_files files = {.index_address = "s3://bucket/index"};
    snprintf(path, sizeof path, "%s/excluded", test_write("train.jsonl.stoker-file", "")); /* of a file, no folder */
    CHECK_OK(stk_remote_create(&files.remote, &config, &err), err);
    const stk_index_store store = stk_remote_index_store(&files, test_folder());
    CHECK_INT(store.push(store.context, path, &err), STK_ERR_SYSTEM);
    CHECK_HAS(err.message, "cannot look at");
    stk_source *source;
    stk_source_metrics m;
    CHECK_OK(stk_remote_source(files.remote, &source, &err), err);
    stk_source_get_metrics(source, &m);
    CHECK_INT(m.requests, 0);
    stk_remote_destroy(files.remote);
}

int main(int argc, char **argv)
{
    TEST_MAIN(argc, argv, TEST(an_index_that_one_request_cannot_store_is_refused_in_words),
              TEST(only_a_file_that_is_gone_is_put_as_gone));
}
