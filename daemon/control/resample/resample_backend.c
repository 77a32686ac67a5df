#include "daemon/control/resample/resample_backend.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/base/clock.h"
#include "kernels/dispatch/runner.h"

enum { SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL, BLOCK_UNIT = 512 };

/* after the GPU had no room: each attempt costs time and is logged */
static const int64_t gpu_pause_ns = INT64_C(10000000000);

/* Copies size_bytes from the file to `memory` (is_read), or the other way. Never blocks, because
 * the file is memory. */
static enum trajd_status copy(int fd, bool is_read, void *memory, uint64_t size_bytes, uint64_t at,
                              struct trajd_error *error)
{
    uint8_t *next = memory;

    while (size_bytes) {
        const ssize_t done = is_read ? pread(fd, next, size_bytes, (off_t)at)
                                     : pwrite(fd, next, size_bytes, (off_t)at);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return trajd_error_set(error, TRAJD_ERR_ARGUMENT, done < 0 ? errno : 0,
                                   "RESAMPLE: the descriptor cannot be %s: %s",
                                   is_read ? "read" : "written to",
                                   done < 0 ? strerror(errno) : "it ends");
        next += done;
        at += (uint64_t)done;
        size_bytes -= (uint64_t)done;
    }
    return TRAJD_OK;
}

static enum trajd_status refuse_holes(struct trajd_error *error)
{
    return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                           "RESAMPLE: the file has holes: the client must allocate all of it");
}

/* Checks that the file is memory (only memory files have seals, so reading cannot block) and that
 * its pages are allocated: otherwise writing the result would allocate pages at our cost. */
static enum trajd_status check_file(int fd, uint64_t size_bytes, int64_t *blocks,
                                    struct trajd_error *error)
{
    const int seals = fcntl(fd, F_GET_SEALS);
    struct stat status = {0};

    if (seals < 0 || (seals & SEALS) != SEALS)
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                               "RESAMPLE: the descriptor must be a memfd that is sealed "
                               "(F_SEAL_SHRINK, F_SEAL_GROW, F_SEAL_SEAL)");
    if (fstat(fd, &status) || status.st_size < 0 || (uint64_t)status.st_size < size_bytes ||
        size_bytes > TRAJD_BLOCK_MAX_BYTES)
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                               "RESAMPLE: a block of %llu bytes in a file of %lld bytes: a block "
                               "has at most %llu bytes, and "
                               "lies in the file",
                               (unsigned long long)size_bytes, (long long)status.st_size,
                               (unsigned long long)TRAJD_BLOCK_MAX_BYTES);
    *blocks = status.st_blocks;
    return status.st_blocks < status.st_size / BLOCK_UNIT ? refuse_holes(error) : TRAJD_OK;
}

/* Checks the number of pages again after the result was written: the client may have punched holes
 * meanwhile, and pages beyond the block may have hidden holes. Frees the pages that the result
 * allocated. */
static enum trajd_status check_pages(int fd, uint64_t size_bytes, int64_t blocks,
                                     struct trajd_error *error)
{
    struct stat status;

    if (!fstat(fd, &status) && status.st_blocks <= blocks)
        return TRAJD_OK;
    fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, (off_t)size_bytes);
    return refuse_holes(error);
}

static enum trajd_status run_on(struct trajd_runner *runner, int fd, uint64_t size_bytes,
                                struct trajd_error *error)
{
    uint64_t answer_at, answer_bytes;
    void *room;
    enum trajd_status status = trajd_runner_room(runner, size_bytes, &room, error);

    if (!status)
        status = copy(fd, true, room, size_bytes, 0, error);
    if (!status)
        status = trajd_runner_run(runner, size_bytes, &answer_at, &answer_bytes, error);
    if (!status)
        status = copy(fd, false, (uint8_t *)room + answer_at, answer_bytes, answer_at, error);
    return status;
}

struct trajd_device *trajd_resample_backend_device(const struct trajd_resample_backend *backend)
{
    return trajd_now_ns() < backend->gpu_again_ns
               ? NULL
               : backend->options.device(backend->options.context);
}

static void pause_gpu(struct trajd_resample_backend *backend, const struct trajd_error *why)
{
    LOG(backend->options.log, WARNING, "RESAMPLE uses the CPU: %s", why->message);
    /* frees the GPU's memory, too */
    trajd_runner_destroy(&backend->on_gpu);
    backend->gpu_again_ns = trajd_now_ns() + gpu_pause_ns;
}

/* Returns the runner on the GPU; NULL: there is no GPU now, or it has no room. */
static struct trajd_runner *find_gpu(struct trajd_resample_backend *backend)
{
    struct trajd_device *device = trajd_resample_backend_device(backend);
    struct trajd_error error;

    if (backend->on_gpu && device != backend->device)
        trajd_runner_destroy(&backend->on_gpu);
    backend->device = device;
    if (device && !backend->on_gpu && trajd_runner_create(device, NULL, &backend->on_gpu, &error))
        pause_gpu(backend, &error);
    return backend->on_gpu;
}

/* The pool's threads inherit this thread's niceness. A pool that cannot be made only costs speed.
 * */
static enum trajd_status make_cpu(struct trajd_resample_backend *backend, struct trajd_error *error)
{
    if (trajd_pool_create(backend->options.thread_count, "trajd-for-cli", &backend->pool, error))
        LOG(backend->options.log, WARNING, "RESAMPLE uses one thread: %s", error->message);
    return trajd_runner_create(NULL, backend->pool, &backend->on_cpu, error);
}

static enum trajd_status run_on_cpu(struct trajd_resample_backend *backend, int fd,
                                    uint64_t size_bytes, struct trajd_error *error)
{
    enum trajd_status status = backend->on_cpu ? TRAJD_OK : make_cpu(backend, error);

    return status ? status : run_on(backend->on_cpu, fd, size_bytes, error);
}

/* Runs the block on the GPU if it can, else on the CPU. */
static enum trajd_status run_block(struct trajd_resample_backend *backend, int fd,
                                   uint64_t size_bytes, struct trajd_device **device,
                                   struct trajd_error *error)
{
    struct trajd_runner *gpu = find_gpu(backend);
    enum trajd_status status;

    *device = gpu ? backend->device : NULL;
    if (gpu) {
        status = run_on(gpu, fd, size_bytes, error);
        if (status != TRAJD_ERR_MEMORY && status != TRAJD_ERR_DEVICE)
            return status;
        pause_gpu(backend, error);
        if (status == TRAJD_ERR_DEVICE)
            backend->options.device_lost(backend->options.context);
    }
    *device = NULL;
    return run_on_cpu(backend, fd, size_bytes, error);
}

/* The heartbeat counts this as waiting: the work of a block is bounded, but not the time of a
 * driver call, nor the processor time that a low-priority thread gets. */
enum trajd_status trajd_resample_backend_run(struct trajd_resample_backend *backend, int fd,
                                             uint64_t size_bytes, struct trajd_device **device,
                                             struct trajd_error *error)
{
    int64_t blocks = 0;
    enum trajd_status status = check_file(fd, size_bytes, &blocks, error);

    if (status)
        return status;
    trajd_heartbeat_wait();
    status = run_block(backend, fd, size_bytes, device, error);
    trajd_heartbeat_resume();
    return status ? status : check_pages(fd, size_bytes, blocks, error);
}

void trajd_resample_backend_release(struct trajd_resample_backend *backend)
{
    trajd_runner_destroy(&backend->on_cpu);
    trajd_pool_destroy(&backend->pool);
    trajd_runner_destroy(&backend->on_gpu);
}
