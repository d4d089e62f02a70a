/* core_batch.c - a batch, and its fields as views of shared memory: buffer protocol and DLPack, nothing copied.
 *
 *     Batch ──owns──► stk_batch ◄──a reference each── Field ◄── NumPy view, DLPack capsule
 *
 * So an array stays valid when its Batch has been released or its loader closed, and there are no cycles.  A batch may be
 * released by any thread; in a forked child the memory is the parent's, and reading it is refused. */
#include "core.h"

#include <pthread.h>
#include <stdlib.h>
#include <structmember.h>
#include <unistd.h>

#include "dlpack.h"

/* --- a field --- */

typedef struct field_object {
    PyObject_HEAD
    stk_batch *batch; /* a reference of its own */
    stk_view view;
    Py_ssize_t shape[STK_MAX_DIMS], strides[STK_MAX_DIMS]; /* in bytes */
} field_object;

static PyTypeObject *field_type;
static PyObject *asarray; /* numpy.asarray */

static const struct {
    char *format; /* of the struct module; NULL: it has none */
    uint8_t code;
} kinds[] = {[STK_UINT8] = {"B", DL_UINT},
             [STK_INT32] = {"i", DL_INT},
             [STK_INT64] = {"q", DL_INT},
             [STK_FLOAT32] = {"f", DL_FLOAT},
             [STK_BFLOAT16] = {NULL, DL_BFLOAT}};

PyObject *core_field_wrap(stk_batch *batch, stk_view view)
{
    field_object *const self = (field_object *)field_type->tp_alloc(field_type, 0);
    if (!self) {
        stk_batch_release(&batch);
        return NULL;
    }
    self->batch = batch;
    self->view = view;
    Py_ssize_t stride = (Py_ssize_t)stk_dtype_bytes(view.dtype);
    for (int i = view.ndim - 1; i >= 0; i--) {
        self->shape[i] = (Py_ssize_t)view.shape[i];
        self->strides[i] = stride;
        stride *= self->shape[i];
    }
    return (PyObject *)self;
}

static void field_dealloc(field_object *self)
{
    PyTypeObject *const type = Py_TYPE(self);
    stk_batch_release(&self->batch);
    type->tp_free(self);
    Py_DECREF(type);
}

static int field_getbuffer(field_object *self, Py_buffer *buffer, int flags)
{
    buffer->obj = NULL;
    if (flags & PyBUF_WRITABLE) {
        PyErr_Format(PyExc_BufferError, "%s is read-only", self->view.name);
        return -1;
    }
    if (!kinds[self->view.dtype].format) {
        PyErr_Format(PyExc_BufferError, "the buffer protocol has no %s: take %s by DLPack (torch.from_dlpack)",
                     stk_dtype_name(self->view.dtype), self->view.name);
        return -1;
    }
    *buffer = (Py_buffer){.buf = (void *)(uintptr_t)self->view.data,
                          .obj = Py_NewRef((PyObject *)self),
                          .len = (Py_ssize_t)self->view.size_bytes,
                          .itemsize = (Py_ssize_t)stk_dtype_bytes(self->view.dtype),
                          .readonly = 1,
                          .ndim = self->view.ndim,
                          .format = flags & PyBUF_FORMAT ? kinds[self->view.dtype].format : NULL,
                          .shape = flags & PyBUF_ND ? self->shape : NULL,
                          .strides = (flags & PyBUF_STRIDES) == PyBUF_STRIDES ? self->strides : NULL};
    if (!(flags & PyBUF_ND)) buffer->ndim = 1;
    return 0;
}

static PyObject *field_name(field_object *self, void *unused)
{
    return PyUnicode_FromString(self->view.name);
}

static PyObject *field_dtype(field_object *self, void *unused)
{
    return PyUnicode_FromString(stk_dtype_name(self->view.dtype));
}

static PyObject *field_shape(field_object *self, void *unused)
{
    PyObject *const shape = PyTuple_New(self->view.ndim);
    for (int i = 0; shape && i < self->view.ndim; i++) {
        PyObject *const size = PyLong_FromSsize_t(self->shape[i]);
        if (!size) {
            Py_DECREF(shape);
            return NULL;
        }
        PyTuple_SET_ITEM(shape, i, size);
    }
    return shape;
}

