/* Writes a status document as OpenMetrics text. The metrics are data: where each number stands in
 * the document. */
#include "clients/cli/metrics/metrics.h"

#include <math.h>
#include <stdbool.h>

#include "clients/cli/files/answer.h"
#include "proto/array_len.h"
#include "proto/visible.h"

/* The buckets of the histogram that are written: below 2^10 ns (a microsecond) to 2^34 ns (17 s). */
enum { FIRST_BUCKET = 10, LAST_BUCKET = 34, LABELS_MAX = 4 };

/* The parts of the document. */
enum part {
    OF_DAEMON,
    OF_DATASETS,
    OF_GPUS,
    OF_FEEDS,
    OF_JOBS,
    OF_PRODUCERS,
    OF_FEED_DATASETS,
    OF_WORKERS,
};

/* A part is a list, or the lists `inner` of the items of a list. Its samples have labels of their
 * own. `holder` is the label with the name of the outer item; that of a worker is its feed. */
static const struct {
    const char *outer, *inner, *holder;
    struct {
        const char *name, *key;
    } labels[LABELS_MAX];
} parts[] = {
    [OF_DATASETS] = {"datasets", NULL, NULL, {{"dataset", "name"}}},
    [OF_GPUS] = {"gpus", NULL, NULL, {{"gpu", "uuid"}}},
    [OF_FEEDS] = {"feeds", NULL, NULL, {{"feed", "name"}}},
    [OF_JOBS] = {"feeds", "jobs", "feed", {{"job", "job"}}},
    [OF_PRODUCERS] = {"producers", NULL, NULL, {{"feed", "name"}}},
    [OF_FEED_DATASETS] = {"producers", "datasets", "feed", {{"dataset", "name"}}},
    [OF_WORKERS] =
        {"sessions",
         NULL,
         "feed",
         {{"worker", "client"}, {"rank", "rank"}, {"pid", "pid"}, {"session", "session"}}},
};

/* A number of the document. A key that ends with _ns is written in seconds. Names, types and labels
 * are stable: a new version adds some, and changes none. */
struct metric {
    enum part part;
    const char *key;   /* of an item of the part */
    const char *value; /* of the label, if there is one */
    /* The first number of a family has these too; the others follow it. */
    const char *name; /* with the unit last; a counter's samples have _total behind it */
    const char *type; /* "counter" or "gauge" */
    const char *help;
    const char *label; /* one more label, or NULL */
};

