#include "kernels/transform/rotation_forms.h"

#include <math.h>
#include <string.h>

#define LENGTH_MIN 1e-30 /* squared length of a vector that has a direction */
#define LENGTH_MAX 1e30
#define LINE_MAX 1e-12     /* squared sine of the angle between vectors on one line */
#define MATRIX_SLACK 0.1   /* how far the rows of a matrix may be from orthogonal unit vectors */
#define GIMBAL_COSINE 1e-7 /* of the middle Euler angle */
#define SMALL_ANGLE 1e-4   /* below it, a series of two terms is exact in double */

static const char *const names[TRAJD_ROTATION_COUNT] = {
    "none",      "quat_xyzw", "quat_wxyz", "axis_angle", "matrix",    "rot6d",
    "euler_xyz", "euler_xzy", "euler_yxz", "euler_yzx",  "euler_zxy", "euler_zyx",
    "euler_XYZ", "euler_XZY", "euler_YXZ", "euler_YZX",  "euler_ZXY", "euler_ZYX"};

const char *trajd_rotation_name(enum trajd_rotation_form form)
{
    return names[form];
}

enum trajd_rotation_form trajd_rotation_parse(const char *name)
{
    for (int form = 1; form < TRAJD_ROTATION_COUNT; form++)
        if (strcmp(names[form], name) == 0)
            return (enum trajd_rotation_form)form;
    return TRAJD_ROTATION_NONE;
}

uint32_t trajd_rotation_width(enum trajd_rotation_form form)
{
    return trajd_rotation_is_quaternion(form) ? 4
           : form == TRAJD_ROTATION_MATRIX    ? 9
           : form == TRAJD_ROTATION_ROT6D     ? 6
           : form == TRAJD_ROTATION_NONE      ? 0
                                              : 3;
}

bool trajd_rotation_is_quaternion(enum trajd_rotation_form form)
{
    return form == TRAJD_ROTATION_QUAT_XYZW || form == TRAJD_ROTATION_QUAT_WXYZ;
}

/* ---- algebra ---- */

static double dot(const double *a, const double *b, int count)
{
    double sum = 0;

    for (int k = 0; k < count; k++)
        sum += a[k] * b[k];
    return sum;
}

/* Scales a vector to length 1. False: it has no direction. */
static bool make_unit(double *v, int count)
{
    const double square = dot(v, v, count);
    const bool good = square >= LENGTH_MIN && square <= LENGTH_MAX;
    const double length = sqrt(square);

    for (int k = 0; k < count; k++)
        v[k] = good ? v[k] / length : NAN;
    return good;
}

static void cross(const double a[3], const double b[3], double out[3])
{
    out[0] = a[1] * b[2] - a[2] * b[1];
    out[1] = a[2] * b[0] - a[0] * b[2];
    out[2] = a[0] * b[1] - a[1] * b[0];
}

void trajd_rotation_multiply(const double p[4], const double q[4], double out[4])
{
    const double x = p[3] * q[0] + p[0] * q[3] + p[1] * q[2] - p[2] * q[1],
                 y = p[3] * q[1] - p[0] * q[2] + p[1] * q[3] + p[2] * q[0],
                 z = p[3] * q[2] + p[0] * q[1] - p[1] * q[0] + p[2] * q[3],
                 w = p[3] * q[3] - p[0] * q[0] - p[1] * q[1] - p[2] * q[2];

    out[0] = x;
    out[1] = y;
    out[2] = z;
    out[3] = w;
}

void trajd_rotation_invert(const double q[4], double out[4])
{
    out[0] = -q[0];
    out[1] = -q[1];
    out[2] = -q[2];
    out[3] = q[3];
}

void trajd_rotation_turn(const double q[4], const double v[3], double out[3])
{
    double t[3], u[3];

    cross(q, v, t);
    for (int k = 0; k < 3; k++)
        t[k] *= 2;
    cross(q, t, u);
    for (int k = 0; k < 3; k++)
        out[k] = v[k] + q[3] * t[k] + u[k];
}

