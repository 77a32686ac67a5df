/* Logarithm, exponential, sine and cosine. The functions of libm differ in the last bit between
 * machines, and draws must not. Sums and products of doubles in a fixed order do not. */
#ifndef TRAJD_KERNELS_IMAGE_AUGMENT_AUGMENT_MATH_H
#define TRAJD_KERNELS_IMAGE_AUGMENT_AUGMENT_MATH_H

/* Return ln x for x > 0, and e^x for |x| < 700, within 1e-15 of the value. */
double trajd_augment_log(double x);
double trajd_augment_exp(double x);

/* Set the sine and cosine of an angle in degrees, within 1e-15. Exact for quarter turns. */
void trajd_augment_sine(double degrees, double *sine, double *cosine);

#endif
