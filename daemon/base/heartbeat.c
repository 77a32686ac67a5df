/* Records the turns and waits of the daemon's threads, and finds threads that are stuck. */
#include "daemon/base/heartbeat.h"

#include <signal.h>
#include <time.h>

#include "daemon/base/clock.h"

#define TURN_NS 100000000

static _Thread_local struct trajd_heartbeat *own;

int trajd_thread_start(pthread_t *thread, const char *name, void *(*run)(void *), void *context)
{
    sigset_t all, before;
    int code;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* the thread inherits it */
    code = pthread_create(thread, NULL, run, context);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!code)
        pthread_setname_np(*thread, name);
    return code;
}

void trajd_heartbeat_begin(struct trajd_heartbeat *heartbeat)
{
    own = heartbeat;
    trajd_heartbeat_turn();
}

void trajd_heartbeat_turn(void)
{
    if (own)
        __atomic_store_n(&own->last_turn_ns, trajd_now_ns(), __ATOMIC_RELAXED);
}

void trajd_heartbeat_reads(const char *storage)
{
    trajd_heartbeat_turn();
    if (own)
        __atomic_store_n(&own->storage, storage, __ATOMIC_RELAXED);
}

void trajd_heartbeat_wait(void)
{
    trajd_heartbeat_wait_on(0);
}

void trajd_heartbeat_wait_on(int64_t waited_ns)
{
    trajd_heartbeat_turn();
    if (!own)
        return;
    __atomic_store_n(&own->waited_ns, waited_ns, __ATOMIC_RELAXED);
    __atomic_fetch_add(&own->waits, 1, __ATOMIC_RELAXED);
}

/* Reports the turn before the end of the wait. In the other order, a check between the two would
 * find the thread stuck. */
void trajd_heartbeat_resume(void)
{
    trajd_heartbeat_turn();
    if (own)
        __atomic_fetch_sub(&own->waits, 1, __ATOMIC_RELEASE);
}

bool trajd_heartbeat_is_cancelled(void)
{
    return own && __atomic_load_n(&own->cancel, __ATOMIC_RELAXED);
}

enum trajd_status trajd_heartbeat_check(struct trajd_error *error)
{
    return trajd_heartbeat_is_cancelled()
               ? trajd_error_set(error, TRAJD_ERR_CLOSED, 0, "the daemon is ending")
               : TRAJD_OK;
}

void trajd_heartbeat_init_condition(pthread_cond_t *condition)
{
    pthread_condattr_t attributes;

    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(condition, &attributes);
    pthread_condattr_destroy(&attributes);
}

void trajd_heartbeat_wait_for(pthread_cond_t *condition, pthread_mutex_t *mutex)
{
    const struct timespec until = trajd_timespec(trajd_now_ns() + TURN_NS);

    if (own)
        pthread_cond_timedwait(condition, mutex, &until);
    else
        pthread_cond_wait(condition, mutex);
    trajd_heartbeat_turn();
}

void trajd_heartbeat_cancel(struct trajd_heartbeat *heartbeat)
{
    __atomic_store_n(&heartbeat->cancel, true, __ATOMIC_RELAXED);
}

const char *trajd_heartbeat_hung_storage(const struct trajd_heartbeat *heartbeat, int64_t now_ns,
                                         int64_t limit_ns)
{
    const bool waits = __atomic_load_n(&heartbeat->waits, __ATOMIC_RELAXED) != 0;
    const int64_t last_ns = __atomic_load_n(&heartbeat->last_turn_ns, __ATOMIC_RELAXED);
    const int64_t waited_ns = __atomic_load_n(&heartbeat->waited_ns, __ATOMIC_RELAXED);

    return waits && now_ns - last_ns > limit_ns - waited_ns
               ? __atomic_load_n(&heartbeat->storage, __ATOMIC_RELAXED)
               : NULL;
}

bool trajd_heartbeat_is_stuck(const struct trajd_heartbeat *heartbeat, int64_t now_ns,
                              int64_t limit_ns)
{
    /* read before the turn: see trajd_heartbeat_resume */
    const bool waits = __atomic_load_n(&heartbeat->waits, __ATOMIC_ACQUIRE) != 0;
    const int64_t last_ns = __atomic_load_n(&heartbeat->last_turn_ns, __ATOMIC_RELAXED);

    return !waits && last_ns && now_ns - last_ns > limit_ns;
}
