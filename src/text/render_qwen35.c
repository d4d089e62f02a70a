/* render_qwen35.c - the templates of Qwen3.5, Qwen3.6 and Qwen3.8 (spec-qwen3vl.md section 4.6).
 *
 * The template trims each turn and looks into it for a think block and for tool responses, so a turn's
 * content is built aside, with its marks, and placed afterwards.  The "think" and "nothink" templates of
 * Qwen3.5 differ only in the prompt for generation, which training does not have; TRL's training templates
 * write a think block in every answer. */
#include "text/template.h"

/* The trimmed content of a turn, in render->content until the next call. */
static stk_status build_content(stk_str *content, stk_render *render, const stk_sample *sample,
                                const stk_turn *turn)
{
    for (size_t i = 0; turn->role == STK_ROLE_SYSTEM && i < turn->part_count; i++)
        if (turn->part[i].kind == STK_PART_MEDIA)
            return stk_render_refuse(render, "the template takes no images or videos in the system turn");
    STK_TRY(stk_render_content(content, render, sample, turn));
    *content = stk_str_strip(*content);
    return STK_OK;
}

/* The last user turn that is not the answer of a tool: answers after it carry their think block. */
static stk_status find_last_query(size_t *index, stk_render *render, const stk_sample *sample)
{
    for (size_t i = stk_render_turn_count(render, sample); i-- > 0;) {
        const stk_turn *const turn = stk_render_turn(render, sample, i);
        if (turn->role != STK_ROLE_USER) continue;
        stk_str content;
        STK_TRY(build_content(&content, render, sample, turn));
        if (stk_content_answers_a_tool(content)) continue;
        *index = i;
        return STK_OK;
    }
    return stk_render_refuse(render, "the template wants at least one user turn");
}

static stk_status write_tools(stk_render *render, const stk_sample *sample)
{
    STK_TRY(stk_render_literal(render, "# Tools\n\nYou have access to the following functions:\n\n<tools>"));
    for (size_t i = 0; i < json_array_size(sample->tools); i++) {
        STK_TRY(stk_render_literal(render, "\n"));
        STK_TRY(stk_render_json(render, &render->text, json_array_get(sample->tools, i)));
    }
    return stk_render_literal(render, "\n</tools>\n\nIf you choose to call a function ONLY reply in the "
                                      "following format with NO suffix:\n\n"
                                      "<tool_call>\n<function=example_function_name>\n<parameter=example_"
                                      "parameter_1>\nvalue_1\n</parameter>\n"
                                      "<parameter=example_parameter_2>\nThis is the value for the second "
                                      "parameter\nthat can span\nmultiple lines\n"
                                      "</parameter>\n</function>\n</tool_call>\n\n<IMPORTANT>\nReminder:\n- "
                                      "Function calls MUST follow the specified "
                                      "format: an inner <function=...></function> block must be nested "
                                      "within <tool_call></tool_call> XML tags\n- "
                                      "Required parameters MUST be specified\n- You may provide optional "
                                      "reasoning for your function call in natural "
                                      "language BEFORE the function call, but NOT after\n- If there is no "
                                      "function call available, answer the "
                                      "question like normal with your current knowledge and do not tell the "
                                      "user about function calls\n</IMPORTANT>");
}

/* Effort line, tools, the record's own text: whichever there are, an empty line between them. */
static stk_status write_system(const stk_template *chat_template, stk_render *render,
                               const stk_sample *sample)
{
    static const stk_turn no_turn = {.role = STK_ROLE_SYSTEM};
    const stk_turn *turn = stk_render_turn(render, sample, 0);
    const bool has_tools = json_array_size(sample->tools) > 0;
    const bool has_system = turn->role == STK_ROLE_SYSTEM;
    if (!has_system) turn = &no_turn;
    stk_str content = {NULL, 0};
    if (has_system) STK_TRY(build_content(&content, render, sample, turn));
    if (!has_tools && !chat_template->reasoning_effort && !has_system) return STK_OK;

    render->in_answer = false;
    STK_TRY(stk_render_literal(render, "<|im_start|>system\n"));
    const size_t begin_bytes = render->text.size_bytes;
    if (chat_template->reasoning_effort)
        STK_TRY(stk_render_literal(
            render, "Reasoning effort is set to xhigh. Please think carefully through the task, validate "
                    "key assumptions, consider plausible alternatives, and prioritize correctness, "
                    "consistency, and clarity in the final answer."));
    if (has_tools) {
        if (render->text.size_bytes > begin_bytes) STK_TRY(stk_render_literal(render, "\n\n"));
        STK_TRY(write_tools(render, sample));
    }
    if (content.size_bytes) {
        if (render->text.size_bytes > begin_bytes) STK_TRY(stk_render_literal(render, "\n\n"));
        STK_TRY(stk_render_raw(render, &render->text, content));
    }
    STK_TRY(stk_render_literal(render, "<|im_end|>\n"));
    return turn->train == STK_TRAIN_YES ? stk_render_stretch(render, begin_bytes, turn) : STK_OK;
}

