/* index_chunk.c - records to record facts and media facts, or to text facts.
 *
 * The media of a chunk are asked for in groups, so that a source with a long way can have many requests out at once.
 * Not here: threads, order, what is done already (index_build.c). */
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "manifest/index_chunk.h"

#include <pthread.h>
#include <stdarg.h>

#include "schema/place.h"

enum {
    CACHE_SLOTS = 1 << 16,     /* 9 MiB: repeats stand close together in a manifest */
    GROUP_MEDIA = 128,
    GROUP_USES = 1024,
    DECODED_AT_ONCE = 4,
    COPIED_ADDRESS_BYTES = 64 * 1024, /* longer ones (data: URIs) are asked for at once, in place */
};

/* --- media seen before --- */

typedef struct media_key {
    uint64_t low, high;
} media_key;

struct stk_media_cache {
    pthread_mutex_t lock; /* guards slot */
    struct {
        media_key key;
        stk_media_facts facts;
        char etag[STK_MEDIA_ETAG_BYTES];
    } slot[CACHE_SLOTS];
};

stk_media_cache *stk_media_cache_create(void)
{
    stk_media_cache *const cache = stk_alloc(STK_TAG_INDEX, sizeof *cache);
    if (cache) pthread_mutex_init(&cache->lock, NULL);
    return cache;
}

void stk_media_cache_destroy(stk_media_cache *cache)
{
    if (!cache) return;
    pthread_mutex_destroy(&cache->lock);
    stk_free(cache);
}

static media_key key_of(const stk_media_ref *ref)
{
    const XXH128_hash_t hash = XXH3_128bits_withSeed(ref->address.data, ref->address.size_bytes,
                                                     (uint64_t)ref->width_px << 32 | ref->height_px);
    return (media_key){hash.low64, hash.high64};
}

static bool same_key(media_key a, media_key b)
{
    return a.low == b.low && a.high == b.high;
}

static bool cache_find(stk_media_cache *cache, media_key key, stk_media_facts *facts, char etag[STK_MEDIA_ETAG_BYTES])
{
    pthread_mutex_lock(&cache->lock);
    const bool found = same_key(cache->slot[key.low % CACHE_SLOTS].key, key);
    if (found) {
        *facts = cache->slot[key.low % CACHE_SLOTS].facts;
        memcpy(etag, cache->slot[key.low % CACHE_SLOTS].etag, STK_MEDIA_ETAG_BYTES);
    }
    pthread_mutex_unlock(&cache->lock);
    return found;
}

static void cache_keep(stk_media_cache *cache, media_key key, const stk_survey_media *medium)
{
    pthread_mutex_lock(&cache->lock);
    cache->slot[key.low % CACHE_SLOTS].key = key;
    cache->slot[key.low % CACHE_SLOTS].facts = medium->facts;
    memcpy(cache->slot[key.low % CACHE_SLOTS].etag, medium->etag, STK_MEDIA_ETAG_BYTES);
    pthread_mutex_unlock(&cache->lock);
}

/* --- a worker --- */

/* A place in the chunk that waits for the facts of a medium of the group. */
typedef struct media_use {
    uint32_t record, number; /* of the chunk; of the record's media, from 1 */
    uint32_t facts_index;    /* of the chunk's media */
    uint32_t group_index;
} media_use;

struct stk_chunk_worker {
    stk_chunk_shared *shared;
    void *survey;
    stk_sample sample;
    /* The chunk in work. */
    stk_record_facts record[STK_CHUNK_RECORDS];
    stk_text_facts text[STK_CHUNK_RECORDS];
    stk_buffer media, notes, etags;
    uint64_t first_record;
    uint32_t noted[STK_INDEX_REASON_COUNT];
    /* Media that are asked for together. */
    stk_survey_media *group;
    media_key *group_key;
    media_use *use;
    uint32_t group_count, use_count;
    stk_pool addresses;
};

