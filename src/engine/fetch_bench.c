/* fetch_bench.c - objects are found, and then fetched again and again, with more and more requests under way.
 *
 * Times are those of the source's own histograms (store.c): of one request, from its first byte sent. */
#include <stoker/fetch_bench.h>

#include <sys/mman.h>
#include <sys/resource.h>

#include "base/clock.h"
#include "engine/run.h"
#include "engine/store_figures.h"
#include "schema/place.h"

enum { OBJECTS_MAX = 100000, LEAST = 8, MOST = 4096, FILE_THREADS = 1 };
static const uint64_t PIECE_BYTES_MAX = 8 << 20, BUFFER_BYTES_MAX = 4ull << 30;
static const stk_ns REPORT_EVERY_NS = 200 * STK_MS;
/* More requests that give less than this much more are not worth having. */
static const double WORTH = 1.05;

typedef struct bench {
    stk_rules *rules;
    stk_run *run; /* of a configuration: owns the rules */
    stk_source *source;
    stk_pool pool; /* of addresses */
    struct object {
        stk_str address;
        const stk_places *places; /* as for a run: where redirects may lead; of s3:// that the caller gave NULL */
    } *object;
    size_t object_count;
    uint64_t object_bytes, largest_bytes;
    stk_fetch_bench *out;
    const stk_fetch_progress *progress;
    stk_index_progress waiting; /* for stores: asks progress */
    stk_ns level_ns;
} bench;

/* --- objects --- */

static stk_status add_object(bench *b, const stk_places *places, stk_str prefix, stk_str rest, uint64_t size_bytes, stk_error *err)
{
    char *const copy = stk_pool_take(&b->pool, prefix.size_bytes + rest.size_bytes + 1);
    if (!copy) return stk_fail(err, STK_ERR_NOMEM, "out of memory: a list of objects");
    memcpy(copy, prefix.data, prefix.size_bytes);
    memcpy(copy + prefix.size_bytes, rest.data, rest.size_bytes);
    b->object[b->object_count++] = (struct object){{copy, prefix.size_bytes + rest.size_bytes}, places};
    b->object_bytes += size_bytes;
    if (size_bytes > b->largest_bytes) b->largest_bytes = size_bytes;
    return STK_OK;
}

typedef struct listing {
    bench *bench;
    stk_str bucket; /* "s3://bucket/" */
    stk_status status;
    stk_error *err;
} listing;

static bool take_entry(void *context, const stk_source_entry *entry)
{
    listing *const l = context;
    if (entry->size_bytes) l->status = add_object(l->bench, NULL, l->bucket, entry->key, entry->size_bytes, l->err);
    return l->status == STK_OK && l->bench->object_count < OBJECTS_MAX;
}

static stk_status list_address(bench *b, const char *address, stk_error *err)
{
    const stk_str text = stk_str_of(address);
    if (!stk_address_is_remote(text))
        return stk_fail(err, STK_ERR_OPTION, "%.100s: s3://BUCKET/PREFIX, https://HOST/PATH or a configuration is expected", address);
    if (!stk_address_is_s3(text)) return b->object_count < OBJECTS_MAX ? add_object(b, b->rules->endpoints, text, (stk_str){"", 0}, 0, err) : STK_OK;
    listing l = {.bench = b, .bucket = stk_place_of(text), .err = err};
    if (l.bucket.size_bytes <= 5) return stk_fail(err, STK_ERR_OPTION, "%.100s: write s3://BUCKET/PREFIX", address);
    char bucket[300];
    snprintf(bucket, sizeof bucket, "%.*s/", (int)(l.bucket.size_bytes < 298 ? l.bucket.size_bytes : 298), l.bucket.data);
    l.bucket = stk_str_of(bucket);
    const stk_status status = stk_source_list(b->source, text, take_entry, &l, err);
    if (l.status < 0) return l.status;
    return status == STK_ERR_INTERRUPTED && b->object_count == OBJECTS_MAX ? STK_OK : status;
}

