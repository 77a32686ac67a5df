/* Reads the keys of an output's images: `image:` with its list of steps `augment:`, `layout:`, and
 * the words of `norm:` for images. */
#include "daemon/window/image/image_spec.h"

#include <string.h>

#include "proto/array_len.h"

#define MAX_DEGREES 180.0
#define MAX_FACTOR 100.0
#define AT(member) offsetof(struct trajd_image_spec, member)
#define OF_STEP(member) offsetof(struct trajd_augment_step, member)

static const char *const draws[] = {"random", "center", NULL};
static const char *const pers[] = {"frame", "step", "camera", "window", NULL};
static const char *const roundings[] = {"once", "each", "end", NULL};
static const char *const orders[] = {"rgb", "bgr", "cv2", NULL};
static const char *const boxes[] = {"pixels", "tf", NULL};

/* Begins with the first of the keys. */
static void begin(struct trajd_image_spec *spec)
{
    if (!spec->is_given)
        spec->filter = -1;
    spec->is_given = true;
}

/* ---- values that several keys have ---- */

static enum trajd_status read_side(const struct trajd_yaml_reader *r,
                                   const struct trajd_yaml_node *node, uint32_t *side)
{
    static const struct trajd_yaml_key key = {.low = 1, .high = TRAJD_IMAGE_SIDE_MAX};

    return trajd_yaml_read_key(r, node, &key, side);
}

/* Reads "[HEIGHT, WIDTH]", or one number for both. */
static enum trajd_status read_size(const struct trajd_yaml_reader *r,
                                   const struct trajd_yaml_node *node, uint32_t *height,
                                   uint32_t *width)
{
    enum trajd_status status;

    if (node->kind == TRAJD_YAML_SCALAR) {
        status = read_side(r, node, height);
        *width = *height;
        return status;
    }
    if (node->kind != TRAJD_YAML_SEQUENCE || node->child_count != 2)
        return trajd_yaml_error(r->yaml, node, r->error,
                                "expected [HEIGHT, WIDTH], or one number for a square");
    status = read_side(r, node->children, height);
    return status ? status : read_side(r, node->children->next, width);
}

static enum trajd_status read_filter(const struct trajd_yaml_reader *r,
                                     const struct trajd_yaml_node *node, void *filter)
{
    return trajd_yaml_choice(r->yaml, node, trajd_image_filter_names(), filter, r->error);
}

/* ---- augment ---- */

/* The keys that a step may have beside its kind. */
struct step_kind {
    enum trajd_augment_kind kind;
    const char *keys[7];
};

static const struct step_kind steps[] = {
    {TRAJD_AUGMENT_CROP, {"crop", "excludes_last", NULL}},
    {TRAJD_AUGMENT_FLIP, {"flip", NULL}},
    {TRAJD_AUGMENT_AFFINE, {"affine", "translate", "scale", "filter", "p", NULL}},
    {TRAJD_AUGMENT_RESIZE, {"resize", "filter", NULL}},
    {TRAJD_AUGMENT_RESIZED_CROP, {"random_resized_crop", "scale", "ratio", "box", "filter", NULL}},
    {TRAJD_AUGMENT_BRIGHTNESS, {"brightness", "p", NULL}},
    {TRAJD_AUGMENT_CONTRAST, {"contrast", "p", NULL}},
    {TRAJD_AUGMENT_SATURATION, {"saturation", "p", NULL}},
    {TRAJD_AUGMENT_HUE, {"hue", "p", NULL}},
    {TRAJD_AUGMENT_SHIFT, {"shift", "p", NULL}},
    {TRAJD_AUGMENT_CHANNEL_CONTRAST, {"channel_contrast", "p", NULL}},
    {TRAJD_AUGMENT_HSV_SATURATION, {"hsv_saturation", "p", NULL}},
    {TRAJD_AUGMENT_HSV_BRIGHTNESS, {"hsv_brightness", "p", NULL}},
    {TRAJD_AUGMENT_HSV_CONTRAST, {"hsv_contrast", "p", NULL}},
    {TRAJD_AUGMENT_FLAT_CONTRAST, {"flat_contrast", "p", NULL}},
    {TRAJD_AUGMENT_FLAT_SATURATION, {"flat_saturation", "p", NULL}},
};

