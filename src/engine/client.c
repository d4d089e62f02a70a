/* client.c - the attached twin of a loader: asks the engine process, starts it when it is not there, and goes on where it was. */
#include <stoker/client.h>

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/thread.h"
#include "engine/client_link.h"
#include "engine/client_silence.h"
#include "engine/client_start.h"
#include "engine/number_list.h"
#include "engine/options_text.h"

enum { READ_BYTES = 64 << 10, LOSSES_MAX = 8, BACK_OFF_NS = 4000000 }; /* doubled with each loss, to half a second */
#define SILENCE_NS (30 * STK_S) /* an engine says something each second while it is waited for */
#define WAITING_NS (100 * STK_MS)
#define LISTEN_NS (20 * STK_MS) /* what a question about metrics may keep the trainer waiting, of an engine that does not answer */

struct stk_client {
    stk_link *link;
    stk_meeting meeting;
    pid_t pid;
    uint32_t keep;
    stk_buffer options, ranks, in, out;
    char file[4096];
    stk_wire_hello hello;  /* its texts point here, into options and into ranks */
    stk_wire_place origin; /* where it was to be opened */
    int fd;                /* the link's; -1: no connection */
    int passed_fd;         /* came with bytes whose message is not whole yet; -1: none */
    bool attached;         /* has been welcomed, once */
    bool welcomed;         /* on this connection */
    bool asked;            /* for the next batch */
    bool ended;            /* its pass */
    uint32_t losses;       /* of the engine, since it last gave something */
    stk_ns heard_ns;       /* when something came, or was asked for */
    stk_ns silence_ns;     /* how long nothing may come then */
    uint64_t pass, micro_count, step_count;
    stk_state start, state; /* where it was opened, in this run's terms; after the last delivered */
    stk_batch *arrived;    /* not yet handed out */
    char words[200];       /* what is waited for */
    stk_status failed;     /* <0: what every later call says */
    stk_error error;

    pthread_mutex_t lock;  /* guards all below; whoever has the turn, all above */
    pthread_cond_t changed;
    bool taken;            /* the turn, by a thread that talks with the engine */
    uint32_t wanted;       /* the turn, by so many that wait for it */
    uint64_t count_number; /* of answers about metrics */
    stk_metrics metrics;   /* the last of them */
};

/* --- turns --- */

static void take_turn(stk_client *c)
{
    pthread_mutex_lock(&c->lock);
    c->wanted++;
    while (c->taken) pthread_cond_wait(&c->changed, &c->lock);
    c->wanted--;
    c->taken = true;
    pthread_mutex_unlock(&c->lock);
}

static void end_turn(stk_client *c)
{
    pthread_mutex_lock(&c->lock);
    c->taken = false;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
}

/* --- connection --- */

/* Lasting. */
static stk_status fail(stk_client *c, stk_status status)
{
    return c->failed = status;
}

/* The engine has gone: what it had told is forgotten, but for what is in the trainer's hands. */
static void lose(stk_client *c)
{
    stk_batch_release(&c->arrived);
    if (c->passed_fd >= 0) close(c->passed_fd);
    c->passed_fd = -1;
    stk_link_connect(c->link, -1);
    c->fd = -1;
    c->welcomed = c->asked = false;
    stk_buffer_clear(&c->in);
    c->losses++;
}

/* Where to go on after a loss. */
static void set_place(stk_client *c)
{
    stk_wire_place *const place = &c->hello.place;
    c->hello.resumed = c->attached;
    *place = c->origin;
    if (!c->attached) return;
    place->fresh = false;
    place->pass = c->pass;
    place->has_state = true;
    place->state = c->state;
}

static stk_status send_message(stk_client *c)
{
    const stk_status status = stk_link_send(c->link, (stk_bytes){c->out.data, c->out.size_bytes}, stk_now() + c->silence_ns);
    stk_buffer_clear(&c->out);
    if (status == STK_END) lose(c);
    if (status != STK_AGAIN) return STK_OK; /* what follows a loss is the same as for one that comes later */
    (void)stk_fail(&c->error, STK_ERR_TIMEOUT, "the engine of run %s takes no messages: is it stopped? see %.100s", c->meeting.run, c->meeting.log);
    return fail(c, STK_ERR_TIMEOUT);
}

