/* cache.c - entries: what a key's file is called, what stands before its bytes, reading with every check, storing whole.
 *
 *     head (128 bytes) │ the key as text │ the bytes
 *
 * The head says how long all is, and holds checksums of itself, of the text and of the bytes: nothing is synced to
 * the disk, and what a power cut tears is noticed by them.
 *
 * Not here: whether there is room (cache_room.c). */
#include "source/cache.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/fault.h"
#include "source/cache_room.h"

static const uint64_t head_magic = 0x3130656863614b53; /* "SKache01" */

enum {
    TEXT_BYTES_MAX = 3072, /* of a key; what is longer is not kept */
    LINK_TRIES = 3,
    TOUCH_S = 24 * 3600,   /* a file's time says on which day it was read last */
};

typedef struct head {
    uint64_t magic;
    uint32_t text_bytes, unused;
    uint64_t payload_bytes, total_bytes;
    uint64_t payload_hash, text_hash; /* XXH3-64 */
    char etag[STK_ETAG_BYTES];
    uint64_t head_hash; /* of all before */
} head;
_Static_assert(sizeof(head) == 128, "the head of an entry is a file format");

/* A key, ready to be looked for. */
typedef struct entry_name {
    char path[STK_CACHE_PATH_BYTES]; /* its first digit is the value */
    size_t text_bytes;
    char text[TEXT_BYTES_MAX];
} entry_name;

enum { NOT_OFF, GOING_OFF, OFF };

struct stk_cache {
    stk_cache_room room;
    uint64_t run, serial;  /* names of temporaries: random, and counted */
    int off;               /* atomic: why nothing is stored stands in words, once it is OFF */
    char words[256];
    stk_cache_metrics counted; /* atomic; what the room counts is not in it */
};

static void count(uint64_t *counter, uint64_t by)
{
    __atomic_fetch_add(counter, by, __ATOMIC_RELAXED);
}

static uint64_t load(const uint64_t *counter)
{
    return __atomic_load_n(counter, __ATOMIC_RELAXED);
}

static bool is_off(const stk_cache *c)
{
    return __atomic_load_n(&c->off, __ATOMIC_ACQUIRE) != NOT_OFF;
}

/* Store nothing from now on; the first reason stays. */
static void turn_off(stk_cache *c, const char *what, const char *remedy)
{
    const int code = errno;
    int expected = NOT_OFF;
    if (!__atomic_compare_exchange_n(&c->off, &expected, GOING_OFF, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) return;
    char text[96];
    snprintf(c->words, sizeof c->words, "the cache %s: %s; %s", what, strerror_r(code, text, sizeof text), remedy);
    __atomic_store_n(&c->off, OFF, __ATOMIC_RELEASE);
}

/* --- keys --- */

/* Its length, a colon, and the text: no two keys are written alike. */
static bool append(entry_name *name, stk_str text)
{
    const size_t room = sizeof name->text - name->text_bytes;
    if (text.size_bytes >= room) return false;
    const int length = snprintf(name->text + name->text_bytes, room, "%zu:", text.size_bytes);
    if ((size_t)length + text.size_bytes + 1 > room) return false;
    char *const at = name->text + name->text_bytes + length;
    if (text.size_bytes) memcpy(at, text.data, text.size_bytes);
    at[text.size_bytes] = '\n';
    name->text_bytes += (size_t)length + text.size_bytes + 1;
    return true;
}

/* The query of a URL may be a secret: only its hash is written to the disk. */
static bool append_key(entry_name *name, stk_str key)
{
    const char *const query = key.size_bytes ? memchr(key.data, '?', key.size_bytes) : NULL;
    if (!query) return append(name, key) && append(name, (stk_str){0});
    char hash[40];
    const stk_str path = {key.data, (size_t)(query - key.data)};
    const XXH128_hash_t h = XXH3_128bits(query, key.size_bytes - path.size_bytes);
    snprintf(hash, sizeof hash, "?%016llx%016llx", (unsigned long long)h.high64, (unsigned long long)h.low64);
    return append(name, path) && append(name, stk_str_of(hash));
}

/* False: a key that nothing is kept for. */
static bool name_key(entry_name *name, const stk_cache_key *key)
{
    if (key->etag.size_bytes == 0 && !key->any_version) return false;
    name->text_bytes = 0;
    char range[48];
    snprintf(range, sizeof range, "%llu+%llu", (unsigned long long)key->offset, (unsigned long long)key->size_bytes);
    if (!append(name, key->endpoint) || !append(name, key->bucket) || !append_key(name, key->key) ||
        !append(name, key->etag) || !append(name, stk_str_of(range)))
        return false;
    const XXH128_hash_t h = XXH3_128bits(name->text, name->text_bytes);
    snprintf(name->path, sizeof name->path, "0/%02x/%016llx%016llx", (unsigned)(h.high64 >> 56),
             (unsigned long long)h.high64, (unsigned long long)h.low64);
    return true;
}

static void set_value(entry_name *name, int value)
{
    name->path[0] = (char)('0' + value);
}

static uint64_t hash_of_head(const head *h)
{
    return XXH3_64bits(h, offsetof(head, head_hash));
}

/* Make V and V/aa. */
static void make_folders(const stk_cache *c, const char *entry)
{
    static const size_t ends[] = {1, 4};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        char path[sizeof "V/aa"];
        memcpy(path, entry, ends[i]);
        path[ends[i]] = 0;
        (void)mkdirat(c->room.folder, path, 0700); /* what failed shows where the folder is used */
    }
}

