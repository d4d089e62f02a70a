/* encode.c - from a sample to ids, labels and the places of its media.
 *
 *     render ─► take the marks out: segments, live or text ─► encode each ─► media_at ─► labels
 *
 * One scratch a worker; its buffers grow to the largest record and stay.  Not here: what a template writes
 * (render_*.c, turn_format.c), how a segment becomes ids (tokenizer.c). */
#include <stdlib.h>
#include <xxhash.h>

#include "text/audit.h"
#include "text/labels.h"
#include "text/template.h"
#include "text/tokenizer.h"

/* A stretch of the rendered text that is encoded on its own. */
typedef struct segment {
    size_t begin_bytes, end_bytes;
    bool live;
} segment;

/* What the control set and the ids below were made from. */
typedef struct control_key {
    uint8_t tokenizer[16], chat_template[16];
    uint64_t allowed;
    uint32_t rule, ready;
} control_key;

struct stk_text_scratch {
    uint64_t max_text_bytes;
    stk_render render;
    stk_encoder encoder;
    stk_buffer segments; /* segment */
    stk_buffer trained;  /* uint8_t, a token */
    stk_buffer media_at; /* uint32_t, a medium */
    stk_buffer ends;     /* size_t: where stretches begin and end, while marks are taken out */

    control_key key;
    stk_control_set control;
    stk_buffer control_tokens, control_texts;
    int32_t image_pad, video_pad, turn_start;
    stk_scan_ids scan;
};

enum {
    CONTROL_BYTES = 16 << 20, /* the added tokens of a tokenizer.json */
    SEGMENT_BYTES_PER_MARK = 2 * sizeof(segment),
};

stk_status stk_text_scratch_create(stk_text_scratch **out, const stk_limits *limits, stk_error *err)
{
    *out = NULL;
    if (limits->text_bytes == 0 || limits->text_bytes > UINT32_MAX / 4)
        return stk_fail(err, STK_ERR_OPTION, "limits.text_bytes must be 1 to %u", UINT32_MAX / 4);
    stk_text_scratch *const s = stk_alloc(STK_TAG_TEXT, sizeof *s);
    if (!s) return stk_fail(err, STK_ERR_NOMEM, "out of memory: the scratch of the text");
    s->max_text_bytes = limits->text_bytes;
    /* A typed control token of four bytes or more becomes at most three times as long with its marks. */
    const size_t max_bytes = (size_t)limits->text_bytes * 3;
    stk_render_init(&s->render, max_bytes);
    stk_buffer_init(&s->segments, STK_TAG_TEXT, (max_bytes / STK_MARK_BYTES + 1) * SEGMENT_BYTES_PER_MARK);
    stk_buffer_init(&s->trained, STK_TAG_TEXT, max_bytes);
    stk_buffer_init(&s->media_at, STK_TAG_TEXT, max_bytes * sizeof(uint32_t));
    stk_buffer_init(&s->ends, STK_TAG_TEXT, max_bytes);
    stk_buffer_init(&s->control_tokens, STK_TAG_TEXT, CONTROL_BYTES);
    stk_buffer_init(&s->control_texts, STK_TAG_TEXT, CONTROL_BYTES);
    const stk_status status = stk_encoder_init(&s->encoder, limits->text_bytes, err);
    if (status < 0) {
        stk_text_scratch_destroy(s);
        return status;
    }
    *out = s;
    return STK_OK;
}

void stk_text_scratch_destroy(stk_text_scratch *s)
{
    if (!s) return;
    stk_render_deinit(&s->render);
    stk_encoder_deinit(&s->encoder);
    stk_buffer_deinit(&s->segments);
    stk_buffer_deinit(&s->trained);
    stk_buffer_deinit(&s->media_at);
    stk_buffer_deinit(&s->ends);
    stk_buffer_deinit(&s->control_tokens);
    stk_buffer_deinit(&s->control_texts);
    stk_free(s);
}

