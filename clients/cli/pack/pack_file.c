#include "clients/cli/pack/pack_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "clients/cli/resample/convert_child.h"
#include "clients/cli/resample/convert_summary.h"
#include "daemon/base/files.h"
#include "daemon/index/rows/encoded.h"
#include "daemon/index/writer_protocol.h"

enum { PATH_SIZE = 4096, FILE_TIMEOUT_MS = 600000 };
#define BLOCK_BYTES                                                                                \
    (UINT64_C(2) << 20)          /* of stored rows that are read at a time: they stay in cache */
#define BLOCK_ROWS UINT64_C(256) /* that are read and written at a time at most */

/* One dataset of frames. */
struct packing {
    char *path; /* from the root, without a slash in front */
    const struct trajd_array *array;
    struct trajd_layout_image image; /* with the size of the first frame */
    enum trajd_picture_encoding encoding;
    int64_t *offsets; /* [rows + 1] */
    uint64_t places[2];
};

struct pack {
    const struct pack_options *options;
    struct trajd_error *error;
    struct trajd_encoded_reader *reader;
    int input, output;
    char partial[PATH_SIZE];
    uint32_t count;
    struct packing *packings;
    struct pack_result *result;
};

static enum trajd_status no_memory(struct pack *p)
{
    return trajd_error_set(p->error, TRAJD_ERR_MEMORY, 0, "no memory to pack a file");
}

static enum trajd_status output_failed(struct pack *p)
{
    return trajd_error_set(p->error, TRAJD_ERR_IO, errno, "%s: %s", p->partial, strerror(errno));
}

/* ---- the datasets ---- */

static const struct trajd_index_stream *stream_of(const struct trajd_index *index, uint32_t array)
{
    for (uint32_t s = 0; s < index->stream_count; s++)
        if (index->streams[s].array_index == array)
            return &index->streams[s];
    return NULL;
}

static bool is_packable(const struct trajd_array *array)
{
    return array->storage != TRAJD_STORAGE_ABSENT && trajd_array_is_encoded(array) &&
           array->form != TRAJD_ROWS_PACKED;
}

static enum trajd_status add_packing(struct pack *p, const struct trajd_episode *episode,
                                     uint32_t array)
{
    const struct trajd_index *index = p->options->index;
    struct packing *packing = &p->packings[p->count];
    char path[PATH_SIZE];

    convert_episode_path(index, episode->id, path, sizeof path);
    packing->array = &episode->extents[array];
    packing->image = stream_of(index, array)->image;
    packing->image.height = packing->array->picture.height;
    packing->image.width = packing->array->picture.width;
    packing->offsets = calloc(packing->array->shape[0] + 1, sizeof *packing->offsets);
    if (!packing->offsets || asprintf(&packing->path, "%s%s%s", path + 1, path[1] ? "/" : "",
                                      index->arrays[array].path) < 0)
        return no_memory(p);
    p->count++;
    return TRAJD_OK;
}

static int compare_packings(const void *a, const void *b)
{
    return strcmp(((const struct packing *)a)->path, ((const struct packing *)b)->path);
}

/* Lists the datasets of all kept episodes. */
static enum trajd_status find_packings(struct pack *p)
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
    p->packings =
        calloc((size_t)index->episode_count * index->array_count + 1, sizeof *p->packings);
    if (!p->packings)
        return no_memory(p);
    for (uint32_t e = 0; e < index->episode_count && !status; e++)
        for (uint32_t i = 0; i < index->array_count && !status; i++)
            if (!index->episodes[e].quarantine && stream_of(index, i) &&
                is_packable(&index->episodes[e].extents[i]))
                status = add_packing(p, &index->episodes[e], i);
    if (!status && !p->count)
        status = trajd_error_set(p->error, TRAJD_ERR_NOT_FOUND, 0,
                                 "no stream of layout %s holds encoded frames that are not packed "
                                 "(a stream of frames has the key image)",
                                 index->layout->name);
    qsort(p->packings, p->count, sizeof *p->packings, compare_packings);
    return status;
}

/* ---- reading ---- */

/* Returns how many rows are read at a time. */
static uint64_t block_rows(const struct packing *packing, uint64_t row)
{
    const struct trajd_array *array = packing->array;
    const uint64_t rest = array->shape[0] - row,
                   width = array->form == TRAJD_ROWS_HEAP ? BLOCK_BYTES / 64
                                                          : trajd_array_row_bytes(array),
                   fit =
                       width && BLOCK_BYTES / width < BLOCK_ROWS ? BLOCK_BYTES / width : BLOCK_ROWS,
                   rows = fit ? fit : 1;

    return rest < rows ? rest : rows;
}

