/* tokenizer_load.c - tokenizer.json to tables.
 *
 * Taken are the tokenizers of the published Qwen vocabularies and those made in their form: NFC or nothing, one of two
 * known patterns, byte-level BPE.  Everything that would change an id and is not known here is refused in words; a
 * tokenizer that is nearly understood would train a model on wrong text in silence.
 *
 * The file is outside data: every number is checked before it is used. */
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <xxhash.h>

#include "base/file.h"
#include "text/pretokenizer.h"
#include "text/tokenizer_model.h"
#include "text/unicode.h"

#define FILE_NAME "tokenizer.json"

enum {
    MAX_FILE_BYTES = 256 << 20, /* twenty times a published one */
    MAX_ENTRIES = 1 << 24,
    MAX_ADDED = 1 << 16,
    MAX_ADDED_BYTES = 4096, /* of one added token */
};

typedef struct loader {
    stk_tokenizer *t;
    const char *path;
    int16_t byte_of[324]; /* of the code points that stand for bytes; -1 */
    stk_buffer token;     /* the bytes of one token */
    stk_error *err;
} loader;

#define REFUSE(l, ...) stk_fail_at((l)->err, STK_ERR_MODEL, (l)->path, 0, __VA_ARGS__)

/* --- pieces of JSON --- */

static stk_str str_of(const json_t *value)
{
    return (stk_str){json_string_value(value), json_string_length(value)};
}

static bool is_string(const json_t *value, const char *text)
{
    return json_is_string(value) && stk_str_is(str_of(value), text);
}

static bool is_absent(const json_t *value)
{
    return !value || json_is_null(value);
}

/* Absent, null, false, 0 or "": a switch that is off. */
static bool is_off(const json_t *value)
{
    return is_absent(value) || json_is_false(value) || (json_is_number(value) && json_number_value(value) == 0.0) ||
           is_string(value, "");
}

/* --- the byte map: a code point for each byte (spec-qwen3vl.md section 4.3, step 4) --- */

static void make_byte_map(int16_t byte_of[324])
{
    for (int i = 0; i < 324; i++) byte_of[i] = -1;
    int next = 256;
    for (int byte = 0; byte < 256; byte++) {
        const bool itself = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
        byte_of[itself ? byte : next++] = (int16_t)byte;
    }
}

/* The bytes of a token as the vocabulary writes it, appended to out.  False: a character stands for no byte. */
static bool decode_token(const loader *l, stk_str token, stk_buffer *out, stk_status *status)
{
    const uint8_t *at = (const uint8_t *)token.data;
    const uint8_t *const end = at + token.size_bytes;
    *status = stk_buffer_reserve(out, token.size_bytes, l->err);
    if (*status < 0) return true;
    while (at < end) {
        uint32_t size_bytes;
        const uint32_t code = stk_utf8_read(at, &size_bytes);
        if (code >= 324 || l->byte_of[code] < 0) return false;
        out->data[out->size_bytes++] = (uint8_t)l->byte_of[code];
        at += size_bytes;
    }
    return true;
}

/* --- vocabulary --- */

static stk_status allocate_vocabulary(loader *l, const json_t *vocab)
{
    stk_tokenizer *const t = l->t;
    const size_t count = json_object_size(vocab);
    if (count < 256 || count > MAX_ENTRIES)
        return REFUSE(l, "the vocabulary has %zu entries; a byte-level one has 256 to %d", count, MAX_ENTRIES);
    size_t total_bytes = 0;
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)vocab, key, value) total_bytes += strlen(key);
    t->entry_count = (uint32_t)count;
    uint32_t slots = 1024;
    while (slots / 2 < count) slots *= 2;
    t->by_bytes_mask = slots - 1;
    t->entry = stk_alloc_array(STK_TAG_MODEL, count, sizeof *t->entry);
    t->bytes = stk_alloc(STK_TAG_MODEL, total_bytes);
    t->by_bytes = stk_alloc_array(STK_TAG_MODEL, slots, sizeof *t->by_bytes);
    if (!t->entry || !t->bytes || !t->by_bytes)
        return stk_fail(l->err, STK_ERR_NOMEM, "out of memory: a vocabulary of %zu entries", count);
    for (uint32_t i = 0; i < slots; i++) t->by_bytes[i] = -1;
    return STK_OK;
}

