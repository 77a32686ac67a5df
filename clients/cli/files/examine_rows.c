/* Rows of streams as numbers, a block at a time. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "clients/cli/files/examine_internal.h"
#include "daemon/base/memory.h"

void examine_rows_open(struct examine_rows *rows, const struct trajd_index *index)
{
    *rows = (struct examine_rows){.file.index = index};
    trajd_array_reader_create(&rows->reader, NULL);
    trajd_memory_or_exit(rows->reader);
}

/* Opens the file of an episode. Chunks are kept while it is open: they may have more rows than a
 * block. */
static enum trajd_status open_file(struct examine_rows *rows, const struct trajd_episode *episode,
                                   struct trajd_error *error)
{
    if (rows->file.is_open && rows->file.file_index == episode->file_index)
        return TRAJD_OK;
    trajd_array_reader_keep(rows->reader, false);
    trajd_array_reader_keep(rows->reader, true);
    return episode_file_open(&rows->file, episode, error);
}

enum trajd_status examine_rows_read(struct examine_rows *rows, const struct trajd_episode *episode,
                                    const struct trajd_index_stream *stream, uint64_t begin,
                                    uint64_t *count, struct trajd_error *error)
{
    const struct trajd_array *array = &episode->extents[stream->array_index];
    const uint64_t row_bytes = trajd_array_row_bytes(array), columns = stream->feature_count,
                   rest = trajd_array_row_count(array) - begin;
    const uint64_t first = stream->first_column * trajd_dtype_size(array->dtype);
    enum trajd_status status = open_file(rows, episode, error);

    *count = rest < EXAMINE_BLOCK_ROWS ? rest : EXAMINE_BLOCK_ROWS;
    rows->bytes = trajd_memory_or_exit(realloc(rows->bytes, *count * row_bytes + 1));
    rows->values =
        trajd_memory_or_exit(realloc(rows->values, (*count * columns + 1) * sizeof(double)));
    if (!status)
        status =
            trajd_array_read(rows->reader, rows->file.fd, array, begin, *count, rows->bytes, error);
    for (uint64_t r = 0; r < *count && !status; r++)
        if (!trajd_array_to_f64(array->dtype, rows->bytes + r * row_bytes + first, columns,
                                rows->values + r * columns))
            status = trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0, "its rows are not numbers");
    return status;
}

void examine_rows_close(struct examine_rows *rows)
{
    episode_file_close(&rows->file);
    trajd_array_reader_destroy(&rows->reader);
    free(rows->bytes);
    free(rows->values);
}

double examine_distance(const double *row, const double *other, uint64_t columns)
{
    double sum = 0;

    for (uint64_t d = 0; d < columns; d++)
        if (memcmp(&row[d], &other[d], sizeof *row))
            sum += (row[d] - other[d]) * (row[d] - other[d]);
    return sqrt(sum);
}

enum trajd_status examine_rows_failure(enum trajd_status status, const struct trajd_error *error)
{
    return status == TRAJD_ERR_MEMORY || (status && error->foreign_code) ? status : TRAJD_OK;
}
