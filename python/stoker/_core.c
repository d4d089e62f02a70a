/* _core.c - the extension module stoker._core: the table of options, and the reader, which delivers batches.
 *
 *     stoker.Loader ──► Reader ──► feed ──► an engine of this process, or a client of the engine process
 *
 * A feed is where batches come from; all that knows its kind stands in "the feed" below.  Ctrl-C: whatever waits comes back
 * at least every 50 ms and lets signals in; a batch that came together with one is kept for the next call. */
#include "core.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { SLICE_NS = 50 * (int)STK_MS };

/* --- options --- */

static PyObject *option_table(PyObject *module, PyObject *unused)
{
    size_t count;
    const stk_option *const table = stk_option_table(&count);
    PyObject *rows = PyList_New((Py_ssize_t)count);
    for (size_t i = 0; rows && i < count; i++) {
        const stk_option *const o = &table[i];
        PyObject *const row = Py_BuildValue("(sssssNN)", o->name, o->type, o->default_text, o->choices, o->help,
                                            PyBool_FromLong(o->stream), PyBool_FromLong(o->per_set));
        if (row) PyList_SET_ITEM(rows, (Py_ssize_t)i, row);
        else Py_CLEAR(rows);
    }
    return rows;
}

/* The text of a state that names a step alone. */
static PyObject *state_at_step(PyObject *module, PyObject *argument)
{
    const unsigned long long step = PyLong_AsUnsignedLongLong(argument);
    if (PyErr_Occurred()) return NULL;
    stk_state state;
    stk_state_at_step(&state, step);
    return core_state_text(&state);
}

/* --- the feed: where batches come from --- */

typedef struct feed {
    stk_engine *engine; /* of this process, with one reader; or NULL */
    stk_reader *reader;
    stk_client *client; /* of the engine process; or NULL */
} feed;

/* Which batches. */
typedef struct place {
    bool attached; /* to the engine process */
    stk_attach attach; /* rank and world of both kinds; the rest is the client's */
    PyObject *lent; /* holds what attach points to */
} place;

static stk_status feed_open(feed *f, const stk_options *options, const place *p, const stk_state *state, core_listener *listener, stk_error *err)
{
    if (p->attached) {
        stk_attach attach = p->attach;
        attach.waiting = core_report_waiting;
        attach.context = listener;
        return stk_client_open(&f->client, options, &attach, state, err);
    }
    const stk_index_progress progress = {.report = core_report_index, .context = listener};
    const stk_engine_ranks ranks = {.first_rank = p->attach.rank, .rank_count = 1, .world = p->attach.world};
    stk_options alone = *options; /* its split is options' own */
    alone.eval = NULL;
    const stk_status status = stk_engine_open(&f->engine, &alone, ranks, state, &progress, err);
    if (status == STK_OK) f->reader = stk_engine_reader(f->engine, p->attach.rank);
    return status;
}

static stk_status feed_next(feed *f, stk_batch **batch, stk_ns timeout_ns, stk_error *err)
{
    return f->client ? stk_client_next(f->client, batch, timeout_ns, err) : stk_reader_next(f->reader, batch, timeout_ns, err);
}

static stk_status feed_rewind(feed *f, stk_error *err)
{
    return f->client ? stk_client_rewind(f->client, err) : stk_reader_rewind(f->reader, err);
}

static void feed_state(const feed *f, stk_state *state)
{
    if (f->client) stk_client_state(f->client, state);
    else stk_reader_state(f->reader, state);
}

static void feed_metrics(feed *f, stk_metrics *metrics)
{
    if (f->client) stk_client_metrics(f->client, metrics);
    else stk_engine_metrics(f->engine, metrics);
}

/* Steps, and micro-batches of the rank. */
static void feed_counts(const feed *f, uint64_t *steps, uint64_t *micros)
{
    *steps = f->client ? stk_client_step_count(f->client) : stk_reader_step_count(f->reader);
    *micros = f->client ? stk_client_count(f->client) : stk_reader_micro_count(f->reader);
}

