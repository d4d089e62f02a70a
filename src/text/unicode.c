/* unicode.c - UTF-8, and NFC with the reference's account of where each character comes from.
 *
 * NFC touches only stretches round unstable characters: such a stretch begins at the stable character before them and
 * ends before the next stable one, since nothing composes or moves across a stable character.  All else is copied.
 *
 *     stretch ─► decompose ─► sort marks by class ─► compose ─► write, with origins
 *
 * Each character carries a `change`, the number of characters that it is more than the original has: 0 one for one,
 * 1 came out of a decomposition, -n swallowed n followers.  Sums of it place every character in the original. */
#include "text/unicode.h"

enum {
    HANGUL_FIRST = 0xAC00,
    HANGUL_COUNT = 11172,
    HANGUL_L = 0x1100,
    HANGUL_V = 0x1161,
    HANGUL_T = 0x11A7, /* one before the first: index 0 is "none" */
    HANGUL_L_COUNT = 19,
    HANGUL_V_COUNT = 21,
    HANGUL_T_COUNT = 28,
    HANGUL_N_COUNT = HANGUL_V_COUNT * HANGUL_T_COUNT,

    /* NFC of valid UTF-8 grows at most threefold (U+1D160: 4 bytes, 12). */
    GROWTH = 3,
};

/* A character of a stretch. */
typedef struct item {
    uint32_t code;
    int16_t combining_class;
    int16_t change; /* a character composes with at most three others */
} item;

size_t stk_utf8_valid_bytes(stk_str text)
{
    const uint8_t *const s = (const uint8_t *)text.data;
    const size_t size = text.size_bytes;
    size_t at = 0;
    while (at < size) {
        if (size - at >= 8) {
            uint64_t eight;
            memcpy(&eight, s + at, 8);
            if ((eight & 0x8080808080808080u) == 0) {
                at += 8;
                continue;
            }
        }
        const uint8_t a = s[at];
        if (a < 0x80) {
            at++;
            continue;
        }
        const size_t need = a < 0xC2 ? 0 : a < 0xE0 ? 2 : a < 0xF0 ? 3 : a < 0xF5 ? 4 : 0;
        if (need == 0 || size - at < need) return at;
        /* The second byte rules out overlong forms, surrogates, and what is beyond U+10FFFF. */
        const uint8_t low = a == 0xE0 ? 0xA0 : a == 0xF0 ? 0x90 : 0x80;
        const uint8_t high = a == 0xED ? 0x9F : a == 0xF4 ? 0x8F : 0xBF;
        if (s[at + 1] < low || s[at + 1] > high) return at;
        for (size_t i = 2; i < need; i++)
            if (!stk_utf8_continues(s[at + i])) return at;
        at += need;
    }
    return at;
}

bool stk_nfc_is_stable(stk_str text)
{
    const uint8_t *at = (const uint8_t *)text.data;
    const uint8_t *const end = at + text.size_bytes;
    while (at < end) {
        /* Everything below U+0300 (byte CC) is stable. */
        if (*at < 0xCC) {
            at++;
            continue;
        }
        uint32_t size_bytes;
        if (stk_unicode_kind_of(stk_utf8_read(at, &size_bytes)) & STK_KIND_UNSTABLE) return false;
        at += size_bytes;
    }
    return true;
}

void stk_normal_init(stk_normal *normal, size_t max_text_bytes)
{
    stk_buffer_init(&normal->text, STK_TAG_TEXT, max_text_bytes * GROWTH);
    stk_buffer_init(&normal->begin, STK_TAG_TEXT, max_text_bytes * GROWTH * sizeof(uint32_t));
    stk_buffer_init(&normal->end, STK_TAG_TEXT, max_text_bytes * GROWTH * sizeof(uint32_t));
    /* A stretch and its copy: two bytes decompose into at most three characters. */
    stk_buffer_init(&normal->items, STK_TAG_TEXT, (max_text_bytes * 3 + 16) * sizeof(item));
}

