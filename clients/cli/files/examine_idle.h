/* Idle rows, for `trajctl validate`: stretches in which nothing moves, and the rows around them as a
 * file for `ranges:` of a feed. */
#ifndef TRAJD_CLI_FILES_EXAMINE_IDLE_H
#define TRAJD_CLI_FILES_EXAMINE_IDLE_H

#include <stdbool.h>
#include <stdio.h>

#include "daemon/index/index.h"

/* in elements; wider rows are images and the like, compared only as bytes */
#define EXAMINE_WIDEST_ROW 4096

/* Returns whether rows that repeat the row before mean that nothing moves. A narrow stream of kind
 * previous holds its value by design. */
bool examine_repeats_are_idle(const struct trajd_index_stream *stream);

/* Returns whether the stream has numbers that tell what moved: narrow rows, and not those of commands,
 * which are held. */
bool examine_is_motion(const struct trajd_index_stream *stream);

/* A row is still if in none of the streams an element differs by more than `tolerance` from the row
 * before. Still rows that follow each other are idle if the time from the row before them to the
 * last of them is at least `length_ns`. */
struct examine_idle_rule {
    const char *streams; /* "NAME,NAME"; NULL: all narrow streams whose repeats are idle */
    double tolerance;
    int64_t length_ns;
};

struct examine_idle_counts {
    uint64_t rows, idle_rows;
    uint32_t episodes, idle_episodes; /* kept, and those of them with idle rows */
};

/* Writes {"FILE:EPISODE": [[begin, end], ...], ...}: the rows of each kept episode that are not
 * idle, as rows of the clock of the streams. TRAJD_ERR_ARGUMENT where a stream does not exist, is
 * encoded, or the streams have several clocks. TRAJD_ERR_IO and TRAJD_ERR_DATA where rows cannot be
 * read. The caller checks the stream `out`. */
enum trajd_status examine_idle_write(const struct trajd_index *index,
                                     const struct examine_idle_rule *rule, FILE *out,
                                     struct examine_idle_counts *counts, struct trajd_error *error);

#endif
