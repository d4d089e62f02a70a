/* index_file.c - the form of a sidecar: check, checksum, write. */
#define XXH_INLINE_ALL /* for a streaming state on the stack */
#include <xxhash.h>

#include "manifest/index_file.h"

#include <assert.h>
#include <fcntl.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

/* A change of a file within this time of its last one may leave its time as it is. */
static const stk_ns STAMP_SETTLES_NS = 2 * STK_S;

static const char *const magic_of[] = {"STKMEDIA", "STKTEXTS", "STKLINES", "STKSIZES"};

void stk_index_hash(uint8_t digest[16], const void *data, size_t size_bytes)
{
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits(size_bytes ? data : "", size_bytes));
    memcpy(digest, canonical.digest, 16);
}

stk_index_stamp stk_index_stamp_of(const struct stat *info)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    const int64_t mtime_ns = (int64_t)info->st_mtim.tv_sec * STK_S + info->st_mtim.tv_nsec;
    const int64_t now_ns = (int64_t)now.tv_sec * STK_S + now.tv_nsec;
    if (mtime_ns <= 0 || now_ns - mtime_ns < STAMP_SETTLES_NS) return (stk_index_stamp){0};
    return (stk_index_stamp){(uint64_t)mtime_ns, info->st_ino};
}

stk_status stk_index_sidecar_path(char path[4096], const char *index_dir, const char *manifest, const char *suffix, stk_error *err)
{
    char folder[4096], name[512], real[4096];
    const char *const slash = strrchr(manifest, '/');
    const char *const base = slash ? slash + 1 : manifest;
    snprintf(name, sizeof name, "%.160s", base);
    if (index_dir || strlen(base) > 160) {
        uint8_t digest[16];
        if (strstr(manifest, "://") || !realpath(manifest, real)) snprintf(real, sizeof real, "%s", manifest);
        stk_index_hash(digest, real, strlen(real));
        char *const end = name + strlen(name);
        snprintf(end, 32, "-%02x%02x%02x%02x%02x%02x%02x%02x", digest[0], digest[1], digest[2], digest[3], digest[4],
                 digest[5], digest[6], digest[7]);
    }
    char *const end = name + strlen(name);
    snprintf(end, sizeof name - (size_t)(end - name), ".stoker-%.60s", suffix);
    if (index_dir) return stk_path_join(path, 4096, index_dir, name, err);
    STK_TRY(stk_path_folder(folder, sizeof folder, manifest, err));
    return stk_path_join(path, 4096, folder, name, err);
}

static stk_index_header without_stamp(const stk_index_header *header)
{
    stk_index_header plain = *header;
    plain.stamp = (stk_index_stamp){0};
    return plain;
}

uint64_t stk_index_checksum(stk_bytes bytes)
{
    const stk_index_header plain = without_stamp((const stk_index_header *)bytes.data);
    XXH3_state_t state;
    XXH3_64bits_reset(&state);
    XXH3_64bits_update(&state, &plain, sizeof plain);
    XXH3_64bits_update(&state, bytes.data + sizeof plain, bytes.size_bytes - sizeof plain - sizeof(uint64_t));
    return XXH3_64bits_digest(&state);
}

/* --- check --- */

static stk_status damaged(stk_error *err, const char *what)
{
    return stk_fail(err, STK_ERR_INDEX, "the index is damaged (%s): delete it, it is built anew", what);
}

/* What the header counts as records. */
static size_t item_bytes(stk_index_part part)
{
    switch (part) {
    case STK_INDEX_TEXT: return sizeof(stk_text_facts);
    case STK_INDEX_SIZES: return sizeof(stk_stated_size);
    default: return sizeof(stk_record_facts);
    }
}

