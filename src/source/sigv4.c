/* sigv4.c - the canonical request goes straight into the digest; no text of it is kept.
 *
 *     HMAC(key(secret, date, region, service), "AWS4-HMAC-SHA256\n" time "\n" scope "\n" SHA256(canonical request))
 *
 * The HMAC is two digests over the digest context, because EVP_MAC allocates on each start. */
#include "source/sigv4.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <time.h>

enum { DIGEST_BYTES = 32, BLOCK_BYTES = 64, KEY_COUNT = 8 };

typedef struct signing_key {
    uint64_t generation; /* 0: none */
    char date[9], region[64], service[16];
    uint8_t bytes[DIGEST_BYTES];
} signing_key;

struct stk_signer {
    EVP_MD *md;
    EVP_MD_CTX *context;
    bool failed; /* a call of OpenSSL did, since stk_sign began */
    unsigned next_key;
    signing_key key[KEY_COUNT];
};

stk_status stk_signer_create(stk_signer **out, stk_error *err)
{
    *out = NULL;
    stk_signer *const s = stk_alloc(STK_TAG_SOURCE, sizeof *s);
    if (!s) return stk_fail(err, STK_ERR_NOMEM, "out of memory: a signer");
    s->md = EVP_MD_fetch(NULL, "SHA256", NULL);
    s->context = EVP_MD_CTX_new();
    if (!s->md || !s->context || !EVP_DigestInit_ex2(s->context, s->md, NULL)) {
        stk_signer_destroy(s);
        return stk_fail(err, STK_ERR_SYSTEM,
                        "OpenSSL gives no SHA-256, which signing needs: check its configuration");
    }
    *out = s;
    return STK_OK;
}

void stk_signer_destroy(stk_signer *s)
{
    if (!s) return;
    EVP_MD_CTX_free(s->context);
    EVP_MD_free(s->md);
    OPENSSL_cleanse(s, sizeof *s);
    stk_free(s);
}

/* --- digests --- */

static void digest_start(stk_signer *s)
{
    if (!EVP_DigestInit_ex2(s->context, NULL, NULL)) s->failed = true;
}

static void digest_add(stk_signer *s, const void *data, size_t size_bytes)
{
    if (size_bytes && !EVP_DigestUpdate(s->context, data, size_bytes)) s->failed = true;
}

static void digest_text(stk_signer *s, const char *text)
{
    digest_add(s, text, strlen(text));
}

static void digest_end(stk_signer *s, uint8_t out[DIGEST_BYTES])
{
    if (!EVP_DigestFinal_ex(s->context, out, NULL)) s->failed = true;
}

static void hmac_start(stk_signer *s, const uint8_t *key, size_t key_bytes, uint8_t outer[BLOCK_BYTES])
{
    uint8_t inner[BLOCK_BYTES] = {0}; /* a longer key is its digest (RFC 2104) */
    if (key_bytes > BLOCK_BYTES) {
        digest_start(s);
        digest_add(s, key, key_bytes);
        digest_end(s, inner);
    } else {
        memcpy(inner, key, key_bytes);
    }
    for (int i = 0; i < BLOCK_BYTES; i++) {
        outer[i] = inner[i] ^ 0x5c;
        inner[i] ^= 0x36;
    }
    digest_start(s);
    digest_add(s, inner, sizeof inner);
    OPENSSL_cleanse(inner, sizeof inner);
}

static void hmac_end(stk_signer *s, uint8_t outer[BLOCK_BYTES], uint8_t out[DIGEST_BYTES])
{
    digest_end(s, out);
    digest_start(s);
    digest_add(s, outer, BLOCK_BYTES);
    digest_add(s, out, DIGEST_BYTES);
    digest_end(s, out);
    OPENSSL_cleanse(outer, BLOCK_BYTES);
}

static void hmac(stk_signer *s, uint8_t out[DIGEST_BYTES], const uint8_t *key, size_t key_bytes, const char *text)
{
    uint8_t outer[BLOCK_BYTES];
    hmac_start(s, key, key_bytes, outer);
    digest_text(s, text);
    hmac_end(s, outer, out);
}

static void hex(char out[65], const uint8_t in[DIGEST_BYTES])
{
    static const char digit[] = "0123456789abcdef";
    for (int i = 0; i < DIGEST_BYTES; i++) {
        out[2 * i] = digit[in[i] >> 4];
        out[2 * i + 1] = digit[in[i] & 15];
    }
    out[64] = 0;
}

static stk_status openssl_failed(stk_error *err)
{
    return stk_fail(err, STK_ERR_SYSTEM, "OpenSSL failed to compute a SHA-256: check its configuration");
}

stk_status stk_signer_sha256(stk_signer *s, char out[65], const void *data, size_t size_bytes, stk_error *err)
{
    uint8_t digest[DIGEST_BYTES];
    s->failed = false;
    digest_start(s);
    digest_add(s, data, size_bytes);
    digest_end(s, digest);
    hex(out, digest);
    return s->failed ? openssl_failed(err) : STK_OK;
}

