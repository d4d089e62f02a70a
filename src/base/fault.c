/* fault.c - counts the calls of each fault's site and says which one fails.  Empty in releases. */
#include "base/fault.h"

#ifdef STK_FAULTS
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static const char *const fault_names[] = {
#define FAULT_NAME(name, text) text,
    STK_FAULT_MAP(FAULT_NAME)
#undef FAULT_NAME
};

static atomic_ulong seen[STK_FAULT_COUNT], nth_of[STK_FAULT_COUNT];
static atomic_bool forever_of[STK_FAULT_COUNT];
static pthread_once_t environment_read = PTHREAD_ONCE_INIT;

static void read_environment(void)
{
    const char *const spec = getenv("STK_FAULT");
    const char *const colon = spec ? strrchr(spec, ':') : NULL;
    if (!colon) return;
    for (int id = 0; id < STK_FAULT_COUNT; id++) {
        if (strlen(fault_names[id]) != (size_t)(colon - spec) || strncmp(fault_names[id], spec, (size_t)(colon - spec)))
            continue;
        char *end;
        atomic_store(&nth_of[id], strtoul(colon + 1, &end, 10));
        atomic_store(&forever_of[id], *end == '+');
    }
}

void stk_fault_set(stk_fault_id id, unsigned long nth, bool forever)
{
    pthread_once(&environment_read, read_environment);
    atomic_store(&seen[id], 0);
    atomic_store(&nth_of[id], nth);
    atomic_store(&forever_of[id], forever);
}

unsigned long stk_fault_seen(stk_fault_id id)
{
    return atomic_load(&seen[id]);
}

bool stk_fault_at(stk_fault_id id, unsigned long value)
{
    pthread_once(&environment_read, read_environment);
    return value && atomic_load(&nth_of[id]) == value;
}

bool stk_fault(stk_fault_id id)
{
    pthread_once(&environment_read, read_environment);
    const unsigned long nth = atomic_load(&nth_of[id]);
    if (nth == 0) return false;
    const unsigned long count = atomic_fetch_add(&seen[id], 1) + 1;
    return count == nth || (count > nth && atomic_load(&forever_of[id]));
}
#else
typedef int stk_fault_unused; /* a translation unit must not be empty */
#endif
