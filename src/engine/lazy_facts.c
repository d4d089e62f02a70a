/* lazy_facts.c - finders: each takes a few draws at a time, and asks for their media together.
 *
 * Not here: how a header is read (survey.c). */
#include "engine/lazy_facts.h"

#include "base/thread.h"
#include "manifest/index_chunk.h"

enum {
    DRAWS_AT_ONCE = 8, /* of a finder; with objects, a group of them: what counts then is how many are on their way */
    GROUP_MEDIA = STK_FINDER_REQUESTS, /* that are asked for together */
    COPIED_ADDRESS_BYTES = 4096, /* longer ones (data: URIs) are asked for at once, in place */
};

/* What was found of a draw. */
typedef struct found {
    stk_text_facts text;
    uint8_t reason;       /* stk_reason */
    bool again;           /* a medium has to be read whole: by the caller, alone */
    uint32_t finder;      /* who has its media */
    uint32_t first_media, media_count; /* of the finder's */
} found;

_Static_assert(sizeof(found) + sizeof(stk_lazy_words) + sizeof(stk_plan_draw) + sizeof(stk_record_facts) + sizeof(stk_text_facts) +
                       sizeof(stk_record_size) + sizeof(stk_reason) <= STK_LAZY_ROW_BYTES,
               "what a row takes of a pool");

/* A medium of the group in work. */
typedef struct use {
    uint32_t draw, number; /* number: of the record's media, from 1 */
    uint32_t media_index;  /* of the finder's */
} use;

typedef struct finder {
    stk_lazy_facts *lazy;
    uint32_t number;
    pthread_t thread;
    bool started;
    void *survey;
    stk_sample sample;
    stk_buffer record, media, etags; /* media: facts, in the order in which they were met; etags: of objects among them */
    stk_pool addresses;
    stk_survey_media group[GROUP_MEDIA];
    use use[GROUP_MEDIA];
    uint32_t group_count, group_set;
    uint32_t failed_at; /* the draw; UINT32_MAX: none */
    stk_status status;
    stk_error error;
} finder;

struct stk_lazy_facts {
    const stk_run *run;
    stk_survey_context context;
    stk_survey survey;
    finder *finder;
    uint32_t finder_count, thread_count, draws_most;
    atomic_bool stop;
    atomic_uint_fast64_t records, headers;
    /* The job; written while no finder is at work. */
    const stk_plan_draw *draw;
    found *found;
    stk_lazy_words *words;
    uint32_t count, at_once;
    atomic_uint next;

    pthread_mutex_t lock; /* guards all below */
    pthread_cond_t begun, ended;
    uint64_t round;
    uint32_t at_work;
    bool closing;
};

/* --- media --- */

static void lacks(stk_lazy_facts *lazy, uint32_t draw, stk_reason reason, const char *message)
{
    found *const r = &lazy->found[draw];
    if (r->reason != STK_REASON_NONE) return;
    r->reason = (uint8_t)((uint32_t)reason < STK_INDEX_REASON_COUNT ? reason : STK_REASON_UNSUPPORTED);
    snprintf(lazy->words[draw].message, sizeof lazy->words[draw].message, "%s", message);
}

static stk_status settle(finder *f, const use *u, stk_survey_media *medium, stk_error *err)
{
    stk_lazy_facts *const lazy = f->lazy;
    medium->facts.kind = (uint8_t)medium->kind;
    STK_TRY(stk_index_keep_etag(&f->etags, &medium->facts, medium->etag, err));
    ((stk_media_facts *)(void *)f->media.data)[u->media_index] = medium->facts;
    if (medium->header_read) atomic_fetch_add(&lazy->headers, 1);
    if (medium->deferred) lazy->found[u->draw].again = true;
    if (medium->facts.reason == STK_REASON_NONE) return STK_OK;
    stk_index_note note;
    stk_index_note_medium(&note, medium, u->number);
    lacks(lazy, u->draw, (stk_reason)medium->facts.reason, note.message);
    return STK_OK;
}

static stk_status settle_group(finder *f, stk_error *err)
{
    const uint32_t count = f->group_count;
    f->group_count = 0;
    if (count) STK_TRY(f->lazy->survey.probe(f->survey, f->group, count, false, err));
    for (uint32_t i = 0; i < count; i++) STK_TRY(settle(f, &f->use[i], &f->group[i], err));
    stk_pool_reset(&f->addresses);
    return STK_OK;
}

