/* index.c - the parts of a data set: found, checked against their keys, built where they must be, joined.
 *
 * Not here: building (index_build.c), the form on disk (index_file.c). */
#define XXH_INLINE_ALL /* for a streaming state on the stack */
#include <xxhash.h>

#include "manifest/index.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "manifest/index_build.h"
#include "manifest/index_exclude.h"
#include "manifest/index_ids.h"
#include "manifest/index_lines.h"
#include "manifest/index_recheck.h"
#include "manifest/stated_build.h"
#include "manifest/unpack.h"
#include "schema/place.h"

enum { WAIT_MS = 50, HASHED_AT_ONCE_BYTES = 64 << 20 };

typedef struct part_file {
    char path[4096];
    stk_map map;
    stk_index_view view;
} part_file;

/* A manifest, or the facts file. */
typedef struct set_file {
    char *path;             /* as people know it */
    const char *folder;     /* of its sidecars; NULL: beside it */
    char *data_path;        /* of its plain bytes: the same, or what was fetched or unpacked */
    stk_map manifest;       /* closed again when all parts are there */
    struct stat info;
    stk_index_stamp stamp;
    bool digest_known;
    uint8_t digest[16];
    part_file part[STK_INDEX_PARTS]; /* media and text, or lines; of a facts file sizes */
    char exclude_path[4096];
    stk_exclude_list excluded;
} set_file;

struct stk_set_index {
    uint32_t file_count;
    set_file *file;
    bool only_lines; /* STK_INDEX_STREAM */
    const stk_index_store *store; /* of lists of what is left out; the caller's, outlives the index */
    set_file *facts_file; /* NULL: none */
    stk_stated_sizes stated;
    stk_set_facts facts;
    uint64_t blank_lines, words_count;
    /* Of a set of several files: copies, joined. */
    stk_record_facts *record;
    stk_media_facts *media;
    stk_text_facts *text;
    uint8_t *etag;
};

/* --- keys --- */

static stk_status add_text(stk_buffer *key, stk_str text, stk_error *err)
{
    const uint64_t size = text.data ? text.size_bytes : UINT64_MAX;
    STK_TRY(stk_buffer_append(key, &size, sizeof size, err));
    return text.data ? stk_buffer_append(key, text.data, text.size_bytes, err) : STK_OK;
}

/* All of the record rules; whatever a rule changes, it changes the key. */
static stk_status add_rules(stk_buffer *key, const stk_record_rules *r, stk_error *err)
{
    const stk_str columns[] = {r->id_column, r->messages_column, r->images_column, r->videos_column,
                               r->audios_column, r->tools_column, r->system_column, r->media_root};
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++) STK_TRY(add_text(key, columns[i], err));
    for (size_t i = 0; i < r->role_count; i++) STK_TRY(add_text(key, r->role[i].name, err));
    for (size_t i = 0; i < r->allow.count; i++) STK_TRY(add_text(key, r->allow.item[i], err));
    uint64_t numbers[12] = {r->dialect, r->tag_space, r->role_count, r->allow.count, r->limits->media_bytes,
                            r->limits->media_px, r->limits->record_bytes, r->limits->json_depth,
                            r->limits->media_per_record, r->limits->jpeg_scans};
    for (size_t i = 0; i < r->role_count; i++) numbers[10] = numbers[10] * 31 + (uint64_t)r->role[i].role + 1;
    return stk_buffer_append(key, numbers, sizeof numbers, err);
}

static stk_status rules_digest(uint8_t digest[16], const stk_index_spec *spec, stk_index_part part, stk_error *err)
{
    if (part == STK_INDEX_LINES) { /* lines follow from no rule */
        stk_index_hash(digest, "lines", 5);
        return STK_OK;
    }
    stk_buffer key;
    stk_buffer_init(&key, STK_TAG_INDEX, SIZE_MAX / 2);
    stk_status status = add_rules(&key, spec->record_rules, err);
    if (status == STK_OK && part == STK_INDEX_SIZES) status = stk_buffer_append(&key, "sizes", 5, err);
    if (status == STK_OK && part == STK_INDEX_MEDIA && spec->facts_file) status = add_text(&key, stk_str_of(spec->facts_file), err);
    if (status == STK_OK && part == STK_INDEX_TEXT) {
        status = stk_buffer_append(&key, spec->text_digest, sizeof spec->text_digest, err);
        if (status == STK_OK)
            status = stk_buffer_append(&key, &spec->record_rules->limits->text_bytes, sizeof(uint64_t), err);
    }
    if (status == STK_OK) stk_index_hash(digest, key.data, key.size_bytes);
    stk_buffer_deinit(&key);
    return status;
}

