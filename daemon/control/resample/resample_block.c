/* A descriptor is untrusted. It must be a memory file that is sealed against resizing and whose
 * pages are allocated. A block is copied to private memory before anything in it is read. */
#include "daemon/control/resample/resample_block.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/base/clock.h"
#include "kernels/dispatch/runner.h"

enum { SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL, PAGES_UNIT = 512 };

/* after the GPU had no room: each attempt costs time and is logged */
static const int64_t gpu_pause_ns = INT64_C(10000000000);

/* ---- files ---- */

static enum trajd_status refuse_holes(struct trajd_error *error)
{
    return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                           "RESAMPLE: the file has holes: the client must allocate all of it");
}

/* Checks that the file is memory (only memory files have seals, so reading cannot block) and that
 * its pages are allocated: otherwise writing the result would allocate pages at our cost. */
static enum trajd_status check_file(int fd, uint64_t size_bytes, struct stat *status,
                                    struct trajd_error *error)
{
    const int seals = fcntl(fd, F_GET_SEALS);

    if (seals < 0 || (seals & SEALS) != SEALS)
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                               "RESAMPLE: the descriptor must be a memfd that is sealed "
                               "(F_SEAL_SHRINK, F_SEAL_GROW, F_SEAL_SEAL)");
    if (fstat(fd, status) || size_bytes > (uint64_t)status->st_size ||
        size_bytes > TRAJD_BLOCK_MAX_BYTES)
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                               "RESAMPLE: a block of %llu bytes in a file of %lld bytes: a block "
                               "has at most %llu bytes, and is in the file",
                               (unsigned long long)size_bytes, (long long)status->st_size,
                               (unsigned long long)TRAJD_BLOCK_MAX_BYTES);
    return status->st_blocks < status->st_size / PAGES_UNIT ? refuse_holes(error) : TRAJD_OK;
}

/* Checks the number of pages again after the result was written: the client may have punched holes
 * meanwhile, and pages beyond the block may have hidden holes. Frees the pages that the result
 * allocated. */
static enum trajd_status check_pages(int fd, uint64_t size_bytes, const struct stat *before,
                                     struct trajd_error *error)
{
    struct stat status;

    if (!fstat(fd, &status) && status.st_blocks <= before->st_blocks)
        return TRAJD_OK;
    fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, (off_t)size_bytes);
    return refuse_holes(error);
}

static enum trajd_status cannot_be(const char *what, struct trajd_error *error)
{
    return trajd_error_set(error, TRAJD_ERR_ARGUMENT, errno,
                           "RESAMPLE: the descriptor cannot be %s: %s", what, strerror(errno));
}

/* Reading and writing never blocks, because the file is memory. */
static enum trajd_status run_on(struct trajd_runner *runner, int fd, uint64_t size_bytes,
                                struct trajd_error *error)
{
    uint64_t answer_at, answer_bytes;
    void *room;
    enum trajd_status status = trajd_runner_room(runner, size_bytes, &room, error);

    if (status)
        return status;
    errno = EIO; /* where a part is read or written */
    if (pread(fd, room, size_bytes, 0) != (ssize_t)size_bytes)
        return cannot_be("read", error);
    status = trajd_runner_run(runner, size_bytes, &answer_at, &answer_bytes, error);
    errno = EIO;
    if (!status && pwrite(fd, (uint8_t *)room + answer_at, answer_bytes, (off_t)answer_at) !=
                       (ssize_t)answer_bytes)
        return cannot_be("written to", error);
    return status;
}

/* ---- the GPU and the CPU ---- */

struct trajd_device *trajd_resample_backend_device(const struct trajd_resample_backend *backend)
{
    return trajd_now_ns() < backend->gpu_again_ns
               ? NULL
               : backend->options->device(backend->options->context);
}

static void pause_gpu(struct trajd_resample_backend *backend, const struct trajd_error *why)
{
    LOG(backend->options->log, WARNING, "RESAMPLE uses the CPU: %s", why->message);
    trajd_runner_destroy(&backend->on_gpu); /* frees the GPU's memory, too */
    backend->gpu_again_ns = trajd_now_ns() + gpu_pause_ns;
}

/* Returns TRAJD_ERR_MEMORY or TRAJD_ERR_DEVICE where the CPU has to do it. */
static enum trajd_status run_on_gpu(struct trajd_resample_backend *backend,
                                    struct trajd_device *device, int fd, uint64_t size_bytes,
                                    struct trajd_error *error)
{
    enum trajd_status status;

    if (!backend->on_gpu && trajd_runner_create(device, NULL, &backend->on_gpu, error)) {
        pause_gpu(backend, error);
        return TRAJD_ERR_MEMORY;
    }
    status = run_on(backend->on_gpu, fd, size_bytes, error);
    if (status == TRAJD_ERR_MEMORY || status == TRAJD_ERR_DEVICE)
        pause_gpu(backend, error);
    if (status == TRAJD_ERR_DEVICE)
        backend->options->device_lost(backend->options->context);
    return status;
}

/* The pool's threads inherit this thread's niceness. A pool that cannot be made only costs speed. */
static enum trajd_status run_on_cpu(struct trajd_resample_backend *backend, int fd,
                                    uint64_t size_bytes, struct trajd_error *error)
{
    const struct trajd_resample_service_options *options = backend->options;
    enum trajd_status status = TRAJD_OK;

    if (!backend->on_cpu) {
        if (trajd_pool_create(options->thread_count, "trajd-for-cli", &backend->pool, error))
            LOG(options->log, WARNING, "RESAMPLE uses one thread: %s", error->message);
        status = trajd_runner_create(NULL, backend->pool, &backend->on_cpu, error);
    }
    return status ? status : run_on(backend->on_cpu, fd, size_bytes, error);
}

enum trajd_status trajd_resample_backend_run(struct trajd_resample_backend *backend, int fd,
                                             uint64_t size_bytes, struct trajd_device **device,
                                             struct trajd_error *error)
{
    struct stat before = {0};
    enum trajd_status status = check_file(fd, size_bytes, &before, error);

    if (status)
        return status;
    *device = trajd_resample_backend_device(backend);
    if (*device)
        status = run_on_gpu(backend, *device, fd, size_bytes, error);
    else
        trajd_runner_destroy(&backend->on_gpu); /* it may have failed in a feed */
    if (!*device || status == TRAJD_ERR_MEMORY || status == TRAJD_ERR_DEVICE) {
        *device = NULL;
        status = run_on_cpu(backend, fd, size_bytes, error);
    }
    return status ? status : check_pages(fd, size_bytes, &before, error);
}

void trajd_resample_backend_release(struct trajd_resample_backend *backend)
{
    trajd_runner_destroy(&backend->on_cpu);
    trajd_pool_destroy(&backend->pool);
    trajd_runner_destroy(&backend->on_gpu);
}
