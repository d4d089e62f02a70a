/* fault.h - named faults for tests: one call site each, compiled out of releases.
 *
 * With -Dfaults=true, STK_FAULT=name:N lets the N-th call of a fault's site fail, and STK_FAULT=name:N+ that and
 * all later ones.  A sweep over N proves right codes, no leak, no hang. */
#ifndef STK_BASE_FAULT_H
#define STK_BASE_FAULT_H

#include <stdbool.h>

#define STK_FAULT_MAP(X)                                                                                   \
    X(STK_FAULT_ALLOC, "alloc")                                                                            \
    X(STK_FAULT_THREAD_CREATE, "thread-create")                                                            \
    X(STK_FAULT_FILE_OPEN, "file-open")                                                                    \
    X(STK_FAULT_FILE_READ, "file-read")                                                                    \
    X(STK_FAULT_FILE_READ_SHORT, "file-read-short")                                                        \
    X(STK_FAULT_FILE_WRITE, "file-write")                                                                  \
    X(STK_FAULT_FSYNC, "fsync")                                                                            \
    X(STK_FAULT_RENAME, "rename")                                                                          \
    X(STK_FAULT_MMAP, "mmap")                                                                              \
    X(STK_FAULT_CACHE_READ, "cache-read")                                                                  \
    X(STK_FAULT_CACHE_WRITE, "cache-write")                                                                \
    X(STK_FAULT_CACHE_LINK, "cache-link")                                                                  \
    X(STK_FAULT_DECODE_CRASH, "decode-crash")

typedef enum stk_fault_id {
#define STK_FAULT_ENUM(name, text) name,
    STK_FAULT_MAP(STK_FAULT_ENUM)
#undef STK_FAULT_ENUM
    STK_FAULT_COUNT
} stk_fault_id;

#ifdef STK_FAULTS
bool stk_fault(stk_fault_id id); /* true: fail here */
/* For a fault that follows what is worked on, not the count of calls: true where N is value. */
bool stk_fault_at(stk_fault_id id, unsigned long value);
/* For tests inside one process: let the nth call fail (0: none), and all later ones if forever. */
void stk_fault_set(stk_fault_id id, unsigned long nth, bool forever);
/* Calls of the site since then. */
unsigned long stk_fault_seen(stk_fault_id id);
#else
static inline bool stk_fault(stk_fault_id id)
{
    (void)id;
    return false;
}
static inline bool stk_fault_at(stk_fault_id id, unsigned long value)
{
    (void)id;
    (void)value;
    return false;
}
#endif

#endif
