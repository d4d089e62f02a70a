/* audit.h - what the index counts of a text: control tokens typed in it and by whom, words that other code
 * trips over. */
#ifndef STK_TEXT_AUDIT_H
#define STK_TEXT_AUDIT_H

#include "schema/tokens.h"
#include "text/render.h"
#include "text/tokenizer.h"

/* The notes of a rendered sample, and which added tokens it types (stk_text_facts).  render: as the template
 * left it. */
void stk_text_audit(stk_tokens *tokens, const stk_tokenizer *tokenizer, const stk_render *render,
                    const stk_sample *sample);

#endif
