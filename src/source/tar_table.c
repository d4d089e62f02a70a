/* tar_table.c - sorted entries in a file, searched by reads of one entry each. */
#include "source/tar_table.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/file.h"

static const uint64_t table_magic = 0x313072617461536b; /* "kSatar01" */

enum { TABLE_BYTES_MAX = 1 << 30, KIND_SHIFT = 62, PATH_BYTES = 4096 };

typedef struct head {
    uint64_t magic, count;
    uint64_t tar_bytes, stamp;
    uint64_t damaged_at; /* UINT64_MAX: nowhere */
    uint64_t more[2];    /* zero */
    uint64_t hash;       /* XXH3-64 of all before */
} head;
_Static_assert(sizeof(head) == 64, "the head of a table is a file format");

typedef struct entry {
    uint64_t high, low; /* XXH3-128 of the name */
    uint64_t offset;    /* its two highest bits: stk_tar_kind */
    uint64_t size_bytes;
} entry;
_Static_assert(sizeof(entry) == 32, "an entry of a table is a file format");

static uint64_t hash_of(const head *h)
{
    return XXH3_64bits(h, offsetof(head, hash));
}

static bool read_at(int fd, void *out, size_t size_bytes, uint64_t offset)
{
    ssize_t got;
    do got = pread(fd, out, size_bytes, (off_t)offset);
    while (got < 0 && errno == EINTR);
    if (got >= 0 && got != (ssize_t)size_bytes) errno = EIO;
    return got == (ssize_t)size_bytes;
}

/* --- search --- */

/* Whether a table of this tar is there.  *fd is the caller's. */
static bool open_table(int *fd, head *h, const char *path, uint64_t tar_bytes, uint64_t stamp)
{
    struct stat info;
    *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (*fd >= 0 && fstat(*fd, &info) == 0 && S_ISREG(info.st_mode) && read_at(*fd, h, sizeof *h, 0) && h->magic == table_magic &&
        h->hash == hash_of(h) && h->tar_bytes == tar_bytes && h->stamp == stamp && h->count <= TABLE_BYTES_MAX / sizeof(entry) &&
        (uint64_t)info.st_size == sizeof *h + h->count * sizeof(entry))
        return true;
    if (*fd >= 0) close(*fd);
    *fd = -1;
    return false;
}

static int compare_hashes(uint64_t high, uint64_t low, const entry *e)
{
    if (high != e->high) return high < e->high ? -1 : 1;
    return low < e->low ? -1 : low > e->low;
}

/* 0: found; 1: it is not there; -1: errno. */
static int search(int fd, const head *h, stk_str name, entry *found)
{
    const XXH128_hash_t hash = XXH3_128bits(name.data, name.size_bytes);
    for (uint64_t from = 0, to = h->count; from < to;) {
        const uint64_t middle = from + (to - from) / 2;
        if (!read_at(fd, found, sizeof *found, sizeof *h + middle * sizeof *found)) return -1;
        const int order = compare_hashes(hash.high64, hash.low64, found);
        if (order == 0) return 0;
        if (order < 0) to = middle;
        else from = middle + 1;
    }
    return 1;
}

stk_status stk_tar_table_find(stk_tar_place *place, const char *path, uint64_t tar_bytes, uint64_t stamp, stk_str name, stk_error *err)
{
    int fd;
    head h;
    if (!open_table(&fd, &h, path, tar_bytes, stamp)) return STK_AGAIN;
    entry e;
    const int outcome = search(fd, &h, name, &e);
    if (outcome < 0) (void)stk_fail_errno(err, "cannot read the list of files of the tar");
    close(fd);
    if (outcome < 0) return STK_ERR_SYSTEM;
    if (outcome > 0 && h.damaged_at != UINT64_MAX)
        return stk_fail(err, STK_ERR_MEDIA, "the tar is damaged at byte %llu, and %.*s is not before it",
                        (unsigned long long)h.damaged_at, STK_STR_ARGS(name));
    if (outcome > 0) return stk_fail(err, STK_ERR_MEDIA_MISSING, "the tar holds no file %.*s", STK_STR_ARGS(name));
    switch ((stk_tar_kind)(e.offset >> KIND_SHIFT)) {
    case STK_TAR_CUT: return stk_fail(err, STK_ERR_MEDIA, "the tar ends inside %.*s", STK_STR_ARGS(name));
    case STK_TAR_SPARSE:
        return stk_fail(err, STK_ERR_MEDIA_UNSUPPORTED, "%.*s is a sparse file: pack the tar without --sparse", STK_STR_ARGS(name));
    case STK_TAR_FILE: break;
    }
    *place = (stk_tar_place){e.offset, e.size_bytes};
    return STK_OK;
}