/* Reads [LOW, HIGH]. */
static enum trajd_status read_range(const struct trajd_yaml_reader *r,
                                    const struct trajd_yaml_node *node, double least, double most,
                                    struct trajd_augment_range *range)
{
    enum trajd_status status;

    if (node->kind != TRAJD_YAML_SEQUENCE || node->child_count != 2)
        return trajd_yaml_error(r->yaml, node, r->error, "expected [LOW, HIGH]");
    status = trajd_yaml_double(r->yaml, node->children, least, most, &range->low, r->error);
    if (!status)
        status =
            trajd_yaml_double(r->yaml, node->children->next, least, most, &range->high, r->error);
    if (!status && range->low > range->high)
        status = trajd_yaml_error(r->yaml, node, r->error, "LOW is greater than HIGH");
    return status;
}

/* Reads the strength of a colour step as torchvision's ColorJitter does: a number v stands for
 * [max(0, 1 - v), 1 + v], of hue, shift and the curves of HSV for [-v, v]. */
static enum trajd_status read_factor(const struct trajd_yaml_reader *r,
                                     const struct trajd_yaml_node *node,
                                     enum trajd_augment_kind kind,
                                     struct trajd_augment_range *range)
{
    const bool is_curve =
        kind == TRAJD_AUGMENT_HSV_BRIGHTNESS || kind == TRAJD_AUGMENT_HSV_CONTRAST;
    const bool is_sum = is_curve || kind == TRAJD_AUGMENT_HUE || kind == TRAJD_AUGMENT_SHIFT;
    const double most = kind == TRAJD_AUGMENT_HUE ? 0.5 : is_curve ? 0.99 : is_sum ? 1 : MAX_FACTOR;
    double strength = 0;
    enum trajd_status status;

    if (node->kind != TRAJD_YAML_SCALAR)
        return read_range(r, node, is_sum ? -most : 0, most, range);
    status = trajd_yaml_double(r->yaml, node, 0, most, &strength, r->error);
    range->low = is_sum ? -strength : strength < 1 ? 1 - strength : 0;
    range->high = is_sum ? strength : 1 + strength;
    return status;
}

/* Reads the size of a step's result: in pixels, as a share of the prepared frame's (0.95), or as
 * that of the prepared frame (back). */
static enum trajd_status read_step_size(const struct trajd_yaml_reader *r,
                                        const struct trajd_yaml_node *node,
                                        struct trajd_augment_step *step, double *share)
{
    if (node->kind == TRAJD_YAML_SCALAR && !strcmp(node->value, "back")) {
        *share = 1;
        return TRAJD_OK;
    }
    if (node->kind == TRAJD_YAML_SCALAR && strchr(node->value, '.'))
        return trajd_yaml_double(r->yaml, node, 1e-3, 1, share, r->error);
    return read_size(r, node, &step->height, &step->width);
}

/* Reads the value under the name of the kind. */
static enum trajd_status read_main(const struct trajd_yaml_reader *r,
                                   const struct trajd_yaml_node *node,
                                   struct trajd_augment_step *step, double *share)
{
    switch (step->kind) {
    case TRAJD_AUGMENT_CROP:
    case TRAJD_AUGMENT_RESIZE:
    case TRAJD_AUGMENT_RESIZED_CROP:
        return read_step_size(r, node, step, share);
    case TRAJD_AUGMENT_FLIP:
        return trajd_yaml_double(r->yaml, node, 0, 1, &step->probability, r->error);
    case TRAJD_AUGMENT_AFFINE:
        return trajd_yaml_double(r->yaml, node, 0, MAX_DEGREES, &step->degrees, r->error);
    case TRAJD_AUGMENT_BRIGHTNESS:
    case TRAJD_AUGMENT_CONTRAST:
    case TRAJD_AUGMENT_SATURATION:
    case TRAJD_AUGMENT_HUE:
    case TRAJD_AUGMENT_SHIFT:
    case TRAJD_AUGMENT_CHANNEL_CONTRAST:
    case TRAJD_AUGMENT_HSV_SATURATION:
    case TRAJD_AUGMENT_HSV_BRIGHTNESS:
    case TRAJD_AUGMENT_HSV_CONTRAST:
    case TRAJD_AUGMENT_FLAT_CONTRAST:
    case TRAJD_AUGMENT_FLAT_SATURATION:
    case TRAJD_AUGMENT_KIND_COUNT:
        break;
    }
    return read_factor(r, node, step->kind, &step->factor);
}

