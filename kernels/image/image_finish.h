/* Finishing images: from a frame of u8 (prepared, augmented) to the tensor of the policy.
 *
 * A value of u8 becomes value * scale + offset of its channel: a product and a sum, each rounded to
 * float32, without fused multiply-add. For float16 and bfloat16 the sum is rounded to nearest even
 * once more. So the bytes are the same on every machine. Depth is copied, or cast to float32.
 *
 * All functions are thread-safe. */
#ifndef TRAJD_KERNELS_IMAGE_IMAGE_FINISH_H
#define TRAJD_KERNELS_IMAGE_IMAGE_FINISH_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/dtype.h"
#include "proto/error.h"

enum { TRAJD_IMAGE_CHANNELS_MAX = 4 };

enum trajd_image_layout {
    TRAJD_IMAGE_HWC, /* channels side by side, as in frames */
    TRAJD_IMAGE_CHW, /* one plane a channel, as torch wants it */
    TRAJD_IMAGE_LAYOUT_COUNT,
};

struct trajd_image_finish {
    uint32_t height, width, channels;
    enum trajd_dtype source; /* U8, or U16 and F32 (depth) with one channel */
    /* u8: U8, F16, BF16 or F32. Depth: the same type, or F32 */
    enum trajd_dtype type;
    enum trajd_image_layout layout;
    float scale[TRAJD_IMAGE_CHANNELS_MAX], offset[TRAJD_IMAGE_CHANNELS_MAX]; /* 1 and 0: none */
};

/* What is done to a value of u8 before mean and std: (range(value) - mean) / std. */
enum trajd_image_range {
    TRAJD_IMAGE_RAW,    /* 0 to 255 */
    TRAJD_IMAGE_UNIT,   /* value / 255: 0 to 1 */
    TRAJD_IMAGE_SIGNED, /* value / 127.5 - 1: -1 to 1 */
};

struct trajd_image_norm {
    enum trajd_image_range range;
    uint32_t count; /* of means and stds: 1 for all channels, or one a channel */
    double mean[TRAJD_IMAGE_CHANNELS_MAX], std[TRAJD_IMAGE_CHANNELS_MAX];
};

/* Returns the norm of a name: "none", "unit", "signed", "imagenet" (unit, then the mean and std of
 * ImageNet), "signed-imagenet" (signed, then the same: diffusion_policy). NULL for another name. */
const struct trajd_image_norm *trajd_image_norm_named(const char *name);
/* Returns the word for a norm, or NULL where it has none. */
const char *trajd_image_norm_name(const struct trajd_image_norm *norm);

/* Sets scale and offset, computed in double, from a norm. Needs `channels`. TRAJD_ERR_ARGUMENT names
 * what is wrong: the number of means, a std that is not above 0. */
enum trajd_status trajd_image_finish_set_norm(struct trajd_image_finish *finish,
                                              const struct trajd_image_norm *norm,
                                              struct trajd_error *error);

/* Checks everything that the functions below rely on. TRAJD_ERR_ARGUMENT names the field. */
enum trajd_status trajd_image_finish_check(const struct trajd_image_finish *finish,
                                           struct trajd_error *error);

/* Returns the bytes of a finished frame. */
uint64_t trajd_image_finish_bytes(const struct trajd_image_finish *finish);

/* Returns whether a finished frame has the bytes of the frame. */
bool trajd_image_finish_is_copy(const struct trajd_image_finish *finish);

/* Finishes one frame. `frame` and `output` are whole frames without gaps, aligned to their elements,
 * and do not overlap. Never fails and never allocates. */
void trajd_image_finish_frame(const struct trajd_image_finish *finish, const void *frame,
                              void *output);

#endif
