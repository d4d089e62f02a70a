/* places.h - where media may come from: folders, buckets or prefixes of them, hosts.
 *
 * Folders are resolved once, when the list is made; a file is compared by its resolved path, so that no symbolic link
 * leads out (architecture section 7).  Remote addresses are compared as text (schema/place.h); every redirect is asked
 * about anew by whoever follows it. */
#ifndef STK_SOURCE_PLACES_H
#define STK_SOURCE_PLACES_H

#include "base/memory.h"

typedef struct stk_places stk_places; /* const after create, shared by all threads */

/* place: count absolute paths, s3:// addresses or http(s)://host; a folder that does not exist (yet) is kept as it is
 * written. */
stk_status stk_places_create(stk_places **out, const stk_str *place, size_t count, stk_error *err) STK_MUST_USE;
void stk_places_destroy(stk_places *places);

/* Whether a resolved path lies in one of the folders. */
bool stk_places_hold(const stk_places *places, const char *resolved);

/* Whether a remote address (s3://bucket/key, http(s)://...) lies in one of the buckets, or its host is named. */
bool stk_places_hold_address(const stk_places *places, stk_str address);

#endif
