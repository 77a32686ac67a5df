/* Starts the helper program that writes the output, sends it frames and takes its answers. */
#include "clients/cli/resample/convert_writer.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/base/clock.h"
#include "daemon/base/memory.h"
#include "daemon/base/unix_socket.h"
#include "daemon/index/helper.h"

enum { ANSWER_TIMEOUT_S = 600, SLICE_MS = 100, END_SLICES = 100, TEXT_SIZE = 2048 };

/* ---- the process ---- */

void convert_writer_kill(const struct convert_writer *writer)
{
    if (writer->pid)
        kill(writer->pid, SIGKILL);
}

static int kill_helper(struct convert_writer *writer)
{
    int status = 0;

    convert_writer_kill(writer);
    while (waitpid(writer->pid, &status, 0) < 0 && errno == EINTR)
        ;
    return status;
}

enum trajd_status convert_writer_start(struct convert_writer *writer, int fd, bool is_small)
{
    enum trajd_status status = trajd_helper_start(writer->helper_path, "write", SOCK_STREAM,
                                                  &writer->socket, &writer->pid, writer->error);

    convert_writer_begin(writer);
    convert_writer_put_u8(writer, is_small);
    return status ? status : convert_writer_send(writer, TRAJD_WRITER_OUTPUT, fd);
}

void convert_writer_end(struct convert_writer *writer)
{
    if (writer->socket >= 0)
        close(writer->socket);
    if (writer->memory)
        munmap(writer->memory, writer->memory_bytes);
    if (writer->pid)
        kill_helper(writer);
    free(writer->blocks);
    trajd_bytes_free(&writer->frame);
}

/* Waits for the helper to end, and returns its wait status. Kills it after 10 s, in case it has
 * only closed its socket. */
static int wait_for_end(struct convert_writer *writer)
{
    int status = 0;
    pid_t gone = 0;

    for (int i = 0; i < END_SLICES && !gone; i++) {
        gone = waitpid(writer->pid, &status, WNOHANG);
        if (!gone)
            poll(NULL, 0, SLICE_MS);
    }
    if (!gone)
        status = kill_helper(writer);
    writer->pid = 0;
    return status;
}

/* Sets the error for a helper that ended without a message. A kill comes from the machine (out of
 * memory) or from a person, and a helper that does not start was not installed correctly: neither
 * is the fault of an input. */
static enum trajd_status lost(struct convert_writer *writer)
{
    const int status = writer->pid ? wait_for_end(writer) : 0;
    const bool is_killed = trajd_helper_is_killed(status);
    char how[TEXT_SIZE] = "ended";

    if (WIFSIGNALED(status))
        snprintf(how, sizeof how, "was killed by signal %d (%s)", WTERMSIG(status),
                 strsignal(WTERMSIG(status)));
    else if (WIFEXITED(status) && is_killed)
        snprintf(how, sizeof how, "ran out of memory");
    else if (WIFEXITED(status))
        snprintf(how, sizeof how, "ended with status %d", WEXITSTATUS(status));
    return trajd_error_set(writer->error,
                           is_killed || !writer->is_ready ? TRAJD_ERR_SYSTEM : TRAJD_ERR_DATA, 0,
                           "the process that writes the output %s%s", how,
                           is_killed          ? ""
                           : writer->is_ready ? ": an input is damaged"
                                              : ": it does not start");
}

/* ---- the memory ---- */

void *convert_memory_map(uint64_t bytes, bool is_filled, int *fd)
{
    void *memory = MAP_FAILED;
    int code;

    *fd = memfd_create("trajd-rows", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (*fd >= 0 && !ftruncate(*fd, (off_t)bytes) &&
        (!is_filled || !fallocate(*fd, 0, 0, (off_t)bytes)) &&
        !fcntl(*fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL))
        memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, *fd, 0);
    if (memory != MAP_FAILED)
        return memory;
    code = errno;
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
    errno = code;
    return NULL;
}

