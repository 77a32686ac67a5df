/* A rewriting from the first look to the rename. */
#include "daemon/rewrite/rewrite.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "daemon/base/rename.h"
#include "daemon/rewrite/rewrite_journal.h"
#include "daemon/rewrite/rewrite_rows.h"
#include "daemon/rewrite/rewriting.h"
#include "daemon/rewrite/writer.h"

enum { REWRITE_PATH_SIZE = 4096, THREADS_MAX = 64, WAIT_MS = 50, PROGRESS_MS = 250, COMMIT_MS = 1000, LEVEL_DEFAULT = 4 };

static const uint64_t commit_bytes = UINT64_C(16) << 20;
static const uint64_t journal_bytes_max = UINT64_C(4) << 30;

/* One rewriting under way. */
struct rewriting {
    const struct trajd_rewrite_options *options;
    struct trajd_rewrite_report *report;
    struct trajd_error *error;
    struct rewrite_plan plan;
    struct rewrite_group *groups;
    uint32_t group_count;
    char partial[REWRITE_PATH_SIZE], journal_path[REWRITE_PATH_SIZE], spool_path[REWRITE_PATH_SIZE], folder[REWRITE_PATH_SIZE];
    int fd, journal_fd, spool_fd;
    bool has_files;   /* partial files exist, ours or of the run that is resumed */
    bool is_empty;    /* made just now */
    bool is_begun;    /* begun anew */
    bool began_rows;  /* rows are in them */
    bool is_spent;    /* nothing can go on with them */
    struct rewrite_journal_head head;
    struct rewrite_spool spool;
    bool has_spool;
    bool *done;            /* [episode_count] */
    uint64_t *left;        /* [episode_count]: pieces not finished */
    uint32_t *finished;    /* [episode_count]: in the order of finishing */
    uint32_t finished_count, committed_count;
    uint64_t resumed_bytes;
    struct rewrite_counts counts;
    struct rewrite_backend backend;
    bool told_of_backend; /* that it has failed */
    uint64_t digest;      /* the plan's, of the CPU */
    uint64_t *nan_steps;
    /* threads */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct rewrite_cursor cursor;
    enum trajd_status status; /* of the worker that failed first */
    struct trajd_error worker_error;
    bool stop;
    uint32_t running;
};

static int64_t now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static bool is_cancelled(const struct rewriting *r)
{
    return r->options->cancel && __atomic_load_n(r->options->cancel, __ATOMIC_RELAXED);
}

enum trajd_status rewrite_no_memory(struct rewriting *r)
{
    return trajd_error_set(r->error, TRAJD_ERR_MEMORY, 0, "no memory for %u episodes", r->plan.episode_count);
}

enum trajd_status rewrite_io_error(struct rewriting *r, const char *path)
{
    const int code = errno;

    return trajd_error_set(r->error, TRAJD_ERR_IO, code, "%s: %s", path, strerror(code));
}

void rewrite_tell(const struct rewriting *r, enum trajd_rewrite_phase phase)
{
    struct trajd_rewrite_progress progress = {.phase = phase, .episode_count = r->plan.episode_count, .byte_count = r->plan.byte_count};

    if (!r->options->on_progress)
        return;
    progress.episodes_done = r->report->episodes_resumed + r->finished_count;
    progress.episodes_safe = r->report->episodes_resumed + r->committed_count;
    progress.bytes_done = r->resumed_bytes + __atomic_load_n(&r->counts.bytes_written, __ATOMIC_RELAXED);
    r->options->on_progress(r->options->context, &progress);
}

/* ---- places ---- */

static bool is_input(const struct trajd_rewrite_options *options, const struct stat *status)
{
    for (uint32_t k = 0; k < options->index_count; k++)
        for (uint32_t f = 0; f < options->indexes[k]->file_count; f++) {
            struct stat input;
            if (!stat(options->indexes[k]->files[f].path, &input) && input.st_dev == status->st_dev && input.st_ino == status->st_ino)
                return true;
        }
    return false;
}

