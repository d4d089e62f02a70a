/* survey.c - what the index asks, answered by source, image and text.
 *
 * Media of a group are fetched together, their first 64 KiB each: nearly every header ends there.  The few whose header
 * goes on behind that (a large profile before the frame, an orientation at the end of the file) are read again, longer,
 * one by one.  With index: stream and objects it is 16 KiB first, so that more of them are on their way in the same memory, and
 * then 64 KiB.
 *
 * Files are read by a source of each worker; objects by the run's own, whose connections all workers share. */
#include "engine/survey.h"

#include <errno.h>
#include <xxhash.h>

#include "schema/place.h"
#include "source/source.h"

enum {
    HEAD_BYTES = 64 * 1024,
    FIRST_BYTES = 16 * 1024, /* index: stream, objects */
    LONGER_BYTES = 1024 * 1024,
    IO_THREADS = 4,
    REQUESTS = 24,      /* at once, of a worker: 1.5 MiB of buffers */
    REMOTE_REQUESTS = 128, /* where there are objects: 8 MiB */
    LAZY_REQUESTS = STK_SURVEY_LAZY_REQUESTS, /* and with index: stream, by FIRST_BYTES each: see STK_FINDER_BYTES */
    VERIFY_SIDE_PX = 64 /* decoding is the same whatever comes out */
};

_Static_assert((int)LAZY_REQUESTS * FIRST_BYTES <= (int)REQUESTS * HEAD_BYTES && (int)LAZY_REQUESTS <= (int)REMOTE_REQUESTS, "one room for both");
_Static_assert((int)STK_MEDIA_ETAG_BYTES == (int)STK_ETAG_BYTES, "what comes from the source is kept by the index");

/* One medium on its way. */
typedef struct survey_request {
    stk_remote_request remote; /* first */
    stk_survey_media *media;
} survey_request;

typedef struct survey_worker {
    const stk_run *run;
    const stk_run_set *set;
    stk_source *source;         /* for files and data: URIs */
    stk_remote_group group;     /* for objects */
    survey_request *request;    /* request_count */
    size_t request_count, head_bytes; /* at once; of each, first */
    uint8_t *heads;          /* their buffers */
    uint8_t *longer;         /* for one that needs more */
    size_t longer_bytes;
    bool defers;             /* see stk_survey_defer */
    stk_image_scratch *image; /* when something is decoded */
    uint8_t *pixels;
    stk_text_scratch *text;
    stk_quarantine_cell *cell; /* when something is decoded */
} survey_worker;

static void close_worker(void *worker)
{
    survey_worker *const w = worker;
    stk_quarantine_leave(w->run->quarantine, w->cell);
    stk_source_close(&w->source);
    stk_remote_group_deinit(&w->group);
    stk_image_scratch_destroy(w->image);
    stk_text_scratch_destroy(w->text);
    stk_free(w->request);
    stk_free(w->heads);
    stk_free(w->longer);
    stk_free(w->pixels);
    stk_free(w);
}

static stk_status open_worker(void **worker, void *context, stk_error *err)
{
    const stk_survey_context *const of = context;
    *worker = NULL;
    survey_worker *const w = stk_alloc(STK_TAG_INDEX, sizeof *w);
    if (!w) return stk_fail(err, STK_ERR_NOMEM, "out of memory: a worker of the index");
    w->run = of->run;
    w->set = &of->run->set[of->set_index];
    stk_remote_group_init(&w->group);
    const stk_status status = stk_text_scratch_create(&w->text, &w->run->text_limits, err);
    if (status < 0) {
        close_worker(w);
        return status;
    }
    *worker = w;
    return STK_OK;
}

bool stk_survey_is_remote(const stk_run_set *set)
{
    for (size_t i = 0; i < set->rules->place_count; i++)
        if (stk_address_is_remote(set->rules->place[i])) return true;
    return false;
}

bool stk_run_is_remote(const stk_run *run)
{
    bool remote = false;
    for (uint32_t i = 0; i < run->set_count; i++) remote |= stk_survey_is_remote(&run->set[i]);
    return remote;
}

