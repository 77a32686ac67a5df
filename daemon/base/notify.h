/* systemd's notification socket (sd_notify(3)): readiness, status, watchdog. Without one everything
 * here does nothing. */
#ifndef TRAJD_BASE_NOTIFY_H
#define TRAJD_BASE_NOTIFY_H

#include <stdint.h>

#include "proto/error.h"

struct trajd_notify {
    int fd;              /* connected; -1: nobody listens */
    int64_t watchdog_ns; /* a "WATCHDOG=1" is expected at least this often; 0: none is */
};

/* Reads NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID and removes them, so that no child speaks in
 * our name. To be called before threads start (the environment is theirs too). An error means that
 * READY cannot be told: fatal under systemd. */
enum trajd_status trajd_notify_open(struct trajd_notify *notify, struct trajd_error *error);

/* Sends "READY=1", "STATUS=...", "STOPPING=1", "WATCHDOG=1", "EXTEND_TIMEOUT_USEC=..."; several are
 * separated by '\n'. From any thread; waits up to five seconds if the manager does not read. */
enum trajd_status trajd_notify_send(const struct trajd_notify *notify, struct trajd_error *error,
                                    const char *format, ...) __attribute__((format(printf, 3, 4)));

/* "RELOADING=1" with the time that the manager needs to tell this reload from an earlier one;
 * READY=1 ends it. */
enum trajd_status trajd_notify_reloading(const struct trajd_notify *notify,
                                         struct trajd_error *error);

void trajd_notify_close(struct trajd_notify *notify);

#endif
