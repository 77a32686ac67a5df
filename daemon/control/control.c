/* Starts the parts of the daemon in order, and stops them in reverse. */
#include "daemon/control/control_internal.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/base/clock.h"
#include "daemon/base/paths.h"
#include "daemon/base/memory.h"
#include "daemon/base/progress/progress.h"
#include "daemon/base/defaults.h"
#include "daemon/window/mixture_plan.h"

#define LEAST_BYTES (1 << 16) /* of memory.store and of memory.rings, as config_keys.c has it */

static void log_server_warning(void *context, const char *line)
{
    struct trajd_control *control = context;

    LOG(control->log, WARNING, "%s", line);
}

/* ---- start ---- */

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Returns the difference, or 0 where there is nothing left. */
static uint64_t less(uint64_t bytes, uint64_t by)
{
    return bytes > by ? bytes - by : 0;
}

/* Lowers memory.store and memory.rings to what is free, where the configuration does not state
 * them. Rings then have *rings_most_bytes, which depends on nothing but the free memory and what is
 * stated: defaults and presets differ between --check, a service and a private daemon, and all of
 * them shall accept the same feeds. */
static void share_memory(struct trajd_config *config, uint64_t free_bytes,
                         uint64_t *rings_most_bytes)
{
    const bool has_store = trajd_config_states(config, "memory.store"),
               has_rings = trajd_config_states(config, "memory.rings");
    const uint64_t left_bytes = less(free_bytes, config->reserve_bytes);
    uint64_t store_bytes = free_bytes / 2; /* most of a store that is not stated */

    if (has_store)
        store_bytes = config->cache_bytes;
    else if (has_rings)
        store_bytes = least(store_bytes, less(left_bytes, config->rings_bytes));
    *rings_most_bytes = less(left_bytes, store_bytes);
    config->cache_bytes = least(config->cache_bytes, store_bytes);
    if (!has_rings)
        config->rings_bytes = least(config->rings_bytes, *rings_most_bytes);
}

/* Refuses a start for which memory has no room. Each value is at most 2^50: the sum does not
 * overflow. */
static enum trajd_status check_memory(struct trajd_control *control, struct trajd_config *config,
                                      struct trajd_error *error)
{
    const uint64_t wanted = config->cache_bytes + config->rings_bytes;
    struct trajd_memory memory;

    trajd_memory_read(&memory);
    share_memory(config, trajd_memory_available(&memory), &control->rings_most_bytes);
    if (config->cache_bytes >= LEAST_BYTES && config->rings_bytes >= LEAST_BYTES &&
        config->cache_bytes + config->rings_bytes + config->reserve_bytes <=
            trajd_memory_available(&memory))
        return TRAJD_OK;
    return trajd_error_set(
        error, TRAJD_ERR_MEMORY, 0,
        "memory.store and memory.rings need %llu MiB and memory.reserve %llu MiB, but %s has only "
        "%llu MiB free",
        (unsigned long long)(wanted >> 20), (unsigned long long)(config->reserve_bytes >> 20),
        memory.cgroup_bytes < memory.machine_bytes ? "the control group's limit" : "the machine",
        (unsigned long long)(trajd_memory_available(&memory) >> 20));
}

/* Without trajd-decoder, feeds of images are refused when they are opened. */
static enum trajd_status make_decoders(struct trajd_control *control, struct trajd_error *error)
{
    const struct trajd_thread_choice threads =
        trajd_choose_threads(&control->first_config->threads);
    char program[PATH_MAX];

    return trajd_paths_decoder(program, sizeof program)
               ? trajd_decoder_pool_create(program, threads.counts.decoders, threads.eager_decoders,
                                           &control->decoders, error)
               : TRAJD_OK;
}

static enum trajd_status open_datasets(struct trajd_control *control, struct trajd_error *error)
{
    struct trajd_open_config *now = control->now;
    enum trajd_status status = TRAJD_OK;

    for (uint32_t d = 0; d < now->config->dataset_count && !status; d++) {
        status = trajd_control_open_dataset(control, now->config, &now->config->datasets[d],
                                            now->config->cache_bytes / now->config->dataset_count,
                                            &now->datasets[d], error);
        if (status)
            break;
        pthread_mutex_lock(
            &control->mutex); /* the server's thread may be describing the datasets */
        now->dataset_count++;
        pthread_mutex_unlock(&control->mutex);
    }
    return status;
}

