/* trajctl preprocess: validates, resamples and publishes the files of an inbox, or quarantines them
 * with a report. Makes passes over the inbox until no file is waited for, or with --once until
 * `settle` has passed. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "clients/cli/cli.h"
#include "clients/cli/preprocess/prep_file.h"
#include "clients/cli/cli_shard.h"
#include "daemon/base/clock.h"
#include "daemon/base/heartbeat.h"
#include "daemon/base/memory.h"
#include "daemon/base/progress/progress.h"
#include "daemon/layout/glob.h"

#define LOOK_AGAIN_NS INT64_C(1000000000) /* longest pause between two passes, to find new files */

/* delay before a file that is open for writing is checked again */
#define BUSY_NS INT64_C(1000000000)

/* A file of the inbox. It is settled when its inode, size and times have not changed for `settle`, by
 * the monotonic clock of this run, and when no process has it open for writing. The kernel tells this
 * through a lease, which only the file's owner can take; without a lease, the first condition
 * decides. */
struct arrival {
    char *name; /* relative to the inbox */
    struct prep_identity identity;
    uint64_t inode;
    int64_t since_ns; /* unchanged since, CLOCK_MONOTONIC */
    bool is_finished; /* this run has nothing more to do with it */
};

struct inbox {
    struct arrival *arrivals; /* in natural order */
    uint32_t count;
};

struct preprocessing {
    struct prep_config config;
    struct cli_files files;
    struct trajd_log log;
    struct inbox inbox;
    const char *path;
    struct shard shard;
    bool once;
    uint64_t counts[PREP_CHANGED + 1];
    uint64_t failed;
    struct trajd_progress files_progress, file_progress; /* of all files, and within one */
    int64_t wait_ns; /* until the next file is settled; 0: no file is waited for */
};

static bool is_cancelled;                /* set only by the signal handler */
static struct trajd_heartbeat heartbeat; /* of the main thread, which the signal handler cancels */
static int cancelled_by;

static void on_signal(int number)
{
    cancelled_by = number;
    __atomic_store_n(&is_cancelled, true, __ATOMIC_RELAXED);
    trajd_heartbeat_cancel(&heartbeat);
}

const struct cli_option cli_preprocess_options[] = {
    {NULL, NULL, NULL, CLI_TABLE, offsetof(struct preprocessing, shard),
     .table = cli_shard_options},
    {"--once", NULL, "wait at most for the time `settle` of the configuration", CLI_FLAG,
     offsetof(struct preprocessing, once)},
    {0}};

/* ---- the inbox ---- */

/* Returns whether this shard makes the file. */
static bool is_ours(const struct shard *shard, const char *name)
{
    return !shard->count || shard_of_name(name, shard->count) == shard->index;
}

static bool is_unfinished_name(const char *name)
{
    static const char *const ends[] = {".partial", ".part", ".tmp", "~", NULL};
    const size_t length = strlen(name);

    for (const char *const *end = ends; *end; end++)
        if (length >= strlen(*end) && strcmp(name + length - strlen(*end), *end) == 0)
            return true;
    return strstr(name, "/.") || *name == '.';
}

static bool look_at(const struct prep_config *config, struct arrival *arrival)
{
    char path[PREP_PATH_SIZE];
    struct stat stat;

    if (prep_path(path, config->inbox, arrival->name, "", NULL) || lstat(path, &stat) ||
        !S_ISREG(stat.st_mode))
        return false;
    arrival->identity.size_bytes = (uint64_t)stat.st_size;
    arrival->identity.mtime_ns = prep_mtime_ns(&stat);
    arrival->identity.ctime_ns = prep_ctime_ns(&stat);
    arrival->inode = stat.st_ino;
    return true;
}

/* Carries over the state of the file, if it is unchanged. */
static void carry_over(struct arrival *arrival, const struct inbox *before, uint32_t *at)
{
    arrival->since_ns = trajd_now_ns();
    while (*at < before->count &&
           trajd_natural_compare(before->arrivals[*at].name, arrival->name) < 0)
        (*at)++;
    if (*at < before->count && strcmp(before->arrivals[*at].name, arrival->name) == 0) {
        const struct arrival *known = &before->arrivals[*at];
        if (known->inode != arrival->inode ||
            known->identity.ctime_ns != arrival->identity.ctime_ns ||
            known->identity.mtime_ns != arrival->identity.mtime_ns ||
            known->identity.size_bytes != arrival->identity.size_bytes)
            return;
        arrival->since_ns = known->since_ns;
        arrival->is_finished = known->is_finished;
    }
}

static void clear_inbox(struct inbox *inbox)
{
    for (uint32_t a = 0; a < inbox->count; a++)
        free(inbox->arrivals[a].name);
    free(inbox->arrivals);
    *inbox = (struct inbox){0};
}

