/* engine_core.h - the engine between its files: the window of micro-batches, its threads and its budget.
 *
 *     take ──► fetch ──► make ──► deliver
 *
 * The window holds micro-batches in the engine's order: step, then micro, then rank.  They enter in that
 * order (take), their units are made in any order, and each reader takes its own in order.
 *
 *     unit:  TAKEN -ticket-> FETCHING -bytes arrived-> READY -claim-> MAKING -> MADE
 *
 * One lock guards all of it; it is never held across I/O, decode or a call-back.  Not here: what making is
 * (make.c), delivery, dead letters and error budgets (deliver.c). */
#ifndef STK_ENGINE_ENGINE_CORE_H
#define STK_ENGINE_ENGINE_CORE_H

#include <pthread.h>

#include <stoker/loader.h>

#include "base/arena.h"
#include "engine/make.h"
#include "engine/tickets.h"

/* What memory an engine needs and has (architecture section 8), in bytes. */
typedef struct stk_memory_plan {
    size_t budget, slots, tickets, scratch, work; /* slots + tickets + scratch + work <= budget */
    size_t slot_each, object_each;                /* of the largest planned micro-batch */
    size_t largest_work, largest_record;          /* of a sample */
    uint32_t slot_count, window_count, ticket_count, workers;
    uint32_t finders, finders_most; /* index: stream: threads that find facts; else 0 */
} stk_memory_plan;

/* The largest micro-batch, and sample, of some steps. */
typedef struct stk_forecast {
    size_t slot_bytes;   /* of a micro-batch in the arena */
    size_t object_bytes; /* of a micro-batch outside it: recipe, notes, requests */
    size_t ticket_bytes; /* compressed, of one sample */
    size_t work_bytes;   /* of decoding one sample */
    size_t record_bytes; /* of one record */
    size_t maker_bytes;  /* what a thread holds while it makes one sample's text */
    uint32_t row_count;  /* of a micro-batch */
    bool by_limits;      /* index: stream: all of the above are the most that the options allow, not what is planned */
    size_t finder_bytes; /* and what a thread holds that finds facts */
    size_t whole_bytes;  /* and a medium that is read whole for its header */
} stk_forecast;

/* Over steps first_step .. end_step - 1, from recipes alone; with index: stream from the options' limits and the sizes of the records. */
stk_status stk_forecast_make(stk_forecast *forecast, const stk_run *run, stk_engine_ranks ranks,
                             uint64_t first_step, uint64_t end_step, stk_error *err) STK_MUST_USE;

/* Of one micro-batch of a run with index: stream, whose facts are found for it. */
stk_status stk_forecast_drawn(stk_forecast *forecast, const stk_run *run, uint64_t step, uint32_t rank, uint32_t world,
                              uint32_t micro, stk_error *err) STK_MUST_USE;

/* Size everything from the options and the forecast; STK_ERR_BUDGET with the sum in words. */
stk_status stk_memory_plan_make(stk_memory_plan *memory, const stk_forecast *forecast,
                                const stk_options *options, stk_engine_ranks ranks,
                                stk_error *err) STK_MUST_USE;

typedef struct stk_set_count {
    uint64_t delivered, masked;
    uint64_t drawn, unusable; /* index: stream: records; over-long ones have an option of their own and are no fault */
} stk_set_count;

/* Outlives the engine until the last batch is home.  take_back needs nothing else. */
typedef struct stk_engine_home {
    stk_batch_home home; /* first */
    pthread_mutex_t lock;
    pthread_cond_t changed; /* for workers: something may be done */
    pthread_cond_t ready;   /* for readers: a micro-batch is made, or all is over */
    stk_run *run;
    stk_arena *arena;
    stk_work *free_work; /* list */
    stk_work *work;      /* all of them */
    uint32_t work_count;
    atomic_uint references;    /* the engine, and each batch that is out */
    struct stk_engine *engine; /* NULL once it is closed */
    pid_t pid;                 /* that all of it belongs to */
} stk_engine_home;

