#include "clients/cli/resample/convert_output.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "clients/cli/resample/convert_child.h"
#include "clients/cli/resample/convert_summary.h"
#include "clients/cli/resample/plan/convert_picks.h"
#include "daemon/index/writer_protocol.h"

enum { PATH_SIZE = 4096, BATCH_MAX = 64, BATCH_STEPS_MAX = 1 << 14, LEVEL_DEFAULT = 4 };

/* ---- the frames to the child ---- */

static void put_label(struct convert_child *child, const struct trajd_index *index,
                      const struct trajd_episode *episode)
{
    const char *file = index->files[episode->file_index].relative_path;
    char label[PATH_SIZE];

    snprintf(label, sizeof label, "%s", file);
    if (strcmp(file, episode->id))
        snprintf(label, sizeof label, "%.2000s:%.1500s", file, episode->id);
    trajd_bytes_add_text(&child->frame, label);
}

static void put_part(struct convert_child *child, const struct convert_episode *made)
{
    char *text = convert_part_json(child->plan, made);

    child->frame.failed = child->frame.failed || !text;
    if (text)
        trajd_bytes_add_text(&child->frame, text);
    free(text);
}

/* Returns whether a dataset is a stream, chosen or not, or holds times. The child does not report
 * such a dataset as left out. */
static bool is_known(const struct trajd_index *index, uint32_t dataset)
{
    for (uint32_t s = 0; s < index->stream_count; s++)
        if (index->streams[s].array_index == dataset)
            return true;
    for (uint32_t k = 0; k < index->clock_count; k++) {
        const struct trajd_layout_clock *clock = &index->layout->clocks[k];
        if ((clock->stamps_path && !strcmp(clock->stamps_path, index->arrays[dataset].path)) ||
            (clock->start_path && !strcmp(clock->start_path, index->arrays[dataset].path)))
            return true;
    }
    return false;
}

static void put_known(struct convert_child *child, const struct trajd_index *index)
{
    uint32_t known = 0;

    for (uint32_t d = 0; d < index->array_count; d++)
        known += is_known(index, d);
    trajd_bytes_add_u32(&child->frame, known);
    for (uint32_t d = 0; d < index->array_count; d++)
        if (is_known(index, d))
            trajd_bytes_add_text(&child->frame, index->arrays[d].path);
}

static void put_row_counts(struct convert_child *child, const struct trajd_index *index,
                           const struct trajd_episode *episode)
{
    uint32_t count = 0;

    for (uint32_t d = 0; d < index->array_count; d++)
        count += episode->extents[d].storage != TRAJD_STORAGE_ABSENT;
    trajd_bytes_add_u32(&child->frame, count);
    for (uint32_t d = 0; d < index->array_count; d++)
        if (episode->extents[d].storage != TRAJD_STORAGE_ABSENT)
            trajd_bytes_add_u64(&child->frame, trajd_array_row_count(&episode->extents[d]));
}

static void put_arrays(struct convert_child *child, const struct convert_episode *made,
                       const struct trajd_episode *episode)
{
    const uint32_t *source_datasets = child->plan->source_datasets[made->source];
    struct convert_pick picks[CONVERT_PICKS_MAX];
    const uint32_t count = convert_picks_find(child->plan, made, picks);

    trajd_bytes_add_u32(&child->frame, made->array_count);
    for (uint32_t a = 0; a < made->array_count; a++) {
        trajd_bytes_add_u32(&child->frame, made->arrays[a].dataset);
        convert_child_put_u8(
            child, episode->extents[source_datasets[made->arrays[a].dataset]].has_attributes);
        if (child->plan->datasets[made->arrays[a].dataset].is_encoded)
            trajd_bytes_add_u32(&child->frame,
                                convert_picks_of(child->plan, made, a, picks, count));
    }
}

/* Adds the rows that the steps take, for datasets that no stream names. */
static void put_picks(struct convert_child *child, const struct convert_episode *made)
{
    struct convert_pick picks[CONVERT_PICKS_MAX];
    const uint32_t count = convert_picks_find(child->plan, made, picks);

    trajd_bytes_add_u32(&child->frame, count);
    for (uint32_t i = 0; i < count; i++) {
        trajd_bytes_add_u64(&child->frame, picks[i].row_count);
        for (uint64_t step = 0; step < made->step_count; step++)
            trajd_bytes_add_u64(&child->frame,
                                convert_pick_row(child->plan, made, &picks[i], step));
    }
}

static bool has_encoded(const struct convert_plan *plan, const struct convert_episode *made)
{
    for (uint32_t a = 0; a < made->array_count; a++)
        if (plan->datasets[made->arrays[a].dataset].is_encoded)
            return true;
    return false;
}

/* Returns false if the plan covers all that the source's episode holds. The child then skips its
 * search for other objects. */
