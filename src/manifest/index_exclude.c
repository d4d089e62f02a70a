/* index_exclude.c - read, check, join and save a list of records that are left out. */
#include "manifest/index_exclude.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

enum { LIST_BYTES = 1 << 30, RECORDS_MAX = 1 << 24 };

void stk_exclude_init(stk_exclude_list *list)
{
    stk_buffer_init(&list->entries, STK_TAG_INDEX, RECORDS_MAX * sizeof(stk_excluded));
}

void stk_exclude_deinit(stk_exclude_list *list)
{
    stk_buffer_deinit(&list->entries);
}

/* --- read --- */

/* The next line of text, without its end; false: there is none, or it has no end. */
static bool next_line(stk_str *text, stk_str *line)
{
    const char *const end = text->size_bytes ? memchr(text->data, '\n', text->size_bytes) : NULL;
    if (!end) return false;
    *line = (stk_str){text->data, (size_t)(end - text->data)};
    *text = (stk_str){end + 1, text->size_bytes - line->size_bytes - 1};
    return true;
}

static bool take_word(stk_str *line, const char *word)
{
    const size_t length = strlen(word);
    if (line->size_bytes < length || memcmp(line->data, word, length) != 0) return false;
    *line = (stk_str){line->data + length, line->size_bytes - length};
    return true;
}

static bool take_number(stk_str *line, uint64_t *number)
{
    size_t digits = 0;
    *number = 0;
    for (; digits < line->size_bytes && line->data[digits] >= '0' && line->data[digits] <= '9'; digits++)
        if (__builtin_mul_overflow(*number, (uint64_t)10, number) ||
            __builtin_add_overflow(*number, (uint64_t)(line->data[digits] - '0'), number))
            return false;
    *line = (stk_str){line->data + digits, line->size_bytes - digits};
    return digits > 0;
}

static bool take_entry(stk_str line, stk_excluded *entry)
{
    memset(entry, 0, sizeof *entry);
    if (!take_word(&line, "record ") || !take_number(&line, &entry->record_index) ||
        !take_word(&line, " line ") || !take_number(&line, &entry->line) || !take_word(&line, " "))
        return false;
    if (line.size_bytes == 0 || line.size_bytes >= sizeof entry->id || memchr(line.data, 0, line.size_bytes))
        return false;
    memcpy(entry->id, line.data, line.size_bytes);
    return true;
}

static void manifest_line(char line[128], const stk_index_key *key)
{
    char *at = line + sprintf(line, "manifest ");
    for (int i = 0; i < 16; i++) at += sprintf(at, "%02x", key->manifest_digest[i]);
    sprintf(at, " %" PRIu64 " bytes", key->manifest_bytes);
}

stk_status stk_exclude_parse(stk_exclude_list *list, stk_str text, const stk_index_key *key,
                             uint64_t record_count, stk_error *err)
{
    char manifest[128];
    stk_str line;
    manifest_line(manifest, key);
    if (!next_line(&text, &line) || !stk_str_is(line, "stoker-excluded 1"))
        return stk_fail(
            err, STK_ERR_INDEX,
            "not a list of left-out records of this version: run `stoker index --include-all` to start anew");
    if (!next_line(&text, &line) || !stk_str_is(line, manifest))
        return stk_fail(err, STK_ERR_INDEX,
                        "the list of left-out records is of another state of its manifest: name them anew "
                        "with `stoker index "
                        "--include-all --exclude FILE`");
    while (next_line(&text, &line)) {
        if (stk_str_is(line, "end") && text.size_bytes == 0) return STK_OK;
        stk_excluded entry;
        if (!take_entry(line, &entry) || entry.record_index >= record_count) break;
        const size_t count = stk_exclude_count(list);
        if (count && stk_exclude_at(list, count - 1)->record_index >= entry.record_index) break;
        STK_TRY(stk_buffer_append(&list->entries, &entry, sizeof entry, err));
    }
    return stk_fail(
        err, STK_ERR_INDEX,
        "the list of left-out records is damaged behind its first %zu: run `stoker index --include-all` "
        "to start anew",
        stk_exclude_count(list));
}

stk_status stk_exclude_read(stk_exclude_list *list, const char *path, const stk_index_key *key,
                            uint64_t record_count, stk_error *err)
{
    if (access(path, F_OK) && errno == ENOENT) return STK_OK;
    char *text;
    size_t size_bytes;
    STK_TRY(stk_file_read(&text, &size_bytes, path, LIST_BYTES, STK_TAG_INDEX, err));
    const stk_status status = stk_exclude_parse(list, (stk_str){text, size_bytes}, key, record_count, err);
    if (status < 0) stk_error_file(err, path, 0);
    stk_free(text);
    return status;
}

/* --- change --- */

static int by_record(const void *a, const void *b)
{
    const stk_excluded *const left = a, *const right = b;
    return left->record_index < right->record_index ? -1 : left->record_index > right->record_index;
}

stk_status stk_exclude_add(stk_exclude_list *list, const stk_excluded *more, size_t count, stk_error *err)
{
    if (count == 0) return STK_OK;
    STK_TRY(stk_buffer_append(&list->entries, more, count * sizeof *more, err));
    stk_excluded *const entry = (stk_excluded *)(void *)list->entries.data;
    const size_t all = stk_exclude_count(list);
    qsort(entry, all, sizeof *entry, by_record);
    size_t kept = 1;
    for (size_t i = 1; i < all; i++)
        if (entry[i].record_index != entry[kept - 1].record_index) entry[kept++] = entry[i];
    list->entries.size_bytes = kept * sizeof *entry;
    return STK_OK;
}

stk_status stk_exclude_save(const stk_exclude_list *list, const char *path, const stk_index_key *key,
                            stk_error *err)
{
    if (stk_exclude_count(list) == 0) {
        if (unlink(path) == 0 || errno == ENOENT) return STK_OK;
        (void)stk_fail_errno(err, "cannot remove the list of left-out records");
        stk_error_file(err, path, 0);
        return STK_ERR_SYSTEM;
    }
    char manifest[128];
    manifest_line(manifest, key);
    stk_buffer text;
    stk_buffer_init(&text, STK_TAG_INDEX, LIST_BYTES);
    stk_status status = stk_buffer_printf(&text, err, "stoker-excluded 1\n%s\n", manifest);
    for (size_t i = 0; status == STK_OK && i < stk_exclude_count(list); i++) {
        const stk_excluded *const e = stk_exclude_at(list, i);
        status = stk_buffer_printf(&text, err, "record %" PRIu64 " line %" PRIu64 " %s\n", e->record_index,
                                   e->line, e->id);
    }
    if (status == STK_OK) status = stk_buffer_append(&text, "end\n", 4, err);
    if (status == STK_OK) status = stk_file_save(path, text.data, text.size_bytes, err);
    stk_buffer_deinit(&text);
    return status;
}
