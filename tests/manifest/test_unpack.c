/* Compressed manifests: what comes out, what is refused, and what is kept between calls. */
#include "test.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <zlib.h>
#include <zstd.h>

#include "base/fault.h"
#include "base/file.h"
#include "manifest/unpack.h"

enum { MOST = 1 << 16 };

static const char records[] = "{\"a\": 1}\n{\"b\": \"two two two two two\"}\n\n{\"c\": 3}";

static char *path_of(const char *name)
{
    static char path[4][400];
    static int at;
    at = (at + 1) % 4;
    snprintf(path[at], sizeof path[at], "%s/%s", test_folder(), name);
    return path[at];
}

static void make_folder(const char *name)
{
    CHECK(mkdir(path_of(name), 0700) == 0);
}

static void write_bytes(const char *name, const void *data, size_t size_bytes)
{
    FILE *const file = fopen(path_of(name), "wb");
    CHECK(file != NULL);
    CHECK(fwrite(data, 1, size_bytes, file) == size_bytes);
    CHECK(fclose(file) == 0);
}

/* As old as a file that nobody is writing. */
static void set_time(const char *name, time_t seconds)
{
    CHECK(utimensat(AT_FDCWD, path_of(name), (struct timespec[2]){{.tv_sec = seconds}, {.tv_sec = seconds}}, 0) == 0);
}

typedef struct packed {
    uint8_t bytes[MOST];
    size_t size_bytes;
} packed;

static void add_member(packed *p, const char *text, size_t size_bytes)
{
    z_stream z = {.next_in = (Bytef *)(uintptr_t)text, .avail_in = (uInt)size_bytes, .next_out = p->bytes + p->size_bytes,
                  .avail_out = (uInt)(MOST - p->size_bytes)};
    CHECK(deflateInit2(&z, 9, Z_DEFLATED, MAX_WBITS + 16, 8, Z_DEFAULT_STRATEGY) == Z_OK);
    CHECK(deflate(&z, Z_FINISH) == Z_STREAM_END);
    p->size_bytes += z.total_out;
    deflateEnd(&z);
}

static void add_frame(packed *p, const char *text, size_t size_bytes)
{
    ZSTD_CCtx *const c = ZSTD_createCCtx();
    CHECK(!ZSTD_isError(ZSTD_CCtx_setParameter(c, ZSTD_c_checksumFlag, 1)));
    const size_t put = ZSTD_compress2(c, p->bytes + p->size_bytes, MOST - p->size_bytes, text, size_bytes);
    CHECK(!ZSTD_isError(put));
    p->size_bytes += put;
    ZSTD_freeCCtx(c);
}

static packed two_members(void)
{
    packed p = {.size_bytes = 0};
    add_member(&p, records, 20);
    add_member(&p, records + 20, strlen(records) - 20);
    return p;
}

static packed two_frames(void)
{
    /* A frame to be skipped stands first, as parallel compressors write it. */
    packed p = {.bytes = "\x50\x2A\x4D\x18\x04\0\0\0skip", .size_bytes = 12};
    add_frame(&p, records, 20);
    add_frame(&p, records + 20, strlen(records) - 20);
    return p;
}

static stk_status unpack_as(char **out, const char *name, stk_index_spec spec, stk_error *err)
{
    spec.name = "test";
    return stk_unpack(out, &spec, path_of(name), path_of(name), spec.index_dir, err);
}

static stk_status unpack(char **out, const char *name, stk_error *err)
{
    return unpack_as(out, name, (stk_index_spec){.mode = STK_INDEX_AUTO}, err);
}

/* How many names of a folder begin so. */
static size_t count_names(const char *folder, const char *begin)
{
    DIR *const dir = opendir(path_of(folder));
    CHECK(dir != NULL);
    size_t count = 0;
    for (const struct dirent *entry; (entry = readdir(dir));) count += strncmp(entry->d_name, begin, strlen(begin)) == 0;
    closedir(dir);
    return count;
}

static void expect_text(const char *path, const char *text, size_t size_bytes)
{
    char *got;
    size_t got_bytes;
    stk_error err;
    CHECK_OK(stk_file_read(&got, &got_bytes, path, 1 << 28, STK_TAG_INDEX, &err), err);
    CHECK_INT(got_bytes, size_bytes);
    CHECK(memcmp(got, text, size_bytes) == 0);
    stk_free(got);
}

