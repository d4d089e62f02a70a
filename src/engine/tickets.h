/* tickets.h - room for compressed bytes, granted in plan order: a ring.
 *
 * A unit takes its ticket when its fetch starts and gives it back when it is made.  Units finish in any
 * order, the ring frees from its oldest end; the oldest unit can always finish, so the ring always moves.  An
 * empty ring starts anew at its beginning, so whatever fits the ring at all is granted in the end.
 *
 * Not thread-safe: its owner locks. */
#ifndef STK_ENGINE_TICKETS_H
#define STK_ENGINE_TICKETS_H

#include "base/memory.h"

typedef struct stk_tickets {
    uint8_t *base;
    size_t size_bytes, head_bytes, tail_bytes; /* head: next to grant; tail: the oldest that is held */
    size_t held_bytes;
    struct stk_ticket *ticket; /* a queue, oldest first */
    uint32_t capacity, first, count;
} stk_tickets;

/* size_bytes of memory, for at most `capacity` tickets at once. */
stk_status stk_tickets_init(stk_tickets *tickets, size_t size_bytes, uint32_t capacity,
                            stk_error *err) STK_MUST_USE;
void stk_tickets_deinit(stk_tickets *tickets);

/* Room for size_bytes > 0, 64-byte aligned; NULL: not now. */
uint8_t *stk_tickets_take(stk_tickets *tickets, size_t size_bytes);
void stk_tickets_give_back(stk_tickets *tickets, uint8_t *memory);

#endif
