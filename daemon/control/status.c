/* Answers status queries, and makes the status line and the reports about storage that hangs. */
#include "daemon/control/control_internal.h"

#include <string.h>

#include "daemon/base/clock.h"
#include "daemon/base/memory.h"
#include "daemon/base/defaults.h"
#include "daemon/window/mixture_plan.h"
#include "proto/plural.h"

#define HUNG_NS INT64_C(3000000000)  /* without an answer, storage is named */
#define TELL_NS UINT64_C(1000000000) /* how long a worker has waited when its wait is reported */
#define END_BYTES 256 /* reserved for the end of a description, after the items of its lists */

static void describe_reload(const struct trajd_reload *reload, struct trajd_json *json)
{
    trajd_json_open_object(json, "reload");
    trajd_json_u64(json, "count", reload->count);
    trajd_json_bool(json, "running", reload->is_running);
    trajd_json_i64(json, "began_ns", reload->began_ns);
    trajd_json_bool(json, "applied", reload->count && !reload->is_running && !reload->status);
    trajd_json_string(json, "message", reload->is_running ? "" : reload->message);
    trajd_json_close_object(json);
}

static void describe_resampling(const struct trajd_resample_service *resample_service,
                                struct trajd_json *json)
{
    struct trajd_resample_service_stats stats;

    if (!resample_service)
        return;
    trajd_resample_service_get_stats(resample_service, &stats);
    trajd_json_open_object(json, "resampling");
    trajd_json_u64(json, "clients", stats.clients);
    trajd_json_u64(json, "pieces", stats.segments);
    trajd_json_u64(json, "bytes", stats.bytes);
    trajd_json_u64(json, "refused", stats.refused);
    trajd_json_close_object(json);
}

/* Writes the frames of a dataset, once a feed has used some. */
static void describe_frames(struct trajd_frames *frames, struct trajd_json *json)
{
    struct trajd_frames_stats stats;
    uint64_t made;

    trajd_frames_get_stats(frames, &stats);
    made = stats.decoded_frames + stats.direct_frames;
    if (!stats.used_frames && !made)
        return;
    trajd_json_open_object(json, "frames");
    trajd_json_u64(json, "resident_bytes", stats.resident_bytes);
    trajd_json_u64(json, "used", stats.used_frames);
    trajd_json_u64(json, "decoded", stats.decoded_frames);
    trajd_json_u64(json, "prepared", stats.direct_frames);
    trajd_json_u64(json, "reused", stats.used_frames > made ? stats.used_frames - made : 0);
    trajd_json_u64(json, "bytes_read", stats.read_bytes);
    trajd_json_u64(json, "bad", stats.bad_frames);
    trajd_json_u64(json, "evicted", stats.evicted_frames);
    trajd_json_u64(json, "decode_ns", stats.decode_ns);
    trajd_json_close_object(json);
}

/* Writes memory and threads. */
static void describe_machine(const struct trajd_config *config, struct trajd_json *json)
{
    char threads[TRAJD_THREADS_TEXT_SIZE];
    struct trajd_memory memory;

    trajd_memory_read(&memory);
    trajd_json_open_object(json, "memory");
    trajd_json_u64(json, "process_bytes", trajd_memory_resident());
    trajd_json_u64(json, "rings_budget_bytes", config->rings_bytes);
    trajd_json_u64(json, "free_bytes", trajd_memory_available(&memory));
    trajd_json_close_object(json);
    trajd_threads_text(&config->threads, threads, sizeof threads);
    trajd_json_string(json, "threads", threads);
}

static void describe_dataset(const struct trajd_dataset *dataset, struct trajd_json *json)
{
    const struct trajd_index *index = dataset->index;
    struct trajd_cache_stats cache;

    trajd_cache_get_stats(dataset->cache, &cache);
    trajd_json_open_object(json, NULL);
    trajd_json_string(json, "name", dataset->name);
    trajd_json_string(json, "layout", index->layout->name);
    trajd_json_u64(json, "files", index->file_count);
    trajd_json_u64(json, "episodes", index->episode_count);
    trajd_json_u64(json, "found", index->episode_count + index->refused_file_count);
    trajd_json_u64(json, "kept", index->kept_count);
    trajd_json_u64(json, "quarantined",
                   index->episode_count + index->refused_file_count - index->kept_count);
    trajd_json_u64(json, "refused_files", index->refused_file_count);
    trajd_json_format(json, "fingerprint", "%016llx", (unsigned long long)index->fingerprint);
    trajd_json_open_object(json, "store");
    trajd_json_u64(json, "resident_bytes", cache.resident_bytes);
    trajd_json_u64(json, "budget_bytes", cache.budget_bytes);
    trajd_json_u64(json, "total_bytes", cache.total_bytes);
    trajd_json_u64(json, "bytes_read", cache.bytes_read);
    trajd_json_u64(json, "pieces_loaded", cache.entries_loaded);
    trajd_json_u64(json, "pieces_evicted", cache.entries_evicted);
    trajd_json_u64(json, "read_errors", cache.read_errors);
    trajd_json_u64(json, "missing_chunks", cache.missing_chunks);
    trajd_json_close_object(json);
    if (dataset->hung_mount) {
        trajd_json_open_object(json, "hung_storage");
        trajd_json_string(json, "mount", dataset->hung_mount);
        trajd_json_number(json, "seconds", "%.3f",
                          (double)(trajd_now_ns() - dataset->hung_since_ns) * 1e-9);
        trajd_json_close_object(json);
    }
    if (dataset->frames)
        describe_frames(dataset->frames, json);
    trajd_json_close_object(json);
}

