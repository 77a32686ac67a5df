#include "daemon/feed/journal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define JOURNAL_MAGIC UINT64_C(0x314c4e524a4a5254) /* "TRJJRNL1" */
#define JOURNAL_VERSION 2u
#define VALUE_BITS 48
#define FLUSHES_PER_TOUCH 3600u /* once an hour at one flush a second */
/* a sweep may hold the lock for a moment, and may remove the file in between */
#define OPEN_ATTEMPTS 8

struct record {
    struct trajd_journal_key key;
    uint64_t run;
    uint64_t key_check;      /* over key and run */
    uint64_t high;           /* sealed */
    uint64_t sessions, pass; /* sealed; 0 in a journal of 0.1.0, which has neither */
    uint64_t reserved[20];
    uint64_t undone[TRAJD_JOURNAL_MAX_UNDONE]; /* sealed: batch + 1, or 0 */
};

struct file {
    uint64_t magic;
    uint32_t version, reserved;
    /* Counts the epochs that were begun. records[run % 2] is the one in use, and has the same
     * number, because the death of the host may leave pages of different ages. */
    uint64_t run;
    uint8_t unused[4072];
    struct record records[2];
};

_Static_assert(sizeof(struct record) == 4096, "a record is one page");
_Static_assert(sizeof(struct file) == 3 * 4096, "a journal is three pages");

struct trajd_journal {
    int fd;
    struct file *file;
    uint32_t flushes; /* since its time was set */
};

static uint64_t mix(uint64_t value)
{
    value = (value ^ value >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    value = (value ^ value >> 27) * UINT64_C(0x94d049bb133111eb);
    return value ^ value >> 31;
}

static uint64_t hash_bytes(uint64_t hash, const void *bytes, size_t size)
{
    const uint8_t *at = bytes;

    for (size_t i = 0; i < size; i++)
        hash = mix(hash + at[i] + 1);
    return hash;
}

/* Returns the value with its check in the upper 16 bits. The check depends on the word's place and
 * on its record, so that no word passes for another one. */
static uint64_t seal(const struct record *record, const uint64_t *place, uint64_t value)
{
    uint64_t index = (uint64_t)(place - (const uint64_t *)(const void *)record);

    return value | mix(record->key_check + mix(value << 10 | index)) << VALUE_BITS;
}

static bool unseal(const struct record *record, const uint64_t *place, uint64_t *value)
{
    *value = *place & ((UINT64_C(1) << VALUE_BITS) - 1);
    return seal(record, place, *value) == *place;
}

/* Stores a sealed value. The order of these stores matters: a killed process leaves a prefix of
 * them. */
static void store(struct record *record, uint64_t *place, uint64_t value)
{
    __atomic_store_n(place, seal(record, place, value), __ATOMIC_RELEASE);
}

static uint64_t key_check(const struct record *record)
{
    return hash_bytes(JOURNAL_MAGIC + record->run, &record->key, sizeof record->key);
}

static struct record *record_of(struct file *file, uint64_t run)
{
    return &file->records[run % 2];
}

static int compare_numbers(const void *a, const void *b)
{
    uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;

    return left < right ? -1 : left > right;
}

void trajd_journal_sort_undone(struct trajd_journal_state *state)
{
    qsort(state->undone, state->undone_count, sizeof state->undone[0], compare_numbers);
}

/* Returns false if the record breaks any rule. */
static bool read_record(const struct record *record, uint64_t run,
                        struct trajd_journal_state *state)
{
    uint64_t value;

    if (record->run != run || record->key_check != key_check(record) || !record->key.batch ||
        record->key.begin > record->key.length)
        return false;
    state->key = record->key;
    state->undone_count = 0;
    if (!unseal(record, &record->high, &state->high) ||
        state->high >
            (record->key.length - record->key.begin + record->key.batch - 1) / record->key.batch)
        return false;
    for (uint32_t i = 0; i < TRAJD_JOURNAL_MAX_UNDONE; i++) {
        if (!unseal(record, &record->undone[i], &value))
            return false;
        if (value)
            state->undone[state->undone_count++] = value - 1;
    }
    trajd_journal_sort_undone(state);
    for (uint32_t i = 1; i < state->undone_count; i++)
        if (state->undone[i] == state->undone[i - 1])
            return false;
    /* If the process died after it stored a batch's number and before it stored `high`, the batch
     * counts as not produced. */
    while (state->undone_count && state->undone[state->undone_count - 1] >= state->high)
        state->undone_count--;
    if (!unseal(record, &record->pass, &state->pass))
        state->pass = 0;
    if (!unseal(record, &record->sessions, &value) || value > TRAJD_JOURNAL_ANY_SESSIONS)
        value = TRAJD_JOURNAL_ANY_SESSIONS;
    state->sessions = (uint32_t)value;
    return true;
}

static bool is_sound(struct file *file)
{
    struct trajd_journal_state state;

    if (file->magic != JOURNAL_MAGIC || file->version != JOURNAL_VERSION)
        return false;
    return !file->run || read_record(record_of(file, file->run), file->run, &state);
}

uint64_t trajd_journal_number(const char *feed, const char *job)
{
    return hash_bytes(hash_bytes(0, job, strlen(job) + 1), feed, strlen(feed));
}

/* Makes a file name of safe characters from both names. The number makes it unique. */
static void make_name(char *name, size_t room, const char *feed, const char *job)
{
    int length = snprintf(name, room, "%.64s@%.64s-%016llx.journal", job, feed,
                          (unsigned long long)trajd_journal_number(feed, job));

    for (int i = 0; i < length; i++)
        if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._@-",
                    name[i]) ||
            (i == 0 && name[i] == '.'))
            name[i] = '_';
}