/* Where each section ends; false when the counts are not those of a file of this size. */
static bool lay_out(const stk_index_header *h, stk_index_part part, size_t size_bytes, size_t end[5])
{
    const size_t each[5] = {item_bytes(part), sizeof(stk_media_facts), sizeof(stk_index_note), 1, sizeof(stk_index_seal)};
    const uint64_t count[5] = {h->record_count, h->media_count, h->words_count, h->etag_bytes, 1};
    size_t at = sizeof *h;
    if (h->etag_bytes % 8) return false;
    for (int i = 0; i < 5; i++) {
        size_t bytes;
        if (stk_mul_overflows(&bytes, count[i], each[i]) || stk_add_overflows(&at, at, bytes)) return false;
        end[i] = at;
    }
    return at == size_bytes;
}

/* An ETag goes into a header of a request: it is one word of printable characters. */
static bool is_word(const uint8_t *text, size_t size_bytes)
{
    for (size_t i = 0; i < size_bytes; i++)
        if (text[i] <= 0x20 || text[i] >= 0x7f) return false;
    return true;
}

static bool etag_is_fine(const stk_index_view *view, const stk_media_facts *media)
{
    const uint64_t at = media->mtime_ns & ~STK_MEDIA_OBJECT, end = view->header->etag_bytes;
    if (!(media->mtime_ns & STK_MEDIA_OBJECT)) return true;
    if (at >= end || view->etag[at] >= STK_MEDIA_ETAG_BYTES || view->etag[at] > end - at - 1) return false;
    return is_word(view->etag + at + 1, view->etag[at]);
}

static const char *records_fault(const stk_index_view *view)
{
    const stk_index_header *const h = view->header;
    uint64_t media_before = 0;
    for (uint64_t i = 0; i < h->record_count; i++) {
        const stk_record_facts *const r = &view->record[i];
        if (r->offset > h->key.manifest_bytes || r->size_bytes > h->key.manifest_bytes - r->offset || r->size_bytes == 0)
            return "a record outside the manifest";
        if (r->file_index != 0 || r->line == 0 || r->reason >= STK_INDEX_REASON_COUNT) return "a record out of range";
        if (r->first_media != media_before || r->media_count > h->media_count - media_before)
            return "a record without its media";
        media_before += r->media_count;
    }
    if (media_before != h->media_count) return "media without a record";
    for (uint64_t i = 0; i < h->media_count; i++)
        if (view->media[i].reason >= STK_INDEX_REASON_COUNT || !etag_is_fine(view, &view->media[i])) return "a medium out of range";
    return NULL;
}

static const char *texts_fault(const stk_index_view *view)
{
    if (view->header->media_count || view->header->etag_bytes) return "media in a text part";
    for (uint64_t i = 0; i < view->header->record_count; i++) {
        const stk_text_facts *const t = &view->text[i];
        if (t->reason >= STK_INDEX_REASON_COUNT || t->supervised_count > t->token_count) return "a text out of range";
    }
    return NULL;
}

static const char *sizes_fault(const stk_index_view *view)
{
    for (uint64_t i = 0; i < view->header->record_count; i++) {
        const stk_stated_size *const s = &view->size[i];
        if (i && stk_stated_compare(s - 1, s) >= 0) return "sizes out of order";
        if (s->width_px == 0 || s->height_px == 0 || s->width_px > INT32_MAX || s->height_px > INT32_MAX) return "a size out of range";
    }
    return NULL;
}

static const char *notes_fault(const stk_index_view *view)
{
    for (uint64_t i = 0; i < view->header->words_count; i++) {
        const stk_index_note *const n = &view->note[i];
        if (n->record_index >= view->header->record_count || n->reason >= STK_INDEX_REASON_COUNT ||
            !memchr(n->message, 0, sizeof n->message))
            return "words out of range";
    }
    return NULL;
}

