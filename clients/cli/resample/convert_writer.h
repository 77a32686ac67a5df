/* The helper program that writes the output (daemon/index/writer_protocol.h), as seen from its
 * parent: its process, the frames to and from it, and the memory through which rows reach it.
 *
 * The memory is divided into blocks of one size. The parent fills a free block, and sends a frame
 * that says what to write from it. The block is free again when the helper answers. So the parent
 * makes rows while the helper writes. Use from one thread, except for the blocks' bytes. */
#ifndef TRAJD_CLI_RESAMPLE_CONVERT_WRITER_H
#define TRAJD_CLI_RESAMPLE_CONVERT_WRITER_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "daemon/index/record.h"
#include "daemon/index/writer_protocol.h"
#include "proto/error.h"

enum {
    CONVERT_BLOCKS_MAX = 128,
    CONVERT_BLOCK_ROWS = 256, /* entries of a block */
    CONVERT_PENDING_MAX = 256,
};

/* A block of the memory, and what it holds. */
struct convert_block {
    uint8_t *bytes;
    uint64_t size, used;
    uint64_t at; /* in the memory */
    uint32_t count;
    struct trajd_writer_rows rows[CONVERT_BLOCK_ROWS];
};

/* The caller sets the members up to `error`, and zeroes the others. */
struct convert_writer {
    const char *helper_path, *output;                 /* output: for messages */
    const bool *cancel;                               /* NULL, or set atomically */
    void (*on_note)(void *context, const char *text); /* NULL, or for notes of the helper */
    void *context;
    struct trajd_error *error;
    pid_t pid; /* 0: not started */
    int socket;
    bool is_ready;            /* the output has begun */
    struct trajd_bytes frame; /* the frame that is being filled */
    uint8_t *memory;
    uint64_t memory_bytes;
    uint32_t block_count, free_count;
    struct convert_block *blocks, *free[CONVERT_BLOCKS_MAX];
    /* the blocks of the frames that are not answered, as a ring; NULL: a frame without rows */
    struct convert_block *pending[CONVERT_PENDING_MAX];
    uint32_t first_pending, pending_count;
    int64_t heard_ns; /* when the helper answered last, or got work after it had none */
};

/* Starts the helper with the output's descriptor. TRAJD_ERR_SYSTEM: it cannot be started. */
enum trajd_status convert_writer_start(struct convert_writer *writer, int fd, bool is_small);
/* Kills the helper if it runs, without waiting for its end. */
void convert_writer_kill(const struct convert_writer *writer);
/* The same, waits for the end, and frees everything. */
void convert_writer_end(struct convert_writer *writer);

/* Maps a new memory file that no side can shrink, so that no access to it can fail. `is_filled`: with
 * all of its pages. NULL with errno where there is no memory; the caller closes *fd otherwise. */
void *convert_memory_map(uint64_t bytes, bool is_filled, int *fd);

/* Shares `block_count` blocks with the helper; fewer, of least_bytes, where files may not be so
 * large. */
enum trajd_status convert_writer_share(struct convert_writer *writer, uint64_t block_bytes,
                                       uint64_t least_bytes, uint32_t block_count);

/* A frame to the helper: convert_writer_begin empties it, trajd_bytes_add_* and
 * convert_writer_put_u8 fill it, and convert_writer_send sends it, together with `fd` unless that
 * is negative. Receives answers where the helper does not read because it waits to send them.
 * Errors: as convert_writer_receive. */
void convert_writer_begin(struct convert_writer *writer);
void convert_writer_put_u8(struct convert_writer *writer, uint8_t value);
enum trajd_status convert_writer_send(struct convert_writer *writer, uint32_t kind, int fd);
/* Sends the rows of a block. */
enum trajd_status convert_writer_send_block(struct convert_writer *writer,
                                            struct convert_block *block);

/* Receives one frame: passes on a note, or takes the answer to the oldest frame. TRAJD_ERR_CLOSED:
 * cancelled. TRAJD_ERR_IO: the output or an input cannot be written or read. TRAJD_ERR_DATA: an
 * input is damaged, or the helper has not answered for ten minutes. TRAJD_ERR_SYSTEM: it was killed
 * from outside. */
enum trajd_status convert_writer_receive(struct convert_writer *writer);
/* Receives until the output has begun: the helper has emptied it, and space can be reserved. */
enum trajd_status convert_writer_wait_ready(struct convert_writer *writer);
/* Receives until all frames are answered. */
enum trajd_status convert_writer_wait(struct convert_writer *writer);
/* Returns an empty block, after an answer if none is free now. NULL after an error. */
struct convert_block *convert_writer_take(struct convert_writer *writer);

#endif
