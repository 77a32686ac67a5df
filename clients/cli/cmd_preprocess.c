/* trajctl preprocess: validates, resamples and publishes the files of an inbox, or quarantines them
 * with a report. Makes passes over the inbox until no file is waited for, or with --once until
 * `settle` has passed. */
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "clients/cli/cli.h"
#include "clients/cli/preprocess/prep_file.h"
#include "clients/cli/preprocess/prep_inbox.h"
#include "clients/cli/cli_shard.h"
#include "daemon/base/heartbeat.h"
#include "daemon/base/memory.h"
#include "daemon/base/progress/progress.h"

#define LOOK_AGAIN_NS INT64_C(1000000000) /* longest pause between two passes, to find new files */

struct preprocessing {
    struct prep_config config;
    struct cli_files files;
    struct trajd_log log;
    struct prep_inbox inbox;
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

static void do_file(struct preprocessing *preprocessing, struct prep_arrival *arrival)
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

/* Returns whether this shard makes the file. */
static bool is_ours(void *context, const char *name)
{
    const struct shard *shard = context;
    return !shard->count || shard_of_name(name, shard->count) == shard->index;
}

/* Processes the files that are settled. */
static enum trajd_status make_pass(struct preprocessing *preprocessing, struct trajd_error *error)
{
    const struct prep_run run = {&preprocessing->config, &preprocessing->files, &preprocessing->log,
                                 &is_cancelled};
    enum trajd_status status = prep_inbox_look(&preprocessing->inbox, &preprocessing->config,
                                               is_ours, &preprocessing->shard, error);

    preprocessing->wait_ns = 0;
    for (uint32_t a = 0; a < preprocessing->inbox.count && !status && !is_cancelled; a++) {
        struct prep_arrival *arrival = &preprocessing->inbox.arrivals[a];
        int64_t wait_ns;
        if (arrival->is_finished ||
            (arrival->is_finished = prep_file_is_known(&run, arrival->name, &arrival->identity)))
            continue;
        wait_ns = prep_inbox_wait_ns(&preprocessing->config, arrival);
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
    const struct prep_inbox *inbox = &preprocessing->inbox;
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
    prep_inbox_clear(&preprocessing.inbox);
    prep_config_clear(&preprocessing.config);
    return result;
}
