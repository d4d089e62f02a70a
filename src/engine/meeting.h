/* meeting.h - where the processes of a run meet on a machine: a private folder, and in it a socket, a lock and a log of each run.
 *
 *     XDG_RUNTIME_DIR/stoker, or /tmp/stoker-UID where that is no folder    0700, ours, or refused
 *         RUN.sock     the engine listens here
 *         RUN.lock     held (flock) while an engine is started or ends
 *         RUN.log      its stderr
 *
 * An engine that ends takes all three away.  What one that was killed leaves behind, whoever starts the next engine takes away. */
#ifndef STK_ENGINE_MEETING_H
#define STK_ENGINE_MEETING_H

#include <stdbool.h>

#include <stoker/client.h>

#include "base/error.h"

typedef struct stk_meeting {
    char run[STK_RUN_NAME_MAX + 1];
    char folder[64], socket[128], lock[128], log[128];
} stk_meeting;

/* Find the places of a run and make the folder.  STK_ERR_USAGE for a name that is none (letters, digits, . _ -), STK_ERR_SYSTEM
 * for a folder that is not ours alone. */
stk_status stk_meeting_find(stk_meeting *meeting, const char *run, stk_error *err) STK_MUST_USE;

/* Take the lock, waiting for it until the deadline (STK_ERR_TIMEOUT; 0: not at all, which is STK_AGAIN). *fd is for stk_meeting_unlock. */
stk_status stk_meeting_lock(const stk_meeting *meeting, stk_ns deadline, int *fd, stk_error *err) STK_MUST_USE;
void stk_meeting_unlock(int fd);

/* A connection that does not block; STK_AGAIN: nobody listens. */
stk_status stk_meeting_connect(const stk_meeting *meeting, int *fd, stk_error *err) STK_MUST_USE;
/* With the lock held. */
stk_status stk_meeting_listen(const stk_meeting *meeting, int *fd, stk_error *err) STK_MUST_USE;

/* With the lock held: take away all of this run. */
void stk_meeting_clear(const stk_meeting *meeting);
/* And of other runs, whose engine is gone and whom nobody is starting. */
void stk_meeting_sweep(const stk_meeting *meeting);

/* The last lines of the log, in one line: "" when there is none. */
void stk_meeting_log_end(const stk_meeting *meeting, char text[160]);

#endif
