/* Computes logarithm, exponential, sine and cosine by series, with the same bits on every
 * machine. */
#include "kernels/image/augment/augment_math.h"

#include <math.h>

static const double ln_2 = 0.693147180559945309417, pi = 3.14159265358979323846;

/* ln m = 2 artanh((m - 1) / (m + 1)), for m in [0.7, 1.42). */
double trajd_augment_log(double x)
{
    int exponent;
    double m = frexp(x, &exponent), t, square, sum = 0;

    if (m < 0.70710678118654752440) {
        m *= 2;
        exponent--;
    }
    t = (m - 1) / (m + 1);
    square = t * t;
    for (int n = 23; n >= 1; n -= 2)
        sum = sum * square + 1.0 / n;
    return 2 * t * sum + exponent * ln_2;
}

double trajd_augment_exp(double x)
{
    const double whole = rint(x / ln_2), t = x - whole * ln_2;
    double sum = 1;

    for (int n = 15; n >= 1; n--)
        sum = 1 + sum * t / n;
    return ldexp(sum, (int)whole);
}

/* The sum 1 - x^2 / (n (n + 1)) + ..., whose terms begin at n. */
static double alternating(double x, int n)
{
    double sum = 1;

    for (int k = n + 18; k >= n; k -= 2)
        sum = 1 - sum * x * x / (k * (k + 1.0));
    return sum;
}

void trajd_augment_sine(double degrees, double *sine, double *cosine)
{
    const double quarters = rint(degrees / 90), t = (degrees - quarters * 90) * (pi / 180);
    const double s = t * alternating(t, 2), c = alternating(t, 1);

    switch ((int)quarters & 3) {
    case 0:
        *sine = s;
        *cosine = c;
        break;
    case 1:
        *sine = c;
        *cosine = -s;
        break;
    case 2:
        *sine = -s;
        *cosine = -c;
        break;
    default:
        *sine = -c;
        *cosine = s;
    }
}
