/* tar.h - the headers of a tar that is not compressed: which files are in it, and where their bytes lie.
 *
 * ustar, GNU and pax headers: long names, and sizes above 8 GiB.  Links, folders and devices are passed over; a sparse
 * file is named, but its bytes do not lie in one piece.  A name that begins with ./ is known without it. */
#ifndef STK_SOURCE_TAR_H
#define STK_SOURCE_TAR_H

#include "base/memory.h"

typedef struct stk_tar_input {
    void *context;
    /* Exactly size_bytes from offset; they lie within total_bytes. */
    stk_status (*read)(void *context, uint64_t offset, uint8_t *buffer, size_t size_bytes, stk_error *err);
    uint64_t total_bytes;
    size_t window_bytes; /* read at once, from the next header on; at least 512 */
} stk_tar_input;

typedef enum stk_tar_kind { STK_TAR_FILE, STK_TAR_SPARSE, STK_TAR_CUT } stk_tar_kind;

typedef struct stk_tar_entry {
    stk_tar_kind kind; /* CUT: the tar ends before the file does */
    stk_str name;      /* until the visit returns; never empty */
    uint64_t offset, size_bytes;
} stk_tar_entry;

/* Go over all headers in one pass, up to the end mark or the end.  visit < 0 stops, and is the result.
 *
 * STK_OK                      *damaged_at is UINT64_MAX, or where something stands that is no header: what is behind is unknown
 * STK_ERR_MEDIA               the first header is none
 * STK_ERR_MEDIA_UNSUPPORTED   it is compressed
 * STK_ERR_NOMEM, or what read says */
stk_status stk_tar_scan(const stk_tar_input *input, stk_status (*visit)(void *context, const stk_tar_entry *entry, stk_error *err),
                        void *context, uint64_t *damaged_at, stk_error *err) STK_MUST_USE;

#endif
