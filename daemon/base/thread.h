/* The daemon's threads: all signals are the main thread's. */
#ifndef TRAJD_BASE_THREAD_H
#define TRAJD_BASE_THREAD_H

#include <pthread.h>

/* Starts a thread that has all signals blocked from its first instruction on, and is called `name`
 * (15 characters at most). 0, or what pthread_create says. From any thread. */
int trajd_thread_start(pthread_t *thread, const char *name, void *(*run)(void *), void *context);

#endif
