/* Limits what the connections to the ZeroMQ listeners may cost: how many there are, and how much
 * memory the unread bytes of each take.
 *
 * libzmq keeps all frames of an unfinished message, and no option of it limits their number. But it
 * accepts a connection with accept4 and reads from it with recv. This file replaces both (the
 * linker prefers the definition of an executable). So it counts the frames that each connection has
 * sent (zmtp.h). The transport reports those that it has received. The difference is what libzmq
 * holds. Other descriptors than those of the listeners are not affected.
 *
 * A connection is named by its descriptor. The table belongs to the process, because accept4 and
 * recv have no other context; so a process has one transport at a time. */
#ifndef TRAJD_SERVER_CONNECTIONS_H
#define TRAJD_SERVER_CONNECTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct trajd_connections_options {
    uint32_t max_sessions;
    size_t max_frame_bytes;
};

/* What waits for a peer: answers to its requests, and copied parts of its batches. */
enum trajd_connections_queue {
    TRAJD_CONNECTIONS_ANSWERS,
    TRAJD_CONNECTIONS_COPIES,
    TRAJD_CONNECTIONS_QUEUES
};

struct trajd_connections_counters {
    uint64_t refused; /* accepted and closed at once, because there were too many */
    uint64_t cut;     /* closed by a rule of this file */
};

/* Clears the table. Returns false when memory is short. */
bool trajd_connections_start(const struct trajd_connections_options *options);
/* Returns the number of descriptors that a daemon with so many sessions needs. */
uint64_t trajd_connections_descriptors(uint32_t max_sessions);
/* Notes that a frame of a message was received from the connection. Its body had so many bytes when
 * it arrived, encrypted or not. */
void trajd_connections_consume(int descriptor, size_t body_bytes);
/* Notes that no message waits, also none of a connection that has ended. */
void trajd_connections_consume_all(void);
/* Notes whether the connection has a session. One without a session may hold less memory. */
void trajd_connections_set_session(int descriptor, bool has_session);
/* Cuts connections that begin no session where there are many. Takes a heartbeat of each remote
 * connection for received. Called a few times in a second, by the thread that receives. */
void trajd_connections_watch(uint64_t now_ns);
/* Notes a message that a worker does not send. Cuts the connection after a number of them. */
void trajd_connections_blame(int descriptor);
/* Cuts the connection at once. */
void trajd_connections_cut(int descriptor);
/* Returns true if the connection was cut. What libzmq had received from it is worth nothing
 * then. */
bool trajd_connections_is_cut(int descriptor);
/* Returns true if `size` bytes are too many beside those that wait for the connection: more than a
 * limit or, where much waits for all of them together, more than its share. */
bool trajd_connections_is_queue_full(int descriptor, enum trajd_connections_queue queue,
                                     size_t size);
/* Notes bytes that libzmq holds for the connection from now on. Returns a number to remove them
 * with. */
uint64_t trajd_connections_add_queued(int descriptor, enum trajd_connections_queue queue,
                                      size_t size);
/* Notes that libzmq has freed them, also after the connection has ended. From any thread. */
void trajd_connections_remove_queued(int descriptor, enum trajd_connections_queue queue,
                                     uint64_t number, size_t size);
/* Returns how many bytes the daemon has sent that a local peer has not read, or that a remote one
 * has not acknowledged. */
size_t trajd_connections_unread(int descriptor);
void trajd_connections_get_counters(struct trajd_connections_counters *counters);

#endif
