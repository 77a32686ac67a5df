/* The definition of correct, one pixel at a time, in double precision. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/image/image_frame.h"
#include "kernels/image/image_taps.h"
#include "support/references/references.h"

static double clip(double value)
{
    return fmin(fmax(floor(value + 0.5), 0), 255);
}

/* Pillow's weights are multiples of 2^-22, so these are. Its sums are then exact in double, too. */
static void round_weights(struct trajd_image_taps *taps)
{
    const double whole = 1 << 22;

    for (size_t i = 0; i < taps->count; i++)
        for (size_t k = i * taps->stride; k < i * taps->stride + taps->lengths[i]; k++)
            taps->weights[k] = round(taps->weights[k] * whole) / whole;
}

/* The sum along x of one row of the crop box. */
static double sum_row(const struct trajd_image_preparation *p, const uint8_t *source, uint32_t row,
                      const struct trajd_image_taps *x, uint32_t column, uint32_t channel)
{
    const uint64_t first = (uint64_t)(p->crop.top + row) * p->source_width + p->crop.left;
    const double *weights = x->weights + (size_t)column * x->stride;
    double sum = 0;

    for (uint32_t k = 0; k < x->lengths[column]; k++)
        sum += weights[k] * source[(first + x->starts[column] + k) * p->channels + channel];
    return sum;
}

static double pixel(const struct trajd_image_preparation *p, const uint8_t *source,
                    const struct trajd_image_taps *y, const struct trajd_image_taps *x,
                    uint32_t row, uint32_t column, uint32_t channel)
{
    const double *weights = y->weights + (size_t)row * y->stride;
    double sum = 0;

    for (uint32_t k = 0; k < y->lengths[row]; k++) {
        const double inner = sum_row(p, source, y->starts[row] + k, x, column, channel);
        sum += weights[k] * (trajd_image_rounds_between(p->filter) ? clip(inner) : inner);
    }
    return sum;
}

enum trajd_status trajd_image_reference(const struct trajd_image_preparation *preparation,
                                        const void *source, void *output)
{
    const struct trajd_image_preparation *p = preparation;
    const struct trajd_image_span rows = trajd_image_rows(p), columns = trajd_image_columns(p);
    struct trajd_image_taps y, x = {0};
    uint8_t *bytes = output;

    if (!trajd_image_taps_make(p->filter, p->crop.height, p->inner_height, rows.first, rows.count,
                               &y) ||
        !trajd_image_taps_make(p->filter, p->crop.width, p->inner_width, columns.first,
                               columns.count, &x)) {
        trajd_image_taps_free(&y);
        return TRAJD_ERR_MEMORY;
    }
    if (trajd_image_rounds_between(p->filter)) {
        round_weights(&y);
        round_weights(&x);
    }
    trajd_image_pad(p, output);
    if (p->filter == TRAJD_IMAGE_NEAREST)
        trajd_image_pick(p, &y, &x, source, output);
    for (uint32_t r = 0; p->filter != TRAJD_IMAGE_NEAREST && r < rows.count; r++)
        for (uint32_t c = 0; c < columns.count; c++)
            for (uint32_t d = 0; d < p->channels; d++)
                bytes[((uint64_t)(rows.place + r) * p->width + columns.place + c) * p->channels +
                      d] = (uint8_t)clip(pixel(p, source, &y, &x, r, c, d));
    trajd_image_taps_free(&y);
    trajd_image_taps_free(&x);
    return TRAJD_OK;
}