/* --- reading --- */

static void drop(stk_cache *c, const entry_name *name, uint64_t size_bytes)
{
    count(&c->counted.broken, 1);
    if (unlinkat(c->room.folder, name->path, 0) == 0)
        stk_cache_room_give_back(&c->room, name->path[0] - '0', stk_cache_blocks(size_bytes));
}

static void raise_value(stk_cache *c, const char *from, int value, uint64_t size_bytes)
{
    char to[STK_CACHE_PATH_BYTES];
    memcpy(to, from, sizeof to);
    to[0] = (char)('0' + value);
    stk_cache_room_add(&c->room, value, stk_cache_blocks(size_bytes));
    int failed = renameat(c->room.folder, from, c->room.folder, to);
    if (failed && errno == ENOENT) {
        make_folders(c, to);
        failed = renameat(c->room.folder, from, c->room.folder, to);
    }
    stk_cache_room_subtract(&c->room, failed ? value : from[0] - '0', stk_cache_blocks(size_bytes));
}

/* Go behind the first bytes of the pieces. */
static void pass_pieces(struct iovec **piece, int *pieces, size_t bytes)
{
    for (; *pieces && bytes >= (*piece)->iov_len; (*pieces)--) bytes -= (*piece)++->iov_len;
    if (!*pieces) return;
    (*piece)->iov_base = (char *)(*piece)->iov_base + bytes;
    (*piece)->iov_len -= bytes;
}

/* Read what there is into the pieces; a short file gives less.  < 0: errno. */
static ssize_t read_pieces(int fd, struct iovec *piece, int pieces)
{
    ssize_t all = 0;
    while (pieces) {
        const ssize_t got = stk_fault(STK_FAULT_CACHE_READ) ? (errno = EIO, -1) : preadv(fd, piece, pieces, all);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return -1;
        if (got == 0) break;
        all += got;
        pass_pieces(&piece, &pieces, (size_t)got);
    }
    return all;
}

typedef enum entry_state { ENTRY_GOOD, ENTRY_LARGE, ENTRY_OTHER, ENTRY_BROKEN, ENTRY_UNREAD } entry_state;

