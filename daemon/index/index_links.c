/* Finds files that are listed by several names. */
#include <stdlib.h>
#include <string.h>

#include "daemon/index/index_internal.h"

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

void trajd_index_entry_set_stat(struct trajd_index_entry *entry, const struct stat *status)
{
    entry->stat = trajd_file_stat_from(status);
    entry->is_settled = trajd_file_stat_is_settled(&entry->stat);
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
