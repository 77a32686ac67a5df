/* What of a queue job's epoch is DONE, in a small memory-mapped file: it survives the death of the
 * daemon at any instruction.
 *
 * Batches of an epoch are numbered from the position where it began. They are produced in that
 * order, and all that are not DONE below the highest one produced are in some slot, so the whole
 * state is one number and at most TRAJD_JOURNAL_MAX_UNDONE others: `high`, and which batches below
 * it are not DONE. A file is 12 KiB whatever the epoch's length. A bitmap would need a bit a batch,
 * and clearing.
 *
 * The file has two records; beginning an epoch fills the one that is not in use, then one store
 * switches over. Every word that changes carries a check, so that a damaged file is noticed and not
 * believed. Plain stores in program order are all that a process's death needs; the host's death is
 * met by trajd_journal_flush: what was DONE since then may repeat, and pages of different ages are
 * not believed. Not thread-safe. One process at a time has a journal open (flock). */
#ifndef TRAJD_FEED_JOURNAL_H
#define TRAJD_FEED_JOURNAL_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "proto/error.h"

#define TRAJD_JOURNAL_MAX_UNDONE 480u
#define TRAJD_JOURNAL_MAX_BATCH ((UINT64_C(1) << 48) - 2) /* numbers are kept in 48 bits */

struct trajd_journal;

/* What an entry is about: batches count in `batch` windows from `begin`. */
struct trajd_journal_key {
    uint64_t fingerprint, seed, epoch;
    /* where the job wanted to begin, which is not `begin` if another G went on with it */
    uint64_t requested;
    uint64_t begin;  /* position of batch 0 */
    uint64_t length; /* positions in the epoch */
    uint64_t batch;  /* G */
};

struct trajd_journal_state {
    struct trajd_journal_key key;
    uint64_t high; /* batches [0, high) are DONE, but for: */
    uint32_t undone_count;
    uint64_t undone[TRAJD_JOURNAL_MAX_UNDONE]; /* ascending */
};

/* Opens or makes DIRECTORY/JOB@FEED-HASH.journal. *damaged: there was one that cannot be believed;
 * it is as good as new now. TRAJD_ERR_BUSY: another process has it open; TRAJD_ERR_IO: directory or
 * disk. */
enum trajd_status trajd_journal_open(const char *directory, const char *feed, const char *job,
                                     struct trajd_journal **journal, bool *damaged,
                                     struct trajd_error *error);
void trajd_journal_close(struct trajd_journal **journal);
/* Removes the journals of DIRECTORY that nobody has open and nobody has touched for so long:
 * opening, closing and (once an hour at least) flushing one touches it. Nothing else that lies
 * there. */
enum trajd_status trajd_journal_sweep(const char *directory, int64_t idle_ns, uint32_t *removed,
                                      struct trajd_error *error);
/* Whether a file is one at all, of whichever version. */
bool trajd_journal_is_journal(int fd, off_t size_bytes);

/* What is recorded; false: nothing yet. */
bool trajd_journal_load(const struct trajd_journal *journal, struct trajd_journal_state *state);
/* Begins anew with that state. */
void trajd_journal_begin(struct trajd_journal *journal, const struct trajd_journal_state *state);
/* The batch is in a slot from now on: not DONE, and all below it have been produced. */
void trajd_journal_produce(struct trajd_journal *journal, uint64_t batch);
void trajd_journal_done(struct trajd_journal *journal, uint64_t batch);
/* Starts the write-back to the disk; does not wait for it. Once a second or so. */
void trajd_journal_flush(struct trajd_journal *journal);

#endif
