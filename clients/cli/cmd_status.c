/* trajctl status: prints the daemon's status document (--json), or tables. JSON is YAML, so the
 * YAML reader parses it. Without an endpoint it finds the daemons of this user. */
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "clients/cli/cli_feed.h"
#include "clients/cli/files/private_daemons.h"
#include "daemon/base/json.h"
#include "daemon/base/yaml.h"
#include "proto/array_len.h"
#include "proto/plural.h"

#define MIB 1048576.0
#define LEAST_WAIT_SECONDS 0.05 /* less is not worth a line */

static const char *text_of(const struct trajd_yaml_node *mapping, const char *key)
{
    const struct trajd_yaml_node *node = mapping ? trajd_yaml_get(mapping, key) : NULL;
    return node && node->value && *node->value ? node->value : "-";
}

static double number_of(const struct trajd_yaml_node *mapping, const char *key)
{
    const struct trajd_yaml_node *node = mapping ? trajd_yaml_get(mapping, key) : NULL;
    return node && node->value ? strtod(node->value, NULL) : 0;
}

static const char *plural_of(const struct trajd_yaml_node *mapping, const char *key)
{
    return trajd_plural((uint64_t)number_of(mapping, key));
}

static const struct trajd_yaml_node *find_by(const struct trajd_yaml_node *list, const char *key,
                                             const char *value)
{
    for (const struct trajd_yaml_node *item = list ? list->children : NULL; item; item = item->next)
        if (strcmp(text_of(item, key), value) == 0)
            return item;
    return NULL;
}

/* Prints the frames of a dataset that feeds have used. */
static void print_frames(const struct trajd_yaml_node *frames)
{
    if (frames)
        printf("  pictures: %s frame%s used: %s decoded, %s prepared in the files, %s reused; %s "
               "bad, %s evicted, %.1f MiB in memory, %.1f MiB read\n",
               text_of(frames, "used"), plural_of(frames, "used"), text_of(frames, "decoded"),
               text_of(frames, "prepared"), text_of(frames, "reused"), text_of(frames, "bad"),
               text_of(frames, "evicted"), number_of(frames, "resident_bytes") / MIB,
               number_of(frames, "bytes_read") / MIB);
}

static void print_datasets(const struct trajd_yaml_node *list)
{
    printf("\n%-20s %-16s %8s %14s %22s %12s %8s\n", "dataset", "layout", "files", "episodes",
           "in memory", "read", "evicted");
    for (const struct trajd_yaml_node *item = list->children; item; item = item->next) {
        const struct trajd_yaml_node *store = trajd_yaml_get(item, "store");
        char episodes[48];
        snprintf(episodes, sizeof episodes, "%s of %s", text_of(item, "kept"),
                 text_of(item, trajd_yaml_get(item, "found") ? "found" : "episodes"));
        printf("%-20s %-16s %8s %14s %9.1f of %7.1f MiB %8.1f MiB %8s\n", text_of(item, "name"),
               text_of(item, "layout"), text_of(item, "files"), episodes,
               number_of(store, "resident_bytes") / MIB, number_of(store, "total_bytes") / MIB,
               number_of(store, "bytes_read") / MIB, text_of(store, "pieces_evicted"));
        print_frames(trajd_yaml_get(item, "frames"));
    }
}

static void print_resident(const struct trajd_yaml_node *rows)
{
    printf("  %-40s %-24s %9.1f MiB on %s, %s feed%s", text_of(rows, "dataset"),
           text_of(rows, "path"), number_of(rows, "bytes") / MIB, text_of(rows, "place"),
           text_of(rows, "feeds"), plural_of(rows, "feeds"));
    if (trajd_yaml_get(rows, "frames"))
        printf(", %s of %s frames are there", text_of(rows, "resident_frames"),
               text_of(rows, "frames"));
    printf("\n");
}

/* Prints a line for each GPU, and one for each stream that its feeds read. The rows are resident on
 * the GPU, or come from host memory with each batch. */
