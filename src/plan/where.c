/* where.c - a parser by recursive descent, and a machine whose stack is the bits of one number. */
#include "plan/where.h"

#include <string.h>

/* Each level of parentheses keeps at most two values waiting, one for `or` and one for `and`. */
_Static_assert((STK_WHERE_NESTING + 1) * 2 + 1 <= 64, "the stack is a word");

static const char *const names[] = {
#define WHERE_TEXT(name, text) text,
    STK_WHERE_NAME_MAP(WHERE_TEXT)
#undef WHERE_TEXT
};

#define NAMES "images, tokens, text_tokens, visual_tokens, supervised, width, height, line"

typedef struct parser {
    const char *text;
    size_t at; /* behind the token */
    stk_where *where;
    int depth;
    stk_error *err;

    /* The token that comes next: a word, a number, a sign, or nothing (size 0) at the end. */
    size_t begin, size_bytes;
} parser;

/* --- tokens --- */

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static void next_token(parser *p)
{
    const char *const text = p->text;
    while (is_blank(text[p->at])) p->at++;
    p->begin = p->at;
    const char c = text[p->at];
    if (is_letter(c) || is_digit(c)) {
        while (is_letter(text[p->at]) || is_digit(text[p->at])) p->at++;
    } else if (c && strchr("<>=!&|", c)) {
        while (text[p->at] && strchr("<>=!&|", text[p->at])) p->at++;
    } else if (c) {
        do p->at++; /* a character of several bytes is one token */
        while ((text[p->at] & 0xC0) == 0x80);
    }
    p->size_bytes = p->at - p->begin;
}

static bool is_token(const parser *p, const char *text)
{
    return strlen(text) == p->size_bytes && memcmp(p->text + p->begin, text, p->size_bytes) == 0;
}

static stk_status refuse(const parser *p, const char *what)
{
    if (p->size_bytes == 0) return stk_fail(p->err, STK_ERR_OPTION, "column %zu: the expression ends, and %s", p->begin + 1, what);
    return stk_fail(p->err, STK_ERR_OPTION, "column %zu: at \"%.*s\": %s", p->begin + 1,
                    (int)(p->size_bytes < 40 ? p->size_bytes : 40), p->text + p->begin, what);
}

/* --- grammar --- */

static stk_status emit(parser *p, stk_where_op op)
{
    if (p->where->count == STK_WHERE_OPS)
        return stk_fail(p->err, STK_ERR_OPTION, "column %zu: over %d operations: make it shorter", p->begin + 1, STK_WHERE_OPS);
    p->where->op[p->where->count++] = op;
    return STK_OK;
}

static stk_status parse_number(parser *p, uint64_t *number)
{
    uint64_t value = 0;
    for (size_t i = 0; i < p->size_bytes; i++) {
        const char c = p->text[p->begin + i];
        if (!is_digit(c)) return refuse(p, "a whole number has digits only, without a unit");
        if (__builtin_mul_overflow(value, 10u, &value) || __builtin_add_overflow(value, (uint64_t)(c - '0'), &value) || value > INT64_MAX)
            return refuse(p, "the number is too large");
    }
    *number = value;
    next_token(p);
    return STK_OK;
}

static stk_status parse_value(parser *p, uint8_t *name, uint64_t *number)
{
    static const char *const keywords[] = {"and", "or", "not"};
    *number = 0;
    *name = STK_WHERE_NUMBER;
    const char first = p->text[p->begin];
    if (p->size_bytes && is_digit(first)) return parse_number(p, number);
    for (uint8_t i = 0; i < STK_WHERE_NUMBER; i++) {
        if (!is_token(p, names[i])) continue;
        *name = i;
        next_token(p);
        return STK_OK;
    }
    for (size_t i = 0; i < 3; i++)
        if (is_token(p, keywords[i])) return refuse(p, "a name or a number should stand here");
    if (p->size_bytes && is_letter(first)) return refuse(p, "no such name: " NAMES);
    return refuse(p, first == '-' ? "no fact is negative" : "a name or a number should stand here");
}

static int compare_sign(const parser *p)
{
    static const char *const signs[] = {"<", "<=", ">", ">=", "==", "!="};
    for (int i = 0; i < 6; i++)
        if (is_token(p, signs[i])) return i;
    return -1;
}

static stk_status parse_comparison(parser *p)
{
    stk_where_op op = {.kind = STK_WHERE_COMPARE};
    STK_TRY(parse_value(p, &op.left, &op.left_number));
    const int compare = compare_sign(p);
    if (compare < 0) return refuse(p, is_token(p, "=") ? "equality is written ==" : "one of < <= > >= == != should stand here");
    op.compare = (uint8_t)compare;
    next_token(p);
    STK_TRY(parse_value(p, &op.right, &op.right_number));
    if (compare_sign(p) >= 0) return refuse(p, "two comparisons are joined by `and`");
    return emit(p, op);
}

static stk_status parse_or(parser *p);

