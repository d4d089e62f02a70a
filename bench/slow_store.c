/* slow_store.c - a store that answers late: objects in memory, a wait before each first byte, faults by
 * chance.
 *
 *     slow_store [OPTION=VALUE...]         prints "port N" and serves until it is killed
 *
 *     host=127.0.0.1 port=0 objects=2000 bytes=110000     b/img/00000.jpg and so on, of any bucket; or
 *     folder=PATH                          its files by their paths below it
 *     ms=30 sigma=0                        the wait: ms * exp(sigma * gauss)
 *     tail=0 tail_ms=2000                  with that chance, tail_ms instead
 *     throttle=0 reset=0                   chances of a 503 SlowDown, of a reset in the middle of a body
 *     seed=1
 *
 * GET, HEAD, Range, If-Match and ListObjectsV2; signatures are not looked at.  GET /_counts gives what was
 * counted since the last one, as JSON.  One thread that does little, so that on two cores a client is what is
 * measured.
 *
 * Not here: correctness.  tests/s3 asks servers that verify. */
#include <arpa/inet.h>
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { HEAD_BYTES = 16384, EVENTS = 256, RING_BYTES = 4 << 20, KEYS_A_PAGE = 1000 };

typedef struct object {
    char *key;
    off_t at; /* of its bytes in the memory file */
    size_t size;
    bool asked;
} object;

/* A client.  It reads a request, waits, writes the answer: never two of these at once. */
typedef struct client {
    int fd; /* -1: gone, and freed when its wait is over */
    bool waiting, writing, cut;
    double due;
    size_t asked_bytes, head_bytes, sent_bytes;
    off_t body_at;
    size_t body_left;
    char *head; /* status, headers, and a body that is no object's */
    char asked[HEAD_BYTES];
} client;

typedef struct counts {
    long requests, gets, lists, ranges, connections, bytes, throttled, resets, distinct, in_flight,
        most_in_flight;
} counts;

static struct {
    double objects, bytes, ms, sigma, tail, tail_ms, throttle, reset, seed, port;
    const char *folder, *host;
} option = {.host = "127.0.0.1", .objects = 2000, .bytes = 110000, .ms = 30, .tail_ms = 2000, .seed = 1};

static object *objects;
static size_t object_count, object_room;
static int bodies, poller;
static counts count;
static client **queue; /* a heap by due */
static size_t queued, queue_room;

static void die(const char *what)
{
    perror(what);
    exit(1);
}

static void *grown(void *memory, size_t count_now, size_t *room, size_t each)
{
    if (count_now < *room) return memory;
    *room = *room ? *room * 2 : 1024;
    if (!(memory = realloc(memory, *room * each))) die("realloc");
    return memory;
}

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static double chance(void) /* in (0, 1); splitmix64 */
{
    static uint64_t state;
    if (!state) state = (uint64_t)option.seed * 0x9E3779B97F4A7C15u + 1;
    uint64_t z = state += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return ((double)((z ^ (z >> 31)) >> 11) + 0.5) * 0x1p-53;
}

static double wait_s(void)
{
    if (option.tail > 0 && chance() < option.tail) return option.tail_ms * 1e-3;
    const double gauss = option.sigma > 0 ? sqrt(-2 * log(chance())) * cos(2 * M_PI * chance()) : 0;
    return option.ms * 1e-3 * exp(option.sigma * gauss);
}

/* --- objects --- */

static void add_object(const char *key, off_t at, size_t size)
{
    objects = grown(objects, object_count, &object_room, sizeof *objects);
    objects[object_count++] = (object){strdup(key), at, size, false};
}

static int by_key(const void *a, const void *b)
{
    return strcmp(((const object *)a)->key, ((const object *)b)->key);
}

