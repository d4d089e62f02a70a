/* url.c - addresses taken apart, encoded, put together; and which network addresses are not public.
 *
 * Hosts are held to letters, digits, '.', '-', '_' (or an IPv6 literal), so that the parser here and the one of the
 * transport cannot disagree about where a URL leads. */
#include "source/url.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <strings.h>

/* --- text into a buffer of fixed size --- */

typedef struct writer {
    char *out;
    size_t capacity, length; /* length counts what did not fit too */
} writer;

static void put(writer *w, char c)
{
    if (w->length + 1 < w->capacity) w->out[w->length] = c;
    w->length++;
}

static void put_text(writer *w, stk_str text)
{
    for (size_t i = 0; i < text.size_bytes; i++) put(w, text.data[i]);
}

static bool fits(const writer *w)
{
    return w->length < w->capacity;
}

static size_t finish(writer *w)
{
    if (w->capacity) w->out[fits(w) ? w->length : 0] = 0;
    return w->length;
}

static bool is_lower(char c)
{
    return c >= 'a' && c <= 'z';
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_alnum(char c)
{
    return is_lower(c) || is_digit(c) || (c >= 'A' && c <= 'Z');
}

static void put_escape(writer *w, char c)
{
    static const char digit[] = "0123456789ABCDEF";
    put(w, '%');
    put(w, digit[(unsigned char)c >> 4]);
    put(w, digit[(unsigned char)c & 15]);
}

static void put_encoded(writer *w, stk_str text, bool keep_slash)
{
    for (size_t i = 0; i < text.size_bytes; i++) {
        const char c = text.data[i];
        if (is_alnum(c) || c == '-' || c == '.' || c == '_' || c == '~' || (c == '/' && keep_slash)) put(w, c);
        else put_escape(w, c);
    }
}

/* As written, but for what would break the request line. */
static void put_written(writer *w, stk_str text)
{
    for (size_t i = 0; i < text.size_bytes; i++) {
        const char c = text.data[i];
        if (c > 0x20 && c < 0x7f) put(w, c);
        else put_escape(w, c);
    }
}

size_t stk_url_encode(char *out, size_t capacity, stk_str text, bool keep_slash)
{
    writer w = {out, capacity, 0};
    put_encoded(&w, text, keep_slash);
    return finish(&w);
}

/* The next byte of a text as it stands encoded; *sub counts through an escape. */
static int encoded_at(stk_str text, size_t *at, int *sub)
{
    if (*at >= text.size_bytes) return -1;
    const stk_str one = {text.data + *at, 1};
    char escape[4];
    const size_t length = stk_url_encode(escape, sizeof escape, one, false);
    const int c = escape[(*sub)++];
    if ((size_t)*sub == length) {
        *sub = 0;
        ++*at;
    }
    return c;
}

/* Sorting is by the encoded bytes, where "%7B" comes before "z". */
static int compare_encoded(stk_str a, stk_str b)
{
    size_t a_at = 0, b_at = 0;
    int a_sub = 0, b_sub = 0;
    for (;;) {
        const int x = encoded_at(a, &a_at, &a_sub), y = encoded_at(b, &b_at, &b_sub);
        if (x != y) return x < y ? -1 : 1;
        if (x < 0) return 0;
    }
}

static int compare_pairs(const void *a, const void *b)
{
    const stk_query_pair *const x = a, *const y = b;
    const int order = compare_encoded(x->name, y->name);
    return order ? order : compare_encoded(x->value, y->value);
}

size_t stk_url_query(char *out, size_t capacity, stk_query_pair *pair, size_t count)
{
    writer w = {out, capacity, 0};
    if (count > 1) qsort(pair, count, sizeof *pair, compare_pairs);
    for (size_t i = 0; i < count; i++) {
        if (i) put(&w, '&');
        put_encoded(&w, pair[i].name, false);
        put(&w, '=');
        put_encoded(&w, pair[i].value, false);
    }
    return finish(&w);
}

/* --- taking apart --- */

static bool take_scheme(stk_str *rest, stk_str address, const char *scheme)
{
    const size_t length = strlen(scheme);
    if (address.size_bytes < length || strncasecmp(address.data, scheme, length) != 0) return false;
    *rest = (stk_str){address.data + length, address.size_bytes - length};
    return true;
}

static bool take_any_scheme(stk_url_kind *kind, stk_str *rest, stk_str address)
{
    static const char *const scheme[] = {
        [STK_URL_S3] = "s3://", [STK_URL_HTTP] = "http://", [STK_URL_HTTPS] = "https://"};
    for (int i = STK_URL_S3; i <= STK_URL_HTTPS; i++) {
        if (!take_scheme(rest, address, scheme[i])) continue;
        *kind = (stk_url_kind)i;
        return true;
    }
    return false;
}

bool stk_url_is_remote(stk_str address)
{
    stk_url_kind kind;
    stk_str rest;
    return take_any_scheme(&kind, &rest, address);
}

/* The bytes before the first of any of stops; *text begins with that stop afterwards. */
static stk_str take_until(stk_str *text, const char *stops)
{
    size_t length = 0;
    while (length < text->size_bytes && (!text->data[length] || !strchr(stops, text->data[length]))) length++;
    const stk_str taken = {text->data, length};
    *text = (stk_str){text->data + length, text->size_bytes - length};
    return taken;
}

static stk_str without_first(stk_str text)
{
    return text.size_bytes ? (stk_str){text.data + 1, text.size_bytes - 1} : text;
}

const char *stk_url_show(char *out, size_t capacity, stk_str address)
{
    stk_url_kind kind = STK_URL_S3;
    stk_str rest = address, shown = address;
    writer w = {out, capacity, 0};
    if (take_any_scheme(&kind, &rest, address) && kind != STK_URL_S3) {
        shown = take_until(&rest, "?#");
        put_text(&w, kind == STK_URL_HTTP ? stk_str_of("http://") : stk_str_of("https://"));
        stk_str path = shown;
        const stk_str authority = take_until(&path, "/");
        for (size_t i = 0; i < authority.size_bytes; i++)
            if (authority.data[i] == '@')
                shown = (stk_str){authority.data + i + 1,
                                  (size_t)(shown.data + shown.size_bytes - (authority.data + i + 1))};
    }
    for (size_t i = 0; i < shown.size_bytes && w.length + 1 < w.capacity; i++) {
        const char c = shown.data[i];
        put(&w, (unsigned char)c < 0x20 || c == 0x7f ? '?' : c);
    }
    finish(&w);
    return out;
}

bool stk_bucket_is_valid(stk_str bucket)
{
    if (bucket.size_bytes < 1 || bucket.size_bytes > 255 || !is_alnum(bucket.data[0])) return false;
    for (size_t i = 0; i < bucket.size_bytes; i++) {
        const char c = bucket.data[i];
        if (!is_alnum(c) && c != '.' && c != '-' && c != '_') return false;
    }
    return true;
}

static bool is_ipv4_text(stk_str text)
{
    char copy[INET_ADDRSTRLEN];
    struct in_addr address;
    if (text.size_bytes >= sizeof copy) return false;
    memcpy(copy, text.data, text.size_bytes);
    copy[text.size_bytes] = 0;
    return inet_pton(AF_INET, copy, &address) == 1;
}

bool stk_bucket_is_hostable(stk_str bucket, bool dots)
{
    if (bucket.size_bytes < 3 || bucket.size_bytes > 63) return false;
    for (size_t i = 0; i < bucket.size_bytes; i++) {
        const char c = bucket.data[i];
        const bool inside = i > 0 && i + 1 < bucket.size_bytes;
        const bool dot = c == '.' && dots && bucket.data[i - (i > 0)] != '.' && bucket.data[i - (i > 0)] != '-';
        if (is_lower(c) || is_digit(c)) continue;
        if (!inside || (c != '-' && !dot) || (c == '-' && bucket.data[i - 1] == '.')) return false;
    }
    return !is_ipv4_text(bucket);
}

bool stk_region_is_valid(stk_str region)
{
    bool number = true;
    if (region.size_bytes < 1 || region.size_bytes > 63) return false;
    for (size_t i = 0; i < region.size_bytes; i++) {
        if (!is_alnum(region.data[i]) && region.data[i] != '-') return false;
        number = number && is_digit(region.data[i]);
    }
    return !number && region.data[0] != '-' && region.data[region.size_bytes - 1] != '-';
}

static stk_status parse_s3(stk_url *out, stk_str rest, stk_error *err)
{
    out->bucket = take_until(&rest, "/");
    out->key = without_first(rest);
    if (out->bucket.size_bytes == 0)
        return stk_fail(err, STK_ERR_OPTION, "an s3:// address without a bucket: write s3://bucket/key");
    if (!stk_bucket_is_valid(out->bucket))
        return stk_fail(err, STK_ERR_OPTION,
                        "\"%.*s\" is no bucket name: one has letters, digits, '.', '-' and '_' only",
                        STK_STR_ARGS(out->bucket));
    if (out->bucket.size_bytes > 6 && memcmp(out->bucket.data + out->bucket.size_bytes - 6, "--x-s3", 6) == 0)
        return stk_fail(err, STK_ERR_OPTION,
                        "\"%.*s\" is a directory bucket (S3 Express), which is not supported: use a general "
                        "purpose bucket",
                        STK_STR_ARGS(out->bucket));
    if (out->key.size_bytes > STK_URL_KEY_BYTES)
        return stk_fail(err, STK_ERR_OPTION, "a key of %zu bytes: S3 has at most %d", out->key.size_bytes,
                        STK_URL_KEY_BYTES);
    return STK_OK;
}

static stk_status parse_port(stk_url *out, stk_str text, stk_error *err)
{
    unsigned port = 0;
    for (size_t i = 0; i < text.size_bytes && port <= UINT16_MAX; i++) {
        if (!is_digit(text.data[i])) return stk_fail(err, STK_ERR_OPTION, "the port of a URL must be a number");
        port = port * 10 + (unsigned)(text.data[i] - '0');
    }
    if (port < 1 || port > UINT16_MAX) return stk_fail(err, STK_ERR_OPTION, "the port of a URL must be 1 to 65535");
    out->port = (uint16_t)port;
    return STK_OK;
}

static bool is_host(stk_str host)
{
    for (size_t i = 0; i < host.size_bytes; i++) {
        const char c = host.data[i];
        if (!is_alnum(c) && c != '.' && c != '-' && c != '_') return false;
    }
    return host.size_bytes > 0 && host.size_bytes < 254 && is_alnum(host.data[0]);
}

static bool is_ipv6_text(stk_str text)
{
    char copy[INET6_ADDRSTRLEN];
    struct in6_addr address;
    if (text.size_bytes >= sizeof copy || memchr(text.data, 0, text.size_bytes)) return false;
    memcpy(copy, text.data, text.size_bytes);
    copy[text.size_bytes] = 0;
    return inet_pton(AF_INET6, copy, &address) == 1;
}

static stk_status parse_authority(stk_url *out, stk_str authority, stk_error *err)
{
    if (authority.size_bytes && memchr(authority.data, '@', authority.size_bytes))
        return stk_fail(err, STK_ERR_OPTION,
                        "a URL with a user name or password is not taken: keep secrets out of addresses");
    if (authority.size_bytes && authority.data[0] == '[') {
        authority = without_first(authority);
        out->host = take_until(&authority, "]");
        out->is_ipv6 = true;
        if (!authority.size_bytes || !is_ipv6_text(out->host))
            return stk_fail(err, STK_ERR_OPTION, "a URL with '[' needs an IPv6 address and ']'");
        authority = without_first(authority);
        if (authority.size_bytes && authority.data[0] != ':')
            return stk_fail(err, STK_ERR_OPTION, "after the ']' of a URL only a port may stand");
    } else {
        out->host = take_until(&authority, ":");
        if (!is_host(out->host))
            return stk_fail(err, STK_ERR_OPTION,
                            "the host of a URL must have letters, digits, '.', '-' and '_' only (other "
                            "alphabets: its xn-- form)");
    }
    if (authority.size_bytes) STK_TRY(parse_port(out, without_first(authority), err));
    return STK_OK;
}

stk_status stk_url_parse(stk_url *out, stk_str address, stk_error *err)
{
    stk_str rest;
    *out = (stk_url){0};
    if (!take_any_scheme(&out->kind, &rest, address))
        return stk_fail(err, STK_ERR_OPTION, "an address must begin with s3://, http:// or https://");
    if (out->kind == STK_URL_S3) return parse_s3(out, rest, err);
    out->port = out->kind == STK_URL_HTTPS ? 443 : 80;
    const stk_str authority = take_until(&rest, "/?#");
    STK_TRY(parse_authority(out, authority, err));
    out->path = take_until(&rest, "?#");
    if (rest.size_bytes && rest.data[0] == '?') {
        rest = without_first(rest);
        out->query = take_until(&rest, "#");
    } else {
        out->query = (stk_str){rest.data, 0};
    }
    return STK_OK;
}

/* --- putting together --- */

stk_status stk_endpoint_init(stk_endpoint *out, const char *endpoint, const char *region, stk_addressing addressing,
                             stk_error *err)
{
    *out = (stk_endpoint){.is_aws = !endpoint, .tls = true, .port = 443, .addressing = addressing};
    if (!region || !stk_region_is_valid(stk_str_of(region)))
        return stk_fail(err, STK_ERR_OPTION, "\"%.80s\" is no region: write one like eu-central-1",
                        region ? region : "");
    memcpy(out->region, region, strlen(region));
    if (!endpoint) return STK_OK;

    stk_url url;
    stk_error why;
    if (stk_url_parse(&url, stk_str_of(endpoint), &why) < 0)
        return stk_fail(err, STK_ERR_OPTION, "the endpoint of the store: %.180s", why.message);
    if (url.kind == STK_URL_S3 || url.query.size_bytes)
        return stk_fail(err, STK_ERR_OPTION, "the endpoint of the store must be http(s)://host[:port], without a query");
    out->tls = url.kind == STK_URL_HTTPS;
    out->port = url.port;
    out->is_ip = url.is_ipv6 || is_ipv4_text(url.host);
    writer host = {out->host, sizeof out->host, 0}, path = {out->path, sizeof out->path, 0};
    if (url.is_ipv6) put(&host, '[');
    put_text(&host, url.host);
    if (url.is_ipv6) put(&host, ']');
    while (url.path.size_bytes && url.path.data[url.path.size_bytes - 1] == '/') url.path.size_bytes--;
    put_written(&path, url.path);
    finish(&host);
    finish(&path);
    if (!fits(&host) || !fits(&path)) return stk_fail(err, STK_ERR_OPTION, "the endpoint is too long");
    return STK_OK;
}

stk_status stk_endpoint_set_region(stk_endpoint *endpoint, stk_str region, stk_error *err)
{
    if (!stk_region_is_valid(region))
        return stk_fail(err, STK_ERR_NETWORK, "the store names a region that is none: \"%.*s\"",
                        STK_STR_ARGS(region));
    memset(endpoint->region, 0, sizeof endpoint->region);
    memcpy(endpoint->region, region.data, region.size_bytes);
    return STK_OK;
}

/* The partitions of AWS that have a domain of their own. */
const char *stk_aws_domain(const char *region)
{
    static const char *const domain[][2] = {
        {"cn-", "amazonaws.com.cn"}, {"us-iso-", "c2s.ic.gov"},  {"us-isob-", "sc2s.sgov.gov"},
        {"eu-isoe-", "cloud.adc-e.uk"}, {"us-isof-", "csp.hci.ic.gov"}, {"eusc-", "amazonaws.eu"},
    };
    for (size_t i = 0; i < sizeof domain / sizeof *domain; i++)
        if (strncmp(region, domain[i][0], strlen(domain[i][0])) == 0) return domain[i][1];
    return "amazonaws.com";
}

static void put_port(writer *w, bool tls, uint16_t port)
{
    if (port == (tls ? 443 : 80)) return;
    char digits[8];
    int count = 0;
    for (unsigned left = port; left; left /= 10) digits[count++] = (char)('0' + left % 10);
    put(w, ':');
    while (count) put(w, digits[--count]);
}

/* Finish a URL whose host and path lie at these places of the buffer. */
static stk_status finish_wire(stk_wire *out, writer *w, size_t host_at, size_t path_at, stk_str query,
                              bool tls, stk_error *err)
{
    const size_t path_end = w->length;
    if (query.size_bytes) {
        put(w, '?');
        put_written(w, query);
    }
    finish(w);
    if (!fits(w)) return stk_fail(err, STK_ERR_OPTION, "a URL of %zu bytes is too long", w->length);
    const size_t query_at = query.size_bytes ? path_end + 1 : path_end;
    *out = (stk_wire){.url = w->out,
                      .host = {w->out + host_at, path_at - host_at},
                      .path = {w->out + path_at, path_end - path_at},
                      .query = {w->out + query_at, w->length - query_at},
                      .tls = tls};
    return STK_OK;
}

stk_status stk_endpoint_wire(stk_wire *out, char *buffer, size_t capacity, const stk_endpoint *endpoint,
                             stk_str bucket, stk_str key, stk_str query, stk_error *err)
{
    writer w = {buffer, capacity, 0};
    /* `virtual` cannot be had for every name: as the SDKs do, the others are asked for by path. */
    const bool wants_host = endpoint->addressing == STK_ADDRESSING_VIRTUAL ||
                            (endpoint->addressing == STK_ADDRESSING_AUTO && endpoint->is_aws);
    const bool in_host = wants_host && !endpoint->is_ip && stk_bucket_is_hostable(bucket, !endpoint->tls);
    put_text(&w, endpoint->tls ? stk_str_of("https://") : stk_str_of("http://"));
    const size_t host_at = w.length;
    if (in_host) {
        put_text(&w, bucket);
        put(&w, '.');
    }
    if (endpoint->is_aws) {
        put_text(&w, stk_str_of("s3."));
        put_text(&w, stk_str_of(endpoint->region));
        put(&w, '.');
        put_text(&w, stk_str_of(stk_aws_domain(endpoint->region)));
    } else {
        put_text(&w, stk_str_of(endpoint->host));
    }
    put_port(&w, endpoint->tls, endpoint->port);
    const size_t path_at = w.length;
    put_text(&w, stk_str_of(endpoint->path));
    put(&w, '/');
    if (!in_host) {
        put_encoded(&w, bucket, false);
        if (key.size_bytes) put(&w, '/');
    }
    put_encoded(&w, key, true);
    return finish_wire(out, &w, host_at, path_at, query, endpoint->tls, err);
}

stk_status stk_url_wire(stk_wire *out, char *buffer, size_t capacity, const stk_url *url, stk_error *err)
{
    writer w = {buffer, capacity, 0};
    const bool tls = url->kind == STK_URL_HTTPS;
    put_text(&w, tls ? stk_str_of("https://") : stk_str_of("http://"));
    const size_t host_at = w.length;
    if (url->is_ipv6) put(&w, '[');
    put_text(&w, url->host);
    if (url->is_ipv6) put(&w, ']');
    put_port(&w, tls, url->port);
    const size_t path_at = w.length;
    if (!url->path.size_bytes) put(&w, '/');
    put_written(&w, url->path);
    return finish_wire(out, &w, host_at, path_at, url->query, tls, err);
}

/* --- network addresses --- */

static const char *private_ipv4(uint32_t a) /* host byte order */
{
    static const struct {
        uint32_t network;
        int bits;
        const char *kind;
    } block[] = {
        {0xa9fea9fe, 32, "metadata"},   /* 169.254.169.254 */
        {0xa83f8110, 32, "metadata"},   /* 168.63.129.16, Azure's, in the middle of the public range */
        {0x646464c8, 32, "metadata"}, /* 100.100.100.200, Alibaba's */
        {0x00000000, 8, "unspecified"}, /* reaches the own machine on Linux */
        {0x7f000000, 8, "loopback"},
        {0xa9fe0000, 16, "link-local"},
        {0x0a000000, 8, "private"},
        {0xac100000, 12, "private"},
        {0xc0a80000, 16, "private"},
        {0x64400000, 10, "shared"},     /* 100.64/10, carrier-grade NAT */
        {0xc0000000, 24, "reserved"},   /* 192.0.0/24, and Oracle's metadata in it */
        {0xc0000200, 24, "reserved"},   /* documentation */
        {0xc6336400, 24, "reserved"},
        {0xcb007100, 24, "reserved"},
        {0xc0586300, 24, "reserved"},   /* 6to4 relays */
        {0xc6120000, 15, "reserved"},   /* benchmarks */
        {0xe0000000, 4, "multicast"},
        {0xf0000000, 4, "reserved"},    /* broadcast too */
    };
    for (size_t i = 0; i < sizeof block / sizeof *block; i++)
        if ((a ^ block[i].network) >> (32 - block[i].bits) == 0) return block[i].kind;
    return NULL;
}

static uint32_t ipv4_at(const uint8_t *byte)
{
    return (uint32_t)byte[0] << 24 | (uint32_t)byte[1] << 16 | (uint32_t)byte[2] << 8 | byte[3];
}

static const char *private_ipv6(const uint8_t a[16])
{
    static const uint8_t zero[12], nat64[12] = {0x00, 0x64, 0xff, 0x9b}, mapped[12] = {[10] = 0xff, [11] = 0xff},
                                   translated[12] = {[8] = 0xff, [9] = 0xff};
    static const uint8_t metadata[16] = {0xfd, 0x00, 0x0e, 0xc2, [14] = 0x02, [15] = 0x54};
    if (memcmp(a, zero, 12) == 0) {
        const uint32_t low = ipv4_at(a + 12);
        return low == 1 ? "loopback" : low == 0 ? "unspecified" : "reserved"; /* ::a.b.c.d went out of use */
    }
    if (memcmp(a, mapped, 12) == 0 || memcmp(a, nat64, 12) == 0 || memcmp(a, translated, 12) == 0)
        return private_ipv4(ipv4_at(a + 12));
    if (memcmp(a, metadata, 16) == 0) return "metadata";
    if (a[0] == 0x20 && a[1] == 0x02) return private_ipv4(ipv4_at(a + 2));              /* 6to4 */
    if (a[0] == 0x20 && a[1] == 0x01 && a[2] == 0 && a[3] == 0) return "tunnelled";    /* Teredo */
    if (a[0] == 0x20 && a[1] == 0x01 && a[2] == 0x0d && a[3] == 0xb8) return "reserved"; /* documentation */
    if (memcmp(a, nat64, 4) == 0 && a[4] == 0 && a[5] == 1) return "private";           /* 64:ff9b:1::/48 */
    if (a[0] == 0xfe && (a[1] & 0xc0) == 0x80) return "link-local";
    if (a[0] == 0xfe && (a[1] & 0xc0) == 0xc0) return "private"; /* site-local, out of use */
    if ((a[0] & 0xfe) == 0xfc) return "private";                 /* unique local */
    if (a[0] == 0xff) return "multicast";
    return (a[0] & 0xe0) == 0x20 ? NULL : "reserved"; /* only 2000::/3 is the public internet */
}

const char *stk_address_private(const struct sockaddr *address)
{
    if (address->sa_family == AF_INET) {
        struct sockaddr_in in;
        memcpy(&in, address, sizeof in);
        return private_ipv4(ntohl(in.sin_addr.s_addr));
    }
    if (address->sa_family == AF_INET6) {
        struct sockaddr_in6 in6;
        memcpy(&in6, address, sizeof in6);
        return private_ipv6(in6.sin6_addr.s6_addr);
    }
    return "unknown";
}