static enum trajd_status check_output(struct rewriting *r)
{
    const char *output = r->options->output, *slash;
    struct stat status;

    if (!output || !*output)
        return trajd_error_set(r->error, TRAJD_ERR_ARGUMENT, 0, "no output is named");
    if (strlen(output) + sizeof ".partial.journal" > REWRITE_PATH_SIZE)
        return trajd_error_set(r->error, TRAJD_ERR_ARGUMENT, 0, "the output's path is too long");
    slash = strrchr(output, '/');
    snprintf(r->folder, sizeof r->folder, "%.*s", slash ? (int)(slash - output + (slash == output)) : 1, slash ? output : ".");
    snprintf(r->partial, sizeof r->partial, "%s.partial", output);
    snprintf(r->journal_path, sizeof r->journal_path, "%s.partial.journal", output);
    snprintf(r->spool_path, sizeof r->spool_path, "%s.partial.chunks", output);
    if (!stat(r->partial, &status) && is_input(r->options, &status))
        return trajd_error_set(r->error, TRAJD_ERR_ARGUMENT, 0, "%s is an input, and would be written to", r->partial);
    if (stat(output, &status) && lstat(output, &status)) /* a link that leads nowhere is there */
        return TRAJD_OK;
    if (S_ISDIR(status.st_mode))
        return trajd_error_set(r->error, TRAJD_ERR_ARGUMENT, 0, "%s is a folder: the output is one file", output);
    if (is_input(r->options, &status))
        return trajd_error_set(r->error, TRAJD_ERR_ARGUMENT, 0, "%s is an input too: it is not overwritten", output);
    if (!r->options->force)
        return trajd_error_set(r->error, TRAJD_ERR_ARGUMENT, 0, "%s exists: --force replaces it when the new one is finished", output);
    return TRAJD_OK;
}

/* The partial file is ours alone as long as it is locked. */
static enum trajd_status open_partial(struct rewriting *r)
{
    struct stat held, named;