static stk_status add_medium(finder *f, uint32_t draw, uint32_t number, stk_error *err)
{
    const stk_media_ref *const ref = &f->sample.media[number - 1];
    const stk_media_facts blank = {0};
    const use u = {.draw = draw, .number = number, .media_index = (uint32_t)(f->media.size_bytes / sizeof blank)};
    stk_survey_media medium = {.address = ref->address, .kind = ref->kind,
                               .stated_width_px = ref->height_px ? ref->width_px : 0,
                               .stated_height_px = ref->width_px ? ref->height_px : 0};
    STK_TRY(stk_buffer_append(&f->media, &blank, sizeof blank, err));
    const bool in_place = ref->address.size_bytes > COPIED_ADDRESS_BYTES;
    if (in_place || f->group_count == GROUP_MEDIA) STK_TRY(settle_group(f, err));
    if (in_place) {
        STK_TRY(f->lazy->survey.probe(f->survey, &medium, 1, false, err));
        return settle(f, &u, &medium, err);
    }
    char *const address = stk_pool_take(&f->addresses, ref->address.size_bytes);
    if (!address) return stk_fail(err, STK_ERR_NOMEM, "out of memory: an address");
    memcpy(address, ref->address.data, ref->address.size_bytes);
    medium.address.data = address;
    f->use[f->group_count] = u;
    f->group[f->group_count++] = medium;
    return STK_OK;
}

/* --- a record --- */

/* STK_ERR_RECORD: it cannot be used, and its words say why. */
static stk_status read_record(finder *f, uint32_t i, stk_error *err)
{
    stk_lazy_facts *const lazy = f->lazy;
    const stk_plan_draw *const d = &lazy->draw[i];
    const stk_run_set *const set = &lazy->run->set[d->set_index];
    const stk_record_facts *const at = &set->facts.record[d->record_index];
    const uint64_t limit = lazy->run->rules->limits.record_bytes;
    stk_run_sample_id(lazy->run, d->set_index, d->record_index, (stk_str){0}, lazy->words[i].id);
    if (at->size_bytes > limit) { /* not even looked at */
        char words[128];
        snprintf(words, sizeof words, "a record of %u bytes, and limits.record_bytes is %llu", at->size_bytes, (unsigned long long)limit);
        lacks(lazy, i, STK_REASON_RECORD_LIMIT, words);
        return STK_ERR_RECORD;
    }
    STK_TRY(stk_run_read_record(lazy->run, d->set_index, d->record_index, &f->record, err));
    atomic_fetch_add(&lazy->records, 1);
    stk_reason reason = STK_REASON_NONE;
    stk_error why = {0};
    const stk_str text = {(const char *)f->record.data, f->record.size_bytes};
    const stk_status status = stk_record_parse(&f->sample, &set->rules->record, text, &reason, &why);
    if (status < 0 && status != STK_ERR_RECORD) {
        if (err) *err = why;
        return status;
    }
    if (f->sample.id.data) stk_run_sample_id(lazy->run, d->set_index, d->record_index, f->sample.id, lazy->words[i].id);
    if (status < 0) lacks(lazy, i, reason == STK_REASON_NONE ? STK_REASON_DIALECT : reason, why.message);
    return status;
}

static stk_status encode(finder *f, uint32_t i, stk_error *err)
{
    stk_lazy_facts *const lazy = f->lazy;
    const stk_run *const run = lazy->run;
    stk_error why = {0};
    stk_text_facts *const text = &lazy->found[i].text;
    const stk_status status = lazy->survey.encode(f->survey, &f->sample, text, &why);
    if (status < 0) {
        if (err) *err = why;
        return status;
    }
    const stk_reason reason = (stk_reason)text->reason;
    if (reason == STK_REASON_NONE) return STK_OK;
    if (reason == STK_REASON_RECORD_LIMIT && run->text_limits.text_bytes < run->rules->limits.text_bytes) {
        char words[128];
        snprintf(words, sizeof words, "a text that is longer than %u tokens in any case", run->max_tokens);
        lacks(lazy, i, STK_REASON_OVERLONG, words);
    } else {
        lacks(lazy, i, reason, why.message[0] ? why.message : stk_reason_text(reason));
    }
    return STK_OK;
}

