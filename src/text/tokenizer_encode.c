/* tokenizer_encode.c - text to ids.
 *
 *     text ─┬─ added token ───────────────────────────────────────────────► id
 *           └─ chunk ─► NFC, if it changes anything ─► piece ─┬─ cached ──► ids
 *                                                              └─ merged ─► ids
 *
 * Ordinary text repeats its words, so short pieces are remembered with their ids; a piece that is met again costs a
 * look-up and no merge.  The cache is the encoder's own: no locks, and nothing in it but what merging gave. */
#include "text/pretokenizer.h"
#include "text/tokenizer_model.h"

enum {
    CACHE_SLOTS = 1 << 15, /* of 64 bytes: 2 MiB */
    CACHED_BYTES = 26,
    CACHED_IDS = 8,
    MAX_TEXT_BYTES = 1 << 30,
};

typedef struct cached {
    uint32_t hash;
    uint8_t size_bytes; /* 0: empty */
    uint8_t count;
    uint8_t piece[CACHED_BYTES];
    int32_t id[CACHED_IDS];
} cached;

struct stk_piece_cache {
    cached slot[CACHE_SLOTS];
    uint8_t digest[16]; /* of the tokenizer that it belongs to */
};

/* A text without added tokens, in NFC. */
typedef struct chunk {
    stk_str text;
    const uint32_t *begin, *end; /* of each byte, in the original; NULL: the text is the original */
    size_t base_bytes;
} chunk;

stk_status stk_encoder_init(stk_encoder *encoder, uint64_t max_text_bytes, stk_error *err)
{
    *encoder = (stk_encoder){0};
    if (max_text_bytes >= MAX_TEXT_BYTES)
        return stk_fail(err, STK_ERR_OPTION, "limits.text_bytes must be below %d", MAX_TEXT_BYTES);
    /* NFC makes a text at most three times as long, and no token is empty. */
    const size_t max_tokens = (size_t)max_text_bytes * 3 + 1;
    stk_buffer_init(&encoder->ids, STK_TAG_TEXT, max_tokens * sizeof(int32_t));
    stk_buffer_init(&encoder->begins, STK_TAG_TEXT, max_tokens * sizeof(uint32_t));
    stk_buffer_init(&encoder->ends, STK_TAG_TEXT, max_tokens * sizeof(uint32_t));
    stk_normal_init(&encoder->normal, (size_t)max_text_bytes);
    stk_bpe_scratch_init(&encoder->bpe, max_tokens);
    encoder->cache = stk_alloc(STK_TAG_TEXT, sizeof *encoder->cache);
    return encoder->cache ? STK_OK : stk_fail(err, STK_ERR_NOMEM, "out of memory: the cache of a tokenizer");
}

void stk_encoder_deinit(stk_encoder *encoder)
{
    stk_buffer_deinit(&encoder->ids);
    stk_buffer_deinit(&encoder->begins);
    stk_buffer_deinit(&encoder->ends);
    stk_normal_deinit(&encoder->normal);
    stk_bpe_scratch_deinit(&encoder->bpe);
    stk_free(encoder->cache);
    *encoder = (stk_encoder){0};
}

void stk_encoder_clear(stk_encoder *encoder)
{
    encoder->count = 0;
    stk_buffer_clear(&encoder->ids);
    stk_buffer_clear(&encoder->begins);
    stk_buffer_clear(&encoder->ends);
}

/* --- ids out --- */

static stk_status reserve_ids(stk_encoder *e, size_t count, stk_error *err)
{
    STK_TRY(stk_buffer_reserve(&e->ids, count * sizeof(int32_t), err));
    STK_TRY(stk_buffer_reserve(&e->begins, count * sizeof(uint32_t), err));
    STK_TRY(stk_buffer_reserve(&e->ends, count * sizeof(uint32_t), err));
    e->id = (const int32_t *)(const void *)e->ids.data;
    e->begin = (const uint32_t *)(const void *)e->begins.data;
    e->end = (const uint32_t *)(const void *)e->ends.data;
    return STK_OK;
}

