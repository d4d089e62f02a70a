/* twins.h - requests for the same bytes at the same time: one asks, those that come later follow it; internal to source/.
 *
 * A table of what the store is asked for.  It has no lock: its owner's guards it, and `next`, `leader`, `followers` of the requests. */
#ifndef STK_SOURCE_TWINS_H
#define STK_SOURCE_TWINS_H

#include "source/source.h"

enum { STK_TWIN_SLOTS = 1024 };

typedef struct stk_twins {
    stk_request *slot[STK_TWIN_SLOTS]; /* the one that asked last for what is hashed so; NULL: none */
} stk_twins;

/* True: another asks for the same, as urgently, and the request follows it.  False: it is to be asked for. */
bool stk_twins_follow(stk_twins *twins, stk_request *request);

/* A request is no longer under way; those that followed it, linked by next. */
stk_request *stk_twins_part(stk_twins *twins, stk_request *leader);

/* A request does not follow any more. */
void stk_twins_leave(stk_request *follower);

/* Give a follower what its leader got, whatever that is. */
void stk_twins_copy(stk_request *follower, const stk_request *leader);

#endif
