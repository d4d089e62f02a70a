/* engine_core.h - the engine between its files: its lanes, their windows of micro-batches, its threads and its budget.
 *
 *     take ──► fetch ──► make ──► deliver
 *
 * A lane is a split that the engine serves: training, and `eval` beside it.  All lanes share the threads, the source, the
 * budget and the arena.  What may be held for long is each lane's own (slots, tickets, window), and what is shared (threads,
 * working memory) is held by nobody who waits: so a lane whose readers rest never keeps another from going on.
 *
 * The window of a lane holds micro-batches in the order step, then micro, then rank, pass after pass: reading a split again
 * goes on counting (sequence).  They enter in that order (take), their units are made in any order, and each reader takes
 * its own in order.
 *
 *     unit:  TAKEN -ticket-> FETCHING -bytes arrived-> READY -claim-> MAKING -> MADE
 *
 * One lock guards all of it; it is never held across I/O, decode or a call-back.  engine.c opens, runs threads and closes;
 * lane.c opens a lane; advance.c has the pieces of work; deliver.c what readers get, dead letters and error budgets; home.c
 * where micro-batches come home to; make.c what making is. */
#ifndef STK_ENGINE_ENGINE_CORE_H
#define STK_ENGINE_ENGINE_CORE_H

#include <pthread.h>

#include <stoker/loader.h>

#include "base/arena.h"
#include "engine/make.h"
#include "engine/tickets.h"

enum { STK_LANES = 2, STK_LANE_TRAIN = 0, STK_LANE_EVAL = 1 };

/* The at-th of them. */
static inline uint32_t stk_engine_rank(const stk_engine_ranks *ranks, uint32_t at)
{
    return ranks->rank ? ranks->rank[at] : ranks->first_rank + at;
}

/* Whoever waits for a micro-batch of an engine on request: on its own stack, in the list of its wish. */
typedef struct stk_asker {
    struct stk_asker *next;
    bool done; /* what follows is its answer */
    stk_status status;
    stk_batch *batch;
    stk_error error;
} stk_asker;

/* A micro-batch that an engine on request is asked for, or may expect to be. */
typedef struct stk_wish {
    stk_place place;
    uint64_t number;  /* in the order in which they came, or were first asked for; 0: this cell is free */
    stk_asker *asker; /* list; NULL: it is only expected, or was given up */
    stk_work *work;   /* NULL: it is not taken, or just being taken */
    bool taken;
    bool entered;     /* its work is in the window */
    bool stale;       /* it is expected, and its rank reads elsewhere now */
    bool dropped;     /* it goes as soon as nobody is at it */
    bool ending;      /* a thread gives it out */
} stk_wish;

/* What a lane has of the memory, in bytes. */
typedef struct stk_lane_memory {
    size_t slots, tickets;
    size_t ahead; /* on request: the part of tickets that what is only expected may have */
    size_t slot_each, object_each; /* of the largest planned micro-batch */
    size_t largest_record;
    uint64_t prefetch;
    uint32_t slot_count, window_count, ticket_count;
    uint32_t finders; /* index: stream: threads that find facts; else 0 */
    int finder_requests; /* remote ones that these may have under way; 0: as many as they like, for there are none */
} stk_lane_memory;

/* What memory an engine needs and has (architecture section 8), in bytes. */
typedef struct stk_memory_plan {
    size_t budget, scratch, work; /* slots + tickets of all lanes + scratch + store + work <= budget */
    size_t store;                 /* of what remote requests take while they are under way; 0: media are on this machine */
    int requests;                 /* of the data path, that may be under way */
    size_t largest_work;          /* of a sample of any lane */
    uint32_t workers;
    stk_lane_memory lane[STK_LANES];
} stk_memory_plan;

