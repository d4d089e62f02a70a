/* fingerprint.c - each part is a text of "name value" lines, digested; the whole is the digest of the parts.
 */
#include "engine/fingerprint.h"

#include <inttypes.h>
#include <xxhash.h>

enum { PART_BYTES_MAX = 64 << 20 };

/* Any text, its length before it, so that no two lists of values read the same. */
static stk_status add_text(stk_buffer *part, const char *name, stk_str value, stk_error *err)
{
    STK_TRY(stk_buffer_printf(part, err, "%s %zu ", name, value.size_bytes));
    STK_TRY(stk_buffer_append(part, value.data, value.size_bytes, err));
    return stk_buffer_append(part, "\n", 1, err);
}

static stk_status add_int(stk_buffer *part, const char *name, int64_t value, stk_error *err)
{
    return stk_buffer_printf(part, err, "%s %" PRId64 "\n", name, value);
}

static stk_status add_bytes(stk_buffer *part, const char *name, const uint8_t digest[16], stk_error *err)
{
    return add_text(part, name, (stk_str){(const char *)digest, 16}, err);
}

static int64_t bits_of(double value)
{
    int64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static stk_status add_model(stk_buffer *part, const stk_run *run, stk_error *err)
{
    const stk_model *const m = &run->model;
    uint8_t digest[16];
    stk_tokenizer_digest(run->tokenizer, digest);
    STK_TRY(add_bytes(part, "tokenizer", digest, err));
    STK_TRY(add_text(part, "model_type", stk_str_of(m->model_type), err));
    STK_TRY(add_int(part, "patch", m->patch_px, err));
    STK_TRY(add_int(part, "merge", m->merge, err));
    STK_TRY(add_int(part, "temporal", m->temporal, err));
    STK_TRY(stk_buffer_printf(part, err, "costs %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", m->costs.text_square,
                              m->costs.text_linear, m->costs.vision_square, m->costs.vision_linear));
    /* Their bits: how a double is printed depends on the locale of the host program. */
    for (int i = 0; i < 3; i++) {
        STK_TRY(add_int(part, "mean", bits_of(m->image_mean[i]), err));
        STK_TRY(add_int(part, "std", bits_of(m->image_std[i]), err));
    }
    return STK_OK;
}

static stk_status add_data(stk_buffer *part, const stk_run *run, stk_error *err)
{
    if (run->stream) STK_TRY(add_text(part, "index", stk_str_of("stream"), err));
    const stk_limits *const l = &run->rules->limits;
    STK_TRY(stk_buffer_printf(part, err, "limits %" PRIu64 " %" PRIu64 " %" PRIu64 " %u %u %" PRIu64 " %u\n",
                              l->media_bytes, l->media_px, l->record_bytes, l->json_depth,
                              l->media_per_record, l->text_bytes, l->jpeg_scans));
    for (uint32_t i = 0; i < run->set_count; i++) {
        const stk_record_rules *const r = &run->set[i].rules->record;
        const stk_str columns[] = {r->id_column,     r->messages_column, r->images_column, r->videos_column,
                                   r->audios_column, r->tools_column,    r->system_column};
        STK_TRY(add_text(part, "set", stk_str_of(run->set[i].name), err));
        STK_TRY(add_bytes(part, "content", run->set[i].facts.content_digest, err));
        STK_TRY(add_int(part, "format", r->dialect, err));
        for (size_t c = 0; c < sizeof columns / sizeof *columns; c++)
            STK_TRY(add_text(part, "column", columns[c], err));
        for (size_t k = 0; k < r->role_count; k++) {
            STK_TRY(add_text(part, "role", r->role[k].name, err));
            STK_TRY(add_int(part, "is", r->role[k].role, err));
        }
    }
    return STK_OK;
}

static stk_status add_words(stk_buffer *part, const stk_run *run, stk_error *err)
{
    for (uint32_t i = 0; i < run->set_count; i++) {
        const stk_text_rules *const t = &run->set[i].rules->text;
        uint8_t digest[16];
        stk_template_digest(run->set[i].chat_template, digest);
        STK_TRY(add_bytes(part, "template", digest, err));
        STK_TRY(add_int(part, "labels", t->labels, err));
        STK_TRY(add_int(part, "control_tokens", t->control_tokens, err));
        STK_TRY(add_int(part, "tag_space", run->set[i].rules->record.tag_space, err));
        for (size_t k = 0; k < t->allow_control_tokens.count; k++)
            STK_TRY(add_text(part, "allow", t->allow_control_tokens.item[k], err));
        if (t->system.data) STK_TRY(add_text(part, "system", t->system, err));
    }
    return STK_OK;
}

static stk_status add_pixels(stk_buffer *part, const stk_run *run, stk_error *err)
{
    static const char *const names[] = {"hf", "pil-11", "pil-12", "pil-13", "qwen-vl-utils"};
    STK_TRY(add_text(part, "profile", stk_str_of(names[run->rules->profile]), err));
    for (uint32_t i = 0; i < run->set_count; i++) {
        const stk_pixel_rules *const p = &run->set[i].pixels;
        STK_TRY(add_int(part, "min_pixels", (int64_t)p->min_px, err));
        STK_TRY(add_int(part, "max_pixels", (int64_t)p->max_px, err));
        STK_TRY(add_int(part, "ignore_orientation", p->ignore_orientation, err));
        STK_TRY(add_int(part, "alpha", p->alpha, err));
    }
    return STK_OK;
}

static stk_status add_plan(stk_buffer *part, const stk_run *run, const stk_options *o, stk_error *err)
{
    STK_TRY(add_int(part, "plan_version", STK_PLAN_VERSION, err));
    for (uint32_t i = 0; i < run->rules->batch_count; i++) {
        STK_TRY(add_int(part, "from", (int64_t)run->rules->batch[i].first_step, err));
        STK_TRY(add_int(part, "batch", (int64_t)run->rules->batch[i].batch, err));
    }
    STK_TRY(add_int(part, "steps", o->steps, err));
    STK_TRY(add_int(part, "epochs", o->steps ? 0 : o->epochs, err)); /* without effect beside steps */
    STK_TRY(add_int(part, "shuffle", o->shuffle, err));
    STK_TRY(add_int(part, "seed", o->shuffle ? o->seed : 0, err));
    STK_TRY(add_text(part, "layout", stk_str_of(o->layout), err));
    STK_TRY(add_int(part, "max_tokens", run->max_tokens, err));
    STK_TRY(add_int(part, "pad_to", o->pad_to, err));
    if (run->form.layout == STK_LAYOUT_PACKED) {
        STK_TRY(add_int(part, "row_tokens", o->row_tokens, err));
        STK_TRY(add_int(part, "segment_multiple", o->segment_multiple, err));
        STK_TRY(add_int(part, "window", o->window, err));
    }
    static const char *const balances[] = {"none", "model", "model+vision"};
    STK_TRY(add_text(part, "balance", stk_str_of(balances[run->rules->balance]), err));
    STK_TRY(add_text(part, "modality", stk_str_of(o->modality), err));
    STK_TRY(add_int(part, "filler_image", o->filler_image, err));
    STK_TRY(add_int(part, "pad_multiple", o->pad_multiple, err));
    STK_TRY(add_text(part, "uneven", stk_str_of(o->uneven), err));
    for (uint32_t i = 0; i < run->set_count; i++) {
        const stk_plan_set *const set = &run->plan_set[i];
        STK_TRY(add_int(part, "overlong", set->overlong_is_error ? 1 : set->pixels.shrinks_overlong ? 2 : 0, err));
        STK_TRY(add_int(part, "weight", bits_of(set->weight), err));
        if (set->weight > 0) STK_TRY(add_text(part, "weights", stk_str_of(o->weights), err));
        STK_TRY(add_int(part, "epochs", set->epochs_milli, err));
        /* The program and not its text: blanks say nothing. */
        if (set->where)
            STK_TRY(add_text(part, "where", (stk_str){(const char *)set->where->op, set->where->count * sizeof *set->where->op}, err));
        if (set->first) STK_TRY(add_int(part, "first", (int64_t)set->first, err));
    }
    return STK_OK;
}

stk_status stk_fingerprint_make(stk_fingerprint *fingerprint, const stk_run *run, const stk_options *options,
                                stk_error *err)
{
    memset(fingerprint, 0, sizeof *fingerprint);
    stk_buffer part;
    stk_buffer_init(&part, STK_TAG_ENGINE, PART_BYTES_MAX);
    stk_status status = STK_OK;
    for (int i = 0; status == STK_OK && i < STK_FINGERPRINT_PARTS; i++) {
        stk_buffer_clear(&part);
        switch ((stk_fingerprint_part)i) {
        case STK_PART_MODEL: status = add_model(&part, run, err); break;
        case STK_PART_DATA: status = add_data(&part, run, err); break;
        case STK_PART_WORDS: status = add_words(&part, run, err); break;
        case STK_PART_PIXELS: status = add_pixels(&part, run, err); break;
        case STK_PART_PLAN: status = add_plan(&part, run, options, err); break;
        case STK_FINGERPRINT_PARTS: break;
        }
        snprintf(fingerprint->part[i], sizeof fingerprint->part[i], "%016" PRIx64,
                 (uint64_t)XXH3_64bits(part.data, part.size_bytes));
    }
    stk_buffer_deinit(&part);
    const XXH128_hash_t whole = XXH3_128bits(fingerprint->part, sizeof fingerprint->part);
    snprintf(fingerprint->whole, sizeof fingerprint->whole, "%016" PRIx64 "%016" PRIx64,
             (uint64_t)whole.high64, (uint64_t)whole.low64);
    return status;
}

stk_status stk_fingerprint_check(const stk_fingerprint *saved, const stk_fingerprint *now, stk_error *err)
{
    static const struct {
        const char *name, *options;
    } parts[] = {
#define PART_ROW(id, name, options) {name, options},
        STK_FINGERPRINT_PART_MAP(PART_ROW)
#undef PART_ROW
    };
    for (int i = 0; i < STK_FINGERPRINT_PARTS; i++)
        if (strcmp(saved->part[i], now->part[i]) != 0)
            return stk_fail(
                err, STK_ERR_STATE,
                "the state is of another stream: its %s differs: set %s as they were, or start anew",
                parts[i].name, parts[i].options);
    if (strcmp(saved->whole, now->whole) != 0)
        return stk_fail(err, STK_ERR_STATE, "the state's fingerprint does not fit its parts");
    return STK_OK;
}
