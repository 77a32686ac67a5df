/* Lists the datasets of frames in a file, and writes the packed copy through the helper
 * program. */
#include "clients/cli/pack/pack_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "clients/cli/pack/pack_internal.h"
#include "clients/cli/resample/convert_structure.h"
#include "daemon/base/memory.h"
#include "daemon/window/image/image_prepared.h"
#include "proto/regular_file.h"

enum { FILE_TIMEOUT_MS = 600000, BLOCK_BYTES = 4 << 20, LEAST_BYTES = 64 << 10, BLOCK_COUNT = 3 };

/* ---- the datasets ---- */

static const struct trajd_index_stream *stream_of(const struct trajd_index *index, uint32_t array)
{
    for (uint32_t s = 0; s < index->stream_count; s++)
        if (index->streams[s].array_index == array)
            return &index->streams[s];
    return NULL;
}

/* Returns whether each row is in one piece and without compression: reading one needs nothing
 * else. */
static bool is_in_one_piece(const struct trajd_array *array)
{
    if (array->storage != TRAJD_STORAGE_CHUNKED)
        return true;
    for (uint32_t d = 1; d < array->rank; d++)
        if (array->chunk_shape[d] < array->shape[d])
            return false;
    return !array->filter_count;
}

static bool is_packable(const struct pack *p, const struct trajd_array *array, bool is_image)
{
    if (array->form == TRAJD_ROWS_PACKED || array->form == TRAJD_ROWS_VIDEO)
        return false;
    if (trajd_array_is_encoded(array))
        return true;
    if (is_image && is_in_one_piece(array))
        p->result->left_count++;
    return is_image && !is_in_one_piece(array);
}

/* Sets what the frames of the output are. Their size: raw ones have that of their shape, which the index checked. */
static void set_size(struct pack_dataset *dataset)
{
    const struct trajd_array *array = &dataset->array;
    const bool is_encoded = trajd_array_is_encoded(array);

    if (dataset->is_prepared) {
        dataset->image = trajd_layout_image_prepared(
            &dataset->image, dataset->jpeg_quality ? TRAJD_ENCODING_JPEG : TRAJD_ENCODING_RAW);
        dataset->image.height = dataset->preparation.height;
        dataset->image.width = dataset->preparation.width;
        return;
    }
    dataset->image.height = is_encoded ? array->header.height : (uint32_t)array->shape[1];
    dataset->image.width = is_encoded ? array->header.width : (uint32_t)array->shape[2];
}

static void add_dataset(struct pack *p, const struct trajd_episode *episode, uint32_t array)
{
    const struct trajd_index *index = p->options->index;
    struct pack_dataset *dataset = &p->datasets[p->count];
    char path[PACK_PATH_SIZE];

    convert_episode_path(index, episode->id, path, sizeof path);
    dataset->array = episode->extents[array];
    trajd_array_uncut(&dataset->array);
    dataset->image = dataset->stream->image;
    if (dataset->stream->color_is_given) /* by a configuration; the file is read with the layout */
        dataset->image.color =
            trajd_layout_image_of(index->layout, index->arrays[array].path)->color;
    set_size(dataset);
    dataset->offsets =
        trajd_memory_or_exit(calloc(dataset->array.shape[0] + 1, sizeof *dataset->offsets));
    if (asprintf(&dataset->path, "%s%s%s", path + 1, path[1] ? "/" : "",
                 index->arrays[array].path) < 0)
        trajd_memory_or_exit(NULL);
    p->count++;
}

static int compare_datasets(const void *a, const void *b)
{
    return strcmp(((const struct pack_dataset *)a)->path, ((const struct pack_dataset *)b)->path);
}

static enum trajd_status nothing_to_pack(struct pack *p)
{
    const char *layout = p->options->index->layout->name;

    if (p->result->left_count)
        return trajd_error_set(p->error, TRAJD_ERR_NOT_FOUND, 0,
                               "nothing to pack: its frames are raw pixels without compression, "
                               "each frame in one piece, which are read row by row as they are");
    return trajd_error_set(p->error, TRAJD_ERR_NOT_FOUND, 0,
                           "no stream of layout %s holds frames that are not packed (a stream of "
                           "frames has the key image)",
                           layout);
}

