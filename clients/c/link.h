/* The worker's two sockets: a DEALER for messages, and the Unix connection that carries descriptors and whose
 * end is the daemon's. The only file of libtrajd that knows ZeroMQ. One thread at a time; nothing blocks but
 * trajd_link_wait. */
#ifndef TRAJD_CLIENT_LINK_H
#define TRAJD_CLIENT_LINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/error.h"

struct trajd_link {
    void *context, *dealer;
    int fd;              /* the connection on fd.sock; -1: none */
    int dealer_fd;       /* edge-triggered */
    char *feed_endpoint; /* "ipc://DIRECTORY/feed.sock" */
    char *fd_path;
};

enum trajd_link_event {
    TRAJD_LINK_NOTHING,
    TRAJD_LINK_GREETED, /* the daemon took the token */
    TRAJD_LINK_RING,    /* a ring's descriptor, now the caller's */
    TRAJD_LINK_END,     /* the connection is over */
};

struct trajd_link_ring {
    uint64_t ring_id, size_bytes;
    int fd;
};

enum trajd_status trajd_link_create(struct trajd_link *link, const char *directory,
                                    struct trajd_error *error);
/* Does not wait for what was sent to leave. */
void trajd_link_destroy(struct trajd_link *link);

/* A new DEALER: what was under way on the old one is forgotten. It connects by itself, as often as it takes.
 */
enum trajd_status trajd_link_dial(struct trajd_link *link, struct trajd_error *error);
/* TRAJD_ERR_TIMEOUT: nobody is connected, or the socket is full. */
enum trajd_status trajd_link_send(struct trajd_link *link, const void *frame, size_t size_bytes);
/* The length of the next message, cut to room; 0: none waits, or it was not one frame (then it is gone). */
size_t trajd_link_receive(struct trajd_link *link, void *frame, size_t room);
bool trajd_link_can_send(const struct trajd_link *link);

/* Connects to fd.sock and shows the token. TRAJD_ERR_TIMEOUT: not now. */
enum trajd_status trajd_link_attach(struct trajd_link *link, const void *token, size_t token_size);
void trajd_link_detach(struct trajd_link *link);
enum trajd_link_event trajd_link_read(struct trajd_link *link, struct trajd_link_ring *ring);

/* Until either socket or wake_fd is readable, or somebody is connected; which of the two descriptors is. Only
 * after trajd_link_receive has returned 0, and nothing has been sent since. */
struct trajd_link_readable {
    bool connection, wake;
    bool signalled; /* a signal came instead */
};
struct trajd_link_readable trajd_link_wait(struct trajd_link *link, int wake_fd, int timeout_ms);
/* Readable when trajd_link_receive may have become worth a call; edge-triggered, -1 before the first dial. */
int trajd_link_poll_fd(const struct trajd_link *link);

#endif
