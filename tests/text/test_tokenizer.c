/* test_tokenizer.c - the tokeniser against the reference's goldens, and against files that are not what they should be.
 *
 * Goldens and the two small tokenizers: tools/make-tokenizer-goldens. */
#include <jansson.h>
#include <sys/stat.h>

#include "base/fault.h"
#include "base/file.h"
#include "test.h"
#include "text/pretokenizer.h"
#include "text/tokenizer_model.h"

static stk_error err;

static const char *generation_folder(const char *generation)
{
    static char path[600];
    snprintf(path, sizeof path, "%s/text/tokenizer/%s", test_source_folder(), generation);
    return path;
}

static stk_tokenizer *open_generation(const char *generation)
{
    stk_tokenizer *t;
    CHECK_OK(stk_tokenizer_open(&t, generation_folder(generation), &err), err);
    return t;
}

static stk_encoder make_encoder(void)
{
    stk_encoder e;
    CHECK_OK(stk_encoder_init(&e, 4 << 20, &err), err);
    return e;
}

static json_t *read_json(const char *generation, const char *name)
{
    char path[700];
    snprintf(path, sizeof path, "%s/%s", generation_folder(generation), name);
    json_error_t where;
    json_t *const root = json_load_file(path, JSON_ALLOW_NUL, &where);
    CHECK_MSG(root, "%s: %s", path, where.text);
    return root;
}

static void encode(stk_encoder *e, const stk_tokenizer *t, const char *text, bool live)
{
    stk_encoder_clear(e);
    CHECK_OK(stk_encoder_append(e, t, stk_str_of(text), 0, live, &err), err);
}

static void expect_ids(const stk_encoder *e, const int32_t *id, uint32_t count)
{
    CHECK_INT(e->count, count);
    for (uint32_t i = 0; i < count; i++) CHECK_INT(e->id[i], id[i]);
}

/* --- what the reference gives --- */

static void check_golden(const stk_encoder *e, const json_t *golden)
{
    const char *const text = json_string_value(json_array_get(golden, 0));
    const json_t *const ids = json_array_get(golden, 1);
    CHECK_MSG(e->count == json_array_size(ids), "\"%s\": %u ids, not %zu", text, e->count, json_array_size(ids));
    for (uint32_t i = 0; i < e->count; i++) {
        const long long id = json_integer_value(json_array_get(ids, i));
        const long long begin = json_integer_value(json_array_get(json_array_get(golden, 2), i));
        const long long end = json_integer_value(json_array_get(json_array_get(golden, 3), i));
        CHECK_MSG(e->id[i] == id, "\"%s\": id %u is %d, not %lld", text, i, e->id[i], id);
        CHECK_MSG(e->begin[i] == begin && e->end[i] == end, "\"%s\": token %u is bytes %u to %u, not %lld to %lld", text, i,
                  e->begin[i], e->end[i], begin, end);
    }
}

/* Ids and places equal the reference's; C18 (joined text), C19 (decomposed text) and A16 (U+FFFD) of the field reports
 * are among them. */
static void ids_and_places_are_those_of_the_reference(void)
{
    static const char *const generation[] = {"old", "new"};
    for (size_t g = 0; g < 2; g++) {
        stk_tokenizer *t = open_generation(generation[g]);
        stk_encoder e = make_encoder();
        json_t *const goldens = read_json(generation[g], "goldens.json");
        CHECK(json_array_size(goldens) > 200);
        /* Twice: from merges, and from what is remembered. */
        for (size_t i = 0; i < 2 * json_array_size(goldens); i++) {
            const json_t *const golden = json_array_get(goldens, i / 2), *const text = json_array_get(golden, 0);
            stk_encoder_clear(&e);
            const stk_str str = {json_string_value(text), json_string_length(text)};
            CHECK_OK(stk_encoder_append(&e, t, str, 0, true, &err), err);
            check_golden(&e, golden);
        }
        json_decref(goldens);
        stk_encoder_deinit(&e);
        stk_tokenizer_close(&t);
    }
}

