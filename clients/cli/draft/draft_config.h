/* Writes a first configuration: datasets, and a feed for each. */
#ifndef TRAJD_CLI_DRAFT_DRAFT_CONFIG_H
#define TRAJD_CLI_DRAFT_DRAFT_CONFIG_H

#include <stdio.h>

#include "daemon/index/index.h"

/* The windows of a trainer. */
struct config_preset {
    const char *name;
    const char *observations, *actions; /* steps */
    const char *pad;
    const char *norm;    /* of what is no picture; NULL: none */
    const char *windows; /* NULL: each row */
};

/* Returns the preset; for NULL one that suits most trainers. Returns NULL, with the error, for
 * another name. */
const struct config_preset *config_preset_find(const char *name, struct trajd_error *error);

/* A dataset of the configuration. All is borrowed. */
struct config_dataset {
    const char *name;
    const char *path;
    const char *layout; /* its name, or the path of its file */
    const struct trajd_index *index;
};

/* Writes the configuration. With several datasets each has a feed of its own, train_NAME. */
void config_write(FILE *out, const struct config_dataset *datasets, uint32_t count,
                  const struct config_preset *preset);

#endif
