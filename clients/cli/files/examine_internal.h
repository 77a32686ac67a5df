/* What the files that examine an index share. Private to them. */
#ifndef TRAJD_CLI_FILES_EXAMINE_INTERNAL_H
#define TRAJD_CLI_FILES_EXAMINE_INTERNAL_H

#include "clients/cli/files/examine.h"
#include "daemon/index/rows/encoded.h"
#include "daemon/index/rows/packed_video.h"

/* in elements; wider rows are images and the like, compared only as bytes */
#define EXAMINE_WIDEST_ROW 4096

/* Returns whether rows that repeat the row before mean that nothing moves. A narrow stream of kind
 * previous holds its value by design. */
static inline bool examine_repeats_are_idle(const struct trajd_index_stream *stream)
{
    return stream->feature_count > EXAMINE_WIDEST_ROW || stream->kind != TRAJD_KIND_PREVIOUS;
}

/* Returns whether the stream has narrow rows of numbers. */
static inline bool examine_is_comparable(const struct trajd_index_stream *stream)
{
    return !stream->form && stream->feature_count <= EXAMINE_WIDEST_ROW;
}

/* Returns whether the stream has numbers that tell what moved: narrow rows, and not those of commands,
 * which are held. */
static inline bool examine_is_motion(const struct trajd_index_stream *stream)
{
    return examine_is_comparable(stream) && examine_repeats_are_idle(stream);
}

/* Counts one more row of a finding, which began with none. */
static inline void examine_count(struct examine_finding *finding, int64_t row)
{
    if (!finding->count++)
        finding->row = row;
}

/* Reports a finding with this text, unless its count is 0. */
void examine_report(const struct examiner *examiner, const struct examine_finding *base,
                    const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Returns the row of the array that row k of a clock is. */
static inline int64_t examine_array_row(const struct trajd_episode_clock *clock, int64_t k)
{
    return clock->kept_rows ? clock->kept_rows[k] : k;
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

void examine_rows_open(struct examine_rows *rows, const struct trajd_index *index);
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
void examine_refusals(const struct examiner *examiner);
void examine_rates(const struct examiner *examiner);
/* Reports rows that were dropped and gaps of an episode. */
void examine_clocks(const struct examiner *examiner, const struct trajd_episode *episode);

/* ---- examine_duplicates.c ---- */

/* Reports episodes that nearly repeat an earlier one. TRAJD_ERR_IO, TRAJD_ERR_DATA: rows cannot be
 * read. */
enum trajd_status examine_duplicates(const struct examiner *examiner, struct trajd_error *error);

/* ---- examine_frames.c ---- */

/* Reports the encoded frames of one episode that are empty or bad: by the header of every row, of
 * prepared frames by its size, of packed video by every packet. TRAJD_ERR_IO: the storage failed.
 * TRAJD_ERR_MEMORY. */
enum trajd_status examine_frames(const struct examiner *examiner,
                                 const struct trajd_index_stream *stream,
                                 const struct trajd_episode *episode, int fd,
                                 struct trajd_error *error);

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