static stk_status load_vocabulary(loader *l, const json_t *vocab)
{
    stk_tokenizer *const t = l->t;
    if (!json_is_object(vocab)) return REFUSE(l, "model.vocab is no object of tokens and ids");
    STK_TRY(allocate_vocabulary(l, vocab));
    uint32_t used_bytes = 0;
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)vocab, key, value) {
        const stk_str text = stk_str_of(key);
        const json_int_t id = json_is_integer(value) ? json_integer_value(value) : -1;
        if (id < 0 || id >= t->entry_count || t->entry[id].size_bytes)
            return REFUSE(l, "vocabulary entry \"%.*s\": the ids of %u entries must be 0 to %u, each once",
                          STK_STR_ARGS(text), t->entry_count, t->entry_count - 1);
        stk_status status;
        stk_buffer_clear(&l->token);
        if (!decode_token(l, text, &l->token, &status) || text.size_bytes == 0)
            return REFUSE(l, "vocabulary entry \"%.*s\" is not written in the byte-level alphabet", STK_STR_ARGS(text));
        STK_TRY(status);
        t->entry[id] = (stk_vocab_entry){used_bytes, (uint32_t)l->token.size_bytes};
        memcpy(t->bytes + used_bytes, l->token.data, l->token.size_bytes);
        used_bytes += (uint32_t)l->token.size_bytes;
        if (!stk_vocab_enter(t, (int32_t)id))
            return REFUSE(l, "vocabulary entry \"%.*s\" stands there twice", STK_STR_ARGS(text));
    }
    for (int byte = 0; byte < 256; byte++) {
        const uint8_t one = (uint8_t)byte;
        t->bpe.byte_id[byte] = stk_vocab_find(t, &one, 1);
        if (t->bpe.byte_id[byte] < 0)
            return REFUSE(l, "the vocabulary has no entry for byte 0x%02X: text with it could not be encoded", byte);
    }
    return STK_OK;
}

/* --- merges --- */

/* "a b" or ["a", "b"]. */
static bool split_merge(const json_t *merge, stk_str *left, stk_str *right)
{
    if (json_is_array(merge) && json_array_size(merge) == 2) {
        const json_t *const a = json_array_get(merge, 0), *const b = json_array_get(merge, 1);
        if (!json_is_string(a) || !json_is_string(b)) return false;
        *left = str_of(a);
        *right = str_of(b);
        return true;
    }
    if (!json_is_string(merge)) return false;
    const stk_str text = str_of(merge);
    const char *const blank = memchr(text.data, ' ', text.size_bytes);
    if (!blank) return false;
    const size_t left_bytes = (size_t)(blank - text.data);
    *left = (stk_str){text.data, left_bytes};
    *right = (stk_str){blank + 1, text.size_bytes - left_bytes - 1};
    return !memchr(right->data, ' ', right->size_bytes);
}

static stk_status load_merge(loader *l, const json_t *merge, uint32_t rank)
{
    stk_str left, right;
    if (!split_merge(merge, &left, &right)) return REFUSE(l, "merge %u is no pair of tokens", rank);
    stk_status status;
    stk_buffer_clear(&l->token);
    bool known = decode_token(l, left, &l->token, &status);
    STK_TRY(status);
    const size_t left_bytes = l->token.size_bytes;
    known = known && decode_token(l, right, &l->token, &status);
    STK_TRY(status);
    if (known) {
        const uint8_t *const bytes = l->token.data;
        const int32_t a = stk_vocab_find(l->t, bytes, left_bytes);
        const int32_t b = stk_vocab_find(l->t, bytes + left_bytes, l->token.size_bytes - left_bytes);
        const int32_t merged = stk_vocab_find(l->t, bytes, l->token.size_bytes);
        known = a >= 0 && b >= 0 && merged >= 0;
        if (known && !stk_bpe_add(&l->t->bpe, rank, a, b, merged))
            return REFUSE(l, "merge %u, \"%.*s\" and \"%.*s\", stands there twice", rank, STK_STR_ARGS(left),
                          STK_STR_ARGS(right));
    }
    if (known) return STK_OK;
    return REFUSE(l, "merge %u: \"%.*s\", \"%.*s\" or both together are not in the vocabulary", rank,
                  STK_STR_ARGS(left), STK_STR_ARGS(right));
}

