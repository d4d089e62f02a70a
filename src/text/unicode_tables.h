/* unicode_tables.h - the tables of unicode_tables.c, which tools/make-unicode-tables writes; unicode.h uses them. */
#ifndef STK_TEXT_UNICODE_TABLES_H
#define STK_TEXT_UNICODE_TABLES_H

#include <stdint.h>

#define STK_UNICODE_SHIFT 7
enum {
    STK_UNICODE_BLOCK_COUNT = 0x110000 >> STK_UNICODE_SHIFT,
    STK_UNICODE_KIND_COUNT = 29696,
    STK_UNICODE_COMBINING_COUNT = 333,
    STK_UNICODE_DECOMPOSITION_COUNT = 2060,
    STK_UNICODE_PART_COUNT = 3404,
    STK_UNICODE_PAIR_COUNT = 940,
};

typedef struct stk_unicode_range {
    uint32_t first, last;
    uint8_t combining_class; /* > 0 */
} stk_unicode_range;

typedef struct stk_unicode_decomposition {
    uint32_t code;
    uint16_t first_part; /* in stk_unicode_parts: the whole decomposition, in canonical order */
    uint16_t part_count; /* 1 to 4 */
} stk_unicode_decomposition;

typedef struct stk_unicode_pair {
    uint32_t first, second, composed;
} stk_unicode_pair;

/* Kind of a code point: stk_unicode_kind[block of code >> SHIFT, then the low bits]; equal blocks are stored once. */
extern const uint8_t stk_unicode_block[STK_UNICODE_BLOCK_COUNT];
extern const uint8_t stk_unicode_kind[STK_UNICODE_KIND_COUNT];

/* Rising; without the Hangul syllables, which are computed. */
extern const stk_unicode_range stk_unicode_combining[STK_UNICODE_COMBINING_COUNT];
extern const stk_unicode_decomposition stk_unicode_decompositions[STK_UNICODE_DECOMPOSITION_COUNT];
extern const uint32_t stk_unicode_parts[STK_UNICODE_PART_COUNT];
extern const stk_unicode_pair stk_unicode_pairs[STK_UNICODE_PAIR_COUNT];

#endif
