/* index_lines.c - pieces of a manifest to lists of offsets, in parallel; the lists, in order, to a sidecar.
 *
 * An array cannot be cut without reading it from its start: it is one piece.  Not here: what a record is (split.c). */
#include "manifest/index_lines.h"

#include <stdatomic.h>

#include "base/thread.h"

enum { PIECE_BYTES = 8 << 20, WRITTEN_AT_ONCE = 1024, STOP_EVERY_RECORDS = 4096 };
static const stk_ns REPORT_EVERY_NS = 200 * STK_MS;

typedef struct found {
    uint64_t offset, line; /* line: from 1, of the piece */
    uint64_t size_bytes;
} found;

typedef struct piece {
    stk_buffer found;
    uint64_t lines, blank_lines;
} piece;

typedef struct scan {
    const stk_build *build;
    bool is_array;
    piece *piece;
    uint64_t piece_count;
    atomic_uint_fast64_t next, done;
    atomic_bool stop;
    pthread_mutex_t lock; /* guards all below */
    pthread_cond_t ended;
    int running;
    stk_status status; /* the first failure */
    stk_error error;
} scan;

static stk_status scan_piece(scan *s, uint64_t at, stk_error *err)
{
    const stk_str manifest = s->build->manifest;
    piece *const p = &s->piece[at];
    stk_split split;
    STK_TRY(stk_split_open(&split, (const uint8_t *)manifest.data, manifest.size_bytes, err));
    if (!s->is_array) stk_split_chunk(&split, at * PIECE_BYTES, (at + 1) * PIECE_BYTES);
    stk_record_at record;
    stk_status status;
    for (uint64_t i = 0; (status = stk_split_next(&split, &record, err)) == STK_OK; i++) {
        const found f = {record.offset, record.line, record.text.size_bytes};
        STK_TRY(stk_buffer_append(&p->found, &f, sizeof f, err));
        if (i % STOP_EVERY_RECORDS == 0 && atomic_load(&s->stop)) return stk_fail(err, STK_ERR_INTERRUPTED, "stopped");
    }
    p->lines = s->is_array ? 0 : stk_split_lines(&split);
    p->blank_lines = split.at.blank_lines;
    return status == STK_END ? STK_OK : status;
}

/* Pieces until there are no more; the first failure stops all. */
static void scan_pieces(scan *s)
{
    stk_error err;
    for (uint64_t at; !atomic_load(&s->stop) && (at = atomic_fetch_add(&s->next, 1)) < s->piece_count;) {
        const stk_status status = scan_piece(s, at, &err);
        atomic_fetch_add(&s->done, 1);
        if (status == STK_OK) continue;
        pthread_mutex_lock(&s->lock);
        if (s->status == STK_OK) {
            s->status = status;
            s->error = err;
        }
        atomic_store(&s->stop, true); /* after the failure that is the reason */
        pthread_mutex_unlock(&s->lock);
    }
}