/* What only media need: an index whose media part fits never opens it. */
static stk_status open_source(survey_worker *w, stk_error *err)
{
    if (w->source) return STK_OK;
    const bool remote = stk_run_is_remote(w->run);
    w->request_count = !remote ? REQUESTS : w->run->stream ? LAZY_REQUESTS : REMOTE_REQUESTS;
    w->head_bytes = remote && w->run->stream ? FIRST_BYTES : HEAD_BYTES;
    if (!w->request) w->request = stk_alloc_array(STK_TAG_INDEX, w->request_count, sizeof *w->request);
    if (!w->heads) w->heads = stk_alloc_array(STK_TAG_INDEX, w->request_count, w->head_bytes + STK_PAD_BYTES);
    if (!w->request || !w->heads) return stk_fail(err, STK_ERR_NOMEM, "out of memory: a worker of the index");
    const stk_source_config config = {.file_threads = IO_THREADS, .tar_lists = w->run->rules->store.tar_lists};
    return stk_source_open(&w->source, &config, err);
}

/* Submit to whoever reads such addresses. */
static stk_status submit_one(survey_worker *w, stk_remote_request *r, stk_error *err)
{
    if (stk_address_is_on_store(stk_address_container(r->request.address))) return stk_remote_submit(w->run->rules->remote, &w->group, r, err);
    stk_source_submit(w->source, &r->request);
    return STK_OK;
}

/* The next that has come back; local: how many of those under way are with the worker's own source. */
static stk_request *reap_one(survey_worker *w, size_t *local)
{
    stk_request *r = NULL;
    if (!*local) return stk_remote_next(w->run->rules->remote, &w->group, STK_FOREVER);
    while (!(r = stk_source_reap(w->source, STK_FOREVER))) continue;
    --*local;
    return r;
}

/* --- outcomes --- */

static bool is_data_uri(stk_str address)
{
    return address.size_bytes >= 5 && memcmp(address.data, "data:", 5) == 0;
}

/* The reason of a request that failed for what the medium is; STK_REASON_NONE: it is the system's fault. */
static stk_reason reason_of(const stk_request *request)
{
    switch (request->status) {
    case STK_ERR_MEDIA_MISSING: return STK_REASON_MISSING;
    case STK_ERR_MEDIA_DENIED: return STK_REASON_DENIED;
    case STK_ERR_MEDIA_LIMIT: return STK_REASON_MEDIA_LIMIT;
    case STK_ERR_MEDIA_UNSUPPORTED: return STK_REASON_UNSUPPORTED;
    case STK_ERR_MEDIA:
        return is_data_uri(request->address) || stk_address_container(request->address).data != request->address.data
                   ? STK_REASON_BROKEN : STK_REASON_NOT_IMAGE;
    case STK_ERR_SYSTEM:
        return request->error.code == EACCES || request->error.code == EPERM ? STK_REASON_UNREADABLE : STK_REASON_NONE;
    default: return STK_REASON_NONE;
    }
}

static void lacks(stk_survey_media *media, stk_reason reason, const char *words)
{
    media->facts.reason = (uint8_t)reason;
    (void)stk_fail(&media->error, STK_ERR_MEDIA, "%s", words);
}

/* What a request says of the whole medium. */
static void note_answer(stk_survey_media *media, const stk_request *request)
{
    media->facts.size_bytes = request->total_bytes;
    media->facts.mtime_ns = request->mtime_ns;
    if (!stk_address_is_on_store(stk_address_container(request->address))) return;
    media->facts.mtime_ns = STK_MEDIA_OBJECT;
    memcpy(media->etag, request->etag_is, sizeof media->etag);
}

/* What tells one state of a medium from another, for the quarantine. */
uint64_t stk_survey_version(const stk_media_facts *facts, stk_str etag)
{
    return facts->mtime_ns & STK_MEDIA_OBJECT ? XXH3_64bits(etag.data, etag.size_bytes) : facts->mtime_ns;
}

/* What a failed request means.  < 0 stops the build. */
static stk_status note_failure(stk_survey_media *media, const stk_request *request, stk_error *err)
{
    const stk_reason reason = reason_of(request);
    if (reason == STK_REASON_NONE) {
        if (err) *err = request->error;
        return request->status;
    }
    media->facts.reason = (uint8_t)reason;
    media->error = request->error;
    return STK_OK;
}

/* The bytes of a medium are known.  False: they are too many, or none. */
static bool size_is_fine(stk_survey_media *media, const stk_limits *limits)
{
    char words[160];
    if (media->facts.size_bytes == 0) {
        lacks(media, STK_REASON_EMPTY, "the file has no bytes");
        return false;
    }
    if (media->facts.size_bytes <= limits->media_bytes) return true;
    snprintf(words, sizeof words, "%llu bytes, and limits.media_bytes is %llu", (unsigned long long)media->facts.size_bytes,
             (unsigned long long)limits->media_bytes);
    lacks(media, STK_REASON_MEDIA_LIMIT, words);
    return false;
}