static void expect_unpacked(const char *name, const char *text, size_t size_bytes)
{
    stk_error err;
    char *path;
    CHECK_OK(unpack(&path, name, &err), err);
    CHECK_HAS(path, ".stoker-unpacked-");
    expect_text(path, text, size_bytes);
    stk_free(path);
}

static ino_t inode_of(const char *path)
{
    struct stat info;
    CHECK(stat(path, &info) == 0);
    return info.st_ino;
}

/* --- what comes out --- */

/* The bytes decide, not the name. */
static void plain_manifests_stay_where_they_are(void)
{
    make_folder("plain");
    write_bytes("plain/a.jsonl.gz", records, strlen(records));
    write_bytes("plain/none.zst", "", 0);
    for (int i = 0; i < 2; i++) {
        const char *const name = i ? "plain/none.zst" : "plain/a.jsonl.gz";
        stk_error err;
        char *path;
        CHECK_OK(unpack(&path, name, &err), err);
        CHECK_STR(path, path_of(name));
        stk_free(path);
    }
    CHECK_INT(count_names("plain", "a.jsonl.gz."), 0);
}

static void members_and_frames_are_joined(void)
{
    make_folder("joined");
    const packed gzip = two_members(), zstd = two_frames();
    write_bytes("joined/a.jsonl", gzip.bytes, gzip.size_bytes);
    expect_unpacked("joined/a.jsonl", records, strlen(records));
    write_bytes("joined/b.jsonl.zst", zstd.bytes, zstd.size_bytes);
    expect_unpacked("joined/b.jsonl.zst", records, strlen(records));

    packed nothing = {.size_bytes = 0};
    add_member(&nothing, "", 0);
    add_member(&nothing, "", 0);
    write_bytes("joined/none.gz", nothing.bytes, nothing.size_bytes);
    expect_unpacked("joined/none.gz", "", 0);
}

/* Larger than the pieces that are read and written, in members that end anywhere; memory does not grow with it. */
static void large_manifests(void)
{
    make_folder("large");
    enum { LARGE_BYTES = 3 << 20 };
    char *const text = malloc(LARGE_BYTES);
    CHECK(text != NULL);
    uint32_t state = 1;
    for (size_t i = 0; i < LARGE_BYTES; i++) text[i] = "0123456789abcdef"[(state = state * 1664525u + 1013904223u) >> 28];
    for (int zstd = 0; zstd < 2; zstd++) {
        FILE *const file = fopen(path_of("large/a"), "wb");
        CHECK(file != NULL);
        for (size_t at = 0; at < LARGE_BYTES; at += 60000) {
            packed p = {.size_bytes = 0};
            const size_t size_bytes = LARGE_BYTES - at < 60000 ? LARGE_BYTES - at : 60000;
            if (zstd) add_frame(&p, text + at, size_bytes);
            else add_member(&p, text + at, size_bytes);
            CHECK(fwrite(p.bytes, 1, p.size_bytes, file) == p.size_bytes);
        }
        CHECK(fclose(file) == 0);
        const uint64_t before = stk_alloc_count();
        char *path;
        stk_error err;
        CHECK_OK(unpack(&path, "large/a", &err), err);
        CHECK(stk_alloc_count() - before < 10);
        expect_text(path, text, LARGE_BYTES);
        stk_free(path);
    }
    free(text);
}

/* --- what is refused --- */

static void expect_refused(const char *name, const void *data, size_t size_bytes, const char *words)
{
    write_bytes(name, data, size_bytes);
    stk_error err;
    char *path;
    CHECK_MSG(unpack(&path, name, &err) == STK_ERR_MANIFEST, "%zu bytes are not refused", size_bytes);
    CHECK(path == NULL);
    CHECK_HAS(err.message, words);
    CHECK_STR(err.file, path_of(name));
    CHECK_INT(err.stage, STK_STAGE_MANIFEST);
    const char *const base = strrchr(name, '/') + 1;
    char folder[100];
    snprintf(folder, sizeof folder, "%.*s", (int)(base - 1 - name), name);
    CHECK_INT(count_names(folder, base), 1); /* itself: no part, no temporary file */
}

