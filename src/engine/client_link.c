/* client_link.c - connection, mappings and batches of a client. */
#include "engine/client_link.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"

/* --- mappings --- */

static void map_release(stk_arena_map *map)
{
    if (!map || atomic_fetch_sub(&map->references, 1) != 1) return;
    munmap((void *)map->base, map->size_bytes);
    stk_free(map);
}

/* A memfd that its maker can still make shorter would be a SIGBUS to come. */
static stk_status check_memfd(int fd, uint64_t size_bytes, stk_error *err)
{
    struct stat info;
    const int seals = fcntl(fd, F_GET_SEALS);
    if (fstat(fd, &info)) return stk_fail_errno(err, "cannot look at the engine's memory");
    if (seals < 0 || (seals & (F_SEAL_SHRINK | F_SEAL_GROW)) != (F_SEAL_SHRINK | F_SEAL_GROW) || (uint64_t)info.st_size != size_bytes || !size_bytes)
        return stk_fail(err, STK_ERR_SYSTEM, "the engine's memory is not sealed, or not of its size");
    return STK_OK;
}

stk_status stk_link_map(stk_link *link, int fd, uint64_t size_bytes, stk_error *err)
{
    stk_status status = check_memfd(fd, size_bytes, err);
    stk_arena_map *const map = status == STK_OK ? stk_alloc(STK_TAG_ARENA, sizeof *map) : NULL;
    if (status == STK_OK && !map) status = stk_fail(err, STK_ERR_NOMEM, "out of memory: a mapping");
    if (map) {
        void *const base = mmap(NULL, size_bytes, PROT_READ, MAP_SHARED, fd, 0);
        if (base == MAP_FAILED) {
            status = stk_fail_errno(err, "cannot map the engine's memory of %llu bytes (ulimit -v)", (unsigned long long)size_bytes);
            stk_free(map);
        } else {
            atomic_store(&map->references, 1);
            map->base = base;
            map->size_bytes = size_bytes;
        }
    }
    close(fd);
    if (status < 0) return status;
    pthread_mutex_lock(&link->lock);
    stk_arena_map *const before = link->map;
    link->map = map;
    pthread_mutex_unlock(&link->lock);
    map_release(before);
    return STK_OK;
}

/* --- the end of a connection --- */

/* For forked children too, which hold copies of the descriptor: the engine sees the end at once. */
static void hang_up(int fd)
{
    if (fd < 0) return;
    (void)shutdown(fd, SHUT_RDWR);
    close(fd);
}

/* --- releases --- */

static void link_release(stk_link *link)
{
    if (atomic_fetch_sub(&link->references, 1) != 1) return;
    for (stk_link_batch *b = link->free, *next; b; b = next) {
        next = b->next;
        stk_pool_deinit(&b->pool);
        stk_free(b);
    }
    hang_up(link->fd);
    map_release(link->map);
    stk_pool_deinit(&link->pool);
    pthread_mutex_destroy(&link->lock);
    stk_free(link);
}

/* A few bytes are sent whole or not at all, and without waiting.  With the lock held. */
static stk_status send_now(const stk_link *link, const stk_buffer *message)
{
    const ssize_t sent = send(link->fd, message->data, message->size_bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent == (ssize_t)message->size_bytes) return STK_OK;
    return sent < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR ? STK_END : STK_AGAIN;
}

/* With the lock held. */
static bool tell_release(const stk_link *link, uint64_t id)
{
    uint8_t room[STK_WIRE_HEADER_BYTES + sizeof id];
    stk_buffer message = {.data = room, .capacity_bytes = sizeof room, .max_bytes = sizeof room};
    return stk_wire_put_number(&message, STK_WIRE_RELEASE, id, NULL) < 0 || send_now(link, &message) != STK_AGAIN;
}

/* Those that could not be told before.  With the lock held. */
static void tell_late(stk_link *link)
{
    while (link->late && !link->sending && (link->fd < 0 || link->late->connection != link->connection || tell_release(link, link->late->id))) {
        stk_link_batch *const b = link->late;
        link->late = b->next;
        b->next = link->free;
        link->free = b;
    }
}

