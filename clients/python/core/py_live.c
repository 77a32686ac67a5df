/* trajd._core.Live: libtrajd_live for Python. open, pushes of frames and large observations take up to
 * milliseconds and let other threads run; then a second thread that pushes to the same stream, or
 * observes, finds it busy. All else takes microseconds and keeps the GIL: another thread may give it
 * back only after 5 ms. */
#include "clients/live/trajd_live.h"
#include "clients/python/core/py_core.h"

#define LARGE_ROW_BYTES 4096u
#define LARGE_OBSERVATION_BYTES 65536u

struct live_object {
    PyObject_HEAD struct trajd_live *live;
};

static struct trajd_live *live_of(PyObject *object)
{
    return ((struct live_object *)object)->live;
}

static PyObject *live_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"text", "history_ns", "max_anchor_age_ns", NULL};
    struct trajd_live_options options = {0};
    struct trajd_error error = {0};
    struct live_object *self;
    enum trajd_status status;
    long long history_ns = 0, max_anchor_age_ns = 0;
    const char *text;
    Py_ssize_t size;

    if (!PyArg_ParseTupleAndKeywords(args, keywords, "y#|$LL", names, &text, &size, &history_ns,
                                     &max_anchor_age_ns))
        return NULL;
    options.history_ns = history_ns;
    options.max_anchor_age_ns = max_anchor_age_ns;
    self = (struct live_object *)PyType_GenericAlloc(type, 0);
    if (!self)
        return NULL;
    Py_BEGIN_ALLOW_THREADS;
    status = trajd_live_open_text(text, (size_t)size, &options, &self->live, &error);
    Py_END_ALLOW_THREADS;
    if (!status)
        return (PyObject *)self;
    Py_DECREF(self);
    return trajd_py_raise(&error);
}

static void live_dealloc(PyObject *object)
{
    trajd_live_close(&((struct live_object *)object)->live);
    trajd_py_free(object);
}

/* ---- what is pushed and observed ---- */

/* Appends a new reference. Returns false with an exception. */
static bool append(PyObject *list, PyObject *item)
{
    const bool appended = item && PyList_Append(list, item) == 0;

    Py_XDECREF(item);
    return appended;
}

static PyObject *live_streams(PyObject *object, PyObject *unused)
{
    const struct trajd_live *live = live_of(object);
    PyObject *list = PyList_New(0);

    (void)unused;
    for (uint32_t i = 0; list && i < trajd_live_stream_count(live); i++) {
        struct trajd_live_stream info;
        trajd_live_get_stream(live, i, &info);
        if (!append(list, Py_BuildValue(
                              "(sssNLLI)", info.name, info.clock, trajd_dtype_name(info.dtype),
                              trajd_py_shape(info.shape, info.rank), (long long)info.interval_ns,
                              (long long)info.latency_ns, (unsigned)info.capacity)))
            Py_CLEAR(list);
    }
    return list;
}

static PyObject *live_outputs(PyObject *object, PyObject *unused)
{
    const struct trajd_live *live = live_of(object);
    PyObject *list = PyList_New(0);

    (void)unused;
    for (uint32_t i = 0; list && i < trajd_live_output_count(live); i++) {
        struct trajd_live_output info;
        trajd_live_get_output(live, i, &info);
        if (!append(list, Py_BuildValue("(ssNKK)", info.name, trajd_dtype_name(info.dtype),
                                        trajd_py_shape(info.shape, info.rank),
                                        (unsigned long long)info.offset_bytes,
                                        (unsigned long long)info.mask_offset_bytes)))
            Py_CLEAR(list);
    }
    return list;
}

/* ---- rows and observations ---- */

/* The caller's references keep the object, and a row of its arguments. */
static enum trajd_status push_large(struct trajd_live *live, unsigned stream, int64_t t_ns,
                                    const void *row, struct trajd_error *error)
{
    enum trajd_status status;

    Py_BEGIN_ALLOW_THREADS;
    status = trajd_live_push(live, stream, t_ns, row, error);
    Py_END_ALLOW_THREADS;
    return status;
}

static enum trajd_status observe_large(struct trajd_live *live, int64_t t_ns, unsigned flags,
                                       void *out, int64_t *anchor_ns, struct trajd_error *error)
{
    enum trajd_status status;

    Py_BEGIN_ALLOW_THREADS;
    status = trajd_live_observe(live, t_ns, flags, out, anchor_ns, error);
    Py_END_ALLOW_THREADS;
    return status;
}

