/* wire.c - messages to bytes and back.  Each put_ has its read_ behind it, in the same order of members. */
#include "engine/wire.h"

/* --- framing --- */

typedef struct header {
    uint32_t size_bytes;
    uint16_t kind, protocol;
} header;
_Static_assert(sizeof(header) == STK_WIRE_HEADER_BYTES, "a header");

static void put(stk_wire_writer *w, const void *data, size_t size_bytes)
{
    if (w->status == STK_OK && size_bytes) w->status = stk_buffer_append(w->to, data, size_bytes, w->err);
}

stk_wire_writer stk_wire_begin(stk_buffer *to, stk_wire_kind kind, stk_error *err)
{
    stk_wire_writer w = {.to = to, .at_bytes = to->size_bytes, .err = err};
    put(&w, &(header){.kind = (uint16_t)kind, .protocol = STK_WIRE_PROTOCOL}, sizeof(header));
    return w;
}

stk_status stk_wire_end(stk_wire_writer *w)
{
    const size_t size_bytes = w->to->size_bytes - w->at_bytes - sizeof(header);
    if (w->status == STK_OK && size_bytes > STK_WIRE_MESSAGE_MAX)
        w->status = stk_fail(w->err, STK_ERR_SYSTEM, "a message of %zu bytes is too long", size_bytes);
    if (w->status < 0) {
        w->to->size_bytes = w->at_bytes;
        return w->status;
    }
    const uint32_t size = (uint32_t)size_bytes;
    memcpy(w->to->data + w->at_bytes, &size, sizeof size);
    return STK_OK;
}

stk_status stk_wire_put_plain(stk_buffer *to, stk_wire_kind kind, stk_error *err)
{
    stk_wire_writer w = stk_wire_begin(to, kind, err);
    return stk_wire_end(&w);
}

stk_status stk_wire_split(stk_bytes data, stk_wire_message *message, size_t *used, stk_error *err)
{
    header h;
    *used = 0;
    if (data.size_bytes < sizeof h) return STK_OK;
    memcpy(&h, data.data, sizeof h);
    if (h.protocol != STK_WIRE_PROTOCOL || h.kind == 0 || h.kind >= STK_WIRE_KINDS || h.size_bytes > STK_WIRE_MESSAGE_MAX)
        return stk_fail(err, STK_ERR_SYSTEM, "a message of protocol %u, kind %u, %u bytes: both ends have to be of one release",
                        h.protocol, h.kind, h.size_bytes);
    if (data.size_bytes - sizeof h < h.size_bytes) return STK_OK;
    *message = (stk_wire_message){.kind = (stk_wire_kind)h.kind, .payload = {data.data + sizeof h, h.size_bytes}};
    *used = sizeof h + h.size_bytes;
    return STK_OK;
}

/* --- values --- */

static void put_u64(stk_wire_writer *w, uint64_t value)
{
    put(w, &value, sizeof value);
}

static void put_u32(stk_wire_writer *w, uint32_t value)
{
    put(w, &value, sizeof value);
}

static void put_str(stk_wire_writer *w, stk_str text)
{
    put_u32(w, (uint32_t)text.size_bytes);
    put(w, text.data, text.size_bytes);
}

static void put_text(stk_wire_writer *w, const char *text)
{
    put_str(w, stk_str_of(text));
}

/* Reads on while all is well; `bad` once something was not. */
typedef struct reader {
    const uint8_t *at, *end;
    bool bad;
} reader;

static reader read_from(stk_bytes payload)
{
    return (reader){.at = payload.data, .end = payload.data + payload.size_bytes};
}

static const uint8_t *get(reader *r, size_t size_bytes)
{
    if (r->bad || (size_t)(r->end - r->at) < size_bytes) {
        r->bad = true;
        return NULL;
    }
    const uint8_t *const at = r->at;
    r->at += size_bytes;
    return at;
}

static uint64_t get_u64(reader *r)
{
    uint64_t value = 0;
    const uint8_t *const at = get(r, sizeof value);
    if (at) memcpy(&value, at, sizeof value);
    return value;
}

