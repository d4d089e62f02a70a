/* render_qwen.c - the Instruct templates of Qwen2-VL, Qwen2.5-VL and Qwen3-VL (spec-qwen3vl.md section 4.1).
 *
 * The literals are the protocol of the models and equal those of the published templates byte for byte. */
#include "text/template.h"

static const stk_str image_text = STK_STR_INIT("<|vision_start|><|image_pad|><|vision_end|>");
static const stk_str video_text = STK_STR_INIT("<|vision_start|><|video_pad|><|vision_end|>");

static stk_status write_media(stk_render *render, const stk_sample *sample, const stk_turn_part *part)
{
    const bool is_video = sample->media[part->media_index].kind == STK_MEDIA_VIDEO;
    return stk_render_raw(render, &render->text, is_video ? video_text : image_text);
}

/* The parts of a turn, nothing between them. */
static stk_status write_parts(stk_render *render, const stk_sample *sample, const stk_turn *turn,
                              bool with_media)
{
    for (size_t i = 0; i < turn->part_count; i++) {
        const stk_turn_part *const part = &turn->part[i];
        if (part->kind == STK_PART_TEXT)
            STK_TRY(stk_render_data(render, &render->text, part->text));
        else if (with_media)
            STK_TRY(write_media(render, sample, part));
        else
            return stk_render_refuse(render,
                                     "the template leaves out the images and videos of %s turns: put them "
                                     "into a user turn",
                                     turn->role == STK_ROLE_SYSTEM ? "system" : "assistant");
    }
    return STK_OK;
}

/* Where a turn's text begins; it gets labels if it is an answer or the record says so. */
static stk_status end_turn(stk_render *render, size_t begin_bytes, const stk_turn *turn)
{
    STK_TRY(stk_render_literal(render, "<|im_end|>\n"));
    if (turn->role == STK_ROLE_ASSISTANT || turn->train == STK_TRAIN_YES)
        return stk_render_stretch(render, begin_bytes, turn);
    return STK_OK;
}

/* Qwen2-VL, Qwen2.5-VL: every role alike; tools, tool calls and reasoning are unknown to the template. */
stk_status stk_render_qwen25(const stk_template *chat_template, stk_render *render, const stk_sample *sample)
{
    static const stk_str header[] = {
        [STK_ROLE_SYSTEM] = STK_STR_INIT("<|im_start|>system\n"),
        [STK_ROLE_USER] = STK_STR_INIT("<|im_start|>user\n"),
        [STK_ROLE_ASSISTANT] = STK_STR_INIT("<|im_start|>assistant\n"),
        [STK_ROLE_TOOL] = STK_STR_INIT("<|im_start|>tool\n"),
    };
    const size_t count = stk_render_turn_count(render, sample);
    for (size_t i = 0; i < count; i++) {
        const stk_turn *const turn = stk_render_turn(render, sample, i);
        if (i == 0 && turn->role != STK_ROLE_SYSTEM)
            STK_TRY(
                stk_render_literal(render, "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n"));
        render->in_answer = turn->role == STK_ROLE_ASSISTANT;
        STK_TRY(stk_render_raw(render, &render->text, header[turn->role]));
        const size_t begin_bytes = render->text.size_bytes;
        STK_TRY(write_parts(render, sample, turn, true));
        STK_TRY(end_turn(render, begin_bytes, turn));
    }
    return STK_OK;
}

stk_status stk_render_json_tools(stk_render *render, const stk_sample *sample)
{
    STK_TRY(stk_render_literal(
        render, "# Tools\n\nYou may call one or more functions to assist with the user query.\n\nYou are "
                "provided with function signatures within <tools></tools> XML tags:\n<tools>"));
    for (size_t i = 0; i < json_array_size(sample->tools); i++) {
        STK_TRY(stk_render_literal(render, "\n"));
        STK_TRY(stk_render_json(render, &render->text, json_array_get(sample->tools, i)));
    }
    return stk_render_literal(
        render, "\n</tools>\n\nFor each function call, return a json object with function name and "
                "arguments within <tool_call></tool_call> XML tags:\n<tool_call>\n{\"name\": "
                "<function-name>, \"arguments\": <args-json-object>}\n</tool_call>");
}

