/* where.h - which usable records of a data set take part: an expression over facts, and a number of them.
 *
 *     images > 0 and tokens < 4096 and not (width > 4000 or height > 4000)
 *
 *     or         = and { "or" and }
 *     and        = not { "and" not }
 *     not        = "not" not | "(" or ")" | comparison
 *     comparison = value ( "<" | "<=" | ">" | ">=" | "==" | "!=" ) value
 *     value      = a name of STK_WHERE_NAME_MAP | a whole number
 *
 * It is parsed once, to a short program; asking it allocates nothing. */
#ifndef STK_PLAN_WHERE_H
#define STK_PLAN_WHERE_H

#include "schema/derive.h"

#define STK_WHERE_NAME_MAP(X)                                                                                \
    X(STK_WHERE_IMAGES, "images")               /* of the record */                                          \
    X(STK_WHERE_TOKENS, "tokens")               /* of the sample, visual ones included */                    \
    X(STK_WHERE_TEXT_TOKENS, "text_tokens")     /* without the visual ones */                                \
    X(STK_WHERE_VISUAL_TOKENS, "visual_tokens") /* under the pixel limits of the data set */                 \
    X(STK_WHERE_SUPERVISED, "supervised")       /* tokens that are trained */                                \
    X(STK_WHERE_WIDTH, "width")                 /* pixels of the widest image, upright, before any resize */ \
    X(STK_WHERE_HEIGHT, "height")               /* of the highest */                                         \
    X(STK_WHERE_LINE, "line")                   /* of the record in its file, from 1 */

typedef enum stk_where_name {
#define STK_WHERE_ENUM(name, text) name,
    STK_WHERE_NAME_MAP(STK_WHERE_ENUM)
#undef STK_WHERE_ENUM
    STK_WHERE_NUMBER /* none of them: a number that stands in the text; also their count */
} stk_where_name;

enum { STK_WHERE_TEXT_BYTES = 4096, STK_WHERE_OPS = 128, STK_WHERE_NESTING = 16 };

typedef enum stk_where_kind { STK_WHERE_COMPARE, STK_WHERE_NOT, STK_WHERE_AND, STK_WHERE_OR } stk_where_kind;
typedef enum stk_where_compare {
    STK_WHERE_LESS,
    STK_WHERE_LESS_EQUAL,
    STK_WHERE_MORE,
    STK_WHERE_MORE_EQUAL,
    STK_WHERE_EQUAL,
    STK_WHERE_NOT_EQUAL
} stk_where_compare;

/* One operation.  Without padding: the bytes of a program are part of the fingerprint. */
typedef struct stk_where_op {
    uint8_t kind;             /* stk_where_kind */
    uint8_t compare;          /* stk_where_compare */
    uint8_t left, right;      /* stk_where_name */
    uint32_t unused;
    uint64_t left_number, right_number; /* where left or right is STK_WHERE_NUMBER */
} stk_where_op;
_Static_assert(sizeof(stk_where_op) == 24, "no padding");

/* Operands before their operator. */
typedef struct stk_where {
    uint32_t count;
    stk_where_op op[STK_WHERE_OPS];
} stk_where;

/* Failure: STK_ERR_OPTION, with the column (bytes, from 1) and what should stand there. */
stk_status stk_where_parse(stk_where *where, const char *text, stk_error *err) STK_MUST_USE;

/* Whether it holds of these values, one a name. */
bool stk_where_holds(const stk_where *where, const uint64_t values[STK_WHERE_NUMBER]);

/* The values of a record whose size has been derived. */
void stk_where_values(uint64_t values[STK_WHERE_NUMBER], const stk_set_facts *facts, uint64_t record_index,
                      const stk_record_size *size, const stk_pixel_rules *pixels);

/* `where` and `first` together, over the records of a set in their order. */
typedef struct stk_selection {
    const stk_where *where; /* NULL: every record */
    uint64_t first;         /* at most so many; 0: all */
    uint64_t taken;         /* so far */
} stk_selection;

/* Whether the next usable record takes part; counts it when it does. */
bool stk_selection_takes(stk_selection *selection, const stk_set_facts *facts, uint64_t record_index,
                         const stk_record_size *size, const stk_pixel_rules *pixels);

#endif
