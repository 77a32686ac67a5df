/* The daemon's one place that knows threads and joins dataset/ to feed/: datasets, producers, the
 * server, and feeds that jobs send.
 *
 *   main thread            signals, watchdog, status line
 *   server thread          sessions and leases (feed/server.h)
 *   one thread a feed      production (producer.h)
 *   opener thread          feeds that jobs send in OPEN: indexing and loading take time
 *   query service thread           questions about feeds (query.h)
 *   statistics' thread     what is asked about values and not known yet (stats_service.h)
 *   reader threads         rows (dataset/cache.h), resampling threads (kernels/pool.h) */
#ifndef TRAJD_CONTROL_CONTROL_H
#define TRAJD_CONTROL_CONTROL_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "daemon/base/log.h"
#include "daemon/config/config.h"

struct trajd_control;

/* Where a configuration comes from; must live as long as the control. */
struct trajd_config_source {
    const char *path;
    const struct trajd_config_value *values;
    uint32_t value_count;
};

/* The last reload, or the one that is going on. */
struct trajd_reload {
    uint64_t count; /* that have ended */
    bool is_running;
    int64_t began_ns;         /* CLOCK_MONOTONIC */
    enum trajd_status status; /* TRAJD_OK: what the file says is in force; else all is as it was */
    char message[1024];       /* what has changed, or why nothing has */
};

/* Opens every dataset that a feed of the config uses and, with `serve`, the sockets; makes and
 * starts the feeds. Returns when a worker could be served. Without `serve` (--check) it opens and
 * plans everything and serves nothing. `report` gets the feeds in words. The configuration must
 * live as long as the control, which may take feeds out of it (trajd_control_reload). */
enum trajd_status trajd_control_create(struct trajd_config *config, const struct trajd_log *log,
                                       bool serve, FILE *report, struct trajd_control **control,
                                       struct trajd_error *error);

/* Has the configuration read again and what differs in it made so, as far as it can while feeds are
 * read: all of it, or nothing. Feeds that stay are not touched. Returns at once; one at a time.
 * Only with `serve`. */
void trajd_control_reload(struct trajd_control *control, const struct trajd_config_source *source);
void trajd_control_get_reload(struct trajd_control *control, struct trajd_reload *reload);

/* Tells workers to stop and waits up to timeout_ms for leases to come back. What is being opened or
 * reloaded is given up. */
void trajd_control_drain(struct trajd_control *control, uint32_t timeout_ms);
void trajd_control_destroy(struct trajd_control **control);

/* True while every thread but the readers has taken a turn within the last limit_ns or waits for
 * storage (base/heartbeat.h); else the name of one that does not is written to `stuck`. */
bool trajd_control_is_alive(struct trajd_control *control, int64_t limit_ns, char *stuck,
                            size_t size);
/* The configuration's exit_idle. */
int64_t trajd_control_exit_idle_ns(const struct trajd_control *control);
/* A GPU has failed, and the configuration does not say to go on without it. */
bool trajd_control_gpu_is_lost(const struct trajd_control *control);
/* CLOCK_MONOTONIC since when no worker has been here; 0: there are workers, or programs that have
 * rows resampled. The main thread. */
int64_t trajd_control_empty_since_ns(const struct trajd_control *control);
/* "2 feeds, 12 workers, 41 k windows/s": for the service manager's status line. */
void trajd_control_status_line(struct trajd_control *control, char *line, size_t size);

#endif
