/* split.h - where the records of a manifest stand.
 *
 * A manifest is JSONL, or one JSON array: the first byte that is not white space decides, not the name.  The
 * splitter goes over the mapped file once, hands out each record as a slice, and does not look inside further
 * than needed to find its end: whether a record is good is for record.h.  It allocates nothing.
 *
 * JSONL: a record is a line without its line end and the white space at both ends; blank lines are skipped
 * and counted; a broken line ends with its line.  Array: a record is an element; what breaks the array itself
 * (a missing comma, a string that is not closed in its line, something behind the end) is STK_ERR_MANIFEST,
 * and nothing behind it can be read.
 *
 *     stk_split split;
 *     stk_record_at at;
 *     STK_TRY(stk_split_open(&split, map.data, map.size_bytes, err));
 *     while ((status = stk_split_next(&split, &at, err)) == STK_OK) ... at.text, at.offset, at.line ...
 *     if (status < 0) return status;                    otherwise STK_END
 */
#ifndef STK_MANIFEST_SPLIT_H
#define STK_MANIFEST_SPLIT_H

#include "base/bytes.h"
#include "base/error.h"

typedef enum stk_manifest_form { STK_FORM_JSONL, STK_FORM_ARRAY } stk_manifest_form;

/* A record in its file. */
typedef struct stk_record_at {
    stk_str text;    /* the record's bytes in the mapping, never empty */
    uint64_t offset; /* of its first byte; its size is text.size_bytes */
    uint64_t line;   /* physical line of its first byte, from 1 */
} stk_record_at;

/* Between two records: enough to go on there later, in another process too. */
typedef struct stk_split_position {
    uint64_t offset;      /* of the next byte to look at */
    uint64_t line;        /* physical line of that byte, from 1 */
    uint64_t line_offset; /* of that line's first byte */
    uint64_t records;     /* handed out since the start of the file */
    uint64_t blank_lines; /* skipped since the start of the file (JSONL) */
    bool at_end;          /* the next call says STK_END */
} stk_split_position;

typedef struct stk_split {
    const uint8_t *data;
    uint64_t size_bytes;
    uint64_t end_offset; /* records that start here or later are not handed out */
    stk_manifest_form form;
    stk_split_position at;
} stk_split;

/* Look at a file's first bytes and stand before its first record; one byte-order mark at byte 0 is skipped.
 * data may be NULL when size_bytes is 0.  Failure: STK_ERR_MANIFEST, what is no text of UTF-8 at all, named
 * (UTF-16, a compressed file or an archive, Parquet). */
stk_status stk_split_open(stk_split *split, const uint8_t *data, uint64_t size_bytes,
                          stk_error *err) STK_MUST_USE;

/* STK_OK with the next record, STK_END, or STK_ERR_MANIFEST (only arrays): the message names line, column and
 * offset, and the caller adds the file with stk_error_file(err, file, err->line).  A failed call fails again
 * when repeated. */
stk_status stk_split_next(stk_split *split, stk_record_at *record, stk_error *err) STK_MUST_USE;

/* Go on at a position which split->at had between two calls of stk_split_next, over the same bytes. */
void stk_split_seek(stk_split *split, stk_split_position position);

/* Restrict a JSONL splitter to the lines that start in [begin, end), for work in parallel: the chunks of a
 * file together give every record and blank line once.  split->at then counts lines, records and blank lines
 * from the chunk's own start (its first line is 1), so that sums over the chunks before give the true
 * numbers; stk_split_lines is the number of lines that a finished chunk had. */
void stk_split_chunk(stk_split *split, uint64_t begin_offset, uint64_t end_offset);
uint64_t stk_split_lines(const stk_split *split);

#endif
