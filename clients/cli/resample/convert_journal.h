/* Which episodes of a partial file are finished, so that a run that was killed can go on:
 * OUT.partial.journal.
 *
 *     journal := head, record*
 *     head    := u64 magic, u64 plan digest, u64 file size, u64 signature, u64 n, u64 offset[n],
 *             u64 digest of all before
 *     record  := u64 episode, u64 n, chunk[n], u64 digest of the record before it here        chunk
 *             := u64 offset, u32 size, u32 mask
 *
 * offset[] and chunk[] are in the plan's order of episodes, arrays, chunks; offsets are of all
 * arrays, chunks of the compressed ones of the record's episode. A record is appended after its
 * rows are on the disk; a last one that is cut does not count. */
#ifndef TRAJD_CLI_RESAMPLE_CONVERT_JOURNAL_H
#define TRAJD_CLI_RESAMPLE_CONVERT_JOURNAL_H

#include <stddef.h>

#include "clients/cli/resample/plan/convert_plan.h"
#include "clients/cli/resample/convert_output.h"

struct convert_journal_head {
    uint64_t file_size;
    uint64_t signature; /* the first bytes of the file, which it has back when it is finished */
};

/* Begins the file anew, with the offsets of the plan's arrays. TRAJD_ERR_IO. */
enum trajd_status convert_journal_begin(int fd, const struct convert_plan *plan,
                                        const struct convert_journal_head *head,
                                        struct trajd_error *error);
/* Appends a finished episode; chunks[array] as in convert_output.h. The caller syncs. */
enum trajd_status convert_journal_append(int fd, const struct convert_plan *plan, uint32_t episode,
                                         struct convert_chunk *const *chunks,
                                         struct trajd_error *error);

/* Reads a journal of this very plan: *head, the arrays' offsets, done[episode_count], chunks (NULL
 * where nothing is compressed). *used: bytes of it that count. TRAJD_ERR_NOT_FOUND: there is
 * nothing to go on with (no whole head); TRAJD_ERR_ARGUMENT: it is of another plan; TRAJD_ERR_DATA:
 * offsets lie outside the file. */
enum trajd_status convert_journal_read(const uint8_t *data, size_t length,
                                       struct convert_plan *plan, struct convert_journal_head *head,
                                       bool *done, struct convert_chunk *const *const *chunks,
                                       uint64_t spool_size, size_t *used,
                                       struct trajd_error *error);

#endif
