/* data_uri.c - data:image/...;base64,... as the reference reads it (spec-qwen3vl.md section 1.1).
 *
 * The text between the first and the second comma (or the end) goes through a lenient MIME decoder: characters outside
 * the alphabet are skipped, padding ends the data, and an incomplete group without padding is an error.  So the
 * URL-safe alphabet and the percent form do not give the bytes that were meant: the image decoder says so. */
#include "source/backend.h"

static int digit_of(uint8_t c)
{
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

/* Counts every byte, and keeps those that were asked for. */
typedef struct sink {
    stk_request *request;
    uint64_t count;
} sink;

static void put(sink *to, uint32_t byte)
{
    stk_request *const r = to->request;
    const uint64_t at = to->count++;
    if (at < r->offset || at - r->offset >= r->size_bytes || at - r->offset >= r->capacity_bytes) return;
    r->buffer[at - r->offset] = (uint8_t)byte;
    r->got_bytes++;
}

/* False when the text ends inside a group of four without its padding. */
static bool decode_base64(sink *to, stk_str text)
{
    uint32_t group = 0;
    int digits = 0, pads = 0;
    for (size_t i = 0; i < text.size_bytes; i++) {
        const uint8_t c = (uint8_t)text.data[i];
        if (c == '=') {
            if (digits >= 2 && digits + ++pads >= 4) return true;
            continue;
        }
        const int digit = digit_of(c);
        if (digit < 0) continue;
        pads = 0;
        group = group << 6 | (uint32_t)digit;
        if (digits > 0) put(to, group >> (6 - 2 * digits) & 0xff);
        digits = (digits + 1) % 4;
    }
    return digits == 0;
}

stk_status stk_data_uri_read(stk_request *request)
{
    static const char prefix[] = "data:image/";
    const stk_str uri = request->address;
    if (uri.size_bytes < sizeof prefix - 1 || memcmp(uri.data, prefix, sizeof prefix - 1) != 0)
        return stk_fail(&request->error, STK_ERR_MEDIA,
                        "a data: URI must begin with data:image/, as data:image/png;base64,...");
    const char *const comma = memchr(uri.data, ',', uri.size_bytes);
    if (!comma) return stk_fail(&request->error, STK_ERR_MEDIA, "a data: URI has no comma before its data");
    stk_str text = {comma + 1, uri.size_bytes - (size_t)(comma + 1 - uri.data)};
    const char *const second = text.size_bytes ? memchr(text.data, ',', text.size_bytes) : NULL;
    if (second) text.size_bytes = (size_t)(second - text.data);

    sink to = {request, 0};
    request->got_bytes = 0;
    if (!decode_base64(&to, text))
        return stk_fail(&request->error, STK_ERR_MEDIA, "the base64 of a data: URI is cut or lacks its padding");
    request->total_bytes = to.count;
    request->mtime_ns = 0;
    const uint64_t left_bytes = to.count > request->offset ? to.count - request->offset : 0;
    const uint64_t want_bytes = request->size_bytes < left_bytes ? request->size_bytes : left_bytes;
    if (want_bytes > request->capacity_bytes)
        return stk_fail(&request->error, STK_ERR_MEDIA_LIMIT, "a data: URI of %llu bytes, and there is room for %zu",
                        (unsigned long long)to.count, request->capacity_bytes);
    return STK_OK;
}
