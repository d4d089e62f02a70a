/* test_tar.c - headers of every kind, damage, the list on the disk, and requests of files in a tar. */
#include "test.h"

#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#include "source/source.h"
#include "source/tar.h"
#include "source/tar_member.h"
#include "source/tar_table.h"

/* --- a tar being written --- */

static uint8_t tar[1 << 18];
static size_t tar_bytes;

static void seal(uint8_t *header)
{
    unsigned sum = 0;
    memset(header + 148, ' ', 8);
    for (int i = 0; i < 512; i++) sum += header[i];
    snprintf((char *)header + 148, 8, "%06o", sum);
}

/* A header; its place is returned, to be changed and sealed anew. */
static uint8_t *add_header(const char *name, char type, unsigned size)
{
    uint8_t *const h = tar + tar_bytes;
    memset(h, 0, 512);
    memcpy(h, name, strnlen(name, 100));
    memcpy(h + 100, "0000644\0000001750\0000001750\0", 24);
    snprintf((char *)h + 124, 12, "%011o", size);
    memcpy(h + 136, "14000000000", 12);
    h[156] = (uint8_t)type;
    memcpy(h + 257, "ustar\00000", 8);
    seal(h);
    tar_bytes += 512;
    return h;
}

static void add_body(const void *bytes, size_t size)
{
    memset(tar + tar_bytes, 0, (size + 511) / 512 * 512);
    memcpy(tar + tar_bytes, bytes, size);
    tar_bytes += (size + 511) / 512 * 512;
}

static size_t add_file(const char *name, const char *text)
{
    add_header(name, '0', (unsigned)strlen(text));
    const size_t at = tar_bytes;
    add_body(text, strlen(text));
    return at;
}

static void add_pax(const char *lines)
{
    add_header("pax", 'x', (unsigned)strlen(lines));
    add_body(lines, strlen(lines));
}

static void add_zeros(size_t size)
{
    memset(tar + tar_bytes, 0, (size + 511) / 512 * 512);
    tar_bytes += (size + 511) / 512 * 512;
}

static void end_tar(void)
{
    add_zeros(1024);
}

/* --- scanning it --- */

typedef struct seen_file {
    char name[400];
    uint64_t offset, size_bytes;
    stk_tar_kind kind;
} seen_file;

static seen_file seen[64];
static int seen_count;

static stk_status read_tar(void *context, uint64_t offset, uint8_t *buffer, size_t size_bytes, stk_error *err)
{
    CHECK(offset <= tar_bytes && size_bytes <= tar_bytes - offset);
    memcpy(buffer, tar + offset, size_bytes);
    return STK_OK;
}

static stk_status note_file(void *context, const stk_tar_entry *entry, stk_error *err)
{
    seen_file *const s = &seen[seen_count++];
    CHECK(seen_count <= 64 && entry->name.size_bytes < sizeof s->name);
    *s = (seen_file){.offset = entry->offset, .size_bytes = entry->size_bytes, .kind = entry->kind};
    memcpy(s->name, entry->name.data, entry->name.size_bytes);
    return STK_OK;
}

static stk_error scan_error;
static uint64_t damaged_at;

/* With windows of several sizes, which must not matter. */
static stk_status scan(void)
{
    static const size_t windows[] = {512, 1536, 1 << 20};
    stk_status status = STK_OK;
    static seen_file first[64];
    for (size_t i = 0; i < sizeof windows / sizeof *windows; i++) {
        const stk_tar_input input = {.read = read_tar, .total_bytes = tar_bytes, .window_bytes = windows[i]};
        const int before = seen_count;
        seen_count = 0;
        memset(seen, 0, sizeof seen);
        status = stk_tar_scan(&input, note_file, NULL, &damaged_at, &scan_error);
        if (i) CHECK(seen_count == before && memcmp(seen, first, sizeof seen) == 0);
        memcpy(first, seen, sizeof seen);
    }
    return status;
}

static void begin_tar(void)
{
    tar_bytes = 0;
}

static void check_file(int at, const char *name, uint64_t offset, uint64_t size)
{
    CHECK_STR(seen[at].name, name);
    CHECK_INT(seen[at].offset, offset);
    CHECK_INT(seen[at].size_bytes, size);
    CHECK_INT(seen[at].kind, STK_TAR_FILE);
}

