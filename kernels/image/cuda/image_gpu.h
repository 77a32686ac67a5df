/* Images on a GPU: makes the tensors of a policy from frames of u8 (or of depth) in device memory.
 *
 *     frame [H, W, C] --prepare (raw frames)--augment--finish--> tensor [H', W', C] or [C, H', W']
 *
 * What is done to a frame is that of image.h, augment.h and image_finish.h, and so are the rules:
 * every preparation, every list of steps and every finish that their checks accept is served, but for
 * rounding: end and the steps of openpi (hsv_brightness, hsv_contrast, flat_contrast, flat_saturation).
 * The draws are made by trajd_augment_draw on the host, so they are the same bit for bit.
 *
 * A tensor of u8 equals the one that the CPU makes within one level after one resize, bilinear warp or
 * run of colours; a further one changes that difference as it changes the image. A tensor of floats
 * is within as many levels times the scale of its channel. After crops, flips and nearest pixels alone
 * both have the same bytes.
 *
 * Plain C: a stream is a cudaStream_t as a void pointer. In a build without CUDA,
 * trajd_image_gpu_create fails with TRAJD_ERR_UNSUPPORTED.
 *
 * Use: create a plan for a feed's output. For each batch, write a record per frame to host memory
 * (pinned), copy the records to the device on the stream, and run. Frames of all cameras, steps and
 * windows that have one spec go into one run: each has its own source and output.
 *
 * A plan is for one stream at a time: runs share its scratch memory. Functions of different plans are
 * thread-safe. */
#ifndef TRAJD_KERNELS_IMAGE_CUDA_IMAGE_GPU_H
#define TRAJD_KERNELS_IMAGE_CUDA_IMAGE_GPU_H

#include "kernels/device.h"
#include "kernels/image/augment/augment.h"
#include "kernels/image/image_finish.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    TRAJD_IMAGE_GPU_ALIGNMENT = 16,     /* bytes, of sources */
    TRAJD_IMAGE_GPU_FRAMES_MAX = 65535, /* of a run */
};

/* What is done to each frame of a run. */
struct trajd_image_gpu_spec {
    /* NULL: the frames are prepared already, or used as they are stored */
    const struct trajd_image_preparation *preparation;
    struct trajd_augment_frame frame;    /* prepared frames: size, channels and type */
    const struct trajd_augment *augment; /* NULL: none */
    struct trajd_image_finish finish;    /* of augmented frames */
    const char *requested; /* kernels to take where they can serve it; NULL: the best */
};

/* Checks a spec as the CPU does, and that its parts fit together. TRAJD_ERR_ARGUMENT names what is
 * wrong. Needs no GPU. */
enum trajd_status trajd_image_gpu_check(const struct trajd_image_gpu_spec *spec,
                                        struct trajd_error *error);

struct trajd_image_gpu;

/* Checks the spec, chooses the kernels and makes a plan with its tables and scratch memory in device
 * memory. `frames_max`: of a run. The caller destroys it. TRAJD_ERR_ARGUMENT, _MEMORY, _DEVICE or
 * _UNSUPPORTED. */
enum trajd_status trajd_image_gpu_create(struct trajd_device *device,
                                         const struct trajd_image_gpu_spec *spec,
                                         uint32_t frames_max, struct trajd_image_gpu **plan,
                                         struct trajd_error *error);
/* NULL is fine. No run of the plan may be under way. */
void trajd_image_gpu_destroy(struct trajd_image_gpu **plan);

/* Returns the device memory that a plan holds. */
uint64_t trajd_image_gpu_bytes(const struct trajd_image_gpu *plan);

/* Returns which kernels serve the plan ("strip", "matrix", "resize", "crop", "general") and in *why the
 * reason, both constant. */
const char *trajd_image_gpu_variant(const struct trajd_image_gpu *plan, const char **why);

/* Returns the bytes of a frame's record, a multiple of 16. */
uint32_t trajd_image_gpu_record_bytes(const struct trajd_image_gpu *plan);

/* Writes the record of a frame to host memory, aligned to 16 bytes. `source` and `output` are device
 * memory: a whole frame without gaps at a multiple of 16 bytes, of which the memory up to the next
 * multiple of 16 after its end may be read, too; and a whole tensor aligned to its elements
 * (faster: to 16 bytes). `params` come from a draw (or the centre) for the prepared size; NULL where
 * the spec has no steps. TRAJD_ERR_ARGUMENT where an address is not aligned. */
enum trajd_status trajd_image_gpu_write_record(const struct trajd_image_gpu *plan,
                                               const void *source, void *output,
                                               const struct trajd_augment_params *params,
                                               void *record, struct trajd_error *error);

/* Launches the work for `count` frames on the stream and returns. `records`: `count` records side by
 * side in device memory, aligned to 16 bytes. They, the sources and the outputs must stay until the
 * stream has passed the launch. Allocates nothing, so it can be captured in a graph. */
enum trajd_status trajd_image_gpu_run(struct trajd_image_gpu *plan, const void *records,
                                      uint32_t count, void *stream, struct trajd_error *error);

#ifdef __cplusplus
}
#endif
#endif
