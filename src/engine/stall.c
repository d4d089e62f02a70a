/* stall.c - pauses for tests.  Empty in releases. */
#include "engine/stall.h"

#ifdef STK_FAULTS
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/permutation.h"

void stk_stall(const char *point)
{
    static atomic_uint_fast64_t calls;
    const char *const points = getenv("STK_STALL");
    if (!points || !strstr(points, point)) return;
    const uint64_t random = stk_mix64(atomic_fetch_add(&calls, 1));
    /* One call in four pauses, up to 2 ms. */
    if (random % 4 == 0) nanosleep(&(struct timespec){.tv_nsec = (long)(random / 4 % 2000000)}, NULL);
}
#else
typedef int stk_stall_unused; /* a translation unit must not be empty */
#endif
