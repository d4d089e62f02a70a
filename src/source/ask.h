/* ask.h - one small HTTP request, waited for: how credentials are asked for.
 *
 * Bounded in time and size, never redirected.  Plain http goes to this machine and to the fixed addresses of container and
 * instance metadata only, whatever the host's name; proxies are not used for it.  Not for objects: that is http.c. */
#ifndef STK_SOURCE_ASK_H
#define STK_SOURCE_ASK_H

#include "base/memory.h"

enum { STK_ASK_HEADERS = 4, STK_ASK_BYTES = 64 * 1024 };

typedef struct stk_ask {
    const char *method, *url;
    const char *header[STK_ASK_HEADERS]; /* "Name: value"; NULL: none */
    const char *body;                    /* NULL: none */
    const char *ca;                      /* NULL: the system's */
    int timeout_ms;                      /* of the whole */
    int stop_fd;                         /* readable: give up; -1: none */
} stk_ask;

typedef struct stk_answer_text {
    int status;       /* of HTTP */
    stk_buffer text;  /* terminated; may hold secrets */
} stk_answer_text;

/* STK_OK: some answer came.  STK_ERR_NETWORK: none did, or a too large one; STK_ERR_OPTION: not there, by plain http;
 * STK_ERR_INTERRUPTED: stop_fd.
 * stk_ask_done wipes the answer in any case. */
stk_status stk_ask_send(stk_answer_text *out, const stk_ask *ask, stk_error *err) STK_MUST_USE;
void stk_ask_done(stk_answer_text *answer);

/* Wait for a time, or until stop_fd is readable: then false. */
bool stk_ask_pause(int stop_fd, int ms);

#endif
