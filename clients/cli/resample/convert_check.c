/* Reads the finished file again, and compares it with the plan. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "clients/cli/resample/convert_internal.h"
#include "daemon/base/memory.h"

enum { FILE_TIMEOUT_MS = 600000, EPISODES_OF_ONE_CHILD = 64 };

enum trajd_status convert_check_inputs(const struct conversion *r)
{
    const struct trajd_index_file *checked = NULL;
    enum trajd_status status = TRAJD_OK;

    for (uint32_t e = 0; e < r->plan.episode_count && !status; e++) {
        const struct convert_episode *made = &r->plan.episodes[e];
        const struct trajd_index_file *file =
            &convert_index_of(&r->plan, made)->files[convert_source_of(&r->plan, made)->file_index];
        struct stat now;
        if (file == checked)
            continue;
        if (stat(file->path, &now))
            return trajd_error_set(r->error, TRAJD_ERR_IO, errno, "%s: %s", file->path,
                                   strerror(errno));
        status = convert_check_input(file, &now, r->error);
        checked = file;
    }
    return status;
}

static bool is_made(const struct convert_plan *plan, const struct trajd_layout_stream *stream)
{
    for (uint32_t d = 0; d < plan->dataset_count; d++)
        if (trajd_layout_match(stream->path, plan->datasets[d].path, NULL, 0))
            return true;
    return false;
}

static bool has_stream(const struct convert_plan *plan, const char *name)
{
    for (uint32_t s = 0; s < plan->stream_count; s++)
        if (!strcmp(plan->streams[s]->source->name, name))
            return true;
    return false;
}

/* Changes a layout so that it does not need the streams that are not taken. */
static void omit_streams(const struct conversion *r, struct trajd_layout *layout)
{
    for (uint32_t s = 0; s < layout->stream_count; s++) {
        struct trajd_layout_stream *stream = (struct trajd_layout_stream *)&layout->streams[s];
        stream->optional = stream->optional || !is_made(&r->plan, stream);
    }
    for (uint32_t k = 0; k < layout->clock_count; k++) {
        struct trajd_layout_clock *clock = (struct trajd_layout_clock *)&layout->clocks[k];
        if (clock->rows && !has_stream(&r->plan, clock->rows))
            clock->rows = NULL;
    }
}

/* Indexes the finished file with the layout of the inputs. */
static enum trajd_status open_finished(const struct conversion *r, const char *path,
                                       struct trajd_index **index)
{
    const struct trajd_layout *source = r->plan.first->layout;
    /* a child takes longer to start than to list some episodes */
    const bool is_short = r->plan.episode_count <= EPISODES_OF_ONE_CHILD;
    const struct trajd_index_options options = {.path = path,
                                                .helper_path = r->options->helper_path,
                                                .child_count =
                                                    is_short ? 1 : r->backend.thread_count,
                                                .file_timeout_ms = FILE_TIMEOUT_MS};
    struct trajd_layout *layout;
    enum trajd_status status =
        trajd_layout_parse(source->name, source->text, source->text_length, &layout, r->error);

    if (status)
        return status;
    omit_streams(r, layout);
    return trajd_index_open_as(&options, layout, index, r->error);
}

/* Returns whether the array of the finished file is the one of the plan. */
static bool is_as_planned(const struct convert_dataset *dataset, const struct convert_episode *made,
                          const struct trajd_array *array)
{
    bool is_same = array->storage != TRAJD_STORAGE_ABSENT && array->dtype == dataset->to &&
                   array->shape[0] == made->step_count;

    if (dataset->is_encoded)
        return is_same && trajd_array_is_encoded(array);
    is_same = is_same && array->rank == dataset->rank + 1;
    for (uint32_t d = 0; d < dataset->rank && is_same; d++)
        is_same = array->shape[d + 1] == dataset->shape[d];
    return is_same;
}

/* Finds an episode of the plan in the finished file. Both are in natural order, unless the plan has
 * several inputs. */
static const struct trajd_episode *find_episode(const struct conversion *r,
                                                const struct trajd_index *index,
                                                const struct convert_episode *made, uint32_t e)
{
    const bool is_whole_file = convert_plan_is_of_files(&r->plan);

    for (uint32_t i = 0; i < index->episode_count; i++) {
        const struct trajd_episode *episode = &index->episodes[(e + i) % index->episode_count];
        if (is_whole_file || !strcmp(episode->id, made->id))
            return episode;
    }
    return NULL;
}

static enum trajd_status compare_episode(const struct conversion *r,
                                         const struct trajd_index *index, const int64_t *found,
                                         uint32_t e)
{
    const struct convert_episode *made = &r->plan.episodes[e];
    const struct trajd_episode *episode = find_episode(r, index, made, e);

    if (!episode)
        return trajd_error_set(r->error, TRAJD_ERR_DATA, 0, "%s is missing", made->id);
    if (episode->quarantine)
        return trajd_error_set(r->error, TRAJD_ERR_DATA, 0, "%s", episode->quarantine);
    for (uint32_t a = 0; a < made->array_count; a++) {
        const uint32_t d = made->arrays[a].dataset;
        if (found[d] < 0 || !is_as_planned(&r->plan.datasets[d], made, &episode->extents[found[d]]))
            return trajd_error_set(r->error, TRAJD_ERR_DATA, 0,
                                   "%s: %s has not the type and rows that were planned", made->id,
                                   r->plan.datasets[d].path);
    }
    return TRAJD_OK;
}

enum trajd_status convert_check_finished(const struct conversion *r, const struct output_file *file)
{
    int64_t *found = trajd_memory_or_exit(malloc((r->plan.dataset_count + 1) * sizeof *found));
    struct trajd_index *index = NULL;
    enum trajd_status status = open_finished(r, file->partial, &index);

    for (uint32_t d = 0; d < r->plan.dataset_count && !status; d++)
        found[d] = convert_find_dataset(index, r->plan.datasets[d].path);
    for (uint32_t e = 0; e < r->plan.episode_count && !status; e++)
        status = compare_episode(r, index, found, e);
    if (index)
        trajd_index_destroy(&index);
    free(found);
    if (status != TRAJD_ERR_DATA && status != TRAJD_ERR_NOT_FOUND)
        return status;
    trajd_error_prefix(
        r->error, "%s: the finished file cannot be read again, so it is not published", file->path);
    return TRAJD_ERR_DATA;
}
