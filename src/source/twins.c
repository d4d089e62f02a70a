/* twins.c - a table with one place for each hash: who comes second to a place that another holds is asked for by itself. */
#include "source/twins.h"

#include <xxhash.h>

static stk_request **slot_of(stk_twins *twins, const stk_request *r)
{
    return &twins->slot[XXH3_64bits_withSeed(r->address.data, r->address.size_bytes, r->offset) % STK_TWIN_SLOTS];
}

/* The same bytes, under the same conditions: whatever comes of one is what would have come of the other. */
static bool same(const stk_request *a, const stk_request *b)
{
    return a->offset == b->offset && a->size_bytes == b->size_bytes && a->capacity_bytes == b->capacity_bytes && a->places == b->places &&
           stk_str_equal(a->address, b->address) && stk_str_equal(a->etag, b->etag);
}

bool stk_twins_follow(stk_twins *twins, stk_request *r)
{
    stk_request **const slot = slot_of(twins, r), *const leader = *slot;
    r->leader = r->followers = NULL;
    if (!leader) *slot = r;
    if (!leader || !same(leader, r) || r->priority < leader->priority || leader->cancelled) return false;
    r->leader = leader;
    r->next = leader->followers;
    leader->followers = r;
    return true;
}

stk_request *stk_twins_part(stk_twins *twins, stk_request *leader)
{
    stk_request **const slot = slot_of(twins, leader), *const followers = leader->followers;
    if (*slot == leader) *slot = NULL;
    leader->followers = NULL;
    for (stk_request *r = followers; r; r = r->next) r->leader = NULL;
    return followers;
}

void stk_twins_leave(stk_request *follower)
{
    stk_request **at = &follower->leader->followers;
    while (*at != follower) at = &(*at)->next;
    *at = follower->next;
    follower->leader = follower->next = NULL;
}

void stk_twins_copy(stk_request *to, const stk_request *from)
{
    to->status = from->status;
    to->got_bytes = from->got_bytes;
    to->total_bytes = from->total_bytes;
    to->changed = from->changed;
    to->busy_ns = 0; /* nobody worked for it */
    to->error = from->error;
    memcpy(to->etag_is, from->etag_is, sizeof to->etag_is);
    if (from->status == STK_OK && from->got_bytes) memcpy(to->buffer, from->buffer, from->got_bytes);
}
