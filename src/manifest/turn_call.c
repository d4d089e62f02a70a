/* turn_call.c - what a turn of the assistant has beside its text: tool calls and reasoning. */
#include "manifest/record_reader.h"

/* {"type": "function", "function": {"name", "arguments"}}, or {"name", "arguments"}. */
static stk_status read_call(stk_record_reader *reader, stk_tool_call *call, const json_t *json)
{
    const json_t *const inner = stk_json_get(json, "function");
    const json_t *const function = json_is_object(inner) ? inner : json;
    const json_t *const name = stk_json_get(function, "name");
    call->arguments = stk_json_get(function, "arguments");
    if (!json_is_string(name) || !call->arguments)
        return stk_record_reader_fail(reader, STK_REASON_DIALECT, "a tool call without name or arguments");
    call->name = stk_json_text(name);
    return STK_OK;
}

/* One call, or a list of at least one. */
static stk_status read_list(stk_record_reader *reader, stk_turn *turn, const json_t *calls)
{
    turn->call_count = json_is_array(calls) ? json_array_size(calls) : 1;
    stk_tool_call *const call = stk_record_reader_take(reader, turn->call_count * sizeof *call);
    if (!call) return stk_record_reader_nomem(reader);
    turn->call = call;
    for (size_t i = 0; i < turn->call_count; i++)
        STK_TRY(read_call(reader, call + i, json_is_array(calls) ? json_array_get(calls, i) : calls));
    return STK_OK;
}

stk_status stk_record_reader_calls(stk_record_reader *reader, stk_turn *turn, const json_t *json)
{
    const json_t *const calls = stk_json_get(json, "tool_calls");
    if (stk_json_get(json, "function_call"))
        return stk_record_reader_fail(reader, STK_REASON_DIALECT,
                                      "`function_call` is not read: write it as tool_calls");
    if (!calls || (json_is_array(calls) && json_array_size(calls) == 0)) return STK_OK;
    if (!json_is_array(calls)) return stk_record_reader_fail(reader, STK_REASON_DIALECT, "`tool_calls` is no list");
    if (turn->role != STK_ROLE_ASSISTANT)
        return stk_record_reader_fail(reader, STK_REASON_DIALECT,
                                      "`tool_calls` in a turn that is not the assistant's");
    return read_list(reader, turn, calls);
}

stk_status stk_record_reader_call_content(stk_record_reader *reader, stk_turn *turn, const json_t *content)
{
    json_t *parsed;
    if (json_is_string(content)) {
        STK_TRY(stk_record_reader_json(reader, &parsed, stk_json_text(content), "text of a tool call"));
        content = parsed;
    }
    if (!json_is_object(content) && json_array_size(content) == 0)
        return stk_record_reader_fail(reader, STK_REASON_DIALECT,
                                      "a turn of calls holds none: write {\"name\": ..., \"arguments\": ...}, or a list "
                                      "of such");
    return read_list(reader, turn, content);
}

stk_status stk_record_reader_reasoning(stk_record_reader *reader, stk_turn *turn, const json_t *json)
{
    const json_t *const reasoning = stk_json_get(json, "reasoning_content");
    if (!reasoning || turn->role != STK_ROLE_ASSISTANT) return STK_OK;
    if (!json_is_string(reasoning))
        return stk_record_reader_fail(reader, STK_REASON_DIALECT, "`reasoning_content` is no text");
    turn->reasoning = stk_json_text(reasoning);
    return STK_OK;
}
