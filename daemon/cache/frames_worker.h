/* A worker, and the frames of its job. frames_worker.c runs it, frames_read.c reads. Private to
 * them. */
#ifndef TRAJD_CACHE_FRAMES_WORKER_H
#define TRAJD_CACHE_FRAMES_WORKER_H

#include "daemon/cache/frames_internal.h"
#include "daemon/index/rows/encoded.h"

#define FRAMES_JOB 32
#define FRAMES_RETRIES 3
#define FRAMES_BACKOFF_NS 10000000 /* four times as much after each failure */

/* The bytes of a frame, as they are in the file. */
struct frame_bytes {
    uint8_t *data;
    uint64_t size, room;
};

struct frames_worker {
    struct trajd_frames *frames;
    struct trajd_array_reader *rows;
    struct trajd_encoded_reader *encoded;
    uint32_t slot_count;
    struct frame_slot *slots[FRAMES_JOB];
    struct frame_bytes bytes[FRAMES_JOB];
    struct trajd_decoder_frame requests[FRAMES_JOB];
    struct trajd_error errors[FRAMES_JOB];
    enum trajd_status statuses[FRAMES_JOB];
    uint64_t read_bytes;
};

/* Returns the index of the slot's file, and the row in it. */
uint32_t frames_file_of(const struct frame_slot *slot);
uint64_t frames_file_row(const struct frame_slot *slot);

/* Reads all frames of the job. Inflates a chunk once for all frames of a file. A file that cannot
 * be read costs one pause, not one for each frame. */
void frames_read(struct frames_worker *worker);

#endif
