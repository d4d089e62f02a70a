/* index_recheck.c - a media part with some of its media asked for again.
 *
 * Only media with a reason are looked at, and of these only such as are no longer of the same size and time are read. */
#include "manifest/index_recheck.h"

typedef struct recheck {
    const stk_index_spec *spec;
    const stk_index_view *view;
    void *survey;
    stk_sample sample;
    stk_record_facts *record; /* copies, changed in place */
    stk_media_facts *media;
    stk_buffer notes, etags;  /* the latter: those of the view, and behind them new ones */
    uint32_t noted[STK_INDEX_REASON_COUNT];
    bool changed;
    stk_index_work *work;
} recheck;

bool stk_recheck_worthwhile(const stk_index_view *view)
{
    for (uint64_t i = 0; i < view->header->media_count; i++)
        if (view->media[i].reason != STK_REASON_NONE) return true;
    return false;
}

/* Whether a file has the time that is known, an object the ETag. */
static bool same_version(const stk_index_view *view, const stk_survey_media *now, const stk_media_facts *known)
{
    if (!(known->mtime_ns & STK_MEDIA_OBJECT)) return now->facts.mtime_ns == known->mtime_ns;
    const stk_set_facts facts = {.etag = view->etag, .etag_bytes = view->header->etag_bytes};
    const stk_str etag = stk_media_etag(&facts, known);
    return etag.size_bytes && stk_str_is(etag, now->etag);
}

/* STK_OK: the medium is as it was.  STK_AGAIN: ask for it. */
static stk_status look(recheck *c, const stk_survey_media *medium, const stk_media_facts *known, stk_error *err)
{
    stk_survey_media glance = *medium;
    glance.look_only = true;
    STK_TRY(c->spec->survey->probe(c->survey, &glance, 1, false, err));
    if (glance.facts.reason != STK_REASON_NONE) return glance.facts.reason == known->reason ? STK_OK : STK_AGAIN;
    return same_version(c->view, &glance, known) && glance.facts.size_bytes == known->size_bytes &&
                   known->reason != STK_REASON_MISSING && known->reason != STK_REASON_UNREADABLE &&
                   known->reason != STK_REASON_DENIED
               ? STK_OK
               : STK_AGAIN;
}

static stk_status recheck_medium(recheck *c, uint64_t record_index, uint32_t number, stk_error *err)
{
    const stk_media_ref *const ref = &c->sample.media[number];
    stk_media_facts *const facts = &c->media[c->record[record_index].first_media + number];
    if (facts->reason == STK_REASON_NONE) return STK_OK;
    stk_survey_media medium = {.address = ref->address, .kind = ref->kind,
                               .stated_width_px = ref->height_px ? ref->width_px : 0,
                               .stated_height_px = ref->width_px ? ref->height_px : 0};
    const stk_status status = look(c, &medium, facts, err);
    if (status != STK_AGAIN) return status;
    medium.error.message[0] = 0;
    STK_TRY(c->spec->survey->probe(c->survey, &medium, 1, c->view->header->flags & STK_INDEX_DECODED, err));
    c->work->media_headers_read += medium.header_read;
    medium.facts.kind = (uint8_t)ref->kind;
    medium.facts.address_hash = stk_index_address_hash(ref->address);
    if (medium.facts.reason >= STK_INDEX_REASON_COUNT) medium.facts.reason = STK_REASON_UNSUPPORTED;
    if (memcmp(facts, &medium.facts, sizeof *facts) == 0) return STK_OK;
    STK_TRY(stk_index_keep_etag(&c->etags, &medium.facts, medium.etag, err));
    *facts = medium.facts;
    c->changed = true;
    if (facts->reason == STK_REASON_NONE || c->noted[facts->reason] >= STK_INDEX_WORDS_PER_REASON) return STK_OK;
    c->noted[facts->reason]++;
    stk_index_note note;
    memset(&note, 0, sizeof note);
    note.record_index = record_index;
    note.reason = facts->reason;
    stk_index_note_medium(&note, &medium, number + 1);
    return stk_buffer_append(&c->notes, &note, sizeof note, err);
}

