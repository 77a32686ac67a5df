/* Keeps statistics in memory and in the cache directory, and computes those that neither has. A
 * feed that normalises waits for its statistics while it opens (compute). Queries of clients get an
 * answer at once: the statistics, or how far computing is (request). The service's own thread
 * computes meanwhile, one feed after the other.
 *
 * All functions are thread-safe. */
#ifndef TRAJD_STATS_STATS_SERVICE_H
#define TRAJD_STATS_STATS_SERVICE_H

#include "daemon/base/log.h"
#include "daemon/base/heartbeat.h"
#include "daemon/stats/stats.h"

struct trajd_stats_service;

struct trajd_stats_service_options {
    struct trajd_pool *pool;
    const char *cache_directory; /* or NULL */
    const struct trajd_log *log;
};

enum trajd_status trajd_stats_service_create(const struct trajd_stats_service_options *options,
                                             struct trajd_stats_service **stats_service,
                                             struct trajd_error *error);
/* Joins the thread and gives up what is being computed. Every plan of a request must have been
 * forgotten. */
void trajd_stats_service_destroy(struct trajd_stats_service **stats_service);
/* Gives up what is being computed from now on, with TRAJD_ERR_CLOSED. */
void trajd_stats_service_stop(struct trajd_stats_service *stats_service);

/* Computes statistics of outputs over the plan's windows, unless they are known. Caller frees each
 * result. Blocks for as long as computing takes. */
enum trajd_status trajd_stats_service_compute(struct trajd_stats_service *stats_service,
                                              const struct trajd_window_plan *plan,
                                              const uint32_t *outputs, uint32_t count,
                                              struct trajd_statistics **results,
                                              struct trajd_error *error);
/* Returns the heartbeat of the service's thread. */
const struct trajd_heartbeat *
trajd_stats_service_heartbeat(const struct trajd_stats_service *stats_service);
/* Returns whether the statistics are known, so that compute takes no long time. */
bool trajd_stats_service_knows(struct trajd_stats_service *stats_service,
                               const struct trajd_window_plan *plan, uint32_t output_index);

enum trajd_statistics_subject { TRAJD_SUBJECT_OUTPUT, TRAJD_SUBJECT_STREAM };

/* Returns statistics without waiting. *result NULL: they are queued or being computed, *permille of
 * them done. Otherwise the caller frees *result. `plan` must live until it is forgotten. A failure
 * is reported once, and computing starts again with the next request. TRAJD_ERR_BUSY: the queue is
 * full. */
enum trajd_status trajd_stats_service_request(struct trajd_stats_service *stats_service,
                                              const struct trajd_window_plan *plan,
                                              enum trajd_statistics_subject subject, uint32_t index,
                                              struct trajd_statistics **result, uint32_t *permille,
                                              struct trajd_error *error);
/* Removes all requests for a plan, and waits until the thread no longer uses it. */
void trajd_stats_service_forget(struct trajd_stats_service *stats_service,
                                const struct trajd_window_plan *plan);

#endif
