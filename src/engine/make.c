/* make.c - take and make of one micro-batch's samples.
 *
 * Not here: when something is taken or made, and by whom (engine.c). */
#include "engine/make.h"

#include <errno.h>

#include "base/clock.h"
#include "engine/survey.h"
#include "manifest/index_chunk.h"

/* --- scratch --- */

stk_status stk_maker_init(stk_maker *maker, const stk_run *run, size_t record_bytes, stk_error *err)
{
    *maker = (stk_maker){0};
    stk_sample_init(&maker->sample);
    stk_buffer_init(&maker->record, STK_TAG_ENGINE, run->rules->limits.record_bytes + STK_PAD_BYTES);
    stk_status status = stk_buffer_reserve(&maker->record, record_bytes, err);
    if (status == STK_OK) status = stk_text_scratch_create(&maker->text, &run->text_limits, err);
    if (status == STK_OK) status = stk_image_scratch_create(&maker->image, run->image, err);
    if (status < 0) {
        stk_maker_deinit(maker);
        return status;
    }
    maker->run = run;
    maker->cell = stk_quarantine_enter(run->quarantine);
    return STK_OK;
}

void stk_maker_deinit(stk_maker *maker)
{
    if (maker->run) stk_quarantine_leave(maker->run->quarantine, maker->cell);
    stk_image_scratch_destroy(maker->image);
    stk_text_scratch_destroy(maker->text);
    stk_buffer_deinit(&maker->record);
    stk_sample_deinit(&maker->sample);
    maker->image = NULL;
    maker->text = NULL;
    maker->cell = NULL;
}

/* Read and parse a sample's record into maker->sample. */
static stk_status parse(const stk_run *run, stk_maker *maker, const stk_recipe_sample *planned,
                        stk_batch_note *note, stk_error *err)
{
    const stk_run_set *const set = &run->set[planned->set_index];
    const stk_record_facts *const facts = &set->facts.record[planned->record_index];
    note->line = facts->line;
    stk_reason reason;
    stk_status status =
        stk_run_read_record(run, planned->set_index, planned->record_index, &maker->record, err);
    if (status == STK_OK) {
        const stk_str record = {(const char *)maker->record.data, maker->record.size_bytes};
        status = stk_record_parse(&maker->sample, &set->rules->record, record, &reason, err);
        /* It was usable when it was indexed. */
        if (status == STK_ERR_RECORD)
            status = stk_fail(err, STK_ERR_INDEX,
                              "the record is no longer the one that was indexed: run `stoker index`");
    }
    if (status == STK_OK && maker->sample.media_count != planned->media_count)
        status = stk_fail(err, STK_ERR_INDEX,
                          "the record has %zu media, and the index says %u: run `stoker index`",
                          maker->sample.media_count, planned->media_count);
    stk_run_sample_id(run, planned->set_index, planned->record_index,
                      status < 0 ? (stk_str){0} : maker->sample.id, note->id);
    if (status < 0) {
        stk_error_file(err, set->facts.file[facts->file_index], facts->line);
        stk_error_sample(err, note->id);
        stk_error_stage(err, STK_STAGE_TEXT);
    }
    return status;
}

/* --- take --- */

/* Where the record stated the size, nothing else is known: the worst is charged. */
static stk_image_info info_of(const stk_media_facts *facts)
{
    const bool stated = facts->flags & STK_MEDIA_STATED;
    return (stk_image_info){.format = stated ? STK_FORMAT_UNKNOWN : (stk_media_format)facts->format,
                            .width_px = facts->width_px,
                            .height_px = facts->height_px,
                            .orientation = facts->orientation,
                            .flags = facts->flags,
                            .whole = stated || facts->flags & STK_MEDIA_WHOLE};
}

static size_t ticket_bytes_of(size_t size_bytes)
{
    return stk_round_up(size_bytes, STK_ALIGN_BYTES) + STK_PAD_BYTES;
}

size_t stk_ticket_bytes_most(size_t size_bytes, size_t media_count)
{
    return size_bytes + media_count * ticket_bytes_of(STK_ALIGN_BYTES - 1);
}