/* What a facts file says belongs to the key and not to the name, so that a change of it replaces the part. */
static void add_stated(uint8_t digest[16], const stk_index_spec *spec, stk_index_part part)
{
    const stk_stated_sizes *const stated = spec->record_rules->stated;
    uint8_t both[32];
    if (part != STK_INDEX_MEDIA || !stated) return;
    memcpy(both, digest, 16);
    memcpy(both + 16, stated->digest, 16);
    stk_index_hash(digest, both, sizeof both);
}

/* The name of a sidecar holds its rules, so that two configurations over one manifest do not take turns in rebuilding. */
static stk_status name_part(set_file *file, stk_index_part which, const uint8_t rules[16], stk_error *err)
{
    static const char *const kind[] = {"media", "text", "lines", "sizes"};
    char suffix[32];
    snprintf(suffix, sizeof suffix, "%s-%02x%02x%02x%02x", kind[which], rules[0], rules[1], rules[2], rules[3]);
    return stk_index_sidecar_path(file->part[which].path, file->folder, file->path, suffix, err);
}

/* --- the manifest --- */

static stk_status fail_manifest(const set_file *file, stk_error *err, stk_status status)
{
    if (err && status == STK_ERR_SYSTEM) err->status = STK_ERR_MANIFEST;
    stk_error_file(err, file->path, 0);
    stk_error_stage(err, STK_STAGE_MANIFEST);
    return status == STK_ERR_SYSTEM ? STK_ERR_MANIFEST : status;
}

static stk_status look_at_manifest(set_file *file, stk_error *err)
{
    if (stat(file->data_path, &file->info)) {
        (void)stk_fail_errno(err, "cannot read the manifest");
        return fail_manifest(file, err, STK_ERR_SYSTEM);
    }
    file->stamp = stk_index_stamp_of(&file->info);
    return STK_OK;
}

static bool same_file(const struct stat *a, const struct stat *b)
{
    return a->st_size == b->st_size && a->st_ino == b->st_ino && a->st_dev == b->st_dev &&
           a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

static stk_status check_unchanged(const set_file *file, stk_error *err)
{
    struct stat now;
    if (stat(file->data_path, &now) == 0 && same_file(&now, &file->info)) return STK_OK;
    (void)stk_fail_at(err, STK_ERR_MANIFEST, file->path, 0, "the manifest changed while it was indexed: run again");
    stk_error_stage(err, STK_STAGE_MANIFEST);
    return STK_ERR_MANIFEST;
}

static stk_status map_manifest(set_file *file, stk_error *err)
{
    if (file->manifest.data || file->info.st_size == 0) return STK_OK;
    const stk_status status = stk_map_open(&file->manifest, file->data_path, err);
    if (status < 0) return fail_manifest(file, err, status);
    return file->manifest.size_bytes == (uint64_t)file->info.st_size ? STK_OK : check_unchanged(file, err);
}

static stk_status know_digest(const stk_index_spec *spec, set_file *file, stk_error *err)
{
    if (file->digest_known) return STK_OK;
    STK_TRY(map_manifest(file, err));
    XXH3_state_t state;
    XXH3_128bits_reset(&state);
    const size_t size = file->manifest.size_bytes;
    for (size_t at = 0; at < size; at += HASHED_AT_ONCE_BYTES) {
        STK_TRY(stk_build_report(spec, "reading", at, size, err));
        XXH3_128bits_update(&state, file->manifest.data + at, size - at < HASHED_AT_ONCE_BYTES ? size - at : HASHED_AT_ONCE_BYTES);
    }
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(&state));
    memcpy(file->digest, canonical.digest, sizeof file->digest);
    file->digest_known = true;
    return STK_OK;
}

/* --- one part --- */

static void forget(part_file *part)
{
    stk_map_close(&part->map);
    part->view = (stk_index_view){0};
}

