/* Copies datasets that have an entry for each row of the episode, but are not streams: the entries
 * of the rows that the steps take. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/hdf5/writer/writer.h"

static const size_t block_bytes = (size_t)64 << 20;
/* values of variable length that are in memory at a time: their sizes are not known before */
static const uint64_t variable_rows = 64;

/* ---- the axis and the rows ---- */

/* Returns the row of a step. */
static uint64_t row_of(const uint8_t *rows, uint64_t step)
{
    uint64_t row;

    memcpy(&row, rows + step * sizeof row, sizeof row);
    return row;
}

/* Returns whether the steps are the rows, so that the dataset stays as it is. */
static bool is_identity(const struct trajd_writer_beside *beside, const uint8_t *rows,
                        uint64_t count)
{
    for (uint64_t step = 0; step < beside->steps && count == beside->steps; step++)
        if (beside->first_row + row_of(rows, step) != step)
            return false;
    return count == beside->steps;
}

static bool is_unclear(const struct trajd_writer_beside *beside, const char *path, hsize_t extent)
{
    return trajd_writer_fail(
        "%.400s: %.400s: %llu elements, like the rows of the episode, but it is unclear which "
        "rows they belong to (two axes have this length, or streams of this length take "
        "different rows). List it in the layout: under tables: if it has no entry for each "
        "row, else under streams:",
        beside->label, path, (unsigned long long)extent);
}

/* Checks that a dataset has the same axis in all episodes. */
static bool is_as_before(const struct trajd_writer_beside *beside, const char *path, int axis)
{
    struct trajd_writer *writer = beside->writer;

    for (uint32_t i = 0; i < writer->axis_count; i++) {
        if (strcmp(writer->axes[i].path, path))
            continue;
        if (writer->axes[i].axis == axis)
            return true;
        return trajd_writer_fail(
            "%.400s: %.400s: in some episodes one of its axes is as long as the episode, in "
            "others it is not, or another axis is. List it in the layout: under tables: if it "
            "has no entry for each row, else under streams:",
            beside->label, path);
    }
    if (writer->axis_count == TRAJD_WRITER_AXES_MAX)
        return trajd_writer_fail("too many datasets that no stream names");
    writer->axes[writer->axis_count++] =
        (struct trajd_writer_axis){trajd_helper_memory(strdup(path)), axis};
    return true;
}

/* Returns the relation of a dataset without an entry for each row to the rows of all streams. */
static enum trajd_writer_length length_of(const struct trajd_writer_beside *beside, int rank,
                                          const hsize_t *shape)
{
    struct trajd_writer_frame list = beside->row_counts;
    enum trajd_writer_length length = TRAJD_LENGTH_TABLE;

    for (uint32_t i = 0; i < beside->row_count_count && rank > 0; i++) {
        const uint64_t own = trajd_writer_u64(&list),
                       rows = beside->all_rows ? beside->all_rows : own;
        if (shape[0] == rows || shape[0] == rows + 1)
            return TRAJD_LENGTH_OTHER_ROWS;
        if (rows > 1 && shape[0] > rows / 2)
            length = TRAJD_LENGTH_LONG;
    }
    return length;
}

bool trajd_writer_find_length(const struct trajd_writer_beside *beside, hid_t dataset,
                              const char *path, struct trajd_writer_pick *pick)
{
    const size_t bytes = beside->steps * sizeof(uint64_t);
    const hid_t space = H5Dget_space(dataset);
    hsize_t shape[H5S_MAX_RANK] = {0};
    const int rank = H5Sget_simple_extent_dims(space, shape, NULL);
    bool is_same = false;

    *pick = (struct trajd_writer_pick){.axis = -1};
    H5Sclose(space);
    for (uint32_t i = 0; i < beside->pick_count; i++) {
        const uint8_t *count = beside->picks + i * (sizeof(uint64_t) + bytes),
                      *rows = count + sizeof(uint64_t);
        for (int axis = 0; axis < rank; axis++) {
            if (shape[axis] != (beside->all_rows ? beside->all_rows : row_of(count, 0)))
                continue;
            if (is_identity(beside, rows, shape[axis])) {
                is_same = true;
                continue;
            }
            if (pick->rows && (pick->axis != axis || memcmp(pick->rows, rows, bytes)))
                return is_unclear(beside, path, shape[axis]);
            *pick = (struct trajd_writer_pick){TRAJD_LENGTH_ROWS, axis, rows};
        }
    }
    if (is_same && pick->rows)
        return is_unclear(beside, path, beside->steps);
    if (is_same)
        pick->length = TRAJD_LENGTH_SAME;
    else if (!pick->rows)
        pick->length = length_of(beside, rank, shape);
    return is_same || is_as_before(beside, path, pick->axis);
}

