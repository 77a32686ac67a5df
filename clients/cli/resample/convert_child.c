#include "clients/cli/resample/convert_child.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/base/unix_socket.h"
#include "daemon/index/helper.h"
#include "daemon/index/writer_protocol.h"

enum { REPLY_TIMEOUT_MS = 600000, SLICE_MS = 100, END_SLICES = 100, TEXT_SIZE = 512 };

static const uint64_t reply_bytes_max = UINT64_C(64) << 20;

/* ---- the process ---- */

enum trajd_status convert_child_start(struct convert_child *child)
{
    return trajd_helper_start(child->plan->options->helper_path, "write", SOCK_STREAM,
                              &child->socket, &child->pid, child->error);
}

void convert_child_end(struct convert_child *child)
{
    int status = 0;

    if (child->socket >= 0)
        close(child->socket);
    if (child->pid) {
        kill(child->pid, SIGKILL);
        while (waitpid(child->pid, &status, 0) < 0 && errno == EINTR)
            ;
    }
    trajd_bytes_free(&child->frame);
    free(child->reply);
}

/* Waits for the child to end, and returns its wait status. Kills it after 10 s, in case it has only
 * closed its socket. */
static int wait_for_end(struct convert_child *child)
{
    int status = 0;
    pid_t gone = 0;

    for (int i = 0; i < END_SLICES && !gone; i++) {
        gone = waitpid(child->pid, &status, WNOHANG);
        if (!gone)
            poll(NULL, 0, SLICE_MS);
    }
    if (!gone) {
        kill(child->pid, SIGKILL);
        while (waitpid(child->pid, &status, 0) < 0 && errno == EINTR)
            ;
    }
    child->pid = 0;
    return status;
}

/* Sets the error for a child that ended without a message. A kill comes from the machine (out of
 * memory) or from a person, and a child that does not start was not installed correctly: neither is
 * the fault of an input. */
static enum trajd_status lost(struct convert_child *child)
{
    const int status = child->pid ? wait_for_end(child) : 0;
    const int number = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    const bool is_killed = number == SIGKILL || number == SIGTERM || number == SIGINT ||
                           number == SIGHUP || number == SIGQUIT || number == SIGXCPU;
    char how[TEXT_SIZE] = "ended";

    if (WIFSIGNALED(status))
        snprintf(how, sizeof how, "was killed by signal %d (%s)", WTERMSIG(status),
                 strsignal(WTERMSIG(status)));
    else if (WIFEXITED(status))
        snprintf(how, sizeof how, "ended with status %d", WEXITSTATUS(status));
    return trajd_error_set(child->error,
                           is_killed || !child->is_ready ? TRAJD_ERR_SYSTEM : TRAJD_ERR_DATA, 0,
                           "the process that makes the output's structure %s%s", how,
                           is_killed         ? ""
                           : child->is_ready ? ": an input is damaged"
                                             : ": it does not start");
}

/* ---- frames ---- */

void convert_child_begin(struct convert_child *child)
{
    child->frame.length = 0;
}

void convert_child_put_u8(struct convert_child *child, uint8_t value)
{
    trajd_bytes_add(&child->frame, &value, 1);
}

enum trajd_status convert_child_send(struct convert_child *child, uint32_t kind, int fd)
{
    struct trajd_helper_header header = {TRAJD_HELPER_MAGIC, kind, child->frame.length};
    size_t sent = 0;
    ssize_t done;

    if (child->frame.failed)
        return trajd_error_set(child->error, TRAJD_ERR_MEMORY, 0,
                               "no memory for the output's structure");
    done = trajd_send_fd(child->socket, &header, sizeof header, fd, 0);
    if (done < 0 && (errno == EPIPE || errno == ECONNRESET))
        return TRAJD_OK; /* the child's last message says why, and is read next */
    if (done != (ssize_t)sizeof header)
        return lost(child);
    while (sent < child->frame.length) {
        done =
            send(child->socket, child->frame.data + sent, child->frame.length - sent, MSG_NOSIGNAL);
        if (done < 0 && errno != EINTR)
            return TRAJD_OK; /* as above */
        sent += done > 0 ? (size_t)done : 0;
    }
    return TRAJD_OK;
}

/* Waits until the socket is readable. While the child adds chunks (is_closing) there is no timeout
 * and no cancellation, because the file could not be resumed. */
static enum trajd_status wait_readable(struct convert_child *child)
{
    const bool *cancel = child->is_closing ? NULL : child->plan->options->cancel;

    for (int waited_ms = 0; waited_ms < REPLY_TIMEOUT_MS;
         waited_ms += child->is_closing ? 0 : SLICE_MS) {
        struct pollfd poll_fd = {.fd = child->socket, .events = POLLIN};
        if (cancel && __atomic_load_n(cancel, __ATOMIC_RELAXED))
            return trajd_error_set(child->error, TRAJD_ERR_CLOSED, 0, "interrupted");
        if (poll(&poll_fd, 1, SLICE_MS) > 0)
            return TRAJD_OK;
    }
    return trajd_error_set(child->error, TRAJD_ERR_DATA, 0,
                           "the process that makes the output's structure has not replied for %d s",
                           REPLY_TIMEOUT_MS / 1000);
}

static enum trajd_status receive(struct convert_child *child, void *data, size_t size)
{
    enum trajd_status status = TRAJD_OK;
    uint8_t *next = data;

    while (size && !(status = wait_readable(child))) {
        const ssize_t got = recv(child->socket, next, size, 0);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return lost(child);
        next += got;
        size -= (size_t)got;
    }
    return status;
}

static enum trajd_status failed(struct convert_child *child, size_t length)
{
    uint32_t code = 0;
    const char *text = (const char *)child->reply + sizeof code;

    if (length < sizeof code)
        return lost(child);
    memcpy(&code, child->reply, sizeof code);
    if (code == ENOSPC || code == EDQUOT || code == EFBIG)
        return trajd_error_set(child->error, TRAJD_ERR_IO, (int)code, "%s: %s",
                               child->plan->options->output, strerror((int)code));
    return trajd_error_set(child->error, code ? TRAJD_ERR_IO : TRAJD_ERR_DATA, (int)code, "%.*s",
                           (int)(length - sizeof code), text);
}

enum trajd_status convert_child_reply(struct convert_child *child, uint32_t kind, size_t *length)
{
    struct trajd_helper_header header;
    enum trajd_status status;

    for (;;) {
        if ((status = receive(child, &header, sizeof header)))
            return status;
        if (header.magic != TRAJD_HELPER_MAGIC || header.length > reply_bytes_max)
            return trajd_error_set(
                child->error, TRAJD_ERR_DATA, 0,
                "the process that makes the output's structure sent an invalid frame");
        if (header.length >= child->reply_capacity) {
            uint8_t *grown = realloc(child->reply, header.length + 1);
            if (!grown)
                return trajd_error_set(child->error, TRAJD_ERR_MEMORY, 0, "no memory for a reply");
            child->reply = grown;
            child->reply_capacity = header.length + 1;
        }
        if ((status = receive(child, child->reply, header.length)))
            return status;
        child->reply[header.length] = '\0';
        *length = header.length;
        if (header.kind == kind)
            return TRAJD_OK;
        if (header.kind == TRAJD_WRITER_FAILED)
            return failed(child, header.length);
        if (header.kind != TRAJD_WRITER_NOTE)
            return trajd_error_set(
                child->error, TRAJD_ERR_DATA, 0,
                "the process that makes the output's structure sent an unexpected reply");
        convert_note(child->plan->options, "%s", (const char *)child->reply);
    }
}
