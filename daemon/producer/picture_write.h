/* Inside the pictures of a producer: producer_pictures.c finds the frames of a batch and has them
 * made; picture_write.c writes them to the slot. */
#ifndef TRAJD_PRODUCER_PICTURE_WRITE_H
#define TRAJD_PRODUCER_PICTURE_WRITE_H

#include "daemon/producer/producer_internal.h"
#include "kernels/image/augment/augment.h"
#include "kernels/image/image_finish.h"

#define TRAJD_NO_FRAME UINT32_MAX

/* What one thread needs to augment a frame. */
struct picture_worker {
    bool is_taken; /* atomic */
    struct trajd_augment_plan *augment;
    void *frame; /* the augmented frame */
};

/* One step of a window, and its frame. */
struct picture_step {
    uint32_t window, step;
    uint32_t use; /* of the picture's uses; TRAJD_NO_FRAME: the step has none */
    enum trajd_mask code;
};

/* The pictures of one target. */
struct trajd_producer_picture {
    struct trajd_frame_view *view; /* NULL: this dataset of a mixture lacks the stream */
    const struct trajd_plan_picture *plan;
    uint32_t target_index;
    struct picture_step *steps;   /* [G * T] */
    struct trajd_frame_use *uses; /* [G * T] */
    uint32_t step_count, use_count;
    void *padding; /* a frame as it is written, all pad_value */
    /* NULL: the pictures are not augmented. Else [worker_count], one for each thread */
    struct picture_worker *workers;
    uint32_t worker_count;
};

/* ---- picture_write.c ---- */

/* Makes what the threads of the pool need to augment the output's frames. */
enum trajd_status trajd_picture_make_workers(const struct trajd_producer *producer,
                                             const struct trajd_plan_output *output,
                                             struct trajd_producer_picture *picture,
                                             struct trajd_error *error);
void trajd_picture_free_workers(struct trajd_producer_picture *picture);

/* What the threads that write the steps of one picture share. */
struct picture_writing {
    const struct trajd_producer *producer;
    const struct trajd_window_batch *batch;
    struct trajd_producer_picture *picture;
    const struct trajd_fill *fill;
    uint32_t first; /* window of the batch */
    uint32_t slice_steps;
    bool is_out_of_memory; /* atomic */
};

/* Writes all steps of picture->steps, whose frames are pinned. TRAJD_ERR_MEMORY. */
enum trajd_status trajd_picture_write(struct picture_writing *writing, struct trajd_error *error);

#endif
