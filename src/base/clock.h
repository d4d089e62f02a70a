/* clock.h - the monotonic clock, and the CPU time of the calling thread. */
#ifndef STK_BASE_CLOCK_H
#define STK_BASE_CLOCK_H

#include <stoker/status.h>
#include <time.h>

static inline stk_ns stk_clock_of(clockid_t id)
{
    struct timespec t;
    clock_gettime(id, &t);
    return (stk_ns)t.tv_sec * STK_S + t.tv_nsec;
}

static inline stk_ns stk_now(void)
{
    return stk_clock_of(CLOCK_MONOTONIC);
}

static inline stk_ns stk_thread_cpu(void)
{
    return stk_clock_of(CLOCK_THREAD_CPUTIME_ID);
}

#endif
