/* cache.h - bytes of remote objects kept on a local disk: stored once per node, checked when read, shared by runs.
 *
 * What is there stays: an order that is shuffled in each epoch makes "least recently used" useless, and no choice of what to
 * keep beats keeping any part.  Where sets are drawn unequally, an entry of a higher value takes the place of lower ones;
 * what nobody has read for a week gives way to anything.
 *
 * Safe with several processes, and when one is killed at any moment: entries appear whole, by link; the total of all
 * processes is one shared page, and is taken before a byte is written, so that max_bytes is never passed.  A kill may
 * leave one file of each writing thread counted and not there, until the folder is counted anew (cache_room.h).
 *
 * A cache that cannot store goes on reading, one that cannot read finds nothing, and the metrics say why in words.
 * Calls are synchronous, of any thread, and allocate nothing after open.
 *
 * Not here: which requests are looked up, and in what order (source.c). */
#ifndef STK_SOURCE_CACHE_H
#define STK_SOURCE_CACHE_H

#include "source/source.h"

enum { STK_CACHE_VALUES = 8 }; /* values are 1 (least) to 8 (pinned) */

typedef struct stk_cache stk_cache;

typedef struct stk_cache_key {
    stk_str endpoint; /* scheme, host and port of the store */
    stk_str bucket;   /* empty for a URL, whose key is its path and query */
    stk_str key;
    stk_str etag;     /* with its quotes; empty: unknown */
    bool any_version; /* an unknown etag means whatever was stored as unknown; otherwise nothing is found or kept */
    uint64_t offset, size_bytes; /* what is asked for: 0 and UINT64_MAX, the whole object, or a range of it */
} stk_cache_key;

typedef struct stk_cache_found {
    size_t got_bytes;
    uint64_t total_bytes; /* of the whole object */
    char etag[STK_ETAG_BYTES]; /* of the object that was stored, "" unknown */
} stk_cache_found;

typedef struct stk_cache_metrics {
    uint64_t hits, misses, hit_bytes;
    uint64_t stored, stored_bytes;
    uint64_t refused;               /* not stored: there was no room */
    uint64_t evicted;               /* taken out for others */
    uint64_t broken;                /* found damaged, and taken out */
    uint64_t used_bytes, max_bytes; /* of all processes; each file counts in whole blocks of 4 KiB */
    char words[256];                /* why nothing is stored, or nothing found; "" when all is well */
} stk_cache_metrics;

/* folder is made, for this user alone (mode 0700), when it does not exist.
 *
 * STK_OK           *out is the caller's, a cache that works or one that says in its metrics why it does not
 * STK_ERR_OPTION   the folder belongs to another user, or others may write to it; *out is NULL
 * STK_ERR_NOMEM    *out is NULL */
stk_status stk_cache_open(stk_cache **out, const char *folder, uint64_t max_bytes, stk_error *err) STK_MUST_USE;
void stk_cache_close(stk_cache **cache);

/* STK_OK                found, whole and undamaged: *found and the buffer are set
 * STK_AGAIN             not found: fetch it.  The buffer may have been written to
 * STK_ERR_MEDIA_LIMIT   found, and larger than capacity_bytes; found->total_bytes is set
 *
 * An entry of a lower value than this one rises to it. */
stk_status stk_cache_read(stk_cache *cache, const stk_cache_key *key, int value, uint8_t *buffer, size_t capacity_bytes,
                          stk_cache_found *found) STK_MUST_USE;

/* Keep what was fetched for key, if there is room.  etag: of the object that came; "" unknown; a longer one than
 * STK_ETAG_BYTES holds is not kept. */
void stk_cache_write(stk_cache *cache, const stk_cache_key *key, int value, stk_bytes bytes, uint64_t total_bytes,
                     stk_str etag);

void stk_cache_get_metrics(stk_cache *cache, stk_cache_metrics *out);

#endif