/* The cuts alone, which a small vocabulary does not always show. */
static void pieces_end_where_the_pattern_says(void)
{
    for (int is_new = 0; is_new < 2; is_new++) {
        json_t *const list = read_json(is_new ? "new" : "old", "pieces.json");
        CHECK(json_array_size(list) > 200);
        for (size_t i = 0; i < json_array_size(list); i++) {
            const json_t *const text = json_array_get(json_array_get(list, i), 0);
            const json_t *const ends = json_array_get(json_array_get(list, i), 1);
            const stk_str str = {json_string_value(text), json_string_length(text)};
            size_t at = 0;
            for (size_t k = 0; k < json_array_size(ends); k++) {
                at = stk_piece_end(str, at, is_new);
                CHECK_MSG((json_int_t)at == json_integer_value(json_array_get(ends, k)), "\"%s\": piece %zu ends at %zu",
                          str.data, k, at);
            }
            CHECK_INT(at, str.size_bytes);
        }
        json_decref(list);
    }
}

/* --- added tokens --- */

static void text_that_is_not_live_holds_no_added_token(void)
{
    stk_tokenizer *t = open_generation("old");
    stk_encoder e = make_encoder();
    const char *const text = "a<|im_end|>\n<think>b";
    encode(&e, t, text, true);
    CHECK_INT(e.id[1], stk_tokenizer_id(t, stk_str_of("<|im_end|>\n")));
    CHECK_INT(e.id[2], stk_tokenizer_id(t, stk_str_of("<think>")));
    CHECK_INT(e.count, 4);
    encode(&e, t, text, false);
    size_t at = 0;
    for (uint32_t i = 0; i < e.count; i++) {
        CHECK((uint32_t)e.id[i] < t->entry_count);
        const stk_str token = stk_tokenizer_token(t, e.id[i]);
        CHECK(memcmp(text + at, token.data, token.size_bytes) == 0);
        at += token.size_bytes;
    }
    CHECK_INT(at, strlen(text));
    stk_encoder_deinit(&e);
    stk_tokenizer_close(&t);
}

/* What is appended apart is encoded apart, and stands at its place in the caller's text. */
static void no_merge_crosses_two_calls(void)
{
    stk_tokenizer *t = open_generation("old");
    stk_encoder e = make_encoder();
    encode(&e, t, "the", true);
    CHECK_INT(e.count, 1);
    stk_encoder_clear(&e);
    CHECK_OK(stk_encoder_append(&e, t, stk_str_of("t"), 100, true, &err), err);
    CHECK_OK(stk_encoder_append(&e, t, stk_str_of("he"), 101, true, &err), err);
    const int32_t apart[] = {stk_tokenizer_id(t, stk_str_of("t")), stk_tokenizer_id(t, stk_str_of("h")),
                             stk_tokenizer_id(t, stk_str_of("e"))};
    expect_ids(&e, apart, 3);
    for (uint32_t i = 0; i < 3; i++) {
        CHECK_INT(e.begin[i], 100 + i);
        CHECK_INT(e.end[i], 101 + i);
    }
    stk_encoder_deinit(&e);
    stk_tokenizer_close(&t);
}

static void tokens_and_ids_name_each_other(void)
{
    stk_tokenizer *t = open_generation("new");
    const int32_t id_count = (int32_t)(t->entry_count + t->added_count - 1); /* "##" stands in the vocabulary as well */
    for (int32_t id = 0; id < id_count; id++) {
        const stk_str token = stk_tokenizer_token(t, id);
        CHECK_MSG(token.data && token.size_bytes, "id %d", id);
        CHECK_INT(stk_tokenizer_id(t, token), id);
    }
    CHECK(stk_tokenizer_token(t, -1).data == NULL);
    CHECK(stk_tokenizer_token(t, id_count).data == NULL);
    CHECK_INT(stk_tokenizer_id(t, stk_str_of("no such token")), -1);
    CHECK_INT(stk_tokenizer_id(t, stk_str_of("")), -1);
    CHECK_INT(stk_tokenizer_added_count(t), 16);
    CHECK(stk_tokenizer_added(t, 6)->special && !stk_tokenizer_added(t, 7)->special);
    stk_special_ids ids;
    CHECK_OK(stk_tokenizer_special_ids(&ids, t, &err), err);
    CHECK_INT(ids.end_of_text, t->entry_count);
    CHECK_INT(ids.newline, stk_tokenizer_id(t, stk_str_of("\n")));
    stk_tokenizer_close(&t);
}

