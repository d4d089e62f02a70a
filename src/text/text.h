/* text.h - from the turns of a sample to ids and labels (spec-qwen3vl.md sections 4 and 5).
 *
 *     sample ─► template: one rendered string and its spans ─► tokeniser: ids with byte ranges ─► labels from spans
 *
 * A medium is one pad here; the batch repeats it by its grid (batch/).  That is exact, because added tokens always cut
 * the text. */
#ifndef STK_TEXT_TEXT_H
#define STK_TEXT_TEXT_H

#include "schema/facts.h"
#include "schema/model.h"
#include "schema/rules.h"
#include "schema/sample.h"
#include "schema/tokens.h"

/* The vocabulary, merges and added tokens of a tokenizer.json.  Const after open, shared by all threads. */
typedef struct stk_tokenizer stk_tokenizer;

stk_status stk_tokenizer_open(stk_tokenizer **out, const char *model_folder, stk_error *err) STK_MUST_USE;
void stk_tokenizer_close(stk_tokenizer **tokenizer);
/* XXH3-128 of the file: part of the fingerprint. */
void stk_tokenizer_digest(const stk_tokenizer *tokenizer, uint8_t digest[16]);

/* The text of an added token, in the order of the file; data NULL behind the last. */
stk_str stk_tokenizer_added_text(const stk_tokenizer *tokenizer, size_t index);

/* The id of a token's text, -1 if there is none. */
int32_t stk_tokenizer_id(const stk_tokenizer *tokenizer, stk_str token);
/* Of its longest token: a text of n bytes has at least n divided by this tokens, where NFC leaves it as it is. */
uint32_t stk_tokenizer_longest_bytes(const stk_tokenizer *tokenizer);
/* The bytes of an id (decoded from the byte map), data NULL if there is none. */
stk_str stk_tokenizer_token(const stk_tokenizer *tokenizer, int32_t id);
/* The special ids that stoker itself writes; a missing one is STK_ERR_MODEL. */
stk_status stk_tokenizer_special_ids(stk_special_ids *ids, const stk_tokenizer *tokenizer, stk_error *err) STK_MUST_USE;

/* How a conversation becomes one string: a published template by digest, or a declared turn format. */
typedef struct stk_template stk_template;

/* One turn of a turn format (interface.md): texts as written in the configuration. */
typedef struct stk_turn_format_role {
    stk_str before, after;
    bool trains_text, trains_after; /* assistant only: [text, after] */
    bool given;
} stk_turn_format_role;

typedef struct stk_turn_format {
    stk_turn_format_role system, user, assistant, tool;
    stk_str image, video;    /* what stands for a medium */
    stk_str default_system;  /* data NULL: none */
} stk_turn_format;

/* The template of the checkpoint folder (chat_template.jinja, chat_template.json, or inside tokenizer_config.json), by
 * the digest of its text.  Unknown: STK_ERR_MODEL with the words to fix it. */
stk_status stk_template_open(stk_template **out, const char *model_folder, stk_error *err) STK_MUST_USE;
/* A published template by name: "qwen3-vl", "qwen3-vl-thinking", "qwen2.5-vl" ("qwen2-vl" has the same text), "qwen3.5"
 * (think and nothink differ in the prompt for generation only), "qwen3.6", "qwen3.8", and TRL's "qwen3.5-training" and
 * "qwen3.6-training". */
stk_status stk_template_named(stk_template **out, stk_str name, stk_error *err) STK_MUST_USE;
stk_status stk_template_declared(stk_template **out, const stk_turn_format *format, stk_error *err) STK_MUST_USE;
void stk_template_close(stk_template **chat_template);
/* XXH3-128 of what it does: part of the keys. */
void stk_template_digest(const stk_template *chat_template, uint8_t digest[16]);
const char *stk_template_name(const stk_template *chat_template);

/* A worker's own buffers; kept from sample to sample.  One thread at a time. */
typedef struct stk_text_scratch stk_text_scratch;
stk_status stk_text_scratch_create(stk_text_scratch **out, const stk_limits *limits, stk_error *err) STK_MUST_USE;
void stk_text_scratch_destroy(stk_text_scratch *scratch);

/* Render, tokenise and label a sample.  *tokens lives in scratch until its next use.
 * A medium has no label, but under labels: finetune, whose scan puts labels on what follows the word "assistant";
 * supervised_count counts each medium once.
 * Failure: STK_ERR_RECORD with *reason (STK_REASON_TEMPLATE, _CONTROL, _NO_ANSWER, _UNTRAINED, _RECORD_LIMIT, _UTF8),
 * or STK_ERR_OPTION where the rules do not go with the template. */
stk_status stk_text_encode(stk_tokens *tokens, const stk_tokenizer *tokenizer, const stk_template *chat_template,
                           const stk_text_rules *rules, const stk_sample *sample, stk_text_scratch *scratch,
                           stk_reason *reason, stk_error *err) STK_MUST_USE;

/* Refuse rules which do not go with a tokenizer or template at open (labels: finetune with Qwen3.5, an
 * allow_control_tokens entry that is no token). */
stk_status stk_text_rules_check(const stk_tokenizer *tokenizer, const stk_template *chat_template,
                                const stk_text_rules *rules, stk_error *err) STK_MUST_USE;

#endif
