/* index_build.c - the main thread splits the manifest, hands out chunks, writes the journal and reports; workers make facts.
 *
 *     split ─► FREE -fill-> WAITING -claim-> MAKING -> DONE -journal-> FREE
 *
 * Chunks finish in any order and are written as they finish; the sidecar is put together in record order, so it has the
 * same bytes however often the build was killed.
 *
 * Not here: what a chunk is (index_chunk.c), which parts must be built (index.c). */
#include "manifest/index_build.h"

#include <assert.h>

#include "base/thread.h"
#include "manifest/index_ids.h"

enum { TASKS_PER_THREAD = 4, REPORT_EVERY_RECORDS = 1 << 18 };
static const stk_ns REPORT_EVERY_NS = 200 * STK_MS;

typedef enum task_state { TASK_FREE, TASK_WAITING, TASK_MAKING, TASK_DONE } task_state;

typedef struct pool_task {
    task_state state;
    stk_chunk_task task;
} pool_task;

typedef struct build_pool {
    const stk_build *build;
    stk_chunk_shared shared;
    /* The main thread's own. */
    stk_split split;
    uint64_t record_count, next_chunk, done_records;
    stk_ns reported_ns;
    uint32_t task_count;
    int thread_count;
    pthread_t *thread;

    pthread_mutex_t lock; /* guards all below */
    pthread_cond_t work, done;
    pool_task *task;
    bool closing;
    stk_status status; /* the first failure of a worker */
    stk_error error;
} build_pool;

stk_status stk_build_report(const stk_index_spec *spec, const char *phase, uint64_t done, uint64_t total, stk_error *err)
{
    if (!spec->progress || spec->progress->report(spec->progress->context, spec->name, phase, done, total)) return STK_OK;
    (void)stk_fail(err, STK_ERR_INTERRUPTED, "the index was interrupted: it goes on from here next time");
    stk_error_stage(err, STK_STAGE_INDEX);
    return STK_ERR_INTERRUPTED;
}

/* --- workers --- */

static pool_task *find_task(build_pool *p, task_state state) /* the oldest; under the lock */
{
    pool_task *oldest = NULL;
    for (uint32_t i = 0; i < p->task_count; i++)
        if (p->task[i].state == state && (!oldest || p->task[i].task.chunk < oldest->task.chunk)) oldest = &p->task[i];
    return oldest;
}

static void note_failure(build_pool *p, stk_status status, const stk_error *error)
{
    pthread_mutex_lock(&p->lock);
    if (p->status == STK_OK) {
        p->status = status;
        p->error = *error;
    }
    atomic_store(&p->shared.stop, true);
    pthread_cond_broadcast(&p->done);
    pthread_mutex_unlock(&p->lock);
}

static void *run_worker(void *context)
{
    build_pool *const p = context;
    pthread_setname_np(pthread_self(), "stk-index");
    stk_error err = {0};
    stk_chunk_worker *worker;
    stk_status status = stk_chunk_worker_create(&worker, &p->shared, &err);
    if (status < 0) {
        note_failure(p, status, &err);
        return NULL;
    }
    pthread_mutex_lock(&p->lock);
    while (!p->closing) {
        pool_task *const t = find_task(p, TASK_WAITING);
        if (!t) {
            pthread_cond_wait(&p->work, &p->lock);
            continue;
        }
        t->state = TASK_MAKING;
        pthread_mutex_unlock(&p->lock);
        status = stk_chunk_make(worker, &t->task, &err);
        if (status < 0) note_failure(p, status, &err);
        pthread_mutex_lock(&p->lock);
        t->state = status < 0 ? TASK_FREE : TASK_DONE;
        pthread_cond_signal(&p->done);
    }
    pthread_mutex_unlock(&p->lock);
    stk_chunk_worker_destroy(worker);
    return NULL;
}