static PyObject *live_push(PyObject *object, PyObject *args)
{
    struct trajd_live *live = live_of(object);
    struct trajd_error error = {0};
    struct trajd_live_stream info;
    enum trajd_status status;
    unsigned stream;
    long long t_ns;
    const char *row;
    Py_ssize_t size;

    if (!PyArg_ParseTuple(args, "ILy#", &stream, &t_ns, &row, &size))
        return NULL;
    if (stream < trajd_live_stream_count(live)) {
        trajd_live_get_stream(live, stream, &info);
        if ((uint64_t)size != info.row_bytes)
            return PyErr_Format(PyExc_ValueError, "%s: a row has %zu bytes, not %zd", info.name,
                                (size_t)info.row_bytes, size);
    }
    status =
        (size > LARGE_ROW_BYTES ? push_large : trajd_live_push)(live, stream, t_ns, row, &error);
    if (status && status != TRAJD_ERR_DATA && status != TRAJD_ERR_BUSY)
        return trajd_py_raise(&error);
    return PyBool_FromLong(!status);
}

static PyObject *live_observe(PyObject *object, PyObject *args)
{
    struct trajd_live *live = live_of(object);
    struct trajd_error error = {0};
    long long t_ns;
    int64_t anchor_ns = 0;
    int is_partial;
    PyObject *bytes;

    if (!PyArg_ParseTuple(args, "Lp", &t_ns, &is_partial))
        return NULL;
    bytes = PyByteArray_FromStringAndSize(NULL, (Py_ssize_t)trajd_live_size_bytes(live));
    if (!bytes)
        return NULL;
    if (!(trajd_live_size_bytes(live) > LARGE_OBSERVATION_BYTES
              ? observe_large
              : trajd_live_observe)(live, t_ns, is_partial ? TRAJD_LIVE_PARTIAL : 0,
                                    PyByteArray_AsString(bytes), &anchor_ns, &error))
        return Py_BuildValue("(LN)", (long long)anchor_ns, bytes);
    Py_DECREF(bytes);
    return trajd_py_raise(&error);
}

static PyObject *live_counts(PyObject *object, PyObject *argument)
{
    const struct trajd_live *live = live_of(object);
    const unsigned long stream = PyLong_AsUnsignedLong(argument);
    struct trajd_live_counts counts;

    if (PyErr_Occurred())
        return NULL;
    if (stream >= trajd_live_stream_count(live))
        return PyErr_Format(PyExc_IndexError, "there is no stream with the number %lu", stream);
    trajd_live_get_counts(live, (uint32_t)stream, &counts);
    return Py_BuildValue("(KKKKKLL)", (unsigned long long)counts.taken,
                         (unsigned long long)counts.late, (unsigned long long)counts.repeated,
                         (unsigned long long)counts.busy, (unsigned long long)counts.off_rate,
                         (long long)counts.newest_ns, (long long)counts.off_rate_ns);
}

static PyObject *live_reset(PyObject *object, PyObject *unused)
{
    (void)unused;
    trajd_live_reset(live_of(object));
    Py_RETURN_NONE;
}

static PyMethodDef live_methods[] = {
    {"streams", live_streams, METH_NOARGS,
     "Returns (name, clock, dtype, shape, interval_ns, latency_ns, capacity) of each stream."},
    {"outputs", live_outputs, METH_NOARGS,
     "Returns (name, dtype, shape, offset, offset of the mask) of each output."},
    {"push", live_push, METH_VARARGS,
     "push(stream, t_ns, row): takes the bytes of a row. Returns False where it is late, repeated "
     "or pushed by two threads."},
    {"observe", live_observe, METH_VARARGS,
     "observe(t_ns, is_partial): returns the anchor's time and the bytes of an observation."},
    {"counts", live_counts, METH_O,
     "Returns (taken, late, repeated, busy, off_rate, newest_ns, off_rate_ns) of a stream."},
    {"reset", live_reset, METH_NOARGS, "Begins a new episode."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot live_slots[] = {
    {Py_tp_new, live_new},
    {Py_tp_dealloc, live_dealloc},
    {Py_tp_methods, live_methods},
    {Py_tp_doc, "The rules of a feed, and the last rows of its streams."},
    {0, NULL},
};
PyType_Spec trajd_py_live_spec = {"trajd._core.Live", sizeof(struct live_object), 0,
                                  Py_TPFLAGS_DEFAULT, live_slots};
