/* core_request.c - an engine on request, which packs what it makes, and the opener at the other end (stoker.ray).
 *
 *     Engine.make ──► words, memory ··· carried by whoever likes ··· words, memory ──► Opener.open ──► Batch
 *
 * Nothing is copied here: the memory of a whole batch is a view that keeps the batch, and an opened Batch keeps the object that its memory
 * belongs to.  That object needs the GIL to be let go of, and a batch may be released without it: then it waits in a list until the main
 * thread of the interpreter comes by. */
#include "core.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

/* --- memory that is lent by a Python object --- */

typedef struct lent {
    Py_buffer buffer;
    struct lent *next;
} lent;

static struct {
    pthread_mutex_t lock;
    lent *first;
} left = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void give_back(lent *l)
{
    PyBuffer_Release(&l->buffer);
    PyMem_RawFree(l);
}

/* With the GIL. */
static int give_back_all(void *unused)
{
    pthread_mutex_lock(&left.lock);
    lent *l = left.first;
    left.first = NULL;
    pthread_mutex_unlock(&left.lock);
    for (lent *next; l; l = next) {
        next = l->next;
        give_back(l);
    }
    return 0;
}

/* Any thread, with the GIL or without, also after the interpreter has gone: then the memory goes with the process. */
static void lent_over(void *context)
{
    lent *const l = context;
    if (!Py_IsInitialized()) return;
    if (PyGILState_Check()) {
        give_back(l);
        return;
    }
    pthread_mutex_lock(&left.lock);
    l->next = left.first;
    left.first = l;
    pthread_mutex_unlock(&left.lock);
    (void)Py_AddPendingCall(give_back_all, NULL); /* where its list is full, the next that is opened does it */
}

/* --- fields by name --- */

/* A tuple of names, or None: NULL.  The array is the caller's to free with PyMem_Free; names stay the tuple's.  False: raised. */
static bool read_fields(PyObject *fields, const char ***names, uint32_t *count)
{
    *names = NULL;
    *count = 0;
    if (fields == Py_None) return true;
    if (!PyTuple_Check(fields)) {
        PyErr_SetString(PyExc_TypeError, "fields are a tuple of names");
        return false;
    }
    *count = (uint32_t)PyTuple_GET_SIZE(fields);
    *names = PyMem_Calloc(*count + 1, sizeof **names);
    if (!*names) {
        PyErr_NoMemory();
        return false;
    }
    for (uint32_t i = 0; i < *count; i++) {
        PyObject *const name = PyTuple_GET_ITEM(fields, (Py_ssize_t)i);
        if ((*names)[i] = PyUnicode_Check(name) ? PyUnicode_AsUTF8(name) : NULL, (*names)[i]) continue;
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "fields are a tuple of names");
        PyMem_Free(*names);
        return false;
    }
    return true;
}

/* --- an engine --- */

typedef struct engine_object {
    PyObject_HEAD
    stk_engine *engine;
    pid_t pid;
    atomic_bool closed;
    atomic_uint users; /* calls under way: close waits for them */
} engine_object;

static PyObject *engine_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"config", "pairs", "split", "world", "progress", NULL};
    PyObject *config, *pairs, *call;
    const char *split;
    unsigned world;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "OOsIO:Engine", names, &config, &pairs, &split, &world, &call)) return NULL;
    stk_options options = STK_OPTIONS_INIT;
    if (!core_read_options(&options, config, pairs, split)) return NULL;
    engine_object *self = (engine_object *)type->tp_alloc(type, 0);
    if (self) {
        stk_error err;
        self->pid = getpid();
        core_listener listener = {.call = call, .away = PyEval_SaveThread()};
        const stk_index_progress progress = {.report = core_report_index, .context = &listener};
        const stk_status status = stk_engine_open_on_request(&self->engine, &options, world, &progress, &err);
        PyEval_RestoreThread(listener.away);
        if (status < 0) {
            if (!PyErr_Occurred()) core_raise(&err);
            Py_CLEAR(self);
        }
    }
    stk_options_deinit(&options);
    return (PyObject *)self;
}

/* Begin and end a call.  False: raised. */
static bool engine_enter(engine_object *self)
{
    atomic_fetch_add(&self->users, 1);
    if (!atomic_load(&self->closed)) return true;
    atomic_fetch_sub(&self->users, 1);
    core_fail(STK_ERR_USAGE, "the engine is closed");
    return false;
}