static stk_status find_one(finder *f, uint32_t i, stk_error *err)
{
    stk_lazy_facts *const lazy = f->lazy;
    found *const r = &lazy->found[i];
    if (f->group_set != lazy->draw[i].set_index) {
        STK_TRY(settle_group(f, err));
        f->group_set = lazy->draw[i].set_index;
        stk_survey_point(f->survey, f->group_set);
    }
    *r = (found){.finder = f->number, .first_media = (uint32_t)(f->media.size_bytes / sizeof(stk_media_facts))};
    lazy->words[i].message[0] = 0;
    const stk_status status = read_record(f, i, err);
    if (status == STK_ERR_RECORD) return STK_OK;
    STK_TRY(status);
    STK_TRY(encode(f, i, err));
    if (r->reason != STK_REASON_NONE) return STK_OK;
    r->media_count = (uint32_t)f->sample.media_count;
    for (uint32_t m = 1; m <= r->media_count; m++) STK_TRY(add_medium(f, i, m, err));
    return STK_OK;
}

/* Some draws; what fails is noted at the draw that it was found at. */
static void find_some(finder *f, uint32_t begin, uint32_t end)
{
    stk_error err;
    stk_status status = STK_OK;
    uint32_t i = begin;
    f->group_count = 0;
    f->group_set = UINT32_MAX;
    for (; status == STK_OK && i < end; i++) status = find_one(f, i, &err);
    if (status == STK_OK) status = settle_group(f, &err);
    if (status == STK_OK || f->failed_at <= begin) return;
    f->failed_at = i - 1;
    f->status = status;
    f->error = err;
}

static void find_all(finder *f)
{
    stk_lazy_facts *const lazy = f->lazy;
    for (uint32_t at; !atomic_load(&lazy->stop) && (at = atomic_fetch_add(&lazy->next, lazy->at_once)) < lazy->count;)
        find_some(f, at, lazy->count - at < lazy->at_once ? lazy->count : at + lazy->at_once);
}

static void *run_finder(void *context)
{
    finder *const f = context;
    stk_lazy_facts *const lazy = f->lazy;
    pthread_setname_np(pthread_self(), "stk-finder");
    uint64_t done = 0;
    pthread_mutex_lock(&lazy->lock);
    while (!lazy->closing) {
        if (lazy->round == done) {
            pthread_cond_wait(&lazy->begun, &lazy->lock);
            continue;
        }
        done = lazy->round;
        pthread_mutex_unlock(&lazy->lock);
        find_all(f);
        pthread_mutex_lock(&lazy->lock);
        if (--lazy->at_work == 0) pthread_cond_signal(&lazy->ended);
    }
    pthread_mutex_unlock(&lazy->lock);
    return NULL;
}

/* --- a call --- */

/* With whoever helps, and then what only the caller may do. */
static void work(stk_lazy_facts *lazy)
{
    pthread_mutex_lock(&lazy->lock);
    lazy->round++;
    lazy->at_work = lazy->thread_count;
    pthread_cond_broadcast(&lazy->begun);
    pthread_mutex_unlock(&lazy->lock);
    find_all(&lazy->finder[0]);
    pthread_mutex_lock(&lazy->lock);
    while (lazy->at_work) pthread_cond_wait(&lazy->ended, &lazy->lock);
    pthread_mutex_unlock(&lazy->lock);

    stk_survey_defer(lazy->finder[0].survey, false);
    for (uint32_t i = 0; i < lazy->count && !atomic_load(&lazy->stop); i++)
        if (lazy->found[i].again) find_some(&lazy->finder[0], i, i + 1);
    stk_survey_defer(lazy->finder[0].survey, true);
}

/* The failure of the first draw that has one. */
static stk_status outcome(const stk_lazy_facts *lazy, stk_error *err)
{
    if (atomic_load(&lazy->stop)) return stk_fail(err, STK_ERR_INTERRUPTED, "the engine was closed");
    const finder *first = NULL;
    for (uint32_t i = 0; i < lazy->finder_count; i++)
        if (lazy->finder[i].status < 0 && (!first || lazy->finder[i].failed_at < first->failed_at)) first = &lazy->finder[i];
    if (!first) return STK_OK;
    if (err) *err = first->error;
    if (!err || err->file[0]) return first->status; /* it names a medium */
    const stk_plan_draw *const d = &lazy->draw[first->failed_at];
    const stk_set_facts *const facts = &lazy->run->set[d->set_index].facts;
    stk_error_sample(err, lazy->words[first->failed_at].id);
    stk_error_file(err, facts->file[facts->record[d->record_index].file_index], facts->record[d->record_index].line);
    return first->status;
}

