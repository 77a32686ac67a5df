/* Views of the arrays that Python passes to trajd.resample, and the times in them as int64 ns. */
#include "clients/python/core/py_array.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>

#include "kernels/clones.h"
#include "proto/plural.h"

enum trajd_status trajd_argument_refuse(struct trajd_argument argument, struct trajd_error *error,
                                        const char *format, ...)
{
    char message[400];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    if (argument.label)
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0, "streams['%.60s']: %s %s",
                               argument.label, argument.name, message);
    return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0, "%s %s", argument.name, message);
}

enum trajd_status trajd_argument_fail(struct trajd_argument argument, const char *message,
                                      struct trajd_error *error)
{
    const bool lacks_memory = PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_MemoryError);

    PyErr_Clear();
    if (lacks_memory)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory to read %s", argument.name);
    return trajd_argument_refuse(argument, error, "%s", message);
}

static enum trajd_dtype dtype_of(const struct trajd_py_array_struct *source)
{
    static const struct {
        char kind;
        int item_size;
        enum trajd_dtype dtype;
    } types[] = {{'f', 4, TRAJD_F32}, {'f', 8, TRAJD_F64}, {'i', 8, TRAJD_I64},
                 {'f', 2, TRAJD_F16}, {'u', 1, TRAJD_U8},  {'i', 4, TRAJD_I32},
                 {'i', 2, TRAJD_I16}, {'i', 1, TRAJD_I8},  {'u', 2, TRAJD_U16},
                 {'u', 4, TRAJD_U32}, {'u', 8, TRAJD_U64}, {'b', 1, TRAJD_BOOL}};

    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (types[i].kind == source->kind && types[i].item_size == source->item_size)
            return types[i].dtype;
    return TRAJD_DTYPE_NONE;
}

static enum trajd_status check_rank(int rank, struct trajd_argument argument, int min_rank,
                                    int max_rank, const char *shapes, struct trajd_error *error)
{
    if (rank >= min_rank && rank <= max_rank)
        return TRAJD_OK;
    if (rank == 1 && min_rank == 2)
        return trajd_argument_refuse(argument, error,
                                     "has 1 dimension: pass %s; %.40s[:, None] makes one column of "
                                     "it",
                                     shapes, argument.name);
    return trajd_argument_refuse(argument, error, "has %d dimension%s: pass %s", rank,
                                 trajd_plural((uint64_t)rank), shapes);
}

static enum trajd_status view(const struct trajd_py_array_struct *source,
                              struct trajd_argument argument, int min_rank, int max_rank,
                              const char *shapes, struct trajd_py_array *array,
                              struct trajd_error *error)
{
    static char nothing[8] __attribute__((aligned(8))); /* of an empty array */
    enum trajd_status status =
        check_rank(source->rank, argument, min_rank, max_rank, shapes, error);

    if (status)
        return status;
    if (!(source->flags & TRAJD_ARRAY_NOT_SWAPPED))
        return trajd_argument_refuse(argument, error,
                                     "has the byte order of another machine: pass "
                                     "array.astype(array.dtype.newbyteorder('='))");
    if (!(source->flags & TRAJD_ARRAY_ALIGNED))
        return trajd_argument_refuse(argument, error, "is not aligned: pass a copy");
    *array = (struct trajd_py_array){.data = source->data ? source->data : nothing,
                                     .rank = source->rank,
                                     .dtype = dtype_of(source),
                                     .is_writeable = source->flags & TRAJD_ARRAY_WRITEABLE};
    if (source->kind == 'M' || source->kind == 'm')
        return trajd_argument_refuse(argument, error,
                                     "has elements of %s64: pass ns, as "
                                     "array.astype('%s64[ns]').view('int64')",
                                     source->kind == 'M' ? "datetime" : "timedelta",
                                     source->kind == 'M' ? "datetime" : "timedelta");
    if (!array->dtype)
        return trajd_argument_refuse(argument, error,
                                     "has elements of kind '%c' and %d bytes: pass floats of 2, 4 "
                                     "or 8 bytes, integers or bools",
                                     source->kind, source->item_size);
    for (int i = 0; i < source->rank; i++) {
        array->shape[i] = source->shape[i];
        array->strides_bytes[i] = source->strides_bytes[i];
    }
    return TRAJD_OK;
}

static enum trajd_status view_tensor(PyObject *tuple, struct trajd_argument argument, int min_rank,
                                     int max_rank, const char *shapes, struct trajd_py_array *array,
                                     struct trajd_error *error)
{
    PyObject *shape, *strides, *tensor;
    unsigned long long address;
    const char *name;
    enum trajd_status status;

