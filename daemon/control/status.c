#include "daemon/control/control_internal.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/base/clock.h"
#include "daemon/base/json.h"

#define END_BYTES 256 /* reserved for the end of a description, after the items of its lists */

static void describe_reload(const struct trajd_reload *reload, FILE *out)
{
    fprintf(
        out,
        "\"reload\":{\"count\":%llu,\"running\":%s,\"began_ns\":%lld,\"applied\":%s,\"message\":",
        (unsigned long long)reload->count, reload->is_running ? "true" : "false",
        (long long)reload->began_ns,
        reload->count && !reload->is_running && !reload->status ? "true" : "false");
    trajd_json_text(out, reload->is_running ? "" : reload->message);
    fputs("},", out);
}

static void describe_resampling(const struct trajd_resample_service *resample_service, FILE *out)
{
    struct trajd_resample_service_stats stats;

    if (!resample_service)
        return;
    trajd_resample_service_get_stats(resample_service, &stats);
    fprintf(out, "\"resampling\":{\"clients\":%u,\"pieces\":%llu,\"bytes\":%llu,\"refused\":%llu},",
            stats.clients, (unsigned long long)stats.segments, (unsigned long long)stats.bytes,
            (unsigned long long)stats.refused);
}

static void describe_dataset(const struct trajd_dataset *dataset, FILE *out)
{
    struct trajd_cache_stats cache;

    trajd_cache_get_stats(dataset->cache, &cache);
    fprintf(out, "{\"name\":");
    trajd_json_text(out, dataset->name);
    fprintf(out, ",\"layout\":");
    trajd_json_text(out, dataset->index->layout->name);
    fprintf(out,
            ",\"files\":%u,\"episodes\":%u,\"kept\":%u,\"fingerprint\":\"%016llx\","
            "\"store\":{\"resident_bytes\":%llu,\"budget_bytes\":%llu,\"total_bytes\":%llu,\"bytes_"
            "read\":%llu,"
            "\"pieces_loaded\":%llu,\"pieces_evicted\":%llu,\"read_errors\":%llu,\"missing_"
            "chunks\":%llu}}",
            dataset->index->file_count, dataset->index->episode_count, dataset->index->kept_count,
            (unsigned long long)dataset->index->fingerprint,
            (unsigned long long)cache.resident_bytes, (unsigned long long)cache.budget_bytes,
            (unsigned long long)cache.total_bytes, (unsigned long long)cache.bytes_read,
            (unsigned long long)cache.entries_loaded, (unsigned long long)cache.entries_evicted,
            (unsigned long long)cache.read_errors, (unsigned long long)cache.missing_chunks);
}

/* Returns true where the end of the document still fits. Otherwise removes the text since `mark`.
 * */
static bool fits(FILE *out, long mark, size_t size)
{
    if (ftell(out) + END_BYTES < (long)size)
        return true;
    fseek(out, mark, SEEK_SET);
    return false;
}

/* Writes the document; its lists are cut where `size` ends. The caller holds the mutex. */
static void describe_all(struct trajd_control *control, FILE *out, size_t size)
{
    bool has_room = true;
    uint32_t shown = 0;

    describe_reload(&control->reload, out);
    describe_resampling(control->resample_service, out);
    fputs("\"gpus\":[", out);
    for (uint32_t g = 0; g < control->gpu_count && has_room; g++) {
        const long mark = ftell(out);
        fputs(g ? "," : "", out);
        trajd_gpu_describe(control->gpus[g], out);
        has_room = fits(out, mark, size);
    }
    fputs("],\"datasets\":[", out);
    for (uint32_t d = 0; d < control->now->dataset_count && has_room; d++) {
        const long mark = ftell(out);
        fputs(d ? "," : "", out);
        describe_dataset(control->now->datasets[d], out);
        has_room = fits(out, mark, size);
    }
    fputs("],\"producers\":[", out);
    for (; shown < control->feeds.count && has_room; shown += has_room) {
        const long mark = ftell(out);
        fputs(shown ? "," : "", out);
        trajd_producer_describe(control->feeds.producers[shown], out, true);
        has_room = fits(out, mark, size);
    }
    fprintf(out, "],\"producers_not_shown\":%u", control->feeds.count - shown);
}