/* STK_OK: the part is there and fits.  STK_AGAIN: it must be built, err says why.  < 0: failure. */
static stk_status find_part(const stk_index_spec *spec, set_file *file, stk_index_part which, const uint8_t rules[16],
                            bool decoded, stk_error *err)
{
    part_file *const part = &file->part[which];
    forget(part);
    if (access(part->path, F_OK)) {
        (void)stk_fail(err, STK_ERR_INDEX, "there is no index of the manifest");
        return STK_AGAIN;
    }
    stk_status status = stk_map_open(&part->map, part->path, err);
    if (status < 0) return status;
    status = stk_index_view_check(&part->view, which, (stk_bytes){part->map.data, part->map.size_bytes}, err);
    if (status < 0) goto unfit;

    const stk_index_header *const h = part->view.header;
    const char *why = NULL;
    if (memcmp(h->key.rules_digest, rules, 16) != 0) why = spec->facts_file ? "an earlier state of the facts file" : "other options";
    else if (h->key.manifest_bytes != (uint64_t)file->info.st_size) why = "an earlier state of the manifest";
    else if (decoded && !(h->flags & STK_INDEX_DECODED)) why = "headers only, without verify";
    if (!why && !file->digest_known) {
        if (file->stamp.mtime_ns && h->stamp.mtime_ns == file->stamp.mtime_ns && h->stamp.inode == file->stamp.inode) {
            memcpy(file->digest, h->key.manifest_digest, sizeof file->digest);
            file->digest_known = true;
        }
    }
    if (!why) {
        status = know_digest(spec, file, err);
        if (status < 0) goto failed;
        if (memcmp(h->key.manifest_digest, file->digest, sizeof file->digest) != 0) why = "an earlier state of the manifest";
    }
    if (!why) {
        const bool same_stamp = h->stamp.mtime_ns == file->stamp.mtime_ns && h->stamp.inode == file->stamp.inode;
        if (!same_stamp && file->stamp.mtime_ns && spec->mode != STK_INDEX_REQUIRE) stk_index_file_stamp(part->path, file->stamp);
        return STK_OK;
    }
    (void)stk_fail(err, STK_ERR_INDEX, "the index is of %s", why);
unfit:
    status = STK_AGAIN;
failed:
    forget(part);
    return status;
}

/* Temporary files of a build that was killed while it wrote the sidecar.  Only with the lock. */
static void remove_leftovers(const char *path)
{
    char folder[4096], prefix[4096], stray[8300];
    if (stk_path_folder(folder, sizeof folder, path, NULL) < 0) return;
    const char *const slash = strrchr(path, '/');
    snprintf(prefix, sizeof prefix, "%.4000s.tmp-", slash ? slash + 1 : path);
    DIR *const dir = opendir(folder);
    if (!dir) return;
    for (const struct dirent *entry; (entry = readdir(dir));) {
        if (strncmp(entry->d_name, prefix, strlen(prefix)) != 0) continue;
        snprintf(stray, sizeof stray, "%s/%s", folder, entry->d_name);
        unlink(stray);
    }
    closedir(dir);
}

static stk_status build_part(const stk_index_spec *spec, set_file *file, stk_index_part which, const uint8_t rules[16],
                             stk_journal *journal, bool *durable, stk_index_work *work, stk_error *err)
{
    *durable = true; /* until the journal is known to hold nothing */
    STK_TRY(know_digest(spec, file, err));
    STK_TRY(map_manifest(file, err));
    stk_build build = {
        .spec = spec,
        .part = which,
        .sidecar = file->part[which].path,
        .journal = journal,
        .key = {.manifest_bytes = (uint64_t)file->info.st_size},
        .stamp = file->stamp,
        .decode = which == STK_INDEX_MEDIA && spec->mode == STK_INDEX_VERIFY,
        .manifest = {(const char *)file->manifest.data, file->manifest.size_bytes},
        .manifest_path = file->path,
        .media_part = which == STK_INDEX_TEXT ? &file->part[STK_INDEX_MEDIA].view : NULL,
        .work = work,
    };
    memcpy(build.key.rules_digest, rules, 16);
    memcpy(build.key.manifest_digest, file->digest, 16);
    remove_leftovers(build.sidecar);
    if (which == STK_INDEX_LINES || which == STK_INDEX_SIZES) {
        *durable = false;
        STK_TRY(which == STK_INDEX_LINES ? stk_lines_build(&build, err) : stk_stated_build(&build, err));
        return check_unchanged(file, err);
    }
    STK_TRY(stk_build_part(&build, durable, err));
    *durable = false; /* it stands in the sidecar now */
    *(which == STK_INDEX_MEDIA ? &work->media_part_built : &work->text_part_built) = true;
    return check_unchanged(file, err);
}

static stk_status wait_for_other(const stk_index_spec *spec, stk_error *err)
{
    STK_TRY(stk_build_report(spec, "waiting", 0, 0, err));
    nanosleep(&(struct timespec){.tv_nsec = WAIT_MS * 1000000L}, NULL);
    return STK_OK;
}

/* Take the lock of a part, waiting for who has it; STK_AGAIN each time the sidecar should be looked at first. */
static stk_status lock_part(const stk_index_spec *spec, const set_file *file, stk_index_part which, stk_journal *journal,
                            stk_error *err)
{
    char path[4200];
    snprintf(path, sizeof path, "%s.part", file->part[which].path);
    if (file->folder) (void)mkdir(file->folder, 0777); /* what is wrong with it shows when the journal is opened */
    const stk_status status = stk_journal_lock(journal, path, err);
    if (status != STK_AGAIN) return status;
    const stk_status waited = wait_for_other(spec, err);
    return waited < 0 ? waited : STK_AGAIN;
}

