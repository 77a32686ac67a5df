/* The definitions of correct, in double precision: one element, pixel or row at a time. The kernels'
 * tests compare with them. That of resampling is trajd_resample_reference in kernels/resample.h,
 * because the library exports it. */
#ifndef TRAJD_TESTS_REFERENCES_H
#define TRAJD_TESTS_REFERENCES_H

#include "kernels/image/augment/augment.h"
#include "kernels/image/image.h"
#include "kernels/image/image_finish.h"
#include "kernels/transform/transform.h"

/* Prepares one frame. `source` and `output` are whole frames without gaps. The preparation must have
 * passed its check. TRAJD_ERR_MEMORY. */
enum trajd_status trajd_image_reference(const struct trajd_image_preparation *preparation,
                                        const void *source, void *output);

/* Finishes one frame. The result of trajd_image_finish_frame has the same bytes. */
void trajd_image_finish_reference(const struct trajd_image_finish *finish, const void *frame,
                                  void *output);

/* Augments one frame. The parameters must come from a draw (or the centre) for this size.
 * TRAJD_ERR_MEMORY. */
enum trajd_status trajd_augment_reference(const struct trajd_augment *augment,
                                          const struct trajd_augment_frame *frame,
                                          const struct trajd_augment_params *params,
                                          const void *source, void *output);

/* Fills origin[origin_count] from a reference row, or from a row of the output. */
void trajd_transform_origin_of_reference(const struct trajd_transform *transform,
                                         const double *reference, double *origin);
void trajd_transform_origin_of_row(const struct trajd_transform *transform, const double *row,
                                   double *origin);
/* Transforms row[D] to out[E]. A rotation without direction, in the row or in the origin, gives NaN
 * in the parts that it is used for. */
void trajd_transform_row(const struct trajd_transform *transform, const double *origin,
                         const double *row, double *out);
/* The inverse: finds row[D] from out[E]. */
void trajd_transform_invert(const struct trajd_transform *transform, const double *origin,
                            const double *out, double *row);

#endif