/* Adds the dataset of one episode, if its frames are to be packed. */
static enum trajd_status find_dataset(struct pack *p, const struct trajd_episode *episode,
                                      uint32_t array)
{
    const struct trajd_array *extent = &episode->extents[array];
    struct pack_dataset *dataset = &p->datasets[p->count];
    enum trajd_status status;

    dataset->stream = stream_of(p->options->index, array);
    if (!dataset->stream || extent->storage == TRAJD_STORAGE_ABSENT)
        return TRAJD_OK;
    status = pack_find_preparation(p, dataset);
    if (status ||
        (!dataset->is_prepared && !is_packable(p, extent, dataset->stream->image.is_present)))
        return status;
    p->result->prepared_count += dataset->is_prepared;
    add_dataset(p, episode, array);
    return TRAJD_OK;
}

/* Lists the datasets of all kept episodes. */
static enum trajd_status find_datasets(struct pack *p)
{
    const struct trajd_index *index = p->options->index;
    enum trajd_status status = TRAJD_OK;

    for (uint32_t i = 0; i < index->array_count; i++)
        if (index->layout->split.kind ||
            trajd_layout_is_pattern(index->layout, index->arrays[i].path))
            return trajd_error_set(p->error, TRAJD_ERR_UNSUPPORTED, 0,
                                   "layout %s cuts arrays into episodes, or finds datasets by a "
                                   "'*': such files cannot be packed",
                                   index->layout->name);
    p->datasets = trajd_memory_or_exit(
        calloc((size_t)index->episode_count * index->array_count + 1, sizeof *p->datasets));
    for (uint32_t e = 0; e < index->episode_count && !status; e++)
        for (uint32_t i = 0; i < index->array_count && !status; i++)
            if (!index->episodes[e].quarantine)
                status = find_dataset(p, &index->episodes[e], i);
    if (!status && p->options->preparation_count && !p->result->prepared_count)
        status =
            trajd_error_set(p->error, TRAJD_ERR_NOT_FOUND, 0,
                            "nothing to prepare: the feed or preset takes no frames of this file "
                            "that are to be decoded, cropped or resized (--jpeg leaves images as "
                            "they are). An output with `image: {resize: 224}`, for example, gives "
                            "them another size");
    if (!status && !p->count)
        status = nothing_to_pack(p);
    qsort(p->datasets, p->count, sizeof *p->datasets, compare_datasets);
    return status;
}

/* ---- the size of the output ---- */

/* Compares the room with what is known of the output's size before it is written: not the bytes of
 * JPEGs, and of a file whose frames are prepared not what else is in it. Notes the size of prepared
 * frames. TRAJD_ERR_IO: the filesystem has less room. */
static enum trajd_status check_room(struct pack *p)
{
    const struct pack_options *options = p->options;
    const struct pack_result *result = p->result;
    const char *output = options->output, *slash = strrchr(output, '/');
    char folder[OUTPUT_PATH_SIZE], text[OUTPUT_PATH_SIZE + 128];
    uint64_t needed = result->packed_bytes, room;
    struct statvfs found;

    if (!result->prepared_count && result->size_before > result->stored_bytes)
        needed += result->size_before - result->stored_bytes;
    snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - output + 1) : 1,
             slash ? output : ".");
    if (statvfs(folder, &found))
        return trajd_error_set(p->error, TRAJD_ERR_IO, errno, "%s: %s", folder, strerror(errno));
    room = (uint64_t)found.f_bavail * found.f_frsize;
    if (needed > room && found.f_blocks) /* some filesystems do not tell */
        return trajd_error_set(p->error, TRAJD_ERR_IO, ENOSPC,
                               "%s: the file needs about %.1f MB, and %s has %.1f MB free: make "
                               "room, or name another folder",
                               output, (double)needed / 1e6, folder, (double)room / 1e6);
    snprintf(text, sizeof text, "%s: the frames will have %.1f MB, and %.1f MB are free", output,
             (double)needed / 1e6, (double)room / 1e6);
    if (result->prepared_count && !options->jpeg_quality && options->on_note)
        options->on_note(options->context, text);
    return TRAJD_OK;
}

/* ---- the output ---- */

static void write_preparation(const struct pack_dataset *dataset,
                              char text[TRAJD_PREPARATION_TEXT_SIZE])
{
    const struct trajd_index_stream *stream = dataset->stream;
    const struct trajd_image_prepared prepared = {
        .preparation = dataset->preparation,
        .rank = stream->rank,
        .is_bgr_for_cv2 = trajd_image_is_bgr_for_cv2(stream->encoding, stream->image.color),
        .jpeg_quality = dataset->jpeg_quality};

    trajd_image_prepared_write(&prepared, text);
}

