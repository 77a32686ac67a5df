/* trajd: the daemon. Reads its configuration, starts everything (daemon/control), reports READY and
 * waits for signals. */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sysexits.h>
#include <unistd.h>

#include "daemon/base/clock.h"
#include "daemon/base/heartbeat.h"
#include "daemon/base/log.h"
#include "daemon/base/notify.h"
#include "daemon/config/config.h"
#include "daemon/control/control.h"

#define DRAIN_MS 5000
#define END_S 5 /* after the drain; threads that have not ended by then wait for storage */
#define TURN_MS 1000
#define RELOAD_TURN_MS 20 /* while a reload is running */
#define START_TURN_MS 200
#define STUCK_NS INT64_C(30000000000) /* or half of the watchdog's time, if this is less */
#define LEAST_STUCK_NS INT64_C(5000000000)

/* Free memory at the end of a heap, and the size from which a block is a mapping of its own. Where
 * they are not set, glibc raises both to up to 64 MiB and keeps the memory of a flood. */
#define MALLOC_KEPT_BYTES (512 << 10)
#define MALLOC_MAPPED_BYTES (1 << 20)

#define MOST_LOG_BYTES (INT64_C(8) << 20) /* of a file of the log; one more is kept */
#define MAX_VALUES 32

struct command_line {
    const char *config;
    bool check, print, json;
    int ready_fd; /* -1: none */
    uint32_t value_count;
    struct trajd_config_value values[MAX_VALUES];
    enum trajd_log_level level;
    bool json_log;
    const char *log_file; /* NULL: standard error */
};

static const char usage[] =
    "usage: trajd --config FILE [--check | --print-config [--json]] [--set KEY=VALUE]... [--preset "
    "KEY=VALUE]...\n"
    "             [--ready-fd N] [--log-level error|warning|info|debug] [--log-format text|json] "
    "[--log-file FILE]\n"
    "\n"
    "Feeds training jobs with resampled windows of robot trajectories.\n"
    "\n"
    "  --config FILE    the configuration (trajd.yaml); configs/trajd.yaml shows every key\n"
    "  --check          open and plan everything, print the feeds, serve nothing\n"
    "  --print-config   print every key with the value in force; with --json as one JSON document\n"
    "  --set KEY=VALUE  override a key of the file, e.g. --set memory.store=50% (of the free "
    "memory)\n"
    "  --preset KEY=VALUE  set a key that neither the file nor --set has\n"
    "  --ready-fd N     when workers can be served, write a line to descriptor N and close it\n"
    "  --log-level LEVEL  error, warning, info (the default) or debug\n"
    "  --log-format FORMAT  text (the default), or json: an object a line: time, level, message\n"
    "  --log-file FILE  write the log to FILE; at 8 MiB it is renamed to FILE.1\n"
    "  --version        print the version\n";

static int add_value(struct command_line *line, const char *text, bool is_preset)
{
    if (line->value_count == MAX_VALUES) {
        fprintf(stderr, "trajd: at most %d --set and --preset options are allowed\n", MAX_VALUES);
        return 1;
    }
    line->values[line->value_count++] = (struct trajd_config_value){text, is_preset};
    return 0;
}

/* Sets CLOEXEC, so that helper processes do not inherit the descriptor. */
static int take_descriptor(struct command_line *line, const char *text)
{
    char *end;
    const long fd = strtol(text, &end, 10);

    if (*end || end == text || fd < 3 || fd > INT_MAX || fcntl((int)fd, F_SETFD, FD_CLOEXEC)) {
        fprintf(stderr, "trajd: --ready-fd %s: must be an open descriptor above 2\n", text);
        return 1;
    }
    line->ready_fd = (int)fd;
    return 0;
}

static int take_level(struct command_line *line, const char *text)
{
    int level = 0;

    while (trajd_log_levels[level] && strcmp(trajd_log_levels[level], text) != 0)
        level++;
    if (!trajd_log_levels[level]) {
        fprintf(stderr, "trajd: --log-level %s: must be error, warning, info or debug\n", text);
        return 1;
    }
    line->level = (enum trajd_log_level)level;
    return 0;
}

