/* core.h - what the files of the extension share.  They translate and decide nothing.
 *
 *     _core.c         the module; the table of options; the reader, which delivers
 *     core_batch.c    a batch and its fields: buffer protocol, DLPack
 *     core_request.c  an engine on request, and what opens its parcels (stoker.ray)
 *     core_report.c   what the index, a plan and the metrics say, as dicts
 *     core_common.c   below them all: errors, options, states, time-outs, progress
 *
 * No thread of the library touches a Python object.  The GIL is released around everything that may wait. */
#ifndef STOKER_CORE_H
#define STOKER_CORE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stoker/stoker.h>

/* --- for all --- */

/* Once, before what follows.  False: raised. */
bool core_common_start(void);

/* Raise what err says, as stoker._exceptions has it.  Always NULL. */
PyObject *core_raise(const stk_error *err);
/* The same in words of our own. */
PyObject *core_fail(stk_status status, const char *message);

/* Texts of C.  Paths and ids may hold any bytes: what is not UTF-8 comes as os.fsdecode has it. */
PyObject *core_text(const char *text);

/* options of a configuration (a path, a text as bytes, or None: the defaults), of keywords as (name, YAML) pairs, and of a split.  False: raised. */
bool core_read_options(stk_options *options, PyObject *config, PyObject *pairs, const char *split);

/* Go on with the options of a split ("train" or "eval").  False: raised. */
bool core_split_options(stk_options *options, const char *split);

/* A progress that lets signals through and tells a callable (None: nobody), while the GIL is away. */
typedef struct core_listener {
    PyObject *call;
    PyThreadState *away;
} core_listener;

bool core_report_index(void *listener, const char *set, const char *phase, uint64_t done, uint64_t total);
bool core_report_plan(void *listener, uint64_t steps_done, uint64_t steps);
bool core_report_waiting(void *listener, const char *words);

/* A state's text (None: no state, *has false), with options that may differ from it, in one text with commas.  False: raised. */
bool core_read_state(stk_state *state, bool *has, PyObject *text, const char *changes);
/* A state's text. */
PyObject *core_state_text(const stk_state *state);
/* Seconds, or None: for ever.  Negative: raised. */
stk_ns core_read_timeout(PyObject *seconds);

/* --- batches --- */

/* Wrap a batch: the new object, of the type given, owns it, also on failure. */
PyObject *core_batch_wrap(PyTypeObject *type, stk_batch *batch);
/* A new Field over any memory of a batch, whose reference it takes, also on failure. */
PyObject *core_field_wrap(stk_batch *batch, stk_view view);
bool core_add_batch_types(PyObject *module);

/* --- on request --- */

bool core_add_request_types(PyObject *module);

/* --- reports --- */

PyObject *core_metrics(const stk_metrics *metrics);
extern PyMethodDef core_report_methods[];

#endif