/* Makes the directory of the sockets where it is missing, with mode 0700. Its parent must exist. */
static enum trajd_status make_directory(const char *path, struct trajd_error *error)
{
    if (mkdir(path, 0700) == 0 || errno == EEXIST)
        return TRAJD_OK;
    return trajd_error_set(error, TRAJD_ERR_SYSTEM, errno, "runtime: %s: %s", path,
                           strerror(errno));
}

static const char *runtime_directory(const struct trajd_config *config)
{
    const char *runtime = config->runtime ? config->runtime : getenv("RUNTIME_DIRECTORY");

    return runtime ? runtime : "/run/trajd/main";
}

/* Blocks all signals while a library starts threads, which inherit the mask: a signal that a thread
 * of a library received would end the daemon. ZeroMQ's threads block signals themselves, but late
 * on a busy machine; CUDA's threads do not. */
static void block_signals(sigset_t *before)
{
    sigset_t all;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, before);
}

static enum trajd_status open_gpus(struct trajd_control *control, struct trajd_error *error)
{
    enum trajd_status status;
    sigset_t before;

    block_signals(&before);
    status = trajd_control_open_gpus(control, error);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return status;
}

static enum trajd_status start_server(struct trajd_control *control, struct trajd_error *error)
{
    const struct trajd_config *config = control->first_config;
    struct trajd_server_options options = {
        .runtime_directory = runtime_directory(config),
        .max_sessions = config->max_sessions,
        .version = TRAJD_VERSION,
        .open_feed = trajd_control_on_open_feed,
        .has_places = true,
        .has_instances = true,
        .feed_idle = trajd_control_on_feed_idle,
        .describe = trajd_control_describe,
        .context = control,
        .feed_idle_ms = (uint32_t)(config->feed_idle_ns / 1000000),
        .answers_queries = true,
        .feed_names = control->now->feed_names,
        .group_access = config->group_access,
        .remote = {.address = config->listen_tcp,
                   .keys = config->listen_keys,
                   .insecure_loopback = config->insecure_loopback,
                   .silence_ms = (uint32_t)(config->worker_timeout_ns / 1000000),
                   .log_line = log_server_warning,
                   .context = control}};
    enum trajd_status status = make_directory(options.runtime_directory, error);
    sigset_t before;

    if (status)
        return status;
    if (getrandom(&options.instance_id, sizeof options.instance_id, 0) !=
        sizeof options.instance_id)
        return trajd_error_set(error, TRAJD_ERR_SYSTEM, 0,
                               "getrandom: no random number for the daemon's instance number");
    block_signals(&before);
    status = trajd_server_create(&options, &control->server, error);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!status)
        LOG(control->log, INFO, "serving at %s", options.runtime_directory);
    if (!status && config->listen_tcp)
        LOG(control->log, INFO, "serving remote workers at %s%s",
            trajd_server_remote_endpoint(control->server),
            config->insecure_loopback ? ", without CURVE" : "");
    return status;
}

static enum trajd_status start_resample_service(struct trajd_control *control,
                                                struct trajd_error *error)
{
    const struct trajd_resample_service_options options = {
        .directory = runtime_directory(control->first_config),
        .group_access = control->first_config->group_access,
        .log = control->log,
        .thread_count = trajd_pool_thread_count(control->pool),
        .device = trajd_control_acquire_device,
        .device_lost = trajd_control_on_gpu_lost,
        .context = control};
    struct trajd_resample_service *resample_service;
    enum trajd_status status = trajd_resample_service_create(&options, &resample_service, error);

    pthread_mutex_lock(&control->mutex); /* the server's thread may be describing the service */
    control->resample_service = resample_service;
    pthread_mutex_unlock(&control->mutex);
    return status;
}

static void stop_resample_service(struct trajd_control *control)
{
    struct trajd_resample_service *resample_service;

    pthread_mutex_lock(&control->mutex);
    resample_service = control->resample_service;
    control->resample_service = NULL;
    pthread_mutex_unlock(&control->mutex);
    trajd_resample_service_destroy(&resample_service);
}

