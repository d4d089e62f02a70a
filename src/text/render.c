/* render.c - writing the rendered string: literals, data with marks, JSON, Python's white space.
 *
 * Not here: what comes in which order (render_qwen.c, render_qwen35.c, turn_format.c), taking the marks out
 * again (encode.c). */
#include "text/render.h"

#include <stdarg.h>

#include "text/pyjson.h"

void stk_render_init(stk_render *render, size_t max_bytes)
{
    *render = (stk_render){.max_bytes = max_bytes};
    stk_buffer_init(&render->text, STK_TAG_TEXT, max_bytes);
    stk_buffer_init(&render->stretches, STK_TAG_TEXT, max_bytes);
    stk_buffer_init(&render->content, STK_TAG_TEXT, max_bytes);
    stk_buffer_init(&render->piece, STK_TAG_TEXT, max_bytes);
    stk_buffer_init(&render->clean, STK_TAG_TEXT, max_bytes);
}

void stk_render_deinit(stk_render *render)
{
    stk_buffer_deinit(&render->text);
    stk_buffer_deinit(&render->stretches);
    stk_buffer_deinit(&render->content);
    stk_buffer_deinit(&render->piece);
    stk_buffer_deinit(&render->clean);
}

void stk_render_begin(stk_render *render, const stk_control_set *control, const stk_text_rules *rules,
                      const stk_sample *sample, stk_error *err)
{
    render->control = control;
    render->err = err;
    render->notes = 0;
    render->reason = STK_REASON_NONE;
    render->in_answer = false;
    stk_buffer_clear(&render->text);
    stk_buffer_clear(&render->stretches);

    const bool has_own = sample->turn_count && sample->turn[0].role == STK_ROLE_SYSTEM;
    render->has_system_turn = rules->system.data && !has_own;
    render->system_part = (stk_turn_part){.kind = STK_PART_TEXT, .text = rules->system};
    render->system_turn = (stk_turn){.role = STK_ROLE_SYSTEM,
                                     .part = &render->system_part,
                                     .part_count = rules->system.size_bytes ? 1 : 0};
}

stk_status stk_render_raw(stk_render *render, stk_buffer *to, stk_str text)
{
    if (text.size_bytes == 0) return STK_OK;
    if (text.size_bytes > to->max_bytes - to->size_bytes) {
        render->reason = STK_REASON_RECORD_LIMIT;
        return stk_fail(
            render->err, STK_ERR_RECORD,
            "the text of the record is longer than limits.text_bytes: raise it, or split the record");
    }
    return stk_buffer_append(to, text.data, text.size_bytes, render->err);
}

const stk_control_token *stk_control_find(const stk_control_set *control, stk_str text)
{
    if (!control->starts[(unsigned char)text.data[0]]) return NULL;
    for (size_t i = 0; i < control->count; i++) {
        const stk_str token = control->token[i].text;
        if (token.size_bytes <= text.size_bytes && memcmp(token.data, text.data, token.size_bytes) == 0)
            return &control->token[i];
    }
    return NULL;
}

/* The data must not bring the private marks itself: they would forge a token. */
static stk_status without_marks(stk_render *render, stk_str *text)
{
    if (!memmem(text->data, text->size_bytes, STK_MARK_BEGIN, STK_MARK_BYTES - 1)) return STK_OK;
    stk_buffer_clear(&render->clean);
    const char *from = text->data;
    const char *const end = text->data + text->size_bytes;
    while (from < end) {
        const char *mark = memmem(from, (size_t)(end - from), STK_MARK_BEGIN, STK_MARK_BYTES - 1);
        const bool ours = mark && end - mark >= (ptrdiff_t)STK_MARK_BYTES &&
                          (mark[3] == STK_MARK_BEGIN[3] || mark[3] == STK_MARK_END[3]);
        const char *const stop = !mark ? end : ours ? mark : mark + STK_MARK_BYTES - 1;
        STK_TRY(stk_render_raw(render, &render->clean, (stk_str){from, (size_t)(stop - from)}));
        from = ours ? mark + STK_MARK_BYTES : stop;
    }
    *text = (stk_str){(const char *)render->clean.data, render->clean.size_bytes};
    return STK_OK;
}

static stk_status mark_token(stk_render *render, stk_buffer *to, stk_str token)
{
    STK_TRY(stk_render_raw(render, to, STK_LITERAL(STK_MARK_BEGIN)));
    STK_TRY(stk_render_raw(render, to, token));
    return stk_render_raw(render, to, STK_LITERAL(STK_MARK_END));
}

stk_status stk_render_data(stk_render *render, stk_buffer *to, stk_str text)
{
    const stk_control_set *const control = render->control;
    if (text.size_bytes == 0) return STK_OK;
    if (control->marks) STK_TRY(without_marks(render, &text));
    size_t done = 0;
    for (size_t i = 0; i < text.size_bytes;) {
        const stk_control_token *const token =
            stk_control_find(control, (stk_str){text.data + i, text.size_bytes - i});
        if (!token) {
            i++;
            continue;
        }
        render->notes |= render->in_answer ? STK_NOTE_CONTROL_TOKEN_ANSWER : STK_NOTE_CONTROL_TOKEN;
        if (control->marks && (!render->in_answer || token->in_answers)) {
            STK_TRY(stk_render_raw(render, to, (stk_str){text.data + done, i - done}));
            STK_TRY(mark_token(render, to, token->text));
            done = i + token->text.size_bytes;
        }
        i += token->text.size_bytes;
    }
    return stk_render_raw(render, to, (stk_str){text.data + done, text.size_bytes - done});
}

