/* render.h - the rendered string of one sample, while a template writes it.
 *
 * Template literals and data go into one buffer.  Unless control_tokens is `reference`, each control token
 * typed in the data is wrapped in two private marks, U+F0000 and U+F0001, as transformers does it: a template
 * that cuts, trims or searches the data then treats it as the reference's template would.  encode.c takes the
 * marks out again and encodes what stands between them as plain text (spec-qwen3vl.md section 4.5). */
#ifndef STK_TEXT_RENDER_H
#define STK_TEXT_RENDER_H

#include "base/memory.h"
#include "schema/facts.h"
#include "schema/rules.h"
#include "schema/sample.h"

#define STK_MARK_BYTES ((size_t)4)
#define STK_MARK_BEGIN "\xF3\xB0\x80\x80" /* U+F0000 */
#define STK_MARK_END "\xF3\xB0\x80\x81"   /* U+F0001 */

/* A control token: one that must not be typed by the data. */
typedef struct stk_control_token {
    stk_str text;    /* never empty */
    bool in_answers; /* becomes text in assistant turns, too */
} stk_control_token;

/* The control tokens of a tokenizer, a template and rules, longest first. */
typedef struct stk_control_set {
    const stk_control_token *token;
    size_t count;
    bool marks;       /* false under `reference`: nothing becomes text */
    bool starts[256]; /* first bytes of tokens */
} stk_control_set;

/* The longest control token at the start of text (not empty), NULL if none. */
const stk_control_token *stk_control_find(const stk_control_set *control, stk_str text);

/* A part of the rendered text that may get labels. */
typedef struct stk_stretch {
    size_t begin_bytes, end_bytes;
    const stk_turn *turn;
} stk_stretch;

typedef struct stk_render {
    const stk_control_set *control;
    size_t max_bytes;     /* of text, and of each buffer beside it */
    stk_buffer text;      /* what is rendered, with marks */
    stk_buffer stretches; /* stk_stretch, rising */
    stk_buffer content;   /* of a turn, where the template looks at it before it is placed */
    stk_buffer piece;     /* reasoning, or a string before it is escaped for JSON */
    stk_buffer clean;     /* a string of the data without marks of its own */
    stk_turn system_turn; /* from the rules, when the record has none */
    stk_turn_part system_part;
    bool has_system_turn;
    bool in_answer;    /* the data that comes belongs to an assistant turn */
    uint32_t notes;    /* STK_NOTE_* */
    stk_reason reason; /* of a failure with STK_ERR_RECORD */
    stk_error *err;
} stk_render;

void stk_render_init(stk_render *render, size_t max_bytes);
void stk_render_deinit(stk_render *render);

/* Begin a sample: empty buffers, and the system turn of the rules in front if the first turn of the sample is
 * none. */
void stk_render_begin(stk_render *render, const stk_control_set *control, const stk_text_rules *rules,
                      const stk_sample *sample, stk_error *err);

/* The turns with the system turn of the rules among them. */
static inline size_t stk_render_turn_count(const stk_render *render, const stk_sample *sample)
{
    return sample->turn_count + render->has_system_turn;
}

static inline const stk_turn *stk_render_turn(const stk_render *render, const stk_sample *sample,
                                              size_t index)
{
    if (!render->has_system_turn) return &sample->turn[index];
    return index ? &sample->turn[index - 1] : &render->system_turn;
}

/* All below: STK_OK, STK_ERR_NOMEM, or STK_ERR_RECORD with render->reason. */

/* Bytes as they are: template literals, and what has been marked already. */
stk_status stk_render_raw(stk_render *render, stk_buffer *to, stk_str text) STK_MUST_USE;
#define stk_render_literal(render, words) stk_render_raw(render, &(render)->text, STK_LITERAL(words))
#define STK_LITERAL(words) ((stk_str)STK_STR_INIT(words))
#define STK_STR_INIT(words)                                                                                  \
    {                                                                                                        \
        (words), sizeof(words) - 1                                                                           \
    }

/* A string of the data: its control tokens are noted, and marked if the rule says so. */
stk_status stk_render_data(stk_render *render, stk_buffer *to, stk_str text) STK_MUST_USE;

/* A value as Python's json.dumps(value, ensure_ascii=False); its strings are data, its keys are not
 * (section 4.5). */
stk_status stk_render_json(stk_render *render, stk_buffer *to, const json_t *value) STK_MUST_USE;

/* A number, true, false or null as Python's str() prints it. */
stk_status stk_render_scalar(stk_render *render, stk_buffer *to, const json_t *value) STK_MUST_USE;

/* The text from begin to the end of what is rendered may get labels as part of turn. */
stk_status stk_render_stretch(stk_render *render, size_t begin_bytes, const stk_turn *turn) STK_MUST_USE;

/* The template refuses the conversation. */
stk_status stk_render_refuse(stk_render *render, const char *format, ...) STK_PRINTF(2, 3);

/* Python's str.strip(). */
stk_str stk_str_strip(stk_str text);
/* Python's str.strip("\n") at one end. */
stk_str stk_str_strip_newlines_left(stk_str text);
stk_str stk_str_strip_newlines_right(stk_str text);

#endif
