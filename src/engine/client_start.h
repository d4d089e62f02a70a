/* client_start.h - starting the engine process of a run, for a client. */
#ifndef STK_ENGINE_CLIENT_START_H
#define STK_ENGINE_CLIENT_START_H

#include "engine/meeting.h"

/* A connection to the engine of a run, which is started if nobody listens.  The command is STK_COMMAND, else `stoker` beside this
 * library, else the one that PATH finds. */
stk_status stk_client_connect(const stk_meeting *meeting, int *fd, stk_error *err) STK_MUST_USE;

#endif
