/* Augmentation: the contract between the daemon and every variant of the kernels.
 *
 * An augmentation is a list of steps. A *draw* turns seed, epoch, window, output and group into the
 * parameters of each step; it depends on nothing else, so it is the same for every number of
 * workers, after a restart, on every machine. *Applying* the parameters to a prepared frame makes
 * the augmented frame. The parameters are handed out with a batch, and are enough to repeat the
 * augmentation in torch.
 *
 *     prepared u8 HWC --crop, flip, warp, resize, colours, in the order of the list--> u8 HWC
 *
 * Frames are rows of H x W x C elements without gaps (kernels/image/image.h). Geometry rounds to u8
 * after each step. Neighbouring colour steps are a *run*: see enum trajd_augment_rounding.
 *
 * All functions are thread-safe for different plans. */
#ifndef TRAJD_KERNELS_IMAGE_AUGMENT_AUGMENT_H
#define TRAJD_KERNELS_IMAGE_AUGMENT_AUGMENT_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/image/image.h"

enum {
    TRAJD_AUGMENT_STEPS_MAX = 8,
    TRAJD_AUGMENT_VALUES = 4, /* parameters of a step */
};

/* The comment gives the parameters of a step, in their order. The rest of the four is 0. */
enum trajd_augment_kind {
    TRAJD_AUGMENT_CROP,   /* top, left: pixels */
    TRAJD_AUGMENT_FLIP,   /* 1: mirrored left to right, 0: not */
    TRAJD_AUGMENT_AFFINE, /* degrees, down, right (whole pixels), scale: F.affine(angle=...) */
    TRAJD_AUGMENT_RESIZE, /* none */
    TRAJD_AUGMENT_RESIZED_CROP, /* top, left, height, width: pixels, or with box TF shares of 1 */
    TRAJD_AUGMENT_BRIGHTNESS,   /* factor */
    TRAJD_AUGMENT_CONTRAST,     /* factor */
    TRAJD_AUGMENT_SATURATION,   /* factor */
    TRAJD_AUGMENT_HUE,          /* shift: turns of the colour circle, -0.5 to 0.5 */
    /* tf.image has brightness, contrast and saturation of its own: */
    TRAJD_AUGMENT_SHIFT,            /* share of 255 that is added, -1 to 1 */
    TRAJD_AUGMENT_CHANNEL_CONTRAST, /* factor, about the mean of each channel */
    TRAJD_AUGMENT_HSV_SATURATION,   /* factor of the saturation in HSV */
    /* augmax changes the value in HSV, by curves from black to full: */
    TRAJD_AUGMENT_HSV_BRIGHTNESS, /* -1: all black, 0: nothing, 1: all full */
    TRAJD_AUGMENT_HSV_CONTRAST,   /* -1 to 1; above 0, the middle becomes steeper */
    /* as CONTRAST and SATURATION, but a pixel's grey is the mean of its channels (openpi in torch): */
    TRAJD_AUGMENT_FLAT_CONTRAST,   /* factor */
    TRAJD_AUGMENT_FLAT_SATURATION, /* factor */
    TRAJD_AUGMENT_KIND_COUNT,
};

/* How a resized crop cuts. */
enum trajd_augment_box {
    TRAJD_AUGMENT_BOX_PIXELS, /* torchvision's RandomResizedCrop: whole pixels, then the filter */
    TRAJD_AUGMENT_BOX_TF,     /* tf.image.crop_and_resize: any box, bilinear without antialias */
    TRAJD_AUGMENT_BOX_COUNT,
};

/* What happens between the steps of a run of colours. Values are clipped to 0..255 after each, but for
 * END. */
enum trajd_augment_rounding {
    /* floats to the end of the run, then to the nearest u8: torchvision on float tensors */
    TRAJD_AUGMENT_ROUND_ONCE,
    /* rounds down to u8 after each step: torchvision on u8 tensors (act-plus-plus) */
    TRAJD_AUGMENT_ROUND_EACH,
    /* as ONCE, and clips only at the end of the run: openpi in torch. Not for steps through HSV */
    TRAJD_AUGMENT_ROUND_END,
    TRAJD_AUGMENT_ROUNDING_COUNT,
};

struct trajd_augment_range {
    double low, high;
};

