/* Writes log lines as text, for the journal or as JSON, and begins a new log file when the old
 * one is full. */
#include "daemon/base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "daemon/base/json.h"
#include "proto/visible.h"

/* of a line of text; of one in JSON, where a byte takes up to six */
enum { LINE_BYTES = 2048, JSON_BYTES = 6 * LINE_BYTES + 128 };

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

bool trajd_log_to_file(struct trajd_log *log, const char *path)
{
    const int fd =
        open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0600);
    const bool is_open = fd >= 0 && dup2(fd, log->fd) >= 0;

    if (fd >= 0)
        close(fd);
    if (is_open)
        log->path = path;
    return is_open;
}

void trajd_log_rotate(const struct trajd_log *log, int64_t most_bytes)
{
    struct trajd_log fresh = *log;
    char old[PATH_MAX];
    struct stat status;

    if (!log->path || fstat(log->fd, &status) || status.st_size <= most_bytes ||
        snprintf(old, sizeof old, "%s.1", log->path) >= (int)sizeof old || rename(log->path, old))
        return;
    if (!trajd_log_to_file(&fresh, log->path))
        rename(old, log->path);
}

static size_t write_time(char *out, size_t size)
{
    struct timespec now;
    struct tm day;
    size_t used;

    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &day);
    used = strftime(out, size, "%Y-%m-%dT%H:%M:%S", &day);
    return used + (size_t)snprintf(out + used, size - used, ".%03dZ", (int)(now.tv_nsec / 1000000));
}

/* Writes "<4>" for the journal, else "2026-01-31T12:00:00.123Z warning: ". */
static size_t write_prefix(const struct trajd_log *log, enum trajd_log_level level, char *line)
{
    static const int priorities[] = {3, 4, 6, 7}; /* the numbers of syslog(3) */
    size_t used;

    if (log->journal)
        return (size_t)snprintf(line, LINE_BYTES, "<%d>", priorities[level]);
    if (log->json)
        return 0;
    used = write_time(line, LINE_BYTES);
    return used +
           (size_t)snprintf(line + used, LINE_BYTES - used, " %s: ", trajd_log_levels[level]);
}

/* Replaces the message, which begins at `prefix`, by a JSON object with it. Returns the length of
 * the line; `length` where there is no memory for the object. */
static size_t make_json(char *line, size_t prefix, size_t length, enum trajd_log_level level)
{
    char message[LINE_BYTES], stamp[32];
    FILE *out = fmemopen(line + prefix, JSON_BYTES - prefix - 1, "w");
    struct trajd_json json = {.out = out};

    if (!out)
        return length;
    memcpy(message, line + prefix, length - prefix);
    message[length - prefix] = 0;
    write_time(stamp, sizeof stamp);
    trajd_json_open_object(&json, NULL);
    trajd_json_string(&json, "time", stamp);
    trajd_json_string(&json, "level", trajd_log_levels[level]);
    trajd_json_string(&json, "message", message);
    trajd_json_close_object(&json);
    length = prefix + (size_t)ftell(out);
    fclose(out);
    return length;
}

void trajd_log_write(const struct trajd_log *log, enum trajd_log_level level, const char *format,
                     ...)
{
    int saved_errno = errno, written;
    char line[JSON_BYTES], message[LINE_BYTES];
    va_list arguments;
    size_t prefix, length;

    if (level > log->level)
        return;
    prefix = write_prefix(log, level, line);
    errno = saved_errno; /* for %m */
    va_start(arguments, format);
    written = vsnprintf(line + prefix, LINE_BYTES - prefix, format, arguments);
    va_end(arguments);
    length = prefix + (size_t)(written > 0 ? written : 0);
    if (length > LINE_BYTES - 2) {
        length = LINE_BYTES - 2;
        memcpy(line + length - 3, "...", 3);
    }
    for (size_t i = prefix; i < length; i++)
        if ((unsigned char)line[i] < 0x20 || line[i] == 0x7f)
            line[i] = '?';
    line[length] = '\0';
    if (log->json) {
        length = make_json(line, prefix, length, level);
    } else {
        memcpy(message, line + prefix, length - prefix + 1);
        length = prefix + trajd_visible(line + prefix, sizeof line - prefix - 1, message);
    }
    line[length++] = '\n';
    if (write(log->fd, line, length) < 0)
        length = 0; /* the log cannot be written: there is no other place to report it */
    errno = saved_errno;
}
