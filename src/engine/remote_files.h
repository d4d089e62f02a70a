/* remote_files.h - manifests and indexes on stores, as the manifest module knows them: listed, fetched, brought back.
 *
 * A manifest is fetched once, in parts and as one state of it, into a folder of copies, under a name that holds its ETag:
 * the next open looks (one HEAD) and takes the copy.  The files of an index on a store are copies too: read from there
 * when they are missing here, put there when they are made; machines that do so at once put the same bytes.
 *
 * Not here: which files there are (manifest/files.h, manifest/index.h). */
#ifndef STK_ENGINE_REMOTE_FILES_H
#define STK_ENGINE_REMOTE_FILES_H

#include "engine/remote.h"
#include "manifest/files.h"
#include "manifest/index.h"

/* A URL whose query is not told. */
typedef struct stk_hidden_url {
    const struct stk_hidden_url *next;
    stk_str shown;
    const char *url;
} stk_hidden_url;

typedef struct stk_remote_files {
    stk_remote *remote;
    const stk_places *hosts; /* where manifests that are URLs may lie, redirects followed */
    stk_pool *pool;          /* of what is hidden */
    const stk_hidden_url *hidden;
    const char *index_address; /* s3://bucket/prefix of index_dir; NULL: it is no store */
} stk_remote_files;

/* The folder of copies, $XDG_CACHE_HOME/stoker or ~/.cache/stoker, made if it is not there.  STK_ERR_OPTION: neither is
 * known. */
stk_status stk_remote_folder(char path[4096], stk_error *err) STK_MUST_USE;

/* files outlives the tables. */
stk_manifest_store stk_remote_manifest_store(stk_remote_files *files);
stk_index_store stk_remote_index_store(stk_remote_files *files, const char *folder);

#endif
