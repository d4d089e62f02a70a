/* quarantine.h - pictures that crash a decoder: found by what was in work when a process died.
 *
 * Each thread that decodes writes what it works on into a small shared file (the log), which a crash leaves behind.
 * Who opens the same data next finds the log of a dead process, and holds what it names as suspect: it is decoded alone
 * in a child process first, when its turn comes.  What kills the child too is noted for good, and masked from then on
 * (architecture section 7); what does not was innocent.  A trial that ends by no fault of the picture, by a signal from outside or standing
 * still, is made again, and says nothing about the picture at last.  One that computes without end is killed, and noted with SIGALRM (14)
 * when all trials end so; SIGBUS and an exit status count in the same way.
 *
 *     STEM.stoker-work-0 ... -63   a log each, locked by its process; gone when its last cell is left
 *     STEM.stoker-crashed          text, a picture a line: key, signal, address; delete it to try them again
 *
 * In a folder that cannot be written, or on a full disk, no log is kept, and a crash stays a crash.  All is thread-safe. */
#ifndef STK_ENGINE_QUARANTINE_H
#define STK_ENGINE_QUARANTINE_H

#include "base/clock.h"
#include "base/memory.h"

typedef struct stk_quarantine stk_quarantine;

#define STK_QUARANTINE_ALONE_NS (40 * STK_S)

/* stem: path that the names above begin with; alone_ns: how long a trial may compute.  Nothing is opened before the first enter. */
stk_status stk_quarantine_create(stk_quarantine **out, const char *stem, stk_ns alone_ns, stk_error *err) STK_MUST_USE;
void stk_quarantine_destroy(stk_quarantine *quarantine); /* NULL is fine; all cells have been left */

/* A thread's place in the log, to be left by stk_quarantine_leave.  NULL: none is kept; the calls below take that. */
typedef struct stk_quarantine_cell stk_quarantine_cell;
stk_quarantine_cell *stk_quarantine_enter(stk_quarantine *quarantine) STK_MUST_USE;
void stk_quarantine_leave(stk_quarantine *quarantine, stk_quarantine_cell *cell);

/* What identifies a picture: where it lies, and which bytes were there when it was looked at. */
uint64_t stk_quarantine_key(stk_str address, uint64_t size_bytes, uint64_t mtime_ns);

/* Note that work on a picture begins, and try it in a child process if it is suspect.
 *
 * alone   does the work and writes nothing that other processes see; it runs in a child, which then ends.
 * true    go on, and call stk_quarantine_end afterwards.
 * false   the picture crashes its decoder: do not touch it. */
bool stk_quarantine_begin(stk_quarantine *quarantine, stk_quarantine_cell *cell, uint64_t key, stk_str address,
                          void (*alone)(void *context), void *context) STK_MUST_USE;
void stk_quarantine_end(stk_quarantine_cell *cell);

#endif
