/* places.c - folders, resolved once, and prefixes compared by whole names; buckets and hosts as they are written. */
#include "source/places.h"

#include <limits.h>
#include <stdlib.h>

#include "schema/place.h"

struct stk_places {
    size_t count;
    char **place; /* a folder resolved, without a slash at the end: "" is the root; what is remote as it was given */
};

static char *resolve(stk_str folder)
{
    if (stk_address_is_remote(folder)) return stk_strndup(STK_TAG_SOURCE, folder);
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

stk_status stk_places_create(stk_places **out, const stk_str *place, size_t count, stk_error *err)
{
    *out = NULL;
    stk_places *const places = stk_alloc(STK_TAG_SOURCE, sizeof *places);
    if (places) places->place = stk_alloc_array(STK_TAG_SOURCE, count + 1, sizeof *places->place);
    if (!places || !places->place) goto no_memory;
    for (; places->count < count; places->count++) {
        places->place[places->count] = resolve(place[places->count]);
        if (!places->place[places->count]) goto no_memory;
    }
    *out = places;
    return STK_OK;

no_memory:
    stk_places_destroy(places);
    return stk_fail(err, STK_ERR_NOMEM, "out of memory: a list of %zu places", count);
}

void stk_places_destroy(stk_places *places)
{
    if (!places) return;
    for (size_t i = 0; i < places->count; i++) stk_free(places->place[i]);
    stk_free(places->place);
    stk_free(places);
}

bool stk_places_hold(const stk_places *places, const char *resolved)
{
    for (size_t i = 0; i < places->count; i++) {
        const size_t length = strlen(places->place[i]);
        if (strncmp(resolved, places->place[i], length) == 0 && resolved[length] == '/') return true;
    }
    return false;
}

bool stk_places_hold_address(const stk_places *places, stk_str address)
{
    for (size_t i = 0; i < places->count; i++)
        if (stk_place_holds(stk_str_of(places->place[i]), address)) return true;
    return false;
}
