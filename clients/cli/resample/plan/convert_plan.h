/* What a conversion comes to, before any row is read: the output's datasets, its episodes and their
 * grids. Pure: needs indexes alone. */
#ifndef TRAJD_CLI_RESAMPLE_PLAN_CONVERT_PLAN_H
#define TRAJD_CLI_RESAMPLE_PLAN_CONVERT_PLAN_H

#include "daemon/base/arena.h"
#include "clients/cli/resample/plan/convert_options.h"

#define CONVERT_NO_COLUMN UINT64_MAX

/* Columns of a dataset that are resampled in one way: a stream, or what no stream of the layout
 * names (held). */
struct convert_lane {
    uint32_t stream; /* of the plan's streams; UINT32_MAX: columns that no stream names */
    enum trajd_kind kind;
    uint64_t first_column, column_count;
    double angle_period;
    int64_t window_ns; /* of kind mean */
};

/* A dataset of the output. Its episodes' paths and types are one; how many rows an episode has is
 * the grid's matter. */
struct convert_dataset {
    const char *path;       /* relative to the episode */
    uint32_t index_dataset; /* of each index: see source_datasets */
    uint32_t clock;
    enum trajd_dtype from, to;
    uint32_t rank; /* of a row */
    uint64_t shape[TRAJD_ARRAY_MAX_RANK];
    uint64_t elements;      /* of a row */
    uint64_t row_bytes;     /* of the output */
    uint64_t source_bytes;  /* of a row as read */
    uint64_t stamps_column; /* which is overwritten by the grid's times; CONVERT_NO_COLUMN: none */
    enum trajd_stamp_unit stamps_unit;
    bool is_compressed;
    /* of a compressed one: its chunks are so many rows, less where an episode has fewer, */
    uint64_t chunk_rows;
    uint64_t chunk_shape[TRAJD_ARRAY_MAX_RANK]; /* of so much of each, */
    uint64_t tile_count;                        /* and so many lie side by side */
    int64_t max_gap_ns;                         /* the least over its streams; < 0: none */
    uint32_t lane_count;
    struct convert_lane *lanes;
};

/* A dataset of one episode of the output. */
struct convert_array {
    uint32_t dataset;
    int64_t rows;      /* of the source, as its clock counts them */
    int64_t first_row; /* before it is a hole: not looked at */
    uint64_t offset;   /* in the output, of an uncompressed one: from the skeleton */
};

struct convert_episode {
    uint32_t source;  /* which index */
    uint32_t episode; /* of the index */
    const char *id;   /* the output's */
    int64_t begin_ns; /* of the grid, from the episode's origin */
    int64_t end_ns;   /* of what its streams cover: not before the grid's last step */
    /* of the parts that an episode with holes was cut into; part_count 0: it is whole */
    uint32_t part, part_count;
    uint64_t step_count;
    uint32_t array_count;
    struct convert_array *arrays;
};

struct convert_plan {
    const struct trajd_convert_options *options;
    struct trajd_arena arena;
    uint32_t stream_count;
    struct trajd_convert_stream *streams; /* in the first index's order, the chosen alone */
    uint32_t dataset_count;
    struct convert_dataset *datasets;
    /* [index_count][dataset_count]: the same dataset in each index; UINT32_MAX: none there */
    uint32_t *const *source_datasets;
    uint32_t episode_count, episode_capacity;
    struct convert_episode *episodes;
    uint64_t left_out, cut_count;                 /* of the inputs' episodes */
    uint64_t step_count, byte_count, duration_ns; /* over all episodes */
    uint64_t chunk_bytes; /* of the frame that names all compressed chunks (writer_protocol.h) */
    /* of everything that decides the output's bytes beside the rows of the inputs */
    uint64_t digest;
    /* the arithmetic was begun on a GPU, as the file says then: its values are not the CPU's to the
     * bit */
    bool is_on_gpu;
};

/* Fills *plan, which owns its arena whatever the result. Notes go to options->on_note. */
enum trajd_status convert_plan_make(const struct trajd_convert_options *options,
                                    struct convert_plan *plan, struct trajd_error *error);
void convert_plan_clear(struct convert_plan *plan);

/* Offset of step `step` from the grid's begin. */
static inline int64_t convert_step_ns(const struct convert_plan *plan, uint64_t step)
{
    return trajd_rate_row_ns(plan->options->rate, (int64_t)step);
}

/* The time of a source row, from the episode's origin. */
static inline int64_t convert_row_ns(const struct trajd_episode_clock *clock, int64_t row)
{
    return clock->stamps_ns ? clock->stamps_ns[row]
                            : clock->start_ns + trajd_rate_row_ns(clock->rate, row);
}

/* Chunks of an episode's dataset: row-major over blocks of rows and the tiles of each. 0 where it
 * is not compressed. */
uint64_t convert_chunk_count(const struct convert_dataset *dataset, uint64_t step_count);

/* The last of `rows` rows at or before x, or -1. */
int64_t convert_row_at(const struct trajd_episode_clock *clock, int64_t rows, int64_t x);

/* ---- convert_gaps.c ---- */

/* The stretches of an episode between holes that are longer than its datasets allow, one after the
 * other. */
struct convert_gap {
    int64_t row; /* the one before it; below 0: there is none any more */
    int64_t from_ns, to_ns;
    int64_t first_row; /* behind the last hole that was passed */
};

struct gap_splitter {
    const struct convert_plan *plan;
    const struct trajd_episode *episode;
    const struct convert_array *arrays;
    uint32_t array_count;
    int64_t next_ns, end_ns;
    bool is_over;
    struct convert_gap *gaps; /* [array_count], of the caller */
};

/* The episode's arrays between begin and end, both included. */
void gap_splitter_begin(struct gap_splitter *splitter, int64_t begin_ns, int64_t end_ns);
/* The next stretch, both ends included; holes[a].first_row is where array a begins to be looked at.
 * False: there is none any more. */
bool gap_splitter_next(struct gap_splitter *splitter, int64_t *begin_ns, int64_t *end_ns);
/* Which part of which episode it is, with the rows of each clock, as JSON: malloc'd; "" of a whole
 * one; NULL: no memory. */
char *convert_part_json(const struct convert_plan *plan, const struct convert_episode *made);

#endif
