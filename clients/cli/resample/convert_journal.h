/* The journal OUT.partial.journal records the finished episodes of a partial file, so that a killed
 * run can be resumed.
 *
 *     journal := head, record*
 *     head    := u64 magic, u64 plan digest, u64 file size, u64 signature, u64 n, u64 offset[n],
 *                u64 digest of all bytes before it
 *     record  := u64 episode, u64 n, chunk[n], u64 digest of the record's bytes before it
 *     chunk   := u64 offset, u32 size, u32 mask
 *
 * offset[] and chunk[] are in the plan's order of episodes, arrays and chunks. offset[] covers all
 * arrays, chunk[] the compressed arrays of the record's episode. A record is appended after its
 * rows are on the disk. An incomplete last record is ignored. */
#ifndef TRAJD_CLI_RESAMPLE_CONVERT_JOURNAL_H
#define TRAJD_CLI_RESAMPLE_CONVERT_JOURNAL_H

#include <stddef.h>

#include "clients/cli/resample/plan/convert_plan.h"
#include "clients/cli/resample/convert_output.h"

struct convert_journal_head {
    uint64_t file_size;
    uint64_t signature; /* the first bytes of the file, restored when it is finished */
};

/* Begins the journal again, with the offsets of the plan's arrays. TRAJD_ERR_IO. */
enum trajd_status convert_journal_begin(int fd, const struct convert_plan *plan,
                                        const struct convert_journal_head *head,
                                        struct trajd_error *error);
/* Appends a finished episode. chunks[array] is as in convert_output.h. The caller syncs the
 * file. */
enum trajd_status convert_journal_append(int fd, const struct convert_plan *plan, uint32_t episode,
                                         struct convert_chunk *const *chunks,
                                         struct trajd_error *error);

/* Reads a journal of this plan: *head, the arrays' offsets, done[episode_count], and chunks (NULL
 * if nothing is compressed). *used becomes the number of valid bytes. TRAJD_ERR_NOT_FOUND: there is
 * no complete head, so there is nothing to resume. TRAJD_ERR_ARGUMENT: the journal is of another
 * plan. TRAJD_ERR_DATA: an offset lies outside the file. */
enum trajd_status convert_journal_read(const uint8_t *data, size_t length,
                                       struct convert_plan *plan, struct convert_journal_head *head,
                                       bool *done, struct convert_chunk *const *const *chunks,
                                       uint64_t spool_size, size_t *used,
                                       struct trajd_error *error);

#endif
