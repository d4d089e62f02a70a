/* test_cache.c - the disk cache: what comes back, what does not, who gets room, several processes, kill -9. */
#include "test.h"

#include <fcntl.h>
#include <ftw.h>
#include <linux/magic.h>
#include <pthread.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <time.h>

#include "base/fault.h"
#include "source/cache.h"

enum { ROOM = 1 << 16 };

static uint8_t room[ROOM + STK_PAD_BYTES];

/* A folder of its own for each test. */
static const char *new_folder(void)
{
    static char path[400];
    static int serial;
    snprintf(path, sizeof path, "%s/cache-%d", test_folder(), serial++);
    return path;
}

static stk_cache *open_cache(const char *folder, uint64_t max_bytes)
{
    stk_error err;
    stk_cache *cache;
    CHECK_OK(stk_cache_open(&cache, folder, max_bytes, &err), err);
    return cache;
}

static stk_cache_metrics metrics_of(stk_cache *cache)
{
    stk_cache_metrics m;
    stk_cache_get_metrics(cache, &m);
    return m;
}

static stk_cache_key key_of(const char *key)
{
    return (stk_cache_key){.endpoint = stk_str_of("https://store:9000"), .bucket = stk_str_of("bucket"), .key = stk_str_of(key),
                           .etag = stk_str_of("\"e1\""), .size_bytes = UINT64_MAX};
}

static void keep(stk_cache *cache, stk_cache_key key, int value, const char *text)
{
    stk_cache_write(cache, &key, value, (stk_bytes){(const uint8_t *)text, strlen(text)}, strlen(text), stk_str_of("\"e1\""));
}

/* The text that is kept for a key; NULL: none. */
static const char *kept(stk_cache *cache, stk_cache_key key, int value)
{
    stk_cache_found found;
    const stk_status status = stk_cache_read(cache, &key, value, room, ROOM, &found);
    if (status == STK_AGAIN) return NULL;
    CHECK_INT(status, STK_OK);
    room[found.got_bytes] = 0;
    return (const char *)room;
}

/* --- what lies on the disk --- */

static char entry_path[600];
static int entries, others;
static uint64_t disk_bytes;

static int see(const char *path, const struct stat *info, int type, struct FTW *where)
{
    if (type == FTW_D) CHECK_INT(info->st_mode & 0777, 0700);
    if (type != FTW_F) return 0;
    const char *const name = path + where->base;
    if (strcmp(name, "counts") == 0) return 0;
    if (where->level == 3 && strlen(name) == 32 && strspn(name, "0123456789abcdef") == 32) {
        entries++;
        disk_bytes += ((uint64_t)info->st_size + 4095) / 4096 * 4096;
        snprintf(entry_path, sizeof entry_path, "%s", path);
    } else {
        others++;
    }
    CHECK_INT(info->st_mode & 0777, 0600);
    return 0;
}

static void look(const char *folder)
{
    entries = others = 0;
    disk_bytes = 0;
    CHECK(nftw(folder, see, 16, FTW_PHYS) == 0);
}

/* --- one process --- */

static void what_was_kept_comes_back(void)
{
    const char *const folder = new_folder();
    stk_cache *cache = open_cache(folder, 1 << 20);
    CHECK(kept(cache, key_of("a"), 1) == NULL);
    keep(cache, key_of("a"), 1, "whole");
    stk_cache_key part = key_of("a");
    part.offset = 2;
    part.size_bytes = 3;
    CHECK(kept(cache, part, 1) == NULL);
    stk_cache_write(cache, &part, 1, (stk_bytes){(const uint8_t *)"ole", 3}, 5, stk_str_of("\"e1\""));
    keep(cache, key_of("empty"), 1, "");
    CHECK_STR(kept(cache, key_of("empty"), 1), "");
    stk_cache_close(&cache);
    CHECK(cache == NULL);

    cache = open_cache(folder, 1 << 20);
    CHECK_STR(kept(cache, key_of("a"), 1), "whole");
    stk_cache_found found;
    CHECK_INT(stk_cache_read(cache, &part, 1, room, ROOM, &found), STK_OK);
    CHECK_INT(found.got_bytes, 3);
    CHECK_INT(found.total_bytes, 5);
    CHECK_STR(found.etag, "\"e1\"");
    CHECK(memcmp(room, "ole", 3) == 0);

    /* The room that it needs is told. */
    stk_cache_key whole = key_of("a");
    CHECK_INT(stk_cache_read(cache, &whole, 1, room, 4, &found), STK_ERR_MEDIA_LIMIT);
    CHECK_INT(found.total_bytes, 5);
    CHECK_INT(stk_cache_read(cache, &whole, 1, NULL, 0, &found), STK_ERR_MEDIA_LIMIT);

    const stk_cache_metrics m = metrics_of(cache);
    CHECK_INT(m.hits, 4);
    CHECK_INT(m.hit_bytes, 8);
    CHECK_INT(m.used_bytes, 3 * 4096);
    CHECK_STR(m.words, "");
    look(folder);
    CHECK_INT(entries, 3);
    CHECK_INT(others, 0);
    CHECK_INT(disk_bytes, m.used_bytes);
    stk_cache_close(&cache);
}

