/* Reads `augment:`, a list of steps, and which frames share a draw. */
#include <string.h>

#include "daemon/window/picture/picture_internal.h"

#define MAX_DEGREES 180.0
#define MAX_FACTOR 100.0

/* The keys that a step may have beside its kind. */
struct step_keys {
    enum trajd_augment_kind kind;
    const char *keys[7];
};

static const struct step_keys steps[] = {
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

struct reader {
    const struct trajd_yaml *yaml;
    struct trajd_error *error;
};

/* Reads [LOW, HIGH]. */
static enum trajd_status read_range(const struct reader *r, const struct trajd_yaml_node *node,
                                    double least, double most, struct trajd_augment_range *range)
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
static enum trajd_status read_factor(const struct reader *r, const struct trajd_yaml_node *node,
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
static enum trajd_status read_size(const struct reader *r, const struct trajd_yaml_node *node,
                                   struct trajd_augment_step *step, double *share)
{
    if (node->kind == TRAJD_YAML_SCALAR && !strcmp(node->value, "back")) {
        *share = 1;
        return TRAJD_OK;
    }
    if (node->kind == TRAJD_YAML_SCALAR && strchr(node->value, '.'))
        return trajd_yaml_double(r->yaml, node, 1e-3, 1, share, r->error);
    return trajd_picture_read_size(r->yaml, node, &step->height, &step->width, r->error);
}

/* Reads the value under the name of the kind. */
static enum trajd_status read_main(const struct reader *r, const struct trajd_yaml_node *node,
                                   struct trajd_augment_step *step, double *share)
{
    switch (step->kind) {
    case TRAJD_AUGMENT_CROP:
    case TRAJD_AUGMENT_RESIZE:
    case TRAJD_AUGMENT_RESIZED_CROP:
        return read_size(r, node, step, share);
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

static enum trajd_status read_box(const struct reader *r, const struct trajd_yaml_node *node,
                                  enum trajd_augment_box *box)
{
    static const char *const words[] = {"pixels", "tf", NULL};
    int choice = 0;
    const enum trajd_status status = trajd_yaml_choice(r->yaml, node, words, &choice, r->error);

    *box = (enum trajd_augment_box)choice;
    return status;
}

/* Reads a key beside the kind. */
static enum trajd_status read_key(const struct reader *r, const struct trajd_yaml_node *node,
                                  struct trajd_augment_step *step)
{
    struct trajd_augment_range shares;
    enum trajd_status status;
    int filter;

    if (!strcmp(node->key, "p") && node->kind == TRAJD_YAML_SCALAR &&
        !strcmp(node->value, "same")) {
        step->follows = true;
        return TRAJD_OK;
    }
    if (!strcmp(node->key, "p"))
        return trajd_yaml_double(r->yaml, node, 0, 1, &step->probability, r->error);
    if (!strcmp(node->key, "excludes_last"))
        return trajd_yaml_bool(r->yaml, node, &step->excludes_last, r->error);
    if (!strcmp(node->key, "scale"))
        return read_range(r, node, 1e-3, MAX_FACTOR, &step->scale);
    if (!strcmp(node->key, "ratio"))
        return read_range(r, node, 1e-2, MAX_FACTOR, &step->ratio);
    if (!strcmp(node->key, "box"))
        return read_box(r, node, &step->box);
    if (!strcmp(node->key, "translate")) { /* [down, right] */
        if (node->kind != TRAJD_YAML_SEQUENCE || node->child_count != 2)
            return trajd_yaml_error(r->yaml, node, r->error,
                                    "expected [DOWN, RIGHT], shares of the sides");
        status = trajd_yaml_double(r->yaml, node->children, 0, 1, &shares.low, r->error);
        if (!status)
            status = trajd_yaml_double(r->yaml, node->children->next, 0, 1, &shares.high, r->error);
        step->translate_y = status ? 0 : shares.low;
        step->translate_x = status ? 0 : shares.high;
        return status;
    }
    status = trajd_picture_read_filter(r->yaml, node, &filter, r->error);
    step->filter = status ? step->filter : (enum trajd_image_filter)filter;
    return status;
}

static enum trajd_status read_step(const struct reader *r, const struct trajd_yaml_node *node,
                                   struct trajd_augment_step *step, double *share)
{
    const struct step_keys *found = NULL;
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
        status = strcmp(child->key, found->keys[0]) ? read_key(r, child, step)
                                                    : read_main(r, child, step, share);
    return status;
}

enum trajd_status trajd_picture_read_augment(const struct trajd_yaml *yaml,
                                             const struct trajd_yaml_node *node,
                                             struct trajd_picture_spec *spec,
                                             struct trajd_error *error)
{
    const struct reader reader = {yaml, error};
    struct trajd_augment *augment = &spec->augment;
    enum trajd_status status = TRAJD_OK;

    if (node->kind != TRAJD_YAML_SEQUENCE || node->child_count > TRAJD_AUGMENT_STEPS_MAX)
        return trajd_yaml_error(yaml, node, error, "expected a list of up to %d steps",
                                TRAJD_AUGMENT_STEPS_MAX);
    augment->count = 0;
    memset(spec->shares, 0, sizeof spec->shares);
    for (const struct trajd_yaml_node *child = node->children; child && !status;
         child = child->next) {
        const uint32_t i = augment->count++;
        status = read_step(&reader, child, &augment->steps[i], &spec->shares[i]);
        if (status || !augment->steps[i].follows)
            continue;
        if (!i)
            return trajd_yaml_error(
                yaml, child, error,
                "p: same repeats the choice of the step before it, and this is the "
                "first step");
        augment->steps[i].probability = augment->steps[i - 1].probability;
    }
    return status;
}