static void feed_close(feed *f)
{
    stk_client_close(&f->client);
    stk_engine_close(&f->engine);
    f->reader = NULL;
}

/* --- a reader --- */

typedef struct reader_object {
    PyObject_HEAD
    feed feed;
    PyTypeObject *batch_type;
    uint64_t steps, micros;
    pid_t pid;
    atomic_bool closed;
    atomic_uint users;   /* calls under way: close waits for them */
    atomic_bool reading; /* next or rewind: one at a time */
    stk_batch *kept;     /* made while a signal came, and not handed over; of whoever reads */
    pthread_mutex_t lock; /* of state alone, never across a call that waits */
    stk_state state;      /* after what was delivered last; stays when closed */
} reader_object;

static void reader_note_state(reader_object *self)
{
    stk_state state;
    feed_state(&self->feed, &state);
    pthread_mutex_lock(&self->lock);
    self->state = state;
    pthread_mutex_unlock(&self->lock);
}

/* (run, own_name, node_ranks, readers, fields); what p points to is lent by the tuple and p->lent.  own_name: of a run that has no other, or
 * None.  False: raised. */
static bool read_place(place *p, PyObject *attach, const stk_options *options)
{
    PyObject *ranks, *fields;
    const char *own_name;
    if (!PyArg_ParseTuple(attach, "zzO!IO", &p->attach.run, &own_name, &PyTuple_Type, &ranks, &p->attach.readers, &fields)) return false;
    if (!p->attach.run && !options->run) p->attach.run = own_name;
    p->attached = strcmp(options->engine, "process") == 0;
    if (!p->attached && (p->attach.readers > 1 || fields != Py_None)) {
        core_fail(STK_ERR_OPTION, "readers and fields are of engine: process");
        return false;
    }
    const size_t rank_count = (size_t)PyTuple_GET_SIZE(ranks);
    const size_t field_count = fields == Py_None ? 0 : (size_t)PyTuple_Size(fields);
    if (PyErr_Occurred()) return false;
    p->lent = PyByteArray_FromStringAndSize(NULL, (Py_ssize_t)(field_count * sizeof(char *) + rank_count * sizeof(uint32_t)));
    if (!p->lent) return false;
    const char **const names = (const char **)(void *)PyByteArray_AS_STRING(p->lent);
    uint32_t *const numbers = (uint32_t *)(void *)(names + field_count);
    for (size_t i = 0; i < field_count; i++)
        if (!(names[i] = PyUnicode_AsUTF8(PyTuple_GET_ITEM(fields, (Py_ssize_t)i)))) return false;
    for (size_t i = 0; i < rank_count; i++) {
        const unsigned long number = PyLong_AsUnsignedLong(PyTuple_GET_ITEM(ranks, (Py_ssize_t)i));
        if (PyErr_Occurred()) return false;
        numbers[i] = number < UINT32_MAX ? (uint32_t)number : UINT32_MAX; /* which no world has */
    }
    p->attach.node_ranks = rank_count ? numbers : NULL;
    p->attach.node_rank_count = (uint32_t)rank_count;
    p->attach.fields = fields == Py_None ? NULL : names;
    p->attach.field_count = (uint32_t)field_count;
    return true;
}

static bool reader_open(reader_object *self, const stk_options *options, const place *p, const stk_state *state, PyObject *call)
{
    stk_error err;
    core_listener listener = {.call = call, .away = PyEval_SaveThread()};
    const stk_status status = feed_open(&self->feed, options, p, state, &listener, &err);
    PyEval_RestoreThread(listener.away);
    if (status < 0) {
        if (!PyErr_Occurred()) core_raise(&err);
        return false;
    }
    feed_counts(&self->feed, &self->steps, &self->micros);
    reader_note_state(self);
    return true;
}