static void no_two_keys_are_alike(void)
{
    stk_cache *cache = open_cache(new_folder(), 1 << 20);
    stk_cache_key keys[] = {
        key_of("k"), key_of("k/"), key_of("/k"), key_of("../../../k"), key_of("k%2F"), key_of("k?v=1"), key_of("k?v=2"), key_of("k\n"),
        key_of("k\n4:\"e1\""), key_of("\xc3\xa4"), key_of("k"), key_of("k"), key_of("k"), key_of("k"), key_of("")};
    keys[10].bucket = stk_str_of("bucket2");
    keys[11].endpoint = stk_str_of("http://store:9000");
    keys[12].etag = stk_str_of("\"e2\"");
    keys[13].size_bytes = 7;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        char text[16];
        CHECK_MSG(kept(cache, keys[i], 1) == NULL, "key %zu", i);
        snprintf(text, sizeof text, "key %zu", i);
        keep(cache, keys[i], 1, text);
    }
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        char text[16];
        snprintf(text, sizeof text, "key %zu", i);
        CHECK_STR(kept(cache, keys[i], 1), text);
    }
    CHECK_INT(metrics_of(cache).broken, 0);

    /* Without an ETag only who says so. */
    stk_cache_key unknown = key_of("unknown");
    unknown.etag = (stk_str){0};
    keep(cache, unknown, 1, "x");
    unknown.any_version = true;
    CHECK(kept(cache, unknown, 1) == NULL);
    keep(cache, unknown, 1, "x");
    CHECK_STR(kept(cache, unknown, 1), "x");
    unknown.any_version = false;
    CHECK(kept(cache, unknown, 1) == NULL);

    /* What is too long is not kept, and no fault. */
    static char large[4000];
    memset(large, 'k', sizeof large - 1);
    keep(cache, key_of(large), 1, "x");
    CHECK(kept(cache, key_of(large), 1) == NULL);
    CHECK_STR(metrics_of(cache).words, "");
    stk_cache_close(&cache);
}

static char file_text[8192];
static size_t read_entry_file(void)
{
    FILE *const file = fopen(entry_path, "rb");
    CHECK(file);
    const size_t size = fread(file_text, 1, sizeof file_text, file);
    fclose(file);
    return size;
}

static void write_entry_file(size_t size)
{
    FILE *const file = fopen(entry_path, "wb");
    CHECK(file && fwrite(file_text, 1, size, file) == size && fclose(file) == 0);
}

static void a_query_is_not_written_to_the_disk(void)
{
    const char *const folder = new_folder();
    stk_cache *cache = open_cache(folder, 1 << 20);
    keep(cache, key_of("path/a.jpg?X-Amz-Signature=abcdef"), 1, "x");
    look(folder);
    const size_t size = read_entry_file();
    CHECK(memmem(file_text, size, "path/a.jpg", 10) != NULL);
    CHECK(memmem(file_text, size, "Signature", 9) == NULL);
    CHECK(memmem(file_text, size, "abcdef", 6) == NULL);
    stk_cache_close(&cache);
}