static void print_gpus(const struct trajd_yaml_node *list)
{
    printf("\n%-42s %-24s %24s %24s\n", "gpu", "", "rows", "rings");
    for (const struct trajd_yaml_node *item = list->children; item; item = item->next) {
        const struct trajd_yaml_node *resident = trajd_yaml_get(item, "resident");
        printf("%-42s %-24s %9.1f of %7.1f MiB %9.1f of %7.1f MiB\n", text_of(item, "uuid"),
               text_of(item, "name"), number_of(item, "rows_bytes") / MIB,
               number_of(item, "rows_budget_bytes") / MIB, number_of(item, "rings_bytes") / MIB,
               number_of(item, "rings_budget_bytes") / MIB);
        for (const struct trajd_yaml_node *rows = resident ? resident->children : NULL; rows;
             rows = rows->next)
            print_resident(rows);
    }
}

/* Prints the work for `trajctl resample`. */
static void print_resampling(const struct trajd_yaml_node *node)
{
    if (node && (number_of(node, "clients") > 0 || number_of(node, "pieces") > 0 ||
                 number_of(node, "refused") > 0))
        printf("\nresampling: %s client%s, %s piece%s of %.1f MiB, %s refused\n",
               text_of(node, "clients"), plural_of(node, "clients"), text_of(node, "pieces"),
               plural_of(node, "pieces"), number_of(node, "bytes") / MIB, text_of(node, "refused"));
}

/* Prints a job's progress in its epoch. */
static void print_job(const char *name, const struct trajd_yaml_node *job)
{
    const double all = number_of(job, "batches");
    char progress[32];

    snprintf(progress, sizeof progress, "%.0f of %.0f", all - number_of(job, "batches_left"), all);
    printf("%-22s %-14s %-6s %8s %24s", name, text_of(job, "job"), text_of(job, "mode"),
           text_of(job, "epoch"), progress);
}

static void print_journal_failure(const struct trajd_yaml_node *job)
{
    if (trajd_yaml_get(job, "journal_failure"))
        printf("  no journal: %s; if the daemon dies now, batches that were DONE come again\n",
               text_of(job, "journal_failure"));
}

/* producer: NULL where the document has no room for it. */
static void print_failures(const struct trajd_yaml_node *producer)
{
    if (producer && trajd_yaml_get(producer, "last_failure"))
        printf("  %s failed batch%s, the last one: %s\n", text_of(producer, "failed_batches"),
               number_of(producer, "failed_batches") == 1 ? "" : "es",
               text_of(producer, "last_failure"));
}

/* Prints a line for the first job of each feed, and one for each other job that reads the same
 * slots. The last column is the time that was waited for the job. */
static void print_feeds(const struct trajd_yaml_node *list, const struct trajd_yaml_node *producers)
{
    printf("\n%-22s %-14s %-6s %8s %24s %18s %12s %9s\n", "feed", "job", "mode", "epoch",
           "batches done", "free/filling/ready", "us a batch", "stalled");
    for (const struct trajd_yaml_node *item = list->children; item; item = item->next) {
        const struct trajd_yaml_node *slots = trajd_yaml_get(item, "slots"),
                                     *jobs = trajd_yaml_get(item, "jobs");
        const struct trajd_yaml_node *producer = find_by(producers, "name", text_of(item, "name"));
        const double made = number_of(producer, "batches");
        char states[32];

        snprintf(states, sizeof states, "%s/%s/%s", text_of(slots, "free"),
                 text_of(slots, "filling"), text_of(slots, "ready"));
        print_job(text_of(item, "name"), item);
        printf(" %18s %12.0f %7.1f s\n", states,
               made > 0 ? (number_of(producer, "load_ns") + number_of(producer, "resample_ns")) /
                              made / 1e3
                        : 0,
               number_of(item, "stalled_seconds"));
        print_failures(producer);
        print_journal_failure(item);
        for (const struct trajd_yaml_node *job = jobs && jobs->children ? jobs->children->next
                                                                        : NULL;
             job; job = job->next) {
            print_job("", job);
            printf(" %18s %12s %7.1f s\n", "", "", number_of(job, "stalled_by_seconds"));
            print_journal_failure(job);
        }
    }
}

