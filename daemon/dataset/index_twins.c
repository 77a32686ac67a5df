/* Files that are listed by several names. */
#include <stdlib.h>
#include <string.h>

#include "daemon/dataset/index_parts.h"

/* The name that comes first stays. Where a filesystem makes inodes up, times and sizes still differ. */
static int compare(const void *a, const void *b)
{
    const struct trajd_index_entry *left = *(const struct trajd_index_entry *const *)a, *right = *(const struct trajd_index_entry *const *)b;

#define BY(member)                                                                                           \
    if (left->member != right->member)                                                                       \
        return left->member < right->member ? -1 : 1;
    BY(device)
    BY(inode)
    BY(size_bytes)
    BY(mtime_ns)
    BY(ctime_ns)
#undef BY
    return left < right ? -1 : left > right;
}

static bool is_same(const struct trajd_index_entry *a, const struct trajd_index_entry *b)
{
    return a->inode && a->device == b->device && a->inode == b->inode && a->size_bytes == b->size_bytes && a->mtime_ns == b->mtime_ns &&
           a->ctime_ns == b->ctime_ns;
}

static enum trajd_status no_memory(struct trajd_error *error)
{
    return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory for the list of files");
}

/* Sets same_as; *kept counts the others. */
static enum trajd_status mark(struct trajd_index_entry *entries, uint32_t count, uint32_t *kept, struct trajd_error *error)
{
    struct trajd_index_entry **order = calloc(count, sizeof *order);

    if (!order)
        return no_memory(error);
    for (uint32_t i = 0; i < count; i++)
        order[i] = &entries[i];
    qsort(order, count, sizeof *order, compare);
    *kept = count;
    for (uint32_t i = 1; i < count; i++) {
        const struct trajd_index_entry *before = order[i - 1];
        if (!is_same(before, order[i]))
            continue;
        order[i]->same_as = before->same_as ? before->same_as : before->relative_path;
        --*kept;
    }
    free(order);
    return TRAJD_OK;
}

/* Kept ones to the front, the others behind them, both as they come. */
static enum trajd_status part(struct trajd_index_entry *entries, uint32_t count, uint32_t kept, struct trajd_error *error)
{
    struct trajd_index_entry *from = malloc(count * sizeof *from);
    uint32_t next = 0, twin = kept;

    if (!from)
        return no_memory(error);
    memcpy(from, entries, count * sizeof *from);
    for (uint32_t i = 0; i < count; i++)
        entries[from[i].same_as ? twin++ : next++] = from[i];
    free(from);
    return TRAJD_OK;
}

enum trajd_status trajd_index_part_twins(struct trajd_index_entry *entries, uint32_t *count, struct trajd_error *error)
{
    uint32_t kept = *count;
    enum trajd_status status = kept ? mark(entries, *count, &kept, error) : TRAJD_OK;

    if (!status && kept < *count)
        status = part(entries, *count, kept, error);
    if (!status)
        *count = kept;
    return status;
}