/* Sends a group of packed frames that takes the place of the dataset. */
static enum trajd_status make_group(struct pack *p, const struct pack_dataset *dataset)
{
    const struct trajd_layout_image *image = &dataset->image;
    struct trajd_bytes *frame = &p->writer.frame;
    char preparation[TRAJD_PREPARATION_TEXT_SIZE] = "";

    if (dataset->is_prepared)
        write_preparation(dataset, preparation);
    convert_writer_begin(&p->writer);
    trajd_bytes_add_text(frame, dataset->path);
    trajd_bytes_add_u64(frame, dataset->array.shape[0]);
    trajd_bytes_add_u64(frame, (uint64_t)dataset->offsets[dataset->array.shape[0]]);
    trajd_bytes_add_text(frame, trajd_image_encoding_name(dataset->encoding));
    trajd_bytes_add_text(frame, trajd_image_color_name(image->color));
    trajd_bytes_add_text(frame, trajd_image_flip_name(image->flip));
    trajd_bytes_add_text(frame, trajd_depth_unit_name(image->unit));
    trajd_bytes_add_u32(frame, image->height);
    trajd_bytes_add_u32(frame, image->width);
    trajd_bytes_add_text(frame, preparation);
    return convert_writer_send(&p->writer, TRAJD_WRITER_FRAMES, -1);
}

/* Lets the helper program copy the file without the datasets that are packed. */
static enum trajd_status copy_file(struct pack *p)
{
    enum trajd_status status = convert_writer_start(
        &p->writer, p->output.fd, p->result->size_before <= TRAJD_WRITER_SMALL_BYTES);

    if (status ||
        (status = convert_writer_share(&p->writer, BLOCK_BYTES, LEAST_BYTES, BLOCK_COUNT)))
        return status;
    convert_writer_begin(&p->writer);
    trajd_bytes_add_text(&p->writer.frame, p->options->index->files[0].relative_path);
    trajd_bytes_add_u32(&p->writer.frame, p->count);
    for (uint32_t i = 0; i < p->count; i++)
        trajd_bytes_add_text(&p->writer.frame, p->datasets[i].path);
    status = convert_writer_send(&p->writer, TRAJD_WRITER_COPY, p->input);
    return status ? status : convert_writer_wait(&p->writer);
}

/* Writes a dataset. A group is made with the length of its frames, which of JPEGs is known when all
 * of them are made. */
static enum trajd_status write_dataset(struct pack *p, struct pack_dataset *dataset)
{
    const bool is_spooled = dataset->jpeg_quality != 0;
    enum trajd_status status = is_spooled ? pack_prepare(p, dataset) : TRAJD_OK;

    if (!status)
        status = make_group(p, dataset);
    if (status)
        return status;
    if (is_spooled)
        status = pack_write_spooled(p, dataset);
    else
        status = dataset->is_prepared ? pack_prepare(p, dataset) : pack_write(p, dataset);
    return status ? status : pack_write_offsets(p, dataset);
}

/* Writes the whole output. */
static enum trajd_status write_output(struct pack *p)
{
    enum trajd_status status = copy_file(p);

    for (uint32_t i = 0; i < p->count && !status; i++)
        status = write_dataset(p, &p->datasets[i]);
    convert_writer_begin(&p->writer);
    if (!status)
        status = convert_writer_send(&p->writer, TRAJD_WRITER_CLOSE, -1);
    return status ? status : convert_writer_wait(&p->writer);
}

/* ---- the finished file ---- */

/* Compares the number of rows of all arrays: those of prepared frames have other bytes. */
static bool has_same_rows(const struct trajd_index *before, const struct trajd_index *after,
                          uint32_t episode)
{
    for (uint32_t i = 0; i < before->array_count; i++)
        if (trajd_array_row_count(&before->episodes[episode].extents[i]) !=
            trajd_array_row_count(&after->episodes[episode].extents[i]))
            return false;
    return true;
}

/* Returns whether the index has the preparations that were written. */
static bool has_preparations(struct pack *p, const struct trajd_index *after)
{
    for (uint32_t s = 0; s < after->stream_count; s++) {
        struct pack_dataset wanted = {.stream = &p->options->index->streams[s]};
        char text[TRAJD_PREPARATION_TEXT_SIZE];
        if (pack_find_preparation(p, &wanted))
            return false;
        if (!wanted.is_prepared)
            continue;
        write_preparation(&wanted, text);
        if (!after->streams[s].preparation || strcmp(after->streams[s].preparation, text))
            return false;
    }
    return true;
}