stk_status stk_chunk_worker_create(stk_chunk_worker **out, stk_chunk_shared *shared, stk_error *err)
{
    *out = NULL;
    stk_chunk_worker *const w = stk_alloc(STK_TAG_INDEX, sizeof *w);
    if (!w) return stk_fail(err, STK_ERR_NOMEM, "out of memory: a worker of the index");
    w->shared = shared;
    stk_sample_init(&w->sample);
    stk_buffer_init(&w->media, STK_TAG_INDEX, SIZE_MAX / 4);
    stk_buffer_init(&w->notes, STK_TAG_INDEX, SIZE_MAX / 4);
    stk_buffer_init(&w->etags, STK_TAG_INDEX, UINT32_MAX / 2);
    stk_pool_init(&w->addresses, STK_TAG_INDEX);
    w->group = stk_alloc_array(STK_TAG_INDEX, GROUP_MEDIA, sizeof *w->group);
    w->group_key = stk_alloc_array(STK_TAG_INDEX, GROUP_MEDIA, sizeof *w->group_key);
    w->use = stk_alloc_array(STK_TAG_INDEX, GROUP_USES, sizeof *w->use);
    stk_status status = STK_OK;
    if (!w->group || !w->group_key || !w->use) status = stk_fail(err, STK_ERR_NOMEM, "out of memory: a worker of the index");
    const stk_survey *const survey = shared->spec->survey;
    if (status == STK_OK && survey->open) status = survey->open(&w->survey, survey->context, err);
    if (status < 0) {
        stk_chunk_worker_destroy(w);
        return status;
    }
    *out = w;
    return STK_OK;
}

void stk_chunk_worker_destroy(stk_chunk_worker *w)
{
    if (!w) return;
    const stk_survey *const survey = w->shared->spec->survey;
    if (w->survey && survey->close) survey->close(w->survey);
    stk_sample_deinit(&w->sample);
    stk_buffer_deinit(&w->media);
    stk_buffer_deinit(&w->notes);
    stk_buffer_deinit(&w->etags);
    stk_pool_deinit(&w->addresses);
    stk_free(w->group);
    stk_free(w->group_key);
    stk_free(w->use);
    stk_free(w);
}

static uint32_t known_reason(uint32_t reason)
{
    return reason < STK_INDEX_REASON_COUNT ? reason : STK_REASON_UNSUPPORTED;
}

/* A text that was cut to fit may end inside a character. */
static void drop_partial_character(char *text)
{
    size_t at = strlen(text), tail = 0;
    while (at > 0 && tail < 3 && ((uint8_t)text[at - 1] & 0xC0) == 0x80) at--, tail++;
    if (at == 0) return;
    const uint8_t lead = (uint8_t)text[at - 1];
    const size_t needs = lead >= 0xF0 ? 3 : lead >= 0xE0 ? 2 : lead >= 0xC0 ? 1 : 0;
    if (tail < needs) text[at - 1] = 0;
}

static void fill_message(stk_index_note *note, const char *format, ...) STK_PRINTF(2, 3);
static void fill_message(stk_index_note *note, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(note->message, sizeof note->message, format, arguments);
    va_end(arguments);
    stk_blank_controls(note->message);
    drop_partial_character(note->message);
}

void stk_index_note_medium(stk_index_note *note, const stk_survey_media *medium, size_t number)
{
    static const char *const kind[] = {"image", "video", "audio"};
    const stk_str a = stk_address_shown(medium->address);
    const char *const what = medium->error.message[0] ? medium->error.message
                                                      : stk_reason_text((stk_reason)medium->facts.reason);
    if (a.size_bytes >= 5 && memcmp(a.data, "data:", 5) == 0) {
        fill_message(note, "%s %zu, a data: URI: %s", kind[medium->kind], number, what);
        return;
    }
    enum { SHOWN = 120 }; /* the end of a path says more than its start */
    size_t cut = a.size_bytes > SHOWN ? a.size_bytes - SHOWN : 0;
    while (cut && cut < a.size_bytes && ((uint8_t)a.data[cut] & 0xC0) == 0x80) cut++;
    fill_message(note, "%s %zu, %s%.*s: %s", kind[medium->kind], number, cut ? "..." : "", (int)(a.size_bytes - cut),
                 a.data + cut, what);
}