static PyObject *field_nbytes(field_object *self, void *unused)
{
    return PyLong_FromSize_t(self->view.size_bytes);
}

static PyObject *field_address(field_object *self, void *unused)
{
    return PyLong_FromVoidPtr((void *)(uintptr_t)self->view.data);
}

/* --- DLPack --- */

/* Both forms, with the numbers that they point to behind them. */
typedef struct lent_plain {
    dl_managed managed;
    int64_t shape[STK_MAX_DIMS], strides[STK_MAX_DIMS];
} lent_plain;

typedef struct lent_versioned {
    dl_managed_versioned managed;
    int64_t shape[STK_MAX_DIMS], strides[STK_MAX_DIMS];
} lent_versioned;

/* Any thread, without the GIL, also after the interpreter has gone. */
static void delete_plain(dl_managed *managed)
{
    stk_batch *batch = managed->context;
    stk_batch_release(&batch);
    free(managed);
}

static void delete_versioned(dl_managed_versioned *managed)
{
    stk_batch *batch = managed->context;
    stk_batch_release(&batch);
    free(managed);
}

/* Of a capsule that nobody took: who takes one renames it. */
static void drop_plain(PyObject *capsule)
{
    if (PyCapsule_IsValid(capsule, "dltensor")) delete_plain(PyCapsule_GetPointer(capsule, "dltensor"));
}

static void drop_versioned(PyObject *capsule)
{
    if (PyCapsule_IsValid(capsule, "dltensor_versioned"))
        delete_versioned(PyCapsule_GetPointer(capsule, "dltensor_versioned"));
}

static dl_tensor describe(const field_object *self, int64_t *shape, int64_t *strides)
{
    const int64_t item = (int64_t)stk_dtype_bytes(self->view.dtype);
    for (int i = 0; i < self->view.ndim; i++) {
        shape[i] = self->shape[i];
        strides[i] = self->strides[i] / item;
    }
    dl_tensor tensor = {.data = (void *)(uintptr_t)self->view.data, .ndim = self->view.ndim, .shape = shape, .strides = strides};
    tensor.device.type = DL_CPU;
    tensor.dtype.code = kinds[self->view.dtype].code;
    tensor.dtype.bits = (uint8_t)(8 * item);
    tensor.dtype.lanes = 1;
    return tensor;
}

static PyObject *lend_plain(field_object *self)
{
    lent_plain *const lent = calloc(1, sizeof *lent);
    if (!lent) return PyErr_NoMemory();
    lent->managed.tensor = describe(self, lent->shape, lent->strides);
    lent->managed.context = self->batch;
    lent->managed.deleter = delete_plain;
    PyObject *const capsule = PyCapsule_New(lent, "dltensor", drop_plain);
    if (capsule) stk_batch_retain(self->batch);
    else free(lent);
    return capsule;
}

static PyObject *lend_versioned(field_object *self)
{
    lent_versioned *const lent = calloc(1, sizeof *lent);
    if (!lent) return PyErr_NoMemory();
    lent->managed.version.major = 1;
    lent->managed.flags = DL_FLAG_READ_ONLY;
    lent->managed.tensor = describe(self, lent->shape, lent->strides);
    lent->managed.context = self->batch;
    lent->managed.deleter = delete_versioned;
    PyObject *const capsule = PyCapsule_New(lent, "dltensor_versioned", drop_versioned);
    if (capsule) stk_batch_retain(self->batch);
    else free(lent);
    return capsule;
}

static PyObject *field_dlpack(field_object *self, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"stream", "max_version", "dl_device", "copy", NULL};
    PyObject *stream = Py_None, *version = Py_None, *device = Py_None, *copy = Py_None;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "|$OOOO:__dlpack__", names, &stream, &version, &device, &copy)) return NULL;
    int type = DL_CPU, number = 0;
    unsigned major = 0, minor = 0;
    if (device != Py_None && !PyArg_ParseTuple(device, "ii;dl_device is (type, number)", &type, &number)) return NULL;
    if (version != Py_None && !PyArg_ParseTuple(version, "II;max_version is (major, minor)", &major, &minor)) return NULL;
    if (stream != Py_None || type != DL_CPU || number != 0 || copy == Py_True) {
        PyErr_Format(PyExc_BufferError, "%s lies in memory of the CPU, and is lent, not copied", self->view.name);
        return NULL;
    }
    return major >= 1 ? lend_versioned(self) : lend_plain(self);
}

