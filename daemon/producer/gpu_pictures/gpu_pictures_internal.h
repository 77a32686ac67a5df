/* Inside the pictures of a GPU feed: gpu_pictures.c makes and destroys them, gpu_pictures_batch.c
 * makes those of one batch. */
#ifndef TRAJD_PRODUCER_GPU_PICTURES_INTERNAL_H
#define TRAJD_PRODUCER_GPU_PICTURES_INTERNAL_H

#include "daemon/producer/gpu_pictures/gpu_frames.h"
#include "daemon/producer/gpu_pictures/gpu_pictures.h"
#include "daemon/producer/producer_pictures.h"
#include "kernels/image/cuda/image_gpu.h"

/* Pictures that are made alike, of any camera and dataset: one launch for a batch. */
struct trajd_gpu_picture_group {
    const struct trajd_plan_picture *like;
    struct trajd_image_gpu *plan;
    uint64_t charged_bytes; /* of the plan, from gpu.rings */
    uint32_t record_bytes;
    uint32_t frames_max; /* of a batch */
    uint64_t records_at; /* in staging and block */
};

/* One picture of one member. */
struct trajd_gpu_picture {
    uint32_t group;
    void *padding;    /* a finished frame on the GPU */
    uint64_t mask_at; /* in staging: [G * T], of the output */
    uint64_t
        streamed_at; /* in the batch's streamed frames; room for G * T if they do not all fit */
    const void **addresses; /* [G * T], of the uses: on the GPU; NULL: there is no frame */
};

struct trajd_gpu_pictures {
    struct trajd_producer *producer;
    struct trajd_gpu *gpu;
    uint32_t depth;
    uint32_t group_count;
    struct trajd_gpu_picture_group *groups;
    struct trajd_gpu_picture **members; /* [members][pictures] */
    struct trajd_device_stream *copies; /* of frames */
    /* masks, then records, 0 bytes in the block for the masks */
    uint64_t staged_bytes, streamed_bytes;
    uint8_t *staging;            /* [depth][staged_bytes], pinned */
    void *blocks;                /* [depth][staged_bytes], on the GPU: the records */
    void *streamed;              /* [depth][streamed_bytes], on the GPU: frames that do not stay */
    uint32_t *record_count;      /* [depth][group_count]: prepared and not launched */
    struct absent_frame *absent; /* [longest G * T]: scratch memory */
    struct trajd_frame_use *pinned; /* the same */
    bool has_brought;               /* frames, for the last batch that was prepared */
};

/* A use of a frame that is not on the GPU. */
struct absent_frame {
    uint64_t key; /* episode and row */
    uint32_t use;
};

#endif