stk_status stk_index_view_check(stk_index_view *view, stk_index_part part, stk_bytes bytes, stk_error *err)
{
    *view = (stk_index_view){0};
    const stk_index_header *const h = (const stk_index_header *)bytes.data;
    if (bytes.size_bytes < sizeof *h + sizeof(stk_index_seal)) return damaged(err, "too short");
    if (memcmp(h->magic, magic_of[part], sizeof h->magic) != 0) return damaged(err, "its first bytes");
    if (h->version != STK_INDEX_VERSION || h->header_bytes != sizeof *h)
        return stk_fail(err, STK_ERR_INDEX, "the index is of version %u, and this is version %d: build it anew", h->version,
                        STK_INDEX_VERSION);
    size_t end[5];
    if (h->file_bytes != bytes.size_bytes || !lay_out(h, part, bytes.size_bytes, end)) return damaged(err, "cut or grown");

    stk_index_view v = {.header = h, .seal = (const stk_index_seal *)(bytes.data + end[3])};
    if (v.seal->checksum != stk_index_checksum(bytes)) return damaged(err, "its checksum");
    const void *const items = bytes.data + sizeof *h;
    if (part == STK_INDEX_TEXT) v.text = items;
    else if (part == STK_INDEX_SIZES) v.size = items;
    else v.record = items;
    v.media = (const stk_media_facts *)(bytes.data + end[0]);
    v.note = (const stk_index_note *)(bytes.data + end[1]);
    v.etag = bytes.data + end[2];
    const bool alone = part == STK_INDEX_LINES || part == STK_INDEX_SIZES;
    const char *fault = alone && (h->media_count || h->words_count || h->etag_bytes) ? "more than there is room for" : NULL;
    if (!fault) fault = part == STK_INDEX_TEXT ? texts_fault(&v) : part == STK_INDEX_SIZES ? sizes_fault(&v) : records_fault(&v);
    if (!fault) fault = notes_fault(&v);
    if (fault) return damaged(err, fault);
    *view = v;
    return STK_OK;
}

/* --- write --- */

struct stk_index_writer {
    XXH3_state_t checksum, content;
    uint64_t left_bytes; /* before the seal: the counts of the header must come true */
    stk_save save;
};

void stk_index_writer_abandon(stk_index_writer **writer)
{
    if (*writer) stk_save_abandon(&(*writer)->save);
    stk_free(*writer);
    *writer = NULL;
}

static stk_status append(stk_index_writer **writer, const void *data, size_t size_bytes, stk_error *err)
{
    XXH3_64bits_update(&(*writer)->checksum, data, size_bytes);
    const stk_status status = stk_save_write(&(*writer)->save, data, size_bytes, err);
    if (status < 0) stk_index_writer_abandon(writer);
    else (*writer)->left_bytes -= size_bytes;
    return status;
}

stk_status stk_index_writer_open(stk_index_writer **out, const char *path, stk_index_part part,
                                 const stk_index_header *header, stk_error *err)
{
    *out = NULL;
    stk_index_header h = *header;
    memcpy(h.magic, magic_of[part], sizeof h.magic);
    h.version = STK_INDEX_VERSION;
    h.header_bytes = sizeof h;
    h.file_bytes = sizeof h + sizeof(stk_index_seal) + h.media_count * sizeof(stk_media_facts) +
                   h.words_count * sizeof(stk_index_note) + h.etag_bytes + h.record_count * item_bytes(part);

    stk_index_writer *const w = stk_alloc(STK_TAG_INDEX, sizeof *w);
    if (!w) return stk_fail(err, STK_ERR_NOMEM, "out of memory: writing an index");
    const stk_status status = stk_save_open(&w->save, path, err);
    if (status < 0) {
        stk_free(w);
        return status;
    }
    XXH3_64bits_reset(&w->checksum);
    XXH3_128bits_reset(&w->content);
    const stk_index_header plain = without_stamp(&h);
    XXH3_64bits_update(&w->checksum, &plain, sizeof plain);
    *out = w;
    w->left_bytes = h.file_bytes - sizeof h - sizeof(stk_index_seal);
    if (stk_save_write(&w->save, &h, sizeof h, err) == STK_OK) return STK_OK;
    stk_index_writer_abandon(out);
    return STK_ERR_SYSTEM;
}

