/* credential_process.h - the program that a profile names to print credentials. */
#ifndef STK_SOURCE_CREDENTIAL_PROCESS_H
#define STK_SOURCE_CREDENTIAL_PROCESS_H

#include "base/memory.h"

enum { STK_PROCESS_BYTES = 64 * 1024, STK_PROCESS_WORDS = 256 };

/* Run the words of command without a shell, in a process group of its own, and collect what it prints on standard
 * output (at most STK_PROCESS_BYTES, terminated) in out, which the caller has initialised and wipes.  Its standard error is
 * dropped, because it may hold secrets.  It is killed after limit_ms or when stop_fd becomes readable.
 * STK_ERR_OPTION: no program; STK_ERR_NETWORK: it failed, printed too much, or took too long; STK_ERR_INTERRUPTED. */
stk_status stk_process_run(stk_buffer *out, const char *command, int limit_ms, int stop_fd,
                           stk_error *err) STK_MUST_USE;

#endif
