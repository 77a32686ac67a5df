/* trajctl bench: reads a feed with several worker processes, and prints rates and latencies. */
#include <inttypes.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "clients/cli/cli_feed.h"
#include "daemon/base/clock.h"
#include "daemon/base/json.h"
#include "proto/plural.h"

#define LATENCY_SAMPLES 65536u /* the latest ones of a worker */

struct benching {
    struct cli_connection connection;
    struct trajd_open_options open;
    uint64_t seconds, workers;
    bool json;
};

/* In memory that the worker processes share with their parent. */
struct worker_result {
    uint64_t batches, windows, failed, elapsed_ns, waited_ns;
    bool good;
    uint64_t latency_ns[LATENCY_SAMPLES];
};

static void note_batch(struct worker_result *result, struct trajd_batch **batch,
                       uint64_t returned_ns)
{
    struct trajd_batch_info info;
    trajd_batch_get_info(*batch, &info);
    result->latency_ns[result->batches++ % LATENCY_SAMPLES] =
        returned_ns > info.ready_ns ? returned_ns - info.ready_ns : 0;
    result->windows += info.row_count;
    trajd_batch_release(batch);
}

static bool work(struct benching benching, struct worker_result *result)
{
    struct trajd_client *client = cli_try_connect(&benching.connection);
    struct trajd_batch *batch;
    struct trajd_error error;
    if (!client)
        return false;
    enum trajd_status status = cli_open(client, benching.open, &error);
    const uint64_t begin_ns = (uint64_t)trajd_now_ns();
    const uint64_t end_ns = begin_ns + benching.seconds * UINT64_C(1000000000);
    uint64_t at_ns = begin_ns;
    while (!status && at_ns < end_ns) {
        status = trajd_client_next(client, 1000, &batch, &error);
        const uint64_t returned_ns = (uint64_t)trajd_now_ns();
        result->waited_ns += returned_ns - at_ns;
        if (!status) {
            note_batch(result, &batch, returned_ns);
        } else if (status == TRAJD_END_OF_EPOCH) {
            benching.open.epoch++;
            status = cli_open(client, benching.open, &error);
        } else if (status == TRAJD_ERR_DATA || status == TRAJD_ERR_TIMEOUT) {
            result->failed += status == TRAJD_ERR_DATA;
            status = TRAJD_OK;
        }
        at_ns = (uint64_t)trajd_now_ns();
    }
    result->elapsed_ns = at_ns - begin_ns;
    trajd_client_close(&client);
    if (status)
        cli_fail("%s", error.message);
    return !status;
}

static int compare(const void *a, const void *b)
{
    const uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
    return left < right ? -1 : left > right;
}

struct summary {
    double batches_per_second, windows_per_second, p50_us, p99_us, stall_share;
    uint64_t batches, failed;
};

static struct summary summarise(const struct worker_result *results, uint64_t workers)
{
    struct summary summary = {0};
    uint64_t count = 0;
    double waited = 0, elapsed = 0;
    uint64_t *all = malloc(workers * sizeof results->latency_ns);
    for (uint64_t i = 0; i < workers; i++) {
        const struct worker_result *one = &results[i];
        const double seconds = (double)one->elapsed_ns * 1e-9;
        summary.batches += one->batches;
        summary.failed += one->failed;
        summary.batches_per_second += seconds > 0 ? (double)one->batches / seconds : 0;
        summary.windows_per_second += seconds > 0 ? (double)one->windows / seconds : 0;
        waited += (double)one->waited_ns;
        elapsed += (double)one->elapsed_ns;
        for (uint64_t k = 0; all && k < one->batches && k < LATENCY_SAMPLES; k++)
            all[count++] = one->latency_ns[k];
    }
    summary.stall_share = elapsed > 0 ? waited / elapsed : 0;
    if (count > 0) {
        qsort(all, count, sizeof *all, compare);
        summary.p50_us = (double)all[count / 2] * 1e-3;
        summary.p99_us = (double)all[(count - 1) * 99 / 100] * 1e-3;
    }
    free(all);
    return summary;
}

