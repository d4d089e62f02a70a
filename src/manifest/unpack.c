/* unpack.c - gzip members and zstd frames, one behind the other, into a file that is there as a whole or not at all.
 *
 * Not here: which manifests there are (files.c), what is in them (split.c). */
#define XXH_INLINE_ALL /* for a streaming state on the stack */
#include <xxhash.h>

#include "manifest/unpack.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include "base/clock.h"
#include "base/fault.h"
#include "manifest/index_build.h"

enum { PIECE_BYTES = 256 << 10, RECEIPT_BYTES_MAX = 1024, WAIT_MS = 50 };
static const stk_ns REPORT_EVERY_NS = 200 * STK_MS;

/* Text packs 3 to 30 times, lines that are all alike some hundred times; deflate ends at 1,032.  What is beyond would fill
 * a disk from a few bytes. */
enum { RATIO_MAX = 1000 };
static const uint64_t RATIO_FLOOR_BYTES = 64 << 20;

/* What is known of the unpacked file. */
typedef struct receipt {
    uint64_t packed_bytes;
    stk_index_stamp packed_stamp;
    uint8_t packed_digest[16];
    uint64_t unpacked_bytes;
} receipt;

typedef struct unpacker {
    const stk_index_spec *spec;
    const char *path; /* of the manifest, for words and names */
    const char *file; /* of its bytes */
    const char *folder; /* of what is made; NULL: beside it */
    stk_packing packing;
    int fd;
    struct stat info;
    stk_index_stamp stamp;
    bool digest_known;
    uint8_t digest[16];
    char receipt_path[4096];

    /* While unpacking. */
    stk_save save;
    uint8_t *in, *out; /* PIECE_BYTES each */
    uint64_t read_bytes, written_bytes;
    XXH3_state_t read_state;
    stk_ns reported_ns;
} unpacker;

stk_packing stk_packing_of(const uint8_t *data, size_t size_bytes)
{
    if (size_bytes >= 2 && data[0] == 0x1F && data[1] == 0x8B) return STK_PACKING_GZIP;
    if (size_bytes < 4) return STK_PACKING_NONE;
    if (memcmp(data, "\x28\xB5\x2F\xFD", 4) == 0) return STK_PACKING_ZSTD;
    /* A frame to be skipped, with which parallel compressors begin. */
    if ((data[0] & 0xF0) == 0x50 && memcmp(data + 1, "\x2A\x4D\x18", 3) == 0) return STK_PACKING_ZSTD;
    return STK_PACKING_NONE;
}

/* --- errors --- */

static stk_status fail_reading(const unpacker *u, stk_error *err)
{
    (void)stk_fail_errno(err, "cannot read the manifest");
    if (err) err->status = STK_ERR_MANIFEST;
    stk_error_file(err, u->path, 0);
    stk_error_stage(err, STK_STAGE_MANIFEST);
    return STK_ERR_MANIFEST;
}

static stk_status refuse(const unpacker *u, stk_error *err, const char *what)
{
    (void)stk_fail_at(err, STK_ERR_MANIFEST, u->path, 0, "%s", what);
    stk_error_stage(err, STK_STAGE_MANIFEST);
    return STK_ERR_MANIFEST;
}

static stk_status refuse_truncated(const unpacker *u, stk_error *err)
{
    return refuse(u, err, "the compressed manifest ends too early: it was cut off; fetch or make it again");
}

static stk_status refuse_damaged(const unpacker *u, stk_error *err, const char *words)
{
    char text[200];
    snprintf(text, sizeof text, "the compressed manifest is damaged (%.100s): fetch or make it again", words);
    return refuse(u, err, text);
}

static stk_status refuse_rest(const unpacker *u, stk_error *err)
{
    return refuse(u, err, "what stands behind the end of the compressed data is no further part of it: fetch or make the file again");
}

static stk_status nomem(const unpacker *u, stk_error *err)
{
    return stk_fail_at(err, STK_ERR_NOMEM, u->path, 0, "out of memory: unpacking the manifest");
}

