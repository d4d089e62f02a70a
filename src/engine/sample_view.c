/* sample_view.c - one sample as the model will see it (`stoker show`): a recipe of one row, placed as in any batch. */
#include <inttypes.h>
#include <stdlib.h>
#include <xxhash.h>

#include <stoker/sample.h>

#include "engine/lazy_facts.h"
#include "engine/survey.h"
#include "schema/derive.h"
#include "schema/place.h"

typedef struct viewed_image {
    stk_sample_image shown;
    uint8_t *rgb;
    char address[4096], fault[256];
} viewed_image;

struct stk_sample_view {
    stk_run *run;
    uint32_t set_index;
    uint64_t record_index;
    const stk_set_facts *facts; /* the data set's; with index: stream `found`, of this record alone */
    uint64_t facts_index;       /* of the record in them */
    stk_set_facts found;
    char id[96];
    stk_sample sample;
    stk_buffer record;
    stk_text_scratch *text;
    stk_image_scratch *image;
    stk_tokens tokens;
    char *messages; /* of jansson's allocator */
    stk_pool pool;
    stk_batch_form form;
    stk_recipe recipe;
    stk_slot_layout layout;
    uint8_t *slot;
    viewed_image *images;
    stk_quarantine_cell *cell;
};

/* --- which record --- */

/* The record of "set/id" or "set#line"; UINT64_MAX: none. */
static uint64_t find_in_set(const stk_set_facts *facts, char mark, const char *rest)
{
    char *end = NULL;
    const uint64_t line = mark == '#' ? strtoull(rest, &end, 10) : 0;
    const uint64_t hash = XXH3_64bits(rest, strlen(rest));
    if (mark == '#' && (end == rest || *end)) return UINT64_MAX;
    for (uint64_t r = 0; r < facts->record_count; r++)
        if (mark == '#' ? facts->record[r].line == line : facts->record[r].id_hash == hash && !(facts->record[r].flags & STK_RECORD_ID_REPEATED))
            return r;
    return UINT64_MAX;
}

/* Without an index ids are known only from the records themselves: one after the other. */
static stk_status find_by_reading(stk_sample_view *v, const char *id, stk_error *err)
{
    const stk_run_set *const set = &v->run->set[v->set_index];
    for (uint64_t r = 0; r < set->facts.record_count; r++) {
        char own[96];
        stk_reason reason;
        stk_error unheard;
        if (set->facts.record[r].size_bytes > v->run->rules->limits.record_bytes) continue;
        STK_TRY(stk_run_read_record(v->run, v->set_index, r, &v->record, err));
        const stk_str record = {(const char *)v->record.data, v->record.size_bytes};
        const stk_status status = stk_record_parse(&v->sample, &set->rules->record, record, &reason, &unheard);
        if (status < 0 && status != STK_ERR_RECORD) return stk_fail(err, status, "%s", unheard.message);
        if (!v->sample.id.data) continue;
        stk_run_sample_id(v->run, v->set_index, r, v->sample.id, own);
        if (strcmp(own, id) != 0) continue;
        v->record_index = r;
        return STK_OK;
    }
    v->record_index = UINT64_MAX;
    return STK_OK;
}

static stk_status find(stk_sample_view *v, const char *id, stk_error *err)
{
    for (uint32_t i = 0; i < v->run->set_count; i++) {
        const size_t length = strlen(v->run->set[i].name);
        if (strncmp(id, v->run->set[i].name, length) != 0 || (id[length] != '/' && id[length] != '#')) continue;
        v->set_index = i;
        if (v->run->stream && id[length] == '/') STK_TRY(find_by_reading(v, id, err));
        else v->record_index = find_in_set(&v->run->set[i].facts, id[length], id + length + 1);
        if (v->record_index != UINT64_MAX) return STK_OK;
        return stk_fail(err, STK_ERR_USAGE, "%.60s has no such sample: %.90s", v->run->set[i].name, id);
    }
    return stk_fail(err, STK_ERR_USAGE, "no data set of this name: %.90s: write SET/ID, or SET#LINE", id);
}

/* --- messages --- */

