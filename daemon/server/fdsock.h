/* The Unix socket fd.sock: sends the descriptors of rings to workers, and detects a worker's death
 * by the end of file of its connection. Used by the server's thread only. Nothing here blocks. */
#ifndef TRAJD_SERVER_FDSOCK_H
#define TRAJD_SERVER_FDSOCK_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "daemon/server/ring.h"
#include "proto/error.h"

#define TRAJD_TOKEN_SIZE 16

struct trajd_fdsock;

struct trajd_fdsock_options {
    const char *path;
    bool group_access; /* true: the socket file has mode 0770; false: 0700 */
    /* where there are as many, a further one takes the place of one without a token, by the shares
     * of users in unix_socket.h */
    uint32_t max_connections;
    uint32_t silence_ms; /* a connection that sends no token for this time is closed */
    /* Returns the session of that token and uid that waits for its connection, or 0. */
    uint64_t (*identify)(void *context, const uint8_t token[TRAJD_TOKEN_SIZE], uid_t uid);
    /* Reports that the session's connection has ended: its worker is dead. Not called for a
     * connection that trajd_fdsock_drop has closed. */
    void (*session_lost)(void *context, uint64_t session);
    void *context;
};

/* Binds the socket and listens. Replaces an old socket file: the caller holds the directory's lock.
 */
enum trajd_status trajd_fdsock_create(const struct trajd_fdsock_options *options,
                                      struct trajd_fdsock **fdsock, struct trajd_error *error);
/* Closes all connections without calling session_lost, removes the socket file, and clears the
 * pointer. */
void trajd_fdsock_destroy(struct trajd_fdsock **fdsock);

/* Returns a descriptor that is readable when trajd_fdsock_turn has events to handle. */
int trajd_fdsock_poll_fd(const struct trajd_fdsock *fdsock);
/* Handles all events, and closes connections that were silent for silence_ms. */
void trajd_fdsock_turn(struct trajd_fdsock *fdsock, uint64_t now_ns);

/* Sends the ring's number, size and descriptor. TRAJD_ERR_CLOSED: the session has no connection, or
 * does not read it. */
enum trajd_status trajd_fdsock_send_ring(struct trajd_fdsock *fdsock, uint64_t session,
                                         const struct trajd_server_ring *ring,
                                         struct trajd_error *error);
/* Closes the session's connection, if it has one. */
void trajd_fdsock_drop(struct trajd_fdsock *fdsock, uint64_t session);

#endif
