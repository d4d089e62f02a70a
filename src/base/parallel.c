/* parallel.c - start, take part, join. */
#include "base/parallel.h"

#include "base/thread.h"

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
    while (started + 1 < most && started < THREADS_MAX) {
        if (stk_thread_start(&thread[started], run, &j)) break;
        started++;
    }
    work(context);
    for (uint32_t i = 0; i < started; i++) pthread_join(thread[i], NULL);
}
