/* index_file.h - one sidecar: its form on disk (docs/index-format.md), a checked view of it, and its writer.
 *
 *     header 128 │ record facts 56 n, or text facts or sizes 24 n │ media facts 48 m │ words 256 e │ ETags │ seal 32
 *
 * Little-endian, as it lies in memory.  Nothing is believed before it is checked: a sidecar is as hostile as any file. */
#ifndef STK_MANIFEST_INDEX_FILE_H
#define STK_MANIFEST_INDEX_FILE_H

#include <sys/stat.h>

#include "base/file.h"
#include "manifest/stated.h"
#include "schema/facts.h"

/* A change of the form, or of what facts mean, is a new version: older sidecars are then built anew. */
enum { STK_INDEX_VERSION = 3, STK_INDEX_WORDS_PER_REASON = 3, STK_INDEX_REASON_COUNT = 64 };

typedef enum stk_index_part {
    STK_INDEX_MEDIA,
    STK_INDEX_TEXT,
    STK_INDEX_LINES, /* where records stand, and no more: record facts with all else zero */
    STK_INDEX_SIZES, /* of a facts file (stated.h): sizes in the place of records */
    STK_INDEX_PARTS
} stk_index_part;

enum { STK_INDEX_DECODED = 1u << 0 }; /* every medium has been decoded, not only its header */

/* What the facts of a part follow from. */
typedef struct stk_index_key {
    uint8_t rules_digest[16], manifest_digest[16];
    uint64_t manifest_bytes;
} stk_index_key;

/* When these are the manifest's, its bytes are taken to be the same; 0: not to be relied on. */
typedef struct stk_index_stamp {
    uint64_t mtime_ns, inode;
} stk_index_stamp;

/* Of a file just looked at; 0 when it changed so lately that another change could leave its time as it is. */
stk_index_stamp stk_index_stamp_of(const struct stat *info);

/* Where a file that belongs to a manifest (or to one on a store, whose address is its name) lies: MANIFEST.stoker-SUFFIX beside it, or in index_dir (NULL: none) under a name
 * that also tells manifests of one name apart. */
stk_status stk_index_sidecar_path(char path[4096], const char *index_dir, const char *manifest, const char *suffix,
                                  stk_error *err) STK_MUST_USE;

typedef struct stk_index_header {
    char magic[8];
    uint32_t version, header_bytes;
    uint64_t file_bytes;
    stk_index_key key;
    uint64_t record_count, media_count, words_count, blank_lines;
    uint32_t flags, unused;
    stk_index_stamp stamp; /* outside the checksum: renewed in place when only the time of the manifest changed */
    uint64_t etag_bytes; /* a multiple of 8: zeros follow the last */
} stk_index_header;
_Static_assert(sizeof(stk_index_header) == 128, "a file format");

/* Why a record is not usable, in words, for the first few of each reason. */
typedef struct stk_index_note {
    uint64_t record_index;
    uint32_t reason, unused;
    char message[240]; /* with a NUL */
} stk_index_note;
_Static_assert(sizeof(stk_index_note) == 256, "a file format");

typedef struct stk_index_seal {
    uint8_t content_digest[16]; /* of the media part: XXH3-128 of what the plan sees, without times */
    uint64_t unused;
    uint64_t checksum;          /* XXH3-64 of all before it, the stamp taken as zeros */
} stk_index_seal;
_Static_assert(sizeof(stk_index_seal) == 32, "a file format");

typedef struct stk_index_view {
    const stk_index_header *header;
    const stk_record_facts *record; /* media part, lines */
    const stk_media_facts *media;
    const stk_text_facts *text;     /* text part */
    const stk_stated_size *size;    /* sizes */
    const stk_index_note *note;
    const uint8_t *etag;            /* header->etag_bytes */
    const stk_index_seal *seal;
} stk_index_view;

/* Check bytes (8-byte aligned) and lay a view over them.  Failure: STK_ERR_INDEX, and what is wrong with them. */
stk_status stk_index_view_check(stk_index_view *view, stk_index_part part, stk_bytes bytes, stk_error *err) STK_MUST_USE;

/* The checksum that bytes of a sidecar should have; at least a header and a seal long. */
uint64_t stk_index_checksum(stk_bytes bytes);

/* XXH3-128 in canonical form. */
void stk_index_hash(uint8_t digest[16], const void *data, size_t size_bytes);

/* Writing one: open, the sections in the order of the file and each in any number of pieces, commit.  After a failure of
 * any of these the writer is gone, and so is what it had written; abandon is for other failures.
 * header: key, counts, flags and stamp are set; the rest is filled in. */
typedef struct stk_index_writer stk_index_writer;
stk_status stk_index_writer_open(stk_index_writer **out, const char *path, stk_index_part part,
                                 const stk_index_header *header, stk_error *err) STK_MUST_USE;
stk_status stk_index_writer_records(stk_index_writer **writer, const stk_record_facts *record, size_t count,
                                    stk_error *err) STK_MUST_USE;
stk_status stk_index_writer_media(stk_index_writer **writer, const stk_media_facts *media, size_t count,
                                  stk_error *err) STK_MUST_USE;
stk_status stk_index_writer_texts(stk_index_writer **writer, const stk_text_facts *text, size_t count,
                                  stk_error *err) STK_MUST_USE;
stk_status stk_index_writer_sizes(stk_index_writer **writer, const stk_stated_size *size, size_t count,
                                  stk_error *err) STK_MUST_USE;
stk_status stk_index_writer_notes(stk_index_writer **writer, const stk_index_note *note, size_t count,
                                  stk_error *err) STK_MUST_USE;
stk_status stk_index_writer_etags(stk_index_writer **writer, const uint8_t *etag, size_t size_bytes,
                                  stk_error *err) STK_MUST_USE;
stk_status stk_index_writer_commit(stk_index_writer **writer, stk_error *err) STK_MUST_USE;
void stk_index_writer_abandon(stk_index_writer **writer);

/* Add an object's ETag to those of its facts, which then say where it stands; what is no object is left as it is. */
stk_status stk_index_keep_etag(stk_buffer *etags, stk_media_facts *facts, const char *etag, stk_error *err) STK_MUST_USE;

/* Fill up ETags to a multiple of 8. */
stk_status stk_index_pad_etags(stk_buffer *etags, stk_error *err) STK_MUST_USE;

/* Facts that join others, whose ETags take base bytes. */
static inline void stk_index_move_etag(stk_media_facts *facts, uint64_t base)
{
    if (facts->mtime_ns & STK_MEDIA_OBJECT) facts->mtime_ns += base;
}

/* Renew the stamp of a sidecar in place, if that can be done. */
void stk_index_file_stamp(const char *path, stk_index_stamp stamp);

#endif