static stk_status parse_not(parser *p)
{
    const bool negated = is_token(p, "not"), opens = is_token(p, "(");
    if (is_token(p, "!")) return refuse(p, "negation is written `not`");
    if (!negated && !opens) return parse_comparison(p);
    if (++p->depth > STK_WHERE_NESTING) return refuse(p, "it is nested too deep");
    next_token(p);
    STK_TRY(negated ? parse_not(p) : parse_or(p));
    p->depth--;
    if (negated) return emit(p, (stk_where_op){.kind = STK_WHERE_NOT});
    if (!is_token(p, ")")) return refuse(p, "a parenthesis is not closed: `and`, `or` or `)` should stand here");
    next_token(p);
    return STK_OK;
}

static stk_status parse_and(parser *p)
{
    STK_TRY(parse_not(p));
    while (is_token(p, "and")) {
        next_token(p);
        STK_TRY(parse_not(p));
        STK_TRY(emit(p, (stk_where_op){.kind = STK_WHERE_AND}));
    }
    return STK_OK;
}

static stk_status parse_or(parser *p)
{
    STK_TRY(parse_and(p));
    while (is_token(p, "or")) {
        next_token(p);
        STK_TRY(parse_and(p));
        STK_TRY(emit(p, (stk_where_op){.kind = STK_WHERE_OR}));
    }
    return STK_OK;
}

stk_status stk_where_parse(stk_where *where, const char *text, stk_error *err)
{
    memset(where, 0, sizeof *where);
    if (strnlen(text, STK_WHERE_TEXT_BYTES + 1) > STK_WHERE_TEXT_BYTES)
        return stk_fail(err, STK_ERR_OPTION, "an expression of over %d bytes: make it shorter", STK_WHERE_TEXT_BYTES);
    parser p = {.text = text, .where = where, .err = err};
    next_token(&p);
    STK_TRY(parse_or(&p));
    if (p.size_bytes == 0) return STK_OK;
    if (is_token(&p, "&&") || is_token(&p, "&")) return refuse(&p, "it is written `and`");
    if (is_token(&p, "||") || is_token(&p, "|")) return refuse(&p, "it is written `or`");
    return refuse(&p, "`and`, `or` or the end should stand here");
}

/* --- asking --- */

static bool compare_holds(const stk_where_op *op, const uint64_t *values)
{
    const uint64_t left = op->left == STK_WHERE_NUMBER ? op->left_number : values[op->left];
    const uint64_t right = op->right == STK_WHERE_NUMBER ? op->right_number : values[op->right];
    switch ((stk_where_compare)op->compare) {
    case STK_WHERE_LESS: return left < right;
    case STK_WHERE_LESS_EQUAL: return left <= right;
    case STK_WHERE_MORE: return left > right;
    case STK_WHERE_MORE_EQUAL: return left >= right;
    case STK_WHERE_EQUAL: return left == right;
    case STK_WHERE_NOT_EQUAL: break;
    }
    return left != right;
}

bool stk_where_holds(const stk_where *where, const uint64_t values[STK_WHERE_NUMBER])
{
    uint64_t stack = 0; /* bit 0 is its top */
    for (uint32_t i = 0; i < where->count; i++) {
        const stk_where_op *const op = &where->op[i];
        switch ((stk_where_kind)op->kind) {
        case STK_WHERE_COMPARE: stack = stack << 1 | compare_holds(op, values); break;
        case STK_WHERE_NOT: stack ^= 1; break;
        case STK_WHERE_AND: stack = stack >> 1 & (stack | ~(uint64_t)1); break;
        case STK_WHERE_OR: stack = stack >> 1 | (stack & 1); break;
        }
    }
    return stack & 1;
}

void stk_where_values(uint64_t values[STK_WHERE_NUMBER], const stk_set_facts *facts, uint64_t record_index,
                      const stk_record_size *size, const stk_pixel_rules *pixels)
{
    const stk_record_facts *const record = &facts->record[record_index];
    uint32_t width_px = 0, height_px = 0;
    for (uint32_t i = 0; i < record->media_count; i++) {
        const stk_media_facts *const media = &facts->media[record->first_media + i];
        const bool swaps = stk_media_orientation(media, pixels) >= 5;
        const uint32_t w = swaps ? media->height_px : media->width_px, h = swaps ? media->width_px : media->height_px;
        if (w > width_px) width_px = w;
        if (h > height_px) height_px = h;
    }
    values[STK_WHERE_IMAGES] = record->media_count;
    values[STK_WHERE_TOKENS] = size->token_count;
    values[STK_WHERE_TEXT_TOKENS] = size->token_count - size->visual_tokens;
    values[STK_WHERE_VISUAL_TOKENS] = size->visual_tokens;
    values[STK_WHERE_SUPERVISED] = size->supervised_count;
    values[STK_WHERE_WIDTH] = width_px;
    values[STK_WHERE_HEIGHT] = height_px;
    values[STK_WHERE_LINE] = record->line;
}

bool stk_selection_takes(stk_selection *selection, const stk_set_facts *facts, uint64_t record_index,
                         const stk_record_size *size, const stk_pixel_rules *pixels)
{
    if (selection->first && selection->taken == selection->first) return false;
    if (selection->where) {
        uint64_t values[STK_WHERE_NUMBER];
        stk_where_values(values, facts, record_index, size, pixels);
        if (!stk_where_holds(selection->where, values)) return false;
    }
    selection->taken++;
    return true;
}
