/* render_thinking.c - the template of the Qwen3-VL Thinking checkpoints (docs/templates.md).
 *
 * Tools and tool calls are those of Qwen3-VL Instruct.  Other than there, media stand wherever the record has
 * them, later system turns are written, and answers after the last question carry their think block: the last
 * turn always, an earlier one only where it has reasoning.  Answers before the last question lose theirs. */
#include "text/template.h"

/* The last user turn that is not the answer of a tool; no answer comes after it when there is none. */
static stk_status find_last_query(size_t *index, stk_render *render, const stk_sample *sample)
{
    const size_t count = stk_render_turn_count(render, sample);
    *index = count - 1;
    for (size_t i = count; i-- > 0;) {
        const stk_turn *const turn = stk_render_turn(render, sample, i);
        if (turn->role != STK_ROLE_USER) continue;
        stk_str content;
        STK_TRY(stk_render_content(&content, render, sample, turn));
        if (stk_content_answers_a_tool(content)) continue;
        *index = i;
        return STK_OK;
    }
    return STK_OK;
}

static stk_status end_turn(stk_render *render, size_t begin_bytes, const stk_turn *turn)
{
    STK_TRY(stk_render_literal(render, "<|im_end|>\n"));
    const bool may_train = turn->role == STK_ROLE_ASSISTANT || turn->train == STK_TRAIN_YES;
    return may_train ? stk_render_stretch(render, begin_bytes, turn) : STK_OK;
}

/* A system turn, or a user's. */
static stk_status write_prompt(stk_render *render, const stk_sample *sample, const stk_turn *turn)
{
    stk_str content;
    STK_TRY(stk_render_content(&content, render, sample, turn));
    STK_TRY(turn->role == STK_ROLE_USER ? stk_render_literal(render, "<|im_start|>user\n")
                                        : stk_render_literal(render, "<|im_start|>system\n"));
    const size_t begin_bytes = render->text.size_bytes;
    STK_TRY(stk_render_raw(render, &render->text, content));
    return end_turn(render, begin_bytes, turn);
}

/* The system turn in front, where there are tools. */
static stk_status write_tools(stk_render *render, const stk_sample *sample)
{
    static const stk_turn no_turn = {.role = STK_ROLE_SYSTEM};
    const stk_turn *const first = stk_render_turn(render, sample, 0);
    const stk_turn *const turn = first->role == STK_ROLE_SYSTEM ? first : &no_turn;
    STK_TRY(stk_render_literal(render, "<|im_start|>system\n"));
    const size_t begin_bytes = render->text.size_bytes;
    if (turn == first) {
        stk_str content;
        STK_TRY(stk_render_content(&content, render, sample, turn));
        STK_TRY(stk_render_raw(render, &render->text, content));
        STK_TRY(stk_render_literal(render, "\n\n"));
    }
    render->in_answer = false;
    STK_TRY(stk_render_json_tools(render, sample));
    return end_turn(render, begin_bytes, turn);
}

static stk_status write_thinking(stk_render *render, stk_str reasoning)
{
    STK_TRY(stk_render_literal(render, "<think>\n"));
    reasoning = stk_str_strip_newlines_left(stk_str_strip_newlines_right(reasoning));
    STK_TRY(stk_render_raw(render, &render->text, reasoning));
    return stk_render_literal(render, "\n</think>\n\n");
}

static stk_status write_answer(stk_render *render, const stk_sample *sample, const stk_turn *turn,
                               bool after_query, bool is_last)
{
    stk_str content, reasoning = {NULL, 0};
    STK_TRY(stk_render_content(&content, render, sample, turn));
    if (turn->reasoning.data) {
        stk_buffer_clear(&render->piece);
        STK_TRY(stk_render_data(render, &render->piece, turn->reasoning));
        reasoning = stk_render_view(&render->piece);
    } else {
        stk_content_split_thinking(&reasoning, &content);
    }
    STK_TRY(stk_render_literal(render, "<|im_start|>assistant\n"));
    const size_t begin_bytes = render->text.size_bytes;
    const bool thinks = after_query && (is_last || reasoning.size_bytes);
    if (thinks) STK_TRY(write_thinking(render, reasoning));
    STK_TRY(stk_render_raw(render, &render->text, thinks ? stk_str_strip_newlines_left(content) : content));
    STK_TRY(stk_render_json_calls(render, turn, content.size_bytes > 0));
    return end_turn(render, begin_bytes, turn);
}

/* A run of tool turns shares one user turn. */
static stk_status write_tool_turn(stk_render *render, const stk_sample *sample, size_t index)
{
    const stk_turn *const turn = stk_render_turn(render, sample, index);
    stk_str content;
    STK_TRY(stk_render_content(&content, render, sample, turn));
    if (index == 0 || stk_render_turn(render, sample, index - 1)->role != STK_ROLE_TOOL)
        STK_TRY(stk_render_literal(render, "<|im_start|>user"));
    return stk_render_tool_response(render, sample, index, content);
}

stk_status stk_render_qwen3_thinking(const stk_template *chat_template, stk_render *render,
                                     const stk_sample *sample)
{
    const size_t count = stk_render_turn_count(render, sample);
    if (count == 0) return stk_render_refuse(render, "the template wants at least one turn");
    const bool has_tools = json_array_size(sample->tools) > 0;
    if (has_tools) STK_TRY(write_tools(render, sample));
    size_t last_query;
    STK_TRY(find_last_query(&last_query, render, sample));
    for (size_t i = 0; i < count; i++) {
        const stk_turn *const turn = stk_render_turn(render, sample, i);
        if (turn->role == STK_ROLE_ASSISTANT)
            STK_TRY(write_answer(render, sample, turn, i > last_query, i + 1 == count));
        else if (turn->role == STK_ROLE_TOOL)
            STK_TRY(write_tool_turn(render, sample, i));
        else if (turn->role == STK_ROLE_USER || i || !has_tools)
            STK_TRY(write_prompt(render, sample, turn));
    }
    return STK_OK;
}