static stk_status load_merges(loader *l, const json_t *merges)
{
    if (!json_is_array(merges)) return REFUSE(l, "model.merges is no list");
    const size_t count = json_array_size(merges);
    if (count > MAX_ENTRIES) return REFUSE(l, "%zu merges; at most %d are taken", count, MAX_ENTRIES);
    STK_TRY(stk_bpe_init(&l->t->bpe, (uint32_t)count, l->err));
    for (size_t i = 0; i < count; i++) STK_TRY(load_merge(l, json_array_get(merges, i), (uint32_t)i));
    stk_bpe_finish(&l->t->bpe);
    return STK_OK;
}

static stk_status load_model(loader *l, const json_t *model)
{
    static const char *const off[] = {"dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix",
                                      "byte_fallback", "ignore_merges"};
    if (!json_is_object(model) || !is_string(json_object_get(model, "type"), "BPE"))
        return REFUSE(l, "the model is not of type BPE: only byte-level BPE tokenizers are supported");
    for (size_t i = 0; i < sizeof off / sizeof *off; i++)
        if (!is_off(json_object_get(model, off[i])))
            return REFUSE(l, "model.%s is set: only plain byte-level BPE is supported", off[i]);
    STK_TRY(load_vocabulary(l, json_object_get(model, "vocab")));
    return load_merges(l, json_object_get(model, "merges"));
}

/* --- what stands before the model --- */

static stk_status load_normalizer(loader *l, const json_t *normalizer)
{
    if (is_absent(normalizer)) return STK_OK;
    if (is_string(json_object_get(normalizer, "type"), "NFC")) {
        l->t->nfc = true;
        return STK_OK;
    }
    const json_t *const list = json_object_get(normalizer, "normalizers");
    if (!is_string(json_object_get(normalizer, "type"), "Sequence") || !json_is_array(list))
        return REFUSE(l, "the normalizer is not NFC: no other is supported");
    for (size_t i = 0; i < json_array_size(list); i++) {
        if (!is_string(json_object_get(json_array_get(list, i), "type"), "NFC"))
            return REFUSE(l, "a normalizer of the sequence is not NFC: no other is supported");
        l->t->nfc = true;
    }
    return STK_OK;
}

static stk_status load_pattern(loader *l, const json_t *split)
{
    const json_t *const pattern = json_object_get(json_object_get(split, "pattern"), "Regex");
    if (!is_string(json_object_get(split, "behavior"), "Isolated") || !is_off(json_object_get(split, "invert")))
        return REFUSE(l, "the pre-tokenizer's Split must have behavior Isolated and invert false");
    if (is_string(pattern, STK_PATTERN_QWEN35)) l->t->marks_are_letters = true;
    else if (!is_string(pattern, STK_PATTERN_QWEN2))
        return REFUSE(l, "the pre-tokenizer's pattern is neither that of Qwen2 to Qwen3 nor that of Qwen3.5: this "
                         "tokenizer is not supported");
    return STK_OK;
}

static stk_status load_pre_tokenizer(loader *l, const json_t *pre_tokenizer)
{
    const json_t *const list = json_object_get(pre_tokenizer, "pretokenizers");
    const json_t *const split = json_array_get(list, 0), *const bytes = json_array_get(list, 1);
    if (!is_string(json_object_get(pre_tokenizer, "type"), "Sequence") || json_array_size(list) != 2 ||
        !is_string(json_object_get(split, "type"), "Split") || !is_string(json_object_get(bytes, "type"), "ByteLevel"))
        return REFUSE(l, "the pre-tokenizer is not a Sequence of Split and ByteLevel, as Qwen's are");
    if (!json_is_false(json_object_get(bytes, "add_prefix_space")) ||
        !json_is_false(json_object_get(bytes, "use_regex")))
        return REFUSE(l, "the pre-tokenizer's ByteLevel must have add_prefix_space and use_regex false");
    return load_pattern(l, split);
}

/* ByteLevel changes offsets only; anything else may add tokens. */
static stk_status check_post_processor(loader *l, const json_t *post)
{
    if (is_absent(post) || is_string(json_object_get(post, "type"), "ByteLevel")) return STK_OK;
    return REFUSE(l, "the post-processor is not ByteLevel: it may add tokens, which is not supported");
}

/* --- added tokens --- */