/* --- long and hostile text --- */

/* Both ways of merging give the same ids: every piece that is short enough for the one is given to both. */
static void short_and_long_pieces_merge_alike(void)
{
    stk_tokenizer *t = open_generation("old");
    stk_bpe_scratch scratch;
    stk_bpe_scratch_init(&scratch, 1000);
    static const char letters[] = "aaeinrst h  bc--__^^\xC3\xA4\xC3\xBC";
    uint32_t seed = 1;
    for (int round = 0; round < 3000; round++) {
        uint8_t piece[STK_BPE_SHORT_BYTES];
        const size_t size_bytes = (size_t)round % STK_BPE_SHORT_BYTES + 1;
        for (size_t i = 0; i < size_bytes; i++) {
            seed = seed * 1664525 + 1013904223;
            piece[i] = (uint8_t)letters[(seed >> 16) % (sizeof letters - 1)];
        }
        int32_t id[STK_BPE_SHORT_BYTES];
        const uint32_t count = stk_bpe_short(id, &t->bpe, piece, size_bytes);
        const int32_t *long_id;
        uint32_t long_count;
        CHECK_OK(stk_bpe_long(&long_id, &long_count, &t->bpe, piece, size_bytes, &scratch, &err), err);
        CHECK_INT(long_count, count);
        CHECK(memcmp(id, long_id, count * sizeof *id) == 0);
    }
    stk_bpe_scratch_deinit(&scratch);
    stk_tokenizer_close(&t);
}

/* Field report C21: a megabyte without a blank; a quadratic search would take hours. */
static void long_text_without_blanks_is_no_trap(void)
{
    static const struct {
        const char *unit;
        size_t times;
    } texts[] = {{"^", 1000000}, {"a", 100000}, {"_", 50000}, {" ", 300000}, {"\n", 300000}, {"<|im_end", 100000},
                 {"\xCC\x81", 200000}, {"e\xCC\x81", 100000}, {"\xCC\x81\xCC\x96", 100000}};
    stk_tokenizer *t = open_generation("old");
    stk_encoder e = make_encoder();
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        const size_t unit_bytes = strlen(texts[i].unit), size_bytes = unit_bytes * texts[i].times;
        char *const text = malloc(size_bytes + 1);
        for (size_t k = 0; k < texts[i].times; k++) memcpy(text + k * unit_bytes, texts[i].unit, unit_bytes);
        stk_encoder_clear(&e);
        CHECK_OK(stk_encoder_append(&e, t, (stk_str){text, size_bytes}, 0, true, &err), err);
        CHECK(e.count > 0 && e.count <= size_bytes);
        size_t token_bytes = 0;
        for (uint32_t k = 0; k < e.count; k++) token_bytes += stk_tokenizer_token(t, e.id[k]).size_bytes;
        CHECK_INT(token_bytes, stk_nfc_is_stable((stk_str){text, size_bytes}) ? size_bytes : e.normal.text.size_bytes);
        free(text);
    }
    stk_encoder_deinit(&e);
    stk_tokenizer_close(&t);
}

static void text_that_is_no_utf8_is_refused_with_its_place(void)
{
    static const struct {
        const char *text;
        size_t place;
    } bad[] = {{"ab\xFF", 2},         {"\xC3", 0},          {"a\xC0\x80", 1},    {"\xE2\x82", 0},     {"\xED\xA0\x80", 0},
               {"\xF4\x90\x80\x80", 0}, {"\xF0\x8F\xBF\xBF", 0}, {"\xE0\x9F\xBF", 0}, {"twelve bytes\x80", 12}, {"\xF5\x80\x80\x80", 0}};
    stk_tokenizer *t = open_generation("old");
    stk_encoder e = make_encoder();
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        CHECK_INT(stk_encoder_append(&e, t, stk_str_of(bad[i].text), 0, true, &err), STK_ERR_RECORD);
        char words[40];
        snprintf(words, sizeof words, "not valid UTF-8 at byte %zu", bad[i].place);
        CHECK_STR(err.message + strlen("the text is "), words);
        CHECK_INT(e.count, 0);
    }
    encode(&e, t, "\xED\x9F\xBF\xEE\x80\x80\xF4\x8F\xBF\xBF\xC2\x80\xE0\xA0\x80\xF0\x90\x80\x80", true);
    CHECK(e.count > 0);
    stk_encoder_deinit(&e);
    stk_tokenizer_close(&t);
}