void stk_sample_needs(const stk_media_facts *of, const stk_recipe *recipe, const stk_recipe_sample *planned,
                      size_t *ticket_bytes, size_t *work_bytes)
{
    *ticket_bytes = *work_bytes = 0;
    for (uint32_t k = 0; k < planned->media_count; k++) {
        const stk_recipe_media *const media = &recipe->media[planned->first_media + k];
        const stk_media_facts *const facts = &of[media->media_index];
        const stk_image_info info = info_of(facts);
        const size_t bytes = stk_image_work_bytes(&info, media->width_px, media->height_px);
        if (bytes > *work_bytes) *work_bytes = bytes; /* one image at a time */
        *ticket_bytes += ticket_bytes_of(facts->size_bytes);
    }
}

/* What the media indices of a sample are of. */
static const stk_set_facts *facts_of(const stk_run *run, const stk_work *work, const stk_recipe_sample *planned)
{
    return work->facts.media ? &work->facts : &run->set[planned->set_index].facts;
}

static stk_status take_unit(stk_unit *unit, stk_work *work, const stk_run *run, stk_maker *maker,
                            stk_error *err)
{
    const stk_recipe *const recipe = &work->batch.recipe;
    const stk_recipe_sample *const planned = &recipe->sample[unit->sample_index];
    const stk_run_set *const set = &run->set[planned->set_index];
    unit->work = work;
    if (planned->media_count == 0) return STK_OK; /* its record is read when it is made */
    STK_TRY(parse(run, maker, planned, &work->batch.note[unit->sample_index], err));
    unit->request_count = unit->requests_left = planned->media_count;
    unit->request = stk_pool_take(&work->pool, planned->media_count * sizeof *unit->request);
    if (!unit->request) return stk_fail(err, STK_ERR_NOMEM, "out of memory: a unit of work");
    for (uint32_t k = 0; k < planned->media_count; k++) {
        const stk_recipe_media *const media = &recipe->media[planned->first_media + k];
        const stk_set_facts *const of = facts_of(run, work, planned);
        const stk_media_facts *const facts = &of->media[media->media_index];
        const stk_str address = maker->sample.media[k].address;
        char *const copy = stk_pool_take(&work->pool, address.size_bytes + 1);
        if (!copy) return stk_fail(err, STK_ERR_NOMEM, "out of memory: a unit of work");
        memcpy(copy, address.data, address.size_bytes);
        unit->request[k] = (stk_request){.address = {copy, address.size_bytes},
                                         .etag = stk_media_etag(of, facts),
                                         .cache_value = set->cache_value,
                                         .places = set->places,
                                         .size_bytes = UINT64_MAX,
                                         .priority = work->priority,
                                         .capacity_bytes = facts->size_bytes,
                                         .owner = unit};
    }
    stk_sample_needs(facts_of(run, work, planned)->media, recipe, planned, &unit->ticket_bytes, &unit->work_bytes);
    return STK_OK;
}

/* What a record that is drawn and cannot be used leaves behind. */
typedef struct refusals {
    uint32_t count; /* of draws */
    const stk_reason *reason;
    const stk_lazy_words *words;
} refusals;

static stk_status draw(stk_work *work, const stk_run *run, stk_plan_scratch *scratch, stk_lazy_facts *lazy, uint64_t step,
                       uint32_t rank, uint32_t world, uint32_t micro, refusals *refused, stk_error *err)
{
    stk_plan_draw *draws;
    stk_set_facts facts;
    STK_TRY(stk_plan_draws(run->plan, scratch, step, rank, world, micro, &work->pool, &draws, &refused->count, err));
    STK_TRY(stk_lazy_facts_find(lazy, draws, refused->count, &work->pool, &facts, &refused->words, err));
    stk_reason *const reason = stk_pool_take(&work->pool, refused->count * sizeof *reason);
    if (!reason) return stk_fail(err, STK_ERR_NOMEM, "out of memory: a micro-batch");
    refused->reason = reason;
    work->facts = facts;
    return stk_plan_recipe_of(run->plan, step, rank, world, micro, draws, refused->count, &facts, &work->pool, &work->batch.recipe,
                              reason, err);
}

