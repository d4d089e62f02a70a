/* answer.c - heads and XML of a stranger, taken apart with limits; the class of each fault.
 *
 * Of a head only the lines in the table below count, and the last of equal ones (a list of values is none of them).
 * XML goes through expat with no external entities (its default), no document types (refused, so nothing can expand), and a
 * limit on depth and text. */
#include "source/answer.h"

#include <expat.h>
#include <strings.h>
#include <time.h>

enum { DEPTH = 16, TEXT_BYTES = 8192 };

void stk_answer_begin(stk_answer *answer)
{
    *answer = (stk_answer){.total_bytes = STK_UNKNOWN_BYTES, .retry_after_s = -1};
}

/* --- lines of a head --- */

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static stk_str trim(stk_str s)
{
    while (s.size_bytes && (s.data[0] == ' ' || s.data[0] == '\t')) s = (stk_str){s.data + 1, s.size_bytes - 1};
    while (s.size_bytes && (s.data[s.size_bytes - 1] == ' ' || s.data[s.size_bytes - 1] == '\t')) s.size_bytes--;
    return s;
}

/* Digits at the start of *s, taken off; false: none, or more than fit. */
static bool take_number(uint64_t *out, stk_str *s)
{
    uint64_t value = 0;
    size_t i = 0;
    for (; i < s->size_bytes && is_digit(s->data[i]); i++)
        if (__builtin_mul_overflow(value, 10, &value) || __builtin_add_overflow(value, (unsigned)(s->data[i] - '0'), &value))
            return false;
    if (i == 0) return false;
    *s = (stk_str){s->data + i, s->size_bytes - i};
    *out = value;
    return true;
}

static bool take_char(stk_str *s, char c)
{
    if (s->size_bytes == 0 || s->data[0] != c) return false;
    *s = (stk_str){s->data + 1, s->size_bytes - 1};
    return true;
}

/* Text of visible characters and spaces that fits, else "". */
static void keep(char *out, size_t capacity, stk_str text)
{
    out[0] = 0;
    if (text.size_bytes >= capacity) return;
    for (size_t i = 0; i < text.size_bytes; i++)
        if ((uint8_t)text.data[i] < 0x20 || text.data[i] == 0x7f) return;
    memcpy(out, text.data, text.size_bytes);
    out[text.size_bytes] = 0;
}

/* Text on one line, as far as there is room. */
static void keep_line(char *out, size_t capacity, stk_str text)
{
    const size_t size = text.size_bytes < capacity ? text.size_bytes : capacity - 1;
    memcpy(out, text.data, size);
    out[size] = 0;
    stk_blank_controls(out);
}

static void read_length(stk_answer *a, stk_str value)
{
    a->has_length = take_number(&a->length_bytes, &value) && value.size_bytes == 0;
    if (!a->has_length) a->malformed = true;
}

/* "bytes 0-9/100", with * for an unknown total; "bytes * /100" (without the space) of a 416. */
static void read_range(stk_answer *a, stk_str value)
{
    static const char unit[] = "bytes";
    if (value.size_bytes < sizeof unit || strncasecmp(value.data, unit, sizeof unit - 1) != 0) {
        a->malformed = true;
        return;
    }
    value = trim((stk_str){value.data + sizeof unit - 1, value.size_bytes - (sizeof unit - 1)});
    bool good;
    if (take_char(&value, '*')) {
        a->first = 1;
        a->last = 0;
        good = true;
    } else {
        good = take_number(&a->first, &value) && take_char(&value, '-') && take_number(&a->last, &value) && a->first <= a->last &&
               a->last < UINT64_MAX;
    }
    good = good && take_char(&value, '/');
    if (good && take_char(&value, '*')) a->total_bytes = STK_UNKNOWN_BYTES;
    else good = good && take_number(&a->total_bytes, &value) && (a->first > a->last || a->last < a->total_bytes);
    a->has_range = good && value.size_bytes == 0;
    if (!a->has_range) a->malformed = true;
}

/* "Mon, 30 Nov 2026 11:33:17 GMT", the form that HTTP demands; 0 for any other. */
static int64_t read_date(stk_str value)
{
    char text[40];
    struct tm tm = {0};
    keep(text, sizeof text, value);
    const char *const end = strptime(text, "%a, %d %b %Y %H:%M:%S", &tm);
    if (!end || (strcmp(end, " GMT") != 0 && strcmp(end, " UTC") != 0)) return 0;
    const time_t seconds = timegm(&tm);
    return seconds > 0 ? (int64_t)seconds : 0;
}

