/* tar_member.h - addresses of files in a tar.
 *
 *     tar://NAME::ADDRESS             the file NAME of the tar at ADDRESS, found by the tar's headers
 *     tar:OFFSET+BYTES::ADDRESS       bytes of it, where another list says that a file lies
 *
 * ADDRESS is that of a file or of a remote object.  The first :: divides. */
#ifndef STK_SOURCE_TAR_MEMBER_H
#define STK_SOURCE_TAR_MEMBER_H

#include "source/source.h"

typedef struct stk_tar_member {
    stk_str tar;
    stk_str name; /* empty: by place */
    uint64_t offset, size_bytes;
} stk_tar_member;

bool stk_address_is_tar(stk_str address);

/* False: no such address. */
bool stk_tar_member_parse(stk_tar_member *member, stk_str address);

/* Serve a request of such an address through read, which serves one of the tar's own address at once (a thread may
 * wait).  table_folder: where lists of files are kept; NULL: beside the tar, which is then a file.
 * Sets what stk_local_read does; total_bytes is the member's. */
stk_status stk_tar_member_read(stk_request *request, stk_status (*read)(void *context, stk_request *request), void *context,
                               const char *table_folder);

#endif