/* Writes the GPUs, datasets and producers for which the document has room below `end`. The caller
 * holds the mutex. */
static void describe_lists(struct trajd_control *control, struct trajd_json *json, size_t end)
{
    bool has_room = true;
    uint32_t shown = 0;

    trajd_json_open_array(json, "gpus");
    for (uint32_t g = 0; g < control->gpu_count && has_room; g++) {
        const struct trajd_json_mark mark = trajd_json_get_mark(json);
        trajd_gpu_describe(control->gpus[g], json);
        has_room = trajd_json_fits(json, mark, end);
    }
    trajd_json_close_array(json);
    trajd_json_open_array(json, "datasets");
    for (uint32_t d = 0; d < control->now->dataset_count && has_room; d++) {
        const struct trajd_json_mark mark = trajd_json_get_mark(json);
        describe_dataset(control->now->datasets[d], json);
        has_room = trajd_json_fits(json, mark, end);
    }
    trajd_json_close_array(json);
    trajd_json_open_array(json, "producers");
    for (; shown < control->feeds.count && has_room; shown += has_room) {
        const struct trajd_json_mark mark = trajd_json_get_mark(json);
        trajd_producer_describe(control->feeds.producers[shown], json);
        has_room = trajd_json_fits(json, mark, end);
    }
    trajd_json_close_array(json);
    trajd_json_u64(json, "producers_not_shown", control->feeds.count - shown);
}

void trajd_control_describe(void *context, struct trajd_json *json, size_t room)
{
    struct trajd_control *control = context;
    const size_t end = (size_t)trajd_json_get_mark(json).at + room - END_BYTES;

    pthread_mutex_lock(&control->mutex);
    describe_reload(&control->reload, json);
    describe_resampling(control->resample_service, json);
    describe_machine(control->now->config, json);
    describe_lists(control, json, end);
    pthread_mutex_unlock(&control->mutex);
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
        {&control->queries.heartbeat, "the query service"},
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
        const struct trajd_producer *producer = control->feeds.producers[f];
        if (gpu_is_lost && producer->options.gpu)
            continue; /* its thread has ended, and the opener will close it */
        alive = !trajd_heartbeat_is_stuck(&producer->heartbeat, now_ns, limit_ns);
        if (!alive)
            snprintf(stuck, size, "feed %s", producer->name);
    }
    pthread_mutex_unlock(&control->mutex);
    return alive;
}

static bool reads_dataset(const struct trajd_producer *producer,
                          const struct trajd_dataset *dataset)
{
    for (uint32_t p = 0; p < producer->plan->member_count; p++)
        if (producer->plan->members[p]->dataset == dataset)
            return true;
    return false;
}

/* Tells the workers of feeds that wait for the dataset, each feed once. */
static void tell_waiting(struct trajd_control *control, const struct trajd_dataset *dataset)
{
    char text[TRAJD_WIRE_MAX_REASON];

    snprintf(text, sizeof text, "waits for storage: %s has not answered for %lld s",
             dataset->hung_mount, (long long)(HUNG_NS / 1000000000));
    for (uint32_t f = 0; f < control->feeds.count; f++) {
        struct trajd_producer *producer = control->feeds.producers[f];
        if (producer->feed && reads_dataset(producer, dataset) && !producer->is_hang_told)
            producer->is_hang_told = trajd_feed_tell_waiting(producer->feed, TELL_NS, text);
    }
}

static void end_hang(struct trajd_control *control, const struct trajd_dataset *dataset)
{
    LOG(control->log, INFO, "dataset %s: %s answers again, after %.0f s", dataset->name,
        dataset->hung_mount, (double)(trajd_now_ns() - dataset->hung_since_ns) * 1e-9);
    for (uint32_t f = 0; f < control->feeds.count; f++)
        if (reads_dataset(control->feeds.producers[f], dataset))
            control->feeds.producers[f]->is_hang_told = false;
}

void trajd_control_watch_storage(struct trajd_control *control)
{
    const int64_t now_ns = trajd_now_ns();

    pthread_mutex_lock(&control->mutex);
    for (uint32_t d = 0; d < control->now->dataset_count; d++) {
        struct trajd_dataset *dataset = control->now->datasets[d];
        const char *mount = trajd_dataset_find_hung(dataset, now_ns, HUNG_NS);
        if (dataset->hung_mount && !mount)
            end_hang(control, dataset);
        if (mount && !dataset->hung_mount) {
            dataset->hung_since_ns = now_ns - HUNG_NS;
            LOG(control->log, WARNING,
                "dataset %s: %s has not answered for %lld s: feeds that read from it wait",
                dataset->name, mount, (long long)(HUNG_NS / 1000000000));
        }
        dataset->hung_mount = mount;
        if (mount)
            tell_waiting(control, dataset);
    }
    pthread_mutex_unlock(&control->mutex);
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
    snprintf(line, size, "%u feed%s, %u worker%s, %.0f windows/s", control->feeds.count,
             trajd_plural(control->feeds.count), stats.sessions, trajd_plural(stats.sessions),
             rate);
    pthread_mutex_unlock(&control->mutex);
}
