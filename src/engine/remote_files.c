/* remote_files.c - lists, copies of manifests, and the files of an index on a store. */
#include "engine/remote_files.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "manifest/index_journal.h"
#include "schema/place.h"

/* Of a large object: so many parts under way, written in their order. */
enum { PART_BYTES = 8 << 20, PARTS = 8, WAIT_MS = 50 };
static const stk_ns REPORT_EVERY_NS = 200 * STK_MS;

/* --- lists --- */

typedef struct key_list {
    bool (*found)(void *to, stk_str key);
    void *to;
    bool stopped;
} key_list;

static bool take_entry(void *context, const stk_source_entry *entry)
{
    key_list *const list = context;
    list->stopped = !list->found(list->to, entry->key);
    return !list->stopped;
}

static stk_status list_keys(void *context, const char *address, bool (*found)(void *to, stk_str key), void *to, stk_error *err)
{
    const stk_remote_files *const files = context;
    stk_source *source;
    key_list list = {.found = found, .to = to};
    STK_TRY(stk_remote_source(files->remote, &source, err));
    const stk_status status = stk_source_list(source, stk_str_of(address), take_entry, &list, err);
    if (list.stopped) return STK_OK; /* whoever stopped it says why */
    if (status < 0) stk_error_file(err, address, 0);
    return status;
}

/* --- URLs with a query --- */

static stk_status hide(void *context, stk_str shown, const char *url, stk_error *err)
{
    stk_remote_files *const files = context;
    const size_t url_bytes = strlen(url) + 1;
    stk_hidden_url *const h = stk_pool_take(files->pool, sizeof *h);
    char *const copy = stk_pool_take(files->pool, url_bytes + shown.size_bytes);
    if (!h || !copy) return stk_fail(err, STK_ERR_NOMEM, "out of memory: a manifest's address");
    memcpy(copy, url, url_bytes);
    memcpy(copy + url_bytes, shown.data, shown.size_bytes);
    *h = (stk_hidden_url){files->hidden, {copy + url_bytes, shown.size_bytes}, copy};
    files->hidden = h;
    return STK_OK;
}

/* What to ask for, where a manifest is known by its address. */
static stk_str asked_address(const stk_remote_files *files, const char *address)
{
    const stk_hidden_url *h = files->hidden;
    while (h && !stk_str_is(h->shown, address)) h = h->next;
    return stk_str_of(h ? h->url : address);
}

stk_manifest_store stk_remote_manifest_store(stk_remote_files *files)
{
    return (stk_manifest_store){.context = files, .list = list_keys, .hide = hide};
}

/* Where an address may lead: a bucket is what the configuration names, a host is to be allowed. */
static const stk_places *places_of(const stk_remote_files *files, stk_str address)
{
    return stk_address_is_s3(address) ? NULL : files->hosts;
}

/* --- one object to a file --- */

/* Told how far a fetch is; its failure ends it. */
typedef struct listener {
    stk_status (*report)(void *to, uint64_t done, uint64_t total, stk_error *err);
    void *to;
} listener;

typedef struct fetching {
    stk_remote_files *files;
    stk_str address, etag;
    uint64_t total_bytes;
    listener listener;
    stk_remote_group group;
    stk_remote_request part[PARTS];
    uint8_t *buffer; /* PARTS of PART_BYTES and a pad */
    stk_save save;
} fetching;

/* What is there: its bytes and ETag.  The request stays, for these. */
static stk_status look(stk_remote_files *files, stk_str address, stk_remote_request *r, stk_error *err)
{
    stk_remote_group group;
    stk_remote_group_init(&group);
    *r = (stk_remote_request){.request = {.address = address, .places = places_of(files, address)}};
    uint8_t first[1 + STK_PAD_BYTES];
    if (!stk_address_is_s3(address)) { /* a signed URL is signed for GET */
        r->request.buffer = first;
        r->request.size_bytes = r->request.capacity_bytes = 1;
    }
    stk_status status = stk_remote_submit(files->remote, &group, r, err);
    while (status == STK_OK && !stk_remote_next(files->remote, &group, STK_FOREVER)) continue;
    stk_remote_group_deinit(&group);
    r->request.buffer = NULL;
    if (status == STK_OK && r->request.status < 0) {
        if (err) *err = r->request.error;
        status = r->request.status;
    }
    return status;
}

