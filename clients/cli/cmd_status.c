/* trajctl status: prints the daemon's status document (--json), or tables. Without an endpoint it
 * finds the daemons of this user. */
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "clients/cli/cli_feed.h"
#include "clients/cli/files/private_daemons.h"
#include "daemon/base/json.h"
#include "proto/array_len.h"
#include "proto/plural.h"
#include "proto/visible.h"

#define MIB 1048576.0
#define LEAST_WAIT_SECONDS 0.05 /* less is not worth a line */

/* Returns a text as people may see it: workers choose names of theirs. Some texts of the last calls
 * are kept. */
static const char *text_of(const struct trajd_yaml_node *mapping, const char *path)
{
    static char kept[16][512];
    static unsigned turn;
    const char *text = cli_text(mapping, path);

    if (!*text)
        return "-";
    trajd_visible(kept[++turn % 16], sizeof kept[0], text);
    return kept[turn % 16];
}

static double number_of(const struct trajd_yaml_node *mapping, const char *path)
{
    return strtod(cli_text(mapping, path), NULL);
}

static double mib_of(const struct trajd_yaml_node *mapping, const char *path)
{
    return number_of(mapping, path) / MIB;
}

static const char *plural_of(const struct trajd_yaml_node *mapping, const char *path)
{
    return trajd_plural((uint64_t)number_of(mapping, path));
}

/* Prints the frames of a dataset that feeds have used. */
static void print_frames(const struct trajd_yaml_node *frames)
{
    if (frames)
        printf("  images: %s frame%s used: %s decoded, %s prepared in the files, %s reused; %s "
               "bad, %s evicted, %.1f MiB in memory, %.1f MiB read\n",
               text_of(frames, "used"), plural_of(frames, "used"), text_of(frames, "decoded"),
               text_of(frames, "prepared"), text_of(frames, "reused"), text_of(frames, "bad"),
               text_of(frames, "evicted"), mib_of(frames, "resident_bytes"),
               mib_of(frames, "bytes_read"));
}

static void print_datasets(const struct trajd_yaml_node *root)
{
    printf("\n%-20s %-16s %8s %14s %22s %12s %8s\n", "dataset", "layout", "files", "episodes",
           "in memory", "read", "evicted");
    for (const struct trajd_yaml_node *item = cli_first(root, "datasets"); item;
         item = item->next) {
        char episodes[48];
        snprintf(episodes, sizeof episodes, "%s of %s", text_of(item, "kept"),
                 text_of(item, cli_find(item, "found") ? "found" : "episodes"));
        printf("%-20s %-16s %8s %14s %9.1f of %7.1f MiB %8.1f MiB %8s\n", text_of(item, "name"),
               text_of(item, "layout"), text_of(item, "files"), episodes,
               mib_of(item, "store.resident_bytes"), mib_of(item, "store.total_bytes"),
               mib_of(item, "store.bytes_read"), text_of(item, "store.pieces_evicted"));
        print_frames(cli_find(item, "frames"));
        if (cli_find(item, "hung_storage"))
            printf("  waits for storage: %s has not answered for %.0f s\n",
                   text_of(item, "hung_storage.mount"), number_of(item, "hung_storage.seconds"));
    }
}

static void print_resident(const struct trajd_yaml_node *rows)
{
    printf("  %-40s %-24s %9.1f MiB on %s, %s feed%s", text_of(rows, "dataset"),
           text_of(rows, "path"), mib_of(rows, "bytes"), text_of(rows, "place"),
           text_of(rows, "feeds"), plural_of(rows, "feeds"));
    if (cli_find(rows, "frames"))
        printf(", %s of %s frames are there", text_of(rows, "resident_frames"),
               text_of(rows, "frames"));
    printf("\n");
}

/* Prints a line for each GPU, and one for each stream that its feeds read. The rows are resident on
 * the GPU, or come from host memory with each batch. */
