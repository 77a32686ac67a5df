/* Reads the tuple that trajd/resampling passes for each stream. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "clients/python/core/py_resample.h"
#include "kernels/element_convert.h"
#include "proto/array_len.h"

#define PI 3.141592653589793

/* The texts and objects of a stream's tuple, in its order. */
struct words {
    const char *source_type, *kind, *order, *pad, *dtype;
    PyObject *values, *times, *row_splits, *max_gap, *max_age, *width, *period, *range_low, *out,
        *mask;
};

static struct trajd_argument argument_of(const struct trajd_py_stream *stream, const char *name)
{
    return (struct trajd_argument){stream->label, name};
}

static enum trajd_status read_kind(const struct words *words, struct trajd_py_stream *stream,
                                   struct trajd_error *error)
{
    static const struct {
        const char *name;
        enum trajd_kind kind;
    } kinds[] = {{"linear", TRAJD_KIND_LINEAR},   {"previous", TRAJD_KIND_PREVIOUS},
                 {"nearest", TRAJD_KIND_NEAREST}, {"slerp", TRAJD_KIND_SLERP_XYZW},
                 {"angle", TRAJD_KIND_ANGLE},     {"mean", TRAJD_KIND_MEAN}};
    size_t i = 0;

    while (i < ARRAY_LEN(kinds) && strcmp(kinds[i].name, words->kind) != 0)
        i++;
    if (i == ARRAY_LEN(kinds))
        return trajd_argument_refuse(argument_of(stream, "kind"), error,
                                     "is '%.40s': it must be linear, previous, nearest, slerp, "
                                     "angle or mean",
                                     words->kind);
    stream->kind = kinds[i].kind;
    if (stream->kind != TRAJD_KIND_SLERP_XYZW)
        return words->order ? trajd_argument_refuse(argument_of(stream, "order"), error,
                                                    "is only for kind='slerp': leave it out")
                            : TRAJD_OK;
    if (words->order && strcmp(words->order, "wxyz") == 0)
        stream->kind = TRAJD_KIND_SLERP_WXYZ;
    else if (!words->order || strcmp(words->order, "xyzw") != 0)
        return trajd_argument_refuse(argument_of(stream, "order"), error,
                                     "is missing or unknown: kind='slerp' needs order='xyzw' "
                                     "(scalar last, as scipy and ROS) or 'wxyz' (scalar first, as "
                                     "MuJoCo)");
    return TRAJD_OK;
}

static enum trajd_status read_number(PyObject *object, struct trajd_argument argument,
                                     double missing, double *number, struct trajd_error *error)
{
    *number = object == Py_None ? missing : PyFloat_AsDouble(object);
    if (!PyErr_Occurred() && (object == Py_None || isfinite(*number)))
        return TRAJD_OK;
    return trajd_argument_fail(argument, "must be a finite number", error);
}

static enum trajd_status read_angle(const struct words *words, struct trajd_py_stream *stream,
                                    struct trajd_error *error)
{
    enum trajd_status status =
        read_number(words->period, argument_of(stream, "period"), 2 * PI, &stream->period, error);

    if (!status)
        status = read_number(words->range_low, argument_of(stream, "range_low"), NAN,
                             &stream->range_low, error);
    if (status)
        return status;
    if (stream->kind != TRAJD_KIND_ANGLE &&
        (words->period != Py_None || words->range_low != Py_None))
        return trajd_argument_refuse(argument_of(stream, "period"), error,
                                     "and range_low are only for kind='angle': leave them out");
    if (stream->period <= 0)
        return trajd_argument_refuse(argument_of(stream, "period"), error, "must be above 0");
    return TRAJD_OK;
}

static enum trajd_status read_pad(const struct words *words, struct trajd_py_stream *stream,
                                  struct trajd_error *error)
{
    static const char *const pads[] = {"edge", "zero", "nan"};

    for (size_t i = 0; i < ARRAY_LEN(pads); i++)
        if (strcmp(pads[i], words->pad) == 0) {
            stream->edge = (enum trajd_edge)i;
            return TRAJD_OK;
        }
    return trajd_argument_refuse(argument_of(stream, "pad"), error,
                                 "is '%.40s': it must be edge, zero or nan", words->pad);
}

/* Reads the ns that trajd/resampling makes of a text. None is `none`. */
static int64_t read_ns(PyObject *object, int64_t none)
{
    return object == Py_None ? none : PyLong_AsLongLong(object);
}