static uint32_t get_u32(reader *r)
{
    uint32_t value = 0;
    const uint8_t *const at = get(r, sizeof value);
    if (at) memcpy(&value, at, sizeof value);
    return value;
}

static uint32_t get_below(reader *r, uint32_t limit)
{
    const uint32_t value = get_u32(r);
    r->bad |= value >= limit;
    return r->bad ? 0 : value;
}

static bool get_bool(reader *r)
{
    return get_below(r, 2) != 0;
}

static stk_str get_str(reader *r)
{
    const uint32_t size = get_u32(r);
    const uint8_t *const at = get(r, size);
    return at ? (stk_str){(const char *)at, size} : (stk_str){"", 0};
}

/* Into an array of chars, with a NUL; a text that is too long or holds one is bad. */
static void get_chars(reader *r, char *to, size_t capacity)
{
    const stk_str text = get_str(r);
    r->bad |= text.size_bytes >= capacity || memchr(text.data, 0, text.size_bytes) != NULL;
    if (r->bad) return;
    memcpy(to, text.data, text.size_bytes);
    to[text.size_bytes] = 0;
}

/* An array whose elements take at least so many bytes on the wire each. */
static uint32_t get_count(reader *r, size_t each_bytes)
{
    const uint32_t count = get_u32(r);
    r->bad |= count > (size_t)(r->end - r->at) / each_bytes;
    return r->bad ? 0 : count;
}

static void *get_room(reader *r, stk_pool *pool, size_t count, size_t each_bytes)
{
    size_t size_bytes;
    void *const room = stk_mul_overflows(&size_bytes, count, each_bytes) ? NULL : stk_pool_take(pool, size_bytes + 1);
    r->bad |= !room;
    return room;
}

static stk_status get_end(const reader *r, const char *what, stk_error *err)
{
    if (!r->bad && r->at == r->end) return STK_OK;
    return stk_fail(err, STK_ERR_SYSTEM, "a message (%s) cannot be read: both ends have to be of one release", what);
}

/* --- states --- */

static void put_state(stk_wire_writer *w, const stk_state *state)
{
    char text[STK_STATE_TEXT_MAX];
    if (w->status == STK_OK) w->status = stk_state_write(state, text, sizeof text, w->err);
    if (w->status == STK_OK) put_text(w, text);
    for (int i = 0; i < STK_STREAM_OPTIONS; i++) put(w, &(uint8_t){state->allowed[i]}, 1);
}

static void get_state(reader *r, stk_state *state)
{
    const stk_str text = get_str(r);
    r->bad = r->bad || stk_state_parse(state, text.data, text.size_bytes, NULL) < 0;
    const uint8_t *const allowed = get(r, STK_STREAM_OPTIONS);
    for (int i = 0; allowed && i < STK_STREAM_OPTIONS; i++) state->allowed[i] = allowed[i] != 0;
}

static void put_place(stk_wire_writer *w, const stk_wire_place *place)
{
    put_u32(w, place->fresh);
    put_u64(w, place->pass);
    put_u32(w, place->has_state);
    if (place->has_state) put_state(w, &place->state);
}

static void get_place(reader *r, stk_wire_place *place)
{
    *place = (stk_wire_place){0};
    place->fresh = get_bool(r);
    place->pass = get_u64(r);
    place->has_state = get_bool(r);
    if (place->has_state) get_state(r, &place->state);
}

/* --- hello, place --- */

stk_status stk_wire_put_hello(stk_buffer *to, const stk_wire_hello *hello, stk_error *err)
{
    stk_wire_writer w = stk_wire_begin(to, STK_WIRE_HELLO, err);
    put_str(&w, hello->release);
    put_u32(&w, hello->eval);
    put_u32(&w, hello->resumed);
    put_u32(&w, hello->rank);
    put_u32(&w, hello->world);
    put_u32(&w, hello->readers);
    put_str(&w, hello->node_ranks);
    put_str(&w, hello->file);
    put_str(&w, hello->options);
    put_place(&w, &hello->place);
    return stk_wire_end(&w);
}