void stk_normal_deinit(stk_normal *normal)
{
    stk_buffer_deinit(&normal->text);
    stk_buffer_deinit(&normal->begin);
    stk_buffer_deinit(&normal->end);
    stk_buffer_deinit(&normal->items);
}

/* --- data of characters --- */

static uint8_t combining_class(uint32_t code)
{
    if (!(stk_unicode_kind_of(code) & STK_KIND_UNSTABLE)) return 0;
    size_t low = 0, high = STK_UNICODE_COMBINING_COUNT;
    while (low < high) {
        const size_t middle = (low + high) / 2;
        if (stk_unicode_combining[middle].last < code) low = middle + 1;
        else high = middle;
    }
    if (low == STK_UNICODE_COMBINING_COUNT || stk_unicode_combining[low].first > code) return 0;
    return stk_unicode_combining[low].combining_class;
}

/* The decomposition of a code point that has the flag. */
static const stk_unicode_decomposition *decomposition(uint32_t code)
{
    size_t low = 0, high = STK_UNICODE_DECOMPOSITION_COUNT - 1;
    while (low < high) {
        const size_t middle = (low + high) / 2;
        if (stk_unicode_decompositions[middle].code < code) low = middle + 1;
        else high = middle;
    }
    return &stk_unicode_decompositions[low];
}

/* What two characters compose to, 0 for nothing. */
static uint32_t compose(uint32_t first, uint32_t second)
{
    if (first - HANGUL_L < HANGUL_L_COUNT && second - HANGUL_V < HANGUL_V_COUNT)
        return HANGUL_FIRST + (first - HANGUL_L) * HANGUL_N_COUNT + (second - HANGUL_V) * HANGUL_T_COUNT;
    if (first - HANGUL_FIRST < HANGUL_COUNT && (first - HANGUL_FIRST) % HANGUL_T_COUNT == 0 &&
        second > HANGUL_T && second - HANGUL_T < HANGUL_T_COUNT)
        return first + (second - HANGUL_T);
    if (!(stk_unicode_kind_of(second) & STK_KIND_UNSTABLE)) return 0;
    size_t low = 0, high = STK_UNICODE_PAIR_COUNT;
    while (low < high) {
        const size_t middle = (low + high) / 2;
        const stk_unicode_pair *const pair = &stk_unicode_pairs[middle];
        if (pair->first < first || (pair->first == first && pair->second < second)) low = middle + 1;
        else high = middle;
    }
    if (low == STK_UNICODE_PAIR_COUNT) return 0;
    const stk_unicode_pair *const pair = &stk_unicode_pairs[low];
    return pair->first == first && pair->second == second ? pair->composed : 0;
}

/* --- a stretch --- */

static size_t add_item(item *items, size_t count, uint32_t code, bool first)
{
    items[count] = (item){.code = code, .combining_class = combining_class(code), .change = first ? 0 : 1};
    return count + 1;
}

/* Decompose one character into items[count ..]; gives the new count, at most 4 more. */
static size_t decompose(item *items, size_t count, uint32_t code)
{
    if (code - HANGUL_FIRST < HANGUL_COUNT) {
        const uint32_t index = code - HANGUL_FIRST;
        count = add_item(items, count, HANGUL_L + index / HANGUL_N_COUNT, true);
        count = add_item(items, count, HANGUL_V + index % HANGUL_N_COUNT / HANGUL_T_COUNT, false);
        if (index % HANGUL_T_COUNT) count = add_item(items, count, HANGUL_T + index % HANGUL_T_COUNT, false);
        return count;
    }
    if (!(stk_unicode_kind_of(code) & STK_KIND_DECOMPOSES)) return add_item(items, count, code, true);
    const stk_unicode_decomposition *const d = decomposition(code);
    for (uint32_t i = 0; i < d->part_count; i++)
        count = add_item(items, count, stk_unicode_parts[d->first_part + i], i == 0);
    return count;
}