static void take_stated_size(stk_survey_media *media, const stk_limits *limits)
{
    media->facts.width_px = media->stated_width_px;
    media->facts.height_px = media->stated_height_px;
    media->facts.orientation = 1;
    media->facts.flags = STK_MEDIA_STATED;
    if ((uint64_t)media->stated_width_px * media->stated_height_px <= limits->media_px) return;
    char words[160];
    snprintf(words, sizeof words, "stated as %u x %u pixels, and limits.media_pixels is %llu", media->stated_width_px,
             media->stated_height_px, (unsigned long long)limits->media_px);
    lacks(media, STK_REASON_MEDIA_LIMIT, words);
}

/* --- headers --- */

/* What two copies of a picture have in common, for the findings of an index; the same however many bytes were fetched at once. */
static void note_head(const survey_worker *w, stk_survey_media *media, stk_bytes bytes)
{
    if (w->run->stream) return;
    const size_t head_bytes = bytes.size_bytes < HEAD_BYTES ? bytes.size_bytes : HEAD_BYTES;
    const uint64_t hash = XXH3_64bits_withSeed(bytes.data, head_bytes, media->facts.size_bytes);
    media->facts.head_hash = hash ? hash : 1;
}

/* STK_OK: the header is read, or the medium lacks something.  STK_AGAIN: with more bytes. */
static stk_status read_header(survey_worker *w, stk_survey_media *media, stk_bytes bytes, stk_error *err)
{
    stk_image_info info;
    stk_reason reason = STK_REASON_NONE;
    const stk_status status =
        stk_image_probe(&info, &reason, bytes, media->facts.size_bytes, &w->run->rules->limits, &media->error);
    if (status == STK_AGAIN && bytes.size_bytes >= media->facts.size_bytes) {
        lacks(media, STK_REASON_BROKEN, "the header goes on behind the end of the file");
        return STK_OK;
    }
    if (status == STK_AGAIN) return STK_AGAIN;
    if (status < 0) {
        if (reason == STK_REASON_NONE) { /* out of memory, and such */
            if (err) *err = media->error;
            return status;
        }
        media->facts.reason = (uint8_t)reason;
        return STK_OK;
    }
    media->facts.width_px = info.width_px;
    media->facts.height_px = info.height_px;
    media->facts.format = (uint8_t)info.format;
    media->facts.orientation = info.orientation;
    media->facts.flags = info.flags | (info.whole ? STK_MEDIA_WHOLE : 0);
    return STK_OK;
}

/* Read the first size_bytes of a medium, alone, into the large buffer. */
static stk_status read_longer(survey_worker *w, stk_survey_media *media, size_t size_bytes, stk_bytes *bytes, stk_error *err)
{
    if (w->longer_bytes < size_bytes) {
        stk_free(w->longer);
        w->longer_bytes = 0;
        w->longer = stk_alloc(STK_TAG_INDEX, size_bytes + STK_PAD_BYTES);
        if (!w->longer) return stk_fail(err, STK_ERR_NOMEM, "out of memory: a medium of %zu bytes", size_bytes);
        w->longer_bytes = size_bytes;
    }
    stk_remote_request r = {.request = {.address = media->address, .places = w->set->places, .size_bytes = size_bytes,
                                        .buffer = w->longer, .capacity_bytes = size_bytes}};
    size_t local = !stk_address_is_on_store(stk_address_container(media->address));
    STK_TRY(submit_one(w, &r, err));
    while (!reap_one(w, &local)) continue;
    *bytes = (stk_bytes){w->longer, r.request.got_bytes};
    if (r.request.status < 0) return note_failure(media, &r.request, err);
    note_answer(media, &r.request);
    return STK_OK;
}

/* A medium that is decoded to see whether it can be. */
typedef struct trial {
    survey_worker *worker;
    stk_bytes bytes;
    stk_reason reason;
    stk_error *err;
    stk_status status;
} trial;

static void try_decode(void *context)
{
    trial *const t = context;
    const survey_worker *const w = t->worker;
    stk_image_info info;
    t->status = stk_image_probe(&info, &t->reason, t->bytes, t->bytes.size_bytes, &w->run->rules->limits, t->err);
    if (t->status == STK_OK)
        t->status = stk_image_rgb(w->pixels, w->run->image, w->image, t->bytes, &info, 1, STK_ALPHA_DROP, VERIFY_SIDE_PX,
                                  VERIFY_SIDE_PX, &t->reason, t->err);
}

