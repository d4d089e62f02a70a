/* tokenize_tool.c - for tests only: texts in, ids and their places out.
 *
 *     tokenize_tool MODEL_FOLDER < texts > ids
 *
 * Each text is its size as uint32 and its bytes; each answer is the number of ids as uint32, the ids as int32, and the
 * places of their first bytes and of the bytes behind them as uint32 each.  All little-endian.  Added tokens are live.
 * A text that is refused gives the number 4294967295 and nothing else. */
#include <stdlib.h>

#include "test.h"
#include "text/tokenizer.h"

static bool answer(const stk_encoder *e)
{
    const size_t count = e->count;
    return fwrite(&e->count, sizeof e->count, 1, stdout) == 1 && fwrite(e->id, sizeof *e->id, count, stdout) == count &&
           fwrite(e->begin, sizeof *e->begin, count, stdout) == count &&
           fwrite(e->end, sizeof *e->end, count, stdout) == count;
}

int main(int argc, char **argv)
{
    if (argc != 2) return fprintf(stderr, "usage: tokenize_tool MODEL_FOLDER < texts > ids\n"), 2;
    stk_error err;
    stk_tokenizer *tokenizer;
    stk_encoder encoder;
    if (stk_tokenizer_open(&tokenizer, argv[1], &err) < 0) return stk_error_print(stderr, &err), 1;
    if (stk_encoder_init(&encoder, 64 << 20, &err) < 0) return stk_error_print(stderr, &err), 1;
    char *text = NULL;
    uint32_t size_bytes;
    while (fread(&size_bytes, sizeof size_bytes, 1, stdin) == 1) {
        text = realloc(text, size_bytes + 1);
        if (!text || fread(text, 1, size_bytes, stdin) != size_bytes) return 1;
        stk_encoder_clear(&encoder);
        if (stk_encoder_append(&encoder, tokenizer, (stk_str){text, size_bytes}, 0, true, &err) < 0)
            encoder.count = UINT32_MAX;
        if (encoder.count == UINT32_MAX ? fwrite(&encoder.count, 4, 1, stdout) != 1 : !answer(&encoder)) return 1;
    }
    free(text);
    stk_encoder_deinit(&encoder);
    stk_tokenizer_close(&tokenizer);
    return 0;
}
