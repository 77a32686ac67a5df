/* Starts the daemon's threads. Only the main thread receives signals. */
#ifndef TRAJD_BASE_THREAD_H
#define TRAJD_BASE_THREAD_H

#include <pthread.h>

/* Starts a thread with all signals blocked from its first instruction. `name` has at most 15
 * characters. Returns 0 or the error of pthread_create. Thread-safe. */
int trajd_thread_start(pthread_t *thread, const char *name, void *(*run)(void *), void *context);

#endif