static void print_gpus(const struct trajd_yaml_node *root)
{
    printf("\n%-42s %-24s %24s %24s\n", "gpu", "", "rows", "rings");
    for (const struct trajd_yaml_node *item = cli_first(root, "gpus"); item; item = item->next) {
        printf("%-42s %-24s %9.1f of %7.1f MiB %9.1f of %7.1f MiB\n", text_of(item, "uuid"),
               text_of(item, "name"), mib_of(item, "rows_bytes"), mib_of(item, "rows_budget_bytes"),
               mib_of(item, "rings_bytes"), mib_of(item, "rings_budget_bytes"));
        for (const struct trajd_yaml_node *rows = cli_first(item, "resident"); rows;
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
               plural_of(node, "pieces"), mib_of(node, "bytes"), text_of(node, "refused"));
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
    if (cli_find(job, "journal_failure"))
        printf("  no journal: %s; if the daemon dies now, batches that were DONE come again\n",
               text_of(job, "journal_failure"));
}

static void print_failures(const struct trajd_yaml_node *producer)
{
    if (cli_find(producer, "last_failure"))
        printf("  %s failed batch%s, the last one: %s\n", text_of(producer, "failed_batches"),
               number_of(producer, "failed_batches") == 1 ? "" : "es",
               text_of(producer, "last_failure"));
}

/* Prints a line for the first job of each feed, and one for each other job that reads the same
 * slots. The last column is the time that was waited for the job. */
static void print_feeds(const struct trajd_yaml_node *root)
{
    printf("\n%-22s %-14s %-6s %8s %24s %18s %12s %9s\n", "feed", "job", "mode", "epoch",
           "batches done", "free/filling/ready", "us a batch", "stalled");
    for (const struct trajd_yaml_node *item = cli_first(root, "feeds"); item; item = item->next) {
        const struct trajd_yaml_node *producer = cli_find_item(root, "producers", "name",
                                                               cli_text(item, "name")),
                                     *job = cli_first(item, "jobs");
        const double made = number_of(producer, "batches");
        char states[32];

        snprintf(states, sizeof states, "%s/%s/%s", text_of(item, "slots.free"),
                 text_of(item, "slots.filling"), text_of(item, "slots.ready"));
        print_job(text_of(item, "name"), item);
        printf(" %18s %12.0f %7.1f s\n", states,
               made > 0 ? (number_of(producer, "load_ns") + number_of(producer, "resample_ns")) /
                              made / 1e3
                        : 0,
               number_of(item, "stalled_seconds"));
        print_failures(producer);
        print_journal_failure(item);
        while (job && (job = job->next)) {
            print_job("", job);
            printf(" %18s %12s %7.1f s\n", "", "", number_of(job, "stalled_by_seconds"));
            print_journal_failure(job);
        }
    }
}

/* Prints how many slots and threads there are, and why. A daemon before 0.2.0 does not say. */
static void print_choices(const struct trajd_yaml_node *root)
{
    if (cli_find(root, "threads"))
        printf("\n%s\n", text_of(root, "threads"));
    for (const struct trajd_yaml_node *item = cli_first(root, "producers"); item; item = item->next)
        if (cli_find(item, "ring"))
            printf("%s: %s\n", text_of(item, "name"), text_of(item, "ring"));
}

/* Prints a line for each dataset of a mixture, with its configured share and its share of the
 * batches made. */
static void print_mixture(const struct trajd_yaml_node *producer)
{
    const struct trajd_yaml_node *datasets = cli_find(producer, "datasets");
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
    const char *cause = "";
    double sum = 0, most = 0;

    for (const struct trajd_yaml_node *item = cli_first(worker, "waited_seconds"); item;
         item = item->next) {
        const double seconds = strtod(item->value ? item->value : "", NULL);
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
    unsigned spectators = 0;
    double count;

    for (const struct trajd_yaml_node *item = cli_first(root, "sessions"); item; item = item->next)
        spectators += is_spectator(item);
    /* a long document may lack the session of this process */
    count = number_of(root, "session_count") - (spectators ? spectators : 1);
    return count > 0 && count < UINT32_MAX ? (unsigned)count : 0;
}

static void print_workers(const struct trajd_yaml_node *root)
{
    printf("\n%-20s %9s %-22s %5s %9s %12s %12s %12s\n", "worker", "pid", "feed", "rank", "holds",
           "batches", "stalled", "silent");
    for (const struct trajd_yaml_node *item = cli_first(root, "sessions"); item;
         item = item->next) {
        char holds[32];

        if (is_spectator(item))
            continue;
        snprintf(holds, sizeof holds, "%s of %s", text_of(item, "held"), text_of(item, "credit"));
        printf("%-20s %9s %-22s %5s %9s %12s %10.1f s %10.1f s", text_of(item, "client"),
               text_of(item, "pid"),
               text_of(cli_find_item(root, "feeds", "feed_id", cli_text(item, "feed_id")), "name"),
               text_of(item, "rank"), holds, text_of(item, "batches_sent"),
               number_of(item, "stalled_by_seconds"), number_of(item, "silent_seconds"));
        print_wait(item);
        if (cli_find(item, "rejoin_wait_seconds"))
            printf("  waits %.0f s for workers of an earlier run (rejoin_wait)",
                   number_of(item, "rejoin_wait_seconds"));
        printf(cli_find(item, "remote") ? "  %s\n" : "\n", text_of(item, "remote"));
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

static void print_readable(const char *json)
{
    struct trajd_yaml *yaml = cli_parse_answer(json);
    const struct trajd_yaml_node *root = trajd_yaml_root(yaml);
    const unsigned worker_count = count_workers(root);

    printf(
        "trajd %s, instance %s: %u worker%s, batches DONE: %s, %s batches/s, %s windows/s; ready "
        "to sent p50 %s us, p99 %s us\n",
        text_of(root, "version"), text_of(root, "instance"), worker_count,
        trajd_plural(worker_count), text_of(root, "batches_done"),
        text_of(root, "batches_per_second"), text_of(root, "windows_per_second"),
        text_of(root, "ready_to_sent_us.p50"), text_of(root, "ready_to_sent_us.p99"));
    if (cli_find(root, "datasets"))
        print_datasets(root);
    if (cli_first(root, "gpus"))
        print_gpus(root);
    if (cli_find(root, "feeds"))
        print_feeds(root);
    print_choices(root);
    for (const struct trajd_yaml_node *item = cli_first(root, "producers"); item; item = item->next)
        print_mixture(item);
    if (cli_find(root, "sessions"))
        print_workers(root);
    print_resampling(cli_find(root, "resampling"));
    print_trouble(root);
    print_reload(cli_find(root, "reload"));
    trajd_yaml_destroy(&yaml);
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

/* Asks one daemon. Returns its document, which the caller frees, or NULL after an error. */
static char *fetch(struct cli_connection connection, const char *endpoint)
{
    struct trajd_error error;
    struct trajd_client *client;
    char *json = NULL;

    connection.endpoint = endpoint;
    client = cli_try_connect(&connection);
    if (client && trajd_client_status(client, 0, &json, &error))
        cli_fail("%s", error.message);
    trajd_client_close(&client);
    return json;
}

static int show_one(const struct watching *watching, const char *endpoint)
{
    char *json = fetch(watching->connection, endpoint);

    if (!json)
        return CLI_FAILED;
    if (watching->json)
        puts(json);
    else
        print_readable(json);
    free(json);
    return CLI_OK;
}

/* Prints what a private daemon serves. */
static void print_private(const struct private_daemon *daemon)
{
    char text[PRIVATE_TEXT_SIZE];

    private_daemon_describe(daemon, text);
    if (strcmp(daemon->endpoint, CLI_SERVICE_ENDPOINT))
        printf("  %s\n", text);
}

static void print_line(const struct private_daemon *daemon, const char *text)
{
    struct trajd_yaml *yaml = cli_parse_answer(text);
    const struct trajd_yaml_node *root = trajd_yaml_root(yaml), *feeds = cli_find(root, "feeds");

    printf("%-60s %6u %8u %12s\n", daemon->endpoint, feeds ? (unsigned)feeds->child_count : 0,
           count_workers(root), text_of(root, "batches_per_second"));
    print_private(daemon);
    trajd_yaml_destroy(&yaml);
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
        char *text = fetch(watching->connection, daemons[i]->endpoint);
        if (!text) {
            result = CLI_FAILED;
        } else if (watching->json) {
            trajd_json_open_object(&json, NULL);
            trajd_json_string(&json, "endpoint", daemons[i]->endpoint);
            trajd_json_raw(&json, "status", text);
            trajd_json_close_object(&json);
        } else {
            print_line(daemons[i], text);
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
    if (!watching->json) {
        printf("%s\n", daemons[0]->endpoint);
        print_private(daemons[0]);
    }
    return show_one(watching, daemons[0]->endpoint);
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
        result =
            is_given ? show_one(&watching, watching.connection.endpoint) : show_found(&watching);
    } while (!result && watching.watch && !fflush(stdout) && !nanosleep(&pause, NULL));
    return result;
}
