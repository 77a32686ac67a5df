/* The images of a producer, for producer_images.c and production on a GPU (gpu_images). */
#ifndef TRAJD_PRODUCER_PRODUCER_IMAGES_H
#define TRAJD_PRODUCER_PRODUCER_IMAGES_H

#include "daemon/producer/producer_internal.h"
#include "kernels/image/augment/augment.h"
#include "kernels/image/image_finish.h"

#define TRAJD_NO_FRAME UINT32_MAX

/* What one thread needs to augment a frame. */
struct image_worker {
    bool is_taken; /* atomic */
    struct trajd_augment_plan *augment;
    void *frame; /* the augmented frame */
};

/* One step of a window, and its frame. */
struct image_step {
    uint32_t window, step;
    uint32_t use; /* of the image's uses; TRAJD_NO_FRAME: the step has none */
    enum trajd_mask code;
};

/* The images of one target. */
struct trajd_producer_image {
    struct trajd_frame_view *view; /* NULL: this dataset of a mixture lacks the stream */
    const struct trajd_plan_image *plan;
    uint32_t target_index;
    struct image_step *steps;     /* [G * T] */
    struct trajd_frame_use *uses; /* [G * T] */
    uint32_t step_count, use_count;
    void *padding; /* a frame as it is written, all pad_value */
    /* NULL: the images are not augmented. Else [worker_count], one for each thread */
    struct image_worker *workers;
    uint32_t worker_count;
    struct trajd_gpu_frames
        *on_gpu; /* frames that need no pin; NULL: the feed is made on the CPU */
};

/* Returns the error of the first frame that the feed does not accept. What the machine lacks is
 * never masked. Logs the first bad frame that is. */
enum trajd_status trajd_image_check_frames(struct trajd_producer *producer,
                                           const struct trajd_frame_use *uses, uint32_t count,
                                           struct trajd_error *error);
/* Looks up a batch in producer->ahead_batch, binds it to `fill`, and finds its frames. */
void trajd_image_find_batch(struct trajd_producer *producer, const struct trajd_fill *fill,
                            uint64_t position, uint32_t count);

/* What the threads that write the steps of one image share. */
struct image_writing {
    const struct trajd_producer *producer;
    const struct trajd_binding *batch;
    struct trajd_producer_image *image;
    uint32_t first; /* window of the batch */
    uint32_t slice_steps;
    bool is_out_of_memory; /* atomic */
};

/* Draws the parameters of a step. */
void trajd_image_draw(const struct image_writing *writing, const struct image_step *step,
                      struct trajd_augment_params *params);
/* Returns the bytes of a step's parameters in a slot. */
uint64_t trajd_image_augment_bytes(const struct trajd_plan_output *output);

#endif
