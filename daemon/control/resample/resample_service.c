#include "daemon/control/resample/resample_service.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/base/heartbeat.h"
#include "daemon/control/resample/resample_internal.h"

#define STOP (UINT32_MAX - 1) /* in epoll's data */

enum {
    NICENESS = 10,
    EVENTS = 16,
    TURN_MS = 1000,
};

/* Handles one message of each ready connection, so that a busy client delays the others by one
 * segment at most. Returns false where the service stops. */
static bool turn(struct trajd_resample_service *resample_service)
{
    struct epoll_event events[EVENTS];
    const int ready = epoll_wait(resample_service->epoll, events, EVENTS, TURN_MS);

    trajd_heartbeat_turn();
    for (int i = 0; i < ready; i++) {
        const uint32_t index = events[i].data.u32;
        trajd_heartbeat_turn();
        if (index == STOP || eventfd_read(resample_service->stop, &(eventfd_t){0}) == 0)
            return false;
        if (index == TRAJD_RESAMPLE_LISTENER && resample_service->is_accepting)
            trajd_resample_accept(resample_service);
        else if (index != TRAJD_RESAMPLE_LISTENER)
            trajd_resample_serve(resample_service, index);
        trajd_resample_set_accepting(resample_service);
    }
    trajd_resample_close_silent(resample_service);
    trajd_resample_set_accepting(resample_service);
    return true;
}

static void *run_resample_service(void *context)
{
    struct trajd_resample_service *resample_service = context;

    trajd_heartbeat_begin(&resample_service->heartbeat);
    /* on Linux this applies to the calling thread only; without permission all threads stay alike
     * */
    setpriority(PRIO_PROCESS, 0, getpriority(PRIO_PROCESS, 0) + NICENESS);
    while (turn(resample_service))
        ;
    return NULL;
}

/* ---- start and stop ---- */

static enum trajd_status start(struct trajd_resample_service *resample_service,
                               struct trajd_error *error)
{
    const int failed = trajd_thread_start(&resample_service->thread, "trajd-for-cli",
                                          run_resample_service, resample_service);

    if (failed)
        return trajd_error_set(error, TRAJD_ERR_SYSTEM, failed, "resample service thread: %s",
                               strerror(failed));
    resample_service->is_running = true;
    return TRAJD_OK;
}

enum trajd_status
trajd_resample_service_create(const struct trajd_resample_service_options *options,
                              struct trajd_resample_service **out, struct trajd_error *error)
{
    struct trajd_resample_service *resample_service = calloc(1, sizeof *resample_service);
    enum trajd_status status;

    *out = NULL;
    if (!resample_service)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory for the resample service");
    *resample_service = (struct trajd_resample_service){.options = *options,
                                                        .listener = -1,
                                                        .is_accepting = true,
                                                        .backend = {.options = *options}};
    for (uint32_t i = 0; i < TRAJD_RESAMPLE_SERVICE_MAX_CLIENTS; i++)
        resample_service->places[i].fd = -1;
    snprintf(resample_service->path, sizeof resample_service->path, "%s/%s", options->directory,
             TRAJD_RESAMPLE_SERVICE_SOCKET);
    resample_service->epoll = epoll_create1(EPOLL_CLOEXEC);
    resample_service->stop = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    resample_service->reserve = trajd_resample_open_reserve();
    status =
        resample_service->epoll < 0 || resample_service->stop < 0 || resample_service->reserve < 0
            ? trajd_error_set(error, TRAJD_ERR_SYSTEM, errno, "resample service: %s",
                              strerror(errno))
            : trajd_unix_listen(
                  resample_service->path, SOCK_SEQPACKET, resample_service->options.group_access,
                  TRAJD_RESAMPLE_SERVICE_MAX_CLIENTS, &resample_service->listener, error);
    if (!status && (!trajd_resample_watch(resample_service, resample_service->listener,
                                          TRAJD_RESAMPLE_LISTENER) ||
                    !trajd_resample_watch(resample_service, resample_service->stop, STOP)))
        status = trajd_error_set(error, TRAJD_ERR_SYSTEM, errno, "epoll_ctl: %s", strerror(errno));
    if (!status)
        status = trajd_closer_create(&resample_service->closer, error);
    if (!status)
        status = start(resample_service, error);
    if (status)
        trajd_resample_service_destroy(&resample_service);
    *out = resample_service;
    return status;
}

void trajd_resample_service_destroy(struct trajd_resample_service **out)
{
    struct trajd_resample_service *resample_service = *out;

    *out = NULL;
    if (!resample_service)
        return;
    if (resample_service->is_running) {
        eventfd_write(resample_service->stop, 1);
        pthread_join(resample_service->thread, NULL);
    }
    for (uint32_t i = 0; i < TRAJD_RESAMPLE_SERVICE_MAX_CLIENTS; i++)
        if (resample_service->places[i].fd >= 0)
            trajd_resample_drop(resample_service, resample_service->places[i].fd,
                                resample_service->places[i].uid);
    trajd_closer_destroy(&resample_service->closer);
    if (resample_service->listener >= 0) {
        close(resample_service->listener);
        unlink(resample_service->path);
    }
    if (resample_service->epoll >= 0)
        close(resample_service->epoll);
    if (resample_service->stop >= 0)
        close(resample_service->stop);
    if (resample_service->reserve >= 0)
        close(resample_service->reserve);
    trajd_resample_backend_release(&resample_service->backend);
    free(resample_service);
}

void trajd_resample_service_get_stats(const struct trajd_resample_service *resample_service,
                                      struct trajd_resample_service_stats *stats)
{
    stats->clients = __atomic_load_n(&resample_service->stats.clients, __ATOMIC_RELAXED);
    stats->segments = __atomic_load_n(&resample_service->stats.segments, __ATOMIC_RELAXED);
    stats->bytes = __atomic_load_n(&resample_service->stats.bytes, __ATOMIC_RELAXED);
    stats->refused = __atomic_load_n(&resample_service->stats.refused, __ATOMIC_RELAXED);
}

const struct trajd_heartbeat *
trajd_resample_service_heartbeat(const struct trajd_resample_service *resample_service)
{
    return &resample_service->heartbeat;
}
