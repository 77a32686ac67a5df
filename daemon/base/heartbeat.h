/* What a thread that works for long leaves for those who look on: its turns, and that it waits; and
 * what they tell it: to end.
 *
 * A thread has at most one watch, which it names once; code that takes turns or waits on behalf of
 * whoever called it needs no word of it. Without one (a tool, a test, a helping thread) all of this
 * does nothing.
 *
 *   turn    at least every few seconds, idle ones included: who has not turned for long and does
 *           not wait is stuck
 *   wait    around what may take any time by itself and is no mistake of ours: storage, the
 *           kernel's pages, a driver
 *   cancel  loops and waits that may be long look at it and end with TRAJD_ERR_CLOSED */
#ifndef TRAJD_BASE_HEARTBEAT_H
#define TRAJD_BASE_HEARTBEAT_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "proto/error.h"

/* Zero at first. Each is atomic, and a number on its own: nothing is ordered by them. */
struct trajd_heartbeat {
    int64_t last_turn_ns; /* CLOCK_MONOTONIC; 0: the thread has not begun */
    uint32_t waits;       /* how deep in waits it is */
    bool cancel;
};

/* ---- by the thread itself ---- */

/* From now on this thread's; NULL: none. It must live as long as the thread, or until another is
 * named. */
void trajd_heartbeat_begin(struct trajd_heartbeat *heartbeat);
void trajd_heartbeat_turn(void);
/* May be nested. */
void trajd_heartbeat_wait(void);
void trajd_heartbeat_resume(void);
bool trajd_heartbeat_is_cancelled(void);
/* TRAJD_ERR_CLOSED where it is. */
enum trajd_status trajd_heartbeat_check(struct trajd_error *error);
/* Waits for the condition, whose clock is CLOCK_MONOTONIC, and takes a turn; at most a tenth of a
 * second where the thread has a watch, so that whoever calls it in a loop takes turns and hears of
 * cancel. */
void trajd_heartbeat_wait_for(pthread_cond_t *condition, pthread_mutex_t *mutex);
/* A condition for that. */
void trajd_heartbeat_init_condition(pthread_cond_t *condition);

/* ---- by others ---- */

void trajd_heartbeat_cancel(struct trajd_heartbeat *heartbeat);
bool trajd_heartbeat_is_stuck(const struct trajd_heartbeat *heartbeat, int64_t now_ns,
                              int64_t limit_ns);

#endif