/* --- the signing key --- */

static void make_key(stk_signer *s, signing_key *key, const stk_sign_request *r, const char *date)
{
    uint8_t outer[BLOCK_BYTES], start[BLOCK_BYTES];
    const size_t secret_bytes = strlen(r->credentials->secret_key);
    /* "AWS4" and the secret are the first key; longer than a block, their digest is. */
    memset(start, 0, sizeof start);
    size_t start_bytes = secret_bytes + 4;
    if (start_bytes <= sizeof start) {
        memcpy(start, "AWS4", 4);
        memcpy(start + 4, r->credentials->secret_key, secret_bytes);
    } else {
        digest_start(s);
        digest_add(s, "AWS4", 4);
        digest_add(s, r->credentials->secret_key, secret_bytes);
        digest_end(s, start);
        start_bytes = DIGEST_BYTES;
    }
    hmac_start(s, start, start_bytes, outer);
    digest_text(s, date);
    hmac_end(s, outer, key->bytes);
    hmac(s, key->bytes, key->bytes, DIGEST_BYTES, r->region);
    hmac(s, key->bytes, key->bytes, DIGEST_BYTES, r->service);
    hmac(s, key->bytes, key->bytes, DIGEST_BYTES, "aws4_request");
    OPENSSL_cleanse(start, sizeof start);
    key->generation = s->failed ? 0 : r->credentials->generation;
    snprintf(key->date, sizeof key->date, "%s", date);
    snprintf(key->region, sizeof key->region, "%s", r->region);
    snprintf(key->service, sizeof key->service, "%s", r->service);
}

static const signing_key *key_of(stk_signer *s, const stk_sign_request *r, const char *date)
{
    for (int i = 0; i < KEY_COUNT; i++) {
        const signing_key *const key = &s->key[i];
        if (key->generation == r->credentials->generation && key->generation && strcmp(key->date, date) == 0 &&
            strcmp(key->region, r->region) == 0 && strcmp(key->service, r->service) == 0)
            return key;
    }
    signing_key *const key = &s->key[s->next_key];
    s->next_key = (s->next_key + 1) % KEY_COUNT;
    make_key(s, key, r, date);
    return key;
}

/* --- headers --- */

/* The headers of one request, and the buffer that their lines go to. */
typedef struct lines {
    char *at, *end;
    bool full;
    stk_signed *out;
} lines;

static void put(lines *l, const char *data, size_t size_bytes)
{
    if (size_bytes >= (size_t)(l->end - l->at)) {
        l->full = true;
        return;
    }
    if (size_bytes) memcpy(l->at, data, size_bytes);
    l->at += size_bytes;
}

static void begin_line(lines *l)
{
    l->out->line[l->out->count++] = l->at;
}

static void end_line(lines *l)
{
    if (l->at < l->end) *l->at++ = 0; /* put left room for it */
}

static void put_line(lines *l, const char *name, stk_str value)
{
    begin_line(l);
    put(l, name, strlen(name));
    put(l, ": ", 2);
    put(l, value.data, value.size_bytes);
    end_line(l);
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

/* Without blanks at the ends, and with one space for many inside. */
static void digest_value(stk_signer *s, stk_str value)
{
    size_t i = 0, end = value.size_bytes;
    while (i < end && is_blank(value.data[i])) i++;
    while (end > i && is_blank(value.data[end - 1])) end--;
    while (i < end) {
        size_t stop = i;
        while (stop < end && !is_blank(value.data[stop])) stop++;
        digest_add(s, value.data + i, stop - i);
        for (i = stop; i < end && is_blank(value.data[i]); i++) {}
        if (i < end) digest_add(s, " ", 1);
    }
}

static bool is_clean(stk_str text)
{
    for (size_t i = 0; i < text.size_bytes; i++)
        if (((unsigned char)text.data[i] < 0x20 && text.data[i] != '\t') || text.data[i] == 0x7f) return false;
    return true;
}

static stk_status check(const stk_sign_request *r, stk_error *err)
{
    bool clean =
        is_clean(r->host) && is_clean(r->path) && is_clean(r->query) && r->header_count <= STK_SIGN_HEADERS;
    for (size_t i = 0; clean && i < r->header_count; i++)
        clean = is_clean(r->header[i].value) && is_clean(stk_str_of(r->header[i].name));
    if (!clean) return stk_fail(err, STK_ERR_USAGE, "too many headers, or a control character in one");
    if (!stk_region_is_valid(stk_str_of(r->region)) || strlen(r->service) >= sizeof((signing_key *)0)->service)
        return stk_fail(err, STK_ERR_USAGE, "no region or service to sign for");
    return STK_OK;
}

/* Host, what the signature adds, and what the caller gives, by name.  Insertion: there are a handful. */
static size_t collect(stk_header *header, const stk_sign_request *r, const char *time_text, const char *payload)
{
    size_t count = 0;
    stk_header all[STK_SIGN_HEADERS + 4];
    all[count++] = (stk_header){"host", r->host};
    if (!r->credentials->anonymous) {
        all[count++] = (stk_header){"x-amz-date", stk_str_of(time_text)};
        if (strcmp(r->service, "s3") == 0) all[count++] = (stk_header){"x-amz-content-sha256", stk_str_of(payload)};
        if (r->credentials->session_token[0])
            all[count++] = (stk_header){"x-amz-security-token", stk_str_of(r->credentials->session_token)};
    }
    for (size_t i = 0; i < r->header_count; i++) all[count++] = r->header[i];
    for (size_t i = 0; i < count; i++) {
        size_t at = i;
        for (; at && strcmp(header[at - 1].name, all[i].name) > 0; at--) header[at] = header[at - 1];
        header[at] = all[i];
    }
    return count;
}

static void digest_names(stk_signer *s, const stk_header *header, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (i) digest_add(s, ";", 1);
        digest_text(s, header[i].name);
    }
}

