/* Opens a GPU, and accounts its memory for rings and rows. */
#include "daemon/producer/gpu_internal.h"

#include <stdlib.h>

#define RING_UNIT_BYTES (UINT64_C(2) << 20) /* the driver's unit of allocation */

static uint64_t round_up(uint64_t size_bytes)
{
    return (size_bytes + RING_UNIT_BYTES - 1) / RING_UNIT_BYTES * RING_UNIT_BYTES;
}

enum trajd_status trajd_gpu_open(const struct trajd_gpu_options *options, struct trajd_gpu **out,
                                 struct trajd_error *error)
{
    struct trajd_gpu *gpu = calloc(1, sizeof *gpu);
    uint64_t remaining = 0;
    enum trajd_status status;

    *out = NULL;
    if (!gpu)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "GPU %u: no memory", options->index);
    gpu->options = *options;
    pthread_mutex_init(&gpu->mutex, NULL);
    status = trajd_device_open(options->index, &gpu->device, error);
    if (!status)
        status = trajd_device_free_bytes(gpu->device, &remaining, error);
    if (!status &&
        (options->rows_bytes > remaining || options->rings_bytes > remaining - options->rows_bytes))
        status = trajd_error_set(
            error, TRAJD_ERR_MEMORY, 0,
            "GPU %u: gpu.rows and gpu.rings need %llu MiB, but only %llu MiB are free",
            options->index,
            (unsigned long long)((options->rows_bytes + options->rings_bytes) >> 20),
            (unsigned long long)(remaining >> 20));
    if (status)
        trajd_gpu_close(&gpu);
    *out = gpu;
    return status;
}

void trajd_gpu_close(struct trajd_gpu **out)
{
    struct trajd_gpu *gpu = *out;

    *out = NULL;
    if (!gpu)
        return;
    if (gpu->device)
        trajd_device_close(&gpu->device);
    pthread_mutex_destroy(&gpu->mutex);
    free(gpu);
}

struct trajd_device *trajd_gpu_device(const struct trajd_gpu *gpu)
{
    return gpu->device;
}

const char *trajd_gpu_id(const struct trajd_gpu *gpu)
{
    return trajd_device_info(gpu->device)->uuid;
}

/* ---- rings ---- */

enum trajd_status trajd_gpu_charge_ring(struct trajd_gpu *gpu, uint64_t size_bytes,
                                        const char *what, struct trajd_error *error)
{
    const uint64_t remaining = gpu->options.rings_bytes - gpu->rings_used_bytes;

    if (size_bytes > remaining || round_up(size_bytes) > remaining)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0,
                               "%s: needs %llu bytes, but gpu.rings on %s has only %llu bytes left",
                               what, (unsigned long long)size_bytes, trajd_gpu_id(gpu),
                               (unsigned long long)remaining);
    pthread_mutex_lock(&gpu->mutex);
    gpu->rings_used_bytes += round_up(size_bytes);
    pthread_mutex_unlock(&gpu->mutex);
    return TRAJD_OK;
}

void trajd_gpu_discharge_ring(struct trajd_gpu *gpu, uint64_t size_bytes)
{
    pthread_mutex_lock(&gpu->mutex);
    gpu->rings_used_bytes -= round_up(size_bytes);
    pthread_mutex_unlock(&gpu->mutex);
}

enum trajd_status trajd_gpu_take_ring(struct trajd_gpu *gpu, uint64_t size_bytes, const char *what,
                                      void **memory, struct trajd_error *error)
{
    enum trajd_status status = trajd_gpu_charge_ring(gpu, size_bytes, what, error);

    *memory = NULL;
    if (status)
        return status;
    status = trajd_device_alloc(gpu->device, round_up(size_bytes), memory, error);
    if (status) {
        trajd_gpu_discharge_ring(gpu, size_bytes);
        trajd_error_prefix(error, "%s", what);
    }
    return status;
}

void trajd_gpu_return_ring(struct trajd_gpu *gpu, void *memory, uint64_t size_bytes)
{
    if (!memory)
        return;
    trajd_device_free(gpu->device, memory);
    trajd_gpu_discharge_ring(gpu, size_bytes);
}

/* ---- description ---- */

static void describe_frames(struct trajd_gpu_frames *frames, struct trajd_json *json)
{
    const struct trajd_index *index = frames->dataset->index;
    const uint32_t array = index->streams[frames->stream_index].array_index;

    pthread_mutex_lock(&frames->mutex);
    trajd_json_open_object(json, NULL);
    trajd_json_string(json, "dataset", frames->dataset->name);
    trajd_json_string(json, "path", index->arrays[array].path);
    trajd_json_u64(json, "bytes", frames->room * frames->stride);
    trajd_json_string(json, "place", frames->room ? "gpu" : "host");
    trajd_json_u64(json, "feeds", frames->holders);
    trajd_json_u64(json, "frames", frames->total);
    trajd_json_u64(json, "resident_frames", frames->resident);
    trajd_json_close_object(json);
    pthread_mutex_unlock(&frames->mutex);
}

void trajd_gpu_describe(struct trajd_gpu *gpu, struct trajd_json *json)
{
    pthread_mutex_lock(&gpu->mutex);
    trajd_json_open_object(json, NULL);
    trajd_json_string(json, "name", trajd_device_info(gpu->device)->name);
    trajd_json_string(json, "uuid", trajd_gpu_id(gpu));
    trajd_json_u64(json, "rows_bytes", gpu->rows_used_bytes);
    trajd_json_u64(json, "rows_budget_bytes", gpu->options.rows_bytes);
    trajd_json_u64(json, "rings_bytes", gpu->rings_used_bytes);
    trajd_json_u64(json, "rings_budget_bytes", gpu->options.rings_bytes);
    trajd_json_u64(json, "filled_bytes", gpu->filled_bytes);
    trajd_json_number(json, "fill_seconds", "%.6f", gpu->fill_seconds);
    trajd_json_open_array(json, "resident");
    for (const struct trajd_gpu_array *r = gpu->arrays; r; r = r->next) {
        trajd_json_open_object(json, NULL);
        trajd_json_string(json, "dataset", r->dataset->name);
        trajd_json_string(json, "path", r->dataset->index->arrays[r->array_index].path);
        trajd_json_u64(json, "bytes", r->size_bytes);
        trajd_json_string(json, "place", r->is_streamed ? "host" : "gpu");
        trajd_json_u64(json, "feeds", r->holders);
        trajd_json_close_object(json);
    }
    for (struct trajd_gpu_frames *f = gpu->frames; f; f = f->next)
        describe_frames(f, json);
    pthread_mutex_unlock(&gpu->mutex);
    trajd_json_close_array(json);
    trajd_json_close_object(json);
}
