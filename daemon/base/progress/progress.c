/* Computes rate and remaining time of a piece of work, and prints them on a terminal or in the
 * log. */
#include "daemon/base/progress/progress.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "daemon/base/clock.h"

#define TERMINAL_INTERVAL_NS INT64_C(200000000)
#define LOG_INTERVAL_NS INT64_C(2000000000)
#define LINE_INTERVAL_NS INT64_C(10000000000)

static _Thread_local struct trajd_progress *own;
static _Thread_local bool line_is_drawn; /* on the terminal */

/* Writes "11 s", "4 min" or "2.5 h". */
static void write_time(double seconds, char *text, size_t size)
{
    if (seconds < 100)
        snprintf(text, size, "%.0f s", seconds);
    else if (seconds < 100 * 60)
        snprintf(text, size, "%.0f min", seconds / 60);
    else
        snprintf(text, size, "%.1f h", seconds / 3600);
}

void trajd_progress_text(const char *work, const char *unit, uint64_t done, uint64_t total,
                         uint64_t fresh, int64_t elapsed_ns, char text[TRAJD_PROGRESS_TEXT_SIZE])
{
    const bool is_bytes = !strcmp(unit, TRAJD_PROGRESS_BYTES);
    const double scale = is_bytes ? 1e6 : 1, seconds = (double)elapsed_ns * 1e-9,
                 rate = seconds > 0 ? (double)fresh / seconds : 0;
    const char *name = is_bytes ? "MB" : unit;
    const int digits = is_bytes ? 1 : 0, rate_digits = rate / scale < 10 ? 1 : 0;
    char left[32] = "";
    int used = snprintf(text, TRAJD_PROGRESS_TEXT_SIZE, "%.120s: %.*f of %.*f %s", work, digits,
                        (double)done / scale, digits, (double)total / scale, name);

    if (rate <= 0 || used >= TRAJD_PROGRESS_TEXT_SIZE)
        return;
    write_time((double)(total - done) / rate, left, sizeof left);
    snprintf(text + used, (size_t)(TRAJD_PROGRESS_TEXT_SIZE - used), ", %.*f %s/s, %s left",
             rate_digits, rate / scale, name, left);
}

static void begin_work(struct trajd_progress *progress, const char *work, uint64_t done,
                       int64_t now_ns)
{
    snprintf(progress->work, sizeof progress->work, "%s", work);
    progress->begun_ns = progress->shown_ns = now_ns;
    progress->begun_done = done;
}

void trajd_progress_update(struct trajd_progress *progress, const char *work, const char *unit,
                           uint64_t done, uint64_t total)
{
    const int64_t now_ns = trajd_now_ns();
    char text[TRAJD_PROGRESS_TEXT_SIZE];

    if (strncmp(progress->work, work, sizeof progress->work - 1) || done < progress->done)
        begin_work(progress, work, done, now_ns);
    progress->done = done;
    if (done >= total) {
        progress->show(progress->context, NULL);
        *progress->work = '\0';
    } else if (now_ns - progress->shown_ns >= progress->interval_ns) {
        trajd_progress_text(work, unit, done, total, done - progress->begun_done,
                            now_ns - progress->begun_ns, text);
        progress->shown_ns = now_ns;
        progress->show(progress->context, text);
    }
}

void trajd_progress_begin(struct trajd_progress *progress)
{
    own = progress;
}

void trajd_progress_report(const char *work, const char *unit, uint64_t done, uint64_t total)
{
    if (own)
        trajd_progress_update(own, work, unit, done, total);
}

static void log_line(void *context, const char *text)
{
    const struct trajd_log *log = context;

    if (text)
        LOG(log, INFO, "%s", text);
}

void trajd_progress_begin_in_log(struct trajd_progress *progress, const struct trajd_log *log)
{
    *progress = (struct trajd_progress){
        .show = log_line, .context = (void *)log, .interval_ns = LOG_INTERVAL_NS};
    trajd_progress_begin(progress);
}

/* ---- stderr ---- */

void trajd_progress_clear(void)
{
    if (line_is_drawn)
        fputs("\r\033[K", stderr);
    line_is_drawn = false;
}

static void show_on_terminal(void *context, const char *text)
{
    (void)context;
    if (!text) {
        trajd_progress_clear();
        return;
    }
    fprintf(stderr, "\r%s\033[K", text);
    line_is_drawn = true;
}

static void print_line(void *context, const char *text)
{
    (void)context;
    if (text)
        fprintf(stderr, "%s\n", text);
}

void trajd_progress_begin_on_stderr(void)
{
    static _Thread_local struct trajd_progress progress;
    const bool is_terminal = isatty(STDERR_FILENO);

    progress = (struct trajd_progress){
        .show = is_terminal ? show_on_terminal : print_line,
        .interval_ns = is_terminal ? TERMINAL_INTERVAL_NS : LINE_INTERVAL_NS,
    };
    trajd_progress_begin(&progress);
}
