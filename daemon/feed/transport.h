/* Frames over ZeroMQ: a ROUTER on an ipc socket that only its own uid (or group) may use, and that a flood of
 * connections does not kill. The only file of the daemon that knows ZeroMQ. One thread at a time: who passes it
 * on does so under a mutex; but for trajd_transport_wait, in which one thread may be at any time. */
#ifndef TRAJD_FEED_TRANSPORT_H
#define TRAJD_FEED_TRANSPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "proto/error.h"

#define TRAJD_ROUTE_SIZE 15u

struct trajd_transport;

/* A peer's connection, as ZeroMQ names it; another one after each reconnect. */
struct trajd_route {
    uint8_t size;
    uint8_t bytes[TRAJD_ROUTE_SIZE];
};

struct trajd_transport_options {
    const char *path;  /* of the socket file; the caller holds the directory's lock */
    bool group_access; /* the file is 0770, and whoever may open it is let in; else 0700, our uid and root */
    size_t max_frame_bytes; /* ZeroMQ closes connections that send longer ones */
    uint32_t send_limit;    /* frames that wait for one peer */
    uint32_t max_sessions;  /* of two descriptors each: refused if they could use up half of RLIMIT_NOFILE */
};

struct trajd_incoming {
    struct trajd_route route;
    uid_t uid;
    const void *frame; /* until the next receive */
    size_t size_bytes;
};

struct trajd_transport_counters {
    uint64_t malformed; /* messages with too many frames, or from nameless peers */
    uint64_t refused;   /* connections of another uid */
    uint64_t floods;    /* times that the socket was closed because descriptors ran short */
};

enum trajd_status trajd_transport_create(const struct trajd_transport_options *options,
                                         struct trajd_transport **transport, struct trajd_error *error);
/* Never waits for peers. */
void trajd_transport_destroy(struct trajd_transport **transport);

/* Until a message comes, or one of the descriptors (at most 4) is readable: bit i of the result says that
 * number i is. Only after trajd_transport_receive has returned false; who has sent since, or sends meanwhile,
 * asks trajd_transport_has_message afterwards, and wakes this thread by a descriptor. */
uint32_t trajd_transport_wait(struct trajd_transport *transport, const int *descriptors, uint32_t count,
                              uint32_t timeout_ms);
/* True if trajd_transport_receive is worth a call. */
bool trajd_transport_has_message(struct trajd_transport *transport);
/* The next whole message, if there is one. */
bool trajd_transport_receive(struct trajd_transport *transport, struct trajd_incoming *incoming);
/* TRAJD_ERR_CLOSED: no such connection any more; TRAJD_ERR_BUSY: it does not read. The frame is copied. */
enum trajd_status trajd_transport_send(struct trajd_transport *transport, const struct trajd_route *route,
                                       const void *frame, size_t size_bytes);
/* What is to be done beside messages: answers to who may connect, the watch over descriptors. Once a turn of
 * the loop; cheap. */
void trajd_transport_turn(struct trajd_transport *transport, uint64_t now_ns);
const struct trajd_transport_counters *trajd_transport_get_counters(const struct trajd_transport *transport);

#endif