/* Random bytes that the objects share: as far as a network is concerned they differ. */
static void make_objects(void)
{
    const size_t size = RING_BYTES + (size_t)option.bytes;
    if (ftruncate(bodies, (off_t)size)) die("ftruncate");
    uint64_t *const word = mmap(NULL, size, PROT_WRITE, MAP_SHARED, bodies, 0);
    if (word == MAP_FAILED) die("mmap");
    for (size_t i = 0; i < size / 8; i++)
        word[i] = (i + 1) * 0x9E3779B97F4A7C15u ^ ((i + 7) * 0xD1B54A32D192ED03u >> 17);
    munmap(word, size);
    for (int i = 0; i < (int)option.objects; i++) {
        char key[32];
        snprintf(key, sizeof key, "img/%05d.jpg", i);
        add_object(key, (off_t)i * 4099 % RING_BYTES, (size_t)option.bytes);
    }
}

static void load_file(const char *path, const char *key)
{
    static off_t end;
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat about;
    if (fd < 0 || fstat(fd, &about)) die(path);
    add_object(key, end, (size_t)about.st_size);
    if (ftruncate(bodies, end + about.st_size)) die("ftruncate");
    if (lseek(bodies, end, SEEK_SET) < 0) die("lseek");
    for (off_t at = 0; at < about.st_size;)
        if (sendfile(bodies, fd, &at, (size_t)(about.st_size - at)) <= 0) die(path);
    end += about.st_size;
    close(fd);
}

static void load_folder(const char *path, const char *prefix)
{
    DIR *const dir = opendir(path);
    if (!dir) die(path);
    for (const struct dirent *e; (e = readdir(dir));) {
        char below[4096], key[4096];
        struct stat about;
        if (e->d_name[0] == '.') continue;
        if (snprintf(below, sizeof below, "%s/%s", path, e->d_name) >= (int)sizeof below) continue;
        if (snprintf(key, sizeof key, "%s%s%s", prefix, *prefix ? "/" : "", e->d_name) >= (int)sizeof key)
            continue;
        if (stat(below, &about)) die(below);
        if (S_ISDIR(about.st_mode))
            load_folder(below, key);
        else
            load_file(below, key);
    }
    closedir(dir);
}

/* --- answers --- */

static void answer(client *c, const char *status, const char *headers, const char *body, bool only_head)
{
    const size_t length = strlen(body);
    if (asprintf(&c->head,
                 "HTTP/1.1 %s\r\nServer: slow_store\r\nx-amz-request-id: %016lX\r\n%sContent-Length: "
                 "%zu\r\n\r\n%s",
                 status, count.requests, headers, length, only_head ? "" : body) < 0)
        die("asprintf");
    c->head_bytes = strlen(c->head);
}

static void refuse(client *c, const char *status, const char *code, bool only_head)
{
    char body[256];
    snprintf(
        body, sizeof body,
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>%s</Code><Message>%s</Message></Error>",
        code, status);
    answer(c, status, "Content-Type: application/xml\r\n", body, only_head);
}

static const char *header(const client *c, const char *name)
{
    const char *at = strcasestr(c->asked, name);
    if (!at) return NULL;
    at += strlen(name);
    return at + strspn(at, " ");
}

/* bytes=A-B, bytes=A-, bytes=-N: false when nothing of the object is in it. */
static bool range_of(const char *text, size_t size, size_t *from, size_t *end)
{
    size_t first, last;
    *from = 0, *end = size;
    if (sscanf(text, "bytes=-%zu", &last) == 1)
        *from = last < size ? size - last : 0;
    else if (sscanf(text, "bytes=%zu-%zu", &first, &last) == 2)
        *from = first, *end = last < size ? last + 1 : size;
    else if (sscanf(text, "bytes=%zu-", &first) == 1)
        *from = first;
    return *from < *end;
}

