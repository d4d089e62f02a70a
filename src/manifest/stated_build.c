/* stated_build.c - pieces of a facts file to sizes, in parallel; the sizes, sorted, to a sidecar.
 *
 * Lines are independent, so a piece is what a thread takes at a time.  To sort, sizes are dealt into buckets by the first bits of their
 * digests, which are as good as random, in the order of the file; each bucket is then sorted by itself. */
#include "manifest/stated_build.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <xxhash.h>

#include "base/parallel.h"
#include "manifest/record_reader.h"

enum { PIECE_BYTES = 8 << 20, BUCKET_BITS = 16, BUCKETS = 1 << BUCKET_BITS, WRITTEN_AT_ONCE = 1024, STOP_EVERY_LINES = 4096 };

/* --- a line --- */

static stk_status read_number(stk_record_reader *reader, uint32_t *number, const json_t *line, const char *key, json_int_t most)
{
    const json_t *const value = stk_json_get(line, key);
    const json_int_t found = json_is_integer(value) ? json_integer_value(value) : 0;
    if (found < 1 || found > most)
        return stk_record_reader_fail(reader, STK_REASON_DIALECT, "%s is no whole number from 1 to %lld", key, (long long)most);
    *number = (uint32_t)found;
    return STK_OK;
}

/* Of the reasons why an address cannot be used, those that are no fault of the line. */
static bool is_of_others(stk_reason reason)
{
    return reason == STK_REASON_DENIED || reason == STK_REASON_UNSUPPORTED || reason == STK_REASON_VIDEO || reason == STK_REASON_AUDIO;
}

static stk_status read_path(stk_record_reader *reader, stk_stated_size *size, const json_t *line)
{
    const json_t *const path = stk_json_get(line, "path");
    if (!json_is_string(path)) return stk_record_reader_fail(reader, STK_REASON_DIALECT, "there is no path, or it is no text");
    stk_str address;
    const stk_status status = stk_record_reader_address(reader, &address, stk_json_text(path));
    if (status == STK_ERR_RECORD && is_of_others(*reader->reason)) return STK_AGAIN;
    STK_TRY(status);
    if (address.size_bytes >= 5 && memcmp(address.data, "data:", 5) == 0)
        return stk_record_reader_fail(reader, STK_REASON_DIALECT, "the path is a data: address, which tells its own size");
    const XXH128_hash_t hash = XXH3_128bits(address.data, address.size_bytes);
    size->high = hash.high64;
    size->low = hash.low64;
    return STK_OK;
}

static stk_status read_line(stk_record_reader *reader, stk_stated_size *size, stk_str text)
{
    json_t *line;
    uint32_t orientation = 1;
    const uint64_t limit = reader->rules->limits->record_bytes;
    if (text.size_bytes > limit)
        return stk_record_reader_fail(reader, STK_REASON_RECORD_LIMIT, "%zu bytes, and limits.record_bytes is %" PRIu64, text.size_bytes, limit);
    STK_TRY(stk_record_reader_json(reader, &line, text, "line"));
    if (!json_is_object(line))
        return stk_record_reader_fail(reader, STK_REASON_DIALECT, "a line of a facts file is an object: {\"path\": ..., \"width\": ..., \"height\": ...}");
    STK_TRY(read_number(reader, &size->width_px, line, "width", INT32_MAX));
    STK_TRY(read_number(reader, &size->height_px, line, "height", INT32_MAX));
    if (stk_json_get(line, "orientation")) STK_TRY(read_number(reader, &orientation, line, "orientation", 8));
    if (orientation >= 5) { /* stored on its side */
        const uint32_t stored_width_px = size->width_px;
        size->width_px = size->height_px;
        size->height_px = stored_width_px;
    }
    return read_path(reader, size, line);
}

stk_status stk_stated_read(stk_stated_size *size, stk_sample *sample, const stk_record_rules *rules, stk_str line, stk_error *err)
{
    stk_reason reason = STK_REASON_NONE;
    stk_record_reader reader;
    STK_TRY(stk_record_reader_open(&reader, sample, rules, &reason, err));
    return read_line(&reader, size, line);
}

/* --- pieces --- */

typedef struct found {
    stk_stated_size size;
    uint64_t line; /* of its piece, later of the file; from 1 */
} found;

typedef struct piece {
    stk_buffer found;
    uint64_t lines;
    stk_status status; /* of the first line that is not as it should be */
    stk_error error;
} piece;

typedef struct scan {
    const stk_build *build;
    pthread_t caller; /* who alone may report */
    piece *piece;
    uint64_t piece_count;
    atomic_uint_fast64_t next, done;
    atomic_bool stop; /* the caller wants to; faults of lines do not stop the pieces before them */
    atomic_uint_fast64_t failed_at; /* no piece from here on matters */
    stk_status status; /* the caller's */
    stk_error error;
} scan;

