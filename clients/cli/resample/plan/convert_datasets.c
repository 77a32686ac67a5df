/* The datasets of the output: element types, columns, chunks. */

#include "clients/cli/resample/plan/convert_plan.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK_BYTES = 64 << 10, CHUNK_BLOCK_BYTES_MAX = 64 << 20 };

/* Returns whether all streams of a dataset are events. */
static bool has_events(const struct trajd_index *index, uint32_t dataset)
{
    bool any = false;

    for (uint32_t s = 0; s < index->stream_count; s++)
        if (index->streams[s].array_index == dataset) {
            if (!index->streams[s].is_event)
                return false;
            any = true;
        }
    return any;
}

/* Returns the plan's dataset, which is added if it is not there. */
static struct convert_dataset *get_dataset(struct convert_plan *plan, uint32_t index_dataset,
                                           uint32_t clock)
{
    for (uint32_t d = 0; d < plan->dataset_count; d++)
        if (plan->datasets[d].index_dataset == index_dataset)
            return &plan->datasets[d];
    plan->datasets[plan->dataset_count] =
        (struct convert_dataset){.path = plan->first->arrays[index_dataset].path,
                                 .index_dataset = index_dataset,
                                 .clock = clock,
                                 .is_event = has_events(plan->first, index_dataset),
                                 .stamps_column = CONVERT_NO_COLUMN,
                                 .max_gap_ns = -1};
    return &plan->datasets[plan->dataset_count++];
}

const struct trajd_array *convert_first_array(const struct convert_plan *plan, uint32_t dataset)
{
    for (uint32_t e = 0; e < plan->first->episode_count; e++) {
        const struct trajd_episode *episode = &plan->first->episodes[e];
        if (!episode->quarantine && episode->extents[dataset].storage != TRAJD_STORAGE_ABSENT &&
            episode->extents[dataset].size_bytes)
            return &episode->extents[dataset];
    }
    return NULL;
}

static void take_shape(struct convert_dataset *dataset, const struct trajd_array *array)
{
    dataset->from = dataset->to = array->dtype;
    dataset->rank = array->rank - 1;
    dataset->elements = 1;
    for (uint32_t d = 1; d < array->rank; d++) {
        dataset->shape[d - 1] = array->shape[d];
        dataset->elements *= array->shape[d];
    }
    dataset->source_bytes = dataset->elements * trajd_dtype_size(array->dtype);
    dataset->is_compressed = array->storage == TRAJD_STORAGE_CHUNKED && array->filter_count > 0;
    dataset->chunk_rows = dataset->is_compressed ? array->chunk_shape[0] : 0;
    for (uint32_t d = 1; d < array->rank && dataset->is_compressed; d++)
        dataset->chunk_shape[d - 1] = array->chunk_shape[d];
}

/* Returns whether each step of the output is a row of the stream: the only clock is regular, and its
 * rate is a multiple of the output's. */
static bool takes_rows(const struct convert_plan *plan, uint32_t clock)
{
    const struct trajd_index *index = plan->first;
    bool all = index->clock_count == 1;

    for (uint32_t e = 0; e < index->episode_count && all; e++)
        all = index->episodes[e].quarantine ||
              trajd_rate_divides(plan->options->rate, index->episodes[e].clocks[clock].rate);
    return all;
}

/* Notes quaternions that a lane blends as plain numbers. */
static void note_quaternions(const struct convert_plan *plan, const struct convert_dataset *dataset,
                             const struct convert_lane *lane)
{
    const enum trajd_kind kind = lane->stream->kind;
    const struct trajd_quaternion *quaternions;
    const uint32_t count =
        trajd_index_find_quaternions(plan->first, dataset->index_dataset, lane->first_column,
                                     lane->first_column + lane->column_count, kind, &quaternions);
    char text[TRAJD_QUATERNION_ADVICE_SIZE];

    if (!count || (kind != TRAJD_KIND_MEAN && takes_rows(plan, dataset->clock)))
        return;
    trajd_index_advise_quaternions(plan->first, lane->stream->source, kind, quaternions, count,
                                   text);
    convert_note(plan->options, "%s: %s", lane->stream->source->name, text);
}