/* ---- matrices ---- */

static void to_matrix(const double q[4], double m[3][3])
{
    const double x = q[0], y = q[1], z = q[2], w = q[3];

    m[0][0] = 1 - 2 * (y * y + z * z);
    m[0][1] = 2 * (x * y - z * w);
    m[0][2] = 2 * (x * z + y * w);
    m[1][0] = 2 * (x * y + z * w);
    m[1][1] = 1 - 2 * (x * x + z * z);
    m[1][2] = 2 * (y * z - x * w);
    m[2][0] = 2 * (x * z - y * w);
    m[2][1] = 2 * (y * z + x * w);
    m[2][2] = 1 - 2 * (x * x + y * y);
}

/* Shepperd's method: divides by the largest of the four components. */
static void of_matrix(double m[3][3], double q[4])
{
    const double trace = m[0][0] + m[1][1] + m[2][2];
    int i = 0, j, k;

    for (int d = 1; d < 3; d++)
        i = m[d][d] > m[i][i] ? d : i;
    j = (i + 1) % 3;
    k = (i + 2) % 3;
    if (trace >= m[i][i]) {
        q[0] = m[2][1] - m[1][2];
        q[1] = m[0][2] - m[2][0];
        q[2] = m[1][0] - m[0][1];
        q[3] = 1 + trace;
    } else {
        q[i] = 1 + m[i][i] - m[j][j] - m[k][k];
        q[j] = m[j][i] + m[i][j];
        q[k] = m[k][i] + m[i][k];
        q[3] = m[k][j] - m[j][k];
    }
    make_unit(q, 4);
}

/* Makes a matrix from its first two rows: the second one is turned until it is orthogonal to the
 * first. */
static bool of_two_rows(const double *rows, double q[4])
{
    double m[3][3];
    bool good;

    memcpy(m, rows, 6 * sizeof *rows);
    good = make_unit(m[0], 3) && make_unit(m[1], 3);
    for (int pass = 0; pass < 2 && good; pass++) { /* the second pass removes rounding errors */
        const double along = dot(m[0], m[1], 3);
        for (int k = 0; k < 3; k++)
            m[1][k] -= along * m[0][k];
        good = dot(m[1], m[1], 3) > LINE_MAX && make_unit(m[1], 3);
    }
    cross(m[0], m[1], m[2]);
    of_matrix(m, q);
    return good;
}

static bool is_orthogonal(const double *m)
{
    double third[3];
    bool good = true;

    for (int r = 0; r < 3; r++) {
        good = good && fabs(dot(m + 3 * r, m + 3 * r, 3) - 1) < MATRIX_SLACK;
        good = good && fabs(dot(m + 3 * r, m + 3 * ((r + 1) % 3), 3)) < MATRIX_SLACK;
    }
    cross(m, m + 3, third);
    return good && dot(third, m + 6, 3) > 0;
}

/* ---- angles ---- */

static bool of_axis_angle(const double v[3], double q[4])
{
    const double angle = sqrt(dot(v, v, 3));
    const double factor = angle < SMALL_ANGLE ? 0.5 - angle * angle / 48 : sin(angle / 2) / angle;

    for (int k = 0; k < 3; k++)
        q[k] = factor * v[k];
    q[3] = cos(angle / 2);
    return isfinite(angle); /* the length is 1 within rounding */
}

static void to_axis_angle(const double q[4], double v[3])
{
    const double sign = q[3] < 0 ? -1 : 1, sine = sqrt(dot(q, q, 3));
    const double factor = sine > 0 ? 2 * atan2(sine, fabs(q[3])) / sine : 2;

    for (int k = 0; k < 3; k++)
        v[k] = sign * factor * q[k];
}

