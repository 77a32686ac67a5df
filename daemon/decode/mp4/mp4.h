/* The video track of an MP4 file (ISO/IEC 14496-12, -15; AV1-ISOBMFF): how it is compressed,
 * where its samples are and when each is shown. The file is untrusted: every number is checked
 * against the file and against the tables beside it. */
#ifndef TRAJD_DECODE_MP4_MP4_H
#define TRAJD_DECODE_MP4_MP4_H

#include "daemon/base/arena.h"
#include "daemon/layout/video.h"
#include "proto/error.h"

/* At 30 frames a second, 155 hours. */
#define TRAJD_MP4_SAMPLES_MAX (UINT32_C(1) << 24)
#define TRAJD_MP4_MOOV_BYTES_MAX (UINT64_C(256) << 20)
#define TRAJD_MP4_PACKET_BYTES_MAX (UINT32_C(16) << 20)

/* How samples are compressed: an entry of the box stsd. */
struct trajd_mp4_entry {
    const uint8_t *extradata; /* payload of avcC, hvcC or av1C */
    uint32_t extradata_bytes;
    enum trajd_video_matrix matrix; /* of the box colr; unspecified where there is none */
    enum trajd_video_range range;
};

struct trajd_mp4_sample {
    uint64_t offset; /* in the file */
    int64_t time;    /* when it is shown, in ticks of the timescale, before the edit list */
    uint32_t bytes;  /* 1 or more */
    uint32_t entry;
    uint32_t crc32; /* trajd_units_find sets it */
};

struct trajd_mp4 {
    enum trajd_video_codec codec;
    uint32_t timescale; /* ticks per second */
    /* what is shown by the edit list: without one, all */
    int64_t edit_begin; /* in ticks */
    double edit_end_s;
    struct trajd_mp4_entry *entries;
    uint32_t entry_count, sample_count;
    struct trajd_mp4_sample *samples; /* in decode order */
    uint64_t file_bytes;
    /* while it is read: */
    int fd;
    struct trajd_arena *arena;
    struct trajd_error *error; /* not NULL */
};

/* Reads the boxes of an open regular file into the arena. TRAJD_ERR_DATA: it is damaged or not
 * supported: a caller of this program only prints the message, a sentence without the file's name.
 * TRAJD_ERR_IO, TRAJD_ERR_MEMORY. */
enum trajd_status trajd_mp4_read(int fd, struct trajd_arena *arena, struct trajd_mp4 *mp4,
                                 struct trajd_error *error);

/* Sets the message, in printf's format, with TRAJD_ERR_DATA. Returns false, as the functions that
 * read do after an error. */
bool trajd_mp4_refuse(const struct trajd_mp4 *mp4, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Returns zeroed memory of the arena. NULL, with the message, where there is none. */
void *trajd_mp4_alloc(const struct trajd_mp4 *mp4, uint64_t count, size_t element_bytes);

/* Reads `size` bytes at a place of the file. False, with the message, where that fails. */
bool trajd_mp4_pread(const struct trajd_mp4 *mp4, uint64_t offset, void *bytes, size_t size);

/* Reads a big-endian number of at most 8 bytes. */
static inline uint64_t trajd_be(const uint8_t *bytes, uint32_t size)
{
    uint64_t number = 0;

    for (uint32_t i = 0; i < size; i++)
        number = number << 8 | bytes[i];
    return number;
}

#endif
