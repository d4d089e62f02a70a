/* tokenizer.c - questions to a tokenizer: ids of texts, texts of ids, added tokens.
 *
 * Not here: reading the file (tokenizer_load.c), encoding (tokenizer_encode.c). */
#include "text/tokenizer.h"

#include <xxhash.h>

#include "text/tokenizer_model.h"

void stk_tokenizer_digest(const stk_tokenizer *tokenizer, uint8_t digest[16])
{
    memcpy(digest, tokenizer->digest, 16);
}

/* --- the vocabulary --- */

static bool entry_is(const stk_tokenizer *t, int32_t id, const void *bytes, size_t size_bytes)
{
    const stk_vocab_entry *const e = &t->entry[id];
    return e->size_bytes == size_bytes && memcmp(t->bytes + e->at, bytes, size_bytes) == 0;
}

int32_t stk_vocab_find(const stk_tokenizer *t, const void *bytes, size_t size_bytes)
{
    if (size_bytes == 0) return -1;
    for (uint32_t i = (uint32_t)XXH3_64bits(bytes, size_bytes) & t->by_bytes_mask;; i = (i + 1) & t->by_bytes_mask) {
        const int32_t id = t->by_bytes[i];
        if (id < 0 || entry_is(t, id, bytes, size_bytes)) return id;
    }
}

bool stk_vocab_enter(stk_tokenizer *t, int32_t id)
{
    const uint8_t *const bytes = t->bytes + t->entry[id].at;
    const size_t size_bytes = t->entry[id].size_bytes;
    uint32_t i = (uint32_t)XXH3_64bits(bytes, size_bytes) & t->by_bytes_mask;
    for (; t->by_bytes[i] >= 0; i = (i + 1) & t->by_bytes_mask)
        if (entry_is(t, t->by_bytes[i], bytes, size_bytes)) return false;
    t->by_bytes[i] = id;
    return true;
}

/* --- added tokens --- */

size_t stk_tokenizer_added_count(const stk_tokenizer *tokenizer)
{
    return tokenizer->added_count;
}

const stk_added_token *stk_tokenizer_added(const stk_tokenizer *tokenizer, size_t index)
{
    return &tokenizer->added[index];
}

stk_str stk_tokenizer_added_text(const stk_tokenizer *tokenizer, size_t index)
{
    return index < tokenizer->added_count ? tokenizer->added[index].text : (stk_str){0};
}

static const stk_added_token *in_order(const stk_tokenizer *t, size_t place)
{
    return &t->added[t->added_order[place]];
}

/* The first of the tokens low to high, which agree before byte depth, whose byte there is at least byte. */
static size_t first_from(const stk_tokenizer *t, size_t low, size_t high, size_t depth, unsigned byte)
{
    while (low < high) {
        const size_t middle = (low + high) / 2;
        const stk_str text = in_order(t, middle)->text;
        if (text.size_bytes <= depth || (unsigned char)text.data[depth] < byte) low = middle + 1;
        else high = middle;
    }
    return low;
}

const stk_added_token *stk_added_match(const stk_tokenizer *t, stk_str text)
{
    if (text.size_bytes == 0) return NULL;
    const unsigned char first = (unsigned char)text.data[0];
    size_t low = t->added_first[first], high = t->added_first[first + 1];
    const stk_added_token *longest = NULL;
    /* In bytewise order those that agree with the text so far stand together, the one that ends here first. */
    for (size_t depth = 1; low < high; depth++) {
        if (in_order(t, low)->text.size_bytes == depth) longest = in_order(t, low++);
        if (depth == text.size_bytes) break;
        const unsigned byte = (unsigned char)text.data[depth];
        low = first_from(t, low, high, depth, byte);
        high = first_from(t, low, high, depth, byte + 1);
    }
    return longest;
}

/* --- both --- */

int32_t stk_tokenizer_id(const stk_tokenizer *tokenizer, stk_str token)
{
    const stk_added_token *const added = stk_added_match(tokenizer, token);
    if (added && added->text.size_bytes == token.size_bytes) return added->id;
    return stk_vocab_find(tokenizer, token.data, token.size_bytes);
}

uint32_t stk_tokenizer_longest_bytes(const stk_tokenizer *tokenizer)
{
    size_t longest = 1;
    for (uint32_t i = 0; i < tokenizer->entry_count; i++)
        if (tokenizer->entry[i].size_bytes > longest) longest = tokenizer->entry[i].size_bytes;
    for (uint32_t i = 0; i < tokenizer->added_count; i++)
        if (tokenizer->added[i].text.size_bytes > longest) longest = tokenizer->added[i].text.size_bytes;
    return (uint32_t)longest;
}

stk_str stk_tokenizer_token(const stk_tokenizer *tokenizer, int32_t id)
{
    if (id >= 0 && (uint32_t)id < tokenizer->entry_count) {
        const stk_vocab_entry *const e = &tokenizer->entry[id];
        return (stk_str){(const char *)tokenizer->bytes + e->at, e->size_bytes};
    }
    for (uint32_t i = 0; i < tokenizer->added_count; i++)
        if (tokenizer->added[i].id == id) return tokenizer->added[i].text;
    return (stk_str){NULL, 0};
}

stk_status stk_tokenizer_special_ids(stk_special_ids *ids, const stk_tokenizer *tokenizer, stk_error *err)
{
    const struct {
        const char *text;
        int32_t *id;
    } wanted[] = {
        {"<|endoftext|>", &ids->end_of_text},   {"<|im_start|>", &ids->turn_start},
        {"<|im_end|>", &ids->turn_end},         {"<|image_pad|>", &ids->image_pad},
        {"<|video_pad|>", &ids->video_pad},     {"<|vision_start|>", &ids->vision_start},
        {"<|vision_end|>", &ids->vision_end},
    };
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        const stk_str text = stk_str_of(wanted[i].text);
        const stk_added_token *const added = stk_added_match(tokenizer, text);
        if (!added || added->text.size_bytes != text.size_bytes)
            return stk_fail(err, STK_ERR_MODEL, "tokenizer.json has no added token %s: this is not the tokenizer of a "
                                                "Qwen-VL checkpoint", wanted[i].text);
        *wanted[i].id = added->id;
    }
    ids->newline = tokenizer->bpe.byte_id['\n'];
    return STK_OK;
}
