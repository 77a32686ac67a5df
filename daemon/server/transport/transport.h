/* Receives and sends messages over ZeroMQ, through two listeners: a ROUTER on an ipc socket for
 * processes of the same user (or group), and an optional one on tcp for workers with known CURVE
 * keys. Only transport*.c use ZeroMQ in the daemon: transport.c moves messages,
 * transport_listeners.c opens and closes sockets, transport_auth.c decides who may connect.
 * connections.c limits what connections may cost.
 *
 * One thread at a time, so callers hold a mutex. The exception is trajd_transport_wait: one thread
 * may call it while another thread uses the transport.
 *
 * The tcp listener has I/O threads of its own, so that encryption does not delay local workers. A
 * remote peer that reads nothing for silence_ms is disconnected, and its queued messages are
 * dropped. */
#ifndef TRAJD_SERVER_TRANSPORT_H
#define TRAJD_SERVER_TRANSPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "daemon/server/slot_sends.h"
#include "proto/error.h"

#define TRAJD_ROUTE_SIZE 15u

struct trajd_transport;

enum trajd_listener { TRAJD_LISTENER_LOCAL, TRAJD_LISTENER_REMOTE };

/* A peer's connection: its routing id in ZeroMQ, which is a new one after each reconnect. */
struct trajd_route {
    uint8_t listener; /* enum trajd_listener */
    uint8_t size;
    uint8_t bytes[TRAJD_ROUTE_SIZE];
    int descriptor; /* of the connection when the message arrived (connections.h); not compared */
};

/* The tcp listener. Texts are borrowed. */
struct trajd_transport_remote {
    /* "ADDRESS:PORT" or "[ADDRESS]:PORT", in numbers; NULL: no such listener */
    const char *address;
    const char *keys;       /* directory of keys (keyring.h) */
    bool insecure_loopback; /* no CURVE; valid only for the addresses 127.0.0.1 and ::1 */
    uint32_t silence_ms;    /* a peer that reads nothing for this time is disconnected */
    /* Logs a line: an unknown key (each key once), a key file that cannot be read, or a flood (of
     * any listener). Called on the thread that calls trajd_transport_turn. May be NULL. */
    void (*log_line)(void *context, const char *line);
    void *context;
};

struct trajd_transport_options {
    const char *path; /* of the ipc socket's file; the caller holds the directory's lock */
    /* true: the file has mode 0770, and every user that can open it may connect; false: mode 0700,
     * and only the daemon's own user and root may */
    bool group_access;
    size_t max_frame_bytes; /* ZeroMQ closes connections that send longer frames */
    uint32_t send_limit;    /* the most messages queued for one peer */
    /* each needs about five descriptors; an error if RLIMIT_NOFILE is lower */
    uint32_t max_sessions;
    struct trajd_transport_remote remote;
};

struct trajd_incoming {
    struct trajd_route route;
    uint64_t owner; /* a number for the uid or key; only the same owner may resume a session */
    /* Of a remote peer: the name of its key and the public key ("" without CURVE), and the address.
     * Borrowed until the next receive. */
    const char *user, *key, *address;
    const void *frame; /* borrowed until the next receive; NULL: nothing to handle */
    size_t size_bytes;
};

struct trajd_transport_counters {
    uint64_t malformed;    /* messages with more than one frame, or from peers without a uid */
    uint64_t refused;      /* connections of another uid */
    uint64_t refused_keys; /* connections with an unknown key */
    /* on tcp: another protocol, no key, the wrong server key, garbage, or silence */
    uint64_t failed_handshakes;
    uint64_t floods;          /* how often there were so many connections that some were refused */
    uint64_t cut_connections; /* connections closed because of the memory that they took */
};

enum trajd_status trajd_transport_create(const struct trajd_transport_options *options,
                                         struct trajd_transport **transport,
                                         struct trajd_error *error);
/* Closes all sockets without waiting for peers, and clears the pointer. All send references are
 * returned before it returns. */
void trajd_transport_destroy(struct trajd_transport **transport);
/* Returns "tcp://ADDRESS:PORT" with the bound port, also if the options had port 0, or NULL if
 * there is no tcp listener. Borrowed. */
const char *trajd_transport_remote_endpoint(const struct trajd_transport *transport);

/* Waits until a message arrives, one of the descriptors (at most 4) is readable, or timeout_ms is
 * over. Bit i of the result is set if descriptor i is readable. Valid only after
 * trajd_transport_receive has returned false. A send may consume the sign of a message: a thread
 * that has sent since, or sends meanwhile, calls trajd_transport_has_message afterwards, and if
 * there is a message wakes the waiting thread through a descriptor. */
uint32_t trajd_transport_wait(struct trajd_transport *transport, const int *descriptors,
                              uint32_t count, uint32_t timeout_ms);
/* Returns true if a listener has a message to receive. */
bool trajd_transport_has_message(struct trajd_transport *transport);
/* Receives the next message, or discards frames of an invalid one: then incoming->frame is NULL.
 * Returns false if there is none. Listeners take turns. */
bool trajd_transport_receive(struct trajd_transport *transport, struct trajd_incoming *incoming);
/* Sends a copy of the frame, without blocking. TRAJD_ERR_CLOSED: the connection has ended.
 * TRAJD_ERR_BUSY: send_limit messages are queued, because the peer does not read. */
enum trajd_status trajd_transport_send(struct trajd_transport *transport,
                                       const struct trajd_route *route, const void *frame,
                                       size_t size_bytes);
/* Sends a message that is not a BATCH. TRAJD_ERR_BUSY: the peer does not read. A peer that goes on
 * with requests then is disconnected. The number of BATCHes is limited by the credit instead. */
enum trajd_status trajd_transport_answer(struct trajd_transport *transport,
                                         const struct trajd_route *route, const void *frame,
                                         size_t size_bytes);
/* Sends a copy of the frame, followed by the segments of a payload as further frames of the same
 * message. Small segments are copied. Large ones are sent in place: each frame holds a send
 * reference of the slot until ZeroMQ has sent or dropped it. The caller has a send reference of the
 * slot until this returns. Errors as above. */
enum trajd_status trajd_transport_send_payload(struct trajd_transport *transport,
                                               const struct trajd_route *route, const void *frame,
                                               size_t size_bytes,
                                               const struct trajd_payload_segment *segments,
                                               uint32_t count, struct trajd_slot_sends *slot_sends,
                                               uint32_t slot);
/* Does the work beside messages: decides on new connections. Called once in each turn of the loop;
 * cheap. */
void trajd_transport_turn(struct trajd_transport *transport);
/* Looks for floods, and returns memory after connections have ended. Called a few times in a
 * second. */
void trajd_transport_tick(struct trajd_transport *transport, uint64_t now_ns);
/* Returns true if the key of a remote peer was removed from the directory of keys, or replaced.
 * `user` and `key` are those of trajd_incoming. Reads a file. */
bool trajd_transport_is_shut_out(const struct trajd_transport *transport, const char *user,
                                 const char *key);
const struct trajd_transport_counters *
trajd_transport_get_counters(const struct trajd_transport *transport);

#endif