enum trajd_status convert_writer_share(struct convert_writer *writer, uint64_t block_bytes,
                                       uint64_t least_bytes, uint32_t block_count)
{
    struct rlimit limit = {RLIM_INFINITY, RLIM_INFINITY};
    enum trajd_status status;
    int fd;

    getrlimit(RLIMIT_FSIZE, &limit); /* memory files count */
    if (block_count > limit.rlim_cur / block_bytes)
        block_bytes = least_bytes;
    if (block_count > limit.rlim_cur / block_bytes)
        block_count = limit.rlim_cur < block_bytes ? 1 : (uint32_t)(limit.rlim_cur / block_bytes);
    writer->memory_bytes = block_bytes * block_count;
    writer->memory = convert_memory_map(writer->memory_bytes, false, &fd);
    if (!writer->memory)
        return trajd_error_set(writer->error, errno == EFBIG ? TRAJD_ERR_IO : TRAJD_ERR_MEMORY,
                               errno, "%s: no memory for %" PRIu64 " bytes of rows: %s",
                               writer->output, writer->memory_bytes, strerror(errno));
    writer->block_count = writer->free_count = block_count;
    writer->blocks = trajd_memory_or_exit(calloc(block_count, sizeof *writer->blocks));
    for (uint32_t b = 0; b < block_count; b++) {
        writer->blocks[b] = (struct convert_block){
            .bytes = writer->memory + b * block_bytes, .size = block_bytes, .at = b * block_bytes};
        writer->free[b] = &writer->blocks[b];
    }
    convert_writer_begin(writer);
    trajd_bytes_add_u64(&writer->frame, writer->memory_bytes);
    status = convert_writer_send(writer, TRAJD_WRITER_MEMORY, fd);
    close(fd);
    return status;
}

/* ---- receiving ---- */

/* Waits up to a slice of time until the socket is ready for one of `events`. *ready: those for
 * which it is; 0: none. */
static enum trajd_status wait_slice(struct convert_writer *writer, short events, short *ready)
{
    struct pollfd poll_fd = {.fd = writer->socket, .events = events};

    *ready = 0;
    if (writer->cancel && __atomic_load_n(writer->cancel, __ATOMIC_RELAXED))
        return trajd_error_set(writer->error, TRAJD_ERR_CLOSED, 0, "interrupted");
    if (poll(&poll_fd, 1, SLICE_MS) > 0)
        *ready = poll_fd.revents;
    else if (trajd_now_ns() - writer->heard_ns > ANSWER_TIMEOUT_S * INT64_C(1000000000))
        return trajd_error_set(writer->error, TRAJD_ERR_DATA, 0,
                               "the process that writes the output has not answered for %d s",
                               ANSWER_TIMEOUT_S);
    return TRAJD_OK;
}

static enum trajd_status receive_bytes(struct convert_writer *writer, void *data, size_t size)
{
    enum trajd_status status = TRAJD_OK;
    uint8_t *next = data;
    short ready;

    while (size && !(status = wait_slice(writer, POLLIN, &ready))) {
        const ssize_t got = ready ? recv(writer->socket, next, size, MSG_DONTWAIT) : -1;
        if (got < 0 && (!ready || errno == EINTR || errno == EAGAIN))
            continue;
        if (got <= 0)
            return lost(writer);
        next += got;
        size -= (size_t)got;
    }
    return status;
}

/* Sets the error that the helper sent. A full disk concerns the output. */
static enum trajd_status take_failure(struct convert_writer *writer, const char *body,
                                      size_t length)
{
    uint32_t code = 0;

    if (length < sizeof code)
        return lost(writer);
    memcpy(&code, body, sizeof code);
    if (code == ENOSPC || code == EDQUOT || code == EFBIG)
        return trajd_error_set(writer->error, TRAJD_ERR_IO, (int)code, "%s: %s", writer->output,
                               strerror((int)code));
    return trajd_error_set(writer->error, code ? TRAJD_ERR_IO : TRAJD_ERR_DATA, (int)code, "%s",
                           body + sizeof code);
}

static void take_answer(struct convert_writer *writer)
{
    struct convert_block *block = writer->pending[writer->first_pending];

    writer->first_pending = (writer->first_pending + 1) % CONVERT_PENDING_MAX;
    writer->pending_count--;
    writer->is_ready = true;
    if (!block)
        return;
    block->used = block->count = 0;
    writer->free[writer->free_count++] = block;
}

enum trajd_status convert_writer_receive(struct convert_writer *writer)
{
    struct trajd_helper_header header;
    char body[TEXT_SIZE];
    enum trajd_status status = receive_bytes(writer, &header, sizeof header);