static stk_status scan_lines(scan *s, piece *p, uint64_t at, stk_sample *sample, stk_error *err)
{
    const stk_str file = s->build->manifest;
    stk_split split;
    STK_TRY(stk_split_open(&split, (const uint8_t *)file.data, file.size_bytes, err));
    stk_split_chunk(&split, at * PIECE_BYTES, (at + 1) * PIECE_BYTES);
    stk_record_at line;
    stk_status status;
    for (uint64_t i = 0; (status = stk_split_next(&split, &line, err)) == STK_OK; i++) {
        found f = {.line = line.line};
        status = stk_stated_read(&f.size, sample, s->build->spec->record_rules, line.text, err);
        if (status == STK_ERR_RECORD && err) {
            err->status = status = STK_ERR_MANIFEST;
            err->line = line.line;
        }
        STK_TRY(status);
        if (status == STK_OK) STK_TRY(stk_buffer_append(&p->found, &f, sizeof f, err));
        if (i % STOP_EVERY_LINES == 0 && atomic_load(&s->stop)) return stk_fail(err, STK_ERR_INTERRUPTED, "stopped");
    }
    p->lines = stk_split_lines(&split);
    return status == STK_END ? STK_OK : status;
}

static void report(scan *s)
{
    const uint64_t size_bytes = s->build->manifest.size_bytes, bytes = atomic_load(&s->done) * PIECE_BYTES;
    s->status = stk_build_report(s->build->spec, "facts", bytes < size_bytes ? bytes : size_bytes, size_bytes, &s->error);
    if (s->status < 0) atomic_store(&s->stop, true);
}

static void note_failure(scan *s, uint64_t at)
{
    uint_fast64_t before = atomic_load(&s->failed_at);
    while (at < before && !atomic_compare_exchange_weak(&s->failed_at, &before, at)) continue;
}

static void scan_pieces(void *context)
{
    scan *const s = context;
    const bool reports = pthread_equal(s->caller, pthread_self());
    stk_sample sample;
    stk_sample_init(&sample);
    for (uint64_t at; !atomic_load(&s->stop) && (at = atomic_fetch_add(&s->next, 1)) < s->piece_count && at < atomic_load(&s->failed_at);) {
        piece *const p = &s->piece[at];
        p->status = scan_lines(s, p, at, &sample, &p->error);
        if (p->status < 0) note_failure(s, at);
        atomic_fetch_add(&s->done, 1);
        if (reports) report(s);
    }
    stk_sample_deinit(&sample);
}

/* The failure of the first piece that has one. */
static stk_status outcome(const scan *s, stk_error *err)
{
    const stk_error *error = &s->error;
    stk_status status = s->status;
    uint64_t lines_before = 0;
    for (uint64_t i = 0; status == STK_OK && i < s->piece_count; i++) {
        status = s->piece[i].status;
        error = &s->piece[i].error;
        if (status == STK_OK) lines_before += s->piece[i].lines;
    }
    if (status == STK_OK) return STK_OK;
    if (err) *err = *error;
    if (status == STK_ERR_MANIFEST) stk_error_file(err, s->build->manifest_path, err ? err->line + lines_before : 0);
    return status;
}

/* --- sorting --- */

static int compare_found(const void *a, const void *b)
{
    const found *const x = a, *const y = b;
    const int order = stk_stated_compare(&x->size, &y->size);
    return order ? order : x->line < y->line ? -1 : x->line > y->line;
}

static uint64_t bucket_of(const found *f)
{
    return f->size.high >> (64 - BUCKET_BITS);
}

/* All that was found as one list, sorted.  The pieces' own lists go. */
static stk_status sort_found(scan *s, found **out, uint64_t *count, stk_error *err)
{
    uint64_t *const end = stk_alloc_array(STK_TAG_INDEX, BUCKETS, sizeof *end);
    *count = 0;
    for (uint64_t i = 0; i < s->piece_count; i++) *count += s->piece[i].found.size_bytes / sizeof(found);
    found *const all = *out = stk_alloc_array(STK_TAG_INDEX, *count, sizeof *all);
    if (!end || !all) {
        stk_free(end);
        return stk_fail(err, STK_ERR_NOMEM, "out of memory: the sizes of %" PRIu64 " media", *count);
    }
    for (uint64_t i = 0; i < s->piece_count; i++) {
        const found *const f = (const found *)(const void *)s->piece[i].found.data;
        for (size_t k = 0; k < s->piece[i].found.size_bytes / sizeof *f; k++) end[bucket_of(&f[k])]++;
    }
    for (uint64_t b = 0, before = 0; b < BUCKETS; b++) {
        const uint64_t here = end[b];
        end[b] = before;
        before += here;
    }
    for (uint64_t i = 0, lines_before = 0; i < s->piece_count; i++) {
        const found *const f = (const found *)(const void *)s->piece[i].found.data;
        for (size_t k = 0; k < s->piece[i].found.size_bytes / sizeof *f; k++) {
            found *const to = &all[end[bucket_of(&f[k])]++];
            *to = f[k];
            to->line += lines_before;
        }
        lines_before += s->piece[i].lines;
        stk_buffer_deinit(&s->piece[i].found);
    }
    for (uint64_t b = 0, begin = 0; b < BUCKETS; begin = end[b++])
        if (end[b] - begin > 1) qsort(all + begin, end[b] - begin, sizeof *all, compare_found);
    stk_free(end);
    return STK_OK;
}

