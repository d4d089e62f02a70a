/* answer.h - what a store answered: the lines of a head, an error body, and what follows from both (s3.md, section 5.1).
 *
 * All input is a stranger's.  Nothing here allocates but the XML parser, for one document of limited size. */
#ifndef STK_SOURCE_ANSWER_H
#define STK_SOURCE_ANSWER_H

#include "source/checksum.h"
#include "source/source.h"

#define STK_UNKNOWN_BYTES UINT64_MAX

/* The head of one answer.  A plain value; all zero before its first line. */
typedef struct stk_answer {
    int status;                     /* 0: no status line yet */
    bool malformed;                 /* a line that decides is not what HTTP says */
    bool has_length, has_range;
    uint64_t length_bytes;          /* Content-Length */
    uint64_t first, last;           /* Content-Range, both included; first > last: of a 416 */
    uint64_t total_bytes;           /* of the whole object by Content-Range; STK_UNKNOWN_BYTES: "*" */
    int64_t date_s;                 /* seconds since 1970; 0: none */
    int64_t retry_after_s;          /* -1: none; a date is a span from date_s */
    char etag[STK_ETAG_BYTES];      /* with its quotes; "": none, or too long */
    char region[64];                /* x-amz-bucket-region, or <Region> of the body; "": none */
    stk_checksum_kind checksum;     /* of the whole object; composite ones do not count */
    char checksum_text[48];         /* base64 */
    char location[2048];            /* of a redirect; "": none, or too long */
    char code[64];                  /* <Code> of an error body, "" */
    char message[256];              /* <Message> on one line, cut where it is longer; "" */
} stk_answer;

void stk_answer_begin(stk_answer *answer);

/* One line of the head, without its end.  A status line starts over. */
void stk_answer_line(stk_answer *answer, stk_str line);

/* The body of an answer that is no success: XML of a store, or anything else. */
void stk_answer_body(stk_answer *answer, stk_bytes body);

typedef enum stk_verdict {
    STK_VERDICT_GOOD,        /* 200, 206 */
    STK_VERDICT_MISSING,     /* no such key */
    STK_VERDICT_UNSAID,      /* 404 of a store without an error code: of the key, or of whatever stands between */
    STK_VERDICT_NO_BUCKET,
    STK_VERDICT_DENIED,      /* 403: of this object, or of all; of plain HTTP any 4xx that is no other */
    STK_VERDICT_ARCHIVED,    /* the object must be restored first */
    STK_VERDICT_CHANGED,     /* 412 */
    STK_VERDICT_PAST_END,    /* 416 */
    STK_VERDICT_THROTTLE,
    STK_VERDICT_TRANSIENT,
    STK_VERDICT_CLOCK,       /* ours is off */
    STK_VERDICT_EXPIRED,     /* credentials: new ones are needed */
    STK_VERDICT_CREDENTIALS, /* wrong: asking again is of no use */
    STK_VERDICT_REGION,      /* the bucket lies elsewhere */
    STK_VERDICT_REDIRECT,    /* of plain HTTP: see location */
    STK_VERDICT_NO_CHECKSUMS, /* the store does not take x-amz-checksum-mode */
    STK_VERDICT_BARE,        /* 400, 403 without a body, as HEAD has it: ask by GET to learn why */
    STK_VERDICT_FATAL        /* all else, of a store */
} stk_verdict;

/* store: the answer of a store (s3://); false: of a plain HTTP server.  sent_checksum_mode: we asked for checksums. */
stk_verdict stk_answer_verdict(const stk_answer *answer, bool store, bool sent_checksum_mode);

/* --- the pages of a list --- */

typedef struct stk_list_page {
    bool truncated;
    stk_buffer next; /* the token of the next page; empty: none */
} stk_list_page;

/* Parse one page of ListObjectsV2 (encoding-type=url), calling found for each object; a broken page is STK_ERR_NETWORK,
 * found returning false STK_ERR_INTERRUPTED. */
stk_status stk_list_parse(stk_list_page *page, stk_bytes xml, bool (*found)(void *context, const stk_source_entry *entry),
                          void *context, stk_error *err) STK_MUST_USE;

#endif
