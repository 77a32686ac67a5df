/* Creates one episode: its group, the datasets of its rows, and copies of the other objects. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/hdf5/helper_socket.h"
#include "daemon/hdf5/writer/writer.h"

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

/* The offsets that the parent gets for the episodes of a frame. */
struct offsets {
    uint64_t *values;
    size_t count, capacity;
};

/* ---- datasets of the recipe ---- */

/* Returns the group of the output's episode that the path lies in. It stays open until the next one
 * is needed. -1 where it cannot be created. */
static hid_t folder_of(struct episode *episode, const char *path)
{
    const char *slash = strrchr(path, '/');
    const size_t length = slash ? (size_t)(slash - path) : 0;

    if (!length)
        return episode->to;
    if (episode->folder >= 0 && strlen(episode->folder_path) == length &&
        !memcmp(episode->folder_path, path, length))
        return episode->folder;
    if (episode->folder >= 0)
        H5Gclose(episode->folder);
    snprintf(episode->folder_path, sizeof episode->folder_path, "%.*s", (int)length, path);
    episode->folder = trajd_writer_make_group(episode->to, episode->folder_path);
    return episode->folder;
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
static bool pick_dataset(struct episode *episode, const struct trajd_writer_dataset *dataset,
                         const struct trajd_writer_place *place, uint32_t which)
{
    const char *slash = strrchr(dataset->path, '/'), *obstacle = "it is not as it was";
    const struct trajd_writer_pick pick = {TRAJD_LENGTH_ROWS, 0, rows_of_pick(episode, which)};
    const hid_t source = trajd_writer_open_source(place->from, dataset->path);
    char what[TRAJD_WRITER_PATH_SIZE];
    bool ok;

    if (!pick.rows)
        return trajd_writer_fail("a dataset of an episode cannot be read");
    ok = source < 0 ||
         trajd_writer_pick_rows(&episode->beside, source, place->to,
                                slash ? slash + 1 : dataset->path, dataset->path, &pick, &obstacle);
    if (source >= 0)
        H5Dclose(source);
    if (ok && obstacle) {
        snprintf(what, sizeof what, "%.400s: %.400s: %s", episode->label, dataset->path, obstacle);
        return trajd_writer_fail(what);
    }
    return ok;
}

static bool make_dataset(struct episode *episode, struct trajd_writer_frame *frame,
                         uint64_t *offset)
{
    struct trajd_writer *writer = episode->writer;
    const uint32_t which = trajd_writer_u32(frame);
    struct trajd_writer_place place = {
        .from = episode->from, .has_attributes = trajd_writer_u8(frame), .rows = episode->steps};

    if (frame->failed || which >= writer->dataset_count)
        return trajd_writer_fail("a dataset of an episode cannot be read");
    place.to = folder_of(episode, writer->datasets[which].path);
    if (place.to < 0)
        return trajd_writer_fail(writer->datasets[which].path);
    *offset = UINT64_MAX;
    if (!writer->datasets[which].rank)
        return pick_dataset(episode, &writer->datasets[which], &place, trajd_writer_u32(frame));
    return trajd_writer_make_dataset(writer, &writer->datasets[which], &place, offset);
}

/* Writes the time of a regular clock's first row: a dataset of one element, with the input's type
 * and shape. */
static bool make_start(struct episode *episode, struct trajd_writer_frame *frame)
{
    static const double units_ns[] = {1, 1e3, 1e6, 1e9};
    char path[TRAJD_WRITER_PATH_SIZE];
    hid_t source, type, space, links, creation, made = -1;
    int64_t ns, units;
    uint8_t unit;
    double number;
    bool ok = false;

    trajd_writer_text(frame, path, sizeof path);
    ns = (int64_t)trajd_writer_u64(frame);
    unit = trajd_writer_u8(frame);
    if (frame->failed || unit > 3)
        return trajd_writer_fail("a start of the recipe cannot be read");
    source = trajd_writer_open_source(episode->from, path);
    if (source < 0)
        return true;
    type = H5Dget_type(source);
    space = H5Dget_space(source);
    links = H5Pcreate(H5P_LINK_CREATE);
    creation = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_create_intermediate_group(links, 1);
    H5Pset_obj_track_times(creation, 0); /* equal inputs give equal outputs */
    units = ns / (int64_t)units_ns[unit];
    number = (double)ns / units_ns[unit];
    if (H5Sget_simple_extent_npoints(space) == 1)
        made = H5Dcreate2(episode->to, path, type, space, links, creation, H5P_DEFAULT);
    if (made >= 0 && H5Tget_class(type) == H5T_INTEGER) {
        if (units * (int64_t)units_ns[unit] != ns)
            trajd_writer_note(
                episode->writer,
                "%s: %s is in whole units, the new start is not: up to one unit early",
                episode->label, path);
        ok = H5Dwrite(made, H5T_NATIVE_INT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, &units) >= 0;
    } else if (made >= 0) {
        ok = H5Dwrite(made, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, &number) >= 0;
    }
    if (made >= 0) {
        trajd_writer_copy_attributes(episode->writer, source, made, path);
        H5Dclose(made);
    }
    H5Pclose(links);
    H5Pclose(creation);
    H5Sclose(space);
    H5Tclose(type);
    H5Dclose(source);
    return ok || trajd_writer_fail(path);
}

/* ---- all episodes ---- */

static bool add_offset(struct offsets *offsets, uint64_t value)
{
    if (offsets->count == offsets->capacity) {
        const size_t capacity = offsets->capacity ? offsets->capacity * 2 : 256;
        uint64_t *grown =
            capacity > LIST_MAX ? NULL : realloc(offsets->values, capacity * sizeof *grown);
        if (!grown)
            return trajd_writer_fail("no memory for offsets");
        offsets->values = grown;
        offsets->capacity = capacity;
    }
    offsets->values[offsets->count++] = value;
    return true;
}

static bool fill_episode(struct episode *episode, struct trajd_writer_frame *frame,
                         struct offsets *offsets)
{
    const uint32_t count = trajd_writer_u32(frame);
    uint64_t offset;
    bool ok = !frame->failed;
    uint32_t starts;

    for (uint32_t i = 0; i < count && ok; i++)
        ok = make_dataset(episode, frame, &offset) && add_offset(offsets, offset);
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

static bool make_episode(struct trajd_writer *writer, struct trajd_writer_frame *frame,
                         struct offsets *offsets)
{
    struct episode episode = {.writer = writer, .folder = -1};
    bool ok = false;

    trajd_writer_text(frame, episode.source, sizeof episode.source);
    trajd_writer_text(frame, episode.target, sizeof episode.target);
    trajd_writer_text(frame, episode.label, sizeof episode.label);
    trajd_writer_text(frame, episode.part, sizeof episode.part);
    episode.steps = trajd_writer_u64(frame);
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
    if (episode.from >= 0 && episode.to >= 0)
        ok = fill_episode(&episode, frame, offsets);
    else
        trajd_writer_fail(episode.label);
    if (episode.folder >= 0)
        H5Gclose(episode.folder);
    if (episode.from >= 0)
        H5Gclose(episode.from);
    if (episode.to >= 0)
        H5Gclose(episode.to);
    H5Eclear2(H5E_DEFAULT);
    return ok;
}

bool trajd_writer_episodes(struct trajd_writer *writer, struct trajd_writer_frame *frame)
{
    const uint32_t count = trajd_writer_u32(frame);
    struct offsets offsets = {0};
    bool ok = !frame->failed || trajd_writer_fail("episodes of the recipe cannot be read");

    for (uint32_t i = 0; i < count && ok; i++)
        ok = make_episode(writer, frame, &offsets);
    ok = ok && trajd_helper_send(TRAJD_WRITER_OFFSETS, offsets.values,
                                 offsets.count * sizeof *offsets.values);
    free(offsets.values);
    return ok;
}