/* The largest micro-batch, and sample, of some steps. */
typedef struct stk_forecast {
    size_t slot_bytes;   /* of a micro-batch in the arena */
    size_t object_bytes; /* of a micro-batch outside it: recipe, notes, requests */
    size_t ticket_bytes; /* compressed, of one sample */
    size_t fetch_bytes;  /* and of a micro-batch */
    size_t work_bytes;   /* of decoding one sample */
    size_t record_bytes; /* of one record */
    size_t maker_bytes;  /* what a thread holds while it makes one sample's text */
    uint32_t row_count, media_count; /* of a micro-batch */
    bool by_limits;      /* index: stream: all of the above are the most that the options allow, not what is planned */
    size_t finder_bytes; /* and what a thread holds that finds facts */
    size_t whole_bytes;  /* and a medium that is read whole for its header */
} stk_forecast;

/* Over steps first_step .. end_step - 1, from recipes alone; with index: stream from the options' limits and the sizes of the records.
 * watch may be NULL. */
stk_status stk_forecast_make(stk_forecast *forecast, const stk_run *run, stk_engine_ranks ranks,
                             uint64_t first_step, uint64_t end_step, stk_watch *watch, stk_error *err) STK_MUST_USE;

/* Of one micro-batch of a run with index: stream, whose facts are found for it. */
stk_status stk_forecast_drawn(stk_forecast *forecast, const stk_run *run, uint64_t step, uint32_t rank, uint32_t world,
                              uint32_t micro, stk_error *err) STK_MUST_USE;

typedef struct stk_lane_needs {
    const stk_options *options; /* of the split; those of the first lane say what all share: memory and workers */
    stk_forecast forecast;
    bool remote; /* media may be objects */
    bool on_request; /* the ranks' number says nothing about how many are in the making */
} stk_lane_needs;

/* Size everything from what the lanes need; STK_ERR_BUDGET with the sum in words. */
stk_status stk_memory_plan_make(stk_memory_plan *memory, const stk_lane_needs *lane, uint32_t lane_count, stk_engine_ranks ranks,
                                stk_error *err) STK_MUST_USE;

typedef struct stk_set_count {
    uint64_t delivered, masked;
    uint64_t drawn, unusable; /* index: stream: records; over-long ones have an option of their own and are no fault */
} stk_set_count;

/* The micro-batches of a lane. */
typedef struct stk_lane_home {
    stk_batch_home home; /* first */
    struct stk_engine_home *engine_home;
    stk_run *run;
    uint32_t number;     /* of the lane, and of its kind of slots */
    stk_work *free_work; /* list; guarded by the lock */
    stk_work *work;      /* all of them */
    uint32_t work_count;
} stk_lane_home;

/* Outlives the engine until the last batch is home.  take_back needs nothing else. */
typedef struct stk_engine_home {
    pthread_mutex_t lock;
    pthread_cond_t changed; /* for workers: something may be done */
    pthread_cond_t ready;   /* for readers: a micro-batch is made, or all is over (stk_engine_tell_readers) */
    int ready_fd;           /* an eventfd of whoever polls readers, told likewise; -1: none */
    stk_arena *arena;
    stk_lane_home lane[STK_LANES];
    uint32_t lane_count;
    atomic_uint references;    /* the engine, and each batch that is out */
    struct stk_engine *engine; /* NULL once it is closed */
    pid_t pid;                 /* that all of it belongs to */
} stk_engine_home;

struct stk_reader {
    struct stk_lane *lane;
    uint32_t rank;          /* of the world */
    uint64_t next_sequence; /* what it gets next; read by others under the lock */
    uint64_t pass_end;      /* where its pass over the split ends; the next one begins there */
    uint32_t held;          /* batches that it has not given back */
    bool polled;            /* it is among the lane's waiting ones between two polls */
    stk_state state;        /* after the last delivered */
    stk_ns waited_ns;       /* since the last delivery */
    stk_status failed;      /* <0: what every later call says */
    stk_error error;
};

/* A split that the engine serves.  On request it has wishes in place of readers: what is asked for enters the window in the order in which
 * that comes, and a sequence says nothing but that order; what is only expected stands outside (wishes.c). */
