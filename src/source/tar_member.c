/* tar_member.c - from an address of a file in a tar to a range of the tar, and its bytes. */
#include "source/tar_member.h"

#include <inttypes.h>
#include <stdio.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "source/backend.h"
#include "source/tar_table.h"

enum {
    PATH_BYTES = 4096,
    LOCAL_WINDOW_BYTES = 4096,      /* a long name and the header behind it */
    REMOTE_WINDOW_BYTES = 1 << 20,  /* a request costs as much as a megabyte */
};

static bool starts_with(stk_str text, const char *prefix)
{
    const size_t size_bytes = strlen(prefix);
    return text.size_bytes >= size_bytes && memcmp(text.data, prefix, size_bytes) == 0;
}

bool stk_address_is_tar(stk_str address)
{
    return starts_with(address, "tar:");
}

static bool take_number(stk_str *text, char end, uint64_t *out)
{
    uint64_t value = 0;
    size_t i = 0;
    for (; i < text->size_bytes && text->data[i] >= '0' && text->data[i] <= '9'; i++)
        if (i == 18) return false;
        else value = value * 10 + (uint64_t)(text->data[i] - '0');
    if (i == 0 || (end ? i >= text->size_bytes || text->data[i] != end : i != text->size_bytes)) return false;
    *out = value;
    *text = (stk_str){text->data + i + (end != 0), text->size_bytes - i - (end != 0)};
    return true;
}

bool stk_tar_member_parse(stk_tar_member *member, stk_str address)
{
    *member = (stk_tar_member){0};
    if (!stk_address_is_tar(address)) return false;
    const char *const divide = memmem(address.data, address.size_bytes, "::", 2);
    if (!divide) return false;
    stk_str which = {address.data + 4, (size_t)(divide - address.data) - 4};
    member->tar = (stk_str){divide + 2, address.size_bytes - (size_t)(divide + 2 - address.data)};
    if (member->tar.size_bytes == 0) return false;
    if (!starts_with(which, "//")) return take_number(&which, '+', &member->offset) && take_number(&which, 0, &member->size_bytes);
    member->name = (stk_str){which.data + 2, which.size_bytes - 2};
    while (starts_with(member->name, "./")) member->name = (stk_str){member->name.data + 2, member->name.size_bytes - 2};
    return member->name.size_bytes > 0;
}

/* --- the tar --- */

typedef struct tar_reader {
    stk_request *request; /* that asks for the member */
    stk_str tar;
    stk_status (*read)(void *context, stk_request *request);
    void *context;
} tar_reader;

static stk_request request_of(const tar_reader *t, uint64_t offset, uint64_t size_bytes, uint8_t *buffer)
{
    return (stk_request){.address = t->tar, .etag = t->request->etag, .places = t->request->places, .offset = offset,
                         .size_bytes = size_bytes, .priority = t->request->priority, .buffer = buffer,
                         .capacity_bytes = (size_t)size_bytes};
}

static stk_status read_range(void *context, uint64_t offset, uint8_t *buffer, size_t size_bytes, stk_error *err)
{
    const tar_reader *const t = context;
    if (stk_request_cancelled(t->request)) return stk_fail(err, STK_ERR_INTERRUPTED, "cancelled");
    stk_request part = request_of(t, offset, size_bytes, buffer);
    const stk_status status = t->read(t->context, &part);
    if (status != STK_OK) {
        if (err) *err = part.error;
        return status == STK_AGAIN ? STK_ERR_SYSTEM : status;
    }
    if (part.got_bytes == size_bytes) return STK_OK;
    return stk_fail(err, STK_ERR_MEDIA, "the tar became shorter while it was read");
}

static stk_status table_path(char path[PATH_BYTES], stk_str tar, const char *folder, stk_error *err)
{
    int length;
    if (folder) {
        const XXH128_hash_t h = XXH3_128bits(tar.data, tar.size_bytes);
        length = snprintf(path, PATH_BYTES, "%s/%016" PRIx64 "%016" PRIx64 ".stoker-members", folder, (uint64_t)h.high64, (uint64_t)h.low64);
    } else if (tar.data[0] == '/') {
        length = snprintf(path, PATH_BYTES, "%.*s.stoker-members", (int)(tar.size_bytes < PATH_BYTES ? tar.size_bytes : PATH_BYTES), tar.data);
    } else {
        return stk_fail(err, STK_ERR_SYSTEM, "there is no folder for the list of files of a remote tar: set index_dir");
    }
    if (length < 0 || length >= PATH_BYTES) return stk_fail(err, STK_ERR_SYSTEM, "the path of a tar is too long: set index_dir");
    return STK_OK;
}