static void engine_leave(engine_object *self)
{
    atomic_fetch_sub(&self->users, 1);
}

static PyObject *bytes_of(stk_blob *blob)
{
    PyObject *const bytes = PyBytes_FromStringAndSize(blob->data, (Py_ssize_t)blob->size_bytes);
    stk_blob_free(blob);
    return bytes;
}

/* The memory of a batch, whose reference it takes: all of it as it lies, or some fields, copied. */
static PyObject *memory_of(stk_batch *batch, const char *const *fields, uint32_t field_count)
{
    stk_error err;
    size_t size;
    if (!fields) {
        stk_view view = {.name = "memory", .dtype = STK_UINT8, .ndim = 1};
        view.data = stk_parcel_memory(batch, &size);
        view.shape[0] = (int64_t)size;
        view.size_bytes = size;
        return core_field_wrap(batch, view);
    }
    PyObject *part = NULL;
    if (stk_parcel_part(batch, fields, field_count, NULL, &size, &err) < 0) core_raise(&err);
    else part = PyByteArray_FromStringAndSize(NULL, (Py_ssize_t)size);
    if (part && stk_parcel_part(batch, fields, field_count, PyByteArray_AS_STRING(part), &size, &err) < 0) {
        core_raise(&err);
        Py_CLEAR(part);
    }
    stk_batch_release(&batch);
    return part;
}

static PyObject *pack(stk_batch *batch, const char *const *fields, uint32_t field_count)
{
    stk_error err;
    stk_blob words;
    if (stk_parcel_words(&words, batch, &err) < 0) {
        stk_batch_release(&batch);
        return core_raise(&err);
    }
    PyObject *const memory = memory_of(batch, fields, field_count), *const text = bytes_of(&words);
    PyObject *const parcel = memory && text ? PyTuple_Pack(2, text, memory) : NULL;
    Py_XDECREF(memory);
    Py_XDECREF(text);
    return parcel;
}

static PyObject *engine_make(engine_object *self, PyObject *arguments)
{
    unsigned long long step;
    stk_place place;
    PyObject *fields, *seconds;
    const char **names;
    uint32_t count;
    if (!PyArg_ParseTuple(arguments, "KIIOO:make", &step, &place.rank, &place.micro, &fields, &seconds)) return NULL;
    place.step = step;
    const stk_ns timeout_ns = core_read_timeout(seconds);
    if (timeout_ns < 0 || !read_fields(fields, &names, &count)) return NULL;
    PyObject *parcel = NULL;
    if (engine_enter(self)) {
        stk_batch *batch;
        stk_error err;
        stk_status status;
        Py_BEGIN_ALLOW_THREADS
        status = stk_engine_make(self->engine, &place, &batch, timeout_ns, &err);
        Py_END_ALLOW_THREADS
        if (status == STK_OK) parcel = pack(batch, names, count);
        else if (status == STK_AGAIN) PyErr_SetString(PyExc_TimeoutError, "the micro-batch was not made in the time given: ask again");
        else core_raise(&err);
        engine_leave(self);
    }
    PyMem_Free(names);
    return parcel;
}

static PyObject *engine_expect(engine_object *self, PyObject *places)
{
    if (!PyList_Check(places)) return PyErr_Format(PyExc_TypeError, "places are a list of (step, rank, micro)");
    if (!engine_enter(self)) return NULL;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(places) && !PyErr_Occurred(); i++) {
        unsigned long long step;
        stk_place place;
        if (!PyArg_ParseTuple(PyList_GET_ITEM(places, i), "KII", &step, &place.rank, &place.micro)) break;
        place.step = step;
        stk_engine_expect(self->engine, &place, 1);
    }
    engine_leave(self);
    return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
}

static PyObject *engine_label(engine_object *self, PyObject *unused)
{
    stk_blob label;
    stk_error err;
    if (!engine_enter(self)) return NULL;
    const stk_status status = stk_parcel_label(&label, self->engine, &err);
    engine_leave(self);
    return status < 0 ? core_raise(&err) : bytes_of(&label);
}

