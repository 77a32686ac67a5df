#include "daemon/window/picture/picture_spec.h"

#include <math.h>
#include <string.h>

#include "daemon/window/picture/picture_internal.h"

/* Begins with the first of the keys. */
static void begin(struct trajd_picture_spec *spec)
{
    if (!spec->is_given)
        spec->filter = -1;
    spec->is_given = true;
}

/* Reads a box, or the size of a box in the middle. */
static enum trajd_status read_crop(const struct trajd_yaml *yaml,
                                   const struct trajd_yaml_node *node,
                                   struct trajd_picture_spec *spec, struct trajd_error *error)
{
    static const char *const keys[] = {"top", "left", "height", "width", NULL};
    uint32_t *const sides[] = {&spec->crop.top, &spec->crop.left, &spec->crop.height,
                               &spec->crop.width};
    enum trajd_status status;

    spec->has_crop = true;
    spec->crop_is_centred = node->kind != TRAJD_YAML_MAPPING;
    if (spec->crop_is_centred)
        return trajd_picture_read_size(yaml, node, &spec->crop.height, &spec->crop.width, error);
    status = trajd_yaml_check_keys(yaml, node, keys, error);
    for (int k = 0; keys[k] && !status; k++) {
        const struct trajd_yaml_node *child = trajd_yaml_get(node, keys[k]);
        if (!child)
            return trajd_yaml_error(yaml, node, error,
                                    "expected [HEIGHT, WIDTH] for a crop in the middle, or {top, "
                                    "left, height, width}");
        status = trajd_picture_read_side(yaml, child, k >= 2, sides[k], error);
    }
    return status;
}

static enum trajd_status read_fit(const struct trajd_yaml *yaml, const struct trajd_yaml_node *node,
                                  enum trajd_image_fit *fit, struct trajd_error *error)
{
    int choice = 0;
    const enum trajd_status status =
        trajd_yaml_choice(yaml, node, trajd_image_fit_names(), &choice, error);

    *fit = (enum trajd_image_fit)choice;
    return status;
}

/* Reads the words that say how parameters are drawn, and which colour comes first. */
static enum trajd_status read_words(const struct trajd_yaml *yaml,
                                    const struct trajd_yaml_node *node,
                                    struct trajd_picture_spec *spec, struct trajd_error *error)
{
    static const char *const draws[] = {"random", "center", NULL};
    static const char *const pers[] = {"frame", "step", "camera", "window", NULL};
    static const char *const roundings[] = {"once", "each", "end", NULL};
    static const char *const channels[] = {"rgb", "bgr", "cv2", NULL};
    const struct trajd_yaml_node *child;
    int draw = spec->is_centred, per = (int)spec->draw_per, rounding = (int)spec->augment.rounding;
    int order = (int)spec->channels;
    enum trajd_status status = TRAJD_OK;

    if ((child = trajd_yaml_get(node, "draw")))
        status = trajd_yaml_choice(yaml, child, draws, &draw, error);
    if (!status && (child = trajd_yaml_get(node, "draw_per")))
        status = trajd_yaml_choice(yaml, child, pers, &per, error);
    if (!status && (child = trajd_yaml_get(node, "rounding")))
        status = trajd_yaml_choice(yaml, child, roundings, &rounding, error);
    if (!status && (child = trajd_yaml_get(node, "channels")))
        status = trajd_yaml_choice(yaml, child, channels, &order, error);
    spec->channels = (enum trajd_picture_channels)order;
    spec->is_centred = draw == 1;
    spec->draw_per = (enum trajd_picture_draw)per;
    spec->augment.rounding = (enum trajd_augment_rounding)rounding;
    return status;
}

enum trajd_status trajd_picture_spec_read(const struct trajd_yaml *yaml,
                                          const struct trajd_yaml_node *node,
                                          struct trajd_picture_spec *spec,
                                          struct trajd_error *error)
{
    static const char *const keys[] = {"preset",    "view",     "crop",    "resize", "fit",
                                       "filter",    "channels", "augment", "draw",   "draw_per",
                                       "pad_value", "rounding", NULL};
    const struct trajd_yaml_node *child;
    enum trajd_status status;

