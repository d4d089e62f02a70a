/* cache_room.h - how much a cache's folder holds, and who may still store; internal to the cache.
 *
 *     FOLDER/counts          one page, mapped by all processes: bytes in all, and by value
 *     FOLDER/tmp/V-NAME      being written, of its full size from the start; its writer holds a lock (flock) on it, so that
                           what can be locked was left by the dead
 *     FOLDER/V/aa/HASH       an entry of value V, 1 to 8; aa are the first digits of HASH.  (A level more would make a
                           folder for each of the first 65,536 entries: four times the time to fill it, measured)
 *
 * The folder is counted when the page is missing or from before a restart of the machine.  A process that ends in the
 * middle leaves the counts too high at most: taking comes before writing, giving back after removing. */
#ifndef STK_SOURCE_CACHE_ROOM_H
#define STK_SOURCE_CACHE_ROOM_H

#include "source/cache.h"

enum { STK_CACHE_PATH_BYTES = 48, STK_CACHE_HASH_DIGITS = 32 };

typedef struct stk_cache_counts {
    uint64_t magic;    /* written last */
    uint8_t boot[16];  /* of the machine's run that counted */
    uint64_t all_bytes;
    uint64_t value_bytes[STK_CACHE_VALUES + 1]; /* never too low, but for a moment: 0 means that no entry is there */
    uint64_t hand, hand_position; /* where the search for unused entries goes on: which folder, where in it */
} stk_cache_counts;

typedef struct stk_cache_room {
    int folder, counts_fd; /* -1: none */
    uint64_t max_bytes;
    stk_cache_counts *counts; /* mapped and shared, or own when the folder is read-only */
    stk_cache_counts own;
    uint64_t refusals, evicted; /* atomic */
    bool seek_unused;           /* atomic: the last search found some */
} stk_cache_room;

/* folder: an open directory, the room's from now on.  false with errno when nothing can be stored in it: then the room
 * is good for reading only. */
bool stk_cache_room_open(stk_cache_room *room, int folder, uint64_t max_bytes) STK_MUST_USE;
void stk_cache_room_close(stk_cache_room *room);

/* What a file of so many bytes takes of a disk. */
uint64_t stk_cache_blocks(uint64_t size_bytes);

/* Take room for an entry of value, lower ones being removed for it where needed; false: there is none. */
bool stk_cache_room_take(stk_cache_room *room, int value, uint64_t size_bytes);
void stk_cache_room_give_back(stk_cache_room *room, int value, uint64_t size_bytes);

/* An entry changes its value: add it to the new one before the rename, take it from the old one afterwards. */
void stk_cache_room_add(stk_cache_room *room, int value, uint64_t size_bytes);
void stk_cache_room_subtract(stk_cache_room *room, int value, uint64_t size_bytes);

/* Whether entries of this value may be there. */
bool stk_cache_room_has(const stk_cache_room *room, int value);

/* The folder was removed, or its counts, while in use. */
bool stk_cache_room_is_gone(const stk_cache_room *room);

#endif