static PyObject *field_dlpack_device(field_object *self, PyObject *unused)
{
    return Py_BuildValue("(ii)", DL_CPU, 0);
}

static PyMethodDef field_methods[] = {
    {"__dlpack__", (PyCFunction)(void (*)(void))field_dlpack, METH_VARARGS | METH_KEYWORDS,
     "A capsule that holds a reference to the batch: versioned and marked read-only where the taker knows that form."},
    {"__dlpack_device__", (PyCFunction)field_dlpack_device, METH_NOARGS, "(1, 0): memory of the CPU."},
    {0}};

static PyGetSetDef field_values[] = {{"name", (getter)field_name, NULL, "Such as \"input_ids\".", NULL},
                                     {"dtype", (getter)field_dtype, NULL, "uint8, int32, int64, float32 or bfloat16.", NULL},
                                     {"shape", (getter)field_shape, NULL, "Sizes; C-contiguous.", NULL},
                                     {"nbytes", (getter)field_nbytes, NULL, "Size in bytes.", NULL},
                                     {"address", (getter)field_address, NULL, "Where it lies in this process, a multiple of 64.", NULL},
                                     {0}};

static PyType_Slot field_slots[] = {{Py_tp_doc, "A field of a batch: a view of shared memory, read-only, that keeps the batch alive."},
                                    {Py_tp_dealloc, field_dealloc},
                                    {Py_tp_methods, field_methods},
                                    {Py_tp_getset, field_values},
                                    {Py_bf_getbuffer, field_getbuffer},
                                    {0}};

static PyType_Spec field_spec = {.name = "stoker._core.Field",
                                 .basicsize = sizeof(field_object),
                                 .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE,
                                 .slots = field_slots};

/* --- a batch --- */

typedef struct batch_object {
    PyObject_HEAD
    pthread_mutex_t lock; /* of batch alone, never across a call that waits */
    stk_batch *batch;     /* NULL: released */
    pid_t pid;
    stk_batch_info info;
    stk_state state;
} batch_object;

PyObject *core_batch_wrap(PyTypeObject *type, stk_batch *batch)
{
    batch_object *const self = (batch_object *)type->tp_alloc(type, 0);
    if (!self) {
        stk_batch_release(&batch);
        return NULL;
    }
    pthread_mutex_init(&self->lock, NULL);
    self->batch = batch;
    self->pid = getpid();
    stk_batch_info_get(batch, &self->info);
    stk_batch_state(batch, &self->state);
    return (PyObject *)self;
}

/* Take what it holds; NULL when it has been given back. */
static stk_batch *batch_detach(batch_object *self)
{
    pthread_mutex_lock(&self->lock);
    stk_batch *const batch = self->batch;
    self->batch = NULL;
    pthread_mutex_unlock(&self->lock);
    return batch;
}

/* A reference of the caller's, so that a release by another thread takes nothing away.  NULL: raised. */
static stk_batch *batch_borrow(batch_object *self)
{
    if (self->pid != getpid()) {
        core_fail(STK_ERR_FORKED, "the batch belongs to the parent process: copy what the child needs before the fork, or start it by spawn");
        return NULL;
    }
    pthread_mutex_lock(&self->lock);
    stk_batch *const batch = self->batch;
    if (batch) stk_batch_retain(batch);
    pthread_mutex_unlock(&self->lock);
    if (!batch) core_fail(STK_ERR_USAGE, "the batch has been released");
    return batch;
}

