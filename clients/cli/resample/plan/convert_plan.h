/* What a conversion will write, before any row is read: the output's datasets, its episodes and
 * their grids. Pure: it needs only the options and the indexes. */
#ifndef TRAJD_CLI_RESAMPLE_PLAN_CONVERT_PLAN_H
#define TRAJD_CLI_RESAMPLE_PLAN_CONVERT_PLAN_H

#include "daemon/base/arena.h"
#include "daemon/base/memory.h"
#include "clients/cli/resample/plan/convert_options.h"

#define CONVERT_NO_COLUMN UINT64_MAX
#define CONVERT_PICKS_MAX 256

/* Columns of a dataset that are resampled in the same way: one stream, or columns that no stream of
 * the layout names (held). */
struct convert_lane {
    struct trajd_convert_stream *stream; /* without a source: none names the columns */
    uint64_t first_column, column_count;
};

/* A dataset of the output. It has the same path and type in all episodes; the grid of an episode
 * gives its number of rows. */
struct convert_dataset {
    const char *path;       /* relative to the episode's group */
    uint32_t index_dataset; /* in the first index; see source_datasets */
    uint32_t clock;
    enum trajd_dtype from, to;
    uint32_t rank; /* of a row */
    uint64_t shape[TRAJD_ARRAY_MAX_RANK];
    uint64_t elements;      /* of a row */
    uint64_t row_bytes;     /* of the output */
    uint64_t source_bytes;  /* of a row as read */
    uint64_t stamps_column; /* the column that gets the grid's times; CONVERT_NO_COLUMN: none */
    enum trajd_stamp_unit stamps_unit;
    /* The rows are encoded frames. The helper program copies those that the steps take, and no worker
     * touches them: there are no elements, and one lane without columns. */
    bool is_encoded;
    bool is_event; /* rows that come when something happens: the last one is held */
    bool is_enum;  /* of one byte: the output keeps the source's type */
    bool is_compressed;
    /* Shape of a chunk, if compressed: rows (fewer in a shorter episode) and the extent in each
     * dimension of a row. tile_count chunks lie side by side. */
    uint64_t chunk_rows;
    uint64_t chunk_shape[TRAJD_ARRAY_MAX_RANK];
    uint64_t tile_count;
    int64_t max_gap_ns; /* the smallest over its streams; < 0: none */
    uint32_t lane_count;
    struct convert_lane *lanes;
    uint32_t group; /* UINT32_MAX of encoded frames */
};

/* Datasets whose rows are made together: small ones on one clock, which is searched once for all of
 * them. A large or compressed dataset is a group of its own. */
struct convert_group {
    uint32_t clock;
    bool is_small;
    uint64_t row_bytes; /* of the output */
    uint64_t unit;      /* segments begin at a multiple of it: the rows of a chunk, or 1 */
    uint64_t steps;     /* of a segment */
};

/* A dataset of one episode of the output. */
struct convert_array {
    uint32_t dataset;
    int64_t rows;      /* of the source, as its clock counts them */
    int64_t first_row; /* earlier rows lie before a gap and are not used */
    bool ends_early;   /* before the grid: NaN stands after its last row */
};

struct convert_episode {
    uint32_t source;  /* which index */
    uint32_t episode; /* in the index */
    const char *id;   /* in the output */
    int64_t begin_ns; /* of the grid, from the episode's origin */
    int64_t end_ns;   /* of the streams' span: not before the last step of the grid */
    /* Part of an episode that was split at gaps. part_count 0: the episode is not split. */
    uint32_t part, part_count;
    uint64_t step_count;
    uint32_t array_count;
    struct convert_array *arrays;
};

struct convert_plan {
    const struct trajd_convert_options *options;
    struct trajd_error *error;       /* of the call that makes the plan */
    const struct trajd_index *first; /* of the options' indexes */
    struct trajd_arena arena;
    struct trajd_convert_stream *all; /* [first->stream_count + 1]: the last one is held columns */
    uint32_t stream_count;
    struct trajd_convert_stream **streams; /* those of `all` that are converted */
    uint32_t dataset_count;
    struct convert_dataset *datasets;
    /* [index_count][dataset_count]: the dataset's index in each input; UINT32_MAX: not there */
    uint32_t *const *source_datasets;
    uint32_t group_count;
    struct convert_group *groups;
    uint32_t episode_count, episode_capacity;
    struct convert_episode *episodes;
    uint64_t left_out, cut_count;                 /* episodes of the inputs */
    uint64_t step_count, byte_count, duration_ns; /* sum over all episodes */
    /* The arithmetic was begun on a GPU, and the output says so: its values may differ from the
     * CPU's. */
    bool is_on_gpu;
};

/* Makes the plan. The caller frees its arena in any case. Notes go to options->on_note. */
enum trajd_status convert_plan_make(const struct trajd_convert_options *options,
                                    struct convert_plan *plan, struct trajd_error *error);
/* Returns whether the layout has one episode per file. Several episodes of a plan are then the parts
 * of one that was split, and each gets a file of its own. */
bool convert_plan_is_of_files(const struct convert_plan *plan);
/* Returns whether a mask of the input lists the episode. */
bool convert_has_key(const struct trajd_episode *episode, const char *key);
/* Reduces the plan to one of its episodes. */
void convert_plan_select(struct convert_plan *plan, uint32_t episode);

/* Returns zeroed memory of the plan's arena. */
static inline void *convert_alloc(struct convert_plan *plan, size_t size_bytes)
{
    return trajd_memory_or_exit(trajd_arena_alloc(&plan->arena, size_bytes));
}