static json_t *text_of(stk_str text)
{
    return json_stringn_nocheck(text.data, text.size_bytes);
}

static json_t *part_of(const stk_sample *sample, const stk_turn_part *part)
{
    static const char *const kinds[] = {[STK_MEDIA_IMAGE] = "image", [STK_MEDIA_VIDEO] = "video", [STK_MEDIA_AUDIO] = "audio"};
    if (part->kind == STK_PART_TEXT) return json_pack("{s:s, s:o}", "type", "text", "text", text_of(part->text));
    const stk_media_ref *const media = &sample->media[part->media_index];
    return json_pack("{s:s, s:o}", "type", kinds[media->kind], kinds[media->kind], text_of(media->address));
}

/* A text where it is one; parts where there are several, or media. */
static json_t *content_of(const stk_sample *sample, const stk_turn *turn)
{
    if (turn->part_count == 0) return json_string("");
    if (turn->part_count == 1 && turn->part[0].kind == STK_PART_TEXT) return text_of(turn->part[0].text);
    json_t *const parts = json_array();
    for (size_t i = 0; i < turn->part_count; i++)
        if (json_array_append_new(parts, part_of(sample, &turn->part[i]))) return json_decref(parts), NULL;
    return parts;
}

static json_t *calls_of(const stk_turn *turn)
{
    json_t *const calls = json_array();
    for (size_t i = 0; i < turn->call_count; i++)
        if (json_array_append_new(calls, json_pack("{s:s, s:{s:o, s:O}}", "type", "function", "function", "name", text_of(turn->call[i].name),
                                                   "arguments", turn->call[i].arguments)))
            return json_decref(calls), NULL;
    return calls;
}

static json_t *message_of(const stk_sample *sample, const stk_turn *turn)
{
    static const char *const roles[] = {
        [STK_ROLE_SYSTEM] = "system", [STK_ROLE_USER] = "user", [STK_ROLE_ASSISTANT] = "assistant", [STK_ROLE_TOOL] = "tool"};
    json_t *const message = json_pack("{s:s, s:o}", "role", roles[turn->role], "content", content_of(sample, turn));
    int failed = message == NULL;
    if (!failed && turn->reasoning.data) failed = json_object_set_new(message, "reasoning_content", text_of(turn->reasoning));
    if (!failed && turn->call_count) failed = json_object_set_new(message, "tool_calls", calls_of(turn));
    return failed ? json_decref(message), NULL : message;
}

static stk_status write_messages(stk_sample_view *v, stk_error *err)
{
    json_t *const all = json_pack("{s:[]}", "messages");
    int failed = all == NULL;
    for (size_t i = 0; !failed && i < v->sample.turn_count; i++)
        failed = json_array_append_new(json_object_get(all, "messages"), message_of(&v->sample, &v->sample.turn[i]));
    if (!failed && v->sample.tools) failed = json_object_set(all, "tools", (json_t *)v->sample.tools);
    v->messages = failed ? NULL : json_dumps(all, JSON_COMPACT);
    json_decref(all);
    return v->messages ? STK_OK : stk_fail(err, STK_ERR_NOMEM, "out of memory: the messages of a sample");
}

/* --- text --- */

static stk_status encode(stk_sample_view *v, stk_error *err)
{
    const stk_run_set *const set = &v->run->set[v->set_index];
    stk_reason reason;
    STK_TRY(stk_run_read_record(v->run, v->set_index, v->record_index, &v->record, err));
    const stk_str record = {(const char *)v->record.data, v->record.size_bytes};
    STK_TRY(stk_record_parse(&v->sample, &set->rules->record, record, &reason, err));
    stk_run_sample_id(v->run, v->set_index, v->record_index, v->sample.id, v->id);
    STK_TRY(write_messages(v, err));
    return stk_text_encode(&v->tokens, v->run->tokenizer, set->chat_template, &set->rules->text, &v->sample, v->text, &reason, err);
}

