/* unpack.h - a manifest that is compressed, as a plain file that can be mapped and read at any place.
 *
 * A manifest is unpacked once, into the folder of its index (docs/index-format.md):
 *
 *     train.jsonl.gz.stoker-unpacked-91c4d0aa0e5f7c19   the text; the number is of the compressed bytes
 *     train.jsonl.gz.stoker-source                      the receipt: of which bytes it is, and how long it must be
 *
 * What is cut off, damaged, or followed by something else is refused as a whole: the end of readable bytes is never taken
 * for the end of the data. */
#ifndef STK_MANIFEST_UNPACK_H
#define STK_MANIFEST_UNPACK_H

#include "manifest/index.h"

typedef enum stk_packing { STK_PACKING_NONE, STK_PACKING_GZIP, STK_PACKING_ZSTD } stk_packing;

/* What the first bytes of a file say; a name says nothing. */
stk_packing stk_packing_of(const uint8_t *data, size_t size_bytes);

/* Find the plain bytes of a manifest: *out is a path, the caller's (stk_free): of the manifest itself when it is not
 * compressed, else of what was unpacked, now or before, by whichever process.  One process unpacks, the others wait.
 * file: where its bytes are, of one on a store its copy, else path.  folder: of what is made (NULL: beside it).
 * spec: name, mode and progress count.  Memory does not grow with the file.
 *
 * Failure, with *out NULL: STK_ERR_MANIFEST naming the manifest (not to be read, broken, over 1,000 times as large as its
 * compressed bytes), STK_ERR_INDEX (mode is require, and it was not unpacked), STK_ERR_INTERRUPTED, STK_ERR_SYSTEM (no
 * room, a folder that cannot be written), STK_ERR_NOMEM. */
stk_status stk_unpack(char **out, const stk_index_spec *spec, const char *path, const char *file, const char *folder,
                      stk_error *err) STK_MUST_USE;

#endif
