/* url.h - addresses of remote bytes: taken apart, percent-encoded, and put together for the wire.
 *
 *     s3://bucket/key                 the key's bytes as they are: spaces, +, %, //, dots and unicode reach the store unchanged
 *     http(s)://host[:port]/path?query    as written; only bytes that cannot stand in a request line are encoded
 *
 * What comes out never holds a control character, a space or a byte above 0x7e, so no key can inject a header.
 * Nothing here allocates.  Not here: which hosts a manifest may name (places.c), redirects (store_jobs.c). */
#ifndef STK_SOURCE_URL_H
#define STK_SOURCE_URL_H

#include <sys/socket.h>

#include "base/bytes.h"
#include "base/error.h"

enum {
    STK_URL_KEY_BYTES = 1024,  /* the longest key of S3 */
    STK_URL_BYTES = 4096 + 512 /* room for the URL of any key, with its NUL and a short query */
};

typedef enum stk_url_kind { STK_URL_S3, STK_URL_HTTP, STK_URL_HTTPS } stk_url_kind;

typedef struct stk_url { /* all views of the address */
    stk_url_kind kind;
    stk_str bucket, key; /* s3: not encoded; the key may be empty (a bucket) */
    stk_str host;        /* http(s): name, IPv4 or IPv6 without brackets */
    bool is_ipv6;        /* the host is an IPv6 literal */
    uint16_t port;       /* http(s): of the address, else 80 or 443 */
    stk_str path, query; /* http(s): as written, without '?' and fragment; the path may be empty */
} stk_url;

/* Whether an address begins with s3://, http:// or https:// (in any case). */
bool stk_url_is_remote(stk_str address);

/* STK_ERR_OPTION: no such address; err says what is wrong with it, without user information and query. */
stk_status stk_url_parse(stk_url *out, stk_str address, stk_error *err) STK_MUST_USE;

/* An address for messages: without user information, query and fragment (a presigned query is a secret), controls as
 * '?', cut at the end where it is too long.  Returns out. */
const char *stk_url_show(char *out, size_t capacity, stk_str address);

/* Percent-encode as SigV4 does: A-Za-z0-9-._~ stay, '/' stays when keep_slash, all else is %XX in upper case.
 * Returns the length of the whole; out has it, with a NUL, only when that is < capacity (else out is ""). */
size_t stk_url_encode(char *out, size_t capacity, stk_str text, bool keep_slash);

typedef struct stk_query_pair {
    stk_str name, value; /* not encoded */
} stk_query_pair;

/* "a=1&b=" of pairs: encoded, and sorted as SigV4 wants it; pair is put in order.  Returns the length as
 * stk_url_encode does. */
size_t stk_url_query(char *out, size_t capacity, stk_query_pair *pair, size_t count);

/* Whether a name can be a bucket: 1 to 255 of A-Za-z0-9.-_ with a letter or digit at the start. */
bool stk_bucket_is_valid(stk_str bucket);

/* Whether a bucket can be the first part of a host name: 3 to 63 of a-z0-9- (and single dots, where allowed: a
 * wildcard certificate does not cover them), with a letter or digit at both ends, and no IPv4 address. */
bool stk_bucket_is_hostable(stk_str bucket, bool dots);

/* Whether a region can stand in a host name and a scope: "eu-central-1". */
bool stk_region_is_valid(stk_str region);

/* The domain of AWS that a region lies in: "amazonaws.com", "amazonaws.com.cn", ... */
const char *stk_aws_domain(const char *region);

typedef enum stk_addressing {
    STK_ADDRESSING_AUTO, /* virtual host on AWS, path with any other endpoint */
    STK_ADDRESSING_PATH,
    STK_ADDRESSING_VIRTUAL
} stk_addressing;

/* Where a store is asked.  A plain value; fields are read-only outside url.c. */
typedef struct stk_endpoint {
    bool is_aws;        /* no endpoint was named: the host follows from region and bucket */
    bool tls, is_ip;    /* is_ip: the host is an address */
    uint16_t port;
    stk_addressing addressing;
    char host[256];     /* as in a URL, without port; an IPv6 literal with brackets; "" for AWS */
    char path[256];     /* before the bucket, without a slash at the end; mostly "" */
    char region[64];
} stk_endpoint;

/* endpoint: "https://host[:port][/path]", or NULL for AWS.  STK_ERR_OPTION: not a URL, or no region. */
stk_status stk_endpoint_init(stk_endpoint *out, const char *endpoint, const char *region, stk_addressing addressing,
                             stk_error *err) STK_MUST_USE;

/* Change the region, as a redirect demands; of a custom endpoint the host stays.  STK_ERR_NETWORK: no region. */
stk_status stk_endpoint_set_region(stk_endpoint *endpoint, stk_str region, stk_error *err) STK_MUST_USE;

/* A URL for the wire.  The views lie in the buffer it was made in. */
typedef struct stk_wire {
    const char *url; /* terminated: what the transport takes */
    stk_str host;    /* the Host header: with the port where it is not the default */
    stk_str path;    /* encoded, begins with '/' */
    stk_str query;   /* encoded and sorted; "" without */
    bool tls;
} stk_wire;

/* The URL of a key (empty: the bucket) with a query that stk_url_query made.  STK_ERR_OPTION: does not fit. */
stk_status stk_endpoint_wire(stk_wire *out, char *buffer, size_t capacity, const stk_endpoint *endpoint,
                             stk_str bucket, stk_str key, stk_str query, stk_error *err) STK_MUST_USE;

/* The URL of a parsed http(s) address. */
stk_status stk_url_wire(stk_wire *out, char *buffer, size_t capacity, const stk_url *url,
                        stk_error *err) STK_MUST_USE;

/* What kind of address that is not of the public internet this is ("loopback", "private", "link-local",
 * "metadata", ...), for messages; NULL when it is a public one.  Mapped, translated and tunnelled IPv4 counts as
 * the IPv4 address inside; anything but IPv4 and IPv6 is "unknown".  To be asked of each connection, after name
 * resolution, on every hop. */
const char *stk_address_private(const struct sockaddr *address);

#endif