/* Sort a run of marks by class, equal ones as they stand; room for count items in spare. */
static void sort_run(item *run, size_t count, item *spare)
{
    if (count < 16) {
        for (size_t i = 1; i < count; i++) {
            const item moved = run[i];
            size_t to = i;
            for (; to > 0 && run[to - 1].combining_class > moved.combining_class; to--) run[to] = run[to - 1];
            run[to] = moved;
        }
        return;
    }
    /* By counting, so that a long run of marks costs no more than its length. */
    size_t start[257] = {0};
    for (size_t i = 0; i < count; i++) start[run[i].combining_class + 1]++;
    for (size_t i = 1; i < 257; i++) start[i] += start[i - 1];
    for (size_t i = 0; i < count; i++) spare[start[run[i].combining_class]++] = run[i];
    memcpy(run, spare, count * sizeof *run);
}

static void sort_marks(item *items, size_t count, item *spare)
{
    for (size_t first = 0; first < count; first++) {
        if (items[first].combining_class == 0) continue;
        size_t end = first + 1;
        while (end < count && items[end].combining_class) end++;
        sort_run(items + first, end - first, spare);
        first = end - 1;
    }
}

/* Compose in place; gives the new count. */
static size_t compose_items(item *items, size_t count)
{
    size_t kept = 0, starter = SIZE_MAX; /* no starter yet */
    int last_class = -1;                 /* of the mark between the starter and here, -1: there is none */
    for (size_t i = 0; i < count; i++) {
        const item one = items[i];
        if (starter != SIZE_MAX && last_class < one.combining_class) {
            const uint32_t composed = compose(items[starter].code, one.code);
            if (composed) {
                items[starter].code = composed;
                items[starter].change = (int16_t)(items[starter].change + one.change - 1);
                continue;
            }
        }
        if (one.combining_class == 0) {
            starter = kept;
            last_class = -1;
        } else if (starter != SIZE_MAX) {
            last_class = one.combining_class;
        }
        items[kept++] = one;
    }
    return kept;
}

static size_t write_utf8(uint8_t out[4], uint32_t code)
{
    if (code < 0x80) {
        out[0] = (uint8_t)code;
        return 1;
    }
    if (code < 0x800) {
        out[0] = (uint8_t)(0xC0 | code >> 6);
        out[1] = (uint8_t)(0x80 | (code & 0x3F));
        return 2;
    }
    if (code < 0x10000) {
        out[0] = (uint8_t)(0xE0 | code >> 12);
        out[1] = (uint8_t)(0x80 | (code >> 6 & 0x3F));
        out[2] = (uint8_t)(0x80 | (code & 0x3F));
        return 3;
    }
    out[0] = (uint8_t)(0xF0 | code >> 18);
    out[1] = (uint8_t)(0x80 | (code >> 12 & 0x3F));
    out[2] = (uint8_t)(0x80 | (code >> 6 & 0x3F));
    out[3] = (uint8_t)(0x80 | (code & 0x3F));
    return 4;
}

static stk_status reserve(stk_normal *normal, size_t size_bytes, stk_error *err)
{
    STK_TRY(stk_buffer_reserve(&normal->text, size_bytes, err));
    STK_TRY(stk_buffer_reserve(&normal->begin, size_bytes * sizeof(uint32_t), err));
    return stk_buffer_reserve(&normal->end, size_bytes * sizeof(uint32_t), err);
}

/* Append a character, reserved before, that comes from the original's bytes begin to end. */
static void put(stk_normal *normal, const uint8_t *bytes, size_t size_bytes, size_t begin, size_t end)
{
    uint32_t *const begins = (uint32_t *)(void *)(normal->begin.data + normal->begin.size_bytes);
    uint32_t *const ends = (uint32_t *)(void *)(normal->end.data + normal->end.size_bytes);
    for (size_t i = 0; i < size_bytes; i++) {
        normal->text.data[normal->text.size_bytes + i] = bytes[i];
        begins[i] = (uint32_t)begin;
        ends[i] = (uint32_t)end;
    }
    normal->text.size_bytes += size_bytes;
    normal->begin.size_bytes += size_bytes * sizeof(uint32_t);
    normal->end.size_bytes += size_bytes * sizeof(uint32_t);
}

