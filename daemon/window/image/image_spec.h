/* What an output says about its images: the keys `image:`, `layout:`, and the words of `norm:`
 * for images. */
#ifndef TRAJD_WINDOW_IMAGE_SPEC_H
#define TRAJD_WINDOW_IMAGE_SPEC_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/base/yaml.h"
#include "daemon/layout/layout_image.h"
#include "kernels/image/augment/augment.h"
#include "kernels/image/image.h"
#include "kernels/image/image_finish.h"

/* Which frames of a window get the same draw. */
enum trajd_image_draw {
    TRAJD_DRAW_FRAME,  /* none */
    TRAJD_DRAW_STEP,   /* the cameras of a step */
    TRAJD_DRAW_CAMERA, /* the steps of a camera */
    TRAJD_DRAW_WINDOW, /* all */
};

/* Which colour comes first. */
enum trajd_image_channels {
    TRAJD_CHANNELS_RGB, /* red */
    TRAJD_CHANNELS_BGR, /* blue */
    /* as OpenCV reads the file: blue in encoded frames, and raw frames as they are stored */
    TRAJD_CHANNELS_CV2,
};

struct trajd_image_preset; /* image_preset.h */

struct trajd_image_spec {
    const struct trajd_image_preset *preset; /* NULL: not given; its keys are set */
    bool is_wrist;                           /* view: wrist, of a preset */
    bool is_given;                           /* one of the keys below was given */
    bool has_crop, crop_is_centred;
    struct trajd_image_box crop;
    uint32_t height, width; /* of the output; 0: as the frame, or as the crop */
    enum trajd_image_fit fit;
    int filter; /* enum trajd_image_filter; -1: not given */
    double pad_value;
    enum trajd_image_channels channels;
    struct trajd_augment augment; /* count 0: none */
    /* of the steps: the size is this share of the prepared frame's; 0: it is in the step */
    double shares[TRAJD_AUGMENT_STEPS_MAX];
    bool is_centred; /* evaluation: nothing is drawn; crops are in the centre */
    enum trajd_image_draw draw_per;
    bool is_chw;
    bool has_norm;
    struct trajd_image_norm norm;
};

/* The next three read one key each into a struct trajd_image_spec, and fit a table of keys. */
/* Reads `image:`, a mapping. TRAJD_ERR_ARGUMENT with line and key. */
enum trajd_status trajd_image_spec_read(const struct trajd_yaml_reader *r,
                                        const struct trajd_yaml_node *node, void *spec);
/* Reads `layout:`: chw or hwc. */
enum trajd_status trajd_image_spec_read_layout(const struct trajd_yaml_reader *r,
                                               const struct trajd_yaml_node *node, void *spec);
enum trajd_status trajd_image_spec_read_norm(const struct trajd_yaml_reader *r,
                                             const struct trajd_yaml_node *node, void *spec);
/* Returns whether the value of `norm:` is one for images: a word such as unit, or {mean, std}. */
bool trajd_image_norm_is(const struct trajd_yaml_node *node);

#endif
