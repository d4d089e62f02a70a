/* tar_table.h - the list of a tar's files on the disk: made by one pass over the tar, searched by name without being loaded.
 *
 *     head (64 bytes) │ an entry of 32 bytes for each file, sorted by the hash of its name
 *
 * It belongs to one state of the tar, told by size and stamp; for another one it is made anew.  Several processes may
 * use and make it: one makes it, the others wait. */
#ifndef STK_SOURCE_TAR_TABLE_H
#define STK_SOURCE_TAR_TABLE_H

#include "source/tar.h"

typedef struct stk_tar_place {
    uint64_t offset, size_bytes;
} stk_tar_place;

/* Look up a file of the tar whose table lies at path.
 *
 * STK_OK                      *place says where it is
 * STK_AGAIN                   no table of a tar of this size and stamp is there: make it
 * STK_ERR_MEDIA_MISSING       the tar holds no file of this name
 * STK_ERR_MEDIA               the tar is damaged before it, or ends inside it
 * STK_ERR_MEDIA_UNSUPPORTED   it is sparse
 * STK_ERR_SYSTEM              the table cannot be read */
stk_status stk_tar_table_find(stk_tar_place *place, const char *path, uint64_t tar_bytes, uint64_t stamp, stk_str name,
                              stk_error *err) STK_MUST_USE;

/* Make the table, unless another process made it meanwhile.  Fails as stk_tar_scan does, or with STK_ERR_SYSTEM when it
 * cannot be saved. */
stk_status stk_tar_table_make(const char *path, const stk_tar_input *tar, uint64_t stamp, stk_error *err) STK_MUST_USE;

#endif
