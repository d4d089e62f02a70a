/* split.c - finding records: lines by their line ends, array elements by brackets and quotes alone. */
#include "manifest/split.h"

#include <inttypes.h>

/* Brackets deeper than this are counted, but their kinds are not compared.  Records that deep are refused
 * anyway. */
enum { KNOWN_DEPTH = 1024 };

/* Where a scan stands. */
typedef struct cursor {
    uint64_t offset, line, line_offset;
} cursor;

static bool is_blank(uint8_t byte)
{
    return byte == ' ' || byte == '\t' || byte == '\r';
}

static bool starts_with(const stk_split *split, const char *bytes, size_t size_bytes)
{
    return split->size_bytes >= size_bytes && memcmp(split->data, bytes, size_bytes) == 0;
}

static stk_status fail_at(const cursor *at, stk_error *err, const char *what)
{
    const stk_status status =
        stk_fail(err, STK_ERR_MANIFEST, "line %" PRIu64 ", column %" PRIu64 ", offset %" PRIu64 ": %s",
                 at->line, at->offset - at->line_offset + 1, at->offset, what);
    if (err) err->line = at->line;
    return status;
}

static void skip_space(const stk_split *split, cursor *at)
{
    for (; at->offset < split->size_bytes; at->offset++) {
        const uint8_t byte = split->data[at->offset];
        if (byte == '\n') {
            at->line++;
            at->line_offset = at->offset + 1;
        } else if (!is_blank(byte)) {
            return;
        }
    }
}

