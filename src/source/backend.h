/* backend.h - what a thread of the source calls for one request; internal to source/. */
#ifndef STK_SOURCE_BACKEND_H
#define STK_SOURCE_BACKEND_H

#include "source/source.h"

/* Read request once.  Sets got_bytes, total_bytes, mtime_ns and, on failure, error.
 * STK_AGAIN: a fault that comes and goes (error says which): try again after a pause. */
stk_status stk_local_read(stk_request *request);
stk_status stk_data_uri_read(stk_request *request);

static inline bool stk_request_cancelled(const stk_request *request)
{
    return __atomic_load_n(&request->cancelled, __ATOMIC_RELAXED) != 0;
}

#endif