static stk_status start_workers(build_pool *p, int count, stk_error *err)
{
    p->thread = stk_alloc_array(STK_TAG_INDEX, (size_t)count, sizeof *p->thread);
    if (!p->thread) return stk_fail(err, STK_ERR_NOMEM, "out of memory: the threads of the index");
    int code = 0;
    while (!code && p->thread_count < count) {
        code = stk_thread_start(&p->thread[p->thread_count], run_worker, p);
        if (!code) p->thread_count++;
    }
    /* Fewer threads than asked for make the same index. */
    return p->thread_count ? STK_OK : stk_fail(err, STK_ERR_SYSTEM, "cannot start a thread for the index");
}

/* --- the main thread --- */

/* Take the records of the next chunk that is not done off the splitter.  False: there is none. */
static bool next_chunk(build_pool *p, stk_chunk_task *task, stk_error *err, stk_status *status)
{
    *status = STK_OK;
    for (; p->next_chunk < p->build->journal->chunk_count; p->next_chunk++) {
        const uint64_t left = p->record_count - p->next_chunk * STK_CHUNK_RECORDS;
        const uint32_t count = left < STK_CHUNK_RECORDS ? (uint32_t)left : STK_CHUNK_RECORDS;
        if (p->build->part == STK_INDEX_MEDIA)
            for (uint32_t i = 0; i < count; i++) {
                *status = stk_split_next(&p->split, &task->at[i], err);
                if (*status == STK_OK) continue;
                if (*status == STK_END)
                    *status = stk_fail(err, STK_ERR_MANIFEST, "the manifest changed while it was read: run again");
                return false;
            }
        if (stk_journal_has(p->build->journal, p->next_chunk)) continue;
        task->chunk = p->next_chunk++;
        task->count = count;
        return true;
    }
    return false;
}

static stk_status keep_chunk(build_pool *p, const stk_chunk_task *task, stk_error *err)
{
    STK_TRY(stk_journal_append(p->build->journal, task->chunk, (stk_bytes){task->payload.data, task->payload.size_bytes}, err));
    p->done_records += task->count;
    return STK_OK;
}

static stk_status report_sometimes(build_pool *p, stk_error *err)
{
    const stk_ns now = stk_now();
    if (p->reported_ns && now - p->reported_ns < REPORT_EVERY_NS) return STK_OK;
    p->reported_ns = now;
    return stk_build_report(p->build->spec, p->build->part == STK_INDEX_MEDIA ? "media" : "text", p->done_records,
                            p->record_count, err);
}

/* Without threads: one chunk after the other. */
static stk_status run_inline(build_pool *p, stk_error *err)
{
    stk_chunk_worker *worker;
    STK_TRY(stk_chunk_worker_create(&worker, &p->shared, err));
    stk_chunk_task *const task = &p->task[0].task;
    stk_status status = STK_OK;
    while (status == STK_OK && next_chunk(p, task, err, &status)) {
        status = report_sometimes(p, err);
        if (status == STK_OK) status = stk_chunk_make(worker, task, err);
        if (status == STK_OK) status = keep_chunk(p, task, err);
    }
    stk_chunk_worker_destroy(worker);
    return status;
}

/* One round: what a worker has finished goes into the journal, what is free is filled, else wait.  STK_END: all done. */
static stk_status run_round(build_pool *p, bool *at_end, stk_error *err)
{
    pthread_mutex_lock(&p->lock);
    const stk_status failed = p->status;
    if (failed < 0 && err) *err = p->error;
    pool_task *const done = find_task(p, TASK_DONE);
    pool_task *const unused = done || *at_end ? NULL : find_task(p, TASK_FREE);
    const bool idle = !done && !unused && !find_task(p, TASK_WAITING) && !find_task(p, TASK_MAKING);
    if (failed == STK_OK && !done && !unused && !idle) {
        const struct timespec until = stk_timespec(stk_now() + REPORT_EVERY_NS);
        pthread_cond_timedwait(&p->done, &p->lock, &until);
    }
    pthread_mutex_unlock(&p->lock);

    if (failed < 0) return failed;
    if (idle) return STK_END;
    stk_status status = STK_OK;
    if (done) {
        status = keep_chunk(p, &done->task, err);
    } else if (unused && !next_chunk(p, &unused->task, err, &status)) {
        *at_end = true;
        return status;
    }
    if (!done && !unused) return STK_OK;
    pthread_mutex_lock(&p->lock);
    (done ? done : unused)->state = done ? TASK_FREE : TASK_WAITING;
    if (unused) pthread_cond_signal(&p->work);
    pthread_mutex_unlock(&p->lock);
    return status;
}

