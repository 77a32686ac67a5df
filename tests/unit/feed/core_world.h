/* A core with one feed, and the messages that it sent. For tests of single rules. */
#ifndef TRAJD_TESTS_CORE_WORLD_H
#define TRAJD_TESTS_CORE_WORLD_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "daemon/feed/core.h"

#define SENT_ROOM 256

struct sent {
    uint64_t session;
    struct trajd_wire_message message;
    char text[TRAJD_WIRE_MAX_REASON +
              1]; /* of ERROR, NOTICE and BATCH, copied because it is gone after the call */
    uint8_t token[TRAJD_WIRE_MAX_CHECKPOINT]; /* of CHECKPOINTED, copied as well */
};

struct world {
    struct trajd_core *core;
    struct trajd_core_feed *feed;
    struct sent sent[SENT_ROOM];
    uint32_t sent_count, wakes;
    uint64_t now_ns, requests;
    uint8_t tokens;
    char report[1024]; /* the last one */
};

/* Returns the options of a feed with 40 windows in batches of 4, three slots, no journal. */
struct trajd_core_feed_options default_options(void);
struct world *make(const struct trajd_core_feed_options *options);
void destroy(struct world *world);
uint64_t greet(struct world *world);
struct trajd_wire_open make_open(struct world *world, uint64_t epoch);
struct trajd_wire_open make_open_as(struct world *world, const char *job, uint64_t epoch);
struct trajd_wire_open make_open_rank_as(struct world *world, const char *job, uint64_t epoch,
                                         uint32_t rank, uint32_t ranks);
/* Makes a session and opens the epoch, which must succeed. */
uint64_t open_as(struct world *world, const char *job, uint64_t epoch);
/* Clears the list of sent messages, then opens. */
enum trajd_status open_with(struct world *world, uint64_t session, struct trajd_wire_open open);
struct trajd_fill take(struct world *world);
bool publish(struct world *world, struct trajd_fill fill);
const struct trajd_wire_message *last_sent(const struct world *world, enum trajd_wire_op op);
/* Returns the text of the last ERROR, or "". */
const char *last_error(const struct world *world);
uint32_t count_sent(const struct world *world, enum trajd_wire_op op);
void release(struct world *world, uint64_t session, struct trajd_wire_batch batch);
/* Releases all batches that were sent to the session since sent_count was reset, and those that are
 * sent in return. Returns how many. */
uint32_t give_back(struct world *world, uint64_t session);
void fill_all(struct world *world);
struct trajd_core_stats stats_of(const struct world *world);

#endif