bool trajd_journal_is_journal(int fd, off_t size_bytes)
{
    uint64_t magic;

    return size_bytes == (off_t)sizeof(struct file) &&
           pread(fd, &magic, sizeof magic, 0) == sizeof magic && magic == JOURNAL_MAGIC;
}

static enum trajd_status open_locked(const char *directory, const char *name, int *fd,
                                     struct stat *status, struct trajd_error *error)
{
    int folder = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (folder < 0)
        return trajd_error_set(error, TRAJD_ERR_IO, errno, "%s: %s", directory, strerror(errno));
    *fd = openat(folder, name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    close(folder);
    if (*fd < 0)
        return trajd_error_set(error, TRAJD_ERR_IO, errno, "%s/%s: %s", directory, name,
                               strerror(errno));
    if (flock(*fd, LOCK_EX | LOCK_NB))
        return trajd_error_set(error, errno == EWOULDBLOCK ? TRAJD_ERR_BUSY : TRAJD_ERR_IO, errno,
                               "%s/%s: another process has this journal open", directory, name);
    if (fstat(*fd, status) == 0)
        return TRAJD_OK;
    return trajd_error_set(error, TRAJD_ERR_IO, errno, "%s/%s: %s", directory, name,
                           strerror(errno));
}

static enum trajd_status open_file(const char *directory, const char *name, int *fd, bool *damaged,
                                   bool *is_new, struct trajd_error *error)
{
    const struct timespec pause = {.tv_nsec = 1000000};
    struct stat status;
    enum trajd_status opened = open_locked(directory, name, fd, &status, error);

    for (int attempt = 1;
         (opened == TRAJD_ERR_BUSY || (!opened && !status.st_nlink)) && attempt < OPEN_ATTEMPTS;
         attempt++) {
        close(*fd);
        nanosleep(&pause, NULL);
        opened = open_locked(directory, name, fd, &status, error);
    }
    if (!opened && !status.st_nlink)
        opened =
            trajd_error_set(error, TRAJD_ERR_BUSY, 0,
                            "%s/%s: another process is removing this journal", directory, name);
    if (opened)
        return opened;
    /* The age of the journal counts from now. If that fails, at worst a sweep removes it too
     * early. */
    futimens(*fd, NULL);
    if (!S_ISREG(status.st_mode))
        return trajd_error_set(error, TRAJD_ERR_IO, errno, "%s/%s: not a regular file", directory,
                               name);
    *is_new = status.st_size == 0;
    *damaged = !*is_new && status.st_size != (off_t)sizeof(struct file);
    if (*damaged && ftruncate(*fd, 0))
        return trajd_error_set(error, TRAJD_ERR_IO, errno, "%s/%s: %s", directory, name,
                               strerror(errno));
    /* With the space allocated, a full disk is an error here and not a SIGBUS later. */
    errno = posix_fallocate(*fd, 0, sizeof(struct file));
    if (errno)
        return trajd_error_set(error, TRAJD_ERR_IO, errno, "%s/%s: %s", directory, name,
                               strerror(errno));
    *is_new |= *damaged;
    return TRAJD_OK;
}

enum trajd_status trajd_journal_open(const char *directory, const char *feed, const char *job,
                                     struct trajd_journal **journal, bool *damaged,
                                     struct trajd_error *error)
{
    struct trajd_journal *made = calloc(1, sizeof *made);
    enum trajd_status status;
    bool is_new = false;
    char name[200];

