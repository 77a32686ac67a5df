#include "daemon/pipeline_parts.h"

#include "daemon/base/clock.h"
#include "daemon/base/json.h"

static void describe_reload(const struct trajd_reload *reload, FILE *out)
{
    fprintf(out, ",\"reload\":{\"count\":%llu,\"running\":%s,\"began_ns\":%lld,\"applied\":%s,\"message\":",
            (unsigned long long)reload->count, reload->is_running ? "true" : "false", (long long)reload->began_ns,
            reload->count && !reload->is_running && !reload->status ? "true" : "false");
    trajd_json_text(out, reload->is_running ? "" : reload->message);
    fputc('}', out);
}

static void describe_resampling(const struct trajd_resampler *resampler, FILE *out)
{
    struct trajd_resampler_stats stats;

    if (!resampler)
        return;
    trajd_resampler_get_stats(resampler, &stats);
    fprintf(out, ",\"resampling\":{\"clients\":%u,\"pieces\":%llu,\"bytes\":%llu,\"refused\":%llu}", stats.clients,
            (unsigned long long)stats.pieces, (unsigned long long)stats.bytes, (unsigned long long)stats.refused);
}

size_t trajd_pipeline_describe(void *context, char *json, size_t size)
{
    struct trajd_pipeline *pipeline = context;
    FILE *out = fmemopen(json, size, "w");
    long length;

    if (!out)
        return 0;
    pthread_mutex_lock(&pipeline->mutex);
    fprintf(out, "\"datasets\":[");
    for (uint32_t d = 0; d < pipeline->now->dataset_count; d++) {
        const struct trajd_dataset *dataset = pipeline->now->datasets[d];
        struct trajd_store_stats store;
        trajd_store_get_stats(dataset->store, &store);
        fprintf(out, "%s{\"name\":", d ? "," : "");
        trajd_json_text(out, dataset->name);
        fprintf(out, ",\"layout\":");
        trajd_json_text(out, dataset->index->layout->name);
        fprintf(out,
                ",\"files\":%u,\"episodes\":%u,\"kept\":%u,\"fingerprint\":\"%016llx\","
                "\"store\":{\"resident_bytes\":%llu,\"budget_bytes\":%llu,\"total_bytes\":%llu,\"bytes_read\":%llu,"
                "\"pieces_loaded\":%llu,\"pieces_evicted\":%llu,\"read_errors\":%llu,\"missing_chunks\":%llu}}",
                dataset->index->file_count,
                dataset->index->episode_count, dataset->index->kept_count,
                (unsigned long long)dataset->index->fingerprint, (unsigned long long)store.resident_bytes,
                (unsigned long long)store.budget_bytes, (unsigned long long)store.total_bytes,
                (unsigned long long)store.bytes_read, (unsigned long long)store.pieces_loaded,
                (unsigned long long)store.pieces_evicted, (unsigned long long)store.read_errors,
                (unsigned long long)store.missing_chunks);
    }
    fprintf(out, "],\"gpus\":[");
    for (uint32_t g = 0; g < pipeline->gpu_count; g++) {
        if (g)
            fputc(',', out);
        trajd_gpu_describe(pipeline->gpus[g], out);
    }
    fprintf(out, "],\"producers\":[");
    for (uint32_t f = 0; f < pipeline->feeder_count; f++) {
        if (f)
            fputc(',', out);
        trajd_feeder_describe(pipeline->feeders[f], out, true);
    }
    fputc(']', out);
    describe_resampling(pipeline->resampler, out);
    describe_reload(&pipeline->reload, out);
    pthread_mutex_unlock(&pipeline->mutex);
    fflush(out);
    length = ftell(out);
    if (ferror(out) || length < 0 || (size_t)length >= size)
        length = 0; /* half a document is worse than none */
    fclose(out);
    return (size_t)length;
}

/* ---- what the asker calls, on its thread ---- */

struct trajd_feeder *trajd_pipeline_lend_feeder(void *context, uint32_t feed_id)
{
    struct trajd_pipeline *pipeline = context;

