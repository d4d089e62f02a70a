/* json_check.h - what must hold of a text before the JSON library sees it. */
#ifndef STK_MANIFEST_JSON_CHECK_H
#define STK_MANIFEST_JSON_CHECK_H

#include "base/bytes.h"
#include "base/error.h"
#include "schema/facts.h"

/* One pass: valid UTF-8, no NUL byte, no byte-order mark in front, nested at most max_depth. *lone_surrogates
 * counts the escapes of half a surrogate pair.  Failure: STK_ERR_RECORD with *reason; the message names the
 * byte. */
stk_status stk_json_check(stk_str text, uint32_t max_depth, uint64_t *lone_surrogates, stk_reason *reason,
                          stk_error *err) STK_MUST_USE;

/* Turn each escape of half a surrogate pair into that of U+FFFD; the length stays. */
void stk_json_mend(char *text, size_t size_bytes);

/* The text up to max_bytes, not cut inside a character: for messages. */
stk_str stk_utf8_cut(stk_str text, size_t max_bytes);

/* Bytes of the well-formed UTF-8 character at text, 0 if there is none. */
size_t stk_utf8_size(const uint8_t *text, size_t size_bytes);

#endif
