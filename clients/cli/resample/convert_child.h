/* The child process that makes the output's structure (writer_protocol.h), as seen from the parent:
 * its process, and the frames to and from it. Use from one thread. */
#ifndef TRAJD_CLI_RESAMPLE_CONVERT_CHILD_H
#define TRAJD_CLI_RESAMPLE_CONVERT_CHILD_H

#include <sys/types.h>

#include "daemon/index/record.h"
#include "clients/cli/resample/plan/convert_plan.h"

/* The caller sets plan, error and socket = -1, and zeroes the other members. */
struct convert_child {
    const struct convert_plan *plan;
    struct trajd_error *error;
    pid_t pid;
    int socket;
    bool is_ready;            /* the output has begun */
    bool is_closing;          /* chunks are being added to the output */
    struct trajd_bytes frame; /* the frame that is being filled */
    uint8_t *reply;
    size_t reply_capacity;
};

/* Starts the child. TRAJD_ERR_SYSTEM: it cannot be started. */
enum trajd_status convert_child_start(struct convert_child *child);
/* Kills the child if it was started, and frees the members. */
void convert_child_end(struct convert_child *child);

/* A frame to the child: convert_child_begin empties it, trajd_bytes_add_* and
 * convert_child_put_u8 fill it, and convert_child_send sends it, together with `fd` unless that
 * is negative. If the child has ended, convert_child_send may succeed; the next
 * convert_child_reply returns the cause. TRAJD_ERR_MEMORY: the frame did not fit.
 * TRAJD_ERR_SYSTEM, TRAJD_ERR_DATA: the child has ended. */
void convert_child_begin(struct convert_child *child);
void convert_child_put_u8(struct convert_child *child, uint8_t value);
enum trajd_status convert_child_send(struct convert_child *child, uint32_t kind, int fd);

/* Receives the next reply into child->reply, with its length. It must be of that kind. Notes before
 * it are passed to the caller of the conversion. TRAJD_ERR_CLOSED: cancelled. Other errors come
 * from the child, or from its end. */
enum trajd_status convert_child_reply(struct convert_child *child, uint32_t kind, size_t *length);

#endif
