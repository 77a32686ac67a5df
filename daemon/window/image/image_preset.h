/* Presets: what well-known trainers do with images, as the keys of an output. */
#ifndef TRAJD_WINDOW_IMAGE_PRESET_H
#define TRAJD_WINDOW_IMAGE_PRESET_H

#include "daemon/window/image/image_spec.h"

/* Reads `preset:` and `view:` of an output that has them under `image:`, and sets the keys of the
 * preset: those of `image:`, then `layout:` and `norm:`. Call it before the output's own keys are
 * read, which go first. TRAJD_ERR_ARGUMENT with line and key. */
enum trajd_status trajd_image_preset_read(const struct trajd_yaml *yaml,
                                          const struct trajd_yaml_node *output,
                                          struct trajd_image_spec *spec, struct trajd_error *error);

/* Return the name of a specification's preset; its keys, "{image: {...}, layout: chw, norm: unit}";
 * and where trajd differs from the trainer, or NULL. */
const char *trajd_image_preset_name(const struct trajd_image_spec *spec);
const char *trajd_image_preset_keys(const struct trajd_image_spec *spec);
const char *trajd_image_preset_note(const struct trajd_image_spec *spec);

#endif