    begin(spec);
    if (node->kind != TRAJD_YAML_MAPPING)
        return trajd_yaml_error(yaml, node, error,
                                "expected a mapping, for example {resize: [224, 224]}");
    if ((child = trajd_yaml_get(node, "random_crop")) || (child = trajd_yaml_get(node, "random")))
        return trajd_yaml_error(
            yaml, child, error,
            "no such key; a random crop is written `augment: [{crop: [76, 76]}]`");
    status = trajd_yaml_check_keys(yaml, node, keys, error);
    if (!status && (child = trajd_yaml_get(node, "crop")))
        status = read_crop(yaml, child, spec, error);
    if (!status && (child = trajd_yaml_get(node, "resize")))
        status = trajd_picture_read_size(yaml, child, &spec->height, &spec->width, error);
    if (!status && (child = trajd_yaml_get(node, "fit")))
        status = read_fit(yaml, child, &spec->fit, error);
    if (!status && (child = trajd_yaml_get(node, "filter")))
        status = trajd_picture_read_filter(yaml, child, &spec->filter, error);
    if (!status && (child = trajd_yaml_get(node, "pad_value")))
        status = trajd_yaml_double(yaml, child, 0, 65535, &spec->pad_value, error);
    if (!status && (child = trajd_yaml_get(node, "augment")))
        status = trajd_picture_read_augment(yaml, child, spec, error);
    if (!status)
        status = read_words(yaml, node, spec, error);
    if (status || spec->height)
        return status;
    if ((child = trajd_yaml_get(node, "fit")) || (child = trajd_yaml_get(node, "filter")))
        return trajd_yaml_error(yaml, child, error,
                                "it says how a frame is resized, and there is no resize:");
    return TRAJD_OK;
}

enum trajd_status trajd_picture_spec_read_layout(const struct trajd_yaml *yaml,
                                                 const struct trajd_yaml_node *node,
                                                 struct trajd_picture_spec *spec,
                                                 struct trajd_error *error)
{
    static const char *const words[] = {"hwc", "chw", NULL};
    int choice = 0;
    const enum trajd_status status = trajd_yaml_choice(yaml, node, words, &choice, error);

    begin(spec);
    spec->is_chw = choice == 1;
    return status;
}

/* ---- norm ---- */

bool trajd_picture_norm_is(const struct trajd_yaml_node *node)
{
    return node->kind == TRAJD_YAML_SCALAR ? trajd_image_norm_named(node->value) != NULL
                                           : trajd_yaml_get(node, "mean") != NULL;
}

/* Reads one number, or a list with one for each channel. */
static enum trajd_status read_numbers(const struct trajd_yaml *yaml,
                                      const struct trajd_yaml_node *node, double least,
                                      uint32_t *count, double *numbers, struct trajd_error *error)
{
    enum trajd_status status = TRAJD_OK;
    uint32_t i = 0;

    if (node->kind == TRAJD_YAML_SCALAR) {
        status = trajd_yaml_double(yaml, node, least, 1e6, numbers, error);
        numbers[1] = numbers[2] = numbers[0];
        return status;
    }
    if (node->kind != TRAJD_YAML_SEQUENCE || (node->child_count != 1 && node->child_count != 3))
        return trajd_yaml_error(yaml, node, error,
                                "expected a number, or a list with one for each channel");
    for (const struct trajd_yaml_node *child = node->children; child && !status;
         child = child->next)
        status = trajd_yaml_double(yaml, child, least, 1e6, &numbers[i++], error);
    if (i == 1)
        numbers[1] = numbers[2] = numbers[0];
    else
        *count = i;
    return status;
}

enum trajd_status trajd_picture_spec_read_norm(const struct trajd_yaml *yaml,
                                               const struct trajd_yaml_node *node,
                                               struct trajd_picture_spec *spec,
                                               struct trajd_error *error)
{
    static const char *const keys[] = {"mean", "std", NULL};
    struct trajd_image_norm *norm = &spec->norm;
    enum trajd_status status;

    begin(spec);
    spec->has_norm = true;
    if (node->kind == TRAJD_YAML_SCALAR) {
        *norm = *trajd_image_norm_named(node->value);
        return TRAJD_OK;
    }
    status = trajd_yaml_check_keys(yaml, node, keys, error);
    if (status)
        return status;
    if (!trajd_yaml_get(node, "std"))
        return trajd_yaml_error(yaml, node, error,
                                "expected {mean, std} of values from 0 to 1, for example "
                                "{mean: 0.5, std: 0.5}");
    norm->range = TRAJD_IMAGE_UNIT;
    norm->count = 1;
    status =
        read_numbers(yaml, trajd_yaml_get(node, "mean"), -1e6, &norm->count, norm->mean, error);
    return status ? status
                  : read_numbers(yaml, trajd_yaml_get(node, "std"), 1e-6, &norm->count, norm->std,
                                 error);
}

