/* sample.h - one record of a manifest, whatever its dialect, as turns of parts.
 *
 * The manifest writes it, text renders it, the engine fetches its media.  All strings are slices of the parsed
 * record (root) or of the sample's pool, and live as long as the sample. */
#ifndef STK_SCHEMA_SAMPLE_H
#define STK_SCHEMA_SAMPLE_H

#include <jansson.h>

#include "base/memory.h"

typedef enum stk_role { STK_ROLE_SYSTEM, STK_ROLE_USER, STK_ROLE_ASSISTANT, STK_ROLE_TOOL } stk_role;

typedef enum stk_media_kind { STK_MEDIA_IMAGE, STK_MEDIA_VIDEO, STK_MEDIA_AUDIO } stk_media_kind;

typedef enum stk_part_kind { STK_PART_TEXT, STK_PART_MEDIA } stk_part_kind;

typedef struct stk_turn_part {
    stk_part_kind kind;
    uint32_t media_index; /* of a medium: in the sample's media, from 0, rising over the conversation */
    stk_str text;         /* of text, as the record has it; never empty */
} stk_turn_part;

typedef struct stk_tool_call {
    stk_str name;
    const json_t *arguments; /* a string (taken verbatim), an object, or any other value; never NULL */
} stk_tool_call;

typedef enum stk_train { STK_TRAIN_BY_RULE, STK_TRAIN_NO, STK_TRAIN_YES } stk_train;

typedef struct stk_turn {
    stk_role role;
    stk_train train;          /* the turn's own `train`, `loss`, ... */
    const stk_turn_part *part;
    size_t part_count;
    const stk_tool_call *call; /* of an assistant turn */
    size_t call_count;
    stk_str reasoning;         /* `reasoning_content`; data NULL: absent */
} stk_turn;

typedef struct stk_media_ref {
    stk_media_kind kind;
    stk_str address; /* resolved: an absolute path, a data: URI, later s3:// and http(s):// */
    uint32_t width_px, height_px; /* stated by the record; 0: not stated */
} stk_media_ref;

/* Counted per record and shown by the index (spec-qwen3vl.md section 7.6). */
enum {
    STK_NOTE_LONE_SURROGATE = 1u << 0,
    STK_NOTE_NO_FINAL_ANSWER = 1u << 1, /* the last turn is not the assistant's */
    STK_NOTE_TOOL_ROLE = 1u << 2,
    STK_NOTE_LATER_SYSTEM = 1u << 3, /* a system turn that is not first */
    STK_NOTE_DETAIL_IGNORED = 1u << 4,
    STK_NOTE_CONTROL_TOKEN = 1u << 5,        /* typed in a user turn; set by text, as are those below */
    STK_NOTE_CONTROL_TOKEN_ANSWER = 1u << 6, /* typed in an answer */
    STK_NOTE_ASSISTANT_TOKEN = 1u << 7,      /* "assistant" as a token outside a header */
    STK_NOTE_ANSWER_LINE_BREAK = 1u << 8,    /* an answer begins with a line break */
    STK_NOTE_CONTROL_TOKEN_SYSTEM = 1u << 9, /* typed in a system turn or in the tools */
    STK_NOTE_CONTROL_TOKEN_TOOL = 1u << 10,  /* typed in a tool turn */
    STK_NOTE_END_OF_TEXT = 1u << 11,         /* <|endoftext|>, the pad, is typed */
    STK_NOTE_PLACEHOLDER = 1u << 12,         /* <|placeholder|> is typed: some releases make a pad of it */
    STK_NOTE_THINK_CLOSED = 1u << 13,        /* an answer has </think> and no <think> before it */
    STK_NOTE_TAG_SPACE = 1u << 14,           /* tag_space: strip takes white space away; set by the manifest */
    STK_NOTE_TAGS_ADDED = 1u << 15,          /* ms-swift: images without tags were put before the first turn's text */
};

typedef struct stk_sample {
    stk_str id;           /* the record's own id as text; data NULL: none */
    const stk_turn *turn;
    size_t turn_count;
    const stk_media_ref *media; /* in the order in which their parts appear */
    size_t media_count;
    const json_t *tools; /* an array; NULL: none */
    uint32_t notes;      /* STK_NOTE_* */

    json_t *root;  /* owned: an array of the record and of the texts in it that are JSON themselves */
    stk_pool pool; /* owned */
} stk_sample;

#endif
