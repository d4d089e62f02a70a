/* tickets.c - the ring of compressed bytes. */
#include "engine/tickets.h"

#include <sys/mman.h>

struct stk_ticket {
    size_t at_bytes, size_bytes;
    bool over; /* given back, but not yet the oldest */
};

stk_status stk_tickets_init(stk_tickets *tickets, size_t size_bytes, uint32_t capacity, stk_error *err)
{
    *tickets = (stk_tickets){.size_bytes = stk_round_up(size_bytes, STK_ALIGN_BYTES), .capacity = capacity};
    tickets->ticket = stk_alloc_array(STK_TAG_ENGINE, capacity, sizeof *tickets->ticket);
    if (!tickets->ticket) return stk_fail(err, STK_ERR_NOMEM, "out of memory: %u tickets", capacity);
    /* Mapped, not allocated: pages that no fetch ever reaches cost nothing.  One pad behind the end. */
    tickets->base = mmap(NULL, tickets->size_bytes + STK_PAD_BYTES, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (tickets->base != MAP_FAILED) return STK_OK;
    tickets->base = NULL;
    stk_free(tickets->ticket);
    tickets->ticket = NULL;
    return stk_fail_errno(err, "mmap of %zu bytes for fetches", tickets->size_bytes);
}

void stk_tickets_deinit(stk_tickets *tickets)
{
    if (tickets->base) munmap(tickets->base, tickets->size_bytes + STK_PAD_BYTES);
    stk_free(tickets->ticket);
    *tickets = (stk_tickets){0};
}

/* The free run at head, after a wrap where that is longer. */
static bool find_room(stk_tickets *tickets, size_t size_bytes)
{
    if (tickets->count == 0) {
        tickets->head_bytes = tickets->tail_bytes = 0;
        return size_bytes <= tickets->size_bytes;
    }
    if (tickets->head_bytes > tickets->tail_bytes) {
        if (size_bytes <= tickets->size_bytes - tickets->head_bytes) return true;
        if (size_bytes > tickets->tail_bytes) return false;
        tickets->head_bytes = 0;
        return true;
    }
    return size_bytes <= tickets->tail_bytes - tickets->head_bytes;
}

uint8_t *stk_tickets_take(stk_tickets *tickets, size_t size_bytes)
{
    size_bytes = stk_round_up(size_bytes, STK_ALIGN_BYTES);
    if (tickets->count == tickets->capacity || !find_room(tickets, size_bytes)) return NULL;
    struct stk_ticket *const ticket =
        &tickets->ticket[(tickets->first + tickets->count++) % tickets->capacity];
    *ticket = (struct stk_ticket){.at_bytes = tickets->head_bytes, .size_bytes = size_bytes};
    tickets->head_bytes += size_bytes;
    tickets->held_bytes += size_bytes;
    return tickets->base + ticket->at_bytes;
}

void stk_tickets_give_back(stk_tickets *tickets, uint8_t *memory)
{
    for (uint32_t i = 0; i < tickets->count; i++) {
        struct stk_ticket *const ticket = &tickets->ticket[(tickets->first + i) % tickets->capacity];
        if (tickets->base + ticket->at_bytes != memory || ticket->over) continue;
        ticket->over = true;
        tickets->held_bytes -= ticket->size_bytes;
        break;
    }
    while (tickets->count && tickets->ticket[tickets->first].over) {
        tickets->first = (tickets->first + 1) % tickets->capacity;
        tickets->count--;
    }
    if (tickets->count) tickets->tail_bytes = tickets->ticket[tickets->first].at_bytes;
}
