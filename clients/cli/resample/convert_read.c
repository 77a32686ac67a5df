/* Reads the source rows of a segment. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "clients/cli/resample/convert_rows_internal.h"
#include "daemon/base/memory.h"
#include "proto/regular_file.h"

void convert_buffer_grow(struct convert_buffer *buffer, size_t size)
{
    if (size <= buffer->size)
        return;
    free(buffer->bytes);
    buffer->bytes = trajd_memory_or_exit(aligned_alloc(CONVERT_ALIGNMENT, convert_align(size)));
    buffer->size = size;
}

enum trajd_status convert_check_input(const struct trajd_index_file *file, const struct stat *now,
                                      struct trajd_error *error)
{
    const struct trajd_file_stat found = trajd_file_stat_from(now);

    if (trajd_file_stat_is_same(&file->stat, &found))
        return TRAJD_OK;
    return trajd_error_set(error, TRAJD_ERR_DATA, 0,
                           "%s: changed since it was indexed (size, times or inode differ)",
                           file->path);
}

static enum trajd_status open_source(struct convert_worker *worker,
                                     const struct convert_episode *made, struct trajd_error *error)
{
    const struct trajd_index *index = worker->plan->options->indexes[made->source];
    const uint32_t file = index->episodes[made->episode].file_index;
    enum trajd_status status;
    struct stat now;

    if (worker->source_fd >= 0 && worker->source == made->source && worker->file == file)
        return TRAJD_OK;
    if (worker->source_fd >= 0)
        close(worker->source_fd);
    status = trajd_open_regular(index->files[file].path, &worker->source_fd, error);
    worker->source = made->source;
    worker->file = file;
    if (status)
        return status;
    if (fstat(worker->source_fd, &now))
        return trajd_error_set(error, TRAJD_ERR_IO, errno, "%s: %s", index->files[file].path,
                               strerror(errno));
    return convert_check_input(&index->files[file], &now, error);
}

/* Finds the source rows that the steps from time `first` to time `last` need; `next` is the time of
 * the step after them. */
static void find_rows(const struct convert_dataset *dataset,
                      const struct trajd_episode_clock *clock, struct convert_member *member,
                      int64_t first, int64_t last, int64_t next)
{
    const int64_t rows = member->array->rows;
    int64_t end = convert_row_at(clock, rows, last) + 2;

    member->row_begin = convert_row_at(clock, rows, first);
    for (uint32_t l = 0; l < dataset->lane_count; l++)
        if (dataset->lanes[l].kind == TRAJD_KIND_MEAN) {
            const int64_t row =
                convert_row_at(clock, rows, first - dataset->lanes[l].window_ns) + 1;
            member->row_begin = row < member->row_begin ? row : member->row_begin;
        } else if (dataset->lanes[l].adds) {
            end = convert_row_at(clock, rows, next) + 2;
        }
    if (member->row_begin < member->array->first_row)
        member->row_begin = member->array->first_row;
    member->row_end = end < rows ? end : rows;
}

uint32_t convert_members_find(struct convert_worker *worker, const struct convert_segment *segment,
                              uint64_t *bytes)
{
    const struct convert_plan *plan = worker->plan;
    const struct convert_episode *made = &plan->episodes[segment->episode];
    const struct convert_group *group = &worker->groups[segment->group];
    const struct trajd_episode *episode = convert_source_episode(plan, made);
    const int64_t first = made->begin_ns + convert_step_ns(plan, segment->step_begin),
                  last = made->begin_ns + convert_step_ns(plan, segment->step_end - 1),
                  next = made->begin_ns + convert_step_ns(plan, segment->step_end);
    uint32_t count = 0;

    *bytes = 0;
    for (uint32_t a = 0, i = 0; a < made->array_count && i < group->dataset_count; a++) {
        struct convert_member *member = &worker->members[count];
        while (i < group->dataset_count && group->datasets[i] < made->arrays[a].dataset)
            i++;
        if (i == group->dataset_count || group->datasets[i] != made->arrays[a].dataset)
            continue;
        member->array = &made->arrays[a];
        member->dataset = &plan->datasets[member->array->dataset];
        member->source =
            &episode->extents[plan->source_datasets[made->source][member->array->dataset]];
        find_rows(member->dataset, &episode->clocks[member->dataset->clock], member, first, last,
                  next);
        if (member->dataset->lane_count)
            *bytes +=
                (uint64_t)(member->row_end - member->row_begin) * member->dataset->source_bytes;
        count++;
    }
    return count;
}

/* Reads the rows that the clock keeps. Rows that it drops lie between them. */
static enum trajd_status read_kept(struct convert_worker *worker,
                                   const struct convert_member *member, const uint32_t *kept,
                                   uint8_t *rows, struct trajd_error *error)
{
    const uint64_t first = kept[member->row_begin], last = kept[member->row_end - 1],
                   size = member->dataset->source_bytes;
    enum trajd_status status;

    convert_buffer_grow(&worker->raw, (last - first + 1) * size);
    status = trajd_array_read(worker->reader, worker->source_fd, member->source, first,
                              last - first + 1, worker->raw.bytes, error);
    for (int64_t r = member->row_begin; r < member->row_end && !status; r++)
        memcpy(rows + (uint64_t)(r - member->row_begin) * size,
               worker->raw.bytes + (kept[r] - first) * size, size);
    return status;
}

enum trajd_status convert_members_read(struct convert_worker *worker,
                                       const struct convert_episode *made, uint32_t count,
                                       uint64_t bytes, struct trajd_error *error)
{
    const struct trajd_index *index = worker->plan->options->indexes[made->source];
    const struct trajd_episode *episode = &index->episodes[made->episode];
    enum trajd_status status = open_source(worker, made, error);
    size_t at = 0;

    convert_buffer_grow(&worker->source_rows, bytes + (size_t)count * CONVERT_ALIGNMENT);
    for (uint32_t p = 0; p < count && !status; p++) {
        struct convert_member *member = &worker->members[p];
        const uint32_t *kept = episode->clocks[member->dataset->clock].kept_rows;
        const uint64_t rows = (uint64_t)(member->row_end - member->row_begin);
        member->source_at = at;
        if (!member->dataset->lane_count)
            continue;
        status = kept ? read_kept(worker, member, kept, worker->source_rows.bytes + at, error)
                      : trajd_array_read(worker->reader, worker->source_fd, member->source,
                                         (uint64_t)member->row_begin, rows,
                                         worker->source_rows.bytes + at, error);
        if (status)
            trajd_error_prefix(error, "%s: %s: %s", index->files[episode->file_index].path,
                               episode->id, member->dataset->path);
        at = convert_align(at + rows * member->dataset->source_bytes);
        __atomic_fetch_add(&worker->report->rows_read, rows, __ATOMIC_RELAXED);
        __atomic_fetch_add(&worker->report->bytes_read, rows * member->dataset->source_bytes,
                           __ATOMIC_RELAXED);
    }
    worker->source_used = at;
    return status;
}
