/* Keeps the state of a queue job in memory and in its journal file, and reads it back after a
 * crash. */
#include "daemon/feed/journal.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define VALUE_BITS 48
#define FLUSHES_PER_TOUCH 3600u /* once an hour at one flush a second */

struct record {
    struct trajd_journal_key key;
    uint64_t run;
    uint64_t key_check;      /* over key and run */
    uint64_t high;           /* sealed */
    uint64_t sessions, pass; /* sealed; 0 in a journal of 0.1.0, which has neither */
    /* struct trajd_journal_wait, sealed; 0 in earlier journals, which have none */
    uint64_t wait_sessions, waited_ms, total_ms;
    uint64_t reserved[17];
    uint64_t undone[TRAJD_JOURNAL_MAX_UNDONE]; /* sealed: batch + 1, or 0 */
};

struct file {
    struct trajd_journal_head head; /* records[head.run % 2] is in use, and has the same number */
    struct record records[2];
};

_Static_assert(sizeof(struct record) == 4096, "a record is one page");
_Static_assert(sizeof(struct file) == 3 * 4096, "a journal is three pages");

struct trajd_journal {
    struct trajd_journal_place place;
    int fd;           /* -1: there is no file yet */
    bool is_wanted;   /* a file has to exist: a batch is DONE, or there was a file */
    bool is_failed;   /* the last write failed: only trajd_journal_flush tries again */
    bool has_begun;   /* the file lacks the epoch that was begun last */
    bool has_changed; /* the file lacks words [changed_begin, changed_end) of the record in use */
    uint32_t changed_begin, changed_end;
    uint32_t flushes; /* since the file was noted as used */
    struct file file; /* what the file has, or is to have */
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

static struct record *current_record(struct trajd_journal *journal)
{
    return &journal->file.records[journal->file.head.run % 2];
}

/* Stores a sealed value in the record in use, and notes that the file lacks it. */
static void store(struct trajd_journal *journal, uint64_t *place, uint64_t value)
{
    struct record *record = current_record(journal);
    const uint32_t index = (uint32_t)(place - (const uint64_t *)(const void *)record);

    *place = seal(record, place, value);
    if (!journal->has_changed || index < journal->changed_begin)
        journal->changed_begin = index;
    if (!journal->has_changed || index >= journal->changed_end)
        journal->changed_end = index + 1;
    journal->has_changed = true;
}

static uint64_t key_check(const struct record *record)
{
    return hash_bytes(TRAJD_JOURNAL_MAGIC + record->run, &record->key, sizeof record->key);
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

/* A wait that is damaged, or that the journal does not record, begins again. */
static void read_wait(const struct record *record, struct trajd_journal_wait *wait)
{
    uint64_t sessions;

    if (unseal(record, &record->wait_sessions, &sessions) &&
        sessions <= TRAJD_JOURNAL_ANY_SESSIONS &&
        unseal(record, &record->waited_ms, &wait->waited_ms) &&
        unseal(record, &record->total_ms, &wait->total_ms) && wait->waited_ms <= UINT32_MAX &&
        wait->total_ms <= UINT32_MAX)
        wait->sessions = (uint32_t)sessions;
    else
        *wait = (struct trajd_journal_wait){0};
}

/* Returns false if the record breaks any rule. */
static bool read_record(const struct record *record, uint64_t run,
                        struct trajd_journal_state *state)
{
    uint64_t value;

    if (record->run != run || record->key_check != key_check(record) || !record->key.batch ||
        record->key.batch > UINT32_MAX || record->key.length > INT64_MAX ||
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
    read_wait(record, &state->wait);
    return true;
}

static bool is_sound(const struct file *file)
{
    const uint64_t run = file->head.run;
    struct trajd_journal_state state;

    if (file->head.magic != TRAJD_JOURNAL_MAGIC || file->head.version != TRAJD_JOURNAL_VERSION)
        return false;
    return !run || read_record(&file->records[run % 2], run, &state);
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

/* Reads the file, and empties a damaged one. A file of 0 bytes is new, and not damaged. */
static enum trajd_status read_file(struct trajd_journal *journal, bool *damaged,
                                   struct trajd_error *error)
{
    const ssize_t got = pread(journal->fd, &journal->file, sizeof journal->file, 0);
    struct stat status;

    if (got < 0 || fstat(journal->fd, &status))
        return trajd_journal_file_error(&journal->place, error);
    *damaged =
        status.st_size && (status.st_size != (off_t)sizeof journal->file ||
                           got != (ssize_t)sizeof journal->file || !is_sound(&journal->file));
    if (*damaged) /* it counts once */
        trajd_journal_file_empty(journal->fd);
    if (*damaged || !status.st_size)
        memset(&journal->file, 0, sizeof journal->file);
    return TRAJD_OK;
}

enum trajd_status trajd_journal_open(const char *directory, const char *feed, const char *job,
                                     struct trajd_journal **journal, bool *damaged,
                                     struct trajd_error *error)
{
    struct trajd_journal *made = calloc(1, sizeof *made);
    enum trajd_status status = TRAJD_ERR_MEMORY;

    *damaged = false;
    if (made)
        made->place.directory = strdup(directory);
    if (!made || !made->place.directory) {
        free(made);
        return trajd_error_set(error, TRAJD_ERR_MEMORY, ENOMEM, "journal: no memory");
    }
    make_name(made->place.name, sizeof made->place.name, feed, job);
    status = trajd_journal_file_open(&made->place, false, &made->fd, error);
    if (!status && made->fd >= 0)
        status = read_file(made, damaged, error);
    if (status) {
        trajd_journal_close(&made);
        return status;
    }
    made->is_wanted = made->fd >= 0;
    *journal = made;
    return TRAJD_OK;
}

void trajd_journal_set_owner(struct trajd_journal *journal, uint64_t owner)
{
    journal->place.owner = owner;
}

void trajd_journal_close(struct trajd_journal **journal)
{
    struct trajd_journal *closing = *journal;

    *journal = NULL;
    if (!closing)
        return;
    trajd_journal_save(closing, NULL);
    if (closing->fd >= 0) {
        trajd_journal_file_note_use(closing->fd);
        close(closing->fd);
    }
    free(closing->place.directory);
    free(closing);
}

bool trajd_journal_load(const struct trajd_journal *journal, struct trajd_journal_state *state)
{
    const uint64_t run = journal->file.head.run;

    return run && read_record(&journal->file.records[run % 2], run, state);
}

void trajd_journal_begin(struct trajd_journal *journal, const struct trajd_journal_state *state)
{
    struct trajd_journal_head *head = &journal->file.head;
    struct record *record;

    head->magic = TRAJD_JOURNAL_MAGIC;
    head->version = TRAJD_JOURNAL_VERSION;
    head->run++;
    record = current_record(journal);
    memset(record, 0, sizeof *record);
    record->key = state->key;
    record->run = head->run;
    record->key_check = key_check(record);
    for (uint32_t i = 0; i < TRAJD_JOURNAL_MAX_UNDONE; i++)
        store(journal, &record->undone[i], i < state->undone_count ? state->undone[i] + 1 : 0);
    store(journal, &record->high, state->high);
    store(journal, &record->pass, state->pass);
    journal->has_begun = true;
    trajd_journal_set_sessions(journal, state->sessions, &state->wait);
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
    struct record *record = current_record(journal);
    uint64_t *entry, high;

    if (!journal->file.head.run || find_entry(record, batch + 1))
        return; /* undone since an earlier run: its number is there already */
    entry = find_entry(record, 0);
    unseal(record, &record->high, &high);
    if (!entry || batch < high)
        return;
    store(journal, entry, batch + 1);
    store(journal, &record->high, batch + 1);
}

void trajd_journal_done(struct trajd_journal *journal, uint64_t batch)
{
    uint64_t *entry =
        journal->file.head.run ? find_entry(current_record(journal), batch + 1) : NULL;

    if (!entry)
        return;
    store(journal, entry, 0);
    journal->is_wanted = true;
}

static uint32_t limit_sessions(uint32_t count)
{
    return count < TRAJD_JOURNAL_ANY_SESSIONS ? count : TRAJD_JOURNAL_ANY_SESSIONS;
}

void trajd_journal_set_sessions(struct trajd_journal *journal, uint32_t count,
                                const struct trajd_journal_wait *wait)
{
    struct record *record = current_record(journal);

    if (!journal->file.head.run)
        return;
    store(journal, &record->sessions, limit_sessions(count));
    store(journal, &record->wait_sessions, limit_sessions(wait->sessions));
    store(journal, &record->waited_ms, wait->waited_ms);
    store(journal, &record->total_ms, wait->total_ms);
}

bool trajd_journal_is_unsaved(const struct trajd_journal *journal)
{
    return journal->has_changed && journal->is_wanted && !journal->is_failed;
}

/* Writes bytes [begin, end) of the file. */
static enum trajd_status write_bytes(const struct trajd_journal *journal, size_t begin, size_t end,
                                     struct trajd_error *error)
{
    return trajd_journal_file_write(&journal->place, journal->fd,
                                    (const uint8_t *)&journal->file + begin, end - begin,
                                    (off_t)begin, error);
}

/* Makes the file with all that it has to have. */
static enum trajd_status write_new_file(struct trajd_journal *journal, struct trajd_error *error)
{
    enum trajd_status status = trajd_journal_limit(&journal->place, error);

    if (!status)
        status = trajd_journal_file_open(&journal->place, true, &journal->fd, error);
    if (!status)
        status =
            trajd_journal_file_allocate(&journal->place, journal->fd, sizeof journal->file, error);
    trajd_journal_head_note_use(&journal->file.head, journal->place.owner);
    if (!status)
        status = write_bytes(journal, 0, sizeof journal->file, error);
    if (status && journal->fd >= 0) {
        if (journal->has_begun) /* else the file has an earlier state of this pass */
            trajd_journal_file_remove(&journal->place);
        close(journal->fd);
        journal->fd = -1;
    }
    return status;
}

/* Writes the record in use, then the head, whose number of the run puts the record into use. A
 * killed process has written a page or has not. */
static enum trajd_status write_changes(struct trajd_journal *journal, struct trajd_error *error)
{
    const size_t at = offsetof(struct file, records) +
                      journal->file.head.run % 2 * sizeof journal->file.records[0];
    enum trajd_status status;

    if (!journal->has_begun)
        return write_bytes(journal, at + journal->changed_begin * sizeof(uint64_t),
                           at + journal->changed_end * sizeof(uint64_t), error);
    status = trajd_journal_file_allocate(&journal->place, journal->fd, sizeof journal->file, error);
    trajd_journal_head_note_use(&journal->file.head, journal->place.owner);
    if (!status)
        status = write_bytes(journal, at, at + sizeof journal->file.records[0], error);
    if (!status)
        status = write_bytes(journal, 0, sizeof journal->file.head, error);
    /* An earlier pass in the file would pass for this one. If that fails too, TRAJD_PASS_UNWRITTEN
     * tells them apart. */
    if (status)
        trajd_journal_file_empty(journal->fd);
    return status;
}

static enum trajd_status write_all(struct trajd_journal *journal, struct trajd_error *error)
{
    const enum trajd_status status =
        journal->fd < 0 ? write_new_file(journal, error) : write_changes(journal, error);

    journal->is_failed = status != TRAJD_OK;
    if (!status)
        journal->has_changed = journal->has_begun = false;
    return status;
}

enum trajd_status trajd_journal_save(struct trajd_journal *journal, struct trajd_error *error)
{
    return trajd_journal_is_unsaved(journal) ? write_all(journal, error) : TRAJD_OK;
}

/* Returns true if another process removed the file or changed its size. */
static bool is_file_lost(const struct trajd_journal *journal)
{
    struct stat status;

    return journal->fd >= 0 && !fstat(journal->fd, &status) &&
           (!status.st_nlink || status.st_size != (off_t)sizeof journal->file);
}

/* Starts the write-back. File systems on a network report here that the disk is full or failed. */
static enum trajd_status write_back(struct trajd_journal *journal, struct trajd_error *error)
{
    if (!sync_file_range(journal->fd, 0, 0, SYNC_FILE_RANGE_WRITE) ||
        (errno != EIO && errno != ENOSPC && errno != EDQUOT))
        return TRAJD_OK;
    journal->is_failed = true;
    return trajd_journal_file_error(&journal->place, error);
}

enum trajd_status trajd_journal_flush(struct trajd_journal *journal, struct trajd_error *error)
{
    if (journal->fd >= 0 && (journal->is_failed || is_file_lost(journal))) {
        close(journal->fd);
        journal->fd = -1;
        journal->is_failed = true;
    }
    if (journal->is_failed) {
        const enum trajd_status status = write_all(journal, error);
        return status ? status : write_back(journal, error);
    }
    if (journal->fd < 0)
        return TRAJD_OK;
    if (write_back(journal, error))
        return TRAJD_ERR_IO;
    if (++journal->flushes % FLUSHES_PER_TOUCH == 0)
        trajd_journal_file_note_use(journal->fd);
    return TRAJD_OK;
}
