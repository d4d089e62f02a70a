/* unicode.h - what the tokeniser needs of Unicode: UTF-8, the classes of the pre-tokeniser, and NFC.
 *
 * The reference mixes two ages: its regex engine has the letters, numbers and marks of Unicode 16.0, its normaliser
 * has the NFC of Unicode 9.0 (spec-qwen3vl.md section 4.3).  A current library differs from it, so the tables are our
 * own: tools/make-unicode-tables. */
#ifndef STK_TEXT_UNICODE_H
#define STK_TEXT_UNICODE_H

#include "base/memory.h"
#include "text/unicode_tables.h"

/* The kind of a code point: one of the first five, and flags. */
enum {
    STK_KIND_OTHER = 0,
    STK_KIND_LETTER = 1, /* \p{L} */
    STK_KIND_NUMBER = 2, /* \p{N} */
    STK_KIND_MARK = 3,   /* \p{M} */
    STK_KIND_SPACE = 4,  /* \s: White_Space */
    STK_KIND_MASK = 7,
    STK_KIND_UNSTABLE = 8,    /* NFC may change it, or what stands before it because of it */
    STK_KIND_DECOMPOSES = 16, /* has a canonical decomposition; not set for Hangul syllables */
};

static inline uint8_t stk_unicode_kind_of(uint32_t code)
{
    return stk_unicode_kind[((uint32_t)stk_unicode_block[code >> STK_UNICODE_SHIFT] << STK_UNICODE_SHIFT) +
                            (code & ((1u << STK_UNICODE_SHIFT) - 1))];
}

/* The code point at text, which is valid UTF-8; *size_bytes is its length. */
static inline uint32_t stk_utf8_read(const uint8_t *text, uint32_t *size_bytes)
{
    if (text[0] < 0x80) {
        *size_bytes = 1;
        return text[0];
    }
    if (text[0] < 0xE0) {
        *size_bytes = 2;
        return (text[0] & 0x1Fu) << 6 | (text[1] & 0x3Fu);
    }
    if (text[0] < 0xF0) {
        *size_bytes = 3;
        return (text[0] & 0x0Fu) << 12 | (text[1] & 0x3Fu) << 6 | (text[2] & 0x3Fu);
    }
    *size_bytes = 4;
    return (text[0] & 0x07u) << 18 | (text[1] & 0x3Fu) << 12 | (text[2] & 0x3Fu) << 6 | (text[3] & 0x3Fu);
}

/* Does a byte continue a character? */
static inline bool stk_utf8_continues(uint8_t byte)
{
    return (byte & 0xC0) == 0x80;
}

/* The bytes of text, from its start, that are valid UTF-8: all of them, or the place of the first fault. */
size_t stk_utf8_valid_bytes(stk_str text);

/* Is no character of a valid text unstable?  Then the text is its own NFC. */
bool stk_nfc_is_stable(stk_str text);

/* A text in NFC, and for each of its bytes the bytes of the original, begin to end, that the reference's offsets name:
 * one whole character, for a composed one the first that went into it. */
typedef struct stk_normal {
    stk_buffer text;
    stk_buffer begin, end; /* uint32_t each, one a byte of text */
    stk_buffer items;      /* a decomposed stretch while it is worked on */
} stk_normal;

/* max_text_bytes < 2^30: of the texts to come. */
void stk_normal_init(stk_normal *normal, size_t max_text_bytes);
void stk_normal_deinit(stk_normal *normal);

/* normal becomes the NFC of text, valid UTF-8 of at most the maximum.  STK_OK or STK_ERR_NOMEM. */
stk_status stk_normal_make(stk_normal *normal, stk_str text, stk_error *err) STK_MUST_USE;

#endif