static PyObject *engine_place(engine_object *self, PyObject *arguments)
{
    PyObject *text;
    const char *changes;
    stk_state state, here;
    bool has_state;
    if (!PyArg_ParseTuple(arguments, "Os:place", &text, &changes) || !core_read_state(&state, &has_state, text, changes) || !engine_enter(self))
        return NULL;
    uint64_t number;
    stk_error err;
    const stk_status status = stk_engine_place(self->engine, has_state ? &state : NULL, &number, &here, &err);
    engine_leave(self);
    if (status < 0) return core_raise(&err);
    return Py_BuildValue("(KN)", (unsigned long long)number, core_state_text(&here));
}

static PyObject *engine_metrics(engine_object *self, PyObject *unused)
{
    stk_metrics metrics;
    if (!engine_enter(self)) return NULL;
    Py_BEGIN_ALLOW_THREADS
    stk_engine_metrics(self->engine, &metrics);
    Py_END_ALLOW_THREADS
    engine_leave(self);
    return core_metrics(&metrics);
}

/* Without the GIL. */
static void shut(engine_object *self)
{
    if (atomic_exchange(&self->closed, true) || self->pid != getpid()) return;
    while (atomic_load(&self->users)) nanosleep(&(struct timespec){.tv_nsec = STK_MS}, NULL);
    stk_engine_close(&self->engine);
}

static PyObject *engine_close(engine_object *self, PyObject *unused)
{
    Py_BEGIN_ALLOW_THREADS
    shut(self);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

static void engine_dealloc(engine_object *self)
{
    PyTypeObject *const type = Py_TYPE(self);
    Py_BEGIN_ALLOW_THREADS
    shut(self);
    Py_END_ALLOW_THREADS
    type->tp_free(self);
    Py_DECREF(type);
}

static PyMethodDef engine_methods[] = {{"make", (PyCFunction)engine_make, METH_VARARGS, NULL},
                                       {"expect", (PyCFunction)engine_expect, METH_O, NULL},
                                       {"label", (PyCFunction)engine_label, METH_NOARGS, NULL},
                                       {"place", (PyCFunction)engine_place, METH_VARARGS, NULL},
                                       {"metrics", (PyCFunction)engine_metrics, METH_NOARGS, NULL},
                                       {"close", (PyCFunction)engine_close, METH_NOARGS, NULL},
                                       {0}};

static PyType_Slot engine_slots[] = {{Py_tp_doc, "An engine on request, of one split; any thread (stoker.ray)."},
                                     {Py_tp_new, engine_new},
                                     {Py_tp_dealloc, engine_dealloc},
                                     {Py_tp_methods, engine_methods},
                                     {0}};

static PyType_Spec engine_spec = {.name = "stoker._core.Engine",
                                  .basicsize = sizeof(engine_object),
                                  .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
                                  .slots = engine_slots};

/* --- an opener --- */

typedef struct opener_object {
    PyObject_HEAD
    stk_opener *opener;
    PyTypeObject *batch_type;
    stk_run_counts counts;
} opener_object;

static PyObject *opener_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"label", "fields", "batch_type", NULL};
    Py_buffer label;
    PyObject *fields;
    PyTypeObject *batch_type;
    const char **wanted;
    uint32_t count;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "y*OO!:Opener", names, &label, &fields, &PyType_Type, &batch_type)) return NULL;
    opener_object *self = NULL;
    if (read_fields(fields, &wanted, &count)) {
        stk_error err;
        self = (opener_object *)type->tp_alloc(type, 0);
        if (self && stk_opener_create(&self->opener, label.buf, (size_t)label.len, wanted, count, &err) < 0) {
            core_raise(&err);
            Py_CLEAR(self);
        }
        PyMem_Free(wanted);
    }
    PyBuffer_Release(&label);
    if (!self) return NULL;
    self->batch_type = (PyTypeObject *)Py_NewRef((PyObject *)batch_type);
    stk_opener_counts(self->opener, &self->counts);
    return (PyObject *)self;
}