/* Returns the bytes of a frame. Raw pixels may end with zeros, which are no padding. */
static uint64_t frame_bytes(const struct packing *packing, const struct trajd_row_bytes *row,
                            struct trajd_picture *picture)
{
    if (trajd_picture_examine(row->data, row->size,
                              trajd_encoded_row_room(packing->array, row->size), &packing->image,
                              picture, NULL))
        return row->size; /* bad frames are copied as they are */
    return picture->encoding == TRAJD_PICTURE_RAW
               ? (uint64_t)picture->height * picture->width * picture->channels * picture->bits / 8
               : row->size;
}

static enum trajd_status read_rows(struct pack *p, const struct packing *packing, uint64_t row,
                                   const struct trajd_row_bytes **rows, uint64_t *done)
{
    const struct trajd_index_file *file = &p->options->index->files[0];
    enum trajd_status status;

    if (p->options->cancel && __atomic_load_n(p->options->cancel, __ATOMIC_RELAXED))
        return trajd_error_set(p->error, TRAJD_ERR_CLOSED, 0, "interrupted");
    status = trajd_encoded_read(p->reader, p->input, file->stat.size_bytes, packing->array, row,
                                block_rows(packing, row), rows, done, p->error);
    if (status)
        trajd_error_prefix(p->error, "%s: %s", file->relative_path, packing->path);
    return status;
}

/* Finds where each frame of a dataset goes, and the encoding that all have. */
static enum trajd_status measure(struct pack *p, struct packing *packing)
{
    const struct trajd_row_bytes *rows;
    enum trajd_status status = TRAJD_OK;
    int64_t end = 0;

    for (uint64_t row = 0, done; row < packing->array->shape[0] && !status; row += done) {
        status = read_rows(p, packing, row, &rows, &done);
        for (uint64_t r = 0; r < done && !status; r++) {
            struct trajd_picture picture = {0};
            end += (int64_t)frame_bytes(packing, &rows[r], &picture);
            packing->offsets[row + r + 1] = end;
            if (row + r == 0)
                packing->encoding = picture.encoding;
            else if (picture.encoding != packing->encoding)
                packing->encoding = TRAJD_PICTURE_AUTO;
        }
    }
    p->result->stream_count++;
    p->result->frame_count += packing->array->shape[0];
    p->result->stored_bytes += packing->array->size_bytes;
    if (packing->array->form == TRAJD_ROWS_HEAP)
        p->result->stored_bytes += (uint64_t)end;
    p->result->packed_bytes += (uint64_t)end + 8 * (packing->array->shape[0] + 1);
    return status;
}

/* ---- the structure ---- */

static void put_packing(struct convert_child *child, const struct packing *packing)
{
    const struct trajd_layout_image *image = &packing->image;
    struct trajd_bytes *frame = &child->frame;

    trajd_bytes_add_text(frame, packing->path);
    trajd_bytes_add_u64(frame, packing->array->shape[0]);
    trajd_bytes_add_u64(frame, (uint64_t)packing->offsets[packing->array->shape[0]]);
    trajd_bytes_add_text(frame, trajd_picture_encoding_name(packing->encoding));
    trajd_bytes_add_text(frame, trajd_picture_color_name(image->color));
    trajd_bytes_add_text(frame, trajd_picture_flip_name(image->flip));
    trajd_bytes_add_text(frame, trajd_depth_unit_name(image->unit));
    trajd_bytes_add_u32(frame, image->height);
    trajd_bytes_add_u32(frame, image->width);
}

static enum trajd_status take_places(struct pack *p, const uint8_t *reply, size_t length)
{
    if (length != (size_t)p->count * sizeof p->packings->places)
        return trajd_error_set(p->error, TRAJD_ERR_DATA, 0,
                               "the process that makes the output's structure sent %zu bytes of "
                               "offsets",
                               length);
    for (uint32_t i = 0; i < p->count; i++)
        memcpy(p->packings[i].places, reply + i * sizeof p->packings->places,
               sizeof p->packings->places);
    return TRAJD_OK;
}

/* Checks that the places lie inside the output, because frames will be written there. */
static enum trajd_status check_places(struct pack *p)
{
    struct stat written;

