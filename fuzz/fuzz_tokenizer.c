/* fuzz_tokenizer.c - hostile bytes as a tokenizer.json and as text: an answer for everything.
 *
 * An input that begins with '{' is a tokenizer.json, and what stands behind its first NUL is text for it.  Any other
 * input is text for two small tokenizers of our own, one of each pattern.  Of every text that is taken, the tokens
 * together must be the text in NFC, and stand at places inside it. */
#include <stdlib.h>

#include "text/pretokenizer.h"
#include "text/tokenizer_model.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MUST(condition)                                                                                    \
    do {                                                                                                   \
        if (!(condition)) abort();                                                                         \
    } while (0)

enum { MAX_TEXT_BYTES = 1 << 20 };

static void check_text(stk_encoder *e, const stk_tokenizer *t, stk_str text, bool live)
{
    stk_encoder_clear(e);
    if (stk_encoder_append(e, t, text, 7, live, NULL) < 0) {
        MUST(stk_utf8_valid_bytes(text) < text.size_bytes || text.size_bytes > MAX_TEXT_BYTES);
        return;
    }
    size_t token_bytes = 0;
    for (uint32_t i = 0; i < e->count; i++) {
        const stk_str token = stk_tokenizer_token(t, e->id[i]);
        MUST(token.size_bytes > 0);
        MUST(e->begin[i] >= 7 && e->begin[i] <= e->end[i] && e->end[i] <= 7 + text.size_bytes);
        token_bytes += token.size_bytes;
    }
    /* With nothing live and nothing to compose, the tokens are the text. */
    if (!live && (!t->nfc || stk_nfc_is_stable(text))) MUST(token_bytes == text.size_bytes);
    if (!live && t->nfc && !stk_nfc_is_stable(text)) MUST(token_bytes == e->normal.text.size_bytes);
}

static void check_file(stk_encoder *e, stk_str json, stk_str text)
{
    stk_tokenizer *t;
    if (stk_tokenizer_load(&t, json, "tokenizer.json", NULL) < 0) {
        MUST(!t);
        return;
    }
    check_text(e, t, text, true);
    check_text(e, t, text, false);
    stk_tokenizer_close(&t);
}

/* The 256 bytes, a few merges, two added tokens of which one begins the other. */
static stk_tokenizer *make_tokenizer(bool is_new)
{
    stk_buffer json;
    stk_buffer_init(&json, STK_TAG_MODEL, 1 << 20);
    stk_status status = stk_buffer_printf(
        &json, NULL, "{\"added_tokens\": [{\"id\": 260, \"content\": \"<a>\"}, {\"id\": 261, \"content\": \"<a><b>\"}],"
                     "\"normalizer\": {\"type\": \"NFC\"}, \"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": ["
                     "{\"type\": \"Split\", \"behavior\": \"Isolated\", \"invert\": false, \"pattern\": {\"Regex\": \"");
    for (const char *c = is_new ? STK_PATTERN_QWEN35 : STK_PATTERN_QWEN2; *c && status == STK_OK; c++)
        status = stk_buffer_printf(&json, NULL, *c == '\\' ? "\\\\" : "%c", *c);
    if (status == STK_OK)
        status = stk_buffer_printf(&json, NULL, "\"}}, {\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"use_regex\": "
                                                "false}]}, \"model\": {\"type\": \"BPE\", \"vocab\": {");
    for (unsigned byte = 0, next = 256; byte < 256 && status == STK_OK; byte++) {
        const bool itself = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
        status = stk_buffer_printf(&json, NULL, "\"\\u%04x\": %u,", itself ? byte : next++, byte);
    }
    if (status == STK_OK)
        status = stk_buffer_printf(&json, NULL, "\"aa\": 256, \"aaa\": 257, \"\\u00cc\\u0123\": 258, \"aaaa\": 259},\"merges\": "
                                                "[\"a a\", [\"aa\", \"a\"], \"\\u00cc \\u0123\", \"aa aa\"]}}");
    MUST(status == STK_OK);
    stk_tokenizer *t;
    MUST(stk_tokenizer_load(&t, (stk_str){(const char *)json.data, json.size_bytes}, "built in", NULL) == STK_OK);
    stk_buffer_deinit(&json);
    return t;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static stk_tokenizer *built_in[2];
    static stk_encoder encoder;
    if (!built_in[0]) {
        MUST(stk_encoder_init(&encoder, MAX_TEXT_BYTES, NULL) == STK_OK);
        built_in[0] = make_tokenizer(false);
        built_in[1] = make_tokenizer(true);
    }
    const stk_str all = {(const char *)data, size};
    if (size && data[0] == '{') {
        const char *const nul = memchr(all.data, 0, size);
        const size_t json_bytes = nul ? (size_t)(nul - all.data) : size;
        const stk_str text = nul ? (stk_str){nul + 1, size - json_bytes - 1} : (stk_str){"", 0};
        check_file(&encoder, (stk_str){all.data, json_bytes}, text);
        return 0;
    }
    for (int i = 0; i < 4; i++) check_text(&encoder, built_in[i & 1], all, i & 2);
    return 0;
}
