/* peers.h - what a loop has learned of each bucket and each host that it asks: one entry while a request needs it, and as long
 * afterwards as there is room.  One thread. */
#ifndef STK_SOURCE_PEERS_H
#define STK_SOURCE_PEERS_H

#include "source/pace.h"

enum { STK_PEER_NAME_BYTES = 320 };

typedef struct stk_peer {
    char name[STK_PEER_NAME_BYTES]; /* "bucket", or "https://host:port" */
    char region[64];                /* of a bucket, learned from a redirect; "": as configured */
    bool met;                       /* it has answered something */
    stk_ns read_at;                 /* when the last question that a bucket answered with an object was asked; 0: none */
    char witness[1025];             /* the key of an object that it gave; "": none */
    bool gives_etags, no_etags;     /* it has named the state of an object; it never does */
    bool no_checksums;              /* it does not take x-amz-checksum-mode */
    int64_t clock_offset_s;         /* its clock less ours */
    int in_flight;                  /* exchanges */
    stk_tokens tokens;

    int users;                      /* jobs: an entry without any may be given to another name */
    struct stk_peer *chain, *older, *newer;
} stk_peer;

typedef struct stk_peers stk_peers;

/* Room for count peers in use at once. */
stk_status stk_peers_create(stk_peers **out, int count, stk_error *err) STK_MUST_USE;
void stk_peers_destroy(stk_peers *peers);

/* The entry of a name; NULL: the name is too long, or count others are in use.  Give each back. */
stk_peer *stk_peers_take(stk_peers *peers, stk_str name);
void stk_peers_give_back(stk_peers *peers, stk_peer *peer);

#endif
