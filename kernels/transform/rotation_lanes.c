/* Converts rotations of many steps at once, in loops that the compiler vectorises. */
#include "kernels/transform/rotation_lanes.h"

#include "kernels/transform/rotation_numbers.h"

typedef double column[TRAJD_LANES];

TRAJD_INLINE struct trajd_rotation get(const struct trajd_rotation_lanes *q, uint32_t l)
{
    return (struct trajd_rotation){q->x[l], q->y[l], q->z[l], q->w[l]};
}

TRAJD_INLINE void set(struct trajd_rotation_lanes *q, uint32_t l, struct trajd_rotation value)
{
    q->x[l] = value.x;
    q->y[l] = value.y;
    q->z[l] = value.z;
    q->w[l] = value.w;
}

TRAJD_INLINE struct trajd_vector get_vector(const column *n, uint32_t l)
{
    return (struct trajd_vector){n[0][l], n[1][l], n[2][l]};
}

TRAJD_INLINE void set_vector(column *n, uint32_t l, struct trajd_vector value)
{
    n[0][l] = value.x;
    n[1][l] = value.y;
    n[2][l] = value.z;
}

/* ---- from a form ---- */

/* w is the place of the real part among the four numbers, v that of the first of the others. */
TRAJD_WIDE_CLONES static void load_quaternions(const column *restrict n, int v, int w,
                                               uint32_t count,
                                               struct trajd_rotation_lanes *restrict q)
{
    for (uint32_t l = 0; l < count; l++)
        set(q, l,
            trajd_rotation_unit(
                (struct trajd_rotation){n[v][l], n[v + 1][l], n[v + 2][l], n[w][l]}));
}

/* Returns whether all angles are at most 2 pi. */
TRAJD_WIDE_CLONES static bool load_axis_angles(const column *restrict n, uint32_t count,
                                               struct trajd_rotation_lanes *restrict q)
{
    int64_t far = 0;

    for (uint32_t l = 0; l < count; l++) {
        const struct trajd_vector v = get_vector(n, l);
        set(q, l, trajd_rotation_of_axis_angle_near(v));
        far |= trajd_vector_dot(v, v) <= TRAJD_ROTATION_NEAR ? 0 : 1;
    }
    return far == 0;
}

/* Angles beyond 2 pi, and NaN. */
static void load_far_axis_angles(const column *n, uint32_t count, struct trajd_rotation_lanes *q)
{
    for (uint32_t l = 0; l < count; l++) {
        const struct trajd_vector v = get_vector(n, l);
        if (!(trajd_vector_dot(v, v) <= TRAJD_ROTATION_NEAR))
            set(q, l, trajd_rotation_of_axis_angle_far(v));
    }
}

TRAJD_WIDE_CLONES static void load_two_rows(const column *restrict n, uint32_t count,
                                            struct trajd_rotation_lanes *restrict q)
{
    for (uint32_t l = 0; l < count; l++)
        set(q, l, trajd_rotation_of_two_rows(get_vector(n, l), get_vector(n + 3, l)));
}

TRAJD_WIDE_CLONES static void load_matrices(const column *restrict n, uint32_t count,
                                            struct trajd_rotation_lanes *restrict q)
{
    for (uint32_t l = 0; l < count; l++)
        set(q, l,
            trajd_rotation_of_matrix(
                (struct trajd_rows){get_vector(n, l), get_vector(n + 3, l), get_vector(n + 6, l)}));
}

TRAJD_WIDE_CLONES static void load_euler(struct trajd_euler_order order, const column *restrict n,
                                         uint32_t count, struct trajd_rotation_lanes *restrict q)
{
    const double *first = n[order.reversed ? 2 : 0], *last = n[order.reversed ? 0 : 2];
    const struct trajd_vector i = trajd_vector_axis(order.axes[0]),
                              j = trajd_vector_axis(order.axes[1]),
                              k = trajd_vector_axis(order.axes[2]);

    for (uint32_t l = 0; l < count; l++) {
        struct trajd_rotation turned = {0, 0, 0, 1};
        turned = trajd_rotation_then(turned, i, first[l]);
        turned = trajd_rotation_then(turned, j, n[1][l]);
        set(q, l, trajd_rotation_unit(trajd_rotation_then(turned, k, last[l])));
    }
}

void trajd_lanes_load(enum trajd_rotation_form form, const double (*numbers)[TRAJD_LANES],
                      uint32_t count, struct trajd_rotation_lanes *q)
{
    if (form == TRAJD_ROTATION_QUAT_XYZW)
        load_quaternions(numbers, 0, 3, count, q);
    else if (form == TRAJD_ROTATION_QUAT_WXYZ)
        load_quaternions(numbers, 1, 0, count, q);
    else if (form == TRAJD_ROTATION_MATRIX)
        load_matrices(numbers, count, q);
    else if (form == TRAJD_ROTATION_ROT6D)
        load_two_rows(numbers, count, q);
    else if (form != TRAJD_ROTATION_AXIS_ANGLE)
        load_euler(trajd_rotation_order(form), numbers, count, q);
    else if (!load_axis_angles(numbers, count, q))
        load_far_axis_angles(numbers, count, q);
}

