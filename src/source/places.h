/* places.h - the folders that media may lie in.
 *
 * Folders are resolved once, when the list is made; a file is compared by its resolved path, so that no symbolic link
 * leads out (architecture section 7). */
#ifndef STK_SOURCE_PLACES_H
#define STK_SOURCE_PLACES_H

#include "base/memory.h"

typedef struct stk_places stk_places; /* const after create, shared by all threads */

/* folder: count absolute paths; one that does not exist (yet) is kept as it is written. */
stk_status stk_places_create(stk_places **out, const stk_str *folder, size_t count, stk_error *err) STK_MUST_USE;
void stk_places_destroy(stk_places *places);

/* Whether a resolved path lies in one of the folders. */
bool stk_places_hold(const stk_places *places, const char *resolved);

#endif
