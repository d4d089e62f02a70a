/* fingerprint.c - each option that changes the stream as a short text; each part is the digest of its options' lines, and the whole that
 * of the parts.
 *
 * Numbers are written without the help of a locale: it is the host program's. */
#include "engine/fingerprint.h"

#include <inttypes.h>
#include <math.h>
#include <xxhash.h>

enum { TEXT_BYTES_MAX = 64 << 20, LISTED_MAX = 2 };

typedef struct making {
    const stk_run *run;
    const stk_options *options;
    stk_fingerprint *fingerprint;
    stk_buffer first, one, all; /* values: of the first data set, of one, of all behind each other */
    stk_buffer content;         /* what a value is the digest of */
    stk_error *err;
} making;

/* --- values --- */

static void digest_text(char text[18], const stk_buffer *content)
{
    snprintf(text, 18, "#%016" PRIx64, (uint64_t)XXH3_64bits(content->data, content->size_bytes));
}

/* Short printable text as it is, else its digest. */
static void put(making *m, stk_stream_option option, const stk_buffer *text)
{
    char *const value = m->fingerprint->value[option];
    bool short_text = text->size_bytes > 0 && text->size_bytes < STK_STREAM_VALUE_BYTES;
    for (size_t i = 0; short_text && i < text->size_bytes; i++) short_text = text->data[i] >= ' ' && text->data[i] <= '~';
    memset(value, 0, STK_STREAM_VALUE_BYTES);
    if (short_text) memcpy(value, text->data, text->size_bytes);
    else digest_text(value, text);
}

static void put_text(making *m, stk_stream_option option, const char *text)
{
    snprintf(m->fingerprint->value[option], STK_STREAM_VALUE_BYTES, "%s", text);
}

/* A number; `none` where it is 0. */
static void put_number(making *m, stk_stream_option option, int64_t number, const char *none)
{
    if (number || !none) snprintf(m->fingerprint->value[option], STK_STREAM_VALUE_BYTES, "%" PRId64, number);
    else put_text(m, option, none);
}

/* Writes one data set's value: never empty, and free text only as a digest, so that a list reads in one way. */
typedef stk_status set_value(making *m, uint32_t set_index, stk_buffer *text);

/* One value where all data sets have the same. */
static stk_status put_sets(making *m, stk_stream_option option, set_value *value)
{
    bool same = true;
    stk_buffer_clear(&m->all);
    for (uint32_t i = 0; i < m->run->set_count; i++) {
        stk_buffer *const one = i ? &m->one : &m->first;
        stk_buffer_clear(one);
        STK_TRY(value(m, i, one));
        same = same && one->size_bytes == m->first.size_bytes && memcmp(one->data, m->first.data, one->size_bytes) == 0;
        STK_TRY(stk_buffer_printf(&m->all, m->err, i ? ", " : ""));
        STK_TRY(stk_buffer_append(&m->all, one->data, one->size_bytes, m->err));
    }
    put(m, option, same ? &m->first : &m->all);
    return STK_OK;
}

static stk_status word(making *m, stk_buffer *text, const char *value)
{
    return stk_buffer_append(text, value, strlen(value), m->err);
}

static stk_status number(making *m, stk_buffer *text, uint64_t value, const char *none)
{
    return value || !none ? stk_buffer_printf(text, m->err, "%" PRIu64, value) : word(m, text, none);
}

/* Of up to six decimals, as the option has. */
static stk_status decimal(making *m, stk_buffer *text, double value, const char *none)
{
    const uint64_t micros = (uint64_t)llrint(value * 1e6);
    if (!micros) return word(m, text, none);
    STK_TRY(stk_buffer_printf(text, m->err, "%" PRIu64, micros / 1000000));
    if (micros % 1000000 == 0) return STK_OK;
    STK_TRY(stk_buffer_printf(text, m->err, ".%06" PRIu64, micros % 1000000));
    while (text->data[text->size_bytes - 1] == '0') text->size_bytes--;
    return STK_OK;
}

/* --- contents, which only their digests stand for: texts with their lengths before them, so that no two lists read the same --- */

static stk_status add_text(making *m, stk_str value)
{
    STK_TRY(stk_buffer_printf(&m->content, m->err, "%zu ", value.size_bytes));
    return stk_buffer_append(&m->content, value.data, value.size_bytes, m->err);
}

