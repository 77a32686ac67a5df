/* Indexes a large file with several children. Each records a slice of the episodes, and the records
 * are joined. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/layout/glob.h"
#include "daemon/index/index_internal.h"

enum { SLICE_COUNT_MAX = 8, NOTE_COUNT_MAX = 256, EPISODE_COUNT_MAX = 1 << 20 };
/* another child costs some ms, and each one lists all episodes */
static const uint64_t split_bytes_min = UINT64_C(8) << 20;
static const size_t join_bytes_max = (size_t)4 << 30;

static uint32_t slice_count_of(const struct trajd_index_entry *entry, uint32_t slice_count)
{
    return entry->record.length || entry->stat.size_bytes < split_bytes_min ? 1 : slice_count;
}

/* Returns into how many slices large files are cut, so that every child has one. */
static uint32_t choose_slice_count(const struct trajd_index_options *options,
                                   const struct trajd_layout *layout,
                                   const struct trajd_index_entry *entries, uint32_t count)
{
    uint32_t missing = 0, slice_count;

    for (uint32_t i = 0; i < count; i++)
        missing += entries[i].record.length == 0;
    if (!missing || !trajd_is_glob(layout->groups))
        return 1;
    slice_count = options->child_count / missing;
    return slice_count > SLICE_COUNT_MAX ? SLICE_COUNT_MAX : slice_count < 1 ? 1 : slice_count;
}

/* ---- joining ---- */

static enum trajd_status no_memory(const struct trajd_index_entry *entry, struct trajd_error *error)
{
    return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "%s: no memory for its index", entry->path);
}

static bool is_same_file(const struct trajd_index_entry *a, const struct trajd_index_entry *b)
{
    return a->stat.size_bytes == b->stat.size_bytes && a->stat.inode == b->stat.inode &&
           a->stat.mtime_ns == b->stat.mtime_ns && a->stat.ctime_ns == b->stat.ctime_ns;
}

/* Adds the record of a slice. A refusal of one slice refuses the file. */
static void add_slice(struct trajd_record *joined, const struct trajd_record *record)
{
    if (!joined->refusal) {
        joined->refusal = record->refusal;
        joined->is_misfit = record->is_misfit;
    }
    for (uint32_t i = 0; i < record->note_count && joined->note_count < NOTE_COUNT_MAX; i++)
        joined->notes[joined->note_count++] = record->notes[i];
    for (uint32_t i = 0; i < record->episode_count; i++)
        joined->episodes[joined->episode_count++] = record->episodes[i];
}

/* Joins the records of all slices in the arena. TRAJD_ERR_MEMORY. */
static enum trajd_status join_records(const struct trajd_layout *layout,
                                      const struct trajd_index_entry *slices, uint32_t slice_count,
                                      struct trajd_arena *arena, struct trajd_record *joined,
                                      struct trajd_error *error)
{
    struct trajd_record records[SLICE_COUNT_MAX];
    uint64_t episode_count = 0;

    for (uint32_t k = 0; k < slice_count; k++) {
        const enum trajd_status status = trajd_record_decode(
            slices[k].record.data, slices[k].record.length, slices[k].stat.size_bytes,
            layout->clock_count, arena, &records[k], error);
        if (status)
            return status;
        episode_count += records[k].episode_count;
    }
    *joined = (struct trajd_record){
        .notes = trajd_arena_alloc(arena, NOTE_COUNT_MAX * sizeof *joined->notes),
        .episodes = trajd_arena_alloc(arena, (episode_count + 1) * sizeof *joined->episodes)};
    if (!joined->notes || !joined->episodes)
        return no_memory(slices, error);
    for (uint32_t k = 0; k < slice_count; k++)
        add_slice(joined, &records[k]);
    return TRAJD_OK;
}

static enum trajd_status join_slices(const struct trajd_layout *layout,
                                     struct trajd_index_entry *entry,
                                     const struct trajd_index_entry *slices, uint32_t slice_count,
                                     struct trajd_error *error)
{
    struct trajd_arena arena = {.limit_bytes = join_bytes_max};
    struct trajd_record joined = {0};
    bool is_same = true;
    enum trajd_status status = join_records(layout, slices, slice_count, &arena, &joined, error);

    entry->keep = true;
    for (uint32_t k = 0; k < slice_count; k++) {
        is_same = is_same && is_same_file(&slices[0], &slices[k]);
        entry->keep = entry->keep && slices[k].keep;
    }
    entry->stat = slices[0].stat;
    entry->is_settled = slices[0].is_settled;
    if (!is_same && !joined.refusal)
        joined.refusal = "it was written to while it was indexed";
    if (joined.episode_count > EPISODE_COUNT_MAX && !joined.refusal)
        joined.refusal = "too many objects for one record";
    if (joined.refusal)
        joined.episode_count = 0;
    entry->keep = entry->keep && is_same;
    if (!status && !trajd_record_encode(&joined, &entry->record))
        status = no_memory(entry, error);
    trajd_arena_free(&arena);
    return status;
}

/* ---- slices ---- */

/* Makes one task for each slice of each entry, in order. Paths are borrowed from the entries;
 * records that are there move to the tasks. */
static void make_tasks(struct trajd_index_entry *entries, uint32_t count, uint32_t slice_count,
                       struct trajd_index_entry *tasks)
{
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t own_count = slice_count_of(&entries[i], slice_count);
        for (uint32_t k = 0; k < own_count; k++, tasks++) {
            *tasks = entries[i];
            tasks->slice = k;
            tasks->slice_count = own_count;
        }
        entries[i].record = (struct trajd_bytes){0};
    }
}

static enum trajd_status take_tasks(const struct trajd_layout *layout,
                                    struct trajd_index_entry *entries, uint32_t count,
                                    struct trajd_index_entry *tasks, struct trajd_error *error)
{
    enum trajd_status status = TRAJD_OK;

    for (uint32_t i = 0; i < count && !status; i++) {
        const uint32_t own_count = tasks->slice_count;
        if (own_count == 1) {
            entries[i] = *tasks;
            tasks->record = (struct trajd_bytes){0};
        } else {
            status = join_slices(layout, &entries[i], tasks, own_count, error);
        }
        tasks += own_count;
    }
    return status;
}

enum trajd_status trajd_index_run_split(const struct trajd_index_options *options,
                                        const struct trajd_layout *layout,
                                        struct trajd_index_lock *lock,
                                        struct trajd_index_entry *entries, uint32_t count,
                                        struct trajd_error *error)
{
    const uint32_t slice_count = choose_slice_count(options, layout, entries, count);
    struct trajd_index_entry *tasks;
    uint32_t task_count = 0;
    enum trajd_status status;

    for (uint32_t i = 0; i < count; i++)
        task_count += slice_count_of(&entries[i], slice_count);
    if (task_count == count)
        return trajd_index_run_children(options, layout, lock, entries, count, error);
    tasks = calloc(task_count, sizeof *tasks);
    if (!tasks)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory for the index");
    make_tasks(entries, count, slice_count, tasks);
    status = trajd_index_run_children(options, layout, lock, tasks, task_count, error);
    if (!status)
        status = take_tasks(layout, entries, count, tasks, error);
    for (uint32_t i = 0; i < task_count; i++)
        trajd_bytes_free(&tasks[i].record);
    free(tasks);
    return status;
}