static enum trajd_status start_stats_service(struct trajd_control *control,
                                             struct trajd_error *error)
{
    const struct trajd_stats_service_options options = {
        .pool = control->pool,
        .cache_directory = trajd_control_cache_directory(control->first_config),
        .log = control->log};

    return trajd_stats_service_create(&options, &control->stats_service, error);
}

/* Returns how many episodes of a dataset are quarantined: in the index, or in the feed that has
 * most of them. *feed becomes its name, or stays. */
static uint32_t count_quarantined(const struct trajd_control *control,
                                  const struct trajd_dataset *dataset, const char **feed)
{
    const struct trajd_index *index = dataset->index;
    uint32_t most = index->episode_count + index->refused_file_count - index->kept_count;

    for (uint32_t f = 0; f < control->feeds.count; f++) {
        const struct trajd_mixture_plan *plan = control->feeds.producers[f]->plan;
        for (uint32_t p = 0; p < plan->member_count; p++)
            if (plan->members[p]->dataset == dataset &&
                plan->members[p]->quarantined.count > most) {
                most = plan->members[p]->quarantined.count;
                *feed = control->feeds.producers[f]->name;
            }
    }
    return most;
}

/* For --check: quarantined episodes are an error unless quarantine.at_most allows them. */
static enum trajd_status check_quarantine(const struct trajd_control *control,
                                          struct trajd_error *error)
{
    for (uint32_t d = 0; d < control->now->dataset_count; d++) {
        const struct trajd_dataset *dataset = control->now->datasets[d];
        const struct trajd_index *index = dataset->index;
        const int64_t at_most = trajd_open_config_at_most(control->now, dataset->name);
        const char *feed = NULL;
        const uint32_t count = count_quarantined(control, dataset, &feed);
        if (count > (at_most < 0 ? 0 : at_most))
            return trajd_error_set(
                error, TRAJD_ERR_DATA, 0,
                "dataset %s: %u of %u episodes are quarantined%s%s: repair or remove them, or "
                "accept them by `quarantine: {at_most: %u}` of datasets.%s",
                dataset->name, count, index->episode_count + index->refused_file_count,
                feed ? " for feed " : "", feed ? feed : "", count, dataset->name);
    }
    return TRAJD_OK;
}

static void close_feeds(struct trajd_control *control)
{
    for (uint32_t f = 0; f < control->feeds.count; f++)
        trajd_producer_stop(control->feeds.producers[f]);
    while (control->feeds.count) {
        struct trajd_producer *producer;
        pthread_mutex_lock(&control->mutex); /* the server's thread may be describing the feeds */
        producer = trajd_feed_list_remove_last(&control->feeds);
        pthread_mutex_unlock(&control->mutex);
        trajd_producer_destroy(&producer);
    }
}

static enum trajd_status make_feeds(struct trajd_control *control, struct trajd_error *error)
{
    for (uint32_t f = 0; f < control->now->config->feed_count; f++) {
        struct trajd_window_spec *spec = control->now->config->feeds[f];
        bool is_refused = false;
        const struct trajd_feed_source source = {
            .name = spec->feed_name, .spec = spec, .is_refused = &is_refused};
        struct trajd_producer *producer;
        enum trajd_status status = trajd_control_add_producer(control, &source, &producer, error);
        if (is_refused && control->server) {
            LOG(control->log, ERROR, "%s: the feed is not served", error->message);
            continue; /* other feeds are good, and an OPEN of this one gets the error */
        }
        if (status)
            return status;
    }
    return TRAJD_OK;
}

/* Makes the configured feeds. Where they do not all fit, makes them again with fewer slots. */
static enum trajd_status start_feeds(struct trajd_control *control, FILE *report,
                                     struct trajd_error *error)
{
    enum trajd_status status = make_feeds(control, error);
    char threads[TRAJD_THREADS_TEXT_SIZE];

