/* parallel.h - the same work on several threads at once, until it is done. */
#ifndef STK_BASE_PARALLEL_H
#define STK_BASE_PARALLEL_H

#include <stdint.h>

/* Run work(context) on the caller's thread and on up to most - 1 more, and wait for all of them.  work claims what is left to do from context, so that
 * fewer threads, where no more are to be had, do the same.  The threads take no signals: these are the program's. */
void stk_parallel(uint32_t most, void (*work)(void *context), void *context);

#endif