/* A few words for each reason are enough. */
static stk_status add_note(stk_chunk_worker *w, uint32_t record, stk_reason reason, const stk_survey_media *medium,
                           size_t number, const char *message, stk_error *err)
{
    if (w->noted[reason] >= STK_INDEX_WORDS_PER_REASON) return STK_OK;
    w->noted[reason]++;
    stk_index_note note;
    memset(&note, 0, sizeof note);
    note.record_index = w->first_record + record;
    note.reason = reason;
    if (medium) stk_index_note_medium(&note, medium, number);
    else fill_message(&note, "%s", message);
    return stk_buffer_append(&w->notes, &note, sizeof note, err);
}

/* --- media --- */

uint64_t stk_index_address_hash(stk_str address)
{
    const uint64_t hash = XXH3_64bits(address.data, address.size_bytes);
    return hash ? hash : 1;
}

static stk_media_facts *media_at(stk_chunk_worker *w, uint32_t index)
{
    return (stk_media_facts *)w->media.data + index;
}

static stk_status ask(stk_chunk_worker *w, stk_survey_media *media, size_t count, stk_error *err)
{
    /* Decoding takes long enough that a user who wants to stop should not wait for a whole group. */
    const size_t at_once = w->shared->decode ? DECODED_AT_ONCE : GROUP_MEDIA;
    for (size_t i = 0; i < count; i++) media[i].error.message[0] = 0;
    for (size_t at = 0; at < count; at += at_once) {
        if (atomic_load(&w->shared->stop)) return stk_fail(err, STK_ERR_INTERRUPTED, "stopped");
        const size_t some = count - at < at_once ? count - at : at_once;
        STK_TRY(w->shared->spec->survey->probe(w->survey, media + at, some, w->shared->decode, err));
    }
    for (size_t i = 0; i < count; i++) {
        media[i].facts.kind = (uint8_t)media[i].kind;
        media[i].facts.address_hash = stk_index_address_hash(media[i].address);
        media[i].facts.reason = (uint8_t)known_reason(media[i].facts.reason);
        if (media[i].header_read) atomic_fetch_add(&w->shared->media_headers_read, 1);
    }
    return STK_OK;
}

static stk_status settle(stk_chunk_worker *w, const media_use *use, const stk_survey_media *medium, stk_error *err)
{
    stk_media_facts *const facts = media_at(w, use->facts_index);
    *facts = medium->facts;
    STK_TRY(stk_index_keep_etag(&w->etags, facts, medium->etag, err));
    const stk_reason reason = (stk_reason)medium->facts.reason;
    if (reason == STK_REASON_NONE || w->record[use->record].reason != STK_REASON_NONE) return STK_OK;
    w->record[use->record].reason = (uint8_t)reason;
    return add_note(w, use->record, reason, medium, use->number, NULL, err);
}

static stk_status settle_group(stk_chunk_worker *w, stk_error *err)
{
    if (w->group_count) STK_TRY(ask(w, w->group, w->group_count, err));
    for (uint32_t i = 0; i < w->use_count; i++) STK_TRY(settle(w, &w->use[i], &w->group[w->use[i].group_index], err));
    for (uint32_t i = 0; i < w->group_count; i++)
        if (w->group[i].facts.reason == STK_REASON_NONE) cache_keep(w->shared->cache, w->group_key[i], &w->group[i]);
    w->group_count = w->use_count = 0;
    stk_pool_reset(&w->addresses);
    return STK_OK;
}

static stk_survey_media medium_of(const stk_media_ref *ref)
{
    return (stk_survey_media){
        .address = ref->address,
        .kind = ref->kind,
        .stated_width_px = ref->height_px ? ref->width_px : 0,
        .stated_height_px = ref->width_px ? ref->height_px : 0,
    };
}