/* Reads the inbox again. Removes files that are gone from the list, and marks new and changed files
 * as unfinished. Ignores names that begin with a dot or end with .partial, .part, .tmp or ~, and
 * everything but regular files, and files of other shards. TRAJD_ERR_IO. */
static enum trajd_status look(struct preprocessing *preprocessing, struct trajd_error *error)
{
    const struct prep_config *config = &preprocessing->config;
    struct inbox *inbox = &preprocessing->inbox;
    struct trajd_file_list list = {0};
    struct inbox next = {0};
    uint32_t at = 0;
    enum trajd_status status =
        trajd_file_list_find_recordings(config->inbox, config->files, &list, error);

    next.arrivals = trajd_memory_or_exit(calloc((size_t)list.count + 1, sizeof *next.arrivals));
    for (uint32_t f = 0; f < list.count && !status; f++) {
        struct arrival arrival = {.name = list.relative_paths[f]};
        if (is_unfinished_name(arrival.name) || !is_ours(&preprocessing->shard, arrival.name) ||
            !look_at(config, &arrival))
            continue;
        carry_over(&arrival, inbox, &at);
        list.relative_paths[f] = NULL; /* now owned by the arrival */
        next.arrivals[next.count++] = arrival;
    }
    trajd_file_list_free(&list);
    if (status) {
        clear_inbox(&next);
        return status;
    }
    clear_inbox(inbox);
    *inbox = next;
    return TRAJD_OK;
}

/* Returns whether a process has the file open for writing. The kernel grants a read lease only if
 * none has; the lease is released at once. */
static bool is_open_for_writing(const struct prep_config *config, const char *name)
{
    char path[PREP_PATH_SIZE];
    const int fd = prep_path(path, config->inbox, name, "", NULL)
                       ? -1
                       : open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    const bool is_open = fd >= 0 && fcntl(fd, F_SETLEASE, F_RDLCK) != 0 && errno == EAGAIN;

    if (fd >= 0) {
        fcntl(fd, F_SETLEASE, F_UNLCK);
        close(fd);
    }
    return is_open;
}

/* Returns 0 for a settled file, else the ns until it can be settled. */
static int64_t find_wait_ns(const struct prep_config *config, const struct arrival *arrival)
{
    const int64_t remaining_ns = config->settle_ns - (trajd_now_ns() - arrival->since_ns);

    if (remaining_ns > 0)
        return remaining_ns;
    return is_open_for_writing(config, arrival->name) ? BUSY_NS : 0;
}

/* ---- passes ---- */

static void do_file(struct preprocessing *preprocessing, struct arrival *arrival)
{
    const struct prep_run run = {&preprocessing->config, &preprocessing->files, &preprocessing->log,
                                 &is_cancelled};
    struct trajd_error error;
    enum prep_outcome outcome;
    const enum trajd_status status = prep_file_do(&run, arrival->name, &outcome, &error);

    if (status == TRAJD_ERR_CLOSED)
        return;
    arrival->is_finished = outcome != PREP_CHANGED || status;
    if (status) {
        preprocessing->failed++;
        LOG(&preprocessing->log, ERROR, "%s: %s: it is left for the next run", arrival->name,
            error.message);
    } else {
        preprocessing->counts[outcome]++;
    }
}

/* Processes the files that are settled. */
static enum trajd_status make_pass(struct preprocessing *preprocessing, struct trajd_error *error)
{
    const struct prep_run run = {&preprocessing->config, &preprocessing->files, &preprocessing->log,
                                 &is_cancelled};
    enum trajd_status status = look(preprocessing, error);

    preprocessing->wait_ns = 0;
    for (uint32_t a = 0; a < preprocessing->inbox.count && !status && !is_cancelled; a++) {
        struct arrival *arrival = &preprocessing->inbox.arrivals[a];
        int64_t wait_ns;
        if (arrival->is_finished ||
            (arrival->is_finished = prep_file_is_known(&run, arrival->name, &arrival->identity)))
            continue;
        wait_ns = find_wait_ns(&preprocessing->config, arrival);
        trajd_progress_update(&preprocessing->files_progress, preprocessing->config.inbox, "files",
                              a, preprocessing->inbox.count);
        if (!wait_ns)
            do_file(preprocessing, arrival);
        if (!arrival->is_finished && !wait_ns) /* it has changed */
            wait_ns = preprocessing->config.settle_ns + 1;
        if (wait_ns && (!preprocessing->wait_ns || wait_ns < preprocessing->wait_ns))
            preprocessing->wait_ns = wait_ns;
    }
    return status;
}

/* Ends early at a signal. */
static void sleep_ns(int64_t ns)
{
    const struct timespec time = {ns / 1000000000, ns % 1000000000};
    nanosleep(&time, NULL);
}

