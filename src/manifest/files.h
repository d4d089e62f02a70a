/* files.h - which files a data set's `path` names. */
#ifndef STK_MANIFEST_FILES_H
#define STK_MANIFEST_FILES_H

#include "base/memory.h"

typedef struct stk_file_list {
    char **path; /* each starts with the folder given, unless it is absolute */
    size_t count;
} stk_file_list;

/* Expand paths and globs, relative ones from folder: the entries in the order given, the files of one glob
 * sorted by their bytes (not by locale), folders that a glob matches left out.  An entry that names a file as
 * it stands is no glob. *out is the caller's (stk_manifest_files_free). Failure: STK_ERR_MANIFEST naming the
 * entry (nothing there, a glob without a file, a folder, no regular file, not to be read, a file named twice,
 * another scheme), or STK_ERR_NOMEM; *out is empty. */
stk_status stk_manifest_files(stk_file_list *out, const char *const *path, size_t path_count,
                              const char *folder, stk_error *err) STK_MUST_USE;
void stk_manifest_files_free(stk_file_list *files);

#endif
