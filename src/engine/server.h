/* server.h - the engine process: clients on a Unix socket, and what each of them is told. */
#ifndef STK_ENGINE_SERVER_H
#define STK_ENGINE_SERVER_H

#include <sys/types.h>

#include <stoker/client.h>

#include "base/memory.h"
#include "engine/serving.h"

/* A batch that a client has. */
typedef struct stk_given {
    uint64_t id;
    stk_batch *batch;
} stk_given;

/* A connection. */
typedef struct stk_attached {
    int fd, process_fd; /* -1: none.  process_fd is readable once the process is dead, though children of it hold the socket */
    pid_t pid;
    stk_buffer in, out;
    size_t sent;           /* of out */
    int pass_fd;           /* a memfd to be passed with out[pass_at]; -1: none */
    size_t pass_at;
    uint64_t generation;   /* of the arena that it has */
    stk_seat *seat;        /* NULL before its hello, and when it has left */
    bool welcome_due, asks;
    bool spoke;            /* has said something: who only looks whether an engine is here does not */
    bool left;             /* says no more, but which batches it releases */
    bool gone;             /* to be closed */
    stk_ns told_ns;        /* when it was last told something */
    stk_given *given;
    size_t given_count, given_capacity;
} stk_attached;

/* --- attached.c: one connection --- */

void stk_attached_init(stk_attached *a, int fd, pid_t pid);
void stk_attached_deinit(stk_attached *a);
/* It has gone: what it held is free, and nothing more is read. */
void stk_attached_end(stk_attached *a);

/* Read what has come and do what it says; sends nothing.  alone: no other client is there; may_change: the configuration may then be
 * another.  What goes wrong is told to the client, or ends the connection. */
void stk_attached_read(stk_attached *a, stk_serving *serving, bool may_change);
/* Write down all that is due to it, and send what can be sent. */
void stk_attached_write(stk_attached *a, stk_serving *serving);

#endif
