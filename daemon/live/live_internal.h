/* Shared by the files of this folder. */
#ifndef TRAJD_LIVE_LIVE_INTERNAL_H
#define TRAJD_LIVE_LIVE_INTERNAL_H

#include "daemon/live/live_description.h"

/* Returns why an output is not part of an observation; NULL: it is. */
const char *trajd_live_left_out(const struct trajd_window_plan *plan, uint32_t output_index);
/* Returns the pictures of an output, or NULL. Write them, and the type and shape of their tensor. */
const struct trajd_plan_picture *trajd_live_picture(const struct trajd_window_plan *plan,
                                                    uint32_t output_index);
void trajd_live_write_picture(const struct trajd_plan_picture *picture, struct trajd_json *json);
void trajd_live_write_picture_shape(const struct trajd_plan_output *output,
                                    const struct trajd_image_finish *finish,
                                    struct trajd_json *json);
/* Returns the steps of an output. They are the same for all its sources, except for the rule. */
const struct trajd_plan_grid *trajd_live_grid(const struct trajd_window_plan *plan,
                                              uint32_t output_index);

#endif
