/* The Unix socket beside the ZeroMQ one: hands ring descriptors to workers, and tells a worker's
 * death by its end of file. Used from the server's thread only. Nothing here blocks. */
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
    bool group_access;        /* the file is 0770, else 0700 */
    uint32_t max_connections; /* more are accepted and closed */
    uint32_t silence_ms;      /* a connection that has shown no token for so long is closed */
    /* The session of that token and uid, which waits for its connection; 0: there is none. */
    uint64_t (*identify)(void *context, const uint8_t token[TRAJD_TOKEN_SIZE], uid_t uid);
    /* The session's connection is at its end: its worker is dead. Not called after
     * trajd_fdsock_drop. */
    void (*session_lost)(void *context, uint64_t session);
    void *context;
};

/* Replaces a stale socket file: the caller holds the directory's lock. */
enum trajd_status trajd_fdsock_create(const struct trajd_fdsock_options *options,
                                      struct trajd_fdsock **fdsock, struct trajd_error *error);
/* Closes all connections, silently, and removes the socket file. */
void trajd_fdsock_destroy(struct trajd_fdsock **fdsock);

/* Readable when trajd_fdsock_turn has something to do (besides closing silent connections). */
int trajd_fdsock_poll_fd(const struct trajd_fdsock *fdsock);
void trajd_fdsock_turn(struct trajd_fdsock *fdsock, uint64_t now_ns);

/* TRAJD_ERR_CLOSED: the session has no connection, or does not read it. */
enum trajd_status trajd_fdsock_send_ring(struct trajd_fdsock *fdsock, uint64_t session,
                                         const struct trajd_server_ring *ring,
                                         struct trajd_error *error);
/* Ends the session's connection, if it has one. */
void trajd_fdsock_drop(struct trajd_fdsock *fdsock, uint64_t session);

#endif