static void note_refusal(stk_work *work, const stk_run *run, uint32_t sample_index, const refusals *refused)
{
    const stk_recipe_sample *const sample = &work->batch.recipe.sample[sample_index];
    if (sample->row >= refused->count || sample->media_count) return; /* a filler by itself, or a filler image */
    const stk_reason reason = refused->reason[sample->row];
    if (reason == STK_REASON_NONE) return;
    const stk_lazy_words *const words = &refused->words[sample->row];
    stk_batch_note *const note = &work->batch.note[sample_index];
    note->masked = true;
    note->reason_number = reason;
    note->stage = STK_STAGE_INDEX;
    note->line = run->set[sample->set_index].facts.record[sample->record_index].line;
    memcpy(note->id, words->id, sizeof note->id);
    snprintf(note->reason, sizeof note->reason, "%s", stk_reason_text(reason));
    if (words->message[0]) memcpy(note->message, words->message, sizeof note->message);
    else if (reason == STK_REASON_OVERLONG) snprintf(note->message, sizeof note->message, "more tokens than max_tokens, %u", run->max_tokens);
    else snprintf(note->message, sizeof note->message, "%s", stk_reason_text(reason));
}

stk_status stk_work_take(stk_work *work, const stk_run *run, stk_plan_scratch *scratch, stk_lazy_facts *lazy, stk_maker *maker,
                         uint64_t step, uint32_t rank, uint32_t world, uint32_t micro, stk_error *err)
{
    refusals refused = {0};
    stk_batch *const batch = &work->batch;
    stk_pool_reset(&work->pool);
    work->unit_count = work->units_left = work->units_ticketed = work->units_ready = 0;
    work->status = STK_OK;
    work->slot = -1;
    work->placed = work->prepared = false;
    work->facts = (stk_set_facts){0};
    STK_TRY(lazy ? draw(work, run, scratch, lazy, step, rank, world, micro, &refused, err)
                 : stk_plan_recipe(run->plan, scratch, step, rank, world, micro, &work->pool, &batch->recipe, err));
    STK_TRY(stk_slot_layout_init(&batch->layout, &batch->recipe, &run->form, err));
    batch->note = stk_pool_take(&work->pool, batch->recipe.sample_count * sizeof *batch->note);
    work->unit = stk_pool_take(&work->pool, batch->recipe.sample_count * sizeof *work->unit);
    if (!batch->note || !work->unit) return stk_fail(err, STK_ERR_NOMEM, "out of memory: a micro-batch");
    for (uint32_t i = 0; i < batch->recipe.sample_count; i++) {
        if (batch->recipe.sample[i].filler) {
            note_refusal(work, run, i, &refused);
            continue;
        }
        stk_unit *const unit = &work->unit[work->unit_count++];
        unit->sample_index = i;
        STK_TRY(take_unit(unit, work, run, maker, err));
    }
    work->units_left = work->unit_count;
    return STK_OK;
}

void stk_unit_set_ticket(stk_unit *unit, uint8_t *ticket)
{
    unit->ticket = ticket;
    for (uint32_t k = 0; k < unit->request_count; k++) {
        unit->request[k].buffer = ticket;
        ticket += ticket_bytes_of(unit->request[k].capacity_bytes);
    }
}

/* --- make --- */

bool stk_request_fault(const stk_request *request, stk_reason *reason)
{
    switch (request->status) {
    case STK_ERR_MEDIA_MISSING: *reason = STK_REASON_MISSING; return true;
    case STK_ERR_MEDIA_DENIED: *reason = STK_REASON_DENIED; return true;
    case STK_ERR_MEDIA_LIMIT: *reason = STK_REASON_MEDIA_LIMIT; return true;
    case STK_ERR_MEDIA_UNSUPPORTED: *reason = STK_REASON_UNSUPPORTED; return true;
    case STK_ERR_MEDIA: *reason = STK_REASON_BROKEN; return true;
    case STK_ERR_SYSTEM:
        *reason = STK_REASON_UNREADABLE;
        return request->error.code == EACCES || request->error.code == EPERM;
    default: return false;
    }
}

/* Whether the picture is the one that the plan was made for. */
static stk_status check_facts(const stk_image_info *info, const stk_media_facts *facts, uint8_t orientation,
                              stk_reason *reason, stk_error *err)
{
    *reason = STK_REASON_CHANGED;
    if (facts->flags & STK_MEDIA_STATED) { /* what the record or the facts file states, as the upright size */
        const bool swaps = stk_orientation_swaps(orientation);
        const uint32_t width_px = swaps ? info->height_px : info->width_px,
                       height_px = swaps ? info->width_px : info->height_px;
        if (width_px == facts->width_px && height_px == facts->height_px) return STK_OK;
        return stk_fail(err, STK_ERR_MEDIA,
                        "%u x %u pixels are stated, and the picture has %u x %u, upright: correct the record, or the facts file",
                        facts->width_px, facts->height_px, width_px, height_px);
    }
    if (info->width_px == facts->width_px && info->height_px == facts->height_px &&
        info->orientation == facts->orientation && info->whole == ((facts->flags & STK_MEDIA_WHOLE) != 0))
        return STK_OK;
    return stk_fail(err, STK_ERR_MEDIA, "the media changed since it was indexed: run `stoker index`");
}