/* Keep what workers had finished when the build stops early. */
static void keep_rest(build_pool *p)
{
    stk_error unheard;
    for (uint32_t i = 0; i < p->task_count; i++)
        if (p->task[i].state == TASK_DONE && keep_chunk(p, &p->task[i].task, &unheard) < 0) return;
}

static stk_status run_threads(build_pool *p, stk_error *err)
{
    stk_status status = start_workers(p, p->build->spec->threads, err);
    bool at_end = false;
    while (status == STK_OK) {
        status = report_sometimes(p, err);
        if (status == STK_OK) status = run_round(p, &at_end, err);
    }
    atomic_store(&p->shared.stop, true);
    if (status < 0 && p->build->spec->survey->stop) p->build->spec->survey->stop(p->build->spec->survey->context);
    pthread_mutex_lock(&p->lock);
    p->closing = true;
    pthread_cond_broadcast(&p->work);
    pthread_mutex_unlock(&p->lock);
    for (int i = 0; i < p->thread_count; i++) pthread_join(p->thread[i], NULL);
    stk_free(p->thread);
    if (status == STK_END) return STK_OK;
    /* What a worker says when it is told to stop is not the reason why. */
    keep_rest(p);
    return status;
}

static stk_status pool_init(build_pool *p, const stk_build *build, uint64_t record_count, stk_error *err)
{
    memset(p, 0, sizeof *p);
    p->build = build;
    p->record_count = record_count;
    p->shared.spec = build->spec;
    p->shared.part = build->part;
    p->shared.decode = build->decode;
    p->shared.manifest = (const uint8_t *)build->manifest.data;
    p->shared.record = build->media_part ? build->media_part->record : NULL;
    p->task_count = build->spec->threads > 0 ? (uint32_t)build->spec->threads * TASKS_PER_THREAD : 1;
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->work, NULL);
    stk_condition_init(&p->done);
    p->task = stk_alloc_array(STK_TAG_INDEX, p->task_count, sizeof *p->task);
    if (build->part == STK_INDEX_MEDIA) p->shared.cache = stk_media_cache_create();
    if (!p->task || (build->part == STK_INDEX_MEDIA && !p->shared.cache))
        return stk_fail(err, STK_ERR_NOMEM, "out of memory: building an index");
    for (uint32_t i = 0; i < p->task_count; i++) stk_buffer_init(&p->task[i].task.payload, STK_TAG_INDEX, SIZE_MAX / 2);
    return stk_split_open(&p->split, (const uint8_t *)build->manifest.data, build->manifest.size_bytes, err);
}

static void pool_deinit(build_pool *p)
{
    for (uint32_t i = 0; p->task && i < p->task_count; i++) stk_buffer_deinit(&p->task[i].task.payload);
    stk_free(p->task);
    stk_media_cache_destroy(p->shared.cache);
    pthread_cond_destroy(&p->work);
    pthread_cond_destroy(&p->done);
    pthread_mutex_destroy(&p->lock);
}

static stk_status run_chunks(const stk_build *build, uint64_t record_count, stk_error *err)
{
    build_pool *const p = stk_alloc(STK_TAG_INDEX, sizeof *p);
    if (!p) return stk_fail(err, STK_ERR_NOMEM, "out of memory: building an index");
    stk_status status = pool_init(p, build, record_count, err);
    for (uint64_t c = 0; status == STK_OK && c < build->journal->chunk_count; c++)
        if (stk_journal_has(build->journal, c)) {
            const uint64_t left = record_count - c * STK_CHUNK_RECORDS;
            p->done_records += left < STK_CHUNK_RECORDS ? left : STK_CHUNK_RECORDS;
        }
    if (status == STK_OK) status = build->spec->threads > 0 ? run_threads(p, err) : run_inline(p, err);
    build->work->records_parsed += atomic_load(&p->shared.records_parsed);
    build->work->media_headers_read += atomic_load(&p->shared.media_headers_read);
    build->work->texts_encoded += atomic_load(&p->shared.texts_encoded);
    pool_deinit(p);
    stk_free(p);
    return status;
}