/* Whatever of the file is damaged: nothing is found, the file is gone, and the next fetch is kept. */
static void check_damage(stk_cache *cache, const char *folder, size_t size, const char *what, size_t at)
{
    const uint64_t broken = metrics_of(cache).broken;
    write_entry_file(size);
    CHECK_MSG(kept(cache, key_of("a"), 1) == NULL, "%s %zu", what, at);
    CHECK_INT(metrics_of(cache).broken, broken + 1);
    CHECK_INT(access(entry_path, F_OK), -1);
    keep(cache, key_of("a"), 1, "0123456789");
    CHECK_STR(kept(cache, key_of("a"), 1), "0123456789");
    look(folder);
    CHECK_INT(entries, 1);
    CHECK_INT(metrics_of(cache).used_bytes, 4096);
}

static void a_damaged_entry_is_noticed(void)
{
    const char *const folder = new_folder();
    stk_cache *cache = open_cache(folder, 1 << 20);
    keep(cache, key_of("a"), 1, "0123456789");
    look(folder);
    const size_t size = read_entry_file();
    CHECK(size > 128 + 10);
    for (size_t i = 0; i < size; i++) {
        CHECK_INT(read_entry_file(), size);
        file_text[i] ^= (char)(1 << i % 8);
        check_damage(cache, folder, size, "byte", i);
    }
    for (size_t i = 0; i < size; i++) {
        CHECK_INT(read_entry_file(), size);
        check_damage(cache, folder, i, "cut at", i);
    }
    CHECK_INT(read_entry_file(), size);
    check_damage(cache, folder, size + 1, "longer", size + 1);
    memset(file_text, 0, sizeof file_text); /* as a power cut leaves it */
    check_damage(cache, folder, size, "zeros", 0);
    stk_cache_close(&cache);
}

/* Two keys whose names on the disk are equal by chance: neither is taken for the other. */
static void an_entry_of_another_key_is_left(void)
{
    const char *const folder = new_folder();
    stk_cache *cache = open_cache(folder, 1 << 20);
    keep(cache, key_of("a"), 1, "of a");
    look(folder);
    const size_t size = read_entry_file();
    CHECK(unlink(entry_path) == 0);
    keep(cache, key_of("b"), 1, "of b");
    look(folder);
    write_entry_file(size);
    CHECK(kept(cache, key_of("b"), 1) == NULL);
    keep(cache, key_of("b"), 1, "of b");
    CHECK(kept(cache, key_of("b"), 1) == NULL);
    CHECK_INT(metrics_of(cache).broken, 0);
    CHECK_STR(metrics_of(cache).words, "");
    stk_cache_close(&cache);
}

/* How many pages of the only entry are in memory. */
static size_t resident_pages(void)
{
    static unsigned char page[64];
    struct stat info;
    const int fd = open(entry_path, O_RDONLY | O_CLOEXEC);
    CHECK(fd >= 0 && fstat(fd, &info) == 0);
    const size_t size = (size_t)info.st_size, pages = (size + 4095) / 4096;
    void *const map = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
    CHECK(map != MAP_FAILED && pages <= sizeof page && mincore(map, size, page) == 0);
    size_t count = 0;
    for (size_t i = 0; i < pages; i++) count += page[i] & 1;
    munmap(map, size);
    close(fd);
    return count;
}

/* An epoch reads each entry once: the memory of the page cache is better used by others. */
static void what_was_read_leaves_the_page_cache(void)
{
    const char *const folder = new_folder();
    stk_cache *cache = open_cache(folder, 1 << 20);
    static char text[ROOM];
    struct statfs disk;
    CHECK(statfs(folder, &disk) == 0);
    memset(text, 'x', sizeof text - 1);
    keep(cache, key_of("a"), 4, text);
    look(folder);
    CHECK_INT(entries, 1);
    const int fd = open(entry_path, O_RDONLY | O_CLOEXEC);
    CHECK(fd >= 0 && fsync(fd) == 0 && read(fd, room, ROOM) > 0); /* what is not written out stays in any case */
    close(fd);
    CHECK(resident_pages() > 0);
    CHECK(kept(cache, key_of("a"), 4) != NULL);
    if (disk.f_type != TMPFS_MAGIC) CHECK_INT(resident_pages(), 0); /* a folder in memory has nowhere else to be */
    stk_cache_close(&cache);
}

