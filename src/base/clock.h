/* clock.h - the monotonic clock. */
#ifndef STK_BASE_CLOCK_H
#define STK_BASE_CLOCK_H

#include <stoker/status.h>
#include <time.h>

static inline stk_ns stk_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (stk_ns)t.tv_sec * STK_S + t.tv_nsec;
}

#endif