static stk_status add_number(making *m, int64_t value)
{
    return stk_buffer_printf(&m->content, m->err, "%" PRId64 " ", value);
}

static stk_status content_digest(making *m, stk_buffer *text)
{
    char digest[18];
    digest_text(digest, &m->content);
    stk_buffer_clear(&m->content);
    return word(m, text, digest);
}

static int64_t bits_of(double value)
{
    int64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static stk_status put_content(making *m, stk_stream_option option)
{
    stk_buffer_clear(&m->all);
    STK_TRY(content_digest(m, &m->all));
    put(m, option, &m->all);
    return STK_OK;
}

static stk_status make_model(making *m)
{
    const stk_model *const model = &m->run->model;
    uint8_t digest[16];
    stk_tokenizer_digest(m->run->tokenizer, digest);
    STK_TRY(add_text(m, (stk_str){(const char *)digest, 16}));
    STK_TRY(add_text(m, stk_str_of(model->model_type)));
    STK_TRY(add_number(m, model->patch_px));
    STK_TRY(add_number(m, model->merge));
    STK_TRY(add_number(m, model->temporal));
    STK_TRY(add_number(m, (int64_t)model->costs.text_square));
    STK_TRY(add_number(m, (int64_t)model->costs.text_linear));
    STK_TRY(add_number(m, (int64_t)model->costs.vision_square));
    STK_TRY(add_number(m, (int64_t)model->costs.vision_linear));
    for (int i = 0; i < 3; i++) {
        STK_TRY(add_number(m, bits_of(model->image_mean[i])));
        STK_TRY(add_number(m, bits_of(model->image_std[i])));
    }
    return put_content(m, STK_STREAM_MODEL);
}

/* --- data --- */

static stk_status format(making *m, uint32_t i, stk_buffer *text)
{
    static const char *const names[] = {"detected", "llava", "openai", "ms-swift", "sharegpt"};
    return word(m, text, names[m->run->set[i].rules->record.dialect]);
}

static stk_status columns(making *m, uint32_t i, stk_buffer *text)
{
    const stk_record_rules *const r = &m->run->set[i].rules->record;
    const stk_str column[] = {r->id_column,     r->messages_column, r->images_column, r->videos_column,
                              r->audios_column, r->tools_column,    r->system_column};
    bool any = false;
    for (size_t c = 0; c < sizeof column / sizeof *column; c++) {
        any = any || column[c].data;
        STK_TRY(add_text(m, column[c]));
    }
    if (any) return content_digest(m, text);
    stk_buffer_clear(&m->content);
    return word(m, text, "-");
}

static stk_status roles(making *m, uint32_t i, stk_buffer *text)
{
    const stk_record_rules *const r = &m->run->set[i].rules->record;
    if (!r->role_count) return word(m, text, "-");
    for (size_t k = 0; k < r->role_count; k++) {
        STK_TRY(add_text(m, r->role[k].name));
        STK_TRY(add_number(m, r->role[k].role));
    }
    return content_digest(m, text);
}

static stk_status make_data(making *m)
{
    const stk_run *const run = m->run;
    const stk_limits *const l = &run->rules->limits;
    for (uint32_t i = 0; i < run->set_count; i++) {
        STK_TRY(add_text(m, stk_str_of(run->set[i].name)));
        STK_TRY(add_text(m, (stk_str){(const char *)run->set[i].facts.content_digest, 16}));
    }
    STK_TRY(put_content(m, STK_STREAM_DATA));
    put_text(m, STK_STREAM_INDEX, run->stream ? "stream" : "auto"); /* require and verify give the same */
    STK_TRY(put_sets(m, STK_STREAM_FORMAT, format));
    STK_TRY(put_sets(m, STK_STREAM_COLUMNS, columns));
    STK_TRY(put_sets(m, STK_STREAM_ROLES, roles));
    const uint64_t limits[] = {l->media_bytes, l->media_px, l->record_bytes, l->json_depth, l->media_per_record, l->text_bytes, l->jpeg_scans};
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) STK_TRY(add_number(m, (int64_t)limits[i]));
    return put_content(m, STK_STREAM_LIMITS);
}

/* --- text --- */