static stk_status refuse(const stk_index_spec *spec, const set_file *file, stk_error *err)
{
    char why[200] = "";
    if (err) snprintf(why, sizeof why, "%.150s", err->message);
    (void)stk_fail_at(err, STK_ERR_INDEX, file->path, 0, "%s, and index is `require`: run `stoker index` first", why);
    stk_error_stage(err, STK_STAGE_INDEX);
    return STK_ERR_INDEX;
}

/* A build that was killed just after its sidecar was there has left its journal. */
static void remove_spent_journal(const part_file *part)
{
    char path[4200];
    stk_journal journal;
    snprintf(path, sizeof path, "%s.part", part->path);
    if (access(path, F_OK) || stk_journal_lock(&journal, path, NULL) != STK_OK) return;
    stk_journal_close(&journal, !stk_journal_is_spent(&journal, part->view.header->flags));
}

/* --- on a store --- */

static stk_status pull(const stk_index_spec *spec, const char *path, stk_error *err)
{
    return spec->store && spec->store->pull ? spec->store->pull(spec->store->context, path, err) : STK_AGAIN;
}

static stk_status push(const stk_index_spec *spec, const char *path, stk_error *err)
{
    return spec->store && spec->store->push ? spec->store->push(spec->store->context, path, err) : STK_OK;
}

/* Find a part here, else on the store, where another machine may have put it. */
static stk_status find_or_pull(const stk_index_spec *spec, set_file *file, stk_index_part which, const uint8_t rules[16],
                               bool decoded, stk_error *err)
{
    const stk_status found = find_part(spec, file, which, rules, decoded, err);
    if (found != STK_AGAIN) return found;
    stk_error why = err ? *err : (stk_error){0};
    const stk_status pulled = pull(spec, file->part[which].path, err);
    if (pulled == STK_OK) return find_part(spec, file, which, rules, decoded, err);
    if (pulled < 0) return pulled;
    if (err) *err = why;
    return STK_AGAIN;
}

/* --- all of a part --- */

/* Find a part, or build it, or wait for whoever builds it. */
static stk_status bring_part(const stk_index_spec *spec, set_file *file, stk_index_part which, stk_index_work *work,
                             stk_error *err)
{
    uint8_t rules[16];
    STK_TRY(rules_digest(rules, spec, which, err));
    STK_TRY(name_part(file, which, rules, err));
    add_stated(rules, spec, which);
    const bool decoded = which == STK_INDEX_MEDIA && spec->mode == STK_INDEX_VERIFY;
    struct stat before = {0}, now = {0};
    bool looked = false;
    for (;;) {
        /* While another builds, look only at what has changed. */
        if (stat(file->part[which].path, &now)) now = (struct stat){0};
        if (!looked || !same_file(&before, &now)) {
            const stk_status found =
                looked ? find_part(spec, file, which, rules, decoded, err) : find_or_pull(spec, file, which, rules, decoded, err);
            if (found == STK_OK && spec->mode != STK_INDEX_REQUIRE) remove_spent_journal(&file->part[which]);
            if (found != STK_AGAIN) return found;
            if (spec->mode == STK_INDEX_REQUIRE) return refuse(spec, file, err);
        }
        before = now;
        looked = true;
        stk_journal journal;
        stk_status status = lock_part(spec, file, which, &journal, err);
        if (status == STK_AGAIN) continue;
        STK_TRY(status);
        /* Who had the lock until now may have built it. */
        bool keep = true;
        status = find_part(spec, file, which, rules, decoded, err);
        if (status == STK_AGAIN) {
            status = build_part(spec, file, which, rules, &journal, &keep, work, err);
            if (status == STK_OK) status = push(spec, file->part[which].path, err);
            if (status == STK_OK) status = find_part(spec, file, which, rules, decoded, err);
            if (status == STK_AGAIN) status = STK_ERR_INDEX; /* err says what is wrong with it */
        }
        stk_journal_close(&journal, status < 0 && status != STK_ERR_INDEX && keep);
        return status;
    }
}