static enum trajd_status make_passes(struct preprocessing *preprocessing, struct trajd_error *error)
{
    enum trajd_status status = make_pass(preprocessing, error);
    int64_t waited_ns = 0;

    while (!status && preprocessing->wait_ns && !is_cancelled &&
           (!preprocessing->once || waited_ns <= preprocessing->config.settle_ns)) {
        const int64_t wait_ns =
            preprocessing->wait_ns < LOOK_AGAIN_NS ? preprocessing->wait_ns : LOOK_AGAIN_NS;
        sleep_ns(wait_ns);
        waited_ns += wait_ns;
        status = make_pass(preprocessing, error);
    }
    return status;
}

/* Records for `trajctl merge` that the shard has made all its files, if it has. */
static enum trajd_status write_shard(const struct preprocessing *preprocessing,
                                     struct trajd_error *error)
{
    const struct inbox *inbox = &preprocessing->inbox;
    const char **names;
    char recipe[256];
    enum trajd_status status;

    if (!preprocessing->shard.count || !preprocessing->once || is_cancelled ||
        preprocessing->failed || preprocessing->counts[PREP_ELSEWHERE])
        return TRAJD_OK;
    for (uint32_t a = 0; a < inbox->count; a++)
        if (!inbox->arrivals[a].is_finished)
            return TRAJD_OK;
    names = trajd_memory_or_exit(calloc((size_t)inbox->count + 1, sizeof *names));
    for (uint32_t a = 0; a < inbox->count; a++)
        names[a] = inbox->arrivals[a].name;
    snprintf(recipe, sizeof recipe, "trajd %s: preprocess (%.12s)", TRAJD_VERSION,
             preprocessing->config.recipe);
    status = shard_write_inbox(&preprocessing->shard, preprocessing->config.outbox, recipe, names,
                               inbox->count, error);
    free(names);
    return status;
}

static int conclude(const struct preprocessing *preprocessing, enum trajd_status status,
                    const struct trajd_error *error)
{
    const struct trajd_log *log = &preprocessing->log;
    uint32_t unfinished = 0;

    for (uint32_t a = 0; a < preprocessing->inbox.count; a++)
        unfinished += !preprocessing->inbox.arrivals[a].is_finished;
    if (status)
        LOG(log, ERROR, "%s", error->message);
    LOG(log, INFO,
        "%" PRIu64 " published, %" PRIu64 " quarantined, %" PRIu64 " failed, %" PRIu64
        " in another run, %u still being written, %u in total",
        preprocessing->counts[PREP_PUBLISHED], preprocessing->counts[PREP_QUARANTINED],
        preprocessing->failed, preprocessing->counts[PREP_ELSEWHERE], unfinished,
        preprocessing->inbox.count);
    if (prep_config_has_changed(&preprocessing->config))
        LOG(log, WARNING, "%s has changed since this run read it: the next run uses the new text",
            preprocessing->path);
    if (is_cancelled)
        LOG(log, INFO, "ended by signal %d: the next run continues", cancelled_by);
    return is_cancelled                      ? 128 + cancelled_by
           : status || preprocessing->failed ? CLI_FAILED
                                             : CLI_OK;
}

int cli_preprocess(int argc, char **argv)
{
    const struct sigaction action = {.sa_handler = on_signal};
    struct preprocessing preprocessing = {0};
    struct trajd_error error;
    enum trajd_status status;
    int result;

    cli_parse(argc, argv, &preprocessing);
    preprocessing.path = argv[1];
    if (cli_files_find(&preprocessing.files, &error))
        return cli_fail("%s", error.message);
    trajd_log_init(&preprocessing.log, STDERR_FILENO, TRAJD_LOG_INFO, getenv("JOURNAL_STREAM"));
    trajd_heartbeat_begin(&heartbeat);
    trajd_progress_begin_in_log(&preprocessing.files_progress, &preprocessing.log);
    trajd_progress_begin_in_log(&preprocessing.file_progress, &preprocessing.log);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    signal(SIGXFSZ, SIG_IGN); /* exceeding the file size limit becomes an error of the write */
    /* sent when a process opens a file for writing while this one takes a lease */
    signal(SIGIO, SIG_IGN);
    status =
        prep_config_load(preprocessing.path, &preprocessing.files, &preprocessing.config, &error);
    if (status) {
        trajd_progress_begin(NULL);
        prep_config_clear(&preprocessing.config);
        return cli_fail("%s", error.message);
    }
    preprocessing.files.assumed_rate = preprocessing.config.assumed_rate;
    status = make_passes(&preprocessing, &error);
    if (!status)
        status = write_shard(&preprocessing, &error);
    result = conclude(&preprocessing, status, &error);
    trajd_progress_begin(NULL);
    clear_inbox(&preprocessing.inbox);
    prep_config_clear(&preprocessing.config);
    return result;
}
