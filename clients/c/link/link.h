/* The connection of a worker to its daemon.
 *
 * Local: a DEALER socket on ipc:// carries messages, and a Unix connection to fd.sock carries the
 * descriptors of rings. The daemon and the worker each see the other's death as the end of the Unix
 * connection.
 * Remote: a DEALER socket on tcp://, with CURVE, carries messages and payloads. There is no Unix
 * connection, so the link makes its events: GREETED when it is attached, and END when the daemon
 * could not be reached for as long as it waits for a silent worker.
 *
 * link.c calls link_remote.c. These two files are the only ones of libtrajd that use ZeroMQ. One thread at a time may use a link. Only trajd_link_wait blocks. */
#ifndef TRAJD_C_LINK_LINK_H
#define TRAJD_C_LINK_LINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/error.h"
#include "proto/key_file.h"

/* A daemon has sent at most 64 batches that the worker has not received, a few answers, and a PONG for
 * each second in which it stood still. It cuts off workers whose PINGs are more than 1024. */
#define TRAJD_LINK_MAX_WAITING 2048u

struct trajd_link {
    void *context, *dealer;
    int fd;              /* the connection to fd.sock; -1: none */
    int dealer_fd;       /* of the DEALER, edge-triggered */
    char *feed_endpoint; /* "ipc://DIRECTORY/feed.sock" or "tcp://HOST:PORT" */
    char *fd_path;       /* "DIRECTORY/fd.sock"; remote: NULL */
    bool remote;
    uint32_t received_count; /* messages since the queue was last empty */
    bool is_flooded;         /* more than TRAJD_LINK_MAX_WAITING */

    /* remote */
    bool curve;
    bool attached, greeted; /* greeted: GREETED was returned */
    bool has_payload;       /* frames of the last received message wait to be received */
    void *monitor;
    uint32_t dial_count;
    const char *handshake_error; /* why the last handshake failed; NULL: none failed */
    uint64_t silence_timeout_ns; /* from WELCOME: the daemon drops a worker silent for so long */
    uint64_t connected_ns;       /* when the socket was last seen connected */
    struct trajd_key_file keys;
    struct trajd_link *next_open; /* list in link.c */
};

/* These members of trajd_connect_options. Borrowed. */
struct trajd_link_options {
    const char *endpoint, *key_file, *server_key;
};

enum trajd_link_event {
    TRAJD_LINK_NOTHING,
    TRAJD_LINK_GREETED, /* the daemon accepted the token */
    TRAJD_LINK_RING,    /* a ring's descriptor came; the caller closes it */
    TRAJD_LINK_END,     /* the connection has ended, or the daemon breaks the protocol */
};

struct trajd_link_ring {
    uint64_t ring_id, size_bytes;
    int fd;
};

/* Checks the endpoint and reads the keys. Does not connect. TRAJD_ERR_ARGUMENT: a malformed
 * endpoint, a path too long for a socket, or no key file for a remote host; and the errors of
 * trajd_key_read_secret. On failure the link is destroyed. */
enum trajd_status trajd_link_create(struct trajd_link *link,
                                    const struct trajd_link_options *options,
                                    struct trajd_error *error);
/* Closes everything. Messages that have not left are dropped. */
void trajd_link_destroy(struct trajd_link *link);

/* Makes a new DEALER socket; messages on the old one are dropped. ZeroMQ connects it in the
 * background, again and again until it succeeds. */
enum trajd_status trajd_link_dial(struct trajd_link *link, struct trajd_error *error);
/* Ends the connection. Nothing is received any more until the next dial. */
void trajd_link_hang_up(struct trajd_link *link);
/* TRAJD_ERR_TIMEOUT: not connected, or the socket's queue is full. */
enum trajd_status trajd_link_send(struct trajd_link *link, const void *frame, size_t size_bytes);
/* Receives the next message. Returns its bytes; 0: none has arrived. Drops messages that are longer
 * than `room`, and local ones of several frames. Remote: link->has_payload is true if a payload
 * follows. If the daemon floods, sets link->is_flooded and returns 0: the caller hangs up. */
size_t trajd_link_receive(struct trajd_link *link, void *frame, size_t room);
/* Receives the payload of the last message. Returns false if it does not have exactly size_bytes;
 * the payload is consumed in any case. */
bool trajd_link_receive_payload(struct trajd_link *link, void *payload, size_t size_bytes);
/* Returns true if the socket is connected and takes a message. */
bool trajd_link_can_send(const struct trajd_link *link);
/* Returns a descriptor that becomes readable when a message may have arrived. It is edge-triggered,
 * and owned by the link. -1: not dialled yet. */
int trajd_link_poll_fd(const struct trajd_link *link);

bool trajd_link_is_attached(const struct trajd_link *link);
/* Connects to fd.sock and sends the token. TRAJD_ERR_TIMEOUT: not possible now. */
enum trajd_status trajd_link_attach(struct trajd_link *link, const void *token, size_t token_size);
void trajd_link_detach(struct trajd_link *link);
/* Returns the next event of the connection. *ring is written with TRAJD_LINK_RING. */
enum trajd_link_event trajd_link_read(struct trajd_link *link, struct trajd_link_ring *ring);

/* Waits until a message may have arrived, fd.sock or wake_fd is readable, a signal comes, or
 * timeout_ms (-1: no limit) is over. Correct only after trajd_link_receive has returned 0 with no
 * send since: the DEALER's descriptor is edge-triggered. */
struct trajd_link_readable {
    bool connection, wake;
    bool signalled; /* a signal ended the wait */
};
struct trajd_link_readable trajd_link_wait(struct trajd_link *link, int wake_fd, int timeout_ms);
/* Returns why the last handshake failed, or "". Borrowed. */
const char *trajd_link_handshake_error(const struct trajd_link *link);

/* Opens a socket for fd.sock, which children made by fork close. link->fd is -1 on failure. */
void trajd_link_open_socket(struct trajd_link *link);
void trajd_link_close_socket(struct trajd_link *link);

/* link_remote.c, for link.c */
bool trajd_link_is_remote_endpoint(const char *endpoint);
/* Checks "tcp://HOST:PORT" and reads the keys. Without a key file only this machine is allowed. */
enum trajd_status trajd_link_remote_prepare(struct trajd_link *link,
                                            const struct trajd_link_options *options,
                                            struct trajd_error *error);
/* Sets the options of a new DEALER. Returns 0, or -1: zmq_errno says why. */
int trajd_link_remote_set(struct trajd_link *link);
void trajd_link_remote_close(struct trajd_link *link);
enum trajd_link_event trajd_link_remote_read(struct trajd_link *link);

#endif
