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
    bool reasoning_effort; /* Qwen3.8: a line in the system turn, think blocks in every answer */
    bool is_declared;
    stk_turn_format format; /* declared: slices of the text behind it */
    uint8_t digest[16];
};

/* Does a token stand in the template's own literals? */
bool stk_template_writes(const stk_template *chat_template, stk_str token);

stk_template_render stk_render_qwen25, stk_render_qwen3, stk_render_qwen35, stk_render_format;

/* Check a turn format, fill the template from it.  turn_format.c */
stk_status stk_turn_format_check(const stk_turn_format *format, stk_error *err) STK_MUST_USE;

#endif
