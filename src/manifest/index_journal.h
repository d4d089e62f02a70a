/* index_journal.h - what a build has finished so far, and the lock that makes it the only one.
 *
 * Chunks are appended as they finish, each with its checksum.  A build that was killed goes on behind its last whole
 * entry; the file goes when the sidecar is there.  The file is its own lock (flock): whoever holds it builds, the others
 * wait.
 *
 *     journal header 64 │ entry header 32 │ payload │ entry header 32 │ payload ... */
#ifndef STK_MANIFEST_INDEX_JOURNAL_H
#define STK_MANIFEST_INDEX_JOURNAL_H

#include "manifest/index_file.h"

enum { STK_CHUNK_RECORDS = 64 }; /* small: little is lost when killed, and work spreads evenly */

/* Stands before the facts of a chunk: records and media, or texts, then notes, then ETags. */
typedef struct stk_chunk_counts {
    uint32_t record_count, media_count, note_count, etag_bytes; /* the last: a multiple of 8 */
} stk_chunk_counts;

typedef struct stk_journal {
    int fd; /* -1: closed */
    char path[4096];
    uint64_t size_bytes;
    uint64_t chunk_count, finished_count;
    uint64_t *payload_at; /* per chunk: offset of its payload; 0: not finished */
} stk_journal;

/* Take the lock on path, creating the file.
 * STK_OK     the journal is open and locked, its entries not yet read.
 * STK_AGAIN  another process has the lock, or has just finished: look at the sidecar, call again.
 * < 0        STK_ERR_SYSTEM: the folder cannot be written, or knows no locks. */
stk_status stk_journal_lock(stk_journal *journal, const char *path, stk_error *err) STK_MUST_USE;

/* Read what an earlier build of the same key left; what is of another key, or damaged, is cut off. */
stk_status stk_journal_start(stk_journal *journal, stk_index_part part, const stk_index_key *key, uint32_t flags,
                             uint64_t record_count, stk_error *err) STK_MUST_USE;

static inline bool stk_journal_has(const stk_journal *journal, uint64_t chunk)
{
    return journal->payload_at[chunk] != 0;
}

/* Add a finished chunk; payload begins with its stk_chunk_counts.  A failed write leaves what was there before. */
stk_status stk_journal_append(stk_journal *journal, uint64_t chunk, stk_bytes payload, stk_error *err) STK_MUST_USE;

/* All chunks, mapped; data + payload_at[chunk] is the payload. */
stk_status stk_journal_map(const stk_journal *journal, stk_map *map, stk_error *err) STK_MUST_USE;

/* Whether what an earlier build left has nothing that a sidecar with these flags lacks. */
bool stk_journal_is_spent(const stk_journal *journal, uint32_t sidecar_flags);

/* Give the lock back; keep: the file stays, for the next build to go on. */
void stk_journal_close(stk_journal *journal, bool keep);

#endif