/* Look again at what could not be used. */
static stk_status recheck_part(const stk_index_spec *spec, set_file *file, stk_index_work *work, stk_error *err)
{
    part_file *const part = &file->part[STK_INDEX_MEDIA];
    if (!stk_recheck_worthwhile(&part->view)) return STK_OK;
    STK_TRY(map_manifest(file, err));
    stk_journal journal;
    stk_status status;
    while ((status = lock_part(spec, file, STK_INDEX_MEDIA, &journal, err)) == STK_AGAIN) continue;
    STK_TRY(status);
    bool changed = false;
    const stk_str manifest = {(const char *)file->manifest.data, file->manifest.size_bytes};
    status = stk_recheck(spec, &part->view, manifest, part->path, &changed, work, err);
    if (status == STK_OK && changed) {
        uint8_t rules[16];
        work->media_part_built = true;
        status = rules_digest(rules, spec, STK_INDEX_MEDIA, err);
        add_stated(rules, spec, STK_INDEX_MEDIA);
        if (status == STK_OK) status = push(spec, part->path, err);
        if (status == STK_OK) status = find_part(spec, file, STK_INDEX_MEDIA, rules, false, err);
        if (status == STK_AGAIN) status = STK_ERR_INDEX;
    }
    stk_journal_close(&journal, false);
    if (status < 0) stk_error_stage(err, STK_STAGE_INDEX);
    return status;
}

/* The part that says where the records of a file stand. */
static const stk_index_view *records_of(const set_file *file)
{
    return &file->part[file->part[STK_INDEX_LINES].view.header ? STK_INDEX_LINES : STK_INDEX_MEDIA].view;
}

static stk_status read_excluded(const stk_index_spec *spec, set_file *file, stk_error *err)
{
    const stk_index_header *const header = records_of(file)->header;
    STK_TRY(stk_index_sidecar_path(file->exclude_path, file->folder, file->path, "excluded", err));
    if (spec->store && spec->store->pull) { /* a list follows from no bytes: what the store has is what counts, where it says what it has */
        const stk_status pulled = pull(spec, file->exclude_path, err);
        if (pulled < 0) return pulled;
        if (pulled == STK_AGAIN) (void)unlink(file->exclude_path);
    }
    if (spec->ignore_excluded) return STK_OK;
    const stk_status status = stk_exclude_read(&file->excluded, file->exclude_path, &header->key, header->record_count, err);
    if (status < 0) stk_error_stage(err, STK_STAGE_INDEX);
    return status;
}

static stk_status report_fetch(void *to, uint64_t done, uint64_t total, stk_error *err)
{
    return stk_build_report(to, "fetching", done, total, err);
}

/* The plain bytes of a manifest, as a file. */
static stk_status bring_bytes(const stk_index_spec *spec, set_file *file, stk_error *err)
{
    char copy[4096];
    const bool remote = stk_address_is_remote(stk_str_of(file->path));
    if (remote && !spec->store) return stk_fail_at(err, STK_ERR_MANIFEST, file->path, 0, "no store is known here");
    file->folder = spec->index_dir ? spec->index_dir : remote ? spec->store->folder : NULL;
    if (!remote) return stk_unpack(&file->data_path, spec, file->path, file->path, file->folder, err);
    stk_index_spec quiet = *spec; /* report_fetch takes no const */
    const stk_status status =
        spec->store->fetch(spec->store->context, file->path, file->folder, copy, report_fetch, &quiet, err);
    if (status < 0) {
        stk_error_file(err, file->path, 0);
        stk_error_stage(err, STK_STAGE_MANIFEST);
        return status;
    }
    return stk_unpack(&file->data_path, spec, file->path, copy, file->folder, err);
}

static stk_status bring_file(const stk_index_spec *spec, set_file *file, stk_index_work *work, stk_error *err)
{
    const stk_index_work before = *work;
    STK_TRY(bring_bytes(spec, file, err));
    STK_TRY(look_at_manifest(file, err));
    if (spec->mode == STK_INDEX_STREAM) {
        STK_TRY(bring_part(spec, file, STK_INDEX_LINES, work, err));
        stk_map_close(&file->manifest);
        return read_excluded(spec, file, err);
    }
    STK_TRY(bring_part(spec, file, STK_INDEX_MEDIA, work, err));
    /* What was built just now has been looked at just now. */
    const bool fresh = work->media_part_built && work->records_parsed > before.records_parsed;
    if (spec->recheck && spec->mode != STK_INDEX_REQUIRE && !fresh) STK_TRY(recheck_part(spec, file, work, err));
    STK_TRY(bring_part(spec, file, STK_INDEX_TEXT, work, err));
    stk_map_close(&file->manifest);
    if (file->part[STK_INDEX_MEDIA].view.header->record_count == file->part[STK_INDEX_TEXT].view.header->record_count)
        return read_excluded(spec, file, err);
    return stk_fail_at(err, STK_ERR_INDEX, file->part[STK_INDEX_TEXT].path, 0,
                       "the two parts of the index do not fit each other: delete this one, it is built anew");
}

