/* The transport's inside, shared by transport.c, transport_listeners.c and transport_auth.c. Nobody
 * else includes this. */
#ifndef TRAJD_SERVER_TRANSPORT_INTERNAL_H
#define TRAJD_SERVER_TRANSPORT_INTERNAL_H

#include <zmq.h>

#include "daemon/server/keyring.h"
#include "daemon/server/transport.h"

#define TRAJD_LISTENERS 2u
#define TRAJD_MAX_UNKNOWN_KEYS 64u
/* Pieces below are copied together: a send reference of its own costs more than so many bytes. */
#define TRAJD_SEND_IN_PLACE_MIN_BYTES 4096u
#define TRAJD_STAGING_BYTES 65536u

/* What libzmq's handshake tells the handler who may connect: which listener it is. */
#define TRAJD_LOCAL_DOMAIN "trajd"
#define TRAJD_REMOTE_DOMAIN "trajd-remote"

/* A ROUTER and where it listens. */
struct trajd_transport_listener {
    void *router, *monitor; /* NULL: there is no such listener */
    int router_fd, monitor_fd;
    char *endpoint;
    bool bound;          /* at least once: a socket file there is ours */
    uint64_t accepted;   /* since descriptors were counted */
    uint64_t bind_at_ns; /* not 0: the listener rests until then */
};

struct trajd_transport {
    void *context, *zap;
    int zap_fd;
    struct trajd_transport_listener listeners[TRAJD_LISTENERS];
    bool group_access;
    struct trajd_transport_remote remote; /* `address` lives with the caller only while creating */
    struct trajd_keyring *keyring;        /* NULL: no CURVE */
    /* keys that were refused and told, the oldest replaced */
    char unknown_keys[TRAJD_MAX_UNKNOWN_KEYS][TRAJD_KEY_SIZE];
    uint32_t unknown_key_count;
    char key_error[TRAJD_ERROR_MESSAGE_SIZE]; /* with files of keys, told last */
    bool has_side_events;                     /* zap or a monitor may have something */
    uint32_t turn;                            /* the listener that is asked first */
    zmq_msg_t frame;                          /* of the last receive */
    uint64_t descriptor_limit;
    uint64_t count_again_at; /* this many accepted */
    struct trajd_transport_counters counters;
    size_t staged;
    unsigned char staging[TRAJD_STAGING_BYTES];
};

/* transport_listeners.c */
enum trajd_status trajd_zmq_error(struct trajd_error *error, const char *what);
enum trajd_status trajd_zmq_set(void *socket, const int (*options)[2], size_t count,
                                struct trajd_error *error);
enum trajd_status trajd_listeners_open(struct trajd_transport *transport,
                                       const struct trajd_transport_options *options,
                                       struct trajd_error *error);
/* I/O threads of the remote listener, which encrypt; a connection is always one thread's. */
int trajd_listeners_remote_threads(void);
void trajd_listeners_close(struct trajd_transport *transport);
/* Counts what came; closes a listener while descriptors are short, and opens it again. */
void trajd_listeners_watch(struct trajd_transport *transport, uint64_t now_ns);

/* transport_auth.c */
enum trajd_status trajd_access_open(struct trajd_transport *transport, struct trajd_error *error);
void trajd_access_answer(struct trajd_transport *transport);
/* "localhost:UID:GID:PID", what libzmq makes of an ipc peer's credentials. */
bool trajd_access_parse_uid(const char *address, uid_t *uid);

#endif
