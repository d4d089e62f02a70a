/* index_recheck.h - look again at media that could not be used: files appear, are repaired, get their permissions. */
#ifndef STK_MANIFEST_INDEX_RECHECK_H
#define STK_MANIFEST_INDEX_RECHECK_H

#include "manifest/index_chunk.h"

/* Whether the part names any medium that could not be used. */
bool stk_recheck_worthwhile(const stk_index_view *view);

/* Ask anew for the media that are not as they were.  *changed: path now holds a new sidecar.  The caller holds the lock. */
stk_status stk_recheck(const stk_index_spec *spec, const stk_index_view *view, stk_str manifest, const char *path,
                       bool *changed, stk_index_work *work, stk_error *err) STK_MUST_USE;

#endif