static stk_status submit_part(fetching *f, uint64_t at, stk_error *err)
{
    const uint64_t number = at / PART_BYTES;
    const uint64_t left = f->total_bytes - at;
    stk_remote_request *const r = &f->part[number % PARTS];
    *r = (stk_remote_request){.request = {.address = f->address,
                                          .etag = f->etag,
                                          .places = places_of(f->files, f->address),
                                          .offset = at,
                                          .size_bytes = left < PART_BYTES ? left : PART_BYTES,
                                          .priority = number,
                                          .buffer = f->buffer + number % PARTS * (PART_BYTES + STK_PAD_BYTES),
                                          .capacity_bytes = PART_BYTES}};
    return stk_remote_submit(f->files->remote, &f->group, r, err);
}

/* The answer to a part: all of its bytes, of the state that was looked at. */
static stk_status check_part(const stk_request *r, stk_error *err)
{
    if (r->changed || (r->status == STK_OK && r->got_bytes != r->size_bytes))
        return stk_fail(err, STK_ERR_MANIFEST, "it changed while it was fetched: run again");
    if (r->status < 0 && err) *err = r->error;
    return r->status;
}

/* Parts come in any order; each is written when those before it are. */
static stk_status write_parts(fetching *f, stk_error *err)
{
    bool here[PARTS] = {false};
    uint64_t written = 0, submitted = 0;
    stk_ns reported_ns = 0;
    while (written < f->total_bytes) {
        for (; submitted < f->total_bytes && submitted - written < (uint64_t)PARTS * PART_BYTES; submitted += PART_BYTES)
            STK_TRY(submit_part(f, submitted, err));
        const stk_request *const came = stk_remote_next(f->files->remote, &f->group, REPORT_EVERY_NS);
        if (came) {
            STK_TRY(check_part(came, err));
            here[came->priority % PARTS] = true;
        }
        for (uint64_t at; written < f->total_bytes && here[at = written / PART_BYTES % PARTS];) {
            const stk_request *const r = &f->part[at].request;
            STK_TRY(stk_save_write(&f->save, r->buffer, r->got_bytes, err));
            here[at] = false;
            written += r->got_bytes;
        }
        const stk_ns now = stk_now();
        if (f->listener.report && now - reported_ns >= REPORT_EVERY_NS) {
            reported_ns = now;
            STK_TRY(f->listener.report(f->listener.to, written, f->total_bytes, err));
        }
    }
    return STK_OK;
}

/* What is under way when it fails is called back: the buffers go. */
static void call_back(fetching *f)
{
    stk_source *source;
    if (!f->group.first || stk_remote_source(f->files->remote, &source, NULL) < 0) return;
    for (stk_remote_request *r = f->group.first; r; r = r->next) stk_source_cancel(source, &r->request);
    while (f->group.first) (void)stk_remote_next(f->files->remote, &f->group, STK_FOREVER);
}

