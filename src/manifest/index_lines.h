/* index_lines.h - where the records of a manifest stand, and nothing else: all that `index: stream` knows before it starts.
 *
 * The bytes of the manifest are scanned once, in pieces over threads; no record is parsed.  It is fast enough that a killed scan begins anew:
 * there is no journal of it, only the lock. */
#ifndef STK_MANIFEST_INDEX_LINES_H
#define STK_MANIFEST_INDEX_LINES_H

#include "manifest/index_build.h"

/* Scan build->manifest and write the sidecar.  STK_ERR_MANIFEST naming file and line, STK_ERR_INTERRUPTED, STK_ERR_SYSTEM. */
stk_status stk_lines_build(const stk_build *build, stk_error *err) STK_MUST_USE;

#endif