stk_status stk_wire_read_hello(stk_bytes payload, stk_wire_hello *hello, stk_error *err)
{
    reader r = read_from(payload);
    *hello = (stk_wire_hello){.release = get_str(&r)};
    hello->eval = get_bool(&r);
    hello->resumed = get_bool(&r);
    hello->rank = get_u32(&r);
    hello->world = get_u32(&r);
    hello->readers = get_u32(&r);
    hello->node_ranks = get_str(&r);
    hello->file = get_str(&r);
    hello->options = get_str(&r);
    r.bad |= memchr(hello->file.data, 0, hello->file.size_bytes) != NULL;
    get_place(&r, &hello->place);
    return get_end(&r, "hello", err);
}

stk_status stk_wire_put_place(stk_buffer *to, const stk_wire_place *place, stk_error *err)
{
    stk_wire_writer w = stk_wire_begin(to, STK_WIRE_PLACE, err);
    put_place(&w, place);
    return stk_wire_end(&w);
}

stk_status stk_wire_read_place(stk_bytes payload, stk_wire_place *place, stk_error *err)
{
    reader r = read_from(payload);
    get_place(&r, place);
    return get_end(&r, "place", err);
}

/* --- welcome --- */

stk_status stk_wire_put_welcome(stk_buffer *to, const stk_wire_welcome *welcome, stk_error *err)
{
    stk_wire_writer w = stk_wire_begin(to, STK_WIRE_WELCOME, err);
    put_u64(&w, welcome->pass);
    put_u64(&w, welcome->micro_count);
    put_u64(&w, welcome->step_count);
    put_state(&w, &welcome->state);
    put_u32(&w, (uint32_t)welcome->form.layout);
    put_u32(&w, (uint32_t)welcome->form.targets);
    put_u32(&w, (uint32_t)welcome->form.positions);
    put_u32(&w, (uint32_t)welcome->form.pixels);
    put_u32(&w, welcome->model.patch_px);
    put_u32(&w, welcome->model.merge);
    put_u32(&w, welcome->model.temporal);
    put_text(&w, welcome->model.model_type);
    put_u32(&w, welcome->set_count);
    for (uint32_t i = 0; i < welcome->set_count; i++) put_text(&w, welcome->set_name[i]);
    return stk_wire_end(&w);
}

stk_status stk_wire_read_welcome(stk_bytes payload, stk_pool *pool, stk_wire_welcome *welcome, stk_error *err)
{
    enum { PATCH_MAX = 1024, TEMPORAL_MAX = 64, NAME_MAX_BYTES = 64 };
    reader r = read_from(payload);
    *welcome = (stk_wire_welcome){.pass = get_u64(&r)};
    welcome->micro_count = get_u64(&r);
    welcome->step_count = get_u64(&r);
    get_state(&r, &welcome->state);
    welcome->form.layout = (stk_layout)get_below(&r, STK_LAYOUT_PACKED + 1);
    welcome->form.targets = (stk_targets)get_below(&r, STK_TARGETS_SHIFTED + 1);
    welcome->form.positions = (stk_positions)get_below(&r, STK_POSITIONS_MROPE + 1);
    welcome->form.pixels = (stk_pixel_form)get_below(&r, STK_PIXELS_BFLOAT16 + 1);
    welcome->model.patch_px = get_below(&r, PATCH_MAX);
    welcome->model.merge = get_below(&r, PATCH_MAX);
    welcome->model.temporal = get_below(&r, TEMPORAL_MAX);
    get_chars(&r, welcome->model.model_type, sizeof welcome->model.model_type);
    r.bad |= !welcome->model.patch_px || !welcome->model.merge || !welcome->model.temporal;
    welcome->set_count = get_count(&r, sizeof(uint32_t));
    char(*const name)[NAME_MAX_BYTES] = get_room(&r, pool, welcome->set_count, sizeof *name);
    const char **const names = get_room(&r, pool, welcome->set_count, sizeof *names);
    for (uint32_t i = 0; !r.bad && i < welcome->set_count; i++) {
        get_chars(&r, name[i], sizeof name[i]);
        names[i] = name[i];
    }
    welcome->set_name = names;
    return get_end(&r, "welcome", err);
}

