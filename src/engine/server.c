/* server.c - the engine process: its loop over the socket, its clients and the engine, and when it ends. */
#include "engine/server.h"

#include <errno.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "engine/meeting.h"
#include "engine/options_text.h"

enum { CLIENTS_MAX = 4096, TICK_MS = 250 };

struct stk_server {
    stk_meeting meeting;
    int listen_fd, wake_fd;
    bool pinned;      /* its configuration was given by hand */
    bool waits_first; /* however long, for its first client */
    stk_ns linger_ns, alone_ns; /* when somebody was here last */
    bool (*stopped)(void *context);
    void *context;
    stk_serving *serving;
    stk_attached *client; /* CLIENTS_MAX */
    struct pollfd *polled;
    uint32_t client_count;
};

/* --- clients --- */

static void accept_one(stk_server *s, int fd)
{
    struct ucred peer;
    socklen_t size = sizeof peer;
    const bool ours = getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == geteuid();
    if (!ours || s->client_count == CLIENTS_MAX) {
        close(fd);
        return;
    }
    stk_attached_init(&s->client[s->client_count++], fd, peer.pid);
    s->waits_first = false;
}

static void accept_all(stk_server *s)
{
    int fd;
    while ((fd = accept4(s->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0) accept_one(s, fd);
}

static void drop_gone(stk_server *s)
{
    for (uint32_t i = 0; i < s->client_count;) {
        if (!s->client[i].gone) {
            i++;
            continue;
        }
        stk_attached_deinit(&s->client[i]);
        s->client[i] = s->client[--s->client_count];
    }
}

/* Who has left, and only holds batches on, is not: these need nobody. */
static bool is_anyone_here(const stk_server *s)
{
    for (uint32_t i = 0; i < s->client_count; i++)
        if (!s->client[i].left) return true;
    return false;
}

/* Who only looks whether an engine is here does not keep it. */
static void note_who_is_here(stk_server *s)
{
    for (uint32_t i = 0; i < s->client_count; i++)
        if (s->client[i].spoke && !s->client[i].left) s->alone_ns = stk_now();
}

/* Whether all the others have no say any more. */
static bool is_alone(const stk_server *s, const stk_attached *client)
{
    for (uint32_t i = 0; i < s->client_count; i++)
        if (&s->client[i] != client && s->client[i].seat) return false;
    return !client->seat;
}

/* --- the loop --- */

static void wait_for_events(stk_server *s)
{
    struct pollfd *const p = s->polled;
    p[0] = (struct pollfd){.fd = s->listen_fd, .events = POLLIN};
    p[1] = (struct pollfd){.fd = s->wake_fd, .events = POLLIN};
    for (uint32_t i = 0; i < s->client_count; i++) {
        const stk_attached *const a = &s->client[i];
        p[2 + 2 * i] = (struct pollfd){.fd = a->fd, .events = (short)(POLLIN | (a->out.size_bytes ? POLLOUT : 0))};
        p[3 + 2 * i] = (struct pollfd){.fd = a->process_fd, .events = POLLIN};
    }
    if (poll(p, 2 + 2 * s->client_count, TICK_MS) < 0)
        for (uint32_t i = 0; i < 2 + 2 * s->client_count; i++) p[i].revents = 0; /* interrupted: nothing is known */
    eventfd_t count;
    if (p[1].revents) (void)eventfd_read(s->wake_fd, &count);
}

static void turn(stk_server *s)
{
    wait_for_events(s);
    note_who_is_here(s);
    /* First who has gone: who comes in his place may be among the others. */
    for (uint32_t i = 0; i < s->client_count; i++)
        if ((s->polled[2 + 2 * i].revents & (POLLHUP | POLLERR)) || (s->polled[3 + 2 * i].revents & POLLIN)) stk_attached_end(&s->client[i]);
    for (uint32_t i = 0; i < s->client_count; i++)
        if (s->polled[2 + 2 * i].revents & POLLIN) stk_attached_read(&s->client[i], s->serving, !s->pinned && is_alone(s, &s->client[i]));
    drop_gone(s);
    if (s->polled[0].revents) accept_all(s);
    stk_serving_advance(s->serving);
    for (uint32_t i = 0; i < s->client_count; i++) stk_attached_write(&s->client[i], s->serving);
    drop_gone(s);
}

/* --- the end --- */

/* Nobody has been here for a while, and nobody is about to come: true, and the place is left. */
static bool may_end(stk_server *s)
{
    int lock;
    if (is_anyone_here(s) || s->waits_first || stk_now() - s->alone_ns < s->linger_ns) return false;
    const stk_status locked = stk_meeting_lock(&s->meeting, 0, &lock, NULL);
    if (locked != STK_OK) return locked < 0; /* the folder is gone: nobody can come any more; else somebody is about to */
    struct pollfd p = {.fd = s->listen_fd, .events = POLLIN};
    const bool ends = poll(&p, 1, 0) == 0;
    if (ends) {
        close(s->listen_fd);
        s->listen_fd = -1;
        stk_meeting_clear(&s->meeting);
    }
    stk_meeting_unlock(lock);
    return ends;
}

stk_status stk_server_run(stk_server *s, stk_error *err)
{
    s->alone_ns = stk_now();
    while (!may_end(s)) {
        if (s->stopped && s->stopped(s->context))
            return stk_fail(err, STK_ERR_INTERRUPTED, "the engine of run %s was stopped", s->meeting.run);
        turn(s);
    }
    return STK_OK;
}

/* --- the object --- */

/* What a client of this configuration would say. */
static stk_status pin(stk_server *s, const stk_serve *serve, stk_error *err)
{
    stk_buffer text;
    char file[4096], all[32];
    snprintf(all, sizeof all, serve->world > 1 ? "0-%u" : "%u", serve->world - 1);
    stk_wire_hello hello = {.release = stk_str_of(stk_version()), .world = serve->world, .readers = serve->readers,
                            .node_ranks = stk_str_of(serve->node_ranks ? serve->node_ranks : all)};
    STK_TRY(stk_options_place(serve->options, file, sizeof file, err));
    stk_buffer_init(&text, STK_TAG_ENGINE, STK_WIRE_MESSAGE_MAX);
    stk_status status = stk_options_write(serve->options, &text, err);
    hello.file = stk_str_of(file);
    hello.options = (stk_str){(const char *)text.data, text.size_bytes};
    if (status == STK_OK) status = stk_serving_agree(s->serving, &hello, true, err);
    stk_buffer_deinit(&text);
    s->pinned = true;
    return status;
}

static stk_status listen_alone(stk_server *s, stk_error *err)
{
    int lock, other = -1;
    STK_TRY(stk_meeting_lock(&s->meeting, stk_now() + 10 * STK_S, &lock, err));
    stk_meeting_sweep(&s->meeting);
    stk_status status = stk_meeting_connect(&s->meeting, &other, err);
    if (status == STK_OK) status = stk_fail(err, STK_ERR_USAGE, "run %s has an engine already", s->meeting.run);
    else if (status == STK_AGAIN) status = stk_meeting_listen(&s->meeting, &s->listen_fd, err);
    if (other >= 0) close(other);
    stk_meeting_unlock(lock);
    return status;
}

static stk_status open_parts(stk_server *s, const stk_serve *serve, stk_error *err)
{
    STK_TRY(stk_meeting_find(&s->meeting, serve->run, err));
    s->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (s->wake_fd < 0) return stk_fail_errno(err, "cannot make an eventfd");
    s->client = stk_alloc_array(STK_TAG_ENGINE, CLIENTS_MAX, sizeof *s->client);
    s->polled = stk_alloc_array(STK_TAG_ENGINE, 2 * CLIENTS_MAX + 2, sizeof *s->polled);
    if (!s->client || !s->polled) return stk_fail(err, STK_ERR_NOMEM, "out of memory: an engine process");
    STK_TRY(stk_serving_create(&s->serving, s->wake_fd, err));
    if (serve->options) STK_TRY(pin(s, serve, err));
    return listen_alone(s, err);
}

stk_status stk_server_open(stk_server **out, const stk_serve *serve, stk_error *err)
{
    *out = NULL;
    stk_server *s = stk_alloc(STK_TAG_ENGINE, sizeof *s);
    if (!s) return stk_fail(err, STK_ERR_NOMEM, "out of memory: an engine process");
    s->listen_fd = s->wake_fd = -1;
    s->linger_ns = serve->linger_ns;
    s->waits_first = serve->waits_first;
    s->stopped = serve->stopped;
    s->context = serve->context;
    const stk_status status = open_parts(s, serve, err);
    if (status < 0) {
        stk_server_close(&s);
        return status;
    }
    *out = s;
    return STK_OK;
}

void stk_server_close(stk_server **out)
{
    stk_server *const s = *out;
    *out = NULL;
    if (!s) return;
    int lock;
    if (s->listen_fd >= 0 && stk_meeting_lock(&s->meeting, stk_now() + STK_S, &lock, NULL) == STK_OK) {
        stk_meeting_clear(&s->meeting);
        stk_meeting_unlock(lock);
    }
    if (s->listen_fd >= 0) close(s->listen_fd);
    /* The engine first: it would write to what clients hold, once that is released here. */
    stk_serving_destroy(s->serving);
    for (uint32_t i = 0; i < s->client_count; i++) {
        s->client[i].seat = NULL;
        stk_attached_deinit(&s->client[i]);
    }
    if (s->wake_fd >= 0) close(s->wake_fd);
    stk_free(s->client);
    stk_free(s->polled);
    stk_free(s);
}