static void files_are_found(void)
{
    begin_tar();
    add_header("folder/", '5', 0);
    const size_t a = add_file("folder/a.jpg", "the picture");
    add_header("link", '2', 700); /* whatever it states: no bytes follow */
    const size_t b = add_file("./b.txt", "");
    add_header("hard", '1', 99);
    uint8_t *const h = add_header("c.jpg", '0', 3);
    memcpy(h + 345, "a/long/prefix", 13);
    seal(h);
    const size_t c = tar_bytes;
    add_body("ccc", 3);
    add_header("fifo", '6', 0);
    add_header("old", 0, 2);
    const size_t d = tar_bytes;
    add_body("dd", 2);
    add_header("unknown", 'Z', 600); /* skipped with its bytes */
    add_zeros(600);
    const size_t e = add_file("last", "e");
    end_tar();
    add_file("behind the end", "x");
    CHECK_INT(scan(), STK_OK);
    CHECK_INT(damaged_at, UINT64_MAX);
    CHECK_INT(seen_count, 5);
    check_file(0, "folder/a.jpg", a, 11);
    check_file(1, "b.txt", b, 0);
    check_file(2, "a/long/prefix/c.jpg", c, 3);
    check_file(3, "old", d, 2);
    check_file(4, "last", e, 1);
}

static void names_and_sizes_may_be_long(void)
{
    char name[300], lines[400];
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = 0;
    begin_tar();
    add_header("././@LongLink", 'L', (unsigned)strlen(name) + 1);
    add_body(name, strlen(name) + 1);
    const size_t a = add_file("nnn", "a");
    const size_t b = add_file("short again", "bb");
    snprintf(lines, sizeof lines, "%zu path=%s\n", strlen(name) + 10, name);
    add_pax("19 comment=nothing\n30 mtime=1350244992.023960108\n");
    CHECK_INT(strlen(lines), strlen(name) + 10);
    add_pax(lines);
    const size_t c = add_file("cut short", "ccc");
    add_pax("10 size=5\n19 path=./\xc3\xa4/d=e.g\n");
    add_header("d", '0', 0);
    const size_t d = tar_bytes;
    add_body("ddddd", 5);
    add_header("global", 'g', 19);
    add_body("19 comment=nothing\n", 19);
    uint8_t *const h = add_header("base 256", '0', 0);
    memset(h + 124, 0, 12);
    h[124] = 0x80;
    h[135] = 7;
    seal(h);
    const size_t e = tar_bytes;
    add_body("eeeeeee", 7);
    CHECK_INT(scan(), STK_OK);
    CHECK_INT(damaged_at, UINT64_MAX); /* the end mark may be missing */
    CHECK_INT(seen_count, 5);
    check_file(0, name, a, 1);
    check_file(1, "short again", b, 2);
    check_file(2, name, c, 3);
    check_file(3, "\xc3\xa4/d=e.g", d, 5);
    check_file(4, "base 256", e, 7);
}

static void what_is_not_in_one_piece_is_named(void)
{
    begin_tar();
    uint8_t *const h = add_header("old sparse", 'S', 600);
    memcpy(h + 257, "ustar  ", 8);
    h[482] = 1;
    seal(h);
    add_zeros(512);
    tar[tar_bytes - 8] = 1; /* more of its map, and more */
    add_zeros(512 + 600);
    add_pax("22 GNU.sparse.major=1\n34 GNU.sparse.name=the/sparse one\n");
    add_file("./GNUSparseFile.0/the/sparse one", "x");
    add_file("dense", "y");
    end_tar();
    CHECK_INT(scan(), STK_OK);
    CHECK_INT(damaged_at, UINT64_MAX);
    CHECK_INT(seen_count, 3);
    CHECK_STR(seen[0].name, "old sparse");
    CHECK_INT(seen[0].kind, STK_TAR_SPARSE);
    CHECK_STR(seen[1].name, "the/sparse one");
    CHECK_INT(seen[1].kind, STK_TAR_SPARSE);
    CHECK_INT(seen[2].kind, STK_TAR_FILE);
}