/* --- putting the sidecar together --- */

/* The pieces of a chunk in the mapped journal. */
typedef struct chunk_view {
    stk_chunk_counts counts;
    const stk_record_facts *record;
    const stk_text_facts *text;
    const stk_media_facts *media;
    const stk_index_note *note;
    const uint8_t *etag;
} chunk_view;

static chunk_view view_chunk(const stk_build *build, const stk_map *map, uint64_t chunk)
{
    const uint8_t *const payload = map->data + build->journal->payload_at[chunk];
    chunk_view v = {0};
    memcpy(&v.counts, payload, sizeof v.counts);
    const uint8_t *const facts = payload + sizeof v.counts;
    const bool media = build->part == STK_INDEX_MEDIA;
    if (media) v.record = (const stk_record_facts *)facts;
    else v.text = (const stk_text_facts *)facts;
    v.media = (const stk_media_facts *)(facts + v.counts.record_count * (media ? sizeof *v.record : sizeof *v.text));
    v.note = (const stk_index_note *)(v.media + v.counts.media_count);
    v.etag = (const uint8_t *)(v.note + v.counts.note_count);
    return v;
}

/* Whether a note is among the first few of its reason, in the order of the records. */
static bool wanted(uint32_t noted[STK_INDEX_REASON_COUNT], const stk_index_note *note)
{
    return note->reason < STK_INDEX_REASON_COUNT && noted[note->reason] < STK_INDEX_WORDS_PER_REASON && ++noted[note->reason];
}

static stk_index_header count_all(const stk_build *build, const stk_map *map, uint64_t record_count, uint64_t blank_lines)
{
    stk_index_header h = {.key = build->key, .record_count = record_count, .blank_lines = blank_lines, .stamp = build->stamp,
                          .flags = build->decode ? STK_INDEX_DECODED : 0};
    uint32_t noted[STK_INDEX_REASON_COUNT] = {0};
    for (uint64_t c = 0; c < build->journal->chunk_count; c++) {
        const chunk_view v = view_chunk(build, map, c);
        h.media_count += v.counts.media_count;
        h.etag_bytes += v.counts.etag_bytes;
        for (uint32_t i = 0; i < v.counts.note_count; i++) h.words_count += wanted(noted, &v.note[i]);
    }
    return h;
}

static stk_status write_records(stk_index_writer **writer, const stk_build *build, const stk_map *map, uint64_t record_count,
                                stk_error *err)
{
    stk_id_set ids;
    STK_TRY(stk_id_set_init(&ids, record_count, err));
    stk_status status = STK_OK;
    uint64_t media_before = 0;
    for (uint64_t c = 0; status == STK_OK && c < build->journal->chunk_count; c++) {
        const chunk_view v = view_chunk(build, map, c);
        stk_record_facts record[STK_CHUNK_RECORDS];
        for (uint32_t i = 0; i < v.counts.record_count; i++) {
            record[i] = v.record[i];
            record[i].first_media = media_before;
            record[i].flags = 0;
            media_before += record[i].media_count;
            if (record[i].id_hash && stk_id_set_add(&ids, record[i].id_hash)) record[i].flags |= STK_RECORD_ID_REPEATED;
        }
        status = stk_index_writer_records(writer, record, v.counts.record_count, err);
    }
    stk_id_set_deinit(&ids);
    return status;
}

/* Those of a chunk, whose ETags stand behind etags_before others. */
static stk_status write_media(stk_index_writer **writer, const chunk_view *v, uint64_t etags_before, stk_error *err)
{
    enum { SOME = 64 };
    for (uint32_t i = 0; i < v->counts.media_count; i += SOME) {
        stk_media_facts some[SOME];
        const uint32_t count = v->counts.media_count - i < SOME ? v->counts.media_count - i : SOME;
        for (uint32_t k = 0; k < count; k++) {
            some[k] = v->media[i + k];
            stk_index_move_etag(&some[k], etags_before);
        }
        STK_TRY(stk_index_writer_media(writer, some, count, err));
    }
    return STK_OK;
}

