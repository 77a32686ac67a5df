/* What the files that examine an index share. Private to them. */
#ifndef TRAJD_CLI_FILES_EXAMINE_INTERNAL_H
#define TRAJD_CLI_FILES_EXAMINE_INTERNAL_H

#include "clients/cli/files/examine.h"
#include "daemon/index/rows/encoded.h"
#include "daemon/index/rows/packed_video.h"

struct examiner {
    const struct trajd_index *index;
    struct trajd_array_reader *reader;
    struct trajd_encoded_reader *encoded;
    void (*report)(void *context, const struct examine_finding *finding);
    void *context;
};

/* Reports a finding with this text. */
void examine_report(struct examiner *examiner, const struct examine_finding *base,
                    const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Returns the time of a row of a clock from the origin of its episode. */
static inline int64_t examine_row_ns(const struct trajd_episode_clock *clock, int64_t row)
{
    return clock->stamps_ns ? clock->stamps_ns[row]
                            : clock->start_ns + trajd_rate_row_ns(clock->rate, row);
}

/* ---- examine_rows.c ---- */

/* Reads rows of streams as numbers. One file at a time is open. */
struct examine_rows {
    struct episode_file file;
    struct trajd_array_reader *reader;
    uint8_t *bytes;
    double *values; /* of the rows read last: [count][feature_count] */
};

enum { EXAMINE_BLOCK_ROWS = 64 }; /* that are read at a time */

/* TRAJD_ERR_MEMORY. The rows are closed in any case. */
enum trajd_status examine_rows_open(struct examine_rows *rows, const struct trajd_index *index,
                                    struct trajd_error *error);
/* Reads EXAMINE_BLOCK_ROWS rows of the stream's array from `begin` on, or as many as there are;
 * *count becomes their number. Errors are those of trajd_array_read; TRAJD_ERR_ARGUMENT: they are
 * not numbers. */
enum trajd_status examine_rows_read(struct examine_rows *rows, const struct trajd_episode *episode,
                                    const struct trajd_index_stream *stream, uint64_t begin,
                                    uint64_t *count, struct trajd_error *error);
void examine_rows_close(struct examine_rows *rows);
/* Returns how far two rows are apart. Columns that are equal, or NaN in both, are not. */
double examine_distance(const double *row, const double *other, uint64_t columns);
/* Returns the status if the storage failed. Damaged rows are findings of examine_index; what else
 * looks at rows leaves them out. */
enum trajd_status examine_rows_failure(enum trajd_status status, const struct trajd_error *error);

/* ---- examine_clocks.c ---- */

/* Report what the index refused, quarantined and left out, and rates that are assumed. */
void examine_refusals(struct examiner *examiner);
void examine_rates(struct examiner *examiner);
/* Reports rows that were dropped and gaps of an episode. TRAJD_ERR_MEMORY. */
enum trajd_status examine_clocks(struct examiner *examiner, const struct trajd_episode *episode,
                                 struct trajd_error *error);

/* ---- examine_duplicates.c ---- */

/* Reports episodes that nearly repeat an earlier one. TRAJD_ERR_IO, TRAJD_ERR_DATA: rows cannot be
 * read. */
enum trajd_status examine_duplicates(struct examiner *examiner, const struct examine_limits *limits,
                                     struct trajd_error *error);

/* ---- examine_frames.c ---- */

/* The encoded rows of one episode. */
struct examine_bad_frames {
    uint64_t empty_count, bad_count;
    int64_t first_empty, first_bad;      /* rows */
    char rule[TRAJD_ERROR_MESSAGE_SIZE]; /* that the first bad row breaks */
};

/* Reads every row of the stream's array and looks at its header; of prepared frames, at its size. TRAJD_ERR_IO: the storage failed.
 * TRAJD_ERR_MEMORY. */
enum trajd_status examine_frames(struct trajd_encoded_reader *reader, int fd, uint64_t file_size,
                                 const struct trajd_array *array,
                                 const struct trajd_index_stream *stream,
                                 struct examine_bad_frames *found, struct trajd_error *error);

/* Reads every packet of a stream of packed video. The index has checked the tables. The same
 * errors. */
enum trajd_status examine_video(const struct trajd_index *index,
                                const struct trajd_episode *episode,
                                const struct trajd_index_stream *stream, int fd,
                                struct examine_bad_frames *found, struct trajd_error *error);

/* ---- examine_rotations.c ---- */

/* Returns the number of quaternions that the stream's kind blends as plain numbers, and writes what
 * to do about them. Columns that another entry of the layout names with a fitting kind do not
 * count. */
uint32_t examine_quaternions(const struct trajd_index *index,
                             const struct trajd_index_stream *stream,
                             char text[TRAJD_QUATERNION_ADVICE_SIZE]);

/* How often each column jumps by about a full turn from one row to the next, and how far it moves
 * else. All arrays are [columns]. */
struct examine_wraps {
    uint64_t *radians, *degrees;
    double *moved; /* sum over all pairs of rows without a jump */
    uint64_t pairs;
};

/* Counts the jumps between two rows of a linear stream. */
void examine_wraps_add(struct examine_wraps *wraps, const double *row, const double *next,
                       uint64_t columns);
/* Returns the number of jumps of the columns that are angles: they jump, move slowly else, and none
 * of their values lies outside one turn, which begins at 0 or at minus half a turn. Writes what to
 * do about them. */
uint64_t examine_wraps_end(const struct examine_wraps *wraps, const double *low, const double *high,
                           uint64_t columns, char *text, size_t size);

#endif