/* Returns 0 to go on; otherwise the process ends with *status. */
static int parse_arguments(int argc, char **argv, struct command_line *line, int *status)
{
    static const struct option options[] = {{"config", required_argument, NULL, 'c'},
                                            {"check", no_argument, NULL, 'k'},
                                            {"print-config", no_argument, NULL, 'p'},
                                            {"log-level", required_argument, NULL, 'l'},
                                            {"log-format", required_argument, NULL, 'f'},
                                            {"log-file", required_argument, NULL, 'o'},
                                            {"version", no_argument, NULL, 'v'},
                                            {"help", no_argument, NULL, 'h'},
                                            {"set", required_argument, NULL, 's'},
                                            {"preset", required_argument, NULL, 'd'},
                                            {"ready-fd", required_argument, NULL, 'r'},
                                            {"json", no_argument, NULL, 'j'},
                                            {NULL, 0, NULL, 0}};
    int option;

    *line = (struct command_line){.level = TRAJD_LOG_INFO, .ready_fd = -1};
    *status = EX_USAGE;
    while ((option = getopt_long(argc, argv, "c:h", options, NULL)) != -1) {
        switch (option) {
        case 'c':
            line->config = optarg;
            break;
        case 'k':
            line->check = true;
            break;
        case 'p':
            line->print = true;
            break;
        case 'j':
            line->json = true;
            break;
        case 's':
        case 'd':
            if (add_value(line, optarg, option == 'd'))
                return 1;
            break;
        case 'r':
            if (take_descriptor(line, optarg))
                return 1;
            break;
        case 'l':
            if (take_level(line, optarg))
                return 1;
            break;
        case 'f':
            line->json_log = strcmp(optarg, "json") == 0;
            if (!line->json_log && strcmp(optarg, "text") != 0) {
                fprintf(stderr, "trajd: --log-format %s: must be text or json\n", optarg);
                return 1;
            }
            break;
        case 'o':
            line->log_file = optarg;
            break;
        case 'v':
            *status = printf("trajd %s\n", TRAJD_VERSION) < 0;
            return 1;
        case 'h':
            *status = fputs(usage, stdout) < 0;
            return 1;
        default:
            fputs(usage, stderr);
            return 1;
        }
    }
    if (optind < argc || !line->config || (line->json && !line->print)) {
        fputs(usage, stderr);
        return 1;
    }
    return 0;
}

/* Returns the exit status. It tells the service manager whether a restart can help: a bad
 * configuration is not started again. */
static int exit_status(enum trajd_status status)
{
    return !status                                                         ? EXIT_SUCCESS
           : status == TRAJD_ERR_ARGUMENT || status == TRAJD_ERR_NOT_FOUND ? EX_CONFIG
           : status == TRAJD_ERR_DEVICE                                    ? EX_UNAVAILABLE
                                                                           : EXIT_FAILURE;
}

/* Returns true after exit_idle without a worker, counted from READY at the earliest. */
static bool is_idle_for_too_long(const struct trajd_control *control, int64_t exit_idle_ns,
                                 int64_t ready_ns)
{
    const int64_t empty_ns = trajd_control_empty_since_ns(control);

    return exit_idle_ns && empty_ns &&
           trajd_now_ns() - (empty_ns > ready_ns ? empty_ns : ready_ns) >= exit_idle_ns;
}

/* The reload that SIGHUP requests. The service manager is notified of its begin and end. A request
 * during a reload starts another one after it. */
struct reloading {
    bool is_wanted, is_running;
};

static void advance_reload(struct reloading *reloading, struct trajd_control *control,
                           const struct trajd_config_source *source,
                           const struct trajd_notify *notify, const struct trajd_log *log)
{
    struct trajd_reload reload;

    if (reloading->is_running) {
        trajd_control_get_reload(control, &reload);
        if (reload.is_running)
            return;
        reloading->is_running = false;
        if (reload.status)
            LOG(log, ERROR, "reload refused, nothing has changed: %s", reload.message);
        else
            LOG(log, INFO, "reloaded: %s", reload.message);
        trajd_notify_send(notify, NULL, "READY=1");
    }
    if (!reloading->is_wanted)
        return;
    *reloading = (struct reloading){.is_running = true};
    trajd_notify_reloading(notify, NULL);
    trajd_control_reload(control, source);
}

static int64_t stuck_after_ns(const struct trajd_notify *notify)
{
    if (!notify->watchdog_ns || notify->watchdog_ns / 2 > STUCK_NS)
        return STUCK_NS;
    return notify->watchdog_ns / 2 > LEAST_STUCK_NS ? notify->watchdog_ns / 2 : LEAST_STUCK_NS;
}

/* Waits for SIGTERM, SIGINT, exit_idle or the loss of a GPU. Notifies the watchdog as long as every
 * thread makes progress. */
