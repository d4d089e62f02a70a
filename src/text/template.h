/* template.h - what a chat template is made of, between the files of this folder. */
#ifndef STK_TEXT_TEMPLATE_H
#define STK_TEXT_TEMPLATE_H

#include "text/render.h"
#include "text/text.h"

/* Write all turns of a sample (with the system turn of the rules) into render. */
typedef stk_status stk_template_render(const stk_template *chat_template, stk_render *render,
                                       const stk_sample *sample);

struct stk_template {
    const char *name; /* "qwen3-vl", ..., "declared" */
    stk_template_render *render;
    const char *literals;  /* published: the control tokens in its literals that carry no special flag */
    bool is_qwen35;        /* the scan of labels: finetune does not go with it */
    bool scalars_as_json;  /* Qwen3.6 on */
    bool reasoning_effort; /* Qwen3.8: a line in the system turn, no think block taken out of a text */
    bool thinks_always;    /* a think block in every answer: Qwen3.8, TRL's training templates */
    bool is_declared;
    stk_turn_format format; /* declared: slices of the text behind it */
    uint8_t digest[16];
};

/* Does a token stand in the template's own literals? */
bool stk_template_writes(const stk_template *chat_template, stk_str token);

stk_template_render stk_render_qwen25, stk_render_qwen3, stk_render_qwen3_thinking, stk_render_qwen35,
    stk_render_format;

/* What the templates of Qwen3-VL share, Instruct and Thinking: the tools as they stand in the system turn,
 * and the calls of an answer, the first on a line of its own if text precedes it.  render_qwen.c */
stk_status stk_render_json_tools(stk_render *render, const stk_sample *sample) STK_MUST_USE;
stk_status stk_render_json_calls(stk_render *render, const stk_turn *turn, bool follows_text) STK_MUST_USE;

/* The content of a turn with its media, in render->content until the next call; sets in_answer.
 * turn_content.c */
stk_status stk_render_content(stk_str *content, stk_render *render, const stk_sample *sample,
                              const stk_turn *turn) STK_MUST_USE;
stk_str stk_render_view(const stk_buffer *buffer);
/* A tool turn's response block with this content, and the end of the user turn unless the next turn is a
 * tool's too; the header before it is the caller's. */
stk_status stk_render_tool_response(stk_render *render, const stk_sample *sample, size_t index,
                                    stk_str content) STK_MUST_USE;
/* Is all of it one <tool_response> block? */
bool stk_content_answers_a_tool(stk_str content);
/* Take a think block out of the content, as the templates' split and strip calls do; *reasoning stays without
 * one. */
void stk_content_split_thinking(stk_str *reasoning, stk_str *content);

/* Check a turn format, fill the template from it.  turn_format.c */
stk_status stk_turn_format_check(const stk_turn_format *format, stk_error *err) STK_MUST_USE;

#endif
