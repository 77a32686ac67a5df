// libs: trajd_index
/* The tables of packed video in a hostile file: what trajd_array_check accepts can be examined and
 * read, or is refused, without touching other memory. What trajd_video_examine accepts can be read.
 *
 * Input: a head of HEAD_BYTES (entries of rows, packets, units and ends; bytes of extradata), then
 * the file: the tables in this order, the extradata, and the packets. */
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "daemon/index/rows/packed_video.h"

#define HEAD_BYTES 5

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Returns the place behind a table. */
static uint64_t place(uint64_t *at, uint64_t bytes)
{
    const uint64_t begin = *at;

    *at += bytes;
    return begin;
}

static struct trajd_array array_of_head(const uint8_t *head, uint64_t file_size,
                                        struct trajd_video *video)
{
    uint64_t at = 0;
    struct trajd_array array = {.storage = TRAJD_STORAGE_CONTIGUOUS,
                                .form = TRAJD_ROWS_VIDEO,
                                .dtype = TRAJD_I64,
                                .rank = 1,
                                .shape = {head[0]},
                                .size_bytes = head[0] * 8u,
                                .offset = place(&at, head[0] * 8u),
                                .video = video};

    *video = (struct trajd_video){.pixel_format = "yuv420p",
                                  .row_count = head[0],
                                  .packets_offset = place(&at, head[1] * 24u),
                                  .packet_count = head[1],
                                  .unit_count = head[2],
                                  .extradata_count = head[3],
                                  .extradata_bytes = head[4],
                                  .largest_unit_packets = 16,
                                  .largest_unit_bytes = 4096};
    video->units_offset = place(&at, head[2] * 24u);
    video->ends_offset = place(&at, head[3] * 8u);
    video->extradata_offset = place(&at, head[4]);
    array.payload_offset = at;
    array.payload_bytes = at < file_size ? file_size - at : 0;
    return array;
}

static volatile unsigned sink; /* so that the bytes are read */

/* Reads the unit of a row. Returns whether it can be read. */
static bool read_row(struct trajd_video_reader *reader, int fd, const struct trajd_array *array,
                     uint64_t row)
{
    static uint32_t packets[TRAJD_UNIT_PACKETS_MAX]; /* as many rows has a unit at most */
    struct trajd_unit_bytes unit;
    uint64_t number, first, count, at = 0;

    if (trajd_video_rows_of_unit(fd, array, row, &number, &first, &count, NULL) ||
        trajd_video_locate(fd, array, first, (uint32_t)count, number, packets, NULL) ||
        trajd_video_read_unit(reader, fd, -1, array, number, packets[row - first], &unit, NULL))
        return false;
    for (uint32_t p = 0; p < unit.packet_count; at += unit.sizes[p++])
        if (unit.sizes[p])
            sink += unit.bytes[at] + unit.bytes[at + unit.sizes[p] - 1];
    for (uint64_t i = 0; i < unit.extradata_size; i++)
        sink += unit.extradata[i];
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct trajd_video_reader *reader;
    struct trajd_digest digest;
    struct trajd_video video;
    struct trajd_array array;
    bool is_good;
    int fd;

    if (size < HEAD_BYTES || (!reader && trajd_video_reader_create(&reader, NULL)))
        return 0;
    array = array_of_head(data, size - HEAD_BYTES, &video);
    if (trajd_array_check(&array, size - HEAD_BYTES, 0, NULL))
        return 0;
    fd = memfd_create("fuzz_video", MFD_CLOEXEC);
    if (fd < 0 || write(fd, data + HEAD_BYTES, size - HEAD_BYTES) != (ssize_t)(size - HEAD_BYTES))
        return 0;
    trajd_digest_init(&digest);
    is_good = !trajd_video_examine(fd, &array, &digest, NULL);
    for (uint64_t row = 0; row < array.shape[0]; row++)
        if (!read_row(reader, fd, &array, row) && is_good)
            abort();
    close(fd);
    return 0;
}