static const struct metric metrics[] = {
    {OF_DAEMON, "session_count", NULL, "trajd_connections", "gauge",
     "Programs that are connected: workers, and this one."},
    {OF_DAEMON, "batches_sent", NULL, "trajd_batches_sent", "counter",
     "Batches sent to workers. A part for one rank counts as one."},
    {OF_DAEMON, "batches_done", NULL, "trajd_batches_done", "counter",
     "Batches that workers have finished."},
    {OF_DAEMON, "windows_done", NULL, "trajd_windows_done", "counter",
     "Windows that workers have finished."},
    {OF_DAEMON, "handed_again", NULL, "trajd_batches_repeated", "counter",
     "Batches that were sent again, because their worker died."},
    {OF_DAEMON, "batches_failed", "failed_batch", "trajd_problems", "counter",
     "Events that a healthy daemon does not have, by kind.", "kind"},
    {OF_DAEMON, "late_acks", "late_ack"},
    {OF_DAEMON, "late_publishes", "late_publish"},
    {OF_DAEMON, "dead_sessions", "dead_worker"},
    {OF_DAEMON, "damaged_journals", "damaged_journal"},
    {OF_DAEMON, "journals_refused", "refused_journal"},
    {OF_DAEMON, "rank_timeouts", "rank_timeout"},
    {OF_DAEMON, "slow_jobs", "slow_job"},
    {OF_DAEMON, "dropped_messages", "dropped_message"},
    {OF_DAEMON, "unsent_messages", "unsent_message"},
    {OF_DAEMON, "refused_connections", "refused_connection"},
    {OF_DAEMON, "cut_connections", "cut_connection"},
    {OF_DAEMON, "floods", "flood"},
    {OF_DAEMON, "refused_keys", "refused_key"},
    {OF_DAEMON, "failed_handshakes", "failed_handshake"},
    {OF_DAEMON, "silent_sessions", "silent_worker"},

    {OF_DATASETS, "store.resident_bytes", "rows", "trajd_memory_bytes", "gauge",
     "Memory in use, by purpose: rows (row cache), frames (decoded images), ring (slots of a "
     "feed), gpu_rows, gpu_rings, "
     "process (all resident memory of the daemon, including rows and rings that were touched).",
     "purpose"},
    {OF_DATASETS, "frames.resident_bytes", "frames"},
    {OF_FEEDS, "ring_bytes", "ring"},
    {OF_GPUS, "rows_bytes", "gpu_rows"},
    {OF_GPUS, "rings_bytes", "gpu_rings"},
    {OF_DAEMON, "memory.process_bytes", "process"},
    {OF_DATASETS, "store.budget_bytes", "rows", "trajd_memory_limit_bytes", "gauge",
     "Memory that the configuration allows, by purpose; free: what the machine and the control "
     "group have left.",
     "purpose"},
    {OF_DAEMON, "memory.rings_budget_bytes", "rings"},
    {OF_GPUS, "rows_budget_bytes", "gpu_rows"},
    {OF_GPUS, "rings_budget_bytes", "gpu_rings"},
    {OF_DAEMON, "memory.free_bytes", "free"},

    {OF_DATASETS, "kept", "kept", "trajd_dataset_episodes", "gauge",
     "Episodes of a dataset: kept, or quarantined (they cannot be read, or break a rule). A file "
     "that gives no episode counts as one.",
     "state"},
    {OF_DATASETS, "quarantined", "quarantined"},
    {OF_DATASETS, "files", "read", "trajd_dataset_files", "gauge",
     "Files of a dataset: read, or refused.", "state"},
    {OF_DATASETS, "refused_files", "refused"},
    {OF_DATASETS, "store.total_bytes", NULL, "trajd_dataset_rows_bytes", "gauge",
     "Size of all rows that feeds of a dataset name."},
    {OF_DATASETS, "store.bytes_read", NULL, "trajd_dataset_read_bytes", "counter",
     "Bytes of rows read from the files of a dataset."},
    {OF_DATASETS, "store.pieces_evicted", NULL, "trajd_dataset_evictions", "counter",
     "Entries that the row cache dropped for others: they are read again when they are needed."},
    {OF_DATASETS, "store.read_errors", NULL, "trajd_dataset_read_errors", "counter",
     "Reads of files that failed."},

    {OF_DATASETS, "frames.decoded", NULL, "trajd_dataset_frames_decoded", "counter",
     "Images of a dataset that were decoded."},
    {OF_DATASETS, "frames.prepared", NULL, "trajd_dataset_frames_prepared", "counter",
     "Images of a dataset that were taken as they are in the files: prepared or raw."},
    {OF_DATASETS, "frames.bytes_read", NULL, "trajd_dataset_frames_read_bytes", "counter",
     "Bytes of images read from the files of a dataset, encoded or raw."},
    {OF_DATASETS, "frames.bad", NULL, "trajd_dataset_frames_bad", "counter",
     "Images of a dataset that cannot be decoded."},

    {OF_PRODUCERS, "batches", NULL, "trajd_feed_batches_made", "counter",
     "Batches that were made."},
    {OF_PRODUCERS, "windows", NULL, "trajd_feed_windows_made", "counter",
     "Windows that were made."},
    {OF_PRODUCERS, "failed_batches", NULL, "trajd_feed_batches_failed", "counter",
     "Batches that carry an error instead of rows."},
    {OF_PRODUCERS, "load_ns", "rows", "trajd_feed_work_seconds", "counter",
     "Time of production, by work: rows (waits for the row cache), decode (waits for images), "
     "kernels, idle (every slot is full, or no job needs a batch).",
     "work"},
    {OF_PRODUCERS, "frames_ns", "decode"},
    {OF_PRODUCERS, "resample_ns", "kernels"},
    {OF_PRODUCERS, "wait_ns", "idle"},
    {OF_FEEDS, "waited_seconds.rows", "rows", "trajd_feed_wait_seconds", "counter",
     "Time in which workers had no batch to work on, summed over workers, by cause: rows, decode, "
     "kernels (production did this), slots (other workers held all slots), other (production did "
     "something else, or had just begun).",
     "cause"},
    {OF_FEEDS, "waited_seconds.decode", "decode"},
    {OF_FEEDS, "waited_seconds.kernels", "kernels"},
    {OF_FEEDS, "waited_seconds.slots", "slots"},
    {OF_FEEDS, "waited_seconds.other", "other"},
    {OF_FEEDS, "stalled_seconds", NULL, "trajd_feed_nobody_asks_seconds", "counter",
     "Time in which every slot was ready and production waited for workers: the data is ahead."},
    {OF_FEEDS, "slots.free", "free", "trajd_feed_slots", "gauge", "Slots of a feed, by state.",
     "state"},
    {OF_FEEDS, "slots.filling", "filling"},
    {OF_FEEDS, "slots.ready", "ready"},
    {OF_PRODUCERS, "episodes_used", "used", "trajd_feed_episodes", "gauge",
     "Episodes of a feed's datasets: used (the feed has windows of them), or quarantined.",
     "state"},
    {OF_PRODUCERS, "episodes_quarantined", "quarantined"},
    {OF_FEED_DATASETS, "made", NULL, "trajd_feed_dataset_windows", "counter",
     "Windows that were made of each dataset of a feed."},

    {OF_JOBS, "epoch", NULL, "trajd_job_epoch", "gauge", "The epoch in which a job is."},
    {OF_JOBS, "batches", "all", "trajd_job_epoch_batches", "gauge",
     "Batches of the epoch: all, or left (not finished).", "state"},
    {OF_JOBS, "batches_left", "left"},
    {OF_JOBS, "members", NULL, "trajd_job_workers", "gauge", "Workers of a job."},
    {OF_JOBS, "absent_seconds", NULL, "trajd_job_absent_rank_seconds", "counter",
     "Time in which production waited for a rank that is absent."},

    {OF_WORKERS, "batches_done", NULL, "trajd_worker_batches_done", "counter",
     "Batches that a worker has finished."},
    {OF_WORKERS, "held", NULL, "trajd_worker_batches_held", "gauge",
     "Batches that a worker holds."},
    {OF_WORKERS, "waited_seconds.rows", "rows", "trajd_worker_wait_seconds", "counter",
     "Time in which a worker had no batch to work on, by cause (see trajd_feed_wait_seconds).",
     "cause"},
    {OF_WORKERS, "waited_seconds.decode", "decode"},
    {OF_WORKERS, "waited_seconds.kernels", "kernels"},
    {OF_WORKERS, "waited_seconds.slots", "slots"},
    {OF_WORKERS, "waited_seconds.other", "other"},
    {OF_WORKERS, "stalled_by_seconds", NULL, "trajd_worker_nobody_asks_seconds", "counter",
     "Time in which every slot was ready and this worker held the oldest one."},
    {OF_WORKERS, "silent_seconds", NULL, "trajd_worker_silent_seconds", "gauge",
     "Time since the last message of a worker."},
};