static enum trajd_status read_probability(const struct trajd_yaml_reader *r,
                                          const struct trajd_yaml_node *node, void *member)
{
    struct trajd_augment_step *step = member;

    step->follows = node->kind == TRAJD_YAML_SCALAR && !strcmp(node->value, "same");
    return step->follows ? TRAJD_OK
                         : trajd_yaml_double(r->yaml, node, 0, 1, &step->probability, r->error);
}

static enum trajd_status read_scale(const struct trajd_yaml_reader *r,
                                    const struct trajd_yaml_node *node, void *range)
{
    return read_range(r, node, 1e-3, MAX_FACTOR, range);
}

static enum trajd_status read_ratio(const struct trajd_yaml_reader *r,
                                    const struct trajd_yaml_node *node, void *range)
{
    return read_range(r, node, 1e-2, MAX_FACTOR, range);
}

/* Reads [DOWN, RIGHT]. */
static enum trajd_status read_translate(const struct trajd_yaml_reader *r,
                                        const struct trajd_yaml_node *node, void *member)
{
    struct trajd_augment_step *step = member;
    enum trajd_status status;

    if (node->kind != TRAJD_YAML_SEQUENCE || node->child_count != 2)
        return trajd_yaml_error(r->yaml, node, r->error,
                                "expected [DOWN, RIGHT], shares of the sides");
    status = trajd_yaml_double(r->yaml, node->children, 0, 1, &step->translate_y, r->error);
    return status ? status
                  : trajd_yaml_double(r->yaml, node->children->next, 0, 1, &step->translate_x,
                                      r->error);
}

/* The keys beside the kind. */
static const struct trajd_yaml_key step_keys[] = {
    {"p", .read = read_probability},
    {"excludes_last", TRAJD_YAML_BOOL, .offset = OF_STEP(excludes_last)},
    {"scale", .offset = OF_STEP(scale), .read = read_scale},
    {"ratio", .offset = OF_STEP(ratio), .read = read_ratio},
    {"box", TRAJD_YAML_CHOICE, .offset = OF_STEP(box), .words = boxes},
    {"translate", .read = read_translate},
    {"filter", .offset = OF_STEP(filter), .read = read_filter},
};

static enum trajd_status read_step_key(const struct trajd_yaml_reader *r,
                                       const struct trajd_yaml_node *node,
                                       struct trajd_augment_step *step)
{
    size_t k = 0;

    while (strcmp(step_keys[k].name, node->key) != 0)
        k++;
    return trajd_yaml_read_key(r, node, &step_keys[k], step);
}

static enum trajd_status read_step(const struct trajd_yaml_reader *r,
                                   const struct trajd_yaml_node *node,
                                   struct trajd_augment_step *step, double *share)
{
    const struct step_kind *found = NULL;
    enum trajd_status status;

    for (size_t i = 0; i < sizeof steps / sizeof *steps && !found; i++)
        if (node->kind == TRAJD_YAML_MAPPING && trajd_yaml_get(node, steps[i].keys[0]))
            found = &steps[i];
    if (!found)
        return trajd_yaml_error(
            r->yaml, node, r->error,
            "expected a step: {crop: [H, W]}, {flip: 0.5}, {affine: DEGREES}, "
            "{resize: [H, W]}, {random_resized_crop: [H, W]}, {brightness: "
            "0.3}, {contrast: 0.3}, {saturation: 0.3}, {hue: 0.05}, or "
            "of tf.image {shift: 0.1}, {channel_contrast: 0.1}, "
            "{hsv_saturation: 0.1}, of openpi {hsv_brightness: 0.3}, "
            "{hsv_contrast: 0.4}, {flat_contrast: 0.4}, {flat_saturation: 0.5}");
    *step = (struct trajd_augment_step){.kind = found->kind,
                                        .probability = 1,
                                        .scale = {1, 1},
                                        .ratio = {1, 1},
                                        .filter = found->kind == TRAJD_AUGMENT_AFFINE
                                                      ? TRAJD_IMAGE_NEAREST
                                                      : TRAJD_IMAGE_PILLOW_BILINEAR};
    status = trajd_yaml_check_keys(r->yaml, node, found->keys, r->error);
    for (const struct trajd_yaml_node *child = node->children; child && !status;
         child = child->next)
        status = strcmp(child->key, found->keys[0]) ? read_step_key(r, child, step)
                                                    : read_main(r, child, step, share);
    return status;
}

