/* Files through trajd-indexer children: several at once, many files one after another through each. A child
 * that dies, hangs or talks nonsense costs the file it was at, and is replaced. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "daemon/base/watch.h"
#include "daemon/dataset/index_parts.h"
#include "daemon/dataset/indexer.h"

enum { ATTEMPTS_MAX = 3, CHILD_COUNT_MAX = 256, TEXT_SIZE = 256 };
static const int64_t start_timeout_ns =
    INT64_C(30000000000); /* a loaded machine may take long to start a process */
static const int64_t turn_ns = 100000000; /* who waits for children looks up so often */
static const long retry_pause_ns = 100000000;
static const size_t decode_bytes_max = (size_t)2 << 30;

struct child {
    pid_t pid; /* 0: none */
    int socket;
    bool ready;
    struct trajd_index_entry *entry; /* NULL: idle */
    int fd;                          /* of the entry */
    int64_t deadline_ns;
    struct trajd_indexer_header header;
    size_t header_length; /* received of it */
    uint8_t *data;
    size_t data_length, data_capacity;
};

struct pool {
    const struct trajd_index_options *options;
    const struct trajd_layout *layout;
    struct trajd_index_entry *entries;
    uint32_t entry_count, next;
    struct child *children;
    uint32_t child_count;
    struct trajd_array_reader *reader;
    struct trajd_error *error;
};

static int64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* The whole record of a file that gave none. */
static enum trajd_status refuse_entry(struct pool *pool, struct trajd_index_entry *entry, bool keep,
                                      const char *refusal)
{
    struct trajd_record record = {.refusal = refusal};

    entry->record.length = 0;
    entry->keep = keep;
    if (trajd_record_encode(&record, &entry->record))
        return TRAJD_OK;
    return trajd_error_set(pool->error, TRAJD_ERR_MEMORY, 0, "no memory for the index");
}

/* Storage failed: the entry is taken up again, three times in all. */
static enum trajd_status retry_entry(struct pool *pool, struct trajd_index_entry *entry, int code)
{
    struct timespec pause = {0, retry_pause_ns};

    if (++entry->attempts >= ATTEMPTS_MAX)
        return trajd_error_set(pool->error, TRAJD_ERR_IO, code, "%s: cannot be read after %d attempts: %s",
                               entry->path, ATTEMPTS_MAX, strerror(code));
    nanosleep(&pause, NULL);
    if (pool->next > (uint32_t)(entry - pool->entries))
        pool->next = (uint32_t)(entry - pool->entries);
    return TRAJD_OK;
}

static void release_child(struct child *child)
{
    if (child->fd >= 0)
        close(child->fd);
    child->fd = -1;
    child->entry = NULL;
    child->header_length = child->data_length = 0;
}

/* Ends a child for good and says how it went. */
static void end_child(struct child *child, char *how, size_t size)
{
    int status = 0;

    if (!child->pid)
        return;
    close(child->socket);
    kill(child->pid, SIGKILL);
    trajd_watch_wait(); /* it may be in a read that does not end */
    while (waitpid(child->pid, &status, 0) < 0 && errno == EINTR)
        ;
    trajd_watch_resume();
    if (how && WIFSIGNALED(status))
        snprintf(how, size, "the indexing child was killed by signal %d (%s)", WTERMSIG(status),
                 strsignal(WTERMSIG(status)));
    else if (how)
        snprintf(how, size, "the indexing child ended with status %d", WEXITSTATUS(status));
    free(child->data);
    release_child(child);
    *child = (struct child){.socket = -1, .fd = -1};
}

/* A child is gone or must go. `why` NULL: as its exit status says. */
static enum trajd_status lose_child(struct pool *pool, struct child *child, const char *why)
{
    struct trajd_index_entry *entry = child->entry;
    bool was_ready = child->ready;
    char how[TEXT_SIZE];

