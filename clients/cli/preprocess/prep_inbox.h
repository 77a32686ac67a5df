/* The files in the inbox, and which of them are complete.
 *
 * A file is settled when its inode, size and times have not changed for `settle`, by the monotonic
 * clock of this run, and when no process has it open for writing. The kernel tells this through a
 * lease, which only the file's owner can take; without a lease, the first condition decides. */
#ifndef TRAJD_CLI_PREPROCESS_PREP_INBOX_H
#define TRAJD_CLI_PREPROCESS_PREP_INBOX_H

#include <stdbool.h>
#include <stdint.h>

#include "clients/cli/preprocess/prep_config.h"
#include "clients/cli/preprocess/prep_record.h"

struct prep_arrival {
    char *name; /* relative to the inbox */
    struct prep_identity identity;
    uint64_t inode;
    int64_t since_ns; /* unchanged since, CLOCK_MONOTONIC */
    bool is_finished; /* this run has nothing more to do with it */
};

struct prep_inbox {
    struct prep_arrival *arrivals; /* in natural order */
    uint32_t count;
};

/* Reads the inbox again. Removes files that are gone from the list, and marks new and changed files
 * as unfinished. Ignores names that begin with a dot or end with .partial, .part, .tmp or ~, and
 * everything but regular files, and names that are not `is_ours`. TRAJD_ERR_IO. */
enum trajd_status prep_inbox_look(struct prep_inbox *inbox, const struct prep_config *config,
                                  bool (*is_ours)(void *context, const char *name), void *context,
                                  struct trajd_error *error);
/* Returns 0 for a settled file, else the ns until it can be settled. */
int64_t prep_inbox_wait_ns(const struct prep_config *config, const struct prep_arrival *arrival);
void prep_inbox_clear(struct prep_inbox *inbox);

#endif
