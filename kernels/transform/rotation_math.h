/* Arithmetic of rotations, for one row (rotation_forms.c) and for many side by side
 * (rotation_lanes.c). Both give the same bits: there is one source, without contraction to fused
 * multiply-add, and without libm but for sqrt, floor and rint, which are exact.
 *
 * Functions have no branches, so that a loop over steps that calls them is vectorised.
 *
 *   cos, sin(x) / x     polynomials in x^2, within 2e-17 on |x| <= pi / 2
 *   atan                a polynomial on |x| <= tan(pi / 8), within 5e-17
 *
 * With rounding, a result is within 1e-15 of the exact one. Angles are reduced by multiples of pi
 * in three parts, so that this holds up to ANGLE_MAX; larger ones are not rotations. */
#ifndef TRAJD_KERNELS_TRANSFORM_ROTATION_MATH_H
#define TRAJD_KERNELS_TRANSFORM_ROTATION_MATH_H

#include <math.h>

#include "kernels/clones.h"

#define TRAJD_ROTATION_LENGTH_MIN 1e-30 /* squared length of a vector that has a direction */
#define TRAJD_ROTATION_LENGTH_MAX 1e30
#define TRAJD_ROTATION_LINE_MAX 1e-12 /* squared sine of the angle between vectors on one line */
#define TRAJD_ROTATION_SLACK 0.1      /* of the rows of a matrix from orthogonal unit vectors */
#define TRAJD_ROTATION_GIMBAL 1e-7    /* cosine of the middle Euler angle */
#define TRAJD_ROTATION_ANGLE_MAX 5e5  /* radians; half of the largest angle of a rotation */
#define TRAJD_ROTATION_NEAR 39.4784   /* (2 pi)^2, from below */

/* A quaternion, of unit length where nothing else is said. */
struct trajd_rotation {
    double x, y, z, w;
};

struct trajd_vector {
    double x, y, z;
};

struct trajd_rows {
    struct trajd_vector a, b, c;
};

/* clang-format off */
/* cos(sqrt(t)) and sin(sqrt(t)) / sqrt(t), for t in [0, 2.5]. */
TRAJD_INLINE double trajd_math_cosine(double t)
{
    return 1.0 + t * (-0.4999999999999997 + t * (0.04166666666666362 +
           t * (-0.001388888888876354 + t * (2.4801587275784903e-05 +
           t * (-2.7557316239382295e-07 + t * (2.0876554070578946e-09 +
           t * (-1.146269567962633e-11 + t * 4.6067631054803294e-14)))))));
}

TRAJD_INLINE double trajd_math_sine_ratio(double t)
{
    return 1.0 + t * (-0.16666666666666666 + t * (0.008333333333333172 +
           t * (-0.00019841269841203686 + t * (2.7557319210368927e-06 +
           t * (-2.5052106810497993e-08 + t * (1.6058936776017246e-10 +
           t * (-7.642917664745445e-13 + t * 2.720405906974994e-15)))))));
}

/* atan(x), for |x| <= tan(pi / 8). */
TRAJD_INLINE double trajd_math_atan(double x)
{
    const double t = x * x;

    return x + x * t * (-0.3333333333333333 + t * (0.1999999999999548 +
           t * (-0.14285714284657894 + t * (0.11111111014561013 + t * (-0.09090904549884611 +
           t * (0.07692182535116648 + t * (-0.06664502215671447 + t * (0.058580687568615106 +
           t * (-0.05085030492810941 + t * (0.03921955253255129 +
           t * -0.019162068915902573))))))))));
}
/* clang-format on */

/* Computes sine and cosine of an angle. Beyond ANGLE_MAX, and for NaN, both are NaN. */
TRAJD_INLINE void trajd_math_sine(double x, double *sine, double *cosine)
{
    const double turns = rint(x * 0.31830988618379067154);
    /* pi in parts of 33 bits, whose products with `turns` are exact */
    const double r = ((x - turns * 3.14159265346825122833) - turns * 1.21542010126079320e-10) -
                     turns * 4.04453249759190100e-21;
    const double sign = turns - 2 * floor(turns * 0.5) > 0 ? -1 : 1;
    const double good = fabs(x) <= TRAJD_ROTATION_ANGLE_MAX ? sign : NAN;

    *sine = good * (r * trajd_math_sine_ratio(r * r));
    *cosine = good * trajd_math_cosine(r * r);
}

TRAJD_INLINE double trajd_math_atan2(double y, double x)
{
    const double a = fabs(x), b = fabs(y);
    const double low = a < b ? a : b, high = a < b ? b : a;
    const int steep = low > 0.41421356237309504880 * high;
    const double above = steep ? low - high : low, below = steep ? low + high : high;
    const double ratio = above / (below > 0 ? below : 1);
    double angle = trajd_math_atan(ratio) + (steep ? 0.78539816339744830962 : 0);

    angle = a < b ? 1.57079632679489661923 - angle : angle;
    angle = x < 0 ? 3.14159265358979323846 - angle : angle;
    return copysign(angle, y);
}

/* ---- vectors ---- */

