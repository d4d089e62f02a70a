/* index_journal.c - append, recover, lock. */
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "manifest/index_journal.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/fault.h"

typedef struct journal_header {
    char magic[8];
    uint32_t version, flags;
    stk_index_key key;
    uint32_t part, chunk_records;
} journal_header;
_Static_assert(sizeof(journal_header) == 64, "a file format");

typedef struct entry_header {
    uint64_t magic, chunk, payload_bytes, checksum; /* XXH3-64 of the payload, seeded with the chunk */
} entry_header;
_Static_assert(sizeof(entry_header) == 32, "a file format");

static const uint64_t ENTRY_MAGIC = 0x4b4e5548434b5453; /* "STKCHUNK" */

static stk_status fail_writing(const stk_journal *journal, stk_error *err, const char *what)
{
    const bool place = errno == EACCES || errno == EROFS || errno == EPERM || errno == ENOENT || errno == ENOTDIR;
    const bool full = errno == ENOSPC || errno == EDQUOT;
    (void)stk_fail_errno(err, "%s%s", what,
                         place  ? " here (set index_dir to a folder that can be written)"
                         : full ? " (make room, or set index_dir to another disk)"
                                : "");
    stk_error_file(err, journal->path, 0);
    stk_error_stage(err, STK_STAGE_INDEX);
    return STK_ERR_SYSTEM;
}

/* --- the lock --- */

stk_status stk_journal_lock(stk_journal *journal, const char *path, stk_error *err)
{
    *journal = (stk_journal){.fd = -1};
    if (snprintf(journal->path, sizeof journal->path, "%s", path) >= (int)sizeof journal->path)
        return stk_fail_at(err, STK_ERR_SYSTEM, path, 0, "the path is too long: set index_dir");
    journal->fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0644);
    if (journal->fd < 0) return fail_writing(journal, err, "cannot write the index");

    stk_status status = STK_OK;
    struct stat mine, there;
    if (flock(journal->fd, LOCK_EX | LOCK_NB)) {
        status = errno == EWOULDBLOCK || errno == EINTR ? STK_AGAIN : fail_writing(journal, err, "cannot lock the index");
    } else if (fstat(journal->fd, &mine) || !S_ISREG(mine.st_mode)) {
        errno = EINVAL;
        status = fail_writing(journal, err, "the journal of the index is no regular file");
    } else if (stat(path, &there) || mine.st_ino != there.st_ino || mine.st_dev != there.st_dev) {
        status = STK_AGAIN; /* its owner has finished and removed it since we opened it */
    } else {
        journal->size_bytes = (uint64_t)mine.st_size;
        return STK_OK;
    }
    close(journal->fd);
    journal->fd = -1;
    return status;
}

void stk_journal_close(stk_journal *journal, bool keep)
{
    if (journal->fd >= 0) {
        /* Removed before the lock goes: whoever opened it meanwhile finds that it is not the file of that name. */
        if (!keep || journal->size_bytes <= sizeof(journal_header)) unlink(journal->path);
        close(journal->fd);
    }
    journal->fd = -1;
    stk_free(journal->payload_at);
    journal->payload_at = NULL;
}

/* --- recover --- */

stk_status stk_journal_map(const stk_journal *journal, stk_map *map, stk_error *err)
{
    *map = (stk_map){0};
    if (journal->size_bytes == 0) return STK_OK;
    void *const data = stk_fault(STK_FAULT_MMAP)
                           ? (errno = ENOMEM, MAP_FAILED)
                           : mmap(NULL, journal->size_bytes, PROT_READ, MAP_SHARED, journal->fd, 0);
    if (data == MAP_FAILED) {
        (void)stk_fail_errno(err, "cannot map the journal of the index");
        stk_error_file(err, journal->path, 0);
        return STK_ERR_SYSTEM;
    }
    *map = (stk_map){.data = data, .size_bytes = journal->size_bytes};
    return STK_OK;
}

static uint64_t records_of_chunk(uint64_t chunk, uint64_t record_count)
{
    const uint64_t left = record_count - chunk * STK_CHUNK_RECORDS;
    return left < STK_CHUNK_RECORDS ? left : STK_CHUNK_RECORDS;
}

/* Whether the counts of a payload are those of its size and of its place. */
static bool payload_fits(const uint8_t *payload, uint64_t payload_bytes, stk_index_part part, uint64_t records)
{
    stk_chunk_counts counts;
    if (payload_bytes < sizeof counts) return false;
    memcpy(&counts, payload, sizeof counts);
    const uint64_t each = part == STK_INDEX_MEDIA ? sizeof(stk_record_facts) : sizeof(stk_text_facts);
    if (counts.record_count != records || counts.etag_bytes % 8) return false;
    return payload_bytes == sizeof counts + counts.record_count * each +
                                (uint64_t)counts.media_count * sizeof(stk_media_facts) +
                                (uint64_t)counts.note_count * sizeof(stk_index_note) + counts.etag_bytes;
}