/* ---- to a form ---- */

TRAJD_WIDE_CLONES static void store_quaternions(const struct trajd_rotation_lanes *restrict q,
                                                int v, int w, uint32_t count, column *restrict n)
{
    for (uint32_t l = 0; l < count; l++) {
        const struct trajd_rotation one = trajd_rotation_scale(get(q, l), q->w[l] < 0 ? -1 : 1);
        n[v][l] = one.x;
        n[v + 1][l] = one.y;
        n[v + 2][l] = one.z;
        n[w][l] = one.w;
    }
}

TRAJD_WIDE_CLONES static void store_axis_angles(const struct trajd_rotation_lanes *restrict q,
                                                uint32_t count, column *restrict n)
{
    for (uint32_t l = 0; l < count; l++)
        set_vector(n, l, trajd_rotation_to_axis_angle(get(q, l)));
}

TRAJD_WIDE_CLONES static void store_two_rows(const struct trajd_rotation_lanes *restrict q,
                                             uint32_t count, column *restrict n)
{
    for (uint32_t l = 0; l < count; l++) {
        const struct trajd_rows rows = trajd_rotation_to_rows(get(q, l));
        set_vector(n, l, rows.a);
        set_vector(n + 3, l, rows.b);
    }
}

TRAJD_WIDE_CLONES static void store_matrices(const struct trajd_rotation_lanes *restrict q,
                                             uint32_t count, column *restrict n)
{
    for (uint32_t l = 0; l < count; l++) {
        const struct trajd_rows rows = trajd_rotation_to_rows(get(q, l));
        set_vector(n, l, rows.a);
        set_vector(n + 3, l, rows.b);
        set_vector(n + 6, l, rows.c);
    }
}

TRAJD_WIDE_CLONES static void find_angles(struct trajd_euler_order order, const column *restrict m,
                                          uint32_t count, column *restrict n)
{
    const int i = order.axes[0], j = order.axes[1], k = order.axes[2];
    double *first = n[order.reversed ? 2 : 0], *last = n[order.reversed ? 0 : 2];
    const double *ii = m[4 * i], *ij = m[3 * i + j], *ji = m[3 * j + i], *jj = m[4 * j],
                 *jk = m[3 * j + k], *ki = m[3 * k + i], *kj = m[3 * k + j], *kk = m[4 * k];

    for (uint32_t l = 0; l < count; l++) {
        const struct trajd_vector found = trajd_rotation_to_angles(
            ii[l], ij[l], ji[l], jj[l], jk[l], ki[l], kj[l], kk[l], order.sign, order.reversed);
        first[l] = found.x;
        n[1][l] = found.y;
        last[l] = found.z;
    }
}

static void store_euler(struct trajd_euler_order order, const struct trajd_rotation_lanes *q,
                        uint32_t count, column *n)
{
    column matrices[9];

    store_matrices(q, count, matrices);
    find_angles(order, (const column *)matrices, count, n);
}

void trajd_lanes_store(enum trajd_rotation_form form, const struct trajd_rotation_lanes *q,
                       uint32_t count, double (*numbers)[TRAJD_LANES])
{
    if (form == TRAJD_ROTATION_QUAT_XYZW)
        store_quaternions(q, 0, 3, count, numbers);
    else if (form == TRAJD_ROTATION_QUAT_WXYZ)
        store_quaternions(q, 1, 0, count, numbers);
    else if (form == TRAJD_ROTATION_AXIS_ANGLE)
        store_axis_angles(q, count, numbers);
    else if (form == TRAJD_ROTATION_MATRIX)
        store_matrices(q, count, numbers);
    else if (form == TRAJD_ROTATION_ROT6D)
        store_two_rows(q, count, numbers);
    else
        store_euler(trajd_rotation_order(form), q, count, numbers);
}

/* ---- relative to an origin ---- */

TRAJD_WIDE_CLONES void trajd_lanes_relate_anchor(const struct trajd_rotation_lanes *restrict origin,
                                                 uint32_t count,
                                                 struct trajd_rotation_lanes *restrict q)
{
    for (uint32_t l = 0; l < count; l++)
        set(q, l, trajd_rotation_product(trajd_rotation_inverse(get(origin, l)), get(q, l)));
}

TRAJD_WIDE_CLONES void trajd_lanes_relate_base(const struct trajd_rotation_lanes *restrict origin,
                                               uint32_t count,
                                               struct trajd_rotation_lanes *restrict q)
{
    for (uint32_t l = 0; l < count; l++)
        set(q, l, trajd_rotation_product(get(q, l), trajd_rotation_inverse(get(origin, l))));
}

TRAJD_WIDE_CLONES void trajd_lanes_turn_back(const struct trajd_rotation_lanes *restrict origin,
                                             uint32_t count, double (*restrict v)[TRAJD_LANES])
{
    for (uint32_t l = 0; l < count; l++)
        set_vector(v, l,
                   trajd_rotation_turned(trajd_rotation_inverse(get(origin, l)),
                                         get_vector((const column *)v, l)));
}
