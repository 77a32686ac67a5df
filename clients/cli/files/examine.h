/* Finds faults in files: what the index refused, and what the rows themselves show. */
#ifndef TRAJD_CLI_FILES_EXAMINE_H
#define TRAJD_CLI_FILES_EXAMINE_H

#include <stdint.h>
#include <stdio.h>

#include "clients/cli/files/cli_files.h"
#include "proto/error.h"

/* The rules. `--ignore` takes their names. */
enum examine_rule {
    EXAMINE_REFUSED, /* no episode can be read from the file */
    /* the episode is left out: its stamps repeat or go back, its shapes differ, ... */
    EXAMINE_QUARANTINED,
    /* An HDF5 dataset that only optional streams need cannot be read; or a file was found under a
     * second name. */
    EXAMINE_LEFT_OUT,
    EXAMINE_ASSUMED_RATE, /* nothing states the rate of a clock, and the layout assumes one */
    EXAMINE_STAMPS,       /* the layout's policy for repeated or backward stamps drops rows */
    /* intervals of more than 1.75 times the clock's median: dropped frames */
    EXAMINE_GAPS,
    EXAMINE_ENDS_EARLY, /* a stream stops more than 3 median intervals before its episode ends */
    /* encoded frames that are empty, damaged, or of another size than the first; raw frames that are
     * all zeros */
    EXAMINE_FRAMES,
    EXAMINE_UNREADABLE, /* rows cannot be read */
    EXAMINE_NOT_FINITE, /* NaN or infinite elements */
    EXAMINE_NOT_UNIT,   /* quaternions whose length differs from 1 by more than 0.001 */
    /* A quaternion is followed by nearly its negative. Both are the same rotation, but an average
     * of them is wrong. */
    EXAMINE_SIGN_FLIPS,
    EXAMINE_CONSTANT, /* a column has one value in all episodes */
    EXAMINE_IDLE,     /* at least half of the rows equal the row before */
    /* The layout has a kind for these columns that blends quaternions as plain numbers. */
    EXAMINE_QUATERNIONS,
    /* The same for angles that wrap: a column jumps from one end of a full turn to the other. */
    EXAMINE_ANGLES,
    EXAMINE_MASKS,      /* a mask of training and its mask of validation list the same episode */
    EXAMINE_DRIFT,      /* the times of two clocks of an episode run apart */
    EXAMINE_DUPLICATES, /* an episode nearly repeats an earlier one */
    EXAMINE_STUCK,      /* the frames of a camera are equal while joints move */
    EXAMINE_LAG,        /* the frames of a camera show the motion of the joints late, or early */
    EXAMINE_RULE_COUNT,
};
extern const char *const examine_rule_names[EXAMINE_RULE_COUNT + 1]; /* NULL-terminated */

struct examine_finding {
    enum examine_rule rule;
    /* relative path, id and name; NULL if the finding is about several */
    const char *file, *episode, *stream;
    /* the first such row of the array; -1: no specific row */
    int64_t row;
    uint64_t count;   /* of such rows, or 1 */
    const char *text; /* for people; valid during the call */
};

/* Returns a finding of `count` rows, of which none is known, about a stream, a clock or NULL of an
 * episode. */
static inline struct examine_finding examine_at(const struct trajd_index *index,
                                                enum examine_rule rule,
                                                const struct trajd_episode *episode,
                                                const char *stream, uint64_t count)
{
    const char *file = index->files[episode->file_index].relative_path;

    return (struct examine_finding){rule, file, episode->id, stream, -1, count, NULL};
}

/* Where findings of pairs begin. */
struct examine_limits {
    /* the words with which the names of masks end */
    const char *train, *valid;
    /* of two clocks, in ppm, and the shortest time over which it is measured */
    double drift_ppm;
    int64_t drift_time_ns;
    /* episodes: the percentage of rows that are near, and how many median changes from row to row
     * that is */
    double duplicate_rows, duplicate_changes;
    /* cameras: how long frames are equal, and at which percentage of its mean speed a stream moves */
    int64_t stuck_time_ns;
    double stuck_motion;
    /* the lag as a part of the interval of frames, and the least correlation */
    double lag_frames, lag_correlation;
};

/* What is examined, and who hears of it. The caller zeroes the members after `context`. */
struct examiner {
    const struct trajd_index *index;
    const struct examine_limits *limits; /* NULL: only for examine_index */
    void (*report)(void *context, const struct examine_finding *finding);
    void *context;
    struct trajd_array_reader *reader; /* while examine_index runs */
    struct trajd_encoded_reader *encoded;
};

/* Reports each finding, in the order of files, episodes and streams. Reads all rows once, in blocks of
 * a few MiB. Data that cannot be read is a finding. TRAJD_ERR_IO: the storage failed, so nothing is
 * known about the rows. TRAJD_ERR_MEMORY. */
enum trajd_status examine_index(struct examiner *examiner, struct trajd_error *error);

/* Reports masks that share an episode, clocks of an episode that run apart, and episodes that nearly
 * repeat an earlier one. Reads the first rows of each episode, and further rows of those that begin
 * alike. TRAJD_ERR_IO, TRAJD_ERR_DATA: rows cannot be read. TRAJD_ERR_MEMORY. */
enum trajd_status examine_pairs(const struct examiner *examiner, struct trajd_error *error);

/* Compares the changes of a camera's frames in an episode (frames/frame_check.h) with the motion of
 * all streams of numbers. Errors as of examine_pairs. */
enum trajd_status examine_motion(const struct examiner *examiner,
                                 const struct trajd_episode *episode,
                                 const struct trajd_index_stream *stream, const float *changes,
                                 struct trajd_error *error);

/* ---- idle rows: stretches in which nothing moves ---- */

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
