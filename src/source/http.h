/* http.h - exchanges of HTTP/1.1 with many servers at once, on one thread; internal to source/.
 *
 * The narrow door behind which libcurl stands: another transport needs to keep only this page.  It knows nothing of
 * stores, retries or time limits; it moves one question out and one answer in, and says how that ended.
 *
 *     start ─► head, head, ... body, body, ... ─► end        stop: no further event, the connection is closed
 *
 * All calls but stk_http_wake come from the one thread that turns.  Events come out of stk_http_turn only. */
#ifndef STK_SOURCE_HTTP_H
#define STK_SOURCE_HTTP_H

#include "base/memory.h"

typedef struct stk_http stk_http;
typedef struct stk_exchange stk_exchange;

typedef enum stk_http_method { STK_HTTP_GET, STK_HTTP_HEAD, STK_HTTP_PUT } stk_http_method;

typedef struct stk_http_ask {
    stk_http_method method;
    const char *url;         /* copied; sent as it is, dot segments included */
    const char *const *header; /* "Name: value", header_count of them, copied */
    int header_count;
    stk_bytes upload;        /* of a PUT; the caller's until the end */
    const char *ca;          /* a PEM file of certificates; NULL: the system's; the caller's until close */
    bool may_be_private;     /* the host may have a private, link-local or loopback address.  Else it is asked without a proxy, whatever
                              * the environment names: a proxy looks the name up itself, and nobody here would see where that leads */
    bool fresh;              /* on a new connection */
    void *user;              /* comes back with each event */
} stk_http_ask;

typedef enum stk_http_outcome {
    STK_HTTP_WHOLE,          /* an answer, complete by its own framing */
    STK_HTTP_STOPPED,        /* head or body returned false */
    STK_HTTP_NO_NAME,        /* the name does not resolve */
    STK_HTTP_NO_CONNECTION,
    STK_HTTP_PRIVATE,        /* the address is private, and may not be */
    STK_HTTP_UNTRUSTED,      /* TLS: the certificate */
    STK_HTTP_PLAIN,          /* the server answers TLS with something else */
    STK_HTTP_BROKEN,         /* reset, closed early, garbage */
    STK_HTTP_IMPOSSIBLE,     /* a URL that cannot be asked */
    STK_HTTP_NO_MEMORY
} stk_http_outcome;

/* head: one line of the head, without its end; the status line first, an empty one last; all again when another head
 * follows (1xx).
 * body: bytes that came.  Both: false ends the exchange.  In them only stk_http_stop of another exchange may be called.
 * sent: the server took bytes of an upload.  end: last, once; words is valid until it returns. */
typedef struct stk_http_events {
    bool (*head)(void *user, stk_str line);
    bool (*body)(void *user, stk_bytes bytes);
    void (*sent)(void *user);
    void (*end)(void *user, stk_http_outcome outcome, const char *words, bool new_connection);
} stk_http_events;

typedef struct stk_http_config {
    int limit;               /* exchanges at once */
    int idle_s;              /* a connection that was idle for longer is not used again */
    stk_http_events events;
} stk_http_config;

stk_status stk_http_open(stk_http **out, const stk_http_config *config, stk_error *err) STK_MUST_USE;
void stk_http_close(stk_http **http); /* stops what is under way */

/* NULL: no memory, or limit exchanges are under way. */
stk_exchange *stk_http_start(stk_http *http, const stk_http_ask *ask);
bool stk_http_stop(stk_http *http, stk_exchange *exchange); /* whether it had opened a connection: no end follows that could say so */

/* Wait for input, a wake, or until (of stk_now; STK_FOREVER: without limit), and hand out the events. */
void stk_http_turn(stk_http *http, stk_ns until);
void stk_http_wake(stk_http *http); /* any thread */

/* Times that a turn came back: a loop that spins shows here.  Any thread. */
uint64_t stk_http_turns(const stk_http *http);

#endif
