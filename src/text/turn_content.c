/* turn_content.c - a turn's content built aside, for the templates that look into it before they place it.
 *
 * The templates of Qwen3.5 and of Qwen3-VL Thinking search a turn for a think block and for the answer of a
 * tool.  The content keeps the marks of its typed control tokens, as the reference's has them while its
 * template runs.
 *
 * Not here: which parts of an answer a template writes (render_qwen35.c, render_thinking.c). */
#include "text/template.h"

stk_str stk_render_view(const stk_buffer *buffer)
{
    return (stk_str){(const char *)buffer->data, buffer->size_bytes};
}

stk_status stk_render_content(stk_str *content, stk_render *render, const stk_sample *sample,
                              const stk_turn *turn)
{
    stk_buffer_clear(&render->content);
    render->in_answer = turn->role == STK_ROLE_ASSISTANT;
    for (size_t i = 0; i < turn->part_count; i++) {
        const stk_turn_part *const part = &turn->part[i];
        if (part->kind == STK_PART_TEXT) {
            STK_TRY(stk_render_data(render, &render->content, part->text));
            continue;
        }
        const bool is_video = sample->media[part->media_index].kind == STK_MEDIA_VIDEO;
        STK_TRY(stk_render_raw(render, &render->content,
                               is_video ? STK_LITERAL("<|vision_start|><|video_pad|><|vision_end|>")
                                        : STK_LITERAL("<|vision_start|><|image_pad|><|vision_end|>")));
    }
    *content = stk_render_view(&render->content);
    return STK_OK;
}

stk_status stk_render_tool_response(stk_render *render, const stk_sample *sample, size_t index,
                                    stk_str content)
{
    const stk_turn *const turn = stk_render_turn(render, sample, index);
    STK_TRY(stk_render_literal(render, "\n<tool_response>\n"));
    const size_t begin_bytes = render->text.size_bytes;
    STK_TRY(stk_render_raw(render, &render->text, content));
    if (turn->train == STK_TRAIN_YES) STK_TRY(stk_render_stretch(render, begin_bytes, turn));
    STK_TRY(stk_render_literal(render, "\n</tool_response>"));
    if (index + 1 < stk_render_turn_count(render, sample) &&
        stk_render_turn(render, sample, index + 1)->role == STK_ROLE_TOOL)
        return STK_OK;
    return stk_render_literal(render, "<|im_end|>\n");
}

/* The first (or the last) place of word in text, NULL if there is none. */
static const char *find(stk_str text, stk_str word, bool last)
{
    const char *found = NULL;
    if (!text.data || text.size_bytes == 0) return NULL;
    const char *from = text.data;
    while ((from = memmem(from, text.size_bytes - (size_t)(from - text.data), word.data, word.size_bytes))) {
        found = from;
        if (!last) break;
        from += word.size_bytes;
    }
    return found;
}

bool stk_content_answers_a_tool(stk_str content)
{
    const stk_str open = STK_LITERAL("<tool_response>"), close = STK_LITERAL("</tool_response>");
    return content.size_bytes >= close.size_bytes && memcmp(content.data, open.data, open.size_bytes) == 0 &&
           memcmp(content.data + content.size_bytes - close.size_bytes, close.data, close.size_bytes) == 0;
}

void stk_content_split_thinking(stk_str *reasoning, stk_str *content)
{
    const stk_str open = STK_LITERAL("<think>"), close = STK_LITERAL("</think>");
    const char *const first = find(*content, close, false);
    if (!first) return;
    const char *const end = content->data + content->size_bytes;
    *reasoning = stk_str_strip_newlines_right((stk_str){content->data, (size_t)(first - content->data)});
    const char *const opened = find(*reasoning, open, true);
    if (opened) {
        const char *const after = opened + open.size_bytes;
        *reasoning = (stk_str){after, (size_t)(reasoning->data + reasoning->size_bytes - after)};
    }
    *reasoning = stk_str_strip_newlines_left(*reasoning);
    const char *const after = find(*content, close, true) + close.size_bytes;
    *content = stk_str_strip_newlines_left((stk_str){after, (size_t)(end - after)});
}