/* --- control tokens
 * ------------------------------------------------------------------------------------------- */

static bool is_listed(stk_str_list list, stk_str token)
{
    for (size_t i = 0; i < list.count; i++)
        if (stk_str_equal(list.item[i], token)) return true;
    return false;
}

/* Tokens that never become live ids in an answer under `plain`: a turn's marks and the pads of media. */
static bool is_turn_or_pad(const stk_template *chat_template, stk_str token)
{
    static const char *const always[] = {"<|im_start|>", "<|im_end|>", "<|image_pad|>", "<|video_pad|>",
                                         "<|audio_pad|>"};
    for (size_t i = 0; i < sizeof always / sizeof *always; i++)
        if (stk_str_is(token, always[i])) return true;
    return chat_template->is_declared && stk_template_writes(chat_template, token);
}

static int longest_first(const void *a, const void *b)
{
    const size_t left = ((const stk_control_token *)a)->text.size_bytes;
    const size_t right = ((const stk_control_token *)b)->text.size_bytes;
    return left < right ? 1 : left > right ? -1 : 0;
}

/* Added tokens of white space are ordinary text, as in the reference. */
static bool is_control(const stk_template *chat_template, const stk_added_token *added)
{
    return added->special ||
           (stk_str_strip(added->text).size_bytes && stk_template_writes(chat_template, added->text));
}

static stk_status fill_control_set(stk_text_scratch *s, const stk_tokenizer *tokenizer,
                                   const stk_template *chat_template, const stk_text_rules *rules,
                                   stk_error *err)
{
    stk_buffer_clear(&s->control_tokens);
    stk_buffer_clear(&s->control_texts);
    size_t text_bytes = 0;
    for (size_t i = 0; i < stk_tokenizer_added_count(tokenizer); i++)
        text_bytes += stk_tokenizer_added(tokenizer, i)->text.size_bytes;
    STK_TRY(
        stk_buffer_reserve(&s->control_texts, text_bytes, err)); /* so that what is appended stays in place */

    s->control = (stk_control_set){.marks = rules->control_tokens != STK_CONTROL_REFERENCE};
    for (size_t i = 0; i < stk_tokenizer_added_count(tokenizer); i++) {
        const stk_added_token *const added = stk_tokenizer_added(tokenizer, i);
        if (!is_control(chat_template, added) || is_listed(rules->allow_control_tokens, added->text))
            continue;
        const char *const copy = (const char *)s->control_texts.data + s->control_texts.size_bytes;
        STK_TRY(stk_buffer_append(&s->control_texts, added->text.data, added->text.size_bytes, err));
        const stk_control_token token = {
            .text = {copy, added->text.size_bytes},
            .in_answers =
                rules->control_tokens == STK_CONTROL_SANITIZE || is_turn_or_pad(chat_template, added->text),
        };
        STK_TRY(stk_buffer_append(&s->control_tokens, &token, sizeof token, err));
        s->control.starts[(unsigned char)copy[0]] = true;
        s->control.count++;
    }
    if (s->control.count)
        qsort(s->control_tokens.data, s->control.count, sizeof(stk_control_token), longest_first);
    s->control.token = (const stk_control_token *)s->control_tokens.data;
    return STK_OK;
}

static uint64_t hash_list(stk_str_list list)
{
    uint64_t hash = list.count;
    for (size_t i = 0; i < list.count; i++)
        hash = XXH3_64bits_withSeed(list.item[i].data, list.item[i].size_bytes, hash);
    return hash;
}

