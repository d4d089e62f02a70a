/* files.c - from the entries of a data set's `path` to its files. */
#include "manifest/files.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fnmatch.h>
#include <glob.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "schema/place.h"

enum { FOLDER_DEPTH = 32 };

static const char *const endings[] = {".jsonl", ".json", ".ndjson"};
static const char *const packed_endings[] = {".gz", ".zst"};

/* Where the ending of a manifest starts, that of its compression included; NULL when the name has none, or nothing
 * before it. */
static const char *ending_of(const char *name)
{
    const char *end = name + strlen(name);
    for (size_t i = 0; i < sizeof packed_endings / sizeof *packed_endings; i++) {
        const size_t length = strlen(packed_endings[i]);
        if ((size_t)(end - name) <= length || strcmp(end - length, packed_endings[i]) != 0) continue;
        end -= length;
        break;
    }
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        const size_t length = strlen(endings[i]);
        if ((size_t)(end - name) > length && memcmp(end - length, endings[i], length) == 0) return end - length;
    }
    return NULL;
}

stk_str stk_manifest_stem(const char *path)
{
    const char *const slash = strrchr(path, '/');
    const char *const name = slash ? slash + 1 : path;
    const char *end = ending_of(name);
    if (!end) end = strrchr(name, '.');
    return (stk_str){name, end && end != name ? (size_t)(end - name) : strlen(name)};
}

static stk_status add_file(stk_file_list *files, size_t *capacity, const char *path, stk_error *err)
{
    if (files->count == *capacity) {
        const size_t new_capacity = *capacity ? *capacity * 2 : 8;
        char **const moved = stk_alloc_array(STK_TAG_MANIFEST, new_capacity, sizeof *moved);
        if (!moved)
            return stk_fail(err, STK_ERR_NOMEM, "out of memory for a list of %zu manifests", files->count);
        if (files->count) memcpy(moved, files->path, files->count * sizeof *moved);
        stk_free(files->path);
        files->path = moved;
        *capacity = new_capacity;
    }
    files->path[files->count] = stk_strdup(STK_TAG_MANIFEST, path);
    if (!files->path[files->count]) return stk_fail(err, STK_ERR_NOMEM, "out of memory for a path");
    files->count++;
    return STK_OK;
}

static stk_status check_file(const char *path, const struct stat *info, stk_error *err)
{
    if (!S_ISREG(info->st_mode))
        return stk_fail_at(err, STK_ERR_MANIFEST, path, 0, "not a regular file: write it to one first");
    if (access(path, R_OK))
        return stk_fail_at(err, STK_ERR_MANIFEST, path, 0,
                           "the manifest may not be read by this user: change its permissions");
    return STK_OK;
}

/* The folder is no pattern, whatever characters it has. */
static stk_status join_pattern(char pattern[PATH_MAX], const char *folder, const char *entry, stk_error *err)
{
    size_t out = 0;
    if (entry[0] != '/') {
        for (const char *c = folder; *c; c++) {
            if (out + 3 >= PATH_MAX)
                return stk_fail(err, STK_ERR_MANIFEST, "the path is too long: %.100s", folder);
            if (strchr("*?[]\\", *c)) pattern[out++] = '\\';
            pattern[out++] = *c;
        }
        pattern[out++] = '/';
    }
    const size_t length = strlen(entry);
    if (out + length >= PATH_MAX)
        return stk_fail(err, STK_ERR_MANIFEST, "the path is too long: %.100s", entry);
    memcpy(pattern + out, entry, length + 1);
    return STK_OK;
}

