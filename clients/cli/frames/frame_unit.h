/* Reads the decode units of an episode's video one after another, and has their frames made. */
#ifndef TRAJD_CLI_FRAMES_FRAME_UNIT_H
#define TRAJD_CLI_FRAMES_FRAME_UNIT_H

#include "daemon/decode/decoder.h"
#include "daemon/index/index.h"
#include "daemon/index/rows/packed_video.h"

struct frame_units {
    const struct trajd_array *array;
    int fd, media_fd; /* media_fd -1: the packets are in the file */
    struct trajd_video_reader *reader;
    /* of the unit that was read last; borrowed */
    uint64_t first_row, row_count;
    uint32_t packets[TRAJD_UNIT_PACKETS_MAX]; /* [row_count]: whose frames the rows are */
    struct trajd_unit_bytes bytes;
};

/* Opens the media file that the array may have. `fd`, of the HDF5 file, and the array are borrowed.
 * Errors are those of trajd_index_open_media. The units are closed in any case. */
enum trajd_status frame_units_open(const struct trajd_index *index, uint32_t file_index,
                                   const struct trajd_array *array, int fd,
                                   struct frame_units *units, struct trajd_error *error);
void frame_units_close(struct frame_units *units);

/* Reads the unit of a row, as far as the packets are good and its rows show them. Errors are those of
 * packed_video.h. */
enum trajd_status frame_units_read(struct frame_units *units, uint64_t row,
                                   struct trajd_error *error);
struct trajd_decoder_unit frame_units_packets(const struct frame_units *units);

/* Returns whether row first_row + i has a good packet, and one that is empty: the frame was not
 * recorded. */
bool frame_units_is_good(const struct frame_units *units, uint64_t i);
bool frame_units_is_absent(const struct frame_units *units, uint64_t i);

/* Decodes the unit that was read. frames[i] is of its row first_row + i: its pixels are made, or its
 * reason says why not. The caller has set `pixels` of row_count frames. */
enum trajd_status frame_units_decode(const struct frame_units *units, struct trajd_decoder *decoder,
                                     struct trajd_decoder_frame *frames, struct trajd_error *error);

#endif
