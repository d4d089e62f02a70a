/* tiff_head.h - what the first directory of a TIFF says.
 *
 * Not here: rows of its samples (tiff_rows.h), decoding (tiff.c). */
#ifndef STK_IMAGE_TIFF_HEAD_H
#define STK_IMAGE_TIFF_HEAD_H

#include "image/codec.h"

enum { /* compressions */
       STK_TIFF_NONE = 1,
       STK_TIFF_CCITT_RLE = 2,
       STK_TIFF_CCITT_G3 = 3,
       STK_TIFF_CCITT_G4 = 4,
       STK_TIFF_LZW = 5,
       STK_TIFF_JPEG = 7,
       STK_TIFF_DEFLATE = 8,
       STK_TIFF_CCITT_RLE_WORDS = 32771,
       STK_TIFF_PACKBITS = 32773,
       STK_TIFF_THUNDER = 32809,
       STK_TIFF_OLD_DEFLATE = 32946,
       STK_TIFF_ZSTD = 50000,
};

/* The tags that matter here. */
#define STK_TIFF_TAG_MAP(X)                                                                                  \
    X(WIDTH, 256)                                                                                            \
    X(HEIGHT, 257)                                                                                           \
    X(BITS, 258)                                                                                             \
    X(COMPRESSION, 259)                                                                                      \
    X(PHOTOMETRIC, 262)                                                                                      \
    X(FILL_ORDER, 266)                                                                                       \
    X(STRIP_OFFSETS, 273)                                                                                    \
    X(ORIENTATION, 274)                                                                                      \
    X(SAMPLES, 277)                                                                                          \
    X(STRIP_ROWS, 278)                                                                                       \
    X(STRIP_BYTES, 279)                                                                                      \
    X(PLANAR, 284)                                                                                           \
    X(T4_OPTIONS, 292)                                                                                       \
    X(T6_OPTIONS, 293)                                                                                       \
    X(PREDICTOR, 317)                                                                                        \
    X(COLORS, 320)                                                                                           \
    X(TILE_WIDTH, 322)                                                                                       \
    X(TILE_HEIGHT, 323)                                                                                      \
    X(TILE_OFFSETS, 324)                                                                                     \
    X(TILE_BYTES, 325)                                                                                       \
    X(EXTRA_SAMPLES, 338)                                                                                    \
    X(SAMPLE_FORMAT, 339)                                                                                    \
    X(JPEG_TABLES, 347)                                                                                      \
    X(YCBCR_WEIGHTS, 529)                                                                                    \
    X(YCBCR_SUBSAMPLING, 530)                                                                                \
    X(BLACK_WHITE, 532)                                                                                      \
    X(XMP, 700)                                                                                              \
    X(MEDIA_PHOTO, 0xbc01)

typedef enum stk_tiff_tag {
#define STK_TIFF_TAG_ENUM(name, number) STK_TIFF_TAG_##name,
    STK_TIFF_TAG_MAP(STK_TIFF_TAG_ENUM)
#undef STK_TIFF_TAG_ENUM
        STK_TIFF_TAGS
} stk_tiff_tag;

/* One entry of the directory; its values are inside the file. */
typedef struct stk_tiff_entry {
    uint32_t type; /* 0: the directory has no such tag */
    uint64_t count, at, size_bytes;
} stk_tiff_entry;

/* What the samples of a pixel are. */
typedef enum stk_tiff_form {
    STK_TIFF_GREY,   /* 1, 2, 4 or 8 bits */
    STK_TIFF_GREY12, /* packed */
    STK_TIFF_GREY16, /* over 255 saturates, as in the next ones */
    STK_TIFF_SIGNED16,
    STK_TIFF_SIGNED32,
    STK_TIFF_FLOAT,
    STK_TIFF_PALETTE, /* 1, 2, 4 or 8 bits */
    STK_TIFF_RGB,     /* 8 or 16 bits: of 16 the high byte counts, as in the next one */
    STK_TIFF_CMYK,
    STK_TIFF_YCBCR, /* Pillow's own conversion: uncompressed only */
} stk_tiff_form;

typedef enum stk_tiff_alpha { STK_TIFF_OPAQUE, STK_TIFF_ALPHA, STK_TIFF_PREMULTIPLIED } stk_tiff_alpha;

typedef struct stk_tiff_head {
    bool big_endian, big_tiff, odd_magic;
    bool more_pictures; /* the directory names a next one that is not itself */
    uint64_t directory_at;
    stk_tiff_entry entry[STK_TIFF_TAGS];

    uint32_t width_px, height_px;
    uint32_t compression, photometric;
    bool reversed; /* bits of a byte run from the lowest */
    bool apart;    /* each sample in planes of its own */
    stk_tiff_form form;
    stk_tiff_alpha alpha;
    bool inverted;       /* 0 is white */
    bool subsampled;     /* YCbCr of a compression other than JPEG: blocks, as libtiff converts them */
    uint32_t bits;       /* of a sample */
    uint32_t samples;    /* stored of a pixel, in one plane when they are apart */
    uint32_t planes;     /* that count; 1 when they are not apart */
    uint8_t orientation; /* 0: no tag; 1..8; 255: a tag of no meaning */
    uint32_t across_h, across_v; /* of subsampled: pixels that share a chroma */

    bool tiled;
    uint32_t piece_width_px,
        piece_height_px; /* a strip or a tile; not more rows than the picture when a strip */
    uint32_t pieces_across, pieces_down;
    uint64_t row_bytes;   /* one row of the picture's width, of one plane */
    uint64_t piece_bytes; /* one piece of one plane, decoded */
} stk_tiff_head;

/* Read the first directory of bytes, which may be the first part of a file of total_bytes; STK_AGAIN as in a
 * probe.  What Pillow refuses, and what is not supported here, is refused. */
stk_status stk_tiff_head_read(stk_tiff_head *head, stk_bytes bytes, uint64_t total_bytes,
                              const stk_limits *limits, stk_reason *reason, stk_error *err) STK_MUST_USE;

/* Value number index of a whole-numbered entry, which the bytes hold; false: none, negative, no whole number.
 */
bool stk_tiff_value(const stk_tiff_head *head, stk_bytes bytes, stk_tiff_tag tag, uint64_t index,
                    uint64_t *value);

/* An upper bound of what decoding allocates. */
uint64_t stk_tiff_codec_bytes(const stk_tiff_head *head);

/* Is that more than a picture that passes through in small pieces is charged? */
bool stk_tiff_is_whole(const stk_tiff_head *head);

/* Rows of samples that tiff.c puts together itself (tiles, planes, blocks, reversed bits), or finds as they
 * are in the file. */
static inline bool stk_tiff_is_stored(const stk_tiff_head *head)
{
    return head->compression == STK_TIFF_NONE;
}

#endif