/* Interrupted, unpacking starts anew: there is no way into the middle of a compressed file. */
static stk_status report(const unpacker *u, const char *phase, uint64_t done_bytes, stk_error *err)
{
    const stk_status status = stk_build_report(u->spec, phase, done_bytes, (uint64_t)u->info.st_size, err);
    if (status == STK_ERR_INTERRUPTED) {
        (void)stk_fail_at(err, status, u->path, 0, "the unpacking was interrupted: it starts anew next time");
        stk_error_stage(err, STK_STAGE_INDEX);
    }
    return status;
}

static stk_status report_sometimes(unpacker *u, const char *phase, uint64_t done_bytes, stk_error *err)
{
    const stk_ns now = stk_now();
    if (u->reported_ns && now - u->reported_ns < REPORT_EVERY_NS) return STK_OK;
    u->reported_ns = now;
    return report(u, phase, done_bytes, err);
}

/* --- bytes in, bytes out --- */

/* The next piece of the compressed file, 0 bytes at its end. */
static stk_status read_piece(unpacker *u, const char *phase, size_t *size_bytes, stk_error *err)
{
    STK_TRY(report_sometimes(u, phase, u->read_bytes, err));
    ssize_t got;
    do {
        got = stk_fault(STK_FAULT_FILE_READ) ? (errno = EIO, -1) : pread(u->fd, u->in, PIECE_BYTES, (off_t)u->read_bytes);
    } while (got < 0 && errno == EINTR);
    if (got < 0) return fail_reading(u, err);
    XXH3_128bits_update(&u->read_state, u->in, (size_t)got);
    u->read_bytes += (uint64_t)got;
    *size_bytes = (size_t)got;
    return STK_OK;
}

static void start_reading(unpacker *u)
{
    u->read_bytes = 0;
    u->reported_ns = 0;
    XXH3_128bits_reset(&u->read_state);
}

static void digest_of_read(const unpacker *u, uint8_t digest[16])
{
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(&u->read_state));
    memcpy(digest, canonical.digest, 16);
}

/* The folder that takes what is unpacked is a choice of the user. */
static stk_status fail_writing(stk_status status, stk_error *err)
{
    if (!err || status != STK_ERR_SYSTEM) return status;
    const bool full = err->code == ENOSPC || err->code == EDQUOT;
    const size_t length = strlen(err->message);
    snprintf(err->message + length, sizeof err->message - length, "%s",
             full ? " (make room, or set index_dir to another disk)" : " (set index_dir to a folder that can be written)");
    stk_error_stage(err, STK_STAGE_INDEX);
    return status;
}

static stk_status write_piece(unpacker *u, size_t size_bytes, stk_error *err)
{
    u->written_bytes += size_bytes;
    if (u->written_bytes > RATIO_FLOOR_BYTES && (u->written_bytes - RATIO_FLOOR_BYTES) / RATIO_MAX > (uint64_t)u->info.st_size)
        return refuse(u, err, "the compressed manifest unpacks to over 1000 times its size, as no text does: if it is right, unpack it by hand");
    const stk_status status = stk_save_write(&u->save, u->out, size_bytes, err);
    return status < 0 ? fail_writing(status, err) : STK_OK;
}

/* --- gzip --- */

/* One call of inflate, and what it made.  STK_END: the end of a member. */
static stk_status inflate_piece(unpacker *u, z_stream *z, uint64_t members, stk_error *err)
{
    z->next_out = u->out;
    z->avail_out = PIECE_BYTES;
    const int code = inflate(z, Z_NO_FLUSH);
    STK_TRY(write_piece(u, PIECE_BYTES - z->avail_out, err));
    switch (code) {
    case Z_OK:
    case Z_BUF_ERROR: return STK_OK; /* the latter: it wants more input */
    case Z_STREAM_END: return STK_END;
    case Z_MEM_ERROR: return nomem(u, err);
    default: return members && z->total_out == 0 ? refuse_rest(u, err) : refuse_damaged(u, err, z->msg ? z->msg : "no gzip");
    }
}

static stk_status unpack_members(unpacker *u, z_stream *z, stk_error *err)
{
    uint64_t members = 0;
    bool inside = true; /* a member; between two of them the file may end */
    for (;;) {
        if (z->avail_in == 0) {
            size_t got_bytes;
            STK_TRY(read_piece(u, "unpacking", &got_bytes, err));
            if (got_bytes == 0 && inside) return refuse_truncated(u, err);
            if (got_bytes == 0) return STK_OK;
            z->next_in = u->in;
            z->avail_in = (uInt)got_bytes;
        }
        if (!inside) {
            if (inflateReset(z) != Z_OK) return nomem(u, err);
            inside = true;
        }
        /* Input may be used up while output waits: call on until there is room left over. */
        stk_status status;
        do status = inflate_piece(u, z, members, err);
        while (status == STK_OK && z->avail_out == 0);
        if (status < 0) return status;
        if (status == STK_END) {
            members++;
            inside = false;
        }
    }
}

