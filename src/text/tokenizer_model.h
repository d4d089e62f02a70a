/* tokenizer_model.h - what a tokenizer.json becomes: tokenizer_load.c fills it, tokenizer.c and
 * tokenizer_encode.c read it. */
#ifndef STK_TEXT_TOKENIZER_MODEL_H
#define STK_TEXT_TOKENIZER_MODEL_H

#include "text/bpe.h"
#include "text/tokenizer.h"

/* The bytes of a regular entry. */
typedef struct stk_vocab_entry {
    uint32_t at; /* in the vocabulary's bytes */
    uint32_t size_bytes;
} stk_vocab_entry;

struct stk_tokenizer {
    uint8_t digest[16];
    bool nfc;               /* the normalizer; without it text is taken as it is */
    bool marks_are_letters; /* which of the two patterns */

    stk_vocab_entry *entry; /* by id, 0 to entry_count - 1 */
    uint32_t entry_count;
    uint8_t *bytes;         /* of all entries */
    int32_t *by_bytes;      /* hash table of ids, -1: an empty slot; at most half full */
    uint32_t by_bytes_mask;
    stk_bpe bpe;

    stk_added_token *added;      /* in the order of the file */
    uint32_t *added_order;       /* their indices by text, bytewise */
    uint32_t added_first[257];   /* by first byte b: added_order[added_first[b]] to before added_first[b + 1] */
    uint32_t added_count;
    stk_pool added_texts;
};

/* As stk_tokenizer_open, from the text of a tokenizer.json; path names it in errors. */
stk_status stk_tokenizer_load(stk_tokenizer **out, stk_str json, const char *path, stk_error *err) STK_MUST_USE;

/* The id of a regular entry, -1 if there is none. */
int32_t stk_vocab_find(const stk_tokenizer *tokenizer, const void *bytes, size_t size_bytes);

/* Enter an id whose entry is filled into the table.  False: an entry with the same bytes is there. */
bool stk_vocab_enter(stk_tokenizer *tokenizer, int32_t id);

/* The longest added token that text begins with; NULL if there is none. */
const stk_added_token *stk_added_match(const stk_tokenizer *tokenizer, stk_str text);

#endif