/* --- room --- */

static stk_cache_key numbered(int number)
{
    static char text[8][24];
    static int turn;
    char *const t = text[turn++ % 8];
    snprintf(t, sizeof text[0], "n%d", number);
    return key_of(t);
}

static void what_is_there_stays(void)
{
    const char *const folder = new_folder();
    stk_cache *cache = open_cache(folder, 10 * 4096 + 100);
    for (int i = 0; i < 30; i++) keep(cache, numbered(i), 1, "text");
    for (int i = 0; i < 30; i++) CHECK_INT(kept(cache, numbered(i), 1) != NULL, i < 10);
    CHECK_INT(metrics_of(cache).refused, 20);
    CHECK_INT(metrics_of(cache).used_bytes, 10 * 4096);

    /* Higher values take the place of lower ones, and of nothing else. */
    for (int i = 100; i < 104; i++) keep(cache, numbered(i), 3, "text");
    for (int i = 100; i < 104; i++) CHECK(kept(cache, numbered(i), 3) != NULL);
    CHECK_INT(metrics_of(cache).evicted, 4);
    for (int i = 200; i < 240; i++) keep(cache, numbered(i), 2, "text");
    for (int i = 100; i < 104; i++) CHECK(kept(cache, numbered(i), 1) != NULL);
    for (int i = 0; i < 30; i++) CHECK(kept(cache, numbered(i), 1) == NULL);
    CHECK_INT(metrics_of(cache).used_bytes, 10 * 4096);
    CHECK_INT(metrics_of(cache).evicted, 10);

    /* One that is asked for with a higher value rises, and is then as safe as those. */
    CHECK(kept(cache, numbered(203), 8) != NULL);
    CHECK(kept(cache, numbered(204), 9) != NULL);
    for (int i = 300; i < 340; i++) keep(cache, numbered(i), 7, "text");
    CHECK(kept(cache, numbered(203), 1) != NULL);
    CHECK(kept(cache, numbered(204), 1) != NULL);
    CHECK(kept(cache, numbered(205), 1) == NULL);
    CHECK(kept(cache, numbered(100), 1) == NULL);
    look(folder);
    CHECK_INT(entries, 10);
    CHECK_INT(metrics_of(cache).used_bytes, disk_bytes);

    /* What can never fit moves nothing. */
    static char large[ROOM];
    memset(large, 'x', sizeof large - 1);
    keep(cache, numbered(400), 8, large);
    look(folder);
    CHECK_INT(entries, 10);
    stk_cache_close(&cache);
}

static int age(const char *path, const struct stat *info, int type, struct FTW *where)
{
    const struct timespec long_ago[2] = {{1000, 0}, {1000, 0}};
    if (type == FTW_F && where->level == 3) CHECK(utimensat(AT_FDCWD, path, long_ago, 0) == 0);
    return 0;
}

static void what_nobody_reads_gives_way(void)
{
    const char *const folder = new_folder();
    stk_cache *cache = open_cache(folder, 20 * 4096);
    for (int i = 0; i < 20; i++) keep(cache, numbered(i), 8, "old");
    CHECK(nftw(folder, age, 16, FTW_PHYS) == 0);
    CHECK(kept(cache, numbered(7), 1) != NULL); /* and is read again */
    for (int i = 0; i < 40000 && metrics_of(cache).evicted < 19; i++) keep(cache, numbered(100 + i), 1, "new");
    CHECK_INT(metrics_of(cache).evicted, 19);
    CHECK(kept(cache, numbered(7), 1) != NULL);
    CHECK(kept(cache, numbered(8), 1) == NULL);
    CHECK(metrics_of(cache).stored >= 38);
    stk_cache_close(&cache);
}

static uint64_t draw_state = 88172645463325252u;
static uint64_t draw(void)
{
    draw_state ^= draw_state << 13;
    draw_state ^= draw_state >> 7;
    draw_state ^= draw_state << 17;
    return draw_state;
}