static stk_status bring_facts(stk_set_index *x, const stk_index_spec *spec, stk_index_work *work, stk_error *err)
{
    set_file *const file = x->facts_file = stk_alloc(STK_TAG_INDEX, sizeof *file);
    if (!file) return stk_fail(err, STK_ERR_NOMEM, "out of memory: the index of %s", spec->name);
    stk_exclude_init(&file->excluded);
    file->path = stk_strdup(STK_TAG_INDEX, spec->facts_file);
    if (!file->path) return stk_fail(err, STK_ERR_NOMEM, "out of memory: the index of %s", spec->name);
    STK_TRY(bring_bytes(spec, file, err));
    STK_TRY(look_at_manifest(file, err));
    STK_TRY(bring_part(spec, file, STK_INDEX_SIZES, work, err));
    stk_map_close(&file->manifest);
    const stk_index_view *const view = &file->part[STK_INDEX_SIZES].view;
    x->stated = (stk_stated_sizes){.size = view->size, .count = view->header->record_count};
    memcpy(x->stated.digest, view->header->key.manifest_digest, sizeof x->stated.digest);
    return STK_OK;
}

/* --- all files as one --- */

static void join_file(stk_set_index *x, uint32_t f, uint64_t records_before, uint64_t media_before, uint64_t etags_before)
{
    const stk_index_view *const m = records_of(&x->file[f]), *const t = &x->file[f].part[STK_INDEX_TEXT].view;
    const uint64_t count = m->header->record_count;
    for (uint64_t i = 0; i < count; i++) {
        stk_record_facts *const r = &x->record[records_before + i];
        *r = m->record[i];
        r->file_index = f;
        r->first_media += media_before;
        r->flags &= (uint8_t)~STK_RECORD_ID_REPEATED;
    }
    if (!t->header) return; /* lines */
    memcpy(x->media + media_before, m->media, m->header->media_count * sizeof *x->media);
    for (uint64_t i = 0; etags_before && i < m->header->media_count; i++) stk_index_move_etag(&x->media[media_before + i], etags_before);
    memcpy(x->etag + etags_before, m->etag, m->header->etag_bytes);
    memcpy(x->text + records_before, t->text, count * sizeof *x->text);
}

static stk_status join_files(stk_set_index *x, stk_error *err)
{
    stk_set_facts *const facts = &x->facts;
    x->record = stk_alloc_array(STK_TAG_INDEX, facts->record_count, sizeof *x->record);
    if (!x->only_lines) {
        x->media = stk_alloc_array(STK_TAG_INDEX, facts->media_count, sizeof *x->media);
        x->text = stk_alloc_array(STK_TAG_INDEX, facts->record_count, sizeof *x->text);
        x->etag = stk_alloc(STK_TAG_INDEX, facts->etag_bytes);
    }
    if (!x->record || (!x->only_lines && (!x->media || !x->text || !x->etag)))
        return stk_fail(err, STK_ERR_NOMEM, "out of memory: the facts of %llu records", (unsigned long long)facts->record_count);
    uint64_t records = 0, media = 0, etags = 0;
    for (uint32_t f = 0; f < x->file_count; f++) {
        join_file(x, f, records, media, etags);
        records += records_of(&x->file[f])->header->record_count;
        media += records_of(&x->file[f])->header->media_count;
        etags += records_of(&x->file[f])->header->etag_bytes;
    }
    facts->record = x->record;
    if (x->only_lines) return STK_OK;
    stk_id_set ids;
    STK_TRY(stk_id_set_init(&ids, records, err));
    for (uint64_t i = 0; i < records; i++)
        if (x->record[i].id_hash && stk_id_set_add(&ids, x->record[i].id_hash)) x->record[i].flags |= STK_RECORD_ID_REPEATED;
    stk_id_set_deinit(&ids);
    facts->media = x->media;
    facts->etag = x->etag;
    facts->text = x->text;
    return STK_OK;
}

/* Records that the lists name get their reason, and the digest of the set tells that they do. */
static stk_status leave_out(stk_set_index *x, stk_error *err)
{
    stk_set_facts *const facts = &x->facts;
    uint64_t count = 0, records_before = 0;
    for (uint32_t f = 0; f < x->file_count; f++) count += stk_exclude_count(&x->file[f].excluded);
    x->words_count += count;
    if (!count) return STK_OK;
    if (!x->record) {
        x->record = stk_alloc_array(STK_TAG_INDEX, facts->record_count, sizeof *x->record);
        if (!x->record) return stk_fail(err, STK_ERR_NOMEM, "out of memory: the facts of %llu records", (unsigned long long)facts->record_count);
        memcpy(x->record, facts->record, facts->record_count * sizeof *x->record);
        facts->record = x->record;
    }
    XXH3_state_t state;
    XXH3_128bits_reset(&state);
    XXH3_128bits_update(&state, facts->content_digest, sizeof facts->content_digest);
    for (uint32_t f = 0; f < x->file_count; f++) {
        for (size_t i = 0; i < stk_exclude_count(&x->file[f].excluded); i++) {
            const uint64_t at = records_before + stk_exclude_at(&x->file[f].excluded, i)->record_index;
            x->record[at].reason = STK_REASON_EXCLUDED;
            XXH3_128bits_update(&state, &at, sizeof at);
        }
        records_before += records_of(&x->file[f])->header->record_count;
    }
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(&state));
    memcpy(facts->content_digest, canonical.digest, sizeof facts->content_digest);
    return STK_OK;
}