/* ---- the copy ---- */

/* Returns why the rows of the dataset cannot be read, or NULL. */
static const char *find_obstacle(hid_t type, hid_t creation)
{
    if (H5Tdetect_class(type, H5T_REFERENCE) > 0)
        return "it refers to other objects";
    if (H5Pget_layout(creation) == H5D_VIRTUAL || H5Pget_external_count(creation) > 0)
        return "its rows are in other files";
    if (H5Pall_filters_avail(creation) <= 0)
        return "it has a filter that libhdf5 lacks";
    return NULL;
}

/* Returns the properties of the copy: the chunks and filters of the source. */
static hid_t creation_of(hid_t source_creation, int rank, const hsize_t *shape)
{
    const bool is_chunked = H5Pget_layout(source_creation) == H5D_CHUNKED;
    const hid_t creation = is_chunked ? H5Pcopy(source_creation) : H5Pcreate(H5P_DATASET_CREATE);
    hsize_t chunk[H5S_MAX_RANK];

    if (is_chunked && H5Pget_chunk(creation, rank, chunk) == rank) {
        for (int d = 0; d < rank; d++)
            chunk[d] = chunk[d] < shape[d] ? chunk[d] : shape[d];
        H5Pset_chunk(creation, rank, chunk);
    }
    H5Pset_obj_track_times(creation, 0);
    return creation;
}

/* A copy in progress. */
struct gathering {
    const uint8_t *rows;
    uint64_t steps, first_row; /* first_row: what rows count from */
    int axis, rank;
    hid_t source, made, type, source_space, made_space;
    hsize_t shape[H5S_MAX_RANK]; /* of the source */
    size_t outer, inner;         /* elements before the axis; bytes behind it */
    uint8_t *in, *out;
};

static hid_t select_rows(const struct gathering *g, hid_t space, uint64_t first, uint64_t count)
{
    hsize_t start[H5S_MAX_RANK] = {0}, extent[H5S_MAX_RANK];

    memcpy(extent, g->shape, (size_t)g->rank * sizeof *extent);
    start[g->axis] = first;
    extent[g->axis] = count;
    if (H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, extent, NULL) < 0)
        return -1;
    return H5Screate_simple(g->rank, extent, NULL);
}

/* Frees the memory of values of variable length. */
static void reclaim(hid_t type, hid_t space, void *values)
{
    if (H5Tdetect_class(type, H5T_VLEN) > 0 || H5Tdetect_class(type, H5T_STRING) > 0)
        H5Dvlen_reclaim(type, space, H5P_DEFAULT, values);
}

/* Reads up to `most` rows from that of `step` on, and writes all steps that take one of them, up to
 * `most`. Returns the number of those steps; 0: failed. */
static uint64_t gather_block(const struct gathering *g, uint64_t step, uint64_t most)
{
    const uint64_t first = row_of(g->rows, step),
                   remaining = g->shape[g->axis] - g->first_row - first,
                   rows = remaining < most ? remaining : most;
    const hid_t in_space = select_rows(g, g->source_space, g->first_row + first, rows);
    uint64_t count = 0;
    hid_t out_space;
    bool ok;

    while (count < most && step + count < g->steps && row_of(g->rows, step + count) - first < rows)
        count++;
    out_space = select_rows(g, g->made_space, step, count);
    ok = in_space >= 0 && out_space >= 0 &&
         H5Dread(g->source, g->type, in_space, g->source_space, H5P_DEFAULT, g->in) >= 0;
    for (size_t o = 0; ok && o < g->outer; o++)
        for (uint64_t i = 0; i < count; i++)
            memcpy(g->out + (o * count + i) * g->inner,
                   g->in + (o * rows + row_of(g->rows, step + i) - first) * g->inner, g->inner);
    if (ok) {
        ok = H5Dwrite(g->made, g->type, out_space, g->made_space, H5P_DEFAULT, g->out) >= 0;
        reclaim(g->type, in_space, g->in);
    }
    trajd_writer_close(in_space);
    trajd_writer_close(out_space);
    return ok ? count : 0;
}