/* When the client is closed and all is home, the engine sees the connection end.  With the lock held. */
static void end_if_over(stk_link *link)
{
    if (!link->closed || link->out || link->fd < 0) return;
    hang_up(link->fd);
    link->fd = -1;
    tell_late(link);
}

/* The last release of a batch, from any thread, also when client and engine are gone. */
static void take_back(stk_batch_home *home, stk_batch *batch)
{
    stk_link *const link = (stk_link *)home;
    stk_link_batch *const b = (stk_link_batch *)batch;
    if (link->pid != getpid()) return; /* a copy in a forked child */
    stk_arena_map *const map = b->map;
    b->map = NULL;
    pthread_mutex_lock(&link->lock);
    link->out--;
    b->next = link->late;
    link->late = b;
    tell_late(link);
    end_if_over(link);
    pthread_mutex_unlock(&link->lock);
    map_release(map);
    link_release(link);
}

/* --- the connection --- */

void stk_link_connect(stk_link *link, int fd)
{
    pthread_mutex_lock(&link->lock);
    hang_up(link->fd);
    stk_arena_map *const before = link->map;
    link->fd = fd;
    link->map = NULL;
    link->connection++;
    link->sending = false;
    tell_late(link);
    pthread_mutex_unlock(&link->lock);
    map_release(before);
}

stk_status stk_link_send(stk_link *link, stk_bytes message, stk_ns deadline)
{
    for (size_t at = 0; at < message.size_bytes;) {
        pthread_mutex_lock(&link->lock);
        const int fd = link->fd;
        const ssize_t sent = fd < 0 ? -1 : send(fd, message.data + at, message.size_bytes - at, MSG_DONTWAIT | MSG_NOSIGNAL);
        const int code = fd < 0 ? EPIPE : errno;
        if (sent > 0) at += (size_t)sent;
        link->sending = at > 0 && at < message.size_bytes;
        pthread_mutex_unlock(&link->lock);
        if (sent >= 0) continue;
        if (code != EAGAIN && code != EWOULDBLOCK && code != EINTR) return STK_END;
        const stk_ns left = deadline - stk_now();
        if (left <= 0) return at ? STK_END : STK_AGAIN; /* half a message is the end of a connection */
        struct pollfd p = {.fd = fd, .events = POLLOUT};
        (void)poll(&p, 1, left > 100 * STK_MS ? 100 : (int)(left / STK_MS) + 1);
    }
    return STK_OK;
}

bool stk_link_tell(stk_link *link, stk_wire_kind kind)
{
    uint8_t room[STK_WIRE_HEADER_BYTES];
    stk_buffer message = {.data = room, .capacity_bytes = sizeof room, .max_bytes = sizeof room};
    if (stk_wire_put_plain(&message, kind, NULL) < 0) return false;
    pthread_mutex_lock(&link->lock);
    const bool told = link->fd >= 0 && !link->sending && send_now(link, &message) == STK_OK;
    pthread_mutex_unlock(&link->lock);
    return told;
}

uint32_t stk_link_out(stk_link *link)
{
    pthread_mutex_lock(&link->lock);
    const uint32_t out = link->out;
    tell_late(link);
    pthread_mutex_unlock(&link->lock);
    return out;
}

/* --- batches --- */

static bool same_form(const stk_link *link, const stk_wire_welcome *w)
{
    bool same = link->form.layout == w->form.layout && link->form.targets == w->form.targets &&
                link->form.positions == w->form.positions && link->form.pixels == w->form.pixels &&
                link->model.patch_px == w->model.patch_px && link->model.merge == w->model.merge && link->model.temporal == w->model.temporal &&
                link->set_count == w->set_count;
    for (uint32_t i = 0; same && i < w->set_count; i++) same = strcmp(link->home.set_name[i], w->set_name[i]) == 0;
    return same;
}

