/* The launchers of the image kernels. They do not wait and do not allocate, and return the
 * cudaError_t. */
#ifndef TRAJD_KERNELS_IMAGE_CUDA_IMAGE_LAUNCH_H
#define TRAJD_KERNELS_IMAGE_CUDA_IMAGE_LAUNCH_H

#include "kernels/image/cuda/image_choose.h"
#include "kernels/image/cuda/image_program.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The frames of a launch, and the plan's device memory. */
struct trajd_image_launch {
    const char *records;
    uint32_t record_bytes, count;
    /* What a block may ask for on this GPU. It is set for a kernel as a whole, so all threads that launch
     * must set the same: never what one launch needs. */
    uint32_t block_shared_bytes;
    const uint32_t *tables;
    uint32_t *own_tables;      /* [count][own_table_words] */
    uint8_t *between[2];       /* [count][between_bytes]: what passes write in turn */
    unsigned long long *means; /* [count][mean_count][3]: sums of levels * 2^16 */
};

/* Makes the tables of boxes that frames have of their own. */
int trajd_image_launch_boxes(const struct trajd_image_program *program,
                             const struct trajd_image_launch *launch, void *stream);
/* Clears the means. */
int trajd_image_launch_clear(const struct trajd_image_program *program,
                             const struct trajd_image_launch *launch, void *stream);
/* Adds up the mean of one contrast step. */
int trajd_image_launch_mean(const struct trajd_image_program *program, uint32_t pass, uint32_t step,
                            const struct trajd_image_launch *launch, void *stream);
int trajd_image_launch_pass(const struct trajd_image_program *program, uint32_t pass,
                            const struct trajd_image_launch *launch, void *stream);

/* The whole program in one launch. */
int trajd_image_launch_strip(const struct trajd_image_program *program,
                             const struct trajd_image_strip *strip,
                             const struct trajd_image_launch *launch, void *stream);
int trajd_image_launch_resize(const struct trajd_image_program *program,
                              const struct trajd_image_resize *resize, const void *tables,
                              const struct trajd_image_launch *launch, void *stream);
int trajd_image_launch_matrix(const struct trajd_image_program *program,
                              const struct trajd_image_matrix *matrix, const void *tables,
                              const struct trajd_image_launch *launch, void *stream);

/* The tables of the boxes must be there. */
int trajd_image_launch_crop(const struct trajd_image_program *program,
                            const struct trajd_image_matrix *matrix,
                            const struct trajd_image_launch *launch, void *stream);

#ifdef __cplusplus
}
#endif
#endif
