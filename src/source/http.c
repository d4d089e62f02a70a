/* http.c - the transport: libcurl's multi interface driven by epoll (s3.md, section 3).
 *
 * Easy handles are made once and used again: only URL, header list and method change.  Header lines lie in the exchange's
 * own memory, in nodes of our own, so that a request costs no list allocation.
 *
 * A connection between two requests stays with epoll: most are asked again at once, and to leave and to come back are two calls of
 * the system each time.  One that has something to say meanwhile (it was closed) leaves then.
 *
 * libcurl's timer is one-shot: its deadline is cleared before it is served, or the loop would spin.  Inside libcurl's
 * callbacks no handle may be removed, so what is stopped there waits on a list until the call has returned. */
#include "source/http.h"

#include <curl/curl.h>
#include <errno.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/thread.h"
#include "source/url.h"

enum {
    HEADERS = 24,              /* lines of one ask */
    HEADER_BYTES = 64 * 1024,  /* most of one ask: session tokens may be long */
    HEAD_BYTES = 64 * 1024,    /* most of one answer */
    RECEIVE_BYTES = 64 * 1024, /* larger ones gave nothing (s3-reality.md, section 5) */
    EVENTS = 256,              /* of one epoll_wait */
    CONNECT_MS = 3000,
    LIFETIME_S = 120,          /* of a connection: afterwards another address may take its turn */
    DNS_S = 30,
    SPREAD = 16                /* lookups of a name in that time: each shuffles its addresses anew */
};

struct stk_exchange {
    stk_http *http;
    stk_exchange *next, *previous; /* of the list it is on: under way, doomed or free */
    CURL *easy;
    CURLSH *share;
    void *user;
    struct curl_slist line[HEADERS];
    stk_buffer text; /* of the lines */
    stk_bytes upload;
    size_t sent_bytes, head_bytes;
    const char *ca;  /* set now */
    char words[CURL_ERROR_SIZE]; /* of libcurl, when the exchange fails */
    bool may_be_private, met_private, new_connection, said_stop, doomed, directly; /* directly: set now, no proxy */
};

struct stk_http {
    stk_http_config config;
    CURLM *multi;
    CURLSH *share[SPREAD]; /* names and TLS sessions, of this thread alone; with one, all connections went to one address */
    const char *system_ca, *system_ca_folder; /* libcurl's own; NULL: none */
    int epoll, wake;
    uint8_t *watched; /* of each descriptor below watched_count: what epoll knows it with, OURS, RESTS */
    int watched_count;
    stk_ns timer;  /* libcurl's, one shot; STK_FOREVER: none */
    bool inside;   /* a call of libcurl: no handle may be removed */
    bool keeps_headers; /* libcurl, from one transfer of a handle to the next */
    bool millis;   /* the kernel has no epoll_pwait2 */
    uint64_t turns;
    int made;
    stk_exchange *running, *doomed, *idle;
};

/* Bits of watched, beside EPOLLIN and EPOLLOUT. */
enum { OURS = 1 << 6, RESTS = 1 << 7 }; /* made by open_socket, and not closed yet; libcurl does not wait for it */

/* --- lists --- */

static void push(stk_exchange **list, stk_exchange *x)
{
    x->previous = NULL;
    x->next = *list;
    if (x->next) x->next->previous = x;
    *list = x;
}

static void take_out(stk_exchange **list, stk_exchange *x)
{
    *(x->previous ? &x->previous->next : list) = x->next;
    if (x->next) x->next->previous = x->previous;
}

/* --- what libcurl calls --- */

/* Without memory for it, a descriptor leaves epoll whenever it rests. */
static void meet_socket(stk_http *h, int fd)
{
    if (fd >= h->watched_count) {
        const int count = fd < 256 ? 512 : 2 * fd;
        uint8_t *const longer = stk_alloc(STK_TAG_SOURCE, (size_t)count);
        if (!longer) return;
        if (h->watched_count) memcpy(longer, h->watched, (size_t)h->watched_count);
        stk_free(h->watched);
        h->watched = longer;
        h->watched_count = count;
    }
    h->watched[fd] = OURS;
}

static curl_socket_t open_socket(void *context, curlsocktype purpose, struct curl_sockaddr *address)
{
    stk_exchange *const x = context;
    if (!x->may_be_private && stk_address_private(&address->addr)) {
        x->met_private = true;
        return CURL_SOCKET_BAD;
    }
    x->new_connection = true;
    const int fd = socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
    if (fd >= 0) meet_socket(x->http, fd);
    return fd;
}

