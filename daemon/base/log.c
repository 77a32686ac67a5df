#include "daemon/base/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "daemon/base/clock.h"

enum { LINE_BYTES = 1024 };

const char *const trajd_log_levels[] = {"error", "warning", "info", "debug", NULL};

void trajd_log_init(struct trajd_log *log, int fd, enum trajd_log_level level,
                    const char *journal_stream)
{
    unsigned long long device, inode;
    struct stat status;
    int used = 0;

    *log = (struct trajd_log){.fd = fd, .level = level};
    if (journal_stream && sscanf(journal_stream, "%llu:%llu%n", &device, &inode, &used) == 2 &&
        !journal_stream[used] && !fstat(fd, &status))
        log->journal = status.st_dev == device && status.st_ino == inode;
}

/* Writes "<4>" for the journal, else "2026-01-31T12:00:00.123Z warning: ". */
static size_t write_prefix(const struct trajd_log *log, enum trajd_log_level level, char *line)
{
    static const int priorities[] = {3, 4, 6, 7}; /* the numbers of syslog(3) */
    const struct timespec now = trajd_timespec(trajd_wall_ns());
    struct tm day;
    size_t used;

    if (log->journal)
        return (size_t)snprintf(line, LINE_BYTES, "<%d>", priorities[level]);
    gmtime_r(&now.tv_sec, &day);
    used = strftime(line, LINE_BYTES, "%Y-%m-%dT%H:%M:%S", &day);
    return used + (size_t)snprintf(line + used, LINE_BYTES - used,
                                   ".%03dZ %s: ", (int)(now.tv_nsec / 1000000),
                                   trajd_log_levels[level]);
}

void trajd_log_write(const struct trajd_log *log, enum trajd_log_level level, const char *format,
                     ...)
{
    int saved_errno = errno, written;
    char line[LINE_BYTES];
    va_list arguments;
    size_t prefix, length;

    if (level > log->level)
        return;
    prefix = write_prefix(log, level, line);
    errno = saved_errno; /* for %m */
    va_start(arguments, format);
    written = vsnprintf(line + prefix, sizeof line - prefix, format, arguments);
    va_end(arguments);
    length = prefix + (size_t)(written > 0 ? written : 0);
    if (length > sizeof line - 2) {
        length = sizeof line - 2;
        memcpy(line + length - 3, "...", 3);
    }
    for (size_t i = prefix; i < length; i++)
        if ((unsigned char)line[i] < 0x20 || line[i] == 0x7f)
            line[i] = '?';
    line[length++] = '\n';
    if (write(log->fd, line, length) < 0)
        length = 0; /* the log cannot be written: there is no other place to report it */
    errno = saved_errno;
}
