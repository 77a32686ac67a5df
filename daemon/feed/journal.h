/* Records which batches of a queue job's epoch are DONE, in a small file. The file is valid after
 * the daemon dies at any instruction.
 *
 * Batches of an epoch are numbered from the position where it began, and are produced in that
 * order. All batches that are not DONE below the highest one produced are in some slot. So the
 * whole state is one number, `high`, and at most TRAJD_JOURNAL_MAX_UNDONE numbers of batches below
 * it that are not DONE. A file has 12 KiB whatever the length of the epoch. (A bitmap would need a
 * bit for each batch, and clearing.)
 *
 * The journal is complete in memory. trajd_journal_save writes what has changed. The file is made
 * when the first batch is DONE. If it cannot be written, the journal stays in memory, and
 * trajd_journal_flush tries again; so it does if another process removes the file or cuts it off.
 *
 * The file has two records of one page. To begin an epoch, the record that is not in use is filled,
 * and then one write switches to it. Later writes stay within the page, so that a process that dies
 * has done such a write or has not. Every word that changes carries a check, so that damage is
 * noticed. If the host dies, the file is as old as the last trajd_journal_flush that reached the
 * disk: batches that were DONE since then may repeat. Pages of different ages count as damage.
 *
 * Not thread-safe. Only one process at a time can have a journal open (flock). */
#ifndef TRAJD_FEED_JOURNAL_H
#define TRAJD_FEED_JOURNAL_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "proto/error.h"

#define TRAJD_JOURNAL_MAX_UNDONE 480u
#define TRAJD_JOURNAL_MAX_BATCH ((UINT64_C(1) << 48) - 2) /* numbers have 48 bits */
#define TRAJD_JOURNAL_MAX_PASS ((UINT64_C(1) << 48) - 1)
/* The number of sessions in a journal that does not record it: one of trajd 0.1.0. */
#define TRAJD_JOURNAL_ANY_SESSIONS 65535u

struct trajd_journal;

/* The epoch that a state is about. Batch i begins at position begin + i * batch. */
struct trajd_journal_key {
    uint64_t fingerprint, seed, epoch;
    /* Where the job asked to begin. That is not `begin` if the job went on with another batch
     * size. */
    uint64_t requested;
    uint64_t begin;  /* position of batch 0 */
    uint64_t length; /* positions in the epoch */
    uint64_t batch;  /* batch size G, in windows */
};

/* How long daemons have waited for sessions of before a death, without an end of that wait. */
struct trajd_journal_wait {
    uint32_t sessions;  /* of the state's sessions; the others had not died then */
    uint64_t waited_ms; /* for each of these sessions */
    uint64_t total_ms;  /* since any wait of the job began */
};

struct trajd_journal_state {
    struct trajd_journal_key key;
    uint64_t high;     /* batches [0, high) are DONE except the undone ones */
    uint64_t pass;     /* numbers the passes through epochs; 0: unknown */
    uint32_t sessions; /* of the job, which may return and still hold undone batches */
    struct trajd_journal_wait wait;
    uint32_t undone_count;
    uint64_t undone[TRAJD_JOURNAL_MAX_UNDONE]; /* ascending */
};

/* Puts the undone batches in ascending order. */
void trajd_journal_sort_undone(struct trajd_journal_state *state);

/* Makes a journal in memory, and reads DIRECTORY/JOB@FEED-HASH.journal if that exists. *damaged is
 * true if the file was damaged; file and journal are empty then. TRAJD_ERR_BUSY: another process
 * has the file open. TRAJD_ERR_IO: directory or disk. The caller closes the journal. */
enum trajd_status trajd_journal_open(const char *directory, const char *feed, const char *job,
                                     struct trajd_journal **journal, bool *damaged,
                                     struct trajd_error *error);
/* Sets the number of the user or key to whom the job belongs. Each has a limited number of
 * journals. */
void trajd_journal_set_owner(struct trajd_journal *journal, uint64_t owner);
/* Saves and frees the journal. */
void trajd_journal_close(struct trajd_journal **journal);
/* Removes the journals in `directory` that no process has open and that were found unused on more
 * days than idle_ns has. A day counts once however often it is swept: a clock that jumps adds one
 * day. Open, close and (once an hour at least) flush begin the count again. Other files stay. Call
 * once a day. */
enum trajd_status trajd_journal_sweep(const char *directory, int64_t idle_ns, uint32_t *removed,
                                      struct trajd_error *error);
