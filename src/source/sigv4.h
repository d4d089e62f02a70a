/* sigv4.h - AWS Signature Version 4 in headers, as S3 wants it.
 *
 * Signed are host and every header given; what a proxy may change (range, user-agent, if-match) is not given here but
 * sent beside.  Path and query are signed exactly as they are sent: url.c encodes and sorts them.
 * A signer holds one digest context and the signing keys of the last few (generation, date, region): a request costs
 * two SHA-256 and one HMAC, and no allocation. */
#ifndef STK_SOURCE_SIGV4_H
#define STK_SOURCE_SIGV4_H

#include "source/credentials.h"

enum {
    STK_SIGN_HEADERS = 16,           /* at most, beside our own */
    STK_SIGN_BYTES = 2048 + 16 * 1024 /* room for what stk_sign writes with a long session token */
};

#define STK_SHA256_EMPTY "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

typedef struct stk_signer stk_signer; /* one thread at a time */

stk_status stk_signer_create(stk_signer **out, stk_error *err) STK_MUST_USE;
void stk_signer_destroy(stk_signer *signer); /* wipes its keys */

typedef struct stk_header {
    const char *name; /* lower case */
    stk_str value;    /* without line breaks */
} stk_header;

typedef struct stk_sign_request {
    const char *method;          /* "GET" */
    stk_str host, path, query;   /* as in stk_wire */
    const char *region, *service; /* "s3" (or "sts") */
    const stk_credentials *credentials;
    const char *payload_sha256;  /* 64 hexadecimal digits or UNSIGNED-PAYLOAD; NULL: of an empty body */
    const stk_header *header;    /* more to sign and send, mostly x-amz-*; names differ */
    size_t header_count;
    int64_t unix_seconds;        /* the store's time */
} stk_sign_request;

typedef struct stk_signed {
    char *line[STK_SIGN_HEADERS + 5]; /* "Name: value", terminated, in the caller's buffer */
    size_t count;
} stk_signed;

/* Write all headers that belong to the signature: Host, x-amz-date, x-amz-content-sha256 (service s3), x-amz-security-token
 * (temporary credentials), those given, and Authorization.  Anonymous credentials: only Host and those given.
 * STK_ERR_USAGE: does not fit in capacity_bytes (STK_SIGN_BYTES is enough for 1 KiB of headers given), too many headers, or one
 * with a control character. */
stk_status stk_sign(stk_signer *signer, stk_signed *out, char *buffer, size_t capacity_bytes,
                    const stk_sign_request *request, stk_error *err) STK_MUST_USE;

/* SHA-256 in 64 hexadecimal digits and a NUL. */
stk_status stk_signer_sha256(stk_signer *signer, char out[65], const void *data, size_t size_bytes,
                             stk_error *err) STK_MUST_USE;

#endif