static bool has_more(const struct trajd_index *index, const struct trajd_episode *episode,
                     const struct convert_episode *made)
{
    uint32_t present = 0;

    for (uint32_t k = 0; k < index->clock_count; k++)
        if (index->layout->clocks[k].start_path)
            return true;
    for (uint32_t d = 0; d < index->array_count; d++)
        present += episode->extents[d].storage != TRAJD_STORAGE_ABSENT;
    return !episode->is_plain || present != made->array_count;
}

/* Adds the begin of each regular clock that stores its begin, as it would be recorded: without the
 * layout's offset and latency. */
static void put_starts(struct convert_child *child, const struct trajd_index *index,
                       const struct trajd_episode *episode, int64_t begin_ns)
{
    uint32_t count = 0;

    for (uint32_t k = 0; k < index->clock_count; k++)
        count += index->layout->clocks[k].start_path != NULL;
    trajd_bytes_add_u32(&child->frame, count);
    for (uint32_t k = 0; k < index->clock_count; k++) {
        const struct trajd_layout_clock *clock = &index->layout->clocks[k];
        if (!clock->start_path)
            continue;
        trajd_bytes_add_text(&child->frame, clock->start_path);
        trajd_bytes_add_u64(&child->frame, (uint64_t)(episode->origin_ns + begin_ns -
                                                      clock->offset_ns + clock->latency_ns));
        convert_child_put_u8(child, (uint8_t)clock->start_unit);
    }
}

static void put_episode(struct convert_child *child, const struct convert_episode *made)
{
    const struct trajd_index *index = child->plan->options->indexes[made->source];
    const struct trajd_episode *episode = &index->episodes[made->episode];
    const bool is_searched = has_more(index, episode, made);
    char path[PATH_SIZE];

    convert_episode_path(index, episode->id, path, sizeof path);
    trajd_bytes_add_text(&child->frame, path);
    convert_episode_path(index, made->id, path, sizeof path);
    trajd_bytes_add_text(&child->frame, path);
    put_label(child, index, episode);
    put_part(child, made);
    trajd_bytes_add_u64(&child->frame, made->step_count);
    convert_child_put_u8(child, is_searched);
    put_row_counts(child, index, episode);
    if (is_searched || has_encoded(child->plan, made))
        put_picks(child, made);
    else
        trajd_bytes_add_u32(&child->frame, 0);
    put_arrays(child, made, episode);
    put_starts(child, index, episode, made->begin_ns);
}

static enum trajd_status take_offsets(struct convert_child *child, struct convert_episode *made,
                                      uint32_t count)
{
    size_t length, arrays = 0;
    enum trajd_status status = convert_child_reply(child, TRAJD_WRITER_OFFSETS, &length);
    const uint8_t *next = child->reply;

    for (uint32_t e = 0; e < count; e++)
        arrays += made[e].array_count;
    if (!status && length != arrays * sizeof(uint64_t))
        return trajd_error_set(child->error, TRAJD_ERR_DATA, 0,
                               "%s: received offsets of %zu bytes for %zu datasets", made->id,
                               length, arrays);
    for (uint32_t e = 0; e < count && !status; e++)
        for (uint32_t a = 0; a < made[e].array_count; a++, next += sizeof(uint64_t))
            memcpy(&made[e].arrays[a].offset, next, sizeof(uint64_t));
    return status;
}

static enum trajd_status send_datasets(struct convert_child *child)
{
    const struct convert_plan *plan = child->plan;
    const int level = plan->options->compress_level;

    convert_child_begin(child);
    trajd_bytes_add_u32(&child->frame, plan->dataset_count);
    for (uint32_t i = 0; i < plan->dataset_count; i++) {
        const struct convert_dataset *dataset = &plan->datasets[i];
        trajd_bytes_add_text(&child->frame, dataset->path);
        convert_child_put_u8(child, dataset->is_enum ? TRAJD_BOOL : (uint8_t)dataset->to);
        convert_child_put_u8(child, dataset->is_encoded ? 0 : (uint8_t)(dataset->rank + 1));
        if (dataset->is_encoded)
            continue;
        for (uint32_t d = 0; d < dataset->rank; d++)
            trajd_bytes_add_u64(&child->frame, dataset->shape[d]);
        trajd_bytes_add_u64(&child->frame, dataset->is_compressed ? dataset->chunk_rows : 0);
        for (uint32_t d = 0; d < dataset->rank; d++)
            trajd_bytes_add_u64(&child->frame, dataset->chunk_shape[d]);
        convert_child_put_u8(child, (uint8_t)(level ? level < 9 ? level : 9 : LEVEL_DEFAULT));
    }
    return convert_child_send(child, TRAJD_WRITER_DATASETS, -1);
}