/* --- memory --- */

/* Invariant 10: a text that the encoder has met before costs no allocation. */
static void a_known_size_allocates_nothing(void)
{
    stk_tokenizer *t = open_generation("old");
    stk_encoder e = make_encoder();
    char text[3000];
    memset(text, '^', sizeof text - 1);
    text[sizeof text - 1] = 0;
    memcpy(text, "Gr\xC3\xB6\xC3\x9F" "e u\xCC\x88" "ber", 12);
    encode(&e, t, text, true);
    const uint64_t before = stk_alloc_count();
    for (int round = 0; round < 10; round++) {
        encode(&e, t, text, true);
        encode(&e, t, text + 100, true);
        encode(&e, t, "other words, e\xCC\x81", true);
    }
    CHECK_INT(stk_alloc_count(), before);
    stk_encoder_deinit(&e);
    stk_tokenizer_close(&t);
}

/* What an encoder remembers belongs to one tokenizer. */
static void an_encoder_serves_one_tokenizer_after_the_other(void)
{
    stk_tokenizer *t[2] = {open_generation("old"), open_generation("new")};
    stk_encoder e = make_encoder();
    const char *const text = "nam\xE0\xA4\xBE\xE0\xA4\xBEste x\xCC\x96y 12 the pieces";
    int32_t id[2][64];
    uint32_t count[2];
    for (int i = 0; i < 2; i++) {
        stk_encoder fresh = make_encoder();
        encode(&fresh, t[i], text, true);
        count[i] = fresh.count;
        CHECK(fresh.count <= 64);
        memcpy(id[i], fresh.id, fresh.count * sizeof *fresh.id);
        stk_encoder_deinit(&fresh);
    }
    CHECK(count[0] != count[1] || memcmp(id[0], id[1], count[0] * sizeof **id) != 0);
    for (int round = 0; round < 4; round++) {
        encode(&e, t[round & 1], text, true);
        expect_ids(&e, id[round & 1], count[round & 1]);
    }
    stk_encoder_deinit(&e);
    stk_tokenizer_close(&t[0]);
    stk_tokenizer_close(&t[1]);
}

static void every_allocation_may_fail(void)
{
#ifdef STK_FAULTS
    const char *const text = "the the e\xCC\x81 ------------------------------------------------------------------------ x";
    size_t held_model = stk_alloc_bytes(STK_TAG_MODEL), held_text = stk_alloc_bytes(STK_TAG_TEXT);
    unsigned long nth = 1;
    for (bool done = false; !done; nth++) {
        stk_tokenizer *t = NULL;
        stk_encoder e = {0};
        stk_fault_set(STK_FAULT_ALLOC, nth, false);
        stk_status status = stk_tokenizer_open(&t, generation_folder("old"), &err);
        CHECK((status == STK_OK) == (t != NULL));
        if (status == STK_OK) status = stk_encoder_init(&e, 1000, &err);
        if (status == STK_OK) status = stk_encoder_append(&e, t, stk_str_of(text), 0, true, &err);
        stk_fault_set(STK_FAULT_ALLOC, 0, false);
        done = status == STK_OK;
        CHECK_MSG(done || status == STK_ERR_NOMEM, "allocation %lu: status %d, %s", nth, status, err.message);
        stk_encoder_deinit(&e);
        stk_tokenizer_close(&t);
        CHECK_INT(stk_alloc_bytes(STK_TAG_MODEL), held_model);
        CHECK_INT(stk_alloc_bytes(STK_TAG_TEXT), held_text);
    }
    CHECK_MSG(nth > 15, "%lu allocations", nth);
#endif
}

/* --- files that are refused --- */

