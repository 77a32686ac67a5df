#include "daemon/window/transform/preset.h"

#include <stdio.h>

#include "proto/array_len.h"

/* Chunk lengths and norms are the defaults of the trainers' repositories. ACT's script for real
 * robots takes actions from one step before the observation on (action[max(0, ts - 1):]). */
static const struct trajd_preset presets[] = {
    {"openpi", "0..49", "q01_q99", TRAJD_ROTATION_NONE, true, false},
    {"umi", "0..15", NULL, TRAJD_ROTATION_ROT6D, true, true},
    {"gr00t", "0..15", "{by: min_max, per: step}", TRAJD_ROTATION_ROT6D, true, false},
    {"act", "0..99", "{by: mean_std, min_std: 0.01}", TRAJD_ROTATION_NONE, false, false},
    {"act_real", "-1..98", "{by: mean_std, min_std: 0.01}", TRAJD_ROTATION_NONE, false, false},
    {"diffusion_policy", "-1..14", "min_max", TRAJD_ROTATION_ROT6D, false, false},
    {"octo", "0..3", "mean_std", TRAJD_ROTATION_NONE, false, false},
};

enum trajd_status trajd_preset_read(const struct trajd_yaml *yaml,
                                    const struct trajd_yaml_node *node,
                                    const struct trajd_preset **preset, struct trajd_error *error)
{
    int choice;
    const enum trajd_status status = trajd_yaml_choose_row(yaml, node, presets, ARRAY_LEN(presets),
                                                           sizeof presets[0], &choice, error);

    *preset = status ? NULL : &presets[choice];
    return status;
}

enum trajd_status trajd_preset_check(const struct trajd_preset *preset,
                                     const struct trajd_yaml *yaml,
                                     const struct trajd_yaml_node *output,
                                     struct trajd_error *error)
{
    if (preset->needs_relative_to && !trajd_yaml_get(output, "relative_to"))
        return trajd_yaml_error(yaml, output, error,
                                "preset: %s predicts actions relative to a state: name its streams "
                                "with `relative_to:`",
                                preset->name);
    if (preset->needs_rotation && !trajd_yaml_get(output, "rotation"))
        return trajd_yaml_error(
            yaml, output, error,
            "preset: %s predicts poses: say which columns are the rotation, "
            "with `rotation: {from: FORM, columns: \"3:6\", position: \"0:3\"}`",
            preset->name);
    return TRAJD_OK;
}

void trajd_preset_describe(const struct trajd_preset *preset, char *text, size_t size)
{
    char rotation[64] = "", norm[64] = "";

    if (preset->rotation_to)
        snprintf(rotation, sizeof rotation, ", rotation: {to: %s}",
                 trajd_rotation_name(preset->rotation_to));
    if (preset->norm)
        snprintf(norm, sizeof norm, ", norm: %s", preset->norm);
    snprintf(text, size, "at: %s%s%s", preset->at, rotation, norm);
}
