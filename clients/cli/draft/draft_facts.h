/* What a draft is made of: the tree of a file, its episodes, their datasets and their clocks. The
 * files of this folder fill it one after another. Memory that runs out ends the program. */
#ifndef TRAJD_CLI_DRAFT_DRAFT_FACTS_H
#define TRAJD_CLI_DRAFT_DRAFT_FACTS_H

#include <regex.h>
#include <stdio.h>

#include "daemon/index/index.h"
#include "daemon/index/tree/tree.h"

enum {
    DRAFT_STREAMS_MAX = 512,
    DRAFT_CLOCKS_MAX = 32,
    DRAFT_REGULAR_MAX = 8, /* clocks without stamps */
    DRAFT_SPLIT_MAX = 8,
    DRAFT_NAME_MAX = 512,
    DRAFT_NO_CLOCK = -1,
};

/* A dataset, over all episodes. */
struct draft_stream {
    const char *path; /* relative to the episode */
    const struct trajd_tree_object *example;
    uint32_t episode_count; /* that have it */
    uint64_t least_rows, most_rows;
    uint64_t *rows;     /* [episode_count of the facts]; UINT64_MAX: the episode lacks it */
    bool differs;       /* its type or row shape differs between episodes */
    bool is_encoded;    /* its rows begin as JPEG or PNG do */
    bool is_matrix;     /* its rows are poses or rotations as matrices */
    bool is_row_longer; /* it has one row more than its clock */
    int clock;          /* or DRAFT_NO_CLOCK */
    int other_clock; /* has as many rows, and a name that goes as well with the stream's; or none */
    /* NULL, or why it is not a stream, in words that complete "left out: " */
    const char *left_out;
};

/* A clock: stamps, which are a dataset or its first column; without stamps, a number of rows. */
struct draft_clock {
    uint32_t stream; /* the stamps, or what gives the number of rows */
    double ratio;    /* without stamps: its rows to those of the first clock */
    enum trajd_stamp_unit unit;
    bool is_unit_known;    /* by the name, or because the stamps are times since 1970 */
    double first, last;    /* stamps, in the unit */
    double rate_hz;        /* mean */
    double jitter_percent; /* the largest deviation of an interval from the mean one */
    bool has_repeats;      /* some stamps are equal to the one before */
};

struct draft_facts {
    const char *name;      /* of the layout */
    const char *extension; /* of the files: ".hdf5" */
    const struct trajd_tree *tree;
    char *pattern;    /* of the episodes, as in a layout: "/data/demo_*", or "/": the file is one */
    uint32_t *groups; /* [episode_count]: objects of the tree, in natural order of their paths */
    uint32_t episode_count;
    uint32_t stream_count;
    bool is_cut; /* the file has more different datasets */
    struct draft_stream streams[DRAFT_STREAMS_MAX];
    /* as `split:` of a layout: "flags", "lengths", "ends" or "starts"; NULL: there is none */
    const char *split;
    uint32_t split_count, split_streams[DRAFT_SPLIT_MAX];
    /* beside flags: a stream, and another one with the next row of each of its rows; or NULL */
    const char *split_rows, *split_next;
    bool has_stamps;
    uint32_t clock_count;
    struct draft_clock clocks[DRAFT_CLOCKS_MAX];
    const struct trajd_index *probe; /* has the streams as "s0", "s1", ... */
    FILE *guesses;                   /* while the draft is written: the entries of `guessed:` */
};

/* ---- draft_tree.c: pure, by the tree alone ---- */

/* Returns the part of the path after the last '/'. */
const char *draft_last_name(const char *path);
/* Returns whether the text has a match of the extended regular expression. flags: REG_ICASE or 0. */
bool draft_matches(const char *text, const char *expression, int flags);
/* Returns whether the dataset is a table with named columns: its type is "compound (x, y)". */
bool draft_is_table(const struct trajd_tree_object *object);
/* Returns the object after the last one inside objects[group]. */
uint32_t draft_end_of(const struct trajd_tree *tree, uint32_t group);
/* Returns a hash of the names, types and row shapes of all that is in the group. Groups that are
 * recordings of the same kind have the same. Numbers of rows, and widths of padded bytes, do not
 * count. */
