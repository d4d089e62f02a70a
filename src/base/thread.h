/* thread.h - threads as the library starts them, and waits by the monotonic clock. */
#ifndef STK_BASE_THREAD_H
#define STK_BASE_THREAD_H

#include <pthread.h>

#include "base/clock.h"

/* Start a thread that takes no signals: these are the program's.  0, or an errno.  The fault point
 * thread-create. */
int stk_thread_start(pthread_t *thread, void *(*run)(void *context), void *context) STK_MUST_USE;

/* A condition for pthread_cond_timedwait until stk_timespec(a point in time of stk_now). */
void stk_condition_init(pthread_cond_t *condition);

static inline struct timespec stk_timespec(stk_ns at)
{
    return (struct timespec){.tv_sec = (time_t)(at / STK_S), .tv_nsec = (long)(at % STK_S)};
}

#endif