static void answer_object(client *c, const char *key, bool only_head)
{
    object *const o = bsearch(&(object){.key = (char *)key}, objects, object_count, sizeof *objects, by_key);
    if (!o) {
        refuse(c, "404 Not Found", "NoSuchKey", only_head);
        return;
    }
    char etag[48], headers[400], part[100] = "";
    snprintf(etag, sizeof etag, "\"%016zx%016zx\"", (size_t)(o - objects), o->size);
    const char *const match = header(c, "\r\nif-match:"), *const range = header(c, "\r\nrange:");
    size_t from = 0, end = o->size;
    if (match && strncmp(match, etag, strlen(etag)) != 0) {
        refuse(c, "412 Precondition Failed", "PreconditionFailed", only_head);
        return;
    }
    if (range && !range_of(range, o->size, &from, &end)) {
        refuse(c, "416 Range Not Satisfiable", "InvalidRange", only_head);
        return;
    }
    if (range) snprintf(part, sizeof part, "Content-Range: bytes %zu-%zu/%zu\r\n", from, end - 1, o->size);
    snprintf(headers, sizeof headers,
             "ETag: %s\r\nLast-Modified: Sun, 01 Nov 2026 00:00:00 GMT\r\nAccept-Ranges: bytes\r\n%s", etag,
             part);
    if (asprintf(
            &c->head,
            "HTTP/1.1 %s\r\nServer: slow_store\r\nx-amz-request-id: %016lX\r\n%sContent-Length: %zu\r\n\r\n",
            range ? "206 Partial Content" : "200 OK", count.requests, headers, end - from) < 0)
        die("asprintf");
    c->head_bytes = strlen(c->head);
    if (only_head) return;
    c->body_at = o->at + (off_t)from;
    c->body_left = end - from;
    if (option.reset > 0 && chance() < option.reset) c->cut = true, c->body_left /= 2, count.resets++;
    count.ranges += range != NULL;
    count.distinct += !o->asked;
    o->asked = true;
}

/* The value of name in a query, percent form undone; "" where it is absent. */
static void parameter(const char *query, const char *name, char *out, size_t room)
{
    const size_t length = strlen(name);
    size_t n = 0;
    while (*query && !(strncmp(query, name, length) == 0 && query[length] == '='))
        query += strcspn(query, "&"), query += *query == '&';
    if (*query) {
        unsigned byte;
        for (query += length + 1; *query && *query != '&' && n + 1 < room; query++) {
            if (*query == '%' && sscanf(query + 1, "%2x", &byte) == 1)
                out[n++] = (char)byte, query += 2;
            else
                out[n++] = *query;
        }
    }
    out[n] = 0;
}

/* Keys are given in percent form throughout, which encoding-type=url asks for. */
static void answer_list(client *c, const char *query)
{
    char prefix[1024], token[1024], *body = NULL;
    size_t length, listed = 0, i = 0;
    parameter(query, "prefix", prefix, sizeof prefix);
    parameter(query, "continuation-token", token, sizeof token);
    FILE *const out = open_memstream(&body, &length);
    if (!out) die("open_memstream");
    fputs("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<ListBucketResult><EncodingType>url</EncodingType>",
          out);
    for (i = (size_t)atol(token); i < object_count && listed < KEYS_A_PAGE; i++) {
        if (strncmp(objects[i].key, prefix, strlen(prefix)) != 0) continue;
        fputs("<Contents><Key>", out);
        for (const char *k = objects[i].key; *k; k++) {
            if (isalnum((unsigned char)*k) || strchr("-._~/", *k))
                fputc(*k, out);
            else
                fprintf(out, "%%%02X", (unsigned char)*k);
        }
        fprintf(out, "</Key><ETag>&quot;%016zx%016zx&quot;</ETag><Size>%zu</Size></Contents>", i,
                objects[i].size, objects[i].size);
        listed++;
    }
    fprintf(out, "<KeyCount>%zu</KeyCount><IsTruncated>%s</IsTruncated>", listed,
            i < object_count ? "true" : "false");
    if (i < object_count) fprintf(out, "<NextContinuationToken>%zu</NextContinuationToken>", i);
    fputs("</ListBucketResult>", out);
    fclose(out);
    answer(c, "200 OK", "Content-Type: application/xml\r\n", body, false);
    free(body);
}

static void answer_counts(client *c)
{
    char body[512];
    snprintf(body, sizeof body,
             "{\"requests\": %ld, \"gets\": %ld, \"lists\": %ld, \"ranges\": %ld, \"connections\": %ld, "
             "\"bytes\": %ld, \"throttled\": %ld, "
             "\"resets\": %ld, \"distinct\": %ld, \"most_in_flight\": %ld}\n",
             count.requests, count.gets, count.lists, count.ranges, count.connections, count.bytes,
             count.throttled, count.resets, count.distinct, count.most_in_flight);
    count = (counts){.in_flight = count.in_flight};
    for (size_t i = 0; i < object_count; i++) objects[i].asked = false;
    answer(c, "200 OK", "Content-Type: application/json\r\n", body, false);
}