static void read_retry_after(stk_answer *a, stk_str value)
{
    uint64_t seconds;
    stk_str rest = value;
    if (take_number(&seconds, &rest) && rest.size_bytes == 0) {
        a->retry_after_s = seconds > 3600 ? 3600 : (int64_t)seconds;
        return;
    }
    const int64_t until = read_date(value);
    if (until && a->date_s && until >= a->date_s) a->retry_after_s = until - a->date_s > 3600 ? 3600 : until - a->date_s;
}

/* Strongest last: the fast CRC is taken over SHA where both are given. */
static void read_checksum(stk_answer *a, stk_checksum_kind kind, stk_str value)
{
    if (value.size_bytes == 0 || memchr(value.data, '-', value.size_bytes)) return; /* "...-4": of the parts, not of the bytes */
    if (a->checksum != STK_CHECKSUM_NONE && a->checksum != kind && kind >= STK_CHECKSUM_SHA1) return;
    keep(a->checksum_text, sizeof a->checksum_text, value);
    if (a->checksum_text[0]) a->checksum = kind;
}

static void read_status(stk_answer *a, stk_str line)
{
    stk_answer_begin(a);
    const char *const space = memchr(line.data, ' ', line.size_bytes);
    stk_str rest = space ? trim((stk_str){space, line.size_bytes - (size_t)(space - line.data)}) : (stk_str){line.data, 0};
    uint64_t status;
    if (take_number(&status, &rest) && status >= 100 && status <= 999) a->status = (int)status;
    else a->malformed = true;
}

void stk_answer_line(stk_answer *a, stk_str line)
{
    if (line.size_bytes >= 5 && memcmp(line.data, "HTTP/", 5) == 0) {
        read_status(a, line);
        return;
    }
    const char *const colon = line.size_bytes ? memchr(line.data, ':', line.size_bytes) : NULL;
    if (!colon) return;
    const stk_str name = trim((stk_str){line.data, (size_t)(colon - line.data)});
    const stk_str value = trim((stk_str){colon + 1, line.size_bytes - (size_t)(colon + 1 - line.data)});
#define IS(text) (name.size_bytes == sizeof(text) - 1 && strncasecmp(name.data, text, sizeof(text) - 1) == 0)
    if (IS("content-length")) read_length(a, value);
    else if (IS("content-range")) read_range(a, value);
    else if (IS("etag")) keep(a->etag, sizeof a->etag, value);
    else if (IS("date")) a->date_s = read_date(value);
    else if (IS("retry-after")) read_retry_after(a, value);
    else if (IS("location")) keep(a->location, sizeof a->location, value);
    else if (IS("x-amz-bucket-region")) keep(a->region, sizeof a->region, value);
    else if (IS("x-amz-checksum-crc32")) read_checksum(a, STK_CHECKSUM_CRC32, value);
    else if (IS("x-amz-checksum-crc32c")) read_checksum(a, STK_CHECKSUM_CRC32C, value);
    else if (IS("x-amz-checksum-crc64nvme")) read_checksum(a, STK_CHECKSUM_CRC64NVME, value);
    else if (IS("x-amz-checksum-sha1")) read_checksum(a, STK_CHECKSUM_SHA1, value);
    else if (IS("x-amz-checksum-sha256")) read_checksum(a, STK_CHECKSUM_SHA256, value);
#undef IS
}

/* --- XML --- */

/* What the two readers below share: depth, the text of the element that is open, and why it ended early. */
typedef struct xml_reader {
    XML_Parser parser;
    int depth;
    char text[TEXT_BYTES];
    size_t length;
    bool too_long;
    void (*closed)(void *context, const char *name, int depth, stk_str text);
    void (*opened)(void *context, const char *name, int depth);
    void *context;
} xml_reader;

static const char *local_name(const char *name)
{
    const char *const colon = strrchr(name, ':');
    return colon ? colon + 1 : name;
}

static void XMLCALL on_start(void *data, const XML_Char *name, const XML_Char **attribute)
{
    xml_reader *const x = data;
    if (++x->depth > DEPTH) {
        XML_StopParser(x->parser, XML_FALSE);
        return;
    }
    x->length = 0;
    x->too_long = false;
    if (x->opened) x->opened(x->context, local_name(name), x->depth);
}