    pthread_mutex_lock(&pipeline->mutex);
    for (uint32_t f = 0; f < pipeline->feeder_count; f++)
        if (trajd_feed_id(trajd_feeder_feed(pipeline->feeders[f])) == feed_id)
            pipeline->lent = pipeline->feeders[f];
    pthread_mutex_unlock(&pipeline->mutex);
    return pipeline->lent; /* nobody else sets it */
}

void trajd_pipeline_take_back(void *context, struct trajd_feeder *feeder)
{
    struct trajd_pipeline *pipeline = context;

    (void)feeder;
    pthread_mutex_lock(&pipeline->mutex);
    pipeline->lent = NULL;
    pthread_cond_signal(&pipeline->asked); /* the opener may close it now */
    pthread_mutex_unlock(&pipeline->mutex);
}

/* ---- the main thread's view ---- */

bool trajd_pipeline_is_alive(struct trajd_pipeline *pipeline, int64_t limit_ns, char *stuck, size_t size)
{
    const int64_t now_ns = trajd_now_ns();
    struct trajd_server_stats stats;
    const struct {
        const struct trajd_watch *watch;
        const char *name;
    } threads[] = {{&pipeline->opening, "the opener"},
                   {trajd_asker_watch(pipeline->asker), "the asker"},
                   {trajd_statistician_watch(pipeline->statistician), "the thread of statistics"},
                   {trajd_resampler_watch(pipeline->resampler), "the resampler"}};
    bool alive = true;
    const bool gpu_is_lost = __atomic_load_n(&pipeline->gpu_is_lost, __ATOMIC_RELAXED); /* a flag on its own */

    trajd_server_get_stats(pipeline->server, &stats);
    if (now_ns - (int64_t)stats.last_turn_ns > limit_ns) {
        snprintf(stuck, size, "the server's thread");
        return false;
    }
    for (size_t t = 0; t < sizeof threads / sizeof threads[0]; t++)
        if (trajd_watch_is_stuck(threads[t].watch, now_ns, limit_ns)) {
            snprintf(stuck, size, "%s", threads[t].name);
            return false;
        }
    pthread_mutex_lock(&pipeline->mutex);
    for (uint32_t f = 0; f < pipeline->feeder_count && alive; f++) {
        alive = (gpu_is_lost && trajd_feeder_gpu(pipeline->feeders[f])) || /* its thread has ended: the opener closes it when it can */
                !trajd_watch_is_stuck(trajd_feeder_watch(pipeline->feeders[f]), now_ns, limit_ns);
        if (!alive)
            snprintf(stuck, size, "feed %s", trajd_feeder_name(pipeline->feeders[f]));
    }
    pthread_mutex_unlock(&pipeline->mutex);
    return alive;
}

int64_t trajd_pipeline_exit_idle_ns(const struct trajd_pipeline *pipeline)
{
    return __atomic_load_n(&pipeline->exit_idle_ns, __ATOMIC_RELAXED); /* a number on its own: orders nothing */
}

int64_t trajd_pipeline_empty_since_ns(const struct trajd_pipeline *pipeline)
{
    struct trajd_resampler_stats resampling;
    struct trajd_server_stats stats;

    trajd_server_get_stats(pipeline->server, &stats);
    trajd_resampler_get_stats(pipeline->resampler, &resampling);
    return resampling.clients ? 0 : (int64_t)stats.empty_since_ns;
}

void trajd_pipeline_status_line(struct trajd_pipeline *pipeline, char *line, size_t size)
{
    const int64_t now_ns = trajd_now_ns();
    struct trajd_server_stats stats;
    double rate = 0;

    trajd_server_get_stats(pipeline->server, &stats);
    if (pipeline->windows_at_ns && now_ns > pipeline->windows_at_ns)
        rate = (double)(stats.windows_done - pipeline->windows_before) * 1e9 / (double)(now_ns - pipeline->windows_at_ns);
    pipeline->windows_before = stats.windows_done;
    pipeline->windows_at_ns = now_ns;
    pthread_mutex_lock(&pipeline->mutex);
    snprintf(line, size, "%u feeds, %u workers, %.0f windows/s", pipeline->feeder_count, stats.sessions, rate);
    pthread_mutex_unlock(&pipeline->mutex);
}