/* Returns a number that is another one for each job of each feed. */
uint64_t trajd_journal_number(const char *feed, const char *job);

/* Reads the state. Returns false if no epoch was begun yet. */
bool trajd_journal_load(const struct trajd_journal *journal, struct trajd_journal_state *state);
/* The next four change the journal in memory. */
/* Begins an epoch with that state. */
void trajd_journal_begin(struct trajd_journal *journal, const struct trajd_journal_state *state);
/* Notes that the batch is in a slot: it is not DONE, and all batches below it were produced. */
void trajd_journal_produce(struct trajd_journal *journal, uint64_t batch);
/* Notes that the batch is DONE. */
void trajd_journal_done(struct trajd_journal *journal, uint64_t batch);
/* Notes how many sessions the job has, and the wait for those that are away. */
void trajd_journal_set_sessions(struct trajd_journal *journal, uint32_t count,
                                const struct trajd_journal_wait *wait);

/* Returns true if trajd_journal_save has something to write. */
bool trajd_journal_is_unsaved(const struct trajd_journal *journal);
/* Writes what has changed to the file. Does nothing before the first batch is DONE, unless there is
 * a file, and nothing between a failure and the next trajd_journal_flush. TRAJD_ERR_IO: directory
 * or disk. TRAJD_ERR_BUSY: another process has the file open, or the owner has too many journals in
 * use. */
enum trajd_status trajd_journal_save(struct trajd_journal *journal, struct trajd_error *error);
/* Starts the write-back to the disk, without waiting for it. Writes the whole file again after a
 * failure, or if it is lost. Errors as trajd_journal_save. Call about once a second. */
enum trajd_status trajd_journal_flush(struct trajd_journal *journal, struct trajd_error *error);

/* ---- journal_file.c: the file, and which files are removed. For journal.c and tests. ---- */

#define TRAJD_JOURNAL_MAGIC UINT64_C(0x314c4e524a4a5254) /* "TRJJRNL1" */
#define TRAJD_JOURNAL_VERSION 2u
#define TRAJD_JOURNAL_SIZE_BYTES 12288u
/* Journals of one owner. Another one replaces the one that was unused for the longest time. */
#define TRAJD_JOURNAL_MAX_PER_OWNER 64u

/* The first page of a journal. */
struct trajd_journal_head {
    uint64_t magic;
    uint32_t version, reserved;
    uint64_t run; /* counts the epochs that were begun */
    /* The rest is 0 in a journal of 0.1.0. */
    uint64_t owner; /* the owner's number + 1; 0: not known */
    /* On how many days a sweep has found the journal unused, and the day of the last use or sweep.
     * Days count from 1970. */
    uint32_t idle_days, last_day;
    uint8_t unused[4056];
};

/* Where a journal is, and whose. */
struct trajd_journal_place {
    char *directory;
    char name[200];
    uint64_t owner;
};

enum trajd_status trajd_journal_file_error(const struct trajd_journal_place *place,
                                           struct trajd_error *error);
/* Opens and locks the file. Without `create`, *fd is -1 if there is none. TRAJD_ERR_BUSY: another
 * process has it open. *fd is -1 after an error. */
enum trajd_status trajd_journal_file_open(const struct trajd_journal_place *place, bool create,
                                          int *fd, struct trajd_error *error);
/* Gives the file that size and the room for it on the disk. */
enum trajd_status trajd_journal_file_allocate(const struct trajd_journal_place *place, int fd,
                                              off_t size_bytes, struct trajd_error *error);
enum trajd_status trajd_journal_file_write(const struct trajd_journal_place *place, int fd,
                                           const void *bytes, size_t size, off_t at,
                                           struct trajd_error *error);
/* Takes the contents away from a file that cannot be written. If that fails too, they stay. */
void trajd_journal_file_empty(int fd);
/* Removes the file's name. The caller has the lock. */
void trajd_journal_file_remove(const struct trajd_journal_place *place);
/* Note in the head that the journal is in use today. */
void trajd_journal_head_note_use(struct trajd_journal_head *head, uint64_t owner);
void trajd_journal_file_note_use(int fd);
/* Removes journals of the owner until there is room for another one. TRAJD_ERR_BUSY: all of them
 * are in use. */
enum trajd_status trajd_journal_limit(const struct trajd_journal_place *place,
                                      struct trajd_error *error);

#endif