static stk_status connect_engine(stk_client *c)
{
    if (c->losses >= LOSSES_MAX) {
        char words[160];
        stk_meeting_log_end(&c->meeting, words);
        (void)stk_fail(&c->error, STK_ERR_SYSTEM, "the engine of run %s ended %u times without a batch; its log ends: %s", c->meeting.run, c->losses,
                       words[0] ? words : "without a word, as when it is killed: was memory short?");
        stk_error_file(&c->error, c->meeting.log, 0);
        return fail(c, STK_ERR_SYSTEM);
    }
    /* One that dies may still be connected to for a moment. */
    if (c->losses > 1) nanosleep(&(struct timespec){.tv_nsec = BACK_OFF_NS << c->losses}, NULL);
    stk_status status = stk_client_connect(&c->meeting, &c->fd, &c->error);
    if (status < 0) return fail(c, status);
    stk_link_connect(c->link, c->fd);
    set_place(c);
    status = stk_wire_put_hello(&c->out, &c->hello, &c->error);
    if (status < 0) return fail(c, status);
    c->heard_ns = stk_now();
    return send_message(c);
}

/* --- what the engine says --- */

static stk_status hear_welcome(stk_client *c, stk_bytes payload)
{
    stk_wire_welcome welcome;
    STK_TRY(stk_link_form(c->link, payload, &welcome, &c->error));
    if (!c->attached) {
        c->start = welcome.state;
        c->micro_count = welcome.micro_count;
        c->step_count = welcome.step_count;
    }
    c->state = welcome.state;
    c->pass = welcome.pass;
    c->welcomed = c->attached = true;
    return STK_OK;
}

static stk_status hear_arena(stk_client *c, stk_bytes payload)
{
    uint64_t size_bytes;
    const int fd = c->passed_fd;
    c->passed_fd = -1;
    if (fd < 0) return stk_fail(&c->error, STK_ERR_SYSTEM, "the engine announced memory and passed none: raise the limit of open files");
    const stk_status status = stk_wire_read_number(payload, &size_bytes, &c->error);
    if (status == STK_OK) return stk_link_map(c->link, fd, size_bytes, &c->error);
    close(fd);
    return status;
}

static stk_status hear_batch(stk_client *c, stk_bytes payload)
{
    stk_batch *batch;
    STK_TRY(stk_link_batch_read(c->link, payload, &c->start, &batch, &c->error));
    /* One that was on its way when the client went elsewhere, or a second one, is not wanted. */
    if (!c->asked || c->arrived) {
        stk_batch_release(&batch);
        return STK_OK;
    }
    c->arrived = batch;
    c->asked = false;
    c->losses = 0;
    return STK_OK;
}

/* Whoever asked may be another thread. */
static stk_status hear_counts(stk_client *c, stk_bytes payload)
{
    stk_metrics metrics;
    STK_TRY(stk_wire_read_counts(payload, &metrics, &c->error));
    pthread_mutex_lock(&c->lock);
    c->metrics = metrics;
    c->count_number++;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
    return STK_OK;
}

static stk_status hear(stk_client *c, const stk_wire_message *message)
{
    switch ((int)message->kind) {
    case STK_WIRE_WELCOME: return hear_welcome(c, message->payload);
    case STK_WIRE_ARENA: return hear_arena(c, message->payload);
    case STK_WIRE_BATCH: return hear_batch(c, message->payload);
    case STK_WIRE_END:
        c->ended |= c->asked;
        c->asked = false;
        return STK_OK;
    case STK_WIRE_ERROR: {
        stk_error told;
        STK_TRY(stk_wire_read_error(message->payload, &told, &c->error));
        c->error = told;
        return told.status;
    }
    case STK_WIRE_WAIT: return stk_wire_read_words(message->payload, c->words, sizeof c->words, &c->error);
    case STK_WIRE_COUNTS: return hear_counts(c, message->payload);
    default: return stk_fail(&c->error, STK_ERR_SYSTEM, "a message of kind %d is none of an engine's", (int)message->kind);
    }
}