    end_child(child, how, sizeof how);
    if (!was_ready)
        return trajd_error_set(pool->error, TRAJD_ERR_SYSTEM, 0, "%s: does not start: %s",
                               pool->options->indexer_path, why ? why : how);
    return entry ? refuse_entry(pool, entry, false, why ? why : how) : TRAJD_OK;
}

static bool send_all(int socket, const void *data, size_t length)
{
    const uint8_t *next = data;

    while (length) {
        ssize_t sent = send(socket, next, length, MSG_NOSIGNAL);
        if (sent < 0 && errno != EINTR)
            return false;
        if (sent > 0) {
            next += sent;
            length -= (size_t)sent;
        }
    }
    return true;
}

static bool send_file(int socket, int fd)
{
    struct trajd_indexer_header header = {TRAJD_INDEXER_MAGIC, TRAJD_INDEXER_FILE, 0};
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {0};
    struct iovec part = {&header, sizeof header};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof control.bytes};
    struct cmsghdr *rights = CMSG_FIRSTHDR(&message);

    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(rights), &fd, sizeof fd);
    return sendmsg(socket, &message, MSG_NOSIGNAL) == sizeof header;
}

static enum trajd_status start_child(struct pool *pool, struct child *child)
{
    struct trajd_indexer_header header = {TRAJD_INDEXER_MAGIC, TRAJD_INDEXER_LAYOUT,
                                          pool->layout->text_length};
    int sockets[2], code;

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets))
        return trajd_error_set(pool->error, TRAJD_ERR_SYSTEM, errno, "socketpair: %s", strerror(errno));
    code = trajd_indexer_spawn(pool->options->indexer_path, NULL, sockets[1], &child->pid);
    close(sockets[1]);
    if (code) {
        child->pid = 0;
        close(sockets[0]);
        return trajd_error_set(pool->error, TRAJD_ERR_SYSTEM, code, "%s: cannot be started: %s",
                               pool->options->indexer_path, strerror(code));
    }
    child->socket = sockets[0];
    child->deadline_ns = now_ns() + start_timeout_ns;
    if (!send_all(child->socket, &header, sizeof header) ||
        !send_all(child->socket, pool->layout->text, pool->layout->text_length))
        return lose_child(pool, child, NULL);
    return TRAJD_OK;
}

/* Takes what fstat says now: the record is one of this very file. False with *refusal where it cannot be a
 * recording. */
static bool check_file(struct trajd_index_entry *entry, int fd, const char **refusal)
{
    struct stat status;

    if (fstat(fd, &status) || !S_ISREG(status.st_mode)) {
        *refusal = "not a regular file";
        return false;
    }
    entry->size_bytes = (uint64_t)status.st_size;
    entry->inode = status.st_ino;
    entry->mtime_ns = (int64_t)status.st_mtim.tv_sec * 1000000000 + status.st_mtim.tv_nsec;
    entry->ctime_ns = (int64_t)status.st_ctim.tv_sec * 1000000000 + status.st_ctim.tv_nsec;
    *refusal = "the file is empty (0 bytes)";
    return status.st_size > 0;
}

static enum trajd_status give_file(struct pool *pool, struct child *child, struct trajd_index_entry *entry)
{
    const char *refusal;
    int fd;

    trajd_watch_wait();
    fd = open(entry->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    trajd_watch_resume();
    if (fd < 0)
        return retry_entry(pool, entry, errno);
    if (!check_file(entry, fd, &refusal)) {
        close(fd);
        return refuse_entry(pool, entry, false, refusal);
    }
    child->entry = entry;
    child->fd = fd;
    child->deadline_ns = now_ns() + (int64_t)pool->options->file_timeout_ms * 1000000;
    return send_file(child->socket, fd) ? TRAJD_OK : lose_child(pool, child, NULL);
}

/* A record that is one: completed by what the parent reads itself. */
static enum trajd_status accept_record(struct pool *pool, struct child *child, struct trajd_arena *arena,
                                       struct trajd_record *record)
{
    struct trajd_index_entry *entry = child->entry;
    struct trajd_error local;
    enum trajd_status status;

