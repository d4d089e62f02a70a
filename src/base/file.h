/* file.h - whole files: read with a limit, mapped read-only, saved so that a crash leaves the old one or the new one. */
#ifndef STK_BASE_FILE_H
#define STK_BASE_FILE_H

#include "base/memory.h"

/* Read a regular file of at most max_bytes.  *data is the caller's (stk_free), with a NUL behind it.
 * Failure: *data NULL; err names the file (STK_ERR_SYSTEM with errno in code, STK_ERR_MEDIA_LIMIT when too large). */
stk_status stk_file_read(char **data, size_t *size_bytes, const char *path, size_t max_bytes, stk_tag tag,
                         stk_error *err) STK_MUST_USE;

/* A file mapped read-only.  An empty file gives data NULL and size 0. */
typedef struct stk_map {
    const uint8_t *data;
    size_t size_bytes;
    int64_t mtime_ns;
} stk_map;

stk_status stk_map_open(stk_map *map, const char *path, stk_error *err) STK_MUST_USE;
void stk_map_close(stk_map *map);

/* Saving: temporary file in the same folder, write, fsync, close, rename, fsync of the folder.
 *
 *     stk_save save;
 *     STK_TRY(stk_save_open(&save, path, err));
 *     ... stk_save_write(&save, ...), each may fail ...
 *     STK_TRY(stk_save_commit(&save, err));       or stk_save_abandon(&save)
 *
 * After a failed write or commit the temporary file is gone and the save is closed; abandon is then a no-op. */
typedef struct stk_save {
    int fd; /* -1 when closed */
    char path[4096], temporary[4096];
} stk_save;

stk_status stk_save_open(stk_save *save, const char *path, stk_error *err) STK_MUST_USE;
stk_status stk_save_write(stk_save *save, const void *data, size_t size_bytes, stk_error *err) STK_MUST_USE;
stk_status stk_save_commit(stk_save *save, stk_error *err) STK_MUST_USE;
void stk_save_abandon(stk_save *save);

/* open, write all, commit. */
stk_status stk_file_save(const char *path, const void *data, size_t size_bytes, stk_error *err) STK_MUST_USE;

/* Join a folder and a name into out (an absolute name stays as it is).  Failure: too long. */
stk_status stk_path_join(char *out, size_t capacity, const char *folder, const char *name, stk_error *err) STK_MUST_USE;

/* The folder of a path, "." when it has none. */
stk_status stk_path_folder(char *out, size_t capacity, const char *path, stk_error *err) STK_MUST_USE;

#endif
