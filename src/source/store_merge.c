/* store_merge.c - files of one remote tar that wait at the same time and lie side by side come by one range.
 *
 *     waiting, by priority:  B  .  A  .  C          the range:  [A] gap [B] gap [C]
 *
 * The carrier is a request of the loop's own for that range; the bytes go to the buffers of those that it carries.  Only the plain
 * good answer counts.  Whatever else comes of it, and a cancel of one, takes it apart: each waits again, to be asked for alone, so
 * that no outcome depends on who waited with whom.  (A store that says slow down is given time first: many are worse than one.)
 *
 * Many connections bring more than one: ranges are merged only as far as the window has no place for each request. */
#include "source/store_core.h"

enum {
    LOOK_AHEAD = 128,       /* waiting requests that are looked at */
    MOST_GAP_BYTES = 16 << 10,
    MOST_BYTES = 4 << 20    /* of a range: with more, its bytes take longer than a further request's wait */
};

static uint64_t end_of(const stk_request *r)
{
    return r->offset + r->size_bytes;
}

static bool may_merge(const stk_request *r)
{
    return r->asked.address.data && !r->alone && r->size_bytes > 0 && r->size_bytes <= MOST_BYTES && r->size_bytes <= r->capacity_bytes &&
           r->offset <= INT64_MAX;
}

/* How many may come by one range, so that all that waits fits the places that are free. */
static int most_carried(const stk_loop *l)
{
    const int places = stk_pace_window(&l->pace) - l->in_flight;
    return places > 0 ? (l->waiting_count - 1) / places + 1 : l->waiting_count;
}

/* Those of r's tar among it and the next few that wait, by offset; how many. */
static int find_near(stk_request *r, stk_request **near)
{
    int count = 0;
    stk_request *w = r;
    for (int i = 0; w && i < LOOK_AHEAD; w = w->next, i++) {
        if (!may_merge(w) || w->places != r->places || !stk_str_equal(w->address, r->address) || !stk_str_equal(w->etag, r->etag)) continue;
        int at = count++;
        for (; at > 0 && near[at - 1]->offset > w->offset; at--) near[at] = near[at - 1];
        near[at] = w;
    }
    return count;
}

static stk_carrier *take_carrier(stk_loop *l)
{
    stk_carrier *c = l->free_carriers;
    if (c) l->free_carriers = c->next;
    else c = stk_alloc(STK_TAG_SOURCE, sizeof *c);
    return c;
}

stk_carrier *stk_carrier_open(stk_loop *l, stk_request *r)
{
    stk_request *near[LOOK_AHEAD];
    const int most = most_carried(l);
    if (most < 2 || !may_merge(r)) return NULL;
    const int count = find_near(r, near);
    int first = 0;
    while (near[first] != r) first++;
    int last = first;
    uint64_t begin = r->offset, end = end_of(r);
    for (; last + 1 < count && last - first + 1 < most; last++) {
        const stk_request *const n = near[last + 1];
        const uint64_t longer = end_of(n) > end ? end_of(n) : end;
        if (n->offset > end + MOST_GAP_BYTES || longer - begin > MOST_BYTES) break;
        end = longer;
    }
    for (; first > 0 && last - first + 1 < most; first--) {
        const stk_request *const n = near[first - 1];
        const uint64_t longer = end_of(n) > end ? end_of(n) : end;
        if (end_of(n) + MOST_GAP_BYTES < begin || longer - n->offset > MOST_BYTES) break;
        begin = n->offset;
        end = longer;
    }
    stk_carrier *const c = first < last ? take_carrier(l) : NULL;
    if (!c) return NULL;
    *c = (stk_carrier){.request = {.address = r->address, .etag = r->etag, .places = r->places, .offset = begin, .size_bytes = end - begin,
                                   .priority = r->priority, .capacity_bytes = (size_t)(end - begin)}};
    for (; last >= first; last--) {
        stk_waiting_leave(l, near[last]);
        near[last]->next = c->first;
        c->first = near[last];
    }
    return c;
}

void stk_carrier_put(const stk_carrier *c, uint64_t at, stk_bytes bytes)
{
    const uint64_t end = at + bytes.size_bytes;
    for (const stk_request *r = c->first; r && r->offset < end; r = r->next) {
        const uint64_t from = r->offset > at ? r->offset : at, to = end_of(r) < end ? end_of(r) : end;
        if (from < to) memcpy(r->buffer + (from - r->offset), bytes.data + (from - at), (size_t)(to - from));
    }
}

bool stk_carrier_cancelled(const stk_carrier *c)
{
    const stk_request *r = c->first;
    while (r && !stk_request_cancelled(r)) r = r->next;
    return r != NULL;
}

void stk_carrier_end(stk_loop *l, stk_carrier *c)
{
    for (stk_request *r; (r = c->first);) {
        c->first = r->next;
        if (c->request.status == STK_OK) {
            r->status = STK_OK;
            r->got_bytes = (size_t)r->size_bytes;
            r->total_bytes = c->request.total_bytes;
            r->busy_ns = c->request.busy_ns;
            memcpy(r->etag_is, c->request.etag_is, sizeof r->etag_is);
            stk_request_end(l, r);
        } else {
            r->alone = true;
            stk_waiting_enter(l, r);
        }
    }
    c->next = l->free_carriers;
    l->free_carriers = c;
}