TRAJD_INLINE double trajd_vector_dot(struct trajd_vector a, struct trajd_vector b)
{
    return a.x * b.x + a.y * b.y + a.z * b.z;
}

TRAJD_INLINE struct trajd_vector trajd_vector_cross(struct trajd_vector a, struct trajd_vector b)
{
    return (struct trajd_vector){a.y * b.z - a.z * b.y, a.z * b.x - a.x * b.z,
                                 a.x * b.y - a.y * b.x};
}

TRAJD_INLINE struct trajd_vector trajd_vector_scale(struct trajd_vector a, double factor)
{
    return (struct trajd_vector){a.x * factor, a.y * factor, a.z * factor};
}

/* Returns what scales a vector of that squared length to length 1; NaN: it has no direction. */
TRAJD_INLINE double trajd_unit_factor(double square)
{
    const double factor = 1 / sqrt(square);

    return square >= TRAJD_ROTATION_LENGTH_MIN && square <= TRAJD_ROTATION_LENGTH_MAX ? factor
                                                                                      : NAN;
}

TRAJD_INLINE struct trajd_vector trajd_vector_unit(struct trajd_vector a)
{
    return trajd_vector_scale(a, trajd_unit_factor(trajd_vector_dot(a, a)));
}

/* Returns the unit vector of axis 0, 1 or 2. */
TRAJD_INLINE struct trajd_vector trajd_vector_axis(int axis)
{
    return (struct trajd_vector){axis == 0 ? 1.0 : 0.0, axis == 1 ? 1.0 : 0.0,
                                 axis == 2 ? 1.0 : 0.0};
}

/* ---- quaternions ---- */

TRAJD_INLINE struct trajd_rotation trajd_rotation_scale(struct trajd_rotation q, double factor)
{
    return (struct trajd_rotation){q.x * factor, q.y * factor, q.z * factor, q.w * factor};
}

TRAJD_INLINE struct trajd_rotation trajd_rotation_unit(struct trajd_rotation q)
{
    return trajd_rotation_scale(q,
                                trajd_unit_factor(q.x * q.x + q.y * q.y + q.z * q.z + q.w * q.w));
}

/* Returns p q: turns by q first, then by p. */
TRAJD_INLINE struct trajd_rotation trajd_rotation_product(struct trajd_rotation p,
                                                          struct trajd_rotation q)
{
    return (struct trajd_rotation){p.w * q.x + p.x * q.w + p.y * q.z - p.z * q.y,
                                   p.w * q.y - p.x * q.z + p.y * q.w + p.z * q.x,
                                   p.w * q.z + p.x * q.y - p.y * q.x + p.z * q.w,
                                   p.w * q.w - p.x * q.x - p.y * q.y - p.z * q.z};
}

TRAJD_INLINE struct trajd_rotation trajd_rotation_inverse(struct trajd_rotation q)
{
    return (struct trajd_rotation){-q.x, -q.y, -q.z, q.w};
}

TRAJD_INLINE struct trajd_vector trajd_rotation_turned(struct trajd_rotation q,
                                                       struct trajd_vector v)
{
    const struct trajd_vector axis = {q.x, q.y, q.z};
    const struct trajd_vector t = trajd_vector_scale(trajd_vector_cross(axis, v), 2),
                              u = trajd_vector_cross(axis, t);

    return (struct trajd_vector){v.x + q.w * t.x + u.x, v.y + q.w * t.y + u.y,
                                 v.z + q.w * t.z + u.z};
}

/* ---- from a form; no rotation becomes NaN ---- */

/* Angles up to 2 pi. sin(h) / h = s c and cos(h) = 1 - 2 t s^2, with sine ratio s and cosine c of
 * h / 2, and t = (h / 2)^2, where h is half the angle. */
TRAJD_INLINE struct trajd_rotation trajd_rotation_of_axis_angle_near(struct trajd_vector v)
{
    const double t = trajd_vector_dot(v, v) * 0.0625;
    const double s = trajd_math_sine_ratio(t), factor = 0.5 * (s * trajd_math_cosine(t));

    return (struct trajd_rotation){v.x * factor, v.y * factor, v.z * factor, 1 - 2 * (t * s) * s};
}

TRAJD_INLINE struct trajd_rotation trajd_rotation_of_axis_angle_far(struct trajd_vector v)
{
    const double angle = sqrt(trajd_vector_dot(v, v));
    double sine, cosine;

    trajd_math_sine(angle * 0.5, &sine, &cosine);
    return (struct trajd_rotation){v.x * (sine / angle), v.y * (sine / angle), v.z * (sine / angle),
                                   cosine};
}

TRAJD_INLINE struct trajd_rotation trajd_rotation_select(int first, struct trajd_rotation p,
                                                         struct trajd_rotation q)
{
    return (struct trajd_rotation){first ? p.x : q.x, first ? p.y : q.y, first ? p.z : q.z,
                                   first ? p.w : q.w};
}