    if (fstat(p->output, &written))
        return output_failed(p);
    for (uint32_t i = 0; i < p->count; i++) {
        const struct packing *packing = &p->packings[i];
        const uint64_t rows = packing->array->shape[0], size = (uint64_t)written.st_size,
                       bytes[2] = {(uint64_t)packing->offsets[rows], 8 * (rows + 1)};
        for (int k = 0; k < 2; k++)
            if (bytes[k] && (packing->places[k] > size || bytes[k] > size - packing->places[k]))
                return trajd_error_set(p->error, TRAJD_ERR_DATA, 0,
                                       "%s: its place lies outside of the output", packing->path);
    }
    return TRAJD_OK;
}

/* Lets the helper program copy the file and make room for the frames. */
static enum trajd_status make_structure(struct pack *p)
{
    const struct trajd_convert_options options = {.output = p->options->output,
                                                  .helper_path = p->options->helper_path,
                                                  .cancel = p->options->cancel,
                                                  .on_note = p->options->on_note,
                                                  .context = p->options->context};
    const struct convert_plan plan = {.options = &options};
    struct convert_child child = {.plan = &plan, .error = p->error, .socket = -1};
    enum trajd_status status = convert_child_start(&child);
    size_t length;

    convert_child_begin(&child);
    convert_child_put_u8(&child, true);
    if (!status)
        status = convert_child_send(&child, TRAJD_WRITER_OUTPUT, p->output);
    if (!status)
        status = convert_child_reply(&child, TRAJD_WRITER_READY, &length);
    child.is_ready = !status;
    convert_child_begin(&child);
    trajd_bytes_add_text(&child.frame, p->options->index->files[0].relative_path);
    trajd_bytes_add_u32(&child.frame, p->count);
    for (uint32_t i = 0; i < p->count; i++)
        put_packing(&child, &p->packings[i]);
    if (!status)
        status = convert_child_send(&child, TRAJD_WRITER_PACK, p->input);
    if (!status)
        status = convert_child_reply(&child, TRAJD_WRITER_OFFSETS, &length);
    if (!status)
        status = take_places(p, child.reply, length);
    if (!status)
        status = convert_child_reply(&child, TRAJD_WRITER_DONE, &length);
    convert_child_end(&child);
    return status ? status : check_places(p);
}

/* ---- writing ---- */

static enum trajd_status write_at(struct pack *p, const void *data, uint64_t length, uint64_t at)
{
    const uint8_t *next = data;

    while (length) {
        const ssize_t done = pwrite(p->output, next, length, (off_t)at);
        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0)
            return output_failed(p);
        next += done;
        at += (uint64_t)done;
        length -= (uint64_t)done;
    }
    return TRAJD_OK;
}

/* Writes the frames from `row` on, which follow one another in the output, in one call. A short
 * write goes on frame by frame. */
static enum trajd_status write_rows(struct pack *p, const struct packing *packing, uint64_t row,
                                    const struct trajd_row_bytes *rows, uint64_t count)
{
    const uint64_t place = packing->places[0];
    struct iovec parts[BLOCK_ROWS];
    enum trajd_status status = TRAJD_OK;
    ssize_t done;

    for (uint64_t r = 0; r < count; r++)
        parts[r] = (struct iovec){(void *)rows[r].data, (size_t)(packing->offsets[row + r + 1] -
                                                                 packing->offsets[row + r])};
    if (packing->offsets[row] == packing->offsets[row + count])
        return TRAJD_OK;
    done = pwritev(p->output, parts, (int)count, (off_t)(place + (uint64_t)packing->offsets[row]));
    if (done == packing->offsets[row + count] - packing->offsets[row])
        return TRAJD_OK;
    if (done < 0 && errno != EINTR)
        return output_failed(p);
    for (uint64_t r = 0; r < count && !status; r++)
        status = write_at(p, parts[r].iov_base, parts[r].iov_len,
                          place + (uint64_t)packing->offsets[row + r]);
    return status;
}

/* Checks that a frame has the length that was measured: the input may change meanwhile. */
static bool is_as_measured(const struct packing *packing, uint64_t row,
                           const struct trajd_row_bytes *bytes)
{
    struct trajd_picture picture;

    return frame_bytes(packing, bytes, &picture) ==
           (uint64_t)(packing->offsets[row + 1] - packing->offsets[row]);
}

static enum trajd_status write_packing(struct pack *p, const struct packing *packing)
{
    const struct trajd_row_bytes *rows;
    enum trajd_status status = TRAJD_OK;

