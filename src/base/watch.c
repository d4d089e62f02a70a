/* watch.c - one flag, which the owner's thread sets. */
#include "base/watch.h"

#include "base/clock.h"
#include "base/error.h"

enum { REPORT_EVERY_NS = 200 * (int)STK_MS };

void stk_watch_init(stk_watch *watch, bool (*report)(void *context, const char *of, const char *phase, uint64_t done, uint64_t total),
                    void *context)
{
    watch->report = report;
    watch->context = context;
    watch->owner = pthread_self();
    watch->reported_ns = stk_now();
    atomic_init(&watch->stopped, false);
}

bool stk_watch_goes_on(stk_watch *watch, const char *of, const char *phase, uint64_t done, uint64_t total)
{
    if (!watch || !watch->report) return true;
    if (atomic_load(&watch->stopped)) return false;
    if (!pthread_equal(pthread_self(), watch->owner)) return true;
    const stk_ns now = stk_now();
    if (now - watch->reported_ns < REPORT_EVERY_NS) return true;
    watch->reported_ns = now;
    if (watch->report(watch->context, of, phase, done, total)) return true;
    atomic_store(&watch->stopped, true);
    return false;
}

stk_status stk_watch_status(const stk_watch *watch, stk_error *err)
{
    if (!watch || !atomic_load(&watch->stopped)) return STK_OK;
    return stk_fail(err, STK_ERR_INTERRUPTED, "stopped while the run was planned");
}