/* Made anew only where tokenizer, template or rules are others than those of the sample before. */
static stk_status prepare_control(stk_text_scratch *s, const stk_tokenizer *tokenizer,
                                  const stk_template *chat_template, const stk_text_rules *rules,
                                  stk_error *err)
{
    control_key key = {.allowed = hash_list(rules->allow_control_tokens),
                       .rule = (uint32_t)rules->control_tokens,
                       .ready = 1};
    stk_tokenizer_digest(tokenizer, key.tokenizer);
    stk_template_digest(chat_template, key.chat_template);
    if (memcmp(&key, &s->key, sizeof key) == 0) return STK_OK;
    s->key.ready = 0;
    STK_TRY(fill_control_set(s, tokenizer, chat_template, rules, err));
    s->image_pad = stk_tokenizer_id(tokenizer, STK_LITERAL("<|image_pad|>"));
    s->video_pad = stk_tokenizer_id(tokenizer, STK_LITERAL("<|video_pad|>"));
    s->turn_start = stk_tokenizer_id(tokenizer, STK_LITERAL("<|im_start|>"));
    s->scan.turn_end = stk_tokenizer_id(tokenizer, STK_LITERAL("<|im_end|>"));
    s->scan.assistant = stk_tokenizer_id(tokenizer, STK_LITERAL("assistant"));
    s->key = key;
    return STK_OK;
}

/* --- segments
 * ------------------------------------------------------------------------------------------------- */

static stk_status add_segment(stk_text_scratch *s, size_t begin_bytes, size_t end_bytes, bool live,
                              stk_error *err)
{
    const segment added = {begin_bytes, end_bytes, live};
    return begin_bytes == end_bytes ? STK_OK : stk_buffer_append(&s->segments, &added, sizeof added, err);
}

/* The next private mark at or after from; NULL if there is none. */
static const char *next_mark(const char *from, const char *end)
{
    while (from < end && (from = memmem(from, (size_t)(end - from), STK_MARK_BEGIN, STK_MARK_BYTES - 1))) {
        if (end - from < (ptrdiff_t)STK_MARK_BYTES) return NULL;
        if (from[3] == STK_MARK_BEGIN[3] || from[3] == STK_MARK_END[3]) return from;
        from += STK_MARK_BYTES - 1;
    }
    return NULL;
}

/* The added token that stands between the mark at the start of text and an end mark; size 0: this is a lone
 * mark, left over where a template cut the text. */
static stk_str marked_token(const stk_tokenizer *tokenizer, stk_str text)
{
    stk_str found = {NULL, 0};
    if (text.data[3] != STK_MARK_BEGIN[3]) return found;
    for (size_t i = 0; i < stk_tokenizer_added_count(tokenizer); i++) {
        const stk_str token = stk_tokenizer_added(tokenizer, i)->text;
        if (token.size_bytes <= found.size_bytes || token.size_bytes + 2 * STK_MARK_BYTES > text.size_bytes)
            continue;
        const char *const inside = text.data + STK_MARK_BYTES;
        if (memcmp(inside, token.data, token.size_bytes) == 0 &&
            memcmp(inside + token.size_bytes, STK_MARK_END, STK_MARK_BYTES) == 0)
            found = (stk_str){inside, token.size_bytes};
    }
    return found;
}

/* The rendered text while its marks are taken out, in place: what stood at from stands at to. */
typedef struct unmarking {
    char *text;
    size_t from, to;
    size_t *end; /* of stretches: begin, end, begin, end, ..., rising */
    size_t end_count;
} unmarking;

/* Keep the text up to stop, and move the ends of stretches in it. */
static void keep_until(unmarking *u, size_t stop)
{
    for (; u->end_count && *u->end <= stop; u->end_count--) *u->end++ -= u->from - u->to;
    memmove(u->text + u->to, u->text + u->from, stop - u->from);
    u->to += stop - u->from;
    u->from = stop;
}

