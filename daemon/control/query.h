/* Questions of workers about feeds (ASK), answered by a thread of its own: the server's may not
 * wait, the opener may be loading. It looks at what does not change while a feed lives
 * (specification, plan, index) and at rows that it pins for a moment; it never waits for
 * production, though storage that does not answer keeps it (further questions are then refused as
 * busy).
 *
 * An answer is one JSON document. A new question is a row in the table of query.c and a function in
 * a file of its own. */
#ifndef TRAJD_CONTROL_QUERY_H
#define TRAJD_CONTROL_QUERY_H

#include <stdbool.h>
#include <stdio.h>

#include "daemon/producer/producer.h"
#include "daemon/server/server.h"

struct trajd_query_service;

struct trajd_query_service_options {
    struct trajd_server *server;
    /* The producer of that feed, not to be destroyed until it is given back; NULL: there is none.
     * On the query service's thread. */
    struct trajd_producer *(*acquire_producer)(void *context, uint32_t feed_id);
    void (*give_back)(void *context, struct trajd_producer *producer);
    void *context;
};

enum trajd_status trajd_query_service_create(const struct trajd_query_service_options *options,
                                             struct trajd_query_service **query_service,
                                             struct trajd_error *error);
/* The thread's. */
const struct trajd_heartbeat *
trajd_query_service_heartbeat(const struct trajd_query_service *query_service);
/* Ends and joins the thread; questions that wait are not answered any more. Before the server is
 * destroyed. NULL is fine. */
void trajd_query_service_destroy(struct trajd_query_service **query_service);

/* ---- what answers write ---- */

/* Writes a document about the producer to `out`, or fills *error: TRAJD_ERR_ARGUMENT,
 * TRAJD_ERR_NOT_FOUND (with what there is). */
typedef enum trajd_status (*trajd_query_result)(const struct trajd_query *query,
                                                const struct trajd_producer *producer, FILE *out,
                                                struct trajd_error *error);

/* For documents that are told page by page: takes what was written since `mark` (an ftell before
 * it) back, and is false, where the document has no room for it and its end. */
bool trajd_query_fits(FILE *out, long mark);
/* Closes the items and the document; `next` is the first that is not in it, `total`: there is none.
 */
void trajd_query_end_page(FILE *out, uint64_t next, uint64_t total);

/* query_explain.c */
enum trajd_status trajd_query_explain(const struct trajd_query *query,
                                      const struct trajd_producer *producer, FILE *out,
                                      struct trajd_error *error);

/* query_position.c */
enum trajd_status trajd_query_position(const struct trajd_query *query,
                                       const struct trajd_producer *producer, FILE *out,
                                       struct trajd_error *error);

/* query_statistics.c */
enum trajd_status trajd_query_statistics(const struct trajd_query *query,
                                         const struct trajd_producer *producer, FILE *out,
                                         struct trajd_error *error);
/* query_episodes.c */
enum trajd_status trajd_query_episodes(const struct trajd_query *query,
                                       const struct trajd_producer *producer, FILE *out,
                                       struct trajd_error *error);

#endif