    if (!PyArg_ParseTuple(tuple, "KO!O!sO", &address, &PyTuple_Type, &shape, &PyTuple_Type,
                          &strides, &name, &tensor))
        return trajd_argument_fail(argument, "is not a tensor", error);
    *array = (struct trajd_py_array){.data = (char *)(uintptr_t)address,
                                     .rank = (int)PyTuple_Size(shape),
                                     .dtype = trajd_dtype_parse(name),
                                     .is_writeable = true,
                                     .is_on_gpu = true};
    status = check_rank(array->rank, argument, min_rank, max_rank, shapes, error);
    for (int i = 0; !status && i < array->rank; i++) {
        array->shape[i] = PyLong_AsLongLong(PyTuple_GetItem(shape, i));
        array->strides_bytes[i] = PyLong_AsLongLong(PyTuple_GetItem(strides, i)) *
                                  (int64_t)trajd_dtype_size(array->dtype);
    }
    return status;
}

enum trajd_status trajd_py_array_read(PyObject *object, struct trajd_argument argument,
                                      int min_rank, int max_rank, const char *shapes,
                                      struct trajd_py_array *array, struct trajd_error *error)
{
    static PyObject *attribute;
    const struct trajd_py_array_struct *source;
    PyObject *capsule;
    enum trajd_status status;

    if (PyTuple_Check(object))
        return view_tensor(object, argument, min_rank, max_rank, shapes, array, error);
    if (!attribute)
        attribute = PyUnicode_InternFromString("__array_struct__");
    capsule = attribute ? PyObject_GetAttr(object, attribute) : NULL;
    source = capsule ? PyCapsule_GetPointer(capsule, NULL) : NULL;
    if (source && source->two == 2) {
        status = view(source, argument, min_rank, max_rank, shapes, array, error);
    } else {
        status = trajd_argument_fail(
            argument, "is not an array: pass a numpy array or a torch tensor", error);
    }
    Py_XDECREF(capsule);
    return status;
}

const char *trajd_py_array_shape_text(const struct trajd_py_array *array, char text[80])
{
    int used = 0;

    for (int i = 0; i < array->rank; i++)
        used += snprintf(text + used, 80 - (size_t)used, "%s%lld", i ? ", " : "(",
                         (long long)array->shape[i]);
    snprintf(text + used, 80 - (size_t)used, array->rank == 1 ? ",)" : ")");
    return text;
}

/* ---- times ---- */

/* From 2^23 s on, neighbouring float64 are more than a ns apart. */
#define SECONDS_LIMIT 8388608.0
#define ROUND_MAGIC 6755399441055744.0 /* 1.5 * 2^52: adding it rounds to an integer */

static bool is_shared(const struct trajd_py_array *array)
{
    return array->rank == 1 || array->shape[0] <= 1 || array->strides_bytes[0] == 0;
}

/* Returns whether the array can be used as it lies. */
static bool is_dense(const struct trajd_py_array *array, bool is_packed)
{
    const int64_t size = sizeof(int64_t), count = array->shape[array->rank - 1];

    if (array->dtype != TRAJD_I64 || (count > 1 && array->strides_bytes[array->rank - 1] != size))
        return false;
    return is_shared(array) || array->strides_bytes[0] == count * size ||
           (!is_packed && array->strides_bytes[0] >= 0);
}

uint64_t trajd_py_times_room(const struct trajd_py_array *array, bool is_packed)
{
    const uint64_t count = (uint64_t)array->shape[array->rank - 1];

    return is_dense(array, is_packed) ? 0
           : is_shared(array)         ? count
                                      : count * (uint64_t)array->shape[0];
}

/* Returns the ns of `seconds` where a rounded product cannot tell: half a ns counts away from
 * zero. */
static int64_t exact_ns(double seconds)
{
    int exponent;
    const int64_t mantissa = (int64_t)ldexp(frexp(fabs(seconds), &exponent), 53);
    const __int128 product = (__int128)mantissa * 1000000000;
    const int shift = 53 - exponent; /* above 29 because of SECONDS_LIMIT */
    const int64_t ns =
        shift > 100 ? 0 : (int64_t)((product + ((__int128)1 << (shift - 1))) >> shift);

    return seconds < 0 ? -ns : ns;
}

/* Returns the ns of `seconds`. The whole seconds are exact, and the product of the fraction is off
 * by less than 1e-6 ns. */