/* The id that the reference gives, whatever the file says: the vocabulary's, or the next free one. */
static stk_status check_added_id(loader *l, const stk_added_token *token, int32_t *next_id)
{
    stk_status status;
    stk_buffer_clear(&l->token);
    const bool in_alphabet = decode_token(l, token->text, &l->token, &status);
    STK_TRY(status);
    const int32_t regular = in_alphabet ? stk_vocab_find(l->t, l->token.data, l->token.size_bytes) : -1;
    const int32_t expected = regular >= 0 ? regular : (*next_id)++;
    if (token->id == expected) return STK_OK;
    return REFUSE(l, "added token \"%.*s\" has id %d, and its place gives it %d: ids follow the vocabulary "
                     "without holes", STK_STR_ARGS(token->text), token->id, expected);
}

static stk_status load_added_token(loader *l, const json_t *value, int32_t *next_id)
{
    static const char *const off[] = {"single_word", "lstrip", "rstrip", "normalized"};
    const json_t *const content = json_object_get(value, "content"), *const id = json_object_get(value, "id");
    if (!json_is_string(content) || !json_is_integer(id) || json_integer_value(id) < 0 ||
        json_integer_value(id) >= MAX_ENTRIES + MAX_ADDED)
        return REFUSE(l, "added_tokens[%u] is no object with content and id", l->t->added_count);
    const stk_str text = str_of(content);
    if (text.size_bytes == 0 || text.size_bytes > MAX_ADDED_BYTES)
        return REFUSE(l, "an added token has %zu bytes; 1 to %d are taken", text.size_bytes, MAX_ADDED_BYTES);
    for (size_t i = 0; i < sizeof off / sizeof *off; i++)
        if (!is_off(json_object_get(value, off[i])))
            return REFUSE(l, "added token \"%.*s\" has the flag %s, which is not supported", STK_STR_ARGS(text),
                          off[i]);

    char *const copy = stk_pool_take(&l->t->added_texts, text.size_bytes);
    if (!copy) return stk_fail(l->err, STK_ERR_NOMEM, "out of memory: an added token");
    memcpy(copy, text.data, text.size_bytes);
    stk_added_token *const token = &l->t->added[l->t->added_count++];
    *token = (stk_added_token){.text = {copy, text.size_bytes}, .id = (int32_t)json_integer_value(id),
                               .special = json_is_true(json_object_get(value, "special"))};
    return check_added_id(l, token, next_id);
}

static int compare_texts(const void *a, const void *b, void *context)
{
    const stk_added_token *const added = context;
    const stk_str left = added[*(const uint32_t *)a].text, right = added[*(const uint32_t *)b].text;
    const size_t both = left.size_bytes < right.size_bytes ? left.size_bytes : right.size_bytes;
    const int order = memcmp(left.data, right.data, both);
    return order ? order : left.size_bytes < right.size_bytes ? -1 : left.size_bytes > right.size_bytes;
}

static stk_status order_added_tokens(loader *l)
{
    stk_tokenizer *const t = l->t;
    for (uint32_t i = 0; i < t->added_count; i++) t->added_order[i] = i;
    qsort_r(t->added_order, t->added_count, sizeof *t->added_order, compare_texts, t->added);
    for (uint32_t i = 0; i < t->added_count; i++) {
        const stk_str text = t->added[t->added_order[i]].text;
        if (i && stk_str_equal(text, t->added[t->added_order[i - 1]].text))
            return REFUSE(l, "added token \"%.*s\" stands there twice", STK_STR_ARGS(text));
        t->added_first[(unsigned char)text.data[0] + 1]++;
    }
    for (int i = 0; i < 256; i++) t->added_first[i + 1] += t->added_first[i];
    return STK_OK;
}

static stk_status load_added_tokens(loader *l, const json_t *list)
{
    stk_tokenizer *const t = l->t;
    if (is_absent(list)) return STK_OK;
    const size_t count = json_array_size(list);
    if (!json_is_array(list) || count > MAX_ADDED)
        return REFUSE(l, "added_tokens is no list of at most %d tokens", MAX_ADDED);
    if (count == 0) return STK_OK;
    t->added = stk_alloc_array(STK_TAG_MODEL, count, sizeof *t->added);
    t->added_order = stk_alloc_array(STK_TAG_MODEL, count, sizeof *t->added_order);
    if (!t->added || !t->added_order) return stk_fail(l->err, STK_ERR_NOMEM, "out of memory: %zu added tokens", count);
    int32_t next_id = (int32_t)t->entry_count;
    for (size_t i = 0; i < count; i++) STK_TRY(load_added_token(l, json_array_get(list, i), &next_id));
    return order_added_tokens(l);
}