/* Notes what a lane does to its columns, and checks that it has whole quaternions. */
static enum trajd_status check_lane(const struct convert_plan *plan,
                                    const struct convert_dataset *dataset,
                                    const struct convert_lane *lane)
{
    const struct trajd_index_stream *source = lane->stream->source;

    if (!source) {
        convert_note(plan->options,
                     "%s: columns %" PRIu64 " to %" PRIu64
                     " belong to no stream of the layout and are held (kind previous)",
                     dataset->path, lane->first_column,
                     lane->first_column + lane->column_count - 1);
        return TRAJD_OK;
    }
    note_quaternions(plan, dataset, lane);
    if (convert_is_slerp(lane->stream->kind) &&
        ((lane->first_column - source->first_column) % 4 || lane->column_count % 4))
        return trajd_error_set(plan->error, TRAJD_ERR_UNSUPPORTED, 0,
                               "%s: another stream has some columns of its quaternions",
                               source->name);
    return TRAJD_OK;
}

/* Makes one lane for each run of columns of one stream. A stream of some columns takes precedence
 * over a stream of all columns. */
static enum trajd_status add_lanes(struct convert_plan *plan, struct convert_dataset *dataset)
{
    const uint32_t count = plan->first->stream_count;
    struct trajd_convert_stream **owners =
        trajd_memory_or_exit(malloc(dataset->elements * sizeof *owners));
    enum trajd_status status = TRAJD_OK;

    for (uint64_t c = 0; c < dataset->elements; c++)
        owners[c] = &plan->all[count];
    for (int of_some = 0; of_some < 2; of_some++)
        for (uint32_t i = 0; i < count; i++) {
            const struct trajd_index_stream *source = plan->all[i].source;
            if (source->array_index == dataset->index_dataset &&
                (source->feature_count != dataset->elements) == of_some)
                for (uint64_t c = 0; c < source->feature_count; c++)
                    owners[source->first_column + c] = &plan->all[i];
        }
    dataset->lanes = convert_alloc(plan, (count * 2 + 1) * sizeof *dataset->lanes);
    for (uint64_t c = 0; c < dataset->elements && !status;) {
        struct convert_lane *lane = &dataset->lanes[dataset->lane_count++];
        *lane = (struct convert_lane){.stream = owners[c], .first_column = c};
        while (c < dataset->elements && owners[c] == lane->stream)
            c++;
        lane->column_count = c - lane->first_column;
        status = check_lane(plan, dataset, lane);
    }
    free(owners);
    return status;
}

/* Sets the element type, which all streams of the dataset share. */
static enum trajd_status settle_type(struct convert_plan *plan, struct convert_dataset *dataset)
{
    const bool has_stamps = dataset->stamps_column != CONVERT_NO_COLUMN;
    const char *by = NULL;

    for (uint32_t i = 0; i < plan->first->stream_count; i++) {
        const struct trajd_convert_stream *stream = &plan->all[i];
        if (stream->source->array_index != dataset->index_dataset || stream->to == dataset->from)
            continue;
        if (by && stream->to != dataset->to)
            return trajd_error_set(plan->error, TRAJD_ERR_ARGUMENT, 0,
                                   "%s and %s are columns of one dataset and cannot be %s and %s",
                                   by, stream->source->name, trajd_dtype_name(dataset->to),
                                   trajd_dtype_name(stream->to));
        by = stream->source->name;
        dataset->to = stream->to;
    }
    if (by && has_stamps && !convert_is_floating(dataset->from))
        return trajd_error_set(
            plan->error, TRAJD_ERR_UNSUPPORTED, 0,
            "%s: holds stamps as %s, but %s would make it %s: use kind previous or nearest",
            dataset->path, trajd_dtype_name(dataset->from), by, trajd_dtype_name(dataset->to));
    if (by && has_stamps) {
        convert_note(plan->options, "%s: holds stamps and therefore stays %s", dataset->path,
                     trajd_dtype_name(dataset->from));
        dataset->to = dataset->from;
    }
    dataset->row_bytes = dataset->elements * trajd_dtype_size(dataset->to);
    for (uint32_t i = 0; i < plan->first->stream_count; i++)
        if (plan->all[i].source->array_index == dataset->index_dataset) {
            plan->all[i].to = dataset->to;
            plan->all[i].is_compressed = dataset->is_compressed;
        }
    return TRAJD_OK;
}

