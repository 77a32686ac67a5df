/* The decode units of a video: where the bitstream is closed, so that a decoder can begin; and its
 * rows, which are the shown frames in their order. */
#ifndef TRAJD_DECODE_MP4_UNITS_H
#define TRAJD_DECODE_MP4_UNITS_H

#include "daemon/decode/mp4/mp4.h"
#include "daemon/decode/mp4/stream_format.h"

/* It ends where the next one begins. */
struct trajd_unit {
    uint32_t first_packet;
    uint32_t extradata; /* number of the entry of the MP4 */
    bool is_closed;     /* only the first unit may be open */
};

struct trajd_unit_row {
    int64_t time; /* after the edit list, in ticks of the MP4's timescale */
    uint32_t packet;
    uint32_t unit; /* never smaller than that of the row before */
};

struct trajd_units {
    struct trajd_stream_format format; /* of all frames */
    struct trajd_unit *units;
    uint64_t unit_count;
    struct trajd_unit_row *rows;
    uint64_t row_count;
};

/* Reads the beginning of each sample, up to its first slice; of AV1 the headers of all its OBUs. A
 * sample that is damaged is a frame that no unit begins with. The statuses are those of
 * trajd_mp4_read. */
enum trajd_status trajd_units_find(int fd, const struct trajd_mp4 *mp4, struct trajd_arena *arena,
                                   struct trajd_units *units, struct trajd_error *error);

#endif
