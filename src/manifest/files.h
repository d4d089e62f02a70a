/* files.h - which files a data set's `path` names. */
#ifndef STK_MANIFEST_FILES_H
#define STK_MANIFEST_FILES_H

#include "base/memory.h"

typedef struct stk_file_list {
    char **path; /* each starts with the folder given, unless it is absolute or remote; of a URL without its query */
    size_t count;
} stk_file_list;

/* What finds manifests on a store; the engine fills it in. */
typedef struct stk_manifest_store {
    void *context;
    /* The keys of all objects whose address starts with s3://bucket/prefix; found: false stops. */
    stk_status (*list)(void *context, const char *address, bool (*found)(void *to, stk_str key), void *to, stk_error *err);
    /* A manifest that is a URL with a query, which is not to be told: from now on shown stands for it. */
    stk_status (*hide)(void *context, stk_str shown, const char *url, stk_error *err);
} stk_manifest_store;

/* Expand paths, globs, folders and prefixes, relative ones from folder: the entries in the order given, the files of one
 * entry sorted by their bytes (not by locale).
 *
 *     a file           as it is, whatever its name
 *     a folder         the manifests in it and in the folders in it
 *     a glob           the files that match; folders that match are left out
 *     a prefix         what a folder has of manifests and folders of them whose names begin so: "set/train-"
 *
 * On a store the same, by one list of the keys that start so: s3://bucket/set/train.jsonl (taken as it is, without a look),
 * s3://bucket/set/ (with or without the slash), s3://bucket/set/train-*.jsonl (signs of a pattern in the last part only),
 * s3://bucket/set/train-.
 *
 * Of a URL, https://host/train.jsonl, there is no list: it is taken as it is, and its query stays with the store.
 *
 * In that order: an entry that names a file as it stands is no glob, and one that ends as a manifest does is no prefix.  In
 * folders and prefixes a manifest ends in .jsonl, .json or .ndjson, with or without .gz or .zst, and is not hidden, nor in
 * a hidden folder; so the files of an index are none.
 *
 * *out is the caller's (stk_manifest_files_free).  Failure: STK_ERR_MANIFEST naming the entry (nothing there, a glob, folder
 * or prefix without a file, no regular file, not to be read, a file named twice, a manifest beside its packed self, another
 * scheme), STK_ERR_NOMEM, or what the list of a store failed with; *out is empty.  store NULL: no entry may be on one. */
stk_status stk_manifest_files(stk_file_list *out, const char *const *path, size_t path_count, const char *folder,
                              const stk_manifest_store *store, stk_error *err) STK_MUST_USE;
void stk_manifest_files_free(stk_file_list *files);

/* The name of a manifest without folder and ending: "train" of "set/train.jsonl.gz".  A slice of path. */
stk_str stk_manifest_stem(const char *path);

#endif
