/* core_report.c - what the index, a plan and the metrics say, as the dicts that the commands print with --json; what pixels mean; one sample. */
#include "core.h"

/* --- dicts --- */

/* A row of numbers: what a struct calls so. */
typedef struct number {
    const char *name;
    uint64_t value;
} number;

/* Put a new reference under a name; NULL (raised) passes through.  False: raised. */
static bool put(PyObject *dict, const char *name, PyObject *value)
{
    const bool done = value && PyDict_SetItemString(dict, name, value) == 0;
    Py_XDECREF(value);
    return done;
}

static bool put_numbers(PyObject *dict, const number *numbers, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!put(dict, numbers[i].name, PyLong_FromUnsignedLongLong(numbers[i].value))) return false;
    return true;
}

/* The dict when all went well, else NULL. */
static PyObject *finish(PyObject *object, bool done)
{
    if (done) return object;
    Py_XDECREF(object);
    return NULL;
}

static bool append(PyObject *list, PyObject *value)
{
    const bool done = value && PyList_Append(list, value) == 0;
    Py_XDECREF(value);
    return done;
}

#define COUNT(array) (sizeof(array) / sizeof *(array))
#define NUM(value) ((unsigned long long)(value))

/* --- the index --- */

static PyObject *findings(const stk_index_summary *s)
{
    PyObject *const all = PyDict_New();
    bool done = all != NULL;
    for (size_t i = 0; done && i < s->finding_count; i++) {
        const stk_index_finding *const f = &s->finding[i];
        done = put(all, f->name, Py_BuildValue("{sKsssNsKsN}", "count", NUM(f->count), "of", f->of, "file", core_text(f->file),
                                               "line", NUM(f->line), "words", core_text(f->words)));
    }
    return finish(all, done);
}

static PyObject *control_tokens(const stk_index_summary *s)
{
    PyObject *const all = PyList_New(0);
    bool done = all != NULL;
    for (int i = 0; done && i < STK_INDEX_TOKENS && s->token[i].records; i++)
        done = append(all, Py_BuildValue("{sNsK}", "token", core_text(s->token[i].text), "records", NUM(s->token[i].records)));
    return finish(all, done);
}

static PyObject *lengths(const stk_index_summary *s)
{
    PyObject *const all = PyList_New(0);
    bool done = all != NULL;
    for (int b = 0; done && b < STK_INDEX_HISTOGRAM_BUCKETS; b++)
        done = append(all, PyLong_FromUnsignedLongLong(s->length_histogram[b]));
    return finish(all, done);
}

static PyObject *examples(const stk_index_summary *s, unsigned reason)
{
    PyObject *const all = PyList_New(0);
    bool done = all != NULL;
    for (int i = 0; done && i < STK_INDEX_EXAMPLES && s->example[reason][i].line; i++) {
        const stk_index_example *const e = &s->example[reason][i];
        done = append(all, Py_BuildValue("{sNsKsN}", "file", core_text(e->file), "line", NUM(e->line), "message", core_text(e->message)));
    }
    return finish(all, done);
}

static PyObject *unusable(const stk_index_summary *s)
{
    PyObject *const all = PyDict_New();
    bool done = all != NULL;
    for (unsigned reason = 1; done && reason < STK_INDEX_REASONS; reason++)
        if (s->unusable_by_reason[reason])
            done = put(all, stk_reason_name(reason),
                       Py_BuildValue("{sKsN}", "count", NUM(s->unusable_by_reason[reason]), "examples", examples(s, reason)));
    return finish(all, done);
}

static PyObject *summary(const stk_index_summary *s)
{
#define NUMBER(member) {#member, s->member},
    const number numbers[] = {STK_INDEX_COUNT_MAP(NUMBER)};
#undef NUMBER
    PyObject *const dict = PyDict_New();
    const bool done =
        dict && put(dict, "name", core_text(s->name)) && put(dict, "digest", core_text(s->digest)) && put_numbers(dict, numbers, COUNT(numbers)) &&
        put(dict, "length_histogram", lengths(s)) && put(dict, "findings", findings(s)) &&
        put(dict, "control_tokens", control_tokens(s)) &&
        put(dict, "longest", Py_BuildValue("{sKsNsK}", "tokens", NUM(s->longest_tokens), "file", core_text(s->longest_file), "line",
                                           NUM(s->longest_line))) &&
        put(dict, "refusal", s->refusal[0] ? core_text(s->refusal) : Py_NewRef(Py_None)) && put(dict, "unusable", unusable(s)) &&
        put(dict, "only_lines", PyBool_FromLong(s->only_lines));
    return finish(dict, done);
}

