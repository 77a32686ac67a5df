/* Reads encoded frames and decode units of video one by one, and records those that are bad. */
#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#include "clients/cli/files/examine_internal.h"
#include "daemon/base/memory.h"
#include "proto/plural.h"

/* The encoded rows of one episode. */
struct bad_frames {
    struct examine_finding empty, bad;
    char rule[TRAJD_ERROR_MESSAGE_SIZE]; /* that the first bad row breaks */
};

static void add_bad(struct bad_frames *found, uint64_t row, const struct trajd_error *cause)
{
    examine_count(&found->bad, (int64_t)row);
    if (found->bad.count == 1)
        snprintf(found->rule, sizeof found->rule, "%s", cause->message);
}

/* Looks at a row that is not empty. The row of a prepared frame may tell why it is bad. */
static enum trajd_status examine_row(const struct trajd_array *array,
                                     const struct trajd_index_stream *stream,
                                     const struct trajd_row_bytes *row, struct trajd_error *cause)
{
    struct trajd_layout_image sized = stream->image; /* all frames have the size of the first one */
    struct trajd_image_header header;
    enum trajd_status status;

    sized.height = array->header.height;
    sized.width = array->header.width;
    status = trajd_image_examine(row->data, row->size, trajd_encoded_row_room(array, row->size),
                                 &sized, &header, cause);
    if (status && stream->preparation && trajd_image_is_reason(row->data, row->size))
        snprintf(cause->message, sizeof cause->message, "%.*s",
                 (int)(row->size < sizeof cause->message ? row->size : sizeof cause->message),
                 (const char *)row->data);
    return status;
}

static void examine_frame(const struct trajd_array *array, const struct trajd_index_stream *stream,
                          uint64_t row, const struct trajd_row_bytes *bytes,
                          struct bad_frames *found)
{
    struct trajd_error cause;

    if (!bytes->size)
        examine_count(&found->empty, (int64_t)row);
    else if (examine_row(array, stream, bytes, &cause))
        add_bad(found, row, &cause);
}

/* Reads rows up to `end`. A row that cannot be read fails its whole block, which is then read row by
 * row. */
static enum trajd_status read_block(struct trajd_encoded_reader *reader, int fd, uint64_t file_size,
                                    const struct trajd_array *array, uint64_t row, uint64_t end,
                                    const struct trajd_row_bytes **rows, uint64_t *done,
                                    struct trajd_error *cause)
{
    const enum trajd_status status =
        trajd_encoded_read(reader, fd, file_size, array, row, end - row, rows, done, cause);

    if (!status || end - row == 1 || cause->foreign_code)
        return status;
    return trajd_encoded_read(reader, fd, file_size, array, row, 1, rows, done, cause);
}

static enum trajd_status examine_rows(struct trajd_encoded_reader *reader, int fd,
                                      uint64_t file_size, const struct trajd_array *array,
                                      const struct trajd_index_stream *stream,
                                      struct bad_frames *found, struct trajd_error *error)
{
    const uint64_t row_count = trajd_array_row_count(array);

    for (uint64_t row = 0, done; row < row_count; row += done) {
        const struct trajd_row_bytes *rows;
        struct trajd_error cause;
        const enum trajd_status status =
            read_block(reader, fd, file_size, array, row, row_count, &rows, &done, &cause);
        if ((status == TRAJD_ERR_IO && cause.foreign_code) || status == TRAJD_ERR_MEMORY) {
            *error = cause;
            return status;
        }
        if (status) {
            add_bad(found, row, &cause);
            done = 1;
            continue;
        }
        for (uint64_t r = 0; r < done; r++)
            examine_frame(array, stream, row + r, &rows[r], found);
    }
    return TRAJD_OK;
}

/* Reads the unit of a row. *count becomes the rows in it. */
static enum trajd_status examine_unit(struct trajd_video_reader *reader, int fd, int media_fd,
                                      const struct trajd_array *array, uint64_t row,
                                      uint64_t *count, struct bad_frames *found,
                                      struct trajd_error *error)
{
    uint32_t packets[TRAJD_UNIT_PACKETS_MAX], last = 0;
    struct trajd_unit_bytes bytes;
    uint64_t unit, first;
    enum trajd_status status =
        trajd_video_rows_of_unit(fd, array, row, &unit, &first, count, error);

    if (!status)
        status = trajd_video_locate(fd, array, first, (uint32_t)*count, unit, packets, error);
    for (uint64_t i = 0; i < *count && !status; i++)
        last = packets[i] > last ? packets[i] : last;
    if (!status)
        status = trajd_video_read_unit(reader, fd, media_fd, array, unit, last, &bytes, error);
    for (uint64_t i = 0; i < *count && !status; i++)
        if (packets[i] >= bytes.packet_count) {
            snprintf(error->message, sizeof error->message, "%s", bytes.damage);
            add_bad(found, first + i, error);
        }
    return status;
}

/* Reads every packet of a stream of packed video. The index has checked the tables. */
static enum trajd_status examine_video(const struct examiner *examiner, uint32_t file_index, int fd,
                                       const struct trajd_array *array, struct bad_frames *found,
                                       struct trajd_error *error)
{
    struct trajd_video_reader *reader = NULL;
    int media_fd;
    enum trajd_status status =
        trajd_index_open_media(examiner->index, file_index, array, &media_fd, error);

    trajd_video_reader_create(&reader, NULL);
    trajd_memory_or_exit(reader);
    for (uint64_t row = 0, count; row < trajd_array_row_count(array) && !status; row += count)
        status = examine_unit(reader, fd, media_fd, array, row, &count, found, error);
    trajd_video_reader_destroy(&reader);
    if (media_fd >= 0)
        close(media_fd);
    return status;
}

enum trajd_status examine_frames(const struct examiner *examiner,
                                 const struct trajd_index_stream *stream,
                                 const struct trajd_episode *episode, int fd,
                                 struct trajd_error *error)
{
    const struct trajd_array *array = &episode->extents[stream->array_index];
    const uint64_t file_size = examiner->index->files[episode->file_index].stat.size_bytes;
    const struct examine_finding none =
        examine_at(examiner->index, EXAMINE_FRAMES, episode, stream->name, 0);
    struct bad_frames found = {.empty = none, .bad = none};
    const enum trajd_status status =
        array->form == TRAJD_ROWS_VIDEO
            ? examine_video(examiner, episode->file_index, fd, array, &found, error)
            : examine_rows(examiner->encoded, fd, file_size, array, stream, &found, error);

    if (status)
        return trajd_error_prefix(error, "%s:%s: %s", none.file, none.episode, none.stream);
    examine_report(examiner, &found.empty, "%" PRIu64 " empty frame%s, the first is row %" PRId64,
                   found.empty.count, trajd_plural(found.empty.count), found.empty.row);
    examine_report(examiner, &found.bad,
                   "%" PRIu64 " frame%s cannot be decoded, the first is row %" PRId64 ": %s",
                   found.bad.count, trajd_plural(found.bad.count), found.bad.row, found.rule);
    return TRAJD_OK;
}
