#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "clients/python/core/py_array.h"
#include "kernels/clones.h"

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
