/* orientation.h - which way up a picture is, from the places where Pillow looks (spec-qwen3vl.md
 * section 1.1).
 *
 * The container's own code finds the blocks; here they are read.  A block that is broken says nothing: no
 * input makes these functions fail. */
#ifndef STK_IMAGE_ORIENTATION_H
#define STK_IMAGE_ORIENTATION_H

#include "base/bytes.h"

/* An EXIF block, which a JPEG may cut into several segments: they are read as one. */
enum { STK_EXIF_PIECES = 8 };
typedef struct stk_exif {
    stk_bytes piece[STK_EXIF_PIECES];
    size_t piece_count;
} stk_exif;

/* What a picture says of its orientation, in the order in which it is believed. */
typedef struct stk_orientation_sources {
    uint8_t stated; /* by the container's own tag; 0: none, over 8: it means nothing.  Then the others are not read */
    stk_exif exif; /* piece_count 0: none */
    stk_bytes
        profile;   /* PNG text "Raw profile type exif"; data NULL: none.  Read when there is no EXIF block */
    stk_bytes xmp; /* data NULL: none.  Read when the block above has no such tag */
} stk_orientation_sources;

/* 1..8; 1 when nothing says otherwise.  *broken: a block could not be read to its end, or has its head twice. */
uint8_t stk_orientation_find(const stk_orientation_sources *sources, bool *broken);

#endif