static void wait_for_end(struct trajd_control *control, const struct trajd_config_source *source,
                         const struct trajd_notify *notify, const struct trajd_log *log,
                         const sigset_t *signals, bool *lost)
{
    const int64_t ready_ns = trajd_now_ns();
    const int64_t turn_ns =
        notify->watchdog_ns && notify->watchdog_ns / 3 < TURN_MS * INT64_C(1000000)
            ? notify->watchdog_ns / 3
            : TURN_MS * INT64_C(1000000);
    const int64_t stuck_ns = stuck_after_ns(notify);
    const struct timespec turn = {turn_ns / 1000000000, turn_ns % 1000000000},
                          short_turn = {0, RELOAD_TURN_MS * 1000000};
    struct reloading reloading = {0};
    bool is_reported = false;

    for (;;) {
        const int signal = sigtimedwait(signals, NULL, reloading.is_running ? &short_turn : &turn);
        char line[160];

        if (signal == SIGTERM || signal == SIGINT)
            return;
        if (signal == SIGHUP)
            reloading.is_wanted = true;
        trajd_log_rotate(log, MOST_LOG_BYTES);
        advance_reload(&reloading, control, source, notify, log);
        /* before the check for stuck threads: a GPU that hung may have blocked a feed's thread */
        if (trajd_control_gpu_is_lost(control)) {
            *lost = true;
            return;
        }
        trajd_control_watch_storage(control);
        if (!trajd_control_is_alive(control, stuck_ns, line, sizeof line)) {
            if (!is_reported)
                LOG(log, ERROR, "%s has made no progress for %lld s: the watchdog is not notified",
                    line, (long long)(stuck_ns / 1000000000));
            is_reported = true;
            continue;
        }
        is_reported = false;
        if (is_idle_for_too_long(control, trajd_control_exit_idle_ns(control), ready_ns)) {
            LOG(log, INFO, "no worker for %g s (exit_idle): ending",
                (double)trajd_control_exit_idle_ns(control) / 1e9);
            return;
        }
        trajd_notify_send(notify, NULL, "WATCHDOG=1");
        trajd_control_status_line(control, line, sizeof line);
        trajd_notify_send(notify, NULL, "STATUS=%s", line);
    }
}

static void write_ready(const struct trajd_log *log, int fd)
{
    if (fd < 0)
        return;
    if (write(fd, "ready\n", 6) != 6)
        LOG(log, WARNING, "--ready-fd %d: %s", fd, strerror(errno));
    flock(fd, LOCK_UN); /* for other processes with the descriptor, e.g. a fork of the starter */
    close(fd);
}

/* Ends the process when a thread hangs in a read of storage and so cannot be joined. The files of
 * the sockets remain, as after a kill. */
static void on_late_end(int signal)
{
    static const char line[] =
        "trajd: a thread waits for storage or a GPU that does not respond: ended without it\n";

    (void)signal;
    _exit(write(STDERR_FILENO, line, sizeof line - 1) < 0 ? EXIT_FAILURE : EXIT_SUCCESS);
}

/* The same for a call of the driver of a failed GPU. */
static void on_late_loss(int signal)
{
    static const char line[] =
        "trajd: a thread waits for a GPU that does not respond: ended without it\n";

    (void)signal;
    _exit(write(STDERR_FILENO, line, sizeof line - 1) < 0 ? EXIT_FAILURE : EX_UNAVAILABLE);
}

/* ---- the start ---- */

/* Before READY, the main thread opens datasets. A thread watches it: it ends the process where storage
 * does not answer. */
struct start {
    const struct trajd_log *log;
    struct trajd_heartbeat heartbeat; /* of the main thread */
    int64_t limit_ns;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool is_over;
};

static void *watch_start(void *context)
{
    struct start *start = context;

    pthread_mutex_lock(&start->lock);
    while (!start->is_over) {
        const int64_t now_ns = trajd_now_ns();
        const struct timespec until = trajd_timespec(now_ns + START_TURN_MS * INT64_C(1000000));
        const char *storage =
            trajd_heartbeat_hung_storage(&start->heartbeat, now_ns, start->limit_ns);
        if (storage) {
            LOG(start->log, ERROR,
                "%s: its storage has not answered for %g s (index.file_timeout): the start is "
                "given up",
                storage, (double)start->limit_ns / 1e9);
            _exit(EXIT_FAILURE); /* the main thread cannot end */
        }
        pthread_cond_timedwait(&start->changed, &start->lock, &until);
    }
    pthread_mutex_unlock(&start->lock);
    return NULL;
}

/* Opens what the configuration names, in a time that ends also where storage hangs. */
static enum trajd_status create_control(struct trajd_config *config, const struct trajd_log *log,
                                        bool serve, FILE *report, struct trajd_control **control,
                                        struct trajd_error *error)
{
    struct start start = {
        .log = log, .limit_ns = config->index_file_timeout_ns, .lock = PTHREAD_MUTEX_INITIALIZER};
    pthread_t watcher;
    enum trajd_status status;
    int code;

