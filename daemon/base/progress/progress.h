/* Shows how far a long piece of work is: done, total, rate, and the time that is left.
 *
 * The code that works reports it without knowing who shows it, as with heartbeats. A thread that
 * wants to show it has an observer. In a thread without one, reports do nothing. */
#ifndef TRAJD_BASE_PROGRESS_H
#define TRAJD_BASE_PROGRESS_H

#include <stddef.h>
#include <stdint.h>

#include "daemon/base/log.h"

#define TRAJD_PROGRESS_BYTES "bytes" /* a unit, shown as MB */
#define TRAJD_PROGRESS_TEXT_SIZE 256

struct trajd_progress {
    /* Shows a line such as "index of square: 1200 of 10000 files, 812 files/s, 11 s left". NULL:
     * the work is done or another one begins, and no line of it remains to be shown. */
    void (*show)(void *context, const char *text);
    void *context;
    int64_t interval_ns; /* from the begin of the work to the first line, and between lines */

    /* set by trajd_progress_update */
    char work[128];
    int64_t begun_ns, shown_ns;
    uint64_t begun_done, done;
};

/* Registers the observer of the calling thread; NULL removes it. It must live until then. */
void trajd_progress_begin(struct trajd_progress *progress);

/* Registers *progress as an observer that writes a line into the log each 2 s. */
void trajd_progress_begin_in_log(struct trajd_progress *progress, const struct trajd_log *log);

/* Registers an observer that prints to stderr: on a terminal one line that changes, elsewhere a
 * line each 10 s. */
void trajd_progress_begin_on_stderr(void);

/* Reports to the observer of the calling thread. `work` says what is done ("index of square"), and
 * another text, or a smaller `done`, begins another work. `total` 0: nothing is to be done. */
void trajd_progress_report(const char *work, const char *unit, uint64_t done, uint64_t total);

/* The same for an observer that is not registered. */
void trajd_progress_update(struct trajd_progress *progress, const char *work, const char *unit,
                           uint64_t done, uint64_t total);

/* Erases the line on the terminal, before something else is printed. */
void trajd_progress_clear(void);

/* Writes the line. `elapsed_ns` is the time that the last `fresh` of `done` took. */
void trajd_progress_text(const char *work, const char *unit, uint64_t done, uint64_t total,
                         uint64_t fresh, int64_t elapsed_ns, char text[TRAJD_PROGRESS_TEXT_SIZE]);

#endif