static bool same_medium(const found *a, const found *b)
{
    return stk_stated_compare(&a->size, &b->size) == 0;
}

/* Lines that contradict each other are refused, the first such line of the file named. */
static stk_status check_repeated(const found *all, uint64_t count, const char *path, stk_error *err)
{
    const found *worst = NULL; /* it contradicts the one before it */
    for (const found *f = all + 1; f < all + count; f++)
        if (same_medium(f, f - 1) && (f->size.width_px != f[-1].size.width_px || f->size.height_px != f[-1].size.height_px) &&
            (!worst || f->line < worst->line))
            worst = f;
    if (!worst) return STK_OK;
    return stk_fail_at(err, STK_ERR_MANIFEST, path, worst->line, "the same medium is %u x %u here and %u x %u in line %" PRIu64 ": keep the line that is right",
                       worst->size.width_px, worst->size.height_px, worst[-1].size.width_px, worst[-1].size.height_px, worst[-1].line);
}

static uint64_t join_repeated(found *all, uint64_t count)
{
    uint64_t kept = 0;
    for (uint64_t i = 0; i < count; i++)
        if (!kept || !same_medium(&all[kept - 1], &all[i])) all[kept++] = all[i];
    return kept;
}

/* --- the sidecar --- */

static stk_status write_sidecar(const stk_build *build, const found *all, uint64_t count, stk_error *err)
{
    const stk_index_header header = {.key = build->key, .stamp = build->stamp, .record_count = count};
    stk_index_writer *writer;
    STK_TRY(stk_index_writer_open(&writer, build->sidecar, STK_INDEX_SIZES, &header, err));
    stk_stated_size size[WRITTEN_AT_ONCE];
    for (uint64_t at = 0; at < count;) {
        size_t some = 0;
        for (; some < WRITTEN_AT_ONCE && at < count; some++) size[some] = all[at++].size;
        STK_TRY(stk_index_writer_sizes(&writer, size, some, err));
    }
    return stk_index_writer_commit(&writer, err);
}

static stk_status prepare(scan *s, stk_error *err)
{
    const stk_str file = s->build->manifest;
    stk_split split;
    const stk_status status = stk_split_open(&split, (const uint8_t *)file.data, file.size_bytes, err);
    if (status < 0) {
        stk_error_file(err, s->build->manifest_path, 0);
        return status;
    }
    if (split.form == STK_FORM_ARRAY)
        return stk_fail_at(err, STK_ERR_MANIFEST, s->build->manifest_path, 1, "a facts file has one object a line, and this is an array");
    const uint64_t count = file.size_bytes / PIECE_BYTES + 1;
    s->piece = stk_alloc_array(STK_TAG_INDEX, count, sizeof *s->piece);
    if (!s->piece) return stk_fail(err, STK_ERR_NOMEM, "out of memory: the lines of a facts file");
    s->piece_count = count;
    for (uint64_t i = 0; i < count; i++) stk_buffer_init(&s->piece[i].found, STK_TAG_INDEX, SIZE_MAX / 2);
    return STK_OK;
}

stk_status stk_stated_build(const stk_build *build, stk_error *err)
{
    scan s = {.build = build, .caller = pthread_self(), .status = STK_OK};
    found *all = NULL;
    uint64_t count = 0;
    atomic_store(&s.failed_at, UINT64_MAX);
    stk_status status = prepare(&s, err);
    if (status == STK_OK) {
        stk_parallel(build->spec->threads > 1 ? (uint32_t)build->spec->threads : 1, scan_pieces, &s);
        status = outcome(&s, err);
    }
    if (status == STK_OK) status = sort_found(&s, &all, &count, err);
    if (status == STK_OK) status = check_repeated(all, count, build->manifest_path, err);
    if (status < 0) stk_error_stage(err, status == STK_ERR_MANIFEST ? STK_STAGE_MANIFEST : STK_STAGE_INDEX);
    if (status == STK_OK) status = write_sidecar(build, all, join_repeated(all, count), err);
    stk_free(all);
    for (uint64_t i = 0; i < s.piece_count; i++) stk_buffer_deinit(&s.piece[i].found);
    stk_free(s.piece);
    return status;
}