/* What tells one state of the tar from another. */
static uint64_t stamp_of(const stk_request *glance)
{
    return glance->mtime_ns ? glance->mtime_ns : XXH3_64bits(glance->etag_is, strnlen(glance->etag_is, sizeof glance->etag_is));
}

/* Where the member lies; its table is made if need be. */
static stk_status find_member(tar_reader *t, stk_tar_member *member, const char *folder, stk_error *err)
{
    char path[PATH_BYTES];
    STK_TRY(table_path(path, t->tar, folder, err));
    stk_request glance = request_of(t, 0, 0, NULL);
    stk_status status = t->read(t->context, &glance);
    if (status != STK_OK) {
        if (err) *err = glance.error;
        return status;
    }
    stk_tar_place place;
    const uint64_t stamp = stamp_of(&glance);
    status = stk_tar_table_find(&place, path, glance.total_bytes, stamp, member->name, err);
    if (status == STK_AGAIN) {
        const stk_tar_input input = {.context = t, .read = read_range, .total_bytes = glance.total_bytes,
                                     .window_bytes = t->tar.data[0] == '/' ? LOCAL_WINDOW_BYTES : REMOTE_WINDOW_BYTES};
        STK_TRY(stk_tar_table_make(path, &input, stamp, err));
        status = stk_tar_table_find(&place, path, glance.total_bytes, stamp, member->name, err);
        if (status == STK_AGAIN) return stk_fail(err, STK_ERR_SYSTEM, "the list of files of a tar changed while it was made");
    }
    if (status != STK_OK) return status;
    member->offset = place.offset;
    member->size_bytes = place.size_bytes;
    return STK_OK;
}

/* --- the member --- */

/* The request as one of the tar, and back. */
static stk_status read_member(tar_reader *t, const stk_tar_member *member)
{
    stk_request *const r = t->request;
    const stk_str address = r->address;
    const uint64_t offset = r->offset, size_bytes = r->size_bytes;
    const uint64_t left_bytes = offset < member->size_bytes ? member->size_bytes - offset : 0;
    const uint64_t want_bytes = size_bytes < left_bytes ? size_bytes : left_bytes;
    if (want_bytes > r->capacity_bytes) {
        r->total_bytes = member->size_bytes;
        return stk_fail(&r->error, STK_ERR_MEDIA_LIMIT, "a file of %llu bytes, and there is room for %zu",
                        (unsigned long long)member->size_bytes, r->capacity_bytes);
    }
    r->address = t->tar;
    r->offset = member->offset + (left_bytes ? offset : 0);
    r->size_bytes = want_bytes;
    const stk_status status = t->read(t->context, r);
    const uint64_t tar_bytes = r->total_bytes;
    r->address = address;
    r->offset = offset;
    r->size_bytes = size_bytes;
    if (status != STK_OK) return status;
    r->total_bytes = member->size_bytes;
    if (tar_bytes >= member->size_bytes && tar_bytes - member->size_bytes >= member->offset && r->got_bytes == want_bytes) return STK_OK;
    return stk_fail(&r->error, STK_ERR_MEDIA, "bytes %llu to %llu of a tar that has %llu", (unsigned long long)member->offset,
                    (unsigned long long)(member->offset + member->size_bytes), (unsigned long long)tar_bytes);
}

stk_status stk_tar_member_read(stk_request *request, stk_status (*read)(void *context, stk_request *request), void *context,
                               const char *table_folder)
{
    stk_tar_member member;
    request->got_bytes = 0;
    request->total_bytes = request->mtime_ns = 0;
    if (!stk_tar_member_parse(&member, request->address) || stk_address_is_tar(member.tar) || starts_with(member.tar, "data:"))
        return stk_fail(&request->error, STK_ERR_MEDIA, "no address in a tar: write tar://NAME::TAR, or tar:OFFSET+BYTES::TAR");
    tar_reader t = {.request = request, .tar = member.tar, .read = read, .context = context};
    if (member.name.size_bytes) {
        const stk_status status = find_member(&t, &member, table_folder, &request->error);
        if (status != STK_OK) return status;
    }
    return read_member(&t, &member);
}
