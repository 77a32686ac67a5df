/* The state of one thread, shared by convert_rows.c and convert_blocks.c. */
#ifndef TRAJD_CLI_RESAMPLE_CONVERT_ROWS_INTERNAL_H
#define TRAJD_CLI_RESAMPLE_CONVERT_ROWS_INTERNAL_H

#include "clients/cli/resample/convert_rows.h"

enum { CONVERT_ALIGNMENT = 64 };

/* Grows when a segment needs more. Segments have about the same size, so it soon stops growing. */
struct convert_buffer {
    uint8_t *bytes;
    size_t size;
};

/* One dataset of the segment. */
struct convert_member {
    const struct convert_dataset *dataset;
    const struct convert_array *array;
    const struct trajd_array *source;
    int64_t row_begin, row_end;  /* as its clock counts them */
    size_t source_at, output_at; /* offsets in the rows */
};

struct convert_worker {
    const struct convert_plan *plan;
    const struct convert_group *groups;
    const struct convert_sink *sink;
    struct trajd_convert_report *report;
    struct trajd_array_reader *reader;
    struct libdeflate_compressor *compressor; /* NULL: nothing is compressed */
    struct convert_engine *engine;
    int source_fd;
    uint32_t source, file; /* the file of source_fd */
    struct convert_buffer source_rows, output_rows, offsets, stamps, masks, raw, chunk, shuffled;
    struct convert_block *block; /* NULL: none */
    uint8_t *output;             /* rows of the segment: in the block, or in output_rows */
    size_t source_used, output_used, masks_used;
    struct convert_member *members;
    struct trajd_bracket *brackets;
    struct trajd_stream *streams;
    uint32_t *stream_lanes; /* [streams]: index of the plan's stream, to count steps masked NAN */
    int64_t *row_counts;    /* [brackets] */
    const void **bases;     /* [streams] */
};

/* Rounds up to a multiple of CONVERT_ALIGNMENT. */
static inline size_t convert_align(size_t at)
{
    return (at + CONVERT_ALIGNMENT - 1) / CONVERT_ALIGNMENT * CONVERT_ALIGNMENT;
}

/* ---- convert_blocks.c ---- */

/* Makes room for `size` bytes. The contents are lost when the buffer grows. */
void convert_buffer_grow(struct convert_buffer *buffer, size_t size);

/* Returns room in the block for `size` bytes and `count` entries, if need be in another block. NULL:
 * the run stops. */
uint8_t *convert_worker_room(struct convert_worker *worker, size_t size, uint32_t count);
/* Adds an entry for `size` bytes that begin at `bytes` in the block. */
void convert_worker_add(struct convert_worker *worker, const struct trajd_writer_rows *rows,
                        const uint8_t *bytes, size_t size);

/* Compresses the steps of a segment, which are whole chunks except for the last one, into the
 * block. TRAJD_ERR_UNSUPPORTED: a chunk is too large. TRAJD_ERR_CLOSED: the run stops. */
enum trajd_status convert_compress_rows(struct convert_worker *worker,
                                        const struct convert_segment *segment,
                                        const struct convert_member *member,
                                        struct trajd_error *error);

#endif