/* --- label --- */

enum { STRETCH_BYTES = 2 * sizeof(uint64_t) + sizeof(uint32_t) };

stk_status stk_wire_put_label(stk_buffer *to, const stk_wire_label *label, stk_error *err)
{
    stk_wire_writer w = stk_wire_begin(to, STK_WIRE_LABEL, err);
    put_str(&w, label->release);
    put_u32(&w, label->world);
    put_u64(&w, label->slot_bytes);
    put_u64(&w, (uint64_t)label->timeout_ns);
    put_u32(&w, label->keep);
    put_u32(&w, label->stretch_count);
    for (uint32_t i = 0; i < label->stretch_count; i++) {
        put_u64(&w, label->stretch[i].first_step);
        put_u64(&w, label->stretch[i].first_number);
        put_u32(&w, label->stretch[i].micro_count);
    }
    return stk_wire_end(&w);
}

/* The first stretch begins the run, and each next one where the one before has ended. */
stk_status stk_wire_read_label(stk_bytes payload, stk_pool *pool, stk_wire_label *label, stk_error *err)
{
    reader r = read_from(payload);
    *label = (stk_wire_label){.release = get_str(&r)};
    label->world = get_u32(&r);
    label->slot_bytes = get_u64(&r);
    label->timeout_ns = (stk_ns)get_u64(&r);
    label->keep = get_u32(&r);
    label->stretch_count = get_count(&r, STRETCH_BYTES);
    label->stretch = get_room(&r, pool, label->stretch_count, sizeof *label->stretch);
    r.bad |= label->stretch_count == 0 || label->timeout_ns <= 0;
    for (uint32_t i = 0; !r.bad && i < label->stretch_count; i++) {
        stk_stretch *const s = &label->stretch[i];
        s->first_step = get_u64(&r);
        s->first_number = get_u64(&r);
        s->micro_count = get_u32(&r);
        const stk_stretch *const before = i ? s - 1 : NULL;
        r.bad |= s->micro_count == 0 || (!before && (s->first_step || s->first_number)) ||
                 (before && (s->first_step <= before->first_step ||
                             s->first_number != before->first_number + (s->first_step - before->first_step) * before->micro_count));
    }
    return get_end(&r, "label", err);
}

/* --- a batch --- */

enum { SAMPLE_BYTES = 11 * sizeof(uint32_t) + 2 * sizeof(uint64_t), MEDIA_BYTES = 5 * sizeof(uint32_t) + sizeof(uint64_t) };

static void put_sample(stk_wire_writer *w, const stk_recipe_sample *sample, const stk_batch_note *note)
{
    put_u32(w, sample->filler);
    put_u32(w, sample->set_index);
    put_u64(w, sample->record_index);
    put_u32(w, sample->row);
    put_u32(w, sample->first_token);
    put_u32(w, sample->token_count);
    put_u32(w, sample->supervised_count);
    put_u32(w, sample->first_media);
    put_u32(w, sample->media_count);
    put_u64(w, note->line);
    put_u32(w, note->masked);
    put_text(w, note->id);
    put_text(w, note->reason);
}

static void get_sample(reader *r, stk_recipe_sample *sample, stk_batch_note *note)
{
    sample->filler = get_bool(r);
    sample->set_index = get_u32(r);
    sample->record_index = get_u64(r);
    sample->row = get_u32(r);
    sample->first_token = get_u32(r);
    sample->token_count = get_u32(r);
    sample->supervised_count = get_u32(r);
    sample->first_media = get_u32(r);
    sample->media_count = get_u32(r);
    note->line = get_u64(r);
    note->masked = get_bool(r);
    get_chars(r, note->id, sizeof note->id);
    get_chars(r, note->reason, sizeof note->reason);
}

