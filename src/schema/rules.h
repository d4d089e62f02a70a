/* rules.h - the options that change the stream, as the modules take them: plain values, resolved and checked.
 *
 * The engine makes them from stk_options; no module below it knows an option by name. */
#ifndef STK_SCHEMA_RULES_H
#define STK_SCHEMA_RULES_H

#include <stdbool.h>

#include "base/bytes.h"

typedef enum stk_label_rule { STK_LABELS_ANSWERS, STK_LABELS_LAST, STK_LABELS_FINETUNE } stk_label_rule;
typedef enum stk_control_rule { STK_CONTROL_PLAIN, STK_CONTROL_SANITIZE, STK_CONTROL_REFERENCE } stk_control_rule;
typedef enum stk_tag_space { STK_TAG_SPACE_KEEP, STK_TAG_SPACE_STRIP } stk_tag_space;
typedef enum stk_pixel_form { STK_PIXELS_UINT8, STK_PIXELS_FLOAT32, STK_PIXELS_BFLOAT16 } stk_pixel_form;
typedef enum stk_profile {
    STK_PROFILE_HF,
    STK_PROFILE_PIL_11,
    STK_PROFILE_PIL_12,
    STK_PROFILE_PIL_13,
    STK_PROFILE_QWEN_VL_UTILS,
} stk_profile; /* whose pixels: spec-qwen3vl.md section 0.1 */

/* What transparency does: nothing; RGBA pictures are blended on white, as qwen_vl_utils does; every kind is. */
typedef enum stk_alpha_rule { STK_ALPHA_DROP, STK_ALPHA_WHITE_RGBA, STK_ALPHA_WHITE } stk_alpha_rule;

typedef enum stk_layout { STK_LAYOUT_PADDED, STK_LAYOUT_FLAT, STK_LAYOUT_PACKED } stk_layout;
typedef enum stk_balance { STK_BALANCE_NONE, STK_BALANCE_MODEL, STK_BALANCE_BOTH } stk_balance; /* both: model+vision */
typedef enum stk_targets { STK_TARGETS_HF, STK_TARGETS_SHIFTED } stk_targets;
typedef enum stk_positions { STK_POSITIONS_AUTO, STK_POSITIONS_PLAIN, STK_POSITIONS_MROPE } stk_positions;

typedef struct stk_str_list {
    const stk_str *item;
    size_t count;
} stk_str_list;

/* How a record's text becomes ids and labels; per data set (spec-qwen3vl.md sections 4 and 5). */
typedef struct stk_text_rules {
    stk_label_rule labels;
    stk_control_rule control_tokens;
    stk_str_list allow_control_tokens; /* stay live under plain and sanitize */
    stk_str system;                    /* replaces the template's default system prompt; data NULL: none given */
} stk_text_rules;

/* What becomes of an image; per data set, the profile per run (spec-qwen3vl.md sections 0.1 and 1.3). */
typedef struct stk_pixel_rules {
    stk_profile profile;
    uint64_t min_px, max_px;
    bool ignore_orientation;
    stk_alpha_rule alpha;
    bool shrinks_overlong; /* overlong: shrink */
} stk_pixel_rules;

/* Bounds on hostile input, on by default. */
typedef struct stk_limits {
    uint64_t media_bytes;     /* compressed, of one medium */
    uint64_t media_px;        /* width x height of one image */
    uint64_t record_bytes;    /* one record of a manifest */
    uint32_t json_depth;      /* nesting of a record */
    uint32_t media_per_record;
    uint64_t text_bytes;      /* rendered text of one record */
    uint32_t jpeg_scans;      /* of a progressive JPEG */
} stk_limits;

#define STK_LIMITS_DEFAULT                                                                                 \
    ((stk_limits){.media_bytes = 256u << 20, .media_px = 178956970u, .record_bytes = 64u << 20,            \
                  .json_depth = 64, .media_per_record = 4096, .text_bytes = 8u << 20, .jpeg_scans = 100})

#endif