/* A change to a good file: set the value at a path ("model/vocab/a"; a number is a place in a list) to a JSON text, or
 * remove it (text NULL), and what the refusal says. */
typedef struct edit {
    const char *path, *value, *words;
} edit;

static void apply(json_t *root, const edit *change)
{
    char path[100];
    snprintf(path, sizeof path, "%s", change->path);
    json_t *at = root;
    char *key = path;
    for (char *slash; (slash = strchr(key, '/')); key = slash + 1) {
        *slash = 0;
        at = json_is_array(at) ? json_array_get(at, (size_t)atoi(key)) : json_object_get(at, key);
        CHECK_MSG(at, "%s of %s", key, change->path);
    }
    json_t *const value = change->value ? json_loads(change->value, JSON_DECODE_ANY, NULL) : NULL;
    CHECK(value || !change->value);
    if (!value) CHECK_INT(json_is_array(at) ? json_array_remove(at, (size_t)atoi(key)) : json_object_del(at, key), 0);
    else if (!json_is_array(at)) CHECK_INT(json_object_set_new(at, key, value), 0);
    else if ((size_t)atoi(key) == json_array_size(at)) CHECK_INT(json_array_append_new(at, value), 0);
    else CHECK_INT(json_array_set_new(at, (size_t)atoi(key), value), 0);
}

static stk_status load_edited(stk_tokenizer **t, const char *generation, const edit *change)
{
    json_t *const root = read_json(generation, "tokenizer.json");
    apply(root, change);
    char *const text = json_dumps(root, 0);
    json_decref(root);
    const stk_status status = stk_tokenizer_load(t, stk_str_of(text), "folder/tokenizer.json", &err);
    free(text);
    return status;
}

#define FLAGS "\"single_word\": false, \"lstrip\": false, \"rstrip\": false, \"normalized\": false, \"special\": false"

static const edit refused[] = {
    {"normalizer", "{\"type\": \"NFKC\"}", "the normalizer is not NFC"},
    {"normalizer", "{\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"NFC\"}, {\"type\": \"Lowercase\"}]}", "not NFC"},
    {"normalizer", "7", "not NFC"},
    {"pre_tokenizer", "null", "not a Sequence of Split and ByteLevel"},
    {"pre_tokenizer/type", "\"Other\"", "not a Sequence"},
    {"pre_tokenizer/pretokenizers/2", "{\"type\": \"Digits\"}", "not a Sequence"},
    {"pre_tokenizer/pretokenizers/0", "{\"type\": \"Whitespace\"}", "not a Sequence"},
    {"pre_tokenizer/pretokenizers/0/pattern", "{\"Regex\": \"\\\\s+\"}", "pattern is neither"},
    {"pre_tokenizer/pretokenizers/0/pattern", "{\"String\": \" \"}", "pattern is neither"},
    {"pre_tokenizer/pretokenizers/0/behavior", "\"Removed\"", "behavior Isolated"},
    {"pre_tokenizer/pretokenizers/0/invert", "true", "behavior Isolated and invert false"},
    {"pre_tokenizer/pretokenizers/1/add_prefix_space", "true", "add_prefix_space"},
    {"pre_tokenizer/pretokenizers/1/use_regex", "true", "use_regex"},
    {"pre_tokenizer/pretokenizers/1/use_regex", NULL, "use_regex"},
    {"post_processor", "{\"type\": \"TemplateProcessing\"}", "may add tokens"},
    {"model", "[]", "not of type BPE"},
    {"model/type", "\"Unigram\"", "not of type BPE"},
    {"model/dropout", "0.1", "model.dropout is set"},
    {"model/unk_token", "\"<unk>\"", "model.unk_token is set"},
    {"model/continuing_subword_prefix", "\"##\"", "model.continuing_subword_prefix"},
    {"model/end_of_word_suffix", "\"</w>\"", "model.end_of_word_suffix"},
    {"model/byte_fallback", "true", "model.byte_fallback"},
    {"model/ignore_merges", "true", "model.ignore_merges"},
    {"model/vocab", "[]", "no object of tokens"},
    {"model/vocab", "{\"a\": 0}", "has 1 entries"},
    {"model/vocab/a", NULL, "each once"},
    {"model/vocab/a", "99999", "each once"},
    {"model/vocab/a", "-1", "each once"},
    {"model/vocab/a", "0", "each once"},
    {"model/vocab/a", "1.5", "each once"},
    {"model/vocab/a", "4294967296", "each once"},
    {"model/vocab/new one", "676", "byte-level alphabet"},
    {"model/vocab/\xE2\x82\xAC", "676", "byte-level alphabet"},
    {"model/vocab/", "676", "byte-level alphabet"},
    {"model/merges", "{}", "no list"},
    {"model/merges/0", "\"nothing\"", "merge 0 is no pair"},
    {"model/merges/0", "\"a b c\"", "merge 0 is no pair"},
    {"model/merges/0", "[\"a\"]", "merge 0 is no pair"},
    {"model/merges/0", "[\"a\", 1]", "merge 0 is no pair"},
    {"model/merges/0", "3", "merge 0 is no pair"},
    {"model/merges/0", "\"q q\"", "not in the vocabulary"},
    {"model/merges/0", "\" a\"", "not in the vocabulary"},
    {"model/merges/0", "\"\xE2\x82\xAC a\"", "not in the vocabulary"},
    {"model/merges/1", "\"q q\"", "merge 1"},
    {"added_tokens", "{}", "no list"},
    {"added_tokens/0", "5", "no object with content and id"},
    {"added_tokens/0/content", "\"\"", "has 0 bytes"},
    {"added_tokens/0/id", "5", "its place gives it 676"},
    {"added_tokens/1/id", "4294967296", "no object with content and id"},
    {"added_tokens/0/lstrip", "true", "flag lstrip"},
    {"added_tokens/0/rstrip", "true", "flag rstrip"},
    {"added_tokens/0/single_word", "true", "flag single_word"},
    {"added_tokens/0/normalized", "true", "flag normalized"},
    {"added_tokens/16", "{\"id\": 332, \"content\": \"##\", " FLAGS "}", "stands there twice"},
    {"added_tokens/16", "{\"id\": 691, \"content\": \"the\", " FLAGS "}", "its place gives it"},
};

