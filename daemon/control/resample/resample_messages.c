/* Messages of programs that have rows resampled, and the blocks that they send (kernels/block.h).
 *
 * A descriptor is untrusted. It must be a memory file that is sealed against resizing and whose
 * pages are allocated. A block is copied to private memory before anything in it is read. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/base/clock.h"
#include "daemon/control/resample/resample_internal.h"
#include "kernels/dispatch/runner.h"
#include "proto/wire.h"

enum {
    FRAME_BYTES = 2048,
    MESSAGE_DESCRIPTORS = 253, /* SCM_MAX_FD of Linux: more are never in one message */
    SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL,
    BLOCK_UNIT = 512,
};

/* after the GPU had no room: each attempt costs time and is logged */
static const int64_t gpu_pause_ns = INT64_C(10000000000);

/* ---- blocks ---- */

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
                               "is in the file",
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

/* Returns the GPU that blocks go to now, or NULL where the CPU resamples. */
static struct trajd_device *device_now(const struct trajd_resample_backend *backend)
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
    struct trajd_device *device = device_now(backend);
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

/* Resamples the block of size_bytes in the file `fd` in place. *device is NULL where the CPU did it.
 * TRAJD_ERR_ARGUMENT: the descriptor or the block is not usable. The heartbeat counts this as waiting: the work of a block is bounded, but not the time of a
 * driver call, nor the processor time that a low-priority thread gets. */
static enum trajd_status resample(struct trajd_resample_backend *backend, int fd,
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

/* ---- messages ---- */

static void count(uint64_t *counter, uint64_t by)
{
    __atomic_add_fetch(counter, by, __ATOMIC_RELAXED);
}

/* Sends a message. Returns false where the client does not read its answers. */
static bool answer(int connection, const struct trajd_wire_message *message)
{
    uint8_t frame[FRAME_BYTES];
    size_t size;

    return !trajd_wire_encode(message, frame, sizeof frame, &size, NULL) &&
           send(connection, frame, size, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)size;
}

bool trajd_resample_refuse(struct trajd_resample_service *service, int connection, uint64_t request,
                           const struct trajd_error *error)
{
    const struct trajd_wire_message message = {
        .op = TRAJD_WIRE_ERROR, .error = {request, error->status, trajd_wire_text(error->message)}};

    count(&service->stats.refused, 1);
    return answer(connection, &message);
}

static bool handle_resample(struct trajd_resample_service *service, int connection,
                            const struct trajd_wire_resample *request, int fd)
{
    struct trajd_device *device = NULL;
    struct trajd_wire_message message = {.op = TRAJD_WIRE_RESAMPLED,
                                         .resampled = {.request = request->request}};
    struct trajd_error error;
    enum trajd_status status = TRAJD_OK;

    if (!request->size_bytes)
        device = device_now(&service->backend);
    else if (fd < 0)
        status = trajd_error_set(&error, TRAJD_ERR_ARGUMENT, 0,
                                 "RESAMPLE: the message must carry exactly one descriptor");
    else
        status = resample(&service->backend, fd, request->size_bytes, &device, &error);
    if (status)
        return trajd_resample_refuse(service, connection, request->request, &error);
    count(&service->stats.segments, request->size_bytes != 0);
    count(&service->stats.bytes, request->size_bytes);
    if (device)
        message.resampled.device = trajd_wire_text(trajd_device_info(device)->name);
    return answer(connection, &message);
}

/* Handles one message. Returns false where it is not a message of the protocol. */
static bool handle(struct trajd_resample_service *service, int connection, const uint8_t *frame,
                   size_t size, int fd)
{
    struct trajd_wire_message message;
    struct trajd_error error;
    uint64_t request;
    const enum trajd_status status =
        trajd_wire_decode(frame, size, NULL, &message, &request, &error);

    if (status == TRAJD_ERR_DATA)
        return false;
    if (status)
        return trajd_resample_refuse(service, connection, request, &error);
    if (message.op == TRAJD_WIRE_RESAMPLE)
        return handle_resample(service, connection, &message.resample, fd);
    trajd_error_set(&error, TRAJD_ERR_PROTOCOL, 0, "op %d: %s accepts only RESAMPLE",
                    (int)message.op, TRAJD_RESAMPLE_SERVICE_SOCKET);
    return trajd_resample_refuse(service, connection, 0, &error);
}

/* Returns the descriptor of the message; -1: it has none, or several, which are closed here. */
static int take_descriptor(struct trajd_resample_service *service, struct msghdr *message,
                           uid_t uid)
{
    int taken = -1;

    for (struct cmsghdr *part = CMSG_FIRSTHDR(message); part; part = CMSG_NXTHDR(message, part)) {
        const size_t descriptors =
            part->cmsg_len >= CMSG_LEN(0) ? (part->cmsg_len - CMSG_LEN(0)) / sizeof(int) : 0;
        if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS)
            continue;
        for (size_t i = 0; i < descriptors; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(part) + i * sizeof fd, sizeof fd);
            if (taken < 0 && descriptors == 1 && !(message->msg_flags & MSG_CTRUNC))
                taken = fd;
            else
                trajd_closer_close(service->closer, fd, uid);
        }
    }
    return taken;
}

/* Returns true if the descriptors of one more message of this user can be closed. A message is not
 * received without that, since the system closes what is not received on the receiver's thread. */
static bool may_receive(struct trajd_resample_service *service, uid_t uid,
                        struct trajd_error *error)
{
    const uint32_t clients = service->stats.clients;

    if (!trajd_closer_is_over_share(service->closer, uid) &&
        trajd_closer_has_room(service->closer, clients + MESSAGE_DESCRIPTORS))
        return true;
    trajd_error_set(error, TRAJD_ERR_BUSY, 0,
                    "RESAMPLE: the daemon cannot close files that user %u or other users have sent "
                    "before, because their filesystem does not answer: end the programs that sent "
                    "them, or use --backend cpu",
                    (unsigned)uid);
    return false;
}

bool trajd_resample_receive(struct trajd_resample_service *service, uint32_t index)
{
    struct trajd_unix_place *place = &service->places[index];
    uint8_t frame[FRAME_BYTES];
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(MESSAGE_DESCRIPTORS * sizeof(int)) +
                   CMSG_SPACE(sizeof(struct ucred))]; /* see has_message */
    } control = {0};
    struct iovec part = {frame, sizeof frame};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof control.bytes};
    struct trajd_error error;
    ssize_t size;
    bool is_good;
    int fd;

    if (!may_receive(service, place->uid, &error)) {
        trajd_resample_refuse(service, place->fd, 0, &error);
        return false;
    }
    size = recvmsg(place->fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (size < 0)
        return errno == EAGAIN || errno == EINTR;
    /* an empty message may carry one, too */
    fd = take_descriptor(service, &message, place->uid);
    is_good = size && !(message.msg_flags & MSG_TRUNC) &&
              handle(service, place->fd, frame, (size_t)size, fd);
    if (fd >= 0)
        trajd_closer_close(service->closer, fd, place->uid);
    place->used_ns = trajd_now_ns();
    service->has_asked[index] = true;
    return is_good;
}
