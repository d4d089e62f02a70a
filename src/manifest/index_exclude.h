/* index_exclude.h - the records of a manifest that are left out for good: a list in text beside its index.
 *
 *     stoker-excluded 1
 *     manifest 5e0f7c1991c4d0aa0e5f7c1991c4d0aa 81234 bytes
 *     record 17 line 18 docs/33471
 *     end
 *
 * `record` counts from 0 in the file.  The list belongs to the bytes of the manifest: one of another state is
 * refused, for its numbers would name other records, and to forget it in silence would bring them back. */
#ifndef STK_MANIFEST_INDEX_EXCLUDE_H
#define STK_MANIFEST_INDEX_EXCLUDE_H

#include "manifest/index_file.h"

typedef struct stk_excluded {
    uint64_t record_index, line;
    char id[96]; /* as people see it */
} stk_excluded;

typedef struct stk_exclude_list {
    stk_buffer entries; /* stk_excluded, by record_index, each once */
} stk_exclude_list;

static inline size_t stk_exclude_count(const stk_exclude_list *list)
{
    return list->entries.size_bytes / sizeof(stk_excluded);
}

static inline const stk_excluded *stk_exclude_at(const stk_exclude_list *list, size_t at)
{
    return (const stk_excluded *)(const void *)list->entries.data + at;
}

void stk_exclude_init(stk_exclude_list *list);
void stk_exclude_deinit(stk_exclude_list *list);

/* Read the list at path into an empty list; no file is an empty list.  key, record_count: of the manifest.
 * STK_ERR_INDEX: it is of another state of the manifest, or no such list. */
stk_status stk_exclude_read(stk_exclude_list *list, const char *path, const stk_index_key *key,
                            uint64_t record_count, stk_error *err) STK_MUST_USE;

/* The same from memory, for tests with hostile lists. */
stk_status stk_exclude_parse(stk_exclude_list *list, stk_str text, const stk_index_key *key,
                             uint64_t record_count, stk_error *err) STK_MUST_USE;

/* Add some; those that are there already stay as they are. */
stk_status stk_exclude_add(stk_exclude_list *list, const stk_excluded *more, size_t count,
                           stk_error *err) STK_MUST_USE;

/* Write the list; an empty one removes the file. */
stk_status stk_exclude_save(const stk_exclude_list *list, const char *path, const stk_index_key *key,
                            stk_error *err) STK_MUST_USE;

#endif
