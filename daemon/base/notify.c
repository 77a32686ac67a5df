/* Sends READY, STATUS and WATCHDOG datagrams to the service manager. */
#include "daemon/base/notify.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "daemon/base/clock.h"

enum { MAX_MESSAGE_BYTES = 1024, SEND_TIMEOUT_S = 5 };

static enum trajd_status connect_to(const char *name, int *out_fd, struct trajd_error *error)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct timeval timeout = {.tv_sec = SEND_TIMEOUT_S};
    size_t length = strlen(name);
    int fd;

    if ((*name != '/' && *name != '@') || length < 2)
        return trajd_error_set(error, TRAJD_ERR_UNSUPPORTED, 0,
                               "NOTIFY_SOCKET=%s: neither a path nor abstract", name);
    if (length >= sizeof address.sun_path)
        return trajd_error_set(error, TRAJD_ERR_UNSUPPORTED, 0,
                               "NOTIFY_SOCKET=%s: longer than %zu bytes", name,
                               sizeof address.sun_path - 1);
    memcpy(address.sun_path, name, length);
    if (*name == '@')
        address.sun_path[0] = 0;
    fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return trajd_error_set(error, TRAJD_ERR_SYSTEM, errno, "NOTIFY_SOCKET: %s",
                               strerror(errno));
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof timeout);
    if (connect(fd, (struct sockaddr *)&address,
                (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length))) {
        trajd_error_set(error, TRAJD_ERR_SYSTEM, errno, "NOTIFY_SOCKET=%s: %s", name,
                        strerror(errno));
        close(fd);
        return TRAJD_ERR_SYSTEM;
    }
    *out_fd = fd;
    return TRAJD_OK;
}

/* WATCHDOG_PID names the watched process; without it, the watched process is this one. */
static int64_t read_watchdog_ns(void)
{
    const char *interval = getenv("WATCHDOG_USEC"), *pid = getenv("WATCHDOG_PID");
    long long us = interval ? strtoll(interval, NULL, 10) : 0;

    if ((pid && strtoll(pid, NULL, 10) != getpid()) || us <= 0 || us > INT64_MAX / 1000)
        return 0;
    return us * 1000;
}

enum trajd_status trajd_notify_open(struct trajd_notify *notify, struct trajd_error *error)
{
    const char *name = getenv("NOTIFY_SOCKET");
    enum trajd_status status = TRAJD_OK;

    *notify = (struct trajd_notify){.fd = -1};
    if (name && *name)
        status = connect_to(name, &notify->fd, error);
    if (notify->fd >= 0)
        notify->watchdog_ns = read_watchdog_ns();
    unsetenv("NOTIFY_SOCKET");
    unsetenv("WATCHDOG_USEC");
    unsetenv("WATCHDOG_PID");
    return status;
}

enum trajd_status trajd_notify_send(const struct trajd_notify *notify, struct trajd_error *error,
                                    const char *format, ...)
{
    char message[MAX_MESSAGE_BYTES];
    va_list arguments;
    int length;

    if (notify->fd < 0)
        return TRAJD_OK;
    va_start(arguments, format);
    length = vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    if (length < 0 || (size_t)length >= sizeof message)
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                               "a notification of %d bytes (at most %zu)", length,
                               sizeof message - 1);
    if (send(notify->fd, message, (size_t)length, MSG_NOSIGNAL) < 0)
        return trajd_error_set(error, TRAJD_ERR_SYSTEM, errno, "NOTIFY_SOCKET: %s",
                               strerror(errno));
    return TRAJD_OK;
}

enum trajd_status trajd_notify_reloading(const struct trajd_notify *notify,
                                         struct trajd_error *error)
{
    return trajd_notify_send(notify, error, "RELOADING=1\nMONOTONIC_USEC=%" PRId64,
                             trajd_now_ns() / 1000);
}

void trajd_notify_close(struct trajd_notify *notify)
{
    if (notify->fd >= 0)
        close(notify->fd);
    notify->fd = -1;
}