static stk_status hear_all(stk_client *c)
{
    size_t done = 0;
    stk_status status = STK_OK;
    for (;;) {
        stk_wire_message message;
        size_t used;
        status = stk_wire_split((stk_bytes){c->in.data + done, c->in.size_bytes - done}, &message, &used, &c->error);
        if (status < 0 || used == 0) break;
        done += used;
        if ((status = hear(c, &message)) < 0) break;
    }
    if (done && done < c->in.size_bytes) memmove(c->in.data, c->in.data + done, c->in.size_bytes - done);
    c->in.size_bytes -= done;
    return status < 0 ? fail(c, status) : STK_OK;
}

/* The kernel ends a read behind bytes that carry a descriptor: so there is never more than one. */
static void take_passed(stk_client *c, struct msghdr *message)
{
    for (struct cmsghdr *h = CMSG_FIRSTHDR(message); h; h = CMSG_NXTHDR(message, h)) {
        if (h->cmsg_level != SOL_SOCKET || h->cmsg_type != SCM_RIGHTS) continue;
        if (c->passed_fd >= 0) close(c->passed_fd);
        memcpy(&c->passed_fd, CMSG_DATA(h), sizeof c->passed_fd);
    }
}

/* What has come, without waiting.  STK_END: the connection has. */
static stk_status receive(stk_client *c)
{
    STK_TRY(stk_buffer_reserve(&c->in, READ_BYTES, &c->error));
    struct iovec part = {c->in.data + c->in.size_bytes, READ_BYTES};
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(sizeof(int))];
    } control;
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control.room, .msg_controllen = sizeof control.room};
    const ssize_t got = recvmsg(c->fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return STK_OK;
    if (got <= 0) return STK_END;
    take_passed(c, &message);
    c->in.size_bytes += (size_t)got;
    c->heard_ns = stk_now();
    return hear_all(c);
}

/* Wait for something to come until the deadline, and hear it. */
static stk_status listen_until(stk_client *c, stk_ns deadline)
{
    const stk_ns left = deadline - stk_now();
    struct pollfd p = {.fd = c->fd, .events = POLLIN};
    const int ready = poll(&p, 1, left <= 0 ? 0 : left > STK_S ? 1000 : (int)(left / STK_MS) + 1);
    if (ready > 0) {
        const stk_status status = receive(c);
        if (status == STK_END) lose(c);
        return status < 0 ? fail(c, status) : STK_OK;
    }
    if (stk_now() - c->heard_ns < c->silence_ns) return STK_OK;
    (void)stk_fail(&c->error, STK_ERR_TIMEOUT, "the engine of run %s has said nothing for %d s: is it stopped? see %.100s", c->meeting.run,
                   (int)(c->silence_ns / STK_S), c->meeting.log);
    return fail(c, STK_ERR_TIMEOUT);
}

/* --- calls --- */

/* Begin a call, which end_call ends.  Failed: it has not begun. */
static stk_status begin_call(stk_client *c, stk_error *err)
{
    if (c->pid != getpid())
        return stk_fail(err, STK_ERR_FORKED, "the client was opened by process %d: open one after the fork", (int)c->pid);
    take_turn(c);
    if (c->failed == STK_OK) return STK_OK;
    if (err) *err = c->error;
    const stk_status failed = c->failed;
    end_turn(c);
    return failed;
}

static stk_status end_call(stk_client *c, stk_status status, stk_error *err)
{
    if (status < 0 && err) *err = c->error;
    end_turn(c);
    return status;
}

