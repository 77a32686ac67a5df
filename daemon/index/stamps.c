/* Converts stamps of any number type to int64 nanoseconds, and handles those that repeat or go
 * back. */
#include "daemon/index/stamps.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "daemon/index/rows/array.h"

static int64_t unit_ns(enum trajd_stamp_unit unit)
{
    static const int64_t ns[] = {1, 1000, 1000000, 1000000000};

    return ns[unit];
}

bool trajd_stamp_from_f64(double value, enum trajd_stamp_unit unit, int64_t *stamp_ns)
{
    int exponent;
    __int128 product;

    if (!isfinite(value) || fabs(value) >= 9.3e18)
        return false;
    /* value = m * 2^exponent with an integer m of 53 bits. m * 10^9 fits 83 bits, so only the shift
     * rounds. */
    product = (__int128)(int64_t)ldexp(frexp(value, &exponent), 53) * unit_ns(unit);
    exponent -= 53;
    if (exponent >= 0) {
        product *= (__int128)1 << exponent; /* |value| < 2^63, so exponent <= 10 */
    } else if (exponent < -100) {
        product = 0;
    } else {
        __int128 half = (__int128)1 << (-exponent - 1);
        bool negative = product < 0;
        product = ((negative ? -product : product) + half) >> -exponent;
        product = negative ? -product : product;
    }
    if (product > INT64_MAX || product < INT64_MIN)
        return false;
    *stamp_ns = (int64_t)product;
    return true;
}

bool trajd_stamp_from_i64(int64_t value, enum trajd_stamp_unit unit, int64_t *stamp_ns)
{
    int64_t product;

    if (__builtin_mul_overflow(value, unit_ns(unit), &product))
        return false;
    *stamp_ns = product;
    return true;
}

static enum trajd_status bad_stamp(uint64_t row, double value, struct trajd_error *error)
{
    if (isnan(value) || isinf(value))
        return trajd_error_set(error, TRAJD_ERR_DATA, 0, "row %" PRIu64 ": the stamp is %s", row,
                               isnan(value) ? "NaN" : "infinite");
    return trajd_error_set(error, TRAJD_ERR_DATA, 0,
                           "row %" PRIu64 ": the stamp %g is beyond what 64 bits of ns hold", row,
                           value);
}

static enum trajd_status convert_one(enum trajd_dtype dtype, const uint8_t *element, uint64_t row,
                                     enum trajd_stamp_unit unit, int64_t *stamp_ns,
                                     struct trajd_error *error)
{
    double value = 0;
    int64_t whole;

    if (dtype == TRAJD_F64 || dtype == TRAJD_F32 || dtype == TRAJD_F16 || dtype == TRAJD_BF16) {
        trajd_array_to_f64(dtype, element, 1, &value);
        return trajd_stamp_from_f64(value, unit, stamp_ns) ? TRAJD_OK
                                                           : bad_stamp(row, value, error);
    }
    if (dtype == TRAJD_U64) {
        uint64_t large;
        memcpy(&large, element, sizeof large);
        if (large > INT64_MAX)
            return bad_stamp(row, (double)large, error);
    }
    if (!trajd_array_to_i64(dtype, element, 1, &whole))
        return trajd_error_set(error, TRAJD_ERR_DATA, 0, "stamps of type %s are not numbers",
                               trajd_dtype_name(dtype));
    return trajd_stamp_from_i64(whole, unit, stamp_ns) ? TRAJD_OK
                                                       : bad_stamp(row, (double)whole, error);
}

enum trajd_status trajd_stamps_convert(enum trajd_dtype dtype, const void *elements, uint64_t count,
                                       uint64_t stride, enum trajd_stamp_unit unit,
                                       int64_t *stamps_ns, struct trajd_error *error)
{
    const uint8_t *element = elements;
    uint64_t step = stride * trajd_dtype_size(dtype);
    enum trajd_status status = TRAJD_OK;

    for (uint64_t row = 0; row < count && !status; row++, element += step)
        status = convert_one(dtype, element, row, unit, &stamps_ns[row], error);
    return status;
}

/* Returns whether all stamps are equal, as epoch times in float32 or whole seconds are. */
static bool is_constant(const int64_t *stamps_ns, uint64_t count)
{
    for (uint64_t i = 1; i < count; i++) {
        if (stamps_ns[i] != stamps_ns[0])
            return false;
    }
    return count > 1;
}

enum trajd_status trajd_stamps_filter(int64_t *stamps_ns, uint32_t *kept_rows, uint64_t count,
                                      enum trajd_stamp_policy repeated,
                                      enum trajd_stamp_policy backward, uint64_t *kept,
                                      struct trajd_error *error)
{
    uint64_t n = 0;

    if (repeated == TRAJD_STAMPS_ERROR && is_constant(stamps_ns, count))
        return trajd_error_set(
            error, TRAJD_ERR_DATA, 0,
            "all %" PRIu64
            " stamps are equal: their type's resolution is too coarse for the values",
            count);
    for (uint64_t row = 0; row < count; row++) {
        int64_t stamp = stamps_ns[row];
        bool repeats = n && stamp == stamps_ns[n - 1];
        enum trajd_stamp_policy policy = repeats ? repeated : backward;

        if (n && stamp <= stamps_ns[n - 1]) {
            if (policy == TRAJD_STAMPS_ERROR)
                return trajd_error_set(error, TRAJD_ERR_DATA, 0,
                                       "row %" PRIu64 ": the stamp %s the one of row %u", row,
                                       repeats ? "repeats" : "goes back behind", kept_rows[n - 1]);
            if (policy == TRAJD_STAMPS_DROP)
                continue;
            while (n && stamps_ns[n - 1] >= stamp)
                n--;
        }
        stamps_ns[n] = stamp;
        kept_rows[n++] = (uint32_t)row;
    }
    *kept = n;
    return TRAJD_OK;
}

uint64_t trajd_stamps_find_off_grid(const int64_t *stamps_ns, const uint32_t *rows, uint64_t count,
                                    struct trajd_rate rate, enum trajd_stamp_unit unit)
{
    const int64_t limit_ns = trajd_rate_row_ns(rate, 1) + unit_ns(unit);

    for (uint64_t i = 1; i < count; i++) {
        const uint64_t step = rows ? rows[i] - rows[0] : i;
        const __int128 off_ns = (__int128)stamps_ns[i] - stamps_ns[0] -
                                (__int128)trajd_rate_row_ns(rate, (int64_t)step);
        if (off_ns > limit_ns || off_ns < -limit_ns)
            return i;
    }
    return count;
}