static stk_status unpack_gzip(unpacker *u, stk_error *err)
{
    z_stream z = {0};
    if (inflateInit2(&z, MAX_WBITS + 16) != Z_OK) return nomem(u, err);
    const stk_status status = unpack_members(u, &z, err);
    inflateEnd(&z);
    return status;
}

/* --- zstd --- */

static stk_status unpack_frames(unpacker *u, ZSTD_DCtx *context, stk_error *err)
{
    uint64_t frames = 0;
    bool inside = true, any = false; /* inside a frame, and any byte of it was made */
    for (;;) {
        size_t got_bytes;
        STK_TRY(read_piece(u, "unpacking", &got_bytes, err));
        if (got_bytes == 0) return inside ? refuse_truncated(u, err) : STK_OK;
        ZSTD_inBuffer in = {u->in, got_bytes, 0};
        ZSTD_outBuffer out = {u->out, PIECE_BYTES, PIECE_BYTES};
        /* A full output may hide more of it. */
        while (in.pos < in.size || (inside && out.pos == out.size)) {
            out.pos = 0;
            const size_t left = ZSTD_decompressStream(context, &out, &in);
            if (ZSTD_isError(left) && frames && !any) return refuse_rest(u, err);
            if (ZSTD_isError(left)) return refuse_damaged(u, err, ZSTD_getErrorName(left));
            STK_TRY(write_piece(u, out.pos, err));
            inside = left != 0;
            any = inside && (any || out.pos > 0);
            frames += !inside;
        }
    }
}

static stk_status unpack_zstd(unpacker *u, stk_error *err)
{
    ZSTD_DCtx *const context = ZSTD_createDCtx();
    if (!context) return nomem(u, err);
    const stk_status status = unpack_frames(u, context, err);
    ZSTD_freeDCtx(context);
    return status;
}

/* --- the receipt --- */

static void print_receipt(char text[RECEIPT_BYTES_MAX], const receipt *r)
{
    char digest[33];
    for (int i = 0; i < 16; i++) snprintf(digest + i * 2, 3, "%02x", r->packed_digest[i]);
    const int length = snprintf(text, RECEIPT_BYTES_MAX,
                                "stoker-unpacked 1\npacked_bytes %" PRIu64 "\npacked_mtime_ns %" PRIu64 "\npacked_inode %" PRIu64
                                "\npacked_digest %s\nunpacked_bytes %" PRIu64 "\n",
                                r->packed_bytes, r->packed_stamp.mtime_ns, r->packed_stamp.inode, digest, r->unpacked_bytes);
    snprintf(text + length, RECEIPT_BYTES_MAX - (size_t)length, "checksum %016" PRIx64 "\n", (uint64_t)XXH3_64bits(text, (size_t)length));
}

/* False: there is none, or it is not as one is written. */
static bool read_receipt(receipt *r, const char *path)
{
    char *text, again[RECEIPT_BYTES_MAX], digest[33];
    size_t size_bytes;
    if (stk_file_read(&text, &size_bytes, path, RECEIPT_BYTES_MAX - 1, STK_TAG_INDEX, NULL) < 0) return false;
    *r = (receipt){0};
    bool good = sscanf(text, "stoker-unpacked 1 packed_bytes %" SCNu64 " packed_mtime_ns %" SCNu64 " packed_inode %" SCNu64
                       " packed_digest %32[0-9a-f] unpacked_bytes %" SCNu64,
                       &r->packed_bytes, &r->packed_stamp.mtime_ns, &r->packed_stamp.inode, digest, &r->unpacked_bytes) == 5;
    unsigned byte;
    for (int i = 0; good && i < 16; i++) {
        good = sscanf(digest + i * 2, "%2x", &byte) == 1;
        r->packed_digest[i] = (uint8_t)byte;
    }
    /* What reads so and is written otherwise is not ours, or is damaged. */
    if (good) print_receipt(again, r);
    good = good && strcmp(text, again) == 0;
    stk_free(text);
    return good;
}

