/* record.h - one record of a manifest, of any dialect, to a sample.
 *
 * Dialects (docs/manifests.md): LLaVA / qwen-vl-finetune and ShareGPT (turns of `from` and `value`), OpenAI (turns of
 * `role` and `content`, content a string or parts), ms-swift (either key, in any mixture).  The first two forms are told
 * apart by the keys of the first turn; what only ms-swift reads has to be declared.  In all, `<image>`, `<video>` and
 * `<audio>` in the text of user and tool turns are tags, which take the record's media (`image`, `images`) in order;
 * text of system and assistant turns is verbatim.  A key with the value null is an absent key.
 *
 * Nothing of a record's media is left out in silence: what is not supported, does not match or has no place is a
 * record error. */
#ifndef STK_MANIFEST_RECORD_H
#define STK_MANIFEST_RECORD_H

#include "manifest/stated.h"
#include "schema/facts.h"
#include "schema/rules.h"
#include "schema/sample.h"

typedef enum stk_dialect {
    STK_DIALECT_DETECT,
    STK_DIALECT_LLAVA,
    STK_DIALECT_OPENAI,
    STK_DIALECT_MS_SWIFT,
    STK_DIALECT_SHAREGPT,
} stk_dialect;

typedef struct stk_role_mapping {
    stk_str name;
    stk_role role;
} stk_role_mapping;

/* How to read the records of one data set.  Strings are the caller's and outlive the rules. */
typedef struct stk_record_rules {
    stk_dialect dialect;
    /* Where a record keeps what; data NULL: the usual names (id; conversations, conversation or messages; image or
     * images; video or videos; audio or audios; tools; system).  A name given is the only one that is looked at. */
    stk_str id_column, messages_column, images_column, videos_column, audios_column, tools_column, system_column;
    const stk_role_mapping *role; /* beside the usual ones, and before them */
    size_t role_count;
    stk_tag_space tag_space;
    stk_str media_root;           /* absolute folder, or s3:// prefix, that relative addresses start from */
    stk_str_list allow;           /* places beside it (schema/place.h; the manifest's own, when media_root is another) */
    const stk_stated_sizes *stated; /* of media whose size the record does not state; NULL: none */
    const stk_limits *limits;
} stk_record_rules;

/* Parse one record.  On success *sample is the caller's, who resets it with the next call or ends it with
 * stk_sample_deinit; its memory is kept from record to record.
 * Failure: STK_ERR_RECORD with *reason, or STK_ERR_NOMEM; err names what and where in the record (the caller adds file
 * and line), and the sample has no turns and no media, but its id when the record got that far.
 *
 * Addresses come out as absolute paths without `.`, `..` and `//`, as data: URIs, as s3://bucket/key with the bytes of the
 * key as they were written, or as http(s):// URLs.  They are compared as text with media_root and allow; where symbolic
 * links and redirects lead is for who follows them. */
void stk_sample_init(stk_sample *sample);
stk_status stk_record_parse(stk_sample *sample, const stk_record_rules *rules, stk_str record, stk_reason *reason,
                            stk_error *err) STK_MUST_USE;
void stk_sample_deinit(stk_sample *sample);

/* What people see of a sample (interface.md, "Sample id"): "set/id"; "set#line" when the record has no id, the id is a
 * repeated one, or the whole would not fit.  Control characters are escaped (\n, \x1b, \u0085). */
enum { STK_SAMPLE_ID_BYTES = 96 };
void stk_sample_id(char out[STK_SAMPLE_ID_BYTES], const char *set, stk_str id, uint64_t line, bool repeated);

#endif