/* A ticket has room for limits.media_bytes, whatever the number of media. */
static void check_bytes(stk_lazy_facts *lazy, uint32_t draw, const stk_media_facts *media, uint32_t count)
{
    uint64_t sum = 0;
    for (uint32_t m = 0; m < count; m++) sum += media[m].size_bytes;
    const uint64_t limit = lazy->run->rules->limits.media_bytes;
    if (sum <= limit) return;
    char words[160];
    snprintf(words, sizeof words, "%u media of %llu bytes together, and with index: stream limits.media_bytes (%llu) is for all of a record",
             count, (unsigned long long)sum, (unsigned long long)limit);
    lacks(lazy, draw, STK_REASON_MEDIA_LIMIT, words);
}

/* What the finders have, in the order of the draws. */
static stk_status collect(stk_lazy_facts *lazy, stk_pool *pool, stk_set_facts *facts, stk_error *err)
{
    uint64_t media_count = 0, etag_bytes = 0;
    for (uint32_t i = 0; i < lazy->count; i++) media_count += lazy->found[i].media_count;
    for (uint32_t i = 0; i < lazy->finder_count; i++) etag_bytes += lazy->finder[i].etags.size_bytes;
    stk_record_facts *const record = stk_pool_take(pool, lazy->count * sizeof *record);
    stk_text_facts *const text = stk_pool_take(pool, lazy->count * sizeof *text);
    stk_media_facts *const media = stk_pool_take(pool, media_count * sizeof *media);
    uint8_t *const etag = stk_pool_take(pool, etag_bytes);
    uint64_t *const etags_before = stk_pool_take(pool, lazy->finder_count * sizeof *etags_before);
    if (!record || !text || !media || !etag || !etags_before)
        return stk_fail(err, STK_ERR_NOMEM, "out of memory: the facts of a micro-batch");
    *facts = (stk_set_facts){.record = record, .text = text, .media = media, .record_count = lazy->count, .media_count = media_count,
                             .etag = etag, .etag_bytes = etag_bytes};
    for (uint32_t i = 0, before = 0; i < lazy->finder_count; before += (uint32_t)lazy->finder[i++].etags.size_bytes) {
        etags_before[i] = before;
        if (lazy->finder[i].etags.size_bytes) memcpy(etag + before, lazy->finder[i].etags.data, lazy->finder[i].etags.size_bytes);
    }
    uint64_t at = 0;
    for (uint32_t i = 0; i < lazy->count; i++) {
        const found *const r = &lazy->found[i];
        const stk_plan_draw *const d = &lazy->draw[i];
        const stk_media_facts *const from = (const stk_media_facts *)(const void *)lazy->finder[r->finder].media.data;
        if (r->media_count) memcpy(media + at, from + r->first_media, r->media_count * sizeof *media);
        for (uint32_t m = 0; m < r->media_count; m++) stk_index_move_etag(&media[at + m], etags_before[r->finder]);
        check_bytes(lazy, i, media + at, r->media_count);
        record[i] = lazy->run->set[d->set_index].facts.record[d->record_index];
        record[i].first_media = at;
        record[i].media_count = r->media_count;
        record[i].reason = r->reason;
        text[i] = r->text;
        at += r->media_count;
    }
    return STK_OK;
}

stk_status stk_lazy_facts_find(stk_lazy_facts *lazy, const stk_plan_draw *draw, uint32_t count, stk_pool *pool,
                               stk_set_facts *facts, const stk_lazy_words **words, stk_error *err)
{
    lazy->draw = draw;
    lazy->count = count;
    lazy->found = stk_pool_take(pool, count * sizeof *lazy->found);
    lazy->words = stk_pool_take(pool, count * sizeof *lazy->words);
    if (!lazy->found || !lazy->words) return stk_fail(err, STK_ERR_NOMEM, "out of memory: the facts of a micro-batch");
    const uint32_t share = (count + lazy->finder_count - 1) / lazy->finder_count;
    lazy->at_once = share < 1 ? 1 : share < lazy->draws_most ? share : lazy->draws_most;
    atomic_store(&lazy->next, 0);
    for (uint32_t i = 0; i < lazy->finder_count; i++) {
        stk_buffer_clear(&lazy->finder[i].media);
        stk_buffer_clear(&lazy->finder[i].etags);
        lazy->finder[i].failed_at = UINT32_MAX;
        lazy->finder[i].status = STK_OK;
    }
    work(lazy);
    STK_TRY(outcome(lazy, err));
    *words = lazy->words;
    return collect(lazy, pool, facts, err);
}