static void digest_request(stk_signer *s, const stk_sign_request *r, const stk_header *header, size_t count,
                           const char *payload, char out[65])
{
    uint8_t digest[DIGEST_BYTES];
    digest_start(s);
    digest_text(s, r->method);
    digest_add(s, "\n", 1);
    digest_add(s, r->path.data, r->path.size_bytes);
    digest_add(s, "\n", 1);
    digest_add(s, r->query.data, r->query.size_bytes);
    digest_add(s, "\n", 1);
    for (size_t i = 0; i < count; i++) {
        digest_text(s, header[i].name);
        digest_add(s, ":", 1);
        digest_value(s, header[i].value);
        digest_add(s, "\n", 1);
    }
    digest_add(s, "\n", 1);
    digest_names(s, header, count);
    digest_add(s, "\n", 1);
    digest_text(s, payload);
    digest_end(s, digest);
    hex(out, digest);
}

stk_status stk_sign(stk_signer *s, stk_signed *out, char *buffer, size_t capacity_bytes,
                    const stk_sign_request *r, stk_error *err)
{
    out->count = 0;
    STK_TRY(check(r, err));
    struct tm tm;
    const time_t seconds = (time_t)r->unix_seconds;
    char time_text[17], date[9], scope[128], request_hash[65];
    if (!gmtime_r(&seconds, &tm) || strftime(time_text, sizeof time_text, "%Y%m%dT%H%M%SZ", &tm) != 16)
        return stk_fail(err, STK_ERR_USAGE, "no time to sign at: check the clock of this machine");
    memcpy(date, time_text, 8);
    date[8] = 0;
    snprintf(scope, sizeof scope, "%s/%s/%s/aws4_request", date, r->region, r->service);

    const char *const payload = r->payload_sha256 ? r->payload_sha256 : STK_SHA256_EMPTY;
    stk_header header[STK_SIGN_HEADERS + 4];
    const size_t count = collect(header, r, time_text, payload);
    lines l = {buffer, buffer + capacity_bytes, false, out};
    for (size_t i = 0; i < count; i++) put_line(&l, header[i].name, header[i].value);

    s->failed = false;
    if (!r->credentials->anonymous) {
        uint8_t outer[BLOCK_BYTES], digest[DIGEST_BYTES];
        char signature[65];
        const signing_key *const key = key_of(s, r, date);
        digest_request(s, r, header, count, payload, request_hash);
        hmac_start(s, key->bytes, DIGEST_BYTES, outer);
        digest_text(s, "AWS4-HMAC-SHA256\n");
        digest_text(s, time_text);
        digest_add(s, "\n", 1);
        digest_text(s, scope);
        digest_add(s, "\n", 1);
        digest_text(s, request_hash);
        hmac_end(s, outer, digest);
        hex(signature, digest);

        begin_line(&l);
        put(&l, "Authorization: AWS4-HMAC-SHA256 Credential=", 43);
        put(&l, r->credentials->access_key, strlen(r->credentials->access_key));
        put(&l, "/", 1);
        put(&l, scope, strlen(scope));
        put(&l, ", SignedHeaders=", 16);
        for (size_t i = 0; i < count; i++) {
            if (i) put(&l, ";", 1);
            put(&l, header[i].name, strlen(header[i].name));
        }
        put(&l, ", Signature=", 12);
        put(&l, signature, 64);
        end_line(&l);
    }
    if (s->failed) return openssl_failed(err);
    if (l.full)
        return stk_fail(err, STK_ERR_USAGE, "the headers of a signature need more than %zu bytes",
                        capacity_bytes);
    return STK_OK;
}