/* ---- preparing ---- */

bool trajd_picture_is_bgr_for_cv2(enum trajd_picture_encoding encoding,
                                  enum trajd_picture_color color)
{
    const bool is_encoded = encoding == TRAJD_PICTURE_JPEG || encoding == TRAJD_PICTURE_PNG;

    return is_encoded != (color == TRAJD_COLOR_BGR);
}

enum trajd_status trajd_picture_prepare(const struct trajd_picture_spec *spec,
                                        const struct trajd_picture_source *source,
                                        struct trajd_image_preparation *preparation,
                                        struct trajd_error *error)
{
    struct trajd_image_box crop = {0, 0, source->height, source->width};

    if (spec->has_crop) {
        if (spec->crop.height > source->height || spec->crop.width > source->width)
            return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                                   "crop: %ux%u is larger than the frames, which have %ux%u",
                                   spec->crop.height, spec->crop.width, source->height,
                                   source->width);
        crop = spec->crop;
        if (spec->crop_is_centred) {
            crop.top = (source->height - crop.height) / 2;
            crop.left = (source->width - crop.width) / 2;
        }
    }
    memset(preparation, 0, sizeof *preparation); /* compared as bytes */
    preparation->source_height = source->height;
    preparation->source_width = source->width;
    preparation->channels = source->channels;
    preparation->type = source->type;
    preparation->crop = crop;
    preparation->filter = spec->is_given && spec->filter >= 0
                              ? (enum trajd_image_filter)spec->filter
                          : source->type == TRAJD_U8 ? TRAJD_IMAGE_PILLOW_BILINEAR
                                                     : TRAJD_IMAGE_NEAREST;
    preparation->pad_value = spec->pad_value;
    preparation->is_bgr =
        source->channels == 3 && (spec->channels == TRAJD_CHANNELS_BGR ||
                                  (spec->channels == TRAJD_CHANNELS_CV2 && source->is_bgr_for_cv2));
    trajd_image_place(preparation, spec->fit, spec->height ? spec->height : crop.height,
                      spec->width ? spec->width : crop.width);
    return trajd_image_check(preparation, error);
}

/* Sets the sizes that are shares of the prepared frame's. */
static void set_sizes(const struct trajd_picture_spec *spec,
                      const struct trajd_image_preparation *preparation,
                      struct trajd_augment *augment)
{
    for (uint32_t i = 0; i < augment->count; i++) {
        if (!spec->shares[i])
            continue;
        augment->steps[i].height = (uint32_t)fmax(spec->shares[i] * preparation->height, 1);
        augment->steps[i].width = (uint32_t)fmax(spec->shares[i] * preparation->width, 1);
    }
}

enum trajd_status trajd_picture_finish(const struct trajd_picture_spec *spec,
                                       const struct trajd_image_preparation *preparation,
                                       enum trajd_dtype type, struct trajd_augment *augment,
                                       struct trajd_image_finish *finish, struct trajd_error *error)
{
    const struct trajd_augment_frame frame = {preparation->height, preparation->width,
                                              preparation->channels, preparation->type};
    uint32_t height = frame.height, width = frame.width;
    enum trajd_status status = TRAJD_OK;

    *augment = spec->augment;
    set_sizes(spec, preparation, augment);
    if (augment->count)
        status = trajd_augment_check(augment, &frame, &height, &width, error);
    if (status)
        return status;
    *finish =
        (struct trajd_image_finish){.height = height,
                                    .width = width,
                                    .channels = preparation->channels,
                                    .source = preparation->type,
                                    .type = type,
                                    .layout = spec->is_chw ? TRAJD_IMAGE_CHW : TRAJD_IMAGE_HWC};
    for (uint32_t c = 0; c < TRAJD_IMAGE_CHANNELS_MAX; c++)
        finish->scale[c] = 1;
    if (spec->has_norm)
        status = trajd_image_finish_set_norm(finish, &spec->norm, error);
    return status ? status : trajd_image_finish_check(finish, error);
}