/* With index: stream, the facts of this record. */
static stk_status find_facts(stk_sample_view *v, stk_error *err)
{
    v->facts = &v->run->set[v->set_index].facts;
    v->facts_index = v->record_index;
    if (!v->run->stream) return STK_OK;
    stk_lazy_facts *lazy;
    STK_TRY(stk_lazy_facts_create(&lazy, v->run, 1, err));
    const stk_plan_draw draw = {.set_index = v->set_index, .record_index = v->record_index};
    const stk_lazy_words *words;
    const stk_status status = stk_lazy_facts_find(lazy, &draw, 1, &v->pool, &v->found, &words, err);
    stk_lazy_facts_destroy(lazy);
    STK_TRY(status);
    v->facts = &v->found;
    v->facts_index = 0;
    if (!v->found.record[0].reason) return STK_OK;
    return stk_fail(err, STK_ERR_RECORD, "the sample is unusable: %s", words->message);
}

static stk_status lay_out(stk_sample_view *v, stk_error *err)
{
    const stk_run_set *const set = &v->run->set[v->set_index];
    stk_record_size size;
    STK_TRY(find_facts(v, err));
    stk_record_derive(&size, v->facts, v->facts_index, &v->run->model, &set->pixels, UINT32_MAX);
    if (size.reason != STK_REASON_NONE) return stk_fail(err, STK_ERR_RECORD, "the sample is unusable: %s", stk_reason_text(size.reason));
    stk_recipe_sample *const sample = stk_pool_take(&v->pool, sizeof *sample);
    stk_recipe_media *const media = stk_pool_take(&v->pool, v->sample.media_count * sizeof *media);
    v->images = stk_alloc_array(STK_TAG_ENGINE, v->sample.media_count, sizeof *v->images);
    if (!sample || !media || !v->images) return stk_fail(err, STK_ERR_NOMEM, "out of memory: a sample");
    *sample = (stk_recipe_sample){.set_index = v->set_index, .record_index = v->record_index, .token_count = size.token_count,
                                  .supervised_count = size.supervised_count, .media_count = (uint32_t)v->sample.media_count};
    v->recipe = (stk_recipe){.world = 1, .micro_count = 1, .row_count = 1, .sample_count = 1, .sample = sample, .media = media,
                             .row_tokens = size.token_count, .token_count = size.token_count};
    for (uint32_t k = 0; k < v->sample.media_count; k++)
        stk_recipe_add_media(&v->recipe, v->facts, v->facts->record[v->facts_index].first_media + k, &v->run->model, &set->pixels);
    /* Of the fields only those of text are looked at, as hf has them. */
    v->form = (stk_batch_form){.layout = STK_LAYOUT_PADDED, .targets = STK_TARGETS_HF, .pixels = STK_PIXELS_UINT8, .model = &v->run->model};
    STK_TRY(stk_slot_layout_init(&v->layout, &v->recipe, &v->form, err));
    v->slot = stk_alloc(STK_TAG_ENGINE, v->layout.size_bytes);
    if (!v->slot) return stk_fail(err, STK_ERR_NOMEM, "out of memory: a sample of %zu bytes", v->layout.size_bytes);
    stk_slot_prepare(v->slot, &v->layout, &v->recipe, &v->form);
    return stk_slot_place(v->slot, &v->layout, &v->recipe, &v->form, 0, &v->tokens, err);
}

/* --- images --- */

/* The bytes of one image on their way to upright pixels. */
typedef struct viewing {
    stk_sample_view *view;
    const stk_recipe_media *media;
    const stk_sample_image *shown;
    stk_bytes bytes;
    uint8_t *rgb;
    stk_error *fault;
    stk_status status;
} viewing;

static void decode(void *context)
{
    viewing *const d = context;
    const stk_sample_view *const v = d->view;
    stk_image_info info;
    stk_reason reason;
    d->status = stk_image_probe(&info, &reason, d->bytes, d->bytes.size_bytes, &v->run->rules->limits, d->fault);
    if (d->status == STK_OK)
        d->status = stk_image_rgb(d->rgb, v->run->image, v->image, d->bytes, &info, (uint8_t)d->shown->orientation,
                                  v->run->set[v->set_index].pixels.alpha, d->media->width_px, d->media->height_px, &reason,
                                  d->fault);
}

