/* record.h - one record of a manifest, of any dialect, to a sample.
 *
 * Dialects: LLaVA / qwen-vl-finetune (`conversations` of from/value, `<image>` tags, `image` or `images`) and OpenAI
 * (`messages` of role/content, content a string or parts).  Told apart by the record's own keys. */
#ifndef STK_MANIFEST_RECORD_H
#define STK_MANIFEST_RECORD_H

#include "schema/facts.h"
#include "schema/rules.h"
#include "schema/sample.h"

typedef enum stk_dialect { STK_DIALECT_DETECT, STK_DIALECT_LLAVA, STK_DIALECT_OPENAI } stk_dialect;

typedef struct stk_role_mapping {
    stk_str name;
    stk_role role;
} stk_role_mapping;

/* How to read the records of one data set.  Strings are the caller's and outlive the rules. */
typedef struct stk_record_rules {
    stk_dialect dialect;
    /* Where a record keeps what; data NULL: the usual names. */
    stk_str id_column, messages_column, images_column, videos_column, audios_column, tools_column, system_column;
    const stk_role_mapping *role; /* beside the usual ones, and before them */
    size_t role_count;
    stk_tag_space tag_space;
    stk_str media_root;           /* absolute folder that relative addresses start from */
    stk_str_list allow;           /* absolute folders beside it */
    const stk_limits *limits;
} stk_record_rules;

/* Parse one record.  On success *sample is the caller's, who resets it with the next call or ends it with
 * stk_sample_deinit; its memory is kept from record to record.
 * Failure: STK_ERR_RECORD with *reason; err names what and where in the record (the caller adds file and line). */
void stk_sample_init(stk_sample *sample);
stk_status stk_record_parse(stk_sample *sample, const stk_record_rules *rules, stk_str record, stk_reason *reason,
                            stk_error *err) STK_MUST_USE;
void stk_sample_deinit(stk_sample *sample);

#endif