static void XMLCALL on_end(void *data, const XML_Char *name)
{
    xml_reader *const x = data;
    if (!x->too_long) x->closed(x->context, local_name(name), x->depth, (stk_str){x->text, x->length});
    x->depth--;
    x->length = 0;
}

static void XMLCALL on_text(void *data, const XML_Char *text, int length)
{
    xml_reader *const x = data;
    if (length < 0 || (size_t)length > sizeof x->text - x->length) {
        x->too_long = true;
        return;
    }
    memcpy(x->text + x->length, text, (size_t)length);
    x->length += (size_t)length;
}

static void XMLCALL on_document_type(void *data, const XML_Char *name, const XML_Char *system, const XML_Char *public, int internal)
{
    XML_StopParser(((xml_reader *)data)->parser, XML_FALSE);
}

/* False: no XML, or more than is taken. */
static bool read_xml(xml_reader *x, stk_bytes xml)
{
    if (xml.size_bytes > INT32_MAX) return false;
    x->parser = XML_ParserCreate(NULL);
    if (!x->parser) return false;
    XML_SetUserData(x->parser, x);
    XML_SetElementHandler(x->parser, on_start, on_end);
    XML_SetCharacterDataHandler(x->parser, on_text);
    XML_SetStartDoctypeDeclHandler(x->parser, on_document_type);
    const bool good = XML_Parse(x->parser, (const char *)xml.data, (int)xml.size_bytes, XML_TRUE) == XML_STATUS_OK;
    XML_ParserFree(x->parser);
    return good;
}

static void error_closed(void *context, const char *name, int depth, stk_str text)
{
    stk_answer *const a = context;
    if (depth < 2 || depth > 3) return; /* <Error><Code>, or <ErrorResponse><Error><Code> */
    text = trim(text);
    if (strcmp(name, "Code") == 0) keep(a->code, sizeof a->code, text);
    else if (strcmp(name, "Message") == 0) keep_line(a->message, sizeof a->message, text);
    else if (strcmp(name, "Region") == 0) keep(a->region, sizeof a->region, text);
}

void stk_answer_body(stk_answer *answer, stk_bytes body)
{
    size_t at = 0;
    while (at < body.size_bytes && strchr(" \t\r\n\xef\xbb\xbf", body.data[at]) && body.data[at]) at++;
    if (at == body.size_bytes || body.data[at] != '<') return;
    xml_reader x = {.closed = error_closed, .context = answer};
    (void)read_xml(&x, (stk_bytes){body.data + at, body.size_bytes - at}); /* what was read of a broken one counts */
}

/* --- what follows --- */

static bool code_is(const stk_answer *a, const char *const *names)
{
    for (; *names; names++)
        if (strcmp(a->code, *names) == 0) return true;
    return false;
}

static stk_verdict verdict_by_code(const stk_answer *a)
{
    static const struct { stk_verdict verdict; const char *names[12]; } codes[] = {
        {STK_VERDICT_THROTTLE, {"SlowDown", "SlowDownRead", "Throttling", "ThrottlingException", "ThrottledException", "RequestThrottled",
                                "RequestLimitExceeded", "BandwidthLimitExceeded", "TooManyRequests", "TooManyRequestsException"}},
        {STK_VERDICT_TRANSIENT, {"RequestTimeout", "BadDigest", "PriorRequestNotComplete", "InternalError", "OperationAborted",
                                 "IncompleteBody", "RequestTimeoutException"}},
        {STK_VERDICT_CLOCK, {"RequestTimeTooSkewed", "RequestInTheFuture"}},
        {STK_VERDICT_EXPIRED, {"ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired", "InvalidToken"}},
        {STK_VERDICT_CREDENTIALS, {"SignatureDoesNotMatch", "InvalidAccessKeyId", "AuthFailure", "InvalidTokenId", "InvalidClientTokenId",
                                   "NotSignedUp", "AccountProblem", "AllAccessDisabled"}},
        {STK_VERDICT_REGION, {"PermanentRedirect", "TemporaryRedirect", "Redirect", "IllegalLocationConstraintException"}},
        {STK_VERDICT_MISSING, {"NoSuchKey", "NoSuchVersion", "KeyTooLongError", "InvalidURI", "XMinioInvalidObjectName", "XMinioInvalidResourceName"}},
        {STK_VERDICT_NO_BUCKET, {"NoSuchBucket"}},
        {STK_VERDICT_ARCHIVED, {"InvalidObjectState"}},
        {STK_VERDICT_CHANGED, {"PreconditionFailed"}},
        {STK_VERDICT_PAST_END, {"InvalidRange"}},
    };
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
        if (code_is(a, codes[i].names)) return codes[i].verdict;
    return STK_VERDICT_FATAL;
}