/* looked: the answer to look(). */
static stk_status fetch_to(stk_remote_files *files, const stk_request *looked, const char *path, listener heard, stk_error *err)
{
    fetching *const f = stk_alloc(STK_TAG_ENGINE, sizeof *f);
    if (!f) return stk_fail(err, STK_ERR_NOMEM, "out of memory: fetching a file");
    *f = (fetching){.files = files, .address = looked->address, .etag = stk_str_of(looked->etag_is),
                    .total_bytes = looked->total_bytes, .listener = heard};
    stk_remote_group_init(&f->group);
    f->buffer = stk_alloc_array(STK_TAG_ENGINE, PARTS, PART_BYTES + STK_PAD_BYTES);
    stk_status status = f->buffer ? stk_save_open(&f->save, path, err) : stk_fail(err, STK_ERR_NOMEM, "out of memory: fetching a file");
    if (status == STK_OK) {
        status = write_parts(f, err);
        call_back(f);
        if (status == STK_OK) status = stk_save_commit(&f->save, err);
        else stk_save_abandon(&f->save);
    }
    stk_remote_group_deinit(&f->group);
    stk_free(f->buffer);
    stk_free(f);
    return status;
}

/* --- copies of manifests --- */

static bool is_here(const char *path, const stk_request *looked)
{
    struct stat info;
    return looked->etag_is[0] && stat(path, &info) == 0 && S_ISREG(info.st_mode) && (uint64_t)info.st_size == looked->total_bytes;
}

/* Copies of earlier states, and what was left of a fetch that was killed.  Only with the lock. */
static void remove_earlier(const char *path)
{
    char folder[4096], prefix[4096], stray[8300];
    if (stk_path_folder(folder, sizeof folder, path, NULL) < 0) return;
    const char *const name = strrchr(path, '/') + 1;
    snprintf(prefix, sizeof prefix, "%.*s", (int)(strrchr(name, '-') + 1 - name), name);
    DIR *const dir = opendir(folder);
    if (!dir) return;
    for (const struct dirent *entry; (entry = readdir(dir));) {
        if (strncmp(entry->d_name, prefix, strlen(prefix)) != 0 || strstr(entry->d_name, ".part")) continue;
        snprintf(stray, sizeof stray, "%s/%s", folder, entry->d_name);
        unlink(stray);
    }
    closedir(dir);
}

static stk_status name_copy(char path[4096], const char *folder, const char *address, const stk_request *looked, stk_error *err)
{
    char text[STK_ETAG_BYTES + 32], suffix[48];
    uint8_t digest[16];
    snprintf(text, sizeof text, "%s %llu", looked->etag_is, (unsigned long long)looked->total_bytes);
    stk_index_hash(digest, text, strlen(text));
    int at = snprintf(suffix, sizeof suffix, "copy-");
    for (int i = 0; i < 8; i++) at += snprintf(suffix + at, sizeof suffix - (size_t)at, "%02x", digest[i]);
    return stk_index_sidecar_path(path, folder, address, suffix, err);
}

/* The discipline of an index: look, lock, look again, make. */
static stk_status fetch_manifest(void *context, const char *address, const char *folder, char path[4096],
                                 stk_status (*report)(void *to, uint64_t done, uint64_t total, stk_error *err), void *to, stk_error *err)
{
    stk_remote_files *const files = context;
    stk_remote_request looked;
    char lock_path[4200];
    STK_TRY(look(files, asked_address(files, address), &looked, err));
    STK_TRY(name_copy(path, folder, address, &looked.request, err));
    if (is_here(path, &looked.request)) return STK_OK;
    (void)mkdir(folder, 0777); /* what is wrong with it shows with the lock */
    snprintf(lock_path, sizeof lock_path, "%s.part", path);
    for (;;) {
        stk_journal lock;
        stk_status status = stk_journal_lock(&lock, lock_path, err);
        if (status == STK_AGAIN) {
            STK_TRY(report(to, 0, looked.request.total_bytes, err));
            nanosleep(&(struct timespec){.tv_nsec = WAIT_MS * 1000000L}, NULL);
            continue;
        }
        STK_TRY(status);
        if (!is_here(path, &looked.request)) {
            remove_earlier(path);
            status = fetch_to(files, &looked.request, path, (listener){report, to}, err);
        }
        stk_journal_close(&lock, false);
        return status;
    }
}

/* --- an index on a store --- */