/* Paths of lists, lent by *keep.  Always to be freed with free_paths. */
static const char **list_paths(PyObject *paths, PyObject **keep, size_t *count)
{
    PyObject *const sequence = PySequence_Fast(paths, "exclude is a sequence of paths");
    *keep = sequence ? PyList_New(0) : NULL;
    *count = sequence ? (size_t)PySequence_Fast_GET_SIZE(sequence) : 0;
    const char **list = *keep ? PyMem_Calloc(*count + 1, sizeof *list) : NULL;
    if (*keep && !list) PyErr_NoMemory();
    for (size_t i = 0; list && i < *count; i++) {
        PyObject *bytes = NULL;
        if (!PyUnicode_FSConverter(PySequence_Fast_GET_ITEM(sequence, (Py_ssize_t)i), &bytes) || !append(*keep, Py_NewRef(bytes))) {
            PyMem_Free(list);
            list = NULL;
        } else {
            list[i] = PyBytes_AS_STRING(bytes);
        }
        Py_XDECREF(bytes);
    }
    Py_XDECREF(sequence);
    return list;
}

static PyObject *report_sets(const stk_index_report *report)
{
    PyObject *const sets = PyList_New(0);
    bool done = sets != NULL;
    for (size_t i = 0; done && i < stk_index_report_count(report); i++) done = append(sets, summary(stk_index_report_at(report, i)));
    return finish(sets, done);
}

static PyObject *core_index(PyObject *module, PyObject *arguments)
{
    PyObject *config, *pairs, *excluded, *call, *keep = NULL, *sets = NULL;
    const char *split;
    int start_over;
    if (!PyArg_ParseTuple(arguments, "OOsOpO:index", &config, &pairs, &split, &excluded, &start_over, &call)) return NULL;
    stk_options options = STK_OPTIONS_INIT;
    size_t count;
    const char **const list = list_paths(excluded, &keep, &count);
    if (list && core_read_options(&options, config, pairs, split)) {
        stk_error err;
        stk_index_report *report = NULL;
        core_listener listener = {.call = call, .away = PyEval_SaveThread()};
        const stk_index_progress progress = {.report = core_report_index, .context = &listener};
        stk_status status = STK_OK;
        if (count || start_over) status = stk_index_exclude(&options, list, count, start_over, &progress, &err);
        if (status == STK_OK) status = stk_index_build(&report, &options, &progress, &err);
        PyEval_RestoreThread(listener.away);
        if (status == STK_OK) sets = report_sets(report);
        else if (!PyErr_Occurred()) core_raise(&err);
        stk_index_report_destroy(report);
    }
    stk_options_deinit(&options);
    PyMem_Free(list);
    Py_XDECREF(keep);
    return sets;
}

/* --- a plan --- */

static PyObject *real_or_none(double value)
{
    return value == 0 ? Py_NewRef(Py_None) : PyFloat_FromDouble(value);
}

static double part(uint64_t some, uint64_t all)
{
    return all ? (double)some / (double)all : 0;
}

static PyObject *imbalance(double balanced, double unbalanced, double worst, double worst_unbalanced)
{
    return Py_BuildValue("{sNsNsNsN}", "balanced", real_or_none(balanced), "unbalanced", real_or_none(unbalanced), "worst_balanced",
                         real_or_none(worst), "worst_unbalanced", real_or_none(worst_unbalanced));
}

static PyObject *plan_sets(const stk_plan_view *view, size_t set_count)
{
    PyObject *const sets = PyList_New(0);
    bool done = sets != NULL;
    for (size_t i = 0; done && i < set_count; i++) {
        stk_plan_set_counts s;
        stk_plan_set_counts_at(view, i, &s);
        done = append(sets, Py_BuildValue("{sNsKsKsdsKsKsKsKsKsK}", "name", core_text(s.name), "records", NUM(s.records), "samples",
                                          NUM(s.samples), "passes", part(s.samples, s.records), "tokens", NUM(s.tokens), "visual_tokens",
                                          NUM(s.visual_tokens), "supervised_tokens", NUM(s.supervised_tokens), "images", NUM(s.images),
                                          "overlong_records", NUM(s.overlong_records), "shrunk_records", NUM(s.shrunk_records)));
    }
    return finish(sets, done);
}

