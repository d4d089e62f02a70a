/* store_probe.c - the source behind a line protocol, for the tests of tests/s3 (probe.py speaks it).
 *
 * One JSON object a line, one line back for each but "get":
 *
 *     {"do": "open", "endpoint": "http://127.0.0.1:9000", ...}   status; the fields of stk_source_config
 *     {"do": "get", "address": "s3://b/k", "offset": 0, "size": 10, "etag": "...", "capacity": 100}   nothing
 * yet
 *     {"do": "wait", "seconds": 60}     a list: what became of each get, in the order in which they were
 * asked
 *     {"do": "list", "address": "s3://b/prefix", "most": 10}     {"do": "put", "address": "s3://b/k", "text":
 * "..."}
 *     {"do": "metrics"}
 *     {"do": "close"}                   open files, threads and resident memory after it
 *     {"do": "names", "fail": 3, "addresses": 4}        host names below .probe are 127.0.0.1 and the next ones, after
 * so many failures of the resolver
 *
 * Not here: any judgement.  The tests know what must come. */
#include <dirent.h>
#include <dlfcn.h>
#include <jansson.h>
#include <netdb.h>
#include <stdatomic.h>
#include <xxhash.h>

#include "base/clock.h"
#include "source/source.h"
#include "test.h"

typedef struct asked {
    stk_request request;
    json_t *line; /* holds the strings */
    bool back;
} asked;

static stk_source *source;
static asked **pending;
static size_t pending_count;

/* --- names: in place of the resolver's, for libcurl too --- */

static atomic_int names_to_fail, addresses = 1;

__attribute__((visibility("default"))) int getaddrinfo(const char *restrict node,
                                                       const char *restrict service,
                                                       const struct addrinfo *restrict hints,
                                                       struct addrinfo **restrict out)
{
    typedef int resolve(const char *, const char *, const struct addrinfo *, struct addrinfo **);
    union {
        void *symbol;
        resolve *call;
    } real = {.symbol = dlsym(RTLD_NEXT, "getaddrinfo")};
    const char *const end = node ? strrchr(node, '.') : NULL;
    if (end && strcmp(end, ".probe") == 0) {
        if (atomic_fetch_sub(&names_to_fail, 1) > 0) return EAI_AGAIN;
        int failed = 0;
        for (int i = atomic_load(&addresses); i && !failed; i--) { /* glibc frees such a list node by node */
            struct addrinfo *const later = i == atomic_load(&addresses) ? NULL : *out;
            char one[16];
            snprintf(one, sizeof one, "127.0.0.%d", i);
            failed = real.call(one, service, hints, out);
            if (!failed) (*out)->ai_next = later;
        }
        return failed;
    }
    return real.call(node, service, hints, out);
}

/* --- lines --- */

static void print_line(json_t *line)
{
    CHECK(json_dumpf(line, stdout, JSON_ENCODE_ANY | JSON_COMPACT) == 0);
    putchar('\n');
    fflush(stdout);
    json_decref(line);
}

static stk_str text_of(json_t *line, const char *name)
{
    json_t *const value = json_object_get(line, name);
    return value ? (stk_str){json_string_value(value), json_string_length(value)} : (stk_str){NULL, 0};
}

static const char *word_of(json_t *line, const char *name)
{
    return json_string_value(json_object_get(line, name));
}

static int64_t number_of(json_t *line, const char *name, int64_t otherwise)
{
    json_t *const value = json_object_get(line, name);
    return value ? json_integer_value(value) : otherwise;
}

static const char *name_of(stk_status status)
{
    switch (status) {
#define CASE(name, number, text)                                                                             \
    case name: return #name;
        STK_STATUS_MAP(CASE)
#undef CASE
    }
    return "?";
}

/* What the store sent may be no UTF-8; in these texts it must be. */
static json_t *words(const char *text)
{
    json_t *const value = json_string(text);
    return value ? value : json_string("(not UTF-8)");
}

static json_t *outcome(stk_status status, const stk_error *err)
{
    return json_pack("{s:s, s:i, s:o, s:o}", "status", name_of(status), "code", status < 0 ? err->code : 0,
                     "message", words(status < 0 ? err->message : ""), "file",
                     words(status < 0 ? err->file : ""));
}

