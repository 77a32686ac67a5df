/* Which rows are poses as matrices, by their values. */
#include <math.h>

#include "clients/cli/draft/draft_clocks.h"

static const double tolerance = 1e-3;

static bool is_near(double value, double expected)
{
    return fabs(value - expected) < tolerance; /* false for NaN */
}

/* Tests four elements of a 4x4 matrix, the last row or the last column. */
static bool is_edge(const double *values, int step)
{
    return is_near(values[0], 0) && is_near(values[step], 0) && is_near(values[2 * step], 0) &&
           is_near(values[3 * step], 1);
}

/* Returns whether the rows of a 3x3 matrix, `stride` elements apart, have unit length and are
 * orthogonal. */
static bool is_rotation(const double *values, int stride)
{
    for (int i = 0; i < 3; i++) {
        for (int j = i; j < 3; j++) {
            const double *a = values + i * stride, *b = values + j * stride;
            if (!is_near(a[0] * b[0] + a[1] * b[1] + a[2] * b[2], i == j))
                return false;
        }
    }
    return true;
}

bool draft_are_matrices(const double *values, uint64_t rows, uint64_t elements)
{
    if (elements != 9 && elements != 16)
        return false;
    for (uint64_t i = 0; i < rows; i++) {
        const double *row = values + i * elements;
        if (elements == 16 && !is_edge(row + 12, 1) && !is_edge(row + 3, 4))
            return false;
        if (!is_rotation(row, elements == 16 ? 4 : 3))
            return false;
    }
    return rows > 0;
}