    if (status)
        return status;
    if (header.magic != TRAJD_HELPER_MAGIC || header.length >= sizeof body)
        return trajd_error_set(writer->error, TRAJD_ERR_DATA, 0,
                               "the process that writes the output sent an invalid frame");
    status = receive_bytes(writer, body, header.length);
    if (status)
        return status;
    body[header.length] = '\0';
    writer->heard_ns = trajd_now_ns();
    if (header.kind == TRAJD_WRITER_FAILED)
        return take_failure(writer, body, header.length);
    if (header.kind == TRAJD_WRITER_NOTE && writer->on_note)
        writer->on_note(writer->context, body);
    else if (header.kind == TRAJD_WRITER_DONE && writer->pending_count)
        take_answer(writer);
    else if (header.kind != TRAJD_WRITER_NOTE)
        return trajd_error_set(writer->error, TRAJD_ERR_DATA, 0,
                               "the process that writes the output sent an unexpected answer");
    return TRAJD_OK;
}

enum trajd_status convert_writer_wait_ready(struct convert_writer *writer)
{
    enum trajd_status status = TRAJD_OK;

    while (!writer->is_ready && !status)
        status = convert_writer_receive(writer);
    return status;
}

enum trajd_status convert_writer_wait(struct convert_writer *writer)
{
    enum trajd_status status = TRAJD_OK;

    while (writer->pending_count && !status)
        status = convert_writer_receive(writer);
    return status;
}

struct convert_block *convert_writer_take(struct convert_writer *writer)
{
    while (!writer->free_count)
        if (convert_writer_receive(writer))
            return NULL;
    return writer->free[--writer->free_count];
}

/* ---- sending ---- */

void convert_writer_begin(struct convert_writer *writer)
{
    writer->frame.length = 0;
}

void convert_writer_put_u8(struct convert_writer *writer, uint8_t value)
{
    trajd_bytes_add(&writer->frame, &value, 1);
}

/* Sends bytes, and `fd` with the first one. Takes answers meanwhile, so that neither side waits for
 * the other to read. A helper that has ended is noticed when its last message is received. */
static enum trajd_status send_bytes(struct convert_writer *writer, const void *data, size_t size,
                                    int fd)
{
    const uint8_t *next = data;
    enum trajd_status status = TRAJD_OK;

    while (size && !status) {
        const ssize_t done = trajd_send_fd(writer->socket, next, size, fd, MSG_DONTWAIT);
        short ready = 0;
        if (done >= 0) {
            next += done;
            size -= (size_t)done;
            fd = -1;
        } else if (errno == EAGAIN) {
            status = wait_slice(writer, POLLIN | POLLOUT, &ready);
        } else if (errno != EINTR) {
            return TRAJD_OK;
        }
        if (!status && (ready & POLLIN))
            status = convert_writer_receive(writer);
    }
    return status;
}

static enum trajd_status send_frame(struct convert_writer *writer, uint32_t kind,
                                    struct convert_block *block, const void *data, size_t size,
                                    int fd)
{
    const struct trajd_helper_header header = {TRAJD_HELPER_MAGIC, kind, size};
    enum trajd_status status = TRAJD_OK;

    while (writer->pending_count == CONVERT_PENDING_MAX && !status)
        status = convert_writer_receive(writer);
    if (status)
        return status;
    if (!writer->pending_count)
        writer->heard_ns = trajd_now_ns();
    writer->pending[(writer->first_pending + writer->pending_count++) % CONVERT_PENDING_MAX] =
        block;
    status = send_bytes(writer, &header, sizeof header, fd);
    return status ? status : send_bytes(writer, data, size, -1);
}

enum trajd_status convert_writer_send(struct convert_writer *writer, uint32_t kind, int fd)
{
    if (writer->frame.failed)
        trajd_memory_or_exit(NULL);
    return send_frame(writer, kind, NULL, writer->frame.data, writer->frame.length, fd);
}

enum trajd_status convert_writer_send_block(struct convert_writer *writer,
                                            struct convert_block *block)
{
    return send_frame(writer, TRAJD_WRITER_ROWS, block, block->rows,
                      block->count * sizeof *block->rows, -1);
}
