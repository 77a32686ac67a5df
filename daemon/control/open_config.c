/* What a configuration names and the daemon opens: datasets and GPUs. */
#include "daemon/control/control_internal.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/base/paths.h"
#include "daemon/base/defaults.h"
#include "proto/plural.h"

enum { UNREAD_LOGGED = 16 };

const char *trajd_control_cache_directory(const struct trajd_config *config)
{
    return config->cache ? config->cache : getenv("CACHE_DIRECTORY");
}

/* Logs rows that the layout's policies for stamps leave out of kept episodes. */
static void log_dropped_rows(const struct trajd_control *control,
                             const struct trajd_dataset *dataset)
{
    const struct trajd_index *index = dataset->index;

    for (uint32_t c = 0; c < index->clock_count; c++) {
        unsigned long long dropped = 0, kept = 0;
        for (uint32_t e = 0; e < index->episode_count; e++) {
            if (index->episodes[e].quarantine)
                continue;
            dropped += index->episodes[e].clocks[c].dropped_rows;
            kept += (unsigned long long)index->episodes[e].clocks[c].row_count;
        }
        if (dropped)
            LOG(control->log, WARNING,
                "dataset %s: clock %s: %llu of %llu rows are left out: their stamps repeat or go "
                "back",
                dataset->name, index->clocks[c].name, dropped, dropped + kept);
    }
}

static void log_quarantine(const struct trajd_control *control, const struct trajd_dataset *dataset)
{
    const struct trajd_index *index = dataset->index;

    LOG(control->log, INFO, "dataset %s: %u file%s (%u from the cache), %u episode%s kept of %u",
        dataset->name, index->file_count, trajd_plural(index->file_count), index->cached_file_count,
        index->kept_count, trajd_plural(index->kept_count),
        index->episode_count + index->refused_file_count);
    if (index->cache_errno)
        LOG(control->log, WARNING,
            "dataset %s: its index cannot be written to the directory of caches: %s: the next "
            "start reads all files again",
            dataset->name, strerror(index->cache_errno));
    else if (index->lock_errno)
        LOG(control->log, WARNING,
            "dataset %s: the directory of caches cannot be locked: %s: each daemon that shares it "
            "indexes the files itself",
            dataset->name,
            index->lock_errno == ETIMEDOUT ? "the daemon that has the lock shows no sign of life"
                                           : strerror(index->lock_errno));
    for (uint32_t n = 0; n < index->unread_count && n < UNREAD_LOGGED; n++)
        LOG(control->log, WARNING, "dataset %s: %s", dataset->name, index->notes[n]);
    if (index->unread_count > UNREAD_LOGGED)
        LOG(control->log, WARNING,
            "dataset %s: %u files in all are left out: trajctl inspect lists them", dataset->name,
            index->unread_count);
    for (uint32_t f = 0; f < index->file_count; f++)
        if (index->files[f].refusal)
            LOG(control->log, WARNING, "dataset %s: refused: %s", dataset->name,
                index->files[f].refusal);
    for (uint32_t e = 0; e < index->episode_count; e++)
        if (index->episodes[e].quarantine)
            LOG(control->log, WARNING, "dataset %s: quarantined: %s", dataset->name,
                index->episodes[e].quarantine);
    log_dropped_rows(control, dataset);
}

enum trajd_status trajd_control_open_dataset(struct trajd_control *control,
                                             const struct trajd_config *config,
                                             const struct trajd_config_dataset *from,
                                             uint64_t cache_bytes, struct trajd_dataset **dataset,
                                             struct trajd_error *error)
{
    char helper[PATH_MAX], layouts[PATH_MAX];
    const struct trajd_thread_choice threads = trajd_choose_threads(&config->threads);
    const struct trajd_dataset_options options = {
        .name = from->name,
        .decoders = control->decoders,
        .decoder_count = threads.counts.decoders,
        .cache_budget_bytes = cache_bytes,
        .reader_count = threads.counts.readers,
        .index = {.path = from->path,
                  .layout = from->layout,
                  .layout_directory = layouts,
                  .version = config->version,
                  .cache_directory = trajd_control_cache_directory(config),
                  .helper_path = helper,
                  .child_count = config->index_children ? config->index_children : threads.cores,
                  .file_timeout_ms = (uint32_t)(config->index_file_timeout_ns / 1000000),
                  .allows_uneven_rows = config->version < 2,
                  .rate = from->rate,
                  .clock_rates = from->clock_rates,
                  .clock_rate_count = from->clock_rate_count,
                  .color = from->color,
                  .media_folder = from->media}};
    enum trajd_status status;