static stk_status recheck_record(recheck *c, uint64_t i, const char *manifest, stk_error *err)
{
    stk_record_facts *const r = &c->record[i];
    stk_reason reason = STK_REASON_NONE;
    stk_error why;
    const stk_status status =
        stk_record_parse(&c->sample, c->spec->record_rules, (stk_str){manifest + r->offset, r->size_bytes}, &reason, &why);
    c->work->records_parsed++;
    /* What the manifest says has not changed: when it reads otherwise now, the part is not of this version. */
    if (status < 0 || c->sample.media_count != r->media_count)
        return stk_fail(err, STK_ERR_INDEX, "the index does not fit its manifest: delete it, it is built anew");
    for (uint32_t m = 0; m < r->media_count; m++) STK_TRY(recheck_medium(c, i, m, err));
    r->reason = STK_REASON_NONE;
    for (uint32_t m = 0; m < r->media_count && r->reason == STK_REASON_NONE; m++) r->reason = c->media[r->first_media + m].reason;
    return STK_OK;
}

/* Words whose reason is still that of their record. */
static stk_status keep_notes(recheck *c, stk_error *err)
{
    const stk_index_header *const h = c->view->header;
    for (uint64_t i = 0; i < h->words_count; i++) {
        const stk_index_note *const n = &c->view->note[i];
        if (c->record[n->record_index].reason == n->reason) STK_TRY(stk_buffer_append(&c->notes, n, sizeof *n, err));
    }
    return STK_OK;
}

static stk_status save(recheck *c, const char *path, stk_error *err)
{
    STK_TRY(keep_notes(c, err));
    STK_TRY(stk_index_pad_etags(&c->etags, err));
    stk_index_header header = *c->view->header;
    header.words_count = c->notes.size_bytes / sizeof(stk_index_note);
    header.etag_bytes = c->etags.size_bytes;
    stk_index_writer *writer;
    STK_TRY(stk_index_writer_open(&writer, path, STK_INDEX_MEDIA, &header, err));
    STK_TRY(stk_index_writer_records(&writer, c->record, header.record_count, err));
    STK_TRY(stk_index_writer_media(&writer, c->media, header.media_count, err));
    STK_TRY(stk_index_writer_notes(&writer, (const stk_index_note *)c->notes.data, header.words_count, err));
    STK_TRY(stk_index_writer_etags(&writer, c->etags.data, header.etag_bytes, err));
    return stk_index_writer_commit(&writer, err);
}

static stk_status recheck_all(recheck *c, stk_str manifest, const char *path, stk_error *err)
{
    const stk_index_header *const h = c->view->header;
    c->record = stk_alloc_array(STK_TAG_INDEX, h->record_count, sizeof *c->record);
    c->media = stk_alloc_array(STK_TAG_INDEX, h->media_count, sizeof *c->media);
    if (!c->record || !c->media) return stk_fail(err, STK_ERR_NOMEM, "out of memory: looking again at media");
    STK_TRY(stk_buffer_append(&c->etags, c->view->etag, h->etag_bytes, err));
    memcpy(c->record, c->view->record, h->record_count * sizeof *c->record);
    memcpy(c->media, c->view->media, h->media_count * sizeof *c->media);
    for (uint64_t i = 0; i < h->words_count; i++) c->noted[c->view->note[i].reason]++;

    if (c->spec->survey->open) STK_TRY(c->spec->survey->open(&c->survey, c->spec->survey->context, err));
    for (uint64_t i = 0; i < h->record_count; i++) {
        const stk_record_facts *const r = &c->record[i];
        bool doubtful = false;
        for (uint32_t m = 0; m < r->media_count; m++) doubtful |= c->media[r->first_media + m].reason != STK_REASON_NONE;
        if (doubtful) STK_TRY(recheck_record(c, i, manifest.data, err));
    }
    return c->changed ? save(c, path, err) : STK_OK;
}

stk_status stk_recheck(const stk_index_spec *spec, const stk_index_view *view, stk_str manifest, const char *path,
                       bool *changed, stk_index_work *work, stk_error *err)
{
    recheck c = {.spec = spec, .view = view, .work = work};
    stk_sample_init(&c.sample);
    stk_buffer_init(&c.notes, STK_TAG_INDEX, SIZE_MAX / 2);
    stk_buffer_init(&c.etags, STK_TAG_INDEX, SIZE_MAX / 2);
    const stk_status status = recheck_all(&c, manifest, path, err);
    *changed = status == STK_OK && c.changed;
    if (c.survey && spec->survey->close) spec->survey->close(c.survey);
    stk_sample_deinit(&c.sample);
    stk_buffer_deinit(&c.notes);
    stk_buffer_deinit(&c.etags);
    stk_free(c.record);
    stk_free(c.media);
    return status;
}
