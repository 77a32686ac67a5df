/* What stat tells of a file when it is indexed. */
#ifndef TRAJD_INDEX_ROWS_FILE_STAT_H
#define TRAJD_INDEX_ROWS_FILE_STAT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

struct trajd_file_stat {
    uint64_t size_bytes;
    uint64_t inode;      /* 0: stat failed */
    uint64_t link_count; /* names: hard links */
    int64_t mtime_ns, ctime_ns;
};

struct trajd_file_stat trajd_file_stat_from(const struct stat *status);
/* Returns whether a file that is in use is as it was. A write changes ctime, also where the time of
 * modification is restored. Another ctime beside another number of hard links passes: backups make
 * such links. */
bool trajd_file_stat_is_same(const struct trajd_file_stat *before,
                             const struct trajd_file_stat *now);
/* Returns whether both times are old now, so that a later write gives other times: file systems
 * count them in steps. */
bool trajd_file_stat_is_settled(const struct trajd_file_stat *stat);

#endif