/* The objects of a record. */
static stk_status take_record(bench *b, uint32_t s, uint64_t r, stk_buffer *bytes, stk_sample *sample, stk_error *err)
{
    const stk_run_set *const set = &b->run->set[s];
    if (set->facts.record[r].size_bytes > b->run->rules->limits.record_bytes) return STK_OK;
    STK_TRY(stk_run_read_record(b->run, s, r, bytes, err));
    stk_reason reason;
    const stk_status status = stk_record_parse(sample, &set->rules->record, (stk_str){(const char *)bytes->data, bytes->size_bytes}, &reason, err);
    if (status == STK_ERR_RECORD) return STK_OK;
    STK_TRY(status);
    for (size_t m = 0; m < sample->media_count && b->object_count < OBJECTS_MAX; m++)
        if (stk_address_is_on_store(sample->media[m].address)) STK_TRY(add_object(b, set->places, sample->media[m].address, (stk_str){"", 0}, 0, err));
    return STK_OK;
}

/* Of the manifests of a configuration, whose records are only found, not looked at. */
static stk_status take_manifests(bench *b, const stk_options *options, stk_error *err)
{
    stk_buffer bytes;
    stk_sample sample;
    stk_buffer_init(&bytes, STK_TAG_ENGINE, b->run->rules->limits.record_bytes + STK_PAD_BYTES);
    stk_sample_init(&sample);
    stk_status status = STK_OK;
    b->run->stream = true; /* an index of lines: no medium is asked about */
    for (uint32_t s = 0; status == STK_OK && s < b->run->set_count; s++) {
        status = stk_run_open_index(b->run, options, s, &b->waiting, NULL, err);
        const uint64_t records = status == STK_OK ? b->run->set[s].facts.record_count : 0;
        for (uint64_t r = 0; status == STK_OK && r < records && b->object_count < OBJECTS_MAX; r++)
            status = take_record(b, s, r, &bytes, &sample, err);
    }
    stk_sample_deinit(&sample);
    stk_buffer_deinit(&bytes);
    return status;
}

static stk_status find_objects(bench *b, const stk_options *options, const char *const *address, size_t count, stk_error *err)
{
    b->object = stk_alloc_array(STK_TAG_ENGINE, OBJECTS_MAX, sizeof *b->object);
    if (!b->object) return stk_fail(err, STK_ERR_NOMEM, "out of memory: a list of objects");
    stk_status status = count ? STK_OK : take_manifests(b, options, err);
    for (size_t i = 0; status == STK_OK && i < count; i++) status = list_address(b, address[i], err);
    STK_TRY(status);
    if (!b->object_count)
        return count ? stk_fail(err, STK_ERR_MEDIA_MISSING, "there is no object under %.180s%s", address[0],
                                count > 1 ? ", nor under the other addresses" : "")
                     : stk_fail(err, STK_ERR_MEDIA_MISSING, "the manifests name no object of a store");
    b->out->objects = b->object_count;
    b->out->object_bytes = b->object_bytes;
    b->out->piece_bytes = b->largest_bytes && b->largest_bytes < PIECE_BYTES_MAX ? b->largest_bytes : PIECE_BYTES_MAX;
    return STK_OK;
}

/* --- a level --- */

typedef struct level {
    bench *bench;
    stk_fetch_level *figures;
    stk_request *request; /* in_flight */
    uint8_t *buffer;
    size_t buffer_bytes, under_way, next;
    stk_source_metrics before;
    struct rusage usage_before;
    stk_ns begin_ns;
} level;

static stk_ns cpu_ns(const struct rusage *u)
{
    return (u->ru_utime.tv_sec + u->ru_stime.tv_sec) * STK_S + (u->ru_utime.tv_usec + u->ru_stime.tv_usec) * 1000;
}

static void sum_up(level *l)
{
    stk_fetch_level *const f = l->figures;
    stk_source_metrics now;
    struct rusage usage;
    stk_source_get_metrics(l->bench->source, &now);
    getrusage(RUSAGE_SELF, &usage);
    stk_store_metrics of;
    stk_store_figures_between(&of, &l->before, &now);
    f->wall_ns = stk_now() - l->begin_ns;
    const double seconds = (double)(f->wall_ns ? f->wall_ns : 1) / (double)STK_S;
    f->objects_per_s = (double)f->objects / seconds;
    f->bytes_per_s = (double)f->bytes / seconds;
    f->cpu_ns_per_object = f->objects ? (double)(cpu_ns(&usage) - cpu_ns(&l->usage_before)) / (double)f->objects : 0;
    f->first_byte = of.first_byte;
    f->whole = of.whole;
    f->requests = of.requests;
    f->retries = of.retries;
    f->throttles = of.throttles;
    f->connections = of.connections;
}