static enum trajd_status read_durations(const struct words *words, struct trajd_py_stream *stream,
                                        struct trajd_error *error)
{
    stream->max_gap_ns = read_ns(words->max_gap, -1);
    stream->max_age_ns = read_ns(words->max_age, stream->is_causal ? INT64_MAX : -1);
    stream->width_ns = read_ns(words->width, 0);
    if (PyErr_Occurred())
        return trajd_argument_fail(argument_of(stream, "max_gap"),
                                   ", max_age or width is not an int of ns", error);
    if (stream->kind == TRAJD_KIND_MEAN && stream->width_ns <= 0)
        return trajd_argument_refuse(argument_of(stream, "width"), error,
                                     "is missing: kind='mean' averages the rows in (target - "
                                     "width, target], so pass a width such as '50ms'");
    if (stream->kind != TRAJD_KIND_MEAN && words->width != Py_None)
        return trajd_argument_refuse(argument_of(stream, "width"), error,
                                     "is only for kind='mean': leave it out");
    return TRAJD_OK;
}

/* The output type: `dtype`, else that of `out`, else that of the values, or float32 for integers
 * that are interpolated. */
static enum trajd_status read_type(const struct words *words, struct trajd_py_stream *stream,
                                   struct trajd_error *error)
{
    const bool picks = stream->kind == TRAJD_KIND_PREVIOUS || stream->kind == TRAJD_KIND_NEAREST;
    const enum trajd_dtype source = stream->source_type;
    enum trajd_dtype type = trajd_dtype_is_float(source) || picks ? source : TRAJD_F32;
    const char *name = trajd_dtype_name(source);

    if (words->dtype)
        type = trajd_dtype_parse(words->dtype);
    else if (stream->out.rank)
        type = stream->out.dtype;
    stream->output_type = type;
    if (!type)
        return trajd_argument_refuse(argument_of(stream, "dtype"), error,
                                     "'%.40s' is not an element type of trajd", words->dtype);
    if (type == TRAJD_F64 && source != TRAJD_F64)
        return trajd_argument_refuse(argument_of(stream, "dtype"), error,
                                     "float64 needs values of float64, and these are %s: pass "
                                     "values.astype('float64')",
                                     name);
    if (!trajd_dtype_is_float(type) && (type != source || !picks))
        return trajd_argument_refuse(argument_of(stream, "dtype"), error,
                                     "%s needs values of that type (they are %s) and kind "
                                     "'previous' or 'nearest': pass a float type",
                                     trajd_dtype_name(type), name);
    if (!trajd_dtype_is_float(type) && stream->edge == TRAJD_EDGE_NAN)
        return trajd_argument_refuse(argument_of(stream, "pad"), error,
                                     "is 'nan', which %s cannot hold: pass 'edge' or 'zero', or "
                                     "dtype='float32'",
                                     trajd_dtype_name(type));
    return TRAJD_OK;
}

/* Returns whether a kernel can read the rows where they lie. */
static bool is_readable(const struct trajd_py_array *values, int64_t size)
{
    const int last = values->rank - 1;
    const int64_t width = values->shape[last] * size;

    return (values->shape[last] <= 1 || values->strides_bytes[last] == size) &&
           (values->shape[last - 1] <= 1 || values->strides_bytes[last - 1] >= width);
}

static enum trajd_status read_values(struct trajd_py_stream *stream, struct trajd_error *error)
{
    static PyObject *make_dense;
    PyObject *dense;
    enum trajd_status status = trajd_py_array_read(
        stream->values_object, argument_of(stream, "values"), 2, 3,
        "[B, S, D], or [S, D] if all rows of the batch share them", &stream->values, error);

    if (status || is_readable(&stream->values, trajd_dtype_size(stream->values.dtype)))
        return status;
    if (stream->values.is_on_gpu)
        return trajd_argument_refuse(argument_of(stream, "values"), error,
                                     "has rows that are not dense");
    if (!make_dense) {
        PyObject *numpy = PyImport_ImportModule("numpy");
        make_dense = numpy ? PyObject_GetAttrString(numpy, "ascontiguousarray") : NULL;
        Py_XDECREF(numpy);
    }
    dense =
        make_dense ? PyObject_CallFunctionObjArgs(make_dense, stream->values_object, NULL) : NULL;
    if (!dense) {
        PyErr_Clear();
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "values: no memory for a dense copy");
    }
    Py_DECREF(stream->values_object);
    stream->values_object = dense;
    return trajd_py_array_read(dense, argument_of(stream, "values"), 2, 3, "", &stream->values,
                               error);
}