static enum trajd_status send_input(struct convert_child *child, const struct trajd_index *index,
                                    uint32_t file, bool is_first)
{
    const char *filter = index->layout->filter_path, *path = index->files[file].path;
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    char folder[PATH_SIZE] = "";
    enum trajd_status status;
    size_t length;

    if (fd < 0)
        return trajd_error_set(child->error, TRAJD_ERR_IO, errno, "%s: %s", path, strerror(errno));
    if (filter)
        snprintf(folder, sizeof folder, "%.*s", (int)(strrchr(filter, '/') - filter), filter);
    convert_child_begin(child);
    trajd_bytes_add_text(&child->frame, index->files[file].relative_path);
    trajd_bytes_add_text(&child->frame, index->layout->groups);
    trajd_bytes_add_text(&child->frame, folder);
    convert_child_put_u8(child, is_first);
    put_known(child, index);
    trajd_bytes_add_u32(&child->frame, index->layout->table_count);
    for (uint32_t i = 0; i < index->layout->table_count; i++)
        trajd_bytes_add_text(&child->frame, index->layout->tables[i]);
    status = convert_child_send(child, TRAJD_WRITER_INPUT, fd);
    close(fd);
    return status ? status : convert_child_reply(child, TRAJD_WRITER_READY, &length);
}

static bool is_of_one_file(const struct convert_plan *plan, uint32_t left, uint32_t right)
{
    const struct convert_episode *a = &plan->episodes[left], *b = &plan->episodes[right];
    const struct trajd_index *index = plan->options->indexes[a->source];

    return a->source == b->source &&
           index->episodes[a->episode].file_index == index->episodes[b->episode].file_index;
}

/* Sends `count` episodes from `first` on, and receives their offsets before anything else is sent.
 * Otherwise both sides could wait for room in the other's socket forever. */
static enum trajd_status send_batch(struct convert_child *child, struct convert_plan *plan,
                                    uint32_t first, uint32_t count)
{
    enum trajd_status status;

    convert_child_begin(child);
    trajd_bytes_add_u32(&child->frame, count);
    for (uint32_t i = 0; i < count; i++)
        put_episode(child, &plan->episodes[first + i]);
    status = convert_child_send(child, TRAJD_WRITER_EPISODES, -1);
    return status ? status : take_offsets(child, &plan->episodes[first], count);
}

/* Sends the episodes in order, in batches. One request and reply for each would cost as much as the
 * work itself. */
static enum trajd_status send_episodes(struct convert_child *child, struct convert_plan *plan)
{
    enum trajd_status status = send_datasets(child);
    uint64_t steps;

    for (uint32_t e = 0, count; e < plan->episode_count && !status; e += count) {
        const struct trajd_index *index = plan->options->indexes[plan->episodes[e].source];
        if (!e || !is_of_one_file(plan, e - 1, e))
            status = send_input(child, index, index->episodes[plan->episodes[e].episode].file_index,
                                e == 0);
        for (steps = plan->episodes[e].step_count, count = 1;
             count < BATCH_MAX && steps < BATCH_STEPS_MAX && e + count < plan->episode_count &&
             is_of_one_file(plan, e, e + count);
             count++)
            steps += plan->episodes[e + count].step_count;
        if (!status)
            status = send_batch(child, plan, e, count);
    }
    return status;
}

/* ---- the structure ---- */

/* Returns the size of the closed file. */
static enum trajd_status measure(const struct convert_plan *plan, int fd, uint64_t *size_bytes,
                                 struct trajd_error *error)
{
    struct stat status;

    if (fstat(fd, &status))
        return trajd_error_set(error, TRAJD_ERR_IO, errno, "%s: %s", plan->options->output,
                               strerror(errno));
    *size_bytes = (uint64_t)status.st_size;
    return TRAJD_OK;
}

static bool is_small(const struct trajd_convert_options *options)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < options->index_count; i++)
        for (uint32_t f = 0; f < options->indexes[i]->file_count; f++)
            bytes += options->indexes[i]->files[f].stat.size_bytes;
    return bytes <= TRAJD_WRITER_SMALL_BYTES;
}

static enum trajd_status begin_output(struct convert_child *child, int fd, bool is_new)
{
    enum trajd_status status = convert_child_start(child);
    size_t length;

    convert_child_begin(child);
    convert_child_put_u8(child, is_new);
    convert_child_put_u8(child, is_small(child->plan->options));
    if (!status)
        status = convert_child_send(child, TRAJD_WRITER_OUTPUT, fd);
    if (!status)
        status = convert_child_reply(child, TRAJD_WRITER_READY, &length);
    child->is_ready = !status;
    return status;
}