static void batch_dealloc(batch_object *self)
{
    PyTypeObject *const type = Py_TYPE(self);
    stk_batch_release(&self->batch);
    pthread_mutex_destroy(&self->lock);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyObject *batch_release(batch_object *self, PyObject *unused)
{
    if (self->pid == getpid()) {
        stk_batch *batch = batch_detach(self);
        stk_batch_release(&batch);
    }
    Py_RETURN_NONE;
}

static PyObject *batch_field(batch_object *self, PyObject *name)
{
    const char *const text = PyUnicode_Check(name) ? PyUnicode_AsUTF8(name) : NULL;
    if (PyErr_Occurred()) return NULL;
    stk_batch *batch = batch_borrow(self);
    if (!batch) return NULL;
    const stk_view view = text ? stk_batch_field(batch, text) : (stk_view){0};
    if (view.name) return core_field_wrap(batch, view);
    stk_batch_release(&batch);
    PyErr_SetObject(PyExc_KeyError, name);
    return NULL;
}

/* The NumPy view; of bfloat16, which NumPy has not, the field. */
static PyObject *batch_subscript(batch_object *self, PyObject *name)
{
    PyObject *const field = batch_field(self, name);
    if (!field || !kinds[((field_object *)field)->view.dtype].format) return field;
    PyObject *const array = PyObject_CallOneArg(asarray, field);
    Py_DECREF(field);
    return array;
}

static PyObject *batch_names(batch_object *self)
{
    stk_batch *batch = batch_borrow(self);
    if (!batch) return NULL;
    const size_t count = stk_batch_field_count(batch);
    PyObject *names = PyTuple_New((Py_ssize_t)count);
    for (size_t i = 0; names && i < count; i++) {
        PyObject *const name = PyUnicode_InternFromString(stk_batch_field_at(batch, i).name);
        if (name) PyTuple_SET_ITEM(names, (Py_ssize_t)i, name);
        else Py_CLEAR(names);
    }
    stk_batch_release(&batch);
    return names;
}

static PyObject *batch_iter(batch_object *self)
{
    PyObject *const names = batch_names(self);
    PyObject *const iterator = names ? PyObject_GetIter(names) : NULL;
    Py_XDECREF(names);
    return iterator;
}

static Py_ssize_t batch_length(batch_object *self)
{
    stk_batch *batch = batch_borrow(self);
    if (!batch) return -1;
    const Py_ssize_t count = (Py_ssize_t)stk_batch_field_count(batch);
    stk_batch_release(&batch);
    return count;
}

static int batch_contains(batch_object *self, PyObject *name)
{
    const char *const text = PyUnicode_Check(name) ? PyUnicode_AsUTF8(name) : NULL;
    if (PyErr_Occurred()) return -1;
    stk_batch *batch = batch_borrow(self);
    if (!batch) return -1;
    const bool there = text && stk_batch_field(batch, text).name;
    stk_batch_release(&batch);
    return there;
}

static PyObject *sample_values(const stk_batch_sample *s)
{
    PyObject *const step_row = s->step_row == UINT32_MAX ? Py_NewRef(Py_None) : PyLong_FromUnsignedLong(s->step_row);
    return Py_BuildValue("(NNKKIIIINNNN)", core_text(s->id), core_text(s->set), (unsigned long long)s->record,
                         (unsigned long long)s->line, s->row, s->offset, s->tokens, s->visual_tokens, step_row,
                         PyBool_FromLong(s->filler), PyBool_FromLong(s->masked), core_text(s->reason));
}

static PyObject *batch_samples(batch_object *self, PyObject *unused)
{
    stk_batch *batch = batch_borrow(self);
    if (!batch) return NULL;
    const size_t count = stk_batch_sample_count(batch);
    PyObject *samples = PyList_New((Py_ssize_t)count);
    for (size_t i = 0; samples && i < count; i++) {
        stk_batch_sample sample;
        stk_batch_sample_at(batch, i, &sample);
        PyObject *const values = sample_values(&sample);
        if (values) PyList_SET_ITEM(samples, (Py_ssize_t)i, values);
        else Py_CLEAR(samples);
    }
    stk_batch_release(&batch);
    return samples;
}

static PyObject *batch_state(batch_object *self, PyObject *unused)
{
    return core_state_text(&self->state);
}

static PyObject *batch_digest(batch_object *self, PyObject *unused)
{
    uint8_t digest[16];
    stk_batch *batch = batch_borrow(self);
    if (!batch) return NULL;
    Py_BEGIN_ALLOW_THREADS
    stk_batch_digest(batch, digest);
    stk_batch_release(&batch);
    Py_END_ALLOW_THREADS
    return PyBytes_FromStringAndSize((const char *)digest, sizeof digest);
}

static PyMethodDef batch_methods[] = {
    {"release", (PyCFunction)batch_release, METH_NOARGS,
     "Give the batch back before the object goes.  Any thread; arrays that were taken of it stay valid."},
    {"field", (PyCFunction)batch_field, METH_O, "A field without NumPy: a view with the buffer protocol and DLPack."},
    {"digest", (PyCFunction)batch_digest, METH_NOARGS, "The 16 bytes of docs/determinism.md over all fields."},
    {"_samples", (PyCFunction)batch_samples, METH_NOARGS, NULL},
    {"_state", (PyCFunction)batch_state, METH_NOARGS, NULL},
    {0}};

#define INFO(type, member) type, offsetof(batch_object, info) + offsetof(stk_batch_info, member), READONLY
static PyMemberDef batch_members[] = {
    {"step", INFO(T_ULONGLONG, step), "The trainer's step, from 0."},
    {"rank", INFO(T_UINT, rank), "The data-parallel rank."},
    {"world", INFO(T_UINT, world), "How many data-parallel ranks there are."},
    {"micro", INFO(T_UINT, micro), "Which micro-batch of the rank in this step, from 0."},
    {"micro_count", INFO(T_UINT, micro_count), "How many micro-batches a rank has in this step."},
    {"epoch", INFO(T_ULONGLONG, epoch), "The pass over the data, from 0."},
    {"rows", INFO(T_UINT, rows), "Rows, filler included."},
    {"tokens", INFO(T_ULONGLONG, tokens), "Tokens without padding and filler."},
    {"visual_tokens", INFO(T_ULONGLONG, visual_tokens), "Those of them that stand for images."},
    {"images", INFO(T_ULONGLONG, images), "Images."},
    {"loss_tokens", INFO(T_ULONGLONG, loss_tokens), "Labels that are left in this micro-batch."},
    {"step_loss_tokens", INFO(T_ULONGLONG, step_loss_tokens),
     "Labels planned for the whole step over all ranks, the same on each, whatever is masked: the divisor of a summed loss.  0: not known (index: stream)."},
    {"model_type", T_STRING_INPLACE, offsetof(batch_object, info) + offsetof(stk_batch_info, model_type), READONLY,
     "The checkpoint's (config.json): \"qwen3_vl\"."},
    {0}};

static PyType_Slot batch_slots[] = {{Py_tp_doc, "A micro-batch (stoker.Batch)."},
                                    {Py_tp_dealloc, batch_dealloc},
                                    {Py_tp_methods, batch_methods},
                                    {Py_tp_members, batch_members},
                                    {Py_tp_iter, batch_iter},
                                    {Py_mp_subscript, batch_subscript},
                                    {Py_mp_length, batch_length},
                                    {Py_sq_contains, batch_contains},
                                    {0}};

static PyType_Spec batch_spec = {.name = "stoker._core.Batch",
                                 .basicsize = sizeof(batch_object),
                                 .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_DISALLOW_INSTANTIATION |
                                          Py_TPFLAGS_IMMUTABLETYPE,
                                 .slots = batch_slots};

bool core_add_batch_types(PyObject *module)
{
    PyObject *const numpy = PyImport_ImportModule("numpy");
    asarray = numpy ? PyObject_GetAttrString(numpy, "asarray") : NULL;
    Py_XDECREF(numpy);
    field_type = asarray ? (PyTypeObject *)PyType_FromModuleAndSpec(module, &field_spec, NULL) : NULL;
    if (!field_type || PyModule_AddType(module, field_type) < 0) return false;
    PyObject *const batch_type = PyType_FromModuleAndSpec(module, &batch_spec, NULL);
    const bool added = batch_type && PyModule_AddType(module, (PyTypeObject *)batch_type) == 0;
    Py_XDECREF(batch_type);
    return added;
}
