/* Frames over ZeroMQ through two listeners: a ROUTER on an ipc socket that only its own uid (or
 * group) may use, and, if asked for, one on tcp for workers whose CURVE keys are known. Neither is
 * killed by a flood of connections. transport*.c are the only files of the daemon that know ZeroMQ:
 * transport.c moves messages, transport_listeners.c opens and closes sockets, transport_auth.c says
 * who may connect. One thread at a time: who passes it on does so under a mutex; but for
 * trajd_transport_wait, in which one thread may be at any time.
 *
 * The tcp listener has I/O threads of its own: what is encrypted and sent there holds no local
 * worker up. A peer that takes nothing for silence_ms is disconnected, and what was queued for it
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

/* A peer's connection, as ZeroMQ names it; another one after each reconnect. */
struct trajd_route {
    uint8_t listener; /* enum trajd_listener */
    uint8_t size;
    uint8_t bytes[TRAJD_ROUTE_SIZE];
};

/* The tcp listener. */
struct trajd_transport_remote {
    /* "ADDRESS:PORT", "[ADDRESS]:PORT", numbers alone; NULL: no such listener */
    const char *address;
    const char *keys;       /* the directory of keyring.h */
    bool insecure_loopback; /* no CURVE: refused unless the address is 127.0.0.1 or ::1 */
    uint32_t silence_ms;
    /* A line for the log: a key that is not known (each once), a file of keys that cannot be read.
     * On the thread that calls trajd_transport_turn. May be NULL. */
    void (*log_line)(void *context, const char *line);
    void *context;
};

struct trajd_transport_options {
    const char *path; /* of the socket file; the caller holds the directory's lock */
    /* the file is 0770, and whoever may open it is let in; else 0700, our uid and root */
    bool group_access;
    size_t max_frame_bytes; /* ZeroMQ closes connections that send longer ones */
    uint32_t send_limit;    /* messages that wait for one peer */
    /* of two descriptors each: refused if they could use up half of RLIMIT_NOFILE */
    uint32_t max_sessions;
    struct trajd_transport_remote remote;
};

struct trajd_incoming {
    struct trajd_route route;
    uint64_t owner; /* who may resume what this one began: a uid, or a key */
    /* remote: the key's name ("" without CURVE), the peer's address; until the next receive */
    const char *user, *address;
    const void *frame; /* until the next receive */
    size_t size_bytes;
};

struct trajd_transport_counters {
    uint64_t malformed;    /* messages with too many frames, or from nameless peers */
    uint64_t refused;      /* connections of another uid */
    uint64_t refused_keys; /* connections with a key that is not known */
    /* on tcp: another protocol, no key, the wrong server's key, garbage, silence */
    uint64_t failed_handshakes;
    uint64_t floods; /* times that a listener was closed because descriptors ran short */
};

enum trajd_status trajd_transport_create(const struct trajd_transport_options *options,
                                         struct trajd_transport **transport,
                                         struct trajd_error *error);
/* Never waits for peers. What was lent is back when it returns. */
void trajd_transport_destroy(struct trajd_transport **transport);
/* "tcp://ADDRESS:PORT" as bound (port 0 has become one); NULL: no tcp listener. */
const char *trajd_transport_remote_endpoint(const struct trajd_transport *transport);

/* Until a message comes, or one of the descriptors (at most 4) is readable: bit i of the result
 * says that number i is. Only after trajd_transport_receive has returned false; who has sent since,
 * or sends meanwhile, asks trajd_transport_has_message afterwards, and wakes this thread by a
 * descriptor. */
uint32_t trajd_transport_wait(struct trajd_transport *transport, const int *descriptors,
                              uint32_t count, uint32_t timeout_ms);
/* True if trajd_transport_receive is worth a call. */
bool trajd_transport_has_message(struct trajd_transport *transport);
/* The next whole message, if there is one; listeners take turns. */
bool trajd_transport_receive(struct trajd_transport *transport, struct trajd_incoming *incoming);
/* TRAJD_ERR_CLOSED: no such connection any more; TRAJD_ERR_BUSY: it does not read. The frame is
 * copied. */
enum trajd_status trajd_transport_send(struct trajd_transport *transport,
                                       const struct trajd_route *route, const void *frame,
                                       size_t size_bytes);
/* The same, followed by the bytes of a part as further frames. Small segments are copied, large
 * ones borrowed from `slot_sends` until ZeroMQ has sent or dropped them; the caller has a send
 * reference of the slot until this returns. */
enum trajd_status trajd_transport_send_payload(struct trajd_transport *transport,
                                               const struct trajd_route *route, const void *frame,
                                               size_t size_bytes,
                                               const struct trajd_payload_segment *segments,
                                               uint32_t count, struct trajd_slot_sends *slot_sends,
                                               uint32_t slot);
/* What is to be done beside messages: answers to who may connect, the watch over descriptors. Once
 * a turn of the loop; cheap. */
void trajd_transport_turn(struct trajd_transport *transport, uint64_t now_ns);
const struct trajd_transport_counters *
trajd_transport_get_counters(const struct trajd_transport *transport);

#endif
