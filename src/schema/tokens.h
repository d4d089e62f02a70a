/* tokens.h - the text of a sample as ids, ready for the batch.  Text writes it, batch reads it. */
#ifndef STK_SCHEMA_TOKENS_H
#define STK_SCHEMA_TOKENS_H

#include "base/bytes.h"

typedef struct stk_tokens {
    const int32_t *id;        /* count ids; one pad a medium */
    const uint8_t *trained;   /* count flags: 1 where the token has a label */
    const uint32_t *media_at; /* media_count positions in id, rising: the pad of each medium of the sample */
    uint32_t count, media_count, supervised_count;
    uint32_t notes;           /* STK_NOTE_* of the text */
    uint64_t typed_tokens;    /* control tokens typed by the data: see stk_text_facts */
    stk_str rendered;         /* the rendered string (for `stoker show`) */
} stk_tokens;

#endif