/* Where stk_render_json writes to. */
typedef struct json_target {
    stk_render *render;
    stk_buffer *to;
    stk_buffer *marked; /* a string value with its marks, before it is escaped */
} json_target;

static stk_status append_json(void *context, stk_str text)
{
    const json_target *const target = context;
    return stk_render_raw(target->render, target->to, text);
}

static stk_status mark_json_value(void *context, stk_str *out, stk_str text)
{
    const json_target *const target = context;
    stk_buffer_clear(target->marked);
    STK_TRY(stk_render_data(target->render, target->marked, text));
    *out = (stk_str){(const char *)target->marked->data, target->marked->size_bytes};
    return STK_OK;
}

stk_status stk_render_json(stk_render *render, stk_buffer *to, const json_t *value)
{
    json_target target = {render, to, &render->piece};
    const stk_pyjson_sink sink = {append_json, mark_json_value, &target, render->err};
    const stk_status status = stk_pyjson_write(&sink, value);
    if (status == STK_ERR_RECORD && render->reason == STK_REASON_NONE)
        render->reason = STK_REASON_RECORD_LIMIT;
    return status;
}

stk_status stk_render_scalar(stk_render *render, stk_buffer *to, const json_t *value)
{
    switch (json_typeof(value)) {
    case JSON_TRUE: return stk_render_raw(render, to, STK_LITERAL("True"));
    case JSON_FALSE: return stk_render_raw(render, to, STK_LITERAL("False"));
    case JSON_NULL: return stk_render_raw(render, to, STK_LITERAL("None"));
    case JSON_STRING:
        return stk_render_data(render, to, (stk_str){json_string_value(value), json_string_length(value)});
    default: return stk_render_json(render, to, value);
    }
}

stk_status stk_render_stretch(stk_render *render, size_t begin_bytes, const stk_turn *turn)
{
    const stk_stretch stretch = {begin_bytes, render->text.size_bytes, turn};
    return stk_render_raw(render, &render->stretches, (stk_str){(const char *)&stretch, sizeof stretch});
}

stk_status stk_render_refuse(stk_render *render, const char *format, ...)
{
    char text[200];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    render->reason = STK_REASON_TEMPLATE;
    return stk_fail(render->err, STK_ERR_RECORD, "%s", text);
}

/* The length of the white space (Python's str.isspace) at the start of text; 0 if there is none. */
static size_t space_at(const char *text, const char *end)
{
    const unsigned char *const c = (const unsigned char *)text;
    const ptrdiff_t left = end - text;
    if (left < 1) return 0;
    if ((c[0] >= 0x09 && c[0] <= 0x0d) || (c[0] >= 0x1c && c[0] <= 0x20)) return 1;
    if (left >= 2 && c[0] == 0xc2 && (c[1] == 0x85 || c[1] == 0xa0)) return 2;
    if (left < 3) return 0;
    if (c[0] == 0xe1 && c[1] == 0x9a && c[2] == 0x80) return 3;                 /* U+1680 */
    if (c[0] == 0xe2 && c[1] == 0x80 && c[2] >= 0x80 && c[2] <= 0x8a) return 3; /* U+2000 to 200A */
    if (c[0] == 0xe2 && c[1] == 0x80 && (c[2] == 0xa8 || c[2] == 0xa9 || c[2] == 0xaf))
        return 3;                                               /* 2028, 2029, 202F */
    if (c[0] == 0xe2 && c[1] == 0x81 && c[2] == 0x9f) return 3; /* U+205F */
    if (c[0] == 0xe3 && c[1] == 0x80 && c[2] == 0x80) return 3; /* U+3000 */
    return 0;
}

stk_str stk_str_strip(stk_str text)
{
    if (text.size_bytes == 0) return text;
    const char *begin = text.data;
    const char *end = text.data + text.size_bytes;
    for (size_t n; (n = space_at(begin, end));) begin += n;
    while (end > begin) {
        const char *c = end - 1; /* the start of the last character */
        while (c > begin && ((unsigned char)*c & 0xc0) == 0x80) c--;
        if (space_at(c, end) != (size_t)(end - c)) break;
        end = c;
    }
    return (stk_str){begin, (size_t)(end - begin)};
}

stk_str stk_str_strip_newlines_left(stk_str text)
{
    while (text.size_bytes && text.data[0] == '\n') text = (stk_str){text.data + 1, text.size_bytes - 1};
    return text;
}

stk_str stk_str_strip_newlines_right(stk_str text)
{
    while (text.size_bytes && text.data[text.size_bytes - 1] == '\n') text.size_bytes--;
    return text;
}