static stk_status chat_template(making *m, uint32_t i, stk_buffer *text)
{
    uint8_t digest[16];
    stk_template_digest(m->run->set[i].chat_template, digest);
    STK_TRY(add_text(m, (stk_str){(const char *)digest, 16}));
    return content_digest(m, text);
}

static stk_status system_text(making *m, uint32_t i, stk_buffer *text)
{
    const stk_str system = m->run->set[i].rules->text.system;
    if (!system.data) return word(m, text, "-");
    STK_TRY(add_text(m, system));
    return content_digest(m, text);
}

static stk_status labels(making *m, uint32_t i, stk_buffer *text)
{
    static const char *const names[] = {"answers", "last", "finetune"};
    return word(m, text, names[m->run->set[i].rules->text.labels]);
}

static stk_status control_tokens(making *m, uint32_t i, stk_buffer *text)
{
    static const char *const names[] = {"plain", "sanitize", "reference"};
    return word(m, text, names[m->run->set[i].rules->text.control_tokens]);
}

static stk_status allow_control_tokens(making *m, uint32_t i, stk_buffer *text)
{
    const stk_str_list *const tokens = &m->run->set[i].rules->text.allow_control_tokens;
    if (!tokens->count) return word(m, text, "-");
    for (size_t k = 0; k < tokens->count; k++) STK_TRY(add_text(m, tokens->item[k]));
    return content_digest(m, text);
}

static stk_status tag_space(making *m, uint32_t i, stk_buffer *text)
{
    return word(m, text, m->run->set[i].rules->record.tag_space == STK_TAG_SPACE_STRIP ? "strip" : "keep");
}

static stk_status make_words(making *m)
{
    STK_TRY(put_sets(m, STK_STREAM_TEMPLATE, chat_template));
    STK_TRY(put_sets(m, STK_STREAM_SYSTEM, system_text));
    STK_TRY(put_sets(m, STK_STREAM_LABELS, labels));
    STK_TRY(put_sets(m, STK_STREAM_CONTROL_TOKENS, control_tokens));
    STK_TRY(put_sets(m, STK_STREAM_ALLOW_CONTROL_TOKENS, allow_control_tokens));
    return put_sets(m, STK_STREAM_TAG_SPACE, tag_space);
}

/* --- pixels --- */

static stk_status orientation(making *m, uint32_t i, stk_buffer *text)
{
    return word(m, text, m->run->set[i].pixels.ignore_orientation ? "ignore" : "apply");
}

static stk_status alpha(making *m, uint32_t i, stk_buffer *text)
{
    static const char *const names[] = {"drop", "white for RGBA", "white"};
    return word(m, text, names[m->run->set[i].pixels.alpha]);
}

static stk_status min_pixels(making *m, uint32_t i, stk_buffer *text)
{
    return number(m, text, m->run->set[i].pixels.min_px, NULL);
}

static stk_status max_pixels(making *m, uint32_t i, stk_buffer *text)
{
    return number(m, text, m->run->set[i].pixels.max_px, NULL);
}

static stk_status make_pixels(making *m)
{
    static const char *const names[] = {"hf", "pil-11", "pil-12", "pil-13", "qwen-vl-utils"};
    put_text(m, STK_STREAM_PROFILE, names[m->run->rules->profile]);
    STK_TRY(put_sets(m, STK_STREAM_ORIENTATION, orientation));
    STK_TRY(put_sets(m, STK_STREAM_ALPHA, alpha));
    STK_TRY(put_sets(m, STK_STREAM_MIN_PIXELS, min_pixels));
    return put_sets(m, STK_STREAM_MAX_PIXELS, max_pixels);
}

/* --- plan --- */

static stk_status overlong(making *m, uint32_t i, stk_buffer *text)
{
    const stk_plan_set *const set = &m->run->plan_set[i];
    return word(m, text, set->overlong_is_error ? "error" : set->pixels.shrinks_overlong ? "shrink" : "drop");
}

/* The program and not its text: blanks say nothing. */
static stk_status where(making *m, uint32_t i, stk_buffer *text)
{
    const stk_where *const where = m->run->plan_set[i].where;
    if (!where) return word(m, text, "-");
    STK_TRY(add_text(m, (stk_str){(const char *)where->op, where->count * sizeof *where->op}));
    return content_digest(m, text);
}

static stk_status first(making *m, uint32_t i, stk_buffer *text)
{
    return number(m, text, m->run->plan_set[i].first, "all");
}

