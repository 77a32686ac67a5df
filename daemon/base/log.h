/* One line per event. Who decides, logs; stages return errors instead. Nothing is logged per
 * sample. */
#ifndef TRAJD_BASE_LOG_H
#define TRAJD_BASE_LOG_H

#include <stdbool.h>

enum trajd_log_level { TRAJD_LOG_ERROR, TRAJD_LOG_WARNING, TRAJD_LOG_INFO, TRAJD_LOG_DEBUG };

/* Filled at start, then constant: any thread may write through it. */
struct trajd_log {
    int fd;
    enum trajd_log_level level; /* the last one that is written */
    bool journal;               /* fd leads to systemd's journal: "<N>" instead of time and level */
};

/* `journal_stream` is the value of $JOURNAL_STREAM ("DEVICE:INODE" of the descriptor that systemd
 * gave us), or NULL; a descriptor that was redirected since does not match it. fd is not owned. */
void trajd_log_init(struct trajd_log *log, int fd, enum trajd_log_level level,
                    const char *journal_stream);

/* "error", "warning", "info", "debug", NULL: for reading the level from a config. */
extern const char *const trajd_log_levels[];

/* One line of at most about 1000 bytes in one write(2), so that lines of several threads do not
 * mix; control characters become '?'. Blocks where fd blocks. errno is kept. */
void trajd_log_write(const struct trajd_log *log, enum trajd_log_level level, const char *format,
                     ...) __attribute__((format(printf, 3, 4)));

/* LOG(log, WARNING, "feed %s: ...", name): arguments are not evaluated when the level is not
 * written. */
#define LOG(log, name, ...)                                                                        \
    do {                                                                                           \
        if (TRAJD_LOG_##name <= (log)->level)                                                      \
            trajd_log_write(log, TRAJD_LOG_##name, __VA_ARGS__);                                   \
    } while (0)

#endif