/* Finds the axes of the rotations about fixed axes in the order in which they are applied. Returns
 * whether the angles are written in the reverse order, as those about moving axes are. */
static bool euler_axes(enum trajd_rotation_form form, int axes[3])
{
    const char *letters = names[form] + sizeof "euler_" - 1;
    const bool moving = letters[0] < 'a';

    for (int k = 0; k < 3; k++)
        axes[k] = letters[moving ? 2 - k : k] - (moving ? 'X' : 'x');
    return moving;
}

static bool of_euler(enum trajd_rotation_form form, const double *angles, double q[4])
{
    int axes[3];
    const bool reversed = euler_axes(form, axes);

    memcpy(q, (const double[]){0, 0, 0, 1}, 4 * sizeof *q);
    for (int k = 0; k < 3; k++) {
        const double half = angles[reversed ? 2 - k : k] / 2;
        double turn[4] = {0, 0, 0, cos(half)};
        turn[axes[k]] = sin(half);
        trajd_rotation_multiply(turn, q, q);
    }
    return make_unit(q, 4);
}

static void to_euler(enum trajd_rotation_form form, const double q[4], double *angles)
{
    int axes[3];
    const bool reversed = euler_axes(form, axes);
    const int i = axes[0], j = axes[1], k = axes[2];
    const double sign = (i + 1) % 3 == j ? 1 : -1;
    double m[3][3], found[3], cosine;

    to_matrix(q, m);
    cosine = hypot(m[i][i], m[j][i]);
    found[1] = atan2(-sign * m[k][i], cosine);
    if (cosine > GIMBAL_COSINE) {
        found[0] = atan2(sign * m[k][j], m[k][k]);
        found[2] = atan2(sign * m[j][i], m[i][i]);
    } else if (reversed) { /* the angle that is written last is 0: here that about the first axis */
        found[0] = 0;
        found[2] = atan2(-sign * m[i][j], m[j][j]);
    } else {
        found[0] = atan2(-sign * m[j][k], m[j][j]);
        found[2] = 0;
    }
    for (int a = 0; a < 3; a++)
        angles[a] = found[reversed ? 2 - a : a];
}

/* ---- forms ---- */

bool trajd_rotation_load(enum trajd_rotation_form form, const double *numbers, double q[4])
{
    bool good = true;

    if (trajd_rotation_is_quaternion(form)) {
        const int first = form == TRAJD_ROTATION_QUAT_WXYZ;
        for (int k = 0; k < 4; k++)
            q[k] = numbers[(k + first) % 4];
        good = make_unit(q, 4);
    } else if (form == TRAJD_ROTATION_AXIS_ANGLE) {
        good = of_axis_angle(numbers, q);
    } else if (form == TRAJD_ROTATION_MATRIX) {
        good = is_orthogonal(numbers) && of_two_rows(numbers, q);
    } else if (form == TRAJD_ROTATION_ROT6D) {
        good = of_two_rows(numbers, q);
    } else {
        good = of_euler(form, numbers, q);
    }
    for (int k = 0; k < 4 && !good; k++)
        q[k] = NAN;
    return good;
}

void trajd_rotation_store(enum trajd_rotation_form form, const double q[4], double *numbers)
{
    const double sign = q[3] < 0 ? -1 : 1;
    double m[3][3];

    if (trajd_rotation_is_quaternion(form)) {
        const int first = form == TRAJD_ROTATION_QUAT_WXYZ;
        for (int k = 0; k < 4; k++)
            numbers[(k + first) % 4] = sign * q[k];
    } else if (form == TRAJD_ROTATION_AXIS_ANGLE) {
        to_axis_angle(q, numbers);
    } else if (form == TRAJD_ROTATION_MATRIX || form == TRAJD_ROTATION_ROT6D) {
        to_matrix(q, m);
        memcpy(numbers, m, trajd_rotation_width(form) * sizeof *numbers);
    } else {
        to_euler(form, q, numbers);
    }
}
