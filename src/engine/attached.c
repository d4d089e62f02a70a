/* attached.c - one connection of the engine process: its messages in, its answers out. */
#include "engine/server.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"

#ifndef SO_PEERPIDFD /* C libraries before Linux 6.5 */
#define SO_PEERPIDFD 77
#endif

enum { READ_BYTES = 64 << 10, GIVEN_MAX = 1 << 16 };
#define TELL_EVERY_NS STK_S

/* Of the very process that connected, whoever has its number now, and in another namespace of pids too (Linux 6.5); else by its number.
 * -1: the end of the socket has to do. */
static int open_process(int fd, pid_t pid)
{
    int process_fd;
    socklen_t size = sizeof process_fd;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERPIDFD, &process_fd, &size) == 0) return process_fd;
    return pid > 0 ? (int)syscall(SYS_pidfd_open, pid, 0) : -1;
}

void stk_attached_init(stk_attached *a, int fd, pid_t pid)
{
    *a = (stk_attached){.fd = fd, .process_fd = open_process(fd, pid), .pid = pid, .pass_fd = -1, .told_ns = stk_now()};
    stk_buffer_init(&a->in, STK_TAG_ENGINE, STK_WIRE_MESSAGE_MAX + STK_WIRE_HEADER_BYTES + READ_BYTES);
    stk_buffer_init(&a->out, STK_TAG_ENGINE, 2 * (size_t)STK_WIRE_MESSAGE_MAX);
}

void stk_attached_end(stk_attached *a)
{
    for (size_t i = 0; i < a->given_count; i++) stk_batch_release(&a->given[i].batch);
    a->given_count = 0;
    if (a->seat) stk_seat_leave(a->seat);
    a->seat = NULL;
    a->gone = true;
}

void stk_attached_deinit(stk_attached *a)
{
    stk_attached_end(a);
    if (a->pass_fd >= 0) close(a->pass_fd);
    if (a->process_fd >= 0) close(a->process_fd);
    close(a->fd);
    stk_buffer_deinit(&a->in);
    stk_buffer_deinit(&a->out);
    stk_free(a->given);
}

/* --- what it says --- */

static void tell_error(stk_attached *a, const stk_error *error)
{
    a->gone |= stk_wire_put_error(&a->out, error, NULL) < 0;
}

static stk_status hear_hello(stk_attached *a, stk_serving *serving, stk_bytes payload, bool may_change, stk_error *err)
{
    stk_wire_hello hello;
    STK_TRY(stk_wire_read_hello(payload, &hello, err));
    if (a->seat || a->welcome_due) return stk_fail(err, STK_ERR_SYSTEM, "a second hello on one connection");
    STK_TRY(stk_serving_agree(serving, &hello, may_change, err));
    STK_TRY(stk_serving_sit(serving, &hello, a->pid, &a->seat, err));
    a->welcome_due = true;
    return STK_OK;
}

static stk_status hear_place(stk_attached *a, stk_bytes payload, stk_error *err)
{
    stk_wire_place place;
    STK_TRY(stk_wire_read_place(payload, &place, err));
    if (!a->seat) return stk_fail(err, STK_ERR_SYSTEM, "a place before a hello");
    stk_seat_move(a->seat, &place);
    a->seat->asked_ns = 0;
    a->welcome_due = true;
    a->asks = false;
    return STK_OK;
}

static stk_status hear_release(stk_attached *a, stk_bytes payload, stk_error *err)
{
    uint64_t id;
    STK_TRY(stk_wire_read_number(payload, &id, err));
    for (size_t i = 0; i < a->given_count; i++) {
        if (a->given[i].id != id) continue;
        stk_batch_release(&a->given[i].batch);
        a->given[i] = a->given[--a->given_count];
        return STK_OK;
    }
    return stk_fail(err, STK_ERR_SYSTEM, "a release of a batch that is not out");
}