static enum trajd_status read_arrays(const struct words *words, struct trajd_py_stream *stream,
                                     struct trajd_error *error)
{
    enum trajd_status status = read_values(stream, error);

    if (!status)
        status = trajd_py_array_read(words->times, argument_of(stream, "times"), 1, 2,
                                     "[B, S], or [S] if all rows of the batch share them",
                                     &stream->times, error);
    if (!status && words->row_splits != Py_None)
        status = trajd_py_array_read(words->row_splits, argument_of(stream, "row_splits"), 1, 1,
                                     "[B + 1]", &stream->row_splits, error);
    if (!status && words->out != Py_None)
        status = trajd_py_array_read(words->out, argument_of(stream, "out"), 2, 3,
                                     "[B, T, D], or [T, D] without a batch", &stream->out, error);
    if (!status && words->mask != Py_None)
        status = trajd_py_array_read(words->mask, argument_of(stream, "out[1] (the mask)"), 1, 2,
                                     "[B, T], or [T] without a batch", &stream->mask, error);
    if (status)
        return status;
    stream->source_type =
        words->source_type ? trajd_dtype_parse(words->source_type) : stream->values.dtype;
    return TRAJD_OK;
}

/* Returns why a text of the tuple cannot be read; NULL if it can. */
static const char *fault_of(PyObject *text)
{
    PyObject *bytes;
    const char *fault = NULL;

    if (!PyUnicode_Check(text))
        return "must be a text";
    bytes = PyUnicode_AsUTF8String(text);
    if (!bytes)
        fault = "has a lone surrogate, which UTF-8 does not have";
    else if (strlen(PyBytes_AsString(bytes)) != (size_t)PyBytes_Size(bytes))
        fault = "has a NUL character";
    Py_XDECREF(bytes);
    return fault;
}

/* Says which element of a tuple could not be read. */
static enum trajd_status refuse_tuple(PyObject *tuple, const struct trajd_py_stream *stream,
                                      struct trajd_error *error)
{
    static const struct {
        Py_ssize_t index;
        const char *name;
        bool is_optional;
    } texts[] = {{0, "the name of a stream", true},
                 {5, "kind", false},
                 {6, "order", true},
                 {11, "pad", false},
                 {14, "dtype", true}};

    if (PyErr_ExceptionMatches(PyExc_MemoryError))
        return trajd_argument_fail(argument_of(stream, "the arguments"), "", error);
    PyErr_Clear();
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        PyObject *text = PyTuple_GetItem(tuple, texts[i].index);
        const char *fault = text == Py_None && texts[i].is_optional ? NULL : fault_of(text);
        if (fault)
            return trajd_argument_fail(argument_of(stream, texts[i].name), fault, error);
    }
    return trajd_argument_refuse(argument_of(stream, "causal"), error, "must be True or False");
}

enum trajd_status trajd_py_stream_read(PyObject *tuple, struct trajd_py_stream *stream,
                                       struct trajd_error *error)
{
    struct words words;
    int is_causal;
    enum trajd_status status;

    if (!PyArg_ParseTuple(tuple, "zOzOOszOOOpsOOzOO", &stream->label, &words.values,
                          &words.source_type, &words.times, &words.row_splits, &words.kind,
                          &words.order, &words.max_gap, &words.max_age, &words.width, &is_causal,
                          &words.pad, &words.period, &words.range_low, &words.dtype, &words.out,
                          &words.mask))
        return refuse_tuple(tuple, stream, error);
    stream->values_object = words.values;
    stream->out_object = words.out;
    stream->mask_object = words.mask;
    Py_INCREF(stream->values_object);
    Py_INCREF(stream->out_object);
    Py_INCREF(stream->mask_object);
    stream->is_causal = is_causal;
    if ((status = read_kind(&words, stream, error)) ||
        (status = read_arrays(&words, stream, error)) ||
        (status = read_angle(&words, stream, error)) ||
        (status = read_pad(&words, stream, error)) ||
        (status = read_durations(&words, stream, error)))
        return status;
    return read_type(&words, stream, error);
}

void trajd_py_stream_clear(struct trajd_py_stream *stream)
{
    Py_CLEAR(stream->values_object);
    Py_CLEAR(stream->out_object);
    Py_CLEAR(stream->mask_object);
    free(stream->splits);
}