    if (status == TRAJD_ERR_MEMORY) {
        close_feeds(control);
        control->has_least_slots = true;
        status = make_feeds(control, error);
    }
    for (uint32_t f = 0; report && f < control->feeds.count; f++)
        trajd_producer_report(control->feeds.producers[f], report);
    if (status)
        return status;
    trajd_threads_text(&control->first_config->threads, threads, sizeof threads);
    if (report)
        fprintf(report, "%s\n", threads);
    trajd_control_warn_of_norms(control, report);
    return control->server ? TRAJD_OK : check_quarantine(control, error);
}

enum trajd_status trajd_control_create(struct trajd_config *config, const struct trajd_log *log,
                                       bool serve, FILE *report, struct trajd_control **out,
                                       struct trajd_error *error)
{
    struct trajd_control *control = calloc(1, sizeof *control);
    struct trajd_progress progress;
    enum trajd_status status;

    *out = NULL;
    if (!control || !(control->now = calloc(1, sizeof *control->now))) {
        free(control);
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0,
                               "no memory for the daemon's control structures");
    }
    control->first_config = control->now->config = config;
    control->exit_idle_ns = config->exit_idle_ns;
    for (uint32_t f = 0; f < config->feed_count; f++)
        control->now->feed_names[f] = config->feeds[f]->feed_name;
    control->log = log;
    pthread_mutex_init(&control->mutex, NULL);
    trajd_heartbeat_init_condition(&control->wake);
    trajd_progress_begin_in_log(&progress, log);
    status = check_memory(control, config, error);
    if (!status && serve)
        status = start_server(
            control,
            error); /* first, so that a directory that another daemon uses is found at once */
    if (!status)
        status = make_decoders(control, error);
    if (!status)
        status = open_datasets(control, error);
    if (!status)
        status = trajd_pool_create(trajd_choose_threads(&config->threads).counts.resample,
                                   "trajd-resample", &control->pool, error);
    if (!status && serve)
        status = open_gpus(control, error);
    if (!status)
        status = start_stats_service(control, error);
    if (!status)
        status = start_feeds(control, report, error);
    if (!status && serve)
        status = trajd_control_start_opener(control, error);
    if (!status && serve)
        status = trajd_control_start_queries(control, error);
    if (!status && serve)
        status = start_resample_service(control, error);
    trajd_progress_begin(NULL);
    if (status)
        trajd_control_destroy(&control);
    *out = control;
    return status;
}

void trajd_control_reload(struct trajd_control *control, const struct trajd_config_source *source)
{
    pthread_mutex_lock(&control->mutex);
    control->reload.is_running = true;
    control->reload.began_ns = trajd_now_ns();
    control->reload_from = *source;
    pthread_cond_signal(&control->wake);
    pthread_mutex_unlock(&control->mutex);
}

void trajd_control_get_reload(struct trajd_control *control, struct trajd_reload *reload)
{
    pthread_mutex_lock(&control->mutex);
    *reload = control->reload;
    pthread_mutex_unlock(&control->mutex);
}

void trajd_control_drain(struct trajd_control *control, uint32_t timeout_ms)
{
    trajd_heartbeat_cancel(&control->opener.heartbeat); /* no worker would read its feed */
    trajd_server_drain(control->server, timeout_ms);
}

void trajd_control_destroy(struct trajd_control **out)
{
    struct trajd_control *control = *out;

    *out = NULL;
    if (!control)
        return;
    stop_resample_service(control);
    trajd_control_stop_queries(control);
    if (control->stats_service)
        trajd_stats_service_stop(control->stats_service); /* an OPEN may be waiting for it */
    trajd_control_stop_opener(control);
    close_feeds(control);
    trajd_stats_service_destroy(&control->stats_service);
    trajd_server_destroy(&control->server);
    trajd_control_close_gpus(control);
    for (uint32_t d = 0; d < control->now->dataset_count; d++)
        trajd_dataset_destroy(&control->now->datasets[d]);
    if (control->now->config != control->first_config)
        trajd_config_destroy(&control->now->config);
    free(control->now);
    trajd_decoder_pool_destroy(&control->decoders);
    trajd_pool_destroy(&control->pool);
    pthread_cond_destroy(&control->wake);
    pthread_mutex_destroy(&control->mutex);
    free(control);
}
