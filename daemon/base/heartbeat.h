/* The daemon's threads. A heartbeat shows that a long-running thread makes progress, and asks the
 * thread to stop.
 *
 * A thread has at most one heartbeat at a time. Code that it calls reports turns and waits
 * without knowing the heartbeat. In a thread without one (a tool, a test, a pool thread) all of
 * this does nothing.
 *
 *   turn    reported at least every few seconds, also by idle threads. A thread without a recent
 *           turn that is not waiting is stuck
 *   wait    reported around calls that may take long without being an error: storage, page
 *           faults, a GPU driver
 *   cancel  set by another thread. Long loops and waits check it and end with TRAJD_ERR_CLOSED */
#ifndef TRAJD_BASE_HEARTBEAT_H
#define TRAJD_BASE_HEARTBEAT_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "proto/error.h"

/* Starts as zero. Each member is atomic and orders no other memory. */
struct trajd_heartbeat {
    int64_t last_turn_ns; /* CLOCK_MONOTONIC; 0: the thread has not begun */
    uint32_t waits;       /* depth of nested waits */
    int64_t waited_ns;    /* before the last wait began, for the same */
    const char *storage;  /* what the thread opens; NULL: none */
    bool cancel;
};

/* Starts a thread with all signals blocked from its first instruction: only the main thread receives
 * signals. `name` has at most 15 characters. Returns 0 or the error of pthread_create. Thread-safe. */
int trajd_thread_start(pthread_t *thread, const char *name, void *(*run)(void *), void *context);

/* ---- called by the thread itself ---- */

/* Registers the calling thread's heartbeat; NULL removes it. It must live as long as the thread, or
 * until another one is registered. */
void trajd_heartbeat_begin(struct trajd_heartbeat *heartbeat);
void trajd_heartbeat_turn(void);
/* Names the storage that the thread's waits are for from now on; NULL: other waits. The text stays
 * where it is until the next call. */
void trajd_heartbeat_reads(const char *storage);
/* Begins and ends a wait. Waits may be nested. Turns are reported in a wait, too, where it consists
 * of many calls. */
void trajd_heartbeat_wait(void);
/* Begins a wait of a thread that has waited for the same before. */
void trajd_heartbeat_wait_on(int64_t waited_ns);
void trajd_heartbeat_resume(void);
bool trajd_heartbeat_is_cancelled(void);
/* Returns TRAJD_ERR_CLOSED where the thread is cancelled. */
enum trajd_status trajd_heartbeat_check(struct trajd_error *error);
/* Waits for the condition, whose clock must be CLOCK_MONOTONIC, and reports a turn. In a thread
 * with a heartbeat it waits at most a tenth of a second: a loop around it thus reports turns and
 * notices cancel. The caller holds the mutex. */
void trajd_heartbeat_wait_for(pthread_cond_t *condition, pthread_mutex_t *mutex);
/* Initialises a condition with CLOCK_MONOTONIC. */
void trajd_heartbeat_init_condition(pthread_cond_t *condition);

/* ---- called by other threads ---- */

void trajd_heartbeat_cancel(struct trajd_heartbeat *heartbeat);
/* Returns the storage that the thread has waited for since its last turn, if that is more than
 * limit_ns, else NULL. */
const char *trajd_heartbeat_hung_storage(const struct trajd_heartbeat *heartbeat, int64_t now_ns,
                                         int64_t limit_ns);
/* True where the last turn is more than limit_ns ago and the thread is not waiting. */
bool trajd_heartbeat_is_stuck(const struct trajd_heartbeat *heartbeat, int64_t now_ns,
                              int64_t limit_ns);

#endif
