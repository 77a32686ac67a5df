/* Records which batches of a queue job's epoch are DONE, in a small memory-mapped file. The file is
 * valid after the daemon dies at any instruction.
 *
 * Batches of an epoch are numbered from the position where it began, and are produced in that
 * order. All batches that are not DONE below the highest one produced are in some slot. So the
 * whole state is one number, `high`, and at most TRAJD_JOURNAL_MAX_UNDONE numbers of batches below
 * it that are not DONE. A file has 12 KiB whatever the length of the epoch. (A bitmap would need a
 * bit for each batch, and clearing.)
 *
 * The file has two records. To begin an epoch, the record that is not in use is filled, and then
 * one store switches to it. Every word that changes carries a check, so that damage is noticed. If
 * the process dies, plain stores in program order are enough. If the host dies, the file is as old
 * as the last trajd_journal_flush that reached the disk: batches that were DONE since then may
 * repeat. Pages of different ages count as damage.
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

struct trajd_journal_state {
    struct trajd_journal_key key;
    uint64_t high;     /* batches [0, high) are DONE except the undone ones */
    uint64_t pass;     /* numbers the passes through epochs; 0: unknown */
    uint32_t sessions; /* of the job, which may return and still hold undone batches */
    uint32_t undone_count;
    uint64_t undone[TRAJD_JOURNAL_MAX_UNDONE]; /* ascending */
};

/* Puts the undone batches in ascending order. */
void trajd_journal_sort_undone(struct trajd_journal_state *state);

/* Opens or makes DIRECTORY/JOB@FEED-HASH.journal. *damaged is true if the file was damaged; it is
 * empty then. TRAJD_ERR_BUSY: another process has it open. TRAJD_ERR_IO: directory or disk. The
 * caller closes the journal. */
enum trajd_status trajd_journal_open(const char *directory, const char *feed, const char *job,
                                     struct trajd_journal **journal, bool *damaged,
                                     struct trajd_error *error);
void trajd_journal_close(struct trajd_journal **journal);
/* Removes the journals in `directory` that no process has open and whose files are older than
 * idle_ns. Open, close and (once an hour at least) flush renew a file's time. Other files stay. */
enum trajd_status trajd_journal_sweep(const char *directory, int64_t idle_ns, uint32_t *removed,
                                      struct trajd_error *error);
/* Returns a number that is another one for each job of each feed. */
uint64_t trajd_journal_number(const char *feed, const char *job);
/* Returns true if the file is a journal, of any version. */
bool trajd_journal_is_journal(int fd, off_t size_bytes);

/* Reads the state. Returns false if no epoch was begun yet. */
bool trajd_journal_load(const struct trajd_journal *journal, struct trajd_journal_state *state);
/* Begins an epoch with that state. */
void trajd_journal_begin(struct trajd_journal *journal, const struct trajd_journal_state *state);
/* Notes that the batch is in a slot: it is not DONE, and all batches below it were produced. */
void trajd_journal_produce(struct trajd_journal *journal, uint64_t batch);
/* Notes that the batch is DONE. */
void trajd_journal_done(struct trajd_journal *journal, uint64_t batch);
/* Notes how many sessions the job has. */
void trajd_journal_set_sessions(struct trajd_journal *journal, uint32_t count);
/* Starts the write-back to the disk. Does not block. Call about once a second. */
void trajd_journal_flush(struct trajd_journal *journal);

#endif