/* Requests of an epoch that the cache could not serve; what came is kept. */
static int epoch_misses(stk_cache *cache, const int *order, int count, int often_below)
{
    int misses = 0;
    for (int i = 0; i < count; i++) {
        const int value = order[i] < often_below ? 3 : 1;
        if (kept(cache, numbered(order[i]), value)) continue;
        misses++;
        keep(cache, numbered(order[i]), value, "text");
    }
    return misses;
}

static void shuffle(int *order, int count)
{
    for (int i = count - 1; i > 0; i--) {
        const int j = (int)(draw() % (uint64_t)(i + 1)), t = order[i];
        order[i] = order[j];
        order[j] = t;
    }
}

/* LRU would ask for 85 % in each later epoch (s3 facts, simulated); no choice can do better than 50 %. */
static void half_the_data_serves_half_the_requests(void)
{
    enum { OBJECTS = 1000 };
    stk_cache *cache = open_cache(new_folder(), OBJECTS / 2 * 4096);
    int order[OBJECTS];
    for (int i = 0; i < OBJECTS; i++) order[i] = i;
    for (int epoch = 0; epoch < 3; epoch++) {
        shuffle(order, OBJECTS);
        const int misses = epoch_misses(cache, order, OBJECTS, 0);
        CHECK_INT(misses, epoch == 0 ? OBJECTS : OBJECTS / 2);
    }
    stk_cache_close(&cache);
}

/* One set of 500 is drawn three times an epoch, another of 500 once; there is room for one of them. */
static void the_set_that_is_drawn_most_stays(void)
{
    enum { OFTEN = 500, ONCE = 500, DRAWS = 3 * OFTEN + ONCE };
    stk_cache *cache = open_cache(new_folder(), OFTEN * 4096);
    int order[DRAWS];
    for (int i = 0; i < DRAWS; i++) order[i] = i < 3 * OFTEN ? i % OFTEN : OFTEN + i - 3 * OFTEN;
    for (int epoch = 0; epoch < 3; epoch++) {
        shuffle(order, DRAWS);
        const int misses = epoch_misses(cache, order, DRAWS, OFTEN);
        if (epoch > 0) CHECK_INT(misses, ONCE);
    }
    stk_cache_close(&cache);
}

/* --- faults --- */

static void a_folder_that_cannot_be_used_is_no_fault(void)
{
    char path[600];
    const char *const folder = new_folder();
    FILE *const file = fopen(folder, "w");
    CHECK(file && fclose(file) == 0);
    stk_cache *cache = open_cache(folder, 1 << 20);
    CHECK_HAS(metrics_of(cache).words, "Not a directory");
    keep(cache, key_of("a"), 1, "x");
    CHECK(kept(cache, key_of("a"), 1) == NULL);
    stk_cache_close(&cache);

    /* No page of counts: what is there is read, nothing is stored. */
    snprintf(path, sizeof path, "%s/below/it", new_folder());
    cache = open_cache(path, 1 << 20);
    keep(cache, key_of("a"), 1, "x");
    stk_cache_close(&cache);
    char counts[700];
    snprintf(counts, sizeof counts, "%s/counts", path);
    CHECK(unlink(counts) == 0 && mkdir(counts, 0700) == 0);
    cache = open_cache(path, 1 << 20);
    CHECK_HAS(metrics_of(cache).words, "cannot be written");
    CHECK_STR(kept(cache, key_of("a"), 5), "x");
    keep(cache, key_of("b"), 1, "x");
    CHECK(kept(cache, key_of("b"), 1) == NULL);
    stk_cache_close(&cache);

    /* Others could put there what they like. */
    const char *const shared = new_folder();
    CHECK(mkdir(shared, 0700) == 0 && chmod(shared, 0770) == 0);
    stk_error err;
    CHECK_INT(stk_cache_open(&cache, shared, 1 << 20, &err), STK_ERR_OPTION);
    CHECK(cache == NULL);
    CHECK_HAS(err.message, "chmod go-w");
}

