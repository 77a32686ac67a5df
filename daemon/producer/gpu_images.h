/* The images of batches in a GPU's memory.
 *
 *   producer's thread:  find the frame of each step -> frames that are not on the GPU: pin, copy, wait
 *                       -> a record for each frame --copy--> GPU; masks and draws --copy--> slot
 *   launching thread:   one launch for all images that are made alike: augment, finish
 *
 * A frame that stays on the GPU costs a pointer. A step without a frame is a copy of a finished
 * frame of padding. All functions but launch are called on the producer's thread. */
#ifndef TRAJD_PRODUCER_GPU_IMAGES_H
#define TRAJD_PRODUCER_GPU_IMAGES_H

#include "daemon/producer/gpu_frames.h"
#include "daemon/producer/producer_gpu.h"
#include "daemon/producer/producer_images.h"
#include "kernels/image/cuda/image_gpu.h"

/* Images that are made alike, of any camera and dataset: one launch for a batch. */
struct trajd_gpu_image_group {
    const struct trajd_plan_image *like;
    struct trajd_image_gpu *plan;
    uint64_t charged_bytes; /* of the plan, from gpu.rings */
    uint32_t record_bytes;
    uint32_t frames_max; /* of a batch */
    uint64_t records_at; /* in staging and block */
};

/* One image of one member. */
struct trajd_gpu_image {
    uint32_t group;
    void *padding;    /* a finished frame on the GPU */
    uint64_t mask_at; /* in staging: [G * T], of the output */
    uint64_t
        streamed_at; /* in the batch's streamed frames; room for G * T if they do not all fit */
    const void **addresses; /* [G * T], of the uses: on the GPU; NULL: there is no frame */
};

struct trajd_gpu_images {
    struct trajd_producer *producer;
    struct trajd_gpu *gpu;
    uint32_t depth;
    uint32_t group_count;
    struct trajd_gpu_image_group *groups;
    struct trajd_gpu_image **members;   /* [members][images] */
    struct trajd_device_stream *copies; /* of frames */
    /* masks, then records, 0 bytes in the block for the masks */
    uint64_t staged_bytes, streamed_bytes;
    uint8_t *staging;            /* [depth][staged_bytes], pinned */
    void *blocks;                /* [depth][staged_bytes], on the GPU: the records */
    void *streamed;              /* [depth][streamed_bytes], on the GPU: frames that do not stay */
    uint32_t *record_count;      /* [depth][group_count]: prepared and not launched */
    struct absent_frame *absent; /* [longest G * T]: scratch memory */
    struct trajd_frame_use *pinned; /* the same */
    bool has_brought;               /* the last batch that was prepared had to wait for frames */
};

/* A use of a frame that is not on the GPU. */
struct absent_frame {
    uint64_t key; /* episode and row */
    uint32_t use;
};

/* Opens the images of the producer's members, whose rows are held. *images is NULL if the feed
 * has none. depth: batches under way at once. The caller destroys, also after an error.
 * TRAJD_ERR_MEMORY: over the GPU's budgets; TRAJD_ERR_UNSUPPORTED: no kernel makes them. */
enum trajd_status trajd_gpu_images_create(struct trajd_producer *producer, uint32_t depth,
                                          struct trajd_gpu_images **images,
                                          struct trajd_error *error);
/* The stream has finished all work. NULL is fine. */
void trajd_gpu_images_destroy(struct trajd_gpu_images **images);

/* Prepares the images of a batch. Writes the draws to `ids`, the staged tensors behind ids_offset
 * of the slot, which are copied later. Blocks until the frames are on the GPU. TRAJD_ERR_DEVICE:
 * the GPU has failed. Other errors: this batch cannot be made. */
enum trajd_status trajd_gpu_images_prepare(struct trajd_gpu_images *images,
                                           struct trajd_gpu_batch *gpu_batch, uint8_t *ids,
                                           struct trajd_error *error);
/* Launches what is prepared and not launched yet. Does not block. */
enum trajd_status trajd_gpu_images_launch(struct trajd_gpu_images *images,
                                          const struct trajd_gpu_batch *gpu_batch,
                                          struct trajd_error *error);

#endif
