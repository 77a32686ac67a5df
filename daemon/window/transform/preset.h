/* Presets: what well-known trainers do with actions, as the keys of an output. */
#ifndef TRAJD_WINDOW_TRANSFORM_PRESET_H
#define TRAJD_WINDOW_TRANSFORM_PRESET_H

#include "daemon/base/yaml.h"
#include "kernels/transform/rotation_forms.h"

/* Keys that an output has unless it gives them itself. */
struct trajd_preset {
    const char *name;
    const char *at;
    const char *norm;                     /* YAML; NULL: none */
    enum trajd_rotation_form rotation_to; /* of `rotation:` without `to:`; NONE: as recorded */
    bool needs_relative_to, needs_rotation;
};

/* Reads the name of a preset. */
enum trajd_status trajd_preset_read(const struct trajd_yaml *yaml,
                                    const struct trajd_yaml_node *node,
                                    const struct trajd_preset **preset, struct trajd_error *error);
/* Checks that the output has the keys that depend on its streams. */
enum trajd_status trajd_preset_check(const struct trajd_preset *preset,
                                     const struct trajd_yaml *yaml,
                                     const struct trajd_yaml_node *output,
                                     struct trajd_error *error);
/* Writes the keys of a preset: "at: 0..15, rotation: {to: rot6d}". */
void trajd_preset_describe(const struct trajd_preset *preset, char *text, size_t size);

#endif
