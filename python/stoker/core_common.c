/* core_common.c - what all of the extension needs to speak with Python: errors, options, states, time-outs, progress.
 *
 * It knows no object of the extension, and calls none of its other files. */
#include "core.h"

#include <string.h>

/* --- texts and errors --- */

/* What is no UTF-8 becomes surrogates, as file names have them everywhere in Python. */
PyObject *core_text(const char *text)
{
    return PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "surrogateescape");
}

static PyObject *make_error; /* stoker._exceptions.make */

bool core_common_start(void)
{
    PyObject *const errors = PyImport_ImportModule("stoker._exceptions");
    make_error = errors ? PyObject_GetAttrString(errors, "make") : NULL;
    Py_XDECREF(errors);
    return make_error != NULL;
}

PyObject *core_raise(const stk_error *err)
{
    PyObject *const error = PyObject_CallFunction(make_error, "iNsiKNN", (int)err->status, core_text(err->message),
                                                  stk_stage_name(err->stage), err->code, (unsigned long long)err->line,
                                                  core_text(err->sample), core_text(err->file));
    if (error) PyErr_SetObject((PyObject *)Py_TYPE(error), error);
    Py_XDECREF(error);
    return NULL;
}

PyObject *core_fail(stk_status status, const char *message)
{
    stk_error err = {.status = status};
    snprintf(err.message, sizeof err.message, "%s", message);
    return core_raise(&err);
}

/* --- options --- */

static stk_status set_pairs(stk_options *options, PyObject *pairs, stk_error *err)
{
    const Py_ssize_t count = PyList_GET_SIZE(pairs);
    for (Py_ssize_t i = 0; i < count; i++) {
        const char *name, *value;
        if (!PyArg_ParseTuple(PyList_GET_ITEM(pairs, i), "ss", &name, &value)) return STK_ERR_USAGE;
        const stk_status status = stk_options_set(options, name, value, err);
        if (status < 0) return status;
    }
    return STK_OK;
}

bool core_split_options(stk_options *options, const char *split)
{
    stk_error err;
    if (stk_options_split(options, split, &err) == STK_OK) return true;
    core_raise(&err);
    return false;
}

/* A path, the text of a configuration as bytes, or None. */
static stk_status read_config(stk_options *options, PyObject *config, stk_error *err)
{
    if (config == Py_None) return stk_options_defaults(options, err);
    if (PyBytes_Check(config))
        return stk_options_read_text(options, PyBytes_AS_STRING(config), (size_t)PyBytes_GET_SIZE(config), "(mapping)", err);
    PyObject *path;
    if (!PyUnicode_FSConverter(config, &path)) return STK_ERR_USAGE;
    const stk_status status = stk_options_read(options, PyBytes_AS_STRING(path), err);
    Py_DECREF(path);
    return status;
}

bool core_read_options(stk_options *options, PyObject *config, PyObject *pairs, const char *split)
{
    stk_error err;
    if (!PyList_Check(pairs)) {
        PyErr_SetString(PyExc_TypeError, "options are a list of pairs");
        return false;
    }
    stk_status status = read_config(options, config, &err);
    if (status == STK_OK) status = set_pairs(options, pairs, &err);
    if (status == STK_OK && core_split_options(options, split)) return true;
    if (!PyErr_Occurred()) core_raise(&err);
    stk_options_deinit(options);
    return false;
}

/* --- states and time-outs --- */

bool core_read_state(stk_state *state, bool *has, PyObject *text, const char *changes)
{
    stk_error err;
    Py_ssize_t size;
    *has = text != Py_None;
    if (!*has) return true;
    const char *const at = PyUnicode_AsUTF8AndSize(text, &size);
    if (!at) return false;
    if (stk_state_parse(state, at, (size_t)size, &err) < 0 || (changes[0] && stk_state_allow_changes(state, changes, &err) < 0)) {
        core_raise(&err);
        return false;
    }
    return true;
}

PyObject *core_state_text(const stk_state *state)
{
    char text[STK_STATE_TEXT_MAX];
    stk_error err;
    if (stk_state_write(state, text, sizeof text, &err) < 0) return core_raise(&err);
    return PyUnicode_FromString(text);
}

stk_ns core_read_timeout(PyObject *seconds)
{
    if (seconds == Py_None) return STK_FOREVER;
    const double value = PyFloat_AsDouble(seconds);
    if (PyErr_Occurred()) return -1;
    if (!(value >= 0)) {
        PyErr_SetString(PyExc_ValueError, "timeout is a number of seconds, not negative");
        return -1;
    }
    return value < 1e9 ? (stk_ns)(value * (double)STK_S) : STK_FOREVER;
}

/* --- progress --- */

/* Told, and whether to go on: not when a signal's handler or the callable has raised. */
static bool tell(core_listener *listener, PyObject *arguments)
{
    bool goes_on = arguments && PyErr_CheckSignals() == 0;
    if (goes_on && listener->call != Py_None) {
        PyObject *const said = PyObject_CallObject(listener->call, arguments);
        goes_on = said != NULL;
        Py_XDECREF(said);
    }
    Py_XDECREF(arguments);
    return goes_on;
}

bool core_report_index(void *context, const char *set, const char *phase, uint64_t done, uint64_t total)
{
    core_listener *const listener = context;
    PyEval_RestoreThread(listener->away);
    const bool goes_on = tell(listener, Py_BuildValue("(NsKK)", core_text(set), phase, (unsigned long long)done, (unsigned long long)total));
    listener->away = PyEval_SaveThread();
    return goes_on;
}

bool core_report_plan(void *context, uint64_t steps_done, uint64_t steps)
{
    return core_report_index(context, "", "planning", steps_done, steps);
}

bool core_report_waiting(void *context, const char *words)
{
    return core_report_index(context, "", words, 0, 0);
}