/* E07: the end of readable bytes is not the end of the data. */
static void what_is_cut_off_is_refused(void)
{
    make_folder("cut");
    packed gzip = {.size_bytes = 0};
    add_member(&gzip, records, strlen(records));
    for (size_t size = 2; size < gzip.size_bytes; size++) expect_refused("cut/a.gz", gzip.bytes, size, "ends too early");
    packed zstd = {.size_bytes = 0};
    add_frame(&zstd, records, strlen(records));
    for (size_t size = 4; size < zstd.size_bytes; size++) expect_refused("cut/a.zst", zstd.bytes, size, "ends too early");
    /* In the second of two parts too. */
    const packed members = two_members(), frames = two_frames();
    expect_refused("cut/b.gz", members.bytes, members.size_bytes - 1, "ends too early");
    expect_refused("cut/b.zst", frames.bytes, frames.size_bytes - 1, "ends too early");
}

/* Zeros too: they are what a copy that broke off leaves in a file whose size was set before. */
static void what_stands_behind_the_end_is_refused(void)
{
    make_folder("behind");
    for (int zstd = 0; zstd < 2; zstd++) {
        const char *const name = zstd ? "behind/a.zst" : "behind/a.gz";
        packed p = zstd ? two_frames() : two_members();
        memset(p.bytes + p.size_bytes, 0, 600);
        expect_refused(name, p.bytes, p.size_bytes + 600, "behind the end");
        memcpy(p.bytes + p.size_bytes, records, strlen(records));
        expect_refused(name, p.bytes, p.size_bytes + strlen(records), "behind the end");
        p.bytes[p.size_bytes] = 'x';
        expect_refused(name, p.bytes, p.size_bytes + 1, "");
    }
}

/* Each bit turned: refused, or one of a header that says nothing of the content. */
static void damage_is_found(void)
{
    make_folder("damage");
    size_t refused = 0, tried = 0;
    for (int zstd = 0; zstd < 2; zstd++) {
        packed p = zstd ? two_frames() : two_members();
        const char *const name = zstd ? "damage/a.zst" : "damage/a.gz";
        for (size_t bit = 32; bit < p.size_bytes * 8; bit++) { /* behind the magic */
            p.bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
            write_bytes(name, p.bytes, p.size_bytes);
            p.bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
            stk_error err;
            char *path;
            const stk_status status = unpack(&path, name, &err);
            tried++;
            refused += status < 0;
            if (status < 0) CHECK_INT(status, STK_ERR_MANIFEST);
            else expect_text(path, records, strlen(records));
            stk_free(path);
        }
    }
    CHECK_MSG(refused > tried / 2, "%zu of %zu", refused, tried);
}

/* Some kilobytes that would fill a disk. */
static void a_bomb_is_stopped(void)
{
    make_folder("bomb");
    const size_t size_bytes = 100 << 20;
    char *const zeros = calloc(1, size_bytes);
    CHECK(zeros != NULL);
    packed p = {.size_bytes = 0};
    add_frame(&p, zeros, size_bytes);
    expect_refused("bomb/a.zst", p.bytes, p.size_bytes, "over 1000 times");
    free(zeros);
}

/* --- what is kept --- */

static void unpacked_once(void)
{
    make_folder("once");
    packed p = two_members();
    write_bytes("once/a.jsonl.gz", p.bytes, p.size_bytes);
    set_time("once/a.jsonl.gz", 1000000000);
    stk_error err;
    char *first, *again;
    CHECK_OK(unpack(&first, "once/a.jsonl.gz", &err), err);
    const ino_t inode = inode_of(first);
    CHECK_INT(count_names("once", "a.jsonl.gz"), 3);
    CHECK_OK(unpack(&again, "once/a.jsonl.gz", &err), err);
    CHECK_STR(again, first);
    CHECK_INT(inode_of(again), inode);
    stk_free(again);

    /* Another time of the same bytes. */
    set_time("once/a.jsonl.gz", 1100000000);
    CHECK_OK(unpack(&again, "once/a.jsonl.gz", &err), err);
    CHECK_INT(inode_of(again), inode);
    stk_free(again);
    CHECK_OK(unpack_as(&again, "once/a.jsonl.gz", (stk_index_spec){.mode = STK_INDEX_REQUIRE}, &err), err);
    CHECK_STR(again, first);
    stk_free(again);

    /* Other bytes: under another name, and what was there has gone. */
    packed other = {.size_bytes = 0};
    add_member(&other, "{}\n", 3);
    write_bytes("once/a.jsonl.gz", other.bytes, other.size_bytes);
    CHECK_OK(unpack(&again, "once/a.jsonl.gz", &err), err);
    CHECK(strcmp(again, first) != 0);
    expect_text(again, "{}\n", 3);
    CHECK(access(first, F_OK) != 0);
    CHECK_INT(count_names("once", "a.jsonl.gz"), 3);
    stk_free(again);
    stk_free(first);
}

