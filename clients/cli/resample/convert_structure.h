/* What the output holds beside rows: its datasets and episodes, masks, rates, and provenance. These
 * functions describe the plan to the helper program that writes the output. */
#ifndef TRAJD_CLI_RESAMPLE_CONVERT_STRUCTURE_H
#define TRAJD_CLI_RESAMPLE_CONVERT_STRUCTURE_H

#include "clients/cli/resample/convert_writer.h"
#include "clients/cli/resample/plan/convert_plan.h"

/* Writes the path of an episode's group in the output. It is "/" if the layout has one episode a
 * file. An episode that is cut out of longer arrays has a group of its own below theirs. */
void convert_episode_path(const struct trajd_index *index, const char *id, char *path, size_t size);

struct convert_structure {
    struct convert_writer *writer;
    const struct convert_plan *plan;
    uint32_t sent; /* episodes */
};

/* Errors of these functions are those of convert_writer.h, and TRAJD_ERR_IO where an input cannot
 * be opened. */

/* Begins the output `fd`, and sends the datasets and the first episodes. */
enum trajd_status convert_structure_begin(struct convert_structure *structure, int fd);
/* Sends episodes until that of the number is sent: its rows can follow. */
enum trajd_status convert_structure_reach(struct convert_structure *structure, uint32_t episode);
/* Sends the other episodes and what the file states about all of them, and waits until the file is
 * closed. */
enum trajd_status convert_structure_end(struct convert_structure *structure);

#endif
