/* Runs all files through child processes. Several children work at a time, and each takes one file
 * after another. A child that crashes, hangs or breaks the protocol is replaced, and its file is
 * refused.
 *
 * A child that was killed from outside (by the kernel for lack of memory, by Ctrl-C of a terminal)
 * says nothing about its file. The file is tried again after a pause, and from then on half as many
 * children work. A file whose child is killed each time is an error
 * of the machine; it is not refused. */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "daemon/base/clock.h"
#include "daemon/base/heartbeat.h"
#include "daemon/base/progress/progress.h"
#include "daemon/index/index_child.h"
#include "daemon/index/index_internal.h"
#include "proto/regular_file.h"

enum { ATTEMPTS_MAX = 3, CHILD_COUNT_MAX = 256, TEXT_SIZE = 256 };
/* a loaded machine takes long to start a process */
static const int64_t start_timeout_ns = INT64_C(30000000000);
static const int64_t kill_timeout_ns = INT64_C(2000000000);
/* the longest wait before the heartbeat is checked */
static const int64_t turn_ns = 100000000;
static const long retry_pause_ns = 100000000;
static const long killed_pause_ns = 500000000; /* so that memory gets free */
static const size_t decode_bytes_max = (size_t)2 << 30;

struct pool {
    const struct trajd_index_options *options;
    const struct trajd_layout *layout;
    struct trajd_index_lock *lock;
    struct trajd_index_entry *entries;
    uint32_t entry_count, next;
    struct trajd_index_child *children;
    uint32_t child_count;
    uint32_t at_once; /* most children at work */
    const struct trajd_index_entry
        *judged;            /* its record has come and is not accepted yet; or NULL */
    uint32_t killed_starts; /* children that were killed from outside before they had a file */
    struct trajd_array_reader *reader;
    struct trajd_error *error;
};

/* Gives the file a record that only refuses it. `keep`: the record may go into the cache. */
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

/* Has the file tried again after a failure of storage, three times in all. */
static enum trajd_status retry_entry(struct pool *pool, struct trajd_index_entry *entry, int code)
{
    struct timespec pause = {0, retry_pause_ns};

    if (++entry->attempts >= ATTEMPTS_MAX)
        return trajd_error_set(pool->error, TRAJD_ERR_IO, code,
                               "%s: cannot be read after %d attempts: %s", entry->path,
                               ATTEMPTS_MAX, strerror(code));
    nanosleep(&pause, NULL);
    if (pool->next > (uint32_t)(entry - pool->entries))
        pool->next = (uint32_t)(entry - pool->entries);
    return TRAJD_OK;
}

/* Has a file tried again whose child was killed from outside. `entry` NULL: the child had none
 * yet. */
static enum trajd_status retry_killed(struct pool *pool, struct trajd_index_entry *entry,
                                      const char *how)
{
    uint32_t *attempts = entry ? &entry->attempts : &pool->killed_starts;
    struct timespec pause = {0, killed_pause_ns};

    if (++*attempts >= ATTEMPTS_MAX)
        return trajd_error_set(pool->error, TRAJD_ERR_SYSTEM, 0,
                               "%s: %s, %d times: is memory full?",
                               entry ? entry->path : pool->options->helper_path, how, ATTEMPTS_MAX);
    pool->at_once = pool->at_once > 1 ? pool->at_once / 2 : 1;
    nanosleep(&pause, NULL);
    if (entry && pool->next > (uint32_t)(entry - pool->entries))
        pool->next = (uint32_t)(entry - pool->entries);
    return TRAJD_OK;
}

/* Cleans up after a child that has ended, or kills one that must end. `why`: the reason against its
 * file; NULL: the exit status gives it. */
static enum trajd_status lose_child(struct pool *pool, struct trajd_index_child *child,
                                    const char *why)
{
    struct trajd_index_entry *entry = child->entry;
    const bool was_ready = child->ready, has_ended = !why && trajd_helper_has_ended(child->pid);
    char how[TEXT_SIZE] = "the indexing child closed its socket";
    const int status = trajd_index_child_end(child);

    if (has_ended && WIFSIGNALED(status))
        snprintf(how, sizeof how, "the indexing child was killed by signal %d (%s)%s",
                 WTERMSIG(status), strsignal(WTERMSIG(status)),
                 trajd_helper_is_killed(status) ? " from outside" : "");
    else if (has_ended && WEXITSTATUS(status) == TRAJD_HELPER_NO_MEMORY)
        snprintf(how, sizeof how, "the indexing child got no memory");
    else if (has_ended)
        snprintf(how, sizeof how, "the indexing child ended with status %d", WEXITSTATUS(status));
    if (has_ended && trajd_helper_is_killed(status))
        return retry_killed(pool, entry, how);
    if (!was_ready)
        return trajd_error_set(pool->error, TRAJD_ERR_SYSTEM, 0, "%s: does not start: %s",
                               pool->options->helper_path, why ? why : how);
    return entry ? refuse_entry(pool, entry, false, why ? why : how) : TRAJD_OK;
}