static PyObject *plan_counts(const stk_plan_view *view, const stk_plan_counts *c)
{
    stk_plan_info info;
    stk_plan_info_get(view, &info);
#define NUMBER(member) {#member, c->member},
    const number numbers[] = {{"schema", 1}, {"steps", c->steps}, {"ranks", info.world}, STK_PLAN_COUNT_MAP(NUMBER)};
#undef NUMBER
    const stk_plan_range *const range = &c->step_supervised_tokens;
    PyObject *const dict = PyDict_New();
    const bool done =
        dict && put_numbers(dict, numbers, COUNT(numbers)) && put(dict, "epoch_steps", PyFloat_FromDouble(c->epoch_steps)) &&
        put(dict, "fill", PyFloat_FromDouble(part(c->tokens, c->room_tokens))) &&
        put(dict, "step_supervised_tokens",
            Py_BuildValue("{sKsKsK}", "least", NUM(range->least), "median", NUM(range->median), "most", NUM(range->most))) &&
        put(dict, "imbalance",
            Py_BuildValue("{sNsN}", "all",
                          imbalance(c->balanced.all, c->unbalanced.all, c->worst_balanced.all, c->worst_unbalanced.all), "vision",
                          imbalance(c->balanced.vision, c->unbalanced.vision, c->worst_balanced.vision, c->worst_unbalanced.vision))) &&
        put(dict, "row_cost", Py_BuildValue("{sdsd}", "least", c->least_cost, "most", c->most_cost)) &&
        put(dict, "sets", plan_sets(view, info.set_count)) && put(dict, "fingerprint", PyUnicode_FromString(c->fingerprint)) &&
        put(dict, "only_rows", PyBool_FromLong(info.only_rows));
    return finish(dict, done);
}

static PyObject *core_plan(PyObject *module, PyObject *arguments)
{
    PyObject *config, *pairs, *call, *said = NULL;
    const char *split;
    unsigned world;
    if (!PyArg_ParseTuple(arguments, "OOsIO:plan", &config, &pairs, &split, &world, &call)) return NULL;
    stk_options options = STK_OPTIONS_INIT;
    if (!core_read_options(&options, config, pairs, split)) return NULL;
    stk_error err;
    stk_plan_view *view = NULL;
    stk_plan_counts counts;
    core_listener listener = {.call = call, .away = PyEval_SaveThread()};
    const stk_index_progress progress = {.report = core_report_index, .context = &listener};
    stk_status status = stk_plan_open(&view, &options, world, &progress, &err);
    const stk_plan_listener walking = {.report = core_report_plan, .context = &listener};
    if (status == STK_OK) status = stk_plan_sum(view, &walking, &counts, &err);
    PyEval_RestoreThread(listener.away);
    if (status == STK_OK) said = plan_counts(view, &counts);
    else if (!PyErr_Occurred()) core_raise(&err);
    stk_plan_close(&view);
    stk_options_deinit(&options);
    return said;
}

/* --- metrics --- */

static PyObject *stage(const stk_stage_metrics *s)
{
    return Py_BuildValue("{sKsdsK}", "count", NUM(s->count), "busy_s", (double)s->busy_ns / (double)STK_S, "bytes", NUM(s->bytes));
}

/* Those counts that are not 0, by the names of their places. */
static PyObject *by_reason(const uint64_t *counts, unsigned length, const char *(*name)(unsigned))
{
    PyObject *const all = PyDict_New();
    bool done = all != NULL;
    for (unsigned i = 0; done && i < length; i++)
        if (counts[i]) done = put(all, name(i), PyLong_FromUnsignedLongLong(counts[i]));
    return finish(all, done);
}

static PyObject *latency(const stk_latency *l)
{
    const double ms = (double)STK_MS;
    return Py_BuildValue("{sKsdsdsdsdsd}", "count", NUM(l->count), "mean_ms", (double)l->mean_ns / ms, "p50_ms", (double)l->p50_ns / ms, "p90_ms",
                         (double)l->p90_ns / ms, "p99_ms", (double)l->p99_ns / ms, "p999_ms", (double)l->p999_ns / ms);
}

static PyObject *store(const stk_store_metrics *s)
{
#define NUMBER(member) {#member, s->member},
    const number numbers[] = {STK_STORE_COUNT_MAP(NUMBER)};
#undef NUMBER
    PyObject *const dict = PyDict_New();
    const bool done =
        dict && put_numbers(dict, numbers, COUNT(numbers)) &&
        put(dict, "retries_by_reason", by_reason(s->retries_by_reason, COUNT(s->retries_by_reason), stk_retry_name)) &&
        put(dict, "cache_warning", s->cache_words[0] ? core_text(s->cache_words) : Py_NewRef(Py_None)) &&
        put(dict, "first_byte", latency(&s->first_byte)) && put(dict, "whole", latency(&s->whole)) &&
        put(dict, "price", PyFloat_FromDouble(s->price)) &&
        put(dict, "price_per_million_samples", PyFloat_FromDouble(s->price_per_million_samples));
    return finish(dict, done);
}