/* E07: a copy of the unpacked file that was cut off is not read as if it were whole. */
static void a_cut_copy_is_unpacked_again(void)
{
    make_folder("copy");
    const packed p = two_frames();
    write_bytes("copy/a.zst", p.bytes, p.size_bytes);
    stk_error err;
    char *path, *none;
    CHECK_OK(unpack(&path, "copy/a.zst", &err), err);
    CHECK(truncate(path, 30) == 0);
    CHECK_INT(unpack_as(&none, "copy/a.zst", (stk_index_spec){.mode = STK_INDEX_REQUIRE}, &err), STK_ERR_INDEX);
    CHECK(none == NULL);
    CHECK_HAS(err.message, "run `stoker index` first");
    expect_unpacked("copy/a.zst", records, strlen(records));
    /* So is one without its receipt, or with one that is damaged. */
    write_bytes("copy/a.zst.stoker-source", "stoker-unpacked 1\npacked_bytes 9\n", 33);
    expect_unpacked("copy/a.zst", records, strlen(records));
    CHECK(unlink(path_of("copy/a.zst.stoker-source")) == 0);
    expect_unpacked("copy/a.zst", records, strlen(records));
    CHECK_INT(count_names("copy", "a.zst"), 3);
    stk_free(path);
}

/* Manifests of one name do not take turns in a common folder. */
static void an_index_folder(void)
{
    make_folder("one");
    make_folder("two");
    const packed p = two_members();
    packed other = {.size_bytes = 0};
    add_member(&other, "{}\n", 3);
    write_bytes("one/a.gz", p.bytes, p.size_bytes);
    write_bytes("two/a.gz", other.bytes, other.size_bytes);
    char index_dir[400];
    snprintf(index_dir, sizeof index_dir, "%s", path_of("kept"));
    stk_error err;
    char *first, *second;
    CHECK_OK(unpack_as(&first, "one/a.gz", (stk_index_spec){.index_dir = index_dir}, &err), err);
    CHECK_OK(unpack_as(&second, "two/a.gz", (stk_index_spec){.index_dir = index_dir}, &err), err);
    CHECK(strncmp(first, index_dir, strlen(index_dir)) == 0 && strcmp(first, second) != 0);
    expect_text(first, records, strlen(records));
    expect_text(second, "{}\n", 3);
    CHECK_INT(count_names("one", "a.gz"), 1);
    CHECK_INT(count_names("kept", "a.gz"), 4);
    stk_free(first);
    stk_free(second);

    char *none;
    const char *const nowhere = path_of("one/a.gz/index");
    CHECK_INT(unpack_as(&none, "two/a.gz", (stk_index_spec){.index_dir = nowhere}, &err), STK_ERR_SYSTEM);
    CHECK_HAS(err.message, "index_dir");
}

static bool stop_while_unpacking(void *context, const char *set, const char *phase, uint64_t done, uint64_t total)
{
    CHECK_STR(set, "test");
    CHECK(done <= total);
    *(int *)context += 1;
    return strcmp(phase, "unpacking") != 0;
}

static void an_interrupt_leaves_nothing(void)
{
    make_folder("stopped");
    const packed p = two_members();
    write_bytes("stopped/a.gz", p.bytes, p.size_bytes);
    int calls = 0;
    const stk_index_progress progress = {stop_while_unpacking, &calls};
    stk_error err;
    char *path;
    CHECK_INT(unpack_as(&path, "stopped/a.gz", (stk_index_spec){.progress = &progress}, &err), STK_ERR_INTERRUPTED);
    CHECK_HAS(err.message, "starts anew");
    CHECK(calls >= 2 && path == NULL);
    CHECK_INT(count_names("stopped", "a.gz"), 1);
    expect_unpacked("stopped/a.gz", records, strlen(records));
}

