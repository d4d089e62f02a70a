/* parallel.c - start, take part, join. */
#include "base/parallel.h"

#include <pthread.h>
#include <signal.h>

#include "base/fault.h"

enum { THREADS_MAX = 64 };

typedef struct job {
    void (*work)(void *context);
    void *context;
} job;

static void *run(void *argument)
{
    const job *const j = argument;
    pthread_setname_np(pthread_self(), "stk-plan");
    j->work(j->context);
    return NULL;
}

void stk_parallel(uint32_t most, void (*work)(void *context), void *context)
{
    pthread_t thread[THREADS_MAX];
    job j = {work, context};
    uint32_t started = 0;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (started + 1 < most && started < THREADS_MAX) {
        if (stk_fault(STK_FAULT_THREAD_CREATE) || pthread_create(&thread[started], NULL, run, &j)) break;
        started++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    work(context);
    for (uint32_t i = 0; i < started; i++) pthread_join(thread[i], NULL);
}