static stk_status hear(stk_attached *a, stk_serving *serving, const stk_wire_message *message, bool may_change, stk_error *err)
{
    stk_metrics metrics = {0};
    switch ((int)message->kind) {
    case STK_WIRE_HELLO: return hear_hello(a, serving, message->payload, may_change, err);
    case STK_WIRE_PLACE: return hear_place(a, message->payload, err);
    case STK_WIRE_NEXT:
        a->asks = a->seat != NULL;
        a->told_ns = stk_now();
        return STK_OK;
    case STK_WIRE_RELEASE: return hear_release(a, message->payload, err);
    case STK_WIRE_METRICS:
        if (a->seat) stk_seat_metrics(a->seat, &metrics);
        return stk_wire_put_counts(&a->out, &metrics, err);
    case STK_WIRE_LEAVE:
        if (a->seat) stk_seat_leave(a->seat);
        a->seat = NULL;
        a->asks = a->welcome_due = false;
        a->left = true;
        return STK_OK;
    default: return stk_fail(err, STK_ERR_SYSTEM, "a message of kind %d is none of a client's", (int)message->kind);
    }
}

/* What of it is whole is done; the rest stays. */
static void hear_all(stk_attached *a, stk_serving *serving, bool may_change)
{
    size_t done = 0;
    while (!a->gone) {
        stk_wire_message message;
        stk_error error;
        size_t used;
        stk_status status = stk_wire_split((stk_bytes){a->in.data + done, a->in.size_bytes - done}, &message, &used, &error);
        if (status == STK_OK && used == 0) break;
        if (status == STK_OK) status = hear(a, serving, &message, may_change, &error);
        if (status < 0) {
            tell_error(a, &error);
            /* Words that cannot be understood have no end either. */
            if (used == 0) a->in.size_bytes = done = 0;
            if (used == 0) break;
        }
        done += used;
    }
    if (done) memmove(a->in.data, a->in.data + done, a->in.size_bytes - done);
    a->in.size_bytes -= done;
}

void stk_attached_read(stk_attached *a, stk_serving *serving, bool may_change)
{
    while (!a->gone) {
        if (stk_buffer_reserve(&a->in, READ_BYTES, NULL) < 0) {
            stk_attached_end(a);
            return;
        }
        const ssize_t got = recv(a->fd, a->in.data + a->in.size_bytes, READ_BYTES, MSG_DONTWAIT);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
        if (got <= 0) {
            stk_attached_end(a);
            return;
        }
        a->in.size_bytes += (size_t)got;
        a->spoke = true;
        hear_all(a, serving, may_change);
    }
}

/* --- what it is told --- */

/* The arena that its next batch lies in.  False: an earlier one has not gone out yet. */
static bool tell_arena(stk_attached *a, stk_serving *serving)
{
    const uint64_t generation = stk_serving_generation(serving);
    if (a->generation == generation) return true;
    if (a->pass_fd >= 0) return false;
    const stk_arena *const arena = stk_serving_arena(serving);
    a->pass_at = a->out.size_bytes;
    a->pass_fd = fcntl(stk_arena_fd(arena), F_DUPFD_CLOEXEC, 0);
    a->gone |= a->pass_fd < 0 || stk_wire_put_number(&a->out, STK_WIRE_ARENA, stk_arena_size(arena), NULL) < 0;
    a->generation = generation;
    return !a->gone;
}

/* Note that it has the batch; id: counts up over all of its own. */
static bool note_given(stk_attached *a, uint64_t id, stk_batch *batch)
{
    if (a->given_count == a->given_capacity) {
        const size_t capacity = a->given_capacity ? 2 * a->given_capacity : 16;
        stk_given *const moved = capacity > GIVEN_MAX ? NULL : stk_alloc_array(STK_TAG_ENGINE, capacity, sizeof *moved);
        if (!moved) return false;
        if (a->given_count) memcpy(moved, a->given, a->given_count * sizeof *moved);
        stk_free(a->given);
        a->given = moved;
        a->given_capacity = capacity;
    }
    a->given[a->given_count++] = (stk_given){id, batch};
    return true;
}