/* Returns the offset of a step from the begin of the grid. */
static inline int64_t convert_step_ns(const struct convert_plan *plan, uint64_t step)
{
    return trajd_rate_row_ns(plan->options->rate, (int64_t)step);
}

static inline const struct trajd_index *convert_index_of(const struct convert_plan *plan,
                                                         const struct convert_episode *made)
{
    return plan->options->indexes[made->source];
}

/* Returns the episode of the input. */
static inline const struct trajd_episode *convert_source_of(const struct convert_plan *plan,
                                                            const struct convert_episode *made)
{
    return &convert_index_of(plan, made)->episodes[made->episode];
}

/* Returns a dataset in the file of the episode. */
static inline const struct trajd_array *convert_extent_of(const struct convert_plan *plan,
                                                          const struct convert_episode *made,
                                                          uint32_t dataset)
{
    return &convert_source_of(plan, made)->extents[plan->source_datasets[made->source][dataset]];
}

static inline bool convert_is_floating(enum trajd_dtype dtype)
{
    return dtype == TRAJD_F16 || dtype == TRAJD_F32 || dtype == TRAJD_F64;
}

static inline bool convert_is_slerp(enum trajd_kind kind)
{
    return kind == TRAJD_KIND_SLERP_XYZW || kind == TRAJD_KIND_SLERP_WXYZ;
}

/* ---- the steps of a plan: convert_streams.c, convert_datasets.c, convert_episodes.c ---- */

/* Makes the plan's streams from the first index, then its datasets, and compares the other indexes
 * with it. */
enum trajd_status convert_choose_streams(struct convert_plan *plan);
/* Returns the first array of the dataset in the first index that has rows, or NULL. */
const struct trajd_array *convert_first_array(const struct convert_plan *plan, uint32_t dataset);
/* Returns the number of the dataset in the index; -1: it is not there, or the path is NULL. */
int64_t convert_find_dataset(const struct trajd_index *index, const char *path);
/* Makes the plan's datasets from the streams that are taken, and finds them in each index. */
enum trajd_status convert_add_datasets(struct convert_plan *plan);
/* Makes the grids of the chosen episodes. TRAJD_ERR_DATA: no episode is left. */
enum trajd_status convert_make_episodes(struct convert_plan *plan);
/* Adds the episode to the plan's sizes. Returns false if they overflow. */
bool convert_add_sizes(struct convert_plan *plan, const struct convert_episode *made);

/* ---- rows of the steps ---- */

/* One way in which steps take rows. Datasets that no stream names, but that have an entry for each
 * row, are copied by these rows: lengths of encoded images, for example. */
struct convert_pick {
    uint64_t row_count; /* of the datasets in the file */
    uint32_t clock;
    enum trajd_kind kind; /* previous or nearest */
    int64_t rows;         /* as the clock counts them */
};

/* Finds the ways in which the episode's streams pick rows. Returns their number. of[array] becomes
 * the way that has the rows of the array. */
uint32_t convert_picks_find(const struct convert_plan *plan, const struct convert_episode *made,
                            struct convert_pick picks[CONVERT_PICKS_MAX], uint32_t *of);
/* Returns the row in the file that a step takes. */
uint64_t convert_pick_row(const struct convert_plan *plan, const struct convert_episode *made,
                          const struct convert_pick *pick, uint64_t step);

/* ---- cuts at gaps ---- */

/* A gap between two rows that is longer than the dataset's max_gap. */
struct convert_gap {
    uint32_t array;
    int64_t row; /* the row after the gap */
    int64_t from_ns, to_ns;
};

/* The caller sets the members up to array_count, zeroes the others, and frees `gaps`. */
struct convert_cutter {
    const struct convert_plan *plan;
    const struct trajd_episode *episode;
    struct convert_array *arrays;
    uint32_t array_count;
    int64_t next_ns, end_ns;
    bool is_over;
    uint32_t gap_count, gap_capacity, passed;
    struct convert_gap *gaps; /* in the order of their begins */
};

/* Begins to cut the episode's arrays between begin and end, both included. */
void convert_cutter_begin(struct convert_cutter *cutter, int64_t begin_ns, int64_t end_ns);
/* Returns the next span, both ends included. arrays[a].first_row becomes the first row of array a
 * that the span uses. Returns false after the last span. */
bool convert_cutter_next(struct convert_cutter *cutter, int64_t *begin_ns, int64_t *end_ns);
/* Describes a part as JSON: its episode, its number, and the rows of each clock. The caller frees
 * the text. It is "" for an episode that is not split. */
char *convert_part_json(const struct convert_plan *plan, const struct convert_episode *made);

/* ---- segments, which threads process ---- */

struct convert_segment {
    uint32_t episode, group;
    uint64_t step_begin, step_end;
};

/* Lists the segments of the plan's episodes in order. The caller frees the list. */
struct convert_segment *convert_segments_list(const struct convert_plan *plan, uint64_t *count);
/* Returns the bytes of a whole chunk before it is compressed, for a chunk of `rows` rows. */
uint64_t convert_chunk_bytes(const struct convert_dataset *dataset, uint64_t rows);
/* Returns the most room that the rows of a segment need, each dataset aligned to 64 bytes; of a
 * compressed dataset, the room of one chunk before it is compressed. */
uint64_t convert_segment_bytes(const struct convert_plan *plan);

#endif
