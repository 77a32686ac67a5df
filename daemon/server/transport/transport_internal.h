/* What transport.c, transport_listeners.c and transport_auth.c share, and no other file
 * includes. */
#ifndef TRAJD_SERVER_TRANSPORT_INTERNAL_H
#define TRAJD_SERVER_TRANSPORT_INTERNAL_H

#include <zmq.h>

#include "daemon/server/keyring.h"
#include "daemon/server/transport/transport.h"

#define TRAJD_LISTENERS 2u
#define TRAJD_MAX_UNKNOWN_KEYS 64u
/* Segments with fewer bytes are copied into a common frame, because a frame with a send reference
 * costs more than such a copy. */
#define TRAJD_SEND_IN_PLACE_MIN_BYTES 4096u
#define TRAJD_STAGING_BYTES 65536u

/* The ZAP domains of the listeners: they tell the handler of transport_auth.c which listener a new
 * connection came to. */
#define TRAJD_LOCAL_DOMAIN "trajd"
#define TRAJD_REMOTE_DOMAIN "trajd-remote"

/* A ROUTER socket and its endpoint. */
struct trajd_transport_listener {
    void *router, *monitor; /* NULL: there is no such listener */
    int router_fd, monitor_fd;
    char *endpoint;
    bool bound;       /* so the socket file is the daemon's */
    bool is_skipping; /* the rest of an invalid message is discarded */
};

struct trajd_transport {
    void *context, *zap;
    int zap_fd;
    struct trajd_transport_listener listeners[TRAJD_LISTENERS];
    bool group_access;
    struct trajd_transport_remote remote; /* its texts are valid only during create */
    struct trajd_keyring *keyring;        /* NULL: no CURVE */
    /* the last keys that were refused and logged, as a ring buffer */
    char unknown_keys[TRAJD_MAX_UNKNOWN_KEYS][TRAJD_KEY_SIZE];
    uint32_t unknown_key_count;
    int64_t unknown_key_ns;                   /* when one was logged last */
    uint64_t unlogged_key_count;              /* connections with others since then */
    char key_error[TRAJD_ERROR_MESSAGE_SIZE]; /* the last logged error of key files */
    bool has_side_events;                     /* zap or a monitor may have events */
    uint32_t next_listener;                   /* the listener to receive from first */
    zmq_msg_t frame;                          /* the last received frame */
    /* the name and the public key of its sender */
    char sender[TRAJD_KEY_NAME_SIZE + TRAJD_KEY_SIZE];
    bool has_garbage;       /* connections have ended since memory was returned */
    uint64_t trim_at_ns;    /* memory is returned then */
    uint64_t seen_refused;  /* connections refused up to the last look */
    uint64_t flood_ends_ns; /* the flood is over if none is refused until then; 0: there is none */
    uint64_t seen_cut, cuts_end_ns; /* the same for connections that were cut */
    struct trajd_transport_counters counters;
    size_t staged;
    unsigned char staging[TRAJD_STAGING_BYTES];
};

/* ---- transport_listeners.c ---- */

/* Fills the error from zmq_errno(), with a prefix. Returns TRAJD_ERR_SYSTEM. */
enum trajd_status trajd_zmq_error(struct trajd_error *error, const char *what);
/* Sets integer options of a socket, as pairs of option and value. */
enum trajd_status trajd_zmq_set(void *socket, const int (*options)[2], size_t count,
                                struct trajd_error *error);
/* Raises the limit of descriptors, and opens and binds the listeners. */
enum trajd_status trajd_listeners_open(struct trajd_transport *transport,
                                       const struct trajd_transport_options *options,
                                       struct trajd_error *error);
/* Returns the number of I/O threads of the remote listener, which encrypt. Each connection belongs
 * to one of them. */
int trajd_listeners_remote_threads(void);
/* Closes the listeners' sockets, and removes the ipc socket's file. */
void trajd_listeners_close(struct trajd_transport *transport);
/* Handles events of the monitors: ended connections and failed handshakes. Returns true if more may
 * wait. */
bool trajd_listeners_read_monitors(struct trajd_transport *transport);

/* ---- transport_auth.c ---- */

/* Opens the socket on which libzmq asks whether a connection is allowed. */
enum trajd_status trajd_access_open(struct trajd_transport *transport, struct trajd_error *error);
/* Answers requests of libzmq. Returns true if more may wait, so that one turn ends. */
bool trajd_access_answer(struct trajd_transport *transport);
/* Reads the uid from "localhost:UID:GID:PID", the form in which libzmq gives the credentials of an
 * ipc peer. Returns false for any other text. */
bool trajd_access_parse_uid(const char *address, uid_t *uid);

#endif
