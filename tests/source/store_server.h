/* store_server.h - a small HTTP server inside a test, whose script decides what each request gets.
 *
 * A thread a connection, blocking calls, loopback only.  A script looks at the request and answers with the calls below; what
 * it returns says whether the connection stays open.  server_object is the well-behaved answer: GET, HEAD, Range, If-Match of
 * the object that the path names: "/bucket/<size>-<anything>" has that many bytes, all told by path and place. */
#ifndef STK_STORE_SERVER_H
#define STK_STORE_SERVER_H

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <strings.h>
#include <sys/socket.h>

#include "test.h"

typedef struct server server;

typedef struct exchange {
    server *server;
    int fd;
    int connection, request;     /* of the server, from 0, in the order of arrival */
    int nth;                     /* of this path, from 0 */
    char head[32 * 1024];        /* terminated */
    char method[8], path[4096];  /* as sent, with the query */
    char *body;                  /* of a PUT */
    size_t body_bytes;
} exchange;

/* True: the connection stays open. */
typedef bool server_script(exchange *x);

enum { SERVER_CONNECTIONS = 4096, SERVER_PATHS = 4096 };

struct server {
    server_script *script;
    void *context;
    int listener, port;
    pthread_t acceptor;
    pthread_mutex_t lock; /* guards all below */
    pthread_cond_t change;
    int connections, requests, in_flight, most_in_flight;
    bool stop;
    int fd[SERVER_CONNECTIONS];
    pthread_t thread[SERVER_CONNECTIONS];
    char *seen_path[SERVER_PATHS];
    int seen_count[SERVER_PATHS], paths;
};

/* --- answers --- */

static inline bool server_send(exchange *x, const void *data, size_t size)
{
    const char *at = data;
    while (size) {
        const ssize_t sent = send(x->fd, at, size, MSG_NOSIGNAL);
        if (sent <= 0) return false;
        at += sent;
        size -= (size_t)sent;
    }
    return true;
}

__attribute__((format(printf, 2, 3))) static inline bool server_say(exchange *x, const char *format, ...)
{
    char text[8192];
    va_list arguments;
    va_start(arguments, format);
    const int length = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return server_send(x, text, (size_t)length);
}

/* A whole answer with a body of text. */
static inline bool server_status(exchange *x, int status, const char *headers, const char *body)
{
    const bool head_only = strcmp(x->method, "HEAD") == 0;
    return server_say(x, "HTTP/1.1 %d Said\r\nContent-Length: %zu\r\n%s\r\n%s", status, strlen(body), headers, head_only ? "" : body);
}

static inline bool server_error(exchange *x, int status, const char *code)
{
    char body[512];
    snprintf(body, sizeof body, "<?xml version=\"1.0\"?><Error><Code>%s</Code><Message>said so</Message></Error>", code);
    return server_status(x, status, "", body);
}