static const char *difference(struct pack *p, const struct trajd_index *after)
{
    const struct trajd_index *before = p->options->index;
    const bool is_prepared = p->result->prepared_count;

    if (before->episode_count != after->episode_count || before->kept_count != after->kept_count)
        return "its episodes are not those of the input";
    if (before->stream_count != after->stream_count || before->array_count != after->array_count)
        return "its streams are not those of the input";
    for (uint32_t e = 0; e < before->episode_count; e++)
        if (!before->episodes[e].quarantine &&
            (is_prepared ? !has_same_rows(before, after, e)
                         : before->episodes[e].content_digest != after->episodes[e].content_digest))
            return "its rows are not those of the input";
    return has_preparations(p, after) ? NULL : "its frames are not prepared as they should be";
}

/* Reads the output with the input's layout: it must hold the same episodes, streams and rows. */
static enum trajd_status check_output(struct pack *p)
{
    const struct trajd_layout *source = p->options->index->layout;
    const struct trajd_index_options options = {.path = p->output.partial,
                                                .media_folder = p->options->index->media_folder,
                                                .helper_path = p->options->helper_path,
                                                .child_count = 1,
                                                .file_timeout_ms = FILE_TIMEOUT_MS};
    struct trajd_index *index = NULL;
    struct trajd_layout *layout;
    const char *why;
    enum trajd_status status =
        trajd_layout_parse(source->name, source->text, source->text_length, &layout, p->error);

    if (!status)
        status = trajd_index_open_as(&options, layout, &index, p->error);
    why = status ? NULL : difference(p, index);
    if (why)
        status = trajd_error_set(p->error, TRAJD_ERR_DATA, 0, "%s", why);
    if (status)
        trajd_error_prefix(p->error, "%s: the packed file is not published", p->options->output);
    if (index)
        trajd_index_destroy(&index);
    return status;
}

static enum trajd_status publish(struct pack *p)
{
    bool is_sure;
    struct stat status;

    if (fsync(p->output.fd) || fstat(p->output.fd, &status))
        return trajd_error_set(p->error, TRAJD_ERR_IO, errno, "%s: %s", p->output.partial,
                               strerror(errno));
    p->result->size_after = (uint64_t)status.st_size;
    return output_file_check_name(&p->output, p->error)
               ? p->error->status
               : output_file_publish(&p->output, &is_sure, p->error);
}

static void clear(struct pack *p)
{
    convert_writer_end(&p->writer);
    output_file_close(&p->output);
    trajd_encoded_reader_destroy(&p->reader);
    for (uint32_t i = 0; i < p->count; i++) {
        free(p->datasets[i].path);
        free(p->datasets[i].offsets);
    }
    free(p->datasets);
    if (p->input >= 0)
        close(p->input);
    if (p->spool >= 0)
        close(p->spool);
}

static enum trajd_status run(struct pack *p)
{
    const struct pack_options *options = p->options;
    enum trajd_status status =
        output_file_name(&p->output, options->output, options->force, p->error);

    if (status)
        return status;
    if (!options->force && !access(options->output, F_OK))
        return trajd_error_set(p->error, TRAJD_ERR_ARGUMENT, EEXIST, "%s: %s (--force replaces it)",
                               options->output, strerror(EEXIST));
    trajd_encoded_reader_create(&p->reader, NULL);
    trajd_memory_or_exit(p->reader);
    if ((status = find_datasets(p)) ||
        (status = trajd_open_regular(options->index->files[0].path, &p->input, p->error)))
        return status;
    for (uint32_t i = 0; i < p->count; i++)
        p->row_total += pack_count_rows(&p->datasets[i]);
    for (uint32_t i = 0; i < p->count && !status; i++)
        status = pack_measure(p, &p->datasets[i]);
    if (status || (status = check_room(p)) || (status = output_file_open(&p->output, p->error)) ||
        (status = write_output(p)) || (status = output_file_check_name(&p->output, p->error)) ||
        (status = check_output(p)))
        return status;
    return publish(p);
}

enum trajd_status pack_file(const struct pack_options *options, struct pack_result *result,
                            struct trajd_error *error)
{
    struct pack p = {.options = options,
                     .error = error,
                     .input = -1,
                     .spool = -1,
                     .output = {.fd = -1},
                     .writer = {.helper_path = options->helper_path,
                                .output = options->output,
                                .cancel = options->cancel,
                                .on_note = options->on_note,
                                .context = options->context,
                                .error = error,
                                .socket = -1},
                     .result = result};
    enum trajd_status status;

    *result = (struct pack_result){.size_before = options->index->files[0].stat.size_bytes};
    status = run(&p);
    clear(&p);
    return status;
}