static int close_socket(void *context, curl_socket_t fd)
{
    stk_http *const h = context;
    if (fd < h->watched_count) h->watched[fd] = 0; /* epoll forgets it by itself */
    return close(fd);
}

static size_t on_head(char *data, size_t one, size_t count, void *context)
{
    stk_exchange *const x = context;
    const size_t size = one * count;
    x->head_bytes += size;
    if (x->doomed || x->head_bytes > HEAD_BYTES) return 0;
    size_t length = size;
    while (length && (data[length - 1] == '\n' || data[length - 1] == '\r')) length--;
    if (x->http->config.events.head(x->user, (stk_str){data, length})) return size;
    x->said_stop = true;
    return 0;
}

static size_t on_body(char *data, size_t one, size_t count, void *context)
{
    stk_exchange *const x = context;
    const size_t size = one * count;
    if (x->doomed) return 0;
    if (x->http->config.events.body(x->user, (stk_bytes){(const uint8_t *)data, size})) return size;
    x->said_stop = true;
    return 0;
}

static size_t on_read(char *data, size_t one, size_t count, void *context)
{
    stk_exchange *const x = context;
    const size_t left = x->upload.size_bytes - x->sent_bytes;
    const size_t size = left < one * count ? left : one * count;
    if (x->doomed) return CURL_READFUNC_ABORT;
    if (size) memcpy(data, x->upload.data + x->sent_bytes, size);
    x->sent_bytes += size;
    x->http->config.events.sent(x->user);
    return size;
}

static int on_seek(void *context, curl_off_t offset, int origin)
{
    stk_exchange *const x = context;
    if (origin != SEEK_SET || offset < 0 || (uint64_t)offset > x->upload.size_bytes) return CURL_SEEKFUNC_FAIL;
    x->sent_bytes = (size_t)offset;
    return CURL_SEEKFUNC_OK;
}

/* One that has been closed is not known any more: its number may be somebody else's by now. */
static void stop_watching(stk_http *h, int fd)
{
    if (fd >= h->watched_count || (h->watched[fd] & (EPOLLIN | EPOLLOUT))) epoll_ctl(h->epoll, EPOLL_CTL_DEL, fd, NULL);
    if (fd < h->watched_count) h->watched[fd] &= OURS;
}

static int on_socket(CURL *easy, curl_socket_t fd, int what, void *context, void *known)
{
    stk_http *const h = context;
    uint8_t *const watched = fd < h->watched_count && (h->watched[fd] & OURS) ? &h->watched[fd] : NULL;
    if (what == CURL_POLL_REMOVE) {
        /* libcurl closes some unseen, and their numbers may be somebody else's by now: what epoll still knows tells by an event. */
        if (watched && (*watched & (EPOLLIN | EPOLLOUT))) *watched |= RESTS;
        else stop_watching(h, fd);
        return 0;
    }
    struct epoll_event event = {.events = (what & CURL_POLL_IN ? EPOLLIN : 0u) | (what & CURL_POLL_OUT ? EPOLLOUT : 0u),
                                .data.fd = fd};
    if (watched) {
        const uint8_t was = *watched & ~RESTS;
        *watched = (uint8_t)(OURS | event.events);
        if (was == *watched) return 0;
    } else if (fd < h->watched_count) {
        h->watched[fd] = (uint8_t)event.events;
    }
    /* A descriptor that was closed unseen and came back is added anew: the kernel has forgotten it. */
    if (epoll_ctl(h->epoll, known ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, fd, &event) && errno == ENOENT)
        epoll_ctl(h->epoll, EPOLL_CTL_ADD, fd, &event);
    else if (!known && errno == EEXIST)
        epoll_ctl(h->epoll, EPOLL_CTL_MOD, fd, &event);
    curl_multi_assign(h->multi, fd, h);
    return 0;
}

static int on_timer(CURLM *multi, long wait_ms, void *context)
{
    stk_http *const h = context;
    h->timer = wait_ms < 0 ? STK_FOREVER : stk_now() + wait_ms * STK_MS;
    return 0;
}

/* --- exchanges --- */