static stk_status write_sections(stk_index_writer **writer, const stk_build *build, const stk_map *map, uint64_t record_count,
                                 stk_error *err)
{
    if (build->part == STK_INDEX_MEDIA) STK_TRY(write_records(writer, build, map, record_count, err));
    uint64_t etags_before = 0;
    for (uint64_t c = 0; c < build->journal->chunk_count; c++) {
        const chunk_view v = view_chunk(build, map, c);
        if (build->part == STK_INDEX_MEDIA) STK_TRY(write_media(writer, &v, etags_before, err));
        else STK_TRY(stk_index_writer_texts(writer, v.text, v.counts.record_count, err));
        etags_before += v.counts.etag_bytes;
    }
    uint32_t noted[STK_INDEX_REASON_COUNT] = {0};
    for (uint64_t c = 0; c < build->journal->chunk_count; c++) {
        const chunk_view v = view_chunk(build, map, c);
        for (uint32_t i = 0; i < v.counts.note_count; i++)
            if (wanted(noted, &v.note[i])) STK_TRY(stk_index_writer_notes(writer, &v.note[i], 1, err));
    }
    for (uint64_t c = 0; c < build->journal->chunk_count; c++) {
        const chunk_view v = view_chunk(build, map, c);
        STK_TRY(stk_index_writer_etags(writer, v.etag, v.counts.etag_bytes, err));
    }
    return STK_OK;
}

static stk_status assemble(const stk_build *build, uint64_t record_count, uint64_t blank_lines, stk_error *err)
{
    stk_map map;
    STK_TRY(stk_journal_map(build->journal, &map, err));
    const stk_index_header header = count_all(build, &map, record_count, blank_lines);
    stk_index_writer *writer;
    stk_status status = stk_index_writer_open(&writer, build->sidecar, build->part, &header, err);
    if (status == STK_OK) {
        status = write_sections(&writer, build, &map, record_count, err);
        if (status == STK_OK) status = stk_index_writer_commit(&writer, err);
        else stk_index_writer_abandon(&writer);
    }
    stk_map_close(&map);
    return status;
}

/* --- all of it --- */

/* Once over the manifest before anything is asked for: what breaks it as a whole is told at once. */
static stk_status count_records(const stk_build *build, uint64_t *record_count, uint64_t *blank_lines, stk_error *err)
{
    stk_split split;
    stk_record_at at;
    stk_status status = stk_split_open(&split, (const uint8_t *)build->manifest.data, build->manifest.size_bytes, err);
    while (status == STK_OK) {
        status = stk_split_next(&split, &at, err);
        if (status == STK_OK && split.at.records % REPORT_EVERY_RECORDS == 0)
            STK_TRY(stk_build_report(build->spec, "reading", split.at.offset, build->manifest.size_bytes, err));
    }
    *record_count = split.at.records;
    *blank_lines = split.at.blank_lines;
    if (status == STK_END) return STK_OK;
    stk_error_file(err, build->manifest_path, err ? err->line : 0);
    stk_error_stage(err, STK_STAGE_MANIFEST);
    return status;
}

stk_status stk_build_part(const stk_build *build, bool *durable, stk_error *err)
{
    *durable = false;
    uint64_t record_count = 0, blank_lines = 0;
    if (build->part == STK_INDEX_MEDIA) STK_TRY(count_records(build, &record_count, &blank_lines, err));
    else record_count = build->media_part->header->record_count;
    STK_TRY(stk_journal_start(build->journal, build->part, &build->key, build->decode ? STK_INDEX_DECODED : 0, record_count,
                              err));
    stk_status status = run_chunks(build, record_count, err);
    *durable = build->journal->finished_count > 0 && status != STK_ERR_MANIFEST;
    if (status == STK_OK) {
        assert(build->journal->finished_count == build->journal->chunk_count);
        status = stk_build_report(build->spec, "writing", record_count, record_count, err);
    }
    if (status == STK_OK) status = assemble(build, record_count, blank_lines, err);
    if (status < 0) stk_error_stage(err, STK_STAGE_INDEX);
    return status;
}