static int compare_paths(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static stk_status add_matches(stk_file_list *files, size_t *capacity, const glob_t *matches, stk_error *err)
{
    for (size_t i = 0; i < matches->gl_pathc; i++) {
        const char *const path = matches->gl_pathv[i];
        struct stat info;
        if (stat(path, &info))
            return stk_fail_at(err, STK_ERR_MANIFEST, path, 0, "cannot look at it (a broken link?)");
        if (S_ISDIR(info.st_mode)) continue;
        STK_TRY(check_file(path, &info, err));
        STK_TRY(add_file(files, capacity, path, err));
    }
    return STK_OK;
}

static stk_status add_glob(stk_file_list *files, size_t *capacity, const char *entry, const char *folder,
                           stk_error *err)
{
    char pattern[PATH_MAX];
    STK_TRY(join_pattern(pattern, folder, entry, err));
    const size_t count_before = files->count;
    glob_t matches = {0};
    const int result = glob(pattern, GLOB_ERR | GLOB_NOSORT, NULL, &matches);
    stk_status status = STK_OK;
    if (result == 0) {
        /* In the order of bytes, which no locale changes. */
        qsort(matches.gl_pathv, matches.gl_pathc, sizeof *matches.gl_pathv, compare_paths);
        status = add_matches(files, capacity, &matches, err);
    } else if (result == GLOB_NOSPACE) {
        status = stk_fail(err, STK_ERR_NOMEM, "out of memory for the files of %.100s", entry);
    } else if (result == GLOB_ABORTED) {
        status = stk_fail(err, STK_ERR_MANIFEST, "a folder of %.100s cannot be read", entry);
    }
    globfree(&matches);
    if (status == STK_OK && files->count == count_before)
        status = stk_fail(err, STK_ERR_MANIFEST, "no file matches %.100s in %.100s", entry,
                          entry[0] == '/' ? "/" : folder);
    return status;
}

/* --- folders and prefixes --- */

static stk_status add_folder(stk_file_list *files, size_t *capacity, const char *folder, const char *begin, int depth,
                             stk_error *err);

/* One name of a folder: a manifest is added, a folder gone through, all else passed over. */
static stk_status add_found(stk_file_list *files, size_t *capacity, const char *folder, const char *name, int depth,
                            stk_error *err)
{
    char path[PATH_MAX];
    const bool ends = folder[strlen(folder) - 1] == '/';
    if (snprintf(path, sizeof path, "%s%s%s", folder, ends ? "" : "/", name) >= (int)sizeof path)
        return stk_fail(err, STK_ERR_MANIFEST, "the path is too long: %.100s", folder);
    struct stat info;
    if (stat(path, &info)) {
        if (!ending_of(name)) return STK_OK; /* a broken link to something else */
        return stk_fail_at(err, STK_ERR_MANIFEST, path, 0, "cannot look at it (a broken link?)");
    }
    if (S_ISDIR(info.st_mode)) return add_folder(files, capacity, path, "", depth + 1, err);
    if (!ending_of(name)) return STK_OK;
    STK_TRY(check_file(path, &info, err));
    return add_file(files, capacity, path, err);
}

/* The manifests of a folder and of those in it whose names there start with begin; hidden names never do. */
static stk_status add_folder(stk_file_list *files, size_t *capacity, const char *folder, const char *begin, int depth,
                             stk_error *err)
{
    if (depth > FOLDER_DEPTH)
        return stk_fail_at(err, STK_ERR_MANIFEST, folder, 0,
                           "folders over %d deep: take out the link that leads back, or give a glob", FOLDER_DEPTH);
    DIR *const dir = opendir(folder);
    if (!dir) {
        (void)stk_fail_errno(err, "cannot read the folder");
        stk_error_file(err, folder, 0);
        if (err) err->status = STK_ERR_MANIFEST;
        return STK_ERR_MANIFEST;
    }
    stk_status status = STK_OK;
    for (const struct dirent *entry; status == STK_OK && (entry = readdir(dir));)
        if (entry->d_name[0] != '.' && strncmp(entry->d_name, begin, strlen(begin)) == 0)
            status = add_found(files, capacity, folder, entry->d_name, depth, err);
    closedir(dir);
    return status;
}

/* "a.jsonl" and "a.jsonl.gz" in one folder are one manifest, which was packed and kept. */
static stk_status check_packed_twins(char *const *path, size_t count, stk_error *err)
{
    static const char *const other[] = {"", ".gz"};
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < sizeof packed_endings / sizeof *packed_endings; k++) {
            const size_t length = strlen(path[i]) - strlen(packed_endings[k]);
            if (strcmp(path[i] + length, packed_endings[k]) != 0) continue;
            for (size_t o = 0; o <= k; o++) {
                char twin[PATH_MAX];
                snprintf(twin, sizeof twin, "%.*s%s", (int)length, path[i], other[o]);
                const char *const key = twin;
                if (bsearch(&key, path, count, sizeof *path, compare_paths))
                    return stk_fail_at(err, STK_ERR_MANIFEST, twin, 0,
                                       "the same manifest lies beside it with %s: move one away, or name the files",
                                       packed_endings[k]);
            }
        }
    return STK_OK;
}

/* What was added since first, in the order of bytes. */
static stk_status finish_folder(stk_file_list *files, size_t first, stk_error *err)
{
    qsort(files->path + first, files->count - first, sizeof *files->path, compare_paths);
    return check_packed_twins(files->path + first, files->count - first, err);
}

static stk_status add_whole_folder(stk_file_list *files, size_t *capacity, const char *path, stk_error *err)
{
    const size_t first = files->count;
    STK_TRY(add_folder(files, capacity, path, "", 1, err));
    if (files->count == first)
        return stk_fail_at(err, STK_ERR_MANIFEST, path, 0,
                           "no manifest in this folder: its name must end in .jsonl, .json or .ndjson, with or without .gz or .zst");
    return finish_folder(files, first, err);
}

