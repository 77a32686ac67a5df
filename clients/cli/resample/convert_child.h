/* The child that makes the output's structure (writer_protocol.h), seen from the parent: its
 * process, and frames to and from it. One thread. */
#ifndef TRAJD_CLI_RESAMPLE_CONVERT_CHILD_H
#define TRAJD_CLI_RESAMPLE_CONVERT_CHILD_H

#include <sys/types.h>

#include "daemon/index/record.h"
#include "clients/cli/resample/plan/convert_plan.h"

/* Begins with plan, error and socket -1 set, all else zero. */
struct convert_child {
    const struct convert_plan *plan;
    struct trajd_error *error;
    pid_t pid;
    int socket;
    bool is_ready;            /* it has begun the output */
    bool is_closing;          /* it puts chunks into it */
    struct trajd_bytes frame; /* being made */
    uint8_t *reply;
    size_t reply_capacity;
};

/* TRAJD_ERR_SYSTEM where it cannot be started. */
enum trajd_status convert_child_start(struct convert_child *child);
/* Kills it, if it was started, and frees what the struct holds. */
void convert_child_end(struct convert_child *child);

/* A frame is begun, filled with trajd_bytes_add_* and this, and sent, `fd` with it unless that is
 * below 0. An end of the child is told by what is received next. TRAJD_ERR_MEMORY where the frame
 * did not fit, TRAJD_ERR_SYSTEM or TRAJD_ERR_DATA where the child is gone. */
void convert_child_begin(struct convert_child *child);
void convert_child_put_u8(struct convert_child *child, uint8_t value);
enum trajd_status convert_child_send(struct convert_child *child, uint32_t kind, int fd);

/* The next answer, which must be of that kind, in child->answer; notes before it are passed on.
 * TRAJD_ERR_CLOSED: cancelled; else what the child says, or how it ended. */
enum trajd_status convert_child_reply(struct convert_child *child, uint32_t kind, size_t *length);

#endif
