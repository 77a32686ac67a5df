/* The keys `rotation:` and `relative_to:` of an output: parsed and checked by their own rules.
 * chain.h resolves them on the streams of a dataset. Also `preset:`: what well-known trainers do
 * with actions, as the keys of an output. */
#ifndef TRAJD_WINDOW_TRANSFORM_CHAIN_SPEC_H
#define TRAJD_WINDOW_TRANSFORM_CHAIN_SPEC_H

#include "daemon/base/yaml.h"
#include "kernels/transform/transform.h"

enum { TRAJD_CHAIN_MAX_ROTATIONS = 16 };

/* `{from: axis_angle, to: rot6d, columns: "3:6", position: "0:3"}` */
struct trajd_chain_rotation {
    enum trajd_rotation_form from, to;
    uint32_t first, end; /* columns of the output before the transform; 0, 0: not given */
    uint32_t position_first, position_end; /* columns of its position; 0, 0: none */
};

/* All bytes count for fingerprints: begin with zeros, and set fields. */
struct trajd_chain_spec {
    uint32_t rotation_count;
    struct trajd_chain_rotation rotations[TRAJD_CHAIN_MAX_ROTATIONS];
    bool is_relative;
    bool from_step_before;
    bool has_kind; /* relative_to.kind is given */
    enum trajd_frame frame;
    enum trajd_rotation_form default_to;     /* of rotations that are still to be read; else NONE */
    enum trajd_rotation_form reference_form; /* of the reference's rotations; NONE: not given */
    uint32_t mask_count;                     /* 0: all columns are relative */
    bool mask[TRAJD_TRANSFORM_MAX_COLUMNS];
};

/* Reads `rotation:`, one mapping or a list of them. */
enum trajd_status trajd_chain_read_rotations(const struct trajd_yaml_reader *r,
                                             const struct trajd_yaml_node *node,
                                             struct trajd_chain_spec *chain);
/* Reads `relative_to:` but for its streams: a stream, a list of them, or a mapping. */
enum trajd_status trajd_chain_read_relative(const struct trajd_yaml_reader *r,
                                            const struct trajd_yaml_node *node,
                                            struct trajd_chain_spec *chain);

/* Keys that an output has unless it gives them itself. */
struct trajd_preset {
    const char *name;
    const char *at;
    const char *norm;                     /* YAML */
    const char *norm_of_poses;            /* where the output has `rotation:`; NULL: the same */
    const char *norm_of_1;                /* in version 1 of the configuration; NULL: the same */
    enum trajd_rotation_form rotation_to; /* of `rotation:` without `to:`; NONE: as recorded */
    bool needs_relative_to, needs_rotation;
    const char *note; /* for the user; NULL: none */
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
/* Returns `norm:` of a preset as YAML, in a configuration of that version. */
const char *trajd_preset_norm(const struct trajd_preset *preset, bool has_rotation,
                              uint32_t version);
/* Writes the keys of a preset: "at: 0..15, rotation: {to: rot6d}, norm: none". */
void trajd_preset_describe(const struct trajd_preset *preset, bool has_rotation, uint32_t version,
                           char *text, size_t size);

#endif