/* What would change an id is refused, in words, with the file named. */
static void a_tokenizer_that_is_not_understood_is_refused(void)
{
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        stk_tokenizer *t;
        const stk_status status = load_edited(&t, "old", &refused[i]);
        CHECK_MSG(status == STK_ERR_MODEL && !t, "%s = %s: status %d", refused[i].path, refused[i].value, (int)status);
        CHECK_HAS(err.message, refused[i].words);
        CHECK_STR(err.file, "folder/tokenizer.json");
    }
    json_t *const good = read_json("new", "tokenizer.json");
    char *const first = json_dumps(json_array_get(json_object_get(json_object_get(good, "model"), "merges"), 0), 0);
    stk_tokenizer *t;
    CHECK_INT(load_edited(&t, "new", &(edit){"model/merges/1", first, NULL}), STK_ERR_MODEL);
    CHECK_HAS(err.message, "merge 1");
    CHECK_HAS(err.message, "stands there twice");
    free(first);
    json_decref(good);
}

static void what_changes_no_id_is_taken(void)
{
    static const edit taken[] = {
        {"truncation", "{\"max_length\": 5}", NULL},
        {"padding", "{\"strategy\": \"BatchLongest\"}", NULL},
        {"post_processor", "null", NULL},
        {"decoder", NULL, NULL},
        {"model/dropout", "0.0", NULL},
        {"model/ignore_merges", NULL, NULL},
        {"model/continuing_subword_prefix", "null", NULL},
        {"normalizer", "{\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"NFC\"}]}", NULL},
        {"something_new", "[1]", NULL},
    };
    stk_encoder e = make_encoder();
    stk_tokenizer *t = open_generation("old");
    const char *const text = "one text, e\xCC\x81, to compare them all";
    encode(&e, t, text, true);
    int32_t id[64];
    const uint32_t count = e.count;
    CHECK(count <= 64);
    memcpy(id, e.id, count * sizeof *id);
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++) {
        stk_tokenizer_close(&t);
        CHECK_OK(load_edited(&t, "old", &taken[i]), err);
        encode(&e, t, text, true);
        expect_ids(&e, id, count);
    }
    /* Without a normalizer nothing is composed. */
    stk_tokenizer_close(&t);
    CHECK_OK(load_edited(&t, "old", &(edit){"normalizer", "null", NULL}), err);
    encode(&e, t, text, true);
    CHECK(e.count != count || memcmp(e.id, id, count * sizeof *id) != 0);
    stk_encoder_deinit(&e);
    stk_tokenizer_close(&t);
}