/* A fault of the bytes is shown, not returned. */
static stk_status view_image(stk_sample_view *v, uint32_t k, stk_bytes bytes, uint64_t key, stk_error *fault)
{
    const stk_recipe_media *const media = &v->recipe.media[k];
    viewed_image *const image = &v->images[k];
    image->rgb = stk_alloc_array(STK_TAG_ENGINE, (size_t)media->width_px * 3, media->height_px);
    if (!image->rgb) return stk_fail(fault, STK_ERR_NOMEM, "out of memory: an image");
    viewing d = {.view = v, .media = media, .shown = &image->shown, .bytes = bytes, .rgb = image->rgb, .fault = fault};
    if (!stk_quarantine_begin(v->run->quarantine, v->cell, key, v->sample.media[k].address, decode, &d))
        return stk_fail(fault, STK_ERR_MEDIA, "decoding it crashed a process, and one of its own again, or never ended there");
    decode(&d);
    stk_quarantine_end(v->cell);
    if (d.status == STK_OK) image->shown.rgb = image->rgb;
    return d.status;
}

/* Of the call, not of the bytes. */
static bool ends_the_view(stk_status status)
{
    return status == STK_ERR_NOMEM || status == STK_ERR_NETWORK || status == STK_ERR_INTERRUPTED;
}

static stk_status open_image(stk_sample_view *v, uint32_t k, stk_error *err)
{
    const stk_run_set *const set = &v->run->set[v->set_index];
    const stk_recipe_media *const media = &v->recipe.media[k];
    const stk_media_facts *const facts = &v->facts->media[media->media_index];
    viewed_image *const image = &v->images[k];
    const stk_str address = v->sample.media[k].address, said = stk_address_shown(address);
    snprintf(image->address, sizeof image->address, "%.*s", (int)(said.size_bytes < 4000 ? said.size_bytes : 4000), said.data);
    image->shown = (stk_sample_image){.address = image->address, .stored_width_px = facts->width_px, .stored_height_px = facts->height_px,
                                      .orientation = stk_media_orientation(facts, &set->pixels), .width_px = media->width_px,
                                      .height_px = media->height_px, .grid = {media->grid.t, media->grid.h, media->grid.w},
                                      .fault = image->fault};
    uint8_t *const buffer = stk_alloc(STK_TAG_ENGINE, facts->size_bytes);
    if (!buffer) return stk_fail(err, STK_ERR_NOMEM, "out of memory: an image");
    stk_remote_group group;
    stk_remote_group_init(&group);
    stk_remote_request asked = {.request = {.address = address, .etag = stk_media_etag(v->facts, facts), .places = set->places,
                                            .size_bytes = UINT64_MAX, .buffer = buffer, .capacity_bytes = facts->size_bytes}};
    const stk_request *const came = &asked.request;
    stk_error fault;
    stk_status status = stk_remote_submit(v->run->rules->remote, &group, &asked, &fault);
    if (status == STK_OK) {
        while (!stk_remote_next(v->run->rules->remote, &group, STK_FOREVER)) continue;
        status = came->status;
        fault = came->error;
    }
    stk_remote_group_deinit(&group);
    const uint64_t key = stk_quarantine_key(address, facts->size_bytes, stk_survey_version(facts, came->etag));
    if (status == STK_OK) status = view_image(v, k, (stk_bytes){buffer, came->got_bytes}, key, &fault);
    stk_free(buffer);
    if (status != STK_OK) snprintf(image->fault, sizeof image->fault, "%s", status == STK_AGAIN ? "truncated" : fault.message);
    if (ends_the_view(status) && err) *err = fault;
    return ends_the_view(status) ? status : STK_OK;
}

static stk_status open_images(stk_sample_view *v, stk_error *err)
{
    v->cell = stk_quarantine_enter(v->run->quarantine);
    stk_status status = STK_OK;
    for (uint32_t k = 0; status == STK_OK && k < v->recipe.media_count; k++) status = open_image(v, k, err);
    stk_quarantine_leave(v->run->quarantine, v->cell);
    return status;
}

/* --- the view --- */