static void tell_batch(stk_attached *a, stk_serving *serving, stk_batch *batch)
{
    static uint64_t last_id; /* one thread serves all */
    const stk_wire_slot slot = {.id = ++last_id, .offset = stk_arena_offset(stk_serving_arena(serving), batch->slot)};
    if (!note_given(a, slot.id, batch)) {
        stk_batch_release(&batch);
        a->gone = true;
        return;
    }
    a->gone |= stk_wire_put_batch(&a->out, &slot, batch, NULL) < 0;
}

static void tell_next(stk_attached *a, stk_serving *serving)
{
    stk_batch *batch;
    stk_error error;
    if (a->seat->stage != STK_SEAT_PLACED || !tell_arena(a, serving)) return;
    const stk_status status = stk_seat_next(a->seat, &batch, &error);
    if (status == STK_AGAIN) return;
    a->asks = false;
    if (status == STK_OK) tell_batch(a, serving, batch);
    else if (status == STK_END) a->gone |= stk_wire_put_plain(&a->out, STK_WIRE_END, NULL) < 0;
    else tell_error(a, &error);
}

static void tell_welcome(stk_attached *a)
{
    stk_wire_welcome welcome;
    if (a->seat->stage == STK_SEAT_COMING) return;
    a->welcome_due = false;
    if (a->seat->stage == STK_SEAT_REFUSED) {
        tell_error(a, &a->seat->error);
        return;
    }
    stk_seat_welcome(a->seat, &welcome);
    a->gone |= stk_wire_put_welcome(&a->out, &welcome, NULL) < 0;
}

/* One who is in his seat, but whom a new engine refuses. */
static void tell_refusal(stk_attached *a)
{
    a->asks = false;
    tell_error(a, &a->seat->error);
}

/* Who waits hears once a second for what: so a client can tell an engine that hangs. */
static void tell_wait(stk_attached *a)
{
    char words[200];
    if (!a->seat || !(a->asks || a->welcome_due) || a->out.size_bytes || stk_now() - a->told_ns < TELL_EVERY_NS) return;
    stk_seat_words(a->seat, words);
    a->gone |= stk_wire_put_words(&a->out, words, NULL) < 0;
}

/* Up to a byte that carries the memfd, or from there on with it. */
static ssize_t send_some(const stk_attached *a, bool *passed)
{
    const size_t left = a->out.size_bytes - a->sent;
    *passed = a->pass_fd >= 0 && a->sent == a->pass_at;
    if (!*passed) return send(a->fd, a->out.data + a->sent, a->pass_fd >= 0 ? a->pass_at - a->sent : left, MSG_DONTWAIT | MSG_NOSIGNAL);
    struct iovec part = {a->out.data + a->sent, left};
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(sizeof(int))];
    } control = {0};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control.room, .msg_controllen = sizeof control.room};
    struct cmsghdr *const c = CMSG_FIRSTHDR(&message);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(c), &a->pass_fd, sizeof(int));
    return sendmsg(a->fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void flush(stk_attached *a)
{
    while (a->sent < a->out.size_bytes) {
        bool passed;
        const ssize_t sent = send_some(a, &passed);
        if (sent < 0 && errno == EINTR) continue;
        if (sent < 0) {
            a->gone |= errno != EAGAIN && errno != EWOULDBLOCK;
            return;
        }
        a->sent += (size_t)sent;
        a->told_ns = stk_now();
        if (!passed) continue;
        close(a->pass_fd);
        a->pass_fd = -1;
    }
    a->sent = 0;
    stk_buffer_clear(&a->out);
}

void stk_attached_write(stk_attached *a, stk_serving *serving)
{
    if (a->seat && a->welcome_due) tell_welcome(a);
    else if (a->seat && a->asks && a->seat->stage == STK_SEAT_REFUSED) tell_refusal(a);
    if (a->seat && a->asks) tell_next(a, serving);
    tell_wait(a);
    flush(a);
}
