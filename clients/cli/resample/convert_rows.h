/* The rows of the output. One thread reads and resamples one segment at a time: some steps of some
 * datasets of one episode. It puts them into blocks (convert_writer.h). */
#ifndef TRAJD_CLI_RESAMPLE_CONVERT_ROWS_H
#define TRAJD_CLI_RESAMPLE_CONVERT_ROWS_H

#include "clients/cli/resample/convert.h"
#include "clients/cli/resample/convert_backend.h"
#include "clients/cli/resample/convert_writer.h"
#include "clients/cli/resample/plan/convert_plan.h"

enum { CONVERT_ALIGNMENT = 64 };

/* Where rows go. */
struct convert_sink {
    /* Takes a block (NULL: the first time) and returns an empty one. NULL: the run stops. */
    struct convert_block *(*exchange)(void *context, struct convert_block *block);
    void *context;
};

/* Memory that grows when a segment needs more. Segments have about the same size, so it soon stops
 * growing. */
enum convert_buffer_name {
    CONVERT_SOURCE_ROWS,
    CONVERT_OUTPUT_ROWS, /* that are compressed */
    CONVERT_TARGETS,
    CONVERT_STAMPS,
    CONVERT_MASKS,
    CONVERT_ALL_ROWS, /* also those that a clock drops */
    CONVERT_CHUNK,
    CONVERT_SHUFFLED,
    CONVERT_BUFFERS
};

struct convert_buffer {
    uint8_t *bytes;
    size_t size;
};

/* One dataset of the segment. */
struct convert_member {
    const struct convert_dataset *dataset;
    const struct convert_array *array;
    int64_t row_end; /* as its clock counts them */
    int64_t row_count;
    const void *base; /* its first row */
    uint8_t *output;  /* its first step */
};

/* The state of one thread. The caller sets the members up to `engine.backend`, and zeroes the
 * others. */
struct convert_worker {
    const struct convert_plan *plan;
    struct convert_sink sink;
    struct trajd_convert_report *report; /* rows and bytes are added atomically */
    struct trajd_error *error;
    struct convert_engine engine;
    struct trajd_array_reader *reader;
    struct libdeflate_compressor *compressor; /* NULL: nothing is compressed */
    const struct trajd_index_file *source;    /* the open input; NULL: none */
    int source_fd;
    struct convert_buffer buffers[CONVERT_BUFFERS];
    struct convert_block *block; /* that is filled; NULL: none */
    /* of the current segment */
    struct convert_segment segment;
    const struct convert_episode *made;
    int64_t row_begin, row_end; /* all members begin with row_begin: they share one clock */
    uint32_t member_count;
    struct convert_member *members;
    struct trajd_bracket *brackets;
    struct trajd_stream *streams;
};

/* Checks that `now` describes the file that was indexed. TRAJD_ERR_DATA: it has changed. */
enum trajd_status convert_check_input(const struct trajd_index_file *file, const struct stat *now,
                                      struct trajd_error *error);

void convert_worker_begin(struct convert_worker *worker);
/* Frees what the worker has, but for its block. */
void convert_worker_end(struct convert_worker *worker);
/* Opens the input of worker->made, if it is not open. */
enum trajd_status convert_worker_open(struct convert_worker *worker);
/* Reads the rows of a dataset of worker->made from `begin` to before `end`, as its clock counts them.
 * There is at least one. */
enum trajd_status convert_worker_read(struct convert_worker *worker,
                                      const struct convert_dataset *dataset, int64_t begin,
                                      int64_t end, uint8_t *rows);
/* Makes the rows of a segment. Adds to nan_steps of the plan's streams, atomically. TRAJD_ERR_CLOSED:
 * the sink stopped, or the run is cancelled. */
enum trajd_status convert_worker_run(struct convert_worker *worker,
                                     const struct convert_segment *segment);

/* ---- convert_blocks.c ---- */

/* Rounds up to a multiple of CONVERT_ALIGNMENT. */
static inline size_t convert_align(size_t at)
{
    return (at + CONVERT_ALIGNMENT - 1) / CONVERT_ALIGNMENT * CONVERT_ALIGNMENT;
}

/* Returns a buffer with room for `size` bytes. The contents are lost when it grows. */
void *convert_worker_buffer(struct convert_worker *worker, enum convert_buffer_name name,
                            size_t size);
/* Returns room in the block for `size` bytes and `count` entries, if need be in another block. NULL:
 * the run stops. */
uint8_t *convert_worker_room(struct convert_worker *worker, size_t size, uint32_t count);
/* Adds an entry for `size` bytes that begin at `bytes` in the block. */
void convert_worker_add(struct convert_worker *worker, const struct trajd_writer_rows *rows,
                        const uint8_t *bytes, size_t size);
/* Compresses the steps of the segment, which are whole chunks except for the last one, into the
 * block. TRAJD_ERR_UNSUPPORTED: a chunk is too large. TRAJD_ERR_CLOSED: the run stops. */
enum trajd_status convert_compress_rows(struct convert_worker *worker,
                                        const struct convert_member *member);

#endif