/* Prints a line for each dataset of a mixture, with its configured share and its share of the
 * batches made. */
static void print_mixture(const struct trajd_yaml_node *producer)
{
    const struct trajd_yaml_node *datasets = trajd_yaml_get(producer, "datasets");
    double made = 0;

    if (!datasets || datasets->child_count < 2)
        return;
    for (const struct trajd_yaml_node *item = datasets->children; item; item = item->next)
        made += number_of(item, "made");
    printf("\n%-22s %-20s %12s %14s %10s %9s %9s\n", "mixture", "dataset", "weight", "windows",
           "episodes", "share", "made");
    for (const struct trajd_yaml_node *item = datasets->children; item; item = item->next)
        printf("%-22s %-20s %12s %14s %10s %7.2f %% %7.2f %%\n", text_of(producer, "name"),
               text_of(item, "name"), text_of(item, "weight"), text_of(item, "windows"),
               text_of(item, "episodes"), 100 * number_of(item, "weight") / number_of(item, "of"),
               made > 0 ? 100 * number_of(item, "made") / made : 0);
}

/* Prints how long a worker had no batch to work on, and the cause that took most of it. */
static void print_wait(const struct trajd_yaml_node *worker)
{
    const struct trajd_yaml_node *waited = trajd_yaml_get(worker, "waited_seconds");
    const char *cause = "";
    double sum = 0, most = 0;

    for (const struct trajd_yaml_node *item = waited ? waited->children : NULL; item;
         item = item->next) {
        const double seconds = number_of(waited, item->key);
        sum += seconds;
        cause = seconds > most ? item->key : cause;
        most = seconds > most ? seconds : most;
    }
    if (sum >= LEAST_WAIT_SECONDS)
        printf("  waited %.1f s for data, most for %s", sum, cause);
}

/* Returns whether a session only asks questions, such as this one. */
static bool is_spectator(const struct trajd_yaml_node *session)
{
    return !strncmp(text_of(session, "client"), "trajctl", 7) && !number_of(session, "feed_id");
}

static unsigned count_workers(const struct trajd_yaml_node *root)
{
    const struct trajd_yaml_node *list = trajd_yaml_get(root, "sessions");
    unsigned spectators = 0;
    double count;

    for (const struct trajd_yaml_node *item = list ? list->children : NULL; item; item = item->next)
        spectators += is_spectator(item);
    /* a long document may lack the session of this process */
    count = number_of(root, "session_count") - (spectators ? spectators : 1);
    return count > 0 && count < UINT32_MAX ? (unsigned)count : 0;
}

static void print_workers(const struct trajd_yaml_node *list, const struct trajd_yaml_node *feeds)
{
    printf("\n%-20s %9s %-22s %5s %9s %12s %12s %12s\n", "worker", "pid", "feed", "rank", "holds",
           "batches", "stalled", "silent");
    for (const struct trajd_yaml_node *item = list->children; item; item = item->next) {
        char holds[32];

        if (is_spectator(item))
            continue;
        snprintf(holds, sizeof holds, "%s of %s", text_of(item, "held"), text_of(item, "credit"));
        printf("%-20s %9s %-22s %5s %9s %12s %10.1f s %10.1f s", text_of(item, "client"),
               text_of(item, "pid"),
               text_of(find_by(feeds, "feed_id", text_of(item, "feed_id")), "name"),
               text_of(item, "rank"), holds, text_of(item, "batches_sent"),
               number_of(item, "stalled_by_seconds"), number_of(item, "silent_seconds"));
        print_wait(item);
        if (trajd_yaml_get(item, "rejoin_wait_seconds"))
            printf("  waits %.0f s for workers of an earlier run (rejoin_wait)",
                   number_of(item, "rejoin_wait_seconds"));
        printf(trajd_yaml_get(item, "remote") ? "  %s\n" : "\n", text_of(item, "remote"));
    }
}

