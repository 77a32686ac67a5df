/* What the output states about all its episodes: masks, the new rate, and its provenance. */
#ifndef TRAJD_CLI_RESAMPLE_CONVERT_SUMMARY_H
#define TRAJD_CLI_RESAMPLE_CONVERT_SUMMARY_H

#include "clients/cli/resample/convert_child.h"

/* Writes the path of an episode's group in the output. It is "/" if the layout has one episode a
 * file. */
void convert_episode_path(const struct trajd_index *index, const char *id, char *path, size_t size);

/* Sends the lists of episodes of each filter key, if the layout has any. Errors are those of
 * convert_child.h. */
enum trajd_status convert_summary_send_masks(struct convert_child *child);
/* Sends rates, counts and provenance, and waits until the child has closed the file. Errors are
 * those of convert_child.h. */
enum trajd_status convert_summary_send(struct convert_child *child);

#endif
