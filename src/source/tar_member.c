/* tar_member.c - from an address of a file in a tar to a range of the tar, and its bytes. */
#include "source/tar_member.h"

#include <inttypes.h>
#include <pthread.h>
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

/* --- what is known of tars --- */

typedef struct tar_state {
    uint64_t bytes, stamp;
} tar_state;

enum { REMEMBERED = 256 };

struct stk_tar_memory {
    pthread_mutex_t lock;
    struct {
        uint64_t high, low; /* XXH3-128 of the address */
        tar_state state;    /* bytes 0: nothing */
    } seen[REMEMBERED];     /* at low % REMEMBERED: the last one of those */
};

stk_tar_memory *stk_tar_memory_create(void)
{
    stk_tar_memory *const memory = stk_alloc(STK_TAG_SOURCE, sizeof *memory);
    if (memory) pthread_mutex_init(&memory->lock, NULL);
    return memory;
}

void stk_tar_memory_destroy(stk_tar_memory *memory)
{
    if (memory) pthread_mutex_destroy(&memory->lock);
    stk_free(memory);
}

static bool recall(stk_tar_memory *memory, stk_str tar, tar_state *state)
{
    const XXH128_hash_t h = XXH3_128bits(tar.data, tar.size_bytes);
    const size_t at = h.low64 % REMEMBERED;
    pthread_mutex_lock(&memory->lock);
    const bool known = memory->seen[at].high == h.high64 && memory->seen[at].low == h.low64 && memory->seen[at].state.bytes;
    if (known) *state = memory->seen[at].state;
    pthread_mutex_unlock(&memory->lock);
    return known;
}

static void remember(stk_tar_memory *memory, stk_str tar, tar_state state)
{
    const XXH128_hash_t h = XXH3_128bits(tar.data, tar.size_bytes);
    const size_t at = h.low64 % REMEMBERED;
    pthread_mutex_lock(&memory->lock);
    memory->seen[at].high = h.high64;
    memory->seen[at].low = h.low64;
    memory->seen[at].state = state;
    pthread_mutex_unlock(&memory->lock);
}

/* --- the tar --- */

typedef struct tar_reader {
    stk_request *request; /* that asks for the member */
    stk_str tar;
    const stk_tar_access *access;
} tar_reader;

