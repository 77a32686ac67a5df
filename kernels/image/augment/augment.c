/* Names and checks of augmentations. */
#include "kernels/image/augment/augment.h"

#include <math.h>
#include <stddef.h>

#include "kernels/image/augment/augment_step.h"

static const char *const names[] = {
    [TRAJD_AUGMENT_CROP] = "crop",
    [TRAJD_AUGMENT_FLIP] = "flip",
    [TRAJD_AUGMENT_AFFINE] = "affine",
    [TRAJD_AUGMENT_RESIZE] = "resize",
    [TRAJD_AUGMENT_RESIZED_CROP] = "random_resized_crop",
    [TRAJD_AUGMENT_BRIGHTNESS] = "brightness",
    [TRAJD_AUGMENT_CONTRAST] = "contrast",
    [TRAJD_AUGMENT_SATURATION] = "saturation",
    [TRAJD_AUGMENT_HUE] = "hue",
    [TRAJD_AUGMENT_SHIFT] = "shift",
    [TRAJD_AUGMENT_CHANNEL_CONTRAST] = "channel_contrast",
    [TRAJD_AUGMENT_HSV_SATURATION] = "hsv_saturation",
    [TRAJD_AUGMENT_HSV_BRIGHTNESS] = "hsv_brightness",
    [TRAJD_AUGMENT_HSV_CONTRAST] = "hsv_contrast",
    [TRAJD_AUGMENT_FLAT_CONTRAST] = "flat_contrast",
    [TRAJD_AUGMENT_FLAT_SATURATION] = "flat_saturation",
};

const char *trajd_augment_kind_name(enum trajd_augment_kind kind)
{
    return kind < TRAJD_AUGMENT_KIND_COUNT ? names[kind] : NULL;
}

/* Returns whether low <= range.low <= range.high <= high. */
static bool is_within(struct trajd_augment_range range, double low, double high)
{
    return range.low >= low && range.low <= range.high && range.high <= high;
}

static bool is_depth(const struct trajd_augment_frame *frame)
{
    return frame->type == TRAJD_U16 || frame->type == TRAJD_F32;
}

static const char *check_size(const struct trajd_augment_step *step)
{
    if (!step->height || !step->width || step->height > TRAJD_IMAGE_SIDE_MAX ||
        step->width > TRAJD_IMAGE_SIDE_MAX || step->height * step->width > TRAJD_IMAGE_PIXELS_MAX)
        return "the sides must be 1 to 8192, and at most 33 million pixels";
    if (step->probability != 1)
        return "a step that sets the size of the image always happens: its probability is 1";
    return NULL;
}

static const char *check_crop(const struct trajd_augment_step *step,
                              const struct trajd_augment_frame *frame)
{
    if (step->height > frame->height || step->width > frame->width)
        return "the crop is larger than the image";
    return check_size(step);
}

static const char *check_affine(const struct trajd_augment_step *step,
                                const struct trajd_augment_frame *frame)
{
    if (!(step->degrees >= 0 && step->degrees <= 180))
        return "degrees must be 0 to 180";
    if (!(step->translate_y >= 0 && step->translate_y <= 1 && step->translate_x >= 0 &&
          step->translate_x <= 1))
        return "translate must be 0 to 1: a share of the sides";
    if (!is_within(step->scale, 0.1, 10))
        return "scale must be a range in 0.1 to 10";
    if (step->filter != TRAJD_IMAGE_NEAREST && step->filter != TRAJD_IMAGE_LINEAR)
        return "the filter must be nearest or linear";
    if (is_depth(frame) && step->filter != TRAJD_IMAGE_NEAREST)
        return "depth takes filter nearest only: others mix near and far";
    return NULL;
}

static const char *check_resize(const struct trajd_augment_step *step,
                                const struct trajd_augment_frame *frame)
{
    if ((unsigned)step->filter >= TRAJD_IMAGE_FILTER_COUNT)
        return "unknown filter";
    if (step->filter == TRAJD_IMAGE_AREA &&
        (step->height > frame->height || step->width > frame->width))
        return "filter area only reduces; use linear to enlarge";
    if (is_depth(frame) && step->filter != TRAJD_IMAGE_NEAREST)
        return "depth takes filter nearest only: others mix near and far";
    return check_size(step);
}

static const char *check_resized_crop(const struct trajd_augment_step *step,
                                      const struct trajd_augment_frame *frame)
{
    if ((unsigned)step->box >= TRAJD_AUGMENT_BOX_COUNT)
        return "unknown box";
    if (!is_within(step->scale, 1e-4, 1))
        return "scale must be a range in 0.0001 to 1: a share of the area";
    if (!is_within(step->ratio, 0.01, 100))
        return "ratio must be a range in 0.01 to 100";
    if (step->box == TRAJD_AUGMENT_BOX_TF && step->filter != TRAJD_IMAGE_LINEAR)
        return "a box as tf.image.crop_and_resize has it takes filter linear only";
    if (step->filter == TRAJD_IMAGE_AREA)
        return "filter area only reduces, and a box may be smaller than the result";
    return check_resize(step, frame);
}