static void name_unpacked(char path[4096], const unpacker *u, const uint8_t digest[16])
{
    const size_t stem = strlen(u->receipt_path) - strlen("source");
    char *const end = path + snprintf(path, 4096, "%.*sunpacked-", (int)stem, u->receipt_path);
    for (int i = 0; i < 8; i++) snprintf(end + i * 2, 3, "%02x", digest[i]);
}

/* --- find --- */

static stk_status know_digest(unpacker *u, stk_error *err)
{
    if (u->digest_known) return STK_OK;
    start_reading(u);
    for (size_t got_bytes = 1; got_bytes;) STK_TRY(read_piece(u, "reading", &got_bytes, err));
    digest_of_read(u, u->digest);
    u->digest_known = true;
    return STK_OK;
}

/* STK_OK: the unpacked file is there, and path names it.  STK_AGAIN: it is not. */
static stk_status find_unpacked(unpacker *u, char path[4096], stk_error *err)
{
    receipt r;
    if (!read_receipt(&r, u->receipt_path) || r.packed_bytes != (uint64_t)u->info.st_size) return STK_AGAIN;
    const bool same_stamp = r.packed_stamp.mtime_ns == u->stamp.mtime_ns && r.packed_stamp.inode == u->stamp.inode;
    if (!same_stamp || !u->stamp.mtime_ns) {
        STK_TRY(know_digest(u, err));
        if (memcmp(r.packed_digest, u->digest, 16) != 0) return STK_AGAIN;
    }
    struct stat info;
    name_unpacked(path, u, r.packed_digest);
    /* Its length is checked too: a copy that was cut off is not the end of the data. */
    if (stat(path, &info) || !S_ISREG(info.st_mode) || (uint64_t)info.st_size != r.unpacked_bytes) return STK_AGAIN;
    if (!same_stamp && u->stamp.mtime_ns && u->spec->mode != STK_INDEX_REQUIRE) {
        char text[RECEIPT_BYTES_MAX];
        r.packed_stamp = u->stamp;
        print_receipt(text, &r);
        /* Where it cannot be written, the next one reads the compressed bytes again. */
        if (stk_file_save(u->receipt_path, text, strlen(text), NULL) < 0) return STK_OK;
    }
    return STK_OK;
}

/* --- make --- */

/* What earlier contents left, and processes that were killed.  Only with the lock. */
static void remove_earlier(const unpacker *u)
{
    char folder[4096], prefix[4096], stray[8300];
    if (stk_path_folder(folder, sizeof folder, u->receipt_path, NULL) < 0) return;
    const char *const name = strrchr(u->receipt_path, '/') + 1;
    snprintf(prefix, sizeof prefix, "%.*sunpacked-", (int)(strlen(name) - strlen("source")), name);
    DIR *const dir = opendir(folder);
    if (!dir) return;
    for (const struct dirent *entry; (entry = readdir(dir));) {
        if (strncmp(entry->d_name, prefix, strlen(prefix)) != 0) continue;
        snprintf(stray, sizeof stray, "%s/%s", folder, entry->d_name);
        unlink(stray);
    }
    closedir(dir);
}

/* Unpack into the file that u->save has open, and see that it is of the bytes that name it. */
static stk_status fill(unpacker *u, stk_error *err)
{
    start_reading(u);
    u->written_bytes = 0;
    STK_TRY(u->packing == STK_PACKING_GZIP ? unpack_gzip(u, err) : unpack_zstd(u, err));
    uint8_t digest[16];
    digest_of_read(u, digest);
    if (memcmp(digest, u->digest, 16) != 0 || u->read_bytes != (uint64_t)u->info.st_size)
        return refuse(u, err, "the manifest changed while it was unpacked: run again");
    return STK_OK;
}