/* The place of a medium in the group, added if it is new. */
static stk_status join_group(stk_chunk_worker *w, uint32_t *group_index, const stk_media_ref *ref, media_key key, stk_error *err)
{
    for (uint32_t i = w->group_count; i-- > 0;) {
        if (!same_key(w->group_key[i], key)) continue;
        *group_index = i;
        return STK_OK;
    }
    char *const address = stk_pool_take(&w->addresses, ref->address.size_bytes);
    if (!address) return stk_fail(err, STK_ERR_NOMEM, "out of memory: an address");
    memcpy(address, ref->address.data, ref->address.size_bytes);
    *group_index = w->group_count++;
    w->group_key[*group_index] = key;
    w->group[*group_index] = medium_of(ref);
    w->group[*group_index].address.data = address;
    return STK_OK;
}

static stk_status add_medium(stk_chunk_worker *w, uint32_t record, const stk_media_ref *ref, stk_error *err)
{
    stk_media_facts facts = {.kind = (uint8_t)ref->kind};
    const media_use use = {.record = record, .number = ++w->record[record].media_count,
                           .facts_index = (uint32_t)(w->media.size_bytes / sizeof facts)};
    const media_key key = key_of(ref);
    char etag[STK_MEDIA_ETAG_BYTES];
    const bool known = cache_find(w->shared->cache, key, &facts, etag);
    if (known) STK_TRY(stk_index_keep_etag(&w->etags, &facts, etag, err));
    STK_TRY(stk_buffer_append(&w->media, &facts, sizeof facts, err));
    if (known) return STK_OK;

    if (ref->address.size_bytes > COPIED_ADDRESS_BYTES) {
        STK_TRY(settle_group(w, err)); /* the first fault of a record in the order of its media is the one that counts */
        stk_survey_media medium = medium_of(ref);
        STK_TRY(ask(w, &medium, 1, err));
        return settle(w, &use, &medium, err);
    }
    if (w->group_count == GROUP_MEDIA || w->use_count == GROUP_USES) STK_TRY(settle_group(w, err));
    uint32_t group_index = 0;
    STK_TRY(join_group(w, &group_index, ref, key, err));
    w->use[w->use_count] = use;
    w->use[w->use_count++].group_index = group_index;
    return STK_OK;
}

/* --- records --- */

/* STK_OK, STK_ERR_RECORD with the reason, or what stops the build. */
static stk_status parse(stk_chunk_worker *w, stk_str text, stk_reason *reason, stk_error *err)
{
    if (atomic_load(&w->shared->stop)) return stk_fail(err, STK_ERR_INTERRUPTED, "stopped");
    *reason = STK_REASON_NONE;
    const stk_status status = stk_record_parse(&w->sample, w->shared->spec->record_rules, text, reason, err);
    if (status < 0) *reason = *reason == STK_REASON_NONE ? STK_REASON_DIALECT : (stk_reason)known_reason(*reason);
    return status;
}

static stk_status read_record(stk_chunk_worker *w, uint32_t i, const stk_record_at *at, stk_error *err)
{
    stk_record_facts *const r = &w->record[i];
    memset(r, 0, sizeof *r);
    r->offset = at->offset;
    r->line = at->line;
    if (at->text.size_bytes > w->shared->spec->record_rules->limits->record_bytes || at->text.size_bytes > UINT32_MAX) {
        /* Not even looked at; what can be told of its place is told. */
        r->size_bytes = at->text.size_bytes > UINT32_MAX ? UINT32_MAX : (uint32_t)at->text.size_bytes;
        r->reason = STK_REASON_RECORD_LIMIT;
        char message[128];
        snprintf(message, sizeof message, "a record of %llu bytes, and limits.record_bytes is %llu",
                 (unsigned long long)at->text.size_bytes,
                 (unsigned long long)w->shared->spec->record_rules->limits->record_bytes);
        return add_note(w, i, STK_REASON_RECORD_LIMIT, NULL, 0, message, err);
    }
    r->size_bytes = (uint32_t)at->text.size_bytes;
    atomic_fetch_add(&w->shared->records_parsed, 1);
    stk_reason reason;
    stk_error why;
    const stk_status status = parse(w, at->text, &reason, &why);
    if (status < 0 && status != STK_ERR_RECORD) {
        if (err) *err = why;
        return status;
    }
    const stk_str id = w->sample.id;
    if (id.data) {
        const uint64_t hash = XXH3_64bits(id.data, id.size_bytes);
        r->id_hash = hash ? hash : 1;
    }
    if (status < 0) {
        r->reason = (uint8_t)reason;
        return add_note(w, i, reason, NULL, 0, why.message, err);
    }
    r->notes = w->sample.notes;
    for (size_t m = 0; m < w->sample.media_count; m++) STK_TRY(add_medium(w, i, &w->sample.media[m], err));
    return STK_OK;
}

