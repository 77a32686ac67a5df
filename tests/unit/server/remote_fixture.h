/* A server with a tcp listener in this process, keys for its workers, and workers of libtrajd. */
#ifndef TRAJD_TESTS_REMOTE_FIXTURE_H
#define TRAJD_TESTS_REMOTE_FIXTURE_H

#include <stdint.h>

#include "tests/support/test_producer.h"
#include "trajd.h"

#define LENGTH 400u
#define BATCH 8u
#define PAYLOAD 70000u /* bytes of a row, so that a batch has several frames */
#define LARGE 1000000u /* bytes of a row, more than the buffers of sockets */
#define WIDE 1024u
#define SILENCE_MS 1500u

/* the server's directory, its directory of keys, and the secret files of two workers */
extern char directory[32], keys[64], alice[96], mallory[96];
extern struct producer *producer;
extern const char *endpoint; /* of the tcp listener */
/* of the feed: bytes of a row, and positions of an epoch */
extern uint64_t payload_bytes, length;

/* Makes the directory with keys: the server admits alice, and not mallory. */
int make_directory(void);
/* Starts a server with a tcp listener. */
int start_with(struct producer_options options);
/* Setup and teardown of a test: a server with CURVE, and one without. */
int start(void **state);
int start_insecurely(void **state);
int stop(void **state);
/* Connects a client of libtrajd. */
struct trajd_client *connect_to(const char *where, const char *key_file);
/* Opens the feed "train". */
void open_feed(struct trajd_client *client, struct trajd_open_options options);
/* Checks all values of a batch, and overwrites its payload. */
void check_values(const struct trajd_batch *batch);
/* Reads and checks batches until the end of the epoch. Returns the number of rows. */
uint32_t read_epoch(struct trajd_client *client);
/* Returns a number of the status document. */
uint64_t status_number(const char *name);
/* Waits until a number of the status document is at least `least`. */
void wait_for_status(const char *name, uint64_t least);

#endif
