/* exclude.c - lists of samples, as people or dead letters name them, to records that are left out for good.
 *
 *     lines ─► entries ─► candidates by hash of the id, or by line ─► one record each ─► a list beside each
 * manifest
 *
 * All entries are found before anything is written.  Not here: the lists on disk (manifest/index_exclude.h).
 */
#include <stoker/index.h>

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <xxhash.h>

#include "base/file.h"
#include "engine/run.h"

enum { LIST_BYTES = 1 << 30, ENTRIES_MAX = 1 << 24 };

/* A line of a list. */
typedef struct entry {
    const char *id, *file; /* file: of a dead letter; NULL: not said */
    const char *list;
    uint64_t list_line;
    uint32_t set_index;
    uint64_t record_index, hits; /* hits: records that it names */
} entry;

typedef struct candidate {
    uint64_t hash;
    size_t entry;
} candidate;

typedef struct excluding {
    stk_run *run;
    stk_pool pool;      /* the texts of entries */
    stk_buffer entries; /* entry */
    stk_buffer candidates;
    stk_buffer named; /* stk_index_words, of a set */
} excluding;

static entry *entry_at(const excluding *x, size_t at)
{
    return (entry *)(void *)x->entries.data + at;
}

static size_t entry_count(const excluding *x)
{
    return x->entries.size_bytes / sizeof(entry);
}

/* --- reading lists --- */

static stk_status fail_line(stk_error *err, const char *list, uint64_t line, const char *what)
{
    (void)stk_fail_at(err, STK_ERR_USAGE, list, line, "%s", what);
    return STK_ERR_USAGE;
}

static stk_status copy_text(excluding *x, const char **out, const char *text, size_t size_bytes,
                            stk_error *err)
{
    char *const copy = stk_pool_take(&x->pool, size_bytes + 1);
    if (!copy) return stk_fail(err, STK_ERR_NOMEM, "out of memory: a list of records");
    memcpy(copy, text, size_bytes);
    *out = copy;
    return STK_OK;
}

/* A dead letter: an object with `id`, and `file` for ids that are lines. */
static stk_status read_letter(excluding *x, entry *e, stk_str text, stk_error *err)
{
    json_error_t why;
    json_t *const letter = json_loadb(text.data, text.size_bytes, 0, &why);
    const json_t *const id = json_object_get(letter, "id"), *const file = json_object_get(letter, "file");
    stk_status status = STK_OK;
    if (!json_is_string(id))
        status = fail_line(err, e->list, e->list_line, letter ? "an object without `id`" : "not valid JSON");
    if (status == STK_OK) status = copy_text(x, &e->id, json_string_value(id), json_string_length(id), err);
    if (status == STK_OK && json_is_string(file))
        status = copy_text(x, &e->file, json_string_value(file), json_string_length(file), err);
    json_decref(letter);
    return status;
}

static stk_status read_line(excluding *x, const char *list, uint64_t line, stk_str text, stk_error *err)
{
    while (text.size_bytes && strchr(" \t\r", text.data[text.size_bytes - 1])) text.size_bytes--;
    while (text.size_bytes && strchr(" \t", text.data[0]))
        text = (stk_str){text.data + 1, text.size_bytes - 1};
    if (text.size_bytes == 0) return STK_OK;
    if (memchr(text.data, 0, text.size_bytes)) return fail_line(err, list, line, "not a line of text");
    entry e = {.list = list, .list_line = line};
    STK_TRY(text.data[0] == '{' ? read_letter(x, &e, text, err)
                                : copy_text(x, &e.id, text.data, text.size_bytes, err));
    return stk_buffer_append(&x->entries, &e, sizeof e, err);
}

static stk_status read_list(excluding *x, const char *path, stk_error *err)
{
    char *text;
    size_t size_bytes;
    STK_TRY(stk_file_read(&text, &size_bytes, path, LIST_BYTES, STK_TAG_ENGINE, err));
    stk_status status = STK_OK;
    uint64_t line = 1;
    for (size_t at = 0; status == STK_OK && at < size_bytes; line++) {
        const char *const end = memchr(text + at, '\n', size_bytes - at);
        const size_t length = end ? (size_t)(end - (text + at)) : size_bytes - at;
        status = read_line(x, path, line, (stk_str){text + at, length}, err);
        at += length + 1;
    }
    stk_free(text);
    return status;
}

/* --- finding records --- */

