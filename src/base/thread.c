/* thread.c - threads without signals, conditions of the monotonic clock. */
#include "base/thread.h"

#include <errno.h>
#include <signal.h>

#include "base/fault.h"

int stk_thread_start(pthread_t *thread, void *(*run)(void *context), void *context)
{
    if (stk_fault(STK_FAULT_THREAD_CREATE)) return EAGAIN;
    /* A thread has the mask of whoever creates it, from its first instruction on. */
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int code = pthread_create(thread, NULL, run, context);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return code;
}

void stk_condition_init(pthread_cond_t *condition)
{
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(condition, &monotonic);
    pthread_condattr_destroy(&monotonic);
}
