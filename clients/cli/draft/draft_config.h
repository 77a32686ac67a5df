/* Writes a first configuration: datasets, and a feed for each. */
#ifndef TRAJD_CLI_DRAFT_DRAFT_CONFIG_H
#define TRAJD_CLI_DRAFT_DRAFT_CONFIG_H

#include <stdio.h>

#include "clients/cli/draft/draft_trainer.h"
#include "daemon/index/index.h"

/* A dataset of the configuration. All is borrowed. */
struct config_dataset {
    const char *name;
    const char *path;
    const char *layout; /* its name, or the path of its file */
    const struct trajd_index *index;
    /* RGB or BGR: the key `color`. UNDECIDED: the user must choose. TRAJD_COLOR_DEPTH: no key is
     * needed */
    enum trajd_picture_color color;
    const char *color_source; /* the raw file, or the image of both readings; NULL: there is none */
};

/* Writes the configuration. With several datasets each has a feed of its own, train_NAME. */
void config_write(FILE *out, const struct config_dataset *datasets, uint32_t count,
                  const struct config_preset *preset);

/* Of draft_outputs.c. */

/* Returns whether the stream is named as actions are. */
bool config_is_action(const struct trajd_index_stream *stream);

/* Writes "20 Hz", "20 Hz (assumed)", "100 Hz (measured)", or "" where the clock has no rate. */
void config_write_rate(const struct trajd_index *index, uint32_t clock,
                       char text[TRAJD_RATES_TEXT_SIZE]);

/* Returns the mean rate of a clock over the first kept episode with at least two rows, or 0. */
double config_mean_rate_hz(const struct trajd_index *index, uint32_t clock);

/* Returns the stream that the policy predicts, as far as names show it, or NULL. */
const struct trajd_index_stream *config_find_action(const struct trajd_index *index);

/* Writes a line for each stream, below `outputs:`. anchor: the clock of the anchors. Returns about
 * how many bytes a window takes. */
uint64_t config_write_outputs(FILE *out, const struct trajd_index *index, uint32_t anchor,
                              const struct config_preset *preset);

#endif