struct stk_reader {
    struct stk_engine *engine;
    uint32_t rank;          /* of the world */
    uint64_t next_sequence; /* what it gets next */
    uint32_t held;          /* batches that it has not given back */
    stk_state state;        /* after the last delivered */
    stk_ns waited_ns;       /* since the last delivery */
    stk_status failed;      /* <0: what every later call says */
    stk_error error;
};

/* A worker's counters, on their own cache lines; read by stk_engine_metrics under the lock. */
typedef struct stk_worker {
    _Alignas(64) stk_engine *engine;
    pthread_t thread;
    bool started;
    stk_maker maker;
    stk_stage_metrics decode, transform, text, place; /* published after each unit, under the lock */
} stk_worker;

struct stk_engine {
    stk_engine_home *home;
    stk_run *run;
    stk_engine_ranks ranks;
    stk_state base;      /* what all its states have: fingerprint, plan_version, changes */
    uint64_t first_step; /* of this engine's run, and micro-batches of it that are over */
    uint32_t first_micro;
    uint64_t first_number; /* of the run's micro-batches of a rank: where this engine begins */
    uint64_t sequence_end; /* micro-batches in all */
    stk_memory_plan memory;
    uint32_t keep;
    stk_ns timeout_ns;
    bool inline_workers;
    double errors_masked; /* the share that stops the run */
    double errors_unusable; /* index: stream: of the records drawn so far */
    pid_t pid;
    stk_ns opened_ns;

    stk_source *source;
    stk_tickets tickets;
    stk_reader *reader; /* ranks.rank_count */
    stk_plan_scratch *scratch; /* of take: one thread at a time */
    stk_lazy_facts *lazy;      /* of take too; NULL but with index: stream */
    stk_worker *worker; /* memory.workers, or one when inline */

    /* Guarded by home->lock. */
    bool stop;
    bool taking;       /* a thread is inside take */
    bool source_moved; /* something may be reaped */
    stk_work **window; /* by sequence % window_count; NULL: not there */
    uint32_t window_count;
    uint64_t head, taken; /* head: the oldest not yet delivered; [head, taken) are in the window */
    uint64_t ticketed;    /* the first whose units do not all have tickets */
    uint64_t slotted;     /* the first without a slot */
    uint64_t settled;     /* the first that is not accounted for: counters, dead letters, error budgets */
    bool settling;        /* a thread is writing dead letters */
    uint64_t wanted;      /* inline: the last that a reader asked for */
    stk_status failed;    /* <0: what every reader gets at `settled` */
    stk_error failure;
    size_t work_held;  /* working memory of units in make */
    size_t slots_held; /* slots in use, also those with readers */
    stk_set_count *set_count;
    stk_metrics metrics;
    int dead_letter_fd; /* -1: none; written without the lock, by the thread that is settling, one line a
                           write */
};

/* Place of a sequence number: step, rank, micro. */
void stk_engine_place(const stk_engine *engine, uint64_t sequence, uint64_t *step, uint32_t *rank,
                      uint32_t *micro);

/* Do one piece of work, if any can be done now: true.  Called with the lock held, returns with it held. */
bool stk_engine_advance(stk_engine *engine, stk_worker *worker);

/* Open an engine for one micro-batch of one rank: what `stoker replay` needs. */
stk_status stk_engine_open_one(stk_engine **out, const stk_options *options, uint64_t step, uint32_t rank,
                               uint32_t world, uint32_t micro, stk_error *err) STK_MUST_USE;

/* Note what is held now for the peak.  Under the lock. */
void stk_engine_note_memory(stk_engine *engine);

/* Open FILE for appending; NULL: none. */
stk_status stk_dead_letter_open(int *fd, const char *path, stk_error *err) STK_MUST_USE;

#endif
