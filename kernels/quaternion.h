/* Quaternions in double, for the reference and the CPU variants. Functions without a `kind` accept
 * both component orders. */
#ifndef TRAJD_KERNELS_QUATERNION_H
#define TRAJD_KERNELS_QUATERNION_H

#include <math.h>
#include <stdbool.h>

#include "kernels/resample.h"

/* Squared lengths that a quaternion may have, and how far from 1 the squared length may be for a
 * quaternion to be copied as it is stored. */
#define TRAJD_QUATERNION_MIN 1e-30
#define TRAJD_QUATERNION_MAX 1e30
#define TRAJD_QUATERNION_UNIT_SLACK 1e-5
/* Below this sine of the angle h, slerp uses the chord instead of the arc. The weights then differ
 * from sin(a h)/sin(h) by less than 1e-12. */
#define TRAJD_SLERP_PARALLEL 1e-6
/* Above the rounding of a dot product of unit quaternions. */
#define TRAJD_QUATERNION_TIE 1e-12

static inline bool trajd_kind_is_slerp(enum trajd_kind kind)
{
    return kind == TRAJD_KIND_SLERP_XYZW || kind == TRAJD_KIND_SLERP_WXYZ;
}

static inline double trajd_quaternion_dot(const double p[4], const double q[4])
{
    return p[0] * q[0] + p[1] * q[1] + p[2] * q[2] + p[3] * q[3];
}

/* Scales q to unit length, or to NaN if it has no direction. Returns the squared length before
 * scaling. */
static inline double trajd_quaternion_make_unit(double q[4])
{
    double square = trajd_quaternion_dot(q, q);
    double factor =
        square >= TRAJD_QUATERNION_MIN && square <= TRAJD_QUATERNION_MAX ? 1 / sqrt(square) : NAN;

    for (int k = 0; k < 4; k++)
        q[k] *= factor;
    return square;
}

/* Returns -1 if the shorter arc from p leads to -q, which is the same rotation as q, by the dot
 * product of unit p and q. At half a turn both arcs are equally long, and rounding does not choose:
 * the arc to q is taken. */
static inline double trajd_quaternion_side(double dot)
{
    return dot < -TRAJD_QUATERNION_TIE ? -1 : 1;
}

/* Interpolates from unit p to unit q on the shorter arc. The output has unit length. */
static inline void trajd_quaternion_slerp(const double p[4], const double q[4], double a,
                                          double out[4])
{
    double sign = trajd_quaternion_side(trajd_quaternion_dot(p, q));
    double sum = 0, difference = 0, angle, weight_p = 1 - a, weight_q = a;

    for (int k = 0; k < 4; k++) {
        sum += (p[k] + sign * q[k]) * (p[k] + sign * q[k]);
        difference += (p[k] - sign * q[k]) * (p[k] - sign * q[k]);
    }
    angle = 2 * atan2(sqrt(difference), sqrt(sum)); /* exact for tiny angles, where acos is not */
    if (sin(angle) > TRAJD_SLERP_PARALLEL) {
        weight_p = sin((1 - a) * angle) / sin(angle);
        weight_q = sin(a * angle) / sin(angle);
    }
    for (int k = 0; k < 4; k++)
        out[k] = weight_p * p[k] + sign * weight_q * q[k];
    trajd_quaternion_make_unit(out);
}

/* Computes the rotation vector of q p^-1 in the fixed frame, on the shorter way. p and q have unit
 * length. */
static inline void trajd_quaternion_turn(enum trajd_kind kind, const double p[4], const double q[4],
                                         double out[3])
{
    int w = kind == TRAJD_KIND_SLERP_XYZW ? 3 : 0;
    const double *u = kind == TRAJD_KIND_SLERP_XYZW ? p : p + 1;
    const double *v = kind == TRAJD_KIND_SLERP_XYZW ? q : q + 1;
    double scalar = q[w] * p[w] + u[0] * v[0] + u[1] * v[1] + u[2] * v[2];
    double x = p[w] * v[0] - q[w] * u[0] - (v[1] * u[2] - v[2] * u[1]);
    double y = p[w] * v[1] - q[w] * u[1] - (v[2] * u[0] - v[0] * u[2]);
    double z = p[w] * v[2] - q[w] * u[2] - (v[0] * u[1] - v[1] * u[0]);
    double sine = sqrt(x * x + y * y + z * z);
    double factor = sine > 0 ? 2 * atan2(sine, fabs(scalar)) / sine : 2;

    factor *= trajd_quaternion_side(scalar);
    out[0] = factor * x;
    out[1] = factor * y;
    out[2] = factor * z;
}

#endif