static uint64_t words_in(const part_file *part)
{
    return part->view.header ? part->view.header->words_count : 0;
}

static stk_status join(stk_set_index *x, stk_error *err)
{
    stk_set_facts *const facts = &x->facts;
    const char **const paths = stk_alloc_array(STK_TAG_INDEX, x->file_count, sizeof *paths);
    uint8_t (*const digests)[32] = stk_alloc_array(STK_TAG_INDEX, x->file_count, sizeof *digests);
    facts->file = paths;
    if (!paths || !digests) {
        stk_free(digests);
        return stk_fail(err, STK_ERR_NOMEM, "out of memory: %u manifests", x->file_count);
    }
    facts->file_count = x->file_count;
    for (uint32_t f = 0; f < x->file_count; f++) {
        const stk_index_view *const view = records_of(&x->file[f]);
        paths[f] = x->file[f].path;
        memcpy(digests[f], view->header->key.manifest_digest, 16);
        memcpy(digests[f] + 16, view->seal->content_digest, 16);
        facts->record_count += view->header->record_count;
        facts->media_count += view->header->media_count;
        facts->etag_bytes += view->header->etag_bytes;
        x->blank_lines += view->header->blank_lines;
        for (int p = 0; p < STK_INDEX_PARTS; p++) x->words_count += words_in(&x->file[f].part[p]);
    }
    stk_index_hash(facts->content_digest, digests, x->file_count * sizeof *digests);
    stk_free(digests);
    if (x->only_lines && x->facts_file) { /* there are no media facts that would tell what it says */
        uint8_t both[32];
        memcpy(both, facts->content_digest, 16);
        memcpy(both + 16, x->stated.digest, 16);
        stk_index_hash(facts->content_digest, both, sizeof both);
    }
    if (x->file_count != 1) return join_files(x, err);
    facts->record = records_of(&x->file[0])->record;
    if (x->only_lines) return STK_OK;
    facts->media = x->file[0].part[STK_INDEX_MEDIA].view.media;
    facts->etag = x->file[0].part[STK_INDEX_MEDIA].view.etag;
    facts->text = x->file[0].part[STK_INDEX_TEXT].view.text;
    return STK_OK;
}

/* --- open, close, words --- */

stk_status stk_set_index_open(stk_set_index **out, const stk_index_spec *spec, stk_index_work *work, stk_error *err)
{
    *out = NULL;
    stk_index_work unasked = {0};
    if (!work) work = &unasked;
    stk_set_index *x = stk_alloc(STK_TAG_INDEX, sizeof *x);
    if (x) x->file = stk_alloc_array(STK_TAG_INDEX, spec->file_count, sizeof *x->file);
    stk_status status = STK_OK;
    if (!x || !x->file) status = stk_fail(err, STK_ERR_NOMEM, "out of memory: the index of %s", spec->name);
    else {
        x->only_lines = spec->mode == STK_INDEX_STREAM;
        x->store = spec->store;
    }
    stk_record_rules rules = *spec->record_rules;
    stk_index_spec stated = *spec;
    if (status == STK_OK && spec->facts_file) {
        status = bring_facts(x, spec, work, err);
        rules.stated = &x->stated;
        stated.record_rules = &rules;
    }
    for (uint32_t f = 0; status == STK_OK && f < spec->file_count; f++) {
        x->file_count = f + 1;
        stk_exclude_init(&x->file[f].excluded);
        x->file[f].path = stk_strdup(STK_TAG_INDEX, spec->file[f]);
        status = x->file[f].path ? bring_file(&stated, &x->file[f], work, err)
                                 : stk_fail(err, STK_ERR_NOMEM, "out of memory: the index of %s", spec->name);
    }
    if (status == STK_OK) status = join(x, err);
    if (status == STK_OK) status = leave_out(x, err);
    if (status < 0) {
        stk_set_index_close(&x);
        return status;
    }
    *out = x;
    return STK_OK;
}

static void close_file(set_file *file)
{
    stk_map_close(&file->manifest);
    for (int p = 0; p < STK_INDEX_PARTS; p++) stk_map_close(&file->part[p].map);
    stk_exclude_deinit(&file->excluded);
    stk_free(file->path);
    stk_free(file->data_path);
}