PyObject *core_metrics(const stk_metrics *m)
{
    const number numbers[] = {{"micro_batches", m->micro_batches}, {"samples", m->samples}, {"filler", m->filler}, {"tokens", m->tokens},
                              {"supervised_tokens", m->supervised_tokens}, {"images", m->images}, {"ready", m->ready}};
    PyObject *const dict = PyDict_New();
    const bool done =
        dict && put_numbers(dict, numbers, COUNT(numbers)) &&
        put(dict, "first_batch_s", PyFloat_FromDouble((double)m->first_batch_ns / (double)STK_S)) &&
        put(dict, "stages", Py_BuildValue("{sNsNsNsNsN}", "fetch", stage(&m->fetch), "decode", stage(&m->decode), "transform",
                                          stage(&m->transform), "text", stage(&m->text), "place", stage(&m->place))) &&
        put(dict, "memory", Py_BuildValue("{sKsKsKsKsK}", "budget_bytes", NUM(m->budget_bytes), "held_bytes", NUM(m->held_bytes),
                                          "peak_bytes", NUM(m->peak_bytes), "arena_bytes", NUM(m->arena_bytes), "waits",
                                          NUM(m->budget_waits))) &&
        put(dict, "failures", Py_BuildValue("{sKsN}", "masked", NUM(m->masked), "by_reason",
                                              by_reason(m->masked_by_reason, COUNT(m->masked_by_reason), stk_reason_name))) &&
        put(dict, "facts_read", Py_BuildValue("{sKsK}", "records", NUM(m->records_read), "headers", NUM(m->headers_read))) &&
        put(dict, "store", store(&m->store));
    return finish(dict, done);
}

/* --- pixels --- */

static PyObject *core_pixel_values(PyObject *module, PyObject *arguments)
{
    PyObject *config, *pairs;
    const char *split;
    if (!PyArg_ParseTuple(arguments, "OOs:pixel_values", &config, &pairs, &split)) return NULL;
    stk_options options = STK_OPTIONS_INIT;
    if (!core_read_options(&options, config, pairs, split)) return NULL;
    stk_error err;
    stk_pixel_values values;
    const stk_status status = stk_pixel_values_read(&values, &options, &err);
    stk_options_deinit(&options);
    if (status < 0) return core_raise(&err);
    return Py_BuildValue("(IN)", values.temporal, PyBytes_FromStringAndSize((const char *)values.value, sizeof values.value));
}

/* --- one sample --- */

static PyObject *sample_images(const stk_sample_view *view, size_t count)
{
    PyObject *const images = PyList_New(0);
    bool done = images != NULL;
    for (size_t i = 0; done && i < count; i++) {
        stk_sample_image image;
        stk_sample_image_at(view, i, &image);
        done = append(images, Py_BuildValue("{sNs(LLL)sy#sN}", "address", core_text(image.address), "grid", (long long)image.grid[0],
                                            (long long)image.grid[1], (long long)image.grid[2], "rgb", image.rgb,
                                            (Py_ssize_t)image.width_px * image.height_px * 3, "fault", core_text(image.fault)));
    }
    return finish(images, done);
}

static PyObject *sample(const stk_sample_view *view)
{
    stk_sample_info info;
    stk_sample_info_get(view, &info);
    const Py_ssize_t ids = (Py_ssize_t)(info.token_count * sizeof *info.input_ids);
    return Py_BuildValue("{sNsNsKsy#sNsy#sy#sy#sN}", "id", core_text(info.id), "file", core_text(info.file), "line", NUM(info.line), "record",
                         info.record, (Py_ssize_t)info.record_bytes, "messages", core_text(info.messages), "rendered", info.rendered,
                         (Py_ssize_t)info.rendered_bytes, "input_ids", info.input_ids, ids, "labels", info.labels, ids, "images",
                         sample_images(view, info.image_count));
}

static PyObject *core_sample(PyObject *module, PyObject *arguments)
{
    PyObject *config, *pairs, *said = NULL;
    const char *split, *id;
    if (!PyArg_ParseTuple(arguments, "OOss:sample", &config, &pairs, &split, &id)) return NULL;
    stk_options options = STK_OPTIONS_INIT;
    if (!core_read_options(&options, config, pairs, split)) return NULL;
    stk_error err;
    stk_sample_view *view = NULL;
    core_listener listener = {.call = Py_None, .away = PyEval_SaveThread()};
    const stk_index_progress progress = {.report = core_report_index, .context = &listener};
    const stk_status status = stk_sample_open(&view, &options, id, &progress, &err);
    PyEval_RestoreThread(listener.away);
    if (status == STK_OK) said = sample(view);
    else if (!PyErr_Occurred()) core_raise(&err);
    stk_sample_close(&view);
    stk_options_deinit(&options);
    return said;
}

PyMethodDef core_report_methods[] = {{"index", core_index, METH_VARARGS, NULL},
                                     {"plan", core_plan, METH_VARARGS, NULL},
                                     {"pixel_values", core_pixel_values, METH_VARARGS, NULL},
                                     {"sample", core_sample, METH_VARARGS, NULL},
                                     {0}};
