/* arena.h - the memory of all slots: a memfd of equal slots, or of a few kinds of them, mapped once, sealed
 * against resize.
 *
 * Slots of a kind are of its largest planned micro-batch: so they may be given back in any order by readers
 * that hold some for long, and never is there room in sum but none in one piece.  Pages of a slot are touched
 * only as far as its batches reach.  The last slot given back is taken first: its pages are warm.
 *
 * Not thread-safe: its owner locks. */
#ifndef STK_BASE_ARENA_H
#define STK_BASE_ARENA_H

#include "base/memory.h"

typedef struct stk_arena stk_arena;

/* A kind of slots. */
typedef struct stk_arena_kind {
    size_t slot_bytes; /* rounded up to whole pages */
    uint32_t slot_count;
} stk_arena_kind;

enum { STK_ARENA_KINDS = 2 };

/* kind_count: 1 to STK_ARENA_KINDS.  Failure: STK_ERR_BUDGET (out of range), STK_ERR_SYSTEM. */
stk_status stk_arena_create(stk_arena **out, const stk_arena_kind *kind, uint32_t kind_count,
                            stk_error *err) STK_MUST_USE;
void stk_arena_destroy(stk_arena *arena);

/* The number of a free slot of a kind, -1 if there is none.  Slots of all kinds are numbered through. */
int32_t stk_arena_take(stk_arena *arena, uint32_t kind);
void stk_arena_give_back(stk_arena *arena, int32_t slot);

uint8_t *stk_arena_slot(stk_arena *arena, int32_t slot);

/* For other processes: the memfd, which stays the arena's, how much of it to map, and where in it a place of a slot lies. */
int stk_arena_fd(const stk_arena *arena);
size_t stk_arena_size(const stk_arena *arena);
size_t stk_arena_offset(const stk_arena *arena, const uint8_t *at);

#endif