/* path names nothing as it stands: what begins so.  A name with the ending of a manifest is meant as it stands. */
static stk_status add_prefix(stk_file_list *files, size_t *capacity, const char *path, stk_error *err)
{
    char folder[PATH_MAX];
    STK_TRY(stk_path_folder(folder, sizeof folder, path, err));
    const char *const slash = strrchr(path, '/');
    const char *const begin = slash ? slash + 1 : path;
    const size_t first = files->count;
    struct stat info;
    if (begin[0] && begin[0] != '.' && !ending_of(begin) && stat(folder, &info) == 0 && S_ISDIR(info.st_mode))
        STK_TRY(add_folder(files, capacity, folder, begin, 1, err));
    if (files->count == first)
        return stk_fail_at(err, STK_ERR_MANIFEST, path, 0, "the manifest does not exist: correct `path`");
    return finish_folder(files, first, err);
}

/* --- stores --- */

/* What a list of keys is looked through for. */
typedef struct key_search {
    const char *entry;  /* s3://bucket/... as it is written */
    size_t bucket_bytes; /* of it: s3://bucket */
    bool pattern;
    bool exact, inside; /* entry itself was found; a manifest behind entry and a slash */
    stk_file_list *found;
    size_t capacity;
    stk_status status;
    stk_error *err;
} key_search;

/* Whether a part of a key behind `at` is hidden. */
static bool is_hidden(const char *at)
{
    for (; at; at = strchr(at, '/')) {
        at += *at == '/';
        if (*at == '.') return true;
    }
    return false;
}

static bool look_at_key(void *to, stk_str key)
{
    key_search *const s = to;
    char path[PATH_MAX];
    if (memchr(key.data, 0, key.size_bytes) ||
        snprintf(path, sizeof path, "%.*s/%.*s", (int)s->bucket_bytes, s->entry, (int)key.size_bytes, key.data) >= (int)sizeof path)
        return true; /* no name of a manifest */
    const size_t length = strlen(s->entry), slashed = length - (s->entry[length - 1] == '/');
    if (strcmp(path, s->entry) == 0) s->exact = true;
    else if (s->pattern && fnmatch(s->entry, path, FNM_PATHNAME | FNM_PERIOD) != 0) return true;
    else if (!s->pattern && (!ending_of(strrchr(path, '/') + 1) || is_hidden(path + (path[slashed] == '/' ? slashed : length)))) return true;
    if (!s->pattern && path[slashed] == '/') s->inside = true;
    s->status = add_file(s->found, &s->capacity, path, s->err);
    return s->status == STK_OK;
}

/* Of what was found: the entry itself, else what a folder of its name holds, else all. */
static bool is_wanted(const key_search *s, const char *path)
{
    const size_t length = strlen(s->entry), slashed = length - (s->entry[length - 1] == '/');
    if (s->exact) return strcmp(path, s->entry) == 0;
    return !s->inside || path[slashed] == '/';
}

static stk_status check_remote(const char *entry, const stk_manifest_store *store, stk_error *err)
{
    const stk_str text = stk_str_of(entry), shown = stk_address_shown(text);
    if (!store || !stk_address_is_remote(text) || isupper((unsigned char)entry[0]))
        return stk_fail(err, STK_ERR_MANIFEST, "%.*s: manifests are files, s3:// objects or https:// URLs; copy it to a folder or a bucket",
                        shown.size_bytes < 100 ? (int)shown.size_bytes : 100, shown.data);
    const size_t bucket = stk_place_of(text).size_bytes;
    if (!stk_address_is_s3(text)) return STK_OK;
    if (bucket == 5 || !entry[bucket]) return stk_fail(err, STK_ERR_MANIFEST, "%.100s: write s3://BUCKET/KEY", entry);
    return strlen(entry) < PATH_MAX ? STK_OK : stk_fail(err, STK_ERR_MANIFEST, "the path is too long: %.100s", entry);
}

/* As it is, but for its query, which may be a signature. */
static stk_status add_url(stk_file_list *files, size_t *capacity, const char *entry, const stk_manifest_store *store, stk_error *err)
{
    char path[PATH_MAX];
    const stk_str text = stk_str_of(entry), shown = stk_address_shown(text);
    const size_t host = stk_place_of(text).size_bytes;
    if (shown.data != entry || shown.size_bytes < host + 2 || entry[shown.size_bytes - 1] == '/')
        return stk_fail(err, STK_ERR_MANIFEST, "a URL that is no manifest: write https://HOST/PATH, the whole name, without a user or password");
    if (shown.size_bytes >= sizeof path) return stk_fail(err, STK_ERR_MANIFEST, "the path is too long: %.100s", entry);
    memcpy(path, entry, shown.size_bytes);
    path[shown.size_bytes] = 0;
    if (entry[shown.size_bytes]) STK_TRY(store->hide(store->context, (stk_str){path, shown.size_bytes}, entry, err));
    return add_file(files, capacity, path, err);
}