/* --- making --- */

static stk_status add_entry(void *context, const stk_tar_entry *found, stk_error *err)
{
    const XXH128_hash_t hash = XXH3_128bits(found->name.data, found->name.size_bytes);
    const entry e = {hash.high64, hash.low64, found->offset | (uint64_t)found->kind << KIND_SHIFT, found->size_bytes};
    return stk_buffer_append(context, &e, sizeof e, err);
}

/* By hash; of equal names the last one in the tar first, for it is the one that counts. */
static int compare_entries(const void *a, const void *b)
{
    const entry *const x = a, *const y = b;
    const int order = compare_hashes(x->high, x->low, y);
    if (order) return order;
    const uint64_t mask = (UINT64_C(1) << KIND_SHIFT) - 1, left = x->offset & mask, right = y->offset & mask;
    return left > right ? -1 : left < right;
}

static void sort_entries(stk_buffer *entries)
{
    entry *const e = (entry *)(void *)entries->data;
    const size_t count = entries->size_bytes / sizeof *e;
    size_t kept = 0;
    if (count) qsort(e, count, sizeof *e, compare_entries);
    for (size_t i = 0; i < count; i++)
        if (kept == 0 || compare_hashes(e[i].high, e[i].low, &e[kept - 1]) != 0) e[kept++] = e[i];
    entries->size_bytes = kept * sizeof *e;
}

static stk_status save_table(const char *path, const head *h, const stk_buffer *entries, stk_error *err)
{
    stk_save save;
    STK_TRY(stk_save_open(&save, path, err));
    STK_TRY(stk_save_write(&save, h, sizeof *h, err));
    if (entries->size_bytes) STK_TRY(stk_save_write(&save, entries->data, entries->size_bytes, err));
    return stk_save_commit(&save, err);
}

static stk_status scan_and_save(const char *path, const stk_tar_input *tar, uint64_t stamp, stk_error *err)
{
    head h = {.magic = table_magic, .tar_bytes = tar->total_bytes, .stamp = stamp};
    stk_buffer entries;
    stk_buffer_init(&entries, STK_TAG_SOURCE, TABLE_BYTES_MAX);
    stk_status status = stk_tar_scan(tar, add_entry, &entries, &h.damaged_at, err);
    if (status == STK_OK) {
        sort_entries(&entries);
        h.count = entries.size_bytes / sizeof(entry);
        h.hash = hash_of(&h);
        status = save_table(path, &h, &entries, err);
    }
    stk_buffer_deinit(&entries);
    return status;
}

stk_status stk_tar_table_make(const char *path, const stk_tar_input *tar, uint64_t stamp, stk_error *err)
{
    char lock_path[PATH_BYTES];
    if ((size_t)snprintf(lock_path, sizeof lock_path, "%s.lock", path) >= sizeof lock_path)
        return stk_fail(err, STK_ERR_SYSTEM, "the path is too long: set index_dir");
    char folder[PATH_BYTES];
    STK_TRY(stk_path_folder(folder, sizeof folder, path, err));
    (void)mkdir(folder, 0777); /* what is wrong with it shows at once */
    const int lock = open(lock_path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (lock < 0) { /* without its code: that of a file that may not be read is the file's fault */
        char text[96];
        stk_fail(err, STK_ERR_SYSTEM, "cannot keep the list of files of a tar (set index_dir to a folder that can be written): %s",
                 strerror_r(errno, text, sizeof text));
        stk_error_file(err, path, 0);
        return STK_ERR_SYSTEM;
    }
    /* Held as long as the file is open, so that nothing is left of one who dies. */
    while (flock(lock, LOCK_EX) && errno == EINTR) continue;
    int fd;
    head h;
    stk_status status = STK_OK;
    if (open_table(&fd, &h, path, tar->total_bytes, stamp)) close(fd);
    else status = scan_and_save(path, tar, stamp, err);
    unlink(lock_path);
    close(lock);
    return status;
}