size_t trajd_control_describe(void *context, char *json, size_t size)
{
    struct trajd_control *control = context;
    char *text = NULL;
    size_t length = 0;
    bool failed;
    FILE *out = open_memstream(&text, &length);

    if (!out)
        return 0;
    pthread_mutex_lock(&control->mutex);
    describe_all(control, out, size);
    pthread_mutex_unlock(&control->mutex);
    failed = ferror(out) != 0;
    if (fclose(out) || failed || length >= size)
        length = 0; /* an incomplete document would not parse */
    memcpy(json, text, length);
    free(text);
    return length;
}

/* ---- called by the main thread ---- */

bool trajd_control_is_alive(struct trajd_control *control, int64_t limit_ns, char *stuck,
                            size_t size)
{
    const int64_t now_ns = trajd_now_ns();
    struct trajd_server_stats stats;
    const struct {
        const struct trajd_heartbeat *heartbeat;
        const char *name;
    } threads[] = {
        {&control->opener.heartbeat, "the opener"},
        {trajd_query_service_heartbeat(control->query_service), "the query service"},
        {trajd_stats_service_heartbeat(control->stats_service), "the statistics service"},
        {trajd_resample_service_heartbeat(control->resample_service), "the resample service"}};
    bool alive = true;
    /* relaxed: orders nothing */
    const bool gpu_is_lost = __atomic_load_n(&control->gpu_is_lost, __ATOMIC_RELAXED);

    trajd_server_get_stats(control->server, &stats);
    if (now_ns - (int64_t)stats.last_turn_ns > limit_ns) {
        snprintf(stuck, size, "the server's thread");
        return false;
    }
    for (size_t t = 0; t < sizeof threads / sizeof threads[0]; t++)
        if (trajd_heartbeat_is_stuck(threads[t].heartbeat, now_ns, limit_ns)) {
            snprintf(stuck, size, "%s", threads[t].name);
            return false;
        }
    pthread_mutex_lock(&control->mutex);
    for (uint32_t f = 0; f < control->feeds.count && alive; f++) {
        alive = (gpu_is_lost &&
                 trajd_producer_gpu(
                     control->feeds
                         .producers[f])) || /* its thread has ended, and the opener will close it */
                !trajd_heartbeat_is_stuck(trajd_producer_heartbeat(control->feeds.producers[f]),
                                          now_ns, limit_ns);
        if (!alive)
            snprintf(stuck, size, "feed %s", trajd_producer_name(control->feeds.producers[f]));
    }
    pthread_mutex_unlock(&control->mutex);
    return alive;
}

int64_t trajd_control_exit_idle_ns(const struct trajd_control *control)
{
    /* relaxed: orders nothing */
    return __atomic_load_n(&control->exit_idle_ns, __ATOMIC_RELAXED);
}

int64_t trajd_control_empty_since_ns(const struct trajd_control *control)
{
    struct trajd_resample_service_stats resampling;
    struct trajd_server_stats stats;

    trajd_server_get_stats(control->server, &stats);
    trajd_resample_service_get_stats(control->resample_service, &resampling);
    return resampling.clients ? 0 : (int64_t)stats.empty_since_ns;
}

void trajd_control_status_line(struct trajd_control *control, char *line, size_t size)
{
    const int64_t now_ns = trajd_now_ns();
    struct trajd_server_stats stats;
    double rate = 0;

    trajd_server_get_stats(control->server, &stats);
    if (control->windows_at_ns && now_ns > control->windows_at_ns)
        rate = (double)(stats.windows_done - control->windows_before) * 1e9 /
               (double)(now_ns - control->windows_at_ns);
    control->windows_before = stats.windows_done;
    control->windows_at_ns = now_ns;
    pthread_mutex_lock(&control->mutex);
    snprintf(line, size, "%u feeds, %u workers, %.0f windows/s", control->feeds.count,
             stats.sessions, rate);
    pthread_mutex_unlock(&control->mutex);
}
