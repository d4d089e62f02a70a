/* client_link.h - a client's end of the connection: the memory that batches lie in, the batches that are out, and their releases.
 *
 * Lives until the client is closed and the last batch is home.  Batches may come home from any thread, and after the engine has
 * ended; so what they need is guarded by a lock, and each knows the connection that it came over. */
#ifndef STK_ENGINE_CLIENT_LINK_H
#define STK_ENGINE_CLIENT_LINK_H

#include <pthread.h>
#include <sys/types.h>

#include "batch/batch_object.h"
#include "engine/wire.h"

/* An arena, mapped read-only. */
typedef struct stk_arena_map {
    atomic_uint references; /* the link, and each batch that lies in it */
    const uint8_t *base;
    size_t size_bytes;
} stk_arena_map;

/* A batch of a client. */
typedef struct stk_link_batch {
    stk_batch batch; /* first */
    stk_pool pool;   /* its recipe and notes */
    stk_arena_map *map;
    uint64_t id, connection; /* of the engine's, for the release */
    struct stk_link_batch *next;
} stk_link_batch;

typedef struct stk_link {
    stk_batch_home home; /* first */
    atomic_uint references; /* the client, and each batch that is out */
    pid_t pid;
    stk_pool pool;          /* set names */
    stk_batch_form form;
    stk_model model;
    uint32_t set_count;
    bool formed;            /* the above is known */
    bool wanted[STK_FIELD_COUNT];

    pthread_mutex_t lock;   /* guards all below */
    int fd;                 /* -1: no connection */
    uint64_t connection;    /* counts them */
    stk_arena_map *map;     /* of the batches to come; NULL: none yet */
    bool sending;           /* the half of a message is out: nothing may come between */
    uint32_t out;           /* batches that the trainer has */
    bool closed;            /* by the client: the connection stays while batches are out */
    stk_link_batch *free;   /* list, for use again */
    stk_link_batch *late;   /* home, but the engine could not be told yet */
} stk_link;

stk_status stk_link_create(stk_link **out, stk_error *err) STK_MUST_USE;
/* The client is closed. */
void stk_link_close(stk_link *link);

/* A new connection, or none (-1): what belonged to the one before is closed. */
void stk_link_connect(stk_link *link, int fd);

/* Send all of a message before the deadline: STK_OK, STK_AGAIN, or STK_END when the other side has gone. */
stk_status stk_link_send(stk_link *link, stk_bytes message, stk_ns deadline) STK_MUST_USE;

/* Send a message of no more than its kind, without waiting: whether it is out.  Any thread. */
bool stk_link_tell(stk_link *link, stk_wire_kind kind) STK_MUST_USE;

/* Map an arena; takes the fd. */
stk_status stk_link_map(stk_link *link, int fd, uint64_t size_bytes, stk_error *err) STK_MUST_USE;

/* Of a welcome: what batches look like, the first time; later it has to be the same. */
stk_status stk_link_form(stk_link *link, stk_bytes payload, stk_wire_welcome *welcome, stk_error *err) STK_MUST_USE;

/* A batch of a message; the caller's, who releases it. */
stk_status stk_link_batch_read(stk_link *link, stk_bytes payload, const stk_state *base, stk_batch **out, stk_error *err) STK_MUST_USE;

uint32_t stk_link_out(stk_link *link);

#endif