    if (!trajd_paths_helper(helper, sizeof helper) || !trajd_paths_layouts(layouts, sizeof layouts))
        return trajd_error_set(
            error, TRAJD_ERR_NOT_FOUND, 0,
            "cannot find trajd-indexer or the layouts, neither beside this program nor below its "
            "prefix: install trajd completely");
    trajd_heartbeat_reads(from->path);
    status = trajd_dataset_open(&options, dataset, error);
    trajd_heartbeat_reads(NULL);
    if (!status)
        log_quarantine(control, *dataset);
    return status;
}

struct trajd_dataset *trajd_open_config_find(const struct trajd_open_config *open_config,
                                             const char *name)
{
    for (uint32_t d = 0; d < open_config->dataset_count; d++)
        if (strcmp(open_config->datasets[d]->name, name) == 0)
            return open_config->datasets[d];
    return NULL;
}

int64_t trajd_open_config_at_most(const struct trajd_open_config *open_config, const char *name)
{
    const struct trajd_config *config = open_config->config;

    for (uint32_t d = 0; d < config->dataset_count; d++)
        if (strcmp(config->datasets[d].name, name) == 0)
            return config->datasets[d].quarantine_at_most;
    return -1;
}

struct trajd_window_spec *trajd_open_config_find_spec(const struct trajd_open_config *open_config,
                                                      const char *name)
{
    const struct trajd_config *config = open_config->config;

    for (uint32_t f = 0; f < config->feed_count; f++)
        if (strcmp(config->feeds[f]->feed_name, name) == 0)
            return config->feeds[f];
    return NULL;
}

/* ---- GPUs ---- */

/* Fills *error with the reason that the driver, or a build without CUDA, gives. */
static enum trajd_status no_device(const char *text, struct trajd_error *error)
{
    struct trajd_device *device;
    struct trajd_error why = {0};

    if (!trajd_device_open(0, &device, &why))
        trajd_device_close(&device);
    return trajd_error_set(error, TRAJD_ERR_DEVICE, 0,
                           "gpu.devices: %s: this process finds no GPU that it can use%s%s", text,
                           why.status ? ": " : "", why.message);
}

/* Parses "all" or "0,2". Sets bit g of *wanted for GPU g. */
static enum trajd_status read_devices(const char *text, uint32_t count, uint32_t *wanted,
                                      struct trajd_error *error)
{
    const char *at = text;

    *wanted = 0;
    if (strcmp(text, "all") == 0) {
        *wanted = count ? (uint32_t)((UINT64_C(1) << count) - 1) : 0;
        return count ? TRAJD_OK : no_device(text, error);
    }
    while (*at) {
        char *end;
        const unsigned long index = strtoul(at, &end, 10);
        if (end == at || *at < '0' || *at > '9' || (*end && (*end != ',' || !end[1])) ||
            index >= TRAJD_CONTROL_MAX_GPUS)
            return trajd_error_set(
                error, TRAJD_ERR_ARGUMENT, 0,
                "gpu.devices: %s: must be `all`, or numbers below %d such as \"0,2\"", text,
                TRAJD_CONTROL_MAX_GPUS);
        if (!count)
            return no_device(text, error);
        if (index >= count)
            return trajd_error_set(error, TRAJD_ERR_DEVICE, 0,
                                   "gpu.devices: %s: this process can use only %u GPU%s", text,
                                   count, trajd_plural(count));
        *wanted |= 1u << index;
        at = *end ? end + 1 : end;
    }
    return TRAJD_OK;
}

static enum trajd_status open_one(struct trajd_control *control, uint32_t index,
                                  struct trajd_error *error)
{
    const struct trajd_gpu_options options = {.index = index,
                                              .rows_bytes = control->first_config->gpu_rows_bytes,
                                              .rings_bytes = control->first_config->gpu_rings_bytes,
                                              .pool = control->pool};
    struct trajd_gpu *gpu;
    enum trajd_status status = trajd_gpu_open(&options, &gpu, error);

