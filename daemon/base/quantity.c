/* Parses decimal numbers with a unit into bytes, nanoseconds and rates, exactly. */
#include "daemon/base/quantity.h"

#include <math.h>
#include <string.h>

#include "proto/array_len.h"

enum { MAX_FRACTION_DIGITS = 18 };

/* The number digits / scale. scale is a power of ten; trailing zeros of the fraction are dropped.
 */
struct decimal {
    uint64_t digits;
    uint64_t scale;
    bool negative;
};

struct unit {
    const char *name;
    uint64_t factor;
};

static const struct unit size_units[] = {
    {"", 1},
    {"B", 1},
    {"KiB", UINT64_C(1) << 10},
    {"MiB", UINT64_C(1) << 20},
    {"GiB", UINT64_C(1) << 30},
    {"TiB", UINT64_C(1) << 40},
    {"kB", 1000},
    {"MB", 1000000},
    {"GB", 1000000000},
    {"TB", UINT64_C(1000000000000)},
};

static const struct unit duration_units[] = {
    {"ns", 1},
    {"us", 1000},
    {"ms", 1000000},
    {"s", 1000000000},
    {"min", UINT64_C(60000000000)},
    {"h", UINT64_C(3600000000000)},
    {"d", UINT64_C(86400000000000)},
};

/* The usual decimal notation of each broadcast rate num/1001. */
static const struct {
    uint64_t digits;
    uint64_t scale;
    int64_t num;
} broadcast_rates[] = {
    {23976, 1000, 24000},
    {2997, 100, 30000},
    {5994, 100, 60000},
    {11988, 100, 120000},
};

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static const char *skip_spaces(const char *text)
{
    while (*text == ' ')
        text++;
    return text;
}

/* Appends a digit. False where the number would not fit. */
static bool append_digit(uint64_t *digits, char c)
{
    uint64_t digit = (uint64_t)(c - '0');

    if (*digits > (UINT64_MAX - digit) / 10)
        return false;
    *digits = *digits * 10 + digit;
    return true;
}

/* Reads [-+]digits[.digits] and moves *text past it. */
static bool read_decimal(const char **text, struct decimal *out)
{
    const char *c = skip_spaces(*text);
    struct decimal number = {.scale = 1};
    const char *fraction_end;

    number.negative = *c == '-';
    if (*c == '-' || *c == '+')
        c++;
    if (!is_digit(*c))
        return false;
    for (; is_digit(*c); c++)
        if (!append_digit(&number.digits, *c))
            return false;
    if (*c == '.') {
        c++;
        if (!is_digit(*c))
            return false;
        fraction_end = c + strspn(c, "0123456789");
        *text = fraction_end;
        while (fraction_end > c && fraction_end[-1] == '0')
            fraction_end--;
        if (fraction_end - c > MAX_FRACTION_DIGITS)
            return false;
        for (; c < fraction_end; c++, number.scale *= 10)
            if (!append_digit(&number.digits, *c))
                return false;
    } else {
        *text = c;
    }
    *out = number;
    return true;
}

static const struct unit *find_unit(const struct unit *units, size_t count, const char *text)
{
    size_t length;

    text = skip_spaces(text);
    length = strcspn(text, " ");
    if (*skip_spaces(text + length))
        return NULL;
    for (size_t i = 0; i < count; i++)
        if (strlen(units[i].name) == length && !strncmp(units[i].name, text, length))
            return &units[i];
    return NULL;
}

/* Writes number * factor. False where that is not a whole number of at most `limit`. */
static bool scale_exactly(struct decimal number, uint64_t factor, uint64_t limit, uint64_t *out)
{
    unsigned __int128 product = (unsigned __int128)number.digits * factor;

    if (product % number.scale || product / number.scale > limit)
        return false;
    *out = (uint64_t)(product / number.scale);
    return true;
}

bool trajd_parse_size(const char *text, uint64_t *out_bytes)
{
    struct decimal number;
    const struct unit *unit;

    if (!read_decimal(&text, &number) || (number.negative && number.digits))
        return false;
    unit = find_unit(size_units, ARRAY_LEN(size_units), text);
    return unit && scale_exactly(number, unit->factor, UINT64_MAX, out_bytes);
}

bool trajd_parse_duration(const char *text, int64_t *out_ns)
{
    struct decimal number;
    const struct unit *unit;
    uint64_t magnitude_ns;

    if (!read_decimal(&text, &number))
        return false;
    if (!number.digits && !*skip_spaces(text)) {
        *out_ns = 0;
        return true;
    }
    unit = find_unit(duration_units, ARRAY_LEN(duration_units), text);
    if (!unit || !scale_exactly(number, unit->factor, INT64_MAX, &magnitude_ns))
        return false;
    *out_ns = number.negative ? -(int64_t)magnitude_ns : (int64_t)magnitude_ns;
    return true;
}

static uint64_t greatest_common_divisor(uint64_t a, uint64_t b)
{
    while (b) {
        uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

static bool make_rate(uint64_t num, uint64_t den, struct trajd_rate *out)
{
    uint64_t divisor;

    if (!num || !den)
        return false;
    divisor = greatest_common_divisor(num, den);
    num /= divisor;
    den /= divisor;
    if (num > INT32_MAX || den > INT32_MAX || num > den * 1000000000 || num * 1000000 < den)
        return false;
    out->num = (int64_t)num;
    out->den = (int64_t)den;
    return true;
}

bool trajd_parse_period(const char *text, uint32_t per_second, struct trajd_rate *out)
{
    struct decimal period;
    uint64_t scale;
    double hz;

    if (!read_decimal(&text, &period) || period.negative || *skip_spaces(text) || !period.digits ||
        __builtin_mul_overflow(period.scale, per_second, &scale))
        return false;
    hz = (double)scale / (double)period.digits;
    if (hz >= 0.5 && hz < INT32_MAX && fabs(hz - round(hz)) < hz * 5e-5)
        return make_rate((uint64_t)round(hz), 1, out);
    return make_rate(scale, period.digits, out);
}

bool trajd_parse_rate(const char *text, struct trajd_rate *out)
{
    struct decimal number, divisor = {.digits = 1, .scale = 1};

    if (!read_decimal(&text, &number) || number.negative)
        return false;
    text = skip_spaces(text);
    if (*text == '/') {
        text++;
        if (!read_decimal(&text, &divisor) || divisor.negative || number.scale != 1 ||
            divisor.scale != 1)
            return false;
        text = skip_spaces(text);
    }
    if (*text)
        return false;
    for (size_t i = 0; divisor.digits == 1 && i < ARRAY_LEN(broadcast_rates); i++)
        if (number.digits == broadcast_rates[i].digits && number.scale == broadcast_rates[i].scale)
            return make_rate((uint64_t)broadcast_rates[i].num, 1001, out);
    return make_rate(number.digits, number.scale * divisor.digits, out);
}
