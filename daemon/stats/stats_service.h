/* Statistics for whoever wants them: in memory, else from the cache directory, else computed and
 * kept in both. Feeds that normalise wait for theirs when they open; questions (ASK) are answered
 * at once, with how far the computing is, which a thread of its own does meanwhile, one feed after
 * the other.
 *
 * All functions may be called from any thread. */
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
/* Joins the thread; what is being computed is given up. No feed that was asked about may be gone
 * without trajd_stats_service_forget. */
void trajd_stats_service_destroy(struct trajd_stats_service **stats_service);
/* From now on what is being computed is given up, TRAJD_ERR_CLOSED. */
void trajd_stats_service_stop(struct trajd_stats_service *stats_service);

/* Statistics of outputs over the plan's windows, copies that the caller frees. Blocks for as long
 * as computing takes. */
enum trajd_status trajd_stats_service_compute(struct trajd_stats_service *stats_service,
                                              const struct trajd_window_plan *plan,
                                              const uint32_t *outputs, uint32_t count,
                                              struct trajd_statistics **results,
                                              struct trajd_error *error);
/* The thread's. */
const struct trajd_heartbeat *
trajd_stats_service_heartbeat(const struct trajd_stats_service *stats_service);
/* True: they are known, and compute would not take long. */
bool trajd_stats_service_knows(struct trajd_stats_service *stats_service,
                               const struct trajd_window_plan *plan, uint32_t output_index);

enum trajd_statistics_subject { TRAJD_SUBJECT_OUTPUT, TRAJD_SUBJECT_STREAM };

/* The same without waiting: *result NULL and *permille where it is being computed, or waits to be.
 * `plan` must live until it is forgotten. A failure is told once, then it is tried again.
 * TRAJD_ERR_BUSY: too many wait. */
enum trajd_status trajd_stats_service_request(struct trajd_stats_service *stats_service,
                                              const struct trajd_window_plan *plan,
                                              enum trajd_statistics_subject subject, uint32_t index,
                                              struct trajd_statistics **result, uint32_t *permille,
                                              struct trajd_error *error);
/* Gives up what was asked about the plan, and waits until nothing looks at it. */
void trajd_stats_service_forget(struct trajd_stats_service *stats_service,
                                const struct trajd_window_plan *plan);

#endif
