/* arena.c - equal slots in a sealed memfd. */
#include "base/arena.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

struct stk_arena {
    int fd;
    uint8_t *base;
    size_t slot_bytes, size_bytes;
    uint32_t free_count;
    int32_t free_slot[]; /* a stack */
};

stk_status stk_arena_create(stk_arena **out, size_t slot_bytes, uint32_t slot_count, stk_error *err)
{
    *out = NULL;
    stk_status status;
    stk_arena *const a = stk_alloc(STK_TAG_ARENA, sizeof *a + slot_count * sizeof *a->free_slot);
    if (!a) return stk_fail(err, STK_ERR_NOMEM, "out of memory: an arena of %u slots", slot_count);

    const size_t page_bytes = (size_t)sysconf(_SC_PAGESIZE);
    if (slot_bytes > SIZE_MAX / 2) {
        status = stk_fail(err, STK_ERR_BUDGET,
                          "slots of %zu bytes are out of range: lower batch or micro_batch", slot_bytes);
        goto free_arena;
    }
    a->slot_bytes = stk_round_up(slot_bytes, page_bytes);
    if (stk_mul_overflows(&a->size_bytes, a->slot_bytes, slot_count) || a->size_bytes > INT64_MAX) {
        status = stk_fail(err, STK_ERR_BUDGET,
                          "%u slots of %zu bytes are out of range: lower batch or micro_batch", slot_count,
                          slot_bytes);
        goto free_arena;
    }
    a->fd = memfd_create("stoker-arena", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (a->fd < 0) {
        status = stk_fail_errno(err, "memfd_create");
        goto free_arena;
    }
    if (ftruncate(a->fd, (off_t)a->size_bytes)) {
        status = stk_fail_errno(err, "ftruncate of the arena");
        goto close_fd;
    }
    /* Whoever gets the fd can rely on the size: no SIGBUS behind a shrunken end. */
    if (fcntl(a->fd, F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL)) {
        status = stk_fail_errno(err, "sealing the arena");
        goto close_fd;
    }
    a->base = mmap(NULL, a->size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, a->fd, 0);
    if (a->base == MAP_FAILED) {
        status = stk_fail_errno(err, "mmap of an arena of %zu bytes", a->size_bytes);
        goto close_fd;
    }
    for (uint32_t i = 0; i < slot_count; i++) a->free_slot[a->free_count++] = (int32_t)(slot_count - 1 - i);
    *out = a;
    return STK_OK;

close_fd:
    close(a->fd);
free_arena:
    stk_free(a);
    return status;
}

void stk_arena_destroy(stk_arena *arena)
{
    if (!arena) return;
    munmap(arena->base, arena->size_bytes);
    close(arena->fd);
    stk_free(arena);
}

int32_t stk_arena_take(stk_arena *arena)
{
    return arena->free_count ? arena->free_slot[--arena->free_count] : -1;
}

void stk_arena_give_back(stk_arena *arena, int32_t slot)
{
    arena->free_slot[arena->free_count++] = slot;
}

uint8_t *stk_arena_slot(const stk_arena *arena, int32_t slot)
{
    return arena->base + (size_t)slot * arena->slot_bytes;
}