stk_status stk_wire_put_batch(stk_buffer *to, const stk_wire_slot *slot, const stk_batch *batch, stk_error *err)
{
    const stk_recipe *const recipe = &batch->recipe;
    const stk_state *const after = &batch->after;
    stk_wire_writer w = stk_wire_begin(to, STK_WIRE_BATCH, err);
    const uint64_t numbers[] = {slot->id, slot->offset, recipe->step, recipe->epoch, recipe->token_count, recipe->patch_count,
                                recipe->loss_tokens, recipe->step_loss_tokens, after->epoch, after->rows, after->step};
    put(&w, numbers, sizeof numbers);
    const uint32_t small[] = {recipe->rank, recipe->world, recipe->micro, recipe->micro_count, recipe->row_tokens,
                              recipe->segment_multiple, after->micro, after->world, after->micro_rows};
    put(&w, small, sizeof small);
    put_u32(&w, recipe->row_count);
    put(&w, recipe->step_row, recipe->row_count * sizeof *recipe->step_row);
    put_u32(&w, recipe->media_count);
    for (uint32_t i = 0; i < recipe->media_count; i++) {
        const stk_recipe_media *const media = &recipe->media[i];
        const uint32_t sides[] = {media->width_px, media->height_px, media->grid.t, media->grid.h, media->grid.w};
        put(&w, sides, sizeof sides);
        put_u64(&w, media->first_patch);
    }
    put_u32(&w, recipe->sample_count);
    for (uint32_t i = 0; i < recipe->sample_count; i++) put_sample(&w, &recipe->sample[i], &batch->note[i]);
    return stk_wire_end(&w);
}

static void get_numbers(reader *r, const stk_state *base, stk_wire_slot *slot, stk_recipe *recipe, stk_state *after)
{
    *recipe = (stk_recipe){0};
    *after = *base;
    uint64_t *const numbers[] = {&slot->id, &slot->offset, &recipe->step, &recipe->epoch, &recipe->token_count, &recipe->patch_count,
                                 &recipe->loss_tokens, &recipe->step_loss_tokens, &after->epoch, &after->rows, &after->step};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) *numbers[i] = get_u64(r);
    uint32_t *const small[] = {&recipe->rank, &recipe->world, &recipe->micro, &recipe->micro_count, &recipe->row_tokens,
                               &recipe->segment_multiple, &after->micro, &after->world, &after->micro_rows};
    for (size_t i = 0; i < sizeof small / sizeof *small; i++) *small[i] = get_u32(r);
    r->bad |= recipe->segment_multiple == 0;
}

static void get_media(reader *r, stk_pool *pool, stk_recipe *recipe)
{
    recipe->media_count = get_count(r, MEDIA_BYTES);
    recipe->media = get_room(r, pool, recipe->media_count, sizeof *recipe->media);
    for (uint32_t i = 0; !r->bad && i < recipe->media_count; i++) {
        stk_recipe_media *const media = &recipe->media[i];
        media->width_px = get_u32(r);
        media->height_px = get_u32(r);
        media->grid.t = get_u32(r);
        media->grid.h = get_below(r, 1 << 16);
        media->grid.w = get_below(r, 1 << 16);
        media->first_patch = get_u64(r);
        const uint64_t patches = stk_grid_patches(media->grid);
        r->bad |= patches > recipe->patch_count || media->first_patch > recipe->patch_count - patches;
    }
}

/* Rows rise, and samples lie inside them one behind the other, as the layout and the digests take for granted. */
static void get_samples(reader *r, stk_pool *pool, uint32_t set_count, stk_batch *batch)
{
    stk_recipe *const recipe = &batch->recipe;
    const bool flat = batch->home->form->layout == STK_LAYOUT_FLAT;
    recipe->sample_count = get_count(r, SAMPLE_BYTES);
    recipe->sample = get_room(r, pool, recipe->sample_count, sizeof *recipe->sample);
    batch->note = get_room(r, pool, recipe->sample_count, sizeof *batch->note);
    uint64_t filled = 0;
    for (uint32_t i = 0, row = 0; !r->bad && i < recipe->sample_count; i++) {
        stk_recipe_sample *const sample = &recipe->sample[i];
        get_sample(r, sample, &batch->note[i]);
        if (!flat && sample->row != row) filled = 0;
        r->bad |= sample->set_index >= set_count || sample->row < row || sample->row >= recipe->row_count || sample->token_count == 0 ||
                  sample->first_token < filled || sample->first_media > recipe->media_count ||
                  sample->media_count > recipe->media_count - sample->first_media;
        row = sample->row;
        filled = (uint64_t)sample->first_token + sample->token_count;
        r->bad |= filled > recipe->row_tokens;
    }
}

