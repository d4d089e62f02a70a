/* tar.c - blocks of 512 bytes: a header, what it announces, and the next one behind. */
#include "source/tar.h"

enum {
    BLOCK_BYTES = 512,
    BODY_BYTES_MAX = 1 << 20, /* of a long name, or of a pax header */
    NAME_BYTES = 100,
    PREFIX_BYTES = 155,
};

/* Where fields lie in a header. */
enum { AT_SIZE = 124, AT_CHECKSUM = 148, AT_TYPE = 156, AT_MAGIC = 257, AT_PREFIX = 345, AT_GNU_EXTENDED = 482, AT_MORE = 504 };

typedef struct scan {
    const stk_tar_input *input;
    uint8_t *window;
    uint64_t window_at;
    size_t window_bytes; /* that are there */
    uint64_t at;         /* of the next header */
    /* What the headers so far say of the next file. */
    stk_buffer long_name; /* empty: nothing */
    bool has_size, is_sparse;
    uint64_t size_bytes;
} scan;

/* What a step says of a header that is none. */
#define DAMAGED STK_AGAIN

/* --- reading --- */

/* Bytes at an offset, which must lie within the tar. */
static stk_status copy_out(scan *s, uint64_t offset, uint8_t *out, size_t size_bytes, stk_error *err)
{
    if (size_bytes > s->input->window_bytes) return s->input->read(s->input->context, offset, out, size_bytes, err);
    if (offset < s->window_at || offset + size_bytes > s->window_at + s->window_bytes) {
        const uint64_t left_bytes = s->input->total_bytes - offset;
        s->window_at = offset;
        s->window_bytes = 0;
        const size_t want_bytes = left_bytes < s->input->window_bytes ? (size_t)left_bytes : s->input->window_bytes;
        STK_TRY(s->input->read(s->input->context, offset, s->window, want_bytes, err));
        s->window_bytes = want_bytes;
    }
    memcpy(out, s->window + (offset - s->window_at), size_bytes);
    return STK_OK;
}

static bool lies_within(const scan *s, uint64_t offset, uint64_t size_bytes)
{
    return offset <= s->input->total_bytes && size_bytes <= s->input->total_bytes - offset;
}

/* --- fields --- */

/* Octal, or base 256 where the first bit is set.  False: neither. */
static bool read_number(const uint8_t *field, size_t size_bytes, uint64_t *out)
{
    uint64_t value = 0;
    size_t i = 0;
    if (field[0] & 0x80) {
        if (field[0] != 0x80) return false; /* negative */
        for (i = 1; i < size_bytes; i++) {
            if (value >> 55) return false;
            value = value << 8 | field[i];
        }
        *out = value;
        return true;
    }
    while (i < size_bytes && field[i] == ' ') i++;
    for (; i < size_bytes && field[i] >= '0' && field[i] <= '7'; i++) value = value << 3 | (uint64_t)(field[i] - '0');
    for (; i < size_bytes; i++)
        if (field[i] != ' ' && field[i] != 0) return false;
    *out = value;
    return true;
}

/* The sum of all bytes, its own field as blanks; some wrote it with signed bytes. */
static bool checksum_fits(const uint8_t *header)
{
    uint64_t stated;
    int64_t sum = 8 * ' ', signed_sum = 8 * ' ';
    for (size_t i = 0; i < BLOCK_BYTES; i++) {
        if (i >= AT_CHECKSUM && i < AT_CHECKSUM + 8) continue;
        sum += header[i];
        signed_sum += (int8_t)header[i];
    }
    return read_number(header + AT_CHECKSUM, 8, &stated) && (stated == (uint64_t)sum || (int64_t)stated == signed_sum);
}

static stk_str text_of(const uint8_t *field, size_t size_bytes)
{
    return (stk_str){(const char *)field, strnlen((const char *)field, size_bytes)};
}

/* --- what stands before a file --- */