/* fd is of a file of size_bytes. */
static entry_state read_entry(int fd, uint64_t size_bytes, const entry_name *name, uint8_t *buffer, size_t capacity_bytes,
                              stk_cache_found *found)
{
    head h;
    char text[TEXT_BYTES_MAX];
    struct iovec piece[] = {{&h, sizeof h}, {text, name->text_bytes}, {buffer, capacity_bytes}};
    const ssize_t got = read_pieces(fd, piece, capacity_bytes ? 3 : 2);
    if (got < 0) return errno == EIO ? ENTRY_BROKEN : ENTRY_UNREAD;
    const size_t before = sizeof h + name->text_bytes;
    if ((size_t)got < sizeof h || h.magic != head_magic || h.head_hash != hash_of_head(&h)) return ENTRY_BROKEN;
    if (h.text_bytes != name->text_bytes || h.text_hash != XXH3_64bits(name->text, name->text_bytes)) return ENTRY_OTHER;
    if ((size_t)got < before || memcmp(text, name->text, name->text_bytes) != 0) return ENTRY_BROKEN;
    if (h.payload_bytes != size_bytes - before || h.etag[sizeof h.etag - 1]) return ENTRY_BROKEN;
    found->total_bytes = h.total_bytes;
    if (h.payload_bytes > capacity_bytes) return ENTRY_LARGE;
    if ((size_t)got - before != h.payload_bytes || XXH3_64bits(buffer, h.payload_bytes) != h.payload_hash) return ENTRY_BROKEN;
    found->got_bytes = h.payload_bytes;
    memcpy(found->etag, h.etag, sizeof h.etag);
    return ENTRY_GOOD;
}

/* Look for the entry in the folder of its value (the first digit of its path). */
static stk_status read_at(stk_cache *c, const entry_name *name, int value, uint8_t *buffer, size_t capacity_bytes,
                          stk_cache_found *found)
{
    const int fd = openat(c->room.folder, name->path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) return STK_AGAIN;
    struct stat info;
    stk_status status = STK_AGAIN;
    if (fstat(fd, &info) == 0 && S_ISREG(info.st_mode)) {
        const uint64_t size_bytes = (uint64_t)info.st_size;
        const entry_state state = read_entry(fd, size_bytes, name, buffer, capacity_bytes, found);
        status = state == ENTRY_GOOD ? STK_OK : state == ENTRY_LARGE ? STK_ERR_MEDIA_LIMIT : STK_AGAIN;
        if (state == ENTRY_BROKEN) drop(c, name, size_bytes);
        if (state == ENTRY_GOOD && c->room.counts_fd >= 0) {
            if (info.st_mtim.tv_sec < time(NULL) - TOUCH_S) (void)futimens(fd, NULL);
            if (value > name->path[0] - '0') raise_value(c, name->path, value, size_bytes);
        }
        /* An epoch reads each once: the page cache is better used by others. */
        posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    }
    close(fd);
    return status;
}

stk_status stk_cache_read(stk_cache *c, const stk_cache_key *key, int value, uint8_t *buffer, size_t capacity_bytes,
                          stk_cache_found *found)
{
    entry_name name;
    stk_status status = STK_AGAIN;
    if (value > STK_CACHE_VALUES) value = STK_CACHE_VALUES;
    if (c->room.folder >= 0 && name_key(&name, key)) {
        for (int at = STK_CACHE_VALUES; at >= 1 && status == STK_AGAIN; at--) {
            if (!stk_cache_room_has(&c->room, at)) continue;
            set_value(&name, at);
            status = read_at(c, &name, value, buffer, capacity_bytes, found);
        }
    }
    count(status == STK_AGAIN ? &c->counted.misses : &c->counted.hits, 1);
    if (status == STK_OK) count(&c->counted.hit_bytes, found->got_bytes);
    return status;
}

/* --- storing --- */