    trajd_heartbeat_init_condition(&start.changed);
    code = trajd_thread_start(&watcher, "trajd-start", watch_start, &start);
    if (code)
        return trajd_error_set(error, TRAJD_ERR_SYSTEM, code, "no thread for the start: %s",
                               strerror(code));
    trajd_heartbeat_begin(&start.heartbeat);
    status = trajd_control_create(config, log, serve, report, control, error);
    trajd_heartbeat_begin(NULL);
    pthread_mutex_lock(&start.lock);
    start.is_over = true;
    pthread_cond_signal(&start.changed);
    pthread_mutex_unlock(&start.lock);
    pthread_join(watcher, NULL);
    pthread_cond_destroy(&start.changed);
    return status;
}

static void end_control(struct trajd_control **control, bool lost)
{
    const struct sigaction action = {.sa_handler = lost ? on_late_loss : on_late_end};

    trajd_control_drain(*control, lost ? 0 : DRAIN_MS);
    sigaction(SIGALRM, &action, NULL);
    alarm(END_S);
    trajd_control_destroy(control);
    alarm(0);
}

static enum trajd_status serve(struct trajd_config *config, const struct command_line *line,
                               const struct trajd_log *log, struct trajd_error *error)
{
    struct trajd_control *control = NULL;
    struct trajd_notify notify;
    const struct trajd_config_source source = {line->config, line->values, line->value_count};
    const int64_t begin_ns = trajd_now_ns();
    enum trajd_status status;
    bool lost = false;
    sigset_t signals;

    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGHUP);
    signal(SIGPIPE, SIG_IGN);
    mallopt(M_TRIM_THRESHOLD, MALLOC_KEPT_BYTES);
    mallopt(M_MMAP_THRESHOLD, MALLOC_MAPPED_BYTES);
    status = trajd_notify_open(&notify, error);
    if (status)
        return status;
    trajd_notify_send(&notify, NULL, "STATUS=opening datasets and feeds");
    /* Before READY, signals end the process by default: no worker has anything yet. All other
     * threads block all signals. */
    status =
        create_control(config, log, true,
                       log->level >= TRAJD_LOG_INFO && !log->journal && !log->json ? stderr : NULL,
                       &control, error);
    sigprocmask(SIG_BLOCK, &signals, NULL);
    if (!status) {
        LOG(log, INFO, "ready after %.1f ms", (double)(trajd_now_ns() - begin_ns) / 1e6);
        trajd_notify_send(&notify, NULL, "READY=1");
        write_ready(log, line->ready_fd);
        wait_for_end(control, &source, &notify, log, &signals, &lost);
        LOG(log, INFO, "stopping");
        trajd_notify_send(&notify, NULL, "STOPPING=1");
        /* leases are not waited for: a worker that holds a batch may wait for another one, which
         * never comes */
        if (lost)
            status =
                trajd_error_set(error, TRAJD_ERR_DEVICE, 0,
                                "a GPU has failed: ending, so that the daemon can be restarted");
        end_control(&control, lost);
    }
    trajd_notify_close(&notify);
    return status;
}

int main(int argc, char **argv)
{
    struct trajd_config *config = NULL;
    struct trajd_control *control = NULL;
    struct command_line line;
    struct trajd_error error;
    struct trajd_log log;
    enum trajd_status status;
    int result;

    if (parse_arguments(argc, argv, &line, &result))
        return result;
    signal(SIGXFSZ, SIG_IGN); /* exceeding the file size limit becomes an error of the write */
    trajd_log_init(&log, STDERR_FILENO, line.level, getenv("JOURNAL_STREAM"));
    log.json = line.json_log;
    if (line.log_file && !trajd_log_to_file(&log, line.log_file)) {
        LOG(&log, ERROR, "--log-file %s: %s", line.log_file, strerror(errno));
        return EX_CONFIG;
    }
    status = trajd_config_load(line.config, line.values, line.value_count, &config, &error);
    if (!status && line.print)
        (line.json ? trajd_config_print_json : trajd_config_print)(config, stdout);
    else if (!status && line.check) {
        status = create_control(config, &log, false, stdout, &control, &error);
        trajd_control_destroy(&control);
    } else if (!status)
        status = serve(config, &line, &log, &error);
    if (!status && (line.print || line.check) && (fflush(stdout) || ferror(stdout)))
        status =
            trajd_error_set(&error, TRAJD_ERR_IO, errno, "standard output: %s", strerror(errno));
    if (status)
        LOG(&log, ERROR, "%s", error.message);
    trajd_config_destroy(&config);
    return exit_status(status);
}
