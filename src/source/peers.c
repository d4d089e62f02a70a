/* peers.c - a chained table of fixed size; entries that nobody uses lie on a list, the oldest first to go. */
#include "source/peers.h"

#include "base/permutation.h"

enum { KEPT = 64 }; /* beside those in use */

struct stk_peers {
    size_t slots; /* a power of two */
    stk_peer **slot;
    stk_peer *peer; /* count + KEPT */
    size_t made, limit;
    stk_peer *oldest, *newest; /* unused ones */
};

stk_status stk_peers_create(stk_peers **out, int count, stk_error *err)
{
    *out = NULL;
    stk_peers *const p = stk_alloc(STK_TAG_SOURCE, sizeof *p);
    if (p) {
        p->limit = (size_t)count + KEPT;
        p->slots = 64;
        while (p->slots < p->limit) p->slots *= 2;
        p->slot = stk_alloc_array(STK_TAG_SOURCE, p->slots, sizeof *p->slot);
        p->peer = stk_alloc_array(STK_TAG_SOURCE, p->limit, sizeof *p->peer);
    }
    if (!p || !p->slot || !p->peer) {
        stk_peers_destroy(p);
        return stk_fail(err, STK_ERR_NOMEM, "out of memory: a table of hosts");
    }
    *out = p;
    return STK_OK;
}

void stk_peers_destroy(stk_peers *p)
{
    if (!p) return;
    stk_free(p->slot);
    stk_free(p->peer);
    stk_free(p);
}

static stk_peer **slot_of(const stk_peers *p, stk_str name)
{
    uint64_t hash = name.size_bytes;
    for (size_t i = 0; i < name.size_bytes; i++) hash = (hash ^ (uint8_t)name.data[i]) * 0x100000001b3u;
    return &p->slot[stk_mix64(hash) & (p->slots - 1)];
}

static void leave_list(stk_peers *p, stk_peer *e)
{
    *(e->older ? &e->older->newer : &p->oldest) = e->newer;
    *(e->newer ? &e->newer->older : &p->newest) = e->older;
    e->older = e->newer = NULL;
}

/* A fresh entry, or the one that was unused for longest, out of its chain. */
static stk_peer *take_entry(stk_peers *p)
{
    if (p->made < p->limit) return &p->peer[p->made++];
    stk_peer *const e = p->oldest;
    if (!e) return NULL;
    leave_list(p, e);
    stk_peer **at = slot_of(p, stk_str_of(e->name));
    while (*at != e) at = &(*at)->chain;
    *at = e->chain;
    return e;
}

stk_peer *stk_peers_take(stk_peers *p, stk_str name)
{
    if (name.size_bytes >= STK_PEER_NAME_BYTES) return NULL;
    stk_peer **const slot = slot_of(p, name);
    for (stk_peer *e = *slot; e; e = e->chain) {
        if (!stk_str_is(name, e->name)) continue;
        if (e->users++ == 0) leave_list(p, e);
        return e;
    }
    stk_peer *const e = take_entry(p);
    if (!e) return NULL;
    *e = (stk_peer){.users = 1, .chain = *slot};
    memcpy(e->name, name.data, name.size_bytes);
    *slot = e;
    return e;
}

void stk_peers_give_back(stk_peers *p, stk_peer *e)
{
    if (--e->users > 0) return;
    e->older = p->newest;
    e->newer = NULL;
    *(p->newest ? &p->newest->newer : &p->oldest) = e;
    p->newest = e;
}
