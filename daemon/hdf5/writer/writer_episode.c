/* Creates the episodes: their groups, the arrays of their rows, and copies of the other objects.
 * Types, dataspaces and property lists are made once for all episodes: in libhdf5 they take as long
 * as a dataset. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/hdf5/writer/writer.h"
#include "proto/dtype.h"

enum { LIST_MAX = 1 << 20 };

struct episode {
    struct trajd_writer *writer;
    struct trajd_writer_beside beside;
    uint64_t steps;
    bool has_more; /* the source may hold objects that the recipe does not name */
    char source[TRAJD_WRITER_PATH_SIZE], target[TRAJD_WRITER_PATH_SIZE],
        label[TRAJD_WRITER_PATH_SIZE];
    char part[TRAJD_WRITER_PATH_SIZE]; /* which part of the source it is; "": all of it */
    hid_t from, to;
    hid_t folder; /* an open group of the output; -1: none */
    char folder_path[TRAJD_WRITER_PATH_SIZE];
};

static const char *name_of(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

/* ---- datasets of the recipe ---- */

static hid_t half_type(void)
{
    const hid_t type = H5Tcopy(H5T_IEEE_F32LE);

    H5Tset_fields(type, 15, 10, 5, 0, 10);
    H5Tset_size(type, 2);
    H5Tset_ebias(type, 15);
    return type;
}

/* Returns the file type of one of our element types; -1 where HDF5 has none. */
static hid_t file_type(uint8_t dtype)
{
    const hid_t types[] = {
        [TRAJD_F32] = H5T_IEEE_F32LE, [TRAJD_F64] = H5T_IEEE_F64LE, [TRAJD_I8] = H5T_STD_I8LE,
        [TRAJD_I16] = H5T_STD_I16LE,  [TRAJD_I32] = H5T_STD_I32LE,  [TRAJD_I64] = H5T_STD_I64LE,
        [TRAJD_U8] = H5T_STD_U8LE,    [TRAJD_U16] = H5T_STD_U16LE,  [TRAJD_U32] = H5T_STD_U32LE,
        [TRAJD_U64] = H5T_STD_U64LE};

    if (dtype == TRAJD_F16)
        return half_type();
    return dtype < sizeof types / sizeof *types && types[dtype] ? types[dtype] : -1;
}

static hid_t creation_of(const struct trajd_writer_dataset *dataset)
{
    const hid_t creation = H5Pcreate(H5P_DATASET_CREATE);

    H5Pset_obj_track_times(creation, 0);
    if (!dataset->chunk[0]) {
        H5Pset_alloc_time(creation, H5D_ALLOC_TIME_EARLY);
        H5Pset_fill_time(creation, H5D_FILL_TIME_NEVER);
        return creation;
    }
    H5Pset_chunk(creation, dataset->rank, dataset->chunk);
    if (trajd_dtype_size((enum trajd_dtype)dataset->dtype) > 1)
        H5Pset_shuffle(creation);
    H5Pset_deflate(creation, dataset->level);
    return creation;
}

static bool read_dataset(struct trajd_writer_dataset *dataset, struct trajd_writer_frame *frame)
{
    char path[TRAJD_WRITER_PATH_SIZE];

    trajd_writer_text(frame, path, sizeof path);
    dataset->path = trajd_helper_memory(strdup(path));
    dataset->dtype = trajd_writer_u8(frame);
    dataset->rank = trajd_writer_u8(frame);
    if (frame->failed || dataset->rank > TRAJD_WRITER_RANK_MAX)
        return false;
    if (!dataset->rank)
        return true;
    dataset->shape[0] = 1;
    for (uint8_t d = 1; d < dataset->rank; d++)
        dataset->shape[d] = trajd_writer_u64(frame);
    for (uint8_t d = 0; d < dataset->rank; d++)
        dataset->chunk[d] = trajd_writer_u64(frame);
    dataset->chunk_rows = dataset->chunk[0];
    dataset->level = trajd_writer_u8(frame);
    if (frame->failed)
        return false;
    dataset->type = dataset->dtype == TRAJD_BOOL ? -1 : file_type(dataset->dtype);
    dataset->space = H5Screate_simple(dataset->rank, dataset->shape, NULL);
    dataset->creation = creation_of(dataset);
    return dataset->space >= 0 && dataset->creation >= 0 &&
           (dataset->type >= 0 || dataset->dtype == TRAJD_BOOL);
}

bool trajd_writer_datasets(struct trajd_writer *writer, struct trajd_writer_frame *frame)
{
    const uint32_t count = trajd_writer_u32(frame);

    if (writer->datasets || frame->failed || count > LIST_MAX)
        return trajd_writer_fail("the recipe's datasets cannot be read");
    writer->datasets = trajd_helper_memory(calloc((size_t)count + 1, sizeof *writer->datasets));
    for (; writer->dataset_count < count; writer->dataset_count++)
        if (!read_dataset(&writer->datasets[writer->dataset_count], frame))
            return trajd_writer_fail("a dataset of the recipe cannot be read");
    return true;
}

/* ---- one array ---- */

/* Sets the dataspace and the chunks for `rows` rows. */
static bool set_rows(struct trajd_writer_dataset *dataset, uint64_t rows)
{
    const hsize_t chunk_rows = dataset->chunk_rows < rows ? dataset->chunk_rows : rows;

    if (dataset->shape[0] != rows) {
        dataset->shape[0] = rows;
        if (H5Sset_extent_simple(dataset->space, dataset->rank, dataset->shape, NULL) < 0)
            return false;
    }
    if (dataset->chunk[0] == chunk_rows || !dataset->chunk_rows)
        return true;
    dataset->chunk[0] = chunk_rows;
    return H5Pset_chunk(dataset->creation, dataset->rank, dataset->chunk) >= 0;
}

/* Returns how many rows, or chunks, an array of the dataset has. */
static uint64_t count_pieces(const struct trajd_writer_dataset *dataset)
{
    uint64_t count = 1;

    if (!dataset->chunk_rows)
        return dataset->shape[0];
    for (uint8_t d = 0; d < dataset->rank; d++)
        count *= (dataset->shape[d] + dataset->chunk[d] - 1) / dataset->chunk[d];
    return count;
}

/* Opens a dataset of the source; -1 where there is none. The caller closes it. */
static hid_t open_source(hid_t from, const char *path)
{
    const hid_t source = H5Dopen2(from, path, H5P_DEFAULT);

    if (source < 0)
        H5Eclear2(H5E_DEFAULT);
    return source;
}

/* Creates an array in the group `to`. The source's dataset gives the attributes, and for bool the
 * type, an enum that can only be copied. */
static bool make_array(struct episode *episode, struct trajd_writer_dataset *dataset, hid_t to,
                       bool has_attributes, struct trajd_writer_array *array)
{
    const bool needs_source = has_attributes || dataset->type < 0;
    const hid_t source = needs_source ? open_source(episode->from, dataset->path) : -1;

    array->type = dataset->type;
    if (dataset->type < 0 && source >= 0)
        array->type = array->own_type = H5Dget_type(source);
    if (array->type >= 0 && set_rows(dataset, episode->steps))
        array->id = H5Dcreate2(to, name_of(dataset->path), array->type, dataset->space, H5P_DEFAULT,
                               dataset->creation, H5P_DEFAULT);
    array->left = count_pieces(dataset);
    array->rows = episode->steps;
    array->row_bytes = H5Tget_size(array->type);
    for (uint8_t d = 1; d < dataset->rank; d++)
        array->row_bytes *= dataset->shape[d];
    if (array->id >= 0 && source >= 0 && has_attributes)
        trajd_writer_copy_attributes(episode->writer, source, array->id, dataset->path);
    trajd_writer_close(source);
    return array->id >= 0 || trajd_writer_fail("%s", dataset->path);
}

/* Returns the rows of a pick, as they stand in the frame. NULL: there is no such pick. */
static const uint8_t *rows_of_pick(const struct episode *episode, uint32_t which)
{
    const size_t bytes = (1 + episode->steps) * sizeof(uint64_t);

    return which < episode->beside.pick_count
               ? episode->beside.picks + which * bytes + sizeof(uint64_t)
               : NULL;
}

/* Copies the rows that the steps take of a dataset of encoded frames. */
static bool pick_array(struct episode *episode, const struct trajd_writer_dataset *dataset,
                       hid_t to, uint32_t which)
{
    const char *obstacle = "it is not as it was";
    const struct trajd_writer_pick pick = {TRAJD_LENGTH_ROWS, 0, rows_of_pick(episode, which)};
    const hid_t source = open_source(episode->from, dataset->path);
    bool ok;

    if (!pick.rows)
        return trajd_writer_fail("a dataset of an episode cannot be read");
    ok = source < 0 || trajd_writer_pick_rows(&episode->beside, source, to, name_of(dataset->path),
                                              dataset->path, &pick, &obstacle);
    trajd_writer_close(source);
    return ok && (!obstacle ||
                  trajd_writer_fail("%.400s: %.400s: %s", episode->label, dataset->path, obstacle));
}

/* Returns the group of the output's episode that the path is in. It stays open until the next one
 * is needed. -1 where it cannot be created. */
static hid_t folder_of(struct episode *episode, const char *path)
{
    const char *name = name_of(path);
    const size_t length = name == path ? 0 : (size_t)(name - path) - 1;

    if (!length)
        return episode->to;
    if (episode->folder >= 0 && strlen(episode->folder_path) == length &&
        !memcmp(episode->folder_path, path, length))
        return episode->folder;
    trajd_writer_close(episode->folder);
    snprintf(episode->folder_path, sizeof episode->folder_path, "%.*s", (int)length, path);
    episode->folder = trajd_writer_make_group(episode->to, episode->folder_path);
    return episode->folder;
}

static bool read_array(struct episode *episode, struct trajd_writer_frame *frame,
                       struct trajd_writer_array *array)
{
    struct trajd_writer *writer = episode->writer;
    const uint32_t which = trajd_writer_u32(frame);
    const bool has_attributes = trajd_writer_u8(frame);
    struct trajd_writer_dataset *dataset;
    hid_t to;

    if (frame->failed || which >= writer->dataset_count)
        return trajd_writer_fail("a dataset of an episode cannot be read");
    dataset = &writer->datasets[which];
    to = folder_of(episode, dataset->path);
    if (to < 0)
        return trajd_writer_fail("%s", dataset->path);
    return dataset->rank ? make_array(episode, dataset, to, has_attributes, array)
                         : pick_array(episode, dataset, to, trajd_writer_u32(frame));
}

/* ---- the time of the first row ---- */

/* Writes the time of a regular clock's first row: a dataset of one element, with the input's type
 * and shape. */
static bool write_start(struct episode *episode, hid_t made, hid_t type, const char *path,
                        int64_t ns, int64_t unit_ns)
{
    const int64_t units = ns / unit_ns;
    const double number = (double)ns / (double)unit_ns;

    if (H5Tget_class(type) != H5T_INTEGER)
        return H5Dwrite(made, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, &number) >= 0;
    if (units * unit_ns != ns)
        trajd_writer_note(episode->writer,
                          "%s: %s is in whole units, the new start is not: up to one unit early",
                          episode->label, path);
    return H5Dwrite(made, H5T_NATIVE_INT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, &units) >= 0;
}

static bool make_start(struct episode *episode, struct trajd_writer_frame *frame)
{
    static const int64_t units_ns[] = {1, 1000, 1000000, 1000000000};
    char path[TRAJD_WRITER_PATH_SIZE];
    hid_t source, type, space, links, creation, made = -1;
    int64_t ns;
    uint8_t unit;
    bool ok;

    trajd_writer_text(frame, path, sizeof path);
    ns = (int64_t)trajd_writer_u64(frame);
    unit = trajd_writer_u8(frame);
    if (frame->failed || unit > 3)
        return trajd_writer_fail("a start of the recipe cannot be read");
    source = open_source(episode->from, path);
    if (source < 0)
        return true;
    type = H5Dget_type(source);
    space = H5Dget_space(source);
    links = H5Pcreate(H5P_LINK_CREATE);
    creation = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_create_intermediate_group(links, 1);
    H5Pset_obj_track_times(creation, 0); /* equal inputs give equal outputs */
    if (H5Sget_simple_extent_npoints(space) == 1)
        made = H5Dcreate2(episode->to, path, type, space, links, creation, H5P_DEFAULT);
    ok = made >= 0 && write_start(episode, made, type, path, ns, units_ns[unit]);
    if (made >= 0)
        trajd_writer_copy_attributes(episode->writer, source, made, path);
    trajd_writer_close(made);
    trajd_writer_close(links);
    trajd_writer_close(creation);
    trajd_writer_close(space);
    trajd_writer_close(type);
    trajd_writer_close(source);
    return ok || trajd_writer_fail("%s", path);
}

/* ---- all episodes ---- */

static bool fill_episode(struct episode *episode, struct trajd_writer_frame *frame)
{
    const uint32_t count = trajd_writer_u32(frame);
    struct trajd_writer_array *arrays;
    uint32_t starts;
    bool ok = !frame->failed && count <= LIST_MAX;

    if (!ok)
        return trajd_writer_fail("an episode of the recipe cannot be read");
    arrays = trajd_writer_add_episode(episode->writer, count);
    for (uint32_t i = 0; i < count && ok; i++)
        ok = read_array(episode, frame, &arrays[i]);
    starts = ok ? trajd_writer_u32(frame) : 0;
    for (uint32_t i = 0; i < starts && ok; i++)
        ok = make_start(episode, frame);
    if (!ok)
        return false;
    if (episode->has_more)
        ok = trajd_writer_copy_folder(&episode->beside, episode->from, episode->to, "");
    else
        trajd_writer_copy_attributes(episode->writer, episode->from, episode->to, episode->target);
    trajd_writer_set_count(episode->to, "num_samples", episode->steps);
    trajd_writer_set_text(episode->to, "trajd_source", episode->label, true);
    if (*episode->part)
        trajd_writer_set_text(episode->to, "trajd_part", episode->part, true);
    return ok;
}

static void read_picks(struct episode *episode, struct trajd_writer_frame *frame)
{
    episode->beside.steps = episode->steps;
    episode->beside.pick_count = trajd_writer_u32(frame);
    episode->beside.picks = frame->next;
    for (uint32_t i = 0; i < episode->beside.pick_count && !frame->failed; i++) {
        const uint64_t rows = trajd_writer_u64(frame);
        for (uint64_t step = 0; step < episode->steps && !frame->failed; step++)
            frame->failed = trajd_writer_u64(frame) >= rows || frame->failed;
    }
}

/* Opens the group of the output with what the episodes of one group share: of the first input that
 * group itself, of a further one the group of the first episode. */
static hid_t open_shared(struct episode *episode)
{
    struct trajd_writer *writer = episode->writer;
    hid_t shared;

    if (!strcmp(writer->shared_source, episode->source))
        return trajd_writer_make_group(writer->output, writer->shared_path);
    strcpy(writer->shared_source, episode->source);
    strcpy(writer->shared_path, writer->is_first ? episode->source : episode->target);
    shared = trajd_writer_make_group(writer->output, writer->shared_path);
    if (shared >= 0)
        trajd_writer_copy_attributes(writer, episode->from, shared, episode->source);
    return shared;
}

static bool make_episode(struct trajd_writer *writer, struct trajd_writer_frame *frame)
{
    struct episode episode = {.writer = writer, .folder = -1, .beside.shared = -1};
    bool ok;

    trajd_writer_text(frame, episode.source, sizeof episode.source);
    trajd_writer_text(frame, episode.target, sizeof episode.target);
    trajd_writer_text(frame, episode.label, sizeof episode.label);
    trajd_writer_text(frame, episode.part, sizeof episode.part);
    episode.steps = trajd_writer_u64(frame);
    episode.beside.first_row = trajd_writer_u64(frame);
    episode.beside.all_rows = trajd_writer_u64(frame);
    episode.has_more = trajd_writer_u8(frame);
    episode.beside.writer = writer;
    episode.beside.label = episode.label;
    episode.beside.is_episode = true;
    episode.beside.row_count_count = trajd_writer_u32(frame);
    episode.beside.row_counts = *frame;
    for (uint32_t i = 0; i < episode.beside.row_count_count && !frame->failed; i++)
        trajd_writer_u64(frame);
    read_picks(&episode, frame);
    if (frame->failed)
        return trajd_writer_fail("an episode of the recipe cannot be read");
    episode.from = H5Gopen2(writer->input, episode.source, H5P_DEFAULT);
    episode.to = episode.from < 0 ? -1 : trajd_writer_make_group(writer->output, episode.target);
    if (episode.beside.all_rows && episode.from >= 0 && episode.to >= 0)
        episode.beside.shared = open_shared(&episode);
    ok = episode.from >= 0 && episode.to >= 0 &&
                 (!episode.beside.all_rows || episode.beside.shared >= 0)
             ? fill_episode(&episode, frame)
             : trajd_writer_fail("%s", episode.label);
    trajd_writer_close(episode.beside.shared);
    trajd_writer_close(episode.folder);
    trajd_writer_close(episode.from);
    trajd_writer_close(episode.to);
    H5Eclear2(H5E_DEFAULT);
    return ok;
}

bool trajd_writer_episodes(struct trajd_writer *writer, struct trajd_writer_frame *frame)
{
    const uint32_t count = trajd_writer_u32(frame);
    bool ok = (!frame->failed && writer->input >= 0) ||
              trajd_writer_fail("episodes of the recipe cannot be read");

    for (uint32_t i = 0; i < count && ok; i++)
        ok = make_episode(writer, frame);
    return ok;
}
