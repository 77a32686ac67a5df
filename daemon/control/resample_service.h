/* Resampling for programs that have rows of their own (RESAMPLE of proto/PROTOCOL.md): `trajctl
 * resample` with the daemon's GPU, and no context of its own. A thread with a socket beside the
 * feeds': it does one segment at a time, each bounded (kernels/block.h), for its clients in turn.
 * Where the CPU does them, threads of its own share a segment while there are clients. All are
 * nicer than the threads of the feeds.
 *
 * A client's descriptor is believed in nothing: it must be a memory file that is sealed against
 * resizing and has its pages, and what is asked is copied before it is looked at. */
#ifndef TRAJD_CONTROL_RESAMPLE_SERVICE_H
#define TRAJD_CONTROL_RESAMPLE_SERVICE_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/base/log.h"
#include "daemon/base/heartbeat.h"
#include "kernels/device.h"

#define TRAJD_RESAMPLE_SERVICE_SOCKET "resample.sock"
#define TRAJD_RESAMPLE_SERVICE_MAX_CLIENTS 64 /* connections: more are closed */

struct trajd_resample_service;

struct trajd_resample_service_options {
    const char *directory; /* the daemon's, which it has locked */
    /* the socket is 0770: whoever is in the directory's group may connect; else our uid and root */
    bool group_access;
    const struct trajd_log *log;
    uint32_t thread_count; /* >= 1: on the CPU, its own thread counted */
    /* The GPU to use now; NULL: the CPU. It must stay until the resample service is gone. Both on
     * the resample service's thread. */
    struct trajd_device *(*device)(void *context);
    void (*device_lost)(void *context); /* it has failed: device() does not give it any more */
    void *context;
};

struct trajd_resample_service_stats {
    uint32_t clients;
    uint64_t segments, bytes, refused; /* bytes of blocks */
};

enum trajd_status
trajd_resample_service_create(const struct trajd_resample_service_options *options,
                              struct trajd_resample_service **resample_service,
                              struct trajd_error *error);
/* Ends and joins the thread, at the latest behind the segment that it is at. Clients see the end of
 * their connections. NULL is fine. */
void trajd_resample_service_destroy(struct trajd_resample_service **resample_service);
/* Any thread. */
void trajd_resample_service_get_stats(const struct trajd_resample_service *resample_service,
                                      struct trajd_resample_service_stats *stats);
const struct trajd_heartbeat *
trajd_resample_service_heartbeat(const struct trajd_resample_service *resample_service);

#endif
