/* serving_core.h - the parts of a serving, between its two files. */
#ifndef STK_ENGINE_SERVING_CORE_H
#define STK_ENGINE_SERVING_CORE_H

#include "engine/options_text.h"
#include "engine/serving.h"

/* A rank of a split. */
typedef struct stk_serving_rank {
    stk_serving *serving;
    stk_reader *reader;  /* NULL while nothing is open */
    stk_seat *seat;      /* readers */
    uint64_t next;       /* what is taken out of the engine next */
    stk_batch **batch;   /* those before it that not all seats have passed; keep + 1 at most */
    uint32_t there;      /* how many */
    bool asking;         /* the engine was asked for the next one */
    bool kept;           /* and refused, because so many are out */
    stk_ns polled_ns;
} stk_serving_rank;

struct stk_serving {
    int wake_fd;
    char *file, *text; /* of the options; NULL: nobody has come yet */
    stk_options options;
    stk_engine_ranks ranks;
    uint32_t *rank_list;    /* what ranks.rank points to */
    stk_buffer node_ranks;  /* in words */
    uint32_t readers;
    stk_serving_rank *rank[STK_LANES]; /* ranks.rank_count */
    stk_seat *seats;                   /* of all ranks */
    stk_engine *engine;                /* NULL: not open */
    uint64_t generation;
    uint64_t base_pass;                /* of `eval`: what the engine's first pass is */
    bool spoiled;                      /* it has failed for good: whoever starts over gets another */
    stk_ns wait_until;                 /* for others that come back, before it is opened; 0: not begun */

    /* The thread that opens. */
    bool opening;
    pthread_t thread;
    bool from_state;
    stk_state from;
    stk_engine *old, *opened;
    stk_status status;
    stk_error error;
    atomic_bool done, stop;
    pthread_mutex_t lock; /* guards words */
    char words[200];
};

/* The ranks of the machine in words, with a NUL behind them. */
static inline stk_str stk_serving_node_ranks(const stk_serving *s)
{
    return (stk_str){(const char *)s->node_ranks.data, s->node_ranks.size_bytes};
}

/* serving.c */
stk_status stk_seat_find(stk_seat *seat, stk_error *err) STK_MUST_USE;
void stk_serving_let_go_all(stk_serving_rank *rank);

#endif
