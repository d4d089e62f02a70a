/* store_due.c - when the loop must look at a flying piece: the deadlines of its attempts, and the time of a hedge. */
#include "source/store_core.h"

static stk_ns whole_limit(const stk_loop *l, const stk_piece *p)
{
    const uint64_t bytes = p->end != STK_UNKNOWN_BYTES ? p->end - p->first
                           : p->job->kind == STK_JOB_PUT ? ((const stk_call *)p->job->request->work)->upload.size_bytes
                                                         : p->job->request->capacity_bytes;
    return l->patience.whole_ns + (bytes > INT64_MAX / 4000 ? INT64_MAX / 4 : (stk_ns)bytes * 1000);
}

stk_ns stk_attempt_deadline(const stk_loop *l, const stk_attempt *attempt)
{
    const stk_piece *const p = attempt->piece;
    const stk_ns whole = attempt->started + whole_limit(l, p);
    stk_ns quiet;
    if (attempt->first_byte) quiet = attempt->last_byte + l->patience.stall_ns;
    else if (attempt->last_byte) quiet = attempt->last_byte + l->patience.first_byte_ns; /* an upload goes on */
    else quiet = attempt->started + stk_first_byte_limit(&l->lateness[attempt->size_class], &l->patience);
    return quiet < whole ? quiet : whole;
}

stk_ns stk_piece_hedge_time(const stk_loop *l, const stk_piece *p)
{
    const stk_attempt *const attempt = p->attempt[0];
    if (!l->store->config.hedge || p->hedges == STK_ATTEMPTS - 1 || !attempt || attempt->first_byte) return 0;
    if (p->job->kind != STK_JOB_GET || p->job->parted || stk_piece_wanted_bytes(p) > STK_PART_BYTES) return 0;
    const stk_ns late = l->lateness[attempt->size_class].p97_ns;
    return late ? attempt->started + (p->hedges + 1) * late : 0;
}

void stk_piece_watch(stk_loop *l, stk_piece *p)
{
    stk_ns due = STK_FOREVER;
    for (int i = 0; i < STK_ATTEMPTS; i++) {
        const stk_ns deadline = p->attempt[i] ? stk_attempt_deadline(l, p->attempt[i]) : STK_FOREVER;
        if (deadline < due) due = deadline;
    }
    const stk_ns hedge = stk_piece_hedge_time(l, p);
    if (hedge && hedge < due) due = hedge;
    stk_piece_due(l, p, due);
}