static void percent_undo(char *text)
{
    char *to = text;
    unsigned byte;
    for (; *text; text++) {
        if (*text == '%' && sscanf(text + 1, "%2x", &byte) == 1)
            *to++ = (char)byte, text += 2;
        else
            *to++ = *text;
    }
    *to = 0;
}

/* What will be answered; and false: at once. */
static bool prepare(client *c)
{
    char method[8] = "", target[HEAD_BYTES] = "";
    if (sscanf(c->asked, "%7s %16383s", method, target) != 2) {
        refuse(c, "400 Bad Request", "InvalidRequest", false);
        return false;
    }
    if (strcmp(target, "/_counts") == 0) {
        answer_counts(c);
        return false;
    }
    count.requests++;
    char *query = target + strcspn(target, "?");
    if (*query) *query++ = 0;
    char *key = strchr(target + 1, '/');
    const bool only_head = strcmp(method, "HEAD") == 0;
    if (option.throttle > 0 && chance() < option.throttle)
        count.throttled++, refuse(c, "503 Slow Down", "SlowDown", only_head);
    else if (strcmp(method, "GET") != 0 && !only_head)
        refuse(c, "405 Method Not Allowed", "MethodNotAllowed", false);
    else if (key && key[1])
        count.gets++, percent_undo(++key), answer_object(c, key, only_head);
    else if (only_head)
        answer(c, "200 OK", "", "", true);
    else
        count.lists++, answer_list(c, query);
    return true;
}

/* --- the loop --- */

static void enqueue(client *c)
{
    queue = grown(queue, queued, &queue_room, sizeof *queue);
    size_t i = queued++;
    for (; i && queue[(i - 1) / 2]->due > c->due; i = (i - 1) / 2) queue[i] = queue[(i - 1) / 2];
    queue[i] = c;
}

static client *dequeue(void)
{
    client *const first = queue[0], *const last = queue[--queued];
    size_t i = 0;
    for (size_t k; (k = 2 * i + 1) < queued; i = k) {
        if (k + 1 < queued && queue[k + 1]->due < queue[k]->due) k++;
        if (queue[k]->due >= last->due) break;
        queue[i] = queue[k];
    }
    queue[i] = last;
    return first;
}

static void leave(client *c)
{
    if (c->fd >= 0) close(c->fd);
    c->fd = -1;
    if (c->waiting) return;
    if (c->head) count.in_flight--;
    free(c->head);
    free(c);
}

static void watch(client *c, bool writing)
{
    if (c->writing == writing) return;
    c->writing = writing;
    epoll_ctl(poller, EPOLL_CTL_MOD, c->fd,
              &(struct epoll_event){.events = EPOLLIN | (writing ? EPOLLOUT : 0u), .data.ptr = c});
}

/* As much as the socket takes. */
static void write_on(client *c)
{
    ssize_t n = 0;
    while (c->sent_bytes < c->head_bytes) {
        n = send(c->fd, c->head + c->sent_bytes, c->head_bytes - c->sent_bytes,
                 MSG_NOSIGNAL | (c->body_left ? MSG_MORE : 0));
        if (n < 0) break;
        c->sent_bytes += (size_t)n;
    }
    while (n >= 0 && c->body_left > 0) {
        n = sendfile(c->fd, bodies, &c->body_at, c->body_left);
        if (n <= 0) break;
        c->body_left -= (size_t)n;
        count.bytes += n;
    }
    if (c->sent_bytes == c->head_bytes && c->body_left == 0) {
        watch(c, false);
        free(c->head);
        c->head = NULL;
        count.in_flight--;
        if (!c->cut) return;
        setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &(struct linger){1, 0}, sizeof(struct linger));
        leave(c);
    } else if (n < 0 && errno == EAGAIN)
        watch(c, true);
    else
        leave(c);
}

