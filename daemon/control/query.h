/* Answers workers' questions about feeds (ASK of proto/PROTOCOL.md) on a thread of its own: the
 * server's thread must not block, and the opener's may be loading a dataset.
 *
 * The thread reads what does not change while a feed lives (specification, plan, index) and rows,
 * which it pins for a moment. It never waits for production. It may wait for storage; the server
 * then refuses further questions as busy.
 *
 * An answer is one JSON document. A new question is a row in the table of query.c and a function in
 * a file of its own, which uses query_page.c. */
#ifndef TRAJD_CONTROL_QUERY_H
#define TRAJD_CONTROL_QUERY_H

#include <stdbool.h>
#include <stdio.h>

#include "daemon/producer/producer.h"
#include "daemon/server/server.h"

struct trajd_query_service;

struct trajd_query_service_options {
    struct trajd_server *server;
    /* Returns the producer of that feed, or NULL where there is none. The producer is not destroyed
     * before it is returned. Both are called on the query service's thread. */
    struct trajd_producer *(*acquire_producer)(void *context, uint32_t feed_id);
    void (*return_producer)(void *context, struct trajd_producer *producer);
    void *context;
};

/* Starts the thread. The caller destroys. */
enum trajd_status trajd_query_service_create(const struct trajd_query_service_options *options,
                                             struct trajd_query_service **query_service,
                                             struct trajd_error *error);
/* Returns the heartbeat of the thread. */
const struct trajd_heartbeat *
trajd_query_service_heartbeat(const struct trajd_query_service *query_service);
/* Stops and joins the thread. Waiting questions stay unanswered. Call it before the server is
 * destroyed. NULL is fine. */
void trajd_query_service_destroy(struct trajd_query_service **query_service);

/* ---- the answers: query_NAME.c ---- */

/* Writes a document about the producer to `out`, or fills *error: TRAJD_ERR_ARGUMENT, or
 * TRAJD_ERR_NOT_FOUND with the names that exist. */
typedef enum trajd_status (*trajd_query_result)(const struct trajd_query *query,
                                                const struct trajd_producer *producer, FILE *out,
                                                struct trajd_error *error);

enum trajd_status trajd_query_episodes(const struct trajd_query *query,
                                       const struct trajd_producer *producer, FILE *out,
                                       struct trajd_error *error);
enum trajd_status trajd_query_explain(const struct trajd_query *query,
                                      const struct trajd_producer *producer, FILE *out,
                                      struct trajd_error *error);
enum trajd_status trajd_query_position(const struct trajd_query *query,
                                       const struct trajd_producer *producer, FILE *out,
                                       struct trajd_error *error);
enum trajd_status trajd_query_statistics(const struct trajd_query *query,
                                         const struct trajd_producer *producer, FILE *out,
                                         struct trajd_error *error);

/* ---- documents of several pages: query_page.c ---- */

/* Returns true where the document still fits an answer. Otherwise removes the text written since
 * `mark` (an earlier ftell) and returns false. */
bool trajd_query_fits(FILE *out, long mark);
/* Closes the list of items and the document. `next` is the first item that is not in it;
 * next == total: it holds the last one. */
void trajd_query_end_page(FILE *out, uint64_t next, uint64_t total);

#endif
