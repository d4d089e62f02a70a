/* pretokenizer.c - the pre-tokeniser's pattern as a function of the next characters.
 *
 * The pattern's alternatives are tried in its order; each is decided by the kinds of a few characters, so there is no
 * backtracking: a text is read once, but for runs of white space, which are read twice. */
#include "text/pretokenizer.h"

#include "text/unicode.h"

/* A text and the classes of the pattern at hand, as sets of kinds. */
typedef struct scan {
    const uint8_t *end;
    uint32_t letters; /* [\p{L}] or [\p{L}\p{M}] */
    uint32_t others;  /* [^\s\p{L}\p{N}] or [^\s\p{L}\p{M}\p{N}] */
} scan;

static inline uint32_t kind_at(const uint8_t *at, uint32_t *size_bytes)
{
    return stk_unicode_kind_of(stk_utf8_read(at, size_bytes)) & STK_KIND_MASK;
}

static inline bool is_at(const scan *s, const uint8_t *at, uint32_t kinds)
{
    uint32_t size_bytes;
    return at < s->end && kinds >> kind_at(at, &size_bytes) & 1;
}

static inline const uint8_t *run_end(const scan *s, const uint8_t *at, uint32_t kinds)
{
    uint32_t size_bytes;
    while (at < s->end && kinds >> kind_at(at, &size_bytes) & 1) at += size_bytes;
    return at;
}

static inline bool is_newline(uint8_t byte)
{
    return byte == '\r' || byte == '\n';
}

/* (?i:'s|'t|'re|'ve|'m|'ll|'d) behind the apostrophe at `at`: its bytes, 0 if there is none. */
static size_t contraction_bytes(const scan *s, const uint8_t *at)
{
    const size_t left = (size_t)(s->end - at);
    if (left < 2) return 0;
    const uint8_t a = at[1] | 0x20, b = left > 2 ? at[2] | 0x20 : 0;
    if (a == 's' || a == 't' || a == 'm' || a == 'd') return 2;
    if ((a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l')) return 3;
    /* U+017F, the long s, is an s to a regex engine that ignores case. */
    if (at[1] == 0xC5 && left > 2 && at[2] == 0xBF) return 3;
    return 0;
}

/* \s*[\r\n]+|\s+(?!\S)|\s+ at white space. */
static const uint8_t *space_end(const scan *s, const uint8_t *at)
{
    const uint8_t *last = at, *after_newline = NULL, *stop = at;
    uint32_t size_bytes;
    while (stop < s->end && kind_at(stop, &size_bytes) == STK_KIND_SPACE) {
        last = stop;
        stop += size_bytes;
        if (is_newline(*last)) after_newline = stop;
    }
    if (after_newline) return after_newline;
    /* The last blank stays with the word behind it, unless it is the only one. */
    return stop == s->end || last == at ? stop : last;
}

size_t stk_piece_end(stk_str text, size_t at_bytes, bool marks_are_letters)
{
    const uint8_t *const start = (const uint8_t *)text.data, *const at = start + at_bytes;
    const uint32_t marks = 1u << STK_KIND_MARK;
    const scan s = {
        .end = start + text.size_bytes,
        .letters = 1u << STK_KIND_LETTER | (marks_are_letters ? marks : 0),
        .others = 1u << STK_KIND_OTHER | (marks_are_letters ? 0 : marks),
    };
    if (*at == '\'') {
        const size_t size_bytes = contraction_bytes(&s, at);
        if (size_bytes) return at_bytes + size_bytes;
    }
    uint32_t size_bytes;
    const uint32_t kind = kind_at(at, &size_bytes);
    const uint8_t *const next = at + size_bytes;

    if (s.letters >> kind & 1) return (size_t)(run_end(&s, next, s.letters) - start);
    if (kind == STK_KIND_NUMBER) return at_bytes + size_bytes;
    if (!is_newline(*at) && is_at(&s, next, s.letters)) return (size_t)(run_end(&s, next, s.letters) - start);
    if (kind != STK_KIND_SPACE || (*at == ' ' && is_at(&s, next, s.others))) {
        const uint8_t *stop = run_end(&s, next, s.others);
        while (stop < s.end && is_newline(*stop)) stop++;
        return (size_t)(stop - start);
    }
    return (size_t)(space_end(&s, at) - start);
}