static stk_status address_of(const stk_remote_files *files, const char *path, char address[4096], stk_error *err)
{
    const char *const name = strrchr(path, '/');
    const int length = snprintf(address, 4096, "%s/%s", files->index_address, name ? name + 1 : path);
    return length < 4096 ? STK_OK : stk_fail(err, STK_ERR_OPTION, "index_dir is too long");
}

static bool is_missing(stk_status status, const stk_request *looked)
{
    return status == STK_ERR_MEDIA_MISSING || (status == STK_OK && looked->total_bytes == 0);
}

/* Stores say 403 of a key that is not there to callers without the right to list, as of one that may not be read. */
static bool is_kept_secret(stk_status status, const stk_request *looked)
{
    return status == STK_ERR_SYSTEM && looked->error.code == EACCES;
}

static stk_status pull(void *context, const char *path, stk_error *err)
{
    stk_remote_files *const files = context;
    char address[4096];
    stk_remote_request looked;
    STK_TRY(address_of(files, path, address, err));
    stk_status status = look(files, stk_str_of(address), &looked, err);
    if (is_missing(status, &looked.request)) return STK_AGAIN;
    if (is_kept_secret(status, &looked.request)) return STK_END;
    if (status == STK_OK) status = fetch_to(files, &looked.request, path, (listener){0}, err);
    if (status < 0) stk_error_stage(err, STK_STAGE_INDEX);
    return status;
}

/* A file that is no longer here leaves an object of no bytes, which is none. */
static stk_status push(void *context, const char *path, stk_error *err)
{
    stk_remote_files *const files = context;
    char address[4096];
    stk_map map = {0};
    stk_source *source;
    STK_TRY(address_of(files, path, address, err));
    STK_TRY(stk_remote_source(files->remote, &source, err));
    stk_status status = access(path, F_OK) == 0 ? stk_map_open(&map, path, err)
                        : errno == ENOENT       ? STK_OK
                                                : stk_fail_errno(err, "cannot look at %s, which is to be put on the store", path);
    if (status == STK_OK && map.size_bytes > STK_PUT_BYTES_MAX)
        status = stk_fail(err, STK_ERR_INDEX, "an index of %zu bytes, and a store takes 5 GiB at once: split the manifest, or set index_dir to a folder",
                          map.size_bytes);
    if (status == STK_OK) status = stk_source_put(source, stk_str_of(address), (stk_bytes){map.data, map.size_bytes}, err);
    if (status < 0) {
        stk_error_file(err, address, 0);
        stk_error_stage(err, STK_STAGE_INDEX);
    }
    stk_map_close(&map);
    return status;
}

stk_index_store stk_remote_index_store(stk_remote_files *files, const char *folder)
{
    return (stk_index_store){.context = files, .folder = folder, .fetch = fetch_manifest, .pull = files->index_address ? pull : NULL,
                             .push = files->index_address ? push : NULL};
}

/* --- the folder of copies --- */

stk_status stk_remote_folder(char path[4096], stk_error *err)
{
    const char *const cache = getenv("XDG_CACHE_HOME"), *const home = getenv("HOME");
    if (cache && cache[0] == '/') snprintf(path, 4096, "%.3900s/stoker", cache);
    else if (home && home[0] == '/') snprintf(path, 4096, "%.3900s/.cache/stoker", home);
    else return stk_fail(err, STK_ERR_OPTION, "no folder is known for copies of manifests: set index_dir, or XDG_CACHE_HOME");
    for (char *slash = path + 1; (slash = strchr(slash, '/')); slash++) {
        *slash = 0;
        (void)mkdir(path, 0777);
        *slash = '/';
    }
    /* For its user alone: who may read a bucket says the store, and manifests may hold presigned addresses. */
    if (mkdir(path, 0700) == 0 || errno == EEXIST) return STK_OK;
    const stk_status status = stk_fail_errno(err, "cannot make the folder for copies of manifests (set index_dir to another)");
    stk_error_file(err, path, 0);
    return status;
}