static void damage_ends_the_list(void)
{
    begin_tar();
    add_file("a", "a");
    const size_t second = tar_bytes;
    add_file("b", "b");
    tar[second] ^= 1;
    CHECK_INT(scan(), STK_OK);
    CHECK_INT(seen_count, 1);
    CHECK_INT(damaged_at, second);

    tar[second] ^= 1;
    memset(tar + tar_bytes, 'x', 100); /* a piece of a header */
    tar_bytes += 100;
    CHECK_INT(scan(), STK_OK);
    CHECK_INT(seen_count, 2);
    CHECK_INT(damaged_at, tar_bytes - 100);

    begin_tar();
    add_file("a", "a");
    add_header("cut", '0', 5000);
    add_body("x", 1);
    CHECK_INT(scan(), STK_OK);
    CHECK_INT(seen_count, 2);
    CHECK_INT(seen[1].kind, STK_TAR_CUT);
    CHECK_INT(damaged_at, 1024);

    /* The last file need not be padded. */
    begin_tar();
    add_file("a", "abc");
    tar_bytes -= 509;
    CHECK_INT(scan(), STK_OK);
    CHECK_INT(seen_count, 1);
    CHECK_INT(damaged_at, UINT64_MAX);

    static const char *const broken[] = {"8 size=5\n", "10 size=x\n", "99 size=5\n", "size=5\n", "12 size5678\n", "4 =\n5", "29 size=99999999999999999999\n"};
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
        begin_tar();
        add_pax(broken[i]);
        add_file("a", "a");
        CHECK_INT(scan(), STK_OK);
        CHECK_MSG(seen_count == 0 && damaged_at == 0, "pax %zu", i);
    }

    begin_tar();
    CHECK_INT(scan(), STK_OK);
    CHECK_INT(seen_count, 0);
    memset(tar, 'x', tar_bytes = 2000);
    CHECK_INT(scan(), STK_ERR_MEDIA);
    CHECK_HAS(scan_error.message, "no tar");
    tar_bytes = 100;
    CHECK_INT(scan(), STK_ERR_MEDIA);
    memcpy(tar, "\x1f\x8b\x08", 3);
    CHECK_INT(scan(), STK_ERR_MEDIA_UNSUPPORTED);
    CHECK_HAS(scan_error.message, "gzip");
    memcpy(tar, "\x28\xb5\x2f\xfd", 4);
    CHECK_INT(scan(), STK_ERR_MEDIA_UNSUPPORTED);
    CHECK_HAS(scan_error.message, "zstd");
}

/* --- addresses --- */

static void addresses_are_taken_apart(void)
{
    stk_tar_member m;
    CHECK(stk_tar_member_parse(&m, stk_str_of("tar://a/b c.jpg::/data/x.tar")));
    CHECK(stk_str_is(m.name, "a/b c.jpg") && stk_str_is(m.tar, "/data/x.tar"));
    CHECK(stk_tar_member_parse(&m, stk_str_of("tar://./a::s3://bucket/k::ey")));
    CHECK(stk_str_is(m.name, "a") && stk_str_is(m.tar, "s3://bucket/k::ey"));
    CHECK(stk_tar_member_parse(&m, stk_str_of("tar:512+77::/x")));
    CHECK(m.name.size_bytes == 0 && m.offset == 512 && m.size_bytes == 77 && stk_str_is(m.tar, "/x"));
    static const char *const none[] = {"tar://a", "tar://::/x", "tar://a::", "tar:::/x", "tar:5::/x", "tar:5+::/x", "tar:+5::/x",
                                       "tar:5+5x::/x", "tar:-5+5::/x", "tar:9999999999999999999+5::/x", "/tar://a::/x", "", "tar:"};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        CHECK_MSG(!stk_tar_member_parse(&m, stk_str_of(none[i])), "%s", none[i]);
}

/* --- requests --- */

static char tar_path[600], lists[600];

static void save_tar(void)
{
    snprintf(tar_path, sizeof tar_path, "%s/shard.tar", test_folder());
    FILE *const file = fopen(tar_path, "wb");
    CHECK(file && fwrite(tar, 1, tar_bytes, file) == tar_bytes && fclose(file) == 0);
}

static uint8_t room[4096 + STK_PAD_BYTES];

static stk_request fetch(const char *which, uint64_t offset, uint64_t size_bytes, size_t capacity_bytes)
{
    static char address[900];
    stk_error err;
    stk_source *source;
    snprintf(address, sizeof address, "%s::%s", which, tar_path);
    stk_request r = {.address = stk_str_of(address), .offset = offset, .size_bytes = size_bytes, .buffer = room,
                     .capacity_bytes = capacity_bytes};
    memset(room, 0, sizeof room);
    CHECK_OK(stk_source_open(&source, &(stk_source_config){.file_threads = 2, .tar_lists = lists[0] ? lists : NULL}, &err), err);
    stk_source_submit(source, &r);
    CHECK(stk_source_reap(source, 20 * STK_S) == &r);
    stk_source_close(&source);
    CHECK(stk_str_is(r.address, address) && r.offset == offset && r.size_bytes == size_bytes);
    return r;
}

