#include "daemon/base/thread.h"

#include <signal.h>

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
