/* What lies in the inbox, and which of it nobody writes to any more.
 *
 * A file is settled when its inode, size and times have not changed for `settle` while this run
 * looked on, by a clock that no administrator sets, and when the kernel (asked by a lease) knows of
 * nobody who has it open for writing. A lease is given to the file's owner alone; where it cannot
 * be had, what was seen decides. */
#ifndef TRAJD_CLI_PREPROCESS_PREP_INBOX_H
#define TRAJD_CLI_PREPROCESS_PREP_INBOX_H

#include <stdbool.h>
#include <stdint.h>

#include "clients/cli/preprocess/prep_config.h"
#include "clients/cli/preprocess/prep_record.h"

struct prep_arrival {
    char *name; /* below the inbox */
    struct prep_identity identity;
    uint64_t inode;
    int64_t ctime_ns, since_ns; /* unchanged since, CLOCK_MONOTONIC */
    bool is_finished;           /* nothing more is to be done about it in this run */
};

struct prep_inbox {
    struct prep_arrival *arrivals; /* in natural order */
    uint32_t count;
};

/* Of `shard_count` runs that share an inbox, which one a file is for: a function of its name. */
uint32_t prep_shard(const char *name, uint32_t shard_count);

/* Looks again: what is gone leaves the list, what is new or has changed is to be finished. Names
 * that begin with a dot or end like what is being written (.partial, .part, .tmp, ~) and what is no
 * regular file do not count. TRAJD_ERR_IO, TRAJD_ERR_MEMORY. */
enum trajd_status prep_inbox_look(struct prep_inbox *inbox, const struct prep_config *config,
                                  uint32_t shard, uint32_t shard_count, struct trajd_error *error);
/* 0: it is settled. Else for how many ns it is to be looked at at least. */
int64_t prep_inbox_wait_ns(const struct prep_config *config, const struct prep_arrival *arrival);
void prep_inbox_clear(struct prep_inbox *inbox);

#endif