uint64_t draft_signature(const struct trajd_tree *tree, uint32_t group);
/* Finds the groups of the tree that are its episodes: those that repeat. */
void draft_find_episodes(struct draft_facts *facts);
/* Returns a pattern that matches one to ten of many episodes, in the middle of them, which the caller
 * frees. NULL where there are not many, or their names do not end in a digit. */
char *draft_few_episodes(const struct draft_facts *facts);
/* Returns the path of a group with groups of the same kind beside it that are read as parts of one
 * episode but may be recordings of their own: the file is one episode, or their numbers of rows
 * differ. NULL: there is none. */
const char *draft_find_alike(const struct draft_facts *facts);
/* Frees what draft_find_episodes and draft_collect_streams have made. */
void draft_facts_free(struct draft_facts *facts);

/* ---- draft_streams.c: pure ---- */

/* Collects the datasets of all episodes, in the order of the file. */
void draft_collect_streams(struct draft_facts *facts);
/* Returns whether the stream's rows look like images, by its type and shape. */
bool draft_is_image(const struct draft_stream *stream);
/* Finds the datasets that tell where episodes end in arrays that hold several of them, by their
 * names: lengths, ends or starts, else flags, with next rows if there are such. */
void draft_find_split(struct draft_facts *facts);
/* Leaves out the streams that have not one row for each step of all episodes. */
void draft_apply_split(struct draft_facts *facts);
/* Gives each stream that is not left out a clock, and leaves out the streams for which there is
 * none. */
void draft_plan_clocks(struct draft_facts *facts);
/* Returns whether a stream that is not left out has the clock. */
bool draft_is_clock_used(const struct draft_facts *facts, uint32_t clock);

/* ---- draft_clocks.c ---- */

/* Decides whether a column, in one episode, is stamps: `rows` values, `stride` elements apart. Fills
 * unit, first, last, rate_hz, jitter_percent and has_repeats of *clock. `name`: the dataset's path. */
bool draft_is_clock(const double *values, uint64_t rows, uint64_t stride, const char *name,
                    struct draft_clock *clock);
/* Stamps of one recording that have the same values have one unit. Corrects the units that were chosen
 * only because they give a plausible rate: a column of 1 Hz may have that of a faster one. */
void draft_settle_units(struct draft_clock *clocks, uint32_t count);
/* Returns whether some time is between the first and the last stamps of both. Clocks of machines that
 * were not synchronised have none. */
bool draft_have_common_time(const struct draft_clock *a, const struct draft_clock *b);
/* Returns whether each row is a pose as a matrix: 4x4, with a last row or column of 0 0 0 1,
 * or a rotation of 3x3. */
bool draft_are_matrices(const double *values, uint64_t rows, uint64_t elements);
/* Returns the stream of the probe, or NULL where it has none. */
const struct trajd_index_stream *draft_probed(const struct draft_facts *facts, uint32_t stream);
/* Looks for stamps in the arrays of the probe, and sets is_encoded and is_matrix of the streams. Reads
 * up to 4096 rows of up to 3 kept episodes. */
enum trajd_status draft_find_clocks(struct draft_facts *facts, struct trajd_error *error);

/* ---- draft_layout.c ---- */

/* Writes a YAML scalar. */
void draft_write_text(FILE *out, const char *text);
/* Returns a layout in which each stream has a clock of its own, to look at rows: "s0", "s1", ... It
 * reads the episodes that the pattern `groups` matches. The caller frees it. */
char *draft_write_probe(const struct draft_facts *facts, const char *groups);
/* Returns the draft: YAML, with a comment at each guess and a list of them. The caller frees it. */
char *draft_write_layout(struct draft_facts *facts);

#endif
