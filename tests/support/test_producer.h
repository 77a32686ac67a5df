/* A daemon's server with a producer whose bytes are all functions of epoch and position. For tests
 * and benchmarks. */
#ifndef TRAJD_TESTS_PRODUCER_H
#define TRAJD_TESTS_PRODUCER_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/server/server.h"

#define PRODUCER_COLUMNS 3u

struct producer_options {
    const char *directory;
    uint32_t slots, batch, credit, sessions; /* 0: 6, 8, 16, 16 */
    uint32_t jobs;   /* that read the same slots; more than 1: workers cannot write to the ring */
    uint64_t length; /* windows of an epoch; 0: 1000 */
    uint64_t payload_bytes; /* of one further tensor, per row; not written */
    /* the batch at this position fails; 0: none (the first one never fails) */
    uint64_t fail_position;
    uint32_t delay_us;    /* per batch */
    uint64_t instance;    /* 0: from the clock */
    bool answers_queries; /* queries wait for the test to answer them */
    bool journal;         /* a journal in `directory` keeps DONE */
    /* the address for remote workers; NULL: none. keys NULL: no CURVE */
    const char *tcp, *keys;
    uint32_t silence_ms; /* silence after which a remote worker is dead; 0: 10,000 */
};

struct producer;

/* Serves the feed "train". An OPEN with any specification gets the same feed. */
enum trajd_status producer_start(const struct producer_options *options, struct producer **producer,
                                 struct trajd_error *error);
struct trajd_server *producer_server(struct producer *producer);
void producer_stop(struct producer **producer);

/* Returns the window at a position, and the values of its row of "actions" [G, PRODUCER_COLUMNS].
 * Its "window_id" is the window. */
uint64_t producer_window(uint64_t epoch, uint64_t position, uint64_t length);
float producer_value(uint64_t epoch, uint64_t window, uint32_t column);

#endif