static stk_status add_remote(stk_file_list *files, size_t *capacity, const char *entry, const stk_manifest_store *store, stk_error *err)
{
    STK_TRY(check_remote(entry, store, err));
    if (!stk_address_is_s3(stk_str_of(entry))) return add_url(files, capacity, entry, store, err);
    const size_t plain = strcspn(entry, "*?[");
    const char *const last = strrchr(entry, '/') + 1;
    if (!entry[plain] && ending_of(last)) return add_file(files, capacity, entry, err);
    if (entry[plain] && entry + plain < last)
        return stk_fail(err, STK_ERR_MANIFEST, "%.100s: on a store a pattern may stand in the last part only; name its folder", entry);
    char prefix[PATH_MAX];
    stk_file_list found = {0};
    snprintf(prefix, sizeof prefix, "%.*s", (int)plain, entry);
    key_search search = {.entry = entry, .bucket_bytes = stk_place_of(stk_str_of(entry)).size_bytes, .pattern = entry[plain] != 0,
                         .found = &found, .err = err};
    stk_status status = store->list(store->context, prefix, look_at_key, &search, err);
    if (search.status < 0) status = search.status;
    const size_t first = files->count;
    for (size_t i = 0; status == STK_OK && i < found.count; i++)
        if (is_wanted(&search, found.path[i])) status = add_file(files, capacity, found.path[i], err);
    stk_manifest_files_free(&found);
    if (status == STK_OK && files->count == first)
        status = stk_fail_at(err, STK_ERR_MANIFEST, entry, 0,
                             "no manifest starts so: its name must end in .jsonl, .json or .ndjson, with or without .gz or .zst");
    return status == STK_OK ? finish_folder(files, first, err) : status;
}

static stk_status add_entry(stk_file_list *files, size_t *capacity, const char *entry, const char *folder,
                            const stk_manifest_store *store, stk_error *err)
{
    if (!entry[0]) return stk_fail(err, STK_ERR_MANIFEST, "an empty path of a manifest");
    if (strstr(entry, "://")) return add_remote(files, capacity, entry, store, err);
    char path[PATH_MAX];
    STK_TRY(stk_path_join(path, sizeof path, folder, entry, err));
    struct stat info;
    if (stat(path, &info) == 0) {
        if (S_ISDIR(info.st_mode)) return add_whole_folder(files, capacity, path, err);
        STK_TRY(check_file(path, &info, err));
        return add_file(files, capacity, path, err);
    }
    if (errno != ENOENT && errno != ENOTDIR) {
        stk_fail_errno(err, "cannot look at the manifest");
        stk_error_file(err, path, 0);
        if (err) err->status = STK_ERR_MANIFEST;
        return STK_ERR_MANIFEST;
    }
    if (strpbrk(entry, "*?[")) return add_glob(files, capacity, entry, folder, err);
    return add_prefix(files, capacity, path, err);
}

/* A file that stands twice would count twice, which `weight` and `epochs` say better. */
static stk_status check_once(const stk_file_list *files, stk_error *err)
{
    char **const sorted = stk_alloc_array(STK_TAG_MANIFEST, files->count, sizeof *sorted);
    if (!sorted)
        return stk_fail(err, STK_ERR_NOMEM, "out of memory for a list of %zu manifests", files->count);
    memcpy(sorted, files->path, files->count * sizeof *sorted);
    qsort(sorted, files->count, sizeof *sorted, compare_paths);
    stk_status status = STK_OK;
    for (size_t i = 1; i < files->count && status == STK_OK; i++)
        if (strcmp(sorted[i - 1], sorted[i]) == 0)
            status = stk_fail_at(err, STK_ERR_MANIFEST, sorted[i], 0,
                                 "`path` names this manifest twice: take one out");
    stk_free(sorted);
    return status;
}

stk_status stk_manifest_files(stk_file_list *out, const char *const *path, size_t path_count, const char *folder,
                              const stk_manifest_store *store, stk_error *err)
{
    *out = (stk_file_list){0};
    size_t capacity = 0;
    stk_status status = STK_OK;
    for (size_t i = 0; i < path_count && status == STK_OK; i++)
        status = add_entry(out, &capacity, path[i], folder, store, err);
    if (status == STK_OK && out->count == 0)
        status = stk_fail(err, STK_ERR_MANIFEST, "a data set without a `path`");
    if (status == STK_OK) status = check_once(out, err);
    if (status < 0) {
        stk_error_stage(err, STK_STAGE_MANIFEST);
        stk_manifest_files_free(out);
    }
    return status;
}

void stk_manifest_files_free(stk_file_list *files)
{
    for (size_t i = 0; i < files->count; i++) stk_free(files->path[i]);
    stk_free(files->path);
    *files = (stk_file_list){0};
}