/* Checks that the child's offsets lie inside the file, because rows will be written there. */
static enum trajd_status check_offsets(const struct convert_plan *plan, uint64_t size_bytes,
                                       struct trajd_error *error)
{
    for (uint32_t e = 0; e < plan->episode_count; e++)
        for (uint32_t a = 0; a < plan->episodes[e].array_count; a++) {
            const struct convert_array *array = &plan->episodes[e].arrays[a];
            const struct convert_dataset *dataset = &plan->datasets[array->dataset];
            const uint64_t bytes = dataset->row_bytes * plan->episodes[e].step_count;
            if (!dataset->is_compressed && !dataset->is_encoded &&
                (array->offset < TRAJD_WRITER_SIGNATURE_SIZE || array->offset > size_bytes ||
                 bytes > size_bytes - array->offset))
                return trajd_error_set(
                    error, TRAJD_ERR_DATA, 0,
                    "%s: %s: the offset %" PRIu64 " lies outside the file of %" PRIu64 " bytes",
                    plan->episodes[e].id, dataset->path, array->offset, size_bytes);
        }
    return TRAJD_OK;
}

enum trajd_status convert_output_make(struct convert_plan *plan, int fd, uint64_t *size_bytes,
                                      struct trajd_error *error)
{
    struct convert_child child = {.plan = plan, .error = error, .socket = -1};
    enum trajd_status status = begin_output(&child, fd, true);

    if (!status)
        status = send_episodes(&child, plan);
    if (!status)
        status = convert_summary_send_masks(&child);
    if (!status)
        status = convert_summary_send(&child);
    convert_child_end(&child);
    if (!status)
        status = measure(plan, fd, size_bytes, error);
    return status ? status : check_offsets(plan, *size_bytes, error);
}

/* Adds the position of a chunk in the dataset. */
static void put_place(struct convert_child *child, const struct convert_dataset *dataset,
                      uint64_t chunk)
{
    uint64_t place[TRAJD_ARRAY_MAX_RANK] = {0}, tile = chunk % dataset->tile_count;

    for (uint32_t d = dataset->rank; d-- > 0;) {
        const uint64_t extent =
            (dataset->shape[d] + dataset->chunk_shape[d] - 1) / dataset->chunk_shape[d];
        place[d] = tile % extent * dataset->chunk_shape[d];
        tile /= extent;
    }
    trajd_bytes_add_u64(&child->frame, chunk / dataset->tile_count * dataset->chunk_rows);
    for (uint32_t d = 0; d < dataset->rank; d++)
        trajd_bytes_add_u64(&child->frame, place[d]);
}

static void put_chunks(struct convert_child *child, const struct convert_episode *made, uint32_t a,
                       const struct convert_chunk *chunks)
{
    const struct convert_dataset *dataset = &child->plan->datasets[made->arrays[a].dataset];
    const uint64_t count = convert_chunk_count(dataset, made->step_count);
    char group[PATH_SIZE], path[2 * PATH_SIZE];

    convert_episode_path(child->plan->options->indexes[made->source], made->id, group,
                         sizeof group);
    snprintf(path, sizeof path, "%s%s%s", group, group[1] ? "/" : "", dataset->path);
    trajd_bytes_add_text(&child->frame, path);
    convert_child_put_u8(child, (uint8_t)(dataset->rank + 1));
    trajd_bytes_add_u64(&child->frame, count);
    for (uint64_t c = 0; c < count; c++) {
        put_place(child, dataset, c);
        trajd_bytes_add_u64(&child->frame, chunks[c].offset);
        trajd_bytes_add_u32(&child->frame, chunks[c].size);
        trajd_bytes_add_u32(&child->frame, chunks[c].mask);
    }
}

enum trajd_status convert_output_add_chunks(const struct convert_plan *plan,
                                            struct convert_chunk *const *const *chunks, int fd,
                                            int spool_fd, uint64_t *size_bytes,
                                            struct trajd_error *error)
{
    struct convert_child child = {.plan = plan, .error = error, .socket = -1, .is_closing = true};
    enum trajd_status status = begin_output(&child, fd, false);
    uint32_t count = 0;
    size_t length;

    convert_child_begin(&child);
    trajd_bytes_add_u32(&child.frame, 0);
    for (uint32_t e = 0; e < plan->episode_count; e++)
        for (uint32_t a = 0; a < plan->episodes[e].array_count; a++)
            if (chunks[e][a]) {
                put_chunks(&child, &plan->episodes[e], a, chunks[e][a]);
                count++;
            }
    if (!child.frame.failed)
        memcpy(child.frame.data, &count, sizeof count);
    if (!status)
        status = convert_child_send(&child, TRAJD_WRITER_CHUNKS, spool_fd);
    if (!status)
        status = convert_child_reply(&child, TRAJD_WRITER_DONE, &length);
    convert_child_end(&child);
    return status ? status : measure(plan, fd, size_bytes, error);
}
