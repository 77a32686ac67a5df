/* Preparing images: the contract between the daemon and every variant of the kernels.
 *
 * A prepared frame is pad(resize(crop(source))). It does not depend on the window that asks for it,
 * so it is made once and kept. Augmentation, normalisation and layout come later.
 *
 * Frames are rows of H x W x C elements, C channels side by side. Sizes are (height, width). Pixel
 * (y, x) covers [y, y + 1) x [x, x + 1), so the centre of output pixel o lies at
 * (o + 0.5) * scale of the source, with scale = source size / output size.
 *
 * A filter gives each output pixel weights over source pixels, along each axis on its own
 * (image_taps.h). The value is the weighted sum along both axes, rounded to the nearest whole
 * number, and clipped to 0..255.
 *
 * All functions are thread-safe for different plans. */
#ifndef TRAJD_KERNELS_IMAGE_IMAGE_H
#define TRAJD_KERNELS_IMAGE_IMAGE_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/image/yuv.h"
#include "proto/dtype.h"
#include "proto/error.h"

enum {
    TRAJD_IMAGE_SIDE_MAX = 8192,
    TRAJD_IMAGE_PIXELS_MAX = 33000000,
};

/* Named after the program whose result they give. In the first group, a filter that reduces an
 * image is as much wider as the image becomes smaller (antialias). */
enum trajd_image_filter {
    TRAJD_IMAGE_PILLOW_BILINEAR, /* also torchvision with antialias, and jax.image.resize */
    TRAJD_IMAGE_PILLOW_BOX,
    /* The next two round and clip to 0..255 between the axes, first along x. */
    TRAJD_IMAGE_PILLOW_BICUBIC,
    TRAJD_IMAGE_PILLOW_LANCZOS,
    TRAJD_IMAGE_TF_LANCZOS3, /* as Pillow's, but it does not round or clip between the axes */
    TRAJD_IMAGE_AREA,        /* OpenCV INTER_AREA: exact overlap. Only reduces */
    /* two source pixels an axis, whatever the sizes: OpenCV INTER_LINEAR, F.interpolate */
    TRAJD_IMAGE_LINEAR,
    /* the source pixel under the centre, as Pillow's NEAREST and nearest-exact of torch; where the
     * centre lies between two pixels, which floats decide there, the second one */
    TRAJD_IMAGE_NEAREST,
    TRAJD_IMAGE_FILTER_COUNT,
};

/* How a frame of another shape gets into the output. */
enum trajd_image_fit {
    TRAJD_IMAGE_STRETCH, /* each axis by its own scale */
    TRAJD_IMAGE_PAD,     /* whole and centred; the rest is pad_value. openpi's resize_with_pad */
    TRAJD_IMAGE_PAD_TOPLEFT, /* whole, at the bottom right: padding above and to the left */
    TRAJD_IMAGE_COVER,       /* fills the output; what is too much is cut off on both sides */
    TRAJD_IMAGE_FIT_COUNT,
};

struct trajd_image_box {
    uint32_t top, left, height, width;
};

/* What is done to a frame. The resized frame of inner_height x inner_width is placed with its corner
 * at (top, left) of the output, which may be negative; what lies outside is cut off. */
struct trajd_image_preparation {
    uint32_t source_height, source_width;
    uint32_t channels;     /* 1 or 3 */
    enum trajd_dtype type; /* U8; U16 and F32 (depth) with one channel and filter NEAREST only */
    struct trajd_image_box crop; /* inside the source */
    enum trajd_image_filter filter;
    uint32_t inner_height, inner_width;
    int32_t top, left;
    uint32_t height, width; /* of the output */
    /* 1: the pixels have blue first. The decoder gives them so; the kernels do not look at it */
    uint32_t is_bgr;
    double pad_value; /* a value of the type */
};

/* Return the names in configurations ("pillow-bilinear", "tf-lanczos3", "stretch", ...) in the order
 * of their numbers, with NULL at the end. */
const char *const *trajd_image_filter_names(void);
const char *const *trajd_image_fit_names(void);
/* Return one of these names, or NULL for a number that is none. */
const char *trajd_image_filter_name(enum trajd_image_filter filter);
const char *trajd_image_fit_name(enum trajd_image_fit fit);

/* Sets inner size and corner for an output of height x width, from the crop box. */
void trajd_image_place(struct trajd_image_preparation *preparation, enum trajd_image_fit fit,
                       uint32_t height, uint32_t width);

/* Returns whether frames stay as they are: no crop, no other size, no padding. The order of the
 * colours does not count. */
bool trajd_image_is_whole(const struct trajd_image_preparation *preparation);

/* Checks everything that the functions below rely on. TRAJD_ERR_ARGUMENT names the field. */
enum trajd_status trajd_image_check(const struct trajd_image_preparation *preparation,
                                    struct trajd_error *error);

/* Return the bytes of a source frame and of a prepared frame. */
uint64_t trajd_image_source_bytes(const struct trajd_image_preparation *preparation);
uint64_t trajd_image_bytes(const struct trajd_image_preparation *preparation);

/* Returns whether the crop box is not resized. Each filter then gives its pixels as they are. */
bool trajd_image_is_unscaled(const struct trajd_image_preparation *preparation);
/* Returns whether a frame is its source, byte for byte: not cropped, resized or padded. */
bool trajd_image_is_source(const struct trajd_image_preparation *preparation);

/* Sets `count` elements of a frame, of the preparation's type, to its pad value. */
void trajd_image_fill(const struct trajd_image_preparation *preparation, void *output,
                      uint64_t count);

/* A plan: the tables and scratch memory of one preparation. For one thread at a time. */
struct trajd_image_plan;
/* Checks the preparation and makes a plan. The caller destroys it. TRAJD_ERR_ARGUMENT or
 * TRAJD_ERR_MEMORY. */
enum trajd_status trajd_image_plan_create(const struct trajd_image_preparation *preparation,
                                          struct trajd_image_plan **plan,
                                          struct trajd_error *error);
void trajd_image_plan_destroy(struct trajd_image_plan **plan);

/* Prepares one frame. The result is the same on every machine. It equals the double-precision
 * definition in tests/support/references bit for bit with nearest, pillow-bicubic and
 * pillow-lanczos. With other filters it is within one level for images that shrink to an eighth or
 * more, and within two beyond. Never fails and never allocates. */
void trajd_image_prepare(struct trajd_image_plan *plan, const void *source, void *output);

/* Prepares a frame of video. Its levels are made row by row as they are resized, so they do not
 * cross the memory; the result is that of trajd_yuv_to_rgb() and trajd_image_prepare(). Only for
 * preparations that are resized along y first. */
bool trajd_image_takes_video(const struct trajd_image_preparation *preparation);
void trajd_image_prepare_video(struct trajd_image_plan *plan, const struct trajd_yuv *frame,
                               const struct trajd_yuv_colors *colors, void *output);

#endif