typedef struct stk_lane {
    struct stk_engine *engine;
    uint32_t number;
    stk_run *run;
    stk_lane_home *home;
    const stk_lane_memory *memory;
    stk_state base;      /* what all its states have: fingerprint, plan_version, changes */
    stk_state start;     /* of every reader, at the beginning of a pass */
    uint64_t first_step; /* of a pass, and micro-batches of that step that are over */
    uint32_t first_micro;
    uint64_t first_number; /* of the run's micro-batches of a rank: where a pass begins */
    uint64_t pass_count;   /* micro-batches in a pass */
    uint32_t keep;
    stk_ns timeout_ns;
    double errors_masked;   /* the share that stops it */
    double errors_unusable; /* index: stream: of the records drawn so far */
    stk_reader *reader;     /* ranks.rank_count; NULL: on request */
    stk_wish *wish;         /* wish_count, in no order; NULL: not on request.  Guarded by the lock */
    uint32_t wish_count;
    uint64_t wished;        /* the last one's number.  Guarded too */
    stk_work **recent;      /* on request: what was given out and still has its slot, the oldest first, with a reference of the lane's.  Guarded too */
    uint32_t recent_count;  /* at most one a slot */
    stk_plan_scratch *scratch; /* of take: one thread at a time */
    stk_lazy_facts *lazy;      /* of take too; NULL but with index: stream */
    int dead_letter_fd; /* -1: none; written without the lock, by the thread that is settling, one line a write */

    /* Guarded by the lock. */
    bool taking;       /* a thread is inside take */
    bool starved;      /* its oldest unit that is ready waits for working memory */
    stk_work **window; /* by sequence % window_count; NULL: not there */
    uint32_t window_count;
    uint64_t head, taken; /* head: the oldest not yet delivered; [head, taken) are in the window */
    uint64_t ticketed;    /* the first whose units do not all have tickets */
    uint64_t slotted;     /* the first without a slot; on request, where that was given up, later ones may have theirs */
    uint64_t settled;     /* the first that is not accounted for: counters, dead letters, error budgets */
    bool settling;        /* a thread is writing dead letters */
    uint64_t wanted_end;  /* with readers: only those before it may be taken, for nobody has asked for more */
    uint64_t priority;    /* of the fetches of the pass's first micro-batch */
    uint32_t waiting;     /* readers that wait */
    uint64_t asked;       /* by the engine's count: when a reader began to wait, or was last served */
    stk_status failed;    /* <0: what every reader gets at `settled` */
    stk_error failure;
    stk_tickets tickets;
    stk_tickets ahead; /* on request: of what was only expected when its fetch began, and of what else has no room */
    size_t slots_held; /* slots in use, also those with readers */
    stk_set_count *set_count;
    uint64_t counted_pass; /* that they are of */
    stk_metrics metrics;   /* of what it has fetched and delivered */
} stk_lane;

/* A worker's counters, on their own cache lines; read by the metrics under the lock. */
typedef struct stk_worker {
    _Alignas(64) stk_engine *engine;
    pthread_t thread;
    bool started;
    stk_maker maker[STK_LANES];
    struct {
        stk_stage_metrics decode, transform, text, place;
    } done[STK_LANES]; /* published after each unit, under the lock */
} stk_worker;

struct stk_engine {
    stk_engine_home *home;
    stk_engine_ranks ranks;
    uint32_t *rank_list; /* what ranks.rank points to; or NULL */
    uint32_t lane_count;
    stk_lane lane[STK_LANES];
    stk_memory_plan memory;
    bool inline_workers;
    bool on_request;
    pid_t pid;
    stk_ns opened_ns;
    stk_source *source;
    stk_worker *worker; /* memory.workers: threads; or one a reader when inline */

    /* Guarded by home->lock. */
    bool stop;
    bool source_moved; /* something may be reaped */
    uint64_t asks;     /* counts what lanes' `asked` hold */
    size_t work_held;  /* working memory of units in make */
    size_t held_bytes, peak_bytes;
};

/* --- home.c --- */

/* For an engine whose lanes are open.  The reference is the engine's. */
stk_status stk_engine_home_create(stk_engine_home **out, stk_engine *engine, stk_error *err) STK_MUST_USE;
void stk_engine_home_release(stk_engine_home *home);