static stk_status write_argument(const stk_template *chat_template, stk_render *render, const char *name,
                                 const json_t *value)
{
    STK_TRY(stk_render_literal(render, "<parameter="));
    STK_TRY(stk_render_raw(render, &render->text, stk_str_of(name)));
    STK_TRY(stk_render_literal(render, ">\n"));
    if (json_is_object(value) || json_is_array(value) ||
        (chat_template->scalars_as_json && !json_is_string(value)))
        STK_TRY(stk_render_json(render, &render->text, value));
    else
        STK_TRY(stk_render_scalar(render, &render->text, value));
    return stk_render_literal(render, "\n</parameter>\n");
}

static stk_status write_call(const stk_template *chat_template, stk_render *render, const stk_tool_call *call)
{
    STK_TRY(stk_render_literal(render, "<tool_call>\n<function="));
    STK_TRY(stk_render_data(render, &render->text, call->name));
    STK_TRY(stk_render_literal(render, ">\n"));
    const bool none = chat_template->reasoning_effort && json_is_string(call->arguments) &&
                      json_string_length(call->arguments) == 0;
    if (!none && !json_is_object(call->arguments))
        return stk_render_refuse(render, "the template wants the arguments of a tool call as an object");
    json_t *const arguments = (json_t *)(uintptr_t)call->arguments; /* the iteration does not change it */
    if (!none)
        for (void *i = json_object_iter(arguments); i; i = json_object_iter_next(arguments, i))
            STK_TRY(
                write_argument(chat_template, render, json_object_iter_key(i), json_object_iter_value(i)));
    return stk_render_literal(render, "</function>\n</tool_call>");
}

static stk_status write_answer(const stk_template *chat_template, stk_render *render, const stk_turn *turn,
                               stk_str content, bool with_thinking)
{
    stk_str reasoning = {NULL, 0};
    if (turn->reasoning.data) {
        stk_buffer_clear(&render->piece);
        STK_TRY(stk_render_data(render, &render->piece, turn->reasoning));
        reasoning = stk_render_view(&render->piece);
    } else if (!chat_template->reasoning_effort) {
        stk_content_split_thinking(&reasoning, &content);
    }
    STK_TRY(stk_render_literal(render, "<|im_start|>assistant\n"));
    const size_t begin_bytes = render->text.size_bytes;
    if (with_thinking) {
        STK_TRY(stk_render_literal(render, "<think>\n"));
        STK_TRY(stk_render_raw(render, &render->text, stk_str_strip(reasoning)));
        STK_TRY(stk_render_literal(render, "\n</think>\n\n"));
    }
    STK_TRY(stk_render_raw(render, &render->text, content));
    const bool has_text = stk_str_strip(content).size_bytes > 0;
    for (size_t i = 0; i < turn->call_count; i++) {
        if (i)
            STK_TRY(stk_render_literal(render, "\n"));
        else if (has_text)
            STK_TRY(stk_render_literal(render, "\n\n"));
        STK_TRY(write_call(chat_template, render, &turn->call[i]));
    }
    STK_TRY(stk_render_literal(render, "<|im_end|>\n"));
    return stk_render_stretch(render, begin_bytes, turn);
}

/* The header of a run of tool turns is missing where such a turn is the first of all, as in the template. */
static stk_status write_tool_turn(stk_render *render, const stk_sample *sample, size_t index, stk_str content)
{
    if (index && stk_render_turn(render, sample, index - 1)->role != STK_ROLE_TOOL)
        STK_TRY(stk_render_literal(render, "<|im_start|>user"));
    return stk_render_tool_response(render, sample, index, content);
}

static stk_status write_user(stk_render *render, const stk_turn *turn, stk_str content)
{
    STK_TRY(stk_render_literal(render, "<|im_start|>user\n"));
    const size_t begin_bytes = render->text.size_bytes;
    STK_TRY(stk_render_raw(render, &render->text, content));
    STK_TRY(stk_render_literal(render, "<|im_end|>\n"));
    return turn->train == STK_TRAIN_YES ? stk_render_stretch(render, begin_bytes, turn) : STK_OK;
}

stk_status stk_render_qwen35(const stk_template *chat_template, stk_render *render, const stk_sample *sample)
{
    const size_t count = stk_render_turn_count(render, sample);
    if (count == 0) return stk_render_refuse(render, "the template wants at least one turn");
    STK_TRY(write_system(chat_template, render, sample));
    size_t last_query = 0;
    STK_TRY(find_last_query(&last_query, render, sample));
    for (size_t i = 0; i < count; i++) {
        const stk_turn *const turn = stk_render_turn(render, sample, i);
        if (turn->role == STK_ROLE_SYSTEM) {
            if (i) return stk_render_refuse(render, "the template takes a system turn only at the beginning");
            continue;
        }
        stk_str content;
        STK_TRY(build_content(&content, render, sample, turn));
        if (turn->role == STK_ROLE_USER)
            STK_TRY(write_user(render, turn, content));
        else if (turn->role == STK_ROLE_TOOL)
            STK_TRY(write_tool_turn(render, sample, i, content));
        else
            STK_TRY(write_answer(chat_template, render, turn, content,
                                 chat_template->thinks_always || i > last_query));
    }
    return STK_OK;
}
