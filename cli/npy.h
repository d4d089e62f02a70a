/* npy.h - reading NumPy's .npy files, item by item: what a dump is made of, and what other programs write beside it. */
#ifndef STOKER_CLI_NPY_H
#define STOKER_CLI_NPY_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum { NPY_DIMS_MAX = 8, NPY_WORDS = 200 };

/* An open array, at its first item. */
typedef struct npy {
    FILE *file;
    char kind;         /* b, i, u, f: as NumPy's */
    size_t item_bytes; /* 1, 2, 4, 8 */
    int ndim;
    uint64_t shape[NPY_DIMS_MAX], count; /* items */
} npy;

/* False: words say why, and nothing is open.  The file has all items that its header tells of. */
bool npy_open(npy *array, const char *path, char words[NPY_WORDS]);
void npy_close(npy *array);

/* Read up to `most` items, in C order; how many there were. */
size_t npy_read(npy *array, void *items, size_t most);

/* One item as people write it.  bfloat16: how two unsigned bytes are to be read. */
void npy_text(const npy *array, const void *item, bool bfloat16, char text[40]);

/* "int64 [2, 96]"; and the place of an item, "[1, 17]". */
void npy_form_text(const npy *array, char text[200]);
void npy_place_text(const npy *array, uint64_t at, char text[200]);

#endif