/* Wake the readers that wait, and whoever polls them.  With the lock held. */
void stk_engine_tell_readers(stk_engine_home *home);

/* On request: let go of what was given out the longest ago; false: there is none.  With the lock held. */
bool stk_lane_forget(stk_lane *lane);

/* --- lane.c --- */

/* Which micro-batches an engine serves. */
typedef struct stk_span {
    const stk_state *state; /* from there to the end; NULL: all */
    bool on_request;        /* any, by wishes */
    bool one;               /* only this one */
    uint64_t step;
    uint32_t micro;
} stk_span;

/* Open the run of a lane, find where it begins, and what it needs of memory.  What is not opened is as stk_lane_close takes it. */
stk_status stk_lane_open_run(stk_lane *lane, const stk_options *options, const stk_span *part, const stk_index_progress *progress,
                             stk_forecast *forecast, stk_error *err) STK_MUST_USE;
/* Then, with its share of the memory: window, tickets, readers. */
stk_status stk_lane_open(stk_lane *lane, stk_error *err) STK_MUST_USE;
void stk_lane_close(stk_lane *lane);

/* Which micro-batch of a rank comes behind a state (NULL: the first), counted over the run, and the state as this run has it.  Failure:
 * as opening there. */
stk_status stk_lane_place(const stk_lane *lane, const stk_state *state, uint64_t *number, stk_state *here, stk_error *err) STK_MUST_USE;

/* --- advance.c: with the lock held --- */

/* Do one piece of work, if any can be done now: true.  Returns with the lock held. */
bool stk_engine_advance(stk_engine *engine, stk_worker *worker);

/* What is made at a place of the window; NULL: nothing, or not yet. */
stk_work *stk_lane_made(const stk_lane *lane, uint64_t sequence);

/* Take a micro-batch out of the window; discard: nobody gets it, and its memory goes back. */
void stk_lane_take_out(stk_lane *lane, stk_work *work);
void stk_lane_discard(stk_lane *lane, stk_work *work);

/* Put what a reader has rewound past out of the window, as far as nobody is at it; the rest follows when it is finished. */
void stk_lane_drop_passed(stk_lane *lane, const stk_reader *reader);

/* Note what is held now for the peak. */
void stk_engine_note_memory(stk_engine *engine);

/* --- deliver.c --- */

/* Count a made micro-batch, and write down what of it is masked.  With the lock held, which is away in between. */
stk_status stk_lane_account(stk_lane *lane, const stk_work *work, stk_error *err) STK_MUST_USE;
/* Take an accounted one out of the window, for so many who get it.  With the lock held. */
stk_batch *stk_lane_give_out(stk_lane *lane, stk_work *work, unsigned references);

/* For whoever serves many readers from one thread: as stk_reader_next, without waiting: the micro-batch `index` of this rank, counted over the passes from where the engine began.  An
 * index may only rise; what lies between goes, as with a rewind.  After STK_AGAIN ready_fd tells when to ask again; waited_ns: since
 * the last call, for the time-out.  STK_ERR_KEEP is no lasting failure. */
stk_status stk_reader_poll(stk_reader *reader, uint64_t index, stk_batch **out, stk_ns waited_ns, stk_error *err) STK_MUST_USE;
/* Nobody waits for what was asked for any more. */
void stk_reader_unask(stk_reader *reader);
/* A reader that is behind, so that there is no memory for what this one waits for; NULL: that is not what it waits for. */
const stk_reader *stk_reader_behind(const stk_reader *reader);

/* --- */

/* Open an engine for one micro-batch of one rank: what `stoker replay` needs. */
stk_status stk_engine_open_one(stk_engine **out, const stk_options *options, uint64_t step, uint32_t rank,
                               uint32_t world, uint32_t micro, const stk_index_progress *progress, stk_error *err) STK_MUST_USE;

/* Open FILE for appending; NULL: none. */
stk_status stk_dead_letter_open(int *fd, const char *path, stk_error *err) STK_MUST_USE;

#endif