static void *run_thread(void *context)
{
    scan *const s = context;
    pthread_setname_np(pthread_self(), "stk-lines");
    scan_pieces(s);
    pthread_mutex_lock(&s->lock);
    s->running--;
    pthread_cond_signal(&s->ended);
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

static stk_status report(const scan *s, stk_error *err)
{
    const uint64_t size_bytes = s->build->manifest.size_bytes, done = atomic_load(&s->done);
    const uint64_t bytes = done < s->piece_count && done < size_bytes / PIECE_BYTES ? done * PIECE_BYTES : size_bytes;
    return stk_build_report(s->build->spec, "lines", done < s->piece_count ? bytes : size_bytes, size_bytes, err);
}

/* While threads scan: say where they stand; false from the caller stops them. */
static stk_status watch(scan *s, stk_error *err)
{
    stk_status status = STK_OK;
    pthread_mutex_lock(&s->lock);
    while (s->running) {
        const struct timespec until = stk_timespec(stk_now() + REPORT_EVERY_NS);
        if (pthread_cond_timedwait(&s->ended, &s->lock, &until) == 0 || status < 0) continue;
        pthread_mutex_unlock(&s->lock);
        status = report(s, err);
        if (status < 0) atomic_store(&s->stop, true);
        pthread_mutex_lock(&s->lock);
    }
    pthread_mutex_unlock(&s->lock);
    return status;
}

static stk_status scan_all(scan *s, int threads, stk_error *err)
{
    pthread_t *const thread = stk_alloc_array(STK_TAG_INDEX, (size_t)threads + 1, sizeof *thread);
    if (!thread) return stk_fail(err, STK_ERR_NOMEM, "out of memory: the threads of the index");
    int count = 0;
    pthread_mutex_lock(&s->lock);
    while (count < threads && (uint64_t)count < s->piece_count && stk_thread_start(&thread[count], run_thread, s) == 0)
        count++;
    s->running = count;
    pthread_mutex_unlock(&s->lock);
    if (count == 0) scan_pieces(s); /* without threads, or when none can be had */
    stk_status status = watch(s, err);
    for (int i = 0; i < count; i++) pthread_join(thread[i], NULL);
    stk_free(thread);
    if (status == STK_OK && s->status < 0) {
        if (err) *err = s->error;
        status = s->status;
    }
    return status;
}

/* --- the sidecar --- */

static stk_status write_piece(stk_index_writer **writer, const piece *p, uint64_t lines_before, stk_error *err)
{
    const found *const f = (const found *)(const void *)p->found.data;
    const size_t count = p->found.size_bytes / sizeof *f;
    for (size_t at = 0; at < count; at += WRITTEN_AT_ONCE) {
        stk_record_facts record[WRITTEN_AT_ONCE];
        const size_t some = count - at < WRITTEN_AT_ONCE ? count - at : WRITTEN_AT_ONCE;
        memset(record, 0, some * sizeof *record);
        for (size_t i = 0; i < some; i++) {
            record[i].offset = f[at + i].offset;
            record[i].line = lines_before + f[at + i].line;
            record[i].size_bytes = f[at + i].size_bytes > UINT32_MAX ? UINT32_MAX : (uint32_t)f[at + i].size_bytes;
        }
        STK_TRY(stk_index_writer_records(writer, record, some, err));
    }
    return STK_OK;
}

static stk_status write_sidecar(const scan *s, stk_error *err)
{
    const stk_build *const build = s->build;
    stk_index_header header = {.key = build->key, .stamp = build->stamp};
    for (uint64_t i = 0; i < s->piece_count; i++) {
        header.record_count += s->piece[i].found.size_bytes / sizeof(found);
        header.blank_lines += s->piece[i].blank_lines;
    }
    stk_index_writer *writer;
    STK_TRY(stk_index_writer_open(&writer, build->sidecar, STK_INDEX_LINES, &header, err));
    uint64_t lines_before = 0;
    for (uint64_t i = 0; i < s->piece_count; i++) {
        STK_TRY(write_piece(&writer, &s->piece[i], lines_before, err));
        lines_before += s->piece[i].lines;
    }
    build->work->lines_found += header.record_count;
    return stk_index_writer_commit(&writer, err);
}

static stk_status prepare(scan *s, stk_error *err)
{
    const stk_str manifest = s->build->manifest;
    stk_split split;
    STK_TRY(stk_split_open(&split, (const uint8_t *)manifest.data, manifest.size_bytes, err));
    s->is_array = split.form == STK_FORM_ARRAY;
    const uint64_t count = s->is_array ? 1 : manifest.size_bytes / PIECE_BYTES + 1;
    s->piece = stk_alloc_array(STK_TAG_INDEX, count, sizeof *s->piece);
    if (!s->piece) return stk_fail(err, STK_ERR_NOMEM, "out of memory: the lines of a manifest");
    s->piece_count = count;
    for (uint64_t i = 0; i < count; i++) stk_buffer_init(&s->piece[i].found, STK_TAG_INDEX, SIZE_MAX / 2);
    return STK_OK;
}

stk_status stk_lines_build(const stk_build *build, stk_error *err)
{
    scan s = {.build = build};
    pthread_mutex_init(&s.lock, NULL);
    stk_condition_init(&s.ended);
    stk_status status = prepare(&s, err);
    if (status == STK_OK) status = report(&s, err);
    if (status == STK_OK) status = scan_all(&s, build->spec->threads, err);
    const bool of_manifest = status == STK_ERR_MANIFEST;
    if (of_manifest) stk_error_file(err, build->manifest_path, err ? err->line : 0);
    if (status == STK_OK) status = write_sidecar(&s, err);
    if (status < 0) stk_error_stage(err, of_manifest ? STK_STAGE_MANIFEST : STK_STAGE_INDEX);
    for (uint64_t i = 0; i < s.piece_count; i++) stk_buffer_deinit(&s.piece[i].found);
    stk_free(s.piece);
    pthread_cond_destroy(&s.ended);
    pthread_mutex_destroy(&s.lock);
    return status;
}
