/* Runs one call of trajd.resample: reads the arguments, allocates the outputs and returns them. */
#include "clients/python/core/py_resample.h"

#include <stdlib.h>

/* Returns numpy's name of a type. bf16 is in int16 arrays, because numpy has no such type. */
static const char *numpy_name(enum trajd_dtype dtype)
{
    static const char *const names[TRAJD_DTYPE_COUNT] = {
        [TRAJD_F16] = "f2", [TRAJD_BF16] = "i2", [TRAJD_F32] = "f4", [TRAJD_F64] = "f8",
        [TRAJD_I8] = "i1",  [TRAJD_I16] = "i2",  [TRAJD_I32] = "i4", [TRAJD_I64] = "i8",
        [TRAJD_U8] = "u1",  [TRAJD_U16] = "u2",  [TRAJD_U32] = "u4", [TRAJD_U64] = "u8",
        [TRAJD_BOOL] = "?"};

    return names[dtype];
}

/* Replaces None in *object by an array of the result's shape. False: an exception is set. */
static bool allocate(const struct trajd_py_call *call, PyObject *empty, int64_t feature_count,
                     enum trajd_dtype dtype, PyObject **object)
{
    const long long b = call->batch, t = call->step_count, d = feature_count;
    const char *name = call->gpu == TRAJD_PY_HOST ? numpy_name(dtype) : trajd_dtype_name(dtype);
    PyObject *made;

    if (*object != Py_None)
        return true;
    if (b >= 0)
        made = d ? PyObject_CallFunction(empty, "(LLL)s", b, t, d, name)
                 : PyObject_CallFunction(empty, "(LL)s", b, t, name);
    else
        made = d ? PyObject_CallFunction(empty, "(LL)s", t, d, name)
                 : PyObject_CallFunction(empty, "(L)s", t, name);
    if (!made)
        return false;
    Py_DECREF(*object);
    *object = made;
    return true;
}

/* Makes the outputs that the caller did not pass. On failure an exception is set, or *error. */
static enum trajd_status make_outputs(struct trajd_py_call *call, PyObject *empty,
                                      struct trajd_error *error)
{
    enum trajd_status status = TRAJD_OK;

    for (uint32_t s = 0; s < call->stream_count && !status; s++) {
        struct trajd_py_stream *stream = &call->streams[s];
        const struct trajd_argument argument = {stream->label, "out"};
        const int64_t features = stream->values.shape[stream->values.rank - 1];
        if (!allocate(call, empty, features, stream->output_type, &stream->out_object) ||
            !allocate(call, empty, 0, TRAJD_U8, &stream->mask_object))
            return TRAJD_ERR_MEMORY;
        if (!stream->out.rank)
            status =
                trajd_py_array_read(stream->out_object, argument, 1, 3, "", &stream->out, error);
        if (!status && !stream->mask.rank)
            status =
                trajd_py_array_read(stream->mask_object, argument, 1, 3, "", &stream->mask, error);
    }
    return status;
}

static enum trajd_status run(const struct trajd_py_call *call, struct trajd_error *error)
{
    struct trajd_py_request *request = NULL;
    struct trajd_shape_plan *plan = NULL;
    enum trajd_status status;

    if (call->batch == 0 || call->step_count == 0 || call->stream_count == 0)
        return TRAJD_OK;
    status = trajd_py_request_create(call, &request, error);
    if (!status)
        status = trajd_shape_plan_take(trajd_py_request_shape(request), call->gpu, &plan, error);
    if (!status) {
        Py_BEGIN_ALLOW_THREADS;
        status = trajd_py_request_run(call, request, plan, error);
        Py_END_ALLOW_THREADS;
        trajd_shape_plan_release(plan);
    }
    free(request);
    return status;
}