static bool is_file(const tar_reader *t)
{
    return t->tar.data[0] == '/';
}

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
    const stk_status status = t->access->read(t->access->context, &part);
    if (status != STK_OK) {
        if (err) *err = part.error;
        t->request->changed |= part.changed;
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

static uint64_t stamp_of_etag(const char *etag, size_t size_bytes)
{
    return XXH3_64bits(etag, size_bytes);
}

/* Which state of the tar is there: of a file by a look, of an object by the last one. */
static stk_status look_at_tar(const tar_reader *t, tar_state *state, stk_error *err)
{
    if (!is_file(t) && recall(t->access->memory, t->tar, state)) {
        const stk_str etag = t->request->etag;
        if (etag.size_bytes == 0 || state->stamp == stamp_of_etag(etag.data, etag.size_bytes)) return STK_OK;
    }
    stk_request glance = request_of(t, 0, 0, NULL);
    const stk_status status = t->access->read(t->access->context, &glance);
    if (status != STK_OK) {
        if (err) *err = glance.error;
        t->request->changed |= glance.changed;
        return status;
    }
    *state = (tar_state){glance.total_bytes, is_file(t) ? glance.mtime_ns : stamp_of_etag(glance.etag_is, strlen(glance.etag_is))};
    if (!is_file(t)) remember(t->access->memory, t->tar, *state);
    return STK_OK;
}

/* Where the member lies; its table is made if need be. */
static stk_status find_member(tar_reader *t, stk_tar_member *member, uint64_t *stamp, stk_error *err)
{
    char path[PATH_BYTES];
    tar_state state;
    stk_tar_place place;
    STK_TRY(table_path(path, t->tar, t->access->lists, err));
    stk_status status = look_at_tar(t, &state, err);
    if (status != STK_OK) return status;
    *stamp = state.stamp;
    status = stk_tar_table_find(&place, path, state.bytes, state.stamp, member->name, err);
    if (status == STK_AGAIN) {
        const stk_tar_input input = {.context = t, .read = read_range, .total_bytes = state.bytes,
                                     .window_bytes = is_file(t) ? LOCAL_WINDOW_BYTES : REMOTE_WINDOW_BYTES};
        STK_TRY(stk_tar_table_make(path, &input, state.stamp, err));
        status = stk_tar_table_find(&place, path, state.bytes, state.stamp, member->name, err);
        if (status == STK_AGAIN) return stk_fail(err, STK_ERR_SYSTEM, "the list of files of a tar changed while it was made");
    }
    if (status != STK_OK) return status;
    member->offset = place.offset;
    member->size_bytes = place.size_bytes;
    return STK_OK;
}

/* --- the member --- */

stk_status stk_tar_member_begin(stk_request *r, const stk_tar_access *access)
{
    stk_tar_member member;
    uint64_t stamp = 0;
    r->got_bytes = 0;
    r->total_bytes = r->mtime_ns = 0;
    if (!stk_tar_member_parse(&member, r->address) || stk_address_is_tar(member.tar) || starts_with(member.tar, "data:"))
        return stk_fail(&r->error, STK_ERR_MEDIA, "no address in a tar: write tar://NAME::TAR, or tar:OFFSET+BYTES::TAR");
    tar_reader t = {.request = r, .tar = member.tar, .access = access};
    if (member.name.size_bytes) {
        const stk_status status = find_member(&t, &member, &stamp, &r->error);
        if (status != STK_OK) return status;
    }
    const uint64_t left_bytes = r->offset < member.size_bytes ? member.size_bytes - r->offset : 0;
    const uint64_t want_bytes = r->size_bytes < left_bytes ? r->size_bytes : left_bytes;
    if (want_bytes > r->capacity_bytes) {
        r->total_bytes = member.size_bytes;
        return stk_fail(&r->error, STK_ERR_MEDIA_LIMIT, "a file of %llu bytes, and there is room for %zu",
                        (unsigned long long)member.size_bytes, r->capacity_bytes);
    }
    r->asked = (struct stk_asked){r->address, r->offset, r->size_bytes, member.offset, member.size_bytes, stamp};
    r->address = member.tar;
    r->offset = member.offset + (left_bytes ? r->offset : 0);
    r->size_bytes = want_bytes;
    return STK_OK;
}

stk_status stk_tar_member_end(stk_request *r, stk_status status)
{
    const struct stk_asked asked = r->asked;
    const uint64_t want_bytes = r->size_bytes, tar_bytes = r->total_bytes;
    const bool is_remote = r->address.data[0] != '/';
    r->address = asked.address;
    r->offset = asked.offset;
    r->size_bytes = asked.size_bytes;
    r->asked = (struct stk_asked){0};
    if (status != STK_OK) return status;
    r->total_bytes = asked.member_bytes;
    if (tar_bytes < asked.member_bytes || tar_bytes - asked.member_bytes < asked.member_offset || r->got_bytes != want_bytes)
        return stk_fail(&r->error, STK_ERR_MEDIA, "bytes %llu to %llu of a tar that has %llu", (unsigned long long)asked.member_offset,
                        (unsigned long long)(asked.member_offset + asked.member_bytes), (unsigned long long)tar_bytes);
    if (is_remote && asked.stamp && r->etag_is[0] && stamp_of_etag(r->etag_is, strlen(r->etag_is)) != asked.stamp) {
        r->changed = true;
        return stk_fail(&r->error, STK_ERR_MEDIA, "the tar changed after its files were listed");
    }
    return STK_OK;
}