/* Prints the counters of problems that are not 0. */
static void print_trouble(const struct trajd_yaml_node *root)
{
    static const char *const names[] = {
        "batches_failed",      "handed_again",     "late_acks",
        "late_publishes",      "dead_sessions",    "resumed_sessions",
        "damaged_journals",    "journals_refused", "dropped_messages",
        "refused_connections", "floods",           "cut_connections",
        "unsent_messages",     "refused_keys",     "failed_handshakes",
        "silent_sessions",     "rank_timeouts",    "slow_jobs"};
    const char *before = "\nproblems: ";

    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        if (number_of(root, names[i]) <= 0)
            continue;
        printf("%s%s %s", before, text_of(root, names[i]), names[i]);
        before = ", ";
    }
    if (*before == ',')
        putchar('\n');
}

static void print_reload(const struct trajd_yaml_node *reload)
{
    if (strcmp(text_of(reload, "running"), "true") == 0)
        printf("\na reload is running\n");
    else if (number_of(reload, "count") > 0)
        printf("\nlast of %s reload%s: %s: %s\n", text_of(reload, "count"),
               plural_of(reload, "count"),
               strcmp(text_of(reload, "applied"), "true") ? "refused" : "applied",
               text_of(reload, "message"));
}

static int print_readable(const char *json)
{
    const struct trajd_yaml_node *root, *datasets, *feeds, *producers, *workers, *latency;
    struct trajd_yaml *yaml;
    struct trajd_error error;
    unsigned worker_count;

    if (trajd_yaml_parse("status", json, strlen(json), &yaml, &error))
        return cli_fail("%s", error.message);
    root = trajd_yaml_root(yaml);
    worker_count = count_workers(root);
    latency = trajd_yaml_get(root, "ready_to_sent_us");
    datasets = trajd_yaml_get(root, "datasets");
    feeds = trajd_yaml_get(root, "feeds");
    producers = trajd_yaml_get(root, "producers");
    workers = trajd_yaml_get(root, "sessions");
    printf(
        "trajd %s, instance %s: %u worker%s, batches DONE: %s, %s batches/s, %s windows/s; ready "
        "to sent p50 %s us, p99 %s us\n",
        text_of(root, "version"), text_of(root, "instance"), worker_count,
        trajd_plural(worker_count), text_of(root, "batches_done"),
        text_of(root, "batches_per_second"), text_of(root, "windows_per_second"),
        text_of(latency, "p50"), text_of(latency, "p99"));
    if (datasets)
        print_datasets(datasets);
    if (trajd_yaml_get(root, "gpus") && trajd_yaml_get(root, "gpus")->child_count)
        print_gpus(trajd_yaml_get(root, "gpus"));
    if (feeds)
        print_feeds(feeds, producers);
    for (const struct trajd_yaml_node *item = producers ? producers->children : NULL; item;
         item = item->next)
        print_mixture(item);
    if (workers)
        print_workers(workers, feeds);
    print_resampling(trajd_yaml_get(root, "resampling"));
    print_trouble(root);
    print_reload(trajd_yaml_get(root, "reload"));
    trajd_yaml_destroy(&yaml);
    return CLI_OK;
}

struct watching {
    struct cli_connection connection;
    bool json, watch;
};

const struct cli_option cli_status_options[] = {
    {"--watch", NULL, "repeat it each second", CLI_FLAG, offsetof(struct watching, watch)},
    {"--json", NULL, "print one JSON document", CLI_FLAG, offsetof(struct watching, json)},
    {NULL, NULL, NULL, CLI_TABLE, offsetof(struct watching, connection),
     .table = cli_daemon_options},
    {0}};

/* Asks one daemon. The caller frees *json. Returns CLI_FAILED after it printed an error. */
static int fetch(const struct cli_connection *connection, char **json)
{
    struct trajd_error error;
    struct trajd_client *client = cli_try_connect(connection);
    int result = client ? CLI_OK : CLI_FAILED;

    if (client && trajd_client_status(client, 0, json, &error))
        result = cli_fail("%s", error.message);
    trajd_client_close(&client);
    return result;
}

