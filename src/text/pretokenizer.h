/* pretokenizer.h - the pieces that merges may not cross (spec-qwen3vl.md sections 4.3 and 4.6).
 *
 * The two patterns of the published vocabularies, by hand.  They differ in one thing: the older takes combining marks
 * for other signs, the newer (Qwen3.5) for letters. */
#ifndef STK_TEXT_PRETOKENIZER_H
#define STK_TEXT_PRETOKENIZER_H

#include "base/bytes.h"

#define STK_PATTERN_QWEN2                                                                                  \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|"    \
    "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define STK_PATTERN_QWEN35                                                                                 \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}|"                           \
    " ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

/* The end of the piece that begins at byte at < size of text, valid UTF-8.  Every character belongs to a piece. */
size_t stk_piece_end(stk_str text, size_t at, bool marks_are_letters);

#endif