static stk_status decode(survey_worker *w, stk_survey_media *media, stk_bytes bytes, stk_error *err)
{
    if (!w->image) STK_TRY(stk_image_scratch_create(&w->image, w->run->image, err));
    if (!w->pixels) w->pixels = stk_alloc(STK_TAG_INDEX, VERIFY_SIDE_PX * VERIFY_SIDE_PX * 3);
    if (!w->pixels) return stk_fail(err, STK_ERR_NOMEM, "out of memory: decoding a medium");
    if (!w->cell) w->cell = stk_quarantine_enter(w->run->quarantine);
    trial t = {.worker = w, .bytes = bytes, .reason = STK_REASON_NONE, .err = &media->error};
    const uint64_t key = stk_quarantine_key(media->address, media->facts.size_bytes,
                                            stk_survey_version(&media->facts, stk_str_of(media->etag)));
    if (!stk_quarantine_begin(w->run->quarantine, w->cell, key, media->address, try_decode, &t)) {
        lacks(media, STK_REASON_CRASHED, "decoding it crashed a process, and one of its own again, or never ended there: leave it out");
        return STK_OK;
    }
    try_decode(&t);
    stk_quarantine_end(w->cell);
    if (t.status == STK_OK) return STK_OK;
    if (t.reason == STK_REASON_NONE && t.status < 0) {
        if (err) *err = media->error;
        return t.status;
    }
    media->facts.reason = (uint8_t)(t.reason == STK_REASON_NONE ? STK_REASON_BROKEN : t.reason);
    return STK_OK;
}

/* A medium that the first bytes were not enough for. */
static stk_status probe_longer(survey_worker *w, stk_survey_media *media, bool whole, stk_error *err)
{
    stk_bytes bytes = {0};
    if (!whole && media->facts.size_bytes > LONGER_BYTES) {
        STK_TRY(read_longer(w, media, LONGER_BYTES, &bytes, err));
        if (media->facts.reason != STK_REASON_NONE) return STK_OK;
        const stk_status status = read_header(w, media, bytes, err);
        if (status != STK_AGAIN) return status;
    }
    if (w->defers && media->facts.size_bytes > LONGER_BYTES) {
        media->deferred = true;
        return STK_OK;
    }
    STK_TRY(read_longer(w, media, media->facts.size_bytes, &bytes, err));
    if (media->facts.reason != STK_REASON_NONE) return STK_OK;
    media->facts.size_bytes = bytes.size_bytes; /* as much as there is now */
    if (!size_is_fine(media, &w->run->rules->limits)) return STK_OK;
    note_head(w, media, bytes);
    STK_TRY(read_header(w, media, bytes, err));
    return whole && media->facts.reason == STK_REASON_NONE ? decode(w, media, bytes, err) : STK_OK;
}

/* --- groups --- */

static bool looks_only(const stk_survey_media *media, bool decoding)
{
    return media->look_only || (media->stated_width_px && !decoding);
}

/* How a group is asked for. */
typedef struct ask {
    bool decoding;
    size_t at_once, head_bytes; /* of each medium, and of its buffer */
} ask;

static stk_status submit(survey_worker *w, size_t at, stk_survey_media *media, ask how, stk_error *err)
{
    survey_request *const r = &w->request[at];
    media->facts = (stk_media_facts){.kind = (uint8_t)media->kind, .orientation = 1};
    media->header_read = media->deferred = false;
    media->etag[0] = 0;
    r->media = media;
    r->remote.request = (stk_request){.address = media->address,
                                      .places = w->set->places,
                                      .size_bytes = looks_only(media, how.decoding) || how.decoding ? 0 : how.head_bytes,
                                      .priority = at,
                                      .buffer = w->heads + at * (how.head_bytes + STK_PAD_BYTES),
                                      .capacity_bytes = how.head_bytes};
    return submit_one(w, &r->remote, err);
}