void stk_set_index_close(stk_set_index **index)
{
    stk_set_index *const x = *index;
    *index = NULL;
    if (!x) return;
    for (uint32_t f = 0; f < x->file_count; f++) close_file(&x->file[f]);
    if (x->facts_file) close_file(x->facts_file);
    stk_free(x->facts_file);
    stk_free(x->file);
    stk_free((void *)(uintptr_t)x->facts.file);
    stk_free(x->record);
    stk_free(x->media);
    stk_free(x->text);
    stk_free(x->etag);
    stk_free(x);
}

const stk_set_facts *stk_set_index_facts(const stk_set_index *index)
{
    return &index->facts;
}

const char *stk_set_index_data_path(const stk_set_index *index, uint32_t file_index)
{
    return index->file[file_index].data_path;
}

const stk_stated_sizes *stk_set_index_stated(const stk_set_index *index)
{
    return index->facts_file ? &index->stated : NULL;
}

uint64_t stk_set_index_blank_lines(const stk_set_index *index)
{
    return index->blank_lines;
}

uint64_t stk_set_index_words_count(const stk_set_index *index)
{
    return index->words_count;
}

stk_index_words stk_set_index_words_at(const stk_set_index *index, uint64_t at)
{
    uint64_t records_before = 0;
    for (uint32_t f = 0; f < index->file_count; f++) {
        for (int p = 0; p < STK_INDEX_PARTS; p++) {
            const part_file *const part = &index->file[f].part[p];
            if (at < words_in(part)) {
                const stk_index_note *const note = &part->view.note[at];
                return (stk_index_words){records_before + note->record_index, (stk_reason)note->reason, note->message};
            }
            at -= words_in(part);
        }
        const stk_exclude_list *const excluded = &index->file[f].excluded;
        if (at < stk_exclude_count(excluded)) {
            const stk_excluded *const entry = stk_exclude_at(excluded, at);
            return (stk_index_words){records_before + entry->record_index, STK_REASON_EXCLUDED, entry->id};
        }
        at -= stk_exclude_count(excluded);
        records_before += records_of(&index->file[f])->header->record_count;
    }
    return (stk_index_words){.message = ""};
}

/* --- leaving records out --- */

/* Join what is to be left out of one file with its list on disk, alone. */
static stk_status save_excluded(const stk_index_store *store, const set_file *file, const stk_excluded *more, size_t count,
                                bool start_over, stk_error *err)
{
    if (count == 0 && (!start_over || access(file->exclude_path, F_OK))) return STK_OK;
    const stk_index_header *const header = records_of(file)->header;
    char path[4200];
    stk_journal lock;
    stk_status status;
    snprintf(path, sizeof path, "%s.part", file->exclude_path);
    while ((status = stk_journal_lock(&lock, path, err)) == STK_AGAIN)
        nanosleep(&(struct timespec){.tv_nsec = WAIT_MS * 1000000L}, NULL);
    STK_TRY(status);
    stk_exclude_list list;
    stk_exclude_init(&list);
    if (!start_over) status = stk_exclude_read(&list, file->exclude_path, &header->key, header->record_count, err);
    if (status == STK_OK) status = stk_exclude_add(&list, more, count, err);
    if (status == STK_OK) status = stk_exclude_save(&list, file->exclude_path, &header->key, err);
    if (status == STK_OK && store && store->push) status = store->push(store->context, file->exclude_path, err);
    stk_exclude_deinit(&list);
    stk_journal_close(&lock, false);
    if (status < 0) stk_error_stage(err, STK_STAGE_INDEX);
    return status;
}

stk_status stk_set_index_exclude(const stk_set_index *index, const stk_index_words *record, size_t count, bool start_over, stk_error *err)
{
    stk_excluded *const more = stk_alloc_array(STK_TAG_INDEX, count, sizeof *more);
    if (!more) return stk_fail(err, STK_ERR_NOMEM, "out of memory: %zu records to leave out", count);
    stk_status status = STK_OK;
    uint64_t records_before = 0;
    for (uint32_t f = 0; status == STK_OK && f < index->file_count; f++) {
        const uint64_t records = records_of(&index->file[f])->header->record_count;
        size_t here = 0;
        for (size_t i = 0; i < count; i++) {
            const uint64_t at = record[i].record_index - records_before;
            if (record[i].record_index < records_before || at >= records) continue;
            more[here] = (stk_excluded){.record_index = at, .line = index->facts.record[record[i].record_index].line};
            snprintf(more[here].id, sizeof more->id, "%s", record[i].message);
            for (char *c = more[here].id; *c; c++)
                if ((uint8_t)*c < 0x20) *c = '?'; /* an entry is one line */
            here++;
        }
        status = save_excluded(index->store, &index->file[f], more, here, start_over, err);
        records_before += records;
    }
    stk_free(more);
    return status;
}