/* --- what is done --- */

static void do_open(json_t *line)
{
    stk_error err;
    const char *const addressing = word_of(line, "addressing");
    const stk_source_config config = {.file_threads = 1,
                                      .io_threads = (int)number_of(line, "io_threads", 1),
                                      .endpoint = word_of(line, "endpoint"),
                                      .region = word_of(line, "region"),
                                      .profile_name = word_of(line, "profile_name"),
                                      .ca = word_of(line, "ca"),
                                      .addressing = !addressing                     ? STK_ADDRESSING_AUTO
                                                    : strcmp(addressing, "virtual") ? STK_ADDRESSING_PATH
                                                                                    : STK_ADDRESSING_VIRTUAL,
                                      .requester_pays = json_is_true(json_object_get(line, "requester_pays")),
                                      .hedge = json_is_true(json_object_get(line, "hedge")),
                                      .anonymous = json_is_true(json_object_get(line, "anonymous")),
                                      .cache_path = word_of(line, "cache_path"),
                                      .cache_bytes = (uint64_t)number_of(line, "cache_bytes", 0)};
    const stk_status status = stk_source_open(&source, &config, &err);
    print_line(outcome(status, &err));
}

static void do_get(json_t *line)
{
    asked *const a = calloc(1, sizeof *a);
    pending = realloc(pending, (pending_count + 1) * sizeof *pending);
    CHECK(a && pending);
    a->line = json_incref(line);
    a->request = (stk_request){.address = text_of(line, "address"),
                               .etag = text_of(line, "etag"),
                               .offset = (uint64_t)number_of(line, "offset", 0),
                               .size_bytes = (uint64_t)number_of(line, "size", -1),
                               .priority = pending_count,
                               .capacity_bytes = (size_t)number_of(line, "capacity", 1 << 20),
                               .owner = a};
    CHECK(a->request.buffer = malloc(a->request.capacity_bytes + STK_PAD_BYTES));
    pending[pending_count++] = a;
    stk_source_submit(source, &a->request);
}

static json_t *what_came(const asked *a)
{
    const stk_request *const r = &a->request;
    if (!a->back) return json_pack("{s:s}", "status", "not back in time");
    json_t *const came = outcome(r->status, &r->error);
    char hash[17] = "";
    if (r->status == STK_OK)
        snprintf(hash, sizeof hash, "%016llx", (unsigned long long)XXH3_64bits(r->buffer, r->got_bytes));
    json_object_set_new(came, "got", json_integer((json_int_t)r->got_bytes));
    json_object_set_new(came, "total", json_integer((json_int_t)r->total_bytes));
    json_object_set_new(came, "xxh3", json_string(hash));
    json_object_set_new(came, "etag", words(r->etag_is));
    json_object_set_new(came, "changed", json_boolean(r->changed));
    return came;
}

/* After a wait that was too short the program ends: the requests are the source's still. */
static void do_wait(json_t *line)
{
    const stk_ns end = stk_now() + number_of(line, "seconds", 60) * STK_S;
    size_t back = 0;
    for (stk_ns now; back < pending_count && (now = stk_now()) < end;) {
        stk_request *const r = stk_source_reap(source, end - now);
        if (!r) continue;
        ((asked *)r->owner)->back = true;
        back++;
    }
    json_t *const all = json_array();
    for (size_t i = 0; i < pending_count; i++) json_array_append_new(all, what_came(pending[i]));
    print_line(all);
    if (back < pending_count) exit(3);
    for (size_t i = 0; i < pending_count; i++) {
        free(pending[i]->request.buffer);
        json_decref(pending[i]->line);
        free(pending[i]);
    }
    pending_count = 0;
}

typedef struct listing {
    json_t *entries;
    size_t most;
} listing;

static bool found(void *context, const stk_source_entry *entry)
{
    listing *const l = context;
    json_array_append_new(l->entries,
                          json_pack("[s%, s%, I]", entry->key.data, entry->key.size_bytes, entry->etag.data,
                                    entry->etag.size_bytes, (json_int_t)entry->size_bytes));
    return json_array_size(l->entries) < l->most;
}