/* Take the marks out; note the segments between and within them. */
static stk_status take_marks_out(stk_text_scratch *s, const stk_tokenizer *tokenizer, size_t *end,
                                 size_t end_count, stk_error *err)
{
    unmarking u = {.text = (char *)s->render.text.data, .end = end, .end_count = end_count};
    const char *const stop = u.text + s->render.text.size_bytes;
    size_t begin = 0;
    const char *mark;
    while ((mark = next_mark(u.text + u.from, stop))) {
        keep_until(&u, (size_t)(mark - u.text));
        STK_TRY(add_segment(s, begin, u.to, true, err));
        begin = u.to;
        const stk_str token = marked_token(tokenizer, (stk_str){mark, (size_t)(stop - mark)});
        u.from += STK_MARK_BYTES;
        if (!token.size_bytes) continue;
        keep_until(&u, u.from + token.size_bytes);
        STK_TRY(add_segment(s, begin, u.to, false, err));
        begin = u.to;
        u.from += STK_MARK_BYTES;
    }
    keep_until(&u, (size_t)(stop - u.text));
    s->render.text.size_bytes = u.to;
    return add_segment(s, begin, u.to, true, err);
}

static stk_status cut_segments(stk_text_scratch *s, const stk_tokenizer *tokenizer, stk_error *err)
{
    stk_buffer_clear(&s->segments);
    if (!s->control.marks) return add_segment(s, 0, s->render.text.size_bytes, true, err);
    /* The ends of stretches as one rising list. */
    stk_stretch *const stretch = (stk_stretch *)s->render.stretches.data;
    const size_t count = s->render.stretches.size_bytes / sizeof *stretch;
    STK_TRY(stk_buffer_reserve(&s->ends, count * 2 * sizeof(size_t), err));
    size_t *const end = (size_t *)(void *)s->ends.data;
    for (size_t i = 0; i < count; i++) {
        end[2 * i] = stretch[i].begin_bytes;
        end[2 * i + 1] = stretch[i].end_bytes;
    }
    STK_TRY(take_marks_out(s, tokenizer, end, count * 2, err));
    for (size_t i = 0; i < count; i++) {
        stretch[i].begin_bytes = end[2 * i];
        stretch[i].end_bytes = end[2 * i + 1];
    }
    return STK_OK;
}

static stk_status encode_segments(stk_text_scratch *s, const stk_tokenizer *tokenizer, stk_reason *reason,
                                  stk_error *err)
{
    const segment *const list = (const segment *)(const void *)s->segments.data;
    const size_t count = s->segments.size_bytes / sizeof *list;
    stk_encoder_clear(&s->encoder);
    for (size_t i = 0; i < count; i++) {
        const stk_str text = {(const char *)s->render.text.data + list[i].begin_bytes,
                              list[i].end_bytes - list[i].begin_bytes};
        const stk_status status =
            stk_encoder_append(&s->encoder, tokenizer, text, list[i].begin_bytes, list[i].live, err);
        if (status == STK_ERR_RECORD) *reason = STK_REASON_UTF8;
        if (status < 0) return status;
    }
    return STK_OK;
}

/* --- the sample
 * ----------------------------------------------------------------------------------------------- */

/* The pads among the ids are those of the sample's media, in order, or the record cannot be used. */
static stk_status find_media(stk_text_scratch *s, const stk_sample *sample, stk_reason *reason,
                             stk_error *err)
{
    stk_buffer_clear(&s->media_at);
    size_t pads = 0;
    bool fits = true;
    for (uint32_t i = 0; i < s->encoder.count; i++) {
        const int32_t id = s->encoder.id[i];
        if (id < 0 || (id != s->image_pad && id != s->video_pad)) continue;
        const stk_media_kind kind = id == s->image_pad ? STK_MEDIA_IMAGE : STK_MEDIA_VIDEO;
        fits = fits && pads < sample->media_count && sample->media[pads].kind == kind;
        pads++;
        STK_TRY(stk_buffer_append(&s->media_at, &i, sizeof i, err));
    }
    if (fits && pads == sample->media_count) return STK_OK;
    if (pads < sample->media_count) {
        *reason = STK_REASON_TEMPLATE;
        return stk_fail(err, STK_ERR_RECORD,
                        "the template writes %zu of %zu media: it leaves out those of system and "
                        "assistant turns",
                        pads, sample->media_count);
    }
    *reason = STK_REASON_CONTROL;
    return stk_fail(err, STK_ERR_RECORD,
                    "%zu media pads for %zu media: pads are typed in the text; control_tokens: plain "
                    "takes them as text",
                    pads, sample->media_count);
}

