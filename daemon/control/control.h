/* Starts all parts of the daemon and connects them: datasets, producers, the server, GPUs,
 * services, and feeds whose specification a job sends. It is the only part that knows all threads:
 *
 *   main thread                signals, watchdog, status line
 *   server thread              sessions and leases (server/server.h)
 *   one or two threads a feed  production (producer/producer.h)
 *   opener thread              makes feeds for OPEN requests, closes idle ones, reloads
 *   query service thread       questions about feeds (query.h)
 *   statistics thread          statistics that a query needs and that are not cached
 *                              (stats/stats_service.h)
 *   resample service threads   rows that other programs send: one accepts connections, and each has
 *                              its own (resample/resample_service.h)
 *   reader threads             rows (cache/cache.h)
 *   pool threads               resampling (kernels/pool.h)
 *
 * All functions here are called by the main thread. */
#ifndef TRAJD_CONTROL_CONTROL_H
#define TRAJD_CONTROL_CONTROL_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "daemon/base/log.h"
#include "daemon/config/config.h"

struct trajd_control;

/* Where a configuration is read from. Must live as long as the control. */
struct trajd_config_source {
    const char *path;
    const struct trajd_config_value *values;
    uint32_t value_count;
};

/* The last reload, or the one that is running. */
struct trajd_reload {
    uint64_t count; /* reloads that have ended */
    bool is_running;
    int64_t began_ns;         /* CLOCK_MONOTONIC */
    enum trajd_status status; /* TRAJD_OK: the file is in force; otherwise nothing has changed */
    char message[1024];       /* what has changed, or why nothing has */
};

/* Opens every dataset of the configuration, makes the feeds and, with `serve`, binds the sockets
 * and starts all threads. Returns when workers can be served; blocks while datasets are indexed and
 * rows load. Without `serve` (--check) it opens and plans everything and serves nothing.
 *
 * Writes the feeds in words to `report`, which may be NULL. The configuration must live as long as
 * the control; a reload may take feeds out of it. The caller destroys. */
enum trajd_status trajd_control_create(struct trajd_config *config, const struct trajd_log *log,
                                       bool serve, FILE *report, struct trajd_control **control,
                                       struct trajd_error *error);

/* Asks the opener to read the configuration again and to apply what has changed: all of it, or
 * nothing. Feeds that stay are not touched. Returns at once. Only with `serve`, and not while
 * another reload is running. */
void trajd_control_reload(struct trajd_control *control, const struct trajd_config_source *source);
void trajd_control_get_reload(struct trajd_control *control, struct trajd_reload *reload);

/* Tells workers to stop and waits up to timeout_ms until all leases are back. Cancels feeds that
 * are being opened and a running reload. */
void trajd_control_drain(struct trajd_control *control, uint32_t timeout_ms);
/* Joins all threads and frees everything. Blocks while a thread waits for storage. */
void trajd_control_destroy(struct trajd_control **control);

/* Looks for mounts that do not answer. Names each in the log, in the status, and to the workers of the
 * feeds that wait for it. Call it about once a second. */
void trajd_control_watch_storage(struct trajd_control *control);
/* Returns true while the server, opener, query, statistics, resample and producer threads have made
 * progress within the last limit_ns or wait for storage (base/heartbeat.h). Otherwise writes the
 * name of a stuck thread to `stuck`. */
bool trajd_control_is_alive(struct trajd_control *control, int64_t limit_ns, char *stuck,
                            size_t size);
/* Returns exit_idle of the configuration in force. */
int64_t trajd_control_exit_idle_ns(const struct trajd_control *control);
/* Returns true after a GPU has failed, unless gpu.fall_back allows going on without it. */
bool trajd_control_gpu_is_lost(const struct trajd_control *control);
/* Returns the time (CLOCK_MONOTONIC) when the last worker left; 0: there are workers, or programs
 * that have rows resampled. */
int64_t trajd_control_empty_since_ns(const struct trajd_control *control);
/* Writes the service manager's status line: "2 feeds, 12 workers, 41234 windows/s". */
void trajd_control_status_line(struct trajd_control *control, char *line, size_t size);

#endif
