/* What the output says of all its episodes: masks, the new rate, and whence it comes. */
#ifndef TRAJD_CLI_RESAMPLE_CONVERT_SUMMARY_H
#define TRAJD_CLI_RESAMPLE_CONVERT_SUMMARY_H

#include "clients/cli/resample/convert_child.h"

/* The path of an episode's group in the output; "/" for one episode a file. */
void convert_episode_path(const struct trajd_index *index, const char *id, char *path, size_t size);

/* The lists of episodes by filter key, where the layout has some. Both fail as convert_child.h
 * says. */
enum trajd_status convert_summary_send_masks(struct convert_child *child);
/* Rates, counts and provenance; the child then ends the file. */
enum trajd_status convert_summary_send(struct convert_child *child);

#endif
