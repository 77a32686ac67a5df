/* The forms in which files and policies write a rotation, and conversions between them in double.
 * The pivot is the unit quaternion (x, y, z, w). */
#ifndef TRAJD_KERNELS_TRANSFORM_ROTATION_FORMS_H
#define TRAJD_KERNELS_TRANSFORM_ROTATION_FORMS_H

#include <stdbool.h>
#include <stdint.h>

/* The numbers are part of fingerprints: append only. */
enum trajd_rotation_form {
    TRAJD_ROTATION_NONE = 0,
    TRAJD_ROTATION_QUAT_XYZW = 1,
    TRAJD_ROTATION_QUAT_WXYZ = 2,
    TRAJD_ROTATION_AXIS_ANGLE = 3, /* the unit axis times the angle in radians */
    TRAJD_ROTATION_MATRIX = 4,     /* nine numbers, row after row */
    TRAJD_ROTATION_ROT6D = 5,      /* the first two rows of the matrix, as UMI and pytorch3d */
    /* Three angles in radians. Lower case: about the fixed axes; upper case: about the axes that
     * turn along, as in scipy. The letters give the order of the angles. */
    TRAJD_ROTATION_EULER = 6, /* the first of 12: xyz xzy yxz yzx zxy zyx XYZ XZY YXZ YZX ZXY ZYX */
    TRAJD_ROTATION_COUNT = 18,
};

#define TRAJD_ROTATION_MAX_WIDTH 9

/* Returns "quat_xyzw", "euler_xyz", ... */
const char *trajd_rotation_name(enum trajd_rotation_form form);
/* Returns the form of that name, or NONE. */
enum trajd_rotation_form trajd_rotation_parse(const char *name);
/* Returns how many numbers a rotation has in that form. */
uint32_t trajd_rotation_width(enum trajd_rotation_form form);
bool trajd_rotation_is_quaternion(enum trajd_rotation_form form);

/* Converts a rotation to a unit quaternion. False: the numbers are not a rotation (a quaternion of
 * length 0, a pair of rot6d on one line, a matrix that is not orthogonal within 0.1 or mirrors, an
 * angle beyond 10^6, NaN); q is then NaN. */
bool trajd_rotation_load(enum trajd_rotation_form form, const double *numbers, double q[4]);
/* Converts a unit quaternion to a form. A quaternion is written with w >= 0, an axis-angle with an
 * angle of at most pi, and Euler angles with the middle one in [-pi/2, pi/2]. Where the middle
 * angle is +-pi/2 within 1e-7, the last one is 0. */
void trajd_rotation_store(enum trajd_rotation_form form, const double q[4], double *numbers);

#endif