/* The bytes of one image on their way to its patches. */
typedef struct decoding {
    const stk_run *run;
    const stk_run_set *set;
    const stk_media_facts *facts;
    const stk_recipe_media *media;
    stk_image_scratch *scratch;
    stk_bytes bytes;
    stk_image_times times;
    stk_reason *reason;
} decoding;

static stk_status decode(decoding *d, void *patches, stk_error *err)
{
    stk_image_info info;
    STK_TRY(stk_image_probe(&info, d->reason, d->bytes, d->bytes.size_bytes, &d->run->rules->limits, err));
    const stk_pixel_rules *const pixels = &d->set->pixels;
    const stk_media_facts found = {.format = (uint8_t)info.format, .orientation = info.orientation};
    const uint8_t orientation = stk_media_orientation(d->facts->flags & STK_MEDIA_STATED ? &found : d->facts, pixels);
    STK_TRY(check_facts(&info, d->facts, orientation, d->reason, err));
    return stk_image_patches(patches, d->run->image, d->scratch, d->bytes, &info, orientation, pixels->alpha,
                             d->media->width_px, d->media->height_px, &d->times, d->reason, err);
}

/* In a child process: into memory of its own, since the slot is shared. */
static void decode_alone(void *context)
{
    decoding *const d = context;
    size_t size_bytes;
    if (stk_mul_overflows(&size_bytes, stk_grid_patches(d->media->grid), stk_form_patch_bytes(&d->run->form))) return;
    void *const patches = stk_alloc(STK_TAG_ENGINE, size_bytes);
    stk_error err;
    if (patches && decode(d, patches, &err) < 0) stk_free(patches); /* a fault that is found is no crash */
}

/* The patches of one image, or its reason.  STK_ERR_MEDIA and kin: mask. */
static stk_status make_image(const stk_unit *unit, const stk_run *run, stk_maker *maker, uint32_t k,
                             stk_reason *reason, stk_error *err)
{
    stk_batch *const batch = &unit->work->batch;
    const stk_recipe_sample *const planned = &batch->recipe.sample[unit->sample_index];
    const stk_recipe_media *const media = &batch->recipe.media[planned->first_media + k];
    const stk_run_set *const set = &run->set[planned->set_index];
    const stk_media_facts *const facts = &facts_of(run, unit->work, planned)->media[media->media_index];
    const stk_request *const request = &unit->request[k];
    if (request->status < 0) {
        if (err) *err = request->error;
        if (!stk_request_fault(request, reason)) return request->status;
        if (request->changed) *reason = STK_REASON_CHANGED;
        if (*reason == STK_REASON_MEDIA_LIMIT)
            *reason = STK_REASON_CHANGED; /* it had room when it was indexed */
        return STK_ERR_MEDIA;
    }
    if (request->total_bytes != facts->size_bytes) {
        *reason = STK_REASON_CHANGED;
        return stk_fail(err, STK_ERR_MEDIA,
                        "the media has %llu bytes, and had %llu when it was indexed: run `stoker index`",
                        (unsigned long long)request->total_bytes, (unsigned long long)facts->size_bytes);
    }
    decoding d = {.run = run, .set = set, .facts = facts, .media = media, .scratch = maker->image,
                  .bytes = {request->buffer, request->got_bytes}, .reason = reason};
    const uint64_t key = stk_quarantine_key(request->address, facts->size_bytes, stk_survey_version(facts, request->etag));
    if (!stk_quarantine_begin(run->quarantine, maker->cell, key, request->address, decode_alone, &d)) {
        *reason = STK_REASON_CRASHED;
        return stk_fail(err, STK_ERR_MEDIA, "decoding it crashed a process, and one of its own again, or never ended there: leave it out");
    }
    const stk_status status = decode(
        &d, stk_slot_patches(batch->slot, &batch->layout, &batch->recipe, planned->first_media + k), err);
    stk_quarantine_end(maker->cell);
    maker->decode.count++;
    maker->decode.busy_ns += d.times.decode_ns;
    maker->decode.bytes += d.bytes.size_bytes;
    maker->transform.count++;
    maker->transform.busy_ns += d.times.transform_ns;
    maker->transform.bytes += stk_grid_patches(media->grid) * stk_form_patch_bytes(&run->form);
    return status;
}

