/* run_rules.c - the translation of options into rules. */
#include "engine/run_rules.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "engine/option_table.h"
#include "manifest/index_file.h"
#include "schema/place.h"

typedef struct resolver {
    stk_rules *rules;
    const stk_options *options;
    const stk_index_progress *progress; /* may be NULL */
    char folder[PATH_MAX]; /* that relative paths start from */
    stk_error *err;
} resolver;

static stk_status nomem(const resolver *r)
{
    return stk_fail(r->err, STK_ERR_NOMEM, "out of memory: options");
}

static stk_status fail_option(const resolver *r, const char *option, const char *format, const char *word)
{
    char message[200];
    snprintf(message, sizeof message, format, word);
    const stk_status status = stk_fail(r->err, STK_ERR_OPTION, "%s: %s", option, message);
    if (r->options->file) stk_error_file(r->err, r->options->file, 0);
    return status;
}

/* An absolute path of the pool; *out NULL for NULL. */
static stk_status resolve_path(const resolver *r, const char **out, const char *path)
{
    *out = NULL;
    if (!path) return STK_OK;
    char joined[PATH_MAX];
    STK_TRY(stk_path_join(joined, sizeof joined, r->folder, path, r->err));
    const size_t size = strlen(joined) + 1;
    char *const copy = stk_pool_take(&r->rules->pool, size);
    if (!copy) return nomem(r);
    memcpy(copy, joined, size);
    /* "folder/" and "folder" are one. */
    for (size_t end = size - 1; end > 1 && copy[end - 1] == '/'; end--) copy[end - 1] = 0;
    *out = copy;
    return STK_OK;
}

/* A copy in the pool: rules outlive options.  data NULL for NULL, and where there is no memory (*no_memory is set). */
static stk_str keep(const resolver *r, const char *text, bool *no_memory)
{
    if (!text) return (stk_str){0};
    const size_t size = strlen(text);
    char *const copy = stk_pool_take(&r->rules->pool, size + 1);
    if (!copy) {
        *no_memory = true;
        return (stk_str){0};
    }
    memcpy(copy, text, size);
    return (stk_str){copy, size};
}

/* The set's own value, or the run's. */
static const char *either(const char *own, const char *inherited)
{
    return own ? own : inherited;
}

static int choice(const char *value, const char *const *names)
{
    int at = 0;
    while (names[at] && strcmp(names[at], value) != 0) at++;
    return names[at] ? at : 0; /* the reader of options lets no other pass */
}

/* --- one data set --- */

static stk_status resolve_columns(const resolver *r, stk_record_rules *record, const stk_string_map *columns)
{
    const struct { const char *name; stk_str *to; } known[] = {
        {"id", &record->id_column}, {"messages", &record->messages_column}, {"conversations", &record->messages_column},
        {"images", &record->images_column}, {"image", &record->images_column}, {"videos", &record->videos_column},
        {"audios", &record->audios_column}, {"tools", &record->tools_column}, {"system", &record->system_column}};
    bool no_memory = false;
    for (size_t i = 0; i < columns->count; i++) {
        size_t k = 0;
        while (k < sizeof known / sizeof *known && strcmp(known[k].name, columns->key[i]) != 0) k++;
        if (k == sizeof known / sizeof *known)
            return fail_option(r, "columns", "\"%.60s\" is none of id, messages, images, videos, audios, tools, system", columns->key[i]);
        *known[k].to = keep(r, columns->value[i], &no_memory);
    }
    return no_memory ? nomem(r) : STK_OK;
}

