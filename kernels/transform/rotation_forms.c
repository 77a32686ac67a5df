#include "kernels/transform/rotation_forms.h"

#include <string.h>

#include "kernels/transform/rotation_math.h"

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

static struct trajd_rotation pack(const double q[4])
{
    return (struct trajd_rotation){q[0], q[1], q[2], q[3]};
}

static void unpack(struct trajd_rotation p, double q[4])
{
    memcpy(q, (const double[]){p.x, p.y, p.z, p.w}, 4 * sizeof *q);
}

static struct trajd_vector pack_vector(const double *v)
{
    return (struct trajd_vector){v[0], v[1], v[2]};
}

static void unpack_vector(struct trajd_vector v, double *out)
{
    memcpy(out, (const double[]){v.x, v.y, v.z}, 3 * sizeof *out);
}

void trajd_rotation_multiply(const double p[4], const double q[4], double out[4])
{
    unpack(trajd_rotation_product(pack(p), pack(q)), out);
}

void trajd_rotation_invert(const double q[4], double out[4])
{
    unpack(trajd_rotation_inverse(pack(q)), out);
}

void trajd_rotation_turn(const double q[4], const double v[3], double out[3])
{
    unpack_vector(trajd_rotation_turned(pack(q), pack_vector(v)), out);
}

/* ---- forms ---- */

struct trajd_euler_order trajd_rotation_euler_order(enum trajd_rotation_form form)
{
    const char *letters = names[form] + sizeof "euler_" - 1;
    const bool moving = letters[0] < 'a';
    struct trajd_euler_order order = {.reversed = moving};

    for (int k = 0; k < 3; k++)
        order.axes[k] = letters[moving ? 2 - k : k] - (moving ? 'X' : 'x');
    order.sign = (order.axes[0] + 1) % 3 == order.axes[1] ? 1 : -1;
    return order;
}

static struct trajd_rotation of_euler(enum trajd_rotation_form form, const double *angles)
{
    const struct trajd_euler_order order = trajd_rotation_euler_order(form);
    struct trajd_rotation q = {0, 0, 0, 1};

    for (int k = 0; k < 3; k++)
        q = trajd_rotation_then(q, trajd_vector_axis(order.axes[k]),
                                angles[order.reversed ? 2 - k : k]);
    return trajd_rotation_unit(q);
}

static void to_euler(enum trajd_rotation_form form, struct trajd_rotation q, double *angles)
{
    const struct trajd_euler_order order = trajd_rotation_euler_order(form);
    const int i = order.axes[0], j = order.axes[1], k = order.axes[2];
    const struct trajd_rows rows = trajd_rotation_to_rows(q);
    double m[3][3], found[3];

    unpack_vector(rows.a, m[0]);
    unpack_vector(rows.b, m[1]);
    unpack_vector(rows.c, m[2]);
    unpack_vector(trajd_rotation_to_angles(m[i][i], m[i][j], m[j][i], m[j][j], m[j][k], m[k][i],
                                           m[k][j], m[k][k], order.sign, order.reversed),
                  found);
    for (int a = 0; a < 3; a++)
        angles[a] = found[order.reversed ? 2 - a : a];
}

static struct trajd_rotation of_axis_angle(struct trajd_vector v)
{
    return trajd_vector_dot(v, v) <= TRAJD_ROTATION_NEAR ? trajd_rotation_of_axis_angle_near(v)
                                                         : trajd_rotation_of_axis_angle_far(v);
}

bool trajd_rotation_load(enum trajd_rotation_form form, const double *n, double q[4])
{
    struct trajd_rotation found;

    if (form == TRAJD_ROTATION_QUAT_XYZW)
        found = trajd_rotation_unit(pack(n));
    else if (form == TRAJD_ROTATION_QUAT_WXYZ)
        found = trajd_rotation_unit((struct trajd_rotation){n[1], n[2], n[3], n[0]});
    else if (form == TRAJD_ROTATION_AXIS_ANGLE)
        found = of_axis_angle(pack_vector(n));
    else if (form == TRAJD_ROTATION_MATRIX)
        found = trajd_rotation_of_matrix(
            (struct trajd_rows){pack_vector(n), pack_vector(n + 3), pack_vector(n + 6)});
    else if (form == TRAJD_ROTATION_ROT6D)
        found = trajd_rotation_of_two_rows(pack_vector(n), pack_vector(n + 3));
    else
        found = of_euler(form, n);
    unpack(found, q);
    return !isnan(found.x);
}

void trajd_rotation_store(enum trajd_rotation_form form, const double q[4], double *numbers)
{
    const struct trajd_rotation found = pack(q);
    const double sign = q[3] < 0 ? -1 : 1;
    const struct trajd_rows rows = trajd_rotation_to_rows(found);

    if (trajd_rotation_is_quaternion(form)) {
        const int first = form == TRAJD_ROTATION_QUAT_WXYZ;
        for (int k = 0; k < 4; k++)
            numbers[(k + first) % 4] = sign * q[k];
    } else if (form == TRAJD_ROTATION_AXIS_ANGLE) {
        unpack_vector(trajd_rotation_to_axis_angle(found), numbers);
    } else if (form == TRAJD_ROTATION_MATRIX || form == TRAJD_ROTATION_ROT6D) {
        unpack_vector(rows.a, numbers);
        unpack_vector(rows.b, numbers + 3);
        if (form == TRAJD_ROTATION_MATRIX)
            unpack_vector(rows.c, numbers + 6);
    } else {
        to_euler(form, found, numbers);
    }
}
