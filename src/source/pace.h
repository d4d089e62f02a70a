/* pace.h - how many requests may be under way, and how long to wait before another try.  Plain values of one thread. */
#ifndef STK_SOURCE_PACE_H
#define STK_SOURCE_PACE_H

#include "source/net_metrics.h"

/* All waits and counts of the client, so that tests can have shorter ones. */
typedef struct stk_patience {
    int attempts;                 /* of one piece */
    stk_ns retries_ns;            /* of one object, from its first try: then no other follows */
    stk_ns pause_ns, most_pause_ns; /* before try n + 1: up to pause * 2^n, at most the other */
    stk_ns first_byte_ns;         /* until enough is known of a store */
    stk_ns least_first_byte_ns;   /* afterwards: 4 times the 99th percentile, at least this */
    stk_ns stall_ns;              /* without a byte */
    stk_ns whole_ns;              /* of a piece, and 1 us for each byte (1 MB/s) beside */
    uint64_t hedge_observations;  /* before the first hedge */
    int start, limit;             /* of the window of a loop */
} stk_patience;

extern const stk_patience stk_patience_default;

/* --- the window: quick growth to where it was last cut, then additive; multiplicative decrease, on throttles and on latency --- */

typedef struct stk_pace {
    double window, linear_from; /* below the latter it grows by one with each answer, above by one with each window of them */
    int limit;
    stk_ns cut_at, throttled_at;   /* the last cut; the last throttle, 0: none */
    stk_ns sum_ns, best_ns;        /* of the first bytes of this round; the best mean of a round */
    int round;                     /* observations in it */
} stk_pace;

void stk_pace_init(stk_pace *pace, const stk_patience *patience);
int stk_pace_window(const stk_pace *pace);

/* A good answer: full says that as many were under way as may be. */
void stk_pace_good(stk_pace *pace, stk_ns first_byte_ns, bool full);

/* The store said slow down to a request that started then: halved once for all that were under way together. */
void stk_pace_throttled(stk_pace *pace, stk_ns started, stk_ns now);

/* No throttle for some seconds. */
bool stk_pace_is_calm(const stk_pace *pace, stk_ns now);

/* --- pauses --- */

/* Full jitter: anything from 0 to pause_ns * 2^attempt (at most most_pause_ns).  *random is the state of the draws. */
stk_ns stk_pause(const stk_patience *patience, int attempt, uint64_t *random);

/* A bucket of tokens for each store, so that retries do not make a storm worse: each retry takes some, each success gives one,
 * time gives the rest.  An empty bucket makes retries wait; it fails none. */
typedef struct stk_tokens {
    double count;
    stk_ns at; /* when count was so; 0: full */
} stk_tokens;

stk_ns stk_tokens_take(stk_tokens *tokens, int cost, stk_ns now); /* how long to wait */
void stk_tokens_give(stk_tokens *tokens, int count);

/* --- late first bytes, by size class --- */

enum { STK_SIZE_CLASSES = 4 };
unsigned stk_size_class(uint64_t size_bytes);

typedef struct stk_lateness {
    stk_time_histogram times; /* halved when old: the running picture */
    stk_ns p97_ns, p99_ns;    /* as of some observations ago; 0: not enough are known */
} stk_lateness;

void stk_lateness_add(stk_lateness *lateness, stk_ns first_byte_ns, const stk_patience *patience);
stk_ns stk_first_byte_limit(const stk_lateness *lateness, const stk_patience *patience);

#endif