static stk_status resolve_roles(const resolver *r, stk_record_rules *record, const stk_string_map *roles)
{
    static const char *const names[] = {"system", "user", "assistant", "tool", NULL};
    stk_role_mapping *const mapping = stk_pool_take(&r->rules->pool, roles->count * sizeof *mapping);
    bool no_memory = !mapping;
    for (size_t i = 0; !no_memory && i < roles->count; i++) {
        mapping[i].name = keep(r, roles->key[i], &no_memory);
        int role = 0;
        while (names[role] && strcmp(names[role], roles->value[i]) != 0) role++;
        if (!names[role]) return fail_option(r, "roles", "\"%.60s\" is none of system, user, assistant, tool", roles->value[i]);
        mapping[i].role = (stk_role)role;
    }
    record->role = mapping;
    record->role_count = roles->count;
    return no_memory ? nomem(r) : STK_OK;
}

/* Whether an entry of `allow` is a host: letters, digits, hyphens and dots inside, and no folder of that name. */
static bool is_host(const resolver *r, const char *entry)
{
    const size_t size = strlen(entry);
    if (!strchr(entry, '.') || entry[0] == '.' || entry[size - 1] == '.' || strstr(entry, "..")) return false;
    if (strspn(entry, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-.:") != size) return false;
    char path[PATH_MAX];
    return stk_path_join(path, sizeof path, r->folder, entry, NULL) == STK_OK && access(path, F_OK) != 0;
}

/* A place as places.h and records take it: a folder made absolute, or what is remote as it is. */
static stk_status resolve_place(const resolver *r, const char **out, const char *place)
{
    bool no_memory = false;
    if (stk_address_is_remote(stk_str_of(place))) {
        *out = keep(r, place, &no_memory).data;
        return no_memory ? nomem(r) : STK_OK;
    }
    return resolve_path(r, out, place);
}

static stk_status resolve_allowed(const resolver *r, const char **out, const char *entry)
{
    char host[300];
    if (is_host(r, entry) && strlen(entry) < 256) {
        snprintf(host, sizeof host, "https://%s", entry);
        entry = host;
    }
    const stk_str text = stk_str_of(entry);
    if (strstr(entry, "://") && !stk_address_is_remote(text))
        return fail_option(r, "allow", "%.80s is neither a folder nor s3://BUCKET nor https://HOST", entry);
    const size_t host_bytes = stk_address_is_remote(text) ? stk_place_of(text).size_bytes : 0;
    if (host_bytes && !stk_address_is_s3(text) && entry[host_bytes] && strcmp(entry + host_bytes, "/") != 0)
        return fail_option(r, "allow", "%.80s: of a URL only https://HOST is compared: write that", entry);
    if (host_bytes && (strchr("/:", entry[host_bytes - 1]) || memchr(entry, '@', host_bytes)))
        return fail_option(r, "allow", "%.80s names no bucket or host", stk_address_is_s3(text) ? entry : "a URL");
    return resolve_place(r, out, entry);
}

/* A manifest that is a URL lies on a host that is allowed by name. */
static stk_status check_hosts(const resolver *r, const stk_set_rules *set)
{
    for (size_t i = 0; i < set->files.count; i++) {
        const stk_str path = stk_str_of(set->files.path[i]), place = stk_place_of(path);
        if (!stk_address_is_remote(path) || stk_address_is_s3(path) || stk_places_hold_address(r->rules->endpoints, path)) continue;
        char host[200];
        snprintf(host, sizeof host, "%.*s", (int)place.size_bytes, place.data);
        return fail_option(r, "data", "a manifest on a host that is not allowed: add allow: ['%.120s']", host);
    }
    return STK_OK;
}

/* Media start from media_root, or from the manifest's own folder: then all files of a set must share it. */
static stk_status resolve_places(const resolver *r, stk_set_rules *set, const stk_data_options *data)
{
    char own[PATH_MAX], other[PATH_MAX];
    STK_TRY(stk_path_folder(own, sizeof own, set->files.path[0], r->err));
    const char *root = NULL, *manifest_folder;
    if (data->media_root && strstr(data->media_root, "://") && !stk_address_is_s3(stk_str_of(data->media_root)))
        return fail_option(r, "media_root", "%.80s is neither a folder nor an s3:// prefix", data->media_root);
    if (data->media_root) STK_TRY(resolve_place(r, &root, data->media_root));
    STK_TRY(resolve_place(r, &manifest_folder, own));
    for (size_t i = 1; !root && i < set->files.count; i++) {
        STK_TRY(stk_path_folder(other, sizeof other, set->files.path[i], r->err));
        if (strcmp(own, other) != 0)
            return fail_option(r, "data", "the files of %.60s lie in several folders: set its media_root", data->name);
    }
    const stk_string_list *const allow = &r->options->allow;
    stk_str *const place = stk_pool_take(&r->rules->pool, (allow->count + 2) * sizeof *place);
    if (!place) return nomem(r);
    place[set->place_count++] = stk_str_of(root ? root : manifest_folder);
    place[set->place_count++] = stk_str_of(manifest_folder);
    for (size_t i = 0; i < allow->count; i++) {
        const char *allowed;
        STK_TRY(resolve_allowed(r, &allowed, allow->item[i]));
        place[set->place_count++] = stk_str_of(allowed);
    }
    set->place = place;
    set->record.media_root = place[0];
    set->record.allow = (stk_str_list){place + 1, set->place_count - 1};
    return STK_OK;
}

static stk_status resolve_facts(const resolver *r, stk_set_rules *set, const stk_data_options *data)
{
    struct stat info;
    if (!data->facts) return STK_OK;
    if (strstr(data->facts, "://") && !stk_address_is_s3(stk_str_of(data->facts)))
        return fail_option(r, "facts", "%.120s is neither a file nor an s3:// object", data->facts);
    STK_TRY(resolve_place(r, &set->facts_file, data->facts));
    if (stk_address_is_remote(stk_str_of(set->facts_file)) || (access(set->facts_file, R_OK) == 0 && stat(set->facts_file, &info) == 0 && S_ISREG(info.st_mode))) return STK_OK;
    return fail_option(r, "facts", "%.150s is no file that can be read", set->facts_file);
}

static stk_status resolve_text(const resolver *r, stk_set_rules *set, const stk_set_options *own, const stk_set_options *run)
{
    static const char *const labels[] = {"answers", "last", "finetune", NULL};
    static const char *const control[] = {"plain", "sanitize", "reference", NULL};
    set->text.labels = (stk_label_rule)choice(either(own->labels, run->labels), labels);
    set->text.control_tokens = (stk_control_rule)choice(either(own->control_tokens, run->control_tokens), control);
    const stk_string_list *const tokens = own->allow_control_tokens.item ? &own->allow_control_tokens : &run->allow_control_tokens;
    stk_str *const item = stk_pool_take(&r->rules->pool, tokens->count * sizeof *item);
    bool no_memory = !item;
    for (size_t i = 0; !no_memory && i < tokens->count; i++) item[i] = keep(r, tokens->item[i], &no_memory);
    set->text.allow_control_tokens = (stk_str_list){item, tokens->count};

    const stk_template_options *const t = own->chat_template.name || own->chat_template.declared ? &own->chat_template : &run->chat_template;
    set->chat_template = t;
    const stk_template_role *const from[] = {&t->system, &t->user, &t->assistant, &t->tool};
    stk_turn_format *const f = &set->turn_format;
    stk_turn_format_role *const to[] = {&f->system, &f->user, &f->assistant, &f->tool};
    for (int i = 0; i < 4; i++)
        *to[i] = (stk_turn_format_role){.before = keep(r, from[i]->before, &no_memory), .after = keep(r, from[i]->after, &no_memory),
                                        .trains_text = from[i]->train_text, .trains_after = from[i]->train_after,
                                        .given = from[i]->before || from[i]->after};
    f->image = keep(r, t->image, &no_memory);
    f->video = keep(r, t->video, &no_memory);
    f->default_system = keep(r, t->default_system, &no_memory);
    return no_memory ? nomem(r) : STK_OK;
}

/* "auto" is what the profile's reference does (spec-qwen3vl.md section 0.1). */
static bool ignores_orientation(stk_profile profile, const char *value)
{
    if (strcmp(value, "auto") == 0) return profile == STK_PROFILE_QWEN_VL_UTILS;
    return strcmp(value, "ignore") == 0;
}

static stk_alpha_rule alpha_of(stk_profile profile, const char *value)
{
    if (strcmp(value, "white") == 0) return STK_ALPHA_WHITE;
    if (strcmp(value, "auto") == 0 && profile == STK_PROFILE_QWEN_VL_UTILS) return STK_ALPHA_WHITE_RGBA;
    return STK_ALPHA_DROP;
}

static stk_status resolve_where(const resolver *r, stk_set_rules *set, const stk_data_options *data)
{
    if (!data->where) return STK_OK;
    stk_where *const where = stk_pool_take(&r->rules->pool, sizeof *where);
    if (!where) return nomem(r);
    stk_error words = {0};
    if (stk_where_parse(where, data->where, &words) < 0) {
        char option[80];
        snprintf(option, sizeof option, "data.%.60s.where", data->name);
        return fail_option(r, option, "%.190s", words.message);
    }
    set->where = where;
    return STK_OK;
}

static stk_status resolve_set(const resolver *r, stk_set_rules *set, const stk_data_options *data)
{
    static const char *const formats[] = {"", "llava", "openai", "ms-swift", "sharegpt", NULL};
    static const char *const spaces[] = {"keep", "strip", NULL};
    const stk_set_options *const own = &data->set, *const run = &r->options->set;
    bool no_memory = false;
    set->name = keep(r, data->name, &no_memory).data;
    set->text.system = keep(r, data->system, &no_memory);
    if (no_memory) return nomem(r);
    STK_TRY(stk_manifest_files(&set->files, (const char *const *)data->path.item, data->path.count, r->folder,
                               &r->rules->manifest_store, r->err));
    STK_TRY(check_hosts(r, set));
    set->record.dialect = data->format ? (stk_dialect)choice(data->format, formats) : STK_DIALECT_DETECT;
    set->record.tag_space = (stk_tag_space)choice(either(own->tag_space, run->tag_space), spaces);
    set->record.limits = &r->rules->limits;
    STK_TRY(resolve_columns(r, &set->record, &data->columns));
    STK_TRY(resolve_roles(r, &set->record, &data->roles));
    STK_TRY(resolve_places(r, set, data));
    STK_TRY(resolve_facts(r, set, data));
    STK_TRY(resolve_text(r, set, own, run));
    set->pixels.min_px = (uint64_t)(own->min_pixels ? own->min_pixels : run->min_pixels);
    set->pixels.max_px = (uint64_t)(own->max_pixels ? own->max_pixels : run->max_pixels);
    set->pixels.profile = r->rules->profile;
    set->pixels.ignore_orientation = ignores_orientation(r->rules->profile, either(own->orientation, run->orientation));
    set->pixels.alpha = alpha_of(r->rules->profile, either(own->alpha, run->alpha));
    STK_TRY(resolve_where(r, set, data));
    set->first = (uint64_t)data->first;
    set->overlong_is_error = strcmp(either(own->overlong, run->overlong), "error") == 0;
    set->pixels.shrinks_overlong = strcmp(either(own->overlong, run->overlong), "shrink") == 0;
    set->weight = data->weight;
    const double milli = data->epochs == 0 ? 1000 : data->epochs * 1000;
    set->epochs_milli = (uint32_t)(milli + 0.5);
    if (fabs(milli - set->epochs_milli) > 1e-6 || set->epochs_milli == 0)
        return fail_option(r, "data", "epochs of %.60s: at most three decimals", data->name);
    return STK_OK;
}

/* --- the run --- */

static stk_status find_folder(resolver *r)
{
    char folder[PATH_MAX] = ".";
    if (r->options->file) STK_TRY(stk_path_folder(folder, sizeof folder, r->options->file, r->err));
    if (realpath(folder, r->folder)) return STK_OK;
    const stk_status status = stk_fail_errno(r->err, "cannot find the folder of the configuration");
    stk_error_file(r->err, folder, 0);
    return status;
}

static stk_status resolve_batch(resolver *r)
{
    const stk_schedule *const s = &r->options->batch_schedule;
    stk_rules *const rules = r->rules;
    rules->batch_count = s->count ? (uint32_t)s->count : 1;
    rules->batch = stk_pool_take(&rules->pool, rules->batch_count * sizeof *rules->batch);
    if (!rules->batch) return nomem(r);
    rules->batch[0] = (stk_batch_piece){0, (uint64_t)r->options->batch};
    for (uint32_t i = 0; i < s->count; i++) rules->batch[i] = (stk_batch_piece){(uint64_t)s->step[i], (uint64_t)s->rows[i]};
    return STK_OK;
}

/* --- stores --- */

/* Hosts that may have a private address: the configuration names them, as endpoint or in allow. */
static stk_status resolve_endpoints(const resolver *r)
{
    const stk_options *const o = r->options;
    stk_str *const host = stk_alloc_array(STK_TAG_OPTIONS, o->allow.count + 1, sizeof *host);
    if (!host) return nomem(r);
    size_t count = 0;
    stk_status status = STK_OK;
    if (o->endpoint) host[count++] = stk_place_of(stk_str_of(o->endpoint));
    for (size_t i = 0; status == STK_OK && i < o->allow.count; i++) {
        const char *allowed = NULL;
        status = resolve_allowed(r, &allowed, o->allow.item[i]);
        if (status == STK_OK && stk_address_is_remote(stk_str_of(allowed)) && !stk_address_is_s3(stk_str_of(allowed)))
            host[count++] = stk_str_of(allowed);
    }
    if (status == STK_OK) status = stk_places_create(&r->rules->endpoints, host, count, r->err);
    stk_free(host);
    return status;
}

static stk_status resolve_store(const resolver *r)
{
    static const char *const addressings[] = {"auto", "path", "virtual", NULL};
    const stk_options *const o = r->options;
    stk_source_config *const store = &r->rules->store;
    bool no_memory = false;
    STK_TRY(resolve_endpoints(r));
    *store = (stk_source_config){.io_threads = (int)o->io_threads, .endpoint = keep(r, o->endpoint, &no_memory).data,
                                 .region = keep(r, o->region, &no_memory).data,
                                 .profile_name = keep(r, o->profile_name, &no_memory).data,
                                 .addressing = (stk_addressing)choice(o->addressing, addressings),
                                 .requester_pays = strcmp(o->requester_pays, "false") != 0, .hedge = o->hedge,
                                 .anonymous = o->anonymous, .cache_bytes = (uint64_t)o->cache_bytes,
                                 .endpoints = r->rules->endpoints};
    if (no_memory) return nomem(r);
    if (r->rules->index_dir && r->rules->index_dir[0] == '/') store->tar_lists = r->rules->index_dir;
    STK_TRY(resolve_path(r, &store->ca, o->ca));
    STK_TRY(resolve_path(r, &store->cache_path, o->cache_path));
    r->rules->price_request = o->price_request;
    r->rules->price_transfer = o->price_transfer;
    STK_TRY(stk_remote_create(&r->rules->remote, store, r->err));
    stk_remote_watch(r->rules->remote, r->progress);
    r->rules->remote_files.remote = r->rules->remote;
    r->rules->remote_files.hosts = r->rules->endpoints;
    r->rules->remote_files.pool = &r->rules->pool;
    r->rules->manifest_store = stk_remote_manifest_store(&r->rules->remote_files);
    return STK_OK;
}

/* Once the manifests are there, their buckets are known to be readable. */
static stk_status resolve_read(const resolver *r)
{
    stk_rules *const rules = r->rules;
    size_t most = 0;
    for (uint32_t i = 0; i < rules->set_count; i++) most += rules->set[i].files.count;
    rules->read = stk_alloc_array(STK_TAG_OPTIONS, most + 1, sizeof *rules->read);
    if (!rules->read) return nomem(r);
    for (uint32_t i = 0; i < rules->set_count; i++)
        for (size_t f = 0; f < rules->set[i].files.count; f++) {
            const stk_str path = stk_str_of(rules->set[i].files.path[f]);
            const size_t before = rules->read_count;
            if (stk_address_is_s3(path) && (before == 0 || !stk_str_equal(stk_place_of(path), stk_place_of(rules->read[before - 1]))))
                rules->read[rules->read_count++] = path;
        }
    return STK_OK;
}

/* A folder for copies, when anything comes from a store. */
static stk_status resolve_copies(const resolver *r)
{
    stk_rules *const rules = r->rules;
    bool any = rules->remote_files.index_address != NULL;
    for (uint32_t i = 0; !any && i < rules->set_count; i++) {
        any |= rules->set[i].facts_file && stk_address_is_remote(stk_str_of(rules->set[i].facts_file));
        for (size_t f = 0; f < rules->set[i].files.count; f++) any |= stk_address_is_remote(stk_str_of(rules->set[i].files.path[f]));
    }
    char folder[PATH_MAX], mirror[PATH_MAX];
    if (any && !rules->index_dir) {
        STK_TRY(stk_remote_folder(folder, r->err));
        STK_TRY(resolve_path(r, &rules->copies, folder));
    }
    if (!rules->store.tar_lists) rules->store.tar_lists = rules->copies;
    if (rules->remote_files.index_address) {
        uint8_t digest[16];
        stk_index_hash(digest, rules->remote_files.index_address, strlen(rules->remote_files.index_address));
        snprintf(mirror, sizeof mirror, "%.4000s/index-%02x%02x%02x%02x%02x%02x%02x%02x", rules->copies, digest[0], digest[1], digest[2],
                 digest[3], digest[4], digest[5], digest[6], digest[7]);
        STK_TRY(resolve_path(r, &rules->index_dir, mirror));
    }
    rules->index_store = stk_remote_index_store(&rules->remote_files, rules->copies);
    return STK_OK;
}

static stk_status resolve_index_dir(const resolver *r)
{
    const char *const path = r->options->index_dir;
    if (!path || !strstr(path, "://")) return resolve_path(r, &r->rules->index_dir, path);
    const size_t bucket = stk_address_is_s3(stk_str_of(path)) ? stk_place_of(stk_str_of(path)).size_bytes : 0;
    if (bucket <= 5) return fail_option(r, "index_dir", "%.80s is neither a folder nor s3://BUCKET/PREFIX", path);
    bool no_memory = false;
    char *const address = (char *)(uintptr_t)keep(r, path, &no_memory).data;
    if (no_memory) return nomem(r);
    for (size_t end = strlen(address); end > bucket && address[end - 1] == '/'; end--) address[end - 1] = 0;
    r->rules->remote_files.index_address = address;
    return STK_OK;
}

static stk_status resolve_model(resolver *r)
{
    static const char *const profiles[] = {"hf", "pil-11", "pil-12", "pil-13", "qwen-vl-utils", "pil", NULL};
    STK_TRY(stk_options_check(r->options, r->err));
    STK_TRY(find_folder(r));
    const int profile = choice(r->options->profile, profiles);
    r->rules->profile = profiles[profile + 1] ? (stk_profile)profile : STK_PROFILE_PIL_13; /* the last name is a second one */
    return resolve_path(r, &r->rules->model_folder, r->options->model);
}

static stk_status resolve_run(resolver *r)
{
    static const char *const layouts[] = {"padded", "flat", "packed", NULL};
    static const char *const balances[] = {"none", "model", "model+vision", "auto", NULL};
    static const char *const targets[] = {"hf", "shifted", NULL};
    static const char *const positions[] = {"auto", "plain", "mrope", NULL};
    static const char *const forms[] = {"uint8", "float32", "bfloat16", NULL};
    const stk_options *const o = r->options;
    stk_rules *const rules = r->rules;
    STK_TRY(resolve_model(r));
    STK_TRY(resolve_index_dir(r));
    STK_TRY(resolve_path(r, &rules->dead_letter, o->dead_letter));
    STK_TRY(resolve_store(r));
    rules->limits = (stk_limits){.media_bytes = (uint64_t)o->limits.media_bytes, .media_px = (uint64_t)o->limits.media_pixels,
                                 .record_bytes = (uint64_t)o->limits.record_bytes, .json_depth = (uint32_t)o->limits.json_depth,
                                 .media_per_record = (uint32_t)o->limits.media_per_record,
                                 .text_bytes = (uint64_t)o->limits.text_bytes, .jpeg_scans = (uint32_t)o->limits.jpeg_scans};
    rules->layout = (stk_layout)choice(o->layout, layouts);
    rules->targets = (stk_targets)choice(o->targets, targets);
    rules->positions = (stk_positions)choice(o->positions, positions);
    rules->pixels = (stk_pixel_form)choice(o->pixels, forms);
    rules->stream = strcmp(o->index, "stream") == 0;
    const int balance = choice(o->balance, balances);
    rules->balance = balances[balance + 1] ? (stk_balance)balance : rules->stream ? STK_BALANCE_NONE : STK_BALANCE_BOTH;
    STK_TRY(resolve_batch(r));
    rules->set = stk_alloc_array(STK_TAG_OPTIONS, o->data_count, sizeof *rules->set);
    if (!rules->set) return nomem(r);
    for (size_t i = 0; i < o->data_count; i++) {
        rules->set_count = (uint32_t)i + 1;
        STK_TRY(resolve_set(r, &rules->set[i], &o->data[i]));
    }
    STK_TRY(resolve_read(r));
    return resolve_copies(r);
}

static stk_status make_rules(stk_rules **out, const stk_options *options, const stk_index_progress *progress, stk_status (*resolve)(resolver *r),
                             stk_error *err)
{
    *out = NULL;
    stk_rules *const rules = stk_alloc(STK_TAG_OPTIONS, sizeof *rules);
    if (!rules) return stk_fail(err, STK_ERR_NOMEM, "out of memory: options");
    stk_pool_init(&rules->pool, STK_TAG_OPTIONS);
    resolver r = {.rules = rules, .options = options, .progress = progress, .err = err};
    const stk_status status = resolve(&r);
    if (status < 0) {
        stk_error_stage(err, STK_STAGE_OPTIONS);
        stk_rules_destroy(rules);
        return status;
    }
    *out = rules;
    return STK_OK;
}

stk_status stk_rules_make(stk_rules **out, const stk_options *options, const stk_index_progress *progress, stk_error *err)
{
    return make_rules(out, options, progress, resolve_run, err);
}

static stk_status resolve_store_alone(resolver *r)
{
    STK_TRY(stk_options_check_store(r->options, r->err));
    STK_TRY(find_folder(r));
    return resolve_store(r);
}

stk_status stk_rules_make_store(stk_rules **out, const stk_options *options, stk_error *err)
{
    return make_rules(out, options, NULL, resolve_store_alone, err);
}

stk_status stk_rules_make_model(stk_rules **out, const stk_options *options, stk_error *err)
{
    return make_rules(out, options, NULL, resolve_model, err);
}

void stk_rules_destroy(stk_rules *rules)
{
    if (!rules) return;
    for (uint32_t i = 0; i < rules->set_count; i++) stk_manifest_files_free(&rules->set[i].files);
    stk_free(rules->set);
    stk_remote_destroy(rules->remote);
    stk_places_destroy(rules->endpoints);
    stk_free(rules->read);
    stk_pool_deinit(&rules->pool);
    stk_free(rules);
}