static void print_json(const struct summary *summary, const struct benching *benching)
{
    struct trajd_json json = {.out = stdout};

    trajd_json_open_object(&json, NULL);
    trajd_json_string(&json, "feed", benching->open.feed);
    trajd_json_u64(&json, "workers", benching->workers);
    trajd_json_u64(&json, "seconds", benching->seconds);
    trajd_json_u64(&json, "batches", summary->batches);
    trajd_json_u64(&json, "failed", summary->failed);
    trajd_json_number(&json, "batches_per_second", "%.1f", summary->batches_per_second);
    trajd_json_number(&json, "windows_per_second", "%.1f", summary->windows_per_second);
    trajd_json_open_object(&json, "ready_to_next_us");
    trajd_json_number(&json, "p50", "%.1f", summary->p50_us);
    trajd_json_number(&json, "p99", "%.1f", summary->p99_us);
    trajd_json_close_object(&json);
    trajd_json_number(&json, "stall_share", "%.4f", summary->stall_share);
    trajd_json_close_object(&json);
    putchar('\n');
}

static void print_summary(const struct summary *summary, const struct benching *benching)
{
    if (benching->json) {
        print_json(summary, benching);
        return;
    }
    printf("%s: %" PRIu64 " worker%s, %" PRIu64 " s, %" PRIu64 " batches, %" PRIu64 " failed\n",
           benching->open.feed, benching->workers, trajd_plural(benching->workers),
           benching->seconds, summary->batches, summary->failed);
    printf("  rate        %.1f batches/s, %.1f windows/s\n", summary->batches_per_second,
           summary->windows_per_second);
    printf("  latency     p50 %.1f us, p99 %.1f us (from READY until next returns, including time "
           "in the queue)\n",
           summary->p50_us, summary->p99_us);
    printf("  stall       %.1f %% of the time in next\n", 100 * summary->stall_share);
}

const struct cli_option cli_bench_options[] = {
    {"--seconds", "N", "how long it reads (5)", CLI_U64, offsetof(struct benching, seconds)},
    {"--workers", "N", "processes that read (1)", CLI_U64, offsetof(struct benching, workers),
     .least = 1, .most = 64},
    {"--credit", "N", "batches that a worker may hold (3/4 of the slots)", CLI_U32,
     offsetof(struct benching, open.credit)},
    {"--json", NULL, "print one JSON document", CLI_FLAG, offsetof(struct benching, json)},
    {NULL, NULL, NULL, CLI_TABLE, offsetof(struct benching, connection),
     .table = cli_daemon_options},
    {0}};

int cli_bench(int argc, char **argv)
{
    char job[32];
    struct benching benching = {.seconds = 5, .workers = 1};

    cli_parse(argc, argv, &benching);
    benching.open.feed = argv[1];
    snprintf(job, sizeof job, "bench-%ld", (long)getpid());
    benching.open.job = job;
    struct worker_result *results = mmap(NULL, benching.workers * sizeof *results,
                                         PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (results == MAP_FAILED)
        return cli_fail("bench: out of memory");
    for (uint64_t i = 0; i < benching.workers; i++) {
        pid_t child = fork();
        if (child < 0)
            return cli_fail("bench: cannot start a process");
        if (child == 0) {
            results[i].good = work(benching, &results[i]);
            _exit(0);
        }
    }
    while (wait(NULL) > 0)
        continue;
    bool good = true;
    for (uint64_t i = 0; i < benching.workers; i++)
        good = good && results[i].good;
    const struct summary summary = summarise(results, benching.workers);
    if (good)
        print_summary(&summary, &benching);
    munmap(results, benching.workers * sizeof *results);
    return good ? CLI_OK : CLI_FAILED;
}