/* Does white space with a line break in it begin the text? */
static bool begins_with_line_break(stk_str text)
{
    for (size_t i = 0; i < text.size_bytes; i++) {
        const char c = text.data[i];
        if (c == '\n' || c == '\r') return true;
        if (c != ' ' && c != '\t' && c != '\v' && c != '\f') return false;
    }
    return false;
}

/* What the index counts because it changes labels: finetune. */
static uint32_t find_label_notes(const stk_text_scratch *s, const stk_sample *sample,
                                 const stk_template *chat_template)
{
    uint32_t notes = 0;
    for (uint32_t i = 0; s->scan.assistant >= 0 && i < s->encoder.count; i++)
        if (s->encoder.id[i] == s->scan.assistant && (i == 0 || s->encoder.id[i - 1] != s->turn_start))
            notes |= STK_NOTE_ASSISTANT_TOKEN;
    for (size_t i = 0; !chat_template->is_qwen35 && i < sample->turn_count; i++) {
        const stk_turn *const turn = &sample->turn[i];
        if (turn->role == STK_ROLE_ASSISTANT && turn->part_count && turn->part[0].kind == STK_PART_TEXT &&
            begins_with_line_break(turn->part[0].text))
            notes |= STK_NOTE_ANSWER_LINE_BREAK;
    }
    return notes;
}

static stk_status render_sample(stk_text_scratch *s, const stk_template *chat_template,
                                const stk_text_rules *rules, const stk_sample *sample, stk_reason *reason,
                                stk_error *err)
{
    bool has_answer = false;
    for (size_t i = 0; i < sample->turn_count; i++) has_answer |= sample->turn[i].role == STK_ROLE_ASSISTANT;
    if (!has_answer) {
        *reason = STK_REASON_NO_ANSWER;
        return stk_fail(err, STK_ERR_RECORD, "no assistant turn: there is nothing to learn from this record");
    }
    for (size_t i = 0; i < json_array_size(sample->tools); i++)
        if (!json_is_object(json_array_get(sample->tools, i))) {
            *reason = STK_REASON_TEMPLATE;
            return stk_fail(err, STK_ERR_RECORD, "entry %zu of tools is no object", i);
        }
    stk_render_begin(&s->render, &s->control, rules, sample, err);
    const stk_status status = chat_template->render(chat_template, &s->render, sample);
    if (status == STK_ERR_RECORD) *reason = s->render.reason;
    return status;
}

static stk_status label_sample(stk_tokens *tokens, stk_text_scratch *s, const stk_text_rules *rules,
                               const stk_sample *sample, stk_reason *reason, stk_error *err)
{
    const stk_encoder *const e = &s->encoder;
    stk_buffer_clear(&s->trained);
    STK_TRY(stk_buffer_reserve(&s->trained, e->count, err));
    const uint32_t *const media_at = (const uint32_t *)(const void *)s->media_at.data;
    stk_labels_mark(s->trained.data, e, (const stk_stretch *)(const void *)s->render.stretches.data,
                    s->render.stretches.size_bytes / sizeof(stk_stretch), sample, rules->labels, s->scan,
                    media_at, sample->media_count);
    uint32_t supervised = 0;
    for (uint32_t i = 0; i < e->count; i++) supervised += s->trained.data[i];
    if (!supervised) {
        *reason = STK_REASON_UNTRAINED;
        return stk_fail(err, STK_ERR_RECORD,
                        "no token of the record gets a label: see the labels option and the turns' "
                        "train keys");
    }
    *tokens = (stk_tokens){.id = e->id,
                           .trained = s->trained.data,
                           .media_at = media_at,
                           .count = e->count,
                           .media_count = (uint32_t)sample->media_count,
                           .supervised_count = supervised,
                           .rendered = {(const char *)s->render.text.data, s->render.text.size_bytes}};
    return STK_OK;
}