/* One line of a pax header: "LENGTH KEY=VALUE\n", the length that of all. */
static bool take_pax_line(scan *s, stk_str *left, stk_error *err, stk_status *status)
{
    size_t length = 0, digits = 0;
    while (digits < left->size_bytes && digits < 8 && left->data[digits] >= '0' && left->data[digits] <= '9')
        length = length * 10 + (size_t)(left->data[digits++] - '0');
    if (digits == 0 || digits >= left->size_bytes || left->data[digits] != ' ' || length > left->size_bytes ||
        length < digits + 3 || left->data[length - 1] != '\n')
        return false;
    const char *const key = left->data + digits + 1;
    const size_t size_bytes = length - digits - 2;
    const char *const equals = memchr(key, '=', size_bytes);
    if (!equals) return false;
    const stk_str name = {key, (size_t)(equals - key)}, value = {equals + 1, size_bytes - name.size_bytes - 1};
    if (stk_str_is(name, "path") || stk_str_is(name, "GNU.sparse.name")) {
        stk_buffer_clear(&s->long_name);
        *status = stk_buffer_append(&s->long_name, value.data, value.size_bytes, err);
    } else if (stk_str_is(name, "size")) {
        uint64_t size = 0;
        if (value.size_bytes == 0 || value.size_bytes > 18) return false;
        for (size_t i = 0; i < value.size_bytes; i++) {
            if (value.data[i] < '0' || value.data[i] > '9') return false;
            size = size * 10 + (uint64_t)(value.data[i] - '0');
        }
        s->has_size = true;
        s->size_bytes = size;
    }
    if (name.size_bytes > 11 && memcmp(name.data, "GNU.sparse.", 11) == 0) s->is_sparse = true;
    *left = (stk_str){left->data + length, left->size_bytes - length};
    return true;
}

/* The body of a header that says something of the next one.  DAMAGED when it makes no sense. */
static stk_status take_body(scan *s, uint8_t type, uint64_t offset, uint64_t size_bytes, stk_error *err)
{
    if (type == 'g' || type == 'K') return STK_OK;
    if (size_bytes > BODY_BYTES_MAX) return DAMAGED;
    stk_buffer body;
    stk_buffer_init(&body, STK_TAG_SOURCE, BODY_BYTES_MAX);
    stk_status status = stk_buffer_reserve(&body, size_bytes + 1, err);
    if (status == STK_OK) status = copy_out(s, offset, body.data, size_bytes, err);
    if (status == STK_OK && type == 'L') {
        stk_buffer_clear(&s->long_name);
        status = stk_buffer_append(&s->long_name, body.data, strnlen((const char *)body.data, size_bytes), err);
    } else if (status == STK_OK) {
        stk_str left = {(const char *)body.data, size_bytes};
        while (status == STK_OK && left.size_bytes)
            if (!take_pax_line(s, &left, err, &status)) status = DAMAGED;
    }
    stk_buffer_deinit(&body);
    return status;
}

/* Old GNU sparse files have more of their map behind the header. */
static stk_status skip_sparse_map(scan *s, const uint8_t *header, stk_error *err)
{
    bool more = header[AT_GNU_EXTENDED] != 0;
    while (more) {
        uint8_t block[BLOCK_BYTES];
        if (!lies_within(s, s->at, BLOCK_BYTES)) return DAMAGED;
        STK_TRY(copy_out(s, s->at, block, BLOCK_BYTES, err));
        s->at += BLOCK_BYTES;
        more = block[AT_MORE] != 0;
    }
    return STK_OK;
}

/* --- files --- */

static stk_status show(scan *s, const uint8_t *header, stk_tar_entry *entry,
                       stk_status (*visit)(void *context, const stk_tar_entry *entry, stk_error *err), void *context, stk_error *err)
{
    char joined[PREFIX_BYTES + 1 + NAME_BYTES];
    entry->name = text_of(header, NAME_BYTES);
    const stk_str prefix = text_of(header + AT_PREFIX, PREFIX_BYTES);
    if (s->long_name.size_bytes) {
        entry->name = (stk_str){(const char *)s->long_name.data, s->long_name.size_bytes};
    } else if (prefix.size_bytes && memcmp(header + AT_MAGIC, "ustar", 6) == 0) { /* with its NUL: GNU's has a blank */
        memcpy(joined, prefix.data, prefix.size_bytes);
        joined[prefix.size_bytes] = '/';
        memcpy(joined + prefix.size_bytes + 1, entry->name.data, entry->name.size_bytes);
        entry->name = (stk_str){joined, prefix.size_bytes + 1 + entry->name.size_bytes};
    }
    while (entry->name.size_bytes > 2 && memcmp(entry->name.data, "./", 2) == 0)
        entry->name = (stk_str){entry->name.data + 2, entry->name.size_bytes - 2};
    const size_t size = entry->name.size_bytes;
    if (size == 0 || entry->name.data[size - 1] == '/') return STK_OK; /* a folder of times before types */
    return visit(context, entry, err);
}

static void forget(scan *s)
{
    stk_buffer_clear(&s->long_name);
    s->has_size = s->is_sparse = false;
}

static bool is_file(uint8_t type)
{
    return type == '0' || type == 0 || type == '7' || type == 'S';
}