static int show_one(const struct watching *watching)
{
    char *json;

    if (fetch(&watching->connection, &json))
        return CLI_FAILED;
    const int result = watching->json ? puts(json) < 0 : print_readable(json);
    free(json);
    return result;
}

/* Prints what a private daemon serves. */
static void print_private(const struct private_daemon *daemon)
{
    char text[PRIVATE_TEXT_SIZE];

    private_daemon_describe(daemon, text);
    if (strcmp(daemon->endpoint, CLI_SERVICE_ENDPOINT))
        printf("  %s\n", text);
}

static int print_line(const struct private_daemon *daemon, const char *text)
{
    struct trajd_yaml *yaml;
    struct trajd_error error;

    if (trajd_yaml_parse("status", text, strlen(text), &yaml, &error))
        return cli_fail("%s", error.message);
    const struct trajd_yaml_node *root = trajd_yaml_root(yaml);
    const struct trajd_yaml_node *feeds = trajd_yaml_get(root, "feeds");
    printf("%-60s %6u %8u %12s\n", daemon->endpoint, feeds ? (unsigned)feeds->child_count : 0,
           count_workers(root), text_of(root, "batches_per_second"));
    print_private(daemon);
    trajd_yaml_destroy(&yaml);
    return CLI_OK;
}

/* Shows a line for each daemon, or with --json an array of their documents. */
static int show_list(const struct watching *watching, const struct private_daemon *const *daemons,
                     uint32_t count)
{
    struct trajd_json json = {.out = stdout};
    int result = CLI_OK;

    if (watching->json)
        trajd_json_open_array(&json, NULL);
    else
        printf("%-60s %6s %8s %12s\n", "daemon (--endpoint shows more)", "feeds", "workers",
               "batches/s");
    for (uint32_t i = 0; i < count; i++) {
        struct cli_connection one = watching->connection;
        char *text;
        one.endpoint = daemons[i]->endpoint;
        if (fetch(&one, &text)) {
            result = CLI_FAILED;
            continue;
        }
        if (watching->json) {
            trajd_json_open_object(&json, NULL);
            trajd_json_string(&json, "endpoint", one.endpoint);
            trajd_json_raw(&json, "status", text);
            trajd_json_close_object(&json);
        } else if (print_line(daemons[i], text)) {
            result = CLI_FAILED;
        }
        free(text);
    }
    if (watching->json) {
        trajd_json_close_array(&json);
        putchar('\n');
    }
    return result;
}

/* Shows the daemons of this machine that the user may mean: the one of the service, and private
 * ones. */
static int show_found(const struct watching *watching)
{
    static struct private_daemons found;
    static const struct private_daemon service = {.endpoint = CLI_SERVICE_ENDPOINT};
    const struct private_daemon *daemons[PRIVATE_DAEMONS_MAX + 1];
    uint32_t count = 0;

    private_daemons_find(&found);
    if (cli_service_runs())
        daemons[count++] = &service;
    for (uint32_t i = 0; i < found.count; i++)
        daemons[count++] = &found.list[i];
    if (!count)
        return cli_fail_without_daemon(&found);
    if (count > 1)
        return show_list(watching, daemons, count);
    struct watching one = *watching;
    one.connection.endpoint = daemons[0]->endpoint;
    if (!watching->json) {
        printf("%s\n", daemons[0]->endpoint);
        print_private(daemons[0]);
    }
    return show_one(&one);
}

int cli_status(int argc, char **argv)
{
    const struct timespec pause = {.tv_sec = 1};
    struct watching watching = {0};
    int result;

    cli_parse(argc, argv, &watching);
    const bool is_given = cli_has_endpoint(&watching.connection);
    do {
        if (watching.watch && isatty(STDOUT_FILENO))
            fputs("\033[H\033[J", stdout); /* to the first line; clear all below */
        result = is_given ? show_one(&watching) : show_found(&watching);
    } while (!result && watching.watch && !fflush(stdout) && !nanosleep(&pause, NULL));
    return result;
}