static void a_write_that_fails_ends_the_storing(void)
{
    const char *const folder = new_folder();
    stk_cache *cache = open_cache(folder, 1 << 20);
    keep(cache, key_of("a"), 1, "x");
    struct rlimit before, small;
    CHECK(getrlimit(RLIMIT_FSIZE, &before) == 0);
    small = before;
    small.rlim_cur = 64;
    signal(SIGXFSZ, SIG_IGN);
    CHECK(setrlimit(RLIMIT_FSIZE, &small) == 0);
    keep(cache, key_of("b"), 1, "x");
    CHECK(setrlimit(RLIMIT_FSIZE, &before) == 0);
    CHECK_HAS(metrics_of(cache).words, "stores nothing more: File too large");
    keep(cache, key_of("c"), 1, "x");
    CHECK(kept(cache, key_of("b"), 1) == NULL);
    CHECK(kept(cache, key_of("c"), 1) == NULL);
    CHECK_STR(kept(cache, key_of("a"), 1), "x");
    CHECK_INT(metrics_of(cache).used_bytes, 4096);
    look(folder);
    CHECK_INT(entries, 1);
    CHECK_INT(others, 0);
    stk_cache_close(&cache);
}

static int remove_one(const char *path, const struct stat *info, int type, struct FTW *where)
{
    return remove(path);
}

static void a_folder_that_is_removed_is_noticed(void)
{
    const char *const folder = new_folder();
    stk_cache *cache = open_cache(folder, 1 << 20);
    keep(cache, key_of("a"), 1, "x");
    CHECK(nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS) == 0);
    CHECK(kept(cache, key_of("a"), 1) == NULL);
    keep(cache, key_of("a"), 1, "x");
    CHECK_HAS(metrics_of(cache).words, "removed while in use");
    CHECK_INT(access(folder, F_OK), -1);
    stk_cache_close(&cache);
}

static void the_folder_is_counted_anew(void)
{
    const char *const folder = new_folder();
    char counts[700];
    snprintf(counts, sizeof counts, "%s/counts", folder);
    for (int damage = 0; damage < 4; damage++) {
        stk_cache *cache = open_cache(folder, 1 << 20);
        keep(cache, numbered(2 * damage), 1, "x");
        keep(cache, numbered(2 * damage + 1), 4, "x");
        CHECK_INT(metrics_of(cache).used_bytes, 2 * 4096 * (uint64_t)(damage + 1));
        stk_cache_close(&cache);
        if (damage == 0) CHECK(unlink(counts) == 0);
        if (damage == 1) CHECK(truncate(counts, 100) == 0);
        if (damage == 2) { /* another run of the machine, whose counts are not to be trusted */
            FILE *const file = fopen(counts, "r+b");
            CHECK(file && fseek(file, 8, SEEK_SET) == 0 && fwrite("0123456789abcdef0123", 1, 20, file) == 20 && fclose(file) == 0);
        }
    }
}

static void what_the_dead_left_is_removed(void)
{
    const char *const folder = new_folder();
    stk_cache *cache = open_cache(folder, 1 << 20);
    keep(cache, key_of("a"), 2, "x");
    keep(cache, key_of("b"), 2, "x");
    look(folder);
    /* As a kill between write and link leaves it, and one between link and unlink. */
    char temporary[700];
    snprintf(temporary, sizeof temporary, "%s/tmp/2-dead", folder);
    CHECK(rename(entry_path, temporary) == 0);
    look(folder);
    snprintf(temporary, sizeof temporary, "%s/tmp/2-linked", folder);
    CHECK(link(entry_path, temporary) == 0);
    /* And one whose writer lives. */
    snprintf(temporary, sizeof temporary, "%s/tmp/2-alive", folder);
    const int fd = open(temporary, O_RDWR | O_CREAT, 0600);
    CHECK(fd >= 0 && flock(fd, LOCK_EX) == 0);
    stk_cache *second = open_cache(folder, 1 << 20);
    CHECK_INT(access(temporary, F_OK), 0);
    CHECK_INT(metrics_of(second).used_bytes, 4096);
    look(folder);
    CHECK_INT(entries, 1);
    CHECK_INT(others, 1);
    close(fd);
    stk_cache_close(&second);
    stk_cache_close(&cache);
}