static stk_status open_view(stk_sample_view *v, const stk_options *options, const char *id, const stk_index_progress *progress, stk_error *err)
{
    STK_TRY(stk_run_prepare(&v->run, options, progress, err));
    for (uint32_t i = 0; i < v->run->set_count; i++) STK_TRY(stk_run_open_index(v->run, options, i, progress, NULL, err));
    stk_buffer_init(&v->record, STK_TAG_ENGINE, v->run->rules->limits.record_bytes + STK_PAD_BYTES);
    STK_TRY(stk_text_scratch_create(&v->text, &v->run->rules->limits, err));
    STK_TRY(stk_image_scratch_create(&v->image, v->run->image, err));
    STK_TRY(find(v, id, err));
    stk_status status = encode(v, err);
    if (status == STK_OK) status = lay_out(v, err);
    if (status < 0) {
        const stk_run_set *const set = &v->run->set[v->set_index];
        const stk_record_facts *const facts = &set->facts.record[v->record_index];
        stk_error_sample(err, id);
        stk_error_file(err, set->facts.file[facts->file_index], facts->line);
        return status;
    }
    return open_images(v, err);
}

stk_status stk_sample_open(stk_sample_view **out, const stk_options *options, const char *id, const stk_index_progress *progress, stk_error *err)
{
    *out = NULL;
    stk_sample_view *v = stk_alloc(STK_TAG_ENGINE, sizeof *v);
    if (!v) return stk_fail(err, STK_ERR_NOMEM, "out of memory: a sample");
    stk_sample_init(&v->sample);
    stk_pool_init(&v->pool, STK_TAG_ENGINE);
    const stk_status status = open_view(v, options, id, progress, err);
    if (v->run) stk_remote_rest(v->run->rules->remote); /* all is here, and progress is for those who open */
    if (status < 0) {
        stk_sample_close(&v);
        return status;
    }
    *out = v;
    return STK_OK;
}

static const int64_t *field(const stk_sample_view *v, stk_field_id id)
{
    return (const int64_t *)(v->slot + v->layout.field[id].at_bytes);
}

void stk_sample_info_get(const stk_sample_view *v, stk_sample_info *info)
{
    const stk_run_set *const set = &v->run->set[v->set_index];
    const stk_record_facts *const facts = &set->facts.record[v->record_index];
    *info = (stk_sample_info){.id = v->id, .file = set->facts.file[facts->file_index], .line = facts->line, .rendered = v->tokens.rendered.data,
                              .rendered_bytes = v->tokens.rendered.size_bytes, .input_ids = field(v, STK_FIELD_INPUT_IDS),
                              .labels = field(v, STK_FIELD_LABELS), .mm_token_type_ids = field(v, STK_FIELD_MM_TOKEN_TYPE_IDS),
                              .position_ids = field(v, STK_FIELD_POSITION_IDS), .token_count = v->recipe.token_count,
                              .image_count = v->recipe.media_count, .record = (const char *)v->record.data, .record_bytes = v->record.size_bytes,
                              .messages = v->messages};
}

void stk_sample_token(const stk_sample_view *v, size_t at, const char **bytes, size_t *size_bytes)
{
    const stk_str token = stk_tokenizer_token(v->run->tokenizer, (int32_t)field(v, STK_FIELD_INPUT_IDS)[at]);
    *bytes = token.data;
    *size_bytes = token.size_bytes;
}

void stk_sample_image_at(const stk_sample_view *v, size_t at, stk_sample_image *image)
{
    *image = v->images[at].shown;
}

void stk_sample_close(stk_sample_view **out)
{
    stk_sample_view *const v = *out;
    *out = NULL;
    if (!v) return;
    for (uint32_t k = 0; v->images && k < v->recipe.media_count; k++) stk_free(v->images[k].rgb);
    stk_free(v->images);
    stk_free(v->slot);
    free(v->messages);
    stk_image_scratch_destroy(v->image);
    stk_text_scratch_destroy(v->text);
    stk_buffer_deinit(&v->record);
    stk_sample_deinit(&v->sample);
    stk_pool_deinit(&v->pool);
    stk_run_release(v->run);
    stk_free(v);
}