/* What people have instead of text.  Gzip and zstd are unpacked before (unpack.h): here they lie inside something. */
static stk_status refuse_binary(const stk_split *split, stk_error *err)
{
    static const struct {
        const char *bytes;
        size_t size_bytes;
        const char *name, *advice;
    } known[] = {
        {"\x1F\x8B", 2, "compressed (gzip) inside a compressed file", "unpack it once by hand"},
        {"\x28\xB5\x2F\xFD", 4, "compressed (zstd) inside a compressed file", "unpack it once by hand"},
        {"BZh", 3, "compressed with bzip2", "unpack it, or use gzip or zstd"},
        {"\xFD"
         "7zXZ",
         5, "compressed with xz", "unpack it, or use gzip or zstd"},
        {"\x04\x22\x4D\x18", 4, "compressed with lz4", "unpack it, or use gzip or zstd"},
        {"PK\x03\x04", 4, "a zip archive", "unpack it"},
        {"PAR1", 4, "a Parquet file", "write its rows as JSON lines"},
        {"ARROW1", 6, "an Arrow file", "write its rows as JSON lines"},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (starts_with(split, known[i].bytes, known[i].size_bytes))
            return stk_fail(err, STK_ERR_MANIFEST, "the manifest is %s: %s", known[i].name, known[i].advice);
    return STK_OK;
}

stk_status stk_split_open(stk_split *split, const uint8_t *data, uint64_t size_bytes, stk_error *err)
{
    *split = (stk_split){.data = data, .size_bytes = size_bytes, .end_offset = size_bytes, .at = {.line = 1}};
    if (starts_with(split, "\xFF\xFE", 2) || starts_with(split, "\xFE\xFF", 2))
        return stk_fail(err, STK_ERR_MANIFEST,
                        "the manifest is UTF-16: convert it to UTF-8 (iconv -f utf-16 -t utf-8)");
    STK_TRY(refuse_binary(split, err));

    if (starts_with(split, "\xEF\xBB\xBF", 3)) split->at.offset = 3;
    cursor first = {split->at.offset, 1, 0};
    skip_space(split, &first);
    if (first.offset < size_bytes && data[first.offset] == '[') {
        split->form = STK_FORM_ARRAY;
        split->at.offset = first.offset + 1;
        split->at.line = first.line;
        split->at.line_offset = first.line_offset;
    }
    return STK_OK;
}

void stk_split_seek(stk_split *split, stk_split_position position)
{
    split->at = position;
}

void stk_split_chunk(stk_split *split, uint64_t begin_offset, uint64_t end_offset)
{
    split->end_offset = end_offset < split->size_bytes ? end_offset : split->size_bytes;
    if (begin_offset) {
        /* A line belongs to the chunk in which it starts, and the first one starts at 0 even behind a
         * byte-order mark. */
        const uint64_t from = begin_offset - 1;
        const uint8_t *const end =
            from < split->size_bytes ? memchr(split->data + from, '\n', split->size_bytes - from) : NULL;
        split->at.offset = end ? (uint64_t)(end - split->data) + 1 : split->size_bytes;
        split->at.line_offset = split->at.offset;
    }
    split->at.line = 1;
    split->at.records = split->at.blank_lines = 0;
    split->at.at_end = false;
}

uint64_t stk_split_lines(const stk_split *split)
{
    /* The last line of a file may have no line end. */
    return split->at.line - 1 + (split->at.offset > split->at.line_offset);
}

/* --- JSONL --- */

static bool next_line(stk_split *split, stk_record_at *record)
{
    stk_split_position *const at = &split->at;
    while (at->line_offset < split->end_offset && at->offset < split->size_bytes) {
        const uint8_t *const found = memchr(split->data + at->offset, '\n', split->size_bytes - at->offset);
        uint64_t begin = at->offset, end = found ? (uint64_t)(found - split->data) : split->size_bytes;
        const uint64_t line = at->line;
        at->offset = found ? end + 1 : end;
        if (found) {
            at->line++;
            at->line_offset = at->offset;
        }
        while (begin < end && is_blank(split->data[begin])) begin++;
        while (begin < end && is_blank(split->data[end - 1])) end--;
        if (begin < end) {
            *record = (stk_record_at){{(const char *)split->data + begin, end - begin}, begin, line};
            at->records++;
            return true;
        }
        at->blank_lines++;
    }
    at->at_end = true;
    return false;
}

/* --- arrays --- */

/* From behind the opening quote to behind the closing one. */
static stk_status skip_string(const stk_split *split, cursor *at, stk_error *err)
{
    const cursor open = {at->offset - 1, at->line, at->line_offset};
    while (at->offset < split->size_bytes) {
        const uint8_t byte = split->data[at->offset];
        if (byte == '"') {
            at->offset++;
            return STK_OK;
        }
        /* No string of JSON holds a line break, so one in it means that its closing quote is missing: to go
         * on would take text for structure up to the end of the file. */
        if (byte == '\n') break;
        at->offset++;
        if (byte == '\\' && at->offset < split->size_bytes && split->data[at->offset] != '\n') at->offset++;
    }
    return fail_at(&open, err, "a string is not closed on its line: add its closing quote");
}

/* From an opening bracket to behind its closing one. */
static stk_status skip_container(const stk_split *split, cursor *at, stk_error *err)
{
    const cursor open = *at;
    uint64_t is_object[KNOWN_DEPTH / 64] = {0};
    uint64_t depth = 0;
    while (at->offset < split->size_bytes) {
        const uint8_t byte = split->data[at->offset];
        if (byte == '"') {
            at->offset++;
            STK_TRY(skip_string(split, at, err));
            continue;
        }
        if (byte == '{' || byte == '[') {
            if (depth < KNOWN_DEPTH) {
                const uint64_t bit = (uint64_t)1 << (depth % 64);
                is_object[depth / 64] = (is_object[depth / 64] & ~bit) | (byte == '{' ? bit : 0);
            }
            depth++;
        } else if (byte == '}' || byte == ']') {
            depth--;
            if (depth < KNOWN_DEPTH && (is_object[depth / 64] >> (depth % 64) & 1) != (byte == '}'))
                return fail_at(at, err,
                               byte == '}' ? "'}' stands where ']' must close a list"
                                           : "']' stands where '}' must close an object");
            if (depth == 0) {
                at->offset++;
                return STK_OK;
            }
        } else if (byte == '\n') {
            at->line++;
            at->line_offset = at->offset + 1;
        }
        at->offset++;
    }
    return fail_at(&open, err, "the record that starts here is not closed before the end of the file");
}

/* A number, a word, or rubbish: whatever it is, it ends where an element can end. */
static stk_status skip_word(const stk_split *split, cursor *at, stk_error *err)
{
    const uint64_t begin = at->offset;
    while (at->offset < split->size_bytes && !is_blank(split->data[at->offset]) &&
           split->data[at->offset] != '\n' && !memchr(",[]{}\"", split->data[at->offset], 6))
        at->offset++;
    return at->offset > begin ? STK_OK
                              : fail_at(at, err, "a record should stand here: take a comma out, or this");
}

static stk_status skip_element(const stk_split *split, cursor *at, stk_error *err)
{
    const uint8_t byte = split->data[at->offset];
    if (byte == '{' || byte == '[') return skip_container(split, at, err);
    if (byte == '"') {
        at->offset++;
        return skip_string(split, at, err);
    }
    return skip_word(split, at, err);
}

/* Behind the closing bracket only white space may stand. */
static stk_status finish_array(stk_split *split, cursor at, stk_error *err)
{
    at.offset++;
    skip_space(split, &at);
    if (at.offset < split->size_bytes)
        return fail_at(&at, err, "something stands behind the end of the array: take it out");
    split->at.offset = at.offset;
    split->at.line = at.line;
    split->at.line_offset = at.line_offset;
    split->at.at_end = true;
    return STK_END;
}

static stk_status next_element(stk_split *split, stk_record_at *record, stk_error *err)
{
    cursor at = {split->at.offset, split->at.line, split->at.line_offset};
    skip_space(split, &at);
    if (at.offset < split->size_bytes && split->data[at.offset] == ']') return finish_array(split, at, err);
    if (split->at.records && at.offset < split->size_bytes) {
        if (split->data[at.offset] != ',') return fail_at(&at, err, "a comma is missing before this");
        at.offset++;
        skip_space(split, &at);
    }
    if (at.offset >= split->size_bytes)
        return fail_at(&at, err, "the array is not closed: the file ends without ']'");

    const cursor begin = at;
    STK_TRY(skip_element(split, &at, err));
    *record = (stk_record_at){
        {(const char *)split->data + begin.offset, at.offset - begin.offset}, begin.offset, begin.line};
    split->at.offset = at.offset;
    split->at.line = at.line;
    split->at.line_offset = at.line_offset;
    split->at.records++;
    return STK_OK;
}

stk_status stk_split_next(stk_split *split, stk_record_at *record, stk_error *err)
{
    if (split->at.at_end) return STK_END;
    if (split->form == STK_FORM_ARRAY) return next_element(split, record, err);
    return next_line(split, record) ? STK_OK : STK_END;
}
