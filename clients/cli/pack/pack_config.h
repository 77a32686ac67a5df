/* The value of `trajctl pack --prepare`: which frames are prepared, and how. */
#ifndef TRAJD_CLI_PACK_PACK_CONFIG_H
#define TRAJD_CLI_PACK_PACK_CONFIG_H

#include "clients/cli/pack/pack_file.h"
#include "daemon/window/feed_spec/window_spec.h"

struct trajd_config;

struct pack_config {
    struct trajd_config *config;    /* owned; the preparations borrow from it */
    const char *layout;             /* of the feed's dataset; NULL with a preset or size */
    enum trajd_image_color color;   /* of the same; TRAJD_COLOR_DEPTH: not given */
    const char *media_folder;       /* of the same; NULL: not given */
    struct trajd_image_spec preset; /* or a size */
    uint32_t count;
    struct pack_preparation preparations[TRAJD_SPEC_MAX_OUTPUTS];
};

/* Reads "CONFIG[:FEED[:DATASET]]": the outputs of a feed of a configuration, as they are for one
 * dataset of a mixture. FEED may be left out where there is one feed, DATASET where the feed has one.
 * Or reads "HEIGHTxWIDTH" or the name of a preset, for all cameras. TRAJD_ERR_ARGUMENT or TRAJD_ERR_NOT_FOUND with the
 * choices. */
enum trajd_status pack_config_read(const char *value, struct pack_config *config,
                                   struct trajd_error *error);
void pack_config_free(struct pack_config *config);

#endif
