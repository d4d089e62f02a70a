/* tokenizer.h - the tokeniser as the rest of this folder uses it: added tokens, and an encoder that keeps its memory.
 *
 *     text ─► added tokens cut it (live only) ─► NFC ─► pretokenizer.c: pieces ─► bpe.c: ids
 *
 * The rules are those of spec-qwen3vl.md section 4.3.  The public calls stand in text.h. */
#ifndef STK_TEXT_TOKENIZER_H
#define STK_TEXT_TOKENIZER_H

#include "text/bpe.h"
#include "text/text.h"
#include "text/unicode.h"

typedef struct stk_added_token {
    stk_str text; /* never empty */
    int32_t id;
    bool special; /* the flag of tokenizer.json; it plays no part in encoding */
} stk_added_token;

/* The added tokens of tokenizer.json, in its order. */
size_t stk_tokenizer_added_count(const stk_tokenizer *tokenizer);
const stk_added_token *stk_tokenizer_added(const stk_tokenizer *tokenizer, size_t index); /* index < count */

/* Ids with the bytes that they stand for.  A plain struct to embed; one thread at a time; nothing is allocated once the
 * buffers have met the largest text.  Read id, begin, end and count; the rest is the encoder's. */
typedef struct stk_encoder {
    const int32_t *id;
    const uint32_t *begin, *end; /* bytes of the text given, widened to whole characters; see stk_encoder_append */
    uint32_t count;

    stk_buffer ids, begins, ends;
    stk_normal normal;             /* a text that NFC changes */
    stk_bpe_scratch bpe;           /* a long piece while it is merged */
    struct stk_piece_cache *cache; /* short pieces met before */
} stk_encoder;

/* max_text_bytes < 2^30: of all that is appended between two clears.  deinit is fine after a failed init and on
 * zeros. */
stk_status stk_encoder_init(stk_encoder *encoder, uint64_t max_text_bytes, stk_error *err) STK_MUST_USE;
void stk_encoder_deinit(stk_encoder *encoder);

/* Forget the ids, keep the memory. */
void stk_encoder_clear(stk_encoder *encoder);

/* Append the ids of text, which is encoded on its own: no merge crosses from one call to the next.
 *
 * live: added tokens are matched, leftmost and longest.  Otherwise it is text and nothing else, whatever it holds
 * (section 4.5).  base_bytes is the place of text in the caller's string, added to every begin and end.
 *
 * begin and end of a token are those of the reference's offsets: whole characters of the original; a character that
 * NFC composed stands at its first original one.  begin never falls from token to token but where NFC sorted
 * combining marks.
 *
 * Failure: STK_ERR_RECORD when text is no UTF-8, STK_ERR_NOMEM; the ids are then those before the call or some more. */
stk_status stk_encoder_append(stk_encoder *encoder, const stk_tokenizer *tokenizer, stk_str text, size_t base_bytes,
                              bool live, stk_error *err) STK_MUST_USE;

#endif
