/* arena.h - the memory of all slots: a memfd of equal slots, mapped once, sealed against resize.
 *
 * Slots are of the largest planned micro-batch: so they may be given back in any order by readers that hold
 * some for long, and never is there room in sum but none in one piece.  Pages of a slot are touched only as
 * far as its batches reach.  The last slot given back is taken first: its pages are warm.
 *
 * Not thread-safe: its owner locks. */
#ifndef STK_BASE_ARENA_H
#define STK_BASE_ARENA_H

#include "base/memory.h"

typedef struct stk_arena stk_arena;

/* slot_bytes is rounded up to whole pages.  Failure: STK_ERR_BUDGET (out of range), STK_ERR_SYSTEM. */
stk_status stk_arena_create(stk_arena **out, size_t slot_bytes, uint32_t slot_count,
                            stk_error *err) STK_MUST_USE;
void stk_arena_destroy(stk_arena *arena);

/* A free slot's number, -1 if there is none. */
int32_t stk_arena_take(stk_arena *arena);
void stk_arena_give_back(stk_arena *arena, int32_t slot);

uint8_t *stk_arena_slot(const stk_arena *arena, int32_t slot);

#endif