static enum trajd_status start_child(struct pool *pool, struct trajd_index_child *child)
{
    enum trajd_status status =
        trajd_index_child_start(child, pool->options->helper_path, pool->error);

    child->deadline_ns = trajd_now_ns() + start_timeout_ns;
    if (!status && !trajd_index_child_send_layout(child, pool->layout))
        status = lose_child(pool, child, NULL);
    return status;
}

/* Updates the entry by fstat, so that size and times are those of the file that is read. False,
 * with *refusal, where it cannot be a recording. */
static bool check_file(struct trajd_index_entry *entry, int fd, const char **refusal)
{
    struct stat status;

    if (fstat(fd, &status) || !S_ISREG(status.st_mode)) {
        *refusal = "not a regular file";
        return false;
    }
    trajd_index_entry_set_stat(entry, &status);
    *refusal = "the file is empty (0 bytes)";
    return status.st_size > 0;
}

static int64_t half_timeout_ns(const struct pool *pool)
{
    return (int64_t)pool->options->file_timeout_ms * 500000;
}

static enum trajd_status give_file(struct pool *pool, struct trajd_index_child *child,
                                   struct trajd_index_entry *entry)
{
    const char *refusal;
    struct trajd_error local;
    enum trajd_status status;
    int fd;

    trajd_heartbeat_wait();
    status = trajd_open_regular(entry->path, &fd, &local);
    trajd_heartbeat_resume();
    if (status == TRAJD_ERR_ARGUMENT)
        return refuse_entry(pool, entry, false, "not a regular file");
    if (status)
        return retry_entry(pool, entry, local.foreign_code);
    if (!check_file(entry, fd, &refusal)) {
        close(fd);
        /* one that stays empty need not start a child at each start of the daemon */
        return refuse_entry(pool, entry, !entry->stat.size_bytes, refusal);
    }
    child->entry = entry;
    child->fd = fd;
    child->progress = (struct trajd_index_progress){0};
    child->deadline_ns = trajd_now_ns() + half_timeout_ns(pool);
    return trajd_index_child_send_file(child) ? TRAJD_OK : lose_child(pool, child, NULL);
}

/* Accepts a decoded record: adds stamps and digests and encodes it for the entry. */
static enum trajd_status accept_record(struct pool *pool, struct trajd_index_entry *entry, int fd,
                                       struct trajd_arena *arena, struct trajd_record *record)
{
    struct trajd_index_media media = {.next = 0};
    struct trajd_error local;
    enum trajd_status status;

    if (record->io_errno)
        return retry_entry(pool, entry, record->io_errno);
    if (!trajd_index_media_folder(pool->options->media_folder, entry->path, media.folder))
        return trajd_error_set(pool->error, TRAJD_ERR_ARGUMENT, 0,
                               "%.512s...: the path is too long", entry->path);
    status = trajd_index_evaluate(pool->layout, pool->reader, fd, entry->stat.size_bytes, &media,
                                  arena, record, &local);
    trajd_index_media_close(&media);
    if (status == TRAJD_ERR_IO)
        return retry_entry(pool, entry, local.foreign_code ? local.foreign_code : EIO);
    if (status == TRAJD_ERR_CLOSED)
        return trajd_heartbeat_check(pool->error);
    entry->keep = !media.is_unsettled;
    if (!status && !trajd_record_encode(record, &entry->record))
        status = TRAJD_ERR_MEMORY;
    return status
               ? trajd_error_set(pool->error, status, 0, "%s: no memory for its index", entry->path)
               : TRAJD_OK;
}

static enum trajd_status hand_out(struct pool *pool);

