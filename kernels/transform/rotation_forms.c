/* Converts rotations between their forms, one at a time. */
#include "kernels/transform/rotation_forms.h"

#include <string.h>

#include "kernels/transform/rotation_numbers.h"

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

/* ---- conversions ---- */

static void unpack(struct trajd_rotation p, double q[4])
{
    memcpy(q, (const double[]){p.x, p.y, p.z, p.w}, 4 * sizeof *q);
}

bool trajd_rotation_load(enum trajd_rotation_form form, const double *numbers, double q[4])
{
    const struct trajd_rotation found = trajd_rotation_of_numbers(form, numbers);

    unpack(found, q);
    return !isnan(found.x);
}

void trajd_rotation_store(enum trajd_rotation_form form, const double q[4], double *numbers)
{
    trajd_rotation_to_numbers(form, (struct trajd_rotation){q[0], q[1], q[2], q[3]}, numbers);
}
