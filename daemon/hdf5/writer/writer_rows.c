/* Writes rows and compressed chunks from the shared memory to the arrays of the output. */
#include <stdlib.h>
#include <string.h>

#include "daemon/hdf5/writer/writer.h"

struct trajd_writer_array *trajd_writer_add_episode(struct trajd_writer *writer, uint32_t arrays)
{
    struct trajd_writer_episode *episode;

    if (writer->episode_count == writer->episode_capacity) {
        writer->episode_capacity = 2 * writer->episode_capacity + 64;
        writer->episodes = trajd_helper_memory(
            realloc(writer->episodes, writer->episode_capacity * sizeof *writer->episodes));
    }
    episode = &writer->episodes[writer->episode_count++];
    episode->array_count = arrays;
    episode->arrays = trajd_helper_memory(malloc(((size_t)arrays + 1) * sizeof *episode->arrays));
    for (uint32_t a = 0; a < arrays; a++)
        episode->arrays[a] = (struct trajd_writer_array){.id = -1, .own_type = -1};
    return episode->arrays;
}

/* Returns the array, if it still lacks as many rows as are to be written. */
static struct trajd_writer_array *find_array(const struct trajd_writer *writer,
                                             const struct trajd_writer_rows *rows)
{
    struct trajd_writer_array *array;

    if (rows->episode >= writer->episode_count ||
        rows->array >= writer->episodes[rows->episode].array_count ||
        rows->at > writer->memory_bytes || rows->size > writer->memory_bytes - rows->at)
        return NULL;
    array = &writer->episodes[rows->episode].arrays[rows->array];
    return array->id >= 0 && rows->rows <= array->left ? array : NULL;
}

/* Writes some of an array's rows. */
static bool write_some(const struct trajd_writer_array *array, const struct trajd_writer_rows *rows,
                       const void *data)
{
    const hid_t file_space = H5Dget_space(array->id);
    hsize_t extent[TRAJD_WRITER_RANK_MAX], start[TRAJD_WRITER_RANK_MAX] = {rows->place[0]};
    const int rank = H5Sget_simple_extent_dims(file_space, extent, NULL);
    hid_t space;
    bool ok;

    extent[0] = rows->rows;
    space = H5Screate_simple(rank, extent, NULL);
    ok = H5Sselect_hyperslab(file_space, H5S_SELECT_SET, start, NULL, extent, NULL) >= 0 &&
         H5Dwrite(array->id, array->type, space, file_space, H5P_DEFAULT, data) >= 0;
    trajd_writer_close(space);
    trajd_writer_close(file_space);
    return ok;
}

/* Writes whole rows. libhdf5 converts nothing, because memory and file have the same type. All rows
 * of a short episode come at once, which needs no dataspaces: they take as long as the write. */
static bool write_rows(const struct trajd_writer_array *array, const struct trajd_writer_rows *rows,
                       const void *data)
{
    if (rows->size / array->row_bytes != rows->rows || rows->size % array->row_bytes)
        return false;
    return rows->rows == array->rows
               ? H5Dwrite(array->id, array->type, H5S_ALL, H5S_ALL, H5P_DEFAULT, data) >= 0
               : write_some(array, rows, data);
}

/* Writes rows or one chunk, and closes an array that is complete. */
static bool write_one(struct trajd_writer *writer, const struct trajd_writer_rows *rows)
{
    struct trajd_writer_array *array = find_array(writer, rows);
    const uint8_t *data = writer->memory + rows->at;
    bool ok;

    if (!array)
        return trajd_writer_fail("rows of the recipe cannot be read");
    ok = rows->rows ? write_rows(array, rows, data)
                    : H5Dwrite_chunk(array->id, H5P_DEFAULT, 0, (const hsize_t *)rows->place,
                                     rows->size, data) >= 0;
    if (!ok)
        return trajd_writer_fail("rows of the output cannot be written");
    array->left -= rows->rows ? rows->rows : 1;
    if (!array->left) {
        H5Dclose(array->id);
        trajd_writer_close(array->own_type);
        array->id = -1;
    }
    return true;
}

bool trajd_writer_rows(struct trajd_writer *writer, struct trajd_writer_frame *frame)
{
    struct trajd_writer_rows rows;

    for (; (size_t)(frame->end - frame->next) >= sizeof rows; frame->next += sizeof rows) {
        memcpy(&rows, frame->next, sizeof rows);
        if (!write_one(writer, &rows))
            return false;
    }
    return frame->next == frame->end || trajd_writer_fail("rows of the recipe cannot be read");
}

/* Also closes arrays that still wait for rows: prepared frames may need less room than was made. */
bool trajd_writer_close_output(struct trajd_writer *writer)
{
    const hid_t output = writer->output;

    if (writer->input >= 0)
        H5Fclose(writer->input);
    writer->input = writer->output = -1;
    return H5Fclose(output) >= 0 || trajd_writer_fail("the output cannot be closed");
}