static void submit(level *l, stk_request *r)
{
    bench *const b = l->bench;
    const size_t at = (size_t)(r - l->request);
    const size_t each = (size_t)stk_round_up(b->out->piece_bytes + STK_PAD_BYTES, STK_ALIGN_BYTES);
    *r = (stk_request){.address = b->object[l->next].address, .places = b->object[l->next].places, .size_bytes = b->out->piece_bytes, .buffer = l->buffer + at * each,
                       .capacity_bytes = b->out->piece_bytes};
    l->next = (l->next + 1) % b->object_count;
    l->under_way++;
    stk_source_submit(b->source, r);
}

/* One object that fails is counted; a store that does not answer ends it all. */
static stk_status take_answer(level *l, const stk_request *r, stk_error *err)
{
    l->under_way--;
    if (r->status == STK_OK) {
        l->figures->objects++;
        l->figures->bytes += r->got_bytes;
        return STK_OK;
    }
    if (r->status == STK_ERR_INTERRUPTED) return STK_OK;
    l->figures->failed++;
    char *const words = l->bench->out->failure;
    if (!words[0]) snprintf(words, sizeof l->bench->out->failure, "%.120s: %.120s", r->error.file, r->error.message);
    if (r->status != STK_ERR_NETWORK && r->status != STK_ERR_NOMEM) return STK_OK;
    if (err) *err = r->error;
    return r->status;
}

static stk_status run_level(level *l, stk_error *err)
{
    const stk_ns end = l->begin_ns + l->bench->level_ns;
    stk_ns reported_ns = l->begin_ns;
    stk_status status = STK_OK;
    for (uint32_t i = 0; i < l->figures->in_flight; i++) submit(l, &l->request[i]);
    while (status == STK_OK && l->under_way) {
        stk_request *const r = stk_source_reap(l->bench->source, REPORT_EVERY_NS);
        const stk_ns now = stk_now();
        if (r) status = take_answer(l, r, err);
        /* What is still under way belongs to no level; but a store that has not said anything yet is waited for. */
        if (now >= end && l->figures->objects + l->figures->failed) break;
        if (r && status == STK_OK) submit(l, r);
        if (now - reported_ns < REPORT_EVERY_NS) continue;
        reported_ns = now;
        sum_up(l);
        if (!l->bench->progress->report(l->bench->progress->context, l->figures, false))
            status = stk_fail(err, STK_ERR_INTERRUPTED, "interrupted");
    }
    sum_up(l);
    return status;
}

/* All that is under way comes back before its memory goes. */
static void drain(level *l)
{
    for (uint32_t i = 0; i < l->figures->in_flight && l->under_way; i++) stk_source_cancel(l->bench->source, &l->request[i]);
    while (l->under_way)
        if (stk_source_reap(l->bench->source, STK_FOREVER)) l->under_way--;
}