/* Be connected and welcomed: STK_OK, STK_AGAIN at the deadline. */
static stk_status be_welcomed(stk_client *c, stk_ns deadline)
{
    while (!c->welcomed) {
        if (c->fd < 0) STK_TRY(connect_engine(c));
        else STK_TRY(listen_until(c, deadline));
        if (!c->welcomed && stk_now() >= deadline) return STK_AGAIN;
    }
    return STK_OK;
}

static stk_status ask(stk_client *c)
{
    const stk_status status = stk_wire_put_plain(&c->out, STK_WIRE_NEXT, &c->error);
    if (status < 0) return fail(c, status);
    c->asked = true;
    c->heard_ns = stk_now();
    return send_message(c);
}

static stk_status next(stk_client *c, stk_ns deadline)
{
    for (;;) {
        if (c->arrived) return STK_OK;
        if (c->ended) return STK_END;
        const stk_status status = be_welcomed(c, deadline);
        if (status != STK_OK) return status;
        if (!c->asked) STK_TRY(ask(c));
        if (c->fd >= 0) STK_TRY(listen_until(c, deadline));
        if (!c->arrived && !c->ended && stk_now() >= deadline) return STK_AGAIN;
    }
}

static stk_status check_keep(stk_client *c)
{
    const uint32_t held = stk_link_out(c->link) - (c->arrived != NULL);
    if (held <= c->keep) return STK_OK;
    (void)stk_fail(&c->error, STK_ERR_KEEP, "rank %u holds %u batches, and keep is %u: release some, or raise keep", c->hello.rank, held, c->keep);
    stk_error_stage(&c->error, STK_STAGE_DELIVER);
    return STK_ERR_KEEP;
}

stk_status stk_client_next(stk_client *c, stk_batch **out, stk_ns timeout_ns, stk_error *err)
{
    *out = NULL;
    STK_TRY(begin_call(c, err));
    const stk_ns now = stk_now();
    stk_status status = check_keep(c);
    if (status == STK_OK) status = next(c, timeout_ns > STK_FOREVER - now ? STK_FOREVER : now + timeout_ns);
    if (status == STK_OK) {
        *out = c->arrived;
        c->arrived = NULL;
        c->state = (*out)->after;
    }
    return end_call(c, status, err);
}

void stk_client_state(stk_client *c, stk_state *state)
{
    const bool ours = c->pid == getpid(); /* else a forked child, which has no other threads */
    if (ours) take_turn(c);
    *state = c->state;
    if (ours) end_turn(c);
}

uint64_t stk_client_count(const stk_client *c)
{
    return c->micro_count;
}

uint64_t stk_client_step_count(const stk_client *c)
{
    return c->step_count;
}

/* Listen for a while where nobody else does.  False: nothing will come. */
static bool listen_for_counts(stk_client *c)
{
    if (c->failed < 0 || c->fd < 0) return false;
    /* Of what is waited for already the silence goes on. */
    if (c->welcomed && !c->asked) c->heard_ns = stk_now();
    return listen_until(c, stk_now() + LISTEN_NS) == STK_OK;
}

/* With the lock.  Whoever has the turn hears the answer; nobody has it while the trainer trains. */
static void wait_for_counts(stk_client *c, uint64_t number, stk_ns deadline)
{
    const struct timespec until = stk_timespec(deadline);
    bool listens = true;
    while (listens && c->count_number == number && stk_now() < deadline) {
        if (c->taken || c->wanted) {
            pthread_cond_timedwait(&c->changed, &c->lock, &until);
            continue;
        }
        c->taken = true;
        pthread_mutex_unlock(&c->lock);
        listens = listen_for_counts(c);
        end_turn(c);
        pthread_mutex_lock(&c->lock);
    }
}

void stk_client_metrics(stk_client *c, stk_metrics *metrics)
{
    *metrics = (stk_metrics){0};
    if (c->pid != getpid()) return;
    pthread_mutex_lock(&c->lock);
    const uint64_t number = c->count_number;
    pthread_mutex_unlock(&c->lock);
    if (!stk_link_tell(c->link, STK_WIRE_METRICS)) return;
    pthread_mutex_lock(&c->lock);
    wait_for_counts(c, number, stk_now() + STK_S);
    if (c->count_number != number) *metrics = c->metrics;
    pthread_mutex_unlock(&c->lock);
}