    if (record->io_errno)
        return retry_entry(pool, entry, record->io_errno);
    status = trajd_index_evaluate(pool->layout, pool->reader, child->fd, arena, record, &local);
    if (status == TRAJD_ERR_IO)
        return retry_entry(pool, entry, local.foreign_code ? local.foreign_code : EIO);
    if (status == TRAJD_ERR_CLOSED)
        return trajd_watch_check(pool->error);
    entry->keep = true;
    if (!status && !trajd_record_encode(record, &entry->record))
        status = TRAJD_ERR_MEMORY;
    return status ? trajd_error_set(pool->error, status, 0, "%s: no memory for its index", entry->path)
                  : TRAJD_OK;
}

static enum trajd_status finish_record(struct pool *pool, struct child *child)
{
    struct trajd_arena arena = {.limit_bytes = decode_bytes_max};
    struct trajd_error local;
    struct trajd_record record;
    enum trajd_status status;

    if (trajd_record_decode(child->data, child->data_length, child->entry->size_bytes,
                            pool->layout->clock_count, &arena, &record, &local)) {
        status = lose_child(pool, child, local.message);
    } else {
        status = accept_record(pool, child, &arena, &record);
        release_child(child);
    }
    trajd_arena_free(&arena);
    return status;
}

static enum trajd_status finish_frame(struct pool *pool, struct child *child)
{
    if (child->header.kind == TRAJD_INDEXER_READY && !child->ready) {
        child->ready = true;
        child->header_length = child->data_length = 0;
        return TRAJD_OK;
    }
    if (child->header.kind == TRAJD_INDEXER_RECORD && child->entry)
        return finish_record(pool, child);
    return lose_child(pool, child, "the indexing child sent what it was not asked for");
}

static bool grow_data(struct child *child)
{
    size_t capacity = child->data_capacity ? child->data_capacity * 2 : 65536;
    uint8_t *grown;

    if (child->data_length < child->data_capacity)
        return true;
    grown = realloc(child->data, capacity);
    if (!grown)
        return false;
    child->data = grown;
    child->data_capacity = capacity;
    return true;
}

static enum trajd_status read_child(struct pool *pool, struct child *child)
{
    bool in_header = child->header_length < sizeof child->header;
    size_t left =
        in_header ? sizeof child->header - child->header_length : child->header.length - child->data_length;
    ssize_t received;

    if (!in_header && !grow_data(child))
        return trajd_error_set(pool->error, TRAJD_ERR_MEMORY, 0, "no memory for a record");
    if (!in_header && left > child->data_capacity - child->data_length)
        left = child->data_capacity - child->data_length;
    received =
        recv(child->socket,
             in_header ? (uint8_t *)&child->header + child->header_length : child->data + child->data_length,
             left, MSG_DONTWAIT);
    if (received < 0 && (errno == EAGAIN || errno == EINTR))
        return TRAJD_OK;
    if (received <= 0)
        return lose_child(pool, child, NULL);
    *(in_header ? &child->header_length : &child->data_length) += (size_t)received;
    if (child->header_length < sizeof child->header)
        return TRAJD_OK;
    if (child->header.magic != TRAJD_INDEXER_MAGIC || child->header.length > TRAJD_RECORD_SIZE_MAX)
        return lose_child(pool, child, "the indexing child broke the framing");
    return child->data_length == child->header.length ? finish_frame(pool, child) : TRAJD_OK;
}

/* The next entry without a record that no child has. */
static struct trajd_index_entry *next_entry(struct pool *pool)
{
    for (; pool->next < pool->entry_count; pool->next++) {
        struct trajd_index_entry *entry = &pool->entries[pool->next];
        bool taken = entry->record.length > 0;
        for (uint32_t i = 0; i < pool->child_count && !taken; i++)
            taken = pool->children[i].entry == entry;
        if (!taken)
            return entry;
    }
    return NULL;
}

/* Starts children and hands out files while there are any. */
static enum trajd_status hand_out(struct pool *pool)
{
    enum trajd_status status = TRAJD_OK;