static bool count_unpacking(void *context, const char *set, const char *phase, uint64_t done, uint64_t total)
{
    (void)set, (void)done, (void)total;
    *(int *)context += strcmp(phase, "unpacking") == 0;
    return true;
}

/* One process unpacks; the others wait, and find it done. */
static void one_of_many_processes_unpacks(void)
{
    make_folder("many");
    const packed p = two_frames();
    write_bytes("many/a.zst", p.bytes, p.size_bytes);
    enum { PROCESSES = 6 };
    pid_t child[PROCESSES];
    for (int i = 0; i < PROCESSES; i++) {
        child[i] = fork();
        CHECK(child[i] >= 0);
        if (child[i]) continue;
        int calls = 0;
        const stk_index_progress progress = {count_unpacking, &calls};
        stk_error err;
        char *path;
        const stk_status status = unpack_as(&path, "many/a.zst", (stk_index_spec){.progress = &progress}, &err);
        _exit(status < 0 ? 100 : calls > 0);
    }
    int made = 0;
    for (int i = 0; i < PROCESSES; i++) {
        int status;
        CHECK(waitpid(child[i], &status, 0) == child[i] && WIFEXITED(status));
        CHECK(WEXITSTATUS(status) <= 1);
        made += WEXITSTATUS(status);
    }
    CHECK_INT(made, 1);
    CHECK_INT(count_names("many", "a.zst"), 3);
}

static size_t count_temporary(const char *folder)
{
    DIR *const dir = opendir(path_of(folder));
    CHECK(dir != NULL);
    size_t count = 0;
    for (const struct dirent *entry; (entry = readdir(dir));) count += strstr(entry->d_name, ".tmp-") || strstr(entry->d_name, ".part");
    closedir(dir);
    return count;
}

/* Each call of the system fails once, first to last: an error or the right text, nothing half done, and the next run is clean. */
static void faults_leave_nothing_half_done(void)
{
#ifdef STK_FAULTS
    static const stk_fault_id ids[] = {STK_FAULT_ALLOC, STK_FAULT_FILE_OPEN, STK_FAULT_FILE_READ, STK_FAULT_FILE_READ_SHORT,
                                       STK_FAULT_FILE_WRITE, STK_FAULT_FSYNC, STK_FAULT_RENAME};
    make_folder("faults");
    const packed p = two_members();
    write_bytes("faults/a.gz", p.bytes, p.size_bytes);
    unsigned long failed = 0;
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++)
        for (unsigned long nth = 1;; nth++) {
            CHECK(nth < 100);
            (void)unlink(path_of("faults/a.gz.stoker-source"));
            char *path;
            stk_error err;
            stk_fault_set(ids[i], nth, false);
            const stk_status status = unpack(&path, "faults/a.gz", &err);
            const bool fired = stk_fault_seen(ids[i]) >= nth;
            stk_fault_set(ids[i], 0, false);
            failed += status < 0;
            if (status < 0) CHECK(path == NULL && err.message[0]);
            else expect_text(path, records, strlen(records));
            stk_free(path);
            CHECK_INT(count_temporary("faults"), 0);
            CHECK_INT(stk_alloc_bytes(STK_TAG_INDEX), 0);
            expect_unpacked("faults/a.gz", records, strlen(records));
            if (!fired) break;
        }
    CHECK(failed > 10);
#endif
    CHECK_INT(count_temporary("."), 0);
}

int main(int argc, char **argv)
{
    TEST_MAIN(argc, argv, TEST(plain_manifests_stay_where_they_are), TEST(members_and_frames_are_joined), TEST(large_manifests),
              TEST(what_is_cut_off_is_refused), TEST(what_stands_behind_the_end_is_refused), TEST(damage_is_found),
              TEST(a_bomb_is_stopped), TEST(unpacked_once), TEST(a_cut_copy_is_unpacked_again), TEST(an_index_folder),
              TEST(an_interrupt_leaves_nothing), TEST(one_of_many_processes_unpacks), TEST(faults_leave_nothing_half_done));
}