static bool names_checksums(const stk_answer *a)
{
    return strcasestr(a->message, "checksum") || strcmp(a->code, "NotImplemented") == 0 ||
           (a->status == 501 && a->code[0] == 0);
}

/* A code is the store's own word; a proxy that has lost its store says 404 too, and has none. */
static stk_verdict absent(const stk_answer *a, bool store)
{
    const stk_verdict by_code = verdict_by_code(a);
    if (!store) return by_code == STK_VERDICT_NO_BUCKET ? by_code : STK_VERDICT_MISSING;
    if (!a->code[0]) return STK_VERDICT_UNSAID;
    return by_code == STK_VERDICT_FATAL ? STK_VERDICT_MISSING : by_code;
}

static stk_verdict store_verdict(const stk_answer *a, bool sent_checksum_mode)
{
    if (a->code[0]) {
        const stk_verdict by_code = verdict_by_code(a);
        if (by_code != STK_VERDICT_FATAL) return by_code;
    }
    const bool elsewhere = a->region[0] && (a->status == 301 || a->status == 302 || a->status == 307 || a->status == 308 ||
                                            strcmp(a->code, "AuthorizationHeaderMalformed") == 0);
    if (elsewhere) return STK_VERDICT_REGION;
    if ((a->status == 400 || a->status == 501) && sent_checksum_mode && names_checksums(a)) return STK_VERDICT_NO_CHECKSUMS;
    switch (a->status) {
    case 301: case 302: case 307: case 308: return STK_VERDICT_REGION; /* where to, a HEAD of the bucket will tell */
    case 400: return a->code[0] ? STK_VERDICT_FATAL : STK_VERDICT_BARE;
    case 401: return STK_VERDICT_CREDENTIALS;
    case 403: return a->code[0] ? STK_VERDICT_DENIED : STK_VERDICT_BARE;
    default: return STK_VERDICT_FATAL;
    }
}

stk_verdict stk_answer_verdict(const stk_answer *a, bool store, bool sent_checksum_mode)
{
    if (a->malformed) return STK_VERDICT_TRANSIENT;
    switch (a->status) {
    case 200: case 206: return STK_VERDICT_GOOD;
    case 404: case 410: return absent(a, store);
    case 408: case 425: case 500: case 502: case 504: return verdict_by_code(a) == STK_VERDICT_THROTTLE ? STK_VERDICT_THROTTLE : STK_VERDICT_TRANSIENT;
    case 412: return STK_VERDICT_CHANGED;
    case 416: return STK_VERDICT_PAST_END;
    case 429: case 503: return STK_VERDICT_THROTTLE;
    default: break;
    }
    if (store) return store_verdict(a, sent_checksum_mode);
    switch (a->status) {
    case 202: case 407: case 421: return STK_VERDICT_TRANSIENT; /* not yet; a proxy's own; the wrong connection */
    case 301: case 302: case 303: case 307: case 308: return a->location[0] ? STK_VERDICT_REDIRECT : STK_VERDICT_MISSING;
    default: return a->status >= 500 ? STK_VERDICT_TRANSIENT : a->status >= 400 ? STK_VERDICT_DENIED : STK_VERDICT_MISSING; /* of this address */
    }
}

/* --- lists --- */

typedef struct list_reader {
    stk_list_page *page;
    bool (*found)(void *context, const stk_source_entry *entry);
    void *context;
    bool in_contents, stopped, broken, no_memory, decode;
    bool has_key, has_size;
    stk_source_entry entry;
    char key[TEXT_BYTES], etag[STK_ETAG_BYTES];
    xml_reader xml;
} list_reader;

