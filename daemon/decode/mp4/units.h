/* The decode units of a video: where the bitstream is closed, so that a decoder can begin; and its
 * rows, which are the shown frames in their order. */
#ifndef TRAJD_DECODE_MP4_UNITS_H
#define TRAJD_DECODE_MP4_UNITS_H

#include "daemon/decode/mp4/mp4.h"
#include "daemon/decode/mp4/stream_format.h"

/* A decode unit: a decoder that gets its extradata, and then the packets from its first one on, needs
 * nothing else. It ends where the next one begins. */
struct trajd_unit {
    uint32_t first_packet;
    uint32_t first_row;
    uint32_t extradata; /* which of them */
    const struct trajd_mp4_entry *entry;
};

struct trajd_unit_row {
    int64_t time; /* since the first row, in ticks of the MP4's timescale */
    uint32_t packet;
};

/* The caller frees the two buffers; the rest is in the arena. */
struct trajd_units {
    struct trajd_stream_format format; /* of all frames */
    struct trajd_unit *units;
    uint64_t unit_count;
    struct trajd_unit_row *rows;
    uint64_t row_count;
    struct trajd_bytes extradata;      /* payloads of avcC, hvcC or av1C */
    struct trajd_bytes extradata_ends; /* of uint64_t */
};

/* Reads all samples, and sets their checksums. A sample that is damaged is a frame that no unit begins
 * with. The statuses are those of trajd_mp4_read. */
enum trajd_status trajd_units_find(int fd, struct trajd_mp4 *mp4, struct trajd_arena *arena,
                                   struct trajd_units *units, struct trajd_error *error);

#endif