    r->fd = open(r->partial, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (r->fd < 0) {
        const enum trajd_status status = errno == ENOENT || errno == ENOTDIR ? TRAJD_ERR_NOT_FOUND : TRAJD_ERR_IO;
        return trajd_error_set(r->error, status, errno, "%s: %s", r->partial, strerror(errno));
    }
    if (flock(r->fd, LOCK_EX | LOCK_NB) || fstat(r->fd, &held) || stat(r->partial, &named) || held.st_ino != named.st_ino)
        return trajd_error_set(r->error, TRAJD_ERR_BUSY, 0, "%s: another run is at it", r->partial);
    r->is_empty = !held.st_size;
    if (held.st_size && !r->options->resume)
        rewrite_note(r->options, "%s of an earlier run is begun anew (--resume would go on with it)", r->partial);
    r->has_files = true;
    r->journal_fd = open(r->journal_path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (r->journal_fd < 0)
        return rewrite_io_error(r, r->journal_path);
    if (!fstat(r->journal_fd, &held) && held.st_size)
        r->is_empty = false; /* a run that went on with chunks alone was cut when it made the file anew */
    for (uint32_t d = 0; d < r->plan.dataset_count; d++)
        r->has_spool = r->has_spool || r->plan.datasets[d].is_compressed;
    if (r->has_spool)
        r->spool_fd = open(r->spool_path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    return r->has_spool && r->spool_fd < 0 ? rewrite_io_error(r, r->spool_path) : TRAJD_OK;
}

/* Tables of compressed arrays' chunks. */
static enum trajd_status make_spool(struct rewriting *r)
{
    struct rewrite_plan *plan = &r->plan;

    r->spool = (struct rewrite_spool){.fd = r->spool_fd, .level = r->options->compress_level ? r->options->compress_level : LEVEL_DEFAULT};
    if (!r->has_spool)
        return TRAJD_OK;
    r->spool.chunks = trajd_arena_alloc(&plan->arena, plan->episode_count * sizeof *r->spool.chunks);
    for (uint32_t e = 0; r->spool.chunks && e < plan->episode_count; e++) {
        const struct rewrite_episode *episode = &plan->episodes[e];
        r->spool.chunks[e] = trajd_arena_alloc(&plan->arena, (episode->array_count + 1) * sizeof *r->spool.chunks[e]);
        for (uint32_t a = 0; r->spool.chunks[e] && a < episode->array_count; a++) {
            const struct rewrite_dataset *dataset = &plan->datasets[episode->arrays[a].dataset];
            if (!dataset->is_compressed)
                continue;
            r->spool.chunks[e][a] =
                trajd_arena_alloc(&plan->arena, rewrite_chunk_count(dataset, episode->step_count) * sizeof *r->spool.chunks[e][a]);
            if (!r->spool.chunks[e][a])
                return rewrite_no_memory(r);
        }
        if (!r->spool.chunks[e])
            return rewrite_no_memory(r);
    }
    return r->spool.chunks ? TRAJD_OK : rewrite_no_memory(r);
}

/* ---- going on, or beginning ---- */

static enum trajd_status load_journal(struct rewriting *r, uint8_t **data, size_t *length)
{
    struct stat status;

    *data = NULL;
    if (fstat(r->journal_fd, &status))
        return rewrite_io_error(r, r->journal_path);
    *length = (size_t)status.st_size < journal_bytes_max ? (size_t)status.st_size : 0;
    *data = malloc(*length + 1);
    if (!*data)
        return rewrite_no_memory(r);
    for (size_t have = 0; have < *length;) {
        const ssize_t got = pread(r->journal_fd, *data + have, *length - have, (off_t)have);
        if (got < 0)
            return rewrite_io_error(r, r->journal_path);
        if (!got)
            *length = have;
        have += (size_t)got;
    }
    return TRAJD_OK;
}

/* Without its signature nobody takes the file for a finished one. */
static enum trajd_status take_signature(struct rewriting *r)
{
    static const uint64_t none;

    if (pread(r->fd, &r->head.signature, sizeof r->head.signature, 0) != (ssize_t)sizeof r->head.signature)
        return rewrite_io_error(r, r->partial);
    return rewrite_pwrite(r->fd, &none, sizeof none, 0, r->partial, r->error);
}

/* The file with its structure, and room for rows. */
static enum trajd_status make_file(struct rewriting *r)
{
    enum trajd_status status = ftruncate(r->fd, 0) ? rewrite_io_error(r, r->partial)
                                                   : rewrite_skeleton_make(&r->plan, r->fd, &r->head.file_size, r->error);

    if (!status)
        status = take_signature(r);
    /* all room at once, so that a disk that is too small is known before the work */
    if (!status && fallocate(r->fd, 0, 0, (off_t)r->head.file_size) && errno != EOPNOTSUPP && errno != ENOSYS)
        status = rewrite_io_error(r, r->options->output);
    if (!status && fdatasync(r->fd))
        status = rewrite_io_error(r, r->partial);
    return status;
}

/* All rows are in chunks, which lie in a file of their own until the end: nothing of the partial file is missed. */
bool rewrite_is_all_chunks(const struct rewriting *r)
{
    for (uint32_t d = 0; d < r->plan.dataset_count; d++)
        if (!r->plan.datasets[d].is_compressed)
            return false;
    return true;
}

/* The journal's digest tells as well where the arithmetic was begun. */
static uint64_t digest_of(const struct rewriting *r, bool is_on_gpu)
{
    static const uint64_t on_gpu = UINT64_C(0x675075); /* any number but 0 */

    return r->digest ^ (is_on_gpu ? on_gpu : 0);
}

/* A file that says nothing of a GPU has no values of one. */
static enum trajd_status go_on_here(struct rewriting *r)
{
    if (r->plan.is_on_gpu || !r->backend.is_on_gpu)
        return TRAJD_OK;
    if (!r->backend.may_fall_back)
        return trajd_error_set(r->error, TRAJD_ERR_ARGUMENT, 0, "it was begun on the CPU: --backend cpu goes on with it");
    rewrite_note(r->options, "%s was begun on the CPU, which goes on with it", r->partial);
    r->backend.kind = r->report->backend = TRAJD_REWRITE_CPU;
    r->backend.is_on_gpu = false; /* should it be begun anew after all */
    return TRAJD_OK;
}

static enum trajd_status read_journal(struct rewriting *r, const uint8_t *data, size_t length, uint64_t spool_size, size_t *used)
{
    enum trajd_status status = TRAJD_ERR_ARGUMENT;

    for (int other = 0; other < 2 && status == TRAJD_ERR_ARGUMENT; other++) {
        r->plan.is_on_gpu = other ? !r->backend.is_on_gpu : r->backend.is_on_gpu;
        r->plan.digest = digest_of(r, r->plan.is_on_gpu);
        status = rewrite_journal_read(data, length, &r->plan, &r->head, r->done, (struct rewrite_chunk *const *const *)r->spool.chunks,
                                      spool_size, used, r->error);
    }
    return status ? status : go_on_here(r);
}

/* What is finished stays; chunks of what is not are cut off or lie unused. */
enum trajd_status rewrite_resume(struct rewriting *r)
{
    struct stat file, spool = {0};
    uint8_t *data;
    size_t length = 0, used = 0;
    enum trajd_status status = load_journal(r, &data, &length);

    if (!status && (fstat(r->fd, &file) || (r->has_spool && fstat(r->spool_fd, &spool))))
        status = rewrite_io_error(r, r->partial);
    if (!status)
        status = read_journal(r, data, length, (uint64_t)spool.st_size, &used);
    free(data);
    if (!status && !rewrite_is_all_chunks(r) && (uint64_t)file.st_size != r->head.file_size)
        status = trajd_error_set(r->error, TRAJD_ERR_NOT_FOUND, 0, "the file has not the journal's size");
    if (!status && ftruncate(r->journal_fd, (off_t)used))
        status = rewrite_io_error(r, r->journal_path);
    if (status) {
        memset(r->done, 0, r->plan.episode_count);
        return status == TRAJD_ERR_ARGUMENT ? trajd_error_prefix(r->error, "%s cannot be resumed", r->partial) : status;
    }
    r->spool.length = (uint64_t)spool.st_size;
    for (uint32_t e = 0; e < r->plan.episode_count; e++)
        if (r->done[e]) {
            r->report->episodes_resumed++;
            for (uint32_t a = 0; a < r->plan.episodes[e].array_count; a++)
                r->resumed_bytes += r->plan.datasets[r->plan.episodes[e].arrays[a].dataset].row_bytes * r->plan.episodes[e].step_count;
        }
    r->began_rows = true;
    r->is_empty = false;
    return rewrite_is_all_chunks(r) ? make_file(r) : TRAJD_OK; /* it may have been cut while chunks went into it */
}

enum trajd_status rewrite_begin(struct rewriting *r)
{
    enum trajd_status status = TRAJD_OK;

    r->is_begun = true;
    r->is_empty = false;
    r->plan.is_on_gpu = r->backend.is_on_gpu;
    r->plan.digest = digest_of(r, r->plan.is_on_gpu);
    /* the journal's end first, for good: it must not speak of rows that the new file has not */
    if (ftruncate(r->journal_fd, 0) || fdatasync(r->journal_fd) || (r->has_spool && ftruncate(r->spool_fd, 0)))
        return rewrite_io_error(r, r->partial);
    status = make_file(r);
    return status ? status : rewrite_journal_begin(r->journal_fd, &r->plan, &r->head, r->error);
}

/* ---- rows ---- */

static void finish_piece(struct rewriting *r, const struct rewrite_piece *piece)
{
    if (--r->left[piece->episode] == 0) {
        r->finished[r->finished_count++] = piece->episode;
        pthread_cond_signal(&r->changed);
    }
}

static void *work(void *context)
{
    struct rewriting *r = context;
    struct rewrite_worker *worker = NULL;
    struct rewrite_piece piece;
    struct trajd_error error;
    enum trajd_status status = rewrite_worker_create(&r->plan, r->groups, r->fd, r->has_spool ? &r->spool : NULL, &r->backend,
                                                     r->nan_steps, &r->counts, &worker, &error);

    pthread_mutex_lock(&r->lock);
    while (!status && !r->stop && rewrite_cursor_next(&r->cursor, &piece)) {
        pthread_mutex_unlock(&r->lock);
        status = rewrite_worker_run(worker, &piece, &error);
        pthread_mutex_lock(&r->lock);
        if (!status)
            finish_piece(r, &piece);
    }
    if (status && !r->status) {
        r->status = status;
        r->worker_error = error;
    }
    r->stop = r->stop || status;
    r->running--;
    pthread_cond_signal(&r->changed);
    pthread_mutex_unlock(&r->lock);
    rewrite_worker_destroy(&worker);
    return NULL;
}

/* Episodes whose rows are on the disk are finished for good. Called with the lock held, which it drops for the disk. */
enum trajd_status rewrite_commit(struct rewriting *r)
{
    const uint32_t until = r->finished_count;
    enum trajd_status status = TRAJD_OK;

    pthread_mutex_unlock(&r->lock);
    if (fdatasync(r->fd) || (r->has_spool && fdatasync(r->spool_fd)))
        status = rewrite_io_error(r, r->partial);
    for (uint32_t i = r->committed_count; i < until && !status; i++)
        status = rewrite_journal_append(r->journal_fd, &r->plan, r->finished[i],
                                        r->has_spool ? r->spool.chunks[r->finished[i]] : NULL, r->error);
    if (!status && fdatasync(r->journal_fd))
        status = rewrite_io_error(r, r->journal_path);
    pthread_mutex_lock(&r->lock);
    if (!status)
        r->committed_count = until;
    return status;
}

/* Notes are this thread's to tell. */
static void tell_of_backend(struct rewriting *r)
{
    if (r->told_of_backend || !__atomic_load_n(&r->backend.has_failed, __ATOMIC_ACQUIRE)) /* the failure was filled before */
        return;
    r->told_of_backend = true;
    rewrite_note(r->options, "%s: the CPU goes on", r->backend.failure.message);
}

/* While the workers work: progress, the journal, the wish to stop. */
static enum trajd_status watch(struct rewriting *r)
{
    int64_t told_ms = now_ms(), committed_ms = told_ms;
    uint64_t committed_bytes = 0;
    enum trajd_status status = TRAJD_OK;

    pthread_mutex_lock(&r->lock);
    while (r->running) {
        const uint64_t bytes = __atomic_load_n(&r->counts.bytes_written, __ATOMIC_RELAXED);
        struct timespec until;
        if (is_cancelled(r) && !r->stop) {
            r->stop = true;
            status = trajd_error_set(r->error, TRAJD_ERR_CLOSED, 0, "interrupted");
        }
        if (!r->stop && r->finished_count > r->committed_count &&
            (now_ms() - committed_ms >= COMMIT_MS || bytes - committed_bytes >= commit_bytes)) {
            status = rewrite_commit(r);
            r->stop = r->stop || status;
            committed_ms = now_ms();
            committed_bytes = bytes;
        }
        if (now_ms() - told_ms >= PROGRESS_MS) {
            told_ms = now_ms();
            rewrite_tell(r, TRAJD_REWRITE_RUNNING);
            tell_of_backend(r);
        }
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += WAIT_MS * 1000000;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        if (r->running)
            pthread_cond_timedwait(&r->changed, &r->lock, &until);
    }
    tell_of_backend(r);
    if (r->status) {
        status = r->status;
        *r->error = r->worker_error;
    }
    if (r->finished_count > r->committed_count && (status == TRAJD_ERR_CLOSED || status == TRAJD_ERR_DATA || status == TRAJD_ERR_DEVICE)) {
        struct trajd_error kept = *r->error;
        rewrite_commit(r);
        *r->error = kept;
    }
    pthread_mutex_unlock(&r->lock);
    return status;
}

uint32_t rewrite_thread_count(const struct rewriting *r)
{
    const long processors = sysconf(_SC_NPROCESSORS_ONLN);
    const uint32_t count = r->options->thread_count ? r->options->thread_count : processors > 0 ? (uint32_t)processors : 1;

    return count > THREADS_MAX ? THREADS_MAX : count;
}

enum trajd_status rewrite_write_rows(struct rewriting *r)
{
    uint32_t count = rewrite_backend_threads(&r->backend, rewrite_thread_count(r));
    pthread_t threads[THREADS_MAX];
    enum trajd_status status;
    sigset_t all, before;

    for (uint32_t e = 0; e < r->plan.episode_count; e++)
        r->left[e] = rewrite_piece_count(&r->plan, r->groups, r->group_count, e);
    r->cursor = (struct rewrite_cursor){.plan = &r->plan, .group_count = r->group_count, .groups = r->groups, .done = r->done};
    r->began_rows = true;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    pthread_mutex_lock(&r->lock);
    while (r->running < count && !pthread_create(&threads[r->running], NULL, work, r))
        r->running++;
    count = r->running;
    pthread_mutex_unlock(&r->lock);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!count)
        return trajd_error_set(r->error, TRAJD_ERR_SYSTEM, errno, "no thread can be started");
    status = watch(r);
    for (uint32_t i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    return status;
}

/* ---- the end ---- */

static enum trajd_status sync_folder(struct rewriting *r)
{
    const int fd = open(r->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const bool failed = fd < 0 || (fsync(fd) && errno != EINVAL);

    if (fd >= 0)
        close(fd);
    return failed ? rewrite_io_error(r, r->folder) : TRAJD_OK;
}

static enum trajd_status put_signature(struct rewriting *r)
{
    return rewrite_pwrite(r->fd, &r->head.signature, sizeof r->head.signature, 0, r->partial, r->error);
}

/* From here on the file's structure changes under a kill: rows that lie in it cannot be gone on with then. */
static enum trajd_status give_up_rows(struct rewriting *r)
{
    enum trajd_status status;

    r->is_spent = !rewrite_is_all_chunks(r);
    if (r->is_spent)
        return unlink(r->journal_path) && errno != ENOENT ? rewrite_io_error(r, r->journal_path) : TRAJD_OK;
    pthread_mutex_lock(&r->lock);
    status = rewrite_commit(r);
    pthread_mutex_unlock(&r->lock);
    return status;
}

static enum trajd_status add_chunks(struct rewriting *r)
{
    enum trajd_status status = give_up_rows(r);

    if (!status)
        status = put_signature(r);
    if (!status)
        status = rewrite_skeleton_add_chunks(&r->plan, (struct rewrite_chunk *const *const *)r->spool.chunks, r->fd, r->spool_fd,
                                             &r->head.file_size, r->error);
    return status;
}

/* Rows of a file that somebody wrote to while it was read are of no recording. */
static enum trajd_status check_inputs(struct rewriting *r)
{
    const struct trajd_index_file *checked = NULL;
    enum trajd_status status = TRAJD_OK;

    for (uint32_t e = 0; e < r->plan.episode_count && !status; e++) {
        const struct trajd_index *index = r->options->indexes[r->plan.episodes[e].source];
        const struct trajd_index_file *file = &index->files[index->episodes[r->plan.episodes[e].episode].file_index];
        struct stat now;
        if (file == checked)
            continue;
        status = stat(file->path, &now) ? rewrite_io_error(r, file->path) : rewrite_check_input(file, &now, r->error);
        checked = file;
    }
    r->is_spent = status == TRAJD_ERR_DATA;
    return status;
}

/* Whoever takes the file away while it is written has taken it away: what bears its name by then is another's. */
static enum trajd_status check_name(struct rewriting *r)
{
    struct stat held, named;

    if (!fstat(r->fd, &held) && !lstat(r->partial, &named) && held.st_ino == named.st_ino && held.st_dev == named.st_dev)
        return TRAJD_OK;
    r->has_files = false;
    return trajd_error_set(r->error, TRAJD_ERR_IO, 0, "%s: somebody has removed or replaced it while it was written", r->partial);
}

static enum trajd_status name_output(struct rewriting *r)
{
    bool is_sure = true;

    if (r->options->force ? rename(r->partial, r->options->output) : trajd_rename_new(r->partial, r->options->output, &is_sure))
        return rewrite_io_error(r, r->options->output);
    if (!is_sure)
        rewrite_note(r->options, "%s: its filesystem can neither rename without replacing nor link: a file of that name that appeared at this very "
                     "moment was replaced", r->options->output);
    return TRAJD_OK;
}

enum trajd_status rewrite_publish(struct rewriting *r)
{
    enum trajd_status status = check_inputs(r);

    if (!status)
        status = check_name(r);
    if (!status && r->has_spool)
        status = add_chunks(r);
    if (!status && fsync(r->fd))
        status = rewrite_io_error(r, r->partial);
    if (!status && !r->has_spool)
        status = put_signature(r);
    if (!status && !r->has_spool && fsync(r->fd))
        status = rewrite_io_error(r, r->partial);
    if (!status)
        status = check_name(r);
    if (!status)
        status = name_output(r);
    if (status)
        return status;
    r->has_files = false;
    unlink(r->journal_path);
    unlink(r->spool_path);
    return sync_folder(r);
}

static void fill_report(struct rewriting *r)
{
    struct trajd_rewrite_report *report = r->report;

    report->rows_read = r->counts.rows_read;
    report->rows_written = r->counts.rows_written;
    report->bytes_read = r->counts.bytes_read;
    report->bytes_written = r->counts.bytes_written;
    report->episodes_written = r->finished_count;
    report->pieces = r->backend.pieces;
    report->pieces_here = r->backend.pieces_here;
    report->fell_back = r->backend.has_failed;
    for (uint32_t s = 0; s < report->stream_count && r->nan_steps; s++)
        ((struct trajd_rewrite_stream *)report->streams)[s].nan_steps = r->nan_steps[s];
}

/* A disk that is full is no place to leave half a file on. */
static void clean_up(struct rewriting *r, enum trajd_status status)
{
    const bool full = status == TRAJD_ERR_IO && r->error &&
                      (r->error->foreign_code == ENOSPC || r->error->foreign_code == EDQUOT || r->error->foreign_code == EFBIG);

    if (status && r->has_files && (full || r->is_spent || (r->is_begun && !r->began_rows) || r->is_empty)) {
        unlink(r->partial);
        unlink(r->journal_path);
        unlink(r->spool_path);
    } else if (status && r->began_rows && r->has_files) {
        rewrite_note(r->options, "%s is kept with %llu of %u episodes: --resume goes on with it", r->partial,
                     (unsigned long long)(r->report->episodes_resumed + r->committed_count), r->plan.episode_count);
    }
    if (r->fd >= 0)
        close(r->fd);
    if (r->journal_fd >= 0)
        close(r->journal_fd);
    if (r->spool_fd >= 0)
        close(r->spool_fd);
    free(r->done);
    free(r->left);
    free(r->finished);
    free(r->nan_steps);
    pthread_mutex_destroy(&r->lock);
    pthread_cond_destroy(&r->changed);
    rewrite_backend_clear(&r->backend);
    rewrite_plan_clear(&r->plan);
}

static enum trajd_status allocate(struct rewriting *r)
{
    const size_t count = (size_t)r->plan.episode_count + 1;

    r->done = calloc(count, sizeof *r->done);
    r->left = calloc(count, sizeof *r->left);
    r->finished = calloc(count, sizeof *r->finished);
    r->nan_steps = calloc((size_t)r->plan.stream_count + 1, sizeof *r->nan_steps);
    if (!r->done || !r->left || !r->finished || !r->nan_steps)
        return rewrite_no_memory(r);
    return rewrite_groups_make(&r->plan, &r->groups, &r->group_count, r->error);
}

/* The plan as a report. */
static void report_plan(struct rewriting *r)
{
    struct trajd_rewrite_report *report = r->report;

    report->streams = r->plan.streams;
    report->stream_count = r->plan.stream_count;
    report->episodes_left_out = r->plan.left_out;
    report->episodes_cut = r->plan.cut_count;
    report->steps = r->plan.step_count;
    report->duration_ns = r->plan.duration_ns;
    report->episode_count = r->plan.episode_count;
    report->byte_count = r->plan.byte_count;
    report->backend = r->backend.kind;
    snprintf(report->backend_text, sizeof report->backend_text, "%s", r->backend.text);
    if (r->options->on_plan)
        r->options->on_plan(r->options->context, report);
    rewrite_tell(r, TRAJD_REWRITE_PLANNED);
}

static enum trajd_status run(struct rewriting *r)
{
    enum trajd_status status = open_partial(r);

    if (!status)
        status = allocate(r);
    if (!status)
        status = make_spool(r);
    if (status)
        return status;
    status = r->options->resume ? rewrite_resume(r) : TRAJD_ERR_NOT_FOUND;
    if (status == TRAJD_ERR_NOT_FOUND || status == TRAJD_ERR_DATA) {
        if (r->options->resume)
            rewrite_note(r->options, "nothing to resume: %s", r->error->message);
        status = rewrite_begin(r);
    }
    if (!status)
        status = rewrite_write_rows(r);
    rewrite_tell(r, TRAJD_REWRITE_CLOSING);
    return status ? status : rewrite_publish(r);
}

enum trajd_status trajd_rewrite_file(const struct trajd_rewrite_options *options, struct trajd_rewrite_report *report,
                                     struct trajd_error *error)
{
    struct trajd_error unwanted;
    struct rewriting r = {.options = options, .report = report, .error = error ? error : &unwanted, .fd = -1, .journal_fd = -1, .spool_fd = -1};
    enum trajd_status status;

    *report = (struct trajd_rewrite_report){0};
    pthread_mutex_init(&r.lock, NULL);
    pthread_cond_init(&r.changed, NULL);
    status = rewrite_plan_make(options, &r.plan, r.error);
    if (!status && (!options->dry_run || options->output))
        status = check_output(&r);
    r.digest = r.plan.digest;
    if (!status)
        status = rewrite_backend_choose(&r.plan, rewrite_thread_count(&r), &r.backend, r.error);
    if (!status) {
        report_plan(&r);
        if (!options->dry_run)
            status = run(&r);
        fill_report(&r);
        r.plan.streams = NULL; /* the report's now */
        if (!status && !options->dry_run)
            rewrite_tell(&r, TRAJD_REWRITE_DONE);
    }
    clean_up(&r, status);
    return status;
}

void trajd_rewrite_report_clear(struct trajd_rewrite_report *report)
{
    free((void *)report->streams);
    *report = (struct trajd_rewrite_report){0};
}
