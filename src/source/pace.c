/* pace.c - window, pauses, tokens, percentiles. */
#include "source/pace.h"

#include "base/permutation.h"

const stk_patience stk_patience_default = {
    .attempts = 10,
    .retries_ns = 180 * STK_S,
    .pause_ns = 100 * STK_MS,
    .most_pause_ns = 20 * STK_S,
    .first_byte_ns = 10 * STK_S,
    .least_first_byte_ns = 2 * STK_S,
    .stall_ns = 5 * STK_S,
    .whole_ns = 30 * STK_S,
    .hedge_observations = 200,
    .start = 256,
    .limit = STK_LOOP_REQUESTS,
};

/* --- the window --- */

enum { ROUND = 64 };                   /* observations that make a mean */
static const double least_window = 4;  /* after throttles */
static const double slow_window = 16;  /* latency alone goes no lower */
static const stk_ns calm_ns = 5 * STK_S;

void stk_pace_init(stk_pace *p, const stk_patience *patience)
{
    *p = (stk_pace){.limit = patience->limit, .window = patience->start < patience->limit ? patience->start : patience->limit,
                   .linear_from = patience->limit};
}

int stk_pace_window(const stk_pace *p)
{
    return (int)p->window;
}

/* Requests that wait for each other at the store raise its latency and nothing else.  The best mean fades, so that a store
 * that became slower for good is not held back for ever. */
static void end_round(stk_pace *p)
{
    const stk_ns mean = p->sum_ns / p->round;
    if (p->best_ns == 0 || mean < p->best_ns) p->best_ns = mean;
    else p->best_ns += p->best_ns / 64;
    if (mean > 4 * p->best_ns + 50 * STK_MS && p->window > slow_window) {
        p->window *= 0.875;
        if (p->window < slow_window) p->window = slow_window;
        p->linear_from = p->window;
    }
    p->sum_ns = 0;
    p->round = 0;
}

static bool is_slow(const stk_pace *p)
{
    return p->best_ns && p->round >= ROUND / 4 && p->sum_ns / p->round > 2 * p->best_ns + 10 * STK_MS;
}

void stk_pace_good(stk_pace *p, stk_ns first_byte_ns, bool full)
{
    p->sum_ns += first_byte_ns;
    p->round++;
    if (full && !is_slow(p)) p->window += p->window < p->linear_from ? 1 : 1 / p->window;
    if (p->window > p->limit) p->window = p->limit;
    if (p->round == ROUND) end_round(p);
}

void stk_pace_throttled(stk_pace *p, stk_ns started, stk_ns now)
{
    p->throttled_at = now;
    if (started < p->cut_at) return;
    p->cut_at = now;
    p->window /= 2;
    if (p->window < least_window) p->window = p->limit < least_window ? p->limit : least_window;
    p->linear_from = p->window;
}

bool stk_pace_is_calm(const stk_pace *p, stk_ns now)
{
    return p->throttled_at == 0 || now - p->throttled_at > calm_ns;
}

/* --- pauses --- */

stk_ns stk_pause(const stk_patience *patience, int attempt, uint64_t *random)
{
    stk_ns most = patience->pause_ns;
    for (int i = 0; i < attempt && most < patience->most_pause_ns; i++) most *= 2;
    if (most > patience->most_pause_ns) most = patience->most_pause_ns;
    *random = stk_mix64(*random + 0x9e3779b97f4a7c15u);
    return most > 0 ? (stk_ns)(*random % (uint64_t)most) : 0;
}

static const double most_tokens = 500, tokens_per_second = 100;

stk_ns stk_tokens_take(stk_tokens *t, int cost, stk_ns now)
{
    if (t->at == 0) t->count = most_tokens;
    else t->count += (double)(now - t->at) / (double)STK_S * tokens_per_second;
    if (t->count > most_tokens) t->count = most_tokens;
    t->at = now;
    t->count -= cost;
    return t->count >= 0 ? 0 : (stk_ns)(-t->count / tokens_per_second * (double)STK_S);
}

void stk_tokens_give(stk_tokens *t, int count)
{
    if (t->at && t->count < most_tokens) t->count += count;
}

/* --- late first bytes --- */

enum { OLD = 8192, EVERY = 64 };

unsigned stk_size_class(uint64_t size_bytes)
{
    return size_bytes <= 64 << 10 ? 0 : size_bytes <= 512 << 10 ? 1 : size_bytes <= 4 << 20 ? 2 : 3;
}

void stk_lateness_add(stk_lateness *l, stk_ns first_byte_ns, const stk_patience *patience)
{
    stk_time_add(&l->times, first_byte_ns);
    if (l->times.count >= patience->hedge_observations && (l->p97_ns == 0 || l->times.count % EVERY == 0)) {
        l->p97_ns = stk_time_quantile(&l->times, 0.97);
        l->p99_ns = stk_time_quantile(&l->times, 0.99);
    }
    if (l->times.count < OLD) return;
    l->times.count = 0;
    for (int k = 0; k < STK_TIME_CLASSES; k++) l->times.count += l->times.in_class[k] /= 2;
}

stk_ns stk_first_byte_limit(const stk_lateness *l, const stk_patience *patience)
{
    if (l->p99_ns == 0) return patience->first_byte_ns;
    const stk_ns limit = 4 * l->p99_ns;
    return limit < patience->least_first_byte_ns ? patience->least_first_byte_ns
           : limit > patience->first_byte_ns     ? patience->first_byte_ns
                                                 : limit;
}
