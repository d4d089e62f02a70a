/* client.h - batches from an engine process: the twin of stk_loader for trainers of several processes (docs/engine-process.md).
 *
 * One engine process serves all ranks of a run on a machine.  The first client starts it, the others join; it ends some seconds
 * after the last has gone.  Batches are views into memory that is shared, mapped read-only: nothing is copied. */
#ifndef STOKER_CLIENT_H
#define STOKER_CLIENT_H

#include <stoker/loader.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct stk_client stk_client;

enum { STK_RUN_NAME_MAX = 48 };

/* The name of a run: the option `run`, else the launcher's id (torchrun, SLURM), else "".  STK_ERR_USAGE for an option that is no name
 * (1 to 48 letters, digits, '.', '_' and '-', no dot in front). */
STK_API STK_MUST_USE stk_status stk_run_name(const stk_options *options, char name[STK_RUN_NAME_MAX + 1], stk_error *err);

/* Which batches a client gets.  world, node_ranks and readers are the same for all clients of a run. */
typedef struct stk_attach {
    const char *run;            /* names the engine of a job; NULL: the option `run`, else the launcher's id (torchrun, SLURM), else refused */
    const char *split;          /* "train" or "eval"; NULL: train */
    uint32_t rank, world;       /* data-parallel */
    const uint32_t *node_ranks; /* all data-parallel ranks of this machine, in any order; NULL: only `rank` */
    uint32_t node_rank_count;
    uint32_t readers;           /* processes that read this rank's micro-batches (tensor, pipeline siblings); 0 is 1 */
    const char *const *fields;  /* wanted; NULL: all */
    uint32_t field_count;
    /* Called several times a second while open waits, with what it waits for; false gives up (STK_ERR_INTERRUPTED).  May be NULL. */
    bool (*waiting)(void *context, const char *words);
    void *context;
} stk_attach;

/* Attach to the engine of a run, starting it where there is none, and wait until it has opened its data (as stk_engine_open, whose
 * failures these are).  state: where the client goes on; NULL: the beginning.  Of `eval` each client that is opened begins a pass.
 *
 * All processes that read a rank get the same micro-batches, each in its own time; `keep` is what they hold together at most, and the
 * one that is furthest behind counts too.  Options, attach and state are copied. */
STK_API STK_MUST_USE stk_status stk_client_open(stk_client **out, const stk_options *options, const stk_attach *attach, const stk_state *state,
                                                stk_error *err);

/* As stk_reader_next.  When the engine has ended in the middle, it is started again and goes on where this client is: the same bytes.
 * Batches that are out stay valid.  One thread at a time calls a client, but for its metrics. */
STK_API STK_MUST_USE stk_status stk_client_next(stk_client *client, stk_batch **out, stk_ns timeout_ns, stk_error *err);

/* The state after the last micro-batch that was delivered. */
STK_API void stk_client_state(stk_client *client, stk_state *state);
/* Those of the engine's split; zeros when it does not answer within a second.  Any thread, also while another waits for a batch. */
STK_API void stk_client_metrics(stk_client *client, stk_metrics *metrics);
/* Exact numbers of the whole run: of micro-batches of a rank, and of steps. */
STK_API uint64_t stk_client_count(const stk_client *client);
STK_API uint64_t stk_client_step_count(const stk_client *client);
/* Back to where the client was opened, as stk_reader_rewind.  Returns at once. */
STK_API STK_MUST_USE stk_status stk_client_rewind(stk_client *client, stk_error *err);
/* Leave; batches that are out stay valid.  No other call may be under way.  Sets the pointer to NULL. */
STK_API void stk_client_close(stk_client **client);

/* --- the engine process itself: `stoker serve` --- */

typedef struct stk_server stk_server;

typedef struct stk_serve {
    const char *run;
    const stk_options *options; /* that clients have to have; NULL: those of the first client */
    const char *node_ranks;     /* with options: such as "0-3,8"; NULL: all of the world */
    uint32_t world, readers;    /* with options */
    stk_ns linger_ns;  /* how long it stays when nobody is here */
    bool waits_first;  /* for its first client without limit */
    bool (*stopped)(void *context); /* asked several times a second; may be NULL */
    void *context;
} stk_serve;

/* From when it returns, clients can connect; nothing runs yet, and there is no thread. */
STK_API STK_MUST_USE stk_status stk_server_open(stk_server **out, const stk_serve *serve, stk_error *err);
/* Serve until nobody has been here for a while (STK_OK), or it is stopped (STK_ERR_INTERRUPTED). */
STK_API STK_MUST_USE stk_status stk_server_run(stk_server *server, stk_error *err);
STK_API void stk_server_close(stk_server **server);

#ifdef __cplusplus
}
#endif
#endif