static void mask(stk_unit *unit, const stk_run *run, stk_reason reason)
{
    stk_batch *const batch = &unit->work->batch;
    const stk_recipe_sample *const planned = &batch->recipe.sample[unit->sample_index];
    stk_batch_note *const note = &batch->note[unit->sample_index];
    note->masked = true;
    note->reason_number = reason;
    stk_slot_mask(batch->slot, &batch->layout, &batch->recipe, &run->form, unit->sample_index);
    for (uint32_t k = 0; k < planned->media_count; k++) {
        const uint32_t at = planned->first_media + k;
        stk_image_grey(stk_slot_patches(batch->slot, &batch->layout, &batch->recipe, at), run->image,
                       stk_grid_patches(batch->recipe.media[at].grid));
    }
}

static stk_status make_text(stk_unit *unit, const stk_run *run, stk_maker *maker, stk_error *err)
{
    stk_batch *const batch = &unit->work->batch;
    const stk_recipe_sample *const planned = &batch->recipe.sample[unit->sample_index];
    const stk_run_set *const set = &run->set[planned->set_index];
    const stk_ns start = stk_now();
    STK_TRY(parse(run, maker, planned, &batch->note[unit->sample_index], err));
    stk_tokens tokens;
    stk_reason reason;
    stk_status status = stk_text_encode(&tokens, run->tokenizer, set->chat_template, &set->rules->text,
                                        &maker->sample, maker->text, &reason, err);
    if (status == STK_ERR_RECORD)
        status = stk_fail(err, STK_ERR_INDEX,
                          "the record is no longer the one that was indexed: run `stoker index`");
    const stk_ns encoded = stk_now();
    maker->text_stage.count++;
    maker->text_stage.busy_ns += encoded - start;
    maker->text_stage.bytes += status == STK_OK ? tokens.rendered.size_bytes : 0;
    if (status == STK_OK)
        status = stk_slot_place(batch->slot, &batch->layout, &batch->recipe, &run->form, unit->sample_index,
                                &tokens, err);
    maker->place.count++;
    maker->place.busy_ns += stk_now() - encoded;
    maker->place.bytes += planned->token_count * sizeof(int64_t);
    return status;
}

/* Which of the record's media it was, as the index says it: without the query of a URL. */
static void name_medium(stk_batch_note *note, const stk_unit *unit, uint32_t k, stk_reason reason, const stk_error *fault)
{
    stk_survey_media medium = {.address = unit->request[k].address, .kind = STK_MEDIA_IMAGE, .error = *fault};
    medium.facts.reason = (uint8_t)reason;
    stk_index_note words;
    stk_index_note_medium(&words, &medium, (size_t)k + 1);
    memcpy(note->message, words.message, sizeof words.message);
}

stk_status stk_unit_make(stk_unit *unit, const stk_run *run, stk_maker *maker, stk_error *err)
{
    stk_batch *const batch = &unit->work->batch;
    const stk_recipe_sample *const planned = &batch->recipe.sample[unit->sample_index];
    stk_batch_note *const note = &batch->note[unit->sample_index];
    const stk_run_set *const set = &run->set[planned->set_index];
    stk_status status = make_text(unit, run, maker, err);
    bool masked = false;
    for (uint32_t k = 0; status == STK_OK && !masked && k < unit->request_count; k++) {
        stk_reason reason = STK_REASON_BROKEN;
        stk_error fault = {0};
        status = make_image(unit, run, maker, k, &reason, &fault);
        /* STK_AGAIN: the header wants more bytes than there are. */
        if (status == STK_AGAIN || (status <= STK_ERR_MEDIA && status > STK_ERR_SPENT)) {
            status = STK_OK;
            masked = true;
            note->stage = fault.stage == STK_STAGE_NONE ? STK_STAGE_DECODE : fault.stage;
            name_medium(note, unit, k, reason, &fault);
            snprintf(note->reason, sizeof note->reason, "%s", stk_reason_text(reason));
            mask(unit, run, reason);
        } else if (status < 0 && err) {
            *err = fault;
        }
    }
    if (status < 0) {
        stk_error_sample(err, note->id);
        stk_error_file(err, set->facts.file[set->facts.record[planned->record_index].file_index], note->line);
    }
    return status;
}
