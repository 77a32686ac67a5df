/* The identity of files, from stat; finds files that are listed by several names. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "daemon/index/index_internal.h"

/* more than the steps in which file systems count times: up to 2 s for writes, and up to 10 ms for
 * ctime, which the kernel sets */
static const int64_t mtime_step_ns = 2000000000, ctime_step_ns = 100000000;

static int order(uint64_t a, uint64_t b)
{
    return (a > b) - (a < b);
}

/* Compares two files by stat. Size and times count because some file systems make up inodes. */
static int compare_files(const struct trajd_index_entry *a, const struct trajd_index_entry *b)
{
    int by = order(a->device, b->device);

    by = by ? by : order(a->stat.inode, b->stat.inode);
    by = by ? by : order(a->stat.size_bytes, b->stat.size_bytes);
    by = by ? by : order((uint64_t)a->stat.mtime_ns, (uint64_t)b->stat.mtime_ns);
    return by ? by : order((uint64_t)a->stat.ctime_ns, (uint64_t)b->stat.ctime_ns);
}

struct trajd_file_stat trajd_file_stat_from(const struct stat *status)
{
    return (struct trajd_file_stat){
        .size_bytes = (uint64_t)status->st_size,
        .inode = status->st_ino,
        .link_count = status->st_nlink,
        .mtime_ns = (int64_t)status->st_mtim.tv_sec * 1000000000 + status->st_mtim.tv_nsec,
        .ctime_ns = (int64_t)status->st_ctim.tv_sec * 1000000000 + status->st_ctim.tv_nsec};
}

bool trajd_file_stat_is_same(const struct trajd_file_stat *before,
                             const struct trajd_file_stat *now)
{
    return before->size_bytes == now->size_bytes && before->inode == now->inode &&
           before->mtime_ns == now->mtime_ns &&
           (before->ctime_ns == now->ctime_ns || before->link_count != now->link_count);
}

void trajd_index_entry_set_stat(struct trajd_index_entry *entry, const struct stat *status)
{
    struct timespec wall;
    int64_t now_ns;

    clock_gettime(CLOCK_REALTIME, &wall);
    now_ns = (int64_t)wall.tv_sec * 1000000000 + wall.tv_nsec;
    entry->stat = trajd_file_stat_from(status);
    entry->is_settled = entry->stat.mtime_ns < now_ns - mtime_step_ns &&
                        entry->stat.ctime_ns < now_ns - ctime_step_ns;
}

/* Orders by file, then by place in the list. */
static int compare(const void *a, const void *b)
{
    const struct trajd_index_entry *left = *(const struct trajd_index_entry *const *)a,
                                   *right = *(const struct trajd_index_entry *const *)b;
    const int by = compare_files(left, right);

    return by ? by : order((uintptr_t)left, (uintptr_t)right);
}

static enum trajd_status no_memory(struct trajd_error *error)
{
    return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory for the list of files");
}

/* Sets same_as of further names. *kept becomes the number of the other entries. */
static enum trajd_status set_same_as(struct trajd_index_entry *entries, uint32_t count,
                                     uint32_t *kept, struct trajd_error *error)
{
    struct trajd_index_entry **sorted = calloc(count, sizeof *sorted);

    if (!sorted)
        return no_memory(error);
    for (uint32_t i = 0; i < count; i++)
        sorted[i] = &entries[i];
    qsort(sorted, count, sizeof *sorted, compare);
    *kept = count;
    for (uint32_t i = 1; i < count; i++) {
        const struct trajd_index_entry *before = sorted[i - 1];
        if (!sorted[i]->stat.inode || compare_files(before, sorted[i]))
            continue;
        sorted[i]->same_as = before->same_as ? before->same_as : before->relative_path;
        --*kept;
    }
    free(sorted);
    return TRAJD_OK;
}

/* Moves entries with same_as behind all others. Both keep their order. */
static enum trajd_status move_back(struct trajd_index_entry *entries, uint32_t count, uint32_t kept,
                                   struct trajd_error *error)
{
    struct trajd_index_entry *from = malloc(count * sizeof *from);
    uint32_t next = 0, link = kept;

    if (!from)
        return no_memory(error);
    memcpy(from, entries, count * sizeof *from);
    for (uint32_t i = 0; i < count; i++)
        entries[from[i].same_as ? link++ : next++] = from[i];
    free(from);
    return TRAJD_OK;
}

enum trajd_status trajd_index_separate_links(struct trajd_index_entry *entries, uint32_t *count,
                                             struct trajd_error *error)
{
    uint32_t kept = *count;
    enum trajd_status status = kept ? set_same_as(entries, *count, &kept, error) : TRAJD_OK;

    if (!status && kept < *count)
        status = move_back(entries, *count, kept, error);
    if (!status)
        *count = kept;
    return status;
}