stk_status stk_wire_read_batch(stk_bytes payload, stk_pool *pool, const stk_state *base, uint32_t set_count, stk_wire_slot *slot,
                               stk_batch *batch, stk_error *err)
{
    reader r = read_from(payload);
    stk_recipe *const recipe = &batch->recipe;
    get_numbers(&r, base, slot, recipe, &batch->after);
    recipe->row_count = get_count(&r, sizeof *recipe->step_row);
    uint32_t *const step_row = get_room(&r, pool, recipe->row_count, sizeof *step_row);
    for (uint32_t i = 0; !r.bad && i < recipe->row_count; i++) step_row[i] = get_u32(&r);
    recipe->step_row = step_row;
    get_media(&r, pool, recipe);
    get_samples(&r, pool, set_count, batch);
    STK_TRY(get_end(&r, "batch", err));
    return stk_slot_layout_init(&batch->layout, recipe, batch->home->form, err);
}

/* --- errors, counts, numbers, words --- */

stk_status stk_wire_put_error(stk_buffer *to, const stk_error *error, stk_error *err)
{
    stk_wire_writer w = stk_wire_begin(to, STK_WIRE_ERROR, err);
    put_u32(&w, (uint32_t)error->status);
    put_u32(&w, (uint32_t)error->stage);
    put_u32(&w, (uint32_t)error->code);
    put_u64(&w, error->line);
    put_text(&w, error->sample);
    put_text(&w, error->file);
    put_text(&w, error->message);
    return stk_wire_end(&w);
}

stk_status stk_wire_read_error(stk_bytes payload, stk_error *error, stk_error *err)
{
    reader r = read_from(payload);
    *error = (stk_error){.status = (stk_status)(int32_t)get_u32(&r)};
    error->stage = (stk_stage)get_below(&r, STK_STAGE_COUNT);
    error->code = (int)get_u32(&r);
    error->line = get_u64(&r);
    get_chars(&r, error->sample, sizeof error->sample);
    get_chars(&r, error->file, sizeof error->file);
    get_chars(&r, error->message, sizeof error->message);
    r.bad |= error->status >= 0;
    return get_end(&r, "error", err);
}

stk_status stk_wire_put_counts(stk_buffer *to, const stk_metrics *metrics, stk_error *err)
{
    stk_wire_writer w = stk_wire_begin(to, STK_WIRE_COUNTS, err);
    put(&w, metrics, sizeof *metrics);
    return stk_wire_end(&w);
}

stk_status stk_wire_read_counts(stk_bytes payload, stk_metrics *metrics, stk_error *err)
{
    reader r = read_from(payload);
    const uint8_t *const at = get(&r, sizeof *metrics);
    if (at) memcpy(metrics, at, sizeof *metrics);
    return get_end(&r, "metrics", err);
}

stk_status stk_wire_put_number(stk_buffer *to, stk_wire_kind kind, uint64_t number, stk_error *err)
{
    stk_wire_writer w = stk_wire_begin(to, kind, err);
    put_u64(&w, number);
    return stk_wire_end(&w);
}

stk_status stk_wire_read_number(stk_bytes payload, uint64_t *number, stk_error *err)
{
    reader r = read_from(payload);
    *number = get_u64(&r);
    return get_end(&r, "number", err);
}

stk_status stk_wire_put_words(stk_buffer *to, const char *words, stk_error *err)
{
    stk_wire_writer w = stk_wire_begin(to, STK_WIRE_WAIT, err);
    put_text(&w, words);
    return stk_wire_end(&w);
}

stk_status stk_wire_read_words(stk_bytes payload, char *words, size_t capacity, stk_error *err)
{
    reader r = read_from(payload);
    get_chars(&r, words, capacity);
    return get_end(&r, "words", err);
}