static void write_label(FILE *out, bool *is_first, const char *name, const char *value)
{
    char visible[1024];

    trajd_visible(visible, sizeof visible, value);
    fprintf(out, "%c%s=\"", *is_first ? '{' : ',', name);
    for (const char *at = visible; *at; at++)
        fprintf(out, "%s%c", *at == '"' || *at == '\\' ? "\\" : "", *at);
    fputc('"', out);
    *is_first = false;
}

/* Writes TYPE, UNIT and HELP. */
static void write_head(FILE *out, const char *name, const char *type, const char *help)
{
    const char *unit = strrchr(name, '_');

    fprintf(out, "# TYPE %s %s\n", name, type);
    if (strcmp(unit, "_seconds") == 0 || strcmp(unit, "_bytes") == 0)
        fprintf(out, "# UNIT %s %s\n", name, unit + 1);
    fprintf(out, "# HELP %s %s\n", name, help);
}

/* Writes the sample of an item, if the document has its number. The head comes before the first one
 * of a family. */
static void write_sample(FILE *out, const struct metric *family, const struct metric *metric,
                         const struct trajd_yaml_node *holder, const struct trajd_yaml_node *item,
                         bool *has_head)
{
    const char *text = cli_text(item, metric->key);
    bool is_first = true;
    char *end;
    const double value = strtod(text, &end);

    if (end == text || *end || !isfinite(value))
        return;
    if (!*has_head)
        write_head(out, family->name, family->type, family->help);
    *has_head = true;
    fprintf(out, "%s%s", family->name, strcmp(family->type, "counter") ? "" : "_total");
    if (parts[metric->part].holder)
        write_label(out, &is_first, parts[metric->part].holder, cli_text(holder, "name"));
    for (int i = 0; i < LABELS_MAX && parts[metric->part].labels[i].name; i++)
        write_label(out, &is_first, parts[metric->part].labels[i].name,
                    cli_text(item, parts[metric->part].labels[i].key));
    if (family->label)
        write_label(out, &is_first, family->label, metric->value);
    if (!is_first)
        fputc('}', out);
    if (strlen(metric->key) > 3 && !strcmp(metric->key + strlen(metric->key) - 3, "_ns"))
        fprintf(out, " %.9f\n", value * 1e-9);
    else
        fprintf(out, " %s\n", text);
}