/* Gives the child its next file, and accepts the record of the last one meanwhile. */
static enum trajd_status accept_meanwhile(struct pool *pool, struct trajd_index_child *child,
                                          struct trajd_arena *arena, struct trajd_record *record)
{
    struct trajd_index_entry *entry = child->entry;
    uint8_t *data = child->data;
    const int fd = child->fd;
    enum trajd_status status = TRAJD_OK;

    child->fd = -1;
    child->data = NULL; /* the record refers to it */
    child->data_capacity = 0;
    trajd_index_child_release(child);
    pool->judged = entry;
    status = hand_out(pool);
    if (!status)
        status = accept_record(pool, entry, fd, arena, record);
    pool->judged = NULL;
    close(fd);
    free(data);
    return status;
}

static enum trajd_status finish_record(struct pool *pool, struct trajd_index_child *child)
{
    struct trajd_arena arena = {.limit_bytes = decode_bytes_max};
    struct trajd_error local;
    struct trajd_record record;
    enum trajd_status status;

    status = trajd_record_decode(child->data, child->data_length, child->entry->stat.size_bytes,
                                 pool->layout->clock_count, &arena, &record, &local);
    if (status == TRAJD_ERR_MEMORY)
        status =
            trajd_error_set(pool->error, status, 0, "%s: %s", child->entry->path, local.message);
    else if (status)
        status = lose_child(pool, child, local.message);
    else
        status = accept_meanwhile(pool, child, &arena, &record);
    trajd_arena_free(&arena);
    return status;
}

static enum trajd_status finish_frame(struct pool *pool, struct trajd_index_child *child)
{
    if (child->header.kind == TRAJD_HELPER_READY && !child->ready) {
        child->ready = true;
        child->header_length = child->data_length = 0;
        return TRAJD_OK;
    }
    if (child->header.kind == TRAJD_HELPER_RECORD && child->entry)
        return finish_record(pool, child);
    return lose_child(pool, child, "the indexing child sent an unexpected frame");
}

static enum trajd_status read_child(struct pool *pool, struct trajd_index_child *child)
{
    switch (trajd_index_child_receive(child)) {
    case TRAJD_CHILD_WAITS:
        break;
    case TRAJD_CHILD_FRAME:
        return finish_frame(pool, child);
    case TRAJD_CHILD_CLOSED:
        return lose_child(pool, child, NULL);
    case TRAJD_CHILD_BROKEN:
        return lose_child(pool, child, "the indexing child broke the framing");
    case TRAJD_CHILD_NO_MEMORY:
        return trajd_error_set(pool->error, TRAJD_ERR_MEMORY, 0, "no memory for a record");
    }
    return TRAJD_OK;
}

/* Returns the next entry that has no record and no child, or NULL. */
static struct trajd_index_entry *next_entry(struct pool *pool)
{
    for (; pool->next < pool->entry_count; pool->next++) {
        struct trajd_index_entry *entry = &pool->entries[pool->next];
        bool taken = entry->record.length > 0 || entry == pool->judged;
        for (uint32_t i = 0; i < pool->child_count && !taken; i++)
            taken = pool->children[i].entry == entry;
        if (!taken)
            return entry;
    }
    return NULL;
}

static bool is_waiting(const struct trajd_index_child *child)
{
    return child->pid && (child->entry || !child->ready);
}

static uint32_t count_waiting(const struct pool *pool)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < pool->child_count; i++)
        count += is_waiting(&pool->children[i]);
    return count;
}

/* Gives the child a file, and starts it first where it does not run. */
static enum trajd_status give_work(struct pool *pool, struct trajd_index_child *child)
{
    enum trajd_status status = TRAJD_OK;
    struct trajd_index_entry *entry;

    while (!status && !child->entry && (entry = next_entry(pool))) {
        if (!child->pid)
            status = start_child(pool, child);
        if (status || !child->ready)
            break;
        status = give_file(pool, child, entry);
    }
    return status;
}

/* Starts children and hands out files to idle ones. */
static enum trajd_status hand_out(struct pool *pool)
{
    enum trajd_status status = TRAJD_OK;

    for (uint32_t i = 0; i < pool->child_count && !status; i++)
        if (is_waiting(&pool->children[i]) || count_waiting(pool) < pool->at_once)
            status = give_work(pool, &pool->children[i]);
    return status;
}

