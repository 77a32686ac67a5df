/* For LD_PRELOAD: a busy machine. A thread that starts with SIGHUP unblocked, and blocks it itself,
 * is delayed by ten seconds before it does so. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdbool.h>
#include <time.h>
#include <unistd.h>

#define PRELOADED __attribute__((visibility("default")))

PRELOADED int pthread_sigmask(int how, const sigset_t *set, sigset_t *before)
{
    static __thread bool is_known;
    const struct timespec pause = {10, 0};
    int (*next)(int, const sigset_t *, sigset_t *) =
        (int (*)(int, const sigset_t *, sigset_t *))dlsym(RTLD_NEXT, "pthread_sigmask");
    sigset_t now;

    next(SIG_BLOCK, NULL, &now);
    if (!is_known && gettid() != getpid() && !sigismember(&now, SIGHUP))
        nanosleep(&pause, NULL);
    is_known = true;
    return next(how, set, before);
}