/* --- create and destroy --- */

static stk_status open_finder(stk_lazy_facts *lazy, uint32_t number, stk_error *err)
{
    finder *const f = &lazy->finder[number];
    f->lazy = lazy;
    f->number = number;
    stk_sample_init(&f->sample);
    stk_buffer_init(&f->record, STK_TAG_ENGINE, lazy->run->rules->limits.record_bytes + STK_PAD_BYTES);
    stk_buffer_init(&f->media, STK_TAG_ENGINE, SIZE_MAX / 4);
    stk_buffer_init(&f->etags, STK_TAG_ENGINE, UINT32_MAX / 8);
    stk_pool_init(&f->addresses, STK_TAG_ENGINE);
    STK_TRY(lazy->survey.open(&f->survey, lazy->survey.context, err));
    stk_survey_defer(f->survey, true);
    return STK_OK;
}

static stk_status start_threads(stk_lazy_facts *lazy, stk_error *err)
{
    for (uint32_t i = 1; i < lazy->finder_count; i++) {
        finder *const f = &lazy->finder[i];
        f->started = stk_thread_start(&f->thread, run_finder, f) == 0;
        if (!f->started) break;
        lazy->thread_count++;
    }
    return lazy->thread_count + 1 == lazy->finder_count ? STK_OK : stk_fail(err, STK_ERR_SYSTEM, "cannot start a thread that finds facts");
}

stk_status stk_lazy_facts_create(stk_lazy_facts **out, const stk_run *run, uint32_t finders, stk_error *err)
{
    *out = NULL;
    stk_lazy_facts *const lazy = stk_alloc(STK_TAG_ENGINE, sizeof *lazy);
    if (!lazy) return stk_fail(err, STK_ERR_NOMEM, "out of memory: the facts of records");
    lazy->run = run;
    lazy->context = (stk_survey_context){run, 0};
    lazy->survey = stk_survey_of(&lazy->context);
    lazy->draws_most = stk_run_is_remote(run) ? GROUP_MEDIA : DRAWS_AT_ONCE;
    pthread_mutex_init(&lazy->lock, NULL);
    pthread_cond_init(&lazy->begun, NULL);
    pthread_cond_init(&lazy->ended, NULL);
    lazy->finder = stk_alloc_array(STK_TAG_ENGINE, finders, sizeof *lazy->finder);
    stk_status status = lazy->finder ? STK_OK : stk_fail(err, STK_ERR_NOMEM, "out of memory: the facts of records");
    for (uint32_t i = 0; status == STK_OK && i < finders; i++) {
        lazy->finder_count = i + 1;
        status = open_finder(lazy, i, err);
    }
    if (status == STK_OK) status = start_threads(lazy, err);
    if (status < 0) {
        stk_lazy_facts_destroy(lazy);
        return status;
    }
    *out = lazy;
    return STK_OK;
}

void stk_lazy_facts_stop(stk_lazy_facts *lazy)
{
    if (!lazy) return;
    atomic_store(&lazy->stop, true);
    lazy->survey.stop(lazy->survey.context);
}

void stk_lazy_facts_destroy(stk_lazy_facts *lazy)
{
    if (!lazy) return;
    pthread_mutex_lock(&lazy->lock);
    lazy->closing = true;
    pthread_cond_broadcast(&lazy->begun);
    pthread_mutex_unlock(&lazy->lock);
    for (uint32_t i = 0; i < lazy->finder_count; i++) {
        finder *const f = &lazy->finder[i];
        if (f->started) pthread_join(f->thread, NULL);
        if (f->survey) lazy->survey.close(f->survey);
        stk_sample_deinit(&f->sample);
        stk_buffer_deinit(&f->record);
        stk_buffer_deinit(&f->media);
        stk_buffer_deinit(&f->etags);
        stk_pool_deinit(&f->addresses);
    }
    stk_free(lazy->finder);
    pthread_cond_destroy(&lazy->begun);
    pthread_cond_destroy(&lazy->ended);
    pthread_mutex_destroy(&lazy->lock);
    stk_free(lazy);
}

void stk_lazy_facts_counts(const stk_lazy_facts *lazy, uint64_t *records, uint64_t *headers)
{
    *records = atomic_load(&lazy->records);
    *headers = atomic_load(&lazy->headers);
}