    if (!made)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, ENOMEM, "journal: no memory");
    made->fd = -1;
    make_name(name, sizeof name, feed, job);
    status = open_file(directory, name, &made->fd, damaged, &is_new, error);
    if (status)
        goto failed;
    made->file = mmap(NULL, sizeof *made->file, PROT_READ | PROT_WRITE, MAP_SHARED, made->fd, 0);
    if (made->file == MAP_FAILED) {
        made->file = NULL;
        status = trajd_error_set(error, TRAJD_ERR_IO, errno, "%s/%s: mmap: %s", directory, name,
                                 strerror(errno));
        goto failed;
    }
    if (!is_new && !is_sound(made->file))
        *damaged = true;
    if (is_new || *damaged) {
        memset(made->file, 0, sizeof *made->file);
        made->file->version = JOURNAL_VERSION;
        made->file->magic = JOURNAL_MAGIC;
    }
    *journal = made;
    return TRAJD_OK;
failed:
    trajd_journal_close(&made);
    return status;
}

void trajd_journal_close(struct trajd_journal **journal)
{
    struct trajd_journal *closing = *journal;

    *journal = NULL;
    if (!closing)
        return;
    if (closing->file)
        munmap(closing->file, sizeof *closing->file);
    if (closing->fd >= 0) {
        futimens(closing->fd, NULL);
        close(closing->fd);
    }
    free(closing);
}

bool trajd_journal_load(const struct trajd_journal *journal, struct trajd_journal_state *state)
{
    uint64_t run = journal->file->run;

    return run && read_record(record_of(journal->file, run), run, state);
}

void trajd_journal_begin(struct trajd_journal *journal, const struct trajd_journal_state *state)
{
    uint64_t run = journal->file->run + 1;
    struct record *record = record_of(journal->file, run);

    memset(record, 0, sizeof *record);
    record->key = state->key;
    record->run = run;
    record->key_check = key_check(record);
    for (uint32_t i = 0; i < TRAJD_JOURNAL_MAX_UNDONE; i++)
        store(record, &record->undone[i], i < state->undone_count ? state->undone[i] + 1 : 0);
    store(record, &record->high, state->high);
    store(record, &record->pass, state->pass);
    store(record, &record->sessions, state->sessions);
    /* the record is in use from here on */
    __atomic_store_n(&journal->file->run, run, __ATOMIC_RELEASE);
}

static uint64_t *find_entry(struct record *record, uint64_t value)
{
    for (uint32_t i = 0; i < TRAJD_JOURNAL_MAX_UNDONE; i++)
        if ((record->undone[i] & ((UINT64_C(1) << VALUE_BITS) - 1)) == value)
            return &record->undone[i];
    return NULL;
}

void trajd_journal_produce(struct trajd_journal *journal, uint64_t batch)
{
    struct record *record = record_of(journal->file, journal->file->run);
    uint64_t *entry, high;

    if (!journal->file->run || find_entry(record, batch + 1))
        return; /* undone since an earlier run: its number is there already */
    entry = find_entry(record, 0);
    unseal(record, &record->high, &high);
    if (!entry || batch < high)
        return;
    store(record, entry, batch + 1); /* first "not DONE", then "produced" */
    store(record, &record->high, batch + 1);
}

void trajd_journal_done(struct trajd_journal *journal, uint64_t batch)
{
    struct record *record = record_of(journal->file, journal->file->run);
    uint64_t *entry;

    if (!journal->file->run)
        return;
    entry = find_entry(record, batch + 1);
    if (entry)
        store(record, entry, 0);
}

void trajd_journal_set_sessions(struct trajd_journal *journal, uint32_t count)
{
    struct record *record = record_of(journal->file, journal->file->run);

    if (journal->file->run)
        store(record, &record->sessions,
              count < TRAJD_JOURNAL_ANY_SESSIONS ? count : TRAJD_JOURNAL_ANY_SESSIONS);
}

void trajd_journal_flush(struct trajd_journal *journal)
{
    sync_file_range(journal->fd, 0, 0, SYNC_FILE_RANGE_WRITE);
    if (++journal->flushes % FLUSHES_PER_TOUCH == 0)
        futimens(journal->fd, NULL);
}
