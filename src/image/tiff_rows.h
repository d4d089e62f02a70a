/* tiff_rows.h - rows of a TIFF's samples as Pillow sees them. */
#ifndef STK_IMAGE_TIFF_ROWS_H
#define STK_IMAGE_TIFF_ROWS_H

#include "image/tiff_head.h"

/* How a row becomes bytes of one or three channels. */
typedef struct stk_tiff_converter {
    const stk_tiff_head *head;
    bool low_first; /* the samples' bytes: those of libtiff are the machine's */
    bool on_white;  /* else alpha is dropped */
    uint8_t palette[256][3];
} stk_tiff_converter;

uint32_t stk_tiff_channels(const stk_tiff_head *head);

/* width_px pixels from the rows of the planes that count. */
void stk_tiff_convert(const stk_tiff_converter *converter, uint8_t *out, const uint8_t *const plane[4]);

#endif