static void opener_dealloc(opener_object *self)
{
    PyTypeObject *const type = Py_TYPE(self);
    stk_opener_release(&self->opener);
    Py_XDECREF(self->batch_type);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyObject *opener_place(opener_object *self, PyObject *number)
{
    uint64_t step;
    uint32_t micro;
    const unsigned long long at = PyLong_AsUnsignedLongLong(number);
    if (PyErr_Occurred()) return NULL;
    if (at >= self->counts.micro_count) return PyErr_Format(PyExc_IndexError, "a rank has no micro-batch %llu", at);
    stk_opener_place(self->opener, at, &step, &micro);
    return Py_BuildValue("(KI)", (unsigned long long)step, micro);
}

static PyObject *opener_open(opener_object *self, PyObject *arguments)
{
    PyObject *text, *memory;
    const char *words;
    Py_ssize_t words_bytes;
    stk_state base;
    bool has_state;
    if (!PyArg_ParseTuple(arguments, "Uy#O:open", &text, &words, &words_bytes, &memory) || !core_read_state(&base, &has_state, text, "")) return NULL;
    give_back_all(NULL);
    lent *const l = PyMem_RawCalloc(1, sizeof *l);
    stk_batch *batch = NULL;
    if (!l) PyErr_NoMemory();
    else if (PyObject_GetBuffer(memory, &l->buffer, PyBUF_SIMPLE) < 0) PyMem_RawFree(l);
    else {
        stk_error err;
        if (stk_opener_open(self->opener, &base, words, (size_t)words_bytes, l->buffer.buf, (size_t)l->buffer.len, lent_over, l, &batch, &err) < 0) {
            give_back(l);
            core_raise(&err);
        }
    }
    return batch ? core_batch_wrap(self->batch_type, batch) : NULL;
}

static PyObject *opener_keep(opener_object *self, void *unused)
{
    return PyLong_FromUnsignedLong(self->counts.keep);
}

static PyObject *opener_out(opener_object *self, void *unused)
{
    return PyLong_FromUnsignedLong(stk_opener_out(self->opener));
}

static PyObject *opener_timeout(opener_object *self, void *unused)
{
    return PyFloat_FromDouble((double)self->counts.timeout_ns / (double)STK_S);
}

static PyObject *opener_world(opener_object *self, void *unused)
{
    return PyLong_FromUnsignedLong(self->counts.world);
}

static PyObject *opener_steps(opener_object *self, void *unused)
{
    return PyLong_FromUnsignedLongLong(self->counts.step_count);
}

static PyObject *opener_micros(opener_object *self, void *unused)
{
    return PyLong_FromUnsignedLongLong(self->counts.micro_count);
}

static PyObject *opener_batch_bytes(opener_object *self, void *unused)
{
    return PyLong_FromUnsignedLongLong(self->counts.batch_bytes);
}

static PyGetSetDef opener_values[] = {{"world", (getter)opener_world, NULL, NULL, NULL},
                                      {"steps", (getter)opener_steps, NULL, NULL, NULL},
                                      {"micros", (getter)opener_micros, NULL, NULL, NULL},
                                      {"batch_bytes", (getter)opener_batch_bytes, NULL, NULL, NULL},
                                      {"timeout", (getter)opener_timeout, NULL, NULL, NULL},
                                      {"keep", (getter)opener_keep, NULL, NULL, NULL},
                                      {"out", (getter)opener_out, NULL, NULL, NULL},
                                      {0}};

static PyMethodDef opener_methods[] = {{"place", (PyCFunction)opener_place, METH_O, NULL}, {"open", (PyCFunction)opener_open, METH_VARARGS, NULL}, {0}};

static PyType_Slot opener_slots[] = {{Py_tp_doc, "What opens the parcels of a run (stoker.ray)."},
                                     {Py_tp_new, opener_new},
                                     {Py_tp_dealloc, opener_dealloc},
                                     {Py_tp_methods, opener_methods},
                                     {Py_tp_getset, opener_values},
                                     {0}};

static PyType_Spec opener_spec = {.name = "stoker._core.Opener",
                                  .basicsize = sizeof(opener_object),
                                  .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
                                  .slots = opener_slots};

bool core_add_request_types(PyObject *module)
{
    PyType_Spec *const specs[] = {&engine_spec, &opener_spec};
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++) {
        PyObject *const type = PyType_FromModuleAndSpec(module, specs[i], NULL);
        const bool added = type && PyModule_AddType(module, (PyTypeObject *)type) == 0;
        Py_XDECREF(type);
        if (!added) return false;
    }
    return true;
}
