/* arena.c - slots in a sealed memfd. */
#include "base/arena.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

typedef struct slots {
    size_t at_bytes, slot_bytes;
    int32_t first; /* its lowest number */
    uint32_t slot_count, free_count;
    int32_t *free_slot; /* a stack */
} slots;

struct stk_arena {
    int fd;
    uint8_t *base;
    size_t size_bytes;
    uint32_t kind_count;
    slots kind[STK_ARENA_KINDS];
    int32_t free_slot[]; /* the stacks, one behind the other */
};

/* Lay the kinds out, one behind the other. */
static stk_status lay_out(stk_arena *a, const stk_arena_kind *kind, stk_error *err)
{
    const size_t page_bytes = (size_t)sysconf(_SC_PAGESIZE);
    int32_t first = 0;
    for (uint32_t k = 0; k < a->kind_count; k++) {
        slots *const s = &a->kind[k];
        size_t all_bytes;
        *s = (slots){.at_bytes = a->size_bytes, .first = first, .slot_count = kind[k].slot_count, .free_slot = a->free_slot + first};
        if (kind[k].slot_bytes <= SIZE_MAX / 2) s->slot_bytes = stk_round_up(kind[k].slot_bytes, page_bytes);
        if (kind[k].slot_bytes > SIZE_MAX / 2 || stk_mul_overflows(&all_bytes, s->slot_bytes, s->slot_count) ||
            stk_add_overflows(&a->size_bytes, a->size_bytes, all_bytes) || a->size_bytes > INT64_MAX)
            return stk_fail(err, STK_ERR_BUDGET, "%u slots of %zu bytes are out of range: lower batch or micro_batch",
                            kind[k].slot_count, kind[k].slot_bytes);
        first += (int32_t)s->slot_count;
        for (uint32_t i = 0; i < s->slot_count; i++) s->free_slot[s->free_count++] = first - 1 - (int32_t)i;
    }
    return STK_OK;
}

stk_status stk_arena_create(stk_arena **out, const stk_arena_kind *kind, uint32_t kind_count, stk_error *err)
{
    *out = NULL;
    uint64_t slot_count = 0;
    for (uint32_t k = 0; k < kind_count; k++) slot_count += kind[k].slot_count;
    if (slot_count > INT32_MAX)
        return stk_fail(err, STK_ERR_BUDGET, "%llu slots are too many: lower keep or prefetch", (unsigned long long)slot_count);
    stk_arena *const a = stk_alloc(STK_TAG_ARENA, sizeof *a + slot_count * sizeof *a->free_slot);
    if (!a) return stk_fail(err, STK_ERR_NOMEM, "out of memory: an arena of %llu slots", (unsigned long long)slot_count);
    a->kind_count = kind_count;
    stk_status status = lay_out(a, kind, err);
    if (status < 0) goto free_arena;
    a->fd = memfd_create("stoker-arena", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (a->fd < 0) {
        status = stk_fail_errno(err, "cannot make memory for batches (memfd_create)");
        goto free_arena;
    }
    if (ftruncate(a->fd, (off_t)a->size_bytes)) {
        status = stk_fail_errno(err, "cannot make memory of %zu bytes for batches (ulimit -f)", a->size_bytes);
        goto close_fd;
    }
    /* Whoever gets the fd can rely on the size: no SIGBUS behind a shrunken end. */
    if (fcntl(a->fd, F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL)) {
        status = stk_fail_errno(err, "sealing the arena");
        goto close_fd;
    }
    a->base = mmap(NULL, a->size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, a->fd, 0);
    if (a->base == MAP_FAILED) {
        status = stk_fail_errno(err, "cannot map %zu bytes for batches: lower keep, prefetch or micro_batch, or raise ulimit -v", a->size_bytes);
        goto close_fd;
    }
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

/* The kind that a slot is of. */
static slots *kind_of(stk_arena *arena, int32_t slot)
{
    slots *s = &arena->kind[arena->kind_count - 1];
    while (slot < s->first) s--;
    return s;
}

int32_t stk_arena_take(stk_arena *arena, uint32_t kind)
{
    slots *const s = &arena->kind[kind];
    return s->free_count ? s->free_slot[--s->free_count] : -1;
}

void stk_arena_give_back(stk_arena *arena, int32_t slot)
{
    slots *const s = kind_of(arena, slot);
    s->free_slot[s->free_count++] = slot;
}

uint8_t *stk_arena_slot(stk_arena *arena, int32_t slot)
{
    const slots *const s = kind_of(arena, slot);
    return arena->base + s->at_bytes + (size_t)(slot - s->first) * s->slot_bytes;
}

int stk_arena_fd(const stk_arena *arena)
{
    return arena->fd;
}

size_t stk_arena_size(const stk_arena *arena)
{
    return arena->size_bytes;
}

size_t stk_arena_offset(const stk_arena *arena, const uint8_t *at)
{
    return (size_t)(at - arena->base);
}