static PyObject *reader_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"config", "pairs", "split", "rank", "world", "attach", "state", "changes", "batch_type", "progress", NULL};
    PyObject *config, *pairs, *attach, *text, *call;
    PyTypeObject *batch_type;
    const char *split, *changes;
    place p = {0};
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "OOsIIOOsO!O:Reader", names, &config, &pairs, &split, &p.attach.rank, &p.attach.world,
                                     &attach, &text, &changes, &PyType_Type, &batch_type, &call))
        return NULL;
    stk_state state;
    bool has_state;
    if (!core_read_state(&state, &has_state, text, changes)) return NULL;
    reader_object *self = NULL;
    stk_options options = STK_OPTIONS_INIT;
    p.attach.split = split; /* the engine process knows both; an engine of this process serves one */
    if (core_read_options(&options, config, pairs, "train") && read_place(&p, attach, &options) && (p.attached || core_split_options(&options, split)))
        self = (reader_object *)type->tp_alloc(type, 0);
    if (self) {
        pthread_mutex_init(&self->lock, NULL);
        self->pid = getpid();
        self->batch_type = (PyTypeObject *)Py_NewRef((PyObject *)batch_type);
        if (!reader_open(self, &options, &p, has_state ? &state : NULL, call)) Py_CLEAR(self);
    }
    stk_options_deinit(&options);
    Py_XDECREF(p.lent);
    return (PyObject *)self;
}

/* Begin and end a call that needs the feed.  False: raised. */
static bool reader_enter(reader_object *self)
{
    if (self->pid != getpid()) {
        core_fail(STK_ERR_FORKED, "the loader belongs to the parent process: open one after the fork, or start the child by spawn");
        return false;
    }
    atomic_fetch_add(&self->users, 1);
    if (!atomic_load(&self->closed)) return true;
    atomic_fetch_sub(&self->users, 1);
    core_fail(STK_ERR_USAGE, "the loader is closed");
    return false;
}

static void reader_leave(reader_object *self)
{
    atomic_fetch_sub(&self->users, 1);
}

/* The same of a call that reads: one thread at a time. */
static bool reader_begin(reader_object *self)
{
    if (!reader_enter(self)) return false;
    if (!atomic_exchange(&self->reading, true)) return true;
    reader_leave(self);
    core_fail(STK_ERR_USAGE, "another thread is reading this loader: give each thread a loader of its own, or take turns");
    return false;
}

static void reader_end(reader_object *self)
{
    atomic_store(&self->reading, false);
    reader_leave(self);
}

static stk_ns now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (stk_ns)t.tv_sec * STK_S + t.tv_nsec;
}

/* As feed_next, in slices.  STK_ERR_INTERRUPTED: raised already, and nothing is lost. */
static stk_status reader_wait(reader_object *self, stk_batch **batch, stk_ns timeout_ns, stk_error *err)
{
    const stk_ns end = timeout_ns == STK_FOREVER ? STK_FOREVER : now() + timeout_ns;
    stk_status status = STK_OK;
    while (!self->kept) {
        const stk_ns left = end == STK_FOREVER ? STK_FOREVER : end - now();
        Py_BEGIN_ALLOW_THREADS
        status = feed_next(&self->feed, &self->kept, left < 0 ? 0 : left < SLICE_NS ? left : SLICE_NS, err);
        Py_END_ALLOW_THREADS
        if (PyErr_CheckSignals()) return STK_ERR_INTERRUPTED;
        if (status != STK_OK && status != STK_AGAIN) return status;
        if (atomic_load(&self->closed)) {
            core_fail(STK_ERR_USAGE, "the loader was closed by another thread");
            return STK_ERR_INTERRUPTED;
        }
        if (status == STK_AGAIN && left <= SLICE_NS) return status;
    }
    *batch = self->kept;
    self->kept = NULL;
    return STK_OK;
}