static bool write_pieces(int fd, struct iovec *piece, int pieces)
{
    while (pieces) {
        const ssize_t got = stk_fault(STK_FAULT_CACHE_WRITE) ? (errno = ENOSPC, -1) : writev(fd, piece, pieces);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return false;
        pass_pieces(&piece, &pieces, (size_t)got);
    }
    return true;
}

/* The whole file under a name of its own.  False with errno; nothing is left. */
static bool write_temporary(int fd, const entry_name *name, head *h, stk_bytes bytes)
{
    struct iovec piece[] = {{h, sizeof *h}, {(void *)(uintptr_t)name->text, name->text_bytes},
                            {(void *)(uintptr_t)bytes.data, bytes.size_bytes}};
    return flock(fd, LOCK_EX | LOCK_NB) == 0 &&
           ftruncate(fd, (off_t)(sizeof *h + name->text_bytes + bytes.size_bytes)) == 0 &&
           write_pieces(fd, piece, bytes.size_bytes ? 3 : 2);
}

/* False with errno; EEXIST: another has stored it meanwhile. */
static bool link_entry(stk_cache *c, const char *temporary, const entry_name *name)
{
    if (stk_fault(STK_FAULT_CACHE_LINK)) return errno = EIO, false;
    for (int i = 0; i < LINK_TRIES; i++) {
        if (linkat(c->room.folder, temporary, c->room.folder, name->path, 0) == 0) return true;
        if (errno != ENOENT) return false;
        make_folders(c, name->path);
    }
    return false;
}

/* Faults of the moment: this one is not stored, the next one may be.  ENOENT: somebody tidied up, or evicted. */
static bool passes(int code)
{
    return code == EEXIST || code == ENOENT || code == EMFILE || code == ENFILE || code == ENOMEM || code == EWOULDBLOCK;
}

static bool store(stk_cache *c, const entry_name *name, head *h, stk_bytes bytes)
{
    char temporary[STK_CACHE_PATH_BYTES];
    snprintf(temporary, sizeof temporary, "tmp/%c-%016llx-%llx", name->path[0], (unsigned long long)c->run,
             (unsigned long long)__atomic_fetch_add(&c->serial, 1, __ATOMIC_RELAXED));
    const int fd = openat(c->room.folder, temporary, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) {
        if (errno == ENOENT) (void)mkdirat(c->room.folder, "tmp", 0700), errno = ENOENT; /* for the next one */
        return false;
    }
    const bool is_stored = write_temporary(fd, name, h, bytes) && link_entry(c, temporary, name);
    const int code = errno;
    unlinkat(c->room.folder, temporary, 0);
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED); /* starts to write it out, so that dirty pages do not pile up */
    close(fd);
    errno = code;
    return is_stored;
}

void stk_cache_write(stk_cache *c, const stk_cache_key *key, int value, stk_bytes bytes, uint64_t total_bytes, stk_str etag)
{
    entry_name name;
    head h = {.magic = head_magic, .payload_bytes = bytes.size_bytes, .total_bytes = total_bytes};
    if (is_off(c) || etag.size_bytes >= sizeof h.etag || !name_key(&name, key)) return;
    if (stk_cache_room_is_gone(&c->room)) {
        errno = ENOENT;
        turn_off(c, "stores nothing more", "its folder was removed while in use: start again to have it back");
        return;
    }
    if (value < 1) value = 1;
    if (value > STK_CACHE_VALUES) value = STK_CACHE_VALUES;
    set_value(&name, value);
    const uint64_t room_bytes = stk_cache_blocks(sizeof h + name.text_bytes + bytes.size_bytes);
    if (!stk_cache_room_take(&c->room, value, room_bytes)) {
        count(&c->counted.refused, 1);
        return;
    }
    h.text_bytes = (uint32_t)name.text_bytes;
    if (etag.size_bytes) memcpy(h.etag, etag.data, etag.size_bytes);
    h.text_hash = XXH3_64bits(name.text, name.text_bytes);
    h.payload_hash = XXH3_64bits(bytes.data, bytes.size_bytes);
    h.head_hash = hash_of_head(&h);
    if (store(c, &name, &h, bytes)) {
        count(&c->counted.stored, 1);
        count(&c->counted.stored_bytes, bytes.size_bytes);
        return;
    }
    if (!passes(errno)) turn_off(c, "stores nothing more", "what is in it is still read");
    stk_cache_room_give_back(&c->room, value, room_bytes);
}