static PyObject *results_of(const struct trajd_py_call *call)
{
    PyObject *results = PyTuple_New((Py_ssize_t)call->stream_count);

    for (uint32_t s = 0; results && s < call->stream_count; s++) {
        PyObject *pair = PyTuple_Pack(2, call->streams[s].out_object, call->streams[s].mask_object);
        if (!pair || PyTuple_SetItem(results, (Py_ssize_t)s, pair) != 0)
            Py_CLEAR(results);
    }
    return results;
}

/* Reads None or the addresses (row_begin, row_count, anchor) for each stream. */
static bool read_row_arrays(PyObject *tuples, struct trajd_py_call *call)
{
    for (uint32_t s = 0; s < call->stream_count; s++) {
        PyObject *addresses = PyTuple_GetItem(tuples, (Py_ssize_t)s);
        unsigned long long begin, count, anchor;
        if (addresses == Py_None)
            continue;
        if (!PyArg_Parse(addresses, "(KKK)", &begin, &count, &anchor))
            return false;
        call->streams[s].row_arrays[0] = (uintptr_t)begin;
        call->streams[s].row_arrays[1] = (uintptr_t)count;
        call->streams[s].row_arrays[2] = (uintptr_t)anchor;
    }
    return true;
}

static PyObject *call_with(struct trajd_py_call *call, PyObject *tuples, PyObject *targets,
                           PyObject *empty)
{
    struct trajd_error error = {0};
    enum trajd_status status = TRAJD_OK;

    for (uint32_t s = 0; s < call->stream_count && !status; s++) {
        status =
            trajd_py_stream_read(PyTuple_GetItem(tuples, (Py_ssize_t)s), &call->streams[s], &error);
    }
    if (!status)
        status = trajd_py_call_settle(targets, call, &error);
    if (!status)
        status = trajd_py_call_check_outputs(call, &error);
    if (!status)
        status = make_outputs(call, empty, &error);
    if (!status)
        status = run(call, &error);
    if (status)
        return PyErr_Occurred() ? NULL : trajd_py_raise(&error);
    return results_of(call);
}

/* Resamples streams whose tuples are read into `call`, which has the rest of its place. */
static PyObject *resample(struct trajd_py_call *call, PyObject *tuples, PyObject *targets,
                          PyObject *empty, PyObject *row_arrays)
{
    PyObject *results;

    call->stream_count = (uint32_t)PyTuple_Size(tuples);
    call->streams = calloc(call->stream_count + 1, sizeof *call->streams);
    if (!call->streams)
        return PyErr_NoMemory();
    if (!row_arrays || read_row_arrays(row_arrays, call))
        results = call_with(call, tuples, targets, empty);
    else
        results = NULL;
    for (uint32_t s = 0; s < call->stream_count; s++)
        trajd_py_stream_clear(&call->streams[s]);
    free(call->streams);
    return results;
}

PyObject *trajd_py_resample(PyObject *module, PyObject *arguments)
{
    struct trajd_py_call call = {.gpu = TRAJD_PY_HOST};
    PyObject *tuples, *targets, *empty;

    (void)module;
    if (!PyArg_ParseTuple(arguments, "O!OO", &PyTuple_Type, &tuples, &targets, &empty))
        return NULL;
    return resample(&call, tuples, targets, empty, NULL);
}

PyObject *trajd_py_resample_cuda(PyObject *module, PyObject *arguments)
{
    struct trajd_py_call call = {0};
    PyObject *tuples, *targets, *empty, *row_arrays;
    unsigned long long stream;

    (void)module;
    if (!PyArg_ParseTuple(arguments, "O!O!OO!iK", &PyTuple_Type, &tuples, &PyTuple_Type, &targets,
                          &empty, &PyTuple_Type, &row_arrays, &call.gpu, &stream))
        return NULL;
    if (PyTuple_Size(row_arrays) != PyTuple_Size(tuples) || call.gpu < 0) {
        PyErr_SetString(PyExc_ValueError, "row_arrays: one entry for each stream; gpu: 0 or more");
        return NULL;
    }
    call.cuda_stream = (void *)(uintptr_t)stream;
    return resample(&call, tuples, targets, empty, row_arrays);
}
