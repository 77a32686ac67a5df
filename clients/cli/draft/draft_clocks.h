/* Examines rows of a file: which columns are stamps, and in which unit; which rows are encoded
 * pictures. What it finds are guesses by the values and the names. */
#ifndef TRAJD_CLI_DRAFT_DRAFT_CLOCKS_H
#define TRAJD_CLI_DRAFT_DRAFT_CLOCKS_H

#include "clients/cli/draft/draft_streams.h"
#include "daemon/index/index.h"

enum { DRAFT_CLOCKS_MAX = 32 };

/* Stamps: a dataset, or its first column. */
struct draft_clock {
    uint32_t stream; /* in the list of streams */
    enum trajd_stamp_unit unit;
    bool is_unit_known;    /* by the name, or because the stamps are times since 1970 */
    double first, last;    /* stamps, in the unit */
    double rate_hz;        /* mean */
    double jitter_percent; /* the largest deviation of an interval from the mean one */
    bool has_repeats;      /* some stamps are equal to the one before */
};

struct draft_clocks {
    uint32_t count;
    struct draft_clock list[DRAFT_CLOCKS_MAX];
};

/* What is known of the steps of a column. */
struct draft_steps {
    bool is_integer;
    uint64_t rows;
    double first, last;
    double smallest_step, largest_step;
    uint64_t equal, backward; /* steps */
};

/* Adds up the steps of a column: `values` are rows of `stride` elements. */
struct draft_steps draft_add_steps(const double *values, uint64_t rows, uint64_t stride);

/* Decides whether the steps of a column, in one episode, are those of stamps. Fills unit, rate_hz,
 * jitter_percent and has_repeats of *clock. `name`: the dataset's path. */
bool draft_is_clock(const struct draft_steps *steps, const char *name, struct draft_clock *clock);

/* Stamps of one recording that have the same values have one unit. Corrects the units that were chosen
 * only because they give a plausible rate: a column of 1 Hz may have that of a faster one. */
void draft_settle_units(struct draft_clocks *clocks);

/* Returns whether some time is between the first and the last stamps of both. Clocks of machines that
 * were not synchronised have none. */
bool draft_have_common_time(const struct draft_clock *a, const struct draft_clock *b);

/* Returns whether each row is a pose as a matrix: 4x4, with a last row or column of 0 0 0 1,
 * or a rotation of 3x3. */
bool draft_are_matrices(const double *values, uint64_t rows, uint64_t elements);

/* Looks for stamps in the arrays of the index, whose streams have the numbers of `streams` as names
 * ("s0", "s1", ...), and sets is_encoded and is_matrix of the streams. Reads up to 4096 rows of up to
 * 3 kept episodes. */
enum trajd_status draft_find_clocks(const struct trajd_index *index, struct draft_streams *streams,
                                    struct draft_clocks *clocks, struct trajd_error *error);

/* Returns whether the text has one of the words, in any case. */
bool draft_contains(const char *text, const char *const *words, size_t count);

#endif