static void every_fault_is_a_miss_or_not_stored(void)
{
#ifdef STK_FAULTS
    static const struct { stk_fault_id id; const char *words; } faults[] = {
        {STK_FAULT_CACHE_WRITE, "No space left on device"}, {STK_FAULT_CACHE_LINK, "Input/output error"}};
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        const char *const folder = new_folder();
        stk_cache *cache = open_cache(folder, 1 << 20);
        stk_fault_set(faults[i].id, 2, false);
        for (int n = 0; n < 4; n++) keep(cache, numbered(n), 1, "x");
        stk_fault_set(faults[i].id, 0, false);
        for (int n = 0; n < 4; n++) CHECK_INT(kept(cache, numbered(n), 1) != NULL, n < 1);
        CHECK_HAS(metrics_of(cache).words, faults[i].words);
        look(folder);
        CHECK_INT(entries, 1);
        CHECK_INT(others, 0);
        CHECK_INT(metrics_of(cache).used_bytes, disk_bytes);
        stk_cache_close(&cache);
    }
    stk_cache *cache = open_cache(new_folder(), 1 << 20);
    keep(cache, key_of("a"), 1, "x");
    stk_fault_set(STK_FAULT_CACHE_READ, 1, false);
    CHECK(kept(cache, key_of("a"), 1) == NULL);
    stk_fault_set(STK_FAULT_CACHE_READ, 0, false);
    CHECK_INT(metrics_of(cache).broken, 1);
    CHECK_INT(metrics_of(cache).used_bytes, 0);
    stk_cache_close(&cache);
    stk_fault_set(STK_FAULT_MMAP, 1, false);
    cache = open_cache(new_folder(), 1 << 20);
    stk_fault_set(STK_FAULT_MMAP, 0, false);
    CHECK_HAS(metrics_of(cache).words, "cannot be written");
    stk_cache_close(&cache);
#else
    fprintf(stderr, "%s: needs -Dfaults=true\n", test_name);
#endif
}

/* --- many at once --- */

enum { SHARED_KEYS = 300, SHARED_ROOM = 200 };

/* The bytes of a key, of a size of its own. */
static const char *text_of(int number, char *text)
{
    const int size = number * 37 % 9000;
    for (int i = 0; i < size; i++) text[i] = (char)('a' + (number + i) % 26);
    text[size] = 0;
    return text;
}

/* Ask for keys at random and keep what is missing; what is found must be right. */
static int use_cache(stk_cache *cache, uint64_t seed, int rounds)
{
    static _Thread_local char text[10000];
    static _Thread_local uint8_t found_text[10000 + STK_PAD_BYTES];
    int faults = 0;
    for (int i = 0; i < rounds; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        const int number = (int)(seed >> 33) % SHARED_KEYS, value = 1 + (int)(seed >> 60) % 3;
        char name[24];
        snprintf(name, sizeof name, "n%d", number);
        const stk_cache_key key = key_of(name);
        const char *const wanted = text_of(number, text);
        stk_cache_found found;
        if (stk_cache_read(cache, &key, value, found_text, sizeof found_text - STK_PAD_BYTES, &found) == STK_OK)
            faults += found.got_bytes != strlen(wanted) || memcmp(found_text, wanted, found.got_bytes) != 0;
        else keep(cache, key, value, wanted);
        faults += metrics_of(cache).used_bytes > SHARED_ROOM * 4096;
    }
    return faults + (metrics_of(cache).broken > 0) + (metrics_of(cache).words[0] != 0);
}

static void *use_in_thread(void *context)
{
    static int serial;
    const int mine = __atomic_add_fetch(&serial, 1, __ATOMIC_RELAXED);
    return use_cache(context, (uint64_t)mine * 7919, 2000) ? context : NULL;
}

static void threads_share_a_cache(void)
{
    enum { THREADS = 4 };
    const char *const folder = new_folder();
    stk_cache *cache = open_cache(folder, SHARED_ROOM * 4096);
    pthread_t thread[THREADS];
    for (int i = 0; i < THREADS; i++) CHECK(pthread_create(&thread[i], NULL, use_in_thread, cache) == 0);
    for (int i = 0; i < THREADS; i++) {
        void *fault;
        CHECK(pthread_join(thread[i], &fault) == 0);
        CHECK(fault == NULL);
    }
    look(folder);
    CHECK_INT(metrics_of(cache).used_bytes, disk_bytes);
    CHECK_INT(others, 0);
    CHECK(metrics_of(cache).evicted > 0 && metrics_of(cache).refused > 0);
    stk_cache_close(&cache);
}

