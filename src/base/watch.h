/* watch.h - long work on several threads, which its owner sees going on and may stop.
 *
 * All threads of the work ask between two pieces of it.  The owner is asked on the thread that made the watch, and on no other; once it has had
 * enough, every thread is told so. */
#ifndef STK_BASE_WATCH_H
#define STK_BASE_WATCH_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stoker/status.h>

typedef struct stk_watch {
    bool (*report)(void *context, const char *of, const char *phase, uint64_t done, uint64_t total); /* NULL: nobody asks */
    void *context;
    pthread_t owner;
    stk_ns reported_ns; /* the owner's alone */
    atomic_bool stopped;
} stk_watch;

/* The calling thread becomes the owner's. */
void stk_watch_init(stk_watch *watch, bool (*report)(void *context, const char *of, const char *phase, uint64_t done, uint64_t total),
                    void *context);

/* Whether to go on: done of total pieces of a phase are behind us.  The owner hears of it some times a second.  NULL: yes. */
bool stk_watch_goes_on(stk_watch *watch, const char *of, const char *phase, uint64_t done, uint64_t total);

/* STK_ERR_INTERRUPTED once the owner has stopped the work; NULL: never. */
stk_status stk_watch_status(const stk_watch *watch, stk_error *err) STK_MUST_USE;

#endif