    for (uint64_t row = 0, done; row < packing->array->shape[0] && !status; row += done) {
        status = read_rows(p, packing, row, &rows, &done);
        for (uint64_t r = 0; r < done && !status; r++)
            if (!is_as_measured(packing, row + r, &rows[r]))
                return trajd_error_set(p->error, TRAJD_ERR_DATA, 0,
                                       "%s: row %llu changed while it was packed", packing->path,
                                       (unsigned long long)(row + r));
        if (!status)
            status = write_rows(p, packing, row, rows, done);
    }
    if (!status)
        status =
            write_at(p, packing->offsets, (packing->array->shape[0] + 1) * sizeof *packing->offsets,
                     packing->places[1]);
    /* Only begins to write to the disk, which goes on during the next reads and the check. */
    sync_file_range(p->output, (off_t)packing->places[0],
                    (off_t)packing->offsets[packing->array->shape[0]], SYNC_FILE_RANGE_WRITE);
    return status;
}

/* ---- the finished file ---- */

static const char *difference(const struct trajd_index *before, const struct trajd_index *after)
{
    if (before->episode_count != after->episode_count || before->kept_count != after->kept_count)
        return "its episodes are not those of the input";
    if (before->stream_count != after->stream_count)
        return "its streams are not those of the input";
    for (uint32_t e = 0; e < before->episode_count; e++)
        if (!before->episodes[e].quarantine &&
            before->episodes[e].content_digest != after->episodes[e].content_digest)
            return "its rows are not those of the input";
    return NULL;
}

/* Reads the output with the input's layout: it must hold the same episodes, streams and rows. */
static enum trajd_status check_output(struct pack *p)
{
    const struct trajd_layout *source = p->options->index->layout;
    const struct trajd_index_options options = {.path = p->partial,
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
    why = status ? NULL : difference(p->options->index, index);
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

    if (fsync(p->output) || fstat(p->output, &status))
        return output_failed(p);
    p->result->size_after = (uint64_t)status.st_size;
    if (p->options->force ? rename(p->partial, p->options->output)
                          : trajd_file_rename_new(p->partial, p->options->output, &is_sure))
        return trajd_error_set(p->error, errno == EEXIST ? TRAJD_ERR_ARGUMENT : TRAJD_ERR_IO, errno,
                               "%s: %s", p->options->output, strerror(errno));
    return TRAJD_OK;
}

static enum trajd_status open_files(struct pack *p)
{
    const struct trajd_index_file *file = &p->options->index->files[0];

    p->input = open(file->path, O_RDONLY | O_CLOEXEC);
    if (p->input < 0)
        return trajd_error_set(p->error, TRAJD_ERR_IO, errno, "%s: %s", file->path,
                               strerror(errno));
    p->output = open(p->partial, O_RDWR | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0666);
    return p->output < 0 ? output_failed(p) : TRAJD_OK;
}

static void clear(struct pack *p)
{
    trajd_encoded_reader_destroy(&p->reader);
    for (uint32_t i = 0; i < p->count; i++) {
        free(p->packings[i].path);
        free(p->packings[i].offsets);
    }
    free(p->packings);
    if (p->input >= 0)
        close(p->input);
    if (p->output >= 0)
        close(p->output);
}

enum trajd_status pack_file(const struct pack_options *options, struct pack_result *result,
                            struct trajd_error *error)
{
    struct pack p = {
        .options = options, .error = error, .input = -1, .output = -1, .result = result};
    enum trajd_status status = trajd_encoded_reader_create(&p.reader, error);
    bool is_begun;

    *result = (struct pack_result){.size_before = options->index->files[0].stat.size_bytes};
    if ((size_t)snprintf(p.partial, sizeof p.partial, "%s.partial", options->output) >=
        sizeof p.partial)
        status = trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0, "%s: the path is too long",
                                 options->output);
    if (!status && !options->force && !access(options->output, F_OK))
        status = trajd_error_set(error, TRAJD_ERR_ARGUMENT, EEXIST, "%s: %s (--force replaces it)",
                                 options->output, strerror(EEXIST));
    if (!status)
        status = find_packings(&p);
    if (!status)
        status = open_files(&p);
    is_begun = p.output >= 0;
    for (uint32_t i = 0; i < p.count && !status; i++)
        status = measure(&p, &p.packings[i]);
    if (!status)
        status = make_structure(&p);
    for (uint32_t i = 0; i < p.count && !status; i++)
        status = write_packing(&p, &p.packings[i]);
    if (!status)
        status = check_output(&p);
    if (!status)
        status = publish(&p);
    if (status && is_begun)
        unlink(p.partial);
    clear(&p);
    return status;
}
