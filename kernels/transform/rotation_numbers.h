/* A rotation from and to the numbers of any form: the choice that rotation_forms.c and the GPU's
 * kernels share. */
#ifndef TRAJD_KERNELS_TRANSFORM_ROTATION_NUMBERS_H
#define TRAJD_KERNELS_TRANSFORM_ROTATION_NUMBERS_H

#include "kernels/transform/rotation_forms.h"
#include "kernels/transform/rotation_math.h"

/* The axes (0, 1, 2) of three Euler angles. */
struct trajd_euler_order {
    int axes[3];   /* in the order in which turns about fixed axes are applied */
    double sign;   /* 1 if the axes are in cyclic order, else -1 */
    bool reversed; /* the angles are written in the other order: about moving axes */
};

/* Returns the axes of Euler angles. The six orders ascend; those about moving axes follow, and are
 * the same turns about fixed axes in the other order. */
TRAJD_INLINE struct trajd_euler_order trajd_rotation_order(enum trajd_rotation_form form)
{
    const int number = (int)form - TRAJD_ROTATION_EULER, i = number % 6 / 2;
    const int low = i == 0 ? 1 : 0, high = i == 2 ? 1 : 2;
    const int j = number % 2 ? high : low, k = number % 2 ? low : high;
    const bool moves = number >= 6;
    struct trajd_euler_order order;

    order.axes[0] = moves ? k : i;
    order.axes[1] = j;
    order.axes[2] = moves ? i : k;
    order.sign = (order.axes[0] + 1) % 3 == j ? 1 : -1;
    order.reversed = moves;
    return order;
}

TRAJD_INLINE struct trajd_vector trajd_vector_of(const double *n)
{
    const struct trajd_vector v = {n[0], n[1], n[2]};

    return v;
}

TRAJD_INLINE void trajd_vector_put(struct trajd_vector v, double *n)
{
    n[0] = v.x;
    n[1] = v.y;
    n[2] = v.z;
}

TRAJD_INLINE double trajd_vector_pick(struct trajd_vector v, int axis)
{
    return axis == 0 ? v.x : axis == 1 ? v.y : v.z;
}

TRAJD_INLINE struct trajd_vector trajd_rows_pick(struct trajd_rows m, int axis)
{
    return axis == 0 ? m.a : axis == 1 ? m.b : m.c;
}

TRAJD_INLINE struct trajd_rotation trajd_rotation_of_euler(enum trajd_rotation_form form,
                                                           const double *angles)
{
    const struct trajd_euler_order order = trajd_rotation_order(form);
    struct trajd_rotation q = {0, 0, 0, 1};

    q = trajd_rotation_then(q, trajd_vector_axis(order.axes[0]),
                            order.reversed ? angles[2] : angles[0]);
    q = trajd_rotation_then(q, trajd_vector_axis(order.axes[1]), angles[1]);
    q = trajd_rotation_then(q, trajd_vector_axis(order.axes[2]),
                            order.reversed ? angles[0] : angles[2]);
    return trajd_rotation_unit(q);
}

TRAJD_INLINE void trajd_rotation_to_euler(enum trajd_rotation_form form, struct trajd_rotation q,
                                          double *angles)
{
    const struct trajd_euler_order order = trajd_rotation_order(form);
    const int i = order.axes[0], j = order.axes[1], k = order.axes[2];
    const struct trajd_rows m = trajd_rotation_to_rows(q);
    const struct trajd_vector at_i = trajd_rows_pick(m, i), at_j = trajd_rows_pick(m, j),
                              at_k = trajd_rows_pick(m, k);
    const struct trajd_vector found = trajd_rotation_to_angles(
        trajd_vector_pick(at_i, i), trajd_vector_pick(at_i, j), trajd_vector_pick(at_j, i),
        trajd_vector_pick(at_j, j), trajd_vector_pick(at_j, k), trajd_vector_pick(at_k, i),
        trajd_vector_pick(at_k, j), trajd_vector_pick(at_k, k), order.sign, order.reversed);

    angles[0] = order.reversed ? found.z : found.x;
    angles[1] = found.y;
    angles[2] = order.reversed ? found.x : found.z;
}

TRAJD_INLINE struct trajd_rotation trajd_rotation_of_axis_angle(struct trajd_vector v)
{
    return trajd_vector_dot(v, v) <= TRAJD_ROTATION_NEAR ? trajd_rotation_of_axis_angle_near(v)
                                                         : trajd_rotation_of_axis_angle_far(v);
}

/* Returns a unit quaternion; NaN: the numbers are not a rotation. */
TRAJD_INLINE struct trajd_rotation trajd_rotation_of_numbers(enum trajd_rotation_form form,
                                                             const double *n)
{
    const bool is_first = form == TRAJD_ROTATION_QUAT_WXYZ; /* the real part */

    if (is_first || form == TRAJD_ROTATION_QUAT_XYZW) {
        const struct trajd_rotation q = {is_first ? n[1] : n[0], is_first ? n[2] : n[1],
                                         is_first ? n[3] : n[2], is_first ? n[0] : n[3]};
        return trajd_rotation_unit(q);
    }
    if (form == TRAJD_ROTATION_AXIS_ANGLE)
        return trajd_rotation_of_axis_angle(trajd_vector_of(n));
    if (form == TRAJD_ROTATION_MATRIX) {
        const struct trajd_rows rows = {trajd_vector_of(n), trajd_vector_of(n + 3),
                                        trajd_vector_of(n + 6)};
        return trajd_rotation_of_matrix(rows);
    }
    if (form == TRAJD_ROTATION_ROT6D)
        return trajd_rotation_of_two_rows(trajd_vector_of(n), trajd_vector_of(n + 3));
    return trajd_rotation_of_euler(form, n);
}

TRAJD_INLINE void trajd_rotation_to_numbers(enum trajd_rotation_form form, struct trajd_rotation q,
                                            double *n)
{
    const bool is_first = form == TRAJD_ROTATION_QUAT_WXYZ;

    if (is_first || form == TRAJD_ROTATION_QUAT_XYZW) {
        const struct trajd_rotation p = trajd_rotation_scale(q, q.w < 0 ? -1 : 1);
        n[0] = is_first ? p.w : p.x;
        n[1] = is_first ? p.x : p.y;
        n[2] = is_first ? p.y : p.z;
        n[3] = is_first ? p.z : p.w;
    } else if (form == TRAJD_ROTATION_AXIS_ANGLE) {
        trajd_vector_put(trajd_rotation_to_axis_angle(q), n);
    } else if (form == TRAJD_ROTATION_MATRIX || form == TRAJD_ROTATION_ROT6D) {
        const struct trajd_rows rows = trajd_rotation_to_rows(q);
        trajd_vector_put(rows.a, n);
        trajd_vector_put(rows.b, n + 3);
        if (form == TRAJD_ROTATION_MATRIX)
            trajd_vector_put(rows.c, n + 6);
    } else {
        trajd_rotation_to_euler(form, q, n);
    }
}

#endif
