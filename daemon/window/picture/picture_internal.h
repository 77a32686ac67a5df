/* Shared by the files of this folder. picture_augment.c uses what picture_spec.c reads for both. */
#ifndef TRAJD_WINDOW_PICTURE_INTERNAL_H
#define TRAJD_WINDOW_PICTURE_INTERNAL_H

#include "daemon/window/picture/picture_spec.h"

/* ---- picture_values.c ---- */

/* Reads "[HEIGHT, WIDTH]", or one number for both. */
enum trajd_status trajd_picture_read_size(const struct trajd_yaml *yaml,
                                          const struct trajd_yaml_node *node, uint32_t *height,
                                          uint32_t *width, struct trajd_error *error);
enum trajd_status trajd_picture_read_side(const struct trajd_yaml *yaml,
                                          const struct trajd_yaml_node *node, int64_t least,
                                          uint32_t *side, struct trajd_error *error);
/* Reads the name of a filter. */
enum trajd_status trajd_picture_read_filter(const struct trajd_yaml *yaml,
                                            const struct trajd_yaml_node *node, int *filter,
                                            struct trajd_error *error);

/* ---- picture_augment.c ---- */

/* Reads `augment:`, a list of steps. */
enum trajd_status trajd_picture_read_augment(const struct trajd_yaml *yaml,
                                             const struct trajd_yaml_node *node,
                                             struct trajd_picture_spec *spec,
                                             struct trajd_error *error);

#endif
