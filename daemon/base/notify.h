/* systemd's notification socket (sd_notify(3)): readiness, status, watchdog. Without the socket all
 * functions do nothing. */
#ifndef TRAJD_BASE_NOTIFY_H
#define TRAJD_BASE_NOTIFY_H

#include <stdint.h>

#include "proto/error.h"

struct trajd_notify {
    int fd;              /* connected; -1: there is no socket */
    int64_t watchdog_ns; /* systemd expects "WATCHDOG=1" at least this often; 0: never */
};

/* Reads NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID and removes them from the environment, so
 * that no child process uses them. Call it before any thread starts, since threads share the
 * environment. After an error READY cannot be sent, which is fatal under systemd. */
enum trajd_status trajd_notify_open(struct trajd_notify *notify, struct trajd_error *error);

/* Sends a text such as "READY=1", "STATUS=...", "STOPPING=1", "WATCHDOG=1",
 * "EXTEND_TIMEOUT_USEC=..."; several are separated by '\n'. Thread-safe. Waits up to five seconds
 * where systemd does not read. */
enum trajd_status trajd_notify_send(const struct trajd_notify *notify, struct trajd_error *error,
                                    const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Sends "RELOADING=1" with the current time, by which systemd tells this reload from an earlier
 * one. READY=1 ends the reload. */
enum trajd_status trajd_notify_reloading(const struct trajd_notify *notify,
                                         struct trajd_error *error);

void trajd_notify_close(struct trajd_notify *notify);

#endif