static stk_status read_text(stk_chunk_worker *w, uint32_t i, const stk_record_facts *r, stk_error *err)
{
    stk_text_facts *const t = &w->text[i];
    memset(t, 0, sizeof *t);
    stk_reason reason = STK_REASON_RECORD_LIMIT;
    stk_error why;
    why.message[0] = 0;
    if (r->reason == STK_REASON_RECORD_LIMIT) {
        t->reason = STK_REASON_RECORD_LIMIT;
        return STK_OK;
    }
    stk_status status = parse(w, (stk_str){(const char *)w->shared->manifest + r->offset, r->size_bytes}, &reason, &why);
    if (status == STK_ERR_RECORD) { /* the media part has its words */
        t->reason = (uint8_t)reason;
        return STK_OK;
    }
    if (status == STK_OK) status = w->shared->spec->survey->encode(w->survey, &w->sample, t, &why);
    if (status < 0) {
        if (err) *err = why;
        return status;
    }
    atomic_fetch_add(&w->shared->texts_encoded, 1);
    t->reason = (uint8_t)known_reason(t->reason);
    if (t->supervised_count > t->token_count) t->supervised_count = t->token_count;
    if (t->reason == STK_REASON_NONE) return STK_OK;
    return add_note(w, i, (stk_reason)t->reason, NULL, 0,
                    why.message[0] ? why.message : stk_reason_text((stk_reason)t->reason), err);
}

static stk_status finish(stk_chunk_worker *w, stk_chunk_task *task, stk_error *err)
{
    const bool media = w->shared->part == STK_INDEX_MEDIA;
    STK_TRY(stk_index_pad_etags(&w->etags, err));
    const stk_chunk_counts counts = {.record_count = task->count,
                                     .media_count = (uint32_t)(w->media.size_bytes / sizeof(stk_media_facts)),
                                     .note_count = (uint32_t)(w->notes.size_bytes / sizeof(stk_index_note)),
                                     .etag_bytes = (uint32_t)w->etags.size_bytes};
    stk_buffer_clear(&task->payload);
    STK_TRY(stk_buffer_append(&task->payload, &counts, sizeof counts, err));
    STK_TRY(media ? stk_buffer_append(&task->payload, w->record, task->count * sizeof *w->record, err)
                  : stk_buffer_append(&task->payload, w->text, task->count * sizeof *w->text, err));
    STK_TRY(stk_buffer_append(&task->payload, w->media.data, w->media.size_bytes, err));
    STK_TRY(stk_buffer_append(&task->payload, w->notes.data, w->notes.size_bytes, err));
    return stk_buffer_append(&task->payload, w->etags.data, w->etags.size_bytes, err);
}

stk_status stk_chunk_make(stk_chunk_worker *w, stk_chunk_task *task, stk_error *err)
{
    w->first_record = task->chunk * STK_CHUNK_RECORDS;
    w->group_count = w->use_count = 0;
    memset(w->noted, 0, sizeof w->noted);
    stk_buffer_clear(&w->media);
    stk_buffer_clear(&w->notes);
    stk_buffer_clear(&w->etags);
    stk_pool_reset(&w->addresses);
    for (uint32_t i = 0; i < task->count; i++)
        STK_TRY(w->shared->part == STK_INDEX_MEDIA ? read_record(w, i, &task->at[i], err)
                                                   : read_text(w, i, &w->shared->record[w->first_record + i], err));
    if (w->shared->part == STK_INDEX_MEDIA) STK_TRY(settle_group(w, err));
    return finish(w, task, err);
}