static enum trajd_status read_augment(const struct trajd_yaml_reader *r,
                                      const struct trajd_yaml_node *node, void *member)
{
    struct trajd_image_spec *spec = member;
    struct trajd_augment *augment = &spec->augment;
    enum trajd_status status = TRAJD_OK;

    if (node->kind != TRAJD_YAML_SEQUENCE || node->child_count > TRAJD_AUGMENT_STEPS_MAX)
        return trajd_yaml_error(r->yaml, node, r->error, "expected a list of up to %d steps",
                                TRAJD_AUGMENT_STEPS_MAX);
    augment->count = 0;
    memset(spec->shares, 0, sizeof spec->shares);
    for (const struct trajd_yaml_node *child = node->children; child && !status;
         child = child->next) {
        const uint32_t i = augment->count++;
        status = read_step(r, child, &augment->steps[i], &spec->shares[i]);
        if (status || !augment->steps[i].follows)
            continue;
        if (!i)
            return trajd_yaml_error(
                r->yaml, child, r->error,
                "p: same repeats the choice of the step before it, and this is the "
                "first step");
        augment->steps[i].probability = augment->steps[i - 1].probability;
    }
    return status;
}

/* ---- image ---- */

/* Reads a box, or the size of a box in the middle. */
static enum trajd_status read_crop(const struct trajd_yaml_reader *r,
                                   const struct trajd_yaml_node *node, void *member)
{
    static const char form[] =
        "[HEIGHT, WIDTH] for a crop in the middle, or {top, left, height, width}";
    static const struct trajd_yaml_key keys[] = {
        {"top", .offset = AT(crop.top), .high = TRAJD_IMAGE_SIDE_MAX},
        {"left", .offset = AT(crop.left), .high = TRAJD_IMAGE_SIDE_MAX},
        {"height", .offset = AT(crop.height), .low = 1, .high = TRAJD_IMAGE_SIDE_MAX},
        {"width", .offset = AT(crop.width), .low = 1, .high = TRAJD_IMAGE_SIDE_MAX},
    };
    struct trajd_image_spec *spec = member;
    enum trajd_status status;

    spec->has_crop = true;
    spec->crop_is_centred = node->kind != TRAJD_YAML_MAPPING;
    if (spec->crop_is_centred)
        return read_size(r, node, &spec->crop.height, &spec->crop.width);
    status = trajd_yaml_read_keys(r, node, NULL, keys, ARRAY_LEN(keys), spec);
    if (!status && node->child_count < ARRAY_LEN(keys))
        return trajd_yaml_error(r->yaml, node, r->error, "expected %s", form);
    return status;
}

static enum trajd_status read_resize(const struct trajd_yaml_reader *r,
                                     const struct trajd_yaml_node *node, void *member)
{
    struct trajd_image_spec *spec = member;

    return read_size(r, node, &spec->height, &spec->width);
}

static enum trajd_status read_fit(const struct trajd_yaml_reader *r,
                                  const struct trajd_yaml_node *node, void *fit)
{
    return trajd_yaml_choice(r->yaml, node, trajd_image_fit_names(), fit, r->error);
}