    if (status)
        return status;
    pthread_mutex_lock(&control->mutex); /* the server's thread may be describing the GPUs */
    control->gpus[control->gpu_count++] = gpu;
    pthread_mutex_unlock(&control->mutex);
    LOG(control->log, INFO, "GPU %u: %s, %s: up to %llu MiB of rows and %llu MiB of rings", index,
        trajd_device_info(trajd_gpu_device(gpu))->name, trajd_gpu_id(gpu),
        (unsigned long long)(options.rows_bytes >> 20),
        (unsigned long long)(options.rings_bytes >> 20));
    return TRAJD_OK;
}

enum trajd_status trajd_control_open_gpus(struct trajd_control *control, struct trajd_error *error)
{
    const char *devices = control->first_config->gpu_devices;
    const uint32_t found = devices ? trajd_device_count() : 0,
                   count = found < TRAJD_CONTROL_MAX_GPUS ? found : TRAJD_CONTROL_MAX_GPUS;
    uint32_t wanted = 0;
    enum trajd_status status = devices ? read_devices(devices, count, &wanted, error) : TRAJD_OK;

    for (uint32_t g = 0; g < count && !status; g++)
        if (wanted & 1u << g)
            status = open_one(control, g, error);
    if (!status || status == TRAJD_ERR_ARGUMENT || !control->first_config->gpu_fall_back)
        return status;
    LOG(control->log, WARNING, "%s: %s (gpu.fall_back)", error->message,
        control->gpu_count ? "batches for this GPU and those after it are in host memory"
                           : "batches are in host memory");
    return TRAJD_OK;
}

void trajd_control_close_gpus(struct trajd_control *control)
{
    while (control->gpu_count)
        trajd_gpu_close(&control->gpus[--control->gpu_count]);
}

struct trajd_gpu *trajd_control_find_gpu(struct trajd_control *control, const char *uuid,
                                         struct trajd_error *error)
{
    if (__atomic_load_n(&control->gpu_is_lost, __ATOMIC_RELAXED)) { /* relaxed: orders nothing */
        trajd_error_set(error, TRAJD_ERR_DEVICE, 0, "GPU %s: a GPU of the daemon has failed", uuid);
        return NULL;
    }
    for (uint32_t g = 0; g < control->gpu_count; g++)
        if (strcmp(trajd_gpu_id(control->gpus[g]), uuid) == 0)
            return control->gpus[g];
    trajd_error_set(error, TRAJD_ERR_UNSUPPORTED, 0, "GPU %s: the daemon uses %s", uuid,
                    control->gpu_count
                        ? "other GPUs (see gpu.devices in its configuration, or its container)"
                        : "no GPU (see gpu.devices in its configuration)");
    return NULL;
}

struct trajd_device *trajd_control_acquire_device(void *context)
{
    const struct trajd_control *control = context;
    /* relaxed: orders nothing */
    const bool is_lost = __atomic_load_n(&control->gpu_is_lost, __ATOMIC_RELAXED);

    return control->gpu_count && !is_lost ? trajd_gpu_device(control->gpus[0]) : NULL;
}

void trajd_control_on_gpu_lost(void *context)
{
    struct trajd_control *control = context;

    pthread_mutex_lock(&control->mutex);
    __atomic_store_n(&control->gpu_is_lost, true, __ATOMIC_RELAXED); /* orders nothing */
    /* where gpu.fall_back is set, the opener closes the feeds on GPUs */
    pthread_cond_signal(&control->wake);
    pthread_mutex_unlock(&control->mutex);
}

void trajd_control_suspect_gpu(struct trajd_control *control, const struct trajd_gpu *gpu,
                               const struct trajd_error *why)
{
    struct trajd_error failure;
    uint64_t free_bytes;

    if (!trajd_device_free_bytes(trajd_gpu_device(gpu), &free_bytes, &failure))
        return; /* the GPU works; e.g. its memory cannot be shared */
    LOG(control->log, ERROR, "GPU %s: %s", trajd_gpu_id(gpu), why->message);
    trajd_control_on_gpu_lost(control);
}

bool trajd_control_goes_on_without_gpus(const struct trajd_control *control)
{
    return __atomic_load_n(&control->gpu_is_lost, __ATOMIC_RELAXED) &&
           control->first_config->gpu_fall_back;
}

bool trajd_control_gpu_is_lost(const struct trajd_control *control)
{
    return __atomic_load_n(&control->gpu_is_lost, __ATOMIC_RELAXED) &&
           !control->first_config->gpu_fall_back;
}