static bool gather(struct gathering *g)
{
    const size_t row_bytes = g->outer * g->inner;
    const uint64_t rows = g->shape[g->axis], longest = rows > g->steps ? rows : g->steps;
    uint64_t most = row_bytes < block_bytes ? block_bytes / row_bytes : 1, done = 0, count = 1;

    if (most > longest)
        most = longest;
    if (H5Tdetect_class(g->type, H5T_VLEN) > 0 && most > variable_rows)
        most = variable_rows;
    g->in = malloc(most * row_bytes);
    g->out = malloc(most * row_bytes);
    while (g->in && g->out && count && done < g->steps) {
        count = gather_block(g, done, most);
        done += count;
    }
    free(g->in);
    free(g->out);
    return done == g->steps;
}

/* Creates the copy and fills it. */
static bool copy_rows(const struct trajd_writer_beside *beside, hid_t source, hid_t to,
                      const char *name, const char *path, const struct trajd_writer_pick *pick)
{
    struct gathering g = {.rows = pick->rows,
                          .steps = beside->steps,
                          .first_row = beside->first_row,
                          .axis = pick->axis};
    const hid_t source_creation = H5Dget_create_plist(source);
    hsize_t shape[H5S_MAX_RANK];
    hid_t creation;
    bool ok;

    g.source = source;
    g.type = H5Dget_type(source);
    g.source_space = H5Dget_space(source);
    g.rank = H5Sget_simple_extent_dims(g.source_space, g.shape, NULL);
    memcpy(shape, g.shape, sizeof shape);
    shape[g.axis] = g.steps;
    creation = creation_of(source_creation, g.rank, shape);
    g.made_space = H5Screate_simple(g.rank, shape, NULL);
    g.made = H5Dcreate2(to, name, g.type, g.made_space, H5P_DEFAULT, creation, H5P_DEFAULT);
    g.outer = 1;
    g.inner = H5Tget_size(g.type);
    for (int d = 0; d < g.rank; d++)
        if (d < g.axis)
            g.outer *= shape[d];
        else if (d > g.axis)
            g.inner *= shape[d];
    ok = g.made >= 0 && (!g.outer || !g.inner || gather(&g));
    if (!ok)
        trajd_writer_fail("%s", path);
    if (ok)
        trajd_writer_copy_attributes(beside->writer, source, g.made, path);
    trajd_writer_close(g.made);
    H5Sclose(g.made_space);
    H5Sclose(g.source_space);
    H5Pclose(creation);
    H5Pclose(source_creation);
    H5Tclose(g.type);
    return ok;
}

bool trajd_writer_pick_rows(const struct trajd_writer_beside *beside, hid_t source, hid_t to,
                            const char *name, const char *path,
                            const struct trajd_writer_pick *pick, const char **obstacle)
{
    const hid_t type = H5Dget_type(source), creation = H5Dget_create_plist(source);

    *obstacle = find_obstacle(type, creation);
    H5Tclose(type);
    H5Pclose(creation);
    return *obstacle || copy_rows(beside, source, to, name, path, pick);
}

bool trajd_writer_copy_values(hid_t source, hid_t to, const char *name)
{
    const hid_t type = H5Dget_type(source), space = H5Dget_space(source),
                creation = H5Dget_create_plist(source);
    const hssize_t count = H5Sget_simple_extent_npoints(space);
    const size_t size = H5Tget_size(type);
    void *values = count >= 0 && size ? calloc((size_t)count + 1, size) : NULL;
    const hid_t made = H5Dcreate2(to, name, type, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    bool ok = values && made >= 0 && !find_obstacle(type, creation) &&
              H5Dread(source, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0;

    if (ok) {
        ok = H5Dwrite(made, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0;
        reclaim(type, space, values);
    }
    free(values);
    trajd_writer_close(made);
    if (made >= 0 && !ok)
        H5Ldelete(to, name, H5P_DEFAULT);
    H5Pclose(creation);
    H5Sclose(space);
    H5Tclose(type);
    return ok;
}