static void do_list(json_t *line)
{
    stk_error err;
    listing l = {json_array(), (size_t)number_of(line, "most", INT64_MAX)};
    const stk_status status = stk_source_list(source, text_of(line, "address"), found, &l, &err);
    json_t *const came = outcome(status, &err);
    json_object_set_new(came, "entries", l.entries);
    print_line(came);
}

static void do_put(json_t *line)
{
    stk_error err;
    const stk_str text = text_of(line, "text");
    const stk_status status = stk_source_put(source, text_of(line, "address"),
                                             (stk_bytes){(const uint8_t *)text.data, text.size_bytes}, &err);
    print_line(outcome(status, &err));
}

static void do_metrics(void)
{
    stk_source_metrics m;
    stk_source_get_metrics(source, &m);
    json_t *const retries = json_object();
#define RETRY(name, text) json_object_set_new(retries, text, json_integer((json_int_t)m.retries[name]));
    STK_RETRY_MAP(RETRY)
#undef RETRY
    print_line(json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o}", "requests",
                         (json_int_t)m.requests, "bytes", (json_int_t)m.bytes, "connections",
                         (json_int_t)m.connections, "in_flight", (json_int_t)m.in_flight, "hedges_sent",
                         (json_int_t)m.hedges_sent, "hedges_won", (json_int_t)m.hedges_won, "refreshes",
                         (json_int_t)m.credential_refreshes, "cache_hits", (json_int_t)m.cache_hits,
                         "cache_misses", (json_int_t)m.cache_misses, "first_bytes",
                         (json_int_t)m.first_byte.count, "retries", retries));
}

static int entries_of(const char *folder)
{
    DIR *const dir = opendir(folder);
    CHECK(dir);
    int count = 0;
    while (readdir(dir)) count++;
    closedir(dir);
    return count;
}

static int tasks_before; /* anything was opened */

static void do_close(void)
{
    stk_source_close(&source);
    /* A thread that has been joined may still be in the list for a moment. */
    for (int i = 0; i < 3000 && entries_of("/proc/self/task") > tasks_before; i++) nanosleep(&(struct timespec){.tv_nsec = 10 * STK_MS}, NULL);
    long pages = 0;
    FILE *const file = fopen("/proc/self/statm", "r");
    CHECK(file && fscanf(file, "%*d %ld", &pages) == 1);
    fclose(file);
    print_line(json_pack("{s:i, s:i, s:I, s:I}", "files", entries_of("/proc/self/fd"), "threads",
                         entries_of("/proc/self/task"), "resident", (json_int_t)pages * sysconf(_SC_PAGESIZE),
                         "held", (json_int_t)stk_alloc_bytes(STK_TAG_SOURCE)));
}

static void do_line(json_t *line)
{
    const char *const what = word_of(line, "do");
    CHECK(what);
    if (strcmp(what, "open") == 0)
        do_open(line);
    else if (strcmp(what, "get") == 0)
        do_get(line);
    else if (strcmp(what, "wait") == 0)
        do_wait(line);
    else if (strcmp(what, "list") == 0)
        do_list(line);
    else if (strcmp(what, "put") == 0)
        do_put(line);
    else if (strcmp(what, "metrics") == 0)
        do_metrics();
    else if (strcmp(what, "close") == 0)
        do_close();
    else if (strcmp(what, "names") == 0) {
        atomic_store(&names_to_fail, (int)number_of(line, "fail", 0));
        atomic_store(&addresses, (int)number_of(line, "addresses", 1));
        print_line(json_true());
    } else
        CHECK_MSG(false, "nothing is called %s", what);
}

int main(void)
{
    test_name = "store_probe";
    tasks_before = entries_of("/proc/self/task");
    char *text = NULL;
    size_t room = 0;
    for (ssize_t length; (length = getline(&text, &room, stdin)) > 0;) {
        json_error_t error;
        json_t *const line = json_loadb(text, (size_t)length, JSON_ALLOW_NUL, &error);
        CHECK_MSG(line, "%s", error.text);
        do_line(line);
        json_decref(line);
    }
    stk_source_close(&source);
    free(pending);
    free(text);
    return 0;
}
