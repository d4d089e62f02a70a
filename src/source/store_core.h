/* store_core.h - what the files of the store share: loops, jobs, pieces, attempts; internal to store*.c.
 *
 * All of it but the inbox belongs to the loop's thread. */
#ifndef STK_SOURCE_STORE_CORE_H
#define STK_SOURCE_STORE_CORE_H

#include <pthread.h>

#include "base/clock.h"
#include "source/answer.h"
#include "source/backend.h"
#include "source/http.h"
#include "source/peers.h"
#include "source/sigv4.h"
#include "source/store.h"

enum {
    STK_PART_BYTES = 8 << 20,
    STK_PARTED_BYTES = 16 << 20, /* objects of this size are asked for in parts */
    STK_RESUME_BYTES = 256 << 10, /* less is fetched anew */
    STK_ERROR_ROOM_BYTES = 2048,  /* of an error body: code, message and region stand at its start */
    STK_ERROR_BODY_BYTES = 64 << 10, /* a longer one is cut off, with its connection */
    STK_UNMET = 4                 /* requests at once to a bucket that has answered none yet */
};

typedef struct stk_job stk_job;
typedef struct stk_piece stk_piece;
typedef struct stk_attempt stk_attempt;
typedef struct stk_carrier stk_carrier;
typedef struct stk_loop stk_loop;

typedef enum stk_job_kind { STK_JOB_GET, STK_JOB_LOOK, STK_JOB_LIST, STK_JOB_PUT } stk_job_kind;

/* A blocking call: its request's work. */
typedef struct stk_call {
    stk_job_kind kind;
    stk_str query;           /* of a list, encoded */
    stk_bytes upload;        /* of a put */
    char sha256[65];         /* of it */
    pthread_mutex_t lock;    /* guards done */
    pthread_cond_t change;
    bool done;
} stk_call;

/* Why a callback ended its exchange. */
typedef enum stk_stop {
    STK_STOP_NONE,
    STK_STOP_ENOUGH,  /* all that was wanted has come */
    STK_STOP_CONTENT, /* the answer is not to the question: another range, lengths that disagree */
    STK_STOP_CHANGED, /* not the object that the request's etag names */
    STK_STOP_RESTART, /* not the object that earlier pieces came from */
    STK_STOP_LIMIT,   /* more than fits */
    STK_STOP_LONG     /* an error body without end */
} stk_stop;

enum { STK_ATTEMPTS = 3 }; /* of a piece at once: of a late hundredth, a ten thousandth has a late hedge too */

/* One exchange of a piece. */
struct stk_attempt {
    stk_attempt *next; /* of the free ones */
    stk_piece *piece;
    stk_exchange *exchange;
    stk_ns started, first_byte, last_byte; /* 0: none yet */
    uint64_t generation; /* of the credentials that signed it; 0: none */
    uint64_t skip_bytes; /* of the body, before those that are wanted */
    bool is_hedge, is_head, asks_region, asks_witness, asks_checksums;
    bool accepted;       /* a good answer: the body goes to its place */
    stk_stop stop;
    uint64_t body_bytes; /* that came */
    unsigned size_class; /* of what was wanted when it was sent: its first byte is compared with those of its like */
    size_t room_bytes;
    uint8_t room[STK_ERROR_ROOM_BYTES];
    stk_answer answer;
};

typedef enum stk_piece_state { STK_PIECE_READY, STK_PIECE_FLYING, STK_PIECE_RESTING } stk_piece_state;

/* A range of an object that is asked for at once. */
struct stk_piece {
    stk_piece *next, *previous; /* of the ready ones, by priority, or of the free ones */
    stk_piece *after, *before;  /* of its job */
    stk_job *job;
    stk_piece_state state;
    uint64_t first, end;        /* in the object; end STK_UNKNOWN_BYTES: to its end */
    uint64_t got_bytes;
    int failures;               /* that failed */
    bool fresh;                 /* ask on a new connection */
    bool asks_witness;          /* ask first for another object of the bucket that could be read before */
    int hedges;                 /* further attempts that were due in this try, opened or not */
    stk_ns due;                 /* when the loop must look at it */
    int heap_at;                /* -1: never */
    stk_attempt *attempt[STK_ATTEMPTS]; /* the first of this try, and its hedges, which may outlive it */
};