/* Close so that the other side sees a reset. */
static inline bool server_reset(exchange *x)
{
    const struct linger now = {.l_onoff = 1, .l_linger = 0};
    setsockopt(x->fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    return false;
}

/* Sleep, or until the server stops. */
static inline void server_wait(exchange *x, int ms)
{
    struct pollfd p = {.fd = x->fd, .events = POLLRDHUP};
    poll(&p, 1, ms); /* or until the other side has gone */
}

static inline const char *server_header(const exchange *x, const char *name)
{
    const size_t length = strlen(name);
    for (const char *at = strstr(x->head, "\r\n"); at; at = strstr(at + 2, "\r\n")) {
        if (strncasecmp(at + 2, name, length) != 0 || at[2 + length] != ':') continue;
        const char *value = at + 3 + length;
        while (*value == ' ') value++;
        return value;
    }
    return NULL;
}

/* --- objects --- */

static inline uint8_t object_byte(unsigned seed, uint64_t at)
{
    return (uint8_t)((at * 2654435761u >> 13) + seed);
}

static inline unsigned object_seed(const char *path)
{
    unsigned seed = 7;
    for (; *path && *path != '?'; path++) seed = seed * 31 + (uint8_t)*path;
    return seed;
}

static inline uint64_t object_size(const char *path)
{
    const char *const slash = strrchr(path, '/');
    return slash ? strtoull(slash + 1, NULL, 10) : 0;
}

typedef struct object_range {
    uint64_t first, end, total;
    bool partial;
} object_range;

/* What is asked of the object.  False: past its end. */
static inline bool server_range(const exchange *x, object_range *out)
{
    out->total = object_size(x->path);
    out->first = 0;
    out->end = out->total;
    const char *const range = server_header(x, "Range");
    out->partial = range && strncmp(range, "bytes=", 6) == 0;
    if (!out->partial) return true;
    char *end;
    out->first = strtoull(range + 6, &end, 10);
    if (*end == '-' && end[1] >= '0' && end[1] <= '9') {
        const uint64_t last = strtoull(end + 1, NULL, 10);
        if (last + 1 < out->end) out->end = last + 1;
    }
    return out->first < out->total;
}

static inline bool server_bytes(exchange *x, uint64_t first, uint64_t end)
{
    static const size_t piece = 64 << 10;
    uint8_t *const bytes = malloc(piece);
    const unsigned seed = object_seed(x->path);
    bool good = true;
    while (good && first < end) {
        const size_t size = end - first < piece ? (size_t)(end - first) : piece;
        for (size_t i = 0; i < size; i++) bytes[i] = object_byte(seed, first + i);
        good = server_send(x, bytes, size);
        first += size;
    }
    free(bytes);
    return good;
}

static inline bool server_head(exchange *x, const object_range *r, const char *more)
{
    char range[96] = "";
    if (r->partial)
        snprintf(range, sizeof range, "Content-Range: bytes %llu-%llu/%llu\r\n", (unsigned long long)r->first,
                 (unsigned long long)(r->end - 1), (unsigned long long)r->total);
    return server_say(x, "HTTP/1.1 %s\r\nETag: \"e%u\"\r\nContent-Length: %llu\r\n%s%s\r\n", r->partial ? "206 Partial" : "200 OK",
                      object_seed(x->path), (unsigned long long)(r->end - r->first), range, more);
}

static inline bool server_object(exchange *x)
{
    object_range r;
    const char *const match = server_header(x, "If-Match");
    char etag[32];
    const int etag_bytes = snprintf(etag, sizeof etag, "\"e%u\"", object_seed(x->path));
    if (match && strncmp(match, etag, (size_t)etag_bytes) != 0) return server_error(x, 412, "PreconditionFailed");
    if (!server_range(x, &r)) {
        char range[64];
        snprintf(range, sizeof range, "Content-Range: bytes */%llu\r\n", (unsigned long long)r.total);
        return server_status(x, 416, range, "<Error><Code>InvalidRange</Code></Error>");
    }
    if (!server_head(x, &r, "")) return false;
    return strcmp(x->method, "HEAD") == 0 || server_bytes(x, r.first, r.end);
}

/* --- connections --- */

static inline bool server_read_head(exchange *x, size_t *have)
{
    for (;;) {
        x->head[*have] = 0;
        if (strstr(x->head, "\r\n\r\n")) return true;
        if (*have + 1 >= sizeof x->head) return false;
        const ssize_t got = recv(x->fd, x->head + *have, sizeof x->head - 1 - *have, 0);
        if (got <= 0) return false;
        *have += (size_t)got;
    }
}

static inline bool server_read_body(exchange *x, size_t head_bytes, size_t have)
{
    const char *const length = server_header(x, "Content-Length");
    x->body_bytes = length ? strtoull(length, NULL, 10) : 0;
    x->body = malloc(x->body_bytes + 1);
    size_t got = have - head_bytes < x->body_bytes ? have - head_bytes : x->body_bytes;
    memcpy(x->body, x->head + head_bytes, got);
    while (got < x->body_bytes) {
        const ssize_t more = recv(x->fd, x->body + got, x->body_bytes - got, 0);
        if (more <= 0) return false;
        got += (size_t)more;
    }
    return true;
}

static inline void server_count(exchange *x)
{
    server *const s = x->server;
    pthread_mutex_lock(&s->lock);
    x->request = s->requests++;
    if (++s->in_flight > s->most_in_flight) s->most_in_flight = s->in_flight;
    int i = 0;
    while (i < s->paths && strcmp(s->seen_path[i], x->path) != 0) i++;
    if (i == s->paths && s->paths < SERVER_PATHS) s->seen_path[s->paths++] = strdup(x->path);
    x->nth = s->seen_count[i]++;
    pthread_cond_broadcast(&s->change);
    pthread_mutex_unlock(&s->lock);
}

typedef struct connection_start {
    server *server;
    int fd, connection;
} connection_start;

static inline void *server_connection(void *context)
{
    const connection_start start = *(connection_start *)context;
    free(context);
    exchange *const x = calloc(1, sizeof *x);
    x->server = start.server;
    x->fd = start.fd;
    x->connection = start.connection;
    for (bool open = true; open;) {
        size_t have = 0;
        if (!server_read_head(x, &have) || sscanf(x->head, "%7s %4095s", x->method, x->path) != 2) break;
        const size_t head_bytes = (size_t)(strstr(x->head, "\r\n\r\n") + 4 - x->head);
        const bool whole = server_read_body(x, head_bytes, have);
        x->head[head_bytes - 2] = 0;
        if (whole) {
            server_count(x);
            open = x->server->script(x);
            pthread_mutex_lock(&x->server->lock);
            x->server->in_flight--;
            pthread_mutex_unlock(&x->server->lock);
        }
        free(x->body);
        x->body = NULL;
        open = open && whole;
    }
    pthread_mutex_lock(&x->server->lock);
    x->server->fd[x->connection] = -1;
    close(x->fd);
    pthread_mutex_unlock(&x->server->lock);
    free(x);
    return NULL;
}

static inline void *server_accept(void *context)
{
    server *const s = context;
    for (;;) {
        const int fd = accept4(s->listener, NULL, NULL, SOCK_CLOEXEC);
        if (fd < 0) return NULL;
        const int one = 1;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        pthread_mutex_lock(&s->lock);
        if (s->stop || s->connections == SERVER_CONNECTIONS) {
            close(fd);
        } else {
            const int at = s->connections++;
            connection_start *const start = malloc(sizeof *start);
            *start = (connection_start){s, fd, at};
            s->fd[at] = fd;
            CHECK(pthread_create(&s->thread[at], NULL, server_connection, start) == 0);
        }
        pthread_mutex_unlock(&s->lock);
    }
}

static inline server *server_start(server_script *script, void *context)
{
    server *const s = calloc(1, sizeof *s);
    s->script = script;
    s->context = context;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->change, NULL);
    s->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    CHECK(bind(s->listener, (struct sockaddr *)&address, size) == 0 && listen(s->listener, 1024) == 0);
    CHECK(getsockname(s->listener, (struct sockaddr *)&address, &size) == 0);
    s->port = ntohs(address.sin_port);
    CHECK(pthread_create(&s->acceptor, NULL, server_accept, s) == 0);
    return s;
}

typedef struct server_seen {
    int connections, requests, most_in_flight;
} server_seen;

/* Ends all connections, and says what there was. */
static inline server_seen server_stop(server *s)
{
    pthread_mutex_lock(&s->lock);
    s->stop = true;
    for (int i = 0; i < s->connections; i++)
        if (s->fd[i] >= 0) shutdown(s->fd[i], SHUT_RDWR);
    pthread_mutex_unlock(&s->lock);
    shutdown(s->listener, SHUT_RDWR);
    pthread_join(s->acceptor, NULL);
    for (int i = 0; i < s->connections; i++) pthread_join(s->thread[i], NULL);
    close(s->listener);
    const server_seen seen = {s->connections, s->requests, s->most_in_flight};
    for (int i = 0; i < s->paths; i++) free(s->seen_path[i]);
    pthread_mutex_destroy(&s->lock);
    pthread_cond_destroy(&s->change);
    free(s);
    return seen;
}

/* Wait until that many requests have arrived. */
static inline void server_wait_requests(server *s, int count)
{
    pthread_mutex_lock(&s->lock);
    while (s->requests < count) pthread_cond_wait(&s->change, &s->lock);
    pthread_mutex_unlock(&s->lock);
}

#endif
