/* stated.h - a facts file: sizes of media that the records themselves do not state.
 *
 *     {"path": "img/1.jpg", "width": 640, "height": 480}        a line of it
 *
 *     facts file ─► pieces in parallel ─► sizes, sorted by the digest of their address ─► sidecar ─► looked up as records are parsed
 *
 * The parser of a record fills in what it does not state (media.c), so whoever asks for a medium finds the size as if the record had
 * stated it.  The table lies mapped, 24 bytes a medium, whatever the length of the addresses.
 *
 * Not here: finding the sidecar and deciding whether it fits (index.c). */
#ifndef STK_MANIFEST_STATED_H
#define STK_MANIFEST_STATED_H

#include "base/bytes.h"

/* One medium.  24 bytes, little-endian, as in the sidecar. */
typedef struct stk_stated_size {
    uint64_t high, low;           /* XXH3-128 of the resolved address: two media of one digest do not happen */
    uint32_t width_px, height_px; /* upright; 1 to INT32_MAX */
} stk_stated_size;
_Static_assert(sizeof(stk_stated_size) == 24, "a file format");

typedef struct stk_stated_sizes {
    const stk_stated_size *size; /* rising by high, then low; no two alike */
    uint64_t count;
    uint8_t digest[16];          /* of the bytes of the facts file */
} stk_stated_sizes;

/* Whether the address of a medium, resolved, has a size; the sizes are as they were if it has none. */
bool stk_stated_find(const stk_stated_sizes *sizes, stk_str address, uint32_t *width_px, uint32_t *height_px);

/* The order of the table. */
int stk_stated_compare(const stk_stated_size *a, const stk_stated_size *b);

#endif