static stk_status make_unpacked(unpacker *u, char path[4096], stk_error *err)
{
    STK_TRY(know_digest(u, err));
    name_unpacked(path, u, u->digest);
    remove_earlier(u);
    stk_status status = stk_save_open(&u->save, path, err);
    if (status < 0) return fail_writing(status, err);
    status = fill(u, err);
    if (status < 0) {
        stk_save_abandon(&u->save);
        return status;
    }
    status = stk_save_commit(&u->save, err);
    if (status < 0) return fail_writing(status, err);
    char text[RECEIPT_BYTES_MAX];
    receipt r = {.packed_bytes = (uint64_t)u->info.st_size, .packed_stamp = u->stamp, .unpacked_bytes = u->written_bytes};
    memcpy(r.packed_digest, u->digest, 16);
    print_receipt(text, &r);
    status = stk_file_save(u->receipt_path, text, strlen(text), err);
    return status < 0 ? fail_writing(status, err) : STK_OK;
}

/* --- all of it --- */

static stk_status wait_for_other(const unpacker *u, stk_error *err)
{
    STK_TRY(stk_build_report(u->spec, "waiting", 0, 0, err));
    nanosleep(&(struct timespec){.tv_nsec = WAIT_MS * 1000000L}, NULL);
    return STK_OK;
}

/* The discipline of an index (index.c): look, lock, look again, make. */
static stk_status bring_unpacked(unpacker *u, char path[4096], stk_error *err)
{
    char lock_path[4200];
    snprintf(lock_path, sizeof lock_path, "%s.part", u->receipt_path);
    for (;;) {
        stk_status status = find_unpacked(u, path, err);
        if (status != STK_AGAIN) return status;
        if (u->spec->mode == STK_INDEX_REQUIRE) {
            (void)stk_fail_at(err, STK_ERR_INDEX, u->path, 0,
                              "the manifest is compressed and was not unpacked, and index is `require`: run `stoker index` first");
            stk_error_stage(err, STK_STAGE_INDEX);
            return STK_ERR_INDEX;
        }
        if (u->folder) (void)mkdir(u->folder, 0777); /* what is wrong with it shows with the lock */
        stk_journal lock;
        status = stk_journal_lock(&lock, lock_path, err);
        if (status == STK_AGAIN) {
            STK_TRY(wait_for_other(u, err));
            continue;
        }
        STK_TRY(status);
        status = find_unpacked(u, path, err);
        if (status == STK_AGAIN) status = make_unpacked(u, path, err);
        stk_journal_close(&lock, false);
        return status;
    }
}

static stk_status open_packed(unpacker *u, stk_error *err)
{
    /* Not to wait for a writer when the path is a pipe. */
    u->fd = stk_fault(STK_FAULT_FILE_OPEN) ? (errno = EACCES, -1) : open(u->file, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (u->fd < 0 || fstat(u->fd, &u->info)) return fail_reading(u, err);
    if (!S_ISREG(u->info.st_mode)) return STK_OK; /* the index says so */
    uint8_t first[4];
    ssize_t got;
    do got = pread(u->fd, first, sizeof first, 0);
    while (got < 0 && errno == EINTR);
    if (got < 0) return fail_reading(u, err);
    u->packing = stk_packing_of(first, (size_t)got);
    u->stamp = stk_index_stamp_of(&u->info);
    return STK_OK;
}

stk_status stk_unpack(char **out, const stk_index_spec *spec, const char *path, const char *file, const char *folder, stk_error *err)
{
    *out = NULL;
    unpacker *const u = stk_alloc(STK_TAG_INDEX, sizeof *u);
    if (!u) return stk_fail(err, STK_ERR_NOMEM, "out of memory: the index of %s", spec->name);
    *u = (unpacker){.spec = spec, .path = path, .file = file, .folder = folder, .fd = -1};
    char unpacked[4096];
    stk_status status = open_packed(u, err);
    if (status == STK_OK && u->packing != STK_PACKING_NONE) {
        u->in = stk_alloc(STK_TAG_INDEX, PIECE_BYTES);
        u->out = stk_alloc(STK_TAG_INDEX, PIECE_BYTES);
        status = u->in && u->out ? stk_index_sidecar_path(u->receipt_path, folder, path, "source", err) : nomem(u, err);
        if (status == STK_OK) status = bring_unpacked(u, unpacked, err);
    }
    if (status == STK_OK) {
        *out = stk_strdup(STK_TAG_INDEX, u->packing == STK_PACKING_NONE ? file : unpacked);
        if (!*out) status = nomem(u, err);
    }
    if (u->fd >= 0) close(u->fd);
    stk_free(u->in);
    stk_free(u->out);
    stk_free(u);
    return status;
}