static void read_on(client *c)
{
    const ssize_t n = recv(c->fd, c->asked + c->asked_bytes, HEAD_BYTES - 1 - c->asked_bytes, MSG_DONTWAIT);
    if (n < 0 && errno == EAGAIN) return;
    if (n <= 0) {
        leave(c);
        return;
    }
    c->asked_bytes += (size_t)n;
    c->asked[c->asked_bytes] = 0;
    if (c->head || !strstr(c->asked, "\r\n\r\n")) return;
    c->asked_bytes = c->sent_bytes = c->body_left = 0;
    c->cut = false;
    c->due = seconds() + (prepare(c) ? wait_s() : 0);
    c->waiting = true;
    if (++count.in_flight > count.most_in_flight) count.most_in_flight = count.in_flight;
    enqueue(c);
}

static void accept_all(int listener)
{
    for (int fd; (fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0;) {
        client *const c = calloc(1, sizeof *c);
        if (!c) die("calloc");
        c->fd = fd;
        count.connections++;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
        epoll_ctl(poller, EPOLL_CTL_ADD, fd, &(struct epoll_event){.events = EPOLLIN, .data.ptr = c});
    }
}

static void answer_who_is_due(void)
{
    for (const double now = seconds(); queued && queue[0]->due <= now;) {
        client *const c = dequeue();
        c->waiting = false;
        if (c->fd < 0)
            leave(c);
        else
            write_on(c);
    }
}

static _Noreturn void serve(int listener)
{
    struct epoll_event event[EVENTS];
    for (;;) {
        double left = queued ? queue[0]->due - seconds() : 1;
        if (left < 0) left = 0;
        const int n =
            epoll_pwait2(poller, event, EVENTS,
                         &(struct timespec){(time_t)left, (long)((left - floor(left)) * 1e9)}, NULL);
        for (int i = 0; i < n; i++) {
            client *const c = event[i].data.ptr;
            if (!c)
                accept_all(listener);
            else if (event[i].events & EPOLLOUT)
                write_on(c);
            else
                read_on(c);
        }
        answer_who_is_due();
    }
}

static void take_option(const char *text)
{
    const struct {
        const char *name;
        double *to;
    } number[] = {{"port=", &option.port},       {"objects=", &option.objects},   {"bytes=", &option.bytes},
                  {"ms=", &option.ms},           {"sigma=", &option.sigma},       {"tail=", &option.tail},
                  {"tail_ms=", &option.tail_ms}, {"throttle=", &option.throttle}, {"reset=", &option.reset},
                  {"seed=", &option.seed}};
    for (size_t i = 0; i < sizeof number / sizeof *number; i++) {
        const size_t length = strlen(number[i].name);
        if (strncmp(text, number[i].name, length) != 0) continue;
        *number[i].to = atof(text + length);
        return;
    }
    if (strncmp(text, "folder=", 7) == 0) {
        option.folder = text + 7;
        return;
    }
    if (strncmp(text, "host=", 5) == 0) {
        option.host = text + 5;
        return;
    }
    fprintf(stderr, "slow_store: what is %s?\n", text);
    exit(2);
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) take_option(argv[i]);
    signal(SIGPIPE, SIG_IGN);
    if ((bodies = memfd_create("bodies", MFD_CLOEXEC)) < 0) die("memfd_create");
    if (option.folder)
        load_folder(option.folder, "");
    else
        make_objects();
    qsort(objects, object_count, sizeof *objects, by_key);

    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)option.port)};
    if (inet_pton(AF_INET, option.host, &address.sin_addr) != 1) {
        fprintf(stderr, "slow_store: host=%s is no IPv4 address\n", option.host);
        return 2;
    }
    socklen_t length = sizeof address;
    const int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int));
    if (listener < 0 || bind(listener, (struct sockaddr *)&address, length) || listen(listener, 4096) ||
        getsockname(listener, (struct sockaddr *)&address, &length))
        die("slow_store: no socket");
    poller = epoll_create1(EPOLL_CLOEXEC);
    epoll_ctl(poller, EPOLL_CTL_ADD, listener, &(struct epoll_event){.events = EPOLLIN, .data.ptr = NULL});
    printf("port %d\n", ntohs(address.sin_port));
    fflush(stdout);
    serve(listener);
}