/* --- life --- */

/* The folder and those above it.  -1 with errno. */
static int open_folder(const char *folder)
{
    char path[4096];
    const size_t length = strlen(folder);
    if (length == 0 || length >= sizeof path) return errno = length ? ENAMETOOLONG : ENOENT, -1;
    memcpy(path, folder, length + 1);
    for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        (void)mkdir(path, 0777);
        *slash = '/';
    }
    (void)mkdir(path, 0700);
    return open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

/* What others may write would come out as training data. */
static stk_status check_owner(int fd, const char *folder, stk_error *err)
{
    struct stat info;
    if (fstat(fd, &info)) return stk_fail_errno(err, "cannot look at the folder of the cache");
    if (info.st_mode & (S_IWGRP | S_IWOTH))
        return stk_fail(err, STK_ERR_OPTION, "others may write to the cache %.120s: chmod go-w it, or name a folder of your own",
                        folder);
    if (info.st_uid != geteuid() && info.st_uid != 0 && geteuid() != 0)
        return stk_fail(err, STK_ERR_OPTION, "the cache %.160s belongs to another user: name a folder of your own", folder);
    return STK_OK;
}

stk_status stk_cache_open(stk_cache **out, const char *folder, uint64_t max_bytes, stk_error *err)
{
    *out = NULL;
    const int fd = open_folder(folder);
    const int code = errno;
    const stk_status status = fd < 0 ? STK_OK : check_owner(fd, folder, err);
    stk_cache *const c = status < 0 ? NULL : stk_alloc(STK_TAG_SOURCE, sizeof *c);
    if (!c) {
        if (fd >= 0) close(fd);
        return status < 0 ? status : stk_fail(err, STK_ERR_NOMEM, "out of memory: a cache");
    }
    if (fd < 0) {
        c->room = (stk_cache_room){.folder = -1, .counts_fd = -1, .counts = &c->room.own, .max_bytes = max_bytes};
        errno = code;
        turn_off(c, "cannot be used", "name a folder that can be made and read");
    } else if (!stk_cache_room_open(&c->room, fd, max_bytes)) {
        turn_off(c, "cannot be written", "what is in it is still read");
    }
    if (getrandom(&c->run, sizeof c->run, GRND_NONBLOCK) != sizeof c->run) c->run = (uint64_t)getpid() << 32 ^ (uint64_t)time(NULL);
    *out = c;
    return STK_OK;
}

void stk_cache_close(stk_cache **cache)
{
    stk_cache *const c = *cache;
    *cache = NULL;
    if (!c) return;
    stk_cache_room_close(&c->room);
    stk_free(c);
}

void stk_cache_get_metrics(stk_cache *c, stk_cache_metrics *out)
{
    *out = (stk_cache_metrics){.max_bytes = c->room.max_bytes};
    out->hits = load(&c->counted.hits);
    out->misses = load(&c->counted.misses);
    out->hit_bytes = load(&c->counted.hit_bytes);
    out->stored = load(&c->counted.stored);
    out->stored_bytes = load(&c->counted.stored_bytes);
    out->refused = load(&c->counted.refused);
    out->broken = load(&c->counted.broken);
    out->evicted = load(&c->room.evicted);
    if (c->room.counts_fd >= 0) out->used_bytes = load(&c->room.counts->all_bytes);
    if (__atomic_load_n(&c->off, __ATOMIC_ACQUIRE) == OFF) memcpy(out->words, c->words, sizeof out->words);
}
