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

/* States of remote tars that were seen last, so that not every file of one asks about it first.  Any thread. */
typedef struct stk_tar_memory stk_tar_memory;
stk_tar_memory *stk_tar_memory_create(void); /* NULL: no memory */
void stk_tar_memory_destroy(stk_tar_memory *memory);

/* How the tars are asked, at once, by a thread that may wait. */
typedef struct stk_tar_access {
    stk_status (*read)(void *context, stk_request *request);
    void *context;
    stk_tar_memory *memory;
    const char *lists; /* folder of the lists of files; NULL: beside the tar, which is then a file */
} stk_tar_access;

/* Make a request of such an address one of its tar's bytes: address, offset and size_bytes change until end.  The list of the
 * tar's files is made if need be.  Failure: the request is as it was, but for its error, total_bytes. */
stk_status stk_tar_member_begin(stk_request *request, const stk_tar_access *access);

/* The request as the caller made it, with the outcome for it of what came of the tar's. */
stk_status stk_tar_member_end(stk_request *request, stk_status status);

#endif