static stk_status measure(bench *b, uint32_t in_flight, stk_error *err)
{
    stk_fetch_level *const figures = &b->out->level[b->out->level_count];
    *figures = (stk_fetch_level){.in_flight = in_flight};
    level l = {.bench = b, .figures = figures};
    l.buffer_bytes = in_flight * stk_round_up(b->out->piece_bytes + STK_PAD_BYTES, STK_ALIGN_BYTES);
    l.request = stk_alloc_array(STK_TAG_ENGINE, in_flight, sizeof *l.request);
    if (!l.request) return stk_fail(err, STK_ERR_NOMEM, "out of memory: %u requests", in_flight);
    /* Mapped, not allocated: only what objects reach costs anything. */
    l.buffer = mmap(NULL, l.buffer_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    stk_status status = l.buffer == MAP_FAILED ? stk_fail_errno(err, "mmap of %zu bytes", l.buffer_bytes) : STK_OK;
    if (status == STK_OK) {
        stk_source_get_metrics(b->source, &l.before);
        getrusage(RUSAGE_SELF, &l.usage_before);
        l.begin_ns = stk_now();
        status = run_level(&l, err);
        drain(&l);
        munmap(l.buffer, l.buffer_bytes);
    }
    stk_free(l.request);
    if (status == STK_OK) b->out->level_count++;
    return status;
}

static void find_best(stk_fetch_bench *out)
{
    double most = 0;
    for (uint32_t i = 0; i < out->level_count; i++)
        if (out->level[i].objects_per_s > most) most = out->level[i].objects_per_s;
    out->best = 0;
    while (out->best + 1 < out->level_count && out->level[out->best].objects_per_s * WORTH < most) out->best++;
}

static stk_status rise(bench *b, uint32_t most, stk_error *err)
{
    double best = 0;
    int in_vain = 0;
    for (uint32_t in_flight = LEAST < most ? LEAST : most; b->out->level_count < STK_FETCH_LEVELS; in_flight *= 2) {
        STK_TRY(measure(b, in_flight, err));
        const stk_fetch_level *const done = &b->out->level[b->out->level_count - 1];
        if (!b->progress->report(b->progress->context, done, true)) return stk_fail(err, STK_ERR_INTERRUPTED, "interrupted");
        if (!done->objects && done->failed)
            return stk_fail(err, STK_ERR_MEDIA, "no object could be fetched: %.200s", b->out->failure);
        in_vain = done->objects_per_s > best * WORTH ? 0 : in_vain + 1;
        if (done->objects_per_s > best) best = done->objects_per_s;
        if (in_vain == 2 || in_flight > most / 2 || in_flight * 2 * b->out->piece_bytes > BUFFER_BYTES_MAX) break;
    }
    find_best(b->out);
    return STK_OK;
}

/* --- all of it --- */

/* Nothing is measured yet, and the caller may have had enough. */
static bool still_finding(void *context)
{
    const bench *const b = context;
    return !b->progress || b->progress->report(b->progress->context, b->out->level, false);
}

static bool report_waiting(void *context, const char *set, const char *phase, uint64_t done, uint64_t total)
{
    return still_finding(context);
}

static bool find_is_stopped(void *context)
{
    return !still_finding(context);
}

/* The rules of a store, where the hosts that the caller names are allowed as those of the options are. */
static stk_status make_rules(bench *b, const stk_options *options, const char *const *address, size_t count, stk_error *err)
{
    stk_options named = *options;
    char **const item = stk_pool_take(&b->pool, (options->allow.count + count) * sizeof *item);
    if (!item) return stk_fail(err, STK_ERR_NOMEM, "out of memory: a list of hosts");
    if (options->allow.count) memcpy(item, options->allow.item, options->allow.count * sizeof *item);
    named.allow.item = item;
    for (size_t i = 0; i < count; i++) {
        const stk_str text = stk_str_of(address[i]), place = stk_place_of(text);
        if (!stk_address_is_remote(text) || stk_address_is_s3(text)) continue;
        char *const host = stk_pool_take(&b->pool, place.size_bytes + 1);
        if (!host) return stk_fail(err, STK_ERR_NOMEM, "out of memory: a list of hosts");
        memcpy(host, place.data, place.size_bytes);
        host[place.size_bytes] = 0;
        item[named.allow.count++] = host;
    }
    return stk_rules_make_store(&b->rules, &named, err);
}

static stk_status open_source(bench *b, stk_error *err)
{
    stk_source_config config = b->rules->store;
    config.file_threads = FILE_THREADS;
    config.cache_path = NULL;
    config.cache_bytes = 0;
    config.apart = true; /* a few objects are asked for again and again */
    config.stopped = find_is_stopped;
    config.stopped_context = b;
    return stk_source_open(&b->source, &config, err);
}

static stk_status run_bench(bench *b, const stk_options *options, const char *const *address, size_t count, uint32_t most, stk_error *err)
{
    if (most < 1 || most > MOST) return stk_fail(err, STK_ERR_USAGE, "%u requests: 1 to %d are possible", most, MOST);
    if (count) {
        STK_TRY(make_rules(b, options, address, count, err));
    } else {
        STK_TRY(stk_run_prepare(&b->run, options, &b->waiting, err));
        b->rules = b->run->rules;
    }
    STK_TRY(open_source(b, err));
    STK_TRY(find_objects(b, options, address, count, err));
    return rise(b, most, err);
}

stk_status stk_fetch_bench_run(stk_fetch_bench *out, const stk_options *options, const char *const *address, size_t count, uint32_t most,
                               stk_ns level_ns, const stk_fetch_progress *progress, stk_error *err)
{
    *out = (stk_fetch_bench){0};
    bench b = {.out = out, .progress = progress, .level_ns = level_ns};
    b.waiting = (stk_index_progress){report_waiting, &b};
    stk_pool_init(&b.pool, STK_TAG_ENGINE);
    const stk_status status = run_bench(&b, options, address, count, most, err);
    stk_source_close(&b.source);
    stk_free(b.object);
    stk_pool_deinit(&b.pool);
    if (b.run) stk_run_release(b.run);
    else stk_rules_destroy(b.rules);
    return status;
}