static void hit(entry *e, uint32_t set_index, uint64_t record_index)
{
    if (e->hits && e->set_index == set_index && e->record_index == record_index) return;
    e->hits++;
    e->set_index = set_index;
    e->record_index = record_index;
}

/* What `escaped` was before a sample id was made of it: \n, \r, \t, \xNN, \u00NN.  Returns the size. */
static size_t unescape(char *out, const char *escaped)
{
    size_t size = 0;
    for (const char *at = escaped; *at;) {
        unsigned code = 0;
        int length = 0;
        if (at[0] == '\\' && at[1] && strchr("nrt", at[1])) {
            out[size++] = at[1] == 'n' ? '\n' : at[1] == 'r' ? '\r' : '\t';
            at += 2;
        } else if (sscanf(at, "\\x%2x%n", &code, &length) == 1 && length == 4) {
            out[size++] = (char)code;
            at += 4;
        } else if (sscanf(at, "\\u00%2x%n", &code, &length) == 1 && length == 6) {
            out[size++] = (char)(0xC0 | code >> 6);
            out[size++] = (char)(0x80 | (code & 0x3F));
            at += 6;
        } else {
            out[size++] = *at++;
        }
    }
    return size;
}

static stk_status add_candidate(excluding *x, size_t at, const char *id, size_t size_bytes, stk_error *err)
{
    const uint64_t hash = XXH3_64bits(id, size_bytes);
    const candidate c = {hash ? hash : 1, at};
    return stk_buffer_append(&x->candidates, &c, sizeof c, err);
}

static stk_status add_candidates(excluding *x, size_t at, const char *id, stk_error *err)
{
    STK_TRY(add_candidate(x, at, id, strlen(id), err));
    if (!strchr(id, '\\')) return STK_OK;
    char *const plain = stk_pool_take(&x->pool, strlen(id) + 1);
    if (!plain) return stk_fail(err, STK_ERR_NOMEM, "out of memory: a list of records");
    return add_candidate(x, at, plain, unescape(plain, id), err);
}

static int by_hash(const void *a, const void *b)
{
    const candidate *const left = a, *const right = b;
    return left->hash < right->hash ? -1 : left->hash > right->hash;
}

/* Once over the records of a set. */
static void find_ids(excluding *x, uint32_t set_index)
{
    const stk_set_facts *const facts = &x->run->set[set_index].facts;
    candidate *const list = (candidate *)(void *)x->candidates.data;
    const size_t count = x->candidates.size_bytes / sizeof *list;
    if (count == 0) return;
    qsort(list, count, sizeof *list, by_hash);
    for (uint64_t r = 0; r < facts->record_count; r++) {
        const uint64_t hash = facts->record[r].id_hash;
        if (!hash || facts->record[r].flags & STK_RECORD_ID_REPEATED) continue;
        size_t low = 0, high = count;
        while (low < high) {
            const size_t middle = low + (high - low) / 2;
            if (list[middle].hash < hash)
                low = middle + 1;
            else
                high = middle;
        }
        for (; low < count && list[low].hash == hash; low++) hit(entry_at(x, list[low].entry), set_index, r);
    }
}