static pid_t start_process(const char *folder, uint64_t seed, int rounds)
{
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child) return child;
    stk_cache *cache;
    stk_error err;
    int faults = stk_cache_open(&cache, folder, SHARED_ROOM * 4096, &err) != STK_OK;
    if (!faults) faults = use_cache(cache, seed, rounds);
    stk_cache_close(&cache);
    _exit(faults ? 1 : 0);
}

static void processes_share_a_folder(void)
{
    const char *const folder = new_folder();
    const pid_t child[] = {start_process(folder, 1, 3000), start_process(folder, 2, 3000)};
    for (int i = 0; i < 2; i++) {
        int status;
        CHECK(waitpid(child[i], &status, 0) == child[i]);
        CHECK_INT(status, 0);
    }
    stk_cache *cache = open_cache(folder, SHARED_ROOM * 4096);
    look(folder);
    CHECK(entries > 50);
    CHECK_INT(others, 0);
    CHECK_INT(metrics_of(cache).used_bytes, disk_bytes);
    stk_cache_close(&cache);
}

static void pause_us(uint64_t us)
{
    nanosleep(&(struct timespec){.tv_nsec = (long)us * 1000}, NULL);
}

static void kills_leave_a_cache_that_works(void)
{
    enum { KILLS = 150 };
    const char *const folder = new_folder();
    pid_t child[2] = {start_process(folder, 1, 1 << 30), start_process(folder, 2, 1 << 30)};
    for (int i = 0; i < KILLS; i++) {
        int status;
        pause_us(1000 + draw() % 20000);
        CHECK(kill(child[i % 2], SIGKILL) == 0);
        CHECK(waitpid(child[i % 2], &status, 0) == child[i % 2]);
        CHECK_MSG(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, "it had ended by itself: %d", status);
        child[i % 2] = start_process(folder, 3 + (uint64_t)i, 1 << 30);
    }
    for (int i = 0; i < 2; i++) {
        int status;
        CHECK(kill(child[i], SIGKILL) == 0);
        CHECK(waitpid(child[i], &status, 0) == child[i]);
        CHECK(WIFSIGNALED(status));
    }
    stk_cache *cache = open_cache(folder, SHARED_ROOM * 4096);
    look(folder);
    CHECK_INT(others, 0);
    CHECK(entries > 10);
    CHECK(disk_bytes <= SHARED_ROOM * 4096);
    const uint64_t counted = metrics_of(cache).used_bytes;
    CHECK_MSG(counted >= disk_bytes && counted - disk_bytes <= (KILLS + 2) * 3 * 4096, "%llu counted, %llu there",
              (unsigned long long)counted, (unsigned long long)disk_bytes);
    CHECK_INT(use_cache(cache, 5, 2000), 0);
    stk_cache_close(&cache);

    char counts[700];
    snprintf(counts, sizeof counts, "%s/counts", folder);
    CHECK(unlink(counts) == 0);
    cache = open_cache(folder, SHARED_ROOM * 4096);
    look(folder);
    CHECK_INT(metrics_of(cache).used_bytes, disk_bytes);
    stk_cache_close(&cache);
}

int main(int argc, char **argv)
{
    TEST_MAIN(argc, argv, TEST(what_was_kept_comes_back), TEST(no_two_keys_are_alike), TEST(a_query_is_not_written_to_the_disk),
              TEST(a_damaged_entry_is_noticed), TEST(an_entry_of_another_key_is_left), TEST(what_was_read_leaves_the_page_cache),
              TEST(what_is_there_stays),
              TEST(what_nobody_reads_gives_way), TEST(half_the_data_serves_half_the_requests),
              TEST(the_set_that_is_drawn_most_stays), TEST(a_folder_that_cannot_be_used_is_no_fault),
              TEST(a_write_that_fails_ends_the_storing), TEST(a_folder_that_is_removed_is_noticed),
              TEST(the_folder_is_counted_anew), TEST(what_the_dead_left_is_removed), TEST(threads_share_a_cache),
              TEST(processes_share_a_folder), TEST(kills_leave_a_cache_that_works), TEST(every_fault_is_a_miss_or_not_stored));
}
