/* Packed video: rows that are frames of packets which are compressed together. The packets lie one
 * after another in a dataset, or in an MP4 beside the HDF5 file (its media file). Nothing is decoded
 * here. README.md describes the group. */
#ifndef TRAJD_INDEX_ROWS_PACKED_VIDEO_H
#define TRAJD_INDEX_ROWS_PACKED_VIDEO_H

#include "daemon/base/digest.h"
#include "daemon/index/rows/array.h"
#include "daemon/index/rows/file_bytes.h"
#include "daemon/layout/video.h"

#define TRAJD_PACKET_BYTES_MAX (UINT64_C(16) << 20)
#define TRAJD_EXTRADATA_BYTES_MAX (UINT64_C(1) << 20) /* of one unit */

/* Of an array with form VIDEO, whose rows are i64: the packet that is shown. All places are in the
 * HDF5 file. Each table is i64, without compression. */
struct trajd_video {
    struct trajd_video_format format;
    const char *pixel_format; /* FFmpeg's name: "yuv420p" */
    /* all rows of the table; those of the array may be a part of them */
    uint64_t rows_offset, row_count;
    /* (P, 3): position, size, crc32; in decode order. A packet of 0 bytes is a frame that was not
     * recorded */
    uint64_t packets_offset, packet_count;
    uint64_t units_offset, unit_count;          /* (U, 3): first packet, first row, extradata */
    uint64_t extradata_offset, extradata_bytes; /* all extradata, one after another */
    uint64_t ends_offset, extradata_count;      /* where each extradata ends */
    uint64_t largest_unit_packets, largest_unit_bytes; /* no unit has more: bytes of its packets */
    /* The MP4 that has the packets, a path below the dataset's media folder. NULL: they are in the
     * payload of the array, and the members below are 0. */
    const char *media;
    uint64_t media_size;
    struct trajd_file_stat media_stat; /* when it was indexed; all 0: it could not be opened */
};

/* Returns the most bytes that the packets of a unit have with its extradata. */
static inline uint64_t trajd_video_unit_room(const struct trajd_video *video)
{
    return video->largest_unit_bytes + (video->extradata_bytes < TRAJD_EXTRADATA_BYTES_MAX
                                            ? video->extradata_bytes
                                            : TRAJD_EXTRADATA_BYTES_MAX);
}

/* Checks the array's places, its limits and the path of its media file, without reading anything.
 * Part of trajd_array_check. */
enum trajd_status trajd_video_check(const struct trajd_array *array, uint64_t file_size_bytes,
                                    struct trajd_error *error);

/* Reads all tables and checks each number of them. Adds what the frames are to the digest: not where
 * they lie. TRAJD_ERR_DATA names the table and the entry that breaks a rule; TRAJD_ERR_IO. */
enum trajd_status trajd_video_examine(int fd, const struct trajd_array *array,
                                      struct trajd_digest *digest, struct trajd_error *error);

/* Finds the unit of a row, and the run of rows whose frames are in that unit. TRAJD_ERR_DATA: a
 * number of the table of units breaks a rule; TRAJD_ERR_IO. */
enum trajd_status trajd_video_rows_of_unit(int fd, const struct trajd_array *array, uint64_t row,
                                           uint64_t *unit, uint64_t *first_row, uint64_t *row_count,
                                           struct trajd_error *error);

/* Finds the packets in their unit whose frames rows [first_row, first_row + count) show. All rows
 * must be of the unit. */
enum trajd_status trajd_video_locate(int fd, const struct trajd_array *array, uint64_t first_row,
                                     uint32_t count, uint64_t unit, uint32_t *packets,
                                     struct trajd_error *error);

/* Packets of a unit from its first one on. */
struct trajd_unit_bytes {
    const uint8_t *bytes;  /* one packet after another */
    const uint64_t *sizes; /* [packet_count] */
    uint32_t packet_count; /* as many as were asked for, or fewer: */
    /* NULL, or why the packets from packet_count on are not given: "the bytes of packet 17 have
     * changed since the conversion" */
    const char *damage;
    const uint8_t *extradata;
    uint64_t extradata_size;
};

/* The scratch memory of one reading thread, which grows to the largest unit that was read. Not
 * thread-safe: one for each thread. */
struct trajd_video_reader;
enum trajd_status trajd_video_reader_create(struct trajd_video_reader **reader,
                                            struct trajd_error *error);
void trajd_video_reader_destroy(struct trajd_video_reader **reader);
/* Gives the memory back that a large unit took. What the reader has lent becomes invalid. */
void trajd_video_reader_trim(struct trajd_video_reader *reader);

/* Reads the packets 0 to `last` of a unit, and its extradata; packets that lie one behind the other
 * in one call. The packets in front of the first one whose crc32 is wrong are good: their frames can
 * be made. `media_fd`: of the media file, if the array has one. *out is borrowed from the reader
 * until its next call. Blocks. TRAJD_ERR_DATA: a number of the tables breaks a rule; TRAJD_ERR_IO;
 * TRAJD_ERR_MEMORY. */
enum trajd_status trajd_video_read_unit(struct trajd_video_reader *reader, int fd, int media_fd,
                                        const struct trajd_array *array, uint64_t unit,
                                        uint32_t last, struct trajd_unit_bytes *out,
                                        struct trajd_error *error);

/* Reads one packet and checks its crc32. TRAJD_ERR_DATA: it has changed since the conversion. */
enum trajd_status trajd_video_check_packet(struct trajd_video_reader *reader, int fd, int media_fd,
                                           const struct trajd_array *array, uint64_t packet,
                                           struct trajd_error *error);

/* Opens the media file at a path below the folder. No component of the path may be a symbolic link
 * or "..", so the file is below the folder, whatever the HDF5 file says. TRAJD_ERR_DATA: it is not
 * there, or is not a regular file; TRAJD_ERR_IO: storage failed. *fd is -1 after an error. */
enum trajd_status trajd_media_open(const char *folder, const char *media, int *fd,
                                   struct trajd_file_stat *stat, struct trajd_error *error);
/* Returns whether the path is relative and has no empty component, "." or "..". */
bool trajd_media_is_path(const char *media);

#endif