/* A range that serves several requests (store_merge.c). */
struct stk_carrier {
    stk_carrier *next;    /* of the free ones */
    stk_request request;  /* for the range; without a buffer */
    stk_request *first;   /* those that are carried, by offset, linked by next */
};

struct stk_job {
    stk_job *next, *previous; /* of the live ones, or of the free ones */
    stk_loop *loop;
    stk_request *request;
    stk_carrier *carrier;     /* whose request that is; NULL: no merged range */
    stk_job_kind kind;
    stk_url url;              /* of the address, or of where a redirect led */
    char *location;           /* the text of url after a redirect; NULL: the request's address */
    stk_peer *peer;
    stk_ns started;
    uint64_t total, end;      /* of the object; where the wanted range ends: unknown before the first head */
    uint64_t next_first;      /* of the next part */
    char etag[STK_ETAG_BYTES];    /* to be sent as If-Match; "": any */
    char etag_is[STK_ETAG_BYTES]; /* of what came */
    bool parted, undivided;   /* asked for in parts; not to be, whatever its size */
    bool by_get, asks_region; /* a look by GET, because HEAD said too little; the next exchange asks where the bucket lies */
    int restarts, redirects, moves, clocks;
    int refusals;             /* 403 with a code, 404 without one; when the last one came */
    stk_ns refused_at;
    bool looks_changed;       /* it had another ETag than the request names, once */
    int etagless;             /* answers without an ETag */
    uint64_t refused_generation; /* of credentials, and the status of that answer; 0: none */
    int refused_status;
    stk_piece *pieces, own;   /* own is the first, and always there */
};

/* Of an object whose size is not known yet, what there is room for. */
static inline uint64_t stk_piece_wanted_bytes(const stk_piece *piece)
{
    return piece->end != STK_UNKNOWN_BYTES ? piece->end - piece->first : piece->job->request->capacity_bytes;
}

static inline bool stk_piece_is_asked(const stk_piece *piece)
{
    for (int i = 0; i < STK_ATTEMPTS; i++)
        if (piece->attempt[i]) return true;
    return false;
}

struct stk_loop {
    stk_store *store;
    pthread_t thread;
    bool has_thread;

    pthread_mutex_t lock; /* guards the next five */
    stk_request *inbox_first, *inbox_last;
    bool cancels, stop, credentials_changed;
    stk_source_metrics published;

    stk_http *http;
    stk_signer *signer;
    stk_peers *peers;
    stk_patience patience;
    stk_pace pace;
    stk_lateness lateness[STK_SIZE_CLASSES];
    stk_source_metrics metrics;
    uint64_t random;

    stk_request *waiting_first, *waiting_last; /* by priority, no job yet */
    stk_piece *ready_first, *ready_last;       /* by priority */
    stk_piece **heap;                          /* by due */
    int heap_count;
    stk_job *jobs, *free_jobs;
    stk_piece *free_pieces;
    stk_attempt *free_attempts;
    stk_carrier *free_carriers;
    int job_count, piece_count, in_flight;     /* made; made; attempts with an exchange */
    int waiting_count;
    bool awaits_credentials, closing;
    stk_request *finished_first, *finished_last;

    char url[16 * 1024], headers[STK_SIGN_BYTES];
};

struct stk_store {
    stk_source_config config;
    void (*finished)(void *context, stk_request *chain);
    void *context;
    pthread_mutex_t lock; /* guards the next four */
    stk_provider *provider; /* opened by the first s3:// request */
    bool provider_failed;
    stk_error provider_error;
    unsigned next_loop;
    int loop_count;
    stk_loop *loop;
};

