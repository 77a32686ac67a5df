/* Reads a decode unit of video, and gives it to the decoder. */
#include "clients/cli/frames/frame_unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/base/memory.h"

enum trajd_status frame_units_open(const struct trajd_index *index, uint32_t file_index,
                                   const struct trajd_array *array, int fd,
                                   struct frame_units *units, struct trajd_error *error)
{
    enum trajd_status status;

    *units = (struct frame_units){.array = array, .fd = fd};
    status = trajd_index_open_media(index, file_index, array, &units->media_fd, error);
    return status ? status : trajd_video_reader_create(&units->reader, error);
}

void frame_units_close(struct frame_units *units)
{
    trajd_video_reader_destroy(&units->reader);
    if (units->media_fd >= 0)
        close(units->media_fd);
}

enum trajd_status frame_units_read(struct frame_units *units, uint64_t row,
                                   struct trajd_error *error)
{
    uint32_t last = 0;
    uint64_t unit;
    enum trajd_status status = trajd_video_rows_of_unit(
        units->fd, units->array, row, &unit, &units->first_row, &units->row_count, error);

    if (!status && units->row_count > TRAJD_UNIT_PACKETS_MAX)
        status = trajd_error_set(
            error, TRAJD_ERR_DATA, 0, "the unit of row %llu has %llu rows, the limit is %u",
            (unsigned long long)row, (unsigned long long)units->row_count, TRAJD_UNIT_PACKETS_MAX);
    if (!status)
        status = trajd_video_locate(units->fd, units->array, units->first_row,
                                    (uint32_t)units->row_count, unit, units->packets, error);
    for (uint64_t i = 0; i < units->row_count && !status; i++)
        last = units->packets[i] > last ? units->packets[i] : last;
    return status ? status
                  : trajd_video_read_unit(units->reader, units->fd, units->media_fd, units->array,
                                          unit, last, &units->bytes, error);
}

struct trajd_decoder_unit frame_units_packets(const struct frame_units *units)
{
    const struct trajd_unit_bytes *bytes = &units->bytes;

    return (struct trajd_decoder_unit){bytes->extradata, bytes->extradata_size, bytes->bytes,
                                       bytes->sizes, bytes->packet_count};
}

bool frame_units_is_good(const struct frame_units *units, uint64_t i)
{
    return units->packets[i] < units->bytes.packet_count && !frame_units_is_absent(units, i);
}

bool frame_units_is_absent(const struct frame_units *units, uint64_t i)
{
    return units->packets[i] < units->bytes.packet_count && !units->bytes.sizes[units->packets[i]];
}

enum trajd_status frame_units_decode(const struct frame_units *units, struct trajd_decoder *decoder,
                                     struct trajd_decoder_frame *frames, struct trajd_error *error)
{
    const struct trajd_decoder_unit unit = frame_units_packets(units);
    struct trajd_decoder_frame *good = trajd_memory_or_exit(calloc(units->row_count, sizeof *good));
    enum trajd_status status = TRAJD_OK;
    uint32_t count = 0;

    for (uint64_t i = 0; i < units->row_count; i++) {
        frames[i].packet = units->packets[i];
        if (frame_units_is_good(units, i))
            good[count++] = frames[i];
        else
            snprintf(frames[i].reason, sizeof frames[i].reason, "%s",
                     frame_units_is_absent(units, i) ? "the frame was not recorded"
                                                     : units->bytes.damage);
    }
    if (count)
        status = trajd_decoder_run_unit(decoder, &unit, good, count, error);
    for (uint64_t i = 0, g = 0; i < units->row_count; i++)
        if (frame_units_is_good(units, i))
            frames[i] = good[g++];
    free(good);
    return status;
}