static bool set_up(stk_exchange *x)
{
    stk_http *const h = x->http;
    CURL *const e = curl_easy_init();
    if (!e) return false;
    curl_easy_cleanup(x->easy);
    x->easy = e;
    x->ca = NULL;
    x->directly = false;
    curl_easy_setopt(e, CURLOPT_PRIVATE, x);
    curl_easy_setopt(e, CURLOPT_ERRORBUFFER, x->words);
    curl_easy_setopt(e, CURLOPT_SHARE, x->share);
    curl_easy_setopt(e, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(e, CURLOPT_QUICK_EXIT, 1L); /* do not wait for a resolver's thread */
    curl_easy_setopt(e, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(e, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(e, CURLOPT_FOLLOWLOCATION, 0L);
    curl_easy_setopt(e, CURLOPT_PATH_AS_IS, 1L);
    curl_easy_setopt(e, CURLOPT_DISALLOW_USERNAME_IN_URL, 1L);
    curl_easy_setopt(e, CURLOPT_USERAGENT, "stoker");
    curl_easy_setopt(e, CURLOPT_BUFFERSIZE, (long)RECEIVE_BYTES);
    curl_easy_setopt(e, CURLOPT_CONNECTTIMEOUT_MS, (long)CONNECT_MS);
    curl_easy_setopt(e, CURLOPT_MAXAGE_CONN, (long)h->config.idle_s);
    curl_easy_setopt(e, CURLOPT_MAXLIFETIME_CONN, (long)LIFETIME_S);
    curl_easy_setopt(e, CURLOPT_DNS_SHUFFLE_ADDRESSES, 1L);
    curl_easy_setopt(e, CURLOPT_DNS_CACHE_TIMEOUT, (long)DNS_S);
    curl_easy_setopt(e, CURLOPT_TCP_KEEPALIVE, 1L);
    curl_easy_setopt(e, CURLOPT_TCP_NODELAY, 1L);
    curl_easy_setopt(e, CURLOPT_CA_CACHE_TIMEOUT, 86400L);
    curl_easy_setopt(e, CURLOPT_OPENSOCKETFUNCTION, open_socket);
    curl_easy_setopt(e, CURLOPT_OPENSOCKETDATA, x);
    curl_easy_setopt(e, CURLOPT_CLOSESOCKETFUNCTION, close_socket);
    curl_easy_setopt(e, CURLOPT_CLOSESOCKETDATA, h); /* which outlives its exchanges */
    curl_easy_setopt(e, CURLOPT_HEADERFUNCTION, on_head);
    curl_easy_setopt(e, CURLOPT_HEADERDATA, x);
    curl_easy_setopt(e, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(e, CURLOPT_WRITEDATA, x);
    curl_easy_setopt(e, CURLOPT_READFUNCTION, on_read);
    curl_easy_setopt(e, CURLOPT_READDATA, x);
    curl_easy_setopt(e, CURLOPT_SEEKFUNCTION, on_seek);
    curl_easy_setopt(e, CURLOPT_SEEKDATA, x);
    return true;
}

static stk_exchange *make_exchange(stk_http *h)
{
    stk_exchange *const x = stk_alloc(STK_TAG_SOURCE, sizeof *x);
    if (!x) return NULL;
    x->http = h;
    x->share = h->share[h->made % SPREAD];
    stk_buffer_init(&x->text, STK_TAG_SOURCE, HEADER_BYTES);
    if (stk_buffer_reserve(&x->text, 1024, NULL) < 0 || !set_up(x)) {
        stk_buffer_deinit(&x->text);
        stk_free(x);
        return NULL;
    }
    if (!h->made) {
        curl_easy_getinfo(x->easy, CURLINFO_CAINFO, &h->system_ca); /* literals of libcurl's */
        curl_easy_getinfo(x->easy, CURLINFO_CAPATH, &h->system_ca_folder);
    }
    h->made++;
    return x;
}

/* One that has been used.  Before 8.2 libcurl keeps a pointer to the last header of a transfer, whose memory is free by the next, and goes on
 * from there when that one's first line begins with a space (curl #11101): any server could reach it.  So its handle is a new one there. */
static stk_exchange *use_again(stk_http *h)
{
    stk_exchange *const x = h->idle;
    if (h->keeps_headers && !set_up(x)) return NULL;
    take_out(&h->idle, x);
    return x;
}

static void free_exchange(stk_exchange *x)
{
    curl_easy_cleanup(x->easy);
    stk_buffer_deinit(&x->text);
    stk_free(x);
}

/* The lines, copied, as libcurl's list in nodes of ours. */
static bool set_headers(stk_exchange *x, const stk_http_ask *ask)
{
    if (ask->header_count > HEADERS) return false;
    stk_buffer_clear(&x->text);
    for (int i = 0; i < ask->header_count; i++)
        if (stk_buffer_append(&x->text, ask->header[i], strlen(ask->header[i]) + 1, NULL) < 0) return false;
    char *at = (char *)x->text.data;
    for (int i = 0; i < ask->header_count; i++) {
        x->line[i] = (struct curl_slist){.data = at, .next = i + 1 < ask->header_count ? &x->line[i + 1] : NULL};
        at += strlen(at) + 1;
    }
    return curl_easy_setopt(x->easy, CURLOPT_HTTPHEADER, ask->header_count ? x->line : NULL) == CURLE_OK;
}

static bool set_method(stk_exchange *x, stk_http_method method)
{
    switch (method) {
    case STK_HTTP_GET: return curl_easy_setopt(x->easy, CURLOPT_HTTPGET, 1L) == CURLE_OK;
    case STK_HTTP_HEAD: return curl_easy_setopt(x->easy, CURLOPT_NOBODY, 1L) == CURLE_OK;
    case STK_HTTP_PUT:
        return curl_easy_setopt(x->easy, CURLOPT_UPLOAD, 1L) == CURLE_OK &&
               curl_easy_setopt(x->easy, CURLOPT_INFILESIZE_LARGE, (curl_off_t)x->upload.size_bytes) == CURLE_OK;
    }
    return false;
}

/* A file of the caller's stands in place of the system's file and folder, which libcurl would read besides. */
static void set_authorities(stk_exchange *x, const char *ca)
{
    curl_easy_setopt(x->easy, CURLOPT_CAINFO, ca ? ca : x->http->system_ca);
    curl_easy_setopt(x->easy, CURLOPT_CAPATH, ca ? NULL : x->http->system_ca_folder);
    x->ca = ca;
}

/* NULL: what the environment says of proxies. */
static void set_directly(stk_exchange *x, bool directly)
{
    curl_easy_setopt(x->easy, CURLOPT_NOPROXY, directly ? "*" : NULL);
    x->directly = directly;
}

stk_exchange *stk_http_start(stk_http *h, const stk_http_ask *ask)
{
    stk_exchange *const x = h->idle ? use_again(h) : h->made < h->config.limit ? make_exchange(h) : NULL;
    if (!x) return NULL;
    x->user = ask->user;
    x->upload = ask->upload;
    x->sent_bytes = x->head_bytes = 0;
    x->words[0] = 0;
    x->may_be_private = ask->may_be_private;
    x->met_private = x->new_connection = x->said_stop = x->doomed = false;
    /* An address is looked at when the connection is made, so one of others will not do. */
    curl_easy_setopt(x->easy, CURLOPT_FRESH_CONNECT, ask->fresh || !ask->may_be_private ? 1L : 0L);
    if (x->ca != ask->ca) set_authorities(x, ask->ca);
    if (x->directly == ask->may_be_private) set_directly(x, !ask->may_be_private);
    if (curl_easy_setopt(x->easy, CURLOPT_URL, ask->url) != CURLE_OK || !set_headers(x, ask) || !set_method(x, ask->method) ||
        curl_multi_add_handle(h->multi, x->easy) != CURLM_OK) {
        push(&h->idle, x);
        return NULL;
    }
    push(&h->running, x);
    return x;
}

static void retire(stk_http *h, stk_exchange *x)
{
    curl_multi_remove_handle(h->multi, x->easy);
    push(&h->idle, x);
}

bool stk_http_stop(stk_http *h, stk_exchange *x)
{
    const bool new_connection = x->new_connection;
    take_out(&h->running, x);
    x->doomed = true;
    if (h->inside) push(&h->doomed, x);
    else retire(h, x);
    return new_connection;
}

static void retire_doomed(stk_http *h)
{
    while (h->doomed) {
        stk_exchange *const x = h->doomed;
        take_out(&h->doomed, x);
        retire(h, x);
    }
}

/* --- the turn --- */

/* The words of OpenSSL 3.0, and of 3.2 and later, for an answer that is no record of TLS. */
static bool is_no_tls(const char *words)
{
    return strstr(words, "wrong version number") || strstr(words, "packet length too long");
}

static stk_http_outcome outcome_of(const stk_exchange *x, CURLcode code)
{
    if (x->said_stop) return STK_HTTP_STOPPED;
    if (x->met_private && code != CURLE_OK) return STK_HTTP_PRIVATE;
    switch (code) {
    case CURLE_OK: return STK_HTTP_WHOLE;
    case CURLE_COULDNT_RESOLVE_HOST: case CURLE_COULDNT_RESOLVE_PROXY: return STK_HTTP_NO_NAME;
    case CURLE_COULDNT_CONNECT: case CURLE_OPERATION_TIMEDOUT: return STK_HTTP_NO_CONNECTION;
    case CURLE_PEER_FAILED_VERIFICATION: case CURLE_SSL_CACERT_BADFILE: case CURLE_SSL_CERTPROBLEM: return STK_HTTP_UNTRUSTED;
    case CURLE_SSL_CONNECT_ERROR: return is_no_tls(x->words) ? STK_HTTP_PLAIN : STK_HTTP_BROKEN;
    case CURLE_URL_MALFORMAT: case CURLE_LOGIN_DENIED: return STK_HTTP_IMPOSSIBLE;
    case CURLE_OUT_OF_MEMORY: return STK_HTTP_NO_MEMORY;
    default: return STK_HTTP_BROKEN;
    }
}

/* Which host it was, where libcurl says so; its other texts may quote what an URL holds. */
static const char *words_of(const stk_exchange *x, CURLcode code)
{
    const bool names_host = code == CURLE_COULDNT_RESOLVE_HOST || code == CURLE_COULDNT_CONNECT;
    return names_host && x->words[0] ? x->words : curl_easy_strerror(code);
}

static void hand_out_ends(stk_http *h)
{
    CURLMsg *message;
    int left;
    while ((message = curl_multi_info_read(h->multi, &left))) {
        if (message->msg != CURLMSG_DONE) continue;
        stk_exchange *x = NULL;
        curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, (char **)&x);
        const CURLcode code = message->data.result;
        if (x->doomed) continue; /* it is on the other list */
        void *const user = x->user;
        const stk_http_outcome outcome = outcome_of(x, code);
        const bool new_connection = x->new_connection;
        take_out(&h->running, x);
        retire(h, x);
        h->config.events.end(user, outcome, words_of(x, code), new_connection);
    }
}

static bool rests(const stk_http *h, int fd)
{
    return fd < h->watched_count && (h->watched[fd] & RESTS);
}

static int wait_for_events(stk_http *h, struct epoll_event *event, stk_ns until)
{
    const stk_ns deadline = until < h->timer ? until : h->timer;
    stk_ns wait_ns = deadline == STK_FOREVER ? -1 : deadline - stk_now();
    if (deadline != STK_FOREVER && wait_ns < 0) wait_ns = 0;
    if (!h->millis) {
        const struct timespec wait = stk_timespec(wait_ns);
        const int count = epoll_pwait2(h->epoll, event, EVENTS, wait_ns < 0 ? NULL : &wait, NULL);
        if (count >= 0 || errno != ENOSYS) return count;
        h->millis = true;
    }
    const stk_ns wait_ms = (wait_ns + STK_MS - 1) / STK_MS; /* up: rounding down would spin */
    return epoll_wait(h->epoll, event, EVENTS, wait_ns < 0 ? -1 : wait_ms > 60000 ? 60000 : (int)wait_ms);
}

void stk_http_turn(stk_http *h, stk_ns until)
{
    struct epoll_event event[EVENTS];
    const int count = wait_for_events(h, event, until);
    int running;
    __atomic_fetch_add(&h->turns, 1, __ATOMIC_RELAXED);
    h->inside = true;
    if (h->timer != STK_FOREVER && stk_now() >= h->timer) {
        h->timer = STK_FOREVER; /* before the call: it may set the next */
        curl_multi_socket_action(h->multi, CURL_SOCKET_TIMEOUT, 0, &running);
    }
    for (int i = 0; i < count; i++) {
        if (event[i].data.fd == h->wake) {
            uint64_t value;
            if (read(h->wake, &value, sizeof value) < 0) continue;
        } else if (rests(h, event[i].data.fd)) {
            stop_watching(h, event[i].data.fd);
        } else {
            const int what = (event[i].events & (EPOLLIN | EPOLLHUP) ? CURL_CSELECT_IN : 0) |
                             (event[i].events & EPOLLOUT ? CURL_CSELECT_OUT : 0) |
                             (event[i].events & EPOLLERR ? CURL_CSELECT_ERR : 0);
            curl_multi_socket_action(h->multi, event[i].data.fd, what, &running);
        }
    }
    h->inside = false;
    retire_doomed(h);
    hand_out_ends(h);
}

void stk_http_wake(stk_http *h)
{
    const uint64_t one = 1;
    ssize_t written;
    do written = write(h->wake, &one, sizeof one);
    while (written < 0 && errno == EINTR);
}

uint64_t stk_http_turns(const stk_http *h)
{
    return __atomic_load_n(&h->turns, __ATOMIC_RELAXED);
}

/* --- life --- */

static pthread_once_t curl_once = PTHREAD_ONCE_INIT;
static bool curl_is_ready;

static void init_curl(void)
{
    curl_is_ready = curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK;
}

static bool make_shares(stk_http *h)
{
    for (int i = 0; i < SPREAD; i++) {
        h->share[i] = curl_share_init();
        if (!h->share[i] || curl_share_setopt(h->share[i], CURLSHOPT_SHARE, CURL_LOCK_DATA_DNS) != CURLSHE_OK ||
            curl_share_setopt(h->share[i], CURLSHOPT_SHARE, CURL_LOCK_DATA_SSL_SESSION) != CURLSHE_OK)
            return false;
    }
    return true;
}

static stk_status open_descriptors(stk_http *h, stk_error *err)
{
    h->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (h->epoll < 0) return stk_fail_errno(err, "epoll_create1");
    h->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (h->wake < 0) return stk_fail_errno(err, "eventfd");
    struct epoll_event event = {.events = EPOLLIN, .data.fd = h->wake};
    if (epoll_ctl(h->epoll, EPOLL_CTL_ADD, h->wake, &event)) return stk_fail_errno(err, "epoll_ctl");
    return STK_OK;
}

stk_status stk_http_open(stk_http **out, const stk_http_config *config, stk_error *err)
{
    *out = NULL;
    pthread_once(&curl_once, init_curl);
    if (!curl_is_ready) return stk_fail(err, STK_ERR_SYSTEM, "libcurl cannot start");
    stk_http *h = stk_alloc(STK_TAG_SOURCE, sizeof *h);
    if (!h) return stk_fail(err, STK_ERR_NOMEM, "out of memory: a transport");
    h->config = *config;
    h->epoll = h->wake = -1;
    h->timer = STK_FOREVER;
    h->keeps_headers = curl_version_info(CURLVERSION_NOW)->version_num < 0x080200;
    h->multi = curl_multi_init();
    stk_status status = h->multi && make_shares(h) ? STK_OK : stk_fail(err, STK_ERR_NOMEM, "out of memory: a transport");
    if (status == STK_OK) status = open_descriptors(h, err);
    if (status < 0) {
        stk_http_close(&h);
        return status;
    }
    curl_multi_setopt(h->multi, CURLMOPT_SOCKETFUNCTION, on_socket);
    curl_multi_setopt(h->multi, CURLMOPT_SOCKETDATA, h);
    curl_multi_setopt(h->multi, CURLMOPT_TIMERFUNCTION, on_timer);
    curl_multi_setopt(h->multi, CURLMOPT_TIMERDATA, h);
    curl_multi_setopt(h->multi, CURLMOPT_MAXCONNECTS, (long)config->limit);
    curl_multi_setopt(h->multi, CURLMOPT_PIPELINING, (long)CURLPIPE_NOTHING);
    *out = h;
    return STK_OK;
}

void stk_http_close(stk_http **http)
{
    stk_http *const h = *http;
    *http = NULL;
    if (!h) return;
    while (h->running) (void)stk_http_stop(h, h->running);
    while (h->idle) {
        stk_exchange *const x = h->idle;
        take_out(&h->idle, x);
        free_exchange(x);
    }
    if (h->multi) curl_multi_cleanup(h->multi);
    for (int i = 0; i < SPREAD; i++)
        if (h->share[i]) curl_share_cleanup(h->share[i]);
    if (h->epoll >= 0) close(h->epoll);
    if (h->wake >= 0) close(h->wake);
    stk_free(h->watched);
    stk_free(h);
}