static stk_status check_label_rule(const stk_tokenizer *tokenizer, const stk_template *chat_template,
                                   const stk_text_rules *rules, stk_error *err)
{
    if (rules->labels != STK_LABELS_FINETUNE) return STK_OK;
    if (chat_template->is_qwen35)
        return stk_fail(err, STK_ERR_OPTION,
                        "labels: finetune does not go with the template %s, whose vocabulary the "
                        "fine-tune code does not know: use labels: answers",
                        chat_template->name);
    if (stk_tokenizer_id(tokenizer, STK_LITERAL("assistant")) < 0 ||
        stk_tokenizer_id(tokenizer, STK_LITERAL("<|im_end|>")) < 0)
        return stk_fail(err, STK_ERR_OPTION,
                        "labels: finetune looks for the tokens \"assistant\" and <|im_end|>, and the "
                        "vocabulary has not both: use labels: answers");
    return STK_OK;
}

static stk_status encode_sample(stk_tokens *tokens, const stk_tokenizer *tokenizer,
                                const stk_template *chat_template, const stk_text_rules *rules,
                                const stk_sample *sample, stk_text_scratch *s, stk_reason *reason,
                                stk_error *err)
{
    STK_TRY(check_label_rule(tokenizer, chat_template, rules, err));
    STK_TRY(prepare_control(s, tokenizer, chat_template, rules, err));
    STK_TRY(render_sample(s, chat_template, rules, sample, reason, err));
    STK_TRY(cut_segments(s, tokenizer, err));
    if (s->render.text.size_bytes > s->max_text_bytes) {
        *reason = STK_REASON_RECORD_LIMIT;
        return stk_fail(err, STK_ERR_RECORD,
                        "%zu bytes of text, and limits.text_bytes is %llu: raise it, or split the "
                        "record",
                        s->render.text.size_bytes, (unsigned long long)s->max_text_bytes);
    }
    STK_TRY(encode_segments(s, tokenizer, reason, err));
    STK_TRY(find_media(s, sample, reason, err));
    STK_TRY(label_sample(tokens, s, rules, sample, reason, err));
    tokens->notes = find_label_notes(s, sample, chat_template);
    stk_text_audit(tokens, tokenizer, &s->render, sample);
    return STK_OK;
}

stk_status stk_text_encode(stk_tokens *tokens, const stk_tokenizer *tokenizer,
                           const stk_template *chat_template, const stk_text_rules *rules,
                           const stk_sample *sample, stk_text_scratch *scratch, stk_reason *reason,
                           stk_error *err)
{
    *tokens = (stk_tokens){0};
    *reason = STK_REASON_NONE;
    const stk_status status =
        encode_sample(tokens, tokenizer, chat_template, rules, sample, scratch, reason, err);
    if (status < 0) stk_error_stage(err, STK_STAGE_TEXT);
    return status;
}

stk_status stk_text_rules_check(const stk_tokenizer *tokenizer, const stk_template *chat_template,
                                const stk_text_rules *rules, stk_error *err)
{
    STK_TRY(check_label_rule(tokenizer, chat_template, rules, err));
    for (size_t i = 0; i < rules->allow_control_tokens.count; i++) {
        const stk_str wanted = rules->allow_control_tokens.item[i];
        bool found = false;
        for (size_t k = 0; k < stk_tokenizer_added_count(tokenizer) && !found; k++)
            found = stk_str_equal(stk_tokenizer_added(tokenizer, k)->text, wanted);
        if (!found)
            return stk_fail(err, STK_ERR_OPTION,
                            "allow_control_tokens: \"%.*s\" is no added token of the checkpoint",
                            STK_STR_ARGS(wanted));
    }
    return STK_OK;
}
