/* cache_room.c - the counts that processes share, what is left by the dead, and who makes room for whom. */
#include "source/cache_room.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "base/fault.h"

static const uint64_t page_magic = 0x31656863614b5453; /* "STKache1" */

enum {
    PAGE_BYTES = 4096,
    FREE_PERCENT = 5,         /* of the disk, left to others */
    FOLDERS = 256,            /* V/aa, of one value */
    FOLDERS_A_SEARCH = 32,
    REFUSALS_A_SEARCH = 16,   /* one write in so many that find no room looks for what nobody reads */
    EVICTIONS_A_WRITE = 64,
    UNUSED_S = 7 * 24 * 3600,
};

uint64_t stk_cache_blocks(uint64_t size_bytes)
{
    if (size_bytes == 0) return PAGE_BYTES; /* an entry that was cut: what it had taken, most likely */
    return size_bytes > UINT64_MAX - PAGE_BYTES ? size_bytes : (size_bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
}

/* --- folders --- */

/* Visit the names in a folder, until a visit says false.  Nothing is allocated: opendir would.
 * position: NULL, all of them; otherwise some, from there, and it becomes where to go on; 0 at the end. */
typedef bool visit_name(void *context, int folder, const char *name);

static void each_name_from(int at, const char *path, uint64_t *position, visit_name *visit, void *context)
{
    const uint64_t start = position ? *position : 0;
    if (position) *position = 0;
    const int folder = openat(at, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (folder < 0) return;
    if (start) (void)lseek(folder, (off_t)start, SEEK_SET);
    _Alignas(struct dirent64) char block[PAGE_BYTES];
    ssize_t got;
    bool goes_on = true;
    while (goes_on && (got = getdents64(folder, block, sizeof block)) > 0) {
        for (ssize_t i = 0; goes_on && i < got;) {
            const struct dirent64 *const entry = (const void *)(block + i);
            i += entry->d_reclen;
            if (entry->d_name[0] != '.') goes_on = visit(context, folder, entry->d_name);
            if (position) *position = (uint64_t)entry->d_off;
        }
        goes_on = goes_on && !position;
    }
    close(folder);
}

static void each_name(int at, const char *path, visit_name *visit, void *context)
{
    each_name_from(at, path, NULL, visit, context);
}

static bool is_hex(const char *name, size_t length)
{
    for (size_t i = 0; i < length; i++)
        if (!isdigit((unsigned char)name[i]) && !(name[i] >= 'a' && name[i] <= 'f')) return false;
    return name[length] == 0;
}

static bool is_entry(int folder, const char *name, struct stat *info)
{
    return is_hex(name, STK_CACHE_HASH_DIGITS) && fstatat(folder, name, info, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(info->st_mode);
}

/* --- the counts --- */

static uint64_t load(const uint64_t *count)
{
    return __atomic_load_n(count, __ATOMIC_RELAXED);
}

static void add(uint64_t *count, uint64_t bytes)
{
    __atomic_fetch_add(count, bytes, __ATOMIC_RELAXED);
}

/* A folder that somebody emptied by hand must not make a count of nearly 2^64. */
static void subtract(uint64_t *count, uint64_t bytes)
{
    uint64_t now = load(count);
    while (!__atomic_compare_exchange_n(count, &now, now > bytes ? now - bytes : 0, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
}

void stk_cache_room_add(stk_cache_room *room, int value, uint64_t size_bytes)
{
    add(&room->counts->value_bytes[value], size_bytes);
}

void stk_cache_room_subtract(stk_cache_room *room, int value, uint64_t size_bytes)
{
    subtract(&room->counts->value_bytes[value], size_bytes);
}

void stk_cache_room_give_back(stk_cache_room *room, int value, uint64_t size_bytes)
{
    subtract(&room->counts->value_bytes[value], size_bytes);
    subtract(&room->counts->all_bytes, size_bytes);
}

bool stk_cache_room_has(const stk_cache_room *room, int value)
{
    return load(&room->counts->value_bytes[value]) > 0;
}

bool stk_cache_room_is_gone(const stk_cache_room *room)
{
    struct stat info;
    return fstat(room->counts_fd, &info) != 0 || info.st_nlink == 0;
}

static bool try_take(stk_cache_room *room, int value, uint64_t size_bytes)
{
    uint64_t now = load(&room->counts->all_bytes);
    do {
        if (now > room->max_bytes || size_bytes > room->max_bytes - now) return false;
    } while (!__atomic_compare_exchange_n(&room->counts->all_bytes, &now, now + size_bytes, true, __ATOMIC_RELAXED,
                                          __ATOMIC_RELAXED));
    add(&room->counts->value_bytes[value], size_bytes);
    return true;
}

/* --- making room --- */

typedef struct eviction {
    stk_cache_room *room;
    int value;          /* of the folder that is walked */
    uint64_t need_bytes; /* enough is enough */
    int64_t unused_since; /* seconds; only what was read last before; INT64_MAX: anything */
    uint64_t freed_bytes;
} eviction;

static bool evict_entry(void *context, int folder, const char *name)
{
    eviction *const e = context;
    struct stat info;
    if (!is_entry(folder, name, &info) || info.st_mtim.tv_sec >= e->unused_since || unlinkat(folder, name, 0)) return true;
    const uint64_t bytes = stk_cache_blocks((uint64_t)info.st_size);
    stk_cache_room_give_back(e->room, e->value, bytes);
    __atomic_fetch_add(&e->room->evicted, 1, __ATOMIC_RELAXED);
    e->freed_bytes += bytes;
    return e->freed_bytes < e->need_bytes;
}

/* A folder goes with its last entry, so that the first one found holds some. */
static bool evict_in_folder(void *context, int folder, const char *name)
{
    if (!is_hex(name, 2)) return true;
    each_name(folder, name, evict_entry, context);
    unlinkat(folder, name, AT_REMOVEDIR);
    return ((const eviction *)context)->freed_bytes == 0;
}

/* Remove entries of lower values, from one folder. */
static bool evict_lower(stk_cache_room *room, int value, uint64_t need_bytes)
{
    for (int lower = 1; lower < value; lower++) {
        if (!stk_cache_room_has(room, lower)) continue;
        eviction e = {.room = room, .value = lower, .need_bytes = need_bytes, .unused_since = INT64_MAX};
        const char path[] = {(char)('0' + lower), 0};
        each_name(room->folder, path, evict_in_folder, &e);
        if (e.freed_bytes) return true;
    }
    return false;
}

/* Remove what nobody has read for long, if it is among the next names.  Rarely, for it is in vain as long as all is in use.
 * The hand is all processes'; where two move it at once, some names are seen twice or a round later. */
static bool evict_unused(stk_cache_room *room, uint64_t need_bytes)
{
    const uint64_t refusals = __atomic_fetch_add(&room->refusals, 1, __ATOMIC_RELAXED);
    if (!__atomic_load_n(&room->seek_unused, __ATOMIC_RELAXED) && refusals % REFUSALS_A_SEARCH) return false;
    eviction e = {.room = room, .need_bytes = need_bytes, .unused_since = (int64_t)time(NULL) - UNUSED_S};
    uint64_t hand = load(&room->counts->hand), position = load(&room->counts->hand_position);
    for (int i = 0; i < FOLDERS_A_SEARCH && e.freed_bytes == 0; i++) {
        char path[STK_CACHE_PATH_BYTES];
        e.value = 1 + (int)(hand / FOLDERS % STK_CACHE_VALUES);
        snprintf(path, sizeof path, "%d/%02x", e.value, (unsigned)(hand % FOLDERS));
        if (stk_cache_room_has(room, e.value)) each_name_from(room->folder, path, &position, evict_entry, &e);
        else hand += FOLDERS - 1, position = 0;
        if (position) break;
        hand++;
    }
    __atomic_store_n(&room->counts->hand, hand, __ATOMIC_RELAXED);
    __atomic_store_n(&room->counts->hand_position, position, __ATOMIC_RELAXED);
    __atomic_store_n(&room->seek_unused, e.freed_bytes > 0, __ATOMIC_RELAXED);
    return e.freed_bytes > 0;
}

static bool disk_has(const stk_cache_room *room, uint64_t size_bytes)
{
    struct statvfs disk;
    if (fstatvfs(room->folder, &disk) || disk.f_frsize == 0) return false;
    return disk.f_bavail > disk.f_blocks / 100 * FREE_PERCENT + size_bytes / disk.f_frsize + 1;
}

bool stk_cache_room_take(stk_cache_room *room, int value, uint64_t size_bytes)
{
    if (size_bytes > room->max_bytes || !disk_has(room, size_bytes)) return false;
    for (int i = 0; i < EVICTIONS_A_WRITE; i++) {
        if (try_take(room, value, size_bytes)) return true;
        if (!evict_lower(room, value, size_bytes) && !evict_unused(room, size_bytes)) return false;
    }
    return false;
}

/* --- opening --- */

static bool tidy_temporary(void *context, int folder, const char *name)
{
    stk_cache_room *const room = context;
    const int value = name[0] - '0';
    if (value < 1 || value > STK_CACHE_VALUES || name[1] != '-') return true;
    const int fd = openat(folder, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) return true;
    struct stat info;
    /* Empty: its writer may live, finds it locked, and gives back by itself.  Two names: it became an entry. */
    if (flock(fd, LOCK_EX | LOCK_NB) == 0 && fstat(fd, &info) == 0 && unlinkat(folder, name, 0) == 0 && info.st_nlink == 1 &&
        info.st_size > 0)
        stk_cache_room_give_back(room, value, stk_cache_blocks((uint64_t)info.st_size));
    close(fd);
    return true;
}

static bool count_entry(void *context, int folder, const char *name)
{
    uint64_t *const bytes = context;
    struct stat info;
    if (is_entry(folder, name, &info)) *bytes += stk_cache_blocks((uint64_t)info.st_size);
    return true;
}

static bool count_folder(void *context, int folder, const char *name)
{
    if (is_hex(name, 2)) each_name(folder, name, count_entry, context);
    return true;
}

/* The counts file is locked.  Only temporaries that were counted may be given back, so none is left before. */
static void count_all(stk_cache_room *room, const uint8_t *boot)
{
    stk_cache_counts *const counts = room->counts;
    memset(counts, 0, sizeof *counts);
    each_name(room->folder, "tmp", tidy_temporary, room);
    for (int value = 1; value <= STK_CACHE_VALUES; value++) {
        const char path[] = {(char)('0' + value), 0};
        uint64_t bytes = 0;
        each_name(room->folder, path, count_folder, &bytes);
        counts->value_bytes[value] = bytes;
        counts->all_bytes += bytes;
    }
    memcpy(counts->boot, boot, sizeof counts->boot);
    __atomic_store_n(&counts->magic, page_magic, __ATOMIC_RELEASE);
}

/* Which run of the machine this is: a restart may have lost what was written last.  Zeros when the system does not say. */
static void read_boot(uint8_t boot[16])
{
    char text[40] = "";
    memset(boot, 0, 16);
    const int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    if (fd < 0) return;
    const ssize_t got = read(fd, text, sizeof text - 1);
    close(fd);
    int digit = 0;
    for (ssize_t i = 0; i < got && digit < 32; i++) {
        const int c = tolower((unsigned char)text[i]);
        if (!isxdigit(c)) continue;
        boot[digit / 2] = (uint8_t)(boot[digit / 2] << 4 | (isdigit(c) ? c - '0' : c - 'a' + 10));
        digit++;
    }
}

/* The page must have its blocks, or touching it on a full disk would be a signal. */
static bool map_counts(stk_cache_room *room)
{
    static const char zeros[PAGE_BYTES];
    struct stat info;
    if (fstat(room->counts_fd, &info)) return false;
    if (info.st_size != PAGE_BYTES && (ftruncate(room->counts_fd, 0) ||
                                       pwrite(room->counts_fd, zeros, PAGE_BYTES, 0) != PAGE_BYTES))
        return false;
    void *const page = stk_fault(STK_FAULT_MMAP) ? (errno = ENOMEM, MAP_FAILED)
                                                 : mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, room->counts_fd, 0);
    if (page == MAP_FAILED) return false;
    room->counts = page;
    return true;
}

static bool open_counts(stk_cache_room *room)
{
    if (mkdirat(room->folder, "tmp", 0700) && errno != EEXIST) return false;
    room->counts_fd = openat(room->folder, "counts", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (room->counts_fd < 0) return false;
    while (flock(room->counts_fd, LOCK_EX))
        if (errno != EINTR) return false;
    if (!map_counts(room)) return false;
    uint8_t boot[16];
    read_boot(boot);
    if (__atomic_load_n(&room->counts->magic, __ATOMIC_ACQUIRE) != page_magic || memcmp(room->counts->boot, boot, sizeof boot) != 0)
        count_all(room, boot);
    else
        each_name(room->folder, "tmp", tidy_temporary, room);
    flock(room->counts_fd, LOCK_UN);
    return true;
}

bool stk_cache_room_open(stk_cache_room *room, int folder, uint64_t max_bytes)
{
    *room = (stk_cache_room){.folder = folder, .counts_fd = -1, .max_bytes = max_bytes};
    if (open_counts(room)) return true;
    const int code = errno;
    if (room->counts_fd >= 0) close(room->counts_fd);
    room->counts_fd = -1;
    room->counts = &room->own;
    for (int value = 1; value <= STK_CACHE_VALUES; value++) room->own.value_bytes[value] = 1; /* unknown: look */
    errno = code;
    return false;
}

void stk_cache_room_close(stk_cache_room *room)
{
    if (room->counts && room->counts != &room->own) munmap(room->counts, PAGE_BYTES);
    if (room->counts_fd >= 0) close(room->counts_fd);
    if (room->folder >= 0) close(room->folder);
}