static void write_samples(FILE *out, const struct metric *family, const struct metric *metric,
                          const struct trajd_yaml_node *root, bool *has_head)
{
    const char *outer = parts[metric->part].outer, *inner = parts[metric->part].inner;

    if (!outer)
        write_sample(out, family, metric, NULL, root, has_head);
    for (const struct trajd_yaml_node *item = outer ? cli_first(root, outer) : NULL; item;
         item = item->next) {
        const struct trajd_yaml_node *holder = item;
        if (metric->part == OF_WORKERS)
            holder = cli_find_item(root, "feeds", "feed_id", cli_text(item, "feed_id"));
        /* a session without a feed only asks: its labels would fill a time-series database */
        if (!inner && holder)
            write_sample(out, family, metric, holder, item, has_head);
        for (const struct trajd_yaml_node *one = inner ? cli_first(item, inner) : NULL; one;
             one = one->next)
            write_sample(out, family, metric, holder, one, has_head);
    }
}

static void write_info(FILE *out, const struct trajd_yaml_node *root)
{
    bool is_first = true;

    fputs("# TYPE trajd info\n# HELP trajd The daemon that answers.\ntrajd_info", out);
    write_label(out, &is_first, "version", cli_text(root, "version"));
    write_label(out, &is_first, "instance_id", cli_text(root, "instance"));
    fputs("} 1\n", out);
}

/* Writes the time from READY until a batch was sent. */
static void write_histogram(FILE *out, const struct trajd_yaml_node *root)
{
    static const char name[] = "trajd_ready_to_sent_seconds";
    const struct trajd_yaml_node *histogram = cli_find(root, "ready_to_sent");
    unsigned long long sum = 0;
    int bucket = 0;

    if (!histogram)
        return;
    write_head(out, name, "histogram",
               "Time from when a batch was ready until it was sent to its worker; long where no "
               "worker asked.");
    for (const struct trajd_yaml_node *count = cli_first(histogram, "below_power_of_two_ns"); count;
         count = count->next, bucket++) {
        sum += count->value ? strtoull(count->value, NULL, 10) : 0;
        if (bucket >= FIRST_BUCKET && bucket <= LAST_BUCKET)
            fprintf(out, "%s_bucket{le=\"%.9f\"} %llu\n", name, ldexp(1e-9, bucket), sum);
    }
    fprintf(out, "%s_bucket{le=\"+Inf\"} %llu\n%s_sum %s\n%s_count %llu\n", name, sum, name,
            cli_text(histogram, "sum_seconds"), name, sum);
}

enum trajd_status metrics_write(const char *json, FILE *out, struct trajd_error *error)
{
    const struct trajd_yaml_node *root;
    struct trajd_yaml *yaml = NULL;
    bool has_head = false;

    if (trajd_yaml_parse("status", json, strlen(json), &yaml, error))
        return TRAJD_ERR_DATA;
    root = trajd_yaml_root(yaml);
    write_info(out, root);
    for (const struct metric *metric = metrics, *family = metrics;
         metric < metrics + ARRAY_LEN(metrics); metric++) {
        if (metric->name) {
            family = metric;
            has_head = false;
        }
        write_samples(out, family, metric, root, &has_head);
    }
    write_histogram(out, root);
    fputs("# EOF\n", out);
    trajd_yaml_destroy(&yaml);
    return TRAJD_OK;
}