static stk_status rewind_to_start(stk_client *c)
{
    stk_batch_release(&c->arrived);
    c->asked = c->ended = false;
    /* From now on it is there; a batch on its way finds that nobody asked. */
    c->pass += c->hello.eval;
    c->state = c->start;
    c->welcomed = false;
    set_place(c);
    if (c->fd < 0) return STK_OK;
    c->heard_ns = stk_now();
    const stk_status status = stk_wire_put_place(&c->out, &c->hello.place, &c->error);
    return status < 0 ? fail(c, status) : send_message(c);
}

stk_status stk_client_rewind(stk_client *c, stk_error *err)
{
    STK_TRY(begin_call(c, err));
    return end_call(c, rewind_to_start(c), err);
}

void stk_client_limit_silence(stk_client *c, stk_ns silence_ns)
{
    c->silence_ns = silence_ns;
}

/* --- open and close --- */

static stk_status set_run(stk_client *c, const stk_options *options, const stk_attach *attach, stk_error *err)
{
    char name[STK_RUN_NAME_MAX + 1];
    if (attach->run) return stk_meeting_find(&c->meeting, attach->run, err);
    STK_TRY(stk_run_name(options, name, err));
    if (!name[0]) return stk_fail(err, STK_ERR_USAGE, "the run has no name, by which its processes find their engine: set `run`, or start them by torchrun or SLURM");
    return stk_meeting_find(&c->meeting, name, err);
}

static stk_status write_ranks(stk_client *c, const stk_attach *attach, uint32_t *ranks, stk_error *err)
{
    uint32_t count = 1;
    ranks[0] = attach->rank;
    if (attach->node_ranks) count = attach->node_rank_count;
    if (attach->node_ranks && count) memcpy(ranks, attach->node_ranks, count * sizeof *ranks);
    count = stk_numbers_sort(ranks, count);
    bool mine = false;
    for (uint32_t i = 0; i < count; i++) mine |= ranks[i] == attach->rank;
    if (!mine) return stk_fail(err, STK_ERR_USAGE, "rank %u is not among node_ranks", attach->rank);
    if (ranks[count - 1] >= attach->world)
        return stk_fail(err, STK_ERR_USAGE, "rank %u is not in a world of %u", ranks[count - 1], attach->world);
    return stk_numbers_write(&c->ranks, ranks, count, err);
}

static stk_status set_ranks(stk_client *c, const stk_attach *attach, stk_error *err)
{
    stk_wire_hello *const h = &c->hello;
    uint32_t *const ranks = stk_alloc_array(STK_TAG_ENGINE, attach->node_ranks ? (size_t)attach->node_rank_count + 1 : 1, sizeof *ranks);
    const stk_status status = ranks ? write_ranks(c, attach, ranks, err) : stk_fail(err, STK_ERR_NOMEM, "out of memory: a list of ranks");
    stk_free(ranks);
    h->node_ranks = (stk_str){(const char *)c->ranks.data, c->ranks.size_bytes};
    h->rank = attach->rank;
    h->world = attach->world;
    h->readers = attach->readers ? attach->readers : 1;
    return status;
}