static enum trajd_status check_progress(struct pool *pool, struct trajd_index_child *child,
                                        int64_t now)
{
    char text[TEXT_SIZE];

    if (!child->ready)
        return lose_child(pool, child, "it was not ready within 30 s");
    if (trajd_index_child_may_go_on(child, now)) {
        child->deadline_ns = now + half_timeout_ns(pool);
        return TRAJD_OK;
    }
    snprintf(text, sizeof text, "the indexing child took longer than %" PRIu64 " ms",
             (uint64_t)pool->options->file_timeout_ms * child->progress.looks / 2);
    /* one that cannot be killed is in a read: then the start ends after file_timeout and this time */
    child->waited_ns = 2 * half_timeout_ns(pool) - kill_timeout_ns;
    return lose_child(pool, child, text);
}

/* Waits until a child sends something or a deadline is over, for turn_ns at most. */
static enum trajd_status wait_for_children(struct pool *pool)
{
    struct pollfd polls[CHILD_COUNT_MAX];
    int64_t now = trajd_now_ns(), until = now + turn_ns;
    enum trajd_status status = TRAJD_OK;

    for (uint32_t i = 0; i < pool->child_count; i++) {
        const struct trajd_index_child *child = &pool->children[i];
        polls[i] = (struct pollfd){.fd = is_waiting(child) ? child->socket : -1, .events = POLLIN};
        if (is_waiting(child) && child->deadline_ns < until)
            until = child->deadline_ns;
    }
    if (poll(polls, pool->child_count, until <= now ? 0 : (int)((until - now) / 1000000) + 1) < 0 &&
        errno != EINTR)
        return trajd_error_set(pool->error, TRAJD_ERR_SYSTEM, errno, "poll: %s", strerror(errno));
    now = trajd_now_ns();
    for (uint32_t i = 0; i < pool->child_count && !status; i++) {
        struct trajd_index_child *child = &pool->children[i];
        if (polls[i].fd < 0)
            continue;
        if (polls[i].revents)
            status = read_child(pool, child);
        else if (child->deadline_ns <= now)
            status = check_progress(pool, child, now);
    }
    return status;
}

/* Reports how many of the files, or slices of files, have a record. */
static void report_progress(const struct pool *pool, const char *work)
{
    uint32_t done = pool->next;

    for (uint32_t i = 0; i < pool->child_count; i++)
        done -= pool->children[i].entry && pool->children[i].entry < pool->entries + pool->next;
    trajd_progress_report(work, "files", done, pool->entry_count);
    trajd_index_lock_beat(pool->lock, done, pool->entry_count);
}

static enum trajd_status run(struct pool *pool)
{
    enum trajd_status status = hand_out(pool);
    char work[TRAJD_PROGRESS_TEXT_SIZE];

    snprintf(work, sizeof work, "index of %s", pool->options->path);

    while (!status && (count_waiting(pool) || next_entry(pool))) {
        trajd_heartbeat_turn();
        status = trajd_heartbeat_check(pool->error);
        if (!status)
            status = wait_for_children(pool);
        if (!status)
            status = hand_out(pool);
        report_progress(pool, work);
    }
    return status;
}

enum trajd_status trajd_index_run_children(const struct trajd_index_options *options,
                                           const struct trajd_layout *layout,
                                           struct trajd_index_lock *lock,
                                           struct trajd_index_entry *entries, uint32_t count,
                                           struct trajd_error *error)
{
    struct pool pool = {.options = options,
                        .layout = layout,
                        .lock = lock,
                        .entries = entries,
                        .entry_count = count,
                        .error = error};
    uint32_t missing = 0;
    enum trajd_status status;

    for (uint32_t i = 0; i < count; i++)
        missing += entries[i].record.length == 0;
    if (!missing)
        return TRAJD_OK;
    pool.child_count = options->child_count < missing ? options->child_count : missing;
    if (pool.child_count > CHILD_COUNT_MAX)
        pool.child_count = CHILD_COUNT_MAX;
    pool.at_once = pool.child_count;
    status = trajd_array_reader_create(&pool.reader, error);
    if (status)
        return status;
    pool.children = calloc(pool.child_count, sizeof *pool.children);
    for (uint32_t i = 0; pool.children && i < pool.child_count; i++)
        trajd_index_child_init(&pool.children[i]);
    status = pool.children ? run(&pool)
                           : trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory for children");
    for (uint32_t i = 0; pool.children && i < pool.child_count; i++)
        trajd_index_child_end(&pool.children[i]);
    free(pool.children);
    trajd_array_reader_destroy(&pool.reader);
    return status;
}