static int hex_of(char c)
{
    return is_digit(c) ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* encoding-type=url is the encoding of forms: "+" is a space. */
static size_t decode_key(char *out, stk_str text, bool decode)
{
    size_t length = 0;
    for (size_t i = 0; i < text.size_bytes; i++) {
        const char c = text.data[i];
        const int high = decode && c == '%' && i + 2 < text.size_bytes ? hex_of(text.data[i + 1]) : -1;
        const int low = high >= 0 ? hex_of(text.data[i + 2]) : -1;
        if (low >= 0) {
            out[length++] = (char)(high << 4 | low);
            i += 2;
        } else {
            out[length++] = decode && c == '+' ? ' ' : c;
        }
    }
    return length;
}

static void list_opened(void *context, const char *name, int depth)
{
    list_reader *const l = context;
    if (depth != 2 || strcmp(name, "Contents") != 0) return;
    l->in_contents = true;
    l->has_key = l->has_size = false;
    l->entry = (stk_source_entry){.etag = {l->etag, 0}};
}

static void close_entry(list_reader *l)
{
    l->in_contents = false;
    if (!l->has_key || !l->has_size) {
        l->broken = true;
        return;
    }
    if (!l->stopped && !l->found(l->context, &l->entry)) {
        l->stopped = true;
        XML_StopParser(l->xml.parser, XML_FALSE);
    }
}

static void list_closed(void *context, const char *name, int depth, stk_str text)
{
    list_reader *const l = context;
    if (depth == 2 && strcmp(name, "Contents") == 0) {
        close_entry(l);
    } else if (depth == 2 && strcmp(name, "IsTruncated") == 0) {
        l->page->truncated = stk_str_is(trim(text), "true");
    } else if (depth == 2 && strcmp(name, "NextContinuationToken") == 0) {
        stk_buffer_clear(&l->page->next);
        l->no_memory |= stk_buffer_append(&l->page->next, text.data, text.size_bytes, NULL) < 0;
    } else if (depth == 3 && l->in_contents && strcmp(name, "Key") == 0) {
        l->entry.key = (stk_str){l->key, decode_key(l->key, text, l->decode)};
        l->has_key = true;
    } else if (depth == 3 && l->in_contents && strcmp(name, "Size") == 0) {
        stk_str rest = trim(text);
        l->has_size = take_number(&l->entry.size_bytes, &rest) && rest.size_bytes == 0;
    } else if (depth == 3 && l->in_contents && strcmp(name, "ETag") == 0) {
        text = trim(text);
        const bool quoted = text.size_bytes && text.data[0] == '"'; /* rclone leaves the quotes out */
        if (text.size_bytes + (quoted ? 1 : 3) > sizeof l->etag) return;
        const int length = snprintf(l->etag, sizeof l->etag, quoted ? "%.*s" : "\"%.*s\"", (int)text.size_bytes, text.data);
        l->entry.etag = (stk_str){l->etag, (size_t)length};
    }
}

/* Whether the store did as encoding-type=url asks: it says so before the first key, or not at all. */
static bool says_encoded(stk_bytes xml)
{
    return memmem(xml.data, xml.size_bytes, "<EncodingType>url</EncodingType>", 32) != NULL;
}

stk_status stk_list_parse(stk_list_page *page, stk_bytes xml, bool (*found)(void *context, const stk_source_entry *entry),
                          void *context, stk_error *err)
{
    page->truncated = false;
    stk_buffer_clear(&page->next);
    list_reader *const l = stk_alloc(STK_TAG_SOURCE, sizeof *l);
    if (!l) return stk_fail(err, STK_ERR_NOMEM, "out of memory: a list");
    l->page = page;
    l->found = found;
    l->context = context;
    l->decode = says_encoded(xml);
    l->xml.opened = list_opened;
    l->xml.closed = list_closed;
    l->xml.context = l;
    const bool whole = xml.size_bytes && read_xml(&l->xml, xml);
    const bool stopped = l->stopped, no_memory = l->no_memory, broken = l->broken || !whole;
    stk_free(l);
    if (stopped) return stk_fail(err, STK_ERR_INTERRUPTED, "the list was stopped");
    if (no_memory) return stk_fail(err, STK_ERR_NOMEM, "out of memory: a list");
    if (broken) return stk_fail(err, STK_ERR_NETWORK, "the store answered a list with what is no list: check the endpoint");
    if (page->truncated && page->next.size_bytes == 0)
        return stk_fail(err, STK_ERR_NETWORK, "the store says that its list goes on, and does not say where");
    return STK_OK;
}
