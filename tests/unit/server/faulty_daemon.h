/* A daemon with one fault, for tests of libtrajd: it speaks the protocol on real sockets, in a
 * thread of its own. */
#ifndef TRAJD_TESTS_FAULTY_DAEMON_H
#define TRAJD_TESTS_FAULTY_DAEMON_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/server/ring.h"
#include "proto/wire.h"

#define SLOTS 4u
#define ROWS 8u
#define INSTANCE 99u
#define RING 1u

enum step { STEP_CONNECT, STEP_OPEN, STEP_NEXT, STEP_NONE };

/* One fault of the daemon. */
struct fault {
    const char *name;
    enum step step;           /* the last step at which the client may detect it */
    enum trajd_status status; /* of the client's error */
    enum trajd_wire_op op;    /* of the message with the fault; 0: none */
    void (*alter)(struct trajd_wire_message *message);
    /* the key whose one-byte value is replaced by `value`, which the encoder would refuse */
    const char *key;
    uint8_t value;
    uint32_t copies;       /* how often the message is sent; 0: once */
    void (*greet)(int fd); /* replaces the answer of one byte, 0 */
    void (*send_fds)(int fd,
                     const struct trajd_server_ring *); /* replaces the message with the ring */
};

struct daemon {
    const struct fault *fault;
    bool noisy;                   /* sends invalid frames before each message */
    uint8_t major;                /* version of the protocol; 0: the right one */
    enum trajd_status late_error; /* about the feed before, sent when OPEN arrives; OK: none */
    void *context, *router;
    int listener, connection;
    struct trajd_server_ring ring;
    uint64_t sequence;
    bool stop; /* atomic */
    pthread_t thread;
    char route[64];
    int route_size;
    unsigned char frame[TRAJD_WIRE_MAX_FRAME + 64];
};

/* Starts the daemon in the directory. The caller has set fault, noisy, major and late_error, and
 * all other members to 0. */
void daemon_start(struct daemon *daemon, const char *directory);
/* Joins the thread and closes the sockets. */
void daemon_stop(struct daemon *daemon);
/* Sends a message with descriptors on a connection of fd.sock. */
void daemon_send_fds(int fd, const void *words, size_t size, const int *fds, uint32_t fd_count);

#endif