static void a_file_in_a_tar_comes_as_any_other(void)
{
    begin_tar();
    add_file("one", "0123456789");
    const size_t two = add_file("two", "two");
    add_file("two", "2222"); /* appended later: the one that counts */
    add_file("empty", "");
    end_tar();
    save_tar();
    for (int with_folder = 0; with_folder < 2; with_folder++) {
        if (with_folder) snprintf(lists, sizeof lists, "%s/lists", test_folder());
        stk_request r = fetch("tar://one", 0, UINT64_MAX, 4096);
        CHECK_OK(r.status, r.error);
        CHECK_INT(r.got_bytes, 10);
        CHECK_INT(r.total_bytes, 10);
        CHECK(r.mtime_ns > 0);
        CHECK_STR((char *)room, "0123456789");
        r = fetch("tar://one", 3, 4, 4);
        CHECK_STR((char *)room, "3456");
        CHECK_INT(r.total_bytes, 10);
        CHECK_INT(fetch("tar://one", 8, 100, 100).got_bytes, 2);
        CHECK_INT(fetch("tar://one", 80, 100, 100).got_bytes, 0);
        CHECK_INT(fetch("tar://one", UINT64_MAX, 100, 100).got_bytes, 0);
        r = fetch("tar://one", 0, 0, 0); /* only a look */
        CHECK_INT(r.status, STK_OK);
        CHECK_INT(r.total_bytes, 10);
        r = fetch("tar://one", 0, UINT64_MAX, 9);
        CHECK_INT(r.status, STK_ERR_MEDIA_LIMIT);
        CHECK_INT(r.total_bytes, 10);
        CHECK_INT(fetch("tar://two", 0, UINT64_MAX, 100).got_bytes, 4);
        CHECK_INT(fetch("tar://empty", 0, UINT64_MAX, 100).status, STK_OK);
        r = fetch("tar://three", 0, UINT64_MAX, 100);
        CHECK_INT(r.status, STK_ERR_MEDIA_MISSING);
        CHECK_HAS(r.error.message, "no file three");
    }
    lists[0] = 0;
    char which[64];
    snprintf(which, sizeof which, "tar:%zu+3", two);
    CHECK_INT(fetch(which, 0, UINT64_MAX, 100).got_bytes, 3);
    CHECK_STR((char *)room, "two");
    CHECK_INT(fetch("tar:0+1000000", 0, UINT64_MAX, 4096).status, STK_ERR_MEDIA_LIMIT);
    stk_request r = fetch("tar:4000+4000", 0, UINT64_MAX, 4096);
    CHECK_INT(r.status, STK_ERR_MEDIA);
    CHECK_HAS(r.error.message, "of a tar that has");
    CHECK_INT(fetch("tar:999999999999999999+999999999999999999", 5, 5, 100).status, STK_ERR_MEDIA);
    CHECK_INT(fetch("tar://a::tar://b", 0, UINT64_MAX, 100).status, STK_ERR_MEDIA);
    CHECK_INT(fetch("tar://a::data:image/png;base64,", 0, UINT64_MAX, 100).status, STK_ERR_MEDIA);
    snprintf(tar_path, sizeof tar_path, "%s/none.tar", test_folder());
    CHECK_INT(fetch("tar://one", 0, UINT64_MAX, 100).status, STK_ERR_MEDIA_MISSING);
}

static void a_tar_that_changes_is_listed_anew(void)
{
    begin_tar();
    add_file("a", "first");
    save_tar();
    CHECK_INT(fetch("tar://a", 0, UINT64_MAX, 100).got_bytes, 5);
    begin_tar();
    add_file("b", "xx");
    add_file("a", "other");
    save_tar();
    CHECK_INT(fetch("tar://a", 0, UINT64_MAX, 100).status, STK_OK);
    CHECK_STR((char *)room, "other");

    /* A list that is damaged is made anew, too. */
    char path[700];
    snprintf(path, sizeof path, "%s.stoker-members", tar_path);
    FILE *const file = fopen(path, "r+b");
    CHECK(file && fseek(file, 9, SEEK_SET) == 0 && fputc(7, file) == 7 && fclose(file) == 0);
    CHECK_INT(fetch("tar://b", 0, UINT64_MAX, 100).got_bytes, 2);
    snprintf(path, sizeof path, "%s.stoker-members.lock", tar_path);
    CHECK_INT(access(path, F_OK), -1);
}