/* --- the file --- */

/* truncation and padding are left alone: transformers sets them itself at every call. */
static stk_status load_root(loader *l, const json_t *root)
{
    if (!json_is_object(root)) return REFUSE(l, "the file is no JSON object");
    STK_TRY(load_normalizer(l, json_object_get(root, "normalizer")));
    STK_TRY(load_pre_tokenizer(l, json_object_get(root, "pre_tokenizer")));
    STK_TRY(check_post_processor(l, json_object_get(root, "post_processor")));
    STK_TRY(load_model(l, json_object_get(root, "model")));
    return load_added_tokens(l, json_object_get(root, "added_tokens"));
}

static stk_status load_text(loader *l, const char *text, size_t size_bytes)
{
    XXH128_canonicalFromHash((XXH128_canonical_t *)l->t->digest, XXH3_128bits(text, size_bytes));
    json_error_t where;
    json_t *const root = json_loadb(text, size_bytes, 0, &where);
    if (!root)
        return stk_fail_at(l->err, STK_ERR_MODEL, l->path, where.line > 0 ? (uint64_t)where.line : 0,
                           "the file is not valid JSON (%s): fetch the checkpoint anew", where.text);
    const stk_status status = load_root(l, root);
    json_decref(root);
    return status;
}

/* A file that cannot be read makes the folder unusable. */
static stk_status read_file(char **text, size_t *size_bytes, const char *path, stk_error *err)
{
    stk_error inner;
    const stk_status status = stk_file_read(text, size_bytes, path, MAX_FILE_BYTES, STK_TAG_MODEL, &inner);
    if (status == STK_OK) return STK_OK;
    if (status == STK_ERR_NOMEM) return stk_fail_at(err, status, path, 0, "%s", inner.message);
    if (status == STK_ERR_SYSTEM && inner.code == ENOENT)
        return stk_fail_at(err, STK_ERR_MODEL, path, 0, "the checkpoint folder has no " FILE_NAME
                                                        ": give the folder of a Hugging Face checkpoint");
    return stk_fail_at(err, STK_ERR_MODEL, path, 0, "%s", inner.message);
}

stk_status stk_tokenizer_load(stk_tokenizer **out, stk_str json, const char *path, stk_error *err)
{
    *out = NULL;
    loader l = {.t = stk_alloc(STK_TAG_MODEL, sizeof *l.t), .path = path, .err = err};
    if (!l.t) return stk_fail(err, STK_ERR_NOMEM, "out of memory: a tokenizer");
    stk_pool_init(&l.t->added_texts, STK_TAG_MODEL);
    stk_buffer_init(&l.token, STK_TAG_MODEL, MAX_FILE_BYTES);
    make_byte_map(l.byte_of);
    const stk_status status = load_text(&l, json.data, json.size_bytes);
    stk_buffer_deinit(&l.token);
    if (status < 0) stk_tokenizer_close(&l.t);
    *out = l.t;
    return status;
}

stk_status stk_tokenizer_open(stk_tokenizer **out, const char *model_folder, stk_error *err)
{
    *out = NULL;
    char path[4096];
    STK_TRY(stk_path_join(path, sizeof path, model_folder, FILE_NAME, err));
    char *text;
    size_t size_bytes;
    STK_TRY(read_file(&text, &size_bytes, path, err));
    const stk_status status = stk_tokenizer_load(out, (stk_str){text, size_bytes}, path, err);
    stk_free(text);
    return status;
}

void stk_tokenizer_close(stk_tokenizer **tokenizer)
{
    stk_tokenizer *const t = *tokenizer;
    if (!t) return;
    *tokenizer = NULL;
    stk_bpe_deinit(&t->bpe);
    stk_free(t->entry);
    stk_free(t->bytes);
    stk_free(t->by_bytes);
    stk_free(t->added);
    stk_free(t->added_order);
    stk_pool_deinit(&t->added_texts);
    stk_free(t);
}