static const char *base_of(const char *path)
{
    const char *const slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* Whether a dead letter's file is this one: its path, or where no path agrees (the data has moved) its name.
 */
static bool is_file(const stk_set_facts *facts, uint32_t f, const char *file)
{
    if (!file) return true;
    for (uint32_t i = 0; i < facts->file_count; i++)
        if (strcmp(facts->file[i], file) == 0) return i == f;
    return strcmp(base_of(facts->file[f]), base_of(file)) == 0;
}

/* Records stand by file, then by line. */
static uint64_t first_at(const stk_set_facts *facts, uint32_t f, uint64_t line)
{
    uint64_t low = 0, high = facts->record_count;
    while (low < high) {
        const uint64_t middle = low + (high - low) / 2;
        const stk_record_facts *const r = &facts->record[middle];
        if (r->file_index < f || (r->file_index == f && r->line < line))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void find_line(excluding *x, uint32_t set_index, entry *e, const char *number)
{
    const stk_set_facts *const facts = &x->run->set[set_index].facts;
    char *end;
    const uint64_t line = strtoull(number, &end, 10);
    if (*number < '0' || *number > '9' || *end) return;
    for (uint32_t f = 0; f < facts->file_count; f++) {
        if (!is_file(facts, f, e->file)) continue;
        for (uint64_t r = first_at(facts, f, line);
             r < facts->record_count && facts->record[r].file_index == f && facts->record[r].line == line;
             r++)
            hit(e, set_index, r);
    }
}

static stk_status find_in_set(excluding *x, uint32_t set_index, stk_error *err)
{
    const char *const name = x->run->set[set_index].name;
    const size_t length = strlen(name);
    stk_buffer_clear(&x->candidates);
    for (size_t i = 0; i < entry_count(x); i++) {
        entry *const e = entry_at(x, i);
        if (strncmp(e->id, name, length) != 0) continue;
        if (e->id[length] == '/') STK_TRY(add_candidates(x, i, e->id + length + 1, err));
        if (e->id[length] == '#') find_line(x, set_index, e, e->id + length + 1);
    }
    find_ids(x, set_index);
    return STK_OK;
}

/* --- saving --- */

static stk_status check_found(const excluding *x, stk_error *err)
{
    for (size_t i = 0; i < entry_count(x); i++) {
        const entry *const e = entry_at(x, i);
        if (e->hits == 1) continue;
        if (e->hits)
            (void)stk_fail_at(err, STK_ERR_USAGE, e->list, e->list_line,
                              "\"%.95s\" names %" PRIu64 " records: give the records ids, or name "
                              "the file as dead letters do",
                              e->id, e->hits);
        else
            (void)stk_fail_at(err, STK_ERR_USAGE, e->list, e->list_line,
                              "\"%.95s\" names no record of the configuration: a line is SET/ID, "
                              "SET#LINE or a dead letter; nothing was left out",
                              e->id);
        return STK_ERR_USAGE;
    }
    return STK_OK;
}

static stk_status save_set(excluding *x, uint32_t set_index, bool start_over, stk_error *err)
{
    const stk_run_set *const set = &x->run->set[set_index];
    stk_buffer_clear(&x->named);
    for (size_t i = 0; i < entry_count(x); i++) {
        const entry *const e = entry_at(x, i);
        if (e->set_index != set_index) continue;
        const stk_index_words one = {e->record_index, STK_REASON_EXCLUDED, e->id};
        STK_TRY(stk_buffer_append(&x->named, &one, sizeof one, err));
    }
    return stk_set_index_exclude(set->index, (const stk_index_words *)(const void *)x->named.data,
                                 x->named.size_bytes / sizeof(stk_index_words), start_over, err);
}

static stk_status exclude(excluding *x, const stk_options *options, const char *const *list,
                          size_t list_count, bool start_over, const stk_index_progress *progress,
                          stk_error *err)
{
    for (size_t i = 0; i < list_count; i++) STK_TRY(read_list(x, list[i], err));
    STK_TRY(stk_run_prepare(&x->run, options, progress, err));
    x->run->ignore_excluded = start_over;
    for (uint32_t i = 0; i < x->run->set_count; i++) {
        STK_TRY(stk_run_open_index(x->run, options, i, progress, NULL, err));
        STK_TRY(find_in_set(x, i, err));
    }
    STK_TRY(check_found(x, err));
    for (uint32_t i = 0; i < x->run->set_count; i++) STK_TRY(save_set(x, i, start_over, err));
    return STK_OK;
}

stk_status stk_index_exclude(const stk_options *options, const char *const *list, size_t list_count,
                             bool start_over, const stk_index_progress *progress, stk_error *err)
{
    if (options->index && strcmp(options->index, "stream") == 0)
        return stk_fail(err, STK_ERR_OPTION, "which record an id names is known from a full index: leave records out with index: auto");
    excluding x = {0};
    stk_pool_init(&x.pool, STK_TAG_ENGINE);
    stk_buffer_init(&x.entries, STK_TAG_ENGINE, ENTRIES_MAX * sizeof(entry));
    stk_buffer_init(&x.candidates, STK_TAG_ENGINE, 2 * ENTRIES_MAX * sizeof(candidate));
    stk_buffer_init(&x.named, STK_TAG_ENGINE, ENTRIES_MAX * sizeof(stk_index_words));
    const stk_status status = exclude(&x, options, list, list_count, start_over, progress, err);
    stk_run_release(x.run);
    stk_buffer_deinit(&x.entries);
    stk_buffer_deinit(&x.candidates);
    stk_buffer_deinit(&x.named);
    stk_pool_deinit(&x.pool);
    return status;
}