int64_t convert_find_dataset(const struct trajd_index *index, const char *path)
{
    for (uint32_t d = 0; path && d < index->array_count; d++)
        if (!strcmp(index->arrays[d].path, path))
            return d;
    return -1;
}

/* Adds the stamps of each clock that a dataset of the output uses. */
static void add_stamps(struct convert_plan *plan)
{
    const struct trajd_index *index = plan->first;
    const uint32_t count = plan->dataset_count;

    for (uint32_t k = 0; k < index->clock_count; k++) {
        const struct trajd_layout_clock *clock = &index->layout->clocks[k];
        const int64_t found = convert_find_dataset(index, clock->stamps_path);
        struct convert_dataset *dataset;
        bool used = false;
        for (uint32_t d = 0; d < count; d++)
            used = used || plan->datasets[d].clock == k;
        if (!used || found < 0 || !convert_first_array(plan, (uint32_t)found))
            continue;
        dataset = get_dataset(plan, (uint32_t)found, k);
        dataset->stamps_column = clock->stamps_column;
        dataset->stamps_unit = clock->unit;
    }
}

/* Checks that the stamps' type can hold the grid's times without repeats. */
static enum trajd_status check_stamps(const struct convert_plan *plan,
                                      const struct convert_dataset *dataset)
{
    static const int64_t units_ns[] = {1, 1000, 1000000, 1000000000};
    const struct trajd_rate rate = plan->options->rate;

    if (dataset->stamps_column == CONVERT_NO_COLUMN)
        return TRAJD_OK;
    if (dataset->stamps_column >= dataset->elements)
        return trajd_error_set(plan->error, TRAJD_ERR_DATA, 0,
                               "%s: has %" PRIu64
                               " columns, but the layout's stamps are column %" PRIu64,
                               dataset->path, dataset->elements, dataset->stamps_column);
    if (dataset->from == TRAJD_F16)
        return trajd_error_set(plan->error, TRAJD_ERR_UNSUPPORTED, 0,
                               "%s: float16 is too coarse for stamps", dataset->path);
    if (!convert_is_floating(dataset->from) &&
        convert_step_ns(plan, 1) < units_ns[dataset->stamps_unit])
        return trajd_error_set(
            plan->error, TRAJD_ERR_ARGUMENT, 0,
            "%s: holds stamps in whole units of %" PRId64 " ns, which would repeat at %.6g Hz",
            dataset->path, units_ns[dataset->stamps_unit], (double)rate.num / (double)rate.den);
    return TRAJD_OK;
}

/* Plans a dataset of encoded frames, whose rows are picked. */
static void add_encoded(struct convert_plan *plan, struct convert_dataset *dataset)
{
    dataset->is_encoded = true;
    dataset->from = dataset->to = TRAJD_U8;
    dataset->tile_count = 1;
    dataset->lanes = convert_alloc(plan, sizeof *dataset->lanes);
    for (uint32_t i = 0; i < plan->first->stream_count && !dataset->lane_count; i++)
        if (plan->all[i].source->array_index == dataset->index_dataset && plan->all[i].is_taken)
            dataset->lanes[dataset->lane_count++].stream = &plan->all[i];
}

/* Takes the input's chunk shape if there is one, so that the output compresses as well: images may
 * be in tiles that span many frames. Otherwise a chunk has whole rows. */
