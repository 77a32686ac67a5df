/* Resamples rows that other programs send (RESAMPLE of proto/PROTOCOL.md): `trajctl resample` uses
 * the daemon's GPU and needs no CUDA context of its own.
 *
 * One thread accepts connections on a socket beside the feeds' socket, and each connection has a
 * thread. In turn they resample one segment each (kernels/block.h, of bounded size). Where the CPU
 * resamples, a pool shares each segment while there are clients. These threads have a higher nice
 * value (lower priority) than the threads of the feeds. */
#ifndef TRAJD_CONTROL_RESAMPLE_SERVICE_H
#define TRAJD_CONTROL_RESAMPLE_SERVICE_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/base/log.h"
#include "daemon/base/heartbeat.h"
#include "kernels/device.h"

#define TRAJD_RESAMPLE_SERVICE_SOCKET "resample.sock"
#define TRAJD_RESAMPLE_SERVICE_MAX_CLIENTS 64 /* README.md says who gets a place */

struct trajd_resample_service;

struct trajd_resample_service_options {
    const char *directory; /* the runtime directory, which the daemon has locked */
    /* true: members of the directory's group may connect (mode 0770); false: our uid and root */
    bool group_access;
    const struct trajd_log *log;
    uint32_t thread_count; /* on the CPU, >= 1, including a connection's own thread */
    /* Returns the GPU to use now, or NULL for the CPU. The GPU must outlive the service. Both are
     * called by one thread at a time, of any connection. */
    struct trajd_device *(*device)(void *context);
    void (*device_lost)(void *context); /* the GPU has failed; device() returns NULL from then on */
    void *context;
};

struct trajd_resample_service_stats {
    uint32_t clients;
    uint64_t segments, bytes, refused; /* bytes of resampled blocks; refused requests */
};

/* Binds the socket and starts the thread. The caller destroys. */
enum trajd_status
trajd_resample_service_create(const struct trajd_resample_service_options *options,
                              struct trajd_resample_service **service, struct trajd_error *error);
/* Waits for the segment that is being resampled, and ends all connections. The thread of one whose
 * close hangs stays until the process ends. NULL is fine. */
void trajd_resample_service_destroy(struct trajd_resample_service **service);
/* Thread-safe. */
void trajd_resample_service_get_stats(const struct trajd_resample_service *service,
                                      struct trajd_resample_service_stats *stats);
/* Of the thread that accepts connections. */
const struct trajd_heartbeat *
trajd_resample_service_heartbeat(const struct trajd_resample_service *service);

#endif