/* Append one id, reserved before. */
static inline void put_id(stk_encoder *e, int32_t id, size_t begin, size_t end)
{
    ((int32_t *)(void *)e->ids.data)[e->count] = id;
    ((uint32_t *)(void *)e->begins.data)[e->count] = (uint32_t)begin;
    ((uint32_t *)(void *)e->ends.data)[e->count] = (uint32_t)end;
    e->ids.size_bytes += sizeof(int32_t);
    e->begins.size_bytes += sizeof(uint32_t);
    e->ends.size_bytes += sizeof(uint32_t);
    e->count++;
}

/* Append the ids of the piece at `at` of a chunk, each with the whole characters that it touches. */
static stk_status put_piece(stk_encoder *e, const stk_tokenizer *t, const chunk *c, size_t at, const int32_t *id,
                            uint32_t count, stk_error *err)
{
    STK_TRY(reserve_ids(e, count, err));
    const uint8_t *const s = (const uint8_t *)c->text.data;
    for (uint32_t i = 0; i < count; i++) {
        size_t begin = at, end = at += t->entry[id[i]].size_bytes;
        if (c->begin) {
            begin = c->begin[begin];
            end = c->end[end - 1];
        } else {
            while (stk_utf8_continues(s[begin])) begin--;
            while (end < c->text.size_bytes && stk_utf8_continues(s[end])) end++;
        }
        put_id(e, id[i], c->base_bytes + begin, c->base_bytes + end);
    }
    return STK_OK;
}

/* --- pieces --- */

static uint32_t hash_piece(const uint8_t *piece, size_t size_bytes)
{
    uint64_t hash = size_bytes * 0x9E3779B97F4A7C15u, word = 0;
    size_t at = 0;
    for (; size_bytes - at >= 8; at += 8) {
        memcpy(&word, piece + at, 8);
        hash = (hash ^ word) * 0xD6E8FEB86659FD93u;
        hash ^= hash >> 32;
    }
    word = 0;
    for (size_t i = 0; at + i < size_bytes; i++) word |= (uint64_t)piece[at + i] << (8 * i);
    hash = (hash ^ word) * 0xD6E8FEB86659FD93u;
    return (uint32_t)(hash >> 32);
}

static stk_status encode_short(stk_encoder *e, const stk_tokenizer *t, const chunk *c, size_t at, size_t size_bytes,
                               stk_error *err)
{
    int32_t id[STK_BPE_SHORT_BYTES];
    const uint8_t *const piece = (const uint8_t *)c->text.data + at;
    if (size_bytes == 1) {
        id[0] = t->bpe.byte_id[*piece];
        return put_piece(e, t, c, at, id, 1, err);
    }
    if (size_bytes > CACHED_BYTES)
        return put_piece(e, t, c, at, id, stk_bpe_short(id, &t->bpe, piece, size_bytes), err);

    const uint32_t hash = hash_piece(piece, size_bytes);
    cached *const slot = &e->cache->slot[hash & (CACHE_SLOTS - 1)];
    if (slot->hash == hash && slot->size_bytes == size_bytes && memcmp(slot->piece, piece, size_bytes) == 0)
        return put_piece(e, t, c, at, slot->id, slot->count, err);
    const uint32_t count = stk_bpe_short(id, &t->bpe, piece, size_bytes);
    if (count <= CACHED_IDS) {
        slot->hash = hash;
        slot->size_bytes = (uint8_t)size_bytes;
        slot->count = (uint8_t)count;
        memcpy(slot->piece, piece, size_bytes);
        memcpy(slot->id, id, count * sizeof *id);
    }
    return put_piece(e, t, c, at, id, count, err);
}

