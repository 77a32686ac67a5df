/* Reads encoded frames and decode units of video one by one, and records those that are bad. */
#include "clients/cli/files/examine_internal.h"

#include <stdio.h>
#include <unistd.h>

static void add_bad(struct examine_bad_frames *found, uint64_t row, const struct trajd_error *cause)
{
    if (!found->bad_count++) {
        found->first_bad = (int64_t)row;
        snprintf(found->rule, sizeof found->rule, "%s", cause->message);
    }
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
                          struct examine_bad_frames *found)
{
    struct trajd_error cause;

    if (!bytes->size && !found->empty_count++)
        found->first_empty = (int64_t)row;
    if (bytes->size && examine_row(array, stream, bytes, &cause))
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

enum trajd_status examine_frames(struct trajd_encoded_reader *reader, int fd, uint64_t file_size,
                                 const struct trajd_array *array,
                                 const struct trajd_index_stream *stream,
                                 struct examine_bad_frames *found, struct trajd_error *error)
{
    const uint64_t row_count = trajd_array_row_count(array);

    *found = (struct examine_bad_frames){0};
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
                                      uint64_t *count, struct examine_bad_frames *found,
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

enum trajd_status examine_video(const struct trajd_index *index,
                                const struct trajd_episode *episode,
                                const struct trajd_index_stream *stream, int fd,
                                struct examine_bad_frames *found, struct trajd_error *error)
{
    const struct trajd_array *array = &episode->extents[stream->array_index];
    struct trajd_video_reader *reader = NULL;
    int media_fd;
    enum trajd_status status =
        trajd_index_open_media(index, episode->file_index, array, &media_fd, error);

    *found = (struct examine_bad_frames){0};
    if (!status)
        status = trajd_video_reader_create(&reader, error);
    for (uint64_t row = 0, count; row < trajd_array_row_count(array) && !status; row += count)
        status = examine_unit(reader, fd, media_fd, array, row, &count, found, error);
    trajd_video_reader_destroy(&reader);
    if (media_fd >= 0)
        close(media_fd);
    return status;
}