/* The entries from the front as far as they are whole; the offset behind them. */
static uint64_t recover(stk_journal *journal, const stk_map *map, stk_index_part part, uint64_t record_count)
{
    uint64_t at = sizeof(journal_header);
    while (map->size_bytes - at >= sizeof(entry_header)) {
        entry_header e;
        memcpy(&e, map->data + at, sizeof e);
        const uint64_t room_bytes = map->size_bytes - at - sizeof e;
        if (e.magic != ENTRY_MAGIC || e.chunk >= journal->chunk_count || e.payload_bytes > room_bytes || e.payload_bytes % 8)
            break;
        const uint8_t *const payload = map->data + at + sizeof e;
        if (XXH3_64bits_withSeed(payload, e.payload_bytes, e.chunk) != e.checksum) break;
        if (stk_journal_has(journal, e.chunk) ||
            !payload_fits(payload, e.payload_bytes, part, records_of_chunk(e.chunk, record_count)))
            break;
        journal->payload_at[e.chunk] = at + sizeof e;
        journal->finished_count++;
        at += sizeof e + e.payload_bytes;
    }
    return at;
}

static stk_status cut(stk_journal *journal, uint64_t size_bytes, stk_error *err)
{
    if (ftruncate(journal->fd, (off_t)size_bytes)) return fail_writing(journal, err, "cannot write the index");
    journal->size_bytes = size_bytes;
    return STK_OK;
}

static stk_status write_at_end(stk_journal *journal, const struct iovec *piece, int count, stk_error *err)
{
    size_t size_bytes = 0;
    for (int i = 0; i < count; i++) size_bytes += piece[i].iov_len;
    ssize_t put;
    do {
        put = stk_fault(STK_FAULT_FILE_WRITE) ? (errno = ENOSPC, -1)
                                              : pwritev(journal->fd, piece, count, (off_t)journal->size_bytes);
    } while (put < 0 && errno == EINTR);
    if (put == (ssize_t)size_bytes) {
        journal->size_bytes += size_bytes;
        return STK_OK;
    }
    if (put >= 0) errno = ENOSPC; /* regular files come up short only when the disk is full */
    const stk_status status = fail_writing(journal, err, "cannot write the index");
    stk_error unheard;
    (void)cut(journal, journal->size_bytes, &unheard);
    return status;
}

stk_status stk_journal_start(stk_journal *journal, stk_index_part part, const stk_index_key *key, uint32_t flags,
                             uint64_t record_count, stk_error *err)
{
    journal->chunk_count = record_count / STK_CHUNK_RECORDS + (record_count % STK_CHUNK_RECORDS != 0);
    journal->finished_count = 0;
    journal->payload_at = stk_alloc_array(STK_TAG_INDEX, journal->chunk_count, sizeof *journal->payload_at);
    if (!journal->payload_at) return stk_fail(err, STK_ERR_NOMEM, "out of memory: an index of %llu records",
                                              (unsigned long long)record_count);
    journal_header header;
    memset(&header, 0, sizeof header);
    memcpy(header.magic, "STKPARTS", 8);
    header.version = STK_INDEX_VERSION;
    header.flags = flags;
    header.key = *key;
    header.part = part;
    header.chunk_records = STK_CHUNK_RECORDS;

    stk_map map;
    STK_TRY(stk_journal_map(journal, &map, err));
    const bool ours = map.size_bytes >= sizeof header && memcmp(map.data, &header, sizeof header) == 0;
    const uint64_t whole_bytes = ours ? recover(journal, &map, part, record_count) : 0;
    stk_map_close(&map);
    if (whole_bytes != journal->size_bytes) STK_TRY(cut(journal, whole_bytes, err));
    return ours ? STK_OK : write_at_end(journal, &(struct iovec){&header, sizeof header}, 1, err);
}

bool stk_journal_is_spent(const stk_journal *journal, uint32_t sidecar_flags)
{
    journal_header header;
    if (pread(journal->fd, &header, sizeof header, 0) != (ssize_t)sizeof header) return true;
    return (header.flags & ~sidecar_flags) == 0;
}

stk_status stk_journal_append(stk_journal *journal, uint64_t chunk, stk_bytes payload, stk_error *err)
{
    assert(!stk_journal_has(journal, chunk) && payload.size_bytes % 8 == 0);
    entry_header e = {ENTRY_MAGIC, chunk, payload.size_bytes, XXH3_64bits_withSeed(payload.data, payload.size_bytes, chunk)};
    const uint64_t at = journal->size_bytes + sizeof e;
    const struct iovec piece[2] = {{&e, sizeof e}, {(void *)(uintptr_t)payload.data, payload.size_bytes}};
    STK_TRY(write_at_end(journal, piece, 2, err));
    journal->payload_at[chunk] = at;
    journal->finished_count++;
    return STK_OK;
}
