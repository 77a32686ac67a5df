/* What the files of the resample service share. Each calls only files below it:
 *
 *     resample_service.c     starts and stops the service; its thread
 *     resample_clients.c     accepts and closes connections, and divides them among users
 *     resample_messages.c    receives, handles and answers one message
 *     resample_backend.c     resamples one block
 *     descriptor_closer.c    closes descriptors that other programs have sent
 */
#ifndef TRAJD_CONTROL_RESAMPLE_INTERNAL_H
#define TRAJD_CONTROL_RESAMPLE_INTERNAL_H

#include <limits.h>
#include <pthread.h>

#include "daemon/base/heartbeat.h"
#include "daemon/base/unix_socket.h"
#include "daemon/control/resample/descriptor_closer.h"
#include "daemon/control/resample/resample_backend.h"
#include "daemon/control/resample/resample_service.h"

#define TRAJD_RESAMPLE_LISTENER UINT32_MAX /* in epoll's data, instead of a connection's index */

struct trajd_resample_service {
    struct trajd_resample_service_options options;
    char path[PATH_MAX];
    int listener, epoll, stop;
    /* closed for a moment to accept and close a connection when descriptors have run out */
    int reserve;
    struct trajd_unix_place places[TRAJD_RESAMPLE_SERVICE_MAX_CLIENTS];
    bool has_asked[TRAJD_RESAMPLE_SERVICE_MAX_CLIENTS]; /* the connection has sent a message */
    bool is_accepting;                                  /* the listener's events are on */
    struct trajd_closer *closer;                        /* always has room for all connections */
    pthread_t thread;
    bool is_running;
    struct trajd_heartbeat heartbeat;      /* of the thread */
    struct trajd_resample_backend backend; /* released with the last client */
    /* atomic and relaxed: counters that order nothing */
    struct trajd_resample_service_stats stats;
};

/* ---- resample_clients.c: called by the service's thread ---- */

/* Accepts one connection, or refuses it. */
void trajd_resample_accept(struct trajd_resample_service *resample_service);
/* Handles one message of the connection, unless it was closed meanwhile. */
void trajd_resample_serve(struct trajd_resample_service *resample_service, uint32_t index);
/* Closes connections that have sent no message for some time. */
void trajd_resample_close_silent(struct trajd_resample_service *resample_service);
/* Accepts connections only while the closer has room for one more, since each may have to be closed
 * there. */
void trajd_resample_set_accepting(struct trajd_resample_service *resample_service);
/* Closes a connection. Messages that still wait on it may carry descriptors, which the system
 * closes with it. */
void trajd_resample_drop(struct trajd_resample_service *resample_service, int connection,
                         uid_t uid);
/* Adds a descriptor to the events of the thread. Returns false where the system refuses. */
bool trajd_resample_watch(struct trajd_resample_service *resample_service, int fd, uint32_t index);
/* Returns a descriptor that can be closed to have one, or -1. */
int trajd_resample_open_reserve(void);

/* ---- resample_messages.c: called by the service's thread ---- */

/* Receives and handles a message, if there is one. Returns false where the connection has ended. */
bool trajd_resample_receive(struct trajd_resample_service *resample_service, uint32_t index);
/* Sends ERROR. Returns false where the client does not read its answers. */
bool trajd_resample_refuse(struct trajd_resample_service *resample_service, int connection,
                           uint64_t request, const struct trajd_error *error);

#endif