/* The system turn of Qwen3-VL: the record's own text, and the tools. */
static stk_status write_system(stk_render *render, const stk_sample *sample, const stk_turn *first)
{
    const stk_turn *const system = first->role == STK_ROLE_SYSTEM ? first : NULL;
    const size_t tool_count = json_array_size(sample->tools);
    if (!system && !tool_count) return STK_OK;
    render->in_answer = false;
    STK_TRY(stk_render_literal(render, "<|im_start|>system\n"));
    const size_t begin_bytes = render->text.size_bytes;
    if (system) STK_TRY(write_parts(render, sample, system, false));
    if (!tool_count) return end_turn(render, begin_bytes, system);

    if (system) STK_TRY(stk_render_literal(render, "\n\n"));
    STK_TRY(stk_render_json_tools(render, sample));
    static const stk_turn no_turn = {.role = STK_ROLE_SYSTEM};
    return end_turn(render, begin_bytes, system ? system : &no_turn);
}

stk_status stk_render_json_calls(stk_render *render, const stk_turn *turn, bool follows_text)
{
    for (size_t i = 0; i < turn->call_count; i++) {
        const stk_tool_call *const call = &turn->call[i];
        if (i || follows_text) STK_TRY(stk_render_literal(render, "\n"));
        STK_TRY(stk_render_literal(render, "<tool_call>\n{\"name\": \""));
        STK_TRY(stk_render_data(render, &render->text, call->name));
        STK_TRY(stk_render_literal(render, "\", \"arguments\": "));
        if (json_is_string(call->arguments))
            STK_TRY(stk_render_scalar(render, &render->text, call->arguments));
        else
            STK_TRY(stk_render_json(render, &render->text, call->arguments));
        STK_TRY(stk_render_literal(render, "}\n</tool_call>"));
    }
    return STK_OK;
}

/* A run of tool turns shares one user turn. */
static stk_status write_tool_turn(stk_render *render, const stk_sample *sample, size_t index)
{
    const stk_turn *const turn = stk_render_turn(render, sample, index);
    if (index == 0 || stk_render_turn(render, sample, index - 1)->role != STK_ROLE_TOOL)
        STK_TRY(stk_render_literal(render, "<|im_start|>user"));
    STK_TRY(stk_render_literal(render, "\n<tool_response>\n"));
    const size_t begin_bytes = render->text.size_bytes;
    STK_TRY(write_parts(render, sample, turn, true));
    if (turn->train == STK_TRAIN_YES) STK_TRY(stk_render_stretch(render, begin_bytes, turn));
    STK_TRY(stk_render_literal(render, "\n</tool_response>"));
    if (index + 1 < stk_render_turn_count(render, sample) &&
        stk_render_turn(render, sample, index + 1)->role == STK_ROLE_TOOL)
        return STK_OK;
    return stk_render_literal(render, "<|im_end|>\n");
}

/* Qwen3-VL Instruct.  A system turn that is not first is dropped in silence, as the template does; the
 * manifest notes it. */
stk_status stk_render_qwen3(const stk_template *chat_template, stk_render *render, const stk_sample *sample)
{
    const size_t count = stk_render_turn_count(render, sample);
    for (size_t i = 0; i < count; i++) {
        const stk_turn *const turn = stk_render_turn(render, sample, i);
        if (i == 0) STK_TRY(write_system(render, sample, turn));
        render->in_answer = turn->role == STK_ROLE_ASSISTANT;
        if (turn->role == STK_ROLE_USER)
            STK_TRY(stk_render_literal(render, "<|im_start|>user\n"));
        else if (turn->role == STK_ROLE_ASSISTANT)
            STK_TRY(stk_render_literal(render, "<|im_start|>assistant\n"));
        else if (turn->role == STK_ROLE_TOOL) {
            STK_TRY(write_tool_turn(render, sample, i));
            continue;
        } else
            continue;
        const size_t begin_bytes = render->text.size_bytes;
        STK_TRY(write_parts(render, sample, turn, turn->role == STK_ROLE_USER));
        STK_TRY(stk_render_json_calls(render, turn, turn->part_count > 0));
        STK_TRY(end_turn(render, begin_bytes, turn));
    }
    return STK_OK;
}
