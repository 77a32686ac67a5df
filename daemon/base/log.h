/* The log: one line per event. Code that decides what to do about an error logs it; other code
 * returns the error. Nothing is logged per sample. */
#ifndef TRAJD_BASE_LOG_H
#define TRAJD_BASE_LOG_H

#include <stdbool.h>
#include <stdint.h>

enum trajd_log_level { TRAJD_LOG_ERROR, TRAJD_LOG_WARNING, TRAJD_LOG_INFO, TRAJD_LOG_DEBUG };

/* Filled at start and constant afterwards, but for the file behind fd. Thread-safe. */
struct trajd_log {
    int fd;
    enum trajd_log_level level; /* the least important level that is written */
    bool journal;               /* fd is systemd's journal: lines begin with "<N>" */
    bool json;                  /* each line is a JSON object: time, level, message */
    const char *path;           /* of the file that trajd_log_rotate limits; NULL: none */
};

/* Fills *log. `journal_stream` is the value of $JOURNAL_STREAM, "DEVICE:INODE" of the descriptor
 * that systemd passed, or NULL. A descriptor that was redirected since then does not match it. fd
 * stays the caller's. */
void trajd_log_init(struct trajd_log *log, int fd, enum trajd_log_level level,
                    const char *journal_stream);

/* "error", "warning", "info", "debug", NULL: the words of the levels in a configuration. */
extern const char *const trajd_log_levels[];

/* Begins a new file where the one at log->path has more than `most_bytes`, and renames that one to
 * PATH.1. Does nothing without a path. If the file system refuses it, the file stays as it is. */
void trajd_log_rotate(const struct trajd_log *log, int64_t most_bytes);

/* Opens the file for appending in place of log->fd, and sets log->path. `path` stays the caller's.
 * Returns false with errno if it cannot be opened. */
bool trajd_log_to_file(struct trajd_log *log, const char *path);

/* Writes one line of at most about 1000 bytes with one write(2), so that lines of several threads
 * do not mix. A JSON line may be longer. Control characters become '?'. Blocks where fd blocks.
 * Keeps errno. */
void trajd_log_write(const struct trajd_log *log, enum trajd_log_level level, const char *format,
                     ...) __attribute__((format(printf, 3, 4)));

/* LOG(log, WARNING, "feed %s: ...", name) evaluates its arguments only where the level is written.
 */
#define LOG(log, name, ...)                                                                        \
    do {                                                                                           \
        if (TRAJD_LOG_##name <= (log)->level)                                                      \
            trajd_log_write(log, TRAJD_LOG_##name, __VA_ARGS__);                                   \
    } while (0)

#endif
