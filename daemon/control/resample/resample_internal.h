/* What the files of the resample service share. Each calls only files below it:
 *
 *     resample_service.c     the thread: accepts connections, and divides them among users
 *     resample_messages.c    receives, handles and answers one message; resamples one block
 *     descriptor_closer.c    closes descriptors that other programs have sent
 */
#ifndef TRAJD_CONTROL_RESAMPLE_INTERNAL_H
#define TRAJD_CONTROL_RESAMPLE_INTERNAL_H

#include <limits.h>
#include <pthread.h>

#include "daemon/base/heartbeat.h"
#include "daemon/base/unix_socket.h"
#include "daemon/control/resample/resample_service.h"
#include "kernels/pool.h"
#include "proto/error.h"

struct trajd_closer;
struct trajd_runner;

/* What resamples blocks: on the GPU, or on the CPU. */
struct trajd_resample_backend {
    struct trajd_resample_service_options options;
    /* made when first needed, destroyed by trajd_resample_backend_release */
    struct trajd_runner *on_cpu, *on_gpu;
    struct trajd_pool *pool;     /* of on_cpu */
    struct trajd_device *device; /* of on_gpu */
    int64_t gpu_again_ns;        /* until then the GPU is not tried, after it had no room */
};

struct trajd_resample_service {
    struct trajd_resample_service_options options;
    char path[PATH_MAX];
    int listener, epoll, stop;
    struct trajd_unix_place places[TRAJD_RESAMPLE_SERVICE_MAX_CLIENTS];
    bool has_asked[TRAJD_RESAMPLE_SERVICE_MAX_CLIENTS]; /* the connection has sent a message */
    bool is_accepting;                                  /* the listener's events are on */
    int64_t accepts_again_ns;    /* connections wait until then for descriptors; 0: none does */
    struct trajd_closer *closer; /* always has room for all connections */
    pthread_t thread;
    bool is_running;
    struct trajd_heartbeat heartbeat;      /* of the thread */
    struct trajd_resample_backend backend; /* released with the last client */
    /* atomic and relaxed: counters that order nothing */
    struct trajd_resample_service_stats stats;
};

/* ---- resample_messages.c: called by the service's thread ---- */

/* Receives and handles a message, if there is one. Returns false where the connection has ended. */
bool trajd_resample_receive(struct trajd_resample_service *service, uint32_t index);
/* Sends ERROR. Returns false where the client does not read its answers. */
bool trajd_resample_refuse(struct trajd_resample_service *service, int connection, uint64_t request,
                           const struct trajd_error *error);
/* Frees threads, buffers and GPU memory. The backend may be used again. */
void trajd_resample_backend_release(struct trajd_resample_backend *backend);

/* ---- descriptor_closer.c ---- */

#define TRAJD_CLOSER_SHARE 64u /* a user with more descriptors in the queue may send no more */

/* Starts the thread. */
enum trajd_status trajd_closer_create(struct trajd_closer **closer, struct trajd_error *error);
/* Waits up to a second for the queue to get empty, and clears the pointer. A thread that hangs
 * stays, with the descriptors behind it, until the process ends. NULL is fine. */
void trajd_closer_destroy(struct trajd_closer **closer);
/* Returns true if the queue has room for `count` more descriptors. */
bool trajd_closer_has_room(struct trajd_closer *closer, uint32_t count);
/* Returns true if the user has more than TRAJD_CLOSER_SHARE descriptors in the queue. */
bool trajd_closer_is_over_share(struct trajd_closer *closer, uid_t uid);
/* Closes the descriptor, now or later. The queue must have room for it. A memory file is closed at
 * once, because that cannot wait. */
void trajd_closer_close(struct trajd_closer *closer, int fd, uid_t uid);

#endif