struct trajd_augment_step {
    enum trajd_augment_kind kind;
    /* that the step happens; else its parameters change nothing. 1 for steps that set a size */
    double probability;
    bool follows;           /* happens where the step before it does, which has this probability */
    uint32_t height, width; /* crop, resize, resized crop: of the result */
    /* crop: the last offset (size - crop) never occurs, as in robomimic; else it does */
    bool excludes_last;
    double degrees;                  /* affine: turns by -degrees to degrees */
    double translate_y, translate_x; /* affine: moves by up to this share of the sides */
    struct trajd_augment_range
        scale; /* affine: factor of the size. Resized crop: share of the area */
    struct trajd_augment_range ratio; /* resized crop: width / height of the box */
    enum trajd_augment_box box;       /* resized crop */
    /* affine: NEAREST or LINEAR, 0 outside of the frame. Resize, resized crop with box PIXELS: any */
    enum trajd_image_filter filter;
    struct trajd_augment_range factor; /* colours: the range of the parameter */
};

struct trajd_augment {
    uint32_t count;
    struct trajd_augment_step steps[TRAJD_AUGMENT_STEPS_MAX];
    enum trajd_augment_rounding rounding;
};

/* The frames that an augmentation takes. */
struct trajd_augment_frame {
    uint32_t height, width;
    uint32_t channels;     /* 1 or 3 */
    enum trajd_dtype type; /* U8; U16 and F32 (depth): one channel, geometry only, filter NEAREST */
};

/* What a draw depends on. Frames with equal keys get equal parameters. */
struct trajd_augment_key {
    uint64_t seed;
    uint64_t epoch; /* in a mixture: the pass over the dataset */
    uint64_t window;
    uint64_t output; /* a digest of its name; 0 where all outputs share the draws */
    uint32_t group;  /* the frames of a window with the same draws: 0, 1, ... */
};

/* The tensor NAME.augment of a frame: float32 [steps of the list][4]. */
struct trajd_augment_params {
    float values[TRAJD_AUGMENT_STEPS_MAX][TRAJD_AUGMENT_VALUES];
};

/* Returns the name in configurations ("crop", "affine", "brightness", ...), or NULL for a number that
 * is none. */
const char *trajd_augment_kind_name(enum trajd_augment_kind kind);

/* Checks everything that the functions below rely on, and sets the size of an augmented frame.
 * TRAJD_ERR_ARGUMENT names the step. */
enum trajd_status trajd_augment_check(const struct trajd_augment *augment,
                                      const struct trajd_augment_frame *frame, uint32_t *height,
                                      uint32_t *width, struct trajd_error *error);

/* Draws the parameters for a frame of height x width. Checked augmentations only. */
void trajd_augment_draw(const struct trajd_augment *augment, const struct trajd_augment_key *key,
                        uint32_t height, uint32_t width, struct trajd_augment_params *params);

/* Sets the parameters without chance, for evaluation: crops and boxes in the centre, all other steps
 * change nothing. The centre is rounded as the trainers do: down where the crop excludes the last
 * offset (robomimic), else half to even (torchvision). */
void trajd_augment_center(const struct trajd_augment *augment, uint32_t height, uint32_t width,
                          struct trajd_augment_params *params);

/* A plan: the tables and scratch memory of one augmentation. For one thread at a time. */
struct trajd_augment_plan;
/* Checks the augmentation and makes a plan. The caller destroys it. TRAJD_ERR_ARGUMENT or
 * TRAJD_ERR_MEMORY. */
enum trajd_status trajd_augment_plan_create(const struct trajd_augment *augment,
                                            const struct trajd_augment_frame *frame,
                                            struct trajd_augment_plan **plan,
                                            struct trajd_error *error);
void trajd_augment_plan_destroy(struct trajd_augment_plan **plan);

/* Augments one frame. The result is the same on every machine. It equals the double-precision
 * definition in tests/support/references bit for bit where the steps are crops, flips and nearest;
 * a geometric step and a run of colours are within one level of it. TRAJD_ERR_MEMORY, only with a
 * resized crop in pixels: each box has tables of its own. */
enum trajd_status trajd_augment_apply(struct trajd_augment_plan *plan,
                                      const struct trajd_augment_params *params, const void *source,
                                      void *output);

#endif