/* One header and what is behind it.  STK_END: the end mark.  DAMAGED: no header. */
static stk_status step(scan *s, stk_status (*visit)(void *context, const stk_tar_entry *entry, stk_error *err), void *context,
                       stk_error *err)
{
    static const uint8_t zeros[BLOCK_BYTES];
    uint8_t header[BLOCK_BYTES];
    if (!lies_within(s, s->at, BLOCK_BYTES)) return s->at == s->input->total_bytes ? STK_END : DAMAGED;
    STK_TRY(copy_out(s, s->at, header, BLOCK_BYTES, err));
    if (memcmp(header, zeros, BLOCK_BYTES) == 0) return STK_END;
    uint64_t size_bytes;
    if (!checksum_fits(header) || !read_number(header + AT_SIZE, 12, &size_bytes)) return DAMAGED;
    const uint8_t type = header[AT_TYPE];
    s->at += BLOCK_BYTES;
    if (type == 'L' || type == 'K' || type == 'x' || type == 'g') {
        if (!lies_within(s, s->at, size_bytes)) return DAMAGED;
        const stk_status status = take_body(s, type, s->at, size_bytes, err);
        if (status != STK_OK) return status;
    } else {
        if (s->has_size) size_bytes = s->size_bytes;
        if (type >= '1' && type <= '6') size_bytes = 0; /* links, devices, folders: whatever they state */
        if (type == 'S') {
            const stk_status status = skip_sparse_map(s, header, err);
            if (status != STK_OK) return status;
        }
        if (is_file(type)) {
            stk_tar_entry entry = {.kind = type == 'S' || s->is_sparse ? STK_TAR_SPARSE : STK_TAR_FILE,
                                   .offset = s->at, .size_bytes = size_bytes};
            if (!lies_within(s, s->at, size_bytes)) entry.kind = STK_TAR_CUT;
            STK_TRY(show(s, header, &entry, visit, context, err));
        }
        forget(s);
        if (!lies_within(s, s->at, size_bytes)) return DAMAGED;
    }
    s->at += stk_round_up(size_bytes, BLOCK_BYTES);
    if (s->at > s->input->total_bytes) s->at = s->input->total_bytes; /* the last file, not padded */
    return STK_OK;
}

static const char *compression_of(const uint8_t *head)
{
    static const struct { const char *name; uint8_t bytes[6], size; } kinds[] = {
        {"gzip", {0x1f, 0x8b}, 2}, {"zstd", {0x28, 0xb5, 0x2f, 0xfd}, 4}, {"bzip2", {'B', 'Z', 'h'}, 3},
        {"xz", {0xfd, '7', 'z', 'X', 'Z', 0}, 6}, {"lz4", {0x04, 0x22, 0x4d, 0x18}, 4}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (memcmp(head, kinds[i].bytes, kinds[i].size) == 0) return kinds[i].name;
    return NULL;
}

static stk_status scan_all(scan *s, stk_status (*visit)(void *context, const stk_tar_entry *entry, stk_error *err), void *context,
                           uint64_t *damaged_at, stk_error *err)
{
    uint8_t head[8] = {0};
    if (s->input->total_bytes >= sizeof head) STK_TRY(copy_out(s, 0, head, sizeof head, err));
    const char *const compression = compression_of(head);
    if (compression)
        return stk_fail(err, STK_ERR_MEDIA_UNSUPPORTED,
                        "the tar is compressed (%s), so that no file in it can be read alone: unpack it", compression);
    for (uint64_t begin = 0;; begin = s->at) {
        const stk_status status = step(s, visit, context, err);
        if (status == STK_OK) continue;
        if (status == DAMAGED && begin == 0 && s->at == 0) return stk_fail(err, STK_ERR_MEDIA, "no tar: its first block is no header");
        if (status == DAMAGED) *damaged_at = begin;
        return status < 0 ? status : STK_OK;
    }
}

stk_status stk_tar_scan(const stk_tar_input *input, stk_status (*visit)(void *context, const stk_tar_entry *entry, stk_error *err),
                        void *context, uint64_t *damaged_at, stk_error *err)
{
    scan s = {.input = input};
    *damaged_at = UINT64_MAX;
    stk_buffer_init(&s.long_name, STK_TAG_SOURCE, BODY_BYTES_MAX);
    s.window = stk_alloc(STK_TAG_SOURCE, input->window_bytes);
    const stk_status status = s.window ? scan_all(&s, visit, context, damaged_at, err)
                                       : stk_fail(err, STK_ERR_NOMEM, "out of memory: reading a tar");
    stk_buffer_deinit(&s.long_name);
    stk_free(s.window);
    return status;
}