TRAJD_INLINE int64_t ns_of(double seconds)
{
    const double whole = (double)(int64_t)seconds;
    const double product = (seconds - whole) * 1e9;
    const double rounded = product + ROUND_MAGIC - ROUND_MAGIC;

    if (fabs(fabs(product - rounded) - .5) < 1e-6)
        return exact_ns(seconds);
    return (int64_t)whole * 1000000000 + (int64_t)rounded;
}

static enum trajd_status refuse_seconds(const struct trajd_py_array *array,
                                        struct trajd_argument argument, int64_t row, int64_t column,
                                        double seconds, struct trajd_error *error)
{
    char place[64];

    snprintf(place, sizeof place, array->rank == 2 ? "[%" PRId64 ", %" PRId64 "]" : "[%" PRId64 "]",
             array->rank == 2 ? row : column, column);
    if (!isfinite(seconds))
        return trajd_argument_refuse(argument, error, "%s is not a number: remove such rows",
                                     place);
    return trajd_argument_refuse(
        argument, error,
        "%s is %.17g s, where float64 numbers are %.3g ns apart: pass int64 ns, or seconds from a "
        "near zero (subtract the same time from times and targets)",
        place, seconds, (nextafter(fabs(seconds), INFINITY) - fabs(seconds)) * 1e9);
}

static enum trajd_status convert(const struct trajd_py_array *array, struct trajd_argument argument,
                                 int64_t rows, int64_t *room, struct trajd_error *error)
{
    const int last = array->rank - 1;
    const int64_t count = array->shape[last], step = array->strides_bytes[last];

    for (int64_t w = 0; w < rows; w++) {
        const char *row = array->data + (array->rank == 2 ? w * array->strides_bytes[0] : 0);
        int64_t *to = room + w * count;
        if (array->dtype == TRAJD_I64) {
            for (int64_t i = 0; i < count; i++)
                to[i] = *(const int64_t *)(row + i * step);
            continue;
        }
        for (int64_t i = 0; i < count; i++) {
            const double seconds = *(const double *)(row + i * step);
            if (!(fabs(seconds) < SECONDS_LIMIT))
                return refuse_seconds(array, argument, w, i, seconds, error);
            to[i] = ns_of(seconds);
        }
    }
    return TRAJD_OK;
}

enum trajd_status trajd_py_times_check_type(const struct trajd_py_array *array,
                                            struct trajd_argument argument,
                                            struct trajd_error *error)
{
    if (array->dtype == TRAJD_I64 || array->dtype == TRAJD_F64)
        return TRAJD_OK;
    return trajd_argument_refuse(argument, error, "has type %s: pass int64 ns, or float64 seconds",
                                 trajd_dtype_name(array->dtype));
}

enum trajd_status trajd_py_times_read(const struct trajd_py_array *array, bool is_packed,
                                      struct trajd_argument argument, int64_t *room,
                                      struct trajd_py_times *times, struct trajd_error *error)
{
    const bool shared = is_shared(array);

    if (is_dense(array, is_packed)) {
        times->stamps_ns = (const int64_t *)array->data;
        times->row_stride = shared ? 0 : array->strides_bytes[0] / (int64_t)sizeof(int64_t);
        return TRAJD_OK;
    }
    times->stamps_ns = room;
    times->row_stride = shared ? 0 : array->shape[array->rank - 1];
    return convert(array, argument, shared ? 1 : array->shape[0], room, error);
}

/* Returns whether a stamp is before the one on its left. */
TRAJD_CLONES
static int descends(const int64_t *stamps_ns, int64_t count)
{
    int64_t found = 0;

    for (int64_t i = 1; i < count; i++)
        found |= stamps_ns[i] < stamps_ns[i - 1];
    return found != 0;
}

enum trajd_status trajd_py_times_check_order(const struct trajd_py_times *times, int64_t row_count,
                                             int64_t count, struct trajd_argument argument,
                                             struct trajd_error *error)
{
    for (int64_t w = 0; w < (times->row_stride ? row_count : 1); w++) {
        const int64_t *stamps_ns = times->stamps_ns + w * times->row_stride;
        int64_t i = 1;
        if (!descends(stamps_ns, count))
            continue;
        while (stamps_ns[i] >= stamps_ns[i - 1])
            i++;
        return trajd_argument_refuse(argument, error,
                                     "must ascend along S: row %" PRId64 ", element %" PRId64
                                     " is %" PRIu64
                                     " ns before the one on its left; sort the rows by time",
                                     w, i, (uint64_t)stamps_ns[i - 1] - (uint64_t)stamps_ns[i]);
    }
    return TRAJD_OK;
}
