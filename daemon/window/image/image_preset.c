/* The presets of `image:`, and their keys. */
#include "daemon/window/image/image_preset.h"

#include <string.h>

#include "proto/array_len.h"

struct trajd_image_preset {
    const char *name;
    const char *keys;  /* YAML */
    const char *wrist; /* the keys of a wrist camera; NULL: all cameras are alike */
    const char *note;  /* where trajd differs from the trainer */
};

#define SHUFFLED "the trainer shuffles the colour steps in each call, here they stay in this order"

/* its preprocess_base_action and EpisodicDataset */
#define BASE_ACTION                                                                                \
    "the trainer averages base_action over 5 rows, with zeros outside the episode, and where "     \
    "there "                                                                                       \
    "is none its actions end with 2 columns of zeros; here both are as recorded"

/* The keys are the defaults of the trainers' repositories. tests/tools/preset_vectors.py records
 * what their code makes of frames. */
static const struct trajd_image_preset presets[] = {
    {"robomimic",
     "{image: {augment: [{crop: 0.90625, excludes_last: true}], draw_per: frame}, layout: chw, "
     "norm: unit}",
     NULL, NULL},
    {"act", "{image: {}, layout: chw, norm: imagenet}", NULL, NULL},
    {"act++", "{image: {channels: cv2}, layout: chw, norm: imagenet}", NULL,
     "channels: cv2 gives encoded frames in the order of its cv2.imdecode, whatever color: is; "
     "with policy_class Diffusion it is act++_diffusion; " BASE_ACTION},
    {"act++_diffusion",
     "{image: {channels: cv2, augment: [{crop: 0.95}, {resize: back}, {affine: 5}, {brightness: "
     "0.3}, {contrast: 0.4}, {saturation: 0.5}], draw_per: step, rounding: each}, layout: chw, "
     "norm: unit}",
     NULL, SHUFFLED "; " BASE_ACTION},
    {"diffusion_policy",
     "{image: {resize: [240, 320], fit: cover, filter: area, augment: [{crop: [216, 288], "
     "excludes_last: true}], draw_per: frame}, layout: chw, norm: signed-imagenet}",
     NULL,
     "this is its real robot; for frames of 84x84 it is preset: robomimic with norm: "
     "signed-imagenet"},
    {"umi",
     "{image: {resize: [224, 224], fit: cover, filter: area, augment: [{crop: 0.95}, {resize: "
     "back}, {brightness: 0.3}, {contrast: 0.4}, {saturation: 0.5}, {hue: 0.08}], draw_per: "
     "camera}, layout: chw, norm: unit}",
     NULL, "the trainer draws once for a camera of a whole batch, here for each window; " SHUFFLED},
    {"openpi",
     "{image: {resize: [224, 224], fit: pad, augment: [{affine: 5, translate: [0.0283019, "
     "0.0283019], scale: [1.0566038, 1.0566038], filter: linear}, {hsv_brightness: 0.3, p: 0.5}, "
     "{hsv_contrast: 0.4, p: same}, {hue: 0.1, p: same}], draw_per: step}, layout: hwc, norm: "
     "signed}",
     "{image: {resize: [224, 224], fit: pad, augment: [{hsv_brightness: 0.3, p: 0.5}, "
     "{hsv_contrast: 0.4, p: same}, {hue: 0.1, p: same}], draw_per: step}, layout: hwc, norm: "
     "signed}",
     "the trainer moves its crop by parts of a pixel, here by whole pixels. The affine step is "
     "augmax's crop, resize and turn in one; augmax's saturation changes nothing, and its hue is "
     "on by default"},
    {"openpi_torch",
     "{image: {resize: [224, 224], fit: pad, augment: [{crop: 0.95}, {resize: back, filter: "
     "linear}, {affine: 5, scale: [0.9955357, 0.9955357], filter: linear}, {brightness: 0.3}, "
     "{flat_contrast: 0.4}, {flat_saturation: 0.5}], draw_per: camera, rounding: end}, layout: "
     "chw, norm: signed}",
     "{image: {resize: [224, 224], fit: pad, augment: [{brightness: 0.3}, {flat_contrast: 0.4}, "
     "{flat_saturation: 0.5}], draw_per: camera, rounding: end}, layout: chw, norm: signed}",
     "the trainer draws once for a camera of a whole batch, here for each window"},
    {"lerobot_act", "{image: {}, layout: chw, norm: imagenet}", NULL,
     "its image_transforms, off by default, are not in it"},
    {"gr00t",
     "{image: {augment: [{crop: 0.95}, {resize: [224, 224]}, {brightness: 0.3}, {contrast: 0.4}, "
     "{saturation: 0.5}, {hue: 0.08}], draw_per: window}, layout: hwc}",
     NULL, "the trainer rounds its uint8 down, here to the nearest; " SHUFFLED},
    {"octo",
     "{image: {resize: [256, 256], filter: tf-lanczos3, augment: [{random_resized_crop: back, "
     "scale: [0.8, 1], ratio: [0.9, 1.1], box: tf, filter: linear}, {shift: 0.1}, "
     "{channel_contrast: 0.1}, {hsv_saturation: 0.1}, {hue: 0.05}], draw_per: camera}, layout: "
     "hwc}",
     "{image: {resize: [128, 128], filter: tf-lanczos3, augment: [{shift: 0.1}, "
     "{channel_contrast: 0.1}, {hsv_saturation: 0.1}, {hue: 0.05}], draw_per: camera}, layout: "
     "hwc}",
     "the trainer takes all parameters of a frame from one random number, here each is drawn; its "
     "image_dropout is not in it"},
};