static PyObject *reader_next(reader_object *self, PyObject *seconds)
{
    const stk_ns timeout_ns = core_read_timeout(seconds);
    if (timeout_ns < 0 || !reader_begin(self)) return NULL;
    stk_batch *batch = NULL;
    stk_error err = {0};
    PyObject *object = NULL;
    const stk_status status = reader_wait(self, &batch, timeout_ns, &err);
    if (status == STK_OK) reader_note_state(self);
    reader_end(self);
    if (status == STK_OK) object = core_batch_wrap(self->batch_type, batch);
    else if (status == STK_END) PyErr_SetNone(PyExc_StopIteration);
    else if (status == STK_AGAIN) PyErr_SetString(PyExc_TimeoutError, "no micro-batch was ready in the time given: ask again");
    else if (!PyErr_Occurred()) core_raise(&err);
    return object;
}

static PyObject *reader_rewind(reader_object *self, PyObject *unused)
{
    if (!reader_begin(self)) return NULL;
    stk_error err;
    stk_status status;
    Py_BEGIN_ALLOW_THREADS
    stk_batch_release(&self->kept);
    status = feed_rewind(&self->feed, &err);
    if (status == STK_OK) reader_note_state(self);
    Py_END_ALLOW_THREADS
    reader_end(self);
    if (status < 0) return core_raise(&err);
    Py_RETURN_NONE;
}

static PyObject *reader_state(reader_object *self, PyObject *unused)
{
    stk_state state;
    pthread_mutex_lock(&self->lock);
    state = self->state;
    pthread_mutex_unlock(&self->lock);
    return core_state_text(&state);
}

/* Any thread, also while another reads. */
static PyObject *reader_metrics(reader_object *self, PyObject *unused)
{
    if (!reader_enter(self)) return NULL;
    stk_metrics metrics;
    Py_BEGIN_ALLOW_THREADS
    feed_metrics(&self->feed, &metrics);
    Py_END_ALLOW_THREADS
    reader_leave(self);
    return core_metrics(&metrics);
}

/* Without the GIL.  Whoever comes first closes; the others find it done, or being done. */
static void shut(reader_object *self)
{
    if (atomic_exchange(&self->closed, true)) return;
    if (self->pid != getpid()) return; /* threads, locks and sockets are the parent's */
    while (atomic_load(&self->users)) nanosleep(&(struct timespec){.tv_nsec = STK_MS}, NULL);
    stk_batch_release(&self->kept);
    feed_close(&self->feed);
}