static void faults_of_a_tar_are_told_apart(void)
{
    begin_tar();
    add_file("a", "a");
    uint8_t *const h = add_header("sparse", 'S', 1);
    memcpy(h + 257, "ustar  ", 8);
    seal(h);
    add_body("x", 1);
    add_header("cut", '0', 5000);
    add_body("x", 1);
    save_tar();
    CHECK_INT(fetch("tar://a", 0, UINT64_MAX, 100).status, STK_OK);
    CHECK_INT(fetch("tar://sparse", 0, UINT64_MAX, 100).status, STK_ERR_MEDIA_UNSUPPORTED);
    stk_request r = fetch("tar://cut", 0, UINT64_MAX, 100);
    CHECK_INT(r.status, STK_ERR_MEDIA);
    CHECK_HAS(r.error.message, "ends inside cut");
    r = fetch("tar://b", 0, UINT64_MAX, 100);
    CHECK_INT(r.status, STK_ERR_MEDIA);
    CHECK_HAS(r.error.message, "damaged at byte 2048");

    memset(tar, 'x', tar_bytes = 5000);
    save_tar();
    CHECK_INT(fetch("tar://a", 0, UINT64_MAX, 100).status, STK_ERR_MEDIA);

    /* Nowhere to keep the list. */
    begin_tar();
    add_file("a", "a");
    save_tar();
    snprintf(lists, sizeof lists, "%s/shard.tar/no", test_folder());
    r = fetch("tar://a", 0, UINT64_MAX, 100);
    CHECK_INT(r.status, STK_ERR_SYSTEM);
    CHECK_HAS(r.error.message, "set index_dir");
    lists[0] = 0;
}

/* Links that lead out of the allowed places are links of the tar, too. */
static void a_tar_must_lie_in_an_allowed_place(void)
{
    stk_error err;
    stk_places *places;
    char inside[600], link_path[700], address[800];
    begin_tar();
    add_file("a", "a");
    save_tar();
    snprintf(inside, sizeof inside, "%s/inside", test_folder());
    snprintf(link_path, sizeof link_path, "%s/link.tar", inside);
    CHECK(mkdir(inside, 0700) == 0 && symlink(tar_path, link_path) == 0);
    CHECK_OK(stk_places_create(&places, &(stk_str){inside, strlen(inside)}, 1, &err), err);
    stk_source *source;
    CHECK_OK(stk_source_open(&source, &(stk_source_config){.file_threads = 1}, &err), err);
    snprintf(address, sizeof address, "tar://a::%s", link_path);
    stk_request r = {.address = stk_str_of(address), .places = places, .size_bytes = UINT64_MAX, .buffer = room, .capacity_bytes = 100};
    stk_source_submit(source, &r);
    CHECK(stk_source_reap(source, 20 * STK_S) == &r);
    CHECK_INT(r.status, STK_ERR_MEDIA_DENIED);
    stk_source_close(&source);
    stk_places_destroy(places);
}

/* Several processes ask for files of a tar that has no list yet. */
static void processes_make_one_list(void)
{
    enum { FILES = 400, PROCESSES = 4 };
    begin_tar();
    for (int i = 0; i < FILES; i++) {
        char name[32];
        snprintf(name, sizeof name, "%06d.txt", i * 7919 % FILES);
        add_header(name, '0', 0);
    }
    save_tar();
    pid_t child[PROCESSES];
    for (int p = 0; p < PROCESSES; p++) {
        child[p] = fork();
        CHECK(child[p] >= 0);
        if (child[p]) continue;
        for (int i = p; i < FILES; i += 37) {
            char which[64];
            snprintf(which, sizeof which, "tar://%06d.txt", i);
            if (fetch(which, 0, UINT64_MAX, 10).status != STK_OK) _exit(1);
        }
        _exit(0);
    }
    for (int p = 0; p < PROCESSES; p++) {
        int status;
        CHECK(waitpid(child[p], &status, 0) == child[p]);
        CHECK_INT(status, 0);
    }
}

int main(int argc, char **argv)
{
    TEST_MAIN(argc, argv, TEST(files_are_found), TEST(names_and_sizes_may_be_long), TEST(what_is_not_in_one_piece_is_named),
              TEST(damage_ends_the_list), TEST(addresses_are_taken_apart), TEST(a_file_in_a_tar_comes_as_any_other),
              TEST(a_tar_that_changes_is_listed_anew), TEST(faults_of_a_tar_are_told_apart),
              TEST(a_tar_must_lie_in_an_allowed_place), TEST(processes_make_one_list));
}