/* --- store_queue.c --- */

void stk_waiting_enter(stk_loop *loop, stk_request *request);
void stk_waiting_leave(stk_loop *loop, stk_request *request); /* it is no longer without a job */

void stk_request_end(stk_loop *loop, stk_request *request); /* queue it for delivery; its status is set */
void stk_call_finish(stk_request *request);                 /* wake who waits for it */

/* --- store_provider.c --- */

stk_provider *stk_store_provider(stk_store *store, stk_error *err);

/* --- store_due.c --- */

/* When an attempt has waited too long, by what is known now. */
stk_ns stk_attempt_deadline(const stk_loop *loop, const stk_attempt *attempt);
/* When a piece is to be asked for once more; 0: it is not. */
stk_ns stk_piece_hedge_time(const stk_loop *loop, const stk_piece *piece);
/* Look at a flying piece again when the first of its deadlines is due; further bytes only move that back. */
void stk_piece_watch(stk_loop *loop, stk_piece *piece);

/* --- store_jobs.c --- */

/* Give a waiting request a job, which may fail at once.  False: there is none to give. */
bool stk_job_open(stk_loop *loop, stk_request *request);

/* End a job: stop its attempts, give everything back, queue its request for delivery. */
void stk_job_finish(stk_loop *loop, stk_job *job, stk_status status);
stk_status stk_job_fail(stk_loop *loop, stk_job *job, stk_status status, int code, const char *format, ...) STK_PRINTF(5, 6);

void stk_attempt_close(stk_loop *loop, stk_attempt *attempt); /* stop its exchange, if any, and give it back */
void stk_piece_ready(stk_loop *loop, stk_piece *piece);
void stk_piece_start(stk_loop *loop, stk_piece *piece); /* a ready one flies */
void stk_piece_due(stk_loop *loop, stk_piece *piece, stk_ns due); /* when to look at it */
void stk_piece_rest(stk_loop *loop, stk_piece *piece, stk_ns due);
void stk_piece_drop(stk_loop *loop, stk_piece *piece); /* close its attempts and take it from its job */

/* Queue the part that comes next, if the job has one and there is a piece for it. */
void stk_job_next_part(stk_loop *loop, stk_job *job);

/* Forget what came, and begin again with the first piece. */
void stk_job_restart(stk_loop *loop, stk_job *job, stk_ns pause_ns);

/* Point a job at an address: its own, or that of a redirect.  < 0: the job has failed. */
stk_status stk_job_aim(stk_loop *loop, stk_job *job, stk_str address);

/* --- store_merge.c --- */

/* Take a waiting request and those of the next ones that its range may be merged with out of the waiting ones.  NULL: none; it
 * waits on. */
stk_carrier *stk_carrier_open(stk_loop *loop, stk_request *request);
void stk_carrier_put(const stk_carrier *carrier, uint64_t at, stk_bytes bytes); /* at: in the object */
bool stk_carrier_cancelled(const stk_carrier *carrier); /* one of the carried is */

/* Its request is whole, and so are the carried; or each waits again, for itself. */
void stk_carrier_end(stk_loop *loop, stk_carrier *carrier);

/* --- store_ask.c --- */

/* Send a piece, as its first attempt or beside it.  STK_AGAIN: not now (credentials are on their way, no attempt is free); < 0: the
 * job has failed and is gone. */
stk_status stk_piece_launch(stk_loop *loop, stk_piece *piece, bool hedge) STK_MUST_USE;

/* The key of another object of a job's bucket that could be read before; empty: none is known. */
stk_str stk_job_witness(const stk_loop *loop, const stk_job *job);

/* --- store_answer.c: the events of the transport, and what follows from them --- */

extern const stk_http_events stk_store_events;
void stk_piece_retry(stk_loop *loop, stk_piece *piece, stk_retry kind, int64_t retry_after_s, const char *words);

#endif