static void choose_chunks(struct convert_dataset *dataset)
{
    const bool takes =
        dataset->chunk_rows && dataset->chunk_rows <= CHUNK_BLOCK_BYTES_MAX / dataset->row_bytes;

    if (!takes)
        dataset->chunk_rows =
            dataset->row_bytes < CHUNK_BYTES ? CHUNK_BYTES / dataset->row_bytes : 1;
    dataset->tile_count = 1;
    for (uint32_t i = 0; i < dataset->rank; i++) {
        if (!takes || dataset->chunk_shape[i] > dataset->shape[i])
            dataset->chunk_shape[i] = dataset->shape[i];
        dataset->tile_count *=
            (dataset->shape[i] + dataset->chunk_shape[i] - 1) / dataset->chunk_shape[i];
    }
}

/* Plans a dataset whose rows are resampled. */
static enum trajd_status add_plain(struct convert_plan *plan, struct convert_dataset *dataset,
                                   const struct trajd_array *first)
{
    enum trajd_status status;

    take_shape(dataset, first);
    dataset->is_enum = first->is_enum && trajd_dtype_size(first->dtype) == 1;
    if (first->is_enum && !dataset->is_enum)
        convert_note(plan->options, "%s: an enum of more than one byte becomes plain integers",
                     dataset->path);
    if (plan->options->compress != TRAJD_CONVERT_KEEP)
        dataset->is_compressed = plan->options->compress == TRAJD_CONVERT_DEFLATE;
    if ((status = check_stamps(plan, dataset)) || (status = settle_type(plan, dataset)))
        return status;
    choose_chunks(dataset);
    return dataset->stamps_column != CONVERT_NO_COLUMN && dataset->elements == 1
               ? TRAJD_OK
               : add_lanes(plan, dataset);
}

/* Finds each dataset of the plan in each index. */
static void map_datasets(struct convert_plan *plan)
{
    const uint32_t count = plan->options->index_count;
    uint32_t **maps = convert_alloc(plan, count * sizeof *maps);

    for (uint32_t k = 0; k < count; k++) {
        maps[k] = convert_alloc(plan, plan->dataset_count * sizeof **maps);
        for (uint32_t d = 0; d < plan->dataset_count; d++) {
            const int64_t found =
                convert_find_dataset(plan->options->indexes[k], plan->datasets[d].path);
            maps[k][d] = found < 0 ? UINT32_MAX : (uint32_t)found;
        }
    }
    plan->source_datasets = maps;
}

enum trajd_status convert_add_datasets(struct convert_plan *plan)
{
    const struct trajd_index *index = plan->first;
    enum trajd_status status = TRAJD_OK;

    plan->datasets =
        convert_alloc(plan, (index->stream_count + index->clock_count) * sizeof *plan->datasets);
    for (uint32_t i = 0; i < index->stream_count; i++) {
        const struct trajd_index_stream *source = &index->streams[i];
        const int64_t max_gap_ns = plan->all[i].max_gap_ns;
        struct convert_dataset *dataset;
        if (!plan->all[i].is_taken || !convert_first_array(plan, source->array_index))
            continue;
        dataset = get_dataset(plan, source->array_index, source->clock_index);
        if (dataset->clock != source->clock_index)
            return trajd_error_set(plan->error, TRAJD_ERR_UNSUPPORTED, 0,
                                   "%s: its columns have two clocks, %s and %s", dataset->path,
                                   index->clocks[dataset->clock].name, plan->all[i].clock);
        if (max_gap_ns > 0 && (dataset->max_gap_ns < 0 || max_gap_ns < dataset->max_gap_ns))
            dataset->max_gap_ns = max_gap_ns;
    }
    add_stamps(plan);
    for (uint32_t d = 0; d < plan->dataset_count && !status; d++) {
        struct convert_dataset *dataset = &plan->datasets[d];
        const struct trajd_array *first = convert_first_array(plan, dataset->index_dataset);
        if (trajd_array_is_encoded(first))
            add_encoded(plan, dataset);
        else
            status = add_plain(plan, dataset, first);
    }
    map_datasets(plan);
    return status;
}