static PyObject *reader_close(reader_object *self, PyObject *unused)
{
    Py_BEGIN_ALLOW_THREADS
    shut(self);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

static void reader_dealloc(reader_object *self)
{
    PyTypeObject *const type = Py_TYPE(self);
    Py_BEGIN_ALLOW_THREADS
    shut(self);
    Py_END_ALLOW_THREADS
    pthread_mutex_destroy(&self->lock);
    Py_XDECREF(self->batch_type);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyObject *reader_steps(reader_object *self, void *unused)
{
    return PyLong_FromUnsignedLongLong(self->steps);
}

static PyObject *reader_micros(reader_object *self, void *unused)
{
    return PyLong_FromUnsignedLongLong(self->micros);
}

static PyObject *reader_closed(reader_object *self, void *unused)
{
    return PyBool_FromLong(atomic_load(&self->closed));
}

static PyMethodDef reader_methods[] = {{"next", (PyCFunction)reader_next, METH_O, NULL},
                                       {"rewind", (PyCFunction)reader_rewind, METH_NOARGS, NULL},
                                       {"state", (PyCFunction)reader_state, METH_NOARGS, NULL},
                                       {"metrics", (PyCFunction)reader_metrics, METH_NOARGS, NULL},
                                       {"close", (PyCFunction)reader_close, METH_NOARGS, NULL},
                                       {0}};

static PyGetSetDef reader_values[] = {{"steps", (getter)reader_steps, NULL, NULL, NULL},
                                      {"micros", (getter)reader_micros, NULL, NULL, NULL},
                                      {"closed", (getter)reader_closed, NULL, NULL, NULL},
                                      {0}};

static PyType_Slot reader_slots[] = {{Py_tp_doc, "One rank's way to its micro-batches (stoker.Loader)."},
                                     {Py_tp_new, reader_new},
                                     {Py_tp_dealloc, reader_dealloc},
                                     {Py_tp_methods, reader_methods},
                                     {Py_tp_getset, reader_values},
                                     {0}};

static PyType_Spec reader_spec = {.name = "stoker._core.Reader",
                                  .basicsize = sizeof(reader_object),
                                  .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
                                  .slots = reader_slots};

/* --- the module --- */

static PyObject *statuses(void)
{
#define STATUS_VALUE(name, number, text) "(sis)"
#define STATUS_ARGUMENTS(name, number, text) , #name, number, text
    return Py_BuildValue("[" STK_STATUS_MAP(STATUS_VALUE) "]" STK_STATUS_MAP(STATUS_ARGUMENTS));
#undef STATUS_VALUE
#undef STATUS_ARGUMENTS
}

static bool add(PyObject *module, const char *name, PyObject *value)
{
    const bool added = value && PyModule_AddObjectRef(module, name, value) == 0;
    Py_XDECREF(value);
    return added;
}

static int start(PyObject *module)
{
    PyObject *const type = core_common_start() ? PyType_FromModuleAndSpec(module, &reader_spec, NULL) : NULL;
    const bool started = add(module, "Reader", type) && core_add_batch_types(module) && core_add_request_types(module) && PyModule_AddFunctions(module, core_report_methods) == 0 &&
                         add(module, "VERSION", PyUnicode_FromString(stk_version())) && add(module, "CPU", PyUnicode_FromString(stk_cpu())) &&
                         add(module, "LIBRARIES", PyUnicode_FromString(stk_libraries())) && add(module, "STATUSES", statuses());
    return started ? 0 : -1;
}

/* (config, pairs, own_name): the run's name or None, and the option `placement`.  own_name: as of a reader's attach. */
static PyObject *run_and_placement(PyObject *module, PyObject *arguments)
{
    PyObject *config, *pairs, *told = NULL;
    stk_options options = STK_OPTIONS_INIT;
    char name[STK_RUN_NAME_MAX + 1];
    const char *own_name;
    stk_error err;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "OOz:run_and_placement", &config, &pairs, &own_name) || !core_read_options(&options, config, pairs, "train")) return NULL;
    if (own_name && !options.run) told = Py_BuildValue("ss", own_name, options.placement);
    else if (stk_run_name(&options, name, &err) < 0) core_raise(&err);
    else told = Py_BuildValue("zs", name[0] ? name : NULL, options.placement);
    stk_options_deinit(&options);
    return told;
}

static PyMethodDef methods[] = {{"option_table", option_table, METH_NOARGS, NULL},
                                {"run_and_placement", run_and_placement, METH_VARARGS, NULL},
                                {"state_at_step", state_at_step, METH_O, NULL},
                                {0}};

static PyModuleDef_Slot slots[] = {{Py_mod_exec, start},
#if PY_VERSION_HEX >= 0x030c0000
                                   {Py_mod_multiple_interpreters, Py_MOD_MULTIPLE_INTERPRETERS_NOT_SUPPORTED},
#endif
#if PY_VERSION_HEX >= 0x030d0000
                                   {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
                                   {0}};

static struct PyModuleDef definition = {.m_base = PyModuleDef_HEAD_INIT,
                                        .m_name = "stoker._core",
                                        .m_doc = "The library, translated (stoker).",
                                        .m_methods = methods,
                                        .m_slots = slots};

PyMODINIT_FUNC PyInit__core(void);
PyMODINIT_FUNC PyInit__core(void)
{
    return PyModuleDef_Init(&definition);
}