static stk_status weight(making *m, uint32_t i, stk_buffer *text)
{
    return decimal(m, text, m->run->plan_set[i].weight, "-");
}

static stk_status weights(making *m, uint32_t i, stk_buffer *text)
{
    return word(m, text, m->run->plan_set[i].weight > 0 ? m->options->weights : "-");
}

static stk_status set_epochs(making *m, uint32_t i, stk_buffer *text)
{
    return decimal(m, text, m->run->plan_set[i].epochs_milli / 1e3, "-");
}

static stk_status put_batch(making *m)
{
    const stk_rules *const rules = m->run->rules;
    stk_buffer_clear(&m->all);
    if (rules->batch_count == 1) STK_TRY(number(m, &m->all, rules->batch[0].batch, NULL));
    for (uint32_t i = 0; rules->batch_count > 1 && i < rules->batch_count; i++)
        STK_TRY(stk_buffer_printf(&m->all, m->err, "%s[%" PRIu64 ", %" PRIu64 "]", i ? ", " : "", rules->batch[i].first_step,
                                  rules->batch[i].batch));
    put(m, STK_STREAM_BATCH, &m->all);
    return STK_OK;
}

static stk_status make_plan(making *m)
{
    static const char *const balances[] = {"none", "model", "model+vision"};
    const stk_options *const o = m->options;
    const bool packed = m->run->form.layout == STK_LAYOUT_PACKED;
    STK_TRY(put_batch(m));
    put_number(m, STK_STREAM_STEPS, o->steps, "auto");
    put_number(m, STK_STREAM_EPOCHS, o->steps ? 0 : o->epochs, "-"); /* without effect beside steps */
    put_text(m, STK_STREAM_SHUFFLE, o->shuffle ? "true" : "false");
    if (o->shuffle) put_number(m, STK_STREAM_SEED, o->seed, NULL);
    else put_text(m, STK_STREAM_SEED, "-");
    put_text(m, STK_STREAM_LAYOUT, o->layout);
    /* Without what the row has room for: that is pad_to, or row_tokens. */
    put_number(m, STK_STREAM_MAX_TOKENS, o->max_tokens ? o->max_tokens : m->run->model.max_tokens, NULL);
    put_number(m, STK_STREAM_PAD_TO, o->pad_to, "auto");
    put_number(m, STK_STREAM_PAD_MULTIPLE, o->pad_multiple, NULL);
    put_number(m, STK_STREAM_ROW_TOKENS, packed ? o->row_tokens : 0, "-");
    put_number(m, STK_STREAM_SEGMENT_MULTIPLE, packed ? o->segment_multiple : 0, "-");
    put_number(m, STK_STREAM_WINDOW, packed ? o->window : 0, "-");
    put_text(m, STK_STREAM_BALANCE, balances[m->run->rules->balance]);
    put_text(m, STK_STREAM_MODALITY, o->modality);
    put_text(m, STK_STREAM_FILLER_IMAGE, o->filler_image ? "true" : "false");
    put_text(m, STK_STREAM_UNEVEN, o->uneven);
    STK_TRY(put_sets(m, STK_STREAM_OVERLONG, overlong));
    STK_TRY(put_sets(m, STK_STREAM_WHERE, where));
    STK_TRY(put_sets(m, STK_STREAM_FIRST, first));
    STK_TRY(put_sets(m, STK_STREAM_WEIGHT, weight));
    STK_TRY(put_sets(m, STK_STREAM_WEIGHTS, weights));
    return put_sets(m, STK_STREAM_SET_EPOCHS, set_epochs);
}

/* --- the fingerprint --- */

static const stk_fingerprint_part part_of[] = {
#define PART_OF(id, name, part) part,
    STK_STREAM_OPTION_MAP(PART_OF)
#undef PART_OF
};

