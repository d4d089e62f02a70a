/* fuzz_answer.c - hostile heads and error bodies: what is kept of them fits, is clean, and agrees with itself.
 *
 * An input is the lines of a head, an empty line, and a body. */
#include <stdlib.h>

#include "source/answer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition)
{
    if (!condition) abort();
}

static void require_clean(const char *text, size_t capacity)
{
    const size_t length = strnlen(text, capacity);
    require(length < capacity);
    for (size_t i = 0; i < length; i++) require((uint8_t)text[i] >= 0x20 && text[i] != 0x7f);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    stk_answer a;
    stk_answer_begin(&a);
    size_t at = 0;
    while (at < size) {
        const uint8_t *const end = memchr(data + at, '\n', size - at);
        const size_t length = end ? (size_t)(end - data) - at : size - at;
        const stk_str line = {(const char *)data + at, length};
        at += length + (end != NULL);
        if (length == 0) break;
        stk_answer_line(&a, line);
    }
    if (a.has_range) {
        require(a.first > a.last || a.total_bytes == STK_UNKNOWN_BYTES || a.last < a.total_bytes);
        require(a.last < UINT64_MAX);
    }
    require(a.status == 0 || (a.status >= 100 && a.status <= 999));
    require(a.retry_after_s >= -1 && a.retry_after_s <= 3600 && a.date_s >= 0);
    stk_answer_body(&a, (stk_bytes){data + at, size - at});
    require_clean(a.etag, sizeof a.etag);
    require_clean(a.region, sizeof a.region);
    require_clean(a.location, sizeof a.location);
    require_clean(a.checksum_text, sizeof a.checksum_text);
    require_clean(a.code, sizeof a.code);
    require_clean(a.message, sizeof a.message);
    for (int mode = 0; mode < 4; mode++) {
        const stk_verdict verdict = stk_answer_verdict(&a, mode & 1, mode & 2);
        require(verdict <= STK_VERDICT_FATAL);
        require(verdict != STK_VERDICT_GOOD || ((a.status == 200 || a.status == 206) && !a.malformed));
        require(verdict != STK_VERDICT_REDIRECT || a.location[0]);
    }
    return 0;
}