static enum trajd_status read_name(const struct trajd_yaml *yaml,
                                   const struct trajd_yaml_node *node,
                                   struct trajd_image_spec *spec, struct trajd_error *error)
{
    int choice;
    const enum trajd_status status = trajd_yaml_choose_row(yaml, node, presets, ARRAY_LEN(presets),
                                                           sizeof presets[0], &choice, error);

    spec->preset = status ? NULL : &presets[choice];
    return status;
}

static enum trajd_status read_view(const struct trajd_yaml *yaml,
                                   const struct trajd_yaml_node *node,
                                   struct trajd_image_spec *spec, struct trajd_error *error)
{
    static const char *const words[] = {"scene", "wrist", NULL};
    int choice = 0;
    const enum trajd_status status = trajd_yaml_choice(yaml, node, words, &choice, error);

    spec->is_wrist = choice == 1;
    if (!status && !spec->preset)
        return trajd_yaml_error(yaml, node, error,
                                "view: chooses between the keys of a preset, "
                                "and there is no preset:");
    if (!status && spec->is_wrist && !spec->preset->wrist)
        return trajd_yaml_error(yaml, node, error,
                                "preset: %s takes all cameras alike: remove view: wrist",
                                spec->preset->name);
    return status;
}

/* Sets the keys of a preset. */
static enum trajd_status apply(const char *keys, bool has_layout, bool has_norm,
                               struct trajd_image_spec *spec, struct trajd_error *error)
{
    struct trajd_yaml *yaml;
    const struct trajd_yaml_node *root, *norm;
    enum trajd_status status = trajd_yaml_parse("preset", keys, strlen(keys), &yaml, error);
    const struct trajd_yaml_reader reader = {yaml, error, NULL};

    if (status)
        return status;
    root = trajd_yaml_root(yaml);
    status = trajd_image_spec_read(&reader, trajd_yaml_get(root, "image"), spec);
    if (!status && !has_layout)
        status = trajd_image_spec_read_layout(&reader, trajd_yaml_get(root, "layout"), spec);
    norm = trajd_yaml_get(root, "norm");
    if (!status && norm && !has_norm)
        status = trajd_image_spec_read_norm(&reader, norm, spec);
    trajd_yaml_destroy(&yaml);
    return status;
}

enum trajd_status trajd_image_preset_read(const struct trajd_yaml *yaml,
                                          const struct trajd_yaml_node *output,
                                          struct trajd_image_spec *spec, struct trajd_error *error)
{
    const struct trajd_yaml_node *image = trajd_yaml_get(output, "image");
    const bool is_mapping = image && image->kind == TRAJD_YAML_MAPPING;
    const struct trajd_yaml_node *preset = is_mapping ? trajd_yaml_get(image, "preset") : NULL;
    const struct trajd_yaml_node *view = is_mapping ? trajd_yaml_get(image, "view") : NULL;
    enum trajd_status status = TRAJD_OK;

    if (preset)
        status = read_name(yaml, preset, spec, error);
    if (!status && view)
        status = read_view(yaml, view, spec, error);
    if (status || !preset)
        return status;
    return apply(trajd_image_preset_keys(spec), trajd_yaml_get(output, "layout"),
                 trajd_yaml_get(output, "norm"), spec, error);
}

const char *trajd_image_preset_name(const struct trajd_image_spec *spec)
{
    return spec->preset->name;
}

const char *trajd_image_preset_keys(const struct trajd_image_spec *spec)
{
    return spec->is_wrist ? spec->preset->wrist : spec->preset->keys;
}

const char *trajd_image_preset_note(const struct trajd_image_spec *spec)
{
    return spec->preset->note;
}