static const char *check_color(const struct trajd_augment_step *step,
                               const struct trajd_augment_frame *frame)
{
    if (is_depth(frame))
        return "depth has no colours: only geometry";
    if (step->kind == TRAJD_AUGMENT_HUE)
        return frame->channels != 3                  ? "a grey image has no hue"
               : !is_within(step->factor, -0.5, 0.5) ? "hue must be a range in -0.5 to 0.5"
                                                     : NULL;
    if (step->kind == TRAJD_AUGMENT_SHIFT)
        return is_within(step->factor, -1, 1) ? NULL : "the shift must be a range in -1 to 1";
    if (frame->channels != 3 &&
        (step->kind == TRAJD_AUGMENT_SATURATION || step->kind == TRAJD_AUGMENT_FLAT_SATURATION ||
         trajd_augment_is_hsv(step->kind)))
        return "a grey image has no saturation";
    if (trajd_augment_is_curve(step->kind))
        return is_within(step->factor, -0.99, 0.99) ? NULL : "it must be a range in -0.99 to 0.99";
    return is_within(step->factor, 0, 100) ? NULL : "the factor must be a range in 0 to 100";
}

/* Returns the rule that a step breaks with the one before it, or NULL. */
static const char *check_order(const struct trajd_augment *augment, uint32_t i)
{
    const struct trajd_augment_step *step = &augment->steps[i];

    if (step->follows && (!i || step->probability != augment->steps[i - 1].probability))
        return "it follows a step before it, and has the same probability";
    if (augment->rounding == TRAJD_AUGMENT_ROUND_END && trajd_augment_is_hsv(step->kind))
        return "it goes through HSV, which takes clipped values: not with rounding: end";
    return NULL;
}

/* Returns the rule that a step breaks, or NULL. */
static const char *check_step(const struct trajd_augment_step *step,
                              const struct trajd_augment_frame *frame)
{
    if (!(step->probability >= 0 && step->probability <= 1))
        return "the probability must be 0 to 1";
    switch (step->kind) {
    case TRAJD_AUGMENT_CROP:
        return check_crop(step, frame);
    case TRAJD_AUGMENT_FLIP:
        return NULL;
    case TRAJD_AUGMENT_AFFINE:
        return check_affine(step, frame);
    case TRAJD_AUGMENT_RESIZE:
        return check_resize(step, frame);
    case TRAJD_AUGMENT_RESIZED_CROP:
        return check_resized_crop(step, frame);
    default:
        return check_color(step, frame);
    }
}

static const char *check_frame(const struct trajd_augment_frame *frame)
{
    if (!frame->height || !frame->width || frame->height > TRAJD_IMAGE_SIDE_MAX ||
        frame->width > TRAJD_IMAGE_SIDE_MAX ||
        frame->height * frame->width > TRAJD_IMAGE_PIXELS_MAX)
        return "the frame must have sides of 1 to 8192 and at most 33 million pixels";
    if (frame->type != TRAJD_U8 && !is_depth(frame))
        return "the type must be u8, or u16 or f32 for depth";
    if (frame->channels != 1 && (frame->channels != 3 || is_depth(frame)))
        return "u8 images have 1 or 3 channels, depth has 1";
    return NULL;
}

enum trajd_status trajd_augment_check(const struct trajd_augment *augment,
                                      const struct trajd_augment_frame *frame, uint32_t *height,
                                      uint32_t *width, struct trajd_error *error)
{
    struct trajd_augment_frame now = *frame;
    const char *rule = check_frame(frame);

    if (!rule && augment->count > TRAJD_AUGMENT_STEPS_MAX)
        rule = "an augmentation has at most 8 steps";
    if (!rule && (unsigned)augment->rounding >= TRAJD_AUGMENT_ROUNDING_COUNT)
        rule = "unknown rounding";
    if (rule)
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0, "augment: %s", rule);
    for (uint32_t i = 0; i < augment->count; i++) {
        const struct trajd_augment_step *step = &augment->steps[i];
        const char *name = trajd_augment_kind_name(step->kind);
        if (!name)
            return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0, "augment, step %u: unknown kind",
                                   i + 1);
        rule = check_step(step, &now);
        if (!rule)
            rule = check_order(augment, i);
        if (rule)
            return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                                   "augment, step %u (%s of %u x %u): %s", i + 1, name, now.height,
                                   now.width, rule);
        trajd_augment_resize(step, &now.height, &now.width);
    }
    *height = now.height;
    *width = now.width;
    return TRAJD_OK;
}