stk_status stk_link_form(stk_link *link, stk_bytes payload, stk_wire_welcome *welcome, stk_error *err)
{
    stk_pool again;
    stk_pool_init(&again, STK_TAG_ENGINE);
    stk_status status = stk_wire_read_welcome(payload, link->formed ? &again : &link->pool, welcome, err);
    if (status == STK_OK && link->formed && !same_form(link, welcome))
        status = stk_fail(err, STK_ERR_STATE, "the engine came back with another model or other data sets: end all processes of the run");
    if (status == STK_OK && !link->formed) {
        link->model = welcome->model;
        link->form = welcome->form;
        link->form.model = &link->model;
        link->set_count = welcome->set_count;
        link->home.form = &link->form;
        link->home.set_name = welcome->set_name;
        link->formed = true;
    }
    stk_pool_deinit(&again);
    return status;
}

static stk_link_batch *take_object(stk_link *link)
{
    pthread_mutex_lock(&link->lock);
    stk_link_batch *b = link->free;
    if (b) link->free = b->next;
    pthread_mutex_unlock(&link->lock);
    if (!b && (b = stk_alloc(STK_TAG_BATCH, sizeof *b))) stk_pool_init(&b->pool, STK_TAG_BATCH);
    if (b) stk_pool_reset(&b->pool);
    return b;
}

/* What the message says of a batch, and where it lies; the map is referenced then. */
static stk_status fill(stk_link *link, stk_link_batch *b, stk_bytes payload, const stk_state *base, stk_error *err)
{
    stk_wire_slot slot;
    b->batch.home = &link->home;
    STK_TRY(stk_wire_read_batch(payload, &b->pool, base, link->set_count, &slot, &b->batch, err));
    stk_arena_map *const map = link->map; /* only whoever reads changes it */
    if (!map || slot.offset % STK_ALIGN_BYTES || slot.offset > map->size_bytes || b->batch.layout.size_bytes > map->size_bytes - slot.offset)
        return stk_fail(err, STK_ERR_SYSTEM, "a batch lies outside the engine's memory");
    atomic_fetch_add(&map->references, 1);
    b->map = map;
    b->id = slot.id;
    /* Nobody writes through it: a batch is read-only once it is delivered. */
    b->batch.slot = (uint8_t *)(uintptr_t)(map->base + slot.offset);
    for (int id = 0; id < STK_FIELD_COUNT; id++) b->batch.layout.field[id].present &= link->wanted[id];
    return STK_OK;
}

stk_status stk_link_batch_read(stk_link *link, stk_bytes payload, const stk_state *base, stk_batch **out, stk_error *err)
{
    *out = NULL;
    stk_link_batch *const b = take_object(link);
    if (!b) return stk_fail(err, STK_ERR_NOMEM, "out of memory: a batch");
    const stk_status status = link->formed ? fill(link, b, payload, base, err) : stk_fail(err, STK_ERR_SYSTEM, "a batch before a welcome");
    pthread_mutex_lock(&link->lock);
    b->connection = link->connection;
    if (status < 0) {
        b->next = link->free;
        link->free = b;
    } else {
        link->out++;
    }
    pthread_mutex_unlock(&link->lock);
    if (status < 0) return status;
    atomic_store(&b->batch.references, 1);
    atomic_fetch_add(&link->references, 1);
    *out = &b->batch;
    return STK_OK;
}

/* --- the object --- */

stk_status stk_link_create(stk_link **out, stk_error *err)
{
    stk_link *const link = *out = stk_alloc(STK_TAG_ENGINE, sizeof *link);
    if (!link) return stk_fail(err, STK_ERR_NOMEM, "out of memory: a client");
    link->home.take_back = take_back;
    atomic_store(&link->references, 1);
    link->pid = getpid();
    link->fd = -1;
    stk_pool_init(&link->pool, STK_TAG_ENGINE);
    pthread_mutex_init(&link->lock, NULL);
    return STK_OK;
}

void stk_link_close(stk_link *link)
{
    pthread_mutex_lock(&link->lock);
    link->closed = true;
    end_if_over(link);
    pthread_mutex_unlock(&link->lock);
    link_release(link);
}