stk_status stk_index_writer_records(stk_index_writer **writer, const stk_record_facts *record, size_t count, stk_error *err)
{
    for (size_t i = 0; i < count; i++) {
        const uint32_t seen[2] = {record[i].media_count, record[i].reason};
        XXH3_128bits_update(&(*writer)->content, seen, sizeof seen);
    }
    return append(writer, record, count * sizeof *record, err);
}

stk_status stk_index_writer_media(stk_index_writer **writer, const stk_media_facts *media, size_t count, stk_error *err)
{
    for (size_t i = 0; i < count; i++) {
        stk_media_facts seen = media[i];
        seen.mtime_ns = 0; /* a copy of the data elsewhere is the same data */
        XXH3_128bits_update(&(*writer)->content, &seen, offsetof(stk_media_facts, address_hash));
    }
    return append(writer, media, count * sizeof *media, err);
}

stk_status stk_index_writer_texts(stk_index_writer **writer, const stk_text_facts *text, size_t count, stk_error *err)
{
    return append(writer, text, count * sizeof *text, err);
}

stk_status stk_index_writer_sizes(stk_index_writer **writer, const stk_stated_size *size, size_t count, stk_error *err)
{
    return append(writer, size, count * sizeof *size, err);
}

stk_status stk_index_writer_notes(stk_index_writer **writer, const stk_index_note *note, size_t count, stk_error *err)
{
    return append(writer, note, count * sizeof *note, err);
}

stk_status stk_index_writer_etags(stk_index_writer **writer, const uint8_t *etag, size_t size_bytes, stk_error *err)
{
    return append(writer, etag, size_bytes, err);
}

stk_status stk_index_writer_commit(stk_index_writer **writer, stk_error *err)
{
    assert((*writer)->left_bytes == 0);
    stk_index_seal seal = {0};
    XXH128_canonical_t content;
    XXH128_canonicalFromHash(&content, XXH3_128bits_digest(&(*writer)->content));
    memcpy(seal.content_digest, content.digest, sizeof seal.content_digest);
    XXH3_64bits_update(&(*writer)->checksum, &seal, sizeof seal - sizeof seal.checksum);
    seal.checksum = XXH3_64bits_digest(&(*writer)->checksum);
    stk_status status = stk_save_write(&(*writer)->save, &seal, sizeof seal, err);
    if (status == STK_OK) status = stk_save_commit(&(*writer)->save, err);
    stk_index_writer_abandon(writer);
    return status;
}

stk_status stk_index_keep_etag(stk_buffer *etags, stk_media_facts *facts, const char *etag, stk_error *err)
{
    if (!(facts->mtime_ns & STK_MEDIA_OBJECT)) return STK_OK;
    size_t length = strnlen(etag, STK_MEDIA_ETAG_BYTES);
    if (length == STK_MEDIA_ETAG_BYTES || !is_word((const uint8_t *)etag, length)) length = 0;
    const uint8_t size = (uint8_t)length;
    facts->mtime_ns = STK_MEDIA_OBJECT | etags->size_bytes;
    STK_TRY(stk_buffer_append(etags, &size, 1, err));
    return stk_buffer_append(etags, etag, length, err);
}

stk_status stk_index_pad_etags(stk_buffer *etags, stk_error *err)
{
    static const uint8_t zeros[8];
    return stk_buffer_append(etags, zeros, (8 - etags->size_bytes % 8) % 8, err);
}

void stk_index_file_stamp(const char *path, stk_index_stamp stamp)
{
    /* Only ever written when the bytes of the manifest were found to be those of the key: whoever reads half of it
     * compares the bytes once more. */
    const int fd = open(path, O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) return;
    if (pwrite(fd, &stamp, sizeof stamp, offsetof(stk_index_header, stamp)) != (ssize_t)sizeof stamp) {
        /* The old stamp, or half of one, costs the next reader a comparison. */
    }
    close(fd);
}