/* The digests of the parts, and of the whole.  What follows from the release stands before the first option. */
static stk_status close_parts(making *m)
{
    stk_fingerprint *const f = m->fingerprint;
    for (int part = 0; part < STK_FINGERPRINT_PARTS; part++) {
        stk_buffer_clear(&m->content);
        if (part == STK_PART_PLAN) STK_TRY(stk_buffer_printf(&m->content, m->err, "plan_version %d\n", STK_PLAN_VERSION));
        for (int i = 0; i < STK_STREAM_OPTIONS; i++)
            if ((int)part_of[i] == part)
                STK_TRY(stk_buffer_printf(&m->content, m->err, "option %s %s\n", stk_stream_option_name((stk_stream_option)i), f->value[i]));
        snprintf(f->part[part], sizeof f->part[part], "%016" PRIx64, (uint64_t)XXH3_64bits(m->content.data, m->content.size_bytes));
    }
    const XXH128_hash_t whole = XXH3_128bits(f->part, sizeof f->part);
    snprintf(f->whole, sizeof f->whole, "%016" PRIx64 "%016" PRIx64, (uint64_t)whole.high64, (uint64_t)whole.low64);
    return STK_OK;
}

stk_status stk_fingerprint_make(stk_fingerprint *fingerprint, const stk_run *run, const stk_options *options,
                                stk_error *err)
{
    memset(fingerprint, 0, sizeof *fingerprint);
    making m = {.run = run, .options = options, .fingerprint = fingerprint, .err = err};
    stk_buffer *const buffers[] = {&m.first, &m.one, &m.all, &m.content};
    for (int i = 0; i < 4; i++) stk_buffer_init(buffers[i], STK_TAG_ENGINE, TEXT_BYTES_MAX);
    stk_status status = make_model(&m);
    if (status == STK_OK) status = make_data(&m);
    if (status == STK_OK) status = make_words(&m);
    if (status == STK_OK) status = make_pixels(&m);
    if (status == STK_OK) status = make_plan(&m);
    if (status == STK_OK) status = close_parts(&m);
    for (int i = 0; i < 4; i++) stk_buffer_deinit(buffers[i]);
    return status;
}

/* --- a state's --- */

/* Cut a list of names behind one of them, so that it ends within `room` bytes; dots say so. */
static void cut_names(char *names, size_t room)
{
    static const char end[] = ",...";
    if (strlen(names) <= room) return;
    size_t at = room > sizeof end ? room - (sizeof end - 1) : 0;
    while (at && names[at] != ',') at--;
    memcpy(names + at, at ? end : end + 1, at ? sizeof end : sizeof end - 1);
}

/* What differs and may not, in words; of many the first two, and the names that a message has room for. */
static stk_status refuse(const stk_state *state, const stk_fingerprint *now, stk_error *err)
{
    static const char format[] = "the state is of another stream: %.120s%s: set %s, start anew, or accept it with --allow-change %s";
    char listed[400] = "", names[800] = "", words[160], more[32] = "";
    int count = 0;
    for (int i = 0; i < STK_STREAM_OPTIONS; i++) {
        if (state->allowed[i] || !stk_fingerprint_difference(&state->fingerprint, now, (stk_stream_option)i, words)) continue;
        const char *const name = stk_stream_option_name((stk_stream_option)i);
        const size_t used = strlen(listed), named = strlen(names);
        if (count < LISTED_MAX) snprintf(listed + used, sizeof listed - used, "%s%s", count ? ", " : "", words);
        snprintf(names + named, sizeof names - named, "%s%s", count ? "," : "", name);
        count++;
    }
    if (count > LISTED_MAX) snprintf(more, sizeof more, ", and %d more", count - LISTED_MAX);
    const char *const back = count > 1 ? "them as they were" : "it as it was";
    const int rest = snprintf(NULL, 0, format, listed, more, back, "");
    cut_names(names, sizeof err->message - 1 - (size_t)rest);
    return stk_fail(err, STK_ERR_STATE, format, listed, more, back, names);
}

stk_status stk_fingerprint_check(const stk_state *state, const stk_fingerprint *now, bool *changed, stk_error *err)
{
    char words[160];
    bool refused = false;
    *changed = false;
    for (int i = 0; i < STK_STREAM_OPTIONS; i++) {
        if (!stk_fingerprint_difference(&state->fingerprint, now, (stk_stream_option)i, words)) continue;
        *changed = true;
        refused = refused || !state->allowed[i];
    }
    if (refused) return refuse(state, now, err);
    if (!*changed && strcmp(state->fingerprint.whole, now->whole) != 0)
        return stk_fail(err, STK_ERR_STATE, "the state's fingerprint does not fit its options: it was written by another release");
    return STK_OK;
}