static stk_status set_hello(stk_client *c, const stk_options *options, const stk_attach *attach, const stk_state *state, stk_error *err)
{
    const char *const split = attach->split ? attach->split : "train";
    c->hello.eval = strcmp(split, "eval") == 0;
    if (!c->hello.eval && strcmp(split, "train") != 0) return stk_fail(err, STK_ERR_OPTION, "\"%.60s\" is no split: train or eval", split);
    if (c->hello.eval && !options->eval) return stk_fail(err, STK_ERR_OPTION, "the configuration has no `eval`: add it, with its data");
    STK_TRY(set_ranks(c, attach, err));
    STK_TRY(stk_options_place(options, c->file, sizeof c->file, err));
    STK_TRY(stk_options_write(options, &c->options, err));
    c->hello.release = stk_str_of(stk_version());
    c->hello.file = stk_str_of(c->file);
    c->hello.options = (stk_str){(const char *)c->options.data, c->options.size_bytes};
    c->origin = (stk_wire_place){.fresh = true, .has_state = state != NULL};
    if (state) c->origin.state = *state;
    const int64_t keep = c->hello.eval ? options->eval->keep : options->keep;
    c->keep = (uint32_t)keep;
    return STK_OK;
}

/* Until the engine has opened its data, however long that takes, as long as it says what it does. */
static stk_status wait_for_welcome(stk_client *c, const stk_attach *attach, stk_error *err)
{
    snprintf(c->words, sizeof c->words, "for the engine process to start");
    for (;;) {
        const stk_status status = be_welcomed(c, stk_now() + WAITING_NS);
        if (status < 0 && err) *err = c->error;
        if (status != STK_AGAIN) return status;
        if (attach->waiting && !attach->waiting(attach->context, c->words))
            return stk_fail(err, STK_ERR_INTERRUPTED, "stopped while waiting %s", c->words);
    }
}

static stk_status open_parts(stk_client *c, const stk_options *options, const stk_attach *attach, const stk_state *state, stk_error *err)
{
    STK_TRY(stk_link_create(&c->link, err));
    STK_TRY(stk_options_check(options, err));
    STK_TRY(stk_fields_find(c->link->wanted, attach->fields, attach->field_count, err));
    STK_TRY(set_run(c, options, attach, err));
    STK_TRY(set_hello(c, options, attach, state, err));
    return wait_for_welcome(c, attach, err);
}

stk_status stk_client_open(stk_client **out, const stk_options *options, const stk_attach *attach, const stk_state *state, stk_error *err)
{
    *out = NULL;
    stk_client *c = stk_alloc(STK_TAG_ENGINE, sizeof *c);
    if (!c) return stk_fail(err, STK_ERR_NOMEM, "out of memory: a client");
    c->pid = getpid();
    c->fd = c->passed_fd = -1;
    c->silence_ns = SILENCE_NS;
    pthread_mutex_init(&c->lock, NULL);
    stk_condition_init(&c->changed);
    stk_buffer_init(&c->options, STK_TAG_ENGINE, STK_WIRE_MESSAGE_MAX / 2);
    stk_buffer_init(&c->ranks, STK_TAG_ENGINE, STK_WIRE_MESSAGE_MAX / 2);
    stk_buffer_init(&c->in, STK_TAG_ENGINE, STK_WIRE_MESSAGE_MAX + STK_WIRE_HEADER_BYTES + READ_BYTES);
    stk_buffer_init(&c->out, STK_TAG_ENGINE, STK_WIRE_MESSAGE_MAX);
    const stk_status status = open_parts(c, options, attach, state, err);
    if (status < 0) {
        stk_client_close(&c);
        return status;
    }
    *out = c;
    return STK_OK;
}

void stk_client_close(stk_client **client)
{
    stk_client *const c = *client;
    *client = NULL;
    if (!c || c->pid != getpid()) return; /* a forked child: connection and memory are the parent's */
    stk_batch_release(&c->arrived);
    if (c->passed_fd >= 0) close(c->passed_fd);
    if (c->link) {
        /* Where the engine cannot be told, it sees the connection end. */
        (void)!stk_link_tell(c->link, STK_WIRE_LEAVE);
        stk_link_close(c->link);
    }
    stk_buffer_deinit(&c->options);
    stk_buffer_deinit(&c->ranks);
    stk_buffer_deinit(&c->in);
    stk_buffer_deinit(&c->out);
    pthread_cond_destroy(&c->changed);
    pthread_mutex_destroy(&c->lock);
    stk_free(c);
}