/* Shepperd's method: divides by the largest of the four components. */
TRAJD_INLINE struct trajd_rotation trajd_rotation_of_rows(struct trajd_rows m)
{
    const double x = m.a.x, y = m.b.y, z = m.c.z, w = x + y + z;
    const double xy = m.b.x + m.a.y, xz = m.c.x + m.a.z, yz = m.c.y + m.b.z;
    const double wx = m.c.y - m.b.z, wy = m.a.z - m.c.x, wz = m.b.x - m.a.y;
    const struct trajd_rotation by_x = {1 + x - y - z, xy, xz, wx},
                                by_y = {xy, 1 + y - z - x, yz, wy},
                                by_z = {xz, yz, 1 + z - x - y, wz}, by_w = {wx, wy, wz, 1 + w};
    const double xy_most = y > x ? y : x, most = z > xy_most ? z : xy_most;
    struct trajd_rotation q = trajd_rotation_select(y > x, by_y, by_x);

    q = trajd_rotation_select(z > xy_most, by_z, q);
    return trajd_rotation_unit(trajd_rotation_select(w >= most, by_w, q));
}

/* Two rows of a matrix: the second one is turned until it is orthogonal to the first. The second
 * pass removes rounding errors. */
TRAJD_INLINE struct trajd_rotation trajd_rotation_of_two_rows(struct trajd_vector first,
                                                              struct trajd_vector second)
{
    const struct trajd_vector a = trajd_vector_unit(first);
    struct trajd_vector b = trajd_vector_unit(second);

    for (int pass = 0; pass < 2; pass++) {
        const double along = trajd_vector_dot(a, b);
        double square;
        b = (struct trajd_vector){b.x - along * a.x, b.y - along * a.y, b.z - along * a.z};
        square = trajd_vector_dot(b, b);
        b = trajd_vector_scale(b,
                               square > TRAJD_ROTATION_LINE_MAX ? trajd_unit_factor(square) : NAN);
    }
    return trajd_rotation_of_rows((struct trajd_rows){a, b, trajd_vector_cross(a, b)});
}

TRAJD_INLINE struct trajd_rotation trajd_rotation_of_matrix(struct trajd_rows m)
{
    const double most = TRAJD_ROTATION_SLACK;
    const int good =
        (fabs(trajd_vector_dot(m.a, m.a) - 1) < most) &
        (fabs(trajd_vector_dot(m.b, m.b) - 1) < most) &
        (fabs(trajd_vector_dot(m.c, m.c) - 1) < most) & (fabs(trajd_vector_dot(m.a, m.b)) < most) &
        (fabs(trajd_vector_dot(m.b, m.c)) < most) & (fabs(trajd_vector_dot(m.c, m.a)) < most) &
        (trajd_vector_dot(trajd_vector_cross(m.a, m.b), m.c) > 0);

    return trajd_rotation_scale(trajd_rotation_of_two_rows(m.a, m.b), good ? 1 : NAN);
}

/* Turns by an angle about an axis of the base (one number is 1, the others are 0), after q. */
TRAJD_INLINE struct trajd_rotation trajd_rotation_then(struct trajd_rotation q,
                                                       struct trajd_vector axis, double angle)
{
    double sine, cosine;

    trajd_math_sine(angle * 0.5, &sine, &cosine);
    return trajd_rotation_product(
        (struct trajd_rotation){axis.x * sine, axis.y * sine, axis.z * sine, cosine}, q);
}

/* ---- to a form ---- */

TRAJD_INLINE struct trajd_rows trajd_rotation_to_rows(struct trajd_rotation q)
{
    const double x = q.x, y = q.y, z = q.z, w = q.w;

    return (struct trajd_rows){{1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)},
                               {2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)},
                               {2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)}};
}

TRAJD_INLINE struct trajd_vector trajd_rotation_to_axis_angle(struct trajd_rotation q)
{
    const double sine = sqrt(q.x * q.x + q.y * q.y + q.z * q.z);
    const double factor = 2 * trajd_math_atan2(sine, fabs(q.w)) / (sine > 0 ? sine : 1);
    const double known = (sine > 0 ? factor : 2) * (q.w < 0 ? -1 : 1);

    return (struct trajd_vector){q.x * known, q.y * known, q.z * known};
}

/* The three angles about fixed axes i, j, k from a matrix, in the order in which they are applied;
 * `sign` is -1 if the axes are not in cyclic order. Where the middle angle is +-pi/2, the first one
 * is 0 if `reversed`, else the last one. */
TRAJD_INLINE struct trajd_vector trajd_rotation_to_angles(double ii, double ij, double ji,
                                                          double jj, double jk, double ki,
                                                          double kj, double kk, double sign,
                                                          int reversed)
{
    const double cosine = sqrt(ii * ii + ji * ji);
    const int free = cosine > TRAJD_ROTATION_GIMBAL;
    const double middle = trajd_math_atan2(-sign * ki, cosine);
    const double first = trajd_math_atan2(free ? sign * kj : -sign * jk, free ? kk : jj);
    const double last = trajd_math_atan2(free ? sign * ji : -sign * ij, free ? ii : jj);

    return (struct trajd_vector){free || !reversed ? first : 0, middle,
                                 free || reversed ? last : 0};
}

#endif