    for (uint32_t i = 0; i < pool->child_count && !status; i++) {
        struct child *child = &pool->children[i];
        struct trajd_index_entry *entry;
        while (!status && !child->entry && (entry = next_entry(pool))) {
            if (!child->pid)
                status = start_child(pool, child);
            if (status || !child->ready)
                break;
            status = give_file(pool, child, entry);
        }
    }
    return status;
}

static bool is_waiting(const struct child *child)
{
    return child->pid && (child->entry || !child->ready);
}

/* Waits for one answer or one deadline. */
static enum trajd_status wait_for_children(struct pool *pool)
{
    struct pollfd polls[CHILD_COUNT_MAX];
    int64_t now = now_ns(), until = now + turn_ns;
    enum trajd_status status = TRAJD_OK;

    for (uint32_t i = 0; i < pool->child_count; i++) {
        const struct child *child = &pool->children[i];
        polls[i] = (struct pollfd){.fd = is_waiting(child) ? child->socket : -1, .events = POLLIN};
        if (is_waiting(child) && child->deadline_ns < until)
            until = child->deadline_ns;
    }
    if (poll(polls, pool->child_count, until <= now ? 0 : (int)((until - now) / 1000000) + 1) < 0 &&
        errno != EINTR)
        return trajd_error_set(pool->error, TRAJD_ERR_SYSTEM, errno, "poll: %s", strerror(errno));
    now = now_ns();
    for (uint32_t i = 0; i < pool->child_count && !status; i++) {
        struct child *child = &pool->children[i];
        char text[TEXT_SIZE];
        if (polls[i].fd < 0)
            continue;
        if (polls[i].revents) {
            status = read_child(pool, child);
        } else if (child->deadline_ns <= now) {
            snprintf(text, sizeof text, "the indexing child took longer than %u ms",
                     pool->options->file_timeout_ms);
            status = lose_child(pool, child, child->ready ? text : "it is not ready in time");
        }
    }
    return status;
}

static bool any_waiting(const struct pool *pool)
{
    for (uint32_t i = 0; i < pool->child_count; i++) {
        if (is_waiting(&pool->children[i]))
            return true;
    }
    return false;
}

static enum trajd_status run(struct pool *pool)
{
    enum trajd_status status = hand_out(pool);

    while (!status && (any_waiting(pool) || next_entry(pool))) {
        trajd_watch_turn();
        status = trajd_watch_check(pool->error);
        if (!status)
            status = wait_for_children(pool);
        if (!status)
            status = hand_out(pool);
    }
    return status;
}

enum trajd_status trajd_index_run_children(const struct trajd_index_options *options,
                                           const struct trajd_layout *layout,
                                           struct trajd_index_entry *entries, uint32_t count,
                                           struct trajd_error *error)
{
    struct pool pool = {
        .options = options, .layout = layout, .entries = entries, .entry_count = count, .error = error};
    uint32_t missing = 0;
    enum trajd_status status;

    for (uint32_t i = 0; i < count; i++)
        missing += entries[i].record.length == 0;
    if (!missing)
        return TRAJD_OK;
    pool.child_count = options->child_count < missing ? options->child_count : missing;
    if (pool.child_count > CHILD_COUNT_MAX)
        pool.child_count = CHILD_COUNT_MAX;
    status = trajd_array_reader_create(&pool.reader, error);
    if (status)
        return status;
    pool.children = calloc(pool.child_count, sizeof *pool.children);
    for (uint32_t i = 0; pool.children && i < pool.child_count; i++)
        pool.children[i].socket = pool.children[i].fd = -1;
    status =
        pool.children ? run(&pool) : trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory for children");
    for (uint32_t i = 0; pool.children && i < pool.child_count; i++)
        end_child(&pool.children[i], NULL, 0);
    free(pool.children);
    trajd_array_reader_destroy(&pool.reader);
    return status;
}
