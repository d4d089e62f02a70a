/* places.c - folders, resolved once, and prefixes compared by whole names. */
#include "source/places.h"

#include <limits.h>
#include <stdlib.h>

struct stk_places {
    size_t count;
    char **folder; /* resolved, without a slash at the end: "" is the root */
};

static char *resolve(stk_str folder)
{
    char *const written = stk_strndup(STK_TAG_SOURCE, folder);
    if (!written) return NULL;
    char resolved[PATH_MAX];
    const char *const best = realpath(written, resolved) ? resolved : written;
    size_t length = strlen(best);
    while (length && best[length - 1] == '/') length--;
    char *const kept = stk_strndup(STK_TAG_SOURCE, (stk_str){best, length});
    stk_free(written);
    return kept;
}

stk_status stk_places_create(stk_places **out, const stk_str *folder, size_t count, stk_error *err)
{
    *out = NULL;
    stk_places *const places = stk_alloc(STK_TAG_SOURCE, sizeof *places);
    if (places) places->folder = stk_alloc_array(STK_TAG_SOURCE, count + 1, sizeof *places->folder);
    if (!places || !places->folder) goto no_memory;
    for (; places->count < count; places->count++) {
        places->folder[places->count] = resolve(folder[places->count]);
        if (!places->folder[places->count]) goto no_memory;
    }
    *out = places;
    return STK_OK;

no_memory:
    stk_places_destroy(places);
    return stk_fail(err, STK_ERR_NOMEM, "out of memory: a list of %zu folders", count);
}

void stk_places_destroy(stk_places *places)
{
    if (!places) return;
    for (size_t i = 0; i < places->count; i++) stk_free(places->folder[i]);
    stk_free(places->folder);
    stk_free(places);
}

bool stk_places_hold(const stk_places *places, const char *resolved)
{
    for (size_t i = 0; i < places->count; i++) {
        const size_t length = strlen(places->folder[i]);
        if (strncmp(resolved, places->folder[i], length) == 0 && resolved[length] == '/') return true;
    }
    return false;
}