static stk_status encode_piece(stk_encoder *e, const stk_tokenizer *t, const chunk *c, size_t at, size_t size_bytes,
                               stk_error *err)
{
    if (size_bytes <= STK_BPE_SHORT_BYTES) return encode_short(e, t, c, at, size_bytes, err);
    const int32_t *id;
    uint32_t count;
    STK_TRY(stk_bpe_long(&id, &count, &t->bpe, (const uint8_t *)c->text.data + at, size_bytes, &e->bpe, err));
    return put_piece(e, t, c, at, id, count, err);
}

/* --- chunks --- */

static stk_status encode_chunk(stk_encoder *e, const stk_tokenizer *t, stk_str text, size_t base_bytes, stk_error *err)
{
    chunk c = {.text = text, .base_bytes = base_bytes};
    if (t->nfc && !stk_nfc_is_stable(text)) {
        STK_TRY(stk_normal_make(&e->normal, text, err));
        c.text = (stk_str){(const char *)e->normal.text.data, e->normal.text.size_bytes};
        c.begin = (const uint32_t *)(const void *)e->normal.begin.data;
        c.end = (const uint32_t *)(const void *)e->normal.end.data;
    }
    for (size_t at = 0; at < c.text.size_bytes;) {
        const size_t end = stk_piece_end(c.text, at, t->marks_are_letters);
        STK_TRY(encode_piece(e, t, &c, at, end - at, err));
        at = end;
    }
    return STK_OK;
}

/* The first added token at or after *at, which becomes its place; NULL and the end if there is none. */
static const stk_added_token *next_added(const stk_tokenizer *t, stk_str text, size_t *at)
{
    for (; *at < text.size_bytes; ++*at) {
        const unsigned char first = (unsigned char)text.data[*at];
        if (t->added_first[first] == t->added_first[first + 1]) continue;
        const stk_added_token *const found = stk_added_match(t, (stk_str){text.data + *at, text.size_bytes - *at});
        if (found) return found;
    }
    return NULL;
}

/* What is remembered belongs to one tokenizer. */
static void own_cache(stk_encoder *e, const stk_tokenizer *t)
{
    if (memcmp(e->cache->digest, t->digest, sizeof t->digest) == 0) return;
    memset(e->cache, 0, sizeof *e->cache);
    memcpy(e->cache->digest, t->digest, sizeof t->digest);
}

stk_status stk_encoder_append(stk_encoder *encoder, const stk_tokenizer *tokenizer, stk_str text, size_t base_bytes,
                              bool live, stk_error *err)
{
    if (text.size_bytes == 0) return STK_OK;
    size_t end_bytes;
    if (text.size_bytes >= MAX_TEXT_BYTES || stk_add_overflows(&end_bytes, base_bytes, text.size_bytes) ||
        end_bytes > UINT32_MAX)
        return stk_fail(err, STK_ERR_RECORD, "a text of %zu bytes is too long to be encoded", text.size_bytes);
    const size_t valid_bytes = stk_utf8_valid_bytes(text);
    if (valid_bytes < text.size_bytes)
        return stk_fail(err, STK_ERR_RECORD, "the text is not valid UTF-8 at byte %zu", base_bytes + valid_bytes);
    own_cache(encoder, tokenizer);

    for (size_t from = 0; from < text.size_bytes;) {
        size_t at = from;
        const stk_added_token *const token = live ? next_added(tokenizer, text, &at) : NULL;
        const size_t chunk_end = live ? at : text.size_bytes;
        const stk_str before = {text.data + from, chunk_end - from};
        STK_TRY(encode_chunk(encoder, tokenizer, before, base_bytes + from, err));
        from = chunk_end;
        if (!token) continue;
        STK_TRY(reserve_ids(encoder, 1, err));
        put_id(encoder, token->id, base_bytes + from, base_bytes + from + token->text.size_bytes);
        from += token->text.size_bytes;
    }
    return STK_OK;
}