/* An added token that the vocabulary has too keeps its id there, as in the reference. */
static void an_added_token_may_stand_in_the_vocabulary(void)
{
    stk_tokenizer *t = open_generation("old");
    const int32_t the = stk_tokenizer_id(t, stk_str_of("the"));
    stk_tokenizer_close(&t);
    char value[300];
    snprintf(value, sizeof value, "[{\"id\": %d, \"content\": \"the\", " FLAGS "}, {\"id\": 676, \"content\": \"<x>\", " FLAGS "}]", the);
    stk_encoder e = make_encoder();
    CHECK_OK(load_edited(&t, "old", &(edit){"added_tokens", value, NULL}), err);
    CHECK_INT(t->entry_count, 676);
    encode(&e, t, "other<x>", true); /* "o", "the", "r": the added token cuts the word */
    CHECK_INT(e.count, 4);
    CHECK_INT(e.id[1], the);
    CHECK_INT(e.id[3], 676);
    stk_special_ids ids;
    CHECK_INT(stk_tokenizer_special_ids(&ids, t, &err), STK_ERR_MODEL);
    CHECK_HAS(err.message, "<|endoftext|>");
    stk_encoder_deinit(&e);
    stk_tokenizer_close(&t);
}

static void a_folder_without_a_usable_file_is_refused(void)
{
    stk_tokenizer *t = (stk_tokenizer *)&t;
    char path[400];
    CHECK_INT(stk_tokenizer_open(&t, test_folder(), &err), STK_ERR_MODEL);
    CHECK(t == NULL);
    CHECK_HAS(err.message, "has no tokenizer.json");
    CHECK_HAS(err.file, test_folder());
    CHECK_INT(stk_tokenizer_open(&t, "/nowhere/at/all", NULL), STK_ERR_MODEL);

    static const char *const bad[] = {"", "{", "[1, 2]", "{\"model\": \"\\ud800\"}", "{\"model\": {}} x", "\xFF\xFE{"};
    snprintf(path, sizeof path, "%s/tokenizer.json", test_folder());
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        CHECK_OK(stk_file_save(path, bad[i], strlen(bad[i]), &err), err);
        CHECK_INT(stk_tokenizer_open(&t, test_folder(), &err), STK_ERR_MODEL);
        CHECK_HAS(err.file, "tokenizer.json");
    }
    CHECK_INT(unlink(path), 0);
    CHECK_INT(mkdir(path, 0700), 0);
    CHECK_INT(stk_tokenizer_open(&t, test_folder(), &err), STK_ERR_MODEL);
    CHECK_HAS(err.file, "tokenizer.json");
    stk_tokenizer_close(&t);
}

int main(int argc, char **argv)
{
    TEST_MAIN(argc, argv, TEST(ids_and_places_are_those_of_the_reference),
              TEST(pieces_end_where_the_pattern_says), TEST(text_that_is_not_live_holds_no_added_token),
              TEST(no_merge_crosses_two_calls), TEST(tokens_and_ids_name_each_other),
              TEST(short_and_long_pieces_merge_alike), TEST(long_text_without_blanks_is_no_trap),
              TEST(text_that_is_no_utf8_is_refused_with_its_place), TEST(a_known_size_allocates_nothing),
              TEST(an_encoder_serves_one_tokenizer_after_the_other), TEST(every_allocation_may_fail),
              TEST(a_tokenizer_that_is_not_understood_is_refused), TEST(what_changes_no_id_is_taken),
              TEST(an_added_token_may_stand_in_the_vocabulary), TEST(a_folder_without_a_usable_file_is_refused));
}
