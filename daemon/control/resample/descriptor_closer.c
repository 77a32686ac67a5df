/* Closes descriptors that other programs have sent, on a thread of its own: close(2) waits as long
 * as it likes for a filesystem in user space that does not answer, or for a socket that lingers.
 *
 * The queue is bounded, and each user has a share of it. Where a close never returns, the thread
 * waits with it until the process ends. Used by one thread, that of resample_service.c. */
#include <assert.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "daemon/base/heartbeat.h"
#include "daemon/control/resample/resample_internal.h"

enum { CAPACITY = 512, END_S = 1 };

struct entry {
    int fd;
    uid_t uid;
};

struct trajd_closer {
    pthread_t thread;
    pthread_mutex_t mutex; /* guards what follows */
    pthread_cond_t changed;
    struct entry queue[CAPACITY]; /* the first one is being closed */
    uint32_t count;
    bool stop;
    bool is_left; /* by its owner: the thread frees it */
};

static void free_closer(struct trajd_closer *closer)
{
    pthread_cond_destroy(&closer->changed);
    pthread_mutex_destroy(&closer->mutex);
    free(closer);
}

/* A socket whose peer does not read would wait for its linger time. */
static void close_entry(const struct entry *entry)
{
    const struct linger none = {0};

    setsockopt(entry->fd, SOL_SOCKET, SO_LINGER, &none, sizeof none); /* fails for other files */
    close(entry->fd);
}

static void *run(void *context)
{
    struct trajd_closer *closer = context;
    bool is_left;

    pthread_mutex_lock(&closer->mutex);
    while (closer->count || !closer->stop) {
        const struct entry first = closer->queue[0];
        if (!closer->count) {
            pthread_cond_wait(&closer->changed, &closer->mutex);
            continue;
        }
        pthread_mutex_unlock(&closer->mutex);
        close_entry(&first);
        pthread_mutex_lock(&closer->mutex);
        closer->count--;
        memmove(closer->queue, closer->queue + 1, closer->count * sizeof *closer->queue);
        pthread_cond_broadcast(&closer->changed);
    }
    is_left = closer->is_left;
    pthread_mutex_unlock(&closer->mutex);
    if (is_left)
        free_closer(closer);
    return NULL;
}

enum trajd_status trajd_closer_create(struct trajd_closer **out, struct trajd_error *error)
{
    struct trajd_closer *closer = calloc(1, sizeof *closer);
    int failed;

    *out = NULL;
    if (!closer)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory for the resample service");
    pthread_mutex_init(&closer->mutex, NULL);
    trajd_heartbeat_init_condition(&closer->changed);
    failed = trajd_thread_start(&closer->thread, "trajd-close", run, closer);
    if (failed) {
        free_closer(closer);
        return trajd_error_set(error, TRAJD_ERR_SYSTEM, failed,
                               "thread that closes descriptors: %s", strerror(failed));
    }
    *out = closer;
    return TRAJD_OK;
}

void trajd_closer_destroy(struct trajd_closer **out)
{
    struct trajd_closer *closer = *out;
    struct timespec end;
    bool is_left;

    *out = NULL;
    if (!closer)
        return;
    clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_sec += END_S;
    pthread_mutex_lock(&closer->mutex);
    closer->stop = true;
    pthread_cond_broadcast(&closer->changed);
    while (closer->count && !pthread_cond_timedwait(&closer->changed, &closer->mutex, &end))
        ;
    is_left = closer->count != 0;
    closer->is_left = is_left;
    if (is_left)
        pthread_detach(closer->thread);
    pthread_mutex_unlock(&closer->mutex);
    if (is_left)
        return;
    pthread_join(closer->thread, NULL);
    free_closer(closer);
}

bool trajd_closer_has_room(struct trajd_closer *closer, uint32_t count)
{
    bool has_room;

    pthread_mutex_lock(&closer->mutex);
    has_room = closer->count + count <= CAPACITY;
    pthread_mutex_unlock(&closer->mutex);
    return has_room;
}

bool trajd_closer_is_over_share(struct trajd_closer *closer, uid_t uid)
{
    uint32_t of_user = 0;

    pthread_mutex_lock(&closer->mutex);
    for (uint32_t i = 0; i < closer->count; i++)
        of_user += closer->queue[i].uid == uid;
    pthread_mutex_unlock(&closer->mutex);
    return of_user > TRAJD_CLOSER_SHARE;
}

void trajd_closer_close(struct trajd_closer *closer, int fd, uid_t uid)
{
    if (fcntl(fd, F_GET_SEALS) >= 0) {
        close(fd);
        return;
    }
    pthread_mutex_lock(&closer->mutex);
    assert(closer->count < CAPACITY);
    closer->queue[closer->count++] = (struct entry){fd, uid};
    pthread_cond_broadcast(&closer->changed);
    pthread_mutex_unlock(&closer->mutex);
}