/* STK_AGAIN: the medium needs more of its bytes. */
static stk_status take_answer(survey_worker *w, const survey_request *r, bool decoding, stk_error *err)
{
    stk_survey_media *const media = r->media;
    const stk_request *const request = &r->remote.request;
    if (request->status < 0) return note_failure(media, request, err);
    note_answer(media, request);
    if (media->look_only) return STK_OK;
    if (!size_is_fine(media, &w->run->rules->limits)) return STK_OK;
    if (looks_only(media, decoding)) {
        take_stated_size(media, &w->run->rules->limits);
        return STK_OK;
    }
    media->header_read = true;
    if (decoding) return STK_AGAIN;
    const stk_bytes head = {request->buffer, request->got_bytes};
    note_head(w, media, head);
    return read_header(w, media, head, err);
}

/* The next of the marked media, as many as are asked for at once; what needs more of its bytes stays marked. */
static stk_status ask_some(survey_worker *w, stk_survey_media *media, bool *marked, size_t *next, size_t count, ask how, stk_error *err)
{
    stk_status status = STK_OK;
    size_t submitted = 0, local = 0;
    for (; status == STK_OK && *next < count && submitted < how.at_once; ++*next) {
        if (!marked[*next]) continue;
        local += !stk_address_is_on_store(stk_address_container(media[*next].address));
        status = submit(w, submitted++, &media[*next], how, err);
    }
    if (status < 0) submitted--; /* it never left */
    for (size_t left = submitted; left; left--) {
        survey_request *r = NULL;
        while (!(r = (survey_request *)reap_one(w, &local))) continue;
        if (status < 0) continue; /* all come back before the buffers go */
        const stk_status one = take_answer(w, r, how.decoding, err);
        marked[r->media - media] = one == STK_AGAIN;
        if (one < 0) status = one;
    }
    return status;
}

/* Some of the media, all under way at once. */
static stk_status probe_some(survey_worker *w, stk_survey_media *media, size_t count, bool decoding, stk_error *err)
{
    bool longer[REMOTE_REQUESTS];
    for (size_t i = 0; i < count; i++) longer[i] = true;
    size_t next = 0;
    STK_TRY(ask_some(w, media, longer, &next, count, (ask){decoding, w->request_count, w->head_bytes}, err));
    for (next = w->head_bytes < HEAD_BYTES ? 0 : count; next < count;)
        STK_TRY(ask_some(w, media, longer, &next, count, (ask){decoding, REQUESTS, HEAD_BYTES}, err));
    for (size_t i = 0; i < count; i++)
        if (longer[i]) STK_TRY(probe_longer(w, &media[i], decoding, err));
    return STK_OK;
}

static stk_status probe(void *worker, stk_survey_media *media, size_t count, bool decoding, stk_error *err)
{
    survey_worker *const w = worker;
    STK_TRY(open_source(w, err));
    for (size_t at = 0; at < count; at += w->request_count)
        STK_TRY(probe_some(w, media + at, count - at < w->request_count ? count - at : w->request_count, decoding, err));
    return STK_OK;
}

/* --- text --- */

static stk_status encode(void *worker, const stk_sample *sample, stk_text_facts *facts, stk_error *err)
{
    survey_worker *const w = worker;
    stk_tokens tokens = {0};
    stk_reason reason = STK_REASON_NONE;
    const stk_status status = stk_text_encode(&tokens, w->run->tokenizer, w->set->chat_template, &w->set->rules->text, sample,
                                              w->text, &reason, err);
    if (status < 0 && status != STK_ERR_RECORD) return status;
    if (status < 0) {
        facts->reason = (uint8_t)(reason == STK_REASON_NONE ? STK_REASON_TEMPLATE : reason);
        return STK_OK;
    }
    facts->token_count = tokens.count;
    facts->supervised_count = tokens.supervised_count;
    facts->notes = tokens.notes;
    facts->typed_tokens = tokens.typed_tokens;
    return STK_OK;
}

static void stop(void *context)
{
    const stk_survey_context *const of = context;
    stk_remote_stop(of->run->rules->remote);
}

stk_survey stk_survey_of(stk_survey_context *context)
{
    return (stk_survey){.context = context, .open = open_worker, .close = close_worker, .probe = probe, .encode = encode, .stop = stop};
}

void stk_survey_point(void *worker, uint32_t set_index)
{
    survey_worker *const w = worker;
    w->set = &w->run->set[set_index];
}

void stk_survey_defer(void *worker, bool defers)
{
    survey_worker *const w = worker;
    w->defers = defers;
    if (!defers || w->longer_bytes <= LONGER_BYTES) return;
    stk_free(w->longer);
    w->longer = NULL;
    w->longer_bytes = 0;
}