enum trajd_status trajd_image_spec_read(const struct trajd_yaml_reader *r,
                                        const struct trajd_yaml_node *node, void *member)
{
    static const struct trajd_yaml_key keys[] = {
        {"preset", .type = TRAJD_YAML_LATER}, /* before the others */
        {"view", .type = TRAJD_YAML_LATER},
        {"crop", .read = read_crop},
        {"resize", .read = read_resize},
        {"fit", .offset = AT(fit), .read = read_fit},
        {"filter", .offset = AT(filter), .read = read_filter},
        {"channels", TRAJD_YAML_CHOICE, .offset = AT(channels), .words = orders},
        {"augment", .read = read_augment},
        {"draw", TRAJD_YAML_FLAG, .offset = AT(is_centred), .words = draws},
        {"draw_per", TRAJD_YAML_CHOICE, .offset = AT(draw_per), .words = pers},
        {"pad_value", TRAJD_YAML_DOUBLE, .offset = AT(pad_value), .high = 65535},
        {"rounding", TRAJD_YAML_CHOICE, .offset = AT(augment.rounding), .words = roundings},
    };
    struct trajd_image_spec *spec = member;
    const struct trajd_yaml_node *child;
    enum trajd_status status;

    begin(spec);
    if ((child = trajd_yaml_get(node, "random_crop")) || (child = trajd_yaml_get(node, "random")))
        return trajd_yaml_error(
            r->yaml, child, r->error,
            "no such key; a random crop is written `augment: [{crop: [76, 76]}]`");
    status = trajd_yaml_read_keys(r, node, "a mapping, for example {resize: [224, 224]}", keys,
                                  ARRAY_LEN(keys), spec);
    if (status || spec->height)
        return status;
    if ((child = trajd_yaml_get(node, "fit")) || (child = trajd_yaml_get(node, "filter")))
        return trajd_yaml_error(r->yaml, child, r->error,
                                "it says how a frame is resized, and there is no resize:");
    return TRAJD_OK;
}

enum trajd_status trajd_image_spec_read_layout(const struct trajd_yaml_reader *r,
                                               const struct trajd_yaml_node *node, void *spec)
{
    static const char *const words[] = {"hwc", "chw", NULL};
    static const struct trajd_yaml_key key = {
        .type = TRAJD_YAML_FLAG, .offset = AT(is_chw), .words = words};

    begin(spec);
    return trajd_yaml_read_key(r, node, &key, spec);
}

/* ---- norm ---- */

bool trajd_image_norm_is(const struct trajd_yaml_node *node)
{
    return node->kind == TRAJD_YAML_SCALAR ? trajd_image_norm_named(node->value) != NULL
                                           : trajd_yaml_get(node, "mean") != NULL;
}

/* Reads one number, or a list with one for each channel. */
static enum trajd_status read_numbers(const struct trajd_yaml_reader *r,
                                      const struct trajd_yaml_node *node, double least,
                                      uint32_t *count, double *numbers)
{
    enum trajd_status status = TRAJD_OK;
    uint32_t i = 0;

    if (node->kind == TRAJD_YAML_SCALAR) {
        status = trajd_yaml_double(r->yaml, node, least, 1e6, numbers, r->error);
        numbers[1] = numbers[2] = numbers[0];
        return status;
    }
    if (node->kind != TRAJD_YAML_SEQUENCE || (node->child_count != 1 && node->child_count != 3))
        return trajd_yaml_error(r->yaml, node, r->error,
                                "expected a number, or a list with one for each channel");
    for (const struct trajd_yaml_node *child = node->children; child && !status;
         child = child->next)
        status = trajd_yaml_double(r->yaml, child, least, 1e6, &numbers[i++], r->error);
    if (i == 1)
        numbers[1] = numbers[2] = numbers[0];
    else
        *count = i;
    return status;
}

enum trajd_status trajd_image_spec_read_norm(const struct trajd_yaml_reader *r,
                                             const struct trajd_yaml_node *node, void *member)
{
    static const char *const keys[] = {"mean", "std", NULL};
    struct trajd_image_spec *spec = member;
    struct trajd_image_norm *norm = &spec->norm;
    enum trajd_status status;

    begin(spec);
    spec->has_norm = true;
    if (node->kind == TRAJD_YAML_SCALAR) {
        *norm = *trajd_image_norm_named(node->value);
        return TRAJD_OK;
    }
    status = trajd_yaml_check_keys(r->yaml, node, keys, r->error);
    if (status)
        return status;
    if (!trajd_yaml_get(node, "std"))
        return trajd_yaml_error(r->yaml, node, r->error,
                                "expected {mean, std} of values from 0 to 1, for example "
                                "{mean: 0.5, std: 0.5}");
    norm->range = TRAJD_IMAGE_UNIT;
    norm->count = 1;
    status = read_numbers(r, trajd_yaml_get(node, "mean"), -1e6, &norm->count, norm->mean);
    return status ? status
                  : read_numbers(r, trajd_yaml_get(node, "std"), 1e-6, &norm->count, norm->std);
}