/* Write the items of a stretch; from is where it begins in the original s. */
static stk_status put_items(stk_normal *normal, const item *items, size_t count, const uint8_t *s, size_t from,
                            stk_error *err)
{
    size_t at = from;
    for (size_t i = 0; i < count; i++) {
        size_t begin = at, end = at;
        if (items[i].change > 0) {
            /* Comes out of the character before; at the very start there is none. */
            while (begin > 0 && stk_utf8_continues(s[--begin])) continue;
        } else {
            for (int32_t step = items[i].change; step <= 0; step++) {
                uint32_t size_bytes;
                stk_utf8_read(s + at, &size_bytes);
                if (step == items[i].change) end = at + size_bytes;
                at += size_bytes;
            }
        }
        uint8_t bytes[4];
        const size_t size_bytes = write_utf8(bytes, items[i].code);
        STK_TRY(reserve(normal, size_bytes, err));
        put(normal, bytes, size_bytes, begin, end);
    }
    return STK_OK;
}

static stk_status put_stretch(stk_normal *normal, const uint8_t *s, size_t from, size_t to, stk_error *err)
{
    stk_buffer_clear(&normal->items);
    size_t count = 0;
    for (size_t at = from; at < to;) {
        uint32_t size_bytes;
        const uint32_t code = stk_utf8_read(s + at, &size_bytes);
        normal->items.size_bytes = count * sizeof(item);
        STK_TRY(stk_buffer_reserve(&normal->items, 4 * sizeof(item), err));
        count = decompose((item *)(void *)normal->items.data, count, code);
        at += size_bytes;
    }
    normal->items.size_bytes = count * sizeof(item);
    STK_TRY(stk_buffer_reserve(&normal->items, count * sizeof(item), err)); /* the spare */
    item *const items = (item *)(void *)normal->items.data;
    sort_marks(items, count, items + count);
    count = compose_items(items, count);
    return put_items(normal, items, count, s, from, err);
}

/* Copy characters that stay as they are. */
static stk_status put_stable(stk_normal *normal, const uint8_t *s, size_t from, size_t to, stk_error *err)
{
    STK_TRY(reserve(normal, to - from, err));
    for (size_t at = from; at < to;) {
        uint32_t size_bytes;
        stk_utf8_read(s + at, &size_bytes);
        put(normal, s + at, size_bytes, at, at + size_bytes);
        at += size_bytes;
    }
    return STK_OK;
}

stk_status stk_normal_make(stk_normal *normal, stk_str text, stk_error *err)
{
    stk_buffer_clear(&normal->text);
    stk_buffer_clear(&normal->begin);
    stk_buffer_clear(&normal->end);
    const uint8_t *const s = (const uint8_t *)text.data;
    size_t done = 0, last_stable = 0; /* where the last stable character begins, or where the last stretch ended */
    for (size_t at = 0; at < text.size_bytes;) {
        uint32_t size_bytes;
        if (!(stk_unicode_kind_of(stk_utf8_read(s + at, &size_bytes)) & STK_KIND_UNSTABLE)) {
            last_stable = at;
            at += size_bytes;
            continue;
        }
        size_t end = at + size_bytes;
        while (end < text.size_bytes && stk_unicode_kind_of(stk_utf8_read(s + end, &size_bytes)) & STK_KIND_UNSTABLE)
            end += size_bytes;
        STK_TRY(put_stable(normal, s, done, last_stable, err));
        STK_TRY(put_stretch(normal, s, last_stable, end, err));
        done = last_stable = at = end;
    }
    return put_stable(normal, s, done, text.size_bytes, err);
}
