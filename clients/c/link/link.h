/* The worker's way to its daemon. Here: a DEALER on ipc for messages, and the Unix connection that
 * carries descriptors and whose end is the daemon's. To a daemon elsewhere (link_remote.c): a
 * DEALER on tcp, with CURVE, over which parts travel; what the Unix connection says is said by the
 * link itself there: attached when the session is known, at its end when nobody could be reached
 * for as long as the daemon waits for us. link*.c are the only files of libtrajd that know ZeroMQ.
 * One thread at a time; nothing blocks but trajd_link_wait. */
#ifndef TRAJD_C_LINK_H
#define TRAJD_C_LINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/error.h"
#include "proto/key_file.h"

struct trajd_link {
    void *context, *dealer;
    int fd;              /* the connection on fd.sock; -1: none */
    int dealer_fd;       /* edge-triggered */
    char *feed_endpoint; /* "ipc://DIRECTORY/feed.sock", or "tcp://HOST:PORT" */
    char *fd_path;
    /* remote */
    bool remote, curve;
    bool attached, greeted; /* greeted: and it has been told */
    /* the frames of a part wait behind the message that was received last */
    bool has_payload;
    void *monitor;
    uint32_t dial_count;
    const char *handshake_error; /* why the last handshake failed; NULL: none did */
    uint64_t silence_timeout_ns; /* what the daemon told: it gives us up after that */
    uint64_t connected_ns;       /* somebody was connected */
    struct trajd_key_file keys;
    struct trajd_link *next_open; /* of link_fork.c */
};

/* trajd_connect_options, of which this is a part. */
struct trajd_link_options {
    const char *endpoint, *key_file, *server_key;
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

enum trajd_status trajd_link_create(struct trajd_link *link,
                                    const struct trajd_link_options *options,
                                    struct trajd_error *error);
/* Does not wait for what was sent to leave. */
void trajd_link_destroy(struct trajd_link *link);

/* A new DEALER: what was under way on the old one is forgotten. It connects by itself, as often as
 * it takes. */
enum trajd_status trajd_link_dial(struct trajd_link *link, struct trajd_error *error);
/* TRAJD_ERR_TIMEOUT: nobody is connected, or the socket is full. */
enum trajd_status trajd_link_send(struct trajd_link *link, const void *frame, size_t size_bytes);
/* The length of the next message; 0: none waits. One that is longer than room is dropped, and one
 * of several frames, unless the link is remote: then link->more says that the part is there. */
size_t trajd_link_receive(struct trajd_link *link, void *frame, size_t room);
/* The part behind the message that was received last, which must be exactly so long; it is gone in
 * any case. */
bool trajd_link_receive_payload(struct trajd_link *link, void *payload, size_t size_bytes);
bool trajd_link_can_send(const struct trajd_link *link);

bool trajd_link_is_attached(const struct trajd_link *link);
/* Connects to fd.sock and shows the token. TRAJD_ERR_TIMEOUT: not now. */
enum trajd_status trajd_link_attach(struct trajd_link *link, const void *token, size_t token_size);
void trajd_link_detach(struct trajd_link *link);
enum trajd_link_event trajd_link_read(struct trajd_link *link, struct trajd_link_ring *ring);

/* Until either socket or wake_fd is readable, or somebody is connected; which of the two
 * descriptors is. Only after trajd_link_receive has returned 0, and nothing has been sent since. */
struct trajd_link_readable {
    bool connection, wake;
    bool signalled; /* a signal came instead */
};
struct trajd_link_readable trajd_link_wait(struct trajd_link *link, int wake_fd, int timeout_ms);
/* Why nobody answers, as far as the link knows; "" if it does not. */
const char *trajd_link_handshake_error(const struct trajd_link *link);
/* Readable when trajd_link_receive may have become worth a call; edge-triggered, -1 before the
 * first dial. */
int trajd_link_poll_fd(const struct trajd_link *link);

/* link_fork.c, called by link.c alone */
void trajd_link_open_socket(struct trajd_link *link); /* link->fd; -1: it failed */
void trajd_link_close_socket(struct trajd_link *link);

/* link_remote.c, called by link.c alone */
bool trajd_link_is_remote_endpoint(const char *endpoint);
enum trajd_status trajd_link_remote_prepare(struct trajd_link *link,
                                            const struct trajd_link_options *options,
                                            struct trajd_error *error);
/* the options of a new DEALER; -1: see zmq_errno */
int trajd_link_remote_set(struct trajd_link *link);
void trajd_link_remote_close(struct trajd_link *link);
enum trajd_link_event trajd_link_remote_read(struct trajd_link *link);

#endif
