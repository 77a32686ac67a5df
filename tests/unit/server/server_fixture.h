/* A server in this process, and a raw peer that talks to its sockets without libtrajd. */
#ifndef TRAJD_TESTS_SERVER_FIXTURE_H
#define TRAJD_TESTS_SERVER_FIXTURE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "proto/wire.h"
#include "tests/support/test_producer.h"

struct peer {
    void *context, *socket;
    struct trajd_wire_tensor tensors[TRAJD_WIRE_MAX_TENSORS];
    unsigned char frame[TRAJD_WIRE_MAX_FRAME];
};

extern char directory[64];
extern struct producer *producer;

/* Setup and teardown of a test: a directory and a server with the feed "train". */
int start(void **state);
int stop(void **state);
/* Connects to feed.sock. The caller closes the peer. */
struct peer *peer_open(void);
void peer_close(struct peer *peer);
void send_message(struct peer *peer, const struct trajd_wire_message *message);
/* Returns false after 10 s, or if the message is invalid. */
bool receive_message(struct peer *peer, struct trajd_wire_message *message);
/* Receives the next message of that op, and ignores others. */
void await(struct peer *peer, enum trajd_wire_op op, struct trajd_wire_message *message);
/* Sends HELLO and returns the WELCOME. */
struct trajd_wire_welcome hello(struct peer *peer);
/* Connects to fd.sock. */
int connect_fd(void);
/* Returns the bytes of the next message, or 0 at the end of file. Waits at most 10 s. */
ssize_t read_fd(int fd);
/* Connects to fd.sock and sends the token. */
int attach(const struct trajd_wire_welcome *welcome);
/* Sends OPEN for the feed "train". */
void open_train(struct peer *peer, uint32_t credit);
/* Returns the lease of a batch. */
struct trajd_wire_lease lease_of(const struct trajd_wire_batch *batch);
/* Returns a number of the status document. */
uint64_t status_number(struct peer *peer, const char *name);

#endif
